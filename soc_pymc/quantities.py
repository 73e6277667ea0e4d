"""Quantities of a fit as posteriors: how good the score is, and how much outcomes add to it.

Then comparisons of scores of the same items, of groups at equal score, and of prior with data.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike
from scipy.special import ndtri

from ._lib.arguments import (
    PROBABILITY,
    SEED,
    A,
    FitError,
    OneOf,
    OrNone,
    Whole,
    numbers_of,
    shown,
)
from ._lib.arrays import Bools, Columns, Floats, Ints, equal_parts, middle_shares
from ._lib.reprs import counted
from ._lib.work import long_work, phase, with_progress
from .checks.findings import (
    ALL,
    FAIL,
    OK,
    PROB,
    WARN,
    Result,
    estimates,
    result_table,
    two_sided,
)
from .checks.observations import (
    ITEMS_OR_STATISTICS,
    check_rows,
    totals_without_folds,
)
from .data.items import Grouping, Items, Roles, label_of
from .data.statistics import STATISTICS, Statistics
from .families.scales import LINEAR, LOG, LOGIT, SCORE_WEIGHT
from .fits import FIT, PARETO_K, Curves, Fit
from .inference.fit_tree import draw_densities
from .inference.variational import importance
from .posterior.calibration import calibration_curves, support_of, variance_parts
from .posterior.item_columns import (
    check_statistics,
    extrapolation_reported,
    in_chunks,
    posterior_roles,
    read_items,
    select,
    summed,
)
from .posterior.predictive import Posterior, posterior_of

__all__ = [
    "compare_scores",
    "group_effects",
    "r_squared",
    "score_at",
    "shrinkage",
    "variance_reduction",
]

# shares of the items, at whose scores curves are shown
_SHARES = (0.05, 0.25, 0.5, 0.75, 0.95)

# bins to evaluate a mixture, which costs more per cell
_MIXED_BINS = 200

_SAMPLE = 20_000  # random items that correlations are computed from
ALL_LEVELS = "all levels"
_ENDS = ["value", "low", "high"]
# scores that stand for a level's items: deviations are smooth
_POINTS = 20
# by the scale of theta: an effect, how draws make it, and that of a level like all items
_EFFECTS: dict[str, tuple[str, Callable[..., Any], float]] = {
    LOG.name: ("factor", np.exp, 1.0),
    LOGIT.name: ("odds ratio", np.exp, 1.0),
    LINEAR.name: ("difference", np.asarray, 0.0),
}
# sensitivity from which a result depends on the prior
THRESHOLD = 0.05
# powers, between which the sensitivity is a difference quotient
_ALPHAS = (0.99, 1.01)
_FEWEST = 100  # draws
_NAMES = {
    "mean": "E(theta | t)",
    "log_variance": "log Var(theta | t)",
    "r_squared": "R-squared",
}
_MEANINGS = {
    FAIL: "Prior and data disagree on {}: check the prior, or widen it by "
    "soc.Spline(level=, slope=, wiggle=).",
    WARN: "The data say little about {}, so the prior decides: report that, or get more data.",
}


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
    posterior = posterior_of(fit)
    stats = OrNone(STATISTICS)(stats, "stats")
    explained, total = variance_parts(posterior, stats)
    return by_draw(posterior.curves, {"r_squared": explained / total})["r_squared"]


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
        # then cells of a support point have one prior
        if fit.prior.exposure is None:
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

    # in a table
    what: str
    # of its draws
    name: str
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
            # raises where there are none
            stats.cells(margin)
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
        Value for E(theta | t) to reach, in the unit of theta.
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
    drawn = calibration_curves(fit, score_quantiles(fit.curves))
    curves = {"E(theta | t)": drawn["mean"]}
    if not fit.mean_only:
        curves["sd(theta | t)"] = drawn["variance"] ** 0.5
    values = {
        (name, float(t)): x.sel(score=t)
        for name, x in curves.items()
        for t in x["score"]
    }
    # with groups it needs statistics
    if not (fit.mean_only or fit.groups):
        values["R-squared", np.nan] = r_squared(fit)
    posterior = fit.curves.posterior
    for name in fit.curves.family.curve_names:
        if f"{name}_wiggle_sd" in posterior:
            values[f"{name}: sd about a line", np.nan] = posterior[f"{name}_wiggle_sd"]
    levels = 0.05, 0.5, 0.95
    rows = [(*key, *np.quantile(draws, levels)) for key, draws in values.items()]
    if (k := fit.status.pareto_k) is not None:
        rows.append(("Pareto k (at most 0.7)", np.nan, np.nan, k, np.nan))
    return pd.DataFrame(rows, columns=["quantity", "score", "lower", "median", "upper"])


def statistics_of(curves: Curves, items: Items) -> Statistics:
    """Return statistics of items with the fit's names of columns, for mixtures with joint cells."""
    # refuses items of another kind
    posterior_roles(curves, items)
    mixed = curves.prior.gridded
    bins = _MIXED_BINS if mixed else None
    items = replace(items, cluster=None)
    stats = totals_without_folds(items, bins=bins, joint=mixed)
    roles = stats.roles | curves.roles.outcomes
    return Statistics(stats.data.assign_attrs(roles=json.dumps(Roles(roles).named)))


