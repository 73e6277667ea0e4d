"""From the prior of a mixture and statistics to the `pymc.Model` of its tilt.

Log weights of the components are those of the pilot's own family plus a tilt, J functions of the
component's position with coefficients smooth in the score: some with Normal priors of their own,
those of the shape that all scores share N(0, tau_1^2), those of its drift with the score
N(0, tau_2^2), both taus half-normal. The bins' items enter through their log marginal alone.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray

from . import hierarchy
from .coordinates import (
    LineTransform,
    ScaleTransform,
    WiggleTransform,
    pilot_point,
    scale_shape,
)
from .curve_terms import CurvePilot
from .designs import Curve
from .families.components import MixtureCells
from .mixture_likelihood import mixture_log_marginal, shared_cells
from .outcomes import Outcome
from .priors import Gamma, GammaMixture, Normal, NormalMixture
from .results import Fit
from .rows import Rows
from .statistics import Statistics
from .tilt_design import (
    MergedBins,
    TiltDesign,
    joint_cells,
    make_cells,
    make_tilt,
    merged,
    tilt_basis,
)
from .tilt_pilot import TiltPilot, Wiggle, run_tilt_pilot

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
    pilot: TiltPilot


def build_mixture(
    stats: Statistics, prior: GammaMixture | NormalMixture, start: Fit | None = None
) -> Mixture:
    """Frame, tilt, pilot and model.

    Parameters
    ----------
    stats
        Statistics with joint cells.
    prior
        The prior's configuration.
    start
        An earlier fit of the frame's own family, at which its search may begin; that of a mixture
        holds no such curves and is not used.

    Raises
    ------
    FitError
        If the statistics have no joint cells.
    """
    cells = joint_cells(stats, type(prior).__name__)
    kind = "poisson" if isinstance(prior, GammaMixture) else "normal"
    own = (Gamma if kind == "poisson" else Normal)(prior.mean, prior.variance, groups=False)
    plain = start if start is not None and isinstance(start.prior, Gamma | Normal) else None
    built = hierarchy.build(stats, own, plain)
    first, second = (p.state.at(c.design) for c, p in zip(built.curves, built.pilots, strict=True))
    position, spread = built.curves[0].position, built.data.spread
    bins = merged(kind, stats, built.rows, built.curves[0], (first, second), spread, position)
    design = make_tilt(kind, prior, bins)
    base, basis = tilt_basis(kind, bins.frame, design.z, design.functions)
    data = replace(make_cells(kind, cells, bins, stats.coarse, design.z), base=base, basis=basis)
    scales = (prior.shape, prior.drift)
    pilot = run_tilt_pilot(design, data, scales)
    of = bins.of[built.rows.bin]
    totals = np.bincount(of, stats.data["sum_y"].to_numpy()[built.rows.bin])
    model = _model(built.outcome.observed, design, data, pilot, scales, bins, totals)
    mean, variance = (_at_knots(c, p) for c, p in zip(built.curves, built.pilots, strict=True))
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
    pilot: TiltPilot,
    scales: tuple[float, float],
    bins: MergedBins,
    totals: Floats,
) -> pm.Model:
    line, shape, drift = (design.group == k for k in range(3))
    coords: dict[str, Any] = {
        "bin": bins.score,
        "tilt_function": list(design.labels),
        "tilt_knot": design.knots,
        "tilt_line_term": np.arange(int(line.sum())),
        "tilt_shape_term": np.arange(int(shape.sum())),
        "tilt_drift_term": np.arange(int(drift.sum())),
    }
    with pm.Model(coords=coords) as built:
        shared_part = _add_wiggle("tilt_shape", pilot.shape, scales[0])
        drifting = _add_wiggle("tilt_drift", pilot.drift, scales[1], pilot, shared_part)
        both = pt.concatenate([shared_part, drifting])
        fixed = pm.CustomDist(
            "tilt_line",
            pm.Data("tilt_line_prior_mean", design.mean, dims="tilt_line_term"),
            pm.Data("tilt_line_prior_sd", design.sd, dims="tilt_line_term"),
            pm.Data("tilt_line_centre", pilot.line_centre, dims="tilt_line_term"),
            pm.Data("tilt_line_shift", pilot.line_shift),
            pm.Data("tilt_line_root", pilot.line_root),
            both,
            logp=_line_logp,
            random=_draw_line,
            support_point=partial(pilot_point, LineTransform()),
            signature="(l),(l),(l),(l,k),(l,l),(k)->(l)",
            dims="tilt_line_term",
            transform=LineTransform(),
        )
        everything = pt.concatenate([fixed, both])

        def tilt_at(label: str, matrix: Floats) -> Any:
            rotated = np.column_stack(
                [
                    matrix[:, line],
                    matrix[:, shape] @ pilot.shape.rotation,
                    matrix[:, drift] @ pilot.drift.rotation,
                ]
            )
            flat = pt.dot(pm.Data(label, rotated), everything)
            return flat.reshape((-1, len(design.labels)))

        pm.Deterministic(
            "tilt", tilt_at("tilt_at_knots", design.at_knots), dims=("tilt_knot", "tilt_function")
        )
        at_bins = pm.Deterministic(
            "bin_tilt", tilt_at("tilt_at_bins", design.at_bins), dims=("bin", "tilt_function")
        )
        _add_outcomes(observed, at_bins, cells, totals)
    return built


def _add_wiggle(
    name: str,
    wiggle: Wiggle,
    scale: float,
    pilot: TiltPilot | None = None,
    shape: Any = None,
) -> Any:
    """A learnt scale and its rotated coefficients; the drift's centre moves with the shape's."""
    if not len(wiggle.precision):
        return pt.zeros((0,))
    sd = pm.CustomDist(
        f"{name}_sd",
        pm.Data(f"{name}_prior_scale", np.asarray(scale)),
        pm.Data(f"{name}_sd_shape", scale_shape(scale, wiggle.precision, wiggle.pull)),
        logp=_scale_logp,
        random=_draw_scale,
        support_point=partial(pilot_point, ScaleTransform()),
        signature="(),(s)->()",
        transform=ScaleTransform(),
    )
    pull = pm.Data(f"{name}_pull", wiggle.pull, dims=f"{name}_term")
    if pilot is not None:
        pull = pull - pt.dot(pm.Data(f"{name}_by_shape", pilot.drift_by_shape), shape)
    return pm.CustomDist(
        name,
        sd,
        pm.Data(f"{name}_precision", wiggle.precision, dims=f"{name}_term"),
        pull,
        logp=_wiggle_logp,
        random=_draw_wiggle,
        support_point=partial(pilot_point, WiggleTransform()),
        signature="(),(k),(k)->(k)",
        dims=f"{name}_term",
        transform=WiggleTransform(),
    )


# The plain statement of the prior: what follows the first one or two parameters of each variable
# serves its coordinates alone.


def _scale_logp(value: Any, scale: Any, shape: Any) -> Any:
    return pm.logp(pm.HalfNormal.dist(scale), value)


def _wiggle_logp(value: Any, scale: Any, precision: Any, pull: Any) -> Any:
    return pm.logp(pm.Normal.dist(0.0, scale), value).sum(axis=-1)


def _line_logp(value: Any, mean: Any, sd: Any, *coordinates: Any) -> Any:
    return pm.logp(pm.Normal.dist(mean, sd), value).sum(axis=-1)


def _draw_scale(scale: Any, shape: Any, rng: Any = None, size: Any = None) -> Any:
    return np.abs(rng.normal(0.0, scale, size=size))


def _draw_wiggle(scale: Any, precision: Any, pull: Any, rng: Any = None, size: Any = None) -> Any:
    shape = np.broadcast_shapes(np.shape(scale)[:1] and (*np.shape(scale), 1), precision.shape)
    return rng.normal(size=(*(size or ()), *shape)) * np.asarray(scale)[..., None]


def _draw_line(mean: Any, sd: Any, *coordinates: Any, rng: Any = None, size: Any = None) -> Any:
    return rng.normal(mean, sd, size=None if size is None else (*size, mean.shape[-1]))


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
        ndim_supp=1,
        observed=totals,
        dims="bin",
    )


def _outcome_logp(value: Any, tilt: Any, *arrays: Any) -> Any:
    core = [2, 3, 1, 1, 2, 1]
    plain = tuple(a[(0,) * (a.ndim - n)] for a, n in zip(arrays, core, strict=True))
    return mixture_log_marginal(tilt, plain).sum(axis=-1)
