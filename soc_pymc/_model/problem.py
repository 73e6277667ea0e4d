"""Building of the `pymc.Model` from a prior and statistics."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import xarray as xr

from .._lib.arguments import A
from .._lib.arrays import Floats
from .._lib.errors import FitError
from ..data.statistics import STATISTICS, Statistics
from ..families.family import FAMILIES, Family, family_of_kind
from ..families.mixture_rows import SIGNATURE
from ..families.mixture_weights import Bounds
from ..families.priors import Prior
from ..families.row_sums import RowSums
from .coordinates import Coefficients, add_coefficients, add_level_scales, totals
from .likelihood import MixtureLogMarginal, shared, unbatched
from .mixture_grid import GridMixture, place_mixture
from .pilot import Pilot, find_pilot

_BEYOND = 2.0  # sd of a mixture's curves beyond what its components can represent


@dataclass(frozen=True)
class Problem:
    """A model with further inputs of inference and the fit."""

    model: pm.Model
    family: Family
    pilot: Pilot
    coefficients: tuple[Coefficients, ...]
    mixture: GridMixture | None = None
    built_in: frozenset[str] = frozenset()  # parameters and potentials that the user did not add

    @property
    def data(self) -> Any:
        """Sums of the likelihood's rows: `RowSums` or `MixtureCells`."""
        return self.mixture.design.cells if self.mixture else self.pilot.data

    @property
    def score(self) -> Floats:
        """Score at the centre of each of the likelihood's rows."""
        mean = self.pilot.curves[0]
        return self.mixture.design.rows.score if self.mixture else mean.axis.inverse(mean.position)

    @property
    def predictors(self) -> tuple[str, ...]:
        """Inputs of the likelihood, by row."""
        return tuple(f"bin_{curve}" for curve in self.family.curves)

    @property
    def observed(self) -> str:
        """Name of the observed variable."""
        return self.family.outcome.observed

    @property
    def no_minibatches(self) -> str:
        """Reason why minibatches are not possible, if so."""
        if self.mixture:
            merged = "a mixture, or with zero=True, where bins are merged"
            return f"VI(batch=) does not apply to {merged}: leave it out"
        many = "groups cannot be fitted in minibatches: leave VI(batch=) out"
        return many if self.pilot.levels else ""


def model(stats: Statistics, prior: Prior | None = None) -> pm.Model:
    """The PyMC model, to inspect, draw, sample or extend.

    Parameters
    ----------
    stats
        Sufficient statistics of the items; for mixtures with joint cells.
    prior
        The prior's configuration; None is ``soc.Gamma()`` for counts, ``soc.Normal()`` for values,
        ``soc.Beta()`` for successes.

    Returns
    -------
    pymc.Model
        ``log_mean`` and ``log_cv2`` are the curves at the knots, ``bin_log_mean`` and
        ``bin_log_cv2`` at the rows (occupied bins; of each group, of each half-octave of exposures,
        where the prior has such terms), and ``count`` is the sum of counts of a row, with the log
        probability of all its items. For values these are ``mean``, ``log_variance`` and ``value``.
        Mixtures have ``bin_predictor`` in the place of the curves at the rows: both curves and
        coefficients of the log weights, at their knots ``weight_coefficient``.

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
    if prior is not None:
        check_prior(prior, stats)
    return build(stats, prior or family_of_kind(stats.kind).prior(), full=True).model


def check_prior(prior: Any, stats: Statistics) -> None:
    """Refuse a prior that is not for these statistics."""
    singles = ", ".join(f"soc.{name}(...)" for name in FAMILIES)
    A(Prior, f"{singles}, or a mixture of one of them")(prior, "prior")
    family = family_of_kind(stats.kind)
    if prior.family != family.name:
        instead = family.mixture if prior.mixture else family.prior
        raise FitError(
            f"prior=soc.{type(prior).__name__}(...) is not for these statistics of "
            f"{stats.kind} items: use soc.{instead.__name__}(...)"
        )


def build(stats: Statistics, prior: Prior, *, full: bool = False) -> Problem:
    """Build the problem; coefficients of many levels are integrated out unless `full`."""
    family = family_of_kind(stats.kind)
    pilot = find_pilot(stats, family, prior, full)
    mixture = None
    if prior.gridded:
        pilot.data.refuse_mean_only(f"soc.{type(prior).__name__}()")
        mixture = place_mixture(stats, family, prior, pilot)
    parts = _coefficients(family, pilot, mixture)
    problem = Problem(pm.Model(), family, pilot, parts, mixture)
    problem.model.add_coords(_coords(problem))
    with problem.model:
        widths: list[Any] = [None] * len(parts)
        if pilot.levels:
            widths = add_level_scales(pilot.levels, pilot.curves, parts, family.curves)
        values = list(map(add_coefficients, parts, widths))
        if mixture:
            _observe_mixture(problem, mixture, values[0], stats.data["sum_y"].to_numpy())
        elif not pilot.levels:
            _observe_curves(problem, values)
    terms = [*problem.model.free_RVs, *problem.model.potentials]
    return replace(problem, built_in=frozenset(v.name for v in terms))


def _coefficients(
    family: Family, pilot: Pilot, mixture: GridMixture | None
) -> tuple[Coefficients, ...]:
    """Coefficients of both curves, or of a mixture's only design."""
    if mixture:
        outputs = tuple(mixture.design.outputs(pilot.curves, family.curves))
        return (Coefficients("", "", mixture.design.design, mixture.laplace, outputs),)
    return tuple(
        Coefficients(f"{c.name}_", f"{name}_", c.design, laplace, tuple(c.outputs(name)))
        for c, laplace, name in zip(pilot.curves, pilot.laplaces, family.curves, strict=True)
    )


