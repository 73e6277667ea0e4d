"""`group_effects`: levels that are off at equal score, and how many would seem so by chance."""

from collections.abc import Callable
from typing import Any

import numpy as np
import xarray as xr

from .._lib.arguments import PROBABILITY, A, checked
from .._lib.arrays import Floats, Ints
from .._lib.errors import FitError
from ..checks.observations import check_roles
from ..checks.pit import equal_parts
from ..checks.results import OK, PROB, WARN, Result, estimates, result_table, two_sided
from ..data.groups import Grouping, label_of
from ..data.statistics import Statistics
from ..families.scales import LINEAR, LOG, LOGIT
from ..inference.results import FIT, Fit
from ..posterior.item_columns import check_groups
from ..posterior.predictive import Posterior, posterior_of
from .variance import check_draws

ALL_LEVELS = "all levels"
ENDS = ["value", "low", "high"]
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
    Effects are partially pooled (Gelman, Hill and Yajima 2012), so many levels need no correction.

    Parameters
    ----------
    fit, stats, prob
        A fit with groups, by `soc.VI` or `soc.NUTS`; statistics with the same columns of groups;
        and the probability of the intervals.

    Returns
    -------
    Result
        Its ``table`` has a row for each level (``where``) of a column, by falling effect, which is
        a factor of E(theta | t), an odds ratio for successes in trials, or a difference for values:
        ``p`` is twice the posterior probability on the other side of no effect, the ``verdict`` is
        ``"warn"`` where the interval excludes no effect. The last row of a column has the sd of its
        levels' effects. ``data`` has the draws (``effect_of_`` and the column's name) on the log
        scale; ``advice`` says how many levels differ, and how many would by chance.

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
    if not fit.groups:
        raise FitError("the fit has no groups: give the items group= and fit their statistics")
    check_draws(fit, "the fit")
    check_roles(fit, stats)
    check_groups(fit, stats)
    posterior = posterior_of(fit)
    effect, to_effect, neutral = _EFFECTS[posterior.outcome.theta.name]
    parts, advice, data, levels = [], [], {}, {}
    for place, grouping in enumerate(stats.groupings):
        draws, n = _draws(fit, posterior, stats, grouping, place)
        data[f"effect_of_{grouping.column}"] = ("draw", grouping.column), draws
        column, levels[grouping.column] = grouping.column, list(grouping.levels)
        rows = estimates(f"{effect} of {column}", levels[column], draws, prob, n=n)
        spread = draws.std(axis=1, keepdims=True, ddof=min(1, len(n) - 1))
        sd = estimates(f"sd of {column}", [ALL_LEVELS], spread, prob, n=n.sum())
        for frame in (rows, sd):
            frame[ENDS] = frame[ENDS].apply(to_effect)
        differs = (rows["low"] > neutral) | (rows["high"] < neutral)
        rows = rows.assign(p=two_sided(draws), verdict=np.where(differs, WARN, OK))
        parts += [rows.sort_values("value", ascending=False, kind="stable"), sd]
        value, low, high = sd[ENDS].iloc[0]
        advice.append(
            f"{int(differs.sum()):,} of {len(n):,} levels of {column!r} differ from all "
            f"items at equal score: their {prob:.0%} intervals of the {effect} exclude "
            f"{neutral:g}. About {(1.0 - prob) * len(n):.1f} would by chance, at most. Together "
            f"the levels differ by a typical {effect} of {value:.3g} (one sd; {prob:.0%} "
            f"interval {low:.3g} to {high:.3g})."
        )
    dataset = xr.Dataset(data, levels, {"effect": effect, "neutral": neutral})
    return Result(result_table(*parts), dataset, tuple(advice), "effects of groups")


def _draws(
    fit: Fit, posterior: Posterior, stats: Statistics, grouping: Grouping, place: int
) -> tuple[Floats, Ints]:
    """Effects of the levels, (draws, levels), which are 0 on average over items; items of each."""
    part, scale = stats.table("part"), posterior.outcome.theta
    level, axis = grouping.code[part["group"]], fit.axis("mean").local
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
