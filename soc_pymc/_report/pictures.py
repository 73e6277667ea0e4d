"""Figures drawn without a screen, as images that are part of a page."""

import base64
import io
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

_DPI = 160
_WIDE = 5.6  # inches: letters can be read on a phone and are as large as text on a screen
_SETTINGS = {
    "text.usetex": False,
    "font.family": "DejaVu Sans",
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
}


@dataclass(frozen=True)
class Picture:
    """An image of the page."""

    source: str  # the image itself, as a data URL
    width: int  # pixels
    height: int


def picture_of(
    plot: Callable[..., Any], *arguments: Any, height: float, panels: Any = None, **options: Any
) -> Picture:
    """Draw one function of `soc.plots`, `height` inches high."""
    with mpl.rc_context(_SETTINGS), warnings.catch_warnings():
        # letters that the font lacks are boxes in a picture, and text in the table beside it
        warnings.filterwarnings("ignore", "Glyph ", UserWarning)
        figure = Figure(figsize=(_WIDE, height), layout="constrained")
        if panels is None:
            options["ax"] = figure.subplots()
        else:
            axes = figure.subplots(len(panels), sharex=len(panels) == 2, height_ratios=panels)
            options["axes"] = axes
        plot(*arguments, **options)
        image = io.BytesIO()
        figure.savefig(image, format="png", dpi=_DPI, metadata={"Software": None})
    data = base64.b64encode(image.getvalue()).decode("ascii")
    return Picture(f"data:image/png;base64,{data}", round(96 * _WIDE), round(96 * height))
