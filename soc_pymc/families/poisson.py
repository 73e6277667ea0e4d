"""Counts y ~ Poisson(theta N): functions that do not depend on the prior of theta."""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import special

from .._lib.arrays import Bools, Floats
from .._lib.errors import ItemsError
from .forms import OutcomeForms, fitted_line
from .row_sums import Columns
from .scales import count_cell_range

_SMALL_RATE = 0.05  # below which Poisson and Binomial noise hardly differ
_FEW, _MANY = 0.1, 5.0  # expected counts above exposures; in between, none is not evidence
_TRIALS = (
    "exposures are whole numbers, no count exceeds its exposure, and the overall rate is "
    "{rate:.3g}: these look like successes in trials, whose noise is smaller than Poisson noise by "
    "a factor of {ratio:.3g}, so that item intervals are wrong: use soc.BinomialItems(..., "
    "successes=, trials=)"
)


class _PoissonForms(OutcomeForms):
    """`OutcomeForms` of counts."""

    zeros = "zero counts"

    # --- sums and cells

    def cell_range(self, cells: Columns) -> tuple[Floats, Floats]:
        low, width = count_cell_range(cells["count_cell"])
        return low, low + np.maximum(width - 1.0, 0.0)

    def excess(self, groups: Columns, part: Any) -> tuple[Bools, Floats, Floats, Floats]:
        # given its sum m, the counts of n items are multinomial: the sum of their squares has
        # variance 2 m (m - 1) (1 - 1/n) sum p^2; units are the group's expected count
        known = (groups["sum_y"] > 1) & (groups["n"] > 1)
        names = ("n", "sum_N", "sum_N2", "sum_y", "sum_yN", "sum_y2")
        n, x1, x2, y1, xy, y2 = (groups[name][known] for name in names)
        rate = y1 / x1
        expected = rate * x2 / x1
        noise = y1 - expected
        if not part["above"].any():  # trials; mu (1 - mu) of X of them is low by 1 - 1/X
            noise = noise * (1 - rate) / np.maximum(1 - 1 / x1, 1e-9)
        excess = y2 - 2 * rate * xy + rate**2 * x2 - noise
        # whole numbers would overflow beyond 3e9 events
        variance = 2.0 * y1 * (y1 - 1.0) * (1 - 1 / n) * x2 / x1**2
        return known, excess / expected, variance / expected**2, noise / expected

    # --- doubts about the noise

    def doubt(self, table: Callable[[str], Columns]) -> str:
        part, margin = table("part"), table("exposure")
        total, events = float(part["sum_N"].sum()), float(part["sum_y"].sum())
        # sums of exposures that are not whole numbers are hardly whole in every cell
        are_whole = margin["sum_N"] == np.floor(margin["sum_N"])
        if not (total > 0 and are_whole.all() and part["above"].sum() == 0):
            return ""
        rate = events / total
        if not _look_like_trials(margin["sum_N"] / margin["n"], margin["n"], rate):
            return ""
        return _TRIALS.format(rate=rate, ratio=1.0 - rate)

    def doubtful(self, y: Floats, size: Floats, tight: bool = False) -> bool:
        if not _could_be_trials(y, size) or not size.any():
            return False
        rate = float(y.sum() / size.sum())
        if tight and rate > _SMALL_RATE:
            return True
        return _look_like_trials(size, np.ones(len(size)), rate)

    def other_width(self, y: Floats, size: Floats, mean: Floats, variance: Floats) -> Floats:
        observed, share = size > 0, np.minimum(mean, 1.0)
        # both noises leave the same total variance, V + E/N: the rest of it is theta's own
        ratio = 1.0 + mean[observed] ** 2 / (size[observed] * variance[observed])
        return np.asarray(np.sqrt(ratio * (1.0 - share[observed])))

    # --- outcomes given theta

    def log_likelihood(self, y: Floats, size: Floats, theta: Floats) -> Floats:
        expected = size * theta
        finite = np.isfinite(expected)
        known = np.where(finite, expected, 1.0)
        value = special.xlogy(y, known) - known - special.gammaln(y + 1.0)
        return np.where(finite, value, -np.inf)

    def wrong_scores(self, score: Floats, y: Floats) -> Bools:
        return (score < 0) | ((score == 0) & (y > 0))

    def thinned(
        self, y: Floats, size: Floats, fraction: float, rng: np.random.Generator
    ) -> tuple[Floats, Floats]:
        return rng.binomial(y.astype(np.int64), fraction).astype(float), fraction * size

    # --- outcomes given the first two moments of theta

    def scatter(self, y: Floats, size: Floats, mean: Floats, variance: Floats) -> Floats:
        # with Pearson's weight 1 / variance single events on tiny exposures would dominate
        expected = size * mean
        extra = size * variance / mean  # overdispersion: Var(y) = expected (1 + extra)
        # kappa_4 + 2 Var(y)^2 of the negative binomial, divided by Var(y)
        noise = 1.0 + 6.0 * extra * (1.0 + extra) + 2.0 * expected * (1.0 + extra)
        return np.asarray(((y - expected) ** 2 / noise).sum(axis=-1))

    def response(self, size: Floats, mean: Floats, variance: Floats) -> Floats:
        return size * variance / mean

    # --- calibration of the score

    def pooled_rate(self, total: float, weight: float) -> float:
        return max(total, 0.5) / weight  # of no events, half an event

    def regressor(self, penalty: float) -> Any:
        from sklearn.linear_model import PoissonRegressor

        return PoissonRegressor(alpha=penalty, solver="newton-cholesky", tol=1e-8, max_iter=1000)

    def line(self, score: Floats, y: Floats, size: Floats) -> tuple[Floats, float]:
        x = np.log(score) if bool((score > 0).all()) else score
        level = float(np.log((y.sum() + 0.5) / size.sum()))

        def expected(predictor: Floats) -> tuple[Floats, Floats]:
            return size * np.exp(predictor), size * np.exp(predictor)

        mean, slope = fitted_line(x, level, expected, y)
        return special.xlogy(y, mean) - mean, slope

    def contrast(
        self, y: Floats, size: Floats, fresh_y: Floats, fresh_size: Floats
    ) -> tuple[Floats, Floats]:
        # own counts less their expectation given both, and its binomial variance; a common factor
        # of all fresh rates is found by Newton's method on its logarithm
        counts = y + fresh_y
        # an outcome without exposure has no odds; such items are left out below
        with np.errstate(divide="ignore", invalid="ignore"):
            odds = np.log(size) - np.log(fresh_size)
        known = (counts > 0) & np.isfinite(odds)
        if not known.any() or y[known].sum() in (0, counts[known].sum()):
            raise ItemsError("fresh=: there are no counts in both outcomes of items seen twice")
        factor = 0.0
        for _ in range(50):
            share = special.expit(np.where(known, odds, 0.0) + factor)
            residual = np.where(known, y - counts * share, 0.0)
            weight = np.where(known, counts * share * (1 - share), 0.0)
            step = residual.sum() / weight.sum()
            factor += float(np.clip(step, -2.0, 2.0))
            if abs(step) < 1e-10:
                break
        return residual, weight


def _could_be_trials(y: Floats, size: Floats) -> bool:
    """Return True if counts could be successes in as many trials."""
    return bool((size == np.floor(size)).all() and (y <= size).all())


def _look_like_trials(size: Floats, items: Floats, rate: float) -> bool:
    """Return True if whole exposures, exceeded by no count, are likely to be trials."""
    above = float(items @ special.gammainc(size + 1.0, rate * size))  # expected if Poisson
    return rate > _SMALL_RATE and not _FEW < above < _MANY


POISSON_FORMS = _PoissonForms()
