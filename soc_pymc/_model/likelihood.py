"""The log marginal of rows in PyTensor: exact slopes, and mixtures as an operation."""

from functools import cache
from typing import Any

import numba
import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.compile.mode import Mode, optdb
from pytensor.gradient import grad_undefined
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.graph.rewriting.basic import SequentialGraphRewriter, in2out, node_rewriter
from pytensor.graph.rewriting.db import RewriteDatabaseQuery
from pytensor.link.numba.dispatch.basic import register_funcify_default_op_cache_key
from pytensor.link.vm import VMLinker

from .._lib.arrays import Floats, Ints
from ..families.family import FAMILIES
from ..families.mixture_rows import SIGNATURE, MixtureCells
from ..families.row_sums import RowSums


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


# --- single families ------------------------------------------------------------------------------


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


def shared(arrays: Any) -> tuple[Any, ...]:
    """Arrays as shared variables, so that compiled code can be reused with other data."""
    return tuple(pytensor.shared(a, shape=(None,) * a.ndim) for a in arrays)


# --- mixtures -------------------------------------------------------------------------------------


class MixtureLogMarginal(Op):
    """(predictors (rows, J), *arrays) -> log marginals of rows, and slopes in the predictors.

    `arrays` are those of `MixtureCells`, and `name` is that of their law.
    """

    __props__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def make_node(self, *inputs: Any) -> Apply:
        """Both outputs."""
        return Apply(self, list(map(pt.as_tensor, inputs)), [pt.dvector(), pt.dmatrix()])

    def perform(self, node: Apply, inputs: Any, outputs: Any) -> None:
        """Compute both outputs."""
        outputs[0][0], outputs[1][0] = _log_marginals(self.name, *inputs)

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Any]:
        """Slopes in the predictors, which are computed with the value."""
        unknown = (grad_undefined(self, k, x) for k, x in enumerate(inputs))
        return [cotangents[0][:, None] * outputs[1], *list(unknown)[1:]]


def _log_marginals(name: str, predictors: Floats, *arrays: Any) -> tuple[Floats, Floats]:
    cells = MixtureCells.made_of(FAMILIES[name].components.law, *arrays)
    value, slope = map(np.ascontiguousarray, cells.log_marginals(predictors))
    return value, slope


@register_funcify_default_op_cache_key(MixtureLogMarginal)
def _called_from_numba(op: MixtureLogMarginal, **kwargs: Any) -> Any:
    """Call NumPy from compiled code, which PyTensor's cache can keep."""
    name = op.name

    @numba.njit
    def mixture_log_marginal(*inputs):  # type: ignore[no-untyped-def]
        with numba.objmode(value="float64[::1]", slope="float64[:, ::1]"):
            value, slope = _log_marginals(name, *inputs)
        return value, slope

    return mixture_log_marginal


def mixture_log_marginal(name: str, predictors: Any, *arrays: Any) -> Any:
    """Log marginals of rows (rows,) at predictors, from arrays with leading dims of length 1."""
    core = [len(part.split(",")) for part in SIGNATURE[1:-1].split("),(")]
    cells = [x[(0,) * (x.ndim - number)] for x, number in zip(arrays, core, strict=True)]
    return MixtureLogMarginal(name)(predictors, *cells)[0]
