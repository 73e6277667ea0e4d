"""Items validated and totalled in one pass; every problem of a table in one error."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..binning import Grid
from ..errors import ItemsError
from ..families.validity import LARGEST, LARGEST_COUNT
from ..items import PoissonItems
from ..progress import phase
from .expressions import score_cell
from .reading import MOST_FOLDS, Totals
from .sources import kind_of, open_table, readable

__all__ = ["Scan", "check_total", "check_types", "numbers", "scan"]

_SHOWN = 3  # bad rows shown in an error
_SPLIT = 26  # bits of the lower halves of counts: sums of halves cannot overflow
_NEEDS = {
    "score": "scores must be finite numbers",
    "count": "counts must be whole numbers >= 0",
    "exposure": "exposures must be finite numbers >= 0",
    "group": "groups must be labels: text, whole numbers or true/false",
    "id": "ids must be whole numbers (or give fold= a column of fold numbers)",
    "fold": f"folds must be whole numbers from 0 to {MOST_FOLDS - 1}",
}
_NUMBERS = ("score", "count", "exposure", "fold")


@dataclass(frozen=True)
class Scan:
    """Totals of valid items, from one pass, and a table of them.

    Attributes
    ----------
    totals
        Totals.
    table
        Ibis table of the items with the columns ``score`` and ``exposure`` (float64) and ``count``
        (int64), and ``group`` (text), ``id`` and ``fold`` (int64) where items have them.
    cells
        Cells of scores on the grid, rising, with their numbers of items and sums of counts.
    """

    totals: Totals
    table: Any = field(repr=False)
    cells: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]] | None = None


def scan(items: PoissonItems, progress: bool = True, grid: Grid | None = None) -> Scan:
    """Validate items and total them in one pass.

    Parameters
    ----------
    items
        The items.
    progress
        Whether long scans show their progress.
    grid
        Cells of scores to count in the same pass; None counts none.

    Raises
    ------
    ItemsError
        Every problem of the items, one a line: the column, the number of bad rows, examples, and
        what is needed. Notes of the error give row numbers where rows have an order.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"t": [0.1, 0.2], "clicks": [0, 1], "views": [9, 8]})
    >>> scan(PoissonItems(frame, score="t", count="clicks", exposure="views")).totals.count
    1
    """
    table = open_table(items.source, list(items.roles.values()))
    columns = {role: table[name] for role, name in items.roles.items()}
    with phase("checking items", enabled=progress), readable(items.source):
        check_types(items, table)
        raw = table.select(**numbers(columns))
        problems = _problems(raw, items.roles)
        found, cells = _aggregated(raw, problems, grid)
        if found["n"] == 0:
            raise ItemsError(_no_rows(items))
        bad = [(p, found[f"bad{i}"]) for i, p in enumerate(problems) if found[f"bad{i}"]]
        if bad:
            raise _error(raw, bad, found["n"], kind_of(items.source) != "ibis")
    check_total(items, found["float_count"])
    totals = Totals(
        found["n"],
        (int(found["count_high"]) << _SPLIT) + int(found["count_low"]),
        found["total_exposure"],
        found["score_min"],
        found["score_max"],
        found["exposure_max"],
    )
    return Scan(totals, table.select(**_typed(columns)), cells)


def check_types(items: PoissonItems, table: Any) -> None:
    """Refuse columns that do not hold what their roles need."""
    wrong = [
        f"column {name!r} holds {word}; {_NEEDS[role]}: convert it first"
        for role, name in items.roles.items()
        if (word := _wrong_type(role, table[name].type()))
    ]
    if wrong and table.count().to_pyarrow().as_py() == 0:
        raise ItemsError(_no_rows(items))
    if wrong:
        raise ItemsError("\n".join(wrong))


def check_total(items: PoissonItems, total: float) -> None:
    """Refuse counts whose sum does not fit."""
    if total > 2.0**62:
        raise ItemsError(
            f"column {items.count!r} sums to {total:.3g}, more than can be counted exactly: "
            "summarize parts of the items"
        )


def _no_rows(items: PoissonItems) -> str:
    shown = f"{items.source}: " if kind_of(items.source) == "files" else ""
    return f"{shown}the table of items has no rows"


def _wrong_type(role: str, dtype: Any) -> str | None:
    """What a column holds if it does not hold what its role needs."""
    if role == "group":
        right = dtype.is_string() or dtype.is_integer() or dtype.is_boolean() or dtype.is_null()
    elif role == "id":
        right = dtype.is_integer() or dtype.is_null()
    else:
        right = (dtype.is_numeric() and not dtype.is_boolean()) or dtype.is_null()
    if right:
        return None
    if dtype.is_boolean():
        return "true/false values"
    if dtype.is_string():
        return "text"
    if dtype.is_temporal() or dtype.is_interval():
        return "dates or times"
    if dtype.is_numeric():
        return "numbers with fractions"
    return f"values of type {dtype}"


def numbers(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Columns as they are read: numbers as float64, ids as int64, groups as text."""
    read = {}
    for role, column in columns.items():
        if role in _NUMBERS:
            read[role] = column.cast("float64")
        elif role == "id":
            read[role] = column.cast("int64")
        elif column.type().is_boolean():
            read[role] = column.ifelse("true", "false")  # engines write these words differently
        else:
            read[role] = column.cast("string")
    return read


