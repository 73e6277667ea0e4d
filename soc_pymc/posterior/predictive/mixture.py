"""The law of a mixture: components on a frame that is fixed, weights that draws differ in."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from ...families import components as parts
from ...families import normal_normal, poisson_gamma
from ...families.components import Frame, tilted_weights
from ...families.gamma_quantiles import quantile_tables
from ...families.mixture_draws import count_posteriors, draw_moments, value_posteriors
from ...families.mixture_items import (
    average_weights,
    score_by_table,
    summarize_mixtures,
    weights_by_table,
)
from ...families.outcomes import OUTCOMES
from ...inference.results import Fit
from ...model.splines import spline_matrix
from ..curves import bounded
from ._law import Columns, Scorer, proper_ends, select
from ._posterior import ThetaMixture, picked

__all__ = ["MixtureLaw"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_AT_ONCE = 4_000_000  # numbers in one array of draws x scores x components
_CHUNK = 50_000  # items whose densities are held at once
_GRID = 1000  # points of the table between the outer knots of the tilt
_FARTHEST = 50.0  # logarithm of the draws' spread over the pilot's
_MOST = 0.005  # relative variance of an item's marginal density over draws: above it, all draws


@dataclass(frozen=True)
class _Table:
    """Means and covariances of the weights over draws, and the frame, at rising positions."""

    position: Floats
    mean: Floats
    cov: Floats
    frame: Floats


@dataclass(frozen=True)
class _Draws:
    """Draws at knots: both curves of the frame less the pilot's, and the tilt."""

    first: Floats
    second: Floats
    tilt: Floats

    def __len__(self) -> int:
        return len(self.tilt)

    def mean(self) -> "_Draws":
        """The one draw that is the mean of all."""
        return _Draws(*(x.mean(axis=0, keepdims=True) for x in self.all))

    def some(self, at: Ints) -> "_Draws":
        """Some of the draws."""
        return _Draws(*(x[at] for x in self.all))

    @property
    def all(self) -> tuple[Floats, Floats, Floats]:
        """All three."""
        return self.first, self.second, self.tilt


