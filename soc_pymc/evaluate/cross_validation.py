"""`cross_validate`: priors compared by folds, from statistics alone."""

import pandas as pd

from .._lib.arguments import A, checked
from .._lib.errors import FitError, StatisticsError
from .._lib.threads import one_blas_thread
from ..checks.comparison import doubt_of
from ..checks.observations import curve_rows
from ..checks.results import OK
from ..data.statistics import Statistics
from ..families.family import reads_joint
from ..families.priors import SinglePrior
from ..inference.methods import NUTS, VI, FiveSteps


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
        Statistics with folds.
    prior, method, progress
        As in `soc.fit`.

    Returns
    -------
    pandas.DataFrame
        By fold: ``items``; ``elpd``, the log density in nats of the fold's outcomes at the
        posterior mean of the curves; ``per_item``; ``converged``; and ``trust``, ``"ok"`` or what
        the status of the fit to the others says against it.

    Raises
    ------
    StatisticsError, FitError
        If there are fewer than two folds, or the prior reads joint cells, which have none.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> stats = soc.summarize(items, folds=2)
    >>> list(soc.evaluate.cross_validate(stats).columns)
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
    table = {}
    for fold in range(stats.folds):
        if n := (fold_statistics := stats.of_fold(fold)).n_items:
            fit_to_others = fit(stats.without_fold(fold), prior, method, progress=progress)
            rows, status = curve_rows(fit_to_others, fold_statistics), fit_to_others.status
            elpd = float(rows.sums.values(rows.location[None], rows.dispersion[None]).sum())
            trust = doubt_of(status) or OK
            table[fold] = [n, elpd, elpd / n, status.converged, trust]
    columns = ["items", "elpd", "per_item", "converged", "trust"]
    frame = pd.DataFrame.from_dict(table, "index", columns=columns)
    return frame.rename_axis("fold")
