"""Passes over items in files or in memory: blocks of Arrow batches, summed in threads."""

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._lib.arrays import Floats, Ints
from ..._lib.errors import ItemsError
from ..._lib.progress import phase
from ..._lib.threads import ordered_map
from ...families.outcomes import OUTCOMES, Outcome
from ..binning import Columns, Grid, Joint, Weights, added
from ..days import is_day
from ..folds import MOST_FOLDS, Folds, block_of_labels, fold_of, number_of_label
from ..formulas import FOLD_PRIME, without_small
from ..groups import CROSS, MARK, is_label, joined, key_roles
from ..items import Items
from ..sums import Sums
from .item_files import Files, check_files
from .piles import Pile
from .sources import batches, in_memory, kind_of, open_table, readable
from .validation import (
    Tables,
    Totals,
    check_clusters,
    check_total,
    check_types,
    fits_joint,
    near_whole,
    scan,
)

_BLOCK = 1_000_000  # items of a block, or a few more
_LARGEST = 4 * _BLOCK  # rows of a row group beyond which its file is read in order, by one thread
_MOST_SCORES = 1 << 20  # different scores whose items are counted at once
_READ = 50_000  # items per read
_TEXT = ("group", "id", "cluster")


class Local:
    """Passes over items in files or in memory."""

    def __init__(self, items: Items, folds: Folds, progress: bool) -> None:
        self._folds, self._progress = folds, progress
        # ids and folds that are not used are not read, whatever their type
        unused = folds.by in ("none", "cluster")
        self._items = replace(items, id=None, fold=None) if unused else items
        self._outcome = OUTCOMES[items.kind]
        self._seen: int | None = None
        self._codes: dict[str, int] = {}
        self._lock = threading.Lock()  # of the codes
        table = open_table(items.source, list(self._items.roles.values()))
        with readable():
            check_types(self._items, table)

    def check(self) -> None:
        """Refuse items that are not valid."""
        scan(self._items, self._progress, folds=True)

    # --- passes ----------------------------------------------------------------------------------

    def weights(self, grid: Grid, low: float, high: float, weight: str | None) -> Weights:
        """Items, and sums of the role `weight`, on a grid; only the needed columns are read."""
        bounds = self._outcome.bounds
        roles = ("score",) if weight is None else ("score", weight)

        def count(block: Mapping[str, Any]) -> tuple[tuple[float, float], Columns]:
            if not all(bounds[role].hold(block[role]) for role in roles):
                raise _NotValidError
            score = block["score"]
            cell = grid.cell(score if low == -math.inf else np.clip(score, low, high))
            if weight is None:
                cell, n = np.unique(cell, return_counts=True)
                rows: Columns = {"cell": cell, "n": n, "total": n}
            else:
                whole = block[weight].astype(np.int64)
                rows = {"cell": cell, "n": np.ones_like(whole), "total": whole}
                rows = added(rows, ("cell",), ("n", "total"))
            return (float(score.min()), float(score.max())), rows

        pile = Pile(("cell",), ("n", "total"))
        ends = []
        for own, rows in self._mapped("choosing bins", roles, count):
            ends.append(own)
            pile.add(rows)
        if not ends:
            self._refuse()
        total = pile.total()
        check_total(self._items, float(total["total"].sum(dtype=float)))
        self._seen = int(total["n"].sum())
        score_min, score_max = min(ends)[0], max(most for _, most in ends)
        return Weights(self._seen, score_min, score_max, total["cell"], total["n"], total["total"])

    def repeated(self, grid: Grid, cells: Ints, least: int) -> dict[float, int]:
        """Scores in some cells that at least so many items share, with their numbers of items."""
        score, n = np.empty(0), np.empty(0, dtype=np.int64)

        def count(block: Mapping[str, Any]) -> tuple[Floats, Ints]:
            values = block["score"]
            return np.unique(values[np.isin(grid.cell(values), cells)], return_counts=True)

        for values, number in self._mapped("looking at repeated scores", ("score",), count):
            score, place = np.unique(np.concatenate([score, values]), return_inverse=True)
            n = np.bincount(place, np.concatenate([n, number]), len(score)).astype(np.int64)
            if len(score) > _MOST_SCORES:  # a score with a share of the items stays
                kept = n > n.sum() // _MOST_SCORES
                score, n = score[kept], n[kept]
        many = n >= least
        return dict(zip(score[many].tolist(), n[many].tolist(), strict=True))

    def tables(self, edges: Floats, joint: Joint) -> Tables:
        """Sums of all bins and cells of items, validated in the same pass."""
        if self._folds.by == "cluster":
            check_clusters(self._items)
        sums = Sums(self._outcome, edges, self._folds.number, joint)
        totals: Totals | None = None

        def prepare(block: Mapping[str, Any]) -> tuple[Totals, tuple[Ints, Floats]]:
            score, outcome, size = (block[role] for role in self._outcome.bounds)
            if not self._outcome.validity.are_valid(score, outcome, size):
                raise _NotValidError
            own = _totals(score, outcome, size, self._outcome)
            return own, sums.ordered(score, outcome, size, self._parts(block))

        for own, ordered in self._mapped("summarizing items", tuple(self._items.roles), prepare):
            totals = totals + own if totals else own
            check_total(self._items, float(totals.outcome))
            if not fits_joint(self._items, totals.farthest, joint):
                sums.drop_joint()
            sums.add(*ordered)
        if totals is None or self._seen not in (None, totals.n):
            self._refuse()
        assert totals is not None
        labels = sorted(self._codes) or [""]
        order = np.argsort(np.argsort(list(self._codes))) if self._codes else np.zeros(1, np.int64)
        tables = {
            name: {**table, "group": order[table["group"]]} if table else table
            for name, table in sums.tables().items()
        }
        return Tables(tables, tuple(labels), sums.coarse, totals)

    def _parts(self, block: Mapping[str, Any]) -> Ints:
        """Code of each item's group times the number of folds, plus its fold."""
        group = block.get("group", np.zeros(len(block["score"]), dtype=np.int64))
        if self._folds.by == "none":
            return group
        if self._folds.by == "column":
            fold = block["fold"]
            if not ((fold >= 0) & (fold < MOST_FOLDS) & (fold == np.floor(fold))).all():
                raise _NotValidError
        fold = fold_of(self._folds, block, self._outcome.size)
        return group * self._folds.number + np.asarray(fold).astype(np.int64)

    # --- blocks ----------------------------------------------------------------------------------

    def _refuse(self) -> None:
        """Raise the full error about the items."""
        self.check()
        raise ItemsError("the items changed while they were read: try again")

    def _mapped[Result](
        self, title: str, roles: Sequence[str], work: Callable[[Mapping[str, Any]], Result]
    ) -> Iterator[Result]:
        """Results of work on blocks of about a million items, in order; threads read and work."""

        def run(piece: _Piece) -> tuple[int, Result]:
            return piece.rows, work(self._read(piece, roles))

        with (
            phase(title, unit="items", enabled=self._progress) as running,
            readable(self._items.source),
        ):
            try:
                for rows, result in ordered_map(run, self._pieces(roles)):
                    yield result
                    running.advance(rows)
            except _NotValidError:
                self._refuse()

    @cached_property
    def _files(self) -> Files:
        return check_files(self._items.source, list(self._items.roles.values()))

    def _pieces(self, roles: Sequence[str]) -> Iterator["_Piece"]:
        """Items cut into blocks by their place, not read yet where threads can read them."""
        names = [column for role, column in self._items.roles.items() if role in roles]
        source = self._items.source
        if kind_of(source) != "files":
            table = in_memory(source, names)
            for start in range(0, table.num_rows, _BLOCK):
                block = table.slice(start, _BLOCK)
                yield _Piece(block.num_rows, partial(block.to_batches, max_chunksize=_READ))
        elif self._files.form == "Parquet":
            yield from _parquet_pieces(self._files.paths, names)
        else:
            yield from _in_pieces(batches(open_table(source, names), size=_READ))

    def _read(self, piece: "_Piece", roles: Sequence[str]) -> dict[str, NDArray[Any]]:
        """Columns of a block by role; missing numbers are NaN, which the block's check finds."""
        read = {role: name for role, name in self._items.roles.items() if role in roles}
        parts: dict[str, list[NDArray[Any]]] = {}
        for batch in piece.batches():
            typed = {role: _cast(batch[name], role) for role, name in read.items()}
            for role, values in joined(typed).items():
                if role in _TEXT and values.null_count:
                    raise _NotValidError
                parts.setdefault(role, []).append(self._numbers(role, values))
        return {role: np.concatenate(some) for role, some in parts.items()}

    def _numbers(self, role: str, values: Any) -> NDArray[Any]:
        """Numbers of an Arrow array; of labels codes of groups, and blocks of clusters."""
        import pyarrow as pa

        if not pa.types.is_string(values.type):
            return near_whole(role, np.asarray(values.to_numpy(zero_copy_only=False)))
        encoded = values.dictionary_encode()
        words = encoded.dictionary.to_pylist()
        if role == "id":
            numbers = np.fromiter(map(number_of_label, words), np.int64, len(words))
        elif role == "cluster":
            numbers = block_of_labels(words)
        else:
            self._check_labels(words)
            with self._lock:
                codes = [self._codes.setdefault(word, len(self._codes)) for word in words]
            numbers = np.array(codes, dtype=np.int64)
        return np.asarray(numbers[encoded.indices.to_numpy()])

    def _check_labels(self, words: Sequence[str]) -> None:
        crossings = len(key_roles(self._items.roles)) - 1
        if crossings and any(word.count(MARK) != crossings for word in words):
            raise _NotValidError
        if self._items.date and not all(is_day(word.partition(CROSS)[0]) for word in words):
            raise _NotValidError


