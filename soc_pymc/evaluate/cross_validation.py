"""`cross_validate`: priors compared by folds, from statistics alone."""

import numpy as np
import pandas as pd

from .._lib.arguments import A, checked
from .._lib.errors import FitError, StatisticsError
from .._lib.threads import one_blas_thread
from .._model.rows import rows_of
from ..checks.leave_one_out import doubt_of
from ..checks.results import OK
from ..data.statistics import Statistics
from ..families.family import family_of_kind, reads_joint
from ..families.priors import SinglePrior
from ..inference.methods import NUTS, VI, FiveSteps
from ..inference.results import Fit
from ..posterior.curves import curves_at
from ..posterior.item_columns import bin_scores_of
from ..posterior.predictive import posterior_of


@checked(stats=A(Statistics, "statistics with folds: soc.summarize(items, folds=10)"))
@one_blas_thread
def cross_validate(
    stats: Statistics,
    prior: SinglePrior | None = None,
    method: VI | NUTS | FiveSteps | None = None,
    *,
    progress: bool | None = None,
) -> pd.DataFrame:
    """Log predictive density of every fold under a fit to the others, from statistics alone.

    Parameters
    ----------
    stats
        Statistics with folds; items are never seen.
    prior, method, progress
        As of `soc.fit`.

    Returns
    -------
    pandas.DataFrame
        By fold: ``items``; ``elpd``, the log density in nats of the fold's outcomes at the
        posterior mean of the curves, summed over its items; ``per_item``; ``converged``; and
        ``trust``, ``"ok"`` or what the status of the fit to the others says against it.
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
    >>> stats = soc.summarize(items, folds=2)
    >>> table = soc.evaluate.cross_validate(stats)
    >>> list(table.columns)
    ['items', 'elpd', 'per_item', 'converged', 'trust']
    """
    from ..inference.fitting import fit

    if stats.folds < 2:
        raise StatisticsError(
            "the statistics have no folds: summarize the items with folds=10, or with fold="
        )
    if prior is not None and (not hasattr(prior, "mixture") or reads_joint(prior)):
        raise FitError(
            f"soc.{type(prior).__name__} reads joint cells, which have no folds: compare such fits "
            "by leave-one-out, soc.compare({...}, statistics)"
        )
    rows = []
    for fold in range(stats.folds):
        if not (held := stats.of_fold(fold)).n_items:
            continue
        others = fit(stats.without_fold(fold), prior, method, progress=progress)
        elpd, status = _log_density(others, held), others.status
        row = {"fold": fold, "items": held.n_items, "elpd": elpd, "per_item": elpd / held.n_items}
        rows.append(row | {"converged": status.converged, "trust": doubt_of(status) or OK})
    return pd.DataFrame(rows).set_index("fold")


def _log_density(fit: Fit, stats: Statistics) -> float:
    """Log density of all outcomes at the posterior means of the curves, of every group's bins."""
    bins = bin_scores_of(fit, posterior_of(fit), stats)
    rows, data = rows_of(stats, family_of_kind(stats.kind), grouped=bool(stats.groups))
    place = bins.place(rows.group, rows.bin)
    labels = np.array(stats.groups or [None], dtype=object)
    curves = curves_at(fit, bins.score, labels[bins.group], None)
    first, second = (draws.mean(axis=0)[place][None] for draws in curves)
    data = data.with_spread(bins.spread[place])
    return float(data.values(first, second).sum())
