"""Rows: groups of items in the likelihood, and their positions on the curves' axes.

Without further terms a row is an occupied bin; with groups it is a group's bin; with a term in
exposure, a bin's items in one half-octave of exposures (or of the noise's sd).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .._lib.arguments import digits
from .._lib.arrays import Floats, Ints
from .._lib.errors import FitError
from ..data.statistics import Statistics
from ..families.cells import ZERO_EXPOSURE
from ..families.family import Family
from ..families.row_sums import Columns, RowSums
from ..families.scales import RANK, SCALES
from .splines import Axis

CLASS = 3  # sizes have 16 cells per octave, and 2^3 cells make a class
_CLASSES = 1 << 20  # more than the number of classes of either sign
MOST_BINS = 200
"""Bins with groups, classes of sizes or effects; more cost time and hardly improve the curves."""
_SUMS = ("n", *(name for scale in SCALES.values() for name in scale.sums))


@dataclass(frozen=True)
class Rows:
    """Rows with their positions."""

    group: Ints  # code of each row's group, 0 if groups are pooled
    bin: Ints  # its first bin
    place: Ints  # number of its bins, which a row may have several of, along the scores
    place_of: Ints  # the same number for every bin of the statistics
    atom: Ints  # its atom: the k-th from 1, and 0 for other rows
    atoms: Floats  # scores of the atoms
    size: Ints  # its class of sizes; 0 without classes
    n: Floats  # items of each row
    # over the items of the row's group and bins: `n`, and sums of positions of every scale kept
    sums: Mapping[str, Floats]
    rank: Floats  # share of all items, without atoms, below the middle of the row's bins
    rank_width: Floats  # and within them
    log_size: Floats  # mean log exposure (log noise sd) of its items; 0 without classes

    @property
    def number(self) -> int:
        """Number of rows."""
        return len(self.n)

    @property
    def effect_bins(self) -> Ints:
        """Bins of the statistics whose places have rows."""
        return np.flatnonzero(np.isin(self.place_of, self.place))

    @property
    def beside(self) -> Floats:
        """Items of each row that are beside the atoms: they place knots and the average."""
        return np.where(self.atom > 0, 0.0, self.n)


def rows_of(
    stats: Statistics,
    family: Family,
    grouped: bool = False,
    by_size: bool = False,
    atoms: bool = False,
    most_bins: int = 0,
) -> tuple[Rows, RowSums]:
    """Rows with the sums for the family's likelihood.

    With `grouped` each group has its own rows; with `by_size` so has each class of sizes, from
    joint cells. With `atoms` the statistics' atoms have rows of their own. Neighbouring bins are
    merged to `most_bins` or fewer; by default only those of groups or sizes are.
    """
    family.rows.check(stats.table("part"))
    tables = ("joint",) if by_size else family.rows.margins
    rows, cells = make_rows(stats, family, tables, grouped, by_size, atoms, most_bins)
    return rows, family.rows.of(rows.number, cells)


def make_rows(
    stats: Statistics,
    family: Family,
    tables: Sequence[str] = (),
    grouped: bool = False,
    by_size: bool = False,
    atoms: bool = False,
    most_bins: int = 0,
) -> tuple[Rows, dict[str, Columns]]:
    """Rows of statistics, and the tables of cells with a column ``row``."""
    part = stats.table("part")
    width, size_cell = 1, family.rows.size_cell
    if by_size:
        width = max(stats.coarse, 1)
    if not most_bins:
        most_bins = MOST_BINS if by_size or grouped else stats.bins
    while stats.bins > most_bins * width:
        width *= 2
    cells: dict[str, Columns] = {name: _table(stats, name) for name in tables}
    base: Columns
    if by_size:
        (name,) = tables
        cells[name] = _chosen(cells[name], cells[name][size_cell] != ZERO_EXPOSURE)
        base = cells[name]
        code = base[size_cell] >> CLASS
    else:
        base = _chosen(part, part["n"] > 0)
        code = np.zeros(len(base["n"]), dtype=np.int64)
    at_atoms = atom_bins(stats, atoms)
    place_of = _places(stats.bins, width, at_atoms)
    place = _row_ids(base, grouped, place_of)
    key, first, row = np.unique(
        place * _CLASSES + code + _CLASSES // 2, return_index=True, return_inverse=True
    )
    n = np.bincount(row, base["n"])
    keyed: dict[str, Columns] = {} if by_size else {"part": {**base, "row": row}}
    for name, table in cells.items():
        size_of_row = row
        if table is not base:
            size_of_row = np.searchsorted(
                key, _row_ids(table, grouped, place_of) * _CLASSES + _CLASSES // 2
            )
        keyed[name] = {**table, "row": size_of_row.astype(np.int64)}
        if width > 1:
            keyed[name] = dict(pooled(keyed[name]))
    log_size = np.zeros(len(key))
    if by_size:
        log_size = np.bincount(row, base["n"] * np.log(family.outcome.forms.mean_size(base))) / n
    places, row_of = np.unique(place, return_inverse=True)
    sums = _sums(part, grouped, place_of, places)
    items = np.bincount(place_of, items_beside(stats, at_atoms))
    share = items / items.sum()
    bins = place[first] % _CLASSES
    first_bin = np.searchsorted(place_of, bins)
    atom = np.zeros(stats.bins, dtype=np.int64)
    atom[at_atoms] = 1 + np.arange(len(at_atoms))
    rows = Rows(
        place[first] // _CLASSES,
        first_bin,
        bins,
        place_of,
        atom[first_bin],
        stats.data["score_min"].to_numpy()[at_atoms],
        code[first],
        n,
        {name: values[row_of[first]] for name, values in sums.items()},
        ((np.cumsum(items) - 0.5 * items) / items.sum())[bins],
        share[bins],
        log_size,
    )
    return rows, keyed


def atom_bins(stats: Statistics, atoms: bool) -> Ints:
    """Bins of the statistics' atoms, if they are rows of their own."""
    return stats.atom_bins if atoms else np.empty(0, dtype=np.int64)


