"""Random effects of bins: their scale while they are integrated out, and their draws afterwards."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline

from .._lib.arrays import Floats
from ..families.bin_effects import draw_effects, value_and_gradient
from ..families.row_sums import RowSums
from .laplace import CurveTarget, Laplace, find_mode, half_normal_scale
from .splines import spline_matrix
from .terms import Curve, Design, State

SCALE = 0.2
"""Of the half-normal prior of the effects' scale, in units of the mean's curve."""
_POSITIONS = np.linspace(-8.0, 8.0, 41)
_ROUNDS = 6


@dataclass(frozen=True)
class EffectScale:
    """What the data say of the scale tau of effects, given the curves."""

    scale: float  # of its half-normal prior
    tau: float  # at the posterior mean of its position
    position: Floats  # standard normal positions of tau in its prior
    log_density: Floats  # log posterior density there


@dataclass(frozen=True)
class _EffectRows:
    """Rows that each have an effect of scale tau, integrated out."""

    data: RowSums
    tau: float

    @property
    def most(self) -> tuple[float, float]:
        return self.data.most

    @property
    def farthest(self) -> tuple[float, float]:
        return self.data.farthest

    def likelihood(self, first: Floats, second: Floats) -> Floats:
        log_tau = np.log([self.tau])
        return value_and_gradient(first[None], second[None], log_tau, *self.data.arrays)[:3, 0]

    def information(self, first: Floats, second: Floats) -> tuple[Floats, Floats]:
        plain, other = self.data.information(first, second)
        step = 0.5 / np.sqrt(np.maximum(plain, 1e-12))
        below, above = (self.likelihood(first + s, second)[1] for s in (-step, step))
        # a row far away from the curve tells it nothing
        return np.clip((below - above) / (2.0 * step), 0.0, plain), other


def mode_with_effects(
    designs: tuple[Design, Design],
    data: RowSums,
    start: Sequence[State],
    scale: float,
    tau: float | None = None,
) -> tuple[list[Laplace], EffectScale]:
    """The curves' mode given the effects' scale, which is re-estimated on the way.

    `scale` is that of tau's prior; the search begins at `tau`, by default a tenth of it.
    """
    tau = 0.1 * scale if tau is None else tau
    for _ in range(_ROUNDS):
        laplaces = find_mode(CurveTarget(designs, _EffectRows(data, tau)), start)
        start = [laplace.state for laplace in laplaces]
        found = _effect_scale(designs, data, start, scale)
        change, tau = abs(np.log(found.tau / tau)), found.tau
        if change < 0.1:
            break
    return laplaces, found


def _effect_scale(
    designs: tuple[Design, Design], data: RowSums, at: Sequence[State], scale: float
) -> EffectScale:
    m, c = (s.at(d)[None] for s, d in zip(at, designs, strict=True))
    m, c = (np.repeat(x, len(_POSITIONS), axis=0) for x in (m, c))
    log_tau = np.log(half_normal_scale(_POSITIONS, scale))
    value = value_and_gradient(m, c, log_tau, *data.arrays)[0].sum(axis=1)
    log_density = value - 0.5 * _POSITIONS**2
    fine = np.linspace(_POSITIONS[0], _POSITIONS[-1], 3201)
    log_density = CubicSpline(_POSITIONS, log_density)(fine)
    weight = np.exp(log_density - log_density.max())
    mean = np.array(weight @ fine / weight.sum())
    return EffectScale(scale, float(half_normal_scale(mean, scale)), fine, log_density)


def with_effects(
    posterior: xr.Dataset,
    names: tuple[str, str],
    curves: tuple[Curve, Curve],
    data: RowSums,
    bins: NDArray[np.int64],
) -> xr.Dataset:
    """Draws with the effects of the bins, each from its posterior given the draw's curves and tau.

    Given these the effects are independent, so that this completes draws of the joint posterior.
    """
    first, second = (
        _flat(posterior[name]) @ spline_matrix(curve.position, curve.basis.knots).T
        for name, curve in zip(names, curves, strict=True)
    )
    name = names[0]
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
