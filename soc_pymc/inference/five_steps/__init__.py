"""The paper's method: bins, a prior for each, smoothing, and the resulting fit.

Source: Muralidharan and Najmi, "Second Order Calibration", Section 3.
"""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import xarray as xr

from ..._lib.arrays import Floats
from ..._lib.errors import FitError
from ..._model.pilot import check_joint_cells
from ..._model.rows import Rows, positions, rows_of
from ..._model.terms import axis_of
from ...data.statistics import Statistics
from ...families.family import FAMILIES, Family
from ...families.monotone import project_monotone
from ...families.poisson_gamma import match_gammas, moments_of_log
from ...families.priors import COMPONENTS, Spline
from ...families.row_sums import RowSums
from ..fit_tree import bin_table, rank_table
from ..methods import FiveSteps
from .bins import Estimates, maximise
from .curves import KNOTS, Curves, Pair, Smoothing, nearest
from .mixtures import CURVES, adjusted, place_moments, search

_READ = ("mean", "variance", "monotone", "groups")  # fields of priors that five steps use
_FEWEST = 4  # fewest bins for curves; a group with fewer takes the curves of all items
_NARROWEST = 2.0 * float(np.log(1e-3))  # second curve where EM begins, relative to the level
_SAMPLED = ("chain", "draw")


