"""Variables that are computed when first read; a saved fit holds what computes them instead."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy import sparse
from xarray.backends import BackendArray
from xarray.core import indexing

from .._lib.arrays import Floats, Ints
from .._lib.threads import ordered_map
from ..families import family_of
from ..families.family import Family
from ..families.priors import Prior
from ..families.rows import Ragged, RowSums

# arrays by name of what they make
_Parts = dict[str, list[NDArray[Any]]]

_STORE = "deferred"  # group of a saved file
_OVER = ["chain", "draw"]
_DRAWS_AT_ONCE = 50  # draws evaluated at once
_LARGEST_COUNT = 2.0**62  # a count that an integer can hold


# --- the likelihood's rows ------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class RowValues:
    """The likelihood's rows as functions of draws, without the model."""

    # of each predictor, which are both curves, or one array with all predictors of a mixture:
    names: tuple[tuple[str, ...], ...]  # its variables
    # (rows, values of these variables), sparse or dense
    matrices: tuple[Any, ...]
    data: Any  # `RowSums`, or `MixtureCells`
    dtype: type[np.number[Any]]  # of outcomes

    def predictors(self, draws: Mapping[str, Floats]) -> list[Floats]:
        """Values (draws, rows) of each predictor."""
        return [
            (
                matrix
                @ np.hstack(
                    [draws[name].reshape(len(draws[name]), -1) for name in names]
                ).T
            ).T
            for names, matrix in zip(self.names, self.matrices, strict=True)
        ]

    def _by_row(self, draws: Mapping[str, Floats]) -> Floats:
        """Predictors of a mixture, (draws, rows, P)."""
        (predictors,) = self.predictors(draws)
        return predictors.reshape(len(predictors), len(self.data.constant), -1)

    def within_bounds(self, draws: Mapping[str, Floats]) -> Floats:
        """Log density (draws,) of curves beyond what a mixture's components can represent."""
        return self.data.within_bounds(self._by_row(draws))

    def log_likelihood(self, draws: Mapping[str, Floats], starts: Ints) -> Floats:
        """Log marginals (draws, blocks) of blocks of rows that begin at `starts`."""

        def part(start: int) -> Floats:
            chunk = {
                name: values[start : start + _DRAWS_AT_ONCE]
                for name, values in draws.items()
            }
            if len(self.names) == 2:
                by_row = self.data.values(*self.predictors(chunk))
            else:
                by_row = self.data.log_marginals(self._by_row(chunk))[0]
            return np.add.reduceat(by_row, starts, axis=1)

        number = len(next(iter(draws.values())))
        return np.concatenate(list(ordered_map(part, range(0, number, _DRAWS_AT_ONCE))))

    def totals(self, draws: Mapping[str, Floats], seed: Ints) -> NDArray[Any]:
        """Replicates of the observed totals of a single family's rows, (draws, rows)."""
        drawn = self.data.draw(*self.predictors(draws), np.random.default_rng(seed))
        whole = self.dtype is not np.float64
        return np.asarray(
            np.clip(drawn, 0.0, _LARGEST_COUNT) if whole else drawn, dtype=self.dtype
        )

    def parts(self) -> _Parts:
        """All arrays, of which `of_parts` makes the rows again."""
        parts: _Parts = {}
        for k, matrix in enumerate(map(sparse.csr_array, self.matrices)):
            shape = np.array(matrix.shape)
            parts[f"matrix_{k}"] = [matrix.data, matrix.indices, matrix.indptr, shape]
        if not isinstance(self.data, RowSums):
            return parts | {"cells": [*self.data.arrays]}
        for field in fields(self.data):  # type: ignore[arg-type]
            values = getattr(self.data, field.name)
            ragged = isinstance(values, Ragged)
            parts[field.name] = [values.start, *values.columns] if ragged else [values]
        return parts

    @staticmethod
    def of_parts(
        names: Sequence[Sequence[str]], parts: _Parts, family: Family
    ) -> "RowValues":
        """The rows of a fit with priors of a family."""
        gridded = "cells" in parts
        matrices = []
        for k in range(len(names)):
            *columns, shape = parts.pop(f"matrix_{k}")
            matrix = sparse.csr_array(tuple(columns), shape=tuple(shape))
            # products with a damaged matrix would read foreign memory
            matrix.check_format()
            matrices.append(matrix.toarray() if gridded else matrix)
        data: Any
        if gridded:
            from .._model.mixture_cells import MixtureCells

            data = MixtureCells.made_of(family, *parts["cells"])
        else:
            values = {
                name: Ragged(part[0], tuple(part[1:])) if len(part) > 1 else part[0]
                for name, part in parts.items()
            }
            data = family.rows.made_of(values)
        return RowValues(
            tuple(map(tuple, names)), tuple(matrices), data, family.outcome.dtype
        )


def flat(draws: xr.Dataset) -> dict[str, Floats]:
    """All variables with the draws of all chains one after the other, (draws, ...)."""
    arrays = {
        str(name): x.transpose(*_OVER, ...).to_numpy() for name, x in draws.items()
    }
    return {name: np.concatenate(chains) for name, chains in arrays.items()}


# --- variables of the tree ------------------------------------------------------------------------

# by group: where its draws are, and what its variable is of them
_SOURCES = {
    "log_likelihood": ("posterior", RowValues.log_likelihood),
    "posterior_predictive": ("posterior", RowValues.totals),
    "prior_predictive": ("prior", RowValues.totals),
}


