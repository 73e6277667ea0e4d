"""The paper's method: bins, a prior for each, smoothing, and the resulting fit.

Source: Muralidharan and Najmi, "Second Order Calibration", Section 3.
"""

from dataclasses import fields
from typing import Any

import numpy as np
import xarray as xr

from ..._lib.arrays import Floats
from ..._lib.errors import FitError
from ...data.statistics import Statistics
from ...families.priors import Spline
from ..fit_tree import bin_table, rank_table
from ..methods import FiveSteps
from .bins import GroupFits, StepFits, fit_bins, fit_groups, fit_mixtures
from .curves import SmoothCurves

_READ = ("mean", "variance", "monotone", "groups")  # fields of priors that five steps use


def run_five_steps(
    stats: Statistics, prior: Any, method: FiveSteps
) -> tuple[xr.DataTree, dict[str, Any]]:
    """A fit's `DataTree`, and the fields of its `Status` without the seconds."""
    _check(stats, prior, method)
    fits = (fit_mixtures if prior.mixture else fit_bins)(stats, prior, method)
    bins, observed = bin_table(stats, fits.axes[0])
    for axis in fits.axes:
        bins = bins.assign(rank_table(axis).data_vars)
    bins["edge"] = ("edge", _edges(stats))
    dims = ("chain", "draw", "bin", "component")
    components = {name: (dims, values[None, None]) for name, values in fits.components.items()}
    posterior = fits.curves.posterior(prior).assign(components)
    groups = None
    if prior.groups and stats.groups:
        groups = fit_groups(stats, prior, method, fits)
        posterior = posterior.merge(groups.posterior)
    if isinstance(fits.curves, SmoothCurves):
        bins.attrs["storage_error"] = fits.curves.error
    per_bin = xr.Dataset({name: ("bin", values) for name, values in fits.moments.items()})
    parts = {"posterior": posterior, "observed_data": observed, "constant_data": bins}
    tree = xr.DataTree.from_dict({**parts, "per_bin": per_bin})
    tree.attrs = {name: stats.data.attrs[name] for name in ("kind", "roles")}
    return tree, _verdict(fits, method, groups)


def _edges(stats: Statistics) -> Floats:
    """Cuts between occupied bins; an empty bin belongs to its nearer neighbour."""
    occupied = np.flatnonzero(stats.data["n"].to_numpy() > 0)
    return stats.edges[(occupied[:-1] + occupied[1:] - 1) // 2]


def _verdict(fits: StepFits, method: FiveSteps, groups: GroupFits | None) -> dict[str, Any]:
    failed, parts = int(fits.failed.sum()), list(fits.notes)
    parts += [f"one in {method.every} of {len(fits.fitted):,}"] * (method.every > 1)
    parts += ["smoothed" if method.smooth else "each as it is"]
    if groups is not None:
        parts += [f"{groups.own:,} groups by themselves"]
        failed += groups.failed
    reason = ", ".join(parts)
    if failed:
        reason += f"; the search failed in {failed:,} bins: use fewer bins, or soc.VI()"
    return {"converged": not failed, "reason": reason, "pareto_k": None, "ess_fraction": None}


def _check(stats: Statistics, prior: Any, method: FiveSteps) -> None:
    """Refuse options that five steps cannot use."""
    name = type(prior).__name__
    if method.components is not None and not prior.mixture:
        raise FitError(
            f"FiveSteps(components=) counts a mixture's: use soc.{name}Mixture(), or leave it out"
        )
    plain = type(prior)()
    unused = [f.name for f in fields(prior) if f.name not in _READ]
    changed = [n for n in unused if getattr(prior, n) != getattr(plain, n)]
    for curve in ("mean", "variance"):
        given = getattr(prior, curve)
        known = Spline(scale=given.scale)
        own = [f.name for f in fields(given) if getattr(given, f.name) != getattr(known, f.name)]
        changed += [f"{curve}=soc.Spline({n}=)" for n in own]
    if changed:
        raise FitError(
            f"five steps read only scale=, monotone= and groups= of a prior, and cannot use "
            f"soc.{name}({', '.join(changed)}): leave these out, or use soc.VI()"
        )
    if prior.groups and stats.groups and not method.smooth:
        raise FitError(
            f"curves that are steps are of one category, and the statistics have "
            f"{len(stats.groups):,} groups: pool them with soc.{name}(groups=False), or smooth"
        )
