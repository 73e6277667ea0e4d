"""The interface of posterior and predictive distributions, one for all priors.

Given a draw of the curves theta is Gamma, Normal or Beta, or a mixture of these, before and after
the outcome; over the draws it is a mixture. The rest of the package uses
`soc_pymc.posterior.predictive.posterior_of`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from .._lib.arrays import Floats, Ints
from .._lib.threads import ordered_map
from ..families.family import Family
from ..families.outcomes import Outcome
from ..families.zeros import with_zero

Columns = Mapping[str, NDArray[Any]]
"""Columns of items by role, arrays of one length.

``score``, the outcome (``count`` or ``value``), its size (``exposure`` or ``noise_sd``), and
``group`` (labels as str) if the fit has groups. Without the outcome, theta is as given the score,
the group and, for a prior that depends on it, the size. Where an item stands for several whose
scores differ, ``spread`` is the variance of the mean curve (of log E(theta | t) for counts) over
them.
"""

Scorer = Callable[[Columns], Floats]
"""From items to posterior mean, sd, variance and quantiles of theta, (3 + probabilities, n).

A last row is P(theta = 0 | t, y) if theta may be 0.
"""


@dataclass(frozen=True)
class ThetaMixture:
    """Theta of n items given score and outcome, as mixtures of K members of a family."""

    first: Floats  # (K, n): conjugate parameters, shape and rate or mean and variance
    second: Floats
    weight: Floats | None = None  # (K, n), with sum 1 over the components; None for equal weights
    zero: Floats | None = None  # (n,): share of theta that is 0 and none of the members; None: 0

    def average(self, values: Floats, at_zero: Floats | float = 0.0) -> Floats:
        """Mean of `values` (K, n) of the components and of those where theta is 0, shape (n,)."""
        if self.weight is None:
            return np.asarray(values.mean(axis=0))
        found = np.asarray(np.einsum("kn,kn->n", self.weight, values))
        if self.zero is None:
            return found
        return np.asarray((1.0 - self.zero) * found + self.zero * at_zero)

    def listed(self, family: Family) -> "ThetaMixture":
        """The same with theta = 0 as a last component, so near 0 that no outcome shows it."""
        if self.zero is None or self.weight is None:
            return self
        first, second = with_zero(family, self.first.T, self.second.T)
        weight = np.vstack([(1.0 - self.zero) * self.weight, self.zero])
        return ThetaMixture(first.T, second.T, weight)


class Posterior(Protocol):
    """Distributions of theta and outcomes under a fit, by draw of its curves.

    `draws` are indices of draws, chains one after the other, and may repeat; None takes each once.
    """

    @property
    def family(self) -> Family:
        """Family of theta given a draw, or of the components of its mixtures."""

    @property
    def outcome(self) -> Outcome:
        """The kind of outcome."""

    def log_density(self, columns: Columns, draws: Ints | None = None) -> Floats:
        """Log density (probability) of the outcomes given score and size, (draws, n)."""

    def cdf_interval(self, columns: Columns) -> tuple[Floats, Floats]:
        """P(Y < y) and P(Y <= y) averaged over the draws, each (n,); equal if continuous.

        They are those of the prior table, to about 1e-4.
        """

    def cdf_by_draw(self, columns: Columns, draws: Ints) -> Floats:
        """P(Y < y) and P(Y <= y) under some draws of the curves, (2, draws, n)."""

    def further_cdf_interval(
        self, columns: Columns, outcome: Floats, size: Floats
    ) -> tuple[Floats, Floats]:
        """The same for another outcome of each item, given the one in `columns`, to about 1e-4.

        `outcome` and `size`, each (n,), are those of the further observation.
        """

    def simulate(
        self, columns: Columns, rng: np.random.Generator, draws: Ints | None = None
    ) -> Floats:
        """Outcomes of new items of the same score and size, (draws, n)."""

    def moments(self, columns: Columns) -> tuple[Floats, Floats, Floats]:
        """E and Var(theta | t, y) and the third central moment of the items, each (draws, n)."""

    def theta(self, columns: Columns) -> ThetaMixture:
        """Theta of the items given score and outcome, averaged over all draws of the curves."""

    def theta_given(self, columns: Columns, draws: Ints, uniform: Floats) -> tuple[Floats, Floats]:
        """Conjugate parameters of theta under some draws of the curves, each (draws, n).

        Under a mixture they are those of one component of the posterior, drawn with its probability
        by means of `uniform` (draws, n) on (0, 1).
        """

    def rows(self, columns: Columns, probs: Sequence[float], *, plug_in: bool = False) -> Floats:
        """Rows of a `Scorer` over all draws of the curves, or with their mean alone."""

    def scorer(self, probs: Sequence[float], draws: str = "auto", plug_in: bool = False) -> Scorer:
        """Function that scores items: ``"auto"`` by the prior table, or over ``"all"`` draws."""

    def curves(
        self, score: Floats, group: NDArray[Any] | None = None, exposure: Floats | None = None
    ) -> dict[str, Floats]:
        """Variables of `calibration_curves` at scores, each (draws, n).

        Groups and exposures (or noise sds) are ignored if the fit has no such terms.
        """


def select(columns: Columns, at: slice | NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Some of the items."""
    return {name: values[at] for name, values in columns.items()}


def own_outcomes(outcome: Outcome, columns: Columns) -> tuple[Floats, Floats]:
    """Outcomes and their sizes, uninformative ones for items without outcomes."""
    if outcome.observed in columns:
        return columns[outcome.observed], columns[outcome.size]
    n = len(columns["score"])
    return np.zeros(n), np.full(n, outcome.no_information)


def without_outcomes(outcome: Outcome, columns: Columns) -> dict[str, NDArray[Any]]:
    """Columns of items whose outcomes are not seen yet."""
    return {name: values for name, values in columns.items() if name != outcome.observed}


def in_chunks(one_chunk: Scorer, step: int, columns: Columns) -> Floats:
    """Process chunks in threads, because scipy's functions release the lock."""
    parts = _slices(len(columns["score"]), step)
    done = list(ordered_map(lambda part: one_chunk(select(columns, part)), parts))
    return np.concatenate(done, axis=-1)


def _slices(n: int, step: int) -> list[slice]:
    return [slice(i, min(i + step, n)) for i in range(0, n, step)]


def proper(below: Floats, upto: Floats) -> tuple[Floats, Floats]:
    """Ends of a probability interval, clipped to [0, 1] and sorted, because of rounding."""
    upto = np.clip(upto, 0.0, 1.0)
    return np.clip(below, 0.0, upto), upto
