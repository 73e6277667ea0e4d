"""Files of items: find them, and check that they are readable and have one format and schema.

Also for all sources: selection of columns, and texts of engines' errors.
"""

import difflib
import functools
import glob
import gzip
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..._lib.arguments import path_of, shown
from ..._lib.errors import ItemsError
from ..._lib.threads import threads

_PARQUET = (".parquet", ".pq")
_LONGEST_NAME = 255
_BLOCK = 1 << 20
_CSV = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
_CSV_NUMBERS = ("BIGINT", "DOUBLE", "INTEGER", "HUGEINT")
WIDE = (
    "column {column!r} holds decimals of more than 38 digits, which the engine cannot read: "
    "convert it to float64 first"
)
"""Message for decimals of 256 bits, in memory and in files."""


def connect() -> Any:
    """A new connection to this process's DuckDB in memory; its tables are its own."""
    import ibis

    return ibis.duckdb.from_connection(_database(os.getpid(), threads()).cursor())


@functools.cache
def _database(process: int, number_of_threads: int) -> Any:
    """DuckDB of a process, which takes 20 ms to start; a child by fork may not use its parent's."""
    import duckdb

    # cached contents would hide that a file was written again within a second
    config: dict[str, Any] = {"threads": number_of_threads, "enable_external_file_cache": False}
    return duckdb.connect(config=config)


def paths_of(source: Any) -> list[str]:
    """Existing files of a path, glob or list, globs in sorted order."""
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
            raise ItemsError(f"{shown(name)}: the name is too long for a file")
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
    """Files that exist, can be read and agree in the selected columns."""

    paths: list[str]  # in order
    form: str  # "Parquet" or "CSV"
    types: dict[str, str]  # by column: Arrow's names, or DuckDB's, wide enough for all CSV files
    wanted: list[str]  # selected columns


def check_files(source: Any, columns: Sequence[str] | None = None, connection: Any = None) -> Files:
    """Find and check the files of a source, reading only footers and CSV files.

    `columns` None keeps all; `connection` is the DuckDB that reads CSV files.
    """
    paths = paths_of(source)
    formats = [form_of(path) for path in paths]
    for path, form in zip(paths, formats, strict=True):
        if form != formats[0]:
            raise ItemsError(f"{path} is {form}, but {paths[0]} is {formats[0]}: use one format")
    if formats[0] == "CSV":
        connection = connection or connect()
    read = [_schema(connection, path, formats[0]) for path in paths]
    schemas = [found.types for found in read]
    wanted = _check_names(read[0], paths[0], formats[0], columns)
    for found in read:
        _refuse_twice(found.names, wanted)
    # CSV files without rows have no types of their own
    model, own = next(
        ((p, s) for p, s in zip(paths, schemas, strict=True) if any(s.values())),
        (paths[0], schemas[0]),
    )
    for path, schema in zip(paths, schemas, strict=True):
        _same_schema(model, own, path, schema, wanted, exact=formats[0] == "Parquet")
    if formats[0] == "Parquet":
        _refuse_types(schemas[0], wanted)
    widest = {
        c: "DOUBLE" if any(s[c] not in ("", own[c]) for s in schemas) else own[c] or "VARCHAR"
        for c in own
        if all(c in s for s in schemas)
    }
    return Files(paths, formats[0], widest, wanted)


def form_of(path: str) -> str:
    """Parquet or CSV, by the name of a file."""
    name = path.lower()
    if name.endswith(_PARQUET):
        return "Parquet"
    if name.endswith(_CSV):
        return "CSV"
    raise ItemsError(f"{path}: items are read from files named *.parquet, *.csv or *.csv.gz")


@dataclass(frozen=True)
class _Schema:
    """Types of a file's columns by name, and the names in the file."""

    types: dict[str, str]  # empty texts in a CSV file without rows
    names: tuple[str, ...]


def _check_names(schema: _Schema, path: str, form: str, columns: Sequence[str] | None) -> list[str]:
    """The selected columns; each must occur exactly once, with a unique name."""
    if form == "CSV" and not any(schema.names):
        raise ItemsError(f"{path} is empty: its first line must name the columns")
    if form == "CSV" and len(schema.names) == 1 and set(schema.names[0]) & set(",;\t|"):
        raise ItemsError(
            f"{path}: some lines have more or fewer fields than the first: correct them"
        )
    _refuse_twice(schema.names, list(schema.types) if columns is None else columns)
    refuse_case_twins(schema.names, list(schema.types) if columns is None else columns)
    return chosen(list(schema.types), columns)


def _refuse_types(types: Mapping[str, str], wanted: Sequence[str]) -> None:
    """Refuse types of Parquet files that the engine would misread."""
    for column in wanted:
        if types[column].startswith("decimal256"):
            raise ItemsError(WIDE.format(column=column))
        if types[column].startswith("duration"):
            raise ItemsError(
                f"column {column!r} holds spans of time, which would be read as bare numbers: "
                "convert it to a number of seconds first, or drop it"
            )


def _schema(connection: Any, path: str, form: str) -> _Schema:
    """Column types by name; a file that cannot be read is an error that names it."""
    try:
        if form == "Parquet":
            import pyarrow.parquet as pq

            schema = pq.read_schema(path)
            types = dict(zip(schema.names, map(str, schema.types), strict=True))
            return _Schema(types, tuple(schema.names))
        _check_whole(path)
        # infer types from the whole file, as a fraction may come late
        rows = connection.con.execute(
            "DESCRIBE SELECT * FROM read_csv(?, header=true, sample_size=-1, "
            "hive_partitioning=false)",
            [glob.escape(path)],
        ).fetchall()
        types = {str(row[0]): str(row[1]) for row in rows}
        names, filled = _head_of(connection, glob.escape(path))
        return _Schema(types if filled else dict.fromkeys(types, ""), names)
    except ItemsError:
        raise
    except Exception as error:
        refuse_interrupt(error)
        lines = [first_line(error)] if form == "Parquet" else str(error).splitlines()[:3]
        why = " ".join(lines).rstrip(".")  # DuckDB names the line of a CSV file, then the fault
        raise ItemsError(f"{path} cannot be read as {form}: {why}; write it again") from error


