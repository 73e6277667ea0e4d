"""The log marginal of rows in PyTensor: exact slopes, and mixtures as an operation."""

from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.compile.mode import Mode, optdb
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.graph.replace import _vectorize_node
from pytensor.graph.rewriting.basic import SequentialGraphRewriter, in2out, node_rewriter
from pytensor.graph.rewriting.db import RewriteDatabaseQuery
from pytensor.link.numba.dispatch.basic import register_funcify_default_op_cache_key
from pytensor.link.vm import VMLinker

from .._lib.arrays import Floats, Ints
from ..families import row_sums
from ..families.family import FAMILIES
from ..families.mixture_rows import MixtureCells
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
    """(predictors, *arrays) -> log marginals of all rows, and their slopes in the predictors.

    Predictors have shape (..., rows, J), with draws first; `arrays` are those of `MixtureCells`,
    and `name` is that of their law.
    """

    __props__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def make_node(self, *inputs: Any) -> Apply:
        """Value and derivatives."""
        predictors, *arrays = map(pt.as_tensor, inputs)
        dims = predictors.ndim
        outputs = [pt.tensor(dtype="float64", shape=(None,) * k) for k in (dims - 1, dims)]
        return Apply(self, [predictors, *arrays], outputs)

    def infer_shape(self, node: Apply, shapes: Any) -> list[Any]:
        """Shape of the predictors; the value has no axis of predictors."""
        shape = tuple(shapes[0])
        return [shape[:-1], shape]

    def perform(self, node: Apply, inputs: Any, outputs: Any) -> None:
        """Compute both outputs."""
        outputs[0][0], outputs[1][0] = _outputs(self.name, *inputs)

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Any]:
        """Derivatives are computed with the value, and cannot be differentiated again."""
        disconnected = [pytensor.gradient.disconnected_type() for _ in inputs[1:]]
        return [cotangents[0][..., None] * outputs[1], *disconnected]

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        """Only the predictors are differentiated."""
        return [[True, True], *([False, False] for _ in node.inputs[1:])]


@_vectorize_node.register(MixtureLogMarginal)
def _vectorize(op: MixtureLogMarginal, node: Apply, *batched: Any) -> Apply:
    return op.make_node(*batched)


def _outputs(name: str, *inputs: Any) -> tuple[Floats, Floats]:
    """Both outputs for the family of a name."""
    predictors, *arrays = inputs
    value, slope = MixtureCells.made_of(FAMILIES[name].components.law, *arrays).log_marginals(
        predictors
    )
    return np.ascontiguousarray(value), np.ascontiguousarray(slope)


@register_funcify_default_op_cache_key(MixtureLogMarginal)
def _called_from_numba(op: MixtureLogMarginal, node: Apply, **kwargs: Any) -> Any:
    """Call NumPy from compiled code, which PyTensor's cache can keep."""
    name, dims = op.name, node.inputs[0].type.ndim
    value_type, slope_type = (numba.types.Array(numba.float64, k, "C") for k in (dims - 1, dims))

    @numba.njit
    def mixture_log_marginal(*inputs):  # type: ignore[no-untyped-def]
        with numba.objmode(value=value_type, slope=slope_type):
            value, slope = _outputs(name, *inputs)
        return value, slope

    return mixture_log_marginal, version_of_kernels()


@cache
def version_of_kernels() -> int:
    """A number for PyTensor's cache of compiled code that changes with the kernels' source."""
    digest = sha256()
    for room in (Path(__file__).parent, Path(row_sums.__file__).parent):
        for path in sorted(room.glob("*.py")):
            digest.update(path.read_bytes())
    return int.from_bytes(digest.digest()[:8], "big")


def unbatched(signature: str, arrays: Sequence[Any]) -> list[Any]:
    """Arrays without the leading dimensions of length 1 that PyMC adds."""
    core = [len(part.split(",")) for part in signature[1:-1].split("),(")]
    return [a[(0,) * (a.ndim - n)] for a, n in zip(arrays, core, strict=True)]
