"""Items through Ibis: their validity, and grouped passes over those in a remote engine.

One error reports all problems of a table. An engine sends only sums.
"""

import math
from collections.abc import Iterator, Sequence, Set
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._lib.arguments import ItemsError
from .._lib.arrays import Columns, Floats, Ints
from .._lib.reprs import counted, digits
from .._lib.work import phase
from ..families.family import PART_KEYS, Outcome
from ..families.scales import LARGEST_COUNT, Bounds
from .binning import (
    CELL_SUMS,
    Pile,
    ScoreGrid,
    Sums,
    added_parts,
    make_lookup,
    sums_of,
)
from .formulas import (
    FOLD_PRIME,
    Folds,
    block_of_labels,
    cells_of,
    exact,
    fold_of,
    ibis_functions,
    near_whole,
    score_cell,
    size_cell,
    summand,
)
from .items import (
    CROSS,
    DAY,
    MARK,
    NO_SCORE,
    ONE_SCORE,
    Items,
    Roles,
    bounds_of,
    is_group,
    needs_of,
    wrong_type,
)
from .sources import (
    batches,
    count_of,
    drop_small_tables,
    kind_of,
    open_table,
    readable,
    schema_of,
    small_table,
)

if TYPE_CHECKING:
    import ibis.expr.types as ir

_SHOWN = 3  # bad values shown in an error
_NUMBER = r"^ *[-+]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][-+]?[0-9]+)? *$"
# ids checked for repetition; of more, a share by their hash
_IDS_AT_ONCE = 1_000_000
_ROWS = 1 << 20  # rows that arrive at once
_ZERO = "0"
_NOT_WHOLE = "not whole"
_BEYOND = 1e300  # stands for an infinite edge, which SQL cannot write


# --- validity ------------------------------------------------------------------------------------


def read_columns(table: "ir.Table", roles: Roles) -> dict[str, Any]:
    """Ibis columns by role: numbers as float64, ids as int64, labels as text."""
    columns = {
        role: exact(ONE_SCORE)
        if name == NO_SCORE
        else _read_through_ibis(role, table[name])
        for role, name in roles.items()
    }
    return roles.with_sums(columns, ibis_functions().where)


def _read_through_ibis(role: str, column: "ir.Column") -> Any:
    import ibis

    dtype = column.type()
    if rule := bounds_of(role):
        value = column.cast("float64")
        if rule.infinite and not dtype.is_integer():
            value = (value == float("inf")).ifelse(exact(rule.largest), value)
        if dtype.is_integer() or dtype.is_boolean() or not rule.whole:
            return value
        # NaN passes comparisons that hold for the limits a Parquet file states, on DuckDB
        known = value.isnan().ifelse(ibis.null("float64"), value)
        return near_whole(known, ibis_functions())
    if role == "id":  # only the remainder matters for folds, so no id is too large
        return (column % FOLD_PRIME if dtype.is_unsigned_integer() else column).cast(
            "int64"
        )
    if dtype.is_boolean():  # engines spell true and false differently
        return column.ifelse("true", "false")
    return (column.cast("date") if dtype.is_temporal() else column).cast("string")


def with_group(table: "ir.Table", roles: Roles) -> Any:
    """The table, with dates and columns of groups joined to one column, ``group``."""
    if not roles.joined:
        return table
    labels = [table[role].cast("string") for role in roles.joined]
    return table.mutate(group=reduce(lambda a, b: a + CROSS + b, labels))


def read(items: Items) -> Any:
    """Ibis table of items, not yet valid, as `read_columns` reads them."""
    table = open_table(items.source, items.roles.columns)
    with readable(items.source):
        check_types(items, table)
        return table.select(**read_columns(table, items.roles))


def scan(items: Items) -> tuple[int, Any]:
    """Validate items in one pass; returns their number, and their table with labels joined."""
    outcome = items.outcome
    table = read(items)
    with phase("checking items"), readable(items.source):
        problems = list(_problems_of(table, items.roles, outcome))
        totals = {
            f"{k}": p.condition.sum().fill_null(0) for k, p in enumerate(problems)
        }
        if items.has_outcomes:
            y = table[outcome.observed]
            totals["y"] = (
                (y.abs() <= outcome.validity.outcome.largest).ifelse(y, 0.0).sum()
            )
        if items.weight is not None:
            totals["weight"] = table["weight"].sum()
        (sums,) = table.aggregate(n=table.count(), **totals).to_pyarrow().to_pylist()
        if not (n := sums["n"]):
            raise ItemsError(no_rows(items))
        failed = ((p, int(sums[f"{k}"])) for k, p in enumerate(problems))
        lines = [_describe(table, p, rows, n) for p, rows in failed if rows]
        if lines:
            raise ItemsError("\n".join(lines))
    check_total(items, float(sums.get("y", 0.0)))
    return int(sums.get("weight", n)), with_group(table, items.roles)


