"""Text and HTML representations of results; all text in HTML is escaped."""

from collections.abc import Iterable, Sequence
from dataclasses import fields, is_dataclass
from html import escape
from importlib import import_module
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    import xarray as xr

Entries = list[tuple[str, str]]

_SHOWN = 5  # labels of groups
# columns of a terminal, and characters of a cell that gets a line of its own
_WIDTH = 80
_LONG = 24
# modules above that make what results show of themselves, by function
_MADE_ABOVE = {"summary": "quantities", "pit_image": "plots.items"}
# by verdict
_COLOURS = {"ok": "#1b7837", "warn": "#b35806", "fail": "#b2182b"}


def visible(text: object) -> str:
    """Text with invisible characters as escapes, because they might control a terminal."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in str(text))


def number(value: object, digits: int = 3) -> str:
    """A float in a few digits, or thousands in full; other objects as text, NaN as none."""
    if not isinstance(value, float):
        return str(value)
    if np.isnan(value):
        return ""
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e6 else f"{value:.{digits}g}"


def digits(value: float) -> str:
    """A number in the fewest digits that distinguish it from all others."""
    return repr(float(value)).removesuffix(".0")


def counted(n: int, noun: str) -> str:
    """A number with its noun: "1 bin", "1,000 bins"."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def html_table(
    title: str,
    rows: Iterable[Sequence[object]],
    head: Sequence[object] = (),
    note: str = "",
) -> str:
    """A titled table with names of columns, if it has some, and a text below it."""
    style = {
        v: f' style="color: {colour}; font-weight: bold"'
        for v, colour in _COLOURS.items()
    }
    cells = [
        [f"<td{style.get(str(x), '')}>{escape(visible(x))}</td>" for x in r]
        for r in rows
    ]
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in cells)
    names = "".join(f"<th>{escape(visible(name))}</th>" for name in head)
    top = f"<thead><tr>{names}</tr></thead>" if names else ""
    below = f"<p>{escape(visible(note))}</p>" if note else ""
    table = f"<table>{top}<tbody>{body}</tbody></table>"
    above = f"<strong>{escape(visible(title))}</strong>" if title else ""
    return f"<div>{above}{table}{below}</div>"


class Table(pd.DataFrame):
    """A frame with text of at most 80 columns, and HTML with the same words."""

    @property
    def _constructor(self) -> type[pd.DataFrame]:
        return pd.DataFrame

    def _texts(self) -> pd.DataFrame:
        """All cells as text, below the names of their columns."""
        indexed = not isinstance(self.index, pd.RangeIndex)
        frame = pd.DataFrame(self).rename_axis(str(self.index.name or ""))
        frame = frame.reset_index() if indexed else frame
        cells = frame.map(lambda x: visible(number(x))).astype(str)
        return pd.DataFrame([list(map(str, frame.columns)), *cells.to_numpy()])

    def __repr__(self) -> str:
        texts = self._texts()
        long = (texts.map(len).max() > _LONG).to_numpy()
        indent = "  " if long[0] else ""
        table = texts.loc[:, ~long]
        padded = [table[k].str.ljust(table[k].str.len().max()) for k in table]
        shown = [indent + "  ".join(row).rstrip() for row in zip(*padded, strict=True)]
        text = shown[:1]
        for row, line in zip(texts.to_numpy()[1:], shown[1:], strict=True):
            above = [fill(x, _WIDTH, subsequent_indent="  ") for x in row[:1][long[:1]]]
            below = [
                fill(x, _WIDTH, initial_indent="  ", subsequent_indent="  ")
                for x in row[1:][long[1:]]
                if x
            ]
            text += [*above, line, *below]
        return "\n".join(text)

    def _repr_html_(self) -> str:
        head, *rows = self._texts().to_numpy().tolist()
        return html_table("", rows, head)


def lines(head: str, rows: Iterable[Sequence[str]]) -> str:
    """Text of a `repr`: a head, and below it a row for each name and value."""
    pairs = [tuple(row) for row in rows]
    width = max((len(name) for name, _ in pairs), default=0)
    return "\n".join(
        map(visible, [head, *(f"  {name:<{width}}  {x}" for name, x in pairs)])
    )


def short(record: Any) -> str:
    """A configuration with the fields that differ from their defaults."""
    return code_of(record).replace("soc.", "")


def code_of(record: Any) -> str:
    """The code that makes a configuration, with the fields that differ from their defaults."""
    default = type(record)()
    values = {f.name: getattr(record, f.name) for f in fields(record)}
    arguments = ", ".join(
        f"{name}={code_of(value) if is_dataclass(value) else repr(value)}"
        for name, value in values.items()
        if value != getattr(default, name)
    )
    return f"soc.{type(record).__name__}({arguments})"


def of_statistics(stats: Any) -> Entries:
    """Rows of statistics: first the items, then the sums of their outcomes."""
    sums = {name: stats.data[name].sum() for name in stats.outcome.sums("part")}
    cells = stats.data.sizes
    days = stats.days
    cell_counts = [f"{cells[t]:,} of {t}" for t in cells if f"{t}_cell" in stats.data]
    if stats.has_joint:
        cell_counts.append(f"{cells['joint']:,} joint")
    rows = [
        ("items", f"{stats.n_items:,}"),
        ("outcomes", stats.outcome.describe(stats.n_items, sums)),
        ("bins", f"{stats.bins:,}, {int((stats.data['n'] > 0).sum()):,} with items"),
        ("scores", score_range(stats.data) if stats.has_score else "none"),
        (
            "atoms",
            ", ".join(
                f"{counted(n, 'item')} at {t:.6g}"
                for t, n in [*stats.atoms.items()][:_SHOWN]
            ),
        ),
        ("cells", ", ".join(cell_counts)),
        *groups_row(stats.groups),
        ("days", f"{len(days):,}, {days[0]} to {days[-1]}" if len(days) else ""),
        ("weights", stats.weights),
        ("folds", str(stats.folds or "")),
        ("memory", f"{stats.data.nbytes / 1e6:.1f} MB"),
    ]
    return [(name, text) for name, text in rows if text]


def groups_row(labels: Sequence[str]) -> Entries:
    """Row of groups, if there are any."""
    shown = ", ".join(labels[:_SHOWN]) + ", ..." * (len(labels) > _SHOWN)
    return [("groups", f"{len(labels):,}: {shown}")] if labels else []


def score_range(data: "xr.Dataset") -> str:
    """Smallest to largest score of the bins."""
    low = float(data["score_min"].min())
    high = float(data["score_max"].max())
    return f"{low:.4g} to {high:.4g}" if np.isfinite(high - low) else "none"


def made_above(name: str, result: Any) -> Any:
    """Return what the function `name` of a package above, imported now, makes of a result."""
    return getattr(import_module(f"soc_pymc.{_MADE_ABOVE[name]}"), name)(result)
