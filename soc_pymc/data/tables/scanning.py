"""Items validated and totalled in one pass; every problem of a table in one error."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._lib.errors import ItemsError
from ..._lib.progress import phase
from ...families.validity import LARGEST, LARGEST_COUNT, LARGEST_VALUE, LEAST_SD
from ..binning import Grid
from ..items import Items, NormalItems, PoissonItems
from .expressions import score_cell
from .reading import AnyTotals, NormalTotals, Totals
from .sources import kind_of, open_table, readable
from .validation import Problem, needs, numbers, problems_of, typed, wrong_type

__all__ = ["Scan", "check_spread", "check_total", "check_types", "scan"]

_SHOWN = 3  # bad rows shown in an error
_SPLIT = 26  # bits of the lower halves of counts: sums of halves cannot overflow
_FARTHEST = 2.0**20  # of values, in noise sds, where they are kept in joint cells


@dataclass(frozen=True)
class Scan:
    """Totals of valid items, from one pass, and a table of them.

    Attributes
    ----------
    totals
        Totals.
    table
        Ibis table of the items with columns named by role: ``score``, ``exposure``, ``value`` and
        ``noise_sd`` (float64), ``count`` (int64), and ``group`` (text), ``id`` and ``fold``
        (int64) where items have them.
    cells
        Cells of scores on the grid, rising, with their numbers of items and, of counts, sums:
        columns ``cell``, ``items``, ``count``.
    """

    totals: AnyTotals
    table: Any = field(repr=False)
    cells: Mapping[str, NDArray[np.int64]] | None = None


def scan(items: Items, progress: bool = True, grid: Grid | None = None) -> Scan:
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
    >>> scan(PoissonItems(frame, score="t", count="clicks", exposure="views")).totals.n
    2
    """
    table = open_table(items.source, list(items.roles.values()))
    columns = {role: table[name] for role, name in items.roles.items()}
    with phase("checking items", enabled=progress), readable(items.source):
        check_types(items, table)
        raw = table.select(**numbers(columns))
        problems = problems_of(raw, items.roles)
        found, cells = _aggregated(items, raw, problems, grid)
        if found["n"] == 0:
            raise ItemsError(_no_rows(items))
        bad = [(p, found[f"bad{i}"]) for i, p in enumerate(problems) if found[f"bad{i}"]]
        if bad:
            raise _error(raw, bad, found["n"], kind_of(items.source) != "ibis")
    totals = _normal(found) if isinstance(items, NormalItems) else _poisson(items, found)
    return Scan(totals, table.select(**typed(columns)), cells)