def run_five_steps(
    stats: Statistics, prior: Any, method: FiveSteps
) -> tuple[xr.DataTree, dict[str, Any]]:
    """A fit's `DataTree`, and the fields of its `Status` without the seconds."""
    _check(stats, prior, method)
    family = FAMILIES[prior.family]
    rows, data = rows_of(stats, family)
    data.refuse_mean_only("soc.FiveSteps()")
    axes = axis_of(prior.mean, stats), axis_of(prior.variance, stats)
    smoothing = Smoothing(method, method.monotone or prior.monotone, axes)
    bins = maximise(family, data, rows.n)
    failed, notes = int(bins.failed.sum()), _notes(family, data, bins)
    places = positions(axes[0], rows), positions(axes[1], rows)
    components: dict[str, Any] = {}
    if prior.mixture:
        curves, moments, parts, failed = _fit_mixtures(
            stats, family, prior, smoothing, rows, places, data, bins
        )
        pairs = zip(COMPONENTS, parts, strict=True)
        components = {name: ((*_SAMPLED, "bin", "component"), x[None, None]) for name, x in pairs}
        notes = [f"{rows.number - failed:,} bins by EM"]
    else:
        curves = smoothing(places, rows.n, bins, data.information)
        logs = moments_of_log(bins.location, bins.dispersion) if family.has_log_moments else ()
        spread = np.where(bins.at_zero, 0.0, np.exp(bins.dispersion))
        moments = _moments(family, bins.location, spread, logs, bins.log_likelihood)
    notes += ["smoothed" if method.smooth else "each as it is"]
    posterior = xr.Dataset(components, {name: [0] for name in _SAMPLED})
    posterior = posterior.assign(curves.variables(prior))
    if prior.groups and stats.groups:
        of_groups, number, more = _fit_groups(stats, family, prior, smoothing, curves)
        posterior, failed = posterior.merge(of_groups), failed + more
        notes += [f"{number:,} groups by themselves"]
    constant, observed = bin_table(stats, axes[0])
    constant = constant.merge(rank_table(*axes))
    occupied = np.flatnonzero(stats.data["n"].to_numpy() > 0)
    # an empty bin belongs to its nearer neighbour
    constant["edge"] = ("edge", stats.edges[(occupied[:-1] + occupied[1:] - 1) // 2])
    per_bin = xr.Dataset({name: ("bin", x) for name, x in {**moments, "n_items": rows.n}.items()})
    contents = {"observed_data": observed, "constant_data": constant, "per_bin": per_bin}
    tree = xr.DataTree.from_dict({"posterior": posterior, **contents})
    tree.attrs = {name: stats.data.attrs[name] for name in ("kind", "roles")}
    if failed:
        notes[-1] += f"; the search failed in {failed:,} bins: use fewer bins, or soc.VI()"
    verdict = {"converged": not failed, "reason": ", ".join(notes)}
    return tree, verdict | {"pareto_k": None, "ess_fraction": None}


def _notes(family: Family, data: RowSums, bins: Estimates) -> list[str]:
    """Numbers of bins for the status, or an error if none could be fitted."""
    unfit, lacks = int((~data.can_fit).sum()), f"without {family.outcome.words.unfit}"
    if not bins.fitted.any():
        raise FitError(
            f"none of the {len(bins.fitted):,} bins could be fitted ({unfit:,} {lacks}): five "
            "steps estimate each bin by itself, so use fewer bins, or soc.VI()"
        )
    notes = [f"{int(bins.fitted.sum()):,} bins by maximum likelihood"]
    notes += [f"{int(bins.at_zero.sum()):,} at variance 0"] * bool(bins.at_zero.any())
    return notes + [f"{unfit:,} more {lacks} left to their neighbours"] * (unfit > 0)


def _moments(
    family: Family, location: Floats, spread: Floats, logs: Sequence[Floats], value: Floats
) -> dict[str, Floats]:
    """Moments of theta, of log theta where it has them, and log likelihoods."""
    names = ("mean", "variance", "mean_log", "variance_log")
    moments = zip(names, (*family.natural_moments(location, spread), *logs), strict=False)
    return {**dict(moments), "log_likelihood": value}


def _fit_mixtures(
    stats: Statistics,
    family: Family,
    prior: Any,
    smoothing: Smoothing,
    rows: Rows,
    places: Pair,
    data: RowSums,
    bins: Estimates,
) -> tuple[Curves, dict[str, Floats], list[Floats], int]:
    """Curves, moments by bin, components less the first curve, and how many bins failed."""
    check_joint_cells(stats, f"soc.{type(prior).__name__}")
    method = smoothing.method
    # EM begins at smooth curves, because estimates of single bins are noisy
    plain = Smoothing(replace(method, smooth=True, moments="plain"), False, smoothing.axes)
    start = plain(places, rows.n, bins, data.information)
    # joint cells may have wider bins than the conjugate fit
    numbers, wide = np.unique(rows.bin // max(stats.coarse, 1), return_inverse=True)
    n = np.bincount(wide, rows.n)
    u, v = (np.bincount(wide, rows.n * x) / n for x in places)
    location, dispersion = start.at((u, v))
    begin = location, np.maximum(dispersion, data.level()[1] + _NARROWEST)
    parts, value, ended = search(family, stats.cells("joint"), numbers, begin, method.components)
    if not ended.any():
        raise FitError(f"EM ended in none of {len(n):,} bins: use fewer components, or soc.VI()")
    location, spread = CURVES[family.name](*parts)
    logs = place_moments(*parts) if family.has_log_moments else ()
    table, dispersion = _moments(family, location, spread, logs, value), np.log(spread)
    if method.moments == "log":
        location, dispersion = match_gammas(*logs)

    def information(*curves: Floats) -> Pair:
        of_first, of_second = data.information(*(x[wide] for x in curves))
        return np.bincount(wide, of_first), np.bincount(wide, of_second)

    estimates = Estimates(location, dispersion, value, ~ended, ended, ~ended)
    curves, known = smoothing((u, v), n, estimates, information), np.flatnonzero(ended)
    weight, place, sd = (x[known[nearest(u, known)]] for x in parts)
    location, dispersion = curves.at((u, v))
    log = method.moments == "log"
    of_parts = place_moments if log else CURVES[family.name]
    target = moments_of_log(location, dispersion) if log else (location, np.exp(dispersion))
    weight, place, sd = adjusted(of_parts, (weight, place, sd), *target)
    if not method.smooth:
        curves = Curves((location[wide], dispersion[wide]))
    moments = {name: x[wide] for name, x in table.items()}
    adjusted_parts = [x[wide] for x in (weight, place - location[:, None], sd)]
    return curves, moments, adjusted_parts, int((~ended)[wide].sum())


def _fit_groups(
    stats: Statistics, family: Family, prior: Any, smoothing: Smoothing, pooled: Curves
) -> tuple[xr.Dataset, int, int]:
    """Curves of all groups at the pooled knots, groups with their own curves, and failed bins."""
    rows, data = rows_of(stats, family, grouped=True)
    places = positions(smoothing.axes[0], rows), positions(smoothing.axes[1], rows)
    bins, number, fits = maximise(family, data, rows.n), 0, []
    for code in range(len(stats.groups)):
        curves, part = pooled.values, bins._replace(fitted=bins.fitted & (rows.group == code))
        if part.fitted.sum() >= _FEWEST:
            curves = smoothing(places, rows.n, part, data.information).at(pooled.knots)
            number += 1
            if smoothing.monotone:  # between the pooled knots the spline differs
                curves = project_monotone(curves[0][None], pooled.knots[0])[0], curves[1]
        fits.append(curves)
    table = zip(prior.curve_names, KNOTS, map(np.array, zip(*fits, strict=True)), strict=True)
    variables = {
        f"{name}_of_group": ((*_SAMPLED, "group", dim), x[None, None]) for name, dim, x in table
    }
    posterior = xr.Dataset(variables, {"group": list(stats.groups)})
    return posterior, number, int(bins.failed.sum())


def _check(stats: Statistics, prior: Any, method: FiveSteps) -> None:
    """Refuse options that five steps cannot use."""
    name = type(prior).__name__
    changed = [field for field in _changed(prior, type(prior)()) if field not in _READ]
    for curve in ("mean", "variance"):
        spline = getattr(prior, curve)
        options = _changed(spline, Spline(scale=spline.scale))
        changed += [f"{curve}=soc.Spline({option}=)" for option in options]
    log = method.moments == "log"
    refusals = {
        f"five steps read only scale=, monotone= and groups= of a prior, and cannot use "
        f"soc.{name}({', '.join(changed)}): leave these out, or use soc.VI()": bool(changed),
        f"FiveSteps(components=) counts a mixture's: use soc.{name}Mixture(), or leave it out": (
            method.components is not None and not prior.mixture
        ),
        "curves of steps cannot differ by group, and the statistics have "
        f"{len(stats.groups):,} groups: pool them with soc.{name}(groups=False), or smooth": (
            bool(prior.groups and stats.groups) and not method.smooth
        ),
        f'soc.{name}() has no moments of log theta: use moments="plain"': (
            log and not FAMILIES[prior.family].has_log_moments
        ),
        f'soc.{name}() cannot be made monotone with moments="log": use moments="plain"': (
            log and prior.mixture and method.monotone
        ),
    }
    for message, refused in refusals.items():
        if refused:
            raise FitError(message)


def _changed(record: Any, default: Any) -> list[str]:
    """Fields of a configuration that are not the default's."""
    names = (field.name for field in fields(record))
    return [name for name in names if getattr(record, name) != getattr(default, name)]
