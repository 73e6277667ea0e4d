"""`leakage`: evidence that scores were not made without the items' own outcomes.

The score's honesty is an assumption of the method (Sections 1 and 2 of Muralidharan and Najmi):
t must not be trained on the item's own y, or posteriors count y twice.
"""

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from scipy import special, stats

from .._lib.errors import FitError, ItemsError
from ..checks.results import FAIL, OK, Result, finding, result_table
from ..data.binning import added
from ..data.items import Items, check_outcomes
from ..data.statistics import Statistics
from ..data.summaries import summarize
from ..families.cells import STEPS
from ..families.outcomes import OUTCOMES, Outcome
from .splitting import read_frame

Evidence = dict[str, Any]
"""A row of the table with ``z``, large where scores leak."""

_MOST_Z = 3.0  # of more variation than noise in one bin: that of theta
_LEVEL = 0.05  # chance of a false alarm
_TOLERANCE = 0.05  # of out-of-fold gain that training on more items may bring
_FINDINGS = {
    "outcomes alone": "outcomes vary by {value:.2f} of their noise where they vary least",
    "fresh outcomes": "the calibration slope is {value:.2f} times as steep on fresh outcomes",
    "out-of-fold scores": "the scores gain {value:.0%} more than out-of-fold ones",
}


def leakage(
    items: Items | Statistics, *, fresh: Items | None = None, out_of_fold: Items | None = None
) -> Result:
    """Test whether scores were trained on the outcomes that they are to be calibrated with.

    *Outcomes alone*: given an honest score, outcomes vary at least by their noise; only a heavy
    leak shows. *Fresh outcomes* of the same items: an honest score goes with both alike, up to a
    common factor; a leaking one more closely with those that it saw. *Out-of-fold scores* of the
    same model: their log-likelihood, after a straight-line calibration of both, is less than that
    of leaking scores.

    Parameters
    ----------
    items
        The items, or statistics of them where nothing else is given.
    fresh
        The same rows in the same order with the same scores and outcomes seen later or held out
        (`split_items` does not serve: its parts were in the scores together).
    out_of_fold
        The same rows in the same order with scores of the same model that has not seen them, such
        as those of scikit-learn's ``cross_val_predict``. More training data also make scores
        better: a gain of up to 5% of what out-of-fold scores gain over none is no alarm. Leave it
        out for a model that knows items by their earlier outcomes, which is honest.

    Returns
    -------
    Result
        Its ``table`` has a row for each kind of evidence (``where``); a ``verdict`` is ``"fail"``
        where scores leak, with a chance of at most 5% of any false alarm. The ``value`` is the
        least ratio of outcomes' variance to their noise among octaves of exposure (NaN where no
        items of a bin and an octave have two events); the calibration slope on fresh outcomes over
        that on the items' own; and the extra log-likelihood as a share of the out-of-fold scores'
        gain. ``data`` has ``z`` by evidence, large where scores leak.

    Raises
    ------
    ItemsError, FitError
        If the items are not valid, the others are not the same rows, or statistics are given with
        what needs items.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> frame = soc.simulation.s1(2000, seed=0)
    >>> roles = {"count": "count", "exposure": "exposure"}
    >>> result = soc.evaluate.leakage(soc.PoissonItems(frame, score="score", **roles))
    >>> list(result.table["verdict"])
    ['ok']
    >>> frame["leaky"] = 0.5 * frame["score"] + 0.5 * frame["count"] / frame["exposure"]
    >>> result = soc.evaluate.leakage(soc.PoissonItems(frame, score="leaky", **roles))
    >>> list(result.table["verdict"])
    ['fail']
    """
    optional = {"fresh": fresh, "out_of_fold": out_of_fold}
    others = {name: other for name, other in optional.items() if other is not None}
    for name, other in others.items():
        check_outcomes(other, name)
    level = _LEVEL / (1 + len(others))
    if isinstance(items, Statistics):
        if others:
            raise FitError("statistics have no rows to compare: give leakage() the items")
        return _result([_from_outcomes(items, level)])
    statistics = summarize(items, folds=0, on_leakage="ignore", progress=False)
    rows, outcome = [_from_outcomes(statistics, level)], OUTCOMES[items.kind]
    frame = read_frame(items) if others else pd.DataFrame()
    for name, other in others.items():
        if items.kind != other.kind:
            raise ItemsError(
                f"{name}= has {other.kind} items, not {items.kind} ones: give the same rows in "
                "the same order"
            )
        judge = _from_fresh if name == "fresh" else _from_folds
        rows.append(judge(outcome, frame, read_frame(other), level))
    return _result(rows)


