"""Predictions of held-out outcomes: of folds, or of a part of every item's outcome."""

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from scipy.optimize import isotonic_regression

from .._lib.arguments import PROBABILITY, SEED, A, Whole, checked
from .._lib.arrays import Floats
from .._lib.errors import FitError, ItemsError, StatisticsError
from .._lib.progress import phase
from .._lib.threads import one_blas_thread
from ..checks.comparison import doubt_of, warn_of_clusters
from ..checks.observations import curve_rows, in_batches
from ..checks.pit import ALL, LEAST, equal_parts, large_sizes, pit_findings, slice_pits
from ..checks.results import OK, SIDES, Result, result_table, with_verdicts
from ..data.groups import arguments_of, is_group
from ..data.items import Items, check_outcomes
from ..data.sources import batches
from ..data.statistics import Statistics
from ..data.validation import scan
from ..families.family import reads_joint
from ..families.outcomes import OUTCOMES, Outcome
from ..families.priors import Prior
from ..families.scales import LINEAR, LOG
from ..inference.methods import NUTS, VI, FiveSteps
from ..inference.results import Fit, named_fits
from ..posterior.curves import warn_of_extrapolation
from ..posterior.item_columns import Columns, frame_columns
from ..posterior.predictive import posterior_of

_CHUNK = 100_000  # items whose predictive distribution is evaluated between reports of progress
_EXPOSED = 25.0  # exposure in the test part that says something of an item (the paper's)
_KNOTS = 6  # knots of the spline, at weighted quantiles of the scores
_RIDGE = 0.01  # precision of the spline's coefficients, so that they exist without events too


# --- folds of statistics -------------------------------------------------------------------------


