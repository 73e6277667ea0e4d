"""Cells, summands, folds and other formulas of items, each written once.

They take NumPy arrays; `rebound` makes them formulas of an engine's columns (`functions`), or of
numbers in compiled loops (`local`). Cells are exact, so that all engines agree on them.
"""

import operator
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from types import FunctionType
from typing import Any, Literal

import numpy as np

from .._lib.arrays import Ints
from ..families import scales
from ..families.outcome import Outcome, sum_of

# bits of a float64's fraction; exponent of 1
_FRACTION = 52
_BIAS = 1023
_LOG2_E = 1.4426950408889634
_NORMAL = 2.0**-1022  # smaller numbers are less precise
_FAR_OCTAVES = 64
_WIDE_COUNTS = 48  # 16 * 5 - 32: cells of counts >= 32 follow the exact ones
_TINY = 1e-100  # smaller numbers count as 0 in sums of powers: some engines refuse underflow
_MOST_VALUE = float(scales.MOST_VALUE_CELL)
_ROUNDING = 1e-9  # distance from a whole number that counts as rounding error
MOST_FOLDS = 1000
BLOCKS = 240  # blocks of clusters; most numbers of folds divide it
FOLD_PRIME = (1 << 31) - 1
# products of two numbers below the prime fit in 64 bits
_SHIFT = 1663
_FACTOR = 1327217885
_MIX = 1_073_741_789
_FINE = 20  # scores and sizes that differ by less than 2^-20 share a fold
FLOOR = -1022
"""Numbers below 2 to this power are 0 for folds and for the first grid of scores."""

where = np.where
low = np.minimum
high = np.maximum
log = np.log
floor = np.floor
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


def log_linear(size: Any, steps: Any) -> Any:
    """Octave of positive numbers times 2^`steps`, plus the step inside it: their first bits."""
    below = size < _NORMAL
    scaled = where(below, size * 2.0**_FAR_OCTAVES, size)
    return (bits(scaled) >> (_FRACTION - steps)) - (
        (_BIAS + _FAR_OCTAVES * below) << steps
    )


def score_cell(score: Any, least: Any, steps: Any) -> Any:
    """Cell on a grid of scores of any sign, whose octaves begin with 2^`least`."""
    size = high(score, -score)
    smallest = literal(2.0**least)
    cell = log_linear(high(size, smallest), steps) - ((least << steps) - 1)
    return where(size >= smallest, where(score > 0, cell, -cell), 0)


def exposure_cell(exposure: Any) -> Any:
    """Cell of exposures and trials: 16 an octave; 0 has its own."""
    positive = exposure > 0
    cell = log_linear(where(positive, exposure, 1.0), scales.STEPS)
    return where(positive, cell, scales.ZERO_EXPOSURE)


def count_cell(count: Any) -> Any:
    """Cell of counts: the count itself below 32, then 16 cells an octave."""
    octave_cell = log_linear(real(high(count, scales.EXACT_COUNTS)), scales.STEPS)
    return where(count < scales.EXACT_COUNTS, whole(count), octave_cell - _WIDE_COUNTS)


def noise_cell(noise_sd: Any) -> Any:
    """Cell of noise sds: 16 an octave."""
    return log_linear(noise_sd, scales.STEPS)


def value_cell(value: Any, noise: Any) -> Any:
    """Cell of values within the cell of their noise sds; very small values must be 0."""
    # engines round quotients of negative whole numbers in different ways
    octave = whole(floor(real(noise) * (1.0 / (1 << scales.STEPS))))
    cell = value / power_of_two(octave - scales.VALUE_OCTAVES)
    # clipped as a real number, because far values overflow integers
    return whole(floor(high(low(cell, _MOST_VALUE), -_MOST_VALUE)))


def near_whole(number: Any) -> Any:
    """Numbers, rounded where they differ from a whole number only by rounding error."""
    countable = (number >= -scales.LARGEST_COUNT) & (number <= scales.LARGEST_COUNT)
    nearest = real(floor(where(countable, number, 0.0) + 0.5))
    is_rounded = (number - nearest <= _ROUNDING) & (nearest - number <= _ROUNDING)
    return where(is_rounded, nearest, number)


def without_small(number: Any, least: Any) -> Any:
    """Numbers, with 0 for those smaller in size than `least`, whose powers vanish."""
    return where((number > -least) & (number < least), 0.0, number)


def square(number: Any) -> Any:
    """Squares of numbers."""
    small = without_small(number, _TINY)
    return small * small


