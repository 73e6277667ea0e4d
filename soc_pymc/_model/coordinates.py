"""Parameters as PyMC variables with plain priors, in coordinates close to a standard normal.

The coordinates are PyMC transforms, which do not change the model: of a variable's inputs, only
those of its prior affect its density, and the last two its coordinates. On the plain coordinates
variational inference fails silently, because the width of the coefficients depends on the smoothing
scale.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.shape_utils import rv_size_is_none
from pymc.logprob.transforms import Transform
from scipy import linalg, optimize, special

from .._lib.arrays import Floats, Ints
from .laplace import BlockLaplace, Laplace, scale_log_density
from .levels import Levels
from .terms import Block, Curve, Design, Output

_POSITIONS = np.linspace(-8.0, 8.0, 3201)
_MEDIAN = 0.4769362762044699  # erf(_MEDIAN) = 1/2
_ROOT2 = float(np.sqrt(2.0))


class ScaleTransform(Transform):
    """Map from a near-normal number v to tau ~ half-normal(scale), given the scale and a shape.

    q, the standard normal position of tau in its prior, is a + b sinh(d (asinh v + e)), whose shape
    (a, b, e, d) matches quantiles of the Laplace start's posterior of q (Jones and Pewsey 2009).
    """

    name = "nearnormal"  # PyMC splits names at underscores
    ndim_supp = 0

    @staticmethod
    def _constants(*inputs: Any) -> Sequence[Any]:
        scale, shape = _coordinates(inputs)
        return scale, *(shape[i] for i in range(4))

    def backward(self, value: Any, *inputs: Any) -> Any:
        """Tau at v."""
        scale, a, b, e, d = self._constants(*inputs)
        # tau stays above 1e-50 scale, where gradients in z/tau are still accurate; the density
        # there is below exp(-112) of its maximum
        q = pt.maximum(a + b * pt.sinh(d * (pt.arcsinh(value) + e)), -15.0)
        low = pt.erfinv(0.5 * pt.erfc(-pt.minimum(q, 0.0) / _ROOT2))
        high = pt.erfcinv(0.5 * pt.erfc(pt.maximum(q, 0.0) / _ROOT2))
        return scale * _ROOT2 * pt.switch(pt.lt(q, 0.0), low, high)

    def forward(self, value: Any, *inputs: Any) -> Any:
        """V at tau."""
        scale, a, b, e, d = self._constants(*inputs)
        x = value / (scale * _ROOT2)
        low = -_ROOT2 * pt.erfcinv(2.0 * pt.erf(pt.minimum(x, _MEDIAN)))
        high = _ROOT2 * pt.erfcinv(2.0 * pt.erfc(pt.maximum(x, _MEDIAN)))
        q = pt.switch(pt.lt(x, _MEDIAN), low, high)
        return pt.sinh(pt.arcsinh((q - a) / b) / d - e)

    def log_jac_det(self, value: Any, *inputs: Any) -> Any:
        """Log d tau / d v: dtau/dq is the ratio of the normal to the half-normal density."""
        scale, a, b, e, d = self._constants(*inputs)
        inner = d * (pt.arcsinh(value) + e)
        q, tau = a + b * pt.sinh(inner), self.backward(value, *inputs)
        log_slope = pt.log(b * d) + pt.log(pt.cosh(inner)) - 0.5 * pt.log1p(value**2)
        log_half = float(np.log(2.0)) - 0.5 * (tau / scale) ** 2 - pt.log(scale)
        return log_slope - 0.5 * q**2 - log_half


class AffineTransform(Transform):
    """Coefficients as centre + root w: the root is a vector of sds, or upper triangular."""

    name = "informed"
    ndim_supp = 1

    def backward(self, value: Any, *inputs: Any) -> Any:
        """Coefficients at w."""
        centre, root = _coordinates(inputs)
        return centre + (root * value if root.ndim == 1 else pt.dot(root, value))

    def forward(self, value: Any, *inputs: Any) -> Any:
        """W at coefficients."""
        centre, root = _coordinates(inputs)
        if root.ndim == 1:
            return (value - centre) / root
        return pt.linalg.solve_triangular(root, value - centre, lower=False)

    def log_jac_det(self, value: Any, *inputs: Any) -> Any:
        """Log determinant of the root."""
        _, root = _coordinates(inputs)
        return pt.log(root if root.ndim == 1 else pt.diagonal(root)).sum()


def _coordinates(inputs: Sequence[Any]) -> Sequence[Any]:
    """The last two inputs of a variable, which are followed by its random generator."""
    return inputs[-3:-1]


def density_shape(q: Floats, log_density: Floats) -> Floats:
    """Constants of `ScaleTransform` that make v normal under a log density of q at equal steps."""
    mass = np.cumsum(np.exp(log_density - log_density.max()))
    share = (mass - 0.5 * np.diff(mass, prepend=0.0)) / mass[-1]
    v = np.linspace(-4.0, 4.0, 33)  # tails matter for importance weights
    target = np.interp(special.ndtr(v), share, q)
    weight = np.exp(-(v**2) / 16.0)

    def residual(x: Floats) -> Floats:
        a, log_b, e, log_d = x
        fitted = a + np.exp(log_b) * np.sinh(np.exp(log_d) * (np.arcsinh(v) + e))
        return np.asarray(weight * (fitted - target))

    start = np.array([target[16], np.log((target[24] - target[8]) / 4.0), 0.0, 0.0])
    width = np.array([8.0, 3.0, 1.5, 0.5])  # limits the tails
    a, log_b, e, log_d = optimize.least_squares(
        residual, start, bounds=(start - width, start + width)
    ).x
    return np.array([a, np.exp(log_b), e, np.exp(log_d)])


# --- variables -----------------------------------------------------------------------------------


def _variable(
    name: str, law: Any, transform: Transform, signature: str, *inputs: Any, dims: Any = None
) -> Any:
    """A variable with a law's prior, given its parameters, then those of the coordinates."""

    def logp(value: Any, *inputs: Any) -> Any:
        density = pm.logp(law.dist(*inputs[:-2]), value)
        return density.sum(axis=-1) if transform.ndim_supp else density

    def dist(*inputs: Any) -> Any:
        *parameters, centre, _, size = inputs
        if transform.ndim_supp:
            shape = centre.shape
            size = shape if rv_size_is_none(size) else pt.concatenate([size, shape])
        return law.dist(*parameters, size=size)

    def mode(variable: Any, size: Any, *inputs: Any) -> Any:
        zero = pt.zeros_like(inputs[-2])
        return transform.backward(zero, *inputs, None)

    return pm.CustomDist(
        name,
        *inputs,
        dist=dist,
        logp=logp,
        support_point=mode,
        signature=signature,
        dims=dims,
        transform=transform,
    )


