"""Curves of a fit over the bins of statistics, whose items differ in score within each bin."""

import numpy as np
from numpy.typing import NDArray

from .curves import knot_weights
from .results import Fit
from .statistics import Statistics

__all__ = ["bin_scores", "spread_out"]

Floats = NDArray[np.float64]


def bin_scores(
    fit: Fit, stats: Statistics, coarse: int = 1
) -> tuple[NDArray[np.int64], Floats, Floats]:
    """Occupied bins, their mean scores, and the variance of log E(theta|t) within each.

    Parameters
    ----------
    fit
        The fit; scores are averaged on the axis of its mean curve (on the score's own for ranks).
    stats
        The statistics.
    coarse
        How many bins make one.
    """
    log = fit.prior.mean.scale == "log"
    sums = ("n", "sum_log_t", "sum_log_t2") if log else ("n", "sum_t", "sum_t2")
    wide = np.arange(stats.bins) // coarse
    n, first, second = (np.bincount(wide, stats.data[name]) for name in sums)
    number = np.flatnonzero(n)
    mean = first[number] / n[number]
    square = second[number] / n[number]
    variance = square - mean**2
    # below the rounding of the sums it is that of equal scores, 0
    sd = np.sqrt(np.where(variance > 1e-12 * square, variance, 0.0))
    ends = [np.exp(mean + s * sd) if log else mean + s * sd for s in (-0.5, 0.5)]
    below, above = (_mean_curve(fit, end) for end in ends)
    return number, np.exp(mean) if log else mean, (above - below) ** 2


def _mean_curve(fit: Fit, score: Floats) -> Floats:
    values, at = knot_weights(fit, "mean", score)
    return np.asarray(at @ values.mean(axis=0))


def spread_out(log_mean: Floats, log_cv2: Floats, spread: Floats) -> tuple[Floats, Floats]:
    """Curves of theta over whole bins: its mean and cv2, to second order in the spread."""
    return log_mean + spread / 2, np.log(np.exp(log_cv2) * (1.0 + spread) + spread)
