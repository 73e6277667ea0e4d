"""Arithmetic on cells: columns of sums, grouped, and what they bound and betray.

A cell is a range of exposures, counts or noise sds within a bin; it keeps its number of items and
sums of powers of N or s^2, and y, up to the third. All of it is plain numpy on columns of equal
length.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import polygamma

from .binning import STEPS, count_cell_range, exposure_cell_range

__all__ = [
    "Columns",
    "group",
    "leakage_z",
    "likelihood_error",
    "normal_leakage_z",
    "normal_likelihood_error",
]

Floats = NDArray[np.float64]
Columns = Mapping[str, NDArray[Any]]

_MOST_Z = 3.0  # of one bin
_SHAPES = np.geomspace(1e-3, 1e9, 49)  # of the Gamma prior, from all but 0 to all but Poisson


def group(
    columns: Columns, keys: Sequence[str], rules: Mapping[str, Callable[..., Any]]
) -> dict[str, NDArray[Any]]:
    """Rows of the same keys combined column by column, sorted by the keys."""
    order = np.lexsort([columns[key] for key in reversed(keys)])
    sorted_keys = [columns[key][order] for key in keys]
    new = np.ones(len(order), dtype=bool)
    new[1:] = np.logical_or.reduce([k[1:] != k[:-1] for k in sorted_keys])
    at = np.flatnonzero(new)
    grouped = {key: values[at] for key, values in zip(keys, sorted_keys, strict=True)}
    for name, rule in rules.items():
        values = columns[name][order]
        grouped[name] = rule.reduceat(values, at) if len(at) else values  # type: ignore[attr-defined]
    return grouped


def leakage_z(cells: Columns, bins: int, trials: bool) -> float:
    """Standardised excess of the counts' residuals, from exposure cells; see `Statistics`.

    Parameters
    ----------
    cells
        Columns bin, cell, n, sum_y, sum_N, sum_N2, sum_y2, sum_yN.
    bins
        Number of bins.
    trials
        Whether no count exceeds its exposure.
    """
    sums = ("n", "sum_N", "sum_N2", "sum_y", "sum_yN", "sum_y2")
    octave = {**cells, "cell": cells["cell"] >> STEPS}
    groups = group(octave, ("bin", "cell"), dict.fromkeys(sums, np.add))
    seen = groups["sum_N"] > 0
    b, n, x1, x2, y1, xy, y2 = (groups[name][seen] for name in ("bin", *sums))

    def total(values: Floats) -> Floats:
        return np.asarray(np.bincount(b, weights=values, minlength=bins), dtype=float)

    mu = total(y1) / np.maximum(total(x1), np.finfo(float).tiny)
    own = y1 / x1
    size = x2 / x1  # exposure of a typical item of the group
    # what Poisson noise leaves of the squared residuals about the group's own mean
    noise = y1 - own * size
    if trials:  # mu (1 - mu) of X trials is low by a factor of 1 - 1/X
        noise = noise * (1 - mu[b]) / np.maximum(1 - 1 / total(x1)[b], 1e-9)
    excess = y2 - 2 * own * xy + own * own * x2 - noise
    # weights 1 over the expected count: every item tells as much
    variance = total(2 * (1 - 1 / n) * x2 / size**2)
    told = (mu > 0) & (variance > 0)
    z = total(excess / size)[told] / (mu[told] * np.sqrt(variance[told]))
    return float(np.minimum(z, _MOST_Z).sum() / np.sqrt(len(z))) if len(z) else 0.0


def normal_leakage_z(cells: Columns, bins: int) -> float:
    """Standardised excess of the values' residuals, from noise cells; see `Statistics`.

    Parameters
    ----------
    cells
        Columns bin, cell, n, sum_y, sum_y2, sum_w, sum_w2.
    bins
        Number of bins.
    """
    sums = ("n", "sum_w", "sum_w2", "sum_y", "sum_y2")
    octave = {**cells, "cell": cells["cell"] >> STEPS}
    groups = group(octave, ("bin", "cell"), dict.fromkeys(sums, np.add))
    b, n, w1, w2, y1, y2 = (groups[name] for name in ("bin", *sums))
    noise = w1 / n
    excess = (y2 - y1 * (y1 / n) - (1 - 1 / n) * w1) / noise
    # of squared residuals about the mean of n items, in units of their noise
    variance = 2 * (1 - 1 / n) * w2 / noise**2
    total, spread = (np.bincount(b, weights=v, minlength=bins) for v in (excess, variance))
    told = spread > 0
    z = total[told] / np.sqrt(spread[told])
    return float(np.minimum(z, _MOST_Z).sum() / np.sqrt(len(z))) if len(z) else 0.0


def _quartic(low: Floats, width: Floats, *sums: NDArray[Any]) -> Floats:
    """Most that items of a cell can differ from its two points, in fourth powers, times 1/24.

    With x1, x2 the Gauss points of the first three moments, the error of a function f is at most
    max |f''''|/24 times the sum of (x - x1)^2 (x - x2)^2, and the fourth moment in a range from
    a to b is at most (b - m)(m - a) variance + (a + b - 2m) third moment.
    """
    n, first, second, third = (np.asarray(s, dtype=float) for s in sums)
    weight = np.where(n > 0, n, 1.0)
    mean = first / weight
    variance = second / weight - mean * mean
    variance = np.where((n > 1) & (variance > 1e-13 * mean * mean), variance, 0.0)
    about = np.where(variance > 0, third / weight - mean * (3 * variance + mean * mean), 0.0)
    up, down = np.maximum(low + width - mean, 0.0), np.maximum(mean - low, 0.0)
    square = np.divide(about**2, variance, out=np.zeros_like(mean), where=variance > 0)
    fourth = up * down * variance + (up - down) * about
    return np.where(variance > 0, np.maximum(fourth - square - variance**2, 0.0), 0.0) * n / 24


def likelihood_error(exposures: Columns, counts: Columns, bins: int) -> Floats:
    """Bound by bin, in nats, of the log marginal's error from wide cells.

    It holds at the bin's mean for every dispersion, up to terms free of parameters.

    Parameters
    ----------
    exposures
        Columns bin, cell, n, sum_y and sum_N, sum_N2, sum_N3, sum_yN, sum_yN2, sum_yN3.
    counts
        Columns bin, cell, n, sum_y, sum_y2, sum_y3.
    bins
        Number of bins.
    """
    b = exposures["bin"]
    total = np.bincount(b, weights=exposures["sum_N"], minlength=bins)
    events = np.bincount(b, weights=exposures["sum_y"], minlength=bins)
    mu = np.divide(events, total, out=np.zeros(bins), where=total > 0)
    low, width = exposure_cell_range(exposures["cell"])
    items, weighted = (
        _quartic(low, width, *(exposures[name] for name in names))
        for names in (
            ("n", "sum_N", "sum_N2", "sum_N3"),
            ("sum_y", "sum_yN", "sum_yN2", "sum_yN3"),
        )
    )
    wide = (items > 0) | (weighted > 0)
    b, low, items, weighted = b[wide], low[wide], items[wide], weighted[wide]
    least, steps = count_cell_range(counts["cell"])
    many = _quartic(least, steps, *(counts[name] for name in ("n", "sum_y", "sum_y2", "sum_y3")))
    far = (many > 0) & (steps > 0)
    worst = np.zeros(bins)
    for shape in _SHAPES:
        # fourth derivatives of shape log1p(N mu/shape), log1p(N mu/shape) and log Gamma(shape + y)
        # are largest at a cell's lower end
        ratio = mu[b] / shape
        slope = 6.0 * (ratio / (1.0 + low * ratio)) ** 4
        error = np.bincount(b, weights=slope * (shape * items + weighted), minlength=bins)
        of_count = polygamma(3, shape + least[far]) * many[far]
        worst = np.maximum(
            worst, error + np.bincount(counts["bin"][far], weights=of_count, minlength=bins)
        )
    return worst


def _fourth(low: Floats, width: Floats, mean: Floats, *sums: NDArray[Any]) -> Floats:
    """Most that fourth powers about `mean` of weighted points of a cell can add up to, times 1/24.

    In a range from a to b, sum of (x - m)^2 (x - a) (b - x) >= 0.

    Parameters
    ----------
    low, width
        Of the cells.
    mean
        Their points m.
    sums
        Of the weights, and of them times x, x^2 and x^3.
    """
    none, first, second, third = (np.asarray(s, dtype=float) for s in sums)
    square = second - mean * (2 * first - mean * none)
    cube = third - mean * (3 * second - mean * (3 * first - mean * none))
    up, down = np.maximum(low + width - mean, 0.0), np.maximum(mean - low, 0.0)
    most = np.maximum(up * down * square + (up - down) * cube, 0.0) / 24
    return np.where(square > 1e-13 * mean * mean * none, most, 0.0)


def normal_likelihood_error(cells: Columns, bins: int) -> Floats:
    """Bound by bin, in nats, of the log marginal's error from wide noise cells.

    It holds at the bin's mean for every variance of theta: the log marginal of an item is
    -(log(v + w) + r^2/(v + w))/2 with w the squared noise sd and r the residual, which is expanded
    about the cell's mean of w to the third order, and the fourth derivatives in w are largest at
    v = 0 and the cell's lower end.

    Parameters
    ----------
    cells
        Columns bin, cell, n, and the sums of noise cells, from sum_y to sum_y2w3.
    bins
        Number of bins.
    """
    b = cells["bin"]
    items, total = (np.bincount(b, weights=cells[c], minlength=bins) for c in ("n", "sum_y"))
    mean = np.divide(total, items, out=np.zeros(bins), where=items > 0)[b]
    low, width = exposure_cell_range(cells["cell"])
    low, width = low**2, width * (2 * low + width)
    middle = cells["sum_w"] / np.maximum(cells["n"], 1)
    of_log = _fourth(low, width, middle, *(cells[k] for k in ("n", "sum_w", "sum_w2", "sum_w3")))
    residuals = (
        cells[f"sum_y2{w}"] - mean * (2 * cells[f"sum_y{w}"] - mean * cells[one])
        for w, one in (("", "n"), ("w", "sum_w"), ("w2", "sum_w2"), ("w3", "sum_w3"))
    )
    of_square = _fourth(low, width, middle, *residuals)
    error = 3 * of_log / low**4 + 12 * of_square / low**5
    return np.asarray(np.bincount(b, weights=error, minlength=bins), dtype=float)
