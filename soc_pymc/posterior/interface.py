"""Columns of items, and theta of items as finite mixtures."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._lib.arrays import Floats
from .._lib.threads import ordered_map
from ..families.family import Family, with_zero
from ..families.outcomes import Outcome

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

    a: Floats  # (K, n): conjugate parameters, shape and rate or mean and variance
    b: Floats
    weight: Floats | None = None  # (K, n), with sum 1 over the components; None for equal weights
    zero: Floats | None = None  # (n,): share of theta that is 0 and none of the members; None: 0

    def average(self, values: Floats, at_zero: Floats | float = 0.0) -> Floats:
        """Mean of `values` (K, n) of the components and of those where theta is 0, shape (n,)."""
        if self.weight is None:
            return np.asarray(values.mean(axis=0))
        total = np.asarray(np.einsum("kn,kn->n", self.weight, values))
        if self.zero is None:
            return total
        return np.asarray((1.0 - self.zero) * total + self.zero * at_zero)

    def listed(self, family: Family) -> "ThetaMixture":
        """Append theta = 0 as a last component, so near 0 that no outcome can tell."""
        if self.zero is None or self.weight is None:
            return self
        a, b = with_zero(family, self.a.T, self.b.T)
        weight = np.vstack([(1.0 - self.zero) * self.weight, self.zero])
        return ThetaMixture(a.T, b.T, weight)


def select(columns: Columns, items: slice | NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Some of the items."""
    return {name: values[items] for name, values in columns.items()}


def own_outcomes(outcome: Outcome, columns: Columns) -> tuple[Floats, Floats]:
    """Outcomes and their sizes, uninformative ones for items without outcomes."""
    if outcome.observed in columns:
        return columns[outcome.observed], columns[outcome.size]
    n = len(columns["score"])
    return np.zeros(n), np.full(n, outcome.no_information)


def in_chunks(one_chunk: Scorer, step: int, columns: Columns) -> Floats:
    """Process chunks in threads, because scipy's functions release the lock."""
    n = len(columns["score"])
    parts = [slice(i, min(i + step, n)) for i in range(0, n, step)]
    return np.concatenate(
        list(ordered_map(lambda part: one_chunk(select(columns, part)), parts)), axis=-1
    )
