"""Sufficient statistics of items in bins of the score: small, additive, and all that a fit reads.

The items of a bin are counted in joint cells over exposure and count: exact small cells and wide
ones of 1/16 octave, which keep their sums. Statistics of days, files or machines add up.
"""

import json
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from . import tables
from .binning import (
    choose_edges,
    finer_grid,
    first_grid,
)
from .cells import EXPOSURE_SUMS, Columns, count_error, exposure_error, group, leakage_z
from .errors import ItemsError, ItemsWarning, StatisticsError
from .files import read_saved, replacing
from .items import PoissonItems
from .progress import phase

__all__ = ["FORMAT", "Statistics", "load_statistics", "summarize"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FORMAT = "soc_pymc-statistics-1"

_LEAKAGE = -6.0  # honest scores stay above this z
_CELL_INTS = ("cell_bin", "cell_exposure", "cell_count", "cell_n", "cell_sum_y")
_CELL_FLOATS = ("cell_sum_N", "cell_sum_N2", "cell_sum_y2", "cell_sum_yN", "cell_sum_yN2")
_BIN_INTS = ("n", "sum_y")
_BIN_FLOATS = (
    "sum_N",
    "score_min",
    "score_max",
    "sum_t",
    "sum_t2",
    "sum_log_t",
    "sum_log_t2",
    "sum_N_t",
    "sum_N_log_t",
    "sum_y_log_N",
)


@dataclass(frozen=True, eq=False)
class Statistics:
    """Sufficient statistics of items in bins; made by `summarize`, immutable, additive.

    Attributes
    ----------
    data
        Read-only `xarray.Dataset`. By ``bin``: number of items ``n``, sums of counts ``sum_y`` and
        exposures ``sum_N``, range and sums of the scores t (``sum_log_t`` is NaN where some score
        is at or below 0) and ``sum_y_log_N``. By ``cell``, sorted: bin, exposure cell and count
        cell with their items and sums. By ``edge``: the interior ``edges``.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"t": [0.1, 0.2, 0.3], "y": [0, 1, 1], "N": [9, 8, 7]})
    >>> items = PoissonItems(frame, score="t", count="y", exposure="N")
    >>> monday = summarize(items, edges=[0.15], progress=False)
    >>> (monday + monday).n_items
    6
    """

    data: xr.Dataset

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
        """Sum of the counts."""
        return int(self.data["sum_y"].sum())

    @property
    def total_exposure(self) -> float:
        """Sum of the exposures."""
        return float(self.data["sum_N"].sum())

    def count_cells(self) -> tuple[Ints, Ints, Ints, Ints, Floats]:
        """Histogram of counts by bin: bin, count cell, n, sum y, sum y^2, sorted."""
        bin_of, cell, n, sum_y, sum_y2 = self._marginal(
            "cell_count", "cell_n", "cell_sum_y", "cell_sum_y2"
        )
        return bin_of, cell, n, sum_y, sum_y2

    def exposure_cells(self) -> tuple[Ints, Ints, Floats, Floats, Ints, Floats, Floats]:
        """Histogram of exposures by bin: bin, n, sum N, sum N^2, sum y, sum yN, sum yN^2."""
        bin_of, _, *sums = self._marginal("cell_exposure", *EXPOSURE_SUMS)
        n, sum_n, sum_n2, sum_y, sum_yn, sum_yn2 = sums
        return bin_of, n, sum_n, sum_n2, sum_y, sum_yn, sum_yn2

    def _marginal(self, cell: str, *sums: str) -> tuple[NDArray[Any], ...]:
        columns = {name: self.data[name].to_numpy() for name in ("cell_bin", cell, *sums)}
        grouped = group(columns, ("cell_bin", cell), dict.fromkeys(sums, np.add))
        return tuple(grouped.values())

    @property
    def leakage_z(self) -> float:
        """Whether counts vary more (z > 0) or less (z < 0) in their bins than by Poisson noise.

        Within every bin, items of one octave of exposure share a mean, as scores that saw their
        counts need not be proportional to them. Squared residuals are compared with Poisson noise
        (where no count exceeds its exposure: with that of so many successes in N trials), and no
        bin counts for more than 3 on the side of more variation, so that a few wide bins do not
        hide many in which counts hardly vary at all.
        """
        names = ("cell_bin", "cell_exposure", *EXPOSURE_SUMS, "cell_sum_y2")
        return leakage_z({name: self.data[name].to_numpy() for name in names}, self.bins)

    @property
    def error_bound(self) -> Floats:
        """Bound in nats, by bin, of the log likelihood's error from wide cells.

        It holds for every dispersion at the bin's mean: a cell stands as two points with its mean
        and variance, so the error is at most a sixth of the largest third derivative times the
        third absolute moments of the cell and of its two points.
        """
        bins = self.bins
        exposure = self.data["sum_N"].to_numpy()
        mu = np.divide(self.data["sum_y"], exposure, out=np.zeros(bins), where=exposure > 0)
        columns = {c: self.data[c].to_numpy() for c in ("cell_bin", "cell_exposure", "cell_count")}
        columns |= {c: self.data[c].to_numpy() for c in (*EXPOSURE_SUMS, "cell_sum_y2")}
        return exposure_error(columns, mu) + count_error(columns, bins)

    def __add__(self, other: "Statistics") -> "Statistics":
        if not isinstance(other, Statistics):
            return NotImplemented
        for name in ("kind", "roles"):
            mine, its = self.data.attrs[name], other.data.attrs[name]
            if mine != its:
                raise StatisticsError(
                    f"statistics of different {name} do not add: {mine} and {its}"
                )
        if not np.array_equal(self.edges, other.edges):
            raise StatisticsError(
                f"statistics with different edges do not add ({self.bins} and {other.bins} bins): "
                "summarize the second with edges=first.edges"
            )
        both = [
            {name: np.asarray(s.data[name]) for name in (*_CELL_INTS, *_CELL_FLOATS)}
            for s in (self, other)
        ]
        cells = {name: np.concatenate([b[name] for b in both]) for name in both[0]}
        rules = {name: _RULES.get(name, np.add) for name in (*_BIN_INTS, *_BIN_FLOATS)}
        bins = {
            name: rule(self.data[name].to_numpy(), other.data[name].to_numpy())
            for name, rule in rules.items()
        }
        return _statistics(_sorted_cells(cells), bins, self.edges, self.data.attrs)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the statistics to one netCDF file, whole or not at all.

        Parameters
        ----------
        path
            Name of the file; an older file of this name is replaced at the end.
        """
        with replacing(path) as temporary:
            self.data.to_netcdf(temporary, engine="h5netcdf")

    def __repr__(self) -> str:
        return (
            f"<soc_pymc.Statistics: {self.n_items:,} items in {self.bins:,} bins "
            f"({self.data.sizes['cell']:,} cells), {self.total_count:,} counts in exposure "
            f"{self.total_exposure:,.6g}>"
        )


_FEWEST_BINS, _MOST_BINS, _ITEMS_IN_BIN = 20, 1000, 10  # by default

_RULES: dict[str, Callable[..., NDArray[Any]]] = {"score_min": np.fmin, "score_max": np.fmax}


def summarize(
    items: PoissonItems,
    *,
    bins: int | None = None,
    equal: Literal["items", "count", "exposure"] | None = None,
    edges: ArrayLike | None = None,
    on_leakage: Literal["raise", "warn", "ignore"] = "raise",
    progress: bool = True,
) -> Statistics:
    """Sufficient statistics of items in bins of the score.

    Parameters
    ----------
    items
        The items.
    bins
        Number of bins of equal weight. None chooses one bin for 10 items, at least 20 and at most
        1,000, the first and the last of them halved again and again towards the ends, where scores
        lie far apart: a bin is a single score to the model.
    equal
        What all bins have the same amount of: ``"items"`` (the default), ``"count"`` or
        ``"exposure"``.
    edges
        Interior cut points instead of `bins` and `equal`, strictly rising; bins are [e_k, e_k+1),
        the outer ones open, so that no item is dropped.
    on_leakage
        What to do where counts vary far less around their scores than noise allows, the sign of
        scores that saw the counts they predict: ``"raise"`` an error, ``"warn"`` or ``"ignore"``.
    progress
        Whether long work shows its progress.

    Returns
    -------
    Statistics
        The statistics.

    Raises
    ------
    ItemsError
        If the items are not valid, or leak.
    StatisticsError
        If `bins`, `equal` or `edges` are not valid.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> t = np.linspace(0.1, 0.5, 100)
    >>> frame = pd.DataFrame({"t": t, "y": np.arange(100) % 3, "N": 5})
    >>> items = PoissonItems(frame, score="t", count="y", exposure="N")
    >>> summarize(items, bins=4, progress=False)
    <soc_pymc.Statistics: 100 items in 4 bins (12 cells), 99 counts in exposure 500>
    """
    _check_options(bins, equal, edges, on_leakage)
    cuts = None if edges is None else _check_edges(edges)
    scan = tables.scan(items, progress)
    if cuts is None:
        if scan.score_min == scan.score_max:
            raise ItemsError(
                f"column {items.score!r}: every score is {scan.score_min:.12g}, so there is "
                "nothing to calibrate along; give scores that differ between items"
            )
        with phase("choosing bins", enabled=progress):
            cuts = _choose(scan, bins, equal or "items")
    with phase("summarizing items", enabled=progress):
        sums = tables.cell_sums(scan.table, cuts)
    stats = _collect(sums, cuts, items)
    _check_totals(stats, scan)
    _check_leakage(stats, on_leakage)
    return stats


def _check_options(bins: Any, equal: Any, edges: Any, on_leakage: str) -> None:
    if on_leakage not in ("raise", "warn", "ignore"):
        raise StatisticsError(f"on_leakage={on_leakage!r} must be 'raise', 'warn' or 'ignore'")
    if edges is not None:
        if bins is not None or equal is not None:
            raise StatisticsError("give edges=, or bins= and equal=, not both")
        return
    whole = isinstance(bins, int | np.integer) and not isinstance(bins, bool)
    if bins is not None and not (whole and 1 <= bins <= 1_000_000):
        raise StatisticsError(f"bins={bins!r} must be a whole number from 1 to 1,000,000")
    if equal not in (None, "items", "count", "exposure"):
        raise StatisticsError(f"equal={equal!r} must be 'items', 'count' or 'exposure'")


def _check_edges(edges: ArrayLike) -> Floats:
    try:
        cuts = np.array(edges, dtype=float)
    except (TypeError, ValueError):
        raise StatisticsError("edges must be numbers") from None
    if cuts.ndim != 1:
        raise StatisticsError(f"edges must be one row of numbers, not of shape {cuts.shape}")
    if not np.isfinite(cuts).all():
        raise StatisticsError("edges must be finite: the outer bins are open by themselves")
    falls = np.flatnonzero(np.diff(cuts) <= 0)
    if len(falls):
        i = int(falls[0])
        raise StatisticsError(
            f"edges must rise strictly, but edge {i + 1} ({cuts[i + 1]:g}) follows edge {i} "
            f"({cuts[i]:g})"
        )
    return cuts


def _choose(scan: tables.Scan, asked: int | None, equal: str) -> Floats:
    """Edges of bins of equal weight, from one or two grouped passes over a fine grid."""
    bins = asked or min(_MOST_BINS, max(_FEWEST_BINS, scan.n // _ITEMS_IN_BIN))
    weight = None if equal == "items" else equal
    low, high = scan.score_min, scan.score_max
    grid = first_grid(low, high, scan.score_least)
    cells, weights = tables.grid_weights(scan.table, grid, low, high, weight)
    if not weights.sum() > 0:
        raise ItemsError(f"bins of equal {equal} are not possible: all of it is 0")
    # bins of few items are no more equal for finer cells, which would spare the ends
    finer = finer_grid(grid, cells, weights, bins, coarse=1 / 16 if asked else 1 / 4)
    if finer is not None:
        grid, low, high = finer
        cells, weights = tables.grid_weights(scan.table, grid, low, high, weight)
    edges = choose_edges(grid, cells, weights, bins, halve_ends=asked is None)
    if len(edges) + 1 < (asked or _FEWEST_BINS):
        warnings.warn(
            f"{len(edges) + 1} bins instead of {asked or _FEWEST_BINS}: equal scores stay "
            f"together, and there are only {len(cells):,} scores that differ, or a few of them "
            "hold more than a bin's share; ask for fewer bins",
            ItemsWarning,
            stacklevel=3,
        )
    return edges


def _collect(sums: Columns, edges: Floats, items: PoissonItems) -> Statistics:
    """Statistics from the engine's sums over joint cells."""
    cells = {
        "cell_bin": sums["bin"],
        "cell_exposure": sums["exposure_cell"],
        "cell_count": sums["count_cell"],
        **{f"cell_{name}": sums[name] for name in ("n", "sum_y")},
        **{name: sums[name.removeprefix("cell_")] for name in _CELL_FLOATS},
    }
    rules = {name: _RULES.get(name, np.add) for name in (*_BIN_INTS, *_BIN_FLOATS)}
    occupied = group({"bin": sums["bin"], **{n: sums[n] for n in rules}}, ("bin",), rules)
    bins: dict[str, NDArray[Any]] = {}
    for name, values in occupied.items():
        empty = np.nan if name in _RULES else 0
        bins[name] = np.full(len(edges) + 1, empty, dtype=values.dtype)
        bins[name][occupied["bin"]] = values
    del bins["bin"]
    for name in ("sum_log_t", "sum_log_t2", "sum_N_log_t"):
        bins[name][bins["score_min"] <= 0] = np.nan
    attrs = {"format": FORMAT, "kind": items.kind, "roles": json.dumps(dict(items.roles))}
    return _statistics(_sorted_cells(cells), bins, edges, attrs)


def _sorted_cells(cells: Columns) -> dict[str, NDArray[Any]]:
    keys = ("cell_bin", "cell_exposure", "cell_count")
    sums = [name for name in cells if name not in keys]
    return group(cells, keys, dict.fromkeys(sums, np.add))


def _statistics(
    cells: Columns, bins: Columns, edges: Floats, attrs: Mapping[str, Any]
) -> Statistics:
    variables: dict[str, tuple[str, NDArray[Any]]] = {"edges": ("edge", np.array(edges))}
    variables |= {name: ("bin", np.asarray(bins[name])) for name in (*_BIN_INTS, *_BIN_FLOATS)}
    variables |= {name: ("cell", np.asarray(cells[name])) for name in (*_CELL_INTS, *_CELL_FLOATS)}
    for _, values in variables.values():
        values.flags.writeable = False
    return Statistics(xr.Dataset(variables, attrs=dict(attrs)))


def _check_totals(stats: Statistics, scan: tables.Scan) -> None:
    """The grouped pass must have seen every item exactly once."""
    for what, found, expected, tolerance in (
        ("items", stats.n_items, scan.n, 0.0),
        ("sum of counts", stats.total_count, scan.total_count, 0.0),
        ("sum of exposures", stats.total_exposure, scan.total_exposure, 1e-9),
    ):
        if abs(found - expected) > tolerance * abs(expected):
            raise StatisticsError(
                f"the {what} came to {found} in bins but to {expected} in all: the table changed "
                "while it was read, or the engine dropped rows; summarize again"
            )


def _check_leakage(stats: Statistics, on_leakage: str) -> None:
    if on_leakage == "ignore" or (z := stats.leakage_z) >= _LEAKAGE:
        return
    text = (
        f"counts vary far less around their scores than Poisson noise allows (z = {z:.1f}): the "
        "scores probably saw the very counts they are to be calibrated with (or the counts are not "
        "counts of independent events). Posteriors would use each outcome twice, the variance "
        "curve would collapse to 0 and intervals be far too narrow. Score every item by a model "
        "trained without it: split the items into folds and score each fold by a model trained on "
        "the others, or on earlier data. on_leakage='warn' or 'ignore' goes on regardless"
    )
    if on_leakage == "raise":
        raise ItemsError(text)
    warnings.warn(text, ItemsWarning, stacklevel=3)


def load_statistics(path: str | os.PathLike[str]) -> Statistics:
    """Read statistics that `Statistics.save` wrote; nothing in the file is executed.

    Parameters
    ----------
    path
        Name of the netCDF file.

    Raises
    ------
    StatisticsError
        If the file is missing, damaged, not saved statistics, or of another format version.
    """
    data = read_saved(
        path, xr.open_dataset, FORMAT, StatisticsError, "statistics", "soc-pymc summarize"
    )
    try:
        return _checked(data)
    except (KeyError, TypeError, ValueError) as error:
        raise StatisticsError(
            f"{path} holds damaged statistics ({error}); summarize the items again"
        ) from error


def _checked(data: xr.Dataset) -> Statistics:
    """Statistics from a file's arrays, if they fit together."""
    attrs = {name: str(data.attrs[name]) for name in ("format", "kind", "roles")}
    json.loads(attrs["roles"])
    edges = data["edges"].to_numpy().astype(float)
    bins = _read(data, "bin", _BIN_INTS, _BIN_FLOATS)
    cells = _read(data, "cell", _CELL_INTS, _CELL_FLOATS)
    if not (np.diff(edges) > 0).all() or len(bins["n"]) != len(edges) + 1:
        raise ValueError("the bins do not fit the edges")
    of_bin = cells["cell_bin"]
    if ((of_bin < 0) | (of_bin > len(edges))).any():
        raise ValueError("a cell is in no bin")
    for cell, total in (("cell_n", "n"), ("cell_sum_y", "sum_y")):
        found = np.zeros(len(edges) + 1, dtype=np.int64)
        np.add.at(found, of_bin, cells[cell])
        if not np.array_equal(found, bins[total]):
            raise ValueError(f"the cells do not add up to {total}")
    return _statistics(cells, bins, edges, attrs)


def _read(
    data: xr.Dataset, dim: str, ints: Sequence[str], floats: Sequence[str]
) -> dict[str, NDArray[Any]]:
    for name in (*ints, *floats):
        if data[name].dims != (dim,):
            raise ValueError(f"{name} has dims {data[name].dims}")
    return {
        **{name: data[name].to_numpy().astype(np.int64, casting="safe") for name in ints},
        **{name: data[name].to_numpy().astype(np.float64, casting="safe") for name in floats},
    }
