"""Variance of theta that the score explains, and what the items' outcomes add."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from .._lib.arguments import PROBABILITY, A, OneOf, OrNone, Rule, Whole, checked
from .._lib.arrays import Floats, Ints
from .._lib.errors import FitError, StatisticsError
from ..checks.observations import ITEMS_OR_STATISTICS, check_roles, summed, totals_without_folds
from ..checks.pit import ALL, equal_parts
from ..checks.results import PROB, Result, estimates, result_table
from ..data.groups import roles_of
from ..data.items import Items
from ..data.statistics import Statistics
from ..inference.results import FIT, Fit, outcome_roles
from ..posterior.calibration import curves_of
from ..posterior.curves import warn_of_extrapolated_bins
from ..posterior.item_columns import Columns, check_groups, posterior_roles, select
from ..posterior.predictive import posterior_of

SHARES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Shares of the items, at whose scores curves are shown."""

_WIDE = 1 << 32  # more than there are bins
_MIXED_BINS = 200  # bins to evaluate a mixture, which costs more per cell
_ROUNDING = 1e-12  # a variance below this share of the square is that of equal scores, 0


# --- what the score explains ---------------------------------------------------------------------


@checked(
    fit=FIT,
    stats=OrNone(A(Statistics, "statistics, from soc.summarize", StatisticsError)),
)
def r_squared(fit: Fit, stats: Statistics | None = None) -> xr.DataArray:
    """Return the share of the variance of theta that the score explains, draw by draw.

    R^2 = 1 - E Var(theta | t) / (Var E(theta | t) + E Var(theta | t)), with means and variances
    over items: Section 5.1 of Muralidharan and Najmi. What the exposure explains at equal scores
    counts as unexplained.

    Parameters
    ----------
    fit, stats
        The fit, and statistics of other items to take means over. A fit with groups needs some: the
        group then counts as part of the score.

    Returns
    -------
    xarray.DataArray
        Dims (chain, draw), no unit.

    Raises
    ------
    FitError, StatisticsError
        If statistics have other columns or lack groups that the fit has.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> dict(soc.quantities.r_squared(fit).sizes)
    {'chain': 4, 'draw': 250}
    """
    return variance_parts(fit, stats)["r_squared"]


