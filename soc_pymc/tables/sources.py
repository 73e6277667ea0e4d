"""Sources of items opened: tables in memory, files, Ibis tables; and read back in order.

DuckDB, embedded and private to each table, is the engine of everything but Ibis tables, which stay
on their own backend.
"""

import difflib
import glob
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from ..arguments import path_of, shown
from ..errors import ItemsError
from .text_files import check_whole, header_of, not_text, ragged

__all__ = [
    "Files",
    "Kind",
    "batches",
    "check_files",
    "first_line",
    "kind_of",
    "open_table",
    "readable",
    "to_ibis",
]

Kind = Literal["pandas", "polars", "arrow", "files", "ibis"]

_PARQUET = (".parquet", ".pq")
_LONGEST_NAME = 255
_CSV = (".csv", ".tsv", ".csv.gz", ".tsv.gz")


def kind_of(source: Any) -> Kind:
    """Kind of a source of items.

    Parameters
    ----------
    source
        Whatever `PoissonItems` accepts.

    Raises
    ------
    ItemsError
        If it is none of the kinds.

    Examples
    --------
    >>> kind_of("items/*.parquet")
    'files'
    """
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
    hint = ": collect() it first" if name == "LazyFrame" else ""
    raise ItemsError(
        f"items cannot be read from a {library}.{name}{hint}; give a pandas, Polars or Arrow "
        "table, a path, glob or list of Parquet or CSV files, or an Ibis table"
    )


def open_table(source: Any, columns: Sequence[str] | None = None) -> Any:
    """Ibis table of a source; the rows keep their order.

    Parameters
    ----------
    source
        Whatever `PoissonItems` accepts.
    columns
        Columns to keep; None keeps all.

    Returns
    -------
    ibis.Table
        On a DuckDB connection of its own, or, for an Ibis table, on the table's backend.

    Raises
    ------
    ItemsError
        If a file is missing or unreadable, files disagree in their columns, or a column is missing.

    Examples
    --------
    >>> import pandas as pd
    >>> open_table(pd.DataFrame({"a": [1, 2]})).columns
    ('a',)
    """
    kind = kind_of(source)
    if kind == "ibis":
        return source.select(*_chosen(source.columns, columns)) if columns else source
    if kind == "files":
        return _open_files(source, columns)
    table = _arrow(source, kind, columns)
    _refuse_case_twins(table.column_names, table.column_names)
    connection = _connection()
    connection.con.register("items", table)
    return connection.table("items")


def _connection() -> Any:
    import ibis

    return ibis.duckdb.connect()


def _chosen(available: Sequence[Any], columns: Sequence[str] | None) -> list[str]:
    """The wanted columns, each there exactly once."""
    names = [str(name) for name in available]
    wanted = names if columns is None else list(columns)
    absent = [_absent(column, names) for column in wanted if column not in names]
    if absent:
        raise ItemsError("\n".join(absent))
    _refuse_twice(names, wanted)
    return wanted


def _refuse_twice(names: Sequence[str], wanted: Sequence[str]) -> None:
    for column in wanted:
        if names.count(column) > 1:
            raise ItemsError(
                f"column {column!r} is there {names.count(column)} times: rename or drop the others"
            )


def _absent(column: str, names: list[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:20])
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    lower = {name.lower(): name for name in names}
    close = difflib.get_close_matches(column.lower(), list(lower), n=1)
    hint = f": did you mean {lower[close[0]]!r}?" if close else ""
    return f"column {column!r} is missing; the table has {shown or 'no columns'}{more}{hint}"


def _refuse_case_twins(available: Sequence[str], wanted: Sequence[str]) -> None:
    lower = [name.lower() for name in available]
    for column in wanted:
        if lower.count(column.lower()) > 1 and column in available:
            twins = [name for name in available if name.lower() == column.lower()]
            raise ItemsError(
                f"columns {' and '.join(map(repr, twins))} differ in letter case only, which the "
                "engine cannot tell apart: rename one of them"
            )


