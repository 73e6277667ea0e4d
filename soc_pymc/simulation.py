"""Simulated items whose truth is known, for tests, examples and studies."""

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from ._lib.arguments import SEED, FitError, Whole, numbers_of
from ._lib.arrays import Floats
from .families.scales import LARGEST_COUNT

__all__ = ["click_rates", "laplace_effects", "lognormal_rates", "s1"]


def s1(n_items: int, seed: int = 0) -> pd.DataFrame:
    """Simulate counts with a curved mean, and a dispersion that falls steeply with the score.

    log t ~ Normal(log 0.05, 0.8), N = ceil(exp(Normal(log 6, 1.8))), y ~ Poisson(theta N), and
    theta is Gamma. With x = log(t/0.05), the log of its mean is log 0.05 + 0.8 x - 0.15 x^2/(1 +
    abs(x)) + 0.15 tanh(2x), and the log of its cv2 is log 0.3 - 0.8 tanh x.

    Parameters
    ----------
    n_items : int
        Number of items.
    seed : int
        Seed of random numbers.

    Returns
    -------
    pandas.DataFrame
        Columns score, exposure, count, theta, true_mean and true_cv2.

    Raises
    ------
    FitError
        If there is no item.

    References
    ----------
    .. [1] Muralidharan and Najmi (2015), Second order calibration: a simple way to get
       approximate posteriors.

    Examples
    --------
    >>> list(s1(3).columns)
    ['score', 'exposure', 'count', 'theta', 'true_mean', 'true_cv2']
    """
    n_items = Whole(0)(n_items, "n_items")
    seed = SEED(seed, "seed")
    rng = np.random.default_rng(seed)
    score = np.exp(rng.normal(np.log(0.05), 0.8, n_items))
    exposure = np.ceil(np.exp(rng.normal(np.log(6), 1.8, n_items)))
    x = np.log(score / 0.05)
    log_mean = (
        np.log(0.05) + 0.8 * x - 0.15 * x**2 / (1 + np.abs(x)) + 0.15 * np.tanh(2 * x)
    )
    log_cv2 = np.log(0.3) - 0.8 * np.tanh(x)
    theta = rng.gamma(np.exp(-log_cv2), np.exp(log_mean + log_cv2))
    table = _poisson_counts(rng, score, exposure.astype(np.int64), theta)
    return table.assign(true_mean=np.exp(log_mean), true_cv2=np.exp(log_cv2))


def click_rates(
    n_items: int, delta: float = 0.1, sigma: float = 0.5, seed: int = 0
) -> pd.DataFrame:
    """Simulate click rates lognormal around a biased score, after the paper's Section 5.2.

    log theta ~ Normal(log t + delta, sigma^2), log t ~ Normal(log 0.03, 0.8), N = ceil(exp(Normal(
    log 20, 1.8))) and y ~ Poisson(theta N).

    Parameters
    ----------
    n_items : int
        Number of items.
    delta : float
        Bias of log t.
    sigma : float
        Standard deviation of log theta given t.
    seed : int
        Seed of random numbers.

    Returns
    -------
    pandas.DataFrame
        The columns of `s1`.

    Raises
    ------
    FitError
        If an item expects more than 2^53 events.

    References
    ----------
    .. [1] Muralidharan and Najmi (2015), Second order calibration: a simple way to get
       approximate posteriors.

    Examples
    --------
    >>> click_rates(4, delta=0.0)["theta"].shape
    (4,)
    """
    n_items = Whole(0)(n_items, "n_items")
    seed = SEED(seed, "seed")
    rng = np.random.default_rng(seed)
    score = np.exp(rng.normal(np.log(0.03), 0.8, n_items))
    exposure = np.ceil(np.exp(rng.normal(np.log(20), 1.8, n_items)))
    theta = score * np.exp(rng.normal(delta, sigma, n_items))
    table = _poisson_counts(rng, score, exposure.astype(np.int64), theta)
    mean = score * np.exp(delta + sigma**2 / 2)
    return table.assign(true_mean=mean, true_cv2=np.expm1(sigma**2))


