"""Hanging rootograms: how often outcomes were seen, beside how often the model says."""

from itertools import pairwise
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray
from scipy.special import ndtri

from .._lib.arguments import instance
from .._lib.errors import FitError
from ..checks._check import CheckResult
from .arguments import need_ax, need_prob
from .style import BLUE, GREY, ORANGE, RED, number_of, plain, tidy

__all__ = ["plot_rootogram"]

Floats = NDArray[np.float64]

_SINGLE = 16  # counts below it have a bar of their own
_CELLS = 30  # bars of values
_FEW = 20  # with fewer replicates their quantiles are no band
_ENDS = (0.005, 0.995)  # quantiles of values between which bars are of equal widths
_TICKS = np.array([a * 10.0**k for k in range(9) for a in (1, 3)])


def plot_rootogram(result: CheckResult, prob: float = 0.9, ax: Axes | None = None) -> Axes:
    """Draw a hanging rootogram: how many items had each outcome, against the fit's predictions.

    The line is the number of items that the fit expects to have a count (or a value between two
    ends), on the scale of square roots, on which all have like errors. From it hang bars as long as
    the root of the number seen: their feet stand at 0 where prediction and data agree. The grey
    band is where the feet are with the given probability if the fit is right, at each bar by
    itself; bars whose feet are outside are coloured. Feet below 0: more such items than predicted.

    Parameters
    ----------
    result
        What `soc.check` returned for items. It keeps a random subset of them, which is drawn.
    prob
        Probability of the band.
    ax
        Axes to draw in; None makes a figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes.

    Raises
    ------
    FitError
        If `result` is not that of a check, the check was made on statistics, which keep no
        replicated outcomes, `prob` is not between 0 and 1, or `ax` is no axes.

    Notes
    -----
    Tukey's hanging rootogram; see Kleiber and Zeileis, "Visualizing count data regressions using
    rootograms", The American Statistician 70 (2016), 296-303. Counts from 16 on share bars with
    their neighbours. The band comes from replicated outcomes. A fit of one draw has one replicate,
    whose roots of numbers have an sd near 1/2 as those of the data have: the band is then that of
    their difference.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> frame = soc.simulation.s1(2000, seed=0)
    >>> items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    >>> fit = soc.fit(soc.summarize(items, progress=False), progress=False)
    >>> result = soc.check(fit, items, progress=False)
    >>> soc.plots.plot_rootogram(result).get_ylabel()
    'items (scale of square roots)'
    """
    instance(result, "result", CheckResult, "what soc.check(fit, items) returned")
    need_prob(prob)
    need_ax(ax)
    if "posterior_predictive" not in result.data.children:
        raise FitError(
            "the check was made on statistics and so has no replicated outcomes of items: draw "
            "that of soc.check(fit, items)"
        )
    seen = result.data["observed_data"].to_dataset()
    counts = "count" in seen
    name = "count" if counts else "value"
    observed = seen[name].to_numpy()
    new = result.data["posterior_predictive"][name].transpose("chain", "draw", "item").to_numpy()
    new = new.reshape(-1, len(observed))
    edges = _count_edges(observed, new) if counts else _value_edges(observed, new)
    number = _numbers(observed[None], edges)[0]
    replicated = _numbers(new, edges)
    expected = replicated.mean(axis=0)
    low, high = _band(expected, replicated, prob)
    figure = None
    if ax is None:
        figure, ax = plt.subplots(figsize=(7.5, 4.8), layout="constrained")
    if counts:
        place, width = np.arange(len(expected), dtype=float), np.full(len(expected), 0.86)
    else:
        place, width = 0.5 * (edges[1:] + edges[:-1]), 0.9 * np.diff(edges)
    _draw(ax, place, width, np.sqrt(expected), np.sqrt(number), (low, high), prob)
    _label(ax, counts, edges, place, float(np.sqrt(max(expected.max(), number.max()))))
    held = f"{number_of(len(observed), 'item')}, {number_of(len(new), 'replicate')}"
    ax.set_title(f"Hanging rootogram ({held})", fontsize=10, loc="left")
    if figure is None:
        ax.legend(fontsize=8, edgecolor="none", framealpha=0.85)
    else:
        figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    return ax


