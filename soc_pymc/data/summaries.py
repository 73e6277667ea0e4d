"""Summaries of items as statistics: choice of bins, sums, checks of totals and leakage."""

import json
import logging
import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from .._lib.arguments import (
    BOOLEAN,
    ItemsError,
    ItemsWarning,
    OneOf,
    OrNone,
    StatisticsError,
    Whole,
    numbers_of,
    switch,
    warn_user,
)
from .._lib.arrays import Columns, Floats, middle_shares
from .._lib.reprs import counted, digits
from .._lib.work import with_progress
from ..families import OUTCOMES
from ..families.family import Outcome
from ..families.scales import MOST_VALUE_CELL, SCORE_WEIGHT
from . import binning
from .causes import Evidence, cause_of
from .engines import Grouped, check_ids, scan
from .formulas import BLOCKS, MOST_FOLDS, Folds
from .items import Items, check_outcomes
from .local import Local
from .sources import is_remote, open_table
from .statistics import (
    Statistics,
    from_tables,
    range_factor,
    words_of_absent_zeros,
    words_of_percentages,
)

_log = logging.getLogger(__name__)
# relative difference of scores that is taken for rounding, of single precision too
_SAME = 5e-7
# default number of bins
_FEWEST_BINS = 20
_SINGLE_BINS = 100  # up to so many items have one bin each
_MOST_BINS = 1000
_ITEMS_IN_BIN = 10
_FOLDS = 10  # folds from ids
# items from which on not every one may be a group of its own
_OWN_GROUPS = 50
_MOST_DF = 200  # different degrees of freedom
_MOST_JOINT = 4_000_000  # joint cells, of about 100 bytes each
_AUTO_BYTES = 64_000_000  # most memory for joint cells by default
_LEAKAGE = -6.0  # honest scores stay above this z
# events that determine a rate; factor between rates and scores
_TOLD = 20
_APART = 10.0
# fifths that tell, and the factor within which ratios are alike and beyond which they are not
_FEWEST_TOLD = 3
_LEVEL = 1.6
# sum of whole outcomes whose log likelihood has all digits that matter, and mean outcomes
# whose noise hardly matters
_MOST_EVENTS = 1e12
_LARGE_COUNT = 1e6
# largest relative rounding error of the variation about a bin's mean
_DIGITS = 1e-4


_EQUAL = "items", *(kind.observed for kind in OUTCOMES.values() if kind.whole)


