"""A problem's log density as a function of its coordinates, for all draws at once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy import sparse

from .._lib.arrays import Floats, Ints
from .._model.coordinates import Space
from .._model.mixture_cells import MixtureCells
from .._model.problem import Problem
from ..families.rows import RowSums
from .row_polynomials import Surrogates, make_surrogates

Evaluate = Callable[[Floats], tuple[Floats, Floats]]
"""Coordinates (draws, dim) -> log density (draws,) and its gradient (draws, dim)."""
Values = Callable[[Floats], Floats]
"""Coordinates (draws, dim) -> log density (draws,)."""

SAMPLED = ("chain", "draw")
CHUNK = 1000  # draws evaluated at once, fewer with many bins
_MOST_VALUES = 400_000  # size of a matrix of bins by draws: 3 MB
_PROBES = 250  # draws that show how far the curves reach
_WIDE = 1.5  # factor on the posterior sd for the polynomials' range


@dataclass(frozen=True)
class Densities:
    """The log density of a problem's parameters, with levels that are integrated out or without."""

    bound: Evaluate  # smooth: for the evidence bound and gradients
    weights: Values  # for importance weights
    draws: Callable[[Floats], xr.Dataset]  # from coordinates (draws, dim)
    # if `weights` are estimates with fresh noise, which `bound` has not: value and gradient with it
    fresh: Evaluate | None = None
    # and better estimates, for the few largest weights, whose noise would be taken for a heavy tail
    sharp: Values | None = None
    # effective sample below which draws are annealed: Gaussians that are too narrow in a heavy tail
    # still have a good k, and their weights do not widen it enough
    fewest: float = 0.5
    effective: float = 4.0  # sample made for each draw kept
    made: float = 4.0  # draws made for each one kept, at most

    def gap(self, rows: Floats) -> Floats | float:
        """Excess of the weights' log density over the bound's."""
        return self.weights(rows) - self.bound(rows)[0] if self.fresh else 0.0