@checked(stats=A(Statistics, "statistics with folds: soc.summarize(items, folds=10)"))
@one_blas_thread
def cross_validate(
    stats: Statistics,
    prior: Prior | None = None,
    method: VI | NUTS | FiveSteps | None = None,
    *,
    progress: bool | None = None,
) -> pd.DataFrame:
    """Return the log predictive density of every fold under a fit to the others.

    Parameters
    ----------
    stats, prior, method, progress
        Statistics with folds; and as in `soc.fit`.

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
            row = {"items": n, "elpd": elpd, "per_item": elpd / n, "converged": status.converged}
            table[fold] = row | {"trust": doubt_of(status) or OK}
    return pd.DataFrame.from_dict(table, "index").rename_axis("fold")


# --- parts of every item's outcome ---------------------------------------------------------------


@dataclass(frozen=True)
class Split:
    """Items whose outcomes were divided in two, with columns named by role in the same order."""

    train: Items
    test: Items


def _stream(seed: int, purpose: str) -> np.random.Generator:
    """Return independent random numbers for each purpose, from one seed."""
    return np.random.default_rng([seed, zlib.crc32(purpose.encode())])


@checked(fraction=PROBABILITY, seed=SEED)
def split_items(items: Items, fraction: float = 0.1, seed: int = 0) -> Split:
    """Hold out part of every item's outcome, so that both parts are independent given theta.

    Each event of a Poisson count is held out with probability `fraction`, and so is that share of
    the exposure. Of a value y the part held out is y + sqrt((1 - f) / f) s e with e standard
    Normal, of noise sd s / sqrt(f); the rest, (y - f part) / (1 - f), has noise sd s / sqrt(1 - f)
    (Neufeld, Dharamshi, Gao and Witten 2024). Trials are dealt out with their successes.

    Parameters
    ----------
    items, fraction, seed
        Items, which are read into memory; the share of every outcome's information that is held
        out, between 0 and 1; and the seed of the draws.

    Returns
    -------
    Split
        ``train`` and ``test``: items over pandas tables with the same rows in the same order.

    Raises
    ------
    ItemsError, FitError
        If the items are not valid, or `fraction` is not between 0 and 1.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> parts = soc.evaluate.split_items(items, fraction=0.5)
    >>> both = parts.train.source["count"] + parts.test.source["count"]
    >>> bool((both == items.source["count"]).all())
    True
    """
    frame = read_frame(items)
    outcome = OUTCOMES[items.kind]
    names = outcome.observed, outcome.size
    y, size = (frame[name].to_numpy(dtype=float) for name in names)
    thinned = outcome.forms.thinned(y, size, fraction, _stream(seed, "thinning"))
    remaining = outcome.forms.remainder(y, size, thinned, fraction)
    columns = ("score", "cluster", *names)
    roles = arguments_of({r: r for r in items.roles if r in columns or is_group(r)})
    parts = (frame.assign(**dict(zip(names, part, strict=True))) for part in (remaining, thinned))
    return Split(*(type(items)(part, **roles) for part in parts))


def read_frame(items: Items) -> pd.DataFrame:
    """Return all items as a validated pandas table with columns named by role, without ids."""
    check_outcomes(items)
    _, table = scan(replace(items, id=None, fold=None, date=None), progress=False)
    return pd.concat([batch.to_pandas() for batch in batches(table)], ignore_index=True)


@checked(split=A(Split, "what soc.evaluate.split_items(items) returns"), bins=Whole(1), seed=SEED)
def held_out(
    fits: Fit | Mapping[str, Fit],
    split: Split,
    *,
    bins: int = 20,
    seed: int = 0,
    progress: bool | None = None,
) -> Result:
    """Judge t, first-order baselines and fits by outcomes held out from every item (Section 5.1).

    Point estimates are judged by the log-likelihood of the held-out part, posteriors by the PIT of
    the held-out outcome in its predictive distribution given t and the item's training outcome.

    Parameters
    ----------
    fits, split, bins, seed, progress
        A fit to statistics of ``split.train``, or several by name; what `split_items` returned;
        bins of the score, with equal numbers of items; seed of the randomised PIT; and whether to
        show progress.

    Returns
    -------
    Result
        Its ``table`` has the gain of each estimator (a constant, isotonic regression, Platt scaling
        and a spline, and the fits' posterior means) over t, or over the constant where t is not an
        estimate of theta, over all items and in each bin: in percent of that one's log-likelihood
        (negative, or 0 where there are held-out events), of values of the squared error in noise
        sds, with a 90% interval over items. And for each fit ``PIT``, of all items and, of counts,
        of those with an exposure of at least 25 in the test part. ``data`` has ``gain``, by
        estimator and bin (-1 being all items), and ``pit``, ECDFs by fit and slice.

    Raises
    ------
    ItemsError, FitError
        If the two parts do not have the same rows, or are not of the fits' kind.

    Warns
    -----
    ItemsWarning
        If scores lie far outside of those that a fit saw, or items have clusters.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> split = soc.evaluate.split_items(items)
    >>> fit = soc.fit(soc.summarize(split.train))
    >>> found = soc.evaluate.held_out({"Gamma": fit}, split, bins=5)
    >>> found.table["what"].unique()[-2:].tolist()
    ['% gain of Gamma: E(theta | t, y)', 'PIT of Gamma']
    """
    by_name, outcome = named_fits(fits, "fit"), OUTCOMES[split.train.kind]
    train, test = (read_frame(part) for part in (split.train, split.test))
    score = train["score"].to_numpy(dtype=float)
    if not np.array_equal(score, test["score"].to_numpy(dtype=float)):
        raise ItemsError("the two parts of the split do not have the same rows: use split_items")
    warn_of_clusters(by_name, split.test, "standard errors")
    wrong = outcome.forms.wrong_scores(score, test[outcome.observed].to_numpy()).any()
    estimates = {} if wrong else {"t": score}  # gains are over the first
    with phase("baselines", enabled=progress):
        estimates |= {name: fit(score) for name, fit in fit_baselines(train, outcome).items()}
    base = next(iter(estimates))
    pits, findings = {}, []
    single = isinstance(fits, Fit)
    for name, fit in by_name.items():
        means, pits[name] = _judged(fit, name, split, seed, progress)
        prefix = "" if single else f"{name}: "
        estimates |= {prefix + title: mean for title, mean in means.items()}
        findings += pit_findings(pits[name], "PIT" if single else f"PIT of {name}")
    gains = _gains(estimates, test.assign(bin=equal_parts(score, bins)), outcome)
    rows = gains.isel(estimator=slice(1, None)).to_dataframe().reset_index()
    error, overall = SIDES * rows["gain_percent_se"], rows["bin"] < 0
    rows["what"] = "% gain of " + rows["estimator"]
    rows["where"] = np.where(overall, ALL, [f"score {t:.4g}" for t in rows["score"]])
    rows["n"], rows["value"] = rows["items"], rows["gain_percent"]
    rows["low"], rows["high"] = rows["value"] - error, rows["value"] + error
    table = with_verdicts(result_table(rows[overall], findings, rows[~overall]))
    best = rows[overall].nlargest(1, "gain").iloc[0]
    advice = (
        f"The largest gain over {base} is that of {best['estimator']}: {best['gain']:,.1f} nats, "
        f"standard error {best['standard_error']:,.1f}.",
    )
    ecdfs = xr.concat(pits.values(), "fit").assign_coords(fit=list(pits))
    title = f"held_out: {len(score):,} items, gains over {base}"
    return Result(table, xr.DataTree.from_dict({"gain": gains, "pit": ecdfs}), advice, title)


def _judged(
    fit: Fit, name: str, split: Split, seed: int, progress: bool | None
) -> tuple[dict[str, Floats], xr.Dataset]:
    """Return posterior means of one fit by title, each (n,), and its PIT by slice."""
    posterior = posterior_of(fit)
    observed, size = posterior.outcome.observed, posterior.outcome.size
    train, test = (frame_columns(fit, part) for part in (split.train, split.test))
    warn_of_extrapolation(fit, train["score"])
    score = posterior.scorer(())
    with phase(f"posteriors of {name}", enabled=progress):
        before = {role: values for role, values in train.items() if role != observed}
        means = {"E(theta | t)": score(before)[0], "E(theta | t, y)": score(train)[0]}

    def ends(part: Columns) -> tuple[Floats, Floats]:
        return posterior.further_cdf_interval(part, part["new"], part["new_size"])

    pairs = {**train, "new": test[observed], "new_size": test[size]}
    intervals = in_batches("predictive distribution", pairs, _CHUNK, progress, ends)
    n = np.ones(len(train["score"]), dtype=np.int64)
    masks = {ALL: n > 0, **large_sizes(posterior.outcome, test[size], _EXPOSED)}
    masks = {where: mask for where, mask in masks.items() if mask.sum() >= min(LEAST, len(n))}
    return means, slice_pits(intervals, n, masks, _stream(seed, "PIT"))


def _gains(estimates: Mapping[str, Floats], test: pd.DataFrame, outcome: Outcome) -> xr.Dataset:
    """Return gains over the first estimate, (estimator, bin), over all items in bin -1."""
    names = ("score", outcome.observed, outcome.size)
    t, y, size = (test[name].to_numpy(dtype=float) for name in names)
    loss = outcome.forms.loss(y, size, next(iter(estimates.values())))
    likelihood = np.stack([outcome.forms.log_likelihood(y, size, x) for x in estimates.values()])
    slices = {-1: np.arange(len(test)), **test.groupby("bin").indices}
    by_bin = []
    for items in slices.values():
        gain, total = likelihood[:, items] - likelihood[0, items], float(loss[items].sum())
        divisor = total if total > 0 else np.nan
        # as a share of the loss by the delta method
        share = gain.sum(axis=1) / divisor
        residual = gain - share[:, None] * loss[items]
        columns = {
            "log_likelihood": likelihood[:, items].sum(axis=1),
            "gain": gain.sum(axis=1),
            "standard_error": _error_of_sum(gain),
            "gain_percent": 100 * share,
            "gain_percent_se": 100 * _error_of_sum(residual) / divisor,
        }
        by_estimator = {name: ("estimator", values) for name, values in columns.items()}
        by_bin.append(xr.Dataset(by_estimator | {"items": len(items), "score": t[items].mean()}))
    gains = xr.concat(by_bin, pd.Index(list(slices), name="bin"))
    return gains.assign_coords(estimator=list(estimates)).transpose("estimator", "bin")


def _error_of_sum(values: Floats) -> Floats:
    """Return the standard error of sums over items, (rows, items)."""
    n = values.shape[1]
    return values.std(axis=1, ddof=1) * np.sqrt(n) if n > 1 else np.full(len(values), np.nan)


# --- first-order calibration, without a distribution of theta -----------------------------------

Predict = Callable[[Floats], Floats]


class _Cells(NamedTuple):
    """Items of one score added up, by rising score: weights are exposures, or 1 / noise_sd^2."""

    position: Floats
    weight: Floats
    mean: Floats
    outcome: Outcome

    def average(self, start: int = 0, end: int | None = None) -> float:
        """Return the mean outcome, kept from rates of 0, and of 1 for successes in trials."""
        weight, mean = self.weight[start:end], self.mean[start:end]
        return self.outcome.forms.pooled_rate(float(weight @ mean), float(weight.sum()))


def fit_baselines(frame: pd.DataFrame, outcome: Outcome) -> dict[str, Predict]:
    """Return maps from scores to E(theta | t), of a table with score, outcome and size."""
    columns = ("score", outcome.observed, outcome.size)
    score, y, size = (frame[name].to_numpy(dtype=float) for name in columns)
    weight, total = outcome.forms.weighted(y, size)
    if not (weight > 0).any():
        raise ItemsError(f"all {len(frame):,} exposures are 0: nothing can be calibrated")
    scale = outcome.theta if outcome.theta.holds(score).all() else LINEAR
    distinct, place = np.unique(score[weight > 0], return_inverse=True)
    weight, total = (np.bincount(place, x[weight > 0]) for x in (weight, total))
    cells = _Cells(scale.position(distinct), weight, total / weight, outcome)
    fits = {
        "constant": _constant(cells),
        "isotonic": _isotonic(cells),
        "platt": _regression(cells, np.unique(cells.position[[0, -1]]), 1, 0.0),
        "spline": _spline(cells),
    }

    def at_scores(predict: Predict) -> Predict:
        return lambda score: predict(scale.position(score))

    return {name: at_scores(predict) for name, predict in fits.items()}


def _constant(cells: _Cells) -> Predict:
    average = cells.average()
    return lambda position: np.full(len(position), average)


def _isotonic(cells: _Cells) -> Predict:
    fitted = isotonic_regression(cells.mean, weights=cells.weight)
    rate, low_end, high_end = fitted.x.copy(), int(fitted.blocks[1]), int(fitted.blocks[-2])
    # only the lowest stretch can be without events, and the highest without failures
    low, high = cells.average(0, low_end), cells.average(high_end)
    rate[:low_end] = np.min([low, *rate[low_end : low_end + 1]])
    rate[high_end:] = np.max([high, *rate[max(high_end - 1, 0) : high_end]])
    return lambda position: np.interp(position, cells.position, rate)


def _spline(cells: _Cells) -> Predict:
    """Fit a cubic on 6 knots, or on too few scores a line between all scores."""
    share = np.cumsum(cells.weight) / cells.weight.sum()
    knots, degree = np.unique(np.interp(np.linspace(0, 1, _KNOTS), share, cells.position)), 3
    if len(cells.position) < len(knots) + degree:
        knots, degree = cells.position, 1
    return _regression(cells, knots, degree, _RIDGE)


def _regression(cells: _Cells, knots: Floats, degree: int, ridge: float) -> Predict:
    """Fit a Poisson regression of counts, least squares of values, on a spline of the position."""
    from sklearn.preprocessing import SplineTransformer

    average = cells.average()
    if len(knots) < 2 or average != float(cells.weight @ cells.mean) / float(cells.weight.sum()):
        return _constant(cells)  # no regression ends at a rate of 0, or at a probability of 1
    # outcomes in units of their mean and weights in events, for any unit of exposure
    unit = average if cells.outcome.theta is LOG else 1.0
    weight = cells.weight * unit
    options = {"extrapolation": "linear", "include_bias": False}
    features = SplineTransformer(degree=degree, knots=knots[:, None], **options)
    design = features.fit_transform(cells.position[:, None])
    model = cells.outcome.forms.regressor(ridge / weight.sum())
    model.fit(design, cells.mean / unit, sample_weight=weight)
    return lambda position: unit * np.asarray(model.predict(features.transform(position[:, None])))
