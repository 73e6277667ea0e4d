"""Special functions that SciPy lacks: compiled, without cancellation at large arguments.

Differences of log Gamma functions cancel. Loader's saddle-point form (2000) of probabilities has
terms that do not: deviances, and the remainders of Stirling's formula.
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
_LEAST_STIRLING = 16.0  # smallest argument for Stirling's series
_LEAST_POLYGAMMA = 10.0  # and of those of polygamma functions
_NEAR = 0.3  # largest argument of a series about 0
_ERROR, _MOST_TERMS = 2e-15, 10_000  # for the continued fraction of a Beta's tail
_LARGE = 1e5  # smaller parameter beyond which it has hundreds of terms
_COMPILING = Lock()

_jit = numba.njit(cache=True, nogil=True, error_model="numpy")


def compiled(function: Any, *numbers: ArrayLike) -> Floats:
    """A ufunc of real numbers, compiled at first use: threads that compile together would warn."""
    with _COMPILING:
        if not function.types:
            function.add(f"float64({', '.join(['float64'] * len(numbers))})")
            function.disable_compile()
    return np.asarray(function(*numbers))


@_jit
def log1pmx(x):  # type: ignore[no-untyped-def]
    """log(1 + x) - x for x > -1, by a series in x/(2 + x) near 0."""
    if not abs(x) < _NEAR:
        return math.log1p(x) - x
    u = x / (2.0 + x)
    w = u * u
    tail = w * (1 / 3 + w * (1 / 5 + w * (1 / 7 + w * (1 / 9 + w * (1 / 11 + w * (
        1 / 13 + w * (1 / 15 + w * (1 / 17 + w / 19))))))))  # fmt: skip
    return 2.0 * u * tail - x * u


@_jit
def stirling(x):  # type: ignore[no-untyped-def]
    """Log Gamma(x) - [(x - 1/2) log x - x + log(2 pi)/2] for x > 0."""
    if x < _LEAST_STIRLING:
        return math.lgamma(x + 1.0) - (x + 0.5) * math.log(x) + x - _HALF_LOG_2PI
    w = 1.0 / (x * x)
    return (1 / 12 - w * (1 / 360 - w * (1 / 1260 - w * (1 / 1680 - w / 1188)))) / x


@_jit
def deviance(x, gap, mean):  # type: ignore[no-untyped-def]
    """X log(x / mean) + mean - x for x > 0, given also an exact gap = mean - x."""
    if abs(gap) < _NEAR * x:
        return -x * log1pmx(gap / x)
    return x * (math.log(x) - math.log(mean)) + gap


@_jit
def polygammas(x):  # type: ignore[no-untyped-def]
    """Psi, psi' and psi'' of x > 0."""
    digamma = trigamma = tetragamma = 0.0
    while x < _LEAST_POLYGAMMA:
        z = 1.0 / x
        digamma -= z
        trigamma += z * z
        tetragamma -= 2.0 * z * z * z
        x += 1.0
    z = 1.0 / x
    w = z * z
    digamma += math.log(x) - 0.5 * z - w * (1 / 12 - w * (1 / 120 - w * (1 / 252 - w * (
        1 / 240 - w * (1 / 132 - w * 691 / 32760)))))  # fmt: skip
    trigamma += z + 0.5 * w + z * w * (1 / 6 - w * (1 / 30 - w * (1 / 42 - w * (
        1 / 30 - w * (5 / 66 - w * 691 / 2730)))))  # fmt: skip
    tetragamma -= w + z * w + w * w * (1 / 2 - w * (1 / 6 - w * (1 / 6 - w * (
        3 / 10 - w * (5 / 6 - w * 691 / 210)))))  # fmt: skip
    return digamma, trigamma, tetragamma


@_jit
def negative_binomial(count, shape, expected):  # type: ignore[no-untyped-def]
    """`log_negative_binomial` of numbers."""
    ratio = expected / shape
    if not count > 0.0:
        return -shape * math.log1p(ratio)
    if expected == 0.0:
        return -np.inf
    total = shape + count
    # distance of each from its mean given their sum, from their difference, which is exact
    gap = (expected - count) / (1.0 + ratio)
    parts = deviance(count, gap, total * (ratio / (1.0 + ratio)))
    parts += deviance(shape, -gap, total / (1.0 + ratio))
    remainder = stirling(total) - stirling(shape) - stirling(count)
    return remainder - parts - 0.5 * (math.log(2.0 * math.pi * count) + math.log1p(count / shape))


@numba.vectorize(cache=True)
def _negative_binomials(count, shape, expected):  # type: ignore[no-untyped-def]
    return negative_binomial(count, shape, expected)