class _Problem(NamedTuple):
    """One possible problem of rows."""

    condition: Any  # Ibis expression, true on bad rows
    role: str
    column: str
    what: str  # description of the values, such as "negative"
    needs: str  # the rule that they break


def _problems_of(
    table: "ir.Table", roles: Roles, outcome: Outcome
) -> Iterator[_Problem]:
    """All possible problems of a row."""
    for role, column in roles.items():
        rule = outcome.bounds.get(role, bounds_of(role))
        value = table[role]
        crossed = len(roles.joined) > 1
        conditions = (
            _bad_numbers(rule, value) if rule else _bad_labels(role, value, crossed)
        )
        for condition, what in conditions:
            needs = rule.needs if rule else needs_of(role)
            yield _Problem(condition, role, column, what, needs)
    pair = outcome.validity
    y = outcome.observed
    x = outcome.size
    if pair.conflict and y in roles:
        count, absent, endless = _finite(table[y])
        size, missing, infinite = _finite(table[x])
        unknown = missing | infinite | absent | endless
        conflict = pair.conflict(count, size) & ~unknown
        words = pair.conflict_words.format(size=roles[x])
        needs = pair.conflict_needs or pair.outcome.needs
        yield _Problem(conflict, y, roles[y], words, needs)


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
        small = (number == 0) if rule.whole else (number >= 0) & (number < rule.least)
        words = _ZERO if rule.whole else f"0 or below {rule.least:g}"
        yield small & ~(missing | infinite), words
    if rule.whole:
        exact = (number.abs() > LARGEST_COUNT).ifelse(0.0, number)
        yield exact != exact.floor(), _NOT_WHOLE


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
    if not problem.what.startswith(("missing", "labelled")) and problem.what != _ZERO:
        shown = _lowest(raw.filter(problem.condition), problem.role)
    verb, rows = ("is", "this row") if bad == 1 else ("are", "these rows")
    found = f"column {problem.column!r}: {bad:,} of {counted(n, 'row')} {verb}"
    remedy = f"fix or drop {rows}"
    rule = bounds_of(problem.role)
    if rule and problem.what == _NOT_WHOLE and 2 * bad > n:
        remedy = rule.fractions or remedy
    if rule and rule.zeros and problem.what.startswith("0 or below"):
        remedy = rule.zeros
    return f"{found} {problem.what}{shown}; {problem.needs}: {remedy}"


def check_types(items: Items, table: "ir.Table") -> None:
    """Refuse columns of a table or of `LocalTable` whose type does not suit their role."""
    schema = schema_of(table)
    wrong = [
        f"column {name!r} holds {words}{_not_numbers(items, role, name)}; {needs_of(role)}: "
        "convert it first"
        for role, name in items.roles.items()
        if name != NO_SCORE and (words := wrong_type(role, schema.field(name).type))
    ]
    if wrong:
        rows = table.num_rows if hasattr(table, "num_rows") else count_of(table)
        raise ItemsError("\n".join(wrong) if rows else no_rows(items))


def _not_numbers(items: Items, role: str, name: str) -> str:
    """The first texts in a column that should hold numbers, and their rows."""
    table = open_table(items.source, [name])
    text = table[name]
    if bounds_of(role) is None or not text.type().is_string():
        return ""
    bad = ~text.re_search(_NUMBER) & text.notnull()
    sums = table.aggregate(n=table.count(), bad=bad.sum()).to_pyarrow().to_pylist()[0]
    if not sums["bad"]:
        return ""
    some = _lowest(table.filter(bad), name)
    return f"{some[:-1]} in {sums['bad']:,} of {counted(sums['n'], 'row')})"


def _lowest(table: "ir.Table", name: str) -> str:
    """The lowest values of a column, in brackets."""
    value = table.select(value=table[name]).distinct().order_by("value").limit(_SHOWN)
    lowest = value.to_pyarrow()["value"].to_pylist()
    texts = (repr(v[:20]) if isinstance(v, str) else digits(v) for v in lowest)
    return f" ({', '.join(texts)}{', ...' * (len(lowest) == _SHOWN)})"


def check_total(items: Items, total: float) -> None:
    """Refuse whole outcomes whose sum overflows."""
    outcome = items.outcome
    if outcome.whole and total > 2.0**62:
        raise ItemsError(
            f"column {items.roles[outcome.observed]!r} sums to {total:.3g}, more than can be "
            "counted exactly: summarize parts of the items"
        )


