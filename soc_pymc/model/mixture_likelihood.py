"""The log marginal of bins under tilted mixtures as one PyTensor operation."""

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

from ..families.components import MixtureCells
from ..families.mixture_kernel import all_bins

__all__ = ["BinMixture", "mixture_log_marginal", "shared_cells"]


class BinMixture(Op):
    """(tilt, *arrays) -> log marginals (..., bins) and their slopes (..., bins, J).

    `tilt` has shape (..., bins, J): leading dimensions are draws. `arrays` are those of
    `MixtureCells`.
    """

    __props__ = ()

    def make_node(self, tilt: Any, *arrays: Any) -> Apply:
        """Two outputs: values, and slopes of the tilt's shape."""
        tilt = pt.as_tensor(tilt)
        dims = tilt.ndim
        value = pt.tensor(dtype="float64", shape=(None,) * (dims - 1)).type
        slope = pt.tensor(dtype="float64", shape=(None,) * dims).type
        inputs = [tilt, *(pt.as_tensor(a) for a in arrays)]
        return Apply(self, inputs, [value(), slope()])

    def infer_shape(self, node: Apply, shapes: Any) -> list[Any]:
        """Shape of the tilt, without and with its functions."""
        return [shapes[0][:-1], shapes[0]]

    def perform(self, node: Apply, inputs: Sequence[Any], outputs: Any) -> None:
        """Run the compiled kernel."""
        tilt = np.ascontiguousarray(inputs[0])
        rows = tilt.reshape(-1, *tilt.shape[-2:])
        value, slope = np.empty(rows.shape[:2]), np.empty(rows.shape)
        all_bins(rows, value, slope, *inputs[1:])
        outputs[0][0] = value.reshape(tilt.shape[:-1])
        outputs[1][0] = slope.reshape(tilt.shape)

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Any]:
        """Slopes come with the value; they are not differentiated again."""
        rest = [pytensor.gradient.disconnected_type() for _ in inputs[1:]]
        return [cotangents[0][..., None] * outputs[1], *rest]

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        """Only the tilt is differentiated."""
        return [[True, True]] + [[False, False]] * (len(node.inputs) - 1)


@_vectorize_node.register(BinMixture)
def _vectorize(op: BinMixture, node: Apply, *batched: Any) -> Apply:
    return op.make_node(*batched)


@register_funcify_default_op_cache_key(BinMixture)
def _numba_bin_mixture(op: BinMixture, node: Apply, **kwargs: Any) -> Any:
    @numba.njit
    def bin_mixture(tilt, *arrays):  # type: ignore[no-untyped-def]
        whole = np.ascontiguousarray(tilt)
        rows = whole.reshape(-1, whole.shape[-2], whole.shape[-1])
        value = np.empty(rows.shape[:2])
        slope = np.empty(rows.shape)
        all_bins(rows, value, slope, *arrays)
        return value.reshape(tilt.shape[:-1]), slope.reshape(tilt.shape)

    return bin_mixture, 1


def shared_cells(cells: MixtureCells) -> tuple[Any, ...]:
    """The arrays as shared variables, so that compiled code serves other data."""
    return tuple(pytensor.shared(a, shape=(None,) * a.ndim) for a in cells.arrays)


def mixture_log_marginal(tilt: Any, arrays: tuple[Any, ...]) -> Any:
    """Log marginal probability of the items of each bin: tensor (..., bins)."""
    return BinMixture()(tilt, *arrays)[0]
