"""Simulated items whose truth is known, for tests, examples and studies."""

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from ._lib.arguments import POSITIVE, SEED, Real, Whole, many, refuse_beyond_memory
from ._lib.arrays import Floats
from ._lib.errors import FitError
from .families.scales import LARGEST_COUNT

__all__ = ["click_rates", "laplace_effects", "lognormal_rates", "s1"]

_WIDEST = 10.0  # sd of log theta: from about 18 on E(theta^2) overflows
_FARTHEST_MEAN = 100.0  # bias of log theta
_LINEAR = np.array([1.0, 0, 0, -0.7, 0, 0, 0, 0, 0, 0])
_QUADRATIC = np.array([0.0, 0.1, 0, 0, 0, 0, 0, 0, 0, 0])
_FOLDS = 5


def __dir__() -> list[str]:
    return sorted(__all__)


def s1(n_items: int, seed: int = 0) -> pd.DataFrame:
    """Simulation S1: a curved mean, and a dispersion that falls steeply with the score.

    log t ~ Normal(log 0.05, 0.8), N = ceil(exp(Normal(log 6, 1.8))), y ~ Poisson(theta N), and
    theta is Gamma. With x = log(t/0.05), the log of its mean is log 0.05 + 0.8 x - 0.15 x^2/(1 +
    abs(x)) + 0.15 tanh(2x), and the log of its cv2 is log 0.3 - 0.8 tanh x.

    Parameters
    ----------
    n_items, seed
        Number of items, and seed of the random numbers.

    Returns
    -------
    pandas.DataFrame
        Columns score, exposure, count, theta, true_mean and true_cv2.

    Examples
    --------
    >>> list(s1(3).columns)
    ['score', 'exposure', 'count', 'theta', 'true_mean', 'true_cv2']
    """
    rng = _generator(n_items, seed, columns=6)
    score = np.exp(rng.normal(np.log(0.05), 0.8, n_items))
    exposure = np.ceil(np.exp(rng.normal(np.log(6), 1.8, n_items)))
    x = np.log(score / 0.05)
    log_mean = np.log(0.05) + 0.8 * x - 0.15 * x**2 / (1 + np.abs(x)) + 0.15 * np.tanh(2 * x)
    log_cv2 = np.log(0.3) - 0.8 * np.tanh(x)
    theta = rng.gamma(np.exp(-log_cv2), np.exp(log_mean + log_cv2))
    table = _items(rng, score, exposure.astype(np.int64), theta)
    return table.assign(true_mean=np.exp(log_mean), true_cv2=np.exp(log_cv2))


def click_rates(
    n_items: int, delta: float = 0.1, sigma: float = 0.5, seed: int = 0
) -> pd.DataFrame:
    """Click rates lognormal around a biased score, after the paper's Section 5.2.

    log theta ~ Normal(log t + delta, sigma^2) and y ~ Poisson(theta N). In place of the paper's own
    query-ad pairs, log t ~ Normal(log 0.03, 0.8) and N = ceil(exp(Normal(log 20, 1.8))).

    Parameters
    ----------
    n_items, seed
        As of `s1`.
    delta, sigma
        Bias of log t, within 100 of 0, and sd of log theta given t, above 0 and at most 10.

    Returns
    -------
    pandas.DataFrame
        Columns score, exposure, count, theta, true_mean and true_cv2, the last two the lognormal's.

    Raises
    ------
    FitError
        If an argument is not as above, the machine has no memory for so many items, or items expect
        more than 2^53 events.

    Examples
    --------
    >>> frame = click_rates(4, delta=0.0, sigma=1e-9)
    >>> bool(np.allclose(frame["theta"], frame["score"]))
    True
    """
    delta, sigma = _bias_and_sd(delta, sigma)
    rng = _generator(n_items, seed, columns=6)
    score = np.exp(rng.normal(np.log(0.03), 0.8, n_items))
    exposure = np.ceil(np.exp(rng.normal(np.log(20), 1.8, n_items)))
    theta = score * np.exp(rng.normal(delta, sigma, n_items))
    table = _items(rng, score, exposure.astype(np.int64), theta)
    mean = score * np.exp(delta + sigma**2 / 2)
    return table.assign(true_mean=mean, true_cv2=np.expm1(sigma**2))


def _items(
    rng: np.random.Generator, score: Floats, exposure: NDArray[Any], theta: Floats
) -> pd.DataFrame:
    """A table of items, with Poisson counts drawn for them."""
    expected = theta * exposure
    bad = ~((expected >= 0) & (expected <= LARGEST_COUNT))
    if bad.any():
        raise FitError(
            f"{int(bad.sum()):,} of {bad.size:,} items would have mean counts that are below 0, "
            "missing or beyond 2^53: give other scores, exposures, delta or sigma"
        )
    count = rng.poisson(expected)
    return pd.DataFrame({"score": score, "exposure": exposure, "count": count, "theta": theta})


