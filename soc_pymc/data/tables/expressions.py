"""Cells and bins of `binning`, and `folds`, as Ibis expressions that are exact on every engine."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...families.cells import (
    CELLS,
    EXACT_COUNTS,
    MOST_VALUE_CELL,
    STEPS,
    VALUE_OCTAVES,
    ZERO_EXPOSURE,
)
from ...families.outcomes import Outcome
from ..binning import (
    FIRST_GRID,
    FOLD_MIX,
    FOLD_PRIME,
    FOLD_STEPS,
    SCRAMBLE,
    Folds,
    Grid,
    block_of_labels,
    make_lookup,
)

_WIDE_COUNTS = 48  # 16 * 5 - 32: cells of counts >= 32 follow the exact ones
_LOG2_E = 1.4426950408889634
HASHING = {"duckdb": "DuckDB", "postgres": "PostgreSQL", "pyspark": "Spark"}
"""Engines with MD5 of text in digits of base 16, by their names in Ibis."""
_COMPARED = 8  # edges in one cell of a lookup; with more, all edges are compared
_BEYOND = 1e300  # in place of an infinite edge, which has no text


def _log_linear(size: Any, steps: int) -> Any:
    """2^steps times the octave of positive numbers, plus the step inside it.

    A logarithm may round to the wrong side of a power of two, because the last step of one octave
    adjoins the first of the next, and a step is wider than the logarithm's error.
    """
    import ibis

    # some engines compute log2 and powers with whole exponents in decimal arithmetic
    octave = (size.ln() * _LOG2_E).floor().cast("int64")
    unit = 1 << steps
    power = ibis.literal(2.0) ** octave.cast("float64")
    return octave * unit + ((size / power - 1.0) * float(unit)).floor().cast("int64")


def exact(number: float) -> Any:
    """A literal that no engine rounds: an odd integer times 2^e."""
    import ibis

    whole, below = float(number).as_integer_ratio()
    shift = (whole & -whole).bit_length() - 1 if whole else 0
    exponent = shift - (below.bit_length() - 1)
    odd = ibis.literal(whole >> shift, type="int64").cast("float64")
    return odd * ibis.literal(2.0) ** ibis.literal(exponent, type="int64").cast("float64")


def _clipped(score: Any, low: float, high: float) -> Any:
    import ibis

    if low > -np.inf:
        score = ibis.greatest(score, exact(low))
    return ibis.least(score, exact(high)) if high < np.inf else score


def score_cell(score: Any, grid: Grid, low: float = -np.inf, high: float = np.inf) -> Any:
    """`Grid.cell` of scores clipped to [low, high], as an Ibis expression."""
    import ibis

    clipped = _clipped(score, low, high)
    least, first = exact(2.0**grid.floor), (grid.floor << grid.steps) - 1
    if low >= 2.0**grid.floor:
        return _log_linear(clipped, grid.steps) - first
    size = clipped.abs()
    cell = _log_linear(ibis.greatest(size, least), grid.steps) - first
    return (size >= least).ifelse((clipped > 0).ifelse(1, -1) * cell, 0)


def exposure_cell(exposure: Any) -> Any:
    """`kernels.exposure_cell` as an Ibis expression."""
    positive = exposure > 0
    return positive.ifelse(_log_linear(positive.ifelse(exposure, 1.0), STEPS), ZERO_EXPOSURE)


def count_cell(count: Any) -> Any:
    """`kernels.count_cell` as an Ibis expression."""
    import ibis

    wide = _log_linear(ibis.greatest(count, EXACT_COUNTS).cast("float64"), STEPS)
    return (count < EXACT_COUNTS).ifelse(count, wide - _WIDE_COUNTS)


def value_cell(value: Any, noise_cell: Any) -> Any:
    """`kernels.value_cell` as an Ibis expression."""
    import ibis

    # engines round quotients of negative whole numbers in different ways
    octave = (noise_cell.cast("float64") * (1.0 / (1 << STEPS))).floor().cast("float64")
    cell, most = value / ibis.literal(2.0) ** (octave - VALUE_OCTAVES), float(MOST_VALUE_CELL)
    # clipped as a real number, because far values overflow integers
    return ibis.greatest(ibis.least(cell, most), -most).floor().cast("int64")


def seen_outcome(table: Any, outcome: Outcome) -> Any:
    """Outcomes, or 0 if they are so small that their powers vanish."""
    y, least = table[outcome.observed], outcome.validity.outcome.negligible
    return (y.abs() < least).ifelse(0.0, y) if least else y


def with_cells(table: Any, outcome: Outcome) -> Any:
    """The table with a column for each cell of its items."""
    named = (table.cells.values() for table in outcome.tables.values())
    for name in dict.fromkeys(itertools.chain.from_iterable(named)):
        cell = CELLS[name]
        of = seen_outcome(table, outcome) if cell.of == "outcome" else table[outcome.size]
        if cell.of == "rest":
            of = of - table[outcome.observed]
        table = table.mutate(**{name: _GRIDS[cell.grid](of, table)})
    return table


_GRIDS: dict[str, Callable[[Any, Any], Any]] = {
    "exposure": lambda x, table: exposure_cell(x),
    "count": lambda x, table: count_cell(x),
    "noise": lambda x, table: _log_linear(x, STEPS),
    "value": lambda x, table: value_cell(x, table.noise_cell),
}


def _modulo(number: Any, by: int) -> Any:
    """The remainder from 0 to `by` - 1; engines disagree for negative numbers."""
    return (number % by + by) % by


def fold_of(table: Any, folds: Folds, size: str = "exposure") -> Any:
    """Fold of each item as an Ibis expression of `fold_of_id`, from ids or scores and sizes.

    `size` is the column used with the score if items have no id.
    """
    import ibis

    if folds.by == "none":
        return ibis.literal(0, type="int64")
    if folds.by == "column":
        return table.fold
    if folds.by == "cluster":
        return table.block
    fine = Grid(FIRST_GRID.floor, FOLD_STEPS)
    identity = table.id if folds.of_ids else (
        score_cell(table.score, fine) * FOLD_MIX + score_cell(table[size], fine)
    )  # fmt: skip
    shift, factor = SCRAMBLE
    x = _modulo(identity, FOLD_PRIME)
    x = x * ((x + shift) % FOLD_PRIME) % FOLD_PRIME
    return x * factor % FOLD_PRIME % folds.number


def with_blocks(table: Any, labels: Sequence[str]) -> Any:
    """The table with the column ``block`` of its clusters, whose labels are all given."""
    import ibis
    import pyarrow as pa

    blocks = pa.table({"cluster": pa.array(labels, pa.string()), "block": block_of_labels(labels)})
    return table.inner_join(ibis.memtable(blocks), "cluster")


def number_of_text(text: Any) -> Any:
    """Ids of text as whole numbers: the first 64 bits of the MD5 of their UTF-8 bytes, modulo p."""
    import ibis

    @ibis.udf.scalar.builtin
    def md5(text: str) -> str:  # type: ignore[empty-body]
        """The digest in 32 digits of base 16, as engines in `HASHING` have it."""

    digest, digits = md5(text), ibis.literal("0123456789abcdef")
    # in real numbers, exact here, because the place in a text has only 32 bits on some engines
    places = [digits.find(digest.substr(k, 1)).cast("float64") for k in range(16)]
    terms = [place * 16.0 ** (7 - k % 8) for k, place in enumerate(places)]
    high, low = _sum(terms[:8]), _sum(terms[8:])
    return (high * (2**32 % FOLD_PRIME) + low) % FOLD_PRIME


def lookup_rows(edges: NDArray[np.float64], prefix: str = "") -> dict[str, NDArray[Any]]:
    """Columns of the small table by which `with_bins` finds bins; none where it compares edges."""
    lookup = make_lookup(edges)
    if lookup.most > _COMPARED:
        return {}
    cell = lookup.first + np.arange(len(lookup.below))
    ends = np.minimum(lookup.edges, _BEYOND)
    cuts = {f"{prefix}cut{k}": ends[lookup.below + k] for k in range(lookup.most)}
    return {f"{prefix}cell": cell, f"{prefix}below": lookup.below, **cuts}


def with_bins(
    table: Any,
    edges: NDArray[np.float64],
    prefix: str = "",
    rows: Any = None,
    score: str = "score",
) -> Any:
    """The table with the column ``bin``: [e_k, e_k+1) is bin k + 1, outer bins are open.

    `rows` is the table of `lookup_rows`, if it is there already; new names begin with `prefix`.
    """
    import ibis
    import pyarrow as pa

    if len(edges) == 0:
        return table.mutate(**{f"{prefix}bin": ibis.literal(0, type="int64")})
    own = lookup_rows(edges, prefix)
    if not own:
        found = _count([table[score] >= exact(edge) for edge in edges])
        return table.mutate(**{f"{prefix}bin": found})
    lookup, rows = make_lookup(edges), ibis.memtable(pa.table(own)) if rows is None else rows
    cell = score_cell(table[score], lookup.grid, lookup.low, lookup.high)
    joined = table.mutate(**{f"{prefix}cell": cell}).inner_join(rows, f"{prefix}cell")
    cuts = [joined[name] for name in own if name.startswith(f"{prefix}cut")]
    found = joined[f"{prefix}below"] + _count([joined[score] >= cut for cut in cuts])
    return joined.mutate(**{f"{prefix}bin": found})


def _count(conditions: Sequence[Any]) -> Any:
    """How many conditions hold."""
    return _sum([condition.ifelse(1, 0) for condition in conditions])


def _sum(terms: Sequence[Any]) -> Any:
    """Sum of whole numbers, as a tree, because engines limit an expression's depth."""
    found = [term.cast("int64") for term in terms]
    while len(found) > 1:
        found = [sum(found[i + 1 : i + 2], found[i]) for i in range(0, len(found), 2)]
    return found[0]
