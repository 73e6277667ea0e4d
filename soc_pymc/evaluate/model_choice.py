"""Choosing a fit from statistics alone: by folds, and by how many bins there are."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from .._lib.arguments import A, Whole, checked, shown, switch
from .._lib.arrays import Floats
from .._lib.errors import FitError, StatisticsError
from .._lib.progress import phase
from .._lib.threads import one_blas_thread
from .._model.rows import rows_of
from ..checks.trust import OK, words_of
from ..data.items import Items
from ..data.statistics import Statistics, coarsened, equal_edges
from ..data.summaries import summarize
from ..families.family import family_of_kind, reads_joint
from ..families.outcomes import Outcome
from ..families.priors import SinglePrior
from ..inference.methods import NUTS, VI, FiveSteps
from ..inference.results import Fit
from ..posterior.curves import curves_at
from ..posterior.item_columns import bin_scores_of
from ..posterior.predictive import posterior_of

_BINS = Whole(1, 1_000_000)
_POINTS = 100  # scores at which curves are compared: even shares of the items
_ENDS = 0.02  # share of the items left out at either end
_NO_VARIANCE = 1e-4  # of the median bin's variance: a bin that says there is none
_TO_SD = 1.4826  # median absolute value of a normal variable to its sd


# --- folds ---------------------------------------------------------------------------------------


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
    _check_prior(prior)
    rows = []
    for fold in range(stats.folds):
        if not (held := stats.of_fold(fold)).n_items:
            continue
        others = fit(stats.without_fold(fold), prior, method, progress=progress)
        elpd = _log_density(others, held)
        trust = "; ".join(words for _, words in words_of(others.status)) or OK
        per_item = elpd / held.n_items
        rows.append((fold, held.n_items, elpd, per_item, others.status.converged, trust))
    columns = ["fold", "items", "elpd", "per_item", "converged", "trust"]
    return pd.DataFrame(rows, columns=columns).set_index("fold")


def _check_prior(prior: Any) -> None:
    """Refuse priors that the tables with folds cannot serve."""
    if prior is None or not (not hasattr(prior, "mixture") or reads_joint(prior)):
        return
    name = type(prior).__name__
    if not getattr(prior, "mixture", True):
        name += "(exposure=)" if prior.exposure else "(zero=True)"
    raise FitError(
        f"soc.{name} reads joint cells, which have no folds: "
        "compare such fits by leave-one-out, soc.compare({...}, statistics)"
    )


def _log_density(fit: Fit, stats: Statistics) -> float:
    """Log density of all outcomes at the posterior means of the curves, of every group's bins."""
    bins = bin_scores_of(fit, posterior_of(fit), stats)
    rows, data = rows_of(stats, family_of_kind(stats.kind), grouped=bool(stats.groups))
    at = bins.place(rows.group, rows.bin)
    labels = np.array(stats.groups or [None], dtype=object)
    curves = curves_at(fit, bins.score, labels[bins.group], None)
    first, second = (draws.mean(axis=0)[at][None] for draws in curves)
    data = data.with_spread(bins.spread[at])
    return float(data.value_and_gradient(first, second, np.arange(rows.number))[0].sum())


# --- bins ----------------------------------------------------------------------------------------


