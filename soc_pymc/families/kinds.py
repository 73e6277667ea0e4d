"""Counts, successes and values: functions of outcomes that do not depend on the prior of theta."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.random import Generator
from scipy import optimize, special

from .._lib.arrays import Bools, Floats
from .._lib.errors import FitError, ItemsError
from .row_sums import Columns
from .scales import LINEAR, LOG, LOGIT, Scale

Pair = tuple[Floats, Floats]
_MOST_STEPS, _DAMPING = 100, 1e-9  # of Newton's method for regressions
_LOG_2PI = float(np.log(2.0 * np.pi))
_SMALL_RATE = 0.05  # below which Poisson and Binomial noise hardly differ
_FEW, _MANY = 0.1, 5.0  # expected counts above exposures; in between, none is not evidence
_ALIKE = 0.5  # correlation from which noise sds seem to be computed from the values
_RELATED = 0.2  # the same, given the mean
_LEAST_WRONG = 0.8  # share of the items that this concerns less
_TRIALS = (
    "exposures are whole numbers, no count exceeds its exposure, and the overall rate is "
    "{rate:.3g}: these look like successes in trials, whose noise is smaller than Poisson noise by "
    "a factor of {ratio:.3g}, so that item intervals are wrong: use soc.BinomialItems(..., "
    "successes=, trials=)"
)


class OutcomeForms(Protocol):
    """Functions of outcomes `y` and sizes (n,) of one kind; bodies serve counts and successes."""

    scale: Scale  # on which regressions are linear
    longest: float = 1.0  # step of their coefficients
    far: float = 300.0  # positions of theta that are as good as infinite
    zeros: str = ""  # name of the number of outcomes that are 0

    # --- sums and cells

    def mean_size(self, sums: Columns) -> Floats:
        """Size of a typical item of rows of the table of sizes, or of joint cells."""
        return np.asarray(sums["sum_N"] / sums["n"])

    def exposure_means(self, sums: Columns) -> tuple[Floats, Floats, Floats]:
        """Outcome and size averaged over units of exposure, and the exposure, of rows of sums."""
        total = sums["sum_N"]
        divisor = np.where(total > 0, total, 1.0)
        return sums["sum_yN"] / divisor, sums["sum_N2"] / divisor, total

    def cell_range(self, cells: Columns) -> Pair:
        """Smallest and largest outcome of joint cells."""
        low, high = _uniform_range(cells)
        low = np.maximum(np.floor(low + 0.5), 0.0)
        return low, np.maximum(np.ceil(high - 0.5), low)

    def excess(self, groups: Columns, part: Any) -> tuple[Bools, Floats, Floats, Floats]:
        """Mask of groups of items; their squared residuals less noise, with variance and noise."""

    # --- doubts about the noise

    def doubt(self, table: Callable[[str], Columns]) -> str:
        """Describe the evidence in tables of sums against this kind's noise; empty if none."""
        return ""

    def doubtful(self, y: Floats, size: Floats, tight: bool = False) -> bool:
        """Return True if outcomes (`tight` or not) and sizes speak against this noise."""
        return False

    def other_width(self, y: Floats, size: Floats, mean: Floats, variance: Floats) -> Floats:
        """Relative widths of intervals under the other noise, given moments of theta, (n,)."""
        return np.ones_like(mean)

    # --- outcomes given theta

    def log_likelihood(self, y: Floats, size: Floats, theta: Floats) -> Floats:
        """Log probability (density) of outcomes, (n,), in nats."""

    def loss(self, y: Floats, size: Floats, theta: Floats) -> Floats:
        """Denominator of percentage gains in log likelihood, (n,), >= 0."""
        return -self.log_likelihood(y, size, theta)

    def wrong_scores(self, score: Floats, y: Floats) -> Bools:
        """Mask of scores that cannot be estimates of theta, given the outcomes."""
        low, high = self.scale.low, self.scale.high
        return (score < low) | (score > high) | ((score == low) & (y > 0))

    def thinned(self, y: Floats, size: Floats, fraction: float, rng: Generator) -> Pair:
        """A random part of each outcome, and its size; `remainder` is independent of it."""

    def remainder(self, y: Any, size: Any, held: Pair, fraction: float) -> tuple[Any, Any]:
        """The rest of each outcome after thinning, and its size."""
        return y - held[0], size - held[1]

    # --- outcomes given the first two moments of theta

    def noise(self, mean: Floats, variance: Any = 0.0) -> Floats:
        """Expected variance of an outcome of size 1 about theta, from the moments of theta."""

    @property
    def summaries(self) -> Mapping[str, Callable[..., Floats]]:
        """Summaries of items to compare with replicates, by name: (y, size, mean, variance)."""
        zeros = {self.zeros: lambda y, *_: (y == 0).sum(axis=-1)} if self.zeros else {}
        return {"dispersion": self.scatter, **zeros}

    def scatter(self, y: Floats, size: Floats, mean: Floats, variance: Floats) -> Floats:
        """Sum over items of squared residuals, weighted to measure a common factor on variance."""
        # residuals^2 over kappa_4 + 2 Var(y)^2 in units of Var(y) = expected (1 + extra)
        unit = self.noise(mean)
        extra = np.maximum((self.noise(mean, variance) - unit + size * variance) / unit, 0.0)
        noise = 1.0 + 6.0 * extra * (1.0 + extra) + 2.0 * size * unit * (1.0 + extra)
        return np.asarray(((y - size * mean) ** 2 / noise).sum(axis=-1))

    def response(self, size: Floats, mean: Floats, variance: Floats) -> Floats:
        """Derivative of the posterior mean in the outcome's own estimate of theta."""
        return size * variance / np.maximum(self.noise(mean, variance), 1e-300)

    # --- calibration of the score

    def pooled_rate(self, total: float, weight: float) -> float:
        """Mean outcome; half an event stands for none, for which a likelihood would be 0."""
        low, high = self.scale.low * weight + 0.5, self.scale.high * weight - 0.5
        return min(max(total, low), high) / weight

    def weighted(self, y: Floats, size: Floats) -> Pair:
        """Weights, and outcomes times their weights: the ratio estimates theta."""
        return size, y

    def expected(self, predictor: Floats) -> Pair:
        """Theta at positions on the scale of theta, and its derivative."""
        theta = self.scale.score(np.clip(predictor, -self.far, self.far))
        return theta, self.noise(theta)

    def regression(self, x: Floats, weight: Floats, total: Floats, penalty: float = 0.0) -> Floats:
        """Coefficients (1 + k,) of a ridge-penalised generalised linear model on x."""
        design = np.column_stack([np.ones(len(x)), x])
        ridge = np.append(0.0, np.full(design.shape[1] - 1, penalty))
        coefficients = np.zeros(design.shape[1])
        pooled = self.pooled_rate(float(total.sum()), float(weight.sum()))
        coefficients[0] = self.scale.position(pooled)
        for _ in range(_MOST_STEPS):
            theta, slope = self.expected(design @ coefficients)
            information = (design.T * (weight * slope)) @ design + np.diag(ridge)
            damping = _DAMPING * np.trace(information) * np.eye(len(ridge))
            pull = design.T @ (total - weight * theta) - ridge * coefficients
            step = np.linalg.solve(information + damping, pull)
            coefficients += np.clip(step, -self.longest, self.longest)
            if np.abs(step).max() < 1e-9 * (1.0 + np.abs(coefficients).max()):
                break
        return coefficients

    def line(self, score: Floats, y: Floats, size: Floats) -> tuple[Floats, float]:
        """Log likelihood, (n,), and slope of a straight-line calibration of scores."""
        x = self.scale.position(score) if self.scale.holds(score).all() else score
        sd = float(x.std()) or 1.0
        standard = (x - x.mean()) / sd
        level, slope = self.regression(standard, *self.weighted(y, size))
        theta, _ = self.expected(level + slope * standard)
        return self.log_likelihood(y, size, theta), float(slope) / sd

    def contrast(self, y: Floats, size: Floats, fresh_y: Floats, fresh_size: Floats) -> Pair:
        """Outcomes less their prediction from fresh ones of the same items, and weights."""


