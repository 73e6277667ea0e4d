"""Sums over bins and cells by compiled kernels, batch by batch, in memory that does not grow."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._lib.errors import StatisticsError
from ...families.outcomes import Outcome
from ..binning import make_lookup
from ..cells import Columns, group
from .hashing import EMPTY, HEAD, HashTable, compiled, inlined, score_cell

__all__ = ["Kernel", "Packed", "Sums"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_BITS = 62  # of packed keys
_MOST_BUCKETS = 1 << 16


@dataclass(frozen=True)
class Packed:
    """A cell's place in packed keys.

    Attributes
    ----------
    key
        Column of keys.
    bits
        How many it takes.
    first
        The lowest cell.
    """

    key: str
    bits: int
    first: int


@dataclass(frozen=True)
class Kernel:
    """Compiled sums of one kind of items.

    Attributes
    ----------
    schema
        The tables, columns in the order of the kernel's rows.
    totals
        Whether items are valid, and totals of them, from scores, outcomes and sizes.
    add
        Adds sorted items to all tables; says where it stopped, as a table was full.
    packed
        By table: how the cells among its keys are packed, first to last.
    exact
        Number of the lowest cells of the last margin that are counted in the rows of ``part``,
        behind their real sums.
    expand
        Columns of sums of these cells from their cells and numbers of items.
    """

    schema: Outcome
    totals: Callable[..., Any]
    add: Callable[..., int]
    packed: Mapping[str, tuple[Packed, ...]]
    exact: int = 0
    expand: Callable[[Ints, Ints], dict[str, NDArray[Any]]] | None = None


@inlined
def _bin(t, edges, ends, grid, below):  # type: ignore[no-untyped-def]
    """Number of edges at or below a score: those of lower cells, and the next few compared.

    All comparisons are made, as a branch that cannot be predicted costs more than several of them.
    """
    clipped = min(max(t, ends[0]), ends[1])
    found = below[score_cell(clipped, grid[0], grid[1]) - grid[2]]
    more = 0
    for k in range(grid[3]):
        more += edges[found + k] <= t
    return found + more


@compiled
def _sort_items(score, outcome, size, part_of, bins, finder, start, key, out):  # type: ignore[no-untyped-def]
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
        keys[at], t[at], y[at], x[at] = key[i], score[i], outcome[i], size[i]


class Sums:
    """Sums over bins, their cells and, if wanted, joint cells.

    Parameters
    ----------
    kernel
        What sums the items' kind.
    edges
        Interior edges of the bins.
    folds
        Number of folds; 1 where there are none.
    most_joint
        Largest number of joint cells; bins are merged by twos where there are more. 0 keeps none.
    """

    def __init__(self, kernel: Kernel, edges: Floats, folds: int = 1, most_joint: int = 0) -> None:
        self._kernel, self._schema = kernel, kernel.schema
        self._bins, self._folds = len(edges) + 1, folds
        self._finder = _finder(edges)
        self._tables = {
            name: HashTable(len(table.reals) + (kernel.exact if name == "part" else 0))
            for name, table in self._schema.tables.items()
        }
        self._used = np.zeros(len(self._tables), dtype=np.int64)
        self._scratch: list[NDArray[Any]] = []
        self._most_joint = most_joint
        self.coarse = 1 if most_joint else 0

    def add(self, score: Floats, outcome: Floats, size: Floats, parts: Ints) -> None:
        """Add valid items of the given parts: code of the group times folds plus fold."""
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
        """Refuse more bins of groups and folds than keys have room for."""
        for name, cells in self._kernel.packed.items():
            number = parts if name != "joint" else parts // self._folds if self.coarse else 0
            if number > 1 << (_BITS - sum(cell.bits for cell in cells)):
                raise StatisticsError(
                    f"there are too many groups, folds and bins ({number:,} together) for the "
                    f"{name} cells: ask for fewer bins, or summarize the groups one by one"
                )

    def _sorted(
        self, score: Floats, outcome: Floats, size: Floats, parts: Ints, buckets: int
    ) -> tuple[NDArray[Any], ...]:
        """The items bin by bin, in arrays that are used again and again."""
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
        """Joint cells of twice as many bins in one, until they are few enough."""
        rules = dict.fromkeys(self._schema.sums("joint"), np.add)
        while self._used[which] > self._most_joint and self.coarse < self._bins:
            self.coarse *= 2
            columns = self._columns("joint")
            columns["bin"] = columns["bin"] // 2
            cells = group(columns, self._schema.tables["joint"].keys, rules)
            self._used[which] = len(cells["n"])
            self._tables["joint"] = self._packed_joint(cells, len(self._tables["joint"].whole))
        self._schema.check_joint(self._used[which], self._most_joint)

    def _packed_joint(self, cells: Columns, slots: int) -> HashTable:
        key = cells["group"] * self._bins + cells["bin"]
        for cell in self._kernel.packed["joint"]:
            key = (key << cell.bits) + cells[cell.key] - cell.first
        reals = self._schema.tables["joint"].reals
        whole = np.zeros((len(key), HEAD - 1), dtype=np.int64)
        for i, name in enumerate(self._schema.integers):
            whole[:, i] = cells[name]
        table = HashTable(len(reals), slots)
        table.fill(key, whole, np.stack([cells[name] for name in reals], axis=1))
        return table

    def _columns(self, name: str) -> dict[str, NDArray[Any]]:
        """Rows of a table as columns, keys unpacked."""
        key, whole, reals = self._tables[name].rows()
        columns: dict[str, NDArray[Any]] = {}
        for cell in reversed(self._kernel.packed[name]):
            columns[cell.key] = (key & ((1 << cell.bits) - 1)) + cell.first
            key = key >> cell.bits
        part, columns["bin"] = np.divmod(key, self._bins)
        folds = 1 if name == "joint" else self._folds
        columns["group"], columns["fold"] = np.divmod(part, folds)
        columns |= {name: whole[:, i] for i, name in enumerate(self._schema.integers)}
        return columns | {
            real: reals[:, i] for i, real in enumerate(self._schema.tables[name].reals)
        }

    def _exact(self) -> dict[str, NDArray[Any]]:
        """Cells whose numbers the rows of parts hold."""
        assert self._kernel.expand is not None
        parts, table = self._columns("part"), self._tables["part"].whole
        number = table[table[:, 0] != EMPTY, -self._kernel.exact :]
        row, cell = np.nonzero(number)
        keys = {name: parts[name][row] for name in ("group", "fold", "bin")}
        return {**keys, "cell": cell, **self._kernel.expand(cell, number[row, cell])}

    def tables(self) -> dict[str, dict[str, NDArray[Any]]]:
        """Columns of all tables, of ``joint`` only if it is kept."""
        kept = [name for name in self._tables if name != "joint" or self.coarse]
        found = {name: self._columns(name) for name in kept}
        if self._kernel.exact:
            last = self._schema.margins[-1]
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
