"""All steps in order, and a fit's groups and verdict from them."""

from dataclasses import fields
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ..._lib.errors import FitError
from ...data.statistics import Statistics
from ...families.priors import COMPONENTS, Gamma, GammaMixture, Normal, NormalMixture, Spline
from ...model.outcomes import outcome_of
from ..bin_table import bin_table, rank_table
from ..methods import FiveSteps
from .conjugate import BinFits, as_posterior, fit_bins
from .curves import SmoothCurves
from .groups import GroupFits, fit_groups
from .mixtures import MixtureFits, fit_mixtures

__all__ = ["run_five_steps"]

Floats = NDArray[np.float64]
Prior = Gamma | Normal | GammaMixture | NormalMixture

_READ = ("mean", "variance", "monotone", "groups")  # fields of priors that five steps read


def run_five_steps(
    stats: Statistics, prior: Prior, method: FiveSteps
) -> tuple[xr.DataTree, dict[str, Any]]:
    """A fit's `DataTree`, and its status but for the seconds.

    Parameters
    ----------
    stats
        The statistics.
    prior
        Family, scales of the curves, ``monotone`` and ``groups``; anything else is refused.
    method
        The method.

    Raises
    ------
    FitError
        If the prior has what five steps cannot use, or no bin can be fitted.
    """
    _check(stats, prior, method)
    mixture = isinstance(prior, GammaMixture | NormalMixture)
    fits = (fit_mixtures if mixture else fit_bins)(stats, prior, method)
    bins, observed = bin_table(stats, fits.axes[0], outcome_of(stats).observed)
    for axis in fits.axes:
        bins = bins.assign(rank_table(axis).data_vars)
    bins["edge"] = ("edge", _edges(stats))
    per_bin = {name: ("bin", values) for name, values in fits.moments.items()}
    posterior = as_posterior(prior, fits.curves)
    groups = None
    if isinstance(fits, MixtureFits):
        posterior = posterior.merge(_components(fits))
    elif prior.groups and stats.groups:
        groups = fit_groups(stats, prior, method, fits)
        posterior = posterior.merge(groups.posterior)
    if isinstance(fits.curves, SmoothCurves):
        bins.attrs["storage_error"] = fits.curves.error
    tree = xr.DataTree.from_dict(
        {
            "posterior": posterior,
            "observed_data": observed,
            "constant_data": bins,
            "per_bin": xr.Dataset(per_bin),
        }
    )
    tree.attrs = {name: stats.data.attrs[name] for name in ("kind", "roles")}
    return tree, _verdict(fits, method, groups)


def _components(fits: MixtureFits) -> xr.Dataset:
    """What a law of mixtures needs beside the curves."""
    dims = ("chain", "draw", "bin", "component")
    both = zip(COMPONENTS, (fits.weight, fits.place, fits.sd), strict=True)
    return xr.Dataset({name: (dims, values[None, None]) for name, values in both})


def _edges(stats: Statistics) -> Floats:
    """Cuts between occupied bins; an empty bin goes to the nearer of its neighbours."""
    occupied = np.flatnonzero(stats.data["n"].to_numpy() > 0)
    return stats.edges[(occupied[:-1] + occupied[1:] - 1) // 2]


def _verdict(
    fits: BinFits | MixtureFits, method: FiveSteps, groups: GroupFits | None
) -> dict[str, Any]:
    failed, fitted = int(fits.failed.sum()), int(fits.fitted.sum())
    if isinstance(fits, MixtureFits):
        parts = [f"{fitted:,} bins by EM"]
        known = bool(np.isfinite(fits.gap))
        parts += [f"at most {fits.gap:.2g} nats below the highest likelihood"] * known
    else:
        zero, eventless = int(fits.found.at_zero.sum()), int(fits.eventless.sum())
        parts = [f"{fitted:,} bins by maximum likelihood"]
        parts += [f"{zero:,} at variance 0"] * (zero > 0)
        parts += [f"{eventless:,} more without an event left to their neighbours"] * (eventless > 0)
    parts += [f"one in {method.every} of {len(fits.fitted):,}"] * (method.every > 1)
    parts += ["smoothed" if method.smooth else "each as it is"]
    if groups is not None:
        parts += [f"{groups.own:,} groups by themselves"]
        failed += groups.failed
    reason = ", ".join(parts)
    if failed:
        reason += f"; the search failed in {failed:,} bins: use fewer bins, or soc.VI()"
    return {"converged": not failed, "reason": reason, "pareto_k": None, "ess_fraction": None}


# --- what five steps cannot use ------------------------------------------------------------------


def _check(stats: Statistics, prior: Prior, method: FiveSteps) -> None:
    outcome = outcome_of(stats)
    family = outcome.prior.__name__
    name = type(prior).__name__
    if name.removesuffix("Mixture") != family:
        raise FitError(
            f"prior=soc.{name}(...) is not for these statistics, which are of "
            f"{stats.data.attrs['kind']} items: use soc.{family}(...)"
        )
    if method.components is not None and name == family:
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
