"""Compiled loops that sum many items; few are summed by the functions of these names in `local`."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numba
import numpy as np
from numba.extending import register_jitable

from .._lib.arrays import Floats, Ints
from .binning import Lookup
from .formulas import (
    Functions,
    count_cell,
    exposure_cell,
    first_bits,
    noise_cell,
    score_cell,
    square,
    value_cell,
    without_small,
)
from .local import HEAD, UNWEIGHTED, bucket_shift

if TYPE_CHECKING:
    from .local import GroupSum

_EMPTY = -1
_LEAST_INDEX = 1 << 12
_NO_INDEX = np.empty((0, 2), dtype=np.int64)
_NO_KEYS = np.empty(0, dtype=np.int64)
_ALL_BITS = 63
# 2^64 over the golden ratio: Fibonacci hashing
_MIX = np.uint64(11400714819323198485)
# neighbouring keys are looked for near each other
_NEAR = 3
_MASK = 7
_OPERANDS = ("outcome", "size", "rest")
_GRIDS = ("exposure", "count", "noise", "value")
_compiled = numba.njit(cache=True, nogil=True, error_model="numpy")
# functions of arrays are inlined, because reference counting would cost more than their work
_inlined = numba.njit(cache=True, nogil=True, error_model="numpy", inline="always")


# each has a name of its own: Numba's cache takes functions of one name and one signature, such as
# lambdas, for each other if different processes compiled them
@_compiled
def _where(condition, yes, no):
    return yes if condition else no


@_compiled
def _bits(number):
    return np.float64(number).view(np.int64)


@_compiled
def _real(number):
    return np.float64(number)


@_compiled
def _low(a, b):
    return min(a, b)


@_compiled
def _high(a, b):
    return max(a, b)


@_compiled
def _log(number):
    return math.log(number)


@_compiled
def _floor(number):
    return math.floor(number)


@_compiled
def _whole(number):
    return np.int64(number)


@_compiled
def _modulo(number, by):
    return number % by


@_compiled
def _power_of_two(exponent):
    return math.ldexp(1.0, exponent)


@_compiled
def _log_linear(size, steps):
    return first_bits(size, steps, _where, _bits)


_XP = Functions(
    where=_where,
    low=_low,
    high=_high,
    log=_log,
    floor=_floor,
    whole=_whole,
    real=_real,
    exact=_real,
    modulo=_modulo,
    power_of_two=_power_of_two,
    log_linear=_log_linear,
)
for _formula in (
    first_bits, score_cell, exposure_cell, count_cell, noise_cell, value_cell, square,
    without_small,
):  # fmt: skip
    register_jitable(_formula)


def add(number: Ints, items: Floats, sums: "GroupSum") -> None:
    """Add items to the rows of their keys."""
    cells = [
        (_GRIDS.index(cell.grid), _OPERANDS.index(cell.role), cell.bits, cell.low)
        for cell in sums.cells.values()
    ]
    layout = np.array(cells, dtype=np.int64).reshape(-1, 4)
    key = _keys(sums.numbers_of(number), items, layout, sums.least)
    # equal keys are near each other, as items are in the order of buckets
    bits = sums.bits + bucket_shift(number)
    row, keys, _ = _rows_of(key, _NO_KEYS, bits, _NO_INDEX)
    if len(sums.keys) or sums.merges_folds:
        row_of_key, keys, sums.index = _rows_of(keys, sums.keys, _ALL_BITS, sums.index)
        row_of_key.take(row, out=row, mode="clip")
    if sums.make_rows(keys):
        powers = np.array(sums.powers, dtype=np.uint64)
        _sum(row, items, powers, (sums.size_power, sums.least), sums.counts, sums.real)


def _rows_of(
    key: Ints, known: Ints, bits: int, index: Ints | None
) -> tuple[Ints, Ints, Ints]:
    """Row of each key, in its place, all distinct keys, those `known` first, and their index.

    A key is taken for new where all bits but the last `bits` are not those of the one before.
    """
    keys = np.empty(len(known) + len(key), dtype=np.int64)
    keys[: len(known)] = known
    index = _NO_INDEX if index is None else index
    used, index = _find(key, keys, len(known), bits, index)
    return key, keys[:used].copy(), index


@_compiled
def _find(key, keys, used, bits, index):
    """Put rows in the place of keys, and fill in new keys; returns the rows used and the index."""
    shift = _shift(index)
    first = 0
    last = 0
    for i in range(len(key)):
        if key[i] >> bits != last:
            last = key[i] >> bits
            first = used
        if 2 * (used - first) >= len(index):
            size = _LEAST_INDEX
            while size < 4 * (used - first):
                size *= 2
            index = np.full((size, 2), _EMPTY)
            shift = _shift(index)
            for earlier in range(first, used):
                _row_of(index, keys, keys[earlier], first, earlier, shift)
        key[i] = _row_of(index, keys, key[i], first, used, shift)
        used += key[i] == used
    return used, index


@_inlined
def _shift(index):
    """Bits by which to shift hashes to places of neighbours."""
    return np.uint64(64 + _NEAR - np.log2(max(len(index), 1)))


@_inlined
def _row_of(index, keys, key, first, used, shift):
    """Row of a key, from the row `first` on; `used`, the next one, if the key is new."""
    mask = len(index) - 1
    place = (np.int64((np.uint64(key >> _NEAR) * _MIX) >> shift) << _NEAR) + (
        key & _MASK
    )
    # places of earlier rows are free
    while index[place, 1] >= first:
        if index[place, 0] == key:
            return index[place, 1]
        place = (place + 1) & mask
    index[place, 0] = key
    index[place, 1] = used
    keys[used] = key
    return used


@_compiled
def _keys(number, items, cells, least):
    """The numbers with the items' cells packed behind them."""
    keys = number.copy()
    for i in range(len(number)):
        y = items[1, i]
        x = items[2, i]
        noise = 0
        for c in range(len(cells)):
            grid, operand, bits, lowest = cells[c]
            value = x - y
            if operand == 0:
                value = without_small(y, least, _XP)
            elif operand == 1:
                value = x
            if grid == 0:
                cell = exposure_cell(value, _XP)
            elif grid == 1:
                cell = count_cell(value, _XP)
            elif grid == 2:
                cell = noise = noise_cell(value, _XP)
            else:
                cell = value_cell(value, noise, _XP)
            keys[i] = (keys[i] << bits) + (cell - lowest)
    return keys


