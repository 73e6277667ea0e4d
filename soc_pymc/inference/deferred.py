"""Variables that are computed when first read; a saved fit holds what computes them instead."""

from collections.abc import Mapping, Sequence
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
from ..families.family import FAMILIES
from ..families.mixture_rows import MixtureCells
from ..families.priors import Prior
from ..families.row_sums import Ragged

_STORE = "deferred"  # group of a saved file
_CHUNK = 50  # draws evaluated at once
_LARGEST = 2.0**62  # a count that an integer can hold


# --- the likelihood's rows ------------------------------------------------------------------------


@dataclass(frozen=True)
class RowValues:
    """The likelihood's rows as functions of draws, without the model."""

    # of each predictor, which are both curves, or one array with all predictors of a mixture:
    names: tuple[tuple[str, ...], ...]  # its variables
    matrices: tuple[Any, ...]  # (rows, values of these variables), sparse or dense
    data: Any  # `RowSums`, or `MixtureCells`
    dtype: type[np.number[Any]]  # of outcomes

    def predictors(self, draws: Mapping[str, Floats]) -> list[Floats]:
        """Values (draws, rows) of each predictor."""
        return [
            (matrix @ np.hstack([draws[name].reshape(len(draws[name]), -1) for name in names]).T).T
            for names, matrix in zip(self.names, self.matrices, strict=True)
        ]

    def log_likelihood(self, draws: Mapping[str, Floats], starts: Ints) -> Floats:
        """Log marginals (draws, blocks) of blocks of rows that begin at `starts`."""

        def part(start: int) -> Floats:
            chunk = {name: values[start : start + _CHUNK] for name, values in draws.items()}
            curves = self.predictors(chunk)
            if len(curves) == 2:
                by_row = self.data.values(*curves)
            else:
                shape = len(curves[0]), len(self.data.constant), -1
                by_row = self.data.log_marginals(curves[0].reshape(shape))[0]
            return np.asarray(np.add.reduceat(by_row, starts, axis=1))

        number = len(next(iter(draws.values())))
        return np.concatenate(list(ordered_map(part, range(0, number, _CHUNK))))

    def totals(self, draws: Mapping[str, Floats], seed: Ints) -> NDArray[Any]:
        """Replicates of the observed totals of a single family's rows, (draws, rows)."""
        drawn = self.data.draw(*self.predictors(draws), np.random.default_rng(seed))
        whole = self.dtype is not np.float64
        return np.asarray(np.clip(drawn, 0.0, _LARGEST) if whole else drawn, dtype=self.dtype)

    def to_arrays(self) -> xr.Dataset:
        """All arrays, of which `from_arrays` makes the rows again."""
        matrices = [sparse.csr_array(matrix) for matrix in self.matrices]
        parts: dict[str, tuple[NDArray[Any], ...]] = {
            f"matrix_{k}": (x.data, x.indices, x.indptr, np.array(x.shape))
            for k, x in enumerate(matrices)
        }
        if isinstance(self.data, MixtureCells):
            parts["cells"] = self.data.arrays
        else:
            for field in fields(self.data):
                values = getattr(self.data, field.name)
                ragged = isinstance(values, Ragged)
                parts[field.name] = (values.start, *values.columns) if ragged else (values,)
        arrays = {f"{name}.{k}": x for name, part in parts.items() for k, x in enumerate(part)}
        dims = {name: [f"dim_{k}_{n}" for k, n in enumerate(x.shape)] for name, x in arrays.items()}
        attributes = {f"names_{k}": " ".join(names) for k, names in enumerate(self.names)}
        return xr.Dataset({name: (dims[name], x) for name, x in arrays.items()}, attrs=attributes)

    @staticmethod
    def from_arrays(arrays: xr.Dataset, prior: Prior) -> "RowValues":
        """The rows of a fit with this prior."""
        family = FAMILIES[prior.family]
        parts: dict[str, list[NDArray[Any]]] = {}
        for name in sorted(map(str, arrays), key=lambda name: int(name.split(".")[1])):
            parts.setdefault(name.split(".")[0], []).append(arrays[name].to_numpy())
        names = tuple(tuple(text.split()) for _, text in sorted(arrays.attrs.items()))
        matrices: list[Any] = []
        for k in range(len(names)):
            *columns, shape = parts.pop(f"matrix_{k}")
            matrix = sparse.csr_array(tuple(columns), shape=tuple(shape))
            matrix.check_format()  # products with a damaged matrix would read foreign memory
            matrices.append(matrix.toarray() if prior.gridded else matrix)
        data: Any
        if prior.gridded:
            data = MixtureCells.made_of(family.components.law, *parts["cells"])
        else:
            data = family.rows(
                **{
                    name: Ragged(part[0], tuple(part[1:])) if len(part) > 1 else part[0]
                    for name, part in parts.items()
                }
            )
        return RowValues(names, tuple(matrices), data, family.outcome.dtype)