def _arrow(source: Any, kind: Kind, columns: Sequence[str] | None) -> Any:
    """Arrow table of the wanted columns of a table in memory."""
    import pyarrow as pa

    if kind == "arrow":
        return _readable_types(source.select(_chosen(source.column_names, columns)))
    if kind == "polars":
        return _readable_types(source.select(_chosen(source.columns, columns)).to_arrow())
    wanted = _chosen(source.columns, columns)
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


def _readable_types(table: Any) -> Any:
    """The table without types that the engine does not know, where others hold the same."""
    import pyarrow as pa

    for place, kept in enumerate(table.schema):
        if pa.types.is_float16(kept.type):
            table = table.set_column(place, kept.name, table.column(place).cast(pa.float32()))
        elif pa.types.is_decimal256(kept.type):
            raise ItemsError(_WIDE.format(column=kept.name))
    return table


def _paths(source: Any) -> list[str]:
    """Existing files that a path, glob or list stands for, globs in sorted order."""
    given = [source] if isinstance(source, str | os.PathLike) else list(source)
    paths: list[str] = []
    for name in (os.path.expanduser(path_of(g, "source", ItemsError)) for g in given):
        if os.path.exists(name):
            paths.append(name)
        elif glob.has_magic(name):
            found = sorted(glob.glob(name, recursive=True))
            if not found:
                raise ItemsError(f"{name}: no file matches")
            paths.extend(found)
        elif len(os.path.basename(name)) > _LONGEST_NAME:
            raise ItemsError(f"{shown(name)}: no file has so long a name")
        elif "://" in name:
            raise ItemsError(f"{name}: remote files are read through an Ibis table; pass one")
        else:
            raise ItemsError(f"{name}: there is no such file")
    for name in paths:
        if os.path.isdir(name):
            raise ItemsError(f"{name} is a directory: name its files, for example {name}/*.parquet")
    return paths


@dataclass(frozen=True)
class Files:
    """Files that are there, can be read and agree in the wanted columns.

    Attributes
    ----------
    paths
        Their names, in order.
    form
        ``"Parquet"`` or ``"CSV"``.
    types
        Types by column: Arrow's names for Parquet, DuckDB's, wide enough for all, for CSV.
    wanted
        The columns to keep.
    """

    paths: list[str]
    form: str
    types: dict[str, str]
    wanted: list[str]


def check_files(source: Any, columns: Sequence[str] | None = None, connection: Any = None) -> Files:
    """Find and check the files of a source; nothing but footers and CSV files is read.

    Parameters
    ----------
    source
        A path, a glob or a list of paths.
    columns
        Columns to keep; None keeps all.
    connection
        DuckDB connection that looks into CSV files; None makes one.

    Raises
    ------
    ItemsError
        If a file is missing or unreadable, files disagree in their columns, or a column is missing.
    """
    paths = _paths(source)
    formats = [_format(path) for path in paths]
    for path, form in zip(paths, formats, strict=True):
        if form != formats[0]:
            raise ItemsError(f"{path} is {form}, but {paths[0]} is {formats[0]}: use one format")
    connection = connection or _connection()
    read = [_schema(connection, path, formats[0]) for path in paths]
    schemas = [found.types for found in read]
    wanted = _check_names(read[0], paths[0], formats[0], columns)
    for found in read:
        _refuse_twice(found.names, wanted)
    for path, schema in zip(paths[1:], schemas[1:], strict=True):
        _same_schema(paths[0], schemas[0], path, schema, wanted, exact=formats[0] == "Parquet")
    if formats[0] == "Parquet":
        _refuse_types(schemas[0], wanted)
    widest = {
        c: "DOUBLE" if any(s[c] != schemas[0][c] for s in schemas) else schemas[0][c]
        for c in schemas[0]
        if all(c in s for s in schemas)
    }
    return Files(paths, formats[0], widest, wanted)


