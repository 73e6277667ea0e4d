"""Colours, axes and labels shared by all pictures."""

from collections.abc import Iterable
from itertools import chain
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib import ticker
from matplotlib.axes import Axes
from numpy.typing import ArrayLike, NDArray

from .._lib.arrays import Floats
from ..families.scales import LOG, LOGIT, Scale
from .arguments import axes_in

# Okabe and Ito (2008): told apart with every kind of colour vision
ORANGE, SKY, GREEN = "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, RED, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
GREY, BLACK = "#666666", "#000000"
PALETTE = (BLUE, ORANGE, GREEN, RED, SKY, PURPLE, YELLOW)  # of fits, methods, estimators by name
# what a colour says in every picture
CURVE = BLUE  # a fitted curve, its band, a posterior
OBSERVED = ORANGE  # outcomes, of items or of bins
REFERENCE = GREY  # theta = t, no difference, what chance does
GIVEN = BLACK  # what no fit estimates: an item's score, the truth of a simulation
APART = RED  # what does not agree with the fit, or with the reference
BESIDE = GREEN  # a second estimate, beside the curve
MARKERS = "osD^v<>"
WIDEST = 8.0  # inches: a notebook shows it as it is
TOP = 0.985  # of axes: what lies beyond their upper end
MANY = 200  # dots in a panel: more are drawn smaller
FRAMELESS: dict[str, Any] = {"frameon": False, "fontsize": 8}
BOXED: dict[str, Any] = {"edgecolor": "none", "framealpha": 0.85, "fontsize": 8}
_DIGITS = (  # labelled digits, up to so many decades
    (0.8, (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)),
    (2.0, (1.0, 2.0, 5.0)),
    (3.5, (1.0, 3.0)),
    (np.inf, (1.0,)),
)
_SHARES = {  # labelled shares, with the order in which they are left out last
    x: rank
    for rank, shares in enumerate(
        [
            [0.5],
            [0.1, 0.9, 0.01, 0.99, 1e-3, 0.999, 1e-4, 0.9999],
            [0.2, 0.8, 0.05, 0.95, 0.02, 0.98, 0.005, 0.995],
            [0.3, 0.7, 0.4, 0.6, 0.002, 0.998],
        ]
    )
    for x in shares
}
_MOST_SHARES = 10


def panels_in(
    given: Any, size: tuple[float, float], rows: int = 1, columns: int = 1, **options: Any
) -> NDArray[Any]:
    """The user's axes, or those of a new figure of this size in inches, row by row."""
    if given is None:
        _, given = plt.subplots(rows, columns, figsize=size, layout="constrained", **options)
    return axes_in(given)


def tidy(ax: Axes) -> None:
    """Light grid behind the data, no box."""
    ax.set_axisbelow(True)
    ax.grid(True, color="#e6e6e6", linewidth=0.6)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)


def finish(ax: Axes, title: str, x: str, y: str, legend: bool = True) -> None:
    """Title at the left, labels, tidy axes, and a legend without a frame."""
    ax.set_title(title, fontsize=10, loc="left")
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    if legend:
        ax.legend(**FRAMELESS)
    tidy(ax)


def legend_of_panels(ax: Axes, own: bool, place: str, ncols: int = 2, **entries: Any) -> None:
    """A legend beside the panels of our own figure, else a boxed one in the user's axes."""
    if own:
        ax.figure.legend(loc=f"outside {place}", ncols=ncols, **entries, **FRAMELESS)
    else:
        ax.legend(**entries, **BOXED)


def legend_entries(axes: Iterable[Axes]) -> dict[str, Any]:
    """What a legend of all axes takes: handles and labels, each label once."""
    every = (zip(*ax.get_legend_handles_labels()[::-1], strict=True) for ax in axes)
    found = dict(chain.from_iterable(every))
    return {"handles": found.values(), "labels": found.keys()}


def plain(value: float, _: Any = None) -> str:
    """Short decimal, or a power of ten where that would be long."""
    if value == 0 or 1e-4 <= abs(value) < 1e5:
        return f"{value:,.10g}"
    return f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e")


def rate_axis(axis: Any, low: float, high: float) -> None:
    """Logarithmic axis (``ax.xaxis``) over positive values, with plain numbers at 1, 2 and 5."""
    setter = axis.axes.set_xscale if axis.axis_name == "x" else axis.axes.set_yscale
    setter("log")
    plain_ticks(axis, low, high)


