"""Columns of groups, which may be crossed, and of dates, which are the first column of groups.

Statistics have one group for each combination of levels that occurs, labelled by the levels.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._lib.arguments import Refusal, shown
from .._lib.arrays import Ints
from .._lib.errors import StatisticsError

NO_SCORE = "(no score)"  # name of the column of scores of items without one
ONE_SCORE = 0.5  # their score, which has a position on every scale
MARK = "×"  # in no label of crossed groups; in place of a level it means none of them
CROSS = f" {MARK} "  # between the levels in the label of a combination
MOST_DAYS = 4000


@dataclass(frozen=True)
class Grouping:
    """One column of groups, with the level of every group of the statistics."""

    name: str  # its role, which names variables and dims: "group", or "group_1", "group_2"
    column: str
    levels: tuple[str, ...]  # sorted
    code: Ints  # of the level of each group


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
    arguments: dict[str, Any] = {role: name for role, name in roles.items() if not is_group(role)}
    if arguments.get("score") == NO_SCORE:
        arguments["score"] = None
    if columns := tuple(group_roles(roles).values()):
        arguments["group"] = columns if len(columns) > 1 else columns[0]
    return arguments


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
    read = {role: column for role, column in columns.items() if role not in keys}
    if keys:
        read["group"] = reduce(lambda a, b: pc.binary_join_element_wise(a, b, CROSS), keys.values())
    return read


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


Days = NDArray[np.datetime64]
_LEAP = r"(\d\d(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29"
_SHORT, _LONG = r"02-(0[1-9]|1\d|2[0-8])", r"(0[13578]|1[02])-(0[1-9]|[12]\d|3[01])"
_MONTH = r"(0[469]|11)-(0[1-9]|[12]\d|30)"
DAY = rf"^(\d{{4}}-({_SHORT}|{_MONTH}|{_LONG})|{_LEAP})$"
"""Pattern of a calendar day YYYY-MM-DD, as engines read it."""
_LENGTH = r"([1-9]\d*)d"


def is_day(text: str) -> bool:
    """True if a text is a calendar day."""
    return bool(re.match(DAY, text)) and not text.endswith("\n")


def days_of(labels: Sequence[str]) -> Days:
    """The day of each label of dated statistics."""
    return np.array([label.partition(CROSS)[0] for label in labels], dtype="datetime64[D]")


def without_day(label: str) -> str:
    """The part of such a label after its day: the group's label, or nothing."""
    return label.partition(CROSS)[2]


def days_in(length: Any, name: str, error: Refusal = StatisticsError) -> int:
    """Number of days of a length such as "28d" (as a rule of arguments)."""
    matched = re.fullmatch(_LENGTH, length) if isinstance(length, str) else None
    if not matched:
        raise error(f'{name}={shown(length)} must be a number of days, such as "28d"')
    return int(matched[1])


def day(value: Any, name: str, error: Refusal = StatisticsError) -> np.datetime64:
    """A day from a date, or from text (as a rule of arguments)."""
    text = str(value)
    if isinstance(value, np.datetime64) and value == value.astype("datetime64[D]"):
        text = str(value.astype("datetime64[D]"))
    if not is_day(text):
        raise error(f'{name}={shown(value)} must be a day, such as "2026-03-31"')
    return np.datetime64(text, "D")
