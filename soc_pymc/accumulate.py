"""Sums over bins and cells by compiled kernels, batch by batch, in memory that does not grow.

A table of sums is an open-addressing hash table whose rows hold a packed key, whole numbers and
real sums side by side, so that one item touches one or two cache lines of each table.
"""

import math
from collections.abc import Sequence
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from .binning import (
    EXACT_COUNTS,
    FIRST_GRID,
    FOLD_MIX,
    FOLD_PRIME,
    FOLD_STEPS,
    SCRAMBLE,
    STEPS,
    ZERO_EXPOSURE,
    Grid,
    make_lookup,
)
from .cells import Columns, group
from .families.validity import LARGEST, is_valid

__all__ = [
    "COUNT",
    "EXPOSURE",
    "JOINT",
    "PART",
    "TABLES",
    "FirstLook",
    "Sums",
    "ends",
    "fold_of_items",
    "totals",
    "warm_up",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

TABLES = ("part", "exposure", "count", "joint")
PART = (
    "sum_N",
    "score_min",
    "score_max",
    "sum_t",
    "sum_t2",
    "sum_log_t",
    "sum_log_t2",
    "sum_y_log_N",
    "above",  # number of items whose count exceeds their exposure
)
EXPOSURE = ("sum_N", "sum_N2", "sum_N3", "sum_y2", "sum_yN", "sum_yN2", "sum_yN3")
COUNT = ("sum_y2", "sum_y3")
JOINT = (*EXPOSURE, "sum_y3")

_EMPTY = np.iinfo(np.int64).min
_FIRST_SLOTS = 1 << 12
_SIXTEEN = 1 << STEPS
_EXACT_OCTAVE = 5
_COUNT_BITS, _EXPOSURE_BITS = 11, 16  # of cells in packed keys
_MOST_PARTS = 1 << 35
_FLOOR = FIRST_GRID.floor
_FIRST_COUNT = 3 + len(PART)  # column of a part's row where its exact counts begin
_MOST_BUCKETS = 1 << 16


_compiled = numba.njit(cache=True, nogil=True, error_model="numpy")
# functions that get arrays are inlined: to count their references would cost more than their work
_inlined = numba.njit(cache=True, nogil=True, error_model="numpy", inline="always")


class _Table:
    """Open addressing; column 0 of a row is its key, 1 and 2 are whole numbers, the rest real."""

    def __init__(self, reals: int, slots: int = _FIRST_SLOTS) -> None:
        self.reals = np.zeros((slots, 3 + reals))
        self.whole: Ints = self.reals.view(np.int64)
        self.whole[:, 0] = _EMPTY

    def rows(self) -> tuple[Ints, Ints, Floats]:
        """Keys, whole numbers and real sums of the rows in use."""
        used = self.whole[:, 0] != _EMPTY
        return self.whole[used, 0], self.whole[used, 1:3], self.reals[used, 3:]

    def fill(self, keys: Ints, whole: Ints, reals: Floats) -> None:
        """Put rows with distinct keys into an empty table with room for them."""
        at = np.empty(len(keys), dtype=np.int64)
        _claim(self.whole, keys, at)
        self.whole[at, 1:3], self.reals[at, 3:] = whole, reals

    def grown(self) -> "_Table":
        """The same rows with four times the room."""
        bigger = _Table(self.reals.shape[1] - 3, 4 * len(self.reals))
        bigger.fill(*self.rows())
        return bigger


@_inlined
def _slot(whole, used, which, key):  # type: ignore[no-untyped-def]
    """Row of a key, claimed if it is new."""
    mask = len(whole) - 1
    # Fibonacci hashing; int64 products wrap around
    at = ((key * -7046029254386353131) >> 24) & mask
    while whole[at, 0] != key:
        if whole[at, 0] == _EMPTY:
            whole[at, 0] = key
            used[which] += 1
            break
        at = (at + 1) & mask
    return at


@_compiled
def _claim(whole, keys, out):  # type: ignore[no-untyped-def]
    used = np.zeros(1, dtype=np.int64)
    for i in range(len(keys)):
        out[i] = _slot(whole, used, 0, keys[i])


@_compiled
def _log_linear(size, unit):  # type: ignore[no-untyped-def]
    """Octave times `unit` plus the whole step inside it: `binning._octave_step` in one number."""
    fraction, exponent = math.frexp(size)
    return (exponent - 1) * unit + np.int64((2.0 * fraction - 1.0) * unit)


@_compiled
def _score_cell(t, floor, steps):  # type: ignore[no-untyped-def]
    """`binning.Grid.cell`."""
    size = abs(t)
    if size < math.ldexp(1.0, floor):
        return 0
    cell = _log_linear(size, 1 << steps) - (floor << steps) + 1
    return cell if t > 0 else -cell


@_compiled
def totals(score, count, exposure):  # type: ignore[no-untyped-def]
    """Whether all items are valid, and their totals.

    Sums of counts, as whole and as real numbers, and of exposures; least and largest score; largest
    exposure.
    """
    valid, whole, real, total = True, np.int64(0), 0.0, 0.0
    low, high, most = math.inf, -math.inf, 0.0
    for i in range(len(score)):
        t, y, x = score[i], count[i], exposure[i]
        if not is_valid(t, y, x):
            valid = False
            break
        whole += np.int64(y)
        real += y
        total += x
        # plain comparisons: min and max would look for NaN again
        low = t if t < low else low
        high = t if t > high else high
        most = x if x > most else most
    return valid, whole, real, total, low, high, most


@_compiled
def ends(values):  # type: ignore[no-untyped-def]
    """Whether all numbers are known and finite; the least and the largest."""
    valid, low, high = True, math.inf, -math.inf
    for i in range(len(values)):
        v = values[i]
        valid &= abs(v) <= LARGEST
        low = v if v < low else low
        high = v if v > high else high
    return valid, low, high


@_compiled
def fold_of_items(score, exposure, folds):  # type: ignore[no-untyped-def]
    """`binning.fold_of_item`, item by item."""
    out = np.empty(len(score), dtype=np.int64)
    for i in range(len(score)):
        x = _score_cell(score[i], _FLOOR, FOLD_STEPS) * FOLD_MIX
        x += _score_cell(exposure[i], _FLOOR, FOLD_STEPS)
        x %= FOLD_PRIME
        x = x * ((x + SCRAMBLE[0]) % FOLD_PRIME) % FOLD_PRIME
        out[i] = x * SCRAMBLE[1] % FOLD_PRIME % folds
    return out


@_compiled
def _sort_cells(score, weight, floor, steps, cell, cells, weights):  # type: ignore[no-untyped-def]
    """Fill `cells` and `weights` with those of the scores, neighbours together.

    Tables are then read in order. `cell` is room to work in.
    """
    low, high = np.iinfo(np.int64).max, np.iinfo(np.int64).min
    for i in range(len(score)):
        cell[i] = _score_cell(score[i], floor, steps)
        low = cell[i] if cell[i] < low else low
        high = cell[i] if cell[i] > high else high
    shift = 8
    while (high - low) >> shift > 1 << 16:
        shift += 1
    start = np.zeros(((high - low) >> shift) + 2, dtype=np.int64)
    for i in range(len(score)):
        start[((cell[i] - low) >> shift) + 1] += 1
    for k in range(len(start) - 1):
        start[k + 1] += start[k]
    for i in range(len(score)):
        bucket = (cell[i] - low) >> shift
        at = start[bucket]
        start[bucket] += 1
        cells[at] = cell[i]
        if len(weight):
            weights[at] = weight[i]


@_compiled
def _look(cell, weight, start, whole, used):  # type: ignore[no-untyped-def]
    """Add items from `start` on to their cells; where it stopped, as the table is full."""
    for i in range(start, len(cell)):
        if 2 * used[0] > len(whole):
            return i
        at = _slot(whole, used, 0, cell[i])
        whole[at, 2] += weight[i] if len(weight) else 1
    return len(cell)


class FirstLook:
    """Weights of the scores' cells on a fine grid.

    Parameters
    ----------
    grid
        The grid.
    low, high
        Scores outside count as these.
    """

    def __init__(
        self, grid: Grid = FIRST_GRID, low: float = -math.inf, high: float = math.inf
    ) -> None:
        self._grid, self._low, self._high = grid, low, high
        self._table, self._used = _Table(0), np.zeros(1, dtype=np.int64)
        self._scratch: list[Ints] = []

    def add(self, score: Floats, weight: Ints | None = None) -> None:
        """Add valid items with whole weights; None counts the items."""
        weight = np.empty(0, dtype=np.int64) if weight is None else weight
        if self._low > -math.inf:
            score = np.clip(score, self._low, self._high)
        n, grid = len(score), self._grid
        if n == 0:
            return
        if len(self._scratch) == 0 or len(self._scratch[0]) < n:
            self._scratch = [np.empty(n, dtype=np.int64) for _ in range(3)]
        cell, cells, weights = (a[:n] for a in self._scratch)
        _sort_cells(score, weight, grid.floor, grid.steps, cell, cells, weights)
        weights = weights[: len(weight)]
        at = 0
        while at < n:
            table = self._table
            at = _look(cells, weights, at, table.whole, self._used)
            if at < n:
                self._table = table.grown()

    def weights(self) -> tuple[Ints, Ints]:
        """Occupied cells, rising, and their weights."""
        cell, whole, _ = self._table.rows()
        order = np.argsort(cell)
        return cell[order], whole[order, 1]


@_inlined
def _bin(t, edges, ends, grid, below):  # type: ignore[no-untyped-def]
    """Number of edges at or below a score: those of lower cells, and the next few compared.

    All comparisons are made, as a branch that cannot be predicted costs more than several of them.
    """
    clipped = min(max(t, ends[0]), ends[1])
    found = below[_score_cell(clipped, grid[0], grid[1]) - grid[2]]
    more = 0
    for k in range(grid[3]):
        more += edges[found + k] <= t
    return found + more


@_inlined
def _add_part(whole, reals, at, t, y, x):  # type: ignore[no-untyped-def]
    if whole[at, 1] == 0:
        reals[at, 4] = reals[at, 5] = t
    whole[at, 1] += 1
    whole[at, 2] += np.int64(y)
    log_t = math.log(t) if t > 0 else math.nan
    reals[at, 3] += x
    reals[at, 4] = min(reals[at, 4], t)
    reals[at, 5] = max(reals[at, 5], t)
    reals[at, 6] += t
    reals[at, 7] += t * t
    reals[at, 8] += log_t
    reals[at, 9] += log_t * log_t
    if y > 0:
        reals[at, 10] += y * math.log(x)
        reals[at, 11] += y > x


@_inlined
def _add_exposure(whole, reals, at, y, x):  # type: ignore[no-untyped-def]
    whole[at, 1] += 1
    whole[at, 2] += np.int64(y)
    reals[at, 3] += x
    reals[at, 4] += x * x
    reals[at, 5] += x * x * x
    if y > 0:
        reals[at, 6] += y * y
        reals[at, 7] += y * x
        reals[at, 8] += y * x * x
        reals[at, 9] += y * x * x * x


@_compiled
def _exposure_and_count_cell(y, x):  # type: ignore[no-untyped-def]
    """`binning.exposure_cell` and `binning.count_cell`."""
    of_exposure = _log_linear(x, _SIXTEEN) if x > 0 else ZERO_EXPOSURE
    if y < EXACT_COUNTS:
        return of_exposure, np.int64(y)
    return of_exposure, _log_linear(y, _SIXTEEN) + EXACT_COUNTS - _EXACT_OCTAVE * _SIXTEEN


@_compiled
def _sort_items(score, count, exposure, part_of, bins, finder, start, key, out):  # type: ignore[no-untyped-def]
    """Fill `out` with items and their part and bin, those of one bin together.

    Tables are then read in order. `start` has room for a place of every bin and one more.
    """
    start[:] = 0
    buckets = len(start) - 1  # fewer than bins of parts only where these are very many
    edges, ends, grid, below = finder
    for i in range(len(score)):
        key[i] = part_of[i] * bins + _bin(score[i], edges, ends, grid, below)
        start[(key[i] if key[i] < buckets else key[i] % buckets) + 1] += 1
    for k in range(buckets):
        start[k + 1] += start[k]
    keys, t, y, x = out
    for i in range(len(score)):
        bucket = key[i] if key[i] < buckets else key[i] % buckets
        at = start[bucket]
        start[bucket] += 1
        keys[at], t[at], y[at], x[at] = key[i], score[i], count[i], exposure[i]


@_compiled
def _add(  # type: ignore[no-untyped-def]
    items, folds, bins, coarse, start, used,
    part_whole, part_reals, x_whole, x_reals, y_whole, y_reals, joint_whole, joint_reals,
):  # fmt: skip
    """Add items from `start` on to all tables; where it stopped, as a table is full."""
    keys, score, count, exposure = items
    last, part = _EMPTY, 0
    for i in range(start, len(score)):
        full = 2 * used[0] > len(part_whole) or 2 * used[1] > len(x_whole)
        if full or 2 * used[2] > len(y_whole) or 2 * used[3] > len(joint_whole):
            return i
        key, t, y, x = keys[i], score[i], count[i], exposure[i]
        if key != last:
            last, part = key, _slot(part_whole, used, 0, key)
        _add_part(part_whole, part_reals, part, t, y, x)
        x_cell, y_cell = _exposure_and_count_cell(y, x)
        x_key = (key << _EXPOSURE_BITS) + x_cell - ZERO_EXPOSURE
        _add_exposure(x_whole, x_reals, _slot(x_whole, used, 1, x_key), y, x)
        if y_cell < EXACT_COUNTS:  # all sums of one count follow from its number
            part_whole[part, _FIRST_COUNT + y_cell] += 1
        else:
            at = _slot(y_whole, used, 2, (key << _COUNT_BITS) + y_cell)
            y_whole[at, 1] += 1
            y_whole[at, 2] += np.int64(y)
            y_reals[at, 3] += y * y
            y_reals[at, 4] += y * y * y
        if coarse > 0:
            wide = key // (bins * folds) * bins + key % bins // coarse
            wide = (wide << _EXPOSURE_BITS) + x_cell - ZERO_EXPOSURE
            at = _slot(joint_whole, used, 3, (wide << _COUNT_BITS) + y_cell)
            _add_exposure(joint_whole, joint_reals, at, y, x)
            joint_reals[at, 10] += y * y * y
    return len(score)


class Sums:
    """Sums over bins, exposure cells, count cells and, if wanted, joint cells.

    Parameters
    ----------
    edges
        Interior edges of the bins.
    folds
        Number of folds; 1 where there are none.
    most_joint
        Largest number of joint cells; bins are merged by twos where there are more. 0 keeps none.
    """

    def __init__(self, edges: Floats, folds: int = 1, most_joint: int = 0) -> None:
        self._bins, self._folds = len(edges) + 1, folds
        self._finder = _finder(edges)
        widths = (len(PART) + EXACT_COUNTS, len(EXPOSURE), len(COUNT), len(JOINT))
        self._tables = [_Table(width) for width in widths]
        self._used = np.zeros(4, dtype=np.int64)
        self._scratch: list[NDArray[Any]] = []
        self._most_joint = most_joint
        self.coarse = 1 if most_joint else 0

    def add(self, score: Floats, count: Floats, exposure: Floats, parts: Ints) -> None:
        """Add valid items of the given parts: code of the group times folds plus fold."""
        most = (int(parts.max(initial=0)) + 1) * self._bins
        if most > _MOST_PARTS:
            raise OverflowError("too many groups, folds and bins")
        items = self._sorted(score, count, exposure, parts, min(most, _MOST_BUCKETS))
        at = 0
        while at < len(score):
            arrays = [a for table in self._tables for a in (table.whole, table.reals)]
            at = _add(items, self._folds, self._bins, self.coarse, at, self._used, *arrays)
            self._make_room()

    def _sorted(
        self, score: Floats, count: Floats, exposure: Floats, parts: Ints, buckets: int
    ) -> tuple[NDArray[Any], ...]:
        """The items bin by bin, in arrays that are used again and again."""
        n = len(score)
        if len(self._scratch) == 0 or len(self._scratch[0]) < n:
            self._scratch = [np.empty(n, dtype=k) for k in (int, int, float, float, float)]
        key, *out = (a[:n] for a in self._scratch)
        start = np.empty(buckets + 1, dtype=np.int64)
        _sort_items(score, count, exposure, parts, self._bins, self._finder, start, key, tuple(out))
        return tuple(out)

    def _make_room(self) -> None:
        for which, table in enumerate(self._tables):
            if which == 3 and self._used[3] > self._most_joint > 0 and self.coarse < self._bins:
                self._merge_bins()
            elif 2 * self._used[which] > len(table.whole):
                self._tables[which] = table.grown()

    def _merge_bins(self) -> None:
        """Joint cells of twice as many bins in one, until they are few enough."""
        while self._used[3] > self._most_joint and self.coarse < self._bins:
            self.coarse *= 2
            columns = self._columns(3)
            columns["bin"] = columns["bin"] // 2
            cells = _grouped(columns, ("group", "bin", "exposure_cell", "count_cell"))
            key = (cells["group"] * self._bins + cells["bin"]) << _EXPOSURE_BITS
            key = ((key + cells["exposure_cell"] - ZERO_EXPOSURE) << _COUNT_BITS) + cells[
                "count_cell"
            ]
            self._used[3] = len(key)
            table = _Table(len(JOINT), len(self._tables[3].whole))
            whole = np.stack([cells["n"], cells["sum_y"]], axis=1)
            table.fill(key, whole, np.stack([cells[name] for name in JOINT], axis=1))
            self._tables[3] = table

    def _columns(self, which: int) -> dict[str, NDArray[Any]]:
        """Rows of a table as columns, keys unpacked."""
        key, whole, reals = self._tables[which].rows()
        columns: dict[str, NDArray[Any]] = {}
        if which >= 2:
            columns["count_cell" if which == 3 else "cell"] = key & ((1 << _COUNT_BITS) - 1)
            key = key >> _COUNT_BITS
        if which in (1, 3):
            cell = (key & ((1 << _EXPOSURE_BITS) - 1)) + ZERO_EXPOSURE
            columns["exposure_cell" if which == 3 else "cell"] = cell
            key = key >> _EXPOSURE_BITS
        part, columns["bin"] = np.divmod(key, self._bins)
        folds = 1 if which == 3 else self._folds
        columns["group"], columns["fold"] = np.divmod(part, folds)
        names = (PART, EXPOSURE, COUNT, JOINT)[which]
        columns |= {"n": whole[:, 0], "sum_y": whole[:, 1]}
        return columns | {name: reals[:, i] for i, name in enumerate(names)}

    def _exact_counts(self) -> dict[str, NDArray[Any]]:
        """Cells of single counts, which the rows of parts hold."""
        parts = self._columns(0)
        table = self._tables[0].whole
        number = table[table[:, 0] != _EMPTY, _FIRST_COUNT:]
        row, y = np.nonzero(number)
        n = number[row, y]
        keys = {name: parts[name][row] for name in ("group", "fold", "bin")}
        sums = {"n": n, "sum_y": y * n, "sum_y2": 1.0 * y**2 * n, "sum_y3": 1.0 * y**3 * n}
        return {**keys, "cell": y, **sums}

    def tables(self) -> dict[str, dict[str, NDArray[Any]]]:
        """Columns of the tables ``part``, ``exposure``, ``count`` and, if kept, ``joint``."""
        kept = TABLES[: 4 if self.coarse else 3]
        found = {name: self._columns(which) for which, name in enumerate(kept)}
        exact, wide = self._exact_counts(), found["count"]
        found["count"] = {name: np.concatenate([exact[name], wide[name]]) for name in exact}
        return found


def _grouped(columns: Columns, keys: Sequence[str]) -> dict[str, NDArray[Any]]:
    return group(columns, keys, dict.fromkeys(("n", "sum_y", *JOINT), np.add))


def _finder(edges: Floats) -> tuple[Floats, Floats, Ints, Ints]:
    """A `Lookup` as arrays for the kernel: edges, their ends, the grid, edges below its cells."""
    if not len(edges):
        return edges, np.zeros(2), np.zeros(4, dtype=np.int64), np.zeros(1, dtype=np.int64)
    found = make_lookup(np.asarray(edges, dtype=float))
    grid = np.array([found.grid.floor, found.grid.steps, found.first, found.most], dtype=np.int64)
    return found.edges, np.array([found.low, found.high]), grid, found.below


def warm_up() -> None:
    """Compile the kernels, or load them from Numba's cache, so that the wait has a name."""
    one, zero = np.ones(1), np.zeros(1, dtype=np.int64)
    totals(one, one, one)
    ends(one)
    for weight in (None, zero):
        FirstLook().add(one, weight)
    Sums(one).add(one, one, one, zero)
