"""Joint cells of statistics as weighted items, and the PIT of items that are never seen.

Items of a cell stand at their bin's mean score (of their group), with theta's spread within the bin
that of the mean curve over its scores, and at their cell's mean exposure or noise sd. For the PIT a
count is anywhere in its cell, and values are spread evenly with the cell's mean and variance. For
leave-one-out both are at the cell's mean: of values, whose cells are about an eighth of the noise
sd wide, that makes a log density about 1/1500 nat too large at most, for all priors alike.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from .._lib.arrays import Floats, Ints
from .._lib.errors import StatisticsError
from .._model.rows import check_atoms_apart
from ..data.statistics import Statistics, refuse_weights
from ..inference.results import Fit, outcome_roles
from ..posterior.extrapolation import warn_of_extrapolated_bins
from ..posterior.interface import Columns, select
from ..posterior.item_columns import bin_scores_of
from ..posterior.predictive import posterior_of
from .curve_error import BETWEEN, curve_shifts, judged, replicated_distances
from .predictive import (
    BINS,
    GRID,
    LEAST,
    SlicePit,
    Uniformity,
    binned_ecdfs,
    by_level,
    equal_parts,
    parts,
    pit_upto_grid,
    slices,
)

_CHUNK = 20_000
_EACH = 32  # cells of more items are divided among the grid by one multinomial draw


@dataclass(frozen=True)
class Cells:
    """Joint cells as weighted items."""

    n: Ints  # items
    columns: Columns  # as posteriors read them, the outcome at the cell's mean
    low: Floats  # least outcome of the cell
    high: Floats  # largest outcome of the cell
    levels: Mapping[str, NDArray[np.object_]]  # labels by column of groups


def check_roles(fit: Fit, stats: Statistics) -> None:
    """Refuse statistics of other columns than the fit's."""
    theirs, ours = (outcome_roles(x.data.attrs) for x in (fit, stats))
    if theirs != ours:
        raise StatisticsError(
            f"the fit is of items with the roles {theirs}, the statistics of {ours}"
        )


def make_cells(fit: Fit, stats: Statistics) -> Cells:
    """Weighted items of statistics with joint cells, where the fit's mean curve varies in bins."""
    check_roles(fit, stats)
    refuse_weights(stats, "a check")
    if fit.atoms:
        check_atoms_apart(stats)
    posterior = posterior_of(fit)
    outcome = posterior.outcome
    pooled = stats.cells("joint")  # says what to do where there are none
    warn_of_extrapolated_bins(fit, stats)
    cells = (
        stats.table("joint") if stats.groups else {**pooled, "group": np.zeros_like(pooled["n"])}
    )
    bins = bin_scores_of(fit, posterior, stats, stats.coarse)
    at = bins.place(cells["group"], cells["bin"])
    columns: dict[str, NDArray[np.generic]] = {
        "score": bins.score[at],
        outcome.observed: cells["sum_y"] / cells["n"],
        outcome.size: outcome.forms.mean_size(cells),
        "spread": bins.spread[at],
    }
    if fit.groups:
        columns["group"] = np.array(stats.groups, dtype=object)[cells["group"]]
    levels = {
        grouping.column: np.array(grouping.levels, dtype=object)[grouping.of[cells["group"]]]
        for grouping in stats.groupings
    }
    return Cells(cells["n"], columns, *outcome.forms.cell_range(cells), levels)


# --- PIT -----------------------------------------------------------------------------------------


def cell_pit(
    fit: Fit, cells: Cells, rng: np.random.Generator, progress: bool | None = None
) -> tuple[dict[str, SlicePit], Floats, xr.Dataset]:
    """PIT of all items, by slice of items, replicates of its distances, and ECDFs by score.

    Distances are those at the points of `GRID`, and what an ECDF strays further between them.
    """
    posterior = posterior_of(fit)
    observed = posterior.outcome.observed
    masks = dict(slices(posterior.outcome, cells.columns, fit.atoms, cells.n))
    for column, labels in cells.levels.items():
        masks |= dict(by_level(column, pd.Series(labels), cells.n))
    drawn = {name: np.zeros(len(GRID) - 1) for name in masks}
    averaged = {name: np.zeros(len(GRID) - 1) for name in masks}
    score = cells.columns["score"]
    part = equal_parts(score, BINS, cells.n)
    by_score = np.zeros((int(part.max()) + 1, len(GRID) - 1))
    for at in parts("PIT of cells", len(cells.n), _CHUNK, progress, "cells"):
        own = select(cells.columns, at)
        below, _ = posterior.cdf_interval({**own, observed: cells.low[at]})
        _, upto = posterior.cdf_interval({**own, observed: cells.high[at]})
        upto = np.maximum(upto, below)
        shares = _shares(below, upto)
        items = _dealt(cells.n[at], below, upto, shares, rng)
        np.add.at(by_score, part[at], items)
        for name, mask in masks.items():
            drawn[name] += items[mask[at]].sum(axis=0)
            averaged[name] += cells.n[at][mask[at]] @ shares[mask[at]]
    least = min(LEAST, int(cells.n.sum()))
    found = {name: _slice_pit(drawn[name], averaged[name]) for name in masks}
    found = {name: own for name, own in found.items() if own.n_items >= least}
    shifts = curve_shifts(fit, cells.columns, [masks[name] for name in found], rng, cells.n)
    replicated = replicated_distances(shifts, [own.n_items for own in found.values()], rng)
    ecdf = np.array([_ecdf(steps) for steps in by_score])
    return judged(found, replicated), replicated, binned_ecdfs(ecdf, score, part, cells.n)


def _shares(below: Floats, upto: Floats) -> Floats:
    """Share of each interval in each step of the grid."""
    shares = np.diff(pit_upto_grid(below, upto), axis=1)
    shares[below >= 1.0, -1] = 1.0  # no point of the grid lies above it
    return shares


def _dealt(
    n: Ints, below: Floats, upto: Floats, shares: Floats, rng: np.random.Generator
) -> Floats:
    """How many items of each cell have their randomised PIT in each step of the grid."""
    steps = shares.shape[1]
    items = np.zeros_like(shares)
    many = n > _EACH
    items[many] = rng.multinomial(n[many], shares[many] / shares[many].sum(axis=1, keepdims=True))
    few = np.flatnonzero(~many)
    cell = np.repeat(few, n[few])
    u = below[cell] + rng.random(len(cell)) * (upto - below)[cell]
    step = np.minimum((u * steps).astype(np.int64), steps - 1)
    np.add.at(items, (cell, step), 1.0)
    return items


def _slice_pit(drawn: Floats, averaged: Floats) -> SlicePit:
    n = round(drawn.sum())
    randomised = _ecdf(drawn)
    distance = float(np.abs(randomised - GRID).max() + BETWEEN / max(n, 1) ** 0.5)
    return SlicePit(randomised, _ecdf(averaged), n, Uniformity(distance, np.nan))


def _ecdf(steps: Floats) -> Floats:
    """Shares of items up to each point of the grid."""
    return np.concatenate([[0.0], np.cumsum(steps) / max(steps.sum(), 1.0)])
