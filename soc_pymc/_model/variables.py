"""Parameters and outcomes as PyMC variables, in coordinates close to a standard normal.

Parameters have plain priors. The coordinates are PyMC transforms, which do not change the model: of
a variable's inputs, only those of its prior affect its density, and the last two before its random
generator its coordinates. On the plain coordinates variational inference fails silently, because
the width of the coefficients depends on the smoothing scale.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.logprob.transforms import Transform
from pytensor.gradient import grad_undefined
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.link.numba.dispatch.basic import register_funcify_default_op_cache_key
from pytensor.tensor.utils import safe_signature
from scipy import optimize, special

from .._lib.arrays import Floats
from ..families.family import FAMILIES
from ..families.mixture_rows import MixtureCells
from ..families.row_sums import RowSums
from .laplace import ROOT2, BlockLaplace, Laplace, half_normal_scale, scale_log_density
from .levels import Levels
from .terms import Block, Curve, Design, Output

_POSITIONS = np.linspace(-8.0, 8.0, 3201)
_MEDIAN = 0.4769362762044699  # erf(_MEDIAN) = 1/2
_BEYOND = 2.0  # sd of a mixture's curves beyond what its components can represent


class ScaleTransform(Transform):
    """Map from a near-normal number v to tau ~ half-normal(scale), given the scale and a shape.

    q, the standard normal position of tau in its prior, is a + b sinh(d (asinh v + e)), whose shape
    (a, b, e, d) matches quantiles of the Laplace start's posterior of q (Jones and Pewsey 2009).
    """

    name = "nearnormal"  # PyMC splits names at underscores
    ndim_supp = 0

    @staticmethod
    def _constants(*inputs: Any) -> Sequence[Any]:
        *_, scale, shape, _ = inputs
        return scale, *(shape[i] for i in range(4))

    def backward(self, value: Any, *inputs: Any) -> Any:
        """Tau at v."""
        scale, a, b, e, d = self._constants(*inputs)
        # tau stays above 1e-50 scale, where gradients in z/tau are still accurate; the density
        # there is below exp(-112) of its maximum
        q = pt.maximum(a + b * pt.sinh(d * (pt.arcsinh(value) + e)), -15.0)
        return half_normal_scale(q, scale, pt, pt)

    def forward(self, value: Any, *inputs: Any) -> Any:
        """V at tau."""
        scale, a, b, e, d = self._constants(*inputs)
        x = value / (scale * ROOT2)
        low = -ROOT2 * pt.erfcinv(2.0 * pt.erf(pt.minimum(x, _MEDIAN)))
        high = ROOT2 * pt.erfcinv(2.0 * pt.erfc(pt.maximum(x, _MEDIAN)))
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
        *_, centre, root, _ = inputs
        return centre + (root * value if root.ndim == 1 else pt.dot(root, value))

    def forward(self, value: Any, *inputs: Any) -> Any:
        """W at coefficients."""
        *_, centre, root, _ = inputs
        if root.ndim == 1:
            return (value - centre) / root
        return pt.linalg.solve_triangular(root, value - centre, lower=False)

    def log_jac_det(self, value: Any, *inputs: Any) -> Any:
        """Log determinant of the root."""
        *_, root, _ = inputs
        return pt.log(root if root.ndim == 1 else pt.diagonal(root)).sum()


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


def _variable(name: str, law: Any, transform: Transform, *inputs: Any, dims: Any = None) -> Any:
    """A variable with a law's prior, given its parameters, then those of the coordinates."""

    def logp(value: Any, *inputs: Any) -> Any:
        density = pm.logp(law.dist(*inputs[:-2]), value)
        return density.sum(axis=-1) if transform.ndim_supp else density

    def dist(*inputs: Any) -> Any:
        *parameters, centre, _, size = inputs
        return law.dist(*parameters, size=centre.shape if transform.ndim_supp else size)

    def mode(variable: Any, size: Any, *inputs: Any) -> Any:
        return transform.backward(pt.zeros_like(inputs[-2]), *inputs, None)

    return pm.CustomDist(
        name,
        *inputs,
        dist=dist,
        logp=logp,
        support_point=mode,
        ndim_supp=transform.ndim_supp,
        ndims_params=[np.ndim(x) for x in inputs],
        dims=dims,
        transform=transform,
    )


