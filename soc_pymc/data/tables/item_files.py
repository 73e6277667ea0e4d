"""Files of items: found, of one format, readable, and alike in the columns that are wanted."""

import glob
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..._lib.arguments import path_of, shown
from ..._lib.errors import ItemsError
from .column_names import chosen, refuse_case_twins, refuse_twice
from .engine_errors import first_line, refuse_interrupt
from .text_files import check_whole, header_of, not_text, ragged

__all__ = ["WIDE", "Files", "check_files", "connect", "form_of", "paths_of"]

_PARQUET = (".parquet", ".pq")
_LONGEST_NAME = 255
_CSV = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
_CSV_NUMBERS = ("BIGINT", "DOUBLE", "INTEGER", "HUGEINT")
WIDE = (
    "column {column!r} holds decimals of more than 38 digits, which the engine cannot read: "
    "convert it to float64 first"
)
"""What is said of decimals of 256 bits, in memory and in files."""


def connect() -> Any:
    """A DuckDB of its own, in memory."""
    import ibis

    return ibis.duckdb.connect()


def paths_of(source: Any) -> list[str]:
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
    paths = paths_of(source)
    formats = [form_of(path) for path in paths]
    for path, form in zip(paths, formats, strict=True):
        if form != formats[0]:
            raise ItemsError(f"{path} is {form}, but {paths[0]} is {formats[0]}: use one format")
    connection = connection or connect()
    read = [_schema(connection, path, formats[0]) for path in paths]
    schemas = [found.types for found in read]
    wanted = _check_names(read[0], paths[0], formats[0], columns)
    for found in read:
        refuse_twice(found.names, wanted)
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
    """Types of a file's columns by name, and the names as the file has them."""

    types: dict[str, str]
    names: tuple[str, ...]


def _check_names(schema: _Schema, path: str, form: str, columns: Sequence[str] | None) -> list[str]:
    """The wanted columns, each there exactly once, under a name like no other."""
    if form == "CSV" and not any(schema.names):
        raise ItemsError(f"{path} is empty: its first line must name the columns")
    if form == "CSV" and len(schema.types) == 1 and columns and (why := ragged(path)):
        raise ItemsError(f"{path}: {why}")
    refuse_twice(schema.names, list(schema.types) if columns is None else columns)
    refuse_case_twins(schema.names, list(schema.types) if columns is None else columns)
    return chosen(list(schema.types), columns)


def _refuse_types(types: Mapping[str, str], wanted: Sequence[str]) -> None:
    """Refuse types of Parquet files that the engine takes for others."""
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
        refuse_interrupt(error)
        why = not_text(path) if form == "CSV" else None
        why = why or f"{first_line(error).rstrip('.')}; write it again"
        raise ItemsError(f"{path} cannot be read as {form}: {why}") from error


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
