"""Columns of items by role, read for a fit, and theta of items as finite mixtures."""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from .._lib.arguments import ItemsError, ItemsWarning, Rule, StatisticsError, warn_user
from .._lib.arrays import Columns, Floats, Ints, Pair
from .._lib.reprs import counted, digits
from .._lib.work import ordered_map, parts, phase
from ..data.engines import check_types, no_rows, scan
from ..data.items import (
    MARK,
    NOISE_DF,
    WEIGHTS,
    Items,
    Roles,
    check_outcomes,
    columns_of,
)
from ..data.sources import arrow_table
from ..data.statistics import Statistics
from ..families.family import Family, Outcome
from ..families.scales import RANK, SCORE_WEIGHT, Scale
from ..fits import Curves

# Arrays of one length by role: score, outcome, size and ``group``. Where an item stands for several
# whose scores differ, ``spread`` is the variance of the first curve over them.
# From items to mean, sd, variance, quantiles and any P(theta = 0 | t, y) of theta, (rows, n)
Scorer = Callable[[Columns], Floats]
# distance allowed to scores, as a share of the range of the fit's, on the mean's axis
_MARGIN = 0.1
_ROUNDING = 1e-9  # rounding of positions, by which a score would be far from itself
_FAR = "far outside those that the fit saw"


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


def without(columns: Columns, role: str) -> Columns:
    """Columns of all other roles; without outcomes, items are those before they are seen."""
    return {name: values for name, values in columns.items() if name != role}


def in_chunks(
    values: Callable[[Columns], Any], step: int, columns: Columns, title: str = ""
) -> Floats:
    """Compute values of all items, (values, n), in threads: SciPy releases the lock."""
    chunks = parts(title, len(columns["score"]), step)
    rows = ordered_map(lambda chunk: np.asarray(values(select(columns, chunk))), chunks)
    return np.concatenate(list(rows), axis=-1)


def summed(
    curves: Curves,
    weight: Floats,
    target: Ints,
    size: int,
    values: Callable[[slice], Sequence[Floats]],
) -> Floats:
    """Return weighted sums of values (draws, items) over the items of each of `size` targets."""

    def of_part(rows: slice) -> Floats:
        number = rows.stop - rows.start
        pairs = np.arange(number), target[rows]
        share = sparse.csr_array((weight[rows], pairs), shape=(number, size))
        return np.stack(np.broadcast_arrays(*(x @ share for x in values(rows))))

    blocks = parts("sums over items", len(target), curves.items_at_once)
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
    if items.has_outcomes and not (outcome.truncated or items.is_truncated):
        refuse_other_family(curves, items.family)
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
    known = tuple(curves.roles.groups.values())
    columns = tuple(roles.groups.values())
    if not columns:
        number = counted(len(curves.groups), "group")
        raise error(f"the fit has curves for each of {number}, and {remedy}")
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
        columns["group"] = columns["group"].to_numpy(zero_copy_only=False)
    return columns


def frame_columns(curves: Curves, items: Items) -> Columns:
    """Columns of valid items in a pandas table for a fit."""
    roles = posterior_roles(curves, items)
    return arrays_of(arrow_table(items.source, roles.columns), roles)


def read_items(
    curves: Curves,
    items: Items,
    by: Sequence[str] = (),
    check: Callable[[object, str], Items] = check_outcomes,
) -> tuple[Columns, dict[str, pd.Series]]:
    """Validated columns of all items, and the columns `by`; warns of scores far from the fit's.

    Rows with a weight are repeated, and the column ``row`` has their numbers.
    """
    posterior_roles(curves, items, check)
    family = items.family
    if not items.has_outcomes:
        family = family.given(curves.attrs)
    refuse_other_family(curves, family)
    read = replace(items, id=None, fold=None, cluster=None, date=None)
    with phase("checking items"):
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
    # an item without an outcome counts as one with outcome 0 of size 0
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
        # this names everything that is wrong
        scan(items)
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


