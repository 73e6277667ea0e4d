"""Intervals of any table of results, one below the other."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from numpy.typing import NDArray

from .._lib.arguments import A, OrNone, Real, Whole, checked
from .._lib.errors import FitError
from ..checks.results import Result, worst_first
from ..families.scales import LOG
from . import style

_ROW, _HEAD, _TALLEST = 0.24, 0.75, 14.0  # inches
_NUMBERS = ("value", "low", "high")


@checked(
    table=A(pd.DataFrame | Result, "a table of results with columns where, value, low and high"),
    rows=Whole(1),
    reference=OrNone(Real()),
)
def plot_intervals(
    table: pd.DataFrame | Result,
    rows: int = 30,
    reference: float | None = None,
    axes: Axes | Sequence[Axes] | NDArray[Any] | None = None,
) -> NDArray[Any]:
    """Draw the values of a table with their intervals: a panel by ``what``, a row by ``where``.

    A dot is the value, a line its interval, a colour the verdict: blue ok, orange warn, red fail.

    Parameters
    ----------
    table, rows
        What `soc.check`, `soc.drift`, `soc.sensitivity`, `soc.evaluate.held_out` and
        `soc.quantities` return, or any table with columns ``where`` and ``value``, and perhaps
        ``low``, ``high``, ``what``, ``verdict`` and ``p``. And the most rows of a panel: of more,
        those with the worst verdict and then the least ``p``.
    reference, axes
        Where to draw an upright line, such as 0 or 1 for no difference; and axes to draw in, one
        for each panel, or None for a figure.

    Returns
    -------
    numpy.ndarray
        The axes, one for each panel.

    Raises
    ------
    FitError
        If a column is missing or holds no numbers, no value is known, or there are too few axes.

    Examples
    --------
    >>> import pandas as pd
    >>> import soc_pymc as soc
    >>> table = pd.DataFrame({"where": ["DE", "FR"], "value": [1.2, 0.9], "low": [1.1, 0.8],
    ...                       "high": [1.4, 1.1]})
    >>> [ax] = soc.plots.plot_intervals(table, reference=1.0)
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['DE', 'FR']
    """
    frame = table.table if isinstance(table, Result) else table
    parts = [part for _, part in _checked(frame).groupby("what", sort=False)]
    heights = [_HEAD + _ROW * min(len(part), rows) for part in parts]
    size = 7.0, min(0.3 + sum(heights), _TALLEST)
    row = style.panels(axes, size, len(parts), height_ratios=heights)
    for ax, part in zip(row, parts, strict=True):
        worst = worst_first(part)[:rows].sort_index()
        _draw(ax, worst, len(part), reference)
    if axes is None:
        row[0].figure.align_titles()
    return row


def _checked(table: pd.DataFrame) -> pd.DataFrame:
    """Return rows with a known value, with all columns that pictures read."""
    missing = [name for name in ("where", "value") if name not in table]
    if missing:
        raise FitError(f"the table misses the columns {', '.join(missing)}: rename yours")
    chosen = table.reset_index(drop=True)
    for name in _NUMBERS:
        column = chosen.get(name, pd.Series(np.nan, chosen.index))
        chosen[name] = pd.to_numeric(column, errors="coerce").astype(float)
        if (chosen[name].isna() & column.notna()).any():
            raise FitError(f"column {name!r} of the table must hold numbers")
    known = chosen[np.isfinite(chosen["value"])]
    if known.empty:
        raise FitError("the table has no row with a known value: there is nothing to draw")
    return known.assign(**{"what": "", "verdict": "ok", "p": 1.0} | dict(known.items()))


def _draw(ax: Axes, part: pd.DataFrame, total: int, reference: float | None) -> None:
    place = np.arange(len(part))
    verdict = part["verdict"].to_numpy()
    value, low, high = (part[name].to_numpy() for name in _NUMBERS)
    if reference is not None:
        ax.axvline(reference, color=style.REFERENCE, linewidth=1, linestyle="--")
    for name, color in style.VERDICTS.items():
        rows = verdict == name if name != "ok" else ~np.isin(verdict, ("warn", "fail"))
        ax.hlines(place[rows], low[rows], high[rows], color=color, linewidth=1.6)
        ax.plot(value[rows], place[rows], "o", color=color, markersize=4.5)
    numbers = np.concatenate([value, low, high, [] if reference is None else [reference]])
    if style.is_rate(numbers):
        style.scaled_axis(ax.xaxis, LOG.name, float(np.nanmin(numbers)), float(np.nanmax(numbers)))
    else:
        ax.locator_params(axis="x", nbins=6)
    ax.margins(x=0.05)
    shown = f" ({len(part)} of {total:,})" if len(part) < total else ""
    style.finish(ax, f"{style.escaped(part['what'].iloc[0])}{shown}", "", "", legend=False)
    ax.grid(visible=False, axis="y")
    names = (f"{name:.4g}" if isinstance(name, float) else name for name in part["where"])
    ax.set_yticks(place, [style.escaped(name, 32) for name in names], fontsize=8)
    ax.tick_params(axis="x", labelsize=8)
    ax.set_ylim(len(part) - 0.4, -0.6)  # the first row on top
