"""Variance of theta that the score explains, and what the items' outcomes add."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
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

_RATIO = "E Var(theta | t, y) / E Var(theta | t)"
_MOST = 1 << 31  # bins of the answer: more than any statistics have


# --- what the score explains ---------------------------------------------------------------------


@checked(
    fit=FIT,
    stats=OrNone(A(Statistics, "statistics, from soc.summarize", StatisticsError)),
)
def r_squared(fit: Fit, stats: Statistics | None = None) -> xr.DataArray:
    """Share of the variance of theta that the score explains, draw by draw.

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
    """Draws of Var E(theta | t) ``explained``, E Var(theta | t), their ``total`` and R^2.

    Scores differ within bins too: their variance there counts.
    """
    support = fit_support(fit) if stats is None else statistics_support(fit, stats)
    share, number = support.items / support.items.sum(), len(support.score)

    def curves(part: slice) -> list[Floats]:
        labels = None if support.label is None else support.label[part]
        drawn = curves_of(fit, support.score[part], labels)
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
    parts = {"explained": explained, "unexplained": within, "total": total}
    return by_draw(fit, parts | {"r_squared": explained / total})


# --- what outcomes add ---------------------------------------------------------------------------

_RULES: dict[str, Rule] = {
    "fit": FIT,
    "items": ITEMS_OR_STATISTICS,
    "weight": OneOf("items", "exposure"),
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

    The ratio E Var(theta | t, y) / E Var(theta | t) of Section 5.1 of Muralidharan and Najmi: at
    0.73 outcomes remove 27% of the mean squared error of ordinary calibration.

    Parameters
    ----------
    fit, items
        The fit, and items, read once, or statistics (with joint cells for a mixture).
    weight
        Means are over units of exposure, as in the paper, or over items (of values the only
        choice).
    bins, prob, progress
        Number of bins of about equally many items, probability of the intervals, and whether to
        show progress.

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

    return _ratio_by_bin(fit, items, weight, bins, prob, progress, _RATIO, "ratio", terms)


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

    what = "share of the prior"
    return _ratio_by_bin(fit, items, weight, bins, prob, progress, what, "share", terms)


def _ratio_by_bin(
    fit: Fit, items: Items | Statistics, weight: str, bins: int, prob: float, progress: bool | None,
    what: str, name: str, terms: Callable[[Columns, Ints], list[Floats]],
) -> Result:  # fmt: skip
    """Ratio of weighted sums over items of two terms: of all, and in bins of about equal items.

    The terms are functions of the columns of items, which cells stand for, and of their points.
    """
    outcome, mixed = posterior_of(fit).outcome, fit.prior.gridded
    if weight != "items" and not outcome.sizes_add:
        raise FitError(f"items with {outcome.words.outcomes} have no exposure: give weight='items'")
    stats = items if isinstance(items, Statistics) else statistics_of(fit, items)
    support = statistics_support(fit, stats, max(stats.coarse, 1) if mixed else 1)
    if mixed:
        stats.cells("joint")  # says what to do where there are none
    table = stats.table("joint" if mixed else outcome.margins[0])
    point = support.of(fit, table)
    if weight == "items":
        weights = table["n"].astype(float)
        y, size = table["sum_y"] / weights, outcome.forms.mean_size(table)
    else:
        y, size, weights = outcome.forms.exposure_means(table)
    y, size, weights = np.repeat([y, size, weights / 2], 2, axis=1)
    outcomes = {outcome.observed: y, outcome.size: size}
    bin_of = equal_parts(support.bin.astype(float), min(bins, _MOST), support.items)
    n = np.bincount(bin_of, support.items)
    score = np.bincount(bin_of, support.items * support.score) / n

    def values(part: slice) -> list[Floats]:
        return terms(support.columns(point[part], select(outcomes, part)), point[part])

    above, below = summed(fit, weights, bin_of[point], len(score), values, progress)
    overall, by_bin = above.sum(axis=1) / below.sum(axis=1), above / below
    where, number = [ALL, *(f"score {t:.4g}" for t in score)], np.round(n).astype(np.int64)
    draws = np.column_stack([overall, by_bin])
    rows = estimates(what, where, draws, prob, n=[number.sum(), *number])
    coords = {"score": ("bin", score), "n_items": ("bin", number)}
    data = by_draw(fit, {name: overall, f"{name}_by_bin": by_bin}, **coords)
    return Result(result_table(rows), data, (), what)


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
    posterior_roles(fit, items)  # refuses items of another kind
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
