"""Sufficient statistics of items in bins of the score: small, additive, and all that a fit reads.

A bin's items are counted in cells over their exposures and in cells over their counts, or in cells
over their noise sds: exact small cells and wide ones of 1/16 octave, which keep their sums. Joint
cells of both are kept on request. Statistics of days, files or machines add up.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from .._lib.arguments import shown
from .._lib.descriptions import lines, of_statistics
from .._lib.errors import StatisticsError
from .._lib.html import html_table
from .._lib.saved_files import read_saved, save_netcdf
from ..families.outcomes import OUTCOMES, Outcome
from .cells import (
    Columns,
    group,
    leakage_z,
    likelihood_error,
    normal_leakage_z,
    normal_likelihood_error,
)
from .stored_tables import read_tables

__all__ = ["FORMAT", "Statistics", "load_statistics", "make_statistics"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FORMAT = "soc_pymc-statistics-2"
_RULES: dict[str, Callable[..., NDArray[Any]]] = {"score_min": np.fmin, "score_max": np.fmax}
_SAME = {  # what statistics must share to add, and what to do where they do not
    "kind": "they are of other kinds of items",
    "roles": "their columns play other roles",
    "cells": "they were made by versions with other cells: summarize the items again",
    "folds_by": "their items were put into folds in other ways: give the same folds= and id=",
}


@dataclass(frozen=True, eq=False)
class Statistics:
    """Sufficient statistics of items in bins; made by `summarize`, immutable, additive.

    Attributes
    ----------
    data
        Read-only `xarray.Dataset`. By ``bin``: number of items ``n``, range and sums of the scores
        t (``sum_log_t`` is NaN where some score is at or below 0). Of counts, sums ``sum_y`` and of
        exposures ``sum_N``, ``sum_y_log_N``, and ``above``, the items with a count above their
        exposure; of values, sums ``sum_y``, ``sum_y2`` and of squared noise sds ``sum_s2``.
        By ``part``: the same for every group, fold and bin.
        By ``exposure`` and by ``count``, or by ``noise``: cells of every group, fold and bin with
        their items and sums of powers (w is the squared noise sd). By ``joint``: cells over both
        the exposure and the count, or the noise sd and the value, without folds, in bins of
        `coarse` bins. By ``edge``: the interior ``edges``; by ``label``: the groups.

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
    def _schema(self) -> Outcome:
        return OUTCOMES[self.kind]

    @property
    def edges(self) -> Floats:
        """Interior cut points: bin k + 1 is [e_k, e_k+1), the outer bins are open."""
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
        """Sum of the counts; items with values have none."""
        self._need_counts("total_count")
        return int(self.data["sum_y"].sum())

    @property
    def total_exposure(self) -> float:
        """Sum of the exposures; items with values have none."""
        self._need_counts("total_exposure")
        return float(self.data["sum_N"].sum())

    def _need_counts(self, name: str) -> None:
        if self.kind != "poisson":
            raise StatisticsError(
                f"statistics of {self.kind} items have no {name}, as their items have no counts: "
                "sums by bin are in .data"
            )

    @property
    def groups(self) -> tuple[str, ...]:
        """Labels of the groups, sorted; none where the items have no group column."""
        if "group" not in json.loads(self.data.attrs["roles"]):
            return ()
        return tuple(str(label) for label in self.data["label"].to_numpy())

    @property
    def folds(self) -> int:
        """Number of folds; 0 where there are none."""
        return int(self.data.attrs["folds"])

    @property
    def coarse(self) -> int:
        """Bins in one bin of the joint cells; 0 where these were not kept."""
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
        >>> items = soc.PoissonItems(
        ...     frame, score="score", count="count", exposure="exposure")
        >>> stats = soc.summarize(items, bins=20, folds=5, progress=False)
        >>> int(stats.table("count")["n"].sum())
        500
        """
        self._schema.check_table(name)
        return {c: self.data[f"{name}_{c}"].to_numpy() for c in self._schema.columns(name)}

    def cells(self, name: str) -> dict[str, NDArray[Any]]:
        """Cells of all groups and folds together.

        Parameters
        ----------
        name
            Over what the cells are: ``"exposure"``, ``"count"`` or ``"joint"``; of items with
            values ``"noise"`` or ``"joint"``.

        Returns
        -------
        dict of numpy.ndarray
            By column: the keys (``bin`` and the cell), then the sums.

        Raises
        ------
        StatisticsError
            If joint cells are asked for and were not kept, or items of this kind have no such
            cells.

        Examples
        --------
        >>> import soc_pymc as soc
        >>> frame = soc.simulation.s1(500, seed=0)
        >>> items = soc.PoissonItems(
        ...     frame, score="score", count="count", exposure="exposure")
        >>> stats = soc.summarize(items, bins=20, joint=True, progress=False)
        >>> int(stats.cells("joint")["n"].sum())
        500
        """
        self._schema.check_table(name)
        if name == "joint" and not self.coarse:
            raise StatisticsError(
                "these statistics have no joint cells: summarize the items with joint=True"
            )
        table = self.table(name)
        keys = [key for key in self._schema.tables[name].keys if key not in ("group", "fold")]
        return _added(table, keys, self._schema.sums(name))

    def of_group(self, label: object) -> "Statistics":
        """Statistics of one group alone.

        Parameters
        ----------
        label
            The group, one of `groups`.

        Returns
        -------
        Statistics
            Of that group's items alone, in the same bins.

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
        """Statistics of one fold alone, without joint cells, which have no folds.

        Parameters
        ----------
        fold
            Number of the fold, from 0 to `folds` - 1.

        Returns
        -------
        Statistics
            Of one fold alone, in the same bins.

        Examples
        --------
        >>> import soc_pymc as soc
        >>> frame = soc.simulation.s1(500, seed=0)
        >>> items = soc.PoissonItems(
        ...     frame, score="score", count="count", exposure="exposure")
        >>> stats = soc.summarize(items, bins=20, folds=5, progress=False)
        >>> sum(stats.of_fold(k).n_items for k in range(5))
        500
        """
        self._check_fold(fold)
        return self._where(lambda table: table["fold"] == fold, joint=False)

    def without_fold(self, fold: int) -> "Statistics":
        """Statistics of all folds but one, without joint cells, which have no folds.

        Parameters
        ----------
        fold
            Number of the fold, from 0 to `folds` - 1.

        Returns
        -------
        Statistics
            Of all folds but one, in the same bins.

        Examples
        --------
        >>> import soc_pymc as soc
        >>> frame = soc.simulation.s1(500, seed=0)
        >>> items = soc.PoissonItems(
        ...     frame, score="score", count="count", exposure="exposure")
        >>> stats = soc.summarize(items, bins=20, folds=5, progress=False)
        >>> (stats.without_fold(0) + stats.of_fold(0)).n_items
        500
        """
        self._check_fold(fold)
        return self._where(lambda table: table["fold"] != fold, joint=False)

    def _check_fold(self, fold: int) -> None:
        whole = isinstance(fold, int | np.integer) and not isinstance(fold, bool)
        if not whole or not 0 <= fold < self.folds:
            have = f"0 to {self.folds - 1}" if self.folds else "none: summarize with folds=10"
            raise StatisticsError(f"there is no fold {shown(fold)}; the folds are {have}")

    def _where(self, kept: Callable[[Columns], NDArray[np.bool_]], joint: bool) -> "Statistics":
        tables = {}
        for name in self._schema.tables:
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
        """Whether outcomes vary more (z > 0) or less (z < 0) in their bins than by their noise.

        Within every bin, items of one octave of exposure, or of the noise sd, share a mean, as
        scores that saw their outcomes need not be proportional to them. Squared residuals are
        compared with Poisson noise (where no count exceeds its exposure: with that of so many
        successes in N trials), or with the squared noise sds, and no bin counts for more than 3 on
        the side of more variation, so that a few wide bins do not hide many in which outcomes
        hardly vary at all.
        """
        if self.kind == "normal":
            return normal_leakage_z(self.cells("noise"), self.bins)
        return leakage_z(self.cells("exposure"), self.bins, not self.data["above"].any())

    @property
    def error_bound(self) -> Floats:
        """Bound in nats, by bin, of the log likelihood's error from wide cells.

        It holds at the bin's mean for every dispersion, up to terms free of parameters. A cell
        stands as two points with its first three moments, so that the error is at most a 24th of
        the largest fourth derivative times a fourth moment, itself bounded by the other three.
        """
        if self.kind == "normal":
            return normal_likelihood_error(self.cells("noise"), self.bins)
        return likelihood_error(self.cells("exposure"), self.cells("count"), self.bins)

    def __add__(self, other: "Statistics") -> "Statistics":
        if not isinstance(other, Statistics):
            return NotImplemented
        attrs = _shared(self, other)
        labels = np.unique(np.concatenate([s.data["label"].to_numpy() for s in (self, other)]))
        coarse = max(self.coarse, other.coarse)
        both = [_recoded(s, labels, coarse) for s in (self, other)]
        tables = {
            name: {c: np.concatenate([b[name][c] for b in both]) for c in both[0][name]}
            for name in self._schema.tables
        }
        return make_statistics(tables, labels, self.edges, {**attrs, "coarse": coarse})

    def __radd__(self, other: object) -> "Statistics":
        """What `sum` begins with is 0."""
        if isinstance(other, int) and other == 0:
            return self
        return NotImplemented

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the statistics to one netCDF file, whole or not at all.

        Parameters
        ----------
        path
            Name of the file; an older file of this name is replaced at the end.

        Raises
        ------
        StatisticsError
            If `path` is no name of a file, or these are no statistics that could be loaded again.

        Examples
        --------
        >>> import tempfile, pathlib
        >>> import soc_pymc as soc
        >>> frame = soc.simulation.s1(500, seed=0)
        >>> items = soc.PoissonItems(
        ...     frame, score="score", count="count", exposure="exposure")
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
        if self.kind == "poisson":
            return f"{self.total_count:,} counts in exposure {self.total_exposure:,.6g}"
        sums = (float(self.data[c].sum()) for c in ("sum_y", "sum_s2"))
        mean, square = (total / max(self.n_items, 1) for total in sums)
        return f"values of mean {mean:,.6g} with noise sd {square**0.5:,.6g}"


