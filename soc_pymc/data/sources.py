"""Open sources of items (tables in memory, files, Ibis tables) and read them in order.

An Ibis table stays on its backend; a private in-memory DuckDB reads all others. Their rows need no
Ibis (`LocalTable`), which takes longer to import than reading some thousand items; formulas of
columns do (`open_table`).
"""

import csv
import difflib
import functools
import glob
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .._lib.arguments import ItemsError, path_of
from .._lib.reprs import counted
from .._lib.work import threads

if TYPE_CHECKING:
    import pyarrow as pa

# a table in memory, files, or an Ibis table
Source = Any
_KINDS = {
    "pandas.DataFrame": "pandas",
    "polars.DataFrame": "polars",
    "pyarrow.Table": "arrow",
    "ibis.Table": "ibis",
}
# sources that have no rows, or have them only once
_REFUSED = {
    "pyarrow.RecordBatchReader": "a RecordBatchReader can be read only once: give its read_all()",
    "polars.LazyFrame": "a LazyFrame has no rows yet: give its collect(), the files that it reads, "
    "or ibis.polars.connect({'items': frame}).table('items')",
}
_WORDS = ("str", "large_str", "varchar", "object", "cat", "dict", "enum", "bool")
_NUMBERS = (
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    "float",
    "double",
)
# bytes of files that are read once, and held for several passes
_MOST_HELD = 1 << 24
# bytes of a table of such files that is kept for the next reader
_MOST_KEPT = 1 << 26
# seconds after which a file that is written again has another time
_SETTLED = 2.0
# the files that were read last: their versions, and their table
_kept: dict[Any, "pa.Table"] = {}
_AT_ONCE = 1_000_000  # rows of a batch
_MOST_NAMES = 20  # in an error
# engines of Ibis that run in this process
_IN_PROCESS = ("duckdb", "polars", "datafusion")
# engines on which Ibis registers tables in memory as views
_VIEWS = ("duckdb", "pyspark")
_SMALL = "soc_small"  # in the names of tables of ours
_CHDB_TYPES = {
    "int64": "Int64",
    "int32": "Int32",
    "float": "Float32",
    "double": "Float64",
    "string": "String",
}
_NOT_ENGINES = {"soc_pymc", "numpy", "numba", *sys.stdlib_module_names}


def kind_of(source: Source) -> str:
    """Kind of a source of items or of its base class, also "stream" or "files"; refuses others."""
    names = source if isinstance(source, list | tuple) and source else [source]
    if all(isinstance(name, str | os.PathLike) for name in names):
        return "files"
    classes = type(source).__mro__
    name, *bases = (f"{c.__module__.partition('.')[0]}.{c.__name__}" for c in classes)
    for known in (name, *bases):
        if known in _KINDS:
            return _KINDS[known]
    if name in _REFUSED:
        raise ItemsError(_REFUSED[name])
    if hasattr(source, "__arrow_c_stream__"):
        return "stream"
    raise ItemsError(
        f"items cannot be read from a {name}; give a pandas, Polars or Arrow table (or another "
        "with __arrow_c_stream__), a path, glob or list of Parquet or CSV files, or an Ibis table"
    )


def is_remote(source: Source) -> bool:
    """Return True if rows of a source may have to cross a network to reach this process."""
    if kind_of(source) != "ibis":
        return False
    with readable(source):
        backend = source.get_backend()
        if backend.name != "duckdb":
            return backend.name not in _IN_PROCESS
        databases = backend.con.sql("SELECT type FROM duckdb_databases()")
        return ("motherduck",) in databases.fetchall()


def _types(source: Source) -> list[tuple[str, str]]:
    """Names and types of the columns of a source; no column of a table in memory is read."""
    kind = kind_of(source)
    if kind in ("pandas", "polars"):
        pairs = zip(source.columns, source.dtypes, strict=True)
    else:
        rows = source if kind == "arrow" else opened(source, hold=False)
        schema = schema_of(rows)
        pairs = zip(schema.names, schema.types, strict=True)
    return [(str(name), str(dtype).lower()) for name, dtype in pairs]