def _uniform_range(cells: Columns) -> Pair:
    """Ends of uniform distributions with the cells' means and variances."""
    n = cells["n"]
    mean, square = cells["sum_y"] / n, cells["sum_y2"] / n
    variance = square - mean**2
    # a variance below the rounding of the sums is 0
    reach = np.sqrt(3.0 * np.where((n > 1) & (variance > 1e-12 * square), variance, 0.0))
    return mean - reach, mean + reach


def _residual_squares(groups: Columns, known: Bools) -> tuple[Floats, tuple[Floats, ...]]:
    """Squared residuals from the rates of groups, and their n, sums of x, x^2, y, and rate."""
    names = ("n", "sum_N", "sum_N2", "sum_y", "sum_yN", "sum_y2")
    n, x1, x2, y1, xy, y2 = (groups[name][known] for name in names)
    rate = y1 / x1
    return y2 - 2.0 * rate * xy + rate**2 * x2, (n, x1, x2, y1, rate)


# --- counts y ~ Poisson(theta N) -----------------------------------------------------------------


class _PoissonForms(OutcomeForms):
    zeros = "zero counts"
    scale = LOG

    def excess(self, groups: Columns, part: Any) -> tuple[Bools, Floats, Floats, Floats]:
        # given its sum m, the counts of n items are multinomial: the sum of their squares has
        # variance 2 m (m - 1) (1 - 1/n) sum p^2; units are the group's expected count
        known = (groups["sum_y"] > 1) & (groups["n"] > 1)
        squares, (n, x1, x2, y1, rate) = _residual_squares(groups, known)
        expected = rate * x2 / x1
        noise = y1 - expected
        if not part["above"].any():  # trials; mu (1 - mu) of X of them is low by 1 - 1/X
            noise = noise * (1 - rate) / np.maximum(1 - 1 / x1, 1e-9)
        # whole numbers would overflow beyond 3e9 events
        variance = 2.0 * y1 * (y1 - 1.0) * (1 - 1 / n) * x2 / x1**2
        return known, (squares - noise) / expected, variance / expected**2, noise / expected

    def doubt(self, table: Callable[[str], Columns]) -> str:
        part, margin = table("part"), table("exposure")
        total, events = float(part["sum_N"].sum()), float(part["sum_y"].sum())
        # sums of exposures that are not whole numbers are hardly whole in every cell
        are_whole = margin["sum_N"] == np.floor(margin["sum_N"])
        possible = total > 0 and are_whole.all() and part["above"].sum() == 0
        rate, sizes = events / max(total, 1e-300), margin["sum_N"] / margin["n"]
        if possible and _look_like_trials(sizes, margin["n"], rate):
            return _TRIALS.format(rate=rate, ratio=1.0 - rate)
        return ""

    def doubtful(self, y: Floats, size: Floats, tight: bool = False) -> bool:
        if not (size.any() and (size == np.floor(size)).all() and (y <= size).all()):
            return False
        rate = float(y.sum() / size.sum())
        return (tight and rate > _SMALL_RATE) or _look_like_trials(size, np.ones(len(size)), rate)

    def other_width(self, y: Floats, size: Floats, mean: Floats, variance: Floats) -> Floats:
        observed, share = size > 0, np.minimum(mean, 1.0)
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

    def contrast(self, y: Floats, size: Floats, fresh_y: Floats, fresh_size: Floats) -> Pair:
        # counts less their expectation given both, and its binomial variance; a common factor of
        # all fresh rates is found by Newton's method on its logarithm
        counts = y + fresh_y
        # an outcome without exposure has no odds; such items are left out below
        with np.errstate(divide="ignore", invalid="ignore"):
            odds = np.log(size) - np.log(fresh_size)
        known = (counts > 0) & np.isfinite(odds)
        if not known.any() or y[known].sum() in (0, counts[known].sum()):
            raise ItemsError("fresh=: there are no counts in both outcomes of items seen twice")

        def residuals(factor: float) -> Pair:
            share = special.expit(np.where(known, odds, 0.0) + factor)
            weight = counts * share * (1 - share)
            return np.where(known, y - counts * share, 0.0), np.where(known, weight, 0.0)

        most = 40.0 + np.abs(odds[known]).max()
        return residuals(optimize.brentq(lambda factor: residuals(factor)[0].sum(), -most, most))


