"""Grouped passes over items on any engine of Ibis."""

import operator
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...families.outcomes import OUTCOMES, Outcome
from ..binning import FIRST_GRID, Columns, Grid, Joint, Weights
from ..folds import Folds, fold_of
from ..formulas import bounded, outside
from ..items import Items
from .columns import functions, score_cell, seen, with_bins, with_blocks, with_cells
from .piles import Piles
from .sources import open_table, readable, record_batches
from .validation import Scan, Tables, check_clusters, fits_joint, scan

_ROWS = 1 << 20  # rows that arrive at once
_TINY = 1e-100  # smaller sizes count as 0 in powers
_PART_KEYS = ("group", "fold", "bin")


class Grouped:
    """Passes over a user's Ibis table in its own engine."""

    def __init__(self, items: Items, folds: Folds, progress: bool) -> None:
        self._folds, self._progress = folds, progress
        open_table(items.source, list(items.roles.values()))  # checks that all named columns exist
        # ids and folds that are not used are not read, whatever their type
        unused = folds.by in ("none", "cluster")
        self._items = replace(items, id=None, fold=None) if unused else items
        self._outcome = OUTCOMES[items.kind]

    @cached_property
    def _scan(self) -> Scan:
        return scan(self._items, self._progress, FIRST_GRID, folds=True)

    def check(self) -> None:
        """Refuse items that are not valid."""
        _ = self._scan

    def weights(self, grid: Grid, low: float, high: float, weight: str | None) -> Weights:
        """Items and sums of whole outcomes on a grid; the first grid's are those of the check."""
        cells = self._scan.cells
        if grid != FIRST_GRID:
            table = self._scan.table
            total = table.count() if weight is None else table[weight].sum()
            cell = score_cell(table.score, grid, low, high)
            rows = table.group_by(cell=cell).aggregate(n=table.count(), total=total.cast("int64"))
            cells = _columns(rows.order_by("cell"), {"cell", "n", "total"})
        totals = self._scan.totals
        ends = totals.score_min, totals.score_max
        return Weights(totals.n, *ends, cells["cell"], cells["n"], cells["total"])

    def repeated(self, grid: Grid, cells: NDArray[np.int64], least: int) -> dict[float, int]:
        """Scores in some cells that at least so many items share, with their numbers of items."""
        table = self._scan.table
        inside = table.filter(score_cell(table.score, grid).isin(cells.tolist()))
        found = inside.group_by("score").aggregate(n=inside.count())
        rows = _columns(found.filter(found.n >= least).order_by("score"), {"n"})
        return dict(zip(rows["score"].tolist(), rows["n"].tolist(), strict=True))

    def tables(self, edges: NDArray[np.float64], joint: Joint) -> Tables:
        """Sums of all bins and cells."""
        import ibis

        totals, outcome, table = self._scan.totals, self._outcome, self._scan.table
        sums = Piles(outcome, joint, len(edges) + 1)
        if not fits_joint(self._items, totals.farthest, joint):
            sums.drop_joint()
        if self._folds.by == "cluster":
            check_clusters(self._items)
            with readable():
                labels = table.select("cluster").distinct().to_pyarrow()["cluster"].to_pylist()
            table = with_blocks(table, labels)
        keyed = with_cells(with_bins(table, edges), outcome)
        keyed = keyed.mutate(
            fold=ibis.literal(0, type="int64")
            if self._folds.by == "none"
            else fold_of(self._folds, keyed, outcome.size, functions()),
            group=keyed.group if "group" in keyed.columns else ibis.literal(""),
        )
        arriving = _joint(keyed, outcome) if sums.coarse else _margins(keyed, outcome)
        for rows in arriving:
            sums.add(rows)
        labels, coded = _coded(sums.tables())
        return Tables(coded, labels, sums.coarse, totals)


def _sums(keyed: Any, outcome: Outcome, names: Sequence[str]) -> dict[str, Any]:
    """Sums by name, as expressions of an item."""
    formulas, t, y = functions(), keyed.score, keyed[outcome.observed]
    size, rest = keyed[outcome.size].cast("float64"), keyed[outcome.size] - y
    values = {"sum_y": y, "sum_t": t, "sum_t2": formulas["square"](t)}
    for scale in bounded(outcome):
        u = formulas[f"{scale.name}_position"](t)
        values |= dict(zip(scale.sums, (u, u * u), strict=True))
        values[outside(scale)] = (~((t > scale.low) & (t < scale.high))).ifelse(1, 0)
    values["sum_y_log_N"] = formulas["times_log"](y, size)
    values["above"] = (y.cast("float64") > size).ifelse(1, 0)
    sized = size if outcome.size_power == 1 else formulas["square"](size)
    if outcome.validity.size.least == 0.0:  # some engines refuse underflow
        sized = (size < _TINY).ifelse(0.0, size)
    factors = seen(keyed, outcome).cast("float64"), sized, rest.cast("float64")
    for name, of in outcome.sums_of.items():
        if of.of == "power" and name not in (*outcome.integers, "n"):
            powers = zip(factors, (of.outcome, of.size, of.rest), strict=True)
            values[name] = reduce(operator.mul, [f for f, power in powers for _ in range(power)])
    whole = counted(outcome)
    sums = {name: values[name].sum() for name in (*names, *whole) if name in values}
    sums = {name: v.cast("int64") if name in whole else v for name, v in sums.items()}
    return sums | {"n": keyed.count(), "score_min": t.min(), "score_max": t.max()}


