"""Columns of groups: one, or several that are crossed.

Statistics have one group for each combination of levels that occurs, with the levels' labels
joined. A grouping is one of the columns, with the level of every group.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._lib.arrays import Ints

NO_SCORE = "(no score)"
"""Name of the column of scores of items without one: all have `ONE_SCORE`."""

ONE_SCORE = 0.5
"""A score on every axis."""

MARK = "×"
"""No label of crossed groups contains it; in place of a level it means none of them."""

CROSS = f" {MARK} "
"""Between the levels in the label of a combination."""


@dataclass(frozen=True)
class Grouping:
    """One column of groups."""

    name: str  # its role, which names variables and dims: "group", or "group_1", "group_2"
    column: str
    levels: tuple[str, ...]  # sorted
    code: Ints  # of the level of every group of the statistics


def roles_of(attrs: Mapping[Any, Any]) -> dict[str, str]:
    """Columns by role, from the attributes of a fit or of statistics."""
    return dict(json.loads(attrs.get("roles", "{}")))


def has_score(attrs: Mapping[Any, Any]) -> bool:
    """True unless the items of a fit or of statistics have no score."""
    return roles_of(attrs).get("score") != NO_SCORE


def is_group(role: str) -> bool:
    """True for the role of a column of groups."""
    return role == "group" or role.startswith("group_")


def is_label(role: str) -> bool:
    """True for the role of a column of labels: dates, groups or clusters."""
    return is_group(role) or role in ("date", "cluster")


def group_roles[T](roles: Mapping[str, T]) -> dict[str, T]:
    """Columns of groups by role, in order."""
    return {role: column for role, column in roles.items() if is_group(role)}


def key_roles[T](roles: Mapping[str, T]) -> dict[str, T]:
    """The column of dates, if there is one, and columns of groups by role."""
    dates = {"date": roles["date"]} if "date" in roles else {}
    return dates | group_roles(roles)


def roles_of_groups(group: Any) -> dict[str, Any]:
    """Columns by role of what items have as ``group=``: a column, several, or None."""
    columns = list(group) if isinstance(group, list | tuple) else [group]
    if len(columns) == 1:
        return {} if columns[0] is None else {"group": columns[0]}
    return {f"group_{k}": column for k, column in enumerate(columns, 1)}


def arguments_of(roles: Mapping[str, str]) -> dict[str, Any]:
    """Arguments of items with these roles."""
    columns = tuple(group_roles(roles).values())
    others: dict[str, Any] = {role: name for role, name in roles.items() if not is_group(role)}
    if others.get("score") == NO_SCORE:
        others["score"] = None
    if not columns:
        return others
    return others | {"group": columns if len(columns) > 1 else columns[0]}


def grouping_dims(names: Iterable[Any]) -> list[str]:
    """Dims of the levels of groups among names; besides several, group has their combinations."""
    dims = sorted(filter(is_group, map(str, names)), key=lambda name: (len(name), name))
    return [name for name in dims if name != "group"] or dims


def column_of(roles: Mapping[str, str]) -> str:
    """Columns of groups as one name, for messages and headings."""
    return CROSS.join(group_roles(roles).values())


def joined(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Arrow arrays of text by role, with dates and columns of groups as one, ``group``."""
    import pyarrow.compute as pc

    keys = key_roles(columns)
    others = {role: column for role, column in columns.items() if role not in keys}
    groups = list(keys.values())
    if len(groups) > 1:
        groups = [pc.binary_join_element_wise(*groups, CROSS)]
    return others | ({"group": groups[0]} if groups else {})


def label_of(levels: Any) -> str:
    """A group's label from its levels, or from the label itself; None is not a level."""
    if isinstance(levels, list | tuple):
        return CROSS.join(MARK if level is None else str(level) for level in levels)
    return str(levels)


def groupings_of(attrs: Mapping[Any, Any], labels: Sequence[str]) -> tuple[Grouping, ...]:
    """Groupings of labels of groups, from the roles in the attributes of a fit or of statistics."""
    roles = group_roles(roles_of(attrs))
    if not labels or not roles:
        return ()
    parts = [[label] if len(roles) == 1 else label.split(CROSS) for label in labels]
    groupings = []
    for (name, column), column_labels in zip(roles.items(), zip(*parts, strict=True), strict=True):
        levels, codes = np.unique(np.array(column_labels, dtype=object), return_inverse=True)
        groupings.append(Grouping(name, column, tuple(map(str, levels)), codes.astype(np.int64)))
    return tuple(groupings)
