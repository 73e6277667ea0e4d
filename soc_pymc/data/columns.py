"""Columns of an engine's table: read by role, and the functions of the formulas for them."""

from collections.abc import Mapping, Sequence
from functools import cache, reduce
from typing import Any

import numpy as np

from .._lib.arrays import Floats, Ints
from ..families.outcomes import OUTCOMES, Outcome
from ..families.scales import CELLS, Bounds
from . import formulas
from .binning import Grid, make_lookup
from .formulas import FOLD_PRIME, MOST_FOLDS, block_of_labels, rebound
from .groups import CROSS, key_roles
from .sources import readable

NUMBERS: Mapping[str, Bounds] = {
    "fold": Bounds(
        f"folds must be whole numbers from 0 to {MOST_FOLDS - 1}", MOST_FOLDS - 1.0, 0.0, True
    ),
    **{role: rule for kind in OUTCOMES.values() for role, rule in kind.bounds.items()},
}  # fmt: skip
"""Bounds of numbers by role; other roles have ids or labels."""
_LOG2_E = 1.4426950408889634
_BEYOND = 1e300  # in place of an infinite edge, which has no text


# --- columns as they are read --------------------------------------------------------------------


def numbers(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Columns as read: numbers as float64, ids as int64, labels as text."""
    return {role: _number(role, column) for role, column in columns.items()}


def _number(role: str, column: Any) -> Any:
    dtype = column.type()
    if role in NUMBERS:
        value = column.cast("float64")
        exact = dtype.is_integer() or dtype.is_boolean()
        return value if exact or not NUMBERS[role].whole else functions()["near_whole"](value)
    if role == "id":  # only the remainder matters for folds, so no id is too large
        return (column % FOLD_PRIME if dtype.is_unsigned_integer() else column).cast("int64")
    if dtype.is_boolean():
        return column.ifelse("true", "false")  # engines spell true and false differently
    return (column.cast("date") if dtype.is_temporal() else column).cast("string")


def near_whole(role: str, values: Floats) -> Floats:
    """Numbers of a role, without the rounding errors of roles that hold whole numbers."""
    holds_whole = role in NUMBERS and NUMBERS[role].whole
    return np.asarray(formulas.near_whole(values)) if holds_whole else values


def typed(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Valid items with whole numbers as int64 (through float64, as decimals may not fit)."""
    read = numbers(columns)
    for role, column in columns.items():
        if role in NUMBERS and NUMBERS[role].whole:
            read[role] = column if column.type().is_int64() else read[role].cast("int64")
    return read


def crossed(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Columns as `numbers` reads them, and ``group``: dates and columns of groups, joined."""
    groups = key_roles(columns).values()
    labels = {"group": reduce(lambda left, right: left + CROSS + right, groups)} if groups else {}
    return {**columns, **labels}


# --- formulas ------------------------------------------------------------------------------------


@cache
def functions() -> Mapping[str, Any]:
    """The formulas for columns, by name, and the functions that they are made of."""
    import ibis

    names = {
        "where": ibis.ifelse,
        "low": ibis.least,
        "high": ibis.greatest,
        "log": lambda v: v.ln(),
        "floor": lambda v: v.floor(),
        "whole": lambda v: v.cast("int64"),
        "real": lambda v: v.cast("float64"),
        "literal": exact,
        "modulo": lambda v, by: (v % by + by) % by,  # engines disagree for negative numbers
        "power_of_two": lambda exponent: ibis.literal(2.0) ** exponent.cast("float64"),
        "log_linear": _log_linear,
    }
    return names | rebound(names)


def score_cell(score: Any, grid: Grid) -> Any:
    """`Grid.cell` of a column of scores."""
    return functions()["score_cell"](score, grid.floor, grid.steps)


def repeated_scores(table: Any, grid: Grid, cells: Ints, least: int) -> dict[float, int]:
    """Scores in some cells that at least so many items share, with their numbers of items."""
    import ibis

    ends = zip(grid.boundary(cells), grid.boundary(cells + 1), strict=True)
    inside = [(table.score >= exact(low)) & (table.score < exact(high)) for low, high in ends]
    counted = table.filter(ibis.or_(*inside)).group_by("score").aggregate(n=ibis._.count())
    with readable():
        rows = counted.filter(ibis._.n >= least).order_by("score").to_pyarrow().to_pydict()
    return dict(zip(rows["score"], rows["n"], strict=True))


def _log_linear(size: Any, steps: int) -> Any:
    """2^steps times the octave of positive numbers, plus the step inside it."""
    import ibis

    # a logarithm may round to the wrong side of a power of two, where two octaves adjoin; some
    # engines compute log2 and powers with whole exponents in decimal arithmetic
    octave = (size.ln() * _LOG2_E).floor().cast("int64")
    unit = 1 << steps
    power = ibis.literal(2.0) ** octave.cast("float64")
    return octave * unit + ((size / power - 1.0) * float(unit)).floor().cast("int64")


def exact(number: float) -> Any:
    """A literal that no engine rounds: an odd integer times 2^e."""
    import ibis

    numerator, denominator = float(number).as_integer_ratio()
    shift = (numerator & -numerator).bit_length() - 1 if numerator else 0
    exponent = shift - (denominator.bit_length() - 1)
    odd = ibis.literal(numerator >> shift, type="int64").cast("float64")
    return odd * ibis.literal(2.0) ** ibis.literal(exponent, type="int64").cast("float64")


# --- columns that are added ----------------------------------------------------------------------


def with_cells(table: Any, outcome: Outcome) -> Any:
    """The table with a column for each cell of its items."""
    names = [cell for layout in outcome.tables.values() for cell in layout.cells.values()]
    for name in dict.fromkeys(names):
        y, size, cell = table[outcome.observed], table[outcome.size], CELLS[name]
        number = {"outcome": y, "size": size, "rest": size - y}[cell.role]
        if cell.grid == "value":
            number = functions()["without_small"](y, outcome.validity.outcome.negligible)
        beside = (table.noise_cell,) if cell.grid == "value" else ()
        table = table.mutate(**{name: functions()[f"{cell.grid}_cell"](number, *beside)})
    return table


def with_blocks(table: Any, labels: Sequence[str]) -> Any:
    """The table with blocks of its clusters in place of their labels, none missing."""
    import ibis
    import pyarrow as pa

    label = pa.array(labels, pa.string())
    blocks = pa.table({"soc_label": label, "soc_block": block_of_labels(labels)})
    joined = table.inner_join(ibis.memtable(blocks), [("cluster", "soc_label")])
    return joined.mutate(cluster=joined.soc_block)


def lookup_rows(edges: Floats, prefix: str = "") -> dict[str, Any]:
    """Columns of the small table that `with_bins` joins; none without edges."""
    if len(edges) == 0:
        return {}
    lookup = make_lookup(edges)
    cell = lookup.lowest + np.arange(len(lookup.below))
    ends = np.minimum(lookup.edges, _BEYOND)
    cuts = {f"{prefix}cut{k}": ends[lookup.below + k] for k in range(lookup.most)}
    return {f"{prefix}cell": cell, f"{prefix}below": lookup.below, **cuts}


def with_bins(
    table: Any, edges: Floats, prefix: str = "", rows: Any = None, score: str = "score"
) -> Any:
    """The table with the column ``bin``: [e_k, e_k+1) is bin k + 1, outer bins are open."""
    import ibis
    import pyarrow as pa

    lookup, columns = make_lookup(edges), lookup_rows(edges, prefix)
    if not columns:
        return table.mutate(**{f"{prefix}bin": ibis.literal(0, type="int64")})
    rows = ibis.memtable(pa.table(columns)) if rows is None else rows
    clipped = ibis.least(ibis.greatest(table[score], exact(lookup.low)), exact(lookup.high))
    cell = score_cell(clipped, lookup.grid)
    joined = table.mutate(**{f"{prefix}cell": cell}).inner_join(rows, f"{prefix}cell")
    cuts = [joined[name] for name in columns if name.startswith(f"{prefix}cut")]
    passed = _sum([(joined[score] >= cut).ifelse(1, 0) for cut in cuts])
    return joined.mutate(**{f"{prefix}bin": joined[f"{prefix}below"] + passed})


def _sum(terms: Sequence[Any]) -> Any:
    """Sum of whole numbers, as a tree, because engines limit an expression's depth."""
    sums = [term.cast("int64") for term in terms]
    while len(sums) > 1:
        sums = [sum(sums[i + 1 : i + 2], sums[i]) for i in range(0, len(sums), 2)]
    return sums[0]
