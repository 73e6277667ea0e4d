"""Draws of a problem's parameters and curves from their prior, without a compiled graph."""

from typing import Any

import numpy as np
import xarray as xr

from .._lib.arrays import Floats
from .problem import Coefficients, Problem


def prior_draws(built: Problem, draws: int, rng: np.random.Generator) -> xr.Dataset:
    """The prior of the variables that `fit` draws from the posterior, (1, draws, ...).

    Terms that a user added are left out. So are the bounds that keep a mixture's curves near what
    its components can represent.
    """
    found: dict[str, tuple[tuple[str, ...], Floats]] = {}
    for of in built.coefficients:
        found |= _of_coefficients(of, draws, rng)
    if built.levels:
        found |= _of_levels(built, found, draws, rng)
    coords = built.model.coords
    used = {dim for dims, _ in found.values() for dim in dims}
    return xr.Dataset(
        {name: (("chain", "draw", *dims), values[None]) for name, (dims, values) in found.items()},
        {
            "chain": [0],
            "draw": np.arange(draws),
            **{dim: np.asarray(coords[dim]) for dim in used if coords.get(dim)},
        },
    )


def _of_coefficients(
    of: Coefficients, draws: int, rng: np.random.Generator
) -> dict[str, tuple[tuple[str, ...], Floats]]:
    """Scales, coefficients and their outputs, by name, with dims."""
    found: dict[str, tuple[tuple[str, ...], Floats]] = {}
    turns = of.turns
    for block in of.design.blocks:
        name = f"{of.variable}{block.name}"
        scale = np.abs(rng.normal(0.0, block.scale, draws))
        # drawn before the rotation, which the outcomes define, so that curves do not depend on them
        values = scale[:, None] * rng.normal(size=(draws, block.design.shape[1]))
        found[f"{name}_sd"] = (), scale
        found[name] = (of.dims[block.name],), values @ turns[block.name]
    line = rng.normal(of.design.line_mean, of.design.line_sd, (draws, len(of.design.line_mean)))
    found[f"{of.variable}line"] = (of.dims["line"],), line
    outputs = np.hstack([found[name][1] for name in of.names]) @ of.to_outputs.T
    at = 0
    for output in of.outputs:
        size = len(next(iter(output.parts.values())))
        found[output.name] = output.dims, outputs[:, at : at + size].reshape(draws, *output.shape)
        at += size
    return found


def _of_levels(
    built: Problem, shared: Any, draws: int, rng: np.random.Generator
) -> dict[str, tuple[tuple[str, ...], Floats]]:
    """Scales and curves of the levels that are integrated out of the likelihood."""
    found: dict[str, tuple[tuple[str, ...], Floats]] = {}
    assert built.levels is not None
    every = []
    for variable, curve, term in zip(
        built.family.curves, built.curves, built.levels.terms, strict=True
    ):
        scale = np.abs(rng.normal(0.0, term.scales, (draws, len(term.scales))))
        every.append(scale)
        for k, name in enumerate(term.names):
            found[f"{variable}_{name}_sd"] = (), scale[:, k]
        levels = len(term.grouping.levels)
        own = scale[:, None, term.kind] * rng.normal(size=(draws, levels, len(term.kind)))
        values = shared[variable][1][:, None] + own @ term.values.T
        name = term.grouping.name
        found[f"{variable}_of_{name}"] = (name, f"{curve.name}_knot"), values
    name = built.levels.terms[0].grouping.name
    found[f"sd_of_{name}"] = (f"scale_of_{name}",), np.hstack(every)
    return found
