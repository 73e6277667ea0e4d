"""From the prior of a mixture and statistics to the `pymc.Model` of its tilt.

Log weights of the components are those of a frame, whose curves have the priors of the model of
its own family, plus functions of the component's position: a path to the Gamma with a Normal prior,
a shape that all scores share, N(0, tau^2), and its drift with the score, N(0, tau^2) as well, the
taus half-normal. The bins' items enter through their log marginal alone.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from scipy import linalg

from ..data.statistics import Statistics
from ..families import components as parts
from ..families.components import MixtureCells
from ..families.priors import FRAME, Gamma, GammaMixture, Normal, NormalMixture
from . import hierarchy
from .curve_terms import CurvePilot
from .designs import Curve
from .hierarchy import Start
from .mixture_likelihood import mixture_log_marginal, shared_cells
from .outcomes import Outcome
from .rows import Rows
from .tilt_design import (
    MergedBins,
    TiltDesign,
    joint_cells,
    make_cells,
    make_tilt,
    merged,
    tilt_basis,
)
from .tilt_pilot import run_tilt_pilot
from .unknowns import add_block, add_line

__all__ = ["Mixture", "build_mixture"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Mixture:
    """A mixture's model with what inference and the fit need beside it.

    Attributes
    ----------
    model
        The `pymc.Model`.
    outcome
        The kind of items.
    curves, rows, score
        Of the frame's own hierarchy, by which a fit describes its bins.
    frame
        The pilot's two curves at their knots.
    bins
        Bins of the likelihood.
    design, cells, pilot
        The tilt's linear model, the likelihood's data, and the mode.
    """

    model: pm.Model
    outcome: Outcome
    curves: tuple[Curve, Curve]
    rows: Rows
    score: Floats
    frame: tuple[Floats, Floats]
    bins: MergedBins
    design: TiltDesign
    cells: MixtureCells
    pilot: CurvePilot


def build_mixture(
    stats: Statistics, prior: GammaMixture | NormalMixture, start: Start | None = None
) -> Mixture:
    """Frame, tilt, pilot and model.

    Parameters
    ----------
    stats
        Statistics with joint cells.
    prior
        The prior's configuration.
    start
        An earlier fit, at whose curves (of a mixture, whose frame) the frame's search may begin.

    Raises
    ------
    FitError
        If the statistics have no joint cells.
    """
    cells = joint_cells(stats, type(prior).__name__)
    kind = "poisson" if isinstance(prior, GammaMixture) else "normal"
    own = (Gamma if kind == "poisson" else Normal)(prior.mean, prior.variance, groups=False)
    built = hierarchy.build(stats, own, start)
    first, second = (p.state.at(c.design) for c, p in zip(built.curves, built.pilots, strict=True))
    bins = merged(kind, stats, built.rows, built.curves, (first, second), built.data.spread)
    mean, variance = (_at_knots(c, p) for c, p in zip(built.curves, built.pilots, strict=True))
    design = make_tilt(kind, prior, bins, built.curves, (mean, variance))
    base, basis = tilt_basis(kind, bins.frame, design.z, design.functions)
    data = replace(make_cells(kind, cells, bins, stats.coarse, design.z), base=base, basis=basis)
    pilot = run_tilt_pilot(design, data, _start(design, built.curves, built.pilots))
    of = bins.of[built.rows.bin]
    totals = np.bincount(of, stats.data["sum_y"].to_numpy()[built.rows.bin])
    model = _model(built.outcome.observed, design, data, pilot, built.curves, bins, totals)
    return Mixture(
        model,
        built.outcome,
        built.curves,
        built.rows,
        built.score,
        (mean, variance),
        bins,
        design,
        data,
        pilot,
    )


def _start(
    design: TiltDesign, curves: tuple[Curve, Curve], pilots: tuple[CurvePilot, CurvePilot]
) -> Floats:
    """The frame where its own family has its mode, and no tilt."""
    linear = design.design
    split = [
        np.split(p.state.coefficients, c.design.ends) for c, p in zip(curves, pilots, strict=True)
    ]
    sizes = sum(len(own[-1]) for own in split)
    lines = np.concatenate([np.concatenate([own[-1] for own in split]), linear.line_mean[sizes:]])
    wiggles = [*split[1][:-1], *split[0][:-1]]
    free = linear.whole.shape[1] - len(lines) - sum(map(len, wiggles))
    return np.concatenate([np.zeros(free), *wiggles, lines])


def _at_knots(curve: Curve, pilot: CurvePilot) -> Floats:
    """The pilot's curve at its knots."""
    *blocks, line = np.split(pilot.state.coefficients, curve.design.ends)
    values = curve.basis.line @ line
    for term, own in zip(curve.terms, blocks, strict=True):
        values = values + term.values @ own
    return np.asarray(values)


