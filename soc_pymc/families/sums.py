"""What sums over cells say of a kind of items: errors of wide cells, variation beyond the noise.

A cell is a range of outcomes or sizes within a bin. `Powers` are its sums over items of y^a x^b by
(a, b), with y the outcome and x the exposure or the squared noise sd; (0, 0) is their number.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import polygamma

__all__ = ["Cells", "Powers", "count_error", "count_residuals", "value_error", "value_residuals"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Powers = Mapping[tuple[int, int], NDArray[Any]]

_SHAPES = np.geomspace(1e-3, 1e9, 49)  # of the Gamma prior, from all but 0 to all but Poisson


class Cells(NamedTuple):
    """Cells of one table, with the lower ends and widths of their ranges."""

    bin: Ints
    low: Floats
    width: Floats
    sums: Powers


def _by_bin(cells: Cells, values: Any, bins: int) -> Floats:
    return np.asarray(np.bincount(cells.bin, weights=values, minlength=bins), dtype=float)


# --- variation beyond the noise ------------------------------------------------------------------


def count_residuals(cells: Cells, bins: int, trials: bool) -> tuple[Floats, Floats]:
    """Excess of squared residuals of counts over their noise, and its variance, by bin.

    Each cell has a mean of its own. The noise is Poisson's or, where no count exceeds its exposure
    (`trials`), that of so many successes in N trials.
    """
    seen = cells.sums[0, 1] > 0
    cells = cells._replace(bin=cells.bin[seen])
    n, x1, x2, y1, xy, y2 = (
        cells.sums[power][seen] for power in ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (2, 0))
    )
    exposure = _by_bin(cells, x1, bins)
    mu = _by_bin(cells, y1, bins) / np.maximum(exposure, np.finfo(float).tiny)
    own = y1 / x1
    size = x2 / x1  # exposure of a typical item of the cell
    # what Poisson noise leaves of the squared residuals about the cell's own mean
    noise = y1 - own * size
    if trials:  # mu (1 - mu) of X trials is low by a factor of 1 - 1/X
        noise = noise * (1 - mu[cells.bin]) / np.maximum(1 - 1 / exposure[cells.bin], 1e-9)
    excess = y2 - 2 * own * xy + own * own * x2 - noise
    # weights 1 over the expected count: every item tells as much
    told = mu > 0
    variance = np.where(told, _by_bin(cells, 2 * (1 - 1 / n) * x2 / size**2, bins), 0.0)
    return _by_bin(cells, excess / size, bins) / np.where(told, mu, 1.0), variance


def value_residuals(cells: Cells, bins: int, _trials: bool) -> tuple[Floats, Floats]:
    """Excess of squared residuals of values, in units of their noise, and its variance, by bin."""
    n, w1, w2, y1, y2 = (
        cells.sums[power] for power in ((0, 0), (0, 1), (0, 2), (1, 0), (2, 0))
    )  # fmt: skip
    noise = w1 / n
    excess = (y2 - y1 * (y1 / n) - (1 - 1 / n) * w1) / noise
    # of squared residuals about the mean of n items, in units of their noise
    variance = 2 * (1 - 1 / n) * w2 / noise**2
    return _by_bin(cells, excess, bins), _by_bin(cells, variance, bins)


# --- errors of wide cells ------------------------------------------------------------------------


def count_error(tables: Mapping[str, Cells], bins: int) -> Floats:
    """Bound by bin, in nats, of the error that wide cells cause in the log marginal of counts.

    It holds at the bin's mean for every dispersion, up to terms free of parameters.
    """
    sizes, counts = tables["exposure"], tables["count"]
    total, events = (_by_bin(sizes, sizes.sums[power], bins) for power in ((0, 1), (1, 0)))
    mu = np.divide(events, total, out=np.zeros(bins), where=total > 0)
    items, weighted = (
        _quartic(sizes, *(sizes.sums[power, size] for size in range(4))) for power in (0, 1)
    )
    wide = (items > 0) | (weighted > 0)
    b, low, items, weighted = sizes.bin[wide], sizes.low[wide], items[wide], weighted[wide]
    many = _quartic(counts, *(counts.sums[power, 0] for power in range(4)))
    far = (many > 0) & (counts.width > 0)
    worst = np.zeros(bins)
    for shape in _SHAPES:
        # fourth derivatives of shape log1p(N mu/shape), log1p(N mu/shape) and log Gamma(shape + y)
        # are largest at a cell's lower end
        ratio = mu[b] / shape
        slope = 6.0 * (ratio / (1.0 + low * ratio)) ** 4
        error = np.bincount(b, weights=slope * (shape * items + weighted), minlength=bins)
        of_count = polygamma(3, shape + counts.low[far]) * many[far]
        worst = np.maximum(
            worst, error + np.bincount(counts.bin[far], weights=of_count, minlength=bins)
        )
    return worst


def _quartic(cells: Cells, *sums: NDArray[Any]) -> Floats:
    """Most that items of a cell can differ from its two points, in fourth powers, times 1/24.

    `sums` are those of powers 0 to 3. With x1, x2 the Gauss points of the first three moments, the
    error of a function f is at most max |f''''|/24 times the sum of (x - x1)^2 (x - x2)^2, and the
    fourth moment in a range from a to b is at most (b - m)(m - a) variance + (a + b - 2m) third
    moment.
    """
    n, first, second, third = (np.asarray(s, dtype=float) for s in sums)
    weight = np.where(n > 0, n, 1.0)
    mean = first / weight
    variance = second / weight - mean * mean
    variance = np.where((n > 1) & (variance > 1e-13 * mean * mean), variance, 0.0)
    about = np.where(variance > 0, third / weight - mean * (3 * variance + mean * mean), 0.0)
    up, down = np.maximum(cells.low + cells.width - mean, 0.0), np.maximum(mean - cells.low, 0.0)
    square = np.divide(about**2, variance, out=np.zeros_like(mean), where=variance > 0)
    fourth = up * down * variance + (up - down) * about
    return np.where(variance > 0, np.maximum(fourth - square - variance**2, 0.0), 0.0) * n / 24


def value_error(tables: Mapping[str, Cells], bins: int) -> Floats:
    """Bound by bin, in nats, of the error that wide cells cause in the log marginal of values.

    It holds at the bin's mean for every variance of theta: the log marginal of an item is
    -(log(v + w) + r^2/(v + w))/2 with w the squared noise sd and r the residual, which is expanded
    about the cell's mean of w to the third order, and the fourth derivatives in w are largest at
    v = 0 and the cell's lower end.
    """
    cells = tables["noise"]
    sums = cells.sums
    items, total = (_by_bin(cells, sums[power], bins) for power in ((0, 0), (1, 0)))
    mean = np.divide(total, items, out=np.zeros(bins), where=items > 0)[cells.bin]
    low, width = cells.low, cells.width
    of_w = cells._replace(low=low**2, width=width * (2 * low + width))  # ranges of squared sds
    middle = sums[0, 1] / np.maximum(sums[0, 0], 1)
    of_log = _fourth(of_w, middle, *(sums[0, size] for size in range(4)))
    residuals = (
        sums[2, size] - mean * (2 * sums[1, size] - mean * sums[0, size]) for size in range(4)
    )
    of_square = _fourth(of_w, middle, *residuals)
    return _by_bin(cells, 3 * of_log / of_w.low**4 + 12 * of_square / of_w.low**5, bins)


def _fourth(cells: Cells, mean: Floats, *sums: NDArray[Any]) -> Floats:
    """Most that fourth powers about `mean` of weighted points of a cell can add up to, times 1/24.

    In a range from a to b, the sum of (x - m)^2 (x - a) (b - x) is not negative. `sums` are those
    of the weights, and of them times x, x^2 and x^3.
    """
    none, first, second, third = (np.asarray(s, dtype=float) for s in sums)
    square = second - mean * (2 * first - mean * none)
    cube = third - mean * (3 * second - mean * (3 * first - mean * none))
    up, down = np.maximum(cells.low + cells.width - mean, 0.0), np.maximum(mean - cells.low, 0.0)
    most = np.maximum(up * down * square + (up - down) * cube, 0.0) / 24
    return np.where(square > 1e-13 * mean * mean * none, most, 0.0)
