"""`group_effects`: levels that are off at equal score, and how many would seem so by chance."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from .._lib.arguments import PROBABILITY, A, checked
from .._lib.arrays import Floats, Ints
from .._lib.errors import FitError
from ..checks._check import FIT
from ..checks.observations import check_roles
from ..checks.results import OK, PROB, WARN, Result, intervals, result_table, two_sided
from ..checks.slices import equal_parts
from ..data.groups import Grouping, label_of
from ..data.statistics import Statistics
from ..families.scales import LINEAR, LOG, LOGIT
from ..inference.results import Fit
from ..posterior.item_columns import check_groups
from ..posterior.predictive import posterior_of
from ..posterior.scoring import Posterior
from .support import check_draws

ALL_LEVELS = "all levels"
_POINTS = 20  # scores that stand for a level's items: deviations are smooth
# by the scale of theta: an effect, how draws make it, and that of a level like all items
_EFFECTS: dict[str, tuple[str, Callable[..., Any], float]] = {
    LOG.name: ("factor", np.exp, 1.0),
    LOGIT.name: ("odds ratio", np.exp, 1.0),
    LINEAR.name: ("difference", np.asarray, 0.0),
}


@checked(fit=FIT, stats=A(Statistics, "statistics: soc.summarize(items)"), prob=PROBABILITY)
def group_effects(fit: Fit, stats: Statistics, *, prob: float = PROB) -> Result:
    """Find the levels of the groups that differ in E(theta | t) from all items at equal score.

    The effect of a level is the average of its curve of the mean over the level's items, at their
    scores, minus the average over all items, on the log scale (log odds for successes in trials).
    Of crossed groups it is the level's main effect. Effects are partially pooled (Gelman, Hill and
    Yajima 2012): fewer intervals than 1 - `prob` exclude the neutral effect if no level has one, so
    that no correction for many levels is made.

    Parameters
    ----------
    fit, stats
        A fit with groups, by `soc.VI` or `soc.NUTS`, and statistics with the same columns of
        groups: those that made the fit, or of other items.
    prob
        Probability of the intervals, between equal tails.

    Returns
    -------
    Result
        Its ``table`` has a row for each level (``where``) of a column, by falling effect, which is
        a factor of E(theta | t), an odds ratio for successes in trials, or a difference for values:
        ``p`` is twice the posterior probability on the other side of no effect, the ``verdict`` is
        ``"warn"`` where the interval excludes no effect. The last row of a column has the sd of its
        levels' effects. ``data`` has the draws (``effect_of_`` and the column's name) on the log
        scale, with the attributes ``effect`` and ``neutral``; ``advice`` says how many levels
        differ, and how many would by chance.

    Raises
    ------
    FitError, StatisticsError
        If the fit has no groups or a single draw, `prob` is not between 0 and 1, or the statistics
        are of other columns, or have no groups.

    Examples
    --------
    >>> import numpy as np
    >>> import soc_pymc as soc
    >>> frame = soc.simulation.s1(3000, seed=0)
    >>> frame["country"] = np.random.default_rng(0).choice(["DE", "FR", "PL"], 3000)
    >>> items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure",
    ...                          group="country")
    >>> stats = soc.summarize(items, bins=20)
    >>> effects = soc.quantities.group_effects(soc.fit(stats), stats)
    >>> effects.table.groupby("what", sort=False).size().to_dict()
    {'factor of country': 3, 'sd of country': 1}
    """
    if not fit.groups:
        raise FitError("the fit has no groups: give the items group= and fit their statistics")
    check_draws(fit, "the fit")
    check_roles(fit, stats)
    check_groups(fit, stats)
    posterior = posterior_of(fit)
    effect, to_effect, neutral = _EFFECTS[posterior.outcome.theta.name]
    parts, advice, data = [], [], {}
    for place, grouping in enumerate(stats.groupings):
        draws, n = _draws(fit, posterior, stats, grouping, place)
        data[f"effect_of_{grouping.column}"] = ("draw", grouping.column), draws
        rows = pd.DataFrame(intervals(draws, prob)).apply(to_effect)
        differs = (rows["low"] > neutral) | (rows["high"] < neutral)
        rows = rows.assign(
            what=f"{effect} of {grouping.column}",
            where=list(grouping.levels),
            n=n,
            p=two_sided(draws),
            verdict=np.where(differs, WARN, OK),
        ).sort_values("value", ascending=False, kind="stable")
        spread = draws.std(axis=1, ddof=min(1, len(n) - 1))
        sd = {name: float(to_effect(x)) for name, x in intervals(spread, prob).items()}
        sd_row = {"what": f"sd of {grouping.column}", "where": ALL_LEVELS, "n": n.sum(), **sd}
        parts += [rows, pd.DataFrame([sd_row])]
        advice.append(
            f"{int(differs.sum()):,} of {len(n):,} levels of {grouping.column!r} differ from all "
            f"items at equal score: their {prob:.0%} intervals of the {effect} exclude "
            f"{neutral:g}. About {(1.0 - prob) * len(n):.1f} would by chance, at most. Together "
            f"the levels differ by a typical {effect} of {sd['value']:.3g} (one sd; {prob:.0%} "
            f"interval {sd['low']:.3g} to {sd['high']:.3g})."
        )
    levels = {grouping.column: list(grouping.levels) for grouping in stats.groupings}
    table = result_table(pd.concat(parts, ignore_index=True))
    dataset = xr.Dataset(data, levels, {"effect": effect, "neutral": neutral})
    return Result(table, dataset, tuple(advice), "effects of groups")


def _draws(
    fit: Fit, posterior: Posterior, stats: Statistics, grouping: Grouping, place: int
) -> tuple[Floats, Ints]:
    """Effects of the levels, (draws, levels), which are 0 on average over items; items of each."""
    part, scale = stats.table("part"), posterior.outcome.theta
    level, axis = grouping.of[part["group"]], fit.axis("mean").local
    shifts: list[Floats] = []
    for k, label in enumerate(grouping.levels):
        rows = level == k
        # points that stand for the level's items, of about equal numbers
        n, position = part["n"][rows], part[axis.sums[0]][rows]
        point = equal_parts(part["bin"][rows].astype(float), _POINTS, n)
        items = np.bincount(point, n)
        score = axis.score(np.bincount(point, position) / items)
        levels: list[str | None] = [None] * len(fit.groupings)
        levels[place] = label
        labels = np.full(len(score), label_of(levels) if len(levels) > 1 else label, dtype=object)
        size = np.ones(len(score))  # a term in it shifts both curves alike
        curves = (posterior.curves(score, group, size)["mean"] for group in (labels, None))
        with_level, shared = (scale.position(curve) for curve in curves)
        shifts.append((with_level - shared) @ (items / n.sum()))
    n = np.bincount(level, part["n"], len(shifts)).astype(np.int64)
    effects = np.stack(shifts, axis=1)
    return effects - (effects @ n / n.sum())[:, None], n
