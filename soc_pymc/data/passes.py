"""Passes over items: choose bins, and sum cells, on any engine or in blocks of local rows."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._lib.arrays import Floats, Ints
from .._lib.errors import ItemsError
from .._lib.progress import phase
from .._lib.threads import ordered_map
from ..families.outcomes import OUTCOMES, Outcome
from . import formulas
from .binning import Columns, Grid, Joint, Weights, added, make_lookup
from .columns import NUMBERS, functions, score_cell, with_bins, with_blocks, with_cells
from .formulas import Folds, block_of_labels, fold_of, summand
from .group_sum import GroupSum, in_order, part_sums
from .groups import CROSS, MARK, is_day, key_roles
from .items import Items
from .layout import Pile, Piles, Sums
from .sources import batches, readable, record_batches
from .validation import Scan, check_total, read, scan

_ROWS = 1 << 20  # rows of an engine that arrive at once
_BLOCK = 1_000_000  # items of a local block
_PART_KEYS = ("group", "fold", "bin")


class _Reader:
    """Parts that both kinds of passes share."""

    table: Any  # of Ibis, with columns by role

    def __init__(self, items: Items, folds: Folds, progress: bool) -> None:
        self._items, self._folds, self._progress = items, folds, progress
        self._outcome = OUTCOMES[items.kind]
        self._codes: dict[str, int] = {}  # of the labels of groups

    @cached_property
    def _scan(self) -> Scan:
        return scan(self._items, self._progress, folds=True)

    def check(self) -> None:
        """Refuse items that are not valid."""
        _ = self._scan


# --- on an engine ---------------------------------------------------------------------------------


class Grouped(_Reader):
    """Grouped passes over a user's Ibis table in its own engine."""

    @property
    def table(self) -> Any:
        """Ibis table of the items, which are valid."""
        return self._scan.table

    def weights(self, grid: Grid, weight: str | None) -> Weights:
        """Aggregate the items by cell."""
        n = self.table.count()
        sums = {"n": n, "weight": self.table[weight].sum().cast("int64") if weight else n}
        cell = score_cell(self.table.score, grid)
        with readable():
            rows = self.table.group_by(cell=cell).aggregate(**sums).order_by("cell").to_pyarrow()
        cells = (np.asarray(rows[name], dtype=np.int64) for name in ("cell", "n", "weight"))
        return Weights(self._scan.n, self._scan.score_min, self._scan.score_max, *cells)

    def tables(self, edges: Floats, joint: Joint) -> Sums:
        """Make one grouped pass over joint cells, or one for each margin."""
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


# --- in memory and files --------------------------------------------------------------------------


