"""Passes over items in this process: blocks of rows, and one compiled loop that sums them."""

import math
import operator
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from .._lib.arrays import Floats, Ints
from .._lib.errors import ItemsError, StatisticsError
from .._lib.progress import phase
from .._lib.threads import ordered_map
from ..families.outcomes import OUTCOMES, Outcome, sum_of
from . import formulas
from .binning import Columns, Grid, Lookup, Pile, Sums, Weights, make_lookup, sums_of
from .formulas import Folds, block_of_labels, fold_of, rebound, summand
from .items import CROSS, MARK, Items, is_day, key_roles
from .sources import batches, kind_of, readable
from .validation import FOLDS, bounds_of, check_total, read, scan, with_group

_BLOCK = 1_000_000  # items of a block
_EMPTY = -1
_ROWS = 1 << 10  # initial rows of a table
_STRIP = 1 << 14  # items added at once; the table has room for as many new rows
_HEAD = 3  # columns before the real sums: the key, the number of items, the outcome as a whole
_MIX = np.uint64(11400714819323198485)  # 2^64 over the golden ratio: Fibonacci hashing
_NEAR, _MASK = 3, 7  # neighbouring keys are looked for near each other
_KEY_BITS = 62
_BUCKET_BITS = 16  # bits of the numbers that order items
_OPERANDS = ("outcome", "size", "rest")
_GRIDS = ("exposure", "count", "noise", "value")
_compiled = numba.njit(cache=True, nogil=True, error_model="numpy")
# functions of arrays are inlined, because reference counting would cost more than their work
_inlined = numba.njit(cache=True, nogil=True, error_model="numpy", inline="always")

_FORMULAS = rebound(
    {
        "where": _compiled(lambda condition, yes, no: yes if condition else no),
        "low": min,
        "high": max,
        "log": math.log,
        "floor": math.floor,
        "whole": np.int64,
        "real": np.float64,
        "literal": np.float64,
        "modulo": operator.mod,
        "bits": _compiled(lambda number: np.float64(number).view(np.int64)),
        "power_of_two": _compiled(lambda exponent: math.ldexp(1.0, exponent)),
    },
    _compiled,
)
_exposure_cell, _count_cell, _noise_cell, _value_cell = (
    _FORMULAS[f"{grid}_cell"] for grid in _GRIDS
)
_square, _without_small = _FORMULAS["square"], _FORMULAS["without_small"]
_score_cell = _FORMULAS["score_cell"]


