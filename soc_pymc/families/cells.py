"""Cells of outcomes and sizes: quantities, grids and numbering.

A positive number x lies in octave e (2^e <= x < 2^(e+1)) and, inside it, in one of 16 equal steps.
This is exact in floating point, so every engine puts a number into the same cell.
"""

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from .._lib.arrays import Floats

STEPS = 4  # cells of counts and sizes: 2^4 = 16 per octave
EXACT_COUNTS = 32  # counts below this have cells of their own
ZERO_EXPOSURE = -(1 << 15)  # below the cell of every positive number, 16 * -1074
VALUE_OCTAVES = 3  # a value cell is 2^-3 of the octave of its noise cell
MOST_VALUE_CELL = (1 << 25) - 1
_EXACT_OCTAVE = 5  # 2^5 = 32


def count_cell_range(cell: ArrayLike) -> tuple[Floats, Floats]:
    """Lower end and width of count cells; cells of one count have width 0."""
    c = np.asarray(cell, dtype=np.int64)
    octave, step = np.divmod(np.maximum(c - EXACT_COUNTS, 0), 16)
    wide = c >= EXACT_COUNTS
    unit = np.ldexp(1.0, octave + _EXACT_OCTAVE - STEPS)
    return np.where(wide, (16 + step) * unit, c), np.where(wide, unit, 0.0)


def exposure_cell_range(cell: ArrayLike) -> tuple[Floats, Floats]:
    """Lower end and width of exposure cells; both 0 for the cell of 0."""
    c = np.asarray(cell, dtype=np.int64)
    octave, step = np.divmod(c, 16)
    positive = c != ZERO_EXPOSURE
    # widths of the smallest exposures' cells are rounded to a subnormal number or 0
    with np.errstate(under="ignore"):
        unit = np.where(positive, np.ldexp(1.0, np.maximum(octave, -1074) - STEPS), 0.0)
    return (16 + step) * unit, unit


class Cell(NamedTuple):
    """Content of one column of cells."""

    role: Literal["outcome", "size", "rest"]  # the rest is the size less the outcome
    grid: Literal["count", "exposure", "noise", "value"]
    bits: int  # of a cell in packed keys
    low: int  # the lowest cell
    # lower ends and widths of cells; those of values also depend on the noise cell
    ends: Callable[[ArrayLike], tuple[Floats, Floats]] | None


CELLS: Mapping[str, Cell] = {
    "exposure_cell": Cell("size", "exposure", 16, ZERO_EXPOSURE, exposure_cell_range),
    "count_cell": Cell("outcome", "count", 11, 0, count_cell_range),
    "trials_cell": Cell("size", "exposure", 16, ZERO_EXPOSURE, exposure_cell_range),
    "failures_cell": Cell("rest", "count", 11, 0, count_cell_range),
    "successes_cell": Cell("outcome", "count", 11, 0, count_cell_range),
    "noise_cell": Cell("size", "noise", 12, -(1 << 11), exposure_cell_range),
    "value_cell": Cell("outcome", "value", 26, -(1 << 25), None),
}
"""Cells by their column."""
