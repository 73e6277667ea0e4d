"""Cells, bins and folds in NumPy, the reference for compiled loops and engines."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from soc_pymc.data.binning import (
    FIRST_GRID,
    FOLD_MIX,
    FOLD_STEPS,
    Grid,
    Lookup,
    _octave_step,
    fold_of_id,
)
from soc_pymc.families.cells import (
    EXACT_COUNTS,
    MOST_VALUE_CELL,
    STEPS,
    VALUE_OCTAVES,
    ZERO_EXPOSURE,
)
from soc_pymc.families.validity import LEAST_SD

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_EXACT_OCTAVE = 5


def count_cell(count: ArrayLike) -> Ints:
    """Cell of counts: the count itself below 32, then 16 cells per octave.

    Examples
    --------
    >>> count_cell([0, 31, 32, 33, 34]).tolist()
    [0, 31, 32, 32, 33]
    """
    y = np.asarray(count, dtype=np.int64)
    octave, step = _octave_step(np.maximum(y, EXACT_COUNTS), STEPS)
    return np.where(y < EXACT_COUNTS, y, EXACT_COUNTS + (octave - _EXACT_OCTAVE) * 16 + step)


def exposure_cell(exposure: ArrayLike) -> Ints:
    """Cell of exposures: 16 cells per octave; 0 has its own cell.

    Examples
    --------
    >>> exposure_cell([1.0, 17.0, 17.5, 18.0]).tolist()
    [0, 65, 65, 66]
    """
    x = np.asarray(exposure, dtype=float)
    octave, step = _octave_step(np.where(x > 0, x, 1.0), STEPS)
    return np.where(x > 0, octave * 16 + step, ZERO_EXPOSURE)


def _value_width(noise_cell: ArrayLike) -> Floats:
    octave = np.asarray(noise_cell, dtype=np.int64) // (1 << STEPS)
    return np.asarray(np.ldexp(1.0, octave - VALUE_OCTAVES), dtype=float)


def value_cell(value: ArrayLike, noise_cell: ArrayLike) -> Ints:
    """Cell of values within the cell of their noise sds, `exposure_cell` of them.

    Cells are a power of two wide, from 1/16 to 1/8 of the noise sd. They are exact for values up to
    a million noise sds from 0; the outermost cells hold all values beyond.

    Examples
    --------
    >>> value_cell([-0.1, 0.0, 0.9], exposure_cell(1.0)).tolist()
    [-1, 0, 7]
    """
    y = np.asarray(value, dtype=float)
    cell = np.floor(np.where(np.abs(y) < LEAST_SD, 0.0, y) / _value_width(noise_cell))
    return np.clip(cell, -MOST_VALUE_CELL, MOST_VALUE_CELL).astype(np.int64)


def value_cell_range(cell: ArrayLike, noise_cell: ArrayLike) -> tuple[Floats, Floats]:
    """Lower end and width of value cells.

    Examples
    --------
    >>> [float(x) for x in value_cell_range(-1, exposure_cell(1.0))]
    [-0.125, 0.125]
    """
    width = _value_width(noise_cell)
    return np.asarray(cell, dtype=np.int64) * width, width


def bins_of(lookup: Lookup, score: ArrayLike) -> Ints:
    """Bin of each score."""
    t = np.asarray(score, dtype=float)
    found = lookup.below[lookup.grid.cell(np.clip(t, lookup.low, lookup.high)) - lookup.first]
    more = [lookup.edges[found + k] <= t for k in range(lookup.most)]
    return np.asarray(found + np.sum(more, axis=0, dtype=np.int64), dtype=np.int64)


def fold_of_item(score: ArrayLike, size: ArrayLike, folds: int) -> Ints:
    """Fold of items without an id, from score and exposure or noise sd, never from the outcome.

    Items with the same score and the same exposure or noise sd share a fold.
    """
    fine = Grid(FIRST_GRID.floor, FOLD_STEPS)
    return fold_of_id(fine.cell(score) * FOLD_MIX + fine.cell(size), folds)
