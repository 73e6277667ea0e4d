"""Plain netCDF4 files read by h5py.

h5netcdf looks every array up some hundred times, so that a fit of 200 arrays takes it seconds. This
reader knows only what saved results hold: arrays of numbers and text whose dims are scales of the
file. Its caller compares a digest, and leaves all else to h5netcdf.
"""

from typing import IO, Any

import numpy as np
import xarray as xr

_BARE = b"This is a netCDF dimension but not a netCDF variable"
_RENAMED = "_nc4_non_coord_"  # a variable that has the name of a dim but other dims


def read_plain(file: IO[bytes], tree: bool) -> xr.Dataset | xr.DataTree:
    """The file's groups as a tree, or its root as a Dataset; errors of many kinds where strange."""
    import h5py

    with h5py.File(file, "r") as opened:
        if not tree:
            return _dataset(opened, "/")
        groups: dict[str, xr.Dataset] = {}
        _add_groups(groups, opened, "/")
    return xr.DataTree.from_dict(groups)


def _add_groups(found: dict[str, xr.Dataset], group: Any, path: str) -> None:
    import h5py

    found[path] = _dataset(group, path)
    for name, entry in group.items():
        if isinstance(entry, h5py.Group):
            _add_groups(found, entry, f"{path.rstrip('/')}/{name}")


def _dataset(group: Any, path: str) -> xr.Dataset:
    import h5py

    variables = {
        name.removeprefix(_RENAMED): xr.Variable(
            _dims(entry, name), _values(entry), _attributes(entry)
        )
        for name, entry in group.items()
        if isinstance(entry, h5py.Dataset) and not entry.attrs.get("NAME", b"").startswith(_BARE)
    }
    return xr.decode_cf(xr.Dataset(variables, attrs=_attributes(group)))


def _dims(entry: Any, name: str) -> tuple[str, ...]:
    if entry.ndim == 0:
        return ()
    scales = entry.attrs.get("DIMENSION_LIST")
    if scales is None:  # the scale of its own dim
        if entry.ndim != 1 or entry.attrs["CLASS"] != b"DIMENSION_SCALE":
            raise ValueError(f"{name!r} has dims that are no scales")
        return (name,)
    return tuple(entry.file[scale[0]].name.rpartition("/")[2] for scale in scales)


def _values(entry: Any) -> Any:
    import h5py

    if h5py.check_string_dtype(entry.dtype) is not None:
        return np.asarray(entry.asstr()[()], dtype=str)
    return np.asarray(entry[()])


def _attributes(entry: Any) -> dict[str, Any]:
    import h5py
    from h5netcdf.attrs import Attributes

    found = dict(Attributes(entry.attrs, None, h5py))
    return {k: v.decode() if isinstance(v, bytes) else v for k, v in found.items()}
