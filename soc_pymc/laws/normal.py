"""Values under a Normal prior: theta given a draw of the curves is Normal, before and after."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..families import normal_normal
from ..families.mixtures import Summaries, weighted
from ..families.normal_mixtures import normal_summaries
from ..nodes import MEAN_SPREAD, is_plain
from ..results import Fit
from ._law import (
    Columns,
    Scorer,
    average_at,
    curves_at,
    draws_at,
    in_chunks,
    items_at_once,
    nodes_at,
    rows,
    score_few,
    select,
)

__all__ = ["NormalLaw"]

Floats = NDArray[np.float64]

_MANY = 4000  # items in a chunk without draws, or with few nodes
# spread of the curves, and of the nodes' posteriors, up to which nine nodes with the draws' first
# two moments do
_SPREAD, _APART = 0.1, 0.01


@dataclass(frozen=True)
class NormalLaw:
    """Law of a fit of `soc.Normal`: values are Normal(mean, variance + noise_sd^2) given curves."""

    fit: Fit

    outcome = "value"
    size = "noise_sd"
    discrete = False

    def log_density(self, columns: Columns) -> Floats:
        """Log densities of the values, (draws, n)."""
        value, noise_sd = columns["value"], columns["noise_sd"]
        return normal_normal.log_density(value, noise_sd, *self._draws(columns))

    def ends(self, columns: Columns) -> tuple[Floats, Floats]:
        """P(Y <= value), twice, over few nodes that stand for the draws."""
        weight, mean, log_variance = nodes_at(self.fit, columns, self.size)
        curves = _spread_out(columns, mean, log_variance)
        upto = weight @ normal_normal.cdf(columns["value"], columns["noise_sd"], *curves)
        upto = np.clip(upto, 0.0, 1.0)  # weights add up to 1 only up to rounding
        return upto, upto

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

    def scorer(self, probs: tuple[float, ...], draws: str, plug_in: bool) -> Scorer:
        """Posteriors as mixtures of Normals over the draws."""
        fit, step = self.fit, items_at_once(self.fit)

        def plugged_in(columns: Columns) -> Floats:
            first, second = (curve[None] for curve in average_at(fit, columns, self.size))
            return rows(_Posteriors(columns, probs).summaries(first, second))

        def every_draw(columns: Columns) -> Floats:
            draws = draws_at(fit, columns, self.size)
            return rows(_Posteriors(columns, probs).summaries(*draws))

        def few_nodes(columns: Columns) -> Floats:
            first, second = draws_at(fit, columns, self.size)
            spread = _spread(first.std(axis=0), second.std(axis=0), second.mean(axis=0))
            return score_few(_Posteriors(columns, probs), first, second, spread)

        def nine_nodes(columns: Columns) -> Floats:
            weight, *nodes = nodes_at(fit, columns, self.size)
            (_, mean_sd), (level, level_sd) = (_mean_sd(weight, curve) for curve in nodes)
            posteriors = _Posteriors(columns, probs)
            apart = posteriors.apart(nodes[0], nodes[1], slice(None), weight[:, None])
            out = rows(posteriors.summaries(nodes[0], nodes[1], weight=weight))
            wide = _spread(mean_sd, level_sd, level) > _SPREAD
            left = np.flatnonzero(wide | (apart > _APART))
            if len(left):
                out[:, left] = in_chunks(few_nodes, step, select(columns, left))
            return out

        if plug_in:
            step = _MANY if is_plain(fit) else step
            return lambda columns: in_chunks(plugged_in, step, columns)
        if draws == "all":
            return lambda columns: in_chunks(every_draw, step, columns)
        if is_plain(fit):
            return lambda columns: in_chunks(nine_nodes, _MANY, columns)
        return lambda columns: in_chunks(few_nodes, step, columns)

    def _draws(self, columns: Columns) -> tuple[Floats, Floats]:
        return _spread_out(columns, *draws_at(self.fit, columns, self.size))


def _spread_out(columns: Columns, mean: Floats, log_variance: Floats) -> tuple[Floats, Floats]:
    """Curves of theta over all that an item stands for."""
    if "spread" not in columns:
        return mean, log_variance
    with np.errstate(divide="ignore"):
        return mean, np.logaddexp(log_variance, np.log(columns["spread"]))


def _mean_sd(weight: Floats, curve: Floats) -> tuple[Floats, Floats]:
    mean = weight @ curve
    return mean, np.sqrt(weight @ (curve - mean) ** 2)


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

    def apart(
        self, first: Floats, second: Floats, at: NDArray[np.intp] | slice, weight: Floats
    ) -> Floats:
        mean, variance = self._updated(first, second, at)
        middle, width = weighted(weight, mean), weighted(weight, variance)
        away = weighted(weight, (mean - middle) ** 2) / width
        return away + weighted(weight, (variance / width - 1.0) ** 2)

    def _updated(
        self, first: Floats, second: Floats, at: NDArray[np.intp] | slice
    ) -> tuple[Floats, Floats]:
        value, noise = self.columns["value"][at], self.columns["noise_sd"][at] ** 2
        found: tuple[Floats, Floats] = normal_normal.update(first, np.exp(second), value, noise)
        return found
