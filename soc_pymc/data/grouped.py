"""Grouped passes over items on any engine of Ibis."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from .._lib.arrays import Floats
from ..families.outcomes import OUTCOMES, Outcome
from .binning import Columns, Grid, Joint, Weights
from .columns import functions, score_cell, with_bins, with_blocks, with_cells
from .formulas import Folds, fold_of, summand
from .items import Items
from .layout import Piles, Sums
from .sources import readable, record_batches
from .validation import Scan, scan

_ROWS = 1 << 20  # rows that arrive at once
_PART_KEYS = ("group", "fold", "bin")


class Grouped:
    """Passes over a user's Ibis table in its own engine."""

    def __init__(self, items: Items, folds: Folds, progress: bool) -> None:
        self._items, self._folds, self._progress = items, folds, progress
        self._outcome = OUTCOMES[items.kind]
        self._codes: dict[str, int] = {}

    @cached_property
    def _scan(self) -> Scan:
        return scan(self._items, self._progress, folds=True)

    @property
    def table(self) -> Any:
        """Ibis table of the items, which are valid."""
        return self._scan.table

    def check(self) -> None:
        """Refuse items that are not valid."""
        _ = self._scan

    def weights(self, grid: Grid, weight: str | None) -> Weights:
        """Items and sums of whole outcomes on a grid."""
        n = self.table.count()
        sums = {"n": n, "weight": self.table[weight].sum().cast("int64") if weight else n}
        cell = score_cell(self.table.score, grid)
        with readable():
            rows = self.table.group_by(cell=cell).aggregate(**sums).order_by("cell").to_pyarrow()
        cells = (np.asarray(rows[name], dtype=np.int64) for name in ("cell", "n", "weight"))
        return Weights(self._scan.n, self._scan.score_min, self._scan.score_max, *cells)

    def tables(self, edges: Floats, joint: Joint) -> Sums:
        """Sums of all bins and cells: one grouped pass over joint cells, or one for each margin."""
        outcome = self._outcome
        piles, keyed = Piles(outcome, joint, len(edges) + 1), self._keyed(edges)
        leading, *others = outcome.margins
        passes = [(*outcome.tables,)] if joint.most else [("part", leading), *zip(others)]
        for names in passes:
            cells = {name: outcome.tables[name].cells for name in names}
            finest = dict.fromkeys(cell for keys in cells.values() for cell in keys.values())
            sums = _sums(keyed, outcome, outcome.reals(names))
            for rows in self._batches(keyed.group_by(*_PART_KEYS, *finest).aggregate(**sums)):
                for name, keys in cells.items():
                    piles.add(name, {**rows, **{key: rows[cell] for key, cell in keys.items()}})
        return piles.tables(list(self._codes), self._scan.n)

    def _keyed(self, edges: Floats) -> Any:
        """The table of items with columns of their group, fold, bin and cells."""
        import ibis

        table = self.table
        if self._folds.by == "cluster":
            with readable():
                labels = table.select("cluster").distinct().to_pyarrow()["cluster"].to_pylist()
            table = with_blocks(table, labels)
        keyed = with_cells(with_bins(table, edges), self._outcome)
        fold = ibis.literal(0, type="int64")
        if self._folds.by != "none":
            fold = fold_of(self._folds, keyed, self._outcome.size, functions())
        group = keyed.group if "group" in keyed.columns else ibis.literal("")
        return keyed.mutate(fold=fold, group=group)

    def _batches(self, expression: Any) -> Iterator[Columns]:
        """Columns of record batches; groups are coded in the order of their appearance."""
        schema = expression.schema()
        with readable():
            for batch in record_batches(expression, _ROWS):
                columns = {}
                for name, dtype in schema.items():
                    values = batch.column(name)
                    if name == "group":
                        words = values.to_pylist()
                        values = [self._codes.setdefault(word, len(self._codes)) for word in words]
                    # engines widen sums of whole numbers
                    integral = name == "group" or dtype.is_integer()
                    columns[name] = np.asarray(values, dtype=np.int64 if integral else np.float64)
                yield columns


def _sums(keyed: Any, outcome: Outcome, names: Sequence[str]) -> dict[str, Any]:
    """Sums by name, as expressions of a table of items."""
    sums = {"n": keyed.count(), "score_min": keyed.score.min(), "score_max": keyed.score.max()}
    if "sum_y" in outcome.integers:
        sums["sum_y"] = keyed[outcome.observed].sum().cast("int64")
    for name in set(names) - sums.keys():
        sums[name] = summand(name, outcome, keyed, functions()).sum()
    return sums
