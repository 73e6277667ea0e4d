"""Bin random effects: deviations of rows from the curve of the mean, integrated out.

An effect e has a Student t prior of 3 degrees of freedom and scale tau: a few bins may deviate far
while the others stay on the curve. The t is represented as a mixture of Normals N(0, lambda_k
tau^2); for each width the row's log marginal in e is integrated by Gauss-Hermite quadrature around
the mode (adaptive quadrature: Liu and Pierce 1994), which is accurate because the integrand is
log-concave. Slopes are posterior means given the data: of the row's slopes, and of e^2 / variance -
1 for tau. A row is needed at ten widths times five nodes, so it is approximated by a polynomial in
its mean, fitted at Chebyshev nodes, and computed exactly outside their range.
"""

from dataclasses import fields
from typing import Any

import numba
import numpy as np
from numba.extending import overload
from numpy.typing import NDArray
from scipy import special

from .._lib.arrays import Floats
from . import binomial_rows, normal_rows, poisson_rows
from .binomial_rows import BetaRows
from .normal_rows import NormalCells
from .poisson_rows import Histograms
from .row_sums import RowSums
from .surrogates import Surrogates

_FREEDOM = 3.0
_WIDTHS = np.exp(np.arange(-2.0, 9.3, 1.25))  # lambda_k: sd of 0.4 to 100 tau
_SHARES = _WIDTHS ** (-0.5 * _FREEDOM) * np.exp(-0.5 * _FREEDOM / _WIDTHS)
_SHARES /= _SHARES.sum()
_ENDS = np.cumsum(_SHARES)
_LOG_SHARES = np.log(_SHARES)

_PLACES, _quadrature = special.roots_hermitenorm(5)
_LOG_QUADRATURE = np.log(_quadrature / np.sqrt(2.0 * np.pi)) + 0.5 * _PLACES**2
_GRID = np.linspace(-6.0, 6.0, 61)  # range in sd for inverting an effect's posterior cdf


def _chebyshev(number: int) -> tuple[Floats, Floats]:
    """Nodes in [-1, 1], and the matrix from values there to coefficients of powers."""
    nodes = np.cos(np.pi * (np.arange(number) + 0.5) / number)
    return nodes, np.ascontiguousarray(np.linalg.inv(np.vander(nodes, increasing=True)))


_REACH = 0.8  # range of polynomials on either side of the curve, in log mean
_NODES, _TO_POWERS = _chebyshev(11)
_FEW_NODES, _FEW_TO_POWERS = _chebyshev(3)  # a quadratic is exact for values
_OTHER_NODES, _OTHER_TO_POWERS = _chebyshev(8)  # in log cv2
_TESTS = 12
_ERROR = 1e-3  # nats, for all bins together with independent errors
_FAR = 1e9


def make_tables(
    data: RowSums, low: tuple[Floats, Floats], high: tuple[Floats, Floats]
) -> Surrogates:
    """Polynomials for all rows over boxes of the curves, with room for effects around them."""
    centre = 0.5 * (np.array(low) + np.array(high))
    reach = 0.5 * (np.array(high) - np.array(low)) + np.array([[_REACH], [1e-3]])
    rows = np.arange(reach.shape[1])

    def exact(u: Floats, v: Floats) -> Floats:
        m, c = centre[0] + u[:, None] * reach[0], centre[1] + v[:, None] * reach[1]
        return data.value_and_gradient(m, c, rows)[0]

    u, v = (x.ravel() for x in np.meshgrid(_NODES, _OTHER_NODES, indexing="ij"))
    values = exact(u, v).reshape(len(_NODES), len(_OTHER_NODES), -1)
    terms = np.einsum("iu,jv,uvb->bij", _TO_POWERS, _OTHER_TO_POWERS, values)
    u, v = np.random.default_rng(0).uniform(-1.0, 1.0, (2, _TESTS))
    powers = u[:, None] ** np.arange(len(_NODES)), v[:, None] ** np.arange(len(_OTHER_NODES))
    error = np.abs(np.einsum("ti,tj,bij->tb", *powers, terms) - exact(u, v)).max(axis=0)
    good = error <= _ERROR / np.sqrt(len(rows))  # false for NaN
    return Surrogates(centre, np.where(good, reach, 0.0), np.ascontiguousarray(terms))


