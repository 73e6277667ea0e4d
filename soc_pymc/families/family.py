"""The base of conjugate families: a likelihood with its prior, and what follows from both.

At a score a family's prior is given by two curves, or by the conjugate parameters `a, b` of theta.
Functions take either pair as two arrays and broadcast.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.random import Generator

from .._lib.arrays import Columns, Floats, Pair, Triple
from ..prior_table import ARRAYS, Formulas, Members, Mixture, mixture_summaries, moments
from .mixtures import Components
from .outcome import Outcome
from .rows import RowSums
from .scales import LINEAR, Scale

Generators = tuple[Generator, ...]

_MOST_SUMMARISED = 1 << 16  # in one array of members x items
# probability that a difference from 1 does not show well
_ROUNDED_TAIL = 1e-6


class Family(Formulas, Components):
    """Laws of theta given the score, and of outcomes; a family writes the abstract methods."""

    outcome: Outcome
    prior: Any  # class of its configuration
    mixture: type  # that of mixtures of it
    # sums of rows of items, and the log marginal given them
    rows: type[RowSums]
    parameter_names: tuple[str, str]  # of the conjugate parameters
    # by which the first rises where a prior is weighted by theta
    theta_power: float = 1.0
    further_scale: Scale = LINEAR  # of the moments of further outcomes

    @property
    def curve_names(self) -> tuple[str, str]:
        """Names of both curves in the posterior."""
        return self.prior.curve_names

    # copies are the family itself
    def __reduce__(self) -> tuple[Any, ...]:
        return _family_of, (self.outcome.kind, self.attrs)

    def given(self, attrs: Mapping[Any, Any]) -> "Family":
        """Return the family of items with these attributes."""
        from . import TRUNCATED

        return TRUNCATED[self.outcome.kind] if "truncated" in attrs else self

    @property
    def attrs(self) -> dict[str, Any]:
        """Attributes of items of which `given` makes this family."""
        return {"truncated": 1} if self.outcome.truncated else {}

    def rows_of(self, rows: int, cells: Mapping[str, Columns]) -> RowSums:
        """Build so many rows from tables of cells, as `RowSums.of`."""
        return self.rows.of(rows, cells)

    # --- curves

    def to_parameters(self, location: Floats, dispersion: Floats) -> Pair:
        """Conjugate parameters of priors with these curves."""
        dispersion = np.maximum(dispersion, -self.bounds[1])
        a, b = self.parameters(np.asarray(location), dispersion, ARRAYS)
        return a, b

    @abstractmethod
    def to_curves(self, a: Floats, b: Floats) -> Pair:
        """Both curves."""

    def curve_variables(
        self, location: Floats, dispersion: Floats
    ) -> dict[str, Floats]:
        """Variables of `soc.calibration_curves` by name."""
        mean, variance = self.natural_moments(location, np.exp(dispersion))
        moments = {"mean": mean, "variance": variance, self.curve_names[0]: location}
        parameters = self.to_parameters(location, dispersion)
        named = zip(self.parameter_names, parameters, strict=True)
        return moments | {"log_variance": np.log(variance)} | dict(named)

    @abstractmethod
    def natural_moments(self, location: Floats, exponential: Floats) -> Pair:
        """E(theta) and Var(theta) from the location and exp of the dispersion, which may be 0."""

    def widened(
        self, location: Floats, dispersion: Floats, spread: Floats | float
    ) -> Pair:
        """Curves averaged over a variance `spread` of the location, to second order."""
        spread = np.asarray(spread, dtype=float)
        return self.rows.widened(np, location, dispersion, spread)

    def unit(self, dispersion: Floats) -> Floats:
        """Unit of an sd of the location, from the dispersion."""
        return np.ones_like(dispersion)

    # large dispersions do not change posteriors of items with a size
    saturates = False

    def felt(self, dispersion: Floats, sized: bool = False) -> Floats:
        """Dispersion on the scale on which it changes posteriors, or those of items with a size."""
        return dispersion

    # --- theta

    @abstractmethod
    def third_moment(self, a: Floats, b: Floats) -> Floats:
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
        inside = (self.mean(a, b) - cut) * self.above(cut, a, b)
        return np.maximum(inside + self.kernel(cut, a, b), 0.0)

    def shortfall(self, cut: Floats, a: Floats, b: Floats) -> Floats:
        """E[(cut - theta)+]."""
        inside = (cut - self.mean(a, b)) * self.cdf(cut, a, b)
        return np.maximum(inside + self.kernel(cut, a, b), 0.0)

    @abstractmethod
    def draw(self, a: Floats, b: Floats, rngs: Generators) -> Floats:
        """Draws of theta's place, one for each element, row by row."""

    def natural(self, place: Floats) -> Floats:
        """Theta from places."""
        with np.errstate(over="ignore"):
            return self.theta(place, ARRAYS)

    def above_place(self, place: Floats, a: Floats, b: Floats) -> Floats:
        """P(theta > its value at a place)."""
        return self.above(place, a, b)

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
        laws = [self.law, self._law] if exact else [self.law]
        a, b = np.broadcast_arrays(a, b)
        weight = np.full((len(a), 1), 1.0 / len(a)) if weight is None else weight
        weight = np.broadcast_to(weight, a.shape)
        out = np.empty((3 + len(probs) + (zero is not None), a.shape[1]))
        step = max(1, _MOST_SUMMARISED // len(a))
        with np.errstate(all="ignore"):
            for begin in range(0, a.shape[1], step):
                part = slice(begin, begin + step)
                at_zero = None if zero is None else zero[part]
                members = weight[:, part], a[:, part], b[:, part]
                averages, *_ = moments(self, members, ARRAYS)
                mixture = Mixture(*members, averages, at_zero)
                out[:, part] = mixture_summaries(self, mixture, probs, laws)
        return out

    def _law(self, members: Members, t: Floats, xp: SimpleNamespace) -> Triple:
        """Distribution function and density at places t."""
        a, b, _ = members
        below = 1.0 - self.above_place(t, a, b)
        faint = (below < _ROUNDED_TAIL).all(axis=0)
        if faint.any():  # their digits went with the difference from 1
            below = np.where(faint, self.cdf(self.natural(t), a, b), below)
        return below, *self.law(members, t, xp)[1:]

    # --- outcomes, averaged over theta

    @abstractmethod
    def log_marginal(self, y: Floats, size: Floats, a: Floats, b: Floats) -> Floats:
        """Log marginal density or probability; counts may lie between whole numbers."""

    def log_density(
        self, y: Floats, size: Floats, location: Floats, dispersion: Floats
    ) -> Floats:
        """`log_marginal` under curves."""
        return self.log_marginal(y, size, *self.to_parameters(location, dispersion))

    def log_listed(self, size: Floats, a: Floats, b: Floats) -> Floats:
        """Log probability that the table of items has an item of this size."""
        return np.zeros(np.broadcast(size, a, b).shape)

    @property
    def complete(self) -> "Family":
        """The family of all items, where this one's are those of 1 or more."""
        return _family_of(self.outcome.kind)

    @abstractmethod
    def below(self, y: Floats, size: Floats, a: Floats, b: Floats) -> Floats:
        """P(Y < y)."""

    def cdf_interval(
        self, y: Floats, size: Floats, location: Floats, dispersion: Floats
    ) -> Pair:
        """P(Y < y) and P(Y <= y) of outcomes (n,) under curves (draws, n)."""
        a, b = self.to_parameters(location, dispersion)
        if not self.outcome.whole:
            upto = self.below(y, size, a, b)
            return upto, upto
        upto = self.below(y + 1.0, size, a, b)
        return np.maximum(upto - np.exp(self.log_marginal(y, size, a, b)), 0.0), upto

    @abstractmethod
    def simulate(self, a: Floats, b: Floats, size: Floats, rng: Generator) -> Floats:
        """Outcomes of new items."""

    # --- further outcomes of mixtures of components (K, n), or (K, 1, n) for a grid of outcomes

    @abstractmethod
    def outcome_moments(self, a: Floats, b: Floats, size: Floats) -> Triple:
        """Mean and sd of outcomes on their scale, and reach of the upper tail beyond a Normal's."""

    def further_log_density(
        self, y: Floats, size: Floats, a: Floats, b: Floats
    ) -> Floats:
        """Log density of an outcome, up to what all components share."""
        return self.log_marginal(y, size, a, b)

    def gained(
        self, least: Floats, size: Floats, a: Floats, b: Floats, cut: Floats
    ) -> Pair:
        """E[cut - theta] over outcomes below `least`, and E[theta - cut] over the others."""
        shapes = a, a + self.theta_power
        plain, weighted = (self.below(least, size, shape, b) for shape in shapes)
        mean = self.mean(a, b)
        rise = mean * (1.0 - weighted) - cut * (1.0 - plain)
        return cut * plain - mean * weighted, rise


def _family_of(kind: str, attrs: Mapping[str, Any] | None = None) -> Family:
    from . import family_of_kind  # which knows all families

    return family_of_kind(kind, attrs)
