"""PIT and leave-one-out from statistics: what joint cells say of items that are never seen.

An item stands at its bin's mean score, its exposure at its cell's mean, and its count anywhere in
its cell; theta's spread within a bin is that of the mean curve over the bin's scores.
"""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..bin_curves import bin_scores, spread_out
from ..binning import count_cell_range
from ..curves import curve_draws
from ..errors import StatisticsError
from ..families import poisson_gamma
from ..nodes import representative_nodes
from ..progress import phase
from ..results import Fit, outcome_roles
from ..statistics import Statistics
from .pit import GRID, MANY_TRIALS, Uniformity, ends_of_counts, ks_p_value, span
from .predictive import thin

__all__ = ["Cells", "LooCells", "cell_pit", "loo_cells", "make_cells"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

_CHUNK = 20_000
_EACH = 32  # cells of more items are divided among the grid by one multinomial draw
_NUMBERS = 4_000_000  # numbers in one array of draws x cells
_MOST_NUMBERS, _FEWEST_DRAWS = 40_000_000, 100  # of all cells, for leave-one-out
_SMOOTHED = 2_000  # cells whose weights are Pareto-smoothed: those that sway the draws most


@dataclass(frozen=True)
class Cells:
    """Joint cells as weighted items.

    Attributes
    ----------
    bin
        Place of each cell's bin among `score`.
    n
        Items.
    low, high
        Least and largest count of the cell.
    count, exposure
        Means over the cell's items.
    score
        Mean scores of the bins.
    spread
        Variance of log E(theta|t) within each bin.
    """

    bin: Ints
    n: Ints
    low: Floats
    high: Floats
    count: Floats
    exposure: Floats
    score: Floats
    spread: Floats


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
        If there are no joint cells, or items of the statistics play other roles than in the fit.
    """
    its, ours = (outcome_roles(x.data.attrs) for x in (fit, stats))
    if its != ours:
        raise StatisticsError(f"the fit is of items with the roles {its}, the statistics of {ours}")
    cells = stats.cells("joint")
    number, score, spread = bin_scores(fit, stats, stats.coarse)
    low, width = count_cell_range(cells["count_cell"])
    return Cells(
        np.searchsorted(number, cells["bin"]),
        cells["n"],
        low,
        low + np.maximum(width - 1.0, 0.0),
        cells["sum_y"] / cells["n"],
        cells["sum_N"] / cells["n"],
        score,
        spread,
    )


# --- PIT -----------------------------------------------------------------------------------------


def _slices(cells: Cells) -> Iterator[tuple[str, Mask]]:
    """All items, large exposures, and fifths of score and exposure, by whole bins and cells."""
    yield "all items", np.ones(len(cells.n), dtype=bool)
    yield f"exposure >= {MANY_TRIALS}", cells.exposure >= MANY_TRIALS
    for name, value in (("score", cells.score[cells.bin]), ("exposure", cells.exposure)):
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
        uniformity, whose distance is taken at the grid's points and is so a little too small.
    """
    weight, log_mean, log_cv2 = representative_nodes(fit, cells.score)
    log_mean, log_cv2 = spread_out(log_mean, log_cv2, cells.spread)
    masks = dict(_slices(cells))
    drawn = {name: np.zeros(len(GRID) - 1) for name in masks}
    averaged = {name: np.zeros(len(GRID) - 1) for name in masks}
    with phase("PIT of cells", total=len(cells.n), unit="cells", enabled=progress) as running:
        for start in range(0, len(cells.n), _CHUNK):
            at = slice(start, start + _CHUNK)
            b, exposure = cells.bin[at], cells.exposure[at]
            m, c = log_mean[:, b], log_cv2[:, b]
            below, _ = ends_of_counts(weight, m, c, cells.low[at], exposure)
            _, upto = ends_of_counts(weight, m, c, cells.high[at], exposure)
            shares = _shares(below, np.maximum(upto, below))
            items = _dealt(cells.n[at], below, upto, shares, rng)
            for name, mask in masks.items():
                drawn[name] += items[mask[at]].sum(axis=0)
                averaged[name] += cells.n[at][mask[at]] @ shares[mask[at]]
            running.advance(len(b))
    return {name: _ecdf(drawn[name], averaged[name]) for name in masks}


def _shares(below: Floats, upto: Floats) -> Floats:
    """Share of each interval in each step of the grid."""
    width = np.maximum(upto - below, 1e-300)
    inside = (GRID - below[:, None]) / width[:, None]
    return np.diff(np.clip(inside, 0.0, 1.0), axis=1)


def _dealt(
    n: Ints, below: Floats, upto: Floats, shares: Floats, rng: np.random.Generator
) -> Floats:
    """How many items of each cell have their randomised PIT in each step of the grid."""
    steps = shares.shape[1]
    items = np.zeros_like(shares)
    many = n > _EACH
    sums = shares[many].sum(axis=1, keepdims=True)
    items[many] = rng.multinomial(n[many], shares[many] / np.where(sums > 0, sums, 1.0))
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
    return both[0], both[1], n, Uniformity(distance, ks_p_value(distance, n))


# --- leave-one-out -------------------------------------------------------------------------------


@dataclass(frozen=True)
class LooCells:
    """Expected log predictive density of every item left out in turn.

    Attributes
    ----------
    elpd
        Sum over items, in nats.
    standard_error
        Of the sum, over items.
    p_loo
        Effective number of parameters.
    pareto_k
        Largest Pareto k of the importance weights.
    """

    elpd: float
    standard_error: float
    p_loo: float
    pareto_k: float


def loo_cells(fit: Fit, cells: Cells, progress: bool = True) -> LooCells:
    """Leave-one-out of all items by importance weights over the draws (Vehtari et al. 2017).

    The weights of the cells that sway the draws most are Pareto-smoothed; the others are nearly
    equal. Of many cells, fewer draws are used: 40 million numbers in all, at least 100 draws.

    Parameters
    ----------
    fit, cells, progress
        As in `cell_pit`.
    """
    few = thin(fit, max(_FEWEST_DRAWS, _MOST_NUMBERS // len(cells.n)))
    m, c = spread_out(*curve_draws(few, cells.score), cells.spread)
    step = max(1, _NUMBERS // len(m))
    within, total, sway = (np.empty(len(cells.n)) for _ in range(3))

    def log_likelihood(at: NDArray[np.intp]) -> Floats:
        b = cells.bin[at]
        return poisson_gamma.log_pmf(cells.count[at], cells.exposure[at], m[:, b], c[:, b])

    with phase("leave-one-out", total=len(cells.n), unit="cells", enabled=progress) as running:
        for start in range(0, len(cells.n), step):
            at = np.arange(start, min(start + step, len(cells.n)))
            each = log_likelihood(at)
            within[at], total[at] = -_log_mean(-each), _log_mean(each)
            sway[at] = each.var(axis=0)
            running.advance(len(at))
        worst = np.argsort(-sway)[:_SMOOTHED]
        within[worst], k = _smoothed(log_likelihood(worst))
    n = cells.n
    elpd = float(n @ within)
    variance = float(n @ (within - elpd / n.sum()) ** 2)
    return LooCells(elpd, np.sqrt(variance), float(n @ (total - within)), float(np.max(k)))


def _log_mean(values: Floats) -> Floats:
    top = values.max(axis=0)
    return np.asarray(top + np.log(np.exp(values - top).mean(axis=0)))


def _smoothed(log_likelihood: Floats) -> tuple[Floats, Floats]:
    """Leave-one-out densities of cells (draws, n) with Pareto-smoothed weights, and their k."""
    from arviz_stats.base import array_stats

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of a large k, which the result says
        log_weight, k = array_stats.psislw(log_likelihood.T)  # it takes the sign itself
    top = log_likelihood.max(axis=0)
    weighted = (np.exp(np.asarray(log_weight).T) * np.exp(log_likelihood - top)).sum(axis=0)
    return top + np.log(weighted), np.asarray(k, dtype=float)
