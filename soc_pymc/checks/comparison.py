"""Fits of different priors to the same items, compared on items or folds that are left out."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from scipy import optimize, special

from .._lib.arguments import (
    SEED,
    ConvergenceWarning,
    FitError,
    ItemsWarning,
    StatisticsError,
    Whole,
    warn_user,
)
from .._lib.arrays import Floats, Ints
from .._lib.laws import smoothed
from .._lib.reprs import Table, counted
from .._lib.work import long_work, phase
from ..data.items import Items
from ..data.statistics import STATISTICS, Statistics
from ..families.priors import Prior
from ..fits import PARETO_K, Fit, Method, Status, named_fits, other_total
from ..inference.fitting import Refits, fit_prior, refits_of
from ..posterior.averages import density_moments, follows_draws, moments_by_draws
from ..posterior.item_columns import in_chunks, select
from ..posterior.predictive import Posterior, posterior_of, posterior_under
from .findings import OK
from .observations import (
    ITEMS_OR_STATISTICS,
    Observations,
    clustered,
    curve_rows,
    observe,
    with_noise_of,
)

_CHUNK = 20_000  # rows at once
# log densities of smoothed rows, and draws
_MOST_NUMBERS = 4_000_000
_FEWEST_DRAWS = 100
# rows whose weights are Pareto-smoothed
_SMOOTHED = 2_000
_LEAST_SMOOTHED = 100
# variance of log densities over draws, below which smoothing changes nothing
_SWAY = 0.01
# weights of mixtures: nats of an item that no step gains, most steps, and shares of one
_CLOSE = 1e-9
_STEPS = 100
_HALVINGS = 30
_LARGEST_RATIO = 1e100  # of densities, whose squares are added up
# rows refitted without an item, those of the largest k, and steps to the ratio of constants
_MOST_REFITTED = 25
_BRIDGE_STEPS = 30


@dataclass(frozen=True, eq=False)
class LeftOut:
    """Rows of `n` items each, of which one is left out in turn."""

    n: Ints
    elpd_i: Floats  # (rows,): log density of an item left out
    pareto_k: Floats  # (rows,): NaN where no weight is smoothed
    p: float  # effective number of parameters
    draws: int
    refitted: int = 0  # number of rows left out by a refit

    @property
    def elpd(self) -> float:
        """Sum over all items."""
        return float(self.n @ self.elpd_i)

    @property
    def se(self) -> float:
        """Standard error of the sum."""
        return float(np.sqrt(self.n @ (self.elpd_i - self.elpd / self.n.sum()) ** 2))

    @property
    def good_k(self) -> float:
        """Largest Pareto k that these draws support."""
        return float(min(1.0 - 1.0 / np.log10(self.draws), PARETO_K))

    @property
    def doubtful(self) -> int:
        """Number of rows with a larger one."""
        return int((self.pareto_k > self.good_k).sum())

    @property
    def swaying(self) -> int:
        """Number of items whose Pareto k warns, however many draws there are."""
        return int(self.n @ (self.pareto_k > PARETO_K))

    def record(self) -> Any:
        """ArviZ's record, by item; k only of those whose weights are smoothed."""
        # which takes long to import
        from arviz_stats.utils import ELPDDataLOO

        return ELPDDataLOO(
            elpd=self.elpd,
            se=self.se,
            p=self.p,
            scale="log",
            n_samples=self.draws,
            n_data_points=int(self.n.sum()),
            good_k=self.good_k,
            warning=self.doubtful > 0,
            elpd_i=xr.DataArray(np.repeat(self.elpd_i, self.n), dims="row"),
            pareto_k=xr.DataArray(self.pareto_k[~np.isnan(self.pareto_k)], dims="row"),
        )


