"""Sufficient statistics of items in bins of the score: small and additive; fits read only these.

A bin's items are counted in cells over exposures and in cells over counts, or in cells over noise
sds: exact small cells, and cells of 1/16 octave that also keep sums. Joint cells are optional.
Statistics of days, files or machines add up.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from .._lib.arguments import shown
from .._lib.arrays import Floats
from .._lib.errors import StatisticsError
from .._lib.files import read_saved, save_netcdf
from .._lib.reprs import html_table, lines, of_statistics
from ..families.cells import CELLS, STEPS
from ..families.outcomes import OUTCOMES, Outcome
from ..families.row_sums import Cells
from .binning import EXTREMES, Columns, added, group
from .groups import Grouping, group_roles, groupings_of, label_of, roles_of
from .stored_statistics import read_tables

FORMAT = "soc_pymc-statistics-2"
_MOST_Z = 3.0  # cap of a bin's excess variation
_SAME = {  # what statistics must share to be added, and the remedy
    "kind": "they are of other kinds of items",
    "roles": "their columns play other roles",
    "cells": "they were made by versions with other cells: summarize the items again",
    "folds_by": "their items were put into folds in other ways: give the same folds= and id=",
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
        exposure. For values: ``sum_y``, ``sum_y2`` and squared noise sds ``sum_s2``. By ``part``:
        the same for every group, fold and bin. By ``exposure`` and by ``count``, or by ``noise``:
        cells of every group, fold and bin with their items and sums of powers (w is the squared
        noise sd). By ``joint``: cells over exposure and count, or noise sd and value, without
        folds, in bins of `coarse` bins. By ``edge``: the interior ``edges``; by ``label``: the
        groups.

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
        """Kind of the items: ``"poisson"`` or ``"normal"``."""
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
        """Number of items."""
        return int(self.data["n"].sum())

    @property
    def total_count(self) -> int:
        """Sum of the counts; not defined for items with values."""
        return int(self._total("count"))

    @property
    def total_exposure(self) -> float:
        """Sum of the exposures; not defined for items with values."""
        return float(self._total("exposure"))

    def _total(self, role: str) -> Any:
        if role not in self._outcome.amounts:
            raise StatisticsError(
                f"statistics of {self.kind} items have no total_{role}, as their items have no "
                f"{role}s: sums by bin are in .data"
            )
        return self.data[self._outcome.amounts[role]].sum()

    @property
    def groups(self) -> tuple[str, ...]:
        """Sorted labels of the groups; empty if the items have no group column.

        Of several columns, labels of the combinations of levels that occur, as ``"FR × phone"``.
        """
        if not group_roles(roles_of(self.data.attrs)):
            return ()
        return tuple(str(label) for label in self.data["label"].to_numpy())

    @property
    def groupings(self) -> tuple[Grouping, ...]:
        """The columns of groups, with their levels and the level of every group."""
        return groupings_of(self.data.attrs, self.groups)

    @property
    def folds(self) -> int:
        """Number of folds; 0 without folds."""
        return int(self.data.attrs["folds"])

    @property
    def coarse(self) -> int:
        """Bins per bin of the joint cells; 0 without joint cells."""
        return int(self.data.attrs["coarse"])

    def table(self, name: str) -> dict[str, NDArray[Any]]:
        """Columns of one table of sums.

        Parameters
        ----------
        name
            ``"part"`` or ``"joint"``; ``"exposure"`` or ``"count"`` of items with counts;
            ``"noise"`` of items with values.

        Returns
        -------
        dict of numpy.ndarray
            By column: the keys (``group``, ``fold``, ``bin`` and the cell), then the sums.

        Examples
        --------
        >>> import soc_pymc as soc
        >>> frame = soc.simulation.s1(500, seed=0)
        >>> items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
        >>> stats = soc.summarize(items, bins=20, folds=5, progress=False)
        >>> int(stats.table("count")["n"].sum())
        500
        """
        self._outcome.check_table(name)
        return {c: self.data[f"{name}_{c}"].to_numpy() for c in self._outcome.columns(name)}

    def cells(self, name: str) -> dict[str, NDArray[Any]]:
        """Cells of all groups and folds together.

        Parameters
        ----------
        name
            Quantity of the cells: ``"exposure"``, ``"count"`` or ``"joint"``; for items with values
            ``"noise"`` or ``"joint"``.

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
        >>> import soc_pymc as soc
        >>> frame = soc.simulation.s1(500, seed=0)
        >>> items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
        >>> stats = soc.summarize(items, bins=20, joint=True, progress=False)
        >>> int(stats.cells("joint")["n"].sum())
        500
        """
        self._outcome.check_table(name)
        if name == "joint" and not self.coarse:
            raise StatisticsError(
                "these statistics have no joint cells: summarize the items with joint=True"
            )
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
        code = self.groups.index(name)
        return self._where(lambda table: table["group"] == code, joint=True)

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
        >>> frame = soc.simulation.s1(500, seed=0)
        >>> items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
        >>> stats = soc.summarize(items, bins=20, folds=5, progress=False)
        >>> sum(stats.of_fold(k).n_items for k in range(5))
        500
        """
        self._check_fold(fold)
        return self._where(lambda table: table["fold"] == fold, joint=False)

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
        >>> frame = soc.simulation.s1(500, seed=0)
        >>> items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
        >>> stats = soc.summarize(items, bins=20, folds=5, progress=False)
        >>> (stats.without_fold(0) + stats.of_fold(0)).n_items
        500
        """
        self._check_fold(fold)
        return self._where(lambda table: table["fold"] != fold, joint=False)

    def _check_fold(self, fold: int) -> None:
        if not is_whole(fold) or not 0 <= fold < self.folds:
            have = f"0 to {self.folds - 1}" if self.folds else "none: summarize with folds=10"
            raise StatisticsError(f"there is no fold {shown(fold)}; the folds are {have}")

    def _where(self, kept: Callable[[Columns], NDArray[np.bool_]], joint: bool) -> "Statistics":
        tables = {}
        for name in self._outcome.tables:
            table = self.table(name)
            if name == "joint" and not joint:
                rows = np.zeros(len(table["n"]), dtype=bool)
            else:
                rows = kept(table)
            tables[name] = {column: values[rows] for column, values in table.items()}
        attrs = {**self.data.attrs, "coarse": self.coarse if joint else 0}
        return make_statistics(tables, self.data["label"].to_numpy(), self.edges, attrs)

    @property
    def leakage_z(self) -> float:
        """Whether outcomes vary more (z > 0) or less (z < 0) in their bins than noise explains.

        In each bin, items of one octave of exposure, or of the noise sd, get a mean of their own,
        because scores that saw their outcomes need not be proportional to them. Squared residuals
        are compared with Poisson noise (binomial noise if no count exceeds its exposure), or with
        the squared noise sds. The excess of a bin is capped at 3, so that a few wide bins do not
        hide many in which outcomes hardly vary.
        """
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

    @property
    def error_bound(self) -> Floats:
        """Bound in nats, by bin, of the log likelihood's error from wide cells.

        It holds at the bin's mean for every dispersion, up to terms free of parameters. The
        likelihood replaces a cell by two points with its first three moments, so the error is at
        most a 24th of the largest fourth derivative times a fourth moment, which the other three
        bound.
        """
        return self._outcome.error(
            {name: self._cells(name) for name in self._outcome.margins}, self.bins
        )

    def _cells(self, name: str) -> Cells:
        """Cells of a margin with their ranges and sums of powers."""
        table = self.cells(name)
        ends = CELLS[self._outcome.tables[name].cells["cell"]].ends
        assert ends is not None
        return Cells(table["bin"], *ends(table["cell"]), self._outcome.powers(table))

    def __add__(self, other: "Statistics") -> "Statistics":
        if not isinstance(other, Statistics):
            return NotImplemented
        attrs = _shared(self, other)
        labels = np.unique(np.concatenate([s.data["label"].to_numpy() for s in (self, other)]))
        coarse = max(self.coarse, other.coarse)
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
            If `path` is not the name of a file, or the statistics could not be loaded again.

        Examples
        --------
        >>> import tempfile, pathlib
        >>> import soc_pymc as soc
        >>> frame = soc.simulation.s1(500, seed=0)
        >>> items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
        >>> stats = soc.summarize(items, bins=20, progress=False)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     stats.save(pathlib.Path(folder) / "stats.nc")
        ...     soc.load_statistics(pathlib.Path(folder) / "stats.nc").n_items
        500
        """
        save_netcdf(self.data, path, StatisticsError, _read)

    def __repr__(self) -> str:
        return lines(f"<soc_pymc.{self._head()}>", of_statistics(self, self._sums())[2:])

    def _repr_html_(self) -> str:
        return html_table("Statistics", of_statistics(self, self._sums()))

    def _head(self) -> str:
        return f"Statistics: {self.n_items:,} items in {self.bins:,} bins, {self._sums()}"

    def _sums(self) -> str:
        totals = {name: self.data[name].sum() for name in self._outcome.sums("part")}
        return self._outcome.describe(self.n_items, totals)


