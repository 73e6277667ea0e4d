"""The groups of a fit's tree that ArviZ's functions read: computed when first read or saved."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from pytensor.graph.traversal import ancestors
from xarray.backends import BackendArray
from xarray.core import indexing

from .._lib.arrays import Floats
from .._lib.threads import ordered_map
from .._model.problem import Problem, observed_totals, prior_draws
from .._model.terms import Curve
from ..data.statistics import Statistics
from ..families.mixture_rows import MixtureCells
from ..families.row_sums import RowSums
from .density import at_draws, top_level

_PRIOR_DRAWS, _PRIOR_TOTALS = 500, 100
_CHUNK = 50  # draws evaluated at once
_LARGEST = 2.0**62  # a count that an integer can hold
_MOST = 5_000_000  # numbers of one array: 40 MB
_MOST_DRAWN = 40_000_000  # numbers of cells that replicates go through


@dataclass(frozen=True)
class RowCurves:
    """Both curves at the rows as functions of draws, without the model: it can be pickled."""

    matrices: list[dict[str, Any]]  # of each curve: (rows, values) by variable, sparse
    data: RowSums
    dtype: type[np.number[Any]]  # of outcomes

    def __call__(self, draws: xr.Dataset) -> list[Floats]:
        """Both curves (draws, rows)."""
        return [
            sum(
                (matrix @ flat(draws[name]).reshape(-1, matrix.shape[1]).T).T
                for name, matrix in matrices.items()
            )
            for matrices in self.matrices
        ]

    def log_likelihood(self, draws: xr.Dataset) -> Floats:
        """Log marginal of every row, (draws, rows)."""
        m, c = self(draws)
        return _in_chunks(lambda part: self.data.values(m[part], c[part]), len(m))

    def totals(self, draws: xr.Dataset, seed: Sequence[int]) -> Floats:
        """Replicates of the rows' observed totals, (draws, rows)."""
        location, dispersion = self(draws)
        drawn = self.data.draw(location, dispersion, np.random.default_rng(seed))
        return drawn if self.dtype is np.float64 else np.clip(drawn, 0.0, _LARGEST)


@dataclass(frozen=True)
class MixtureRows:
    """Evaluation of a mixture at the rows; its predictors are linear in its coefficients."""

    names: list[str]  # of the coefficients
    design: Floats
    data: MixtureCells

    def log_likelihood(self, draws: xr.Dataset) -> Floats:
        """Log marginal of every row, (draws, rows)."""
        coefficients = np.hstack([flat(draws[name]) for name in self.names])
        rows = len(self.data.constant)

        def part(chunk: slice) -> Floats:
            predictors = coefficients[chunk] @ self.design.T
            by_row = predictors.reshape(len(predictors), rows, -1)
            return self.data.log_marginals(by_row)[0]

        return _in_chunks(part, len(coefficients))


def _rows(built: Problem) -> RowCurves | MixtureRows:
    """The likelihood's rows as functions of draws."""
    if built.mixture:
        (part,) = built.coefficients
        return MixtureRows(list(part.names), part.design.whole @ part.turn, built.data)
    matrices = map(Curve.row_matrices, built.pilot.curves, built.family.curves)
    return RowCurves(list(matrices), built.data, built.family.outcome.dtype)


def _in_chunks(part: Callable[[slice], Floats], draws: int) -> Floats:
    slices = [slice(i, i + _CHUNK) for i in range(0, draws, _CHUNK)]
    return np.concatenate(list(ordered_map(part, slices)))


def flat(values: xr.DataArray) -> Floats:
    """Draws of all chains, one after the other, (draws, ...)."""
    array = values.transpose("chain", "draw", ...).to_numpy()
    return np.asarray(array.reshape(-1, *array.shape[2:]))


# --- groups of the tree ---------------------------------------------------------------------------


def arviz_groups(
    built: Problem, stats: Statistics, posterior: xr.Dataset, widened: bool, seed: int
) -> dict[str, xr.Dataset]:
    """Densities, prior and predictive draws, and totals of the likelihood's rows, by group."""
    prior = prior_draws(built, _PRIOR_DRAWS, np.random.default_rng(seed))
    constant, rows = _model_data(built.model), _rows(built)
    groups = {"prior": prior, "constant_data": constant}
    n, dim, name = stats.data["n"].to_numpy(), "bin", built.observed
    if built.mixture or not np.array_equal(built.pilot.rows.n, n[n > 0]):  # rows are not bins
        dim, name = "row", f"{built.observed}_by_row"
        totals = observed_totals(built) if built.mixture else built.data.total
        totals = totals.astype(built.family.outcome.dtype)
        groups["observed_data"] = xr.Dataset({name: (dim, totals)})
        constant["row_score"] = (dim, built.score)
        if built.pilot.labels and len(built.score) == built.pilot.rows.number:
            labels = np.array(built.pilot.labels, dtype=object)
            constant["row_group"] = (dim, labels[built.pilot.rows.group])
    if not widened:
        groups["log_prior"], likelihood = _densities(built, posterior)
        values = partial(rows.log_likelihood, posterior)
        of_rows = _by_row(posterior, name, dim, len(built.score), values)
        groups["log_likelihood"] = of_rows.merge(likelihood)
    if isinstance(rows, RowCurves):
        for group, draws, most in (
            ("prior_predictive", prior, _PRIOR_TOTALS),
            ("posterior_predictive", posterior, _MOST),
        ):
            groups[group] = _replicates(rows, draws, most, name, dim, seed)
    return groups


