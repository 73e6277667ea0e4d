"""Items, and bins that represent items, as columns for a posterior."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .._lib.arguments import Rule
from .._lib.arrays import Floats, Ints
from .._lib.errors import ItemsError, StatisticsError
from .._lib.progress import is_shown
from ..data.formulas import near_whole
from ..data.groups import group_roles, has_score, is_group, joined, roles_of
from ..data.items import Items, check_outcomes
from ..data.sources import arrow_table
from ..data.statistics import Statistics
from ..data.validation import NUMBERS, scan
from ..families.outcomes import OUTCOMES
from ..inference.results import Fit
from .curves import atom_of, items_at_once
from .extrapolation import warn_of_extrapolation
from .interface import Columns
from .scoring import Posterior

_LEAST = 1e-12  # a variance below this share of the square is rounding


def posterior_roles(
    fit: Fit, posterior: Posterior, items: Items, check: Rule = check_outcomes
) -> dict[str, str]:
    """Columns of score, outcome and size, in this order, and of groups if the fit has groups.

    Refuses items of another kind, or without the groups that a fit has. With the rule `check_items`
    they need no outcomes, and may have no size.
    """
    check(items, "items")
    roles, outcome, items_outcome = items.roles, posterior.outcome, OUTCOMES[items.kind]
    if items_outcome is not outcome:
        raise ItemsError(
            f"the fit's items have {outcome.observed}= and {outcome.size}=, these "
            f"items have {items_outcome.observed}= and {items_outcome.size}=: give items of the "
            "kind that made the fit, or fit these"
        )
    if items.score is None and has_score(fit.data.attrs):
        raise ItemsError("the fit's items have a score, and these have none: give them score=")
    names = [role for role in outcome.bounds if role in roles]
    if fit.groups:
        remedy = "the items name no column of groups: give them group="
        _check_groupings(fit, roles, remedy, ItemsError)
        names += group_roles(roles)
    return {role: roles[role] for role in names}


def _check_groupings(
    fit: Fit, roles: Mapping[str, str], remedy: str, error: type[Exception]
) -> None:
    """Refuse other numbers of columns of groups than the fit's, or the same in another order."""
    if not group_roles(roles):
        raise error(f"the fit has curves for each of {len(fit.groups):,} groups, and {remedy}")
    known, columns = (tuple(group_roles(r).values()) for r in (roles_of(fit.data.attrs), roles))
    swapped = columns != known and set(columns) == set(known)
    if known and (len(columns) != len(known) or swapped):
        raise error(
            f"the fit's groups come from {' and '.join(map(repr, known))}, and these from "
            f"{' and '.join(map(repr, columns))}: give the items "
            f"group={(known if len(known) > 1 else known[0])!r}"
        )


def columns_of(table: Any, roles: Mapping[str, str]) -> Columns:
    """Columns of an Arrow batch or table by role.

    Numbers are read-only float64, NaN for null; labels of ``group``, joined where there are several
    columns, are str, None for null.
    """
    import pyarrow as pa

    text = {role: table[name].cast(pa.string()) for role, name in group_roles(roles).items()}
    columns: dict[str, Any] = {
        role: labels.to_pandas().to_numpy(dtype=object) for role, labels in joined(text).items()
    }
    for role, name in roles.items():
        if not is_group(role):
            numbers = np.asarray(table[name].cast(pa.float64(), safe=False))  # null becomes NaN
            columns[role] = near_whole(numbers) if NUMBERS[role].whole else numbers
            columns[role].flags.writeable = False  # as Arrow's arrays are, for one compilation
    return columns


def frame_columns(fit: Fit, posterior: Posterior, items: Items) -> Columns:
    """Columns of items in a pandas table, which are valid, for a fit."""
    roles = posterior_roles(fit, posterior, items)
    return columns_of(arrow_table(items.source, list(roles.values())), roles)


def read_items(
    fit: Fit, posterior: Posterior, items: Items, by: Sequence[str], progress: bool | None
) -> tuple[Columns, dict[str, pd.Series]]:
    """Validated columns of all items for a fit, and the columns `by` unchanged.

    Warns of scores far outside the fit's.
    """
    roles = posterior_roles(fit, posterior, items)
    read = replace(items, id=None, fold=None, cluster=None, date=None)
    scan(read, progress=is_shown(progress))
    names = list(dict.fromkeys([*roles.values(), *by]))
    table = arrow_table(items.source, names)
    columns = columns_of(table, roles)
    warn_of_extrapolation(fit, columns["score"])
    return columns, {name: table[name].to_pandas() for name in by}


def check_groups(fit: Fit, stats: Statistics) -> None:
    """Refuse statistics without the groups that a fit has."""
    if fit.groups:
        remedy = "the statistics have none: summarize the items with group="
        _check_groupings(fit, roles_of(stats.data.attrs), remedy, StatisticsError)


@dataclass(frozen=True)
class BinScores:
    """Occupied bins, by group if the statistics have groups."""

    group: Ints  # codes of groups; 0 if they are pooled
    bin: Ints  # numbers of bins, increasing within a group
    score: Floats  # mean scores
    spread: Floats  # variances of the mean curve (log E(theta | t) for counts) over a bin's items

    def place(self, group: Ints, number: Ints) -> NDArray[np.intp]:
        """Positions of bins of groups among these."""
        wide = int(self.bin.max()) + 1
        return np.searchsorted(self.group * wide + self.bin, group * wide + number)


def bin_scores_of(fit: Fit, posterior: Posterior, stats: Statistics, coarse: int = 1) -> BinScores:
    """Mean scores of bins, merged by `coarse`, and the variance of theta by their spread."""
    check_groups(fit, stats)
    part, labels = stats.table("part"), np.array(stats.groups, dtype=object)
    scale, group = fit.axis("mean").local, part["group"] * bool(len(labels))
    bins = -(-stats.bins // coarse)
    key, place = np.unique(group * bins + part["bin"] // coarse, return_inverse=True)
    total = {name: np.bincount(place, part[name], len(key)) for name in ("n", *scale.sums)}
    mean, square = (total[name] / total["n"] for name in scale.sums)
    variance = square - mean**2
    half_sd = 0.5 * np.sqrt(np.where(variance > _LEAST * square, variance, 0.0))
    groups, step = key // bins, items_at_once(fit)

    def mean_curve(score: Floats) -> Floats:
        positions = []
        for start in range(0, len(score), step):
            chunk = slice(start, start + step)
            group = labels[groups[chunk]] if fit.groups else None
            # a term in exposure shifts the whole curve of a bin, so any exposure will do
            curves = posterior.curves(score[chunk], group, np.ones(len(score[chunk])))
            positions.append(posterior.outcome.theta.position(curves["mean"]).mean(axis=0))
        return np.concatenate(positions)

    below, above = (mean_curve(scale.score(end)) for end in (mean - half_sd, mean + half_sd))
    # where all items of a bin have the score of an atom, the mean score is not rounded
    ends = pd.DataFrame({"low": part["score_min"], "high": part["score_max"]}).groupby(place)
    low, high = ends["low"].min().to_numpy(), ends["high"].max().to_numpy()
    score = np.where((low == high) & (atom_of(fit, low) > 0), low, scale.score(mean))
    return BinScores(groups, key % bins, score, (above - below) ** 2)
