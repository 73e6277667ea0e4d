"""Steps 2 and 3: a prior for each bin, and the curves through them.

`fit_bins` is for conjugate priors, `fit_mixtures` for mixtures of them, and `fit_groups` fits
"separately for each category".
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ..._lib.arrays import Floats
from ..._lib.errors import FitError
from ..._lib.threads import ordered_map
from ..._model.mixture_design import joint_cells
from ..._model.rows import Rows, positions, rows_of
from ..._model.splines import Axis
from ..._model.terms import axis_of
from ...data.statistics import Statistics
from ...families import bin_mixtures
from ...families.components import cell_points
from ...families.family import FAMILIES, Family
from ...families.monotone import project_monotone
from ...families.poisson_gamma import match_gammas
from ...families.priors import COMPONENTS
from ...families.row_sums import RowSums
from ..methods import FiveSteps
from .curves import (
    MOMENTS,
    BinMaxima,
    Information,
    SmoothCurves,
    StepCurves,
    log_moments,
    maximise,
    nearest,
    smooth_curves,
    stepped_curves,
)

Mask = NDArray[np.bool_]
Curves = SmoothCurves | StepCurves

_FEWEST = 4  # fewest bins for curves; a group with fewer takes the curves of all items


@dataclass(frozen=True)
class StepFits:
    """Bins with their own priors, and the curves through them."""

    rows: Rows
    data: Any  # of the rows
    axes: tuple[Axis, Axis]
    positions: tuple[Floats, Floats]  # of the bins on the axes
    curves: Curves
    fitted: Mask  # bins with their own prior
    failed: Mask  # bins whose search did not converge
    moments: dict[str, Floats]  # moments of theta by bin before smoothing, and log likelihoods
    notes: tuple[str, ...]  # how the bins were fitted
    components: dict[str, Floats] = field(default_factory=dict)  # of mixtures, (bins, R)


# --- conjugate priors ----------------------------------------------------------------------------


def fit_bins(stats: Statistics, prior: Any, method: FiveSteps) -> StepFits:
    """Fit a conjugate prior to each bin of all items, and curves through them."""
    axes = axis_of(prior.mean, stats), axis_of(prior.variance, stats)
    family = FAMILIES[prior.family]
    rows, data = rows_of(stats, family)
    data.refuse_mean_only("soc.FiveSteps()")
    chosen = rows.bin % method.every == 0
    found = maximise(data, chosen)
    fitted, failed = int(found.fitted.sum()), int(found.failed.sum())
    if not fitted:
        empty = int(chosen.sum()) - failed
        why = [f"{empty:,} without {family.outcome.words.unfit}"] * (empty > 0)
        why += [f"the search failed in {failed:,}"] * (failed > 0)
        raise FitError(
            f"none of the {int(chosen.sum()):,} bins could be fitted ({', '.join(why)}): five "
            "steps estimate each bin by itself, so use fewer bins, or soc.VI()"
        )
    place = positions(axes[0], rows), positions(axes[1], rows)
    information = data.information
    curves: Curves
    if method.smooth:
        curves = _smoother(prior, method, axes)(found, place, rows.n, information)
    else:
        monotone = method.monotone or prior.monotone
        curves = stepped_curves(found, place[0], information, monotone)
    spread = np.where(found.at_zero, 0.0, np.exp(found.second))
    logs = log_moments(found) if family.has_log_moments else None
    moments = _named_moments(family, found.first, spread, logs, found.log_likelihood, rows.n)
    zero, eventless = int(found.at_zero.sum()), int((chosen & ~data.can_fit).sum())
    notes = [f"{fitted:,} bins by maximum likelihood"]
    notes += [f"{zero:,} at variance 0"] * (zero > 0)
    lacks = f"{eventless:,} more without {family.outcome.words.unfit} left to their neighbours"
    notes += [lacks] * (eventless > 0)
    return StepFits(
        rows, data, axes, place, curves, found.fitted, found.failed, moments, tuple(notes)
    )


def _smoother(
    prior: Any, method: FiveSteps, axes: tuple[Axis, Axis]
) -> Callable[..., SmoothCurves]:
    """A function that makes curves from maxima, positions, numbers of items and information."""
    monotone = method.monotone or prior.monotone
    moments = MOMENTS["log" if _of_log_theta(prior, method) else "plain"]
    return partial(smooth_curves, axes=axes, moments=moments, monotone=monotone)


def _of_log_theta(prior: Any, method: FiveSteps) -> bool:
    """Whether the moments of log theta are smoothed; an error if the prior has none."""
    if method.moments != "log":
        return False
    name = type(prior).__name__
    if not FAMILIES[prior.family].has_log_moments:
        raise FitError(f'soc.{name}() has no moments of log theta: use moments="plain"')
    if prior.mixture and method.monotone:
        raise FitError(
            f'soc.{name}() cannot be made monotone with moments="log": use moments="plain"'
        )
    return True


def _named_moments(
    family: Family,
    first: Floats,
    spread: Floats,
    logs: tuple[Floats, Floats] | None,
    log_likelihood: Floats,
    items: Floats,
) -> dict[str, Floats]:
    """Moments of theta, of log theta if it has them, log likelihoods and items, by bin."""
    mean, variance = family.natural_moments(first, spread)
    found = {"mean": mean, "variance": variance}
    if logs is not None:
        found |= {"mean_log": logs[0], "variance_log": logs[1]}
    return {**found, "log_likelihood": log_likelihood, "n_items": items}


# --- groups --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GroupFits:
    """Curves of groups."""

    posterior: xr.Dataset  # both curves of every group at the knots of the pooled ones
    own: int  # groups with their own curves
    failed: int  # bins whose search did not converge


def fit_groups(stats: Statistics, prior: Any, method: FiveSteps, pooled: StepFits) -> GroupFits:
    """Steps 2 and 3 for each group; one with fewer than 4 fitted bins takes the pooled curves."""
    assert isinstance(pooled.curves, SmoothCurves)
    knots = pooled.curves.knots
    rows, data = rows_of(stats, FAMILIES[prior.family], grouped=True)
    found = maximise(data, rows.bin % method.every == 0)
    place = positions(pooled.axes[0], rows), positions(pooled.axes[1], rows)
    values, number = [], 0
    smooth = _smoother(prior, method, pooled.axes)
    for code in range(len(stats.groups)):
        at = np.flatnonzero(rows.group == code)
        own = pooled.curves.values
        if found.fitted[at].sum() >= _FEWEST:
            part, its_own = found.part(at), (place[0][at], place[1][at])
            curves = smooth(part, its_own, rows.n[at], _information_of(data, found, at))
            own, number = curves.at(knots), number + 1
            if method.monotone or prior.monotone:  # between the pooled knots the spline differs
                own = project_monotone(own[0][None], knots[0])[0], own[1]
        values.append(own)
    dims = "mean_knot", "variance_knot"
    kept = {
        f"{name}_of_group": (("chain", "draw", "group", dim), np.array(of)[None, None])
        for name, dim, of in zip(prior.curve_names, dims, zip(*values, strict=True), strict=True)
    }
    posterior = xr.Dataset(kept, {"group": list(stats.groups)})
    return GroupFits(posterior, number, int(found.failed.sum()))


def _information_of(data: RowSums, found: BinMaxima, at: NDArray[np.intp]) -> Information:
    """Expected information of some rows at given curves."""

    def information(first: Floats, second: Floats) -> tuple[Floats, Floats]:
        # other rows may lack a curve; their values are not used
        whole = np.nan_to_num(found.first), np.nan_to_num(found.second)
        for full, own in zip(whole, (first, second), strict=True):
            full[at] = own
        both = data.information(*whole)
        return both[0][at], both[1][at]

    return information


# --- mixtures ------------------------------------------------------------------------------------


def fit_mixtures(stats: Statistics, prior: Any, method: FiveSteps) -> StepFits:
    """EM in each bin of the joint cells, from the conjugate fit, then smoothing of moments.

    Means and sds of components are of log or logit theta minus the first curve, or of theta minus
    E(theta | t).
    """
    cells, of_log = joint_cells(stats, type(prior).__name__), _of_log_theta(prior, method)
    plain = replace(method, smooth=True, monotone=False, moments="plain")
    start = fit_bins(stats, prior, plain)
    # joint cells may have wider bins than the conjugate fit
    wide, of = np.unique(start.rows.bin // max(stats.coarse, 1), return_inverse=True)
    n = np.bincount(of, start.rows.n)
    u, v = start.positions
    where = np.bincount(of, start.rows.n * u) / n, np.bincount(of, start.rows.n * v) / n
    chosen = np.flatnonzero(wide % method.every == 0)
    assert isinstance(start.curves, SmoothCurves)
    begin = tuple(curve[chosen] for curve in start.curves.at(where))
    own = _search(stats, prior, method.components, cells, wide[chosen], begin)
    ended = np.array([x.ended for x in own])
    good, failed = np.zeros((2, len(wide)), dtype=bool)
    good[chosen], failed[chosen] = ended, ~ended
    if not good.any():
        raise FitError(
            f"EM ended in none of {len(chosen):,} bins: use fewer components, or soc.VI()"
        )

    def all_bins(name: str) -> Floats:
        each = np.array([getattr(x, name) for x in own], dtype=float)
        full = np.full((len(wide), *each.shape[1:]), np.nan)
        full[chosen] = each
        return full

    parts, value = tuple(map(all_bins, ("weight", "place", "sd"))), all_bins("value")
    kind, family = bin_mixtures.MIXTURES[prior.family], FAMILIES[prior.family]
    level, spread = kind.curves(*parts)
    # bins that were not fitted have a spread of 0 here, and are marked
    with np.errstate(divide="ignore"):
        found = BinMaxima(level, np.log(spread), value, np.zeros_like(good), good, failed)
    logs = bin_mixtures.place_moments(*parts) if family.has_log_moments else None
    moments = _named_moments(family, level, spread, logs, value, n)

    information = _over_bins(start.data, of, len(wide))
    known = np.flatnonzero(good)
    own_bin = known[nearest(where[0], known)]  # a bin that was not fitted takes the nearest one's
    own_parts = tuple(x[own_bin] for x in parts)
    smooth = _smoother(prior, method, start.axes)
    curves: Curves
    if not method.smooth:
        steps = stepped_curves(found, where[0], information, method.monotone)
        curves = StepCurves(steps.first[of], steps.second[of])
        adjusted = kind.adjusted(own_parts, steps.first, np.exp(steps.second))
    elif of_log:
        first, second = match_gammas(moments["mean_log"], moments["variance_log"])
        curves = smooth(replace(found, first=first, second=second), where, n, information)
        adjusted = bin_mixtures.shifted(own_parts, *curves.at(where))
    else:
        curves = smooth(found, where, n, information)
        level, log_spread = curves.at(where)
        adjusted = kind.adjusted(own_parts, level, np.exp(log_spread))
    gap = max(x.gap for x in own)
    notes = [f"{int(good[of].sum()):,} bins by EM"]
    notes += [f"at most {gap:.2g} nats below the highest likelihood"] * bool(np.isfinite(gap))
    return replace(
        start,
        curves=curves,
        fitted=good[of],
        failed=failed[of],
        moments={name: x[of] for name, x in moments.items()} | {"n_items": start.rows.n},
        notes=tuple(notes),
        components=dict(zip(COMPONENTS, (x[of] for x in adjusted), strict=True)),
    )


def _search(
    stats: Statistics,
    prior: Any,
    number: int | None,
    cells: dict[str, NDArray[Any]],
    bins: NDArray[np.intp],
    curves: tuple[Floats, ...],
) -> list[bin_mixtures.BinMixture]:
    """Mixtures of some bins, starting at the conjugate fit's curves."""
    kind = bin_mixtures.MIXTURES[prior.family]
    order = np.argsort(cells["bin"], kind="stable")
    low, high = (np.searchsorted(cells["bin"][order], bins, side=s) for s in ("left", "right"))

    def search(k: int) -> bin_mixtures.BinMixture:
        rows = order[low[k] : high[k]]
        own = {name: values[rows] for name, values in cells.items()}
        first, second = (float(curve[k]) for curve in curves)
        points = partial(cell_points, FAMILIES[prior.family].components, own)
        return kind.search(own, points, first, second, number or kind.number)

    return list(ordered_map(search, range(len(bins))))


def _over_bins(data: RowSums, of: NDArray[np.intp], bins: int) -> Information:
    """Expected information of wider bins' curves, from that of their bins."""

    def information(first: Floats, second: Floats) -> tuple[Floats, Floats]:
        both = data.information(first[of], second[of])
        return np.bincount(of, both[0], bins), np.bincount(of, both[1], bins)

    return information
