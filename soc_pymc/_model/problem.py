"""Building of the `pymc.Model` from a prior and statistics."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr

from .._lib.arguments import A
from .._lib.arrays import Floats
from .._lib.errors import FitError
from ..data.statistics import STATISTICS, Statistics
from ..families.family import FAMILIES, Family, family_of_kind
from ..families.priors import Prior
from .mixture_grid import Mixture, place_mixture
from .pilot import Pilot, find_pilot
from .terms import Curve, LevelTerms
from .variables import (
    Coefficients,
    add_coefficients,
    add_level_scales,
    observe_curves,
    observe_mixture,
)


@dataclass(frozen=True, eq=False)
class Problem:
    """A model with further inputs of inference and the fit."""

    model: pm.Model
    family: Family
    pilot: Pilot
    coefficients: tuple[Coefficients, ...]
    observed: str  # name of the observed variable
    mixture: Mixture | None
    data: Any  # of the likelihood's rows: `RowSums` or `MixtureCells`
    score: Floats  # at the centre of each of these rows
    predictors: tuple[str, ...]  # inputs of the likelihood, by row
    no_minibatches: str  # reason why they are not possible, if so
    built_in: frozenset[str] = frozenset()  # parameters and potentials that the user did not add


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
    mean, names = pilot.curves[0], tuple(f"bin_{curve.variable}" for curve in pilot.curves)
    parts = tuple(
        Coefficients(curve.design, laplace, curve.outputs)
        for curve, laplace in zip(pilot.curves, pilot.laplaces, strict=True)
    )
    refusal = "groups cannot be fitted in minibatches: leave VI(batch=) out" if pilot.levels else ""
    likelihood: Any = None, pilot.data, mean.axis.inverse(mean.position), names, refusal
    if prior.gridded:
        pilot.data.refuse_mean_only(f"soc.{type(prior).__name__}()")
        mixture, laplace = place_mixture(stats, family, prior, pilot)
        parts = (Coefficients(mixture.designs[0], laplace, mixture.outputs),)
        merged = "a mixture, or with zero=True, where bins are merged"
        refusal = f"VI(batch=) does not apply to {merged}: leave it out"
        likelihood = mixture, mixture.cells, mixture.rows.score, ("bin_predictor",), refusal
    problem = Problem(pm.Model(), family, pilot, parts, family.outcome.observed, *likelihood)
    coords: dict[str, Any] = {"bin": problem.score}
    coords |= {grouping.name: list(grouping.levels) for grouping in pilot.groupings}
    for part in parts:
        coords |= {block.dim: np.arange(block.design.shape[1]) for block in part.design.blocks}
        number = part.design.line.shape[1]
        coords[part.design.dim] = (
            np.arange(number) if prior.gridded else ["level", "slope"][:number]
        )
        for output in part.outputs:
            coords |= output.coords
    problem.model.add_coords(coords)
    with problem.model:
        _add_variables(problem, stats)
    terms = [*problem.model.free_RVs, *problem.model.potentials]
    return replace(problem, built_in=frozenset(v.name for v in terms))


def _add_variables(problem: Problem, stats: Statistics) -> None:
    """Add parameters and outcomes to the model."""
    pilot, parts, mixture = problem.pilot, problem.coefficients, problem.mixture
    widths: list[Any] = [None] * len(parts)
    if pilot.levels:
        widths = add_level_scales(pilot.levels, pilot.curves, parts)
    values = list(map(add_coefficients, parts, widths))
    if mixture:
        predictors = values[0].reshape((len(mixture.rows.score), -1))
        totals = np.bincount(mixture.rows.of, stats.data["sum_y"].to_numpy()[pilot.rows.bin])
        predictors = pm.Deterministic(problem.predictors[0], predictors)
        observe_mixture(problem.observed, predictors, mixture.cells, totals)
    elif not pilot.levels:
        curves = dict(zip(problem.predictors, values, strict=True))
        observe_curves(problem.observed, curves, pilot.data)


def mixture_data(problem: Problem) -> xr.Dataset:
    """Grid and functions of a mixture, which scoring needs besides its draws."""
    if problem.mixture is None:
        return xr.Dataset()
    mixture, family, coords = problem.mixture, problem.family, problem.model.coords
    pilot = {
        f"pilot_{output.name}": (output.dims, output.values(state.coefficients))
        for curve, state in zip(problem.pilot.curves, mixture.states, strict=True)
        for output in curve.outputs
    }
    dims = {"weight_function", *(dim for dims, _ in pilot.values() for dim in dims)}
    return xr.Dataset(
        {
            **pilot,
            "grid_raise": ("variance_knot", mixture.wider),
            "component_z": ("component", family.components.z),
            "component_function": (("component", "weight_function"), mixture.functions),
        },
        {dim: np.asarray(coords[dim]) for dim in dims},
    )


# --- the prior ------------------------------------------------------------------------------------

_Drawn = dict[str, tuple[tuple[str, ...], Floats]]  # dims and values by name


def prior_draws(built: Problem, draws: int, rng: np.random.Generator) -> xr.Dataset:
    """The prior of the variables that `fit` draws from the posterior, (1, draws, ...)."""
    drawn: _Drawn = {}
    for part in built.coefficients:
        drawn |= _of_coefficients(part, draws, rng)
    for curve in built.pilot.curves:
        if curve.levels:
            drawn |= _of_levels(curve, curve.levels, drawn[curve.variable][1], rng)
    prior = xr.Dataset({x: (("chain", "draw", *dims), v[None]) for x, (dims, v) in drawn.items()})
    coords = {dim: np.asarray(built.model.coords.get(dim, ())) for dim in prior.dims}
    coords |= {"chain": np.zeros(1, dtype=int), "draw": np.arange(draws)}
    return prior.assign_coords({dim: labels for dim, labels in coords.items() if len(labels)})


def _of_coefficients(part: Coefficients, draws: int, rng: np.random.Generator) -> _Drawn:
    """Scales, coefficients and their outputs."""
    drawn: _Drawn = {}
    coefficients = []
    for block, laplace in zip(part.design.blocks, part.laplace.blocks, strict=True):
        scale = np.abs(rng.normal(0.0, block.scale, draws))
        # drawn before the rotation, which the outcomes define, so that curves do not depend on them
        values = scale[:, None] * rng.normal(size=(draws, block.design.shape[1]))
        coefficients.append(values)
        drawn[f"{block.name}_sd"] = (), scale
        drawn[block.name] = (block.dim,), values @ laplace.rotation
    mean, sd = part.design.line_mean, part.design.line_sd
    coefficients.append(rng.normal(mean, sd, (draws, len(mean))))
    drawn[part.design.name] = (part.design.dim,), coefficients[-1]
    for output in part.outputs:
        drawn[output.name] = output.dims, output.values(np.hstack(coefficients))
    return drawn


def _of_levels(curve: Curve, term: LevelTerms, shared: Floats, rng: np.random.Generator) -> _Drawn:
    """Scales and curves of the levels that are integrated out of the likelihood."""
    draws, grouping = len(shared), term.grouping
    scale = np.abs(rng.normal(0.0, term.scales, (draws, len(term.scales))))
    drawn: _Drawn = {f"{name}_sd": ((), scale[:, k]) for k, name in enumerate(term.names)}
    noise = rng.normal(size=(draws, len(grouping.levels), len(term.kind)))
    values = shared[:, None] + (scale[:, None, term.kind] * noise) @ term.values.T
    drawn[f"{curve.variable}_of_{grouping.name}"] = (grouping.name, f"{curve.name}_knot"), values
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
