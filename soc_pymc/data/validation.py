"""Columns of items by role, and their validity; one error reports all problems of a table."""

import math
from collections.abc import Iterator
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

from .._lib.errors import ItemsError
from .._lib.progress import phase
from .._lib.reprs import digits
from ..families.outcome import Outcome
from ..families.scales import LARGEST_COUNT, Bounds
from .formulas import FOLD_PRIME, exact, ibis_functions, near_whole
from .items import DAY, Items
from .roles import (
    CROSS,
    MARK,
    NO_SCORE,
    ONE_SCORE,
    Roles,
    bounds_of,
    is_group,
    needs_of,
    wrong_type,
)
from .sources import count_of, kind_of, open_table, readable, schema_of

if TYPE_CHECKING:
    import ibis.expr.types as ir

_SHOWN = 3  # bad values shown in an error
# ids checked for repetition; of more, a share by their hash
_IDS_AT_ONCE = 1_000_000


def read_columns(table: "ir.Table", roles: Roles) -> dict[str, Any]:
    """Ibis columns by role: numbers as float64, ids as int64, labels as text."""
    return {
        role: exact(ONE_SCORE)
        if name == NO_SCORE
        else _read_through_ibis(role, table[name])
        for role, name in roles.items()
    }


def _read_through_ibis(role: str, column: "ir.Column") -> Any:
    dtype = column.type()
    if rule := bounds_of(role):
        value = column.cast("float64")
        exact = dtype.is_integer() or dtype.is_boolean() or not rule.whole
        return value if exact else near_whole(value, ibis_functions())
    if role == "id":  # only the remainder matters for folds, so no id is too large
        return (column % FOLD_PRIME if dtype.is_unsigned_integer() else column).cast(
            "int64"
        )
    if dtype.is_boolean():
        return column.ifelse(
            "true", "false"
        )  # engines spell true and false differently
    return (column.cast("date") if dtype.is_temporal() else column).cast("string")


def with_group(table: "ir.Table", roles: Roles) -> Any:
    """The table, with dates and columns of groups joined to one column, ``group``."""
    if not roles.joined:
        return table
    labels = [table[role] for role in roles.joined]
    return table.mutate(group=reduce(lambda a, b: a + CROSS + b, labels))


def read(items: Items) -> Any:
    """Ibis table of items, not yet valid, as `read_columns` reads them."""
    table = open_table(items.source, items.roles.columns)
    with readable(items.source):
        check_types(items, table)
        return table.select(**read_columns(table, items.roles))


def scan(items: Items, progress: bool = True) -> tuple[int, Any]:
    """Validate items in one pass; returns their number, and their table with labels joined."""
    outcome = items.outcome
    table = read(items)
    with phase("checking items", enabled=progress), readable(items.source):
        problems = list(_problems_of(table, items.roles, outcome))
        totals = {
            f"{k}": p.condition.sum().fill_null(0) for k, p in enumerate(problems)
        }
        if items.has_outcomes:
            y = table[outcome.observed]
            totals["y"] = (
                (y.abs() <= outcome.validity.outcome.largest).ifelse(y, 0.0).sum()
            )
        (sums,) = table.aggregate(n=table.count(), **totals).to_pyarrow().to_pylist()
        if not (n := sums["n"]):
            raise ItemsError(_no_rows(items))
        bad = [(p, int(sums[f"{k}"])) for k, p in enumerate(problems) if sums[f"{k}"]]
        if bad:
            raise ItemsError("\n".join(_describe(table, p, rows, n) for p, rows in bad))
    check_total(items, float(sums.get("y", 0.0)))
    return n, with_group(table, items.roles)


class _Problem(NamedTuple):
    """One possible problem of rows."""

    condition: Any  # Ibis expression, true on bad rows
    role: str
    column: str
    what: str  # description of the values, such as "negative"


def _problems_of(
    table: "ir.Table", roles: Roles, outcome: Outcome
) -> Iterator[_Problem]:
    """All possible problems of a row."""
    for role, column in roles.items():
        rule = bounds_of(role)
        value = table[role]
        crossed = len(roles.joined) > 1
        conditions = (
            _bad_numbers(rule, value) if rule else _bad_labels(role, value, crossed)
        )
        for condition, what in conditions:
            yield _Problem(condition, role, column, what)
    pair = outcome.validity
    y = outcome.observed
    x = outcome.size
    if pair.conflict and y in roles:
        count, *_ = _finite(table[y])
        size, missing, infinite = _finite(table[x])
        conflict = pair.conflict(count, size) & ~(missing | infinite)
        yield _Problem(conflict, y, roles[y], pair.conflict_words.format(size=roles[x]))


