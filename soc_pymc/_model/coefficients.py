"""Coefficients of a design as PyMC variables, with the quantities that are linear in them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy import linalg

from .._lib.arrays import Floats
from .coordinates import add_block, add_line, add_scale
from .laplace import Laplace
from .levels import Levels
from .terms import Curve, Design, Output


@dataclass(frozen=True)
class Coefficients:
    """Coefficients of one design as variables, with their outputs."""

    label: str  # prefix of the names of data
    variable: str  # prefix of the names of its variables
    design: Design
    laplace: Laplace
    dims: Mapping[str, str]  # of the coefficients, by block
    outputs: tuple[Output, ...]

    @property
    def names(self) -> list[str]:
        """Variables of the coefficients, in the order of the design."""
        return [f"{self.variable}{name}" for name in self.design.names]

    @property
    def turn(self) -> Floats:
        """Matrix from the variables to the coefficients: a rotation of each block."""
        rotations = (block.rotation for block in self.laplace.blocks)
        return linalg.block_diag(*rotations, np.eye(self.design.line.shape[1]))


def curve_coefficients(curve: Curve, laplace: Laplace, variable: str) -> Coefficients:
    """Coefficients of a curve, whose variables begin with the curve's."""
    dims = {block: basis_dim(curve.name, block) for block in curve.design.names}
    dims["line"] = f"{curve.name}_line_term"
    outputs = tuple(curve.outputs(variable))
    return Coefficients(f"{curve.name}_", f"{variable}_", curve.design, laplace, dims, outputs)


def basis_dim(curve: str, block: str) -> str:
    """Dim of a block's coefficients."""
    return f"{curve}_basis" if block == "wiggle" else f"{curve}_{block}_basis"


def add_coefficients(part: Coefficients, widths: Any = None) -> Any:
    """Add variables of coefficients and their outputs; returns their values at the rows."""
    *blocks, line = zip(part.names, part.design.names, strict=True)
    variables: list[Any] = []
    parts = zip(blocks, part.design.blocks, part.laplace.blocks, strict=True)
    for (name, label), block, known in parts:
        label = f"{part.label}{label}"
        variables.append(add_block(name, label, block, known, variables, part.dims[block.name]))
    before = pt.concatenate(variables) if variables else pt.zeros((0,))
    names, dim = (line[0], f"{part.label}line"), part.dims["line"]
    last = add_line(*names, part.design, part.laplace, before, dim, widths)
    values = pt.concatenate([before, last])
    # a rotation of independent, equal normals does not change the prior
    turn = part.turn
    for output in part.outputs:
        matrix = pm.Data(f"{part.label}to_{output.name}", output.matrix @ turn)
        at_points = pt.dot(matrix, values).reshape(output.shape)
        pm.Deterministic(output.name, at_points, dims=output.dims)
    return pt.dot(pm.Data(f"{part.label}at_rows", part.design.whole @ turn), values)


def add_level_scales(
    levels: Levels, curves: Sequence[Curve], parts: Sequence[Coefficients], names: tuple[str, str]
) -> list[Any]:
    """Add scales of levels' deviations; returns factors on the sds of both lines' coefficients."""
    # the more levels may deviate, the less is known of their average
    scales = [
        add_scale(name, name, scale.prior, scale.precision, scale.pull)
        for name, scale in zip(levels.scale_names(names), levels.scales, strict=True)
    ]
    widths, end = [], 0
    for part, curve, term in zip(parts, curves, levels.rows.terms, strict=True):
        columns, end = slice(end, end + len(term.names)), end + len(term.names)
        start = np.array([scale.tau for scale in levels.scales[columns]])
        lines = np.linalg.lstsq(curve.basis.line, term.values, rcond=None)[0]
        of_average = np.square(start[term.kind] * lines) / levels.rows.number
        by_kind = of_average @ (term.kind[:, None] == np.arange(len(start)))
        shares = by_kind / np.square(part.laplace.line_root).sum(axis=1, keepdims=True)
        shares /= np.maximum(shares.sum(axis=1, keepdims=True), 1.0)
        change = pt.sqr(pt.stack(scales[columns]) / start) - 1.0
        widths.append(pt.sqrt(1.0 + pt.dot(shares, change)))
    return widths
