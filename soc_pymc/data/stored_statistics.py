"""Read tables of sums from a file, and check that they have the form of saved statistics.

The file's digest covers the numbers; names, types, shapes and keys are checked here.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from .._lib.arrays import Floats
from ..families.outcomes import OUTCOMES, Outcome
from .binning import Columns
from .days import is_day
from .folds import BLOCKS
from .groups import CROSS, group_roles, key_roles, roles_of_groups

_OPTIONAL = {"id", "fold", "cluster", "date"}  # roles that items may have, besides those of groups


def read_tables(
    data: xr.Dataset, words: Sequence[str]
) -> tuple[dict[str, Columns], NDArray[Any], Floats, dict[str, Any]]:
    """Tables of sums, labels, edges and attributes of a file's arrays, if they are consistent.

    `words` are the attributes with text; ``folds`` and ``coarse`` are numbers. KeyError, TypeError
    or ValueError name what is missing, unexpected, or of another type.
    """
    attrs = _read_attrs(data, [*words, *(name for name in ("weights",) if name in data.attrs)])
    outcome = OUTCOMES[attrs["kind"]]
    if attrs["cells"] != outcome.grid:
        raise ValueError(
            f"its cells are of another version ({attrs['cells']!r}, not {outcome.grid!r})"
        )
    roles = read_roles(attrs, outcome)
    if ("cluster" in roles) != (attrs["folds_by"] == "cluster"):
        raise ValueError(f"folds are by {attrs['folds_by']}, and roles are {', '.join(roles)}")
    _check_names(data, outcome)
    edges = _read(data, "edges", "edge", np.float64)
    if not (np.isfinite(edges).all() and (np.diff(edges) > 0).all()):
        raise ValueError("edges do not rise")
    labels = _read_labels(data, key_roles(roles))
    tables: dict[str, Columns] = {}
    real = {"weights"} & attrs.keys() and set(outcome.integers)  # sums of weighted items
    for name, table in outcome.tables.items():
        tables[name] = {
            column: _read(
                data,
                f"{name}_{column}",
                name,
                np.float64 if column in {*table.reals, *real} else np.int64,
            )
            for column in outcome.columns(name)
        }
    _check_keys(tables, len(edges) + 1, len(labels), attrs)
    return tables, labels, edges, attrs


def _read_attrs(data: xr.Dataset, words: Sequence[str]) -> dict[str, Any]:
    attrs: dict[str, Any] = {name: data.attrs[name] for name in words}
    for name, value in attrs.items():
        if not isinstance(value, str):
            raise TypeError(f"attribute {name!r} is no text")
    if attrs["kind"] not in OUTCOMES:
        raise ValueError(f"kind {attrs['kind']!r} is not one of {', '.join(OUTCOMES)}")
    for name in ("folds", "coarse"):
        number = data.attrs[name]
        if isinstance(number, bool | np.bool_) or not isinstance(number, int | np.integer):
            raise TypeError(f"attribute {name!r} is no whole number")
        if number < 0:
            raise ValueError(f"attribute {name!r} is negative")
        attrs[name] = int(number)
    return attrs


def read_roles(attrs: Mapping[Any, Any], outcome: Outcome) -> dict[str, str]:
    """Columns of items by role, stored as JSON."""
    roles = json_object(attrs["roles"])
    if not all(isinstance(v, str) for v in roles.values()):
        raise TypeError("roles are not names of columns")
    need, groups = set(outcome.bounds), group_roles(roles)
    in_order = list(groups) == list(roles_of_groups(tuple(groups.values()) or None))
    if not in_order or not need <= set(roles) <= need | _OPTIONAL | set(groups):
        raise ValueError(f"roles {', '.join(roles)} are not those of {outcome.kind} items")
    return roles


def json_object(text: Any) -> dict[str, Any]:
    """An attribute that a file stores as a JSON object."""
    if not isinstance(text, str):
        raise TypeError("an attribute that should be JSON is no text")
    try:
        found = json.loads(text)
    except RecursionError:
        raise ValueError("an attribute is JSON that is nested too deeply") from None
    if not isinstance(found, dict):
        raise TypeError(f"an attribute is JSON of a {type(found).__name__}, not of names")
    return found


def _check_names(data: xr.Dataset, outcome: Outcome) -> None:
    """Check that exactly the expected variables exist; an ignored one might be a renamed one."""
    expected = {"edges", "label", *outcome.sums("part")}
    expected |= {f"{name}_{column}" for name in outcome.tables for column in outcome.columns(name)}
    found = set(map(str, data.variables))
    if expected - found:
        raise KeyError(f"there is no variable {min(expected - found)!r}")
    if found - expected:
        raise ValueError(f"there is a variable {min(found - expected)!r} too many")
    if set(data.coords) != {"label"}:
        raise ValueError("its coordinates are not the labels of groups")


def _read_labels(data: xr.Dataset, keys: Mapping[str, str]) -> NDArray[Any]:
    values = data["label"]
    labels = values.to_numpy().tolist()
    if values.dims != ("label",) or not all(isinstance(label, str) for label in labels):
        raise TypeError("labels of groups are not text")
    if labels != sorted(set(labels)):
        raise ValueError("labels do not rise")
    if len(keys) > 1 and any(label.count(CROSS) != len(keys) - 1 for label in labels):
        raise ValueError(f"labels of groups are not of {len(keys)} columns")
    if "date" in keys and not all(is_day(label.partition(CROSS)[0]) for label in labels):
        raise ValueError("labels of groups do not begin with days")
    return np.array(labels, dtype=object)


def _read(data: xr.Dataset, name: str, dim: str, kind: type[Any]) -> NDArray[Any]:
    values = data[name]
    if values.dims != (dim,):
        raise ValueError(f"{name} has dims {values.dims}")
    if values.dtype.kind not in "iuf" or not np.can_cast(values.dtype, kind, casting="safe"):
        raise TypeError(f"{name} has type {values.dtype}")
    return values.to_numpy().astype(kind)


def _check_keys(
    tables: Mapping[str, Columns], bins: int, groups: int, attrs: Mapping[str, Any]
) -> None:
    """Check that bins, groups and folds are in range."""
    coarse = attrs["coarse"]
    if not coarse and len(tables["joint"]["n"]):
        raise ValueError("there are joint cells, and coarse=0")
    folds = BLOCKS if attrs["folds_by"] == "cluster" else max(attrs["folds"], 1)
    most = {"bin": bins - 1, "group": groups - 1, "fold": folds - 1}
    for name, table in tables.items():
        if (table["n"] <= 0).any():  # weighted items have fractions
            raise ValueError(f"{name}_n has numbers of items below 1")
        for column, top in most.items():
            if column not in table:
                continue
            last = top // max(coarse, 1) if (name, column) == ("joint", "bin") else top
            if ((table[column] < 0) | (table[column] > last)).any():
                raise ValueError(f"{name}_{column} is out of range")
