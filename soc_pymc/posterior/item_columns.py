"""Columns of items by role, as laws read them: numbers as float64, groups as text."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from .._lib.errors import ItemsError
from ..data.items import Items, check_items
from ..data.tables import batches, open_table, scan
from ..inference.results import Fit
from .extrapolation import warn_of_far_scores
from .predictive import Columns, Posterior

__all__ = ["columns_of", "posterior_roles", "read_items"]


def posterior_roles(fit: Fit, law: Posterior, items: Items) -> dict[str, str]:
    """Columns that a fit needs of items, by role.

    Parameters
    ----------
    fit, law
        The fit and its law.
    items
        The items.

    Returns
    -------
    dict
        Column names of the score, the outcome and its size, in this order, and of the group if the
        fit has groups.

    Raises
    ------
    ItemsError
        If the items have another kind of outcome, or no group where the fit has groups.
    """
    check_items(items)
    roles = items.roles
    if law.outcome.observed not in roles or law.outcome.size not in roles:
        have = " and ".join(f"{role}=" for role in roles if role in _OUTCOMES)
        raise ItemsError(
            f"the fit is of items with {law.outcome.observed}= and {law.outcome.size}=, these "
            f"items have {have}: give items of the kind that made the fit, or fit these"
        )
    names = ["score", law.outcome.observed, law.outcome.size]
    if fit.groups:
        if "group" not in roles:
            raise ItemsError(
                f"the fit has curves for each of {len(fit.groups):,} groups, and the items name no "
                "column of groups: give them group="
            )
        names.append("group")
    return {role: roles[role] for role in names}


_OUTCOMES = ("count", "exposure", "value", "noise_sd")


def columns_of(table: Any, roles: Mapping[str, str]) -> Columns:
    """Columns of an Arrow batch or table.

    Parameters
    ----------
    table
        Record batch or table.
    roles
        Column names by role.

    Returns
    -------
    dict
        By role: float64 numbers, in which a null is NaN, that cannot be written to; of ``group``,
        labels as str, in which a null is None.
    """
    import pyarrow as pa

    columns: dict[str, Any] = {}
    for role, name in roles.items():
        if role == "group":
            columns[role] = table[name].cast(pa.string()).to_pandas().to_numpy(dtype=object)
            continue
        column = np.asarray(table[name].cast(pa.float64(), safe=False))  # null becomes NaN
        column.flags.writeable = False  # as those are that Arrow lends: one type, one compilation
        columns[role] = column
    return columns


def read_items(
    fit: Fit, law: Posterior, items: Items, by: Sequence[str], progress: bool
) -> tuple[Columns, dict[str, pd.Series]]:
    """Columns of all items that a fit needs, validated, and further ones as they are.

    Parameters
    ----------
    fit, law
        The fit and its law.
    items
        The items.
    by
        Names of further columns.
    progress
        Whether to show progress on standard error.

    Raises
    ------
    ItemsError
        If the items are not valid or not of the fit's kind, or a column is missing.

    Warns
    -----
    ItemsWarning
        If scores lie far outside of those that the fit saw.
    """
    import pyarrow as pa

    roles = posterior_roles(fit, law, items)
    # no folds are made here: ids that only name items may be of any type
    scan(replace(items, id=None, fold=None), progress=progress)
    names = list(dict.fromkeys([*roles.values(), *by]))
    parts = list(batches(open_table(items.source, names), names))
    table = pa.Table.from_batches(parts)
    columns = columns_of(table, roles)
    warn_of_far_scores(fit, columns["score"])
    return columns, {name: table[name].to_pandas() for name in by}
