"""Loops in NumPy that Numba compiles once there is so much work that compiling them pays."""

from collections.abc import Callable
from functools import cached_property, update_wrapper
from importlib import import_module
from typing import Any


class Compiled[Result]:
    """A function of arrays, replaced by a kernel from `enough` numbers on, in one call or several.

    The kernel has the function's name in a module that imports Numba, and gives the same bits, so
    that no result depends on what the process did before.
    """

    def __init__(
        self, function: Callable[..., Result], module: str, enough: int
    ) -> None:
        update_wrapper(self, function)
        self.function = function
        self._module = module
        self._left = enough
        self._foreseen = 0

    @cached_property
    def kernel(self) -> Callable[..., Result]:
        """The compiled function."""
        name = self.function.__name__.lstrip("_")
        kernel: Callable[..., Result] = getattr(import_module(self._module), name)
        return kernel

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
    module: str, enough: int
) -> Callable[[Callable[..., Result]], Compiled[Result]]:
    """Decorate a function that has a kernel of its name in a module."""
    return lambda function: Compiled(function, module, enough)
