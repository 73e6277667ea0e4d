"""Counts under a Gamma prior: theta given a draw of the curves is Gamma, before and after."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...families import poisson_gamma
from ...families.gamma_quantiles import quantile_tables
from ...families.item_kernels import score_draws
from ...families.mixtures import Summaries, node_spread, posterior_summaries
from ...families.outcomes import OUTCOMES
from ...inference.results import Fit
from ..curves import curve_draws
from ..quadrature import MEAN_SPREAD, is_plain, make_nodes
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
    proper_ends,
    rows,
    score_few,
    select,
)
from ._posterior import ThetaMixture

__all__ = ["GammaLaw"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_MANY = 4000  # items in a chunk without draws: what a processor's cache holds
_CHUNK = 1 << 13  # items that one thread takes at a time with few nodes
_FEW_LEFT = 16  # items left by nodes, at a time: so few that the algebra starts no threads


@dataclass(frozen=True)
class GammaLaw:
    """Posterior of a fit of `soc.Gamma`: counts are negative binomial given the curves."""

    fit: Fit

    outcome = OUTCOMES["poisson"]

    def log_density(self, columns: Columns) -> Floats:
        """Log probabilities of the counts, (draws, n)."""
        count, exposure = columns["count"], columns["exposure"]
        return poisson_gamma.log_pmf(count, exposure, *self._draws(columns))

    def cdf_interval(self, columns: Columns) -> tuple[Floats, Floats]:
        """P(Y <= count - 1) and P(Y <= count) over few nodes that stand for the draws."""
        weight, *curves = nodes_at(self.fit, columns, self.outcome.size)
        nodes = _spread_out(columns, curves[0], curves[1])
        both = poisson_gamma.cdf_interval(columns["count"], columns["exposure"], *nodes)
        below, upto = (weight @ ends for ends in both)
        return proper_ends(below, upto)

    def further_cdf_interval(
        self, columns: Columns, outcome: Floats, size: Floats
    ) -> tuple[Floats, Floats]:
        """P(Y' < y') and P(Y' <= y') of a further count of the same items, given their own."""

        def ends(log_mean: Floats, log_cv2: Floats, part: Columns) -> tuple[Floats, Floats]:
            prior = poisson_gamma.shape_rate(*_spread_out(part, log_mean, log_cv2))
            shape, rate = poisson_gamma.update(*prior, part["count"], part["exposure"])
            curves = np.log(shape / rate), -np.log(shape)
            return poisson_gamma.cdf_interval(part["further"], part["further_exposure"], *curves)

        both = {**columns, "further": outcome, "further_exposure": size}
        return average_ends(self.fit, both, self.outcome.size, ends)

    def simulate(self, columns: Columns, rng: np.random.Generator) -> Floats:
        """Counts of new items: theta from its prior, count given theta."""
        log_mean, log_cv2 = self._draws(columns)
        theta = rng.standard_gamma(np.exp(-log_cv2)) * np.exp(log_mean + log_cv2)
        return rng.poisson(columns["exposure"] * theta).astype(float)

    def curves(
        self, score: Floats, group: NDArray[Any] | None = None, exposure: Floats | None = None
    ) -> dict[str, Floats]:
        """Mean and variance of theta, their logarithms, and the prior's shape and rate."""
        log_mean, log_cv2 = curves_at(self.fit, score, group, exposure)
        shape, rate = poisson_gamma.shape_rate(log_mean, log_cv2)
        log_variance = log_cv2 + 2.0 * log_mean
        return {
            "mean": np.exp(log_mean),
            "variance": np.exp(log_variance),
            "log_mean": log_mean,
            "log_variance": log_variance,
            "shape": shape,
            "rate": rate,
        }

    def moments(self, columns: Columns) -> tuple[Floats, Floats]:
        """E and Var(theta | t, y), draw by draw: both are linear in the count."""
        prior = poisson_gamma.shape_rate(*draws_at(self.fit, columns, self.outcome.size))
        after = poisson_gamma.update(*prior, columns["count"], columns["exposure"])
        return poisson_gamma.mean(*after), poisson_gamma.variance(*after)

    def theta(self, columns: Columns) -> ThetaMixture:
        """Gammas, one of each draw."""
        prior = poisson_gamma.shape_rate(*draws_at(self.fit, columns, self.outcome.size))
        return ThetaMixture(*poisson_gamma.update(*prior, columns["count"], columns["exposure"]))

    def theta_given(self, columns: Columns, draws: Ints, uniform: Floats) -> tuple[Floats, Floats]:
        """Shapes and rates, (draws, n)."""
        prior = poisson_gamma.shape_rate(*draws_given(self.fit, columns, self.outcome.size, draws))
        return poisson_gamma.update(*prior, columns["count"], columns["exposure"])

    def scorer(self, probs: tuple[float, ...], draws: str, plug_in: bool) -> Scorer:
        """Posteriors as mixtures of Gammas over the draws."""
        fit, step = self.fit, items_at_once(self.fit)

        def plugged_in(columns: Columns) -> Floats:
            first, second = (curve[None] for curve in average_at(fit, columns, self.outcome.size))
            return rows(_Posteriors(columns, probs).summaries(first, second))

        def every_draw(columns: Columns) -> Floats:
            draws = draws_at(fit, columns, self.outcome.size)
            return rows(_Posteriors(columns, probs).summaries(*draws))

        def few_nodes(columns: Columns) -> Floats:
            first, second = draws_at(fit, columns, self.outcome.size)
            spread = np.maximum(MEAN_SPREAD * first.std(axis=0), second.std(axis=0))
            return score_few(_Posteriors(columns, probs), first, second, spread)

        if plug_in:
            step = _MANY if is_plain(fit) else step
            return lambda columns: in_chunks(plugged_in, step, columns)
        if draws == "all":
            return lambda columns: in_chunks(every_draw, step, columns)
        if is_plain(fit):
            return _Tabulated(fit, probs)
        return lambda columns: in_chunks(few_nodes, step, columns)

    def _draws(self, columns: Columns) -> tuple[Floats, Floats]:
        return _spread_out(columns, *draws_at(self.fit, columns, self.outcome.size))


