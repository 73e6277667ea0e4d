"""A model as plain functions of its coordinates, for all draws at once.

PyTensor's interpreter evaluates the graph: it has few nodes, and the likelihood is one compiled
kernel, so that compiling the rest would cost far more than it saves.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import xarray as xr
from numpy.typing import NDArray
from pymc.initial_point import make_initial_point_expression
from pytensor.compile.mode import Mode
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.rewriting.db import RewriteDatabaseQuery
from pytensor.link.vm import VMLinker

from .families import histograms as hist
from .families.surrogates import make_surrogates
from .hierarchy import Hierarchy
from .likelihood import log_marginal, near_log_marginal, shared

__all__ = [
    "CHUNK",
    "Evaluate",
    "Space",
    "density",
    "kept_variables",
    "make_space",
    "minibatch_density",
    "mode",
    "near_density",
    "posterior_draws",
]

Floats = NDArray[np.float64]
Evaluate = Callable[[Floats], tuple[Floats, Floats]]
"""Coordinates (draws, dim) -> log density (draws,) and its gradient (draws, dim)."""

CHUNK = 250  # draws evaluated at once
_WIDE = 1.5


def mode() -> Mode:
    """The interpreter, with no rewriting but the merging of equal nodes.

    Rewriting takes ten times as long as it saves.
    """
    rewrites = RewriteDatabaseQuery(include=["merge"])
    return Mode(linker=VMLinker(use_cloop=False, c_thunks=False), optimizer=rewrites)


@dataclass(frozen=True)
class Space:
    """The model's value variables as slices of one vector of coordinates."""

    model: pm.Model
    variables: tuple[Any, ...]
    shapes: tuple[tuple[int, ...], ...]
    start: Floats

    @property
    def dim(self) -> int:
        """Number of coordinates."""
        return len(self.start)

    @property
    def labels(self) -> list[str]:
        """Name and number of every coordinate."""
        return [
            f"{v.name}[{i}]"
            for v, shape in zip(self.variables, self.shapes, strict=True)
            for i in range(math.prod(shape))
        ]

    def batched(self, outputs: Any) -> tuple[Any, Any]:
        """Outputs of the model's value variables, for all rows of a matrix of coordinates."""
        rows = pt.matrix("coordinates")
        replace, at = {}, 0
        for variable, shape in zip(self.variables, self.shapes, strict=True):
            size = math.prod(shape)
            replace[variable] = rows[:, at : at + size].reshape((rows.shape[0], *shape))
            at += size
        return rows, vectorize_graph(outputs, replace)


def make_space(model: pm.Model) -> Space:
    """The space of a model's coordinates."""
    expressions = make_initial_point_expression(
        free_rvs=model.free_RVs,
        rvs_to_transforms=model.rvs_to_transforms,
        initval_strategies=model.rvs_to_initial_values,
        return_transformed=True,
    )
    point = pytensor.function([], expressions, mode=mode())()
    start = np.concatenate([np.ravel(part) for part in point]).astype(float)
    variables = tuple(model.rvs_to_values[v] for v in model.free_RVs)
    return Space(model, variables, tuple(np.shape(part) for part in point), start)


def density(space: Space) -> Evaluate:
    """The model's log density and gradient on all bins."""
    rows, logp = space.batched(space.model.logp())
    function = pytensor.function([rows], [logp, pt.grad(logp.sum(), rows)], mode=mode())
    return _finite(function)


def _parts(space: Space) -> tuple[Any, Any, Any, Any]:
    """Rows of coordinates, both curves at the bins, and the log density of all but the counts."""
    model = space.model
    curves = model.replace_rvs_by_values([model["bin_log_mean"], model["bin_log_cv2"]])
    others = [v for v in model.basic_RVs if v is not model["count"]]
    rest = model.logp(vars=[*others, *model.potentials])
    rows, (m, c, rest) = space.batched([*curves, rest])
    return rows, m, c, rest


def near_density(built: Hierarchy, space: Space) -> Evaluate:
    """`density` to about 1e-3 nats, at a cost that the number of items does not touch.

    Polynomials stand for the bins over the range of the curves in draws half as wide again as the
    posterior is expected to be.
    """
    rows, m, c, rest = _parts(space)
    wide = np.random.default_rng(0).normal(space.start, _WIDE, (CHUNK, space.dim))
    curves = pytensor.function([rows], [m, c], mode=mode())(wide)
    polynomials = make_surrogates(
        built.histograms,
        (curves[0].min(axis=0), curves[1].min(axis=0)),
        (curves[0].max(axis=0), curves[1].max(axis=0)),
    )
    arrays = (*shared(polynomials), *shared(built.histograms))
    logp = rest + near_log_marginal(m, c, np.arange(len(built.score)), arrays).sum(axis=1)
    function = pytensor.function([rows], [logp, pt.grad(logp.sum(), rows)], mode=mode())
    return _finite(function)