@_compiled
def _sum(row, items, powers, limits, counts, real):
    """Add items to their rows of whole numbers and of sums."""
    size_power, least = limits
    power = np.ones((3, 4))  # outcomes, sizes, their difference
    weighted = len(items) > UNWEIGHTED
    weight = 1.0
    for i in range(len(row)):
        y = items[1, i]
        x = items[2, i]
        # unsigned, as negative indices count from the end
        r = np.uint64(row[i])
        if weighted:
            weight = items[UNWEIGHTED, i]
        counts[r, 0] += np.int64(weight)
        counts[r, 1] += np.int64(y) * np.int64(weight)
        power[0, 1] = without_small(y, least, _XP)
        power[1, 1] = x if size_power == 1 else square(x, _XP)
        power[2, 1] = x - y
        for f in range(3):
            power[f, 2] = power[f, 1] * power[f, 1]
            power[f, 3] = power[f, 2] * power[f, 1]
        for j in range(len(powers)):
            p_y, p_x, p_rest = powers[j]
            product = power[0, p_y] * power[1, p_x] * power[2, p_rest]
            real[r, HEAD + j] += weight * product


def in_order(
    part: Ints, items: Sequence[Floats], lookup: Lookup, bins: int
) -> tuple[Ints, Floats]:
    """Row numbers (part times bins plus bin) and the items, nearly sorted by these numbers."""
    grid, *finder = lookup
    number = _number(items[0], part, (tuple(grid), *finder), bins)
    ordered = np.empty_like(number)
    sorted_items = np.empty((len(items), len(number)))
    columns = tuple(map(_read_only, items))
    _sort(number, columns, bucket_shift(number), ordered, sorted_items)
    return ordered, sorted_items


def _read_only(values: Floats) -> Floats:
    """Contiguous numbers that cannot be written to: a tuple of these has one type."""
    view = np.ascontiguousarray(values).view()
    view.flags.writeable = False
    return view


@_compiled
def _number(score, part, lookup, bins):
    """The part times bins plus the bin; short loops become vector instructions."""
    (floor, steps), (low, high), lowest, below, most, edges = lookup
    number = np.empty(len(score), np.int64)
    for i in range(len(score)):
        clipped = min(max(score[i], low), high)
        number[i] = score_cell(clipped, floor, steps, _XP) - lowest
    for i in range(len(score)):
        lower = below[number[i]]
        passed = 0
        # an unpredictable branch costs more than several comparisons
        for k in range(most):
            passed += edges[lower + k] <= score[i]
        number[i] = lower + passed + part[i] * bins
    return number


@_compiled
def _sort(number, items, shift, ordered, sorted_items):
    """Fill in the numbers and items, sorted by the leading bits of the numbers."""
    start = np.zeros((number.max() >> shift) + 2, np.int64)
    for i in range(len(number)):
        start[(number[i] >> shift) + 1] += 1
    for k in range(len(start) - 1):
        start[k + 1] += start[k]
    for i in range(len(number)):
        bucket = number[i] >> shift
        place = start[bucket]
        start[bucket] += 1
        for column in range(len(items)):
            sorted_items[column, place] = items[column][i]
        ordered[place] = number[i]
