"""Value of a further outcome before it is seen: less variance of theta, and better choices.

The expected posterior variance of mixtures is a sum over a grid of further outcomes, all terms
positive. E(theta | t, y, y') rises with a further outcome y' under any prior, so that with more
data an item is chosen if y' is at least a cut-off; the value is then a sum over y' in closed form.
"""

from collections.abc import Callable
from typing import Protocol

import numpy as np
from scipy import special

from .._lib.arrays import Floats
from . import poisson_gamma
from .beta_forms import beta_binomial_ends, log_beta_binomial
from .special_functions import log_negative_binomial, negative_binomial_tail

_GRID = 256  # outcomes
_SINGLE = 128  # counts summed one by one
_AT_ONCE = 2_000_000  # numbers in an array of components x outcomes x items
_MANY = 1e5  # counts from which on logarithms of probabilities are formed without cancellation
_FAINT = 1e-10  # components of less weight do not widen the grid
_REACH, _TAIL = 8.0, 20.0  # extent of the grid beyond the components, in sd and Gamma tails
_HALVINGS = 60  # bisections for a value's cut-off
_FAR = 40.0  # predictive sd beyond which no value comes

_OfCount = Callable[[Floats], Floats]


class Mixed(Protocol):
    """Theta of n items as mixtures of K components: two parameters and weights, each (K, n)."""

    @property
    def a(self) -> Floats: ...  # noqa: D102

    @property
    def b(self) -> Floats: ...  # noqa: D102

    @property
    def weight(self) -> Floats | None: ...  # noqa: D102

    def average(self, values: Floats) -> Floats: ...  # noqa: D102


class Further(Protocol):
    """Further outcomes of one kind, of theta under its conjugate family."""

    def gain(self, mean: Floats, variance: Floats, more: Floats) -> Floats:
        """Factor, minus 1, by which the best linear estimate divides the variance of theta."""

    def mean_variance(self, weight: Floats, a: Floats, b: Floats, more: Floats) -> Floats:
        """E Var(theta | t, y, y') of mixtures, (n,)."""

    def value(self, theta: Mixed, coarse: Mixed, more: Floats, cut: Floats) -> Floats:
        """Expected value of a choice at `cut` with the further outcome less that without, (n,).

        `coarse` are the components on which the least further outcome to choose is found.
        """


def expected_variance(further: Further, theta: Mixed, more: Floats) -> Floats:
    """E Var(theta | t, y, y') over further outcomes y' of exposure or noise sd `more`, (n,)."""
    assert theta.weight is not None
    expected = np.empty(len(more))
    step = max(1, _AT_ONCE // (_GRID * len(theta.weight)))
    for start in range(0, len(more), step):
        part = slice(start, start + step)
        expected[part] = further.mean_variance(
            theta.weight[:, part], theta.a[:, part], theta.b[:, part], more[part]
        )
    return expected


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


def _log_weight(theta: Mixed) -> Floats | float:
    """Logarithms of the weights, up to a constant."""
    if theta.weight is None:
        return 0.0
    # components of weight 0 have log weight -inf
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(theta.weight))


# --- counts --------------------------------------------------------------------------------------


class _AfterCount:
    """Further counts, theta a mixture of Gammas of one shape for each item."""

    def gain(self, mean: Floats, variance: Floats, more: Floats) -> Floats:
        return variance / mean * more

    def mean_variance(self, weight: Floats, shape: Floats, rate: Floats, more: Floats) -> Floats:
        """Sum over the negative binomials of further counts; a grid stands for many counts."""
        ratio = more / rate
        mean, scale = shape * ratio, 1.0 + ratio
        reach = np.sqrt(mean * scale)
        low, high = _grid_ends(weight, mean - _REACH * reach, mean + _REACH * reach + _TAIL * scale)
        low, high = np.floor(np.maximum(low, 0.0)), np.ceil(high)
        count, width = _count_grid(low, high)
        log_p = -count * np.log1p(1.0 / ratio)[:, None] - (shape * np.log1p(ratio))[:, None]
        log_p = log_p + special.gammaln(shape[0] + count) - special.gammaln(count + 1.0)
        large = high > _MANY  # the large terms above cancel
        if large.any():
            components = shape[:, None, large], mean[:, None, large]
            log_p[:, :, large] = log_negative_binomial(count[:, large], *components)
        after = rate + more
        means = (shape[:, None] + count) / after[:, None]
        return _averaged(weight, log_p, width, means, means / after[:, None])

    def value(self, theta: Mixed, coarse: Mixed, more: Floats, cut: Floats) -> Floats:
        """Sum over the further counts that change the choice, by the cdf and one probability."""
        shape, rate = theta.a, theta.b
        above = theta.average(shape / rate) > cut
        least = _gamma_cut_off(coarse, more, cut)
        ratio = more / rate
        at_least_one = np.maximum(least, 1.0)
        tail = np.empty_like(rate)  # signed tail of the counts that change the choice
        for items, upper, sign in ((above, False, -1.0), (~above, True, 1.0)):
            arguments = at_least_one[items] - 1.0, shape[:, items], ratio[:, items]
            tail[:, items] = sign * negative_binomial_tail(*arguments, upper)
        tail = np.where(least > 0, tail, np.where(above, 0.0, 1.0))
        probability = (
            np.where(least > 0, least * np.exp(_log_pmf(at_least_one, shape, rate, more)), 0.0)
            / rate
        )
        gap = shape / rate - cut
        return np.maximum(theta.average(probability + gap * tail), 0.0)


