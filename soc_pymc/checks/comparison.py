"""Fits of different priors to the same items, compared by leave-one-out in ArviZ's own table."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from .._lib.arguments import PROGRESS, SEED, A, OrNone, Whole, checked
from .._lib.arrays import Floats
from .._lib.errors import (
    ConvergenceWarning,
    FitError,
    ItemsWarning,
    warn_user,
)
from .._lib.progress import phase
from .._lib.threads import one_blas_thread
from ..data.items import Items
from ..data.statistics import Statistics
from ..inference.results import Fit, Status, outcome_roles
from ..posterior.interface import select
from ..posterior.item_columns import read_items
from ..posterior.predictive import posterior_of
from ._check import DRAWS, ITEMS_OR_STATISTICS, CheckResult
from .cells import make_cells
from .leave_one_out import LeaveOneOut, elpd_record, leave_cells_out, leave_one_out
from .predictive import thin
from .trust import Trust, judge, warning_of

_TOTALS = ("n_items", "exposure", "count")
_NOISE = "noise_sd"  # of a typical item of a bin: its square adds up
_SAME = 1e-6  # relative difference of totals of the same items in other bins
_COLUMNS = (
    "rank", "elpd_diff", "dse", "p_worse", "diag_diff", "diag_elpd", "p", "elpd", "se", "weight",
)  # fmt: skip


@checked(
    fits=A(Mapping, 'fits by name, {"name": fit, ...}'),
    data=OrNone(ITEMS_OR_STATISTICS),
    subset=Whole(1),
    seed=SEED,
    progress=PROGRESS,
)
@one_blas_thread
def compare(
    fits: Mapping[str, Fit | CheckResult],
    data: Items | Statistics | None = None,
    *,
    subset: int = 5000,
    seed: int = 0,
    progress: bool | None = None,
) -> pd.DataFrame:
    """Compare fits to the same items by the log density of every item left out in turn.

    Parameters
    ----------
    fits
        Fits by name, all to the same items; or results of `soc.check` on the same items with the
        same seed, and then no `data`.
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
        the items in nats, with its standard error ``se``; ``p``, the effective number of
        parameters; ``elpd_diff`` from the best and its standard error ``dse``; ``p_worse``, the
        probability to be worse than the best (NaN of the best itself); ``weight`` of stacking; and
        ``diag_elpd``, which counts items (or cells) whose Pareto k is too large. ``se`` and ``dse``
        are about the items: others of the same kind would give other sums.

        Three columns are about the draws. ``mcse`` is the Monte Carlo standard error of ``elpd`` in
        nats, ``mcse_diff`` that of ``elpd_diff``, and ``trust`` is ``"ok"`` or says in a few words
        why the draws do not support leave-one-out as they should: what the fit's status says, fewer
        than 100 effective draws, items (or cells) of large Pareto k. Where the error is unknown,
        the numbers of that fit are NaN, and it comes last.

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
    the draws, over their effective number: copies of a draw count once, and chains by their
    autocorrelation. ``mcse`` also contains what importance weights of VI would change, and the
    effective parameters of items of large Pareto k. A single chain or an approximation that has not
    converged by the fit's own status has an unknown error.

    ArviZ takes no weights: an item of a cell stands for all, as often as the cell has items. Of
    more than 200,000 items the weights of stacking come from a share of every cell, and differences
    and standard errors from all.

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
    if data is None:
        results = _checked_results(fits)
        found = {name: _of_check(result) for name, result in results.items()}
        trusts = {n: judge(found[n].influence, _status(result)) for n, result in results.items()}
        return _finished(_table(_records(found), trusts), trusts)
    only: dict[str, Fit] = {}
    for name, fit in fits.items():
        if not isinstance(fit, Fit):
            raise FitError(
                f"{name!r} is a {type(fit).__name__}, not a fit: give fits with data, or results "
                "of soc.check on the same items without"
            )
        if fit.one_draw:
            raise FitError(
                f"{name!r} is a fit of one draw, by which no item can be left out: compare such "
                "fits by soc.evaluate.cross_validate, on statistics with folds"
            )
        only[name] = fit
    _check_same(only)
    warn_of_clusters(only, data, "se and dse")
    if isinstance(data, Statistics):
        return _from_cells(only, data, progress)
    found = _from_items(only, data, subset, seed, progress)
    trusts = _judged(only, found)
    return _finished(_table(_records(found), trusts), trusts)


