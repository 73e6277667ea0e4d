"""Arithmetic on cells: columns of sums, grouped, and what they bound and betray.

A cell is a range of exposures and counts within a bin; it keeps its number of items and the sums of
N, N^2, y, y^2, yN and yN^2. All of it is plain numpy on columns of equal length.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .binning import STEPS, count_cell_range, exposure_cell_range

__all__ = ["EXPOSURE_SUMS", "Columns", "count_error", "exposure_error", "group", "leakage_z"]

Floats = NDArray[np.float64]
Columns = Mapping[str, NDArray[Any]]

EXPOSURE_SUMS = (
    "cell_n",
    "cell_sum_N",
    "cell_sum_N2",
    "cell_sum_y",
    "cell_sum_yN",
    "cell_sum_yN2",
)

_MOST_Z = 3.0  # of one bin


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
        grouped[name] = rule.reduceat(columns[name][order], at)  # type: ignore[attr-defined]
    return grouped


def leakage_z(cells: Columns, bins: int) -> float:
    """Standardised excess of the counts' residuals, from joint cells; see `leakage_z`."""
    trials = bool((cells["cell_sum_y"] <= cells["cell_sum_N"]).all())
    sums = (*EXPOSURE_SUMS, "cell_sum_y2")
    octave = {**cells, "cell_exposure": cells["cell_exposure"] >> STEPS}
    groups = group(octave, ("cell_bin", "cell_exposure"), dict.fromkeys(sums, np.add))
    seen = groups["cell_sum_N"] > 0
    b, n, x1, x2, y1, xy, _, y2 = (groups[name][seen] for name in ("cell_bin", *sums))

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


def _spread(n: NDArray[Any], first: Floats, second: Floats) -> tuple[Floats, Floats, Floats]:
    """Mean, sum of squares about it and standard deviation of cells; rounding counts as 0."""
    weight = np.where(n > 0, n, 1)
    mean = first / weight
    squares = second - first * mean
    squares = np.where((n > 1) & (squares > 1e-13 * second), squares, 0.0)
    return mean, squares, np.sqrt(squares / weight)


def exposure_error(columns: Columns, mu: Floats) -> Floats:
    """Error bound by bin from wide exposure cells."""
    cells = group(columns, ("cell_bin", "cell_exposure"), dict.fromkeys(EXPOSURE_SUMS, np.add))
    bin_of, n, y = cells["cell_bin"], cells["cell_n"], cells["cell_sum_y"]
    low, width = exposure_cell_range(cells["cell_exposure"])
    mean, items, sd = _spread(n, cells["cell_sum_N"], cells["cell_sum_N2"])
    mean_y, counts, sd_y = _spread(y, cells["cell_sum_yN"], cells["cell_sum_yN2"])
    error = np.zeros(len(bin_of))
    wide = items > 0
    # alpha log1p(N mu/alpha) has third derivative at most 8/27 mu/N^2, for every alpha
    least = np.minimum(low, mean - sd)[wide]
    error[wide] = 8 / 27 * mu[bin_of[wide]] / least**2 * ((width + sd) * items)[wide]
    wide = counts > 0
    least = np.minimum(low, mean_y - sd_y)[wide]
    error[wide] += 2 / least**3 * ((width + sd_y) * counts)[wide]
    return np.bincount(bin_of, weights=error / 6, minlength=len(mu))


def count_error(columns: Columns, bins: int) -> Floats:
    """Error bound by bin from wide count cells."""
    sums = ("cell_n", "cell_sum_y", "cell_sum_y2")
    cells = group(columns, ("cell_bin", "cell_count"), dict.fromkeys(sums, np.add))
    low, width = count_cell_range(cells["cell_count"])
    mean, squares, sd = _spread(*(cells[name] for name in sums))
    wide = (squares > 0) & (width > 0)
    least = np.minimum(low, mean - sd)[wide]
    # log Gamma(alpha + y) has third derivative at most 1/y^2 + 1/y^3, for every alpha
    slope = 1 / least**2 + 1 / least**3
    error = slope * ((width + sd) * squares)[wide] / 6
    return np.bincount(cells["cell_bin"][wide], weights=error, minlength=bins)