def share_axis(axis: Any, low: float, high: float) -> None:
    """Logit axis over shares between 0 and 1, with plain numbers."""
    setter = axis.axes.set_xscale if axis.axis_name == "x" else axis.axes.set_yscale
    setter("logit")
    ends = LOGIT.position(np.array([low, high]))
    inside = [share for share in _SHARES if low <= share <= high]
    if len(inside) < 3:
        axis.set_major_locator(ticker.MaxNLocator(5))
    else:
        step = max(1.0, (ends[1] - ends[0]) / _MOST_SHARES)  # in units of log odds
        kept: list[float] = []
        for share in sorted(inside, key=lambda x: (_SHARES[x], x)):
            if all(abs(LOGIT.position(share) - LOGIT.position(x)) >= 0.5 * step for x in kept):
                kept.append(share)
        axis.set_major_locator(ticker.FixedLocator(sorted(kept)))
    axis.set_major_formatter(ticker.FuncFormatter(plain))
    axis.set_minor_locator(ticker.NullLocator())


def scaled_axis(axis: Any, scale: str, low: float, high: float) -> None:
    """Axis on a scale of scores or of theta, by its name: one without curvature stays linear."""
    if scale in _AXES:
        _AXES[scale](axis, low, high)


_AXES = {LOG.name: rate_axis, LOGIT.name: share_axis}


def far_ends(scale: Scale, low: float, high: float, factor: float) -> tuple[float, float]:
    """How far rates or odds lie that differ by a factor; infinite where a scale has no end."""
    step = np.log(factor)
    ends = scale.position(np.array([low, high]))
    return (
        float(scale.score(ends[0] - step)) if np.isfinite(scale.low) else -np.inf,
        float(scale.score(ends[1] + step)) if np.isfinite(scale.high) else np.inf,
    )


def plain_ticks(axis: Any, low: float, high: float) -> None:
    """Label a logarithmic axis, as that of a colour bar, with plain numbers."""
    decades = np.log10(high / low)
    if decades < 0.5:
        axis.set_major_locator(ticker.MaxNLocator(5))
    else:
        digits = next(subs for most, subs in _DIGITS if decades <= most)
        axis.set_major_locator(ticker.LogLocator(base=10, subs=digits, numticks=12))
    axis.set_major_formatter(ticker.FuncFormatter(plain))
    axis.set_minor_formatter(ticker.NullFormatter())


def is_rate(value: ArrayLike) -> bool:
    """Whether values are all positive and range over more than an octave: for a logarithmic axis.

    >>> is_rate([0.1, 0.3]), is_rate([10.0, 11.0]), is_rate([-1.0, 3.0])
    (True, False, False)
    """
    numbers = np.asarray(value, dtype=float)
    numbers = numbers[np.isfinite(numbers)]
    return bool(numbers.size and numbers.min() > 0 and numbers.max() > 2.0 * numbers.min())


def log_or_linear(axis: Any, value: ArrayLike) -> None:
    """Make an axis logarithmic where its values call for it, as `is_rate` says."""
    numbers = np.asarray(value, dtype=float)
    if is_rate(numbers):
        rate_axis(axis, float(np.nanmin(numbers)), float(np.nanmax(numbers)))


def escaped(name: Any, most: int = 40) -> str:
    r"""A user's own name as plain text on one line: nothing in it is read as mathematics.

    >>> escaped("cost $ per $")
    'cost \\$ per \\$'
    """
    words = " ".join(str(name).split())
    words = words if len(words) <= most else f"{words[: most - 1]}…"
    words = words.replace("$", r"\$")  # else mathematics, and an error where it is none
    return f"\u200b{words}" if words.startswith("_") else words  # legends leave out such labels


def named(what: str, name: Any) -> str:
    """What a column is, with its name where the two differ.

    >>> named("score", "ctr"), named("score", "score"), named("score", None)
    ('score (ctr)', 'score', 'score')
    """
    return what if name is None or name == what else f"{what} ({escaped(name)})"


def number_of(n: int, what: str) -> str:
    """A number with what it counts: "1 bin", "1,000 bins"."""
    return f"{n:,} {what}" if n == 1 else f"{n:,} {what}s"


def draw_dots(
    ax: Axes, x: ArrayLike, y: ArrayLike, color: str, label: str, zorder: float = 2.0
) -> None:
    """Draw a dot for each bin: small ones where there are many."""
    style: dict[str, Any] = {"markersize": 4.0 if np.size(x) <= MANY else 2.0, "markeredgewidth": 0}
    ax.plot(x, y, "o", color=color, label=label, zorder=zorder, **style)


def draw_floor(ax: Axes, across: Floats, label: str, foot: float = 0.015) -> None:
    """Mark by crosses at the axes' foot what has no place on a logarithmic axis, such as a 0.

    `foot` is its height as a share of the axes: near 1 for what lies beyond their top.
    The legend adds the number; nothing is drawn where there is nothing.
    """
    if across.size:
        style: dict[str, Any] = {
            "color": REFERENCE,
            "markersize": 4,
            "label": f"{label}: {len(across):,}",
        }
        ax.plot(
            across, np.full(len(across), foot), "x", transform=ax.get_xaxis_transform(), **style
        )
