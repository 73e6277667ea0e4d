"""Cells, positions, folds and other formulas of items, each written once.

As they stand they take NumPy arrays. `rebound` gives the same formula with the functions of an
engine's columns in the place of NumPy's. Cells are exact on both, so that every engine puts an item
into the same cell.
"""

import operator
from collections.abc import Callable, Collection, Mapping
from functools import reduce
from types import FunctionType
from typing import Any

import numpy as np

from ..families.cells import (
    CELLS,
    EXACT_COUNTS,
    MOST_VALUE_CELL,
    STEPS,
    VALUE_OCTAVES,
    ZERO_EXPOSURE,
)
from ..families.outcomes import Outcome
from ..families.scales import LINEAR, SCALES, Scale
from ..families.validity import LARGEST_COUNT

_FRACTION, _BIAS = 52, 1023  # bits of a float64's fraction; exponent of 1
_NORMAL = 2.0**-1022  # smaller numbers are less precise
_FAR_OCTAVES = 64
_WIDE_COUNTS = 48  # 16 * 5 - 32: cells of counts >= 32 follow the exact ones
_TINY = 1e-100  # smaller numbers count as 0 in sums of powers: some engines refuse underflow
_MOST_VALUE = float(MOST_VALUE_CELL)
FOLD_PRIME = (1 << 31) - 1
_SHIFT, _FACTOR = 1663, 1327217885  # products of two numbers below the prime fit in 64 bits
_MIX = 1_073_741_789
_ROUNDING = 1e-9  # from a whole number, for which a number is then taken
_FINE = 20  # scores and sizes that differ by less than 2^-20 share a fold
FLOOR = -1022
"""Numbers below 2 to this power are 0 for folds and for the first grid of scores."""

# --- functions that differ between arrays and columns --------------------------------------------

where, low, high, log, floor = np.where, np.minimum, np.maximum, np.log, np.floor
literal: Callable[[Any], Any] = float  # a number that no engine rounds
modulo: Callable[[Any, Any], Any] = np.mod  # never negative


def whole(number: Any) -> Any:
    """Real numbers as whole ones."""
    return np.asarray(number).astype(np.int64)


def real(number: Any) -> Any:
    """Whole numbers as real ones."""
    return np.asarray(number, dtype=np.float64)


def power_of_two(exponent: Any) -> Any:
    """Two to the power of whole numbers."""
    return np.ldexp(1.0, exponent)


def log_linear(size: Any, steps: Any) -> Any:
    """Octave of positive numbers times 2^`steps`, plus the step inside it: their first bits."""
    number = np.asarray(size, dtype=np.float64)
    below = number < _NORMAL
    if below.any():
        scaled = log_linear(np.where(below, number * 2.0**_FAR_OCTAVES, number), steps)
        return scaled - (below * _FAR_OCTAVES << steps)
    return (number.view(np.int64) >> (_FRACTION - steps)) - (_BIAS << steps)


# --- numbers and cells ---------------------------------------------------------------------------


def near_whole(number: Any) -> Any:
    """Numbers, rounded where they are within 1e-9 of a whole one."""
    # not every number fits in an integer, which some engines make of it
    safe = where(high(number, -number) <= LARGEST_COUNT, number, 0.0)
    nearest = real(floor(safe + 0.5))
    near = high(number - nearest, nearest - number) <= _ROUNDING
    return where(near, nearest, number)


def score_cell(score: Any, least: Any, steps: Any) -> Any:
    """Cell on a grid of scores of any sign, whose octaves begin with 2^`least`."""
    size, smallest = high(score, -score), literal(2.0**least)
    cell = log_linear(high(size, smallest), steps) - ((least << steps) - 1)
    return where(size >= smallest, where(score > 0, cell, -cell), 0)


def exposure_cell(exposure: Any) -> Any:
    """Cell of exposures and trials: 16 an octave; 0 has its own."""
    positive = exposure > 0
    return where(positive, log_linear(where(positive, exposure, 1.0), STEPS), ZERO_EXPOSURE)


def count_cell(count: Any) -> Any:
    """Cell of counts: the count itself below 32, then 16 cells an octave."""
    wide = log_linear(real(high(count, EXACT_COUNTS)), STEPS)
    return where(count < EXACT_COUNTS, whole(count), wide - _WIDE_COUNTS)


def noise_cell(noise_sd: Any) -> Any:
    """Cell of noise sds: 16 an octave."""
    return log_linear(noise_sd, STEPS)


def value_cell(value: Any, noise: Any) -> Any:
    """Cell of values within the cell of their noise sds; very small values must be 0.

    Cells are a power of two wide, from 1/16 to 1/8 of the noise sd. They are exact for values up to
    a million noise sds from 0; the outermost cells hold all values beyond.
    """
    # engines round quotients of negative whole numbers in different ways
    octave = whole(floor(real(noise) * (1.0 / (1 << STEPS))))
    cell = value / power_of_two(octave - VALUE_OCTAVES)
    # clipped as a real number, because far values overflow integers
    return whole(floor(high(low(cell, _MOST_VALUE), -_MOST_VALUE)))


