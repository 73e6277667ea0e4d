"""Tails of Beta(a, b), compiled: a continued fraction, or an integral where both are large.

Didonato and Morris (1992), Algorithm 708, give the fraction, with the number of its terms as the
root of the smaller parameter. Beyond a few thousand the tail is the density times the integral of
the ratio of densities farther out, on the logit, by Gauss and Legendre.
"""

import math

import numba
import numpy as np
from numpy.typing import ArrayLike

from .._lib.arrays import Floats
from .special_forms import compiled, one_deviance, one_rest

_ERROR, _MOST_TERMS = 2e-15, 100_000  # of the fraction
_WIDE = 2000.0  # smaller parameter from which on the tail is an integral
_DROP = 38.0  # nats by which densities fall over the integral's range
_NORMAL = 1e13  # parameters from which on a logit is Normal to 1e-6
_NEAR = 0.5  # share of the mean below which a partial expectation is a series
_TERMS = 80  # of that series: 0.5^80 is 1e-24
_PLACE, _SHARE = (0.5 * x for x in np.polynomial.legendre.leggauss(24))
_PLACE += 0.5

_jit = numba.njit(cache=True, nogil=True, error_model="numpy")


@_jit
def beta_constant(a, b):  # type: ignore[no-untyped-def]
    """Log of sqrt(a b / (2 pi (a + b))) and of what Stirling's formula leaves, for the density."""
    m = a + b
    return one_rest(m) - one_rest(a) - one_rest(b) + 0.5 * math.log(a / m * b / (2.0 * math.pi))


@_jit
def _beyond_mean(x, rest, a, b):  # type: ignore[no-untyped-def]
    """How far a is above (a + b) x, with all digits of the smaller of x and `rest`."""
    return a - (a + b) * x if x < 0.5 else (a + b) * rest - b


@_jit
def logit_density(x, rest, a, b, constant):  # type: ignore[no-untyped-def]
    """x^a (1 - x)^b / B(a, b), the density of the logit, in Loader's saddle-point form."""
    m, away = a + b, -_beyond_mean(x, rest, a, b)
    return math.exp(constant - one_deviance(a, away, m * x) - one_deviance(b, -away, m * rest))


@_jit
def _fraction(x, rest, a, b):  # type: ignore[no-untyped-def]
    """P(theta <= x) over the logit's density there, for x up to (a + 1) / (a + b + 2)."""
    m, lean = a + b, _beyond_mean(x, rest, a, b) + 1.0
    inverse = 1.0 / (a + 1.0)
    last, value = 0.0, 1.0 / (a * lean * inverse)
    bottom = value  # denominator of the last convergent, over that of this one
    for n in range(1, _MOST_TERMS):
        share = n * (b - n) * x * inverse
        top = (a + n - 1.0) * (m + n - 1.0) * x * inverse * share
        inverse = 1.0 / (a + 2.0 * n + 1.0)
        term = n + share + (a + n) * (lean + n * (1.0 + rest)) * inverse
        scale = 1.0 / (term + top * bottom)
        new = (term * value + top * last) * scale
        last, bottom = value * scale, scale
        if abs(new - value) <= _ERROR * new:
            return new
        value = new
    return value


@_jit
def _integral(x, rest, a, b):  # type: ignore[no-untyped-def]
    """P(theta > x) over the logit's density there, for x above the mean and large a, b."""
    m = a + b
    slope, bend = -_beyond_mean(x, rest, a, b), m * x * rest
    reach = 2.0 * _DROP / (slope + math.sqrt(slope * slope + 2.0 * _DROP * bend))
    total = 0.0
    for i in range(len(_PLACE)):
        s = reach * _PLACE[i]
        if x < 0.5:  # the same in both forms, in terms that cancel less
            fall = a * s - m * math.log1p(x * math.expm1(s))
        else:
            fall = -b * s - m * math.log1p(rest * math.expm1(-s))
        total += _SHARE[i] * math.exp(fall)
    return reach * total


@_jit
def tails_and_density(x, rest, a, b, constant):  # type: ignore[no-untyped-def]
    """P(theta <= x), P(theta > x), and the density of logit theta there.

    `rest` is 1 - x, with all its digits, and `constant` that of `beta_constant`.
    """
    if not x > 0.0:
        return 0.0, 1.0, 0.0
    if not rest > 0.0:
        return 1.0, 0.0, 0.0
    m = a + b
    if min(a, b) > _NORMAL:
        per_sd = math.sqrt(a / m * b)  # of the logit
        z = (math.log(x) - math.log(rest) - math.log(a / b)) * per_sd
        density = math.exp(-0.5 * z * z) * per_sd / math.sqrt(2.0 * math.pi)
        return 0.5 * math.erfc(-z / math.sqrt(2.0)), 0.5 * math.erfc(z / math.sqrt(2.0)), density
    density = logit_density(x, rest, a, b, constant)
    if min(a, b) > _WIDE:
        if _beyond_mean(x, rest, a, b) > 0.0:
            below = density * _integral(rest, x, b, a)
            return below, 1.0 - below, density
        above = density * _integral(x, rest, a, b)
        return 1.0 - above, above, density
    if x < (a + 1.0) / (m + 2.0):
        below = min(density * _fraction(x, rest, a, b), 1.0)
        return below, 1.0 - below, density
    above = min(density * _fraction(rest, x, b, a), 1.0)
    return 1.0 - above, above, density


def beta_lower(x: ArrayLike, a: ArrayLike, b: ArrayLike) -> Floats:
    """P(theta <= x), with a small relative error in the tail too."""
    return compiled(_lower, x, a, b)


def beta_upper(x: ArrayLike, a: ArrayLike, b: ArrayLike) -> Floats:
    """P(theta > x), with a small relative error in the tail too."""
    return compiled(_upper, x, a, b)


def beta_excess(cut: ArrayLike, left: ArrayLike, a: ArrayLike, b: ArrayLike) -> Floats:
    """E[(theta - c)+] for cuts c in [0, 1], of which `left` = 1 - c is given with all its digits.

    (mean - c) P(theta > c) + c^a (1 - c)^b / (B(a, b) (a + b)); far above the mean it is a series.
    """
    return compiled(_excess, cut, left, a, b)


@numba.vectorize(cache=True)
def _lower(x, a, b):  # type: ignore[no-untyped-def]
    return tails_and_density(x, 1.0 - x, a, b, beta_constant(a, b))[0]


@numba.vectorize(cache=True)
def _upper(x, a, b):  # type: ignore[no-untyped-def]
    return tails_and_density(x, 1.0 - x, a, b, beta_constant(a, b))[1]


@numba.vectorize(cache=True)
def _excess(cut, left, a, b):  # type: ignore[no-untyped-def]
    m = a + b
    if not left > 0.0:
        return 0.0
    if not cut > 0.0:
        return a / m
    constant = beta_constant(a, b)
    if left < _NEAR * b / m:
        total, term = 0.0, 1.0 / b
        for k in range(_TERMS):
            total += term * (b + a * (k + 1.0)) / (m * (b + k + 1.0))
            term *= left * (m + k) / (b + k + 1.0)
        return logit_density(cut, left, a, b, constant) * left * total
    _, above, density = tails_and_density(cut, left, a, b, constant)
    return max(_beyond_mean(cut, left, a, b) * above + density, 0.0) / m