def leave_one_out(
    posterior: Posterior,
    items: Observations,
    title: str = "leave-one-out",
    refits: Callable[[], Refits | None] = lambda: None,
) -> LeftOut:
    """Leave every item out in turn; where the weights of draws differ, they are smoothed.

    Rows that weights cannot leave out are refitted without an item, if there are `refits`.
    """
    n = items.n
    k = np.full(len(items.n), np.nan)
    curves = posterior.curves
    by_draws = follows_draws(curves, len(n)) and curves.number * len(n) <= _MOST_NUMBERS
    moments = partial(moments_by_draws if by_draws else density_moments, posterior)
    step = curves.items_at_once if by_draws else _CHUNK
    values = in_chunks(moments, step, items.columns, title)
    full, by_row, sway = values[:3]
    number = np.clip((sway > _SWAY).sum(), _LEAST_SMOOTHED, _SMOOTHED)
    worst = np.argsort(-sway)[:number]
    if by_draws:
        density = values[3:, worst]
    else:
        most = max(_FEWEST_DRAWS, _MOST_NUMBERS // number)
        thinned = posterior_under(curves.thin(most))
        density = thinned.log_density(select(items.columns, worst))
    log_weight, k[worst] = smoothed(-density)
    by_row[worst] = special.logsumexp(log_weight + density, axis=0)
    loo = LeftOut(n, by_row, k, float(n @ (full - by_row)), len(density))
    doubtful = np.flatnonzero(k[worst] > loo.good_k)
    doubtful = doubtful[np.argsort(-k[worst[doubtful]])][:_MOST_REFITTED]
    possible = refits() if len(doubtful) else None
    if possible is None:
        return loo
    with phase(f"{title}: refits", total=len(doubtful)) as running:
        for j, row in zip(doubtful, worst[doubtful], strict=True):
            refit = possible.without(int(row), loo.good_k)
            if refit.pareto_k < k[row]:
                item = select(items.columns, np.array([row]))
                item_density = posterior_under(refit.curves).log_density(item)[:, 0]
                by_row[row] = bridged(density[:, j], item_density, refit.weight)
                k[row] = refit.pareto_k
            running.advance()
    return replace(loo, p=float(n @ (full - by_row)), refitted=len(doubtful))


@np.errstate(divide="ignore")
def bridged(with_item: Floats, without: Floats, weight: Floats) -> float:
    """Log density of an item left out, from log densities under draws with it and without it.

    It is the log ratio of both posteriors' normalising constants (Meng and Wong 1996).
    """
    sizes = np.array([len(with_item), 1.0 / (weight**2).sum()])
    log_share = np.log(sizes / sizes.sum())
    log_weight = np.log(weight)
    ratio = float(special.logsumexp(log_weight + without))
    for _ in range(_BRIDGE_STEPS):
        below = -np.logaddexp(log_share[0] + with_item, log_share[1] + ratio)
        above = without - np.logaddexp(log_share[0] + without, log_share[1] + ratio)
        mean_below = special.logsumexp(below) - np.log(len(below))
        ratio = float(special.logsumexp(log_weight + above) - mean_below)
    return ratio


@long_work
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
    fits : Mapping[str, Fit]
        Fits by name.
    data : PoissonItems, NormalItems, BinomialItems, AmountItems or Statistics
        The items that made all of them, or their statistics with joint cells, of which all items
        are left out, at the precision of the cells.
    subset : int
        Number of random items that are left out.
    seed : int
        Seed of these.
    progress : bool or None
        Whether to show progress.

    Returns
    -------
    pandas.DataFrame
        The numbers of `arviz.compare`, best first: ``elpd``, expected log predictive density in
        nats, and its standard error ``se`` over items; ``p``, the effective number of parameters;
        ``elpd_diff`` from the best and its standard error ``dse``; ``p_worse``, the probability to
        be worse than the best; ``weight`` of stacking; and ``trust``, ``"ok"`` or what speaks
        against the draws: the fit's status, then without other numbers and last, or how many items
        (or cells) have a large Pareto k. Up to 25 cells that weights cannot leave out are left out
        by refits that begin at the fit (not of priors with many groups).

    Raises
    ------
    FitError
        If there are fewer than two fits, or `data` are not the items that made all of them. A
        `ConvergenceWarning` says where ``trust`` is not ``"ok"``, an `ItemsWarning` that items have
        clusters, which ``se`` and ``dse`` ignore.

    References
    ----------
    .. [1] Vehtari, Gelman and Gabry (2017), Practical Bayesian model evaluation using
       leave-one-out cross-validation and WAIC, Statistics and Computing 27, 1413-1432.
    .. [2] Meng and Wong (1996), Simulating ratios of normalizing constants via a simple identity,
       Statistica Sinica 6, 831-860.
    .. [3] Yao, Vehtari, Simpson and Gelman (2018), Using stacking to average Bayesian predictive
       distributions, Bayesian Analysis 13, 917-1007.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> stiff = soc.Gamma(variance=soc.Spline(knots=1))
    >>> table = soc.compare({"curve": fit, "constant cv": soc.fit(stats, stiff)}, stats)
    >>> sorted(table.index)
    ['constant cv', 'curve']
    """
    data = ITEMS_OR_STATISTICS(data, "data")
    subset = Whole(1)(subset, "subset")
    seed = SEED(seed, "seed")
    fits = named_fits(fits)
    if len(fits) < 2:
        raise FitError(f"compare takes two fits or more by name, not {len(fits)}")
    _check_columns(fits)
    warn_of_clusters(fits, data, "se and dse")
    options = data, subset, seed
    results = {name: left_out(name, fit, *options) for name, fit in fits.items()}
    table = elpd_table({name: loo for name, (loo, _) in results.items() if loo})
    table = table.reindex(
        [*table.index, *(name for name in fits if name not in table.index)]
    )
    table["rank"] = np.arange(len(table))
    table["trust"] = [results[name][1] for name in table.index]
    if doubted := [
        f"{name!r} ({words})" for name, (_, words) in results.items() if words != OK
    ]:
        warn_user(
            f"draws support leave-one-out less than they should: {', '.join(doubted)}; a fit that "
            "did not converge gets no figures (see fit.status.reason); where Pareto k is large, "
            "compare by soc.evaluate.held_out or cross_validate",
            ConvergenceWarning,
        )
    return Table(table)


def left_out(
    name: str,
    fit: Fit,
    data: Items | Statistics,
    subset: int,
    seed: int,
    refit: bool = True,
) -> tuple[LeftOut | None, str]:
    """Leave-one-out of a fit whose status is not against it, and what speaks against the draws.

    Cells that weights of draws cannot leave out are fitted again without an item, if `refit`.
    """
    what, unit = (
        ("items", "item") if isinstance(data, Items) else ("statistics", "cell")
    )
    data = with_noise_of(fit.curves, data)
    rows = observe(fit.curves, data)
    if total := other_total(fit, rows.columns, rows.n):
        raise FitError(
            f"the {what} and {name!r} are of different items ({total}): leaving items out compares "
            "fits to the same ones"
        )
    if doubt := doubt_of(fit.status):
        return None, doubt
    if isinstance(data, Items):
        _, rows = rows.sample(subset, np.random.default_rng(seed))
    title = f"leave-one-out of {name}"
    options: dict[str, Any] = {}
    if refit and isinstance(data, Statistics):
        options["refits"] = partial(refits_of, fit, data)
    loo = leave_one_out(posterior_of(fit), rows, title, **options)
    if not np.isfinite(loo.elpd_i).all():
        return None, "draws differ too much in what they say of single items"
    large = f"{counted(loo.doubtful, unit)} with Pareto k > {loo.good_k:.2f}"
    return loo, large if loo.doubtful else OK


def doubt_of(status: Status) -> str:
    """Words of a fit's status against its draws, or nothing."""
    if status.pareto_k is not None and not status.pareto_k <= PARETO_K:
        return f"Pareto k {status.pareto_k:.2f} of the fit"
    return "" if status.converged else "not converged"


def warn_of_clusters(
    fits: Mapping[str, Fit], data: Items | Statistics, errors: str
) -> None:
    """Warn that standard errors, named by `errors`, are too small for items of clusters."""
    if clustered(data) or any(fit.widened for fit in fits.values()):
        warn_user(
            f"{errors} take items as independent, and are too small where items of one cluster "
            "are alike: soc.evaluate.cross_validate leaves out whole clusters",
            ItemsWarning,
        )


def elpd_table(loos: Mapping[str, LeftOut]) -> pd.DataFrame:
    """The numbers of `arviz.compare`, which takes no weights of rows."""
    names = sorted(loos, key=lambda name: -loos[name].elpd)
    records = [loos[name] for name in names]
    n = records[0].n if records else np.empty(0, dtype=np.int64)
    elpds = np.reshape([loo.elpd_i for loo in records], (len(names), len(n)))
    gain = elpds - elpds[:1]
    difference = gain @ n
    error = np.sqrt((gain - difference[:, None] / n.sum()) ** 2 @ n)
    worse = special.ndtr(-difference / (error + 1e-12))
    worse[:1] = np.nan
    columns = {"rank": np.arange(len(names)), "elpd_diff": difference, "dse": error}
    columns["p_worse"] = worse
    columns |= {x: [getattr(loo, x) for loo in records] for x in ("p", "elpd", "se")}
    return pd.DataFrame(
        columns | {"weight": mixture_weights(elpds, n) if names else []}, names
    )


@np.errstate(divide="ignore")
def mixture_weights(log_density: Floats, n: Ints) -> Floats:
    """Weights of the best mixture of densities (k, rows): of stacking (Yao et al. 2018)."""
    density = np.exp(log_density - log_density.max(axis=0))
    share = n / n.sum()
    weight = np.full(len(density), 1.0 / len(density))

    def score(weight: Floats) -> float:
        return float(share @ np.log(weight @ density))

    for _ in range(_STEPS):
        ratio = np.minimum(density / (weight @ density), _LARGEST_RATIO)
        slope = ratio @ share
        if slope.max() - 1.0 < _CLOSE:  # nothing gains more than this
            break
        # to the best weights of the concave score to second order; where outliers make that order
        # useless, to the component that gains most
        goals = (
            _second_order(ratio, share, slope),
            np.arange(len(slope)) == slope.argmax(),
        )
        value = score(weight)
        steps = (
            weight + factor * (goal - weight)
            for goal in goals
            for factor in 0.5 ** np.arange(_HALVINGS)
        )
        tried = next((step for step in steps if score(step) > value), None)
        if tried is None:
            break
        weight = tried
    return weight


def _second_order(ratio: Floats, share: Floats, slope: Floats) -> Floats:
    """Best weights >= 0 of sum 1, of a quadratic score; NaN where that has none."""
    bend = (ratio * share) @ ratio.T
    root = np.linalg.cholesky(bend + np.diag(_CLOSE * bend.diagonal() + 1e-300))
    goal = np.linalg.solve(root, 2.0 * slope - 1.0)
    try:
        best = optimize.nnls(root.T, goal)[0]
    except RuntimeError:  # it may go in circles where densities hardly differ
        best = np.zeros_like(goal)
    total = best.sum()
    return best / total if total > 0 else np.full_like(best, np.nan)


@long_work
def cross_validate(
    stats: Statistics,
    prior: Prior | None = None,
    method: Method | None = None,
    *,
    progress: bool | None = None,
) -> pd.DataFrame:
    """Return the log predictive density of every fold under a fit to the others.

    Parameters
    ----------
    stats : Statistics
        Statistics with folds.
    prior : Gamma, Normal, Beta, InverseGamma or None
        As in `soc.fit`.
    method : VI, NUTS, FiveSteps or None
        As in `soc.fit`.
    progress : bool or None
        Whether to show progress.

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
    >>> list(soc.evaluate.cross_validate(soc.summarize(items, folds=2)).columns)
    ['items', 'elpd', 'per_item', 'converged', 'trust']
    """
    stats = STATISTICS(stats, "stats")

    if stats.folds < 2:
        raise StatisticsError(
            "the statistics have no folds: summarize the items with folds=10, or with fold="
        )
    reads_joint = "noise_df=" if stats.noise_df else ""
    if prior is not None and (not hasattr(prior, "mixture") or prior.reads_joint):
        reads_joint = f"soc.{type(prior).__name__}"
    if reads_joint:
        raise FitError(
            f"{reads_joint} reads joint cells, which have no folds: compare such fits "
            "by leave-one-out, soc.compare({...}, statistics)"
        )
    table = {}
    for fold in range(stats.folds):
        if n := (fold_statistics := stats.of_fold(fold)).n_items:
            training = fit_prior(stats.without_fold(fold), prior, method)
            rows = curve_rows(training.curves, fold_statistics)
            elpd = float(
                rows.sums.values(rows.location[None], rows.dispersion[None]).sum()
            )
            row = {"items": n, "elpd": elpd, "per_item": elpd / n}
            trust = doubt_of(training.status) or OK
            table[fold] = row | {"converged": training.status.converged, "trust": trust}
    return pd.DataFrame.from_dict(table, "index").rename_axis("fold")


def _check_columns(fits: Mapping[str, Fit]) -> None:
    (reference, base), *_ = fits.items()
    for name, fit in fits.items():
        if fit.one_draw:
            raise FitError(
                f"{name!r} is a fit with one draw, which cannot leave items out: compare such "
                "fits by soc.evaluate.cross_validate, on statistics with folds"
            )
        roles, base_roles = (x.curves.roles.outcomes for x in (fit, base))
        if roles != base_roles:
            raise FitError(
                f"{reference!r} and {name!r} are fits of other columns ({base_roles} and {roles}): "
                "their densities cannot be compared"
            )
