"""Types of arrays for signatures, functions of arrays, and loops that Numba compiles if it pays."""

from collections.abc import Callable, Mapping
from functools import cached_property, update_wrapper, wraps
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Pair = tuple[Floats, Floats]
Triple = tuple[Floats, Floats, Floats]
# columns of a table by name, and those of a new table
Columns = Mapping[str, NDArray[Any]]
ColumnDict = dict[str, NDArray[Any]]
# tables by name
Tables = Mapping[str, Columns]

# numbers of a block: its intermediate results fit in the cache
_BLOCK = 1 << 13


def middle_shares(n: Floats | Ints) -> Floats:
    """Shares of all items up to the middle of each of these, of which there are `n`."""
    return (np.cumsum(n) - 0.5 * n) / np.sum(n)


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


class Compiled[Result]:
    """A function of arrays, replaced by a kernel from `enough` numbers on, in one call or several.

    The kernel has the function's name in the module ``kernels`` of its subpackage, which imports
    Numba, and gives the same bits, so that no result depends on what the process did before.
    """

    def __init__(self, function: Callable[..., Result], enough: int) -> None:
        update_wrapper(self, function)
        self.function = function
        self._left = enough
        self._foreseen = 0

    @cached_property
    def kernel(self) -> Callable[..., Result]:
        """The compiled function."""
        package, _, _ = self.function.__module__.rpartition(".")
        kernels = import_module(f"{package}.kernels")
        return getattr(kernels, self.function.__name__.lstrip("_"))

    def foresee(self, number: int) -> None:
        """Count the numbers of calls to come, so that the first of them has the kernel."""
        self._left -= number
        self._foreseen += number

    def __call__(self, array: Any, *arrays: Any) -> Result:
        if self._foreseen > 0:
            self._foreseen -= len(array)
        else:
            self._left -= len(array)
        chosen = self.function if self._left > 0 else self.kernel
        return chosen(array, *arrays)


def compiled[Result](
    enough: int,
) -> Callable[[Callable[..., Result]], Compiled[Result]]:
    """Decorate a function that has a kernel of its name."""
    return lambda function: Compiled(function, enough)
