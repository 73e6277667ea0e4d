"""Scores for every item from a regressor that was trained without it."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._lib.arguments import numbers_of, real, shown, whole
from .._lib.errors import FitError, ItemsError

__all__ = ["cross_fit"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


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
        ``sample_weight=exposure``, which for losses of Poisson or squared error is the same as a
        count with an offset. Without it, it is trained on y.
    folds
        Number of folds, from 2 to n (to the number of groups).
    groups
        Labels, shape (n,): rows of one group share a fold, as duplicates of an item, or items of
        one user, must.
    least
        Predictions below it become it: rates must be positive for a score on the log scale. None
        leaves them.
    seed
        Of the division into folds.

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
    if least is not None:
        real(least, "least")
    whole(seed, "seed", 0)
    outcome = _numbers("y", y, None)
    n = len(outcome)
    rows = X.shape[0] if hasattr(X, "shape") else len(X)
    if rows != n:
        raise ItemsError(f"X has {rows:,} rows and y has {n:,}: give one of each for every item")
    size = None if exposure is None else _numbers("exposure", exposure, n)
    if size is not None:
        _check_rates(outcome, size)
        if not has_fit_parameter(regressor, "sample_weight"):
            raise ItemsError(
                f"{type(regressor).__name__} takes no sample_weight, which exposures need: choose "
                "another regressor, or wrap it in one that passes sample_weight on to it"
            )
    fold = _folds(n, folds, groups, seed)
    score = np.full(n, np.nan)
    for k in range(folds):
        train, test = np.flatnonzero(fold != k), np.flatnonzero(fold == k)
        model = clone(regressor)
        if size is None:
            model.fit(_safe_indexing(X, train), outcome[train])
        else:
            rate = outcome[train] / size[train]
            model.fit(_safe_indexing(X, train), rate, sample_weight=size[train])
        found = np.asarray(model.predict(_safe_indexing(X, test)), dtype=float)
        score[test] = _checked(found, len(test), k, regressor)
    return score if least is None else np.maximum(score, least), fold


def _numbers(name: str, given: ArrayLike, n: int | None) -> Floats:
    values = numbers_of(given, name, ItemsError)
    if values.ndim != 1 or (n is not None and len(values) != n):
        expected = "one number for every item" if n is None else f"{n:,} numbers, as y has"
        raise ItemsError(f"{name} has the shape {values.shape}: give {expected}")
    bad = ~np.isfinite(values)
    if bad.any():
        raise ItemsError(f"{name}: {int(bad.sum()):,} of {len(values):,} are not finite numbers")
    return values


def _check_rates(count: Floats, exposure: Floats) -> None:
    if (bad := exposure <= 0).any():
        raise ItemsError(
            f"exposure: {int(bad.sum()):,} of {len(bad):,} are not > 0, where a rate has no "
            "meaning: leave these rows out, and score them by a model trained on the rest"
        )
    if (bad := count < 0).any():
        raise ItemsError(f"y: {int(bad.sum()):,} of {len(bad):,} are negative: counts are not")


def _folds(n: int, folds: int, groups: ArrayLike | None, seed: int) -> Ints:
    """Fold of every row: groups, or rows, dealt out at random, as evenly as they go."""
    try:
        labels = np.arange(n) if groups is None else np.asarray(groups)
    except (TypeError, ValueError):
        raise ItemsError(f"groups={shown(groups)} must be {n:,} labels, as y has") from None
    if labels.shape != (n,):
        raise ItemsError(f"groups has the shape {labels.shape}: give {n:,} labels, as y has")
    code = np.unique(labels.astype(str) if labels.dtype == object else labels, return_inverse=True)[
        1
    ]
    units = int(code.max()) + 1 if n else 0
    whole = isinstance(folds, int | np.integer) and not isinstance(folds, bool)
    if not whole or not 2 <= folds <= units:
        of = "rows" if groups is None else "groups"
        raise ItemsError(
            f"folds={shown(folds)} must be a whole number from 2 to the {units:,} {of}"
        )
    rows = np.bincount(code, minlength=units)
    shuffled = np.random.default_rng(seed).permutation(units)
    order = shuffled[np.argsort(-rows[shuffled], kind="stable")]
    if rows.max(initial=0) == 1:
        fold_of = np.empty(units, dtype=np.int64)
        fold_of[order] = np.arange(units) % folds
        return fold_of[code]
    fold_of, filled = np.empty(units, dtype=np.int64), np.zeros(folds)
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