def add_scale(name: str, prior_scale: float, precision: Floats, pull: Floats) -> Any:
    """A scale tau ~ half-normal(prior_scale) of coefficients with this data precision and pull."""
    log_density = scale_log_density(_POSITIONS, prior_scale, precision, pull)
    scale = pm.Data(f"{name}_prior_scale", np.asarray(prior_scale))
    shape = pm.Data(f"{name}_shape", density_shape(_POSITIONS, log_density))
    return _variable(name, pm.HalfNormal, ScaleTransform(), scale, scale, shape)


# --- coefficients ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Coefficients:
    """Coefficients of one design as variables, with their outputs."""

    design: Design
    laplace: Laplace
    outputs: Sequence[Output]

    @property
    def names(self) -> list[str]:
        """Variables of the coefficients, in the order of the design."""
        return [*(block.name for block in self.design.blocks), self.design.name]


def add_coefficients(part: Coefficients, widths: Any = None) -> Any:
    """Add variables of coefficients and their outputs; returns their values at the rows."""
    variables: list[Any] = []
    for block, laplace in zip(part.design.blocks, part.laplace.blocks, strict=True):
        variables.append(_block(block, laplace, variables))
    before = pt.concatenate(variables) if variables else pt.zeros((0,))
    values = pt.concatenate([before, _line(part, before, widths)])
    # a rotation of independent, equal normals does not change the prior
    turn = part.laplace.turn
    for output in part.outputs:
        matrix = pm.Data(f"to_{output.name}", output.matrix @ turn)
        at_points = pt.dot(matrix, values).reshape(output.shape)
        pm.Deterministic(output.name, at_points, dims=output.dims)
    return pt.dot(pm.Data(f"{part.design.name}_at_rows", part.design.whole @ turn), values)


def _block(block: Block, laplace: BlockLaplace, before: Sequence[Any]) -> Any:
    """Rotated coefficients z ~ N(0, tau) of a term, with their scale tau ``{name}_sd``."""
    # given tau, z = pull s^2 + s w, s^2 = tau^2 / (1 + precision tau^2)
    name = block.name
    tau = add_scale(f"{name}_sd", block.scale, laplace.precision, laplace.mode_pull)
    pull = pm.Data(f"{name}_pull", laplace.pull)
    if before:
        coupling = pm.Data(f"{name}_coupling", laplace.coupling)
        pull = pull - pt.dot(coupling, pt.concatenate(before))
    precision = pm.Data(f"{name}_precision", laplace.precision)
    # log tau is finite where 1/tau^2 overflows
    log_sd = pt.log(tau) - 0.5 * pt.log1p(precision * tau**2)
    inputs = 0.0, tau, pull * pt.exp(2.0 * log_sd), pt.exp(log_sd)
    return _variable(name, pm.Normal, AffineTransform(), *inputs, dims=block.dim)


def _line(part: Coefficients, before: Any, widths: Any) -> Any:
    """The line's coefficients with their own Normal priors, in coordinates given all terms."""
    name, dim, known = part.design.name, part.design.dim, part.laplace
    root = pm.Data(f"{name}_root", known.line_root)
    mean = pm.Data(f"{name}_prior_mean", part.design.line_mean, dims=dim)
    sd = pm.Data(f"{name}_prior_sd", part.design.line_sd, dims=dim)
    centre = pm.Data(f"{name}_centre", known.line_centre, dims=dim)
    # makes the terms orthogonal to the line in the information
    centre = centre - pt.dot(pm.Data(f"{name}_shift", known.line_shift), before)
    root = root if widths is None else root * widths[:, None]
    return _variable(name, pm.Normal, AffineTransform(), mean, sd, centre, root, dims=dim)


def add_level_scales(
    levels: Levels, curves: Sequence[Curve], parts: Sequence[Coefficients]
) -> list[Any]:
    """Add scales of levels' deviations; returns factors on the sds of both lines' coefficients."""
    # the more levels may deviate, the less is known of their average
    scales = [add_scale(s.name, s.prior, s.precision, s.pull) for s in levels.scales]
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


