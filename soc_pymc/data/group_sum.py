"""Sums of items by key: one compiled loop for the tables of every kind of outcome."""

from collections.abc import Mapping, Sequence
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from .._lib.arrays import Floats, Ints
from .._lib.errors import StatisticsError
from .._lib.threads import ordered_map
from ..families.cells import CELLS
from ..families.outcomes import Outcome
from .binning import EXTREMES, Joint
from .formulas import cell_names, cells_of, terms_of, whole_sums
from .piles import Piles

_EMPTY = -1
_ROWS = 1 << 10  # of a table at first
_STRIP = 1 << 16  # items whose terms are made at once
_MIX = np.uint64(11400714819323198485)  # 2^64 over the golden ratio: Fibonacci hashing
_NEAR, _MASK = 3, 7  # neighbouring keys are looked for near each other
_KEY_BITS = 62
_SLOTS = 4  # of the index for each row
_ORDER_BITS = 16  # by which items are put in order

_compiled = numba.njit(cache=True, nogil=True, error_model="numpy")
# functions of arrays are inlined, because reference counting would cost more than their work
_inlined = numba.njit(cache=True, nogil=True, error_model="numpy", inline="always")


@_inlined
def _row_of(index, whole, key, used, shift):  # type: ignore[no-untyped-def]
    """Row of a key; `used`, the next one, if the key is new."""
    mask = len(index) - 1
    place = (np.int64((np.uint64(key >> _NEAR) * _MIX) >> shift) << _NEAR) + (key & _MASK)
    while True:
        row = np.int64(index[np.uint64(place)])
        if row == _EMPTY:
            index[place], whole[used, 0] = used, key
            return used
        if whole[np.uint64(row), 0] == key:
            return row
        place = (place + 1) & mask


@_compiled
def _enter(index, whole, rows):  # type: ignore[no-untyped-def]
    """Enter the rows of distinct keys into an empty index."""
    shift = np.uint64(64 + _NEAR - np.log2(len(index)))
    for row in range(rows):
        _row_of(index, whole, whole[row, 0], row, shift)


@_compiled
def _add(keys, terms, which, counts, score, index, whole, real, used):  # type: ignore[no-untyped-def]
    """Add items to the rows of their keys; returns how many rows there are now.

    `which` are the columns of the terms to add, whole numbers first, of which there are `counts`.
    """
    shift = np.uint64(64 + _NEAR - np.log2(len(index)))
    ends = real.shape[1] - 2
    last, row = _EMPTY, 0
    for i in range(len(keys)):
        key, new = keys[i], False
        if key != last:
            row, last = _row_of(index, whole, key, used, shift), key
            new = row == used
            used += new
        r = np.uint64(row)  # as numbers without a sign are no places from the end
        whole[r, 1] += 1
        for j in range(counts):
            whole[r, 2 + j] += np.int64(terms[which[j], i])
        for j in range(counts, len(which)):
            real[r, 2 + j] += terms[which[j], i]
        if len(score):
            real[r, ends] = score[i] if new else min(real[r, ends], score[i])
            real[r, ends + 1] = score[i] if new else max(real[r, ends + 1], score[i])
    return used


