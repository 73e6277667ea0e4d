"""Laws and tests that SciPy and ArviZ take longer to import than these compute."""

import numpy as np
from scipy import special

from .arrays import Bools, Floats, Ints, Pair

# skewness up to which Pearson's law is the Normal, as in SciPy
_NO_SKEW = 1.6e-5
# of Pareto-smoothed weights: draws up to which a fifth is the tail, and its least number
_FEW_DRAWS = 225
_LEAST_TAIL = 5
_EQUAL = 1e-9  # log weights that range less are equal
# weak priors of k and of the scale
_PRIOR_DRAWS = 10
_PRIOR_K = 0.5
_PRIOR_SCALE = 3.0
# of a scale that the posterior mean is taken over
_LEAST_WEIGHT = 10.0 * np.finfo(float).eps
_AT_ONCE = 500_000  # numbers in one array of sets x scales x tail


def pearson3_cdf(z: Floats | float, skew: Floats | float) -> Floats:
    """P(Z <= z) of a standardised variable with Pearson's type III law, a shifted Gamma."""
    is_normal, half, shape = _pearson3_parts(skew)
    place = np.maximum(shape + z / half, 0.0)
    below = np.where(
        half > 0.0, special.gammainc(shape, place), special.gammaincc(shape, place)
    )
    return np.where(is_normal, special.ndtr(z), below)


def pearson3_quantile(prob: Floats | float, skew: Floats | float) -> Floats:
    """Inverse of `pearson3_cdf`."""
    is_normal, half, shape = _pearson3_parts(skew)
    inverses = special.gammaincinv(shape, prob), special.gammainccinv(shape, prob)
    place = np.where(half > 0.0, *inverses)
    return np.where(is_normal, special.ndtri(prob), (place - shape) * half)


def _pearson3_parts(skew: Floats | float) -> tuple[Bools, Floats, Floats]:
    """Return where the law is the Normal, and elsewhere half the skewness and the Gamma's shape."""
    is_normal = np.abs(skew) < _NO_SKEW
    half = 0.5 * np.where(is_normal, 1.0, skew)
    return is_normal, half, 1.0 / half**2


def exceedance(values: Floats, bound: float, tail: int) -> float:
    """Share of values of at least a bound, ties counted half; beyond the largest, their tail's.

    An exponential law is fitted to the `tail` largest. It is never below the share itself.
    """
    share = 0.5 * float(np.mean(values > bound) + np.mean(values >= bound))
    if share * len(values) >= tail:
        return share
    largest = np.partition(values, len(values) - tail - 1)[-tail - 1 :]
    cut = largest[0]
    rate = float(np.mean(largest[1:] - cut))
    if rate > 0:
        fitted = tail / len(values) * np.exp(-(bound - cut) / rate)
        share = max(share, min(1.0, float(fitted)))
    return share


def uniform_distance(values: Floats) -> float:
    """Kolmogorov and Smirnov's distance of values from the uniform law on [0, 1]."""
    rising = np.sort(values)
    steps = np.arange(len(rising) + 1) / len(rising)
    return float(max((steps[1:] - rising).max(), (rising - steps[:-1]).max()))


def uniform_p_value(values: Floats) -> float:
    """P-value of values that depend on each other, if each is uniform (Tesso and Vehtari 2026).

    Tests of each order statistic, which has a Beta law, are combined by Cauchy's law, truncated at
    its median: ``prit_c`` of ArviZ, but the same for `values` and 1 - `values`.
    """
    rising = np.sort(values)
    n = len(values)
    rank = np.arange(1.0, n + 1.0)
    # the tail beyond the mean, as the lower one of 1 - `rising` where that is shorter
    is_low = rising < rank / (n + 1.0)
    a = np.where(is_low, rank, n + 1.0 - rank)
    p = 2.0 * special.betainc(a, n + 1.0 - a, np.where(is_low, rising, 1.0 - rising))
    combined = np.mean(np.where(p < 0.5, np.tan((0.5 - p) * np.pi), 0.0))
    return float(0.5 - np.arctan(combined) / np.pi)