class Local:
    """Passes over items whose rows reach this process, validated block by block."""

    def __init__(self, items: Items, folds: Folds, progress: bool) -> None:
        self.items, self._folds, self._outcome = items, folds, OUTCOMES[items.kind]
        self._progress = progress
        self._n: int | None = None
        self._codes: dict[str, int] = {}  # of the labels of groups
        self._lock = threading.Lock()  # of the codes
        self.table = with_group(read(items))

    def weights(self, grid: Grid, weight: str | None) -> Weights:
        """Count blocks in threads; only the needed columns are read."""
        roles = ("score", weight) if weight else ("score",)

        def count(block: Mapping[str, Any]) -> tuple[float, float, Columns]:
            if not all(self._outcome.bounds[role].hold(block[role]) for role in roles):
                raise _NotValidError
            score, cell = block["score"], grid.cell(block["score"])
            occupied, n = np.unique(cell, return_counts=True)
            amount = np.zeros_like(n) if weight else n
            if weight:
                np.add.at(amount, np.searchsorted(occupied, cell), block[weight].astype(np.int64))
            return score.min(), score.max(), {"cell": occupied, "n": n, "amount": amount}

        pile, ends = Pile(("cell",), ("n", "amount")), []
        for low, high, rows in self._mapped("choosing bins", roles, count):
            ends += [low, high]
            pile.add(rows)
        if not ends:
            self._refuse()
        cells = pile.total()
        check_total(self.items, float(cells["amount"].sum(dtype=float)))
        self._n = int(cells["n"].sum())
        return Weights(float(min(ends)), float(max(ends)), *cells.values())

    def tables(self, edges: Floats, most_joint: int) -> Sums:
        """Validate and sum blocks, in their order, so that sums do not depend on threads."""
        outcome, lookup, bins = self._outcome, make_lookup(edges), len(edges) + 1
        folds = self._folds.number
        if self._n is None and kind_of(self.items.source) == "ibis":
            # another query on the user's connection would end a stream early, without an error
            with readable(self.items.source):
                self._n = self.table.count().to_pyarrow().as_py()
        pile = Pile(outcome.tables["part"].keys, outcome.sums("part"))
        names = [*outcome.margins, *["joint"] * (most_joint > 0)]
        cells = {name: GroupSum(outcome, name) for name in names}

        def prepare(block: Mapping[str, Any]) -> tuple[float, Ints, Floats]:
            score, y, size = (block[role] for role in outcome.bounds)
            if not outcome.validity.are_valid(score, y, size):
                raise _NotValidError
            return float(y.sum()), *in_order(score, y, size, self._parts(block), lookup, bins)

        def keyed(rows: dict[str, NDArray[Any]], folds: int) -> dict[str, NDArray[Any]]:
            part, rows["bin"] = np.divmod(rows.pop("number"), bins)
            rows["group"], rows["fold"] = np.divmod(part, folds)
            return rows

        n, total = 0, 0.0
        joined = key_roles(self.items.roles).keys() - {"group"}
        roles = [role for role in self.table.columns if role not in joined]
        for amount, number, items in self._mapped("summarizing items", roles, prepare):
            n, total = n + len(number), total + amount
            check_total(self.items, total)
            pile.add(keyed(part_sums(outcome, number, items), folds))
            tasks = [(cells[name], number, items) for name in outcome.margins]
            if "joint" in cells:  # without folds
                number = number // (folds * bins) * bins + number % bins
                if cells["joint"].has_keys(number):
                    tasks.append((cells["joint"], number, items))
                else:
                    del cells["joint"]
            list(ordered_map(lambda task: task[0].add(*task[1:]), tasks))
            if "joint" in cells and cells["joint"].used > most_joint:
                del cells["joint"]
        if not n or self._n not in (None, n):
            self._refuse()
        tables = {
            name: keyed(sums.rows(), 1 if name == "joint" else folds)
            for name, sums in cells.items()
        }
        return sums_of({"part": pile.total(), **tables}, list(self._codes) or [""], n)

    def _parts(self, block: Mapping[str, Any]) -> Ints:
        """Code of each item's group times the number of folds, plus its fold."""
        group = block.get("group", np.zeros(len(block["score"]), dtype=np.int64))
        if self._folds.by == "none":
            return group
        if self._folds.by == "column" and not FOLDS.hold(block["fold"]):
            raise _NotValidError
        fold = fold_of(self._folds, block, self._outcome.size, vars(formulas))
        return group * self._folds.number + fold

    def _mapped[Result](
        self, title: str, roles: Sequence[str], work: Callable[[Mapping[str, Any]], Result]
    ) -> Iterator[Result]:
        """Results of work on blocks of about a million items, in order, made in threads."""

        def run(block: Any) -> tuple[int, Result]:
            columns = zip(block.schema.names, block.columns, strict=True)
            return block.num_rows, work({role: self._numbers(role, c) for role, c in columns})

        blocks = batches(self.table, roles, _BLOCK, self.items.source)
        with phase(title, unit="items", enabled=self._progress) as running:
            try:
                for rows, result in ordered_map(run, blocks):
                    yield result
                    running.advance(rows)
            except _NotValidError:
                self._refuse()

    def _numbers(self, role: str, values: Any) -> NDArray[Any]:
        """Numbers of an Arrow array, NaN where missing; codes of groups, and blocks of clusters."""
        if bounds_of(role):
            return np.asarray(values.to_numpy(zero_copy_only=False))
        if values.null_count:
            raise _NotValidError
        if role == "id":
            return np.asarray(values.to_numpy())
        encoded = values.dictionary_encode()
        words, place = encoded.dictionary.to_pylist(), encoded.indices.to_numpy()
        if role == "cluster":
            return np.asarray(block_of_labels(words)[place])
        marks, dated = len(key_roles(self.items.roles)) - 1, self.items.date
        for word in words:
            day, is_crossed = word.partition(CROSS)[0], word.count(MARK) == marks
            if (marks and not is_crossed) or (dated and not is_day(day)):
                raise _NotValidError
        with self._lock:
            codes = [self._codes.setdefault(word, len(self._codes)) for word in words]
        return np.array(codes, dtype=np.int64)[place]

    def _refuse(self) -> None:
        """Raise the full error about the items."""
        scan(self.items, self._progress)
        raise ItemsError("the items changed while they were read: try again")


