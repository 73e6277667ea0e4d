"""Counts and successes of which those of 0 are absent: a density is conditional on y >= 1.

Given y, theta has the same conjugate posterior as without truncation. What is predicted for an
item of the table is conditional: `log_density`, `cdf_interval`, `simulate` and the rows. What comes
later is not: `log_marginal`, `below` and `thinned`.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.random import Generator
from scipy import optimize, special

from .._lib.arguments import FitError, ItemsError
from .._lib.arrays import Columns, Floats, Ints, Pair, Triple
from .binomial import BETAS, BinomialBeta, BinomialOutcome, BinomialRows
from .family import Excess, Family, Outcome, TableOf, Validity
from .poisson import PoissonGamma, PoissonOutcome, PoissonRows
from .rows import Cells, Points, RowSums, Tensor
from .scales import EXACT_COUNTS
from .special_functions import beta_binomial_cdf, beta_tail

_STEP = 1e-3  # of both curves in differences, for information
# least share of the variance of "the outcome is 1" that the outcome does not explain
_ALIKE = 1e-3
# farthest below the location of whole tables, as where every count is 1
_LOWEST_LEVEL = 60.0
_LARGEST_SCALE = 1e15  # largest shape or mean that is drawn from
_NEEDS = (
    "{needs} and, as truncated=True says that items of 0 are absent, at least 1 (leave that out if "
    "the table has them all)"
)


def log_listed(xp: ModuleType, log_none: Tensor) -> Tensor:
    """Log probability of 1 or more, from that of 0."""
    return xp.log(-xp.expm1(log_none))


# --- probability of 0 ----------------------------------------------------------------------------


def log_no_count(
    xp: ModuleType, location: Tensor, dispersion: Tensor, size: Tensor
) -> Tensor:
    """Log probability of a negative binomial count of 0."""
    cv2 = xp.exp(dispersion)
    return -xp.log1p(size * xp.exp(location) * cv2) / cv2


def no_success_steps(xp: ModuleType, a: Tensor, b: Tensor, step: Tensor) -> Tensor:
    """Log probabilities of no success in trial `step` + 1, after `step` failures."""
    return -xp.log1p(a / (b + step))


def log_no_later_success(
    xp: ModuleType, a: Tensor, b: Tensor, excess: Tensor
) -> Tensor:
    """Sum of `no_success_steps` from 32 on, of `excess` trials, by the Euler-Maclaurin formula."""
    low = b + EXACT_COUNTS
    high = low + excess
    # the integral's three terms have one size, so that no digits are lost
    total = excess * xp.log1p(a / high) + a * xp.log1p(excess / (low + a))
    total = total + low * xp.log1p(-(a / (low + a)) * (excess / high))
    total = total + 0.5 * (xp.log1p(a / low) - xp.log1p(a / high))
    for factor, derivative in ((1 / 12, _first), (-1 / 720, _third)):
        total = total + factor * (derivative(high, a) - derivative(low, a))
    return -total


def _first(x: Tensor, a: Tensor) -> Tensor:
    """First derivative of log(1 + a / x) in x."""
    return -(a / x) / (x + a)


def _third(x: Tensor, a: Tensor) -> Tensor:
    share = x / (x + a)
    return -2.0 * (1.0 - share) * (1.0 + share + share * share) / x**3


def log_no_success(size: Floats, a: Floats, b: Floats) -> Floats:
    """Log probability of a Beta-Binomial number of 0, with all digits where it is tiny."""
    size, a, b = np.broadcast_arrays(size, a, b)
    total = np.zeros(size.shape)
    for step in range(EXACT_COUNTS):
        if not (size > step).any():
            break
        total += np.where(size > step, no_success_steps(np, a, b, step), 0.0)
    excess = np.maximum(size - EXACT_COUNTS, 0.0)
    if excess.any():
        total += np.where(excess > 0.0, log_no_later_success(np, a, b, excess), 0.0)
    return total


# --- the outcomes --------------------------------------------------------------------------------


def _without_zero(rule: Validity) -> Validity:
    """Rules of an outcome with 0, without it."""
    needs = _NEEDS.format(needs=rule.outcome.needs)
    return replace(rule, outcome=replace(rule.outcome, least=1.0, needs=needs))


class TruncatedOutcome(Outcome):
    """Outcomes of 1 or more; mixed into an outcome with 0."""

    truncated = True
    never_zero = (
        "items with truncated=True: of items whose theta is 0 none is in the table"
    )

    @abstractmethod
    def log_none(self, size: Floats, mean: Floats, variance: Floats) -> Floats:
        """Log probability of 0 from the moments of theta."""

    def excess_squares(self, groups: Columns, part: Mapping[Any, Any]) -> Excess:
        # counts that are mostly 1 vary less than their noise
        nothing = np.empty(0)
        return np.zeros(len(groups["n"]), dtype=bool), nothing, nothing, nothing

    def doubt(self, table: TableOf) -> str:
        return ""

    def doubtful(self, y: Floats, size: Floats, tight: bool) -> bool:
        return False

    def absent(self, table: TableOf) -> float:
        return 0.0

    @property
    def summaries(self) -> Mapping[str, Callable[..., Floats]]:
        return {
            "dispersion": self.scatter,
            f"{self.words.outcomes} of 1": lambda y, *_: (y == 1).sum(axis=-1),
        }

    def of_listed(
        self, size: Floats, mean: Floats, variance: Floats, total: Floats
    ) -> Pair:
        share = -np.expm1(self.log_none(size, mean, variance))
        listed = mean / share
        return listed, (total + mean**2) / share - listed**2

    def scatter(
        self, y: Floats, size: Floats, mean: Floats, variance: Floats
    ) -> Floats:
        listed = -np.expm1(self.log_none(size, mean, variance))
        # residuals are from the mean given 1 or more
        excess = size * mean * (1.0 / listed - 1.0)
        return super().scatter(y - excess, size, mean, variance)

    def contrast(
        self, y: Floats, size: Floats, fresh_y: Floats, fresh_size: Floats
    ) -> Pair:
        raise ItemsError(
            "fresh=: items with truncated=True were chosen by their outcomes, so fresh ones differ "
            "from these however honest the scores are: leave fresh= out"
        )


class TruncatedPoissonOutcome(TruncatedOutcome, PoissonOutcome):
    """Counts y ~ Poisson(theta N) given y >= 1."""

    complete = PoissonGamma.outcome
    validity = _without_zero(PoissonOutcome.validity)

    def log_none(self, size: Floats, mean: Floats, variance: Floats) -> Floats:
        dispersion = np.log(variance) - 2.0 * np.log(mean)
        return log_no_count(np, np.log(mean), dispersion, size)


class TruncatedBinomialOutcome(TruncatedOutcome, BinomialOutcome):
    """Successes y ~ Binomial(n, theta) given y >= 1."""

    complete = BinomialBeta.outcome
    validity = _without_zero(BinomialOutcome.validity)

    def log_none(self, size: Floats, mean: Floats, variance: Floats) -> Floats:
        return log_no_success(size, *BETAS.matched(mean, variance))


# --- rows ----------------------------------------------------------------------------------------


class Listed(NamedTuple):
    """Outcomes of items in the table, by point of sizes of each row."""

    row: Ints
    items: Floats
    log_none: Floats  # log probability of an outcome of 0, among all items
    mean: Floats  # given 1 or more
    variance: Floats
    single: Floats  # probability of 1, given 1 or more

    def total(self, values: Floats, rows: int) -> Floats:
        """Sums over the items, by row."""
        return np.bincount(self.row, self.items * values, rows)


class TruncatedRows(RowSums):
    """Rows of items with 1 or more; mixed into rows of an outcome with 0."""

    if TYPE_CHECKING:

        def sizes(self) -> Points: ...

    # few events hardly tell more than E(theta^2) / E(theta)
    coupled = True
    # wider than of whole tables: a few large theta make most rows of a table of events, and
    # small counts hardly tell the curves apart. cv2 is between 0.03 and 8 with probability 0.95
    dispersion_level = (float(np.log(0.5)), 1.4)

    @staticmethod
    @abstractmethod
    def log_nothing(
        xp: ModuleType, location: Tensor, dispersion: Tensor, cells: Cells
    ) -> Sequence[Pair]:
        """Log probabilities of 0 and numbers of items, (..., k, points) each, from `cells`."""

    @staticmethod
    @abstractmethod
    def complete_moments(
        location: Floats, dispersion: Floats, size: Floats
    ) -> tuple[Floats, Floats, Floats, Floats]:
        """Log probability of 0, of 1 relative to it, and mean and variance, of all items."""

    @classmethod
    def log_probability(cls, xp: ModuleType, curves: Pair, cells: Cells) -> Tensor:
        """Log marginal of rows without spread, given that items have 1 or more."""
        value = super().log_probability(xp, curves, cells)
        for log_none, items in cls.log_nothing(xp, *curves, cells):
            # cells without items pad the rows
            known = xp.where(items > 0.0, log_none, -1.0)
            value = value - (items * log_listed(xp, known)).sum(axis=-1)
        return value

    @classmethod
    def draw_totals(cls, rng: Generator, curves: Pair, cells: Cells) -> Floats:
        """Random totals of rows: one count beyond 1 an item, with the mean and variance of all."""
        size, items = cls.points_of(cells)
        known = np.where(items > 0.0, size, 1.0)
        location, dispersion = (curve[..., None] for curve in curves)
        _, mean, variance, _ = cls._listed(location, dispersion, known)
        further = (items * (mean - 1.0)).sum(axis=-1)
        counts = _counts(rng, further, (items * variance).sum(axis=-1))
        return items.sum(axis=-1) + counts

    @staticmethod
    @abstractmethod
    def points_of(cells: Cells) -> Pair:
        """Sizes and numbers of items, (k, points) each, from `cells`."""

    @classmethod
    def _listed(
        cls, location: Floats, dispersion: Floats, size: Floats
    ) -> tuple[Floats, Floats, Floats, Floats]:
        """Log probability of 0; mean, variance and probability of 1, given 1 or more."""
        log_none, log_odds, mean, variance = cls.complete_moments(
            location, dispersion, size
        )
        log_share = log_listed(np, log_none)
        share = np.exp(log_share)
        listed_mean = mean / share
        square = (variance + mean * mean) / share
        single = np.exp(log_odds + log_none - log_share)
        spread = np.maximum(square - listed_mean * listed_mean, 0.0)
        return log_none, listed_mean, spread, single

    def listed(self, location: Floats, dispersion: Floats) -> Listed:
        """Outcomes of the items, given both curves (rows,)."""
        row, size, items = self.sizes()
        location, dispersion = self.widened(np, location, dispersion, self.spread)
        with np.errstate(all="ignore"):
            moments = self._listed(location[row], dispersion[row], size)
        return Listed(row, items, *moments)

    def information(self, location: Floats, dispersion: Floats) -> Pair:
        """Lower bounds of the Fisher information of both curves, by row."""
        return self.joint_information(location, dispersion)[:2]

    def joint_information(self, location: Floats, dispersion: Floats) -> Triple:
        """Lower bounds of the Fisher information of both curves, and what they share, by row."""
        # d E(h)' Var(h)^-1 d E(h) of two functions h of the outcome (Godambe 1985), itself and
        # whether it is 1. Where few items are absent, the information of all items, less that of
        # the absent ones about the dispersion, p0 (d log p0)^2 / (1 - p0)^2, may be larger
        middle = self.listed(location, dispersion)
        number = len(location)
        ahead, behind = (self.listed(location + x, dispersion) for x in (_STEP, -_STEP))
        up, down = (self.listed(location, dispersion + x) for x in (_STEP, -_STEP))
        pairs = (ahead, behind), (up, down)
        with np.errstate(all="ignore"):
            by_mean, by_single = (
                np.array([getattr(x, name) - getattr(y, name) for x, y in pairs])
                / (2.0 * _STEP)
                for name in ("mean", "single")
            )
            shared = middle.single * (1.0 - middle.mean) / middle.variance
            noise = middle.single * (1.0 - middle.single)
            further = noise - shared**2 * middle.variance
            by_single = by_single - shared * by_mean
            by_single = np.where(further > _ALIKE * noise, by_single, 0.0)
            first, second, between = (
                by_mean[j] * by_mean[k] / middle.variance
                + by_single[j] * by_single[k] / np.maximum(further, _ALIKE * noise)
                for j, k in ((0, 0), (1, 1), (0, 1))
            )
            loss = (up.log_none - down.log_none) / (2.0 * _STEP)
            loss = loss / np.expm1(-middle.log_none)
            lost = np.exp(-middle.log_none) * loss**2
        bounds = [
            middle.total(np.nan_to_num(x), number) for x in (first, second, between)
        ]
        complete = super().information(location, dispersion)[1]  # type: ignore[safe-super]
        complete = complete - middle.total(np.nan_to_num(lost), number)
        return bounds[0], np.maximum(bounds[1], complete), bounds[2]

    def level(self) -> tuple[float, float]:
        """Location at which items with 1 or more have the observed total, and the prior's level."""
        highest, dispersion = super().level()  # type: ignore[safe-super]
        ones = np.ones(len(self.total))
        _, _, items = self.sizes()
        # events beyond the first of each item; half of one stands for none
        further = max(float(self.total.sum() - items.sum()), 0.5)

        def excess(location: float) -> float:
            listed = self.listed(location * ones, dispersion * ones)
            return float(items @ (listed.mean - 1.0) - further)

        lowest = highest - _LOWEST_LEVEL
        if excess(lowest) >= 0.0 or excess(highest) <= 0.0:
            return highest, dispersion
        return float(optimize.brentq(excess, lowest, highest, rtol=1e-6)), dispersion

    @staticmethod
    def events(sums: Mapping[str, float]) -> float:
        """Sum of all events beyond the first of an item."""
        return sums["sum_y"] - sums["n"]