def check_ids(items: Items) -> None:
    """Refuse ids that several rows have, on one day if the items have dates."""
    if items.id is None:
        return
    import ibis.expr.operations as ops

    table = open_table(items.source, items.roles.columns)
    keys = [role for role in ("id", "date") if role in items.roles]
    table = table.select(**{role: table[items.roles[role]] for role in keys})
    table = table.filter(table["id"].notnull())
    with phase("checking ids"), readable(items.source):
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


def no_rows(items: Items) -> str:
    """Say that a table of items is empty."""
    file = f"{items.source}: " if kind_of(items.source) == "files" else ""
    return f"{file}the table of items has no rows"


# --- grouped passes ------------------------------------------------------------------------------


class Grouped:
    """Grouped passes over items in their own engine, which sends only sums; the items are valid."""

    def __init__(self, items: Items, folds: Folds) -> None:
        self.items = items
        self._folds = folds
        self._n, self.table = scan(items)
        self._codes: dict[str, int] = {}  # by label of groups

    def sizes(self) -> Columns:
        """Items and whole outcomes by cell of their sizes."""
        outcome = self.items.outcome
        table = self.table
        cell = size_cell(table[outcome.size], outcome, ibis_functions())
        sums = {"n": _count(table)}
        if outcome.whole:
            sums["sum_y"] = _total(table, table[outcome.observed].cast("int64"))
        counted = table.group_by(cell=cell).aggregate(**sums)
        with phase("choosing bins"):
            return self._added(counted, ("cell",), outcome.integers)

    def weights(
        self, grid: ScoreGrid, weight: str | None, size_limit: float | None
    ) -> Columns:
        """Items, their weight and range of scores by cell."""
        table = self.table
        n = amount = _count(table)
        if weight:
            amount = _total(table, table[weight].cast("int64"))
        if size_limit is not None and not weight:
            outcome = self.items.outcome
            tells = outcome.tells(table[outcome.size], exact(size_limit))
            amount = _total(table, tells.ifelse(1, 0).cast("int64"))
        sums = n, amount, table.score.min(), table.score.max()
        cell = score_cell(table.score, *grid, ibis_functions())
        key, *names = CELL_SUMS
        counted = table.group_by(**{key: cell}).aggregate(
            **dict(zip(names, sums, strict=True))
        )
        with phase("choosing bins"):
            return self._added(counted, (key,), names)

    def tables(self, edges: Floats, most_joint: int, size_limit: float | None) -> Sums:
        """Make one grouped pass over cells as fine as any table needs."""
        outcome = self.items.outcome
        keyed = self._keyed(edges)
        layouts = {
            name: layout
            for name, layout in outcome.tables.items()
            if name != "joint" or most_joint
        }
        piles = {name: Pile(x.keys, outcome.sums(name)) for name, x in layouts.items()}
        cells = [cell.name for x in layouts.values() for cell in x.cells.values()]
        sums = {"n": _count(keyed)}
        sums |= {"score_min": keyed.score.min(), "score_max": keyed.score.max()}
        for name in {*outcome.integers, *outcome.reals(list(layouts))} - sums.keys():
            term = summand(name, outcome, keyed, size_limit, ibis_functions())
            total = _total(keyed, term)
            sums[name] = total.cast("int64") if name in outcome.integers else total
        keys = dict.fromkeys([*PART_KEYS, *cells])
        grouped = keyed.group_by(*keys).aggregate(**sums)
        with phase("summing cells"):
            for rows in self._batches(grouped):
                for name, pile in piles.items():
                    places = layouts[name].cells.items()
                    pile.add({**rows, **{key: rows[cell.name] for key, cell in places}})
                joint = piles.get("joint")
                if joint and len(joint) > most_joint < len(joint.total()["n"]):
                    del piles["joint"]
        totals = {name: pile.total() for name, pile in piles.items()}
        return sums_of(totals, list(self._codes), self._n)

    def repeated_scores(
        self, grid: ScoreGrid, cells: Ints, least: int, ends: Sequence[float]
    ) -> Columns:
        """Scores in some cells that `least` items share, or that are `ends`, with their items."""
        import ibis

        score = self.table.score
        bounds = zip(grid.boundary(cells), grid.boundary(cells + 1), strict=True)
        inside = [(score >= exact(low)) & (score < exact(high)) for low, high in bounds]
        near = self.table.filter(ibis.or_(*inside))
        # one group of 0 and -0, which are two on ClickHouse
        near = near.mutate(score=near["score"] + 0.0)
        counted = near.group_by("score").aggregate(n=_count(near))
        repeated = counted.filter((ibis._.n >= least) | ibis._.score.isin(ends))
        return self._added(repeated, ("score",), ("n",))

    def _added(
        self, expression: "ir.Table", keys: Sequence[str], names: Sequence[str]
    ) -> Columns:
        return added_parts(self._batches(expression), keys, names)

    def _keyed(self, edges: Floats) -> Any:
        """The table of items with columns of their group, fold, bin and cells."""
        import ibis

        table = self.table
        fold = ibis.literal(0, type="int64")
        if self._folds.by == "cluster":
            with readable():
                labels = (
                    table.select("cluster")
                    .distinct()
                    .to_pyarrow()["cluster"]
                    .to_pylist()
                )
            table = with_blocks(table, labels)
        keyed = with_cells(with_bins(table, edges), self.items.outcome)
        if self._folds.by != "none":
            fold = fold_of(
                self._folds, keyed, self.items.outcome.size, ibis_functions()
            )
        group = keyed.group if "group" in keyed.columns else ibis.literal("")
        return keyed.mutate(fold=fold, group=group)

    def _batches(self, expression: "ir.Table") -> Iterator[Columns]:
        """Columns of record batches; groups are coded in the order of their appearance."""
        integers = {*PART_KEYS, *CELL_SUMS[:3], *self.items.outcome.integers}
        try:
            for batch in batches(expression, size=_ROWS):
                yield self._columns(batch, integers)
        finally:
            drop_small_tables(expression)

    def _columns(self, batch: Any, integers: Set[str]) -> Columns:
        columns = {}
        for name, values in zip(batch.schema.names, batch.columns, strict=True):
            if name == "group":
                words = values.to_pylist()
                values = [
                    self._codes.setdefault(word, len(self._codes)) for word in words
                ]
            # engines widen sums of whole numbers
            integral = name in integers or name.endswith("_cell")
            columns[name] = np.asarray(
                values, dtype=np.int64 if integral else np.float64
            )
        return columns


