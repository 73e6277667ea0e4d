"""Columns of items by role, read for a fit, and theta of items as finite mixtures."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from .._lib.arguments import Rule
from .._lib.arrays import Columns, Floats, Ints, Pair
from .._lib.errors import ItemsError, StatisticsError
from .._lib.progress import is_shown, parts, phase
from .._lib.reprs import digits
from .._lib.threads import ordered_map
from ..data.engines import check_types, no_rows, scan
from ..data.items import Items, check_outcomes
from ..data.roles import MARK, NOISE_DF, WEIGHTS, Roles, columns_of
from ..data.sources import arrow_table
from ..data.statistics import Statistics
from ..families.family import Family
from ..families.outcome import Outcome
from ..fits.curves import Curves
from .scores import warn_of_extrapolation

# Arrays of one length by role: score, outcome, size and ``group``. Where an item stands for several
# whose scores differ, ``spread`` is the variance of the first curve over them.
# From items to mean, sd, variance, quantiles and any P(theta = 0 | t, y) of theta, (rows, n)
Scorer = Callable[[Columns], Floats]


@dataclass(frozen=True, eq=False)
class ThetaMixture:
    """Theta of n items given score and outcome, as mixtures of K members of a family."""

    # (K, n): conjugate parameters, shape and rate or mean and variance
    a: Floats
    b: Floats
    # (K, n), with sum 1 over the components; None for equal weights
    weight: Floats | None = None
    # (n,): share of theta that is 0 and none of the members; None: 0
    zero: Floats | None = None

    def average(self, values: Floats, at_zero: Floats | float = 0.0) -> Floats:
        """Mean of `values` (K, n) of the components and of those where theta is 0, shape (n,)."""
        if self.weight is None:
            return values.mean(axis=0)
        total = np.asarray(np.einsum("kn,kn->n", self.weight, values))
        if self.zero is None:
            return total
        return (1.0 - self.zero) * total + self.zero * at_zero

    def thinned(self, most: int) -> "ThetaMixture":
        """At most so many of the components, at equal distances."""
        number = len(self.a)
        if number <= most:
            return self
        chosen = np.arange(most) * number // most
        weight = None
        if self.weight is not None:
            weight = self.weight[chosen] / self.weight[chosen].sum(axis=0)
        return ThetaMixture(self.a[chosen], self.b[chosen], weight, self.zero)

    def listed(self, family: Family) -> "ThetaMixture":
        """Append theta = 0 as a last component, so near 0 that no outcome can tell."""
        if self.zero is None or self.weight is None:
            return self
        a, b = family.with_zero(self.a.T, self.b.T)
        weight = np.vstack([(1.0 - self.zero) * self.weight, self.zero])
        return ThetaMixture(a.T, b.T, weight)


def select(columns: Columns, items: slice | NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Some of the items."""
    return {name: values[items] for name, values in columns.items()}


def own_outcomes(outcome: Outcome, columns: Columns) -> Pair:
    """Outcomes and their sizes, uninformative ones for items without outcomes."""
    if outcome.observed in columns:
        return columns[outcome.observed], columns[outcome.size]
    n = len(columns["score"])
    return np.zeros(n), np.full(n, outcome.no_information)


def places(
    outcome: Outcome, columns: Columns
) -> tuple[Floats, NDArray[Any] | None, Floats | None]:
    """Scores, groups and sizes of items, as `Curves.at` takes them."""
    return columns["score"], columns.get("group"), columns.get(outcome.size)


def prior_columns(outcome: Outcome, columns: Columns) -> Columns:
    """Columns of items whose outcomes are not seen yet."""
    return {name: x for name, x in columns.items() if name != outcome.observed}


def in_chunks(
    values: Callable[[Columns], Any], step: int, columns: Columns, title: str = "",
    progress: bool | None = False,
) -> Floats:  # fmt: skip
    """Compute values of all items, (values, n), in threads: SciPy releases the lock."""
    chunks = parts(title, len(columns["score"]), step, progress)
    rows = ordered_map(lambda chunk: np.asarray(values(select(columns, chunk))), chunks)
    return np.concatenate(list(rows), axis=-1)


