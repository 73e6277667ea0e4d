"""Cells, summands, folds and other formulas of items, each written once.

They are made of the functions of a namespace `xp`: by default NumPy's of arrays, else those of an
engine's columns (`ibis_functions`) or of numbers in compiled loops. Cells are exact everywhere.
"""

import operator
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from typing import Any, Literal, NamedTuple

import numpy as np

from .._lib.arrays import Ints
from ..families import scales
from ..families.family import Outcome, sum_of
from ..families.scales import Cell

# bits of a float64's fraction; exponent of 1
_FRACTION = 52
_BIAS = 1023
_LOG2_E = 1.4426950408889634
_NORMAL = 2.0**-1022  # smaller numbers are less precise
_FAR_OCTAVES = 64
_HARDLY = 2.0**-40  # weight of uninformative items in positions
# 16 * 5 - 32: cells of counts >= 32 follow the exact ones
_WIDE_COUNTS = 48
# smaller numbers count as 0 in sums of powers: some engines refuse underflow
_TINY = 1e-100
_MOST_VALUE = float(scales.MOST_VALUE_CELL)
# least size of a number that rounding may make of 0
_MISREAD = 2.0**-1000
# distance from a whole number that counts as rounding error
_ROUNDING = 1e-9
MOST_FOLDS = 1000
BLOCKS = 240  # blocks of clusters; most numbers of folds divide it
FOLD_PRIME = (1 << 31) - 1
# products of two numbers below the prime fit in 64 bits
_SHIFT = 1663
_FACTOR = 1327217885
_MIX = 1_073_741_789
# scores and sizes that differ by less than 2^-20 share a fold
_FINE = 20
# numbers below 2 to this power are 0 for folds and for the first grid of scores
FLOOR = -1022


# a number, an array, or a column of an engine
Operand = Any


Function = Callable[..., Any]


class Functions(NamedTuple):
    """Functions that formulas are made of, for one kind of operands."""

    where: Function
    low: Function  # the smaller of two
    high: Function
    log: Function
    floor: Function
    whole: Function  # a real number as a whole one
    real: Function
    exact: Function  # a number that no engine rounds
    modulo: Function  # never negative
    power_of_two: Function
    # 2^steps times the octave of a size > 0, plus the step in it
    log_linear: Function


def first_bits(size: Operand, steps: Operand, where: Operand, bits: Operand) -> Operand:
    """`Functions.log_linear` of floats, from a function that returns their 64 bits."""
    below = size < _NORMAL
    scaled = where(below, size * 2.0**_FAR_OCTAVES, size)
    return (bits(scaled) >> (_FRACTION - steps)) - (
        (_BIAS + _FAR_OCTAVES * below) << steps
    )


def _reals(number: Operand) -> Operand:
    return np.asarray(number, dtype=np.float64)


# functions of NumPy
ARRAYS = Functions(
    where=np.where, low=np.minimum, high=np.maximum, log=np.log, floor=np.floor,
    whole=lambda number: np.asarray(number).astype(np.int64), real=_reals, exact=float,
    modulo=np.mod, power_of_two=lambda exponent: np.ldexp(1.0, exponent),
    log_linear=lambda size, steps: first_bits(
        size, steps, np.where, lambda number: _reals(number).view(np.int64)),
)  # fmt: skip


def score_cell(
    score: Operand, least: Operand, steps: Operand, xp: Functions = ARRAYS
) -> Operand:
    """Cell on a grid of scores of any sign, whose octaves begin with 2^`least`."""
    size = xp.high(score, -score)
    smallest = xp.exact(2.0**least)
    cell = xp.log_linear(xp.high(size, smallest), steps) - ((least << steps) - 1)
    return xp.where(size >= smallest, xp.where(score > 0, cell, -cell), 0)


def exposure_cell(exposure: Operand, xp: Functions = ARRAYS) -> Operand:
    """Cell of exposures and trials: 16 an octave; 0 has its own."""
    positive = exposure > 0
    cell = xp.log_linear(xp.where(positive, exposure, 1.0), scales.STEPS)
    return xp.where(positive, cell, scales.ZERO_EXPOSURE)


