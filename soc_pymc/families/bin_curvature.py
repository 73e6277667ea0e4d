"""Log marginals of bins with first and exact second derivatives, and what happens at variance 0.

Beside `histograms.one_bin` and `normal_cells.one_row`, which give gradients alone. Theta has one
distribution in a bin here: the bins' `spread` counts as 0.
"""

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from .histograms import Histograms, _log1pmx, _wide_count
from .normal_cells import NormalCells
from .outcomes import EXACT_COUNTS

__all__ = ["BINS", "CountBins", "ValueBins", "count_curvature", "value_curvature"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_LEAST_CV2, _LEAST_EXCESS = 1e-8, 1e-4
_LEAST_SHARE = 1e-8
_CHUNK = 64  # bins that a thread takes at a time


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _wide_bend(alpha, d, slope):  # type: ignore[no-untyped-def]
    """Second derivative in log alpha of `histograms._wide_count`, whose slope is given.

    slope + d + alpha^2 [trigamma(A + d) - trigamma(A)], A = alpha + 32, by Stirling's series with
    the leading terms, which cancel, taken together.
    """
    a = alpha + EXACT_COUNTS
    b = a + d
    lead = d * (2.0 * EXACT_COUNTS * alpha + EXACT_COUNTS**2 + a * d) / (a * b)
    second = -0.5 * d * (a + b) * (alpha / (a * b)) ** 2
    tails = np.zeros(2)
    for k in range(2):
        z = 1.0 / (b if k == 0 else a)
        w = z * z
        tails[k] = alpha * alpha * z * w * (1 / 6 - w * (1 / 30 - w / 42))
    return slope + lead + second + (tails[0] - tails[1])


@numba.njit(cache=True, nogil=True, error_model="numpy")
def count_curvature(m, c, rows, out, *histograms):  # type: ignore[no-untyped-def]
    """Fill `out` (6, k): log marginal, slopes in log mean and log cv2, and their derivatives.

    The last three are the second derivatives: in log mean, mixed, and in log cv2. No term loses
    digits as cv2 -> 0.
    """
    (above, wide_start, wide_excess, wide_weight, start, exposure, items, counts, total,
     constant, _) = histograms  # fmt: skip
    for k in range(len(rows)):
        b, cv2 = rows[k], np.exp(c[k])
        alpha = 1.0 / cv2
        value = by_m = by_c = by_mm = by_mc = by_cc = 0.0
        for j in range(1, EXACT_COUNTS):
            if above[b, j] == 0.0:
                break
            value += above[b, j] * np.log1p(j * cv2)
            slope = above[b, j] * j / (alpha + j)
            by_c += slope
            by_cc += slope * alpha / (alpha + j)
        for i in range(wide_start[b], wide_start[b + 1]):
            term, slope = _wide_count(alpha, wide_excess[i])
            value += wide_weight[i] * term
            by_c -= wide_weight[i] * slope
            by_cc += wide_weight[i] * _wide_bend(alpha, wide_excess[i], slope)
        per_exposure = np.exp(m[k]) * cv2
        for i in range(start[b], start[b + 1]):
            r = exposure[i] * per_exposure
            share = r / (1.0 + r)
            # gap = log1p(r) - r/(1 + r), as in histograms.one_bin
            if r > 0.3:
                log1p_r = np.log1p(r)
                gap = log1p_r - share
            else:
                excess = _log1pmx(r)
                log1p_r = excess + r
                gap = excess + r * share
            n, y = alpha * items[i], counts[i]
            turn = share / (1.0 + r)
            value -= (n + y) * log1p_r
            by_m += (y - n * r) / (1.0 + r)
            by_c += n * gap - y * share
            by_mm -= (n + y) * turn
            by_mc += n * share * share - y * turn
            by_cc += n * (share * share - gap) - y * turn
        out[0, k] = value + total[b] * m[k] + constant[b]
        out[1, k], out[2, k] = by_m, by_c
        out[3, k], out[4, k], out[5, k] = by_mm, by_mc, by_cc


@numba.njit(cache=True, nogil=True, error_model="numpy")
def value_curvature(m, v, rows, out, start, noise, moments, centre, spread):  # type: ignore[no-untyped-def]
    """Fill `out` (6, k): log marginal, slopes in mean and variance, and their derivatives."""
    for k in range(len(rows)):
        b = rows[k]
        x = m[k] - centre[b]
        value = by_m = by_v = by_mm = by_mv = by_vv = 0.0
        for i in range(start[b], start[b + 1]):
            u = 1.0 / (v[k] + noise[i])
            n = moments[i, 0]
            uu = u * u
            # n log(2 pi (v + w)) to third order in w about the cell's mean
            value += n[0] * np.log(2.0 * np.pi / u) - uu * (0.5 * n[2] - u * n[3] / 3.0)
            by_v += u * (n[0] + uu * (n[2] - u * n[3]))
            by_vv -= uu * (n[0] + uu * (3.0 * n[2] - 4.0 * u * n[3]))
            power = u  # (-1)^p u^(p + 1)
            for p in range(4):
                square = moments[i, 2, p] - x * (2.0 * moments[i, 1, p] - x * n[p])
                pull = x * n[p] - moments[i, 1, p]
                value += power * square
                by_m += power * 2.0 * pull
                by_mm += power * 2.0 * n[p]
                power *= -u
                by_v += (p + 1) * power * square
                by_mv += (p + 1) * power * 2.0 * pull
                by_vv -= (p + 1) * (p + 2) * power * u * square
        out[0, k], out[1, k], out[2, k] = -0.5 * value, -0.5 * by_m, -0.5 * by_v
        out[3, k], out[4, k], out[5, k] = -0.5 * by_mm, -0.5 * by_mv, -0.5 * by_vv


def _in_threads(
    kernel: Callable[..., None], first: Floats, second: Floats, rows: Ints, *arrays: Any
) -> Floats:
    """The kernel's (6, k), bins shared out to all processors."""
    out = np.empty((6, len(rows)))
    step = max(_CHUNK, -(-len(rows) // (4 * (os.cpu_count() or 1))))

    def run(part: slice) -> None:
        own = np.empty((6, len(rows[part])))
        kernel(first[part], second[part], rows[part], own, *arrays)
        out[:, part] = own

    parts = [slice(i, i + step) for i in range(0, len(rows), step)]
    if len(parts) < 2:
        for part in parts:
            run(part)
        return out
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(run, parts))
    return out


@dataclass(frozen=True)
class CountBins:
    """Bins of counts under Gamma priors, by log mean and log cv2."""

    data: Histograms

    farthest = 1.0  # far above the data the likelihood is flat in log mean

    def __call__(self, first: Floats, second: Floats, rows: Ints) -> Floats:
        """Log marginals of rows with derivatives up to the second, (6, k)."""
        return _in_threads(count_curvature, first, second, rows, *self.data.arrays)

    @property
    def can_fit(self) -> NDArray[np.bool_]:
        """Bins with an event: without one the mean is 0 and its logarithm nowhere."""
        return self.data.total > 0

    @property
    def rounding(self) -> Floats:
        """What rounding may do to log marginals and slopes: sums of counts cancel in them."""
        return 1e-14 * self.data.total

    def _bin_of(self) -> Ints:
        return np.repeat(np.arange(len(self.data.total)), np.diff(self.data.start))

    def _sums(self, *columns: Floats) -> list[Floats]:
        return [np.bincount(self._bin_of(), c, len(self.data.total)) for c in columns]

    def at_zero(self) -> tuple[Floats, Floats, Floats, Floats]:
        """At cv2 = 0: the best log mean, the log marginal there, its slope in cv2, and the floor.

        The marginal is Poisson; the slope is half the sum of (y - N mu)^2 - y. The floor stands for
        0 where a positive number is needed: 1e-8, or what changes no variance of a count by more
        than 1e-4 of it.
        """
        h = self.data
        exposure, squares, cross = self._sums(
            h.items * h.exposure, h.items * h.exposure**2, h.counts * h.exposure
        )
        # bins without an event have a mean of 0, whose logarithm is -inf: `can_fit` leaves them out
        with np.errstate(divide="ignore", invalid="ignore"):
            log_mean = np.log(h.total) - np.log(exposure)
            mean = np.exp(log_mean)
            value = h.total * log_mean - h.total + h.constant
        pairs = h.above[:, 1:] @ np.arange(1.0, EXACT_COUNTS)
        wide_bin = np.repeat(np.arange(len(h.total)), np.diff(h.wide_start))
        d = h.wide_excess
        pairs += np.bincount(
            wide_bin, h.wide_weight * d * (d + 2 * EXACT_COUNTS - 1) / 2, len(h.total)
        )
        slope = pairs - mean * cross + 0.5 * mean**2 * squares
        largest = np.maximum.reduceat(h.exposure, h.start[:-1]) * mean
        floor = np.minimum(_LEAST_CV2, _LEAST_EXCESS / np.maximum(largest, 1.0))
        return log_mean, value, slope, np.log(floor)

    def start(self) -> Floats:
        """Log cv2 by the method of moments, within reason."""
        h = self.data
        log_mean, _, slope, floor = self.at_zero()
        (squares,) = self._sums(h.items * h.exposure**2)
        # the same bins: NaN is replaced below
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            cv2 = 2.0 * slope / (np.exp(2.0 * log_mean) * squares)
        cv2 = np.nan_to_num(cv2, nan=1.0)  # a bin without an event starts at the middle
        return np.log(np.clip(cv2, np.exp(floor), 10.0))


@dataclass(frozen=True)
class ValueBins:
    """Bins of values under Normal priors, by mean and log variance."""

    data: NormalCells

    farthest = float(np.inf)  # in the mean it is a parabola

    def __call__(self, first: Floats, second: Floats, rows: Ints) -> Floats:
        """Log marginals of rows with derivatives up to the second, (6, k)."""
        v = np.exp(second)
        out = _in_threads(value_curvature, first, v, rows, *self.data.arrays)
        out[5] = v * (out[2] + v * out[5])
        out[4] *= v
        out[2] *= v
        return out

    @property
    def can_fit(self) -> NDArray[np.bool_]:
        """All bins that have an item."""
        return np.ones(len(self.data.centre), dtype=bool)

    @property
    def rounding(self) -> Floats:
        """What rounding may do to log marginals and slopes."""
        return 1e-14 * self.data.items

    def at_zero(self) -> tuple[Floats, Floats, Floats, Floats]:
        """At variance 0: the best mean, the log marginal, its slope in the variance, and the floor.

        The floor stands for 0 where a positive number is needed: 1e-8 of the noise's variance.
        """
        rows = np.arange(len(self.data.centre))
        zero = np.zeros(len(rows))
        found = _in_threads(value_curvature, self.data.centre, zero, rows, *self.data.arrays)
        mean = self.data.centre - found[1] / found[3]  # in the mean it is a parabola
        found = _in_threads(value_curvature, mean, zero, rows, *self.data.arrays)
        return mean, found[0], found[2], np.log(_LEAST_SHARE * self._noise())

    def _noise(self) -> Floats:
        """Harmonic mean of the noise variances."""
        n = self.data.moments[:, 0, 0]
        return self.data.items / np.add.reduceat(n / self.data.noise, self.data.start[:-1])

    def start(self) -> Floats:
        """Log variance by the method of moments, within reason."""
        cells, n = self.data, self.data.items
        first = cells.start[:-1]
        total = np.add.reduceat(cells.moments[:, 2, 0], first)
        noise = np.add.reduceat(cells.moments[:, 0, 0] * cells.noise, first)
        least = 0.01 * self._noise()
        return np.log(np.maximum((total - noise) / n, least))


BINS: Mapping[str, type[CountBins] | type[ValueBins]] = {"Gamma": CountBins, "Normal": ValueBins}
"""By the name of the prior's family."""
