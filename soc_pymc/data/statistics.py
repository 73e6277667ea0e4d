"""Sufficient statistics of items in bins of the score: small and additive; fits read only these.

A bin's items are counted in cells over exposures and in cells over counts, or in cells over noise
sds: exact small cells, and cells of 1/16 octave that also keep sums. Joint cells are optional.
Statistics of days, files or machines add up.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from .._lib.arguments import OrNone, checked, shown
from .._lib.arrays import Floats, Ints
from .._lib.errors import StatisticsError
from .._lib.files import read_saved, save_netcdf
from .._lib.reprs import html_table, lines, of_statistics
from ..families.cells import STEPS
from ..families.outcomes import OUTCOMES, Outcome
from ..families.row_sums import Cells
from .binning import EXTREMES, Columns, added, group, stand_out
from .days import Days, ages, day, days_in, days_of, halved, without_day
from .groups import Grouping, group_roles, groupings_of, label_of, roles_of

FORMAT = "soc_pymc-statistics-2"
NO_JOINT_CELLS = (
    'summarize the items with joint=True (joint="auto" keeps them up to 64 MB, and a sum of '
    "statistics if all of them have some)"
)
_MOST_Z = 3.0  # cap of a bin's excess variation
_SAME = {  # what statistics must share to be added, and the remedy
    "kind": "they are of other kinds of items",
    "roles": "their columns play other roles",
    "cells": "they were made by versions with other cells: summarize the items again",
    "folds_by": "their items were put into folds in other ways: give the same folds= and id=",
    "weights": "they weigh days in other ways: add them before decay()",
}


@dataclass(frozen=True, eq=False)
class Statistics:
    """Sufficient statistics of items in bins, made by `summarize`; immutable and additive.

    Attributes
    ----------
    data
        Read-only `xarray.Dataset`. By ``bin``: number of items ``n``, range and sums of the scores
        t (``sum_log_t`` is NaN if a score is at or below 0). For counts: ``sum_y``, exposures
        ``sum_N``, ``sum_y_log_N``, and ``above``, the number of items with a count above their
        exposure. For values: ``sum_y``, ``sum_y2`` and squared noise sds ``sum_s2``. For
        successes: ``sum_y`` and trials ``sum_N``. By ``part``: the same for every group, fold and
        bin. By ``exposure`` and ``count``, by ``noise``, or by ``trials``, ``failures`` and
        ``successes``: cells of every group, fold and bin with their items and sums of powers (w is
        the squared noise sd). By ``joint``: cells over outcome and size together, without folds, in
        bins of `coarse` bins. By ``edge``: the interior ``edges``; by ``label``: the
        groups. With dates, groups are those of a day, and their labels begin with it.

    Examples
    --------
    >>> import pandas as pd
    >>> import soc_pymc as soc
    >>> frame = pd.DataFrame({"t": [0.1, 0.2, 0.3], "y": [0, 1, 1], "N": [9, 8, 7]})
    >>> items = soc.PoissonItems(frame, score="t", count="y", exposure="N")
    >>> monday = soc.summarize(items, edges=[0.15], progress=False)
    >>> (monday + monday).n_items
    6
    """

    data: xr.Dataset

    @property
    def kind(self) -> str:
        """Kind of the items: ``"poisson"``, ``"normal"`` or ``"binomial"``."""
        return str(self.data.attrs["kind"])

    @property
    def _outcome(self) -> Outcome:
        return OUTCOMES[self.kind]

    @property
    def edges(self) -> Floats:
        """Interior cut points: bin k + 1 is [e_k, e_k+1); the outer bins are open."""
        return np.asarray(self.data["edges"].to_numpy(), dtype=float)

    @property
    def bins(self) -> int:
        """Number of bins, empty ones included."""
        return int(self.data.sizes["bin"])

    @property
    def n_items(self) -> int:
        """Number of items; of weighted statistics the sum of their weights, rounded."""
        return round(float(self.data["n"].sum()))

    @property
    def total_count(self) -> int:
        """Sum of the counts; defined for items with counts alone."""
        return round(self._total("count").item())

    @property
    def total_exposure(self) -> float:
        """Sum of the exposures; defined for items with counts alone."""
        return float(self._total("exposure"))

    def _total(self, role: str) -> Any:
        if role not in self._outcome.amounts:
            raise StatisticsError(
                f"statistics of {self.kind} items have no total_{role}, as their items have no "
                f"{role}s: sums by bin are in .data"
            )
        return self.data[self._outcome.amounts[role]].sum()

    @property
    def atoms(self) -> dict[float, int]:
        """Scores that many items share, such as a default score, with their numbers of items.

        An atom has at least 50 items, 1% of all and 10 times those of each of the 20 nearest bins
        (a bin with several scores counts as one item, and two bins may be atoms too), and a bin to
        itself, which `summarize` gives it. A table with few or rounded scores has no atoms.

        Examples
        --------
        >>> import soc_pymc as soc
        >>> frame = soc.simulation.s1(2000, seed=0)
        >>> frame.loc[::5, "score"] = 0.02
        >>> items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
        >>> soc.summarize(items, progress=False).atoms
        {0.02: 400}
        """
        n, score = (self.data[name].to_numpy() for name in ("n", "score_min"))
        at = self.atom_bins
        return dict(zip(score[at].tolist(), n[at].tolist(), strict=True))

    @property
    def atom_bins(self) -> Ints:
        """Bins of the atoms, in order."""
        n, low, high = (self.data[k].to_numpy() for k in ("n", "score_min", "score_max"))
        return np.flatnonzero(stand_out(n, low == high))

    @property
    def groups(self) -> tuple[str, ...]:
        """Sorted labels of the groups; empty if the items have no group column.

        Of several columns, labels of the combinations of levels that occur, as ``"FR × phone"``.
        """
        if not group_roles(roles_of(self.data.attrs)):
            return ()
        return self._label_codes[0]

    @cached_property
    def _label_codes(self) -> tuple[tuple[str, ...], Ints]:
        """Sorted labels of groups without their days, and which of these each label has."""
        labels = [str(label) for label in self.data["label"].to_numpy()]
        if "date" in roles_of(self.data.attrs):
            labels = [without_day(label) for label in labels]
        found, code = np.unique(np.array(labels, dtype=object), return_inverse=True)
        return tuple(map(str, found)), code.astype(np.int64)

    @cached_property
    def _day_of(self) -> Days:
        """Day of each label; empty without dates."""
        dated = "date" in roles_of(self.data.attrs)
        return days_of(self.data["label"].to_numpy().tolist() if dated else [])

    @property
    def days(self) -> Days:
        """Days whose items are kept apart, in order; empty without dates."""
        return np.unique(self._day_of)

    @property
    def weights(self) -> str:
        """How days are weighted, in words; empty where every item counts once."""
        return str(self.data.attrs.get("weights", ""))

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
        """Number of blocks that hold clusters, at most 240; 0 without clusters.

        A cluster's label gives its block, so two clusters may share one. The column ``fold`` of
        the tables is then the block.
        """
        return len(np.unique(self.data["part_fold"])) if self._by_cluster else 0

    @property
    def _by_cluster(self) -> bool:
        return str(self.data.attrs["folds_by"]) == "cluster"

    @property
    def coarse(self) -> int:
        """Bins per bin of the joint cells; 0 without joint cells."""
        return int(self.data.attrs["coarse"])

    def table(self, name: str) -> dict[str, NDArray[Any]]:
        """Columns of one table of sums.

        Parameters
        ----------
        name
            ``"part"`` or ``"joint"``; ``"exposure"`` or ``"count"`` of counts; ``"noise"`` of
            values; ``"trials"``, ``"failures"`` or ``"successes"`` of successes.

        Returns
        -------
        dict of numpy.ndarray
            By column: the keys (``group``, ``fold``, ``bin`` and the cell), then the sums.

        Examples
        --------
        >>> int(stats.table("count")["n"].sum())
        4000
        """
        self._outcome.check_table(name)
        if not len(self._day_of):
            return self._stored(name)
        if name not in self._together:
            table = self._stored(name)
            table["group"] = self._label_codes[1][table["group"]]
            keys, sums = self._outcome.tables[name].keys, self._outcome.sums(name)
            self._together[name] = added(table, keys, sums)
        return dict(self._together[name])

    @cached_property
    def _together(self) -> dict[str, dict[str, NDArray[Any]]]:
        """Tables of all days together, made when they are first read."""
        return {}

    def _stored(self, name: str) -> dict[str, NDArray[Any]]:
        """Columns of a table; with dates, groups are those of a day."""
        return {c: self.data[f"{name}_{c}"].to_numpy() for c in self._outcome.columns(name)}

    def cells(self, name: str) -> dict[str, NDArray[Any]]:
        """Cells of all groups and folds together.

        Parameters
        ----------
        name
            Quantity of the cells: ``"exposure"`` or ``"count"`` of counts, ``"noise"`` of values,
            ``"trials"``, ``"failures"`` or ``"successes"`` of successes; ``"joint"`` of all.

        Returns
        -------
        dict of numpy.ndarray
            By column: the keys (``bin`` and the cell), then the sums.

        Raises
        ------
        StatisticsError
            If joint cells were not kept, or items of this kind have no such cells.

        Examples
        --------
        >>> int(stats.cells("joint")["n"].sum())
        4000
        """
        self._outcome.check_table(name)
        if name == "joint" and not self.coarse:
            raise StatisticsError(f"these statistics have no joint cells: {NO_JOINT_CELLS}")
        table = self.table(name)
        keys = [key for key in self._outcome.tables[name].keys if key not in ("group", "fold")]
        return added(table, keys, self._outcome.sums(name))

    def of_group(self, label: object) -> "Statistics":
        """Statistics of one group.

        Parameters
        ----------
        label
            The group, one of `groups`; of several columns also its levels, ``("FR", "phone")``.

        Returns
        -------
        Statistics
            Of that group's items, in the same bins.

        Raises
        ------
        StatisticsError
            If there is no such group.

        Examples
        --------
        >>> import soc_pymc as soc
        >>> frame = soc.simulation.s1(500, seed=0).assign(size=lambda d: d["exposure"] > 20)
        >>> items = soc.PoissonItems(
        ...     frame, score="score", count="count", exposure="exposure", group="size")
        >>> stats = soc.summarize(items, bins=20, progress=False)
        >>> sum(stats.of_group(label).n_items for label in stats.groups)
        500
        """
        name = _label(label)
        if name not in self.groups:
            known = ", ".join(map(repr, self.groups[:10])) or "none"
            raise StatisticsError(f"there is no group {shown(label)}; the groups are: {known}")
        own = self._label_codes[1] == self.groups.index(name)
        return self._where(lambda table: own[table["group"]], joint=True)

    def of_fold(self, fold: int) -> "Statistics":
        """Statistics of one fold, without joint cells, which have no folds.

        Parameters
        ----------
        fold
            Number of the fold, from 0 to `folds` - 1.

        Returns
        -------
        Statistics
            Of one fold, in the same bins.

        Examples
        --------
        >>> import soc_pymc as soc
        >>> stats = soc.summarize(items, bins=20, folds=5, progress=False)
        >>> sum(stats.of_fold(k).n_items for k in range(5))
        4000
        """
        self._check_fold(fold)
        return self._where(lambda table: self._fold_of(table) == fold, joint=False)

    def without_fold(self, fold: int) -> "Statistics":
        """Statistics of all folds except one, without joint cells, which have no folds.

        Parameters
        ----------
        fold
            Number of the fold, from 0 to `folds` - 1.

        Returns
        -------
        Statistics
            Of all folds except one, in the same bins.

        Examples
        --------
        >>> import soc_pymc as soc
        >>> stats = soc.summarize(items, bins=20, folds=5, progress=False)
        >>> (stats.without_fold(0) + stats.of_fold(0)).n_items
        4000
        """
        self._check_fold(fold)
        return self._where(lambda table: self._fold_of(table) != fold, joint=False)

    def _fold_of(self, table: Columns) -> NDArray[np.int64]:
        """Folds of a table's rows; a fold is made of several blocks of clusters."""
        return np.asarray(table["fold"] % self.folds if self._by_cluster else table["fold"])

    def _check_fold(self, fold: int) -> None:
        if not is_whole(fold) or not 0 <= fold < self.folds:
            have = f"0 to {self.folds - 1}" if self.folds else "none: summarize with folds=10"
            raise StatisticsError(f"there is no fold {shown(fold)}; the folds are {have}")

    def _where(self, kept: Callable[[Columns], NDArray[np.bool_]], joint: bool) -> "Statistics":
        tables = {}
        for name in self._outcome.tables:
            table = self._stored(name)
            if name == "joint" and not joint:
                rows = np.zeros(len(table["n"]), dtype=bool)
            else:
                rows = kept(table)
            tables[name] = {column: values[rows] for column, values in table.items()}
        attrs = {**self.data.attrs, "coarse": self.coarse if joint else 0}
        return make_statistics(tables, self.data["label"].to_numpy(), self.edges, attrs)

    # --- days ------------------------------------------------------------------------------------

    @checked(StatisticsError, length=days_in, end=OrNone(day))
    def window(self, length: str, end: Any = None) -> "Statistics":
        """Statistics of the last days, equal to the sum of those of the days.

        Parameters
        ----------
        length
            Number of calendar days, as ``"28d"``.
        end
            Last day of the window, a date or text YYYY-MM-DD. None is the last of `days`.

        Returns
        -------
        Statistics
            Of the items of these days, in the same bins; its days can be chosen again.

        Raises
        ------
        StatisticsError
            If the statistics have no dates or none in the window, or an argument is not valid.

        Examples
        --------
        >>> import pandas as pd
        >>> import soc_pymc as soc
        >>> frame = soc.simulation.s1(3000, seed=0)
        >>> frame["day"] = pd.date_range("2026-03-01", periods=30).repeat(100)
        >>> items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
        >>> stats = soc.summarize(items, bins=20, date="day", progress=False)
        >>> len(stats.days), stats.window("7d").n_items, stats.window("7d", "2026-03-02").n_items
        (30, 700, 200)
        """
        number: Any = length
        age = ages(self._dated(), end)
        inside = (age >= 0) & (age < number)
        if not inside.any():
            last = self.days[-1] if end is None else end
            raise StatisticsError(
                f"no day is in the {number} days to {last}: days are {self.days[0]} to "
                f"{self.days[-1]}"
            )
        return self._weighted(inside, self.data.attrs)

    @checked(StatisticsError, half_life=days_in, end=OrNone(day))
    def decay(self, half_life: str, end: Any = None) -> "Statistics":
        """Statistics in which items count less the older they are.

        An item's weight halves with every half-life, and days after `end` are left out. All sums
        are weighted, so a fit maximises a weighted likelihood: its bands are those of as many items
        as the weights add up to. Bounds of the cells' error are weighted too. Checks, comparisons
        and leave-one-out need whole items and refuse these statistics.

        Parameters
        ----------
        half_life
            Number of days, as ``"14d"``.
        end
            Day of weight 1, a date or text YYYY-MM-DD. None is the last of `days`.

        Returns
        -------
        Statistics
            With weighted sums, in the same bins and of all days together.

        Raises
        ------
        StatisticsError
            If the statistics have no dates or none up to `end`, or an argument is not valid.

        Examples
        --------
        >>> import pandas as pd
        >>> import soc_pymc as soc
        >>> frame = soc.simulation.s1(3000, seed=0)
        >>> frame["day"] = pd.date_range("2026-03-01", periods=30).repeat(100)
        >>> items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
        >>> stats = soc.summarize(items, bins=20, date="day", progress=False)
        >>> stats.decay("7d").n_items
        1006
        """
        number: Any = half_life
        age = ages(self._dated(), end)
        if not (age >= 0).any():
            raise StatisticsError(f"no day is up to {end}: days begin on {self.days[0]}")
        last = self.days[-1] if end is None else end
        words = f"half-life of {number} days, weight 1 on {last}"
        attrs = {**self.data.attrs, "weights": words}
        found = self._weighted(np.where(age >= 0, halved(age, number), 0.0), attrs)
        tables = {name: found.table(name) for name in self._outcome.tables}
        labels = np.array(found._label_codes[0], dtype=object)
        return make_statistics(tables, labels, self.edges, undated(attrs))

    def _dated(self) -> Days:
        if not len(self._day_of):
            raise StatisticsError(
                "these statistics keep no days: summarize the items with date= a column of dates"
            )
        return self._day_of

    def _weighted(self, weight: NDArray[Any], attrs: Mapping[Any, Any]) -> "Statistics":
        """Statistics of the labels with a weight, in which sums are multiplied by it.

        Weights that are true or false leave whole numbers whole.
        """
        kept = np.flatnonzero(weight)
        code = np.cumsum(weight > 0) - 1
        tables = {}
        for name in self._outcome.tables:
            stored = self._stored(name)
            rows = np.flatnonzero(weight[stored["group"]])
            table = {column: values[rows] for column, values in stored.items()}
            by = weight[table["group"]]
            if weight.dtype != np.bool_:
                sums = [c for c in self._outcome.sums(name) if c not in EXTREMES]
                table |= {column: table[column] * by for column in sums}
            tables[name] = {**table, "group": code[table["group"]]}
        labels = self.data["label"].to_numpy()[kept]
        return make_statistics(tables, labels, self.edges, attrs)

    def by_day(self) -> "Iterator[tuple[np.datetime64, Statistics]]":
        """The days in order, each with its statistics.

        Returns
        -------
        iterator of (numpy.datetime64, Statistics)
            Of every day, in the same bins.

        Raises
        ------
        StatisticsError
            If the statistics have no dates.

        Examples
        --------
        >>> import pandas as pd
        >>> import soc_pymc as soc
        >>> frame = soc.simulation.s1(600, seed=0)
        >>> frame["day"] = pd.date_range("2026-03-01", periods=3).repeat(200)
        >>> items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
        >>> stats = soc.summarize(items, bins=20, date="day", progress=False)
        >>> [(str(day), own.n_items) for day, own in stats.by_day()]
        [('2026-03-01', 200), ('2026-03-02', 200), ('2026-03-03', 200)]
        """
        for own in np.unique(self._dated()):
            yield own, self._weighted(self._day_of == own, self.data.attrs)

    @property
    def leakage_z(self) -> float:
        """Whether outcomes vary more (z > 0) or less (z < 0) in their bins than noise explains.

        In each bin, items of one octave of exposure, or of the noise sd, get a mean of their own,
        because scores that saw their outcomes need not be proportional to them. Squared residuals
        are compared with Poisson noise (binomial noise if no count exceeds its exposure), or with
        the squared noise sds. The excess of a bin is capped at 3, so that a few wide bins do not
        hide many in which outcomes hardly vary.
        """
        refuse_weights(self, "leakage_z")
        margin = self._outcome.margins[0]
        table = self.cells(margin)
        octaves = {**table, "cell": table["cell"] >> STEPS}
        octaves = group(octaves, ("bin", "cell"), dict.fromkeys(self._outcome.sums(margin), np.add))
        # octaves only group the items; their ends do not matter
        cells = Cells(octaves["bin"], np.empty(0), np.empty(0), self._outcome.powers(octaves))
        trials = "above" in self.data and not self.data["above"].any()
        excess, variance = self._outcome.residuals(cells, self.bins, bool(trials))
        informative = variance > 0
        z = excess[informative] / np.sqrt(variance[informative])
        return float(np.minimum(z, _MOST_Z).sum() / np.sqrt(len(z))) if len(z) else 0.0

    def __add__(self, other: "Statistics") -> "Statistics":
        if not isinstance(other, Statistics):
            return NotImplemented
        attrs = _shared(self, other)
        labels = np.unique(np.concatenate([s.data["label"].to_numpy() for s in (self, other)]))
        # joint cells of only some items are dropped
        coarse = max(self.coarse, other.coarse) if self.coarse and other.coarse else 0
        both = [_recoded(s, labels, coarse) for s in (self, other)]
        tables = {
            name: {c: np.concatenate([b[name][c] for b in both]) for c in both[0][name]}
            for name in self._outcome.tables
        }
        return make_statistics(tables, labels, self.edges, {**attrs, "coarse": coarse})

    def __radd__(self, other: object) -> "Statistics":
        """`sum` begins with 0."""
        if isinstance(other, int) and other == 0:
            return self
        return NotImplemented

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the statistics to one netCDF file, atomically.

        Parameters
        ----------
        path
            Name of the file; an older file of this name is replaced at the end.

        Raises
        ------
        StatisticsError
            If `path` is not the name of a file.

        Examples
        --------
        >>> import tempfile, pathlib
        >>> import soc_pymc as soc
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     stats.save(pathlib.Path(folder) / "stats.nc")
        ...     soc.load_statistics(pathlib.Path(folder) / "stats.nc").n_items
        4000
        """
        save_netcdf(self.data, path, StatisticsError)

    def __repr__(self) -> str:
        return lines(f"<soc_pymc.{self._head()}>", of_statistics(self, self._sums())[2:])

    def _repr_html_(self) -> str:
        return html_table("Statistics", of_statistics(self, self._sums()))

    def _head(self) -> str:
        return f"Statistics: {self.n_items:,} items in {self.bins:,} bins, {self._sums()}"

    def _sums(self) -> str:
        totals = {name: self.data[name].sum() for name in self._outcome.sums("part")}
        return self._outcome.describe(self.n_items, totals)


def refuse_weights(stats: Statistics, what: str) -> None:
    """Refuse weighted statistics where whole items are needed."""
    if stats.weights:
        raise StatisticsError(
            f"{what} needs whole items, and these statistics are weighted ({stats.weights}): "
            "give those of a window of days"
        )


def undated(attrs: Mapping[Any, Any]) -> dict[str, Any]:
    """The attributes of statistics without a column of dates."""
    roles = {role: name for role, name in roles_of(attrs).items() if role != "date"}
    return {**attrs, "roles": json.dumps(roles)}


def _shared(a: Statistics, b: Statistics) -> dict[str, Any]:
    """Attributes of the sum; the error names those that differ."""
    for name, text in _SAME.items():
        mine, its = (s.data.attrs.get(name, "none") for s in (a, b))
        if mine != its:
            raise StatisticsError(
                f"statistics of different {name} cannot be added ({mine} and {its}): {text}"
            )
    if not np.array_equal(a.edges, b.edges):
        where = f"{a.bins} and {b.bins} bins"
        if a.bins == b.bins:
            k = int(np.flatnonzero(a.edges != b.edges)[0])
            where = f"edge {k} is {a.edges[k]} and {b.edges[k]}"
        raise StatisticsError(
            f"statistics with different edges cannot be added ({where}): summarize the second with "
            "edges=first.edges"
        )
    if a.folds != b.folds and a.data.attrs["folds_by"] != "column":
        raise StatisticsError(
            f"statistics of {a.folds} and of {b.folds} folds cannot be added: give the same folds="
        )
    return {**a.data.attrs, "folds": max(a.folds, b.folds)}


def _recoded(stats: Statistics, labels: NDArray[Any], coarse: int) -> dict[str, Columns]:
    """Tables with codes for other labels and, for joint cells, in wider bins."""
    code = np.searchsorted(labels, stats.data["label"].to_numpy())
    tables: dict[str, Columns] = {}
    for name in stats._outcome.tables:
        table = stats._stored(name)
        table["group"] = code[table["group"]]
        if name == "joint":
            kept = slice(None if coarse else 0)
            wide = coarse // stats.coarse if coarse else 1
            table = {
                c: values[kept] for c, values in (table | {"bin": table["bin"] // wide}).items()
            }
        tables[name] = table
    return tables


def make_statistics(
    tables: Mapping[str, Columns], labels: NDArray[Any], edges: Floats, attrs: Mapping[str, Any]
) -> Statistics:
    """Statistics from tables of sums, whose rows may repeat their keys.

    A table without columns is empty; `labels` are the sorted labels of the groups, by code; the
    attribute ``kind`` determines the tables.
    """
    outcome = OUTCOMES[attrs["kind"]]
    variables: dict[str, tuple[str, NDArray[Any]]] = {"edges": ("edge", np.array(edges))}
    for name, of in outcome.tables.items():
        table = tables[name] or dict.fromkeys(
            (*of.keys, *outcome.integers), np.empty(0, dtype=np.int64)
        ) | dict.fromkeys(of.reals, np.empty(0))
        rows = added(table, of.keys, outcome.sums(name))
        variables |= {f"{name}_{column}": (name, values) for column, values in rows.items()}
        if name == "part":
            totals = added(rows, ("bin",), outcome.sums(name))
    for name in outcome.sums("part"):
        empty = np.nan if name in EXTREMES else 0
        values = np.full(len(edges) + 1, empty, dtype=totals[name].dtype)
        values[totals["bin"]] = totals[name]
        variables[name] = ("bin", values)
    for _, values in variables.values():
        values.flags.writeable = False
    coords = {"label": ("label", np.asarray(labels, dtype=object))}
    return Statistics(xr.Dataset(variables, coords, attrs=dict(attrs)))


def load_statistics(path: str | os.PathLike[str]) -> Statistics:
    """Read statistics that `Statistics.save` wrote; nothing in the file is executed.

    Parameters
    ----------
    path
        Name of the netCDF file.

    Returns
    -------
    Statistics
        The statistics, equal to those that were saved.

    Raises
    ------
    StatisticsError
        If `path` is not the name of a file, or the file is missing, damaged, not saved statistics,
        or of another format version.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import soc_pymc as soc
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     stats.save(pathlib.Path(folder) / "stats.nc")
    ...     again = soc.load_statistics(pathlib.Path(folder) / "stats.nc")
    >>> again.data.equals(stats.data)
    True
    """
    data = read_saved(
        path, xr.open_dataset, FORMAT, StatisticsError, "statistics", "soc-pymc summarize"
    )
    try:
        return _read(data)
    except (KeyError, TypeError, ValueError) as error:
        text = error.args[0] if error.args else type(error).__name__
        raise StatisticsError(
            f"{path} holds damaged statistics ({text}); summarize the items again"
        ) from error


def _read(data: xr.Dataset) -> Statistics:
    """Statistics from a file's arrays, whose checksum was right."""
    outcome = OUTCOMES[data.attrs["kind"]]
    if data.attrs["cells"] != outcome.grid:
        raise ValueError(
            f"its cells are of another version ({data.attrs['cells']!r}, not {outcome.grid!r})"
        )
    for values in data.variables.values():
        values.to_numpy().flags.writeable = False
    numbers = {name: int(data.attrs[name]) for name in ("folds", "coarse")}
    labels = data["label"].to_numpy().astype(object)
    return Statistics(data.assign_attrs(numbers).assign_coords(label=("label", labels)))


def is_whole(number: object) -> bool:
    """Whether it is a whole number of Python or NumPy, but not a bool."""
    return isinstance(number, int | np.integer) and not isinstance(number, bool)


def _label(label: object) -> str | None:
    """A group's label as text, or None."""
    try:
        return label_of(label)
    except Exception:  # the user's object may raise any error
        return None
