"""Which levels of the groups are off at equal score, and how many would seem so by chance."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from .._lib.arguments import PROBABILITY, A, checked
from .._lib.arrays import Floats, Ints
from .._lib.errors import FitError
from ..checks._check import FIT
from ..checks.cells import check_roles
from ..data.groups import Grouping, label_of
from ..data.statistics import Statistics
from ..families.scales import LINEAR, LOG, LOGIT
from ..inference.results import Fit
from ..posterior.interface import Posterior
from ..posterior.item_columns import check_groups
from ..posterior.predictive import posterior_of

_POINTS = 20  # scores that stand for a level's items: deviations are smooth
_EFFECTS = {  # by the scale of theta: what an effect is, and the effect of a level like all items
    LOG.name: ("factor", 1.0),
    LOGIT.name: ("odds ratio", 1.0),
    LINEAR.name: ("difference", 0.0),
}


@dataclass(frozen=True)
class GroupEffects:
    """Effects of the levels of each column of groups, from `group_effects`.

    Attributes
    ----------
    table
        A row for each level, by column and falling effect: ``column``, ``level``, ``n_items``,
        ``effect`` (posterior median), the ends of its interval ``low`` and ``high``, ``p_above``,
        the posterior probability that the effect is above `neutral`, and ``differs``, whether the
        interval excludes it.
    by_chance
        By column: the number of ``levels``, how many differ (``differ``), how many intervals would
        exclude the neutral effect ``by_chance`` if no level had one, at most, and how many of
        those that differ are expected to lie on the other side (``wrong_side``). ``sd`` is the
        posterior median of the sd of the levels' effects, as an `effect`, and ``sd_low`` and
        ``sd_high`` are the ends of its interval: many levels may matter together of which few
        differ one by one.
    effect
        What effects are: a ``"factor"`` of E(theta | t), an ``"odds ratio"`` of it for successes in
        trials, or a ``"difference"`` for values.
    neutral
        The effect of a level that is like all items at equal score: 1 or 0.
    prob
        Probability of the intervals.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({"column": ["country"], "level": ["DE"], "differs": [True]})
    >>> numbers = {"levels": [12], "differ": [3], "by_chance": [1.2], "wrong_side": [0.1],
    ...            "sd": [1.2], "sd_low": [1.1], "sd_high": [1.4]}
    >>> by_chance = pd.DataFrame(numbers, index=["country"])
    >>> repr(GroupEffects(table, by_chance, "factor", 1.0, 0.9))[:49]
    "3 of 12 levels of 'country' differ from all items"
    """

    table: pd.DataFrame
    by_chance: pd.DataFrame
    effect: str
    neutral: float
    prob: float

    def __repr__(self) -> str:
        return "\n".join(sentences_of(self))


def sentences_of(effects: GroupEffects) -> Iterator[str]:
    """For each column, how many levels differ, how many would by chance, and by how much."""
    for column, row in effects.by_chance.iterrows():
        yield (
            f"{int(row['differ']):,} of {int(row['levels']):,} levels of {column!r} differ from "
            f"all items at equal score: their {effects.prob:.0%} intervals of the {effects.effect} "
            f"exclude {effects.neutral:g}. By chance at most {row['by_chance']:.1f} would. "
            f"Together the levels differ by a typical {effects.effect} of {row['sd']:.3g} (one sd; "
            f"{effects.prob:.0%} interval {row['sd_low']:.3g} to {row['sd_high']:.3g})."
        )


@checked(fit=FIT, stats=A(Statistics, "statistics: soc.summarize(items)"), prob=PROBABILITY)
def group_effects(fit: Fit, stats: Statistics, *, prob: float = 0.9) -> GroupEffects:
    """Which levels of the groups have another E(theta | t) than all items at equal score.

    The effect of a level is how far its curve of the mean lies from the average over all items,
    which have the levels' own curves: the average over the level's items, at their scores, minus
    the average over all items, on the scale of logarithms (of log odds for successes in trials). Of
    crossed groups it is the level's main effect, given the other groups. Effects are partially
    pooled: levels of few items are drawn towards the others, so that fewer intervals than
    1 - `prob` exclude the neutral effect if no level has one.

    Parameters
    ----------
    fit
        A fit with groups, by `soc.VI` or `soc.NUTS`.
    stats
        Statistics with the same columns of groups: those that made the fit, or of other items.
    prob
        Probability of the intervals, between equal tails.

    Returns
    -------
    GroupEffects
        Its ``table`` has a row for each level, ``by_chance`` one for each column. Effects are
        factors (no unit), odds ratios, or differences in the unit of the values.

    Raises
    ------
    FitError
        If the fit has no groups or a single draw, or `prob` is not between 0 and 1.
    StatisticsError
        If the statistics are of other columns, or have no groups.

    Notes
    -----
    Partial pooling is why no correction for many levels is made: Gelman, Hill and Yajima (2012).

    Examples
    --------
    >>> import numpy as np
    >>> import soc_pymc as soc
    >>> rng = np.random.default_rng(0)
    >>> frame = soc.simulation.s1(3000, seed=0)
    >>> frame["country"] = rng.choice(["DE", "FR", "PL"], 3000)
    >>> frame["device"] = rng.choice(["phone", "tablet"], 3000)
    >>> items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure",
    ...                          group=("country", "device"))
    >>> stats = soc.summarize(items, bins=20)
    >>> effects = soc.quantities.group_effects(soc.fit(stats), stats)
    >>> effects.table.groupby("column").size().to_dict()
    {'country': 3, 'device': 2}
    >>> effects.by_chance["by_chance"].round(1).to_dict()
    {'country': 0.3, 'device': 0.2}
    """
    if not fit.groups:
        raise FitError("the fit has no groups: give the items group= and fit their statistics")
    if fit.one_draw:
        raise FitError(
            "the fit has a single draw, which does not say how sure it is: fit with soc.VI() or "
            "soc.NUTS()"
        )
    check_roles(fit, stats)
    check_groups(fit, stats)
    posterior = posterior_of(fit)
    effect, neutral = _EFFECTS[posterior.outcome.theta.name]
    rows, summary = [], {}
    for place, grouping in enumerate(stats.groupings):
        draws, n = _draws(fit, posterior, stats, grouping, place)
        found = _rows(draws, n, grouping, prob)
        sd = _interval(draws.std(axis=1, ddof=min(1, len(n) - 1)), prob)
        if neutral:
            sd = np.exp(sd)
            found[["effect", "low", "high"]] = np.exp(found[["effect", "low", "high"]])
        rows.append(found.sort_values("effect", ascending=False, kind="stable"))
        p = found.loc[found["differs"], "p_above"]
        summary[grouping.column] = {
            "levels": len(found),
            "differ": int(found["differs"].sum()),
            "by_chance": (1.0 - prob) * len(found),
            "wrong_side": float(np.minimum(p, 1.0 - p).sum()),
            **dict(zip(("sd_low", "sd", "sd_high"), sd, strict=True)),
        }
    table = pd.concat(rows, ignore_index=True)
    by_chance = pd.DataFrame.from_dict(summary, orient="index").rename_axis("column")
    return GroupEffects(table, by_chance, effect, neutral, float(prob))


def _interval(draws: Floats, prob: float) -> Floats:
    """Lower end, median and upper end."""
    return np.asarray(np.quantile(draws, [(1 - prob) / 2, 0.5, (1 + prob) / 2], axis=0))


def _rows(draws: Floats, n: Ints, grouping: Grouping, prob: float) -> pd.DataFrame:
    """Rows of a grouping's levels, whose effects are draws (draws, levels) about 0."""
    low, middle, high = _interval(draws, prob)
    return pd.DataFrame(
        {
            "column": grouping.column,
            "level": list(grouping.levels),
            "n_items": n,
            "effect": middle,
            "low": low,
            "high": high,
            "p_above": (draws > 0).mean(axis=0),
            "differs": (low > 0) | (high < 0),
        }
    )


