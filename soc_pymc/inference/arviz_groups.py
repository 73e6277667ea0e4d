"""The groups of a fit's tree that ArviZ's functions read: computed when first read or saved."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import xarray as xr
from xarray.backends import BackendArray
from xarray.core import indexing

from .._lib.arrays import Floats, Ints
from .._lib.threads import ordered_map
from .._model.coordinates import Space
from .._model.problem import Problem, prior_draws
from ..data.statistics import Statistics
from ..families.mixture_rows import WITHIN_BOUNDS
from .density import CHUNK, SAMPLED, with_labels

_PRIOR_DRAWS, _FEW = 500, 100  # of parameters, and of outcomes at least
_CHUNK = 50  # draws evaluated at once
_LARGEST = 2.0**62  # a count that an integer can hold
_MOST = 5_000_000  # numbers of one array: 40 MB
_MOST_DRAWN = 40_000_000  # numbers of cells that replicates go through


@dataclass(frozen=True, eq=False)
class RowValues:
    """The likelihood's rows as functions of draws, without the model: it can be pickled."""

    # of both curves, or of all predictors of a mixture: (rows, values) by variable
    matrices: list[dict[str, Any]]
    data: Any  # `RowSums`, or `MixtureCells`
    dtype: type[np.number[Any]]  # of outcomes

    def predictors(self, draws: Mapping[str, Floats]) -> list[Floats]:
        """Sums of the matrices times the draws, (draws, rows), for each list of matrices."""
        return [
            sum(
                (matrix @ draws[name].reshape(-1, matrix.shape[1]).T).T
                for name, matrix in matrices.items()
            )
            for matrices in self.matrices
        ]

    def _by_row(self, draws: Mapping[str, Floats]) -> Floats:
        """Predictors of a mixture, (draws, rows, P)."""
        (predictors,) = self.predictors(draws)
        return predictors.reshape(len(predictors), len(self.data.constant), -1)

    def within_bounds(self, draws: Mapping[str, Floats]) -> Floats:
        """Log density (draws,) of curves beyond what a mixture's components can represent."""
        return np.asarray(self.data.within_bounds(self._by_row(draws)))

    def log_likelihood(self, draws: Mapping[str, Floats], starts: Ints) -> Floats:
        """Log marginals (draws, blocks) of blocks of rows that begin at `starts`."""

        def part(start: int) -> Floats:
            chunk = {name: values[start : start + _CHUNK] for name, values in draws.items()}
            if len(self.matrices) == 2:
                by_row = self.data.values(*self.predictors(chunk))
            else:
                by_row = self.data.log_marginals(self._by_row(chunk))[0]
            return np.asarray(np.add.reduceat(by_row, starts, axis=1))

        number = len(next(iter(draws.values())))
        return np.concatenate(list(ordered_map(part, range(0, number, _CHUNK))))

    def totals(self, draws: Mapping[str, Floats], seed: Sequence[int]) -> Floats:
        """Replicates of the observed totals of a single family's rows, (draws, rows)."""
        drawn = self.data.draw(*self.predictors(draws), np.random.default_rng(seed))
        return np.asarray(drawn if self.dtype is np.float64 else np.clip(drawn, 0.0, _LARGEST))

    def variables(self, draws: xr.Dataset) -> dict[str, Floats]:
        """Draws of the variables that have a matrix."""
        return flat(draws, [name for matrices in self.matrices for name in matrices])


def _row_values(built: Problem) -> RowValues:
    """The likelihood's rows as functions of draws."""
    if built.mixture:
        [part] = built.coordinates.parts
        columns = np.split(part.at_rows, part.design.ends, axis=1)
        matrices = [dict(zip(part.names, columns, strict=True))]
    else:
        matrices = [curve.row_matrices for curve in built.pilot.curves]
    return RowValues(matrices, built.data, built.family.outcome.dtype)


def flat(draws: xr.Dataset, names: Sequence[str]) -> dict[str, Floats]:
    """Variables with the draws of all chains one after the other, (draws, ...)."""
    arrays = {name: draws[name].transpose("chain", "draw", ...).to_numpy() for name in names}
    return {name: values.reshape(-1, *values.shape[2:]) for name, values in arrays.items()}


# --- groups of the tree ---------------------------------------------------------------------------


