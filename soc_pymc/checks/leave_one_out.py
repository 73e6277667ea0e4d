"""Every item left out in turn: importance weights over the draws, for items and for cells.

Draws that predict an item badly would have more weight without it: the weights are proportional to
1 / p(y | draw) (Gelfand, Dey and Chang 1992), and the largest are Pareto-smoothed (Vehtari, Gelman
and Gabry 2017) for the items or cells that sway the draws most. The weights of all others are so
nearly equal that smoothing changes nothing.
"""

import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from .._lib.arrays import Floats, Ints
from ..inference.results import PARETO_K, Fit
from ..posterior.interface import Columns, Posterior, select
from ..posterior.predictive import posterior_of
from .cells import Cells
from .predictive import parts, thin
from .trust import Influence

_NUMBERS = 4_000_000  # numbers in one array of draws x cells
_MOST_NUMBERS, _FEWEST_DRAWS = 40_000_000, 100  # of all cells
_SMOOTHED, _LEAST_SMOOTHED = 2_000, 100  # cells whose weights are Pareto-smoothed
_SWAY = 0.01  # variance of log densities over draws, below which smoothing changes nothing
_EQUAL = 1e-9  # log densities that range less over the draws are those of equal weights
_PIT_DRAWS = 32  # draws that say how far leaving an item out moves its predictive distribution
_MOST_POINTS = 200_000  # points in a record for ArviZ; of more items, a share of every cell


# --- sums over items -----------------------------------------------------------------------------


@dataclass(frozen=True)
class LeaveOneOut:
    """Expected log predictive density of every item left out in turn."""

    elpd: float  # sum over items, in nats
    standard_error: float  # of the sum, over items
    p_loo: float  # effective number of parameters
    pareto_k: float  # the largest
    each: Floats  # of one item of each cell, (cells,)
    k: Floats  # Pareto k by cell; NaN where weights are so nearly equal that they stay as they are
    draws: int
    influence: Influence  # of the draws used