def variance_parts(fit: Fit, stats: Statistics | None) -> xr.Dataset:
    """Return draws of Var E(theta | t) ``explained``, their ``total`` with E Var(theta | t), R^2.

    Scores differ within bins too: their variance there counts.
    """
    support = support_of(fit, stats)
    share, number = support.items / support.items.sum(), len(support.items)

    def curves(part: slice) -> list[Floats]:
        points = select(support.columns, part)
        drawn = curves_of(fit, points["score"], points.get("group"))
        draws = (drawn[name].to_numpy() for name in ("mean", "variance"))
        return [x.reshape(-1, x.shape[-1]) for x in draws]

    # squares are about some mean, which loses no digits
    centre = float(curves(slice(None, None, max(1, number // 20)))[0].mean())

    def values(part: slice) -> list[Floats]:
        mean, variance = curves(part)
        return [mean - centre, (mean - centre) ** 2, variance]

    target = np.zeros(number, dtype=np.int64)
    mean, square, within = (x[:, 0] for x in summed(fit, share, target, 1, values))
    explained = np.maximum(square - mean**2, 0.0)
    total = explained + within
    parts = {"explained": explained, "total": total, "r_squared": explained / total}
    return by_draw(fit, parts)


# --- what outcomes add ---------------------------------------------------------------------------

_RULES: dict[str, Rule] = {
    "fit": FIT,
    "items": ITEMS_OR_STATISTICS,
    "weight": OneOf("items", "exposure"),
    "bins": Whole(1, 1 << 31),
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
    """Return the mean squared error of E(theta | t, y) as a share of that of E(theta | t).

    The ratio E Var(theta | t, y) / E Var(theta | t) of Section 5.1 of Muralidharan and Najmi: at
    0.73 outcomes remove 27% of the mean squared error of ordinary calibration.

    Parameters
    ----------
    fit, items
        The fit, and items, or statistics (with joint cells for a mixture).
    weight, bins, prob, progress
        Means are over units of ``"exposure"``, as in the paper, or over ``"items"`` (of values the
        only choice). Number of bins of about equally many items, probability of the intervals, and
        whether to show progress.

    Returns
    -------
    Result
        Its ``table`` has the ratio of the means over all items, and of those in each bin. ``data``
        has the draws ``ratio`` (chain, draw) and ``ratio_by_bin`` (chain, draw, bin), with
        coordinates ``score`` (mean t) and ``n_items``. Where theta depends on the exposure the
        divisor is E Var(theta | t, N).

    Raises
    ------
    FitError, ItemsError, StatisticsError
        If an argument is not valid, or items or statistics are not of the fit's kind.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> gain = soc.quantities.variance_reduction(fit, items, bins=5)
    >>> bool((gain.data["ratio"] < 1).all()), len(gain.table)
    (True, 6)
    """
    posterior = posterior_of(fit)

    def terms(columns: Columns, point: Ints) -> list[Floats]:
        chosen = inverse = np.arange(len(point))
        if fit.prior.exposure is None:  # then cells of a support point have one prior
            _, chosen, inverse = np.unique(point, return_index=True, return_inverse=True)
        rows = select(columns, chosen)
        size = rows[posterior.outcome.size]
        before = posterior.curves(rows["score"], rows.get("group"), size)["variance"]
        return [posterior.moments(columns)[1], before[:, inverse]]

    options = {"weight": weight, "bins": bins, "prob": prob, "progress": progress}
    what = "E Var(theta | t, y) / E Var(theta | t)"
    return _ratio_by_bin(fit, items, options, what, "ratio", terms)


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
    """Return the share of the prior in the items' posterior means, draw by draw.

    For a Gamma prior E(theta | t, y) = s E(theta | t) + (1 - s) y/N with s = rate / (rate + N). In
    general 1 - s is how much the posterior mean moves with the item's outcome: N Var(theta | t, y)
    / E(theta | t, y) for counts, Var(theta | t, y) / noise_sd^2 for values.

    Parameters
    ----------
    fit, items, weight, bins, prob, progress
        As in `variance_reduction`, with the same errors.

    Returns
    -------
    Result
        Its ``table`` has the mean of s over all items, and over those of each bin; ``data`` has the
        draws ``share`` and ``share_by_bin``, as in `variance_reduction`.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> share = soc.quantities.shrinkage(fit, items).data["share"]
    >>> bool(((share > 0) & (share < 1)).all())
    True
    """
    posterior = posterior_of(fit)

    def terms(columns: Columns, point: Ints) -> list[Floats]:
        mean, variance, _ = posterior.moments(columns)
        size = columns[posterior.outcome.size]
        response = posterior.outcome.forms.response(size, mean, variance)
        return [1.0 - response, np.ones((1, len(point)))]

    options = {"weight": weight, "bins": bins, "prob": prob, "progress": progress}
    return _ratio_by_bin(fit, items, options, "share of the prior", "share", terms)


def _ratio_by_bin(
    fit: Fit,
    data: Items | Statistics,
    options: Mapping[str, Any],
    what: str,
    name: str,
    terms: Callable[[Columns, Ints], list[Floats]],
) -> Result:
    """Ratio of weighted sums over items of two terms: of all, and in bins of about equal items.

    The terms are functions of the columns of items, which cells stand for, and of their points.
    """
    outcome, mixed = posterior_of(fit).outcome, fit.prior.gridded
    by_size = options["weight"] == "exposure"
    if by_size and not outcome.sizes_add:
        raise FitError(f"items with {outcome.words.outcomes} have no exposure: give weight='items'")
    stats = data if isinstance(data, Statistics) else statistics_of(fit, data)
    support = support_of(fit, stats, max(stats.coarse, 1) if mixed else 1)
    if mixed:
        stats.cells("joint")  # says what to do where there are none
    table = stats.table("joint" if mixed else outcome.margins[0])
    point = support.of(fit, table)
    if by_size:
        y, size, weights = outcome.forms.exposure_means(table)
    else:
        y, size, weights = table["sum_y"] / table["n"], outcome.forms.mean_size(table), table["n"]
    y, size, weights = np.repeat([y, size, weights / 2], 2, axis=1)
    columns = {outcome.observed: y, outcome.size: size, **select(support.columns, point)}
    number_of_bin = np.repeat(support.key % _WIDE, 2).astype(float)
    bin_of = equal_parts(number_of_bin, options["bins"], support.items)
    n = np.bincount(bin_of, support.items)
    score = np.bincount(bin_of, support.items * support.columns["score"]) / n

    def values(part: slice) -> list[Floats]:
        return terms(select(columns, part), point[part])

    target = bin_of[point]
    above, below = summed(fit, weights, target, len(score), values, options["progress"])
    overall, by_bin = above.sum(axis=1) / below.sum(axis=1), above / below
    where, number = [ALL, *(f"score {t:.4g}" for t in score)], np.round(n).astype(np.int64)
    draws, items = np.column_stack([overall, by_bin]), [number.sum(), *number]
    rows = estimates(what, where, draws, options["prob"], n=items)
    coords = {"score": ("bin", score), "n_items": ("bin", number)}
    ratios = by_draw(fit, {name: overall, f"{name}_by_bin": by_bin}, **coords)
    return Result(result_table(rows), ratios, (), what)


# --- scores that stand for items -----------------------------------------------------------------


@dataclass(frozen=True)
class SupportPoints:
    """Scores that stand for items: two of every bin (of every group), one after the other."""

    key: Ints  # of the group and bin of every second point
    columns: Columns  # of the points: their score, and their group where groups are not pooled
    items: Floats

    def of(self, fit: Fit, table: Mapping[str, NDArray[Any]]) -> Ints:
        """Return numbers of the two points of each row of a table, one after the other."""
        place = np.searchsorted(self.key, _key(fit, table))
        return (2 * place[:, None] + np.arange(2)).ravel()


def _key(fit: Fit, table: Mapping[str, NDArray[Any]], coarse: int = 1) -> Ints:
    """Return the number of the group (where the fit has groups) and bin of rows of a table."""
    group = table["group"] * _WIDE if fit.groups else 0
    return np.asarray(group + table["bin"] // coarse, dtype=np.int64)


def support_of(fit: Fit, stats: Statistics | None = None, coarse: int = 1) -> SupportPoints:
    """Return scores an sd below and above the mean of bins: of statistics, or else of the fit.

    `coarse` bins make one. Warns where scores of bins lie far outside those that the fit saw.
    """
    scale, columns = fit.axis("mean").local, ("score_min", "score_max")
    if stats is None:
        bins = fit.data["constant_data"].to_dataset()
        if fit.groups or scale.width not in bins:
            lack = "what scores each group has" if fit.groups else "how wide its bins of scores are"
            raise FitError(f"the fit does not say {lack}: give the statistics too, or the items")
        names = ("score", scale.width, *columns, "n_items")
        score, sd, low, high, items = (bins[name].to_numpy() for name in names)
        key, position = np.arange(len(items)), scale.position(score)
    else:
        check_roles(fit, stats)
        check_groups(fit, stats)
        warn_of_extrapolated_bins(fit, stats)
        part = stats.table("part")
        frame = pd.DataFrame({name: part[name] for name in ("n", *scale.sums, *columns)})
        bin_rows = frame.groupby(_key(fit, part, coarse))
        sums = bin_rows[["n", *scale.sums]].sum()
        low, high = bin_rows["score_min"].min().to_numpy(), bin_rows["score_max"].max().to_numpy()
        key, (items, *totals) = sums.index.to_numpy(), sums.to_numpy(dtype=float).T
        position, square = (total / items for total in totals)
        variance = square - position**2
        sd = np.sqrt(np.where(variance > _ROUNDING * square, variance, 0.0))
    pairs = scale.score(position[:, None] + np.stack([-sd, sd], axis=1))
    points = {"score": np.clip(pairs, low[:, None], high[:, None]).ravel()}
    if stats is not None and fit.groups:
        points["group"] = np.repeat(np.array(stats.groups, dtype=object)[key // _WIDE], 2)
    return SupportPoints(key, points, np.repeat(items, 2) / 2)


def statistics_of(fit: Fit, items: Items, progress: bool | None = False) -> Statistics:
    """Return statistics of items, with the fit's names of columns, as quantities read them.

    They have joint cells for a prior on a grid.
    """
    posterior_roles(fit, items)  # refuses items of another kind
    mixed = fit.prior.gridded
    bins, items = _MIXED_BINS if mixed else None, replace(items, cluster=None)
    stats = totals_without_folds(items, bins=bins, joint=mixed, progress=progress)
    roles = roles_of(stats.data.attrs) | outcome_roles(fit.data.attrs)
    return Statistics(stats.data.assign_attrs(roles=json.dumps(roles)))


def score_quantiles(fit: Fit, shares: Sequence[float]) -> Floats:
    """Return scores below which shares of the items that made a fit lie, without repetition."""
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
    """Return arrays (draws,) or (draws, bins) with dims (chain, draw) or (chain, draw, bin)."""
    posterior, dims = fit.data["posterior"], ("chain", "draw", "bin")
    coords |= {name: posterior[name].to_numpy() for name in dims[:2]}
    sizes = [posterior.sizes[name] for name in dims[:2]]
    shaped = {name: x.reshape(*sizes, *x.shape[1:]) for name, x in values.items()}
    return xr.Dataset({name: (dims[: x.ndim], x) for name, x in shaped.items()}, coords)
