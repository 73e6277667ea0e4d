"""A problem's model in PyMC: to inspect, extend, and sample by NUTS.

Parameters have plain priors. Their coordinates (`coordinates`) are PyMC transforms, which do not
change the model: of a variable's inputs, only those of its prior affect its density, and the last
two before its random generator its coordinates.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray

from .._lib.arrays import Floats
from .._lib.errors import FitError
from ..data.statistics import STATISTICS, Statistics
from ..families.priors import Prior
from ..families.rows import RowSums
from .coordinates import Coefficients, PenalisedCoefficients, in_order
from .internals import MixtureLogMarginal, Transform, Variable, gufunc_signature
from .interpreter import ModelSpace
from .laplace import ROOT2, half_normal_scale
from .mixture_cells import BEYOND, WITHIN_BOUNDS, MixtureCells
from .problem import Problem, build, prior_for

_MEDIAN = 0.4769362762044699  # erf(_MEDIAN) = 1/2


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
