"""The findings of a check in plain words, short enough to read: text and HTML."""

from collections.abc import Sequence
from html import escape

import numpy as np
import pandas as pd

from .._lib.html import html_table

__all__ = ["as_html", "as_text"]

_ROWS = 5  # findings shown, the worst
_SENTENCES = 3  # of the advice
_HEAD = ("verdict", "what", "where", "found", "p")
_WORDS = {  # what a check looks at, and its statistic in words
    "PIT": ("distribution of outcomes (PIT)", "probabilities off by up to {:.3f}"),
    "LOO-PIT": ("the PIT, each item left out", "probabilities off by up to {:.3f}"),
    "dispersion": ("scatter of outcomes", "{:.2f} times as predicted"),
    "zero counts": ("number of zero counts", "{:.2f} times as predicted"),
    "leave-one-out": ("weights of items left out", "largest Pareto k {:.2f} (at most 0.7)"),
    "converged": ("convergence", ""),
    "pareto_k": ("quality of the approximation", "Pareto k {:.2f} (at most 0.7)"),
    "ess_fraction": ("quality of the approximation", "effective share of draws {:.2f}"),
}
_FIRST = ("inference", "all items", ">= ", "random items")  # where to look first


def _found(check: str, statistic: float) -> str:
    if check == "converged":
        return "yes" if statistic else "no"
    return _WORDS[check][1].format(statistic)


def _p(p_value: float) -> str:
    if np.isnan(p_value):
        return "-"
    if p_value < 1e-12:
        return "< 1e-12"
    return f"{p_value:.2f}" if p_value >= 0.095 else f"{p_value:.1g}"


def _shown(table: pd.DataFrame) -> pd.DataFrame:
    """The worst findings, the main slices first; then what is well, if there is room."""
    rank = table["verdict"].map({"fail": 0, "look": 1, "ok": 2})
    main = table["slice"].map(lambda name: any(part in name for part in _FIRST))
    order = pd.DataFrame(
        {
            "rank": rank,
            "main": ~main,
            "p": table["p_value"].fillna(-1.0).where(rank < 2, 1.0 * (table["slice"] == _FIRST[0])),
        }
    )
    kept = order.sort_values(["rank", "main", "p"], kind="stable").index[:_ROWS]
    return table.loc[kept]


def _rows(table: pd.DataFrame) -> list[tuple[str, ...]]:
    return [
        (
            str(row["verdict"]),
            _WORDS[row["check"]][0],
            str(row["slice"]),
            _found(row["check"], row["statistic"]),
            _p(row["p_value"]),
        )
        for row in table.to_dict("records")
    ]


def _title(table: pd.DataFrame, n_items: int) -> str:
    counts = table["verdict"].value_counts()
    numbers = ", ".join(f"{counts.get(v, 0)} {v}" for v in ("ok", "look", "fail"))
    return f"soc_pymc.CheckResult: {n_items:,} items, {numbers}"


def _rest(table: pd.DataFrame, shown: pd.DataFrame) -> str:
    """One line on all that the table does not show."""
    left = table.drop(shown.index)
    if left.empty:
        return ""
    parts = []
    odd = int((left["verdict"] != "ok").sum())
    if odd:
        parts.append(f"{odd} more like these")
    fine = left[left["verdict"] == "ok"]
    if len(fine):
        number = fine.groupby("check", sort=False).size()
        where = (
            f"{_WORDS[str(check)][0]} in {n} slices" if n > 1 else _WORDS[str(check)][0]
            for check, n in number.items()
        )
        parts.append(f"ok: {', '.join(dict.fromkeys(where))}")
    return f"{'; '.join(parts)} (all in .table)"


def _sentences(advice: Sequence[str]) -> list[str]:
    more = len(advice) - _SENTENCES
    return [*advice[:_SENTENCES], *([f"{more} more in .advice"] if more > 0 else [])]


def as_text(table: pd.DataFrame, advice: Sequence[str], n_items: int) -> str:
    """Findings as at most a dozen lines.

    Parameters
    ----------
    table
        Of a `CheckResult`.
    advice
        Its sentences.
    n_items
        Number of items checked.

    Examples
    --------
    >>> row = ("PIT", "all items", 0.031, 1e-9, "fail")
    >>> names = ["check", "slice", "statistic", "p_value", "verdict"]
    >>> print(as_text(pd.DataFrame([row], columns=names), ["Fit again."], 9000))
    <soc_pymc.CheckResult: 9,000 items, 0 ok, 0 look, 1 fail>
    verdict  what                            where      found                             p
    fail     distribution of outcomes (PIT)  all items  probabilities off by up to 0.031  1e-09
    - Fit again.
    """
    shown = _shown(table)
    rows = [_HEAD, *_rows(shown)]
    widths = [max(len(row[k]) for row in rows) for k in range(len(_HEAD))]
    lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in rows]
    rest = _rest(table, shown)
    return "\n".join(
        [
            f"<{_title(table, n_items)}>",
            *(line.rstrip() for line in lines),
            *([rest] if rest else []),
            *(f"- {sentence}" for sentence in _sentences(advice)),
        ]
    )


def as_html(table: pd.DataFrame, advice: Sequence[str], n_items: int) -> str:
    """The same as HTML, all text escaped.

    Parameters
    ----------
    table, advice, n_items
        As in `as_text`.
    """
    shown = _shown(table)
    top = html_table(_title(table, n_items), _rows(shown), _HEAD, _rest(table, shown))
    points = "".join(f"<li>{escape(sentence)}</li>" for sentence in _sentences(advice))
    return f"{top}<ul>{points}</ul>"