def _shared(a: Statistics, b: Statistics) -> dict[str, Any]:
    """Attributes of the sum; an error that says which do not fit."""
    for name, text in _SAME.items():
        mine, its = a.data.attrs[name], b.data.attrs[name]
        if mine != its:
            raise StatisticsError(
                f"statistics of different {name} do not add ({mine} and {its}): {text}"
            )
    if not np.array_equal(a.edges, b.edges):
        where = f"{a.bins} and {b.bins} bins"
        if a.bins == b.bins:
            k = int(np.flatnonzero(a.edges != b.edges)[0])
            where = f"edge {k} is {a.edges[k]} and {b.edges[k]}"
        raise StatisticsError(
            f"statistics with different edges do not add ({where}): summarize the second with "
            "edges=first.edges"
        )
    if a.folds != b.folds and a.data.attrs["folds_by"] != "column":
        raise StatisticsError(
            f"statistics of {a.folds} and of {b.folds} folds do not add: give the same folds="
        )
    if bool(a.coarse) != bool(b.coarse):
        raise StatisticsError(
            "only one of the statistics has joint cells, which would not be those of all items: "
            "summarize both with joint=True, or both without"
        )
    return {**a.data.attrs, "folds": max(a.folds, b.folds)}


def _recoded(stats: Statistics, labels: NDArray[Any], coarse: int) -> dict[str, Columns]:
    """Tables with codes of other labels and, for joint cells, in wider bins."""
    code = np.searchsorted(labels, stats.data["label"].to_numpy())
    tables: dict[str, Columns] = {}
    for name in stats._schema.tables:
        table = stats.table(name)
        table["group"] = code[table["group"]]
        if name == "joint" and coarse:
            table["bin"] = table["bin"] // (coarse // stats.coarse)
        tables[name] = table
    return tables