def count_cell(count: Operand, xp: Functions = ARRAYS) -> Operand:
    """Cell of counts: the count itself below 32, then 16 cells an octave."""
    size = xp.real(xp.high(count, scales.EXACT_COUNTS))
    octave_cell = xp.log_linear(size, scales.STEPS) - _WIDE_COUNTS
    return xp.where(count < scales.EXACT_COUNTS, xp.whole(count), octave_cell)


def noise_cell(noise_sd: Operand, xp: Functions = ARRAYS) -> Operand:
    """Cell of noise sds: 16 an octave."""
    return xp.log_linear(noise_sd, scales.STEPS)


def value_cell(value: Operand, noise: Operand, xp: Functions = ARRAYS) -> Operand:
    """Cell of values within the cell of their noise sds; very small values must be 0."""
    # engines round quotients of negative whole numbers in different ways
    octave = xp.whole(xp.floor(xp.real(noise) * (1.0 / (1 << scales.STEPS))))
    cell = value / xp.power_of_two(octave - scales.VALUE_OCTAVES)
    # clipped as a real number, because far values overflow integers
    return xp.whole(xp.floor(xp.high(xp.low(cell, _MOST_VALUE), -_MOST_VALUE)))


# cells that depend on one operand alone
_GRIDS = {"exposure": exposure_cell, "count": count_cell, "noise": noise_cell}


def size_cell(size: Operand, outcome: Outcome, xp: Functions = ARRAYS) -> Operand:
    """Cell of sizes, as in joint cells."""
    cell = outcome.tables["joint"].cells[outcome.size_cell]
    return _GRIDS[cell.grid](size, xp)


def cells_of(
    cells: Iterable[Cell],
    outcome: Operand,
    size: Operand,
    negligible: float,
    xp: Functions,
) -> dict[str, Any]:
    """Cells of items by name; values come after the noise sds that they are relative to."""
    operands = {
        "outcome": without_small(outcome, negligible, xp),
        "size": size,
        "rest": size - outcome,
    }
    places: dict[str, Any] = {}
    for cell in cells:
        operand = operands[cell.role]
        places[cell.name] = (
            value_cell(operand, places["noise_cell"], xp)
            if cell.grid == "value"
            else _GRIDS[cell.grid](operand, xp)
        )
    return places


def near_whole(number: Operand, xp: Functions = ARRAYS) -> Operand:
    """Numbers, rounded where they differ from a whole number only by rounding error."""
    countable = (number >= -scales.LARGEST_COUNT) & (number <= scales.LARGEST_COUNT)
    nearest = xp.real(xp.floor(xp.where(countable, number, 0.0) + 0.5))
    is_rounded = (number - nearest <= _ROUNDING) & (nearest - number <= _ROUNDING)
    # 64-bit integers that a reader took for floats, and no rounding errors
    smallest = xp.exact(_MISREAD)
    is_misread = (number > -smallest) & (number < smallest) & (number != 0.0)
    return xp.where(is_rounded & ~is_misread, nearest, number)


def without_small(number: Operand, least: Operand, xp: Functions = ARRAYS) -> Operand:
    """Numbers, with 0 for those smaller in size than `least`, whose powers vanish."""
    return xp.where((number > -least) & (number < least), 0.0, number)


def square(number: Operand, xp: Functions = ARRAYS) -> Operand:
    """Squares of numbers."""
    small = without_small(number, _TINY, xp)
    return small * small