def add_scale(name: str, label: str, prior_scale: float, precision: Floats, pull: Floats) -> Any:
    """A scale tau ~ half-normal(prior_scale) of coefficients with this data precision and pull."""
    log_density = scale_log_density(_POSITIONS, prior_scale, precision, pull)
    scale = pm.Data(f"{label}_prior_scale", np.asarray(prior_scale))
    shape = pm.Data(f"{label}_sd_shape", density_shape(_POSITIONS, log_density))
    return _variable(name, pm.HalfNormal, ScaleTransform(), "(),(),(s)->()", scale, scale, shape)


# --- coefficients ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Coefficients:
    """Coefficients of one design as variables, with their outputs."""

    label: str  # prefix of the names of data
    variable: str  # prefix of the names of its variables
    design: Design
    laplace: Laplace
    outputs: Sequence[Output]

    @property
    def names(self) -> list[str]:
        """Variables of the coefficients, in the order of the design."""
        names = (*(block.name for block in self.design.blocks), "line")
        return [f"{self.variable}{name}" for name in names]

    @property
    def dims(self) -> dict[str, Ints | list[str]]:
        """Dims of the variables, in their order, with labels."""
        dims: dict[str, Any] = {b.dim: np.arange(b.design.shape[1]) for b in self.design.blocks}
        number = self.design.line.shape[1]
        names = ["level", "slope"][:number] if self.label else np.arange(number)
        return {**dims, f"{self.label}line_term": names}

    @property
    def turn(self) -> Floats:
        """Matrix from the variables to the coefficients: a rotation of each block."""
        rotations = (block.rotation for block in self.laplace.blocks)
        return linalg.block_diag(*rotations, np.eye(self.design.line.shape[1]))


