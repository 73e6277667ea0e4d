"""Five steps with a conjugate prior: maxima of bins, curves through them, and what a fit keeps."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy import special

from ..._lib.errors import FitError
from ...data.statistics import Statistics
from ...families.bin_curvature import CountBins, ValueBins
from ...families.priors import (
    CURVES,
    CURVES_BY_BIN,
    FRAME,
    Gamma,
    GammaMixture,
    Normal,
    NormalMixture,
)
from ...model.designs import axis_of
from ...model.outcomes import outcome_of
from ...model.rows import Rows, positions
from ...model.splines import Axis
from ..methods import FiveSteps
from .curves import Information, SmoothCurves, smooth_curves, stepped_curves
from .log_moments import smooth_log_moments
from .newton import BinMaxima, maximise

__all__ = [
    "BinFits",
    "Prior",
    "as_posterior",
    "fit_bins",
    "likelihood_of",
    "of_log_theta",
    "smoother",
]

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
Prior = Gamma | Normal | GammaMixture | NormalMixture
Smoother = Callable[[BinMaxima, tuple[Floats, Floats], Floats, Information], SmoothCurves]


@dataclass(frozen=True)
class BinFits:
    """Bins with their maxima and the curves through them.

    Attributes
    ----------
    rows
        The bins; of every group its own, where groups are fitted.
    axes
        Of the two curves.
    positions
        Of the bins on the axes.
    found
        Maxima of the bins.
    bins
        The likelihood.
    eventless
        Bins that were to be fitted and had no event.
    curves
        Smooth curves, or both parameters of each bin.
    """

    rows: Rows
    axes: tuple[Axis, Axis]
    positions: tuple[Floats, Floats]
    found: BinMaxima
    bins: CountBins | ValueBins
    eventless: Mask
    curves: SmoothCurves | tuple[Floats, Floats]

    @property
    def fitted(self) -> Mask:
        """Bins that have a maximum of their own."""
        return self.found.fitted

    @property
    def failed(self) -> Mask:
        """Bins whose search did not end."""
        return self.found.failed

    @property
    def moments(self) -> dict[str, Floats]:
        """Unsmoothed moments of theta by bin, of counts those of log theta too, and likelihoods.

        A maximum at variance 0 has variance 0 here. Bins that were not fitted have NaN.
        """
        found = self.found
        first, spread = found.first, np.where(found.at_zero, 0.0, np.exp(found.second))
        if isinstance(self.bins, ValueBins):
            moments = {"mean": first, "variance": spread}
        else:
            shape = np.exp(-found.second)
            away = np.where(found.at_zero, 0.0, special.psi(shape) - np.log(shape))
            moments = {
                "mean": np.exp(first),
                "variance": spread * np.exp(2.0 * first),
                "mean_log": first + away,
                "variance_log": np.where(found.at_zero, 0.0, special.polygamma(1, shape)),
            }
        return {**moments, "log_likelihood": found.log_likelihood, "n_items": self.rows.n}


def fit_bins(stats: Statistics, prior: Prior, method: FiveSteps) -> BinFits:
    """Steps 2 and 3 of all items together.

    Raises
    ------
    FitError
        If no bin can be fitted, or scores have no place on an axis.
    """
    outcome = outcome_of(stats)
    axes = axis_of(prior.mean, stats), axis_of(prior.variance, stats)
    rows, data = outcome.rows(stats, False, False)
    bins = likelihood_of(stats, data)
    chosen = rows.bin % method.every == 0
    found = maximise(bins, chosen)
    if not found.fitted.any():
        raise FitError(
            f"none of the {int(chosen.sum()):,} bins could be fitted ({_why(found, chosen)}): five "
            "steps estimate each bin by itself, so use fewer bins, or soc.VI()"
        )
    place = positions(axes[0], rows), positions(axes[1], rows)
    target = outcome.target(data)
    monotone = method.monotone or prior.monotone
    curves: SmoothCurves | tuple[Floats, Floats]
    if method.smooth:
        curves = smoother(prior, method, axes)(found, place, rows.n, target.information)
    else:
        curves = stepped_curves(found, place[0], target.information, monotone)
    return BinFits(rows, axes, place, found, bins, chosen & ~bins.can_fit, curves)


def smoother(prior: Prior, method: FiveSteps, axes: tuple[Axis, Axis]) -> Smoother:
    """Makes smooth curves of maxima, positions on both axes, numbers of items and information.

    Raises
    ------
    FitError
        If the prior has no such moments as are to be smoothed.
    """
    monotone = method.monotone or prior.monotone
    if of_log_theta(prior, method):
        return partial(smooth_log_moments, axes=axes, monotone=monotone)
    return partial(smooth_curves, monotone=monotone)


def of_log_theta(prior: Prior, method: FiveSteps) -> bool:
    """Whether the moments of log theta are smoothed.

    Raises
    ------
    FitError
        If the prior has no such moments as are to be smoothed.
    """
    mixed = isinstance(prior, GammaMixture) and method.monotone
    if method.moments == "log" and (mixed or not isinstance(prior, Gamma | GammaMixture)):
        why = "makes E(theta|t) monotone by" if mixed else "has but"
        raise FitError(
            f'moments="log" will not do: soc.{type(prior).__name__}() {why} moments="plain"'
        )
    return method.moments == "log"


def likelihood_of(stats: Statistics, data: Any) -> CountBins | ValueBins:
    """The likelihood of rows by the statistics' kind of items."""
    return CountBins(data) if stats.kind == "poisson" else ValueBins(data)


def _why(found: BinMaxima, chosen: Mask) -> str:
    failed = int(found.failed.sum())
    empty = int(chosen.sum()) - failed
    parts = [f"{empty:,} without an event"] * (empty > 0)
    return ", ".join(parts + [f"the search failed in {failed:,}"] * (failed > 0))


def as_posterior(prior: Prior, curves: SmoothCurves | tuple[Floats, Floats]) -> xr.Dataset:
    """Curves as a posterior of one draw."""
    family = type(prior).__name__
    if isinstance(curves, SmoothCurves):
        names = CURVES.get(family, FRAME)
        dims = "mean_knot", "variance_knot"
        kept = {
            name: (("chain", "draw", dim), values[None, None])
            for name, dim, values in zip(names, dims, curves.values, strict=True)
        }
        coords: dict[str, Any] = dict(zip(dims, curves.knots, strict=True))
    else:
        first, second = curves
        both = first, np.exp(second)
        if family.startswith("Gamma"):
            both = np.exp(-second), np.exp(-second - first)
        kept = {
            name: (("chain", "draw", "bin"), values[None, None])
            for name, values in zip(
                CURVES_BY_BIN[family.removesuffix("Mixture")], both, strict=True
            )
        }
        coords = {}
    return xr.Dataset(kept, {**coords, "chain": [0], "draw": [0]})
