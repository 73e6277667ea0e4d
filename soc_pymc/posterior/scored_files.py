"""Scored items as Parquet files, written atomically, with a record of what made them."""

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .._lib.errors import ItemsError
from .._lib.files import replacing
from ..data.sources import kind_of, paths_of
from ..inference.results import Fit

_VERSION = 7  # version of scoring; files of another version are made again
_RECORD = b"soc_pymc"  # key of the record in a file's description
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
    """True if a file exists, has this record, and each of its pages has its checksum."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(target, page_checksum_verification=True) as file:
            if (file.metadata.metadata or {}).get(_RECORD) != record.encode():
                return False
            for _ in file.iter_batches():
                pass
    except (OSError, pa.ArrowException):
        return False
    return True


def write_scored(
    scored: Iterable[Any], target: Path, added: Sequence[str], record: str = ""
) -> None:
    """Write record batches to one Parquet file, atomically.

    Values of the columns `added` are nearly all distinct. A `record` is for `is_finished`.
    """
    import pyarrow.parquet as pq

    writer = None
    with replacing(target) as temporary:
        try:
            for batch in scored:
                if writer is None:
                    users = [name for name in batch.schema.names if name not in added]
                    options = {"use_dictionary": users, "write_page_checksum": True}
                    writer = pq.ParquetWriter(temporary, batch.schema, **options)
                writer.write_batch(batch)
            if writer is not None and record:
                writer.add_key_value_metadata({_RECORD: record})
        finally:
            if writer is not None:
                writer.close()
