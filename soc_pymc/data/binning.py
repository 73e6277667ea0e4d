"""Grids of scores, edges of bins of equal weight, and scores that many items share."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from .._lib.arrays import Bools, ColumnDict, Columns, Floats, Ints
from ..families.scales import LINEAR, MIDDLE, SCALES, SCORE_WEIGHT
from .formulas import FLOOR, score_cell

# tables of keys and sums by name ("joint" may be missing), labels of groups, number of items
Sums = tuple[dict[str, Any], list[str], int]

# functions that combine columns that are not sums
EXTREMES: Mapping[str, np.ufunc] = {"score_min": np.fmin, "score_max": np.fmax}
_WAITING = 1 << 20  # rows that are added up at once
# steps are wider than the error of any engine's logarithm
_MOST_STEPS = 36
_CHOOSE_CELLS = 1 << 18
_LOOKUP_CELLS = tuple(1 << k for k in range(6, 17))
_TOGETHER = 2  # edges in one cell of the grid for lookups
# fewest items of an atom: of all, and as a number
_ATOM_SHARE = 0.01
_ATOM_ITEMS = 50
# it has 10 times the items of any of the 20 nearest bins, except for six, which may be atoms too
_ATOM_NEAR = 20
_ATOM_OTHERS = 6
_ATOM_TIMES = 10
# least distance of an atom at 0 from other scores, relative to these
_ATOM_GAP = 2.0**-30


def added(columns: Columns, keys: Sequence[str], names: Sequence[str]) -> ColumnDict:
    """Rows added up by key, sorted by key; ranges of scores are combined to their extremes."""
    order = np.lexsort([columns[key] for key in reversed(keys)])
    rows = {key: columns[key][order] for key in keys}
    new = np.ones(len(order), dtype=bool)
    new[1:] = np.logical_or.reduce([key[1:] != key[:-1] for key in rows.values()])
    starts = np.flatnonzero(new)
    rows = {key: values[starts] for key, values in rows.items()}
    for name in names:
        values = columns[name][order]
        combine = EXTREMES.get(name, np.add)
        rows[name] = (
            values if len(starts) == len(order) else combine.reduceat(values, starts)
        )
    return rows


class ScoreGrid(NamedTuple):
    """Grid of scores of any sign, in equal steps within octaves; cells increase with the score."""

    floor: int  # scores smaller in size than 2^floor are in cell 0
    steps: int  # 2^steps steps per octave

    def cell(self, score: ArrayLike) -> Ints:
        """Cell of each score."""
        return score_cell(np.asarray(score, dtype=float), self.floor, self.steps)

    def boundary(self, cell: ArrayLike) -> Floats:
        """Lower end of a cell."""
        c = np.asarray(cell, dtype=np.int64)
        # cell c > 0 begins where its step does; cell c <= 0 where the step of 1 - c does
        octave, step = np.divmod(np.where(c > 0, c, 1 - c) - 1, 1 << self.steps)
        size = np.ldexp(1.0 + step / float(1 << self.steps), octave + self.floor)
        return np.asarray(np.where(c > 0, size, -size), dtype=float)


# first grid, for scores of any range: cells of 1/16384 octave
FIRST_GRID = ScoreGrid(FLOOR, steps=14)


# columns of scores on a grid: occupied cells, their items, and sums of whole outcomes or items
CELL_SUMS = "cell", "n", "amount", "score_min", "score_max"


def _choose_grid(low: float, high: float, least: float, most: int) -> ScoreGrid:
    """Finest grid with about `most` cells from `low` to `high`; 0 is below the size `least`."""
    floor = math.frexp(max(least, 5e-324))[1] - 1
    grid = ScoreGrid(floor, 0)
    for steps in range(1, _MOST_STEPS + 1):
        finer = ScoreGrid(floor, steps)
        if np.ptp(finer.cell([low, high])) >= most:
            break
        grid = finer
    return grid


def finer_grid(
    grid: ScoreGrid, cell: Ints, weight: Floats, bins: int, coarse: float
) -> ScoreGrid | None:
    """A grid relative to the range of most scores; None if the first is fine enough."""
    share = weight.sum() / bins
    if weight.max() <= coarse * share:
        return None
    below = np.cumsum(weight)
    begin, end = np.searchsorted(below, [share / 2, below[-1] - share / 2])
    low, high = grid.boundary([cell[begin], cell[min(end, len(cell) - 1)] + 1]).tolist()
    if low <= 0 <= high:  # such a range has more octaves than a finer grid could divide
        return None
    finer = _choose_grid(low, high, min(abs(low), abs(high)), _CHOOSE_CELLS)
    return finer if finer.steps > grid.steps else None


def choose_edges(
    grid: ScoreGrid, cell: Ints, weight: Floats, bins: int, halve_ends: bool
) -> Floats:
    """Interior edges of at most `bins` bins of nearly equal weight; cells are never split."""
    capped = np.minimum(weight, _heaviest(weight, bins))
    below = np.cumsum(capped)
    share = below[-1] / bins
    target = below[-1] * np.arange(1, bins) / bins
    if halve_ends:  # half, quarter, ... of a share, down to half of the outermost cell
        ratios = (max(share / capped[k], 1.0) for k in (0, -1))
        low, high = (
            share * 0.5 ** np.arange(1, math.ceil(math.log2(r)) + 1) for r in ratios
        )
        target = np.concatenate([low[::-1], target, below[-1] - high])
    # the boundary before cell i has below[i - 1] on its left: take the nearer of the two
    after = np.clip(np.searchsorted(below, target), 0, len(cell) - 1)
    before = np.where(after > 0, below[after - 1], 0.0)
    cuts = np.where(target - before <= below[after] - target, after, after + 1)
    cuts = np.unique(cuts[(cuts > 0) & (cuts < len(cell))])
    return grid.boundary(cell[cuts])


def _heaviest(weight: Floats, bins: int) -> float:
    """Cap c with sum of min(weight, c) = c bins: a cell heavier than a bin counts as one bin."""
    falling = np.sort(weight)[::-1]
    remaining = np.cumsum(falling[::-1])[::-1]
    heavy = np.arange(min(bins, len(falling)))
    caps = remaining[heavy] / (bins - heavy)
    enough = np.flatnonzero(falling[heavy] <= caps)
    return float(caps[enough[0]] if len(enough) else falling[-1])


def fewest_in_atom(items: int) -> int:
    """Fewest items of an atom among so many."""
    return max(_ATOM_ITEMS, math.ceil(_ATOM_SHARE * items))


def stand_out(items: Ints, single: Bools) -> Bools:
    """Mask of atoms: places of a `single` score (or size) with far more items than those near."""
    atoms = np.zeros(len(items), dtype=bool)
    occupied = np.flatnonzero(items > 0)
    number = items[occupied]
    last = len(occupied) - 1 - _ATOM_NEAR
    if last < 0:
        return atoms
    sizes = np.where(single[occupied], number, 1)
    for k in np.flatnonzero(
        single[occupied] & (number >= fewest_in_atom(int(number.sum())))
    ):
        start = int(np.clip(k - _ATOM_NEAR // 2, 0, last))
        neighbours = np.delete(sizes[start : start + _ATOM_NEAR + 1], k - start)
        atoms[occupied[k]] = (
            number[k] >= _ATOM_TIMES * np.sort(neighbours)[-1 - _ATOM_OTHERS]
        )
    return atoms


def atom_edges(
    edges: Floats, atoms: Sequence[float], grid: ScoreGrid, cell: Ints
) -> Floats:
    """Edges with two more for each atom, so that its bin holds its score alone."""
    if not len(atoms):
        return edges
    score = np.array(atoms, dtype=float)
    ends = np.abs(grid.boundary(np.concatenate([cell, cell + 1])))
    # next to 0 the smallest numbers would make cells of a lookup very uneven
    gap = np.where(score == 0.0, _ATOM_GAP * ends[ends > 0].min(), 0.0)
    above = np.maximum(np.nextafter(score, np.inf), score + gap)
    return np.unique(np.concatenate([edges, score, above]))


class Lookup(NamedTuple):
    """Bins by grid cell: ``below`` of its cell, plus how many of the next `most` edges are <= t."""

    grid: ScoreGrid
    # the outermost edges; scores are clipped to them
    ends: tuple[float, float]
    lowest: int  # number of the first cell
    below: Ints  # by cell: number of edges in lower cells
    most: int  # edges in the fullest cell
    edges: Floats  # all edges, followed by `most` infinite ones


def make_lookup(edges: Floats) -> Lookup:
    """Coarsest lookup with at most two edges in a cell, or more if edges are very close."""
    if not len(edges):
        below = np.zeros(1, dtype=np.int64)
        return Lookup(ScoreGrid(0, 0), (1.0, 1.0), 1, below, most=0, edges=edges)
    low = float(edges[0])
    high = float(edges[-1])
    least = float(
        np.abs(edges[edges != 0]).min(initial=max(abs(low), abs(high)) or 1.0)
    )
    for number in _LOOKUP_CELLS:
        grid = _choose_grid(low, high, least, number)
        cells = grid.cell(edges)
        cell = np.arange(cells[0], cells[-1] + 1)
        below = np.searchsorted(cells, cell)
        most = int(np.diff(below, append=len(edges)).max())
        if most <= _TOGETHER:
            break
    padded = np.concatenate([edges, np.full(most, np.inf)])
    return Lookup(grid, (low, high), int(cells[0]), below, most, edges=padded)


class Pile:
    """Rows of one table, which may repeat their keys until they are added up."""

    def __init__(self, keys: Sequence[str], names: Sequence[str]) -> None:
        self._keys = keys
        self._names = names
        self._parts: list[Columns] = []

    def __len__(self) -> int:
        return sum(len(part[self._keys[0]]) for part in self._parts)

    def add(self, rows: Columns) -> None:
        """Add rows, which may repeat keys."""
        self._parts.append({name: rows[name] for name in (*self._keys, *self._names)})
        total = len(self._parts[0][self._keys[0]])
        if len(self) - total > max(total, _WAITING):
            self.total()

    def total(self) -> Columns:
        """The rows with distinct keys."""
        if self._parts:
            rows = {
                n: np.concatenate([part[n] for part in self._parts])
                for n in self._parts[0]
            }
            self._parts = [added(rows, self._keys, self._names)]
        return dict(*self._parts)


def added_parts(
    parts: Iterable[Columns], keys: Sequence[str], names: Sequence[str]
) -> Columns:
    """Rows of parts added up by key; nothing if there are none."""
    pile = Pile(keys, names)
    for rows in parts:
        pile.add(rows)
    return pile.total()


def sums_of(tables: dict[str, Any], labels: Sequence[str], n: int) -> Sums:
    """Sums of `n` items by table, with groups in the order of their labels."""
    order = np.argsort(np.argsort(np.array(labels, dtype=object))).astype(np.int64)
    for table in filter(None, tables.values()):
        table["group"] = order[table["group"]]
    _fill_positions(tables["part"])
    return tables, sorted(labels), n


def _fill_positions(part: ColumnDict) -> None:
    """Give bins of one score at an end of a scale, such as 0, the nearest position of others."""
    low = part["score_min"]
    high = part["score_max"]
    for scale in SCALES.values():
        inside = scale.holds(low) & scale.holds(high)
        if scale is LINEAR or scale.sums[0] not in part:
            continue
        scores = [MIDDLE, MIDDLE]  # if no score has a position
        if inside.any():
            scores = [low[inside].min(), high[inside].max()]
        nearest = scale.position(np.array(scores))
        for end, position in zip((scale.low, scale.high), nearest, strict=True):
            bins = (low == end) & (high == end)
            for power, name in enumerate(scale.sums, 1):
                ends = part[SCORE_WEIGHT] * position**power
                part[name] = np.where(bins, ends, part[name])
