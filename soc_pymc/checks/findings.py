"""Findings of checks, held-out outcomes, drift, sensitivity and quantities, and remedies for them.

All are rows of one kind of table, which says what was found, where, and with which verdict.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import special

from .._lib.arrays import Floats
from .._lib.reprs import counted, html_table, number, visible
from ..families.priors import Prior

PROB = 0.9  # of intervals, where the user names none
# sds to either end of such an interval
SIDES = float(special.ndtri((1 + PROB) / 2))
ALL = "all items"
OK, WARN, FAIL = VERDICTS = "ok", "warn", "fail"
# p-values: after correction for many tests, and each by itself
FAILS = 0.01
WARNS = 0.05
_SMALLEST_P = 1e-12  # p-value that is written


class Finding(NamedTuple):
    """A row of a table; one without a verdict gets it from all p-values of the table."""

    what: str
    where: str
    n: int | None = None
    value: float = np.nan
    low: float = np.nan
    high: float = np.nan
    p: float = np.nan
    verdict: str = ""


COLUMNS = Finding._fields
_TYPES: dict[str, Any] = dict.fromkeys(COLUMNS, object) | {"n": "Int64"}
_TYPES |= dict.fromkeys(("value", "low", "high", "p"), "float64")


@dataclass(frozen=True, eq=False)
class Remedy:
    """What a finding means, and what to try.

    Attributes
    ----------
    check : str
        What was found.
    sentence : str
        The same in words, with what to try.
    column : str
        Column of the items among whose levels it was found, if any.
    prior : Gamma, Normal, Beta, InverseGamma, a mixture of them or None
        A prior to fit.
    roles : Mapping[str, str or tuple[str, ...] or float]
        Roles to give to columns of the items, or other arguments of theirs.
    nats : float
        How much larger the log predictive density of all items is under a quick fit of this to
        them than under the same of the present prior, each item left out: about what `soc.compare`
        says of fits. NaN where none was made.
    error : float
        Standard error of `nats` over items, which are taken as independent.
    """

    check: str
    sentence: str
    column: str = ""
    prior: Prior | None = None
    roles: Mapping[str, str | tuple[str, ...] | float] = field(default_factory=dict)
    nats: float = np.nan
    error: float = np.nan

    def __str__(self) -> str:
        nats = f"{self.nats:,.0f} ± {self.error:,.0f}"
        gain = f" It gains {nats} nats of log likelihood." if self.nats > 0 else ""
        return self.sentence + gain


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
    return 2.0 * np.minimum(share_above, 1.0 - share_above)


def result_table(*parts: Iterable[Finding] | pd.DataFrame) -> pd.DataFrame:
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
    table : pandas.DataFrame
        ``what`` was found ``where``, of ``n`` items: a ``value``, the ends ``low`` and ``high`` of
        its interval, ``p`` (NaN where there is none) and ``verdict``: ``"ok"``, ``"warn"`` or
        ``"fail"``, of estimates that nothing tests ``"ok"``. `print` shows the worst rows first.
    data : xarray.Dataset or xarray.DataTree
        Draws and numbers behind the table.
    advice : tuple[str, ...]
        What it means in plain sentences.
    title : str
        What the table is of.
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
        further = len(self.advice) - self.sentences
        counts = hidden.groupby("what", sort=False).size()
        names = (f"{what} ({n})" if n > 1 else str(what) for what, n in counts.items())
        notes = (
            [f"{counted(len(hidden), 'more row')} in .table: {', '.join(names)}"]
            if len(hidden)
            else []
        )
        points = [f"{further} more in .advice"] if further > 0 else []
        return shown, notes, [*self.advice[: self.sentences], *points]


def worst_first(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that fail and warn, each by rising p-value, then all others in order."""
    rank = table["verdict"].map({FAIL: 0, WARN: 1}).fillna(2)
    p = table["p"].fillna(-1.0).where(rank < 2, 1.0)
    order = pd.DataFrame({"rank": rank, "p": p}).sort_values(
        ["rank", "p"], kind="stable"
    )
    return table.loc[order.index]


def p_value(value: float) -> str:
    """Format a p-value with enough digits to show on which side of a verdict's bound it lies."""
    if value < _SMALLEST_P:
        return f"< {_SMALLEST_P:.0e}"
    digits = 1
    while any(
        (float(f"{value:.{digits}g}") < p) != (value < p) for p in (FAILS, WARNS)
    ):
        digits += 1
    return f"{value:.2f}" if value >= 0.095 else f"{value:.{digits}g}"


def cells(table: pd.DataFrame) -> list[tuple[str, ...]]:
    """Return the table's cells as text; what is missing is empty."""
    formats = {"n": "{:,}".format, "p": p_value}
    columns = []
    for name in COLUMNS:
        text = formats.get(name, number)
        columns.append(["" if pd.isna(x) else visible(text(x)) for x in table[name]])
    return list(zip(*columns, strict=True))
