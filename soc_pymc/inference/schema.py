"""ArviZ's conventions for a fit's tree: chains, coordinates of every dim, labels, attributes."""

from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import xarray as xr

from .._lib.arrays import Floats
from .._model.splines import POSITION

_CHAINS = (4, 3, 2, 1)
_SAMPLED = ("chain", "draw")
_DIGITS = 4  # of the labels of knots, and more only where two would be equal


def in_chains(draws: xr.Dataset) -> xr.Dataset:
    """Independent draws (1, n, ...) as up to four chains, as R-hat needs two."""
    number = draws.sizes["draw"]
    chains = next(chains for chains in _CHAINS if number % chains == 0)
    shape = chains, number // chains
    found = {
        name: (values.dims, values.to_numpy().reshape(*shape, *values.shape[2:]))
        for name, values in draws.data_vars.items()
    }
    coords = {name: own for name, own in draws.coords.items() if name not in _SAMPLED}
    sampled = {name: np.arange(size) for name, size in zip(_SAMPLED, shape, strict=True)}
    return xr.Dataset(found, {**sampled, **coords})


def conventional(tree: xr.DataTree) -> xr.DataTree:
    """The tree with a coordinate on every dim, short labels of knots, and ArviZ's attributes."""
    known: dict[str, Any] = {}
    for node in tree.children.values():
        known |= {str(dim): node.coords[dim].to_numpy() for dim in node.dims if dim in node.coords}
    knots = {dim: x for dim, x in known.items() if dim.endswith("_knot") and x.dtype.kind == "f"}
    known |= {dim: short(positions) for dim, positions in knots.items()}
    groups = {name: _completed(node.to_dataset(), known) for name, node in tree.children.items()}
    exact = {f"{dim}{POSITION}": (dim, positions) for dim, positions in knots.items()}
    groups["constant_data"] = (
        groups["constant_data"].assign(exact).assign_coords({dim: known[dim] for dim in knots})
    )
    made = xr.DataTree.from_dict(groups)
    made.attrs = dict(tree.attrs)
    return made


def _completed(data: xr.Dataset, known: dict[str, Any]) -> xr.Dataset:
    from arviz_base.base import make_attrs  # slow to import, and scoring needs no attributes

    coords: dict[str, Any] = {}
    for dim, size in data.sizes.items():
        own = data.coords[dim].to_numpy() if dim in data.coords else np.arange(size)
        values = known.get(str(dim), own)
        coords[str(dim)] = own if dim in _SAMPLED or len(values) != size else values
    sampled = [dim for dim in _SAMPLED if dim in data.dims]
    return data.assign_coords(coords).assign_attrs(make_attrs(_library(), sample_dims=sampled))


@cache
def _library() -> dict[str, str]:
    name = "soc_pymc"
    try:
        return {"inference_library": name, "inference_library_version": version(name)}
    except PackageNotFoundError:  # sources that were not installed
        return {"inference_library": name}


def short(values: Floats) -> Floats:
    """Rising numbers with four significant digits, or as many more as keep them apart."""
    for digits in range(_DIGITS, 17):
        found = np.array([float(f"{x:.{digits}g}") for x in values])
        if (np.diff(found) > 0).all():
            return found
    return values
