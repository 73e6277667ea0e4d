"""Quantiles of Beta(a, b), and the Beta-Binomial's probabilities and cdf."""

import math

import numba
import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from .._lib.arrays import Floats
from .beta_tails import beta_kernel, beta_lower, beta_upper
from .special_forms import compiled, gamma_quantile, one_negative_binomial

_LARGE = 1e4  # parameters from which on scipy's quantile may not converge
_NEWTON = 6  # steps of its search, which double its digits
_LEAST = -690.0  # least logit of a quantile that is a number
_SINGLE = 256  # numbers of successes whose probabilities are added up at the distribution's end
_MOST = 1000  # numbers of successes that are added up one by one
_REACH, _FALL = 10.0, 40.0  # sds, and Gamma tails, below which nothing is left of the lower tail
_NODE, _SHARE = np.polynomial.legendre.leggauss(96)


def beta_quantile(prob: ArrayLike, a: ArrayLike, b: ArrayLike) -> Floats:
    """Quantile of Beta(a, b), by Newton's method on the logit where either is large."""
    p, one, two = np.broadcast_arrays(*(np.asarray(v, dtype=float) for v in (prob, a, b)))
    found = np.array(special.betaincinv(one, two, p))
    large = (np.maximum(one, two) >= _LARGE) & (p > 0.0) & (p < 1.0)
    if large.any():
        p, one, two = p[large], one[large], two[large]
        mirrored = one > two  # what a quantile is short of 1 has all its digits
        sides = np.where(mirrored, 1.0 - p, p), np.where(mirrored, p, 1.0 - p)
        x = _large_quantile(*sides, np.minimum(one, two), np.maximum(one, two))
        found[large] = np.where(mirrored, 1.0 - x, x)
    return found


def _large_quantile(p: Floats, q: Floats, a: Floats, b: Floats) -> Floats:
    """For a <= b and q = 1 - p; begun at a Gamma with the variance of the logit."""
    shape = a / (a / b + 1.0)
    # a quantile below all numbers stays where it begins
    with np.errstate(divide="ignore"):
        logit = np.log(gamma_quantile(p, shape)) - np.log(shape) + np.log(a) - np.log(b)
    some = logit > _LEAST
    p, a, b, q, below = p[some], a[some], b[some], q[some], p[some] <= 0.5
    target = np.log(np.where(below, p, q))
    for _ in range(_NEWTON):
        x = special.expit(logit[some])
        tail = np.where(below, beta_lower(x, a, b), beta_upper(x, a, b))
        step = (target - np.log(tail)) * tail / beta_kernel(x, a, b)
        logit[some] += np.clip(np.where(below, step, -step), -1.0, 1.0)
    return np.asarray(special.expit(logit))


# --- the Beta-Binomial ---------------------------------------------------------------------------

_jit = numba.njit(cache=True, nogil=True, error_model="numpy")


@_jit
def _log_pmf(y, n, a, b):  # type: ignore[no-untyped-def]
    """Log probability of y successes in n trials; y may lie between whole numbers.

    Given their sum, negative binomials of shapes a and b and of one ratio are Beta-Binomial.
    """
    m = a + b
    found = one_negative_binomial(y, a, n * (a / m)) + one_negative_binomial(n - y, b, n * (b / m))
    return found - one_negative_binomial(n, m, n)


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
        last = _SINGLE - 1.0
        at_last = _pmf(last, n, a, b)
        total = _added(last, 0.0, at_last, n, a, b)
        begin = last + 0.5
        total += (_pmf(last + 1.0, n, a, b) - at_last) / 24.0
    total -= (_pmf(y + 1.0, n, a, b) - at_y) / 24.0
    first, last = math.sqrt(max(begin, 0.0)), math.sqrt(y + 0.5)
    half = 0.5 * (last - first)
    for i in range(len(_NODE)):
        root = first + half * (1.0 + _NODE[i])
        total += 2.0 * half * _SHARE[i] * root * _pmf(root * root, n, a, b)
    return total


@_jit
def _fill_ends(y, n, a, b, below, upto):  # type: ignore[no-untyped-def]
    """Fill both ends, (curves, items)."""
    for s in range(a.shape[0]):
        for i in range(len(y)):
            p, q = a[s, i], b[s, i]
            at = _pmf(y[i], n[i], p, q)
            if y[i] * q <= (n[i] - y[i]) * p:  # at most the mean
                upto[s, i] = _tail(y[i], n[i], p, q)
                below[s, i] = upto[s, i] - at
            else:
                below[s, i] = 1.0 - _tail(n[i] - y[i], n[i], q, p)
                upto[s, i] = below[s, i] + at


def beta_binomial_ends(y: Floats, n: Floats, a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """P(Y <= y - 1) and P(Y <= y) of y successes in n trials, (curves, items)."""
    below, upto = np.empty(a.shape), np.empty(a.shape)
    numbers = (np.ascontiguousarray(v, dtype=float) for v in (y, n, a, b))
    _fill_ends(*numbers, below, upto)
    return np.clip(below, 0.0, 1.0), np.clip(upto, 0.0, 1.0)