# --- one row as a function of its mean -----------------------------------------------------------
# Numba chooses by the number of arrays: histograms of counts or of successes, failures and trials,
# these behind their tables, or cells of values. (Functions as arguments could not be cached.)
# `line` holds coefficients of powers of (mean - centre) / reach for the value and for the slope in
# the second curve, good up to a limit; `place` is (centre, reach, limit).

_jit = numba.njit(cache=True, nogil=True, error_model="numpy")
_COUNTS, _TRIALS, _VALUES = (len(fields(rows)) for rows in (Histograms, BetaRows, NormalCells))
_TABLES = len(fields(Surrogates))


def _row(m: Any, c: Any, b: Any, arrays: Any) -> Any:
    """Log marginal of row b and its slopes."""


@overload(_row)
def _choose_row(m, c, b, arrays):  # type: ignore[no-untyped-def]
    def of_counts(m, c, b, arrays):  # type: ignore[no-untyped-def]
        return poisson_rows.one_row(m, c, b, arrays)

    def of_count_tables(m, c, b, arrays):  # type: ignore[no-untyped-def]
        return poisson_rows.one_row(m, c, b, arrays[3:])

    def of_trials(m, c, b, arrays):  # type: ignore[no-untyped-def]
        return binomial_rows.one_row(m, c, b, arrays)

    def of_trial_tables(m, c, b, arrays):  # type: ignore[no-untyped-def]
        return binomial_rows.one_row(m, c, b, arrays[3:])

    def of_values(m, c, b, arrays):  # type: ignore[no-untyped-def]
        start, noise, moments, centre, spread = arrays
        return normal_rows.one_row(m, c, b, start, noise, moments, centre, spread)

    return {
        _COUNTS: of_counts,
        _COUNTS + _TABLES: of_count_tables,
        _TRIALS: of_trials,
        _TRIALS + _TABLES: of_trial_tables,
        _VALUES: of_values,
    }[len(arrays)]


@_jit
def _fitted(m, c, b, reach, nodes, to_powers, arrays):  # type: ignore[no-untyped-def]
    line = np.zeros((2, len(nodes)))
    for j in range(len(nodes)):
        value, _, by_c = _row(m + reach * nodes[j], c, b, arrays)
        for i in range(len(nodes)):
            line[0, i] += to_powers[i, j] * value
            line[1, i] += to_powers[i, j] * by_c
    return line


@_jit
def _tabled(c, b, centre, reach, coefficients):  # type: ignore[no-untyped-def]
    line = np.zeros((2, coefficients.shape[1]))
    v = (c - centre[1, b]) / reach[1, b]
    for i in range(line.shape[1]):
        for j in range(coefficients.shape[2] - 1, -1, -1):
            line[1, i] = line[1, i] * v + line[0, i]
            line[0, i] = line[0, i] * v + coefficients[b, i, j]
    line[1] /= reach[1, b]
    return line


def _line(m: Any, c: Any, b: Any, arrays: Any) -> Any:
    """Line and place of row b."""


@overload(_line)
def _choose_line(m, c, b, arrays):  # type: ignore[no-untyped-def]
    def of_rows(m, c, b, arrays):  # type: ignore[no-untyped-def]
        return _fitted(m, c, b, _REACH, _NODES, _TO_POWERS, arrays), (m, _REACH, 1.0)

    def of_tables(m, c, b, arrays):  # type: ignore[no-untyped-def]
        centre, reach, coefficients = arrays[:3]
        if abs(c - centre[1, b]) < reach[1, b]:
            line = _tabled(c, b, centre, reach, coefficients)
            return line, (centre[0, b], reach[0, b], 1.0)
        return _fitted(m, c, b, _REACH, _NODES, _TO_POWERS, arrays), (m, _REACH, 1.0)

    def of_values(m, c, b, arrays):  # type: ignore[no-untyped-def]
        reach = np.sqrt(np.exp(c) + arrays[1][arrays[0][b]])
        return _fitted(m, c, b, reach, _FEW_NODES, _FEW_TO_POWERS, arrays), (m, reach, _FAR)

    if len(arrays) == _VALUES:
        return of_values
    return of_rows if len(arrays) in (_COUNTS, _TRIALS) else of_tables


