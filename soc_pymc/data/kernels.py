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
HEAD = 3  # columns before the real sums: key, number of items, another whole number
_FIRST_SLOTS = 1 << 12
_SIXTEEN = 1 << STEPS
_EXACT_OCTAVE = 5  # 2^5 = EXACT_COUNTS
_MOST = float(MOST_VALUE_CELL)

compiled = numba.njit(cache=True, nogil=True, error_model="numpy")
# functions of arrays are inlined, because reference counting would cost more than their work
inlined = numba.njit(cache=True, nogil=True, error_model="numpy", inline="always")


class HashTable:
    """Open addressing; column 0 of a row is its key, 1 and 2 are whole numbers, the rest real."""

    def __init__(self, reals: int, slots: int = _FIRST_SLOTS) -> None:
        self.reals = np.zeros((slots, HEAD + reals))
        self.whole: Ints = self.reals.view(np.int64)
        self.whole[:, 0] = EMPTY

    def rows(self) -> tuple[Ints, Ints, Floats]:
        """Keys, whole numbers and real sums of the rows in use."""
        used = self.whole[:, 0] != EMPTY
        return self.whole[used, 0], self.whole[used, 1:HEAD], self.reals[used, HEAD:]

    def fill(self, keys: Ints, whole: Ints, reals: Floats) -> None:
        """Insert rows with distinct keys into an empty table that is large enough."""
        at = np.empty(len(keys), dtype=np.int64)
        _claim(self.whole, keys, at)
        self.whole[at, 1:HEAD], self.reals[at, HEAD:] = whole, reals

    def grown(self) -> "HashTable":
        """The same rows in a table four times as large."""
        bigger = HashTable(self.reals.shape[1] - HEAD, 4 * len(self.reals))
        bigger.fill(*self.rows())
        return bigger


@inlined
def slot(whole, used, which, key):  # type: ignore[no-untyped-def]
    """Row of a key, claimed if it is new."""
    mask = len(whole) - 1
    # Fibonacci hashing; int64 products wrap around
    at = ((key * -7046029254386353131) >> 24) & mask
    while whole[at, 0] != key:
        if whole[at, 0] == EMPTY:
            whole[at, 0] = key
            used[which] += 1
            break
        at = (at + 1) & mask
    return at


@compiled
def _claim(whole, keys, out):  # type: ignore[no-untyped-def]
    used = np.zeros(1, dtype=np.int64)
    for i in range(len(keys)):
        out[i] = slot(whole, used, 0, keys[i])


@compiled
def log_linear(size, unit):  # type: ignore[no-untyped-def]
    """Octave of a positive number times `unit`, plus the step inside it."""
    fraction, exponent = math.frexp(size)
    return (exponent - 1) * unit + np.int64((2.0 * fraction - 1.0) * unit)


@compiled
def score_cell(t, floor, steps):  # type: ignore[no-untyped-def]
    """`binning.Grid.cell`."""
    size = abs(t)
    if size < math.ldexp(1.0, floor):
        return 0
    cell = log_linear(size, 1 << steps) - (floor << steps) + 1
    return cell if t > 0 else -cell


@compiled
def exposure_cell(x):  # type: ignore[no-untyped-def]
    """Cell of exposures and noise sds: 16 cells per octave; 0 has its own cell."""
    return log_linear(x, _SIXTEEN) if x > 0 else ZERO_EXPOSURE


@compiled
def count_cell(y):  # type: ignore[no-untyped-def]
    """Cell of counts: the count itself below 32, then 16 cells per octave."""
    if y < EXACT_COUNTS:
        return np.int64(y)
    return log_linear(y, _SIXTEEN) + EXACT_COUNTS - _EXACT_OCTAVE * _SIXTEEN


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
    f.__name__: f for f in (exposure_cell, count_cell, value_cell, log_linear, slot)
} | {"EMPTY": EMPTY, "math": math, "np": np}  # fmt: skip

_GRIDS = {
    "exposure": "exposure_cell({})",
    "count": "count_cell({})",
    "noise": f"log_linear({{}}, {_SIXTEEN})",
    "value": "value_cell({}, in_noise_cell)",
}
_OF = {"outcome": "seen", "size": "x"}

_SCORE_SUMS = {
    "score_min": "{0} = min({0}, t)",
    "score_max": "{0} = max({0}, t)",
} | {
    column: "{0} += " + " * ".join([f"at_{scale.suffix}"] * power)
    for scale in SCALES.values()
    for power, column in enumerate(scale.sums, start=1)
}

