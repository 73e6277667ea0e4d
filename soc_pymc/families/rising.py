"""Sums over items of log [Gamma(alpha + y) / (Gamma(alpha) alpha^y)], y a whole number.

This is the sum of log1p(j / alpha) over j < y, exact as alpha -> infinity, where differences of
gammaln lose all digits. Below 32 it needs the number of items with y > j for each j; from there on
Stirling's series, whose differences lose nothing either.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from .._lib.arrays import Floats, Ints
from .row_sums import Columns, by_row
from .scales import EXACT_COUNTS


def _stirling(x: Any) -> Any:
    """Log Gamma(x) - (x - 1/2) log x + x - log(2 pi)/2, for x of 32 and more: to 1e-16."""
    square = 1.0 / (x * x)
    return (1.0 / 12.0 - square * (1.0 / 360.0 - square * (1.0 / 1260.0 - square / 1680.0))) / x


def rising(xp: Any, cv2: Any, step: Any, over: Any, excess: Any, weight: Any) -> Any:
    """The sums of rows (..., k) for cv2 = 1/alpha (..., k), from the columns of `Rising`."""
    cv2 = cv2[..., None]
    exact = over * xp.log1p(step * cv2)
    base = 1.0 / cv2 + EXACT_COUNTS
    log1p_x = xp.log1p(excess / base)
    wide = excess * xp.log1p(EXACT_COUNTS * cv2) + base * (log1p_x - excess / base)
    wide = wide + (excess - 0.5) * log1p_x + _stirling(base + excess) - _stirling(base)
    return exact.sum(axis=-1) + (weight * wide).sum(axis=-1)


def two_points(
    row_of: Ints, weight: Floats, sums: Floats, squares: Floats, cubes: Floats
) -> tuple[Ints, Floats, Floats]:
    """Weighted points (bin, value, weight): one for a cell of a single value, else two.

    The two are the Gauss rule of the cell's first three moments.
    """
    mean = sums / weight
    variance = squares / weight - mean * mean
    # sums of squares carry rounding of this relative size: below it the cell is a single value
    wide = variance > 1e-13 * mean * mean
    mean_w, sd = mean[wide], np.sqrt(variance[wide])
    about = cubes[wide] / weight[wide] - mean_w * (3.0 * variance[wide] + mean_w * mean_w)
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
        np.concatenate([row_of, row_of[wide]]),
        np.concatenate([value, high]),
        np.concatenate([share, weight[wide] * upper]),
    )


class Rising(NamedTuple):
    """A histogram of whole numbers of every row, rows one after the other."""

    step_start: Ints  # (rows + 1,): offsets of numbers below 32
    step: Floats  # j = 0, 1, ... as far as any item of the row has more
    over: Floats  # number of items with more than j
    start: Ints  # (rows + 1,): offsets of points of 32 and more
    excess: Floats  # of these, minus 32
    weight: Floats  # number of items


def make_rising(rows: int, cells: Sequence[NDArray[Any]]) -> tuple[Rising, Floats]:
    """Build from cells (row, n, sums of y, y^2, y^3); also returns each row's sum of log y!."""
    point_row, y, weight = two_points(*cells)
    nearest = np.rint(y)  # weighted sums of one count are its multiples except for rounding
    y = np.where(np.abs(y - nearest) <= 1e-12 * nearest, nearest, y)
    above = np.zeros((rows, EXACT_COUNTS))
    for j in range(EXACT_COUNTS):
        over = y > j
        above[:, j] = np.bincount(point_row[over], weights=weight[over], minlength=rows)
    row, step = np.nonzero(above)
    step_start, (steps, number) = by_row(rows, row, step.astype(float), above[row, step])
    far = y > EXACT_COUNTS - 1  # the lower of two points may fall just below its cell
    start, (excess, far_weight) = by_row(rows, point_row[far], y[far] - EXACT_COUNTS, weight[far])
    log_factorials = np.bincount(point_row, weights=weight * gammaln(y + 1.0), minlength=rows)
    return Rising(step_start, steps, number, start, excess, far_weight), log_factorials


def columns(table: Columns, names: Sequence[str]) -> tuple[NDArray[Any], ...]:
    """Row of each cell, and its sums as real numbers."""
    return (table["row"], *(table[name].astype(float) for name in names))