def _spread_out(columns: Columns, log_mean: Floats, log_cv2: Floats) -> tuple[Floats, Floats]:
    """Curves of theta over all that an item stands for, to second order in their spread."""
    if "spread" not in columns:
        return log_mean, log_cv2
    spread = columns["spread"]
    return log_mean + spread / 2, np.log(np.exp(log_cv2) * (1.0 + spread) + spread)


@dataclass(frozen=True)
class _Posteriors:
    """Posteriors of items as mixtures of Gammas."""

    columns: Columns
    probs: tuple[float, ...]

    def summaries(
        self,
        first: Floats,
        second: Floats,
        at: NDArray[np.intp] | slice = slice(None),
        weight: Floats | None = None,
    ) -> Summaries:
        return posterior_summaries(first, second, *self._items(at), self.probs, weight)

    def apart(self, first: Floats, second: Floats, at: NDArray[np.intp], weight: Floats) -> Floats:
        return node_spread(first, second, *self._items(at), weight)

    def _items(self, at: NDArray[np.intp] | slice) -> tuple[Floats, Floats]:
        return self.columns["count"][at], self.columns["exposure"][at]


class _Tabulated:
    """Few nodes from a table over scores for most items, every draw for the rest."""

    def __init__(self, fit: Fit, probs: tuple[float, ...]) -> None:
        self._fit = fit
        self._probs, self._tables = np.array(probs, dtype=float), quantile_tables(probs)
        self._nodes = make_nodes(fit)

    def __call__(self, columns: Columns) -> Floats:
        score = columns["score"]
        if self._nodes.log and score.min() <= 0:
            for curve in ("mean", "variance"):
                self._fit.axis(curve)(score)  # says that some have no place on it
        numbers = {name: columns[name] for name in ("score", "count", "exposure")}
        out = in_chunks(self._by_nodes, _CHUNK, numbers)
        left = np.flatnonzero(np.isnan(out[0]))
        if len(left):
            out[:, left] = in_chunks(self._every_draw, _FEW_LEFT, select(numbers, left))
        return out

    def _by_nodes(self, columns: Columns) -> Floats:
        score, count, exposure = columns.values()
        return self._nodes.score(score, count, exposure, self._probs, self._tables)

    def _every_draw(self, columns: Columns) -> Floats:
        score, count, exposure = columns.values()
        log_mean, log_cv2 = curve_draws(self._fit, score)
        n = len(score)
        summary, found = np.empty((6, n)), np.empty((len(self._probs), n))
        left = np.empty(n, dtype=np.bool_)
        shape, rate = (x.T.copy() for x in poisson_gamma.shape_rate(log_mean, log_cv2))
        score_draws(shape, rate, count, exposure, self._probs, self._tables, summary, found, left)
        out = np.vstack([summary[0], np.sqrt(summary[1]), summary[1], found])
        if left.any():
            draws = log_mean[:, left], log_cv2[:, left]
            hard = posterior_summaries(*draws, count[left], exposure[left], list(self._probs))
            out[:, left] = rows(hard)
        return out
