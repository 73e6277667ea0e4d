"""A model's log density as a function of its coordinates, for all draws, by the interpreter."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from operator import add
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import xarray as xr
from arviz_base import dict_to_dataset
from numpy.typing import NDArray
from pymc.initial_point import make_initial_point_expression
from pymc.logprob.utils import ParameterValueError
from pytensor.compile.mode import Mode, optdb
from pytensor.compile.ops import wrap_py
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.rewriting.basic import SequentialGraphRewriter, in2out, node_rewriter
from pytensor.graph.rewriting.db import RewriteDatabaseQuery
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.link.vm import VMLinker
from scipy import linalg, sparse

from .._lib.arrays import Floats, Ints
from .._model.problem import Problem
from .._model.variables import shared
from ..families.row_polynomials import Surrogates, make_surrogates, polynomial_values
from ..families.row_sums import RowSums

Evaluate = Callable[[Floats], tuple[Floats, Floats]]
"""Coordinates (draws, dim) -> log density (draws,) and its gradient (draws, dim)."""

SAMPLED = ("chain", "draw")
CHUNK = 1000  # draws evaluated at once, fewer with many bins: the graph's nodes cost 30 us each
_MOST_VALUES = 2_500_000  # size of a matrix of draws by bins: 20 MB
_PROBES = 250  # draws that show how far the curves reach
_WIDE = 1.5  # factor on the posterior sd for the polynomials' range


@dataclass(frozen=True, eq=False)
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

    def batched(self, outputs: Any) -> tuple[Any, Any]:
        """Outputs of the model's value variables, for all rows of a matrix of coordinates."""
        # PyMC repeats a variable's transform wherever it is used; merged only after
        # differentiation, each would still have its own gradient
        outputs = rewrite_graph(outputs, include=("merge",), clone=True)
        rows = pt.matrix("coordinates")
        replace, start = {}, 0
        for variable, shape in zip(self.variables, self.shapes, strict=True):
            size = math.prod(shape)
            replace[variable] = rows[:, start : start + size].reshape((rows.shape[0], *shape))
            start += size
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


def rest_log_density(built: Problem, model: pm.Model) -> Any:
    """Log density without the outcomes."""
    unobserved = [v for v in model.basic_RVs if v.name != built.observed]
    factors = model.logp(vars=[*unobserved, *model.potentials], sum=False)
    # one after the other: the interpreter adds up at most 32 at once
    return reduce(add, (pt.as_tensor(f, allow_xtensor_conversion=True).sum() for f in factors))


