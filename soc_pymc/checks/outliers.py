"""Items whose outcomes lie farthest in the tails of their predictive distributions."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from .._lib.arrays import Columns, Floats, Ints, Pair
from ..data.roles import NO_SCORE
from ..posterior.predictive import Posterior
from .advice import Gains
from .findings import FAILS
from .observations import Observations

MOST = 100  # items kept
_DRAWS = 100  # of the curves, for moments of outcomes


@dataclass(frozen=True, eq=False)
class Outliers:
    """The outlying items of a check, the farthest first."""

    gains: Gains  # of all items
    items: Observations
    place: Ints  # among all items, from 0
    p: Floats  # two-sided tail probabilities
    number: int  # of all items

    @property
    def beyond_chance(self) -> int:
        """Number of items so far out that one of all would be by chance in 1% of tables."""
        return int((self.number * self.p < FAILS).sum())

    def table(self) -> pd.DataFrame:
        """Return a row for each of these items."""
        posterior = self.gains.posterior
        outcome = posterior.outcome
        columns = self.items.columns
        roles = self.items.roles
        given = {
            name: columns[role]
            for role, name in roles.outcomes.items()
            if name != NO_SCORE
        }
        levels = {name: self.items.labels[name].array for name in roles.groups.values()}
        expected, sds = residuals(posterior, columns)
        numbers = {
            "estimate": outcome.estimate(
                columns[outcome.observed], columns[outcome.size]
            ),
            "expected": expected,
            "sds": sds,
            "p": self.p,
            "by_chance": self.number * self.p,
            "theta_mean": posterior.moments(columns)[0].mean(axis=0),
            "robust_mean": self.gains.robust_means(self.items),
        }
        index = pd.Index(columns.get("row", self.place), name="item")
        return pd.DataFrame(given | levels | numbers, index)


def outliers(gains: Gains, items: Observations, ends: Floats) -> Outliers:
    """Return the farthest of all items, given P(Y < y) and P(Y <= y) of these, (2, n)."""
    below, upto = ends
    p = np.minimum(2.0 * np.minimum(upto, 1.0 - below), 1.0)
    last = min(MOST, len(p)) - 1
    # more than these where tails are too small for floating-point numbers
    place = np.flatnonzero(p <= np.partition(p, last)[last])
    _, sds = residuals(gains.posterior, items.at(place).columns)
    order = np.lexsort([-np.abs(sds), p[place]])[:MOST]
    place = place[order]
    return Outliers(gains, items.at(place), place, p[place], len(p))


def residuals(posterior: Posterior, columns: Columns) -> Pair:
    """Return expected rates or values (n,), and how far outcomes are from these, in their sds."""
    outcome = posterior.outcome
    size = columns[outcome.size]
    draws = posterior.curves.even_draws(_DRAWS)
    curves = posterior.curve_variables(columns, draws)
    means = curves["mean"]
    mean = means.mean(axis=0)
    variance = curves["variance"].mean(axis=0) + means.var(axis=0)
    noise = outcome.noise(mean, variance)
    with np.errstate(divide="ignore"):  # of items without information
        noise = noise / size if outcome.sizes_add else noise * size**2
    expected, square = outcome.of_listed(size, mean, variance, variance + noise)
    gap = outcome.estimate(columns[outcome.observed], size) - expected
    return expected, np.nan_to_num(gap / np.sqrt(square))