def check_types(items: Items, table: Any) -> None:
    """Refuse columns that do not hold what their roles need."""
    wrong = [
        f"column {name!r} holds {word}; {needs(role)}: convert it first"
        for role, name in items.roles.items()
        if (word := wrong_type(role, table[name].type()))
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


def check_spread(items: NormalItems, farthest: float, most_joint: int) -> None:
    """Refuse values too far from 0 for joint cells, where these are wanted."""
    if most_joint and farthest > _FARTHEST:
        raise ItemsError(
            f"column {items.value!r}: values are up to {farthest:.3g} noise sds from 0, and joint "
            f"cells tell them apart only up to {_FARTHEST:,.0f}: subtract a constant from values "
            "and scores alike, or leave out joint="
        )


def _no_rows(items: Items) -> str:
    shown = f"{items.source}: " if kind_of(items.source) == "files" else ""
    return f"{shown}the table of items has no rows"


def _problem_counts(problems: list[Problem]) -> dict[str, Any]:
    return {f"bad{i}": problem.condition.sum().fill_null(0) for i, problem in enumerate(problems)}


def _totals(raw: Any) -> dict[str, Any]:
    """Totals; sums are guarded where they could overflow, as they are taken before the verdict."""
    ends = {"n": raw.count(), "score_min": raw.score.min(), "score_max": raw.score.max()}
    if "value" in raw.columns:
        value = (raw.value.abs() <= LARGEST_VALUE).ifelse(raw.value, 0.0)
        usable = (raw.noise_sd >= LEAST_SD) & (raw.noise_sd <= LARGEST_VALUE)
        noise = usable.ifelse(raw.noise_sd, 1.0)
        size = (value.abs() >= LEAST_SD).ifelse(value.abs(), 0.0)
        return ends | {
            "value": value.sum(),
            "value_size": size.sum(),
            "noise_square": (noise * noise).sum(),
            "farthest_max": (size / noise).max(),
        }
    safe = (raw["count"].abs() <= LARGEST_COUNT).ifelse(raw["count"], 0.0)  # null and NaN are not
    high = (safe / 2.0**_SPLIT).floor()
    low = safe - high * 2.0**_SPLIT
    return ends | {
        "count_high": high.cast("int64").sum(),
        "count_low": low.floor().cast("int64").sum(),
        "float_count": safe.sum(),
        "total_exposure": raw.exposure.sum(),
        "exposure_max": raw.exposure.max(),
    }


def _poisson(items: PoissonItems, found: Mapping[str, Any]) -> Totals:
    check_total(items, found["float_count"])
    return Totals(
        found["n"],
        (int(found["count_high"]) << _SPLIT) + int(found["count_low"]),
        found["total_exposure"],
        found["score_min"],
        found["score_max"],
        found["exposure_max"],
    )


def _normal(found: Mapping[str, Any]) -> NormalTotals:
    return NormalTotals(
        found["n"],
        found["value"],
        found["value_size"],
        found["noise_square"],
        found["score_min"],
        found["score_max"],
        found["farthest_max"],
    )


def _aggregated(
    items: Items, raw: Any, problems: list[Problem], grid: Grid | None
) -> tuple[dict[str, Any], Mapping[str, NDArray[np.int64]] | None]:
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
    cells = {"cell": columns["cell"], "items": columns["n"]}
    if isinstance(items, PoissonItems):
        cells["count"] = (columns["count_high"].astype(np.int64) << _SPLIT) + columns["count_low"]
    return found, {name: values[order].astype(np.int64) for name, values in cells.items()}


_RULES = {"min": np.min, "max": np.max}  # by the end of a column's name; others are sums


def _error(raw: Any, bad: list[tuple[Problem, int]], n: int, ordered: bool) -> ItemsError:
    """One error with a line on each problem."""
    error = ItemsError("\n".join(_describe(raw, problem, number, n) for problem, number in bad))
    if ordered:
        for note in _row_numbers(raw, [problem for problem, _ in bad]):
            error.add_note(note)
    return error


def _describe(raw: Any, problem: Problem, bad: int, n: int) -> str:
    """One line on one problem: the same words on every engine."""
    shown = ""
    if problem.show:
        value = raw.filter(problem.condition).select(value=raw[problem.role]).distinct()
        lowest = value.order_by("value").limit(_SHOWN).to_pyarrow()["value"].to_pylist()
        more = ", ..." if len(lowest) == _SHOWN else ""
        shown = f" ({', '.join(f'{v:.12g}' for v in lowest)}{more})"
    return (
        f"column {problem.column!r}: {bad:,} of {n:,} {'row' if n == 1 else 'rows'} "
        f"{'is' if bad == 1 else 'are'} {problem.what}{shown}; {needs(problem.role)}: "
        f"fix or drop {'this row' if bad == 1 else 'these rows'}"
    )


def _row_numbers(raw: Any, problems: list[Problem]) -> Iterator[str]:
    """Where the first bad rows of an ordered table are."""
    import ibis

    for problem in problems:
        numbered = raw.mutate(bad=problem.condition, row=ibis.row_number())
        rows = numbered.filter(numbered.bad).order_by("row").limit(_SHOWN)
        places = ", ".join(f"{row:,}" for row in rows.to_pyarrow()["row"].to_pylist())
        yield f"column {problem.column!r} {problem.what}: rows {places}, counted from 0"
