"""Building of the model's parts from a prior and statistics."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from .._lib.arguments import A, FitError, ItemsWarning, warn_user
from .._lib.arrays import Floats
from .._lib.reprs import code_of, short
from ..data.statistics import Statistics
from ..families import FAMILIES
from ..families.family import Family
from ..families.priors import Prior
from ..families.scales import LINEAR, RANK
from .coordinates import (
    Coefficients,
    Coordinates,
    Parameters,
    Space,
    bent,
    level_shares,
)
from .mixtures import PlacedMixture, place_mixture
from .pilot import Pilot, find_pilot
from .rows import rows_of
from .terms import Labels

_CURVES = "mean", "variance"
# shares of the items between which most scores lie, and the range of all scores, in theirs, beyond
# which ranks are the better axis
_MOST_SCORES = (0.1, 0.9)
_FAR = 10.0


@dataclass(frozen=True, eq=False)
class Problem:
    """A model's parameters and data, with further inputs of inference and the fit."""

    family: Family
    pilot: Pilot
    coordinates: Coordinates
    # values of the observed variable, by row of the likelihood
    totals: Floats
    score: Floats  # at the centre of each of these rows
    mixture: PlacedMixture | None = None
    # the parameters of a model with terms that a user added
    extended: Space | None = None

    @property
    def observed(self) -> str:
        """Name of the observed variable."""
        return self.family.outcome.observed

    @property
    def no_minibatches(self) -> str:
        """Reason why bins cannot be taken in minibatches; empty if they can."""
        if self.mixture:
            merged = "a mixture, or with zero=True, where bins are merged"
            return f"VI(batch=) does not apply to {merged}: leave it out"
        if self.pilot.levels:
            return "groups cannot be fitted in minibatches: leave VI(batch=) out"
        return ""

    @property
    def space(self) -> Space:
        """The parameters as functions of coordinates."""
        return self.extended or self.coordinates


def check_prior(prior: Prior, stats: Statistics) -> None:
    """Refuse a prior that is not for these statistics."""
    singles = ", ".join(f"soc.{name}(...)" for name in FAMILIES)
    A(Prior, f"{singles}, or a mixture of one of them")(prior, "prior")
    family = stats.family
    if prior.family != family.name:
        instead = family.mixture if prior.mixture else family.prior
        raise FitError(
            f"prior=soc.{type(prior).__name__}(...) is not for these statistics of "
            f"{stats.kind} items: use soc.{instead.__name__}(...)"
        )
    if prior.zero and family.outcome.never_zero:
        raise FitError(f"zero=True is not for {family.outcome.never_zero}")
    if prior.reads_joint:  # one row tells whether any item informs more than the mean
        rows_of(stats, family, most_bins=1)[1].refuse_mean_only(f"soc.{short(prior)}")


def prior_for(prior: Prior | None, stats: Statistics) -> Prior:
    """The prior of a fit, by default that of the kind; curves have an axis that suits the scores.

    On the scale of theta, scores that cannot be estimates of theta have no position.
    """
    family = stats.family
    prior = family.prior() if prior is None else prior
    check_prior(prior, stats)
    theta = family.outcome.theta
    names = [x for x in _CURVES if getattr(prior, x).scale == theta.name]
    if names and (scale := _scale_of_foreign(stats)):
        curves = {x: replace(getattr(prior, x), scale=scale) for x in names}
        prior = replace(prior, **curves)
        low = float(stats.data["score_min"].min())
        high = float(stats.data["score_max"].max())
        warn_user(
            f"column {stats.roles['score']!r}: many scores, from {low:.6g} to {high:.6g}, have no "
            f"{theta.name} and cannot be estimates of theta. The fit takes them on the {scale} "
            f"scale, as {code_of(prior)} does without this warning",
            ItemsWarning,
        )
    return prior


def _scale_of_foreign(stats: Statistics) -> str:
    """Name of the scale of scores that are not estimates of theta; empty where they may be."""
    curved = stats.data["n"].to_numpy() > 0
    curved[stats.bins_of([*stats.atoms, *stats.ends])] = False
    names = ("score_min", "score_max", "n")
    low, high, n = (stats.data[name].to_numpy()[curved] for name in names)
    if not stats.outcome.are_foreign(low, high, n):
        return ""
    share = np.cumsum(n) / n.sum()
    middle = np.ptp(low[np.searchsorted(share, _MOST_SCORES)])
    return RANK if np.ptp(low) > _FAR * middle else LINEAR.name


