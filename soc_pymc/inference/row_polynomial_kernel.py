"""Compiled evaluation of the rows' polynomials, for many rows and draws."""

import numba
import numpy as np


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
def fill(  # type: ignore[no-untyped-def]
    location, dispersion, value, slopes, outside, centre, reach, coefficients, degree
):
    """Fill values and slopes (unless empty), (rows, draws), and mark those outside regions."""
    draws = location.shape[1]
    u = np.empty(draws)
    v = np.empty(draws)
    inner = np.empty(draws)
    power = np.arange(coefficients.shape[1])
    for b in range(len(location)):
        if not reach[0, b] > 0.0 or not reach[1, b] > 0.0:
            outside[b] = True
            continue
        per_u = 1.0 / reach[0, b]
        per_v = 1.0 / reach[1, b]
        for s in range(draws):
            u[s] = (location[b, s] - centre[0, b]) * per_u
            v[s] = (dispersion[b, s] - centre[1, b]) * per_v
            outside[b, s] = not (abs(u[s]) < 1.0 and abs(v[s]) < 1.0)
        terms = coefficients[b, : degree[b] + 1, : degree[b] + 1]
        _polynomial(u, v, terms, inner, value[b])
        if slopes.size:
            rising = power[1 : degree[b] + 1]
            _polynomial(u, v, terms[1:] * rising[:, None] * per_u, inner, slopes[0, b])
            _polynomial(u, v, terms[:, 1:] * rising * per_v, inner, slopes[1, b])