def _shared(a: Statistics, b: Statistics) -> dict[str, Any]:
    """Attributes of the sum; the error names those that differ."""
    for name, text in _SAME.items():
        mine, its = a.data.attrs[name], b.data.attrs[name]
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
    if bool(a.coarse) != bool(b.coarse):
        raise StatisticsError(
            "only one of the statistics has joint cells, which would not be those of all items: "
            "summarize both with joint=True, or both without"
        )
    return {**a.data.attrs, "folds": max(a.folds, b.folds)}


def _recoded(stats: Statistics, labels: NDArray[Any], coarse: int) -> dict[str, Columns]:
    """Tables with codes for other labels and, for joint cells, in wider bins."""
    code = np.searchsorted(labels, stats.data["label"].to_numpy())
    tables: dict[str, Columns] = {}
    for name in stats._outcome.tables:
        table = stats.table(name)
        table["group"] = code[table["group"]]
        if name == "joint" and coarse:
            table["bin"] = table["bin"] // (coarse // stats.coarse)
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
    >>> frame = soc.simulation.s1(2000, seed=0)
    >>> items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    >>> stats = soc.summarize(items, progress=False)
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
    """Statistics from a file's arrays; sums by bin are recomputed from their parts."""
    return make_statistics(*read_tables(data, ("format", *_SAME)))


