"""Evaluation on outcomes not seen: held-out parts, folds, and scores that saw their outcomes."""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from scipy import optimize, special

from ._lib.arguments import PROBABILITY, SEED, A, FitError, ItemsError, Whole
from ._lib.arrays import Columns, Floats, Pair, Triple, equal_parts
from ._lib.reprs import counted
from ._lib.work import phase, with_progress
from .checks.comparison import cross_validate, warn_of_clusters
from .checks.findings import ALL, FAIL, OK, SIDES, Result, result_table
from .checks.observations import check_rows
from .checks.pit import (
    LEAST,
    Slice,
    large_sizes,
    pit_findings,
    slice_pits,
    with_p_values,
)
from .data.engines import scan
from .data.items import NO_SCORE, Items, Roles, check_outcomes, is_group
from .data.sources import batches
from .data.statistics import MOST_Z, Statistics, variation
from .data.summaries import summarize
from .families.family import Outcome
from .families.scales import LINEAR, LOG
from .fits import Fit, named_fits
from .posterior.averages import further_cdf_interval, scorer
from .posterior.item_columns import (
    frame_columns,
    in_chunks,
    refuse_weighted,
    warn_of_extrapolation,
    without,
)
from .posterior.predictive import posterior_of

__all__ = ["cross_validate", "held_out", "leakage", "split_items"]

# items whose predictive distribution is evaluated between reports of progress
_CHUNK = 100_000
# exposure in the test part that says something of an item (the paper's)
_EXPOSED = 25.0
# knots of the spline, at weighted quantiles of the scores
_KNOTS = 6
# precision of the spline's coefficients, so that they exist without events too
_RIDGE = 0.01
# of Newton's method for regressions
_MOST_STEPS = 100
_DAMPING = 1e-9
_LONGEST = 1.0
# positions that are as good as infinite
_FARTHEST = 300.0
# chance of a false alarm
_LEVEL = 0.05
# share of out-of-fold gain that training on more items may bring
_TOLERANCE = 0.05
_GAINS = (
    "log_likelihood",
    "gain",
    "standard_error",
    "gain_percent",
    "gain_percent_se",
)
_FINDINGS = {
    "outcomes alone": "outcomes vary by {:.2f} of their noise where they vary least",
    "fresh outcomes": "the calibration slope is {:.2f} times as steep on fresh outcomes",
    "out-of-fold scores": "the scores gain {:.0%} more than out-of-fold ones",
}


@dataclass(frozen=True, eq=False)
class Split:
    """Items whose outcomes were divided in two, with columns named by role in the same order."""

    train: Items
    test: Items


def _stream(seed: int, purpose: str) -> np.random.Generator:
    return np.random.default_rng([seed, zlib.crc32(purpose.encode())])


def split_items(items: Items, fraction: float = 0.1, seed: int = 0) -> Split:
    """Hold out part of every item's outcome, so that both parts are independent given theta.

    Each event of a Poisson count is held out with probability `fraction`, and so is that share of
    the exposure. Of a value y the part held out is y + sqrt((1 - f) / f) s e with e standard
    Normal, of noise sd s / sqrt(f); the rest, (y - f part) / (1 - f), has noise sd s / sqrt(1 - f)
    (Neufeld, Dharamshi, Gao and Witten 2024). Trials are dealt out with their successes.

    Parameters
    ----------
    items : PoissonItems, NormalItems, BinomialItems or AmountItems
        Items, which are read into memory.
    fraction : float
        The share that is held out, between 0 and 1.
    seed : int
        Seed of random numbers.

    Returns
    -------
    Split
        ``train`` and ``test``: items over pandas tables with the same rows in the same order. With
        ``truncated=True`` those with nothing left to train are dropped, and test outcomes may be 0.

    Raises
    ------
    ItemsError, FitError
        If the items are not valid, or `fraction` is not between 0 and 1.

    References
    ----------
    .. [1] Neufeld, Dharamshi, Gao and Witten (2024), Data thinning for convolution-closed
       distributions, Journal of Machine Learning Research 25.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> split = soc.evaluate.split_items(items, fraction=0.5)
    >>> both = split.train.source["count"] + split.test.source["count"]
    >>> bool((both == items.source["count"]).all())
    True
    """
    fraction = PROBABILITY(fraction, "fraction")
    seed = SEED(seed, "seed")
    if getattr(items, "noise_df", None) is not None:
        raise ItemsError(
            "values with estimated noise sds (noise_df=) cannot be divided in independent parts: "
            "fit some of the items, and run soc.check on the others"
        )
    frame = read_frame(items)
    outcome = items.outcome
    _, y, size = score_and_outcomes(frame, outcome)
    thinned = outcome.thinned(y, size, fraction, _stream(seed, "thinning"))
    remaining = outcome.remainder(y, size, thinned, fraction)
    # the rest is a table of its own, whose items of 0 are absent
    if outcome.truncated:
        listed = remaining[0] > 0
        frame = frame[listed].reset_index(drop=True)
        remaining, thinned = (
            (values[listed], sizes[listed]) for values, sizes in (remaining, thinned)
        )
    names = outcome.observed, outcome.size
    read = [r for r in items.roles if r in ("score", "cluster", *names) or is_group(r)]
    columns = [NO_SCORE if items.roles[role] == NO_SCORE else role for role in read]
    roles = Roles(zip(read, columns, strict=True)).arguments
    parts = (
        frame.assign(**dict(zip(names, part, strict=True)))
        for part in (remaining, thinned)
    )
    train, test = parts
    # outcomes to come may be 0
    later = {k: v for k, v in items.options.items() if k != "truncated"}
    kind = type(items)
    return Split(kind(train, **roles | items.options), kind(test, **roles | later))


