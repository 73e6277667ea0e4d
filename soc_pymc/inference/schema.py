"""ArviZ's conventions for a fit's tree: chains, coordinates of every dim, labels, attributes."""

from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import xarray as xr

from .._lib.arrays import Floats
from .._model.splines import POSITION

_CHAINS = (4, 3, 2, 1)
_SAMPLED = ("chain", "draw")
_DIGITS = 4  # digits in labels of knots, more only where two would be equal


def in_chains(draws: xr.Dataset) -> xr.Dataset:
    """Independent draws (1, n, ...) as up to four chains, as R-hat needs two."""
    number = draws.sizes["draw"]
    chains = next(chains for chains in _CHAINS if number % chains == 0)
    shape = chains, number // chains
    variables = {
        name: (values.dims, values.to_numpy().reshape(*shape, *values.shape[2:]))
        for name, values in draws.data_vars.items()
    }
    sampled = {name: np.arange(size) for name, size in zip(_SAMPLED, shape, strict=True)}
    return xr.Dataset(variables, {**draws.coords, **sampled})


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
        labels = data.coords[dim].to_numpy() if dim in data.coords else np.arange(size)
        values = known.get(str(dim), labels)
        coords[str(dim)] = labels if dim in _SAMPLED or len(values) != size else values
    sampled = [dim for dim in _SAMPLED if dim in data.dims]
    return data.assign_coords(coords).assign_attrs(make_attrs(_library(), sample_dims=sampled))


@cache
def _library() -> dict[str, str]:
    library = {"inference_library": "soc_pymc"}
    with suppress(PackageNotFoundError):  # sources that were not installed
        library["inference_library_version"] = version("soc_pymc")
    return library


def short(values: Floats) -> Floats:
    """Rising numbers with four significant digits, or as many more as keep them apart."""
    for digits in range(_DIGITS, 17):
        rounded = np.array([float(f"{x:.{digits}g}") for x in values])
        if (np.diff(rounded) > 0).all():
            return rounded
    return values