@with_progress
def summarize(
    items: Items, *, bins: int | None = None,
    equal: Literal["items", "count", "successes"] | None = None, edges: ArrayLike | None = None,
    folds: int | None = None, joint: bool | int | Literal["auto"] = "auto",
    on_leakage: Literal["raise", "warn", "ignore"] = "raise", progress: bool | None = None,
) -> Statistics:  # fmt: skip
    """Sufficient statistics of items of any kind, in bins of the score.

    Parameters
    ----------
    items : PoissonItems, NormalItems, BinomialItems or AmountItems
        The items. With dates, each day, of at most 4,000, is kept apart for `Statistics.window`,
        `Statistics.decay` and `soc.drift`.
    bins : int or None
        Number of bins of the score. None chooses one per 10 items, from 100 (or as many as there
        are items) to 1,000, and halves the first and the last bin repeatedly towards the ends.
        Scores that many items share (`Statistics.atoms`) have bins of their own.
    equal : {"items", "count", "successes"} or None
        What bins have in equal numbers; None is ``"items"``, of which those whose sizes make them
        next to useless are not counted.
    edges : array_like, shape (bins - 1,), or None
        Interior cut points in place of a number of bins, strictly increasing; bins are [e_k,
        e_k+1), and the outer bins are open, so no item is dropped.
    folds : int or None
        Number of folds with separate statistics, for cross-validation; 0 keeps none. None takes the
        items' own folds, or makes 10 from an ``id`` of whole numbers, and else none. Without an id
        folds come from score and size, never from the outcome.
    joint : bool, int or "auto"
        Whether to keep joint cells of outcomes and sizes, for checks, comparisons and priors beyond
        one Gamma, Normal or Beta. ``"auto"`` keeps them if they take at most 64 MB. A number is the
        largest number of cells (True: 4 million).
    on_leakage : {"raise", "warn", "ignore"}
        What to do if outcomes vary far less around their scores than noise allows, a sign of scores
        that saw the outcomes.
    progress : bool or None
        True shows the progress of long work.

    Returns
    -------
    Statistics
        Sums by bin, group and fold, which add up.

    Raises
    ------
    ItemsError
        If the items are not valid, or leak; if several rows have one id (with dates, on one day);
        if every item is a group of its own; if sums of squares of values lose precision.
    StatisticsError
        If an argument is not valid, or there are more joint cells than `joint`.

    Warns
    -----
    ItemsWarning
        If many items share one score, bins are fewer than asked for, rates are far from the scores
        throughout, or outcomes speak against the noise of this kind.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> stats = soc.summarize(items, bins=40)
    >>> stats.n_items, stats.bins
    (4000, 40)
    """
    check_outcomes(items)
    error = StatisticsError
    OrNone(OneOf(*_EQUAL))(equal, "equal", error)
    OneOf("raise", "warn", "ignore")(on_leakage, "on_leakage", error)
    if joint != "auto":
        rule = switch if isinstance(joint, BOOLEAN) else Whole(1)
        joint = rule(joint, "joint", error)
    options = Options(
        edges=None if edges is None else _cut_points(edges),
        bins=OrNone(Whole(1, 1_000_000))(bins, "bins", error),
        equal=equal,
        folds=OrNone(Whole(0, MOST_FOLDS))(folds, "folds", error),
        joint=joint,
        on_leakage=on_leakage,
    )
    if folds == 1:
        raise error(f"folds=1 must be 0 or a whole number from 2 to {MOST_FOLDS}")
    if edges is not None and (bins, equal) != (None, None):
        raise error("give edges=, or bins= and equal=, not both")
    # first, because duplicates look like leakage
    check_ids(items)
    stats = totals_of(items, options)
    _check_groups(stats)
    _warn_of_atoms(stats, items)
    _warn_of_scale(stats, items)
    _warn_of_large_counts(stats, items)
    return stats


def _cut_points(edges: ArrayLike) -> Floats:
    expected = "the interior cut points of the bins"
    cuts = numbers_of(edges, "edges", StatisticsError, expected)
    if cuts.ndim != 1 or not np.isfinite(cuts).all():
        raise StatisticsError(
            "edges must be one row and must be finite: outer bins are open"
        )
    for k in np.flatnonzero(np.diff(cuts) <= 0):
        pair = f"{digits(cuts[k])} and {digits(cuts[k + 1])}"
        raise StatisticsError(
            f"edges must increase strictly, and {pair} follow each other"
        )
    return cuts


@dataclass(frozen=True, kw_only=True, eq=False)
class Options:
    """Checked arguments of `summarize`."""

    edges: Floats | None = None
    bins: int | None = None
    equal: str | None = None
    folds: int | None = None
    joint: bool | int | str = "auto"
    on_leakage: str = "raise"
    warns_of_bins: bool = True

    def most_joint(self, outcome: Outcome) -> int:
        """The largest number of joint cells."""
        if self.joint == "auto":
            return _AUTO_BYTES // (8 * len(outcome.columns("joint")))
        return _MOST_JOINT if self.joint is True else int(self.joint)


