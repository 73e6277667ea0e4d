"""Curves and outcomes of items under a prior, before any outcome is seen."""

from typing import Any

import numpy as np
import xarray as xr

from .._lib.arguments import DRAWS, SEED, A, checked, refuse_beyond_memory
from .._model.problem import build, check_prior, prior_draws
from ..data.statistics import Statistics
from ..families.family import family_of, family_of_kind
from ..families.priors import Prior
from ..inference.fit_tree import conventional, tree_of_draws
from ..inference.methods import VI
from ..inference.results import Fit, Status
from .calibration import bin_scores_of, curves_of, default_scores
from .item_columns import Columns
from .predictive import posterior_of


@checked(
    stats=A(Statistics, "statistics, from soc.summarize"),
    draws=DRAWS,
    items=DRAWS,
    seed=SEED,
)
def prior_predictive(
    prior: Prior | None,
    stats: Statistics,
    draws: int = 100,
    *,
    items: int = 1000,
    seed: int = 0,
) -> xr.DataTree:
    """Draw curves and outcomes of items from a prior, before outcomes are seen.

    Only scores and sizes of the statistics matter; but a mixture has its components where the
    outcomes call for them.

    Parameters
    ----------
    prior
        The prior's configuration; None is ``soc.Gamma()`` for counts, ``soc.Normal()`` for values,
        ``soc.Beta()`` for successes.
    stats
        Statistics of the items, from `summarize`.
    draws, items, seed
        Numbers of draws from the prior and of items, and seed. Items are drawn with replacement:
        each has its bin's mean score, and a size from its bin.

    Returns
    -------
    xarray.DataTree
        ``prior`` has the curves of `calibration_curves`, dims (chain, draw, score),
        ``prior_predictive`` the items' outcomes, dims (chain, draw, item), and ``constant_data``
        their scores, sizes and groups. `plots.plot_prior_predictive` draws both.

    Raises
    ------
    FitError
        If the prior is not for such items, or the model cannot be built from the statistics.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> drawn = soc.prior_predictive(soc.Gamma(), stats, draws=50)
    >>> dict(drawn["prior_predictive"]["count"].sizes)
    {'chain': 1, 'draw': 50, 'item': 1000}
    """
    prior = family_of_kind(stats.kind).prior() if prior is None else prior
    check_prior(prior, stats)
    refuse_beyond_memory(
        8.0 * 4.0 * draws * max(items, stats.bins),
        f"{draws:,} draws of {items:,} items in {stats.bins:,} bins",
        "take fewer draws or items",
    )
    rng = np.random.default_rng(seed)
    built, outcome = build(stats, prior), family_of(prior).outcome
    groups = {"posterior": prior_draws(built, draws, rng)}
    tree = tree_of_draws(built, stats, groups, prior.monotone)
    fit = Fit(tree, prior, VI(), Status(True, "draws from the prior", None, None, 0.0))
    columns = _some_items(fit, stats, items, rng)
    curves, dims = curves_of(fit, default_scores(fit)), ("chain", "draw", "item")
    outcomes = posterior_of(fit).simulate(columns, rng).astype(outcome.dtype)
    sampled = {dim: curves[dim] for dim in dims[:2]}
    tree_groups = {
        "prior": curves,
        "prior_predictive": xr.Dataset({outcome.observed: (dims, outcomes[None])}, sampled),
        "constant_data": xr.Dataset({name: ("item", x) for name, x in columns.items()}),
    }
    return conventional(xr.DataTree.from_dict(tree_groups))


def _some_items(fit: Fit, stats: Statistics, number: int, rng: np.random.Generator) -> Columns:
    """Items drawn with replacement from the cells of sizes, without outcomes."""
    outcome = family_of(fit.prior).outcome
    cells = stats.table(outcome.margins[0])
    row = rng.choice(len(cells["n"]), number, p=cells["n"] / cells["n"].sum())
    sampled = {name: values[row] for name, values in cells.items()}
    group = sampled["group"] if stats.groups else np.zeros(number, dtype=np.int64)
    bins = bin_scores_of(fit, stats)
    columns: dict[str, Any] = {
        "score": bins.score[bins.place(group, sampled["bin"])],
        outcome.size: outcome.forms.mean_size(sampled),
    }
    if fit.groups:
        columns["group"] = np.array(stats.groups, dtype=object)[group]
    return columns
