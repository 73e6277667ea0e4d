"""Predictions of held-out outcomes: of folds, or of a part of every item's outcome."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from scipy.optimize import isotonic_regression

from .._lib.arguments import SEED, A, Whole, checked
from .._lib.arrays import Floats
from .._lib.errors import FitError, ItemsError, StatisticsError
from .._lib.progress import phase
from .._lib.threads import one_blas_thread
from ..checks.comparison import doubt_of, warn_of_clusters
from ..checks.observations import curve_rows, in_batches
from ..checks.pit import (
    ALL,
    LEAST,
    equal_parts,
    large_sizes,
    pit_findings,
    slice_pits,
)
from ..checks.results import OK, SIDES, Result, result_table, with_verdicts
from ..data.items import Items
from ..data.statistics import Statistics
from ..families.family import reads_joint
from ..families.outcomes import OUTCOMES, Outcome
from ..families.priors import SinglePrior
from ..families.scales import LINEAR, LOG
from ..inference.methods import NUTS, VI, FiveSteps
from ..inference.results import Fit, named_fits
from ..posterior.curves import warn_of_extrapolation
from ..posterior.item_columns import Columns, frame_columns
from ..posterior.predictive import posterior_of
from .splitting import Split, stream

_CHUNK = 100_000  # items whose predictive distribution is evaluated between reports of progress
_EXPOSED = 25.0  # exposure in the test part that says something of an item (the paper's)


# --- folds of statistics -------------------------------------------------------------------------


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


# --- parts of every item's outcome ---------------------------------------------------------------


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

    Point estimates are judged by the log-likelihood of the held-out part, whole posteriors by the
    PIT of the held-out outcome in its predictive distribution given t and the item's training
    outcome.

    Parameters
    ----------
    fits, split
        A fit to statistics of ``split.train``, or several by name; and what `split_items` returned.
    bins, seed, progress
        Bins of the score, with equal numbers of items; seed of the randomised PIT; and whether to
        show progress.

    Returns
    -------
    Result
        Its ``table`` has the gain of each estimator (t, a constant, isotonic regression, Platt
        scaling and a spline, and the fits' posterior means) over all items and in each bin: in
        percent of the log-likelihood of t, or of the constant where t is not an estimate of theta
        (negative, or 0 where there are held-out events); of values of the squared error in noise
        sds; with a 90% interval over items. And for each fit ``PIT``, of all items and, of counts,
        of those with an exposure of at least 25 in the test part. ``data`` has ``gain``, by
        estimator and bin (-1 being all items) in nats and percent, and ``pit``, ECDFs by fit and
        slice.

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
    by_name = named_fits(fits, "fit")
    outcome = OUTCOMES[split.train.kind]
    train, test = (_frame(part) for part in (split.train, split.test))
    score = train["score"].to_numpy(dtype=float)
    if not np.array_equal(score, test["score"].to_numpy(dtype=float)):
        raise ItemsError("the two parts of the split do not have the same rows: use split_items")
    warn_of_clusters(by_name, split.test, "standard errors")
    observed = test[outcome.observed].to_numpy()
    wrong = outcome.forms.wrong_scores(score, observed).any()
    estimates = {} if wrong else {"t": score}  # gains are over the first
    with phase("baselines", enabled=progress):
        estimates |= {name: fit(score) for name, fit in fit_baselines(train, outcome).items()}
    base = next(iter(estimates))
    pits: dict[str, xr.Dataset] = {}
    single = isinstance(fits, Fit)
    for name, fit in by_name.items():
        means, pits[name] = _judged(fit, name, split, seed, progress)
        prefix = "" if single else f"{name}: "
        estimates |= {prefix + title: mean for title, mean in means.items()}
    gains = _gains(estimates, test.assign(bin=equal_parts(score, bins)), outcome)
    ecdfs = xr.concat(pits.values(), "fit")
    frame = gains.isel(estimator=slice(1, None)).to_dataframe().reset_index()
    error, overall = SIDES * frame["gain_percent_se"], frame["bin"] < 0
    where = np.where(overall, ALL, [f"score {t:.4g}" for t in frame["score"]])
    rows = frame.assign(what="% gain of " + frame["estimator"], where=where, n=frame["items"])
    value = frame["gain_percent"]
    rows = rows.assign(value=value, low=value - error, high=value + error)
    of_pits = [
        row
        for name, pit in pits.items()
        for row in pit_findings(pit, "PIT" if single else f"PIT of {name}")
    ]
    table = with_verdicts(result_table(rows[overall], of_pits, rows[~overall]))
    best = frame[overall].nlargest(1, "gain").iloc[0]
    advice = (
        f"The largest gain over {base} is that of {best['estimator']}: {best['gain']:,.1f} nats, "
        f"standard error {best['standard_error']:,.1f}.",
    )
    groups = {"gain": gains, "pit": ecdfs.assign_coords(fit=list(pits))}
    title = f"held_out: {len(score):,} items, gains over {base}"
    return Result(table, xr.DataTree.from_dict(groups), advice, title)


def _frame(items: Items) -> pd.DataFrame:
    """The part's table with columns named by role."""
    frame = items.source
    if not isinstance(frame, pd.DataFrame):
        raise ItemsError(
            f"a part of the split is a {type(frame).__name__}, and both must be pandas tables: use "
            "split_items"
        )
    return frame.rename(columns={name: role for role, name in items.roles.items()})


