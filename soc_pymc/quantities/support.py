"""Points that stand for the items in sums over them: two scores for every bin.

The two lie one standard deviation of the bin's scores below and above their mean, on the axis of
the mean curve, so that sums over items are right to second order in the bin's width.
"""

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from .._lib.arrays import Floats, Ints
from .._lib.errors import FitError, ItemsWarning
from ..checks.observations import check_roles, parts
from ..data.groups import roles_of
from ..data.items import Items
from ..data.statistics import Statistics
from ..data.summaries import totals_of
from ..families.scales import Scale
from ..inference.results import Fit, outcome_roles
from ..posterior.curves import items_at_once
from ..posterior.extrapolation import warn_of_extrapolated_bins
from ..posterior.interface import Columns
from ..posterior.item_columns import check_groups, posterior_roles
from ..posterior.predictive import posterior_of

_WIDE = 1 << 32  # more than there are bins
SHARES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Shares of the items, at whose scores curves are shown."""

_MIXED_BINS = 200  # of items, on which a mixture is evaluated: it costs more a cell


@dataclass(frozen=True)
class SupportPoints:
    """Scores that stand for items: two of every bin (of every group), one after the other."""

    score: Floats  # (points,)
    bin: Ints
    label: NDArray[np.object_] | None  # groups; None where they are pooled
    items: Floats

    def columns(self, points: Ints, columns: Columns) -> Columns:
        """Items at some of the points as posteriors read them, with further columns of theirs."""
        group = {} if self.label is None else {"group": self.label[points]}
        return {**columns, "score": self.score[points], **group}


def check_draws(fit: Fit, name: str) -> None:
    """Refuse fits with a single draw where a result has intervals alone."""
    if fit.one_draw:
        raise FitError(
            f"{name} has a single draw, which does not say how sure it is: fit with soc.VI() or "
            "soc.NUTS()"
        )


def fit_support(fit: Fit) -> SupportPoints:
    """Support points of the bins that a fit was made from, of all groups together."""
    bins = {str(name): x.to_numpy() for name, x in fit.data["constant_data"].data_vars.items()}
    scale = fit.axis("mean").local
    if fit.groups or scale.width not in bins:
        lack = "what scores each group has" if fit.groups else "how wide its bins of scores are"
        raise FitError(f"the fit does not say {lack}: give the statistics too, or the items")
    ends = bins["score_min"], bins["score_max"]
    score = _two(bins["score"], bins[scale.width], scale, *ends)
    items = bins["n_items"].astype(float)
    number = np.repeat(np.arange(len(items)), 2)
    return SupportPoints(score, number, None, np.repeat(items, 2) / 2)


def score_quantiles(fit: Fit, shares: Sequence[float]) -> Floats:
    """Scores below which shares of the items that made a fit lie, without repetition."""
    bins = fit.data["constant_data"]
    order = np.argsort(bins["score"].to_numpy())
    score, n = (bins[name].to_numpy()[order] for name in ("score", "n_items"))
    middle = (np.cumsum(n) - 0.5 * n) / n.sum()
    return np.unique(score[np.searchsorted(middle, shares).clip(max=len(score) - 1)])


def statistics_of(fit: Fit, items: Items, progress: bool | None = False) -> Statistics:
    """Statistics of items as quantities read them, with joint cells for a prior on a grid.

    They have the fit's names of columns.
    """
    posterior_roles(fit, posterior_of(fit), items)  # refuses items of another kind
    mixed = fit.prior.gridded
    bins = _MIXED_BINS if mixed else None
    options: dict[str, Any] = {"bins": bins, "folds": 0, "joint": mixed, "on_leakage": "ignore"}
    with warnings.catch_warnings():
        # the user did not ask for this number of bins
        warnings.filterwarnings("ignore", r"[\d,]+ bins instead of", ItemsWarning)
        stats = totals_of(replace(items, cluster=None), **options, progress=progress)
    roles = roles_of(stats.data.attrs) | outcome_roles(fit.data.attrs)
    return Statistics(stats.data.assign_attrs(roles=json.dumps(roles)))


def statistics_support(fit: Fit, stats: Statistics, coarse: int = 1) -> tuple[SupportPoints, Ints]:
    """Support points of the bins of statistics, of every group where the fit has groups.

    `coarse` bins make one. Also returns the `key_of` the group and bin of every second point. Warns
    where scores of some bins lie far outside those that the fit saw.
    """
    check_roles(fit, stats)
    check_groups(fit, stats)
    warn_of_extrapolated_bins(fit, stats)
    part = stats.table("part")
    key, place = np.unique(key_of(fit, part, part["bin"] // coarse), return_inverse=True)
    scale = fit.axis("mean").local
    n, total, squares = (np.bincount(place, part[c], len(key)) for c in ("n", *scale.sums))
    low, high = (np.full(len(key), end) for end in (np.inf, -np.inf))
    np.minimum.at(low, place, part["score_min"])
    np.maximum.at(high, place, part["score_max"])
    mean, square = total / n, squares / n
    variance = square - mean**2
    # below the rounding of the sums it is that of equal scores, 0
    sd = np.sqrt(np.where(variance > 1e-12 * square, variance, 0.0))
    score = _two(scale.score(mean), sd, scale, low, high)
    label = None
    if fit.groups:
        label = np.repeat(np.array(stats.groups, dtype=object)[key // _WIDE], 2)
    return SupportPoints(score, np.repeat(key % _WIDE, 2), label, np.repeat(n, 2) / 2), key


def key_of(fit: Fit, table: Mapping[str, NDArray[Any]], bins: Ints) -> Ints:
    """Number of the group (where the fit has groups) and bin of rows of a table."""
    return np.asarray((table["group"] * _WIDE if fit.groups else 0) + bins, dtype=np.int64)


def point_pairs(place: Ints) -> Ints:
    """Numbers of the two support points of some bins."""
    return (2 * place[:, None] + np.arange(2)).ravel()


def _two(score: Floats, sd: Floats, scale: Scale, low: Floats, high: Floats) -> Floats:
    """Two scores for each mean, inside the range of the scores."""
    step = np.stack([-sd, sd], axis=1)
    pairs = scale.score(scale.position(score)[:, None] + step)
    return np.clip(pairs, low[:, None], high[:, None]).ravel()


Values = Callable[[slice], list[Floats]]
"""From points to several arrays (draws, points of the slice)."""


def summed(
    fit: Fit, weight: Floats, target: Ints, size: int, values: Values, progress: bool | None = False
) -> list[Floats]:
    """Weighted sums of values over points, (draws, size) each, some points at a time.

    `target` says in which of `size` sums each point is added.
    """
    totals: list[Floats] = []
    for part in parts("posterior variances", len(weight), items_at_once(fit), progress, "cells"):
        sums, row = np.unique(target[part], return_inverse=True)
        share = np.zeros((len(row), len(sums)))
        share[np.arange(len(row)), row] = weight[part]
        arrays = values(part)
        totals = totals or [np.zeros((len(x), size)) for x in arrays]
        for total, x in zip(totals, arrays, strict=True):
            total[:, sums] += x @ share
    return totals


def by_draw(fit: Fit, values: Mapping[str, Floats], **coords: Any) -> xr.Dataset:
    """Arrays (draws,) or (draws, bins) with dims (chain, draw) or (chain, draw, bin)."""
    posterior = fit.data["posterior"]
    sizes = posterior.sizes["chain"], posterior.sizes["draw"]
    coords |= {name: posterior[name].to_numpy() for name in ("chain", "draw")}
    dims = ("chain", "draw", "bin")
    shaped = {name: x.reshape(*sizes, *x.shape[1:]) for name, x in values.items()}
    return xr.Dataset({name: (dims[: x.ndim], x) for name, x in shaped.items()}, coords)
