"""Posteriors of items: how far they are pulled from the items' own outcomes, and intervals."""

import re
from collections.abc import Iterable, Sequence, Sized
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import colors, ticker
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from numpy.typing import NDArray

from .._lib.arguments import SEED, checked, shown
from .._lib.arrays import Floats
from .._lib.errors import ItemsError
from ..families.outcomes import OUTCOMES, Outcome
from . import canvas
from .arguments import AX, COLUMN, NAME, item_numbers, names_in, some_columns

_QUANTILE = re.compile(r"theta_q(\d\d)(?:_(\d+))?")
_ROW = 0.27  # height of an item, in inches
_TALLEST = 14.0
_FAR_BELOW = 0.05  # of the least mean: lower ends would squeeze a logarithmic axis
_SCORE: dict[str, Any] = {
    "color": canvas.GIVEN,
    "markersize": 10,
    "markeredgewidth": 1.4,
    "zorder": 3,
}
_OWN: dict[str, Any] = {
    "color": canvas.OBSERVED,
    "markersize": 5,
    "markerfacecolor": "none",
    "markeredgewidth": 1.2,
    "zorder": 4,
}
_COLUMNS = {role: COLUMN for each in OUTCOMES.values() for role in (each.observed, each.size)}
_PAIRS = ", or ".join(f"{each.observed}= and {each.size}=" for each in OUTCOMES.values())
_ITEMS = 2000  # points drawn at most
_ARROWS = 60


def _outcome_of(columns: dict[str, str | None]) -> Outcome | None:
    """The kind whose columns are named; None where none is. Both of a kind go together.

    A column of outcomes that are estimates of theta themselves is enough.
    """
    given = {role for role, name in columns.items() if name}
    for outcome in OUTCOMES.values():
        if given == {outcome.observed, outcome.size} or (
            outcome.direct and given == {outcome.observed}
        ):
            return outcome
    if not given:
        return None
    names = ", ".join(f"{role}={shown(columns[role])}" for role in columns if role in given)
    raise ItemsError(f"{names}: name both columns, {_PAIRS}, and no others")


def _own_name(outcome: Outcome, columns: dict[str, str | None]) -> str:
    """What the items' own estimates are made of."""
    name = canvas.escaped(columns[outcome.observed], 20)
    return name if outcome.direct else f"{name} / {canvas.escaped(columns[outcome.size], 20)}"


def _unit(outcome: Outcome, columns: dict[str, str | None]) -> str:
    name = outcome.words.events if outcome.direct else canvas.escaped(columns[outcome.observed], 20)
    return outcome.words.unit.format(outcome=name, size=canvas.escaped(columns[outcome.size], 20))


# --- intervals -----------------------------------------------------------------------------------