def leave_cells_out(fit: Fit, cells: Cells, progress: bool | None = None) -> LeaveOneOut:
    """Leave-one-out of all items of cells by importance weights over the draws.

    Of many cells, fewer draws are used: 40 million numbers in all, at least 100 draws.
    """
    few = thin(fit, max(_FEWEST_DRAWS, _MOST_NUMBERS // len(cells.n)))
    posterior = posterior_of(few)

    def log_density(at: slice | Ints) -> Floats:
        return posterior.log_density(select(cells.columns, at))

    return leave_one_out(
        few.data["posterior"].to_dataset(), cells.n, log_density, "cells", progress
    )


def leave_one_out(
    posterior: xr.Dataset,
    n: Ints,
    log_density: Callable[[slice | Ints], Floats],
    unit: str = "items",
    progress: bool | None = False,
) -> LeaveOneOut:
    """Leave-one-out of `n` items of each cell from log densities (draws, cells) of some cells."""
    draws = posterior.sizes["chain"] * posterior.sizes["draw"]
    within, total, sway = (np.empty(len(n)) for _ in range(3))
    influence = np.zeros(draws)
    for at in parts("leave-one-out", len(n), max(1, _NUMBERS // draws), progress, unit):
        each = log_density(at)
        within[at], total[at] = -_log_mean(-each), _log_mean(each)
        sway[at] = each.var(axis=0)
        influence += _equal_influence(each, within[at], n[at])
    worst = _swayed(sway)
    k = np.full(len(n), np.nan)
    some = log_density(worst)
    influence -= _equal_influence(some, within[worst], n[worst])
    log_weight, k[worst] = _smoothed(some)
    within[worst] = _log_sum(log_weight + some)
    share = np.exp(log_weight + some - within[worst]) - np.exp(log_weight)
    influence += draws * (share @ n[worst])
    elpd = float(n @ within)
    variance = float(n @ (within - elpd / n.sum()) ** 2)
    effective = n * (total - within)
    found = _influence(posterior, influence, effective, k, unit)
    sums = elpd, np.sqrt(variance), float(effective.sum()), float(np.nanmax(k))
    return LeaveOneOut(*sums, within, k, draws, found)


def _swayed(sway: Floats) -> Ints:
    """Cells whose weights are smoothed: those whose log densities vary most over the draws."""
    order = np.argsort(-sway)[:_SMOOTHED]
    return order[: max(_LEAST_SMOOTHED, int((sway[order] > _SWAY).sum()))]


def _equal_influence(log_density: Floats, within: Floats, n: Ints) -> Floats:
    """Influence of draws, (draws,), on the sum over `n` items of each cell by plain weights."""
    with np.errstate(over="ignore"):  # of densities that have no sum
        return np.asarray((1.0 - np.exp(within - log_density)) @ n)


def _influence(
    posterior: xr.Dataset, by_draw: Floats, p: Floats, k: Floats, unit: str
) -> Influence:
    """With `p` and Pareto `k` of the items or cells, NaN where weights are nearly equal."""
    sizes = {dim: posterior.sizes[dim] for dim in ("chain", "draw")}
    coords = {dim: posterior[dim] for dim in sizes}
    values = xr.DataArray(by_draw.reshape(tuple(sizes.values())), coords, tuple(sizes))
    good = good_k(by_draw.size)
    bad = k > good
    return Influence(values, float(p.sum()), float(p[bad].sum()), int(bad.sum()), good, unit)


def good_k(draws: int) -> float:
    """Pareto k up to which this number of draws gives reliable weights (Vehtari et al. 2024)."""
    return float(min(1.0 - 1.0 / np.log10(draws), PARETO_K))


def shares(n: Ints) -> NDArray[np.intp]:
    """Each cell as often as it has items, or in proportion where these are over 200,000."""
    total = np.cumsum(n)
    if total[-1] <= _MOST_POINTS:
        return np.repeat(np.arange(len(n)), n)
    every = (np.arange(_MOST_POINTS) + 0.5) * (total[-1] / _MOST_POINTS)
    return np.searchsorted(total, every, side="right")


def elpd_record(loo: LeaveOneOut, n: Ints) -> Any:
    """ArviZ's record of leave-one-out, as `arviz.compare` and `arviz.plot_khat` take it.

    ArviZ takes no weights: a cell's item stands for all, as often as the cell has items `n`. Of
    more than 200,000 items every cell has its share of 200,000 points, in ArviZ's own record of
    subsampled leave-one-out: ``elpd``, ``se`` and ``p`` are sums over all items, and the constant
    ``elpd_loo_approx`` makes ArviZ's differences those of all items, too. ``pareto_k`` is of the
    cells whose weights were smoothed.
    """
    from arviz_stats.utils import ELPDDataLOO, ELPDDataLOOSubsample

    points, n_items = shares(n), int(n.sum())
    good = good_k(loo.draws)
    known = np.flatnonzero(~np.isnan(loo.k))
    each = loo.each[points]
    pareto_k = xr.DataArray(loo.k[known], {"cell": known}, "cell")
    common = {"elpd": loo.elpd, "se": loo.standard_error, "p": loo.p_loo, "scale": "log"}
    common |= {"n_samples": loo.draws, "n_data_points": n_items, "good_k": good}
    common |= {"warning": bool(loo.pareto_k > good), "pareto_k": pareto_k}
    if len(points) == n_items:
        return ELPDDataLOO(**common, elpd_i=xr.DataArray(each, dims="item"))
    # ArviZ adds up the approximation and n_items times the mean of what the points differ from it
    approximation = (loo.elpd - n_items * each.mean()) / (len(points) - n_items)
    return ELPDDataLOOSubsample(
        **common,
        elpd_i=xr.DataArray(each, dims="item"),
        subsample_size=len(points),
        subsampling_se=0.0,
        loo_subsample_observations=np.arange(len(points)),
        elpd_loo_approx=xr.DataArray(np.full(len(points), approximation), dims="item"),
    )


# --- predictive distributions --------------------------------------------------------------------


@dataclass(frozen=True)
class LeftOut:
    """Items left out one by one."""

    below: Floats  # P(Y < y) of each item given all others, (n,)
    upto: Floats  # P(Y <= y)
    pareto_k: float  # the largest of the items' weights


def leave_items_out(
    posterior: Posterior, columns: Columns, log_density: Floats, below: Floats, upto: Floats
) -> LeftOut:
    """Predictive cdfs of items that the fit has seen, as if it had not.

    The exact cdf over all draws (`below` and `upto`, (n,)) is moved by the difference that an
    item's weights make among 32 draws: that difference is small, so that few draws do.
    `log_density` is (draws, n).
    """
    log_weight = -log_density - _log_sum(-log_density)
    worst = _swayed(log_density.var(axis=0))
    log_weight[:, worst], k = _smoothed(log_density[:, worst])
    draws = len(log_density)
    pick = np.unique(np.arange(_PIT_DRAWS) * draws // _PIT_DRAWS)
    weight = np.exp(log_weight[pick] - log_weight[pick].max(axis=0))
    weight = weight / weight.sum(axis=0) - 1.0 / len(pick)
    moved = np.einsum("dn,edn->en", weight, posterior.cdf_by_draw(columns, pick))
    high = np.clip(upto + moved[1], 0.0, 1.0)
    return LeftOut(np.clip(below + moved[0], 0.0, high), high, float(k.max()))


def _log_sum(values: Floats) -> Floats:
    """Logarithm of a sum over the first axis: SciPy's takes 2.5 times as long."""
    top = values.max(axis=0)
    return np.asarray(top + np.log(np.exp(values - top).sum(axis=0)))


def _log_mean(values: Floats) -> Floats:
    return _log_sum(values) - np.log(len(values))


def _smoothed(log_density: Floats) -> tuple[Floats, Floats]:
    """Logarithms of Pareto-smoothed weights, which add up to 1, (draws, n), and their k, (n,).

    Where draws are so few and so often repeated that the tail of the weights has no shape, these
    stay as they are and k is infinite: nothing vouches for them. Equal weights have k = 0.
    """
    from arviz_stats.base import array_stats

    equal = np.ptp(log_density, axis=0) <= _EQUAL
    log_weight = -log_density - _log_sum(-log_density)
    k = np.where(equal, 0.0, np.inf)
    for item in np.flatnonzero(~equal):
        # a tail that is one number is refused, and one beyond float64 has a k of NaN
        with warnings.catch_warnings(), suppress(ValueError), np.errstate(all="ignore"):
            # of few draws, whose k says what it is worth
            warnings.filterwarnings("ignore", "Number of tail draws", UserWarning)
            smoothed, own = array_stats.psislw(log_density[:, item])  # it takes the sign itself
            if np.isfinite(own) and np.isfinite(smoothed).all():
                log_weight[:, item], k[item] = smoothed, own
    return log_weight, k
