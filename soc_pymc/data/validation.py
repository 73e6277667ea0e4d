"""Validate and total items in one pass; one error reports all problems of a table."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from .._lib.arguments import digits
from .._lib.errors import ItemsError
from .._lib.progress import phase
from ..families.outcomes import OUTCOMES, Outcome
from ..families.scales import LARGEST_COUNT
from .columns import NUMBERS, crossed, numbers, typed
from .groups import DAY, MARK, is_group, is_label, key_roles
from .items import Items
from .sources import kind_of, open_table, readable

_SHOWN = 3  # bad values shown in an error
_IDS_AT_ONCE = 1_000_000  # ids checked for repetition; of more, a share by their hash
_LABELS = "labels: text, whole numbers or true/false"
_NEEDS = {
    "group": f"groups must be {_LABELS}",
    "cluster": f"clusters must be {_LABELS}",
    "date": "dates must be dates, times without a time zone (their day is taken as stored), or "
    "text YYYY-MM-DD",
    "id": "ids must be whole numbers or text (folds may also be a column, fold=)",
}


class Scan(NamedTuple):
    """Valid items: totals, and a table with columns by role."""

    n: int
    score_min: float
    score_max: float
    table: Any  # of Ibis: numbers as float64, whole ones and ids as int64, labels as text


def read(items: Items) -> Any:
    """Ibis table of items that are not yet valid, with columns by role as `numbers` reads them."""
    table = open_table(items.source, list(items.roles.values()))
    with readable(items.source):
        check_types(items, table)
        columns = {role: table[name] for role, name in items.roles.items()}
        return table.select(**crossed(numbers(columns)))


def scan(items: Items, progress: bool = True, *, folds: bool = False) -> Scan:
    """Validate items and total them in one pass."""
    items = items if folds else replace(items, id=None, fold=None, cluster=None, date=None)
    outcome = OUTCOMES[items.kind]
    table = open_table(items.source, list(items.roles.values()))
    columns = {role: table[name] for role, name in items.roles.items()}
    with phase("checking items", enabled=progress), readable(items.source):
        check_types(items, table)
        raw = table.select(**numbers(columns))
        defaults = {outcome.observed: 0.0, outcome.size: outcome.no_information}
        raw = raw.mutate({role: x for role, x in defaults.items() if role not in columns})
        problems = _problems_of(raw, items.roles, outcome)
        y = raw[outcome.observed]
        countable = (y.abs() <= outcome.validity.outcome.largest).ifelse(y, 0.0)  # no null or NaN
        totals = raw.aggregate(
            n=raw.count(),
            outcome=countable.sum(),
            score_min=raw.score.min(),
            score_max=raw.score.max(),
            **{f"{i}": p.condition.sum().fill_null(0) for i, p in enumerate(problems)},
        )
        (sums,) = totals.to_pyarrow().to_pylist()
        if not sums["n"]:
            raise ItemsError(_no_rows(items))
        bad = [(problem, int(sums[f"{i}"])) for i, problem in enumerate(problems)]
        if any(rows for _, rows in bad):
            lines = [_describe(raw, problem, rows, sums["n"]) for problem, rows in bad if rows]
            raise ItemsError("\n".join(lines))
    check_total(items, float(sums["outcome"]))
    ends = float(sums["score_min"]), float(sums["score_max"])
    return Scan(sums["n"], *ends, table.select(**crossed(typed(columns))))


# --- problems of rows ----------------------------------------------------------------------------


class _Problem(NamedTuple):
    """One possible problem of rows."""

    condition: Any  # Ibis expression, true on bad rows
    role: str
    column: str
    what: str  # what the values are, such as "negative"
    show: bool = True  # whether to show the bad values


def _problems_of(raw: Any, roles: Mapping[str, str], outcome: Outcome) -> list[_Problem]:
    """All possible problems of a row; a value counts for the first that applies."""
    problems: list[_Problem] = []
    clean: dict[str, Any] = {}
    usable: dict[str, Any] = {}
    for role, name in roles.items():
        value = raw[role]
        if role not in NUMBERS:
            problems.append(_Problem(value.isnull(), role, name, "missing (null)", show=False))
            if role == "date":
                wrong = ~value.fill_null("2000-01-01").re_search(DAY)
                problems.append(_Problem(wrong, role, name, "not a day YYYY-MM-DD"))
            if is_group(role) and len(key_roles(roles)) > 1:
                what = f"labelled with {MARK!r}, which joins the levels of crossed groups"
                problems.append(_Problem(value.contains(MARK), role, name, what, show=False))
            continue
        rule = NUMBERS[role]
        missing = value.fill_null(float("nan")).isnan()
        known = missing.ifelse(0.0, value)
        infinite = known.abs() == float("inf")  # not every engine's isinf is right
        clean[role] = number = infinite.ifelse(0.0, known)
        usable[role] = ~(missing | infinite)
        beyond = (number.abs() if rule.least is None else number) > rule.largest
        problems += [
            _Problem(missing, role, name, "missing (null or NaN)", show=False),
            _Problem(infinite, role, name, "infinite"),
            _Problem(beyond, role, name, rule.beyond),
        ]
        if rule.least is not None:
            problems.append(_Problem(number < 0, role, name, "negative"))
        if rule.least:
            small = (number >= 0) & (number < rule.least) & usable[role]
            problems.append(_Problem(small, role, name, f"0 or below {rule.least:g}"))
        if rule.whole:
            safe = (number.abs() > LARGEST_COUNT).ifelse(0.0, number)
            problems.append(_Problem(safe != safe.floor(), role, name, "not whole"))
    pair, y, x = outcome.validity, outcome.observed, outcome.size
    if pair.conflict and y in roles:
        conflict = pair.conflict(clean[y], clean[x]) & usable[x]
        what = pair.conflict_words.format(size=roles[x])
        problems.append(_Problem(conflict, y, roles[y], what))
    return problems


def _describe(raw: Any, problem: _Problem, bad: int, n: int) -> str:
    """One line for one problem, with the same words on every engine."""
    shown = ""
    if problem.show:
        value = raw.filter(problem.condition).select(value=raw[problem.role]).distinct()
        lowest = value.order_by("value").limit(_SHOWN).to_pyarrow()["value"].to_pylist()
        texts = (repr(v[:20]) if isinstance(v, str) else digits(v) for v in lowest)
        shown = f" ({', '.join(texts)}{', ...' * (len(lowest) == _SHOWN)})"
    rows, are = "row" if n == 1 else "rows", "is" if bad == 1 else "are"
    remedy = f"fix or drop {'this row' if bad == 1 else 'these rows'}"
    counted = f"column {problem.column!r}: {bad:,} of {n:,} {rows} {are} {problem.what}{shown}"
    return f"{counted}; {_needs(problem.role)}: {remedy}"


def _needs(role: str) -> str:
    """The required contents of a role's column, in words."""
    return NUMBERS[role].needs if role in NUMBERS else _NEEDS["group" if is_group(role) else role]


