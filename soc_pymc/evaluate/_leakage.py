"""`leakage`: evidence that scores were not made without the items' own outcomes.

The score's honesty is an assumption of the method (Sections 1 and 2 of Muralidharan and Najmi):
t must not be trained on the item's own y, or posteriors count y twice.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray
from scipy import special, stats

from .._lib.errors import FitError, ItemsError
from ..checks.results import FAIL, OK, Result, result_table
from ..data.binning import group
from ..data.items import Items, check_outcomes
from ..data.sources import batches, open_table
from ..data.statistics import Statistics
from ..data.summaries import summarize
from ..data.validation import scan
from ..families.cells import STEPS
from ..families.outcomes import OUTCOMES, Outcome
from ..posterior.item_columns import columns_of

Columns = Mapping[str, NDArray[Any]]

_MOST_Z = 3.0  # of more variation than noise in one bin: that of theta
_LEVEL = 0.05  # chance of a false alarm
_TOLERANCE = 0.05  # of out-of-fold gain that training on more items may bring


def leakage(
    items: Items | Statistics, *, fresh: Items | None = None, out_of_fold: Items | None = None
) -> Result:
    """Test whether scores were trained on the outcomes that they are to be calibrated with.

    *Outcomes alone*: given an honest score and the exposure, outcomes vary at least by their noise;
    leaking scores sort items by it. A leak must be heavy to show. *Fresh outcomes* of the same
    items: an honest score goes with both outcomes alike, up to a common factor; a leaking one more
    closely with those that it saw. *Out-of-fold scores* of the same model: their log-likelihood,
    after a straight-line calibration of both, is less than that of leaking scores.

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
    columns = _columns(items, outcome) if others else {}
    for name, other in others.items():
        if items.kind != other.kind:
            raise ItemsError(
                f"{name}= has {other.kind} items, not {items.kind} ones: give the same rows in "
                "the same order"
            )
        judge = _from_fresh if name == "fresh" else _from_folds
        rows.append(judge(outcome, columns, _columns(other, outcome), level))
    return _result(rows)


@dataclass(frozen=True)
class _Evidence:
    """One kind of evidence on whether scores leak."""

    where: str
    effect: float
    z: float  # large where scores leak
    p: float
    leaks: bool


_FINDINGS = {
    "outcomes alone": "outcomes vary by {0.effect:.2f} of their noise where they vary least",
    "fresh outcomes": "the calibration slope is {0.effect:.2f} times as steep on fresh outcomes",
    "out-of-fold scores": "the scores gain {0.effect:.0%} more than out-of-fold ones",
}


def _result(rows: list[_Evidence]) -> Result:
    """All kinds of evidence together."""
    table = pd.DataFrame([vars(row) for row in rows]).rename(columns={"effect": "value"})
    table["verdict"] = np.where(table["leaks"], FAIL, OK)
    z = xr.DataArray(table["z"], {"evidence": table["where"].tolist()}, "evidence")
    findings = [
        f"{_FINDINGS[row.where].format(row)} (z = {row.z:.1f})" for row in rows if row.leaks
    ]
    advice = "No sign that scores saw their outcomes."
    if findings:
        advice = (
            f"Scores saw their outcomes: {'; '.join(findings)}. Posteriors would count these twice "
            "and intervals be too narrow: score every item by a model trained without it, such as "
            "by scikit-learn's cross_val_predict."
        )
    elif len(rows) == 1:
        advice = (
            "No sign that scores saw their outcomes, but outcomes alone show heavy leaks only: "
            "give fresh= or out_of_fold= to see lighter ones."
        )
    table = result_table(table.assign(what="leakage"))
    return Result(table, xr.Dataset({"z": z}), (advice,), "leakage")


