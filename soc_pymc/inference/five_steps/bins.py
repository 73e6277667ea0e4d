"""Step 2: a conjugate prior for each bin, by maximum marginal likelihood."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import elementwise

from ..._lib.arrays import Floats, Ints
from ..._model.likelihood import exact_slopes
from ...families.family import Family
from ...families.row_sums import RowSums

# second curves that are tried, relative to the overall level; at the first the variance is 0
_GRID = np.array([-50.0, -24.0, -18.0, -12.0, -8.0, -5.0, -3.0, -1.5, 0.0, 2.0, 5.0, 10.0])
_LOG_SMALL = float(np.log(1e-8))  # second curve that stands for variance 0, relative to the level
_LEAST_SHARE = 1e-4  # share of the noise that a variance standing for 0 may reach
_STEP, _CLOSE = 1e-3, 1e-9  # difference for slopes, and last step, in units of the first curve
_FIRST_STEPS, _STEPS, _LAST_STEPS = 60, 2, 6  # Newton steps: from the level, near, at the end
_ROUNDING = 1e-12


class Estimates(NamedTuple):
    """Estimates of bins, each array (bins,); NaN in bins that were not fitted."""

    location: Floats  # log or logit of the mean, or mean
    dispersion: Floats  # log cv2, or log variance; a small number stands for variance 0
    log_likelihood: Floats
    at_zero: NDArray[np.bool_]
    fitted: NDArray[np.bool_]
    failed: NDArray[np.bool_]  # bins whose search did not converge


def maximise(family: Family, data: RowSums, items: Floats) -> Estimates:
    """Maximum marginal likelihood of every row that has one."""
    rows, (level, centre) = np.flatnonzero(data.can_fit), data.level()
    unit, all_rows = float(family.unit(np.array(centre))), np.arange(len(rows))
    mean, grid = np.full(len(rows), level), centre + _GRID
    means, values, slopes = np.empty((3, len(grid), len(rows)))
    for k, dispersion in enumerate(grid):
        steps = _STEPS if k else _FIRST_STEPS
        curve = np.full(len(rows), dispersion)
        mean, values[k], slopes[k] = _profile(data, rows, mean, curve, unit, steps)
        means[k] = mean
    best = values.argmax(axis=0)
    mean, dispersion = means[best, all_rows], grid[best]
    low = best - (slopes[best, all_rows] <= 0)  # otherwise the best one is at an end
    inside = np.flatnonzero((low >= 0) & (low < len(grid) - 1))

    def slope(dispersion: Floats, row: Ints) -> Floats:
        mean[row], _, slopes = _profile(data, rows[row], mean[row], dispersion, unit, _STEPS)
        return slopes

    ends = grid[low[inside]], grid[low[inside] + 1]
    root = elementwise.find_root(slope, ends, args=(inside,))
    dispersion[inside] = root.x
    mean, value, _ = _profile(data, rows, mean, dispersion, unit, _LAST_STEPS)
    # what stands for variance 0 is negligible against the level and the noise: information
    # is 0.5 items share^2, where the share of theta in the variance of outcomes is small
    location, floor = np.full(len(items), level), np.full(len(items), centre + _LOG_SMALL)
    location[rows] = means[0]
    share = np.sqrt(2.0 * data.information(location, floor)[1] / items)
    floor = (floor - np.log(np.maximum(share / _LEAST_SHARE, 1.0)))[rows]
    positive = (slopes[0] > 0) | (value - values[0] > _ROUNDING * np.abs(value))
    positive &= dispersion > floor
    full, (zero, fitted, failed) = np.full((3, len(items)), np.nan), np.zeros((3, len(items)), bool)
    full[:, rows] = np.where(positive, (mean, dispersion, value), (means[0], floor, values[0]))
    failed[rows[inside]] = ~root.success & positive[inside]
    fitted = np.isfinite(full).all(axis=0) & ~failed
    zero[rows], failed[rows] = ~positive, ~fitted[rows]
    location, dispersion, value = np.where(fitted, full, np.nan)
    return Estimates(location, dispersion, value, zero & fitted, fitted, failed)


def _profile(
    data: RowSums, rows: Ints, location: Floats, dispersion: Floats, unit: float, steps: int
) -> tuple[Floats, Floats, Floats]:
    """Best first curve of rows at a second one, log marginal there, and its slope in the second."""
    step = _STEP * unit
    for _ in range(steps):
        pair = np.stack([location, location + step]), np.stack([dispersion, dispersion])
        slope, ahead = exact_slopes(data, *pair, rows)[1]
        with np.errstate(divide="ignore", invalid="ignore"):  # NaN on a flat likelihood: no step
            move = np.nan_to_num(step * slope / (slope - ahead))
        move = np.clip(move, -data.reach, data.reach)
        location = location + move
        if (np.abs(move) < _CLOSE * unit).all():
            break
    value, _, slope = exact_slopes(data, location[None], dispersion[None], rows)[:, 0]
    return location, value, slope
