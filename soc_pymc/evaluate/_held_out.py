"""`held_out`: predictions of outcomes held out from every item, as in the paper's Section 5.1."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
import xarray as xr

from .._lib.arguments import SEED, A, Whole, checked
from .._lib.arrays import Floats
from .._lib.errors import ItemsError
from .._lib.progress import phase
from ..checks.comparison import warn_of_clusters
from ..checks.observations import in_batches
from ..checks.pit import SlicePit, pit_dataset, pit_findings, slice_pits
from ..checks.results import SIDES, Result, result_table, with_verdicts
from ..checks.slices import ALL, LEAST, equal_parts, large_sizes
from ..data.items import Items
from ..families.outcomes import OUTCOMES, Outcome
from ..inference.results import Fit, named_fits
from ..posterior.extrapolation import warn_of_extrapolation
from ..posterior.interface import Columns
from ..posterior.item_columns import frame_columns
from ..posterior.predictive import posterior_of
from .baselines import fit_baselines
from .splitting import Split, stream

_CHUNK = 100_000  # items whose predictive distribution is evaluated between reports of progress
_EXPOSED = 25.0  # exposure in the test part that says something of an item (the paper's)


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
    pits: dict[str, dict[str, SlicePit]] = {}
    single = isinstance(fits, Fit)
    for name, fit in by_name.items():
        means, pits[name] = _judged(fit, name, split, seed, progress)
        prefix = "" if single else f"{name}: "
        estimates |= {prefix + title: mean for title, mean in means.items()}
    gains = _gains(estimates, test.assign(bin=equal_parts(score, bins)), outcome)
    ecdfs = xr.concat([pit_dataset(pit) for pit in pits.values()], "fit")
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
    pit = slice_pits(intervals, n, np.stack(list(masks.values())), stream(seed, "PIT"))
    return means, dict(zip(masks, pit, strict=True))


def _gains(estimates: Mapping[str, Floats], test: pd.DataFrame, outcome: Outcome) -> xr.Dataset:
    """Gains over the first estimate with dims (estimator, bin), over all items in bin -1.

    Percentages are ratios of sums, with standard errors by the delta method.
    """
    forms, bins = outcome.forms, test["bin"].to_numpy()
    y, size = (test[name].to_numpy(dtype=float) for name in (outcome.observed, outcome.size))
    likelihood = {name: forms.log_likelihood(y, size, x) for name, x in estimates.items()}
    base, *_ = likelihood.values()
    loss = forms.loss(y, size, next(iter(estimates.values())))
    slices = {-1: np.arange(len(test)), **test.groupby(bins).indices}
    rows = []
    for name, likelihoods in likelihood.items():
        for k, place in slices.items():
            gain, divisor = (likelihoods - base)[place], float(loss[place].sum())
            ratio = float(gain.sum()) / divisor if divisor > 0 else np.nan
            of_ratio = _error(gain - ratio * loss[place]) / divisor if divisor > 0 else np.nan
            rows.append(
                {
                    "estimator": name,
                    "bin": k,
                    "log_likelihood": likelihoods[place].sum(),
                    "gain": float(gain.sum()),
                    "standard_error": _error(gain),
                    "gain_percent": 100 * ratio,
                    "gain_percent_se": 100 * of_ratio,
                }
            )
    gains = pd.DataFrame(rows).set_index(["estimator", "bin"]).to_xarray()
    sums = pd.DataFrame({"items": 1, **forms.held_out_sums(y, size)})
    score = test["score"].to_numpy(dtype=float)
    by_bin = [{"score": score[p].mean(), **sums.iloc[p].sum()} for p in slices.values()]
    frame = pd.DataFrame(by_bin, pd.Index(list(slices), name="bin")).astype({"items": int})
    return gains.sel(estimator=list(estimates)).merge(frame.to_xarray())


def _error(values: Floats) -> float:
    """Standard error of a sum over items."""
    return float(values.std(ddof=1) * np.sqrt(len(values))) if len(values) > 1 else float("nan")
