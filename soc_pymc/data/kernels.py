"""Compiled loops over items, one pair per kind, generated from the kind's declared sums.

The source of each loop is generated from `Outcome`, with the columns of every table in their
declared order.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np

from .._lib.arrays import Floats, Ints
from ..families.cells import (
    CELLS,
    EXACT_COUNTS,
    MOST_VALUE_CELL,
    STEPS,
    VALUE_OCTAVES,
    ZERO_EXPOSURE,
)
from ..families.outcomes import OUTCOMES, Outcome, Sum
from ..families.scales import SCALES, Scale
from ..families.validity import generated

EMPTY = np.iinfo(np.int64).min
_RECENT = 1 << 10  # recent keys; the items of a bin have few different ones
HEAD = 3  # columns before the real sums: key, number of items, another whole number
_EXACT_OCTAVE = 5  # 2^5 = EXACT_COUNTS
_MOST = float(MOST_VALUE_CELL)
_FRACTION, _BIAS = 52, 1023  # bits of a float64's fraction; exponent of 1
_NORMAL = 2.0**-1022  # smaller numbers are less precise
_FAR_OCTAVES = 64
_FAR = 2.0**_FAR_OCTAVES

compiled = numba.njit(cache=True, nogil=True, error_model="numpy")
# functions of arrays are inlined, because reference counting would cost more than their work
inlined = numba.njit(cache=True, nogil=True, error_model="numpy", inline="always")


class HashTable:
    """Rows by key; column 0 of a row is its key, 1 and 2 are whole numbers, the rest real.

    An index of their places is apart from the rows, by open addressing, so that it fits in the
    processor's caches, and rows that appear together stay together.
    """

    def __init__(self, reals: int, rows: int) -> None:
        self.reals = np.zeros((rows, HEAD + reals))
        self.whole: Ints = self.reals.view(np.int64)
        self.index: Ints = np.full((2 * rows, 2), EMPTY)

    def filled(self, rows: Floats) -> "HashTable":
        """The same table after rows with distinct keys, which it has room for."""
        self.reals[: len(rows)] = rows
        _enter(self.index, self.whole, len(rows))
        return self

    def grown(self) -> "HashTable":
        """The rows of a full table in a table twice as large."""
        rows, columns = self.reals.shape
        return HashTable(columns - HEAD, 2 * rows).filled(self.reals)


@inlined
def row_of(index, whole, used, which, key):  # type: ignore[no-untyped-def]
    """Row of a key, the next one if it is new."""
    mask = len(index) - 1
    # Fibonacci hashing, in which int64 products wrap around, of four neighbouring keys at a time:
    # their entries share a line of the processor's cache, and often occur together
    at = ((((key >> 2) * -7046029254386353131 >> 24) << 2) + (key & 3)) & mask
    while index[at, 0] != key:
        if index[at, 0] == EMPTY:
            index[at, 0], index[at, 1] = key, used[which]
            whole[used[which], 0] = key
            used[which] += 1
            break
        at = (at + 1) & mask
    return index[at, 1]


@compiled
def _enter(index, whole, rows):  # type: ignore[no-untyped-def]
    """Enter the first rows into an empty index."""
    used = np.zeros(1, dtype=np.int64)
    for i in range(rows):
        row_of(index, whole, used, 0, whole[i, 0])


@compiled
def _first_bits(size, steps):  # type: ignore[no-untyped-def]
    """`log_linear` of numbers of full precision."""
    return (np.float64(size).view(np.int64) >> (_FRACTION - steps)) - (_BIAS << steps)


@compiled
def log_linear(size, steps):  # type: ignore[no-untyped-def]
    """Octave of a positive number times 2^`steps`, plus the step inside it.

    They are the first bits of the number, which cost a twentieth of taking it apart by `frexp`.
    """
    if size < _NORMAL:
        return _first_bits(size * _FAR, steps) - (_FAR_OCTAVES << steps)
    return _first_bits(size, steps)


@compiled
def score_cell(t, floor, steps):  # type: ignore[no-untyped-def]
    """`binning.Grid.cell`."""
    cell = max(log_linear(abs(t), steps) - (floor << steps) + 1, 0)
    return cell if t > 0 else -cell


@compiled
def exposure_cell(x):  # type: ignore[no-untyped-def]
    """Cell of exposures and noise sds: 16 cells per octave; 0 has its own cell."""
    return log_linear(x, STEPS) if x > 0 else ZERO_EXPOSURE


@compiled
def count_cell(y):  # type: ignore[no-untyped-def]
    """Cell of counts: the count itself below 32, then 16 cells per octave."""
    if y < EXACT_COUNTS:
        return np.int64(y)
    return log_linear(y, STEPS) + EXACT_COUNTS - (_EXACT_OCTAVE << STEPS)


@compiled
def value_cell(y, noise_cell):  # type: ignore[no-untyped-def]
    """Cell of values within the cell of their noise sds; very small values must be 0.

    Cells are a power of two wide, from 1/16 to 1/8 of the noise sd. They are exact for values up to
    a million noise sds from 0; the outermost cells hold all values beyond.
    """
    # clipped as a real number, because far values overflow integers
    cell = np.floor(math.ldexp(y, VALUE_OCTAVES - (noise_cell >> STEPS)))
    return np.int64(min(max(cell, -_MOST), _MOST))


_NAMES = {
    f.__name__: f for f in (exposure_cell, count_cell, value_cell, log_linear, row_of)
} | {"EMPTY": EMPTY, "math": math, "np": np}  # fmt: skip

_GRIDS = {
    "exposure": "exposure_cell({})",
    "count": "count_cell({})",
    "noise": f"log_linear({{}}, {STEPS})",
    "value": "value_cell({}, in_noise_cell)",
}
_OF = {"outcome": "seen", "size": "x", "rest": "x - y"}

_SCORE_SUMS = {
    "score_min": "{0} = min({0}, t)",
    "score_max": "{0} = max({0}, t)",
} | {
    column: "{0} += " + " * ".join([f"at_{scale.suffix}"] * power)
    for scale in SCALES.values()
    for power, column in enumerate(scale.sums, start=1)
}

# several short loops, which are turned into vector instructions, take a third of one long loop
_TOTALS = """
def {name}(score, outcome, size):
    valid, whole, total, absolute, sizes = True, np.int64(0), 0.0, 0.0, 0.0
    low, high, far = math.inf, -math.inf, 0.0
    for i in range(len(score)):
        valid &= is_valid(score[i], outcome[i], size[i])
    if valid:
        for i in range(len(score)):
            y, x = outcome[i], size[i]
            total += y
            absolute += abs(y)
            sizes += {size}
            {exact}
            {farthest}
        for i in range(len(score)):
            t = score[i]
            # plain comparisons: min and max would look for NaN again
            low = t if t < low else low
            high = t if t > high else high
    return valid, whole, total, absolute, sizes, low, high, far