def totals_of(items: Items, options: Options) -> Statistics:
    """Statistics as `summarize` returns them, also for items that an existing fit scores."""
    outcome = items.outcome
    equal = options.equal
    if equal not in (None, "items") and not (
        outcome.whole and equal == outcome.observed
    ):
        raise ItemsError(
            f"items with {outcome.words.outcomes} have no {equal}: leave out equal={equal!r}"
        )
    rule = _fold_rule(items, options.folds)
    # ids and folds of any type are not read unless they are used
    unused = rule.by in ("none", "cluster")
    read = replace(items, id=None, fold=None) if unused else items
    reader_type = Grouped if is_remote(items.source) else Local
    reader = reader_type(read, rule)
    limit = _informative_limit(reader)
    cuts = options.edges
    if cuts is None:
        cuts = _edges_of_bins(reader, options, limit)
    most = options.most_joint(outcome)
    tables, labels, n = reader.tables(cuts, most, limit)
    if any(table["n"].sum() != n for table in tables.values() if table):
        raise StatisticsError("the table changed while it was read: summarize again")
    _check_joint(tables, items, most, must=options.joint != "auto")
    attrs = _attrs(items, rule, options.folds, tables["part"])
    stats = from_tables(tables, labels, cuts, attrs)
    if (days := len(stats.days)) > 4000:
        raise ItemsError(
            f"column {items.date!r} has {days:,} days, more than the 4,000 that statistics keep "
            "apart: give the first day of each week or month"
        )
    if not outcome.positive:  # outcomes may all lie far from 0
        _check_digits(stats, items)
    # which explain all else
    if words := words_of_absent_zeros(stats) or words_of_percentages(stats):
        if options.on_leakage != "ignore":
            warn_user(words, ItemsWarning)
    else:
        _check_leakage(stats, items, options.on_leakage)
        amount = outcome.is_amount(stats.roles[outcome.size])
        if doubt := "" if amount else outcome.doubt(stats.table):
            warn_user(doubt, ItemsWarning)
    _log.info("summarized %s items in %s bins", f"{stats.n_items:,}", f"{stats.bins:,}")
    return stats


def _fold_rule(items: Items, folds: int | None) -> Folds:
    """The rule that puts items into folds."""
    if items.cluster is not None:
        if folds is not None and folds > BLOCKS:
            raise StatisticsError(
                f"folds={folds} of clusters are at most {BLOCKS}: give fewer"
            )
        return Folds("cluster", BLOCKS)
    if folds is None and items.fold is not None:
        return Folds("column", MOST_FOLDS)
    if folds == 0 or (folds is None and items.id is None):
        return Folds("none", 1)
    if items.fold is not None:
        raise StatisticsError(
            f"the items have folds in column {items.fold!r}: leave out folds="
        )
    if items.id is None:
        return Folds("item", folds or 1)
    ids = open_table(items.source, [items.id])[items.id].type()
    if folds is None and not ids.is_integer():
        return Folds("none", 1)
    if not ids.is_integer():
        raise ItemsError(
            f"column {items.id!r} does not hold whole numbers, of which folds are made: leave out "
            "folds=, give such ids (pandas: .astype('Int64')) or folds of your own, fold=, or name "
            "the column as cluster= instead of id="
        )
    return Folds("id", folds or _FOLDS)


def _informative_limit(reader: Grouped | Local) -> float | None:
    """Limit of the sizes that carry information; None if all do, or without a score."""
    items = reader.items
    if items.score is None or not items.outcome.size_margin:
        return None
    return items.outcome.size_limit(reader.sizes())