def _counts(rng: Generator, mean: Floats, variance: Floats) -> Floats:
    """Random counts of this mean and variance, which are negative binomial or else Poisson."""
    excess = np.maximum(variance - mean, 0.0)
    shape = mean * mean / np.maximum(excess, 1e-300)
    varies = (shape > 0.0) & (shape < _LARGEST_SCALE)
    theta = rng.standard_gamma(np.where(varies, shape, 1.0))
    rate = np.where(varies, theta * (mean / np.where(varies, shape, 1.0)), mean)
    noisy = rate < _LARGEST_SCALE
    return np.where(noisy, rng.poisson(np.where(noisy, rate, 0.0)), rate)


class TruncatedPoissonRows(TruncatedRows, PoissonRows):
    """Counts of 1 or more."""

    @staticmethod
    def log_nothing(
        xp: ModuleType, location: Tensor, dispersion: Tensor, cells: Cells
    ) -> Sequence[Pair]:
        exposure, items = cells[4:6]
        curves = location[..., None], dispersion[..., None]
        return [(log_no_count(xp, *curves, exposure), items)]

    @staticmethod
    def points_of(cells: Cells) -> Pair:
        return cells[4], cells[5]

    @staticmethod
    def complete_moments(
        location: Floats, dispersion: Floats, size: Floats
    ) -> tuple[Floats, Floats, Floats, Floats]:
        mean = size * np.exp(location)
        ratio = mean * np.exp(dispersion)
        log_odds = np.log(mean) - np.log1p(ratio)
        log_none = log_no_count(np, location, dispersion, size)
        return log_none, log_odds, mean, mean * (1.0 + ratio)


