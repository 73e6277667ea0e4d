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

from ..families import bin_effects, normal_cells, surrogates
from ..families import histograms as hist

__all__ = ["BinLogMarginal", "log_marginal", "shared"]

_KERNELS = {
    "exact": hist.all_bins,
    "near": surrogates.near_bins,
    "normal": normal_cells.normal_rows,
    "exact_effects": bin_effects.effect_rows,
    "near_effects": bin_effects.effect_rows,
    "normal_effects": bin_effects.effect_rows,
}


class BinLogMarginal(Op):
    """(curves, rows, *arrays) -> value and its derivatives in the curves, row by row.

    The curves are two, and for kernels with effects of bins log tau is the third. They have shape
    (..., k): one line for each draw; `rows` (k,) or (m, k) says which row of the data each column
    is, line s modulo m for draw s. `arrays` are those of the kernel.
    """

    __props__ = ("kernel",)

    def __init__(self, kernel: str) -> None:
        self.kernel = kernel
        self.curves = 3 if kernel.endswith("effects") else 2

    def make_node(self, *inputs: Any) -> Apply:
        """Value and derivatives, of the broadcast shape of the curves."""
        curves = [pt.as_tensor(x) for x in inputs[: self.curves]]
        # where they agree, broadcasting would copy them slowly for nothing
        if len({x.ndim for x in curves}) > 1:
            curves = pt.broadcast_arrays(*curves)
        kind = pt.tensor(dtype="float64", shape=(None,) * curves[0].ndim).type
        rest = [pt.as_tensor(x) for x in inputs[self.curves :]]
        return Apply(self, [*curves, *rest], [kind() for _ in range(self.curves + 1)])

    def infer_shape(self, node: Apply, shapes: Any) -> list[Any]:
        """Shape of the curves."""
        return [shapes[0]] * (self.curves + 1)

    def perform(self, node: Apply, inputs: Sequence[Any], outputs: Any) -> None:
        """Run the compiled kernel."""
        shape = inputs[0].shape
        n = self.curves
        curves = [np.ascontiguousarray(x).reshape(-1, shape[-1]) for x in inputs[:n]]
        bins = np.atleast_2d(inputs[n]).astype(np.int64, copy=False)  # one type, one compilation
        out = np.empty((n + 1, *curves[0].shape))
        _KERNELS[self.kernel](*curves, bins, out, *inputs[n + 1 :])
        for storage, part in zip(outputs, out, strict=True):
            storage[0] = part.reshape(shape)

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Any]:
        """Derivatives come with the value; they are not differentiated again."""
        rest = [pytensor.gradient.disconnected_type() for _ in inputs[self.curves :]]
        return [*(cotangents[0] * slope for slope in outputs[1:]), *rest]

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        """Only the curves are differentiated."""
        n = self.curves
        return [[True] * (n + 1)] * n + [[False] * (n + 1)] * (len(node.inputs) - n)


@_vectorize_node.register(BinLogMarginal)
def _vectorize(op: BinLogMarginal, node: Apply, *batched: Any) -> Apply:
    return op.make_node(*batched)


@register_funcify_default_op_cache_key(BinLogMarginal)
def _numba_bin_log_marginal(op: BinLogMarginal, node: Apply, **kwargs: Any) -> Any:
    kernel = _KERNELS[op.kernel]
    if op.curves == 3:
        return _numba_with_effects(kernel), 2

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


def _numba_with_effects(kernel: Any) -> Any:
    @numba.njit
    def bin_log_marginal(log_mean, log_cv2, log_tau, bins, *arrays):  # type: ignore[no-untyped-def]
        rows = np.atleast_2d(bins).astype(np.int64)
        m = np.ascontiguousarray(log_mean).reshape(-1, rows.shape[1])
        c = np.ascontiguousarray(log_cv2).reshape(-1, rows.shape[1])
        t = np.ascontiguousarray(log_tau).reshape(-1, rows.shape[1])
        out = np.empty((4, *m.shape))
        kernel(m, c, t, rows, out, *arrays)
        shape = log_mean.shape
        by_curves = (out[1].reshape(shape), out[2].reshape(shape), out[3].reshape(shape))
        return (out[0].reshape(shape), *by_curves)

    return bin_log_marginal


def shared(data: Any) -> tuple[Any, ...]:
    """The arrays as shared variables, so that compiled code serves other data."""
    return tuple(pytensor.shared(a, shape=(None,) * a.ndim) for a in data.arrays)


def log_marginal(
    kernel: str, first: Any, second: Any, rows: Any, arrays: tuple[Any, ...], log_tau: Any = None
) -> list[Any]:
    """Log marginal probability of the items of each row, with its slopes in both curves.

    `kernel` is ``"exact"`` (histograms), ``"normal"`` (cells over the noise) or ``"near"``
    (polynomials where they serve: the arrays are those of surrogates and of histograms); with
    ``"_effects"`` behind it, effects of bins are integrated out, the log of whose scale is
    `log_tau`, in which the last slope is.
    """
    curves = (first, second) if log_tau is None else (first, second, log_tau)
    return BinLogMarginal(kernel)(*curves, rows, *arrays)
