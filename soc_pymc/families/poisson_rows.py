"""Rows of Poisson-Gamma items: their log marginal from two small histograms a row.

With alpha = 1/cv2 and mu the mean of the Gamma prior in a row, the items' log marginal is

    sum_j C_j log1p(j/alpha) + S log(mu) - sum_i (alpha + y_i) log1p(N_i mu/alpha) + constant,

C_j the number of items with y > j and S the sum of y: it needs one histogram over counts and one
over exposures. Wide cells stand as two points that keep the cell's mean and variance, so that the
error is of third order in the cell's width. Value and gradient are exact as alpha -> infinity,
where differences of gammaln lose all digits.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numba
import numpy as np
from numpy.typing import NDArray

from .._lib.arrays import Floats, Ints
from .._lib.errors import FitError
from .rising import (
    columns,
    make_rising,
    rising_sum,
    two_points,
)
from .row_sums import Columns, RowSums, Weak
from .special_functions import log1pmx
from .surrogates import polynomial

_CV2_LEVEL = (float(np.log(0.3)), 2.0)
_NO_SPREAD, _NO_NOISE = 1e15, 1e15  # shapes of a Gamma and means of a Poisson without visible noise
_COUNT_SUMS = ("n", "sum_y", "sum_y2", "sum_y3")
_EXPOSURE_SUMS = ("n", "sum_N", "sum_N2", "sum_N3", "sum_y", "sum_yN", "sum_yN2", "sum_yN3")


@numba.njit(cache=True, nogil=True, error_model="numpy")
def one_row(m, c, b, histograms):  # type: ignore[no-untyped-def]
    """Log marginal of row b and its derivatives in log mean and log cv2."""
    (above, wide_start, wide_excess, wide_weight, start, exposure, items, counts, total,
     constant, spread) = histograms  # fmt: skip
    own = np.exp(c)
    cv2 = own + spread[b] * (1.0 + own)
    mean = m + 0.5 * spread[b]
    alpha = 1.0 / cv2
    # the slope is in log alpha
    value, slope_alpha = rising_sum(cv2, b, above, wide_start, wide_excess, wide_weight)
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
            excess = log1pmx(r)
            log1p_r = excess + r
            gap = excess + r * share
        value -= (alpha * items[i] + counts[i]) * log1p_r
        # the difference first: for large r the shares are 1 and what counts is beyond their digits
        slope_m += (counts[i] - alpha * items[i] * r) / (1.0 + r)
        slope_alpha += counts[i] * share - alpha * items[i] * gap
    chain = own / cv2 * (1.0 + spread[b])
    return value + total[b] * mean + constant[b], slope_m, -chain * slope_alpha


@numba.njit(cache=True, nogil=True, error_model="numpy")
def fill_rows(log_mean, log_cv2, rows, out, *histograms):  # type: ignore[no-untyped-def]
    """Fill `out` as `RowSums.value_and_gradient` returns it; the kernel of all inference."""
    for s in range(log_mean.shape[0]):
        for k in range(rows.shape[1]):
            out[0, s, k], out[1, s, k], out[2, s, k] = one_row(
                log_mean[s, k], log_cv2[s, k], rows[s % rows.shape[0], k], histograms
            )


@numba.njit(cache=True, nogil=True, error_model="numpy")
def near_rows(  # type: ignore[no-untyped-def]
    log_mean, log_cv2, rows, out, centre, reach, coefficients, *histograms
):
    """Fill `out` as `fill_rows` does, by polynomials where they serve."""
    for s in range(log_mean.shape[0]):
        for k in range(rows.shape[1]):
            b, m, c = rows[s % rows.shape[0], k], log_mean[s, k], log_cv2[s, k]
            if abs(m - centre[0, b]) < reach[0, b] and abs(c - centre[1, b]) < reach[1, b]:
                found = polynomial(m, c, b, centre, reach, coefficients)
            else:
                found = one_row(m, c, b, histograms)
            out[0, s, k], out[1, s, k], out[2, s, k] = found


@numba.njit(cache=True, nogil=True, error_model="numpy")
def draw_row(rng, m, c, b, histograms):  # type: ignore[no-untyped-def]
    """Total count of row b: items of one exposure have a negative binomial sum."""
    (_, _, _, _, start, exposure, items, _, _, _, spread) = histograms
    own = np.exp(c)
    cv2 = own + spread[b] * (1.0 + own)
    if not cv2 < np.inf:  # theta is 0 with probability 1
        return 0.0
    mean = np.exp(m + 0.5 * spread[b])
    expected = 0.0
    for i in range(start[b], start[b + 1]):
        shape = items[i] / cv2
        share = rng.gamma(shape, 1.0) / shape if 0.0 < shape < _NO_SPREAD else 1.0
        expected += mean * (exposure[i] * items[i] * share)
    return float(rng.poisson(expected)) if expected < _NO_NOISE else expected


@numba.njit(cache=True, nogil=True, error_model="numpy")
def fill_draws(rng, log_mean, log_cv2, out, *histograms):  # type: ignore[no-untyped-def]
    """Fill `out` (draws, rows) with total counts."""
    for s in range(log_mean.shape[0]):
        for b in range(log_mean.shape[1]):
            out[s, b] = draw_row(rng, log_mean[s, b], log_cv2[s, b], b, histograms)


@dataclass(frozen=True)
class Histograms(RowSums):
    """The two histograms of all rows as weighted points, rows one after the other."""

    above: Floats  # (rows, 32): number of items with a count above j
    wide_start: Ints  # (rows + 1,): offsets of points of counts of at least 32
    wide_excess: Floats  # count - 32
    wide_weight: Floats  # number of items
    start: Ints  # (rows + 1,): offsets of points of exposure
    exposure: Floats
    items: Floats
    counts: Floats  # sum of the items' counts
    total: Floats  # (rows,): sum of counts
    constant: Floats  # (rows,): sum of y log N - log y!, which makes a log probability
    # (rows,): variance of the items' own log means around that of the row's centre. Theta's mean
    # and cv2 over the row are m exp(spread/2) and cv2 + spread (1 + cv2), to second order
    spread: Floats

    fill_rows = staticmethod(fill_rows)
    draw_row = staticmethod(draw_row)
    fill_draws = staticmethod(fill_draws)
    fill_near = staticmethod(near_rows)
    kernel: ClassVar[str] = "poisson"
    near: ClassVar[str] = "poisson_near"
    signature: ClassVar[str] = "(b,c),(s),(w),(w),(s),(e),(e),(e),(b),(b),(b)"
    most = (300.0, 60.0)
    farthest = (3.0, 3.0)
    reach = 1.0  # far above the data the likelihood is flat in log mean
    most_spread = 1.0  # its second-order terms mean nothing beyond
    margins = ("count", "exposure")
    size_cell = "exposure_cell"

    @classmethod
    def smallest(cls) -> "Histograms":
        """One event in an exposure of 1."""
        row, one = np.zeros(1, dtype=np.int64), np.ones(1)
        return make_histograms(1, (row, *[one] * 4), (row, *[one] * 8), np.zeros(1))

    @staticmethod
    def check(part: Columns) -> None:
        """Refuse statistics without any exposure."""
        if not float(part["sum_N"].sum()) > 0:
            raise FitError("every exposure is 0: nothing was observed, so nothing can be fitted")

    @classmethod
    def of(cls, rows: int, cells: Mapping[str, Columns]) -> "Histograms":
        """From tables of cells with a column ``row``: joint cells, or both margins."""
        joint = cells.get("joint")
        if joint is not None:
            counts = exposures = joint
            log_size = np.log(joint["sum_N"] / joint["n"])
            y_log_n = np.bincount(joint["row"], joint["sum_y"] * log_size, rows)
        else:
            counts, exposures, part = cells["count"], cells["exposure"], cells["part"]
            y_log_n = np.bincount(part["row"], part["sum_y_log_N"], rows)
        return make_histograms(
            rows, columns(counts, _COUNT_SUMS), columns(exposures, _EXPOSURE_SUMS), y_log_n
        )

    @staticmethod
    def weak(sums: Mapping[str, float], scale: str, centre: float) -> tuple[Weak, Weak]:
        """Weak priors of both curves on an axis of this scale, at its centre."""
        second = Weak(_CV2_LEVEL, (0.0, 1.0))
        if scale == "log":  # scores that are rates
            return Weak((centre, 5.0), (1.0, 1.0)), second
        return Weak((0.0, 10.0), (0.0, 2.0)), second

    def _sums(self, *columns: Floats) -> list[Floats]:
        row_of = self._row_of
        return [np.bincount(row_of, column, len(self.total)) for column in columns]

    def information(self, first: Floats, second: Floats) -> tuple[Floats, Floats]:
        """Fisher information of log mean, and a lower bound of that of log cv2, by row.

        The bound is the information of the best quadratic function of the count (Godambe 1985),
        from the negative binomial's first four cumulants; it is sharp where expected counts are
        small.
        """
        row_of = self._row_of
        own = np.exp(second)
        all_cv2 = own + self.spread * (1.0 + own)
        chain = own / all_cv2 * (1.0 + self.spread)
        cv2 = all_cv2[row_of]
        expected = self.exposure * np.exp(first + 0.5 * self.spread)[row_of]
        r = expected * cv2
        # r^2 expected / (k4 + 2 expected k2^2 - k3^2 / k2) where the cumulants over the expected
        # count are k2 = 1 + r, k3 = k2 (1 + 2r), k4 = k2 (1 + 6r + 6r^2)
        quadratic = 0.5 * (r / (1.0 + r)) ** 2 / (1.0 + cv2)
        mean, bound = self._sums(self.items * expected / (1.0 + r), self.items * quadratic)
        return mean, chain**2 * bound

    def level(self) -> tuple[float, float]:
        """Log of the overall rate, and the prior's own level."""
        exposure = float(self.exposure @ self.items)
        return float(np.log((self.total.sum() + 0.5) / exposure)), _CV2_LEVEL[0]

    @property
    def can_fit(self) -> NDArray[np.bool_]:
        """Rows with an event: without one the mean is 0 and its logarithm nowhere."""
        return self.total > 0


