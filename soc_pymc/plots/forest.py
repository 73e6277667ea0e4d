"""Posterior intervals of named items, one below the other."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from numpy.typing import NDArray

from .._lib.arguments import shown
from .._lib.errors import ItemsError
from .arguments import need_ax
from .item_tables import frame_of, names_of, need_column, numbers_of
from .style import BLACK, BLUE, GREY, ORANGE, escaped, is_rate, named, rate_axis, tidy

__all__ = ["plot_forest"]

Floats = NDArray[np.float64]

_QUANTILE = re.compile(r"theta_q(\d\d)(?:_(\d+))?")
_ROW = 0.27  # height of an item, in inches
_TALLEST = 14.0
_FAR_BELOW = 0.05  # of the least mean: lower ends would squeeze a logarithmic axis


@dataclass(frozen=True)
class _Roles:
    """Columns of the table by role; None where they are not named."""

    score: str | None
    count: str | None
    exposure: str | None
    value: str | None
    noise_sd: str | None

    def __post_init__(self) -> None:
        for role, name in vars(self).items():
            need_column(name, role)
        if (self.count is None) != (self.exposure is None):
            raise ItemsError("name both columns, count= and exposure=, or neither")
        if self.noise_sd is not None and self.value is None:
            raise ItemsError("noise_sd= is that of values: name their column, value=")
        if self.count is not None and self.value is not None:
            raise ItemsError("name the columns count= and exposure=, or value= and noise_sd=")

    @property
    def names(self) -> list[str]:
        """All that are named."""
        every = (self.score, self.count, self.exposure, self.value, self.noise_sd)
        return [name for name in every if name is not None]


def plot_forest(
    table: Any,
    *,
    id: str | None = None,
    score: str | None = None,
    count: str | None = None,
    exposure: str | None = None,
    value: str | None = None,
    noise_sd: str | None = None,
    items: int | Sequence[Any] = 20,
    ax: Axes | None = None,
) -> Axes:
    """Draw the posteriors of some items one below the other, with what each would be on its own.

    A dot is the posterior mean, a line the interval between the outermost quantiles of the table; a
    thicker one that between the next two, if there are four. The item's own rate, count / exposure,
    or its own value is a diamond, the score an upright stroke: the posterior lies between the two,
    the nearer to the diamond the more the item has told of itself. Items are sorted by their
    posterior means.

    Parameters
    ----------
    table
        What `soc.item_posteriors` returned: a pandas, Polars, Arrow or Ibis table with
        ``theta_mean`` and at least two quantiles, such as ``theta_q05`` and ``theta_q95``.
    id
        Column of names of the items; None takes the row labels of a pandas table, and numbers of
        rows from 0 of others.
    score
        Column of scores, to mark them; leave it out where scores are not estimates of theta.
    count, exposure
        Columns of counts and their exposures; or
    value, noise_sd
        columns of values and the sd of their noise. Without them no own outcomes are drawn.
    items
        The items to draw, by `id`; or how many: those of the largest exposure or the least noise,
        or the first rows where neither is named.
    ax
        Axes to draw in; None makes a figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes.

    Raises
    ------
    ItemsError
        If `table` is no table, a column is missing or not of numbers, the table has no two
        quantiles, or there is no such item.
    FitError
        If `ax` is no axes.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> frame = soc.simulation.s1(2000, seed=0)
    >>> items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    >>> fit = soc.fit(soc.summarize(items, progress=False), progress=False)
    >>> scored = soc.item_posteriors(fit, items, progress=False)
    >>> ax = soc.plots.plot_forest(scored, count="count", exposure="exposure", items=[3, 17, 29])
    >>> len(ax.get_yticklabels())
    3
    """
    need_column(id, "id")
    need_ax(ax)
    roles = _Roles(score, count, exposure, value, noise_sd)
    quantiles = _quantiles(names_of(table))
    names = [*([id] if id else []), *roles.names, "theta_mean", *quantiles]
    frame = frame_of(table, names)
    for name in (*roles.names, *quantiles):
        numbers_of(frame, name)
    labels = pd.Index(frame[id]) if id else frame.index
    at, which = _chosen(frame, labels, roles, items)
    at = at[np.argsort(numbers_of(frame, "theta_mean")[at], kind="stable")]
    own, figure = frame.iloc[at], None
    if ax is None:
        height = min(1.6 + _ROW * len(at), _TALLEST)
        figure, ax = plt.subplots(figsize=(7.5, height), layout="constrained")
    place = np.arange(len(at), dtype=float)
    _posteriors(ax, own, quantiles, place)
    if score:
        label = named("score", score)
        ax.plot(numbers_of(own, score), place, "|", label=label, **_SCORE)
    rates = _outcomes(ax, own, roles, place)
    _axis(ax, own, roles, quantiles, rates)
    ax.set_yticks(place, [escaped(label, 28) for label in labels[at]], fontsize=8)
    ax.set_ylim(-0.7, len(at) - 0.3)
    some = f"{len(at):,} of {len(frame):,} items" if len(at) < len(frame) else f"{len(at):,} items"
    title = f"Posteriors of theta ({some}{which})"
    ax.set_title(title, fontsize=10, loc="left")
    if figure is None:
        ax.legend(fontsize=8, edgecolor="none", framealpha=0.85)
    else:
        figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    return ax


_SCORE: dict[str, Any] = {"color": BLACK, "markersize": 10, "markeredgewidth": 1.4, "zorder": 3}
_OWN: dict[str, Any] = {
    "color": ORANGE,
    "markersize": 5,
    "markerfacecolor": "none",
    "markeredgewidth": 1.2,
    "zorder": 4,
}


def _quantiles(names: Sequence[str]) -> dict[str, float]:
    """Columns of quantiles with their percentages, increasing: the outer two, or these and inner.

    The outermost two come first and last; of others the next two are kept.
    """
    matches = ((name, _QUANTILE.fullmatch(name)) for name in map(str, names))
    found = {name: float(f"{m[1]}.{m[2] or 0}") for name, m in matches if m}
    order = sorted(found, key=found.__getitem__)
    if len(order) < 2:
        raise ItemsError(
            f"the table has {len(order)} columns of quantiles, and an interval has two ends: ask "
            "soc.item_posteriors for quantiles=(0.05, 0.95)"
        )
    kept = [*order[:2], *order[-2:]] if len(order) >= 4 else [order[0], order[-1]]
    return {name: found[name] for name in kept}


def _chosen(
    frame: pd.DataFrame, labels: pd.Index, roles: _Roles, items: int | Sequence[Any]
) -> tuple[NDArray[np.intp], str]:
    """Rows to draw, and which these are, in words."""
    if isinstance(items, int | np.integer) and not isinstance(items, bool):
        if items < 1 or not len(frame):
            raise ItemsError(f"items={shown(items)} of {len(frame):,}: there is nothing to draw")
        if items >= len(frame):
            return np.arange(len(frame)), ""
        size, which = np.zeros(len(frame)), ": the first rows"
        if roles.exposure:
            size, which = -numbers_of(frame, roles.exposure), ": those of the largest exposure"
        elif roles.noise_sd:
            size, which = numbers_of(frame, roles.noise_sd), ": those of the least noise"
        which = which if np.ptp(size) else ": the first rows"
        return np.argsort(size, kind="stable")[:items], which
    wanted = _named(items)
    missing = [item for item in wanted if item not in labels]
    if missing or not wanted:
        raise ItemsError(
            f"{len(missing)} of {len(wanted)} items are not in the table"
            + (f", such as {shown(missing[0])}" if missing else "")
            + ": name some by id=, or give how many to draw"
        )
    return np.flatnonzero(labels.isin(wanted)), ""


def _named(items: Any) -> list[Any]:
    """Names of items, of one or of several in a list."""
    try:
        wanted = [items] if isinstance(items, str | bytes) else list(items)
        for item in wanted:
            hash(item)
    except TypeError:
        raise ItemsError(
            f"items={shown(items)} must be how many to draw, or names of items in a list"
        ) from None
    return wanted


def _posteriors(ax: Axes, own: pd.DataFrame, quantiles: dict[str, float], place: Floats) -> None:
    """Intervals and means."""
    columns = list(quantiles)
    for low, high, width in zip(columns, reversed(columns), (1.4, 4.0), strict=False):
        if quantiles[low] >= quantiles[high]:
            break
        label = f"posterior: {quantiles[low]:g}% to {quantiles[high]:g}%"
        ends = numbers_of(own, low), numbers_of(own, high)
        ax.hlines(place, *ends, color=BLUE, linewidth=width, alpha=0.8, label=label, zorder=2)
    mean = numbers_of(own, "theta_mean")
    ax.plot(mean, place, "o", color=BLUE, markersize=4.5, label="posterior mean", zorder=5)


def _outcomes(ax: Axes, own: pd.DataFrame, roles: _Roles, place: Floats) -> Floats:
    """Own rates or values as diamonds, their numbers at the right; returns what is drawn."""
    if roles.count is not None and roles.exposure is not None:
        y, size = numbers_of(own, roles.count), numbers_of(own, roles.exposure)
        rate = np.divide(y, size, out=np.full(len(y), np.nan), where=size > 0)
        words = [f"{a:,.10g} / {b:,.6g}" for a, b in zip(y, size, strict=True)]
        name = f"{escaped(roles.count, 20)} / {escaped(roles.exposure, 20)}"
        label = f"own rate: {name}"
    elif roles.value is not None:
        rate, name = numbers_of(own, roles.value), escaped(roles.value, 20)
        words, label = [f"{v:.3g}" for v in rate], f"own value: {name}"
        if roles.noise_sd is not None:
            noise = numbers_of(own, roles.noise_sd)
            words = [f"{v:.3g} ± {s:.2g}" for v, s in zip(rate, noise, strict=True)]
            name += f" ± {escaped(roles.noise_sd, 20)}"
    else:
        return np.empty(0)
    ax.plot(rate, place, "D", label=label, **_OWN)
    style: dict[str, Any] = {"textcoords": "offset points", "fontsize": 7.5, "color": GREY}
    across = ax.get_yaxis_transform()
    for words_of_item, k in zip(words, place, strict=True):
        ax.annotate(words_of_item, (1, k), (4, 0), xycoords=across, va="center", **style)
    ax.annotate(name, (1, 1), (4, 2), xycoords="axes fraction", va="bottom", **style)
    return rate


def _axis(
    ax: Axes, own: pd.DataFrame, roles: _Roles, quantiles: dict[str, float], rates: Floats
) -> None:
    """Logarithmic for rates, with own rates of 0 at its left end; else linear."""
    mean = numbers_of(own, "theta_mean")
    ends = [numbers_of(own, name) for name in quantiles]
    score = [numbers_of(own, roles.score)] if roles.score else []
    tidy(ax)
    ax.grid(visible=False, axis="y")
    if roles.count is None:
        ax.set_xlabel("theta, in the unit of the values" if roles.value else "theta")
        return
    unit = f"{escaped(roles.count, 20)} per unit of {escaped(roles.exposure, 20)}"
    ax.set_xlabel(f"theta, {unit}")
    shown = np.concatenate([mean, *ends, *score, rates[rates > 0]])
    if not is_rate(shown):
        return
    low = float(np.nanmin(np.maximum(shown, _FAR_BELOW * np.nanmin(mean))))
    high = float(np.nanmax(shown))
    rate_axis(ax.xaxis, low, high)
    ax.set_xlim(low / 1.25, high * 1.15)
    zero = np.flatnonzero(rates == 0)
    if zero.size:
        style = {**_OWN, "marker": "<", "linestyle": "none", "clip_on": False}
        label = f"own rate 0, off the axis: {zero.size:,}"
        ax.plot(np.zeros(zero.size), zero, transform=ax.get_yaxis_transform(), label=label, **style)