def _typed(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Valid items: counts and folds as int64 (by float64, as decimals may not fit)."""
    typed = numbers(columns)
    for role in {"count", "fold"} & typed.keys():
        is_whole = columns[role].type().is_int64()
        typed[role] = columns[role] if is_whole else typed[role].cast("int64")
    return typed


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
        if role not in _NUMBERS:
            problems.append(_Problem(value.isnull(), role, name, "missing (null)", show=False))
            continue
        missing = value.fill_null(float("nan")).isnan()
        known = missing.ifelse(0.0, value)
        infinite = known.abs() == float("inf")  # not every engine's isinf is right
        clean[role] = infinite.ifelse(0.0, known)
        usable[role] = ~(missing | infinite)
        large = {"count": LARGEST_COUNT, "fold": MOST_FOLDS - 1.0}.get(role, LARGEST)
        text = {"count": "larger than 2^53", "fold": f"larger than {MOST_FOLDS - 1}"}
        beyond = text.get(role, f"beyond {LARGEST:g} in size")
        problems += [
            _Problem(missing, role, name, "missing (null or NaN)", show=False),
            _Problem(infinite, role, name, "infinite", show=True),
            _Problem(clean[role].abs() > large, role, name, beyond, show=True),
        ]
        if role != "score":
            problems.append(_Problem(clean[role] < 0, role, name, "negative", show=True))
    for role in ("count", "fold"):
        if role in roles:
            safe = (clean[role].abs() > LARGEST_COUNT).ifelse(0.0, clean[role])
            fraction = safe != safe.floor()
            problems.append(_Problem(fraction, role, roles[role], "not whole", show=True))
    unseen = (clean["count"] > 0) & (clean["exposure"] == 0) & usable["exposure"]
    text_unseen = f"positive where column {roles['exposure']!r} is 0"
    problems.append(_Problem(unseen, "count", roles["count"], text_unseen, show=True))
    return problems


def _problem_counts(problems: list[_Problem]) -> dict[str, Any]:
    return {f"bad{i}": problem.condition.sum().fill_null(0) for i, problem in enumerate(problems)}


def _totals(raw: Any) -> dict[str, Any]:
    """Totals; sums of whole numbers are guarded, as they are taken before the verdict."""
    score, count, exposure = raw.score, raw["count"], raw.exposure
    safe = (count.abs() <= LARGEST_COUNT).ifelse(count, 0.0)  # null and NaN are not either
    high = (safe / 2.0**_SPLIT).floor()
    low = safe - high * 2.0**_SPLIT
    return {
        "n": raw.count(),
        "count_high": high.cast("int64").sum(),
        "count_low": low.floor().cast("int64").sum(),
        "float_count": safe.sum(),
        "total_exposure": exposure.sum(),
        "exposure_max": exposure.max(),
        "score_min": score.min(),
        "score_max": score.max(),
    }


def _aggregated(
    raw: Any, problems: list[_Problem], grid: Grid | None
) -> tuple[dict[str, Any], Any]:
    """Totals and numbers of bad rows; and the cells of scores with items and counts."""
    sums = {**_totals(raw), **_problem_counts(problems)}
    if grid is None:
        rows = raw.aggregate(**sums).to_pyarrow()
        return rows.to_pylist()[0], None
    # the cell of a bad score matters to nobody, as the items are refused
    usable = (raw.score.abs() <= LARGEST).fill_null(False) & ~raw.score.fill_null(0.0).isnan()
    cell = score_cell(usable.ifelse(raw.score, 1.0), grid)
    table = raw.group_by(cell=cell).aggregate(**sums).to_pyarrow()
    if table.num_rows == 0:
        return {"n": 0}, None
    columns = {name: table[name].to_numpy() for name in table.column_names}
    found = {name: _RULES.get(name[-3:], np.sum)(columns[name]).item() for name in sums}
    order = np.argsort(columns["cell"])
    counts = (columns["count_high"].astype(np.int64) << _SPLIT) + columns["count_low"]
    cells = (columns["cell"][order], columns["n"][order], counts[order])
    return found, tuple(values.astype(np.int64) for values in cells)


_RULES = {"min": np.min, "max": np.max}  # by the end of a column's name; others are sums


def _error(raw: Any, bad: list[tuple[_Problem, int]], n: int, ordered: bool) -> ItemsError:
    """One error with a line on each problem."""
    error = ItemsError("\n".join(_describe(raw, problem, number, n) for problem, number in bad))
    if ordered:
        for note in _row_numbers(raw, [problem for problem, _ in bad]):
            error.add_note(note)
    return error


def _describe(raw: Any, problem: _Problem, bad: int, n: int) -> str:
    """One line on one problem: the same words on every engine."""
    shown = ""
    if problem.show:
        value = raw.filter(problem.condition).select(value=raw[problem.role]).distinct()
        lowest = value.order_by("value").limit(_SHOWN).to_pyarrow()["value"].to_pylist()
        more = ", ..." if len(lowest) == _SHOWN else ""
        shown = f" ({', '.join(f'{v:.12g}' for v in lowest)}{more})"
    return (
        f"column {problem.column!r}: {bad:,} of {n:,} {'row' if n == 1 else 'rows'} "
        f"{'is' if bad == 1 else 'are'} {problem.what}{shown}; {_NEEDS[problem.role]}: "
        f"fix or drop {'this row' if bad == 1 else 'these rows'}"
    )


def _row_numbers(raw: Any, problems: list[_Problem]) -> Iterator[str]:
    """Where the first bad rows of an ordered table are."""
    import ibis

    for problem in problems:
        numbered = raw.mutate(bad=problem.condition, row=ibis.row_number())
        rows = numbered.filter(numbered.bad).order_by("row").limit(_SHOWN)
        places = ", ".join(f"{row:,}" for row in rows.to_pyarrow()["row"].to_pylist())
        yield f"column {problem.column!r} {problem.what}: rows {places}, counted from 0"