def near_density(built: Problem, space: Space) -> Evaluate:
    """The log density to about 1e-3 nats: polynomials stand for rows over the curves' range."""
    chunk = max(10, min(CHUNK, _MOST_VALUES // len(built.score)))
    model = space.model
    values = model.replace_rvs_by_values([model[name] for name in built.predictors])
    rows, (*at_rows, other_terms) = space.batched([*values, rest_log_density(built, model)])
    if built.mixture:  # its few cells are summed exactly
        return with_likelihood(built.data.by_draw, other_terms, rows, at_rows, chunk)
    curves = pytensor.function([rows], at_rows, mode=mode())
    draws = np.random.default_rng(0).normal(space.start, _WIDE, (_PROBES, space.dim))
    reached = [curves(draws[i : i + chunk]) for i in range(0, _PROBES, chunk)]
    low, high = (
        extreme.reduce([extreme.reduce(part, axis=1) for part in reached])
        for extreme in (np.minimum, np.maximum)
    )
    near = NearRows(built.data, make_surrogates(built.data, low, high))
    return with_likelihood(near.by_draw, other_terms, rows, at_rows, chunk)


def with_likelihood(
    likelihood: Callable[..., tuple[Floats, ...]],
    other_terms: Any,
    rows: Any,
    inputs: Sequence[Any],
    chunk: int,
) -> Evaluate:
    """Sum of a log density `other_terms` and a likelihood that gives its slopes in its inputs."""
    types = [pt.tensor(dtype="float64", shape=(None,) * x.ndim).type for x in inputs]
    wrapped = wrap_py(types, [pt.dvector, *types])(likelihood)
    value, *slopes = wrapped(*inputs)
    # other terms may depend on the inputs too
    likelihood_part = sum((x * slope).sum() for x, slope in zip(inputs, slopes, strict=True))
    gradient = pt.grad(other_terms.sum() + likelihood_part, rows, consider_constant=slopes)
    return finite(pytensor.function([rows], [other_terms + value, gradient], mode=mode()), chunk)


def finite(function: Any, chunk: int = CHUNK) -> Evaluate:
    """Evaluate in chunks of draws; NaN, and scales that underflow, become -inf."""

    def part(rows: Floats) -> tuple[Floats, Floats]:
        try:
            return function(rows)
        except ParameterValueError:
            if len(rows) == 1:
                return np.array([-np.inf]), np.zeros_like(rows)
        half = len(rows) // 2
        halves = part(rows[:half]), part(rows[half:])
        return np.concatenate([b[0] for b in halves]), np.concatenate([b[1] for b in halves])

    def evaluate(rows: Floats) -> tuple[Floats, Floats]:
        parts = [part(rows[i : i + chunk]) for i in range(0, len(rows), chunk)]
        logp = np.concatenate([p[0] for p in parts])
        gradient = np.concatenate([p[1] for p in parts])
        good = np.isfinite(logp) & np.isfinite(gradient).all(axis=1)
        return np.where(good, logp, -np.inf), gradient

    return evaluate


def kept_variables(model: pm.Model) -> list[Any]:
    """Variables kept in the posterior: all except the curves at bins, which follow from knots."""
    return [v for v in [*model.free_RVs, *model.deterministics] if not v.name.startswith("bin_")]


def posterior_draws(space: Space, rows: Floats) -> xr.Dataset:
    """Posterior variables at coordinates of shape (chains, draws, dim)."""
    variables = kept_variables(space.model)
    matrix, outputs = space.batched(space.model.replace_rvs_by_values(variables))
    values = pytensor.function([matrix], outputs, mode=mode())(rows.reshape(-1, space.dim))
    by_chain = (x.reshape(*rows.shape[:2], *x.shape[1:]) for x in values)
    return labelled(space.model, dict(zip((v.name for v in variables), by_chain, strict=True)))


def labelled(
    model: pm.Model, values: dict[Any, Any], sample_dims: Sequence[str] = SAMPLED
) -> xr.Dataset:
    """Arrays, by default draws (chain, draw, ...), as a dataset with the model's dims."""
    coords: Any = {dim: np.asarray(x) for dim, x in model.coords.items() if x is not None}
    dims: Any = model.named_vars_to_dims
    return dict_to_dataset(values, coords=coords, dims=dims, sample_dims=sample_dims)


# --- the interpreter ------------------------------------------------------------------------------


@node_rewriter([pt.second])
def _whole_array(fgraph: Any, node: Any) -> list[Any]:
    """Replace `second(x, y)`, y in the shape of x, which is slow in the interpreter."""
    like, values = node.inputs
    return [pt.switch(np.array(True), values, like).astype(values.dtype)]


def mode() -> Mode:
    """The interpreter; equal nodes are merged, and other rewrites take longer than they save."""
    merge = optdb.query(RewriteDatabaseQuery(include=["merge"]))
    rewrites = SequentialGraphRewriter(merge, in2out(_whole_array))
    return Mode(linker=VMLinker(use_cloop=False, c_thunks=False), optimizer=rewrites)


@cache
def _compiled(sums: type[RowSums], dimensions: tuple[int, ...]) -> Any:
    """Log marginals and slopes in both parameters, from these (draws, k) and the rows' cells."""
    location, dispersion = pt.matrices("location", "dispersion")
    cells = [pt.tensor(shape=(None,) * number, dtype="float64") for number in dimensions]
    value = sums.log_marginal(pt, location, dispersion, *cells)
    slopes = pt.grad(value.sum(), [location, dispersion])
    inputs = [location, dispersion, *cells]
    return pytensor.function(inputs, [value, *slopes], mode=mode(), on_unused_input="ignore")


def exact_slopes(data: RowSums, location: Floats, dispersion: Floats, rows: Ints) -> Floats:
    """Return what `RowSums.value_and_gradient` does, to all digits: (3, draws, k)."""
    cells = data.cells(rows)
    with np.errstate(all="ignore"):
        function = _compiled(type(data), tuple(x.ndim for x in cells))
        return np.array(function(location, dispersion, *cells))


# --- minibatches of bins --------------------------------------------------------------------------


def systematic(bins: int, batch: int, draws: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Minibatches (draws, batch or more), each systematic over the score."""
    stride = min(-(-bins // batch), draws)
    batch = -(-bins // stride)
    offsets = rng.permutation(np.arange(draws) % stride)
    return np.array([(o + stride * np.arange(batch)) % bins for o in offsets])


def minibatch_density(built: Problem, space: Space, bins: Any) -> Evaluate:
    """The log density in which draw s uses only the minibatch in row s (modulo) of `bins`."""
    # all bins' quadratics at the mode are one quadratic in the coefficients, and only the small
    # remainder is summed over the minibatch (a control variate: Quiroz et al. 2019)
    model, number = space.model, len(built.score)
    variables = [model[name] for part in built.coefficients for name in part.names]
    values = model.replace_rvs_by_values([pt.concatenate(variables)])
    rows, (coefficients, other_terms) = space.batched([*values, rest_log_density(built, model)])
    start = pytensor.function([rows], coefficients, mode=mode())(space.start[None])
    gap = coefficients - start
    # rows of the first curve, then of the second
    design = linalg.block_diag(
        *(part.design.whole @ part.laplace.turn for part in built.coefficients)
    )
    location, dispersion = (design @ start[0]).reshape(2, number)
    value, slopes, *bends = built.data.expansion(location, dispersion)
    slope = np.concatenate(slopes)
    of_first, mixed, of_second = map(sparse.diags_array, bends)
    bend = sparse.block_array([[of_first, mixed], [mixed, of_second]])
    square = design.T @ (bend @ design)
    quadratic = pt.dot(gap, design.T @ slope) + 0.5 * (pt.dot(gap, square) * gap).sum(axis=1)

    chosen = pt.as_tensor(bins)[pt.arange(rows.shape[0]) % bins.shape[0]]
    moves = [
        (pt.as_tensor(part)[chosen] * gap[:, None]).sum(axis=-1) for part in np.split(design, 2)
    ]
    inputs = location, dispersion, value, *slopes, *bends
    m, c, near, *by, by_first, by_both, by_second = (pt.as_tensor(x)[chosen] for x in inputs)
    cells = [x[chosen] for x in shared(built.data.cells())]
    exact = built.data.log_marginal(pt, m + moves[0], c + moves[1], *cells)
    near += by[0] * moves[0] + by[1] * moves[1] + by_both * moves[0] * moves[1]
    near += 0.5 * (by_first * moves[0] ** 2 + by_second * moves[1] ** 2)
    remainder = number / bins.shape[1] * (exact - near).sum(axis=1)
    logp = other_terms + value.sum() + quadratic + remainder
    return finite(pytensor.function([rows], [logp, pt.grad(logp.sum(), rows)], mode=mode()))


# --- polynomials of rows --------------------------------------------------------------------------

NO_SLOPES = np.empty((2, 0, 0))


@dataclass(frozen=True, eq=False)
class NearRows:
    """Rows with their polynomials."""

    data: RowSums
    made: Surrogates

    def values(self, location: Floats, dispersion: Floats, slopes: Floats = NO_SLOPES) -> Floats:
        """Log marginals at both parameters (rows, draws); fills `slopes` unless empty."""
        made, value = self.made, np.empty(location.shape)
        outside = np.empty(location.shape, dtype=np.bool_)
        polynomials = made.centre, made.reach, made.coefficients, made.degree
        polynomial_values(location, dispersion, value, slopes, outside, *polynomials)
        bare = np.flatnonzero(outside.all(axis=1))
        outside[bare] = False
        evaluated = self.data.value_and_gradient if slopes.size else self.data.values
        indices: list[tuple[Any, ...]] = [(bare,), np.nonzero(outside)]
        for index in indices:
            if len(index[0]):
                m, c = (np.atleast_2d(x[index].T) for x in (location, dispersion))
                exact = evaluated(m, c, index[0]).mT.reshape(-1, *value[index].shape)
                value[index] = exact[0]
                if slopes.size:
                    slopes[(slice(None), *index)] = exact[1:]
        return value

    def by_draw(self, location: Floats, dispersion: Floats) -> tuple[Floats, Floats, Floats]:
        """Sums (draws,) over all rows at both parameters (draws, rows), and their slopes."""
        location, dispersion = np.ascontiguousarray(location.T), np.ascontiguousarray(dispersion.T)
        slopes = np.empty((2, *location.shape))
        value = self.values(location, dispersion, slopes).sum(axis=0)
        by_first, by_second = np.ascontiguousarray(slopes.mT)
        return value, by_first, by_second
