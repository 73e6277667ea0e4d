"""Value of a further outcome before it is seen: less variance of theta, and better choices.

The expected posterior variance of mixtures is a sum over a grid of further outcomes, all terms
positive. E(theta | t, y, y') rises with a further outcome y' under any prior, so that with more
data an item is chosen if y' is at least a cut-off; the value is then a sum over y' in closed form.
"""

from abc import ABC, abstractmethod
from typing import ClassVar, Protocol

import numpy as np
from scipy import special

from .._lib.arrays import Bools, Floats
from .binomial_beta import beta_binomial_ends, log_beta_binomial
from .special_functions import log_negative_binomial, negative_binomial_tail

_GRID = 256  # outcomes
_SINGLE = 128  # counts summed one by one
_AT_ONCE = 2_000_000  # numbers in an array of components x outcomes x items
_MANY = 1e5  # counts from which on logarithms of probabilities are formed without cancellation
_FAINT = 1e-10  # components of less weight do not widen the grid
_REACH, _TAIL = 8.0, 20.0  # extent of the grid beyond the components, in sd and Gamma tails
_FAR = 40.0  # predictive sd beyond which no value comes


class Mixed(Protocol):
    """Theta of n items as mixtures of K components: two parameters and weights, each (K, n)."""

    @property
    def a(self) -> Floats: ...  # noqa: D102

    @property
    def b(self) -> Floats: ...  # noqa: D102

    @property
    def weight(self) -> Floats | None: ...  # noqa: D102

    def average(self, values: Floats) -> Floats: ...  # noqa: D102


