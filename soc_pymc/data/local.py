"""Passes over items in this process: blocks of rows, whose sums are compiled if many."""

import operator
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._lib.arguments import ItemsError, StatisticsError
from .._lib.arrays import ColumnDict, Columns, Floats, Ints, compiled
from .._lib.work import ordered_map, phase
from ..families.family import Outcome, sum_of
from .binning import (
    CELL_SUMS,
    Lookup,
    Pile,
    ScoreGrid,
    Sums,
    added_parts,
    make_lookup,
    sums_of,
)
from .engines import check_total, check_types, scan
from .formulas import (
    ARRAYS,
    Folds,
    block_of_labels,
    cells_of,
    fold_of,
    size_cell,
    square,
    summand,
    without_small,
)
from .items import CROSS, FOLDS, MARK, NOISE_DF, WEIGHTS, Items, columns_of, is_day
from .sources import batches, count_of, kind_of, opened, readable

_BLOCK = 1_000_000  # items of a block
# the same where items are only counted: these arrays stay in the cache
_SHORT_BLOCK = 250_000
# columns before the real sums: the number of items, the outcome as a whole
HEAD = 2
# rows of blocks of items without weights: score, outcome and size
UNWEIGHTED = 3
_KEY_BITS = 62
_BUCKET_BITS = 16  # bits of the numbers that order items
# items, in one table or several, to compile a loop for
_ENOUGH = 400_000
_ENOUGH_SUMS = 800_000