def summed(
    curves: Curves,
    weight: Floats,
    target: Ints,
    size: int,
    values: Callable[[slice], Sequence[Floats]],
    progress: bool | None = False,
) -> Floats:
    """Return weighted sums of values (draws, items) over the items of each of `size` targets."""

    def of_part(rows: slice) -> Floats:
        number = rows.stop - rows.start
        pairs = np.arange(number), target[rows]
        share = sparse.csr_array((weight[rows], pairs), shape=(number, size))
        return np.stack(np.broadcast_arrays(*(x @ share for x in values(rows))))

    blocks = parts("sums over items", len(target), curves.items_at_once, progress)
    return np.asarray(sum(ordered_map(of_part, blocks)))


def posterior_roles(
    curves: Curves, items: Items, check: Rule = check_outcomes
) -> Roles:
    """Columns of score, outcome, size and the fit's groups, in this order, of checked items."""
    check(items, "items")
    roles = items.roles
    items_outcome = items.outcome
    outcome = curves.outcome
    if items_outcome.kind != outcome.kind:
        kinds = outcome, items_outcome
        fitted, present = (f"{kind.observed}= and {kind.size}=" for kind in kinds)
        remedy = "give items of the kind that made the fit, or fit these"
        raise ItemsError(
            f"the fit's items have {fitted}, these items have {present}: {remedy}"
        )
    df = roles.get("noise_df", items.options.get("noise_df"))
    known = curves.noise_df
    # names of columns may differ
    named = isinstance(df, str) and isinstance(known, str)
    if items.has_outcomes and not (named or df == known):
        words = "a column noise_df=" if isinstance(known, str) else f"noise_df={known}"
        raise ItemsError(
            f"the fit's items have {words if known else 'known noise sds'}: give these the same, "
            "or fit items like these"
        )
    if items.score is None and curves.roles.has_score:
        raise ItemsError(
            "the fit's items have a score, and these have none: give them score="
        )
    if items.score is not None and not curves.roles.has_score:
        raise ItemsError("the fit's items have no score: give these score=None")
    names = [role for role in (*outcome.bounds, "noise_df") if role in roles]
    if curves.groups:
        remedy = "the items name no column of groups: give them group="
        _check_groupings(curves, roles, remedy, ItemsError)
        names += roles.groups
    return roles.only(*names)


def _check_groupings(
    curves: Curves, roles: Roles, remedy: str, error: type[Exception]
) -> None:
    """Refuse other columns of groups than the fit's."""
    known, columns = (tuple(r.groups.values()) for r in (curves.roles, roles))
    if not columns:
        raise error(
            f"the fit has curves for each of {len(curves.groups):,} groups, and {remedy}"
        )
    swapped = columns != known and set(columns) == set(known)
    if known and (len(columns) != len(known) or swapped):
        fitted, present = (" and ".join(map(repr, names)) for names in (known, columns))
        remedy = f"give the items group={(known if len(known) > 1 else known[0])!r}"
        raise error(
            f"the fit's groups come from {fitted}, and these from {present}: {remedy}"
        )


def arrays_of(table: Any, roles: Roles) -> Columns:
    """Columns of an Arrow table by role: read-only float64, and joined labels, None for null."""
    columns = columns_of(table, roles, roles.groups)
    if "group" in columns:
        columns["group"] = columns["group"].to_pandas().to_numpy(dtype=object)
    return columns


def frame_columns(curves: Curves, items: Items) -> Columns:
    """Columns of valid items in a pandas table for a fit."""
    roles = posterior_roles(curves, items)
    return arrays_of(arrow_table(items.source, roles.columns), roles)


def read_items(
    curves: Curves, items: Items, by: Sequence[str], progress: bool | None
) -> tuple[Columns, dict[str, pd.Series]]:
    """Validated columns of all items, and the columns `by`; warns of scores far from the fit's.

    Rows with a weight are repeated, and the column ``row`` has their numbers.
    """
    posterior_roles(curves, items)
    refuse_other_truncation(curves, items.is_truncated)
    read = replace(items, id=None, fold=None, cluster=None, date=None)
    with phase("checking items", enabled=is_shown(progress)):
        table = arrow_table(
            items.source, list(dict.fromkeys([*read.roles.columns, *by]))
        )
        check_types(read, table)
        columns = dict(arrays_of(table, read.roles))
        refuse_invalid(columns, read)
        refuse_unplaced(curves, items, columns["score"])
    if not curves.groups:
        columns.pop("group", None)
    warn_of_extrapolation(curves, columns["score"])
    labels = {name: table[name].to_pandas() for name in by}
    if (weight := columns.pop("weight", None)) is None:
        return columns, labels
    rows = np.repeat(np.arange(len(weight)), weight.astype(np.int64))
    labels = {x: label.iloc[rows].reset_index(drop=True) for x, label in labels.items()}
    return {**select(columns, rows), "row": rows}, labels


