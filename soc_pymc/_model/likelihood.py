"""The log marginal of rows as a PyTensor operation over the compiled kernels of `families`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.graph.replace import _vectorize_node
from pytensor.link.numba.dispatch.basic import register_funcify_default_op_cache_key

from ..families import mixture_rows
from ..families.family import FAMILIES


@dataclass(frozen=True)
class Kernel:
    """A compiled log marginal of rows.

    ``fill(*predictors, rows, out, *arrays)`` fills `out` (1 + predictors, draws, k). Where
    predictors are stacked, it is ``fill(predictors, value, slope, *arrays)`` of all rows, with
    predictors and slopes (draws, rows, J).
    """

    fill: Any
    predictors: int  # number of differentiable inputs
    stacked: bool = False  # one input with predictors on the last axis, and all rows


KERNELS: Mapping[str, Kernel] = {
    **{f.rows.kernel: Kernel(f.rows.fill_rows, 2) for f in FAMILIES.values()},
    **{f.rows.near: Kernel(f.rows.fill_near, 2) for f in FAMILIES.values() if f.rows.near},
    "mixture": Kernel(mixture_rows.all_rows, 1, stacked=True),
}
"""By `RowSums.kernel`; ``_near`` takes arrays of polynomials before those of the sums."""


class RowLogMarginal(Op):
    """(*predictors, [rows], *arrays) -> value and its derivatives in the predictors, row by row.

    Predictors have shape (..., k), or (..., k, J) if stacked, with draws first. `rows`, (k,) or
    (m, k), is the data row of each column; draw s uses line s modulo m. `arrays` are those of the
    kernel.
    """

    __props__ = ("kernel",)

    def __init__(self, kernel: str) -> None:
        self.kernel = kernel

    @property
    def _of(self) -> Kernel:
        return KERNELS[self.kernel]

    def make_node(self, *inputs: Any) -> Apply:
        """Value and derivatives, of the broadcast shape of the predictors."""
        n = self._of.predictors
        predictors = [pt.as_tensor(x) for x in inputs[:n]]
        # equal shapes need no broadcasting, which would copy them
        if len({x.ndim for x in predictors}) > 1:
            predictors = pt.broadcast_arrays(*predictors)

        def output(ndim: int) -> Any:
            return pt.tensor(dtype="float64", shape=(None,) * ndim)

        dims = predictors[0].ndim
        outputs = [output(dims - self._of.stacked), *(output(dims) for _ in range(n))]
        return Apply(self, [*predictors, *(pt.as_tensor(x) for x in inputs[n:])], outputs)

    def infer_shape(self, node: Apply, shapes: Any) -> list[Any]:
        """Shape of the predictors; the value has no axis of predictors."""
        shape = tuple(shapes[0])
        value = shape[:-1] if self._of.stacked else shape
        return [value, *[shape] * self._of.predictors]

    def perform(self, node: Apply, inputs: Sequence[Any], outputs: Any) -> None:
        """Run the compiled kernel."""
        n, shape = self._of.predictors, inputs[0].shape
        if self._of.stacked:
            stack = np.ascontiguousarray(inputs[0]).reshape(-1, *shape[-2:])
            value, slope = np.empty(stack.shape[:2]), np.empty(stack.shape)
            self._of.fill(stack, value, slope, *inputs[1:])
            outputs[0][0], outputs[1][0] = value.reshape(shape[:-1]), slope.reshape(shape)
            return
        predictors = [np.ascontiguousarray(x).reshape(-1, shape[-1]) for x in inputs[:n]]
        rows = np.atleast_2d(inputs[n]).astype(np.int64, copy=False)  # one type, one compilation
        out = np.empty((n + 1, *predictors[0].shape))
        self._of.fill(*predictors, rows, out, *inputs[n + 1 :])
        for storage, part in zip(outputs, out, strict=True):
            storage[0] = part.reshape(shape)

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Any]:
        """Derivatives are computed with the value, and cannot be differentiated again."""
        n = self._of.predictors
        rest = [pytensor.gradient.disconnected_type() for _ in inputs[n:]]
        by_value = cotangents[0][..., None] if self._of.stacked else cotangents[0]
        return [*(by_value * slope for slope in outputs[1:]), *rest]

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        """Only the predictors are differentiated."""
        n = self._of.predictors
        return [[True] * (n + 1)] * n + [[False] * (n + 1)] * (len(node.inputs) - n)


@_vectorize_node.register(RowLogMarginal)
def _vectorize(op: RowLogMarginal, node: Apply, *batched: Any) -> Apply:
    return op.make_node(*batched)


@register_funcify_default_op_cache_key(RowLogMarginal)
def _numba_row_log_marginal(op: RowLogMarginal, node: Apply, **kwargs: Any) -> Any:
    kernel = KERNELS[op.kernel]
    maker = _compiled_stacked if kernel.stacked else _compiled_two
    return maker(kernel.fill), version_of_kernels()


@cache
def version_of_kernels() -> int:
    """A number that changes with the kernels' source.

    PyTensor caches compiled code between processes by this number. Old code would call kernels that
    have changed or no longer exist.
    """
    digest = sha256()
    for room in (Path(__file__).parent, Path(mixture_rows.__file__).parent):
        for path in sorted(room.glob("*.py")):
            digest.update(path.read_bytes())
    return int.from_bytes(digest.digest()[:8], "big")


# Numba cannot unpack a tuple inside a call, so there is a function for each form of predictors


def _compiled_two(fill: Any) -> Any:
    @numba.njit
    def row_log_marginal(first, second, rows, *arrays):  # type: ignore[no-untyped-def]
        at = np.atleast_2d(rows).astype(np.int64)
        m = np.ascontiguousarray(first).reshape(-1, at.shape[1])
        c = np.ascontiguousarray(second).reshape(-1, at.shape[1])
        out = np.empty((3, *m.shape))
        fill(m, c, at, out, *arrays)
        shape = first.shape
        return out[0].reshape(shape), out[1].reshape(shape), out[2].reshape(shape)

    return row_log_marginal


def _compiled_stacked(fill: Any) -> Any:
    @numba.njit
    def row_log_marginal(predictors, *arrays):  # type: ignore[no-untyped-def]
        whole = np.ascontiguousarray(predictors)
        stack = whole.reshape(-1, whole.shape[-2], whole.shape[-1])
        value = np.empty(stack.shape[:2])
        slope = np.empty(stack.shape)
        fill(stack, value, slope, *arrays)
        return value.reshape(predictors.shape[:-1]), slope.reshape(predictors.shape)

    return row_log_marginal


def shared(data: Any) -> tuple[Any, ...]:
    """The arrays as shared variables, so that compiled code can be reused with other data."""
    return tuple(pytensor.shared(a, shape=(None,) * a.ndim) for a in data.arrays)


def log_marginal(kernel: str, *inputs: Any) -> list[Any]:
    """Log marginal probability of the items of each row, with its slopes in the predictors.

    `inputs` are those of `RowLogMarginal`: predictors, rows unless stacked, and arrays.
    """
    return RowLogMarginal(kernel)(*inputs)


def unbatched(signature: str, arrays: Sequence[Any]) -> list[Any]:
    """Arrays without the leading dimensions of length 1 that PyMC adds."""
    core = [len(part.split(",")) for part in signature[1:-1].split("),(")]
    return [a[(0,) * (a.ndim - n)] for a, n in zip(arrays, core, strict=True)]
