"""Posteriors without one item: refits that begin at the posterior of all items.

The item's log marginal is taken from the likelihood; positions, knots and the priors of all terms
stay those of all items. Natural gradient steps move the Gaussian of all items, and importance
weights correct it.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import xarray as xr

from .._lib.arrays import Floats, Pair
from .._model import problem
from .._model.mixture_cells import MixtureCells
from .._model.mixture_grid import cells_of_item
from .._model.problem import Problem
from ..data.statistics import Statistics
from ..families.rows import RowSums
from ..fits.curves import Curves
from ..fits.fit import Fit
from .density import Likelihood, near_densities, posterior_draws, rows_of_likelihood
from .fit_tree import scored_draws, tree_of_draws
from .variational import importance, nearby_draws, nearby_gaussian


class WithoutItem(NamedTuple):
    """A posterior without some item."""

    curves: Curves
    weight: Floats  # (draws,): of the draws, with a sum of 1
    pareto_k: float


@dataclass(frozen=True, eq=False)
class _Without:
    """A likelihood without an item, whose predictors are some rows of the predictors."""

    everything: Likelihood
    item: RowSums | MixtureCells
    rows: slice

    def sums(self, *predictors: Floats) -> Floats:
        """Sums (draws,) over all other items."""
        value, *_ = self._of_item(predictors)
        return self.everything.sums(*predictors) - value

    def sums_and_slopes(self, *predictors: Floats) -> tuple[Floats, ...]:
        """Sums (draws,) over all other items, and slopes in the predictors."""
        total, *slopes = self.everything.sums_and_slopes(*predictors)
        value, *item_slopes = self._of_item(predictors)
        for slope, item_slope in zip(slopes, item_slopes, strict=True):
            slope[self.rows] -= item_slope
        return total - value, *slopes

    def _of_item(self, predictors: tuple[Floats, ...]) -> list[Floats]:
        """Log marginal (draws,) of the item, and slopes in its predictors."""
        at_item = [values[self.rows].T for values in predictors]
        if isinstance(self.item, RowSums):
            location, dispersion = at_item
            value, *slopes = self.item.value_and_gradient(location, dispersion)
        else:
            value, slope = self.item.log_marginals(at_item[0][:, None])
            slopes = [slope[:, 0]]
        return [value[:, 0], *(slope.T for slope in slopes)]


class Refits:
    """Refits of a fit without single items of the joint cells of its statistics."""

    def __init__(self, fit: Fit, stats: Statistics, built: Problem) -> None:
        self._stats = stats
        self._built = built
        self._prior = fit.prior
        self._likelihood = rows_of_likelihood(built)
        densities = near_densities(built, self._likelihood)
        self._gaussian = nearby_gaussian(densities.bound, *self._start(fit))

    def without(self, line: int, most_k: float) -> WithoutItem:
        """Return the posterior without an item of a line of the joint cells.

        Draws are annealed where Pareto k is above `most_k`.
        """
        rng = np.random.default_rng(line)
        densities = near_densities(self._built, self._without(line))
        points, log_weight = nearby_draws(densities, self._gaussian, most_k, rng)
        weight, k, _ = importance(log_weight)
        posterior = posterior_draws(self._built.space, points)
        return WithoutItem(self._curves(posterior), weight, k)

    def _start(self, fit: Fit) -> Pair:
        """Mean and sds of the fit's Gaussian, if it is in these coordinates; else the Laplace's."""
        items = self._stats.data["n"].to_numpy()
        same_bins = np.array_equal(fit.curves.bins["n_items"], items[items > 0])
        start = self._built.space.start
        if same_bins and "variational" in fit.data.children:
            gaussian = fit.data["variational"]
            if gaussian.sizes["coordinate"] == len(start):
                return gaussian["mean"].to_numpy(), gaussian["sd"].to_numpy()
        return start, np.ones(len(start))

    def _without(self, line: int) -> Likelihood:
        """The likelihood without an item of a line of the joint cells."""
        built = self._built
        pilot = built.pilot
        cell = {x: v[[line]] for x, v in self._stats.table("joint").items()}
        item = {
            x: v / cell["n"] if x == "n" or x.startswith("sum_") else v
            for x, v in cell.items()
        }
        row = np.searchsorted(pilot.rows.key, pilot.rows.keys(item))
        if built.mixture is None:
            first = np.zeros(1, dtype=np.int64)
            alone = built.family.rows_of(1, {"joint": {**item, "row": first}})
            alone = alone.with_spread(pilot.data.spread[row])
            return self._less(alone, slice(row[0], row[0] + 1))
        merged = built.mixture.rows.code[row]
        cells = cells_of_item(built.family, built.mixture, {**item, "row": merged})
        predictors = 2 + built.mixture.functions.shape[1]
        begin = merged[0] * predictors
        return self._less(cells, slice(begin, begin + predictors))

    def _less(self, item: RowSums | MixtureCells, rows: slice) -> Likelihood:
        without = _Without(self._likelihood, item, rows)
        number = self._likelihood.number
        return Likelihood(without.sums, without.sums_and_slopes, number)

    def _curves(self, posterior: xr.Dataset) -> Curves:
        """Curves of draws, with the data of those of the Laplace approximation's centre."""
        return self._centre.with_draws(
            scored_draws(self._built, posterior, self._prior.monotone)
        )

    @cached_property
    def _centre(self) -> Curves:
        posterior = posterior_draws(self._built.space, self._built.space.start[None])
        groups = {"posterior": posterior}
        tree = tree_of_draws(self._built, self._stats, groups, self._prior.monotone)
        return Curves.of(tree, self._prior)


def refits_of(fit: Fit, stats: Statistics) -> Refits | None:
    """Return the refits of a fit to statistics; None if its posterior is another or has levels."""
    if fit.widened or fit.data.attrs.get("extended"):
        return None
    built = problem.build(stats, fit.prior)
    return None if built.pilot.levels else Refits(fit, stats, built)
