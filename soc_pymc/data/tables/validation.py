"""Validate and total items in one pass; one error reports all problems of a table."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._lib.arguments import digits
from ..._lib.arrays import Floats
from ..._lib.errors import ItemsError
from ..._lib.progress import phase
from ...families.outcomes import OUTCOMES, Outcome
from ...families.validity import LARGEST, LARGEST_COUNT, Bounds
from ..binning import Columns, Grid, Joint
from ..days import DAY
from ..folds import MOST_FOLDS
from ..formulas import FOLD_PRIME
from ..groups import CROSS, MARK, is_group, is_label, key_roles
from ..items import Items
from .columns import HASHING, number_of_text, score_cell
from .sources import kind_of, open_table, readable

_SHOWN = 3  # bad rows shown in an error
_ROUNDING = 1e-9  # from a whole number, for which a number is then taken
_SPLIT = 26  # bits of the lower halves of counts: sums of halves cannot overflow
_RULES = {"min": np.min, "max": np.max}  # by suffix of the column's name; others are sums
_GROUPS = "groups must be labels: text, whole numbers or true/false"
_DATES = (
    "dates must be dates, times without a time zone (their day is taken as stored), or text "
    "YYYY-MM-DD"
)
_CLUSTERS = "clusters must be labels: text, whole numbers or true/false"
_LEAST_CLUSTER = 1.01  # items per cluster
_IDS = "folds need ids that are whole numbers or text (or give fold= a column of fold numbers)"
_IDS_AT_ONCE = 1_000_000  # ids that are looked for twice; of more, a share by their hash
_ID_PRIME = 1_999_993
_FOLD = Bounds(
    f"folds must be whole numbers from 0 to {MOST_FOLDS - 1}",
    largest=MOST_FOLDS - 1.0,
    least=0.0,
    whole=True,
    name_of_largest=f"larger than {MOST_FOLDS - 1}",
)
_NUMBERS: dict[str, Bounds] = {"fold": _FOLD}
for _outcome in OUTCOMES.values():
    _NUMBERS |= _outcome.bounds


@dataclass(frozen=True)
class Totals:
    """Totals of valid items."""

    n: int
    outcome: int | float  # sums of outcomes (exact for whole numbers), of their absolute
    absolute: float  # values, and of sizes: exposures or squared noise sds
    sizes: float
    score_min: float
    score_max: float
    farthest: float  # the largest outcome in sizes, if joint cells are bounded; else 0

    def __add__(self, other: "Totals") -> "Totals":
        return Totals(
            self.n + other.n,
            self.outcome + other.outcome,
            self.absolute + other.absolute,
            self.sizes + other.sizes,
            min(self.score_min, other.score_min),
            max(self.score_max, other.score_max),
            max(self.farthest, other.farthest),
        )


@dataclass(frozen=True)
class Tables:
    """Sums over parts (group, fold and bin), their cells, and joint cells of groups and bins."""

    # columns of keys and sums by table, in any order; "joint" is optional
    sums: Mapping[str, Columns]
    labels: tuple[str, ...]  # of the groups, by code
    coarse: int  # bins per bin of the joint cells; 0 without joint cells
    totals: Totals  # from the same or an earlier pass, computed independently of the sums


@dataclass(frozen=True)
class Scan:
    """Totals of valid items, from one pass, and a table of them."""

    totals: Totals
    # Ibis table with columns named by role: numbers as float64, whole ones and ids as int64,
    # labels as text
    table: Any = field(repr=False)
    # occupied cells of the grid, with numbers of items, n, and the total of whole outcomes
    cells: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)


# --- problems ------------------------------------------------------------------------------------


def _needs(role: str) -> str:
    """The required contents of a role's column, in words."""
    if is_label(role):
        return _GROUPS if is_group(role) else {"date": _DATES}.get(role, _CLUSTERS)
    return _IDS if role == "id" else _NUMBERS[role].needs


def _wrong_type(role: str, dtype: Any) -> str | None:
    """The type of a column in words, if it does not suit its role."""
    if role == "date":
        whole_days = dtype.is_date() or (dtype.is_timestamp() and dtype.timezone is None)
        right = whole_days or dtype.is_string() or dtype.is_null()
    elif is_label(role):
        right = dtype.is_string() or dtype.is_integer() or dtype.is_boolean() or dtype.is_null()
    elif role == "id":
        right = dtype.is_integer() or dtype.is_string() or dtype.is_null()
    elif dtype.is_boolean():
        right = _NUMBERS[role].labels
    else:
        right = dtype.is_numeric() or dtype.is_null()
    if right:
        return None
    if role == "date" and dtype.is_timestamp():
        return "times with a time zone"
    return _in_words(dtype, "numbers" if role == "date" else "numbers with fractions")


