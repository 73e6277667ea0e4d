"""Probabilities and cdf of the Beta-Binomial."""

import math

import numba
import numpy as np
from numpy.typing import ArrayLike

from .._lib.arrays import Floats
from .special_functions import compiled, negative_binomial

_SINGLE = 256  # numbers of successes whose probabilities are added up at the distribution's end
_MOST = 1000  # numbers of successes that are added up one by one
_REACH, _FALL = 10.0, 40.0  # sds, and Gamma tails, below which nothing is left of the lower tail
_NODE, _SHARE = np.polynomial.legendre.leggauss(96)


# --- the Beta-Binomial ---------------------------------------------------------------------------

_jit = numba.njit(cache=True, nogil=True, error_model="numpy")


@_jit
def _log_pmf(y, n, a, b):  # type: ignore[no-untyped-def]
    """Log probability of y successes in n trials; y may lie between whole numbers.

    Given their sum, negative binomials of shapes a and b and of one ratio are Beta-Binomial.
    """
    m = a + b
    log_ratio = negative_binomial(y, a, n * (a / m)) + negative_binomial(n - y, b, n * (b / m))
    return log_ratio - negative_binomial(n, m, n)


@_jit
def _pmf(y, n, a, b):  # type: ignore[no-untyped-def]
    return math.exp(_log_pmf(y, n, a, b))


@numba.vectorize(cache=True)
def _log_beta_binomial(y, n, a, b):  # type: ignore[no-untyped-def]
    return _log_pmf(y, n, a, b)


def log_beta_binomial(y: ArrayLike, n: ArrayLike, a: ArrayLike, b: ArrayLike) -> Floats:
    """Log probability of y successes in n trials, theta ~ Beta(a, b)."""
    return compiled(_log_beta_binomial, y, n, a, b)


@_jit
def _added(y, low, at_y, n, a, b):  # type: ignore[no-untyped-def]
    """Sum of probabilities from `low` to y, given that of y, from y downwards."""
    total, term = 0.0, at_y
    k = y
    while k >= low:
        total += term
        if term < 1e-18 * total and a >= 1.0:  # the rest falls further
            break
        term *= k * (b + (n - k)) / ((n - k + 1.0) * (a + k - 1.0))
        k -= 1.0
    return total


@_jit
def _tail(y, n, a, b):  # type: ignore[no-untyped-def]
    """P(Y <= y) for y at most about the mean.

    Where numbers are many it is an integral over the root of y, by Gauss and Legendre, with the
    first term of Euler and Maclaurin at its ends.
    """
    if y < 0.0:
        return 0.0
    m = a + b
    sd = math.sqrt(n * (a / m) * (b / m) * ((m + n) / (m + 1.0)))
    low = max(0.0, math.floor(y - _REACH * sd - _FALL * (1.0 + n / m)))
    at_y = _pmf(y, n, a, b)
    if y - low < _MOST:
        return _added(y, low, at_y, n, a, b)
    total, begin = 0.0, low - 0.5
    if low == 0.0:
        high_root = _SINGLE - 1.0
        at_last = _pmf(high_root, n, a, b)
        total = _added(high_root, 0.0, at_last, n, a, b)
        begin = high_root + 0.5
        total += (_pmf(high_root + 1.0, n, a, b) - at_last) / 24.0
    total -= (_pmf(y + 1.0, n, a, b) - at_y) / 24.0
    low_root, high_root = math.sqrt(max(begin, 0.0)), math.sqrt(y + 0.5)
    half = 0.5 * (high_root - low_root)
    for i in range(len(_NODE)):
        root = low_root + half * (1.0 + _NODE[i])
        total += 2.0 * half * _SHARE[i] * root * _pmf(root * root, n, a, b)
    return total


@_jit
def _fill_ends(y, n, a, b, below, upto):  # type: ignore[no-untyped-def]
    """Fill both ends, (curves, items)."""
    for s in range(a.shape[0]):
        for i in range(len(y)):
            p, q = a[s, i], b[s, i]
            pmf = _pmf(y[i], n[i], p, q)
            if y[i] * q <= (n[i] - y[i]) * p:  # at most the mean
                upto[s, i] = _tail(y[i], n[i], p, q)
                below[s, i] = upto[s, i] - pmf
            else:
                below[s, i] = 1.0 - _tail(n[i] - y[i], n[i], q, p)
                upto[s, i] = below[s, i] + pmf


def beta_binomial_ends(y: Floats, n: Floats, a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """P(Y <= y - 1) and P(Y <= y) of y successes in n trials, (curves, items)."""
    below, upto = np.empty(a.shape), np.empty(a.shape)
    numbers = (np.ascontiguousarray(v, dtype=float) for v in (y, n, a, b))
    _fill_ends(*numbers, below, upto)
    return np.clip(below, 0.0, 1.0), np.clip(upto, 0.0, 1.0)