def summand(
    name: str, outcome: Outcome, columns: Any, functions: Mapping[str, Any]
) -> Any:
    """Term of each item in a column of sums, from columns by role; NaN where it does not exist."""
    t = columns["score"]
    y = columns[outcome.observed]
    size = columns[outcome.size]
    where = functions["where"]
    without_small = functions["without_small"]
    if name in outcome.integers:
        return functions["whole"](y)
    term = sum_of(name)
    if term is None:
        (scale,) = (scale for scale in scales.SCALES.values() if name in scale.sums)
        if scale is not scales.LINEAR:
            inside = (t > scale.low) & (t < min(scale.high, 2.0 * scales.LARGEST))
            position = scale.formula(where(inside, t, scales.MIDDLE), functions["log"])
            t = where(inside, position, float("nan"))
        return t if name == scale.sums[0] else functions["square"](t)
    if term.form == "log":  # of sizes that may be 0 with the outcome
        return y * functions["log"](where(y > 0, size, 1.0))
    if term.form == "above":
        return functions["real"](where(y > size, 1, 0))
    factors = [without_small(y, outcome.validity.outcome.negligible)] * term.outcome
    if term.size:
        sized = size if outcome.size_power == 1 else functions["square"](size)
        factors += [without_small(sized, _TINY)] * term.size
    return reduce(operator.mul, [*factors, *[size - y] * term.complement])


@dataclass(frozen=True)
class Folds:
    """The rule of folds; clusters are put into blocks, and a fold is made of several blocks."""

    by: Literal["id", "item", "column", "cluster", "none"]
    number: int  # 1 without folds, and the largest possible number for a column or for clusters


def fold_of(folds: Folds, columns: Any, size: str, functions: Mapping[str, Any]) -> Any:
    """Fold of each item, from columns by role; clusters are their blocks."""
    if folds.by in ("column", "cluster"):
        return functions["whole"](
            columns["fold" if folds.by == "column" else "cluster"]
        )
    if folds.by == "id":
        identity = columns["id"]
    else:  # never from the outcome
        cell = functions["score_cell"]
        identity = cell(columns["score"], FLOOR, _FINE) * _MIX + cell(
            columns[size], FLOOR, _FINE
        )
    return functions["scrambled"](identity) % folds.number


def scrambled(identity: Any) -> Any:
    """Whole numbers, scrambled modulo a prime by arithmetic that is equal on every engine."""
    x = modulo(identity, FOLD_PRIME)
    x = x * ((x + _SHIFT) % FOLD_PRIME) % FOLD_PRIME
    return x * _FACTOR % FOLD_PRIME


def block_of_labels(labels: Sequence[str]) -> Ints:
    """Block of clusters from the CRC-32 of their labels."""
    numbers = np.array([zlib.crc32(label.encode()) for label in labels], dtype=np.int64)
    return np.asarray(scrambled(numbers) % BLOCKS)


_FORMULAS = (
    log_linear, score_cell, exposure_cell, count_cell, noise_cell, value_cell, near_whole,
    without_small, square, scrambled,
)  # fmt: skip


def rebound(
    functions: Mapping[str, Any],
    compiler: Callable[[Any], Any] = lambda formula: formula,
) -> dict[str, Any]:
    """The formulas by name, with other `functions` in place of NumPy's, each compiled."""
    names = {**globals(), **functions}
    for formula in _FORMULAS:
        name = formula.__name__
        if name not in functions:
            names[name] = compiler(FunctionType(formula.__code__, names, name))
    return {formula.__name__: names[formula.__name__] for formula in _FORMULAS}


@cache
def functions() -> Mapping[str, Any]:
    """The formulas for columns, by name, and the functions that they are made of."""
    import ibis

    names = {
        "where": ibis.ifelse,
        "low": ibis.least,
        "high": ibis.greatest,
        "log": lambda v: v.ln(),
        "floor": lambda v: v.floor(),
        "whole": lambda v: v.cast("int64"),
        "real": lambda v: v.cast("float64"),
        "literal": exact,
        "modulo": lambda v, by: (
            (v % by + by) % by
        ),  # engines disagree for negative numbers
        "power_of_two": lambda exponent: ibis.literal(2.0) ** exponent.cast("float64"),
        "log_linear": _log_linear_column,
    }
    return names | rebound(names)


def _log_linear_column(size: Any, steps: int) -> Any:
    """2^steps times the octave of positive numbers, plus the step inside it."""
    ops = functions()
    unit = 1 << steps
    # a logarithm may round to the wrong side of a power of two, where two octaves adjoin; some
    # engines compute log2 and powers with whole exponents in decimal arithmetic
    octave = ops["whole"]((size.ln() * _LOG2_E).floor())
    step = (size / ops["power_of_two"](octave) - 1.0) * float(unit)
    return octave * unit + ops["whole"](step.floor())


def exact(number: float) -> Any:
    """A literal that no engine rounds: an odd integer times 2^e."""
    import ibis

    numerator, denominator = float(number).as_integer_ratio()
    shift = (numerator & -numerator).bit_length() - 1 if numerator else 0
    exponent = shift - (denominator.bit_length() - 1)
    odd = ibis.literal(numerator >> shift, type="int64").cast("float64")
    return odd * ibis.literal(2.0) ** ibis.literal(exponent, type="int64").cast(
        "float64"
    )