class Local:
    """Passes over items whose rows reach this process, validated block by block."""

    def __init__(self, items: Items, folds: Folds) -> None:
        self.items = items
        self._folds = folds
        self._rows: int | None = None  # of the table, if known
        self._read = 0  # rows that the last pass read
        self._codes: dict[str, int] = {}  # by label of groups
        self._lock = threading.Lock()  # for the codes
        self.table = opened(items.source, items.roles.columns)
        check_types(items, self.table)

    def sizes(self) -> Columns:
        """Items and whole outcomes by cell of their sizes."""
        outcome = self.items.outcome
        names = outcome.integers

        def count(block: Columns) -> Columns:
            self._check(block)
            weight = block.get("weight")
            cell, n = _counted(size_cell(block[outcome.size], outcome), weight)
            sums = {"cell": cell, "n": n}
            if outcome.whole:
                # all in the first cell, as only their total is needed
                whole = block[outcome.observed]
                whole = whole if weight is None else whole * weight
                sums["sum_y"] = np.zeros_like(n)
                sums["sum_y"][0] = whole.astype(np.int64).sum()
            return sums

        roles = (outcome.size, *(outcome.observed,) * outcome.whole)
        return self._piled(("cell",), names, roles, count, _SHORT_BLOCK)

    def weights(
        self, grid: ScoreGrid, weight: str | None, size_limit: float | None
    ) -> Columns:
        """Items, their weight and range of scores by cell; only needed columns are read."""
        outcome = self.items.outcome
        roles = ["score", *filter(None, [weight])]
        if size_limit is not None and not weight:
            roles.append(outcome.size)

        def count(block: Columns) -> Columns:
            self._check(block)
            score = block["score"]
            cells = grid.cell(score)
            repeats = block.get("weight")
            cell, n = _counted(cells, repeats)
            amount = n
            share = None
            if weight:
                share = block[weight]
            elif size_limit is not None:
                share = outcome.tells(block[outcome.size], size_limit)
            if share is not None:
                amount = np.zeros_like(n)
                share = share if repeats is None else share * repeats
                places = np.searchsorted(cell, cells)
                np.add.at(amount, places, share.astype(np.int64))
            ends = np.full((2, len(cell)), [[score.min()], [score.max()]])
            return dict(zip(CELL_SUMS, (cell, n, amount, *ends), strict=True))

        cells = self._piled(CELL_SUMS[:1], CELL_SUMS[1:], roles, count, _BLOCK)
        check_total(self.items, float(cells["amount"].sum(dtype=float)))
        self._rows = self._read
        return cells

    def tables(self, edges: Floats, most_joint: int, size_limit: float | None) -> Sums:
        """Validate and sum blocks, in their order, so that sums do not depend on threads."""
        outcome = self.items.outcome
        lookup = make_lookup(edges)
        numbering = _Numbering(bins=len(edges) + 1, folds=self._folds.number)
        if self._rows is None and kind_of(self.items.source) == "ibis":
            # another query on the user's connection would end a stream early, without an error
            with readable(self.items.source):
                self._rows = count_of(self.table)
        part = Pile(outcome.tables["part"].keys, outcome.sums("part"))
        sums = {name: GroupSum(outcome, name, numbering) for name in outcome.margins}
        if most_joint:
            sums["joint"] = GroupSum(outcome, "joint", numbering, most_joint)

        def prepare(block: Columns) -> tuple[float, Ints, Floats]:
            columns = tuple(block[role] for role in outcome.bounds)
            if not outcome.validity.are_valid(*columns):
                raise _NotValidError
            further = "noise_df", "weight"
            self._check({role: block[role] for role in further if role in block})
            total = columns[1].sum()
            if "weight" in block:
                columns = (*columns, block["weight"])
                total = columns[1] @ block["weight"]
            ordered = in_order(self._parts(block), columns, lookup, numbering.bins)
            return float(total), *ordered

        total = 0.0
        roles = self.items.roles
        for amount, number, items in self._mapped(
            "summarizing items", roles, prepare, _BLOCK
        ):
            total = total + amount
            check_total(self.items, total)
            part.add(numbering.keyed(part_sums(outcome, number, items, size_limit)))
            # in one thread for each table
            add = operator.methodcaller("add", number, items)
            list(ordered_map(add, sums.values()))
            if "joint" in sums and sums["joint"].full:
                del sums["joint"]
        if not self._read or self._rows not in (None, self._read):
            self._refuse()
        tables = {"part": part.total()} | {name: x.rows() for name, x in sums.items()}
        n = int(tables["part"]["n"].sum())
        return sums_of(tables, list(self._codes) or [""], n)

    def repeated_scores(
        self, grid: ScoreGrid, cells: Ints, least: int, ends: Sequence[float]
    ) -> Columns:
        """Scores in some cells that `least` items share, or that are `ends`, with their items."""

        def count(block: Columns) -> Columns:
            inside = np.isin(grid.cell(block["score"]), cells)
            scores = block["score"][inside] + 0.0  # no -0
            weight = block["weight"][inside] if "weight" in block else None
            score, n = _counted(scores, weight)
            return {"score": score, "n": n}

        counts = self._piled(("score",), ("n",), ("score",), count, _BLOCK)
        chosen = (counts["n"] >= least) | np.isin(counts["score"], ends)
        return {name: values[chosen] for name, values in counts.items()}

    def _check(self, block: Columns) -> None:
        """Stop where outcomes, sizes or scores are not valid."""
        bounds = {**self.items.outcome.bounds, "weight": WEIGHTS, "noise_df": NOISE_DF}
        if not all(bounds[role].hold(numbers) for role, numbers in block.items()):
            raise _NotValidError

    def _piled(
        self,
        keys: Sequence[str],
        names: Sequence[str],
        roles: Sequence[str],
        count: Callable[[Columns], Columns],
        size: int,
    ) -> Columns:
        """Sums of a pass over some columns, by key."""
        parts = self._mapped("choosing bins", roles, count, size)
        sums = added_parts(parts, keys, names)
        if not sums:
            self._refuse()
        return sums

    def _parts(self, block: Columns) -> Ints:
        """Code of each item's group times the number of folds, plus its fold."""
        group = block.get("group", np.zeros(len(block["score"]), dtype=np.int64))
        if self._folds.by == "none":
            return group
        if self._folds.by == "column" and not FOLDS.hold(block["fold"]):
            raise _NotValidError
        fold = fold_of(self._folds, block, self.items.outcome.size)
        return group * self._folds.number + fold

    def _mapped[Result](
        self,
        title: str,
        roles: Iterable[str],
        work: Callable[[Columns], Result],
        size: int,
    ) -> Iterator[Result]:
        """Results of work on blocks of some items, in order, made in threads."""
        weight = [role for role in ("weight",) if role in self.items.roles]
        chosen = self.items.roles.only(*roles, *weight)

        def run(block: Any) -> tuple[int, Result]:
            columns = columns_of(block, chosen)
            return block.num_rows, work(
                {role: self._numbers(role, values) for role, values in columns.items()}
            )

        blocks = batches(self.table, chosen.columns, size, self.items.source)
        self._read = 0
        with phase(title, unit="items") as running:
            try:
                for rows, result in ordered_map(run, blocks):
                    yield result
                    self._read += rows
                    running.advance(rows)
            except _NotValidError:
                self._refuse()

    def _numbers(self, role: str, values: Any) -> NDArray[Any]:
        """Numbers of a column: themselves, codes of groups, or blocks of clusters."""
        if isinstance(values, np.ndarray):
            return values
        if values.null_count:
            raise _NotValidError
        encoded = values.dictionary_encode()
        words = encoded.dictionary.to_pylist()
        place = encoded.indices.to_numpy()
        if role == "cluster":
            return np.asarray(block_of_labels(words)[place])
        marks = len(self.items.roles.joined) - 1
        dated = self.items.date
        for word in words:
            day = word.partition(CROSS)[0]
            is_crossed = word.count(MARK) == marks
            if (marks and not is_crossed) or (dated and not is_day(day)):
                raise _NotValidError
        with self._lock:
            codes = [self._codes.setdefault(word, len(self._codes)) for word in words]
        return np.array(codes, dtype=np.int64)[place]

    def _refuse(self) -> None:
        """Raise the full error about the items."""
        scan(self.items)
        raise ItemsError("the items changed while they were read: try again")


