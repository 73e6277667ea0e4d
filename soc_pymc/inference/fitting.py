"""The fit of one prior, variational by default, NUTS as the reference; and refits without an item.

A refit begins at the posterior of all items. The item's log marginal is taken from the likelihood;
positions, knots and the priors of all terms stay. Natural gradient steps move the Gaussian of all
items, and importance weights correct it.
"""

import logging
import time
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import xarray as xr

from .._lib.arguments import (
    A,
    ConvergenceWarning,
    FitError,
    ItemsWarning,
    OrNone,
    warn_user,
)
from .._lib.arrays import Floats, Pair
from .._lib.reprs import code_of
from .._lib.work import long_work
from .._model import problem
from .._model.mixtures import MixtureCells, cells_of_item
from .._model.problem import Problem, build, prior_for
from ..data.statistics import Statistics
from ..families.priors import Prior
from ..families.rows import RowSums
from ..fits import Curves, Fit, Method
from .density import Likelihood, near_densities, posterior_draws, rows_of_likelihood
from .fit_tree import conventional, in_chains, scored_draws, tree_of_draws
from .variational import VI, densities_of, importance, nearby_draws, nearby_gaussian

_log = logging.getLogger(__name__)
_FLAT = 1e-6  # rise of the mean's curve below which it is flat
_ROUGH_DRAWS = 100
_METHOD = A(Method, "soc.VI(...), soc.NUTS(...) or soc.FiveSteps(...)")

if TYPE_CHECKING:
    import pymc as pm


@long_work
def fit_prior(
    stats: Statistics,
    prior: Prior | None = None,
    method: Method | None = None,
    *,
    model: "pm.Model | None" = None,
    progress: bool | None = None,
) -> Fit:
    """Fit one prior to statistics: `soc.fit` describes the arguments."""
    method = OrNone(_METHOD)(method, "method")
    if model is not None:
        import pymc as pm  # which takes a second to load

        A(pm.Model, "soc.model(stats, prior), to which you added terms")(model, "model")
    if not stats.n_items:
        raise FitError("the statistics hold no items: there is nothing to fit")
    prior = prior_for(prior, stats)
    method = VI() if method is None else method
    _log.info("fitting %s by %s", code_of(prior), code_of(method))
    began = time.perf_counter()
    try:
        tree, status = method.run(stats, prior, model)
    except np.linalg.LinAlgError as error:
        raise FitError(
            f"the model cannot be computed with numbers of this size ({error}): bring scores, "
            "outcomes and noise sds or exposures into units in which they are nearer to 1"
        ) from error
    status = replace(status, seconds=time.perf_counter() - began)
    state = "converged" if status.converged else "did NOT converge"
    _log.info("the fit %s after %.1f s: %s", state, status.seconds, status.reason)
    if not status.converged:
        warn_user(status.reason, ConvergenceWarning)
    fit = Fit(conventional(tree), prior, method, status)
    if prior.monotone and _is_flat(fit):
        warn_user(
            f"E(theta | t) does not rise with {stats.roles['score']!r}, and monotone=True makes it "
            "flat: if theta falls as the score rises, reverse the score, such as -score or "
            "1 - score, or leave out monotone=True",
            ItemsWarning,
        )
    return fit


def rough_curves(stats: Statistics, prior: Prior) -> Curves:
    """Return curves drawn from Laplace's approximation, where fits begin, in little time."""
    prior = prior_for(prior, stats)
    rng = np.random.default_rng(0)
    built = build(stats, prior, full=False)
    start = built.space.start
    points = start + rng.normal(size=(_ROUGH_DRAWS, len(start)))
    draws = densities_of(built, rng, _ROUGH_DRAWS).draws(points)
    groups = {"posterior": in_chains(scored_draws(built, draws, prior.monotone))}
    tree = tree_of_draws(built, stats, groups, prior.monotone)
    return Curves.of(tree, prior)


def _is_flat(fit: Fit) -> bool:
    """Return True if the mean, which nowhere falls, ends where it begins in most draws."""
    knots = fit.curves.knots("mean_knot")
    ends = fit.curves.axis("mean").inverse(knots[[0, -1]])
    location, _ = fit.curves.at(ends)
    rise = np.median(location[:, 1] - location[:, 0])
    return len(knots) > 1 and bool(rise < _FLAT)


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