@checked(bayes=switch)
def compare_bins(
    items: Items | Statistics,
    bins: Sequence[int] = (20, 50, 100, 200),
    prior: SinglePrior | None = None,
    *,
    method: VI | NUTS | None = None,
    bayes: bool = True,
    progress: bool | None = None,
) -> pd.DataFrame:
    """Fits in few bins and in many: how wide bins are, how noisy their fits, what curves do.

    Too few bins are wide: E(theta | t) varies within them, which a bin's own fit takes for variance
    of theta. Too many hold so little that a bin's fit is mostly noise.

    Parameters
    ----------
    items
        Items, read once into the most bins, or statistics in at least as many.
    bins
        Numbers of bins of equally many items.
    prior, method
        Of the fits, and of the Bayesian ones; None is that of the kind of items, and ``soc.VI()``.
    bayes
        Whether to make Bayesian fits too: some seconds for each number of bins.
    progress
        Whether to show progress.

    Returns
    -------
    pandas.DataFrame
        A row for each number of bins that came out (fewer where scores are tied), in rising order:

        - ``items``, ``events``: of the median bin (events of counts alone), ``least_events``;
        - ``spread``, ``most_spread``: sd of log t (of t, where scores are not on the log scale)
          within the median and the widest bin;
        - ``hidden``: variance of E(theta | t) within bins as a share of E Var(theta | t): what the
          bins' own fits have too much. Above a few percent there are too few bins;
        - ``mean_noise``, ``variance_noise``: typical error of a bin's own fit of log E(theta | t)
          (of E in sds of theta, for values) and of log Var(theta | t); above 1 it is more than
          smoothed curves can bear, and NaN where fewer than three bins found variance;
          ``no_variance``: share of the bins that find none;
        - ``five_steps_mean``, ``five_steps_variance``: root mean square over items of how far the
          smoothed curves, by ``FiveSteps(moments="plain")``, are from those of the most bins, in
          the same units, without 2% of the items at either end;
        - ``bayes_mean``, ``bayes_variance``: the same of the Bayesian fits, and ``bayes_mean_sds``,
          ``bayes_variance_sds`` in posterior sds.

    Raises
    ------
    FitError
        If `bins` is empty, the prior is a mixture or has a term in exposure, or `method` is given
        and `bayes` is not.
    StatisticsError
        If `bins` has a number that is no number of bins.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> table = soc.evaluate.compare_bins(items, (5, 20), bayes=False)
    >>> bool(table.loc[5, "hidden"] > table.loc[20, "hidden"])
    True
    """
    from ..inference.fitting import fit

    _check(bins, prior, method, bayes)
    finest = items
    if not isinstance(items, Statistics):
        finest = summarize(
            items, bins=max(bins), joint=False, folds=0, on_leakage="ignore", progress=False
        )
    assert isinstance(finest, Statistics)  # summarize refused the rest
    # tied scores may leave fewer bins than asked for
    numbers = sorted({min(int(number), finest.bins) for number in bins})
    parts = {}
    for number in numbers:
        edges = equal_edges(finest, number)
        parts[len(edges) + 1] = coarsened(finest, edges)
    # bins of a few items, which are among those compared, say next to nothing of log theta
    methods: dict[str, Any] = {"five_steps": FiveSteps(moments="plain")}
    if bayes:
        methods["bayes"] = method or VI()
    curves: dict[str, dict[int, Mapping[str, Floats]]] = {name: {} for name in methods}
    rows: dict[int, dict[str, float]] = {}
    with phase("bins", total=len(parts), unit="numbers of bins", enabled=progress) as shown:
        for number in sorted(parts, reverse=True):
            part = parts[number]
            fits = {name: fit(part, prior, own, progress=False) for name, own in methods.items()}
            own_fits = fit(part, prior, FiveSteps(smooth=False), progress=False)
            if not rows:
                score, best = _scores(fits["five_steps"]), fits["five_steps"]
            rows[number] = _row(part, best, own_fits)
            for name, made in fits.items():
                curves[name][number] = _curves(made, score)
            shown.advance()
    most = max(parts)
    for number in parts:
        for name in methods:
            rows[number] |= _changes(name, curves[name][number], curves[name][most])
    table = pd.DataFrame.from_dict(rows, orient="index").sort_index()
    table.index.name = "bins"
    return table


def _check(bins: Sequence[int], prior: Any, method: object, bayes: bool) -> None:
    if not isinstance(bins, Sequence | np.ndarray) or isinstance(bins, str | bytes):
        raise FitError(f"bins={shown(bins)} must be a list of numbers of bins, such as (20, 50)")
    for number in bins:
        _BINS(number, "a number of bins")
    if not len(bins):
        raise FitError("bins= is empty: give some numbers of bins, such as (20, 50, 100)")
    if getattr(prior, "mixture", prior is not None):
        raise FitError(
            f"soc.{type(prior).__name__} reads joint cells, which cannot be put together: choose "
            "bins by soc.Gamma or soc.Normal, whose curves are as wide"
        )
    for term in ("exposure", "zero"):
        if getattr(prior, term, None):
            raise FitError(f"{term}= reads joint cells, which bins put together do not have")
    if method is not None and not bayes:
        raise FitError("bayes=False makes no fit by method=: leave one of them out")


