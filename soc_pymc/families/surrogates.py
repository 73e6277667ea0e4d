"""Polynomials that stand for rows' log marginals in the region that a fit's draws visit."""

from dataclasses import dataclass

import numba
import numpy as np

from .._lib.arrays import Floats, Ints
from .row_sums import RowSums

DEGREE = 6
"""In each curve: (DEGREE + 1)^2 values at Chebyshev's nodes give all coefficients."""
_TESTS = 12
ERROR = 1e-3
"""Nats, allowed for all rows together as independent errors."""


@dataclass(frozen=True)
class Surrogates:
    """One polynomial for each row, in units of reach from the centre of its region."""

    centre: Floats  # (2, rows): middle of the regions in both parameters
    reach: Floats  # (2, rows): half-widths; 0 means that the row has no polynomial
    coefficients: Floats  # (rows, i, j): of u^i v^j
    degree: Ints  # (rows,): in each curve


def make_surrogates(
    data: RowSums,
    low: Floats,
    high: Floats,
    allowed: float = ERROR,
    degrees: tuple[int, ...] = (DEGREE,),
) -> Surrogates:
    """Polynomials for all rows over boxes of both parameters, from `low` to `high` (2, rows).

    Each has the first of the rising `degrees` whose error is allowed.
    """
    centre, reach = 0.5 * (low + high), 0.5 * (high - low)
    number, most = reach.shape[1], degrees[-1] + 1
    coefficients, degree = np.zeros((number, most, most)), np.zeros(number, dtype=np.int64)
    rows = np.arange(number)
    for tried in degrees:
        terms, error = _fitted(data, centre[:, rows], reach[:, rows], rows, tried)
        good = error <= allowed / np.sqrt(number)  # false where it is not a number
        coefficients[rows, : tried + 1, : tried + 1] = terms
        degree[rows], rows = tried, rows[~good]
        if not len(rows):
            break
    reach[:, rows] = 0.0
    return Surrogates(centre, reach, coefficients, degree)


def _fitted(
    data: RowSums, centre: Floats, reach: Floats, rows: Ints, degree: int
) -> tuple[Floats, Floats]:
    """Coefficients (rows, i, j) of polynomials, and their largest errors at random points."""

    def exact(u: Floats, v: Floats) -> Floats:
        m = centre[0] + u[:, None] * reach[0]
        c = centre[1] + v[:, None] * reach[1]
        return data.values(m, c, rows)

    node = np.cos(np.pi * (np.arange(degree + 1) + 0.5) / (degree + 1))
    to_powers = np.linalg.inv(np.vander(node, increasing=True))
    u, v = (x.ravel() for x in np.meshgrid(node, node, indexing="ij"))
    values = exact(u, v).reshape(len(node), len(node), -1)
    with np.errstate(invalid="ignore"):  # where values are not finite, the error is NaN
        terms = np.einsum("iu,jv,uvb->bij", to_powers, to_powers, values, optimize=True)
    u, v = np.random.default_rng(0).uniform(-1.0, 1.0, (2, _TESTS))
    powers = (x[:, None] ** np.arange(degree + 1) for x in (u, v))
    near = np.einsum("ti,tj,bij->tb", *powers, terms, optimize=True)
    return terms, np.abs(near - exact(u, v)).max(axis=0)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _values(u, v, terms, degree, inner, value):  # type: ignore[no-untyped-def]
    """Fill `value` (draws,) with one polynomial's."""
    value[:] = 0.0
    for i in range(degree, -1, -1):
        inner[:] = terms[i, degree]
        for j in range(degree - 1, -1, -1):
            term = terms[i, j]
            for s in range(len(u)):
                inner[s] = inner[s] * v[s] + term
        for s in range(len(u)):
            value[s] = value[s] * u[s] + inner[s]


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _by_both(u, v, terms, degree, inner, slope, by_u, by_v):  # type: ignore[no-untyped-def]
    """Fill `by_u` and `by_v` (draws,) with its slopes."""
    by_u[:], by_v[:] = 0.0, 0.0
    for i in range(degree, -1, -1):
        inner[:], slope[:] = terms[i, degree], 0.0
        for j in range(degree - 1, -1, -1):
            term = terms[i, j]
            for s in range(len(u)):
                slope[s] = slope[s] * v[s] + inner[s]
                inner[s] = inner[s] * v[s] + term
        for s in range(len(u)):
            by_v[s] = by_v[s] * u[s] + slope[s]
        if i > 0:
            for s in range(len(u)):
                by_u[s] = by_u[s] * u[s] + i * inner[s]


@numba.njit(cache=True, nogil=True, error_model="numpy")
def polynomial_sums(  # type: ignore[no-untyped-def]
    m, c, rows, value, slopes, outside, centre, reach, coefficients, degree
):
    """Sums over rows of their polynomials at many parameters (k, draws); returns what is left out.

    Fills `value` (draws,), and (2, k, draws) `slopes` unless they are empty. Rows and draws outside
    the regions are marked in `outside`, add nothing and count in the number returned. Innermost
    loops are over draws, so that they are vector instructions.
    """
    draws, outside_number = m.shape[1], 0
    u, v, row_value, inner = np.empty(draws), np.empty(draws), np.empty(draws), np.empty(draws)
    slope, by_u, by_v = np.empty(draws), np.empty(draws), np.empty(draws)
    value[:] = 0.0
    for k in range(len(rows)):
        b = rows[k]
        if not reach[0, b] > 0.0 or not reach[1, b] > 0.0:
            outside[k] = True
            outside_number += draws
            continue
        per_u, per_v = 1.0 / reach[0, b], 1.0 / reach[1, b]
        for s in range(draws):
            u[s] = (m[k, s] - centre[0, b]) * per_u
            v[s] = (c[k, s] - centre[1, b]) * per_v
            outside[k, s] = not (abs(u[s]) < 1.0 and abs(v[s]) < 1.0)
            outside_number += outside[k, s]
        _values(u, v, coefficients[b], degree[b], inner, row_value)
        for s in range(draws):
            value[s] += 0.0 if outside[k, s] else row_value[s]
        if slopes.size:
            _by_both(u, v, coefficients[b], degree[b], inner, slope, by_u, by_v)
            for s in range(draws):
                slopes[0, k, s] = by_u[s] * per_u
                slopes[1, k, s] = by_v[s] * per_v
    return outside_number