def column_names(source: Source) -> list[str]:
    """Names of the columns of a source."""
    return [name for name, _ in _types(source)]


def word_columns(source: Source) -> list[str]:
    """Names of columns of text, categories or truth values, unlike others in more than case."""
    return _columns_like(source, _WORDS)


def number_columns(source: Source) -> list[str]:
    """Names of columns of numbers, unlike others in more than case."""
    return _columns_like(source, _NUMBERS)


def _columns_like(source: Source, starts: tuple[str, ...]) -> list[str]:
    types = _types(source)
    times = Counter(name.lower() for name, _ in types)
    return [
        name
        for name, dtype in types
        if dtype.startswith(starts) and times[name.lower()] == 1
    ]


def chosen(available: Sequence[Any], columns: Sequence[str] | None) -> list[str]:
    """The selected columns, each exactly once; all if none are named."""
    names = [str(name) for name in available]
    selected = names if columns is None else list(columns)
    occurrences = Counter(names)
    problems = {}
    by_lower_case = {name.lower(): name for name in names}
    listed = ", ".join(map(repr, names[:_MOST_NAMES])) or "no columns"
    listed += ", ..." * (len(names) > _MOST_NAMES)
    for column in selected:
        times = occurrences[column]
        if times > 1:
            problems[column] = f"occurs {times} times: rename or drop the others"
        elif not times:
            close = difflib.get_close_matches(column.lower(), list(by_lower_case), n=1)
            hint = f": did you mean {by_lower_case[close[0]]!r}?" if close else ""
            problems[column] = f"is missing; the table has {listed}{hint}"
    if problems:
        lines = [f"column {name!r} {text}" for name, text in problems.items()]
        raise ItemsError("\n".join(lines))
    return selected


def connect() -> Any:
    """A new connection to this process's DuckDB in memory; its tables are its own."""
    import ibis

    return ibis.duckdb.from_connection(_cursor())


def _cursor() -> Any:
    return _database(os.getpid(), threads()).cursor()


@functools.cache
def _database(process: int, number_of_threads: int) -> Any:
    """DuckDB of a process, which takes 20 ms to start; a child by fork may not use its parent's."""
    import duckdb

    # cached contents would hide that a file was written again within a second
    config: dict[str, Any] = {
        "threads": number_of_threads,
        "enable_external_file_cache": False,
    }
    return duckdb.connect(config=config)


@dataclass(frozen=True, eq=False)
class LocalTable:
    """Columns of files or of a table in memory, in the order of their rows."""

    schema: "pa.Schema"
    # None for files that are read again by each pass
    held: "pa.Table | None"
    paths: Sequence[str] = ()

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return list(self.schema.names)

    def select(self, *columns: str) -> "LocalTable":
        """Some of the columns."""
        import pyarrow as pa

        schema = pa.schema([self.schema.field(name) for name in columns])
        held = None if self.held is None else self.held.select(columns)
        return LocalTable(schema, held, self.paths)

    def to_pyarrow_batches(self, chunk_size: int) -> "Iterator[pa.RecordBatch]":
        """Record batches of at most `chunk_size` rows."""
        if self.held is None:
            quoted = ['"' + name.replace('"', '""') + '"' for name in self.columns]
            yield from _arrow_reader(_query(", ".join(quoted), self.paths), chunk_size)
            return
        for start in range(0, self.held.num_rows, chunk_size):
            part = self.held.slice(start, chunk_size)
            yield from part.combine_chunks().to_batches()

    def to_pyarrow(self) -> "pa.Table":
        """All rows."""
        import pyarrow as pa

        if self.held is not None:
            return self.held
        return pa.Table.from_batches(self.to_pyarrow_batches(_AT_ONCE))


def _query(terms: str, paths: Sequence[str], limit: str = "") -> Any:
    """A cursor of DuckDB with terms of the rows of files."""
    options = "".join(
        f", {name} = {value}" for name, value in _options_of(paths).items()
    )
    text = f"SELECT {terms} FROM {_reader_of(paths)}(?{options}) {limit}"
    return _cursor().execute(text, [[glob.escape(path) for path in paths]])


