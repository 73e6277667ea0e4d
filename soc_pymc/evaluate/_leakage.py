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
from ..checks.observations import check_rows
from ..checks.results import FAIL, OK, Result, finding, result_table
from ..data.binning import added
from ..data.items import Items, check_outcomes
from ..data.statistics import Statistics
from ..data.summaries import summarize
from ..families.outcomes import OUTCOMES, Outcome
from ..families.scales import STEPS
from .splitting import read_frame

Evidence = dict[str, Any]
"""A row of the table with ``z``, large where scores leak."""

_MOST_Z = 3.0  # cap on one bin's excess over noise, because its theta may vary
_LEVEL = 0.05  # chance of a false alarm
_TOLERANCE = 0.05  # share of out-of-fold gain that training on more items may bring
_FINDINGS = {
    "outcomes alone": "outcomes vary by {value:.2f} of their noise where they vary least",
    "fresh outcomes": "the calibration slope is {value:.2f} times as steep on fresh outcomes",
    "out-of-fold scores": "the scores gain {value:.0%} more than out-of-fold ones",
}


def leakage(
    items: Items | Statistics, *, fresh: Items | None = None, out_of_fold: Items | None = None
) -> Result:
    """Test whether scores were trained on the outcomes that they are to be calibrated with.

    Parameters
    ----------
    items
        The items, or statistics of them where nothing else is given. Given an honest score,
        outcomes vary at least by their noise; only a heavy leak shows.
    fresh
        The same rows in the same order with the same scores and outcomes seen later (not those of
        `split_items`): a leaking score goes more closely with the outcomes that it saw.
    out_of_fold
        The same rows in the same order with scores of the same model that has not seen them, such
        as those of scikit-learn's ``cross_val_predict``: leaking scores have a larger
        log-likelihood, after a straight-line calibration of both. Leave it out for a model that
        knows items by their earlier outcomes.

    Returns
    -------
    Result
        Its ``table`` has a row for each kind of evidence (``where``); a ``verdict`` is ``"fail"``
        where scores leak, with a chance of at most 5% of any false alarm. The ``value`` is the
        least ratio of outcomes' variance to their noise among octaves of exposure (NaN where no
        items of a bin and an octave have two events); the calibration slope on fresh outcomes over
        that on the items' own; and the extra log-likelihood as a share of the out-of-fold scores'
        gain, of which up to 5% is not an alarm. ``data`` has ``z`` by evidence.

    Raises
    ------
    ItemsError, FitError
        If items are not valid, the others are not the same rows, or statistics have others beside
        them.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> frame = soc.simulation.s1(2000, seed=0)
    >>> frame["leaky"] = 0.5 * frame["score"] + 0.5 * frame["count"] / frame["exposure"]
    >>> items = soc.PoissonItems(frame, score="leaky", count="count", exposure="exposure")
    >>> list(soc.evaluate.leakage(items).table["verdict"])
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


def _outcomes(frame: pd.DataFrame, outcome: Outcome) -> Any:
    """Outcomes and their sizes."""
    return (frame[name].to_numpy(dtype=float) for name in (outcome.observed, outcome.size))


def _from_fresh(
    outcome: Outcome, frame: pd.DataFrame, fresh: pd.DataFrame, level: float
) -> Evidence:
    """Evidence that scores go with their items' outcomes more closely than with fresh ones."""
    check_rows(frame, fresh, {"score": "score"}, "fresh=")
    score = frame["score"].to_numpy(dtype=float)
    rank = special.ndtri((stats.rankdata(score) - 0.5) / len(score))
    seen_outcomes, later = (tuple(_outcomes(x, outcome)) for x in (frame, fresh))
    contrast, weight = outcome.forms.contrast(*seen_outcomes, *later)
    centred = rank - (weight @ rank) / weight.sum()
    before, after = (outcome.forms.line(score, *pair)[1] for pair in (seen_outcomes, later))
    spread = np.sqrt(((centred * contrast) ** 2).sum())
    z = float(np.sign(before) * (centred @ contrast) / spread) if spread > 0 else 0.0
    p = float(stats.norm.sf(z))
    return _evidence("fresh outcomes", after / before if before else np.nan, z, p, p < level)


def _from_folds(
    outcome: Outcome, frame: pd.DataFrame, folds: pd.DataFrame, level: float
) -> Evidence:
    """Extra log-likelihood of scores, as a share of what out-of-fold scores gain."""
    words = {outcome.observed: "outcome", outcome.size: "exposure or noise sd"}
    check_rows(frame, folds, words, "out_of_fold=")
    y, size = _outcomes(frame, outcome)
    scores = *(x["score"].to_numpy(dtype=float) for x in (frame, folds)), np.ones(len(frame))
    density, out_of_fold, none = (outcome.forms.line(x, y, size)[0] for x in scores)
    extra = density - out_of_fold
    gain = float((out_of_fold - none).sum())
    z = float(extra.sum() / max(np.sqrt(len(extra)) * extra.std(), 1e-300))
    effect = float(extra.sum()) / max(gain, 1e-300) if extra.sum() > 0 else 0.0
    p = float(stats.norm.sf(z))
    leaks = p < level and effect > _TOLERANCE
    return _evidence("out-of-fold scores", effect, z, p, leaks)
