"""Rows: groups of items in the likelihood, and their positions on the curves' axes.

Without further terms a row is an occupied bin; with groups it is a group's bin; with a term in
exposure, a bin's items in one half-octave of exposures (or of the noise's sd).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from .._lib.arguments import digits
from .._lib.arrays import Floats, Ints
from .._lib.errors import FitError
from ..data.binning import stand_out
from ..data.statistics import Statistics
from ..families.family import Family
from ..families.row_sums import Columns, RowSums
from ..families.scales import RANK, SCALES, ZERO_EXPOSURE, Scale
from .splines import Axis

CLASS = 3  # sizes have 16 cells per octave, and 2^3 cells make a class
_CLASSES = 1 << 20  # more than the number of classes of either sign
_FIRST_ATOM = 1 << 18  # number of the class of the first atom of size
MOST_BINS = 200
"""Bins with groups, classes of sizes or effects; more cost time and hardly improve the curves."""
# of the items of an atom: average distance from its log size, and share in lines of that size alone
_NEARLY, _MOST_OF = 1e-3, 0.2
_SUMS = ("n", *(name for scale in SCALES.values() for name in scale.sums))


@dataclass(frozen=True)
class Keys:
    """Numbers of rows by group, place along the scores and class of sizes, in this order."""

    grouped: bool
    size_cell: str  # column of cells with an item's size; empty without classes
    place_of: Ints  # place of every bin of the statistics; a place may have several bins
    atom_cells: Ints  # of sizes that many items share, each a class of its own

    def places(self, table: Columns) -> Ints:
        """Group and place of each line of a table as one number."""
        group = table["group"] if self.grouped else 0
        return np.asarray(group * _CLASSES + self.place_of[table["bin"]], dtype=np.int64)

    def __call__(self, table: Columns) -> Ints:
        """Number of each line's row."""
        code = np.zeros(1, dtype=np.int64)
        if self.size_cell:
            cell = table[self.size_cell]
            atom = np.searchsorted(self.atom_cells, cell)
            code = np.where(np.isin(cell, self.atom_cells), _FIRST_ATOM + atom, cell >> CLASS)
        return np.asarray(self.places(table) * _CLASSES + code + _CLASSES // 2)


@dataclass(frozen=True)
class Rows:
    """Rows with their positions."""

    keys: Keys
    key: Ints  # rising number of each row
    bin: Ints  # its first bin
    atom: Ints  # its atom: the k-th from 1, and 0 for other rows
    atoms: Floats  # scores of the atoms
    n: Floats  # items of each row
    # over the items of the row's group and bins: `n`, and sums of positions of every scale kept
    sums: Mapping[str, Floats]
    rank: Floats  # share of all items, without atoms, below the middle of the row's bins
    rank_width: Floats  # and within them
    log_size: Floats  # mean log exposure (log noise sd) of its items; 0 without classes
    size_atoms: Floats  # exposures (noise sds) that many items share

    @property
    def number(self) -> int:
        """Number of rows."""
        return len(self.n)

    @property
    def group(self) -> Ints:
        """Code of each row's group, 0 if groups are pooled."""
        return self.key // _CLASSES**2

    @property
    def place(self) -> Ints:
        """Number of each row's bins along the scores."""
        return self.key // _CLASSES % _CLASSES

    @property
    def size(self) -> Ints:
        """Class of sizes of each row, 0 without classes."""
        return self.key % _CLASSES - _CLASSES // 2

    @property
    def size_atom(self) -> Ints:
        """Atom of size of each row: the k-th from 1, and 0 for other rows."""
        return np.maximum(self.size - _FIRST_ATOM + 1, 0)

    @property
    def effect_bins(self) -> Ints:
        """Bins of the statistics whose places have rows."""
        return np.flatnonzero(np.isin(self.keys.place_of, self.place))

    @property
    def beside(self) -> Floats:
        """Items of each row outside the atoms, which place the knots and the average."""
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
    rows = make_rows(stats, family, grouped, by_size, atoms, most_bins)
    names = ("joint",) if by_size else ("part", *family.rows.margins)
    merged = rows.keys.place_of[-1] + 1 < stats.bins
    cells = {
        name: pooled(table) if merged and name != "part" else table
        for name in names
        for table in [cells_of(stats, rows, name)]
    }
    return rows, family.rows.of(rows.number, cells)


def make_rows(
    stats: Statistics,
    family: Family,
    grouped: bool = False,
    by_size: bool = False,
    atoms: bool = False,
    most_bins: int = 0,
) -> Rows:
    """Rows of statistics, as in `rows_of`."""
    width = max(stats.coarse, 1) if by_size else 1
    if not most_bins:
        most_bins = MOST_BINS if by_size or grouped else stats.bins
    while stats.bins > most_bins * width:
        width *= 2
    at_atoms = atom_bins(stats, atoms)
    place_of = _places(stats.bins, width, at_atoms)
    size_cell = family.rows.size_cell if by_size else ""
    keys = Keys(grouped, size_cell, place_of, np.empty(0, dtype=np.int64))
    base, size_atoms = _table(stats, "joint" if by_size else "part", keys), np.empty(0)
    if by_size:
        log_sizes = np.log(family.outcome.forms.mean_size(base)).round(12)
        common_sizes = _common_sizes(base[size_cell], log_sizes, base["n"])
        keys = replace(keys, atom_cells=common_sizes["cell"].to_numpy())
        size_atoms = np.exp(common_sizes["log"].to_numpy())
    key, index, row = np.unique(keys(base), return_index=True, return_inverse=True)
    n, log_size = np.bincount(row, base["n"]), np.zeros(len(key))
    if by_size:
        log_size = np.bincount(row, base["n"] * log_sizes) / n
        log_size = log_size.round(12)  # items of one size have one position despite rounding
        code = key % _CLASSES - _CLASSES // 2 - _FIRST_ATOM
        log_size[code >= 0] = common_sizes["log"].to_numpy()[code[code >= 0]]
    places, row_of_place = np.unique(keys.places(base)[index], return_inverse=True)
    part = stats.table("part")
    inside = np.isin(keys.places(part), places)
    line = np.searchsorted(places, keys.places(part)[inside])
    sums = {
        name: np.bincount(line, part[name][inside], len(places))[row_of_place]
        for name in _SUMS
        if name in part
    }
    items = np.bincount(place_of, items_beside(stats, at_atoms))
    share, place = items / items.sum(), key // _CLASSES % _CLASSES
    first_bin = np.searchsorted(place_of, place)
    atom = np.zeros(stats.bins, dtype=np.int64)
    atom[at_atoms] = 1 + np.arange(len(at_atoms))
    return Rows(
        keys=keys,
        key=key,
        bin=first_bin,
        atom=atom[first_bin],
        atoms=stats.data["score_min"].to_numpy()[at_atoms],
        n=n,
        sums=sums,
        rank=((np.cumsum(items) - 0.5 * items) / items.sum())[place],
        rank_width=share[place],
        log_size=log_size,
        size_atoms=size_atoms,
    )


def _common_sizes(cell: Ints, log_size: Floats, n: Floats) -> pd.DataFrame:
    """Cells whose items nearly all have one size, far more of them than any cell nearby holds.

    Columns are ``cell`` and ``log``, the logarithm of the size. Lines of joint cells have the mean
    size of their items.
    """
    lines = pd.DataFrame({"cell": cell, "log": log_size, "n": n})
    sizes = lines.groupby(["cell", "log"], as_index=False)["n"].sum()
    common = sizes.loc[sizes.groupby("cell")["n"].idxmax()].set_index("cell")
    items = lines.groupby("cell")["n"].sum()
    apart = (lines["n"] * (lines["log"] - lines["cell"].map(common["log"])).abs()).groupby(cell)
    one_size = (apart.sum() < _NEARLY * items) & (common["n"] > _MOST_OF * items)
    number = items.to_numpy().astype(np.int64)
    far_more = stand_out(number, np.ones(len(number), dtype=bool))
    return common.loc[one_size.to_numpy() & far_more].reset_index()


def cells_of(stats: Statistics, rows: Rows, name: str) -> Columns:
    """A table of cells with a column ``row``, of the first bin and class of each."""
    table = _table(stats, name, rows.keys)
    keys = rows.keys if name == "joint" else replace(rows.keys, size_cell="")
    return {**table, "row": np.searchsorted(rows.key, keys(table)).astype(np.int64)}


def _table(stats: Statistics, name: str, keys: Keys) -> Columns:
    """A table's occupied lines, with the first bin of each: joint cells may be of several bins."""
    table = stats.table(name)
    if name == "joint":
        table = {**table, "bin": table["bin"] * stats.coarse}
    chosen = table["n"] > 0
    if name == "joint" and keys.size_cell:
        chosen &= table[keys.size_cell] != ZERO_EXPOSURE
    return {column: values[chosen] for column, values in table.items()}


def atom_bins(stats: Statistics, atoms: bool) -> Ints:
    """Bins of the statistics' atoms, if they are rows of their own."""
    return stats.atom_bins if atoms else np.empty(0, dtype=np.int64)


def check_atoms_apart(stats: Statistics) -> None:
    """Refuse joint cells in which atoms are merged with other scores."""
    if stats.coarse > 1 and (atoms := stats.atoms):
        raise FitError(
            f"joint cells merge {stats.coarse} bins, in which scores shared by many "
            f"items ({', '.join(map(digits, list(atoms)[:3]))}) are with others: "
            "summarize with fewer bins=, or with joint= a larger number of cells, or fit a prior "
            "with atoms=False"
        )


def items_beside(stats: Statistics, atoms: Ints) -> Floats:
    """Items of every bin, 0 in the bins of atoms."""
    n = stats.data["n"].to_numpy().copy()
    n[atoms] = 0
    return n


def _places(bins: int, width: int, atoms: Ints) -> Ints:
    """Number of each bin's row along the scores: `width` bins are in one, but atoms stay alone."""
    starts = np.arange(bins) % width == 0
    starts[atoms] = True
    starts[atoms[atoms + 1 < bins] + 1] = True
    return np.cumsum(starts) - 1


def pooled(cells: Columns) -> Columns:
    """Cells of rows with those of equal outcomes and sizes added up."""
    keys = {name: cells[name] for name in cells if name == "row" or name.endswith("cell")}
    order = np.lexsort(tuple(keys.values()))
    ordered = {name: values[order] for name, values in keys.items()}
    change = [np.diff(values) != 0 for values in ordered.values()]
    starts = np.concatenate([[0], 1 + np.flatnonzero(np.any(change, axis=0))])
    sums = {
        name: np.add.reduceat(values[order], starts)
        for name, values in cells.items()
        if name == "n" or name.startswith("sum_")
    }
    return {name: values[starts] for name, values in ordered.items()} | sums


def positions(axis: Axis, rows: Rows) -> Floats:
    """Average position on the axis of the items of each row's bins."""
    if axis.scale == RANK:
        return rows.rank
    return np.asarray(rows.sums[axis.local.sums[0]] / rows.sums["n"])


def position_variances(axis: Axis, rows: Rows) -> Floats:
    """Variance of the positions of the items of each row's bins on the axis."""
    if axis.scale == RANK:
        return np.asarray(rows.rank_width**2 / 12.0)
    return np.nan_to_num(scale_variances(axis.local, rows))


def scale_variances(scale: Scale, rows: Rows) -> Floats:
    """Variance on a scale of the items of each row's bins; NaN if a score has no position."""
    mean, square = (rows.sums[name] / rows.sums["n"] for name in scale.sums)
    variance = square - mean**2
    # a variance below the rounding of the sums is 0
    return np.where(variance <= 1e-12 * square, 0.0, variance)
