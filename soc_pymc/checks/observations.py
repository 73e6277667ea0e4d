"""Items and joint cells of statistics as one: an item is a cell of one item.

Items of a cell stand at their bin's mean score (of their group), with theta's spread within the bin
that of the mean curve over its scores, and at their cell's mean exposure or noise sd. For the PIT a
count is anywhere in its cell, and values are spread evenly with the cell's mean and variance. For
leave-one-out both are at the cell's mean: of values, whose cells are about an eighth of the noise
sd wide, that makes a log density about 1/1500 nat too large at most, for all priors alike.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .._lib.arrays import Floats, Ints
from .._lib.errors import StatisticsError
from .._model.rows import CLASS, check_atoms_apart
from ..data.groups import group_roles, roles_of
from ..data.items import Items
from ..data.statistics import Statistics, refuse_weights
from ..families.family import family_of
from ..families.row_sums import RowSums
from ..inference.results import Fit, outcome_roles
from ..posterior.curves import average_curves
from ..posterior.extrapolation import warn_of_extrapolated_bins
from ..posterior.interface import Columns, select
from ..posterior.item_columns import bin_scores_of, read_items
from ..posterior.predictive import posterior_of


@dataclass(frozen=True)
class Observations:
    """Rows that stand for one item each, or for several."""

    columns: Columns  # as posteriors read them; of cells also the outcomes' ends, low and high
    n: Ints  # items of each row
    labels: Mapping[str, pd.Series]  # columns to slice on, by name
    roles: Mapping[str, str]

    def sample(self, most: int, rng: np.random.Generator) -> Ints:
        """Places of at most so many rows, at random and in order."""
        number = len(self.n)
        return np.sort(rng.choice(number, min(most, number), replace=False))

    def rows(self, chosen: Ints) -> "Observations":
        """Some of the rows."""
        labels = {name: values.iloc[chosen] for name, values in self.labels.items()}
        return Observations(select(self.columns, chosen), self.n[chosen], labels, self.roles)


def observe(
    fit: Fit, data: Items | Statistics, by: Sequence[str] = (), progress: bool | None = None
) -> Observations:
    """Read items, or joint cells of statistics, with the columns `by` and those of groups."""
    if isinstance(data, Statistics):
        return _of_cells(fit, data)
    names = list(dict.fromkeys([*by, *group_roles(data.roles).values()]))
    columns, labels = read_items(fit, posterior_of(fit), data, names, progress)
    n = np.ones(len(columns["score"]), dtype=np.int64)
    return Observations(columns, n, labels, data.roles)


def clustered(data: Items | Statistics) -> bool:
    """True if items name clusters, or statistics keep them."""
    return data.blocks > 0 if isinstance(data, Statistics) else data.cluster is not None


def check_roles(fit: Fit, stats: Statistics) -> None:
    """Refuse statistics of other columns than the fit's."""
    theirs, ours = (outcome_roles(x.data.attrs) for x in (fit, stats))
    if theirs != ours:
        raise StatisticsError(
            f"the fit is of items with the roles {theirs}, the statistics of {ours}"
        )


def _of_cells(fit: Fit, stats: Statistics) -> Observations:
    check_roles(fit, stats)
    refuse_weights(stats, "a check")
    if fit.atoms:
        check_atoms_apart(stats)
    posterior = posterior_of(fit)
    outcome = posterior.outcome
    cells = stats.cells("joint")  # says what to do where there are none
    warn_of_extrapolated_bins(fit, stats)
    code = np.zeros_like(cells["n"])
    if stats.groups:
        cells = stats.table("joint")
        code = cells["group"]
    bins = bin_scores_of(fit, posterior, stats, stats.coarse)
    place = bins.place(code, cells["bin"])
    low, high = outcome.forms.cell_range(cells)
    columns: dict[str, NDArray[np.generic]] = {
        "score": bins.score[place],
        outcome.observed: cells["sum_y"] / cells["n"],
        outcome.size: outcome.forms.mean_size(cells),
        "spread": bins.spread[place],
        "low": low,
        "high": high,
    }
    if fit.groups:
        columns["group"] = np.array(stats.groups, dtype=object)[code]
    labels = {
        grouping.column: pd.Series(np.array(grouping.levels, dtype=object)[grouping.of[code]])
        for grouping in stats.groupings
    }
    return Observations(columns, cells["n"], labels, roles_of(stats.data.attrs))


# --- rows of the likelihood ----------------------------------------------------------------------


@dataclass(frozen=True)
class CurveRows:
    """Sums of rows for the likelihood, and the posterior means of both curves there.

    A row is a group's bin, or its items of one class of sizes if the fit has a term in these.
    """

    sums: RowSums
    score: Floats
    n: Floats
    first: Floats
    second: Floats


def curve_rows(fit: Fit, stats: Statistics) -> CurveRows:
    """Rows of statistics, of every group's bins."""
    family, by_size = family_of(fit.prior), fit.prior.exposure is not None
    if by_size:
        stats.cells("joint")  # says what to do where there are none
    coarse = max(stats.coarse, 1) if by_size else 1
    bins = bin_scores_of(fit, posterior_of(fit), stats, coarse)
    tables, size, place = {}, np.ones(len(bins.score)), np.arange(len(bins.score))
    for name in ("joint",) if by_size else ("part", *family.rows.margins):
        table = stats.table(name)
        row = bins.place(table["group"] * bool(stats.groups), table["bin"])
        if by_size:
            key = np.stack([row, table[family.rows.size_cell] >> CLASS])
            (place, _), row = np.unique(key, axis=1, return_inverse=True)
        if by_size or name == "part":
            n = np.bincount(row, table["n"], len(place))
        if by_size:
            size = np.bincount(row, table["n"] * family.outcome.forms.mean_size(table)) / n
        tables[name] = {**table, "row": row}
    sums = family.rows.of(len(place), tables).with_spread(bins.spread[place])
    labels = np.array(stats.groups, dtype=object)[bins.group[place]] if fit.groups else None
    return CurveRows(
        sums, bins.score[place], n, *average_curves(fit, bins.score[place], labels, size)
    )