@numba.vectorize(cache=True)
def _gamma_kernels(shape, x):  # type: ignore[no-untyped-def]
    if not x > 0.0:
        return 0.0
    remainder = 0.5 * math.log(shape) + _HALF_LOG_2PI + stirling(shape)
    return math.exp(-deviance(shape, x - shape, x) - remainder)


@_jit
def _beta_kernel(x, complement, a, b):  # type: ignore[no-untyped-def]
    if not (x > 0.0 and complement > 0.0):
        return 0.0
    m = a + b
    gap = m * x - a if x < 0.5 else b - m * complement
    log = stirling(m) - stirling(a) - stirling(b) - _HALF_LOG_2PI
    log += 0.5 * math.log(a / m * b) - deviance(a, gap, m * x) - deviance(b, -gap, m * complement)
    return math.exp(log)


@_jit
def _beta_fraction(x, complement, a, b):  # type: ignore[no-untyped-def]
    """P(theta <= x) over `beta_kernel` for x up to (a + 1) / (a + b + 2).

    The continued fraction of Didonato and Morris (1992), Algorithm 708.
    """
    m = a + b
    lean = (a - m * x if x < 0.5 else m * complement - b) + 1.0
    inverse = 1.0 / (a + 1.0)
    last, value = 0.0, 1.0 / (a * lean * inverse)
    bottom = value  # denominator of the last convergent over this one's
    for n in range(1, _MOST_TERMS):
        share = n * (b - n) * x * inverse
        top = (a + n - 1.0) * (m + n - 1.0) * x * inverse * share
        inverse = 1.0 / (a + 2.0 * n + 1.0)
        term = n + share + (a + n) * (lean + n * (1.0 + complement)) * inverse
        scale = 1.0 / (term + top * bottom)
        new = (term * value + top * last) * scale
        last, bottom = value * scale, scale
        if abs(new - value) <= _ERROR * new:
            return new
        value = new
    return value


@numba.vectorize(cache=True)
def _beta_kernels(x, complement, a, b):  # type: ignore[no-untyped-def]
    return _beta_kernel(x, complement, a, b)


@numba.vectorize(cache=True)
def _beta_tails(x, complement, a, b):  # type: ignore[no-untyped-def]
    if not x > 0.0:
        return 1.0
    kernel = _beta_kernel(x, complement, a, b)
    if x < (a + 1.0) / (a + b + 2.0):
        return 1.0 - min(kernel * _beta_fraction(x, complement, a, b), 1.0)
    return min(kernel * _beta_fraction(complement, x, b, a), 1.0) if complement > 0.0 else 0.0


def log_negative_binomial(count: ArrayLike, shape: ArrayLike, expected: ArrayLike) -> Floats:
    """Log probability of a negative binomial count with this mean and Gamma shape."""
    return compiled(_negative_binomials, count, shape, expected)


def gamma_kernel(shape: ArrayLike, x: ArrayLike) -> Floats:
    """x^a e^-x / Gamma(a + 1), with a relative error that does not grow with the shape."""
    return compiled(_gamma_kernels, shape, x)


def beta_kernel(x: ArrayLike, complement: ArrayLike, a: ArrayLike, b: ArrayLike) -> Floats:
    """x^a (1 - x)^b / B(a, b), given also its complement 1 - x with all its digits."""
    return compiled(_beta_kernels, x, complement, a, b)


def beta_tail(x: Floats, complement: Floats, a: Floats, b: Floats) -> Floats:
    """P(theta > x), given also the complement 1 - x to full precision.

    SciPy's takes ten times as long where a and b are moderate, and serves where both are large.
    """
    large = np.minimum(a, b) > _LARGE
    tail = compiled(_beta_tails, x, complement, np.where(large, 1.0, a), np.where(large, 1.0, b))
    return np.where(large, special.betaincc(a, b, x), tail) if large.any() else tail


def negative_binomial_tail(
    count: Floats, shape: Floats, ratio: Floats, above: bool = False
) -> Floats:
    """P(Y <= count), or P(Y > count), of counts of mean shape times ratio and this Gamma shape.

    An incomplete beta function at ratio / (1 + ratio), or at its complement if that is smaller.
    """
    direct, mirrored = (
        (special.betainc, special.betaincc) if above else (special.betaincc, special.betainc)
    )
    below = ratio <= 1.0
    low, high = np.where(below, ratio, 1.0), np.where(below, 1.0, ratio)
    return np.where(
        below,
        direct(count + 1.0, shape, low / (1.0 + low)),
        mirrored(shape, count + 1.0, 1.0 / (1.0 + high)),
    )
