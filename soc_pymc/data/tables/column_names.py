"""Columns of a source by name: each is there, once, under a name that engines can tell apart."""

import difflib
from collections.abc import Sequence
from typing import Any

from ..._lib.errors import ItemsError

__all__ = ["chosen", "refuse_case_twins", "refuse_twice"]


def chosen(available: Sequence[Any], columns: Sequence[str] | None) -> list[str]:
    """The wanted columns, each there exactly once; all where none are named."""
    names = [str(name) for name in available]
    wanted = names if columns is None else list(columns)
    absent = [_absent(column, names) for column in wanted if column not in names]
    if absent:
        raise ItemsError("\n".join(absent))
    refuse_twice(names, wanted)
    return wanted


def refuse_twice(names: Sequence[str], wanted: Sequence[str]) -> None:
    """Refuse wanted columns that are there more than once."""
    for column in wanted:
        if names.count(column) > 1:
            raise ItemsError(
                f"column {column!r} is there {names.count(column)} times: rename or drop the others"
            )


def _absent(column: str, names: list[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:20])
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    lower = {name.lower(): name for name in names}
    close = difflib.get_close_matches(column.lower(), list(lower), n=1)
    hint = f": did you mean {lower[close[0]]!r}?" if close else ""
    return f"column {column!r} is missing; the table has {shown or 'no columns'}{more}{hint}"


def refuse_case_twins(available: Sequence[str], wanted: Sequence[str]) -> None:
    """Refuse wanted columns that have a twin but for upper and lower case."""
    lower = [name.lower() for name in available]
    for column in wanted:
        if lower.count(column.lower()) > 1 and column in available:
            twins = [name for name in available if name.lower() == column.lower()]
            raise ItemsError(
                f"columns {' and '.join(map(repr, twins))} differ in letter case only, which the "
                "engine cannot tell apart: rename one of them"
            )