def _same_schema(
    first_path: str,
    first: Mapping[str, str],
    path: str,
    schema: Mapping[str, str],
    wanted: Sequence[str],
    *,
    exact: bool,
) -> None:
    """Refuse files with different selected columns; types of numbers in CSV files may differ."""
    if not exact and list(schema) != list(first):
        raise ItemsError(
            f"{path} has the columns {', '.join(map(repr, schema))}, but {first_path} has "
            f"{', '.join(map(repr, first))}"
        )
    for column in wanted:
        if column not in schema:
            raise ItemsError(f"{path} has no column {column!r}, but {first_path} has one")
        both = first[column], schema[column]
        if both[0] != both[1] and both[1] and (exact or not set(both) <= set(_CSV_NUMBERS)):
            raise ItemsError(
                f"{path} holds column {column!r} as {both[1]}, but {first_path} as {both[0]}: "
                "write the files with one type"
            )


# --- text files ----------------------------------------------------------------------------------


def _check_whole(path: str) -> None:
    """Refuse a compressed file whose end is missing, which engines read without an error."""
    if not path.lower().endswith(".gz"):
        return
    try:
        with gzip.open(path) as file:
            while file.read(_BLOCK):
                pass
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ItemsError(
            f"{path} cannot be read as CSV: it is cut off or damaged ({error}): write it again"
        ) from error


def _head_of(connection: Any, path: str) -> tuple[tuple[str, ...], bool]:
    """Names of the columns as written in the file, whatever an engine does; whether it has rows."""
    rows = connection.con.execute(
        "SELECT * FROM read_csv(?, header=false, all_varchar=true, hive_partitioning=false) "
        "LIMIT 2",
        [path],
    ).fetchall()
    return tuple(str(name or "").strip() for name in (rows or [()])[0]), len(rows) > 1


# --- columns by name -----------------------------------------------------------------------------


def chosen(available: Sequence[Any], columns: Sequence[str] | None) -> list[str]:
    """The selected columns, each exactly once; all if none are named."""
    names = [str(name) for name in available]
    wanted = names if columns is None else list(columns)
    absent = [_absent(column, names) for column in wanted if column not in names]
    if absent:
        raise ItemsError("\n".join(absent))
    _refuse_twice(names, wanted)
    return wanted


def _refuse_twice(names: Sequence[str], wanted: Sequence[str]) -> None:
    """Refuse selected columns that occur more than once."""
    for column in wanted:
        if names.count(column) > 1:
            raise ItemsError(
                f"column {column!r} occurs {names.count(column)} times: rename or drop the others"
            )


def _absent(column: str, names: list[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:20])
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    lower = {name.lower(): name for name in names}
    close = difflib.get_close_matches(column.lower(), list(lower), n=1)
    hint = f": did you mean {lower[close[0]]!r}?" if close else ""
    return f"column {column!r} is missing; the table has {shown or 'no columns'}{more}{hint}"


def refuse_case_twins(available: Sequence[str], wanted: Sequence[str]) -> None:
    """Refuse selected columns whose names differ from others only in case."""
    lower = [name.lower() for name in available]
    for column in wanted:
        if lower.count(column.lower()) > 1 and column in available:
            twins = [name for name in available if name.lower() == column.lower()]
            raise ItemsError(
                f"columns {' and '.join(map(repr, twins))} differ in letter case only, which the "
                "engine cannot tell apart: rename one of them"
            )


# --- errors of engines ---------------------------------------------------------------------------

# modules of engines' errors; other drivers raise DatabaseError (PEP 249)
_ENGINES = ("_duckdb", "duckdb", "pyarrow", "polars", "psycopg", "pyspark", "py4j", "google")
# an engine that rejects its query shows an error of this package
_OURS = ("BinderException", "ParserException", "ParseException", "SyntaxError", "UndefinedFunction")
_OF_IBIS = ("OperationNotDefinedError", "TableNotFound", "UnsupportedOperationError")


def first_line(error: Exception) -> str:
    """First line of an error's text; for an error inside Java, that of the Java error."""
    java = getattr(error, "java_exception", None)
    # skip Spark's error about waiting for a thread; use its cause
    while java is not None and "awaitResult" in str(java.getMessage()) and java.getCause():
        java = java.getCause()
    text = str(error if java is None else java.toString())
    return (text.strip().splitlines() or [type(error).__name__])[0]


def refuse_interrupt(error: Exception) -> None:
    """Raise KeyboardInterrupt if Ctrl-C caused DuckDB's "Query interrupted"."""
    if isinstance(error.__cause__, KeyboardInterrupt):
        raise KeyboardInterrupt from error


def is_of_engine(error: Exception) -> bool:
    """Whether an engine failed to read, as opposed to an error in this package's query."""
    if (name := type(error).__name__) in _OURS:
        return False
    ancestors = type(error).__mro__
    known = {ancestor.__module__.partition(".")[0] for ancestor in ancestors} & set(_ENGINES)
    drivers = any(ancestor.__name__ == "DatabaseError" for ancestor in ancestors)
    return bool(known) or drivers or name in _OF_IBIS or isinstance(error, OSError)