class TruncatedBinomialRows(TruncatedRows, BinomialRows):
    """Successes of 1 or more."""

    @staticmethod
    def log_nothing(
        xp: ModuleType, location: Tensor, dispersion: Tensor, cells: Cells
    ) -> Sequence[Pair]:
        step, over, excess, weight = cells[8:12]
        a, b = BETAS.parameters(location[..., None], dispersion[..., None], xp)
        # the items of more than j trials are listed for each j
        upto = xp.cumsum(no_success_steps(xp, a, b, step), axis=-1)
        exact = over - xp.concatenate([over[..., 1:], 0.0 * over[..., :1]], axis=-1)
        fewer = step < EXACT_COUNTS - 1
        first = no_success_steps(xp, a, b, np.arange(float(EXACT_COUNTS)))
        later = first.sum(axis=-1, keepdims=True)
        later = later + log_no_later_success(xp, a, b, excess)
        return [(upto, xp.where(fewer, exact, 0.0)), (later, weight)]

    @staticmethod
    def points_of(cells: Cells) -> Pair:
        step, over, excess, weight = cells[8:12]
        later = np.concatenate([over[..., 1:], 0.0 * over[..., :1]], axis=-1)
        exact = np.where(step < EXACT_COUNTS - 1, over - later, 0.0)
        size = np.concatenate([step + 1.0, excess + EXACT_COUNTS], axis=-1)
        return size, np.concatenate([exact, weight], axis=-1)

    @staticmethod
    def complete_moments(
        location: Floats, dispersion: Floats, size: Floats
    ) -> tuple[Floats, Floats, Floats, Floats]:
        a, b = BETAS.parameters(location, dispersion, np)
        m = a + b
        mean = size * (a / m)
        variance = mean * (b / m) * ((m + size) / (m + 1.0))
        log_odds = np.log(size) + np.log(a) - np.log(b + size - 1.0)
        return log_no_success(size, a, b), log_odds, mean, variance

    @classmethod
    def check(cls, part: Columns) -> None:
        """Refuse statistics of single trials, which are all successes."""
        super().check(part)
        if not float(part["sum_N"].sum()) > float(part["n"].sum()):
            raise FitError(
                "every item has one trial, and with truncated=True each of these is a success: "
                "that says nothing of success rates"
            )


