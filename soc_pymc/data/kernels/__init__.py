"""Sums over bins and cells by compiled kernels, batch by batch, in memory that does not grow."""

from collections.abc import Mapping

import numpy as np

from .first_look import FirstLook, ends, fold_of_items
from .normal import NORMAL
from .poisson import POISSON
from .sums import Kernel, Sums

__all__ = [
    "KERNELS",
    "FirstLook",
    "Kernel",
    "Sums",
    "ends",
    "fold_of_items",
    "warm_up",
]

KERNELS: Mapping[str, Kernel] = {kernel.schema.kind: kernel for kernel in (POISSON, NORMAL)}
"""Kernels by kind of items."""


def warm_up(kernel: Kernel) -> None:
    """Compile the kernels, or load them from Numba's cache, so that the wait has a name."""
    one, zero = np.ones(1), np.zeros(1, dtype=np.int64)
    kernel.totals(one, one, one)
    ends(one)
    for weight in (None, zero):
        FirstLook().add(one, weight)
    Sums(kernel, one).add(one, one, one, zero)
