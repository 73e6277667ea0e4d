"""Polynomials that stand for the log marginals of rows in the region that draws visit."""

from dataclasses import dataclass

import numba
import numpy as np

from .._lib.arrays import Floats, Ints
from .row_sums import RowSums

_DEGREE = 6  # in each curve: (_DEGREE + 1)^2 values at Chebyshev's nodes give all coefficients
_ERROR = 1e-3  # nats, allowed for all rows together as independent errors
_TESTS = 12  # random points of a row where the error is measured


@dataclass(frozen=True, eq=False)
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
    allowed: float = _ERROR,
    degrees: tuple[int, ...] = (_DEGREE,),
) -> Surrogates:
    """Polynomials over boxes (2, rows) of the first of `degrees` whose error is allowed."""
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
def _polynomial(u, v, terms, inner, value):  # type: ignore[no-untyped-def]
    """Fill `value` (draws,) by Horner's scheme in both variables."""
    value[:] = 0.0
    for i in range(len(terms) - 1, -1, -1):
        inner[:] = 0.0
        for j in range(terms.shape[1] - 1, -1, -1):
            term = terms[i, j]
            for s in range(len(u)):
                inner[s] = inner[s] * v[s] + term
        for s in range(len(u)):
            value[s] = value[s] * u[s] + inner[s]


@numba.njit(cache=True, nogil=True, error_model="numpy")
def polynomial_values(  # type: ignore[no-untyped-def]
    m, c, value, slopes, outside, centre, reach, coefficients, degree
):
    """Fill values and slopes (unless empty), (rows, draws), and mark those outside regions."""
    draws = m.shape[1]
    u, v, inner = np.empty(draws), np.empty(draws), np.empty(draws)
    power = np.arange(coefficients.shape[1])
    for b in range(len(m)):
        if not reach[0, b] > 0.0 or not reach[1, b] > 0.0:
            outside[b] = True
            continue
        per_u, per_v = 1.0 / reach[0, b], 1.0 / reach[1, b]
        for s in range(draws):
            u[s] = (m[b, s] - centre[0, b]) * per_u
            v[s] = (c[b, s] - centre[1, b]) * per_v
            outside[b, s] = not (abs(u[s]) < 1.0 and abs(v[s]) < 1.0)
        terms = coefficients[b, : degree[b] + 1, : degree[b] + 1]
        _polynomial(u, v, terms, inner, value[b])
        if slopes.size:
            rising = power[1 : degree[b] + 1]
            _polynomial(u, v, terms[1:] * rising[:, None] * per_u, inner, slopes[0, b])
            _polynomial(u, v, terms[:, 1:] * rising * per_v, inner, slopes[1, b])
