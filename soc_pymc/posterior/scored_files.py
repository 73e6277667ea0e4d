"""Scored items as Parquet files, written atomically, with a seal of their inputs and contents."""

import hashlib
import json
import mmap
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .._lib.errors import ItemsError
from .._lib.files import replacing
from ..data.sources import kind_of, paths_of
from ..inference.results import Fit

_VERSION = 6  # version of scoring; files of another version are made again
_SEAL_SIZE = 64
_ENDINGS = re.compile(r"\.(parquet|pq|csv|tsv|csv\.gz|tsv\.gz)$", re.IGNORECASE)


def is_folder(out: str | os.PathLike[str]) -> bool:
    """True if `out` is an existing folder, or a name that ends with a slash."""
    name = os.fspath(out)
    return os.path.isdir(name) or name.endswith(("/", os.sep))


def the_target(path: Path, source: Any) -> Path:
    """The one file to write, checked; it must not be one of the items' source."""
    name = str(path)
    if path.suffix not in (".parquet", ".pq"):
        raise ItemsError(f"out={name!r} must be named *.parquet, or be a folder (end with a slash)")
    if not path.parent.is_dir():
        raise ItemsError(f"out={name!r}: there is no folder {str(path.parent)!r}, make it first")
    if kind_of(source) == "files":
        _refuse_items([path], paths_of(source))
    return path


def targets_in_folder(source: Any, folder: Path) -> list[tuple[str, Path]]:
    """Each file of items with the file for its posteriors, of the same name, in a folder."""
    if kind_of(source) != "files":
        raise ItemsError(
            f"out={str(folder)!r} is a folder, for one file for each file of items, but the items "
            "are not files: name a file *.parquet"
        )
    paths, taken = paths_of(source), dict[str, str]()
    pairs = [
        (path, folder / (_ENDINGS.sub("", os.path.basename(path)) + ".parquet")) for path in paths
    ]
    for path, target in pairs:
        name = target.name.lower()
        if name in taken:
            raise ItemsError(
                f"{taken[name]} and {path} would both be scored to {target}: "
                "give them different names, or score them to two folders"
            )
        taken[name] = path
    _refuse_items([target for _, target in pairs], paths)
    return pairs


def _refuse_items(targets: Iterable[Path], paths: Iterable[str]) -> None:
    """Refuse to overwrite files of items."""
    sources = {os.path.realpath(path) for path in paths}
    for target in targets:
        if os.path.realpath(target) in sources:
            raise ItemsError(f"{target} holds the items: give another name or folder to out=")


# --- finished files ------------------------------------------------------------------------------


def fit_digest(fit: Fit) -> str:
    """Digest of all that scoring uses of a fit: prior, draws, bins and axes."""
    digest = hashlib.sha256(f"{type(fit.prior).__name__} {fit.prior!r}".encode())
    for group in ("posterior", "constant_data"):
        variables = fit.data[group].to_dataset().variables if group in fit.data else {}
        for name in sorted(variables, key=str):
            values = variables[name].to_numpy()
            text = values.tolist() if values.dtype.kind in "OUST" else None
            place = [group, str(name), variables[name].dims, values.shape, text]
            digest.update(json.dumps(place).encode())
            digest.update(b"" if text is not None else values.tobytes())
    return digest.hexdigest()


def file_record(made_by: Mapping[str, Any], path: str) -> str:
    """Digest of the options of scoring and a file of items (name, size, modification time)."""
    stat = os.stat(path)
    source = [os.path.basename(path), stat.st_size, stat.st_mtime_ns]
    record = {**made_by, "version": _VERSION, "input": source}
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def is_finished(target: Path, record: str) -> bool:
    """True if a file exists, has this record, and is unchanged since it was written."""
    try:
        with (
            open(target, "rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
            memoryview(content) as view,
        ):
            start = _start_of_footer(view)
            return view[start - _SEAL_SIZE : start] == _seal(view, start - _SEAL_SIZE, record)
    except (OSError, ValueError):  # no file, or an empty one
        return False


def _start_of_footer(content: memoryview) -> int:
    """Place of the footer, whose length is near the end of a Parquet file."""
    return len(content) - 8 - int.from_bytes(content[-8:-4], "little")


def _seal(content: memoryview, end: int, record: str) -> bytes:
    """Digest of a record, the first `end` bytes of a file, and its footer."""
    digest = hashlib.sha256(record.encode())
    digest.update(content[:end])
    digest.update(content[_start_of_footer(content) :])
    return digest.hexdigest().encode()


def write_scored(
    scored: Iterable[Any], target: Path, added: Sequence[str], record: str = ""
) -> None:
    """Write record batches to one Parquet file, atomically.

    Values of the columns `added` are nearly all distinct. With a `record`, for `is_finished`, a
    seal precedes the footer, in a gap that readers of Parquet skip.
    """
    import pyarrow.parquet as pq

    writer = None
    with replacing(target) as temporary:
        try:
            for batch in scored:
                if writer is None:
                    users = [name for name in batch.schema.names if name not in added]
                    writer = pq.ParquetWriter(temporary, batch.schema, use_dictionary=users)
                writer.write_batch(batch)
        finally:
            if writer is not None:
                writer.close()
        if record:
            with open(temporary, "r+b") as file, mmap.mmap(file.fileno(), 0) as content:
                with memoryview(content) as view:
                    start = _start_of_footer(view)
                    sealed = _seal(view, start, record) + bytes(view[start:])
                file.seek(start)
                file.write(sealed)
