"""Posteriors under mixtures: components at every score, with weights by draw.

Components and weights come from one of two sources: a fit with weights that are smooth in the score
(components on a fixed base distribution, weights by draw), or five steps (the components of the
score's bin, shifted along the curve of the mean; one draw).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from .._lib.arrays import Floats, Ints
from ..families import components as parts
from ..families.components import Frame, tilted_weights
from ..families.family import Family, family_of
from ..families.gamma_quantiles import quantile_tables
from ..families.mixture_items import (
    average_by_table,
    average_weights,
    score_by_table,
    weights_by_table,
)
from ..families.mixtures import draw_moments
from ..families.priors import COMPONENTS
from ..families.scales import RANK
from ..inference.results import Fit
from ..model.splines import spline_matrix
from .curves import bin_of, bounded, curve_draws
from .predictive import Columns, Scorer, ThetaMixture, in_chunks, proper, select

Blocks = Iterator[tuple[Ints, Floats]]
"""Indices of scores with the components' weights there, (draws, scores, R), block by block."""

_AT_ONCE = 4_000_000  # numbers in one array of draws x scores x components
_GRID = 1000  # points of the table between the outer knots of the weights
_FARTHEST = 50.0  # largest log ratio of the draws' spread to the Laplace start's
_MOST = 0.005  # relative variance of marginal densities over draws, above which all draws are used
_TINY = 1e-300


class _Weights(Protocol):
    """Components at scores and their weights, by draw."""

    draws: int
    items: int  # scores whose components are in memory at once
    workers: int | None  # number of threads; None for all processors

    def components(self, score: Floats, spread: Floats | float) -> tuple[Floats, Floats]:
        """Locations (n, R) and variances (n, 1) or (n, R), increased by `spread` (n,)."""

    def blocks(self, score: Floats, draws: Ints | None = None) -> Blocks:
        """Weights at scores, for all draws or some."""

    def mean(self, score: Floats) -> Floats:
        """Weights averaged over the draws, (n, R)."""

    def updated(self, score: Floats, density: Floats, plug_in: bool = False) -> Floats:
        """Posterior weights averaged over the draws (n, R), up to a factor per item.

        `density` (n, R) is that of the outcomes, up to such a factor; a plug-in uses the mean draw.
        """

    @property
    def table(self) -> "_Table | None":
        """A table for compiled scoring of most items, if there is one."""


