"""Successes y ~ Binomial(n, theta): functions that do not depend on the prior of theta."""

from typing import Any

import numpy as np
from scipy import special

from .._lib.arrays import Bools, Floats
from .._lib.errors import ItemsError
from .forms import OutcomeForms, fitted_line
from .row_sums import Columns


class _BinomialForms(OutcomeForms):
    """`OutcomeForms` of successes."""

    zeros = "zero successes"

    # --- sums and cells

    def cell_range(self, cells: Columns) -> tuple[Floats, Floats]:
        # the ends of a uniform distribution with the cell's mean and variance
        n = cells["n"]
        mean = cells["sum_y"] / n
        variance = cells["sum_y2"] / n - mean**2
        reach = np.sqrt(3.0 * np.maximum(variance, 0.0))
        low = np.floor(mean - reach + 0.5)
        return np.maximum(low, 0.0), np.maximum(np.ceil(mean + reach - 0.5), low)

    def excess(self, groups: Columns, part: Any) -> tuple[Bools, Floats, Floats, Floats]:
        # in units of the variance of the group's successes in an item of typical size
        known = (groups["sum_y"] > 0) & (groups["sum_N"] > groups["sum_y"]) & (groups["n"] > 1)
        known &= groups["sum_N2"] > groups["sum_N"]  # single trials vary by nothing but noise
        names = ("n", "sum_N", "sum_N2", "sum_y", "sum_yN", "sum_y2")
        n, x1, x2, y1, xy, y2 = (groups[name][known] for name in names)
        rate = y1 / x1
        # mu (1 - mu) of X trials is low by a factor of 1 - 1/X
        noise = (y1 - rate * x2 / x1) * (1.0 - rate) / np.maximum(1.0 - 1.0 / x1, 1e-9)
        excess = y2 - 2.0 * rate * xy + rate**2 * x2 - noise
        unit = rate * (1.0 - rate) * x2 / x1
        variance = 2.0 * (rate * (1.0 - rate)) ** 2 * (1.0 - 1.0 / n) * (x2 - x1)
        return known, excess / unit, variance / unit**2, noise / unit

    # --- outcomes given theta

    def log_likelihood(self, y: Floats, size: Floats, theta: Floats) -> Floats:
        inside = (theta >= 0) & (theta <= 1)
        known = np.where(inside, theta, 0.5)
        value = special.xlogy(y, known) + special.xlog1py(size - y, -known)
        choose = special.gammaln(size + 1.0) - special.gammaln(y + 1.0)
        value = value + choose - special.gammaln(size - y + 1.0)
        return np.where(inside, value, -np.inf)

    def wrong_scores(self, score: Floats, y: Floats) -> Bools:
        return (score < 0) | (score > 1) | ((score == 0) & (y > 0))

    def thinned(
        self, y: Floats, size: Floats, fraction: float, rng: np.random.Generator
    ) -> tuple[Floats, Floats]:
        successes, trials = y.astype(np.int64), size.astype(np.int64)
        held = rng.binomial(trials, fraction)
        successes_held = rng.hypergeometric(successes, trials - successes, held)
        return successes_held.astype(float), held.astype(float)

    # --- outcomes given the first two moments of theta

    def scatter(self, y: Floats, size: Floats, mean: Floats, variance: Floats) -> Floats:
        # weights as for counts, so that a few items cannot dominate
        expected = size * mean * (1.0 - mean)
        extra = (size - 1.0) * variance / (mean * (1.0 - mean))  # Var(y) = expected (1 + extra)
        extra = np.maximum(extra, 0.0)
        noise = 1.0 + 6.0 * extra * (1.0 + extra) + 2.0 * expected * (1.0 + extra)
        return np.asarray(((y - size * mean) ** 2 / noise).sum(axis=-1))

    def response(self, size: Floats, mean: Floats, variance: Floats) -> Floats:
        return size * variance / np.maximum(mean * (1.0 - mean) - variance, 1e-300)

    # --- calibration of the score

    def pooled_rate(self, total: float, weight: float) -> float:
        # of no successes half a success, of no failures half a failure
        return min(max(total, 0.5), weight - 0.5) / weight

    def regressor(self, penalty: float) -> Any:
        return _LogisticOfRates(penalty)

    def line(self, score: Floats, y: Floats, size: Floats) -> tuple[Floats, float]:
        inside = bool(((score > 0) & (score < 1)).all())
        x = special.logit(score) if inside else score
        level = float(special.logit((y.sum() + 0.5) / (size.sum() + 1.0)))

        def expected(predictor: Floats) -> tuple[Floats, Floats]:
            share = special.expit(predictor)
            return size * share, size * share * (1.0 - share)

        mean, slope = fitted_line(x, level, expected, y)
        share = mean / np.maximum(size, 1.0)
        return special.xlogy(y, share) + special.xlog1py(size - y, -share), slope

    def contrast(
        self, y: Floats, size: Floats, fresh_y: Floats, fresh_size: Floats
    ) -> tuple[Floats, Floats]:
        # given both, own successes are hypergeometric; a common shift of fresh rates is taken out
        trials, successes = size + fresh_size, y + fresh_y
        known = (size > 0) & (fresh_size > 0) & (successes > 0) & (successes < trials)
        if not known.any():
            raise ItemsError(
                "fresh=: there are no successes and failures in both outcomes of items seen twice"
            )
        known_trials = np.where(known, trials, 2.0)
        rate = successes / known_trials
        residual = np.where(known, y - rate * size, 0.0)
        weight = size * fresh_size / np.maximum(known_trials - 1.0, 1.0) * rate * (1.0 - rate)
        weight = np.where(known, weight, 0.0)
        return residual - weight * (residual.sum() / weight.sum()), weight


class _LogisticOfRates:
    """Logistic regression of rates with weights, in scikit-learn's manner."""

    def __init__(self, penalty: float) -> None:
        self._penalty = penalty

    def fit(self, x: Any, rate: Floats, sample_weight: Floats) -> "_LogisticOfRates":
        """Fit to a success of weight `rate` and a failure of the rest, for each line."""
        from sklearn.linear_model import LogisticRegression

        weight = np.concatenate([sample_weight * rate, sample_weight * (1.0 - rate)])
        strength = 1.0 / max(self._penalty * float(np.sum(sample_weight)), 1e-12)
        self._model = LogisticRegression(C=strength, tol=1e-8, max_iter=1000)
        labels = np.repeat([1, 0], len(rate))
        self._model.fit(np.concatenate([x, x]), labels, sample_weight=weight)
        return self

    def predict(self, x: Any) -> Floats:
        """Rates."""
        return np.asarray(self._model.predict_proba(x)[:, 1])


BINOMIAL_FORMS = _BinomialForms()