def _draws(
    fit: Fit, posterior: Posterior, stats: Statistics, grouping: Grouping, place: int
) -> tuple[Floats, Ints]:
    """Effects of the levels, (draws, levels), which are 0 on average over items; items of each."""
    part, scale = stats.table("part"), posterior.outcome.theta
    level, axis = grouping.of[part["group"]], fit.axis("mean").local
    own: list[Floats] = []
    for k, label in enumerate(grouping.levels):
        at = level == k
        score, weight = _points(*(part[name][at] for name in ("bin", "n", axis.sums[0])))
        score = axis.score(score)
        levels: list[str | None] = [None] * len(fit.groupings)
        levels[place] = label
        labels = np.full(len(score), label_of(levels) if len(levels) > 1 else label, dtype=object)
        size = np.ones(len(score))  # a term in it shifts both curves alike
        curves = (posterior.curves(score, group, size)["mean"] for group in (labels, None))
        with_level, shared = (scale.position(curve) for curve in curves)
        own.append((with_level - shared) @ weight)
    n = np.bincount(level, part["n"], len(own)).astype(np.int64)
    effects = np.stack(own, axis=1)
    return effects - (effects @ n / n.sum())[:, None], n


def _points(number: Ints, n: Ints, position: Floats) -> tuple[Floats, Floats]:
    """Positions that stand for the items of some bins, and their shares of the items."""
    order = np.argsort(number, kind="stable")
    n, position = n[order], position[order]
    share = (np.cumsum(n) - 0.5 * n) / n.sum()
    _, at = np.unique((share * _POINTS).astype(int), return_inverse=True)
    items = np.bincount(at, n)
    return np.bincount(at, position) / items, items / n.sum()
