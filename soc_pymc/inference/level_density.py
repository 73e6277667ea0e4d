"""Log density of the shared parameters, with the levels of a grouping integrated out.

Each level's site (`_model.levels`) proposes its coefficients, and the average importance weight of
antithetic proposals is an unbiased estimate of its integral. With the same noise for all parameters
it is smooth; with fresh noise, Pareto k covers levels too (Andrieu and Roberts 2009).
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from scipy import special

from .._lib.arrays import Floats, Ints, Pair, Triple
from .._model.coordinates import Point
from .._model.problem import Problem
from .density import (
    Densities,
    Evaluate,
    Values,
    finite,
    finite_values,
    posterior_draws,
)
from .polynomials import make_surrogates
from .row_kernels import add_slopes, add_values, solve

# pairs for weights and draws, and rows times pairs
_MOST_PAIRS = 20
_MOST_ROWS = 50_000
_FRESH_PAIRS = 4  # for gradients
# variance of the noise of log weights that is small, and draws and pairs to measure it
_NOISE = 0.15
_NOISE_DRAWS = 50
_NOISE_PAIRS = 8
_RANGE_DRAWS = 100  # for the range of polynomials
# share of their width by which ranges are widened on either side
_FARTHER = 0.25
# of polynomials: an exact value costs as much as fifty of them
_DEGREES = 5, 7, 9, 11, 15
# nats, allowed for all polynomials; importance weights vary by more
_ERROR = 3e-2
# rows times pairs and draws at once: 16 MB, so that memory is used again
_MOST_VALUES = 2_000_000
_NO_NOISE = np.empty((0, 0, 0, 0))
_NO_LEVELS = np.empty((0, 0, 0))
_NONE = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class _Proposed:
    """Shared parameters at draws, and N proposals of all levels' scaled coefficients for each."""

    shared: Floats  # (P, draws): shared coefficients of both curves
    tau: Floats  # (K, draws): scale of each of a level's coefficients
    prior_noise: Floats  # (G, K, N / 2, draws or 1)
    scaled: (
        # (G, K, N, draws): coefficients in units of tau; halves are antithetic
        Floats
    )
    log_ratio: Floats  # (G, N, draws): of prior to proposal


class _AtRows(NamedTuple):
    """Rows at proposals."""

    linear: Any  # as `row_kernels` takes rows
    deviations: Floats  # (G, K, N, draws)
    # indices of rows, proposals and draws where a row's polynomial does not hold, and both curves
    outside: tuple[Ints, ...]
    curves: list[Floats]


def _pairs(
    shared: Floats,
    tau: Floats,
    prior_noise: Floats,
    mean: Floats,
    moves: Floats,
    log_density: Floats,
) -> _Proposed:
    """Proposals on either side of a mean, from minus the log density of their moves."""
    scaled = np.concatenate([mean + moves, mean - moves], axis=2)
    log_ratio = np.tile(log_density, (1, 2, 1)) - 0.5 * (scaled**2).sum(axis=1)
    return _Proposed(shared, tau, prior_noise, scaled, log_ratio)