def warn_of_clusters(fits: Mapping[str, Fit], data: Items | Statistics, errors: str) -> None:
    """Say that standard errors, named by `errors`, are too small for items of clusters."""
    clustered = data.blocks > 0 if isinstance(data, Statistics) else data.cluster is not None
    if clustered or any(fit.widened for fit in fits.values()):
        warn_user(
            f"{errors} take items as independent, and are too small where items of one cluster "
            "are alike: soc.evaluate.cross_validate leaves out whole clusters",
            ItemsWarning,
        )


def _judged(fits: Mapping[str, Fit], found: Mapping[str, LeaveOneOut]) -> dict[str, Trust]:
    """The error of every fit's sum."""
    return {
        name: judge(found[name].influence, fit.status, _log_weight(fit))
        for name, fit in fits.items()
    }


def _log_weight(fit: Fit) -> xr.DataArray | None:
    """Log importance weights of a fit's draws, if it has any."""
    if "sample_stats" not in fit.data.children:
        return None
    found = fit.data["sample_stats"].to_dataset().get("log_weight")
    posterior = fit.data["posterior"].to_dataset()
    if found is None or any(found.sizes[dim] != posterior.sizes[dim] for dim in found.dims):
        return None
    return found.assign_coords({dim: posterior[dim] for dim in found.dims})


def _table(compared: Mapping[str, Any], trusts: Mapping[str, Trust]) -> pd.DataFrame:
    """ArviZ's table of the fits whose sums have an error that is known."""
    from arviz_stats import compare as arviz_compare

    kept = {name: own for name, own in compared.items() if not np.isnan(trusts[name].mcse)}
    if not kept:
        return pd.DataFrame(index=[], columns=list(_COLUMNS))
    # ArviZ takes two at least
    taken = kept if len(kept) > 1 else {**kept, **{f"{name} again": kept[name] for name in kept}}
    with np.errstate(all="ignore"):  # densities that have no sum are refused below
        table: pd.DataFrame = arviz_compare(taken, method="stacking", round_to="none")
    if taken is not kept:
        table = table.loc[list(kept)].assign(weight=1.0)
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
    return table


def _finished(table: pd.DataFrame, trusts: Mapping[str, Trust]) -> pd.DataFrame:
    """The table with the errors of sums and differences, fits of unknown error at the end."""
    order = [*table.index, *(n for n, own in trusts.items() if np.isnan(own.mcse))]
    table = table.reindex(order)
    table["rank"] = np.arange(len(table))
    for name in ("diag_diff", "diag_elpd"):
        table[name] = table[name].fillna("")
    table["mcse"] = mcse = np.array([trusts[name].mcse for name in order])
    table["mcse_diff"] = np.where(np.arange(len(mcse)) > 0, np.hypot(mcse, mcse[0]), 0.0 * mcse)
    table["trust"] = [trusts[name].words for name in order]
    if said := warning_of(trusts):
        warn_user(said, ConvergenceWarning)
    return table


# --- the same items ------------------------------------------------------------------------------


def _check_same(fits: Mapping[str, Fit]) -> None:
    """Refuse fits of different columns, or of items that differ in number or totals."""
    (before, first), *others = fits.items()
    for name, fit in others:
        theirs, ours = (outcome_roles(x.data.attrs) for x in (fit, first))
        if theirs != ours or posterior_of(fit).outcome != posterior_of(first).outcome:
            raise FitError(
                f"{before!r} and {name!r} are fits of other columns ({ours} and {theirs}): their "
                "densities cannot be compared"
            )
        _check_totals(f"{before!r} and {name!r} are fits", _totals(first), _totals(fit))


def _totals(fit: Fit) -> dict[str, float]:
    """Numbers of items and sums over them, as far as a fit keeps them."""
    bins = {
        str(name): values.to_numpy()
        for group in ("constant_data", "observed_data")
        if group in fit.data
        for name, values in fit.data[group].data_vars.items()
    }
    found = {name: float(bins[name].sum()) for name in _TOTALS if name in bins}
    if _NOISE in bins and "n_items" in bins:
        found["noise variance"] = float(bins["n_items"] @ bins[_NOISE] ** 2)
    return found


def _check_totals(what: str, a: Mapping[str, float], b: Mapping[str, float]) -> None:
    for name in a.keys() & b.keys():
        if abs(a[name] - b[name]) > _SAME * max(abs(a[name]), abs(b[name])):
            both = f"{a[name]:,.12g} and {b[name]:,.12g}"
            raise FitError(
                f"{what} of different items ({name} adds up to {both}): leaving items out compares "
                "fits to the same ones"
            )


# --- items ---------------------------------------------------------------------------------------