def score_quantiles(curves: Curves) -> Floats:
    """Return scores below which `_SHARES` of the items that made a fit lie, without repetition."""
    bins = curves.bins.sortby("score")
    score, n = (bins[name].to_numpy() for name in ("score", "n_items"))
    place = np.searchsorted(middle_shares(n), _SHARES)
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


def check_draws(fit: Fit, name: str) -> None:
    """Refuse fits with a single draw where a result has intervals alone."""
    if fit.one_draw:
        why = "which carries no uncertainty: fit with soc.VI() or soc.NUTS()"
        raise FitError(f"{name} has a single draw, {why}")


@with_progress
def compare_scores(
    scores: Mapping[str, tuple[Fit, Items]],
    *,
    prob: float = PROB,
    seed: int = 0,
    progress: bool | None = None,
) -> Result:
    """Compare the R^2 and the E Var(theta | t) of scores of the same items, draw by draw.

    All fits see the same outcomes, so that their errors are as correlated as the items' influences
    on the posterior means (the Bayesian infinitesimal jackknife, Giordano and Broderick 2023).
    Draws are paired so that they have that correlation (Iman and Conover 1982).

    Parameters
    ----------
    scores : Mapping[str, tuple[Fit, items]]
        By name, a fit and its items: the same rows in the same order, of which only the score (and
        the groups) differ. The first is the one that others are compared with.
    prob : float
        Probability of the intervals, between 0 and 1.
    seed : int
        Seed of random numbers.
    progress : bool or None
        Whether to show progress.

    Returns
    -------
    Result
        Its ``table`` has two rows for each score but the first: by how much its R^2 is larger, and
        its E Var(theta | t), negative for a better score; ``p`` is twice the posterior probability
        on the other side of 0, and the verdict ``"warn"`` where the score is worse with p < 1 -
        `prob`. ``data`` has the draws ``r_squared`` and ``unexplained`` (score, draw) and the
        ``correlation`` (score) of errors.

    Raises
    ------
    FitError, ItemsError
        If there are fewer than two scores, a fit has a single draw or is of another kind of items,
        or the items are not the same rows in the same order.

    References
    ----------
    .. [1] Giordano and Broderick (2023), The Bayesian infinitesimal jackknife for variance.
    .. [2] Iman and Conover (1982), A distribution-free approach to inducing rank correlation
       among input variables, Communications in Statistics B 11, 311-334.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> worse = items.source.assign(score=items.source["score"].sample(frac=1).to_numpy())
    >>> worse_items = soc.PoissonItems(worse, **items.roles)
    >>> pairs = {"ours": (fit, items), "mixed": (soc.fit(soc.summarize(worse_items)), worse_items)}
    >>> gains = soc.quantities.compare_scores(pairs).data["r_squared"]
    >>> bool((gains.sel(score="mixed") < 0).all())
    True
    """
    scores = A(Mapping, 'a dict, {"name": (fit, items), ...}')(scores, "scores")
    prob = PROBABILITY(prob, "prob")
    seed = SEED(seed, "seed")
    _check_scores(scores)
    rng = np.random.default_rng(seed)
    reference, *further = scores
    columns: dict[str, Columns] = {}
    parts: dict[str, _Explained] = {}
    for name, (fit, items) in scores.items():
        posterior = posterior_of(fit)
        columns[name] = _sample(posterior.curves, items, seed)
        outcome = posterior.outcome
        roles = {role: role for role in (outcome.observed, outcome.size)}
        check_rows(columns[reference], columns[name], roles, f"score {name!r}")
        parts[name] = _explained(posterior, items, columns[name])
    number = min(len(part.explained) for part in parts.values())
    base = parts[reference].evenly(number)
    correlation = []
    paired = []
    for name in further:
        score = parts[name].evenly(number)
        correlation.append(_correlation(base, score))
        order = _pairing(base.explained, score.explained, correlation[-1], rng)
        paired.append((score, order))
    total = np.mean([base.total, *(score.total[k] for score, k in paired)], axis=0)
    # Var(theta) is the same for all scores: what one explains more, it leaves less unexplained
    gains = np.array([score.explained[k] - base.explained for score, k in paired])
    r_squared_gain = gains / total
    where = [f"{name} - {reference}" for name in further]
    p = _p_values(gains.T)
    worse = (p < 1.0 - prob) & (np.median(gains, axis=1) < 0.0)
    tests = {"p": p, "verdict": np.where(worse, WARN, OK)}
    table = result_table(
        estimates("R-squared", where, r_squared_gain.T, prob, **tests),
        estimates("E Var(theta | t)", where, -gains.T, prob, **tests),
    )
    variables = {
        "correlation": ("score", correlation),
        "r_squared": (("score", "draw"), r_squared_gain),
        "unexplained": (("score", "draw"), -gains),
    }
    coords = {"score": np.array(further, dtype=object), "draw": np.arange(number)}
    data = xr.Dataset(variables, coords, {"reference": reference})
    return Result(table, data, (), f"scores against {reference}")