def _look_like_trials(size: Floats, items: Floats, rate: float) -> bool:
    """Return True if whole exposures, exceeded by no count, are likely to be trials."""
    above = float(items @ special.gammainc(size + 1.0, rate * size))  # expected if Poisson
    return rate > _SMALL_RATE and not _FEW < above < _MANY


# --- successes y ~ Binomial(n, theta) ------------------------------------------------------------


class _BinomialForms(OutcomeForms):
    zeros = "zero successes"
    scale = LOGIT

    def excess(self, groups: Columns, part: Any) -> tuple[Bools, Floats, Floats, Floats]:
        # in units of the variance of the group's successes in an item of typical size
        known = (groups["sum_y"] > 0) & (groups["sum_N"] > groups["sum_y"]) & (groups["n"] > 1)
        known &= groups["sum_N2"] > groups["sum_N"]  # single trials vary by nothing but noise
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
        return np.where(inside, value + choose - special.gammaln(size - y + 1.0), -np.inf)

    def thinned(self, y: Floats, size: Floats, fraction: float, rng: Generator) -> Pair:
        successes, trials = y.astype(np.int64), size.astype(np.int64)
        held = rng.binomial(trials, fraction)
        successes_held = rng.hypergeometric(successes, trials - successes, held)
        return successes_held.astype(float), held.astype(float)

    def noise(self, mean: Floats, variance: Any = 0.0) -> Floats:
        return mean * (1.0 - mean) - variance

    def contrast(self, y: Floats, size: Floats, fresh_y: Floats, fresh_size: Floats) -> Pair:
        # given both, the successes are hypergeometric; a common shift of fresh rates is taken out
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


