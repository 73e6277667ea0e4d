"""The one table of results: of checks, held-out outcomes, drift, sensitivity and quantities."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import special

from .._lib.arrays import Floats
from .._lib.reprs import html_table, visible

COLUMNS = ("what", "where", "n", "value", "low", "high", "p", "verdict")
PROB = 0.9  # of intervals, where the user names none
SIDES = float(
    special.ndtri((1 + PROB) / 2)
)  # half a normal interval of that probability, in sds
OK, WARN, FAIL = VERDICTS = "ok", "warn", "fail"
# p-values: after correction for many tests, and each by itself
FAILS = 0.01
WARNS = 0.05
_SMALLEST = 1e-12  # p-value that is written
_TYPES: Any = dict.fromkeys(COLUMNS, object) | {"n": "Int64"}
_TYPES |= dict.fromkeys(("value", "low", "high", "p"), "float64")

Findings = list[dict[str, Any]]  # rows of a table


def finding(
    what: str,
    where: str,
    value: float,
    p: float = np.nan,
    verdict: str = "",
    n: int | None = None,
) -> dict[str, Any]:
    """Return a row of a table; one without a verdict gets it from all p-values of the table."""
    return {
        "what": what,
        "where": where,
        "n": n,
        "value": value,
        "p": p,
        "verdict": verdict,
    }


def intervals(draws: Floats, prob: float = PROB) -> dict[str, Floats]:
    """Return medians of draws (draws, ...) and central intervals, none for a single draw."""
    low, middle, high = np.quantile(
        draws, [(1 - prob) / 2, 0.5, (1 + prob) / 2], axis=0
    )
    if len(draws) == 1:
        low = high = np.full_like(middle, np.nan)
    return {"value": middle, "low": low, "high": high}


def estimates(
    what: str, where: ArrayLike, draws: Floats, prob: float = PROB, **columns: Any
) -> pd.DataFrame:
    """Return a row for each place, from draws (draws, places)."""
    return pd.DataFrame(
        {"what": what, "where": where, **intervals(draws, prob), **columns}
    )


def two_sided(draws: Floats) -> Floats:
    """Return twice the share of draws on the rarer side of 0, (draws, ...)."""
    share_above = np.mean(draws > 0, axis=0) + 0.5 * np.mean(draws == 0, axis=0)
    return np.asarray(2.0 * np.minimum(share_above, 1.0 - share_above))


def result_table(*parts: Iterable[Mapping[str, Any]] | pd.DataFrame) -> pd.DataFrame:
    """Return rows with the columns of a table of results; numbers that are missing are NaN.

    Findings without a verdict get one by their p-values before and after correction; estimates,
    which nothing tests, are ok.
    """
    frames = (
        part if isinstance(part, pd.DataFrame) else pd.DataFrame([*part])
        for part in parts
    )
    tables = [frame.reindex(columns=list(COLUMNS)).astype(_TYPES) for frame in frames]
    table = pd.concat([part for part in tables if len(part)], ignore_index=True)
    p = table["p"].where(table["verdict"] == "").to_numpy()
    by_test = np.select([holm(p) < FAILS, p < WARNS], [FAIL, WARN], OK)
    return table.assign(
        verdict=table["verdict"].where(table["verdict"].isin(VERDICTS), by_test)
    )


def holm(p_value: Floats) -> Floats:
    """Return p-values adjusted by Holm's step-down rule; NaN stays NaN and does not count."""
    rising = pd.Series(p_value).dropna().sort_values()
    adjusted = (rising * np.arange(len(rising), 0, -1)).cummax().clip(upper=1.0)
    return np.asarray(adjusted.reindex(range(len(p_value))), dtype=float)


@dataclass(frozen=True, eq=False)
class Result:
    """A table of results with what it is made of.

    Attributes
    ----------
    table
        ``what`` was found ``where``, of ``n`` items: a ``value``, the ends ``low`` and ``high`` of
        its interval, ``p`` (NaN where there is none) and ``verdict``: ``"ok"``, ``"warn"`` or
        ``"fail"``, of estimates that nothing tests ``"ok"``. `print` shows the worst rows first.
    data, advice, title
        Draws and numbers behind the table, what it means in plain sentences, and what it is of.
    """

    table: pd.DataFrame
    data: Any
    advice: tuple[str, ...] = ()
    title: str = ""

    rows: ClassVar[int] = 12  # shown by print
    sentences: ClassVar[int] = 3

    def __repr__(self) -> str:
        shown, notes, points = self._shown()
        text = pd.DataFrame([COLUMNS, *cells(shown)])
        padded = [text[k].str.ljust(text[k].str.len().max()) for k in text]
        rows = ("  ".join(row).rstrip() for row in zip(*padded, strict=True))
        lines = [
            f"<soc_pymc {self.title}>",
            *rows,
            *notes,
            *(f"- {point}" for point in points),
        ]
        return "\n".join(map(visible, lines))

    def _repr_html_(self) -> str:
        shown, notes, points = self._shown()
        items = "".join(f"<li>{escape(visible(point))}</li>" for point in points)
        table = html_table(
            f"soc_pymc {self.title}", cells(shown), COLUMNS, " ".join(notes)
        )
        return table + (f"<ul>{items}</ul>" if items else "")

    def _shown(self) -> tuple[pd.DataFrame, list[str], list[str]]:
        """The worst rows, a line on all others, and the first advice."""
        shown = worst_first(self.table)[: self.rows]
        hidden = self.table.drop(shown.index)
        more = len(self.advice) - self.sentences
        counts = hidden.groupby("what", sort=False).size()
        names = (f"{what} ({n})" if n > 1 else str(what) for what, n in counts.items())
        notes = (
            [f"{len(hidden):,} more rows in .table: {', '.join(names)}"]
            if len(hidden)
            else []
        )
        points = [f"{more} more in .advice"] if more > 0 else []
        return shown, notes, [*self.advice[: self.sentences], *points]


def worst_first(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that fail and warn, each by rising p-value, then all others in order."""
    rank = table["verdict"].map({FAIL: 0, WARN: 1}).fillna(2)
    p = table["p"].fillna(-1.0).where(rank < 2, 1.0)
    order = pd.DataFrame({"rank": rank, "p": p}).sort_values(
        ["rank", "p"], kind="stable"
    )
    return table.loc[order.index]


def number(value: float) -> str:
    """Format a number in three digits; one that is missing is empty."""
    if np.isnan(value):
        return ""
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e6 else f"{value:.3g}"


def p_value(value: float) -> str:
    """Format a p-value with enough digits to show on which side of a verdict's bound it lies."""
    if value < _SMALLEST:
        return f"< {_SMALLEST:.0e}"
    digits = 1
    while any(
        (float(f"{value:.{digits}g}") < p) != (value < p) for p in (FAILS, WARNS)
    ):
        digits += 1
    return f"{value:.2f}" if value >= 0.095 else f"{value:.{digits}g}"


def cells(table: pd.DataFrame) -> list[tuple[str, ...]]:
    """Return the table's cells as text; what is missing is empty."""
    formats = dict.fromkeys(COLUMNS, visible) | dict.fromkeys(
        ("value", "low", "high"), number
    )
    formats |= {"n": "{:,}".format, "p": p_value}
    columns = [
        ["" if pd.isna(x) else formats[name](x) for x in table[name]]
        for name in COLUMNS
    ]
    return list(zip(*columns, strict=True))
