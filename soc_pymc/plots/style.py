"""Colours, axes and labels shared by all pictures, and pictures as images of a page."""

import base64
import io
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.axis import Axis, XAxis, YAxis
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from .._lib.arguments import A, FitError, shown
from ..families.scales import LOG, LOGIT

# Okabe and Ito (2008): told apart with every kind of colour vision
ORANGE = "#E69F00"
SKY = "#56B4E9"
GREEN = "#009E73"
BLUE = "#0072B2"
RED = "#D55E00"
PURPLE = "#CC79A7"
GREY = "#666666"
BLACK = "#000000"
# for groups and scores
PALETTE = (BLUE, ORANGE, GREEN, RED, SKY, PURPLE, BLACK)
# what the fit says, outcomes, no difference
CURVE = BLUE
OBSERVED = ORANGE
REFERENCE = GREY
VERDICT_COLORS = {"ok": BLUE, "warn": ORANGE, "fail": RED}
FRAMELESS: dict[str, Any] = {"frameon": False, "fontsize": 8}
# points of a legend: of a letter, a line, and a key
_LETTER = 4.6
_LINE = 14.0
_KEY = 40.0
# labelled digits of logarithmic axes of at most so many decades
_DIGITS = {0.8: (1.0, 1.5, 2.0, 3.0, 5.0, 7.0), 2.0: (1.0, 2.0, 5.0), 3.5: (1.0, 3.0)}
# of images, whose width in inches lets letters be read on a phone
_DPI = 160
_WIDE = 5.6

# axes
type Panels = NDArray[np.object_]

AX = A(Axes | None, "matplotlib axes to draw in, or None", FitError)


def panels(
    axes: Axes | Sequence[Axes] | Panels | None,
    size: tuple[float, float],
    rows: int = 1,
    columns: int = 1,
    **options: object,
) -> Panels:
    """Return the user's axes, or those of a new figure of this size in inches, in one row."""
    if axes is None:
        _, axes = plt.subplots(
            rows, columns, figsize=size, layout="constrained", **options
        )
    row = np.ravel(np.asarray(axes, dtype=object))
    if not all(isinstance(ax, Axes) for ax in row):
        raise FitError(f"axes={shown(axes)} must be matplotlib axes in a list, or None")
    if len(row) != rows * columns:
        raise FitError(
            f"axes holds {len(row)} axes, the picture needs {rows * columns}"
        )
    return row


def finish(
    ax: Axes, title: str, x: str, y: str, legend: bool = True, fontsize: int = 10
) -> None:
    """Set title, labels, a legend above the axes, a light grid behind the data, and no box."""
    labels = ax.get_legend_handles_labels()[1] if legend else []
    lines = 0
    # without a layout engine, nothing makes room outside the axes
    if labels and ax.figure.get_layout_engine() is None:
        ax.legend(**FRAMELESS)
    elif labels:
        width = 72 * ax.bbox.width / ax.figure.dpi
        columns = max(1, int(width / (_KEY + _LETTER * max(map(len, labels)))))
        lines = -(-len(labels) // columns)
        place = {"loc": "lower left", "bbox_to_anchor": (0, 1)}
        ax.legend(ncols=columns, borderaxespad=0, **place, **FRAMELESS)
    ax.set_title(title, fontsize=fontsize, loc="left", pad=6 + _LINE * lines)
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    ax.set_axisbelow(True)
    ax.grid(True, color="#e6e6e6", linewidth=0.6)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)


def scaled_axis(axis: XAxis | YAxis, scale: str, values: ArrayLike) -> None:
    """Make an axis of values (``ax.xaxis``) logarithmic or logit, by the scale's name, if any."""
    if scale not in (LOG.name, LOGIT.name):
        return
    set_scale = axis.axes.set_xscale if axis.axis_name == "x" else axis.axes.set_yscale
    set_scale(scale)
    if scale == LOG.name:
        plain_ticks(axis, values)
    else:
        axis.set_major_locator(ticker.LogitLocator(nbins=7))
        axis.set_major_formatter(plain)
        axis.set_minor_locator(ticker.NullLocator())


def plain_ticks(axis: Axis, values: ArrayLike) -> None:
    """Label a logarithmic axis of values, such as that of a colour bar, with plain numbers."""
    numbers = np.asarray(values, dtype=float)
    decades = np.log10(np.nanmax(numbers) / np.nanmin(numbers))
    if decades < 0.5:
        axis.set_major_locator(ticker.MaxNLocator(5))
    else:
        digits = next((d for most, d in _DIGITS.items() if decades <= most), (1.0,))
        axis.set_major_locator(ticker.LogLocator(base=10, subs=digits, numticks=12))
    axis.set_major_formatter(plain)
    axis.set_minor_formatter(ticker.NullFormatter())


def is_rate(value: ArrayLike) -> bool:
    """Return whether values are positive and span more than an octave: for a logarithmic axis."""
    numbers = np.asarray(value, dtype=float)
    numbers = numbers[np.isfinite(numbers)]
    return bool(
        numbers.size and numbers.min() > 0 and numbers.max() > 2.0 * numbers.min()
    )


def plain(value: float, _: object = None) -> str:
    """Format a number as a short decimal, or as a power of ten where that would be long."""
    if value == 0 or 1e-4 <= abs(value) < 1e5:
        return f"{value:,.10g}"
    return f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e")


def escaped(name: object, most: int = 40) -> str:
    """Return a user's name as plain text on one line: nothing in it is read as mathematics."""
    words = " ".join(str(name).split())
    words = words if len(words) <= most else f"{words[: most - 1]}…"
    # else it is read as mathematics, which may be an error
    words = words.replace("$", r"\$")
    # legends leave out labels that begin with an underscore
    return f"\u200b{words}" if words.startswith("_") else words


def named(what: str, name: object) -> str:
    """Return the role of a column, with its name where the two differ: "score (ctr)"."""
    return what if name is None or name == what else f"{what} ({escaped(name)})"


def picture_of(
    plot: Callable[..., object],
    *arguments: object,
    height: float,
    panels: Sequence[float] | None = None,
    **options: object,
) -> dict[str, Any]:
    """Return an image by a function of `soc.plots`: its data URL, and its size in pixels."""
    with plt.style.context("default"), warnings.catch_warnings():
        # letters that the font lacks are boxes in a picture, and text in the table beside it
        warnings.filterwarnings("ignore", "Glyph ", UserWarning)
        figure = Figure(figsize=(_WIDE, height), layout="constrained")
        image = io.BytesIO()
        if panels is None:
            options["ax"] = figure.subplots()
        else:
            shared = len(panels) == 2
            options["axes"] = figure.subplots(
                len(panels), sharex=shared, height_ratios=panels
            )
        plot(*arguments, **options)
        figure.savefig(image, format="png", dpi=_DPI, metadata={"Software": None})
    data = base64.b64encode(image.getvalue()).decode("ascii")
    sizes = {"width": round(96 * _WIDE), "height": round(96 * height)}
    return {"source": f"data:image/png;base64,{data}", **sizes}