def _check_scores(scores: Mapping[str, tuple[Fit, Items]]) -> None:
    for name, pair in scores.items():
        is_pair = isinstance(pair, tuple) and len(pair) == 2
        if not (is_pair and isinstance(pair[0], Fit)):
            raise FitError(f"scores[{shown(name)}] must be a pair (fit, items)")
        A(Items, "items")(pair[1], f"scores[{shown(name)}][1]")
        check_draws(pair[0], f"the fit of {name!r}")
    if len(scores) < 2:
        raise FitError(
            f"{len(scores)} score: there is nothing to compare it with, give two"
        )
    kinds = sorted({fit.curves.outcome.words.outcomes for fit, _ in scores.values()})
    if len(kinds) > 1:
        raise FitError(
            f"the fits describe {' and '.join(kinds)}: compare scores of the same items"
        )


@dataclass(frozen=True, eq=False)
class _Explained:
    """Variance of theta that a score explains, with the influence of items on its mean."""

    explained: Floats  # (draws,)
    total: Floats
    # (items,)
    influence: Floats
    # part of the sum of squares of influences that is noise of finite draws
    noise: float

    def evenly(self, number: int) -> "_Explained":
        """Return some of the draws, evenly spaced."""
        even = np.linspace(0, len(self.total) - 1, number).astype(int)
        return replace(self, explained=self.explained[even], total=self.total[even])


def _sample(curves: Curves, items: Items, seed: int) -> Columns:
    """Return random rows, the same of all tables of as many."""
    columns, _ = read_items(curves, items)
    n = len(columns["score"])
    rows = np.random.default_rng(seed).choice(n, min(_SAMPLE, n), replace=False)
    return select(columns, np.sort(rows))


def _explained(posterior: Posterior, items: Items, columns: Columns) -> _Explained:
    curves = posterior.curves
    # the bins that a fit keeps are those of all groups together
    stats = statistics_of(curves, items) if curves.groups else None
    # by the pass over the items
    with extrapolation_reported():
        explained, total = variance_parts(posterior, stats)
    centred = explained - explained.mean()

    def values(part: Columns) -> Floats:
        log_density = posterior.log_density(part)
        shifts = centred @ (log_density - log_density.mean(axis=0)) / len(centred)
        return np.stack([shifts, log_density.var(axis=0)])

    influence, variance = in_chunks(
        values, curves.items_at_once, columns, "influence of items"
    )
    noise = float(variance.sum() * explained.var() / len(explained))
    return _Explained(explained, total, influence, noise)


