"""Colours and axes shared by all pictures."""

from typing import Any

import numpy as np
from matplotlib import ticker
from matplotlib.axes import Axes

__all__ = ["BLUE", "GREEN", "GREY", "ORANGE", "PALETTE", "RED", "SKY", "plain", "rate_axis", "tidy"]

# Okabe and Ito (2008): told apart with every kind of colour vision
ORANGE, SKY, GREEN = "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, RED, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
GREY = "#666666"
PALETTE = (BLUE, ORANGE, GREEN, RED, SKY, PURPLE, YELLOW)


def tidy(ax: Axes) -> None:
    """Light grid behind the data, no box."""
    ax.set_axisbelow(True)
    ax.grid(True, color="#e6e6e6", linewidth=0.6)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)


def plain(value: float, _: Any = None) -> str:
    """Short decimal, or a power of ten where that would be long."""
    if value == 0 or 1e-4 <= abs(value) < 1e5:
        return f"{value:,.10g}"
    return f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e")


def rate_axis(axis: Any, low: float, high: float) -> None:
    """Logarithmic axis over positive values, labelled with plain numbers at 1, 2 and 5.

    Parameters
    ----------
    axis
        ``ax.xaxis`` or ``ax.yaxis``.
    low, high
        Range of the values shown.
    """
    setter = axis.axes.set_xscale if axis.axis_name == "x" else axis.axes.set_yscale
    setter("log")
    decades = np.log10(high / low)
    if decades < 0.5:
        axis.set_major_locator(ticker.MaxNLocator(5))
    else:
        digits = (1.0, 2.0, 5.0) if decades <= 2 else (1.0, 3.0) if decades <= 3.5 else (1.0,)
        axis.set_major_locator(ticker.LogLocator(base=10, subs=digits, numticks=12))
    axis.set_major_formatter(ticker.FuncFormatter(plain))
    axis.set_minor_formatter(ticker.NullFormatter())