def _arrow_reader(rows: Any, size: int) -> Any:
    """A reader of record batches of a cursor or relation of DuckDB, by its newest method."""
    names = ("to_arrow_reader", "fetch_arrow_reader", "fetch_record_batch")
    return next(getattr(rows, name) for name in names if hasattr(rows, name))(size)


def opened(
    source: Source, columns: Sequence[str] | None = None, hold: bool = True
) -> Any:
    """Some columns of a source, or all: of an Ibis table another one, else a `LocalTable`.

    Small files are read at once; without `hold` no file is read to its end before its rows are
    asked for.
    """
    if kind_of(source) == "ibis":
        return open_table(source, columns)
    with readable(source):
        if kind_of(source) != "files":
            table = _in_memory(source, columns)
            return LocalTable(table.schema, table)
        paths = paths_of(source)
        rows = _rows_of_files(paths, hold)
        if columns is not None and not set(columns) <= set(rows.columns):
            _refuse_uneven_lines(paths)
        return rows.select(*chosen(rows.columns, columns))


def _rows_of_files(paths: list[str], hold: bool) -> LocalTable:
    """All columns of files, which are not read again if they are those that were read last."""
    version = _version_of(paths)
    # another thread may clear it
    kept = _kept.get(version)
    if kept is not None:
        return LocalTable(kept.schema, kept, paths)
    if not hold or sum(map(os.path.getsize, paths)) > _MOST_HELD:
        schema = _arrow_reader(_query("*", paths, "LIMIT 0"), _AT_ONCE).schema
        return LocalTable(schema, None, paths)
    table = _arrow_reader(_query("*", paths), _AT_ONCE).read_all()
    if version is not None and table.nbytes <= _MOST_KEPT:
        _kept.clear()
        _kept[version] = table
    return LocalTable(table.schema, table, paths)


def _version_of(paths: list[str]) -> Any:
    """A key that changes when files are written again; None if one was written just now."""
    files = [os.stat(path) for path in paths]
    newest = max(max(file.st_mtime, file.st_ctime) for file in files)
    if time.time() - newest < _SETTLED:
        return None
    times = [(file.st_mtime_ns, file.st_ctime_ns) for file in files]
    sizes = [(file.st_ino, file.st_size) for file in files]
    return tuple(zip(paths, times, sizes, strict=True))


def schema_of(table: Any) -> "pa.Schema":
    """Arrow's schema of an Ibis table, of an Arrow table or of `LocalTable`."""
    schema = table.schema
    return schema().to_pyarrow() if callable(schema) else schema


def count_of(table: Any) -> int:
    """Number of rows of an Ibis table or of `LocalTable`."""
    if not isinstance(table, LocalTable):
        return int(table.count().to_pyarrow().as_py())
    if table.held is not None:
        return int(table.held.num_rows)
    return int(_query("count(*)", table.paths).fetchone()[0])


def open_table(source: Source, columns: Sequence[str] | None = None) -> Any:
    """Ibis table of some columns of a source, or of all; the rows keep their order."""
    kind = kind_of(source)
    with readable(source):
        if kind == "ibis":
            table = source
        elif kind == "files":
            paths = paths_of(source)
            read = getattr(connect(), _reader_of(paths))
            names = [glob.escape(path) for path in paths]
            table = read(names, table_name="items", **_options_of(paths))
        else:
            connection = connect()
            connection.con.register("items", _in_memory(source, columns))
            table = connection.table("items")
        return table.select(*chosen(table.columns, columns))


def _in_memory(source: Source, columns: Sequence[str] | None) -> Any:
    """Arrow table of the selected columns of a table in memory."""
    import pyarrow as pa

    if columns == []:  # batches without columns forget their number of rows
        return pa.table({"row": range(len(source))})
    if kind_of(source) in ("pandas", "polars"):
        names = [str(name) for name in source.columns]
        if names != list(source.columns):  # pandas takes numbers, too
            source = source.set_axis(names, axis=1)
        # other columns may not fit
        source = _for_arrow(source[chosen(names, columns)])
    if kind_of(source) == "pandas":
        return pa.Table.from_pandas(source, preserve_index=False)
    table = pa.table(source)
    return table.select(chosen(table.column_names, columns))


