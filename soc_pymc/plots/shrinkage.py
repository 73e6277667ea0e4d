"""How far the posterior pulls each item's own rate or value."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib import colors, ticker
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from numpy.typing import NDArray

from .._lib.arguments import shown, whole
from .._lib.errors import ItemsError
from .arguments import need_ax
from .item_tables import frame_of, need_column, numbers_of
from .style import GREY, escaped, named, plain, rate_axis, tidy

__all__ = ["plot_shrinkage"]

Floats = NDArray[np.float64]

_ITEMS = 2000
_SEGMENTS = 60


def plot_shrinkage(
    table: Any,
    *,
    score: str,
    count: str | None = None,
    exposure: str | None = None,
    value: str | None = None,
    noise_sd: str | None = None,
    ax: Axes | None = None,
    seed: int = 0,
) -> Axes:
    """Draw each item's posterior mean against its own rate, count / exposure, or its own value.

    Points on the dashed line keep their own rate or value; the arrows of some items show how far
    the others are pulled, the more the smaller their exposure or the larger their noise. Items
    without events stand apart at the left.

    Parameters
    ----------
    table
        What `soc.item_posteriors` returned: a pandas, Polars or Arrow table with ``theta_mean``.
    score
        Column of the scores, which colour the points.
    count, exposure
        Columns of counts and their exposures; or
    value, noise_sd
        columns of values and the sd of their noise.
    ax
        Axes to draw in; None makes a figure.
    seed
        Seed of the random 2,000 items that are drawn if there are more.

    Returns
    -------
    matplotlib.axes.Axes
        The axes that were drawn in.

    Raises
    ------
    ItemsError
        If `table` is no table, a column is missing or not named, or no item has any exposure.
    FitError
        If `ax` is no axes, or `seed` is no whole number.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> frame = soc.simulation.s1(2000, seed=0)
    >>> items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    >>> fit = soc.fit(soc.summarize(items, progress=False), progress=False)
    >>> scored = soc.item_posteriors(fit, items, progress=False)
    >>> ax = soc.plots.plot_shrinkage(scored, score="score", count="count", exposure="exposure")
    >>> len(ax.collections) > 0
    True
    """
    given = {"count": count, "exposure": exposure, "value": value, "noise_sd": noise_sd}
    for name, column in {"score": score, **given}.items():
        need_column(column, name)
    need_ax(ax)
    rng = np.random.default_rng(whole(seed, "seed", 0))
    if score is None:
        raise ItemsError(f"score={shown(score)} must be the name of a column")
    if count and exposure and not (value or noise_sd):
        return _shrink_counts(ax, table, (score, count, exposure), rng)
    if value and noise_sd and not (count or exposure):
        return _shrink_values(ax, table, (score, value, noise_sd), rng)
    raise ItemsError("name the columns count= and exposure=, or value= and noise_sd=")


def _shrink_counts(
    ax: Axes | None, table: Any, names: tuple[str, str, str], rng: np.random.Generator
) -> Axes:
    t, y, n, theta = _columns(table, names)
    usable = np.flatnonzero((n > 0) & (theta > 0))
    if not usable.size:
        raise ItemsError(f"no item has a positive {names[2]!r} and theta_mean: nothing to draw")
    ax = _made() if ax is None else ax
    at = _some(usable, rng)
    t, y, n, theta = t[at], y[at], n[at], theta[at]
    own, left = _own_rates(y, n, theta, rng)
    _points(ax, (own, theta), t, n, names[0], rates=True)
    low, high = float(min(own.min(), theta.min())), float(max(own.max(), theta.max()))
    ends = np.array([float(min(own[y > 0].min(initial=high), theta.min())), high])
    ax.plot(ends, ends, color=GREY, linewidth=1, linestyle="--", zorder=1)
    _arrows(ax, own, theta, y > 0)
    _finish(ax, left, (low, high), (float(theta.min()), float(theta.max())))
    _size_legend(ax, n, named("exposure", names[2]))
    count, exposure = (escaped(name, 24) for name in names[1:])
    unit = f"{count} per unit of {exposure}"
    return _named(ax, f"own rate: {count} / {exposure}", unit, len(at), len(usable))


def _shrink_values(
    ax: Axes | None, table: Any, names: tuple[str, str, str], rng: np.random.Generator
) -> Axes:
    t, y, s, theta = _columns(table, names)
    usable = np.flatnonzero(np.isfinite(y) & (s > 0) & np.isfinite(theta))
    if not usable.size:
        raise ItemsError(f"no item has a positive {names[2]!r} and theta_mean: nothing to draw")
    ax = _made() if ax is None else ax
    at = _some(usable, rng)
    t, y, s, theta = t[at], y[at], s[at], theta[at]
    _points(ax, (y, theta), t, 1.0 / s, names[0], rates=False)
    ends = np.array([min(y.min(), theta.min()), max(y.max(), theta.max())])
    ax.plot(ends, ends, color=GREY, linewidth=1, linestyle="--", zorder=1)
    _arrows(ax, y, theta, np.ones(len(y), dtype=bool))
    _size_legend(ax, 1.0 / s, named("noise sd", names[2]), power=-1.0)
    return _named(
        ax, f"own value: {escaped(names[1])}", "in the unit of the values", len(at), len(usable)
    )


def _made() -> Axes:
    _, ax = plt.subplots(figsize=(7.5, 6), layout="constrained")
    return ax


def _some(usable: NDArray[np.intp], rng: np.random.Generator) -> NDArray[np.intp]:
    if len(usable) <= _ITEMS:
        return usable
    return np.asarray(rng.choice(usable, _ITEMS, replace=False))


def _points(
    ax: Axes, at: tuple[Floats, Floats], t: Floats, size: Floats, score: str, rates: bool
) -> None:
    """Items coloured by the score, of areas that grow with their size."""
    own, theta = at
    # items of a large size are few and drawn last, on top
    order = np.argsort(size, kind="stable")
    points = ax.scatter(
        own[order],
        theta[order],
        s=_areas(size, float(size.min()), float(size.max()))[order],
        c=t[order],
        cmap="viridis",
        norm=_colour_scale(t, rates),
        alpha=0.6,
        linewidths=0,
        zorder=2,
    )
    bar = ax.figure.colorbar(points, ax=ax, label=named("score", score), shrink=0.7)
    bar.ax.yaxis.set_major_formatter(ticker.FuncFormatter(plain))
    bar.ax.yaxis.set_minor_formatter(ticker.NullFormatter())


def _named(ax: Axes, across: str, unit: str, drawn: int, total: int) -> Axes:
    ax.set_xlabel(across)
    ax.set_ylabel(f"posterior mean of theta, {unit}")
    shown = f"{drawn:,} of {total:,} items" if drawn < total else f"{total:,} items"
    ax.set_title(f"Shrinkage (n = {shown})", fontsize=10, loc="left")
    tidy(ax)
    return ax


def _columns(table: Any, names: tuple[str, str, str]) -> list[Floats]:
    """Score, outcome, its size and the posterior mean."""
    every = (*names, "theta_mean")
    frame = frame_of(table, every)
    return [numbers_of(frame, name) for name in every]


def _own_rates(
    y: Floats, n: Floats, theta: Floats, rng: np.random.Generator
) -> tuple[Floats, float | None]:
    """Own rates for a logarithmic axis, and the place of rate 0, left of all others, if any."""
    rate = y / n
    zero = y == 0
    if not zero.any():
        return rate, None
    least = float(min(rate[~zero].min(initial=np.inf), theta.min()))
    place = least / 3
    rate[zero] = place * np.exp(rng.uniform(-0.35, 0.35, int(zero.sum())))
    return rate, place


def _areas(exposure: Floats, low: float, high: float) -> Floats:
    """Areas of points that grow with the logarithm of the exposure, from `low` to `high`."""
    if high == low:
        return np.full(len(exposure), 30.0)
    return np.asarray(6.0 + 54.0 * np.log(exposure / low) / np.log(high / low))


def _colour_scale(score: Floats, rates: bool) -> colors.Normalize:
    low, high = (float(q) for q in np.quantile(score, [0.01, 0.99]))
    high = high if high > low else low + 1e-12 + abs(low)
    return colors.LogNorm(low, high) if rates and low > 0 else colors.Normalize(low, high)


def _arrows(ax: Axes, own: Floats, theta: Floats, seen: NDArray[np.bool_]) -> None:
    """Segments from the identity, an item's own rate, to its posterior mean, for a few items."""
    at = np.flatnonzero(seen)
    at = at[np.argsort(own[at])]
    at = at[:: max(1, len(at) // _SEGMENTS)]
    segments = [[(own[i], own[i]), (own[i], theta[i])] for i in at]
    ax.add_collection(LineCollection(segments, colors=GREY, linewidths=0.6, alpha=0.7, zorder=1))
    down = theta[at] < own[at]
    for marker, mask in (("v", down), ("^", ~down)):
        ax.plot(own[at][mask], theta[at][mask], marker, color=GREY, markersize=3, zorder=3)


def _finish(
    ax: Axes, left: float | None, across: tuple[float, float], up: tuple[float, float]
) -> None:
    """Logarithmic axes with a labelled place for rate 0."""
    rate_axis(ax.yaxis, *up)
    rate_axis(ax.xaxis, *across)
    ax.set_xlim(across[0] / 1.2, across[1] * 1.3)
    ax.set_ylim(up[0] / 1.3, up[1] * 1.3)
    if left is None:
        return
    ax.axvline(left * 1.65, color=GREY, linewidth=0.6)
    ticks = [x for x in ax.get_xticks() if left * 1.65 < x <= across[1] * 1.3]
    ax.set_xticks([left, *ticks], ["0", *(plain(x) for x in ticks)])
    ax.xaxis.set_minor_locator(ticker.NullLocator())  # a rate of 0 has no place among decades


def _size_legend(ax: Axes, size: Floats, title: str, power: float = 1.0) -> None:
    """Areas of the least, the median and the largest size, labelled with sizes to a power."""
    levels = np.unique(np.quantile(size, [0.0, 0.5, 1.0]))
    areas = _areas(levels, float(size.min()), float(size.max()))
    for level, area in zip(levels, areas, strict=True):
        ax.scatter([], [], s=area, color=GREY, label=plain(float(f"{level**power:.3g}")))
    ax.legend(title=title, frameon=False, fontsize=8, title_fontsize=8, loc="lower right")