# --- the families --------------------------------------------------------------------------------


class TruncatedFamily(Family):
    """A family whose items have 1 or more; mixed into one of all items."""

    @abstractmethod
    def log_none(self, size: Floats, a: Floats, b: Floats) -> Floats:
        """Log probability of an outcome of 0."""

    @abstractmethod
    def at_least(self, y: Floats, size: Floats, a: Floats, b: Floats) -> Floats:
        """P(Y >= y) of all items, for y >= 1, with all digits where it is tiny."""

    def log_listed(self, size: Floats, a: Floats, b: Floats) -> Floats:
        return log_listed(np, self.log_none(size, a, b))

    def log_density(
        self, y: Floats, size: Floats, location: Floats, dispersion: Floats
    ) -> Floats:
        a, b = self.to_parameters(location, dispersion)
        return self.log_marginal(y, size, a, b) - self.log_listed(size, a, b)

    def cdf_interval(
        self, y: Floats, size: Floats, location: Floats, dispersion: Floats
    ) -> Pair:
        a, b = self.to_parameters(location, dispersion)
        log_share = self.log_listed(size, a, b)
        above = self.at_least(np.maximum(y, 0.0) + 1.0, size, a, b)
        upto = np.maximum(1.0 - above * np.exp(-log_share), 0.0)
        density = np.exp(self.log_marginal(y, size, a, b) - log_share)
        return np.maximum(upto - density, 0.0), upto