def _model_data(model: pm.Model) -> xr.Dataset:
    """The `pm.Data` that parameters depend on: `pm.sample_posterior_predictive` compares it."""
    variables, used = {}, set(ancestors(model.free_RVs))
    for data in (data for data in model.data_vars if data in used):
        values = data.get_value()
        dims = model.named_vars_to_dims.get(data.name)
        variables[data.name] = dims or [f"{data.name}_dim_{i}" for i in range(values.ndim)], values
    return xr.Dataset(variables)


def _by_row(draws: xr.Dataset, name: str, dim: str, rows: int, values: Any) -> xr.Dataset:
    """Values (draws, rows) of every draw, summed over neighbouring rows where they are too many."""
    shape = draws.sizes["chain"], draws.sizes["draw"]
    number = max(1, _MOST // (shape[0] * shape[1]))
    if rows > number:
        values = partial(_block_sums, values, np.arange(number) * rows // number)
        name, dim, rows = f"{name}_by_block", "block", number
    return _later(name, draws, dim, rows, float, values)


def _block_sums(values: Any, starts: Any) -> Floats:
    return np.asarray(np.add.reduceat(values(), starts, axis=1))


def _replicates(
    rows: RowCurves, draws: xr.Dataset, most: int, name: str, dim: str, seed: int
) -> xr.Dataset:
    """Replicates of observed totals, of as many draws as do not take long, evenly spaced."""
    number, drawn = len(rows.data.total), _MOST_DRAWN // rows.data.number_of_cells
    most = max(1, min(most, _MOST // number, max(_PRIOR_TOTALS, drawn)))
    size = draws.sizes["draw"]
    per_chain = min(size, max(1, most // draws.sizes["chain"]))
    thinned = draws.isel(draw=np.arange(per_chain) * size // per_chain)
    totals = partial(rows.totals, thinned, [seed, most])
    return _later(name, thinned, dim, number, rows.dtype, totals)


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
    name: str, draws: xr.Dataset, dim: str, size: int, dtype: Any, make: Callable[[], Any]
) -> xr.Dataset:
    """A variable (chain, draw, dim) of values that take long."""
    coords = {d: draws[d] for d in ("chain", "draw")}
    values = _Later((*(len(c) for c in coords.values()), size), dtype, make)
    return xr.Dataset({name: ((*coords, dim), indexing.LazilyIndexedArray(values))}, coords)


def _densities(built: Problem, posterior: xr.Dataset) -> list[xr.Dataset]:
    """Log prior of top-level parameters, and log likelihood of what a user observed."""
    model = built.model
    parameters = top_level(built)
    observed = [v for v in model.observed_RVs if v.name != built.observed]
    of_model = [v for v in model.potentials if v.name in built.built_in]
    of_user = [v for v in model.potentials if v.name not in built.built_in]

    def densities(values: Any) -> list[Any]:
        # a density without parameters does not vary over the draws
        zero = 0.0 * next(iter(values.values())).sum()
        prior = [pm.logp(v, values[v]).sum() for v in parameters]
        likelihood = [pm.logp(v, model.rvs_to_values[v]) + zero for v in observed]
        sums = ([v.sum() for v in potentials] for potentials in (of_model, of_user))
        return [*prior, *next(sums), *likelihood, *next(sums)]

    values = {v.name: flat(posterior[v.name]) for v in model.free_RVs}
    coords = {d: posterior[d] for d in ("chain", "draw")}
    groups = [xr.Dataset(coords=coords), xr.Dataset(coords=coords)]
    prior, likelihood = [*parameters, *of_model], [*observed, *of_user]
    results = at_draws(built, values, densities)
    for k, (variable, x) in enumerate(zip([*prior, *likelihood], results, strict=True)):
        dims = [f"{variable.name}_dim_{i}" for i in range(x.ndim - 1)]
        by_draw = x.reshape(*map(len, coords.values()), *x.shape[1:])
        groups[k >= len(prior)][variable.name] = (*coords, *dims), by_draw
    return groups
