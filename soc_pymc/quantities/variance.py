"""How much of the variance of theta the score explains, and what the items' own outcomes add."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from .._lib.arguments import PROBABILITY, A, OneOf, OrNone, Rule, Whole, checked
from .._lib.arrays import Floats, Ints
from .._lib.errors import StatisticsError
from ..checks._check import FIT, ITEMS_OR_STATISTICS
from ..checks.results import PROB, Result, intervals, result_table
from ..data.items import Items
from ..data.statistics import Statistics
from ..families.outcomes import Outcome
from ..inference.results import Fit
from ..posterior.interface import Columns, select
from ..posterior.predictive import posterior_of
from .support import (
    SupportPoints,
    Values,
    by_draw,
    centre_of,
    check_weight,
    fit_support,
    key_of,
    statistics_of,
    statistics_support,
    summed,
)

WEIGHT = OneOf("items", "exposure")
_RATIO = "E Var(theta | t, y) / E Var(theta | t)"
_CLASS = 3  # cells of sizes are 16 an octave: 2^3 of them make a class
_MOST = 1 << 31  # bins of the answer: more than any statistics have


# --- what the score explains ---------------------------------------------------------------------


@checked(
    fit=FIT,
    stats=OrNone(A(Statistics, "statistics, from soc.summarize", StatisticsError)),
    weight=WEIGHT,
)
def r_squared(
    fit: Fit, stats: Statistics | None = None, *, weight: Literal["items", "exposure"] = "items"
) -> xr.DataArray:
    """Share of the variance of theta that the score explains, draw by draw.

    R^2 = 1 - E Var(theta | t) / (Var E(theta | t) + E Var(theta | t)), with means and variances
    over items: Section 5.1 of Muralidharan and Najmi. It is 0 for a score that says nothing of
    theta and 1 for one that determines it, whatever the noise of the outcomes; a calibrated score
    and the score itself have the same. Where theta depends on the exposure, what it explains at
    equal scores is not explained.

    Parameters
    ----------
    fit, stats
        The fit, and statistics of other items to take means over. A fit with groups needs some: the
        group then counts as part of the score.
    weight
        Over what means are taken: items, or units of exposure (of counts alone).

    Returns
    -------
    xarray.DataArray
        Dims (chain, draw), no unit.

    Raises
    ------
    FitError
        If the weight is not one of the two, or the fit has groups and no statistics are given.
    StatisticsError
        If the statistics are of other columns, or have no groups and the fit has.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> dict(soc.quantities.r_squared(fit).sizes)
    {'chain': 4, 'draw': 250}
    """
    return variance_parts(fit, stats, weight)["r_squared"]


def variance_parts(fit: Fit, stats: Statistics | None, weight: str) -> xr.Dataset:
    """Draws of Var E(theta | t) ``explained``, E Var(theta | t), their ``total`` and R^2.

    Scores differ within bins too: their spread there counts. Where theta depends on the exposure,
    what it explains at equal scores is part of the unexplained.
    """
    check_weight(fit, weight)
    points = _points_of_fit(fit) if stats is None else _points_of_statistics(fit, stats)
    explained, unexplained = _two_parts(fit, points, weight)
    total = explained + unexplained
    found = {"explained": explained, "unexplained": unexplained, "total": total}
    return by_draw(fit, found | {"r_squared": explained / total})


@dataclass(frozen=True)
class _SizedPoints:
    """Support points, and where theta depends on them, sizes of items there."""

    support: SupportPoints
    at: Ints  # support point of each point
    own: dict[str, Floats]  # "size", where theta depends on it
    share: dict[str, Floats]  # items of each point as a share of its support point's; of exposure


def _without_sizes(support: SupportPoints) -> _SizedPoints:
    n = len(support.score)
    same = dict.fromkeys(("items", "exposure"), np.ones(n))
    return _SizedPoints(support, np.arange(n), {}, same)


def _points_of_fit(fit: Fit) -> _SizedPoints:
    """Of the fit's own bins; sizes are distributed as in its parts of the score."""
    support = fit_support(fit)
    if fit.prior.exposure is None:
        return _without_sizes(support)
    kept = fit.data["constant_data"]
    middle, log_size = (kept[c].to_numpy() for c in ("share_position", "share_log_size"))
    position = fit.axis("mean")(support.score)
    share = np.array([np.interp(position, middle, x) for x in kept["share"].to_numpy().T]).T
    at = np.repeat(np.arange(len(support.score)), len(log_size))
    size = np.tile(np.exp(log_size), len(support.score))
    large = share * np.exp(log_size)
    both = {"items": share, "exposure": large / large.sum(axis=1, keepdims=True)}
    return _SizedPoints(support, at, {"size": size}, {name: x.ravel() for name, x in both.items()})


