"""A first look at scores: checked, put into folds, weighed on a fine grid."""

import math

import numpy as np
from numpy.typing import NDArray

from ...families.validity import LARGEST
from ..binning import FIRST_GRID, Grid
from ..folds import FOLD_MIX, FOLD_PRIME, FOLD_STEPS, SCRAMBLE
from .hashing import HashTable, compiled, score_cell, slot

__all__ = ["FirstLook", "ends", "fold_of_items"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_FLOOR = FIRST_GRID.floor


@compiled
def ends(values):  # type: ignore[no-untyped-def]
    """Whether all numbers are known and finite; the least and the largest."""
    valid, low, high = True, math.inf, -math.inf
    for i in range(len(values)):
        v = values[i]
        valid &= abs(v) <= LARGEST
        low = v if v < low else low
        high = v if v > high else high
    return valid, low, high


@compiled
def fold_of_items(score, size, folds):  # type: ignore[no-untyped-def]
    """`folds.fold_of_item`, item by item."""
    out = np.empty(len(score), dtype=np.int64)
    for i in range(len(score)):
        x = score_cell(score[i], _FLOOR, FOLD_STEPS) * FOLD_MIX
        x += score_cell(size[i], _FLOOR, FOLD_STEPS)
        x %= FOLD_PRIME
        x = x * ((x + SCRAMBLE[0]) % FOLD_PRIME) % FOLD_PRIME
        out[i] = x * SCRAMBLE[1] % FOLD_PRIME % folds
    return out


@compiled
def _sort_cells(score, weight, floor, steps, cell, cells, weights):  # type: ignore[no-untyped-def]
    """Fill `cells` and `weights` with those of the scores, neighbours together.

    Tables are then read in order. `cell` is room to work in.
    """
    low, high = np.iinfo(np.int64).max, np.iinfo(np.int64).min
    for i in range(len(score)):
        cell[i] = score_cell(score[i], floor, steps)
        low = cell[i] if cell[i] < low else low
        high = cell[i] if cell[i] > high else high
    shift = 8
    while (high - low) >> shift > 1 << 16:
        shift += 1
    start = np.zeros(((high - low) >> shift) + 2, dtype=np.int64)
    for i in range(len(score)):
        start[((cell[i] - low) >> shift) + 1] += 1
    for k in range(len(start) - 1):
        start[k + 1] += start[k]
    for i in range(len(score)):
        bucket = (cell[i] - low) >> shift
        at = start[bucket]
        start[bucket] += 1
        cells[at] = cell[i]
        if len(weight):
            weights[at] = weight[i]


@compiled
def _look(cell, weight, start, whole, used):  # type: ignore[no-untyped-def]
    """Add items from `start` on to their cells; where it stopped, as the table is full."""
    for i in range(start, len(cell)):
        if 2 * used[0] > len(whole):
            return i
        at = slot(whole, used, 0, cell[i])
        whole[at, 2] += weight[i] if len(weight) else 1
    return len(cell)


class FirstLook:
    """Weights of the scores' cells on a fine grid.

    Parameters
    ----------
    grid
        The grid.
    low, high
        Scores outside count as these.
    """

    def __init__(
        self, grid: Grid = FIRST_GRID, low: float = -math.inf, high: float = math.inf
    ) -> None:
        self._grid, self._low, self._high = grid, low, high
        self._table, self._used = HashTable(0), np.zeros(1, dtype=np.int64)
        self._scratch: list[Ints] = []

    def add(self, score: Floats, weight: Ints | None = None) -> None:
        """Add valid items with whole weights; None counts the items."""
        weight = np.empty(0, dtype=np.int64) if weight is None else weight
        if self._low > -math.inf:
            score = np.clip(score, self._low, self._high)
        n, grid = len(score), self._grid
        if n == 0:
            return
        if len(self._scratch) == 0 or len(self._scratch[0]) < n:
            self._scratch = [np.empty(n, dtype=np.int64) for _ in range(3)]
        cell, cells, weights = (a[:n] for a in self._scratch)
        _sort_cells(score, weight, grid.floor, grid.steps, cell, cells, weights)
        weights = weights[: len(weight)]
        at = 0
        while at < n:
            table = self._table
            at = _look(cells, weights, at, table.whole, self._used)
            if at < n:
                self._table = table.grown()

    def weights(self) -> tuple[Ints, Ints]:
        """Occupied cells, rising, and their weights."""
        cell, whole, _ = self._table.rows()
        order = np.argsort(cell)
        return cell[order], whole[order, 1]