def _coords(problem: Problem) -> dict[str, Any]:
    """Coordinates of rows, curves, their terms and groupings."""
    pilot, rows = problem.pilot, problem.pilot.rows
    coords: dict[str, Any] = {
        "bin": problem.score,
        **{g.name: list(g.levels) for g in pilot.groupings},
    }
    points: dict[str, Any] = {
        "exposure_atom": rows.size_atoms,
        "atom": rows.atoms,
        "effect_bin": rows.effect_bins,
    }
    for curve in pilot.curves:
        points[f"{curve.name}_knot"] = curve.basis.knots
        points[f"{curve.name}_exposure_knot"] = curve.size_knots
    if problem.mixture:
        points["weight_function"] = list(problem.mixture.design.labels)
        points["weight_knot"] = problem.mixture.design.knots
    for part in problem.coefficients:
        coords |= part.dims
        used = {dim for output in part.outputs for dim in output.dims}
        coords |= {dim: values for dim, values in points.items() if dim in used}
    return coords


def mixture_data(problem: Problem) -> xr.Dataset:
    """Grid and functions of a mixture, which scoring needs besides its draws."""
    if problem.mixture is None:
        return xr.Dataset()
    mixture, family, coords = problem.mixture, problem.family, problem.model.coords
    parts = zip(problem.pilot.curves, mixture.states, family.curves, strict=True)
    pilot = {
        f"pilot_{output.name}": (output.dims, output.values(state.coefficients))
        for curve, state, name in parts
        for output in curve.outputs(name)
    }
    dims = {"weight_function", *(dim for dims, _ in pilot.values() for dim in dims)}
    return xr.Dataset(
        {
            **pilot,
            "grid_raise": ("variance_knot", mixture.wider),
            "component_z": ("component", family.components.z),
            "component_function": (("component", "weight_function"), mixture.design.functions),
        },
        {dim: np.asarray(coords[dim]) for dim in dims},
    )


# --- the observed variable, whose sums are inputs: PyMC never releases a distribution's functions


def _observe_curves(problem: Problem, values: list[Any]) -> None:
    """Add the observed variable of a single family, given both curves at the rows."""
    pairs = zip(problem.predictors, values, strict=True)
    predictors = [pm.Deterministic(name, curve, dims="bin") for name, curve in pairs]
    data: RowSums = problem.data
    cells, sums = data.cells(), type(data)
    rule = totals(sums, tuple(x.ndim for x in cells))
    pm.CustomDist(
        problem.observed,
        *predictors,
        *shared(cells),
        observed=data.total,
        random=rule,
        signature=rule.signature,
        logp=lambda _, *inputs: sums.log_marginal(pt, *inputs),
        dims="bin",
    )


def _observe_mixture(problem: Problem, mixture: GridMixture, values: Any, sums: Floats) -> None:
    """Add the observed variable of a mixture, with `sums` of outcomes by bin."""
    rows, cells = mixture.design.rows, mixture.design.cells
    predictors = values.reshape((len(problem.score), -1))
    log_marginal = MixtureLogMarginal(cells.forms.law.name)
    pm.Potential("within_bounds", _within_bounds(predictors, cells.forms.bounds))
    pm.CustomDist(
        problem.observed,
        pm.Deterministic("bin_predictor", predictors),
        pm.Data("bin_index", np.arange(len(problem.score)), dims="bin"),
        *shared(cells.arrays),
        observed=np.bincount(rows.of, sums[problem.pilot.rows.bin]),
        signature=f"(j),(),{SIGNATURE}->()",
        logp=lambda _, x, __, *arrays: log_marginal(x, *unbatched(SIGNATURE, arrays))[0],
        dims="bin",
    )