def _points_of_statistics(fit: Fit, stats: Statistics) -> _SizedPoints:
    """Of the bins of statistics; sizes in classes of half an octave in each."""
    support, key = statistics_support(fit, stats)
    if fit.prior.exposure is None:
        return _without_sizes(support)
    outcome = posterior_of(fit).outcome
    table = stats.table(outcome.margins[0])
    k = np.searchsorted(key, key_of(fit, table, table["bin"]))
    size_class = table["cell"] >> _CLASS
    low = size_class.min()
    wide = int(size_class.max() - low) + 1
    point, row = np.unique(k * wide + size_class - low, return_inverse=True)
    sums = {c: np.bincount(row, table[c]) for c in outcome.sums(outcome.margins[0])}
    of, n, size = point // wide, sums["n"], outcome.forms.mean_size(sums)
    sizes = n * size
    share = {
        "items": n / np.bincount(of, n)[of],
        "exposure": sizes / np.maximum(np.bincount(of, sizes), np.finfo(float).tiny)[of],
    }
    both = (2 * of[:, None] + np.arange(2)).ravel()
    twice = {c: np.repeat(x, 2) for c, x in share.items()}
    return _SizedPoints(support, both, {"size": np.repeat(size, 2)}, twice)


def _two_parts(fit: Fit, points: _SizedPoints, weight: str) -> tuple[Floats, Floats]:
    """Explained and unexplained variance, (draws,) each."""
    posterior, support = posterior_of(fit), points.support
    columns = support.columns(points.at, points.own)
    centre = centre_of(posterior, columns)

    def values(part: slice) -> list[Floats]:
        own = select(columns, part)
        curves = posterior.curves(own["score"], own.get("group"), own.get("size"))
        away = curves["mean"] - centre
        return [away, away**2, curves["variance"]]

    number = len(support.score)
    # first over the sizes at each support point, then over support points
    mean, square, variance = summed(fit, points.share[weight], points.at, number, values)
    share = support.weight(weight) / support.weight(weight).sum()
    unexplained = (variance + np.maximum(square - mean**2, 0.0)) @ share
    middle = mean @ share
    return (mean - middle[:, None]) ** 2 @ share, unexplained


# --- what outcomes add ---------------------------------------------------------------------------

_RULES: dict[str, Rule] = {
    "fit": FIT,
    "items": ITEMS_OR_STATISTICS,
    "weight": WEIGHT,
    "bins": Whole(1),
    "prob": PROBABILITY,
}