def _correlation(a: _Explained, b: _Explained) -> float:
    """Return the correlation of two sums of influences, without the noise of finite draws."""
    squares = []
    for part in (a, b):
        square = float(part.influence @ part.influence)
        squares.append(max(square - part.noise, 0.1 * square))
    product = a.influence @ b.influence
    return float(np.clip(product / np.sqrt(squares[0] * squares[1]), -1.0, 1.0))


def _pairing(
    reference: Floats, draws: Floats, correlation: float, rng: np.random.Generator
) -> Ints:
    """Return an order of draws with a rank correlation with those of the reference."""
    n = len(reference)
    normal = ndtri((np.argsort(np.argsort(reference)) + 0.5) / n)
    fresh = rng.permutation(ndtri((np.arange(n) + 0.5) / n))
    target = correlation * normal + np.sqrt(1.0 - correlation**2) * fresh
    return np.argsort(draws)[np.argsort(np.argsort(target))]


def group_effects(fit: Fit, stats: Statistics, *, prob: float = PROB) -> Result:
    """Find the levels of the groups that differ in E(theta | t) from all items at equal score.

    The effect of a level is the average of its curve of the mean over the level's items, minus the
    average over all items, on the log scale (log odds for successes in trials). Effects are
    partially pooled (Gelman, Hill and Yajima 2012), so many levels need no correction.

    Parameters
    ----------
    fit : Fit
        A fit with groups, by `soc.VI` or `soc.NUTS`.
    stats : Statistics
        Statistics with the same columns of groups.
    prob : float
        Probability of the intervals, between 0 and 1.

    Returns
    -------
    Result
        Its ``table`` has a row for each level (``where``) of a column, by falling effect: a factor
        of E(theta | t), an odds ratio for successes in trials, or a difference for values, with
        verdict ``"warn"`` where the interval excludes no effect. The last row of a column has the
        typical effect of its levels: one sd, on the log scale, as such a factor. ``data`` has the
        draws (``effect_of_`` and the column's name) on the log scale, with dims (draw, group), of
        several columns group_1, group_2 and so on; ``advice`` says how many levels differ, and how
        many would by chance.

    Raises
    ------
    FitError, StatisticsError
        If the fit has no groups or a single draw, or the statistics have other columns or groups.

    References
    ----------
    .. [1] Gelman, Hill and Yajima (2012), Why we (usually) don't have to worry about multiple
       comparisons, Journal of Research on Educational Effectiveness 5, 189-211.

    Examples
    --------
    >>> import numpy as np
    >>> import soc_pymc as soc
    >>> frame = soc.simulation.s1(3000, seed=0)
    >>> frame["country"] = np.random.default_rng(0).choice(["DE", "FR", "PL"], 3000)
    >>> roles = {"count": "count", "exposure": "exposure", "group": "country"}
    >>> stats = soc.summarize(soc.PoissonItems(frame, score="score", **roles), bins=20)
    >>> effects = soc.quantities.group_effects(soc.fit(stats), stats)
    >>> effects.table.groupby("what", sort=False).size().to_dict()
    {'factor of country': 3, 'typical factor of country': 1}
    """
    posterior = posterior_of(fit)
    stats = STATISTICS(stats, "stats")
    prob = PROBABILITY(prob, "prob")
    if not fit.groups:
        raise FitError(
            "the fit has no groups: give the items group= and fit their statistics"
        )
    check_draws(fit, "the fit")
    check_statistics(posterior.curves, stats)
    effect, to_effect, neutral = _EFFECTS[posterior.outcome.theta.name]
    parts = []
    advice = []
    data = {}
    levels = {}
    for place, grouping in enumerate(stats.groupings):
        draws, n = _effects(posterior, stats, grouping, place)
        column = grouping.column
        levels[grouping.name] = list(grouping.levels)
        data[f"effect_of_{column}"] = ("draw", grouping.name), draws
        rows = estimates(f"{effect} of {column}", grouping.levels, draws, prob, n=n)
        spread = draws.std(axis=1, keepdims=True, ddof=min(1, len(n) - 1))
        typical = f"typical {effect} of {column}"
        sd = estimates(typical, [ALL_LEVELS], spread, prob, n=n.sum())
        for frame in (rows, sd):
            frame[_ENDS] = frame[_ENDS].apply(to_effect)
        differs = (rows["low"] > neutral) | (rows["high"] < neutral)
        rows = rows.assign(p=_p_values(draws), verdict=np.where(differs, WARN, OK))
        parts += [rows.sort_values("value", ascending=False, kind="stable"), sd]
        value, low, high = sd[_ENDS].iloc[0]
        number = int(differs.sum())
        interval = f"{prob:.0%} interval"
        some = f"{number:,} of" if number else "None of the"
        by_chance = (
            f". At most about {(1.0 - prob) * len(n):.1f} would differ by chance"
            * (number > 0)
        )
        excludes = f"{'the' if number else 'no'} {interval} of the {effect} excludes"
        advice.append(
            f"{some} {counted(len(n), 'level')} of {column!r} "
            f"{'differ' if number > 1 else 'differs'} from all items at equal score: "
            f"{excludes} {neutral:g}{by_chance}. Together the levels differ by a typical {effect} "
            f"of {value:.3g} (one sd; {interval} {low:.3g} to {high:.3g})."
        )
    neutral_words = {"neutral": neutral, "neutral_is": "all items at equal score"}
    dataset = xr.Dataset(data, levels, {"effect": effect, **neutral_words})
    return Result(result_table(*parts), dataset, tuple(advice), "effects of groups")