def summand(
    name: str,
    outcome: Outcome,
    columns: Any,
    size_limit: float | None,
    xp: Functions = ARRAYS,
) -> Operand:
    """Term of each item in a column of sums, from columns by role; NaN where it does not exist.

    Items with sizes beyond a limit hardly count in sums of positions.
    """
    t = columns["score"]
    y = columns[outcome.observed]
    size = columns[outcome.size]
    if name in outcome.integers:
        return xp.whole(y)
    powers = sum_of(name)
    if powers is None:
        weight = 0.0 * t + 1.0
        if size_limit is not None:
            tells = outcome.tells(size, xp.exact(size_limit))
            weight = xp.where(tells, weight, xp.exact(_HARDLY))
        if name == scales.SCORE_WEIGHT:
            return weight
        (scale,) = (scale for scale in scales.SCALES.values() if name in scale.sums)
        if scale is not scales.LINEAR:
            inside = (t > scale.low) & (t < min(scale.high, 2.0 * scales.LARGEST))
            position = scale.formula(xp.where(inside, t, scales.MIDDLE), xp.log)
            t = xp.where(inside, position, float("nan"))
        term = t if name == scale.sums[0] else square(t, xp)
        return term if size_limit is None else weight * term
    if powers.form == "log":  # sizes may be 0 where outcomes are
        return y * xp.log(xp.where(y > 0, size, 1.0))
    if powers.form == "above":
        return xp.real(xp.where(y > size, 1, 0))
    negligible = outcome.validity.outcome.negligible
    factors = [without_small(y, negligible, xp)] * powers.outcome
    if powers.size:
        sized = size if outcome.size_power == 1 else square(size, xp)
        factors += [without_small(sized, _TINY, xp)] * powers.size
    return reduce(operator.mul, [*factors, *[size - y] * powers.complement])


@dataclass(frozen=True)
class Folds:
    """The rule of folds; clusters are put into blocks, and a fold is made of several blocks."""

    by: Literal["id", "item", "column", "cluster", "none"]
    # 1 without folds, and the largest possible number for a column or for clusters
    number: int


def fold_of(folds: Folds, columns: Any, size: str, xp: Functions = ARRAYS) -> Operand:
    """Fold of each item, from columns by role; clusters are their blocks."""
    if folds.by in ("column", "cluster"):
        return xp.whole(columns["fold" if folds.by == "column" else "cluster"])
    if folds.by == "id":
        identity = columns["id"]
    else:  # never from the outcome
        score, amount = (
            score_cell(columns[role], FLOOR, _FINE, xp) for role in ("score", size)
        )
        identity = score * _MIX + amount
    return scrambled(identity, xp) % folds.number


def scrambled(identity: Operand, xp: Functions = ARRAYS) -> Operand:
    """Whole numbers, scrambled modulo a prime by arithmetic that is equal on every engine."""
    x = xp.modulo(identity, FOLD_PRIME)
    x = x * ((x + _SHIFT) % FOLD_PRIME) % FOLD_PRIME
    return x * _FACTOR % FOLD_PRIME


def block_of_labels(labels: Sequence[str]) -> Ints:
    """Block of clusters from the CRC-32 of their labels."""
    numbers = np.array([zlib.crc32(label.encode()) for label in labels], dtype=np.int64)
    return np.asarray(scrambled(numbers) % BLOCKS)


@cache
def ibis_functions() -> Functions:
    """Functions of the columns of an Ibis table."""
    import ibis

    def power_of_two(exponent: Operand) -> Operand:
        return ibis.literal(2.0) ** exponent.cast("float64")

    def log_linear(size: Operand, steps: int) -> Operand:
        # a logarithm may round to the wrong side of a power of two, where two octaves adjoin; some
        # engines compute log2 and powers with whole exponents in decimal arithmetic
        octave = (size.ln() * _LOG2_E).floor().cast("int64")
        step = (size / power_of_two(octave) - 1.0) * float(1 << steps)
        return octave * (1 << steps) + step.floor().cast("int64")

    return Functions(
        where=ibis.ifelse, low=ibis.least, high=ibis.greatest,
        log=lambda v: v.ln(), floor=lambda v: v.floor(),
        whole=lambda v: v.cast("int64"), real=lambda v: v.cast("float64"),
        exact=exact, power_of_two=power_of_two, log_linear=log_linear,
        # engines disagree for negative numbers
        modulo=lambda v, by: (v % by + by) % by,
    )  # fmt: skip


def exact(number: float) -> Operand:
    """A literal that no engine rounds: an odd integer times 2^e."""
    import ibis

    numerator, denominator = float(number).as_integer_ratio()
    shift = (numerator & -numerator).bit_length() - 1 if numerator else 0
    exponent = shift - (denominator.bit_length() - 1)
    odd = ibis.literal(numerator >> shift, type="int64").cast("float64")
    return odd * ibis.literal(2.0) ** ibis.literal(exponent, type="int64").cast(
        "float64"
    )