def arviz_groups(
    built: Problem, stats: Statistics, posterior: xr.Dataset, widened: bool, seed: int
) -> dict[str, xr.Dataset]:
    """Densities, prior and predictive draws, and totals of the likelihood's rows, by group."""
    prior = prior_draws(built, _PRIOR_DRAWS, np.random.default_rng(seed))
    rows = _row_values(built)
    # `pm.sample_posterior_predictive` compares the data that parameters depend on
    constant = with_labels(built.space, xr.Dataset(dict(built.space.constants)))
    groups = {"prior": prior, "constant_data": constant}
    n, dim, name = stats.data["n"].to_numpy(), "bin", built.observed
    if built.mixture or not np.array_equal(built.pilot.rows.n, n[n > 0]):  # rows are not bins
        dim, name = "row", f"{built.observed}_by_row"
        totals = built.totals.astype(built.family.outcome.dtype)
        groups["observed_data"] = xr.Dataset({name: (dim, totals)})
        constant["row_score"] = (dim, built.score)
        if built.pilot.labels and len(built.score) == len(built.pilot.rows.n):
            groups_of_rows = np.array(built.pilot.labels, dtype=object)[built.pilot.rows.group]
            constant["row_group"] = (dim, groups_of_rows)
    if not widened:
        groups["log_prior"], likelihood = _densities(built.space, posterior)
        if built.mixture:
            within = rows.within_bounds(rows.variables(posterior))
            shape = posterior.sizes["chain"], posterior.sizes["draw"]
            groups["log_prior"][WITHIN_BOUNDS] = SAMPLED, within.reshape(shape)
        number = len(built.score)
        blocks = min(number, max(1, _MOST // (posterior.sizes["chain"] * posterior.sizes["draw"])))
        starts = np.arange(blocks) * number // blocks
        log_likelihood = partial(rows.log_likelihood, rows.variables(posterior), starts)
        names = (name, dim) if blocks == number else (f"{name}_by_block", "block")
        of_rows = _later(*names, posterior, blocks, float, log_likelihood)
        groups["log_likelihood"] = of_rows.merge(likelihood)
    if not built.mixture:
        first_draws = prior.isel(draw=slice(_FEW))
        groups["prior_predictive"] = _replicates(rows, first_draws, name, dim, seed)
        groups["posterior_predictive"] = _replicates(rows, posterior, name, dim, seed)
    return groups


def _replicates(rows: RowValues, draws: xr.Dataset, name: str, dim: str, seed: int) -> xr.Dataset:
    """Replicates of observed totals, of as many draws as do not take long, evenly spaced."""
    chains, size, number = draws.sizes["chain"], draws.sizes["draw"], len(rows.data.total)
    most = min(_MOST // number, max(_FEW, _MOST_DRAWN // rows.data.number_of_cells))
    per_chain = min(size, max(1, most // chains))
    thinned = draws.isel(draw=np.arange(per_chain) * size // per_chain)
    totals = partial(rows.totals, rows.variables(thinned), [seed, chains])
    return _later(name, dim, thinned, number, rows.dtype, totals)


class _Later(BackendArray):
    """An array that a function, which can be pickled, makes when it is first read."""

    def __init__(self, shape: tuple[int, ...], dtype: Any, make: Callable[[], Any]) -> None:
        self.shape, self.dtype, self._make = shape, np.dtype(dtype), make

    @cached_property
    def _values(self) -> Any:
        return np.asarray(self._make()).reshape(self.shape).astype(self.dtype, copy=False)

    def __getitem__(self, key: Any) -> Any:
        support = indexing.IndexingSupport.BASIC
        return indexing.explicit_indexing_adapter(
            key, self.shape, support, lambda part: self._values[part]
        )


def _later(
    name: str, dim: str, draws: xr.Dataset, size: int, dtype: Any, make: Callable[[], Any]
) -> xr.Dataset:
    """A variable (chain, draw, dim) of values that take long."""
    coords = {d: draws[d] for d in ("chain", "draw")}
    values = _Later((*(len(c) for c in coords.values()), size), dtype, make)
    return xr.Dataset({name: ((*coords, dim), indexing.LazilyIndexedArray(values))}, coords)


def _densities(space: Space, posterior: xr.Dataset) -> list[xr.Dataset]:
    """Log prior of top-level parameters, and log likelihood of what a user observed."""
    arrays = flat(posterior, list(map(str, posterior.data_vars)))
    number = len(next(iter(arrays.values())))
    chunks = [slice(start, start + CHUNK) for start in range(0, number, CHUNK)]
    parts = [space.densities({k: x[chunk] for k, x in arrays.items()}) for chunk in chunks]
    shape = posterior.sizes["chain"], posterior.sizes["draw"]
    datasets = []
    for by_part in zip(*parts, strict=True):
        variables = {}
        for name in by_part[0]:
            values = np.concatenate([part[name] for part in by_part])
            dims = [f"{name}_dim_{k}" for k in range(values.ndim - 1)]
            variables[name] = (*SAMPLED, *dims), values.reshape(*shape, *values.shape[1:])
        datasets.append(xr.Dataset(variables, {d: posterior[d] for d in SAMPLED}))
    return datasets
