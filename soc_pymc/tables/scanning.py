"""Items validated and totalled in one pass; every problem of a table in one error."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import ItemsError
from ..items import PoissonItems
from ..progress import phase
from .sources import kind_of, open_table, readable

__all__ = ["Scan", "scan"]

_LARGEST_COUNT = 2.0**53  # whole numbers are exact in float64 up to here
_LARGEST = 1e100  # squares of scores and exposures must stay finite
_SHOWN = 3  # bad rows shown in an error
_NEEDS = {
    "score": "scores must be finite numbers",
    "count": "counts must be whole numbers >= 0",
    "exposure": "exposures must be finite numbers >= 0",
}


@dataclass(frozen=True)
class Scan:
    """Totals of valid items, from one pass.

    Attributes
    ----------
    n
        Number of items.
    total_count, total_exposure
        Sums of counts and exposures.
    score_min, score_max
        Range of the scores.
    score_least
        Least size of a score that is not 0; NaN if all are.
    nonpositive_scores
        Number of scores at or below 0.
    table
        Ibis table of the items with the columns ``score`` and ``exposure`` (float64) and ``count``
        (int64).
    """

    n: int
    total_count: int
    total_exposure: float
    score_min: float
    score_max: float
    score_least: float
    nonpositive_scores: int
    table: Any = field(repr=False)


def scan(items: PoissonItems, progress: bool = True) -> Scan:
    """Validate items and total them in one pass.

    Parameters
    ----------
    items
        The items.
    progress
        Whether long scans show their progress.

    Raises
    ------
    ItemsError
        Every problem of the items, one a line: the column, the number of bad rows, the first of
        them, and what is needed.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"t": [0.1, 0.2], "clicks": [0, 1], "views": [9, 8]})
    >>> scan(PoissonItems(frame, score="t", count="clicks", exposure="views")).total_count
    1
    """
    table = open_table(items.source, list(items.roles.values()))
    columns = {role: table[name] for role, name in items.roles.items()}
    wrong_types = [
        f"column {items.roles[role]!r} holds {word}; {_NEEDS[role]}: convert it first"
        for role, column in columns.items()
        if (word := _wrong_type(column.type()))
    ]
    raw = table.select(**{role: column.cast("float64") for role, column in columns.items()})
    with phase("checking items", enabled=progress), readable():
        if wrong_types:
            if table.count().to_pyarrow().as_py() == 0:
                raise ItemsError(_no_rows(items))
            raise ItemsError("\n".join(wrong_types))
        problems = _problems(raw, items.roles)
        found = _row(raw.aggregate(**_totals(raw), **_problem_counts(problems)))
        n = found["n"]
        if n == 0:
            raise ItemsError(_no_rows(items))
        texts = [
            _describe(raw, problem, found[f"bad{i}"], n, kind_of(items.source) != "ibis")
            for i, problem in enumerate(problems)
            if found[f"bad{i}"]
        ]
    if texts:
        raise ItemsError("\n".join(texts))
    if found["float_count"] > 2.0**62:
        raise ItemsError(
            f"column {items.count!r} sums to {found['float_count']:.3g}, more than can be counted "
            "exactly: summarize parts of the items"
        )
    typed = table.select(
        score=columns["score"].cast("float64"),
        count=_whole(columns["count"]),
        exposure=columns["exposure"].cast("float64"),
    )
    least = found["score_least"]
    return Scan(
        n,
        int(found["total_count"]),
        found["total_exposure"],
        found["score_min"],
        found["score_max"],
        float("nan") if least is None else least,
        found["nonpositive"],
        typed,
    )


def _no_rows(items: PoissonItems) -> str:
    shown = f"{items.source}: " if kind_of(items.source) == "files" else ""
    return f"{shown}the table of items has no rows"


def _wrong_type(dtype: Any) -> str | None:
    """What a column holds if it does not hold numbers."""
    if dtype.is_boolean():
        return "true/false values"
    if dtype.is_numeric() or dtype.is_null():
        return None
    if dtype.is_string():
        return "text"
    if dtype.is_temporal() or dtype.is_interval():
        return "dates or times"
    return f"values of type {dtype}"


def _whole(column: Any) -> Any:
    """Valid counts as int64 (through float64 unless integers, as decimals may not fit)."""
    return column if column.type().is_int64() else column.cast("float64").cast("int64")


@dataclass(frozen=True)
class _Problem:
    condition: Any  # Ibis expression, true on bad rows
    role: str
    column: str
    what: str  # "are negative"
    show: bool  # whether the bad values say anything


def _problems(raw: Any, roles: Mapping[str, str]) -> list[_Problem]:
    """Every way in which a row may be bad; a row's value is judged by the first that applies."""
    problems: list[_Problem] = []
    clean: dict[str, Any] = {}
    usable: dict[str, Any] = {}
    for role, name in roles.items():
        value = raw[role]
        missing = value.fill_null(float("nan")).isnan()
        known = missing.ifelse(0.0, value)
        infinite = known.isinf()
        clean[role] = infinite.ifelse(0.0, known)
        usable[role] = ~(missing | infinite)
        problems += [
            _Problem(missing, role, name, "missing (null or NaN)", show=False),
            _Problem(infinite, role, name, "infinite", show=True),
        ]
        large = _LARGEST_COUNT if role == "count" else _LARGEST
        text = "larger than 2^53" if role == "count" else f"beyond {_LARGEST:g} in size"
        problems.append(_Problem(clean[role].abs() > large, role, name, text, show=True))
        if role != "score":
            problems.append(_Problem(clean[role] < 0, role, name, "negative", show=True))
    count = (clean["count"].abs() > _LARGEST_COUNT).ifelse(0.0, clean["count"])
    fraction = count != count.floor()
    problems.append(_Problem(fraction, "count", roles["count"], "not whole", show=True))
    unseen = (clean["count"] > 0) & (clean["exposure"] == 0) & usable["exposure"]
    text = f"positive where column {roles['exposure']!r} is 0"
    problems.append(_Problem(unseen, "count", roles["count"], text, show=True))
    return problems