class Local(_Reader):
    """Passes over items in files or in memory."""

    def __init__(self, items: Items, folds: Folds, progress: bool) -> None:
        super().__init__(items, folds, progress)
        self._n: int | None = None
        self._lock = threading.Lock()  # of the codes
        self.table = read(items)

    def _refuse(self) -> None:
        """Raise the full error about the items."""
        self.check()
        raise ItemsError("the items changed while they were read: try again")

    def weights(self, grid: Grid, weight: str | None) -> Weights:
        """Count blocks in threads; only the needed columns are read."""
        roles = ("score", weight) if weight else ("score",)

        def count(block: Mapping[str, Any]) -> tuple[float, float, Columns]:
            if not all(self._outcome.bounds[role].hold(block[role]) for role in roles):
                raise _NotValidError
            score, rows = block["score"], {}
            cell = grid.cell(score)
            if weight:
                total = block[weight].astype(np.int64)
                rows = {"cell": cell, "n": np.ones_like(total), "weight": total}
                rows = added(rows, ("cell",), ("n", "weight"))
            else:
                rows["cell"], rows["n"] = np.unique(cell, return_counts=True)
                rows["weight"] = rows["n"]
            return float(score.min()), float(score.max()), rows

        pile, ends = Pile(("cell",), ("n", "weight")), []
        for low, high, rows in self._mapped("choosing bins", roles, count):
            ends += [low, high]
            pile.add(rows)
        if not ends:
            self._refuse()
        cells = pile.total()
        check_total(self._items, float(cells["weight"].sum(dtype=float)))
        self._n = int(cells["n"].sum())
        return Weights(self._n, min(ends), max(ends), cells["cell"], cells["n"], cells["weight"])

    def tables(self, edges: Floats, joint: Joint) -> Sums:
        """Validate and sum blocks in one pass.

        Blocks are put in order in threads and added in their order, to several tables at once, so
        every sum is over its items in order, for any number of threads.
        """
        outcome, lookup, bins = self._outcome, make_lookup(edges), len(edges) + 1
        running = _RunningSums(outcome, joint, bins, self._folds.number)

        def prepare(block: Mapping[str, Any]) -> tuple[float, Ints, Floats]:
            score, y, size = (block[role] for role in outcome.bounds)
            if not outcome.validity.are_valid(score, y, size):
                raise _NotValidError
            return float(y.sum()), *in_order(score, y, size, self._parts(block), lookup, bins)

        n, total = 0, 0.0
        parts = key_roles(self._items.roles).keys() - {"group"}  # of the joined label
        roles = [role for role in self.table.columns if role not in parts]
        for y, number, items in self._mapped("summarizing items", roles, prepare):
            n, total = n + len(number), total + y
            check_total(self._items, total)
            running.add(number, items)
        if not n or self._n not in (None, n):
            self._refuse()
        return running.tables(list(self._codes) or [""], n)

    def _parts(self, block: Mapping[str, Any]) -> Ints:
        """Code of each item's group times the number of folds, plus its fold."""
        group = block.get("group", np.zeros(len(block["score"]), dtype=np.int64))
        if self._folds.by == "none":
            return group
        if self._folds.by == "column" and not NUMBERS["fold"].hold(block["fold"]):
            raise _NotValidError
        fold = fold_of(self._folds, block, self._outcome.size, vars(formulas))
        return group * self._folds.number + np.asarray(fold).astype(np.int64)

    def _mapped[Result](
        self, title: str, roles: Sequence[str], work: Callable[[Mapping[str, Any]], Result]
    ) -> Iterator[Result]:
        """Results of work on blocks of about a million items, in order, made in threads."""

        def run(block: Any) -> tuple[int, Result]:
            columns = zip(block.schema.names, block.columns, strict=True)
            return block.num_rows, work({role: self._numbers(role, c) for role, c in columns})

        blocks = batches(self.table, roles, _BLOCK, self._items.source)
        with phase(title, unit="items", enabled=self._progress) as running:
            try:
                for rows, result in ordered_map(run, blocks):
                    yield result
                    running.advance(rows)
            except _NotValidError:
                self._refuse()

    def _numbers(self, role: str, values: Any) -> NDArray[Any]:
        """Numbers of an Arrow array, NaN where missing; codes of groups, and blocks of clusters."""
        if role in NUMBERS:
            return np.asarray(values.to_numpy(zero_copy_only=False))
        if values.null_count:
            raise _NotValidError
        if role == "id":
            return np.asarray(values.to_numpy())
        encoded = values.dictionary_encode()
        words = encoded.dictionary.to_pylist()
        if role == "cluster":
            return np.asarray(block_of_labels(words)[encoded.indices.to_numpy()])
        self._check_labels(words)
        with self._lock:
            codes = [self._codes.setdefault(word, len(self._codes)) for word in words]
        return np.array(codes, dtype=np.int64)[encoded.indices.to_numpy()]

    def _check_labels(self, words: Sequence[str]) -> None:
        crossings = len(key_roles(self._items.roles)) - 1
        if crossings and any(word.count(MARK) != crossings for word in words):
            raise _NotValidError
        if self._items.date and not all(is_day(word.partition(CROSS)[0]) for word in words):
            raise _NotValidError


class _RunningSums:
    """Sums of all tables; joint cells are moved to the piles beyond a budget."""

    def __init__(self, outcome: Outcome, joint: Joint, bins: int, folds: int) -> None:
        self._outcome, self._most, self._bins, self._folds = outcome, joint.most, bins, folds
        self._cells = {n: GroupSum(outcome, n) for n in outcome.tables if n != "part"}
        self.piles = Piles(outcome, joint, bins)

    def add(self, number: Ints, items: Floats) -> None:
        """Add items in order; a number is that of group, fold and bin."""

        def add_to(name: str) -> None:
            if name == "part":
                self._move(name, part_sums(self._outcome, number, items))
            elif name == "joint":  # without folds, and with the first of the bins that are merged
                bin_number = number % self._bins
                merged = bin_number - bin_number % self.piles.coarse
                group = number // (self._folds * self._bins)
                self._cells[name].add(group * self._bins + merged, items)
            else:
                self._cells[name].add(number, items)

        names = [name for name in self._outcome.tables if name != "joint" or self.piles.coarse]
        for _ in ordered_map(add_to, names):
            pass
        if len(self._cells["joint"]) > self._most:
            self._flush("joint")

    def tables(self, labels: Sequence[str], n: int) -> Sums:
        """The sums of all items."""
        for name in self._cells:
            self._flush(name)
        return self.piles.tables(labels, n)

    def _flush(self, name: str) -> None:
        rows = self._cells[name].columns()
        self._cells[name] = GroupSum(self._outcome, name)
        self._move(name, rows)

    def _move(self, name: str, rows: dict[str, NDArray[Any]]) -> None:
        """Add rows to the piles, with their group, fold and bin in place of their number."""
        part, rows["bin"] = np.divmod(rows.pop("number"), self._bins)
        rows["group"], rows["fold"] = np.divmod(part, 1 if name == "joint" else self._folds)
        self.piles.add(name, rows)


class _NotValidError(Exception):
    """A block of items is not valid; a scan of all items says why."""
