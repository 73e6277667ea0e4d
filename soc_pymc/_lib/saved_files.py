"""Saved statistics and fits: netCDF files that end with a seal, and are read only if it is right.

A file is what the HDF5 library wrote, then one line with the SHA-256 of all bytes before it, which
HDF5 leaves alone. A file that was cut or changed by one bit is refused before the library sees it.
Inside, a second digest of names, dims and values holds what was saved to what is loaded, whatever
the libraries between make of it.
"""

import hashlib
import io
import json
import os
import re
from collections.abc import Callable, Iterator
from typing import IO, Any

import numpy as np
import xarray as xr

from .arguments import Refusal, path_of
from .files import replacing

__all__ = ["MOST_ITEMS", "content_digest", "read_saved", "save_netcdf", "seal"]

_SEAL = re.compile(rb"\nsoc_pymc sha256 ([0-9a-f]{64})\n")
_SEAL_SIZE = 82
_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_BLOCK = 1 << 20
_DIGEST = "digest"
_DEEPEST = 8
MOST_ITEMS = 100_000
"""Objects in a file; saved results have some hundred."""


def seal(content: bytes | memoryview) -> bytes:
    r"""The line that ends a saved file: SHA-256 of the bytes before it.

    Examples
    --------
    >>> seal(b"")
    b'\nsoc_pymc sha256 e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\n'
    """
    return b"\nsoc_pymc sha256 " + hashlib.sha256(content).hexdigest().encode() + b"\n"


# --- writing -------------------------------------------------------------------------------------


def save_netcdf(
    data: xr.Dataset | xr.DataTree,
    path: str | os.PathLike[str],
    error_type: Refusal,
    check: Callable[[Any], object] | None = None,
) -> None:
    """Write an xarray Dataset or DataTree to one sealed netCDF file, whole or not at all.

    It is made in memory first: on a full disk the HDF5 library would take the process with it. It
    is read back before an older file is replaced, so that what cannot be loaded is not saved.

    Parameters
    ----------
    data
        What to write.
    path
        Name of the file.
    error_type
        The error to raise.
    check
        Called with what was read back; raises ValueError, TypeError or KeyError for what loading
        would refuse.

    Raises
    ------
    error_type
        If `path` is no name of a file, netCDF has no form for the contents, or they would not be
        read back as they are.
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


# --- reading -------------------------------------------------------------------------------------


def read_saved(
    path: str | os.PathLike[str],
    opener: Callable[..., Any],
    form: str,
    error_type: Refusal,
    what: str,
    command: str,
) -> Any:
    """Contents of a saved file, as they were saved; nothing in it is executed.

    Parameters
    ----------
    path
        Name of the file.
    opener
        ``xarray.open_dataset`` or ``xarray.open_datatree``.
    form
        The format expected in the attribute ``format``.
    error_type, what, command
        The error to raise, what the file should hold, and the command that writes it.

    Raises
    ------
    error_type
        If `path` is no name of a file, or the file is missing, was changed or cut, holds something
        else, or has another format.
    """
    path = path_of(path, "path", error_type)
    again = f"write it again with .save(path) or '{command}'"
    try:
        file = open(path, "rb")  # noqa: SIM115
    except FileNotFoundError:
        raise error_type(f"{path}: there is no such file") from None
    except OSError as error:
        raise error_type(f"{path} cannot be read: {error.strerror}") from error
    with file:
        try:
            fault = _fault_of_bytes(file)
        except OSError as error:
            raise error_type(f"{path} cannot be read: {error.strerror}") from error
        if fault:
            raise error_type(f"{path} {fault.format(what=what)} {again}")
        try:
            data = _contents(file, opener)
        except Exception as error:  # whatever the libraries raise
            raise error_type(f"{path} does not hold {what} ({_brief(error)}); {again}") from error
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
    """Whether a format is the expected one but for a higher number."""
    number = re.fullmatch(re.escape(form.rstrip("0123456789")) + r"([0-9]{1,9})", str(found))
    return number is not None and int(number[1]) > int(form.rpartition("-")[2])


def _brief(error: Exception) -> str:
    """An error's text on one line, without control characters and not too long."""
    text = "".join(c if c.isprintable() else " " for c in str(error))
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__


def _fault_of_bytes(file: IO[bytes]) -> str:
    """What is wrong with a file's seal; nothing where it is right. Reads by blocks."""
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
    """What xarray reads of an open file that holds plain arrays and nothing else."""
    size = file.seek(0, os.SEEK_END)
    _refuse_strange(file, size)
    file.seek(0)
    with opener(file, engine="h5netcdf") as opened:
        return opened.load()


def _refuse_strange(file: IO[bytes], size: int) -> None:
    """Refuse what saved results never have and what could reach beyond the file.

    Links to other files, arrays stored elsewhere, filters (which may load a plugin, or unpack a
    little into a lot), arrays larger than the file, objects that are no arrays of numbers or text.
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
    """Names and objects of a file, following hard links alone."""
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
    """What makes an array one that was not saved by this package."""
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


# --- contents ------------------------------------------------------------------------------------


def _check_digest(data: Any) -> None:
    """Refuse contents that are not those that were saved; remove the digest."""
    found = data.attrs.pop(_DIGEST, None)
    if found != content_digest(data):
        raise ValueError("its contents are not those that were saved")


def content_digest(data: xr.Dataset | xr.DataTree) -> str:
    """SHA-256 of names, dims, types, values and attributes, the same in memory and in a file.

    Numbers count bit for bit in the order of little-endian bytes; text by its characters, however
    it is kept.

    Examples
    --------
    >>> one, two = (xr.Dataset({"x": ("row", [1.0, x])}) for x in (2.0, 2.0000001))
    >>> content_digest(one) == content_digest(one.copy())
    True
    >>> content_digest(one) == content_digest(two)
    False
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
    elif values.dtype.kind in "mM":  # netCDF keeps times as numbers
        nanoseconds = values.astype(f"{values.dtype.kind}8[ns]").astype("<i8")
        _add(digest, values.dtype.kind)
        digest.update(nanoseconds.tobytes())
    else:
        ordered = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("<"))
        _add(digest, ordered.dtype.str)
        digest.update(ordered.data if ordered.size else b"")


def _plain(attrs: Any) -> list[Any]:
    """Attributes as pairs of names and lists of values, as numbers come back in other types."""
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
