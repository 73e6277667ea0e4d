"""Joint cells of statistics as weighted items, and the PIT of items that are never seen.

Items of a cell stand at their bin's mean score (of their group), with theta's spread within the bin
that of the mean curve over its scores, and at their cell's mean exposure or noise sd. For the PIT a
count is anywhere in its cell, and values are spread evenly with the cell's mean and variance. For
leave-one-out both are at the cell's mean: of values, whose cells are about an eighth of the noise
sd wide, that makes a log density about 1/1500 nat too large at most, for all priors alike.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .._lib.errors import StatisticsError
from .._lib.progress import phase
from ..data.binning import count_cell_range
from ..data.statistics import Statistics
from ..inference.results import Fit, outcome_roles
from ..posterior.extrapolation import warn_of_far_bins
from ..posterior.predictive import Columns, Posterior, bin_scores_of, posterior_of, select
from .pit import GRID, MANY_TRIALS, Uniformity, grid_p_value, sizes, span

__all__ = ["Cells", "cell_pit", "make_cells"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

_CHUNK = 20_000
_EACH = 32  # cells of more items are divided among the grid by one multinomial draw
_LEVELS = 20  # groups that get a slice of their own, the largest


@dataclass(frozen=True)
class Cells:
    """Joint cells as weighted items.

    Attributes
    ----------
    n
        Items.
    columns
        Their columns as laws read them, the outcome at the cell's mean.
    low, high
        Least and largest outcome of the cell.
    group
        Labels of the cells' groups; none where statistics have no groups.
    by
        Column of the groups; empty where there are none.
    """

    n: Ints
    columns: Columns
    low: Floats
    high: Floats
    group: NDArray[np.object_]
    by: str


def make_cells(fit: Fit, stats: Statistics) -> Cells:
    """Weighted items of statistics with joint cells.

    Parameters
    ----------
    fit
        The fit, whose mean curve says how much theta varies within bins.
    stats
        Statistics with joint cells.

    Raises
    ------
    StatisticsError
        If there are no joint cells, items of the statistics play other roles than in the fit, or
        the fit has groups and the statistics do not.

    Warns
    -----
    ItemsWarning
        If scores of some bins lie far outside of those that the fit saw.
    """
    its, ours = (outcome_roles(x.data.attrs) for x in (fit, stats))
    if its != ours:
        raise StatisticsError(f"the fit is of items with the roles {its}, the statistics of {ours}")
    law = posterior_of(fit)
    pooled = stats.cells("joint")  # says what to do where there are none
    warn_of_far_bins(fit, stats)
    cells = (
        stats.table("joint") if stats.groups else {**pooled, "group": np.zeros_like(pooled["n"])}
    )
    bins = bin_scores_of(fit, law, stats, stats.coarse)
    at = bins.place(cells["group"], cells["bin"])
    outcome, size, low, high = (_counts if law.outcome.whole else _values)(cells)
    columns: dict[str, NDArray[np.generic]] = {
        "score": bins.score[at],
        law.outcome.observed: outcome,
        law.outcome.size: size,
        "spread": bins.spread[at],
    }
    labels = np.array(stats.groups, dtype=object)
    group = labels[cells["group"]] if len(labels) else labels
    if fit.groups:
        columns["group"] = group
    by = json.loads(stats.data.attrs["roles"]).get("group", "")
    return Cells(cells["n"], columns, low, high, group, by)


def _counts(cells: Columns) -> tuple[Floats, Floats, Floats, Floats]:
    """Mean count, mean exposure, and range of counts of cells."""
    low, width = count_cell_range(cells["count_cell"])
    n = cells["n"]
    return cells["sum_y"] / n, cells["sum_N"] / n, low, low + np.maximum(width - 1.0, 0.0)


def _values(cells: Columns) -> tuple[Floats, Floats, Floats, Floats]:
    """Mean value, noise sd, and the ends of an even spread of values of cells."""
    n = cells["n"]
    mean, square = cells["sum_y"] / n, cells["sum_y2"] / n
    variance = square - mean**2
    # what is below the rounding of the sums is that of equal values, 0
    reach = np.sqrt(3.0 * np.where((n > 1) & (variance > 1e-12 * square), variance, 0.0))
    return mean, np.sqrt(cells["sum_w"] / n), mean - reach, mean + reach


# --- PIT -----------------------------------------------------------------------------------------


def _slices(law: Posterior, cells: Cells) -> Iterator[tuple[str, Mask]]:
    """All items, large exposures, fifths of score and size, by whole bins and cells, and groups."""
    score, size = cells.columns["score"], cells.columns[law.outcome.size]
    yield "all items", np.ones(len(cells.n), dtype=bool)
    if law.outcome.whole:
        yield f"{sizes(law)} >= {MANY_TRIALS}", size >= MANY_TRIALS
    for name, value in (("score", score), (sizes(law), size)):
        order = np.argsort(value, kind="stable")
        share = np.empty(len(value))
        share[order] = (np.cumsum(cells.n[order]) - 0.5 * cells.n[order]) / cells.n.sum()
        # equal values stay together
        same = np.unique(value, return_inverse=True)[1]
        mean = np.bincount(same, share * cells.n) / np.bincount(same, cells.n)
        level = np.minimum((mean[same] * 5).astype(int), 4)
        present = np.unique(level)
        if len(present) < 2:
            continue
        for k, code in enumerate(present, start=1):
            mask = level == code
            yield f"{name} {k}/{len(present)}: {span(value[mask])}", mask
    if len(cells.group):
        labels, code = np.unique(cells.group, return_inverse=True)
        items = np.bincount(code, cells.n)
        for which in np.argsort(-items, kind="stable")[:_LEVELS]:
            yield f"{cells.by} = {labels[which]}", code == which


def cell_pit(
    fit: Fit, cells: Cells, rng: np.random.Generator, progress: bool = True
) -> dict[str, tuple[Floats, Floats, int, Uniformity]]:
    """ECDFs of the PIT of all items, by slice.

    Parameters
    ----------
    fit
        The fit.
    cells
        From `make_cells`.
    rng
        For the randomised PIT.
    progress
        Whether long work shows its progress.

    Returns
    -------
    dict
        By slice: randomised and averaged ECDF at `GRID`, number of items, and the test of
        uniformity, whose distance is taken at the grid's points, for which its p-value allows.
    """
    law = posterior_of(fit)
    masks = dict(_slices(law, cells))
    drawn = {name: np.zeros(len(GRID) - 1) for name in masks}
    averaged = {name: np.zeros(len(GRID) - 1) for name in masks}
    with phase("PIT of cells", total=len(cells.n), unit="cells", enabled=progress) as running:
        for start in range(0, len(cells.n), _CHUNK):
            at = slice(start, start + _CHUNK)
            own = select(cells.columns, at)
            below, _ = law.cdf_interval({**own, law.outcome.observed: cells.low[at]})
            _, upto = law.cdf_interval({**own, law.outcome.observed: cells.high[at]})
            upto = np.maximum(upto, below)
            shares = _shares(below, upto)
            items = _dealt(cells.n[at], below, upto, shares, rng)
            for name, mask in masks.items():
                drawn[name] += items[mask[at]].sum(axis=0)
                averaged[name] += cells.n[at][mask[at]] @ shares[mask[at]]
            running.advance(len(below))
    return {name: _ecdf(drawn[name], averaged[name]) for name in masks}


def _shares(below: Floats, upto: Floats) -> Floats:
    """Share of each interval in each step of the grid."""
    width = np.maximum(upto - below, 1e-300)
    inside = (GRID - below[:, None]) / width[:, None]
    shares = np.diff(np.clip(inside, 0.0, 1.0), axis=1)
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


def _ecdf(drawn: Floats, averaged: Floats) -> tuple[Floats, Floats, int, Uniformity]:
    n = round(drawn.sum())
    both = [np.concatenate([[0.0], np.cumsum(h) / max(h.sum(), 1.0)]) for h in (drawn, averaged)]
    distance = float(np.abs(both[0] - GRID).max())
    return both[0], both[1], n, Uniformity(distance, grid_p_value(distance, n))