def lognormal_rates(
    score: ArrayLike,
    exposure: ArrayLike,
    delta: float = 0.0,
    sigma: float = 0.5,
    seed: int = 0,
) -> pd.DataFrame:
    """Simulate counts as `click_rates` does, for the scores and exposures of any table.

    Parameters
    ----------
    score : array_like, shape (n,)
        Scores t, above 0.
    exposure : array_like, shape (n,)
        Exposures N, at least 0.
    delta : float
        Bias of log t.
    sigma : float
        Standard deviation of log theta given t.
    seed : int
        Seed of random numbers.

    Returns
    -------
    pandas.DataFrame
        Columns score, exposure, count and theta.

    Raises
    ------
    FitError
        If scores and exposures have different lengths, or an item expects more than 2^53 events.

    Examples
    --------
    >>> lognormal_rates([0.1, 0.2], [1e6, 1e6])["exposure"].tolist()
    [1000000.0, 1000000.0]
    """
    t = numbers_of(score, "score")
    size = numbers_of(exposure, "exposure")
    if t.ndim != 1 or size.shape not in ((), t.shape):
        raise FitError(
            f"score has the shape {t.shape}: give one exposure for every item"
        )
    rng = np.random.default_rng(SEED(seed, "seed"))
    theta = t * np.exp(rng.normal(delta, sigma, len(t)))
    return _poisson_counts(rng, t, np.asarray(exposure), theta)


def laplace_effects(n_items: int, seed: int = 0) -> pd.DataFrame:
    """Simulate values with heavy-tailed effects around a regression, after Section 5.3.

    Of ten standard normal covariates, theta = x_1 - 0.7 x_4 + (0.1 x_2)^2 + Laplace noise of
    variance 2, and y ~ Normal(theta, 1). The score is the prediction of a linear regression fitted
    to the four fifths of the items that the item is not in.

    Parameters
    ----------
    n_items : int
        Number of items, at least 20.
    seed : int
        Seed of random numbers.

    Returns
    -------
    pandas.DataFrame
        Columns score, value, noise_sd (all 1) and theta.

    Raises
    ------
    FitError
        If there are fewer than 20 items.

    Examples
    --------
    >>> list(laplace_effects(20).columns)
    ['score', 'value', 'noise_sd', 'theta']
    """
    n_items = Whole(20)(n_items, "n_items")
    seed = SEED(seed, "seed")
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n_items, 10))
    theta = (
        x[:, 0] - 0.7 * x[:, 3] + (0.1 * x[:, 1]) ** 2 + rng.laplace(0.0, 1.0, n_items)
    )
    value = theta + rng.standard_normal(n_items)
    design = np.column_stack([np.ones(n_items), x])
    score = np.empty(n_items)
    for fold in range(5):
        test = np.arange(n_items) % 5 == fold
        train = design[~test]
        score[test] = design[test] @ np.linalg.solve(
            train.T @ train, train.T @ value[~test]
        )
    return pd.DataFrame(
        {"score": score, "value": value, "noise_sd": 1.0, "theta": theta}
    )


def _poisson_counts(
    rng: np.random.Generator, score: Floats, exposure: NDArray[Any], theta: Floats
) -> pd.DataFrame:
    """Items with Poisson counts."""
    expected = theta * exposure
    if out := int((~((expected >= 0) & (expected <= LARGEST_COUNT))).sum()):
        raise FitError(
            f"{out:,} of {expected.size:,} items would have mean counts that are below 0, missing "
            "or beyond 2^53: give other scores, exposures, delta or sigma"
        )
    count = rng.poisson(expected)
    return pd.DataFrame(
        {"score": score, "exposure": exposure, "count": count, "theta": theta}
    )