@checked(id=COLUMN, score=COLUMN, ax=AX, **_COLUMNS)
def plot_forest(
    table: Any,
    *,
    id: str | None = None,
    score: str | None = None,
    count: str | None = None,
    exposure: str | None = None,
    value: str | None = None,
    noise_sd: str | None = None,
    successes: str | None = None,
    trials: str | None = None,
    items: int | Sequence[Any] = 20,
    ax: Axes | None = None,
) -> Axes:
    """Draw the posteriors of some items one below the other, with what each would be on its own.

    A dot is the posterior mean, by which items are sorted; a line the interval between the
    outermost quantiles of the table, a thicker one that between the next two, if there are four.
    The item's own rate, count / exposure, or its own value is a diamond, the score an upright
    stroke: the posterior lies nearer to the diamond the more the item's outcome says.

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
        columns of values and the sd of their noise; or
    successes, trials
        columns of successes and their trials. Without them no own outcomes are drawn.
    items
        The items to draw, by `id`; or how many: those with the most exposure or the least noise,
        or the first rows where neither is named.
    ax
        Axes to draw in; None makes a figure.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    ItemsError
        If the table, its columns or the items are not as above.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> scored = soc.item_posteriors(fit, items)
    >>> ax = soc.plots.plot_forest(scored, count="count", exposure="exposure", items=[3, 17, 29])
    >>> len(ax.get_yticklabels())
    3
    """
    columns = {
        "count": count,
        "exposure": exposure,
        "value": value,
        "noise_sd": noise_sd,
        "successes": successes,
        "trials": trials,
    }
    outcome = _outcome_of(columns)
    quantiles = _quantiles(names_in(table))
    numbers = [name for name in (score, *columns.values()) if name] + [*quantiles, "theta_mean"]
    frame = some_columns(table, [*([id] if id else []), *numbers])
    every = {name: item_numbers(frame, name) for name in numbers}
    labels = pd.Index(frame[id]) if id else frame.index
    size = every.get(columns[outcome.size] or "") if outcome else None
    at, which = _chosen(labels, outcome, size, items)
    at = at[np.argsort(every["theta_mean"][at], kind="stable")]
    own = {name: values[at] for name, values in every.items()}
    place = np.arange(len(at), dtype=float)
    made = ax is None
    ax = canvas.panels_in(ax, (7.5, min(1.6 + _ROW * len(at), _TALLEST)))[0]
    _intervals(ax, own, quantiles, place)
    if score:
        ax.plot(own[score], place, "|", label=canvas.named("score", score), **_SCORE)
    unit, rates = "", np.empty(0)
    if outcome:
        unit, rates = f", {_unit(outcome, columns)}", _own_marks(ax, outcome, columns, own, place)
    title = f"Posteriors of theta ({_some(at, frame)}{which})"
    canvas.finish(ax, title, f"theta{unit}", "", legend=False)
    ax.grid(visible=False, axis="y")
    if outcome and _are_rates(outcome, own["theta_mean"], rates):
        _log_axis(ax, outcome, own["theta_mean"], [own[q] for q in (*quantiles, score) if q], rates)
    ax.set_yticks(place, [canvas.escaped(label, 28) for label in labels[at]], fontsize=8)
    ax.set_ylim(-0.7, len(at) - 0.3)
    canvas.legend_of_panels(ax, made, "lower center")
    return ax


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
    labels: pd.Index, outcome: Outcome | None, size: Floats | None, items: int | Sequence[Any]
) -> tuple[NDArray[np.intp], str]:
    """Rows to draw, and which these are, in words."""
    if isinstance(items, int | np.integer) and not isinstance(items, bool):
        if items < 1 or not len(labels):
            raise ItemsError(f"items={shown(items)} of {len(labels):,}: there is nothing to draw")
        if items >= len(labels):
            return np.arange(len(labels)), ""
        if outcome is None or size is None or not np.ptp(size):
            return np.arange(items), ": the first rows"
        if outcome.sizes_add:
            largest = np.argsort(-size, kind="stable")[:items]
            return largest, f": those with the most {outcome.words.size}"
        return np.argsort(size, kind="stable")[:items], ": those of the least noise"
    wanted = _item_names(items)
    missing = [item for item in wanted if item not in labels]
    if missing or not wanted:
        raise ItemsError(
            f"{len(missing)} of {len(wanted)} items are not in the table"
            + (f", such as {shown(missing[0])}" if missing else "")
            + ": name some by id=, or give how many to draw"
        )
    return np.flatnonzero(labels.isin(wanted)), ""


def _item_names(items: Any) -> list[Any]:
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


def _intervals(
    ax: Axes, own: dict[str, Floats], quantiles: dict[str, float], place: Floats
) -> None:
    """Intervals and means."""
    columns = list(quantiles)
    for low, high, width in zip(columns, reversed(columns), (1.4, 4.0), strict=False):
        if quantiles[low] >= quantiles[high]:
            break
        label = f"posterior: {quantiles[low]:g}% to {quantiles[high]:g}%"
        style: dict[str, Any] = {"color": canvas.CURVE, "alpha": 0.8, "label": label, "zorder": 2}
        ax.hlines(place, own[low], own[high], linewidth=width, **style)
    style = {"color": canvas.CURVE, "markersize": 4.5, "label": "posterior mean", "zorder": 5}
    ax.plot(own["theta_mean"], place, "o", **style)


def _own_marks(
    ax: Axes,
    outcome: Outcome,
    columns: dict[str, str | None],
    own: dict[str, Floats],
    place: Floats,
) -> Floats:
    """Own rates or values as diamonds, their numbers at the right; returns what is drawn."""
    observed, size = columns[outcome.observed], columns[outcome.size]
    y, n = own[observed or ""], own[size] if size else np.ones(len(place))
    estimate, name = outcome.estimate(y, n), _own_name(outcome, columns)
    ax.plot(estimate, place, "D", label=f"{outcome.words.own}: {name}", **_OWN)
    form = "{:,.10g} / {:,.6g}"
    if outcome.direct:
        form = "{:.3g} ± {:.2g}" if size else "{:.3g}"
        name += f" ± {canvas.escaped(size, 20)}" if size else ""
    style: dict[str, Any] = {"textcoords": "offset points", "fontsize": 7.5, "color": canvas.GREY}
    across = ax.get_yaxis_transform()
    for k, numbers in zip(place, zip(y, n, strict=True), strict=True):
        ax.annotate(form.format(*numbers), (1, k), (4, 0), xycoords=across, va="center", **style)
    ax.annotate(name, (1, 1), (4, 2), xycoords="axes fraction", va="bottom", **style)
    return estimate


