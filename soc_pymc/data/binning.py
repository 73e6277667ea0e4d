"""Grids of scores, edges of bins of equal weight, and scores that many items share.

A positive number x lies in octave e (2^e <= x < 2^(e+1)) and, inside it, in one of 2^k equal steps.
This is exact in floating point, so every engine puts a number into the same cell.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._lib.arrays import Floats, Ints
from .formulas import FLOOR, score_cell

Columns = Mapping[str, NDArray[Any]]

_MOST_STEPS = 36  # steps are wider than the error of any engine's logarithm
_CHOOSE_CELLS = 1 << 18
_LOOKUP_CELLS = tuple(1 << k for k in range(6, 17))
_TOGETHER = 2  # edges in one cell of the grid for lookups
_ATOM_SHARE, _ATOM_ITEMS = 0.01, 50  # fewest items of an atom: of all, and as a number
# it has 10 times the items of any of the 20 nearest bins, except for six, which may be atoms too
_ATOM_NEAR, _ATOM_OTHERS, _ATOM_TIMES = 20, 6, 10
_ATOM_GAP = 2.0**-30  # least distance of an atom at 0 from other scores, relative to these


def group(
    columns: Columns, keys: Sequence[str], rules: Mapping[str, Callable[..., Any]]
) -> dict[str, NDArray[Any]]:
    """Combine rows with equal keys column by column; the result is sorted by key."""
    order = _order([columns[key] for key in keys])
    sorted_keys = [columns[key][order] for key in keys]
    new = np.ones(len(order), dtype=bool)
    new[1:] = np.logical_or.reduce([k[1:] != k[:-1] for k in sorted_keys])
    starts = np.flatnonzero(new)
    grouped = {key: values[starts] for key, values in zip(keys, sorted_keys, strict=True)}
    for name, rule in rules.items():
        values = columns[name][order]
        if len(starts) < len(order):
            values = rule.reduceat(values, starts)  # type: ignore[attr-defined]
        grouped[name] = values
    return grouped


def _order(keys: Sequence[NDArray[Any]]) -> NDArray[np.intp]:
    """Stable order by keys, the first one first; small whole numbers make one key together."""
    if len(keys[0]) and all(key.dtype == np.int64 for key in keys):
        least = [int(key.min()) for key in keys]
        wide = [int(key.max()) - low + 1 for key, low in zip(keys, least, strict=True)]
        if math.prod(wide) < 1 << 62:
            code = np.zeros(len(keys[0]), dtype=np.int64)
            for key, low, width in zip(keys, least, wide, strict=True):
                code = code * width + (key - low)
            return np.argsort(code, kind="stable")
    return np.lexsort(keys[::-1])


def added(columns: Columns, keys: Sequence[str], names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Rows of sums added up by key; ranges of scores are combined to their extremes."""
    return group(columns, keys, {name: EXTREMES.get(name, np.add) for name in names})


EXTREMES: Mapping[str, Callable[..., NDArray[Any]]] = {"score_min": np.fmin, "score_max": np.fmax}
"""How columns that are not sums are combined."""


@dataclass(frozen=True)
class Grid:
    """Log-linear grid of scores of any sign; cell numbers increase with the score."""

    floor: int  # scores smaller in size than 2^floor are in cell 0
    steps: int  # 2^steps equal steps per octave

    def cell(self, score: ArrayLike) -> Ints:
        """Cell of each score."""
        return np.asarray(score_cell(np.asarray(score, dtype=float), self.floor, self.steps))

    def boundary(self, cell: ArrayLike) -> Floats:
        """Lower end of a cell."""
        c = np.asarray(cell, dtype=np.int64)
        # cell c > 0 begins where its step does; cell c <= 0 where the step of 1 - c does
        octave, step = np.divmod(np.where(c > 0, c, 1 - c) - 1, 1 << self.steps)
        size = np.ldexp(1.0 + step / float(1 << self.steps), octave + self.floor)
        return np.asarray(np.where(c > 0, size, -size), dtype=float)


FIRST_GRID = Grid(FLOOR, steps=14)
"""First grid, for scores of any range: cells of 1/16384 octave."""


class Weights(NamedTuple):
    """Scores on a grid."""

    n: int  # items
    score_min: float
    score_max: float
    cell: Ints  # occupied cells, increasing
    items: Ints  # numbers of items
    weight: Ints  # sums of whole outcomes, or numbers of items


def choose_grid(low: float, high: float, least: float, most: int = _CHOOSE_CELLS) -> Grid:
    """Finest grid with at most about `most` cells from `low` to `high`.

    `least` is the smallest size distinguished from 0.
    """
    floor = math.frexp(max(least, 5e-324))[1] - 1
    fine = Grid(floor, 0)
    for steps in range(1, _MOST_STEPS + 1):
        grid = Grid(floor, steps)
        first, last = grid.cell([low, high])
        if last - first >= most:
            break
        fine = grid
    return fine


def finer_grid(
    grid: Grid, cell: Ints, weight: Floats, bins: int, coarse: float = 1 / 16
) -> Grid | None:
    """A grid relative to the range of most scores; None if the first is fine enough.

    Half a bin's weight at either end is left out of the range, as a few extreme scores must not
    make all other cells coarse. Cells with up to `coarse` of a bin's weight are fine enough.
    """
    share = weight.sum() / bins
    if weight.max() <= coarse * share:
        return None
    below = np.cumsum(weight)
    first = int(np.searchsorted(below, share / 2))
    last = min(int(np.searchsorted(below, below[-1] - share / 2)), len(cell) - 1)
    low, high = grid.boundary([cell[first], cell[last] + 1]).tolist()
    if low <= 0 <= high:  # such a range has more octaves than a finer grid could divide
        return None
    finer = choose_grid(low, high, min(abs(low), abs(high)))
    return finer if finer.steps > grid.steps else None