@_jit
def _at(x, c, b, arrays, line, place):  # type: ignore[no-untyped-def]
    """Value, slopes in the mean and in the second curve, and second derivative in the mean."""
    centre, reach, limit = place
    u = (x - centre) / reach
    if abs(u) > limit:
        value, slope, by_c = _row(x, c, b, arrays)
        step = 1e-4 * reach
        return value, slope, by_c, (_row(x + step, c, b, arrays)[1] - slope) / step
    value, slope, by_c, bend = 0.0, 0.0, 0.0, 0.0
    for i in range(line.shape[1] - 1, -1, -1):
        bend = bend * u + slope
        slope = slope * u + value
        value = value * u + line[0, i]
        by_c = by_c * u + line[1, i]
    return value, slope / reach, by_c, 2.0 * bend / reach**2


@_jit
def _mode(e, m, c, b, variance, arrays, line, place):  # type: ignore[no-untyped-def]
    """Mode of log marginal(m + e) - e^2 / (2 variance), starting from e, and the sd there."""
    _, reach, limit = place
    sd = np.sqrt(variance)
    for _ in range(20):
        _, slope, _, bend = _at(m + e, c, b, arrays, line, place)
        sd = 1.0 / np.sqrt(1.0 / variance - min(bend, 0.0))
        step = (slope - e / variance) * sd * sd
        e += min(max(step, -reach * limit), reach * limit)
        if not abs(step) > 0.1 * sd:
            break
    return e, sd


# --- the effect integrated out, and drawn --------------------------------------------------------


@_jit
def _integrated(m, c, log_tau, b, arrays, line, place):  # type: ignore[no-untyped-def]
    """Log marginal of row b with its slopes in both curves and in log tau."""
    top, total, by_m, by_c, by_tau, e = -np.inf, 0.0, 0.0, 0.0, 0.0, 0.0
    for k in range(len(_WIDTHS)):
        variance = _WIDTHS[k] * np.exp(2.0 * log_tau)
        e, sd = _mode(e, m, c, b, variance, arrays, line, place)
        outer = _LOG_SHARES[k] + np.log(sd) - 0.5 * np.log(variance)
        for q in range(len(_PLACES)):
            at = e + sd * _PLACES[q]
            value, slope, slope_c, _ = _at(m + at, c, b, arrays, line, place)
            ratio = at * at / variance
            term = outer + _LOG_QUADRATURE[q] + value - 0.5 * ratio
            if term > top:
                factor = np.exp(top - term)
                total, by_m, by_c, by_tau = (
                    total * factor, by_m * factor, by_c * factor, by_tau * factor
                )  # fmt: skip
                top = term
            p = np.exp(term - top)
            total += p
            by_m += p * slope
            by_c += p * slope_c
            by_tau += p * (ratio - 1.0)
    return top + np.log(total), by_m / total, by_c / total, by_tau / total