def _log_axis(
    ax: Axes, outcome: Outcome, mean: Floats, others: Iterable[Floats], own: Floats
) -> None:
    """Logarithmic where the range calls for it, with own rates of 0 at its left end."""
    drawn = np.concatenate([mean, *others, own[own > 0]])
    if not canvas.is_rate(drawn):
        return
    low = float(np.nanmin(np.maximum(drawn, _FAR_BELOW * np.nanmin(mean))))
    high = float(np.nanmax(drawn))
    canvas.rate_axis(ax.xaxis, low, high)
    ax.set_xlim(low / 1.25, high * 1.15)
    zero = np.flatnonzero(own == 0)
    if zero.size:
        style = {**_OWN, "marker": "<", "linestyle": "none", "clip_on": False}
        label = f"{outcome.words.own} 0, off the axis: {zero.size:,}"
        ax.plot(np.zeros(zero.size), zero, transform=ax.get_yaxis_transform(), label=label, **style)


# --- shrinkage -----------------------------------------------------------------------------------


@checked(score=NAME, ax=AX, seed=SEED, **_COLUMNS)
def plot_shrinkage(
    table: Any,
    *,
    score: str,
    count: str | None = None,
    exposure: str | None = None,
    value: str | None = None,
    noise_sd: str | None = None,
    successes: str | None = None,
    trials: str | None = None,
    ax: Axes | None = None,
    seed: int = 0,
) -> Axes:
    """Draw each item's posterior mean against its own rate, count / exposure, or its own value.

    Points on the dashed line keep their own rate or value; the arrows of some items show how far
    the others are pulled, the more the smaller their exposure or the larger their noise. Items
    without events stand apart at the left.

    Parameters
    ----------
    table, count, exposure, value, noise_sd, successes, trials, ax
        As of `plot_forest`; of quantiles the table needs none, and outcomes must be named.
    score
        Column of the scores, which colour the points.
    seed
        Seed of the random 2,000 items that are drawn if there are more.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    ItemsError
        If the table or its columns are not as above, or no item has any exposure.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> scored = soc.item_posteriors(fit, items)
    >>> ax = soc.plots.plot_shrinkage(scored, score="score", count="count", exposure="exposure")
    >>> len(ax.collections) > 0
    True
    """
    rng = np.random.default_rng(seed)
    columns = {
        "count": count,
        "exposure": exposure,
        "value": value,
        "noise_sd": noise_sd,
        "successes": successes,
        "trials": trials,
    }
    outcome = _outcome_of(columns)
    if outcome is None or columns[outcome.size] is None:
        raise ItemsError(f"name the columns {_PAIRS}")
    own_columns = (str(columns[role]) for role in (outcome.observed, outcome.size))
    names = [score, *own_columns, "theta_mean"]
    frame = some_columns(table, names)
    t, y, size, theta = (item_numbers(frame, name) for name in names)
    own = outcome.estimate(y, size)
    known = np.isfinite(own) & (size > 0) & np.isfinite(theta)
    usable = np.flatnonzero(known & (theta > outcome.theta.low))
    if not usable.size:
        raise ItemsError(f"no item has a positive {names[2]!r} and theta_mean: nothing to draw")
    rates = _are_rates(outcome, theta[usable], own[usable])
    least = 0.0 if rates else -np.inf
    at = usable if len(usable) <= _ITEMS else np.asarray(rng.choice(usable, _ITEMS, replace=False))
    t, own, size, theta = t[at], own[at], size[at], theta[at]
    seen = own > least
    left = _place_zeros(own, seen, theta, rng)
    ax = canvas.panels_in(ax, (7.5, 6))[0]
    power = 1.0 if outcome.sizes_add else -1.0
    _points(ax, own, theta, t, size**power, score, rates)
    high = float(max(own.max(), theta.max()))
    ends = np.array([min(own[seen].min(initial=high), theta.min()), high])
    ax.plot(ends, ends, color=canvas.REFERENCE, linewidth=1, linestyle="--", zorder=1)
    _arrows(ax, own, theta, seen)
    if rates:
        _log_axes(ax, left, own, theta)
    _size_legend(ax, size**power, canvas.named(outcome.words.size, names[2]), power)
    across = f"{outcome.words.own}: {_own_name(outcome, columns)}"
    up = f"posterior mean of theta, {_unit(outcome, columns)}"
    canvas.finish(ax, f"Shrinkage (n = {_some(at, usable)})", across, up, legend=False)
    return ax