class _NotValidError(Exception):
    """A block of items is not valid; a scan of all items says why."""


@_inlined
def _row_of(index, counts, key, used, shift):  # type: ignore[no-untyped-def]
    """Row of a key; `used`, the next one, if the key is new."""
    mask = len(index) - 1
    place = (np.int64((np.uint64(key >> _NEAR) * _MIX) >> shift) << _NEAR) + (key & _MASK)
    while index[place, 0] != key:
        if index[place, 1] == _EMPTY:
            index[place, 0], index[place, 1], counts[used, 0] = key, used, key
            return used
        place = (place + 1) & mask
    return index[place, 1]


@_compiled
def _enter(index, counts, rows):  # type: ignore[no-untyped-def]
    """Enter the rows of distinct keys into an empty index."""
    shift = np.uint64(64 + _NEAR - np.log2(len(index)))
    for row in range(rows):
        _row_of(index, counts, counts[row, 0], row, shift)


@_inlined
def _key(number, outcome, x, complement, cells):  # type: ignore[no-untyped-def]
    """The number with an item's cells packed behind it."""
    key, noise = number, 0
    for c in range(len(cells)):
        grid, operand, bits, lowest = cells[c]
        value = outcome if operand == 0 else x if operand == 1 else complement
        if grid == 0:
            cell = _exposure_cell(value)
        elif grid == 1:
            cell = _count_cell(value)
        elif grid == 2:
            cell = noise = _noise_cell(value)
        else:
            cell = _value_cell(value, noise)
        key = (key << bits) + (cell - lowest)
    return key


@_compiled
def _add(number, items, cells, powers, form, index, counts, real, used):  # type: ignore[no-untyped-def]
    """Add items to the rows of their keys; returns how many rows there are now."""
    size_power, least = form
    shift = np.uint64(64 + _NEAR - np.log2(len(index)))
    power = np.ones((3, 4))  # of outcomes, sizes and their difference
    last, row = _EMPTY, 0
    for i in range(len(number)):
        y, x = items[1, i], items[2, i]
        outcome = _without_small(y, least)
        key = _key(number[i], outcome, x, x - y, cells)
        if key != last:
            row, last = _row_of(index, counts, key, used, shift), key
            used += row == used
        r = np.uint64(row)  # unsigned, as negative indices count from the end
        counts[r, 1] += 1
        counts[r, 2] += np.int64(y)
        power[0, 1], power[1, 1], power[2, 1] = outcome, x if size_power == 1 else _square(x), x - y
        for f in range(3):
            power[f, 2] = power[f, 1] * power[f, 1]
            power[f, 3] = power[f, 2] * power[f, 1]
        for j in range(len(powers)):
            p_y, p_x, p_rest = powers[j]
            real[r, _HEAD + j] += power[0, p_y] * power[1, p_x] * power[2, p_rest]
    return used


