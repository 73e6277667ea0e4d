"""Tables of sums read back from a file: a damaged file must not pass for statistics."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from .schemas import SCHEMAS, Schema

__all__ = ["read_tables"]

Floats = NDArray[np.float64]
Columns = Mapping[str, NDArray[Any]]


def read_tables(
    data: xr.Dataset, words: Sequence[str]
) -> tuple[dict[str, Columns], NDArray[Any], Floats, dict[str, Any]]:
    """Tables of sums, labels, edges and attributes of a file's arrays, if they fit together.

    Parameters
    ----------
    data
        What the file holds.
    words
        Attributes that are words; ``folds`` and ``coarse`` are numbers.

    Raises
    ------
    KeyError, TypeError, ValueError
        If something is missing or of another type, or does not fit the rest.
    """
    attrs: dict[str, Any] = {name: str(data.attrs[name]) for name in words}
    attrs |= {name: int(data.attrs[name]) for name in ("folds", "coarse")}
    json.loads(attrs["roles"])
    edges = data["edges"].to_numpy().astype(float)
    labels = np.array([str(label) for label in data["label"].to_numpy()], dtype=object)
    if not (np.diff(edges) > 0).all() or list(labels) != sorted(set(labels)):
        raise ValueError("edges or labels do not rise")
    schema = SCHEMAS[attrs["kind"]]
    tables: dict[str, Columns] = {name: _read(data, schema, name) for name in schema.tables}
    folds, coarse = max(attrs["folds"], 1), attrs["coarse"]
    for name, table in tables.items():
        most = {"bin": len(edges), "group": len(labels) - 1, "fold": folds - 1, "n": np.inf}
        for column, top in most.items():
            values = table.get(column, np.zeros(0))
            if ((values < 0) | (values > top)).any():
                raise ValueError(f"{name}_{column} is out of range")
    whole = [tables[name] for name in ("part", *schema.margins)]
    whole += [{**tables["joint"], "bin": tables["joint"]["bin"] * coarse}] if coarse else []
    for column in schema.whole:
        sums = [np.bincount(t["bin"] // max(coarse, 1), t[column], 1) for t in whole]
        if not all(len(s) == len(sums[0]) and (s == sums[0]).all() for s in sums):
            raise ValueError(f"the cells do not add up to {column}")
    return tables, labels, edges, attrs


def _read(data: xr.Dataset, schema: Schema, name: str) -> Columns:
    columns: dict[str, NDArray[Any]] = {}
    for column in schema.columns(name):
        values = data[f"{name}_{column}"]
        if values.dims != (name,):
            raise ValueError(f"{name}_{column} has dims {values.dims}")
        kind = np.float64 if column in schema.tables[name].reals else np.int64
        columns[column] = values.to_numpy().astype(kind, casting="safe")
    return columns
