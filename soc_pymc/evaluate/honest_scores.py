"""Honest scores: made without the items' own outcomes, and evidence where they were not.

The score's honesty is an assumption of the method (Sections 1 and 2 of Muralidharan and Najmi):
t must not be trained on the item's own y, or posteriors count y twice.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats

from .._lib.arguments import SEED, OrNone, Real, checked, numbers_of, shown
from .._lib.arrays import Floats, Ints
from .._lib.errors import FitError, ItemsError
from ..data.binning import group
from ..data.items import Items, check_outcomes
from ..data.statistics import Statistics
from ..data.summaries import summarize
from ..data.tables import batches, open_table, scan
from ..families.cells import STEPS
from ..families.outcomes import OUTCOMES, Outcome
from ..posterior.item_columns import columns_of
from .thinning import refuse_any

Columns = Mapping[str, NDArray[Any]]
Evidence = tuple[float, float, float, bool]
"""Effect, z, p-value, and whether it says that scores leak."""

_MOST_Z = 3.0  # of more variation than noise in one bin: that of theta
_LEVEL = 0.05  # chance of a false alarm
_TOLERANCE = 0.05  # of out-of-fold gain that training on more items may bring


# --- out-of-fold scores --------------------------------------------------------------------------


@checked(least=OrNone(Real()), seed=SEED)
def cross_fit(
    regressor: Any,
    X: Any,
    y: ArrayLike,
    *,
    exposure: ArrayLike | None = None,
    folds: int = 5,
    groups: ArrayLike | None = None,
    least: float | None = None,
    seed: int = 0,
) -> tuple[Floats, Ints]:
    """Out-of-fold predictions: no score is trained on its own item's outcome.

    Both orders of calibration need this (Sections 1 and 2 of Muralidharan and Najmi): a score that
    saw y, and a posterior that reads y again, would count it twice.

    Parameters
    ----------
    regressor
        A scikit-learn regressor; it is cloned for every fold and itself left as it is. A pipeline
        must be wrapped where it takes no ``sample_weight`` itself.
    X
        Features, shape (n, features): an array, a pandas or a Polars frame.
    y
        Outcomes, shape (n,): counts, or values.
    exposure
        Of counts, shape (n,), > 0: the regressor is then trained on the rate y / exposure with
        ``sample_weight=exposure``. Without it, it is trained on y.
    folds, seed
        Number of folds, from 2 to n (to the number of groups), and seed of the division.
    groups
        Labels, shape (n,), of rows that must share a fold: duplicates of an item, items of a user.
    least
        Predictions below it become it (None: none do): scores on the log scale must be positive.

    Returns
    -------
    scores, fold
        Shape (n,) each. ``soc.PoissonItems(..., fold=)`` takes the second: scores of one fold share
        a model.

    Raises
    ------
    ItemsError
        If lengths differ, outcomes or exposures are not valid, there are too few rows or groups
        for the folds, the regressor takes no sample weights and exposures are given, or a
        prediction is not a finite number.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LinearRegression
    >>> X = np.arange(20.0)[:, None]
    >>> score, fold = cross_fit(LinearRegression(), X, 2 * X[:, 0], folds=4)
    >>> bool(np.allclose(score, 2 * X[:, 0])), np.bincount(fold).tolist()
    (True, [5, 5, 5, 5])
    """
    from sklearn.base import clone
    from sklearn.utils import _safe_indexing
    from sklearn.utils.validation import has_fit_parameter

    if isinstance(regressor, type) or not all(
        hasattr(regressor, name) for name in ("get_params", "fit", "predict")
    ):
        raise FitError(f"regressor={shown(regressor)} must be a regressor as of scikit-learn")
    if not (len(X.shape) if hasattr(X, "shape") else hasattr(X, "__len__")):
        raise ItemsError(f"X={shown(X)} must be a table with a row for every item")
    outcome = _numbers("y", y, None)
    n = len(outcome)
    rows = X.shape[0] if hasattr(X, "shape") else len(X)
    if rows != n:
        raise ItemsError(f"X has {rows:,} rows and y has {n:,}: give one of each for every item")
    size = None if exposure is None else _numbers("exposure", exposure, n)
    if size is not None:
        advice = "leave these rows out, and score them by a model trained on the rest"
        refuse_any("exposure", size <= 0, f"not > 0, where a rate has no meaning: {advice}")
        refuse_any("y", outcome < 0, "negative: counts are not")
        if not has_fit_parameter(regressor, "sample_weight"):
            raise ItemsError(
                f"{type(regressor).__name__} takes no sample_weight, which exposures need: choose "
                "another regressor, or wrap it in one that passes sample_weight on to it"
            )
    fold = _folds(n, folds, groups, seed)
    score = np.full(n, np.nan)
    for k in range(folds):
        train, test = np.flatnonzero(fold != k), np.flatnonzero(fold == k)
        given = {} if size is None else {"sample_weight": size[train]}
        target = outcome[train] if size is None else outcome[train] / size[train]
        model = clone(regressor)
        model.fit(_safe_indexing(X, train), target, **given)
        found = np.asarray(model.predict(_safe_indexing(X, test)), dtype=float)
        score[test] = _checked(found, len(test), k, regressor)
    return score if least is None else np.maximum(score, least), fold


def _numbers(name: str, given: ArrayLike, n: int | None) -> Floats:
    values = numbers_of(given, name, ItemsError)
    if values.ndim != 1 or (n is not None and len(values) != n):
        expected = "one number for every item" if n is None else f"{n:,} numbers, as y has"
        raise ItemsError(f"{name} has the shape {values.shape}: give {expected}")
    refuse_any(name, ~np.isfinite(values), "not finite numbers")
    return values


def _folds(n: int, folds: int, groups: ArrayLike | None, seed: int) -> Ints:
    """Fold of every row: groups, or rows, dealt out at random, as evenly as they go."""
    try:
        labels = np.arange(n) if groups is None else np.asarray(groups)
    except (TypeError, ValueError):
        raise ItemsError(f"groups={shown(groups)} must be {n:,} labels, as y has") from None
    if labels.shape != (n,):
        raise ItemsError(f"groups has the shape {labels.shape}: give {n:,} labels, as y has")
    if labels.dtype == object:  # None and NaN are one category
        labels = np.where(pd.isna(labels), "missing", labels).astype(str)
    code = np.unique(labels, return_inverse=True)[1]
    rows = np.bincount(code)
    units = len(rows)
    whole = isinstance(folds, int | np.integer) and not isinstance(folds, bool)
    if not whole or not 2 <= folds <= units:
        of = "rows" if groups is None else "groups"
        raise ItemsError(
            f"folds={shown(folds)} must be a whole number from 2 to the {units:,} {of}"
        )
    shuffled = np.random.default_rng(seed).permutation(units)
    order = shuffled[np.argsort(-rows[shuffled], kind="stable")]
    fold_of = np.empty(units, dtype=np.int64)
    if rows.max() == 1:
        fold_of[order] = np.arange(units) % folds
        return fold_of[code]
    filled = np.zeros(folds)
    for unit in order:  # the largest groups first, each to the emptiest fold
        fold_of[unit] = filled.argmin()
        filled[fold_of[unit]] += rows[unit]
    return fold_of[code]


def _checked(found: Floats, n: int, fold: int, regressor: Any) -> Floats:
    name = type(regressor).__name__
    if found.shape not in ((n,), (n, 1)):
        raise ItemsError(f"{name} predicts the shape {found.shape} for {n:,} rows: one number each")
    bad = ~np.isfinite(found)
    if bad.any():
        raise ItemsError(
            f"{name} predicts {int(bad.sum()):,} of {n:,} rows of fold {fold} that are not finite "
            "numbers: look at its features, or make it more stable"
        )
    return found.reshape(n)


# --- leakage -------------------------------------------------------------------------------------


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


def _leakage(rows: dict[str, Evidence]) -> Leakage:
    """What all kinds of evidence say together."""
    columns = ["effect", "z", "p_value", "leaks"]
    table = pd.DataFrame.from_dict(rows, orient="index", columns=columns)
    table.index.name = "evidence"
    return Leakage(bool(table["leaks"].any()), table, _in_words(table))


_FINDINGS = {
    "outcomes alone": "outcomes vary by {effect:.2f} of their noise where they vary least",
    "fresh outcomes": "the calibration slope is {effect:.2f} times as steep on fresh outcomes",
    "out-of-fold scores": "the scores gain {effect:.0%} more than out-of-fold ones",
}


def _in_words(table: pd.DataFrame) -> str:
    found = [
        f"{_FINDINGS[str(name)].format(effect=row['effect'])} (z = {row['z']:.1f})"
        for name, row in table.iterrows()
        if row["leaks"]
    ]
    if found:
        return (
            f"scores saw their outcomes: {'; '.join(found)}. Posteriors would count these twice "
            "and intervals be too narrow: score every item by a model trained without it, such as "
            "by soc.evaluate.cross_fit"
        )
    if len(table) == 1:
        return (
            "no sign that scores saw their outcomes, but outcomes alone show heavy leaks only: "
            "give fresh= or out_of_fold= to see lighter ones"
        )
    return "no sign that scores saw their outcomes"


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