class _NotValidError(Exception):
    """A block of items is not valid; a scan of all items says why."""


def _totals(score: Floats, y: Floats, x: Floats, outcome: Outcome) -> Totals:
    """Totals of a block, apart from its sums by bin."""
    if least := outcome.validity.outcome.negligible:
        y = without_small(y, least)
    far = float((np.abs(y) / x).max()) if np.isfinite(outcome.farthest) else 0.0
    total = y.astype(np.int64).sum() if outcome.whole else y.sum()
    absolute = float(total if outcome.whole else np.abs(y).sum())
    sizes = float(x.sum() if outcome.size_power == 1 else (x * x).sum())
    ends = float(score.min()), float(score.max())
    return Totals(len(score), total.item(), absolute, sizes, *ends, far)


# --- Arrow batches -------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Piece:
    """Items of a block before they are read."""

    rows: int
    batches: Callable[[], Iterable[Any]]  # Arrow record batches with the items' columns


def _in_pieces(read: Iterable[Any]) -> Iterator[_Piece]:
    """Blocks of batches that one thread reads."""
    some: list[Any] = []
    rows = 0
    for batch in read:
        some.append(batch)
        rows += batch.num_rows
        if rows >= _BLOCK:
            yield _Piece(rows, some.copy)
            some, rows = [], 0
    if rows:
        yield _Piece(rows, some.copy)


