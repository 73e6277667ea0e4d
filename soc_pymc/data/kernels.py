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
# items added at once; the table has room for as many new rows
_STRIP = 1 << 14
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
    # plain tuples, as Numba's cache cannot be read where a class in it has gone
    layout = (
        np.array(cells, dtype=np.int64).reshape(-1, 4),
        np.array(sums.powers, dtype=np.uint64),
        sums.size_power,
        sums.least,
    )
    for start in range(0, len(number), _STRIP):
        sums.make_room(_STRIP)
        if sums.index is None:
            sums.index = np.full((4 * len(sums.real), 2), _EMPTY)
            _enter(sums.index, sums.counts, sums.used)
        strip = slice(start, start + _STRIP)
        rows = sums.index, sums.counts, sums.real, sums.used
        sums.used = _add(number[strip], items[:, strip], layout, rows)


@_inlined
def _row_of(index, counts, key, used, shift):
    """Row of a key; `used`, the next one, if the key is new."""
    mask = len(index) - 1
    place = (np.int64((np.uint64(key >> _NEAR) * _MIX) >> shift) << _NEAR) + (
        key & _MASK
    )
    while index[place, 0] != key:
        if index[place, 1] == _EMPTY:
            index[place, 0] = key
            index[place, 1] = used
            counts[used, 0] = key
            return used
        place = (place + 1) & mask
    return index[place, 1]


@_compiled
def _enter(index, counts, rows):
    """Enter the rows of distinct keys into an empty index."""
    shift = np.uint64(64 + _NEAR - np.log2(len(index)))
    for row in range(rows):
        _row_of(index, counts, counts[row, 0], row, shift)


@_inlined
def _key(number, outcome, x, complement, cells):
    """The number with an item's cells packed behind it."""
    key = number
    noise = 0
    for c in range(len(cells)):
        grid, operand, bits, lowest = cells[c]
        value = complement
        if operand == 0:
            value = outcome
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
        key = (key << bits) + (cell - lowest)
    return key


@_compiled
def _add(number, items, layout, rows):
    """Add items to the rows of their keys; returns how many rows there are now."""
    cells, powers, size_power, least = layout
    index, counts, real, used = rows
    shift = np.uint64(64 + _NEAR - np.log2(len(index)))
    power = np.ones((3, 4))  # of outcomes, sizes and their difference
    weighted = len(items) > UNWEIGHTED
    weight = 1.0
    last = _EMPTY
    row = 0
    for i in range(len(number)):
        y = items[1, i]
        x = items[2, i]
        outcome = without_small(y, least, _XP)
        key = _key(number[i], outcome, x, x - y, cells)
        if key != last:
            row = _row_of(index, counts, key, used, shift)
            last = key
            used += row == used
        # unsigned, as negative indices count from the end
        r = np.uint64(row)
        if weighted:
            weight = items[UNWEIGHTED, i]
        counts[r, 1] += np.int64(weight)
        counts[r, 2] += np.int64(y) * np.int64(weight)
        power[0, 1] = outcome
        power[1, 1] = x if size_power == 1 else square(x, _XP)
        power[2, 1] = x - y
        for f in range(3):
            power[f, 2] = power[f, 1] * power[f, 1]
            power[f, 3] = power[f, 2] * power[f, 1]
        for j in range(len(powers)):
            p_y, p_x, p_rest = powers[j]
            product = power[0, p_y] * power[1, p_x] * power[2, p_rest]
            real[r, HEAD + j] += weight * product
    return used


def in_order(
    part: Ints, items: Sequence[Floats], lookup: Lookup, bins: int
) -> tuple[Ints, Floats]:
    """Row numbers (part times bins plus bin) and the items, nearly sorted by these numbers."""
    grid, *finder = lookup
    number = _number(items[0], part, (tuple(grid), *finder), bins)
    ordered = np.empty_like(number)
    sorted_items = np.empty((len(items), len(number)))
    columns = tuple(map(_read_only, items))
    _sort(number, columns, bucket_shift(part, bins), ordered, sorted_items)
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
