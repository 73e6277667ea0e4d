"""Grouped passes over items in a remote engine, by formulas of the columns of an Ibis table."""

from collections.abc import Iterator, Sequence
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any

import numpy as np

from .._lib.arrays import Floats, Ints
from .._lib.progress import phase
from ..families.outcome import Outcome
from .binning import CELL_SUMS, Columns, Grid, Pile, Sums, make_lookup, sums_of
from .formulas import (
    Folds,
    block_of_labels,
    cells_of,
    exact,
    fold_of,
    ibis_functions,
    score_cell,
    size_cell,
    summand,
)
from .items import Items
from .sources import batches, readable
from .validation import scan

if TYPE_CHECKING:
    import ibis.expr.types as ir

_ROWS = 1 << 20  # rows that arrive at once
_PART_KEYS = ("group", "fold", "bin")
_BEYOND = 1e300  # stands for an infinite edge, which SQL cannot write


class Grouped:
    """Grouped passes over items in their own engine, which sends only sums; the items are valid."""

    def __init__(self, items: Items, folds: Folds, progress: bool) -> None:
        self.items = items
        self._folds = folds
        self._progress = progress
        self._n, self.table = scan(items, progress)
        self._codes: dict[str, int] = {}  # of the labels of groups

    def sizes(self) -> Columns:
        """Items and whole outcomes by cell of their sizes."""
        outcome = self.items.outcome
        table = self.table
        cell = size_cell(table[outcome.size], outcome, ibis_functions())
        sums = {"n": table.count()}
        if outcome.whole:
            sums["sum_y"] = table[outcome.observed].cast("int64").sum()
        counted = table.group_by(cell=cell).aggregate(**sums)
        with phase("choosing bins", enabled=self._progress):
            return self._added(counted, ("cell",), outcome.integers)

    def weights(
        self, grid: Grid, weight: str | None, size_limit: float | None
    ) -> Columns:
        """Items, their weight and range of scores by cell."""
        table = self.table
        amount = table[weight].cast("int64").sum() if weight else table.count()
        if size_limit is not None and not weight:
            outcome = self.items.outcome
            tells = outcome.tells(table[outcome.size], exact(size_limit))
            amount = tells.ifelse(1, 0).cast("int64").sum()
        sums = table.count(), amount, table.score.min(), table.score.max()
        cell = score_cell(table.score, *grid, ibis_functions())
        key, *names = CELL_SUMS
        counted = table.group_by(**{key: cell}).aggregate(
            **dict(zip(names, sums, strict=True))
        )
        with phase("choosing bins", enabled=self._progress):
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
        sums = {"n": keyed.count()}
        sums |= {"score_min": keyed.score.min(), "score_max": keyed.score.max()}
        for name in {*outcome.integers, *outcome.reals(list(layouts))} - sums.keys():
            term = summand(name, outcome, keyed, size_limit, ibis_functions())
            total = term.sum()
            sums[name] = total.cast("int64") if name in outcome.integers else total
        keys = dict.fromkeys([*_PART_KEYS, *cells])
        grouped = keyed.group_by(*keys).aggregate(**sums)
        with phase("summing cells", enabled=self._progress):
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
        self, grid: Grid, cells: Ints, least: int, ends: Sequence[float]
    ) -> Columns:
        """Scores in some cells that `least` items share, or that are `ends`, with their items."""
        import ibis

        score = self.table.score
        bounds = zip(grid.boundary(cells), grid.boundary(cells + 1), strict=True)
        inside = [(score >= exact(low)) & (score < exact(high)) for low, high in bounds]
        near = self.table.filter(ibis.or_(*inside))
        counted = near.group_by("score").aggregate(n=ibis._.count())
        repeated = counted.filter((ibis._.n >= least) | ibis._.score.isin(ends))
        return self._added(repeated, ("score",), ("n",))

    def _added(
        self, expression: "ir.Table", keys: Sequence[str], names: Sequence[str]
    ) -> Columns:
        pile = Pile(keys, names)
        for rows in self._batches(expression):
            pile.add(rows)
        return pile.total()

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
        integers = {*_PART_KEYS, *CELL_SUMS[:3], *self.items.outcome.integers}
        for batch in batches(expression, size=_ROWS):
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
            yield columns


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
    import ibis
    import pyarrow as pa

    label = pa.array(labels, pa.string())
    blocks = pa.table({"soc_label": label, "soc_block": block_of_labels(labels)})
    joined = table.inner_join(ibis.memtable(blocks), [("cluster", "soc_label")])
    return joined.mutate(cluster=joined.soc_block)


def with_bins(
    table: "ir.Table", edges: Floats, prefix: str = "", score: str = "score"
) -> Any:
    """The table with the column ``bin``: [e_k, e_k+1) is bin k + 1, outer bins are open."""
    import ibis
    import pyarrow as pa

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
    joined = table.inner_join(ibis.memtable(pa.table(columns)), f"{prefix}cell")
    cuts_below = (
        (joined[score] >= joined[cut]).ifelse(1, 0).cast("int64") for cut in cuts
    )
    return joined.mutate(
        **{f"{prefix}bin": joined[f"{prefix}below"] + reduce(add, cuts_below)}
    )
