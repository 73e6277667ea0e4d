"""Fits of different priors to the same items, compared by leave-one-out."""

import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from scipy import optimize, special, stats

from .._lib.arguments import PROGRESS, SEED, A, Whole, checked
from .._lib.arrays import Floats, Ints
from .._lib.errors import ConvergenceWarning, FitError, ItemsWarning, warn_user
from .._lib.threads import one_blas_thread
from ..data.items import Items
from ..data.statistics import Statistics
from ..inference.results import PARETO_K, Fit, Status, outcome_roles
from ..posterior.item_columns import Columns, select
from ..posterior.predictive import posterior_of
from .observations import ITEMS_OR_STATISTICS, Observations, clustered, in_batches, observe, thin
from .results import OK

_TOTALS = ("n_items", "exposure", "count")
_NOISE = "noise_sd"  # noise of a bin's typical item: its square adds up
_SAME = 1e-6  # relative difference of totals of the same items in other bins


# --- every item left out in turn -----------------------------------------------------------------

_NUMBERS = 4_000_000  # numbers in one array of draws x rows
_MOST_NUMBERS, _FEWEST_DRAWS = 40_000_000, 100  # numbers of all rows, and draws
_SMOOTHED, _LEAST_SMOOTHED = 2_000, 100  # rows whose weights are Pareto-smoothed
_SWAY = 0.01  # variance of log densities over draws, below which smoothing changes nothing
_EQUAL = 1e-9  # log densities that range less over the draws are those of equal weights
_PIT_DRAWS = 32  # draws that say how far leaving an item out moves its predictive distribution


@dataclass(frozen=True)
class LeaveOneOut:
    """Expected log predictive density of every item left out in turn."""

    elpd: float  # sum over items, in nats
    standard_error: float  # of the sum, over items
    p_loo: float  # effective number of parameters
    pareto_k: float  # the largest
    by_row: Floats  # of one item of each row, (rows,)
    k: Floats  # Pareto k by row; NaN where weights are so nearly equal that they stay as they are
    n: Ints  # items of each row
    draws: int

    @property
    def good_k(self) -> float:
        """Pareto k up to which these draws give reliable weights (Vehtari et al. 2024)."""
        return float(min(1.0 - 1.0 / np.log10(self.draws), PARETO_K))

    @property
    def doubtful(self) -> int:
        """Number of rows whose Pareto k is too large for these draws."""
        return int((self.k > self.good_k).sum())

    def record(self) -> Any:
        """ArviZ's record, which takes no weights: a row's item is there as often as it has items.

        ``pareto_k`` covers the rows whose weights were smoothed.
        """
        from arviz_stats.utils import ELPDDataLOO

        smoothed = np.flatnonzero(~np.isnan(self.k))
        return ELPDDataLOO(
            elpd=self.elpd,
            se=self.standard_error,
            p=self.p_loo,
            scale="log",
            n_samples=self.draws,
            n_data_points=int(self.n.sum()),
            good_k=self.good_k,
            warning=self.pareto_k > self.good_k,
            pareto_k=xr.DataArray(self.k[smoothed], {"cell": smoothed}, "cell"),
            elpd_i=xr.DataArray(np.repeat(self.by_row, self.n), dims="item"),
        )


def doubt_of(status: Status) -> str:
    """Words of a fit's status against its draws, or nothing."""
    if status.pareto_k is not None and not status.pareto_k <= PARETO_K:
        return f"Pareto k {status.pareto_k:.2f} of the fit"
    return "" if status.converged else "not converged"


