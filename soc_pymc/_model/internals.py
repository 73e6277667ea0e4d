"""Everything used here that is internal to PyTensor or PyMC, and may change with their versions.

`tests/_model/test_internals.py` has a test of each, so that a new version shows what it broke.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any

import numba
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.initial_point import make_initial_point_expression
from pymc.logprob.transforms import Transform as Transform
from pymc.logprob.utils import ParameterValueError as ParameterValueError
from pytensor.compile.mode import Mode, optdb
from pytensor.gradient import grad_undefined
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.rewriting.basic import (
    SequentialGraphRewriter,
    in2out,
    node_rewriter,
)
from pytensor.graph.rewriting.db import RewriteDatabaseQuery
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import ancestors as ancestors
from pytensor.link.numba.dispatch.basic import register_funcify_default_op_cache_key
from pytensor.link.vm import VMLinker
from pytensor.tensor.utils import safe_signature

from .._lib.arrays import Floats, Pair
from ..families import FAMILIES
from .mixtures import MixtureCells

# a variable of PyTensor, whose classes have no types
type Variable = Any
# a function of arrays that PyTensor has made
type Function = Callable[..., Any]
# held while PyTensor makes a function, which no two threads may do
_making = threading.Lock()


# --- the interpreter ------------------------------------------------------------------------------


@node_rewriter([pt.second])
def _whole_array(fgraph: FunctionGraph, node: Apply) -> list[Variable]:
    """Replace `second(x, y)`, y in the shape of x, which is slow in the interpreter."""
    like, values = node.inputs
    return [pt.switch(np.array(True), values, like).astype(values.dtype)]


def interpreted(inputs: Sequence[Variable], outputs: Variable) -> Function:
    """A function that PyTensor's interpreter evaluates: compiling takes longer than it saves.

    Equal nodes are merged; other rewrites take longer than they save. Threads may call it: they
    wait for each other, since what it stores between its nodes is the same for all.
    """
    merge = optdb.query(RewriteDatabaseQuery(include=["merge"]))
    rewrites = SequentialGraphRewriter(merge, in2out(_whole_array))
    mode = Mode(linker=VMLinker(use_cloop=False, c_thunks=False), optimizer=rewrites)
    lock = threading.Lock()
    with _making:
        function = pytensor.function(
            inputs, outputs, mode=mode, on_unused_input="ignore"
        )

    @wraps(function)
    def call(*values: object) -> Any:
        with lock:
            return function(*values)

    return call


def merged(outputs: Sequence[Variable]) -> list[Variable]:
    """Outputs of a copy of their graph in which equal nodes are one."""
    return rewrite_graph(outputs, include=("merge",), clone=True)


def vectorized(
    outputs: Sequence[Variable], replacements: Mapping[Variable, Variable]
) -> list[Variable]:
    """Outputs for inputs with further dimensions in front."""
    return vectorize_graph(outputs, replacements)


def initial_point(model: pm.Model) -> list[NDArray[Any]]:
    """Values of a model's free variables, transformed, where it begins."""
    expressions = make_initial_point_expression(
        free_rvs=model.free_RVs,
        rvs_to_transforms=model.rvs_to_transforms,
        initval_strategies=model.rvs_to_initial_values,
        return_transformed=True,
    )
    return [np.asarray(value) for value in interpreted([], expressions)()]


# --- NumPy's functions in a graph -----------------------------------------------------------------


def gufunc_signature(inputs: Sequence[int]) -> str:
    """Signature of a scalar function of inputs with these numbers of core dimensions."""
    return str(safe_signature(inputs, [0]))


class MixtureLogMarginal(Op):
    """Map (predictors (rows, J), *arrays of `MixtureCells`) to log marginals and their slopes."""

    __props__ = ("family",)

    def __init__(self, family: str) -> None:
        self.family = family

    def make_node(self, *inputs: Variable) -> Apply:
        """Both outputs."""
        return Apply(
            self, list(map(pt.as_tensor, inputs)), [pt.dvector(), pt.dmatrix()]
        )

    def perform(
        self, node: Apply, inputs: Sequence[Floats], outputs: list[list[Floats]]
    ) -> None:
        """Compute both outputs."""
        outputs[0][0], outputs[1][0] = _log_marginals(self.family, *inputs)

    def pullback(
        self,
        inputs: Sequence[Variable],
        outputs: Sequence[Variable],
        cotangents: Sequence[Variable],
    ) -> list[Variable]:
        """Slopes in the predictors, which are computed with the value."""
        unknown = [grad_undefined(self, k, x) for k, x in enumerate(inputs)]
        return [cotangents[0][:, None] * outputs[1], *unknown[1:]]


def _log_marginals(family: str, predictors: Floats, *arrays: Floats) -> Pair:
    cells = MixtureCells.made_of(FAMILIES[family], *arrays)
    value, slope = map(np.ascontiguousarray, cells.log_marginals(predictors))
    return value, slope


@register_funcify_default_op_cache_key(MixtureLogMarginal)
def _called_from_numba(op: MixtureLogMarginal, **kwargs: object) -> Function:
    """Call NumPy from compiled code, which PyTensor's cache can keep."""
    family = op.family

    @numba.njit
    def mixture_log_marginal(*inputs):  # type: ignore[no-untyped-def]
        with numba.objmode(value="float64[::1]", slope="float64[:, ::1]"):
            value, slope = _log_marginals(family, *inputs)
        return value, slope

    return mixture_log_marginal