def _problem_counts(problems: list[_Problem]) -> dict[str, Any]:
    return {f"bad{i}": problem.condition.sum().fill_null(0) for i, problem in enumerate(problems)}


def _totals(raw: Any) -> dict[str, Any]:
    """Totals; sums of whole numbers are guarded, as they are taken before the verdict."""
    score, count, exposure = raw.score, raw["count"], raw.exposure
    safe = (count.abs() <= _LARGEST_COUNT).ifelse(count, 0.0)  # null and NaN are not either
    return {
        "n": raw.count(),
        "total_count": safe.cast("int64").sum(),
        "float_count": safe.sum(),
        "total_exposure": exposure.sum(),
        "score_min": score.min(),
        "score_max": score.max(),
        "score_least": (score != 0).ifelse(score.abs(), None).min(),
        "nonpositive": (score <= 0).sum().fill_null(0),
    }


def _row(expression: Any) -> dict[str, Any]:
    """The only row of an aggregate."""
    rows: list[dict[str, Any]] = expression.to_pyarrow().to_pylist()
    return rows[0]


def _describe(raw: Any, problem: _Problem, bad: int, n: int, ordered: bool) -> str:
    """One line on one problem, with the first few bad rows."""
    import ibis

    numbered = raw.mutate(bad=problem.condition)
    if ordered:
        numbered = numbered.mutate(row=ibis.row_number())
    rows = numbered.filter(numbered.bad).limit(_SHOWN).to_pyarrow().to_pylist()
    rows.sort(key=lambda r: r.get("row", 0))
    seen = []
    if problem.show:
        seen.append("first values: " + ", ".join(f"{r[problem.role]:.12g}" for r in rows))
    if ordered:
        seen.append("rows counted from 0: " + ", ".join(f"{r['row']}" for r in rows))
    shown = f" ({'; '.join(seen)})" if seen else ""
    return (
        f"column {problem.column!r}: {bad:,} of {n:,} {'row' if n == 1 else 'rows'} "
        f"{'is' if bad == 1 else 'are'} {problem.what}{shown}; {_NEEDS[problem.role]}: "
        f"fix or drop {'this row' if bad == 1 else 'these rows'}"
    )
