"""Values of a fit's curves, the variance of theta they explain, and what outcomes add."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike

from .._lib.arguments import PROBABILITY, OneOf, OrNone, Whole, numbers_of, shown
from .._lib.arrays import Bools, Columns, Floats, Ints, Pair, equal_parts, middle_shares
from .._lib.errors import FitError
from .._lib.work import with_progress
from ..checks.findings import ALL, PROB, Result, estimates, result_table
from ..checks.observations import (
    ITEMS_OR_STATISTICS,
    totals_without_folds,
)
from ..data.items import Items, Roles
from ..data.statistics import STATISTICS, Statistics
from ..fits.curves import Curves
from ..fits.fit import FIT, Fit
from ..posterior.calibration import calibration_curves, curve_variables
from ..posterior.item_columns import (
    BinPositions,
    check_statistics,
    posterior_roles,
    select,
    summed,
    warn_of_extrapolated_bins,
)
from ..posterior.predictive import Posterior, posterior_of

# shares of the items, at whose scores curves are shown
SHARES = (0.05, 0.25, 0.5, 0.75, 0.95)

# bins to evaluate a mixture, which costs more per cell
_MIXED_BINS = 200


def r_squared(fit: Fit, stats: Statistics | None = None) -> xr.DataArray:
    """Return the share of the variance of theta that the score explains, draw by draw.

    R^2 = 1 - E Var(theta | t) / (Var E(theta | t) + E Var(theta | t)) over items: Section 5.1 of
    Muralidharan and Najmi. What the exposure explains at equal scores counts as unexplained.

    Parameters
    ----------
    fit : Fit
        The fit.
    stats : Statistics or None
        Statistics of other items to take means over. A fit with groups needs some: the group then
        counts as part of the score.

    Returns
    -------
    xarray.DataArray
        Dims (chain, draw), no unit.

    Raises
    ------
    FitError, StatisticsError
        If statistics have other columns or lack groups that the fit has.

    References
    ----------
    .. [1] Muralidharan and Najmi (2015), Second order calibration: a simple way to get
       approximate posteriors.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> dict(soc.quantities.r_squared(fit).sizes)
    {'chain': 4, 'draw': 250}
    """
    fit = FIT(fit, "fit")
    stats = OrNone(STATISTICS)(stats, "stats")
    posterior = posterior_of(fit)
    explained, total = variance_parts(posterior, stats)
    return by_draw(posterior.curves, {"r_squared": explained / total})["r_squared"]


def variance_parts(posterior: Posterior, stats: Statistics | None) -> Pair:
    """Return draws of the explained and the total variance of theta, each (draws,)."""
    curves = posterior.curves
    support = support_of(curves, stats)
    share = support.items / support.items.sum()
    number = len(support.items)

    def values(part: slice, centre: float = 0.0) -> list[Floats]:
        variables = curve_variables(posterior, select(support.columns, part))
        centred = variables["mean"] - centre
        return [centred, centred**2, variables["variance"]]

    # squares about some mean lose no digits
    centre = float(values(slice(None, None, max(1, number // 20)))[0].mean())
    target = np.zeros(number, dtype=np.int64)
    centred = partial(values, centre=centre)
    mean, square, within = (x[:, 0] for x in summed(curves, share, target, 1, centred))
    explained = np.maximum(square - mean**2, 0.0)
    return explained, explained + within


@with_progress
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

    This is Section 5.1 of Muralidharan and Najmi: at 0.73 outcomes remove 27% of the mean squared
    error of ordinary calibration.

    Parameters
    ----------
    fit : Fit
        The fit.
    items : PoissonItems, NormalItems, BinomialItems, AmountItems or Statistics
        Items, or statistics (with joint cells for a mixture).
    weight : {"items", "exposure"}
        What means are over: units of ``"exposure"``, as in the paper, or ``"items"`` (of values the
        only choice).
    bins : int
        Number of bins of about equally many items.
    prob : float
        Probability of the intervals, between 0 and 1.
    progress : bool or None
        Whether to show progress.

    Returns
    -------
    Result
        Its ``table`` has the ratio over all items, and over those in each bin; ``data`` the draws
        ``ratio`` (chain, draw) and ``ratio_by_bin`` (chain, draw, bin), with coordinates ``score``
        (mean t) and ``n_items``. If theta depends on the exposure, the divisor is given it too.

    Raises
    ------
    FitError, ItemsError, StatisticsError
        If an argument is not valid, or items or statistics are not of the fit's kind.

    References
    ----------
    .. [1] Muralidharan and Najmi (2015), Second order calibration: a simple way to get
       approximate posteriors.

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
            _, chosen, inverse = np.unique(
                point, return_index=True, return_inverse=True
            )
        rows = select(columns, chosen)
        after = posterior.moments(columns)[1]
        before = posterior.curve_variables(rows)["variance"]
        return [after, before[:, inverse]]

    ratio = _Ratio(
        "E Var(theta | t, y) / E Var(theta | t)", "ratio", weight, bins, prob
    )
    return ratio.by_bin(posterior, items, terms)


@with_progress
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

    For a Gamma prior E(theta | t, y) = s E(theta | t) + (1 - s) y/N. In general 1 - s is the slope
    of the posterior mean in the outcome: N Var(theta | t, y) / E(theta | t, y) for counts,
    Var(theta | t, y) / noise_sd^2 for values.

    Parameters
    ----------
    fit : Fit
        The fit.
    items : PoissonItems, NormalItems, BinomialItems, AmountItems or Statistics
        As in `variance_reduction`.
    weight : {"items", "exposure"}
        What means are over.
    bins : int
        Number of bins of about equally many items.
    prob : float
        Probability of the intervals, between 0 and 1.
    progress : bool or None
        Whether to show progress.

    Returns
    -------
    Result
        Its ``table`` has the mean of s over all items, and over those of each bin; ``data`` has the
        draws ``share`` and ``share_by_bin``, as in `variance_reduction`.

    Raises
    ------
    FitError, ItemsError, StatisticsError
        As in `variance_reduction`.

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
        size = posterior.typical_sizes(columns)
        response = posterior.outcome.response(size, mean, variance)
        return [1.0 - response, np.ones((1, len(point)))]

    ratio = _Ratio("share of the prior", "share", weight, bins, prob)
    return ratio.by_bin(posterior, items, terms)


@dataclass(frozen=True)
class _Ratio:
    """A ratio of weighted sums over items, of all and by bin, with intervals."""

    what: str  # in a table
    name: str  # of its draws
    weight: str  # what sums are over
    bins: int
    prob: float

    def __post_init__(self) -> None:
        OneOf("items", "exposure")(self.weight, "weight")
        Whole(1, 1 << 31)(self.bins, "bins")
        PROBABILITY(self.prob, "prob")

    def by_bin(
        self,
        posterior: Posterior,
        data: Items | Statistics,
        terms: Callable[[Columns, Ints], list[Floats]],
    ) -> Result:
        """Return the ratio of sums of two `terms`, of columns of items at support points."""
        ITEMS_OR_STATISTICS(data, "items")
        curves = posterior.curves
        outcome = posterior.outcome
        by_size = self.weight == "exposure"
        if by_size and not outcome.sizes_add:
            raise FitError(
                f"items with {outcome.words.outcomes} have no exposure: give weight='items'"
            )
        stats = data if isinstance(data, Statistics) else statistics_of(curves, data)
        support = support_of(curves, stats)
        margin = outcome.margins[0]
        if posterior.prior.gridded:
            margin = "joint"
            stats.cells(margin)  # raises where there are none
        table = stats.table(margin)
        place = support.bins.rows(table)
        point = (2 * place[:, None] + np.arange(2)).ravel()
        y = table["sum_y"] / table["n"]
        size = outcome.mean_size(table)
        weights = table["n"]
        if by_size:
            y, size, weights = outcome.exposure_means(table)
        y, size, weights = np.repeat([y, size, weights / 2], 2, axis=1)
        columns = {outcome.observed: y, outcome.size: size}
        columns |= select(support.columns, point)
        number_of_bin = np.repeat(support.bins.bin, 2).astype(float)
        bin_of = equal_parts(number_of_bin, self.bins, support.items)
        n = np.bincount(bin_of, support.items)
        score = np.bincount(bin_of, support.items * support.columns["score"]) / n

        def values(part: slice) -> list[Floats]:
            return terms(select(columns, part), point[part])

        target = bin_of[point]
        above, below = summed(curves, weights, target, len(score), values)
        overall = above.sum(axis=1) / below.sum(axis=1)
        by_bin = above / below
        where = [ALL, *(f"score {t:.4g}" for t in score)]
        number = np.round(n).astype(np.int64)
        draws = np.column_stack([overall, by_bin])
        items = [number.sum(), *number]
        rows = estimates(self.what, where, draws, self.prob, n=items)
        coords = {"score": ("bin", score), "n_items": ("bin", number)}
        arrays = {self.name: overall, f"{self.name}_by_bin": by_bin}
        ratios = by_draw(curves, arrays, **coords)
        return Result(result_table(rows), ratios, (), self.what)


def score_at(
    fit: Fit,
    target: ArrayLike,
    *,
    group: object = None,
    exposure: float | None = None,
    prob: float = PROB,
) -> Result:
    """Find the score at which E(theta | t) reaches a target, draw by draw.

    It is the first score at which a draw crosses the target, else the end of the scores that is
    nearer to it.

    Parameters
    ----------
    fit : Fit
        The fit.
    target : float or array_like, shape (k,)
        What E(theta | t) shall reach, in the unit of theta.
    group : str, tuple or None
        As in `calibration_curves`.
    exposure : float or None
        As in `calibration_curves`.
    prob : float
        Probability of the intervals, between 0 and 1.

    Returns
    -------
    Result
        Its ``table`` has the median score of each target and its interval; ``data`` the draws
        ``score`` (target, draw), and ``reached`` (target), the share of draws that cross.

    Raises
    ------
    FitError
        If no draw reaches a target, or an argument is not valid.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> found = soc.quantities.score_at(fit, [0.02, 0.05])
    >>> bool(found.table["value"].is_monotonic_increasing)
    True
    """
    fit = FIT(fit, "fit")
    prob = PROBABILITY(prob, "prob")
    targets = np.atleast_1d(numbers_of(target, "target"))
    if targets.ndim != 1 or not len(targets) or not np.isfinite(targets).all():
        raise FitError(f"target={shown(target)} must be a finite number, or several")
    curves = calibration_curves(fit, None, group, exposure)
    score = curves["score"].to_numpy()
    axis = fit.axis("mean")
    scale = fit.curves.outcome.theta
    mean = curves["mean"].to_numpy().reshape(-1, len(score))
    scores = []
    shares = []
    for number in targets:
        crossed = np.zeros(len(mean), dtype=bool)
        if scale.holds(number):
            excess = scale.position(mean) - scale.position(number)
            position, crossed = _first_crossing(axis(score), excess)
        if not crossed.any():
            raise FitError(
                f"no draw of E(theta | t) reaches {number:.4g} at scores from {score.min():.4g} to "
                f"{score.max():.4g}: there it is {mean.min():.4g} to {mean.max():.4g}"
            )
        scores.append(np.clip(axis.inverse(position), score.min(), score.max()))
        shares.append(crossed.mean())
    where = [f"E(theta | t) = {number:.4g}" for number in targets]
    table = result_table(estimates("score", where, np.transpose(scores), prob))
    draws = {"score": (("target", "draw"), scores), "reached": ("target", shares)}
    percents = ["fewer than 0.1%" if x > 0.999 else f"{1 - x:.1%}" for x in shares]
    advice = tuple(
        f"In {share} of the draws E(theta | t) does not reach {number:.4g} within the fit's "
        "scores: they enter with the score at the nearer end."
        for number, reached, share in zip(targets, shares, percents, strict=True)
        if reached < 1
    )
    data = xr.Dataset(draws, {"target": targets})
    return Result(table, data, advice, "scores at which E(theta | t) reaches a target")


def _first_crossing(position: Floats, excess: Floats) -> tuple[Floats, Bools]:
    """Return positions (draws,) at which rows of `excess` (draws, k) first change sign."""
    above = excess >= 0
    change = above != above[:, :1]
    crossed = change.any(axis=1)
    after = np.maximum(change.argmax(axis=1), 1)
    row = np.arange(len(excess))
    before = excess[row, after - 1]
    behind = excess[row, after]
    step = np.divide(
        before, before - behind, out=np.zeros(len(before)), where=before != behind
    )
    crossing = position[after - 1] + step * (position[after] - position[after - 1])
    rising = excess[:, -1] >= excess[:, 0]
    end = np.where(rising == above[:, 0], position[0], position[-1])
    return np.where(crossed, crossing, end), crossed


def summary(fit: Fit) -> pd.DataFrame:
    """Return the table of `Fit.summary`."""
    drawn = calibration_curves(fit, score_quantiles(fit.curves, SHARES))
    curves = {"E(theta | t)": drawn["mean"]}
    if not fit.mean_only:
        curves["sd(theta | t)"] = drawn["variance"] ** 0.5
    values = {
        (name, float(t)): x.sel(score=t)
        for name, x in curves.items()
        for t in x["score"]
    }
    if not (fit.mean_only or fit.groups):  # with groups it needs statistics
        values["R-squared", np.nan] = r_squared(fit)
    posterior = fit.curves.posterior
    for name in fit.curves.family.curve_names:
        if f"{name}_wiggle_sd" in posterior:
            values[f"{name}: sd about a line", np.nan] = posterior[f"{name}_wiggle_sd"]
    rows = [
        (*key, *np.quantile(draws, (0.05, 0.5, 0.95))) for key, draws in values.items()
    ]
    if fit.status.pareto_k is not None:
        rows.append(
            ("Pareto k (at most 0.7)", np.nan, np.nan, fit.status.pareto_k, np.nan)
        )
    return pd.DataFrame(rows, columns=["quantity", "score", "lower", "median", "upper"])


@dataclass(frozen=True, eq=False)
class SupportPoints:
    """Scores that stand for items: two of every bin (of every group), one after the other."""

    bins: BinPositions
    # of the points: their score, and their group where groups are not pooled
    columns: Columns
    items: Floats


def support_of(curves: Curves, stats: Statistics | None = None) -> SupportPoints:
    """Return scores an sd below and above the mean of bins: of statistics, or else of the fit."""
    scale = curves.axis("mean").local
    if stats is None:
        bins = _bins_of_fit(curves)
    else:
        check_statistics(curves, stats)
        warn_of_extrapolated_bins(curves, stats)
        bins = BinPositions.of(stats, scale, bool(curves.groups))
    ends = np.stack([bins.mean - bins.sd, bins.mean + bins.sd], axis=1)
    scores = np.clip(scale.score(ends), bins.low[:, None], bins.high[:, None])
    points = {"score": scores.ravel()}
    if stats is not None and curves.groups:
        labels = np.array(stats.groups, dtype=object)[bins.group]
        points["group"] = np.repeat(labels, 2)
    return SupportPoints(bins, points, np.repeat(bins.n, 2) / 2)


def _bins_of_fit(curves: Curves) -> BinPositions:
    """The bins of all items that made a fit."""
    scale = curves.axis("mean").local
    if curves.groups or scale.width not in curves.bins:
        lack = "what scores each group has"
        if not curves.groups:
            lack = "how wide its bins of scores are"
        raise FitError(
            f"the fit does not say {lack}: give the statistics too, or the items"
        )
    names = {"n": "n_items", "mean": "score", "sd": scale.width}
    names |= {"low": "score_min", "high": "score_max"}
    columns = {field: curves.bins[name].to_numpy() for field, name in names.items()}
    columns["mean"] = scale.position(columns["mean"])
    number = np.arange(len(columns["n"]))
    return BinPositions(False, np.zeros_like(number), number, **columns)


def statistics_of(curves: Curves, items: Items) -> Statistics:
    """Return statistics of items with the fit's names of columns, for mixtures with joint cells."""
    posterior_roles(curves, items)  # refuses items of another kind
    mixed = curves.prior.gridded
    bins = _MIXED_BINS if mixed else None
    items = replace(items, cluster=None)
    stats = totals_without_folds(items, bins=bins, joint=mixed)
    roles = stats.roles | curves.roles.outcomes
    return Statistics(stats.data.assign_attrs(roles=json.dumps(Roles(roles).named)))


def score_quantiles(curves: Curves, shares: Sequence[float]) -> Floats:
    """Return scores below which shares of the items that made a fit lie, without repetition."""
    bins = curves.bins
    order = np.argsort(bins["score"].to_numpy())
    score, n = (bins[name].to_numpy()[order] for name in ("score", "n_items"))
    place = np.searchsorted(middle_shares(n), shares)
    return np.unique(score[place.clip(max=len(score) - 1)])


def by_draw(curves: Curves, values: Mapping[str, Floats], **coords: Any) -> xr.Dataset:
    """Return arrays (draws,) or (draws, bins) with dims (chain, draw) or (chain, draw, bin)."""
    posterior = curves.posterior
    dims = ("chain", "draw", "bin")
    coords |= {name: posterior[name].to_numpy() for name in dims[:2]}
    shaped = {
        name: x.reshape(*curves.shape, *x.shape[1:]) for name, x in values.items()
    }
    return xr.Dataset({name: (dims[: x.ndim], x) for name, x in shaped.items()}, coords)