def _in_words(dtype: Any, numbers: str) -> str:
    """A column's type in words, with `numbers` for those of numbers."""
    if dtype.is_boolean():
        return "true/false values"
    if dtype.is_string():
        return "text"
    if dtype.is_temporal() or dtype.is_interval() or _is_polars_time(dtype):
        return "dates or times"
    if dtype.is_numeric():
        return numbers
    return f"values of type {dtype}"


def _of_wrong_type(role: str, name: str, word: str, column: Any) -> list[str]:
    """Lines on a column of a wrong type; of labels in real numbers also what is missing.

    pandas turns whole numbers into floats where some are missing.
    """
    dtype, line = column.type(), f"column {name!r} holds {word}; {_needs(role)}"
    if role == "date" or not (dtype.is_floating() or dtype.is_decimal()):
        return [f"{line}: convert it first"]
    value = column.cast("float64").fill_null(float("nan"))
    usable = (value.isnan() | (value.abs() == float("inf"))).ifelse(0.0, value)
    other = (value.abs() == float("inf")) | (usable != usable.floor())
    numbers = {"n": value.count(), "missing": value.isnan().sum(), "other": other.sum()}
    found = value.as_table().aggregate(**numbers).to_pyarrow().to_pylist()[0]
    n, missing, others = (int(found[key] or 0) for key in ("n", "missing", "other"))
    what = _bad_rows(name, missing, n, "missing (null or NaN)")
    lines = [f"{what}; {_needs(role)}: {_remedy(missing)}"] if missing else []
    if others:
        lines.append(f"{line}: convert it first")
    elif missing < n:
        stored = "decimals" if dtype.is_decimal() else "floats"
        lines.append(
            f"column {name!r} holds whole numbers stored as {stored}; {_needs(role)}: convert it "
            "to whole numbers (in pandas by .astype('Int64')) or to text first"
        )
    return lines


def _bad_rows(name: str, bad: int, n: int, what: str) -> str:
    """How many rows of a column are bad, and in what way."""
    rows, are = "row" if n == 1 else "rows", "is" if bad == 1 else "are"
    return f"column {name!r}: {bad:,} of {n:,} {rows} {are} {what}"


def _remedy(bad: int) -> str:
    return f"fix or drop {'this row' if bad == 1 else 'these rows'}"


def _is_polars_time(dtype: Any) -> bool:
    """Whether the error is Ibis's, for times of day in nanoseconds, which it lacks."""
    return "TIME_NS" in str(dtype)