class _GroupSum:
    """Sums of one table by key, in bounded memory; rows are in the order in which keys appear."""

    def __init__(self, outcome: Outcome, table: str, summed: Sequence[str]) -> None:
        layout = outcome.tables[table]
        kept = {*outcome.integers, *layout.reals, *(summed if table == "part" else ())}
        self._names = [name for name in summed if name in kept]
        self._counts = sum(name in whole_sums(outcome) for name in self._names)
        self._which = np.array([summed.index(name) for name in self._names], dtype=np.uint64)
        self._ends = [name for name in layout.reals if name in EXTREMES]
        self._cells = {key: (name, CELLS[name]) for key, name in layout.cells.items()}
        self._sums = np.zeros((_ROWS, 2 + len(self._names) + len(self._ends)))
        self._index = _index_of(_ROWS)
        self._used = 0

    def __len__(self) -> int:
        return self._used

    def add(self, number: Ints, cells: Mapping[str, Ints], terms: Floats, score: Floats) -> None:
        """Add items; a key is packed from the number of group, fold and bin, and the cells."""
        key = number
        if int(key.max()) >> (_KEY_BITS - sum(cell.bits for _, cell in self._cells.values())):
            raise StatisticsError(
                "there are too many groups, folds and bins for one table: ask for fewer bins, or "
                "summarize the groups one by one"
            )
        for name, cell in self._cells.values():
            key = (key << cell.bits) + (cells[name] - cell.first)
        self._make_room(len(key))
        ends = score if self._ends else np.empty(0)
        sums = self._index, self._sums.view(np.int64), self._sums, self._used
        self._used = _add(key, terms, self._which, self._counts, ends, *sums)

    def columns(self) -> dict[str, NDArray[Any]]:
        """The ``number``, the cells and the sums of every row."""
        real = self._sums[: self._used]
        whole = real.view(np.int64)
        key = whole[:, 0].copy()
        columns: dict[str, NDArray[Any]] = {"n": whole[:, 1]}
        for name, (_, cell) in reversed(self._cells.items()):
            columns[name] = (key & ((1 << cell.bits) - 1)) + cell.first
            key >>= cell.bits
        for place, name in enumerate([*self._names, *self._ends]):
            columns[name] = (whole if place < self._counts else real)[:, 2 + place]
        return {"number": key, **columns}

    def _make_room(self, rows: int) -> None:
        while self._used + rows > len(self._sums):
            self._sums = np.concatenate([self._sums, np.zeros_like(self._sums)])
            self._index = _index_of(len(self._sums))
            _enter(self._index, self._sums.view(np.int64), self._used)


class TableSums:
    """Sums of all tables of one kind of outcome; joint cells go to the piles beyond a budget."""

    def __init__(self, outcome: Outcome, joint: Joint, bins: int, folds: int) -> None:
        self._outcome, self._most, self._bins, self._folds = outcome, joint.most, bins, folds
        reals = outcome.reals([*outcome.tables])
        self._summed = [name for name in whole_sums(outcome) if name != "n"]
        self._summed += [name for name in reals if name not in EXTREMES]
        self._sums = {name: self._empty(name) for name in outcome.tables}
        self.piles = Piles(outcome, joint, bins)

    def _empty(self, name: str) -> _GroupSum:
        return _GroupSum(self._outcome, name, self._summed)

    def add(self, number: Ints, items: Mapping[str, Floats]) -> None:
        """Add items by role, in order; a number is that of group, fold and bin."""
        for start in range(0, len(number), _STRIP):
            part = slice(start, start + _STRIP)
            self._add(number[part], {role: values[part] for role, values in items.items()})

    def _add(self, number: Ints, items: Mapping[str, Floats]) -> None:
        cells = cells_of(self._outcome, items, cell_names(self._outcome))
        values = terms_of(self._outcome, items, self._summed)
        terms = np.array([values[name] for name in self._summed], dtype=np.float64)

        def add(name: str) -> None:
            wide, coarse = number, self.piles.coarse
            if name == "joint" and (self._folds > 1 or coarse > 1):
                part, bins = np.divmod(number, self._bins)  # the first of merged bins
                wide = part // self._folds * self._bins + bins - bins % coarse
            self._sums[name].add(wide, cells, terms, items["score"])

        for _ in ordered_map(add, [n for n in self._sums if n != "joint" or self.piles.coarse]):
            pass
        if len(self._sums["joint"]) > self._most:
            self._flush("joint")

    def _flush(self, name: str) -> None:
        """Move the rows of a table to the piles."""
        columns = self._sums[name].columns()
        self._sums[name] = self._empty(name)
        part, columns["bin"] = np.divmod(columns.pop("number"), self._bins)
        columns["group"], columns["fold"] = np.divmod(part, 1 if name == "joint" else self._folds)
        self.piles.add({name: columns})

    def total(self) -> Piles:
        """All rows, in the piles."""
        for name in self._sums:
            self._flush(name)
        return self.piles


def _index_of(rows: int) -> NDArray[np.int32]:
    return np.full(_SLOTS * rows, _EMPTY, dtype=np.int32)


def nearly_sorted(number: Ints) -> NDArray[np.intp]:
    """Stable order of items by the first bits of their numbers, for keys near each other."""
    shift = max(int(number.max()).bit_length() - _ORDER_BITS, 0)
    return np.argsort((number >> shift).astype(np.uint16), kind="stable")
