"""Shrinkage: how far posterior means are pulled from the items' own outcomes."""

from typing import Any

import numpy as np
from matplotlib import colors, ticker
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from .._lib.arguments import A, OrNone, checked, shown
from .._lib.arrays import Floats
from .._lib.errors import ItemsError
from ..data.sources import open_table
from ..families.outcomes import OUTCOMES, Outcome
from ..families.scales import LOG
from . import style
from .style import AX

_NAME = A(str, "the name of a column", ItemsError)
_ROLES = [role for outcome in OUTCOMES.values() for role in (outcome.observed, outcome.size)]
_COLUMNS = {role: OrNone(_NAME) for role in _ROLES}
_PAIRS = ", or ".join(f"{kind.observed}= and {kind.size}=" for kind in OUTCOMES.values())
_ITEMS = 2000  # points drawn at most
_LINES = 60
_LOOK: dict[str, Any] = {"cmap": "viridis", "alpha": 0.6, "linewidths": 0, "zorder": 2}
_PULL: dict[str, Any] = {"colors": style.GREY, "linewidths": 0.6, "alpha": 0.7, "zorder": 1}


@checked(score=_NAME, ax=AX, **_COLUMNS)
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
) -> Axes:
    """Draw each item's posterior mean against its own rate, count / exposure, or its own value.

    Points on the dashed line keep their own rate or value; lines show how far some of the others
    are pulled. Items without events stand apart at the left. Of more than 2,000 items as many are
    drawn at random.

    Parameters
    ----------
    table, score
        What `soc.item_posteriors` returned: a table with ``theta_mean``; and the column of the
        scores, which colour the points.
    count, exposure, value, noise_sd, successes, trials
        Columns of the outcomes and their sizes: one of the three pairs.
    ax
        Axes to draw in; None makes a figure.

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
    rng = np.random.default_rng(0)
    columns = dict(zip(_ROLES, (count, exposure, value, noise_sd, successes, trials), strict=True))
    outcome = _outcome_of(columns)
    observed, sizes = str(columns[outcome.observed]), str(columns[outcome.size])
    t, y, size, theta = _numbers(table, [score, observed, sizes, "theta_mean"])
    rate = outcome.estimate(y, size)
    finite = np.isfinite(rate) & (size > 0) & np.isfinite(theta)
    usable = np.flatnonzero(finite & (theta > outcome.theta.low))
    if not usable.size:
        raise ItemsError(f"no item has a positive {sizes!r} and theta_mean: nothing to draw")
    drawn = usable if len(usable) <= _ITEMS else rng.choice(usable, _ITEMS, replace=False)
    t, rate, size, theta = t[drawn], rate[drawn], size[drawn], theta[drawn]
    high = max(float(theta.max()), float(rate.max()))
    rates = outcome.positive and high < 0.5 * outcome.theta.high  # and shares are small
    on_axis = rate > (0.0 if rates else -np.inf)
    ends = np.array([min(rate[on_axis].min(initial=high), theta.min()), high])
    if not on_axis.all():  # a place left of all others on a logarithmic axis
        jitter = rng.uniform(-0.35, 0.35, int((~on_axis).sum()))
        rate[~on_axis] = ends[0] / 3 * np.exp(jitter)
    ax = style.panels(ax, (7.5, 6))[0]
    power = 1.0 if outcome.sizes_add else -1.0
    _points(ax, rate, theta, t, size**power, score, rates)
    ax.plot(ends, ends, color=style.REFERENCE, linewidth=1, linestyle="--", zorder=1)
    order = np.flatnonzero(on_axis)[np.argsort(rate[on_axis])]
    pulled = order[:: max(1, len(order) // _LINES)]
    segments = [[(rate[i], rate[i]), (rate[i], theta[i])] for i in pulled]
    ax.add_collection(LineCollection(segments, **_PULL))
    if rates:
        _log_axes(ax, None if on_axis.all() else ends[0] / 3, rate, theta)
    _size_legend(ax, size**power, style.named(outcome.words.size, sizes), power)
    name, unit = style.escaped(observed, 20), style.escaped(sizes, 20)
    across = f"{outcome.words.estimate}: {name}" + ("" if outcome.direct else f" / {unit}")
    events = outcome.words.events if outcome.direct else name
    up = f"posterior mean of theta, {outcome.words.unit.format(outcome=events, size=unit)}"
    number = f"{len(drawn):,} of {len(usable):,}" if len(drawn) < len(usable) else f"{len(drawn):,}"
    style.finish(ax, f"Shrinkage (n = {number} items)", across, up, legend=False)
    return ax


def _outcome_of(columns: dict[str, str | None]) -> Outcome:
    """Return the kind whose two columns are named."""
    roles = {role for role, name in columns.items() if name}
    for outcome in OUTCOMES.values():
        if roles == {outcome.observed, outcome.size}:
            return outcome
    names = ", ".join(f"{role}={shown(columns[role])}" for role in columns if role in roles)
    raise ItemsError(f"{names or 'no outcomes'}: name both columns, {_PAIRS}, and no others")


def _numbers(table: Any, names: list[str]) -> list[Floats]:
    """Return columns of a table as numbers, NaN where they are missing."""
    frame = open_table(table, list(dict.fromkeys(names))).to_pandas()
    try:
        return [frame[name].to_numpy(dtype=float, na_value=np.nan) for name in names]
    except (TypeError, ValueError, OverflowError):
        listed = ", ".join(map(repr, names))
        raise ItemsError(f"columns {listed} must be numeric, as from soc.item_posteriors") from None


def _points(
    ax: Axes, rate: Floats, theta: Floats, t: Floats, size: Floats, score: str, rates: bool
) -> None:
    """Draw items coloured by the score, with areas that grow with their size."""
    low, high = (float(q) for q in np.quantile(t, [0.01, 0.99]))
    logarithmic = rates and 0 < low < high
    norm = colors.LogNorm(low, high) if logarithmic else colors.Normalize(low, high)
    # items of a large size are few and drawn last, on top
    order = np.argsort(size, kind="stable")
    areas = _areas(size[order], size)
    points = ax.scatter(rate[order], theta[order], s=areas, c=t[order], norm=norm, **_LOOK)
    bar = ax.figure.colorbar(points, ax=ax, label=style.named("score", score), shrink=0.7)
    if logarithmic:
        style.plain_ticks(bar.ax.yaxis, low, high)


def _areas(size: Floats, sizes: Floats) -> Floats:
    """Return areas of points that grow with the logarithm of the size, within those drawn."""
    low, high = sizes.min(), sizes.max()
    return np.asarray(6.0 + 54.0 * np.log(size / low) / max(np.log(high / low), 1e-300))


def _log_axes(ax: Axes, zeros: float | None, rate: Floats, theta: Floats) -> None:
    """Make both axes logarithmic, with a labelled place for rate 0."""
    bottom, top = float(theta.min()), float(theta.max())
    low, high = min(float(rate.min()), bottom), max(float(rate.max()), top)
    style.scaled_axis(ax.yaxis, LOG.name, bottom, top)
    style.scaled_axis(ax.xaxis, LOG.name, low, high)
    ax.set_xlim(low / 1.2, high * 1.3)
    ax.set_ylim(bottom / 1.3, top * 1.3)
    if zeros is None:
        return
    ax.axvline(zeros * 1.65, color=style.GREY, linewidth=0.6)
    ticks = [x for x in ax.get_xticks() if zeros * 1.65 < x <= high * 1.3]
    ax.set_xticks([zeros, *ticks], ["0", *(style.plain(x) for x in ticks)])
    ax.xaxis.set_minor_locator(ticker.NullLocator())  # a rate of 0 does not belong among decades


def _size_legend(ax: Axes, size: Floats, title: str, power: float) -> None:
    """Explain the areas of the least, the median and the largest size to a power."""
    levels = np.unique(np.quantile(size, [0.0, 0.5, 1.0]))
    for level, area in zip(levels, _areas(levels, size), strict=True):
        label = style.plain(float(f"{level**power:.3g}"))
        ax.scatter([], [], s=area, color=style.GREY, label=label)
    ax.legend(title=title, title_fontsize=8, loc="lower right", **style.FRAMELESS)