def _count_edges(observed: NDArray[Any], new: NDArray[Any]) -> Floats:
    """Lower ends of cells of counts, and the end of the last: single counts, then wider cells."""
    # replicates are many: their extremes would add bars in which next to nothing is expected
    most = int(max(observed.max(), np.quantile(new, 1 - 0.5 / new.shape[1])))
    edges = list(range(min(most, _SINGLE - 1) + 1))
    while edges[-1] < most:
        step = max(1, (edges[-1] + 1) // 4)
        edges.append(edges[-1] + 1 if edges[-1] < _SINGLE else edges[-1] + step)
    return np.array([*edges, np.inf])


def _value_edges(observed: NDArray[Any], new: NDArray[Any]) -> Floats:
    """Edges of cells of equal width over nearly all values; the outer two take what lies beyond."""
    low, high = np.quantile(np.concatenate([observed, new[0]]), _ENDS)
    if low == high:
        low, high = low - 1.0, high + 1.0
    return np.linspace(low, high, _CELLS + 1)


def _numbers(outcome: NDArray[Any], edges: Floats) -> Floats:
    """Outcomes in each cell, (replicates, cells)."""
    cells = len(edges) - 1
    found = np.empty((len(outcome), cells))
    for own, row in zip(outcome, found, strict=True):
        cell = np.clip(np.searchsorted(edges, own, side="right") - 1, 0, cells - 1)
        row[:] = np.bincount(cell, minlength=cells)
    return found


def _band(expected: Floats, replicated: Floats, prob: float) -> tuple[Floats, Floats]:
    """Where the feet of bars are if the fit is right."""
    if len(replicated) >= _FEW:
        ends = np.quantile(replicated, [(1 + prob) / 2, (1 - prob) / 2], axis=0)
        low, high = np.sqrt(expected) - np.sqrt(ends)
        return low, high
    reach = ndtri((1 + prob) / 2) * 0.5 * np.sqrt(1.0 + 1.0 / len(replicated))
    return np.full(len(expected), -reach), np.full(len(expected), reach)


def _draw(
    ax: Axes,
    place: Floats,
    width: Floats,
    expected: Floats,
    seen: Floats,
    band: tuple[Floats, Floats],
    prob: float,
) -> None:
    """Bars that hang from the expected numbers, and the band of their feet."""
    foot = expected - seen
    inside = (foot >= band[0] - 1e-9) & (foot <= band[1] + 1e-9)
    style: dict[str, Any] = {"alpha": 0.55, "linewidth": 0, "zorder": 2}
    for mask, colour, words in ((inside, BLUE, "inside"), (~inside, ORANGE, "outside")):
        if mask.any():
            label = f"items seen: {number_of(int(mask.sum()), 'bar')} {words} the band"
            style |= {"color": colour, "label": label}
            ax.bar(place[mask], -seen[mask], width[mask], expected[mask], **style)
    step = np.append(place - 0.5 * width / 0.9, place[-1] + 0.5 * width[-1] / 0.9)
    low, high = (np.append(end, end[-1]) for end in band)
    shade: dict[str, Any] = {"step": "post", "color": GREY, "alpha": 0.4, "linewidth": 0}
    label = f"{prob:.0%} band of the feet, at each bar"
    ax.fill_between(step, low, high, label=label, zorder=3, **shade)
    ax.axhline(0, color=GREY, linewidth=0.9, zorder=3)
    line: dict[str, Any] = {"color": RED, "markersize": 3, "linewidth": 1.4, "zorder": 4}
    ax.plot(place, expected, "o-", label="expected items", **line)


def _label(ax: Axes, counts: bool, edges: Floats, place: Floats, highest: float) -> None:
    """Numbers of items at their roots, and counts below their bars."""
    ticks = [0.0]
    for number in _TICKS:
        if np.sqrt(number) - np.sqrt(ticks[-1]) > 0.07 * highest:
            ticks.append(float(number))
    ticks = [t for t in ticks if np.sqrt(t) <= 1.02 * highest]
    ax.set_yticks(np.sqrt(ticks), [plain(t) for t in ticks])
    ax.set_ylabel("items (scale of square roots)")
    if counts:
        ax.set_xticks(place, _ranges(edges), fontsize=8)
        if len(place) > 12:
            ax.tick_params(axis="x", rotation=90)
        several = f" (from {_SINGLE} on several share a bar)" if edges[-2] > _SINGLE else ""
        ax.set_xlabel(f"count of an item{several}")
    else:
        ax.set_xlabel("value of an item (the outer bars hold all beyond)")
    tidy(ax)
    if counts:
        ax.grid(visible=False, axis="x")
    ax.set_ylim(top=1.04 * highest)


def _ranges(edges: Floats) -> list[str]:
    """Names of cells of counts."""
    names = []
    for low, high in pairwise(edges):
        if not np.isfinite(high):
            names.append(f"{low:,.0f}+")
        else:
            names.append(f"{low:,.0f}" if high - low == 1 else f"{low:,.0f}-{high - 1:,.0f}")
    return names
