"""Tables of sums read back from a file: only what has the form of saved statistics passes.

The file's digest vouches for the numbers; here names, types, shapes and keys are checked.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ..families.outcomes import OUTCOMES, Outcome
from .binning import Columns

__all__ = ["json_object", "read_roles", "read_tables"]

Floats = NDArray[np.float64]

_ROLES = ("score", "group", "id", "fold")
_ROLE_OF = {"column": "fold", "id": "id"}
_FOLDED_BY = ("none", "column", "id", "item")


def read_tables(
    data: xr.Dataset, words: Sequence[str]
) -> tuple[dict[str, Columns], NDArray[Any], Floats, dict[str, Any]]:
    """Tables of sums, labels, edges and attributes of a file's arrays, if they fit together.

    `words` are the attributes that are text; ``folds`` and ``coarse`` are numbers. KeyError,
    TypeError or ValueError say what is missing, too much, or of another type.
    """
    attrs, outcome = _read_attrs(data, words)
    _check_names(data, outcome)
    edges = _read(data, "edges", "edge", np.float64)
    labels = _read_labels(data)
    roles = read_roles(attrs, outcome)
    if "group" not in roles and labels.tolist() != [""]:
        raise ValueError("there are labels of groups, and no column of groups")
    if attrs["folds_by"] in _ROLE_OF and _ROLE_OF[attrs["folds_by"]] not in roles:
        raise ValueError(f"there are folds by {attrs['folds_by']!r}, and no such column")
    if not (np.isfinite(edges).all() and (np.diff(edges) > 0).all()):
        raise ValueError("edges do not rise")
    tables: dict[str, Columns] = {
        name: {
            column: _read(
                data,
                f"{name}_{column}",
                name,
                np.float64 if column in outcome.tables[name].reals else np.int64,
            )
            for column in outcome.columns(name)
        }
        for name in outcome.tables
    }
    _check_keys(tables, len(edges) + 1, len(labels), attrs)
    _check_whole(tables, outcome, attrs["coarse"])
    return tables, labels, edges, attrs


def _read_attrs(data: xr.Dataset, words: Sequence[str]) -> tuple[dict[str, Any], Outcome]:
    unknown = set(data.attrs) - {*words, "folds", "coarse"}
    if unknown:
        raise ValueError(f"there is an attribute {min(map(str, unknown))!r} too many")
    attrs: dict[str, Any] = {}
    for name in words:
        attrs[name] = data.attrs[name]
        if not isinstance(attrs[name], str):
            raise TypeError(f"attribute {name!r} is no text")
    for name in ("folds", "coarse"):
        number = data.attrs[name]
        if isinstance(number, bool | np.bool_) or not isinstance(number, int | np.integer):
            raise TypeError(f"attribute {name!r} is no whole number")
        attrs[name] = int(number)
    return attrs, _outcome_of(attrs)


def _outcome_of(attrs: Mapping[str, Any]) -> Outcome:
    """The kind of items, if the other attributes are such as it has."""
    if attrs["kind"] not in OUTCOMES:
        raise ValueError(f"kind {attrs['kind']!r} is not one of {', '.join(OUTCOMES)}")
    outcome = OUTCOMES[attrs["kind"]]
    if attrs["cells"] != outcome.grid:
        raise ValueError(
            f"its cells are of another version ({attrs['cells']!r}, not {outcome.grid!r})"
        )
    if attrs["folds_by"] not in _FOLDED_BY:
        raise ValueError(f"folds_by {attrs['folds_by']!r} is not one of {', '.join(_FOLDED_BY)}")
    folds, coarse = attrs["folds"], attrs["coarse"]
    if folds < 0 or (folds == 0) != (attrs["folds_by"] == "none"):
        raise ValueError(f"{folds} folds by {attrs['folds_by']!r}")
    if coarse < 0 or coarse & (coarse - 1):
        raise ValueError(f"{coarse} bins in one of the joint cells, not a power of 2")
    return outcome


def read_roles(attrs: Mapping[Any, Any], outcome: Outcome) -> dict[str, str]:
    """Columns of items by role, which a file keeps as JSON."""
    roles = json_object(attrs["roles"])
    if not all(isinstance(v, str) for v in roles.values()):
        raise TypeError("roles are not names of columns")
    need = set(outcome.bounds)
    if not need <= set(roles) <= need | set(_ROLES):
        raise ValueError(f"roles {', '.join(roles)} are not those of {outcome.kind} items")
    return roles


def json_object(text: Any) -> dict[str, Any]:
    """What a file keeps as JSON of names and values.

    Examples
    --------
    >>> json_object('{"score": "t"}')
    {'score': 't'}
    """
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
    """Every variable is there, and no other: what is ignored might have been renamed."""
    expected = {"edges", "label", *outcome.sums("part")}
    expected |= {f"{name}_{column}" for name in outcome.tables for column in outcome.columns(name)}
    found = set(map(str, data.variables))
    if expected - found:
        raise KeyError(f"there is no variable {min(expected - found)!r}")
    if found - expected:
        raise ValueError(f"there is a variable {min(found - expected)!r} too many")
    if set(data.coords) != {"label"}:
        raise ValueError("its coordinates are not the labels of groups")


def _read_labels(data: xr.Dataset) -> NDArray[Any]:
    values = data["label"]
    labels = values.to_numpy().tolist()
    if values.dims != ("label",) or not all(isinstance(label, str) for label in labels):
        raise TypeError("labels of groups are not text")
    if labels != sorted(set(labels)):
        raise ValueError("labels do not rise")
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
    """Bins, groups and folds are those that there are."""
    coarse = attrs["coarse"]
    if not coarse and len(tables["joint"]["n"]):
        raise ValueError("there are joint cells, and coarse=0")
    most = {"bin": bins - 1, "group": groups - 1, "fold": max(attrs["folds"], 1) - 1}
    for name, table in tables.items():
        if (table["n"] < 1).any():
            raise ValueError(f"{name}_n has numbers of items below 1")
        for column, top in most.items():
            if column not in table:
                continue
            last = top // max(coarse, 1) if (name, column) == ("joint", "bin") else top
            if ((table[column] < 0) | (table[column] > last)).any():
                raise ValueError(f"{name}_{column} is out of range")


def _check_whole(tables: Mapping[str, Columns], outcome: Outcome, coarse: int) -> None:
    """Whole numbers add up to the same totals by bin in every table."""
    whole = [tables[name] for name in ("part", *outcome.margins)]
    if coarse:
        whole.append({**tables["joint"], "bin": tables["joint"]["bin"] * coarse})
    for column in outcome.integers:
        sums = [np.bincount(t["bin"] // max(coarse, 1), t[column], 1) for t in whole]
        if not all(len(s) == len(sums[0]) and (s == sums[0]).all() for s in sums):
            raise ValueError(f"the cells do not add up to {column}")
