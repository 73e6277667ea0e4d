"""Sums of rows of items, and the log marginal of a row from them.

A row is a set of items with one prior, such as a bin: both curves, location and dispersion. Each
family writes the log marginal once, in functions that NumPy and PyTensor share.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import cached_property, partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
import pandas as pd
from numpy.random import Generator
from numpy.typing import NDArray
from scipy import special

from .._lib.arguments import FitError
from .._lib.arrays import Bools, Columns, Floats, Ints, Pair, Tables, Triple
from .scales import EXACT_COUNTS
from .special_functions import stirling_series

# an array, or a variable of PyTensor: log marginals use operators and functions of both
Tensor = Any
# arrays of rows, as of `RowSums.cells`, or variables of PyTensor
Cells = Sequence[Any]
# row, value and number of items of points that stand for items
Points = tuple[Ints, Floats, Floats]

MEAN_ONLY = (
    "one trial per item shows the mean of theta given the score, and nothing of its variance; fit "
    "soc.Beta() by soc.VI() or soc.NUTS() for the curve of the mean, whose band is "
    "soc.bands(soc.calibration_curves(fit)), or the estimator's predict_band"
)
_CELLS_AT_ONCE = 1 << 17  # numbers in one array of draws x rows x cells: 1 MB
_DISPERSION_SLOPE = 0.5  # sd per sd of the position
_DISPERSION_WIGGLE = 0.3  # in the curve's unit
_DIFFERENCE_STEP = 4e-3  # step of differences, in units of both parameters
# lattice of values: nodes an octave, and degree of the polynomials between them
_NODES = 3
_DEGREE = 9
# relative distance of points that are one
_SAME = 1e-14
# steps at which values give all derivatives up to the second
_AROUND = ((0, 0), (1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, -1))


class Weak(NamedTuple):
    """Default weak priors of a curve."""

    level: tuple[float, float]  # mean and sd at the average position
    # the same; of the location per unit of log or logit score, or per sd on other axes, and of the
    # dispersion per sd of the position
    slope: tuple[float, float]
    # unit of the curve's scale; scales of terms are multiples
    unit: float = 1.0
    # scale of the departure from a straight line, in this unit
    wiggle: float = 0.5


def weak_dispersion(level: float, sd: float) -> Weak:
    """Weak prior of the dispersion, whose level has this mean and standard deviation."""
    # few items say nearly nothing of how the variance changes, and if it could do anything, an item
    # with a single event would get a posterior that is several times too wide
    return Weak((level, sd), (0.0, _DISPERSION_SLOPE), 1.0, _DISPERSION_WIGGLE)


class Expansion(NamedTuple):
    """Log marginals of rows and their derivatives in both parameters, each (rows,)."""

    value: Floats
    slopes: Pair
    by_location: Floats  # second derivatives
    mixed: Floats
    by_dispersion: Floats


def pooled(cells: Columns) -> Columns:
    """Cells of rows with those of equal outcomes and sizes added up."""
    keys = ["row", *(name for name in reversed(list(cells)) if name.endswith("cell"))]
    sums = [name for name in cells if name == "n" or name.startswith("sum_")]
    table = pd.DataFrame({name: cells[name] for name in (*keys, *sums)})
    added = table.groupby(keys, as_index=False).sum()
    return {name: added[name].to_numpy() for name in cells if name in added}


class Ragged(NamedTuple):
    """Columns of cells, one row after the other."""

    start: Ints  # (rows + 1,): offsets
    columns: tuple[Floats, ...]

    @property
    def row(self) -> Ints:
        """Row of each cell."""
        return np.repeat(np.arange(len(self.start) - 1), np.diff(self.start))

    def padded(self, rows: Ints) -> list[Floats]:
        """Columns of some rows, padded with zeros to (k, most cells)."""
        number = np.diff(self.start)[rows]
        step = np.arange(number.max(initial=0))
        inside = step < number[:, None]
        place = (self.start[rows][:, None] + step)[inside]
        padded = [
            np.zeros((*inside.shape, *column.shape[1:])) for column in self.columns
        ]
        for values, column in zip(padded, self.columns, strict=True):
            values[inside] = column[place]
        return padded


def by_row(rows: int, row_of_cell: Ints, *columns: Floats) -> Ragged:
    """Cells in the order of their rows."""
    order = np.argsort(row_of_cell, kind="stable")
    start = np.concatenate([[0], np.cumsum(np.bincount(row_of_cell, minlength=rows))])
    ordered = (np.ascontiguousarray(column[order], dtype=float) for column in columns)
    return Ragged(start.astype(np.int64), tuple(ordered))


class RowSums(ABC):
    """Data of rows: frozen dataclasses of cells and of arrays (rows,), with `spread` the last."""

    # why there is nothing to fit if the sum of sizes is 0
    nothing: ClassVar[str] = ""
    # scores on these scales are estimates of theta on the scale of the mean's curve
    natural_scales: ClassVar[tuple[str, ...]] = ("log",)
    # mean and sd of the dispersion's level: log cv2 is between 0.02 and 5 with probability 0.95
    dispersion_level: ClassVar[tuple[float, float]] = (float(np.log(0.3)), 1.4)
    # variance in a row, which second-order terms can describe
    most_spread: ClassVar[float] = 1.0
    # largest parameters that cells can resolve
    most: ClassVar[tuple[float, float]] = (300.0, 60.0)
    # longest step of both curves in Fisher scoring
    farthest: ClassVar[tuple[float, float]] = (3.0, 3.0)
    # both curves have information in common
    coupled: ClassVar[bool] = False
    # longest Newton step of the location in a row
    reach: ClassVar[float] = 1.0
    # draws at once, where these share what is computed
    shared_by: ClassVar[int] = 1

    if TYPE_CHECKING:
        total: Floats  # (rows,): observed total of each row
        # (rows,): variance of the items' locations around the row's
        spread: Floats

    @staticmethod
    @abstractmethod
    def widened(
        xp: ModuleType, location: Tensor, dispersion: Tensor, spread: Tensor
    ) -> Pair:
        """Curves averaged over a variance `spread` of the location, to second order."""

    @staticmethod
    @abstractmethod
    def log_probability(xp: ModuleType, curves: Pair, cells: Cells) -> Tensor:
        """Log marginal of rows (..., k) whose items have the same parameters (..., k)."""

    @staticmethod
    @abstractmethod
    def draw_totals(rng: Generator, curves: Pair, cells: Cells) -> Floats:
        """Random totals (..., k) of rows whose items have the same parameters (..., k)."""

    @classmethod
    @abstractmethod
    def of(cls, rows: int, cells: Tables) -> "RowSums":
        """Build from tables of cells with a column ``row``: joint cells, or all margins."""

    @classmethod
    def made_of(cls, parts: Mapping[str, Any]) -> "RowSums":
        """Build from the fields of rows, by name."""
        return cls(**parts)

    @staticmethod
    def felt(dispersion: Floats) -> Pair:
        """Dispersion on a scale on which log marginals bend evenly, and slopes; as it is."""
        return dispersion, np.ones_like(dispersion)

    @staticmethod
    def unfelt(felt: Floats) -> Floats:
        """Return the dispersion of `felt`."""
        return felt

    @abstractmethod
    def information(self, location: Floats, dispersion: Floats) -> Pair:
        """Fisher information of the location, and a lower bound of the dispersion's, by row."""

    def joint_information(self, location: Floats, dispersion: Floats) -> Triple:
        """`information`, and that between both curves, by row."""
        return *self.information(location, dispersion), np.zeros_like(location)

    @abstractmethod
    def level(self) -> tuple[float, float]:
        """Starting levels of both curves."""

    @classmethod
    def log_marginal(
        cls, xp: ModuleType, location: Tensor, dispersion: Tensor, *cells: Tensor
    ) -> Tensor:
        """Log marginal of rows (..., k) from `cells`; `xp` is ``numpy`` or ``pytensor.tensor``."""
        *others, spread = cells
        curves = cls.widened(xp, location, dispersion, spread)
        return cls.log_probability(xp, curves, others)

    @classmethod
    def replicates(
        cls, rng: Generator, location: Floats, dispersion: Floats, *cells: Floats
    ) -> Floats:
        """Random totals (..., k) of rows from `cells`, given both curves (..., k)."""
        *others, spread = cells
        with np.errstate(all="ignore"):
            curves = cls.widened(np, location, dispersion, spread)
            return cls.draw_totals(rng, curves, others)

    def cells(self, rows: Ints | None = None) -> tuple[NDArray[Any], ...]:
        """All arrays of some rows; columns of cells are padded with zeros to (k, most cells)."""
        rows = np.arange(len(self.total)) if rows is None else rows
        arrays: list[NDArray[Any]] = []
        for values in self._fields:
            is_table = isinstance(values, Ragged)
            arrays += values.padded(rows) if is_table else [values[rows]]
        return tuple(arrays)

    @cached_property
    def _fields(self) -> list[Any]:
        return [getattr(self, field.name) for field in fields(self)]  # type: ignore[arg-type]

    @property
    def nodes(self) -> int:
        """Numbers that a cell needs for a draw."""
        return 1

    @property
    def _starts(self) -> list[Ints]:
        """Offsets of the rows in each table of cells."""
        return [cells.start for cells in self._fields if isinstance(cells, Ragged)]

    @property
    def number_of_cells(self) -> int:
        """Cells of the largest table."""
        return max(int(start[-1]) for start in self._starts)

    @cached_property
    def _every_part(self) -> list[tuple[Ints, int, tuple[NDArray[Any], ...]]]:
        """Parts of all rows, padded once."""
        return list(self._parts(np.arange(len(self.total))))

    def _parts(
        self, rows: Ints
    ) -> Iterator[tuple[Ints, int, tuple[NDArray[Any], ...]]]:
        """Places in `rows` with about as many cells, draws to take at once, and padded cells."""
        sizes = sum(np.diff(start)[rows] for start in self._starts) * self.nodes
        octave = np.frexp(np.asarray(sizes, dtype=float))[1]
        for size in np.unique(octave):
            places = np.flatnonzero(octave == size)
            most = 1 << int(size)
            step = max(1, _CELLS_AT_ONCE // (most * self.shared_by))
            for begin in range(0, len(places), step):
                part = places[begin : begin + step]
                draws = max(1, _CELLS_AT_ONCE // (most * len(part)))
                yield part, draws, self.cells(rows[part])

    def values(
        self, location: Floats, dispersion: Floats, rows: Ints | None = None
    ) -> Floats:
        """Log marginal of some rows, by default all, at parameters (draws, k)."""
        log_marginal = partial(self.log_marginal, np)
        return self._in_parts(log_marginal, location, dispersion, rows)

    def draw(self, location: Floats, dispersion: Floats, rng: Generator) -> Floats:
        """Replicates of the observed totals of all rows at given curves (draws, rows)."""
        return self._in_parts(partial(self.replicates, rng), location, dispersion)

    def _in_parts(
        self,
        function: Callable[..., Floats],
        location: Floats,
        dispersion: Floats,
        rows: Ints | None = None,
    ) -> Floats:
        """Values (draws, k) of a function of both curves and padded cells, for some rows or all."""
        result = np.empty(location.shape)
        parts = self._every_part if rows is None else self._parts(rows)
        for part, draws, cells in parts:
            for begin in range(0, len(location), draws):
                chunk = slice(begin, begin + draws)
                curves = location[chunk, part], dispersion[chunk, part]
                with np.errstate(all="ignore"):
                    result[chunk, part] = function(*curves, *cells)
        return result

    def _around(
        self,
        number: int,
        location: Floats,
        dispersion: Floats,
        rows: Ints | None = None,
    ) -> tuple[Floats, Floats, Pair]:
        """Values (number, draws, k) at the first of `_AROUND`, steps and slopes of the location."""
        u, v = np.array(_AROUND[:number]).T[:, :, None, None]
        step = _DIFFERENCE_STEP * self.unit(dispersion, rows)
        shape = -1, location.shape[-1]
        locations = (location + u * step).reshape(shape)
        dispersions = (dispersion + v * _DIFFERENCE_STEP).reshape(shape)
        values = self.values(locations, dispersions, rows)
        values = values.reshape(number, *location.shape)
        with np.errstate(invalid="ignore"):
            # a draw may be too far for a finite value
            by_location = (values[1] - values[2]) / (2.0 * step)
            by_dispersion = (values[3] - values[4]) / (2.0 * _DIFFERENCE_STEP)
        return values, step, (by_location, by_dispersion)

    def value_and_gradient(
        self, location: Floats, dispersion: Floats, rows: Ints | None = None
    ) -> Floats:
        """Log marginals of rows, by default all, and slopes by differences: (3, draws, k)."""
        values, _, slopes = self._around(5, location, dispersion, rows)
        return np.stack([values[0], *slopes])

    def expansion(self, location: Floats, dispersion: Floats) -> "Expansion":
        """Log marginals of all rows with first and second derivatives, at parameters (rows,)."""
        values, step, slopes = self._around(7, location[None], dispersion[None])
        middle, ahead, behind, up, down, corner, opposite = values[:, 0]
        across = ahead + behind
        along = up + down
        mixed = corner + opposite - across - along + 2.0 * middle
        return Expansion(
            value=middle,
            slopes=(slopes[0][0], slopes[1][0]),
            by_location=(across - 2.0 * middle) / step[0] ** 2,
            mixed=mixed / (2.0 * _DIFFERENCE_STEP * step[0]),
            by_dispersion=(along - 2.0 * middle) / _DIFFERENCE_STEP**2,
        )

    def with_spread(self, spread: Floats) -> Self:
        """Return these rows with other spreads."""
        return replace(self, spread=spread)  # type: ignore[type-var]

    def unit(self, dispersion: Floats, rows: Ints | None = None) -> Floats:
        """Scale of the location of rows, which sets the steps of differences."""
        return np.ones_like(dispersion)

    @classmethod
    def check(cls, part: Columns) -> None:
        """Refuse statistics without anything to fit."""
        if cls.nothing and not float(part["sum_N"].sum()) > 0:
            raise FitError(
                f"{cls.nothing}: nothing was observed, so nothing can be fitted"
            )

    def weak(
        self, sums: Mapping[str, float], scale: str, centre: float
    ) -> tuple[Weak, Weak]:
        """Weak priors of both curves, from sums over all items and the mean's axis."""
        location = Weak((0.0, 10.0), (0.0, 2.0))
        if scale in self.natural_scales:
            location = Weak((centre, 5.0), (1.0, 1.0))
        return location, weak_dispersion(*self.dispersion_level)

    @staticmethod
    def events(sums: Mapping[str, float]) -> float:
        """Number of outcomes that say something of theta, from sums over all items."""
        return sums["n"]

    @property
    def can_fit(self) -> Bools:
        """Rows whose likelihood has a maximum; by default all."""
        return np.ones(len(self.total), dtype=bool)

    @property
    def informs_variance(self) -> bool:
        """True if any row says something of the variance of theta."""
        return True

    def refuse_mean_only(self, what: str) -> None:
        """Refuse data that say nothing of the variance."""
        if not self.informs_variance:
            raise FitError(f"{what} needs items of two trials or more: {MEAN_ONLY}")


# --- histograms of counts ------------------------------------------------------------------------


def rising(xp: ModuleType, cv2: Tensor, cells: Cells) -> Tensor:
    """Sums over items, by row (..., k), of log1p(j cv2) over j < y; columns are of `histogram`."""
    # below 32 from the number of items with y > j, from there on by Stirling's series
    step, over, excess, weight = cells
    cv2 = cv2[..., None]
    exact = over * xp.log1p(step * cv2)
    base = 1.0 / cv2 + EXACT_COUNTS
    log1p_x = xp.log1p(excess / base)
    tail = excess * xp.log1p(EXACT_COUNTS * cv2) + base * (log1p_x - excess / base)
    tail = tail + (excess - 0.5) * log1p_x
    tail = tail + stirling_series(base + excess) - stirling_series(base)
    return exact.sum(axis=-1) + (weight * tail).sum(axis=-1)


def two_points(
    row_of: Ints, weight: Floats, sums: Floats, squares: Floats, cubes: Floats
) -> Points:
    """Points (row, value, weight): one for a cell of a single value, else a Gauss rule of two."""
    mean = sums / weight
    variance = squares / weight - mean * mean
    # sums of squares carry rounding of this relative size: below it the cell is a single value
    divided = variance > 1e-13 * mean * mean
    mean_w = mean[divided]
    variance = variance[divided]
    sd = np.sqrt(variance)
    square = mean_w * mean_w
    third = cubes[divided] / weight[divided] - mean_w * (3.0 * variance + square)
    # the third moment of a narrow cell is rounding noise; points stay in the cell
    lean = np.where(variance > 1e-10 * square, third / variance, 0.0)
    lean = np.clip(lean, -mean_w / 16.0, mean_w / 16.0) / (2.0 * sd)
    reach = np.sqrt(1.0 + lean * lean)
    upper = 0.5 * (1.0 - lean / reach)
    low, high = (mean_w + sd * (lean + sign * reach) for sign in (-1.0, 1.0))
    value = mean.copy()
    share = weight.astype(float)
    value[divided] = np.maximum(low, 0.0)
    share[divided] *= 1.0 - upper
    return (
        np.concatenate([row_of, row_of[divided]]),
        np.concatenate([value, high]),
        np.concatenate([share, weight[divided] * upper]),
    )


def histogram(
    rows: int, cells: Sequence[NDArray[Any]]
) -> tuple[tuple[Ragged, Ragged], Floats]:
    """Columns for `rising` from cells (row, n, sums of y, y^2, y^3), and sums of log y! by row.

    They are numbers j below 32 with the items of more than j, and others less 32 with their items.
    """
    point_row, y, weight = two_points(*cells)
    # weighted sums of one count are its multiples except for rounding
    nearest = np.rint(y)
    y = np.where(np.abs(y - nearest) <= 1e-12 * nearest, nearest, y)
    above = np.zeros((rows, EXACT_COUNTS))
    for j in range(EXACT_COUNTS):
        over = y > j
        above[:, j] = np.bincount(point_row[over], weights=weight[over], minlength=rows)
    row, step = np.nonzero(above)
    steps = by_row(rows, row, step.astype(float), above[row, step])
    # the lower of two points may fall just below its cell
    beyond = y > EXACT_COUNTS - 1
    wide = by_row(rows, point_row[beyond], y[beyond] - EXACT_COUNTS, weight[beyond])
    log_factorials = np.bincount(point_row, weight * special.gammaln(y + 1.0), rows)
    return (steps, wide), log_factorials


def weighted_points(
    rows: int,
    cells: Columns,
    names: Sequence[str],
    weighted: Sequence[str] = (),
    smooth: bool = False,
) -> Ragged:
    """Distinct values, with their items and any other weights, from sums of three powers.

    `names` are those of the items and of values; those `weighted` have the weights' in place. Rows
    of many points have fewer where functions are `smooth` as in `_on_lattice`.
    """
    parts = []
    for sums in filter(None, (names, weighted)):
        row, weight, *powers = columns(cells, sums)
        occupied = weight > 0
        cell_sums = (values[occupied] for values in (row, weight, *powers))
        parts.append(two_points(*cell_sums))
    if smooth:
        values = np.concatenate([value for _, value, _ in parts])
        position = np.floor(_NODES * np.log2(values))
        low = int(position.min())
        span = int(position.max()) - low + _DEGREE + 1
        if len(values) > rows * span:
            return _on_lattice(rows, parts, low - _DEGREE // 2, span)
    arrays = []
    for column, (place, value, share) in enumerate(parts):
        shares = np.zeros((len(parts), len(value)))
        shares[column] = share
        arrays.append(np.vstack([place, value, shares]))
    points = np.hstack(arrays)
    points = points[:, np.lexsort(points[1::-1])]
    place, value, *_ = points
    # exact cells share their points, which differ by rounding
    apart = np.diff(value, prepend=-1.0) > _SAME * value
    starts = np.flatnonzero(apart | (np.diff(place, prepend=-1.0) > 0))
    shares = np.add.reduceat(points[2:], starts, axis=1)
    start = np.searchsorted(place[starts], np.arange(rows + 1))
    return Ragged(start, (value[starts], *shares))


def _on_lattice(rows: int, parts: Sequence[Points], low: int, span: int) -> Ragged:
    """Nodes from `low` on, `span` in a row, for parts: rows, values > 0 and their weights.

    Each weight is shared out over nodes as in Lagrange's interpolation of functions of log value:
    of log1p(y / b) with an error below 1e-9. Shares may be below 0, so such weights may only enter
    sums.
    """
    step = np.arange(_DEGREE + 1)
    factor = special.binom(_DEGREE, step) * (-1.0) ** step / special.factorial(_DEGREE)
    sums = np.zeros((len(parts), rows * span))
    for column, (row, value, share) in enumerate(parts):
        position = _NODES * np.log2(value)
        node = np.floor(position)
        place = position - node + _DEGREE // 2
        # no point is at a node
        place[place == _DEGREE // 2] += 1e-15
        first = (row * span + (node - _DEGREE // 2 - low)).astype(np.int64)
        shared = share.copy()
        for k in step:
            shared *= k - place
        for k in step:
            part = np.bincount(first + k, factor[k] * shared / (k - place), rows * span)
            sums[column] += part
    known = np.flatnonzero(sums.any(axis=0))
    row, node = np.divmod(known, span)
    return by_row(rows, row, np.exp2((low + node) / _NODES), *sums[:, known])


def value_moments(cells: Columns) -> Pair:
    """Mean and variance of the values in each cell; one below the rounding of the sums is 0."""
    n = cells["n"]
    mean = cells["sum_y"] / n
    square = cells["sum_y2"] / n
    variance = square - mean**2
    varies = (n > 1) & (variance > 1e-12 * square)
    return mean, np.where(varies, variance, 0.0)


def columns(table: Columns, names: Sequence[str]) -> tuple[NDArray[Any], ...]:
    """Row of each cell, and its sums as real numbers."""
    return (table["row"], *(table[name].astype(float) for name in names))
