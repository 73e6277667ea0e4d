"""Points that stand for the items in sums over them: two scores for every bin.

The two lie one standard deviation of the bin's scores below and above their mean, on the axis of
the mean curve, so that sums over items are right to second order in the bin's width.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from .._lib.arrays import Floats, Ints
from .._lib.errors import FitError
from ..checks.observations import check_roles, totals_without_folds
from ..data.groups import roles_of
from ..data.items import Items
from ..data.statistics import Statistics
from ..inference.results import Fit, outcome_roles
from ..posterior.extrapolation import warn_of_extrapolated_bins
from ..posterior.interface import Columns
from ..posterior.item_columns import check_groups, posterior_roles
from ..posterior.predictive import posterior_of

_WIDE = 1 << 32  # more than there are bins
SHARES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Shares of the items, at whose scores curves are shown."""

_MIXED_BINS = 200  # bins to evaluate a mixture, which costs more per cell


@dataclass(frozen=True)
class SupportPoints:
    """Scores that stand for items: two of every bin (of every group), one after the other."""

    key: Ints  # of the group and bin of every second point
    score: Floats  # (points,)
    label: NDArray[np.object_] | None  # groups; None where they are pooled
    items: Floats

    @property
    def bin(self) -> Ints:
        """Number of each point's bin."""
        return np.repeat(self.key % _WIDE, 2)

    def of(self, fit: Fit, table: Mapping[str, NDArray[Any]]) -> Ints:
        """Numbers of the two points of each row of a table, one after the other."""
        place = np.searchsorted(self.key, _key(fit, table, table["bin"]))
        return (2 * place[:, None] + np.arange(2)).ravel()

    def columns(self, points: Ints, columns: Columns) -> Columns:
        """Items at some of the points as posteriors read them, with further columns of theirs."""
        group = {} if self.label is None else {"group": self.label[points]}
        return {**columns, "score": self.score[points], **group}


def _points(
    fit: Fit, key: Ints, score: Floats, sd: Floats, ends: Sequence[Floats], items: Floats,
    groups: Sequence[str] = (),
) -> SupportPoints:  # fmt: skip
    """Two scores for each mean score, inside the range of the scores."""
    scale = fit.axis("mean").local
    pairs = scale.score(scale.position(score)[:, None] + np.stack([-sd, sd], axis=1))
    low, high = (end[:, None] for end in ends)
    label = np.repeat(np.array(groups, dtype=object)[key // _WIDE], 2) if len(groups) else None
    return SupportPoints(key, np.clip(pairs, low, high).ravel(), label, np.repeat(items, 2) / 2)


def _key(fit: Fit, table: Mapping[str, NDArray[Any]], bins: Ints) -> Ints:
    """Number of the group (where the fit has groups) and bin of rows of a table."""
    return np.asarray((table["group"] * _WIDE if fit.groups else 0) + bins, dtype=np.int64)


def fit_support(fit: Fit) -> SupportPoints:
    """Support points of the bins that a fit was made from, of all groups together."""
    bins = {str(name): x.to_numpy() for name, x in fit.data["constant_data"].data_vars.items()}
    width = fit.axis("mean").local.width
    if fit.groups or width not in bins:
        lack = "what scores each group has" if fit.groups else "how wide its bins of scores are"
        raise FitError(f"the fit does not say {lack}: give the statistics too, or the items")
    ends, items = (bins["score_min"], bins["score_max"]), bins["n_items"].astype(float)
    return _points(fit, np.arange(len(items)), bins["score"], bins[width], ends, items)


def statistics_support(fit: Fit, stats: Statistics, coarse: int = 1) -> SupportPoints:
    """Support points of the bins of statistics, of every group where the fit has groups.

    `coarse` bins make one. Warns where scores of bins lie far outside those that the fit saw.
    """
    check_roles(fit, stats)
    check_groups(fit, stats)
    warn_of_extrapolated_bins(fit, stats)
    part, scale = stats.table("part"), fit.axis("mean").local
    key, place = np.unique(_key(fit, part, part["bin"] // coarse), return_inverse=True)
    n, total, squares = (np.bincount(place, part[c], len(key)) for c in ("n", *scale.sums))
    low, high = (np.full(len(key), end) for end in (np.inf, -np.inf))
    np.minimum.at(low, place, part["score_min"])
    np.maximum.at(high, place, part["score_max"])
    mean, square = total / n, squares / n
    variance = square - mean**2
    # below the rounding of the sums it is that of equal scores, 0
    sd = np.sqrt(np.where(variance > 1e-12 * square, variance, 0.0))
    groups = stats.groups if fit.groups else ()
    return _points(fit, key, scale.score(mean), sd, (low, high), n, groups)


def statistics_of(fit: Fit, items: Items, progress: bool | None = False) -> Statistics:
    """Statistics of items as quantities read them, with joint cells for a prior on a grid.

    They have the fit's names of columns.
    """
    posterior_roles(fit, posterior_of(fit), items)  # refuses items of another kind
    mixed = fit.prior.gridded
    bins, items = _MIXED_BINS if mixed else None, replace(items, cluster=None)
    stats = totals_without_folds(items, bins=bins, joint=mixed, progress=progress)
    roles = roles_of(stats.data.attrs) | outcome_roles(fit.data.attrs)
    return Statistics(stats.data.assign_attrs(roles=json.dumps(roles)))


def score_quantiles(fit: Fit, shares: Sequence[float]) -> Floats:
    """Scores below which shares of the items that made a fit lie, without repetition."""
    bins = fit.data["constant_data"]
    order = np.argsort(bins["score"].to_numpy())
    score, n = (bins[name].to_numpy()[order] for name in ("score", "n_items"))
    middle = (np.cumsum(n) - 0.5 * n) / n.sum()
    return np.unique(score[np.searchsorted(middle, shares).clip(max=len(score) - 1)])


def check_draws(fit: Fit, name: str) -> None:
    """Refuse fits with a single draw where a result has intervals alone."""
    if fit.one_draw:
        raise FitError(
            f"{name} has a single draw, which carries no uncertainty: fit with soc.VI() or "
            "soc.NUTS()"
        )


def by_draw(fit: Fit, values: Mapping[str, Floats], **coords: Any) -> xr.Dataset:
    """Arrays (draws,) or (draws, bins) with dims (chain, draw) or (chain, draw, bin)."""
    posterior = fit.data["posterior"]
    sizes = posterior.sizes["chain"], posterior.sizes["draw"]
    coords |= {name: posterior[name].to_numpy() for name in ("chain", "draw")}
    dims = ("chain", "draw", "bin")
    shaped = {name: x.reshape(*sizes, *x.shape[1:]) for name, x in values.items()}
    return xr.Dataset({name: (dims[: x.ndim], x) for name, x in shaped.items()}, coords)
