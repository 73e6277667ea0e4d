"""`held_out`: predictions of outcomes held out from every item, as in the paper's Section 5.1."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from scipy import special

from .._lib.arguments import SEED, A, Whole, checked, shown
from .._lib.arrays import Floats, Ints
from .._lib.errors import FitError, ItemsError
from .._lib.progress import phase
from ..checks.batches import in_batches
from ..checks.comparison import warn_of_clusters
from ..checks.pit import SlicePit, pit_dataset, slice_pits
from ..checks.results import PROB, Result, result_table, with_verdicts
from ..checks.slices import ALL, LEAST, equal_parts, large_sizes
from ..data.items import Items
from ..families.outcomes import OUTCOMES, Outcome
from ..inference.results import Fit, named_fits
from ..posterior.extrapolation import warn_of_extrapolation
from ..posterior.interface import Columns
from ..posterior.item_columns import frame_columns
from ..posterior.predictive import posterior_of
from .baselines import BASELINES, fit_baselines
from .splitting import Split, stream

_CHUNK = 100_000  # items whose predictive distribution is evaluated between reports of progress
_EXPOSED = 25.0  # exposure in the test part that says something of an item (the paper's)


@checked(split=A(Split, "what soc.evaluate.split_items(items) returns"), bins=Whole(1), seed=SEED)
def held_out(
    fits: Fit | Mapping[str, Fit],
    split: Split,
    *,
    baselines: Sequence[str] = BASELINES,
    over: str = "t",
    bins: int = 20,
    seed: int = 0,
    progress: bool | None = None,
) -> Result:
    """Judge t, first-order baselines and fits by outcomes held out from every item (Section 5.1).

    Point estimates are judged by the log-likelihood of the held-out part: Poisson counts, or Normal
    values with the part's noise. Whole posteriors are judged by the PIT of the held-out outcome in
    its predictive distribution given t and the item's own training outcome.

    Parameters
    ----------
    fits, split
        A fit to statistics of ``split.train``, or several by name; and what `split_items` returned.
    baselines
        First-order methods to fit to ``split.train``: ``"constant"``, ``"isotonic"``, ``"platt"``
        (a straight line on the scale of the scores) and ``"spline"``.
    over
        The estimate that gains are over: ``"t"``, or one of the baselines where t is no estimate of
        theta (in another unit, or negative where theta is a rate); t itself is then left out.
    bins
        Bins of the score, with equal numbers of items; fewer where scores are tied.
    seed, progress
        Seed of the randomised PIT, and whether to show progress.

    Returns
    -------
    Result
        Its ``table`` has rows for the gain of each estimator (the baselines, ``E(theta | t)`` and
        ``E(theta | t, y)`` of each fit, with the fit's name before it where names were given), over
        all items and in each bin: in percent of the log-likelihood of t, or of what `over` names
        (of values: of its squared error in noise sds, so that 100 is no error at all), with a 90%
        interval over items. And for each fit ``PIT``, of all items and, of counts, of those with an
        exposure of at least 25 in the test part: the largest difference from the uniform cdf.

        ``data`` is an `xarray.DataTree`. Group ``gain`` has the gains by estimator and bin (-1
        being all items) in nats and percent with standard errors, ``log_likelihood``, and by bin
        ``score``, ``items`` and the held-out ``exposure`` and ``events`` (of values ``precision``,
        the sum of 1 / noise_sd^2). Group ``pit`` has, by fit and slice, ECDFs of the PIT minus the
        uniform cdf, ``randomised`` and ``averaged`` over the randomisation.

    Raises
    ------
    ItemsError, FitError
        If the two parts do not have the same rows, or are not of the fits' kind; of counts, if
        gains are over a score that is no rate: negative, or 0 where there are held-out events. If
        there is no fit, no such baseline, `over` is none of them, or `bins` is not positive.

    Warns
    -----
    ItemsWarning
        If scores lie far outside of those that a fit saw, or items have clusters, which standard
        errors do not know.

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
    if not isinstance(baselines, list | tuple):
        raise FitError(f"baselines={shown(baselines)} must be a list of names, such as ('platt',)")
    if not isinstance(over, str) or over not in ("t", *baselines):
        raise FitError(f"over={shown(over)} must be 't' or one of baselines={tuple(baselines)}")
    _check_rows(split)
    warn_of_clusters(by_name, split.test, "standard errors")
    outcome = OUTCOMES[split.train.kind]
    if over == "t":
        _check_scores(split.test, outcome)
    train = _frame(split.train)
    score = train["score"].to_numpy(dtype=float)
    estimates = {over: score}  # gains are over the first
    with phase("baselines", enabled=progress):
        for name, predict in fit_baselines(baselines, train, outcome).items():
            estimates[name] = predict(score)
    pits: dict[str, dict[str, SlicePit]] = {}
    single = isinstance(fits, Fit)
    for name, fit in by_name.items():
        prefix = "" if single else f"{name}: "
        means, pits[name] = _judged(fit, name, split, seed, progress)
        estimates |= {prefix + title: mean for title, mean in means.items()}
    gains = _gains(estimates, _frame(split.test), equal_parts(score, bins), outcome)
    ecdfs = xr.concat([pit_dataset(pit) for pit in pits.values()], "fit")
    groups = {"gain": gains, "pit": ecdfs.assign_coords(fit=list(pits))}
    rows = [
        {"what": "PIT" if single else f"PIT of {name}", "where": where, "n": pit.n_items}
        | {"value": pit.distance, "p": pit.p_value, "verdict": ""}
        for name, slices in pits.items()
        for where, pit in slices.items()
    ]
    gain_rows = list(_gain_table(gains))
    overall = [row for row in gain_rows if row["where"] == ALL]
    by_bin = [row for row in gain_rows if row["where"] != ALL]
    table = with_verdicts(result_table([*overall, *rows, *by_bin]))
    total = gains.sel(bin=-1).isel(estimator=slice(1, None))
    best = total.isel(estimator=int(np.nanargmax(total["gain"].to_numpy())))
    advice = (
        f"The largest gain over {over} is that of {best['estimator'].item()}: "
        f"{float(best['gain']):,.1f} nats, standard error {float(best['standard_error']):,.1f}.",
    )
    title = f"held_out: {len(score):,} items, gains over {over}"
    return Result(table, xr.DataTree.from_dict(groups), advice, title)


def _judged(
    fit: Fit, name: str, split: Split, seed: int, progress: bool | None
) -> tuple[dict[str, Floats], dict[str, SlicePit]]:
    """Posterior means of one fit by title, each (n,), and its PIT by slice."""
    posterior = posterior_of(fit)
    observed, size = posterior.outcome.observed, posterior.outcome.size
    train, test = (frame_columns(fit, posterior, part) for part in (split.train, split.test))
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


def _check_rows(split: Split) -> None:
    parts = split.train, split.test
    for part in parts:
        if not isinstance(part.source, pd.DataFrame):
            raise ItemsError(
                f"a part of the split is a {type(part.source).__name__}, and both must be pandas "
                "tables: use split_items"
            )
    if not np.array_equal(*(part.source[part.score].to_numpy(dtype=float) for part in parts)):
        raise ItemsError("the two parts of the split do not have the same rows: use split_items")


def _check_scores(test: Items, outcome: Outcome) -> None:
    """The score must be an estimate of theta that leaves held-out outcomes a likelihood."""
    score, y = (test.source[test.roles[role]].to_numpy() for role in ("score", outcome.observed))
    for word, bad in outcome.forms.wrong_scores(score, y).items():
        if bad.any():
            raise ItemsError(
                f"column {test.score!r}: {int(bad.sum()):,} of {len(bad):,} rows are {word}, so "
                f"that the score is no {outcome.words.theta} to compare with: give held_out "
                "over='constant'"
            )


def _frame(items: Items) -> pd.DataFrame:
    """The part's table with columns named by role."""
    frame: pd.DataFrame = items.source
    return frame.rename(columns={name: role for role, name in items.roles.items()})


# --- gains ---------------------------------------------------------------------------------------


def _gains(
    estimates: Mapping[str, Floats], test: pd.DataFrame, bin_of: Ints, outcome: Outcome
) -> xr.Dataset:
    """Gains over the first estimate with dims (estimator, bin), over all items in bin -1."""
    names = ("score", outcome.observed, outcome.size)
    score, y, size = (test[name].to_numpy(dtype=float) for name in names)
    forms = outcome.forms
    likelihood = [forms.log_likelihood(y, size, theta) for theta in estimates.values()]
    loss = forms.loss(y, size, next(iter(estimates.values())))
    order, ends = np.argsort(bin_of, kind="stable"), np.cumsum(np.bincount(bin_of))
    slices = [np.arange(len(bin_of)), *np.split(order, ends[:-1])]
    rows = [
        _gain((each - likelihood[0])[rows], loss[rows])
        | {"log_likelihood": float(each[rows].sum())}
        for each in likelihood
        for rows in slices
    ]
    numbers = {
        name: (("estimator", "bin"), np.reshape([row[name] for row in rows], (-1, len(slices))))
        for name in rows[0]
    }
    by_bin = {
        "score": [score[rows].mean() for rows in slices],
        "items": [len(rows) for rows in slices],
    }
    for name, values in forms.held_out_sums(y, size).items():
        by_bin[name] = [float(values[rows].sum()) for rows in slices]
    coords = {"estimator": list(estimates), "bin": np.arange(len(slices)) - 1}
    return xr.Dataset(numbers | {name: ("bin", x) for name, x in by_bin.items()}, coords)


def _gain_table(gains: xr.Dataset) -> Iterator[dict[str, Any]]:
    """Rows of all estimators but the first, over which gains are."""
    half = float(special.ndtri((1 + PROB) / 2)) * gains["gain_percent_se"]
    percent = gains["gain_percent"]
    ends = {"value": percent, "low": percent - half, "high": percent + half}
    where = [ALL, *(f"score {score:.4g}" for score in gains["score"].to_numpy()[1:])]
    for name in gains["estimator"].to_numpy()[1:]:
        numbers = {end: x.sel(estimator=name).to_numpy() for end, x in ends.items()}
        for k, slice_name in enumerate(where):
            row = {"what": f"% gain of {name}", "where": slice_name, "n": int(gains["items"][k])}
            yield row | {end: x[k] for end, x in numbers.items()}


def _gain(gain: Floats, base: Floats) -> dict[str, float]:
    """Gain and its percentage, a ratio of sums, with standard errors (delta method)."""
    total, loss = float(gain.sum()), float(base.sum())
    ratio = total / loss if loss > 0 else np.nan
    return {
        "gain": total,
        "standard_error": _error(gain),
        "gain_percent": 100 * ratio,
        "gain_percent_se": 100 * _error(gain - ratio * base) / loss if loss > 0 else np.nan,
    }


def _error(each: Floats) -> float:
    """Standard error of a sum over items."""
    return float(each.std(ddof=1) * np.sqrt(len(each))) if len(each) > 1 else float("nan")