class LevelDensity:
    """The log density of a problem whose levels are integrated out, in its model's coordinates."""

    def __init__(self, built: Problem, rng: np.random.Generator) -> None:
        assert built.pilot.levels is not None
        self._built = built
        self._rng = rng
        self._coordinates = built.coordinates
        self._levels = built.pilot.levels
        self._rows = built.pilot.levels.rows
        self._kind = self._rows.kind
        # from both curves' coefficients, which are rotated
        self._turns = [part.laplace.turn for part in built.coordinates.parts]
        rows = len(self._rows.level)
        self._noise = self._draw_noise(1, 1)
        self._surrogates = self._polynomials()
        order = np.argsort(self._rows.level, kind="stable")
        numbers = np.arange(self._rows.number + 1)
        self._ordered = order, np.searchsorted(self._rows.level[order], numbers)
        most = int(np.clip(_MOST_ROWS // rows, 1, _MOST_PAIRS))
        # of levels near their sites, few pairs do
        self._pairs = min(most, self._pairs_needed())

    def _chunk(self, pairs: int) -> int:
        """Draws evaluated at once."""
        return int(np.clip(_MOST_VALUES // (pairs * len(self._rows.level)), 5, 250))

    def _pairs_needed(self) -> int:
        """Pairs of proposals from which the noise of log weights is small around the start."""
        start = self._coordinates.start
        draws = self._rng.normal(start, 1.0, (_NOISE_DRAWS, len(start)))
        log_weight, _ = self._log_weights(self._fresh(draws, _NOISE_PAIRS)[0])
        of_pairs = np.logaddexp(*np.split(log_weight, 2, axis=1))
        share = special.softmax(of_pairs, axis=1)
        spread = (share**2).sum(axis=1) - 1.0 / _NOISE_PAIRS
        # of a level's log integral from one pair
        variance = _NOISE_PAIRS**2 / (_NOISE_PAIRS - 1.0) * spread
        return 1 + int(variance.sum(axis=0).mean() / _NOISE)

    def _draw_noise(self, draws: int, pairs: int) -> Pair:
        """Draws of the coefficients' prior, in units of tau, and of the sites' pulls."""
        levels = self._rows.number
        size = len(self._kind)
        prior, site = self._rng.standard_normal((2, levels, size, pairs, draws))
        return prior, (self._levels.root @ site.reshape(levels, size, -1)).reshape(
            prior.shape
        )

    def _pull(self, point: Point) -> Triple:
        """Shared coefficients and scales, and slopes of the levels' sites where x = 0."""
        # With D = diag(tau) and x = b / tau the site is x'D u - x'D A D x / 2. So x is N(M^-1 D u,
        # M^-1), M = I + D A D, as is M^-1 (D u + noise) with noise of covariance M. Nothing is
        # divided by tau, which may be tiny.
        pairs = zip(point.coefficients, self._turns, strict=True)
        shared = np.concatenate([turn @ values.T for values, turn in pairs])
        tau = np.ascontiguousarray(np.exp(point.log_scales[:, self._kind]).T)
        levels = self._levels
        coupled = np.tensordot(levels.coupling, shared - levels.centre[:, None], 1)
        pull = np.ascontiguousarray(levels.pull[:, :, None] - coupled)
        return shared, tau, (tau * pull)[:, :, None]

    def _proposed(self, point: Point, noise: Pair) -> _Proposed:
        """Proposals at shared coefficients and scales, which are smooth in these."""
        shared, tau, pull = self._pull(point)
        pushes = noise[0] + tau[:, None] * noise[1]
        solution = np.concatenate([pull, pushes], axis=2)
        log_det = solve(self._levels.information, tau, solution, _NO_NOISE, _NO_LEVELS)
        moves = solution[:, :, 1:]
        log_density = 0.5 * (moves * pushes).sum(axis=1) - 0.5 * log_det[:, None]
        return _pairs(shared, tau, noise[0], solution[:, :, :1], moves, log_density)

    def _fresh(self, rows: Floats, pairs: int) -> tuple[_Proposed, Floats]:
        """Proposals with fresh noise for every draw, and the log prior density."""
        point = self._coordinates.at(rows)
        shared, tau, mean = self._pull(point)
        levels, size = self._levels.pull.shape
        moves = self._rng.standard_normal((levels, size, pairs, len(rows)))
        log_density = 0.5 * (moves**2).sum(axis=1)
        log_det = solve(self._levels.information, tau, mean, moves, _NO_LEVELS)
        log_density -= 0.5 * log_det[:, None]
        proposed = _pairs(shared, tau, _NO_NOISE, mean, moves, log_density)
        return proposed, point.log_density

    def _curves(self, proposed: _Proposed) -> Floats:
        """Both curves at the rows, (2, rows, N draws)."""
        levels, size, *number = proposed.scaled.shape
        deviations = proposed.tau[:, None] * proposed.scaled
        of_levels = self._rows.by_level @ deviations.reshape(levels * size, -1)
        curves = of_levels.reshape(-1, *number)
        curves += (self._rows.shared @ proposed.shared)[:, None]
        return np.asarray(of_levels).reshape(2, len(self._rows.level), -1)

    def _log_weights(self, proposed: _Proposed) -> tuple[Floats, "_AtRows"]:
        """Log importance weights (G, N, draws) of proposals, and what is needed for slopes."""
        rows = self._rows
        shared = (rows.shared @ proposed.shared).reshape(2, len(rows.level), -1)
        deviations = proposed.tau[:, None] * proposed.scaled
        designs = rows.terms[0].design, rows.terms[1].design
        linear = designs, shared, *self._ordered
        outside = np.zeros((len(rows.level), *deviations.shape[2:]), dtype=np.bool_)
        log_weight = proposed.log_ratio.copy()
        marks = add_values(linear, deviations, self._surrogates, log_weight, outside)
        row, n, draw = np.nonzero(outside) if marks else (_NONE, _NONE, _NONE)
        level = rows.level[row]
        parts = np.split(np.arange(deviations.shape[1]), [designs[0].shape[1]])
        curves = [
            values[row, draw]
            + sum(
                design[row, i] * deviations[level, k, n, draw]
                for i, k in enumerate(part)
            )
            for values, design, part in zip(shared, designs, parts, strict=True)
        ]
        if len(row):
            exact = self._built.pilot.data.values(curves[0][None], curves[1][None], row)
            np.add.at(log_weight, (level, n, draw), exact.ravel())
        return log_weight, _AtRows(linear, deviations, (row, n, draw), curves)

    def _slopes_of_rows(self, at_rows: "_AtRows", weights: Floats) -> Pair:
        """Weighted slopes in deviations (G, K, N, draws), and in both curves (2 rows, draws)."""
        designs, shared = at_rows.linear[:2]
        level = self._rows.level
        by_deviation = np.zeros_like(at_rows.deviations)
        by_row = np.zeros_like(shared)
        add_slopes(
            at_rows.linear,
            at_rows.deviations,
            self._surrogates,
            weights,
            by_deviation,
            by_row,
        )
        row, n, draw = at_rows.outside
        if not len(row):
            return by_deviation, by_row.reshape(-1, by_row.shape[2])
        first, second = (curve[None] for curve in at_rows.curves)
        _, *slopes = self._built.pilot.data.value_and_gradient(first, second, row)
        start = 0
        for curve, (slope, design) in enumerate(zip(slopes, designs, strict=True)):
            weighted = slope.ravel() * weights[level[row], n, draw]
            np.add.at(by_row[curve], (row, draw), weighted)
            for k in range(design.shape[1]):
                part = by_deviation[:, start + k]
                np.add.at(part, (level[row], n, draw), design[row, k] * weighted)
            start += design.shape[1]
        return by_deviation, by_row.reshape(-1, by_row.shape[2])

    def densities(self) -> Densities:
        """The densities of the shared parameters."""
        return Densities(
            self.bound(),
            self._values(self._pairs),
            self.draws,
            self.fresh(),
            fewest=0.03,
            effective=2.0,
            made=2.0,
        )

    def bound(self) -> Evaluate:
        """Value and gradient with the same noise for all draws."""
        return finite(partial(self._value_and_gradient, self._noise), self._chunk(1))

    def fresh(self) -> Evaluate:
        """Value and gradient with fresh noise for every draw."""

        def part(rows: Floats) -> Pair:
            noise = self._draw_noise(len(rows), _FRESH_PAIRS)
            return self._value_and_gradient(noise, rows)

        return finite(part, self._chunk(_FRESH_PAIRS))

    def _value_and_gradient(self, noise: Pair, rows: Floats) -> Pair:
        point = self._coordinates.at(rows)
        proposed = self._proposed(point, noise)
        number = proposed.log_ratio.shape[1]
        log_weight, at_rows = self._log_weights(proposed)
        total = np.logaddexp.reduce(log_weight, axis=1)
        weights = np.exp(log_weight - total[:, None])
        by_deviation, by_row = self._slopes_of_rows(at_rows, weights)
        by_pull, by_tau = self._slopes(proposed, weights[:, None], by_deviation)
        by_shared = self._rows.shared.T @ by_row
        by_shared -= np.tensordot(self._levels.coupling, by_pull, ((0, 1), (0, 1)))
        ends = np.cumsum([turn.shape[0] for turn in self._turns])[:-1]
        parts = zip(np.split(by_shared.T, ends, axis=1), self._turns, strict=True)
        by_coefficients = [slope @ turn for slope, turn in parts]
        by_scale = by_tau.T @ np.eye(len(self._levels.scales))[self._kind]
        log_density = point.log_density + (total - np.log(number)).sum(axis=0)
        return log_density, point.gradient(by_coefficients, by_scale)

    def _slopes(
        self, proposed: _Proposed, weights: Floats, by_deviation: Floats
    ) -> Pair:
        """Slopes in the sites' pulls (G, K, draws) and log scales (K, draws).

        `weights` (G, 1, N, draws) are the proposals' shares, and `by_deviation` (G, K, N, draws)
        their weighted log likelihoods' slopes.
        """
        tau = proposed.tau
        x = proposed.scaled
        plus, minus = np.split(x, 2, axis=2)
        mean = 0.5 * (plus + minus)[:, :, 0]
        moves = 0.5 * (plus - minus)
        by_x = tau[:, None] * by_deviation - weights * x
        plus, minus = np.split(by_x, 2, axis=2)
        solution = np.concatenate(
            [by_x.sum(axis=2, keepdims=True), plus - minus], axis=2
        )
        variance = np.empty((*solution.shape[:2], solution.shape[3]))
        solve(self._levels.information, tau, solution, _NO_NOISE, variance)
        by_mean = solution[:, :, 0]
        by_move = solution[:, :, 1:]
        of_pairs = sum(np.split(weights, 2, axis=2)) * moves
        # slopes of M cancel all others in part, since (M - I) x is what was solved for less x
        by_tau = (weights * x**2).sum(axis=2) + 2.0 * by_mean * mean
        by_tau += (
            by_move * moves + (by_move + of_pairs) * (moves - proposed.prior_noise)
        ).sum(2)
        return tau * by_mean, (by_tau - 1.0 + variance).sum(axis=0)

    def _values(self, pairs: int) -> Values:
        """Value with fresh noise for every draw."""

        def part(rows: Floats) -> Floats:
            proposed, log_prior = self._fresh(rows, pairs)
            log_weight, _ = self._log_weights(proposed)
            total = np.logaddexp.reduce(log_weight, axis=1)
            total -= np.log(log_weight.shape[1])
            return log_prior + total.sum(axis=0)

        return finite_values(part, self._chunk(pairs))

    def draws(self, rows: Floats) -> xr.Dataset:
        """Draws with the levels' curves, chosen among proposals by importance weights."""
        posterior = posterior_draws(self._coordinates, rows)
        pairs = -(-self._pairs // 2)  # one is chosen, so noise matters less
        step = self._chunk(pairs)
        chosen = []
        for begin in range(0, len(rows), step):
            proposed, _ = self._fresh(rows[begin : begin + step], pairs)
            log_weight, _ = self._log_weights(proposed)
            # the largest weight times a Gumbel number is at n with the probability of n's weight
            best = (log_weight + self._rng.gumbel(size=log_weight.shape)).argmax(axis=1)
            best = best[:, None, None]
            picked = np.take_along_axis(proposed.scaled, best, axis=2)[:, :, 0]
            chosen.append((proposed.tau * picked).transpose(2, 0, 1))
        deviations = np.concatenate(chosen)
        grouping = self._rows.terms[0].grouping
        curves = {}
        start = 0
        for name, term in zip(
            self._built.family.curve_names, self._rows.terms, strict=True
        ):
            part = deviations[:, :, start : start + len(term.kind)]
            start = start + len(term.kind)
            shared = posterior[name]
            values = shared.to_numpy()[0, :, None] + part @ term.values.T
            dims = ("chain", "draw", grouping.name, shared.dims[-1])
            curves[f"{name}_of_{grouping.name}"] = dims, values[None]
        return posterior.assign(curves).assign_coords(
            {grouping.name: list(grouping.levels)}
        )

    def _polynomials(self) -> tuple[Any, ...]:
        """Polynomials of rows for `row_kernels`, on the range of draws around the start."""
        start = self._coordinates.start
        step = self._chunk(1)
        draws = self._rng.normal(start, 1.0, (_RANGE_DRAWS, len(start)))
        parts = (
            self._fresh(draws[i : i + step], 1)[0] for i in range(0, _RANGE_DRAWS, step)
        )
        ends = [
            (curves.min(axis=2), curves.max(axis=2))
            for curves in map(self._curves, parts)
        ]
        low, high = np.array(ends).swapaxes(0, 1)
        low = low.min(axis=0)
        high = high.max(axis=0)
        further = _FARTHER * (high - low)
        values = self._built.pilot.data.values
        return make_surrogates(
            values, low - further, high + further, _ERROR, _DEGREES
        ).arrays
