"""Draws of a problem's parameters and curves from their prior, without a compiled graph."""

from typing import Any

import numpy as np
import xarray as xr

from .._lib.arrays import Floats
from .coefficients import Coefficients
from .problem import Problem


def prior_draws(built: Problem, draws: int, rng: np.random.Generator) -> xr.Dataset:
    """The prior of the variables that `fit` draws from the posterior, (1, draws, ...)."""
    drawn: dict[str, tuple[tuple[str, ...], Floats]] = {}
    for part in built.coefficients:
        drawn |= _of_coefficients(part, draws, rng)
    if built.pilot.levels:
        drawn |= _of_levels(built, drawn, draws, rng)
    coords = built.model.coords
    used = {dim for dims, _ in drawn.values() for dim in dims}
    return xr.Dataset(
        {name: (("chain", "draw", *dims), values[None]) for name, (dims, values) in drawn.items()},
        {
            "chain": [0],
            "draw": np.arange(draws),
            **{dim: np.asarray(coords[dim]) for dim in used if coords.get(dim)},
        },
    )


def _of_coefficients(
    part: Coefficients, draws: int, rng: np.random.Generator
) -> dict[str, tuple[tuple[str, ...], Floats]]:
    """Scales, coefficients and their outputs, by name, with dims."""
    drawn: dict[str, tuple[tuple[str, ...], Floats]] = {}
    coefficients = []
    for block, laplace in zip(part.design.blocks, part.laplace.blocks, strict=True):
        name = f"{part.variable}{block.name}"
        scale = np.abs(rng.normal(0.0, block.scale, draws))
        # drawn before the rotation, which the outcomes define, so that curves do not depend on them
        values = scale[:, None] * rng.normal(size=(draws, block.design.shape[1]))
        coefficients.append(values)
        drawn[f"{name}_sd"] = (), scale
        drawn[name] = (part.dims[block.name],), values @ laplace.rotation
    mean, sd = part.design.line_mean, part.design.line_sd
    coefficients.append(rng.normal(mean, sd, (draws, len(mean))))
    drawn[f"{part.variable}line"] = (part.dims["line"],), coefficients[-1]
    for output in part.outputs:
        drawn[output.name] = output.dims, output.values(np.hstack(coefficients))
    return drawn


def _of_levels(
    built: Problem, shared: Any, draws: int, rng: np.random.Generator
) -> dict[str, tuple[tuple[str, ...], Floats]]:
    """Scales and curves of the levels that are integrated out of the likelihood."""
    drawn: dict[str, tuple[tuple[str, ...], Floats]] = {}
    assert built.pilot.levels is not None
    grouping, terms = built.pilot.levels.grouping, built.pilot.levels.rows.terms
    for variable, curve, term in zip(built.family.curves, built.pilot.curves, terms, strict=True):
        scale = np.abs(rng.normal(0.0, term.scales, (draws, len(term.scales))))
        for k, name in enumerate(term.names):
            drawn[f"{variable}_{name}_sd"] = (), scale[:, k]
        noise = rng.normal(size=(draws, len(grouping.levels), len(term.kind)))
        deviations = scale[:, None, term.kind] * noise
        values = shared[variable][1][:, None] + deviations @ term.values.T
        drawn[f"{variable}_of_{grouping.name}"] = (grouping.name, f"{curve.name}_knot"), values
    return drawn
