"""The interface of conjugate families, and the value of a further outcome of an item.

At a score a family's prior is given by two curves, or by the conjugate parameters `a, b` of theta.
Functions take either pair as two arrays and broadcast.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.random import Generator
from scipy.optimize import elementwise

from .._lib.arrays import Bools, Floats
from ..prior_table import ARRAYS, mixture_rows, moments
from .mixtures import Components
from .outcome import Outcome
from .rows import Pair, RowSums

Generators = tuple[Generator, ...]

_GRID = 256  # further outcomes that stand for all
_REACH = 8.0  # extent of the grid beyond the components, in sd
_MOST_NUMBERS = 1 << 16  # in one array of members x items
_FAR = 40.0  # predictive sd beyond which no further value comes
_SINGLE = 128  # counts summed one by one
_AT_ONCE = 2_000_000  # numbers in an array of components x outcomes x items
_ROUNDED = 1e-6  # probability that a difference from 1 does not show well
_FAINT = 1e-10  # components of less weight do not widen the grid


class Family(Components):
    """Laws of theta given the score, and of outcomes; a family writes the abstract methods."""

    outcome: Outcome
    prior: Any  # class of its configuration
    mixture: type  # that of mixtures of it
    rows: type[RowSums]  # sums of rows of items, and the log marginal given them
    formulas: Any  # of `soc_pymc.prior_table`
    has_log_moments: bool = False  # whether moments of log theta can be matched
    curves: tuple[str, str]  # names of the two curves in the posterior
    parameters: tuple[str, str]  # names of the conjugate parameters
    update: Callable[
        [Any, Any, Any, Any], Pair
    ]  # parameters given an outcome and its size
    mean: Callable[[Any, Any], Any]  # E(theta) from the parameters
    variance: Callable[[Any, Any], Any]

    def __init__(self) -> None:
        formulas = self.formulas
        self.update = formulas.update
        self.mean = formulas.mean
        self.variance = formulas.variance
        self.curves: tuple[str, str] = self.prior.curve_names

    def __reduce__(self) -> tuple[Any, ...]:  # copies are the family itself
        return _family_named, (self.name,)

    # --- curves

    def to_parameters(self, location: Any, dispersion: Any) -> Pair:
        """Conjugate parameters of priors with these curves."""
        dispersion = np.maximum(dispersion, -self.formulas.bounds[1])
        a, b = self.formulas.parameters(np.asarray(location), dispersion, ARRAYS)
        return a, b

    @abstractmethod
    def to_curves(self, a: Any, b: Any) -> Pair:
        """Both curves."""

    def curve_variables(
        self, location: Floats, dispersion: Floats
    ) -> dict[str, Floats]:
        """Variables of `soc.calibration_curves` by name."""
        mean, variance = self.natural_moments(location, np.exp(dispersion))
        moments = {"mean": mean, "variance": variance, self.curves[0]: location}
        a_b = zip(
            self.parameters, self.to_parameters(location, dispersion), strict=True
        )
        return moments | {"log_variance": np.log(variance)} | dict(a_b)

    @abstractmethod
    def natural_moments(self, location: Any, dispersion: Any) -> Pair:
        """E(theta) and Var(theta) from the first curve and exp of the second, which may be 0."""

    def widened(self, location: Any, dispersion: Any, spread: Any) -> Pair:
        """Curves averaged over a variance `spread` of the first, to second order."""
        return self.rows.widened(
            np, location, dispersion, np.asarray(spread, dtype=float)
        )

    def unit(self, dispersion: Floats) -> Floats:
        """Unit of an sd of the first curve, from the second."""
        return np.ones_like(dispersion)

    # --- theta

    @abstractmethod
    def third(self, a: Any, b: Any) -> Any:
        """E[(theta - E(theta))^3]."""

    @abstractmethod
    def above(self, cut: Floats, a: Floats, b: Floats) -> Floats:
        """P(theta > cut)."""

    @abstractmethod
    def cdf(self, cut: Floats, a: Floats, b: Floats) -> Floats:
        """P(theta <= cut)."""

    @abstractmethod
    def kernel(self, cut: Floats, a: Floats, b: Floats) -> Floats:
        """E[(theta - cut)+] less (E(theta) - cut) P(theta > cut)."""

    def excess(self, cut: Floats, a: Floats, b: Floats) -> Floats:
        """E[(theta - cut)+]."""
        inside = (self.mean(a, b) - cut) * self.above(cut, a, b) + self.kernel(
            cut, a, b
        )
        return np.maximum(inside, 0.0)

    def shortfall(self, cut: Floats, a: Floats, b: Floats) -> Floats:
        """E[(cut - theta)+]."""
        inside = (cut - self.mean(a, b)) * self.cdf(cut, a, b) + self.kernel(cut, a, b)
        return np.maximum(inside, 0.0)

    @abstractmethod
    def draw(self, a: Floats, b: Floats, rngs: Generators) -> Floats:
        """Draws on a scale that keeps theta's order, one for each element, row by row."""

    def natural(self, drawn: Floats) -> Floats:
        """Theta from draws on that scale."""
        return drawn

    def above_drawn(self, drawn: Floats, a: Floats, b: Floats) -> Floats:
        """P(theta > a draw on that scale)."""
        return self.above(drawn, a, b)

    def summaries(
        self,
        weight: Floats | None,
        a: Floats,
        b: Floats,
        probs: Sequence[float] = (),
        zero: Floats | None = None,
        exact: bool = True,
    ) -> Floats:
        """Mean, sd, variance, quantiles, and a share `zero` if given, of mixtures (members, n).

        Without `exact`, quantiles have the error of the prior table's distribution function.
        """
        laws = [self.formulas.law, self._law] if exact else [self.formulas.law]
        a, b = np.broadcast_arrays(a, b)
        weight = np.full((len(a), 1), 1.0 / len(a)) if weight is None else weight
        weight = np.broadcast_to(weight, a.shape)
        out = np.empty((3 + len(probs) + (zero is not None), a.shape[1]))
        step = max(1, _MOST_NUMBERS // len(a))
        with np.errstate(all="ignore"):
            for begin in range(0, a.shape[1], step):
                part = slice(begin, begin + step)
                at_zero = None if zero is None else zero[part]
                mixture = self.formulas, weight[:, part], a[:, part], b[:, part]
                averages, *_ = moments(*mixture, ARRAYS)
                out[:, part] = mixture_rows(*mixture, averages, probs, at_zero, laws)
        return out

    def _law(self, a: Floats, b: Floats, t: Floats, xp: Any) -> Pair:
        """Distribution function and density at places `t` on the scale of draws."""
        below = 1.0 - self.above_drawn(t, a, b)
        faint = (below < _ROUNDED).all(axis=0)
        if faint.any():  # their digits went with the difference from 1
            below = np.where(faint, self.cdf(self.natural(t), a, b), below)
        return below, self.formulas.law(a, b, t, xp)[1]

    # --- outcomes, averaged over theta

    @abstractmethod
    def log_marginal(self, y: Any, size: Any, a: Any, b: Any) -> Floats:
        """Log marginal density or probability; counts may lie between whole numbers."""

    def log_density(self, y: Any, size: Any, location: Any, dispersion: Any) -> Floats:
        """`log_marginal` under curves."""
        return self.log_marginal(y, size, *self.to_parameters(location, dispersion))

    @abstractmethod
    def below(self, y: Floats, size: Floats, a: Floats, b: Floats) -> Floats:
        """P(Y < y)."""

    def cdf_interval(self, y: Any, size: Any, location: Any, dispersion: Any) -> Pair:
        """P(Y < y) and P(Y <= y) of outcomes (n,) under curves (draws, n)."""
        a, b = self.to_parameters(location, dispersion)
        if not self.outcome.whole:
            upto = self.below(y, size, a, b)
            return upto, upto
        upto = self.below(y + 1.0, size, a, b)
        return np.maximum(upto - np.exp(self.log_marginal(y, size, a, b)), 0.0), upto

    @abstractmethod
    def simulate(
        self, location: Any, dispersion: Any, size: Any, rng: Generator
    ) -> Floats:
        """Outcomes of new items."""

    # --- further outcomes of mixtures of components (K, n), or (K, 1, n) for a grid of outcomes

    @abstractmethod
    def outcome_moments(
        self, a: Floats, b: Floats, size: Floats
    ) -> tuple[Floats, Floats, Floats]:
        """Mean and sd of outcomes, and how far their upper tail reaches beyond a Normal's."""

    def further_log_density(
        self, y: Floats, size: Floats, a: Floats, b: Floats
    ) -> Floats:
        """Log density of an outcome, up to what all components share."""
        return self.log_marginal(y, size, a, b)

    def grid(
        self,
        weight: Floats,
        a: Floats,
        b: Floats,
        size: Floats,
        most: Floats | float = np.inf,
    ) -> tuple[Floats, Floats]:
        """Outcomes up to `most` that stand for all, and their widths."""
        mean, sd, tail = self.outcome_moments(a, b, size)
        counts = weight > _FAINT
        low = np.where(counts, mean - _REACH * sd, np.inf).min(axis=0)
        high = np.where(counts, mean + _REACH * sd + tail, -np.inf).max(axis=0)
        if self.outcome.whole:
            return _count_grid(
                np.floor(np.maximum(low, 0.0)), np.ceil(np.minimum(high, most))
            )
        return low + (high - low) * np.linspace(0.0, 1.0, _GRID)[:, None], np.ones(1)

    def gained(
        self,
        least: Floats,
        above: Bools,
        a: Floats,
        b: Floats,
        size: Floats,
        cut: Floats,
    ) -> Floats:
        """E[theta - cut] over outcomes that turn the choice: from `least`, below it if `above`."""
        # theta's prior weighted by theta has a shape `a` one higher
        plain, weighted = (self.below(least, size, shape, b) for shape in (a, a + 1.0))
        mean = self.mean(a, b)
        rise = mean * (1.0 - weighted) - cut * (1.0 - plain)
        return np.where(above, cut * plain - mean * weighted, rise)

    def expected_variance(self, theta: Any, size: Floats) -> Floats:
        """E Var(theta | t, y, y') over further outcomes y' of a size, (n,)."""
        expected = np.empty(len(size))
        size = np.rint(size) if self.outcome.validity.size.whole else size
        step = max(1, _AT_ONCE // (_GRID * len(theta.weight)))
        for start in range(0, len(size), step):
            part = slice(start, start + step)
            weight, a, b = (x[:, part] for x in (theta.weight, theta.a, theta.b))
            y, width = self.grid(weight, a, b, size[part])
            a = a[:, None]
            b = b[:, None]
            p, log_all = _normalised(
                self.further_log_density(y, size[part], a, b), weight[:, None]
            )
            after = self.update(a, b, y, size[part])
            means = self.mean(*after)
            mean = (p * means).sum(axis=0)
            variance = (p * (self.variance(*after) + (means - mean) ** 2)).sum(axis=0)
            mass = width * np.exp(log_all - log_all.max(axis=0))
            expected[part] = (mass * variance).sum(axis=0) / mass.sum(axis=0)
        return expected

    def value_of_outcome(
        self, theta: Any, coarse: Any, size: Floats, cut: Floats
    ) -> Floats:
        """Expected value of a choice at `cut` with a further outcome less that without, (n,)."""
        # E(theta | t, y, y') rises with y' under any prior: an item is chosen from a cut-off on
        size = np.rint(size) if self.outcome.validity.size.whole else size
        above = theta.average(self.mean(theta.a, theta.b)) > cut
        least = self._cut_off(coarse, size, cut)
        gained = self.gained(least, above, theta.a, theta.b, size, cut)
        return np.maximum(theta.average(gained), 0.0)

    def _cut_off(self, theta: Any, size: Floats, cut: Floats) -> Floats:
        """Least further outcome with E(theta | y, y') above the cut, or one beyond all."""
        weight = np.ones_like(theta.a) if theta.weight is None else theta.weight
        mean, sd, tail = self.outcome_moments(theta.a, theta.b, size)
        low = (mean - _FAR * sd).min(axis=0)
        high = (mean + _FAR * sd + tail).max(axis=0)
        if self.outcome.whole:
            most = size if self.outcome.validity.size.whole else np.inf
            low = np.zeros_like(low)
            high = np.minimum(np.ceil(high), most)

        def gap(outcome: Floats, item: Floats) -> Floats:
            i = item.astype(int)
            a = theta.a[:, i]
            b = theta.b[:, i]
            log_density = self.further_log_density(outcome, size[i], a, b)
            means = self.mean(*self.update(a, b, outcome, size[i]))
            return (_normalised(log_density, weight[:, i])[0] * (means - cut[i])).sum(
                axis=0
            )

        with np.errstate(invalid="ignore", over="ignore"):
            root = elementwise.find_root(gap, (low, high), args=(np.arange(len(cut)),))
        end = np.where(root.f_bracket[0] > 0.0, low, high + 1.0)
        least = np.where(root.success, root.x, end)
        return np.ceil(least) if self.outcome.whole else np.asarray(least)


def _normalised(log_density: Floats, weight: Floats) -> tuple[Floats, Floats]:
    """Weights of components (K, ...) given an outcome, and the log of its mixed density."""
    with np.errstate(divide="ignore"):  # components of weight 0
        log_p = log_density + np.log(weight)
    top = log_p.max(axis=0)
    p = np.exp(log_p - top)
    total = p.sum(axis=0)
    return p / total, top + np.log(total)


def _family_named(name: str) -> Family:
    from . import FAMILIES  # which has all families

    return FAMILIES[name]


def _count_grid(low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Counts from `low` to `high`, then Gauss nodes of their root, with weights (outcomes, n)."""
    single = np.arange(_SINGLE)[:, None]
    short = high - low < _SINGLE
    node, share = (x[:, None] for x in np.polynomial.legendre.leggauss(_GRID - _SINGLE))
    begin = np.sqrt(low + _SINGLE - 0.5)
    half = np.where(
        short, 0.0, 0.5 * (np.sqrt(np.maximum(high, low + _SINGLE)) - begin)
    )
    root = begin + half * (1.0 + node)
    width = (low + single <= high).astype(float)
    # the slope half a step beyond the last count, by a parabola through the last three
    width[-3:] += np.where(short, 0.0, np.array([[1.0], [-3.0], [2.0]]) / 24.0)
    return np.vstack([low + single, root**2]), np.vstack(
        [width, 2.0 * root * half * share]
    )
