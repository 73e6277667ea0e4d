"""Sufficient statistics of items in bins of the score: small and additive; fits read only these."""

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from .._lib.arguments import BOOLEAN, A, StatisticsError, shown
from .._lib.arrays import Bools, ColumnDict, Columns, Floats, Ints, Tables, equal_parts
from .._lib.files import Saved, read_saved, save_netcdf
from .._lib.reprs import counted, html_table, lines, of_statistics
from ..families import family_of_kind
from ..families.family import Family, Outcome
from ..families.noise import NoiseLaw
from ..families.scales import LINEAR, SCORE_WEIGHT, STEPS
from .binning import EXTREMES, added, stand_out
from .formulas import BLOCKS
from .items import CROSS, Grouping, Roles, day, days_in, groupings_of

NO_JOINT_CELLS = (
    'summarize the items with joint=True (joint="auto" keeps them up to 64 MB, and a sum of '
    "statistics if all of them have some)"
)
_NO_FOLDS = "none: summarize with folds=10"
_FORMAT = "soc_pymc-statistics-4"
# attributes that statistics share to be added
_SHARED = (
    "kind", "roles", "noise_df", "shape", "cells", "folds_by", "weights", "folds", "edges"
)  # fmt: skip
# cap on one bin's excess over noise, because its theta may vary
MOST_Z = 3.0


