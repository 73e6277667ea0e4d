"""Passes over items: choose bins, and sum cells, on any engine or in blocks of local rows."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._lib.arrays import Floats, Ints
from .._lib.errors import ItemsError
from .._lib.progress import phase
from .._lib.threads import ordered_map
from ..families.outcomes import OUTCOMES, Outcome
from ..families.scales import LINEAR, SCALES
from . import formulas
from .binning import Columns, Grid, Joint, Weights, added, make_lookup
from .columns import NUMBERS, functions, with_bins, with_blocks, with_cells, with_group
from .formulas import Folds, block_of_labels, fold_of, summand
from .group_sum import GroupSum, in_order, part_sums
from .groups import CROSS, MARK, is_day, key_roles
from .items import Items
from .sources import batches, readable, record_batches
from .validation import check_total, read, scan

_ROWS = 1 << 20  # rows of an engine that arrive at once
_BLOCK = 1_000_000  # items of a local block
_PART_KEYS = ("group", "fold", "bin")
_WAITING = 1 << 20  # rows that are added up at once


# --- rows that arrive in parts -------------------------------------------------------------------


class Sums(NamedTuple):
    """Sums over parts (group, fold and bin), their cells, and joint cells of groups and bins."""

    tables: Mapping[str, Columns]  # columns of keys and sums by table; "joint" may be empty
    labels: tuple[str, ...]  # of the groups, by code
    coarse: int  # bins per bin of the joint cells; 0 without joint cells
    n: int  # items, counted independently of the sums


class Pile:
    """Rows of one table, which may repeat their keys until they are added up."""

    def __init__(self, keys: Sequence[str], names: Sequence[str]) -> None:
        self._keys, self._names = keys, names
        self._parts: list[Columns] = []

    def __len__(self) -> int:
        return sum(len(part[self._keys[0]]) for part in self._parts)

    def add(self, rows: Columns) -> None:
        """Add rows, which may repeat keys."""
        self._parts.append({name: rows[name] for name in (*self._keys, *self._names)})
        total = len(self._parts[0][self._keys[0]])
        if len(self) - total > max(total, _WAITING):
            self.total()

    def total(self, bins: int = 1) -> Columns:
        """The rows with distinct keys, after putting so many `bins` together."""
        if not self._parts:
            return {}
        rows = {n: np.concatenate([part[n] for part in self._parts]) for n in self._parts[0]}
        if bins > 1:
            rows["bin"] //= bins
        self._parts = [added(rows, self._keys, self._names)]
        return self._parts[0]


class Piles:
    """All tables of one kind of outcome; joint cells are kept within their budget."""

    def __init__(self, outcome: Outcome, joint: Joint, bins: int) -> None:
        self._outcome, self._joint, self._bins = outcome, joint, bins
        self.coarse = min(joint.most, 1)
        """Bins per bin of the joint cells, 0 if none are kept."""
        self._piles = {
            name: Pile(table.keys, outcome.sums(name)) for name, table in outcome.tables.items()
        }

    def add(self, name: str, rows: Columns) -> None:
        """Add rows of a table in bins, which may repeat their keys."""
        if name != "joint":
            self._piles[name].add(rows)
        elif self.coarse:
            self._piles[name].add({**rows, "bin": rows["bin"] // self.coarse})
            self._keep_budget(self._piles[name], self._joint.most)

    def _keep_budget(self, pile: Pile, most: int) -> None:
        """Merge bins of joint cells in pairs, or drop joint cells, beyond their number."""
        if len(pile) <= most or len(pile.total()["n"]) <= most:
            return
        if not self._joint.merges:
            self.coarse = 0
            return
        while len(pile) > most and self.coarse < self._bins:
            pile.total(bins=2)
            self.coarse *= 2
        self._outcome.check_joint(len(pile), most)

    def sums(self, labels: Sequence[str], n: int) -> Sums:
        """The tables of all `n` items, with groups in the order of their labels."""
        order = np.argsort(np.argsort(np.array(labels, dtype=object))).astype(np.int64)
        tables = {name: dict(pile.total()) for name, pile in self._piles.items()}
        if not self.coarse:
            tables["joint"] = {}
        for table in filter(None, tables.values()):
            table["group"] = order[table["group"]]
        _fill_positions(tables["part"])
        return Sums(tables, tuple(sorted(labels)), self.coarse, n)


def _fill_positions(part: dict[str, NDArray[Any]]) -> None:
    """Give bins of one score at an end of a scale, such as 0, the nearest position of others."""
    low, high = part["score_min"], part["score_max"]
    for scale in SCALES.values():
        inside = scale.holds(low) & scale.holds(high)
        if scale is LINEAR or scale.sums[0] not in part or not inside.any():
            continue
        nearest = scale.position(np.array([low[inside].min(), high[inside].max()]))
        for end, position in zip((scale.low, scale.high), nearest, strict=True):
            bins = (low == end) & (high == end)
            for power, name in enumerate(scale.sums, 1):
                part[name] = np.where(bins, part["n"] * position**power, part[name])


# --- on an engine --------------------------------------------------------------------------------


class Grouped:
    """Grouped passes over a user's Ibis table in its own engine; the items are valid."""

    def __init__(self, items: Items, folds: Folds, progress: bool) -> None:
        self.items, self._folds, self._outcome = items, folds, OUTCOMES[items.kind]
        self._progress = progress
        self._n, self.table = scan(items, progress)
        self._codes: dict[str, int] = {}  # of the labels of groups

    def weights(self, grid: Grid, weight: str | None) -> Weights:
        """Aggregate the items by cell."""
        table, ops = self.table, functions()
        amount = ops["whole"](table[weight]).sum().cast("int64") if weight else table.count()
        sums = {"n": table.count(), "amount": amount}
        ends = {"low": table.score.min(), "high": table.score.max()}
        cell = ops["score_cell"](table.score, grid.floor, grid.steps)
        with phase("choosing bins", enabled=self._progress), readable():
            rows = table.group_by(cell=cell).aggregate(**sums, **ends).order_by("cell").to_pyarrow()
        cells = (np.asarray(rows[name], dtype=np.int64) for name in ("cell", *sums))
        low, high = (np.asarray(rows[name], dtype=float) for name in ends)
        return Weights(low.min(), high.max(), *cells)

    def tables(self, edges: Floats, joint: Joint) -> Sums:
        """Make one grouped pass over joint cells, or one for each margin."""
        outcome = self._outcome
        piles, keyed = Piles(outcome, joint, len(edges) + 1), self._keyed(edges)
        leading, *others = outcome.margins
        passes = [(*outcome.tables,)] if joint.most else [("part", leading), *zip(others)]
        for names in passes:
            cells = {name: outcome.tables[name].cells for name in names}
            finest = dict.fromkeys(cell for keys in cells.values() for cell in keys.values())
            sums = {"n": keyed.count()}
            sums |= {"score_min": keyed.score.min(), "score_max": keyed.score.max()}
            for name in {*outcome.integers, *outcome.reals(names)} - sums.keys():
                total = summand(name, outcome, keyed, functions()).sum()
                sums[name] = total.cast("int64") if name in outcome.integers else total
            grouped = keyed.group_by(*_PART_KEYS, *finest).aggregate(**sums)
            with phase("summing cells", enabled=self._progress):
                for rows in self._batches(grouped):
                    for name, keys in cells.items():
                        piles.add(name, {**rows, **{k: rows[cell] for k, cell in keys.items()}})
        return piles.sums(list(self._codes), self._n)

    def _keyed(self, edges: Floats) -> Any:
        """The table of items with columns of their group, fold, bin and cells."""
        import ibis

        table, fold = self.table, ibis.literal(0, type="int64")
        if self._folds.by == "cluster":
            with readable():
                labels = table.select("cluster").distinct().to_pyarrow()["cluster"].to_pylist()
            table = with_blocks(table, labels)
        keyed = with_cells(with_bins(table, edges), self._outcome)
        if self._folds.by != "none":
            fold = fold_of(self._folds, keyed, self._outcome.size, functions())
        group = keyed.group if "group" in keyed.columns else ibis.literal("")
        return keyed.mutate(fold=fold, group=group)

    def _batches(self, expression: Any) -> Iterator[Columns]:
        """Columns of record batches; groups are coded in the order of their appearance."""
        integers = {"group", *_PART_KEYS, *self._outcome.integers}
        with readable():
            for batch in record_batches(expression, _ROWS):
                columns = {}
                for name, values in zip(batch.schema.names, batch.columns, strict=True):
                    if name == "group":
                        words = values.to_pylist()
                        values = [self._codes.setdefault(word, len(self._codes)) for word in words]
                    # engines widen sums of whole numbers
                    integral = name in integers or name.endswith("_cell")
                    columns[name] = np.asarray(values, dtype=np.int64 if integral else np.float64)
                yield columns


