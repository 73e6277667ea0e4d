"""Sums of items by key: one compiled loop for the tables of every kind of outcome."""

import math
import operator
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from .._lib.arrays import Floats, Ints
from .._lib.errors import StatisticsError
from ..families.outcomes import Outcome
from ..families.scales import CELLS
from . import formulas
from .binning import Lookup
from .formulas import rebound, summand

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


# --- a table of rows by key -----------------------------------------------------------------------


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


@_inlined
def _add_products(real, r, power, powers, outcome, x, complement):  # type: ignore[no-untyped-def]
    power[0, 1], power[1, 1], power[2, 1] = outcome, x, complement
    for f in range(3):
        power[f, 2] = power[f, 1] * power[f, 1]
        power[f, 3] = power[f, 2] * power[f, 1]
    for j in range(len(powers)):
        p_y, p_x, p_rest = powers[j]
        real[r, _HEAD + j] += power[0, p_y] * power[1, p_x] * power[2, p_rest]


@_compiled
def _add(number, items, cells, powers, form, index, counts, real, used):  # type: ignore[no-untyped-def]
    """Add items to the rows of their keys; returns how many rows there are now."""
    size_power, least = form
    shift = np.uint64(64 + _NEAR - np.log2(len(index)))
    power = np.ones((3, 4))
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
        sized = x if size_power == 1 else _square(x)
        _add_products(real, r, power, powers, outcome, sized, x - y)
    return used


class GroupSum:
    """Sums of items by key, for one table of cells of one kind of outcome, in bounded memory."""

    def __init__(self, outcome: Outcome, table: str) -> None:
        layout = outcome.tables[table]
        sums = {name: outcome.sums_of[name] for name in layout.reals}
        cells = [CELLS[cell] for cell in layout.cells.values()]
        grids = [(_GRIDS.index(c.grid), _OPERANDS.index(c.role), c.bits, c.low) for c in cells]
        self._cells = dict(zip(layout.cells, cells, strict=True))
        self._names = list(sums)
        self._form: tuple[Any, ...] = (
            np.array(grids, dtype=np.int64).reshape(-1, 4),
            np.array([(s.outcome, s.size, s.complement) for s in sums.values()], dtype=np.uint64),
            (outcome.size_power, outcome.validity.outcome.negligible),
        )
        self._real = np.zeros((_ROWS, _HEAD + len(self._names)))
        self._index = np.full((4 * _ROWS, 2), _EMPTY)
        self._bits = sum(cell.bits for cell in cells)
        self._used = 0

    def __len__(self) -> int:
        return self._used

    def add(self, number: Ints, items: Floats) -> None:
        """Add items: numbers (n,); scores, outcomes and sizes (3, n)."""
        if int(number.max()) >> (_KEY_BITS - self._bits):
            raise StatisticsError(
                "there are too many groups, folds and bins for one table: ask for fewer bins, or "
                "summarize the groups one by one"
            )
        for start in range(0, len(number), _STRIP):
            strip = slice(start, start + _STRIP)
            self._make_room(_STRIP)
            rows = self._real.view(np.int64), self._real, self._used
            self._used = _add(number[strip], items[:, strip], *self._form, self._index, *rows)

    def columns(self) -> dict[str, NDArray[Any]]:
        """The ``number``, the cells and the sums of every row."""
        counts, real = self._real.view(np.int64)[: self._used], self._real[: self._used]
        key, table = counts[:, 0].copy(), {"n": counts[:, 1], "sum_y": counts[:, 2]}
        for name, cell in reversed(self._cells.items()):
            table[name] = (key & ((1 << cell.bits) - 1)) + cell.low
            key >>= cell.bits
        sums = dict(zip(self._names, real[:, _HEAD:].T, strict=True))
        return {"number": key, **table, **sums}

    def _make_room(self, rows: int) -> None:
        while self._used + rows > len(self._real):
            self._real = np.concatenate([self._real, np.zeros_like(self._real)])
            self._index = np.full((4 * len(self._real), 2), _EMPTY)
            _enter(self._index, self._real.view(np.int64), self._used)


def part_sums(outcome: Outcome, number: Ints, items: Floats) -> dict[str, NDArray[Any]]:
    """Sums over runs of items with equal numbers, and the ``number`` of each run."""
    starts = np.flatnonzero(np.diff(number, prepend=-1))
    score, observed, _ = items
    columns = dict(zip(outcome.bounds, items, strict=True))
    sums = {
        "number": number[starts],
        "n": np.diff(starts, append=len(number)),
        "score_min": np.minimum.reduceat(score, starts),
        "score_max": np.maximum.reduceat(score, starts),
    }
    if "sum_y" in outcome.integers:
        sums["sum_y"] = np.add.reduceat(observed.astype(np.int64), starts)
    for name in set(outcome.tables["part"].reals) - sums.keys():
        terms = summand(name, outcome, columns, vars(formulas))
        sums[name] = np.add.reduceat(terms, starts)
    return sums


# --- items in order -------------------------------------------------------------------------------


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
def _sort(score, outcome, size, number, shift, start, ordered, out):  # type: ignore[no-untyped-def]
    for i in range(len(score)):
        start[(number[i] >> shift) + 1] += 1
    for k in range(len(start) - 1):
        start[k + 1] += start[k]
    for i in range(len(score)):
        bucket = number[i] >> shift
        place = start[bucket]
        start[bucket] += 1
        out[0, place], out[1, place], out[2, place] = score[i], outcome[i], size[i]
        ordered[place] = number[i]


def in_order(
    score: Floats, outcome: Floats, size: Floats, part: Ints, lookup: Lookup, bins: int
) -> tuple[Ints, Floats]:
    """Items nearly in the order of their numbers, and these numbers."""
    n = len(score)
    number, ordered, out = np.empty(n, np.int64), np.empty(n, np.int64), np.empty((3, n))
    grid = lookup.grid.floor, lookup.grid.steps, lookup.lowest
    finder = lookup.edges, lookup.below, (lookup.low, lookup.high), grid, lookup.most
    _number(score, part, bins, finder, number)
    most = (int(part.max()) + 1) * bins
    shift = max(most.bit_length() - _BUCKET_BITS, 0)
    start = np.zeros((most >> shift) + 2, dtype=np.int64)
    _sort(score, outcome, size, number, shift, start, ordered, out)
    return ordered, out