def _model(
    observed: str,
    design: TiltDesign,
    cells: MixtureCells,
    pilot: CurvePilot,
    curves: tuple[Curve, Curve],
    bins: MergedBins,
    totals: Floats,
) -> pm.Model:
    coords: dict[str, Any] = {
        "bin": bins.score,
        "tilt_function": list(design.labels),
        "tilt_knot": design.knots,
        "tilt_line_term": np.arange(len(pilot.line_centre)),
        **{f"{curve.name}_knot": curve.basis.knots for curve in curves},
        **{
            f"tilt_{block.name}_term": np.arange(block.design.shape[1])
            for block in design.design.blocks
        },
    }
    with pm.Model(coords=coords) as built:
        found: list[Any] = []
        for block, own in zip(design.design.blocks, pilot.blocks, strict=True):
            name = f"tilt_{block.name}"
            found.append(add_block(name, name, block, own, found, f"{name}_term"))
        before = pt.concatenate(found)
        line = add_line("tilt_line", "tilt", design.design, pilot, before, "tilt_line_term")
        everything = pt.concatenate([before, line])
        turn = linalg.block_diag(
            *(own.rotation for own in pilot.blocks), np.eye(len(pilot.line_centre))
        )

        def made(label: str, matrix: Floats) -> Any:
            return pt.dot(pm.Data(label, matrix @ turn), everything)

        first, second, tilt = design.at_knots
        for name, matrix, curve in zip(FRAME, (first, second), curves, strict=True):
            pm.Deterministic(name, made(f"{name}_at_knots", matrix), dims=f"{curve.name}_knot")
        pm.Deterministic(
            "tilt",
            made("tilt_at_knots", tilt).reshape((-1, len(design.labels))),
            dims=("tilt_knot", "tilt_function"),
        )
        predictors = made("predictors", design.design.whole).reshape((len(totals), -1))
        away = predictors[:, :2] - pm.Data("pilot_at_bins", design.pilot)
        moved = parts.frame_tilt(
            away[:, 0], away[:, 1], pm.Data("frame_slopes", design.moving), pt.exp
        )
        at_bins = pt.concatenate([pt.stack(moved, axis=1), predictors[:, 2:]], axis=1)
        _add_outcomes(observed, pm.Deterministic("bin_tilt", at_bins), cells, totals)
    return built


# dimensions of the tilt and of the arrays of `MixtureCells`
_CELLS = "(b,j),(b,r),(b,r,j),(s),(c),(c,r),(b)"


def _add_outcomes(observed: str, tilt: Any, cells: MixtureCells, totals: Floats) -> None:
    """The bins' total outcomes, whose log probability is that of all their items."""
    pm.CustomDist(
        observed,
        tilt,
        *shared_cells(cells),
        logp=_outcome_logp,
        signature=f"{_CELLS}->(b)",
        observed=totals,
        dims="bin",
    )


def _outcome_logp(value: Any, tilt: Any, *arrays: Any) -> Any:
    core = [2, 3, 1, 1, 2, 1]
    plain = tuple(a[(0,) * (a.ndim - n)] for a, n in zip(arrays, core, strict=True))
    return mixture_log_marginal(tilt, plain).sum(axis=-1)
