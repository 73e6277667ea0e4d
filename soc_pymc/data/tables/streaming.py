"""Passes over files and tables in memory: DuckDB reads, compiled kernels validate and sum."""

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import groupby
from operator import itemgetter
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._lib.arrays import Floats, Ints
from ..._lib.errors import ItemsError
from ..._lib.progress import phase
from ..._lib.threads import ordered_map
from ..binning import (
    FOLD_PRIME,
    MOST_FOLDS,
    Folds,
    Grid,
    Joint,
    Levels,
    Weights,
    block_of_labels,
    fold_of_id,
    whole_unit,
)
from ..days import is_day
from ..groups import CROSS, MARK, is_key, is_label, joined, key_roles
from ..items import Items
from ..kernels import KERNELS
from ..sums import NO_PARTS, GridWeights, Sorted, Sums, ends, fold_of_items, warm_up
from .item_files import Files, check_files
from .sources import batches, kind_of, open_table, readable
from .validation import (
    Tables,
    Totals,
    check_clusters,
    check_total,
    check_types,
    crossed,
    fits_joint,
    near_whole,
    numbers,
    scan,
)

_BLOCK = 1_000_000  # items of a block, or a few more
_LARGEST = 4 * _BLOCK  # rows of a row group beyond which its file is read in order, by one thread
_MOST_SCORES = 1 << 20  # different scores whose items are counted at once
_READ = 50_000  # items per read; more would not fit in the processor's caches


