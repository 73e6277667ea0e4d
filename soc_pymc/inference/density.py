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

from .._lib.arrays import Bools, Floats, Ints, Pair, Triple
from .._model.coordinates import Space
from .._model.problem import Problem
from ..families.rows import RowSums

# coordinates (draws, dim) -> log density (draws,) and its gradient (draws, dim)
Evaluate = Callable[[Floats], Pair]
# coordinates (draws, dim) -> log density (draws,)
Values = Callable[[Floats], Floats]

SAMPLED = ("chain", "draw")
CHUNK = 1000  # draws evaluated at once, fewer with many bins
_MOST_VALUES = 400_000  # size of a matrix of bins by draws: 3 MB
_PROBES = 250  # draws that show how far the curves reach
_WIDE = 1.5  # factor on the posterior sd for the polynomials' range
# in each curve, the lowest first: (degree + 1)^2 values at Chebyshev nodes give all coefficients
_DEGREES = 4, 6, 9, 13
# nats, allowed for all rows together as independent errors
_ERROR = 1e-3
_TESTS = 12  # random points of a row where the error is measured
_POWERS_AT_ONCE = 4  # of the compiled evaluation
_POWERS_IN_MEMORY = 1 << 16  # powers of one variable at once: half a MB
# from here on compiled code, which is three times as fast, makes up for its loading
_COMPILED_ROWS = 5_000
_COMPILED_VALUES = 1_000_000