class _MixturePosterior:
    """Posterior of a fit of a mixture, with pooled groups and without terms in exposure."""

    def __init__(self, fit: Fit, weights: _Weights) -> None:
        self._fit, self._weights = fit, weights
        self.family = family_of(fit.prior)
        self.outcome = self.family.outcome

    def _own(self, columns: Columns) -> tuple[Floats, Floats]:
        outcome, size = (
            np.asarray(columns[k], dtype=float) for k in (self.outcome.observed, self.outcome.size)
        )
        return outcome, size

    def _components(self, columns: Columns) -> tuple[Floats, Floats]:
        """Locations and variances, including the spread of an item."""
        score = np.asarray(columns["score"], dtype=float)
        return self._weights.components(score, np.asarray(columns.get("spread", 0.0), dtype=float))

    def _prior(self, columns: Columns) -> tuple[Floats, Floats]:
        return self.family.mixtures.parameters(*self._components(columns))

    def _updated_parameters(
        self, columns: Columns, components: tuple[Floats, Floats]
    ) -> tuple[Floats, Floats]:
        """Conjugate parameters of theta given the outcome, for each component."""
        outcome, size = (x[:, None] for x in self._own(columns))
        return self.family.update(*self.family.mixtures.parameters(*components), outcome, size)

    def _densities(
        self, columns: Columns, components: tuple[Floats, Floats]
    ) -> tuple[Floats, Floats]:
        """Densities under the components (n, R) relative to the largest, and its logarithm (n,)."""
        each = self.family.mixtures.log_density(*self._own(columns), *components)
        top = each.max(axis=1)
        return np.exp(each - top[:, None]), top

    def _updated(
        self, columns: Columns, components: tuple[Floats, Floats], plug_in: bool = False
    ) -> Floats:
        """Posterior weights (n, R) that add up to 1."""
        score = np.asarray(columns["score"], dtype=float)
        weight = self._weights.updated(score, self._densities(columns, components)[0], plug_in)
        weight /= weight.sum(axis=1, keepdims=True)
        return weight

    def _in_chunks(self, one_chunk: Scorer, columns: Columns) -> Floats:
        return in_chunks(one_chunk, self._weights.items, columns, self._weights.workers)

    # --- outcomes --------------------------------------------------------------------------------

    def log_density(self, columns: Columns) -> Floats:
        def some(part: Columns) -> Floats:
            density, top = self._densities(part, self._components(part))
            out = np.empty((self._weights.draws, len(top)))
            for at, weights in self._weights.blocks(np.asarray(part["score"], dtype=float)):
                inside = np.einsum("dnr,nr->dn", weights, density[at])
                out[:, at] = top[at] + np.log(np.maximum(inside, _TINY))
            return out

        return self._in_chunks(some, columns)

    def cdf_interval(self, columns: Columns) -> tuple[Floats, Floats]:
        def some(part: Columns) -> Floats:
            weight = self._weights.mean(np.asarray(part["score"], dtype=float))
            return self._interval(weight, self._prior(part), *self._own(part))

        return proper(*self._in_chunks(some, columns))

    def further_cdf_interval(
        self, columns: Columns, outcome: Floats, size: Floats
    ) -> tuple[Floats, Floats]:
        def some(part: Columns) -> Floats:
            components = self._components(part)
            weight = self._near_weights(part, components)
            further = part["further"], part["further_size"]
            return self._interval(weight, self._updated_parameters(part, components), *further)

        both = {"further": outcome, "further_size": size}
        given = {name: np.asarray(values, dtype=float) for name, values in both.items()}
        return proper(*self._in_chunks(some, {**columns, **given}))

    def _interval(
        self, weight: Floats, theta: tuple[Floats, Floats], outcome: Floats, size: Floats
    ) -> Floats:
        """P(Y < y) and P(Y <= y), (2, n), for weights and components (n, R) of theta."""
        curves = np.broadcast_arrays(*self.family.to_curves(theta[0].T, theta[1].T))
        both = self.family.cdf_interval(outcome, size, *curves)
        return np.array([np.einsum("nr,rn->n", weight, end) for end in both])

    def _near_weights(self, columns: Columns, components: tuple[Floats, Floats]) -> Floats:
        """Posterior weights from the table, or over all draws where it is not accurate."""
        table = self._weights.table
        if table is None or "spread" in columns:  # the table is for single scores
            return self._updated(columns, components)
        if table.compiled:
            weight, left = table.weights(columns, *self._own(columns))
        else:
            weight, left = table.averaged(columns, self._densities(columns, components)[0])
        if left.any():
            location, variance = (x[left] for x in components)
            weight[left] = self._updated(select(columns, left), (location, variance))
        return np.asarray(weight / weight.sum(axis=1, keepdims=True))

    def simulate(self, columns: Columns, rng: np.random.Generator) -> Floats:
        score = np.asarray(columns["score"], dtype=float)
        chosen = np.empty((self._weights.draws, len(score)), dtype=np.int64)
        for at, weights in self._weights.blocks(score):
            u = rng.random(weights.shape[:2])[..., None]
            below = (np.cumsum(weights, axis=-1) < u).sum(axis=-1)
            chosen[:, at] = np.minimum(below, weights.shape[-1] - 1)
        curves = self.family.to_curves(*_picked(self._prior(columns), chosen))
        return np.asarray(self.family.simulate(*curves, self._own(columns)[1], rng))

    # --- theta -----------------------------------------------------------------------------------

    def curves(
        self, score: Floats, group: NDArray[Any] | None = None, exposure: Floats | None = None
    ) -> dict[str, Floats]:
        def some(part: Columns) -> Floats:
            theta = self._prior(part)
            means, own = self.family.mean(*theta), self.family.variance(*theta)
            mean, total = np.empty((2, self._weights.draws, len(means)))
            for at, weights in self._weights.blocks(part["score"]):
                mean[:, at] = np.einsum("dnr,nr->dn", weights, means[at])
                away = (means[at] - mean[:, at, None]) ** 2 + own[at]
                total[:, at] = np.einsum("dnr,dnr->dn", weights, away)
            return np.vstack([mean, total])

        both = self._in_chunks(some, {"score": np.asarray(score, dtype=float)})
        mean, variance = np.split(both, 2)
        found = {"mean": mean, "variance": variance, "log_variance": np.log(variance)}
        return found | ({"log_mean": np.log(mean)} if self.outcome.positive else {})

    def moments(self, columns: Columns) -> tuple[Floats, Floats]:
        if self._weights.draws == 1:
            found = self.scorer((), "all", False)(columns)
            return found[:1], found[2:3]
        components = self._components(columns)
        after = self._updated_parameters(columns, components)
        means, variances = self.family.mean(*after), self.family.variance(*after)
        distinct, place = np.unique(np.asarray(columns["score"], dtype=float), return_inverse=True)
        blocks, density = self._weights.blocks(distinct), self._densities(columns, components)[0]
        return draw_moments(density, means, variances, place, blocks, self._weights.draws)

    def theta(self, columns: Columns) -> ThetaMixture:
        """Mixture of the posterior components, with weights averaged over the draws."""
        components = self._components(columns)
        first, second = np.broadcast_arrays(*self._updated_parameters(columns, components))
        return ThetaMixture(first.T, second.T, self._updated(columns, components).T)

    def theta_given(self, columns: Columns, draws: Ints, uniform: Floats) -> tuple[Floats, Floats]:
        components, at = self._components(columns), np.empty(uniform.shape, dtype=np.int64)
        density = self._densities(columns, components)[0]
        score = np.asarray(columns["score"], dtype=float)
        for own, weights in self._weights.blocks(score, draws):
            upto = np.cumsum(weights * density[own], axis=-1)
            below = (upto < (uniform[:, own] * upto[..., -1])[..., None]).sum(axis=-1)
            at[:, own] = np.minimum(below, weights.shape[-1] - 1)
        return _picked(self._updated_parameters(columns, components), at)

    def scorer(self, probs: tuple[float, ...], draws: str, plug_in: bool) -> Scorer:
        def summarized(part: Columns, components: tuple[Floats, Floats], weight: Floats) -> Floats:
            return self.family.mixtures.summaries(
                weight, *self._updated_parameters(part, components), probs
            )

        def exact(part: Columns) -> Floats:
            components = self._components(part)
            return summarized(part, components, self._updated(part, components, plug_in))

        def near(part: Columns) -> Floats:
            table = self._weights.table
            if table is None or not table.compiled:
                components = self._components(part)
                return summarized(part, components, self._near_weights(part, components))
            found, left = table.score(part, *self._own(part), probs)
            if left.any():
                found[:, left] = exact(select(part, left))
            return found

        one_chunk = near if draws == "representative" and not plug_in else exact
        return lambda columns: self._in_chunks(one_chunk, columns)


