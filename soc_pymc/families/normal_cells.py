"""Log marginal of rows of Normal items from cells over their noise.

With theta ~ Normal(m, v) and y ~ Normal(theta, w), w the known variance of the noise, y is
Normal(m, v + w): a row's log marginal needs, for every cell of nearly equal w, the sums of 1, y and
y^2. Within a cell w varies by a few percent; the cell's moments up to the third of w - mean(w),
plain and with y and y^2, leave an error of fourth order.
"""

from dataclasses import dataclass, fields

import numba
import numpy as np
from numpy.typing import NDArray

__all__ = [
    "NormalCells",
    "information",
    "make_normal_cells",
    "normal_rows",
    "one_row",
    "value_and_gradient",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class NormalCells:
    """Cells over the noise of all rows, rows one after the other.

    Attributes
    ----------
    start
        (rows + 1,) offsets of the rows' cells.
    noise
        Mean noise variance of each cell.
    moments
        (cells, 3, 4): sums over the items of (w - noise)^k times 1, r and r^2, with r the value
        less the row's centre, for k = 0 to 3.
    centre
        (rows,): mean value of the row's items, about which squares keep their digits.
    spread
        (rows,): variance of the items' own means around that of the row's position.
    """

    start: Ints
    noise: Floats
    moments: Floats
    centre: Floats
    spread: Floats

    @property
    def arrays(self) -> tuple[NDArray[np.generic], ...]:
        """All arrays in the order of `value_and_gradient`."""
        return tuple(getattr(self, f.name) for f in fields(self))

    @property
    def total(self) -> Floats:
        """(rows,): mean value of the row's items."""
        return self.centre

    @property
    def items(self) -> Floats:
        """(rows,): number of items."""
        return np.add.reduceat(self.moments[:, 0, 0], self.start[:-1])


def make_normal_cells(rows: int, row_of: Ints, sums: Floats) -> NormalCells:
    """Cells from their sums.

    Parameters
    ----------
    rows
        Number of rows, each with a cell or more.
    row_of
        Row of each cell.
    sums
        (cells, 3, 4): sums of w^k times 1, y and y^2, k = 0 to 3.
    """
    order = np.argsort(row_of, kind="stable")
    row_of, sums = row_of[order], sums[order]
    start = np.concatenate([[0], np.cumsum(np.bincount(row_of, minlength=rows))]).astype(np.int64)
    n = np.add.reduceat(sums[:, 0, 0], start[:-1])
    centre = np.add.reduceat(sums[:, 1, 0], start[:-1]) / n
    noise = sums[:, 0, 1] / sums[:, 0, 0]
    away = _shifted(sums, noise)
    # equal noise leaves rounding alone, which is no moment
    same = away[:, 0, 2] <= 1e-13 * noise**2 * sums[:, 0, 0]
    away[same, :, 1:] = 0.0
    a = centre[row_of][:, None]
    away[:, 2] += a * (a * away[:, 0] - 2.0 * away[:, 1])
    away[:, 1] -= a * away[:, 0]
    return NormalCells(start, noise, np.ascontiguousarray(away), centre, np.zeros(rows))


def _shifted(sums: Floats, noise: Floats) -> Floats:
    """Sums of powers of w - noise from sums of powers of w."""
    s0, s1, s2, s3 = (sums[:, :, k] for k in range(4))
    a = noise[:, None]
    shifted = [
        s0,
        s1 - a * s0,
        s2 - a * (2 * s1 - a * s0),
        s3 - a * (3 * s2 - a * (3 * s1 - a * s0)),
    ]
    return np.stack(shifted, axis=2)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def one_row(m, c, b, start, noise, moments, centre, spread):  # type: ignore[no-untyped-def]
    """Log marginal of row b and its derivatives in the mean and the log variance."""
    variance = np.exp(c)
    x = m - centre[b]
    value, by_m, by_v = 0.0, 0.0, 0.0
    for i in range(start[b], start[b + 1]):
        u = 1.0 / (variance + spread[b] + noise[i])
        n = moments[i, 0]
        value += n[0] * np.log(2.0 * np.pi / u) - u * u * (0.5 * n[2] - u * n[3] / 3.0)
        by_v += u * (n[0] + u * u * (n[2] - u * n[3]))
        power = u
        for k in range(4):
            square = moments[i, 2, k] - x * (2.0 * moments[i, 1, k] - x * n[k])
            value += power * square
            by_m += power * 2.0 * (x * n[k] - moments[i, 1, k])
            power *= -u
            by_v += (k + 1) * power * square
    return -0.5 * value, -0.5 * by_m, -0.5 * variance * by_v


@numba.njit(cache=True, nogil=True, error_model="numpy")
def normal_rows(  # type: ignore[no-untyped-def]
    mean, log_variance, rows, out, start, noise, moments, centre, spread
):
    """Fill `out` as `value_and_gradient` returns it; the kernel of all inference."""
    for s in range(mean.shape[0]):
        for k in range(rows.shape[1]):
            out[0, s, k], out[1, s, k], out[2, s, k] = one_row(
                mean[s, k],
                log_variance[s, k],
                rows[s % rows.shape[0], k],
                start,
                noise,
                moments,
                centre,
                spread,
            )


def value_and_gradient(
    mean: Floats, log_variance: Floats, rows: Ints, *arrays: NDArray[np.generic]
) -> Floats:
    """Log marginal of rows and its derivatives in the mean and the log variance of theta.

    Parameters
    ----------
    mean, log_variance
        Shape (draws, k).
    rows
        Shape (k,), the chosen rows, or (m, k): draw s uses row s modulo m.
    *arrays
        `NormalCells.arrays`.

    Returns
    -------
    numpy.ndarray
        Shape (3, draws, k): value, derivative in the mean, derivative in the log variance.
    """
    which = np.atleast_2d(rows).astype(np.int64, copy=False)  # one type, one compilation
    out = np.empty((3, *mean.shape))
    normal_rows(np.ascontiguousarray(mean), np.ascontiguousarray(log_variance), which, out, *arrays)
    return out


def information(mean: Floats, log_variance: Floats, cells: NormalCells) -> tuple[Floats, Floats]:
    """Fisher information of mean and of log variance by row; the two are orthogonal."""
    row_of = np.repeat(np.arange(len(cells.centre)), np.diff(cells.start))
    variance = np.exp(log_variance)[row_of]
    whole = variance + cells.spread[row_of] + cells.noise
    n = cells.moments[:, 0, 0]
    of_mean, of_variance = n / whole, 0.5 * n * (variance / whole) ** 2
    first, second = (
        np.bincount(row_of, weights=x, minlength=len(cells.centre)) for x in (of_mean, of_variance)
    )
    return first, second
