"""Types of arrays for signatures in all subpackages, and functions of arrays."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

# numbers of a block: its intermediate results fit in the cache
_BLOCK = 1 << 13


def middle_shares(n: Floats | Ints) -> Floats:
    """Shares of all items up to the middle of each of these, of which there are `n`."""
    return np.asarray((np.cumsum(n) - 0.5 * n) / np.sum(n))


def equal_parts(value: Floats, parts: int, n: Ints | Floats | None = None) -> Ints:
    """Numbers of parts of about equally many items by value, without ties; -1 for NaN.

    Each value stands for one item, or for `n` of them.
    """
    code = np.full(len(value), -1)
    known = ~np.isnan(value)
    tied = np.unique(value[known], return_inverse=True)[1]
    items = np.bincount(tied, None if n is None else n[known])
    with np.errstate(invalid="ignore"):  # of no items
        share = np.nan_to_num(middle_shares(items))
    part = np.minimum((parts * share[tied]).astype(int), parts - 1)
    code[known] = np.unique(part, return_inverse=True)[1]
    return code


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