@checked(**_RULES)
def variance_reduction(
    fit: Fit,
    items: Items | Statistics,
    *,
    weight: Literal["items", "exposure"] = "exposure",
    bins: int = 20,
    prob: float = PROB,
    progress: bool | None = None,
) -> Result:
    """Mean squared error of E(theta | t, y) as a share of that of E(theta | t), draw by draw.

    The ratio E Var(theta | t, y) / E Var(theta | t) of Section 5.1 of Muralidharan and Najmi
    (Figure "variance gain"). At a ratio of 0.73 the items' own outcomes take away 27% of the mean
    squared error of ordinary calibration.

    Parameters
    ----------
    fit, items
        The fit, and items, read once, or statistics (with joint cells for a mixture), whose cells
        stand for their items.
    weight
        Over what means are taken: units of exposure, as in the paper, or items. Items with values
        have only the latter.
    bins, prob, progress
        Number of bins of about equally many items, probability of the intervals, and whether to
        show progress.

    Returns
    -------
    Result
        Its ``table`` has the ratio of the means over all items, and of those in each bin, between 0
        and 1 for one Gamma or Normal on average. ``data`` has the draws: ``ratio`` (chain, draw)
        and ``ratio_by_bin`` (chain, draw, bin), with coordinates ``score`` (mean t) and ``n_items``
        of the bins. Where theta depends on the exposure the divisor is E Var(theta | t, N): what
        outcomes add to both.

    Raises
    ------
    FitError
        If the weight or `bins` is none, or the weight is exposure for items with values.
    ItemsError, StatisticsError
        If the items or statistics are not valid or not of the fit's kind.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> gain = soc.quantities.variance_reduction(fit, items, bins=5)
    >>> bool((gain.data["ratio"] < 1).all()), len(gain.table)
    (True, 6)
    """
    cells = _cells(fit, items, weight, bins)
    posterior = posterior_of(fit)

    def values(part: slice) -> list[Floats]:
        columns = cells.columns(part)
        some = back = np.arange(len(columns["score"]))
        if fit.prior.exposure is None:  # then cells of a support point have one prior
            _, some, back = np.unique(cells.point[part], return_index=True, return_inverse=True)
        own = select(columns, some)
        size = own[posterior.outcome.size]
        before = posterior.curves(own["score"], own.get("group"), size)["variance"]
        return [posterior.moments(columns)[1], before[:, back]]

    after, before = cells.summed(fit, values, progress)
    ratio = after.sum(axis=1) / before.sum(axis=1)
    return _result(fit, cells, _RATIO, "ratio", ratio, after / before, prob)


@checked(**_RULES)
def shrinkage(
    fit: Fit,
    items: Items | Statistics,
    *,
    weight: Literal["items", "exposure"] = "items",
    bins: int = 20,
    prob: float = PROB,
    progress: bool | None = None,
) -> Result:
    """Share of the prior in the items' posterior means, draw by draw.

    For a Gamma prior E(theta | t, y) = s E(theta | t) + (1 - s) y/N with s = rate / (rate + N); for
    a Normal one s = noise_sd^2 / (noise_sd^2 + Var(theta | t)). In general 1 - s is how much the
    posterior mean moves with the item's own outcome: N [E(theta | t, y+1) - E(theta | t, y)] = N
    Var(theta | t, y) / E(theta | t, y) for counts, d E(theta | t, y)/dy = Var(theta | t, y) /
    noise_sd^2 for values; for a mixture s depends on y, and is negative where the mean moves by
    more than y.

    Parameters
    ----------
    fit, items, weight, bins, prob, progress
        As of `variance_reduction`.

    Returns
    -------
    Result
        Its ``table`` has the mean of s over all items, and over those of each bin; ``data`` has the
        draws ``share`` and ``share_by_bin``, as of `variance_reduction`.

    Raises
    ------
    FitError, ItemsError, StatisticsError
        As of `variance_reduction`.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> share = soc.quantities.shrinkage(fit, items).data["share"]
    >>> bool(((share > 0) & (share < 1)).all())
    True
    """
    cells = _cells(fit, items, weight, bins)
    posterior = posterior_of(fit)
    outcome = posterior.outcome

    def values(part: slice) -> list[Floats]:
        columns = cells.columns(part)
        mean, variance, _ = posterior.moments(columns)
        return [1.0 - outcome.forms.response(columns[outcome.size], mean, variance)]

    (total,) = cells.summed(fit, values, progress)
    weights = np.bincount(cells.bin_of, cells.weight)
    share = total.sum(axis=1) / weights.sum()
    return _result(fit, cells, "share of the prior", "share", share, total / weights, prob)