def _count(table: "ir.Table") -> Any:
    """Number of items of rows."""
    if "weight" not in table.columns:
        return table.count()
    return table["weight"].cast("int64").sum().cast("int64")


def _total(table: "ir.Table", term: Any) -> Any:
    """Sum over items of a term of each row; whole numbers stay whole."""
    if "weight" not in table.columns:
        return term.sum()
    weight = table["weight"]
    return (term * (weight.cast("int64") if term.type().is_integer() else weight)).sum()


def with_cells(table: "ir.Table", outcome: Outcome) -> Any:
    """The table with a column for each cell of its items."""
    layouts = outcome.tables.values()
    cells = [cell for layout in layouts for cell in layout.cells.values()]
    y = table[outcome.observed]
    negligible = outcome.validity.outcome.negligible
    return table.mutate(
        **cells_of(cells, y, table[outcome.size], negligible, ibis_functions())
    )


def with_blocks(table: "ir.Table", labels: Sequence[str]) -> Any:
    """The table with blocks of its clusters in place of their labels, none missing."""
    import pyarrow as pa

    label = pa.array(labels, pa.string())
    blocks = small_table(table, soc_label=label, soc_block=block_of_labels(labels))
    joined = table.inner_join(blocks, [("cluster", "soc_label")])
    return joined.mutate(cluster=joined.soc_block)


def with_bins(
    table: "ir.Table", edges: Floats, prefix: str = "", score: str = "score"
) -> Any:
    """The table with the column ``bin``: [e_k, e_k+1) is bin k + 1, outer bins are open."""
    import ibis

    if len(edges) == 0:
        return table.mutate(**{f"{prefix}bin": ibis.literal(0, type="int64")})
    lookup = make_lookup(edges)
    ends = np.minimum(lookup.edges, _BEYOND)
    cuts = {f"{prefix}cut{k}": ends[lookup.below + k] for k in range(lookup.most)}
    cell = lookup.lowest + np.arange(len(lookup.below))
    columns = {f"{prefix}cell": cell, f"{prefix}below": lookup.below, **cuts}
    low, high = map(exact, lookup.ends)
    clipped = ibis.least(ibis.greatest(table[score], low), high)
    keyed = score_cell(clipped, *lookup.grid, ibis_functions())
    table = table.mutate(**{f"{prefix}cell": keyed})
    joined = table.inner_join(small_table(table, **columns), f"{prefix}cell")
    cuts_below = (
        (joined[score] >= joined[cut]).ifelse(1, 0).cast("int64") for cut in cuts
    )
    return joined.mutate(
        **{f"{prefix}bin": joined[f"{prefix}below"] + reduce(add, cuts_below)}
    )