def _added(table: Columns, keys: Sequence[str], names: Sequence[str]) -> dict[str, NDArray[Any]]:
    return group(table, keys, {name: _RULES.get(name, np.add) for name in names})


def make_statistics(
    tables: Mapping[str, Columns], labels: NDArray[Any], edges: Floats, attrs: Mapping[str, Any]
) -> Statistics:
    """Statistics from tables of sums, whose rows may repeat their keys.

    Parameters
    ----------
    tables
        Columns by table; a table without columns is empty.
    labels
        Labels of the groups, sorted, by code.
    edges
        Interior edges.
    attrs
        Attributes of the dataset; ``kind`` says which tables there are.
    """
    schema = OUTCOMES[attrs["kind"]]
    variables: dict[str, tuple[str, NDArray[Any]]] = {"edges": ("edge", np.array(edges))}
    for name, of in schema.tables.items():
        table = tables[name] or dict.fromkeys(
            (*of.keys, *schema.integers), np.empty(0, dtype=np.int64)
        ) | dict.fromkeys(of.reals, np.empty(0))
        rows = _added(table, of.keys, schema.sums(name))
        variables |= {f"{name}_{column}": (name, values) for column, values in rows.items()}
        if name == "part":
            totals = _added(rows, ("bin",), schema.sums(name))
    for name in schema.sums("part"):
        empty = np.nan if name in _RULES else 0
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
        If `path` is no name of a file, or the file is missing, damaged, not saved statistics, or of
        another format version.

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
    """Statistics of a file's arrays; their sums by bin must be those of their parts."""
    made = make_statistics(*read_tables(data, ("format", *_SAME)))
    # of sums of either sign rounding is relative to what cancelled
    squares = {"sum_y": "sum_y2", "sum_t": "sum_t2", "sum_log_t": "sum_log_t2"}
    for name in made._schema.sums("part"):
        if data[name].dims != ("bin",) or data[name].dtype != made.data[name].dtype:
            raise ValueError(f"{name} is {data[name].dtype} of dims {data[name].dims}")
        if data[name].shape != made.data[name].shape:
            raise ValueError(f"{name} is of {data[name].size} bins")
        own, its = (np.asarray(d[name].to_numpy(), dtype=float) for d in (made.data, data))
        scale = abs(own)
        if squares.get(name) in made.data:
            scale = np.sqrt(made.data["n"].to_numpy() * made.data[squares[name]].to_numpy())
        near = (own == its) | (abs(own - its) <= 1e-12 * scale) | (np.isnan(own) & np.isnan(its))
        if not near.all():
            raise ValueError(f"{name} by bin is not the sum of its parts")
    return made


def _label(label: object) -> str | None:
    """A group's label as text; None for what has no text."""
    try:
        return str(label)
    except Exception:  # whatever the user's object makes of it
        return None