# --- the observed variable: its data are inputs, as PyMC never releases a distribution's functions


def shared(arrays: Any) -> tuple[Any, ...]:
    """Arrays as shared variables, so that compiled code can be reused with other data."""
    return tuple(pytensor.shared(a, shape=(None,) * a.ndim) for a in arrays)


def observe_curves(name: str, curves: Mapping[str, Any], data: RowSums) -> None:
    """Add the observed variable of a single family, given both curves at the rows."""
    cells, sums = data.cells(), type(data)
    signature = safe_signature([0, 0, *(x.ndim - 1 for x in cells)], [0])
    pm.CustomDist(
        name,
        *[pm.Deterministic(curve, values, dims="bin") for curve, values in curves.items()],
        *shared(cells),
        observed=data.total,
        random=lambda *inputs, rng, size: sums.replicates(rng, *inputs),
        signature=signature,
        logp=lambda _, *inputs: sums.log_marginal(pt, *inputs),
        dims="bin",
    )


def observe_mixture(name: str, predictors: Any, cells: MixtureCells, sums: Floats) -> None:
    """Add the observed variable of a mixture given the predictors (rows, J)."""
    core, law = [x.ndim for x in cells.arrays], cells.forms.law.name

    def logp(_: Any, predictors: Any, *arrays: Any) -> Any:
        # without the leading dimensions of length 1 that PyMC adds
        inputs = (x[(0,) * (x.ndim - number)] for x, number in zip(arrays, core, strict=True))
        return MixtureLogMarginal(law)(predictors, *inputs)[0]

    bounds = cells.forms.bounds
    mean, spread = bounds.relative(predictors[:, 0], predictors[:, 1])
    low, high = np.fmax(bounds.low, -np.inf), np.fmin(bounds.high, np.inf)  # NaN: unbounded
    ends = (mean, -bounds.farthest, bounds.farthest), (spread, low, high)
    # curves beyond what components can represent; not clip, which the interpreter applies slowly
    excess = (x - pt.minimum(pt.maximum(x, least), most) for x, least, most in ends)
    pm.Potential("within_bounds", -0.5 * sum(pt.sqr(x / _BEYOND).sum() for x in excess))
    pm.CustomDist(
        name,
        predictors,
        *shared(cells.arrays),
        observed=sums,
        signature=safe_signature([1, *core], [0]),
        logp=logp,
        dims="bin",
    )


class MixtureLogMarginal(Op):
    """Map (predictors (rows, J), *arrays of `MixtureCells`) to log marginals and their slopes."""

    __props__ = ("law",)

    def __init__(self, law: str) -> None:
        self.law = law

    def make_node(self, *inputs: Any) -> Apply:
        """Both outputs."""
        return Apply(self, list(map(pt.as_tensor, inputs)), [pt.dvector(), pt.dmatrix()])

    def perform(self, node: Apply, inputs: Any, outputs: Any) -> None:
        """Compute both outputs."""
        outputs[0][0], outputs[1][0] = _log_marginals(self.law, *inputs)

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Any]:
        """Slopes in the predictors, which are computed with the value."""
        unknown = [grad_undefined(self, k, x) for k, x in enumerate(inputs)]
        return [cotangents[0][:, None] * outputs[1], *unknown[1:]]


def _log_marginals(law: str, predictors: Floats, *arrays: Any) -> tuple[Floats, Floats]:
    cells = MixtureCells.made_of(FAMILIES[law].components.law, *arrays)
    value, slope = map(np.ascontiguousarray, cells.log_marginals(predictors))
    return value, slope


@register_funcify_default_op_cache_key(MixtureLogMarginal)
def _called_from_numba(op: MixtureLogMarginal, **kwargs: Any) -> Any:
    """Call NumPy from compiled code, which PyTensor's cache can keep."""
    law = op.law

    @numba.njit
    def mixture_log_marginal(*inputs):  # type: ignore[no-untyped-def]
        with numba.objmode(value="float64[::1]", slope="float64[:, ::1]"):
            value, slope = _log_marginals(law, *inputs)
        return value, slope

    return mixture_log_marginal