class _Numbering(NamedTuple):
    """Numbers of rows: the group's code times folds plus fold, that times bins plus bin."""

    bins: int
    folds: int

    def keyed(self, rows: ColumnDict) -> ColumnDict:
        """Rows with keys in place of their ``number``."""
        part, rows["bin"] = np.divmod(rows.pop("number"), self.bins)
        rows["group"], rows["fold"] = np.divmod(part, self.folds)
        return rows

    def without_folds(self, number: Ints) -> Ints:
        """Numbers of rows of all folds together."""
        return number // (self.folds * self.bins) * self.bins + number % self.bins


class _NotValidError(Exception):
    """A block of items is not valid; a scan of all items says why."""


@compiled(_ENOUGH_SUMS)
def _add(number: Ints, items: Floats, sums: "GroupSum") -> None:
    """Add items to the rows of their keys, which are in the order of their first items."""
    _, y, size, *weights = items
    cells = sums.cells.values()
    places = cells_of(cells, y, size, sums.least, ARRAYS)
    key = sums.numbers_of(number)
    for cell in cells:
        key = (key << cell.bits) + (places[cell.name] - cell.low)
    all_keys = np.concatenate([sums.keys, key])
    keys, first, row = np.unique(all_keys, return_index=True, return_inverse=True)
    order = np.argsort(first)
    row = np.argsort(order)[row[len(sums.keys) :]]
    sums.index = None
    if not sums.make_rows(keys[order]):
        return
    weight = weights[0] if weights else np.ones_like(y)
    np.add.at(sums.counts[:, 0], row, weight.astype(np.int64))
    if sums.whole:
        np.add.at(sums.counts[:, 1], row, (y * weight).astype(np.int64))
    outcome = without_small(y, sums.least)
    sized = size if sums.size_power == 1 else square(size)
    powers = [(x, x * x, x * x * x) for x in (outcome, sized, size - y)]
    for column, exponents in zip(sums.real[:, HEAD:].T, sums.powers, strict=True):
        factors = [
            power[k - 1] for power, k in zip(powers, exponents, strict=True) if k
        ]
        np.add.at(column, row, reduce(operator.mul, [*factors, *weights]))


