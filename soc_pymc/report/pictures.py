"""Figures drawn without a screen, as images that are part of the page."""

import base64
import io
import json
import unicodedata
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from ..inference.results import Fit
from .markup import Html, tag

__all__ = ["drawable", "drawable_fit", "picture"]

_MOST_SVG = 160_000  # bytes, from which on pixels are smaller
_DPI = 200
_NARROW = 4.0  # inches, up to which a picture fits a phone
_SHORT = 28  # characters of a label that fit above a panel
_SETTINGS = {
    "text.usetex": False,
    "svg.fonttype": "path",  # the same on every machine, whatever fonts it has
    "svg.hashsalt": "soc_pymc",  # the same bytes every time
    "font.family": "DejaVu Sans",
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
}


def picture(
    draw: Callable[[Figure], Any],
    size: tuple[float, float],
    alt: str,
    caption: object = None,
) -> Html:
    """A figure with its caption; a drawing with few marks is kept as lines, another as pixels.

    Parameters
    ----------
    draw
        Draws into the figure that it is given.
    size
        Width and height in inches.
    alt
        What is to be seen, for those who do not see it.
    caption
        What stands below; None leaves it out.
    """
    with mpl.rc_context(_SETTINGS), warnings.catch_warnings():
        # labels in scripts that the font does not have are boxes in a picture, text below it
        warnings.filterwarnings("ignore", "Glyph ", UserWarning)
        figure = Figure(figsize=size, layout="constrained")
        draw(figure)
        kind, data = _smaller(figure)
    source = f"data:image/{kind};base64,{base64.b64encode(data).decode('ascii')}"
    width, height = (round(96 * inches) for inches in size)
    image = tag("img", src=source, alt=alt, width=width, height=height)
    below = () if caption is None else (tag("figcaption", caption),)
    # wider than a phone: it scrolls in a box of its own, with labels that can be read
    held = tag("div", image, class_="wide") if size[0] > _NARROW else image
    return tag("figure", held, *below)


def _smaller(figure: Figure) -> tuple[str, bytes]:
    """The figure as SVG where that is small, as PNG elsewhere."""
    made = io.BytesIO()
    figure.savefig(made, format="svg", metadata={"Date": None, "Creator": None})
    if made.tell() <= _MOST_SVG:
        return "svg+xml", made.getvalue()
    pixels = io.BytesIO()
    figure.savefig(pixels, format="png", dpi=_DPI, metadata={"Software": None})
    return "png", pixels.getvalue()


def drawable(text: str, instead: str) -> str:
    """A label as a picture can show it, or another where its letters cannot be drawn.

    Parameters
    ----------
    text
        The label.
    instead
        What to show where a letter is not in the font, or is written from right to left.

    Examples
    --------
    >>> drawable("plan = gold", "slice 3"), drawable("\u6771\u4eac", "slice 3")
    ('plan = gold', 'slice 3')
    """
    turned = any(unicodedata.bidirectional(c) in ("R", "AL", "RLO", "RLE", "RLI") for c in text)
    if turned or not text.isprintable() or not all(ord(c) in _letters() for c in text):
        return instead
    return text if len(text) <= _SHORT else f"{text[: _SHORT - 1]}\u2026"


def drawable_fit(fit: Fit) -> Fit:
    """The same fit, whose columns are called by their roles where pictures cannot show the names.

    Parameters
    ----------
    fit
        The fit.
    """
    roles = json.loads(fit.data.attrs.get("roles", "{}"))
    shown = {role: drawable(name, role) for role, name in roles.items()}
    tree = fit.data.copy()
    tree.attrs = {**fit.data.attrs, "roles": json.dumps(shown)}
    return replace(fit, data=tree)


@cache
def _letters() -> frozenset[int]:
    """Code points that the font of the pictures has."""
    from matplotlib import font_manager, ft2font

    path = font_manager.findfont("DejaVu Sans")
    return frozenset(ft2font.FT2Font(path).get_charmap())
