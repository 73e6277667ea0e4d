"""Values y ~ Normal(theta, s^2), s known, with theta ~ Normal(mean, variance): the closed forms.

`update` and `moments` use + - * / alone, so the same rule serves numpy, xarray, PyTensor and SQL
expressions. The prior is described by its mean and the logarithm of its variance: their information
is orthogonal, and variance -> 0 (theta a function of the score) is an ordinary limit.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

__all__ = ["cdf", "log_density", "moments", "quantile", "standardised", "update"]

Floats = NDArray[np.float64]

_LOG_2PI = float(np.log(2.0 * np.pi))


def update(mean: Any, variance: Any, value: Any, noise_variance: Any) -> tuple[Any, Any]:
    """Posterior mean and variance of theta after one value with noise of a known variance.

    Examples
    --------
    >>> update(0.0, 4.0, 1.0, 4.0)
    (0.5, 2.0)
    """
    total = variance + noise_variance
    rest = noise_variance / total  # a product of both variances could overflow
    return value * (variance / total) + mean * rest, variance * rest


def moments(mean: Any, variance: Any, noise_variance: Any) -> tuple[Any, Any]:
    """Mean and variance of a value before it is seen."""
    return mean, variance + noise_variance


def quantile(prob: ArrayLike, mean: ArrayLike, variance: ArrayLike) -> Floats:
    """Quantile of Normal(mean, variance) at probability `prob`."""
    centre, spread, p = (np.asarray(v, dtype=float) for v in (mean, variance, prob))
    return np.asarray(centre + np.sqrt(spread) * special.ndtri(p))


def _log_total(noise_sd: ArrayLike, log_variance: ArrayLike) -> Floats:
    """Log of the marginal's variance, whatever the size of its two parts."""
    # a value without noise has log noise -inf
    with np.errstate(divide="ignore"):
        log_noise = 2.0 * np.log(np.asarray(noise_sd, dtype=float))
    return np.asarray(np.logaddexp(np.asarray(log_variance, dtype=float), log_noise))


def standardised(
    value: ArrayLike, noise_sd: ArrayLike, mean: ArrayLike, log_variance: ArrayLike
) -> Floats:
    """Departure of a value from the prior's mean in sd of its marginal distribution."""
    away = np.asarray(value, dtype=float) - np.asarray(mean, dtype=float)
    return away * np.exp(-0.5 * _log_total(noise_sd, log_variance))


def log_density(
    value: ArrayLike, noise_sd: ArrayLike, mean: ArrayLike, log_variance: ArrayLike
) -> Floats:
    """Log marginal density of a value: Normal(mean, variance + noise_sd^2).

    Parameters
    ----------
    value, noise_sd
        Value seen and the sd of its noise.
    mean, log_variance
        The prior's mean and the logarithm of its variance.

    Returns
    -------
    numpy.ndarray
        Log densities per unit of value, broadcast over the arguments.

    Examples
    --------
    >>> import numpy as np
    >>> bool(np.isclose(log_density(0.0, 3.0, 0.0, np.log(16.0)), -np.log(5 * np.sqrt(2 * np.pi))))
    True
    """
    z = standardised(value, noise_sd, mean, log_variance)
    return -0.5 * (z * z + _LOG_2PI + _log_total(noise_sd, log_variance))


def cdf(value: ArrayLike, noise_sd: ArrayLike, mean: ArrayLike, log_variance: ArrayLike) -> Floats:
    """P(Y <= value) under the marginal of `log_density`."""
    return np.asarray(special.ndtr(standardised(value, noise_sd, mean, log_variance)))
