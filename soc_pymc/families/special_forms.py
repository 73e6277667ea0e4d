"""Special functions in forms that are accurate in the limits.

scipy's incomplete Gamma functions stop before they converge for large shapes (at 1e8 and 8 sd the
lower tail is 20% off), and an argument of the incomplete beta function near 1 has lost the digits
of its complement. Differences of log Gamma functions cancel.
"""

import math
from threading import Lock
from typing import Any

import numba
import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from .._lib.arrays import Floats

_HALF_LOG_2PI = 0.5 * float(np.log(2.0 * np.pi))
_STIRLING = 16.0  # smallest shape for Stirling's series
_LARGE = 1e5  # shapes above which scipy's series for the tails stop before they converge
_NEAR = 0.3  # largest relative difference of two numbers for a series in the difference
# Temme's coefficients, in increasing powers of eta (DiDonato and Morris 1986)
_C0 = (-1 / 3, 1 / 12, -2 / 135, 1 / 864, 1 / 2835, -139 / 777600, 1 / 25515)
_C1 = (-1 / 540, -1 / 288, 1 / 378, -77 / 77760)
_COMPILING = Lock()


def log1pmx(x: ArrayLike) -> Floats:
    """log(1 + x) - x for x > -1 without cancellation near 0 (series in x / (2 + x))."""
    x = np.asarray(x, dtype=float)
    u = x / (2.0 + x)
    w = u * u
    tail = np.zeros_like(x)
    for k in range(21, 1, -2):
        tail = w * (1.0 / k + tail)
    near = np.abs(x) < _NEAR
    # log1p(x) = 2 (u + u^3/3 + ...), and 2u - x = -x u
    return np.where(near, -x * u + 2.0 * u * tail, np.log1p(np.where(near, 0.0, x)) - x)


def stirling_error(x: ArrayLike) -> Floats:
    """Log Gamma(x) - [(x - 1/2) log x - x + log(2 pi)/2] for x >= 16 (Stirling's series)."""
    z = 1.0 / np.asarray(x, dtype=float)
    w = z * z
    return z * (1 / 12 - w * (1 / 360 - w * (1 / 1260 - w * (1 / 1680 - w / 1188))))


def stirling_rest(x: ArrayLike) -> Floats:
    """`stirling_error` for every x > 0."""
    x = np.asarray(x, dtype=float)
    small = x < _STIRLING
    found = stirling_error(np.where(small, _STIRLING, x))
    if small.any():
        low = x[small]
        rest = special.gammaln(low + 1.0) - (low + 0.5) * np.log(low) + low - _HALF_LOG_2PI
        found = np.asarray(found)
        found[small] = rest
    return np.asarray(found)


def deviance(x: Floats, away: Floats, mean: Floats) -> Floats:
    """X log(x / mean) + mean - x for x > 0, given also an exact away = mean - x.

    Loader (2000), Fast and accurate computation of binomial probabilities.
    """
    share = away / x
    near = np.abs(share) < _NEAR
    close = -x * log1pmx(np.where(near, share, 0.0))
    # with a mean of 0 any x > 0 has probability 0
    with np.errstate(divide="ignore"):
        far = x * (np.log(x) - np.log(mean)) + away
    return np.where(near, close, far)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def one_deviance(x, away, mean):  # type: ignore[no-untyped-def]
    """`deviance` of numbers."""
    share = away / x
    if not abs(share) < _NEAR:
        return x * (math.log(x) - math.log(mean)) + away
    u = share / (2.0 + share)
    w = u * u
    tail = 0.0
    for k in range(21, 1, -2):
        tail = w * (1.0 / k + tail)
    return x * (share * u - 2.0 * u * tail)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def one_rest(x):  # type: ignore[no-untyped-def]
    """`stirling_rest` of a number."""
    if x < _STIRLING:
        return math.lgamma(x + 1.0) - (x + 0.5) * math.log(x) + x - _HALF_LOG_2PI
    z = 1.0 / x
    w = z * z
    return z * (1 / 12 - w * (1 / 360 - w * (1 / 1260 - w * (1 / 1680 - w / 1188))))


def compiled(function: Any, *numbers: ArrayLike) -> Floats:
    """A ufunc of real numbers, compiled at first use: threads that compile together would warn."""
    with _COMPILING:
        if not function.types:
            function.add(f"float64({', '.join(['float64'] * len(numbers))})")
            function.disable_compile()
    return np.asarray(function(*numbers))


