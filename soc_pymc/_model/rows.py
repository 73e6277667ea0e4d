"""Rows: groups of items in the likelihood, and their positions on the curves' axes.

Without further terms a row is an occupied bin; with groups it is a group's bin; with a term in
exposure, a bin's items in one half-octave of exposures (or of the noise's sd).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from .._lib.arrays import Columns, Floats, Ints, Pair
from ..data.binning import stand_out
from ..data.statistics import Statistics
from ..families.family import Family, Outcome
from ..families.rows import RowSums, pooled
from ..families.scales import RANK, SCALES, SCORE_WEIGHT, ZERO_EXPOSURE
from .splines import Axis

CLASS = 3  # sizes have 16 cells per octave, and 2^3 cells make a class
_CLASSES = 1 << 20  # more than the number of classes of either sign
_FIRST_ATOM = 1 << 18  # number of the class of the first atom of size
# bins with groups, classes of sizes or effects; more cost time and hardly improve the curves
MOST_BINS = 200
# of the items of an atom: average distance from its log size, and share in lines of that size alone
_NEARLY_ATOM = 1e-3
_MOST_OF = 0.2
_SCORE_SUMS = (
    "n",
    SCORE_WEIGHT,
    *(name for scale in SCALES.values() for name in scale.sums),
)


@dataclass(frozen=True, eq=False)
class Keys:
    """Numbers of rows by group, place along the scores and class of sizes, in this order."""

    grouped: bool
    # column of cells with an item's size; empty without classes
    size_cell: str
    # place of every bin of the statistics; a place may have several bins
    place_of: Ints
    # of sizes that many items share, each a class of its own
    atom_cells: Ints

    def places(self, table: Columns) -> Ints:
        """Group and place of each line of a table as one number."""
        group = table["group"] if self.grouped else 0
        return np.asarray(
            group * _CLASSES + self.place_of[table["bin"]], dtype=np.int64
        )

    def __call__(self, table: Columns) -> Ints:
        """Number of each line's row."""
        if not self.size_cell:
            return self.places(table) * _CLASSES
        cell = table[self.size_cell]
        atom = _FIRST_ATOM + np.searchsorted(self.atom_cells, cell)
        size = np.where(np.isin(cell, self.atom_cells), atom, cell >> CLASS)
        return self.places(table) * _CLASSES + _CLASSES // 2 + size

    def table(self, stats: Statistics, name: str) -> Columns:
        """A table's occupied lines."""
        table = stats.table(name)
        chosen = table["n"] > 0
        if self.size_cell:
            chosen &= table[self.size_cell] != ZERO_EXPOSURE
        return {column: values[chosen] for column, values in table.items()}


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows with their positions."""

    keys: Keys
    key: Ints  # rising number of each row
    group: Ints  # code of each row's group, 0 if groups are pooled
    place: Ints  # number of its bins along the scores
    bin: Ints  # the first of these
    size: Ints  # its class of sizes
    # its atom of size: the k-th from 1, and 0 for other rows
    size_atom: Ints
    atom: Ints  # its atom: the k-th from 1, and 0 for other rows
    atoms: Floats  # scores of the atoms
    n: Floats  # items of each row
    informative: Floats  # those whose sizes carry information
    # these of every bin of the statistics, 0 in atoms
    items: Floats
    # over the items of the row's group and bins: `n`, and sums of positions of every scale kept
    sums: Mapping[str, Floats]
    # share of these, without atoms, below the middle of the row's bins
    rank: Floats
    rank_width: Floats  # and within them
    # mean log exposure (log noise sd) of its items; 0 without classes
    log_size: Floats
    size_atoms: Floats  # exposures (noise sds) that many items share

    @property
    def outside_atoms(self) -> Floats:
        """Informative items of each row outside the atoms (or in these alone): they place knots."""
        beside = np.where(self.atom > 0, 0.0, self.informative)
        return beside if beside.any() else self.informative


def rows_of(
    stats: Statistics,
    family: Family,
    grouped: bool = False,
    by_size: bool = False,
    atoms: Sequence[float] = (),
    most_bins: int = 0,
) -> tuple[Rows, RowSums]:
    """Rows, of merged bins if there are more than `most_bins`, with the sums for the likelihood.

    Bins of the scores `atoms` stay alone.
    """
    if not most_bins:
        most_bins = MOST_BINS if by_size or grouped else stats.bins
    rows = placed_rows(stats, family, grouped, by_size, atoms, most_bins)
    names = ("part", *family.outcome.margins)
    if by_size or stats.noise_law:
        names = ("joint",)
    cells = {name: cells_by_row(stats, rows, name) for name in names}
    if rows.keys.place_of[-1] + 1 < stats.bins:  # bins are merged
        cells |= {name: pooled(cells[name]) for name in names if name != "part"}
    return rows, family.rows_of(len(rows.n), cells)


def placed_rows(
    stats: Statistics,
    family: Family,
    grouped: bool,
    by_size: bool,
    atoms: Sequence[float],
    most_bins: int,
) -> Rows:
    """Rows as of `rows_of`, without their sums."""
    family.rows.check(stats.table("part"))
    at_atoms = stats.bins_of(atoms)
    place_of = _places(stats, most_bins, at_atoms)
    size_cell = family.outcome.size_cell if by_size else ""
    keys = Keys(grouped, size_cell, place_of, np.empty(0, dtype=np.int64))
    limit = _size_limit(stats, family.outcome)
    return _rows_by_key(stats, family, keys, at_atoms, limit)


def _size_limit(stats: Statistics, outcome: Outcome) -> float | None:
    """Limit of the sizes that carry information; None if all do."""
    margin = outcome.size_margin
    return outcome.size_limit(stats.table(margin)) if margin else None


def _rows_by_key(
    stats: Statistics,
    family: Family,
    keys: Keys,
    at_atoms: Ints,
    limit: float | None,
) -> Rows:
    base = keys.table(stats, "joint" if keys.size_cell else "part")
    size_atoms = np.empty(0)
    log_sizes = np.zeros(len(base["n"]))
    if keys.size_cell:
        log_sizes = np.log(family.outcome.mean_size(base)).round(12)
        common_sizes = _common_sizes(base[keys.size_cell], log_sizes, base["n"])
        keys = replace(keys, atom_cells=common_sizes["cell"].to_numpy())
        size_atoms = common_sizes["log"].to_numpy()
    key, row = np.unique(keys(base), return_inverse=True)
    places, size = np.divmod(key, _CLASSES)
    group, place = np.divmod(places, _CLASSES)
    size_atom = np.maximum(size - _CLASSES // 2 - _FIRST_ATOM + 1, 0)
    n = np.bincount(row, base["n"])
    # items of one size have one position despite rounding
    log_size = (np.bincount(row, base["n"] * log_sizes) / n).round(12)
    log_size[size_atom > 0] = size_atoms[size_atom[size_atom > 0] - 1]
    part = stats.table("part")
    places_of_part, line = np.unique(keys.places(part), return_inverse=True)
    chosen = np.searchsorted(places_of_part, places)
    atom = np.zeros(stats.bins, dtype=np.int64)
    atom[at_atoms] = 1 + np.arange(len(at_atoms))
    informative = n
    items = stats.data["n"].to_numpy().astype(float)
    if limit is not None:
        table = (
            base if keys.size_cell else keys.table(stats, family.outcome.size_margin)
        )
        tells = family.outcome.tells(family.outcome.mean_size(table), limit)
        known = np.where(tells, table["n"], 0)
        informative = np.bincount(np.searchsorted(key, keys(table)), known)
        items = np.bincount(table["bin"], known, stats.bins)
    items = np.where(atom > 0, 0.0, items)
    of_places = np.bincount(keys.place_of, items)
    total = max(items.sum(), 1.0)  # of atoms alone 0
    first_bin = np.searchsorted(keys.place_of, place)
    return Rows(
        keys=keys,
        key=key,
        group=group,
        place=place,
        bin=first_bin,
        size=size,
        size_atom=size_atom,
        atom=atom[first_bin],
        atoms=stats.data["score_min"].to_numpy()[at_atoms],
        n=n,
        informative=informative,
        sums={x: np.bincount(line, part[x])[chosen] for x in _SCORE_SUMS if x in part},
        items=items,
        rank=((np.cumsum(of_places) - 0.5 * of_places) / total)[place],
        rank_width=(of_places / total)[place],
        log_size=log_size,
        size_atoms=np.exp(size_atoms),
    )


def _common_sizes(cell: Ints, log_size: Floats, n: Floats) -> pd.DataFrame:
    """Cells, and log sizes, where nearly all items have one size, far more than in cells nearby."""
    lines = pd.DataFrame({"cell": cell, "log": log_size, "n": n})
    sizes = lines.groupby(["cell", "log"], as_index=False)["n"].sum()
    common = sizes.loc[sizes.groupby("cell")["n"].idxmax()].set_index("cell")
    items = lines.groupby("cell")["n"].sum()
    apart = (
        lines["n"] * (lines["log"] - lines["cell"].map(common["log"])).abs()
    ).groupby(cell)
    one_size = (apart.sum() < _NEARLY_ATOM * items) & (common["n"] > _MOST_OF * items)
    number = items.to_numpy().astype(np.int64)
    far_more = stand_out(number, np.ones(len(number), dtype=bool))
    return common.loc[one_size.to_numpy() & far_more].reset_index()


def sizes_vary(stats: Statistics, family: Family) -> bool:
    """Return True if items that say something of theta have sizes of several classes."""
    table = stats.table("joint")
    cell = table[family.outcome.size_cell]
    informative = (table["n"] > 0) & (cell != ZERO_EXPOSURE)
    return bool(np.ptp(cell[informative] >> CLASS))


def cells_by_row(stats: Statistics, rows: Rows, name: str) -> Columns:
    """A table of cells with a column ``row``: joint cells, or any if rows have no classes."""
    table = rows.keys.table(stats, name)
    return {
        **table,
        "row": np.searchsorted(rows.key, rows.keys(table)).astype(np.int64),
    }


def _places(stats: Statistics, most_bins: int, at_atoms: Ints) -> Ints:
    """Number of each bin's row along the scores: neighbours are in one, but atoms stay alone."""
    # at most `most_bins` bins
    width = 1 << (-(-stats.bins // most_bins) - 1).bit_length()
    starts = np.arange(stats.bins) % width == 0
    starts[at_atoms] = True
    starts[at_atoms[at_atoms + 1 < stats.bins] + 1] = True
    return np.cumsum(starts) - 1


def positions(axis: Axis, rows: Rows) -> Pair:
    """Mean and variance of the positions on the axis of the items of each row's bins."""
    if axis.scale == RANK:
        return rows.rank, rows.rank_width**2 / 12.0
    mean, variance = axis.local.moments(rows.sums)
    return mean, np.nan_to_num(variance)
