"""Scored items as Parquet files, written atomically, with a record of their inputs."""

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .._lib.errors import ItemsError
from .._lib.files import replacing
from .._lib.threads import ready_ahead
from ..inference.results import Fit

_VERSION = 3  # version of scoring; files of another version are made again
_KEY = b"soc_pymc_scored"
_SEAL = b"soc_pymc_seal"
_MARK = _SEAL + b"\x18\x40"  # the key, then Thrift's code for a text of 64 bytes
_OPEN = b"0" * 64
_BLOCK = 1 << 20
_ROWS = 1 << 19  # smallest row group
_SAMPLE = 10_000  # first values of a column, to see whether many are distinct
_ENDINGS = re.compile(r"\.(parquet|pq|csv|tsv|csv\.gz|tsv\.gz)$", re.IGNORECASE)


def is_folder(out: str | os.PathLike[str]) -> bool:
    """Whether `out` is an existing folder, or a name that ends with a slash."""
    name = os.fspath(out)
    return os.path.isdir(name) or name.endswith(("/", os.sep))


def targets(paths: Sequence[str], folder: Path) -> list[tuple[str, Path]]:
    """Each file of items with the file for its posteriors, of the same name, in a folder."""
    taken: dict[str, str] = {}
    pairs = []
    for path in paths:
        name = _ENDINGS.sub("", os.path.basename(path)) + ".parquet"
        if name.lower() in taken:
            raise ItemsError(
                f"{taken[name.lower()]} and {path} would both be scored to {folder / name}: "
                "give them different names, or score them to two folders"
            )
        taken[name.lower()] = path
        pairs.append((path, folder / name))
    refuse_own_items([target for _, target in pairs], paths)
    return pairs


def refuse_own_items(written: Iterable[Path], paths: Iterable[str]) -> None:
    """Refuse to overwrite files of items."""
    own = {os.path.realpath(path) for path in paths}
    for target in written:
        if os.path.realpath(target) in own:
            raise ItemsError(f"{target} holds the items: give another name or folder to out=")


# --- records of inputs ---------------------------------------------------------------------------


def fit_digest(fit: Fit) -> str:
    """Digest of all that scoring uses of a fit: prior, draws, bins and axes."""
    digest = hashlib.sha256(f"{type(fit.prior).__name__} {fit.prior!r}".encode())
    for group in ("posterior", "constant_data"):
        if group not in fit.data:
            continue
        variables = fit.data[group].to_dataset().variables
        for name in sorted(map(str, variables)):
            values = variables[name].to_numpy()
            digest.update(f"{group} {name} {variables[name].dims} {values.shape}".encode())
            number = values.dtype.kind in "fiub"
            text = values.astype("<f8").tobytes() if number else repr(values.tolist()).encode()
            digest.update(text)
    return digest.hexdigest()


def file_record(path: str, made_by: Mapping[str, Any]) -> str:
    """Digest of a file of items (name, size, modification time) and of the options of scoring."""
    stat = os.stat(path)
    whole = {
        **made_by,
        "version": _VERSION,
        "input": [os.path.basename(path), stat.st_size, stat.st_mtime_ns],
    }
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()


def is_finished(target: Path, record: str) -> bool:
    """Whether a file exists, is unchanged since it was written, and has this record."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if not target.is_file() or not _is_sealed(target):
            return False
        metadata = pq.read_metadata(target).metadata or {}
    except (OSError, pa.ArrowException):
        return False
    return metadata.get(_KEY) == record.encode()


# --- checksums -----------------------------------------------------------------------------------


def _sealed_at(path: Path) -> tuple[int, bytes, str]:
    """Position and text of a Parquet file's checksum, and the correct checksum.

    This is the SHA-256 of all bytes, with zeros in place of the checksum, which is in the footer.
    Raises ValueError if there is none.
    """
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - 8, 0))
        length = int.from_bytes(file.read(4), "little")
        begin = size - 8 - length
        if begin < 0:
            raise ValueError("no footer")
        file.seek(begin)
        footer = file.read()
        at = footer.rfind(_MARK) + len(_MARK)
        found = footer[at : at + len(_OPEN)]
        if at < len(_MARK) or len(found) < len(_OPEN):
            raise ValueError("no seal")
        file.seek(0)
        digest, left = hashlib.sha256(), begin
        while left > 0 and (block := file.read(min(_BLOCK, left))):
            digest.update(block)
            left -= len(block)
    digest.update(footer[:at] + _OPEN + footer[at + len(_OPEN) :])
    return begin + at, found, digest.hexdigest()


def _is_sealed(path: Path) -> bool:
    try:
        _, found, expected = _sealed_at(path)
    except ValueError:
        return False
    return found == expected.encode()


def _seal(path: Path) -> None:
    """Write the checksum over the placeholder `_OPEN`."""
    at, _, seal = _sealed_at(path)
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(seal.encode())


# --- writing -------------------------------------------------------------------------------------


def write_scored(
    scored: Iterable[Any], target: Path, total: int, added: Sequence[str], record: str = ""
) -> None:
    """Write record batches, of `total` rows in all, to one Parquet file, atomically.

    Values of the columns `added` are nearly all distinct; `record` is the one for `is_finished`.
    """
    import pyarrow.parquet as pq

    rows, writer = 0, None
    with replacing(target) as temporary:
        try:
            for table in ready_ahead(_row_groups(scored)):
                if writer is None:
                    schema = table.schema.with_metadata(
                        {**(table.schema.metadata or {}), _KEY: record}
                    )
                    writer = pq.ParquetWriter(
                        temporary, schema, use_dictionary=_repetitive(table, added)
                    )
                writer.write_table(table.replace_schema_metadata(schema.metadata), len(table))
                rows += len(table)
            if writer is not None and record:
                writer.add_key_value_metadata({_SEAL.decode(): _OPEN.decode()})
        finally:
            if writer is not None:
                writer.close()
        if rows != total:
            raise ItemsError(f"{rows:,} rows were scored of {total:,}: did the items change?")
        if record:
            _seal(temporary)


def _row_groups(scored: Iterable[Any]) -> Iterator[Any]:
    """Tables that are large enough for a row group."""
    import pyarrow as pa

    pending: list[Any] = []
    for batch in scored:
        pending.append(batch)
        if sum(b.num_rows for b in pending) >= _ROWS:
            yield pa.Table.from_batches(pending)
            pending = []
    if pending:
        yield pa.Table.from_batches(pending)


def _repetitive(table: Any, added: Sequence[str]) -> list[str]:
    """The user's columns with repeated values, for which a dictionary saves space."""
    import pyarrow as pa

    found = []
    for name in table.column_names:
        if name in added:
            continue
        first = table[name].slice(0, _SAMPLE)
        try:
            distinct = len(first.unique())
        except pa.ArrowException:  # values that cannot be compared, such as lists
            distinct = 0
        if 2 * distinct < len(first) or len(first) < 100:
            found.append(name)
    return found
