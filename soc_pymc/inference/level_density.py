"""Log density of the shared parameters, with the levels of a grouping integrated out.

Each level's site (`_model.levels`) proposes its coefficients, and the average importance weight of
antithetic proposals is an unbiased estimate of its integral. With the same noise for all parameters
it is smooth; with fresh noise, Pareto k covers levels too (Andrieu and Roberts 2009).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
import pytensor
import pytensor.tensor as pt
import xarray as xr
from scipy import linalg, sparse

from .._lib.arguments import refuse_beyond_memory
from .._lib.arrays import Floats
from .._model.problem import Problem
from .._model.variables import mode
from ..families.row_sums import make_surrogates
from .density import (
    NO_SLOPES,
    Evaluate,
    NearRows,
    Space,
    finite,
    near_density,
    posterior_draws,
    rest_log_density,
    with_likelihood,
)

_MOST_PAIRS, _MOST_ROWS = 4, 50_000  # pairs for weights and draws, and rows times pairs
_RANGE_DRAWS = 100  # for the range of polynomials
_FARTHER = 0.25  # share of their width by which ranges are widened on either side
# of polynomials: an exact value costs as much as fifty of them
_DEGREES = 6, 8, 11
_ERROR = 1e-2  # nats, allowed for all polynomials; importance weights vary by more
_MOST_VALUES = 20_000_000  # numbers of both curves at all rows, proposals and draws: 160 MB


@dataclass(frozen=True)
class Densities:
    """The log density of a problem's parameters, with levels that are integrated out or without."""

    bound: Evaluate  # smooth: for the evidence bound and gradients
    weights: Evaluate  # for importance weights: estimates with fresh noise, or the same
    draws: Callable[[Floats], xr.Dataset]  # from coordinates (draws, dim)
    # effective sample below which draws are annealed: Gaussians that are too narrow in a heavy tail
    # still have a good k, and their weights do not widen it enough
    fewest: float = 0.5
    effective: float = 4.0  # sample made for each draw kept

    def gap(self, rows: Floats) -> Floats | float:
        """Excess of the weights' log density over the bound's."""
        if self.weights is self.bound:
            return 0.0
        return np.asarray(self.weights(rows)[0] - self.bound(rows)[0])


def densities_of(
    built: Problem, space: Space, rng: np.random.Generator, draws: int = 0
) -> Densities:
    """The densities of a problem; `rng` is for the noise of levels."""
    if not built.pilot.levels:
        near = near_density(built, space)
        return Densities(near, near, lambda rows: posterior_draws(space, rows[None]))
    knots = sum(len(curve.basis.knots) for curve in built.pilot.curves)
    levels = built.pilot.levels.rows.number
    refuse_beyond_memory(
        2.0 * 8.0 * draws * levels * knots,
        f"{draws:,} draws of the curves of {levels:,} levels",
        "take fewer draws by VI(draws=), or give group= a column with fewer levels",
    )
    density = LevelDensity(built, space, rng)
    return Densities(density.bound(), density.weights(), density.draws, 0.05, 2.0)


@dataclass(frozen=True)
class _Proposed:
    """Shared parameters at draws, and N proposals of all levels' coefficients for each."""

    shared: Floats  # (P, draws): shared coefficients of both curves
    tau: Floats  # (K, draws): scale of each of a level's coefficients
    pull: Floats  # (G, K, draws)
    noise: Floats  # (G, K, N / 2, draws or 1)
    deviations: Floats  # (G, K, N, draws): the levels' coefficients
    log_ratio: Floats  # (G, N, draws): of prior to proposal


