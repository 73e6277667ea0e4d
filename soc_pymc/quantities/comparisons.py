"""Comparisons of scores of the same items, of groups at equal score, and of prior with data."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike
from scipy.special import ndtri

from .._lib.arguments import PROBABILITY, SEED, A, shown
from .._lib.arrays import Columns, Floats, Ints, equal_parts
from .._lib.errors import FitError
from .._lib.work import long_work, phase, with_progress
from ..checks.findings import (
    FAIL,
    OK,
    PROB,
    WARN,
    Result,
    estimates,
    result_table,
    two_sided,
)
from ..checks.observations import check_rows
from ..data.items import Grouping, Items, label_of
from ..data.statistics import STATISTICS, Statistics
from ..families.scales import LINEAR, LOG, LOGIT, SCORE_WEIGHT
from ..fits.curves import Curves
from ..fits.fit import FIT, PARETO_K, Fit
from ..posterior.calibration import calibration_curves
from ..posterior.item_columns import (
    check_statistics,
    extrapolation_reported,
    in_chunks,
    read_items,
    select,
)
from ..posterior.predictive import Posterior, posterior_of
from .curves import SHARES, r_squared, score_quantiles, statistics_of, variance_parts

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
THRESHOLD = 0.05  # sensitivity from which a result depends on the prior
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
        if not (
            isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], Fit)
        ):
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
    influence: Floats  # (items,)
    # part of the sum of squares of influences that is noise of finite draws
    noise: float

    def evenly(self, number: int) -> "_Explained":
        """Return some of the draws, evenly spaced."""
        even = np.linspace(0, len(self.total) - 1, number).astype(int)
        return replace(self, explained=self.explained[even], total=self.total[even])


def _sample(curves: Curves, items: Items, seed: int) -> Columns:
    """Return random rows, the same of all tables of as many."""
    columns, _ = read_items(curves, items, ())
    n = len(columns["score"])
    rows = np.random.default_rng(seed).choice(n, min(_SAMPLE, n), replace=False)
    return select(columns, np.sort(rows))


def _explained(posterior: Posterior, items: Items, columns: Columns) -> _Explained:
    curves = posterior.curves
    # the bins that a fit keeps are those of all groups together
    stats = statistics_of(curves, items) if curves.groups else None
    with extrapolation_reported():  # by the pass over the items
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
    fit = FIT(fit, "fit")
    stats = STATISTICS(stats, "stats")
    prob = PROBABILITY(prob, "prob")
    if not fit.groups:
        raise FitError(
            "the fit has no groups: give the items group= and fit their statistics"
        )
    check_draws(fit, "the fit")
    posterior = posterior_of(fit)
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
        counted = f"{number:,} of {len(n):,}" if number else f"None of the {len(n):,}"
        by_chance = (
            f". At most about {(1.0 - prob) * len(n):.1f} would differ by chance"
            * (number > 0)
        )
        advice.append(
            f"{counted} levels of {column!r} {'differ' if number > 1 else 'differs'} from all "
            f"items at equal score: {'the' if number else 'no'} {interval} of the {effect} "
            f"excludes {neutral:g}{by_chance}. Together the levels differ by a typical {effect} of "
            f"{value:.3g} (one sd; {interval} {low:.3g} to {high:.3g})."
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
        position = part[axis.sums[0]][rows]
        point = equal_parts(part["bin"][rows].astype(float), _POINTS, n)
        items = np.bincount(point, n)
        weight = np.bincount(point, part[SCORE_WEIGHT][rows])
        score = axis.score(np.bincount(point, position) / weight)
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
    from arviz_stats import psense

    from ..inference.fit_tree import draw_densities  # these load PyMC
    from ..inference.variational import importance

    check_draws(fit, "the fit")
    if (number := fit.curves.number) < _FEWEST:
        raise FitError(
            f"{number} draws are too few to reweight: fit with soc.VI(draws=1000)"
        )
    scores = score_quantiles(fit.curves, SHARES) if score is None else score
    quantities = calibration_curves(fit, scores, group, exposure)
    quantities = quantities[["mean"] if fit.mean_only else ["mean", "log_variance"]]
    with phase("sensitivity"):
        densities = draw_densities(fit, stats)
        if not fit.mean_only:
            quantities["r_squared"] = r_squared(fit, stats if fit.groups else None)
        draws = quantities[["chain", "draw"]]
        tree = xr.DataTree.from_dict({"posterior": quantities})
        tables = []
        for name, density in zip(("prior", "likelihood"), densities, strict=True):
            tree[f"log_{name}"] = xr.DataTree(
                draws.assign(total=(("chain", "draw"), density))
            )
            tables.append(
                _sensitivity_rows(psense(tree, group=name, alphas=_ALPHAS)).assign(
                    what=name
                )
            )
    high, conflict = (table["value"] >= THRESHOLD for table in tables)
    tables[0]["verdict"] = np.select([high & conflict, high], [FAIL, WARN], OK)
    k = max(importance((a - 1.0) * x.ravel())[1] for x in densities for a in _ALPHAS)
    title = f"sensitivity: from {THRESHOLD} on, a result depends on the prior"
    return Result(result_table(*tables), tree, _advice(fit, tables[0], k), title)


def _sensitivity_rows(sensitivities: xr.Dataset) -> pd.DataFrame:
    parts = []
    for name, values in sensitivities.data_vars.items():
        title = _NAMES[str(name)]
        places = (
            [f"{title} at {t:.4g}" for t in values["score"].values]
            if values.ndim
            else title
        )
        parts.append(
            pd.DataFrame({"title": title, "where": places, "value": np.ravel(values)})
        )
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
