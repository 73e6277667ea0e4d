"""Cross-validation from statistics that have folds."""

from dataclasses import replace

import numpy as np
import pandas as pd

from .._lib.arguments import instance
from .._lib.errors import FitError, StatisticsError
from ..data.statistics import Statistics
from ..families.priors import Gamma, Normal
from ..inference.methods import NUTS, VI, FiveSteps
from ..inference.results import Fit
from ..model.outcomes import outcome_of
from ..posterior.predictive import bin_scores_of, curves_at, posterior_of

__all__ = ["cross_validate"]


def cross_validate(
    stats: Statistics,
    prior: Gamma | Normal | None = None,
    method: VI | NUTS | FiveSteps | None = None,
    *,
    progress: bool = True,
) -> pd.DataFrame:
    """Log predictive density of every fold under a fit to the others, from statistics alone.

    Parameters
    ----------
    stats
        Statistics with folds; items are never seen.
    prior, method
        As of `soc.fit`.
    progress
        Whether to show progress on standard error.

    Returns
    -------
    pandas.DataFrame
        By fold: ``items``; ``elpd``, the log density in nats of the fold's outcomes at the
        posterior mean of the curves, summed over its items; ``per_item``; and ``converged``.
        Differences between priors on the same statistics compare them.

    Raises
    ------
    StatisticsError
        If the statistics have fewer than two folds.
    FitError
        If the prior reads joint cells, which have no folds.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> items = soc.PoissonItems(
    ...     soc.simulation.s1(2000), score="score", count="count", exposure="exposure")
    >>> stats = soc.summarize(items, folds=2, progress=False)
    >>> table = soc.evaluate.cross_validate(stats, progress=False)
    >>> list(table.columns)
    ['items', 'elpd', 'per_item', 'converged']
    """
    from ..inference.fitting import fit

    instance(stats, "stats", Statistics, "statistics with folds: soc.summarize(items, folds=10)")
    if stats.folds < 2:
        raise StatisticsError(
            "the statistics have no folds: summarize the items with folds=10, or with id= or fold="
        )
    _check_prior(prior)
    rows = []
    for fold in range(stats.folds):
        held = stats.of_fold(fold)
        if held.n_items == 0:
            continue
        others = fit(stats.without_fold(fold), prior, method, progress=progress)
        elpd = _log_density(others, held)
        rows.append((fold, held.n_items, elpd, elpd / held.n_items, others.status.converged))
    columns = ["fold", "items", "elpd", "per_item", "converged"]
    return pd.DataFrame(rows, columns=columns).set_index("fold")


def _check_prior(prior: object) -> None:
    """Refuse priors that the tables with folds cannot serve."""
    wants = None if prior is None or type(prior) in (Gamma, Normal) else type(prior).__name__
    if isinstance(prior, Gamma | Normal) and prior.exposure is not None:
        wants = f"{type(prior).__name__}(exposure=)"
    if wants:
        raise FitError(
            f"soc.{wants} reads joint cells, which have no folds: compare such fits by "
            "leave-one-out, soc.compare({...}, statistics)"
        )


def _log_density(fit: Fit, stats: Statistics) -> float:
    """Log density of all outcomes at the posterior means of the curves, of every group's bins."""
    bins, outcome = bin_scores_of(fit, posterior_of(fit), stats), outcome_of(stats)
    rows, data = outcome.rows(stats, bool(stats.groups), False)
    at = bins.place(rows.group, rows.bin)
    labels = np.array(stats.groups or [None], dtype=object)
    curves = curves_at(fit, bins.score, labels[bins.group], None)
    first, second = (draws.mean(axis=0)[at][None] for draws in curves)
    data = replace(data, spread=bins.spread[at])
    return float(outcome.value(first, second, np.arange(rows.number), *data.arrays)[0].sum())