AFTER_COUNT: Further = _AfterCount()


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


def _log_pmf(count: Floats, shape: Floats, rate: Floats, more: Floats) -> Floats:
    """Log probability of a further count."""
    return poisson_gamma.log_pmf(count, more, np.log(shape) - np.log(rate), -np.log(shape))


def _count_cut_off(theta: Mixed, cut_offs: Floats, log_pmf: _OfCount, after: _OfCount) -> Floats:
    """Least further outcome with E(theta | y, y') above the cut, by bisection.

    `own` (K, n) is that of each component, `after` (of a count) what its mean is above the cut.
    """
    log_weight = _log_weight(theta)
    low, high = (
        cut_offs.min(axis=0),
        cut_offs.max(axis=0),
    )  # at `high` all are above, below `low` none is
    while True:
        middle = np.floor(0.5 * (low + high))
        # beyond 2^53 a count and the next one are the same number: the bracket stays open there
        shrinks = (low < high) & (middle < high) & (middle + 1.0 > low)
        if not shrinks.any():
            return high
        log_p = log_pmf(middle) + log_weight
        p = np.exp(log_p - log_p.max(axis=0))
        up = (p * after(middle)).sum(axis=0) > 0
        low = np.where(shrinks & ~up, middle + 1.0, low)
        high = np.where(shrinks & up, middle, high)


def _gamma_cut_off(theta: Mixed, more: Floats, cut: Floats) -> Floats:
    shape, rate = theta.a, theta.b
    return _count_cut_off(
        theta,
        np.maximum(np.floor(cut * (rate + more) - shape) + 1.0, 0.0),
        lambda count: _log_pmf(count, shape, rate, more),
        lambda count: (shape + count) / (rate + more) - cut,
    )


# --- successes in trials -------------------------------------------------------------------------


class _AfterSuccess:
    """Further trials, theta a mixture of Betas."""

    def gain(self, mean: Floats, variance: Floats, more: Floats) -> Floats:
        return variance / np.maximum(mean * (1.0 - mean) - variance, 1e-300) * more

    def mean_variance(self, weight: Floats, a: Floats, b: Floats, more: Floats) -> Floats:
        """Sum over the Beta-Binomials of further outcomes; a grid stands for many."""
        more = np.rint(more)
        # what is rare is counted: the grid is finer near 0
        swap = (weight * (a / (a + b))).sum(axis=0) > 0.5
        a, b = np.where(swap, b, a), np.where(swap, a, b)
        total = a + b
        mean = more * (a / total)
        reach = np.sqrt(mean * (b / total) * ((total + more) / (total + 1.0)))
        tail = _TAIL * (1.0 + more / total)
        low, high = _grid_ends(weight, mean - _REACH * reach - tail, mean + _REACH * reach + tail)
        low, high = np.floor(np.maximum(low, 0.0)), np.ceil(np.minimum(high, more))
        count, width = _count_grid(low, high)
        count = np.minimum(count, more)  # those beyond the grid's end have no weight
        parameters = a[:, None], b[:, None]
        log_p = log_beta_binomial(count, np.broadcast_to(more, count.shape), *parameters)
        means = (parameters[0] + count) / (total + more)[:, None]
        variances = means * (1.0 - means) / (total + more + 1.0)[:, None]
        return _averaged(weight, log_p, width, means, variances)

    def value(self, theta: Mixed, coarse: Mixed, more: Floats, cut: Floats) -> Floats:
        """E[(theta - cut) if the choice changes], by two Beta-Binomials' cdfs."""
        a, b, more = theta.a, theta.b, np.rint(more)
        mean = a / (a + b)
        above = theta.average(mean) > cut
        least = _beta_cut_off(coarse, more, cut)
        inside = np.clip(least, 0.0, more)
        never, always = least > more, least <= 0
        # P(Y' < least), under theta's prior and under that weighted by theta
        plain, tilted = (
            np.where(never, 1.0, np.where(always, 0.0, beta_binomial_ends(inside, more, x, b)[0]))
            for x in (a, a + 1.0)
        )
        gained = np.where(
            above, cut * plain - mean * tilted, mean * (1.0 - tilted) - cut * (1.0 - plain)
        )
        return np.maximum(theta.average(gained), 0.0)