# --- fewer bins ----------------------------------------------------------------------------------


def equal_edges(stats: Statistics, bins: int) -> Floats:
    """Edges of the statistics that make about `bins` bins of equally many items.

    Equal scores may lead to fewer bins.
    """
    if not is_whole(bins) or not 1 <= bins <= stats.bins:
        raise StatisticsError(
            f"bins={bins!r} must be a whole number from 1 to the {stats.bins:,} bins that there are"
        )
    share = np.cumsum(stats.data["n"].to_numpy())[:-1] / stats.n_items
    at = [int(np.abs(share - k / bins).argmin()) for k in range(1, bins)]
    return stats.edges[np.unique(np.array(at, dtype=np.int64))]


def coarsened(stats: Statistics, edges: ArrayLike) -> Statistics:
    """Statistics in wider bins, equal to those of the items in these bins.

    `edges` must be edges of the statistics; joint cells are dropped.
    """
    cuts = np.asarray(edges, dtype=float)
    strange = cuts[~np.isin(cuts, stats.edges)]
    if len(strange):
        raise StatisticsError(
            f"{len(strange)} of the {len(cuts)} edges are none of the statistics' (the first is "
            f"{strange[0]:g}): bins can only be put together whole, give some of stats.edges"
        )
    cuts = np.unique(cuts)
    # the bin after the k-th edge is k + 1
    place = np.searchsorted(cuts, np.concatenate([[-np.inf], stats.edges]), side="right")
    tables = {}
    for name in OUTCOMES[stats.kind].tables:
        table = stats.table(name)
        if name == "joint":
            tables[name] = {column: values[:0] for column, values in table.items()}
        else:
            tables[name] = {**table, "bin": place[table["bin"]]}
    attrs = {**stats.data.attrs, "coarse": 0}
    return make_statistics(tables, stats.data["label"].to_numpy(), cuts, attrs)


def is_whole(number: object) -> bool:
    """Whether it is a whole number of Python or NumPy, but not a bool."""
    return isinstance(number, int | np.integer) and not isinstance(number, bool)


def _label(label: object) -> str | None:
    """A group's label as text, or None."""
    try:
        return label_of(label)
    except Exception:  # the user's object may raise any error
        return None
