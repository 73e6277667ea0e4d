"""Log density of the shared parameters, with the levels of a grouping integrated out.

Given the shared parameters, each level's quadratic (`model.levels`) proposes its coefficients, and
the average of importance weights of a few proposals, mirrored in pairs, is an unbiased estimate of
its integral. With the same noise for all parameters the log density is a smooth function, which is
what the evidence bound needs. With fresh noise for every draw, the draws' importance weights are
those of shared parameters and levels together, and Pareto k covers both (Andrieu and Roberts 2009).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import xarray as xr
from scipy import linalg

from .._lib.arguments import refuse_beyond_memory
from .._lib.arrays import Floats
from .._model.level_kernels import proposals, slopes
from .._model.likelihood import mode
from .._model.problem import Coefficients, Problem
from ..families.surrogates import make_surrogates
from .density import (
    Evaluate,
    Space,
    finite,
    near_density,
    posterior_draws,
    rest_log_density,
)
from .row_values import NearRows

_BOUND = 1  # mirrored pairs of proposals
# pairs for weights and draws: the most, and the variance of log weights by proposals that they may
# leave
_MOST_FRESH, _VARIANCE = 4, 0.08
_MOST_ROWS = 50_000  # times pairs, which are fewer where a pair costs more
_RANGE_DRAWS = 100  # for the range of polynomials and this variance
_FARTHER = 0.25  # share of their width by which ranges are wider on either side
# of polynomials: an exact value costs as much as fifty of them
_DEGREES = 6, 8, 11
_ERROR = 1e-2  # nats, allowed for all polynomials; importance weights vary by more
_MOST_VALUES = 20_000_000  # of an array of proposals: 160 MB


@dataclass(frozen=True)
class _Shared:
    """Shared coefficients and scales at draws, with the log density of their priors."""

    coefficients: Floats  # (P, draws) of both curves, in the designs' order
    tau: Floats  # (K, draws): scale of each of a level's coefficients
    rest: Floats  # (draws,)


@dataclass(frozen=True)
class _Proposed:
    """Proposals of all levels' coefficients."""

    pull: Floats  # (G, K, draws)
    noise: Floats  # (G, K, pairs, draws or 1)
    own: Floats  # (G, K, N, draws): the coefficients
    log_ratio: Floats  # (G, N, draws): of prior to proposal


@dataclass(frozen=True)
class Densities:
    """The log density of a problem's parameters, with levels that are integrated out or without."""

    bound: Evaluate  # smooth: for the evidence bound and gradients
    weights: Evaluate  # for importance weights: estimates with fresh noise, or the same
    draws: Callable[[Floats], xr.Dataset]  # from coordinates (draws, dim)

    def gap(self, rows: Floats) -> Floats | float:
        """What weights have more than the bound's density."""
        if self.weights is self.bound:
            return 0.0
        return np.asarray(self.weights(rows)[0] - self.bound(rows)[0])


def densities_of(
    built: Problem, space: Space, rng: np.random.Generator | None = None, draws: int = 0
) -> Densities:
    """The densities of a problem; `rng` is for the noise of weights and of levels.

    Refuses so many `draws` that those of all levels do not fit in memory.
    """
    if not built.levels:
        near = near_density(built, space)
        return Densities(near, near, lambda rows: posterior_draws(space, rows[None]))
    knots = sum(len(curve.basis.knots) for curve in built.curves)
    levels = len(built.levels.parts)
    refuse_beyond_memory(
        2.0 * 8.0 * draws * levels * knots,
        f"{draws:,} draws of the curves of {levels:,} levels",
        "take fewer draws by VI(draws=), or give group= a column with fewer levels",
    )
    density, noise = LevelDensity(built, space), (rng or np.random.default_rng(0)).spawn(2)
    return Densities(
        density.evaluate(), density.fresh(noise[0]), partial(density.draws, rng=noise[1])
    )


