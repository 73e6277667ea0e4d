"""Parameters as PyMC variables with plain priors, in coordinates close to a standard normal.

The coordinates are PyMC transforms, which do not change the model: only the first one or two inputs
of a variable affect its prior. On the plain coordinates variational inference fails silently,
because the width of the coefficients depends on the smoothing scale.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from hashlib import sha256
from typing import Any

import numba
import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.custom import CustomDistRV
from pymc.logprob.transforms import Transform
from pytensor.link.numba.dispatch.random import numba_core_rv_funcify
from scipy import linalg, optimize, special

from .._lib.arrays import Floats, Ints
from ..families.row_sums import RowSums
from .laplace import BlockLaplace, Laplace, scale_log_density
from .levels import Levels
from .likelihood import version_of_kernels
from .terms import Block, Curve, Design, Output

_MEDIAN = 0.4769362762044699  # erf(_MEDIAN) = 1/2
_ROOT2 = float(np.sqrt(2.0))


class ScaleTransform(Transform):
    """Map from a near-normal number v to tau ~ half-normal(scale); inputs end with scale, shape.

    q, the standard normal position of tau in its prior, is a + b sinh(d (asinh v + e)), whose shape
    (a, b, e, d) matches quantiles of the Laplace start's posterior of q (Jones and Pewsey 2009).
    """

    name = "nearnormal"  # PyMC splits names at underscores
    ndim_supp = 0

    @staticmethod
    def _position(v: Any, shape: Any) -> Any:
        a, b, e, d = (shape[i] for i in range(4))
        return a + b * pt.sinh(d * (pt.arcsinh(v) + e))

    def backward(self, value: Any, *inputs: Any) -> Any:
        """Tau at v."""
        scale, shape = inputs[-2:]
        # tau stays above 1e-50 scale, where gradients in z/tau are still accurate; the density
        # there is below exp(-112) of its maximum
        q = pt.maximum(self._position(value, shape), -15.0)
        low = pt.erfinv(0.5 * pt.erfc(-pt.minimum(q, 0.0) / _ROOT2))
        high = pt.erfcinv(0.5 * pt.erfc(pt.maximum(q, 0.0) / _ROOT2))
        return scale * _ROOT2 * pt.switch(pt.lt(q, 0.0), low, high)

    def forward(self, value: Any, *inputs: Any) -> Any:
        """V at tau."""
        scale, shape = inputs[-2:]
        x = value / (scale * _ROOT2)
        low = -_ROOT2 * pt.erfcinv(2.0 * pt.erf(pt.minimum(x, _MEDIAN)))
        high = _ROOT2 * pt.erfcinv(2.0 * pt.erfc(pt.maximum(x, _MEDIAN)))
        q = pt.switch(pt.lt(x, _MEDIAN), low, high)
        a, b, e, d = (shape[i] for i in range(4))
        return pt.sinh(pt.arcsinh((q - a) / b) / d - e)

    def log_jac_det(self, value: Any, *inputs: Any) -> Any:
        """Log d tau / d v: dtau/dq is the ratio of the normal to the half-normal density."""
        scale, shape = inputs[-2:]
        q = self._position(value, shape)
        tau = self.backward(value, *inputs)
        _, b, e, d = (shape[i] for i in range(4))
        inner = d * (pt.arcsinh(value) + e)
        log_slope = pt.log(b * d) + pt.log(pt.cosh(inner)) - 0.5 * pt.log1p(value**2)
        log_half = float(np.log(2.0)) - 0.5 * (tau / scale) ** 2 - pt.log(scale)
        return log_slope - 0.5 * q**2 - log_half


class WiggleTransform(Transform):
    """Coefficients z ~ N(0, tau) as w: z = pull s^2 + s w, s^2 = tau^2 / (1 + d tau^2).

    Inputs of the variable: tau, d (data precision, may be 0), pull (d times the data's centre).
    """

    name = "informed"
    ndim_supp = 1

    @staticmethod
    def _log_sd(tau: Any, precision: Any) -> Any:
        # log tau is finite where 1/tau^2 overflows
        return pt.log(tau) - 0.5 * pt.log1p(precision * tau**2)

    def backward(self, value: Any, *inputs: Any) -> Any:
        """Z at w."""
        tau, precision, pull = inputs[-3:]
        log_sd = self._log_sd(tau, precision)
        return pull * pt.exp(2.0 * log_sd) + pt.exp(log_sd) * value

    def forward(self, value: Any, *inputs: Any) -> Any:
        """W at z."""
        tau, precision, pull = inputs[-3:]
        log_sd = self._log_sd(tau, precision)
        return (value - pull * pt.exp(2.0 * log_sd)) * pt.exp(-log_sd)

    def log_jac_det(self, value: Any, *inputs: Any) -> Any:
        """Sum of log s."""
        tau, precision, _ = inputs[-3:]
        return pt.sum(self._log_sd(tau, precision) + pt.zeros_like(value), axis=-1)


class LineTransform(Transform):
    """Line coefficients as nearly standard normal numbers, given the wiggly ones z.

    The shift makes z orthogonal to the line in the information. Inputs end with centre, shift,
    root (upper triangular), z: line = centre - shift z + root w.
    """

    name = "informed"
    ndim_supp = 1

    def backward(self, value: Any, *inputs: Any) -> Any:
        """Line coefficients at w."""
        centre, shift, root, z = inputs[-4:]
        return centre - pt.dot(shift, z) + pt.dot(root, value)

    def forward(self, value: Any, *inputs: Any) -> Any:
        """W at line coefficients."""
        centre, shift, root, z = inputs[-4:]
        return pt.linalg.solve_triangular(root, value - centre + pt.dot(shift, z), lower=False)

    def log_jac_det(self, value: Any, *inputs: Any) -> Any:
        """Log determinant of the root, a constant."""
        return pt.sum(pt.log(pt.abs(pt.diagonal(inputs[-2]))) + pt.zeros_like(value), axis=-1)


_POSITIONS = np.linspace(-8.0, 8.0, 3201)


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
    name: str,
    transform: Transform,
    rule: "Forward",
    logp: Any,
    *inputs: Any,
    dims: Any = None,
) -> Any:
    """A variable with this log prior and rule of its draws, in the coordinates of a transform."""

    def mode(variable: Any, size: Any, *inputs: Any) -> Any:
        return transform.backward(pt.zeros_like(variable), *inputs)

    return pm.CustomDist(
        name,
        *inputs,
        logp=logp,
        random=rule,
        support_point=mode,
        signature=rule.signature,
        dims=dims,
        transform=transform,
    )


def add_scale(name: str, label: str, prior_scale: float, precision: Floats, pull: Floats) -> Any:
    """A scale tau ~ half-normal(prior_scale) of coefficients with this data precision and pull."""
    log_density = scale_log_density(_POSITIONS, prior_scale, precision, pull)
    scale = pm.Data(f"{label}_prior_scale", np.asarray(prior_scale))
    shape = pm.Data(f"{label}_sd_shape", density_shape(_POSITIONS, log_density))

    def logp(value: Any, scale: Any, shape: Any) -> Any:
        return pm.logp(pm.HalfNormal.dist(scale), value)

    return _variable(name, ScaleTransform(), _SCALE, logp, scale, shape)


def _block_logp(value: Any, scale: Any, *coordinates: Any) -> Any:
    return _line_logp(value, 0.0, scale)


def _line_logp(value: Any, mean: Any, sd: Any, *coordinates: Any) -> Any:
    return pm.logp(pm.Normal.dist(mean, sd), value).sum(axis=-1)


# --- coefficients ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Coefficients:
    """Coefficients of one design as variables, with their outputs."""

    label: str  # prefix of the names of data
    variable: str  # prefix of the names of its variables
    design: Design
    laplace: Laplace
    outputs: tuple[Output, ...]

    @property
    def names(self) -> list[str]:
        """Variables of the coefficients, in the order of the design."""
        return [f"{self.variable}{name}" for name in self.design.names]

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
    values = pt.concatenate([before, _line_of(part, before, widths)])
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
    """Rotated coefficients N(0, tau) of a term with their scale ``{name}_sd``."""
    scale = add_scale(f"{name}_sd", label, block.scale, laplace.precision, laplace.mode_pull)
    pull = pm.Data(f"{label}_pull", laplace.pull)
    if before:
        coupling = pm.Data(f"{label}_coupling", laplace.coupling)
        pull = pull - pt.dot(coupling, pt.concatenate(before))
    inputs = scale, pm.Data(f"{label}_precision", laplace.precision), pull
    return _variable(name, WiggleTransform(), _BLOCK, _block_logp, *inputs, dims=block.dim)


def _line_of(part: Coefficients, before: Any, widths: Any) -> Any:
    """The line's coefficients with their own Normal priors, in coordinates given all terms."""
    label, dim, known = f"{part.label}line", f"{part.label}line_term", part.laplace
    root = pm.Data(f"{label}_root", known.line_root)
    inputs = (
        pm.Data(f"{label}_prior_mean", part.design.line_mean, dims=dim),
        pm.Data(f"{label}_prior_sd", part.design.line_sd, dims=dim),
        pm.Data(f"{label}_centre", known.line_centre, dims=dim),
        pm.Data(f"{label}_shift", known.line_shift),
        root if widths is None else root * widths[:, None],
        before,
    )
    return _variable(part.names[-1], LineTransform(), _LINE, _line_logp, *inputs, dims=dim)


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


# --- draws ----------------------------------------------------------------------------------------


class Forward:
    """The draw of one variable, ``compiled(rng, *parameters)``, over batches of parameters.

    Draws in plain Python would keep PyMC's compiled graphs out of its cache.
    """

    def __init__(self, name: str, signature: str, compiled: Any) -> None:
        self.signature, self.compiled = signature, compiled
        # PyTensor's cache knows the rule by its name and the sources
        text = f"{name} {signature} {version_of_kernels()}"
        self.version = int.from_bytes(sha256(text.encode()).digest()[:8], "big")

    def __call__(self, *parameters: Any, rng: np.random.Generator, size: Any = None) -> Any:
        """Draws (*size, *core), as `pm.CustomDist` calls its ``random``."""
        values = [np.asarray(p) for p in parameters]
        cores = self.signature.split("->")[0][1:-1].split("),(")
        core = [values[k].ndim - len([x for x in c.split(",") if x]) for k, c in enumerate(cores)]
        if size:
            values[0] = np.broadcast_to(values[0], (*size, *values[0].shape[core[0] :]))
        # compiling takes a process far longer than one draw, such as a model's first, in Python
        rule = self.compiled if size or any(core) else self.compiled.py_func
        return np.vectorize(partial(rule, rng), signature=self.signature)(*values)


@numba_core_rv_funcify.register(CustomDistRV)
def _compiled_rule(op: Any, node: Any) -> tuple[Any, int]:
    """The rule of a variable that is drawn by a `Forward`; others are as without this."""
    rule = vars(type(op)).get("_random_fn")
    if not isinstance(rule, Forward):
        # the signal to PyTensor, which catches it, that a user's own variable is drawn in Python
        raise NotImplementedError
    return rule.compiled, rule.version


_jit = numba.njit(error_model="numpy")


@_jit
def _half_normal(rng, scale, shape):  # type: ignore[no-untyped-def]
    return abs(rng.normal()) * scale


@_jit
def _normals(rng, scale, precision, pull):  # type: ignore[no-untyped-def]
    return rng.normal(0.0, 1.0, len(precision)) * scale


@_jit
def _line(rng, mean, sd, centre, shift, root, before):  # type: ignore[no-untyped-def]
    return mean + sd * rng.normal(0.0, 1.0, len(mean))


_SCALE = Forward("scale", "(),(s)->()", _half_normal)
_BLOCK = Forward("block", "(),(k),(k)->(k)", _normals)
_LINE = Forward("line", "(l),(l),(l),(l,k),(l,l),(k)->(l)", _line)


@cache
def totals(sums: type[RowSums], dimensions: tuple[int, ...]) -> Forward:
    """Observed totals of rows, whose cells have these numbers of dimensions."""
    cores = [",".join(f"c{k}_{axis}" for axis in range(n - 1)) for k, n in enumerate(dimensions)]
    return Forward(f"{sums.__name__} totals", f"(),(),({'),('.join(cores)})->()", sums.draw_row)