def _for_arrow(frame: Any) -> Any:
    """A frame of pandas or Polars without columns of types that Arrow cannot take or cast."""
    if kind_of(frame) == "polars":
        import polars as pl

        whole = pl.col(pl.Int128).cast(pl.Int64)
        words = pl.col(pl.Categorical, pl.Enum).cast(pl.String)
        return frame.with_columns(whole, words)
    import pandas as pd

    dense = {
        name: dtype.subtype
        for name, dtype in frame.dtypes.items()
        if isinstance(dtype, pd.SparseDtype)
    }
    return frame.astype(dense) if dense else frame


def small_table(rows: Any, **arrays: Any) -> Any:
    """An Ibis table of arrays, for a join with rows of an engine, or of none."""
    import ibis
    import pyarrow as pa

    data = pa.table(arrays)
    table = ibis.memtable(data).op().copy(name=ibis.util.gen_name(_SMALL)).to_expr()
    for backend in rows._find_backends()[0]:
        connection = getattr(backend, "con", None)
        if type(connection).__name__ == "ChdbClient":
            # it takes no tables beside a query
            name = table.get_name()
            types = (f"{f.name} {_CHDB_TYPES[str(f.type)]}" for f in data.schema)
            columns = ", ".join(types)
            backend.raw_sql(f"CREATE TABLE {name} ({columns}) ENGINE = Memory")
            backend.con.insert_arrow(name, data)
            return backend.table(name)
    return table


def drop_small_tables(expression: Any) -> None:
    """Drop what `small_table` left on the engine, which Ibis keeps until the process ends."""
    from ibis.expr.operations import DatabaseTable, InMemoryTable

    backend = expression.get_backend()
    drop = backend.drop_view if backend.name in _VIEWS else backend.drop_table
    for table in expression.op().find((DatabaseTable, InMemoryTable)):
        is_there = isinstance(table, DatabaseTable) or table in backend._memtables
        if _SMALL in table.name and is_there:
            drop(table.name, force=True)
            backend._memtables.discard(table)


def batches(
    table: Any,
    columns: Sequence[str] | None = None,
    size: int = _AT_ONCE,
    source: Source = None,
) -> "Iterator[pa.RecordBatch]":
    """Record batches of an Ibis table or of rows, in their order, of at most `size` rows."""
    with readable(source):
        selected = table.select(*chosen(table.columns, columns))
        backend = None if isinstance(table, LocalTable) else table.get_backend()
        if backend and backend.name == "duckdb":
            parts = _arrow_reader(backend._to_duckdb_relation(selected), size)
        else:
            parts = selected.to_pyarrow_batches(chunk_size=size)
        for part in parts:
            yield from (
                part.slice(start, size) for start in range(0, part.num_rows, size)
            )


def arrow_table(source: Source, columns: Sequence[str]) -> "pa.Table":
    """Arrow table of some columns of a source, in the order of its rows."""
    with readable(source):
        return opened(source, columns).to_pyarrow()


def sampled(source: Source, columns: Sequence[str], size: int, seed: int) -> Source:
    """Arrow table of random rows of a source, in their order; the source if these are all."""
    import pyarrow as pa

    with readable(source):
        table = opened(source, columns, hold=False)
        n = count_of(table)
        if n <= size:
            return source
        row = np.sort(np.random.default_rng(seed).choice(n, size, replace=False))
        parts = []
        start = 0
        for batch in batches(table):
            begin, end = np.searchsorted(row, [start, start + batch.num_rows])
            parts.append(batch.take(pa.array(row[begin:end] - start)))
            start += batch.num_rows
        return pa.Table.from_batches(parts)