def near_densities(built: Problem) -> Densities:
    """The log density to about 1e-3 nats: polynomials stand for rows over the curves' range."""
    space = built.space
    rows = _rows_of(built)
    chunk = max(10, min(CHUNK, _MOST_VALUES // len(built.score)))
    designs = [part.at_rows for part in built.coordinates.parts]

    def predictors(coefficients: Sequence[Floats]) -> list[Floats]:
        return [x @ values.T for values, x in zip(coefficients, designs, strict=True)]

    def bound(coordinates: Floats) -> tuple[Floats, Floats]:
        point = space.at(coordinates)
        value, *slopes = rows.sums_and_slopes(*predictors(point.coefficients))
        by_coefficients = [
            slope.T @ x for slope, x in zip(slopes, designs, strict=True)
        ]
        return point.log_density + value, point.gradient(by_coefficients)

    def weights(coordinates: Floats) -> Floats:
        point = space.at(coordinates)
        return point.log_density + rows.sums(*predictors(point.coefficients))

    draws = partial(posterior_draws, space)
    return Densities(finite(bound, chunk), finite_values(weights, chunk), draws)


def _rows_of(built: Problem) -> "NearRows | MixtureCells":
    """The likelihood's rows; a mixture's few cells are summed exactly."""
    if built.mixture:
        return built.mixture.cells
    data = built.pilot.data
    start = built.space.start
    draws = np.random.default_rng(0).normal(start, _WIDE, (_PROBES, len(start)))
    step = max(10, _MOST_VALUES // len(built.score))
    ends = []
    for values, part in zip(
        built.space.at(draws).coefficients, built.coordinates.parts, strict=True
    ):
        curves = [
            values[i : i + step] @ part.at_rows.T for i in range(0, _PROBES, step)
        ]
        low = np.min([curve.min(axis=0) for curve in curves], axis=0)
        ends.append((low, np.max([curve.max(axis=0) for curve in curves], axis=0)))
    low, high = np.array(ends).swapaxes(0, 1)
    return NearRows(data, make_surrogates(data, low, high))


def finite(function: Evaluate, chunk: int = CHUNK) -> Evaluate:
    """Evaluate in chunks of draws; what is not finite becomes -inf."""

    def evaluate(rows: Floats) -> tuple[Floats, Floats]:
        with np.errstate(all="ignore"):
            parts = [function(rows[i : i + chunk]) for i in range(0, len(rows), chunk)]
        logp = np.concatenate([part[0] for part in parts])
        gradient = np.concatenate([part[1] for part in parts])
        good = np.isfinite(logp) & np.isfinite(gradient).all(axis=1)
        return np.where(good, logp, -np.inf), gradient

    return evaluate


def finite_values(function: Values, chunk: int) -> Values:
    """`finite` for values without gradients."""

    def evaluate(rows: Floats) -> Floats:
        with np.errstate(all="ignore"):
            parts = [function(rows[i : i + chunk]) for i in range(0, len(rows), chunk)]
        logp = np.concatenate(parts)
        return np.where(np.isfinite(logp), logp, -np.inf)

    return evaluate


def posterior_draws(space: Space, rows: Floats) -> xr.Dataset:
    """Posterior variables at coordinates (draws, dim), in one chain."""
    with np.errstate(all="ignore"):
        values = space.variables(rows)
    return labelled(space, {name: x[None] for name, x in values.items()})


def labelled(space: Space, values: dict[str, Floats]) -> xr.Dataset:
    """Draws (chain, draw, ...) of a space's variables as a dataset."""
    variables = {name: ((*SAMPLED, *space.dims[name]), x) for name, x in values.items()}
    return with_labels(space, xr.Dataset(variables))


def with_labels(space: Space, data: xr.Dataset) -> xr.Dataset:
    """A dataset with the labels of its dims that a space knows."""
    dims = map(str, data.dims)
    return data.assign_coords(
        {dim: space.labels[dim] for dim in dims if dim in space.labels}
    )


# --- minibatches of bins --------------------------------------------------------------------------


def systematic(
    bins: int, batch: int, draws: int, rng: np.random.Generator
) -> NDArray[np.intp]:
    """Minibatches (draws, batch or more), each systematic over the score."""
    stride = min(-(-bins // batch), draws)
    batch = -(-bins // stride)
    offsets = rng.permutation(np.arange(draws) % stride)
    return np.array([(o + stride * np.arange(batch)) % bins for o in offsets])


def minibatch_density(built: Problem, bins: NDArray[np.intp]) -> Evaluate:
    """The log density in which draw s uses only the minibatch in row s (modulo) of `bins`."""
    # all bins' quadratics at the mode are one quadratic in the coefficients, and only the small
    # remainder is summed over the minibatch (a control variate: Quiroz et al. 2019)
    number = len(built.score)
    data = built.pilot.data
    space = built.space
    designs = [part.at_rows for part in built.coordinates.parts]
    start = [x[0] for x in space.at(space.start[None]).coefficients]
    location, dispersion = (
        x @ values for x, values in zip(designs, start, strict=True)
    )
    expansion = data.expansion(location, dispersion)
    slopes = [slope @ x for slope, x in zip(expansion.slopes, designs, strict=True)]
    bends = (
        (expansion.by_location, expansion.mixed),
        (expansion.mixed, expansion.by_dispersion),
    )
    squares = [
        [
            designs[i].T @ (sparse.diags_array(bends[i][j]) @ designs[j])
            for j in range(2)
        ]
        for i in range(2)
    ]
    total = float(expansion.value.sum())
    batches, batch_of_draw = np.unique(bins, axis=0, return_inverse=True)
    weight = number / bins.shape[1]

    def remainder(
        moves: Sequence[Floats], batch: NDArray[np.intp]
    ) -> tuple[Floats, ...]:
        """Exact less quadratic log marginals of a minibatch, and slopes in both moves."""
        m = location[batch] + moves[0]
        c = dispersion[batch] + moves[1]
        value, by_m, by_c = data.value_and_gradient(m, c, batch)
        first, second = (slope[batch] for slope in expansion.slopes)
        by_first, mixed, by_second = (x[batch] for x in (*bends[0], bends[1][1]))
        near_m = by_first * moves[0] + mixed * moves[1]
        near_c = mixed * moves[0] + by_second * moves[1]
        near = expansion.value[batch] + first * moves[0] + second * moves[1]
        near = near + 0.5 * (near_m * moves[0] + near_c * moves[1])
        excess = weight * (value - near).sum(axis=1)
        return (
            excess,
            weight * (by_m - first - near_m),
            weight * (by_c - second - near_c),
        )

    def evaluate(rows: Floats) -> tuple[Floats, Floats]:
        point = space.at(rows)
        gaps = [x - values for x, values in zip(point.coefficients, start, strict=True)]
        by_gap = [sum(gaps[j] @ squares[i][j].T for j in range(2)) for i in range(2)]
        logp = point.log_density + total
        by_coefficients = []
        for gap, slope, bend in zip(gaps, slopes, by_gap, strict=True):
            logp = logp + gap @ slope + 0.5 * (gap * bend).sum(axis=1)
            by_coefficients.append(slope + bend)
        members = batch_of_draw[np.arange(len(rows)) % len(bins)]
        for k, batch in enumerate(batches):
            draws = np.flatnonzero(members == k)
            if len(draws):
                moves = [
                    gap[draws] @ x[batch].T
                    for gap, x in zip(gaps, designs, strict=True)
                ]
                value, *by_moves = remainder(moves, batch)
                logp[draws] += value
                for total_slope, by_move, x in zip(
                    by_coefficients, by_moves, designs, strict=True
                ):
                    total_slope[draws] += by_move @ x[batch]
        return logp, point.gradient(by_coefficients)

    return finite(evaluate)


# --- polynomials of rows --------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class NearRows:
    """Rows with their polynomials."""

    data: RowSums
    surrogates: Surrogates

    def values(self, location: Floats, dispersion: Floats) -> Floats:
        """Log marginals at both parameters, all (rows, draws)."""
        value, outside = self.surrogates.values(location, dispersion)
        self._exact(self.data.values, location, dispersion, outside, value[None])
        return value

    def values_and_slopes(
        self, location: Floats, dispersion: Floats
    ) -> tuple[Floats, Floats]:
        """Log marginals (rows, draws), and their slopes in both parameters (2, rows, draws)."""
        results, outside = self.surrogates.values_and_slopes(location, dispersion)
        self._exact(
            self.data.value_and_gradient, location, dispersion, outside, results
        )
        return results[0], results[1:]

    def _exact(
        self,
        function: Callable[[Floats, Floats, Ints], Floats],
        location: Floats,
        dispersion: Floats,
        outside: NDArray[np.bool_],
        results: Floats,
    ) -> None:
        """Replace results (k, rows, draws) where a polynomial does not hold by a function's."""
        bare = np.flatnonzero(outside.all(axis=1))
        if len(bare):
            exact = function(location[bare].T, dispersion[bare].T, bare)
            results[:, bare] = np.reshape(exact, (len(results), -1, len(bare))).mT
        outside[bare] = False
        rows, draws = np.nonzero(outside)
        if len(rows):
            pair = location[rows, draws][None], dispersion[rows, draws][None]
            results[:, rows, draws] = np.reshape(
                function(*pair, rows), (len(results), -1)
            )

    def sums(self, location: Floats, dispersion: Floats) -> Floats:
        """Sums (draws,) over all rows at both parameters (rows, draws)."""
        return np.asarray(self.values(location, dispersion).sum(axis=0))

    def sums_and_slopes(
        self, location: Floats, dispersion: Floats
    ) -> tuple[Floats, Floats, Floats]:
        """Sums (draws,) over all rows at both parameters (rows, draws), and slopes in these."""
        value, (by_first, by_second) = self.values_and_slopes(location, dispersion)
        return value.sum(axis=0), by_first, by_second
