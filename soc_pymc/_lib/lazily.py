"""Arrays of a tree that are computed when they are first read, printed or saved."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from xarray.backends import BackendArray
from xarray.core import indexing


class _Later(BackendArray):
    """An array of a known shape and type, from a function that can be pickled."""

    def __init__(
        self, shape: tuple[int, ...], dtype: Any, make: Callable[[], NDArray[Any]]
    ) -> None:
        self.shape, self.dtype, self._make = shape, np.dtype(dtype), make

    @cached_property
    def _values(self) -> NDArray[Any]:
        return np.asarray(self._make()).reshape(self.shape).astype(self.dtype, copy=False)

    def __getitem__(self, key: Any) -> Any:
        support = indexing.IndexingSupport.BASIC
        return indexing.explicit_indexing_adapter(
            key, self.shape, support, lambda at: self._values[at]
        )


def later(
    dims: Sequence[str], shape: tuple[int, ...], dtype: Any, make: Callable[[], NDArray[Any]]
) -> xr.Variable:
    """A variable whose values `make` returns once they are needed; they are then kept."""
    return xr.Variable(dims, indexing.LazilyIndexedArray(_Later(shape, dtype, make)))