def _within_bounds(predictors: Any, bounds: Bounds) -> Any:
    """Log density that penalises curves beyond what the components can represent."""
    scaled = bounds.relative(predictors[:, 0], predictors[:, 1])
    least = np.array([-bounds.farthest, bounds.low])
    most = np.array([bounds.farthest, bounds.high])
    least[np.isnan(least)], most[np.isnan(most)] = -np.inf, np.inf  # where there is no bound
    # not clip, which the interpreter applies number by number
    excess = [
        x - pt.minimum(pt.maximum(x, low), high)
        for x, low, high in zip(scaled, least, most, strict=True)
    ]
    return -0.5 * sum(pt.sqr(x / _BEYOND).sum() for x in excess)


# --- the prior ------------------------------------------------------------------------------------


_Drawn = dict[str, tuple[tuple[str, ...], Floats]]  # dims and values by name


def prior_draws(built: Problem, draws: int, rng: np.random.Generator) -> xr.Dataset:
    """The prior of the variables that `fit` draws from the posterior, (1, draws, ...)."""
    drawn: _Drawn = {}
    for part in built.coefficients:
        drawn |= _of_coefficients(part, draws, rng)
    if built.pilot.levels:
        drawn |= _of_levels(built, drawn, draws, rng)
    coords = built.model.coords
    used = {dim for dims, _ in drawn.values() for dim in dims}
    return xr.Dataset(
        {name: (("chain", "draw", *dims), values[None]) for name, (dims, values) in drawn.items()},
        {
            "chain": [0],
            "draw": np.arange(draws),
            **{dim: np.asarray(coords[dim]) for dim in used if coords.get(dim)},
        },
    )


def _of_coefficients(part: Coefficients, draws: int, rng: np.random.Generator) -> _Drawn:
    """Scales, coefficients and their outputs."""
    drawn: _Drawn = {}
    coefficients = []
    for block, laplace in zip(part.design.blocks, part.laplace.blocks, strict=True):
        name = f"{part.variable}{block.name}"
        scale = np.abs(rng.normal(0.0, block.scale, draws))
        # drawn before the rotation, which the outcomes define, so that curves do not depend on them
        values = scale[:, None] * rng.normal(size=(draws, block.design.shape[1]))
        coefficients.append(values)
        drawn[f"{name}_sd"] = (), scale
        drawn[name] = (block.dim,), values @ laplace.rotation
    mean, sd = part.design.line_mean, part.design.line_sd
    coefficients.append(rng.normal(mean, sd, (draws, len(mean))))
    drawn[f"{part.variable}line"] = (f"{part.label}line_term",), coefficients[-1]
    for output in part.outputs:
        drawn[output.name] = output.dims, output.values(np.hstack(coefficients))
    return drawn


def _of_levels(built: Problem, shared: Any, draws: int, rng: np.random.Generator) -> _Drawn:
    """Scales and curves of the levels that are integrated out of the likelihood."""
    drawn: _Drawn = {}
    assert built.pilot.levels is not None
    grouping, terms = built.pilot.levels.grouping, built.pilot.levels.rows.terms
    for variable, curve, term in zip(built.family.curves, built.pilot.curves, terms, strict=True):
        scale = np.abs(rng.normal(0.0, term.scales, (draws, len(term.scales))))
        for k, name in enumerate(term.names):
            drawn[f"{variable}_{name}_sd"] = (), scale[:, k]
        noise = rng.normal(size=(draws, len(grouping.levels), len(term.kind)))
        deviations = scale[:, None, term.kind] * noise
        values = shared[variable][1][:, None] + deviations @ term.values.T
        drawn[f"{variable}_of_{grouping.name}"] = (grouping.name, f"{curve.name}_knot"), values
    return drawn


def observed_totals(built: Problem) -> Floats:
    """Observed totals of rows; compiled code would leave its source in the temporary folder."""
    variable = built.model.rvs_to_values[built.model[built.observed]]
    return np.asarray(variable.eval(mode="FAST_COMPILE"))


# --- models with terms added by the user ---------------------------------------------------------


def extended(built: Problem, model: pm.Model) -> Problem:
    """The problem with a model to which the user has added terms."""
    lacking = sorted(v.name for v in built.model.basic_RVs if v.name not in model.named_vars)
    if lacking:
        raise FitError(
            f"model= lacks {', '.join(lacking)}: extend soc.model(stats, prior) of the same prior"
        )
    coords_match = all(
        np.array_equal(np.asarray(model.coords.get(name, ())), np.asarray(values))
        for name, values in built.model.coords.items()
    )
    changed = replace(built, model=model)
    same = np.array_equal(observed_totals(built), observed_totals(changed))
    if not (coords_match and same):
        raise FitError("model= does not match stats and prior (data or knots): rebuild it")
    if model.discrete_value_vars:
        names = ", ".join(v.name for v in model.discrete_value_vars)
        raise FitError(f"model= has discrete unknowns ({names}): sum them out")
    return changed
