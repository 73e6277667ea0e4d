"""Atomic writing of files, and netCDF files that end with a checksum.

A saved file is an HDF5 file plus one line with the SHA-256 of all bytes before it, which HDF5
ignores. A file that was cut or changed by one bit is refused before HDF5 reads it. A second digest,
of names, dims and values, checks that the loaded contents equal the saved ones, whatever the
libraries in between do.
"""

import errno
import hashlib
import io
import json
import os
import platform
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
import xarray as xr

from .arguments import Refusal, path_of
from .netcdf import read_plain
from .threads import raising_interrupt

_STALE_SECONDS = 86_400.0
_TEMPORARY = re.compile(r"(\..*\.)(\w+)-(\d+)\.\w+\.part")  # stem, host and process
_LONGEST = 150  # bytes of the target's name in the temporary name
_SEAL = re.compile(rb"\nsoc_pymc sha256 ([0-9a-f]{64})\n")
_SEAL_SIZE = 82
_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_BLOCK = 1 << 20
_DIGEST = "digest"
_DEEPEST = 8
MOST_ITEMS = 100_000
"""Largest number of objects in a file; saved results have a few hundred."""


# --- atomic writing -------------------------------------------------------------------------------


@contextmanager
def replacing(path: str | os.PathLike[str], *, tidy: bool = True) -> Iterator[Path]:
    """Give a temporary name in the folder of `path`; rename it to `path` if the block succeeds.

    If the block fails, no half-written file is left. Data are flushed to disk before the file gets
    its name, so this also holds after a loss of power. A killed process leaves a temporary file,
    which the next one to write `path` removes, unless `tidy` is False because its caller has called
    `remove_stale`. A symbolic link stays; its target is replaced, with its permissions. Raises
    OSError as `check_target` does, before anything is written, or if the disk is full.
    """
    target = check_target(path)
    if tidy:
        remove_stale([target])
    temporary = _stem(target, f"{_host()}-{os.getpid()}.{secrets.token_hex(4)}.part")
    handle = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        if os.name == "posix":
            _lock(handle)
            if target.exists():
                os.fchmod(handle, stat.S_IMODE(target.stat().st_mode))
        yield temporary
        os.fsync(handle)
        if os.name != "posix":  # on systems where an open file cannot be renamed
            os.close(handle)
            handle = -1
        temporary.replace(target)
        _sync_folder(target.parent)
    finally:
        if handle >= 0:
            os.close(handle)
        temporary.unlink(missing_ok=True)


def check_target(path: str | os.PathLike[str]) -> Path:
    """Refuse a path that cannot be written, before long work starts.

    Returns the target if `path` is a symbolic link. OSError names the problem: a folder, a device,
    write protection, or a folder that is missing or cannot be written to.
    """
    name, target = os.fspath(path), Path(os.path.realpath(path))
    folder = target.parent
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, "a folder is there: give the name of a file", name)
    if target.exists() and not target.is_file():
        raise OSError(errno.EINVAL, "no ordinary file, so that it cannot be replaced", name)
    if not folder.is_dir():
        raise FileNotFoundError(errno.ENOENT, f"there is no folder {folder}, make it first", name)
    if target.exists() and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, "the file there is write-protected", name)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, f"the folder {folder} cannot be written to", name)
    return target


def remove_stale(targets: Iterable[Path]) -> None:
    """Remove temporary files of killed processes, or those that are a day old.

    Each folder of the targets is listed once. A process holds a lock on its temporary file as long
    as it runs, and locked files stay, whatever the clock says and wherever the process runs.
    """
    stems = {_stem(Path(os.path.realpath(target)), "") for target in targets}
    for folder in {stem.parent for stem in stems}:
        for path in list(folder.glob(".*.part")):
            match = _TEMPORARY.fullmatch(path.name)
            if match and folder / match[1] in stems:
                _remove_if_stale(path, match[2], int(match[3]))