def _open_files(source: Any, columns: Sequence[str] | None) -> Any:
    connection = _connection()
    files = check_files(source, columns, connection)
    # a name that is there is a name, whatever wildcards it contains
    names = [glob.escape(path) for path in files.paths]
    if files.form == "Parquet":
        table = connection.read_parquet(names, table_name="items", hive_partitioning=False)
    else:
        table = connection.read_csv(
            names, table_name="items", header=True, types=files.types, hive_partitioning=False
        )
    return table.select(*files.wanted)


def _format(path: str) -> str:
    name = path.lower()
    if name.endswith(_PARQUET):
        return "Parquet"
    if name.endswith(_CSV):
        return "CSV"
    raise ItemsError(f"{path}: items are read from files named *.parquet, *.csv or *.csv.gz")


@dataclass(frozen=True)
class _Schema:
    """Types of a file's columns by name, and the names as the file has them."""

    types: dict[str, str]
    names: tuple[str, ...]


def _check_names(schema: _Schema, path: str, form: str, columns: Sequence[str] | None) -> list[str]:
    """The wanted columns, each there exactly once, under a name like no other."""
    if form == "CSV" and not any(schema.names):
        raise ItemsError(f"{path} is empty: its first line must name the columns")
    if form == "CSV" and len(schema.types) == 1 and columns and (why := ragged(path)):
        raise ItemsError(f"{path}: {why}")
    _refuse_twice(schema.names, list(schema.types) if columns is None else columns)
    _refuse_case_twins(schema.names, list(schema.types) if columns is None else columns)
    return _chosen(list(schema.types), columns)


def _refuse_types(types: Mapping[str, str], wanted: Sequence[str]) -> None:
    """Refuse types of Parquet files that the engine takes for others."""
    for column in wanted:
        if types[column].startswith("decimal256"):
            raise ItemsError(_WIDE.format(column=column))
        if types[column].startswith("duration"):
            raise ItemsError(
                f"column {column!r} holds spans of time, which would be read as bare numbers: "
                "convert it to a number of seconds first, or drop it"
            )


_WIDE = (
    "column {column!r} holds decimals of more than 38 digits, which the engine cannot read: "
    "convert it to float64 first"
)


def _schema(connection: Any, path: str, form: str) -> _Schema:
    """Column types by name; a file that cannot be read is an error that names it."""
    try:
        if form == "Parquet":
            import pyarrow.parquet as pq

            schema = pq.read_schema(path)
            types = dict(zip(schema.names, map(str, schema.types), strict=True))
            return _Schema(types, tuple(schema.names))
        check_whole(path)
        # the whole file decides the types: a fraction may come late
        rows = connection.con.execute(
            "DESCRIBE SELECT * FROM read_csv(?, header=true, sample_size=-1, "
            "hive_partitioning=false)",
            [glob.escape(path)],
        ).fetchall()
        types = {str(row[0]): str(row[1]) for row in rows}
        return _Schema(types, header_of(connection, glob.escape(path)))
    except ItemsError:
        raise
    except Exception as error:
        _refuse_interrupt(error)
        why = not_text(path) if form == "CSV" else None
        why = why or f"{first_line(error).rstrip('.')}; write it again"
        raise ItemsError(f"{path} cannot be read as {form}: {why}") from error


def first_line(error: Exception) -> str:
    """What an error says first; of an error inside Java, what that says."""
    java = getattr(error, "java_exception", None)
    # that Spark waited for another thread says nothing; what it waited for does
    while java is not None and "awaitResult" in str(java.getMessage()) and java.getCause():
        java = java.getCause()
    text = str(error if java is None else java.toString())
    return (text.strip().splitlines() or [type(error).__name__])[0]


_CSV_NUMBERS = ("BIGINT", "DOUBLE", "INTEGER", "HUGEINT")


