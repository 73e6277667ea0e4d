"""Fits of different priors to the same items, compared by leave-one-out in ArviZ's own table."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from .._lib.arguments import PROGRESS, SEED, A, Whole, checked
from .._lib.arrays import Floats, Ints
from .._lib.errors import ConvergenceWarning, FitError, ItemsWarning, warn_user
from .._lib.threads import one_blas_thread
from ..data.items import Items
from ..data.statistics import Statistics
from ..inference.results import Fit, outcome_roles
from ..posterior.predictive import posterior_of
from ._check import ITEMS_OR_STATISTICS
from .leave_one_out import LeaveOneOut, elpd_record, leave_one_out
from .observations import clustered, observe
from .trust import Trust, judge, warning_of

_TOTALS = ("n_items", "exposure", "count")
_NOISE = "noise_sd"  # of a typical item of a bin: its square adds up
_SAME = 1e-6  # relative difference of totals of the same items in other bins
_COLUMNS = (
    "rank", "elpd_diff", "dse", "p_worse", "diag_diff", "diag_elpd", "p", "elpd", "se", "weight",
)  # fmt: skip


@checked(
    fits=A(Mapping, 'fits by name, {"name": fit, ...}'),
    data=ITEMS_OR_STATISTICS,
    subset=Whole(1),
    seed=SEED,
    progress=PROGRESS,
)
@one_blas_thread
def compare(
    fits: Mapping[str, Fit],
    data: Items | Statistics,
    *,
    subset: int = 5000,
    seed: int = 0,
    progress: bool | None = None,
) -> pd.DataFrame:
    """Compare fits to the same items by the log density of every item left out in turn.

    Parameters
    ----------
    fits
        Fits by name, all to the same items.
    data
        The items that made the fits: a random subset of them is left out one by one. Or their
        statistics with joint cells, which `summarize` keeps by default: all of them are, at the
        precision of the cells.
    subset, seed, progress
        Number of random items, the same for all fits (statistics take all), their seed, and whether
        to show progress.

    Returns
    -------
    pandas.DataFrame
        ArviZ's table (`arviz.compare`), best first: ``elpd``, expected log predictive density of
        the items in nats, and its standard error ``se`` over items; ``p``, the effective number of
        parameters; ``elpd_diff`` from the best and its standard error ``dse``; ``p_worse``, the
        probability to be worse than the best; ``weight`` of stacking; and ``diag_elpd``, which
        counts items (or cells) whose Pareto k is too large.

        Three columns are about the draws. ``mcse`` is the Monte Carlo standard error of ``elpd`` in
        nats, ``mcse_diff`` that of ``elpd_diff``, and ``trust`` is ``"ok"`` or says why the draws
        do not support leave-one-out as they should: the fit's status, fewer than 100 effective
        draws, or large Pareto k. Where the error is unknown (a single chain or an approximation
        that has not converged), the numbers of that fit are NaN, and it comes last.

    Raises
    ------
    FitError
        If there are fewer than two fits, they are of different items or columns, or `data` are not
        the items that made them; if draws differ so much in what they say of single items that
        these cannot be left out.

    Warns
    -----
    ConvergenceWarning
        If any fit's ``trust`` is not ``"ok"``: one warning, with the names and the remedy.
    ItemsWarning
        If fits or data have clusters: ``se`` and ``dse`` take items as independent.

    Notes
    -----
    The variance over draws is the infinitesimal jackknife of the whole sum, since all items share
    the draws. ``mcse`` also contains what importance weights of VI would change, and the effective
    parameters of items of large Pareto k.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> stiff = soc.Gamma(variance=soc.Spline(knots=1))
    >>> fits = {"curve": fit, "constant cv": soc.fit(stats, stiff)}
    >>> table = soc.compare(fits, stats)
    >>> sorted(table.index)
    ['constant cv', 'curve']
    """
    if len(fits) < 2:
        raise FitError(f"compare takes two fits or more by name, not {len(fits)}")
    for name, fit in fits.items():
        if not isinstance(fit, Fit):
            raise FitError(f"{name!r} is a {type(fit).__name__}, not a fit: give fits by name")
        if fit.one_draw:
            raise FitError(
                f"{name!r} is a fit of one draw, by which no item can be left out: compare such "
                "fits by soc.evaluate.cross_validate, on statistics with folds"
            )
    _check_same(fits)
    warn_of_clusters(fits, data, "se and dse")
    loos: dict[str, LeaveOneOut] = {}
    what, unit = "items", "items"
    if isinstance(data, Statistics):
        what, unit = "statistics", "cells"
    for name, fit in fits.items():
        rows = observe(fit, data, progress=progress)
        _check_totals(f"the {what} and {name!r} are", {"n_items": float(rows.n.sum())}, fit)
        if isinstance(data, Items):
            rng, number = np.random.default_rng(seed), len(rows.n)
            rows = rows.rows(np.sort(rng.choice(number, min(subset, number), replace=False)))
        loos[name] = leave_one_out(fit, rows, progress, f"leave-one-out of {name}")
        n = rows.n
    trusts = {name: judge(loos[name], fit, unit) for name, fit in fits.items()}
    table = _table(loos, n, trusts)
    order = [*table.index, *(name for name, trust in trusts.items() if np.isnan(trust.mcse))]
    table = table.reindex(order)
    table["rank"] = np.arange(len(table))
    for column in ("diag_diff", "diag_elpd"):
        table[column] = table[column].fillna("")
    table["mcse"] = mcse = np.array([trusts[name].mcse for name in order])
    table["mcse_diff"] = np.where(np.arange(len(mcse)) > 0, np.hypot(mcse, mcse[0]), 0.0 * mcse)
    table["trust"] = [trusts[name].words for name in order]
    if warning := warning_of(trusts):
        warn_user(warning, ConvergenceWarning)
    return table


def warn_of_clusters(fits: Mapping[str, Fit], data: Items | Statistics, errors: str) -> None:
    """Warn that standard errors, named by `errors`, are too small for items of clusters."""
    if clustered(data) or any(fit.widened for fit in fits.values()):
        warn_user(
            f"{errors} take items as independent, and are too small where items of one cluster "
            "are alike: soc.evaluate.cross_validate leaves out whole clusters",
            ItemsWarning,
        )


def _table(loos: Mapping[str, LeaveOneOut], n: Ints, trusts: Mapping[str, Trust]) -> pd.DataFrame:
    """ArviZ's table of the fits whose sums have an error that is known."""
    from arviz_stats import compare as arviz_compare

    known = {
        name: elpd_record(loo, n) for name, loo in loos.items() if not np.isnan(trusts[name].mcse)
    }
    if not known:
        return pd.DataFrame(index=[], columns=list(_COLUMNS))
    # ArviZ takes two at least
    alone = {f"{name} again": record for name, record in known.items()} if len(known) == 1 else {}
    with np.errstate(all="ignore"):  # densities that have no sum are refused below
        table: pd.DataFrame = arviz_compare(known | alone, method="stacking", round_to="none")
    if alone:
        table = table.loc[list(known)].assign(weight=1.0)
    lost = table.index[~np.isfinite(table["elpd"])].tolist()
    if lost:
        raise FitError(
            f"leave-one-out of {', '.join(map(repr, lost))} has no value: draws differ so much in "
            "what they say of single items that none can stand for a fit without them; compare by "
            "soc.evaluate.cross_validate, on statistics with folds"
        )
    same = (table["elpd_diff"] == 0) & (table["dse"] == 0)
    same.iloc[0] = False
    table.loc[same, "p_worse"] = 0.5  # of fits that say the same of every item: ArviZ has 0 / 0
    if "subsampling_dse" in table:  # shares of every cell are no random subset
        table = table.drop(columns="subsampling_dse")
        _put_sums_of_all(table, loos, n.astype(float))
    return table


