"""Variance of theta that the score explains, and what the items' own outcomes add."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import xarray as xr

from .._lib.arguments import PROBABILITY, A, OneOf, OrNone, Rule, Whole, checked
from .._lib.arrays import Floats, Ints
from .._lib.errors import StatisticsError
from ..checks._check import FIT, ITEMS_OR_STATISTICS
from ..checks.results import PROB, Result
from ..data.items import Items
from ..data.statistics import Statistics
from ..inference.results import Fit
from ..posterior.interface import select
from ..posterior.predictive import posterior_of
from .support import (
    SupportPoints,
    by_draw,
    check_weight,
    fit_support,
    key_of,
    point_pairs,
    statistics_support,
    summed,
    weighted_cells,
)

WEIGHT = OneOf("items", "exposure")
_RATIO = "E Var(theta | t, y) / E Var(theta | t)"
_CLASS = 3  # cells of sizes are 16 an octave: 2^3 of them make a class


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
    theta and 1 for one that determines it, whatever the noise of the outcomes. Where theta depends
    on the exposure, what that explains at equal scores is not explained.

    Parameters
    ----------
    fit, stats
        The fit, and statistics of other items to take means over. A fit with groups needs some: the
        group then counts as part of the score.
    weight
        Means are over items, or over units of exposure (of counts alone).

    Returns
    -------
    xarray.DataArray
        Dims (chain, draw), no unit.

    Raises
    ------
    FitError, StatisticsError
        If the weight is not one of the two, or statistics are of other columns or lack groups that
        the fit has.

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
    parts = {"explained": explained, "unexplained": unexplained, "total": total}
    return by_draw(fit, parts | {"r_squared": explained / total})


@dataclass(frozen=True)
class _SizedPoints:
    """Support points, and where theta depends on them, sizes of items there."""

    support: SupportPoints
    point: Ints  # support point of each row
    size: dict[str, Floats]  # of each row, where theta depends on it
    share: dict[str, Floats]  # items of each row as a share of its support point's; of exposure


def _sized(support: SupportPoints, point: Ints, items: Floats, size: Floats | None) -> _SizedPoints:
    """Rows at support points, of some `items` and, where theta depends on it, of a size."""
    weight = {"items": items, "exposure": items if size is None else items * size}
    tiny = np.finfo(float).tiny
    share = {name: w / np.maximum(np.bincount(point, w), tiny)[point] for name, w in weight.items()}
    return _SizedPoints(support, point, {} if size is None else {"size": size}, share)


def _points_of_fit(fit: Fit) -> _SizedPoints:
    """Support points of a fit's bins; sizes are distributed as in its parts of the score."""
    support = fit_support(fit)
    number = len(support.score)
    if fit.prior.exposure is None:
        return _sized(support, np.arange(number), np.ones(number), None)
    bins = fit.data["constant_data"]
    middle, log_size = (bins[c].to_numpy() for c in ("share_position", "share_log_size"))
    position = fit.axis("mean")(support.score)
    share = np.array([np.interp(position, middle, x) for x in bins["share"].to_numpy().T]).T
    point = np.repeat(np.arange(number), len(log_size))
    return _sized(support, point, share.ravel(), np.tile(np.exp(log_size), number))