def minibatch_density(built: Hierarchy, space: Space, bins: Any) -> Evaluate:
    """The same with draw s seeing only the minibatch in row s (modulo) of `bins`.

    Each bin's log marginal is its quadratic at the pilot, which costs nothing and is summed over
    all bins, plus a small remainder, which is summed over the minibatch and scaled up (a control
    variate: Quiroz et al. 2019), so that minibatches add next to no noise.
    """
    rows, m, c, rest = _parts(space)
    at_pilot = pytensor.function([rows], [m, c], mode=mode())(space.start[None])
    m0, c0 = at_pilot[0][0], at_pilot[1][0]
    value, slopes, hessian = _quadratic(built.histograms, m0, c0)

    def quadratic(dm: Any, dc: Any, take: Any) -> Any:
        mm, mc, cc = (take(h) for h in hessian)
        linear = take(value) + take(slopes[0]) * dm + take(slopes[1]) * dc
        return linear + 0.5 * mm * dm**2 + mc * dm * dc + 0.5 * cc * dc**2

    chosen = pt.as_tensor(bins)[pt.arange(rows.shape[0]) % bins.shape[0]]
    row = pt.arange(rows.shape[0])[:, None]
    exact = log_marginal(m[row, chosen], c[row, chosen], bins, shared(built.histograms))
    dm, dc = m - m0, c - c0
    near = quadratic(dm[row, chosen], dc[row, chosen], lambda x: pt.as_tensor(x)[chosen])
    scale = len(m0) / bins.shape[1]
    remainder = scale * (exact - near).sum(axis=1)
    logp = rest + quadratic(dm, dc, pt.as_tensor).sum(axis=1) + remainder
    function = pytensor.function([rows], [logp, pt.grad(logp.sum(), rows)], mode=mode())
    return _finite(function)


def _quadratic(
    histograms: hist.Histograms, m: Floats, c: Floats, step: float = 1e-3
) -> tuple[Floats, tuple[Floats, Floats], tuple[Floats, Floats, Floats]]:
    """Value, gradient and Hessian of the log marginal of every bin."""
    bins = np.arange(len(m))

    def at(dm: float, dc: float) -> Floats:
        return hist.value_and_gradient((m + dm)[None], (c + dc)[None], bins, *histograms.arrays)[
            :, 0
        ]

    value, slope_m, slope_c = at(0.0, 0.0)
    by_m = (at(step, 0.0) - at(-step, 0.0)) / (2.0 * step)
    by_c = (at(0.0, step) - at(0.0, -step)) / (2.0 * step)
    return value, (slope_m, slope_c), (by_m[1], 0.5 * (by_m[2] + by_c[1]), by_c[2])


def _finite(function: Any) -> Evaluate:
    """Evaluate in chunks of draws; what is not a number is impossible (-inf)."""

    def evaluate(rows: Floats) -> tuple[Floats, Floats]:
        parts = [function(rows[i : i + CHUNK]) for i in range(0, len(rows), CHUNK)]
        logp = np.concatenate([p[0] for p in parts])
        gradient = np.concatenate([p[1] for p in parts])
        good = np.isfinite(logp) & np.isfinite(gradient).all(axis=1)
        return np.where(good, logp, -np.inf), gradient

    return evaluate


def kept_variables(model: pm.Model) -> list[Any]:
    """Variables kept in the posterior: all but the curves at bins, which the knots give."""
    return [v for v in [*model.free_RVs, *model.deterministics] if not v.name.startswith("bin_")]


def posterior_draws(space: Space, rows: Floats) -> xr.Dataset:
    """Posterior variables at coordinates of shape (chains, draws, dim)."""
    model = space.model
    kept = kept_variables(model)
    matrix, outputs = space.batched(model.replace_rvs_by_values(kept))
    values = pytensor.function([matrix], outputs, mode=mode())(rows.reshape(-1, space.dim))
    shape = rows.shape[:2]
    variables, coords = {}, {}
    for variable, value in zip(kept, values, strict=True):
        dims = model.named_vars_to_dims.get(variable.name) or tuple(
            f"{variable.name}_dim_{i}" for i in range(value.ndim - 1)
        )
        variables[variable.name] = (
            ("chain", "draw", *dims),
            value.reshape(*shape, *value.shape[1:]),
        )
        coords.update({d: np.asarray(model.coords[d]) for d in dims if model.coords.get(d)})
    coords.update(chain=np.arange(shape[0]), draw=np.arange(shape[1]))
    return xr.Dataset(variables, coords)
