"""Log marginal of bins of Poisson-Gamma items from two small histograms a bin.

With alpha = 1/cv2 and mu the mean of the Gamma prior in a bin, the items' log marginal is

    sum_j C_j log1p(j/alpha) + S log(mu) - sum_i (alpha + y_i) log1p(N_i mu/alpha) + constant,

C_j the number of items with y > j and S the sum of y: it needs one histogram over counts and one
over exposures. Wide cells stand as two points that keep the cell's mean and variance, so that the
error is of third order in the cell's width. Value and gradient are exact as alpha -> infinity,
where differences of gammaln lose all digits.
"""

from dataclasses import dataclass, fields

import numba
import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from .outcomes import EXACT_COUNTS

__all__ = [
    "Histograms",
    "all_bins",
    "information",
    "make_histograms",
    "one_bin",
    "value_and_gradient",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Histograms:
    """The two histograms of all bins as weighted points, bins one after the other.

    Attributes
    ----------
    above
        (bins, 32): number of items with a count above j.
    wide_start, wide_excess, wide_weight
        Points of counts of at least 32: (bins + 1,) offsets, count - 32, and number of items.
    start, exposure, items, counts
        Points of exposure: (bins + 1,) offsets, exposure, number of items, sum of their counts.
    total
        (bins,): sum of counts.
    constant
        (bins,): sum of y log N - log y!, which makes the log marginal a log probability.
    spread
        (bins,): variance of the items' own log means around that of the bin's centre. Theta's mean
        and cv2 over the bin are m exp(spread/2) and cv2 + spread (1 + cv2), to second order.
    """

    above: Floats
    wide_start: Ints
    wide_excess: Floats
    wide_weight: Floats
    start: Ints
    exposure: Floats
    items: Floats
    counts: Floats
    total: Floats
    constant: Floats
    spread: Floats

    @property
    def arrays(self) -> tuple[NDArray[np.generic], ...]:
        """All arrays in the order of `value_and_gradient`."""
        return tuple(getattr(self, f.name) for f in fields(self))


def _points(
    bin_of: Ints, weight: Floats, first: Floats, second: Floats, third: Floats
) -> tuple[Ints, Floats, Floats]:
    """Weighted points (bin, value, weight): one for a cell of a single value, else two.

    The two are the Gauss rule of the cell's first three moments.
    """
    mean = first / weight
    variance = second / weight - mean * mean
    # sums of squares carry rounding of this relative size: below it the cell is a single value
    wide = variance > 1e-13 * mean * mean
    mean_w, sd = mean[wide], np.sqrt(variance[wide])
    about = third[wide] / weight[wide] - mean_w * (3.0 * variance[wide] + mean_w * mean_w)
    # what rounding leaves of the third moment of a narrow cell is noise; points stay in the cell
    lean = np.where(variance[wide] > 1e-10 * mean_w * mean_w, about / variance[wide], 0.0)
    lean = np.clip(lean, -mean_w / 16.0, mean_w / 16.0) / (2.0 * sd)
    reach = np.sqrt(1.0 + lean * lean)
    upper = 0.5 * (1.0 - lean / reach)
    low, high = (mean_w + sd * (lean + sign * reach) for sign in (-1.0, 1.0))
    value, share = mean.copy(), weight.astype(float)
    value[wide] = np.maximum(low, 0.0)
    share[wide] *= 1.0 - upper
    return (
        np.concatenate([bin_of, bin_of[wide]]),
        np.concatenate([value, high]),
        np.concatenate([share, weight[wide] * upper]),
    )


def _by_bin(bins: int, bin_of: Ints, *columns: Floats) -> tuple[Ints, list[Floats]]:
    order = np.argsort(bin_of, kind="stable")
    start = np.concatenate([[0], np.cumsum(np.bincount(bin_of, minlength=bins))])
    return start.astype(np.int64), [np.ascontiguousarray(c[order], dtype=float) for c in columns]


def make_histograms(
    bins: int,
    count_cells: tuple[Ints, Floats, Floats, Floats, Floats],
    exposure_cells: tuple[Ints, Floats, Floats, Floats, Floats, Floats, Floats, Floats, Floats],
    sum_y_log_n: Floats,
) -> Histograms:
    """Histograms as weighted points from cells with their sums.

    Parameters
    ----------
    bins
        Number of bins.
    count_cells
        Columns bin, n, sum y, sum y^2, sum y^3 of cells over counts.
    exposure_cells
        Columns bin, n, sum N, sum N^2, sum N^3, sum y, sum yN, sum yN^2, sum yN^3 of cells over
        exposures.
    sum_y_log_n
        Sum of y log N over the items of each bin.
    """
    point_bin, y, weight = _points(*count_cells)
    above = np.zeros((bins, EXACT_COUNTS))
    for j in range(EXACT_COUNTS):
        over = y > j
        above[:, j] = np.bincount(point_bin[over], weights=weight[over], minlength=bins)
    far = y > EXACT_COUNTS - 1  # the lower of two points may fall just below its cell
    wide_start, (excess, wide_weight) = _by_bin(
        bins, point_bin[far], y[far] - EXACT_COUNTS, weight[far]
    )
    log_factorials = np.bincount(point_bin, weights=weight * gammaln(y + 1.0), minlength=bins)

    bin_of, n, n1, n2, n3, s, s1, s2, s3 = exposure_cells
    item_bin, item_exposure, items = _points(bin_of, n, n1, n2, n3)
    seen = s > 0
    count_bin, count_exposure, counts = _points(bin_of[seen], s[seen], s1[seen], s2[seen], s3[seen])
    start, (exposure, items, counts) = _merge(
        bins,
        np.concatenate([item_bin, count_bin]),
        np.concatenate([item_exposure, count_exposure]),
        np.concatenate([items, np.zeros(len(counts))]),
        np.concatenate([np.zeros(len(items)), counts]),
    )
    total = np.bincount(bin_of, weights=s, minlength=bins)
    return Histograms(
        above,
        wide_start,
        excess,
        wide_weight,
        start,
        exposure,
        items,
        counts,
        total,
        np.asarray(sum_y_log_n, dtype=float) - log_factorials,
        np.zeros(bins),
    )


def _merge(
    bins: int, bin_of: Ints, exposure: Floats, items: Floats, counts: Floats
) -> tuple[Ints, list[Floats]]:
    """Add up points of the same bin and exposure (items and counts share exact cells)."""
    order = np.lexsort((exposure, bin_of))
    b, x = bin_of[order], exposure[order]
    first = np.concatenate([[True], (b[1:] != b[:-1]) | (x[1:] != x[:-1])])
    at = np.flatnonzero(first)
    sums = [np.add.reduceat(c[order], at) for c in (items, counts)]
    return _by_bin(bins, b[at], x[at], *sums)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _log1pmx(x):  # type: ignore[no-untyped-def]
    """log(1 + x) - x for x >= 0, by series in x/(2 + x) near 0."""
    if x > 0.3:
        return np.log1p(x) - x
    u = x / (2.0 + x)
    w = u * u
    tail = w * (1 / 3 + w * (1 / 5 + w * (1 / 7 + w * (1 / 9 + w * (1 / 11 + w * (
        1 / 13 + w * (1 / 15 + w / 17)))))))  # fmt: skip
    return 2.0 * u * tail - x * u


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _stirling(x):  # type: ignore[no-untyped-def]
    """Log Gamma(x) minus its leading terms, and the derivative, for x >= 32."""
    z = 1.0 / x
    w = z * z
    value = z * (1 / 12 - w * (1 / 360 - w * (1 / 1260 - w / 1680)))
    slope = -w * (1 / 12 - w * (3 / 360 - w * (5 / 1260 - w * 7 / 1680)))
    return value, slope


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _wide_count(alpha, d):  # type: ignore[no-untyped-def]
    """Log [Gamma(A + d) / (Gamma(A) alpha^d)], A = alpha + 32; slope in log alpha."""
    a = alpha + EXACT_COUNTS
    x = d / a
    log1p_x = np.log1p(x)
    excess = _log1pmx(x)
    top, top_slope = _stirling(a + d)
    bottom, bottom_slope = _stirling(a)
    value = d * np.log1p(EXACT_COUNTS / alpha) + a * excess + (d - 0.5) * log1p_x + top - bottom
    # alpha [digamma(A + d) - digamma(A) - d/alpha], its three parts free of cancellation
    slope = (
        alpha * excess - EXACT_COUNTS * x + alpha * (0.5 * x / (a + d) + top_slope - bottom_slope)
    )
    return value, slope


@numba.njit(cache=True, nogil=True, error_model="numpy")
def one_bin(m, c, b, histograms):  # type: ignore[no-untyped-def]
    """Log marginal of bin b and its derivatives in log mean and log cv2."""
    (above, wide_start, wide_excess, wide_weight, start, exposure, items, counts, total,
     constant, spread) = histograms  # fmt: skip
    own = np.exp(c)
    cv2 = own + spread[b] * (1.0 + own)
    mean = m + 0.5 * spread[b]
    alpha = 1.0 / cv2
    value = 0.0
    slope_alpha = 0.0  # derivative in log alpha
    for j in range(1, EXACT_COUNTS):
        if above[b, j] == 0.0:
            break
        value += above[b, j] * np.log1p(j * cv2)
        slope_alpha -= above[b, j] * j / (alpha + j)
    for i in range(wide_start[b], wide_start[b + 1]):
        term, slope = _wide_count(alpha, wide_excess[i])
        value += wide_weight[i] * term
        slope_alpha += wide_weight[i] * slope
    slope_m = 0.0
    per_exposure = np.exp(mean) * cv2
    for i in range(start[b], start[b + 1]):
        r = exposure[i] * per_exposure
        share = r / (1.0 + r)
        # gap = log1p(r) - r/(1 + r) = [log1p(r) - r] + r^2/(1 + r), the latter for small r
        if r > 0.3:
            log1p_r = np.log1p(r)
            gap = log1p_r - share
        else:
            excess = _log1pmx(r)
            log1p_r = excess + r
            gap = excess + r * share
        value -= (alpha * items[i] + counts[i]) * log1p_r
        # the difference first: for large r the shares are 1 and what counts is beyond their digits
        slope_m += (counts[i] - alpha * items[i] * r) / (1.0 + r)
        slope_alpha += counts[i] * share - alpha * items[i] * gap
    chain = own / cv2 * (1.0 + spread[b])
    return value + total[b] * mean + constant[b], slope_m, -chain * slope_alpha


@numba.njit(cache=True, nogil=True, error_model="numpy")
def all_bins(log_mean, log_cv2, bins, out, *histograms):  # type: ignore[no-untyped-def]
    """Fill `out` as `value_and_gradient` returns it; the kernel of all inference."""
    for s in range(log_mean.shape[0]):
        for k in range(bins.shape[1]):
            out[0, s, k], out[1, s, k], out[2, s, k] = one_bin(
                log_mean[s, k], log_cv2[s, k], bins[s % bins.shape[0], k], histograms
            )


def value_and_gradient(
    log_mean: Floats, log_cv2: Floats, bins: Ints, *arrays: NDArray[np.generic]
) -> Floats:
    """Log marginal of bins and its derivatives in log mean and log cv2.

    Parameters
    ----------
    log_mean, log_cv2
        Shape (draws, k): the prior's curves at the chosen bins, draw by draw.
    bins
        Shape (k,), the chosen bins, or (m, k): draw s uses row s modulo m.
    *arrays
        `Histograms.arrays`.

    Returns
    -------
    numpy.ndarray
        Shape (3, draws, k): value, derivative in log mean, derivative in log cv2.
    """
    rows = np.atleast_2d(bins).astype(np.int64, copy=False)  # one type, one compilation
    out = np.empty((3, *log_mean.shape))
    all_bins(np.ascontiguousarray(log_mean), np.ascontiguousarray(log_cv2), rows, out, *arrays)
    return out


def information(log_mean: Floats, log_cv2: Floats, h: Histograms) -> tuple[Floats, Floats]:
    """Fisher information of log mean, and a lower bound of that of log cv2, by bin.

    The bound is the information of the best quadratic function of the count (Godambe 1985), from
    the negative binomial's first four cumulants; it is sharp where expected counts are small.
    """
    bins = len(h.total)
    bin_of = np.repeat(np.arange(bins), np.diff(h.start))
    own = np.exp(log_cv2)
    all_cv2 = own + h.spread * (1.0 + own)
    chain = own / all_cv2 * (1.0 + h.spread)
    cv2 = all_cv2[bin_of]
    expected = h.exposure * np.exp(log_mean + 0.5 * h.spread)[bin_of]
    r = expected * cv2
    mean = np.bincount(bin_of, weights=h.items * expected / (1.0 + r), minlength=bins)
    # r^2 expected / (k4 + 2 expected k2^2 - k3^2 / k2) where the cumulants over the expected count
    # are k2 = 1 + r, k3 = k2 (1 + 2r), k4 = k2 (1 + 6r + 6r^2)
    quadratic = 0.5 * (r / (1.0 + r)) ** 2 / (1.0 + cv2)
    return mean, chain**2 * np.bincount(bin_of, weights=h.items * quadratic, minlength=bins)