def _p_values(draws: Floats) -> Floats:
    """Two-sided p-values of 0 among draws (draws, ...), at least one over their number."""
    return np.maximum(two_sided(draws), 1.0 / len(draws))


def _effects(
    posterior: Posterior, stats: Statistics, grouping: Grouping, place: int
) -> tuple[Floats, Ints]:
    """Return effects of levels, (draws, levels), 0 on average over items; and items of each."""
    part = stats.table("part")
    scale = posterior.outcome.theta
    axis = posterior.curves.axis("mean").local
    level = grouping.code[part["group"]]
    shifts: list[Floats] = []
    for k, label in enumerate(grouping.levels):
        rows = level == k
        # points that stand for the level's items, of about equal numbers
        n = part["n"][rows]
        point = equal_parts(part["bin"][rows].astype(float), _POINTS, n)
        items = np.bincount(point, n)
        position = np.bincount(point, part[axis.sums[0]][rows])
        weight = np.bincount(point, part[SCORE_WEIGHT][rows])
        score = axis.score(position / weight)
        crossed = [label if i == place else None for i in range(len(stats.groupings))]
        of_level = label_of(crossed) if len(crossed) > 1 else label
        labels = {"group": np.full(len(score), of_level, dtype=object)}
        # a term in size shifts both curves alike
        columns = {"score": score, posterior.outcome.size: np.ones(len(score))}
        with_level, shared = (
            scale.position(posterior.curve_variables(columns | group)["mean"])
            for group in (labels, {})
        )
        shifts.append((with_level - shared) @ (items / n.sum()))
    n = np.bincount(level, part["n"], len(shifts)).astype(np.int64)
    effects = np.stack(shifts, axis=1)
    return effects - (effects @ n / n.sum())[:, None], n


