"""The paper's method: bins, a prior for each, smoothing, and the resulting fit.

Source: Muralidharan and Najmi, "Second Order Calibration", Section 3.
"""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import xarray as xr

from ..._lib.arrays import Floats, Ints
from ..._lib.errors import FitError
from ..._model.pilot import check_joint_cells
from ..._model.rows import positions, rows_of
from ..._model.terms import axis_of
from ...data.statistics import Statistics
from ...families.family import FAMILIES, Family
from ...families.monotone import project_monotone
from ...families.poisson_gamma import match_gammas, moments_of_log
from ...families.priors import COMPONENTS, Spline
from ...families.row_sums import RowSums
from ..fit_tree import bin_table, rank_table
from ..methods import FiveSteps
from .bins import CURVES, Estimates, Pair, Parts, adjusted, maximise, place_moments, search
from .curves import KNOTS, Curves, Smoothing, nearest

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
    rows, data = rows_of(stats, family, most_bins=stats.bins)
    data.refuse_mean_only("soc.FiveSteps()")
    axes = axis_of(prior.mean, stats), axis_of(prior.variance, stats)
    places = positions(axes[0], rows), positions(axes[1], rows)
    smoothing = Smoothing(method, method.monotone or prior.monotone, axes)
    bins = maximise(family, data, rows.n)
    notes = _notes(family, data, bins)
    occupied = np.flatnonzero(stats.data["n"].to_numpy() > 0)
    row = np.searchsorted(rows.bin, occupied, side="right") - 1
    components: dict[str, Any] = {}
    if prior.mixture:
        # EM begins at smooth curves, because estimates of single bins are noisy
        plain = Smoothing(replace(method, smooth=True, moments="plain"), False, axes)
        start = plain(places, rows.n, bins, data.information).at(places)
        begin = start[0], np.maximum(start[1], data.level()[1] + _NARROWEST)
        cells = stats.cells("joint")
        parts, value, ended = search(family, cells, rows.bin, begin, method.components)
        bins, moments = _mixture_estimates(family, method, parts, value, ended)
        notes += [f"{int(ended.sum()):,} bins by EM"]
        curves = smoothing(places, rows.n, bins, data.information)
        fitted_bins = np.flatnonzero(ended)
        nearest_bin = fitted_bins[nearest(places[0], fitted_bins)]
        parts = parts[0][nearest_bin], parts[1][nearest_bin], parts[2][nearest_bin]
        curves, parts = _adjust(family, method, curves, curves.at(places), parts)
        pairs = zip(COMPONENTS, parts, strict=True)
        components = {n: ((*_SAMPLED, "bin", "component"), x[row][None, None]) for n, x in pairs}
    else:
        curves = smoothing(places, rows.n, bins, data.information)
        logs = moments_of_log(bins.location, bins.dispersion) if family.has_log_moments else ()
        spread = np.where(bins.at_zero, 0.0, np.exp(bins.dispersion))
        moments = _moments(family, bins.location, spread, logs, bins.log_likelihood)
    failed = int(bins.failed[row].sum())
    notes += ["smoothed" if method.smooth else "each as it is"]
    posterior = xr.Dataset(components, {name: [0] for name in _SAMPLED})
    posterior = posterior.assign(curves.variables(prior, row))
    if prior.groups and stats.groups:
        of_groups, number, failed_bins = _fit_groups(stats, family, prior, smoothing, curves)
        posterior, failed = posterior.merge(of_groups), failed + failed_bins
        notes += [f"{number:,} groups by themselves"]
    tree = _tree(stats, axes, posterior, moments, occupied, row)
    if failed:
        notes[-1] += f"; the search failed in {failed:,} bins: use fewer bins, or soc.VI()"
    verdict = {"converged": not failed, "reason": ", ".join(notes)}
    return tree, verdict | {"pareto_k": None, "ess_fraction": None}


def _tree(
    stats: Statistics, axes: Any, posterior: xr.Dataset, moments: Any, occupied: Ints, row: Ints
) -> xr.DataTree:
    """The fit's `DataTree`, from the moments of rows and the row of each occupied bin."""
    constant, observed = bin_table(stats, axes[0])
    constant = constant.merge(rank_table(*axes))
    # an empty bin belongs to its nearer neighbour
    constant["edge"] = ("edge", stats.edges[(occupied[:-1] + occupied[1:] - 1) // 2])
    per_bin = xr.Dataset({name: ("bin", values[row]) for name, values in moments.items()})
    per_bin["n_items"] = constant["n_items"]
    contents = {"observed_data": observed, "constant_data": constant, "per_bin": per_bin}
    tree = xr.DataTree.from_dict({"posterior": posterior, **contents})
    tree.attrs = {name: stats.data.attrs[name] for name in ("kind", "roles")}
    return tree


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


def _mixture_estimates(
    family: Family, method: FiveSteps, parts: Parts, value: Floats, ended: Any
) -> tuple[Estimates, dict[str, Floats]]:
    """The mixtures' curves as estimates of bins, and their moments."""
    if not ended.any():
        raise FitError(
            f"EM ended in none of {len(ended):,} bins: use fewer components, or soc.VI()"
        )
    location, spread = CURVES[family.name](*parts)
    logs = place_moments(*parts) if family.has_log_moments else ()
    curves = match_gammas(*logs) if method.moments == "log" else (location, np.log(spread))
    moments = _moments(family, location, spread, logs, value)
    location, dispersion = curves
    return Estimates(location, dispersion, value, ~ended, ended, ~ended), moments


def _adjust(
    family: Family, method: FiveSteps, curves: Curves, at_bins: Pair, parts: Parts
) -> tuple[Curves, Parts]:
    """Curves of steps at the bins, and components with the curves' moments, less the first."""
    location, dispersion = at_bins
    if method.moments == "log":
        weight, place, sd = adjusted(place_moments, parts, *moments_of_log(*at_bins))
    else:
        weight, place, sd = adjusted(CURVES[family.name], parts, location, np.exp(dispersion))
    return curves if method.smooth else Curves(at_bins), (weight, place - location[:, None], sd)


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
    name, family = type(prior).__name__, FAMILIES[prior.family]
    options = set(_changed(prior, type(prior)())) - set(_READ)
    for curve in ("mean", "variance"):
        spline = getattr(prior, curve)
        changed = _changed(spline, Spline(scale=spline.scale))
        options |= {f"{curve}=soc.Spline({option}=)" for option in changed}
    log = method.moments == "log"
    refusals = {
        f"five steps read only scale=, monotone= and groups= of a prior, and cannot use soc.{name}("
        f"{', '.join(sorted(options))}): leave these out, or use soc.VI()": options,
        f"FiveSteps(components=) counts a mixture's: use soc.{name}Mixture(), or leave it out": (
            method.components is not None and not prior.mixture
        ),
        "curves of steps cannot differ by group, and the statistics have "
        f"{len(stats.groups):,} groups: pool them with soc.{name}(groups=False), or smooth": (
            prior.groups and stats.groups and not method.smooth
        ),
        f'soc.{name}() has no moments of log theta: use moments="plain"': (
            log and not family.has_log_moments
        ),
        f'soc.{name}() cannot be made monotone with moments="log": use moments="plain"': (
            log and prior.mixture and method.monotone
        ),
    }
    for message, refused in refusals.items():
        if refused:
            raise FitError(message)
    if prior.mixture:
        check_joint_cells(stats, f"soc.{name}")


def _changed(record: Any, default: Any) -> list[str]:
    """Fields of a configuration that are not the default's."""
    names = (field.name for field in fields(record))
    return [name for name in names if getattr(record, name) != getattr(default, name)]