def _parquet_pieces(paths: Sequence[str], names: Sequence[str]) -> Iterator[_Piece]:
    """Blocks of whole row groups of Parquet files, of one or several files."""
    import pyarrow.parquet as pq

    some: list[tuple[str, int]] = []
    rows = 0
    for path in paths:
        with pq.ParquetFile(path, pre_buffer=False) as file:
            sizes = [file.metadata.row_group(k).num_rows for k in range(file.num_row_groups)]
        if max(sizes, default=0) > _LARGEST:
            if rows:
                yield _Piece(rows, partial(_parquet_batches, some, names))
            some, rows = [], 0
            yield from _in_pieces(_parquet_batches([(path, k) for k in range(len(sizes))], names))
            continue
        for k, size in enumerate(sizes):
            some.append((path, k))
            rows += size
            if rows >= _BLOCK:
                yield _Piece(rows, partial(_parquet_batches, some, names))
                some, rows = [], 0
    if rows:
        yield _Piece(rows, partial(_parquet_batches, some, names))


def _parquet_batches(places: Iterable[tuple[str, int]], names: Sequence[str]) -> Iterator[Any]:
    """Batches of row groups of Parquet files by Arrow's reader, which costs half of DuckDB's."""
    import pyarrow.parquet as pq

    for path, of_path in groupby(places, key=itemgetter(0)):
        # pre-buffering would keep a whole file in memory
        with pq.ParquetFile(path, pre_buffer=False) as file:
            yield from file.iter_batches(
                batch_size=_READ,
                columns=list(names),
                row_groups=[k for _, k in of_path],
                use_threads=False,  # there is a thread for each block
            )


def _cast(values: Any, role: str) -> Any:
    """Values cast to a role's type; ids that are too large are reduced modulo the folds' prime."""
    import pyarrow as pa

    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if is_label(role):
        if pa.types.is_temporal(values.type):
            values = values.cast(pa.date32(), safe=False)
        return values.cast(pa.string())
    if role != "id":
        if pa.types.is_decimal(values.type):  # which Arrow's own cast rounds twice
            values = values.cast(pa.string())
        return values.cast(pa.float64(), safe=False)
    if pa.types.is_large_string(values.type) or pa.types.is_string_view(values.type):
        return values.cast(pa.string())
    if values.type == pa.uint64() and values.null_count == 0:
        large = values.to_numpy(zero_copy_only=False)
        return pa.array((large % np.uint64(FOLD_PRIME)).astype(np.int64))
    return values if pa.types.is_string(values.type) else values.cast(pa.int64(), safe=False)
