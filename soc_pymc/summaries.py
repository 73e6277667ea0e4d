"""From items to statistics: bins chosen, cells summed, totals and leakage checked."""

import json
import math
import warnings
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import tables
from .binning import FIRST_GRID, choose_edges, finer_grid
from .errors import ItemsError, ItemsWarning, StatisticsError
from .items import PoissonItems
from .progress import phase
from .statistics import CELLS, FORMAT, Statistics, make_statistics

__all__ = ["summarize"]

Floats = NDArray[np.float64]

_FEWEST_BINS, _MOST_BINS, _ITEMS_IN_BIN = 20, 1000, 10  # by default
_FOLDS = 10  # where there is an id to make them from
_MOST_JOINT = 4_000_000  # joint cells, of some 100 bytes each
_LEAKAGE = -6.0  # honest scores stay above this z


def summarize(
    items: PoissonItems,
    *,
    bins: int | None = None,
    equal: Literal["items", "count", "exposure"] | None = None,
    edges: ArrayLike | None = None,
    folds: int | None = None,
    joint: bool | int = False,
    on_leakage: Literal["raise", "warn", "ignore"] = "raise",
    progress: bool = True,
) -> Statistics:
    """Sufficient statistics of items in bins of the score.

    Parameters
    ----------
    items
        The items.
    bins
        Number of bins of equal weight. None chooses one bin for 10 items, at least 20 and at most
        1,000, the first and the last of them halved again and again towards the ends, where scores
        lie far apart: a bin is a single score to the model.
    equal
        What all bins have the same amount of: ``"items"`` (the default), ``"count"`` or
        ``"exposure"``.
    edges
        Interior cut points instead of `bins` and `equal`, strictly rising; bins are [e_k, e_k+1),
        the outer ones open, so that no item is dropped.
    folds
        Number of folds whose statistics are kept apart, for cross-validation. None keeps the
        items' own, 10 made from their ``id``, or none where they have neither. Folds come from
        whole-number arithmetic on the id, the same everywhere, or without one on the item's score
        and exposure, never on its count. 0 keeps none.
    joint
        Whether to keep joint cells of exposures and counts too, which checks and priors beyond one
        Gamma read: some hundred times as many numbers. A number is the most cells to keep (True: 4
        million, half a gigabyte); beyond it their bins are merged by twos, and `Statistics.coarse`
        says into how many. They have no folds.
    on_leakage
        What to do where counts vary far less around their scores than noise allows, the sign of
        scores that saw the counts they predict: ``"raise"`` an error, ``"warn"`` or ``"ignore"``.
    progress
        Whether long work shows its progress.

    Returns
    -------
    Statistics
        The statistics.

    Raises
    ------
    ItemsError
        If the items are not valid, or leak.
    StatisticsError
        If `bins`, `equal`, `edges`, `folds` or `joint` are not valid.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> import soc_pymc as soc
    >>> t = np.linspace(0.1, 0.5, 100)
    >>> frame = pd.DataFrame({"t": t, "y": np.arange(100) % 3, "N": 5})
    >>> items = soc.PoissonItems(frame, score="t", count="y", exposure="N")
    >>> stats = soc.summarize(items, bins=4, progress=False)
    >>> stats.n_items, stats.total_count, stats.bins
    (100, 99, 4)
    """
    _check_options(bins, equal, edges, on_leakage)
    most_joint = _check_joint(joint)
    cuts = None if edges is None else _check_edges(edges)
    rule = _fold_rule(items, folds)
    engine = tables.Grouped if tables.kind_of(items.source) == "ibis" else tables.Streamed
    reader = engine(items, rule, progress)
    if cuts is None:
        cuts = _choose(reader, items, bins, equal or "items", progress)
    with phase("summing cells", enabled=progress and engine is tables.Grouped):
        found = reader.tables(cuts, most_joint)
    stats = _collect(found, cuts, items, rule)
    _check_totals(stats, found.totals)
    _check_leakage(stats, on_leakage)
    return stats


def _check_joint(joint: bool | int) -> int:
    if isinstance(joint, bool):
        return _MOST_JOINT if joint else 0
    if not isinstance(joint, int | np.integer) or joint < 1:
        raise StatisticsError(f"joint={joint!r} must be True, False or a number of cells")
    return int(joint)


def _fold_rule(items: PoissonItems, folds: int | None) -> tables.Folds:
    """How the items are put into folds."""
    if folds is None:
        if items.fold is not None:
            return tables.Folds("column", tables.MOST_FOLDS)
        return tables.Folds("none", 1) if items.id is None else tables.Folds("id", _FOLDS)
    whole = isinstance(folds, int | np.integer) and not isinstance(folds, bool)
    if not whole or folds == 1 or not 0 <= folds <= tables.MOST_FOLDS:
        raise StatisticsError(
            f"folds={folds!r} must be 0 or a whole number from 2 to {tables.MOST_FOLDS}"
        )
    if folds == 0:
        return tables.Folds("none", 1)
    if items.fold is not None:
        raise StatisticsError(f"the items have folds in column {items.fold!r}: leave out folds=")
    return tables.Folds("item" if items.id is None else "id", int(folds))