def _from_outcomes(statistics: Statistics, level: float) -> _Evidence:
    """Least variation by octave of exposure or noise sd; z with its sign turned."""
    title, outcome = "outcomes alone", OUTCOMES[statistics.kind]
    margin = outcome.margins[0]
    cells = statistics.cells(margin)
    octaves = {**cells, "cell": cells["cell"] >> STEPS}
    groups = group(octaves, ("bin", "cell"), dict.fromkeys(outcome.sums(margin), np.add))
    known, excess, variance, noise = outcome.forms.excess(groups, statistics.data)
    if not len(excess):
        return _Evidence(title, np.nan, 0.0, 1.0, False)
    # one bin whose theta varies must not hide many in which outcomes hardly do
    capped = np.minimum(excess, _MOST_Z * np.sqrt(variance))
    _, octave = np.unique(groups["cell"][known], return_inverse=True)
    total, spread, scale = (np.bincount(octave, x) for x in (capped, variance, noise))
    z = total / np.sqrt(spread)
    least = int(z.argmin())
    p = min(1.0, len(z) * float(stats.norm.cdf(z[least])))
    # single trials that all came out alike have no noise
    effect = 1.0 + float(total[least] / scale[least]) if scale[least] > 0 else 1.0
    return _Evidence(title, effect, -float(z[least]), p, p < level)


# --- the same rows twice -------------------------------------------------------------------------


def _columns(items: Items, outcome: Outcome) -> Columns:
    """Score, outcome and size of valid items, as ``score``, ``y`` and ``size``."""
    scan(items, progress=False)
    names = {"score": "score", "y": outcome.observed, "size": outcome.size}
    roles = {name: items.roles[role] for name, role in names.items()}
    table = open_table(items.source, list(roles.values()))
    parts = [columns_of(batch, roles) for batch in batches(table, size=1 << 18)]
    return {c: np.concatenate([part[c] for part in parts]) for c in roles}


def _check_rows(columns: Columns, others: Columns, names: tuple[str, ...], what: str) -> None:
    """Refuse other rows."""
    same = "give the same rows in the same order"
    n = len(columns["score"])
    if len(others["score"]) != n:
        raise ItemsError(f"{what}= has {len(others['score']):,} items, not {n:,}: {same}")
    for name in names:
        if wrong := int((columns[name] != others[name]).sum()):
            role = {"y": "outcome", "size": "exposure or noise sd"}.get(name, name)
            raise ItemsError(f"{what}=: {wrong:,} of {n:,} rows have another {role}: {same}")


def _from_fresh(outcome: Outcome, columns: Columns, fresh: Columns, level: float) -> _Evidence:
    """Evidence that scores go with their items' outcomes more closely than with fresh ones."""
    _check_rows(columns, fresh, ("score",), "fresh")
    score = columns["score"]
    rank = special.ndtri((stats.rankdata(score) - 0.5) / len(score))
    pair = columns, fresh
    contrast, weight = outcome.forms.contrast(*(x[name] for x in pair for name in ("y", "size")))
    centred = rank - (weight @ rank) / weight.sum()
    before, after = (outcome.forms.line(score, x["y"], x["size"])[1] for x in pair)
    spread = np.sqrt(((centred * contrast) ** 2).sum())
    z = float(np.sign(before) * (centred @ contrast) / spread) if spread > 0 else 0.0
    p = float(stats.norm.sf(z))
    return _Evidence("fresh outcomes", after / before if before else np.nan, z, p, p < level)


def _from_folds(outcome: Outcome, columns: Columns, folds: Columns, level: float) -> _Evidence:
    """Extra log-likelihood of scores, as a share of what out-of-fold scores gain."""
    _check_rows(columns, folds, ("y", "size"), "out_of_fold")
    scores = columns["score"], folds["score"], np.ones(len(columns["score"]))
    density, out_of_fold, none = (
        outcome.forms.line(x, columns["y"], columns["size"])[0] for x in scores
    )
    more = density - out_of_fold
    gain = float((out_of_fold - none).sum())
    z = float(more.sum() / max(np.sqrt(len(more)) * more.std(), 1e-300))
    effect = float(more.sum()) / max(gain, 1e-300) if more.sum() > 0 else 0.0
    p = float(stats.norm.sf(z))
    return _Evidence("out-of-fold scores", effect, z, p, p < level and effect > _TOLERANCE)
