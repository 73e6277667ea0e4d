"""Sums over bins and cells by compiled kernels, batch by batch, in bounded memory."""

import math
import threading
from dataclasses import dataclass
from itertools import batched, pairwise
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._lib.arrays import Floats, Ints
from .._lib.errors import StatisticsError
from .._lib.threads import ordered_map, threads
from ..families.cells import CELLS
from ..families.validity import LARGEST
from .binning import (
    FIRST_GRID,
    FOLD_MIX,
    FOLD_PRIME,
    FOLD_STEPS,
    NO_JOINT,
    SCRAMBLE,
    Columns,
    Grid,
    Joint,
    group,
    make_lookup,
)
from .kernels import HEAD, HashTable, Kernel, compiled, score_cell

_BITS = 62  # of packed keys
_MOST_BUCKETS = 1 << 16
_MOST_SHARDS = 64
_ROWS = 1 << 8  # of a shard's tables at first
_PAGE = 12  # 2^12 cells of the grid of scores
_STRIP = 1 << 11  # scores whose cells are found at once
_FLOOR = FIRST_GRID.floor
NO_PARTS = np.empty(0, dtype=np.int64)


@compiled
def _bucket(b, part, wide, buckets, parts, shift):  # type: ignore[no-untyped-def]
    """Bucket of a bin and a part, which several share beyond `buckets` of a shard."""
    shard = b >> wide
    return shard * buckets + (((b - (shard << wide)) * parts + part) >> shift)


@compiled
def _sort_items(score, outcome, size, part_of, parts, shape, finder, bin_of, start, keys, out):  # type: ignore[no-untyped-def]
    """Fill `out` with items sorted by bin, then part; `keys` is the same memory as whole numbers.

    Tables are then read in order. `part_of` is empty if there is one part. `start` has room for one
    number per bucket and one more, `bin_of` for one per item. Afterwards `start` holds the ends of
    the buckets. Short loops are turned into vector instructions.
    """
    bins, wide, buckets = shape
    edges, ends, grid, below = finder
    shift = 0  # more parts and bins of a shard than buckets share them
    while (((1 << wide) * parts - 1) >> shift) >= buckets:
        shift += 1
    for i in range(len(score)):
        clipped = min(max(score[i], ends[0]), ends[1])
        bin_of[i] = score_cell(clipped, grid[0], grid[1]) - grid[2]
    for i in range(len(score)):
        # edges of lower cells, and all of the next few that are not above the score: an
        # unpredictable branch costs more than several comparisons
        found = below[bin_of[i]]
        more = 0
        for k in range(grid[3]):
            more += edges[found + k] <= score[i]
        bin_of[i] = found + more
    start[:] = 0
    for i in range(len(score)):
        part = part_of[i] if len(part_of) else 0
        start[_bucket(bin_of[i], part, wide, buckets, parts, shift) + 1] += 1
    for k in range(len(start) - 1):
        start[k + 1] += start[k]
    for i in range(len(score)):
        b = bin_of[i]
        part = part_of[i] if len(part_of) else 0
        place = _bucket(b, part, wide, buckets, parts, shift)
        at = start[place]
        start[place] += 1
        keys[at, 0] = part * bins + b
        out[at, 1], out[at, 2], out[at, 3] = score[i], outcome[i], size[i]


@dataclass(frozen=True)
class Sorted:
    """Items of one block, sorted by bin, then part."""

    items: Floats  # (n, 4): number of part and bin as whole numbers, then score, outcome, size
    first: Ints  # of every shard, and the end of the last
    parts: int  # parts of the block


