"""Did the scores see the outcomes? Evidence from outcomes alone, fresh ones, out-of-fold scores.

The score's honesty is an assumption of the method (Sections 1 and 2 of Muralidharan and Najmi):
t must not be trained on the item's own y, or posteriors count y twice.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special, stats

from .._lib.errors import FitError, ItemsError
from ..data.binning import STEPS, group
from ..data.items import Items, NormalItems, PoissonItems, check_items
from ..data.statistics import Statistics
from ..data.summaries import summarize
from ..data.tables import batches, open_table, scan
from ..posterior.item_columns import columns_of

__all__ = ["Leakage", "leakage"]

Floats = NDArray[np.float64]
Columns = Mapping[str, NDArray[Any]]

_MOST_Z = 3.0  # of more variation than noise in one bin: that of theta
_LEVEL = 0.05  # chance of a false alarm
_TOLERANCE = 0.05  # of out-of-fold gain that training on more items may bring


@dataclass(frozen=True)
class Leakage:
    """Evidence that scores saw the outcomes.

    Attributes
    ----------
    found
        Whether one of the kinds of evidence says so, with a chance of at most 5% of a false alarm.
    table
        One row for each kind of evidence that there was: ``effect`` (see `words`; NaN where no
        items of a bin and an octave of size have two events, and of fresh outcomes where scores say
        nothing of their own), ``z`` (large where scores leak), ``p_value`` and ``leaks``.
    words
        What it means, in a few sentences, with what cannot be seen.

    Examples
    --------
    >>> import pandas as pd
    >>> Leakage(False, pd.DataFrame(), "nothing was looked at").found
    False
    """

    found: bool
    table: pd.DataFrame
    words: str

    def __repr__(self) -> str:
        return f"<soc_pymc.evaluate.Leakage: {self.words}>"


def leakage(
    items: Items | Statistics, *, fresh: Items | None = None, out_of_fold: Items | None = None
) -> Leakage:
    """Whether scores were trained on the outcomes that they are to be calibrated with.

    *Outcomes alone*: given an honest score and the exposure, outcomes vary at least by their noise
    about a common mean, whatever theta does; leaking scores sort items by their noise. Squared
    residuals within bins are compared with Poisson noise (that of trials where no count exceeds its
    exposure; the noise sds), for every octave of exposure by itself, as noise is what small ones
    are made of. A leak must be heavy to show. *Fresh outcomes* of the same items: an honest score
    goes with both outcomes alike, up to a common factor; a leaking one more closely with those that
    it saw. *Out-of-fold scores* of the same model: their log-likelihood, after a straight-line
    calibration of both, is less than that of leaking scores.

    Parameters
    ----------
    items
        The items, or statistics of them where nothing else is given.
    fresh
        The same rows in the same order with the same scores and outcomes seen later or held out
        (`split_items` does not serve: its parts were in the scores together).
    out_of_fold
        The same rows in the same order with scores from `cross_fit`, of the same model. More
        training data also make scores better: a gain of up to 5% of what out-of-fold scores gain
        over none is no alarm. Leave it out for a model that knows items by their earlier outcomes,
        which is honest and better than any that does not.

    Returns
    -------
    Leakage
        The ``effect`` is the least ratio of outcomes' variance to their noise among octaves; the
        calibration slope (of log theta on log t, or of theta on t) on fresh outcomes over that on
        the items' own; and the extra log-likelihood as a share of the out-of-fold scores' gain.

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
    >>> soc.evaluate.leakage(soc.PoissonItems(frame, score="score", **roles)).found
    False
    >>> frame["leaky"] = 0.5 * frame["score"] + 0.5 * frame["count"] / frame["exposure"]
    >>> soc.evaluate.leakage(soc.PoissonItems(frame, score="leaky", **roles)).found
    True
    """
    given = {"fresh": fresh, "out_of_fold": out_of_fold}
    others = [x for x in given.values() if x is not None]
    for name, other in given.items():
        if other is not None:
            check_items(other, name)
    rows: dict[str, tuple[float, float, float, bool]] = {}
    if isinstance(items, Statistics):
        if others:
            raise FitError("statistics have no rows to compare: give leakage() the items")
        statistics = items
    else:
        statistics = summarize(items, folds=0, on_leakage="ignore", progress=False)
    level = _LEVEL / (1 + len(others))
    rows["outcomes alone"] = _from_outcomes(statistics, level)
    if not isinstance(items, Statistics):
        own = _columns(items) if others else {}
        if fresh is not None:
            rows["fresh outcomes"] = _from_fresh(own, _columns(fresh), level)
        if out_of_fold is not None:
            rows["out-of-fold scores"] = _from_folds(own, _columns(out_of_fold), level)
    columns = ["effect", "z", "p_value", "leaks"]
    table = pd.DataFrame.from_dict(rows, orient="index", columns=columns)
    table.index.name = "evidence"
    return Leakage(bool(table["leaks"].any()), table, _words(table))


_MEANS = {
    "outcomes alone": "outcomes vary by {effect:.2f} of their noise where they vary least",
    "fresh outcomes": "the calibration slope is {effect:.2f} times as steep on fresh outcomes",
    "out-of-fold scores": "the scores gain {effect:.0%} more than out-of-fold ones",
}


def _words(table: pd.DataFrame) -> str:
    said = [
        f"{_MEANS[str(name)].format(effect=row['effect'])} (z = {row['z']:.1f})"
        for name, row in table.iterrows()
        if row["leaks"]
    ]
    if said:
        return (
            f"scores saw their outcomes: {'; '.join(said)}. Posteriors would count these twice and "
            "intervals be too narrow: score every item by a model trained without it, such as by "
            "soc.evaluate.cross_fit"
        )
    if len(table) == 1:
        return (
            "no sign that scores saw their outcomes, but outcomes alone show heavy leaks only: "
            "give fresh= or out_of_fold= to see lighter ones"
        )
    return "no sign that scores saw their outcomes"


# --- outcomes alone ------------------------------------------------------------------------------


def _from_outcomes(found: Statistics, level: float) -> tuple[float, float, float, bool]:
    """Least variation by octave of exposure or noise sd; z with its sign turned."""
    octave, excess, variance, noise = (_counts if found.kind == "poisson" else _values)(found)
    if not len(octave):
        return np.nan, 0.0, 1.0, False
    # one bin whose theta varies must not hide many in which outcomes hardly do
    capped = np.minimum(excess, _MOST_Z * np.sqrt(variance))
    _, at = np.unique(octave, return_inverse=True)
    total, spread, scale = (np.bincount(at, x) for x in (capped, variance, noise))
    z = total / np.sqrt(spread)
    least = int(z.argmin())
    p_value = min(1.0, len(z) * float(stats.norm.cdf(z[least])))
    # single trials that all came out alike have no noise
    effect = 1.0 + float(total[least] / scale[least]) if scale[least] > 0 else 1.0
    return effect, -float(z[least]), p_value, p_value < level


def _counts(found: Statistics) -> tuple[NDArray[Any], Floats, Floats, Floats]:
    """Octaves of groups of items, excess of squared residuals over noise, its variance, noise.

    All in units of the group's expected count, given which a count of m among n items is
    multinomial: the sum of squares then has the variance 2 m (m - 1) (1 - 1/n) sum p^2.
    """
    sums = ("n", "sum_N", "sum_N2", "sum_y", "sum_yN", "sum_y2")
    cells = found.cells("exposure")
    octave = {**cells, "cell": cells["cell"] >> STEPS}
    groups = group(octave, ("bin", "cell"), dict.fromkeys(sums, np.add))
    told = (groups["sum_y"] > 1) & (groups["n"] > 1)
    cell, n, x1, x2, y1, xy, y2 = (groups[name][told] for name in ("cell", *sums))
    own = y1 / x1
    expected = own * x2 / x1
    noise = y1 - expected
    if not found.data["above"].any():  # trials; mu (1 - mu) of X of them is low by 1 - 1/X
        noise = noise * (1 - own) / np.maximum(1 - 1 / x1, 1e-9)
    excess = y2 - 2 * own * xy + own**2 * x2 - noise
    # whole numbers would overflow from 3e9 events on
    variance = 2.0 * y1 * (y1 - 1.0) * (1 - 1 / n) * x2 / x1**2
    return cell, excess / expected, variance / expected**2, noise / expected


def _values(found: Statistics) -> tuple[NDArray[Any], Floats, Floats, Floats]:
    """The same of values, in units of the squared noise sd."""
    sums = ("n", "sum_w", "sum_w2", "sum_y", "sum_y2")
    cells = found.cells("noise")
    octave = {**cells, "cell": cells["cell"] >> STEPS}
    groups = group(octave, ("bin", "cell"), dict.fromkeys(sums, np.add))
    told = groups["n"] > 1
    cell, n, w1, w2, y1, y2 = (groups[name][told] for name in ("cell", *sums))
    noise, share = w1 / n, 1 - 1 / n
    excess = (y2 - y1 * (y1 / n) - share * w1) / noise
    return cell, excess, 2 * share * w2 / noise**2, share * n


# --- the same rows twice -------------------------------------------------------------------------


def _columns(items: Items) -> dict[str, NDArray[Any]]:
    """Score, outcome and size of valid items, as ``y`` and ``size``."""
    scan(items, progress=False)
    outcome, size = _names(items)
    roles = {"score": items.score, "y": items.roles[outcome], "size": items.roles[size]}
    table = open_table(items.source)
    parts = [columns_of(b, roles) for b in batches(table, list(roles.values()), 1 << 18)]
    found: dict[str, NDArray[Any]] = {c: np.concatenate([p[c] for p in parts]) for c in roles}
    return found | {"kind": np.array(items.kind)}


def _names(items: Items) -> tuple[str, str]:
    if isinstance(items, PoissonItems):
        return "count", "exposure"
    assert isinstance(items, NormalItems)
    return "value", "noise_sd"


def _check_rows(one: Columns, two: Columns, names: tuple[str, ...], what: str) -> None:
    """Refuse other rows."""
    if one["kind"] != two["kind"] or len(one["score"]) != len(two["score"]):
        raise ItemsError(
            f"{what}= has {len(two['score']):,} {two['kind']} items, not the {len(one['score']):,} "
            f"{one['kind']} ones: give the same rows in the same order"
        )
    for name in names:
        if wrong := int((one[name] != two[name]).sum()):
            role = {"y": "outcome", "size": "exposure or noise sd"}.get(name, name)
            raise ItemsError(
                f"{what}=: {wrong:,} of {len(one[name]):,} rows have another {role}: give the same "
                "rows in the same order"
            )


def _from_fresh(own: Columns, new: Columns, level: float) -> tuple[float, float, float, bool]:
    """Whether scores go with their own outcomes more closely than with fresh ones."""
    _check_rows(own, new, ("score",), "fresh")
    score = own["score"]
    rank = special.ndtri((stats.rankdata(score) - 0.5) / len(score))
    if own["kind"] == "poisson":
        away, weight = _share_seen(own, new)
    else:
        weight = 1.0 / (own["size"] ** 2 + new["size"] ** 2)
        away = weight * (own["y"] - new["y"])
        away = away - weight * away.sum() / weight.sum()
    towards = rank - (weight @ rank) / weight.sum()
    slopes = [_line(score, x)[1] for x in (own, new)]
    spread = np.sqrt(((towards * away) ** 2).sum())
    z = float(np.sign(slopes[0]) * (towards @ away) / spread) if spread > 0 else 0.0
    p_value = float(stats.norm.sf(z))
    return slopes[1] / slopes[0] if slopes[0] else np.nan, z, p_value, p_value < level


def _share_seen(own: Columns, new: Columns) -> tuple[Floats, Floats]:
    """Own counts less their expectation given the sum of both, and its binomial variance.

    A common factor of all fresh rates is allowed for: by Newton's method on its logarithm.
    """
    both = own["y"] + new["y"]
    # an outcome without exposure has no odds: such items are left out below
    with np.errstate(divide="ignore", invalid="ignore"):
        odds = np.log(own["size"]) - np.log(new["size"])
    told = (both > 0) & np.isfinite(odds)
    if not told.any() or own["y"][told].sum() in (0, both[told].sum()):
        raise ItemsError("fresh=: there are no counts in both outcomes of items seen twice")
    factor = 0.0
    for _ in range(50):
        share = special.expit(np.where(told, odds, 0.0) + factor)
        away = np.where(told, own["y"] - both * share, 0.0)
        weight = np.where(told, both * share * (1 - share), 0.0)
        step = away.sum() / weight.sum()
        factor += float(np.clip(step, -2.0, 2.0))
        if abs(step) < 1e-10:
            break
    return away, weight


def _from_folds(own: Columns, folds: Columns, level: float) -> tuple[float, float, float, bool]:
    """How much better scores describe the outcomes than out-of-fold scores do."""
    _check_rows(own, folds, ("y", "size"), "out_of_fold")
    mine, its = (_line(x["score"], own)[0] for x in (own, folds))
    none = _line(np.ones(len(mine)), own)[0]
    more = mine - its
    gain = float((its - none).sum())
    z = float(more.sum() / max(np.sqrt(len(more)) * more.std(), 1e-300))
    effect = float(more.sum()) / max(gain, 1e-300) if more.sum() > 0 else 0.0
    p_value = float(stats.norm.sf(z))
    return effect, z, p_value, p_value < level and effect > _TOLERANCE


def _line(score: Floats, data: Columns) -> tuple[Floats, float]:
    """Log likelihood of the outcomes under a straight-line calibration of scores, and its slope.

    Of counts log rates are a line in log t (in t where some score is at or below 0), of values
    means in t.
    """
    y, size = data["y"], data["size"]
    log = data["kind"] == "poisson" and bool((score > 0).all())
    x = np.log(score) if log else score
    middle = x.mean()
    if data["kind"] != "poisson":
        weight = 1.0 / size**2
        about = x - (weight @ x) / weight.sum()
        square = max(float((weight * about) @ about), 1e-300)
        slope = float((weight * about) @ y) / square
        fitted = (weight @ y) / weight.sum() + slope * about
        return -0.5 * weight * (y - fitted) ** 2, slope
    design = np.stack([np.ones(len(x)), x - middle])
    line = np.array([np.log((y.sum() + 0.5) / size.sum()), 0.0])
    for _ in range(100):
        expected = size * np.exp(np.clip(line @ design, -50.0, 50.0))
        info = (design * expected) @ design.T + 1e-9 * np.eye(2) * expected.sum()
        step = np.linalg.solve(info, design @ (y - expected))
        line = line + np.clip(step, -1.0, 1.0)
        if np.abs(step).max() < 1e-9:
            break
    return special.xlogy(y, expected) - expected, float(line[1])
