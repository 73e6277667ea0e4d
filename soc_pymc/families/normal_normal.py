"""Values y ~ Normal(theta, s^2), s known, with theta ~ Normal(mean, variance): the closed forms.

`update` and `moments` use only + - * /, so they work for numpy, xarray, PyTensor and SQL
expressions. The prior is described by its mean and the logarithm of its variance: their information
is orthogonal, and variance -> 0 (theta a function of the score) is a regular limit.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from .._lib.arrays import Floats

_LOG_2PI = float(np.log(2.0 * np.pi))
_LOG_ROOT_2PI = 0.5 * _LOG_2PI


def mean_variance(mean: Floats, log_variance: Floats) -> tuple[Floats, Floats]:
    """Mean and variance of a prior with the given curves."""
    return mean, np.exp(log_variance)


def mean_log_variance(mean: Floats, variance: Floats) -> tuple[Floats, Floats]:
    """Curves of a prior with this mean and variance."""
    return mean, np.log(variance)


def widened(mean: Floats, log_variance: Floats, spread: ArrayLike) -> tuple[Floats, Floats]:
    """Curves averaged over a variance `spread` of the mean."""
    # single items have a spread of 0, whose logarithm is intended
    with np.errstate(divide="ignore"):
        return mean, np.logaddexp(log_variance, np.log(spread))


def curve_variables(mean: Floats, log_variance: Floats) -> dict[str, Floats]:
    """Variables of `soc.calibration_curves`."""
    return {"mean": mean, "variance": np.exp(log_variance), "log_variance": log_variance}


def update(mean: Any, variance: Any, value: Any, noise_variance: Any) -> tuple[Any, Any]:
    """Posterior mean and variance of theta after one value with noise of a known variance.

    Examples
    --------
    >>> update(0.0, 4.0, 1.0, 4.0)
    (0.5, 2.0)
    """
    total = variance + noise_variance
    noise_share = noise_variance / total  # a product of both variances could overflow
    return value * (variance / total) + mean * noise_share, variance * noise_share


def moments(mean: Any, variance: Any, noise_variance: Any) -> tuple[Any, Any]:
    """Mean and variance of a value before it is seen."""
    return mean, variance + noise_variance


def _log_total(noise_sd: ArrayLike, log_variance: ArrayLike) -> Floats:
    """Log of the marginal's variance, for parts of any size."""
    # a value without noise has log noise -inf
    with np.errstate(divide="ignore"):
        log_noise = 2.0 * np.log(np.asarray(noise_sd, dtype=float))
    return np.asarray(np.logaddexp(np.asarray(log_variance, dtype=float), log_noise))


def standardised(
    value: ArrayLike, noise_sd: ArrayLike, mean: ArrayLike, log_variance: ArrayLike
) -> Floats:
    """Departure of a value from the prior's mean in sd of its marginal distribution."""
    gap = np.asarray(value, dtype=float) - np.asarray(mean, dtype=float)
    return gap * np.exp(-0.5 * _log_total(noise_sd, log_variance))


def log_density(
    value: ArrayLike, noise_sd: ArrayLike, mean: ArrayLike, log_variance: ArrayLike
) -> Floats:
    """Log marginal density of a value: Normal(mean, variance + noise_sd^2).

    value, noise_sd: Value seen and the sd of its noise.
    mean, log_variance: The prior's mean and the logarithm of its variance.
    Returns numpy.ndarray: Log densities per unit of value, broadcast over the arguments.

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


def cdf_interval(
    value: Floats, noise_sd: Floats, mean: Floats, log_variance: Floats
) -> tuple[Floats, Floats]:
    """P(Y < value) and P(Y <= value), which are equal."""
    upto = cdf(value, noise_sd, mean, log_variance)
    return upto, upto


def simulate(
    mean: Floats, log_variance: Floats, noise_sd: Floats, rng: np.random.Generator
) -> Floats:
    """Values of new items."""
    sd = np.sqrt(np.exp(log_variance) + noise_sd**2)
    return mean + sd * rng.standard_normal(mean.shape)


# --- tails and draws of Normal(mean, variance) ---------------------------------------------------


def above(cut: Floats, mean: Floats, variance: Floats) -> Floats:
    """P(theta > cut)."""
    return np.asarray(special.ndtr((mean - cut) / np.sqrt(variance)))


def excess(cut: Floats, mean: Floats, variance: Floats) -> Floats:
    """E[(theta - cut)+]: sd times phi(z) - z Phi(-z), for z = (cut - mean) / sd."""
    sd = np.sqrt(variance)
    return sd * _standard_excess((cut - mean) / sd)


def shortfall(cut: Floats, mean: Floats, variance: Floats) -> Floats:
    """E[(cut - theta)+]."""
    sd = np.sqrt(variance)
    return sd * _standard_excess((mean - cut) / sd)


def _standard_excess(z: Floats) -> Floats:
    """phi(z) - z Phi(-z), by the scaled complement above 0, because both terms underflow."""
    up = np.maximum(z, 0.0)
    density = np.exp(-0.5 * up * up - _LOG_ROOT_2PI)
    scaled = np.sqrt(0.5 * np.pi) * special.erfcx(up / np.sqrt(2.0))
    above = density * np.maximum(1.0 - up * scaled, 0.0)
    down = np.minimum(z, 0.0)
    below = np.exp(-0.5 * down * down - _LOG_ROOT_2PI) - down * special.ndtr(-down)
    return np.asarray(np.where(z > 0, above, below))


def draw_theta(mean: Floats, variance: Floats, rngs: tuple[np.random.Generator, ...]) -> Floats:
    """Draws of theta, one for each element, row by row."""
    return mean + np.sqrt(variance) * rngs[0].standard_normal(np.shape(mean))