def _result(
    fit: Fit, cells: "_WeightedCells", what: str, name: str, all_items: Floats, bins: Floats,
    prob: float,
) -> Result:  # fmt: skip
    """Draws (draws,) over all items and (draws, bins), as a result."""
    where = ["all items", *(f"score {score:.4g}" for score in cells.score)]
    n = [int(cells.n_items.sum()), *cells.n_items]
    ends = intervals(np.column_stack([all_items, bins]), prob)
    table = result_table(pd.DataFrame({"what": what, "where": where, "n": n, **ends}))
    data = by_draw(fit, {name: all_items, f"{name}_by_bin": bins}, **cells.coords)
    return Result(table.assign(verdict=None), data, (), what)


@dataclass(frozen=True)
class _WeightedCells:
    """Cells of items at support points, as weighted items."""

    support: SupportPoints
    point: Ints  # support point of each cell
    own: Mapping[str, Floats]  # outcome and size of each cell, by role
    weight: Floats  # items or exposure of each cell
    bin_of: Ints  # bin of the answer of each cell
    score: Floats  # mean score of the answer's bins
    n_items: Ints  # their items

    @property
    def coords(self) -> dict[str, Any]:
        """Coordinates of the answer's bins."""
        return {"score": ("bin", self.score), "n_items": ("bin", self.n_items)}

    def columns(self, part: slice) -> Columns:
        """Some cells as posteriors read them."""
        return self.support.columns(self.point[part], select(self.own, part))

    def summed(self, fit: Fit, values: Values, progress: bool | None) -> list[Floats]:
        """Weighted sums of values in the answer's bins."""
        return summed(fit, self.weight, self.bin_of, len(self.score), values, progress)


def _cells(fit: Fit, items: Items | Statistics, weight: str, bins: int) -> _WeightedCells:
    """Cells of the items, in as many bins of equal items."""
    check_weight(fit, weight)
    outcome, mixed = posterior_of(fit).outcome, fit.prior.gridded
    stats = items if isinstance(items, Statistics) else statistics_of(fit, items)
    coarse = max(stats.coarse, 1) if mixed else 1
    support, key = statistics_support(fit, stats, coarse)
    if mixed:
        stats.cells("joint")  # says what to do where there are none
    table = stats.table("joint" if mixed else outcome.margins[0])
    at = np.searchsorted(key, key_of(fit, table, table["bin"]))
    own, weights = _at_means(outcome, table, weight)
    both = (2 * at[:, None] + np.arange(2)).ravel()
    of = _equal_parts(support, min(bins, _MOST))
    share = np.bincount(of, support.items)
    return _WeightedCells(
        support,
        both,
        {role: np.repeat(x, 2) for role, x in own.items()},
        np.repeat(weights, 2) / 2,
        of[both],
        np.bincount(of, support.items * support.score) / share,
        np.round(share).astype(np.int64),
    )


def _at_means(
    outcome: Outcome, table: Mapping[str, NDArray[Any]], weight: str
) -> tuple[dict[str, Floats], Floats]:
    """Mean outcome and size of cells, weighted alike, and their weights."""
    if weight == "items":
        total = table["n"].astype(float)
        y, size = table["sum_y"] / total, outcome.forms.mean_size(table)
    else:
        y, size, total = outcome.forms.exposure_means(table)
    return {outcome.observed: y, outcome.size: size}, total


def _equal_parts(support: SupportPoints, bins: int) -> Ints:
    """Bins of about equal items for the answer, made of whole bins; none is empty."""
    at = np.unique(support.bin, return_inverse=True)[1]
    n = np.bincount(at, support.items)
    middle = (np.cumsum(n) - 0.5 * n) / n.sum()
    part = np.minimum((middle * bins).astype(np.int64), bins - 1)
    return np.asarray(np.unique(part, return_inverse=True)[1][at], dtype=np.int64)