def log_negative_binomial(count: ArrayLike, shape: ArrayLike, expected: ArrayLike) -> Floats:
    """Log probability of a negative binomial count with this mean and Gamma shape.

    Loader's saddle-point form, whose terms do not cancel.
    """
    return compiled(_log_negative_binomial, count, shape, expected)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def one_negative_binomial(count, shape, expected):  # type: ignore[no-untyped-def]
    """`log_negative_binomial` of numbers."""
    ratio = expected / shape
    if not count > 0.0:
        return -shape * math.log1p(ratio)
    if expected == 0.0:
        return -np.inf
    both = shape + count
    # distance of each from its mean given their sum, from their difference, which is exact
    away = (expected - count) / (1.0 + ratio)
    parts = one_deviance(count, away, both * (ratio / (1.0 + ratio)))
    parts += one_deviance(shape, -away, both / (1.0 + ratio))
    rest = one_rest(both) - one_rest(shape) - one_rest(count)
    return rest - parts - 0.5 * (math.log(2.0 * math.pi * count) + math.log1p(count / shape))


@numba.vectorize(cache=True)
def _log_negative_binomial(count, shape, expected):  # type: ignore[no-untyped-def]
    return one_negative_binomial(count, shape, expected)


def gamma_upper(shape: Floats, x: Floats) -> Floats:
    """P(X > x) for X ~ Gamma(shape, 1), with a small relative error also in the tail."""
    return _tail(shape, x, special.gammaincc, 1.0)


def gamma_lower(shape: Floats, x: Floats) -> Floats:
    """P(X <= x) for X ~ Gamma(shape, 1), with a small relative error also in the tail."""
    return _tail(shape, x, special.gammainc, -1.0)


def gamma_kernel(shape: Floats, x: Floats) -> Floats:
    """x^a e^-x / Gamma(a + 1), with a relative error that does not grow with the shape."""
    a, x = np.broadcast_arrays(np.asarray(shape, dtype=float), np.asarray(x, dtype=float))
    log_kernel = -deviance(a, x - a, x) - 0.5 * np.log(a) - _HALF_LOG_2PI - stirling_rest(a)
    return np.exp(log_kernel)


def _tail(shape: Floats, x: Floats, ordinary: np.ufunc, sign: float) -> Floats:
    found = np.asarray(ordinary(shape, x))
    large = shape >= _LARGE
    if large.any():
        at = np.broadcast_to(large, found.shape)
        a, upto = np.broadcast_to(shape, found.shape)[at], np.broadcast_to(x, found.shape)[at]
        found[at] = _temme(a, upto, sign)
    return found


def _temme(a: Floats, x: Floats, sign: float) -> Floats:
    """Upper (sign 1) or lower (-1) tail of Gamma(a) for large a, by Temme's expansion (1979).

    Beyond the range of the two series the tail is less than 1e-300, or 1 to all digits.
    """
    mu = np.maximum((x - a) / a, -1.0)
    # log(0) is intended at x = 0: the tail is 0 or 1
    with np.errstate(divide="ignore"):
        half = np.maximum(-log1pmx(mu), 0.0)  # eta^2 / 2
    eta = np.clip(np.copysign(np.sqrt(2.0 * half), mu), -1.0, 1.0)
    bell = np.exp(-a * half)
    c0, c1 = (np.polynomial.polynomial.polyval(eta, np.array(c)) for c in (_C0, _C1))
    rest = sign * (c0 + c1 / a) / np.sqrt(2.0 * np.pi * a)
    z = sign * np.sign(mu) * np.sqrt(a * half)
    # the scaled complement is accurate in the tail, z > 0
    tail = bell * (0.5 * special.erfcx(np.maximum(z, 0.0)) + rest)
    return np.asarray(np.where(z > 0, tail, 0.5 * special.erfc(z) + bell * rest))


def negative_binomial_upto(count: Floats, shape: Floats, ratio: Floats) -> Floats:
    """P(Y <= count) for counts >= 0 of mean shape times ratio, overdispersed by a Gamma(shape)."""
    return _both_ways(special.betaincc, special.betainc, count + 1.0, shape, ratio)


def negative_binomial_above(count: Floats, shape: Floats, ratio: Floats) -> Floats:
    """P(Y > count), as `negative_binomial_upto`."""
    return _both_ways(special.betainc, special.betaincc, count + 1.0, shape, ratio)


def _both_ways(
    one: np.ufunc, other: np.ufunc, first: Floats, second: Floats, ratio: Floats
) -> Floats:
    """An incomplete beta function at ratio / (1 + ratio), directly or by its complement.

    The smaller of the two arguments, which add up to 1, is exact.
    """
    below = ratio <= 1.0
    low, high = np.where(below, ratio, 1.0), np.where(below, 1.0, ratio)
    return np.where(
        below, one(first, second, low / (1.0 + low)), other(second, first, 1.0 / (1.0 + high))
    )