@dataclass(frozen=True, eq=False)
class Surrogates:
    """One polynomial for each row, in units of reach from the centre of its region."""

    # (2, rows): middle of the regions in both parameters
    centre: Floats
    # (2, rows): half-widths; 0 means that the row has no polynomial
    reach: Floats
    # (rows, i, j): of u^i v^j, 0 beyond the degree, up to a multiple of `_POWERS_AT_ONCE`
    coefficients: Floats
    degree: Ints  # (rows,): in each curve

    @property
    def arrays(self) -> tuple[Floats, Floats, Floats, Ints]:
        """Returns the fields, for compiled loops."""
        return self.centre, self.reach, self.coefficients, self.degree

    def values(self, location: Floats, dispersion: Floats) -> tuple[Floats, Bools]:
        """Values at both parameters, all (rows, draws), and where these are outside a region."""
        (value,), outside = self._evaluated(location, dispersion, 1)
        return value, outside

    def values_and_slopes(
        self, location: Floats, dispersion: Floats
    ) -> tuple[Floats, Bools]:
        """Values, and slopes in both parameters, (3, rows, draws); and where these are outside."""
        return self._evaluated(location, dispersion, 3)

    def _evaluated(
        self, location: Floats, dispersion: Floats, number: int
    ) -> tuple[Floats, Bools]:
        results = np.empty((number, *location.shape))
        outside = np.empty(location.shape, dtype=np.bool_)
        if len(location) >= _COMPILED_ROWS or location.size >= _COMPILED_VALUES:
            from .row_kernels import fill

            fill(location, dispersion, results[0], results[1:], outside, self.arrays)
            return results, outside
        for degree in np.unique(self.degree):
            members = np.flatnonzero(self.degree == degree)
            step = max(1, _POWERS_IN_MEMORY // ((int(degree) + 1) * location.shape[1]))
            for start in range(0, len(members), step):
                rows = members[start : start + step]
                part = location[rows], dispersion[rows]
                results[:, rows], outside[rows] = self._of_rows(
                    rows, *part, int(degree), number
                )
        return results, outside

    def _of_rows(
        self, rows: Ints, location: Floats, dispersion: Floats, degree: int, number: int
    ) -> tuple[Floats, Bools]:
        """Results for some rows of one degree."""
        # rows without a polynomial
        with np.errstate(divide="ignore", invalid="ignore"):
            per_unit = 1.0 / self.reach[:, rows, None]
            u = (location - self.centre[0, rows, None]) * per_unit[0]
            v = (dispersion - self.centre[1, rows, None]) * per_unit[1]
            outside = ~((np.abs(u) < 1.0) & (np.abs(v) < 1.0))
            of_u = _powers(u, degree)
            of_v = _powers(v, degree)
            terms = self.coefficients[rows, : degree + 1, : degree + 1]
            by_u = terms @ of_v  # coefficients of the powers of u
            results = np.empty((number, *location.shape))
            np.einsum("rkd,rkd->rd", of_u, by_u, out=results[0])
            if number > 1:
                rising = np.arange(1, degree + 1)
                slope_by_u = by_u[:, 1:] * rising[:, None]
                slope_by_v = (terms[:, :, 1:] * rising) @ of_v[:, :-1]
                np.einsum("rkd,rkd->rd", of_u[:, :-1], slope_by_u, out=results[1])
                np.einsum("rkd,rkd->rd", of_u, slope_by_v, out=results[2])
                results[1:] *= per_unit
        return results, outside


def _powers(x: Floats, degree: int) -> Floats:
    """Powers of x (rows, draws) up to a degree, (rows, degree + 1, draws)."""
    powers = np.empty((len(x), degree + 1, x.shape[1]))
    powers[:, 0] = 1.0
    for k in range(degree):
        np.multiply(powers[:, k], x, out=powers[:, k + 1])
    return powers


def make_surrogates(
    data: RowSums,
    low: Floats,
    high: Floats,
    allowed: float = _ERROR,
    degrees: tuple[int, ...] = _DEGREES,
) -> Surrogates:
    """Polynomials over boxes (2, rows) of the first of `degrees` whose error is allowed."""
    centre = 0.5 * (low + high)
    reach = 0.5 * (high - low)
    number = reach.shape[1]
    most = (degrees[-1] // _POWERS_AT_ONCE + 1) * _POWERS_AT_ONCE
    coefficients = np.zeros((number, most, most))
    degree = np.zeros(number, dtype=np.int64)
    rows = np.arange(number)
    for tried in degrees:
        terms, error = _fit_polynomials(
            data, centre[:, rows], reach[:, rows], rows, tried
        )
        # false where it is not a number
        accurate = error <= allowed / np.sqrt(number)
        coefficients[rows, : tried + 1, : tried + 1] = terms
        degree[rows] = tried
        rows = rows[~accurate]
        if not len(rows):
            break
    reach[:, rows] = 0.0
    return Surrogates(centre, reach, coefficients, degree)


def _fit_polynomials(
    data: RowSums, centre: Floats, reach: Floats, rows: Ints, degree: int
) -> Pair:
    """Coefficients (rows, i, j) of polynomials, and their largest errors at random points."""

    def exact(u: Floats, v: Floats) -> Floats:
        m = centre[0] + u[:, None] * reach[0]
        c = centre[1] + v[:, None] * reach[1]
        return data.values(m, c, rows)

    node = np.cos(np.pi * (np.arange(degree + 1) + 0.5) / (degree + 1))
    to_powers = np.linalg.inv(np.vander(node, increasing=True))
    u, v = (x.ravel() for x in np.meshgrid(node, node, indexing="ij"))
    values = exact(u, v).reshape(len(node), len(node), -1)
    # where values are not finite, the error is NaN
    with np.errstate(invalid="ignore"):
        terms = np.einsum("iu,jv,uvb->bij", to_powers, to_powers, values, optimize=True)
    u, v = np.random.default_rng(0).uniform(-1.0, 1.0, (2, _TESTS))
    powers = (x[:, None] ** np.arange(degree + 1) for x in (u, v))
    near = np.einsum("ti,tj,bij->tb", *powers, terms, optimize=True)
    return terms, np.abs(near - exact(u, v)).max(axis=0)


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

    def gap(self, rows: Floats) -> Floats | float:
        """Excess of the weights' log density over the bound's."""
        return self.weights(rows) - self.bound(rows)[0] if self.fresh else 0.0


class Likelihood(NamedTuple):
    """A log likelihood as a function of predictors, each (rows, draws)."""

    sums: Callable[..., Floats]  # (draws,), over all rows
    # the same, and slopes in each of the predictors
    sums_and_slopes: Callable[..., tuple[Floats, ...]]


def near_densities(built: Problem, rows: Likelihood | None = None) -> Densities:
    """The log density to about 1e-3 nats, with other rows of the likelihood if they are given."""
    space = built.space
    rows = rows or rows_of_likelihood(built)
    chunk = max(10, min(CHUNK, _MOST_VALUES // len(built.score)))
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
    if built.mixture:
        cells = built.mixture.cells
        return Likelihood(cells.sums, cells.sums_and_slopes)
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
    near = NearRows(data, make_surrogates(data, low, high))
    return Likelihood(near.sums, near.sums_and_slopes)


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

    def values_and_slopes(self, location: Floats, dispersion: Floats) -> Pair:
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
        outside: Bools,
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
        return self.values(location, dispersion).sum(axis=0)

    def sums_and_slopes(self, location: Floats, dispersion: Floats) -> Triple:
        """Sums (draws,) over all rows at both parameters (rows, draws), and slopes in these."""
        value, slopes = self.values_and_slopes(location, dispersion)
        return value.sum(axis=0), slopes[0], slopes[1]
