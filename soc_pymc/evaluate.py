"""Evaluation on exposure held out from every item, as in the paper's Section 5.1."""

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import special

from .errors import FitError, ItemsError, StatisticsError
from .items import PoissonItems
from .laws import curves_at, items_at_once, law_bins, law_of
from .methods import NUTS, VI
from .nodes import is_plain
from .outcomes import outcome_of
from .posteriors import item_posteriors
from .priors import Gamma, Normal
from .results import Fit
from .statistics import Statistics
from .tables import batches, scan

__all__ = ["Split", "cross_validate", "held_out", "poisson_log_likelihood", "split_items", "thin"]

Floats = NDArray[np.float64]

_GRID = 2000  # scores at which E(theta|t) is evaluated; it is smooth between them


@dataclass(frozen=True)
class Split:
    """Items whose exposure was divided in two; the same rows, in the same order.

    Attributes
    ----------
    train, test
        Items over pandas tables with columns score, count and exposure, and group where they have
        one.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> items = soc.PoissonItems(
    ...     soc.simulation.s1(100), score="score", count="count", exposure="exposure")
    >>> split = soc.evaluate.split_items(items, 0.5)
    >>> len(split.train.source) == len(split.test.source)
    True
    """

    train: PoissonItems
    test: PoissonItems


def thin(
    count: ArrayLike, exposure: ArrayLike, fraction: float = 0.1, seed: int = 0
) -> tuple[Floats, Floats]:
    """Divide counts and exposures at random; return the part held out.

    Where exposures are whole numbers and no count exceeds its exposure, trials are dealt out: each
    goes to the held-out part with probability `fraction`, and carries its event with it (binomial
    exposure, hypergeometric count). Elsewhere the exposure is divided in proportion and each event
    goes with probability `fraction`: the parts of a Poisson count are then independent Poisson.

    Parameters
    ----------
    count, exposure
        Shape (n,).
    fraction
        Share held out, between 0 and 1.
    seed
        Seed of the random numbers.

    Returns
    -------
    tuple of numpy.ndarray
        Counts and exposures held out.

    Raises
    ------
    FitError
        If `fraction` is not between 0 and 1.

    Examples
    --------
    >>> count, exposure = thin([3, 0], [100, 10], seed=1)
    >>> bool((count <= [3, 0]).all() and (exposure <= [100, 10]).all())
    True
    """
    if not 0 < fraction < 1:
        raise FitError(f"fraction={fraction} must be between 0 and 1")
    y, n = np.asarray(count, dtype=float), np.asarray(exposure, dtype=float)
    rng = np.random.default_rng(seed)
    trials = (n == np.floor(n)).all() and (y <= n).all() and n.max(initial=0) < 1e9
    if trials:
        whole, events = n.astype(np.int64), y.astype(np.int64)
        held = rng.binomial(whole, fraction)
        return rng.hypergeometric(events, whole - events, held).astype(float), held.astype(float)
    return rng.binomial(y.astype(np.int64), fraction).astype(float), fraction * n


def split_items(items: PoissonItems, fraction: float = 0.1, seed: int = 0) -> Split:
    """Hold out part of every item's exposure, by `thin`.

    Parameters
    ----------
    items
        Items; all of them are read into memory.
    fraction, seed
        Of `thin`.

    Returns
    -------
    Split
        Training and test items.

    Raises
    ------
    ItemsError
        If the items are not valid, or have no exposure to divide.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> frame = soc.simulation.s1(100)
    >>> items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    >>> parts = split_items(items, fraction=0.5)
    >>> both = parts.train.source["count"] + parts.test.source["count"]
    >>> bool((both == frame["count"]).all())
    True
    """
    if "exposure" not in items.roles:
        raise ItemsError(
            "only counts have an exposure that can be divided: evaluate fits to values on other "
            "items (soc.check), by soc.evaluate.cross_validate, or by soc.compare"
        )
    scanned = scan(items, progress=False)
    frame = pd.concat([b.to_pandas() for b in batches(scanned.table)], ignore_index=True)
    count, exposure = thin(frame["count"], frame["exposure"], fraction, seed)
    parts = {
        "train": frame.assign(count=frame["count"] - count, exposure=frame["exposure"] - exposure),
        "test": frame.assign(count=count, exposure=exposure),
    }
    roles = {role: role for role in ("score", "count", "exposure", "group") if role in items.roles}
    return Split(**{name: PoissonItems(part, **roles) for name, part in parts.items()})


