"""The pilot: the mode of both curves of a family, where every model begins."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from .._lib.arguments import FitError
from .._lib.arrays import Floats
from ..data.items import Grouping
from ..data.statistics import NO_JOINT_CELLS, Statistics
from ..families.family import Family
from ..families.priors import Prior
from ..families.rows import RowSums, Weak
from ..families.scales import SCALES
from .laplace import CurveTarget, Laplace, find_mode
from .levels import LevelRows, Levels, LevelTarget
from .rows import MOST_BINS, Rows, positions, rows_of
from .terms import Curve, CurveInputs, State, curve_slopes, make_curve

# levels from which they are integrated out; fewer are parameters like others
_FEWEST_LEVELS = 8
# minimum of merged bins where there are hardly any events
_FEWEST_MERGED_BINS = 100
# squared lengths of the last steps of both searches, where levels are integrated out
_ROUGHLY = 1.0
_NEARLY = 0.05
# most bins of a mixture, whose rows merge about as many
_MOST_EFFECTS = 40


@dataclass(frozen=True, eq=False)
class Pilot:
    """Both curves of the family with their mode: the whole prior, or a mixture's base."""

    curves: tuple[Curve, Curve]
    laplaces: Sequence[Laplace]
    rows: Rows
    data: RowSums
    labels: tuple[str, ...]  # groups with their own deviations, by code
    groupings: tuple[Grouping, ...]  # of these
    levels: Levels | None  # integrated out

    @property
    def coefficients(self) -> list[Floats]:
        """Coefficients of both curves at the mode."""
        return [laplace.state.coefficients for laplace in self.laplaces]

    def curves_at(self, coefficients: Sequence[Floats]) -> list[Floats]:
        """Both curves at the rows, with the deviations of levels at the mode."""
        pairs = zip(self.curves, coefficients, strict=True)
        values = [curve.design.matrix @ x for curve, x in pairs]
        if self.levels:
            rows = self.levels.rows
            split = [len(rows.terms[0].kind)]
            deviations = np.split(self.levels.mode[rows.level], split, axis=1)
            for k, (term, deviation) in enumerate(
                zip(rows.terms, deviations, strict=True)
            ):
                values[k] = values[k] + (term.design * deviation).sum(axis=1)
        return values

    def gain_of(self, target: str) -> float:
        """Estimate what terms with this target gain in leave-one-out, in nats.

        It is their gain in log likelihood at the mode, less their effective number of parameters
        (Stone 1977), both where the other coefficients stay as they are: rather too large than too
        small.
        """
        without: list[Floats] = []
        parameters = 0.0
        for curve, laplace in zip(self.curves, self.laplaces, strict=True):
            coefficients = laplace.state.coefficients.copy()
            design = curve.design
            blocks = design.blocks, laplace.blocks, laplace.state.taus, design.ends
            for block, block_laplace, tau, end in zip(*blocks, strict=True):
                if block.target.startswith(target):
                    coefficients[end - block.design.shape[1] : end] = 0.0
                    information = block_laplace.precision * tau**2
                    parameters += float((information / (1.0 + information)).sum())
            without.append(coefficients)
        gain = self._log_marginal(self.coefficients) - self._log_marginal(without)
        return gain - parameters

    def _log_marginal(self, coefficients: Sequence[Floats]) -> float:
        location, dispersion = self.curves_at(coefficients)
        return float(self.data.values(location[None], dispersion[None]).sum())