def _put_sums_of_all(table: pd.DataFrame, loos: Mapping[str, LeaveOneOut], n: Floats) -> None:
    """Put differences over all items, `n` in each cell, in the place of those over a share."""
    from scipy.stats import norm

    best = loos[str(table.index[0])].each
    for name in table.index[1:]:
        gain = loos[str(name)].each - best
        difference = float(n @ gain)
        error = float(np.sqrt(n @ (gain - difference / n.sum()) ** 2))
        table.loc[name, ["elpd_diff", "dse"]] = difference, error
        table.loc[name, "p_worse"] = norm.cdf(0, difference, error + 1e-12)
        table.loc[name, "diag_diff"] = "|elpd_diff| < 4" if 0 < abs(difference) < 4 else ""


# --- the same items ------------------------------------------------------------------------------


def _check_same(fits: Mapping[str, Fit]) -> None:
    """Refuse fits of different columns, or of items that differ in number or totals."""
    (reference, base), *others = fits.items()
    for name, fit in others:
        theirs, ours = (outcome_roles(x.data.attrs) for x in (fit, base))
        if theirs != ours or posterior_of(fit).outcome != posterior_of(base).outcome:
            raise FitError(
                f"{reference!r} and {name!r} are fits of other columns ({ours} and {theirs}): "
                "their densities cannot be compared"
            )
        _check_totals(f"{reference!r} and {name!r} are fits", _totals(base), fit)


def _totals(fit: Fit) -> dict[str, float]:
    """Numbers of items and sums over them, as far as a fit keeps them."""
    bins = {
        str(name): values.to_numpy()
        for group in ("constant_data", "observed_data")
        if group in fit.data
        for name, values in fit.data[group].data_vars.items()
    }
    totals = {name: float(bins[name].sum()) for name in _TOTALS if name in bins}
    if _NOISE in bins and "n_items" in bins:
        totals["noise variance"] = float(bins["n_items"] @ bins[_NOISE] ** 2)
    return totals


def _check_totals(what: str, totals: Mapping[str, float], fit: Fit) -> None:
    of_fit = _totals(fit)
    for name in totals.keys() & of_fit.keys():
        a, b = totals[name], of_fit[name]
        if abs(a - b) > _SAME * max(abs(a), abs(b)):
            raise FitError(
                f"{what} of different items ({name} adds up to {a:,.12g} and {b:,.12g}): leaving "
                "items out compares fits to the same ones"
            )