class Later(BackendArray):
    """An array that is made when it is first read."""

    def __init__(
        self, shape: tuple[int, ...], dtype: Any, make: Callable[[], NDArray[Any]]
    ) -> None:
        self.shape = shape
        self.dtype = np.dtype(dtype)
        self._make = make

    @cached_property
    def _values(self) -> NDArray[Any]:
        return np.asarray(self._make(), dtype=self.dtype).reshape(self.shape)

    def __deepcopy__(self, memo: Any) -> "Later":
        # a lock of the property cannot be copied, and values do not change
        return self

    def __getitem__(self, key: Any) -> Any:
        support = indexing.IndexingSupport.OUTER_1VECTOR
        part = self._values.__getitem__
        return indexing.explicit_indexing_adapter(key, self.shape, support, part)


class _Deferred(Later):
    """Values (chain, draw, size) of a variable of the tree."""

    def __init__(
        self, group: str, rows: RowValues, draws: Mapping[str, Floats], argument: Ints
    ) -> None:
        self.group = group
        self.rows = rows
        self.draws = draws
        self.argument = argument
        by_block = group == "log_likelihood"
        size = len(argument) if by_block else len(rows.data.total)
        shape = (*next(iter(draws.values())).shape[:2], size)
        super().__init__(shape, float if by_block else rows.dtype, self._computed)

    def _computed(self) -> NDArray[Any]:
        _, function = _SOURCES[self.group]
        draws = {name: np.concatenate(chains) for name, chains in self.draws.items()}
        return function(self.rows, draws, self.argument)


def deferred(
    group: str, name: str, dim: str, rows: RowValues, draws: xr.Dataset, argument: Ints
) -> xr.Dataset:
    """The variable (chain, draw, dim) of a group of the tree, computed when first read.

    `argument` are the starts of the blocks of a log likelihood, or the seed of replicates.
    """
    values = _Deferred(group, rows, _arrays(draws, rows.names), argument)
    return draws[_OVER].assign({name: _lazy(dim, values)})


def _lazy(dim: str, values: _Deferred) -> xr.Variable:
    return xr.Variable((*_OVER, dim), indexing.LazilyIndexedArray(values))


# --- saved trees ----------------------------------------------------------------------------------


def with_recipes(tree: xr.DataTree) -> xr.DataTree:
    """The tree as it is saved: with what computes deferred variables in place of their values."""
    tree = tree.copy()
    rows: RowValues | None = None
    contents: dict[str, Any] = {}
    parts: _Parts = {}
    for group in (group for group in _SOURCES if group in tree.children):
        data = tree[group].to_dataset()
        for name, variable in data.variables.items():
            values = _whole(variable, group)
            if (
                values is None
                or group in contents
                or values.rows is not (rows or values.rows)
            ):
                continue
            rows = values.rows
            saved = _saved_draws(data, tree, group, rows)
            changed = {
                parameter: draws
                for parameter, draws in values.draws.items()
                if parameter not in saved or not np.array_equal(draws, saved[parameter])
            }
            contents[group] = name, variable.dims[-1], [*changed]
            parts[group] = [values.argument, *changed.values()]
            tree[group].dataset = data.drop_vars([name])
    if rows is None:
        return tree
    parts |= rows.parts()
    recipes = xr.Dataset(
        attrs={"contents": json.dumps(contents | {"names": rows.names})}
    )
    for name, part in parts.items():
        for k, array in enumerate(part):
            dims = [f"dim_{axis}_{size}" for axis, size in enumerate(array.shape)]
            recipes[f"{name}.{k}"] = dims, array
    tree[_STORE] = xr.DataTree(recipes)
    return tree


def without_recipes(tree: xr.DataTree, prior: Prior) -> xr.DataTree:
    """The tree of a saved fit with its deferred variables."""
    if _STORE not in tree.children:
        return tree
    parts: _Parts = {}
    for key, array in tree[_STORE].data_vars.items():
        parts.setdefault(str(key).split(".")[0], []).append(array.to_numpy())
    contents = json.loads(tree[_STORE].attrs["contents"])
    names = contents.pop("names")
    recipes = {group: parts.pop(group) for group in contents}
    rows = RowValues.of_parts(names, parts, family_of(prior, tree.attrs))
    for group, (name, dim, changed) in contents.items():
        data = tree[group].to_dataset()
        argument, *arrays = recipes[group]
        draws = _saved_draws(data, tree, group, rows) | dict(
            zip(changed, arrays, strict=True)
        )
        values = _Deferred(group, rows, draws, argument)
        tree[group].dataset = data.assign({name: _lazy(dim, values)})
    return tree.drop_nodes(_STORE)


def _whole(variable: xr.Variable, group: str) -> _Deferred | None:
    """The deferred values of a group's variable; None for others, and for parts of them."""
    lazy = variable._data
    values = getattr(lazy, "array", None)
    if not isinstance(lazy, indexing.LazilyIndexedArray) or not isinstance(
        values, _Deferred
    ):
        return None
    whole = all(
        isinstance(part, slice) and part == slice(None) for part in lazy.key.tuple
    )
    return values if whole and values.group == group else None


def _saved_draws(
    data: xr.Dataset, tree: xr.DataTree, group: str, rows: RowValues
) -> dict[str, Floats]:
    """Draws in the tree of which a group's variable is made, with the labels of its `data`."""
    source, _ = _SOURCES[group]
    draws = tree[source].to_dataset() if source in tree.children else xr.Dataset()
    aligned = xr.align(data[_OVER], draws, join="left", copy=False)[1]
    return _arrays(aligned, rows.names)


def _arrays(draws: xr.Dataset, names: Sequence[Sequence[str]]) -> dict[str, Floats]:
    """Variables (chain, draw, ...) of these names, if they are there."""
    present = [draws[name] for each in names for name in each if name in draws]
    # in one order in memory, on which the rounding of products depends
    return {
        str(x.name): np.ascontiguousarray(x.transpose(*_OVER, ...)) for x in present
    }
