"""Polynomials that stand for rows' log marginals in the region that a fit's draws visit."""

from dataclasses import dataclass

import numba
import numpy as np

from .._lib.arrays import Floats, Ints
from .row_sums import RowSums

# total, in the two curves; as many nodes a side: 25 with value and gradient for 21 coefficients
DEGREE = 5
_TESTS = 12
ERROR = 1e-3
"""Nats, allowed for all rows together as independent errors."""


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


@dataclass(frozen=True)
class Polynomials(Surrogates):
    """Polynomials of total degrees that differ between rows."""

    degree: Ints  # (rows,)


def _powers(u: Floats, order: int) -> tuple[Floats, Floats]:
    """Powers 0 to `order` of u and their derivatives, shape (len(u), order + 1)."""
    k = np.arange(order + 1)
    return u[:, None] ** k, k * u[:, None] ** np.maximum(k - 1, 0)


def _exponents(degree: int) -> tuple[Ints, Ints]:
    """Exponents of all terms up to a total degree."""
    i, j = (index.ravel() for index in np.indices((degree + 1, degree + 1)))
    return i[i + j <= degree], j[i + j <= degree]


def _design(u: Floats, v: Floats, degree: int) -> Floats:
    """Rows of value, u-derivative and v-derivative at the points, for all terms."""
    i, j = _exponents(degree)
    (pu, du), (pv, dv) = _powers(u, degree), _powers(v, degree)
    return np.concatenate([pu[:, i] * pv[:, j], du[:, i] * pv[:, j], pu[:, i] * dv[:, j]])


def make_surrogates(
    data: RowSums,
    low: tuple[Floats, Floats],
    high: tuple[Floats, Floats],
    allowed: float = ERROR,
    degrees: tuple[int, ...] = (DEGREE,),
) -> Polynomials:
    """Polynomials for all rows over boxes of both parameters from `low` to `high`.

    Each has the first of the rising `degrees` whose error is allowed.
    """
    centre = 0.5 * (np.array(low) + np.array(high))
    reach = 0.5 * (np.array(high) - np.array(low))
    number, most = reach.shape[1], degrees[-1] + 1
    coefficients, degree = np.zeros((number, most, most)), np.zeros(number, dtype=np.int64)
    rows = np.arange(number)
    for tried in degrees:
        boxes = centre[:, rows], reach[:, rows]
        terms, error = _fitted(data, *boxes, rows, tried)
        good = error <= allowed / np.sqrt(number)  # false where it is not a number
        i, j = _exponents(tried)
        coefficients[rows[:, None], i, j] = terms.T
        degree[rows], rows = tried, rows[~good]
        if not len(rows):
            break
    reach[:, rows] = 0.0
    return Polynomials(centre, reach, coefficients, degree)


def _fitted(
    data: RowSums, centre: Floats, reach: Floats, rows: Ints, degree: int
) -> tuple[Floats, Floats]:
    """Coefficients (terms, rows) of polynomials, and their largest errors at random points."""

    def exact(u: Floats, v: Floats) -> Floats:
        m = centre[0] + u[:, None] * reach[0]
        c = centre[1] + v[:, None] * reach[1]
        return data.value_and_gradient(m, c, rows)

    node = np.cos(np.pi * (np.arange(degree) + 0.5) / degree)
    u, v = (x.ravel() for x in np.meshgrid(node, node))
    value, by_m, by_c = exact(u, v)
    slopes = np.concatenate([value, by_m * reach[0], by_c * reach[1]])
    terms = np.linalg.pinv(_design(u, v, degree)) @ slopes
    rng = np.random.default_rng(0)
    u, v = rng.uniform(-1.0, 1.0, (2, _TESTS))
    return terms, np.abs(_design(u, v, degree)[:_TESTS] @ terms - exact(u, v)[0]).max(axis=0)


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


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _values(u, v, terms, degree, inner, value):  # type: ignore[no-untyped-def]
    """Fill `value` (draws,) with one polynomial's."""
    value[:] = 0.0
    for i in range(degree, -1, -1):
        inner[:] = terms[i, degree - i]
        for j in range(degree - i - 1, -1, -1):
            more = terms[i, j]
            for s in range(len(u)):
                inner[s] = inner[s] * v[s] + more
        for s in range(len(u)):
            value[s] = value[s] * u[s] + inner[s]


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _by_both(u, v, terms, degree, inner, slope, by_u, by_v):  # type: ignore[no-untyped-def]
    """Fill `by_u` and `by_v` (draws,) with its slopes."""
    by_u[:], by_v[:] = 0.0, 0.0
    for i in range(degree, -1, -1):
        inner[:], slope[:] = terms[i, degree - i], 0.0
        for j in range(degree - i - 1, -1, -1):
            more = terms[i, j]
            for s in range(len(u)):
                slope[s] = slope[s] * v[s] + inner[s]
                inner[s] = inner[s] * v[s] + more
        for s in range(len(u)):
            by_v[s] = by_v[s] * u[s] + slope[s]
        if i > 0:
            for s in range(len(u)):
                by_u[s] = by_u[s] * u[s] + i * inner[s]


@numba.njit(cache=True, nogil=True, error_model="numpy")
def near_sums(  # type: ignore[no-untyped-def]
    m, c, rows, value, slopes, outside, centre, reach, coefficients, degree
):
    """Sums over rows of their polynomials at many parameters (k, draws); returns what is left out.

    Fills `value` (draws,), and (2, k, draws) `slopes` unless they are empty. Rows and draws outside
    the regions are marked in `outside`, add nothing and count in the number returned. Innermost
    loops are over draws, so that they are vector instructions.
    """
    draws, left = m.shape[1], 0
    u, v, own, inner = np.empty(draws), np.empty(draws), np.empty(draws), np.empty(draws)
    slope, by_u, by_v = np.empty(draws), np.empty(draws), np.empty(draws)
    value[:] = 0.0
    for k in range(len(rows)):
        b = rows[k]
        if not reach[0, b] > 0.0 or not reach[1, b] > 0.0:
            outside[k] = True
            left += draws
            continue
        per_u, per_v = 1.0 / reach[0, b], 1.0 / reach[1, b]
        for s in range(draws):
            u[s] = (m[k, s] - centre[0, b]) * per_u
            v[s] = (c[k, s] - centre[1, b]) * per_v
            outside[k, s] = not (abs(u[s]) < 1.0 and abs(v[s]) < 1.0)
            left += outside[k, s]
        _values(u, v, coefficients[b], degree[b], inner, own)
        for s in range(draws):
            value[s] += 0.0 if outside[k, s] else own[s]
        if slopes.size:
            _by_both(u, v, coefficients[b], degree[b], inner, slope, by_u, by_v)
            for s in range(draws):
                slopes[0, k, s] = by_u[s] * per_u
                slopes[1, k, s] = by_v[s] * per_v
    return left


def warm_up(data: RowSums) -> None:
    """Compile the kernels, or load them from Numba's cache, so that the wait has a name."""
    one, row = np.ones(1), np.zeros(1, dtype=np.int64)
    curve = np.zeros((1, 1))
    data.value_and_gradient(curve, curve, row)
    if data.near:
        made = make_surrogates(data, (-one, -one), (one, one))
        data.fill_near(curve, curve, row[None], np.empty((3, 1, 1)), *made.arrays, *data.arrays)