def _are_rates(outcome: Outcome, *theta: Floats) -> bool:
    """Whether theta is drawn on a logarithmic axis: if it is positive, and as a share small."""
    most = max(float(np.nanmax(each, initial=0.0)) for each in theta)
    return outcome.positive and most < 0.5 * outcome.theta.high


def _some(drawn: Sized, of: Sized) -> str:
    """How many items are drawn, of how many."""
    return f"{len(drawn):,} of {len(of):,} items" if len(drawn) < len(of) else f"{len(of):,} items"


def _place_zeros(
    own: Floats, seen: NDArray[np.bool_], theta: Floats, rng: np.random.Generator
) -> float | None:
    """Move own rates of 0 to a place left of all others on a logarithmic axis, if there are any."""
    if seen.all():
        return None
    place = float(min(own[seen].min(initial=np.inf), theta.min())) / 3
    own[~seen] = place * np.exp(rng.uniform(-0.35, 0.35, int((~seen).sum())))
    return place


def _points(
    ax: Axes, own: Floats, theta: Floats, t: Floats, size: Floats, score: str, rates: bool
) -> None:
    """Items coloured by the score, of areas that grow with their size."""
    low, high = (float(q) for q in np.quantile(t, [0.01, 0.99]))
    high = high if high > low else low + 1e-12 + abs(low)
    norm = colors.LogNorm(low, high) if rates and low > 0 else colors.Normalize(low, high)
    # items of a large size are few and drawn last, on top
    order = np.argsort(size, kind="stable")
    areas = _areas(size, float(size.min()), float(size.max()))[order]
    style: dict[str, Any] = {"cmap": "viridis", "alpha": 0.6, "linewidths": 0, "zorder": 2}
    points = ax.scatter(own[order], theta[order], s=areas, c=t[order], norm=norm, **style)
    bar = ax.figure.colorbar(points, ax=ax, label=canvas.named("score", score), shrink=0.7)
    bar.ax.yaxis.set_major_formatter(ticker.FuncFormatter(canvas.plain))
    bar.ax.yaxis.set_minor_formatter(ticker.NullFormatter())


def _areas(size: Floats, low: float, high: float) -> Floats:
    """Areas of points that grow with the logarithm of the size, from `low` to `high`."""
    if high == low:
        return np.full(len(size), 30.0)
    return np.asarray(6.0 + 54.0 * np.log(size / low) / np.log(high / low))


def _arrows(ax: Axes, own: Floats, theta: Floats, seen: NDArray[np.bool_]) -> None:
    """Arrows from the identity, an item's own estimate, to its posterior mean, for a few items."""
    at = np.flatnonzero(seen)
    at = at[np.argsort(own[at])]
    at = at[:: max(1, len(at) // _ARROWS)]
    segments = [[(own[i], own[i]), (own[i], theta[i])] for i in at]
    style: dict[str, Any] = {"colors": canvas.GREY, "linewidths": 0.6, "alpha": 0.7, "zorder": 1}
    ax.add_collection(LineCollection(segments, **style))
    down = theta[at] < own[at]
    for marker, mask in (("v", down), ("^", ~down)):
        ax.plot(own[at][mask], theta[at][mask], marker, color=canvas.GREY, markersize=3, zorder=3)


def _log_axes(ax: Axes, left: float | None, own: Floats, theta: Floats) -> None:
    """Logarithmic axes with a labelled place for rate 0."""
    bottom, top = float(theta.min()), float(theta.max())
    low, high = min(float(own.min()), bottom), max(float(own.max()), top)
    canvas.rate_axis(ax.yaxis, bottom, top)
    canvas.rate_axis(ax.xaxis, low, high)
    ax.set_xlim(low / 1.2, high * 1.3)
    ax.set_ylim(bottom / 1.3, top * 1.3)
    if left is None:
        return
    ax.axvline(left * 1.65, color=canvas.GREY, linewidth=0.6)
    ticks = [x for x in ax.get_xticks() if left * 1.65 < x <= high * 1.3]
    ax.set_xticks([left, *ticks], ["0", *(canvas.plain(x) for x in ticks)])
    ax.xaxis.set_minor_locator(ticker.NullLocator())  # a rate of 0 has no place among decades


def _size_legend(ax: Axes, size: Floats, title: str, power: float) -> None:
    """Areas of the least, the median and the largest size, labelled with sizes to a power."""
    levels = np.unique(np.quantile(size, [0.0, 0.5, 1.0]))
    areas = _areas(levels, float(size.min()), float(size.max()))
    for level, area in zip(levels, areas, strict=True):
        label = canvas.plain(float(f"{level**power:.3g}"))
        ax.scatter([], [], s=area, color=canvas.GREY, label=label)
    ax.legend(title=title, frameon=False, fontsize=8, title_fontsize=8, loc="lower right")
