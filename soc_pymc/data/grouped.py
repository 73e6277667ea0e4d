"""Grouped passes over items on any engine of Ibis."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, reduce
from typing import Any

import numpy as np

from .._lib.arrays import Floats, Ints
from ..families.outcomes import OUTCOMES, Outcome
from .binning import FIRST_GRID, Columns, Grid, Joint, Weights
from .columns import functions, score_cell, with_bins, with_blocks
from .folds import Folds, fold_of
from .formulas import cell_names, whole_sums
from .items import Items
from .piles import Piles, Tables
from .sources import readable, record_batches
from .validation import Scan, scan

_ROWS = 1 << 20  # rows that arrive at once
_PART_KEYS = ("group", "fold", "bin")
_EXTREMES = ("score_min", "score_max")


class Grouped:
    """Passes over a user's Ibis table in its own engine."""

    def __init__(self, items: Items, folds: Folds, progress: bool) -> None:
        self._items, self._folds, self._progress = items, folds, progress
        self._outcome = OUTCOMES[items.kind]
        self._codes: dict[str, int] = {}

    @cached_property
    def _scan(self) -> Scan:
        return scan(self._items, self._progress, folds=True, cells=True)

    def check(self) -> None:
        """Refuse items that are not valid."""
        _ = self._scan

    def weights(self, grid: Grid, low: float, high: float, weight: str | None) -> Weights:
        """Items and sums of whole outcomes on a grid; numbers on the first are the check's."""
        cells: Columns = self._scan.cells
        if grid != FIRST_GRID or weight:
            table = self._scan.table
            sums = {"n": table.count()} | (
                {"total": table[weight].sum().cast("int64")} if weight else {}
            )
            cell = score_cell(table.score, grid, low, high)
            rows = table.group_by(cell=cell).aggregate(**sums).order_by("cell")
            cells = self._table(rows)
        ends = self._scan.score_min, self._scan.score_max
        return Weights(
            self._scan.n, *ends, cells["cell"], cells["n"], cells.get("total", cells["n"])
        )

    def repeated(self, grid: Grid, cells: Ints, least: int) -> dict[float, int]:
        """Scores in some cells that at least so many items share, with their numbers of items."""
        with readable():
            return repeated(self._scan.table, grid, cells, least)

    def tables(self, edges: Floats, joint: Joint) -> Tables:
        """Sums of all bins and cells."""
        import ibis

        outcome, table = self._outcome, self._scan.table
        piles = Piles(outcome, joint, len(edges) + 1)
        if self._folds.by == "cluster":
            with readable():
                labels = table.select("cluster").distinct().to_pyarrow()["cluster"].to_pylist()
            table = with_blocks(table, labels)
        keyed = with_bins(table, edges)
        keyed = keyed.mutate(
            **functions()["cells_of"](outcome, keyed, cell_names(outcome)),
            fold=ibis.literal(0, type="int64")
            if self._folds.by == "none"
            else fold_of(self._folds, keyed, outcome.size, functions()),
            group=keyed.group if "group" in keyed.columns else ibis.literal(""),
        )
        for rows in self._rows(keyed, bool(piles.coarse)):
            piles.add(rows)
        return piles.tables(list(self._codes), self._scan.n)

    def _rows(self, keyed: Any, joint: bool) -> Iterator[dict[str, Columns]]:
        """Rows of all tables as they arrive, from one grouped pass over the finest cells.

        Without joint cells the margins are added up on the engine.
        """
        import ibis

        outcome = self._outcome
        names = ("joint", *outcome.margins) if joint else outcome.margins
        cells = {name: outcome.tables[name].cells for name in names}
        sums = _sums(keyed, outcome, outcome.reals(("part", *names)))
        keys_read = [
            *_PART_KEYS,
            *dict.fromkeys(c for cells_of_table in cells.values() for c in cells_of_table.values()),
        ]
        fine = keyed.group_by(*keys_read).aggregate(**sums)
        if joint:
            for rows in self._batches(fine):
                keys = {
                    n: {key: rows[c] for key, c in cells_of_table.items()}
                    for n, cells_of_table in cells.items()
                }
                yield {
                    "part": rows,
                    **{name: {**rows, **keys_of_table} for name, keys_of_table in keys.items()},
                }
            return
        added = {name: fine[name].sum() for name in sums if name not in _EXTREMES}
        added = {
            name: v.cast("int64") if name in whole_sums(outcome) else v for name, v in added.items()
        }
        added |= {"score_min": fine.score_min.min(), "score_max": fine.score_max.max()}
        margins = []
        for k, name in enumerate(names):
            by_cell = {key: fine[c] for key, c in cells[name].items()}
            margin = fine.group_by(*_PART_KEYS, **by_cell).aggregate(**added)
            margins.append(margin.mutate(margin=ibis.literal(k, type="int64")))
        for rows in self._batches(reduce(lambda one, other: one.union(other), margins)):
            for k, name in enumerate(names):
                mine = {column: values[rows["margin"] == k] for column, values in rows.items()}
                yield {name: mine} if k else {"part": mine, name: mine}

    def _batches(self, expression: Any) -> Iterator[Columns]:
        schema = expression.schema()
        with readable():
            for batch in record_batches(expression, _ROWS):
                yield self._plain(batch, schema)

    def _table(self, expression: Any) -> Columns:
        with readable():
            return self._plain(expression.to_pyarrow().combine_chunks(), expression.schema())

    def _plain(self, table: Any, schema: Mapping[str, Any]) -> Columns:
        """Columns of an Arrow table or batch; groups are coded in the order of their appearance."""
        columns = {}
        for name, dtype in schema.items():
            values = table.column(name)
            if name == "group":
                words = values.to_pylist()
                codes = [self._codes.setdefault(word, len(self._codes)) for word in words]
                columns[name] = np.array(codes, dtype=np.int64)
            else:  # engines widen sums of whole numbers
                kind = np.int64 if dtype.is_integer() else np.float64
                columns[name] = np.asarray(values.to_numpy(zero_copy_only=False), dtype=kind)
        return columns


def _sums(keyed: Any, outcome: Outcome, names: Sequence[str]) -> dict[str, Any]:
    """Sums by name, as expressions of an item."""
    is_whole = whole_sums(outcome)
    terms = functions()["terms_of"](outcome, keyed, {*names, *is_whole})
    sums = {name: term.sum() for name, term in terms.items()}
    sums = {name: v.cast("int64") if name in is_whole else v for name, v in sums.items()}
    t = keyed.score
    return sums | {"n": keyed.count(), "score_min": t.min(), "score_max": t.max()}


def repeated(table: Any, grid: Grid, cells: Ints, least: int) -> dict[float, int]:
    """Scores in some cells that at least so many items share, with their numbers of items."""
    inside = table.filter(score_cell(table.score, grid).isin(cells.tolist()))
    counted = inside.group_by("score").aggregate(n=inside.count())
    rows = counted.filter(counted.n >= least).order_by("score").to_pyarrow()
    return dict(zip(rows["score"].to_pylist(), rows["n"].to_pylist(), strict=True))
