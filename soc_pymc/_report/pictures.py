"""The figures of the page, drawn without a screen, as images that are part of it."""

import base64
import io
import json
import unicodedata
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.figure import Figure

from .. import plots
from ..checks._check import CheckResult
from ..checks.results import Result
from ..data.groups import roles_of
from ..inference.results import Fit
from ..plots.style import BLUE, is_rate, rate_axis, tidy
from ..quantities.group_effects import ALL_LEVELS
from .formats import BANDS

_LARGEST_SVG = 160_000  # bytes, from which on pixels are smaller
_MOST_POINTS = 1000  # of an SVG, which is not made if it has more: each has over 100 bytes
_DPI = 200
_WIDE = 5.6  # inches: letters can be read on a phone and are as large as text on a screen
_SHORT = 28  # characters of a label that fit above a panel
_LEVELS = 20  # levels of a column of groups
_SETTINGS = {
    "text.usetex": False,
    "svg.fonttype": "path",  # the same on every machine, whatever fonts it has
    "svg.hashsalt": "soc_pymc",  # the same bytes every time
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


def _picture(draw: Callable[[Figure], Any], size: tuple[float, float]) -> Picture:
    """What `draw` draws into a figure of a size in inches: lines if these are few, else pixels."""
    with mpl.rc_context(_SETTINGS), warnings.catch_warnings():
        # labels in scripts that the font does not have are boxes in a picture, text below it
        warnings.filterwarnings("ignore", "Glyph ", UserWarning)
        figure = Figure(figsize=size, layout="constrained")
        draw(figure)
        kind, data = _smaller(figure)
    source = f"data:image/{kind};base64,{base64.b64encode(data).decode('ascii')}"
    width, height = (round(96 * inches) for inches in size)
    return Picture(source, width, height)


def _smaller(figure: Figure) -> tuple[str, bytes]:
    """The figure as SVG where that is small, as PNG elsewhere."""
    points = sum(np.size(c.get_offsets()) // 2 for ax in figure.axes for c in ax.collections)
    if points <= _MOST_POINTS:
        made = io.BytesIO()
        figure.savefig(made, format="svg", metadata={"Date": None, "Creator": None})
        if made.tell() <= _LARGEST_SVG:
            return "svg+xml", made.getvalue()
    pixels = io.BytesIO()
    figure.savefig(pixels, format="png", dpi=_DPI, metadata={"Software": None})
    return "png", pixels.getvalue()


def drawable(text: str, instead: str) -> str:
    """A label as a picture can show it, or another one.

    The other is shown where the font lacks a letter, or the text is written from right to left.
    """
    turned = any(unicodedata.bidirectional(c) in ("R", "AL", "RLO", "RLE", "RLI") for c in text)
    if turned or not text.isprintable() or not all(ord(c) in _letters() for c in text):
        return instead
    return text if len(text) <= _SHORT else f"{text[: _SHORT - 1]}\u2026"


@cache
def _letters() -> frozenset[int]:
    """Code points that the font of the pictures has."""
    from matplotlib import font_manager, ft2font

    path = font_manager.findfont("DejaVu Sans")
    return frozenset(ft2font.FT2Font(path).get_charmap())


def drawable_fit(fit: Fit) -> Fit:
    """The same fit, with roles for the names of columns that pictures cannot show."""
    roles = roles_of(fit.data.attrs)
    shown = {role: drawable(name, role) for role, name in roles.items()}
    tree = fit.data.copy()
    tree.attrs = {**fit.data.attrs, "roles": json.dumps(shown)}
    return replace(fit, data=tree)


def picture_of_spread(columns: dict[str, Any]) -> Picture:
    """Histograms of scores and sizes, side by side."""

    def draw(figure: Figure) -> None:
        axes = figure.subplots(1, len(columns))
        for ax, (role, values) in zip(axes, columns.items(), strict=True):
            _histogram(ax, values)
            ax.set_xlabel(role.replace("_", " "))
            ax.set_ylabel("items")
            ax.tick_params(labelsize=8)  # neighbours of a narrow axis would touch

    return _picture(draw, (_WIDE, 2.3))


def _histogram(ax: Any, values: Any) -> None:
    positive = values[values > 0]
    if values.min() >= 0 and is_rate(positive):
        low, high = float(positive.min()), float(positive.max())
        ax.hist(positive, bins=np.geomspace(low, high, 41), color=BLUE, alpha=0.75)
        rate_axis(ax.xaxis, low, high)
    else:
        ax.hist(values, bins=40, color=BLUE, alpha=0.75)
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    tidy(ax)


def picture_of_curves(fit: Fit) -> Picture:
    """Both curves with their bands, one above the other."""

    def draw(figure: Figure) -> None:
        axes = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
        plots.plot_curves(drawable_fit(fit), BANDS, axes=axes)

    return _picture(draw, (_WIDE, 5.8))


def picture_of_levels(effects: Result) -> Picture:
    """Effects of levels of groups, with labels that pictures can show."""
    table = effects.table[effects.table["where"] != ALL_LEVELS]
    columns = {
        what: drawable(what, f"column {k}") for k, what in enumerate(table["what"].unique(), 1)
    }
    labels = [drawable(name, f"level {k}") for k, name in enumerate(table["where"], 1)]
    shown = table.assign(what=table["what"].map(columns), where=labels)
    return picture_of_intervals(shown, effects.data.attrs["neutral"])


def picture_of_intervals(table: pd.DataFrame, reference: float | None = None) -> Picture:
    """A table of results, a panel for each thing."""
    sizes = [min(n, _LEVELS) for n in table.groupby("what", sort=False).size()]

    def draw(figure: Figure) -> None:
        axes = figure.subplots(len(sizes), height_ratios=[n + 2 for n in sizes])
        plots.plot_intervals(table, _LEVELS, reference, axes=axes)

    return _picture(draw, (_WIDE, 0.5 + sum(0.22 * n + 0.6 for n in sizes)))


def picture_of(plot: Callable[..., Any], *arguments: Any, height: float, **options: Any) -> Picture:
    """What one function of `soc.plots` draws."""
    return _picture(
        lambda figure: plot(*arguments, ax=figure.subplots(), **options), (_WIDE, 0.9 * height)
    )


def picture_of_pit(result: CheckResult, name: str, label: str) -> Picture:
    """The PIT of one slice, under a label."""
    pit = result.data["pit"].to_dataset().sel(slice=[name]).assign_coords(slice=[label])
    rows = result.table[(result.table["what"] == "PIT") & (result.table["where"] == name)]
    tree = xr.DataTree.from_dict({"pit": pit})
    alone = replace(result, table=rows.assign(where=label), data=tree)

    def draw(figure: Figure) -> None:
        ax = figure.subplots()
        plots.plot_pit(alone, ax=ax)
        legend = ax.get_legend()
        if legend is not None:
            legend.remove()
        ax.set(xlabel="", ylabel="")

    return _picture(draw, (2.7, 2.0))