def leave_one_out(
    fit: Fit, items: Observations, progress: bool | None = None, title: str = "leave-one-out"
) -> LeaveOneOut:
    """Leave every item out in turn; of many rows with fewer draws, at least 100."""
    n = items.n
    thinned = thin(fit, max(_FEWEST_DRAWS, _MOST_NUMBERS // len(n)))
    posterior, sizes = posterior_of(thinned), thinned.data["posterior"].sizes
    draws = sizes["chain"] * sizes["draw"]

    def moments(part: Columns) -> Floats:
        density = posterior.log_density(part)
        sums = (_log_sum(x) - np.log(draws) for x in (-density, density))
        return np.stack([*sums, density.var(axis=0)])

    step = max(1, _NUMBERS // draws)
    inverse, full, sway = in_batches(title, items.columns, step, progress, moments)
    by_row = -inverse
    worst = np.argsort(-sway)[:_SMOOTHED]
    worst = worst[: max(_LEAST_SMOOTHED, int((sway[worst] > _SWAY).sum()))]
    density, k = posterior.log_density(select(items.columns, worst)), np.full(len(n), np.nan)
    log_weight, k[worst] = _smoothed(density)
    by_row[worst] = _log_sum(log_weight + density)
    elpd = float(n @ by_row)
    error = float(np.sqrt(n @ (by_row - elpd / n.sum()) ** 2))
    parameters = float(n @ (full - by_row))
    return LeaveOneOut(elpd, error, parameters, float(np.nanmax(k)), by_row, k, n, draws)


def _log_sum(values: Floats) -> Floats:
    """Logarithm of a sum over the first axis: SciPy's takes 2.5 times as long."""
    top = values.max(axis=0)
    return np.asarray(top + np.log(np.exp(values - top).sum(axis=0)))


def _smoothed(log_density: Floats) -> tuple[Floats, Floats]:
    """Logarithms of Pareto-smoothed weights (draws, n), and k: infinite where no tail is fitted."""
    from arviz_stats.base import array_stats

    equal = np.ptp(log_density, axis=0) <= _EQUAL
    log_weight = -log_density - _log_sum(-log_density)
    k = np.where(equal, 0.0, np.inf)
    for item in np.flatnonzero(~equal):
        # a tail that is one number is refused, and one beyond float64 has a k of NaN
        with warnings.catch_warnings(), suppress(ValueError), np.errstate(all="ignore"):
            # of few draws, whose k says what it is worth
            warnings.filterwarnings("ignore", "Number of tail draws", UserWarning)
            weights, shape = array_stats.psislw(log_density[:, item])  # it takes the sign itself
            if np.isfinite(shape) and np.isfinite(weights).all():
                log_weight[:, item], k[item] = weights, shape
    return log_weight, k


def cdf_without(fit: Fit, columns: Columns, log_density: Floats, ends: Floats) -> Floats:
    """P(Y < y) and P(Y <= y), (2, n), of items in the fit, as if they were not in it.

    The exact cdf over all draws (`ends`) is moved by the difference that an item's weights make
    among 32 draws: it is small, so that few draws do. `log_density` is (draws, n).
    """
    pick = np.unique(np.arange(_PIT_DRAWS) * len(log_density) // _PIT_DRAWS)
    log_weight = -log_density[pick]
    weight = special.softmax(log_weight, axis=0) - 1.0 / len(pick)
    shift = np.einsum("dn,edn->en", weight, posterior_of(fit).cdf_by_draw(columns, pick))
    below, upto = np.clip(ends + shift, 0.0, 1.0)
    return np.stack([np.minimum(below, upto), upto])


# --- fits compared -------------------------------------------------------------------------------


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
        The items that made the fits, or their statistics with joint cells, of which all items are
        left out, at the precision of the cells.
    subset, seed, progress
        Number of random items that are left out, their seed, and whether to show progress.

    Returns
    -------
    pandas.DataFrame
        The numbers of `arviz.compare`, best first: ``elpd``, expected log predictive density of the
        items in nats, and its standard error ``se`` over items; ``p``, the effective number of
        parameters; ``elpd_diff`` from the best and its standard error ``dse``; ``p_worse``, the
        probability to be worse than the best; ``weight`` of stacking; and ``trust``, ``"ok"`` or
        what speaks against the draws: the fit's status, or how many items (or cells) have a large
        Pareto k. A fit whose status is against it has no other numbers, and comes last.

    Raises
    ------
    FitError
        If there are fewer than two fits, or `data` are not the items that made all of them.

    Warns
    -----
    ConvergenceWarning, ItemsWarning
        If any ``trust`` is not ``"ok"``; if items have clusters, which ``se`` and ``dse`` ignore.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> stiff = soc.Gamma(variance=soc.Spline(knots=1))
    >>> table = soc.compare({"curve": fit, "constant cv": soc.fit(stats, stiff)}, stats)
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
                f"{name!r} is a fit with one draw, which cannot leave items out: compare such "
                "fits by soc.evaluate.cross_validate, on statistics with folds"
            )
    _check_same(fits)
    warn_of_clusters(fits, data, "se and dse")
    loos: dict[str, LeaveOneOut] = {}
    trust: dict[str, str] = {}
    for name, fit in fits.items():
        loo, trust[name] = left_out(name, fit, data, subset, seed, progress)
        if loo:
            loos[name] = loo
    table = elpd_table(loos)
    table = table.reindex([*table.index, *(name for name in fits if name not in loos)])
    table = table.assign(rank=np.arange(len(table)), trust=[trust[name] for name in table.index])
    doubted = [f"{name!r} ({words})" for name, words in trust.items() if words != OK]
    if doubted:
        warn_user(
            f"draws support leave-one-out less than they should: {', '.join(doubted)}; a fit that "
            "did not converge gets no figures (see fit.status.reason); where Pareto k is large, "
            "compare by soc.evaluate.held_out",
            ConvergenceWarning,
        )
    return table


def left_out(
    name: str, fit: Fit, data: Items | Statistics, subset: int, seed: int, progress: bool | None
) -> tuple[LeaveOneOut | None, str]:
    """Leave-one-out of a fit whose status is not against it, and what speaks against the draws."""
    what, unit = ("items", "item") if isinstance(data, Items) else ("statistics", "cell")
    rows = observe(fit, data, progress=progress)
    _check_totals(f"the {what} and {name!r} are", {"n_items": float(rows.n.sum())}, fit)
    doubt = doubt_of(fit.status)
    if doubt:
        return None, doubt
    if isinstance(data, Items):
        rows = rows.rows(rows.sample(subset, np.random.default_rng(seed)))
    loo = leave_one_out(fit, rows, progress, f"leave-one-out of {name}")
    large = f"{loo.doubtful:,} {unit}{'s' * (loo.doubtful > 1)} with Pareto k > {loo.good_k:.2f}"
    return loo, large if loo.doubtful else OK


def warn_of_clusters(fits: Mapping[str, Fit], data: Items | Statistics, errors: str) -> None:
    """Warn that standard errors, named by `errors`, are too small for items of clusters."""
    if clustered(data) or any(fit.widened for fit in fits.values()):
        warn_user(
            f"{errors} take items as independent, and are too small where items of one cluster "
            "are alike: soc.evaluate.cross_validate leaves out whole clusters",
            ItemsWarning,
        )


def elpd_table(loos: Mapping[str, LeaveOneOut]) -> pd.DataFrame:
    """The numbers of `arviz.compare`, which takes no weights of rows."""
    names = sorted(loos, key=lambda name: -loos[name].elpd)
    ordered = [loos[name] for name in names]
    n = ordered[0].n if ordered else np.empty(0, dtype=np.int64)
    elpds = np.reshape([loo.by_row for loo in ordered], (len(names), len(n)))
    lost = [repr(name) for name, x in zip(names, elpds, strict=True) if not np.isfinite(x).all()]
    if lost:
        raise FitError(
            f"leave-one-out of {', '.join(lost)} is undefined: draws differ so much in what they "
            "say of single items that none can stand for a fit without them; compare by "
            "soc.evaluate.cross_validate, on statistics with folds"
        )
    gain = elpds - elpds[:1]
    difference = gain @ n
    error = np.sqrt((gain - difference[:, None] / n.sum()) ** 2 @ n)
    worse = stats.norm.cdf(0.0, difference, error + 1e-12)
    worse[:1] = np.nan
    columns = {
        "rank": np.arange(len(names)),
        "elpd_diff": difference,
        "dse": error,
        "p_worse": worse,
        "p": [loo.p_loo for loo in ordered],
        "elpd": [loo.elpd for loo in ordered],
        "se": [loo.standard_error for loo in ordered],
        "weight": mixture_weights(elpds, n),
    }
    return pd.DataFrame(columns, names)


def mixture_weights(log_density: Floats, n: Ints) -> Floats:
    """Weights of the best mixture of densities (k, rows): of stacking (Yao et al. 2018)."""
    number, share = len(log_density), n / n.sum()
    if number < 2:
        return np.ones(number)
    density = np.exp(log_density - log_density.max(axis=0))

    def loss(weight: Floats) -> tuple[float, Floats]:
        mixed = np.maximum(weight @ density, 1e-300)
        return -float(share @ np.log(mixed)), -density @ (share / mixed)

    solution = optimize.minimize(
        loss,
        np.full(number, 1.0 / number),
        jac=True,
        method="SLSQP",
        bounds=[(0.0, 1.0)] * number,
        constraints={"type": "eq", "fun": lambda weight: weight.sum() - 1.0},
        options={"ftol": 1e-10, "maxiter": 500},
    )
    return np.asarray(solution.x)


# --- the same items ------------------------------------------------------------------------------


def _check_same(fits: Mapping[str, Fit]) -> None:
    """Refuse fits of different columns, or of items that differ in number or totals."""
    (reference, base), *further = fits.items()
    for name, fit in further:
        roles, base_roles = (outcome_roles(x.data.attrs) for x in (fit, base))
        if roles != base_roles or posterior_of(fit).outcome != posterior_of(base).outcome:
            raise FitError(
                f"{reference!r} and {name!r} are fits of other columns ({base_roles} and {roles}): "
                "their densities cannot be compared"
            )
        _check_totals(f"{reference!r} and {name!r} are fits", _totals(base), fit)


def _totals(fit: Fit) -> dict[str, float]:
    """Number of items and sums over them, as far as a fit keeps them."""
    groups = [fit.data[g] for g in ("constant_data", "observed_data") if g in fit.data.children]
    bins = {str(name): x.to_numpy() for group in groups for name, x in group.data_vars.items()}
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
