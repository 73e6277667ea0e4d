"""A problem's log density as a function of its coordinates, for all draws at once.

Polynomials stand for the log marginals of rows in the region that draws visit.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from .._lib.arrays import Floats, Ints, Pair
from .._model.coordinates import Space
from .._model.problem import Problem
from .polynomials import NearRows, ZeroRows

# coordinates (draws, dim) -> log density (draws,) and its gradient (draws, dim)
Evaluate = Callable[[Floats], Pair]
# coordinates (draws, dim) -> log density (draws,)
Values = Callable[[Floats], Floats]

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
    # from coordinates (draws, dim)
    draws: Callable[[Floats], xr.Dataset]
    # if `weights` are estimates with fresh noise, which `bound` has not: value and gradient with it
    fresh: Evaluate | None = None
    # effective sample below which draws are annealed: Gaussians that are too narrow in a heavy tail
    # still have a good k, and their weights do not widen it enough
    fewest: float = 0.5
    effective: float = 4.0  # sample made for each draw kept
    made: float = 4.0  # draws made for each one kept, at most
    # to the problem's coordinates, where these are others
    original: Callable[[Floats], Floats] = lambda rows: rows

    def gap(self, rows: Floats) -> Floats | float:
        """Excess of the weights' log density over the bound's."""
        return self.weights(rows) - self.bound(rows)[0] if self.fresh else 0.0


class Likelihood(NamedTuple):
    """A log likelihood as a function of predictors, each (rows, draws)."""

    sums: Callable[..., Floats]  # (draws,), over all rows
    # the same, and slopes in each of the predictors
    sums_and_slopes: Callable[..., tuple[Floats, ...]]
    number: int  # of the rows, or parts of rows, that are summed


def near_densities(built: Problem, rows: Likelihood | None = None) -> Densities:
    """The log density to about 1e-3 nats, with other rows of the likelihood if they are given."""
    space = built.space
    rows = rows or rows_of_likelihood(built)
    chunk = max(10, min(CHUNK, _MOST_VALUES // rows.number))
    designs = [part.at_rows for part in built.coordinates.parts]

    def predictors(coefficients: Sequence[Floats]) -> list[Floats]:
        return [x @ values.T for values, x in zip(coefficients, designs, strict=True)]

    def bound(coordinates: Floats) -> Pair:
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


def rows_of_likelihood(built: Problem) -> Likelihood:
    """Polynomials of rows over the curves' range; a mixture's few cells are summed exactly."""
    ends = partial(_ends_of_predictors, built)
    rows = len(built.score)
    if built.mixture is None:
        data = built.pilot.data
        low, high = np.moveaxis(ends(), 0, 1)
        near = NearRows.of(data, low, high)
        return Likelihood(near.sums, near.sums_and_slopes, rows)
    cells = built.mixture.cells
    split = ZeroRows.of(built, *ends()[0])
    if split is None:
        exact = partial(cells.sums_and_slopes, log_marginals=cells.log_marginals)
        return Likelihood(cells.sums, exact, rows)
    by_piece = partial(cells.sums_and_slopes, log_marginals=split.log_marginals)
    return Likelihood(lambda x: by_piece(x)[0], by_piece, len(split.near.data.total))


def _ends_of_predictors(built: Problem) -> Floats:
    """Lowest and highest predictors, (parts, 2, rows), of draws near the start."""
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
    return np.array(ends)


def finite(function: Evaluate, chunk: int = CHUNK) -> Evaluate:
    """Evaluate in chunks of draws; what is not finite becomes -inf."""

    def evaluate(rows: Floats) -> Pair:
        with np.errstate(all="ignore"):
            parts = [function(rows[i : i + chunk]) for i in range(0, len(rows), chunk)]
        logp = np.concatenate([part[0] for part in parts])
        gradient = np.concatenate([part[1] for part in parts])
        finite = np.isfinite(logp) & np.isfinite(gradient).all(axis=1)
        return np.where(finite, logp, -np.inf), gradient

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


def minibatch_density(built: Problem, bins: Ints) -> Evaluate:
    """The log density in which draw s uses only the minibatch in row s (modulo) of `bins`."""
    return finite(_Minibatches(built, bins))


class _Minibatches:
    """The log density with a minibatch of bins for each draw.

    All bins' quadratics at the mode are one quadratic in the coefficients, and only the small
    remainder is summed over the minibatch (a control variate: Quiroz et al. 2019).
    """

    def __init__(self, built: Problem, bins: Ints) -> None:
        self._data = built.pilot.data
        self._space = built.space
        self._designs = [part.at_rows for part in built.coordinates.parts]
        start = self._space.at(self._space.start[None]).coefficients
        self._start = [values[0] for values in start]
        pairs = zip(self._designs, self._start, strict=True)
        self._curves = np.stack([x @ values for x, values in pairs])
        expansion = self._data.expansion(*self._curves)
        self._values = expansion.value
        self._slopes = np.stack(expansion.slopes)
        mixed = expansion.mixed
        bends = [expansion.by_location, mixed], [mixed, expansion.by_dispersion]
        self._bends = np.array(bends)
        pairs = zip(self._slopes, self._designs, strict=True)
        self._total_slopes = [slope @ x for slope, x in pairs]
        self._total_bends = [
            [
                x.T @ (bend[:, None] * y)
                for bend, y in zip(row, self._designs, strict=True)
            ]
            for x, row in zip(self._designs, self._bends, strict=True)
        ]
        self._batches, self._batch_of_draw = np.unique(
            bins, axis=0, return_inverse=True
        )
        self._weight = len(built.score) / bins.shape[1]

    def __call__(self, rows: Floats) -> Pair:
        """Value and gradient at coordinates (draws, dim)."""
        point = self._space.at(rows)
        pairs = zip(point.coefficients, self._start, strict=True)
        gaps = [values - start for values, start in pairs]
        logp = point.log_density + self._values.sum()
        by_coefficients = []
        parts = zip(gaps, self._total_slopes, self._total_bends, strict=True)
        for gap, slope, bends in parts:
            by_gap = sum(x @ bend.T for x, bend in zip(gaps, bends, strict=True))
            logp = logp + gap @ slope + 0.5 * (gap * by_gap).sum(axis=1)
            by_coefficients.append(slope + by_gap)
        members = self._batch_of_draw[np.arange(len(rows)) % len(self._batch_of_draw)]
        for k, batch in enumerate(self._batches):
            draws = np.flatnonzero(members == k)
            if not len(draws):
                continue
            designs = [x[batch] for x in self._designs]
            pairs = zip(gaps, designs, strict=True)
            moves = np.stack([gap[draws] @ x.T for gap, x in pairs])
            value, by_moves = self._remainder(moves, batch)
            logp[draws] += value
            for slope, by_move, x in zip(
                by_coefficients, by_moves, designs, strict=True
            ):
                slope[draws] += by_move @ x
        return logp, point.gradient(by_coefficients)

    def _remainder(self, moves: Floats, batch: Ints) -> Pair:
        """Exact less quadratic log marginals of a minibatch, and slopes in moves of the curves."""
        shifted = self._curves[:, None, batch] + moves  # (2, draws, bins)
        value, *by_moves = self._data.value_and_gradient(shifted[0], shifted[1], batch)
        slopes = self._slopes[:, None, batch]
        by_bends = (self._bends[:, :, None, batch] * moves).sum(axis=1)
        near = self._values[batch] + ((slopes + 0.5 * by_bends) * moves).sum(axis=0)
        excess = self._weight * (value - near).sum(axis=1)
        return excess, self._weight * (np.stack(by_moves) - slopes - by_bends)
