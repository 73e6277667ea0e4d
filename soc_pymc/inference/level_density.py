"""Log density of the shared parameters, with the levels of a grouping integrated out.

Each level's site (`_model.levels`) proposes its coefficients, and the average importance weight of
antithetic proposals is an unbiased estimate of its integral. With the same noise for all parameters
it is smooth; with fresh noise, Pareto k covers levels too (Andrieu and Roberts 2009).
"""

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
from .polynomials import Surrogates, make_surrogates
from .row_kernels import add_slopes, add_values, propose, solve

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
_DEGREES = 3, 5, 7, 9, 11, 15
# nats, allowed for all polynomials; importance weights vary by more
_ERROR = 3e-2
# rows times pairs and draws at once: 16 MB, so that memory is used again
_MOST_VALUES = 2_000_000
# by whole numbers of 16 bits: many times as fast as normal numbers that are not rounded
_NORMAL = special.ndtri((np.arange(1 << 16) + 0.5) / (1 << 16))
_NORMAL /= _NORMAL.std()
_NONE = np.empty(0, dtype=np.int64)
_NO_LEVELS = np.empty((0, 0, 0))


class _Proposed(NamedTuple):
    """Shared parameters at draws, and N proposals of all levels' coefficients for each."""

    shared: Floats  # (P, draws): shared coefficients of both curves
    deviations: Floats  # (G, K, N, draws): coefficients; halves are antithetic
    log_ratio: Floats  # (G, N, draws): of prior to proposal


class _AtRows(NamedTuple):
    """Rows at proposals."""

    linear: Any  # as `row_kernels` takes rows
    deviations: Floats  # (G, K, N, draws)
    # indices of rows, proposals and draws where a row's polynomial does not hold, and both curves
    outside: tuple[Ints, ...]
    curves: list[Floats]