def _remove_if_stale(path: Path, host: str, process: int) -> None:
    """Remove a temporary file of a process on a host, unless it may be in use."""
    with suppress(FileNotFoundError):  # its process has just finished it
        old = time.time() - path.stat().st_mtime > _STALE_SECONDS
        gone = host == _host() and not _is_running(process)
        if (old or gone) and not _is_held(path):
            path.unlink(missing_ok=True)


def _stem(target: Path, end: str) -> Path:
    """A hidden name in the target's folder, no longer than file systems allow."""
    name = target.name
    if len(os.fsencode(name)) > _LONGEST:
        name = name[:20] + hashlib.sha256(os.fsencode(name)).hexdigest()[:20]
    return target.parent / f".{name}.{end}"


def _lock(handle: int) -> bool:
    """Lock an open file for this process; False if another process holds the lock."""
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        pass
    return True


def _is_held(path: Path) -> bool:
    """Whether a running process writes this file."""
    if os.name != "posix":
        return False
    try:
        handle = os.open(path, os.O_RDWR)
    except PermissionError:  # another user's
        return True
    try:
        return not _lock(handle)
    finally:
        os.close(handle)


def _sync_folder(folder: Path) -> None:
    """Flush a folder's entries to disk, where the system can open folders."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # file systems that cannot
            raise
    finally:
        os.close(handle)


def _host() -> str:
    return re.sub(r"\W", "_", platform.node())[:40] or "host"


def _is_running(pid: int) -> bool:
    """Whether a process of this machine is running; unknown counts as yes."""
    if os.name != "posix":
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


# --- saved files with a checksum -----------------------------------------------------------------


def seal(content: bytes | memoryview) -> bytes:
    """The line that ends a saved file: SHA-256 of the bytes before it."""
    return b"\nsoc_pymc sha256 " + hashlib.sha256(content).hexdigest().encode() + b"\n"


@raising_interrupt()
def save_netcdf(
    data: xr.Dataset | xr.DataTree,
    path: str | os.PathLike[str],
    error_type: Refusal,
    check: Callable[[Any], object] | None = None,
) -> None:
    """Write an xarray Dataset or DataTree to one netCDF file with a checksum, atomically.

    The file is made in memory first, because the HDF5 library crashes the process on a full disk.
    It is read back and passed to `check` before an older file is replaced, so a saved file can be
    loaded. Raises `error_type` if this fails, or if `path` is not the name of a file.
    """
    path = path_of(path, "path", error_type)
    marked = data.copy()
    if isinstance(marked, xr.DataTree):
        for node in marked.subtree:
            node.dataset = node.to_dataset(inherit=False).drop_encoding()
    else:
        marked = marked.drop_encoding()
    marked.attrs[_DIGEST] = content_digest(data)
    made = io.BytesIO()
    opener = xr.open_datatree if isinstance(data, xr.DataTree) else xr.open_dataset
    try:
        marked.to_netcdf(made, engine="h5netcdf")
        again = _contents(made, opener)
        _check_digest(again)
        if check is not None:
            check(again)
    except Exception as error:  # xarray, h5netcdf and h5py raise many kinds
        raise error_type(
            f"{path} is not written, as it could not be read again ({_brief(error)})"
        ) from error
    content = made.getbuffer()
    with replacing(path) as temporary, open(temporary, "wb") as file:
        file.write(content)
        file.write(seal(content))


@raising_interrupt()
def read_saved(
    path: str | os.PathLike[str],
    opener: Callable[..., Any],
    form: str,
    error_type: Refusal,
    what: str,
    command: str,
) -> Any:
    """Contents of a saved file; nothing in it is executed.

    `opener` is ``xarray.open_dataset`` or ``open_datatree``, `form` the expected attribute
    ``format``, `what` the expected contents and `command` the command that writes them. Raises
    `error_type` for a file that is missing, has another format, or was changed.
    """
    path = path_of(path, "path", error_type)
    again = f"write it again with .save(path) or '{command}'"
    try:
        with open(path, "rb") as file:
            if fault := _fault_of_bytes(file):
                raise error_type(f"{path} {fault.format(what=what)} {again}")
            try:
                data = _contents(file, opener)
            except Exception as error:  # libraries raise many kinds of errors
                text = f"{path} does not hold {what} ({_brief(error)}); {again}"
                raise error_type(text) from error
    except FileNotFoundError:
        raise error_type(f"{path}: there is no such file") from None
    except OSError as error:
        raise error_type(f"{path} cannot be read: {error.strerror}") from error
    found = data.attrs.get("format")
    if found != form:
        kind, remedy = repr(found)[:100], again
        if _is_newer(found, form):
            kind, remedy = f"{kind} of a newer version", f"upgrade soc_pymc, or {again}"
        raise error_type(f"{path} has format {kind}, this version reads {form!r}: {remedy}")
    try:
        _check_digest(data)
    except ValueError as error:
        raise error_type(f"{path} is damaged ({error}); {again}") from error
    return data


def _is_newer(found: Any, form: str) -> bool:
    """Whether a format is the expected one with a higher number."""
    number = re.fullmatch(re.escape(form.rstrip("0123456789")) + r"([0-9]{1,9})", str(found))
    return number is not None and int(number[1]) > int(form.rpartition("-")[2])


def _brief(error: Exception) -> str:
    """An error's text on one short line, without control characters."""
    text = "".join(c if c.isprintable() else " " for c in str(error))
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__


