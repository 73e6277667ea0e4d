"""Fits of different priors to the same items, compared by leave-one-out."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from scipy import optimize, stats

from .._lib.arguments import PROGRESS, SEED, A, Whole, checked
from .._lib.arrays import Floats, Ints
from .._lib.errors import ConvergenceWarning, FitError, ItemsWarning, warn_user
from .._lib.threads import one_blas_thread
from ..data.items import Items
from ..data.statistics import Statistics
from ..inference.results import Fit, outcome_roles
from ..posterior.predictive import posterior_of
from .leave_one_out import LeaveOneOut, doubt_of, leave_one_out
from .observations import ITEMS_OR_STATISTICS, clustered, observe
from .results import OK

_TOTALS = ("n_items", "exposure", "count")
_NOISE = "noise_sd"  # noise of a bin's typical item: its square adds up
_SAME = 1e-6  # relative difference of totals of the same items in other bins


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
    """Weights of the mixture of densities (k, rows) that fits `n` items of each row best.

    Of fits left-one-out they are those of stacking (Yao et al. 2018).
    """
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
