"""Whether a fit's draws are those of its model's posterior, by Stein's identities.

Draws x of a density p have E(grad log p) = 0 and E((x - E x)' grad log p) = -dim, however they were
made. A shift breaks the first, a wrong width the second. So the test needs nothing that the fit
says of itself.
"""

from dataclasses import dataclass, replace

import numpy as np
import xarray as xr

from .._lib.arrays import Floats, Ints
from .._lib.errors import FitError
from ..data.statistics import Statistics
from ..model.problem import check_prior
from .density import make_space
from .draw_densities import built_again, check_same, coordinates_of, values_of
from .level_density import densities_of
from .results import Fit

_DRAWS = 250  # that are tested, evenly spaced
_FURTHEST, _WIDEST = 2.0, 1.5  # in posterior sds, and a factor: draws beyond are no posterior's
_CLEAR = 0.05  # of the width: what draws of a sound fit do not exceed


@dataclass(frozen=True)
class Departure:
    """How far draws are from the posterior, in the model's coordinates."""

    shift: float  # distance of their mean, in posterior sds over all directions
    width: float  # their variance over the posterior's, averaged over directions

    @property
    def sound(self) -> bool:
        """Whether the draws can stand for the posterior."""
        return self.shift <= _FURTHEST and 1.0 / _WIDEST <= self.width <= _WIDEST

    def nats(self, parameters: float) -> float:
        """What it can change in the log density of the outcomes, of effective `parameters`."""
        wrong = max(abs(self.width - 1.0) - _CLEAR, 0.0)
        return 0.5 * self.shift**2 + wrong * parameters


def departure(fit: Fit, stats: Statistics) -> Departure | None:
    """How far the fit's draws are from the posterior under its model, built again from statistics.

    None if it cannot be built: the fit has terms of the user's own, or one draw, or the statistics
    have other bins. Nor is it known of fits whose curves are not the model's own: monotone ones,
    and those widened for clusters.
    """
    if fit.one_draw or fit.prior.monotone or fit.widened or fit.data.attrs.get("own_terms", False):
        return None
    try:
        check_prior(fit.prior, stats)
        built = built_again(fit, stats)
        check_same(fit, stats, built)
    except FitError:
        return None
    posterior = fit.data["posterior"].to_dataset()
    if any(v.name not in posterior for v in built.model.free_RVs):
        return None
    few = _some(posterior)
    try:
        at = coordinates_of(built, values_of(_with(fit, few), built))
    except FitError:  # draws that no coefficients of the model give
        return Departure(np.inf, np.nan)
    if not np.isfinite(at).all():  # scales below 0
        return Departure(np.inf, np.nan)
    # draws far from the posterior overflow, and are named below
    with np.errstate(all="ignore"):
        log_density, slope = densities_of(built, make_space(built.model)).bound(at)
    if not np.isfinite(log_density).all():
        return Departure(np.inf, np.nan)
    known = [few[v.name].to_numpy().reshape(len(at), -1) for v in built.model.free_RVs]
    return departure_of(at, slope, np.unique(np.hstack(known), axis=0, return_inverse=True)[1] % 2)


def departure_of(at: Floats, slope: Floats, half: Ints) -> Departure:
    """From coordinates and gradients, (draws, dim) each.

    The mean gradients of two halves (0 and 1) of the draws have independent errors, so their
    product has no floor of noise. All copies of a draw are in the same half.
    """
    if not 0 < half.sum() < len(half):
        return Departure(np.inf, np.nan)  # one draw alone
    away = at - at.mean(axis=0)
    first, second = (away @ slope[half == which].mean(axis=0) for which in (0, 1))
    shift = max(float(first @ second) / (len(at) - 1), 0.0)
    width = -float((slope * away).sum()) / (len(at) - 1) / at.shape[1]
    return Departure(float(np.sqrt(shift)), width)


def _some(posterior: xr.Dataset) -> xr.Dataset:
    """At most 250 draws, evenly spaced in every chain."""
    number = posterior.sizes["draw"]
    kept = min(number, max(2, _DRAWS // posterior.sizes["chain"]))
    return posterior.isel(draw=np.arange(kept) * number // kept)


def _with(fit: Fit, posterior: xr.Dataset) -> Fit:
    tree = fit.data.copy()
    tree["posterior"] = xr.DataTree(posterior)
    return replace(fit, data=tree)