def read_frame(items: Items) -> pd.DataFrame:
    """Return all items as a validated pandas table with columns named by role, without ids."""
    refuse_weighted(check_outcomes(items))
    _, table = scan(replace(items, id=None, fold=None, date=None))
    return pd.concat([batch.to_pandas() for batch in batches(table)], ignore_index=True)


def score_and_outcomes(frame: pd.DataFrame, outcome: Outcome) -> Triple:
    """Return scores, outcomes and their sizes of a table from `read_frame`."""
    roles = ["score", outcome.observed, outcome.size]
    score, y, size = frame[roles].to_numpy(dtype=float).T
    return score, y, size


@with_progress
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
    fits : Fit or Mapping[str, Fit]
        A fit to statistics of ``split.train``, or several by name.
    split : Split
        What `split_items` returned.
    bins : int
        Bins of the score, with equal numbers of items.
    seed : int
        Seed of the randomised PIT.
    progress : bool or None
        Whether to show progress.

    Returns
    -------
    Result
        Its ``table`` has gains over t, or over a constant without t or where t is not an estimate
        of theta, of a constant, isotonic regression, Platt scaling, a spline, and the fits'
        posterior means, over all items and by bin: in percent of that one's log-likelihood (of
        values, of the squared error in noise sds), with a 90% interval over items. And for each fit
        ``PIT``, of all items and, of counts, of those with an exposure of at least 25 in the test
        part. ``data`` has ``gain``, by estimator and bin (-1 being all items), and ``pit``, ECDFs
        by fit and slice.

    Raises
    ------
    ItemsError, FitError
        If the two parts do not have the same rows, or are not of the fits' kind. An `ItemsWarning`
        says if scores lie far outside of those that a fit saw, or items have clusters.

    References
    ----------
    .. [1] Muralidharan and Najmi (2015), Second order calibration: a simple way to get
       approximate posteriors.
    .. [2] Czado, Gneiting and Held (2009), Predictive model assessment for count data, Biometrics
       65, 1254-1261.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> split = soc.evaluate.split_items(items)
    >>> fit = soc.fit(soc.summarize(split.train))
    >>> soc.evaluate.held_out({"Gamma": fit}, split, bins=5).table["what"].iloc[-1]
    '% gain of Gamma: E(theta | t, y)'
    """
    split = A(Split, "what soc.evaluate.split_items(items) returns")(split, "split")
    bins = Whole(1)(bins, "bins")
    seed = SEED(seed, "seed")
    by_name = named_fits(fits)
    outcome = split.train.outcome
    train, test = (read_frame(part) for part in (split.train, split.test))
    score, new, _ = score_and_outcomes(test, outcome)
    check_rows(train, test, {"score": "score"}, "the test part of the split")
    warn_of_clusters(by_name, split.test, "standard errors")
    # gains are over the first estimate
    scored = split.train.roles.has_score and not outcome.wrong_scores(score, new).any()
    estimates = {"t": score} if scored else {}
    with phase("baselines"):
        estimates |= baselines(train, outcome, score)
    pits = {}
    findings = []
    for name, fit in by_name.items():
        means, pits[name] = _judged(fit, name, split, seed)
        several = not isinstance(fits, Fit)
        prefix = f"{name}: " * several
        estimates |= {prefix + title: mean for title, mean in means.items()}
        findings += pit_findings(pits[name], "PIT" + f" of {name}" * several)
    gains = _gains_of_estimates(
        estimates, test.assign(bin=equal_parts(score, bins)), outcome
    )
    rows = gains.isel(estimator=slice(1, None)).to_dataframe().reset_index()
    overall = rows["bin"] < 0
    margin = SIDES * rows["gain_percent_se"]
    table = pd.DataFrame({"what": "% gain of " + rows["estimator"], "n": rows["items"]})
    table["where"] = rows["score"].map("score {:.4g}".format).mask(overall, ALL)
    table["value"] = rows["gain_percent"]
    table = table.assign(low=table["value"] - margin, high=table["value"] + margin)
    by_bin = table[~overall] if split.train.roles.has_score else table[:0]
    table = result_table(table[overall], findings, by_bin)
    best = rows[overall].nlargest(1, "gain").iloc[0]
    base = next(iter(estimates))
    error = best["standard_error"]
    precision = f"standard error {error:,.1f}"
    if np.isnan(error):
        precision = "of one item, which has no standard error"
    advice = (
        f"The largest gain over {base} is that of {best['estimator']}: {best['gain']:,.1f} nats, "
        f"{precision}.",
    )
    data = {"gain": gains, "pit": xr.concat(pits.values(), pd.Index(pits, name="fit"))}
    title = f"held_out: {counted(len(score), 'item')}, gains over {base}"
    return Result(table, xr.DataTree.from_dict(data), advice, title)


def _judged(
    fit: Fit, name: str, split: Split, seed: int
) -> tuple[dict[str, Floats], xr.Dataset]:
    """Return posterior means of one fit by title, each (n,), and its PIT by slice."""
    posterior = posterior_of(fit)
    observed = posterior.outcome.observed
    size = posterior.outcome.size
    train, test = (
        frame_columns(posterior.curves, part) for part in (split.train, split.test)
    )
    warn_of_extrapolation(posterior.curves, train["score"])
    score = scorer(posterior, ())
    with phase(f"posteriors of {name}"):
        before, *_ = score(without(train, observed))
        after, *_ = score(train)
    means = {"E(theta | t)": before, "E(theta | t, y)": after}

    def ends(part: Columns) -> Pair:
        return further_cdf_interval(posterior, part, part["new"], part["new_size"])

    pairs = {**train, "new": test[observed], "new_size": test[size]}
    intervals = in_chunks(ends, _CHUNK, pairs, "predictive distribution")
    n = np.ones(len(train["score"]), dtype=np.int64)
    large = large_sizes(posterior.outcome, test[size], size, _EXPOSED)
    masks = {Slice(ALL): n > 0}
    least = min(LEAST, len(n))
    masks |= {part: mask for part, mask in large.items() if mask.sum() >= least}
    return means, with_p_values(slice_pits(intervals, n, masks, _stream(seed, "PIT")))


def _gains_of_estimates(
    estimates: Mapping[str, Floats], test: pd.DataFrame, outcome: Outcome
) -> xr.Dataset:
    """Return gains over the first estimate, (estimator, bin); bin -1 is all items."""
    t, y, size = score_and_outcomes(test, outcome)
    loss = outcome.loss(y, size, next(iter(estimates.values())))
    likelihood = np.stack(
        [outcome.log_likelihood(y, size, theta) for theta in estimates.values()]
    )
    slices = {-1: np.arange(len(test)), **test.groupby("bin").indices}
    rows = []
    for items in slices.values():
        gain = likelihood[:, items] - likelihood[0, items]
        total = gain.sum(axis=1)
        lost = float(loss[items].sum()) or np.nan
        # by the delta method
        residual = gain - np.outer(total / lost, loss[items])
        error_percent = 100 * _error_of_sum(residual) / lost
        numbers = likelihood[:, items].sum(axis=1), total, _error_of_sum(gain)
        rows.append([*numbers, 100 * total / lost, error_percent])
    values = np.transpose(rows, (1, 2, 0))
    gains: dict[str, Any] = {
        name: (("estimator", "bin"), numbers)
        for name, numbers in zip(_GAINS, values, strict=True)
    }
    gains["items"] = "bin", [*map(len, slices.values())]
    gains["score"] = "bin", [t[items].mean() for items in slices.values()]
    return xr.Dataset(gains, {"estimator": list(estimates), "bin": list(slices)})


def _error_of_sum(values: Floats) -> Floats:
    """Return standard errors of sums over items, (rows,); NaN of one item."""
    n = values.shape[1]
    if n == 1:
        return np.full(len(values), np.nan)
    return values.std(axis=1, ddof=1) * np.sqrt(n)


def _expected(outcome: Outcome, predictor: Floats) -> Floats:
    """Theta at positions on the scale of theta."""
    scale = outcome.theta
    if scale is not LINEAR:
        predictor = np.clip(predictor, -_FARTHEST, _FARTHEST)
    return scale.score(predictor)


def _regression(
    outcome: Outcome, x: Floats, weight: Floats, total: Floats, penalty: float = 0.0
) -> Floats:
    """Coefficients (1 + k,) of a ridge-penalised generalised linear model on x."""
    design = np.column_stack([np.ones(len(x)), x])
    ridge = np.append(0.0, np.full(design.shape[1] - 1, penalty))
    coefficients = np.zeros(design.shape[1])
    pooled = outcome.pooled_rate(float(total.sum()), float(weight.sum()))
    scale = outcome.theta
    coefficients[0] = scale.position(pooled)
    for _ in range(_MOST_STEPS):
        theta = _expected(outcome, design @ coefficients)
        factor = outcome.residual_factor(theta)
        curvature = weight * outcome.noise(theta) * factor**2
        information = (design.T * curvature) @ design + np.diag(ridge)
        damping = _DAMPING * np.trace(information) * np.eye(len(ridge))
        pull = design.T @ (factor * (total - weight * theta)) - ridge * coefficients
        step = np.linalg.solve(information + damping, pull)
        # which one step solves
        if scale is not LINEAR:
            step = np.clip(step, -_LONGEST, _LONGEST)
        coefficients += step
        if np.abs(step).max() < 1e-9 * (1.0 + np.abs(coefficients).max()):
            break
    return coefficients


def calibration_line(
    outcome: Outcome, score: Floats, y: Floats, size: Floats
) -> tuple[Floats, float]:
    """Return log likelihood, (n,), and slope of a straight-line calibration of scores."""
    scale = outcome.theta
    x = scale.position(score) if scale.holds(score).all() else score
    sd = float(x.std()) or 1.0
    standard = (x - x.mean()) / sd
    level, slope = _regression(outcome, standard, *outcome.weighted(y, size))
    theta = _expected(outcome, level + slope * standard)
    return outcome.log_likelihood(y, size, theta), float(slope) / sd


def baselines(
    frame: pd.DataFrame, outcome: Outcome, new_score: Floats
) -> dict[str, Floats]:
    """Return E(theta | t) at new scores by first-order calibrations of a table of items."""
    from sklearn.preprocessing import SplineTransformer

    score, y, size = score_and_outcomes(frame, outcome)
    weight, total = outcome.weighted(y, size)
    if not (weight > 0).any():
        raise ItemsError(
            f"all {len(frame):,} exposures are 0: nothing can be calibrated"
        )
    scale = outcome.theta if outcome.theta.holds(score).all() else LINEAR
    distinct, place = np.unique(score[weight > 0], return_inverse=True)
    weight, total = (np.bincount(place, x[weight > 0]) for x in (weight, total))
    places = scale.position(new_score)
    position = scale.position(distinct)
    average = total.sum() / weight.sum()
    # outcomes in units of their mean and weights in events, for any unit of exposure
    unit = average if outcome.theta is LOG else 1.0
    events = weight * unit

    def regression(knots: Floats, degree: int, ridge: float) -> Floats:
        options = {"extrapolation": "linear", "include_bias": False}
        basis = SplineTransformer(degree=degree, knots=knots[:, None], **options)
        x = basis.fit_transform(position[:, None])
        level, *slopes = _regression(outcome, x, events, total, ridge)
        predictor = level + basis.transform(places[:, None]) @ np.array(slopes)
        return unit * _expected(outcome, predictor)

    pooled = outcome.pooled_rate(float(total.sum()), float(weight.sum()))
    constant = np.full(len(places), pooled)
    # where rates fall as scores rise, from the highest score on
    falls = np.arange(len(total)) @ (total - average * weight) < 0.0
    order = slice(None, None, -1 if falls else 1)
    rates = _isotonic(weight[order], total[order], outcome)[order]
    isotonic = np.interp(places, position, rates)
    estimates = {"constant": constant, "isotonic": isotonic}
    if len(position) < 2 or pooled != average:
        # no regression ends at a rate of 0, or at a probability of 1
        return estimates | {"platt": constant, "spline": constant}
    share = np.cumsum(weight) / weight.sum()
    knots = np.unique(np.interp(np.linspace(0, 1, _KNOTS), share, position))
    degree = 3
    if len(position) < len(knots) + degree:
        knots = position
        degree = 1
    platt = regression(position[[0, -1]], 1, 0.0)
    ridge = 0.0 if outcome.theta is LINEAR else _RIDGE
    return estimates | {"platt": platt, "spline": regression(knots, degree, ridge)}


def _isotonic(weight: Floats, total: Floats, outcome: Outcome) -> Floats:
    """Rising rates; only the lowest can be without events, and the highest without failures."""
    fitted = optimize.isotonic_regression(total / weight, weights=weight)
    rate = fitted.x
    low_end = fitted.blocks[1]
    high_start = fitted.blocks[-2]
    low, high = (
        outcome.pooled_rate(float(total[block].sum()), float(weight[block].sum()))
        for block in (slice(low_end), slice(high_start, None))
    )
    least = np.min([low, *rate[low_end : low_end + 1]])
    most = np.max([high, *rate[max(high_start - 1, 0) : high_start]])
    return np.clip(rate, least, most)


def leakage(
    items: Items | Statistics,
    *,
    fresh: Items | None = None,
    out_of_fold: Items | None = None,
) -> Result:
    """Test whether scores were trained on outcomes, which posteriors would then count twice.

    Parameters
    ----------
    items : PoissonItems, NormalItems, BinomialItems, AmountItems or Statistics
        The items, or statistics of them where nothing else is given. Outcomes given an honest score
        vary at least by their noise, which shows heavy leaks only.
    fresh : PoissonItems, NormalItems, BinomialItems or AmountItems or None
        The same rows in the same order, with the same scores and outcomes seen later (not those of
        `split_items`).
    out_of_fold : PoissonItems, NormalItems, BinomialItems or AmountItems or None
        The same rows in the same order, with scores of the same model that has not seen them,
        compared after a straight-line calibration (not for a model that knows items by their
        earlier outcomes).

    Returns
    -------
    Result
        Its ``table`` has a row for each kind of evidence (``where``), with ``"fail"`` where scores
        leak, and a chance of at most 5% of any false alarm. The ``value`` is the least ratio of
        outcomes' variance to their noise among octaves of exposure; the calibration slope on fresh
        outcomes over that on the items' own; and the extra log-likelihood as a share of the
        out-of-fold scores' gain, of which up to 5% is not an alarm. ``data`` has ``z``.

    Raises
    ------
    ItemsError, FitError
        If items are not valid, or the others are not the same rows.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> frame = soc.simulation.s1(2000, seed=0)
    >>> frame["leaky"] = 0.5 * frame["score"] + 0.5 * frame["count"] / frame["exposure"]
    >>> items = soc.PoissonItems(frame, score="leaky", count="count", exposure="exposure")
    >>> list(soc.evaluate.leakage(items).table["verdict"])
    ['fail']
    """
    evidence = {"outcomes alone": _from_outcomes(items)}
    for name, other, where, judge in (
        ("fresh", fresh, "fresh outcomes", _from_fresh),
        ("out_of_fold", out_of_fold, "out-of-fold scores", _from_folds),
    ):
        if other is None:
            continue
        check_outcomes(other, name)
        if isinstance(items, Statistics):
            raise FitError(
                "statistics have no rows to compare: give leakage() the items"
            )
        if items.kind != other.kind:
            raise ItemsError(
                f"{name}= has {other.kind} items, not {items.kind} ones: give the same rows in "
                "the same order"
            )
        evidence[where] = judge(items.outcome, read_frame(items), read_frame(other))
    table = pd.DataFrame.from_dict(evidence, "index", columns=["value", "z", "p"])
    table = table.rename_axis("where").reset_index().assign(what="leakage")
    tolerated = table["where"].eq("out-of-fold scores") & table["value"].le(_TOLERANCE)
    honest = tolerated | (table["p"] >= _LEVEL / len(evidence))
    table["verdict"] = np.where(honest, OK, FAIL)
    failed = table.loc[~honest, ["where", "value", "z"]].to_numpy()
    leaks = [f"{_FINDINGS[where].format(x)} (z = {z:.1f})" for where, x, z in failed]
    advice = "No sign that scores saw their outcomes"
    if leaks:
        advice = (
            f"Scores saw their outcomes: {'; '.join(leaks)}. Posteriors would count these twice "
            "and intervals be too narrow: score every item by a model trained without it, such as "
            "by scikit-learn's cross_val_predict"
        )
    elif len(evidence) == 1:
        advice += (
            ", but outcomes alone show heavy leaks only: give fresh= or out_of_fold= to see "
            "lighter ones"
        )
    data = xr.Dataset({"z": ("evidence", table["z"])}, {"evidence": list(evidence)})
    return Result(result_table(table), data, (f"{advice}.",), "leakage")


# a value, its z, large where scores leak, and p
RatioTest = tuple[float, float, float]


def _from_outcomes(data: Items | Statistics) -> RatioTest:
    """Return the least variation by octave of exposure or noise sd; z with its sign turned."""
    stats = data
    if not isinstance(stats, Statistics):
        stats = summarize(stats, folds=0, on_leakage="ignore", progress=False)
    known = variation(stats)
    if not len(known.bin):
        return np.nan, 0.0, 1.0
    capped = np.minimum(known.excess, MOST_Z * np.sqrt(known.variance))
    _, octave = np.unique(known.octave, return_inverse=True)
    excess = np.bincount(octave, capped)
    noise = np.bincount(octave, known.noise)
    z = excess / np.sqrt(np.bincount(octave, known.variance))
    least = int(z.argmin())
    p = min(1.0, len(z) * float(special.ndtr(z[least])))
    # single trials that all came out alike have no noise
    effect = 1.0 + float(excess[least] / noise[least]) if noise[least] > 0 else 1.0
    return effect, -float(z[least]), p


def _from_fresh(
    outcome: Outcome, frame: pd.DataFrame, fresh: pd.DataFrame
) -> RatioTest:
    """Judge whether scores go with their items' outcomes more closely than with fresh ones."""
    check_rows(frame, fresh, {"score": "score"}, "fresh=")
    score, *outcomes = score_and_outcomes(frame, outcome)
    _, *later = score_and_outcomes(fresh, outcome)
    rank = special.ndtri((pd.Series(score).rank() - 0.5) / len(score))
    contrast, weight = outcome.contrast(*outcomes, *later)
    centred = rank - (weight @ rank) / weight.sum()
    _, before = calibration_line(outcome, score, *outcomes)
    _, after = calibration_line(outcome, score, *later)
    spread = np.sqrt(((centred * contrast) ** 2).sum())
    z = float(np.sign(before) * (centred @ contrast) / spread) if spread > 0 else 0.0
    return after / before if before else np.nan, z, float(special.ndtr(-z))


def _from_folds(
    outcome: Outcome, frame: pd.DataFrame, folds: pd.DataFrame
) -> RatioTest:
    """Return the extra log-likelihood of scores, as a share of what out-of-fold scores gain."""
    words = {outcome.observed: "outcome", outcome.size: "exposure or noise sd"}
    check_rows(frame, folds, words, "out_of_fold=")
    score, y, size = score_and_outcomes(frame, outcome)
    scores = score, folds["score"].to_numpy(dtype=float), np.ones(len(score))
    density, out_of_fold, none = (
        calibration_line(outcome, x, y, size)[0] for x in scores
    )
    extra = density - out_of_fold
    gain = float((out_of_fold - none).sum())
    z = float(extra.sum() / max(np.sqrt(len(extra)) * extra.std(), 1e-300))
    effect = float(extra.sum()) / max(gain, 1e-300) if extra.sum() > 0 else 0.0
    return effect, z, float(special.ndtr(-z))
