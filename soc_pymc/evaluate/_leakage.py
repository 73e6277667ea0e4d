"""`leakage`: evidence that scores were not made without the items' own outcomes.

The score's honesty is an assumption of the method (Sections 1 and 2 of Muralidharan and Najmi):
t must not be trained on the item's own y, or posteriors count y twice.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy import special, stats

from .._lib.errors import FitError, ItemsError
from ..checks.results import FAIL, OK, Result, result_table
from ..data.binning import group
from ..data.items import Items, check_outcomes
from ..data.statistics import Statistics
from ..data.summaries import summarize
from ..data.tables import batches, open_table, scan
from ..families.cells import STEPS
from ..families.outcomes import OUTCOMES, Outcome
from ..posterior.item_columns import columns_of

Columns = Mapping[str, NDArray[Any]]
Evidence = tuple[float, float, float, bool]
"""Effect, z, p-value, and whether it says that scores leak."""

_MOST_Z = 3.0  # of more variation than noise in one bin: that of theta
_LEVEL = 0.05  # chance of a false alarm
_TOLERANCE = 0.05  # of out-of-fold gain that training on more items may bring


def leakage(
    items: Items | Statistics, *, fresh: Items | None = None, out_of_fold: Items | None = None
) -> Result:
    """Say whether scores were trained on the outcomes that they are to be calibrated with.

    *Outcomes alone*: given an honest score and the exposure, outcomes vary at least by their noise;
    leaking scores sort items by it. Squared residuals within bins are compared with the noise, for
    every octave of exposure by itself. A leak must be heavy to show. *Fresh outcomes* of the same
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
        as those of scikit-learn's ``cross_val_predict``. More
        training data also make scores better: a gain of up to 5% of what out-of-fold scores gain
        over none is no alarm. Leave it out for a model that knows items by their earlier outcomes,
        which is honest and better than any that does not.

    Returns
    -------
    Result
        Its ``table`` has a row for each kind of evidence (``where``) that there was; a ``verdict``
        is ``"fail"`` where scores leak, with a chance of at most 5% of any false alarm. The
        ``value`` is the least ratio of outcomes' variance to their noise among octaves (NaN where
        no items of a bin and an octave have two events); the calibration slope (of log theta on log
        t, or of theta on t) on fresh outcomes over that on the items' own; and the extra
        log-likelihood as a share of the out-of-fold scores' gain. ``data`` has ``z`` by evidence,
        large where scores leak, and ``advice`` says what it means and what cannot be seen.

    Raises
    ------
    ItemsError
        If the items are not valid, or the others are not the same rows.
    FitError
        If statistics are given with what needs items.

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
    given = {"fresh": fresh, "out_of_fold": out_of_fold}
    others = {name: other for name, other in given.items() if other is not None}
    for name, other in others.items():
        check_outcomes(other, name)
    level = _LEVEL / (1 + len(others))
    if isinstance(items, Statistics):
        if others:
            raise FitError("statistics have no rows to compare: give leakage() the items")
        return _leakage({"outcomes alone": _from_outcomes(items, level)})
    statistics = summarize(items, folds=0, on_leakage="ignore", progress=False)
    rows, outcome = {"outcomes alone": _from_outcomes(statistics, level)}, OUTCOMES[items.kind]
    own = _columns(items, outcome) if others else {}
    for name, other in others.items():
        if items.kind != other.kind:
            raise ItemsError(
                f"{name}= has {other.kind} items, not {items.kind} ones: give the same rows in "
                "the same order"
            )
        title, judged = _JUDGED[name]
        rows[title] = judged(outcome, own, _columns(other, outcome), level)
    return _leakage(rows)


def _leakage(rows: dict[str, Evidence]) -> Result:
    """What all kinds of evidence say together."""
    table = result_table(
        {
            "what": "leakage",
            "where": name,
            "value": effect,
            "p": p,
            "verdict": FAIL if leaks else OK,
        }
        for name, (effect, _, p, leaks) in rows.items()
    )
    z = xr.DataArray([z for _, z, *_ in rows.values()], {"evidence": list(rows)}, "evidence")
    return Result(table, xr.Dataset({"z": z}), (_in_words(rows),), "leakage")


_FINDINGS = {
    "outcomes alone": "outcomes vary by {effect:.2f} of their noise where they vary least",
    "fresh outcomes": "the calibration slope is {effect:.2f} times as steep on fresh outcomes",
    "out-of-fold scores": "the scores gain {effect:.0%} more than out-of-fold ones",
}