class Streamed:
    """Passes over items in files or memory."""

    def __init__(self, items: Items, folds: Folds, progress: bool) -> None:
        self._folds, self._progress = folds, progress
        # ids and folds that are not used are not read, whatever their type
        unused = folds.by in ("none", "cluster")
        self._items = replace(items, id=None, fold=None) if unused else items
        self._named = list(items.roles.values())
        self._kernel = KERNELS[items.kind]
        self._outcome = self._kernel.outcome
        self._seen: int | None = None
        self._codes: dict[str, int] = {}
        self._clusters = Levels()
        self._crossings = max(len(key_roles(self._items.roles)), 1) - 1
        self._work = threading.local()  # arrays that a thread reuses
        with phase("compiling sums (once on a machine)", enabled=progress):
            warm_up(self._kernel)

    def check(self) -> None:
        """Refuse items that are not valid."""
        scan(self._items, self._progress, folds=True)

    def weights(self, grid: Grid, low: float, high: float, weight: str | None) -> Weights:
        """Weights of scores on a grid; only the needed columns are read."""
        whole = weight is None or self._outcome.bounds[weight].whole
        unit = 1.0 if whole else self._unit(str(weight))
        roles = ("score",) if weight is None else ("score", weight)
        idle: SimpleQueue[GridWeights] = SimpleQueue()  # whole numbers add up in any order

        def count(block: _Block) -> tuple[int, float, float, float]:
            score, values = block.columns["score"], block.columns[roles[-1]]
            valid, least, most = ends(score)
            if not valid or not (weight is None or ends(values)[0]):
                raise _NotValidError
            total = float(values.sum()) if whole and weight is not None else 0.0
            check_total(self._items, total)
            try:
                cells = idle.get_nowait()
            except Empty:
                cells = GridWeights(grid, low, high)
            units = None if weight is None else np.floor(values / unit).astype(np.int64)
            cells.add(score, units)
            idle.put(cells)
            return len(score), total, least, most

        found = list(self._mapped("choosing bins", roles, count))
        if not found:
            self._refuse()
        n, totals, least, most = zip(*found, strict=True)
        check_total(self._items, math.fsum(totals))
        self._seen = sum(n)
        cells = idle.get()
        while not idle.empty():
            cells += idle.get()
        return Weights(self._seen, min(least), max(most), *cells.weights())

    def repeated(self, grid: Grid, cells: Ints, least: int) -> dict[float, int]:
        """Scores in some cells that at least so many items share, with their numbers of items."""
        score, n = np.empty(0), np.empty(0, dtype=np.int64)

        def count(block: _Block) -> tuple[Floats, Ints]:
            own = block.columns["score"]
            return np.unique(own[np.isin(grid.cell(own), cells)], return_counts=True)

        for own, of_block in self._mapped("looking at repeated scores", ("score",), count):
            score, at = np.unique(np.concatenate([score, own]), return_inverse=True)
            n = np.bincount(at, np.concatenate([n, of_block]), len(score)).astype(np.int64)
            if len(score) > _MOST_SCORES:  # a score with a share of the items stays
                kept = n > n.sum() // _MOST_SCORES
                score, n = score[kept], n[kept]
        many = n >= least
        return dict(zip(score[many].tolist(), n[many].tolist(), strict=True))

    def _unit(self, role: str) -> float:
        """The unit in which amounts of a role are summed as whole numbers."""

        def largest(block: _Block) -> tuple[int, float]:
            valid, low, high = ends(block.columns[role])
            if not valid or low < 0:
                raise _NotValidError
            return len(block.columns[role]), high

        found = list(self._mapped(f"looking at {role}s", (role,), largest))
        n, most = sum(n for n, _ in found), max((high for _, high in found), default=0.0)
        return whole_unit(n, most)

    def tables(self, edges: Floats, joint: Joint) -> Tables:
        """Sums of all bins and cells of items, validated in the same pass."""
        sums = Sums(self._kernel, edges, self._folds.number, joint)
        totals: Totals | None = None

        def prepare(block: _Block) -> tuple[_Block, Totals, Sorted]:
            score, outcome, size = (block.columns[role] for role in self._outcome.bounds)
            own = self._totals(score, outcome, size)
            return block, own, sums.sort(score, outcome, size, self._parts(block.columns))

        roles = tuple(self._items.roles)
        for block, own, items in self._mapped("summarizing items", roles, prepare):
            totals = totals + own if totals else own
            check_total(self._items, float(totals.outcome))
            if not fits_joint(self._items, totals.farthest, joint):
                sums.drop_joint()
            for words, n in block.clusters:
                self._clusters.add(words, n)
            codes = [self._codes.setdefault(label, len(self._codes)) for label in block.labels]
            sums.add(items, np.array(codes or [0]))
        if totals is None or self._seen not in (None, totals.n):
            self._refuse()
        assert totals is not None
        if self._folds.by == "cluster":
            check_clusters(self._items, self._clusters.mean_size, totals.n)
        labels = sorted(self._codes) or [""]
        order = np.argsort(np.argsort(list(self._codes))) if self._codes else np.zeros(1, np.int64)
        tables = {
            name: {**table, "group": order[table["group"]]} for name, table in sums.tables().items()
        }
        return Tables({"joint": {}, **tables}, tuple(labels), sums.coarse, totals)

    def _totals(self, *columns: Floats) -> Totals:
        """Totals of a block, which must be valid."""
        valid, exact, real, absolute, sizes, low, high, far = self._kernel.totals(*columns)
        if not valid:
            raise _NotValidError
        check_total(self._items, real)  # whole numbers may overflow
        total = int(exact) if self._outcome.exact else real
        return Totals(len(columns[0]), total, absolute, sizes, low, high, far)

    @cached_property
    def _table(self) -> Any:
        table = open_table(self._items.source, self._named)  # checks that all named columns exist
        with readable():
            check_types(self._items, table)
        named = {role: table[name] for role, name in self._items.roles.items()}
        return table.select(**crossed(numbers(named)))

    @cached_property
    def _files(self) -> Files:
        return check_files(self._items.source, self._named)

    @cached_property
    def _rows(self) -> int:
        with readable():
            return int(self._table.count().to_pyarrow().as_py())

    def _refuse(self) -> None:
        """Raise the full error about the items."""
        self.check()
        raise ItemsError("the items changed while they were read: try again")

    def _mapped[Result](
        self, title: str, roles: Sequence[str], work: Callable[["_Block"], Result]
    ) -> Iterator[Result]:
        """Results of work on blocks of about a million items, in order; threads read and work."""

        def run(piece: _Piece) -> tuple[int, Result]:
            block = self._read(piece)
            return piece.rows, work(block)

        with (
            phase(title, total=self._rows, unit="items", enabled=self._progress) as running,
            readable(self._items.source),
        ):
            try:
                for rows, result in ordered_map(run, self._pieces(roles)):
                    yield result
                    running.advance(rows)
            except _NotValidError:
                self._refuse()

    def _pieces(self, roles: Sequence[str]) -> Iterator["_Piece"]:
        """Items cut into blocks by their place, not read yet where threads can read them."""
        parquet = kind_of(self._items.source) == "files" and self._files.form == "Parquet"
        if parquet and self._folds.by != "text":  # of which the engine makes numbers
            named = {role: self._items.roles[role] for role in roles}
            yield from _parquet_pieces(self._files.paths, named)
            return
        names = dict.fromkeys("group" if is_key(role) else role for role in roles)
        yield from _in_pieces(batches(self._table, list(names), size=_READ))

    def _read(self, piece: "_Piece") -> "_Block":
        """Columns of a block, in arrays that the thread reuses.

        Missing numbers become NaN, which the block's check detects.
        """
        codes: dict[str, int] = {}
        clusters: list[tuple[list[str], Ints]] = []
        arrays: dict[str, NDArray[Any]] = self._work.__dict__
        own: NDArray[Any]
        filled = 0
        for batch in piece.batches():
            until = filled + batch.num_rows
            for name in batch.schema.names:
                values = batch.column(name)
                if name in ("group", "id", "cluster") and values.null_count:
                    raise _NotValidError
                if name == "group":
                    own = self._coded(values, codes)
                elif name == "cluster":
                    own = _blocked(values, clusters)
                else:
                    own = near_whole(name, np.asarray(values.to_numpy(zero_copy_only=False)))
                if name not in arrays or len(arrays[name]) < piece.rows:
                    arrays[name] = np.empty(piece.rows, own.dtype)
                arrays[name][filled:until] = own
            filled = until
        names = batch.schema.names
        return _Block({name: arrays[name][:filled] for name in names}, list(codes), clusters)

    def _coded(self, labels: Any, codes: dict[str, int]) -> Ints:
        """Codes of group labels, in order of appearance in the block."""
        encoded = labels.dictionary_encode()
        words = encoded.dictionary.to_pylist()
        if any(word.count(MARK) != self._crossings for word in words) and self._crossings:
            raise _NotValidError
        if self._items.date and not all(is_day(word.partition(CROSS)[0]) for word in words):
            raise _NotValidError
        own = np.array([codes.setdefault(w, len(codes)) for w in words], np.int64)
        return own[encoded.indices.to_numpy()]

    def _parts(self, columns: Mapping[str, NDArray[Any]]) -> Ints:
        """Code of each item's group times the number of folds, plus its fold."""
        folds = self._folds
        if folds.by == "none":
            return columns.get("group", NO_PARTS)
        if folds.of_ids:
            fold = fold_of_id(columns["id"], folds.number)
        elif folds.by == "item":
            fold = fold_of_items(columns["score"], columns[self._outcome.size], folds.number)
        elif folds.by == "cluster":
            fold = columns["cluster"]
        else:
            given = columns["fold"]
            if not ((given >= 0) & (given < MOST_FOLDS) & (given == np.floor(given))).all():
                raise _NotValidError
            fold = given.astype(np.int64)
        return columns["group"] * folds.number + fold if "group" in columns else fold