class GroupSum:
    """Sums of items by number and cells, for one table of one kind of outcome."""

    def __init__(self, outcome: Outcome, table: str) -> None:
        layout = outcome.tables[table]
        self._names = layout.reals
        self._cells = layout.cells
        cells, sums = self._cells.values(), [sum_of(name) for name in self._names]
        grids = [(_GRIDS.index(c.grid), _OPERANDS.index(c.role), c.bits, c.low) for c in cells]
        powers = np.array([(s.outcome, s.size, s.complement) for s in sums if s], dtype=np.uint64)
        form = outcome.size_power, outcome.validity.outcome.negligible
        self._form = np.array(grids, dtype=np.int64).reshape(-1, 4), powers, form
        self._bits = sum(cell.bits for cell in cells)
        self.used, self._real = 0, np.zeros((_ROWS, _HEAD + len(self._names)))
        self._index = np.full((4 * _ROWS, 2), _EMPTY)

    def has_keys(self, number: Ints) -> bool:
        """Return True if keys have bits enough for these numbers beside the cells."""
        return int(number.max()) >> (_KEY_BITS - self._bits) == 0

    def add(self, number: Ints, items: Floats) -> None:
        """Add items: numbers (n,); scores, outcomes and sizes (3, n)."""
        if not self.has_keys(number):
            raise StatisticsError(
                "there are too many groups, folds and bins for one table: ask for fewer bins, or "
                "summarize the groups one by one"
            )
        for start in range(0, len(number), _STRIP):
            while self.used + _STRIP > len(self._real):
                self._real = np.concatenate([self._real, np.zeros_like(self._real)])
                self._index = np.full((4 * len(self._real), 2), _EMPTY)
                _enter(self._index, self._real.view(np.int64), self.used)
            strip = slice(start, start + _STRIP)
            rows = self._index, self._real.view(np.int64), self._real, self.used
            self.used = _add(number[strip], items[:, strip], *self._form, *rows)

    def rows(self) -> dict[str, NDArray[Any]]:
        """All rows: their ``number``, cells and sums."""
        real = self._real[: self.used]
        key, n, sum_y = real.view(np.int64)[:, :_HEAD].T
        columns = {"n": n, "sum_y": sum_y}
        columns |= zip(self._names, real[:, _HEAD:].T, strict=True)
        for name, cell in reversed([*self._cells.items()]):
            columns[name] = (key & ((1 << cell.bits) - 1)) + cell.low
            key = key >> cell.bits
        return columns | {"number": key}


def part_sums(outcome: Outcome, number: Ints, items: Floats) -> dict[str, NDArray[Any]]:
    """Sums over runs of items with equal numbers, and the ``number`` of each run."""
    starts = np.flatnonzero(np.diff(number, prepend=-1))
    columns = dict(zip(outcome.bounds, items, strict=True))
    sums = {
        "number": number[starts],
        "n": np.diff(starts, append=len(number)),
        "score_min": np.minimum.reduceat(items[0], starts),
        "score_max": np.maximum.reduceat(items[0], starts),
    }
    for name in set(outcome.sums("part")) - sums.keys():
        sums[name] = np.add.reduceat(summand(name, outcome, columns, vars(formulas)), starts)
    return sums


@_compiled
def _number(score, part, bins, finder, number):  # type: ignore[no-untyped-def]
    """Fill in the part times bins plus the bin; short loops become vector instructions."""
    edges, below, ends, grid, most = finder
    for i in range(len(score)):
        clipped = min(max(score[i], ends[0]), ends[1])
        number[i] = _score_cell(clipped, grid[0], grid[1]) - grid[2]
    for i in range(len(score)):
        lower = below[number[i]]
        passed = 0
        for k in range(most):  # an unpredictable branch costs more than several comparisons
            passed += edges[lower + k] <= score[i]
        number[i] = lower + passed + part[i] * bins


@_compiled
def _sorted(score, outcome, size, number, shift):  # type: ignore[no-untyped-def]
    start = np.zeros((number.max() >> shift) + 2, np.int64)
    ordered, items = np.empty_like(number), np.empty((3, len(number)))
    for i in range(len(score)):
        start[(number[i] >> shift) + 1] += 1
    for k in range(len(start) - 1):
        start[k + 1] += start[k]
    for i in range(len(score)):
        bucket = number[i] >> shift
        place = start[bucket]
        start[bucket] += 1
        items[0, place], items[1, place], items[2, place] = score[i], outcome[i], size[i]
        ordered[place] = number[i]
    return ordered, items


def in_order(
    score: Floats, outcome: Floats, size: Floats, part: Ints, lookup: Lookup, bins: int
) -> tuple[Ints, Floats]:
    """Row numbers (part times bins plus bin) and the items, nearly sorted by these numbers."""
    number, grid = np.empty(len(score), np.int64), lookup.grid
    ends, steps = (lookup.low, lookup.high), (grid.floor, grid.steps, lookup.lowest)
    _number(score, part, bins, (lookup.edges, lookup.below, ends, steps, lookup.most), number)
    numbers = (int(part.max()) + 1) * bins
    return _sorted(score, outcome, size, number, max(numbers.bit_length() - _BUCKET_BITS, 0))