@dataclass(frozen=True, eq=False)
class Statistics:
    """Sufficient statistics of items in bins, made by `summarize`; immutable and additive.

    Attributes
    ----------
    data : xarray.Dataset
        Read-only `xarray.Dataset`. By ``bin``: number of items ``n``, range and sums of the scores
        t (``sum_log_t`` is NaN if a score is at or below 0) of ``sum_weight`` items, as those whose
        sizes make them next to useless hardly count in these, sums of outcomes ``sum_y`` and of
        exposures or trials ``sum_N``; of values ``sum_y2`` and squared noise sds ``sum_s2``; of
        counts ``sum_y_log_N`` and ``above``, the number of items with a count above their exposure.
        By ``part``: the same for every group, fold and bin. By each other `table`: cells with their
        items and sums of powers (w is the squared noise sd). By ``edge``: the interior ``edges``;
        by ``label``: the groups (with dates those of a day, whose labels begin with it).

    Examples
    --------
    >>> import soc_pymc as soc
    >>> (stats + stats).n_items
    8000
    """

    data: xr.Dataset

    @property
    def kind(self) -> str:
        """Kind of the items: ``"poisson"``, ``"normal"``, ``"binomial"`` or ``"amount"``."""
        return str(self.data.attrs["kind"])

    @property
    def truncated(self) -> bool:
        """True if items with an outcome of 0 are absent."""
        return "truncated" in self.data.attrs

    @property
    def family(self) -> Family:
        """The conjugate family of the items' outcomes."""
        return family_of_kind(self.kind, self.data.attrs)

    @property
    def outcome(self) -> Outcome:
        """The kind of the items' outcomes."""
        return self.family.outcome

    @property
    def edges(self) -> Floats:
        """Interior cut points: bin k + 1 is [e_k, e_k+1); the outer bins are open."""
        return np.asarray(self.data["edges"].to_numpy(), dtype=float)

    @property
    def bins(self) -> int:
        """Number of bins, empty ones included."""
        return int(self.data.sizes["bin"])

    @property
    def one_score(self) -> bool:
        """True if all items have the same score, or none has one."""
        lowest = float(self.data["score_min"].min())
        highest = float(self.data["score_max"].max())
        return lowest == highest

    @property
    def n_items(self) -> int:
        """Number of items; of weighted statistics the sum of their weights, rounded."""
        return round(float(self.data["n"].sum()))

    @property
    def roles(self) -> Roles:
        """Names of the items' columns by role."""
        return Roles.of(self.data.attrs)

    @property
    def has_score(self) -> bool:
        """True unless the items have no score."""
        return self.roles.has_score

    @property
    def atoms(self) -> dict[float, int]:
        """Scores with a bin to themselves that many items share, with their numbers of items.

        An atom has at least 50 items, 1% of all, and 10 times those of each of the 20 nearest bins
        (six of which may be atoms too).
        """
        n, single = self._array("n"), self._single_scores
        return self._items_at(stand_out(n, single))

    def _array(self, name: str) -> NDArray[Any]:
        return self.data[name].to_numpy()

    @property
    def ends(self) -> dict[float, int]:
        """Scores without a place on the scale of theta, such as 0, with their numbers of items."""
        n, low, high = map(self._array, ("n", "score_min", "score_max"))
        ends = self.outcome.ends_of(low, high, n)
        return self._items_at((n > 0) & self._single_scores & np.isin(low, ends))

    def bins_of(self, scores: Iterable[float]) -> Ints:
        """Return the bins that hold one of these scores alone."""
        alike = np.isin(self._array("score_min"), [*scores])
        return np.flatnonzero(alike & self._single_scores & (self._array("n") > 0))

    @property
    def _single_scores(self) -> Bools:
        return self._array("score_min") == self._array("score_max")

    def _items_at(self, bins: Bools) -> dict[float, int]:
        columns = (self._array(name)[bins].tolist() for name in ("score_min", "n"))
        return dict(zip(*columns, strict=True))

    @property
    def groups(self) -> tuple[str, ...]:
        """Sorted labels of the groups, of several columns those that occur, as ``"FR × phone"``."""
        return self._label_codes[0] if self.roles.groups else ()

    @cached_property
    def _label_codes(self) -> tuple[tuple[str, ...], Ints]:
        """Sorted labels of groups alone, and which of these each label has."""
        levels = [label.split(CROSS)[self._further :] for label in self._array("label")]
        labels = np.array([CROSS.join(parts) for parts in levels], dtype=object)
        names, code = np.unique(labels, return_inverse=True)
        return tuple(map(str, names)), code.astype(np.int64)

    @property
    def _further(self) -> int:
        """Number of levels of labels before those of groups."""
        return len(self.roles.joined) - len(self.roles.groups)

    @cached_property
    def _day_of(self) -> NDArray[np.datetime64]:
        """Day of each label; empty without dates."""
        labels = self._array("label").tolist() if "date" in self.roles else []
        days = [label.partition(CROSS)[0] for label in labels]
        return np.array(days, dtype="datetime64[D]")

    @property
    def days(self) -> NDArray[np.datetime64]:
        """Days whose items are kept apart, in order; empty without dates."""
        return np.unique(self._day_of)

    @property
    def weights(self) -> str:
        """Weights of days, in words; empty where every item counts once."""
        return str(self.data.attrs.get("weights", ""))

    @property
    def noise_df(self) -> float | str | None:
        """Degrees of freedom of noise sds that are estimates, or their column; None if known."""
        number = self.data.attrs.get("noise_df")
        return self.roles.get("noise_df", number)

    def _df_of(self, table: Columns) -> Floats:
        """Degrees of freedom of lines of a stored table."""
        if not isinstance(self.noise_df, str):
            return np.full(len(table["group"]), self.noise_df)
        place = "date" in self.roles
        levels = [label.split(CROSS)[place] for label in self._array("label")]
        return np.array(levels, dtype=float)[table["group"]]

    @cached_property
    def noise_law(self) -> NoiseLaw | None:
        """Law of the true noise variances, if noise sds are estimates."""
        if self.noise_df is None:
            return None
        cells = self._stored("noise")
        variance = self.outcome.mean_size(cells) ** 2
        score = self._mean_scores[cells["bin"]]
        return NoiseLaw.of(score, variance, cells["n"], self._df_of(cells))

    @property
    def _mean_scores(self) -> Floats:
        """Mean score of each bin; NaN without items."""
        names = (SCORE_WEIGHT, *LINEAR.sums)
        with np.errstate(invalid="ignore"):
            return LINEAR.moments({name: self._array(name) for name in names})[0]

    @property
    def groupings(self) -> tuple[Grouping, ...]:
        """The columns of groups, with their levels and the level of every group."""
        return groupings_of(self.data.attrs, self.groups)

    @property
    def folds(self) -> int:
        """Number of folds; 0 without folds."""
        return int(self.data.attrs["folds"])

    @property
    def blocks(self) -> int:
        """Number of blocks that hold clusters, at most 240, in the column ``fold``; else 0."""
        clustered = self.data.attrs["folds_by"] == "cluster"
        return len(np.unique(self.data["part_fold"])) if clustered else 0

    @property
    def has_joint(self) -> bool:
        """True if joint cells were kept."""
        return self.data.sizes["joint"] > 0

    def table(self, name: str) -> dict[str, NDArray[Any]]:
        """Columns of one table of sums: its keys, then its sums.

        Tables are ``"part"`` and ``"joint"`` (without folds); ``"exposure"`` and ``"count"`` of
        counts; ``"noise"`` of values; ``"trials"``, ``"failures"`` and ``"successes"`` of
        successes; ``"events"`` and ``"amounts"`` of amounts.

        Examples
        --------
        >>> int(stats.table("count")["n"].sum())
        4000
        """
        self.outcome.check_table(name)
        return dict(self._tables[name])

    @cached_property
    def _tables(self) -> dict[str, ColumnDict]:
        """Columns of all tables, of all days together."""
        tables = {name: self._stored(name) for name in self.outcome.tables}
        if self.noise_law:
            joint = tables["joint"]
            joint |= self.noise_law.sums(
                self._mean_scores[joint["bin"]],
                self.outcome.mean_size(joint),
                joint["n"],
                self._df_of(joint),
            )
        if self._further:
            for name, table in tables.items():
                table["group"] = self._label_codes[1][table["group"]]
                if name == "joint" and self.noise_law:
                    continue  # cells of other degrees of freedom stay apart
                keys = self.outcome.tables[name].keys
                tables[name] = added(table, keys, self.outcome.sums(name))
        return tables

    def _stored(self, name: str) -> ColumnDict:
        """Columns of a table as they are stored; with dates, groups are those of a day."""
        columns = self.outcome.columns(name)
        return {column: self._array(f"{name}_{column}") for column in columns}

    def cells(self, name: str) -> dict[str, NDArray[Any]]:
        """Columns of a table with all groups and folds together; StatisticsError if not kept."""
        self.outcome.check_table(name)
        if name == "joint" and not self.has_joint:
            raise StatisticsError(
                f"these statistics have no joint cells: {NO_JOINT_CELLS}"
            )
        keys = self.outcome.tables[name].keys
        finer = [key for key in keys if key not in ("group", "fold")]
        return added(self.table(name), finer, self.outcome.sums(name))

    def of_fold(self, fold: int) -> "Statistics":
        """Statistics of one fold, from 0 to `folds` - 1, without joint cells."""
        return self._selected("fold", self._in_fold(fold))

    def without_fold(self, fold: int) -> "Statistics":
        """Statistics of all folds except one, without joint cells."""
        return self._selected("fold", ~self._in_fold(fold))

    def _in_fold(self, fold: int) -> Bools:
        """Mask of the numbers of folds or blocks that are in a fold."""
        if isinstance(fold, BOOLEAN) or fold not in range(self.folds):
            have = f"0 to {self.folds - 1}" if self.folds else _NO_FOLDS
            raise StatisticsError(
                f"there is no fold {shown(fold)}; the folds are {have}"
            )
        # a fold is made of several blocks of clusters
        return np.arange(max(self.folds, BLOCKS)) % self.folds == fold

    def _selected(self, key: str, weight: NDArray[Any], **attrs: str) -> "Statistics":
        """Statistics of the groups or folds with a weight; numbers multiply the sums."""
        labels = self._array("label")
        tables: dict[str, Columns] = {}
        for name in [name for name, t in self.outcome.tables.items() if key in t.keys]:
            stored = self._stored(name)
            rows = np.flatnonzero(weight[stored[key]])
            table = {column: values[rows] for column, values in stored.items()}
            if weight.dtype != np.bool_:
                sums = set(self.outcome.sums(name)) - EXTREMES.keys()
                table |= {column: table[column] * weight[table[key]] for column in sums}
            if key == "group":
                table["group"] = (np.cumsum(weight > 0) - 1)[table["group"]]
            tables[name] = table
        labels = labels[weight > 0] if key == "group" else labels
        return from_tables(tables, labels, self.edges, {**self.data.attrs, **attrs})

    def window(self, length: str, end: object = None) -> "Statistics":
        """Statistics of the last days, equal to the sum of those of the days.

        `length` is the number of calendar days, as ``"28d"``; `end` is the last, a date or text
        YYYY-MM-DD, by default the last of `days`; StatisticsError if there are no items.
        """
        number = days_in(length, "length")
        age, last = self._ages(end)
        inside = (age >= 0) & (age < number)
        if not inside.any():
            raise StatisticsError(
                f"there are no items in the {number} days to {last}: days are {self.days[0]} to "
                f"{self.days[-1]}"
            )
        return self._selected("group", inside)

    def decay(self, half_life: str, end: object = None) -> "Statistics":
        """Statistics of all days together in which items count less the older they are.

        An item's weight halves with every `half_life`, a number of days as ``"14d"``, up to `end`,
        the day of weight 1, by default the last of `days`; later days are left out. A fit's bands
        are those of as many items as the weights add up to. Checks and comparisons refuse weights.
        """
        if isinstance(self.noise_df, str):
            raise StatisticsError(
                "decay does not go with a column of noise_df=: give window= of days"
            )
        number = days_in(half_life, "half_life")
        age, last = self._ages(end)
        if not (age >= 0).any():
            raise StatisticsError(
                f"all days are after {last}: they begin on {self.days[0]}"
            )
        words = f"half-life of {counted(number, 'day')}, weight 1 on {last}"
        weight = np.where(age >= 0, np.exp2(-age / number), 0.0)
        weighted = self._selected("group", weight, weights=words)
        attrs = undated(weighted.data.attrs)
        labels = weighted._label_codes[0]
        return from_tables(weighted._tables, labels, self.edges, attrs)

    def _ages(self, end: Any) -> tuple[Ints, np.datetime64]:
        """Age in days of each label, below 0 after `end`, by default the last day; and that day."""
        last = None if end is None else day(end, "end")
        if not len(self._day_of):
            raise StatisticsError(
                "these statistics keep no days: summarize the items with date= a column of dates"
            )
        last = self.days[-1] if last is None else last
        return (last - self._day_of).astype(np.int64), last

    @property
    def leakage_z(self) -> float:
        """Z score of the variation of outcomes in their bins: below 0 if noise explains more.

        In each bin, items of one octave of size get a mean of their own; a bin counts for at most
        3, so that a few do not hide many in which outcomes hardly vary.
        """
        refuse_weights(self, "leakage_z")
        known = variation(self)
        excess = np.bincount(known.bin, known.excess, self.bins)
        variance = np.bincount(known.bin, known.variance, self.bins)
        informative = variance > 0
        z = excess[informative] / np.sqrt(variance[informative])
        return float(np.minimum(z, MOST_Z).sum() / np.sqrt(len(z))) if len(z) else 0.0

    def __add__(self, other: "Statistics") -> "Statistics":
        """Statistics of the items of both; joint cells of only some items are dropped."""
        if not isinstance(other, Statistics):
            return NotImplemented
        pair = self, other
        if self.truncated != other.truncated:
            raise StatisticsError(
                "statistics of items with truncated=True, which lack those of 0, and of all items "
                "cannot be added: fit them separately"
            )
        options = [{**s.data.attrs, "edges": s.edges.tolist()} for s in pair]
        own_folds = self.data.attrs["folds_by"] == "column"
        for name in _SHARED:
            values = [shared.get(name, "none") for shared in options]
            if values[0] != values[1] and not (name == "folds" and own_folds):
                raise StatisticsError(
                    f"statistics of different {name} cannot be added "
                    f"({' and '.join(map(shown, values))}): summarize both with the same options, "
                    "the second with edges=first.edges"
                )
        labels = np.unique(np.concatenate([s._array("label") for s in pair]))
        tables: dict[str, Columns] = {}
        for name in self.outcome.tables:
            if name == "joint" and not (self.has_joint and other.has_joint):
                continue
            parts = [s._stored(name) for s in pair]
            for part, s in zip(parts, pair, strict=True):
                code = np.searchsorted(labels, s._array("label"))
                part["group"] = code[part["group"]]
            tables[name] = {
                c: np.concatenate([part[c] for part in parts]) for c in parts[0]
            }
        attrs = {**self.data.attrs, "folds": max(self.folds, other.folds)}
        return from_tables(tables, labels, self.edges, attrs)

    def __radd__(self, other: object) -> "Statistics":
        """`sum` begins with 0."""
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the statistics to one netCDF file, atomically; an older file is replaced."""
        save_netcdf(self.data, path, StatisticsError)

    def __repr__(self) -> str:
        _, (_, sums), *rows = of_statistics(self)
        items = counted(self.n_items, "item")
        return lines(
            f"<soc_pymc.Statistics: {items} in {counted(self.bins, 'bin')}, {sums}>",
            rows,
        )

    def _repr_html_(self) -> str:
        return html_table("Statistics", of_statistics(self))


class Variation(NamedTuple):
    """Squared residuals of outcomes, less their noise, in bins and octaves of size."""

    bin: Ints
    octave: Ints
    excess: Floats
    variance: Floats
    noise: Floats


def variation(stats: Statistics) -> Variation:
    """Return the variation of outcomes where it can be told from noise."""
    outcome = stats.outcome
    margin = outcome.margins[0]
    cells = stats.cells(margin)
    octaves = {**cells, "cell": cells["cell"] >> STEPS}
    octaves = added(octaves, ("bin", "cell"), outcome.sums(margin))
    known, *sums = outcome.excess_squares(octaves, stats.data)
    return Variation(octaves["bin"][known], octaves["cell"][known], *sums)


_ABSENT = 10.0  # items of 0 whose absence is no chance


def words_of_absent_zeros(stats: Statistics) -> str:
    """Evidence that a table lists only items of 1 or more, and what to do; empty if none."""
    number = stats.outcome.absent(stats.cells)
    if number < _ABSENT:
        return ""
    words = stats.outcome.words
    return (
        f"column {stats.roles[stats.outcome.observed]!r}: no {words.outcome} is 0, where at least "
        f"{number:,.0f} of {number + stats.n_items:,.0f} would be: if items of 0 are absent from "
        f"the table, give soc.{stats.kind.capitalize()}Items(..., truncated=True), or else "
        f"{words.theta}s come out too large"
    )


_PARTS = 5  # by exposure
_PER_PART = 20  # least items of about one score, and most parts of the scores
_LEVEL = 1.6  # factor within which numbers are alike


def words_of_percentages(stats: Statistics) -> str:
    """Evidence that outcomes are percentages whose exposures are their trials; empty if none.

    They do not rise with exposures, where those of one rate would, at equal scores too.
    """
    outcome = stats.outcome
    if not outcome.whole:
        return ""
    counts = stats.cells(outcome.margins[-1])
    largest = (counts["sum_y"] / counts["n"]).max()
    if not 10.0 < largest <= 100.0:
        return ""
    cells = stats.cells(outcome.margins[0])
    cells = {name: values[cells["sum_N"] > 0] for name, values in cells.items()}
    n = cells["n"]
    size = cells["sum_N"]
    score_parts = min(stats.n_items // _PER_PART + 1, _PER_PART)
    by_score = equal_parts(cells["bin"], score_parts, n)
    sizes = np.bincount(by_score, size)
    rate = np.bincount(by_score, cells["sum_y"]) / sizes
    by_size = equal_parts(size / n, _PARTS, n)
    total = np.bincount(by_size, cells["sum_y"])
    if len(total) < _PARTS or total.min() == 0:
        return ""
    expected = np.bincount(by_size, size * rate[by_score])
    mean_size = np.bincount(by_size, size) / np.bincount(by_size, n)
    range_of_sizes = range_factor(mean_size)
    rise = range_factor(total / expected * mean_size)
    along_score = range_factor(sizes / np.bincount(by_score, n))
    do_not_rise = rise < _LEVEL and _LEVEL**2 * rise < range_of_sizes
    # scores that are expected counts rise with exposures
    if not do_not_rise or along_score**2 >= range_of_sizes:
        return ""
    words = outcome.words
    return (
        f"column {stats.roles[outcome.observed]!r}: no {words.outcome} is above 100, and they do "
        f"not rise with column {stats.roles[outcome.size]!r}, as of percentages: if they are, "
        f"give the numbers behind them, which are {words.outcomes} in these {words.sizes}"
    )


def range_factor(values: Floats) -> float:
    """Factor between the smallest and the largest of some values."""
    return float(values.max() / values.min())


STATISTICS = A(Statistics, "statistics, from soc.summarize")


def as_independent(stats: Statistics) -> Statistics:
    """The same statistics, without the clusters of their items."""
    if not stats.blocks:
        return stats
    return Statistics(stats.data.assign_attrs(folds_by="item"))


def refuse_weights(stats: Statistics, what: str) -> None:
    """Refuse weighted statistics where whole items are needed."""
    if stats.weights:
        raise StatisticsError(
            f"{what} needs whole items, and these statistics are weighted ({stats.weights}): "
            "give those of a window of days"
        )


def undated(attrs: Mapping[Any, Any]) -> dict[str, Any]:
    """The attributes of statistics without a column of dates."""
    roles = {role: name for role, name in Roles.of(attrs).items() if role != "date"}
    return {**attrs, "roles": json.dumps(Roles(roles).named)}


def from_tables(
    tables: Tables,
    labels: ArrayLike,
    edges: Floats,
    attrs: Mapping[str, Any],
) -> Statistics:
    """Statistics of tables of sums, whose rows may repeat their keys; missing ones are empty."""
    outcome = family_of_kind(attrs["kind"]).outcome
    variables = {"edges": ("edge", np.array(edges))}
    for name, layout in outcome.tables.items():
        empty = {
            c: np.empty(0, float if c in layout.reals else int)
            for c in outcome.columns(name)
        }
        rows = added(tables.get(name) or empty, layout.keys, outcome.sums(name))
        variables |= {
            f"{name}_{column}": (name, values) for column, values in rows.items()
        }
    part = {name: variables[f"part_{name}"][1] for name in outcome.columns("part")}
    totals = added(part, ("bin",), outcome.sums("part"))
    for name in outcome.sums("part"):
        no_items = np.nan if name in EXTREMES else 0
        values = np.full(len(edges) + 1, no_items, dtype=totals[name].dtype)
        values[totals["bin"]] = totals[name]
        variables[name] = ("bin", values)
    for _, values in variables.values():
        values.flags.writeable = False
    coords = {"label": ("label", np.array(labels, dtype=object))}
    return Statistics(xr.Dataset(variables, coords, {"format": _FORMAT, **attrs}))


def load_statistics(path: str | os.PathLike[str]) -> Statistics:
    """Read statistics that `Statistics.save` wrote; nothing in the file is executed.

    Parameters
    ----------
    path : str or Path
        The netCDF file.

    Returns
    -------
    Statistics
        Those that were saved, exactly.

    Raises
    ------
    StatisticsError
        If the file is missing, damaged, not saved statistics, or of another format version.

    Examples
    --------
    >>> import tempfile
    >>> import soc_pymc as soc
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     stats.save(f"{folder}/stats.nc")
    ...     soc.load_statistics(f"{folder}/stats.nc").n_items
    4000
    """
    words = "statistics", "soc-pymc summarize"
    data = read_saved(path, Saved(*words, _FORMAT, StatisticsError, xr.open_dataset))
    for values in data.variables.values():
        values.to_numpy().flags.writeable = False
    labels = data["label"].to_numpy().astype(object)
    data = data.assign_attrs(folds=int(data.attrs["folds"]))
    return Statistics(data.assign_coords(label=("label", labels)))