def check_atoms_apart(stats: Statistics) -> None:
    """Refuse joint cells in which atoms are merged with other scores."""
    if stats.coarse > 1 and (atoms := stats.atoms):
        raise FitError(
            f"joint cells are of {stats.coarse} bins together, in which scores shared by many "
            f"items ({', '.join(map(digits, list(atoms)[:3]))}) are with others: "
            "summarize with fewer bins=, or with joint= a larger number of cells, or fit a prior "
            "with atoms=False"
        )


def items_beside(stats: Statistics, atoms: Ints) -> Floats:
    """Items of every bin, without those of some."""
    n = stats.data["n"].to_numpy().copy()
    n[atoms] = 0
    return n


def _places(bins: int, width: int, atoms: Ints) -> Ints:
    """Number of each bin's row along the scores: `width` bins are in one, but atoms stay alone."""
    starts = np.arange(bins) % width == 0
    starts[atoms] = True
    starts[atoms[atoms + 1 < bins] + 1] = True
    return np.cumsum(starts) - 1


def _table(stats: Statistics, name: str) -> Columns:
    """A table of cells, with the first bin of each: joint cells may be of several bins."""
    table = stats.table(name)
    return {**table, "bin": table["bin"] * stats.coarse} if name == "joint" else table


def cells_of(
    stats: Statistics, family: Family, rows: Rows, grouped: bool, by_size: bool
) -> Columns:
    """Joint cells with a column ``row``: the first row of each cell's group, bins and class."""
    table: Columns = _table(stats, "joint")
    code = np.zeros(len(table["n"]), dtype=np.int64)
    if by_size:
        size_cell = family.rows.size_cell
        table = _chosen(table, table[size_cell] != ZERO_EXPOSURE)
        code = table[size_cell] >> CLASS
    place = _row_ids(table, grouped, rows.place_of)
    have = rows.group * _CLASSES + rows.place
    row = np.searchsorted(have * _CLASSES + rows.size, place * _CLASSES + code)
    return {**table, "row": row}


def pooled(cells: Columns) -> Columns:
    """Cells of rows with those of equal outcomes and sizes added up."""
    keys = {name: cells[name] for name in cells if name == "row" or name.endswith("cell")}
    order = np.lexsort(tuple(keys.values()))
    ordered = {name: values[order] for name, values in keys.items()}
    change = [np.diff(values) != 0 for values in ordered.values()]
    first = np.concatenate([[0], 1 + np.flatnonzero(np.any(change, axis=0))])
    sums = {
        name: np.add.reduceat(values[order], first)
        for name, values in cells.items()
        if name == "n" or name.startswith("sum_")
    }
    return {name: values[first] for name, values in ordered.items()} | sums


def _chosen(table: Columns, kept: NDArray[np.bool_]) -> Columns:
    return {name: values[kept] for name, values in table.items()}


def _row_ids(table: Columns, grouped: bool, place_of: Ints) -> Ints:
    """Group and bins of each line of a table as one number."""
    group = table["group"] if grouped else 0
    return np.asarray(group * _CLASSES + place_of[table["bin"]], dtype=np.int64)


def _sums(part: Columns, grouped: bool, place_of: Ints, places: Ints) -> dict[str, Floats]:
    """Sums of the scores over places."""
    rows = np.searchsorted(places, _row_ids(part, grouped, place_of))
    inside = (rows < len(places)) & (
        places[np.minimum(rows, len(places) - 1)] == _row_ids(part, grouped, place_of)
    )
    return {
        name: np.bincount(rows[inside], part[name][inside], len(places))
        for name in _SUMS
        if name in part
    }


def positions(axis: Axis, rows: Rows) -> Floats:
    """Average position on the axis of the items of each row's bins."""
    if axis.scale == RANK:
        return rows.rank
    return np.asarray(rows.sums[axis.local.sums[0]] / rows.sums["n"])


def position_variances(axis: Axis, rows: Rows) -> Floats:
    """Variance of the positions of the items of each row's bins on the axis."""
    if axis.scale == RANK:
        return np.asarray(rows.rank_width**2 / 12.0)
    first, second = (rows.sums[name] / rows.sums["n"] for name in axis.local.sums)
    variance = second - first**2
    # a variance below the rounding of the sums is 0
    return np.where(variance > 1e-12 * second, variance, 0.0)
