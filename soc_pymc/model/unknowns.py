"""Unknowns of curves as PyMC variables: plain priors, stated in the pilot's coordinates.

What follows the first one or two parameters of each variable serves its coordinates alone.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray

from .coordinates import LineTransform, ScaleTransform, WiggleTransform, pilot_point, scale_shape
from .curve_terms import Block, BlockPilot, CurveDesign, CurvePilot

__all__ = ["add_block", "add_line", "add_scale"]

Floats = NDArray[np.float64]


def add_scale(name: str, label: str, prior_scale: float, shape: Floats) -> Any:
    """A scale tau ~ half-normal(prior_scale).

    Parameters
    ----------
    name, label
        Of the variable, and of its data before ``_prior_scale`` and ``_sd_shape``.
    prior_scale
        Of its prior.
    shape
        Constants of its coordinate, from `coordinates.density_shape`.
    """
    return pm.CustomDist(
        name,
        pm.Data(f"{label}_prior_scale", np.asarray(prior_scale)),
        pm.Data(f"{label}_sd_shape", shape),
        logp=_scale_logp,
        random=_draw_scale,
        support_point=partial(pilot_point, ScaleTransform()),
        signature="(),(s)->()",
        transform=ScaleTransform(),
    )


def add_block(
    name: str, label: str, block: Block, pilot: BlockPilot, before: Sequence[Any], dim: str
) -> Any:
    """Rotated coefficients N(0, tau) of a term with their scale, given the terms before it.

    Parameters
    ----------
    name, label
        Of the variable (the scale's is ``{name}_sd``), and of their data.
    block, pilot
        The term, and what the pilot knows of it.
    before
        Coefficients of the terms before it.
    dim
        Dimension of the coefficients.
    """
    shape = scale_shape(block.scale, pilot.precision, pilot.here)
    scale = add_scale(f"{name}_sd", label, block.scale, shape)
    pull = pm.Data(f"{label}_pull", pilot.pull)
    if before:
        pull = pull - pt.dot(pm.Data(f"{label}_coupling", pilot.coupling), pt.concatenate(before))
    return pm.CustomDist(
        name,
        scale,
        pm.Data(f"{label}_precision", pilot.precision),
        pull,
        logp=_block_logp,
        random=_draw_block,
        support_point=partial(pilot_point, WiggleTransform()),
        signature="(),(k),(k)->(k)",
        dims=dim,
        transform=WiggleTransform(),
    )


def add_line(
    name: str, label: str, design: CurveDesign, pilot: CurvePilot, before: Any, dim: str
) -> Any:
    """Coefficients with Normal priors of their own, given all terms.

    Parameters
    ----------
    name, label
        Of the variable, and of its data before ``_line_...``.
    design, pilot
        The curve, and what the pilot knows of it.
    before
        Coefficients of all terms, one after the other.
    dim
        Dimension of the coefficients.
    """
    return pm.CustomDist(
        name,
        pm.Data(f"{label}_line_prior_mean", design.line_mean, dims=dim),
        pm.Data(f"{label}_line_prior_sd", design.line_sd, dims=dim),
        pm.Data(f"{label}_line_centre", pilot.line_centre, dims=dim),
        pm.Data(f"{label}_line_shift", pilot.line_shift),
        pm.Data(f"{label}_line_root", pilot.line_root),
        before,
        logp=_line_logp,
        random=_draw_line,
        support_point=partial(pilot_point, LineTransform()),
        signature="(l),(l),(l),(l,k),(l,l),(k)->(l)",
        dims=dim,
        transform=LineTransform(),
    )


def _scale_logp(value: Any, scale: Any, shape: Any) -> Any:
    return pm.logp(pm.HalfNormal.dist(scale), value)


def _block_logp(value: Any, scale: Any, precision: Any, pull: Any) -> Any:
    return pm.logp(pm.Normal.dist(0.0, scale), value).sum(axis=-1)


def _line_logp(value: Any, mean: Any, sd: Any, *coordinates: Any) -> Any:
    return pm.logp(pm.Normal.dist(mean, sd), value).sum(axis=-1)


def _draw_scale(scale: Any, shape: Any, rng: Any = None, size: Any = None) -> Any:
    return np.abs(rng.normal(0.0, scale, size=size))


def _draw_block(scale: Any, precision: Any, pull: Any, rng: Any = None, size: Any = None) -> Any:
    shape = np.broadcast_shapes(np.shape(scale)[:1] and (*np.shape(scale), 1), precision.shape)
    return rng.normal(size=(*(size or ()), *shape)) * np.asarray(scale)[..., None]


def _draw_line(mean: Any, sd: Any, *coordinates: Any, rng: Any = None, size: Any = None) -> Any:
    return rng.normal(mean, sd, size=None if size is None else (*size, mean.shape[-1]))