class LevelDensity:
    """The log density of a problem whose levels are integrated out.

    Parameters
    ----------
    built
        A problem with levels.
    space
        Coordinates of its model, which has the shared parameters.
    """

    def __init__(self, built: Problem, space: Space) -> None:
        if built.levels is None:
            raise ValueError("the problem has no levels")
        self.space, self.levels, self.data = space, built.levels, built.data
        self._built = built
        order, terms = self.levels.order, self.levels.terms
        sizes = [part.design.whole.shape[1] for part in built.coefficients]
        self._shared_of = slice(0, sizes[0]), slice(sizes[0], sum(sizes))
        sizes = [len(term.kind) for term in terms]
        self._own_of = slice(0, sizes[0]), slice(sizes[0], sum(sizes))
        self._designs = [
            (part.design.whole[order], term.design[order])
            for part, term in zip(built.coefficients, terms, strict=True)
        ]
        # number of the scale of each coefficient
        self._kind = np.concatenate([terms[0].kind, terms[1].kind + len(terms[0].names)])
        turns = [turn for part in built.coefficients for turn in _rotations(part)]
        self._turn = linalg.block_diag(*turns)
        self._sizes = np.cumsum([len(turn) for turn in turns])[:-1]
        number = 4 * len(self.levels.parts) * sum(sizes)
        self._chunk = int(np.clip(_MOST_VALUES // number, 10, 250))
        self._forward, self._gradient = self._functions()
        self._noise = self._draw_noise(1, _BOUND, np.random.default_rng(0))
        self.near = self._polynomials()
        self._fresh = self._fresh_pairs()

    def _functions(self) -> tuple[Any, Any]:
        model = self._built.model
        names = [name for part in self._built.coefficients for name in part.names]
        scales = pt.log(model[f"sd_of_{self.levels.terms[0].grouping.name}"])
        values = [*(model[name] for name in names), scales]
        rest = rest_log_density(self._built, model)
        rows, (*parts, rest) = self.space.batched([*model.replace_rvs_by_values(values), rest])
        known = [part.type() for part in parts]
        # not as known gradients, which would leave out what parts do by other parts
        total = rest.sum() + sum((x * y).sum() for x, y in zip(parts, known, strict=True))
        slope = pt.grad(total, rows)
        return (
            pytensor.function([rows], [*parts, rest], mode=mode()),
            pytensor.function([rows, *known], slope, mode=mode()),
        )

    def _shared(self, rows: Floats) -> _Shared:
        *parts, log_scales, rest = self._forward(rows)
        tau = np.ascontiguousarray(np.exp(log_scales).T[self._kind])
        return _Shared(self._turn @ np.hstack(parts).T, tau, rest)

    def _draw_noise(self, draws: int, pairs: int, rng: np.random.Generator) -> Floats:
        """Standard normal noise of one proposal of every pair, (G, K, pairs, draws).

        The other one is its mirror image: pairs cancel odd terms of the log likelihood.
        """
        return rng.standard_normal((len(self.levels.parts), len(self._kind), pairs, draws))

    def _proposed(self, common: _Shared, noise: Floats) -> _Proposed:
        sites = self.levels.sites
        away = common.coefficients - sites.centre[:, None]
        coupled = sites.coupling.reshape(-1, len(away)) @ away
        pull = sites.pull[:, :, None] - coupled.reshape(*sites.pull.shape, -1)
        coefficients = np.empty((*noise.shape[:2], 2 * noise.shape[2], len(common.rest)))
        log_ratio = np.empty((len(coefficients), *coefficients.shape[2:]))
        proposals(pull, common.tau, sites.information, noise, coefficients, log_ratio)
        return _Proposed(pull, noise, coefficients, log_ratio)

    def _predictors(self, common: _Shared, proposed: _Proposed, g: int) -> list[Floats]:
        """Both curves at the rows of a level: (rows, N, draws)."""
        part, curves = self.levels.parts[g], []
        for (whole, own), shared_of, own_of in zip(
            self._designs, self._shared_of, self._own_of, strict=True
        ):
            b = proposed.own[g, own_of]
            values = (own[part] @ b.reshape(len(b), -1)).reshape(-1, *b.shape[1:])
            values += (whole[part] @ common.coefficients[shared_of])[:, None]
            curves.append(values)
        return curves

    def _likelihood(self, common: _Shared, proposed: _Proposed, g: int, slopes: Floats) -> Floats:
        """Log likelihood of a level's proposals (N, draws); fills (2, rows, N, draws) `slopes`.

        Without `slopes`, of size 0, they are not computed.
        """
        m, c = self._predictors(common, proposed, g)
        rows, shape = self.levels.order[self.levels.parts[g]], m.shape
        m, c = m.reshape(len(rows), -1), c.reshape(len(rows), -1)
        by_row = slopes.reshape(2, -1, m.shape[1])
        return self.near.sums(m, c, rows, by_row).reshape(shape[1:])

    def _log_weights(self, common: _Shared, proposed: _Proposed) -> Floats:
        """Log importance weights (G, N, draws) of the proposals."""
        log_weight, no_slopes = proposed.log_ratio.copy(), np.empty((2, 0))
        for g in range(len(log_weight)):
            log_weight[g] += self._likelihood(common, proposed, g, no_slopes)
        return log_weight

    # --- what inference takes

    def _value_and_gradient(self, rows: Floats) -> tuple[Floats, Floats]:
        common = self._shared(rows)
        proposed = self._proposed(common, self._noise)
        number = proposed.log_ratio.shape[1:]
        value, weights = common.rest.copy(), np.empty_like(proposed.log_ratio)
        by_own, by_shared = np.empty_like(proposed.own), np.zeros_like(common.coefficients)
        for g, part in enumerate(self.levels.parts):
            slope_of_rows = np.empty((2, part.stop - part.start, *number))
            log_weight = proposed.log_ratio[g] + self._likelihood(
                common, proposed, g, slope_of_rows
            )
            total = np.logaddexp.reduce(log_weight, axis=0)
            value += total - np.log(len(log_weight))
            weights[g] = np.exp(log_weight - total)
            parts = zip(self._designs, self._shared_of, self._own_of, slope_of_rows, strict=True)
            for (whole, own), shared_of, own_of, slope in parts:
                flat = slope.reshape(len(slope), -1)
                by_own[g, own_of] = (own[part].T @ flat).reshape(-1, *number)
                by_shared[shared_of] += whole[part].T @ (slope * weights[g]).sum(axis=1)
        sites = self.levels.sites
        back, by_tau = np.empty_like(proposed.pull), np.empty_like(common.tau)
        gaussian = proposed.pull, common.tau, sites.information, proposed.noise
        slopes(*gaussian, weights, by_own, back, by_tau)
        coupling = sites.coupling.reshape(-1, len(by_shared))
        by_shared = (by_shared - coupling.T @ back.reshape(len(coupling), -1)).T @ self._turn
        by_scale = by_tau.T @ (self._kind[:, None] == np.arange(self._kind.max() + 1))
        by_variable = np.split(by_shared, self._sizes, axis=1)
        return value, self._gradient(rows, *by_variable, by_scale)

    def evaluate(self) -> Evaluate:
        """Value and gradient with the same noise for all draws."""
        return finite(self._value_and_gradient, self._chunk)

    def fresh(self, rng: np.random.Generator) -> Evaluate:
        """Value with fresh noise for every draw, whose gradient is not computed and 0."""

        def part(rows: Floats) -> tuple[Floats, Floats]:
            common = self._shared(rows)
            noise = self._draw_noise(len(rows), self._fresh, rng)
            log_weight = self._log_weights(common, self._proposed(common, noise))
            total = np.logaddexp.reduce(log_weight, axis=1) - np.log(log_weight.shape[1])
            return common.rest + total.sum(axis=0), np.zeros_like(rows)

        return finite(part, self._chunk)

    def draws(self, rows: Floats, rng: np.random.Generator) -> xr.Dataset:
        """Draws with the levels' curves, from their posteriors given the draw's shared parameters.

        Each is chosen among proposals by importance weights.
        """
        posterior = posterior_draws(self.space, rows[None])
        names = self._built.family.curves
        curves = [
            np.empty(
                (len(rows), len(self.levels.parts), posterior[name].sizes[f"{curve.name}_knot"])
            )
            for name, curve in zip(names, self._built.curves, strict=True)
        ]
        for first in range(0, len(rows), self._chunk):
            some = slice(first, first + self._chunk)
            common = self._shared(rows[some])
            proposed = self._proposed(common, self._draw_noise(len(common.rest), self._fresh, rng))
            log_weight = self._log_weights(common, proposed)
            # the largest weight times a Gumbel number is at n with the probability of n's weight
            chosen = (log_weight + rng.gumbel(size=log_weight.shape)).argmax(axis=1)
            b = np.take_along_axis(proposed.own, chosen[:, None, None], axis=2)[:, :, 0]
            b = np.ascontiguousarray(b.transpose(2, 0, 1))
            for k, (name, own_of) in enumerate(zip(names, self._own_of, strict=True)):
                shared = posterior[name].to_numpy()[0, some]
                curves[k][some] = shared[:, None] + b[:, :, own_of] @ self.levels.terms[k].values.T
        grouping = self.levels.terms[0].grouping
        found = {
            f"{name}_of_{grouping.name}": (
                ("chain", "draw", grouping.name, f"{curve.name}_knot"),
                values[None],
            )
            for name, curve, values in zip(names, self._built.curves, curves, strict=True)
        }
        return posterior.assign(found).assign_coords({grouping.name: list(grouping.levels)})

    def _polynomials(self) -> NearRows:
        """Polynomials of all rows, on the range of draws at the start."""
        rng = np.random.default_rng(0)
        low = [np.full(len(self.data.total), np.inf) for _ in range(2)]
        high = [-values for values in low]
        start = self.space.start
        for first in range(0, _RANGE_DRAWS, self._chunk):
            number = min(self._chunk, _RANGE_DRAWS - first)
            common = self._shared(rng.normal(start, 1.0, (number, len(start))))
            proposed = self._proposed(common, self._draw_noise(number, 1, rng))
            for g, part in enumerate(self.levels.parts):
                rows = self.levels.order[part]
                for k, values in enumerate(self._predictors(common, proposed, g)):
                    low[k][rows] = np.minimum(low[k][rows], values.min(axis=(1, 2)))
                    high[k][rows] = np.maximum(high[k][rows], values.max(axis=(1, 2)))
        for down, up in zip(low, high, strict=True):
            more = _FARTHER * (up - down)
            down -= more
            up += more
        made = make_surrogates(self.data, np.array(low), np.array(high), _ERROR, _DEGREES)
        return NearRows(self.data, made)

    def _fresh_pairs(self) -> int:
        """Pairs of proposals for weights: many small levels need several, large ones only one.

        The variance of one pair's log estimate is half the mean square difference of two.
        """
        rng, start = np.random.default_rng(0), self.space.start
        differences = np.empty((0, len(self.levels.parts)))
        while len(differences) < _RANGE_DRAWS:
            number = min(self._chunk, _RANGE_DRAWS - len(differences))
            common = self._shared(rng.normal(start, 1.0, (number, len(start))))
            log_weight = self._log_weights(
                common, self._proposed(common, self._draw_noise(number, 2, rng))
            )
            first, second = (
                np.logaddexp(*log_weight[:, [k, k + 2]].swapaxes(0, 1)) for k in (0, 1)
            )
            differences = np.concatenate([differences, (first - second).T])
        variance = 0.5 * (differences**2).mean(axis=0).sum()
        most = int(np.clip(_MOST_ROWS // len(self.levels.order), 1, _MOST_FRESH))
        return int(np.clip(np.ceil(variance / _VARIANCE), 1, most))


def _rotations(of: Coefficients) -> list[Floats]:
    """Rotations of the blocks, and none of the line."""
    return [*(block.rotation for block in of.laplace.blocks), np.eye(of.design.line.shape[1])]