def _finite(value: "ir.Column") -> tuple[Any, Any, Any]:
    """Numbers with 0 in place of missing and infinite ones, and the masks of these two."""
    missing = value.fill_null(float("nan")).isnan()
    known = missing.ifelse(0.0, value)
    # not every engine's isinf is right
    infinite = known.abs() == float("inf")
    return infinite.ifelse(0.0, known), missing, infinite


def _bad_numbers(rule: Bounds, value: "ir.Column") -> Iterator[tuple[Any, str]]:
    """Conditions of bad numbers, each with its description."""
    number, missing, infinite = _finite(value)
    yield missing, "missing (null or NaN)"
    yield infinite, "infinite"
    yield (number.abs() if rule.least is None else number) > rule.largest, rule.beyond
    if rule.least is not None:
        yield number < 0, "negative"
    if rule.least:
        small = (number >= 0) & (number < rule.least) & ~(missing | infinite)
        yield small, f"0 or below {rule.least:g}"
    if rule.whole:
        exact = (number.abs() > LARGEST_COUNT).ifelse(0.0, number)
        yield exact != exact.floor(), "not whole"


def _bad_labels(
    role: str, label: "ir.Column", crossed: bool
) -> Iterator[tuple[Any, str]]:
    """Conditions of bad labels and ids, each with its description."""
    yield label.isnull(), "missing (null)"
    if role == "date":
        yield ~label.fill_null("2000-01-01").re_search(DAY), "not a day YYYY-MM-DD"
    elif is_group(role) and crossed:
        what = f"labelled with {MARK!r}, which joins the levels of crossed groups"
        yield label.contains(MARK), what


def _describe(raw: "ir.Table", problem: _Problem, bad: int, n: int) -> str:
    """One line for one problem, with the same words on every engine."""
    shown = ""
    if not problem.what.startswith(("missing", "labelled")):
        value = raw.filter(problem.condition).select(value=raw[problem.role]).distinct()
        lowest = value.order_by("value").limit(_SHOWN).to_pyarrow()["value"].to_pylist()
        texts = (repr(v[:20]) if isinstance(v, str) else digits(v) for v in lowest)
        shown = f" ({', '.join(texts)}{', ...' * (len(lowest) == _SHOWN)})"
    verb, rows = ("is", "this row") if bad == 1 else ("are", "these rows")
    counted = f"column {problem.column!r}: {bad:,} of {n:,} row{'s' * (n != 1)} {verb}"
    return (
        f"{counted} {problem.what}{shown}; {needs_of(problem.role)}: fix or drop {rows}"
    )


def check_types(items: Items, table: "ir.Table") -> None:
    """Refuse columns of a table or of `Rows` whose type does not suit their role."""
    schema = schema_of(table)
    wrong = [
        f"column {name!r} holds {words}; {needs_of(role)}: convert it first"
        for role, name in items.roles.items()
        if name != NO_SCORE and (words := wrong_type(role, schema.field(name).type))
    ]
    if wrong:
        rows = table.num_rows if hasattr(table, "num_rows") else count_of(table)
        raise ItemsError("\n".join(wrong) if rows else _no_rows(items))


def check_total(items: Items, total: float) -> None:
    """Refuse whole outcomes whose sum overflows."""
    outcome = items.outcome
    if outcome.whole and total > 2.0**62:
        raise ItemsError(
            f"column {items.roles[outcome.observed]!r} sums to {total:.3g}, more than can be "
            "counted exactly: summarize parts of the items"
        )


def check_ids(items: Items, progress: bool = True) -> None:
    """Refuse ids that several rows have, on one day if the items have dates."""
    if items.id is None:
        return
    import ibis.expr.operations as ops

    table = open_table(items.source, items.roles.columns)
    keys = [role for role in ("id", "date") if role in items.roles]
    table = table.select(**{role: table[items.roles[role]] for role in keys})
    table = table.filter(table["id"].notnull())
    with phase("checking ids", enabled=progress), readable(items.source):
        n = table.count().to_pyarrow().as_py()
        hashed = table.get_backend().has_operation(ops.Hash)
        parts = math.ceil(n / _IDS_AT_ONCE) if hashed else 1
        if parts > 1:  # all rows of an id have the same hash
            table = table.filter(table["id"].hash() % parts == 0)
        rows = table.group_by(keys).aggregate(n=table.count())["n"]
        repeated = (parts * (rows > 1).ifelse(rows, 0).sum()).to_pyarrow().as_py()
    if repeated:
        raise ItemsError(
            f"column {items.id!r}: {'about ' * (parts > 1)}{repeated:,} of {n:,} rows have an id "
            f"that occurs more than once{' on one day' if items.date else ''}; an id names one "
            "item: drop duplicates, add up the rows of an item, or name the column as cluster= "
            "instead of id="
        )


def _no_rows(items: Items) -> str:
    file = f"{items.source}: " if kind_of(items.source) == "files" else ""
    return f"{file}the table of items has no rows"