def _picked(theta: tuple[Floats, Floats], at: Ints) -> tuple[Floats, Floats]:
    """Parameters (n, R) of the components with indices `at` (draws, n)."""
    item = np.arange(at.shape[1])
    first, second = np.broadcast_arrays(*theta)
    return first[item, at], second[item, at]


def mixture_of(fit: Fit) -> _MixturePosterior:
    """The posterior of a fit of a mixture."""
    by_bin = COMPONENTS[0] in fit.data["posterior"]
    return _MixturePosterior(fit, _BinWeights(fit) if by_bin else _SmoothWeights(fit))


# --- the components of bins ----------------------------------------------------------------------


class _BinWeights:
    """One draw: components of a score's bin, shifted along the curve of the mean."""

    draws, items = 1, 5000
    workers: int | None = None
    table: "_Table | None" = None

    def __init__(self, fit: Fit) -> None:
        self._fit = fit
        posterior = fit.data["posterior"]
        self._weight, self._place, sd = (posterior[k].to_numpy()[0, 0] for k in COMPONENTS)
        self._variance = sd**2

    def components(self, score: Floats, spread: Floats | float) -> tuple[Floats, Floats]:
        at = bin_of(self._fit, score)
        middle = curve_draws(self._fit, score)[0][0]
        extra = np.broadcast_to(spread, len(score))[:, None]
        return middle[:, None] + self._place[at], self._variance[at] + extra

    def blocks(self, score: Floats, draws: Ints | None = None) -> Blocks:
        weight, number = self.mean(score)[None], 1 if draws is None else len(draws)
        yield np.arange(len(score)), np.broadcast_to(weight, (number, *weight.shape[1:]))

    def mean(self, score: Floats) -> Floats:
        return np.asarray(self._weight[bin_of(self._fit, score)])

    def updated(self, score: Floats, density: Floats, plug_in: bool = False) -> Floats:
        return self.mean(score) * density


# --- weights that are smooth in the score --------------------------------------------------------


