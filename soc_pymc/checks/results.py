"""The one table of results: of checks, held-out outcomes, drift, sensitivity and quantities."""

from collections.abc import Callable, Iterable, Mapping
from html import escape
from typing import Any

import numpy as np
import pandas as pd

from .._lib.arrays import Floats
from .._lib.reprs import html_table, visible

COLUMNS = ("what", "where", "n", "value", "low", "high", "p", "verdict")
"""What was found where, of how many items: a number, its interval, a p-value and a verdict."""

OK, WARN, FAIL = VERDICTS = "ok", "warn", "fail"
FAILS, WARNS = 0.01, 0.05  # p-values: after correction for many tests, and each by itself
_SMALLEST = 1e-12  # p-value that is written


def result_table(rows: Iterable[Mapping[str, Any]] | pd.DataFrame) -> pd.DataFrame:
    """Returns rows with the columns of a table of results; numbers that are missing are NaN."""
    table = rows if isinstance(rows, pd.DataFrame) else pd.DataFrame(list(rows))
    table = table.reindex(columns=list(COLUMNS))
    table["n"] = table["n"].astype("Int64")
    numbers = dict.fromkeys(("value", "low", "high", "p"), float)
    words = {name: table[name].astype(object) for name in ("what", "where", "verdict")}
    return table.astype(numbers).assign(**words)


def with_verdicts(table: pd.DataFrame) -> pd.DataFrame:
    """Adds verdicts by p-values before and after correction, where there is a p-value."""
    p = table["p"].to_numpy()
    by_test = np.where(holm(p) < FAILS, FAIL, np.where(p < WARNS, WARN, OK))
    return table.assign(verdict=table["verdict"].where(np.isnan(p), by_test))


def holm(p_value: Floats) -> Floats:
    """P-values adjusted by Holm's step-down rule; NaN stays NaN and does not count."""
    adjusted = np.full(len(p_value), np.nan)
    known = np.flatnonzero(~np.isnan(p_value))
    order = known[np.argsort(p_value[known])]
    factor = np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(p_value[order] * factor))
    return adjusted


# --- text and HTML -------------------------------------------------------------------------------


def number(value: float) -> str:
    """Formats a number in three digits; one that is missing is empty."""
    if np.isnan(value):
        return ""
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e6 else f"{value:.3g}"


def p_value(value: float) -> str:
    """Formats a p-value."""
    if np.isnan(value):
        return ""
    if value < _SMALLEST:
        return f"< {_SMALLEST:.0e}"
    return f"{value:.2f}" if value >= 0.095 else f"{value:.1g}"


def cells(table: pd.DataFrame) -> list[tuple[str, ...]]:
    """Returns the table's cells as text."""
    formats: dict[str, Callable[[Any], str]] = dict.fromkeys(COLUMNS, _word)
    formats |= dict.fromkeys(("value", "low", "high"), number)
    formats |= {"n": lambda n: "" if pd.isna(n) else f"{n:,}", "p": p_value}
    columns = [[formats[name](x) for x in table[name]] for name in COLUMNS]
    return list(zip(*columns, strict=True))


def _word(value: Any) -> str:
    if isinstance(value, float):
        return number(value)
    return visible("" if value is None else value)


def as_text(title: str, table: pd.DataFrame, notes: Iterable[str] = ()) -> str:
    """Returns a title, the table's columns and rows, and notes below."""
    rows = [COLUMNS, *cells(table)]
    widths = [max(len(row[k]) for row in rows) for k in range(len(COLUMNS))]
    text = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in rows]
    return "\n".join([f"<{title}>", *(line.rstrip() for line in text), *map(visible, notes)])


def as_html(title: str, table: pd.DataFrame, note: str, points: Iterable[str] = ()) -> str:
    """The same as HTML, all text escaped."""
    items = "".join(f"<li>{escape(point)}</li>" for point in points)
    return html_table(title, cells(table), COLUMNS, note) + (f"<ul>{items}</ul>" if items else "")
