"""Posterior predictive checks: are summaries of the counts like those that the model makes.

Two summaries that the fit does not look at by themselves: how widely counts scatter about their
expectations, and how many are zero.
"""

from dataclasses import dataclass, replace

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy import stats

from ..curves import curve_draws
from ..progress import phase
from ..results import Fit

__all__ = ["PredictiveTest", "predictive_tests", "simulate_counts", "tail_probability", "thin"]

Floats = NDArray[np.float64]

_ITEMS = 50_000  # more are a random subset: the tests are powerful by then
_CHUNK = 2_000
_REPLICATES = 400
_OUTER = 20  # with fewer replicates than this beyond the observed value, their tail is fitted


@dataclass(frozen=True)
class PredictiveTest:
    """One posterior predictive test.

    Attributes
    ----------
    name
        What the summary is.
    ratio
        Observed summary over its predictive mean: 1 is as predicted.
    p_value
        Two-sided posterior predictive p-value. The items that made the fit give p-values nearer
        one half than new items would: the test is conservative there.
    """

    name: str
    ratio: float
    p_value: float


def thin(fit: Fit, most: int) -> Fit:
    """The same fit with at most `most` draws, evenly spaced in every chain."""
    posterior = fit.data["posterior"].to_dataset()
    kept = min(posterior.sizes["draw"], max(1, most // posterior.sizes["chain"]))
    pick = np.arange(kept) * posterior.sizes["draw"] // kept
    bins = fit.data["constant_data"].to_dataset()
    groups = {"posterior": posterior.isel(draw=pick), "constant_data": bins}
    return replace(fit, data=xr.DataTree.from_dict(groups))


def simulate_counts(
    exposure: Floats, log_mean: Floats, log_cv2: Floats, rng: np.random.Generator
) -> Floats:
    """Counts of new items with these exposures: theta from its Gamma prior, y given theta."""
    theta = rng.standard_gamma(np.exp(-log_cv2)) * np.exp(log_mean + log_cv2)
    return rng.poisson(exposure * theta).astype(float)


def _scatter(count: Floats, exposure: Floats, log_mean: Floats, log_cv2: Floats) -> Floats:
    """Sum over items of squared departures, weighted to tell best a common factor on variance.

    The weight is variance / Var((y - mean)^2). Pearson's weight 1 / variance would let single
    events on tiny exposures drown the rest.
    """
    mean = exposure * np.exp(log_mean)
    extra = mean * np.exp(log_cv2)  # overdispersion: variance = mean (1 + extra)
    variance = mean * (1.0 + extra)
    # kappa_4 + 2 variance^2 of the negative binomial, divided by the variance
    noise = 1.0 + 6.0 * extra * (1.0 + extra) + 2.0 * variance
    return np.asarray(((count - mean) ** 2 / noise).sum(axis=-1))


def tail_probability(excess: Floats) -> float:
    """Two-sided p-value of 0 among replicated minus observed summaries, ties counted half.

    A few hundred replicates cannot show a probability of 1e-5: beyond the outermost ones it comes
    from the Pearson III curve with their mean, variance and skewness.

    Examples
    --------
    >>> import numpy as np
    >>> tail_probability(np.linspace(-1.0, 1.0, 400))
    1.0
    """
    above = float(np.mean(excess > 0) + 0.5 * np.mean(excess == 0))
    tail = min(above, 1.0 - above)
    spread = float(np.std(excess))
    if tail * len(excess) < _OUTER and spread > 0:
        curve = stats.pearson3(float(stats.skew(excess)), loc=float(np.mean(excess)), scale=spread)
        tail = min(float(curve.cdf(0.0)), float(curve.sf(0.0)))
    return min(1.0, 2.0 * tail)


def predictive_tests(
    fit: Fit,
    score: Floats,
    count: Floats,
    exposure: Floats,
    *,
    seed: int = 0,
    progress: bool = True,
) -> list[PredictiveTest]:
    """Dispersion and number of zeros of the counts against replicates from the fit.

    Parameters
    ----------
    fit
        The fitted curves; every replicate takes a draw of the whole curves.
    score, count, exposure
        The items; a random 50,000 of them if there are more.
    seed
        Seed of the subset and of the replicates.
    progress
        Whether long work shows its progress.
    """
    rng = np.random.default_rng(seed)
    few = thin(fit, _REPLICATES)
    if len(count) > _ITEMS:
        keep = np.sort(rng.choice(len(count), _ITEMS, replace=False))
        score, count, exposure = score[keep], count[keep], exposure[keep]
    sums = np.zeros((4, _REPLICATES))  # scatter and zeros, replicated and observed
    with phase("predictive checks", total=len(count), unit="items", enabled=progress) as running:
        for start in range(0, len(count), _CHUNK):
            part = slice(start, start + _CHUNK)
            y, n = count[part], exposure[part]
            log_mean, log_cv2 = curve_draws(few, score[part])
            pick = np.arange(_REPLICATES) * len(log_mean) // _REPLICATES
            log_mean, log_cv2 = log_mean[pick], log_cv2[pick]
            new = simulate_counts(n, log_mean, log_cv2, rng)
            sums[0] += _scatter(new, n, log_mean, log_cv2)
            sums[1] += _scatter(y, n, log_mean, log_cv2)
            sums[2] += (new == 0).sum(axis=1)
            sums[3] += (y == 0).sum()
            running.advance(len(y))
    return [
        _test("dispersion", sums[0], sums[1]),
        _test("zero counts", sums[2], sums[3]),
    ]


def _test(name: str, replicated: Floats, observed: Floats) -> PredictiveTest:
    expected, seen = float(np.mean(replicated)), float(np.mean(observed))
    if expected > 0:
        ratio = seen / expected
    else:
        ratio = 1.0 if seen == 0 else float("inf")
    return PredictiveTest(name, ratio, tail_probability(replicated - observed))
