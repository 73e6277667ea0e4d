"""Items and joint cells of statistics as one: an item is a cell of one item.

Items of a cell stand at their bin's mean score (of their group), with theta's spread within the bin
that of the mean curve, and at their cell's mean exposure or noise sd. For the PIT an outcome is
anywhere in its cell, for leave-one-out at its mean: at most 1/1500 nat off, for all priors alike.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.random import Generator

from .._lib.arguments import A, ItemsError
from .._lib.arrays import Columns, Floats, Ints
from .._model.rows import CLASS
from ..data.items import ANY_ITEMS, Items, NormalItems, Roles
from ..data.statistics import Statistics, refuse_weights
from ..data.summaries import Options, totals_of
from ..families.rows import RowSums
from ..fits import Curves
from ..posterior.item_columns import (
    bin_scores_of,
    check_statistics,
    read_items,
    select,
    warn_of_extrapolated_bins,
)

ITEMS_OR_STATISTICS = A(
    Items | Statistics, f"{ANY_ITEMS}, or their statistics", ItemsError
)


@dataclass(frozen=True, eq=False)
class Observations:
    """Rows that stand for one item each, or for several."""

    # as posteriors read them; of cells also the outcomes' ends, low and high
    columns: Columns
    n: Ints  # items of each row
    labels: Mapping[str, pd.Series]  # columns to slice on, by name
    roles: Roles

    def sample(self, most: int, rng: Generator) -> tuple[Ints, "Observations"]:
        """Return the places of at most so many random rows, in order, and these rows."""
        number = len(self.n)
        chosen = np.sort(rng.choice(number, min(most, number), replace=False))
        return chosen, self.at(chosen)

    def at(self, place: Ints) -> "Observations":
        """Return the rows at these places."""
        labels = {name: values.iloc[place] for name, values in self.labels.items()}
        columns = select(self.columns, place)
        return Observations(columns, self.n[place], labels, self.roles)


def observe(
    curves: Curves,
    data: Items | Statistics,
    by: Sequence[str] = (),
) -> Observations:
    """Read items, or joint cells of statistics, with the columns `by` and those of groups."""
    if isinstance(data, Statistics):
        return _of_cells(curves, data)
    names = list(dict.fromkeys([*by, *data.roles.groups.values()]))
    columns, labels = read_items(curves, data, names)
    n = np.ones(len(columns["score"]), dtype=np.int64)
    return Observations(columns, n, labels, data.roles)


def with_noise_of(curves: Curves, data: Items | Statistics) -> Items | Statistics:
    """Return the data with noise sds as the fit took them: known, or estimates."""
    df = curves.noise_df
    if isinstance(data, NormalItems):
        return replace(data, noise_df=df)
    if isinstance(data, Statistics) and not isinstance(df or data.noise_df, str):
        sums = data.data.copy()
        sums.attrs = {k: v for k, v in sums.attrs.items() if k != "noise_df"}
        sums.attrs |= {"noise_df": df} if df else {}
        return Statistics(sums)
    return data


def _of_cells(curves: Curves, stats: Statistics) -> Observations:
    check_statistics(curves, stats)
    refuse_weights(stats, "a check")
    stats.cells("joint")  # says what to do where there are none
    warn_of_extrapolated_bins(curves, stats)
    cells = stats.table("joint")
    outcome = curves.outcome
    code = cells["group"] * bool(stats.groups)
    bins = bin_scores_of(curves, stats)
    low, high = outcome.cell_range(cells)
    columns = bins.columns(cells) | {
        outcome.observed: cells["sum_y"] / cells["n"],
        outcome.size: outcome.mean_size(cells),
        "spread": bins.spread[bins.positions.rows(cells)],
        "low": low,
        "high": high,
    }
    if stats.noise_df:
        columns["noise_df"] = cells["sum_df"] / cells["n"]
    labels = {
        grouping.column: pd.Series(
            np.array(grouping.levels, dtype=object)[grouping.code[code]]
        )
        for grouping in stats.groupings
    }
    return Observations(columns, cells["n"], labels, stats.roles)


class CurveRows(NamedTuple):
    """Bins of groups, by class of sizes under a term in them, with the means of both curves."""

    sums: RowSums
    score: Floats
    n: Floats
    location: Floats
    dispersion: Floats


def curve_rows(curves: Curves, stats: Statistics) -> CurveRows:
    """Return rows of statistics, of every group's bins."""
    family = curves.family
    by_size = curves.prior.exposure is not None
    size = None
    if by_size:
        stats.cells("joint")  # says what to do where there are none
    bins = bin_scores_of(curves, stats)
    tables = {}
    for name in ("joint",) if by_size else ("part", *family.outcome.margins):
        table = stats.table(name)
        tables[name] = {**table, "row": bins.positions.rows(table)}
    base = next(iter(tables.values()))
    place = np.arange(len(bins.score))
    if by_size:
        key = np.stack([base["row"], base[family.outcome.size_cell] >> CLASS])
        (place, _), base["row"] = np.unique(key, axis=1, return_inverse=True)
    n = np.bincount(base["row"], base["n"], len(place))
    if by_size:
        size = np.bincount(base["row"], base["n"] * family.outcome.mean_size(base)) / n
    sums = family.rows_of(len(place), tables).with_spread(bins.spread[place])
    labels = None if bins.labels is None else bins.labels[place]
    average = curves.average(bins.score[place], labels, size)
    return CurveRows(sums, bins.score[place], n, *average)


def clustered(data: Items | Statistics) -> bool:
    """Return True if items name clusters, or statistics keep them."""
    return data.blocks > 0 if isinstance(data, Statistics) else data.cluster is not None


def check_rows(reference: Any, table: Any, words: Mapping[str, str], what: str) -> None:
    """Refuse other rows, or rows in another order: columns, with their words, must be the same."""
    for column, word in words.items():
        expected = np.asarray(reference[column])
        values = np.asarray(table[column])
        n = len(expected)
        problem = f"{len(values):,} items, not {len(expected):,}"
        if n == len(values):
            wrong = int((values != expected).sum())
            problem = f"another {word} in {wrong:,} of {n:,} rows" if wrong else ""
        if problem:
            raise ItemsError(
                f"{what} has {problem}: give the same rows in the same order"
            )


def totals_without_folds(items: Items, **options: Any) -> Statistics:
    """Return statistics of items in as many bins as they allow, without warnings of bins."""
    quiet: dict[str, Any] = {"on_leakage": "ignore", "warns_of_bins": False}
    return totals_of(items, Options(folds=0, **quiet, **options))
