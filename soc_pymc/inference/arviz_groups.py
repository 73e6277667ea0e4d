"""The groups of a fit's tree that ArviZ's functions read."""

from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import xarray as xr
from arviz_base import dict_to_dataset
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.traversal import ancestors
from scipy import sparse

from .._model.problem import Problem, observed_totals, prior_draws
from ..data.statistics import Statistics
from ..families.row_sums import RowSums
from .deferred import RowValues, deferred
from .density import CHUNK, labelled, mode

_PRIOR_DRAWS, _FEW = 500, 100  # of parameters, and of outcomes at least
_MOST = 5_000_000  # numbers of one array: 40 MB
_MOST_DRAWN = 40_000_000  # numbers of cells that replicates go through


def _row_values(built: Problem) -> RowValues:
    """The likelihood's rows as functions of draws."""
    if built.mixture:
        [part] = built.coefficients
        predictors: Any = {tuple(part.names): part.design.whole @ part.laplace.turn}
    else:
        curves = [curve.row_matrices for curve in built.pilot.curves]
        predictors = {tuple(x): sparse.hstack(list(x.values()), format="csr") for x in curves}
    dtype = built.family.outcome.dtype
    return RowValues(tuple(predictors), tuple(predictors.values()), built.data, dtype)


# --- groups of the tree ---------------------------------------------------------------------------


def arviz_groups(
    built: Problem, stats: Statistics, posterior: xr.Dataset, widened: bool, seed: int
) -> dict[str, xr.Dataset]:
    """Densities, prior and predictive draws, and totals of the likelihood's rows, by group."""
    prior = prior_draws(built, _PRIOR_DRAWS, np.random.default_rng(seed))
    rows, inputs = _row_values(built), {*ancestors(built.model.free_RVs)}
    # `pm.sample_posterior_predictive` compares the data that parameters depend on
    values = {data.name: data.get_value() for data in built.model.data_vars if data in inputs}
    constant = labelled(built.model, values, sample_dims=())
    groups = {"prior": prior, "constant_data": constant}
    n, dim, name = stats.data["n"].to_numpy(), "bin", built.observed
    if built.mixture or not np.array_equal(built.pilot.rows.n, n[n > 0]):  # rows are not bins
        dim, name = "row", f"{built.observed}_by_row"
        totals = observed_totals(built) if built.mixture else built.data.total
        totals = totals.astype(built.family.outcome.dtype)
        groups["observed_data"] = xr.Dataset({name: (dim, totals)})
        constant["row_score"] = (dim, built.score)
        if built.pilot.labels and len(built.score) == len(built.pilot.rows.n):
            labels = np.array(built.pilot.labels, dtype=object)
            constant["row_group"] = (dim, labels[built.pilot.rows.group])
    if not widened:
        groups["log_prior"], likelihood = _densities(built, posterior)
        number = len(built.score)
        blocks = min(number, max(1, _MOST // (posterior.sizes["chain"] * posterior.sizes["draw"])))
        starts = np.arange(blocks) * number // blocks
        names = (name, dim) if blocks == number else (f"{name}_by_block", "block")
        of_rows = deferred("log_likelihood", *names, rows, posterior, starts)
        groups["log_likelihood"] = of_rows.merge(likelihood)
    if not built.mixture:
        for group, draws in (("prior", prior.isel(draw=slice(_FEW))), ("posterior", posterior)):
            predictive, thinned = f"{group}_predictive", _thinned(draws, rows.data)
            seeds = np.array([seed, thinned.sizes["chain"]])
            groups[predictive] = deferred(predictive, name, dim, rows, thinned, seeds)
    return groups


def _thinned(draws: xr.Dataset, data: RowSums) -> xr.Dataset:
    """Evenly spaced draws, as many as have replicates that do not take long."""
    chains, size = draws.sizes["chain"], draws.sizes["draw"]
    most = min(_MOST // len(data.total), max(_FEW, _MOST_DRAWN // data.number_of_cells))
    per_chain = min(size, max(1, most // chains))
    return draws.isel(draw=np.arange(per_chain) * size // per_chain)


def _densities(built: Problem, posterior: xr.Dataset) -> list[xr.Dataset]:
    """Log prior of top-level parameters, and log likelihood of what a user observed."""
    model, free = built.model, built.model.free_RVs
    # a line's variable has further inputs, but its prior does not use them
    lines = {part.design.name for part in built.coefficients}
    parameters = [v for v in free if v.name in lines or not {*free} & ({*ancestors([v])} - {v})]
    observed = [v for v in model.observed_RVs if v.name != built.observed]
    zero = 0.0 * free[0].sum()  # a density without parameters does not vary over the draws
    prior = {v.name: pm.logp(v, v).sum() for v in parameters}
    likelihood = {v.name: pm.logp(v, model.rvs_to_values[v]) + zero for v in observed}
    for v in model.potentials:
        (prior if v.name in built.built_in else likelihood)[v.name] = v.sum()
    batches = [pt.tensor(shape=(None,) * (v.ndim + 1), dtype=v.dtype) for v in free]
    batch_of = dict(zip(free, batches, strict=True))
    outputs = vectorize_graph([*prior.values(), *likelihood.values()], batch_of)
    function = pytensor.function(batches, outputs, mode=mode(), on_unused_input="ignore")
    by_chain = [posterior[v.name].transpose("chain", "draw", ...).to_numpy() for v in free]
    draws = [np.concatenate(chains) for chains in by_chain]
    shape = posterior.sizes["chain"], posterior.sizes["draw"]
    starts = range(0, shape[0] * shape[1], CHUNK)
    parts = [function(*(x[i : i + CHUNK] for x in draws)) for i in starts]
    arrays = (np.concatenate(x) for x in zip(*parts, strict=True))
    shaped = [x.reshape(*shape, *x.shape[1:]) for x in arrays]
    return [
        dict_to_dataset(dict(zip(names, values, strict=True)))
        for names, values in ((prior, shaped[: len(prior)]), (likelihood, shaped[len(prior) :]))
    ]
