"""Sums over bins and cells by compiled kernels, batch by batch, in bounded memory."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._lib.arrays import Floats, Ints
from .._lib.errors import StatisticsError
from ..families.cells import CELLS
from ..families.validity import LARGEST
from .binning import (
    FIRST_GRID,
    FOLD_MIX,
    FOLD_PRIME,
    FOLD_STEPS,
    SCRAMBLE,
    Columns,
    Grid,
    group,
    make_lookup,
)
from .kernels import EMPTY, HEAD, HashTable, Kernel, compiled, inlined, score_cell, slot

_BITS = 62  # of packed keys
_MOST_BUCKETS = 1 << 16
_FLOOR = FIRST_GRID.floor


@inlined
def _bin(t, edges, ends, grid, below):  # type: ignore[no-untyped-def]
    """Number of edges at or below a score: those of lower cells, plus the next few that are.

    All comparisons are made, because an unpredictable branch costs more than several of them.
    """
    clipped = min(max(t, ends[0]), ends[1])
    found = below[score_cell(clipped, grid[0], grid[1]) - grid[2]]
    more = 0
    for k in range(grid[3]):
        more += edges[found + k] <= t
    return found + more


@compiled
def _sort_items(score, outcome, size, part_of, bins, finder, start, key, out):  # type: ignore[no-untyped-def]
    """Fill `out` with items and their part and bin, sorted by bin.

    Tables are then read in order. `start` has room for one number per bin and one more.
    """
    start[:] = 0
    buckets = len(start) - 1  # fewer than parts times bins only if these are very many
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
        keys[at], t[at], y[at], x[at] = key[i], score[i], outcome[i], size[i]


class Sums:
    """Sums over bins, their cells and, optionally, joint cells.

    `folds` is 1 without folds. Bins are merged in pairs if there are more than `most_joint` joint
    cells; 0 keeps none.
    """

    def __init__(self, kernel: Kernel, edges: Floats, folds: int = 1, most_joint: int = 0) -> None:
        self._kernel, self._outcome = kernel, kernel.outcome
        self._bins, self._folds = len(edges) + 1, folds
        self._finder = _finder(edges)
        self._tables = {
            name: HashTable(len(table.reals) + (self._outcome.exact if name == "part" else 0))
            for name, table in self._outcome.tables.items()
        }
        self._used = np.zeros(len(self._tables), dtype=np.int64)
        self._scratch: list[NDArray[Any]] = []
        self._most_joint = most_joint
        self.coarse = 1 if most_joint else 0

    def add(self, score: Floats, outcome: Floats, size: Floats, parts: Ints) -> None:
        """Add valid items; a part is the code of the group times folds plus the fold."""
        most = (int(parts.max(initial=0)) + 1) * self._bins
        self._check_keys(most)
        items = self._sorted(score, outcome, size, parts, min(most, _MOST_BUCKETS))
        at = 0
        while at < len(score):
            arrays = [a for table in self._tables.values() for a in (table.whole, table.reals)]
            at = self._kernel.add(
                items, self._folds, self._bins, self.coarse, at, self._used, *arrays
            )
            self._make_room()

    def _check_keys(self, parts: int) -> None:
        """Refuse more bins of groups and folds than packed keys allow."""
        for name, table in self._outcome.tables.items():
            number = parts if name != "joint" else parts // self._folds if self.coarse else 0
            if number > 1 << (_BITS - sum(CELLS[cell].bits for cell in table.cells.values())):
                raise StatisticsError(
                    f"there are too many groups, folds and bins ({number:,} together) for the "
                    f"{name} cells: ask for fewer bins, or summarize the groups one by one"
                )

    def _sorted(
        self, score: Floats, outcome: Floats, size: Floats, parts: Ints, buckets: int
    ) -> tuple[NDArray[Any], ...]:
        """The items sorted by bin, in arrays that are reused."""
        n = len(score)
        if len(self._scratch) == 0 or len(self._scratch[0]) < n:
            self._scratch = [np.empty(n, dtype=k) for k in (int, int, float, float, float)]
        key, *out = (a[:n] for a in self._scratch)
        start = np.empty(buckets + 1, dtype=np.int64)
        _sort_items(score, outcome, size, parts, self._bins, self._finder, start, key, tuple(out))
        return tuple(out)

    def _make_room(self) -> None:
        for which, name in enumerate(self._tables):
            if name == "joint" and self._used[which] > self._most_joint > 0:
                self._merge_bins(which)
            if 2 * self._used[which] > len(self._tables[name].whole):
                self._tables[name] = self._tables[name].grown()

    def _merge_bins(self, which: int) -> None:
        """Merge bins of joint cells in pairs until the cells are few enough."""
        rules = dict.fromkeys(self._outcome.sums("joint"), np.add)
        while self._used[which] > self._most_joint and self.coarse < self._bins:
            self.coarse *= 2
            columns = self._columns("joint")
            columns["bin"] = columns["bin"] // 2
            cells = group(columns, self._outcome.tables["joint"].keys, rules)
            self._used[which] = len(cells["n"])
            self._tables["joint"] = self._packed_joint(cells, len(self._tables["joint"].whole))
        self._outcome.check_joint(self._used[which], self._most_joint)

    def _packed_joint(self, cells: Columns, slots: int) -> HashTable:
        key = cells["group"] * self._bins + cells["bin"]
        for column, cell in self._outcome.tables["joint"].cells.items():
            key = (key << CELLS[cell].bits) + cells[column] - CELLS[cell].first
        reals = self._outcome.tables["joint"].reals
        whole = np.zeros((len(key), HEAD - 1), dtype=np.int64)
        for i, name in enumerate(self._outcome.integers):
            whole[:, i] = cells[name]
        table = HashTable(len(reals), slots)
        table.fill(key, whole, np.stack([cells[name] for name in reals], axis=1))
        return table

    def _columns(self, name: str) -> dict[str, NDArray[Any]]:
        """Rows of a table as columns, keys unpacked."""
        key, whole, reals = self._tables[name].rows()
        columns: dict[str, NDArray[Any]] = {}
        for column, cell in reversed(list(self._outcome.tables[name].cells.items())):
            columns[column] = (key & ((1 << CELLS[cell].bits) - 1)) + CELLS[cell].first
            key = key >> CELLS[cell].bits
        part, columns["bin"] = np.divmod(key, self._bins)
        folds = 1 if name == "joint" else self._folds
        columns["group"], columns["fold"] = np.divmod(part, folds)
        columns |= {name: whole[:, i] for i, name in enumerate(self._outcome.integers)}
        return columns | {
            real: reals[:, i] for i, real in enumerate(self._outcome.tables[name].reals)
        }

    def _exact(self) -> dict[str, NDArray[Any]]:
        """Cells of single outcomes, from the numbers of items in the rows of parts."""
        parts, table = self._columns("part"), self._tables["part"].whole
        number = table[table[:, 0] != EMPTY, -self._outcome.exact :]
        row, cell = np.nonzero(number)
        n, of = number[row, cell], self._outcome.sums_of
        name = self._outcome.margins[-1]
        whole = {c: cell ** of[c].outcome * n for c in self._outcome.integers}
        reals = {c: 1.0 * cell ** of[c].outcome * n for c in self._outcome.tables[name].reals}
        keys = {key: parts[key][row] for key in ("group", "fold", "bin")}
        return {**keys, "cell": cell, **whole, **reals}

    def tables(self) -> dict[str, dict[str, NDArray[Any]]]:
        """Columns of all tables, of ``joint`` only if it is kept."""
        kept = [name for name in self._tables if name != "joint" or self.coarse]
        found = {name: self._columns(name) for name in kept}
        if self._outcome.exact:
            last = self._outcome.margins[-1]
            exact = self._exact()
            found[last] = {c: np.concatenate([exact[c], found[last][c]]) for c in exact}
        return found


def _finder(edges: Floats) -> tuple[Floats, Floats, Ints, Ints]:
    """A `Lookup` as arrays for the kernel: edges, their ends, the grid, edges below its cells."""
    if not len(edges):
        return edges, np.zeros(2), np.zeros(4, dtype=np.int64), np.zeros(1, dtype=np.int64)
    found = make_lookup(np.asarray(edges, dtype=float))
    grid = np.array([found.grid.floor, found.grid.steps, found.first, found.most], dtype=np.int64)
    return found.edges, np.array([found.low, found.high]), grid, found.below


# --- grid of scores ------------------------------------------------------------------------------


@compiled
def ends(values):  # type: ignore[no-untyped-def]
    """Whether all numbers are finite; their minimum and maximum."""
    valid, low, high = True, math.inf, -math.inf
    for i in range(len(values)):
        v = values[i]
        valid &= abs(v) <= LARGEST
        low = v if v < low else low
        high = v if v > high else high
    return valid, low, high


@compiled
def fold_of_items(score, size, folds):  # type: ignore[no-untyped-def]
    """Folds of items without an id, from score and size, never from the outcome."""
    out = np.empty(len(score), dtype=np.int64)
    for i in range(len(score)):
        x = score_cell(score[i], _FLOOR, FOLD_STEPS) * FOLD_MIX
        x += score_cell(size[i], _FLOOR, FOLD_STEPS)
        x %= FOLD_PRIME
        x = x * ((x + SCRAMBLE[0]) % FOLD_PRIME) % FOLD_PRIME
        out[i] = x * SCRAMBLE[1] % FOLD_PRIME % folds
    return out


@compiled
def _sort_cells(score, weight, floor, steps, cell, cells, weights):  # type: ignore[no-untyped-def]
    """Fill `cells` and `weights` with those of the scores, sorted by neighbourhood.

    Tables are then read in order. `cell` is a work array.
    """
    low, high = np.iinfo(np.int64).max, np.iinfo(np.int64).min
    for i in range(len(score)):
        cell[i] = score_cell(score[i], floor, steps)
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


@compiled
def _add_weights(cell, weight, start, whole, used):  # type: ignore[no-untyped-def]
    """Add items from `start` to their cells; returns where it stopped because the table is full."""
    for i in range(start, len(cell)):
        if 2 * used[0] > len(whole):
            return i
        at = slot(whole, used, 0, cell[i])
        whole[at, 2] += weight[i] if len(weight) else 1
    return len(cell)


class GridWeights:
    """Weights of the scores' cells on a fine grid; scores are clipped to [low, high]."""

    def __init__(
        self, grid: Grid = FIRST_GRID, low: float = -math.inf, high: float = math.inf
    ) -> None:
        self._grid, self._low, self._high = grid, low, high
        self._table, self._used = HashTable(0), np.zeros(1, dtype=np.int64)
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
            at = _add_weights(cells, weights, at, table.whole, self._used)
            if at < n:
                self._table = table.grown()

    def weights(self) -> tuple[Ints, Ints]:
        """Occupied cells, in increasing order, and their weights."""
        cell, whole, _ = self._table.rows()
        order = np.argsort(cell)
        return cell[order], whole[order, 1]


def warm_up(kernel: Kernel) -> None:
    """Compile the kernels, or load them from Numba's cache, as a phase of its own."""
    one, zero = np.ones(1), np.zeros(1, dtype=np.int64)
    kernel.totals(one, one, one)
    ends(one)
    for weight in (None, zero):
        GridWeights().add(one, weight)
    Sums(kernel, one).add(one, one, one, zero)