class _Places(NamedTuple):
    """Rows' places, in units of their polynomials, as linear functions of coefficients."""

    coefficients: Floats  # of polynomials, as `row_kernels` takes them
    base: Floats  # (2 rows, 1): where shared coefficients are the sites' centre
    shared: Floats  # (2 rows, P)
    # of levels' coefficients, (rows, K) for each curve
    location: Floats
    dispersion: Floats


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
        surrogates = self._polynomials()
        has_polynomial = surrogates.reach.min(axis=0) > 0.0
        self._degree = np.where(has_polynomial, surrogates.degree, -1)
        self._centre = surrogates.centre
        self._reach = np.where(has_polynomial, surrogates.reach, 1.0)
        per_unit = 1.0 / self._reach[:, :, None]
        middle = (self._rows.shared @ self._levels.centre).reshape(2, -1)
        first, second = self._rows.terms
        self._places = _Places(
            surrogates.coefficients,
            base=(middle - self._centre).reshape(-1, 1) * per_unit.reshape(-1, 1),
            shared=self._rows.shared * per_unit.reshape(-1, 1),
            location=first.design * per_unit[0],
            dispersion=second.design * per_unit[1],
        )
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

    def _normal(self, *shape: int) -> Floats:
        """Standard normal numbers."""
        number = self._rng.integers(0, len(_NORMAL), shape, dtype=np.uint16)
        return np.take(_NORMAL, number)

    def _draw_noise(self, draws: int, pairs: int) -> Pair:
        """Draws of the coefficients' prior, in units of tau, and of the sites' pulls."""
        levels = self._rows.number
        size = len(self._kind)
        prior, site = self._normal(2, levels, size, pairs, draws)
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

    def _fresh(self, rows: Floats, pairs: int) -> tuple[_Proposed, Floats]:
        """Proposals with fresh noise for every draw, and the log prior density."""
        point = self._coordinates.at(rows)
        shared, tau, pull = self._pull(point)
        levels, size = self._levels.pull.shape
        noise = self._normal(levels, size, pairs, len(rows))
        deviations = np.empty((levels, size, 2 * pairs, len(rows)))
        log_ratio = np.empty((levels, 2 * pairs, len(rows)))
        propose(self._levels.information, tau, pull, noise, deviations, log_ratio)
        return _Proposed(shared, deviations, log_ratio), point.log_density

    def _log_weights(self, proposed: _Proposed) -> tuple[Floats, "_AtRows"]:
        """Log importance weights (G, N, draws) of proposals, and what is needed for slopes."""
        shared, deviations, log_ratio = proposed
        places = self._places
        change = shared - self._levels.centre[:, None]
        base = (places.shared @ change + places.base).reshape(2, -1, change.shape[1])
        designs = places.location, places.dispersion
        linear = designs, base, *self._ordered
        polynomials = places.coefficients, self._degree
        levels, size, *number = deviations.shape
        outside = np.zeros((base.shape[1], *number), dtype=np.bool_)
        log_weight = log_ratio.copy()
        marked = add_values(
            linear,
            deviations.reshape(levels, size, -1),
            polynomials,
            log_weight.reshape(levels, -1),
            outside.reshape(len(outside), -1),
        )
        if not marked:
            return log_weight, _AtRows(linear, deviations, (_NONE,) * 3, [])
        row, n, draw = np.unravel_index(np.flatnonzero(outside), outside.shape)
        level = self._rows.level[row]
        parts = np.split(
            np.arange(deviations.shape[1]), [len(self._rows.terms[0].kind)]
        )
        curves = []
        for k, (design, part) in enumerate(zip(designs, parts, strict=True)):
            of_level = deviations[level[:, None], part, n[:, None], draw[:, None]]
            place = base[k, row, draw] + (design[row] * of_level).sum(axis=1)
            curves.append(self._centre[k, row] + self._reach[k, row] * place)
        exact = self._built.pilot.data.values(curves[0][None], curves[1][None], row)
        np.add.at(log_weight, (level, n, draw), exact.ravel())
        return log_weight, _AtRows(linear, deviations, (row, n, draw), curves)

    def _slopes_of_rows(self, at_rows: "_AtRows", weights: Floats) -> Pair:
        """Weighted slopes in deviations (G, K, N, draws), and in both places (2 rows, draws)."""
        designs, base = at_rows.linear[:2]
        polynomials = self._places.coefficients, self._degree
        by_deviation = np.zeros_like(at_rows.deviations)
        by_row = np.zeros_like(base)
        levels, size, *_ = by_deviation.shape
        add_slopes(
            at_rows.linear,
            at_rows.deviations.reshape(levels, size, -1),
            polynomials,
            weights.reshape(levels, -1),
            by_deviation.reshape(levels, size, -1),
            by_row,
        )
        row, n, draw = at_rows.outside
        if not len(row):
            return by_deviation, by_row.reshape(-1, by_row.shape[2])
        level = self._rows.level[row]
        first, second = (curve[None] for curve in at_rows.curves)
        _, *slopes = self._built.pilot.data.value_and_gradient(first, second, row)
        start = 0
        for curve, (slope, design) in enumerate(zip(slopes, designs, strict=True)):
            weighted = slope.ravel() * weights[level, n, draw] * self._reach[curve, row]
            np.add.at(by_row[curve], (row, draw), weighted)
            for k in range(design.shape[1]):
                part = by_deviation[:, start + k]
                np.add.at(part, (level, n, draw), design[row, k] * weighted)
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
        shared, tau, pull = self._pull(point)
        prior_noise, push = noise
        # proposals that are smooth in the coordinates
        pushes = prior_noise + tau[:, None] * push
        solution = np.concatenate([pull, pushes], axis=2)
        log_det = solve(self._levels.information, tau, solution, _NO_LEVELS)
        mean = solution[:, :, :1]
        moves = solution[:, :, 1:]
        log_density = 0.5 * (moves * pushes).sum(axis=1) - 0.5 * log_det[:, None]
        scaled = np.concatenate([mean + moves, mean - moves], axis=2)
        log_ratio = np.tile(log_density, (1, 2, 1)) - 0.5 * (scaled**2).sum(axis=1)
        proposed = _Proposed(shared, tau[:, None] * scaled, log_ratio)
        log_weight, at_rows = self._log_weights(proposed)
        total = np.logaddexp.reduce(log_weight, axis=1)
        weights = np.exp(log_weight - total[:, None])
        by_deviation, by_row = self._slopes_of_rows(at_rows, weights)
        by_x = tau[:, None] * by_deviation - weights[:, None] * scaled
        of_moves = moves, moves - prior_noise
        by_pull, by_tau = self._slopes(tau, mean, of_moves, weights[:, None], by_x)
        by_shared = self._places.shared.T @ by_row
        by_shared -= np.tensordot(self._levels.coupling, by_pull, ((0, 1), (0, 1)))
        ends = np.cumsum([turn.shape[0] for turn in self._turns])[:-1]
        parts = zip(np.split(by_shared.T, ends, axis=1), self._turns, strict=True)
        by_coefficients = [slope @ turn for slope, turn in parts]
        by_scale = by_tau.T @ np.eye(len(self._levels.scales))[self._kind]
        log_density = point.log_density + (total - np.log(scaled.shape[2])).sum(axis=0)
        return log_density, point.gradient(by_coefficients, by_scale)

    def _slopes(
        self, tau: Floats, mean: Floats, of_moves: Pair, weights: Floats, by_x: Floats
    ) -> Pair:
        """Slopes in the sites' pulls (G, K, draws) and log scales (K, draws).

        `of_moves` are moves, and these less the prior's noise, `weights` (G, 1, N, draws) the
        proposals' shares, and `by_x` (G, K, N, draws) weighted slopes in proposals in units of tau.
        """
        moves, excess = of_moves
        plus, minus = np.split(by_x, 2, axis=2)
        solution = np.concatenate(
            [by_x.sum(axis=2, keepdims=True), plus - minus], axis=2
        )
        variance = np.empty_like(solution[:, :, 0])
        solve(self._levels.information, tau, solution, variance)
        by_mean = solution[:, :, 0]
        by_move = solution[:, :, 1:]
        plus, minus = np.split(weights, 2, axis=2)
        # slopes of M cancel all others in part, since (M - I) x is what was solved for less x
        by_tau = (plus * (mean + moves) ** 2 + minus * (mean - moves) ** 2).sum(axis=2)
        by_tau += 2.0 * by_mean * mean[:, :, 0]
        by_tau += (by_move * moves + (by_move + (plus + minus) * moves) * excess).sum(2)
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
            picked = np.take_along_axis(proposed.deviations, best, axis=2)[:, :, 0]
            chosen.append(picked.transpose(2, 0, 1))
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

    def _polynomials(self) -> Surrogates:
        """Polynomials of rows on the range of draws around the start."""
        start = self._coordinates.start
        step = self._chunk(1)
        draws = self._rng.normal(start, 1.0, (_RANGE_DRAWS, len(start)))
        rows = self._rows
        ends = []
        for begin in range(0, _RANGE_DRAWS, step):
            proposed, _ = self._fresh(draws[begin : begin + step], 1)
            shared, deviations, _ = proposed
            levels = len(deviations) * deviations.shape[1]
            of_levels = rows.by_level @ deviations.reshape(levels, -1)
            curves = of_levels.reshape(-1, *deviations.shape[2:])
            curves = curves + (rows.shared @ shared)[:, None]
            ends.append((curves.min(axis=(1, 2)), curves.max(axis=(1, 2))))
        low, high = np.array(ends).swapaxes(0, 1).reshape(2, -1, 2, len(rows.level))
        low = low.min(axis=0)
        high = high.max(axis=0)
        further = _FARTHER * (high - low)
        values = self._built.pilot.data.values
        return make_surrogates(values, low - further, high + further, _ERROR, _DEGREES)
