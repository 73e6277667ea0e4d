"""Comparisons of scores of the same items, and of groups at equal score."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import xarray as xr
from scipy.special import ndtri

from .._lib.arguments import PROBABILITY, SEED, A, shown
from .._lib.arrays import Floats, Ints
from .._lib.errors import FitError
from ..checks.observations import check_roles, check_rows, in_batches
from ..checks.pit import equal_parts
from ..checks.results import OK, PROB, WARN, Result, estimates, result_table, two_sided
from ..data.items import Grouping, Items, label_of
from ..data.statistics import STATISTICS, Statistics
from ..families.scales import LINEAR, LOG, LOGIT
from ..inference.results import FIT, Fit
from ..posterior.curves import extrapolation_reported, items_at_once
from ..posterior.item_columns import Columns, check_groups, read_items, select
from ..posterior.predictive import posterior_of
from .curves import statistics_of, variance_parts

_SAMPLE = 20_000  # random items that correlations are computed from

ALL_LEVELS = "all levels"
_ENDS = ["value", "low", "high"]
_POINTS = 20  # scores that stand for a level's items: deviations are smooth
# by the scale of theta: an effect, how draws make it, and that of a level like all items
_EFFECTS: dict[str, tuple[str, Callable[..., Any], float]] = {
    LOG.name: ("factor", np.exp, 1.0),
    LOGIT.name: ("odds ratio", np.exp, 1.0),
    LINEAR.name: ("difference", np.asarray, 0.0),
}


def check_draws(fit: Fit, name: str) -> None:
    """Refuse fits with a single draw where a result has intervals alone."""
    if fit.one_draw:
        why = "which carries no uncertainty: fit with soc.VI() or soc.NUTS()"
        raise FitError(f"{name} has a single draw, {why}")


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
    scores
        By name, a fit and its items: the same rows in the same order, of which only the score (and
        the groups) differ. The first is the one that others are compared with.
    prob, seed, progress
        Probability of the intervals, seed of random numbers, and whether to show progress.

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
    prob, seed = PROBABILITY(prob, "prob"), SEED(seed, "seed")
    _check(scores)
    rng = np.random.default_rng(seed)
    variances: dict[str, Floats] = {}  # explained and total, (2, draws)
    influence: dict[str, tuple[Floats, float]] = {}
    reference_columns: Columns = {}
    for name, (fit, items) in scores.items():
        # the bins that a fit keeps are those of all groups together
        stats = statistics_of(fit, items) if fit.groups else None
        with extrapolation_reported():  # by the pass over the items
            drawn = variance_parts(fit, stats)
        variances[name] = np.stack([drawn[c].to_numpy().ravel() for c in ("explained", "total")])
        columns, _ = read_items(fit, items, (), progress)
        n = len(columns["score"])  # the same random rows of all tables of as many
        rows = np.random.default_rng(seed).choice(n, min(_SAMPLE, n), replace=False)
        columns = select(columns, np.sort(rows))
        reference_columns = reference_columns or columns
        outcome = posterior_of(fit).outcome
        roles = {role: role for role in (outcome.observed, outcome.size)}
        check_rows(reference_columns, columns, roles, f"score {name!r}")
        influence[name] = _influence(fit, columns, variances[name][0], progress)
    reference, *further = scores
    number = min(draws.shape[1] for draws in variances.values())
    even = [np.linspace(0, x.shape[1] - 1, number).astype(int) for x in variances.values()]
    base, *others = (x[:, k] for x, k in zip(variances.values(), even, strict=True))
    correlation = [_correlation(influence[reference], influence[name]) for name in further]
    others = [
        draws[:, _pairing(base[0], draws[0], value, rng)]
        for draws, value in zip(others, correlation, strict=True)
    ]
    total = np.mean([draws[1] for draws in (base, *others)], axis=0)
    # Var(theta) is the same for all scores: what one explains more, it leaves less unexplained
    gains = np.array([draws[0] - base[0] for draws in others])
    differences = {"R-squared": gains / total, "E Var(theta | t)": -gains}
    where = [f"{name} - {reference}" for name in further]
    p = two_sided(gains.T)
    worse = (p < 1.0 - prob) & (np.median(gains, axis=1) < 0.0)
    columns = {"p": p, "verdict": np.where(worse, WARN, OK)}
    parts = (estimates(k, where, x.T, prob, **columns) for k, x in differences.items())
    coords = {"score": np.array(further, dtype=object), "draw": np.arange(number)}
    data = xr.Dataset({"correlation": ("score", correlation)}, coords, {"reference": reference})
    for name, draws in zip(("r_squared", "unexplained"), differences.values(), strict=True):
        data[name] = ("score", "draw"), draws
    return Result(result_table(*parts), data, (), f"scores against {reference}")


def _check(scores: Mapping[str, tuple[Fit, Items]]) -> None:
    for name, pair in scores.items():
        if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], Fit)):
            raise FitError(f"scores[{shown(name)}] must be a pair (fit, items)")
        A(Items, "items")(pair[1], f"scores[{shown(name)}][1]")
        check_draws(pair[0], f"the fit of {name!r}")
    if len(scores) < 2:
        raise FitError(f"{len(scores)} score: there is nothing to compare it with, give two")
    kinds = sorted({posterior_of(fit).outcome.words.outcomes for fit, _ in scores.values()})
    if len(kinds) > 1:
        raise FitError(f"the fits describe {' and '.join(kinds)}: compare scores of the same items")


def _influence(
    fit: Fit, columns: Columns, explained: Floats, progress: bool | None
) -> tuple[Floats, float]:
    """Return items' influence on the mean of draws, and the part of its squares that is noise."""
    posterior, centred = posterior_of(fit), explained - explained.mean()

    def values(part: Columns) -> Floats:
        log_density = posterior.log_density(part)
        shifts = centred @ (log_density - log_density.mean(axis=0)) / len(centred)
        return np.stack([shifts, log_density.var(axis=0)])

    step = items_at_once(fit)
    influence, variance = in_batches("influence of items", columns, step, progress, values)
    return influence, float(variance.sum() * explained.var() / len(explained))


