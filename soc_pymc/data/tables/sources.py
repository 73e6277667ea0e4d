"""Open sources of items (tables in memory, files, Ibis tables) and read them in order.

A private in-memory DuckDB is the engine for all sources except Ibis tables, which stay on their
backend.
"""

import glob
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import pandas as pd

from ..._lib.errors import ItemsError
from .item_files import (
    WIDE,
    check_files,
    chosen,
    connect,
    first_line,
    form_of,
    is_of_engine,
    paths_of,
    refuse_case_twins,
    refuse_interrupt,
)

Kind = Literal["pandas", "polars", "arrow", "stream", "files", "ibis"]


def kind_of(source: Any) -> Kind:
    """Kind of a source of items; refuses other objects."""
    if isinstance(source, pd.DataFrame):
        return "pandas"
    if isinstance(source, str | os.PathLike) or (
        isinstance(source, list | tuple)
        and source
        and all(isinstance(s, str | os.PathLike) for s in source)
    ):
        return "files"
    library, name = type(source).__module__.partition(".")[0], type(source).__name__
    kinds: dict[tuple[str, str], Kind] = {
        ("polars", "DataFrame"): "polars",
        ("pyarrow", "Table"): "arrow",
        ("ibis", "Table"): "ibis",
    }
    if (library, name) in kinds:
        return kinds[library, name]
    if name == "RecordBatchReader":
        raise ItemsError("a RecordBatchReader can be read only once: give its read_all()")
    if hasattr(source, "__arrow_c_stream__") and name != "LazyFrame":
        return "stream"
    hint = ": collect() it first" if name == "LazyFrame" else ""
    raise ItemsError(
        f"items cannot be read from a {library}.{name}{hint}; give a pandas, Polars or Arrow "
        "table (or another with __arrow_c_stream__), a path, glob or list of Parquet or CSV files, "
        "or an Ibis table"
    )


def column_names(source: Any) -> list[str]:
    """Names of the columns of a source; no column is read from Parquet files or a table."""
    if kind_of(source) == "files":
        with readable(source):
            return list(check_files(source, ()).types)
    if kind_of(source) == "stream":
        return list(_streamed(source).column_names)
    return [str(name) for name in getattr(source, "column_names", source.columns)]


def open_table(source: Any, columns: Sequence[str] | None = None) -> Any:
    """Ibis table of a source; the rows keep their order.

    It is on its own DuckDB connection or, for an Ibis table, on the table's backend. `columns` None
    keeps all. Refuses files that are missing, unreadable or different in format or columns, and
    missing columns.
    """
    kind = kind_of(source)
    if kind == "ibis":
        return source.select(*chosen(source.columns, columns)) if columns else source
    if kind == "files":
        with readable(source):
            return _open_files(source, columns)
    table = in_memory(source, columns)
    refuse_case_twins(table.column_names, table.column_names)
    connection = connect()
    connection.con.register("items", table)
    return connection.table("items")


def in_memory(source: Any, columns: Sequence[str] | None) -> Any:
    """Arrow table of the selected columns of a table in memory."""
    import pyarrow as pa

    kind = kind_of(source)
    if kind in ("arrow", "stream"):
        table = source if kind == "arrow" else _streamed(source)
        return _readable_types(table.select(chosen(table.column_names, columns)))
    if kind == "polars":
        return _readable_types(source.select(chosen(source.columns, columns)).to_arrow())
    wanted = chosen(source.columns, columns)
    names = [str(name) for name in source.columns]
    arrays = []
    for column in wanted:
        try:
            arrays.append(pa.Array.from_pandas(source.iloc[:, names.index(column)]))
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise ItemsError(
                f"column {column!r} holds mixed values, not one type ({error}): convert it first"
            ) from error
    return _readable_types(pa.table(arrays, names=wanted))


def _streamed(source: Any) -> Any:
    """Arrow table of any other object that streams one."""
    import pyarrow as pa

    return pa.table(source)


def _readable_types(table: Any) -> Any:
    """The table with types that the engine lacks replaced by equivalent ones."""
    import pyarrow as pa

    for place, kept in enumerate(table.schema):
        if pa.types.is_float16(kept.type):
            table = table.set_column(place, kept.name, table.column(place).cast(pa.float32()))
        elif pa.types.is_decimal256(kept.type):
            raise ItemsError(WIDE.format(column=kept.name))
    return table


def _open_files(source: Any, columns: Sequence[str] | None) -> Any:
    connection = connect()
    files = check_files(source, columns, connection)
    # the name of an existing file is no pattern, whatever wildcards it contains
    names = [glob.escape(path) for path in files.paths]
    if files.form == "Parquet":
        table = connection.read_parquet(names, table_name="items", hive_partitioning=False)
    else:
        table = connection.read_csv(
            names, table_name="items", header=True, types=files.types, hive_partitioning=False
        )
    return table.select(*files.wanted)


def batches(
    table: Any, columns: Sequence[str] | None = None, size: int = 1_000_000, source: Any = None
) -> Iterator[Any]:
    """Arrow record batches of an Ibis table, in the order of its rows, of at most `size` rows.

    `source` is what the table was opened from, to name a file that cannot be read.
    """
    selected = table.select(*chosen(table.columns, columns))
    with readable(source):
        for batch in record_batches(selected, size):
            for start in range(0, batch.num_rows, size):
                yield batch.slice(start, size)


def record_batches(table: Any, size: int) -> Iterator[Any]:
    """Arrow record batches of an Ibis table of about `size` rows, from its engine."""
    backend = table.get_backend()
    if backend.name != "duckdb":
        return iter(table.to_pyarrow_batches(chunk_size=size))
    # where Ibis calls a method that DuckDB has deprecated; older versions lack the other
    relation = backend._to_duckdb_relation(table)
    return iter(getattr(relation, "to_arrow_reader", relation.fetch_arrow_reader)(size))


@contextmanager
def readable(source: Any = None) -> Iterator[None]:
    """Turn errors of an engine while it reads into an ItemsError of one line.

    If the source is files, the error names the one that cannot be read.
    """
    try:
        yield
    except Exception as error:
        refuse_interrupt(error)
        if not is_of_engine(error):
            raise
        bad = _bad_file(source)
        what = f"{bad} cannot be read" if bad else "the items cannot be read"
        raise ItemsError(f"{what}: {first_line(error)}") from error


def _bad_file(source: Any) -> str | None:
    """The first Parquet file that cannot be read to its end."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if source is None or kind_of(source) != "files":
        return None
    for path in paths_of(source):
        try:
            if form_of(path) == "Parquet":
                with pq.ParquetFile(path, pre_buffer=False) as file:
                    for _ in file.iter_batches():
                        pass
        except (pa.ArrowException, OSError):
            return path
    return None


def to_ibis(table: Any) -> Any:
    """Ibis table of an Arrow table."""
    import ibis

    return ibis.memtable(table)
