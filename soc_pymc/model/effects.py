"""Effects of bins: their pilot while they are integrated out, and their draws afterwards."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline

from ..families.bin_effects import draw_effects, value_and_gradient
from .curve_terms import CurveDesign, CurvePilot, CurveState
from .designs import Curve
from .outcomes import Outcome
from .pilot import Target, half_normal_scale, run_pilot
from .splines import spline_matrix

__all__ = ["EffectPilot", "effects_target", "run_effects_pilot", "with_effects"]

Floats = NDArray[np.float64]
Pair = tuple[CurveState, CurveState]

SCALE = 0.2
"""Of the half-normal prior of the effects' scale, in units of the mean's curve."""
_POSITIONS = np.linspace(-8.0, 8.0, 41)
_ROUNDS = 6


@dataclass(frozen=True)
class EffectPilot:
    """What the pilot knows of the scale tau of effects.

    Attributes
    ----------
    scale
        Scale of its half-normal prior.
    tau
        Tau at the posterior mean of its position.
    position, log_density
        Log posterior density of tau's standard normal position in its prior, given the curves.
    """

    scale: float
    tau: float
    position: Floats
    log_density: Floats


def effects_target(outcome: Outcome, data: Any, tau: float) -> Target:
    """What the pilot sees where every row has an effect of scale tau, integrated out."""
    plain, log_tau = outcome.target(data), np.log([tau])

    def likelihood(m: Floats, c: Floats) -> Floats:
        return value_and_gradient(m[None], c[None], log_tau, *data.arrays)[:3, 0]

    def information(m: Floats, c: Floats) -> tuple[Floats, Floats]:
        first, second = plain.information(m, c)
        step = 0.5 / np.sqrt(np.maximum(first, 1e-12))
        bend = (likelihood(m - step, c)[1] - likelihood(m + step, c)[1]) / (2.0 * step)
        return np.clip(bend, 0.0, first), second  # a row far away from the curve tells it nothing

    return Target(likelihood, information, plain.most, plain.farthest)


def run_effects_pilot(
    designs: tuple[CurveDesign, CurveDesign],
    outcome: Outcome,
    data: Any,
    start: Pair,
    scale: float,
    tau: float | None = None,
) -> tuple[tuple[CurvePilot, CurvePilot], EffectPilot]:
    """The curves' mode given the effects' scale, which is re-estimated on the way.

    Parameters
    ----------
    designs, outcome, data
        Of the model.
    start
        Coefficients of both curves to start from.
    scale
        Of tau's prior.
    tau
        To start from; None is a tenth of `scale`.
    """
    tau = 0.1 * scale if tau is None else tau
    for _ in range(_ROUNDS):
        pilots = run_pilot(designs, effects_target(outcome, data, tau), start)
        start = (pilots[0].state, pilots[1].state)
        found = _scale_pilot(designs, data, start, scale)
        change, tau = abs(np.log(found.tau / tau)), found.tau
        if change < 0.1:
            break
    return pilots, found


def _scale_pilot(
    designs: tuple[CurveDesign, CurveDesign], data: Any, at: Pair, scale: float
) -> EffectPilot:
    m, c = (s.at(d)[None] for s, d in zip(at, designs, strict=True))
    m, c = (np.repeat(x, len(_POSITIONS), axis=0) for x in (m, c))
    log_tau = np.log(half_normal_scale(_POSITIONS, scale))
    value = value_and_gradient(m, c, log_tau, *data.arrays)[0].sum(axis=1)
    log_density = value - 0.5 * _POSITIONS**2
    fine = np.linspace(_POSITIONS[0], _POSITIONS[-1], 3201)
    log_density = CubicSpline(_POSITIONS, log_density)(fine)
    weight = np.exp(log_density - log_density.max())
    mean = np.array(weight @ fine / weight.sum())
    return EffectPilot(scale, float(half_normal_scale(mean, scale)), fine, log_density)


def with_effects(
    posterior: xr.Dataset,
    outcome: Outcome,
    curves: tuple[Curve, Curve],
    data: Any,
    bins: NDArray[np.int64],
) -> xr.Dataset:
    """Draws with the effects of the bins, each from its posterior given the draw's curves and tau.

    Given these the effects are independent, so that this completes draws of the joint posterior.
    """
    first, second = (
        _flat(posterior[name]) @ spline_matrix(curve.position, curve.basis.knots).T
        for name, curve in zip(outcome.variables, curves, strict=True)
    )
    name = outcome.variables[0]
    tau = _flat(posterior[f"{name}_bin_effect_sd"])
    drawn = draw_effects(first, second, np.log(tau), data, np.random.default_rng(0))
    sizes = (posterior.sizes["chain"], posterior.sizes["draw"], len(bins))
    dims = ("chain", "draw", "effect_bin")
    return posterior.assign({f"{name}_of_bin": (dims, drawn.reshape(sizes))}).assign_coords(
        effect_bin=bins
    )


def _flat(values: xr.DataArray) -> Floats:
    array = values.transpose("chain", "draw", ...).to_numpy()
    return np.asarray(array.reshape(-1, *array.shape[2:]))
