"""Simulated clicks: a curved mean with a falling dispersion, and lognormal click rates."""

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from .asked import counts, positive, random_numbers, shifts

__all__ = ["click_rates", "s1", "s1_curves"]

Floats = NDArray[np.float64]


def s1_curves(score: ArrayLike) -> tuple[Floats, Floats]:
    """True log mean and log cv2 of simulation S1.

    Parameters
    ----------
    score
        Scores t > 0.

    Returns
    -------
    tuple of numpy.ndarray
        With x = log(t/.05): log .05 + .8 x - .15 x^2/(1 + abs(x)) + .15 tanh(2x), and
        log .3 - .8 tanh x.

    Raises
    ------
    FitError
        If a score is not above 0.

    Examples
    --------
    >>> log_mean, log_cv2 = s1_curves(0.05)
    >>> round(float(np.exp(log_mean)), 6), round(float(np.exp(log_cv2)), 6)
    (0.05, 0.3)
    """
    x = np.log(positive(score, "score") / 0.05)
    log_mean = np.log(0.05) + 0.8 * x - 0.15 * x**2 / (1 + np.abs(x)) + 0.15 * np.tanh(2 * x)
    return np.asarray(log_mean), np.asarray(np.log(0.3) - 0.8 * np.tanh(x))


def s1(n_items: int, seed: int = 0) -> pd.DataFrame:
    """Simulation S1: a curved mean, and a dispersion that falls steeply with the score.

    log t ~ Normal(log .05, .8), N = ceil(exp(Normal(log 6, 1.8))), theta ~ Gamma with the mean and
    cv2 of `s1_curves`, y ~ Poisson(theta N).

    Parameters
    ----------
    n_items
        Number of items.
    seed
        Seed of the random numbers.

    Returns
    -------
    pandas.DataFrame
        Columns score, exposure, count, theta, true_mean and true_cv2.

    Examples
    --------
    >>> list(s1(3).columns)
    ['score', 'exposure', 'count', 'theta', 'true_mean', 'true_cv2']
    """
    rng = random_numbers(n_items, seed, columns=6)
    score = np.exp(rng.normal(np.log(0.05), 0.8, n_items))
    exposure = np.ceil(np.exp(rng.normal(np.log(6), 1.8, n_items)))
    log_mean, log_cv2 = s1_curves(score)
    theta = rng.gamma(np.exp(-log_cv2), np.exp(log_mean + log_cv2))
    return _table(score, exposure, theta, np.exp(log_mean), np.exp(log_cv2), rng)


def click_rates(
    n_items: int, delta: float = 0.1, sigma: float = 0.5, seed: int = 0
) -> pd.DataFrame:
    """Click rates lognormal around a biased score, after the paper's Section 5.2.

    log theta ~ Normal(log t + delta, sigma^2) and y ~ Poisson(theta N). In place of the paper's own
    query-ad pairs, log t ~ Normal(log .03, .8) and N = ceil(exp(Normal(log 20, 1.8))).

    Parameters
    ----------
    n_items
        Number of items.
    delta
        Bias of log t.
    sigma
        Standard deviation of log theta given t.
    seed
        Seed of the random numbers.

    Returns
    -------
    pandas.DataFrame
        Columns score, exposure, count, theta, true_mean and true_cv2, the last two the lognormal's.

    Raises
    ------
    FitError
        If `n_items` and `seed` are not whole numbers of at least 0, the machine has no memory for
        so many items, `delta` is not within 100 of 0 or `sigma` not above 0 and at most 10, or
        items expect more than 2^53 events.

    Examples
    --------
    >>> frame = click_rates(4, delta=0.0, sigma=1e-9)
    >>> bool(np.allclose(frame["theta"], frame["score"]))
    True
    """
    delta, sigma = shifts(delta, sigma)
    rng = random_numbers(n_items, seed, columns=6)
    score = np.exp(rng.normal(np.log(0.03), 0.8, n_items))
    exposure = np.ceil(np.exp(rng.normal(np.log(20), 1.8, n_items)))
    theta = score * np.exp(rng.normal(delta, sigma, n_items))
    mean = score * np.exp(delta + sigma**2 / 2)
    return _table(score, exposure, theta, mean, np.full(n_items, np.expm1(sigma**2)), rng)


def _table(
    score: Floats,
    exposure: Floats,
    theta: Floats,
    mean: Floats,
    cv2: Floats,
    rng: np.random.Generator,
) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "score": score,
            "exposure": exposure.astype(np.int64),
            "count": counts(rng, theta * exposure),
            "theta": theta,
            "true_mean": mean,
            "true_cv2": cv2,
        }
    )
