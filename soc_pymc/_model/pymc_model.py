"""A problem's model in PyMC: to inspect, extend, and sample by NUTS.

Parameters have plain priors. Their coordinates (`coordinates`) are PyMC transforms, which do not
change the model: of a variable's inputs, only those of its prior affect its density, and the last
two before its random generator its coordinates.

PyTensor's interpreter evaluates models that a user has extended, and derivatives to all digits.
Nothing is compiled there, as compiling takes longer than it saves.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property, reduce
from operator import add

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray

from .._lib.arguments import FitError
from .._lib.arrays import Floats, Ints
from ..data.statistics import STATISTICS, Statistics
from ..families.priors import Prior
from ..families.rows import RowSums
from .coordinates import (
    Coefficients,
    Constants,
    Parameters,
    PenalisedCoefficients,
    Point,
    Space,
    in_order,
)
from .internals import (
    Function,
    MixtureLogMarginal,
    ParameterValueError,
    Transform,
    Variable,
    ancestors,
    gufunc_signature,
    initial_point,
    interpreted,
    merged,
    vectorized,
)
from .laplace import ROOT2, half_normal_scale
from .mixtures import BEYOND, WITHIN_BOUNDS, MixtureCells
from .problem import Problem, build, prior_for

_MEDIAN = 0.4769362762044699  # erf(_MEDIAN) = 1/2


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


class ScaleTransform(Transform):
    """Map from a near-normal number v to tau ~ half-normal(scale), given the scale and a shape.

    q, the standard normal position of tau in its prior, is a + b sinh(d (asinh v + e)), whose shape
    (a, b, e, d) matches quantiles of the Laplace start's posterior of q (Jones and Pewsey 2009).
    """

    name = "nearnormal"  # PyMC splits names at underscores
    ndim_supp = 0

    @staticmethod
    def _constants(*inputs: Variable) -> Sequence[Variable]:
        *_, scale, shape, _ = inputs
        return scale, *(shape[i] for i in range(4))

    def backward(self, value: Variable, *inputs: Variable) -> Variable:
        """Tau at v."""
        scale, a, b, e, d = self._constants(*inputs)
        # tau stays above 1e-50 scale, where gradients in z/tau are still accurate; the density
        # there is below exp(-112) of its maximum
        q = pt.maximum(a + b * pt.sinh(d * (pt.arcsinh(value) + e)), -15.0)
        return half_normal_scale(q, scale, pt, pt)

    def forward(self, value: Variable, *inputs: Variable) -> Variable:
        """V at tau."""
        scale, a, b, e, d = self._constants(*inputs)
        x = value / (scale * ROOT2)
        low = -ROOT2 * pt.erfcinv(2.0 * pt.erf(pt.minimum(x, _MEDIAN)))
        high = ROOT2 * pt.erfcinv(2.0 * pt.erfc(pt.maximum(x, _MEDIAN)))
        q = pt.switch(pt.lt(x, _MEDIAN), low, high)
        return pt.sinh(pt.arcsinh((q - a) / b) / d - e)

    def log_jac_det(self, value: Variable, *inputs: Variable) -> Variable:
        """Log d tau / d v: dtau/dq is the ratio of the normal to the half-normal density."""
        scale, a, b, e, d = self._constants(*inputs)
        inner = d * (pt.arcsinh(value) + e)
        q = a + b * pt.sinh(inner)
        tau = self.backward(value, *inputs)
        log_slope = pt.log(b * d) + pt.log(pt.cosh(inner)) - 0.5 * pt.log1p(value**2)
        log_half = float(np.log(2.0)) - 0.5 * (tau / scale) ** 2 - pt.log(scale)
        return log_slope - 0.5 * q**2 - log_half


class AffineTransform(Transform):
    """Coefficients as centre + root w: the root is a vector of sds, or upper triangular."""

    name = "informed"
    ndim_supp = 1

    def backward(self, value: Variable, *inputs: Variable) -> Variable:
        """Coefficients at w."""
        *_, centre, root, _ = inputs
        return centre + (root * value if root.ndim == 1 else pt.dot(root, value))

    def forward(self, value: Variable, *inputs: Variable) -> Variable:
        """W at coefficients."""
        *_, centre, root, _ = inputs
        if root.ndim == 1:
            return (value - centre) / root
        return pt.linalg.solve_triangular(root, value - centre, lower=False)

    def log_jac_det(self, value: Variable, *inputs: Variable) -> Variable:
        """Log determinant of the root."""
        *_, root, _ = inputs
        return pt.log(root if root.ndim == 1 else pt.diagonal(root)).sum()


# --- variables -----------------------------------------------------------------------------------


def _variable(
    name: str,
    law: type[pm.Distribution],
    transform: Transform,
    *inputs: Variable,
    dims: str | tuple[str, ...] | None = None,
) -> Variable:
    """A variable with a law's prior, given its parameters, then those of the coordinates."""

    def logp(value: Variable, *inputs: Variable) -> Variable:
        density = pm.logp(law.dist(*inputs[:-2]), value)
        return density.sum(axis=-1) if transform.ndim_supp else density

    def dist(*inputs: Variable) -> Variable:
        *parameters, centre, _, size = inputs
        return law.dist(*parameters, size=centre.shape if transform.ndim_supp else size)

    def mode(variable: Variable, size: Variable, *inputs: Variable) -> Variable:
        return transform.backward(pt.zeros_like(inputs[-2]), *inputs, None)

    return pm.CustomDist(
        name,
        *inputs,
        dist=dist,
        logp=logp,
        support_point=mode,
        ndim_supp=transform.ndim_supp,
        ndims_params=[np.ndim(x) for x in inputs],
        dims=dims,
        transform=transform,
    )