"""

_ADD = """
def {name}(keys, items, codes, folds, bins, coarse, start, used, {arrays}):
    i, n = start, len(items)
    {recent}
    while i < n:
        if {full}:
            return i
        own = keys[i, 0]
        of = own // bins
        key = (codes[of // folds] * folds + of % folds) * bins + own % bins
        wide = key // (bins * folds) * bins + key % bins // max(coarse, 1)
        part = row_of(part_index, part_whole, used, 0, key)
        if part_whole[part, 1] == 0:
            {first_score} = {last_score} = items[i, 1]
{loaded}
        while i < n and keys[i, 0] == own and not ({full_cells}):
            t, y, x = items[i, 1], items[i, 2], items[i, 3]
            i += 1
            seen = {seen}
            sized = {size}
{sums}
{stored}
    return n
"""


@dataclass(frozen=True)
class Kernel:
    """Compiled sums of one kind of items."""

    outcome: Outcome
    # from scores, outcomes and sizes: whether all are valid; sums of outcomes as whole and as real
    # numbers, of their absolute values and of sizes; range of scores; largest outcome in sizes
    totals: Callable[..., Any]
    # adds sorted items (n, 4), whose columns are those of `Sorted`, to all tables; returns where it
    # stopped because a table was full
    add: Callable[..., int]


def _made(outcome: Outcome) -> Kernel:
    size = " * ".join(["x"] * outcome.size_power)
    names = _NAMES | {"is_valid": outcome.validity.is_valid}
    totals = _TOTALS.format(
        name="{name}",
        size=size,
        exact="whole += np.int64(y)" if outcome.exact else "",
        farthest="far = abs(y) / x if abs(y) / x > far else far"
        if math.isfinite(outcome.farthest)
        else "",
    )
    both = {"totals": totals, "add": _add(outcome)}
    return Kernel(
        outcome, **{what: generated(what, text, __file__, names) for what, text in both.items()}
    )


def _add(outcome: Outcome) -> str:
    """Source of the loop that adds items to all tables."""
    tables = outcome.tables
    first = HEAD + len(tables["part"].reals)  # first column of a part's numbers of single outcomes
    cells = dict.fromkeys(cell for table in tables.values() for cell in table.cells.values())
    scales = [scale for scale in SCALES.values() if scale.sums[0] in tables["part"].reals]
    # a part's sums are kept in registers while its items follow each other
    in_table = _column("part", "part")
    kept = {f"part_{k}": in_table(k) for k in range(1, first)}
    lines = [
        *map(_position, scales),
        *_row(outcome, "part", "part_{}".format),
        *(f"in_{c} = {_GRIDS[CELLS[c].grid].format(_OF[CELLS[c].of])}" for c in cells),
    ]
    for name in outcome.margins:
        row = _found_row(outcome, name, "key")
        if outcome.exact and name == outcome.margins[-1]:
            cell = f"in_{tables[name].cells['cell']}"
            lines += [
                f"if {cell} < {outcome.exact}:  # all sums of one outcome follow from its number",
                f"    part_whole[part, {first} + {cell}] += 1",
                "else:",
                *_indented(row),
            ]
        else:
            lines += row
    lines += ["if coarse > 0:", *_indented(_found_row(outcome, "joint", "wide"))]
    negligible = outcome.validity.outcome.negligible
    ends = (tables["part"].reals.index(end) for end in ("score_min", "score_max"))
    low, high = (f"part_reals[part, {HEAD + at}]" for at in ends)
    full = [f"used[{k}] == len({name}_whole)" for k, name in enumerate(tables)]
    return _ADD.format(
        name="{name}",
        arrays=", ".join(f"{name}_index, {name}_whole, {name}_reals" for name in tables),
        full=" or ".join(full),
        full_cells=" or ".join(full[1:]),
        seen=f"y if abs(y) >= {negligible!r} else 0.0" if negligible else "y",
        size=" * ".join(["x"] * outcome.size_power),
        recent="\n    ".join(
            f"recent_{name} = np.full(({_RECENT}, 2), EMPTY)" for name in tables if name != "part"
        ),
        first_score=low,
        last_score=high,
        loaded="\n".join(_indented([f"{own} = {row}" for own, row in kept.items()], 8)),
        sums="\n".join(_indented(lines, 12)),
        stored="\n".join(_indented([f"{row} = {own}" for own, row in kept.items()], 8)),
    )


def _column(name: str, at: str) -> Callable[[int], str]:
    """Source of column k of a row, as a whole or as a real number."""
    return lambda k: f"{name}_{'whole' if k < HEAD else 'reals'}[{at}, {k}]"


def _found_row(outcome: Outcome, name: str, key: str) -> list[str]:
    """Source that adds an item to the row of its cells in the part with this key."""
    which = list(outcome.tables).index(name)
    return [  # recent keys are found at once
        f"wanted = {_key(outcome, name, key)}",
        f"near = (wanted ^ (wanted >> 6)) & {_RECENT - 1}",
        f"if recent_{name}[near, 0] == wanted:",
        f"    at = recent_{name}[near, 1]",
        "else:",
        f"    at = row_of({name}_index, {name}_whole, used, {which}, wanted)",
        f"    recent_{name}[near, 0], recent_{name}[near, 1] = wanted, at",
        *_row(outcome, name, _column(name, "at")),
    ]


def _position(scale: Scale) -> str:
    """Source of an item's position, NaN if the score has none."""
    ends = ((scale.low, ">"), (scale.high, "<"))
    inside = [f"t {sign} {end!r}" for end, sign in ends if math.isfinite(end)]
    otherwise = f" if {' and '.join(inside)} else math.nan" if inside else ""
    return f"at_{scale.suffix} = {scale.source}{otherwise}"


def _key(outcome: Outcome, name: str, key: str) -> str:
    """Source of the packed key of an item's cells in a table."""
    for cell in outcome.tables[name].cells.values():
        key = f"(({key} << {CELLS[cell].bits}) + in_{cell} - ({CELLS[cell].first}))"
    return key


def _row(outcome: Outcome, name: str, target: Callable[[int], str]) -> list[str]:
    """Source that adds an item to one row of a table, whose columns `target` names."""
    lines: list[str] = []
    of_outcome: list[str] = []
    for k, column in enumerate(outcome.integers, start=1):
        value = "np.int64(y)" if outcome.sums_of[column].outcome else "1"
        lines.append(f"{target(k)} += {value}")
    for k, column in enumerate(outcome.tables[name].reals, start=HEAD):
        if column in _SCORE_SUMS:
            lines.append(_SCORE_SUMS[column].format(target(k)))
            continue
        of = outcome.sums_of[column]
        (of_outcome if of.outcome else lines).append(f"{target(k)} += {_term(of)}")
    if of_outcome and outcome.validity.outcome.least == 0.0:  # many outcomes are 0
        return [*lines, "if y > 0.0:", *_indented(of_outcome)]
    return lines + of_outcome


def _term(of: Sum) -> str:
    if of.of == "log":
        return "y * math.log(sized)"
    if of.of == "above":
        return "(y > sized)"
    if (of.outcome, of.size) == (1, 0):
        return "y"  # a sum of outcomes leaves none out, however small
    return " * ".join(["seen"] * of.outcome + ["sized"] * of.size + ["(x - y)"] * of.rest)


def _indented(lines: list[str], by: int = 4) -> list[str]:
    return [" " * by + line for line in lines]


KERNELS: Mapping[str, Kernel] = {kind: _made(outcome) for kind, outcome in OUTCOMES.items()}
"""Kernels by kind of items."""