def _from_items(
    fits: Mapping[str, Fit], items: Items, subset: int, seed: int, progress: bool | None
) -> dict[str, LeaveOneOut]:
    """Leaves the same random items out of every fit, by at most 1,000 of its draws."""
    found = {}
    for name, fit in fits.items():
        few = thin(fit, DRAWS)
        posterior = posterior_of(few)
        columns, _ = read_items(fit, posterior, items, [], progress)
        n = len(columns["score"])
        _check_totals(f"the items and {name!r} are", {"n_items": float(n)}, _totals(fit))
        at = np.random.default_rng(seed).choice(n, min(subset, n), replace=False)
        with phase(f"leave-one-out of {name}", enabled=progress):
            log_density = posterior.log_density(select(columns, np.sort(at)))
        found[name] = _of_items(few.data["posterior"].to_dataset(), log_density)
    return found


def _of_items(draws: xr.Dataset, log_density: Floats) -> LeaveOneOut:
    one_each = np.ones(log_density.shape[1], dtype=np.int64)
    return leave_one_out(draws, one_each, lambda at: log_density[:, at])


def _of_check(result: CheckResult) -> LeaveOneOut:
    """Leaves out the items whose densities a check has kept."""
    (values,) = result.data["log_likelihood"].to_dataset().data_vars.values()
    log_density = values.to_numpy().reshape(-1, values.sizes["item"])
    return _of_items(result.data["posterior"].to_dataset(), log_density)


def _records(found: Mapping[str, LeaveOneOut]) -> dict[str, Any]:
    return {n: elpd_record(loo, np.ones(len(loo.each), dtype=int)) for n, loo in found.items()}


def _status(result: CheckResult) -> Status:
    """What a check says of its fit's status."""
    rows = result.table[result.table["where"] == "inference"].set_index("what")["value"]
    k, share = (None if x not in rows else float(rows[x]) for x in ("pareto_k", "ess_fraction"))
    return Status(bool(rows["converged"]), "", k, share, 0.0)


def _checked_results(results: Mapping[str, Fit | CheckResult]) -> dict[str, CheckResult]:
    """Results of checks, if they are of the same items."""
    found: dict[str, CheckResult] = {}
    for name, result in results.items():
        if not isinstance(result, CheckResult):
            raise FitError(
                "fits are compared on their items: give these, or their statistics, as second "
                "argument"
            )
        if "log_likelihood" not in result.data:
            raise FitError(
                f"{name!r} is a check on statistics, which keeps no densities of items: give fits "
                "and statistics"
            )
        found[name] = result
    (before, first), *others = found.items()
    for name, result in others:
        groups = ("observed_data", "constant_data")
        if not all(first.data[g].to_dataset().equals(result.data[g].to_dataset()) for g in groups):
            raise FitError(
                f"{before!r} and {name!r} are checks on different items, or with different seeds "
                "or subsets: their densities cannot be compared"
            )
    return found


# --- statistics ----------------------------------------------------------------------------------


def _from_cells(fits: Mapping[str, Fit], stats: Statistics, progress: bool | None) -> pd.DataFrame:
    """The table for all items of the statistics."""
    found: dict[str, LeaveOneOut] = {}
    for name, fit in fits.items():
        here = {"n_items": float(stats.n_items)}
        _check_totals(f"the statistics and {name!r} are", here, _totals(fit))
        cells = make_cells(fit, stats)
        found[name] = leave_cells_out(fit, cells, progress)
    trusts = _judged(fits, found)
    records = {name: elpd_record(loo, cells.n) for name, loo in found.items()}
    table = _table(records, trusts)
    if "subsampling_dse" in table:  # shares of every cell are no random subset
        table = table.drop(columns="subsampling_dse")
        _put_sums_of_all(table, found, cells.n.astype(float))
    return _finished(table, trusts)


def _put_sums_of_all(table: pd.DataFrame, found: Mapping[str, LeaveOneOut], n: Floats) -> None:
    """Put differences over all items, `n` in each cell, in the place of those over a share."""
    from scipy.stats import norm

    best = found[str(table.index[0])].each
    for name in table.index[1:]:
        away = found[str(name)].each - best
        diff = float(n @ away)
        error = float(np.sqrt(n @ (away - diff / n.sum()) ** 2))
        table.loc[name, ["elpd_diff", "dse"]] = diff, error
        table.loc[name, "p_worse"] = norm.cdf(0, diff, error + 1e-12)
        table.loc[name, "diag_diff"] = "|elpd_diff| < 4" if 0 < abs(diff) < 4 else ""