class GroupSum:
    """Sums of items by number and cells, for one table of one kind of outcome."""

    def __init__(
        self,
        outcome: Outcome,
        table: str,
        numbering: _Numbering,
        most: float = np.inf,
    ) -> None:
        layout = outcome.tables[table]
        self.cells = layout.cells
        self._names = layout.reals
        terms = [term for term in map(sum_of, self._names) if term]
        self.powers = [(term.outcome, term.size, term.complement) for term in terms]
        self.whole = outcome.whole
        self.size_power = outcome.size_power
        self.least = outcome.validity.outcome.negligible
        self.bits = sum(cell.bits for cell in self.cells.values())
        self._numbering = numbering
        self.merges_folds = "fold" not in layout.keys and numbering.folds > 1
        self._most = most  # rows
        self.full = False  # for more rows, or bits of keys
        self.keys = np.empty(0, dtype=np.int64)
        self.real = np.zeros((0, HEAD + len(self._names)))
        self.index: Ints | None = None  # in compiled loops

    @property
    def counts(self) -> Ints:
        """The columns of whole numbers."""
        return self.real.view(np.int64)

    def numbers_of(self, number: Ints) -> Ints:
        """Numbers of rows in this table."""
        return self._numbering.without_folds(number) if self.merges_folds else number

    def make_rows(self, keys: Ints) -> bool:
        """Make rows for all keys; return False if these are too many."""
        self.keys = keys
        self.full = len(keys) > self._most
        if not self.full and len(keys) > len(self.real):
            # memory that is not used yet costs nothing
            rows = max(len(keys), 2 * len(self.real))
            real = np.zeros((rows, self.real.shape[1]))
            real[: len(self.real)] = self.real
            self.real = real
        return not self.full

    def add(self, number: Ints, items: Floats) -> None:
        """Add items: numbers (n,); scores, outcomes, sizes and any weights, (3 or 4, n)."""
        if int(self.numbers_of(number).max()) >> (_KEY_BITS - self.bits):
            self.full = True
            if self._most < np.inf:
                return
            raise StatisticsError(
                "there are too many groups, folds and bins for one table: ask for fewer bins, or "
                "summarize the groups one by one"
            )
        _add(number, items, self)

    def rows(self) -> ColumnDict:
        """All rows: their keys, and sums."""
        key = self.keys
        n, sum_y = self.counts[: len(key), :HEAD].T
        columns = {"n": n, "sum_y": sum_y}
        columns |= zip(self._names, self.real[: len(key), HEAD:].T, strict=True)
        for name, cell in reversed([*self.cells.items()]):
            columns[name] = (key & ((1 << cell.bits) - 1)) + cell.low
            key = key >> cell.bits
        folds = 1 if self.merges_folds else self._numbering.folds
        return self._numbering._replace(folds=folds).keyed(columns | {"number": key})


def part_sums(
    outcome: Outcome, number: Ints, items: Floats, size_limit: float | None
) -> ColumnDict:
    """Sums over runs of items with equal numbers, and the ``number`` of each run."""
    starts = np.flatnonzero(np.diff(number, prepend=-1))
    columns = dict(zip(outcome.bounds, items[:UNWEIGHTED], strict=True))
    weights = list(items[UNWEIGHTED:])
    n = np.diff(starts, append=len(number))
    if weights:
        n = np.add.reduceat(weights[0].astype(np.int64), starts)
    sums = {
        "number": number[starts],
        "n": n,
        "score_min": np.minimum.reduceat(items[0], starts),
        "score_max": np.maximum.reduceat(items[0], starts),
    }
    for name in set(outcome.sums("part")) - sums.keys():
        terms = [summand(name, outcome, columns, size_limit), *weights]
        total = np.add.reduceat(reduce(operator.mul, terms), starts)
        sums[name] = total.astype(np.int64) if name in outcome.integers else total
    return sums


def _counted(keys: NDArray[Any], weight: Floats | None) -> tuple[NDArray[Any], Ints]:
    """Distinct keys, with the number of their items."""
    if keys.dtype.kind == "i" and len(keys) > np.ptp(keys):  # no need to sort
        lowest = keys.min()
        place = keys - lowest
        present = np.flatnonzero(np.bincount(place))
        n = np.bincount(place, weight)[present]
        return present + lowest, n.astype(np.int64)
    if weight is None:
        return np.unique(keys, return_counts=True)
    key, place = np.unique(keys, return_inverse=True)
    return key, np.bincount(place, weight).astype(np.int64)


@compiled(_ENOUGH)
def in_order(
    part: Ints, items: Sequence[Floats], lookup: Lookup, bins: int
) -> tuple[Ints, Floats]:
    """Row numbers (part times bins plus bin) and the items, nearly sorted by these numbers."""
    edges = lookup.edges[: len(lookup.edges) - lookup.most]
    number = np.searchsorted(edges, items[0], side="right") + part * bins
    order = np.argsort(number >> bucket_shift(number), kind="stable")
    return number[order], np.stack(items)[:, order]


def bucket_shift(number: Ints) -> int:
    """Bits of row numbers below those that order items."""
    return max(int(number.max()).bit_length() - _BUCKET_BITS, 0)
