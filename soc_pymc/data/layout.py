"""Tables of sums as one xarray Dataset, and how two of these are added."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from .._lib.arguments import shown
from .._lib.arrays import Floats
from .._lib.errors import StatisticsError
from ..families.outcomes import OUTCOMES
from .binning import EXTREMES, Columns, added
from .groups import roles_of

FORMAT = "soc_pymc-statistics-2"
_SHARED = ("kind", "roles", "cells", "folds_by", "weights", "folds")  # by statistics that are added


def dataset_of(
    tables: Mapping[str, Columns], labels: NDArray[Any], edges: Floats, attrs: Mapping[str, Any]
) -> xr.Dataset:
    """Read-only Dataset of tables of sums, whose rows may repeat their keys.

    A table without columns is empty; `labels` are the sorted labels of the groups, by code; the
    attribute ``kind`` determines the tables.
    """
    outcome = OUTCOMES[attrs["kind"]]
    variables: dict[str, tuple[str, NDArray[Any]]] = {"edges": ("edge", np.array(edges))}
    for name, layout in outcome.tables.items():
        empty_integers = dict.fromkeys(
            (*layout.keys, *outcome.integers), np.empty(0, dtype=np.int64)
        )
        table = tables[name] or empty_integers | dict.fromkeys(layout.reals, np.empty(0))
        rows = added(table, layout.keys, outcome.sums(name))
        variables |= {f"{name}_{column}": (name, values) for column, values in rows.items()}
        if name == "part":
            totals = added(rows, ("bin",), outcome.sums(name))
    for name in outcome.sums("part"):
        empty = np.nan if name in EXTREMES else 0
        values = np.full(len(edges) + 1, empty, dtype=totals[name].dtype)
        values[totals["bin"]] = totals[name]
        variables[name] = ("bin", values)
    for _, values in variables.values():
        values.flags.writeable = False
    coords = {"label": ("label", np.asarray(labels, dtype=object))}
    return xr.Dataset(variables, coords, attrs=dict(attrs))


def table_of(data: xr.Dataset, name: str) -> dict[str, NDArray[Any]]:
    """Columns of a table as they are stored; with dates, groups are those of a day."""
    columns = OUTCOMES[data.attrs["kind"]].columns(name)
    return {column: data[f"{name}_{column}"].to_numpy() for column in columns}


def sum_of(one: xr.Dataset, other: xr.Dataset) -> xr.Dataset:
    """Dataset of the items of two; joint cells of only some items are dropped."""
    both = one, other
    for name in (*_SHARED, "edges"):
        mine, its = (
            d["edges"].to_numpy().tolist() if name == "edges" else d.attrs.get(name, "none")
            for d in both
        )
        if mine != its and (name != "folds" or one.attrs["folds_by"] != "column"):
            raise StatisticsError(
                f"statistics of different {name} cannot be added ({shown(mine)} and {shown(its)}): "
                "summarize both with the same options, the second with edges=first.edges"
            )
    coarse = [int(d.attrs["coarse"]) for d in both]
    attrs = {
        **one.attrs,
        "coarse": max(coarse) if all(coarse) else 0,
        "folds": max(int(d.attrs["folds"]) for d in both),
    }
    labels = np.unique(np.concatenate([d["label"].to_numpy() for d in both]))
    tables: dict[str, Columns] = {}
    for name in OUTCOMES[one.attrs["kind"]].tables:
        parts = [table_of(d, name) for d in both]
        for part, d, wide in zip(parts, both, coarse, strict=True):
            part["group"] = np.searchsorted(labels, d["label"].to_numpy())[part["group"]]
            if name == "joint" and attrs["coarse"]:
                part["bin"] = part["bin"] // (attrs["coarse"] // wide)
        tables[name] = {c: np.concatenate([part[c] for part in parts]) for c in parts[0]}
    if not attrs["coarse"]:
        tables["joint"] = {}
    return dataset_of(tables, labels, one["edges"].to_numpy(), attrs)


def undated(attrs: Mapping[Any, Any]) -> dict[str, Any]:
    """The attributes of statistics without a column of dates."""
    roles = {role: name for role, name in roles_of(attrs).items() if role != "date"}
    return {**attrs, "roles": json.dumps(roles)}