def poisson_log_likelihood(count: ArrayLike, expected: ArrayLike) -> Floats:
    """Log probability of Poisson counts with the given expected counts, item by item.

    Examples
    --------
    >>> poisson_log_likelihood([0, 1], [1.0, 1.0])
    array([-1., -1.])
    """
    y, mu = np.asarray(count, dtype=float), np.asarray(expected, dtype=float)
    return np.asarray(special.xlogy(y, mu) - mu - special.gammaln(y + 1.0))


def held_out(fit: Fit, split: Split) -> pd.DataFrame:
    """Log-likelihood of held-out counts under t, E(theta|t) and E(theta|t,y), as in Section 5.1.

    Parameters
    ----------
    fit
        A fit to statistics of ``split.train``.
    split
        From `split_items`.

    Returns
    -------
    pandas.DataFrame
        Rows ``score`` (t itself, which must be a rate), ``E(theta|t)`` and ``E(theta|t,y)``;
        columns ``log_likelihood`` in nats, ``gain`` over the score, its ``standard_error`` over
        items, and ``gain_percent`` of the score's log-likelihood.

    Raises
    ------
    ItemsError
        If scores are negative or the two parts do not have the same rows.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> items = soc.PoissonItems(
    ...     soc.simulation.s1(2000), score="score", count="count", exposure="exposure")
    >>> split = soc.evaluate.split_items(items)
    >>> fit = soc.fit(soc.summarize(split.train, progress=False), progress=False)
    >>> list(soc.evaluate.held_out(fit, split).columns)
    ['log_likelihood', 'gain', 'standard_error', 'gain_percent']
    """
    train, test = split.train.source, split.test.source
    score = train["score"].to_numpy(dtype=float)
    if len(train) != len(test) or not np.array_equal(score, test["score"].to_numpy(dtype=float)):
        raise ItemsError("the two parts of the split do not have the same rows: use split_items")
    if (score < 0).any():
        raise ItemsError(
            f"column 'score': {int((score < 0).sum())} of {len(score):,} rows are negative, so "
            "that the score is no rate to compare with"
        )
    scored = item_posteriors(fit, split.train, quantiles=(), draws="representative", progress=False)
    rates = {
        "score": score,
        "E(theta|t)": _mean_curve(fit, split.train),
        "E(theta|t,y)": scored["theta_mean"].to_numpy(),
    }
    count, exposure = test["count"].to_numpy(), test["exposure"].to_numpy()
    likelihood = {k: poisson_log_likelihood(count, exposure * r) for k, r in rates.items()}
    base = likelihood["score"]
    gains = {k: v - base for k, v in likelihood.items()}
    table = pd.DataFrame(
        {
            "log_likelihood": {k: v.sum() for k, v in likelihood.items()},
            "gain": {k: v.sum() for k, v in gains.items()},
            "standard_error": {k: v.std() * np.sqrt(len(v)) for k, v in gains.items()},
        }
    )
    table["gain_percent"] = 100 * table["gain"] / abs(base.sum())
    return table


def cross_validate(
    stats: Statistics,
    prior: Gamma | Normal | None = None,
    method: VI | NUTS | None = None,
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
    from .inference import fit

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
    bins, outcome = law_bins(fit, law_of(fit), stats), outcome_of(stats)
    rows, data = outcome.rows(stats, bool(stats.groups), False)
    at = bins.place(rows.group, rows.bin)
    labels = np.array(stats.groups or [None], dtype=object)
    curves = curves_at(fit, bins.score, labels[bins.group], None)
    first, second = (draws.mean(axis=0)[at][None] for draws in curves)
    data = replace(data, spread=bins.spread[at])
    return float(outcome.value(first, second, np.arange(rows.number), *data.arrays)[0].sum())


def _mean_curve(fit: Fit, items: PoissonItems) -> Floats:
    """Posterior mean of E(theta|t) at items of a pandas table."""
    law, source = law_of(fit), items.source
    score = source[items.score].to_numpy(dtype=float)
    if is_plain(fit):  # from a fine grid on the mean's axis
        axis = fit.axis("mean")
        position = axis(score)
        grid = np.unique(np.quantile(position, np.linspace(0, 1, _GRID)))
        mean = law.curves(axis.inverse(grid))["mean"].mean(axis=0)
        return np.asarray(np.exp(np.interp(position, grid, np.log(mean))))
    exposure = source[items.exposure].to_numpy(dtype=float)
    group = source[items.group].to_numpy(dtype=object) if items.group else None
    step, found = items_at_once(fit), np.empty(len(score))
    for start in range(0, len(score), step):
        part = slice(start, start + step)
        own = None if group is None else group[part]
        found[part] = law.curves(score[part], own, exposure[part])["mean"].mean(axis=0)
    return found