class MixtureLaw:
    """Posterior of a fit by ``soc.GammaMixture()`` or ``soc.NormalMixture()``.

    Parameters
    ----------
    fit
        The fit. Groups are pooled in it.
    """

    def __init__(self, fit: Fit) -> None:
        self._fit = fit
        self._gamma = type(fit.prior).__name__ == "GammaMixture"
        self._kind = "poisson" if self._gamma else "normal"
        self.outcome = OUTCOMES[self._kind]
        data, tilt = fit.data["constant_data"], fit.data["posterior"]["tilt"]
        self._z = data["component_z"].to_numpy()
        self._functions = data["component_function"].to_numpy()
        self._curves = {
            "mean": (data["mean_knot"].to_numpy(), data["pilot_first"].to_numpy()),
            "variance": (data["variance_knot"].to_numpy(), data["pilot_second"].to_numpy()),
        }
        self._knots = tilt["tilt_knot"].to_numpy()
        ordered = tilt.transpose("chain", "draw", "tilt_knot", "tilt_function").to_numpy()
        first, second = (
            fit.data["posterior"][name].to_numpy() for name in ("frame_first", "frame_second")
        )
        self._draws = _Draws(
            first.reshape(-1, first.shape[-1]) - self._curves["mean"][1],
            second.reshape(-1, second.shape[-1]) - self._curves["variance"][1],
            ordered.reshape(-1, *ordered.shape[2:]),
        )

    # --- the prior at scores ---------------------------------------------------------------------

    def _frame(self, score: Floats) -> Frame:
        first, second = (
            spline_matrix(self._fit.axis(name)(score), knots) @ values
            for name, (knots, values) in self._curves.items()
        )
        make = parts.count_frame if self._gamma else parts.value_frame
        return make(*bounded(self._fit, first, second))

    def _weights(self, score: Floats, frame: Frame, given: _Draws) -> Floats:
        """Weights at scores, (draws, n, R)."""
        first, second = (
            away @ spline_matrix(self._fit.axis(name)(score), knots).T
            for (name, (knots, _)), away in zip(self._curves.items(), given.all[:2], strict=True)
        )
        # far from the fit's scores draws part from the pilot along lines: their exponentials end
        second = np.clip(second, -_FARTHEST, _FARTHEST)
        both = parts.frame_tilt(first, second, parts.frame_slopes(frame))
        # beyond the outer knots weights stay: as exponentials they would not bear a straight line
        inside = np.clip(self._fit.axis("mean")(score), self._knots[0], self._knots[-1])
        at = spline_matrix(inside, self._knots)
        rest = np.einsum("nk,dkj->dnj", at, given.tilt)
        base, path = parts.families_path(frame, self._z, self._kind)
        every = np.hstack([parts.moves(self._z), self._functions])
        functions = np.broadcast_to(every, (len(score), *every.shape))
        if self._gamma:
            functions = functions.copy()
            functions[:, :, 2] = path
        whole = np.concatenate([np.stack(both, axis=-1), rest], axis=-1)
        return tilted_weights(whole, base, functions)

    def _blocks(self, score: Floats, given: _Draws) -> Iterator[tuple[Ints, Floats]]:
        """Places of the scores with the weights there, (draws, places, R), block by block."""
        step = max(1, _AT_ONCE // (len(given) * len(self._z)))
        for begin in range(0, len(score), step):
            at = np.arange(begin, min(begin + step, len(score)))
            yield at, self._weights(score[at], self._frame(score[at]), given)

    # --- outcomes --------------------------------------------------------------------------------

    def _locations(self, frame: Frame) -> Floats:
        return frame.location[:, None] + frame.spread[:, None] * self._z

    def _log_densities(self, columns: Columns, frame: Frame) -> Floats:
        """Log marginal densities of the items under each component, (n, R)."""
        variance = frame.width(columns.get("spread", 0.0))
        outcome, size = (
            np.asarray(columns[k], dtype=float) for k in (self.outcome.observed, self.outcome.size)
        )
        location = self._locations(frame)
        if self._gamma:
            return parts.count_log_density(outcome, size, location, variance)
        return parts.value_log_density(outcome, size**2, location, variance)

    def log_density(self, columns: Columns) -> Floats:
        """Log density (probability) of the outcomes given score and size, (draws, n)."""
        score = np.asarray(columns["score"], dtype=float)
        out = np.empty((len(self._draws), len(score)))
        each = self._log_densities(columns, self._frame(score))
        top = each.max(axis=1)
        density = np.exp(each - top[:, None])
        for at, weights in self._blocks(score, self._draws):
            inside = np.einsum("dnr,nr->dn", weights, density[at])
            out[:, at] = top[at] + np.log(np.maximum(inside, 1e-300))
        return out

    def cdf_interval(self, columns: Columns) -> tuple[Floats, Floats]:
        """P(Y < y) and P(Y <= y) averaged over the draws, each (n,); equal if continuous."""
        score = np.asarray(columns["score"], dtype=float)
        outcome, size = (
            np.asarray(columns[k], dtype=float) for k in (self.outcome.observed, self.outcome.size)
        )
        frame = self._frame(score)
        location, variance = self._locations(frame), frame.width(columns.get("spread", 0.0))
        weight = self._mean_weights(score)
        if not self._gamma:
            sd = np.sqrt(variance + size**2)[:, None]
            below = (weight * special.ndtr((outcome[:, None] - location) / sd)).sum(axis=1)
            return below, below
        shape = parts.inverse_trigamma(variance)
        log_mean = location + (np.log(shape) - special.psi(shape))[:, None]
        ends = (
            (weight * poisson_gamma.cdf(y, size[:, None], log_mean, -np.log(shape)[:, None])).sum(1)
            for y in (outcome[:, None] - 1.0, outcome[:, None])
        )
        return next(ends), next(ends)

    def further_cdf_interval(
        self, columns: Columns, outcome: Floats, size: Floats
    ) -> tuple[Floats, Floats]:
        """P(Y' < y') and P(Y' <= y') of a further outcome of the same items, given their own."""
        below, upto = np.empty((2, len(outcome)))
        for begin in range(0, len(outcome), _CHUNK):
            at = slice(begin, begin + _CHUNK)
            part = select(columns, at)
            weight = self._near_weights(part).T
            weight /= weight.sum(axis=0)
            ends = self._further_ends(part, outcome[at], size[at])
            below[at], upto[at] = ((weight * end).sum(axis=0) for end in ends)
        return proper_ends(below, upto)

    def _further_ends(
        self, columns: Columns, outcome: Floats, size: Floats
    ) -> tuple[Floats, Floats]:
        """The same under each component, (R, n)."""
        frame = self._frame(columns["score"])
        location, variance = self._locations(frame).T, frame.width(columns.get("spread", 0.0))
        own, first = columns[self.outcome.observed], columns[self.outcome.size]
        if not self._gamma:
            after, width = normal_normal.update(location, variance, own, first**2)
            upto = special.ndtr((outcome - after) / np.sqrt(width + size**2))
            return upto, upto
        shape = parts.inverse_trigamma(variance)
        rate = np.exp(special.psi(shape) - location) + first
        log_shape = np.broadcast_to(np.log(shape + own), rate.shape)
        return poisson_gamma.cdf_interval(outcome, size, log_shape - np.log(rate), -log_shape)

    def simulate(self, columns: Columns, rng: np.random.Generator) -> Floats:
        """Outcomes of new items of the same score and size, (draws, n)."""
        score = np.asarray(columns["score"], dtype=float)
        size = np.asarray(columns[self.outcome.size], dtype=float)
        frame = self._frame(score)
        location, variance = self._locations(frame), frame.width(columns.get("spread", 0.0))
        chosen = np.empty((len(self._draws), len(score)), dtype=np.int64)
        for at, weights in self._blocks(score, self._draws):
            u = rng.random(weights.shape[:2])[..., None]
            chosen[:, at] = (np.cumsum(weights, axis=-1) < u).sum(axis=-1)
        place = location[np.arange(len(score)), np.minimum(chosen, len(self._z) - 1)]
        if not self._gamma:
            return rng.normal(place, np.sqrt(variance + size**2))
        shape = parts.inverse_trigamma(variance)
        theta = rng.gamma(np.broadcast_to(shape, place.shape)) * np.exp(place - special.psi(shape))
        return rng.poisson(theta * size).astype(float)

    # --- theta -----------------------------------------------------------------------------------

    def curves(
        self, score: Floats, group: NDArray[Any] | None = None, exposure: Floats | None = None
    ) -> dict[str, Floats]:
        """Variables of `calibration_curves` at scores, each (draws, n).

        Mixtures pool groups and know no terms in exposure, so these are not used.
        """
        score = np.asarray(score, dtype=float)
        frame = self._frame(score)
        location, variance = self._locations(frame), frame.width()
        if self._gamma:
            shape = parts.inverse_trigamma(variance)[:, None]
            means = np.exp(location + np.log(shape) - special.psi(shape))
            own = means**2 / shape
        else:
            means, own = location, np.broadcast_to(variance[:, None], location.shape)
        mean, total = np.empty((2, len(self._draws), len(score)))
        for at, weights in self._blocks(score, self._draws):
            mean[:, at] = np.einsum("dnr,nr->dn", weights, means[at])
            away = (means[at] - mean[:, at, None]) ** 2 + own[at]
            total[:, at] = np.einsum("dnr,dnr->dn", weights, away)
        found = {"mean": mean, "variance": total, "log_variance": np.log(total)}
        return found | ({"log_mean": np.log(mean)} if self._gamma else {})

    def moments(self, columns: Columns) -> tuple[Floats, Floats]:
        """E and Var(theta | t, y) of the items draw by draw, each (draws, n)."""
        outcome, size, score = (
            np.asarray(columns[k], dtype=float)
            for k in (self.outcome.observed, self.outcome.size, "score")
        )
        frame = self._frame(score)
        density = self._log_densities(
            {self.outcome.observed: outcome, self.outcome.size: size}, frame
        )
        density = np.exp(density - density.max(axis=1, keepdims=True))
        update = count_posteriors if self._gamma else value_posteriors
        after = update(outcome, size, self._locations(frame), frame.width())
        distinct, place = np.unique(score, return_inverse=True)
        blocks = self._blocks(distinct, self._draws)
        return draw_moments(density, *after, place, blocks, len(self._draws))

    def theta(self, columns: Columns) -> ThetaMixture:
        """Components on the frame, with weights averaged over the draws."""
        frame = self._frame(np.asarray(columns["score"], dtype=float))
        weight = self._exact_weights(columns, frame, self._draws)
        weight /= weight.sum(axis=1, keepdims=True)
        first, second = self._after(columns, frame)
        return ThetaMixture(first.T, second.T, weight.T)

    def theta_given(self, columns: Columns, draws: Ints, uniform: Floats) -> tuple[Floats, Floats]:
        """One component of each item's posterior, (draws, n)."""
        score = np.asarray(columns["score"], dtype=float)
        frame = self._frame(score)
        density = self._log_densities(columns, frame)
        density = np.exp(density - density.max(axis=1, keepdims=True))
        at = np.empty(uniform.shape, dtype=np.int64)
        for own, weights in self._blocks(score, self._draws.some(draws)):
            at[:, own] = picked(weights * density[own], uniform[:, own])
        item = np.arange(len(score))
        first, second = self._after(columns, frame)
        return first[item, at], second[item, at]

    def _after(self, columns: Columns, frame: Frame) -> tuple[Floats, Floats]:
        """Shape and rate, or mean and variance, of theta under each component, (n, R)."""
        outcome, size = (
            np.asarray(columns[k], dtype=float) for k in (self.outcome.observed, self.outcome.size)
        )
        location, variance = self._locations(frame), frame.width()
        if not self._gamma:
            return value_posteriors(outcome, size, location, variance)
        shape = parts.inverse_trigamma(variance)[:, None]
        rate = np.exp(special.psi(shape) - location) + size[:, None]
        return np.broadcast_to(shape + outcome[:, None], rate.shape), rate

    def scorer(self, probs: tuple[float, ...], draws: str, plug_in: bool) -> Scorer:
        """How items are scored: over ``"all"`` draws, ``"representative"`` ones, or none."""
        given = self._draws.mean() if plug_in else self._draws
        share = np.asarray(probs, dtype=float)

        def score_items(columns: Columns) -> Floats:
            n = len(columns["score"])
            out = np.empty((3 + len(share), n))
            for begin in range(0, n, _CHUNK):
                at = slice(begin, begin + _CHUNK)
                part = {name: np.asarray(values)[at] for name, values in columns.items()}
                if draws == "representative" and not plug_in:
                    self._near(part, share, out[:, at])
                else:
                    self._exact(part, share, given, out[:, at])
            return out

        return score_items

    def _exact(self, columns: Columns, probs: Floats, given: _Draws, out: Floats) -> None:
        frame = self._frame(np.asarray(columns["score"], dtype=float))
        self._summarize(columns, frame, self._exact_weights(columns, frame, given), probs, out)

    def _exact_weights(self, columns: Columns, frame: Frame, given: _Draws) -> Floats:
        """Posterior weights averaged over the given draws, (n, R)."""
        density = self._log_densities(columns, frame)
        density = np.exp(density - density.max(axis=1, keepdims=True))
        score = np.asarray(columns["score"], dtype=float)
        distinct, place = np.unique(score, return_inverse=True)
        order = np.argsort(place, kind="stable")
        start = np.searchsorted(place[order], np.arange(len(distinct) + 1))
        weight = np.empty_like(density)
        for at, weights in self._blocks(distinct, given):
            for k, own in zip(at, weights.transpose(1, 0, 2), strict=True):
                of = order[start[k] : start[k + 1]]
                weight[of] = average_weights(np.ascontiguousarray(own), density[of])
        return weight

    def _summarize(
        self, columns: Columns, frame: Frame, weight: Floats, probs: Floats, out: Floats
    ) -> None:
        """Summaries of posteriors with these weights, written to `out`."""
        location, variance = self._locations(frame), frame.width()
        outcome, size = (
            np.asarray(columns[k], dtype=float) for k in (self.outcome.observed, self.outcome.size)
        )
        found, tables = np.empty(out.shape), quantile_tables(probs.tolist())
        if self._gamma:
            shape = parts.inverse_trigamma(variance)
            rate = np.exp(special.psi(shape)[:, None] - location) + size[:, None]
            summarize_mixtures(weight, shape + outcome, rate, probs, tables, True, found)
        else:
            noise = size**2
            total = variance + noise
            pulled = (location * noise[:, None] + (variance * outcome)[:, None]) / total[:, None]
            sd = np.sqrt(variance * noise / total)
            summarize_mixtures(weight, sd, pulled, probs, tables, False, found)
        out[:] = found

    @cached_property
    def _grid(self) -> Floats:
        """Positions on the mean's axis, reaching beyond the outer knots on both sides."""
        low, high = self._knots[0], self._knots[-1]
        reach = max(0.5 * (high - low), 1e-9)
        ranks = self._fit.axis("mean").scale == "rank"
        ends = (0.0, 1.0) if ranks else (float(low - reach), float(high + reach))
        return np.linspace(ends[0], ends[1], 2 * _GRID)

    @cached_property
    def _grid_means(self) -> Floats:
        """Weights averaged over draws at the grid, (grid, R)."""
        score = self._fit.axis("mean").inverse(self._grid)
        mean = np.empty((len(score), len(self._z)))
        for at, weights in self._blocks(score, self._draws):
            mean[at] = weights.mean(axis=0)
        return mean

    def _mean_weights(self, score: Floats) -> Floats:
        """Weights averaged over draws at scores, (n, R): interpolated within the grid."""
        grid, position = self._grid, self._fit.axis("mean")(score)
        inside = (position >= grid[0]) & (position <= grid[-1])
        mean = np.empty((len(score), len(self._z)))
        if inside.any():
            cell = np.clip(np.searchsorted(grid, position[inside]) - 1, 0, len(grid) - 2)
            share = ((position[inside] - grid[cell]) / (grid[cell + 1] - grid[cell]))[:, None]
            ends = self._grid_means
            mean[inside] = (1.0 - share) * ends[cell] + share * ends[cell + 1]
        outside = np.flatnonzero(~inside)
        for at, weights in self._blocks(score[outside], self._draws):
            mean[outside[at]] = weights.mean(axis=0)
        return mean

    @cached_property
    def _table(self) -> _Table:
        """Moments of the weights, and the frame, over the grid."""
        score = self._fit.axis("mean").inverse(self._grid)
        mean, components = self._grid_means, len(self._z)
        cov = np.empty((len(score), components, components))
        for at, weights in self._blocks(score, self._draws):
            for k, own in zip(at, weights.transpose(1, 0, 2), strict=True):
                away = own - mean[k]
                cov[k] = away.T @ away / len(away)
        frame = self._frame(score)
        if self._gamma:
            shape = parts.inverse_trigamma(frame.width())
            shift = np.log(shape) - special.psi(shape)
        else:
            shape, shift = frame.width(), np.zeros(len(score))
        kept = np.column_stack([frame.location, np.log(frame.spread), np.log(shape), shift])
        return _Table(self._grid, mean, cov, kept)

    def _by_table(self, columns: Columns) -> tuple[Any, ...]:
        """First arguments of the compiled loops over items."""
        table = self._table
        position = self._fit.axis("mean")(columns["score"])
        outcome, size = (
            np.asarray(columns[k], dtype=float) for k in (self.outcome.observed, self.outcome.size)
        )
        moments = table.position, table.frame, table.mean, table.cov
        return position, outcome, size, self._z, *moments, _MOST

    def _near_weights(self, columns: Columns) -> Floats:
        """Posterior weights by the table, (n, R), and by all draws where it does not do."""
        n = len(columns["score"])
        weight, left = np.empty((n, len(self._z))), np.ones(n, dtype=bool)
        if "spread" not in columns:  # the table is of single scores
            weights_by_table(*self._by_table(columns), self._gamma, weight, left)
        if left.any():
            rest = select(columns, left)
            frame = self._frame(np.asarray(rest["score"], dtype=float))
            weight[left] = self._exact_weights(rest, frame, self._draws)
        return weight

    def _near(self, columns: Columns, probs: Floats, out: Floats) -> None:
        """By the table, and by all draws where it does not do."""
        found, left = np.empty(out.shape), np.empty(len(columns["score"]), dtype=bool)
        tables = quantile_tables(probs.tolist())
        score_by_table(*self._by_table(columns), probs, tables, self._gamma, found, left)
        if left.any():
            exact = np.empty((len(out), int(left.sum())))
            self._exact(select(columns, left), probs, self._draws, exact)
            found[:, left] = exact
        out[:] = found
