"""The mode of both curves of a family, where every model begins."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from .._lib.errors import FitError
from ..data.items import Grouping
from ..data.statistics import NO_JOINT_CELLS, Statistics
from ..families.family import Family
from ..families.row_sums import RowSums, Weak
from .laplace import CurveTarget, Laplace, find_mode
from .levels import LevelRows, Levels, LevelTarget, integrated_grouping
from .rows import MOST_BINS, Rows, positions, rows_of
from .terms import Curve, State, make_curve, slopes

_FEWEST_BINS = 100  # minimum of merged bins where there are hardly any events
_MOST_EFFECTS = 40  # most bins of a mixture, whose rows merge about as many


@dataclass(frozen=True)
class Pilot:
    """Both curves of the family with their mode: the whole prior, or a mixture's base."""

    curves: tuple[Curve, Curve]
    laplaces: Sequence[Laplace]
    rows: Rows
    data: RowSums
    labels: tuple[str, ...]  # groups with their own deviations, by code
    groupings: tuple[Grouping, ...]  # of these
    levels: Levels | None  # integrated out


def find_pilot(stats: Statistics, family: Family, prior: Any, full: bool) -> Pilot:
    """The mode; the coefficients of many levels are integrated out unless `full`."""
    if prior.gridded:
        zero = "" if prior.mixture else "zero=True"
        check_joint_cells(stats, f"soc.{type(prior).__name__}({zero})")
    if prior.exposure is not None:
        check_joint_cells(stats, "a term in exposure")
    labels, groupings = (stats.groups, stats.groupings) if prior.groups else ((), ())
    rows, data = _rows(stats, family, prior)
    weak = partial(_weak, data, stats)
    integrated = None if full or prior.gridded else integrated_grouping(groupings)
    known: Any = {"size": prior.exposure, "groupings": groupings, "integrated": integrated}
    curves = (
        make_curve("mean", prior.mean, weak, stats, rows, **known, bin_effects=prior.bin_effects),
        make_curve("variance", prior.variance, weak, stats, rows, **known),
    )
    target = CurveTarget([curve.design for curve in curves], data)
    mode = find_mode(
        target, [State.starting(d, [x]) for d, x in zip(target.designs, data.level(), strict=True)]
    )
    states, of_levels = [laplace.state for laplace in mode.laplaces], None
    if integrated:
        target = LevelTarget(target.designs, data, LevelRows.of(curves, rows.group))
        # only its slopes count
        states = find_mode(target, target.start(states), enough=0.1).states
        of_levels = states[-1].coefficients
    # the mode's slope gives the spread of theta by the scores in a bin
    slope = slopes(curves[0], states[0].coefficients, of_levels, groupings, rows.group)
    spread = slope**2 * positions(curves[0].axis, rows)[1]
    data = data.with_spread(np.minimum(spread, data.most_spread))
    target = replace(target, data=data)
    mode = find_mode(target, states, ahead=bool(integrated))
    levels = target.levels(mode) if isinstance(target, LevelTarget) else None
    return Pilot(curves, mode.laplaces, rows, data, labels, groupings, levels)


def _weak(data: RowSums, stats: Statistics, scale: str, centre: float) -> tuple[Weak, Weak]:
    """Weak priors of both curves; where all items have one score, it does not place the level."""
    mean, variance = data.weak(_totals(stats), scale, centre)
    if float(stats.data["score_min"].min()) == float(stats.data["score_max"].max()):
        mean = mean._replace(level=(data.level()[0], mean.level[1]))
    return mean, variance


def _rows(stats: Statistics, family: Family, prior: Any) -> tuple[Rows, RowSums]:
    """Rows of the likelihood, fewer where there are few events or many classes."""
    terms = prior.groups and bool(stats.groups), prior.exposure is not None, prior.atoms
    most_bins = max(_FEWEST_BINS, int(family.rows.events(_totals(stats))))
    if terms[0] or terms[1] or prior.bin_effects:
        capped = prior.bin_effects and prior.gridded
        most_bins = min(most_bins, _MOST_EFFECTS if capped else MOST_BINS)
    return rows_of(stats, family, *terms, most_bins)


def _totals(stats: Statistics) -> dict[str, float]:
    """Sums over all items."""
    names = (name for name in stats.data.data_vars if str(name).startswith(("n", "sum_")))
    return {str(name): float(stats.data[name].sum()) for name in names}


def check_joint_cells(stats: Statistics, what: str) -> None:
    """Refuse statistics without joint cells, with the remedy."""
    if not stats.has_joint:
        raise FitError(f"{what} reads joint cells, which these statistics lack: {NO_JOINT_CELLS}")