def find_pilot(stats: Statistics, family: Family, prior: Prior, full: bool) -> Pilot:
    """The mode; the coefficients of many levels are integrated out unless `full`."""
    if prior.gridded:
        zero = "" if prior.mixture else "zero=True"
        check_joint_cells(stats, f"soc.{type(prior).__name__}({zero})")
    if prior.exposure is not None:
        check_joint_cells(stats, "a term in exposure")
    if stats.noise_law:
        check_joint_cells(stats, "noise_df=")
        if prior.exposure is not None:
            raise FitError(
                "noise sds that are estimates (noise_df=) say little of theta: leave out the "
                "prior's term in them, exposure=soc.Spline()"
            )
    labels, groupings = (stats.groups, stats.groupings) if prior.groups else ((), ())
    rows, data = _rows_of_prior(stats, family, prior)
    integrated = None
    if not (full or prior.gridded):
        integrated = _integrated(groupings)
    weak = partial(_weak, data, stats)
    inputs = CurveInputs(
        family=family,
        prior=prior,
        stats=stats,
        rows=rows,
        groupings=groupings,
        integrated=integrated,
        weak=weak,
    )
    curves = make_curve("mean", inputs), make_curve("variance", inputs)
    target = CurveTarget([curve.design for curve in curves], data)
    start = map(State.starting, target.designs, np.reshape(data.level(), (2, 1)))
    mode = find_mode(target, list(start))
    states = [laplace.state for laplace in mode.laplaces]
    deviations = None
    if integrated:
        level_rows = LevelRows.of(curves, rows.group)
        target = LevelTarget(target.designs, data, level_rows)
        # only its slopes count
        states = find_mode(target, [*states, level_rows.start], enough=_ROUGHLY).states
        deviations = states[-1].coefficients
    # the mode's slope gives the spread of theta by the scores in a bin
    location = states[0].coefficients
    slope = curve_slopes(curves[0], location, deviations, groupings, rows.group)
    spread = slope**2 * positions(curves[0].axis, rows)[1]
    data = data.with_spread(np.minimum(spread, data.most_spread))
    target = replace(target, data=data)
    if integrated:  # inference corrects what is left
        mode = find_mode(target, states, enough=_NEARLY, ahead=True)
    else:
        mode = find_mode(target, states)
    levels = target.levels(mode) if isinstance(target, LevelTarget) else None
    return Pilot(
        curves=curves,
        laplaces=mode.laplaces,
        rows=rows,
        data=data,
        labels=labels,
        groupings=groupings,
        levels=levels,
    )


def _integrated(groupings: Sequence[Grouping]) -> Grouping | None:
    """The grouping whose levels are integrated out: that with the most, if these are many."""
    largest = max(groupings, key=lambda grouping: len(grouping.levels), default=None)
    return largest if largest and len(largest.levels) >= _FEWEST_LEVELS else None


def _weak(
    data: RowSums, stats: Statistics, scale: str, centre: float
) -> tuple[Weak, Weak]:
    """Weak priors of both curves; where all items have one score, it does not place the level."""
    mean, variance = data.weak(_merged_totals(stats), scale, centre)
    if stats.one_score:
        mean = mean._replace(level=(data.level()[0], mean.level[1]))
    return mean, variance


def _rows_of_prior(
    stats: Statistics, family: Family, prior: Prior
) -> tuple[Rows, RowSums]:
    """Rows of the likelihood, fewer where there are few events or many classes."""
    terms = prior.groups and bool(stats.groups), prior.exposure is not None
    most_bins = max(_FEWEST_MERGED_BINS, int(family.rows.events(_merged_totals(stats))))
    if terms[0] or terms[1] or prior.bin_effects or stats.noise_law:
        capped = prior.bin_effects and prior.gridded
        most_bins = min(most_bins, _MOST_EFFECTS if capped else MOST_BINS)
    return rows_of(stats, family, *terms, _atoms(stats, prior), most_bins)


def _atoms(stats: Statistics, prior: Prior) -> list[float]:
    """Scores with curves of their own: many items share them, or an axis has no place for them.

    So are such scores where no item has another: two of them make no curve.
    """
    if not prior.atoms:
        return []
    scales = [prior.mean.scale, prior.variance.scale]
    axes = [SCALES[name] for name in scales if name in SCALES]
    alone = sum(stats.ends.values()) == stats.n_items
    ends = [x for x in stats.ends if alone or not all(axis.holds(x) for axis in axes)]
    return [*stats.atoms, *ends]


def _merged_totals(stats: Statistics) -> dict[str, float]:
    """Sums over all items."""
    names = (
        name for name in stats.data.data_vars if str(name).startswith(("n", "sum_"))
    )
    return {str(name): float(stats.data[name].sum()) for name in names}


def check_joint_cells(stats: Statistics, what: str) -> None:
    """Refuse statistics without joint cells, with the remedy."""
    if not stats.has_joint:
        raise FitError(
            f"{what} reads joint cells, which these statistics lack: {NO_JOINT_CELLS}"
        )