def choose_edges(
    grid: Grid, cell: Ints, weight: Floats, bins: int, halve_ends: bool = False
) -> Floats:
    """Interior edges of at most `bins` bins of nearly equal weight; cells are never split.

    `cell` are the occupied cells, increasing, and `weight` their weights. With `halve_ends` the
    first and the last bin are halved, and their outer halves again, down to single cells.
    """
    capped = np.minimum(weight, _heaviest(weight, bins))
    below = np.cumsum(capped)
    target = below[-1] * np.arange(1, bins) / bins
    if halve_ends:
        left, right = (_halvings(below[-1] / bins, end) for end in (capped[0], capped[-1]))
        target = np.concatenate([left[::-1], target, below[-1] - right])
    # the boundary before cell i has below[i - 1] on its left: take the nearer of the two
    after = np.clip(np.searchsorted(below, target), 0, len(cell) - 1)
    left = np.where(after > 0, below[after - 1], 0.0)
    cuts = np.where(target - left <= below[after] - target, after, after + 1)
    cuts = np.unique(cuts[(cuts > 0) & (cuts < len(cell))])
    return grid.boundary(cell[cuts])


def _halvings(share: float, least: float) -> Floats:
    """Halves, quarters, ... of a share, down to half of the smallest."""
    number = math.ceil(math.log2(share / least)) if 0 < least < share else 0
    return np.asarray(share * 0.5 ** np.arange(1, number + 1), dtype=float)


def _heaviest(weight: Floats, bins: int) -> float:
    """Cap c with sum of min(weight, c) = c bins: a cell heavier than a bin counts as one bin."""
    falling = np.sort(weight)[::-1]
    rest = np.cumsum(falling[::-1])[::-1]
    for heavy in range(min(bins - 1, len(falling) - 1) + 1):
        cap = rest[heavy] / (bins - heavy)
        if falling[heavy] <= cap:
            return float(cap)
    return float(falling[-1])


def fewest_in_atom(items: int) -> int:
    """Fewest items of an atom among so many."""
    return max(_ATOM_ITEMS, math.ceil(_ATOM_SHARE * items))


def stand_out(items: Ints, single: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which places along the scores are atoms: one score with far more items than those near it.

    `items` are those of each place, in order of the scores, and `single` says whether a place holds
    only one score; another one counts as one item. Few or rounded scores have no atoms.
    """
    atoms = np.zeros(len(items), dtype=bool)
    occupied = np.flatnonzero(items > 0)
    if len(occupied) <= _ATOM_NEAR:
        return atoms
    number = items[occupied]
    usual = np.where(single[occupied], number, 1)
    for k in np.flatnonzero(single[occupied] & (number >= fewest_in_atom(int(number.sum())))):
        first = int(np.clip(k - _ATOM_NEAR // 2, 0, len(occupied) - 1 - _ATOM_NEAR))
        near = np.delete(usual[first : first + _ATOM_NEAR + 1], k - first)
        atoms[occupied[k]] = number[k] >= _ATOM_TIMES * np.sort(near)[-1 - _ATOM_OTHERS]
    return atoms


def atom_edges(edges: Floats, atoms: Sequence[float], grid: Grid, cell: Ints) -> Floats:
    """Edges with two more for each atom, so that its bin holds its score alone.

    `cell` are the other scores' cells on the grid.
    """
    if not len(atoms):
        return edges
    score = np.array(atoms, dtype=float)
    ends = np.abs(grid.boundary(np.concatenate([cell, cell + 1])))
    # next to 0 the smallest numbers would make cells of a lookup very uneven
    gap = np.where(score == 0.0, _ATOM_GAP * ends[ends > 0].min(), 0.0)
    above = np.maximum(np.nextafter(score, np.inf), score + gap)
    return np.unique(np.concatenate([edges, score, above]))


class Lookup(NamedTuple):
    """Bins of scores by grid cell; a cell has at most a few edges.

    The bin of a score t is ``below`` of its cell plus the number of the next `most` edges that are
    at most t.
    """

    grid: Grid
    low: float  # the outermost edges; scores are clipped to them
    high: float
    first: int  # number of the first cell
    below: Ints  # by cell: number of edges in lower cells
    most: int  # edges in the fullest cell
    edges: Floats  # all edges, followed by `most` infinite ones


def make_lookup(edges: Floats) -> Lookup:
    """Coarsest lookup with at most two edges per cell, or more if edges are very close."""
    if not len(edges):
        return Lookup(Grid(0, 0), 1.0, 1.0, 1, np.zeros(1, dtype=np.int64), 0, edges)
    low, high = float(edges[0]), float(edges[-1])
    sizes = np.abs(edges[edges != 0])
    least = float(sizes.min()) if len(sizes) else 1.0
    for number in _LOOKUP_CELLS:
        grid = choose_grid(low, high, least, number)
        cells = grid.cell(edges)
        cell = np.arange(cells[0], cells[-1] + 1)
        below = np.searchsorted(cells, cell)
        most = int(np.diff(below, append=len(edges)).max())
        if most <= _TOGETHER:
            break
    padded = np.concatenate([edges, np.full(most, np.inf)])
    return Lookup(grid, low, high, int(cells[0]), below, most, padded)


class Joint(NamedTuple):
    """Budget of joint cells; 0 keeps none."""

    most: int
    merges: bool = True  # beyond it bins are merged in pairs; else no joint cells are kept
