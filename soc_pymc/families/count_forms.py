"""Counts y ~ Poisson(theta N), and successes y ~ Binomial(n, theta)."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.random import Generator
from scipy import optimize, special

from .._lib.arrays import Bools, Floats
from .._lib.errors import ItemsError
from .kinds import OutcomeForms, Pair
from .row_sums import Columns
from .scales import LOG, LOGIT

_SMALL_RATE = 0.05  # below which Poisson and Binomial noise hardly differ
# expected counts above exposures; in between, none is not evidence
_FEW = 0.1
_MANY = 5.0
_TRIALS = (
    "exposures are whole numbers, no count exceeds its exposure, and the overall rate is "
    "{rate:.3g}: these look like successes in trials, whose noise is smaller than Poisson noise by "
    "a factor of {ratio:.3g}, so that item intervals are wrong: use soc.BinomialItems(..., "
    "successes=, trials=)"
)


class _PoissonForms(OutcomeForms):
    zeros = "zero counts"
    scale = LOG

    def excess(
        self, groups: Columns, part: Any
    ) -> tuple[Bools, Floats, Floats, Floats]:
        # given its sum m, the counts of n items are multinomial: the sum of their squares has
        # variance 2 m (m - 1) (1 - 1/n) sum p^2; units are the group's expected count
        known = (groups["sum_y"] > 1) & (groups["n"] > 1)
        squares, (n, x1, x2, y1, rate) = _residual_squares(groups, known)
        expected = rate * x2 / x1
        noise = y1 - expected
        if not part[
            "above"
        ].any():  # trials; mu (1 - mu) of X of them is low by 1 - 1/X
            noise = noise * (1 - rate) / np.maximum(1 - 1 / x1, 1e-9)
        # whole numbers would overflow beyond 3e9 events
        variance = 2.0 * y1 * (y1 - 1.0) * (1 - 1 / n) * x2 / x1**2
        return (
            known,
            (squares - noise) / expected,
            variance / expected**2,
            noise / expected,
        )

    def doubt(self, table: Callable[[str], Columns]) -> str:
        part = table("part")
        margin = table("exposure")
        total = float(part["sum_N"].sum())
        events = float(part["sum_y"].sum())
        # sums of exposures that are not whole numbers are hardly whole in every cell
        are_whole = margin["sum_N"] == np.floor(margin["sum_N"])
        possible = total > 0 and are_whole.all() and part["above"].sum() == 0
        rate = events / max(total, 1e-300)
        sizes = margin["sum_N"] / margin["n"]
        if possible and _look_like_trials(sizes, margin["n"], rate):
            return _TRIALS.format(rate=rate, ratio=1.0 - rate)
        return ""

    def doubtful(self, y: Floats, size: Floats, tight: bool = False) -> bool:
        if not (size.any() and (size == np.floor(size)).all() and (y <= size).all()):
            return False
        rate = float(y.sum() / size.sum())
        return (tight and rate > _SMALL_RATE) or _look_like_trials(
            size, np.ones(len(size)), rate
        )

    def other_width(
        self, y: Floats, size: Floats, mean: Floats, variance: Floats
    ) -> Floats:
        observed = size > 0
        share = np.minimum(mean, 1.0)
        # both noises leave the same total variance, V + E/N: the rest of it is theta's own
        ratio = 1.0 + mean[observed] ** 2 / (size[observed] * variance[observed])
        return np.asarray(np.sqrt(ratio * (1.0 - share[observed])))

    def log_likelihood(self, y: Floats, size: Floats, theta: Floats) -> Floats:
        expected = size * theta
        finite = np.isfinite(expected)
        known = np.where(finite, expected, 1.0)
        value = special.xlogy(y, known) - known - special.gammaln(y + 1.0)
        return np.where(finite, value, -np.inf)

    def thinned(self, y: Floats, size: Floats, fraction: float, rng: Generator) -> Pair:
        return rng.binomial(y.astype(np.int64), fraction).astype(float), fraction * size

    def noise(self, mean: Floats, variance: Any = 0.0) -> Floats:
        return mean

    def contrast(
        self, y: Floats, size: Floats, fresh_y: Floats, fresh_size: Floats
    ) -> Pair:
        # counts less their expectation given both, and its binomial variance; a common factor of
        # all fresh rates is found by Newton's method on its logarithm
        counts = y + fresh_y
        # an outcome without exposure has no odds; such items are left out below
        with np.errstate(divide="ignore", invalid="ignore"):
            odds = np.log(size) - np.log(fresh_size)
        known = (counts > 0) & np.isfinite(odds)
        if not known.any() or y[known].sum() in (0, counts[known].sum()):
            raise ItemsError(
                "fresh=: there are no counts in both outcomes of items seen twice"
            )

        def residuals(factor: float) -> Pair:
            share = special.expit(np.where(known, odds, 0.0) + factor)
            weight = counts * share * (1 - share)
            return np.where(known, y - counts * share, 0.0), np.where(
                known, weight, 0.0
            )

        most = 40.0 + np.abs(odds[known]).max()
        return residuals(
            optimize.brentq(lambda factor: residuals(factor)[0].sum(), -most, most)
        )


def _look_like_trials(size: Floats, items: Floats, rate: float) -> bool:
    """Return True if whole exposures, exceeded by no count, are likely to be trials."""
    above = float(
        items @ special.gammainc(size + 1.0, rate * size)
    )  # expected if Poisson
    return rate > _SMALL_RATE and not _FEW < above < _MANY


class _BinomialForms(OutcomeForms):
    zeros = "zero successes"
    scale = LOGIT

    def excess(
        self, groups: Columns, part: Any
    ) -> tuple[Bools, Floats, Floats, Floats]:
        # in units of the variance of the group's successes in an item of typical size
        known = (
            (groups["sum_y"] > 0)
            & (groups["sum_N"] > groups["sum_y"])
            & (groups["n"] > 1)
        )
        known &= (
            groups["sum_N2"] > groups["sum_N"]
        )  # single trials vary by nothing but noise
        squares, (n, x1, x2, y1, rate) = _residual_squares(groups, known)
        # mu (1 - mu) of X trials is low by a factor of 1 - 1/X
        noise = (y1 - rate * x2 / x1) * (1.0 - rate) / np.maximum(1.0 - 1.0 / x1, 1e-9)
        unit = rate * (1.0 - rate) * x2 / x1
        variance = 2.0 * (rate * (1.0 - rate)) ** 2 * (1.0 - 1.0 / n) * (x2 - x1)
        return known, (squares - noise) / unit, variance / unit**2, noise / unit

    def log_likelihood(self, y: Floats, size: Floats, theta: Floats) -> Floats:
        inside = (theta >= 0) & (theta <= 1)
        known = np.where(inside, theta, 0.5)
        value = special.xlogy(y, known) + special.xlog1py(size - y, -known)
        choose = special.gammaln(size + 1.0) - special.gammaln(y + 1.0)
        return np.where(
            inside, value + choose - special.gammaln(size - y + 1.0), -np.inf
        )

    def thinned(self, y: Floats, size: Floats, fraction: float, rng: Generator) -> Pair:
        successes = y.astype(np.int64)
        trials = size.astype(np.int64)
        held = rng.binomial(trials, fraction)
        successes_held = rng.hypergeometric(successes, trials - successes, held)
        return successes_held.astype(float), held.astype(float)

    def noise(self, mean: Floats, variance: Any = 0.0) -> Floats:
        return mean * (1.0 - mean) - variance

    def contrast(
        self, y: Floats, size: Floats, fresh_y: Floats, fresh_size: Floats
    ) -> Pair:
        # given both, the successes are hypergeometric; a common shift of fresh rates is taken out
        trials = size + fresh_size
        successes = y + fresh_y
        known = (size > 0) & (fresh_size > 0) & (successes > 0) & (successes < trials)
        if not known.any():
            raise ItemsError(
                "fresh=: there are no successes and failures in both outcomes of items seen twice"
            )
        known_trials = np.where(known, trials, 2.0)
        rate = successes / known_trials
        residual = np.where(known, y - rate * size, 0.0)
        weight = (
            size
            * fresh_size
            / np.maximum(known_trials - 1.0, 1.0)
            * rate
            * (1.0 - rate)
        )
        weight = np.where(known, weight, 0.0)
        return residual - weight * (residual.sum() / weight.sum()), weight


def _residual_squares(
    groups: Columns, known: Bools
) -> tuple[Floats, tuple[Floats, ...]]:
    """Squared residuals from the rates of groups, and their n, sums of x, x^2, y, and rate."""
    names = ("n", "sum_N", "sum_N2", "sum_y", "sum_yN", "sum_y2")
    n, x1, x2, y1, xy, y2 = (groups[name][known] for name in names)
    rate = y1 / x1
    return y2 - 2.0 * rate * xy + rate**2 * x2, (n, x1, x2, y1, rate)


POISSON_FORMS = _PoissonForms()
BINOMIAL_FORMS = _BinomialForms()