def _check_options(bins: Any, equal: Any, edges: Any, on_leakage: str) -> None:
    if on_leakage not in ("raise", "warn", "ignore"):
        raise StatisticsError(f"on_leakage={on_leakage!r} must be 'raise', 'warn' or 'ignore'")
    if edges is not None:
        if bins is not None or equal is not None:
            raise StatisticsError("give edges=, or bins= and equal=, not both")
        return
    whole = isinstance(bins, int | np.integer) and not isinstance(bins, bool)
    if bins is not None and not (whole and 1 <= bins <= 1_000_000):
        raise StatisticsError(f"bins={bins!r} must be a whole number from 1 to 1,000,000")
    if equal not in (None, "items", "count", "exposure"):
        raise StatisticsError(f"equal={equal!r} must be 'items', 'count' or 'exposure'")


def _check_edges(edges: ArrayLike) -> Floats:
    try:
        cuts = np.array(edges, dtype=float)
    except (TypeError, ValueError):
        raise StatisticsError("edges must be numbers") from None
    if cuts.ndim != 1:
        raise StatisticsError(f"edges must be one row of numbers, not of shape {cuts.shape}")
    if not np.isfinite(cuts).all():
        raise StatisticsError("edges must be finite: the outer bins are open by themselves")
    falls = np.flatnonzero(np.diff(cuts) <= 0)
    if len(falls):
        i = int(falls[0])
        raise StatisticsError(
            f"edges must rise strictly, but edge {i + 1} ({cuts[i + 1]:g}) follows edge {i} "
            f"({cuts[i]:g})"
        )
    return cuts


def _choose(
    reader: tables.Reader, items: PoissonItems, asked: int | None, equal: str, progress: bool
) -> Floats:
    """Edges of bins of equal weight, from one grouped pass over a fine grid, two if need be."""
    weight = None if equal == "items" else equal
    shown = progress and isinstance(reader, tables.Grouped)
    with phase("choosing bins", enabled=shown):
        first = reader.weights(FIRST_GRID, -math.inf, math.inf, weight)
    bins = asked or min(_MOST_BINS, max(_FEWEST_BINS, first.n // _ITEMS_IN_BIN))
    if first.score_min == first.score_max:
        reader.check()
        raise ItemsError(
            f"column {items.score!r}: every score is {first.score_min:.12g}, so there is "
            "nothing to calibrate along; give scores that differ between items"
        )
    grid, cells, weights = FIRST_GRID, first.cell, first.weight
    if not weights.sum() > 0:
        reader.check()
        raise ItemsError(f"bins of equal {equal} are not possible: all of it is 0")
    # bins of few items are no more equal for finer cells, which would spare the ends
    coarse = 1 / 16 if asked else 1 / 4
    finer = finer_grid(grid, cells, weights.astype(float), bins, coarse=coarse)
    if finer is not None:
        with phase("choosing bins", enabled=shown):
            second = reader.weights(*finer, weight)
        if second.weight.max() < weights.max():  # equal scores are one cell on any grid
            grid, cells, weights = finer[0], second.cell, second.weight
    edges = choose_edges(grid, cells, weights.astype(float), bins, halve_ends=asked is None)
    if len(edges) + 1 < (asked or _FEWEST_BINS):
        warnings.warn(
            f"{len(edges) + 1} bins instead of {asked or _FEWEST_BINS}: equal scores stay "
            f"together, and there are only {len(cells):,} scores that differ, or a few of them "
            "hold more than a bin's share; ask for fewer bins",
            ItemsWarning,
            stacklevel=3,
        )
    return edges


def _collect(
    found: tables.Tables, edges: Floats, items: PoissonItems, rule: tables.Folds
) -> Statistics:
    """Statistics from an engine's sums."""
    number = {"none": 0, "column": int(found.part["fold"].max(initial=-1)) + 1}
    attrs = {
        "format": FORMAT,
        "kind": items.kind,
        "roles": json.dumps(dict(items.roles)),
        "cells": CELLS,
        "folds_by": rule.by,
        "folds": number.get(rule.by, rule.number),
        "coarse": found.coarse,
    }
    sums = {name: getattr(found, name) for name in ("part", "exposure", "count", "joint")}
    return make_statistics(sums, np.array(found.labels, dtype=object), edges, attrs)


def _check_totals(stats: Statistics, totals: tables.Totals) -> None:
    """The grouped pass must have seen every item exactly once."""
    for what, found, expected, tolerance in (
        ("items", stats.n_items, totals.n, 0.0),
        ("sum of counts", stats.total_count, totals.count, 0.0),
        ("sum of exposures", stats.total_exposure, totals.exposure, 1e-9),
    ):
        if abs(found - expected) > tolerance * abs(expected):
            raise StatisticsError(
                f"the {what} came to {found} in bins but to {expected} in all: the table changed "
                "while it was read, or the engine dropped rows; summarize again"
            )


def _check_leakage(stats: Statistics, on_leakage: str) -> None:
    if on_leakage == "ignore" or (z := stats.leakage_z) >= _LEAKAGE:
        return
    text = (
        f"counts vary far less around their scores than Poisson noise allows (z = {z:.1f}): the "
        "scores probably saw the very counts they are to be calibrated with (or the counts are not "
        "counts of independent events). Posteriors would use each outcome twice, the variance "
        "curve would collapse to 0 and intervals be far too narrow. Score every item by a model "
        "trained without it: split the items into folds and score each fold by a model trained on "
        "the others, or on earlier data. on_leakage='warn' or 'ignore' goes on regardless"
    )
    if on_leakage == "raise":
        raise ItemsError(text)
    warnings.warn(text, ItemsWarning, stacklevel=3)