def add_coefficients(part: Coefficients, widths: Any = None) -> Any:
    """Add variables of coefficients and their outputs; returns their values at the rows."""
    variables: list[Any] = []
    parts = zip(part.names, part.design.blocks, part.laplace.blocks, strict=False)
    for name, block, known in parts:
        variables.append(_block(name, f"{part.label}{block.name}", block, known, variables))
    before = pt.concatenate(variables) if variables else pt.zeros((0,))
    values = pt.concatenate([before, _line(part, before, widths)])
    # a rotation of independent, equal normals does not change the prior
    turn = part.turn
    for output in part.outputs:
        matrix = pm.Data(f"{part.label}to_{output.name}", output.matrix @ turn)
        at_points = pt.dot(matrix, values).reshape(output.shape)
        pm.Deterministic(output.name, at_points, dims=output.dims)
    return pt.dot(pm.Data(f"{part.label}at_rows", part.design.whole @ turn), values)


def _block(
    name: str, label: str, block: Block, laplace: BlockLaplace, before: Sequence[Any]
) -> Any:
    """Rotated coefficients z ~ N(0, tau) of a term, with their scale tau ``{name}_sd``.

    Given tau the data's precision d (which may be 0) and pull (d times their centre) standardise z:
    z = pull s^2 + s w, s^2 = tau^2 / (1 + d tau^2).
    """
    tau = add_scale(f"{name}_sd", label, block.scale, laplace.precision, laplace.mode_pull)
    pull = pm.Data(f"{label}_pull", laplace.pull)
    if before:
        coupling = pm.Data(f"{label}_coupling", laplace.coupling)
        pull = pull - pt.dot(coupling, pt.concatenate(before))
    precision = pm.Data(f"{label}_precision", laplace.precision)
    # log tau is finite where 1/tau^2 overflows
    log_sd = pt.log(tau) - 0.5 * pt.log1p(precision * tau**2)
    inputs = 0.0, tau, pull * pt.exp(2.0 * log_sd), pt.exp(log_sd)
    law, signature = (pm.Normal, AffineTransform()), "(),(),(k),(k)->(k)"
    return _variable(name, *law, signature, *inputs, dims=block.dim)


def _line(part: Coefficients, before: Any, widths: Any) -> Any:
    """The line's coefficients with their own Normal priors, in coordinates given all terms."""
    label, dim, known = f"{part.label}line", f"{part.label}line_term", part.laplace
    root = pm.Data(f"{label}_root", known.line_root)
    mean = pm.Data(f"{label}_prior_mean", part.design.line_mean, dims=dim)
    sd = pm.Data(f"{label}_prior_sd", part.design.line_sd, dims=dim)
    centre = pm.Data(f"{label}_centre", known.line_centre, dims=dim)
    # makes the terms orthogonal to the line in the information
    centre = centre - pt.dot(pm.Data(f"{label}_shift", known.line_shift), before)
    root = root if widths is None else root * widths[:, None]
    law, signature = (pm.Normal, AffineTransform()), "(k),(k),(k),(k,k)->(k)"
    return _variable(part.names[-1], *law, signature, mean, sd, centre, root, dims=dim)


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