# --- variables of the tree ------------------------------------------------------------------------

_SOURCES = {  # by group: where its draws are, and what its variable is of them
    "log_likelihood": ("posterior", RowValues.log_likelihood),
    "posterior_predictive": ("posterior", RowValues.totals),
    "prior_predictive": ("prior", RowValues.totals),
}


class _Deferred(BackendArray):
    """Values (chain, draw, size) of a variable, computed when first read."""

    def __init__(self, group: str, rows: RowValues, draws: xr.Dataset, argument: Ints) -> None:
        self.group, self.rows, self.argument = group, rows, argument
        self.names = [name for names in rows.names for name in names]
        self.draws = draws[self.names]
        by_block = group == "log_likelihood"
        size = len(argument) if by_block else len(rows.data.total)
        self.shape = draws.sizes["chain"], draws.sizes["draw"], size
        self.dtype = np.dtype(float if by_block else rows.dtype)

    @cached_property
    def _values(self) -> NDArray[Any]:
        _, function = _SOURCES[self.group]
        values = function(self.rows, flat(self.draws, self.names), self.argument)
        return values.reshape(self.shape)

    def __getitem__(self, key: Any) -> Any:
        support = indexing.IndexingSupport.BASIC
        return indexing.explicit_indexing_adapter(
            key, self.shape, support, lambda part: self._values[part]
        )


def flat(draws: xr.Dataset, names: Sequence[str]) -> dict[str, Floats]:
    """Variables with the draws of all chains one after the other, (draws, ...)."""
    arrays = {name: draws[name].transpose("chain", "draw", ...).to_numpy() for name in names}
    return {name: values.reshape(-1, *values.shape[2:]) for name, values in arrays.items()}


def deferred(
    group: str, name: str, dim: str, rows: RowValues, draws: xr.Dataset, argument: Ints
) -> xr.Dataset:
    """The variable (chain, draw, dim) of a group of the tree, computed when first read.

    `argument` are the starts of the blocks of a log likelihood, or the seed of replicates.
    """
    values = indexing.LazilyIndexedArray(_Deferred(group, rows, draws, argument))
    return draws[["chain", "draw"]].assign({name: (("chain", "draw", dim), values)})


def with_recipes(tree: xr.DataTree) -> xr.DataTree:
    """The tree as it is saved: with what computes deferred variables in place of their values."""
    tree = tree.copy()
    recipes: dict[str, xr.Dataset] = {}
    for group, node in tree.children.items():
        data = node.to_dataset()
        for name, variable in data.variables.items():
            values = _whole(variable)
            if values is None or values.group != group:
                continue
            draws, known = values.draws, _draws(data, tree, group)
            changed = [x for x in draws if x not in known or not np.array_equal(draws[x], known[x])]
            recipe = draws[changed].assign(argument=("number", values.argument))
            recipe.attrs = {"dim": variable.dims[-1]}
            recipes[f"{group}/{name}"] = recipe
            recipes["/"] = values.rows.to_arrays()
            node.dataset = data.drop_vars([name])
    if recipes:
        tree[_STORE] = xr.DataTree.from_dict(recipes)
    return tree


def without_recipes(tree: xr.DataTree, prior: Prior) -> xr.DataTree:
    """The tree of a saved fit with its deferred variables."""
    if _STORE not in tree.children:
        return tree
    store = tree[_STORE]
    rows = RowValues.from_arrays(store.to_dataset(), prior)
    for group, node in store.children.items():
        data = tree[group].to_dataset()
        for name, recipe in node.children.items():
            changed = recipe.to_dataset()
            draws = _draws(data, tree, group).assign(changed.data_vars)
            argument = changed["argument"].to_numpy()
            values = deferred(group, name, changed.attrs["dim"], rows, draws, argument)
            tree[group].dataset = data.assign(values.data_vars)
    return tree.drop_nodes(_STORE)


def _whole(variable: xr.Variable) -> _Deferred | None:
    """The deferred values of a variable; None for others, and for parts of deferred ones."""
    lazy = variable._data
    values = getattr(lazy, "array", None)
    if not isinstance(lazy, indexing.LazilyIndexedArray) or not isinstance(values, _Deferred):
        return None
    whole = all(isinstance(part, slice) and part == slice(None) for part in lazy.key.tuple)
    return values if whole else None


def _draws(data: xr.Dataset, tree: xr.DataTree, group: str) -> xr.Dataset:
    """Draws from which a group's variable is computed, with the labels of its `data`."""
    source, _ = _SOURCES[group]
    draws = tree[source].to_dataset() if source in tree.children else xr.Dataset()
    return xr.align(data[["chain", "draw"]], draws, join="left", copy=False)[1]