def _edges_of_bins(
    reader: Grouped | Local, options: Options, limit: float | None
) -> Floats:
    """Edges of bins of equal weight, from one or two grouped passes over a fine grid."""
    if reader.items.score is None:
        return np.empty(0)
    equal = options.equal
    weight = None if equal in (None, "items") else equal
    grid = binning.FIRST_GRID
    scores = reader.weights(grid, weight, limit)
    low = float(scores["score_min"].min())
    high = float(scores["score_max"].max())
    if low == high:
        return np.empty(0)
    refusal = ""
    if high - low <= _SAME * max(abs(low), abs(high)):
        refusal = (
            f"column {reader.items.score!r}: scores differ by rounding alone, from {digits(low)} "
            f"to {digits(high)}; round them to one score, or give scores that differ"
        )
    elif not scores["amount"].any():
        refusal = f"bins of equal {equal} are not possible: all of it is 0"
    if refusal:
        # first, as it names all problems of the items
        scan(reader.items)
        raise ItemsError(refusal)
    atoms = _shared_scores(reader, scores)
    values = list(atoms)
    number = int(
        _without_atoms(scores, grid, values, "n" if weight else "amount").sum()
    )
    asks = options.bins
    fewest = min(max(_FEWEST_BINS, number), _SINGLE_BINS)
    bins = asks or min(_MOST_BINS, max(fewest, number // _ITEMS_IN_BIN))
    weights = _without_atoms(scores, grid, values)
    # with few items per bin finer cells do not make bins more equal
    coarse = 1 / 16 if asks else 1 / 4
    if finer := binning.finer_grid(grid, scores["cell"], weights, bins, coarse):
        grid = finer
        scores = reader.weights(grid, weight, limit)
        weights = _without_atoms(scores, grid, values)
    if not weights.any():  # all items are in atoms
        return binning.atom_edges(np.empty(0), values, grid, scores["cell"])
    cells = scores["cell"][weights > 0]
    weights = weights[weights > 0]
    edges = binning.choose_edges(grid, cells, weights, bins, halve_ends=asks is None)
    if options.warns_of_bins and asks and len(edges) + 1 < asks:
        warn_user(
            f"{counted(len(edges) + 1, 'bin')} instead of {asks}: equal scores stay "
            f"together, and there are only {len(scores['cell']):,} scores that differ, or a few of "
            "them hold more than a bin's share; ask for fewer bins",
            ItemsWarning,
        )
    return binning.atom_edges(edges, values, grid, cells)


def _without_atoms(
    scores: Columns,
    grid: binning.ScoreGrid,
    atoms: list[float],
    name: str = "amount",
) -> Floats:
    """A sum of each cell; atoms have bins of their own."""
    in_atoms = np.isin(scores["cell"], grid.cell(atoms))
    return np.where(in_atoms, 0.0, scores[name])


def _shared_scores(reader: Grouped | Local, scores: Columns) -> dict[float, int]:
    """Scores that are atoms, with their numbers of items."""
    grid = binning.FIRST_GRID
    # this pass has no range of scores by cell: the ends of a cell stand for it
    low = grid.boundary(scores["cell"])
    high = grid.boundary(scores["cell"] + 1)
    ends = reader.items.outcome.ends_of(low, high, scores["n"])
    stand_out = binning.stand_out(scores["n"], np.ones(len(scores["cell"]), dtype=bool))
    cells = scores["cell"][stand_out | np.isin(scores["cell"], grid.cell(ends))]
    least = binning.fewest_in_atom(int(scores["n"].sum()))
    counts = reader.repeated_scores(grid, cells, least, ends) if len(cells) else {}
    columns = [counts[name].tolist() for name in ("score", "n") if counts]
    return dict(zip(*columns, strict=True))


def _check_joint(tables: dict[str, Any], items: Items, most: int, must: bool) -> None:
    """Refuse joint cells that are too many or too far from 0, or drop them."""
    if must and most and "joint" not in tables:
        raise StatisticsError(
            f"there are more than {most:,} joint cells, or too many groups for their bins: ask for "
            "fewer bins=, allow more cells by joint=number, or leave out joint="
        )
    joint = tables.get("joint", {})
    outermost = np.abs(joint.get("value_cell", [])) >= MOST_VALUE_CELL
    if not outermost.any():
        return
    option = "noise_df" if "noise_df" in {*items.roles, *items.options} else "joint"
    if must or option == "noise_df":
        words = items.outcome.words
        size = items.roles[items.outcome.size]
        number = int(joint["n"][outermost].sum())
        verb = "is" if number == 1 else "are"
        raise ItemsError(
            f"column {items.roles[items.outcome.observed]!r}: {number:,} of "
            f"{int(joint['n'].sum()):,} {words.outcomes} {verb} more than a million {words.sizes} "
            f"(column {size!r}) from 0, beyond all joint cells: raise or drop {words.sizes} that "
            f"are almost 0, subtract a constant from {words.outcomes} and scores alike, or leave "
            f"out {option}="
        )
    del tables["joint"]


def _attrs(
    items: Items, rule: Folds, folds: int | None, part: Columns
) -> dict[str, Any]:
    """Attributes of statistics."""
    folds_by = {
        "none": 0,
        "column": int(part["fold"].max(initial=-1)) + 1,
        "cluster": _FOLDS if folds is None else folds,
    }
    return {
        "kind": items.kind,
        "roles": json.dumps(items.roles.named),
        "cells": items.outcome.grid,
        # files have no true and false
        **{name: +value for name, value in items.options.items()},
        "folds_by": rule.by,
        "folds": folds_by.get(rule.by, rule.number),
    }


def _check_groups(stats: Statistics) -> None:
    """Refuse a column of groups with a label of its own for every item, or that cannot be saved."""
    n = stats.n_items
    if isinstance(stats.noise_df, str) and len(stats.data["label"]) > _MOST_DF * max(
        len(stats.groups) * max(len(stats.days), 1), 1
    ):
        raise ItemsError(
            f"column {stats.noise_df!r} has more than {_MOST_DF} different degrees of freedom: "
            "round them"
        )
    for grouping in stats.groupings:
        where = f"column {grouping.column!r}"
        if any("\0" in level for level in grouping.levels):  # netCDF ends a text there
            raise ItemsError(f"{where}: some labels have a NUL character: remove it")
        if _OWN_GROUPS <= n <= len(grouping.levels):
            raise ItemsError(
                f"{where}: every item is a group of its own ({n:,} groups of {n:,} items), so that "
                "no group has a curve to learn: name a column whose labels repeat, or leave it out "
                "of group="
            )


def _warn_of_atoms(stats: Statistics, items: Items) -> None:
    scale = items.outcome.theta.name
    ends = {score: n for score, n in stats.ends.items() if score not in stats.atoms}
    kinds = (
        (
            stats.atoms,
            "scores shared by many items, such as a default score",
            "A fit gives each its own mean and variance, so that it does not bend the curves next "
            "to it; a prior with atoms=False treats it as any other score",
        ),
        (
            ends,
            f"scores without a {scale}",
            f"A fit on the {scale} scale gives each its own mean and variance; if scores are not "
            'estimates of theta, give both curves soc.Spline(scale="linear")',
        ),
    )
    for atoms, what, remedy in kinds:
        if atoms:
            shares = ", ".join(
                f"{n:,} of {stats.n_items:,} items have {digits(t)}"
                for t, n in atoms.items()
            )
            warn_user(
                f"column {items.score!r} has {what}: {shares}. {remedy}", ItemsWarning
            )


def _warn_of_scale(stats: Statistics, items: Items) -> None:
    """Warn of rates far from scores throughout, as of a wrong exposure, and of counts as scores."""
    outcome = items.outcome
    bins = stats.cells("part")
    ranges = bins["score_min"], bins["score_max"], bins["n"]
    rates = outcome.sizes_add and not outcome.truncated
    rates = rates and not (words_of_absent_zeros(stats) or words_of_percentages(stats))
    low, high, _ = ranges
    if items.score is None or not rates or low.min() <= 0:
        return
    fifth = (5 * middle_shares(bins["n"])).astype(int)
    sums = (SCORE_WEIGHT, "sum_t", "sum_N", "sum_y")
    n, t, size, events = (np.bincount(fifth, bins[name]) for name in sums)
    known = events >= _TOLD
    ratio = (events * n)[known] / (size * t)[known]
    of_counts = events[known] / t[known]
    words = outcome.words
    if known.sum() >= _FEWEST_TOLD and (
        _LEVEL * range_factor(of_counts) < range_factor(ratio)
        and range_factor(of_counts) < _LEVEL
    ):
        column = items.roles[outcome.size]
        warn_user(
            f"column {items.score!r}: {words.outcomes} are {of_counts.min():.3g} to "
            f"{of_counts.max():.3g} times the scores throughout, and {words.theta}s "
            f"{ratio.min():.3g} to {ratio.max():.3g} times. If scores are expected "
            f"{words.outcomes}, divide them by column {column!r}: scores are {words.theta}s per "
            f"unit of {words.size}",
            ItemsWarning,
        )
        return
    if high.max() > outcome.theta.high or outcome.are_foreign(*ranges):
        return
    if known.any() and (ratio.min() >= _APART or ratio.max() <= 1 / _APART):
        warn_user(
            f"column {items.score!r}: {words.theta}s are {ratio.min():.3g} to {ratio.max():.3g} "
            f"times the scores throughout. If scores are {words.theta}s per unit of {words.size}, "
            f"column {items.roles[outcome.size]!r} is not the {words.size} that they refer to (a "
            "forgotten exposure counts as 1): name the right column",
            ItemsWarning,
        )


def _warn_of_large_counts(stats: Statistics, items: Items) -> None:
    """Warn of counts so large that log likelihoods are differences of far larger numbers."""
    outcome = items.outcome
    total = float(stats.data["sum_y"].sum())
    mean = total / stats.n_items
    if not outcome.whole or total <= _MOST_EVENTS or mean <= _LARGE_COUNT:
        return
    columns = " and ".join(
        repr(items.roles[r]) for r in (outcome.observed, outcome.size)
    )
    factor = 10 ** math.ceil(math.log10(total / _MOST_EVENTS))
    warn_user(
        f"columns {columns}: {outcome.words.outcomes} are {mean:.3g} on average, so large that a "
        f"log likelihood loses digits to rounding, and a fit is slow or fails: divide both by "
        f"{factor:,} and round to whole numbers, which hardly adds noise",
        ItemsWarning,
    )


def _check_digits(stats: Statistics, items: Items) -> None:
    """Refuse values so far from 0 that sums of squares lose their variation to rounding."""
    outcome = items.outcome
    names = ("n", "sum_y", "sum_y2", "sum_s2")
    sums = binning.added(stats.table("part"), ("group", "bin"), names)
    _, _, n, y1, y2, noise = sums.values()
    about = np.maximum(y2 - y1 * (y1 / np.maximum(n, 1)), 0.0)
    # rounding errs by about 2^-53 sqrt(n) of a sum of n squares
    if 2.0**-53 * np.sqrt(n) @ y2 > _DIGITS * (about + noise).sum():
        raise ItemsError(
            f"column {items.roles[outcome.observed]!r}: {outcome.words.outcomes} are so far from "
            "0, compared with their variation and noise, that sums of their squares lose the "
            f"digits that matter: subtract a constant, such as their mean {y1.sum() / n.sum():.6g},"
            f" from {outcome.words.outcomes} and scores alike"
        )


def _check_leakage(stats: Statistics, items: Items, on_leakage: str) -> None:
    if on_leakage == "ignore" or (z := stats.leakage_z) >= _LEAKAGE:
        return
    words = items.outcome.words
    around = " around their scores" if stats.has_score else ""
    text = (
        f"{words.outcomes} vary far less{around} than {words.noise} allows (z = {z:.1f}): "
        f"{cause_of(Evidence.of(items))} on_leakage='warn' or 'ignore' goes on regardless"
    )
    if on_leakage == "raise":
        raise ItemsError(text)
    warn_user(text, ItemsWarning)
