"""Polynomials that stand for rows' log marginals in the region that a fit's draws visit."""

from dataclasses import dataclass

import numba
import numpy as np

from .._lib.arrays import Floats
from .row_sums import RowSums

DEGREE = 5  # total, in the two curves
_NODES = 5  # a side: 25 nodes with value and gradient for 21 coefficients
_TESTS = 12
_ERROR = 1e-3  # nats, allowed for all rows together as independent errors


@dataclass(frozen=True)
class Surrogates:
    """One polynomial for each row, in units of reach from the centre of its region."""

    centre: Floats  # (2, rows): middle of the regions in both parameters
    reach: Floats  # (2, rows): half-widths; 0 means that the row has no polynomial
    coefficients: Floats  # (rows, i, j): of u^i v^j

    @property
    def arrays(self) -> tuple[Floats, ...]:
        """All arrays, which in a kernel stand before those of the rows."""
        return self.centre, self.reach, self.coefficients


def _powers(u: Floats, order: int) -> tuple[Floats, Floats]:
    """Powers 0 to `order` of u and their derivatives, shape (len(u), order + 1)."""
    k = np.arange(order + 1)
    return u[:, None] ** k, k * u[:, None] ** np.maximum(k - 1, 0)


def _design(u: Floats, v: Floats) -> Floats:
    """Rows of value, u-derivative and v-derivative at the points, for all terms."""
    i, j = (index.ravel() for index in np.indices((DEGREE + 1, DEGREE + 1)))
    i, j = i[i + j <= DEGREE], j[i + j <= DEGREE]
    (pu, du), (pv, dv) = _powers(u, DEGREE), _powers(v, DEGREE)
    return np.concatenate([pu[:, i] * pv[:, j], du[:, i] * pv[:, j], pu[:, i] * dv[:, j]])


def make_surrogates(
    data: RowSums, low: tuple[Floats, Floats], high: tuple[Floats, Floats]
) -> Surrogates:
    """Polynomials for all rows over boxes of both parameters from `low` to `high`."""
    centre = 0.5 * (np.array(low) + np.array(high))
    reach = 0.5 * (np.array(high) - np.array(low))
    rows = np.arange(reach.shape[1])

    def exact(u: Floats, v: Floats) -> Floats:
        m = centre[0] + u[:, None] * reach[0]
        c = centre[1] + v[:, None] * reach[1]
        return data.value_and_gradient(m, c, rows)

    node = np.cos(np.pi * (np.arange(_NODES) + 0.5) / _NODES)
    u, v = (x.ravel() for x in np.meshgrid(node, node))
    value, by_m, by_c = exact(u, v)
    slopes = np.concatenate([value, by_m * reach[0], by_c * reach[1]])
    terms = np.linalg.pinv(_design(u, v)) @ slopes
    i, j = (index.ravel() for index in np.indices((DEGREE + 1, DEGREE + 1)))
    kept = i + j <= DEGREE
    coefficients = np.zeros((len(rows), DEGREE + 1, DEGREE + 1))
    coefficients[:, i[kept], j[kept]] = terms.T
    rng = np.random.default_rng(0)
    u, v = rng.uniform(-1.0, 1.0, (2, _TESTS))
    error = np.abs(_design(u, v)[:_TESTS] @ terms - exact(u, v)[0]).max(axis=0)
    good = error <= _ERROR / np.sqrt(len(rows))  # false where it is not a number
    return Surrogates(centre, np.where(good, reach, 0.0), coefficients)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def polynomial(m, c, b, centre, reach, coefficients):  # type: ignore[no-untyped-def]
    """Value and slopes of row b's polynomial, at parameters inside its region."""
    u = (m - centre[0, b]) / reach[0, b]
    v = (c - centre[1, b]) / reach[1, b]
    value, by_u, by_v = 0.0, 0.0, 0.0
    for i in range(DEGREE, -1, -1):
        inner, slope = 0.0, 0.0
        for j in range(DEGREE - i, -1, -1):
            slope = slope * v + inner
            inner = inner * v + coefficients[b, i, j]
        by_u = by_u * u + value
        value = value * u + inner
        by_v = by_v * u + slope
    return value, by_u / reach[0, b], by_v / reach[1, b]


def warm_up(data: RowSums) -> None:
    """Compile the kernels, or load them from Numba's cache, so that the wait has a name."""
    one, row = np.ones(1), np.zeros(1, dtype=np.int64)
    curve = np.zeros((1, 1))
    data.value_and_gradient(curve, curve, row)
    if data.near:
        made = make_surrogates(data, (-one, -one), (one, one))
        data.fill_near(curve, curve, row[None], np.empty((3, 1, 1)), *made.arrays, *data.arrays)
