"""Types of arrays for signatures in all subpackages, and functions of arrays block by block."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_BLOCK = 1 << 13  # numbers of a block: its intermediate results fit in the cache


def in_blocks(function: Callable[..., Floats]) -> Callable[..., Floats]:
    """Decorate a function that works element by element, to take arrays that broadcast.

    It gets blocks of them, of one dimension and equal length, and ignores floating-point errors.
    """

    @wraps(function)
    def call(*arrays: ArrayLike) -> Floats:
        operands: Any = [*arrays, None]
        flags: Any = [["readonly"]] * len(arrays) + [["writeonly", "allocate"]]
        options: Any = ["buffered", "external_loop", "zerosize_ok"]
        types = [np.float64] * len(operands)
        iterator = np.nditer(operands, options, flags, types, buffersize=_BLOCK)
        with np.errstate(all="ignore"), iterator as blocks:
            for *inputs, output in blocks:
                output[...] = function(*inputs)
            result: Floats = blocks.operands[-1]
        return result

    return call
