"""The interface of conjugate families, and the value of a further outcome of an item.

At a score a family's prior is given by two curves, on scales where they are smooth and their
information is orthogonal (`Family.curves`), or by the two conjugate parameters `a, b` of theta
(`Family.parameters`). Functions take either pair as two arrays and broadcast.
"""

from typing import Any, Protocol

import numpy as np
from numpy.random import Generator

from .._lib.arrays import Bools, Floats
from .components import Components
from .outcomes import Outcome
from .row_sums import RowSums

Pair = tuple[Any, Any]
Generators = tuple[Generator, ...]

GRID = 256  # further outcomes that stand for all
REACH = 8.0  # extent of the grid beyond the components, in sd
_SINGLE = 128  # counts summed one by one
_AT_ONCE = 2_000_000  # numbers in an array of components x outcomes x items
_FAINT = 1e-10  # components of less weight do not widen the grid
_HALVINGS = 1100  # of a bracket that holds a cut-off among counts
_REAL_HALVINGS = 60  # and of one among values


class Family(Protocol):
    """Theta given the score and outcomes given theta; `a, b` are conjugate parameters of theta."""

    name: str
    outcome: Outcome
    prior: Any  # class of its configuration
    mixture: type  # that of mixtures of it
    rows: type[RowSums]  # sums of rows of items, and the log marginal given them
    components: Components  # of mixtures
    has_log_moments: bool = False  # whether moments of log theta can be matched

    def __init__(self, components: Components) -> None:
        self.components = components

    @property
    def curves(self) -> tuple[str, str]:
        """Names of the two curves in the posterior."""
        names: tuple[str, str] = self.prior.curve_names
        return names

    @property
    def parameters(self) -> tuple[str, str]:
        """Names of the conjugate parameters."""
        names: tuple[str, str] = self.prior.parameter_names
        return names

    # --- curves

    def to_parameters(self, location: Any, dispersion: Any) -> Pair:
        """Conjugate parameters of priors with these curves."""

    def to_curves(self, a: Any, b: Any) -> Pair:
        """Both curves."""

    def curve_variables(self, location: Floats, dispersion: Floats) -> dict[str, Floats]:
        """Variables of `soc.calibration_curves` by name."""

    def natural_moments(self, location: Any, dispersion: Any) -> Pair:
        """E(theta) and Var(theta) from the first curve and exp of the second, which may be 0."""

    def widened(self, location: Any, dispersion: Any, spread: Any) -> Pair:
        """Curves averaged over a variance `spread` of the first, to second order."""
        return self.rows.widened(np, location, dispersion, np.asarray(spread, dtype=float))

    def unit(self, dispersion: Floats) -> Floats:
        """Unit of an sd of the first curve, from the second."""
        return np.ones_like(dispersion)

    # --- theta

    def update(self, a: Any, b: Any, y: Any, size: Any) -> Pair:
        """Conjugate parameters given an outcome."""

    def mean(self, a: Any, b: Any) -> Any:
        """E(theta)."""

    def variance(self, a: Any, b: Any) -> Any:
        """Var(theta)."""

    def third(self, a: Any, b: Any) -> Any:
        """E[(theta - E(theta))^3]."""

    def above(self, cut: Floats, a: Floats, b: Floats) -> Floats:
        """P(theta > cut)."""

    def excess(self, cut: Floats, a: Floats, b: Floats) -> Floats:
        """E[(theta - cut)+]."""

    def shortfall(self, cut: Floats, a: Floats, b: Floats) -> Floats:
        """E[(cut - theta)+]."""

    def draw(self, a: Floats, b: Floats, rngs: Generators) -> Floats:
        """Draws on a scale that keeps theta's order, one for each element, row by row."""

    def natural(self, drawn: Floats) -> Floats:
        """Theta from draws on that scale."""

    def above_drawn(self, drawn: Floats, a: Floats, b: Floats) -> Floats:
        """P(theta > a draw on that scale)."""

    # --- outcomes, averaged over theta

    def log_density(self, y: Any, size: Any, location: Any, dispersion: Any) -> Floats:
        """Log marginal density or probability, broadcast over the arguments."""

    def cdf_interval(self, y: Any, size: Any, location: Any, dispersion: Any) -> Pair:
        """P(Y < y) and P(Y <= y) of outcomes (n,) under curves (draws, n)."""

    def simulate(self, location: Any, dispersion: Any, size: Any, rng: Generator) -> Floats:
        """Outcomes of new items."""

    # --- further outcomes of mixtures of components (K, n), or (K, 1, n) for a grid of outcomes

    def possible_size(self, size: Floats) -> Floats:
        """Sizes as outcomes can have them."""
        return size

    def grid(self, weight: Floats, a: Floats, b: Floats, size: Floats) -> tuple[Floats, Floats]:
        """Outcomes that stand for all, and their widths."""

    def further_log_density(self, y: Floats, a: Floats, b: Floats, size: Floats) -> Floats:
        """Log density of an outcome, up to what all components share."""

    def cut_offs(self, a: Floats, b: Floats, size: Floats, cut: Floats) -> Floats:
        """Least outcome for which each component by itself has a mean above the cut."""

    def below(self, y: Floats, size: Floats, a: Floats, b: Floats) -> Floats:
        """P(Y < y), of outcomes that are whole numbers."""
        return self.cdf_interval(y, size, *self.to_curves(a, b))[0]

    def gained(
        self, least: Floats, above: Bools, a: Floats, b: Floats, size: Floats, cut: Floats
    ) -> Floats:
        """Expected gain of choosing from the outcome `least`, against choosing where `above`.

        That is E[(theta - cut) if the choice changes]: by the cdf of whole numbers under theta's
        prior, and under that prior weighted by theta, which has a shape `a` one higher.
        """
        plain, weighted = (self.below(least, size, shape, b) for shape in (a, a + 1.0))
        mean = self.mean(a, b)
        rise = mean * (1.0 - weighted) - cut * (1.0 - plain)
        return np.where(above, cut * plain - mean * weighted, rise)

    def expected_variance(self, theta: Any, size: Floats) -> Floats:
        """E Var(theta | t, y, y') over further outcomes y' of a size, (n,).

        `theta` has components `a, b, weight`, each (K, n).
        """
        expected, size = np.empty(len(size)), self.possible_size(size)
        step = max(1, _AT_ONCE // (GRID * len(theta.weight)))
        for start in range(0, len(size), step):
            part = slice(start, start + step)
            weight, a, b = (x[:, part] for x in (theta.weight, theta.a, theta.b))
            y, width = self.grid(weight, a, b, size[part])
            terms = a[:, None], b[:, None], y, size[part]
            after = self.update(*terms)
            log_p = self.further_log_density(y, a[:, None], b[:, None], size[part])
            moments = self.mean(*after), self.variance(*after)
            expected[part] = _averaged(weight, log_p, width, *moments)
        return expected

    def value_of_outcome(self, theta: Any, coarse: Any, size: Floats, cut: Floats) -> Floats:
        """Expected value of a choice at `cut` with a further outcome less that without, (n,).

        E(theta | t, y, y') rises with the further outcome y' under any prior, so that an item is
        chosen if y' is at least a cut-off, found on the components `coarse`. The value is then a
        sum over y' in closed form.
        """
        size = self.possible_size(size)
        above = theta.average(self.mean(theta.a, theta.b)) > cut
        least = self._cut_off(coarse, size, cut)
        gained = self.gained(least, above, theta.a, theta.b, size, cut)
        return np.maximum(theta.average(gained), 0.0)

    def _cut_off(self, theta: Any, size: Floats, cut: Floats) -> Floats:
        """Least further outcome with E(theta | y, y') above the cut, by bisection."""
        whole, ends = self.outcome.whole, self.cut_offs(theta.a, theta.b, size, cut)
        low, high = ends.min(axis=0), ends.max(axis=0)  # all are above at `high`, none below `low`
        # components of weight 0 have log weight -inf
        with np.errstate(divide="ignore"):
            log_weight = 0.0 if theta.weight is None else np.log(theta.weight)
        for _ in range(_HALVINGS if whole else _REAL_HALVINGS):
            middle = 0.5 * (low + high)
            middle = np.floor(middle) if whole else middle
            following = middle + whole
            # beyond 2^53 a count and the next one are the same number: the bracket stays open there
            shrinks = (low < high) & (middle < high) & (following > low)
            if not shrinks.any():
                break
            log_p = self.further_log_density(middle, theta.a, theta.b, size) + log_weight
            p = np.exp(log_p - log_p.max(axis=0))
            means = self.mean(*self.update(theta.a, theta.b, middle, size))
            up = (p * (means - cut)).sum(axis=0) > 0
            low = np.where(shrinks & ~up, following, low)
            high = np.where(shrinks & up, middle, high)
        return np.asarray(high)


def grid_ends(weight: Floats, low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Ends of the grids: of all components that have some weight."""
    counts = weight > _FAINT
    return np.where(counts, low, np.inf).min(axis=0), np.where(counts, high, -np.inf).max(axis=0)


def count_grid(low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Counts that stand for all from `low` to `high`, and their weights, each (outcomes, n).

    The lowest are counts themselves; what remains is an integral over the root of the count, by
    Gauss and Legendre, with the first term of Euler and Maclaurin where the two meet.
    """
    single = np.arange(_SINGLE)[:, None]
    short = high - low < _SINGLE
    node, share = (x[:, None] for x in np.polynomial.legendre.leggauss(GRID - _SINGLE))
    begin = np.sqrt(low + _SINGLE - 0.5)
    half = np.where(short, 0.0, 0.5 * (np.sqrt(np.maximum(high, low + _SINGLE)) - begin))
    root = begin + half * (1.0 + node)
    width = (low + single <= high).astype(float)
    # the slope half a step beyond the last count, by a parabola through the last three
    width[-3:] += np.where(short, 0.0, np.array([[1.0], [-3.0], [2.0]]) / 24.0)
    return np.vstack([low + single, root**2]), np.vstack([width, 2.0 * root * half * share])


def _averaged(
    weight: Floats, log_p: Floats, width: Floats, means: Floats, variances: Floats
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