def _correlation(a: tuple[Floats, float], b: tuple[Floats, float]) -> float:
    """Return the correlation of two sums of influences, without the noise of finite draws."""
    squares = [max(float(x @ x) - noise, 0.1 * float(x @ x)) for x, noise in (a, b)]
    return float(np.clip(a[0] @ b[0] / np.sqrt(squares[0] * squares[1]), -1.0, 1.0))


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
    fit, stats, prob
        A fit with groups, by `soc.VI` or `soc.NUTS`; statistics with the same columns of groups;
        and the probability of the intervals.

    Returns
    -------
    Result
        Its ``table`` has a row for each level (``where``) of a column, by falling effect: a factor
        of E(theta | t), an odds ratio for successes in trials, or a difference for values, with
        verdict ``"warn"`` where the interval excludes no effect. The last row of a column has the
        sd of its levels' effects. ``data`` has the draws (``effect_of_`` and the column's name) on
        the log scale; ``advice`` says how many levels differ, and how many would by chance.

    Raises
    ------
    FitError, StatisticsError
        If the fit has no groups or a single draw, or the statistics have other columns or groups.

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
    {'factor of country': 3, 'sd of country': 1}
    """
    fit, stats = FIT(fit, "fit"), STATISTICS(stats, "stats")
    prob = PROBABILITY(prob, "prob")
    if not fit.groups:
        raise FitError("the fit has no groups: give the items group= and fit their statistics")
    check_draws(fit, "the fit")
    check_roles(fit, stats)
    check_groups(fit, stats)
    effect, to_effect, neutral = _EFFECTS[posterior_of(fit).outcome.theta.name]
    parts, advice, data, levels = [], [], {}, {}
    for place, grouping in enumerate(stats.groupings):
        draws, n = _effects(fit, stats, grouping, place)
        column, levels[grouping.column] = grouping.column, list(grouping.levels)
        data[f"effect_of_{column}"] = ("draw", column), draws
        rows = estimates(f"{effect} of {column}", levels[column], draws, prob, n=n)
        spread = draws.std(axis=1, keepdims=True, ddof=min(1, len(n) - 1))
        sd = estimates(f"sd of {column}", [ALL_LEVELS], spread, prob, n=n.sum())
        for frame in (rows, sd):
            frame[_ENDS] = frame[_ENDS].apply(to_effect)
        differs = (rows["low"] > neutral) | (rows["high"] < neutral)
        rows = rows.assign(p=two_sided(draws), verdict=np.where(differs, WARN, OK))
        parts += [rows.sort_values("value", ascending=False, kind="stable"), sd]
        value, low, high = sd[_ENDS].iloc[0]
        interval, score = f"{prob:.0%} interval", "from all items at equal score"
        if number := int(differs.sum()):
            verb = "differs" if number == 1 else "differ"
            sentence = (
                f"{number:,} of {len(n):,} levels of {column!r} {verb} {score}: the {interval} of "
                f"the {effect} excludes {neutral:g}. About {(1.0 - prob) * len(n):.1f} would by "
                "chance, at most."
            )
        else:
            sentence = (
                f"None of the {len(n):,} levels of {column!r} differs {score}: every {interval} of "
                f"the {effect} includes {neutral:g}."
            )
        advice.append(
            f"{sentence} Together the levels differ by a typical {effect} of {value:.3g} (one sd; "
            f"{interval} {low:.3g} to {high:.3g})."
        )
    dataset = xr.Dataset(data, levels, {"effect": effect, "neutral": neutral})
    return Result(result_table(*parts), dataset, tuple(advice), "effects of groups")


def _effects(fit: Fit, stats: Statistics, grouping: Grouping, place: int) -> tuple[Floats, Ints]:
    """Return effects of levels, (draws, levels), 0 on average over items; and items of each."""
    posterior, part = posterior_of(fit), stats.table("part")
    scale, axis = posterior.outcome.theta, fit.axis("mean").local
    level = grouping.code[part["group"]]
    shifts: list[Floats] = []
    for k, label in enumerate(grouping.levels):
        rows = level == k
        # points that stand for the level's items, of about equal numbers
        n, position = part["n"][rows], part[axis.sums[0]][rows]
        point = equal_parts(part["bin"][rows].astype(float), _POINTS, n)
        items = np.bincount(point, n)
        score = axis.score(np.bincount(point, position) / items)
        crossed = [label if i == place else None for i in range(len(fit.groupings))]
        labels = np.full(len(score), label_of(crossed) if len(crossed) > 1 else label, dtype=object)
        size = np.ones(len(score))  # a term in it shifts both curves alike
        curves = (posterior.curves(score, group, size)["mean"] for group in (labels, None))
        with_level, shared = (scale.position(curve) for curve in curves)
        shifts.append((with_level - shared) @ (items / n.sum()))
    n = np.bincount(level, part["n"], len(shifts)).astype(np.int64)
    effects = np.stack(shifts, axis=1)
    return effects - (effects @ n / n.sum())[:, None], n
