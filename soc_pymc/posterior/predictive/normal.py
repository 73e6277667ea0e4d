"""Values under a Normal prior: theta given a draw of the curves is Normal, before and after."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from ...families import normal_normal
from ...families.mixtures import Summaries, weighted
from ...families.normal_mixtures import normal_summaries
from ...families.outcomes import OUTCOMES
from ...inference.results import Fit
from ..quadrature import MEAN_SPREAD, NODE_LIMITS, NORMAL, Nodes, is_plain, make_nodes
from ._law import (
    Columns,
    Scorer,
    average_at,
    average_ends,
    curves_at,
    draws_at,
    draws_given,
    in_chunks,
    items_at_once,
    nodes_at,
    rows,
    score_few,
    select,
)
from ._posterior import ThetaMixture

__all__ = ["NormalLaw"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_MANY = 4000  # items in a chunk without draws, or with few nodes


@dataclass(frozen=True)
class NormalLaw:
    """Posterior of a fit of `soc.Normal`, whose values are Normal given the curves."""

    fit: Fit

    outcome = OUTCOMES["normal"]

    def log_density(self, columns: Columns) -> Floats:
        """Log densities of the values, (draws, n)."""
        value, noise_sd = columns["value"], columns["noise_sd"]
        return normal_normal.log_density(value, noise_sd, *self._draws(columns))

    def cdf_interval(self, columns: Columns) -> tuple[Floats, Floats]:
        """P(Y <= value), twice, over few nodes that stand for the draws."""
        weight, mean, log_variance = nodes_at(self.fit, columns, self.outcome.size)
        curves = _spread_out(columns, mean, log_variance)
        upto = weight @ normal_normal.cdf(columns["value"], columns["noise_sd"], *curves)
        upto = np.clip(upto, 0.0, 1.0)  # weights add up to 1 only up to rounding
        return upto, upto

    def further_cdf_interval(
        self, columns: Columns, outcome: Floats, size: Floats
    ) -> tuple[Floats, Floats]:
        """P(Y' <= y'), twice, of a further value of the same items, given their own."""

        def ends(mean: Floats, log_variance: Floats, part: Columns) -> tuple[Floats, Floats]:
            prior = _spread_out(part, mean, log_variance)
            noise = part["noise_sd"] ** 2
            after = normal_normal.update(prior[0], np.exp(prior[1]), part["value"], noise)
            sd = np.sqrt(after[1] + part["further_sd"] ** 2)
            upto = special.ndtr((part["further"] - after[0]) / sd)
            return upto, upto

        both = {**columns, "further": outcome, "further_sd": size}
        return average_ends(self.fit, both, self.outcome.size, ends)

    def simulate(self, columns: Columns, rng: np.random.Generator) -> Floats:
        """Values of new items."""
        mean, log_variance = self._draws(columns)
        sd = np.sqrt(np.exp(log_variance) + columns["noise_sd"] ** 2)
        return mean + sd * rng.standard_normal(mean.shape)

    def curves(
        self, score: Floats, group: NDArray[Any] | None = None, exposure: Floats | None = None
    ) -> dict[str, Floats]:
        """Mean and variance of theta, and the logarithm of the variance."""
        mean, log_variance = curves_at(self.fit, score, group, exposure)
        return {"mean": mean, "variance": np.exp(log_variance), "log_variance": log_variance}

    def moments(self, columns: Columns) -> tuple[Floats, Floats]:
        """E and Var(theta | t, y), draw by draw."""
        mean, log_variance = draws_at(self.fit, columns, self.outcome.size)
        noise = columns["noise_sd"] ** 2
        after: tuple[Floats, Floats] = normal_normal.update(
            mean, np.exp(log_variance), columns["value"], noise
        )
        return after

    def theta(self, columns: Columns) -> ThetaMixture:
        """Normals, one of each draw."""
        return ThetaMixture(*self.moments(columns))

    def theta_given(self, columns: Columns, draws: Ints, uniform: Floats) -> tuple[Floats, Floats]:
        """Means and variances, (draws, n)."""
        mean, log_variance = draws_given(self.fit, columns, self.outcome.size, draws)
        noise = columns["noise_sd"] ** 2
        after: tuple[Floats, Floats] = normal_normal.update(
            mean, np.exp(log_variance), columns["value"], noise
        )
        return after

    def scorer(self, probs: tuple[float, ...], draws: str, plug_in: bool) -> Scorer:
        """Posteriors as mixtures of Normals over the draws."""
        fit, step = self.fit, items_at_once(self.fit)

        def plugged_in(columns: Columns) -> Floats:
            first, second = (curve[None] for curve in average_at(fit, columns, self.outcome.size))
            return rows(_Posteriors(columns, probs).summaries(first, second))

        def every_draw(columns: Columns) -> Floats:
            draws = draws_at(fit, columns, self.outcome.size)
            return rows(_Posteriors(columns, probs).summaries(*draws))

        def few_nodes(columns: Columns) -> Floats:
            first, second = draws_at(fit, columns, self.outcome.size)
            spread = _spread(first.std(axis=0), second.std(axis=0), second.mean(axis=0))
            return score_few(_Posteriors(columns, probs), first, second, spread)

        if plug_in:
            step = _MANY if is_plain(fit) else step
            return lambda columns: in_chunks(plugged_in, step, columns)
        if draws == "all":
            return lambda columns: in_chunks(every_draw, step, columns)
        if is_plain(fit):
            return _Table(fit, probs, lambda columns: in_chunks(few_nodes, step, columns))
        return lambda columns: in_chunks(few_nodes, step, columns)

    def _draws(self, columns: Columns) -> tuple[Floats, Floats]:
        return _spread_out(columns, *draws_at(self.fit, columns, self.outcome.size))


def _spread_out(columns: Columns, mean: Floats, log_variance: Floats) -> tuple[Floats, Floats]:
    """Curves of theta over all that an item stands for."""
    if "spread" not in columns:
        return mean, log_variance
    # items that stand for one score have a spread of 0, whose logarithm is meant
    with np.errstate(divide="ignore"):
        return mean, np.logaddexp(log_variance, np.log(columns["spread"]))


def _spread(mean_sd: Floats, log_variance_sd: Floats, log_variance: Floats) -> Floats:
    """Spread of the curves: that of the mean in sd of theta counts for more."""
    return np.maximum(MEAN_SPREAD * mean_sd * np.exp(-0.5 * log_variance), log_variance_sd)


@dataclass(frozen=True)
class _Posteriors:
    """Posteriors of items as mixtures of Normals."""

    columns: Columns
    probs: tuple[float, ...]

    def summaries(
        self,
        first: Floats,
        second: Floats,
        at: NDArray[np.intp] | slice = slice(None),
        weight: Floats | None = None,
    ) -> Summaries:
        return normal_summaries(*self._updated(first, second, at), self.probs, weight)

    def apart(self, first: Floats, second: Floats, at: NDArray[np.intp], weight: Floats) -> Floats:
        return _apart(*self._updated(first, second, at), weight)

    def _updated(
        self, first: Floats, second: Floats, at: NDArray[np.intp] | slice
    ) -> tuple[Floats, Floats]:
        value, noise = self.columns["value"][at], self.columns["noise_sd"][at] ** 2
        found: tuple[Floats, Floats] = normal_normal.update(first, np.exp(second), value, noise)
        return found


def _apart(mean: Floats, variance: Floats, weight: Floats) -> Floats:
    """How far Normals (nodes, n) are spread out, against the width of each, squared."""
    middle, width = weighted(weight, mean), weighted(weight, variance)
    away = weighted(weight, (mean - middle) ** 2) / width
    return away + weighted(weight, (variance / width - 1.0) ** 2)


class _Table:
    """Few nodes from a table over scores for most items, another way for the rest."""

    def __init__(self, fit: Fit, probs: tuple[float, ...], rest: Scorer) -> None:
        self._fit, self._probs, self._rest = fit, probs, rest
        self._nodes = make_nodes(fit, NORMAL)

    def __call__(self, columns: Columns) -> Floats:
        out = in_chunks(self._by_nodes, _MANY, columns)
        left = np.flatnonzero(np.isnan(out[0]))
        if len(left):
            out[:, left] = self._rest(select(columns, left))
        return out

    def _by_nodes(self, columns: Columns) -> Floats:
        """Rows of a `Scorer`, NaN where few nodes do not do."""
        score, nodes = columns["score"], self._nodes
        if nodes.log and score.min() <= 0:
            for curve in ("mean", "variance"):
                self._fit.axis(curve)(score)  # says that some have no place on it
        position = np.log(score) if nodes.log else score
        cell = np.clip(np.searchsorted(nodes.grid, position, side="right") - 1, 0, _last(nodes))
        share = (position - nodes.grid[cell]) / (nodes.grid[cell + 1] - nodes.grid[cell])
        level = np.where((share >= 0) & (share <= 1), nodes.level[cell], len(nodes.rules))
        out = np.full((3 + len(self._probs), len(score)), np.nan)
        for which, rule in enumerate(nodes.rules):
            at = np.flatnonzero(level == which)
            if not len(at):
                continue
            u = share[at, None, None]
            both = (1.0 - u) * rule[cell[at]] + u * rule[cell[at] + 1]
            weight, mean, variance = both.transpose(1, 2, 0)
            noise = columns["noise_sd"][at] ** 2
            after = normal_normal.update(mean, variance, columns["value"][at], noise)
            near = _apart(*after, weight) < NODE_LIMITS[which]
            found = normal_summaries(
                after[0][:, near], after[1][:, near], self._probs, weight[:, near]
            )
            out[:, at[near]] = rows(found)
        return out


def _last(nodes: Nodes) -> int:
    return len(nodes.grid) - 2