class LevelDensity:
    """The log density of a problem whose levels are integrated out, in its model's coordinates."""

    def __init__(self, built: Problem, space: Space, rng: np.random.Generator) -> None:
        assert built.pilot.levels is not None
        self._built, self._space, self._rng = built, space, rng
        self._levels, self._rows = built.pilot.levels, built.pilot.levels.rows
        self._kind = self._rows.kind
        rows = np.arange(len(self._rows.level))
        members = np.ones(len(rows)), (self._rows.level, rows)
        self._sums = sparse.csr_array(members, shape=(self._rows.number, len(rows)))
        self._inputs, self._outputs = self._expressions()
        self._forward = pytensor.function([self._inputs], self._outputs, mode=mode())
        self._noise = self._draw_noise(1, 1)
        self._near = self._polynomials()
        # many small levels need several, and large ones, where a pair costs more, only one
        self._pairs = int(np.clip(_MOST_ROWS // len(rows), 1, _MOST_PAIRS))

    def _expressions(self) -> tuple[Any, list[Any]]:
        """Coordinates, and shared coefficients, log scales and the log prior from them."""
        model, parts = self._built.model, self._built.coefficients
        scales = [model[name] for name in self._levels.scale_names(self._built.family.curves)]
        coefficients = pt.concatenate([model[name] for part in parts for name in part.names])
        turn = linalg.block_diag(*(part.turn for part in parts))
        values = [pt.dot(turn, coefficients), pt.log(pt.stack(scales))[self._kind]]
        outputs = [*model.replace_rvs_by_values(values), rest_log_density(self._built, model)]
        return self._space.batched(outputs)

    def _chunk(self, pairs: int) -> int:
        """Draws evaluated at once."""
        return int(np.clip(_MOST_VALUES // (4 * pairs * len(self._rows.level)), 5, 250))

    def _draw_noise(self, draws: int, pairs: int) -> Floats:
        """Noise (G, K, pairs, draws) of antithetic pairs."""
        return self._rng.standard_normal((self._rows.number, len(self._kind), pairs, draws))

    def _proposed(self, coefficients: Floats, log_tau: Floats, noise: Floats) -> _Proposed:
        """Proposals at shared coefficients (draws, P) and log scales (draws, K)."""
        shared, tau = coefficients.T, np.ascontiguousarray(np.exp(log_tau).T)
        levels = self._levels
        coupled = np.tensordot(levels.coupling, shared - levels.centre[:, None], 1)
        pull = levels.pull[:, :, None] - coupled
        deviations = np.empty((*noise.shape[:2], 2 * noise.shape[2], len(coefficients)))
        log_ratio = np.empty((len(deviations), *deviations.shape[2:]))
        proposals(pull, tau, levels.information, noise, deviations, log_ratio)
        return _Proposed(shared, tau, pull, noise, deviations, log_ratio)

    def _fresh(self, rows: Floats, pairs: int) -> tuple[_Proposed, Floats]:
        """Proposals with fresh noise for every draw, and the log prior density."""
        coefficients, log_tau, log_prior = self._forward(rows)
        noise = self._draw_noise(len(rows), pairs)
        return self._proposed(coefficients, log_tau, noise), log_prior

    def _curves(self, proposed: _Proposed) -> Floats:
        """Both curves at the rows, (2, rows, N draws)."""
        levels, size, *number = proposed.deviations.shape
        of_levels = self._rows.by_level @ proposed.deviations.reshape(levels * size, -1)
        curves = of_levels.reshape(-1, *number)
        curves += (self._rows.shared @ proposed.shared)[:, None]
        return np.asarray(of_levels).reshape(2, len(self._rows.level), -1)

    def _log_weights(self, proposed: _Proposed, by_row: Floats = NO_SLOPES) -> Floats:
        """Log importance weights (G, N, draws); fills (2, rows, N draws) slopes of rows."""
        location, dispersion = self._curves(proposed)
        value = self._near.values(location, dispersion, by_row)
        return proposed.log_ratio + (self._sums @ value).reshape(proposed.log_ratio.shape)

    def bound(self) -> Evaluate:
        """Value and gradient with the same noise for all draws."""
        *inputs, log_prior = self._outputs
        likelihood = self._value_and_slopes, log_prior, self._inputs
        return with_likelihood(*likelihood, inputs, self._chunk(1))

    def _value_and_slopes(
        self, coefficients: Floats, log_tau: Floats
    ) -> tuple[Floats, Floats, Floats]:
        """Log likelihood (draws,), and its slopes in shared coefficients and log scales."""
        proposed = self._proposed(coefficients, log_tau, self._noise)
        _, number, draws = proposed.log_ratio.shape
        by_row = np.empty((2, len(self._rows.level), number * draws))
        log_weight = self._log_weights(proposed, by_row)
        total = np.logaddexp.reduce(log_weight, axis=1)
        weights = np.exp(log_weight - total[:, None])
        by_row = by_row.reshape(-1, number * draws)
        by_deviation = (self._rows.by_level.T @ by_row).reshape(proposed.deviations.shape)
        by_pull, by_tau = np.empty_like(proposed.pull), np.empty_like(proposed.tau)
        sites = proposed.pull, proposed.tau, self._levels.information, proposed.noise
        slopes(*sites, weights, by_deviation, by_pull, by_tau)
        of_rows = np.tile(weights[self._rows.level], (2, 1, 1))
        by_shared = self._rows.shared.T @ (by_row.reshape(of_rows.shape) * of_rows).sum(axis=1)
        by_shared -= np.tensordot(self._levels.coupling, by_pull, ((0, 1), (0, 1)))
        return (total - np.log(number)).sum(axis=0), by_shared.T, by_tau.T

    def weights(self) -> Evaluate:
        """Value with fresh noise for every draw; gradients are not computed, but 0."""

        def part(rows: Floats) -> tuple[Floats, Floats]:
            proposed, log_prior = self._fresh(rows, self._pairs)
            log_weight = self._log_weights(proposed)
            total = np.logaddexp.reduce(log_weight, axis=1) - np.log(log_weight.shape[1])
            return log_prior + total.sum(axis=0), np.zeros_like(rows)

        return finite(part, self._chunk(self._pairs))

    def draws(self, rows: Floats) -> xr.Dataset:
        """Draws with the levels' curves, chosen among proposals by importance weights."""
        posterior = posterior_draws(self._space, rows[None])
        step, chosen = self._chunk(self._pairs), []
        for begin in range(0, len(rows), step):
            proposed, _ = self._fresh(rows[begin : begin + step], self._pairs)
            log_weight = self._log_weights(proposed)
            # the largest weight times a Gumbel number is at n with the probability of n's weight
            best = (log_weight + self._rng.gumbel(size=log_weight.shape)).argmax(axis=1)
            best = best[:, None, None]
            picked = np.take_along_axis(proposed.deviations, best, axis=2)[:, :, 0]
            chosen.append(picked.transpose(2, 0, 1))
        deviations = np.concatenate(chosen)
        grouping, curves, start = self._levels.grouping, {}, 0
        for name, term in zip(self._built.family.curves, self._rows.terms, strict=True):
            part, start = deviations[:, :, start : start + len(term.kind)], start + len(term.kind)
            shared = posterior[name]
            values = shared.to_numpy()[0, :, None] + part @ term.values.T
            dims = ("chain", "draw", grouping.name, shared.dims[-1])
            curves[f"{name}_of_{grouping.name}"] = dims, values[None]
        return posterior.assign(curves).assign_coords({grouping.name: list(grouping.levels)})

    def _polynomials(self) -> NearRows:
        """Polynomials of all rows, on the range of draws around the start."""
        start, step = self._space.start, self._chunk(1)
        draws = self._rng.normal(start, 1.0, (_RANGE_DRAWS, len(start)))
        parts = (self._fresh(draws[i : i + step], 1)[0] for i in range(0, _RANGE_DRAWS, step))
        ends = [(curves.min(axis=2), curves.max(axis=2)) for curves in map(self._curves, parts)]
        low, high = np.array(ends).swapaxes(0, 1)
        low, high = low.min(axis=0), high.max(axis=0)
        more = _FARTHER * (high - low)
        data = self._built.data
        return NearRows(data, make_surrogates(data, low - more, high + more, _ERROR, _DEGREES))


# --- compiled proposals ---------------------------------------------------------------------------

# A level's K coefficients b = D x, D = diag(tau) the sds of their prior, have the log likelihood
# u'b - b'A b / 2, the site. So x is N(M^-1 D u, M^-1), M = I + D A D = L L', and a proposal is
# x = L'^-1 (L^-1 D u + noise). Nothing is divided by tau, which may be tiny.
# Shapes: u (G, K, draws), tau (K, draws), A (G, K, K), noise (G, K, N / 2, draws or 1). Proposals
# N / 2 and later have the same noise with the other sign. Statements are on all draws.
_jit = numba.njit(cache=True, nogil=True, error_model="numpy")


@_jit
def _subtract(total, x, y):  # type: ignore[no-untyped-def]
    """Subtract the products of x and y, as vector instructions and without a copy."""
    for s in range(len(total)):
        total[s] -= x[s] * y[s]


@_jit
def _factor(information, tau):  # type: ignore[no-untyped-def]
    """Cholesky factors L (K, K, draws)."""
    size, draws = tau.shape
    lower = np.empty((size, size, draws))
    for i in range(size):
        for j in range(i + 1):
            lower[i, j] = tau[i] * information[i, j] * tau[j]
            for k in range(j):
                _subtract(lower[i, j], lower[i, k], lower[j, k])
            if j < i:
                lower[i, j] /= lower[j, j]
        lower[i, i] = np.sqrt(1.0 + lower[i, i])
    return lower


@_jit
def _forward(lower, x):  # type: ignore[no-untyped-def]
    """Replace x (K, draws) by L^-1 x."""
    for i in range(len(x)):
        for k in range(i):
            _subtract(x[i], lower[i, k], x[k])
        x[i] /= lower[i, i]


@_jit
def _backward(lower, x):  # type: ignore[no-untyped-def]
    """Replace x (K, draws) by L'^-1 x."""
    for i in range(len(x) - 1, -1, -1):
        for k in range(i + 1, len(x)):
            _subtract(x[i], lower[k, i], x[k])
        x[i] /= lower[i, i]


@_jit
def _proposal(lower, centre, noise, n):  # type: ignore[no-untyped-def]
    """The n-th proposal x (K, draws); `centre` is L^-1 D u."""
    pairs = noise.shape[1]
    x = centre + noise[:, n] if n < pairs else centre - noise[:, n - pairs]
    _backward(lower, x)
    return x


@_jit
def proposals(pull, tau, information, noise, b, log_ratio):  # type: ignore[no-untyped-def]
    """Fill b (G, K, N, draws) from noise, and the log ratio (G, N, draws) of prior to proposal."""
    for g in range(len(pull)):
        lower = _factor(information[g], tau)
        centre, log_det = tau * pull[g], np.zeros(tau.shape[1])
        _forward(lower, centre)
        for i in range(len(tau)):
            log_det += np.log(lower[i, i])
        for n in range(b.shape[2]):
            x = _proposal(lower, centre, noise[g], n)
            normal = noise[g, :, n % noise.shape[2]]
            log_ratio[g, n] = 0.5 * (normal**2 - x**2).sum(axis=0) - log_det
            b[g, :, n] = tau * x


@_jit
def _by_matrix(lower, by_lower):  # type: ignore[no-untyped-def]
    """Replace derivatives in L by those in the lower half of M (Murray 2016)."""
    for i in range(len(lower) - 1, -1, -1):
        for j in range(i, -1, -1):
            by_lower[i, j] /= lower[j, j]
            if i == j:
                by_lower[i, i] *= 0.5
            else:
                _subtract(by_lower[j, j], by_lower[i, j], lower[i, j])
            for k in range(j):
                _subtract(by_lower[i, k], by_lower[i, j], lower[j, k])
                _subtract(by_lower[j, k], by_lower[i, j], lower[i, k])


@_jit
def slopes(  # type: ignore[no-untyped-def]
    pull, tau, information, noise, weight, slope, by_pull, by_log_tau
):
    """Fill derivatives `by_pull` (G, K, draws) and `by_log_tau` (K, draws) of the log likelihood.

    `weight` (G, N, draws) are the proposals' shares, and `slope` (G, K, N, draws) gradients in b.
    """
    by_log_tau[:] = 0.0
    size = len(tau)
    for g in range(len(pull)):
        lower = _factor(information[g], tau)
        right = tau * pull[g]
        centre = right.copy()
        _forward(lower, centre)
        by_right, by_lower = np.zeros(tau.shape), np.zeros(lower.shape)
        for n in range(weight.shape[1]):
            x = _proposal(lower, centre, noise[g], n)
            by_scaled = tau * slope[g, :, n]
            by_log_tau += weight[g, n] * by_scaled * x
            by_x = weight[g, n] * (by_scaled - x)
            _forward(lower, by_x)
            by_right += by_x
            for i in range(size):
                for j in range(i + 1):
                    _subtract(by_lower[i, j], x[i], by_x[j])
        _backward(lower, by_right)
        by_pull[g] = tau * by_right
        by_log_tau += by_right * right
        for i in range(size):
            by_lower[i, i] -= 1.0 / lower[i, i]
            for j in range(i + 1):
                _subtract(by_lower[i, j], by_right[i], centre[j])
        _by_matrix(lower, by_lower)
        for i in range(size):
            for j in range(i + 1):
                product = by_lower[i, j] * tau[i] * information[g, i, j] * tau[j]
                by_log_tau[i] += product
                by_log_tau[j] += product
