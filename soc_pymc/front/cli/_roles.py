"""Which columns the words name, and the items that they describe."""

import argparse
import json
from typing import TYPE_CHECKING, Any

from ..._lib.errors import StatisticsError
from ...data.items import Items, NormalItems, PoissonItems

if TYPE_CHECKING:
    from ...inference.results import Fit

__all__ = ["OUTCOMES", "columns", "items_of", "roles_of", "source_of", "word"]

OUTCOMES = (("count", "exposure"), ("value", "noise_sd"))
"""Roles of the outcome and of its precision, by kind of items."""

_MORE_ROLES = ("group", "id", "fold")


def items_of(
    chosen: argparse.Namespace, roles: dict[str, str] | None = None, source: Any = None
) -> Items:
    """The items that the words describe; `roles` are the columns where they say nothing."""
    names = columns(chosen, roles)
    made: Any = NormalItems if "value" in names else PoissonItems
    found: Items = made(source_of(chosen) if source is None else source, **names)
    return found


def source_of(chosen: argparse.Namespace) -> Any:
    """One path or glob, or a list of them."""
    return chosen.items[0] if len(chosen.items) == 1 else chosen.items


def columns(chosen: argparse.Namespace, roles: dict[str, str] | None = None) -> dict[str, str]:
    """Columns by role, those that are optional only where they are given."""
    known = roles or {}
    outcomes = _outcome_roles(chosen, known)
    names = {role: getattr(chosen, role) or known.get(role, "") for role in ("score", *outcomes)}
    missing = [word(role) for role, name in names.items() if not name]
    if missing:
        raise StatisticsError(f"say which columns to use: {', '.join(missing)}")
    more = {role: getattr(chosen, role, None) or known.get(role) for role in _MORE_ROLES}
    return names | {role: name for role, name in more.items() if name}


def roles_of(fit: "Fit") -> dict[str, str]:
    """The columns that the fit was made from, so that commands need not name them again.

    The column of groups is one of them where the fit has groups; ids and folds say nothing to it.
    """
    roles: dict[str, str] = json.loads(fit.data.attrs.get("roles", "{}"))
    unused = {"id", "fold"} if fit.groups else {"id", "fold", "group"}
    return {role: name for role, name in roles.items() if role not in unused}


def word(role: str) -> str:
    """A role as a word of the command line."""
    return "--" + role.replace("_", "-")


def _outcome_roles(chosen: argparse.Namespace, known: dict[str, str]) -> tuple[str, str]:
    """The roles of the outcome and of its precision, of the kind of items that is meant."""
    given = [roles for roles in OUTCOMES if any(getattr(chosen, role) for role in roles)]
    given = given or [roles for roles in OUTCOMES if roles[0] in known]
    if not given:
        kinds = [", ".join(map(word, ("score", *roles))) for roles in OUTCOMES]
        raise StatisticsError(f"say which columns to use: {', or '.join(kinds)}")
    if len(given) > 1:
        kinds = [" and ".join(map(word, roles)) for roles in OUTCOMES]
        raise StatisticsError(f"give {', or '.join(kinds)}, not both")
    return given[0]