@np.errstate(all="ignore")
def smoothed(log_ratio: Floats) -> Pair:
    """Logarithms of Pareto-smoothed weights that sum to 1, (draws, n), and k of each set of ratios.

    The largest weights become quantiles of the generalised Pareto law that is fitted to them (Zhang
    and Stephens 2009), whose shape k says whether they can be used (Vehtari et al. 2024). K is 0
    where all ratios are equal, and infinite where no tail can be fitted, whose weights stay.
    """
    draws = len(log_ratio)
    log_weight = log_ratio - log_ratio.max(axis=0)
    k = np.where(np.ptp(log_ratio, axis=0) <= _EQUAL, 0.0, np.inf)
    number = int(3.0 * np.sqrt(draws)) if draws > _FEW_DRAWS else draws // 5
    uneven = np.flatnonzero((k > 0.0) & (number >= _LEAST_TAIL))
    step = max(1, _AT_ONCE // ((30 + number) ** 2))
    for start in range(0, len(uneven), step):
        columns = uneven[start : start + step]
        row, tail, shape = _tails(log_weight[:, columns], number)
        fitted = np.isfinite(shape) & np.isfinite(tail).all(axis=0)
        columns = columns[fitted]
        log_weight[row[:, fitted], columns] = tail[:, fitted]
        k[columns] = shape[fitted]
    return special.log_softmax(log_weight, axis=0), k


def _tails(log_weight: Floats, number: int) -> tuple[Ints, Floats, Floats]:
    """Rows of the largest weights, (number, n), their smoothed logarithms, and k; NaN if none."""
    # the cutoff is the largest weight below the tail
    begin = len(log_weight) - number - 1
    row = np.argpartition(log_weight, begin, axis=0)
    cutoff = np.exp(np.take_along_axis(log_weight, row[[begin]], axis=0))[0]
    order = np.argsort(np.take_along_axis(log_weight, row[begin + 1 :], axis=0), axis=0)
    row = np.take_along_axis(row[begin + 1 :], order, axis=0)
    tail = np.take_along_axis(log_weight, row, axis=0)
    k, scale = _fit_tail(np.exp(tail.T) - cutoff[:, None])
    # quantiles (1 - p)^-k - 1 over k, for k = 0 too
    log_share = -np.log1p(-(np.arange(number) + 0.5) / number)[:, None]
    quantile = cutoff + scale * log_share * special.exprel(k * log_share)
    return row, np.minimum(np.log(quantile), tail[-1]), np.where(scale > 0.0, k, np.nan)


def _fit_tail(excess: Floats) -> Pair:
    """Shapes and scales of generalised Pareto laws of rising excesses (n, number)."""
    number = excess.shape[1]
    scales = 30 + int(np.sqrt(number))
    quartile = excess[:, int(number / 4 + 0.5) - 1]
    largest = excess[:, -1]
    grid = 1.0 - np.sqrt(scales / (np.arange(scales) + 0.5))
    # -k over scale
    inverse = grid / (_PRIOR_SCALE * quartile[:, None]) + 1.0 / largest[:, None]
    shape = np.log1p(-inverse[:, :, None] * excess[:, None]).mean(axis=2)
    weight = special.softmax(number * (np.log(-inverse / shape) - shape - 1.0), axis=1)
    weight[weight < _LEAST_WEIGHT] = 0.0
    mean = (weight * inverse).sum(axis=1) / weight.sum(axis=1)
    k = np.log1p(-mean[:, None] * excess).mean(axis=1)
    scale = -k / mean
    k = (number * k + _PRIOR_DRAWS * _PRIOR_K) / (number + _PRIOR_DRAWS)
    return np.where(quartile > excess[:, 0], k, np.nan), scale