@_jit
def _drawn(m, c, log_tau, b, u, w, arrays, line, place):  # type: ignore[no-untyped-def]
    """An effect from its posterior: a width from u, then the effect from w, both uniform."""
    number = len(_WIDTHS)
    mass, centre, width = np.empty(number), np.empty(number), np.empty(number)
    e = 0.0
    for k in range(number):
        variance = _WIDTHS[k] * np.exp(2.0 * log_tau)
        e, sd = _mode(e, m, c, b, variance, arrays, line, place)
        centre[k], width[k] = e, sd
        terms = np.empty(len(_PLACES))
        for q in range(len(_PLACES)):
            at = e + sd * _PLACES[q]
            value = _at(m + at, c, b, arrays, line, place)[0]
            terms[q] = _LOG_QUADRATURE[q] + value - 0.5 * at * at / variance
        top = terms.max()
        inner = top + np.log(np.exp(terms - top).sum())
        mass[k] = _LOG_SHARES[k] + np.log(sd) - 0.5 * np.log(variance) + inner
    share = np.cumsum(np.exp(mass - mass.max()))
    k = min(np.searchsorted(share, u * share[-1]), number - 1)
    variance = _WIDTHS[k] * np.exp(2.0 * log_tau)
    logs = np.empty(len(_GRID))
    for i in range(len(_GRID)):
        at = centre[k] + width[k] * _GRID[i]
        logs[i] = _at(m + at, c, b, arrays, line, place)[0] - 0.5 * at * at / variance
    density = np.exp(logs - logs.max())
    below = np.zeros(len(_GRID))
    below[1:] = np.cumsum(density[1:] + density[:-1])
    return centre[k] + width[k] * np.interp(w * below[-1], below, _GRID)


@_jit
def effect_rows(first, second, log_tau, rows, out, *arrays):  # type: ignore[no-untyped-def]
    """Fill `out` (4, draws, k): value, slopes in both curves and in log tau, all (draws, k)."""
    for s in range(first.shape[0]):
        for k in range(rows.shape[1]):
            b, m, c = rows[s % rows.shape[0], k], first[s, k], second[s, k]
            line, place = _line(m, c, b, arrays)
            out[0, s, k], out[1, s, k], out[2, s, k], out[3, s, k] = _integrated(
                m, c, log_tau[s, k], b, arrays, line, place
            )


@_jit
def _draw_all(first, second, log_tau, uniform, out, *arrays):  # type: ignore[no-untyped-def]
    for s in range(first.shape[0]):
        for b in range(first.shape[1]):
            m, c, (u, w) = first[s, b], second[s, b], uniform[s, b]
            line, place = _line(m, c, b, arrays)
            out[s, b] = _drawn(m, c, log_tau[s], b, u, w, arrays, line, place)


def draw_effects(
    first: Floats, second: Floats, log_tau: Floats, data: RowSums, rng: np.random.Generator
) -> Floats:
    """Effects (draws, rows) from their posteriors given both curves there and log tau (draws,).

    Given these they are independent.
    """
    first, second = np.ascontiguousarray(first), np.ascontiguousarray(second)
    arrays = data.arrays
    if data.near:
        low, high = (first.min(axis=0), second.min(axis=0)), (first.max(axis=0), second.max(axis=0))
        arrays = (*make_tables(data, low, high).arrays, *arrays)
    out = np.empty(first.shape)
    _draw_all(first, second, log_tau, rng.random((*first.shape, 2)), out, *arrays)
    return out


def value_and_gradient(
    first: Floats, second: Floats, log_tau: Floats, *arrays: NDArray[np.generic]
) -> Floats:
    """Log marginal of all rows and its slopes in both curves and log tau: (4, draws, rows).

    Curves have shape (draws, rows), log tau (draws,); `arrays` are those of the data.
    """
    curves = (np.ascontiguousarray(x) for x in np.broadcast_arrays(first, second, log_tau[:, None]))
    out = np.empty((4, *first.shape))
    effect_rows(*curves, np.arange(first.shape[1])[None], out, *arrays)
    return out


@_jit
def draw_effect(rng, tau):  # type: ignore[no-untyped-def]
    """One effect from its prior at scale tau."""
    k = min(np.searchsorted(_ENDS, rng.random()), len(_WIDTHS) - 1)
    return tau * np.sqrt(_WIDTHS[k]) * rng.normal()


def draw_prior(tau: Floats, rng: np.random.Generator) -> Floats:
    """Effects from their prior at scales tau, of the same shape."""
    width = rng.choice(_WIDTHS, size=np.shape(tau), p=_SHARES)
    return np.asarray(tau * np.sqrt(width) * rng.normal(size=np.shape(tau)))