# --- values y ~ Normal(theta, s^2) ---------------------------------------------------------------


class _NormalForms(OutcomeForms):
    scale = LINEAR
    longest = far = np.inf  # a linear model is solved in one step

    def mean_size(self, sums: Columns) -> Floats:
        return np.sqrt(sums["sum_w"] / sums["n"])

    def exposure_means(self, sums: Columns) -> tuple[Floats, Floats, Floats]:
        raise FitError("values have no exposure: noise sds do not add up, so weigh by items")

    def cell_range(self, cells: Columns) -> Pair:
        return _uniform_range(cells)

    def excess(self, groups: Columns, part: Any) -> tuple[Bools, Floats, Floats, Floats]:
        # in units of the squared noise sd
        known = groups["n"] > 1
        names = ("n", "sum_w", "sum_w2", "sum_y", "sum_y2")
        n, w1, w2, y1, y2 = (groups[name][known] for name in names)
        noise, share = w1 / n, 1 - 1 / n
        excess = (y2 - y1 * (y1 / n) - share * w1) / noise
        return known, excess, 2 * share * w2 / noise**2, share * n

    def doubtful(self, y: Floats, size: Floats, tight: bool = False) -> bool:
        variance = _variance_as(y, y)
        if not (y.min() >= 0 and variance.min() > 0 and np.ptp(size) > 0 and np.ptp(variance) > 0):
            return False
        return bool(np.corrcoef(np.log(size), np.log(variance))[0, 1] > _ALIKE)

    def other_width(self, y: Floats, size: Floats, mean: Floats, variance: Floats) -> Floats:
        # noise with the variance that it has at the mean, in place of that at the value
        at_mean = np.maximum(_variance_as(y, mean), np.finfo(float).tiny)
        off = _variance_as(y, y) / at_mean
        if np.corrcoef(np.log(off), np.log(size**2 / at_mean))[0, 1] < _RELATED:
            return np.ones(1)  # noise that depends on the score alone
        noise = size**2 / off
        ratio = np.log(noise / (noise + variance)) - np.log(size**2 / (size**2 + variance))
        factor = np.exp(0.5 * np.abs(ratio))
        return factor[factor >= np.quantile(factor, _LEAST_WRONG)]

    def log_likelihood(self, y: Floats, size: Floats, theta: Floats) -> Floats:
        z = (y - theta) / size
        return np.asarray(-0.5 * (z * z + _LOG_2PI) - np.log(size))

    def loss(self, y: Floats, size: Floats, theta: Floats) -> Floats:
        return np.asarray(0.5 * ((y - theta) / size) ** 2)

    def thinned(self, y: Floats, size: Floats, fraction: float, rng: Generator) -> Pair:
        noise = rng.standard_normal(len(y))
        return y + np.sqrt((1 - fraction) / fraction) * size * noise, size / np.sqrt(fraction)

    def remainder(self, y: Any, size: Any, held: Pair, fraction: float) -> tuple[Any, Any]:
        return (y - fraction * held[0]) / (1 - fraction), size / np.sqrt(1 - fraction)

    def noise(self, mean: Floats, variance: Any = 0.0) -> Floats:
        return np.ones_like(mean)

    def scatter(self, y: Floats, size: Floats, mean: Floats, variance: Floats) -> Floats:
        return np.asarray(((y - mean) ** 2 / (variance + size**2)).sum(axis=-1))

    def response(self, size: Floats, mean: Floats, variance: Floats) -> Floats:
        return variance / size**2

    def weighted(self, y: Floats, size: Floats) -> Pair:
        weight = size**-2.0
        return weight, weight * y

    def contrast(self, y: Floats, size: Floats, fresh_y: Floats, fresh_size: Floats) -> Pair:
        # remove a common shift of all fresh values
        weight = 1.0 / (size**2 + fresh_size**2)
        residual = weight * (y - fresh_y)
        return residual - weight * residual.sum() / weight.sum(), weight


def _variance_as(y: Floats, estimate: Floats) -> Floats:
    """Variance of an estimate, up to its size: of a share if all y are below 1, else of a rate."""
    return estimate * (1.0 - estimate) if y.max() < 1 else estimate


POISSON_FORMS, BINOMIAL_FORMS, NORMAL_FORMS = _PoissonForms(), _BinomialForms(), _NormalForms()