def refuse_invalid(columns: Columns, items: Items) -> None:
    """Refuse items, or a batch of them, if some are not valid or there are none."""
    # those without outcomes stand for no observation, an outcome of 0 of a size of 0
    outcome = items.outcome if items.has_outcomes else items.outcome.complete
    crossings = max(len(items.roles.groups) - 1, 0)
    y, size = own_outcomes(outcome, {"score": columns["score"]})
    y = columns.get(outcome.observed, y)
    size = columns.get(outcome.size, size)
    if not len(y):
        raise ItemsError(no_rows(items))
    if not (
        outcome.validity.are_valid(columns["score"], y, size)
        and WEIGHTS.hold(columns.get("weight", np.ones(1)))
        and NOISE_DF.hold(columns.get("noise_df", np.ones(1)))
        and not any(
            label is None or (crossings and label.count(MARK) != crossings)
            for label in columns.get("group", ())
        )
    ):
        scan(items, progress=False)  # which says all that is wrong
        raise ItemsError(
            "some items are not valid, but were when they were read again: try again"
        )


def refuse_unplaced(curves: Curves, items: Items, score: Floats) -> None:
    """Refuse scores that have no position on the fit's axes and are none of its atoms."""
    for curve in ("mean", "variance"):
        scale = curves.axis(curve).local
        bad = ~scale.holds(score)
        if bad.any() and (bad := bad & (curves.atom(score) == 0)).any():
            raise ItemsError(
                f"column {items.score!r}: {int(bad.sum()):,} of {len(score):,} scores are "
                f"{scale.outside}, which the fit's curves need (first: {digits(score[bad][0])}): "
                'drop or clip these scores, or fit with soc.Spline(scale="rank") for both curves'
            )


def refuse_weighted(items: Items) -> None:
    """Refuse rows that stand for several items, where each row must be one."""
    if items.weight is not None:
        raise ItemsError(
            f"rows of weight= {items.weight!r} stand for several items, and here each row must be "
            "one: repeat the rows, such as by frame.loc[frame.index.repeat(weight)]"
        )


def refuse_taken(names: Sequence[str], columns: Sequence[str]) -> None:
    """Refuse new columns whose names a table has already."""
    if clash := ", ".join(repr(name) for name in names if name in columns):
        remedy = "rename or drop them, or ask for other quantiles"
        raise ItemsError(f"the table already has the columns {clash}: {remedy}")


def refuse_other_truncation(curves: Curves, truncated: bool) -> None:
    """Refuse items with those of 0 for a fit to items without them, or the other way round."""
    if truncated != curves.outcome.truncated:
        lacking, others = "the fit's", "these"
        if truncated:
            lacking, others = others, lacking
        raise ItemsError(
            f"{lacking} items have truncated=True, as those of 0 are absent, and {others} have "
            "not: give both the same"
        )


def check_statistics(curves: Curves, stats: Statistics) -> None:
    """Refuse statistics of other columns than the fit's, or without the groups that it has."""
    refuse_other_truncation(curves, stats.truncated)
    fit_roles = curves.roles.outcomes
    roles = stats.roles.outcomes
    if fit_roles != roles:
        raise StatisticsError(
            f"the fit has items with the roles {fit_roles}, the statistics have {roles}"
        )
    if stats.noise_df != curves.noise_df:
        raise StatisticsError(
            "the noise_df= of the statistics is not that of the fit's items: give those of items "
            "with the same"
        )
    if curves.groups:
        remedy = "the statistics have none: summarize the items with group="
        _check_groupings(curves, stats.roles, remedy, StatisticsError)
