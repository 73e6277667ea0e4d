"""PyTensor's interpreter: for models that a user has extended, and derivatives to all digits.

Nothing is compiled, as compiling takes longer than it saves.
"""

from collections.abc import Mapping, Sequence
from functools import cache, cached_property, reduce
from operator import add

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from .._lib.arrays import Floats, Ints
from ..families.rows import RowSums
from .coordinates import Constants, Parameters, Point, Space
from .internals import (
    Function,
    ParameterValueError,
    Variable,
    ancestors,
    initial_point,
    interpreted,
    merged,
    vectorized,
)
from .mixture_cells import WITHIN_BOUNDS
from .problem import Problem


def kept_variables(model: pm.Model) -> list[Variable]:
    """Variables kept in the posterior: all except the curves at bins, which follow from knots."""
    return [
        v
        for v in [*model.free_RVs, *model.deterministics]
        if not v.name.startswith("bin_")
    ]


class ModelSpace(Space):
    """The space of the parameters of an extended model: its value variables side by side."""

    def __init__(self, problem: Problem, model: pm.Model) -> None:
        self._problem = problem
        self.model = model
        self._point = initial_point(model)
        self._variables = [model.rvs_to_values[v] for v in model.free_RVs]
        self.labels = {
            str(dim): np.asarray(x) for dim, x in model.coords.items() if x is not None
        }

    @cached_property
    def start(self) -> Floats:
        """Coordinates where the model begins."""
        return np.concatenate([np.ravel(part) for part in self._point]).astype(float)

    def batched(self, outputs: Sequence[Variable]) -> tuple[Variable, list[Variable]]:
        """Outputs of the model's value variables, for all rows of a matrix of coordinates."""
        rows = pt.matrix("coordinates")
        replace = {}
        start = 0
        for variable, part in zip(self._variables, self._point, strict=True):
            values = rows[:, start : start + part.size]
            replace[variable] = values.reshape((rows.shape[0], *part.shape))
            start += part.size
        # PyMC repeats a variable's transform wherever it is used; merged only after
        # differentiation, each would still have its own gradient
        return rows, vectorized(merged(outputs), replace)

    @cached_property
    def _functions(self) -> tuple[Function, Function]:
        """Coefficients and log density at coordinates, and the gradient from slopes."""
        model = self.model
        parts = self._problem.coordinates.parts
        coefficients = [
            pt.concatenate([model[name] for name in part.names]) for part in parts
        ]
        values = model.replace_rvs_by_values(coefficients)
        rows, (*at_rows, log_density) = self.batched([*values, self._log_density()])
        slopes = [pt.matrix() for _ in at_rows]
        pulls = sum((x * slope).sum() for x, slope in zip(at_rows, slopes, strict=True))
        gradient = pt.grad(log_density.sum() + pulls, rows)
        forward = interpreted([rows], [*at_rows, log_density])
        return forward, interpreted([rows, *slopes], gradient)

    def _log_density(self) -> Variable:
        """Log density without the outcomes of items."""
        model = self.model
        problem = self._problem
        variables = [v for v in model.basic_RVs if v.name != problem.observed]
        potentials = [v for v in model.potentials if v.name != WITHIN_BOUNDS]
        factors = model.logp(vars=[*variables, *potentials], sum=False)
        # one after the other: the interpreter adds up at most 32 at once
        return reduce(
            add, (pt.as_tensor(f, allow_xtensor_conversion=True).sum() for f in factors)
        )

    def at(self, coordinates: Floats) -> Point:
        """Return all parameters at coordinates; where a scale underflows, the density is NaN."""
        forward, backward = self._functions
        try:
            *coefficients, log_density = forward(coordinates)
        except ParameterValueError:
            underflow = np.array([self._underflows(row) for row in coordinates])
            point = self.at(np.where(underflow[:, None], self.start, coordinates))
            return point._replace(
                log_density=np.where(underflow, np.nan, point.log_density)
            )

        def gradient(by_coefficients: Sequence[Floats]) -> Floats:
            return np.asarray(backward(coordinates, *by_coefficients))

        no_scales = np.empty((len(coordinates), 0))
        return Point(coefficients, no_scales, log_density, gradient)

    def _underflows(self, coordinates: Floats) -> bool:
        """Return True if a scale underflows at coordinates (dim,)."""
        try:
            self._functions[0](coordinates[None])
        except ParameterValueError:
            return True
        return False

    @cached_property
    def dims(self) -> dict[str, tuple[str, ...]]:
        """Dims of all variables of the posterior by name."""
        return {v.name: self._dims(v.name, v.ndim) for v in kept_variables(self.model)}

    def _dims(self, name: str, number: int) -> tuple[str, ...]:
        names = self.model.named_vars_to_dims.get(name) or [None] * number
        return tuple(dim or f"{name}_dim_{k}" for k, dim in enumerate(names))

    def variables(self, coordinates: Floats) -> Mapping[str, Floats]:
        """Return the variables of `dims` at coordinates, (draws, ...)."""
        variables = [self.model[name] for name in self.dims]
        matrix, outputs = self.batched(self.model.replace_rvs_by_values(variables))
        values = interpreted([matrix], outputs)(coordinates)
        return dict(zip(self.dims, values, strict=True))

    @cached_property
    def constants(self) -> Constants:
        """Dims and values by name of all data that the parameters depend on."""
        inputs = {*ancestors(self.model.free_RVs)}
        data = {d.name: d.get_value() for d in self.model.data_vars if d in inputs}
        return {name: (self._dims(name, np.ndim(x)), x) for name, x in data.items()}

    def densities(self, draws: Mapping[str, Floats]) -> tuple[Parameters, Parameters]:
        """Log priors of top-level parameters, and log likelihoods of what a user added, by name."""
        model = self.model
        free = model.free_RVs
        # a line's variable has further inputs, but its prior does not use them
        lines = {part.design.name for part in self._problem.coordinates.parts}
        top = [
            v
            for v in free
            if v.name in lines or not {*free} & ({*ancestors([v])} - {v})
        ]
        observed = [v for v in model.observed_RVs if v.name != self._problem.observed]
        # a density without parameters does not vary over the draws
        zero = 0.0 * free[0].sum()
        prior = {v.name: pm.logp(v, v).sum() for v in top}
        added = {v.name: pm.logp(v, model.rvs_to_values[v]) + zero for v in observed}
        added |= {v.name: v.sum() for v in model.potentials if v.name != WITHIN_BOUNDS}
        batches = [pt.tensor(shape=(None,) * (v.ndim + 1), dtype=v.dtype) for v in free]
        batch_of = dict(zip(free, batches, strict=True))
        outputs = vectorized([*prior.values(), *added.values()], batch_of)
        function = interpreted(batches, outputs)
        values = function(*(draws[v.name] for v in free))
        log_priors = dict(zip(prior, values, strict=False))
        return log_priors, dict(zip(added, values[len(prior) :], strict=True))


@cache
def _slope_function(sums: type[RowSums], dimensions: tuple[int, ...]) -> Function:
    """Log marginals and slopes in both parameters, from these (draws, k) and the rows' cells."""
    location, dispersion = pt.matrices("location", "dispersion")
    cells = [
        pt.tensor(shape=(None,) * number, dtype="float64") for number in dimensions
    ]
    value = sums.log_marginal(pt, location, dispersion, *cells)
    slopes = pt.grad(value.sum(), [location, dispersion])
    inputs = [location, dispersion, *cells]
    return interpreted(inputs, [value, *slopes])


def exact_slopes(
    data: RowSums, location: Floats, dispersion: Floats, rows: Ints
) -> Floats:
    """Return what `RowSums.value_and_gradient` does, to all digits: (3, draws, k)."""
    cells = data.cells(rows)
    with np.errstate(all="ignore"):
        function = _slope_function(type(data), tuple(x.ndim for x in cells))
        return np.array(function(location, dispersion, *cells))