# --- blocks --------------------------------------------------------------------------------------


class _NotValidError(Exception):
    """A block of items is not valid; a scan of all items says why."""


@dataclass(frozen=True)
class _Piece:
    """Items of a block before they are read."""

    rows: int
    batches: Callable[[], Iterable[Any]]  # Arrow record batches with a column for each role


@dataclass(frozen=True)
class _Block:
    """Items of a block."""

    columns: Mapping[str, NDArray[Any]]
    labels: Sequence[str]  # of the groups, by the block's own codes
    clusters: Sequence[tuple[Sequence[str], Ints]]  # labels of clusters and their items


def _blocked(labels: Any, found: list[tuple[list[str], Ints]]) -> Ints:
    """Blocks of the labels of clusters, which are added to those found."""
    encoded = labels.dictionary_encode()
    words, at = encoded.dictionary.to_pylist(), encoded.indices.to_numpy()
    found.append((words, np.bincount(at, minlength=len(words))))
    return block_of_labels(words)[at]


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


def _parquet_pieces(paths: Sequence[str], roles: Mapping[str, str]) -> Iterator[_Piece]:
    """Blocks of whole row groups of Parquet files, of one or several files."""
    import pyarrow.parquet as pq

    some: list[tuple[str, int]] = []
    rows = 0
    for path in paths:
        with pq.ParquetFile(path, pre_buffer=False) as file:
            sizes = [file.metadata.row_group(k).num_rows for k in range(file.num_row_groups)]
        if max(sizes, default=0) > _LARGEST:
            if rows:
                yield _Piece(rows, partial(_parquet_batches, some, roles))
            some, rows = [], 0
            yield from _in_pieces(_parquet_batches([(path, k) for k in range(len(sizes))], roles))
            continue
        for k, size in enumerate(sizes):
            some.append((path, k))
            rows += size
            if rows >= _BLOCK:
                yield _Piece(rows, partial(_parquet_batches, some, roles))
                some, rows = [], 0
    if rows:
        yield _Piece(rows, partial(_parquet_batches, some, roles))


def _parquet_batches(places: Iterable[tuple[str, int]], roles: Mapping[str, str]) -> Iterator[Any]:
    """Batches of row groups of Parquet files by Arrow's reader, which costs half of DuckDB's."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {
        role: pa.string() if is_label(role) else pa.int64() if role == "id" else pa.float64()
        for role in roles
    }
    names = list(roles.values())
    for path, of_path in groupby(places, key=itemgetter(0)):
        # pre-buffering would keep a whole file in memory
        with pq.ParquetFile(path, pre_buffer=False) as file:
            for batch in file.iter_batches(
                batch_size=_READ,
                columns=names,
                row_groups=[k for _, k in of_path],
                use_threads=False,  # there is a thread for each block
            ):
                read = {role: _cast(batch[name], kinds[role]) for role, name in roles.items()}
                yield pa.RecordBatch.from_pydict(joined(read))


def _cast(values: Any, kind: Any) -> Any:
    """Values cast to a role's type; ids that are too large are reduced modulo the folds' prime."""
    import pyarrow as pa

    if kind == pa.string() and pa.types.is_temporal(values.type):
        values = values.cast(pa.date32(), safe=False)
    if kind == pa.int64() and values.type == pa.uint64():
        large = values.to_numpy(zero_copy_only=False)
        if values.null_count == 0:
            values = pa.array((large % np.uint64(FOLD_PRIME)).astype(np.int64))
    return values.cast(kind, safe=False)