def paths_of(source: Source) -> list[str]:
    """Existing files of a path, glob or list, globs in sorted order."""
    paths: list[str] = []
    for entry in [source] if isinstance(source, str | os.PathLike) else source:
        name = os.path.expanduser(path_of(entry, "source", ItemsError))
        # the name of an existing file is not a pattern, even if it contains wildcards
        matches = (
            [name] if os.path.exists(name) else sorted(glob.glob(name, recursive=True))
        )
        if "://" in name:
            raise ItemsError(
                f"{name}: remote files are read through an Ibis table; pass one"
            )
        if not matches:
            what = "no file matches" if glob.has_magic(name) else "no such file"
            raise ItemsError(f"{name}: {what}")
        paths += matches
    for name in filter(os.path.isdir, paths):
        raise ItemsError(
            f"{name} is a directory: name its files, for example {name}/*.parquet"
        )
    return paths


def will_match(pattern: str | os.PathLike[str], path: str | os.PathLike[str]) -> bool:
    """Return True if a pattern matches a file that is still to be written."""
    name = os.path.realpath(os.path.expanduser(pattern))
    is_pattern = glob.has_magic(name) and not os.path.exists(name)
    return is_pattern and Path(os.path.realpath(path)).match(name)


def _reader_of(paths: Sequence[str]) -> str:
    """DuckDB's function that reads such files, and Ibis's method."""
    if all(path.lower().endswith((".parquet", ".pq")) for path in paths):
        return "read_parquet"
    if all(path.lower().endswith((".csv", ".tsv")) for path in paths):
        return "read_csv"
    raise ItemsError(
        f"{', '.join(paths[:3])}: items are read from files that are all named *.parquet, or all "
        "*.csv, not compressed"
    )


def _options_of(paths: Sequence[str]) -> dict[str, Any]:
    """Its options."""
    options: dict[str, Any] = {"union_by_name": True, "hive_partitioning": False}
    if _reader_of(paths) == "read_csv":
        # types are those of all lines of all files, as a fraction may come late; by default lines
        # before the last that differ in their number of values are skipped
        options |= {"header": True, "sample_size": -1, "skip": _blank_lines(paths[0])}
    return options


def _blank_lines(path: str) -> int:
    """Number of blank lines at the head of a file."""
    with open(path, "rb") as file:
        return next((k for k, line in enumerate(file) if line.strip()), 0)


def _refuse_uneven_lines(paths: Sequence[str]) -> None:
    """Refuse CSV files in which the number of values differs from that of the first line."""
    if _reader_of(paths) != "read_csv":
        return
    for path in paths:
        with open(path, newline="", encoding="utf-8", errors="replace") as file:
            head = next(filter(str.strip, file), "")
            file.seek(0)
            lines = csv.reader(file, delimiter=max(",;\t|", key=head.count))
            names = next(filter(any, lines), [])
            for values in lines:
                if values and len(values) != len(names):
                    raise ItemsError(
                        f"{path}: line {lines.line_num} has {counted(len(values), 'value')}, and "
                        f"the first line, which must name the columns, has {len(names)}: give "
                        "every line as many values as there are names"
                    )


@contextmanager
def readable(source: Source = None) -> Iterator[None]:
    """Turn errors of an engine while it reads into an ItemsError of one line."""
    try:
        yield
    except Exception as error:
        # DuckDB's "Query interrupted"
        if isinstance(error.__cause__, KeyboardInterrupt):
            raise KeyboardInterrupt from error
        library = type(error).__module__.partition(".")[0]
        if library in _NOT_ENGINES and not isinstance(error, OSError):
            raise
        java = getattr(error, "java_exception", None)
        told = str(java.toString() if java else error)
        # Arrow appends the column to its error
        if len(error.args) > 1 and all(isinstance(part, str) for part in error.args):
            told = ": ".join(reversed(error.args))
        text = told.strip() or type(error).__name__
        # DuckDB names the line of a CSV file, then the fault
        cause = " ".join(
            text.splitlines()[:3] if "CSV" in text[:50] else text.splitlines()[:1]
        )
        what = (
            os.fspath(source) if isinstance(source, str | os.PathLike) else "the items"
        )
        raise ItemsError(f"{what} cannot be read: {cause}") from error