def _points_of_statistics(fit: Fit, stats: Statistics) -> _SizedPoints:
    """Support points of the bins of statistics; sizes in classes of half an octave in each."""
    support, key = statistics_support(fit, stats)
    number = len(support.score)
    if fit.prior.exposure is None:
        return _sized(support, np.arange(number), np.ones(number), None)
    outcome = posterior_of(fit).outcome
    table = stats.table(outcome.margins[0])
    place = np.searchsorted(key, key_of(fit, table, table["bin"]))
    size_class = table["cell"] >> _CLASS
    low = size_class.min()
    classes = int(size_class.max() - low) + 1
    row_key, row = np.unique(place * classes + size_class - low, return_inverse=True)
    sums = {c: np.bincount(row, table[c]) for c in outcome.sums(outcome.margins[0])}
    rows = np.repeat([sums["n"], outcome.forms.mean_size(sums)], 2, axis=1)
    return _sized(support, point_pairs(row_key // classes), *rows)


def _two_parts(fit: Fit, points: _SizedPoints, weight: str) -> tuple[Floats, Floats]:
    """Explained and unexplained variance, (draws,) each."""
    posterior, support = posterior_of(fit), points.support
    columns = support.columns(points.point, points.size)

    def curves(part: slice) -> dict[str, Floats]:
        rows = select(columns, part)
        return posterior.curves(rows["score"], rows.get("group"), rows.get("size"))

    # squares are about some mean, which loses no digits
    step = max(1, len(points.point) // 20)
    centre = float(curves(slice(None, None, step))["mean"].mean())

    def values(part: slice) -> list[Floats]:
        at_rows = curves(part)
        departure = at_rows["mean"] - centre
        return [departure, departure**2, at_rows["variance"]]

    # over the sizes at each support point, then over support points
    number, share = len(support.score), points.share[weight]
    mean, square, variance = summed(fit, share, points.point, number, values)
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

    The ratio E Var(theta | t, y) / E Var(theta | t) of Section 5.1 of Muralidharan and Najmi. At a
    ratio of 0.73 the items' own outcomes take away 27% of the mean squared error of ordinary
    calibration.

    Parameters
    ----------
    fit, items
        The fit, and items, read once, or statistics (with joint cells for a mixture), whose cells
        stand for their items.
    weight
        Means are over units of exposure, as in the paper, or over items. Items with values have
        only the latter.
    bins, prob, progress
        Number of bins of about equally many items, probability of the intervals, and whether to
        show progress.

    Returns
    -------
    Result
        Its ``table`` has the ratio of the means over all items, and of those in each bin. ``data``
        has the draws: ``ratio`` (chain, draw) and ``ratio_by_bin`` (chain, draw, bin), with
        coordinates ``score`` (mean t) and ``n_items`` of the bins. Where theta depends on the
        exposure the divisor is E Var(theta | t, N).

    Raises
    ------
    FitError, ItemsError, StatisticsError
        If an argument is out of its range, the weight is exposure for items with values, or the
        items or statistics are not valid or not of the fit's kind.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> gain = soc.quantities.variance_reduction(fit, items, bins=5)
    >>> bool((gain.data["ratio"] < 1).all()), len(gain.table)
    (True, 6)
    """
    cells = weighted_cells(fit, items, weight, bins)
    posterior = posterior_of(fit)

    def values(part: slice) -> list[Floats]:
        columns = cells.columns(part)
        chosen = inverse = np.arange(len(columns["score"]))
        if fit.prior.exposure is None:  # then cells of a support point have one prior
            _, chosen, inverse = np.unique(
                cells.point[part], return_index=True, return_inverse=True
            )
        rows = select(columns, chosen)
        size = rows[posterior.outcome.size]
        before = posterior.curves(rows["score"], rows.get("group"), size)["variance"]
        return [posterior.moments(columns)[1], before[:, inverse]]

    after, before = cells.summed(fit, values, progress)
    ratio = after.sum(axis=1) / before.sum(axis=1)
    return cells.result(fit, _RATIO, "ratio", ratio, after / before, prob)


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
    posterior mean moves with the item's own outcome: N Var(theta | t, y) / E(theta | t, y) for
    counts, Var(theta | t, y) / noise_sd^2 for values; for a mixture s depends on y, and is negative
    where the mean moves by more than y.

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
    cells = weighted_cells(fit, items, weight, bins)
    posterior = posterior_of(fit)
    outcome = posterior.outcome

    def values(part: slice) -> list[Floats]:
        columns = cells.columns(part)
        mean, variance, _ = posterior.moments(columns)
        return [1.0 - outcome.forms.response(columns[outcome.size], mean, variance)]

    (total,) = cells.summed(fit, values, progress)
    weights = np.bincount(cells.bin_of, cells.weight)
    share = total.sum(axis=1) / weights.sum()
    return cells.result(fit, "share of the prior", "share", share, total / weights, prob)