_TOTALS = """
def {name}(score, outcome, size):
    valid, whole, total, absolute, sizes = True, np.int64(0), 0.0, 0.0, 0.0
    low, high, far = math.inf, -math.inf, 0.0
    for i in range(len(score)):
        t, y, x = score[i], outcome[i], size[i]
        if not is_valid(t, y, x):
            valid = False
            break
        total += y
        absolute += abs(y)
        sizes += {size}
        # plain comparisons: min and max would look for NaN again
        low = t if t < low else low
        high = t if t > high else high
        {exact}
        {farthest}
    return valid, whole, total, absolute, sizes, low, high, far
"""

_ADD = """
def {name}(items, folds, bins, coarse, start, used, {arrays}):
    keys, score, outcome, size = items
    last, part = EMPTY, 0
    for i in range(start, len(score)):
        if {full}:
            return i
        key, t, y, x = keys[i], score[i], outcome[i], size[i]
        if key != last:
            last, part = key, slot(part_whole, used, 0, key)
        seen = {seen}
        sized = {size}
{positions}
        if part_whole[part, 1] == 0:
            {first_score} = {last_score} = t
{sums}
    return len(score)
"""


@dataclass(frozen=True)
class Kernel:
    """Compiled sums of one kind of items."""

    outcome: Outcome
    # from scores, outcomes and sizes: whether all are valid; sums of outcomes as whole and as real
    # numbers, of their absolute values and of sizes; range of scores; largest outcome in sizes
    totals: Callable[..., Any]
    # adds sorted items to all tables; returns where it stopped because a table was full
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
    lines = [
        *_row(outcome, "part", "part"),
        *(f"in_{c} = {_GRIDS[CELLS[c].grid].format(_OF[CELLS[c].of])}" for c in cells),
    ]
    for which, name in enumerate(outcome.margins, start=1):
        row = [f"at = slot({name}_whole, used, {which}, {_key(outcome, name, 'key')})"]
        row += _row(outcome, name, "at")
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
    key = _key(outcome, "joint", "wide")
    joint = [
        "wide = key // (bins * folds) * bins + key % bins // coarse",
        f"at = slot(joint_whole, used, {len(tables) - 1}, {key})",
        *_row(outcome, "joint", "at"),
    ]
    lines += ["if coarse > 0:", *_indented(joint)]
    negligible = outcome.validity.outcome.negligible
    scales = [scale for scale in SCALES.values() if scale.sums[0] in tables["part"].reals]
    ends = (tables["part"].reals.index(end) for end in ("score_min", "score_max"))
    low, high = (f"part_reals[part, {HEAD + at}]" for at in ends)
    return _ADD.format(
        name="{name}",
        arrays=", ".join(f"{name}_whole, {name}_reals" for name in tables),
        full=" or ".join(f"2 * used[{k}] > len({name}_whole)" for k, name in enumerate(tables)),
        seen=f"y if abs(y) >= {negligible!r} else 0.0" if negligible else "y",
        size=" * ".join(["x"] * outcome.size_power),
        positions="\n".join(_indented(list(map(_position, scales)), 8)),
        first_score=low,
        last_score=high,
        sums="\n".join(_indented(lines, 8)),
    )


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


def _row(outcome: Outcome, name: str, at: str) -> list[str]:
    """Source that adds an item to one row of a table."""
    lines: list[str] = []
    of_outcome: list[str] = []
    for k, column in enumerate(outcome.integers, start=1):
        value = "np.int64(y)" if outcome.sums_of[column].outcome else "1"
        lines.append(f"{name}_whole[{at}, {k}] += {value}")
    for k, column in enumerate(outcome.tables[name].reals, start=HEAD):
        target = f"{name}_reals[{at}, {k}]"
        if column in _SCORE_SUMS:
            lines.append(_SCORE_SUMS[column].format(target))
            continue
        of = outcome.sums_of[column]
        (of_outcome if of.outcome else lines).append(f"{target} += {_term(of)}")
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
    return " * ".join(["seen"] * of.outcome + ["sized"] * of.size)


def _indented(lines: list[str], by: int = 4) -> list[str]:
    return [" " * by + line for line in lines]


KERNELS: Mapping[str, Kernel] = {kind: _made(outcome) for kind, outcome in OUTCOMES.items()}
"""Kernels by kind of items."""