@long_work
def sensitivity(
    fit: Fit,
    stats: Statistics,
    score: ArrayLike | None = None,
    *,
    group: object = None,
    exposure: ArrayLike | None = None,
    progress: bool | None = None,
) -> Result:
    """Measure how much the curves and R^2 depend on the prior, by power-scaling.

    The prior, or the likelihood, is raised to the powers 0.99 and 1.01: the sensitivity is the
    cumulative Jensen-Shannon distance of a quantity's posteriors for each doubling of the power
    (Kallioinen et al., Statistics and Computing 34, 2024). It scales only the priors of the curves'
    (or log weights') levels and slopes, of all terms' scales, and of parameters without a parent.

    Parameters
    ----------
    fit : Fit
        The fit, by `soc.VI` or `soc.NUTS`.
    stats : Statistics
        The statistics that it was made from.
    score : array_like, shape (n,), or None
        Scores of the curves; None takes five, below which 5, 25, 50, 75 and 95% of the items lie.
    group : str, tuple or None
        As in `calibration_curves`.
    exposure : float, array_like of shape (n,), or None
        As in `calibration_curves`.
    progress : bool or None
        Whether to show progress.

    Returns
    -------
    Result
        Its ``table`` has ArviZ's sensitivities to the ``prior`` and the ``likelihood``, of E(theta
        | t) and log Var(theta | t) at each score and of R^2. The ``verdict`` on the prior is
        ``"ok"`` below 0.05, ``"fail"`` where prior and likelihood both reach it, a conflict, and
        ``"warn"`` where the prior alone does: the data say little. ``data`` is an
        `xarray.DataTree`: ``posterior``, ``log_prior`` and ``log_likelihood``.

    Raises
    ------
    FitError
        If the fit has fewer than 100 draws, the statistics are not those that made it, or a score,
        group or exposure is not valid.

    References
    ----------
    .. [1] Kallioinen, Paananen, Buerkner and Vehtari (2024), Detecting and diagnosing prior and
       likelihood sensitivity with power-scaling, Statistics and Computing 34.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> tight = soc.Gamma(mean=soc.Spline(level=(0.0, 0.1)))  # a mean rate of 1, within 10%
    >>> soc.sensitivity(soc.fit(stats, tight), stats, [0.014]).table["verdict"][0]
    'fail'
    """
    fit = FIT(fit, "fit")
    stats = STATISTICS(stats, "stats")
    # which takes long to import
    from arviz_stats import psense

    check_draws(fit, "the fit")
    if (number := fit.curves.number) < _FEWEST:
        raise FitError(
            f"{number} draws are too few to reweight: fit with soc.VI(draws=1000)"
        )
    scores = score_quantiles(fit.curves) if score is None else score
    quantities = calibration_curves(fit, scores, group, exposure)
    quantities = quantities[["mean"] if fit.mean_only else ["mean", "log_variance"]]
    with phase("sensitivity"):
        densities = draw_densities(fit, stats)
        # without scores and groups R-squared is 0 in every draw
        if not fit.mean_only and (fit.groups or not fit.curves.one_score):
            quantities["r_squared"] = r_squared(fit, stats if fit.groups else None)
        draws = quantities[["chain", "draw"]]
        tree = xr.DataTree.from_dict({"posterior": quantities})
        tables = []
        for name, density in zip(("prior", "likelihood"), densities, strict=True):
            total = draws.assign(total=(("chain", "draw"), density))
            tree[f"log_{name}"] = xr.DataTree(total)
            sensitivities = psense(tree, group=name, alphas=_ALPHAS)
            tables.append(_sensitivity_rows(sensitivities).assign(what=name))
    high, conflict = (table["value"] >= THRESHOLD for table in tables)
    tables[0]["verdict"] = np.select([high & conflict, high], [FAIL, WARN], OK)
    k = max(importance((a - 1.0) * x.ravel())[1] for x in densities for a in _ALPHAS)
    title = f"sensitivity: from {THRESHOLD} on, a result depends on the prior"
    return Result(result_table(*tables), tree, _advice(fit, tables[0], k), title)


def _sensitivity_rows(sensitivities: xr.Dataset) -> pd.DataFrame:
    parts = []
    for name, values in sensitivities.data_vars.items():
        title = _NAMES[str(name)]
        rows = pd.DataFrame({"title": title, "where": title, "value": np.ravel(values)})
        if values.size > 1:
            rows["where"] = [f"{title} at {t:.4g}" for t in values["score"].values]
        parts.append(rows)
    return pd.concat(parts)


def _advice(fit: Fit, of_prior: pd.DataFrame, k: float) -> tuple[str, ...]:
    sentences = []
    if not fit.status.converged:
        sentences.append(
            f"The fit did not converge, so this may be wrong: {fit.status.reason}."
        )
    if not k <= PARETO_K:
        sentences.append(
            f"Pareto k of the weights is {k:.2f}, above {PARETO_K}: these numbers are not reliable."
        )
    for verdict, meaning in _MEANINGS.items():
        titles = of_prior.loc[of_prior["verdict"] == verdict, "title"].unique()
        if len(titles):
            sentences.append(meaning.format(", ".join(titles)))
    return tuple(sentences) or ("No result here depends on the prior.",)
