"""Exact references by mpmath at 50 digits: log marginals of outcomes, and tails of theta.

Families go by the name of their prior. Curves are the family's own: log mean and log cv2 (Gamma),
mean and log variance (Normal), logit of the mean and log(1/a + 1/b) (Beta). Amounts have a shape.
"""

from collections.abc import Callable
from dataclasses import dataclass

import mpmath as mp

from tests.family_records import SHAPE

mp.mp.dps = 50

_GROWTH = mp.mpf("1.6")
_NEGLIGIBLE = mp.mpf(10) ** -20
Number = mp.mpf


def numbers(*values: float) -> list[Number]:
    """Returns floating point numbers as they are stored, exactly."""
    return [mp.mpf(float(value)) for value in values]


def prior(family: str, first: float, second: float) -> tuple[Number, Number]:
    """Conjugate parameters of the prior with these curves."""
    first, second = numbers(first, second)
    if family == "Gamma":
        return mp.exp(-second), mp.exp(-second - first)
    if family == "Normal":
        return first, mp.exp(second)
    if family == "InverseGamma":
        return 2 + mp.exp(-second), mp.exp(first) * (1 + mp.exp(-second))
    return mp.exp(-second) * (1 + mp.exp(first)), mp.exp(-second) * (1 + mp.exp(-first))


def _rising(alpha: Number, count: Number) -> Number:
    """Log of Gamma(alpha + count) / (Gamma(alpha) alpha^count)."""
    return mp.loggamma(alpha + count) - mp.loggamma(alpha) - count * mp.log(alpha)


def _log_marginal_terms(
    family: str, outcome: float, size: float, first: float, second: float
) -> list[Number]:
    """Terms whose sum is the log marginal of an outcome."""
    y, n = numbers(outcome, size)
    a, b = prior(family, first, second)
    if family == "Normal":
        total = b + n**2
        return [-((y - a) ** 2) / (2 * total), -mp.log(2 * mp.pi * total) / 2]
    if family == "Gamma":
        if n == 0:
            return [mp.mpf(0 if y == 0 else "-inf")]
        log_odds = -(a + y) * mp.log1p(n / b)
        return [_rising(a, y), y * mp.log(n * a / b), log_odds, -mp.loggamma(y + 1)]
    if family == "InverseGamma":
        if n == 0:
            return [mp.mpf(0 if y == 0 else "-inf")]
        n, ratio = SHAPE * n, SHAPE * y / b
        log_odds = -(a + n) * mp.log1p(ratio)
        return [_rising(a, n), n * mp.log(a * ratio), log_odds, -mp.loggamma(n), -mp.log(y)]
    choose = mp.loggamma(n + 1) - mp.loggamma(y + 1) - mp.loggamma(n - y + 1)
    binomial = [y * mp.log(a / (a + b)), (n - y) * mp.log(b / (a + b)), choose]
    return [*binomial, _rising(a, y), _rising(b, n - y), -_rising(a + b, n)]


def log_marginal(
    family: str, outcome: float, size: float, first: float, second: float
) -> tuple[Number, float]:
    """Log marginal, and the sum of the absolute values of its terms, which bounds rounding."""
    terms = _log_marginal_terms(family, outcome, size, first, second)
    return mp.fsum(terms), float(mp.fsum(terms, absolute=True))


@dataclass(frozen=True)
class _LogConcave:
    """A density on a scale where its logarithm is concave, with a typical width."""

    log_density: Callable[[Number], Number]
    slope: Callable[[Number], Number]
    width: Number

    def _outwards(self, start: Number, sign: int) -> Number:
        """Integral from `start` to one side, by Gauss-Legendre on intervals that grow."""
        steep = abs(self.slope(start))
        step = min(self.width, 4 / steep) if steep > 0 else self.width
        total, position, top = mp.mpf(0), start, self.log_density(start)
        while True:
            end = position + sign * step
            part = mp.quad(
                lambda u: mp.exp(self.log_density(u) - top),
                sorted([position, end]),
                method="gauss-legendre",
                maxdegree=4,
            )
            total += part
            if part < total * _NEGLIGIBLE and sign * self.slope(end) < 0:
                return total * mp.exp(top)
            position, step = end, step * _GROWTH

    def tails(self, cut: Number) -> tuple[Number, Number]:
        """Lower and upper tail; the one beyond the mode is integrated, so it has its digits."""
        if self.slope(cut) > 0:
            lower = self._outwards(cut, -1)
            return lower, 1 - lower
        upper = self._outwards(cut, 1)
        return 1 - upper, upper


def _log_gamma(shape: Number) -> _LogConcave:
    """Log of a Gamma variable of this shape and rate 1."""
    constant, width = mp.loggamma(shape), min(mp.mpf(1), 1 / mp.sqrt(shape))
    return _LogConcave(
        lambda u: shape * u - mp.exp(u) - constant, lambda u: shape - mp.exp(u), width
    )


def _logit_beta(a: Number, b: Number) -> _LogConcave:
    """Logit of a Beta variable."""
    constant = mp.loggamma(a) + mp.loggamma(b) - mp.loggamma(a + b)
    width = min(mp.mpf(1), mp.sqrt(1 / a + 1 / b) / 2)
    return _LogConcave(
        lambda u: -a * mp.log1p(mp.exp(-u)) - b * mp.log1p(mp.exp(u)) - constant,
        lambda u: a / (1 + mp.exp(u)) - b / (1 + mp.exp(-u)),
        width,
    )


def theta_tails(family: str, cut: float, a: float, b: float) -> dict[str, Number]:
    """P(theta <= cut), P(theta > cut), E(theta - cut)+, E(cut - theta)+ and the density of theta.

    Both expectations are (mean - cut) times a tail plus tau times the density, with tau = cut / b
    for a Gamma, cut^2 / (a - 1) for an inverse Gamma, the variance for a Normal and
    cut (1 - cut) / (a + b) for a Beta.
    """
    cut, a, b = numbers(cut, a, b)
    if family == "Gamma":
        law, position = _log_gamma(a), mp.log(b * cut)
        mean, rise, tau = a / b, 1 / cut, cut / b
    elif family == "InverseGamma":
        law, position = _log_gamma(a), mp.log(b / cut)
        mean, rise, tau = b / (a - 1), 1 / cut, cut**2 / (a - 1)
    elif family == "Beta":
        law, position = _logit_beta(a, b), mp.log(cut) - mp.log1p(-cut)
        mean, rise, tau = a / (a + b), 1 / (cut * (1 - cut)), cut * (1 - cut) / (a + b)
    else:
        law = _LogConcave(lambda u: -u * u / 2 - mp.log(2 * mp.pi) / 2, lambda u: -u, mp.mpf(1) / 2)
        position, mean, rise, tau = (cut - a) / mp.sqrt(b), a, 1 / mp.sqrt(b), b
    lower, upper = law.tails(position)
    if family == "InverseGamma":  # the position falls with theta
        lower, upper = upper, lower
    density = rise * mp.exp(law.log_density(position))
    excess = (mean - cut) * upper + tau * density
    shortfall = (cut - mean) * lower + tau * density
    values = (lower, upper, excess, shortfall, density)
    return dict(zip(("below", "above", "excess", "shortfall", "density"), values, strict=True))


def count_tails(count: float, shape: float, expected: float) -> tuple[Number, Number]:
    """P(Y <= count) and P(Y > count) of a negative binomial, by its Beta integral."""
    y, a, mean = mp.mpf(float(count)), mp.mpf(shape), mp.mpf(expected)
    above, upto = _logit_beta(y + 1, a).tails(mp.log(mean / a))
    return upto, above