def _row(own: Statistics, best: Fit, fits: Fit) -> dict[str, float]:
    """Width of the bins and noise of their own fits."""
    kept, scale = best.data["constant_data"], best.axis("mean").local
    data = fits.data["constant_data"]
    spread = data[scale.width].to_numpy()
    score, n = data["score"].to_numpy(), data["n_items"].to_numpy()
    row = {"items": float(np.median(n))}
    posterior = posterior_of(best)
    if posterior.outcome.whole:
        events = own.data["sum_y"].to_numpy()[own.data["n"].to_numpy() > 0]
        row |= {"events": float(np.median(events)), "least_events": float(events.min())}
    row |= {"spread": float(np.median(spread)), "most_spread": float(spread.max())}
    both = (scale.score(scale.position(score) + x) for x in (-spread, spread))
    limits = kept["score_min"].min().item(), kept["score_max"].max().item()
    ends = [posterior.curves(np.clip(x, *limits))["mean"][0] for x in both]
    hidden = (n * (ends[1] - ends[0]) ** 2 / 4).sum()
    row["hidden"] = float(hidden / (n * posterior.curves(score)["variance"][0]).sum())
    return row | _noise(fits, posterior.outcome)


def _noise(fits: Fit, outcome: Outcome) -> dict[str, float]:
    """Errors of the bins' own fits, from second differences between neighbours."""
    per_bin = fits.data["per_bin"]
    mean, variance = (per_bin[name].to_numpy() for name in ("mean", "variance"))
    some = variance > _NO_VARIANCE * np.nanmedian(variance)
    mean, variance = mean[some], variance[some]
    curves = {"mean": outcome.forms.level(mean, variance), "variance": np.log(variance)}
    found = {}
    for name, values in curves.items():
        rough = np.diff(values, 2)
        sd = _TO_SD * float(np.median(np.abs(rough))) / np.sqrt(6.0) if len(rough) else np.nan
        found[f"{name}_noise"] = sd
    return found | {"no_variance": float(1.0 - some.mean())}


def _scores(best: Fit) -> Floats:
    """Scores at even shares of the items, of the finest bins."""
    kept = best.data["constant_data"]
    n = kept["n_items"].to_numpy()
    share = (np.cumsum(n) - 0.5 * n) / n.sum()
    at = np.linspace(_ENDS, 1.0 - _ENDS, _POINTS)
    axis = best.axis("mean")
    return np.asarray(axis.inverse(np.interp(at, share, axis(kept["score"].to_numpy()))))


def _curves(made: Fit, score: Floats) -> Mapping[str, Floats]:
    """Averages over draws of both curves at scores, and their sds."""
    curves = posterior_of(made).curves(score)
    first = curves["log_mean"] if "log_mean" in curves else curves["mean"]
    unit = 1.0 if "log_mean" in curves else np.exp(0.5 * curves["log_variance"].mean(axis=0))
    second = curves["log_variance"]
    return {
        "mean": first.mean(axis=0),
        "mean_sd": first.std(axis=0),
        "unit": np.broadcast_to(unit, score.shape),
        "variance": second.mean(axis=0),
        "variance_sd": second.std(axis=0),
    }


def _changes(name: str, own: Mapping[str, Floats], most: Mapping[str, Floats]) -> dict[str, float]:
    """Root mean squares of how far curves are from those of the most bins."""
    units = {"mean": most["unit"], "variance": np.ones_like(most["unit"])}
    away = {curve: own[curve] - most[curve] for curve in units}
    found = {f"{name}_{curve}": x / units[curve] for curve, x in away.items()}
    if name == "bayes":
        found |= {f"{name}_{curve}_sds": x / most[f"{curve}_sd"] for curve, x in away.items()}
    return {column: float(np.sqrt(np.mean(x**2))) for column, x in found.items()}