class Further(ABC):
    """Further outcomes of one kind, of theta under its conjugate family.

    Parameters `a` and `b` of components are (K, n), or (K, 1, n) for a grid of outcomes `y`; `more`
    is the further size.
    """

    step: ClassVar[float] = 1.0  # least difference of two outcomes
    halvings: ClassVar[int] = 1100  # of a bracket that holds a cut-off

    def size(self, more: Floats) -> Floats:
        """Sizes as outcomes can have them."""
        return more

    @abstractmethod
    def grid(self, weight: Floats, a: Floats, b: Floats, more: Floats) -> tuple[Floats, Floats]:
        """Outcomes that stand for all, and their widths."""

    @abstractmethod
    def log_density(self, y: Floats, a: Floats, b: Floats, more: Floats) -> Floats:
        """Log density of an outcome, up to what all components share."""

    @abstractmethod
    def moments(self, y: Floats, a: Floats, b: Floats, more: Floats) -> tuple[Floats, Floats]:
        """Mean and variance of theta given a further outcome."""

    @abstractmethod
    def cut_offs(self, a: Floats, b: Floats, more: Floats, cut: Floats) -> Floats:
        """Least outcome for which each component by itself has a mean above the cut."""

    @abstractmethod
    def gained(
        self, least: Floats, above: Bools, a: Floats, b: Floats, more: Floats, cut: Floats
    ) -> Floats:
        """Expected gain of choosing from the outcome `least`, against choosing where `above`."""

    @abstractmethod
    def mean(self, a: Floats, b: Floats) -> Floats:
        """Mean of theta."""

    def expected_variance(self, theta: Mixed, more: Floats) -> Floats:
        """E Var(theta | t, y, y') over further outcomes y' of exposure or noise sd `more`, (n,)."""
        assert theta.weight is not None
        expected, more = np.empty(len(more)), self.size(more)
        step = max(1, _AT_ONCE // (_GRID * len(theta.weight)))
        for start in range(0, len(more), step):
            part = slice(start, start + step)
            weight, a, b = (x[:, part] for x in (theta.weight, theta.a, theta.b))
            y, width = self.grid(weight, a, b, more[part])
            terms = y, a[:, None], b[:, None], more[part]
            log_p = self.log_density(*terms)
            expected[part] = _averaged(weight, log_p, width, *self.moments(*terms))
        return expected

    def value(self, theta: Mixed, coarse: Mixed, more: Floats, cut: Floats) -> Floats:
        """Expected value of a choice at `cut` with the further outcome less that without, (n,).

        `coarse` are the components on which the least further outcome to choose is found.
        """
        more = self.size(more)
        above = theta.average(self.mean(theta.a, theta.b)) > cut
        least = self._cut_off(coarse, more, cut)
        gained = self.gained(least, above, theta.a, theta.b, more, cut)
        return np.maximum(theta.average(gained), 0.0)

    def _cut_off(self, theta: Mixed, more: Floats, cut: Floats) -> Floats:
        """Least further outcome with E(theta | y, y') above the cut, by bisection."""
        ends = self.cut_offs(theta.a, theta.b, more, cut)
        low, high = ends.min(axis=0), ends.max(axis=0)  # all are above at `high`, none below `low`
        # components of weight 0 have log weight -inf
        with np.errstate(divide="ignore"):
            log_weight = 0.0 if theta.weight is None else np.log(theta.weight)
        for _ in range(self.halvings):
            middle = 0.5 * (low + high)
            middle = np.floor(middle) if self.step else middle
            # beyond 2^53 a count and the next one are the same number: the bracket stays open there
            shrinks = (low < high) & (middle < high) & (middle + self.step > low)
            if not shrinks.any():
                break
            terms = middle, theta.a, theta.b, more
            log_p = self.log_density(*terms) + log_weight
            p = np.exp(log_p - log_p.max(axis=0))
            up = (p * (self.moments(*terms)[0] - cut)).sum(axis=0) > 0
            low = np.where(shrinks & ~up, middle + self.step, low)
            high = np.where(shrinks & up, middle, high)
        return np.asarray(high)


def _grid_ends(weight: Floats, low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Ends of the grids: of all components that have some weight."""
    counts = weight > _FAINT
    return np.where(counts, low, np.inf).min(axis=0), np.where(counts, high, -np.inf).max(axis=0)


def _averaged(
    weight: Floats, log_p: Floats, width: Floats | float, means: Floats, variances: Floats
) -> Floats:
    """Mean over outcomes of the mixture's variance given each, (n,).

    `weight` is (K, n); `log_p`, `means` and `variances` of theta are (K, outcomes, n).
    """
    # components of weight 0 have log probability -inf
    with np.errstate(divide="ignore"):
        log_p = log_p + np.log(weight)[:, None]
    top = log_p.max(axis=0)
    p = np.exp(log_p - top)
    total = p.sum(axis=0)
    p /= total
    mean = (p * means).sum(axis=0)
    variance = (p * (variances + (means - mean) ** 2)).sum(axis=0)
    log_all = top + np.log(total)
    mass = width * np.exp(log_all - log_all.max(axis=0))
    return np.asarray((mass * variance).sum(axis=0) / mass.sum(axis=0))


def _count_grid(low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Counts that stand for all from `low` to `high`, and their weights, each (outcomes, n).

    The first are counts themselves; what is left is an integral over the root of the count, by
    Gauss and Legendre, with the first term of Euler and Maclaurin where the two meet.
    """
    single = np.arange(_SINGLE)[:, None]
    short = high - low < _SINGLE
    node, share = (x[:, None] for x in np.polynomial.legendre.leggauss(_GRID - _SINGLE))
    begin = np.sqrt(low + _SINGLE - 0.5)
    half = np.where(short, 0.0, 0.5 * (np.sqrt(np.maximum(high, low + _SINGLE)) - begin))
    root = begin + half * (1.0 + node)
    width = (low + single <= high).astype(float)
    # the slope half a step beyond the last count, by a parabola through the last three
    width[-3:] += np.where(short, 0.0, np.array([[1.0], [-3.0], [2.0]]) / 24.0)
    return np.vstack([low + single, root**2]), np.vstack([width, 2.0 * root * half * share])


class _AfterCount(Further):
    """Further counts, theta a mixture of Gammas of shapes `a` and rates `b`."""

    def mean(self, a: Floats, b: Floats) -> Floats:
        return a / b

    def grid(self, weight: Floats, a: Floats, b: Floats, more: Floats) -> tuple[Floats, Floats]:
        mean, scale = a * (more / b), 1.0 + more / b
        reach = _REACH * np.sqrt(mean * scale)
        low, high = _grid_ends(weight, mean - reach, mean + reach + _TAIL * scale)
        return _count_grid(np.floor(np.maximum(low, 0.0)), np.ceil(high))

    def log_density(self, y: Floats, a: Floats, b: Floats, more: Floats) -> Floats:
        if y.max() > _MANY or (a != a[:1]).any():
            return log_negative_binomial(y, a, a * (more / b))
        # terms that components of one shape share are computed once; they cancel for large counts
        log_p = -y * np.log1p(b / more) - a * np.log1p(more / b)
        return np.asarray(log_p + special.gammaln(a[0] + y) - special.gammaln(y + 1.0))

    def moments(self, y: Floats, a: Floats, b: Floats, more: Floats) -> tuple[Floats, Floats]:
        means = (a + y) / (b + more)
        return means, means / (b + more)

    def cut_offs(self, a: Floats, b: Floats, more: Floats, cut: Floats) -> Floats:
        return np.maximum(np.floor(cut * (b + more) - a) + 1.0, 0.0)

    def gained(
        self, least: Floats, above: Bools, a: Floats, b: Floats, more: Floats, cut: Floats
    ) -> Floats:
        """Sum over the further counts that change the choice, by the cdf and one probability."""
        ratio, count = more / b, np.maximum(least, 1.0)
        tail = np.empty_like(b)  # signed tail of the counts that change the choice
        for items, upper, sign in ((above, False, -1.0), (~above, True, 1.0)):
            arguments = count[items] - 1.0, a[:, items], ratio[:, items]
            tail[:, items] = sign * negative_binomial_tail(*arguments, upper)
        tail = np.where(least > 0, tail, np.where(above, 0.0, 1.0))
        probability = np.exp(log_negative_binomial(count, a, a * ratio))
        return np.where(least > 0, least * probability, 0.0) / b + (a / b - cut) * tail


class _AfterSuccess(Further):
    """Further trials, theta a mixture of Betas."""

    def size(self, more: Floats) -> Floats:
        return np.rint(more)

    def mean(self, a: Floats, b: Floats) -> Floats:
        return a / (a + b)

    def grid(self, weight: Floats, a: Floats, b: Floats, more: Floats) -> tuple[Floats, Floats]:
        # what is rare is counted: the grid is finer near 0
        swap = (weight * (a / (a + b))).sum(axis=0) > 0.5
        a, b = np.where(swap, b, a), np.where(swap, a, b)
        total = a + b
        mean = more * (a / total)
        reach = np.sqrt(mean * (b / total) * ((total + more) / (total + 1.0)))
        reach = _REACH * reach + _TAIL * (1.0 + more / total)
        low, high = _grid_ends(weight, mean - reach, mean + reach)
        low, high = np.floor(np.maximum(low, 0.0)), np.ceil(np.minimum(high, more))
        count, width = _count_grid(low, high)
        count = np.minimum(count, more)  # those beyond the grid's end have no weight
        return np.where(swap, more - count, count), width

    def log_density(self, y: Floats, a: Floats, b: Floats, more: Floats) -> Floats:
        return log_beta_binomial(y, np.broadcast_to(more, y.shape), a, b)

    def moments(self, y: Floats, a: Floats, b: Floats, more: Floats) -> tuple[Floats, Floats]:
        total = a + b + more
        means = (a + y) / total
        return means, means * (1.0 - means) / (total + 1.0)

    def cut_offs(self, a: Floats, b: Floats, more: Floats, cut: Floats) -> Floats:
        return np.clip(np.floor(cut * (a + b + more) - a) + 1.0, 0.0, more + 1.0)

    def gained(
        self, least: Floats, above: Bools, a: Floats, b: Floats, more: Floats, cut: Floats
    ) -> Floats:
        """E[(theta - cut) if the choice changes], by two Beta-Binomials' cdfs."""
        inside, mean = np.clip(least, 0.0, more), a / (a + b)
        # P(Y' < least), under theta's prior and under that weighted by theta
        plain, tilted = (
            np.where(
                least > more,
                1.0,
                np.where(least <= 0, 0.0, beta_binomial_ends(inside, more, x, b)[0]),
            )
            for x in (a, a + 1.0)
        )
        rise = mean * (1.0 - tilted) - cut * (1.0 - plain)
        return np.where(above, cut * plain - mean * tilted, rise)


class _AfterValue(Further):
    """A further value, theta a mixture of Normals of means `a` and variances `b`."""

    step = 0.0
    halvings = 60

    def mean(self, a: Floats, b: Floats) -> Floats:
        return a

    def grid(self, weight: Floats, a: Floats, b: Floats, more: Floats) -> tuple[Floats, Floats]:
        reach = _REACH * np.sqrt(b + more**2)
        low, high = _grid_ends(weight, a - reach, a + reach)
        return low + (high - low) * (np.arange(_GRID)[:, None] / (_GRID - 1.0)), np.ones(1)

    def log_density(self, y: Floats, a: Floats, b: Floats, more: Floats) -> Floats:
        total = b + more**2
        return -0.5 * ((y - a) ** 2 / total + np.log(total))

    def moments(self, y: Floats, a: Floats, b: Floats, more: Floats) -> tuple[Floats, Floats]:
        share = b / (b + more**2)
        return a + share * (y - a), more**2 * share

    def cut_offs(self, a: Floats, b: Floats, more: Floats, cut: Floats) -> Floats:
        far = _FAR * np.sqrt(b + more**2).max(axis=0)
        # a posterior without variance moves with no value: its cut-off is at infinity, and is cut
        with np.errstate(divide="ignore", over="ignore"):
            values = cut + (cut - a) * (more**2 / b)
        return np.clip(values, a.min(axis=0) - far, a.max(axis=0) + far)

    def gained(
        self, least: Floats, above: Bools, a: Floats, b: Floats, more: Floats, cut: Floats
    ) -> Floats:
        """Integral over the further values that change the choice."""
        sd, gap = np.sqrt(b + more**2), a - cut
        z = (a - least) / sd
        bell = np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi) * (b / sd)
        return np.where(above, bell - gap * special.ndtr(-z), bell + gap * special.ndtr(z))


AFTER_COUNT: Further = _AfterCount()
AFTER_SUCCESS: Further = _AfterSuccess()
AFTER_VALUE: Further = _AfterValue()