def _same_schema(
    first_path: str,
    first: Mapping[str, str],
    path: str,
    schema: Mapping[str, str],
    wanted: Sequence[str],
    *,
    exact: bool,
) -> None:
    """Refuse files that differ in the wanted columns; numbers of CSV files may be of any kind."""
    if not exact and list(schema) != list(first):
        raise ItemsError(
            f"{path} has the columns {', '.join(map(repr, schema))}, but {first_path} has "
            f"{', '.join(map(repr, first))}"
        )
    for column in wanted:
        if column not in schema:
            raise ItemsError(f"{path} has no column {column!r}, but {first_path} has one")
        both = first[column], schema[column]
        if both[0] != both[1] and (exact or not set(both) <= set(_CSV_NUMBERS)):
            raise ItemsError(
                f"{path} holds column {column!r} as {both[1]}, but {first_path} as {both[0]}: "
                "write the files with one type"
            )


def batches(
    table: Any, columns: Sequence[str] | None = None, size: int = 1_000_000, source: Any = None
) -> Iterator[Any]:
    """Arrow record batches of an Ibis table, in the order of its rows.

    Parameters
    ----------
    table
        What `open_table` returned.
    columns
        Columns to read; None reads all.
    size
        Most rows in a batch.
    source
        What the table was opened from, to name a file that cannot be read.

    Yields
    ------
    pyarrow.RecordBatch
        The next rows.

    Examples
    --------
    >>> import pandas as pd
    >>> table = open_table(pd.DataFrame({"a": range(5)}))
    >>> [batch.num_rows for batch in batches(table, size=3)]
    [3, 2]
    """
    chosen = table.select(*_chosen(table.columns, columns))
    with readable(source):
        for batch in chosen.to_pyarrow_batches(chunk_size=size):
            for start in range(0, batch.num_rows, size):
                yield batch.slice(start, size)


# where the errors of engines come from; other drivers are known by their DatabaseError (PEP 249)
_ENGINES = ("_duckdb", "duckdb", "pyarrow", "polars", "psycopg", "pyspark", "py4j", "google")
# an engine that does not understand its query was asked the wrong thing by this package
_OURS = ("BinderException", "ParserException", "ParseException", "SyntaxError", "UndefinedFunction")
_OF_IBIS = ("OperationNotDefinedError", "TableNotFound", "UnsupportedOperationError")


@contextmanager
def readable(source: Any = None) -> Iterator[None]:
    """Errors of an engine while it reads become an ItemsError of one line.

    Parameters
    ----------
    source
        Source of the items: where they are files, the one that cannot be read is named.

    Examples
    --------
    >>> import pyarrow as pa
    >>> with readable():
    ...     raise pa.ArrowInvalid("a page is damaged")
    Traceback (most recent call last):
    ...
    soc_pymc.errors.ItemsError: the items cannot be read: a page is damaged
    """
    try:
        yield
    except Exception as error:
        _refuse_interrupt(error)
        if not _of_engine(error):
            raise
        bad = _bad_file(source)
        what = f"{bad} cannot be read" if bad else "the items cannot be read"
        raise ItemsError(f"{what}: {first_line(error)}") from error


def _refuse_interrupt(error: Exception) -> None:
    """Raise Ctrl-C as such where DuckDB says "Query interrupted" because of it."""
    if isinstance(error.__cause__, KeyboardInterrupt):
        raise KeyboardInterrupt from error


def _bad_file(source: Any) -> str | None:
    """The first Parquet file that cannot be read to its end."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if source is None or kind_of(source) != "files":
        return None
    for path in _paths(source):
        try:
            if _format(path) == "Parquet":
                with pq.ParquetFile(path, pre_buffer=False) as file:
                    for _ in file.iter_batches():
                        pass
        except (pa.ArrowException, OSError):
            return path
    return None


def _of_engine(error: Exception) -> bool:
    if (name := type(error).__name__) in _OURS:
        return False
    ancestors = type(error).__mro__
    known = {ancestor.__module__.partition(".")[0] for ancestor in ancestors} & set(_ENGINES)
    drivers = any(ancestor.__name__ == "DatabaseError" for ancestor in ancestors)
    return bool(known) or drivers or name in _OF_IBIS or isinstance(error, OSError)


def to_ibis(table: Any) -> Any:
    """Ibis table of an Arrow table."""
    import ibis

    return ibis.memtable(table)
