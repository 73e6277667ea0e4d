"""Atomic writing of files, and netCDF files that end with a SHA-256, checked before HDF5 reads."""

import errno
import hashlib
import io
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from xarray import conventions

from .arguments import Refusal, path_of
from .work import raising_interrupt

_SEAL = b"\nsoc_pymc sha256 "
_SEAL_SIZE = len(_SEAL) + 65
_WITHOUT_VALUES = "This is a netCDF dimension but not a netCDF variable."


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary name in the folder of `path`; rename it to `path` if the block succeeds.

    The next writer takes over what a killed process left, and waits for one that still writes.
    """
    target = check_target(path)
    temporary = target.with_name(f".{target.name}.part")
    handle = _open_alone(temporary)
    try:
        if target.exists() and os.name == "posix":
            os.fchmod(handle, stat.S_IMODE(target.stat().st_mode))
        yield temporary
        os.fsync(handle)
        if os.name != "posix":  # on systems where an open file cannot be renamed
            os.close(handle)
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    finally:
        with suppress(OSError):
            os.close(handle)


def _open_alone(path: Path) -> int:
    """Open an empty file for this process alone; wait while another process writes it."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        # systems and folders without locks
        with suppress(ImportError, OSError):
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), path.stat()):
                os.ftruncate(handle, 0)
                return handle
        os.close(handle)  # the other process has renamed it


def check_target(path: str | os.PathLike[str]) -> Path:
    """The file to write, or a link's target; raises OSError if it cannot be written."""
    target = Path(os.path.realpath(path))
    folder = target.parent
    exists = target.exists()
    problems = (
        (target.is_dir(), errno.EISDIR, "a folder is there: give the name of a file"),
        (exists and not target.is_file(), errno.EINVAL, "not an ordinary file"),
        (
            not folder.is_dir(),
            errno.ENOENT,
            f"there is no folder {folder}, make it first",
        ),
        (
            exists and not os.access(target, os.W_OK),
            errno.EACCES,
            "the file is write-protected",
        ),
        (
            not os.access(folder, os.W_OK | os.X_OK),
            errno.EACCES,
            f"{folder} cannot be written to",
        ),
    )
    for fails, number, text in problems:
        if fails:
            raise OSError(number, text, os.fspath(path))
    return target


def seal(content: bytes | memoryview) -> bytes:
    """The line that ends a saved file: SHA-256 of the bytes before it."""
    return _SEAL + hashlib.sha256(content).hexdigest().encode() + b"\n"


@raising_interrupt()
def save_netcdf(
    data: xr.Dataset | xr.DataTree, path: str | os.PathLike[str], error_type: Refusal
) -> None:
    """Write a Dataset or DataTree to one netCDF file, made in memory (a full disk crashes HDF5)."""
    path = path_of(path, "path", error_type)
    try:
        content = _netcdf(data if isinstance(data, xr.DataTree) else xr.DataTree(data))
    except Exception as error:  # xarray and h5py raise many kinds
        raise error_type(
            f"{path} was not written: the data cannot be stored in a file ({_brief(error)})"
        ) from error
    with replacing(path) as temporary, open(temporary, "wb") as file:
        file.write(content.getbuffer())
        file.write(seal(content.getbuffer()))


def _netcdf(tree: xr.DataTree) -> io.BytesIO:
    """A netCDF4 file; xarray writes the same, but takes 10 times longer for many variables."""
    import h5py

    text = h5py.string_dtype()
    buffer = io.BytesIO()

    def stored(values: Any) -> Any:
        array = np.asarray(values)
        return array.astype(text) if array.dtype.kind in "OU" else array

    with h5py.File(buffer, "w", track_order=True) as file:
        for node in tree.subtree:
            data = node.to_dataset(inherit=False)
            group = (
                file.create_group(node.path, track_order=True) if node.parent else file
            )
            encoded = conventions.encode_dataset_coordinates(data.drop_encoding())
            variables, attributes = conventions.cf_encoder(*encoded)
            group.attrs.update(
                {name: stored(value) for name, value in attributes.items()}
            )
            for name, variable in variables.items():
                values = group.create_dataset(name, data=stored(variable.to_numpy()))
                values.attrs.update(
                    {key: stored(x) for key, x in variable.attrs.items()}
                )
            for dim, size in data.sizes.items():
                if dim in variables:
                    group[dim].make_scale(dim)
                else:
                    scale = group.create_dataset(dim, (size,), ">f4")
                    scale.make_scale(f"{_WITHOUT_VALUES}{size:10d}")
            for name, variable in variables.items():
                if variable.dims != (name,):
                    for axis, dim in enumerate(variable.dims):
                        group[name].dims[axis].attach_scale(group[dim])
    return buffer


@dataclass(frozen=True)
class Saved:
    """A kind of saved files, for reading and errors."""

    words: str  # such as "a fit"
    command: str  # that writes one
    format: str
    error: Refusal
    opener: Callable[..., Any]  # of xarray


@raising_interrupt()
def read_saved(path: str | os.PathLike[str], kind: Saved) -> Any:
    """Contents of a saved file; nothing in it is executed."""
    error_type = kind.error
    path = path_of(path, "path", error_type)
    again = f"write it again with .save(path) or '{kind.command}'"
    try:
        content = Path(path).read_bytes()
    except FileNotFoundError:
        raise error_type(f"{path}: there is no such file") from None
    except OSError as error:
        raise error_type(f"{path} cannot be read: {error.strerror}") from error
    if content[-_SEAL_SIZE:] != seal(memoryview(content)[:-_SEAL_SIZE]):
        raise error_type(
            f"{path} does not end with the checksum that .save(path) writes: it was cut or "
            "changed, or written by another program or an earlier version. Restore it from a copy, "
            f"or {again}"
        )
    try:
        with kind.opener(io.BytesIO(content), engine="h5netcdf") as opened:
            data = opened.load()
    except Exception as error:  # libraries raise many kinds of errors
        raise error_type(
            f"{path} does not hold {kind.words} ({_brief(error)}); {again}"
        ) from error
    if data.attrs.get("format") != kind.format:
        raise error_type(
            f"{path} has format {data.attrs.get('format')!r}, this version reads {kind.format!r}: "
            f"upgrade soc_pymc if the file is newer, or {again}"
        )
    return data


def _brief(error: Exception) -> str:
    """An error's text on one short line, without control characters."""
    text = "".join(c if c.isprintable() else " " for c in str(error))
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__
