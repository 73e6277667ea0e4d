"""Special functions that SciPy lacks, or that take it ten times as long.

Differences of log Gamma functions cancel. Loader's saddle-point form (2000) of probabilities has
terms that do not: deviances, and the remainders of Stirling's formula.
"""

import math

import numba
import numpy as np
from scipy import special

from .._lib.arrays import Floats

_HALF_LOG_2PI = 0.5 * float(np.log(2.0 * np.pi))
_LEAST_STIRLING = 16.0  # smallest argument for Stirling's series
_LEAST_POLYGAMMA = 10.0  # and of those of polygamma functions
_NEAR = 0.3  # largest argument of a series about 0
_ERROR, _MOST_TERMS = 2e-15, 10_000  # for the continued fraction of a Beta's tail
_LARGE = 1e5  # smaller parameter beyond which it has hundreds of terms
_SINGLE = 256  # numbers of successes whose probabilities are added up at the distribution's end
_MOST_SUMMED = 1000  # numbers of successes that are added up one by one
_SDS, _TAILS = 10.0, 40.0  # sds, and Gamma tails, below which nothing is left of the lower tail
_NODE, _SHARE = np.polynomial.legendre.leggauss(96)

_jit = numba.njit(cache=True, nogil=True, error_model="numpy")
_TYPES = [] if numba.config.DISABLE_JIT else ["float64(float64, float64, float64)"]
_of_three = numba.vectorize(_TYPES, cache=True)
_of_four = numba.vectorize([text.replace("(", "(float64, ") for text in _TYPES], cache=True)


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


@_of_three
def log_negative_binomial(count, shape, expected):  # type: ignore[no-untyped-def]
    """Log probability of a negative binomial count with this mean and Gamma shape."""
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


@_of_four
def beta_kernel(x, complement, a, b):  # type: ignore[no-untyped-def]
    """x^a (1 - x)^b / B(a, b), given also its complement 1 - x with all its digits."""
    if not (x > 0.0 and complement > 0.0):
        return 0.0
    m = a + b
    gap = m * x - a if x < 0.5 else b - m * complement
    log = stirling(m) - stirling(a) - stirling(b) - _HALF_LOG_2PI
    log += 0.5 * math.log(a / m * b) - deviance(a, gap, m * x) - deviance(b, -gap, m * complement)
    return math.exp(log)


@_jit
def _beta_fraction(x, complement, a, b):  # type: ignore[no-untyped-def]
    # the continued fraction of Didonato and Morris (1992), Algorithm 708, for P(theta <= x) over
    # `beta_kernel`, for x up to (a + 1) / (a + b + 2)
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


@_of_four
def _beta_tail(x, complement, a, b):  # type: ignore[no-untyped-def]
    if not x > 0.0:
        return 1.0
    kernel = beta_kernel(x, complement, a, b)
    if x < (a + 1.0) / (a + b + 2.0):
        return 1.0 - min(kernel * _beta_fraction(x, complement, a, b), 1.0)
    return min(kernel * _beta_fraction(complement, x, b, a), 1.0) if complement > 0.0 else 0.0


@_of_four
def log_beta_binomial(y, n, a, b):  # type: ignore[no-untyped-def]
    """Log probability of y successes in n trials, theta ~ Beta(a, b); y need not be whole."""
    # given their sum, negative binomials of shapes a and b and of one ratio are Beta-Binomial
    m = a + b
    log_ratio = log_negative_binomial(y, a, n * (a / m))
    log_ratio += log_negative_binomial(n - y, b, n * (b / m))
    return log_ratio - log_negative_binomial(n, m, n)


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
    """P(Y <= y) up to about the mean; of many numbers an integral over the root of y."""
    if y < 0.0:
        return 0.0
    m = a + b
    sd = math.sqrt(n * (a / m) * (b / m) * ((m + n) / (m + 1.0)))
    low = max(0.0, math.floor(y - _SDS * sd - _TAILS * (1.0 + n / m)))
    at_y = math.exp(log_beta_binomial(y, n, a, b))
    if y - low < _MOST_SUMMED:
        return _added(y, low, at_y, n, a, b)
    last = low + _SINGLE - 1.0
    at_last = math.exp(log_beta_binomial(last, n, a, b))
    total = _added(last, low, at_last, n, a, b)
    change = math.exp(log_beta_binomial(last + 1.0, n, a, b)) - at_last
    change -= math.exp(log_beta_binomial(y + 1.0, n, a, b)) - at_y
    total += change / 24.0
    begin = math.sqrt(last + 0.5)
    half = 0.5 * (math.sqrt(y + 0.5) - begin)
    for i in range(len(_NODE)):
        root = begin + half * (1.0 + _NODE[i])
        total += 2.0 * half * _SHARE[i] * root * math.exp(log_beta_binomial(root * root, n, a, b))
    return total


@_of_four
def beta_binomial_cdf(y, n, a, b):  # type: ignore[no-untyped-def]
    """P(Y <= y) of successes in n trials, theta ~ Beta(a, b)."""
    if y * b <= (n - y) * a:  # at most the mean
        return min(_tail(y, n, a, b), 1.0)
    return max(1.0 - _tail(n - y - 1.0, n, b, a), 0.0)


def beta_tail(x: Floats, complement: Floats, a: Floats, b: Floats) -> Floats:
    """P(theta > x), given also the complement 1 - x to full precision; large ones are SciPy's."""
    large = np.minimum(a, b) > _LARGE
    tail = _beta_tail(x, complement, np.where(large, 1.0, a), np.where(large, 1.0, b))
    return np.where(large, special.betaincc(a, b, x), tail) if large.any() else np.asarray(tail)
