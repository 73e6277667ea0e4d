"""Cells, positions, folds and other formulas of items, each written once.

As they stand they take NumPy arrays. `rebound` gives the same formulas with other functions in the
place of NumPy's: those of an engine's columns (`columns`), or of numbers in compiled loops
(`group_sum`). Cells are exact, so every engine puts an item into the same cell.
"""

import operator
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from types import FunctionType
from typing import Any, Literal

import numpy as np

from .._lib.arrays import Ints
from ..families.outcomes import Outcome
from ..families.scales import (
    EXACT_COUNTS,
    LARGEST_COUNT,
    LINEAR,
    MOST_VALUE_CELL,
    SCALES,
    STEPS,
    VALUE_OCTAVES,
    ZERO_EXPOSURE,
)

_FRACTION, _BIAS = 52, 1023  # bits of a float64's fraction; exponent of 1
_NORMAL = 2.0**-1022  # smaller numbers are less precise
_FAR_OCTAVES = 64
_WIDE_COUNTS = 48  # 16 * 5 - 32: cells of counts >= 32 follow the exact ones
_TINY = 1e-100  # smaller numbers count as 0 in sums of powers: some engines refuse underflow
_MOST_VALUE = float(MOST_VALUE_CELL)
_NAN = float("nan")
_ROUNDING = 1e-9  # distance from a whole number that counts as rounding error
MOST_FOLDS = 1000
BLOCKS = 240  # blocks of clusters; most numbers of folds divide it
FOLD_PRIME = (1 << 31) - 1
_SHIFT, _FACTOR = 1663, 1327217885  # products of two numbers below the prime fit in 64 bits
_MIX = 1_073_741_789
_FINE = 20  # scores and sizes that differ by less than 2^-20 share a fold
FLOOR = -1022
"""Numbers below 2 to this power are 0 for folds and for the first grid of scores."""

# --- functions that differ between arrays, columns and numbers ------------------------------------

where, low, high, log, floor = np.where, np.minimum, np.maximum, np.log, np.floor
literal: Callable[[Any], Any] = float  # a number that no engine rounds
modulo: Callable[[Any, Any], Any] = np.mod  # never negative


def whole(number: Any) -> Any:
    """Real numbers as whole ones."""
    return np.asarray(number).astype(np.int64)


def real(number: Any) -> Any:
    """Whole numbers as real ones."""
    return np.asarray(number, dtype=np.float64)


def bits(number: Any) -> Any:
    """The 64 bits of real numbers as whole numbers."""
    return real(number).view(np.int64)


def power_of_two(exponent: Any) -> Any:
    """Two to the power of whole numbers."""
    return np.ldexp(1.0, exponent)


# --- cells ---------------------------------------------------------------------------------------


def log_linear(size: Any, steps: Any) -> Any:
    """Octave of positive numbers times 2^`steps`, plus the step inside it: their first bits."""
    below = size < _NORMAL
    scaled = where(below, size * 2.0**_FAR_OCTAVES, size)
    return (bits(scaled) >> (_FRACTION - steps)) - ((_BIAS + _FAR_OCTAVES * below) << steps)


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
    """Cell of values within the cell of their noise sds; very small values must be 0."""
    # engines round quotients of negative whole numbers in different ways
    octave = whole(floor(real(noise) * (1.0 / (1 << STEPS))))
    cell = value / power_of_two(octave - VALUE_OCTAVES)
    # clipped as a real number, because far values overflow integers
    return whole(floor(high(low(cell, _MOST_VALUE), -_MOST_VALUE)))


def near_whole(number: Any) -> Any:
    """Numbers, rounded where they differ from a whole number only by rounding error."""
    countable = (number >= -LARGEST_COUNT) & (number <= LARGEST_COUNT)
    nearest = real(floor(where(countable, number, 0.0) + 0.5))
    near = (number - nearest <= _ROUNDING) & (nearest - number <= _ROUNDING)
    return where(near, nearest, number)


# --- summands ------------------------------------------------------------------------------------


def without_small(number: Any, least: Any) -> Any:
    """Numbers, with 0 for those smaller in size than `least`, whose powers vanish."""
    return where((number > -least) & (number < least), 0.0, number)