def without_small(number: Any, least: Any) -> Any:
    """Numbers, 0 in the place of those smaller in size than `least`, whose powers vanish."""
    return where((number > -least) & (number < least), 0.0, number)


def log_position(score: Any) -> Any:
    """Logarithm of scores; 0 of those that have none."""
    return log(where(score > 0, score, 1.0))


def logit_position(score: Any) -> Any:
    """Logit of scores; 0 of those that have none."""
    inside = where((score > 0) & (score < 1), score, 0.5)
    return log(inside) - log(1.0 - inside)


def square(number: Any) -> Any:
    """Squares of numbers."""
    small = without_small(number, _TINY)
    return small * small


def times_log(outcome: Any, size: Any) -> Any:
    """Outcomes times the logarithm of their size, which may be 0 with the outcome."""
    return real(outcome) * log(where(outcome > 0, size, 1.0))


# --- folds ---------------------------------------------------------------------------------------


def scrambled(identity: Any) -> Any:
    """Whole numbers, scrambled modulo a prime by arithmetic that is equal on every engine."""
    x = modulo(identity, FOLD_PRIME)
    x = x * ((x + _SHIFT) % FOLD_PRIME) % FOLD_PRIME
    return x * _FACTOR % FOLD_PRIME


def identity_of_item(score: Any, size: Any) -> Any:
    """What stands for the id of an item without one: never its outcome."""
    return score_cell(score, FLOOR, _FINE) * _MIX + score_cell(size, FLOOR, _FINE)


# --- what is summed, and by which cells ----------------------------------------------------------


def cell_names(outcome: Outcome) -> list[str]:
    """Names of the cells of all tables."""
    return list(dict.fromkeys(cell for t in outcome.tables.values() for cell in t.cells.values()))


def cells_of(outcome: Outcome, items: Any, needed: Collection[str]) -> dict[str, Any]:
    """The needed cells of items by name; `items` are their columns by role."""
    y, size = items[outcome.observed], items[outcome.size]
    cells: dict[str, Any] = {}
    formula = {"count": count_cell, "exposure": exposure_cell, "noise": noise_cell}
    for name in needed:
        of, grid = CELLS[name].of, CELLS[name].grid
        value = size if of == "size" else size - y if of == "rest" else seen(outcome, y)
        if grid == "value":
            cells[name] = value_cell(value, cells["noise_cell"])
        else:
            cells[name] = formula[grid](value)
    return cells


def terms_of(outcome: Outcome, items: Any, needed: Collection[str]) -> dict[str, Any]:
    """The needed terms of sums by column; `items` are their columns by role."""
    t, y, size = items["score"], items[outcome.observed], real(items[outcome.size])
    terms = {"sum_y": y}
    if "sum_t" in needed:
        positions = {"log": log_position, "logit": logit_position}
        terms |= {"sum_t": t, "sum_t2": square(t), "above": real(where(real(y) > size, 1, 0))}
        for scale in bounded(outcome):
            u = positions[scale.name](t)
            terms |= dict(zip(scale.sums, (u, u * u), strict=True))
            terms[outside(scale)] = where((t > scale.low) & (t < scale.high), 0, 1)
    if "sum_y_log_N" in needed:
        terms["sum_y_log_N"] = times_log(y, size)
    sized = size if outcome.size_power == 1 else square(size)
    if outcome.validity.size.least == 0.0:
        sized = where(sized < _TINY, 0.0, sized)
    factors = real(seen(outcome, y)), sized, size - real(y)
    for name, of in outcome.sums_of.items():
        if of.of == "power" and name in needed and name not in ("n", *outcome.integers):
            powers = zip(factors, (of.outcome, of.size, of.rest), strict=True)
            terms[name] = reduce(operator.mul, [f for f, power in powers for _ in range(power)])
    return {name: terms[name] for name in needed if name in terms}


def whole_sums(outcome: Outcome) -> tuple[str, ...]:
    """Columns of the table of parts that add up whole numbers."""
    return (*outcome.integers, *map(outside, bounded(outcome)))


def seen(outcome: Outcome, y: Any) -> Any:
    """Outcomes, or 0 if they are so small that their powers vanish."""
    least = outcome.validity.outcome.negligible
    return without_small(y, least) if least else y


def bounded(outcome: Outcome) -> list[Scale]:
    """Scales whose sums are kept, and on which some scores have no position."""
    kept = outcome.sums("part")
    return [scale for scale in SCALES.values() if scale is not LINEAR and scale.sums[0] in kept]


def outside(scale: Scale) -> str:
    """Column that counts items whose score has no position, for whose bin the sums are NaN."""
    return f"outside_{scale.name}"


# --- the same formulas elsewhere -----------------------------------------------------------------


def rebound(functions: Mapping[str, Any]) -> dict[str, Any]:
    """Functions and formulas by name, with other `functions` in the place of NumPy's."""
    names = {**globals(), **functions}
    for name, formula in globals().items():
        if isinstance(formula, FunctionType) and name not in functions:
            names[name] = FunctionType(formula.__code__, names, name)
    return names
