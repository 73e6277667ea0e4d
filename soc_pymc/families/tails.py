"""Tails, partial expectations and draws of Gamma and Normal posteriors, sound in the limits.

All functions take the two numbers that `MixedPosterior` holds, shape and rate or mean and variance,
and broadcast.
"""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import special

from .special_forms import gamma_kernel, gamma_lower, gamma_upper

__all__ = ["GAMMA", "NORMAL", "Conjugate"]

Floats = NDArray[np.float64]

_LOG_ROOT_2PI = 0.5 * float(np.log(2.0 * np.pi))
_NEAR = 0.5  # share of the shape below which the lower partial expectation is a series
_TERMS = 80  # of that series: 0.5^80 is 1e-24
_TINY = 1e-300  # below it the cdf of a Gamma comes from its logarithm
_LEAST_SHAPE = 1.0  # shapes below it are drawn as of one more, and moved: small ones underflow


class Conjugate(Protocol):
    """Distribution of theta given a draw of the curves and the outcome."""

    def mean(self, first: Floats, second: Floats) -> Floats:
        """E(theta)."""

    def variance(self, first: Floats, second: Floats) -> Floats:
        """Var(theta)."""

    def above(self, cut: Floats, first: Floats, second: Floats) -> Floats:
        """P(theta > cut)."""

    def excess(self, cut: Floats, first: Floats, second: Floats) -> Floats:
        """E[(theta - cut)+]."""

    def shortfall(self, cut: Floats, first: Floats, second: Floats) -> Floats:
        """E[(cut - theta)+]."""

    def draw(self, first: Floats, second: Floats, rngs: tuple[np.random.Generator, ...]) -> Floats:
        """Draws of theta on a scale that keeps their order, one for each element, row by row."""

    def natural(self, drawn: Floats) -> Floats:
        """Theta from that scale."""

    def above_drawn(self, drawn: Floats, first: Floats, second: Floats) -> Floats:
        """P(theta > a value on that scale)."""


class _Gamma:
    """Theta ~ Gamma(shape, rate); draws are of log theta."""

    def mean(self, first: Floats, second: Floats) -> Floats:
        return first / second

    def variance(self, first: Floats, second: Floats) -> Floats:
        return first / second / second

    def above(self, cut: Floats, first: Floats, second: Floats) -> Floats:
        return np.asarray(gamma_upper(first, np.maximum(cut, 0.0) * second))

    def excess(self, cut: Floats, first: Floats, second: Floats) -> Floats:
        """(a - x) Q(a, x) + x^a e^-x / Gamma(a), over the rate, for x = rate cut."""
        x = np.maximum(cut, 0.0) * second
        inside = (first - x) * gamma_upper(first, x) + first * gamma_kernel(first, x)
        # an expectation of a number > 0, also where rounding says otherwise
        found = np.maximum(inside, 0.0) / second
        return np.where(cut > 0, found, first / second - cut)

    def shortfall(self, cut: Floats, first: Floats, second: Floats) -> Floats:
        """(x - a) P(a, x) + x^a e^-x / Gamma(a), over the rate; far below the mean by a series."""
        x = np.maximum(cut, 0.0) * second
        a, x = np.broadcast_arrays(first, x)
        bell = gamma_kernel(a, x)
        inside = np.maximum((x - a) * gamma_lower(a, x) + a * bell, 0.0)
        far = x < _NEAR * a
        if far.any():
            inside = np.array(inside)
            inside[far] = bell[far] * _series(a[far], x[far])
        return np.asarray(inside / second)

    def draw(self, first: Floats, second: Floats, rngs: tuple[np.random.Generator, ...]) -> Floats:
        small = first < _LEAST_SHAPE
        drawn = np.log(rngs[0].standard_gamma(np.where(small, first + 1.0, first)))
        if small.any():
            # Gamma(a) is Gamma(a + 1) U^(1/a), whose logarithm does not underflow
            drawn[small] -= rngs[1].standard_exponential(int(small.sum())) / first[small]
        return drawn - np.log(second)

    def natural(self, drawn: Floats) -> Floats:
        return np.exp(drawn)

    def above_drawn(self, drawn: Floats, first: Floats, second: Floats) -> Floats:
        log_x = drawn + np.log(second)
        # a theta beyond all numbers has tail 0; one below them is mended after
        with np.errstate(over="ignore", under="ignore"):
            x = np.exp(log_x)
            found = gamma_upper(first, x)
        lost = x < _TINY
        if lost.any():
            a, at = np.broadcast_to(first, x.shape)[lost], log_x[lost]
            found[lost] = -np.expm1(np.minimum(a * at - special.gammaln(a + 1.0), 0.0))
        return np.asarray(found)


class _Normal:
    """Theta ~ Normal(mean, variance); draws are of theta."""

    def mean(self, first: Floats, second: Floats) -> Floats:
        return first

    def variance(self, first: Floats, second: Floats) -> Floats:
        return second

    def above(self, cut: Floats, first: Floats, second: Floats) -> Floats:
        return np.asarray(special.ndtr((first - cut) / np.sqrt(second)))

    def excess(self, cut: Floats, first: Floats, second: Floats) -> Floats:
        """Sd times phi(z) - z Phi(-z), for z = (cut - mean) / sd."""
        sd = np.sqrt(second)
        return sd * _normal_excess((cut - first) / sd)

    def shortfall(self, cut: Floats, first: Floats, second: Floats) -> Floats:
        sd = np.sqrt(second)
        return sd * _normal_excess((first - cut) / sd)

    def draw(self, first: Floats, second: Floats, rngs: tuple[np.random.Generator, ...]) -> Floats:
        return first + np.sqrt(second) * rngs[0].standard_normal(np.shape(first))

    def natural(self, drawn: Floats) -> Floats:
        return drawn

    def above_drawn(self, drawn: Floats, first: Floats, second: Floats) -> Floats:
        return self.above(drawn, first, second)


GAMMA: Conjugate = _Gamma()
"""Shape and rate."""
NORMAL: Conjugate = _Normal()
"""Mean and variance."""


def _series(a: Floats, x: Floats) -> Floats:
    """Sum over m >= 1 of m x^m / ((a + 1) ... (a + m)): all terms are positive."""
    total, term = np.zeros_like(a), np.ones_like(a)
    for m in range(1, _TERMS):
        term = term * (x / (a + m))
        total += m * term
    return total


def _normal_excess(z: Floats) -> Floats:
    """phi(z) - z Phi(-z), by the scaled complement above 0: both terms underflow together."""
    up = np.maximum(z, 0.0)
    density = np.exp(-0.5 * up * up - _LOG_ROOT_2PI)
    scaled = np.sqrt(0.5 * np.pi) * special.erfcx(up / np.sqrt(2.0))
    above = density * np.maximum(1.0 - up * scaled, 0.0)
    down = np.minimum(z, 0.0)
    below = np.exp(-0.5 * down * down - _LOG_ROOT_2PI) - down * special.ndtr(-down)
    return np.asarray(np.where(z > 0, above, below))
