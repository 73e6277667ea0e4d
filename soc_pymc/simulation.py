"""Simulated items whose truth is known, for tests, examples and studies."""

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from ._lib.arguments import POSITIVE, SEED, Real, Whole, checked, many
from ._lib.arrays import Floats
from ._lib.errors import FitError
from .families.scales import LARGEST_COUNT

__all__ = ["click_rates", "laplace_effects", "lognormal_rates", "s1"]

_FOLDS = 5


@checked(n_items=Whole(0), seed=SEED)
def s1(n_items: int, seed: int = 0) -> pd.DataFrame:
    """Simulate counts with a curved mean, and a dispersion that falls steeply with the score.

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
    rng = np.random.default_rng(seed)
    score = np.exp(rng.normal(np.log(0.05), 0.8, n_items))
    exposure = np.ceil(np.exp(rng.normal(np.log(6), 1.8, n_items)))
    x = np.log(score / 0.05)
    log_mean = np.log(0.05) + 0.8 * x - 0.15 * x**2 / (1 + np.abs(x)) + 0.15 * np.tanh(2 * x)
    log_cv2 = np.log(0.3) - 0.8 * np.tanh(x)
    theta = rng.gamma(np.exp(-log_cv2), np.exp(log_mean + log_cv2))
    table = _counts(rng, score, exposure.astype(np.int64), theta)
    return table.assign(true_mean=np.exp(log_mean), true_cv2=np.exp(log_cv2))


@checked(n_items=Whole(0), delta=Real(), sigma=POSITIVE, seed=SEED)
def click_rates(
    n_items: int, delta: float = 0.1, sigma: float = 0.5, seed: int = 0
) -> pd.DataFrame:
    """Simulate click rates lognormal around a biased score, after the paper's Section 5.2.

    log theta ~ Normal(log t + delta, sigma^2) and y ~ Poisson(theta N). In place of the paper's own
    query-ad pairs, log t ~ Normal(log 0.03, 0.8) and N = ceil(exp(Normal(log 20, 1.8))).

    Parameters
    ----------
    n_items, seed
        As in `s1`.
    delta, sigma
        Bias of log t, and sd of log theta given t.

    Returns
    -------
    pandas.DataFrame
        Columns score, exposure, count, theta, true_mean and true_cv2, the last two the lognormal's.

    Raises
    ------
    FitError
        If items expect more than 2^53 events.

    Examples
    --------
    >>> frame = click_rates(4, delta=0.0, sigma=1e-9)
    >>> bool(np.allclose(frame["theta"], frame["score"]))
    True
    """
    rng = np.random.default_rng(seed)
    score = np.exp(rng.normal(np.log(0.03), 0.8, n_items))
    exposure = np.ceil(np.exp(rng.normal(np.log(20), 1.8, n_items)))
    theta = score * np.exp(rng.normal(delta, sigma, n_items))
    table = _counts(rng, score, exposure.astype(np.int64), theta)
    mean = score * np.exp(delta + sigma**2 / 2)
    return table.assign(true_mean=mean, true_cv2=np.expm1(sigma**2))


@checked(delta=Real(), sigma=POSITIVE, seed=SEED)
def lognormal_rates(
    score: ArrayLike, exposure: ArrayLike, delta: float = 0.0, sigma: float = 0.5, seed: int = 0
) -> pd.DataFrame:
    """Simulate counts as `click_rates` does, for the scores and exposures of any table.

    Parameters
    ----------
    score, exposure
        Scores t > 0 and exposures N >= 0, each of shape (n,).
    delta, sigma, seed
        As in `click_rates`, with the same errors.

    Returns
    -------
    pandas.DataFrame
        Columns score, exposure, count and theta; theta in events per unit of exposure.

    Examples
    --------
    >>> frame = lognormal_rates([0.1, 0.2], [1e6, 1e6], sigma=1e-9)
    >>> bool(np.allclose(frame["theta"], frame["score"]))
    True
    """
    t, size = many({"score": score, "exposure": exposure})
    if t.ndim != 1 or size.shape not in ((), t.shape):
        raise FitError(f"score has the shape {t.shape}: give one exposure for every item")
    rng = np.random.default_rng(seed)
    theta = t * np.exp(rng.normal(delta, sigma, len(t)))
    return _counts(rng, t, np.asarray(exposure), theta)


@checked(n_items=Whole(20), seed=SEED)
def laplace_effects(n_items: int, seed: int = 0) -> pd.DataFrame:
    """Simulate values with heavy-tailed effects around a regression, after Section 5.3.

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

    Examples
    --------
    >>> frame = laplace_effects(5000)
    >>> bool(abs((frame["value"] - frame["theta"]).var() - 1) < 0.1)
    True
    """
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n_items, 10))
    theta = x[:, 0] - 0.7 * x[:, 3] + (0.1 * x[:, 1]) ** 2 + rng.laplace(0.0, 1.0, n_items)
    value = theta + rng.standard_normal(n_items)
    design, score = np.column_stack([np.ones(n_items), x]), np.empty(n_items)
    for fold in range(_FOLDS):
        test = np.arange(n_items) % _FOLDS == fold
        train = design[~test]
        score[test] = design[test] @ np.linalg.solve(train.T @ train, train.T @ value[~test])
    return pd.DataFrame({"score": score, "value": value, "noise_sd": 1.0, "theta": theta})


def _counts(
    rng: np.random.Generator, score: Floats, exposure: NDArray[Any], theta: Floats
) -> pd.DataFrame:
    """Return a table of items, with Poisson counts drawn for them."""
    expected = theta * exposure
    bad = ~((expected >= 0) & (expected <= LARGEST_COUNT))
    if bad.any():
        raise FitError(
            f"{int(bad.sum()):,} of {bad.size:,} items would have mean counts that are below 0, "
            "missing or beyond 2^53: give other scores, exposures, delta or sigma"
        )
    count = rng.poisson(expected)
    return pd.DataFrame({"score": score, "exposure": exposure, "count": count, "theta": theta})