def refuse_other_family(curves: Curves, family: Family) -> None:
    """Refuse items whose options are not those of the fit's, such as those of 0 are absent."""
    fitted, present = curves.family.attrs, family.attrs
    if fitted == present:
        return
    if "truncated" in fitted | present:
        known, others = ("the fit's", "these") if fitted else ("these", "the fit's")
        words = (
            f"{known} items have truncated=True, as those of 0 are absent, and {others}"
        )
        words = f"{words} have not"
    else:
        (name, value), *_ = fitted.items()
        words = f"the fit's items have {name}={value:g}, these have {name}={present[name]:g}"
    raise ItemsError(f"{words}: give both the same")


def check_statistics(curves: Curves, stats: Statistics) -> None:
    """Refuse statistics of other columns than the fit's, or without the groups that it has."""
    refuse_other_family(curves, stats.family)
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


# --- scores --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class BinPositions:
    """Occupied bins with the positions of their items on a scale."""

    # false if groups are pooled, whose codes are then 0
    by_group: bool
    # codes of groups
    group: Ints
    bin: Ints  # numbers of bins, increasing within a group
    n: Ints
    mean: Floats
    sd: Floats
    low: Floats  # lowest and highest score
    high: Floats

    @staticmethod
    def of(stats: Statistics, scale: Scale, by_group: bool) -> "BinPositions":
        """Read the bins of statistics, of each group or of all together."""
        part = stats.table("part")
        key = part["group"] * by_group * stats.bins + part["bin"]
        totals = dict.fromkeys(("n", SCORE_WEIGHT, *scale.sums), "sum")
        totals |= {"score_min": "min", "score_max": "max"}
        bins = pd.DataFrame(part).groupby(key).agg(totals)
        sums = {name: bins[name].to_numpy() for name in totals}
        mean, variance = scale.moments(sums)
        group, number = np.divmod(bins.index.to_numpy(), stats.bins)
        return BinPositions(
            by_group=by_group, group=group, bin=number, n=sums["n"], mean=mean,
            sd=np.sqrt(np.nan_to_num(variance)),
            low=sums["score_min"], high=sums["score_max"],
        )  # fmt: skip

    def rows(self, table: Mapping[str, Ints]) -> NDArray[np.intp]:
        """Return which of these bins each row of a table of statistics is of."""
        bins = int(self.bin.max()) + 1
        key = table["group"] * self.by_group * bins + table["bin"]
        return np.searchsorted(self.group * bins + self.bin, key)


@dataclass(frozen=True, eq=False)
class BinScores:
    """Occupied bins, by group if the statistics have groups."""

    positions: BinPositions
    # mean scores
    score: Floats
    # variances of the location over a bin's items
    spread: Floats
    # labels of the bins' groups, if the curves have groups
    labels: NDArray[np.object_] | None

    def columns(self, table: Mapping[str, Ints]) -> dict[str, NDArray[Any]]:
        """Return the score, and any group, of each row of a table of statistics."""
        row = self.positions.rows(table)
        group = {} if self.labels is None else {"group": self.labels[row]}
        return {"score": self.score[row], **group}


def bin_scores_of(curves: Curves, stats: Statistics) -> BinScores:
    """Mean scores of bins, and the variance of theta by their spread."""
    scale = curves.axis("mean").local
    bins = BinPositions.of(stats, scale, bool(stats.groups))
    labels = None
    if curves.groups:
        labels = np.array(stats.groups, dtype=object)[bins.group]
    # a term in exposure shifts the whole curve of a bin, so any exposure will do
    size = np.ones(len(bins.mean))
    below, above = (
        curves.average(scale.score(bins.mean + side * bins.sd), labels, size)[0]
        for side in (-0.5, 0.5)
    )
    # where all items of a bin have the score of an atom, the mean score is not rounded
    on_atom = (bins.low == bins.high) & (curves.atom(bins.low) > 0)
    score = np.where(on_atom, bins.low, scale.score(bins.mean))
    return BinScores(bins, score, (above - below) ** 2, labels)