def _judged(
    fit: Fit, name: str, split: Split, seed: int, progress: bool | None
) -> tuple[dict[str, Floats], xr.Dataset]:
    """Posterior means of one fit by title, each (n,), and its PIT by slice."""
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
    masks = dict([(ALL, n > 0), *large_sizes(posterior.outcome, test[size], _EXPOSED)])
    masks = {where: mask for where, mask in masks.items() if mask.sum() >= min(LEAST, len(n))}
    return means, slice_pits(intervals, n, masks, stream(seed, "PIT"))


def _gains(estimates: Mapping[str, Floats], test: pd.DataFrame, outcome: Outcome) -> xr.Dataset:
    """Gains over the first estimate with dims (estimator, bin), over all items in bin -1."""
    forms, bins = outcome.forms, test["bin"].to_numpy()
    y, size = (test[name].to_numpy(dtype=float) for name in (outcome.observed, outcome.size))
    likelihood = {name: forms.log_likelihood(y, size, x) for name, x in estimates.items()}
    base, *_ = likelihood.values()
    loss = forms.loss(y, size, next(iter(estimates.values())))
    slices = {-1: np.arange(len(test)), **test.groupby(bins).indices}
    rows = [
        {
            "estimator": name,
            "bin": k,
            "log_likelihood": likelihoods[place].sum(),
            **_gain((likelihoods - base)[place], loss[place]),
        }
        for name, likelihoods in likelihood.items()
        for k, place in slices.items()
    ]
    gains = pd.DataFrame(rows).set_index(["estimator", "bin"]).to_xarray()
    sums = pd.DataFrame({"items": 1, **forms.held_out_sums(y, size)})
    score = test["score"].to_numpy(dtype=float)
    by_bin = [{"score": score[p].mean(), **sums.iloc[p].sum()} for p in slices.values()]
    frame = pd.DataFrame(by_bin, pd.Index(list(slices), name="bin")).astype({"items": int})
    return gains.sel(estimator=list(estimates)).merge(frame.to_xarray())


def _gain(gain: Floats, loss: Floats) -> dict[str, float]:
    """Sum of gains, and as a share of the loss, with standard errors by the delta method."""
    divisor = float(loss.sum()) if loss.sum() > 0 else np.nan
    ratio = float(gain.sum()) / divisor
    return {
        "gain": float(gain.sum()),
        "standard_error": _error(gain),
        "gain_percent": 100 * ratio,
        "gain_percent_se": 100 * _error(gain - ratio * loss) / divisor,
    }


def _error(values: Floats) -> float:
    """Standard error of a sum over items."""
    return float(values.std(ddof=1) * np.sqrt(len(values))) if len(values) > 1 else float("nan")


# --- first-order calibration, without a distribution of theta -----------------------------------

Predict = Callable[[Floats], Floats]

_KNOTS = 6  # knots of the spline, at weighted quantiles of the scores
_RIDGE = 0.01  # precision of the spline's coefficients, so that they exist without events too


class _Cells(NamedTuple):
    """Items of one score added up, by rising score: its position, their weight and mean outcome.

    The weight of counts is their exposure, that of values 1 / noise_sd^2.
    """

    position: Floats
    weight: Floats
    mean: Floats
    outcome: Outcome

    def average(self, start: int = 0, end: int | None = None) -> float:
        """Weighted mean of outcomes, kept from rates of 0, and of 1 for successes in trials."""
        weight, mean = self.weight[start:end], self.mean[start:end]
        return self.outcome.forms.pooled_rate(float(weight @ mean), float(weight.sum()))


def fit_baselines(frame: pd.DataFrame, outcome: Outcome) -> dict[str, Predict]:
    """Maps from scores to E(theta | t), of a table with the columns score, outcome and size."""
    columns = ("score", outcome.observed, outcome.size)
    score, y, size = (frame[name].to_numpy(dtype=float) for name in columns)
    weight, total = outcome.forms.weighted(y, size)
    if not (weight > 0).any():
        raise ItemsError(f"all {len(frame):,} exposures are 0: nothing can be calibrated")
    scale = outcome.theta if outcome.theta.holds(score).all() else LINEAR
    distinct, place = np.unique(score[weight > 0], return_inverse=True)
    weight, total = (np.bincount(place, x[weight > 0]) for x in (weight, total))
    cells = _Cells(scale.position(distinct), weight, total / weight, outcome)

    def of_scores(predict: Predict) -> Predict:
        return lambda score: predict(scale.position(score))

    return {name: of_scores(fit(cells)) for name, fit in _FITS.items()}


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


def _platt(cells: _Cells) -> Predict:
    return _regression(cells, np.unique(cells.position[[0, -1]]), 1, 0.0)


def _spline(cells: _Cells) -> Predict:
    """A cubic on 6 knots; on fewer scores than it has coefficients, straight between all scores."""
    share = np.cumsum(cells.weight) / cells.weight.sum()
    knots, degree = np.unique(np.interp(np.linspace(0, 1, _KNOTS), share, cells.position)), 3
    if len(cells.position) < len(knots) + degree:
        knots, degree = cells.position, 1
    return _regression(cells, knots, degree, _RIDGE)


def _regression(cells: _Cells, knots: Floats, degree: int, ridge: float) -> Predict:
    """Poisson regression of counts, least squares of values, on a spline of the position."""
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


_FITS: dict[str, Callable[[_Cells], Predict]] = {
    "constant": _constant,
    "isotonic": _isotonic,
    "platt": _platt,
    "spline": _spline,
}