class TruncatedPoissonGamma(TruncatedFamily, PoissonGamma):
    """Gamma priors of the rates of counts of 1 or more."""

    outcome = TruncatedPoissonOutcome()
    rows = TruncatedPoissonRows

    def log_none(self, size: Floats, a: Floats, b: Floats) -> Floats:
        return -a * np.log1p(size / b)

    def at_least(self, y: Floats, size: Floats, a: Floats, b: Floats) -> Floats:
        ratio = size / b
        share = ratio / (1.0 + ratio)
        return beta_tail(1.0 / (1.0 + ratio), share, a, y)

    def simulate(self, a: Floats, b: Floats, size: Floats, rng: Generator) -> Floats:
        # the first event comes at an exposure with P(later than x) = (b / (b + x))^a
        log_share = self.log_listed(size, a, b)
        later = np.log1p(-rng.random(np.shape(a)) * np.exp(log_share))
        first = np.minimum(b * np.expm1(-later / a), size)
        theta = rng.standard_gamma(a + 1.0) / (b + first)
        expected = np.minimum((size - first) * theta, _LARGEST_SCALE)
        return 1.0 + rng.poisson(expected).astype(float)


class TruncatedBinomialBeta(TruncatedFamily, BinomialBeta):
    """Beta priors of the probabilities of successes of 1 or more."""

    outcome = TruncatedBinomialOutcome()
    rows = TruncatedBinomialRows

    log_none = staticmethod(log_no_success)

    def at_least(self, y: Floats, size: Floats, a: Floats, b: Floats) -> Floats:
        failures = np.clip(size - y, 0.0, size)
        return np.where(y > size, 0.0, beta_binomial_cdf(failures, size, b, a))

    def simulate(self, a: Floats, b: Floats, size: Floats, rng: Generator) -> Floats:
        size = np.broadcast_to(size, a.shape)
        log_share = self.log_listed(size, a, b)
        later = np.log1p(-rng.random(a.shape) * np.exp(log_share))
        # trial of the first success: the first after which no success is as unlikely
        low = np.zeros(a.shape)
        high = np.array(size, dtype=float)
        while (high - low > 1.0).any():
            middle = np.floor(0.5 * (low + high))
            none = log_no_success(middle, a, b) > later
            low = np.where(none, middle, low)
            high = np.where(none, high, middle)
        theta = special.expit(self.draw(a + 1.0, b + high - 1.0, (rng, rng)))
        return 1.0 + rng.binomial((size - high).astype(np.int64), theta)