def log_position(score: Any) -> Any:
    """Logarithm of scores; NaN where it does not exist."""
    return where(score > 0, log(where(score > 0, score, 1.0)), _NAN)


def logit_position(score: Any) -> Any:
    """Logit of scores; NaN where it does not exist."""
    inside = (score > 0) & (score < 1)
    share = where(inside, score, 0.5)
    return where(inside, log(share) - log(1.0 - share), _NAN)


def square(number: Any) -> Any:
    """Squares of numbers."""
    small = without_small(number, _TINY)
    return small * small


def times_log(outcome: Any, size: Any) -> Any:
    """Outcomes times the logarithm of their size, which may be 0 with the outcome."""
    return real(outcome) * log(where(outcome > 0, size, 1.0))


def summand(name: str, outcome: Outcome, columns: Any, functions: Mapping[str, Any]) -> Any:
    """Term of each item in a column of sums, from columns by role."""
    t, y, size = columns["score"], columns[outcome.observed], columns[outcome.size]
    y, size = functions["real"](y), functions["real"](size)
    term = outcome.sums_of.get(name)
    if term is None:  # a sum of positions of the scores
        (scale,) = (scale for scale in SCALES.values() if name in scale.sums)
        position = t if scale is LINEAR else functions[f"{scale.name}_position"](t)
        return position if name == scale.sums[0] else functions["square"](position)
    if term.form == "log":
        return functions["times_log"](y, size)
    if term.form == "above":
        return functions["real"](functions["where"](y > size, 1, 0))
    factors = [functions["without_small"](y, outcome.validity.outcome.negligible)] * term.outcome
    if term.size:
        sized = size if outcome.size_power == 1 else functions["square"](size)
        factors += [functions["without_small"](sized, _TINY)] * term.size
    return reduce(operator.mul, [*factors, *[size - y] * term.complement])


# --- folds ---------------------------------------------------------------------------------------


def scrambled(identity: Any) -> Any:
    """Whole numbers, scrambled modulo a prime by arithmetic that is equal on every engine."""
    x = modulo(identity, FOLD_PRIME)
    x = x * ((x + _SHIFT) % FOLD_PRIME) % FOLD_PRIME
    return x * _FACTOR % FOLD_PRIME


def identity_of_item(score: Any, size: Any) -> Any:
    """Number that stands for the id of an item without one: never from its outcome."""
    return score_cell(score, FLOOR, _FINE) * _MIX + score_cell(size, FLOOR, _FINE)


@dataclass(frozen=True)
class Folds:
    """The rule of folds; clusters are put into blocks, and a fold is made of several blocks."""

    by: Literal["id", "item", "column", "cluster", "none"]
    number: int  # 1 without folds, and the largest possible number for a column or for clusters


def fold_of(folds: Folds, columns: Any, size: str, functions: Mapping[str, Any]) -> Any:
    """Fold of each item, from columns by role; clusters are their blocks."""
    if folds.by in ("column", "cluster"):
        return columns["fold" if folds.by == "column" else "cluster"]
    if folds.by == "item":
        identity = functions["identity_of_item"](columns["score"], columns[size])
    else:
        identity = columns["id"]
    return functions["scrambled"](identity) % folds.number


def block_of_labels(labels: Sequence[str]) -> Ints:
    """Block of clusters from the CRC-32 of their labels."""
    numbers = np.array([zlib.crc32(label.encode()) for label in labels], dtype=np.int64)
    return np.asarray(scrambled(numbers) % BLOCKS)


# --- the same formulas elsewhere -----------------------------------------------------------------

_FORMULAS = (
    log_linear, score_cell, exposure_cell, count_cell, noise_cell, value_cell, near_whole,
    without_small, log_position, logit_position, square, times_log, scrambled, identity_of_item,
)  # fmt: skip


def rebound(
    functions: Mapping[str, Any], compiler: Callable[[Any], Any] = lambda formula: formula
) -> dict[str, Any]:
    """The formulas by name, with other `functions` in place of NumPy's, each compiled."""
    names = {**globals(), **functions}
    for formula in _FORMULAS:
        name = formula.__name__
        if name not in functions:
            names[name] = compiler(FunctionType(formula.__code__, names, name))
    return {formula.__name__: names[formula.__name__] for formula in _FORMULAS}