def build(stats: Statistics, prior: Prior, *, full: bool = False) -> Problem:
    """Build the problem; coefficients of many levels are integrated out unless `full`."""
    family = stats.family
    pilot = find_pilot(stats, family, prior, full)
    if prior.gridded:
        return _mixture_problem(stats, family, prior, pilot)
    parts = []
    for curve, laplace in zip(pilot.curves, pilot.laplaces, strict=True):
        shares = level_shares(curve, laplace, pilot.levels)
        parts.append(Coefficients.of(curve.design, laplace, curve.outputs, shares))
    if pilot.data.coupled and not pilot.levels:
        parts = bent(parts, pilot)
    mean = pilot.curves[0]
    score = mean.axis.inverse(mean.position)
    coordinates = Coordinates(
        parts, _dim_labels(pilot, parts, score, ["level", "slope"])
    )
    return Problem(family, pilot, coordinates, pilot.data.total, score)


def _mixture_problem(
    stats: Statistics, family: Family, prior: Prior, pilot: Pilot
) -> Problem:
    """The problem of a mixture, or of a prior with a share of zeros."""
    mixture, laplace = place_mixture(stats, family, prior, pilot)
    design = mixture.designs[0]
    parts = [Coefficients.of(design, laplace, mixture.outputs)]
    score = mixture.rows.score
    terms = range(design.line.shape[1])
    coordinates = Coordinates(parts, _dim_labels(pilot, parts, score, terms))
    return Problem(
        family=family,
        pilot=pilot,
        coordinates=coordinates,
        totals=mixture.cells.totals,
        score=score,
        mixture=mixture,
    )


def _dim_labels(
    pilot: Pilot,
    parts: Sequence[Coefficients],
    score: Floats,
    line: Sequence[str | int],
) -> Labels:
    """Labels of all dims."""
    labels: dict[str, Sequence[str | int] | NDArray[Any]] = {"bin": score}
    labels |= {grouping.name: list(grouping.levels) for grouping in pilot.groupings}
    for part in parts:
        labels |= {
            block.dim: np.arange(block.design.shape[1]) for block in part.design.blocks
        }
        labels[part.design.dim] = line[: part.design.line.shape[1]]
        for output in part.outputs:
            labels |= output.coords
    return labels


def mixture_data(problem: Problem) -> xr.Dataset:
    """Grid and functions of a mixture, which scoring needs besides its draws."""
    if problem.mixture is None:
        return xr.Dataset()
    mixture = problem.mixture
    family = problem.family
    coords = problem.coordinates.labels
    pilot = {
        f"pilot_{output.name}": (output.dims, output.values(state.coefficients))
        for curve, state in zip(
            problem.pilot.curves, mixture.placement.states, strict=True
        )
        for output in curve.outputs
    }
    dims = {"weight_function", *(dim for dims, _ in pilot.values() for dim in dims)}
    return xr.Dataset(
        {
            **pilot,
            "grid_raise": ("variance_knot", mixture.placement.wider),
            "component_z": ("component", family.component_grid),
            "component_function": (("component", "weight_function"), mixture.functions),
        },
        {dim: np.asarray(coords[dim]) for dim in dims},
    )


# --- the prior ------------------------------------------------------------------------------------


def prior_draws(built: Problem, draws: int, rng: np.random.Generator) -> xr.Dataset:
    """The prior of the variables that `fit` draws from the posterior, (1, draws, ...)."""
    coordinates = built.coordinates
    parameters: Parameters = {}
    for part in coordinates.parts:
        for scale, term in zip(part.scales, part.terms, strict=True):
            tau = np.abs(rng.normal(0.0, scale.prior, draws))
            # drawn before the rotation, which the outcomes define: curves do not depend on them
            coefficients = tau[:, None] * rng.normal(size=(draws, term.size))
            parameters[scale.name] = np.log(tau)
            parameters[term.name] = coefficients @ term.laplace.rotation
        design = part.design
        size = draws, part.line.size
        parameters[design.name] = rng.normal(design.line_mean, design.line_sd, size)
    variables = coordinates.variables_of(parameters)
    dims = dict(coordinates.dims)
    for curve in built.pilot.curves:
        if deviating := curve.levels:
            levels = deviating.grouping.name
            taus = np.abs(
                rng.normal(0.0, deviating.scales, (draws, len(deviating.scales)))
            )
            noise = rng.normal(
                size=(draws, len(deviating.grouping.levels), len(deviating.kind))
            )
            deviations = (taus[:, None, deviating.kind] * noise) @ deviating.values.T
            for name, tau in zip(deviating.names, taus.T, strict=True):
                variables[f"{name}_sd"] = tau
            name = f"{curve.variable}_of_{levels}"
            variables[name] = variables[curve.variable][:, None] + deviations
            dims[name] = levels, f"{curve.name}_knot"
    prior = xr.Dataset(
        {x: (("chain", "draw", *dims[x]), v[None]) for x, v in variables.items()}
    )
    labels = coordinates.labels
    coords = {dim: labels[dim] for dim in map(str, prior.dims) if dim in labels}
    return prior.assign_coords({**coords, "chain": [0], "draw": np.arange(draws)})