def lognormal_rates(
    score: ArrayLike, exposure: ArrayLike, delta: float = 0.0, sigma: float = 0.5, seed: int = 0
) -> pd.DataFrame:
    """Counts of items with given scores and exposures, after the paper's Section 5.2.

    log theta ~ Normal(log t + delta, sigma^2) and y ~ Poisson(theta N), at t and N of any table.

    Parameters
    ----------
    score, exposure
        Scores t > 0 and exposures N >= 0, each of shape (n,).
    delta, sigma, seed
        As of `click_rates`.

    Returns
    -------
    pandas.DataFrame
        Columns score, exposure, count and theta; theta in events per unit of exposure.

    Raises
    ------
    FitError
        If an argument is not as above, or items expect more than 2^53 events.

    Examples
    --------
    >>> frame = lognormal_rates([0.1, 0.2], [1e6, 1e6], sigma=1e-9)
    >>> bool(np.allclose(frame["theta"], frame["score"]))
    True
    """
    t, size = many({"score": score, "exposure": exposure})
    if t.ndim != 1 or size.shape not in ((), t.shape):
        raise FitError(f"score has the shape {t.shape}: give one exposure for every item")
    delta, sigma = _bias_and_sd(delta, sigma)
    rng = _generator(len(t), seed, columns=4)
    return _items(rng, t, np.asarray(exposure), t * np.exp(rng.normal(delta, sigma, len(t))))


def laplace_effects(n_items: int, seed: int = 0) -> pd.DataFrame:
    """Values whose effects have heavy tails around a regression, after the paper's Section 5.3.

    Ten covariates x are standard normal, theta = x'b + (x'g)^2 + Laplace noise of variance 2, with
    b = (1, 0, 0, -0.7, 0, ...) and g = (0, 0.1, 0, ...), and y ~ Normal(theta, 1). The score is the
    prediction of a linear regression of y on x, fitted to the four fifths of the items that the
    item is not in.

    Parameters
    ----------
    n_items, seed
        Number of items, at least 20, and seed of the random numbers.

    Returns
    -------
    pandas.DataFrame
        Columns score, value, noise_sd (all 1) and theta.

    Raises
    ------
    FitError
        If `n_items` is not a whole number of at least 20, or the machine has no memory for them.

    Examples
    --------
    >>> frame = laplace_effects(5000)
    >>> bool(abs((frame["value"] - frame["theta"]).var() - 1) < 0.1)
    True
    """
    rng = _generator(n_items, seed, len(_LINEAR) + 4, least=20)
    x = rng.standard_normal((n_items, len(_LINEAR)))
    theta = x @ _LINEAR + (x @ _QUADRATIC) ** 2 + rng.laplace(0.0, 1.0, n_items)
    value = theta + rng.standard_normal(n_items)
    score = _out_of_fold(x, value)
    return pd.DataFrame({"score": score, "value": value, "noise_sd": 1.0, "theta": theta})


def _out_of_fold(x: Floats, y: Floats) -> Floats:
    """Predictions of least squares with an intercept, each fold's from the other folds."""
    design = np.column_stack([np.ones(len(y)), x])
    folds = [slice(fold, None, _FOLDS) for fold in range(_FOLDS)]
    products = [design[fold].T @ design[fold] for fold in folds]
    targets = [design[fold].T @ y[fold] for fold in folds]
    score = np.empty(len(y))
    for k, fold in enumerate(folds):
        gram = np.sum(np.delete(products, k, axis=0), axis=0)
        coefficients = np.linalg.solve(gram, np.sum(np.delete(targets, k, axis=0), axis=0))
        score[fold] = coefficients[0] + x[fold] @ coefficients[1:]
    return score


def _generator(n_items: Any, seed: Any, columns: int, least: int = 0) -> np.random.Generator:
    """Random numbers for so many items, each of `columns` numbers that are held at once."""
    number = Whole(least)(n_items, "n_items")
    refuse_beyond_memory(8.0 * columns * number, f"n_items={number:,}", "ask for fewer")
    return np.random.default_rng(SEED(seed, "seed"))


def _bias_and_sd(delta: Any, sigma: Any) -> tuple[float, float]:
    """Mean and sd of the logarithm of a rate over its score."""
    delta = Real(above=-_FARTHEST_MEAN, below=_FARTHEST_MEAN)(delta, "delta")
    sigma = POSITIVE(sigma, "sigma")
    if sigma > _WIDEST:
        raise FitError(f"sigma={sigma:g} must be at most {_WIDEST:g}")
    return delta, sigma
