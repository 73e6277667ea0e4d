"""What compiled loops are made of: hash tables of sums, and the numbering of cells.

A row holds a packed key, whole numbers and real sums side by side, so that one item touches one or
two cache lines of each table.
"""

import math

import numba
import numpy as np

from .._lib.arrays import Floats, Ints
from ..families.poisson import EXACT_COUNTS, STEPS
from .binning import MOST_VALUE_CELL, VALUE_OCTAVES, ZERO_EXPOSURE

EMPTY = np.iinfo(np.int64).min
HEAD = 3  # columns before the real sums: the key, the number of items, another whole number
_FIRST_SLOTS = 1 << 12
_SIXTEEN = 1 << STEPS
_EXACT_OCTAVE = 5  # 2^5 = EXACT_COUNTS
_MOST = float(MOST_VALUE_CELL)

compiled = numba.njit(cache=True, nogil=True, error_model="numpy")
# functions that get arrays are inlined: to count their references would cost more than their work
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
        """Put rows with distinct keys into an empty table with room for them."""
        at = np.empty(len(keys), dtype=np.int64)
        _claim(self.whole, keys, at)
        self.whole[at, 1:HEAD], self.reals[at, HEAD:] = whole, reals

    def grown(self) -> "HashTable":
        """The same rows with four times the room."""
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
    """Octave of a positive number times `unit`, plus the whole step inside it."""
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
    """Cell of exposures and noise sds: 16 cells an octave; 0 has a cell of its own."""
    return log_linear(x, _SIXTEEN) if x > 0 else ZERO_EXPOSURE


@compiled
def count_cell(y):  # type: ignore[no-untyped-def]
    """Cell of counts: the count itself below 32, then 16 cells an octave."""
    if y < EXACT_COUNTS:
        return np.int64(y)
    return log_linear(y, _SIXTEEN) + EXACT_COUNTS - _EXACT_OCTAVE * _SIXTEEN


@compiled
def value_cell(y, noise_cell):  # type: ignore[no-untyped-def]
    """Cell of values within the cell of their noise sds; values are 0 or not very small.

    Cells are a power of two wide, from 1/16 to 1/8 of the noise sd. They are right for values up to
    a million noise sds from 0; the outermost cells hold all that is further off.
    """
    # clipped as a real number: what is far off fits no integer
    cell = np.floor(math.ldexp(y, VALUE_OCTAVES - (noise_cell >> STEPS)))
    return np.int64(min(max(cell, -_MOST), _MOST))
