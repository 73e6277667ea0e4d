"""Passes over files and tables in memory: DuckDB reads, compiled kernels validate and add up."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..accumulate import FirstLook, Sums, fold_of_items, totals, warm_up
from ..binning import Grid, fold_of_id
from ..errors import ItemsError
from ..items import PoissonItems
from ..progress import phase
from .reading import MOST_FOLDS, Folds, Tables, Totals, exposure_unit
from .scanning import check_total, check_types, numbers, scan
from .sources import batches, check_files, kind_of, open_table, readable

__all__ = ["Streamed"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_BLOCK = 1 << 20  # items that kernels get at once
_READ = 50_000  # items read at once; more would leave the processor's caches


@dataclass(frozen=True)
class _Block:
    score: Floats
    count: Floats
    exposure: Floats
    part: Ints  # code of the group times folds plus fold


class _Tally:
    """Totals of valid items, block by block."""

    def __init__(self) -> None:
        self.totals = Totals(0, 0, 0.0, np.inf, -np.inf, 0.0)

    def add(self, n: int, found: tuple[Any, ...]) -> float:
        """Add what `accumulate.totals` found; the sum of counts so far, as a real number."""
        _, whole, real, exposure, low, high, most = found
        t = self.totals
        self.totals = Totals(
            t.n + n,
            t.count + int(whole),
            t.exposure + exposure,
            min(t.score_min, low),
            max(t.score_max, high),
            max(t.exposure_max, most),
        )
        return float(t.count) + float(real)


class Streamed:
    """Passes over items that are not in an engine of the user's own."""

    def __init__(self, items: PoissonItems, folds: Folds, progress: bool) -> None:
        self._items, self._folds, self._progress = items, folds, progress
        self._totals: Totals | None = None
        self._codes: dict[str, int] = {}
        self._zeros = np.zeros(0, dtype=np.int64)
        with phase("compiling sums (once on a machine)", enabled=progress):
            warm_up()

    def look(self) -> Totals:
        """Validated totals of the items."""
        if self._totals is None:
            self._pass("checking items", lambda block: None)
        assert self._totals is not None
        return self._totals

    def weights(self, grid: Grid, low: float, high: float, weight: str | None) -> tuple[Ints, Ints]:
        """Occupied cells and their weights."""
        first = FirstLook(grid, low, high)
        unit = exposure_unit(self.look()) if weight == "exposure" else 1.0

        def add(block: _Block) -> None:
            if weight is None:
                first.add(block.score)
                return
            values = block.count if weight == "count" else np.floor(block.exposure / unit)
            first.add(block.score, values.astype(np.int64))

        self._pass("choosing bins", add)
        return first.weights()

    def tables(self, edges: Floats, most_joint: int) -> Tables:
        """Sums of all bins and cells."""
        sums = Sums(edges, self._folds.number, most_joint)
        self._pass("summarizing items", lambda b: sums.add(b.score, b.count, b.exposure, b.part))
        labels = sorted(self._codes) or [""]
        order = np.argsort(np.argsort(list(self._codes))) if self._codes else np.zeros(1, np.int64)
        found = {
            name: {**table, "group": order[table["group"]]} for name, table in sums.tables().items()
        }
        return Tables(
            **{"joint": {}, **found},
            labels=tuple(labels),
            coarse=sums.coarse,
            totals=self.look(),
        )

    @cached_property
    def _table(self) -> Any:
        table = open_table(self._items.source, list(self._items.roles.values()))
        with readable():
            check_types(self._items, table)
        return table.select(**numbers({r: table[name] for r, name in self._items.roles.items()}))

    @cached_property
    def _rows(self) -> int:
        with readable():
            return int(self._table.count().to_pyarrow().as_py())

    def _pass(self, title: str, use: Callable[[_Block], None]) -> None:
        """Give every block of valid items to `use`, and total them."""
        tally = _Tally()
        with phase(title, total=self._rows, unit="items", enabled=self._progress) as running:
            for block in self._blocks(tally):
                use(block)
                running.advance(len(block.score))
        if tally.totals.n == 0:
            self._refuse()
        self._totals = self._totals or tally.totals

    def _refuse(self) -> None:
        """Raise the error that says in full what is wrong with the items."""
        scan(self._items, self._progress)
        raise ItemsError("the items changed while they were read: try again")

    def _blocks(self, tally: _Tally) -> Iterator[_Block]:
        buffers: dict[str, NDArray[Any]] = {}
        filled = 0
        with readable(self._items.source):
            for batch in self._batches():
                columns = self._plain(batch)
                if not buffers:
                    buffers = {
                        name: np.empty(min(_BLOCK, max(self._rows, 1)) + _READ, values.dtype)
                        for name, values in columns.items()
                    }
                n = batch.num_rows
                for name, values in columns.items():
                    buffers[name][filled : filled + n] = values
                filled += n
                if filled >= _BLOCK:
                    yield self._block(buffers, filled, tally)
                    filled = 0
        if filled:
            yield self._block(buffers, filled, tally)

    def _batches(self) -> Iterator[Any]:
        """Record batches with a column for each role."""
        table = self._table
        if kind_of(self._items.source) == "files":
            files = check_files(self._items.source, list(self._items.roles.values()))
            if files.form == "Parquet":
                yield from _parquet_batches(files.paths, self._items.roles)
                return
        yield from batches(table, size=_READ)

    def _plain(self, batch: Any) -> dict[str, NDArray[Any]]:
        """Columns of a batch; missing numbers become NaN, which the block's check finds."""
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
        codes = np.array([self._codes.setdefault(w, len(self._codes)) for w in words], np.int64)
        return codes[encoded.indices.to_numpy()]

    def _block(self, buffers: dict[str, NDArray[Any]], n: int, tally: _Tally) -> _Block:
        """Valid items of filled buffers, with their folds; totalled."""
        columns = {name: values[:n] for name, values in buffers.items()}
        items = [columns[name] for name in ("score", "count", "exposure")]
        found = totals(*items)
        if not found[0]:
            self._refuse()
        check_total(self._items, tally.add(n, found))
        return _Block(items[0], items[1], items[2], self._parts(columns, n))

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
            fold = fold_of_items(columns["score"], columns["exposure"], folds.number)
        else:
            given = columns["fold"]
            if not ((given >= 0) & (given < MOST_FOLDS) & (given == np.floor(given))).all():
                self._refuse()
            fold = given.astype(np.int64)
        return columns["group"] * folds.number + fold if "group" in columns else fold


_ARROW = {"score": "float64", "count": "float64", "exposure": "float64", "fold": "float64"}


def _parquet_batches(paths: Sequence[str], roles: Mapping[str, str]) -> Iterator[Any]:
    """Batches of Parquet files by Arrow's own reader, which costs half of what DuckDB's does."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {role: pa.type_for_alias(_ARROW.get(role, "int64")) for role in roles}
    if "group" in roles:
        kinds["group"] = pa.string()
    names = list(roles.values())
    for path in paths:
        # with pre-buffering a whole file would be held in memory
        with pq.ParquetFile(path, pre_buffer=False) as file:
            for batch in file.iter_batches(batch_size=_READ, columns=names):
                yield pa.RecordBatch.from_arrays(
                    [batch[name].cast(kinds[r], safe=False) for r, name in roles.items()],
                    names=list(roles),
                )