def _data(part: Coefficients) -> dict[str, Variable]:
    """All constants of a part as data of the model, so that compiled code can be reused."""
    labelled = (part.design.dim,)
    return {
        name: pm.Data(name, value, dims=dims if dims == labelled else None)
        for name, (dims, value) in part.constants.items()
    }


def _scale_variable(name: str, data: Mapping[str, Variable]) -> Variable:
    """A scale tau ~ half-normal."""
    scale = data[f"{name}_prior_scale"]
    shape = data[f"{name}_shape"]
    return _variable(name, pm.HalfNormal, ScaleTransform(), scale, scale, shape)


def _coefficients(
    part: Coefficients, earlier: Sequence[Variable] = ()
) -> tuple[Variable, Variable]:
    """Add variables of coefficients and their outputs; returns them and their values at the rows.

    The line may depend on the coefficients of `earlier` parts.
    """
    data = _data(part)
    variables: list[Variable] = []
    for scale, term, block in zip(
        part.scales, part.terms, part.design.blocks, strict=True
    ):
        tau = _scale_variable(scale.name, data)
        variables.append(_term(term, block.dim, tau, variables, data))
    before = pt.concatenate(variables) if variables else pt.zeros((0,))
    values = pt.concatenate([before, _line(part, before, data, earlier)])
    for output in part.outputs:
        matrix = pm.Data(f"to_{output.name}", output.matrix @ part.laplace.turn)
        at_points = pt.dot(matrix, values).reshape(output.shape)
        pm.Deterministic(output.name, at_points, dims=output.dims)
    at_rows = pm.Data(f"{part.design.name}_at_rows", part.at_rows)
    return values, pt.dot(at_rows, values)


def _term(
    term: PenalisedCoefficients,
    dim: str,
    tau: Variable,
    before: Sequence[Variable],
    data: Mapping[str, Variable],
) -> Variable:
    """Rotated coefficients of a term, as in `PenalisedCoefficients.at`."""
    pull = data[f"{term.name}_pull"]
    precision = data[f"{term.name}_precision"]
    if before:
        pull = pull - pt.dot(data[f"{term.name}_coupling"], pt.concatenate(before))
    log_sd = pt.log(tau) - 0.5 * pt.log1p(precision * tau**2)
    inputs = 0.0, tau, pull * pt.exp(2.0 * log_sd), pt.exp(log_sd)
    return _variable(term.name, pm.Normal, AffineTransform(), *inputs, dims=dim)


def _line(
    part: Coefficients,
    before: Variable,
    data: Mapping[str, Variable],
    earlier: Sequence[Variable],
) -> Variable:
    """The line's coefficients, as in `LineCoefficients.at`."""
    name = part.line.name
    prior = data[f"{name}_prior_mean"], data[f"{name}_prior_sd"]
    centre = data[f"{name}_centre"] - pt.dot(data[f"{name}_shift"], before)
    if part.line.bend:
        average = pt.dot(data[f"{name}_bend"], earlier[0])
        fall = pt.softplus(average) - pt.softplus(data[f"{name}_bend_start"])
        level = np.eye(part.line.size)[0]
        centre = centre - data[f"{name}_bend_share"] * fall * level
    inputs = *prior, centre, data[f"{name}_root"]
    return _variable(name, pm.Normal, AffineTransform(), *inputs, dims=part.design.dim)


# --- the observed variable: its data are inputs, as PyMC never releases a distribution's functions


def shared(arrays: Iterable[NDArray[np.generic]]) -> tuple[Variable, ...]:
    """Arrays as shared variables, so that compiled code can be reused with other data."""
    return tuple(pytensor.shared(a, shape=(None,) * a.ndim) for a in arrays)


def observe_curves(name: str, curves: Mapping[str, Variable], data: RowSums) -> None:
    """Add the observed variable of a single family, given both curves at the rows."""
    cells = data.cells()
    sums = type(data)
    signature = gufunc_signature([0, 0, *(x.ndim - 1 for x in cells)])
    pm.CustomDist(
        name,
        *[
            pm.Deterministic(curve, values, dims="bin")
            for curve, values in curves.items()
        ],
        *shared(cells),
        observed=data.total,
        random=lambda *inputs, rng, size: sums.replicates(rng, *inputs),
        signature=signature,
        logp=lambda _, *inputs: sums.log_marginal(pt, *inputs),
        dims="bin",
    )