@dataclass(frozen=True)
class _Draws:
    """Draws at knots: the base's curves less the Laplace start's, and the functions."""

    first: Floats
    second: Floats
    rest: Floats

    def __len__(self) -> int:
        return len(self.rest)

    def mean(self) -> "_Draws":
        """The mean of all draws, as one draw."""
        return _Draws(*(x.mean(axis=0, keepdims=True) for x in self.all))

    def some(self, at: Ints) -> "_Draws":
        """Some of the draws."""
        return _Draws(*(x[at] for x in self.all))

    @property
    def all(self) -> tuple[Floats, Floats, Floats]:
        """All three."""
        return self.first, self.second, self.rest


class _SmoothWeights:
    """Components on a fixed base distribution, with weights by draw."""

    items = 50_000
    workers: int | None = 1

    def __init__(self, fit: Fit) -> None:
        self._fit, self._family = fit, family_of(fit.prior)
        data, posterior = fit.data["constant_data"], fit.data["posterior"]
        self._z = data["component_z"].to_numpy()
        self._functions = data["component_function"].to_numpy()
        self._curves = {
            "mean": (data["mean_knot"].to_numpy(), data["pilot_first"].to_numpy()),
            "variance": (data["variance_knot"].to_numpy(), data["pilot_second"].to_numpy()),
        }
        self._knots = posterior["tilt"]["tilt_knot"].to_numpy()
        rest = posterior["tilt"].transpose("chain", "draw", "tilt_knot", "tilt_function").to_numpy()
        first, second = (posterior[k].to_numpy() for k in ("frame_first", "frame_second"))
        self._draws = _Draws(
            first.reshape(-1, first.shape[-1]) - self._curves["mean"][1],
            second.reshape(-1, second.shape[-1]) - self._curves["variance"][1],
            rest.reshape(-1, *rest.shape[2:]),
        )
        self.draws = len(self._draws)

    def _frame(self, score: Floats) -> Frame:
        first, second = (
            spline_matrix(self._fit.axis(name)(score), knots) @ values
            for name, (knots, values) in self._curves.items()
        )
        return self._family.components.base(*bounded(self._fit, first, second))

    def components(self, score: Floats, spread: Floats | float) -> tuple[Floats, Floats]:
        frame = self._frame(score)
        location = frame.location[:, None] + frame.spread[:, None] * self._z
        if np.any(spread):  # that of the first curve
            spread = spread * self._family.components.slopes(frame)[1] ** 2
        return location, frame.width(spread)[:, None]

    def _weights(self, score: Floats, given: _Draws) -> Floats:
        """Weights at scores, (draws, n, R)."""
        frame = self._frame(score)
        first, second = (
            away @ spline_matrix(self._fit.axis(name)(score), knots).T
            for (name, (knots, _)), away in zip(self._curves.items(), given.all[:2], strict=True)
        )
        # far from the fit's scores the lines of draws may overflow as exponentials
        second = np.clip(second, -_FARTHEST, _FARTHEST)
        both = parts.frame_tilt(first, second, self._family.components.slopes(frame))
        # beyond the outer knots weights stay constant, because straight lines of logs would explode
        inside = np.clip(self._fit.axis("mean")(score), self._knots[0], self._knots[-1])
        at = spline_matrix(inside, self._knots)
        rest = np.einsum("nk,dkj->dnj", at, given.rest)
        whole = np.concatenate([np.stack(both, axis=-1), rest], axis=-1)
        return tilted_weights(whole, *self._family.components.weights_basis(frame, self._functions))

    def blocks(self, score: Floats, draws: Ints | None = None) -> Blocks:
        return self._blocks(score, self._draws if draws is None else self._draws.some(draws))

    def _blocks(self, score: Floats, given: _Draws) -> Blocks:
        step = max(1, _AT_ONCE // (len(given) * len(self._z)))
        for begin in range(0, len(score), step):
            at = np.arange(begin, min(begin + step, len(score)))
            yield at, self._weights(score[at], given)

    def updated(self, score: Floats, density: Floats, plug_in: bool = False) -> Floats:
        distinct, place = np.unique(score, return_inverse=True)
        order = np.argsort(place, kind="stable")
        start = np.searchsorted(place[order], np.arange(len(distinct) + 1))
        weight, given = np.empty_like(density), self._draws.mean() if plug_in else self._draws
        for at, weights in self._blocks(distinct, given):
            for k, own in zip(at, weights.transpose(1, 0, 2), strict=True):
                of = order[start[k] : start[k + 1]]
                weight[of] = average_weights(np.ascontiguousarray(own), density[of])
        return weight

    def mean(self, score: Floats) -> Floats:
        """Weights averaged over the draws, interpolated within the table's grid."""
        grid, position = self._grid, self._fit.axis("mean")(score)
        inside = (position >= grid[0]) & (position <= grid[-1])
        mean = np.empty((len(score), len(self._z)))
        if inside.any():
            cell = np.clip(np.searchsorted(grid, position[inside]) - 1, 0, len(grid) - 2)
            share = ((position[inside] - grid[cell]) / (grid[cell + 1] - grid[cell]))[:, None]
            ends = self._grid_means
            mean[inside] = (1.0 - share) * ends[cell] + share * ends[cell + 1]
        mean[~inside] = self._averaged(score[~inside])
        return mean

    def _averaged(self, score: Floats) -> Floats:
        mean = np.empty((len(score), len(self._z)))
        for at, weights in self._blocks(score, self._draws):
            mean[at] = weights.mean(axis=0)
        return mean

    @cached_property
    def _grid(self) -> Floats:
        """Positions on the mean's axis, reaching beyond the outer knots on both sides."""
        low, high = self._knots[0], self._knots[-1]
        reach = max(0.5 * (high - low), 1e-9)
        ranks = self._fit.axis("mean").scale == RANK
        ends = (0.0, 1.0) if ranks else (float(low - reach), float(high + reach))
        return np.linspace(ends[0], ends[1], 2 * _GRID)

    @cached_property
    def _grid_means(self) -> Floats:
        """Weights averaged over draws at the grid, (grid, R)."""
        return self._averaged(self._fit.axis("mean").inverse(self._grid))

    @cached_property
    def table(self) -> "_Table | None":
        """Moments of the weights, and the base distribution, over the grid."""
        score = self._fit.axis("mean").inverse(self._grid)
        mean, components = self._grid_means, len(self._z)
        cov = np.empty((len(score), components, components))
        for at, weights in self._blocks(score, self._draws):
            for k, own in zip(at, weights.transpose(1, 0, 2), strict=True):
                away = own - mean[k]
                cov[k] = away.T @ away / len(away)
        frame, forms = self._frame(score), self._family.mixtures.table
        columns = forms.columns(frame) if forms else ()
        kept = np.column_stack([frame.location, np.log(frame.spread), *columns])
        return _Table(self._fit, self._family, self._z, self._grid, kept, mean, cov)


@dataclass(frozen=True)
class _Table:
    """Means and covariances of weights over draws, and the base, at sorted positions."""

    fit: Fit
    family: Family
    z: Floats
    position: Floats
    frame: Floats
    mean: Floats
    cov: Floats

    @property
    def compiled(self) -> bool:
        """Whether compiled loops know the family's densities and summaries."""
        return self.family.mixtures.table is not None

    @property
    def _gamma(self) -> bool:
        forms = self.family.mixtures.table
        assert forms is not None
        return forms.gamma

    def averaged(self, columns: Columns, density: Floats) -> tuple[Floats, NDArray[np.bool_]]:
        """`weights` from the outcomes' densities under the components."""
        weight, left = np.empty_like(density), np.empty(len(density), dtype=bool)
        position = self.fit.axis("mean")(columns["score"])
        moments = self.position, self.mean, self.cov
        average_by_table(position, density, *moments, _MOST, weight, left)
        return weight, left

    def _given(self, columns: Columns, outcome: Floats, size: Floats) -> tuple[Any, ...]:
        """First arguments of the compiled loops over items."""
        position = self.fit.axis("mean")(columns["score"])
        moments = self.position, self.frame, self.mean, self.cov
        return position, outcome, size, self.z, *moments, _MOST

    def weights(
        self, columns: Columns, outcome: Floats, size: Floats
    ) -> tuple[Floats, NDArray[np.bool_]]:
        """Posterior weights (n, R), up to a factor, and a mask of items that need all draws."""
        weight, left = np.empty((len(outcome), len(self.z))), np.empty(len(outcome), dtype=bool)
        given = self._given(columns, outcome, size)
        weights_by_table(*given, self._gamma, weight, left)
        return weight, left

    def score(
        self, columns: Columns, outcome: Floats, size: Floats, probs: tuple[float, ...]
    ) -> tuple[Floats, NDArray[np.bool_]]:
        """Rows of a `Scorer`, and a mask of items that need all draws."""
        found, left = np.empty((3 + len(probs), len(outcome))), np.empty(len(outcome), dtype=bool)
        share, tables = np.array(probs, dtype=float), quantile_tables(probs)
        given = self._given(columns, outcome, size)
        score_by_table(*given, share, tables, self._gamma, found, left)
        return found, left