# --- problems of columns -------------------------------------------------------------------------


def check_types(items: Items, table: Any) -> None:
    """Refuse columns whose type does not suit their role."""
    wrong = [
        f"column {name!r} holds {words}; {_needs(role)}: convert it first"
        for role, name in items.roles.items()
        if (words := _wrong_type(role, table[name].type()))
    ]
    if wrong and table.count().to_pyarrow().as_py() == 0:
        raise ItemsError(_no_rows(items))
    if wrong:
        raise ItemsError("\n".join(wrong))


def _wrong_type(role: str, dtype: Any) -> str:
    """The type of a column in words, if it does not suit its role; else nothing."""
    integral, text = dtype.is_integer(), dtype.is_string() or dtype.is_null()
    if role == "date":
        right = text or dtype.is_date() or (dtype.is_timestamp() and dtype.timezone is None)
    elif role not in NUMBERS:
        labels = text or dtype.is_boolean()
        right = integral or text or (is_label(role) and labels)
    elif dtype.is_boolean():
        right = NUMBERS[role].labels
    else:
        right = dtype.is_numeric() or dtype.is_null()
    if right:
        return ""
    if dtype.is_boolean():
        return "true/false values"
    if dtype.is_string():
        return "text"
    if dtype.is_temporal():
        return "times with a time zone" if role == "date" else "dates or times"
    if integral:
        return "numbers"
    if dtype.is_floating() or dtype.is_decimal():  # pandas has floats where whole ones are missing
        return "numbers with fractions (pandas: .astype('Int64') makes whole numbers)"
    return f"values of type {dtype}"


def check_total(items: Items, total: float) -> None:
    """Refuse whole outcomes whose sum overflows."""
    outcome = OUTCOMES[items.kind]
    if outcome.whole and total > 2.0**62:
        raise ItemsError(
            f"column {items.roles[outcome.observed]!r} sums to {total:.3g}, more than can be "
            "counted exactly: summarize parts of the items"
        )


def check_ids(items: Items, progress: bool = True) -> None:
    """Refuse ids that several rows have, on one day if the items have dates."""
    import ibis.expr.operations as ops

    if items.id is None:
        return
    table = open_table(items.source, list(items.roles.values()))
    table = table.filter(table[items.id].notnull())
    keys = [name for name in (items.id, items.date) if name]
    with phase("checking ids", enabled=progress), readable(items.source):
        n = table.count().to_pyarrow().as_py()
        hashed = table.get_backend().has_operation(ops.Hash)
        parts = math.ceil(n / _IDS_AT_ONCE) if hashed else 1
        if parts > 1:  # all rows of an id have the same hash
            table = table.filter(table[items.id].hash() % parts == 0)
        rows = table.group_by(keys).aggregate(rows_of_id=table.count())["rows_of_id"]
        repeated = (parts * (rows > 1).ifelse(rows, 0).sum()).to_pyarrow().as_py()
    if repeated:
        raise ItemsError(
            f"column {items.id!r}: {'about ' * (parts > 1)}{repeated:,} of {n:,} rows have an id "
            f"that occurs more than once{' on one day' if items.date else ''}; an id names one "
            "item: drop duplicates, add up the rows of an item, or name the column as cluster= "
            "instead of id="
        )


def _no_rows(items: Items) -> str:
    shown = f"{items.source}: " if kind_of(items.source) == "files" else ""
    return f"{shown}the table of items has no rows"
