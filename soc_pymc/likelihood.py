"""The log marginal of rows as one PyTensor operation over the sums of `families`."""

from collections.abc import Sequence
from typing import Any

import numba
import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.graph.replace import _vectorize_node
from pytensor.link.numba.dispatch.basic import register_funcify_default_op_cache_key

from .families import histograms as hist
from .families import normal_cells, surrogates

__all__ = ["BinLogMarginal", "log_marginal", "shared"]

_KERNELS = {
    "exact": hist.all_bins,
    "near": surrogates.near_bins,
    "normal": normal_cells.normal_rows,
}


class BinLogMarginal(Op):
    """(first curve, second curve, rows, *arrays) -> value and its two derivatives, row by row.

    Both curves have shape (..., k): one line for each draw; `rows` (k,) or (m, k) says which row of
    the data each column is, line s modulo m for draw s. `arrays` are those of the kernel.
    """

    __props__ = ("kernel",)

    def __init__(self, kernel: str) -> None:
        self.kernel = kernel

    def make_node(self, log_mean: Any, log_cv2: Any, bins: Any, *arrays: Any) -> Apply:
        """Three outputs of the broadcast shape of the curves."""
        m, c = pt.as_tensor(log_mean), pt.as_tensor(log_cv2)
        if m.ndim != c.ndim:  # where they agree, broadcasting would copy them slowly for nothing
            m, c = pt.broadcast_arrays(m, c)
        inputs = [m, c, pt.as_tensor(bins), *(pt.as_tensor(a) for a in arrays)]
        kind = pt.tensor(dtype="float64", shape=(None,) * m.ndim).type
        return Apply(self, inputs, [kind(), kind(), kind()])

    def infer_shape(self, node: Apply, shapes: Any) -> list[Any]:
        """Shape of the curves."""
        return [shapes[0]] * 3

    def perform(self, node: Apply, inputs: Sequence[Any], outputs: Any) -> None:
        """Run the compiled kernel."""
        shape = inputs[0].shape
        m, c = (np.ascontiguousarray(x).reshape(-1, shape[-1]) for x in inputs[:2])
        bins = np.atleast_2d(inputs[2]).astype(np.int64, copy=False)  # one type, one compilation
        out = np.empty((3, *m.shape))
        _KERNELS[self.kernel](m, c, bins, out, *inputs[3:])
        for storage, part in zip(outputs, out, strict=True):
            storage[0] = part.reshape(shape)

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Any]:
        """Derivatives come with the value; they are not differentiated again."""
        _, slope_m, slope_c = outputs
        rest = [pytensor.gradient.disconnected_type() for _ in inputs[2:]]
        return [cotangents[0] * slope_m, cotangents[0] * slope_c, *rest]

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        """Only the curves are differentiated."""
        return [[True] * 3] * 2 + [[False] * 3] * (len(node.inputs) - 2)


@_vectorize_node.register(BinLogMarginal)
def _vectorize(op: BinLogMarginal, node: Apply, *batched: Any) -> Apply:
    return op.make_node(*batched)


@register_funcify_default_op_cache_key(BinLogMarginal)
def _numba_bin_log_marginal(op: BinLogMarginal, node: Apply, **kwargs: Any) -> Any:
    kernel = _KERNELS[op.kernel]

    @numba.njit
    def bin_log_marginal(log_mean, log_cv2, bins, *arrays):  # type: ignore[no-untyped-def]
        rows = np.atleast_2d(bins).astype(np.int64)
        m = np.ascontiguousarray(log_mean).reshape(-1, rows.shape[1])
        c = np.ascontiguousarray(log_cv2).reshape(-1, rows.shape[1])
        out = np.empty((3, *m.shape))
        kernel(m, c, rows, out, *arrays)
        shape = log_mean.shape
        return out[0].reshape(shape), out[1].reshape(shape), out[2].reshape(shape)

    return bin_log_marginal, 2


def shared(data: Any) -> tuple[Any, ...]:
    """The arrays as shared variables, so that compiled code serves other data."""
    return tuple(pytensor.shared(a, shape=(None,) * a.ndim) for a in data.arrays)


def log_marginal(
    kernel: str, first: Any, second: Any, rows: Any, arrays: tuple[Any, ...]
) -> list[Any]:
    """Log marginal probability of the items of each row, with its slopes in both curves.

    `kernel` is ``"exact"`` (histograms), ``"normal"`` (cells over the noise) or ``"near"``
    (polynomials where they serve: the arrays are those of surrogates and of histograms).
    """
    return BinLogMarginal(kernel)(first, second, rows, *arrays)