def _fault_of_bytes(file: IO[bytes]) -> str:
    """What is wrong with a file's checksum, or nothing. Reads in blocks."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    if file.read(len(_SIGNATURE)) != _SIGNATURE:
        return "does not hold {what}, as it does not begin as a netCDF4 file does:"
    file.seek(max(size - _SEAL_SIZE, 0))
    last = _SEAL.fullmatch(file.read())
    if last is None:
        return (
            "does not end with the checksum that .save(path) writes. It was cut or changed, or "
            "written by another program or an earlier version: restore it from a copy, or"
        )
    file.seek(0)
    digest, left = hashlib.sha256(), size - _SEAL_SIZE
    while left > 0 and (block := file.read(min(_BLOCK, left))):
        digest.update(block)
        left -= len(block)
    if digest.hexdigest().encode() != last[1]:
        return "was changed after it was written (its checksum differs); restore it from a copy, or"
    return ""


def _contents(file: IO[bytes], opener: Callable[..., Any]) -> Any:
    """Contents of an open file, which must hold only plain arrays."""
    size = file.seek(0, os.SEEK_END)
    _refuse_strange(file, size)
    file.seek(0)
    with suppress(Exception):  # h5py raises many kinds, and h5netcdf says what is wrong
        plain = read_plain(file, opener is xr.open_datatree)
        if _is_as_saved(plain):
            return plain
    file.seek(0)
    with opener(file, engine="h5netcdf") as opened:
        return opened.load()


def _refuse_strange(file: IO[bytes], size: int) -> None:
    """Refuse what saved results never contain and what could reach beyond the file.

    These are links to other files, arrays stored elsewhere, filters (which may load a plugin or
    expand to a huge size), arrays larger than the file, and objects other than arrays of numbers or
    text.
    """
    import h5py

    file.seek(0)
    with h5py.File(file, "r") as opened:
        for number, (name, entry) in enumerate(_entries(opened, "", 0)):
            if number >= MOST_ITEMS:
                raise ValueError(f"it holds more than {MOST_ITEMS:,} objects")
            if isinstance(entry, h5py.Dataset) and (fault := _fault_of_array(entry, size)):
                raise ValueError(f"{name!r} {fault}")


def _entries(group: Any, at: str, depth: int) -> Iterator[tuple[str, Any]]:
    """Names and objects of a file, following hard links only."""
    import h5py

    if depth > _DEEPEST:
        raise ValueError("its groups are nested too deeply")
    for name in group:
        path = f"{at}/{name}"
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            raise ValueError(f"{path!r} is a link")
        entry = group[name]
        yield path, entry
        if isinstance(entry, h5py.Group):
            yield from _entries(entry, path, depth + 1)
        elif not isinstance(entry, h5py.Dataset):
            raise ValueError(f"{path!r} is a type, not an array")


def _fault_of_array(entry: Any, size: int) -> str:
    """Why this package cannot have saved an array, or nothing."""
    import h5py

    made = entry.id.get_create_plist()
    if entry.is_virtual or made.get_external_count():
        return "is stored in another file"
    if made.get_nfilters():
        return "is compressed or filtered"
    if entry.dtype.kind == "O" and h5py.check_string_dtype(entry.dtype) is None:
        return f"holds objects ({entry.id.get_type().get_class()}), not numbers or text"
    if entry.dtype.kind not in "iufbSO" and not h5py.check_enum_dtype(entry.dtype):
        return f"has type {entry.dtype}, neither numbers nor text"
    bytes_of_it = int(entry.size or 0) * entry.dtype.itemsize
    no_values = str(_text(entry.attrs.get("NAME", b""))).startswith("This is a netCDF dimension")
    if bytes_of_it > size and not no_values:
        return f"has {bytes_of_it:,} bytes in a file of {size:,}"
    return ""


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _is_as_saved(data: Any) -> bool:
    """Whether the contents are those of the digest, which stays."""
    found = data.attrs.pop(_DIGEST, None)
    same = found == content_digest(data)
    if found is not None:
        data.attrs[_DIGEST] = found
    return same


def _check_digest(data: Any) -> None:
    """Refuse contents that differ from the saved ones; remove the digest."""
    same = _is_as_saved(data)
    data.attrs.pop(_DIGEST, None)
    if not same:
        raise ValueError("its contents are not those that were saved")


def content_digest(data: xr.Dataset | xr.DataTree) -> str:
    """SHA-256 of names, dims, types, values and attributes, the same in memory and in a file.

    Numbers count bit for bit as little-endian bytes, text by its characters, however it is stored.
    """
    whole = hashlib.sha256()
    if isinstance(data, xr.DataTree):
        nodes = {node.path: node.to_dataset(inherit=False) for node in data.subtree}
    else:
        nodes = {"/": data}
    for path in sorted(nodes):
        _add(whole, ["group", path, _plain(nodes[path].attrs)])
        variables = nodes[path].variables
        for name in sorted(map(str, variables)):
            variable = variables[name]
            values = np.asarray(variable.to_numpy())
            coordinate = name in nodes[path].coords
            _add(whole, [name, coordinate, list(variable.dims), list(values.shape)])
            _add(whole, _plain(variable.attrs))
            _add_values(whole, values)
    return whole.hexdigest()


def _add(digest: Any, record: Any) -> None:
    digest.update(json.dumps(record, sort_keys=True).encode())


def _add_values(digest: Any, values: np.ndarray[Any, Any]) -> None:
    if values.dtype.kind in "OUST":
        _add(digest, ["text", [_text(value) for value in values.ravel().tolist()]])
    elif values.dtype.kind in "mM":  # netCDF stores times as numbers
        nanoseconds = values.astype(f"{values.dtype.kind}8[ns]").astype("<i8")
        _add(digest, values.dtype.kind)
        digest.update(nanoseconds.tobytes())
    else:
        ordered = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("<"))
        _add(digest, ordered.dtype.str)
        digest.update(ordered.data if ordered.size else b"")


def _plain(attrs: Any) -> list[Any]:
    """Attributes as pairs of names and lists, because reading changes types of numbers."""
    pairs = []
    for name, value in attrs.items():
        if name != _DIGEST:
            listed = np.asarray(value).ravel().tolist()
            pairs.append([str(name), [_plain_value(part) for part in listed]])
    return sorted(pairs, key=lambda pair: str(pair[0]))


def _plain_value(value: Any) -> float | str:
    if isinstance(value, bool | int | float) and abs(value) < 1 << 53:
        return float(value)
    return _text(value)