class _Shard:
    """Tables of sums over a range of bins."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel, outcome = kernel, kernel.outcome
        self.tables = {
            name: HashTable(len(table.reals) + (outcome.exact if name == "part" else 0), _ROWS)
            for name, table in outcome.tables.items()
        }
        self.used = np.zeros(len(self.tables), dtype=np.int64)

    def add(self, items: Floats, codes: Ints, folds: int, bins: int, coarse: int) -> None:
        at = 0
        while at < len(items):
            arrays = [a for t in self.tables.values() for a in (t.index, t.whole, t.reals)]
            given = items.view(np.int64), items, codes, folds, bins, coarse, at, self.used
            at = self._kernel.add(*given, *arrays)
            for used, (name, table) in zip(self.used, self.tables.items(), strict=True):
                if used == len(table.whole):
                    self.tables[name] = table.grown()

    def rows(self, name: str) -> Floats:
        """The rows of a table."""
        used = dict(zip(self.tables, self.used, strict=True))
        return self.tables[name].reals[: used[name]]

    def drop_joint(self) -> None:
        if self.used[-1]:
            self.put_joint(self.rows("joint")[:0])

    def put_joint(self, rows: Floats) -> None:
        """Replace the joint cells."""
        room = max(_ROWS, 1 << len(rows).bit_length())
        self.tables["joint"] = HashTable(rows.shape[1] - HEAD, room).filled(rows)
        self.used[-1] = len(rows)


class Sums:
    """Sums over bins, their cells and, optionally, joint cells.

    Blocks of items are sorted in threads and added in their order. Ranges of bins have tables of
    their own, to which threads add at once, so that every sum is over its items in order, whatever
    the number of threads.

    `folds` is 1 without folds. `coarse` is the number of bins per bin of the joint cells, 0 if none
    are kept.
    """

    def __init__(
        self, kernel: Kernel, edges: Floats, folds: int = 1, joint: Joint = NO_JOINT
    ) -> None:
        self._kernel, self._outcome = kernel, kernel.outcome
        self._bins, self._folds = len(edges) + 1, folds
        self._finder = _finder(edges)
        self._wide = max(-(-self._bins // _MOST_SHARDS) - 1, 0).bit_length()  # bins of a shard: 2^
        self._shards = [_Shard(kernel) for _ in range(-(-self._bins >> self._wide))]
        self._joint, self.coarse = joint, min(joint.most, 1)
        self._work, self._spare = threading.local(), SimpleQueue[Floats]()

    def sort(self, score: Floats, outcome: Floats, size: Floats, parts: Ints = NO_PARTS) -> Sorted:
        """Valid items of a block, sorted by bin and part; threads may sort several at once.

        A part is the code of the group, the block's own, times folds plus the fold.
        """
        n, most = len(score), int(parts.max(initial=0)) + 1
        try:
            items = self._spare.get_nowait()
        except Empty:
            items = np.empty((0, 4))
        if len(items) < n:
            items = np.empty((n, 4))
        if len(getattr(self._work, "bins", ())) < n:
            self._work.bins = np.empty(n, dtype=np.int32)
        shards = len(self._shards)
        buckets = min(most << self._wide, _MOST_BUCKETS // shards)
        start = np.empty(shards * buckets + 1, dtype=np.int64)
        shape = self._bins, self._wide, buckets
        out = items.view(np.int64), items
        _sort_items(
            score, outcome, size, parts, most, shape, self._finder, self._work.bins, start, *out
        )
        first = np.concatenate([[0], start[buckets - 1 : -1 : buckets]])
        return Sorted(items, first, most)

    def add(self, block: Sorted, codes: Ints | None = None) -> None:
        """Add sorted items; `codes` are those of all items for the block's codes of groups."""
        if codes is None:
            codes = np.arange(-(-block.parts // self._folds))
        self._check_keys((int(codes.max(initial=0)) + 1) * self._folds * self._bins)
        limits = zip(self._shards, pairwise(block.first.tolist()), strict=True)
        wanted = [(shard, block.items[low:high]) for shard, (low, high) in limits if high > low]

        def add(some: tuple[tuple[_Shard, Floats], ...]) -> None:
            for shard, items in some:
                shard.add(items, codes, self._folds, self._bins, self.coarse)

        for _ in ordered_map(add, batched(wanted, -(-len(wanted) // (2 * threads())) or 1)):
            pass
        self._spare.put(block.items)
        if sum(int(shard.used[-1]) for shard in self._shards) > self._joint.most:
            self._merge_bins() if self._joint.merges else self.drop_joint()

    def drop_joint(self) -> None:
        """Keep no joint cells."""
        self.coarse = 0
        for shard in self._shards:
            shard.drop_joint()

    def _check_keys(self, parts: int) -> None:
        """Refuse more bins of groups and folds than packed keys allow."""
        for name, table in self._outcome.tables.items():
            number = parts if name != "joint" else parts // self._folds if self.coarse else 0
            if number > 1 << (_BITS - sum(CELLS[cell].bits for cell in table.cells.values())):
                raise StatisticsError(
                    f"there are too many groups, folds and bins ({number:,} together) for the "
                    f"{name} cells: ask for fewer bins, or summarize the groups one by one"
                )

    def _merge_bins(self) -> None:
        """Merge bins of joint cells in pairs until the cells are few enough."""
        rules = dict.fromkeys(self._outcome.sums("joint"), np.add)
        cells = self._columns("joint")
        while len(cells["n"]) > self._joint.most and self.coarse < self._bins:
            self.coarse *= 2
            cells["bin"] = cells["bin"] // 2
            cells = group(cells, self._outcome.tables["joint"].keys, rules)
        self._outcome.check_joint(len(cells["n"]), self._joint.most)
        of = cells["bin"] * self.coarse >> self._wide
        for number, shard in enumerate(self._shards):
            own = {name: values[of == number] for name, values in cells.items()}
            shard.put_joint(self._packed_joint(own))

    def _packed_joint(self, cells: Columns) -> Floats:
        key = cells["group"] * self._bins + cells["bin"]
        for column, cell in self._outcome.tables["joint"].cells.items():
            key = (key << CELLS[cell].bits) + cells[column] - CELLS[cell].first
        reals = self._outcome.tables["joint"].reals
        rows = np.empty((len(key), HEAD + len(reals)))
        rows.view(np.int64)[:, :HEAD] = 0
        rows.view(np.int64)[:, 0] = key
        for k, name in enumerate(self._outcome.integers, start=1):
            rows.view(np.int64)[:, k] = cells[name]
        for k, name in enumerate(reals, start=HEAD):
            rows[:, k] = cells[name]
        return rows

    def _columns(self, name: str) -> dict[str, NDArray[Any]]:
        """Rows of a table as columns, keys unpacked."""
        rows = [shard.rows(name) for shard in self._shards]

        def column_of(k: int, kind: type[Any]) -> NDArray[Any]:
            return np.concatenate([some.view(kind)[:, k] for some in rows])

        key = column_of(0, np.int64)
        columns: dict[str, NDArray[Any]] = {}
        for column, cell in reversed(list(self._outcome.tables[name].cells.items())):
            columns[column] = (key & ((1 << CELLS[cell].bits) - 1)) + CELLS[cell].first
            key = key >> CELLS[cell].bits
        part, columns["bin"] = np.divmod(key, self._bins)
        folds = 1 if name == "joint" else self._folds
        columns["group"], columns["fold"] = np.divmod(part, folds)
        names = self._outcome.integers, self._outcome.tables[name].reals
        columns |= {c: column_of(k, np.int64) for k, c in enumerate(names[0], start=1)}
        return columns | {c: column_of(k, np.float64) for k, c in enumerate(names[1], start=HEAD)}

    def _exact(self) -> dict[str, NDArray[Any]]:
        """Cells of single outcomes, from the numbers of items in the rows of parts."""
        parts = self._columns("part")
        rows = [shard.rows("part").view(np.int64) for shard in self._shards]
        number = np.concatenate([some[:, -self._outcome.exact :] for some in rows])
        row, cell = np.nonzero(number)
        n, of = number[row, cell], self._outcome.sums_of
        name = self._outcome.margins[-1]
        whole = {c: cell ** of[c].outcome * n for c in self._outcome.integers}
        reals = {c: 1.0 * cell ** of[c].outcome * n for c in self._outcome.tables[name].reals}
        keys = {key: parts[key][row] for key in ("group", "fold", "bin")}
        return {**keys, "cell": cell, **whole, **reals}

    def tables(self) -> dict[str, dict[str, NDArray[Any]]]:
        """Columns of all tables, of ``joint`` only if it is kept."""
        kept = [name for name in self._outcome.tables if name != "joint" or self.coarse]
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
def _count_cells(score, weight, clip, grid, first, pages, start, used, counts):  # type: ignore[no-untyped-def]
    """Add items from `start` to their cells; returns where it stopped for lack of a page."""
    low, high = clip
    floor, steps = grid
    mask = counts.shape[1] - 1
    cells = np.empty(_STRIP, dtype=np.int64)
    for begin in range(start, len(score), _STRIP):
        n = min(_STRIP, len(score) - begin)
        for i in range(n):  # a loop of its own, turned into vector instructions
            cells[i] = score_cell(min(max(score[begin + i], low), high), floor, steps)
        for i in range(n):
            of = (cells[i] >> _PAGE) - first
            page = pages[of]
            if page < 0:
                if used[0] == len(counts):
                    return begin + i
                page = pages[of] = used[0]
                used[0] += 1
            before = counts[page, cells[i] & mask]
            more = weight[begin + i] if len(weight) else 1
            counts[page, cells[i] & mask] = max(before, 0) + more
    return len(score)


class GridWeights:
    """Weights of the scores' cells on a fine grid; scores are clipped to [low, high].

    They are kept in pages of neighbouring cells, made when a score first needs them.
    """

    def __init__(
        self, grid: Grid = FIRST_GRID, low: float = -math.inf, high: float = math.inf
    ) -> None:
        self._clip, self._grid = (max(low, -LARGEST), min(high, LARGEST)), grid
        first, last = (int(cell) >> _PAGE for cell in grid.cell(self._clip))
        self._first, self._pages = first, np.full(last - first + 1, -1, dtype=np.int64)
        # cells are -1 until they are occupied, as weights may be 0
        self._counts, self._used = np.full((1, 1 << _PAGE), -1), np.zeros(1, np.int64)

    def add(self, score: Floats, weight: Ints | None = None) -> None:
        """Add valid items with whole weights; None counts the items."""
        weight = np.empty(0, dtype=np.int64) if weight is None else weight
        grid, at = (self._grid.floor, self._grid.steps), 0
        while at < len(score):
            places = self._first, self._pages, at, self._used, self._counts
            at = _count_cells(score, weight, self._clip, grid, *places)
            if at < len(score):
                self._grow()

    def __iadd__(self, other: "GridWeights") -> "GridWeights":
        """Add the weights of further items on the same grid."""
        for of in np.flatnonzero(other._pages >= 0).tolist():
            own = other._counts[other._pages[of]]
            if self._pages[of] >= 0:
                mine = self._counts[self._pages[of]]
                np.copyto(mine, np.maximum(mine, 0) + own, where=own >= 0)
                continue
            if self._used[0] == len(self._counts):
                self._grow()
            self._counts[self._used[0]] = own
            self._pages[of] = self._used[0]
            self._used += 1
        return self

    def _grow(self) -> None:
        self._counts = np.concatenate([self._counts, np.full_like(self._counts, -1)])

    def weights(self) -> tuple[Ints, Ints]:
        """Occupied cells, in increasing order, and their weights."""
        cells, weights = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for of in np.flatnonzero(self._pages >= 0).tolist():
            own = self._counts[self._pages[of]]
            inside = np.flatnonzero(own >= 0)
            cells.append(((of + self._first) << _PAGE) + inside)
            weights.append(own[inside])
        return np.concatenate(cells), np.concatenate(weights)


def warm_up(kernel: Kernel) -> None:
    """Compile the kernels, or load them from Numba's cache, as a phase of its own."""
    one, zero = np.ones(1), np.zeros(1, dtype=np.int64)
    kernel.totals(one, one, one)
    ends(one)
    for weight in (None, zero):
        GridWeights().add(one, weight)
    sums = Sums(kernel, one)
    sums.add(sums.sort(one, one, one, zero))
