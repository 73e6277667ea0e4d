"""The log marginal of bins as one PyTensor operation over the histograms of `families`."""

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

__all__ = ["BinLogMarginal", "log_marginal", "shared_histograms"]


class BinLogMarginal(Op):
    """(log mean, log cv2, bins, *histograms) -> value and its two derivatives, bin by bin.

    `log_mean` and `log_cv2` have shape (..., k): one row for each draw; `bins` (k,) or (m, k) says
    which bin each column is, row s modulo m for draw s.
    """

    __props__ = ()

    def make_node(self, log_mean: Any, log_cv2: Any, bins: Any, *arrays: Any) -> Apply:
        """Three outputs of the broadcast shape of the curves."""
        m, c = pt.as_tensor(log_mean), pt.as_tensor(log_cv2)
        inputs = [m, c, pt.as_tensor(bins), *(pt.as_tensor(a) for a in arrays)]
        kind = pt.tensor(dtype="float64", shape=(None,) * max(m.ndim, c.ndim)).type
        return Apply(self, inputs, [kind(), kind(), kind()])

    def infer_shape(self, node: Apply, shapes: Any) -> list[Any]:
        """Shape of the curves."""
        return [shapes[0 if node.inputs[0].ndim >= node.inputs[1].ndim else 1]] * 3

    def perform(self, node: Apply, inputs: Sequence[Any], outputs: Any) -> None:
        """Run the compiled kernel."""
        m, c = np.broadcast_arrays(inputs[0], inputs[1])
        rows = (-1, m.shape[-1])
        result = hist.value_and_gradient(m.reshape(rows), c.reshape(rows), *inputs[2:])
        for storage, part in zip(outputs, result, strict=True):
            storage[0] = part.reshape(m.shape)

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
    kernel = hist.all_bins

    @numba.njit
    def bin_log_marginal(log_mean, log_cv2, bins, *arrays):  # type: ignore[no-untyped-def]
        m = np.ascontiguousarray(log_mean).reshape(1, -1)
        c = np.ascontiguousarray(log_cv2).reshape(1, -1)
        out = np.empty((3, 1, m.shape[1]))
        kernel(m, c, bins.reshape(1, -1), out, *arrays)
        return out[0, 0], out[1, 0], out[2, 0]

    return bin_log_marginal, 1


def shared_histograms(histograms: hist.Histograms) -> tuple[Any, ...]:
    """The histograms' arrays as shared variables, so that compiled code serves other data."""
    return tuple(pytensor.shared(a, shape=(None,) * a.ndim) for a in histograms.arrays)


def log_marginal(log_mean: Any, log_cv2: Any, bins: Any, arrays: tuple[Any, ...]) -> Any:
    """Log marginal probability of the items of each bin, a tensor shaped like the curves."""
    return BinLogMarginal()(log_mean, log_cv2, bins, *arrays)[0]
