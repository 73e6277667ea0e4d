"""Sums of rows of items, and the log marginal of a row from them.

A row is a set of items with one prior, such as a bin. Its first and second parameters are log mean
and log cv2 of a Gamma prior, or mean and log variance of a Normal one.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import fields, replace
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
_CHUNK = 64  # rows per thread and step


class Weak(NamedTuple):
    """Default weak priors of a curve."""

    level: tuple[float, float]  # mean and sd at the average position
    slope: tuple[float, float]  # the same, per unit of log score or per sd on other axes
    unit: float = 1.0  # unit of the curve's scale; scales of terms are multiples


class RowSums(ABC):
    """Data of rows; subclasses are frozen dataclasses whose fields are the kernels' arrays."""

    kernel: ClassVar[str]  # name in the model's `KERNELS`
    near: ClassVar[str | None] = None  # kernel in which polynomials stand for many cells
    fill_near: ClassVar[Any] = None  # that kernel, compiled
    signature: ClassVar[str]  # core dimensions of the arrays
    most_spread: ClassVar[float] = np.inf  # of items within a row
    margins: ClassVar[tuple[str, ...]]  # tables of cells for rows without classes of sizes
    size_cell: ClassVar[str]  # column of joint cells with an item's size
    most: ClassVar[tuple[float, float]]  # largest parameters that cells can resolve
    farthest: ClassVar[tuple[float, float]]  # largest step of the curves in Fisher scoring
    reach: ClassVar[float]  # largest Newton step of the first parameter in a row

    fill_rows: ClassVar[Any]  # compiled: fills (3, draws, k)
    # compiled: the total of one row, and of all rows for several pairs of curves, at random
    draw_row: ClassVar[Any]
    fill_draws: ClassVar[Any]

    if TYPE_CHECKING:
        start: Any  # (rows + 1,): offsets of the rows' points or cells
        total: Any  # (rows,): observed total of each row
        spread: Any  # (rows,): variance of the items' locations around the row's

    @property
    def arrays(self) -> tuple[NDArray[np.generic], ...]:
        """All arrays in the order of the kernels."""
        return tuple(getattr(self, f.name) for f in fields(self))  # type: ignore[arg-type]

    @property
    def _row_of(self) -> Ints:
        """Row of each point or cell."""
        return np.repeat(np.arange(len(self.total)), np.diff(self.start))

    def with_spread(self, spread: Floats) -> Self:
        """The same rows with other spreads."""
        return replace(self, spread=spread)  # type: ignore[type-var]

    def value_and_gradient(self, first: Floats, second: Floats, rows: Ints) -> Floats:
        """Log marginal of rows and its derivatives in both parameters: (3, draws, k).

        Parameters have shape (draws, k); rows (k,) or (m, k), where draw s uses line s modulo m.
        """
        rows = np.atleast_2d(rows).astype(np.int64, copy=False)  # one type, so one compilation
        out = np.empty((3, *first.shape))
        curves = np.ascontiguousarray(first), np.ascontiguousarray(second)
        self.fill_rows(*curves, rows, out, *self.arrays)
        return out

    def likelihood(self, first: Floats, second: Floats) -> Floats:
        """As `value_and_gradient`, for all rows at one pair of curves: (3, rows)."""
        return self.value_and_gradient(first[None], second[None], np.arange(len(first)))[:, 0]

    @classmethod
    @abstractmethod
    def smallest(cls) -> Self:
        """One row of one item: data to compile kernels with."""

    @staticmethod  # noqa: B027
    def check(part: Columns) -> None:
        """Refuse statistics that cannot be fitted."""

    @classmethod
    @abstractmethod
    def of(cls, rows: int, cells: Mapping[str, Columns]) -> "RowSums":
        """From tables of cells with a column ``row``: joint cells, or all margins."""

    @staticmethod
    @abstractmethod
    def weak(sums: Mapping[str, float], scale: str, centre: float) -> tuple[Weak, Weak]:
        """Weak priors of both curves, from sums over all items and the mean's axis."""

    @abstractmethod
    def information(self, first: Floats, second: Floats) -> tuple[Floats, Floats]:
        """Fisher information of the first parameter, and a lower bound of the second's, by row."""

    @abstractmethod
    def level(self) -> tuple[float, float]:
        """Starting levels of both curves."""

    def draw(self, first: Floats, second: Floats, rng: np.random.Generator) -> Floats:
        """Replicates of the observed totals of all rows at given curves (..., rows)."""
        curves = [np.ascontiguousarray(np.atleast_2d(curve)) for curve in (first, second)]
        out = np.empty(curves[0].shape)
        self.fill_draws(rng, *curves, out, *self.arrays)
        return out.reshape(first.shape)

    @property
    def can_fit(self) -> NDArray[np.bool_]:
        """Rows whose likelihood has a maximum; by default all."""
        return np.ones(len(self.total), dtype=bool)

    @property
    def tells_second(self) -> NDArray[np.bool_]:
        """Rows that say something of the second parameter: all, unless a family says otherwise."""
        return np.ones(len(self.total), dtype=bool)

    @property
    def informs_variance(self) -> bool:
        """Whether any row says something of the variance."""
        return bool(self.tells_second.any())

    def refuse_mean_only(self, what: str) -> None:
        """Refuse data that say nothing of the variance."""
        if not self.informs_variance:
            raise FitError(f"{what} needs the variance of theta: {MEAN_ONLY}")


def by_row(rows: int, row_of: Ints, *columns: Floats) -> tuple[Ints, list[Floats]]:
    """Offsets (rows + 1,), and columns in the order of rows."""
    order = np.argsort(row_of, kind="stable")
    start = np.concatenate([[0], np.cumsum(np.bincount(row_of, minlength=rows))])
    return start.astype(np.int64), [np.ascontiguousarray(c[order], dtype=float) for c in columns]


class Cells(NamedTuple):
    """Cells of one table: ranges of outcomes or sizes within bins."""

    bin: Ints
    low: Floats
    width: Floats
    sums: Powers


def add_by_bin(cells: Cells, values: Any, bins: int) -> Floats:
    """Sums over the cells of each bin, (bins,)."""
    return np.asarray(np.bincount(cells.bin, weights=values, minlength=bins), dtype=float)