def _in_words(rows: dict[str, Evidence]) -> str:
    found = [
        f"{_FINDINGS[name].format(effect=effect)} (z = {z:.1f})"
        for name, (effect, z, _, leaks) in rows.items()
        if leaks
    ]
    if found:
        return (
            f"Scores saw their outcomes: {'; '.join(found)}. Posteriors would count these twice "
            "and intervals be too narrow: score every item by a model trained without it, such as "
            "by scikit-learn's cross_val_predict."
        )
    if len(rows) == 1:
        return (
            "No sign that scores saw their outcomes, but outcomes alone show heavy leaks only: "
            "give fresh= or out_of_fold= to see lighter ones."
        )
    return "No sign that scores saw their outcomes."


def _from_outcomes(found: Statistics, level: float) -> Evidence:
    """Least variation by octave of exposure or noise sd; z with its sign turned."""
    outcome = OUTCOMES[found.kind]
    margin = outcome.margins[0]
    cells = found.cells(margin)
    octaves = {**cells, "cell": cells["cell"] >> STEPS}
    groups = group(octaves, ("bin", "cell"), dict.fromkeys(outcome.sums(margin), np.add))
    known, excess, variance, noise = outcome.forms.excess(groups, found.data)
    if not len(excess):
        return np.nan, 0.0, 1.0, False
    # one bin whose theta varies must not hide many in which outcomes hardly do
    capped = np.minimum(excess, _MOST_Z * np.sqrt(variance))
    _, at = np.unique(groups["cell"][known], return_inverse=True)
    total, spread, scale = (np.bincount(at, x) for x in (capped, variance, noise))
    z = total / np.sqrt(spread)
    least = int(z.argmin())
    p_value = min(1.0, len(z) * float(stats.norm.cdf(z[least])))
    # single trials that all came out alike have no noise
    effect = 1.0 + float(total[least] / scale[least]) if scale[least] > 0 else 1.0
    return effect, -float(z[least]), p_value, p_value < level


# --- the same rows twice -------------------------------------------------------------------------


def _columns(items: Items, outcome: Outcome) -> Columns:
    """Score, outcome and size of valid items, as ``score``, ``y`` and ``size``."""
    scan(items, progress=False)
    names = {"y": outcome.observed, "size": outcome.size}
    roles = {"score": items.score} | {c: items.roles[role] for c, role in names.items()}
    table = open_table(items.source, list(roles.values()))
    parts = [columns_of(batch, roles) for batch in batches(table, size=1 << 18)]
    return {c: np.concatenate([p[c] for p in parts]) for c in roles}


def _check_rows(one: Columns, two: Columns, names: tuple[str, ...], what: str) -> None:
    """Refuse other rows."""
    same = "give the same rows in the same order"
    if len(one["score"]) != len(two["score"]):
        raise ItemsError(
            f"{what}= has {len(two['score']):,} items, not {len(one['score']):,}: {same}"
        )
    for name in names:
        if wrong := int((one[name] != two[name]).sum()):
            role = {"y": "outcome", "size": "exposure or noise sd"}.get(name, name)
            raise ItemsError(
                f"{what}=: {wrong:,} of {len(one[name]):,} rows have another {role}: {same}"
            )


def _from_fresh(outcome: Outcome, own: Columns, new: Columns, level: float) -> Evidence:
    """Whether scores go with their own outcomes more closely than with fresh ones."""
    _check_rows(own, new, ("score",), "fresh")
    score = own["score"]
    rank = special.ndtri((stats.rankdata(score) - 0.5) / len(score))
    away, weight = outcome.forms.contrast(own["y"], own["size"], new["y"], new["size"])
    towards = rank - (weight @ rank) / weight.sum()
    slopes = [outcome.forms.line(score, x["y"], x["size"])[1] for x in (own, new)]
    spread = np.sqrt(((towards * away) ** 2).sum())
    z = float(np.sign(slopes[0]) * (towards @ away) / spread) if spread > 0 else 0.0
    p_value = float(stats.norm.sf(z))
    return slopes[1] / slopes[0] if slopes[0] else np.nan, z, p_value, p_value < level


def _from_folds(outcome: Outcome, own: Columns, folds: Columns, level: float) -> Evidence:
    """How much better scores describe the outcomes than out-of-fold scores do."""
    _check_rows(own, folds, ("y", "size"), "out_of_fold")
    scores = own["score"], folds["score"], np.ones(len(own["score"]))
    mine, theirs, none = (outcome.forms.line(x, own["y"], own["size"])[0] for x in scores)
    more = mine - theirs
    gain = float((theirs - none).sum())
    z = float(more.sum() / max(np.sqrt(len(more)) * more.std(), 1e-300))
    effect = float(more.sum()) / max(gain, 1e-300) if more.sum() > 0 else 0.0
    p_value = float(stats.norm.sf(z))
    return effect, z, p_value, p_value < level and effect > _TOLERANCE


_JUDGED = {
    "fresh": ("fresh outcomes", _from_fresh),
    "out_of_fold": ("out-of-fold scores", _from_folds),
}