def counted(outcome: Outcome) -> tuple[str, ...]:
    """Columns of whole numbers to add up."""
    return (*outcome.integers, *map(outside, bounded(outcome)))


def _fine(keyed: Any, outcome: Outcome, tables: Sequence[str]) -> Any:
    """Rows by part and the cells of some tables, with the sums of ``part`` and these tables."""
    cells = [cell for name in tables for cell in outcome.tables[name].cells.values()]
    sums = _sums(keyed, outcome, outcome.reals(("part", *tables)))
    return keyed.group_by(*_PART_KEYS, *dict.fromkeys(cells)).aggregate(**sums)


def _whole(outcome: Outcome) -> set[str]:
    """Columns with whole numbers."""
    keys = {key for name in outcome.tables for key in outcome.tables[name].keys}
    cells = {cell for table in outcome.tables.values() for cell in table.cells.values()}
    return (keys - {"group"}) | cells | {*counted(outcome), "margin"}


def _margins(keyed: Any, outcome: Outcome) -> Iterator[dict[str, Columns]]:
    """Rows of each margin, added up on the engine from the finest cells of one grouped pass."""
    import ibis

    fine = _fine(keyed, outcome, outcome.margins)
    margins = [
        _margin(fine, outcome, name).mutate(margin=ibis.literal(i, type="int64"))
        for i, name in enumerate(outcome.margins)
    ]
    rows = _columns(reduce(lambda one, other: one.union(other), margins), _whole(outcome))
    which = rows.pop("margin")
    found = {
        name: {column: values[which == i] for column, values in rows.items()}
        for i, name in enumerate(outcome.margins)
    }
    yield {"part": found[outcome.margins[0]], **found}


def _margin(fine: Any, outcome: Outcome, table: str) -> Any:
    cells = outcome.tables[table].cells
    keys = {*_PART_KEYS, *(cell for of in outcome.tables.values() for cell in of.cells.values())}
    sums = {name: fine[name].sum() for name in fine.columns if name not in keys}
    sums |= {name: sums[name].cast("int64") for name in counted(outcome)}
    sums |= {"score_min": fine.score_min.min(), "score_max": fine.score_max.max()}
    return fine.group_by(*_PART_KEYS, **{k: fine[cell] for k, cell in cells.items()}).aggregate(
        **sums
    )


def _joint(keyed: Any, outcome: Outcome) -> Iterator[dict[str, Columns]]:
    """Rows of all tables from those of joint cells, as they arrive."""
    for rows in _batches(_fine(keyed, outcome, ("joint", *outcome.margins)), _whole(outcome)):
        yield {
            name: {**rows, **{key: rows[cell] for key, cell in table.cells.items()}}
            for name, table in outcome.tables.items()
        }


def _coded(found: dict[str, Columns]) -> tuple[tuple[str, ...], dict[str, Columns]]:
    """Sorted labels of the groups, and the tables with their codes."""
    labels = np.unique(found["part"]["group"].astype(object))
    code = {label: i for i, label in enumerate(labels)}
    coded = {
        name: {**table, "group": np.array([code[g] for g in table["group"]], dtype=np.int64)}
        if table
        else table
        for name, table in found.items()
    }
    return tuple(str(label) for label in labels), coded


def _plain(table: Any, whole: Collection[str]) -> dict[str, NDArray[Any]]:
    """Columns of an Arrow table or batch; those in `whole` have whole numbers."""
    columns = {}
    for name in table.schema.names:
        values = table.column(name)
        if name == "group":
            columns[name] = np.asarray(values.to_pylist(), dtype=object)
        else:
            kind = np.int64 if name in whole else np.float64
            columns[name] = np.asarray(values.to_numpy(zero_copy_only=False), dtype=kind)
    return columns


def _columns(expression: Any, whole: Collection[str]) -> dict[str, NDArray[Any]]:
    with readable():
        return _plain(expression.to_pyarrow().combine_chunks(), whole)


def _batches(expression: Any, whole: Collection[str]) -> Iterator[dict[str, NDArray[Any]]]:
    with readable():
        for batch in record_batches(expression, _ROWS):
            yield _plain(batch, whole)
