"""Effects of levels of groups, one below the other."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from .._lib.arguments import A, Whole, checked
from ..quantities import GroupEffects
from . import canvas
from .arguments import AX

_ROW, _TALLEST = 0.22, 12.0  # inches
_RESULT = A(GroupEffects, "what soc.quantities.group_effects(fit, stats) returned")


@checked(effects=_RESULT, levels=Whole(1), ax=AX)
def plot_group_effects(effects: GroupEffects, *, levels: int = 30, ax: Axes | None = None) -> Axes:
    """Draw the effect of every level of the groups on E(theta | t), column by column.

    A dot is the posterior median, by which levels are sorted; a line the interval, red where
    it excludes the line of no effect. The heading of a column says how many levels differ, and how
    many would by chance.

    Parameters
    ----------
    effects
        From `soc.quantities.group_effects`.
    levels
        The most levels of a column to draw: of more, those farthest from no effect.
    ax
        Axes to draw in; None makes a figure.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> import numpy as np
    >>> import soc_pymc as soc
    >>> frame = soc.simulation.s1(3000, seed=0)
    >>> frame["country"] = np.random.default_rng(0).choice(["DE", "FR", "PL"], 3000)
    >>> items = soc.PoissonItems(
    ...     frame, score="score", count="count", exposure="exposure", group="country")
    >>> stats = soc.summarize(items, bins=20)
    >>> effects = soc.quantities.group_effects(soc.fit(stats), stats)
    >>> [label.get_text() for label in soc.plots.plot_group_effects(effects).get_yticklabels()][0]
    'country'
    """
    rows, names, place, cut = [], [], 0, ""
    for column, own in effects.table.groupby("column", sort=False):
        if len(own) > levels:
            own, cut = _farthest(own, effects.neutral, levels), "; the farthest of many levels"
        names.append((place, canvas.escaped(column, 28)))
        rows.append(own.assign(place=place + 1 + np.arange(len(own))))
        place += len(own) + 2
    ax = canvas.panels_in(ax, (7.5, min(1.4 + _ROW * place, _TALLEST)))[0]
    table = pd.concat(rows)
    for differs, color in ((False, canvas.CURVE), (True, canvas.APART)):
        some = table[table["differs"] == differs]
        ax.hlines(some["place"], some["low"], some["high"], color=color)
        ax.plot(some["effect"], some["place"], "o", color=color, markersize=4)
    ax.axvline(effects.neutral, color=canvas.REFERENCE, linewidth=0.8)
    for (at, _), (_, found) in zip(names, effects.by_chance.iterrows(), strict=True):
        words = f"{found['differ']:.0f} of {found['levels']:.0f} differ"
        words += f", by chance at most {found['by_chance']:.1f}"
        ax.text(0.01, at, words, transform=ax.get_yaxis_transform(), va="center", fontsize=8)
    labels = [
        (at, canvas.escaped(level, 28))
        for at, level in zip(table["place"], table["level"], strict=True)
    ]
    where, shown = zip(*sorted([*names, *labels]), strict=True)
    title = f"Levels at equal score, {effects.prob:.0%} intervals{cut}"
    canvas.finish(ax, title, f"{effects.effect} of E(theta | t)", "", legend=False)
    ax.grid(visible=False, axis="y")
    if effects.neutral:
        canvas.rate_axis(ax.xaxis, *ax.get_xlim())
    ax.set_yticks(where, shown, fontsize=8)
    ax.set_ylim(place - 1.5, -0.7)
    return ax


def _farthest(rows: pd.DataFrame, neutral: float, most: int) -> pd.DataFrame:
    """The rows whose effects are farthest from none, in their order."""
    effect = np.log(rows["effect"]) if neutral else rows["effect"]
    return rows.loc[effect.abs().nlargest(most).index.sort_values()]
