"""Where a fit is evaluated for sums over items: two scores a bin, which stand for its items.

The two lie one standard deviation of the bin's scores below and above their mean, on the axis of
the mean curve, so that sums over items are right to second order in the bin's width.
"""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from .._lib.arrays import Floats, Ints
from .._lib.errors import FitError, ItemsWarning
from ..checks.batches import parts
from ..checks.observations import check_roles
from ..data.items import Items
from ..data.statistics import Statistics
from ..data.summaries import totals_of
from ..families.scales import Scale
from ..inference.results import Fit
from ..posterior.curves import items_at_once
from ..posterior.extrapolation import warn_of_extrapolated_bins
from ..posterior.interface import Columns, Posterior, select
from ..posterior.item_columns import check_groups
from ..posterior.predictive import posterior_of

_WIDE = 1 << 32  # more than there are bins
_MIXED_BINS = 200  # of items, on which a mixture is evaluated: it costs more a cell


@dataclass(frozen=True)
class SupportPoints:
    """Scores that stand for items: two of every bin (of every group), one after the other."""

    score: Floats  # (points,)
    bin: Ints
    label: NDArray[np.object_] | None  # groups; None where they are pooled
    items: Floats
    exposure: Floats  # sums of the items' exposures; of no meaning where sizes do not add up

    def weight(self, name: str) -> Floats:
        """Weights of the points: their items, or their exposure."""
        return self.items if name == "items" else self.exposure

    def columns(self, at: Ints, own: Columns) -> Columns:
        """Items at some of the points as posteriors read them, with further columns of theirs."""
        group = {} if self.label is None else {"group": self.label[at]}
        return {**own, "score": self.score[at], **group}


def check_weight(fit: Fit, weight: str) -> None:
    """Refuse weights by exposure where sizes do not add up."""
    outcome = posterior_of(fit).outcome
    if weight != "items" and not outcome.sizes_add:
        raise FitError(f"items with {outcome.words.outcomes} have no exposure: give weight='items'")


def fit_support(fit: Fit) -> SupportPoints:
    """Support points of the bins that a fit was made from, of all groups together."""
    kept = fit.data["constant_data"]
    scale = fit.axis("mean").local
    name = scale.width
    if fit.groups or name not in kept:
        lack = "what scores each group has" if fit.groups else "how wide its bins of scores are"
        raise FitError(f"the fit does not say {lack}: give the statistics too, or the items")
    ends = (kept[c].to_numpy() for c in ("score_min", "score_max"))
    score = _two(kept["score"].to_numpy(), kept[name].to_numpy(), scale, *ends)
    items = kept["n_items"].to_numpy().astype(float)
    size = posterior_of(fit).outcome.size
    exposure = kept[size].to_numpy() if size in kept else np.zeros(len(items))
    number = np.repeat(np.arange(len(items)), 2)
    return SupportPoints(score, number, None, *(np.repeat(x, 2) / 2 for x in (items, exposure)))


def statistics_of(fit: Fit, items: Items, progress: bool | None = False) -> Statistics:
    """Statistics of items as quantities read them, with joint cells for a prior on a grid."""
    mixed = fit.prior.gridded
    with warnings.catch_warnings():
        # the user did not ask for this number of bins
        warnings.filterwarnings("ignore", r"[\d,]+ bins instead of", ItemsWarning)
        return totals_of(
            replace(items, cluster=None),
            bins=_MIXED_BINS if mixed else None,
            folds=0,
            joint=mixed,
            on_leakage="ignore",
            progress=progress,
        )


def statistics_support(fit: Fit, stats: Statistics, coarse: int = 1) -> tuple[SupportPoints, Ints]:
    """Support points of the bins of statistics, of every group where the fit has groups.

    `coarse` bins make one. Also returns a number for the group and bin of every second point, as of
    `key_of`. Warns where scores of some bins lie far outside of those that the fit saw.
    """
    check_roles(fit, stats)
    check_groups(fit, stats)
    warn_of_extrapolated_bins(fit, stats)
    part = stats.table("part")
    key, at = np.unique(key_of(fit, part, part["bin"] // coarse), return_inverse=True)
    scale = fit.axis("mean").local
    names = ("n", *scale.sums, *(["sum_N"] if "sum_N" in part else []))
    n, first, second, *exposure = (np.bincount(at, part[c], len(key)) for c in names)
    low, high = (np.full(len(key), end) for end in (np.inf, -np.inf))
    np.minimum.at(low, at, part["score_min"])
    np.maximum.at(high, at, part["score_max"])
    mean, square = first / n, second / n
    middle = scale.score(mean)
    variance = square - mean**2
    # below the rounding of the sums it is that of equal scores, 0
    sd = np.sqrt(np.where(variance > 1e-12 * square, variance, 0.0))
    score = _two(middle, sd, scale, low, high)
    label = None
    if fit.groups:
        label = np.repeat(np.array(stats.groups, dtype=object)[key // _WIDE], 2)
    total = exposure[0] if exposure else np.zeros(len(key))
    halves = (np.repeat(x, 2) / 2 for x in (n.astype(float), total))
    return SupportPoints(score, np.repeat(key % _WIDE, 2), label, *halves), key


def key_of(fit: Fit, table: Mapping[str, NDArray[Any]], bins: Ints) -> Ints:
    """Number of the group (where the fit has groups) and bin of rows of a table."""
    return np.asarray((table["group"] * _WIDE if fit.groups else 0) + bins, dtype=np.int64)


def _two(score: Floats, sd: Floats, scale: Scale, low: Floats, high: Floats) -> Floats:
    """Two scores for each mean, inside the range of the scores."""
    step = np.stack([-sd, sd], axis=1)
    both = scale.score(scale.position(score)[:, None] + step)
    return np.clip(both, low[:, None], high[:, None]).ravel()


Values = Callable[[slice], list[Floats]]
"""From points to several arrays (draws, points of the slice)."""


def summed(
    fit: Fit, weight: Floats, target: Ints, size: int, values: Values, progress: bool | None = False
) -> list[Floats]:
    """Weighted sums of values over points, (draws, size) each, some points at a time.

    `target` says in which of `size` sums each point is added.
    """
    totals: list[Floats] = []
    for at in parts("posterior variances", len(weight), items_at_once(fit), progress, "cells"):
        own, row = np.unique(target[at], return_inverse=True)
        into = np.zeros((len(row), len(own)))
        into[np.arange(len(row)), row] = weight[at]
        found = values(at)
        if not totals:
            totals = [np.zeros((len(x), size)) for x in found]
        for total, x in zip(totals, found, strict=True):
            total[:, own] += x @ into
    return totals


def by_draw(fit: Fit, found: Mapping[str, Floats], **coords: Any) -> xr.Dataset:
    """Arrays (draws,) or (draws, bins) with dims (chain, draw) or (chain, draw, bin)."""
    posterior = fit.data["posterior"]
    sizes = posterior.sizes["chain"], posterior.sizes["draw"]
    coords |= {name: posterior[name].to_numpy() for name in ("chain", "draw")}
    dims = ("chain", "draw", "bin")
    shaped = {name: x.reshape(*sizes, *x.shape[1:]) for name, x in found.items()}
    return xr.Dataset({name: (dims[: x.ndim], x) for name, x in shaped.items()}, coords)


def centre_of(posterior: Posterior, columns: Columns) -> float:
    """About the mean of theta, to take squares about it."""
    some = slice(None, None, max(1, len(columns["score"]) // 20))
    few = select(columns, some)
    return float(posterior.curves(few["score"], few.get("group"), few.get("size"))["mean"].mean())