def make_histograms(
    rows: int,
    count_cells: tuple[NDArray[Any], ...],
    exposure_cells: tuple[NDArray[Any], ...],
    sum_y_log_n: Floats,
) -> Histograms:
    """Histograms as weighted points from columns of cells.

    Cells over counts: row, n, and sums of y, y^2, y^3; cells over exposures: row, n, and sums of N,
    N^2, N^3, y, yN, yN^2, yN^3. The last argument is the sum of y log N of each row.
    """
    counts_above, log_factorials = make_rising(rows, count_cells)
    row_of, n, n1, n2, n3, s, s1, s2, s3 = exposure_cells
    seen = s > 0
    start, (exposure, items, counts) = _merge(
        rows,
        two_points(row_of, n, n1, n2, n3),
        two_points(row_of[seen], s[seen], s1[seen], s2[seen], s3[seen]),
    )
    total = np.bincount(row_of, weights=s, minlength=rows)
    return Histograms(
        *counts_above,
        start,
        exposure,
        items,
        counts,
        total,
        np.asarray(sum_y_log_n, dtype=float) - log_factorials,
        np.zeros(rows),
    )


def _merge(rows: int, *points: tuple[Ints, Floats, Floats]) -> tuple[Ints, list[Floats]]:
    """Offsets of rows (rows + 1,), their distinct exposures, and the weight of each of `points`.

    Points are rows, exposures and weights. Items and counts share exact cells.
    """
    row_of, exposure = (np.concatenate(columns) for columns in list(zip(*points, strict=True))[:2])
    order = np.lexsort((exposure, row_of))
    row_of, exposure = row_of[order], exposure[order]
    new = np.concatenate([[True], (np.diff(row_of) != 0) | (np.diff(exposure) != 0)])
    at = np.empty(len(order), dtype=np.int64)
    at[order] = np.cumsum(new) - 1
    row_of, exposure = row_of[new], exposure[new]
    parts = np.split(at, np.cumsum([len(weight) for *_, weight in points])[:-1])
    weights = [
        np.bincount(part, weight, len(exposure))
        for part, (*_, weight) in zip(parts, points, strict=True)
    ]
    start = np.concatenate([[0], np.cumsum(np.bincount(row_of, minlength=rows))])
    return start.astype(np.int64), [exposure, *weights]