def observe_mixture(
    name: str, predictors: Variable, cells: MixtureCells, sums: Floats
) -> None:
    """Add the observed variable of a mixture given the predictors (rows, J)."""
    core = [x.ndim for x in cells.arrays]
    family = cells.forms.family.name

    def logp(_: Variable, predictors: Variable, *arrays: Variable) -> Variable:
        # without the leading dimensions of length 1 that PyMC adds
        inputs = (
            x[(0,) * (x.ndim - number)] for x, number in zip(arrays, core, strict=True)
        )
        return MixtureLogMarginal(family)(predictors, *inputs)[0]

    excess = cells.forms.bounds.excess(predictors[:, 0], predictors[:, 1], pt)
    pm.Potential(WITHIN_BOUNDS, -0.5 * sum(pt.sqr(x / BEYOND).sum() for x in excess))
    pm.CustomDist(
        name,
        predictors,
        *shared(cells.arrays),
        observed=sums,
        signature=gufunc_signature([1, *core]),
        logp=logp,
        dims="bin",
    )


# --- the model ------------------------------------------------------------------------------------


def pymc_model(problem: Problem) -> pm.Model:
    """Build the model of a problem without levels that are integrated out."""
    model = pm.Model(coords=problem.coordinates.labels)
    with model:
        parts = problem.coordinates.parts
        coefficients: list[Variable] = []
        at_rows = {}
        for part in in_order(parts):
            values, at_rows[part.design.name] = _coefficients(part, coefficients)
            coefficients.append(values)
        by_part = [at_rows[part.design.name] for part in parts]
        if problem.mixture:
            predictors = by_part[0].reshape((len(problem.score), -1))
            predictors = pm.Deterministic("bin_predictor", predictors)
            cells = problem.mixture.cells
            observe_mixture(problem.observed, predictors, cells, problem.totals)
        else:
            names = (f"bin_{curve}" for curve in problem.family.curve_names)
            curves = dict(zip(names, by_part, strict=True))
            observe_curves(problem.observed, curves, problem.pilot.data)
    return model


def model_of(problem: Problem) -> pm.Model:
    """Returns the problem's model, with the terms that a user added."""
    space = problem.space
    return space.model if isinstance(space, ModelSpace) else pymc_model(problem)


def model(stats: Statistics, prior: Prior | None = None) -> pm.Model:
    """The PyMC model, to inspect, draw, sample or extend.

    Parameters
    ----------
    stats : Statistics
        Sufficient statistics of the items; for mixtures with joint cells.
    prior : Gamma, Normal, Beta, InverseGamma, a mixture of them or None
        The prior of theta; None is ``soc.Gamma()`` for counts, ``soc.Normal()`` for values,
        ``soc.Beta()`` for successes, ``soc.InverseGamma()`` for amounts.

    Returns
    -------
    pymc.Model
        ``log_mean`` and ``log_cv2`` are the curves at the knots, ``bin_log_mean`` and
        ``bin_log_cv2`` at the rows (occupied bins; by group and by half-octave of exposures, where
        the prior has such terms), and ``count`` is a row's sum, with the log probability of all its
        items. For values these are ``mean``, ``log_variance`` and ``value``. Mixtures have
        ``bin_predictor``: both curves and coefficients of the log weights, at the rows.

    Raises
    ------
    FitError
        If the prior is not for such items, the scores have no position on the axis (log of scores
        at or below 0), or a term or a mixture needs joint cells that were not kept.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> sorted(soc.model(stats).coords)[:2]
    ['bin', 'mean_basis']
    """
    STATISTICS(stats, "stats")
    return pymc_model(build(stats, prior_for(prior, stats), full=True))


def extended(problem: Problem, model: pm.Model) -> Problem:
    """Return the problem with a model of its own to which a user has added terms."""
    plain = pymc_model(problem)
    lacking = sorted(v.name for v in plain.basic_RVs if v.name not in model.named_vars)
    if lacking:
        raise FitError(
            f"model= lacks {', '.join(lacking)}: extend soc.model(stats, prior) of the same prior"
        )
    coords_match = all(
        np.array_equal(np.asarray(model.coords.get(name, ())), np.asarray(values))
        for name, values in plain.coords.items()
    )
    if not (
        coords_match
        and np.array_equal(_observed_totals(problem, model), problem.totals)
    ):
        raise FitError(
            "model= does not match stats and prior (data or knots): rebuild it"
        )
    if model.discrete_value_vars:
        names = ", ".join(v.name for v in model.discrete_value_vars)
        raise FitError(f"model= has discrete unknowns ({names}): sum them out")
    return replace(problem, extended=ModelSpace(problem, model))


def _observed_totals(problem: Problem, model: pm.Model) -> Floats:
    """Observed totals of a model; compiled code would leave its source in the temporary folder."""
    variable = model.rvs_to_values[model[problem.observed]]
    return np.asarray(variable.eval(mode="FAST_COMPILE"))
