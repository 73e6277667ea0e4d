"""The groups of a fit's tree that ArviZ's functions read."""

import numpy as np
import xarray as xr
from scipy import sparse

from .._model.coordinates import Space
from .._model.mixture_cells import WITHIN_BOUNDS
from .._model.problem import Problem, prior_draws
from ..data.statistics import Statistics
from ..families.rows import RowSums
from ..fits.deferred import RowValues, deferred, flat
from .density import CHUNK, SAMPLED, with_labels

# of parameters, and of outcomes at least
_PRIOR_DRAWS = 500
_FEW = 100
_MOST = 5_000_000  # numbers of one array: 40 MB
_MOST_DRAWN = 40_000_000  # numbers of cells that replicates go through


def _row_values(built: Problem) -> RowValues:
    """The likelihood's rows as functions of draws."""
    dtype = built.family.outcome.dtype
    if built.mixture:
        [part] = built.coordinates.parts
        names = (tuple(part.names),)
        return RowValues(names, (part.at_rows,), built.mixture.cells, dtype)
    curves = [curve.row_matrices for curve in built.pilot.curves]
    matrices = [sparse.hstack(list(x.values()), format="csr") for x in curves]
    return RowValues(
        tuple(map(tuple, curves)), tuple(matrices), built.pilot.data, dtype
    )


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
    n = stats.data["n"].to_numpy()
    dim = "bin"
    name = built.observed
    rows_are_bins = np.array_equal(built.pilot.rows.n, n[n > 0])
    if built.mixture or not rows_are_bins:
        dim = "row"
        name = f"{built.observed}_by_row"
        totals = built.totals.astype(built.family.outcome.dtype)
        groups["observed_data"] = xr.Dataset({name: (dim, totals)})
        constant["row_score"] = (dim, built.score)
        if built.pilot.labels and len(built.score) == len(built.pilot.rows.n):
            labels = np.array(built.pilot.labels, dtype=object)
            constant["row_group"] = (dim, labels[built.pilot.rows.group])
    number = len(built.score)
    shape = posterior.sizes["chain"], posterior.sizes["draw"]
    if not widened:
        groups["log_prior"], likelihood = _densities(built.space, posterior)
        if built.mixture:
            within = rows.within_bounds(flat(posterior)).reshape(shape)
            groups["log_prior"][WITHIN_BOUNDS] = SAMPLED, within
        blocks = min(number, max(1, _MOST // (shape[0] * shape[1])))
        starts = np.arange(blocks) * number // blocks
        names = (name, dim) if blocks == number else (f"{name}_by_block", "block")
        of_rows = deferred("log_likelihood", *names, rows, posterior, starts)
        groups["log_likelihood"] = of_rows.merge(likelihood)
    if not built.mixture:
        few = prior.isel(draw=slice(_FEW))
        for group, draws in (("prior", few), ("posterior", posterior)):
            predictive = f"{group}_predictive"
            thinned = _thinned(draws, built.pilot.data)
            seeds = np.array([seed, thinned.sizes["chain"]])
            groups[predictive] = deferred(predictive, name, dim, rows, thinned, seeds)
    return groups


def _thinned(draws: xr.Dataset, data: RowSums) -> xr.Dataset:
    """Evenly spaced draws, as many as have replicates that do not take long."""
    chains = draws.sizes["chain"]
    size = draws.sizes["draw"]
    most = min(_MOST // len(data.total), max(_FEW, _MOST_DRAWN // data.number_of_cells))
    per_chain = min(size, max(1, most // chains))
    return draws.isel(draw=np.arange(per_chain) * size // per_chain)


def _densities(space: Space, posterior: xr.Dataset) -> list[xr.Dataset]:
    """Log prior of top-level parameters, and log likelihood of what a user observed."""
    arrays = flat(posterior)
    number = len(next(iter(arrays.values())))
    chunks = [slice(start, start + CHUNK) for start in range(0, number, CHUNK)]
    parts = [
        space.densities({k: x[chunk] for k, x in arrays.items()}) for chunk in chunks
    ]
    shape = posterior.sizes["chain"], posterior.sizes["draw"]
    datasets = []
    for by_part in zip(*parts, strict=True):
        variables = {}
        for name in by_part[0]:
            values = np.concatenate([part[name] for part in by_part])
            dims = [f"{name}_dim_{k}" for k in range(values.ndim - 1)]
            variables[name] = (
                (*SAMPLED, *dims),
                values.reshape(*shape, *values.shape[1:]),
            )
        datasets.append(xr.Dataset(variables, {d: posterior[d] for d in SAMPLED}))
    return datasets