def _result(rows: list[Evidence]) -> Result:
    """All kinds of evidence together."""
    table = pd.DataFrame(rows)
    z = xr.DataArray(table["z"], {"evidence": table["where"].tolist()}, "evidence")
    leaks = [
        f"{_FINDINGS[row['where']].format(**row)} (z = {row['z']:.1f})"
        for row in rows
        if row["verdict"] == FAIL
    ]
    advice = "No sign that scores saw their outcomes."
    if leaks:
        advice = (
            f"Scores saw their outcomes: {'; '.join(leaks)}. Posteriors would count these twice "
            "and intervals be too narrow: score every item by a model trained without it, such as "
            "by scikit-learn's cross_val_predict."
        )
    elif len(rows) == 1:
        advice = (
            "No sign that scores saw their outcomes, but outcomes alone show heavy leaks only: "
            "give fresh= or out_of_fold= to see lighter ones."
        )
    return Result(result_table(table), xr.Dataset({"z": z}), (advice,), "leakage")


def _evidence(where: str, value: float, z: float, p: float, leaks: bool) -> Evidence:
    return finding("leakage", where, value, p, FAIL if leaks else OK) | {"z": z}


def _from_outcomes(statistics: Statistics, level: float) -> Evidence:
    """Least variation by octave of exposure or noise sd; z with its sign turned."""
    title, outcome = "outcomes alone", OUTCOMES[statistics.kind]
    margin = outcome.margins[0]
    cells = statistics.cells(margin)
    octaves = {**cells, "cell": cells["cell"] >> STEPS}
    groups = added(octaves, ("bin", "cell"), outcome.sums(margin))
    known, excess, variance, noise = outcome.forms.excess(groups, statistics.data)
    if not len(excess):
        return _evidence(title, np.nan, 0.0, 1.0, False)
    # one bin whose theta varies must not hide many in which outcomes hardly do
    capped = np.minimum(excess, _MOST_Z * np.sqrt(variance))
    _, octave = np.unique(groups["cell"][known], return_inverse=True)
    total, spread, scale = (np.bincount(octave, x) for x in (capped, variance, noise))
    z = total / np.sqrt(spread)
    least = int(z.argmin())
    p = min(1.0, len(z) * float(stats.norm.cdf(z[least])))
    # single trials that all came out alike have no noise
    effect = 1.0 + float(total[least] / scale[least]) if scale[least] > 0 else 1.0
    return _evidence(title, effect, -float(z[least]), p, p < level)


# --- the same rows twice -------------------------------------------------------------------------


def _check_rows(frame: pd.DataFrame, other: pd.DataFrame, names: dict[str, str], what: str) -> None:
    """Refuse other rows: columns, with the words for them, must be the same."""
    same = "give the same rows in the same order"
    if len(other) != len(frame):
        raise ItemsError(f"{what}= has {len(other):,} items, not {len(frame):,}: {same}")
    for name, word in names.items():
        if wrong := int((frame[name] != other[name]).sum()):
            raise ItemsError(
                f"{what}=: {wrong:,} of {len(frame):,} rows have another {word}: {same}"
            )


def _outcomes(frame: pd.DataFrame, outcome: Outcome) -> Any:
    """Outcomes and their sizes."""
    return (frame[name].to_numpy(dtype=float) for name in (outcome.observed, outcome.size))


def _from_fresh(
    outcome: Outcome, frame: pd.DataFrame, fresh: pd.DataFrame, level: float
) -> Evidence:
    """Evidence that scores go with their items' outcomes more closely than with fresh ones."""
    _check_rows(frame, fresh, {"score": "score"}, "fresh")
    score = frame["score"].to_numpy(dtype=float)
    rank = special.ndtri((stats.rankdata(score) - 0.5) / len(score))
    own, later = (tuple(_outcomes(x, outcome)) for x in (frame, fresh))
    contrast, weight = outcome.forms.contrast(*own, *later)
    centred = rank - (weight @ rank) / weight.sum()
    before, after = (outcome.forms.line(score, *pair)[1] for pair in (own, later))
    spread = np.sqrt(((centred * contrast) ** 2).sum())
    z = float(np.sign(before) * (centred @ contrast) / spread) if spread > 0 else 0.0
    p = float(stats.norm.sf(z))
    return _evidence("fresh outcomes", after / before if before else np.nan, z, p, p < level)


def _from_folds(
    outcome: Outcome, frame: pd.DataFrame, folds: pd.DataFrame, level: float
) -> Evidence:
    """Extra log-likelihood of scores, as a share of what out-of-fold scores gain."""
    words = {outcome.observed: "outcome", outcome.size: "exposure or noise sd"}
    _check_rows(frame, folds, words, "out_of_fold")
    y, size = _outcomes(frame, outcome)
    scores = *(x["score"].to_numpy(dtype=float) for x in (frame, folds)), np.ones(len(frame))
    density, out_of_fold, none = (outcome.forms.line(x, y, size)[0] for x in scores)
    more = density - out_of_fold
    gain = float((out_of_fold - none).sum())
    z = float(more.sum() / max(np.sqrt(len(more)) * more.std(), 1e-300))
    effect = float(more.sum()) / max(gain, 1e-300) if more.sum() > 0 else 0.0
    p = float(stats.norm.sf(z))
    leaks = p < level and effect > _TOLERANCE
    return _evidence("out-of-fold scores", effect, z, p, leaks)