AFTER_SUCCESS: Further = _AfterSuccess()


def _beta_cut_off(theta: Mixed, more: Floats, cut: Floats) -> Floats:
    a, b = theta.a, theta.b
    total = a + b + more
    return _count_cut_off(
        theta,
        np.clip(np.floor(cut * total - a) + 1.0, 0.0, more + 1.0),
        lambda count: log_beta_binomial(count, more, a, b),
        lambda count: (a + count) / total - cut,
    )


# --- values --------------------------------------------------------------------------------------


class _AfterValue:
    """A further value, theta a mixture of Normals."""

    def gain(self, mean: Floats, variance: Floats, more: Floats) -> Floats:
        return variance / more / more

    def mean_variance(self, weight: Floats, mean: Floats, variance: Floats, more: Floats) -> Floats:
        """Integrate over the Normals of a further value."""
        total = variance + more**2
        reach = _REACH * np.sqrt(total)
        low, high = _grid_ends(weight, mean - reach, mean + reach)
        value = low + (high - low) * (np.arange(_GRID)[:, None] / (_GRID - 1.0))
        gap = value - mean[:, None]
        log_p = -0.5 * (gap**2 / total[:, None] + np.log(total)[:, None])
        pull = (variance / total)[:, None]
        remaining = np.broadcast_to((more**2 * (variance / total))[:, None], gap.shape)
        return _averaged(weight, log_p, 1.0, mean[:, None] + pull * gap, remaining)

    def value(self, theta: Mixed, coarse: Mixed, more: Floats, cut: Floats) -> Floats:
        """Integral over the further values that change the choice."""
        mean, variance = theta.a, theta.b
        above = theta.average(mean) > cut
        least = _value_cut_off(coarse, more, cut)
        sd = np.sqrt(variance + more**2)
        z = (mean - least) / sd
        bell = np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi) * (variance / sd)
        gap = mean - cut
        gained = np.where(above, bell - gap * special.ndtr(-z), bell + gap * special.ndtr(z))
        return np.maximum(theta.average(gained), 0.0)


AFTER_VALUE: Further = _AfterValue()


def _value_cut_off(theta: Mixed, more: Floats, cut: Floats) -> Floats:
    """Further value with E(theta | y, y') = cut, by bisection between the components' own."""
    mean, variance = theta.a, theta.b
    noise = more**2
    total = variance + noise
    sd = np.sqrt(total).max(axis=0)
    ends = mean.min(axis=0) - _FAR * sd, mean.max(axis=0) + _FAR * sd
    # a posterior without variance moves with no value: its cut-off is at infinity, and is cut
    with np.errstate(divide="ignore", over="ignore"):
        cut_offs = np.clip(cut + (cut - mean) * (noise / variance), *ends)
    low, high, log_weight = cut_offs.min(axis=0), cut_offs.max(axis=0), _log_weight(theta)
    for _ in range(_HALVINGS if len(mean) > 1 else 0):
        middle = 0.5 * (low + high)
        log_p = log_weight - 0.5 * ((middle - mean) ** 2 / total + np.log(total))
        p = np.exp(log_p - log_p.max(axis=0))
        after = mean + variance / total * (middle - mean)
        up = (p * (after - cut)).sum(axis=0) > 0
        low, high = np.where(up, low, middle), np.where(up, middle, high)
    return np.asarray(0.5 * (low + high))
