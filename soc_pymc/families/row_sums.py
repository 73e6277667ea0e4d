"""Sums of rows of items, and the log marginal of a row from them.

A row is a set of items with one prior, such as a bin. Its location and dispersion are the log mean
and log cv2 of a Gamma prior, or the mean and log variance of a Normal one. Each family writes the
log marginal once, in operators and functions that NumPy and PyTensor share: NumPy computes values
and their differences, PyTensor differentiates and samples.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from .._lib.arrays import Floats, Ints
from .._lib.errors import FitError

Columns = Mapping[str, NDArray[Any]]

Powers = Mapping[Any, NDArray[Any]]
"""Sums over items of y^a x^b by (a, b): y the outcome, x the exposure or squared noise sd.

Sums of y^a x^b (x - y)^c with c > 0 are there by (a, b, c).
"""

MEAN_ONLY = (
    "one trial per item shows the mean of theta given the score, and nothing of its variance; fit "
    "soc.Beta() by soc.VI() or soc.NUTS() for the curve of the mean"
)
_AT_ONCE = 1 << 17  # numbers in one array of draws x rows x cells: 1 MB
_DISPERSION_SLOPE, _DISPERSION_WIGGLE = (
    0.5,
    0.3,
)  # sd per sd of the position, and in the curve's unit
_STEP = 4e-3  # step of differences, in units of both parameters
# where values give all derivatives up to the second, in steps
_AROUND = ((0, 0), (1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, -1))


class Weak(NamedTuple):
    """Default weak priors of a curve."""

    level: tuple[float, float]  # mean and sd at the average position
    # the same; of the first curve per unit of log or logit score, or per sd on other axes, and of
    # the second per sd of the position
    slope: tuple[float, float]
    unit: float = 1.0  # unit of the curve's scale; scales of terms are multiples
    wiggle: float = 0.5  # scale of the departure from a straight line, in this unit


def weak_dispersion(level: float, sd: float) -> Weak:
    """Weak prior of the second curve, whose level has this mean and standard deviation.

    Few items say nearly nothing of how the variance changes, and if it could do anything, an item
    with a single event would get a posterior that is several times too wide.
    """
    return Weak((level, sd), (0.0, _DISPERSION_SLOPE), 1.0, _DISPERSION_WIGGLE)


class Expansion(NamedTuple):
    """Log marginals of rows and their derivatives in both parameters, each (rows,)."""

    value: Floats
    slopes: tuple[Floats, Floats]
    by_first: Floats  # second derivatives: in the first parameter,
    mixed: Floats
    by_second: Floats


class RowSums(ABC):
    """Data of rows; subclasses are frozen dataclasses of arrays.

    A table's cells are stored one row after the other, with offsets (rows + 1,); every other array
    has one number a row.
    """

    tables: ClassVar[Mapping[str, tuple[str, ...]]]  # columns of each table, by its offsets' field
    most_spread: ClassVar[float] = np.inf  # largest spread of items within a row
    margins: ClassVar[tuple[str, ...]]  # tables of cells for rows without classes of sizes
    size_cell: ClassVar[str]  # column of joint cells with an item's size
    most: ClassVar[tuple[float, float]]  # largest parameters that cells can resolve
    farthest: ClassVar[tuple[float, float]]  # largest step of the curves in Fisher scoring
    reach: ClassVar[float]  # largest Newton step of the first parameter in a row
    draw_row: ClassVar[Any]  # compiled: the total of one row at random

    if TYPE_CHECKING:
        total: Any  # (rows,): observed total of each row
        spread: Any  # (rows,): variance of the items' locations around the row's

    @staticmethod
    @abstractmethod
    def log_marginal(xp: Any, location: Any, dispersion: Any, *cells: Any) -> Any:
        """Log marginal of rows (..., k) at their parameters (..., k).

        `cells` are those of `cells`, with one more axis for tables; `xp` is ``numpy`` or
        ``pytensor.tensor``.
        """

    def cells(self, rows: Ints | None = None) -> tuple[NDArray[Any], ...]:
        """All arrays of some rows; those of tables are padded with zeros to (k, most cells)."""
        rows = np.arange(len(self.total)) if rows is None else rows
        padded = {}
        for offsets, columns in self.tables.items():
            start = getattr(self, offsets)
            number = np.diff(start)[rows]
            step = np.arange(number.max(initial=0))
            inside = step < number[:, None]
            place = (start[rows][:, None] + step)[inside]
            for name in columns:
                column = getattr(self, name)
                padded[name] = np.zeros((*inside.shape, *column.shape[1:]))
                padded[name][inside] = column[place]
        names = (field.name for field in fields(self))  # type: ignore[arg-type]
        return tuple(
            padded[name] if name in padded else getattr(self, name)[rows]
            for name in names
            if name not in self.tables
        )

    @property
    def number_of_cells(self) -> int:
        """Cells of the largest table."""
        return max(int(getattr(self, offsets)[-1]) for offsets in self.tables)

    @classmethod
    def axes(cls) -> tuple[int, ...]:
        """Number of the cells' table, from 1, for each of `cells`; 0 for one number a row."""
        number = {name: k for k, names in enumerate(cls.tables.values(), start=1) for name in names}
        names = [field.name for field in fields(cls)]  # type: ignore[arg-type]
        return tuple(number.get(name, 0) for name in names if name not in cls.tables)

    @cached_property
    def _every_part(self) -> list[tuple[Ints, int, tuple[NDArray[Any], ...]]]:
        """Parts of all rows, padded once."""
        return list(self._parts(np.arange(len(self.total))))

    def _parts(self, rows: Ints) -> Iterator[tuple[Ints, int, tuple[NDArray[Any], ...]]]:
        """Places in `rows` that have about the same number of cells, draws to take, and cells.

        Together they make arrays of at most `_AT_ONCE` numbers, unless a single row makes more.
        """
        sizes = sum(np.diff(getattr(self, offsets))[rows] for offsets in self.tables)
        octave = np.frexp(np.asarray(sizes, dtype=float))[1]
        for size in np.unique(octave):
            places, most = np.flatnonzero(octave == size), 1 << int(size)
            step = max(1, _AT_ONCE // most)
            for begin in range(0, len(places), step):
                part = places[begin : begin + step]
                draws = max(1, _AT_ONCE // (most * len(part)))
                yield part, draws, self.cells(rows[part])

    def evaluate(
        self,
        function: Callable[..., Floats],
        location: Floats,
        dispersion: Floats,
        rows: Ints | None = None,
    ) -> Floats:
        """Values (draws, k) of a function of both parameters (draws, k) and the rows' cells."""
        result = np.empty(location.shape)
        parts = self._every_part if rows is None else self._parts(rows)
        for part, draws, cells in parts:
            for begin in range(0, len(location), draws):
                chunk = slice(begin, begin + draws)
                result[chunk, part] = function(
                    location[chunk, part], dispersion[chunk, part], *cells
                )
        return result

    def values(self, location: Floats, dispersion: Floats, rows: Ints | None = None) -> Floats:
        """Log marginal of some rows, by default all, at parameters (draws, k)."""

        def function(*inputs: Any) -> Floats:
            return self.log_marginal(np, *inputs)

        with np.errstate(all="ignore"):
            return self.evaluate(function, location, dispersion, rows)

    def value_and_gradient(
        self, location: Floats, dispersion: Floats, rows: Ints | None = None
    ) -> Floats:
        """Log marginals of rows, by default all, and their slopes: (3, draws, k).

        Slopes are central differences of values, with relative errors of about 1e-5.
        """
        draws = len(location)
        step = _STEP * self.unit(dispersion, rows)
        locations = np.concatenate([location, location + step, location - step, location, location])
        dispersions = np.concatenate([dispersion] * 3 + [dispersion + _STEP, dispersion - _STEP])
        value, *around = self.values(locations, dispersions, rows).reshape(5, draws, -1)
        with np.errstate(invalid="ignore"):  # where a draw is too far for a finite value
            by_first, by_second = around[0] - around[1], around[2] - around[3]
        return np.stack([value, by_first / (2.0 * step), by_second / (2.0 * _STEP)])

    def expansion(self, location: Floats, dispersion: Floats) -> "Expansion":
        """Log marginals of all rows with first and second derivatives, at parameters (rows,)."""
        unit = self.unit(dispersion)
        u, v = (_STEP * np.array(shifts)[:, None] for shifts in zip(*_AROUND, strict=True))
        middle, ahead, behind, up, down, corner, neither = self.values(
            location + unit * u, dispersion + v
        )
        twice = ahead + behind, up + down
        mixed = corner + neither - twice[0] - twice[1] + 2.0 * middle
        return Expansion(
            middle,
            ((ahead - behind) / (2.0 * _STEP * unit), (up - down) / (2.0 * _STEP)),
            (twice[0] - 2.0 * middle) / (_STEP * unit) ** 2,
            mixed / (2.0 * _STEP**2 * unit),
            (twice[1] - 2.0 * middle) / _STEP**2,
        )

    def draw(self, location: Floats, dispersion: Floats, rng: np.random.Generator) -> Floats:
        """Replicates of the observed totals of all rows at given curves (..., rows)."""
        rows = np.arange(len(self.total))
        drawn = np.empty((len(rows), location[..., 0].size))
        for b in rows:
            cells = [x[0] for x in self.cells(rows[b : b + 1])]
            pairs = zip(location[..., b].ravel(), dispersion[..., b].ravel(), strict=True)
            drawn[b] = [self.draw_row(rng, *pair, *cells) for pair in pairs]
        return drawn.T.reshape(location.shape)

    def with_spread(self, spread: Floats) -> Self:
        """Return these rows with other spreads."""
        return replace(self, spread=spread)  # type: ignore[type-var]

    def unit(self, dispersion: Floats, rows: Ints | None = None) -> Floats:
        """Scale of the first parameter of rows, which sets the steps of differences."""
        return np.ones_like(dispersion)

    @staticmethod  # noqa: B027
    def check(part: Columns) -> None:
        """Refuse statistics that cannot be fitted."""

    @classmethod
    @abstractmethod
    def of(cls, rows: int, cells: Mapping[str, Columns]) -> "RowSums":
        """Build from tables of cells with a column ``row``: joint cells, or all margins."""

    @staticmethod
    @abstractmethod
    def weak(sums: Mapping[str, float], scale: str, centre: float) -> tuple[Weak, Weak]:
        """Weak priors of both curves, from sums over all items and the mean's axis."""

    @staticmethod
    def events(sums: Mapping[str, float]) -> float:
        """Number of outcomes that say something of theta, from sums over all items."""
        return sums["n"]

    @abstractmethod
    def information(self, location: Floats, dispersion: Floats) -> tuple[Floats, Floats]:
        """Fisher information of the first parameter, and a lower bound of the second's, by row."""

    @abstractmethod
    def level(self) -> tuple[float, float]:
        """Starting levels of both curves."""

    @property
    def can_fit(self) -> NDArray[np.bool_]:
        """Rows whose likelihood has a maximum; by default all."""
        return np.ones(len(self.total), dtype=bool)

    @property
    def tells_dispersion(self) -> NDArray[np.bool_]:
        """Rows that say something of the second parameter: all, unless a family says otherwise."""
        return np.ones(len(self.total), dtype=bool)

    @property
    def informs_variance(self) -> bool:
        """True if any row says something of the variance."""
        return bool(self.tells_dispersion.any())

    def refuse_mean_only(self, what: str) -> None:
        """Refuse data that say nothing of the variance."""
        if not self.informs_variance:
            raise FitError(f"{what} needs the variance of theta: {MEAN_ONLY}")


def row_of(start: Ints) -> Ints:
    """Row of each cell of a table, from its offsets."""
    return np.repeat(np.arange(len(start) - 1), np.diff(start))


def by_row(rows: int, row_of_cell: Ints, *columns: Floats) -> tuple[Ints, list[Floats]]:
    """Offsets (rows + 1,), and columns in the order of rows."""
    order = np.argsort(row_of_cell, kind="stable")
    start = np.concatenate([[0], np.cumsum(np.bincount(row_of_cell, minlength=rows))])
    return start.astype(np.int64), [np.ascontiguousarray(c[order], dtype=float) for c in columns]