# --- in memory and files -------------------------------------------------------------------------


class Local:
    """Passes over items in files or in memory, which are validated block by block."""

    def __init__(self, items: Items, folds: Folds, progress: bool) -> None:
        self.items, self._folds, self._outcome = items, folds, OUTCOMES[items.kind]
        self._progress = progress
        self._n: int | None = None
        self._codes: dict[str, int] = {}  # of the labels of groups
        self._lock = threading.Lock()  # of the codes
        self.table = with_group(read(items))

    def weights(self, grid: Grid, weight: str | None) -> Weights:
        """Count blocks in threads; only the needed columns are read."""
        roles = ("score", weight) if weight else ("score",)

        def count(block: Mapping[str, Any]) -> tuple[float, float, Columns]:
            if not all(self._outcome.bounds[role].hold(block[role]) for role in roles):
                raise _NotValidError
            score = block["score"]
            cell = grid.cell(score)
            if weight:
                amount = block[weight].astype(np.int64)
                rows = {"cell": cell, "n": np.ones_like(amount), "amount": amount}
                rows = added(rows, ("cell",), ("n", "amount"))
            else:
                occupied, n = np.unique(cell, return_counts=True)
                rows = {"cell": occupied, "n": n, "amount": n}
            return float(score.min()), float(score.max()), rows

        pile, ends = Pile(("cell",), ("n", "amount")), []
        for low, high, rows in self._mapped("choosing bins", roles, count):
            ends += [low, high]
            pile.add(rows)
        if not ends:
            self._refuse()
        cells = pile.total()
        check_total(self.items, float(cells["amount"].sum(dtype=float)))
        self._n = int(cells["n"].sum())
        return Weights(min(ends), max(ends), cells["cell"], cells["n"], cells["amount"])

    def tables(self, edges: Floats, joint: Joint) -> Sums:
        """Validate and sum blocks in one pass.

        Blocks are put in order in threads and added in their order, to several tables at once, so
        every sum is over its items in order, for any number of threads.
        """
        outcome, lookup, bins = self._outcome, make_lookup(edges), len(edges) + 1
        piles, folds = Piles(outcome, joint, bins), self._folds.number
        cells = {name: GroupSum(outcome, name) for name in (*outcome.margins, "joint")}

        def prepare(block: Mapping[str, Any]) -> tuple[float, Ints, Floats]:
            score, y, size = (block[role] for role in outcome.bounds)
            if not outcome.validity.are_valid(score, y, size):
                raise _NotValidError
            return float(y.sum()), *in_order(score, y, size, self._parts(block), lookup, bins)

        def move(name: str, rows: dict[str, NDArray[Any]]) -> None:
            part, rows["bin"] = np.divmod(rows.pop("number"), bins)
            rows["group"], rows["fold"] = np.divmod(part, folds)
            piles.add(name, rows)

        n, total = 0, 0.0
        parts = key_roles(self.items.roles).keys() - {"group"}  # of the joined label
        roles = [role for role in self.table.columns if role not in parts]
        for amount, number, items in self._mapped("summarizing items", roles, prepare):
            n, total = n + len(number), total + amount
            check_total(self.items, total)
            move("part", part_sums(outcome, number, items))
            tasks = [(cells[name], number, items) for name in outcome.margins]
            if piles.coarse:  # joint cells have no folds
                number = number // (folds * bins) * (folds * bins) + number % bins
                tasks.append((cells["joint"], number, items))
            list(ordered_map(lambda task: task[0].add(*task[1:]), tasks))
            if len(cells["joint"]) > joint.most:
                move("joint", cells["joint"].take())
        if not n or self._n not in (None, n):
            self._refuse()
        for name, sums in cells.items():
            move(name, sums.take())
        return piles.sums(list(self._codes) or [""], n)

    def _parts(self, block: Mapping[str, Any]) -> Ints:
        """Code of each item's group times the number of folds, plus its fold."""
        group = block.get("group", np.zeros(len(block["score"]), dtype=np.int64))
        if self._folds.by == "none":
            return group
        if self._folds.by == "column" and not NUMBERS["fold"].hold(block["fold"]):
            raise _NotValidError
        fold = fold_of(self._folds, block, self._outcome.size, vars(formulas))
        return group * self._folds.number + fold

    def _mapped[Result](
        self, title: str, roles: Sequence[str], work: Callable[[Mapping[str, Any]], Result]
    ) -> Iterator[Result]:
        """Results of work on blocks of about a million items, in order, made in threads."""

        def run(block: Any) -> tuple[int, Result]:
            columns = zip(block.schema.names, block.columns, strict=True)
            return block.num_rows, work({role: self._numbers(role, c) for role, c in columns})

        blocks = batches(self.table, roles, _BLOCK, self.items.source)
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
        words, place = encoded.dictionary.to_pylist(), encoded.indices.to_numpy()
        if role == "cluster":
            return np.asarray(block_of_labels(words)[place])
        crossings = len(key_roles(self.items.roles)) - 1
        if crossings and any(word.count(MARK) != crossings for word in words):
            raise _NotValidError
        if self.items.date and not all(is_day(word.partition(CROSS)[0]) for word in words):
            raise _NotValidError
        with self._lock:
            codes = [self._codes.setdefault(word, len(self._codes)) for word in words]
        return np.array(codes, dtype=np.int64)[place]

    def _refuse(self) -> None:
        """Raise the full error about the items."""
        scan(self.items, self._progress)
        raise ItemsError("the items changed while they were read: try again")


class _NotValidError(Exception):
    """A block of items is not valid; a scan of all items says why."""
