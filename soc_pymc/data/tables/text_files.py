"""What is wrong with a CSV file, in words, and what an engine would not say of it."""

import csv
import gzip
import io
import zlib
from collections.abc import Iterator
from typing import IO, Any

from ..._lib.errors import ItemsError

__all__ = ["check_whole", "header_of", "not_text", "ragged"]

_BLOCK = 1 << 20


def _opened(path: str) -> IO[bytes]:
    return gzip.open(path) if path.lower().endswith(".gz") else open(path, "rb")  # type: ignore[return-value]


def check_whole(path: str) -> None:
    """Refuse a compressed file whose end is missing, which engines read without a word.

    Raises
    ------
    ItemsError
        If it does not end with the checksum of what it holds.
    """
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


def header_of(connection: Any, path: str) -> tuple[str, ...]:
    """Names of the columns as they are written, where an engine makes those alike differ."""
    row = connection.con.execute(
        "SELECT * FROM read_csv(?, header=false, all_varchar=true, hive_partitioning=false) "
        "LIMIT 1",
        [path],
    ).fetchone()
    return tuple(str(name or "").strip() for name in row or ())


def not_text(path: str) -> str | None:
    """Where a file is no text in UTF-8, and what to do; None where it is such text."""
    try:
        with _opened(path) as file:
            for number, line in enumerate(file, start=1):
                try:
                    line.decode("utf-8")
                except UnicodeDecodeError as error:
                    byte = line[error.start]
                    return f"line {number} is not in UTF-8 (byte 0x{byte:02x}): save it as UTF-8"
    except (OSError, EOFError, zlib.error):
        return None
    return None


def _rows(path: str, separator: str) -> Iterator[tuple[int, list[str]]]:
    with io.TextIOWrapper(_opened(path), encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, delimiter=separator)
        for row in reader:
            yield reader.line_num, row


def ragged(path: str) -> str | None:
    """The first line that has more or fewer fields than the header, in words; None if none has."""
    with _opened(path) as file:
        head = file.readline().decode("utf-8", "replace")
    separator = max(",;\t|", key=head.count)
    rows, width = _rows(path, separator), 0
    try:
        for number, row in rows:
            width = width or len(row)
            if row and len(row) != width:
                has = f"line {number} has {len(row)} fields, but the header has {width}"
                return f"{has}: mend the line"
    except csv.Error:  # a field of more than 128 kB
        return None
    return None