class Extrapolation:
    """Counts scores far outside those of a fit, batch by batch; `what` of them, with the verb."""

    def __init__(self, curves: Curves, what: str = "items have scores") -> None:
        self._curves = curves
        self._what = what
        self._total = 0
        self._far = 0
        # lowest and highest of the far scores
        self._outer = np.array([np.inf, -np.inf])
        self._range = self._allowed = np.array([-np.inf, np.inf])
        # false if all scores of the fit are atoms
        self._of_curve = True
        bins = curves.bins
        # curves without a range of scores
        if "score_min" not in bins:
            return
        not_atoms = curves.atom(bins["score"].to_numpy()) == 0
        self._of_curve = bool(not_atoms.any())
        low, high = (
            bins[name].to_numpy()[not_atoms | (not self._of_curve)]
            for name in ("score_min", "score_max")
        )
        self._range = np.array([low.min(), high.max()])
        if not self._of_curve:
            self._allowed = np.array([np.inf, -np.inf])
            return
        # ranks end at the fit's scores, so distances are measured on the scores' own scale
        scale = curves.axis("mean").local
        ends = scale.checked(self._range)
        margin = _MARGIN * np.ptp(ends) + _ROUNDING
        self._allowed = scale.score(ends + margin * np.array([-1.0, 1.0]))

    def count(
        self, score: ArrayLike, highest: ArrayLike | None = None
    ) -> "Extrapolation":
        """Count further scores, or ranges of scores."""
        low = np.asarray(score, dtype=float)
        high = low if highest is None else np.asarray(highest, dtype=float)
        outside = (low < self._allowed[0]) | (high > self._allowed[1])
        # the fit knows its atoms, however far they are
        if outside.any():
            outside &= self._curves.atom(np.where(low == high, low, np.nan)) == 0
        self._total = self._total + low.size
        self._far = self._far + int(outside.sum())
        self._outer[0] = low.min(where=outside, initial=self._outer[0])
        self._outer[1] = high.max(where=outside, initial=self._outer[1])
        return self

    def message(self) -> str | None:
        """Return the warning's text; None if no scores are far."""
        if not self._far:
            return None
        rule = (
            "the curves continue as straight lines there, kept between 1e-100 and 1e100"
        )
        prior = self._curves.prior
        if {prior.mean.scale, prior.variance.scale} == {RANK}:
            rule = "they count as the outermost scores of the fit"
        if not self._of_curve:
            rule = "they get the average of the fit's scores"
        least, most, low, high = (
            f"{score:.6g}" for score in (*self._outer, *self._range)
        )
        span = least if least == most else f"{least} to {most}"
        return (
            f"{self._far:,} of {self._total:,} {self._what} {_FAR} ({low} to {high}; these: "
            f"{span}): {rule}, which no item supports; fit items with such scores too, or leave "
            "these out"
        )

    def warn(self) -> None:
        """Warn if any scores are far."""
        if text := self.message():
            warn_user(text, ItemsWarning)


@contextmanager
def extrapolation_reported() -> Iterator[None]:
    """Leave reports of extrapolation inside this block to the caller, once for all items."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", f".* {_FAR} ", ItemsWarning)
        yield


def warn_of_extrapolation(
    curves: Curves,
    score: ArrayLike,
    what: str = "items have scores",
    highest: ArrayLike | None = None,
) -> None:
    """Warn of scores (or ranges) far outside those of a fit; `what` includes the verb."""
    Extrapolation(curves, what).count(score, highest).warn()


def warn_of_extrapolated_bins(curves: Curves, stats: Statistics) -> None:
    """Warn of bins with scores far outside those of a fit."""
    low, high = (stats.data[name].to_numpy() for name in ("score_min", "score_max"))
    # bins without items have no scores
    filled = ~np.isnan(low)
    warn_of_extrapolation(
        curves, low[filled], "bins of the statistics hold scores", high[filled]
    )