def numbers(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Columns as read: numbers as float64, ids as int64, labels as text."""
    read = {}
    for role, column in columns.items():
        if role in _NUMBERS:
            exact = column.type().is_integer() or column.type().is_boolean()
            value = column.cast("float64")
            read[role] = value if exact or not _NUMBERS[role].whole else _near_whole(value)
        elif role == "id" and column.type().is_string():
            read[role] = number_of_text(column)
        elif role == "id":
            # only the remainder matters for folds, so no id is too large
            large = column.type().is_unsigned_integer()
            read[role] = (column % FOLD_PRIME if large else column).cast("int64")
        elif role == "date" and column.type().is_temporal():
            read[role] = column.cast("date").cast("string")
        elif column.type().is_boolean():
            read[role] = column.ifelse("true", "false")  # engines spell true and false differently
        else:
            read[role] = column.cast("string")
    return read


def _near_whole(value: Any) -> Any:
    """`near_whole` of a column of real numbers."""
    safe = (value.abs() <= LARGEST_COUNT).ifelse(value, 0.0)  # not every number fits in an integer
    whole = (safe + 0.5).floor().cast("float64")
    return ((value - whole).abs() <= _ROUNDING).ifelse(whole, value)


def near_whole(role: str, values: Floats) -> Floats:
    """Numbers of a role; near a whole number that number, where the role holds whole numbers."""
    if role not in _NUMBERS or not _NUMBERS[role].whole:
        return values
    whole = np.floor(values + 0.5)
    if (whole == values).all():
        return values
    with np.errstate(invalid="ignore"):  # the difference of infinities
        return np.where(np.abs(values - whole) <= _ROUNDING, whole, values)


def crossed(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Columns as `numbers` reads them, and ``group``: dates and columns of groups, joined."""
    groups = key_roles(columns).values()
    labels = {"group": reduce(lambda one, other: one + CROSS + other, groups)} if groups else {}
    return {**columns, **labels}


def _typed(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Valid items with whole numbers as int64 (through float64, as decimals may not fit)."""
    found = numbers(columns)
    for role in [role for role in found if role in _NUMBERS and _NUMBERS[role].whole]:
        is_whole = columns[role].type().is_int64()
        found[role] = columns[role] if is_whole else found[role].cast("int64")
    return found


@dataclass(frozen=True)
class _Problem:
    """One possible problem of rows."""

    condition: Any  # Ibis expression, true on bad rows
    role: str
    column: str
    what: str  # what the values are, such as "negative"
    show: bool  # whether to show the bad values


def _problems_of(raw: Any, roles: Mapping[str, str], outcome: Outcome) -> list[_Problem]:
    """All possible problems of a row; a value counts for the first that applies.

    `raw` is a table of the columns by role, as `numbers` reads them.
    """
    problems: list[_Problem] = []
    clean: dict[str, Any] = {}
    usable: dict[str, Any] = {}
    for role, name in roles.items():
        value = raw[role]
        if role not in _NUMBERS:
            problems.append(_Problem(value.isnull(), role, name, "missing (null)", show=False))
            if role == "date":
                wrong = ~value.fill_null("2000-01-01").re_search(DAY)
                problems.append(_Problem(wrong, role, name, "not a day YYYY-MM-DD", show=True))
            if is_group(role) and len(key_roles(roles)) > 1:
                what = f"labelled with {MARK!r}, which joins the levels of crossed groups"
                problems.append(_Problem(value.contains(MARK), role, name, what, show=False))
            continue
        rule = _NUMBERS[role]
        missing = value.fill_null(float("nan")).isnan()
        known = missing.ifelse(0.0, value)
        infinite = known.abs() == float("inf")  # not every engine's isinf is right
        clean[role] = infinite.ifelse(0.0, known)
        usable[role] = ~(missing | infinite)
        size = clean[role].abs() if rule.least is None else clean[role]
        beyond = size > rule.largest
        problems += [
            _Problem(missing, role, name, "missing (null or NaN)", show=False),
            _Problem(infinite, role, name, "infinite", show=True),
            _Problem(beyond, role, name, rule.beyond, show=True),
        ]
        if rule.least is not None:
            problems.append(_Problem(clean[role] < 0, role, name, "negative", show=True))
        if rule.least:
            small = (clean[role] >= 0) & (clean[role] < rule.least) & usable[role]
            what = f"0 or below {rule.least:g}"
            problems.append(_Problem(small, role, name, what, show=True))
    for role in roles:
        if role in _NUMBERS and _NUMBERS[role].whole:
            safe = (clean[role].abs() > LARGEST_COUNT).ifelse(0.0, clean[role])
            fraction = safe != safe.floor()
            problems.append(_Problem(fraction, role, roles[role], "not whole", show=True))
    pair, y, x = outcome.validity, outcome.observed, outcome.size
    if pair.conflict and y in roles:
        both = pair.conflict(clean[y], clean[x]) & usable[x]
        what = pair.conflict_words.format(size=roles[x])
        problems.append(_Problem(both, y, roles[y], what, show=True))
    return problems


# --- one pass ------------------------------------------------------------------------------------


def scan(
    items: Items, progress: bool = True, grid: Grid | None = None, *, folds: bool = False
) -> Scan:
    """Validate items and total them in one pass.

    `grid` has cells of scores to count in the same pass. Only with `folds` are ids and columns of
    folds, clusters and dates read; where no folds are made, ids and folds may have any type. Each
    problem is one line of an ItemsError: the column, the number of bad rows, examples, and the
    requirement. If rows have an order, notes of the error give row numbers.
    """
    items = items if folds else replace(items, id=None, fold=None, cluster=None, date=None)
    table = open_table(items.source, list(items.roles.values()))
    columns = {role: table[name] for role, name in items.roles.items()}
    with phase("checking items", enabled=progress), readable(items.source):
        check_types(items, table)
        raw = table.select(**numbers(columns))
        outcome = OUTCOMES[items.kind]
        nothing = {outcome.observed: 0.0, outcome.size: outcome.no_information}
        raw = raw.mutate({role: x for role, x in nothing.items() if role not in columns})
        problems = _problems_of(raw, items.roles, outcome)
        found, cells = _aggregated(items, raw, problems, grid)
        if found["n"] == 0:
            raise ItemsError(_no_rows(items))
        bad = [(p, found[f"bad{i}"]) for i, p in enumerate(problems) if found[f"bad{i}"]]
        if bad:
            raise _error(raw, bad, found["n"], kind_of(items.source) != "ibis")
    check_total(items, found["outcome"])
    totals = Totals(
        found["n"],
        _joined(found) if "high" in found else found["outcome"],
        found.get("absolute", found["outcome"]),
        found["sizes"],
        found["score_min"],
        found["score_max"],
        found.get("far_max", 0.0),
    )
    return Scan(totals, table.select(**crossed(_typed(columns))), cells)


def check_types(items: Items, table: Any) -> None:
    """Refuse columns whose type does not suit their role."""
    wrong = [
        line
        for role, name in items.roles.items()
        if (word := _wrong_type(role, table[name].type()))
        for line in _of_wrong_type(role, name, word, table[name])
    ]
    if wrong and table.count().to_pyarrow().as_py() == 0:
        raise ItemsError(_no_rows(items))
    if wrong:
        raise ItemsError("\n".join(wrong))
    if items.id is None or not table[items.id].type().is_string():
        return
    engine = table.get_backend().name
    if engine not in HASHING:
        *others, last = HASHING.values()
        raise ItemsError(
            f"column {items.id!r} holds text, and folds of such ids are made in "
            f"{', '.join(others)} and {last}, in files and in memory, but not in {engine}: give "
            "ids that are whole numbers, or fold= a column of fold numbers"
        )


def check_total(items: Items, total: float) -> None:
    """Refuse whole outcomes whose sum overflows."""
    outcome = OUTCOMES[items.kind]
    if outcome.validity.outcome.whole and total > 2.0**62:
        raise ItemsError(
            f"column {items.roles[outcome.observed]!r} sums to {total:.3g}, more than can be "
            "counted exactly: summarize parts of the items"
        )


def check_ids(items: Items, progress: bool = True) -> None:
    """Refuse ids that several rows have, on one day if the items have dates.

    All rows of an id have the same hash, so a share of the hashes finds any share of repeated rows.
    """
    import ibis.expr.operations as ops

    if items.id is None:
        return
    table = open_table(items.source, list(items.roles.values()))
    table = table.filter(table[items.id].notnull())
    column, keys = table[items.id], [name for name in (items.id, items.date) if name]
    with phase("checking ids", enabled=progress), readable(items.source):
        n = table.count().to_pyarrow().as_py()
        whole = column.type().is_integer()
        text = column.type().is_string() and table.get_backend().has_operation(ops.Hash)
        of = math.ceil(n / _IDS_AT_ONCE) if whole or text else 1
        if of > 1:
            table = table.filter((column % _ID_PRIME if whole else column.hash()) % of == 0)
        rows = table.group_by(keys).aggregate(rows_of_id=table.count())["rows_of_id"]
        repeated = (of * (rows > 1).ifelse(rows, 0).sum()).to_pyarrow().as_py()
    if repeated:
        day = " on one day" if items.date else ""
        raise ItemsError(
            f"column {items.id!r}: {'about ' if of > 1 else ''}{repeated:,} of {n:,} rows have an "
            f"id that occurs more than once{day}; an id names one item: drop duplicates, add up "
            "the rows of an item, or name the column as cluster= instead of id="
        )


def check_clusters(items: Items) -> None:
    """Refuse a column of clusters with a label of its own for every item."""
    column = open_table(items.source, [str(items.cluster)])[items.cluster]
    with readable(items.source):
        numbers = {"n": column.count(), "labels": column.nunique()}
        n, labels = column.as_table().aggregate(**numbers).to_pyarrow().to_pylist()[0].values()
    if n > 1 and n < _LEAST_CLUSTER * labels:
        raise ItemsError(
            f"column {items.cluster!r}: there are as many clusters as items ({n:,}), so that no "
            "items share a cluster: name a column whose labels repeat, or leave cluster= out"
        )


def fits_joint(items: Items, farthest: float, joint: Joint) -> bool:
    """Whether outcomes are near enough to 0 for joint cells; an error if these must be kept."""
    outcome = OUTCOMES[items.kind]
    if joint.most and joint.merges and farthest > outcome.farthest:
        words = outcome.words
        raise ItemsError(
            f"column {items.roles[outcome.observed]!r}: {words.outcomes} are up to {farthest:.3g} "
            f"{words.sizes} from 0, and joint cells tell them apart only up to "
            f"{outcome.farthest:,.0f}: subtract a constant from {words.outcomes} and scores alike, "
            "or leave out joint="
        )
    return farthest <= outcome.farthest


def _no_rows(items: Items) -> str:
    shown = f"{items.source}: " if kind_of(items.source) == "files" else ""
    return f"{shown}the table of items has no rows"


def _totals(raw: Any, outcome: Outcome) -> dict[str, Any]:
    """Totals; sums are protected from overflow, because validity is not known yet."""
    y, x = raw[outcome.observed], raw[outcome.size]
    of_outcome, of_size = outcome.validity.outcome, outcome.validity.size
    known = (y.abs() <= of_outcome.largest) & (y.abs() >= of_outcome.negligible)
    y = known.ifelse(y, 0.0)  # neither null nor NaN
    x = ((x >= of_size.least) & (x <= of_size.largest)).ifelse(x, 1.0)
    found = {
        "n": raw.count(),
        "score_min": raw.score.min(),
        "score_max": raw.score.max(),
        "outcome": y.sum(),
        # a product, because engines differ in powers
        "sizes": math.prod([x] * (outcome.size_power - 1), start=x).sum(),
    }
    if of_outcome.whole:
        high = (y / 2.0**_SPLIT).floor()
        low = (y - high * 2.0**_SPLIT).floor()
        found |= {"high": high.cast("int64").sum(), "low": low.cast("int64").sum()}
    if of_outcome.least is None:  # sums of numbers of both signs may cancel
        found["absolute"] = y.abs().sum()
        if math.isfinite(outcome.farthest):
            found["far_max"] = (y.abs() / x).max()
    return found


def _joined(halves: Mapping[str, Any]) -> Any:
    """Sums of whole numbers from sums of their upper and lower bits."""
    return halves["high"] * (1 << _SPLIT) + halves["low"]


def _aggregated(
    items: Items, raw: Any, problems: list[_Problem], grid: Grid | None
) -> tuple[dict[str, Any], Mapping[str, NDArray[np.int64]]]:
    """Totals, numbers of bad rows, and cells of scores with items and counts."""
    sums = _totals(raw, OUTCOMES[items.kind])
    sums |= {f"bad{i}": p.condition.sum().fill_null(0) for i, p in enumerate(problems)}
    if grid is None:
        rows = raw.aggregate(**sums).to_pyarrow()
        return rows.to_pylist()[0], {}
    # cells of bad scores do not matter, because the items are refused
    usable = (raw.score.abs() <= LARGEST).fill_null(False) & ~raw.score.fill_null(0.0).isnan()
    cell = score_cell(usable.ifelse(raw.score, 1.0), grid)
    table = raw.group_by(cell=cell).aggregate(**sums).to_pyarrow()
    if table.num_rows == 0:
        return {"n": 0}, {}
    columns = {name: table[name].to_numpy() for name in table.column_names}
    found = {name: _RULES.get(name[-3:], np.sum)(columns[name]).item() for name in sums}
    order = np.argsort(columns["cell"])
    total = np.zeros_like(columns["n"])
    if "high" in sums:
        total = _joined({half: columns[half].astype(np.int64) for half in ("high", "low")})
    cells = {"cell": columns["cell"], "n": columns["n"], "total": total}
    return found, {name: values[order].astype(np.int64) for name, values in cells.items()}


def _error(raw: Any, bad: list[tuple[_Problem, int]], n: int, ordered: bool) -> ItemsError:
    """One error with a line for each problem."""
    error = ItemsError("\n".join(_describe(raw, problem, number, n) for problem, number in bad))
    if ordered:
        for note in _row_numbers(raw, [problem for problem, _ in bad]):
            error.add_note(note)
    return error


def _describe(raw: Any, problem: _Problem, bad: int, n: int) -> str:
    """One line for one problem, with the same words on every engine."""
    shown = ""
    if problem.show:
        value = raw.filter(problem.condition).select(value=raw[problem.role]).distinct()
        lowest = value.order_by("value").limit(_SHOWN).to_pyarrow()["value"].to_pylist()
        more = ", ..." if len(lowest) == _SHOWN else ""
        shown = f" ({', '.join(map(_short, lowest))}{more})"
    what = _bad_rows(problem.column, bad, n, f"{problem.what}{shown}")
    return f"{what}; {_needs(problem.role)}: {_remedy(bad)}"


def _short(value: Any) -> str:
    return repr(value[:20]) if isinstance(value, str) else digits(value)


def _row_numbers(raw: Any, problems: list[_Problem]) -> Iterator[str]:
    """Numbers of the first bad rows of an ordered table."""
    import ibis

    for problem in problems:
        numbered = raw.mutate(bad=problem.condition, row=ibis.row_number())
        rows = numbered.filter(numbered.bad).order_by("row").limit(_SHOWN)
        places = ", ".join(f"{row:,}" for row in rows.to_pyarrow()["row"].to_pylist())
        yield f"column {problem.column!r} {problem.what}: rows {places}, counted from 0"
