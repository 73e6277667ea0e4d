"""Sums of log(1 + j/alpha) over j below whole numbers, from a histogram of these numbers.

The sum over j < y is log [Gamma(alpha + y) / (Gamma(alpha) alpha^y)], the part of a marginal that
a Gamma (or Beta) prior of shape alpha leaves of y events. With C_j the number of items with y > j,
the items' sum is that of C_j log1p(j/alpha). Small numbers have a cell each; wide cells stand as
two points that keep the cell's first three moments. Values and slopes are exact as alpha ->
infinity, where differences of gammaln lose all digits.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from .._lib.arrays import Floats, Ints
from .cells import EXACT_COUNTS
from .row_sums import Columns, by_row
from .special_functions import log1pmx, stirling


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _wide_count(alpha, d):  # type: ignore[no-untyped-def]
    """Log [Gamma(A + d) / (Gamma(A) alpha^d)], A = alpha + 32; slope in log alpha."""
    a = alpha + EXACT_COUNTS
    x = d / a
    log1p_x = np.log1p(x)
    excess = log1pmx(x)
    top, top_slope = stirling(a + d)
    bottom, bottom_slope = stirling(a)
    value = d * np.log1p(EXACT_COUNTS / alpha) + a * excess + (d - 0.5) * log1p_x + top - bottom
    # alpha [digamma(A + d) - digamma(A) - d/alpha], its three parts free of cancellation
    slope = (
        alpha * excess - EXACT_COUNTS * x + alpha * (0.5 * x / (a + d) + top_slope - bottom_slope)
    )
    return value, slope


@numba.njit(cache=True, nogil=True, error_model="numpy")
def rising_sum(cv2, b, above, start, excess, weight):  # type: ignore[no-untyped-def]
    """Sum of row b, and its slope in log alpha, for alpha = 1/cv2."""
    alpha = 1.0 / cv2
    value, slope = 0.0, 0.0
    for j in range(1, EXACT_COUNTS):
        if above[b, j] == 0.0:
            break
        value += above[b, j] * np.log1p(j * cv2)
        slope -= above[b, j] * j / (alpha + j)
    for i in range(start[b], start[b + 1]):
        one, its_slope = _wide_count(alpha, excess[i])
        value += weight[i] * one
        slope += weight[i] * its_slope
    return value, slope


def two_points(
    row_of: Ints, weight: Floats, first: Floats, second: Floats, third: Floats
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
        np.concatenate([row_of, row_of[wide]]),
        np.concatenate([value, high]),
        np.concatenate([share, weight[wide] * upper]),
    )


class Rising(NamedTuple):
    """A histogram of whole numbers of every row, rows one after the other."""

    above: Floats  # (rows, 32): number of items with more than j
    start: Ints  # (rows + 1,): offsets of points of 32 and more
    excess: Floats  # of these, minus 32
    weight: Floats  # number of items


def make_rising(rows: int, cells: Sequence[NDArray[Any]]) -> tuple[Rising, Floats]:
    """From cells (row, n, and sums of y, y^2, y^3); also the sum of log y! of each row, (rows,)."""
    point_row, y, weight = two_points(*cells)
    above = np.zeros((rows, EXACT_COUNTS))
    for j in range(EXACT_COUNTS):
        over = y > j
        above[:, j] = np.bincount(point_row[over], weights=weight[over], minlength=rows)
    far = y > EXACT_COUNTS - 1  # the lower of two points may fall just below its cell
    start, (excess, many) = by_row(rows, point_row[far], y[far] - EXACT_COUNTS, weight[far])
    log_factorials = np.bincount(point_row, weights=weight * gammaln(y + 1.0), minlength=rows)
    return Rising(above, start, excess, many), log_factorials


def columns(table: Columns, names: Sequence[str]) -> tuple[NDArray[Any], ...]:
    """Row of each cell, and its sums as real numbers."""
    return (table["row"], *(table[name].astype(float) for name in names))
