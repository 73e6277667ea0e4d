"""Passes over files and tables in memory: DuckDB reads, compiled kernels validate and sum."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._lib.arrays import Floats, Ints
from ..._lib.errors import ItemsError
from ..._lib.progress import phase
from ..binning import FOLD_PRIME, MOST_FOLDS, Folds, Grid, Weights, fold_of_id, whole_unit
from ..groups import MARK, group_roles, is_group, joined
from ..items import Items
from ..kernels import KERNELS
from ..sums import GridWeights, Sums, ends, fold_of_items, warm_up
from .item_files import Files, check_files
from .sources import batches, kind_of, open_table, readable
from .validation import (
    Tables,
    Totals,
    check_spread,
    check_total,
    check_types,
    crossed,
    numbers,
    scan,
)

_BLOCK = 1 << 21  # items per call of a kernel
_READ = 50_000  # items per read; more would not fit in the processor's caches


class Streamed:
    """Passes over items in files or memory."""

    def __init__(self, items: Items, folds: Folds, progress: bool) -> None:
        self._folds, self._progress = folds, progress
        # ids and folds that are not used are not read, whatever their type
        self._items = replace(items, id=None, fold=None) if folds.by == "none" else items
        self._named = list(items.roles.values())
        self._kernel = KERNELS[items.kind]
        self._outcome = self._kernel.outcome
        self._seen: int | None = None
        self._codes: dict[str, int] = {}
        self._crossings = max(len(group_roles(self._items.roles)), 1) - 1
        self._zeros = np.zeros(0, dtype=np.int64)
        with phase("compiling sums (once on a machine)", enabled=progress):
            warm_up(self._kernel)

    def check(self) -> None:
        """Refuse items that are not valid."""
        scan(self._items, self._progress)

    def weights(self, grid: Grid, low: float, high: float, weight: str | None) -> Weights:
        """Weights of scores on a grid; only the needed columns are read."""
        first = GridWeights(grid, low, high)
        whole = weight is None or self._outcome.bounds[weight].whole
        unit = 1.0 if whole else self._unit(str(weight))
        n, total, least, most = 0, 0.0, np.inf, -np.inf
        roles = ("score",) if weight is None else ("score", weight)
        for columns in self._blocks("choosing bins", roles):
            valid, bottom, top = ends(columns["score"])
            values = None if weight is None else columns[weight]
            if not valid or (values is not None and not ends(values)[0]):
                self._refuse()
            n, least, most = n + len(columns["score"]), min(least, bottom), max(most, top)
            if values is None:
                first.add(columns["score"])
                continue
            total += float(values.sum()) if whole else 0.0
            check_total(self._items, total)
            first.add(columns["score"], np.floor(values / unit).astype(np.int64))
        if n == 0:
            self._refuse()
        self._seen = n
        return Weights(n, least, most, *first.weights())

    def _unit(self, role: str) -> float:
        """The unit in which amounts of a role are summed as whole numbers."""
        n, most = 0, 0.0
        for columns in self._blocks(f"looking at {role}s", (role,)):
            valid, low, high = ends(columns[role])
            if not valid or low < 0:
                self._refuse()
            n, most = n + len(columns[role]), max(most, high)
        return whole_unit(n, most)

    def tables(self, edges: Floats, most_joint: int) -> Tables:
        """Sums of all bins and cells of items, validated in the same pass."""
        sums = Sums(self._kernel, edges, self._folds.number, most_joint)
        totals: Totals | None = None
        for columns in self._blocks("summarizing items", tuple(self._items.roles)):
            score, outcome, size = (columns[role] for role in self._outcome.bounds)
            totals = self._totals(totals, score, outcome, size)
            check_spread(self._items, totals.farthest, most_joint)
            sums.add(score, outcome, size, self._parts(columns, len(score)))
        if totals is None or self._seen not in (None, totals.n):
            self._refuse()
        assert totals is not None
        labels = sorted(self._codes) or [""]
        order = np.argsort(np.argsort(list(self._codes))) if self._codes else np.zeros(1, np.int64)
        tables = {
            name: {**table, "group": order[table["group"]]} for name, table in sums.tables().items()
        }
        return Tables({"joint": {}, **tables}, tuple(labels), sums.coarse, totals)

    def _totals(self, before: Totals | None, *columns: Floats) -> Totals:
        """Totals with those of another block; a block that is not valid is refused."""
        valid, exact, real, absolute, sizes, low, high, far = self._kernel.totals(*columns)
        if not valid:
            self._refuse()
        # whole numbers of one block may overflow
        check_total(self._items, real + (float(before.outcome) if before else 0.0))
        total = int(exact) if self._outcome.exact else real
        found = Totals(len(columns[0]), total, absolute, sizes, low, high, far)
        return before + found if before else found

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

    def _blocks(self, title: str, roles: Sequence[str]) -> Iterator[dict[str, NDArray[Any]]]:
        """Columns of about a million items at a time, in arrays that are reused."""
        buffers: dict[str, NDArray[Any]] = {}
        filled = 0
        with (
            phase(title, total=self._rows, unit="items", enabled=self._progress) as running,
            readable(self._items.source),
        ):
            for batch in self._batches(roles):
                columns = self._plain(batch)
                if not buffers:
                    size = min(_BLOCK, max(self._rows, 1)) + _READ
                    buffers = {name: np.empty(size, v.dtype) for name, v in columns.items()}
                n = batch.num_rows
                for name, values in columns.items():
                    buffers[name][filled : filled + n] = values
                filled += n
                if filled >= _BLOCK:
                    yield {name: values[:filled] for name, values in buffers.items()}
                    running.advance(filled)
                    filled = 0
            if filled:
                yield {name: values[:filled] for name, values in buffers.items()}
                running.advance(filled)

    def _batches(self, roles: Sequence[str]) -> Iterator[Any]:
        """Record batches with a column for each role."""
        if kind_of(self._items.source) == "files" and self._files.form == "Parquet":
            yield from _parquet_batches(
                self._files.paths, {role: self._items.roles[role] for role in roles}
            )
            return
        names = dict.fromkeys("group" if is_group(role) else role for role in roles)
        yield from batches(self._table, list(names), size=_READ)

    def _plain(self, batch: Any) -> dict[str, NDArray[Any]]:
        """Columns of a batch; missing numbers become NaN, which the block's check detects."""
        columns = {}
        for name in batch.schema.names:
            values = batch.column(name)
            if name in ("group", "id") and values.null_count:
                self._refuse()
            if name == "group":
                values = self._coded(values)
            columns[name] = np.asarray(
                values if isinstance(values, np.ndarray) else values.to_numpy(zero_copy_only=False)
            )
        return columns

    def _coded(self, labels: Any) -> Ints:
        """Codes of group labels, in order of appearance."""
        encoded = labels.dictionary_encode()
        words = encoded.dictionary.to_pylist()
        if any(word.count(MARK) != self._crossings for word in words) and self._crossings:
            self._refuse()
        codes = np.array([self._codes.setdefault(w, len(self._codes)) for w in words], np.int64)
        return codes[encoded.indices.to_numpy()]

    def _parts(self, columns: dict[str, NDArray[Any]], n: int) -> Ints:
        """Code of each item's group times the number of folds, plus its fold."""
        folds = self._folds
        if folds.by == "none":
            if "group" in columns:
                return columns["group"]
            if len(self._zeros) < n:
                self._zeros = np.zeros(n, dtype=np.int64)
            return self._zeros[:n]
        if folds.by == "id":
            fold = fold_of_id(columns["id"], folds.number)
        elif folds.by == "item":
            fold = fold_of_items(columns["score"], columns[self._outcome.size], folds.number)
        else:
            given = columns["fold"]
            if not ((given >= 0) & (given < MOST_FOLDS) & (given == np.floor(given))).all():
                self._refuse()
            fold = given.astype(np.int64)
        return columns["group"] * folds.number + fold if "group" in columns else fold


def _parquet_batches(paths: Sequence[str], roles: Mapping[str, str]) -> Iterator[Any]:
    """Batches of Parquet files by Arrow's reader, which costs half of DuckDB's."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {
        role: pa.string() if is_group(role) else pa.int64() if role == "id" else pa.float64()
        for role in roles
    }
    names = list(roles.values())
    for path in paths:
        # pre-buffering would keep a whole file in memory
        with pq.ParquetFile(path, pre_buffer=False) as file:
            for batch in file.iter_batches(batch_size=_READ, columns=names):
                read = {role: _cast(batch[name], kinds[role]) for role, name in roles.items()}
                yield pa.RecordBatch.from_pydict(joined(read))


def _cast(values: Any, kind: Any) -> Any:
    """Values cast to a role's type; ids that are too large are reduced modulo the folds' prime."""
    import pyarrow as pa

    if kind == pa.int64() and values.type == pa.uint64():
        large = values.to_numpy(zero_copy_only=False)
        if values.null_count == 0:
            values = pa.array((large % np.uint64(FOLD_PRIME)).astype(np.int64))
    return values.cast(kind, safe=False)
