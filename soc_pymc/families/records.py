"""The package's families as records that `conformance.check_family` tries."""

import numpy as np
from numpy.typing import NDArray
from scipy import special

from . import normal_normal, poisson_gamma
from .conformance import Family, Params, Symmetry

__all__ = ["NORMAL_NORMAL", "POISSON_GAMMA"]

Floats = NDArray[np.float64]


def _logs(params: Params) -> tuple[Floats, Floats]:
    """Log mean and log cv2 of Gamma(shape, rate)."""
    shape, rate = params
    return np.log(shape) - np.log(rate), -np.log(shape)


def _counts(params: Params, size: float) -> tuple[Floats, Floats]:
    """Counts up to where the negative binomial's tail has vanished, times squares too."""
    shape, rate = params
    tail = 80.0 * (1.0 + size / rate) * max(1.0, np.sqrt(shape))
    y = np.arange(int(size * shape / rate + tail) + 80.0)
    return y, np.ones(len(y))


POISSON_GAMMA = Family(
    name="counts y ~ Poisson(theta N), theta ~ Gamma(shape, rate)",
    priors=((0.5, 2.0), (3.0, 60.0), (400.0, 1000.0)),
    sizes=(0.3, 5.0, 200.0),
    moments=lambda p: (poisson_gamma.mean(*p), poisson_gamma.variance(*p)),
    update=lambda p, y, size: poisson_gamma.update(p[0], p[1], y, size),
    predictive=lambda mean, variance, size: (size * mean, size * mean + size**2 * variance),
    log_marginal=lambda p, y, size: poisson_gamma.log_pmf(y, size, *_logs(p)),
    cdf=lambda p, y, size: poisson_gamma.cdf(y, size, *_logs(p)),
    outcomes=_counts,
    discrete=True,
    theta_cdf=lambda p, theta: special.gammainc(p[0], p[1] * theta),
    quantile=lambda p, prob: poisson_gamma.quantile(prob, *p),
    concentrate=lambda p, share: (p[0] / share, p[1] / share),
    certain=lambda rate: (rate * 1e13, 1e13),
    pool=lambda y, size: (y.sum(), size.sum()),
    symmetry=Symmetry(lambda p, y, size: ((p[0], p[1] * 7.0), y, size * 7.0), factor=1 / 7.0),
)
"""Exposures in other units leave counts as they are."""


def _values(params: Params, noise_sd: float) -> tuple[Floats, Floats]:
    """Values and the trapezoid rule, exact where both ends vanish."""
    mean, variance = params
    total = np.sqrt(variance + noise_sd**2)
    y = np.linspace(mean - 12.0 * total, mean + 12.0 * total, 601)
    return y, np.full(601, y[1] - y[0])


def _pooled(y: Floats, noise_sd: Floats) -> tuple[float, float]:
    precision = noise_sd**-2.0
    return float(y @ precision / precision.sum()), float(precision.sum() ** -0.5)


NORMAL_NORMAL = Family(
    name="values y ~ Normal(theta, s^2), theta ~ Normal(mean, variance)",
    priors=((0.0, 1.0), (-3.0, 0.01), (100.0, 25.0)),
    sizes=(0.1, 1.0, 30.0),
    moments=lambda p: p,
    update=lambda p, y, size: normal_normal.update(p[0], p[1], y, size**2),
    predictive=lambda mean, variance, size: normal_normal.moments(mean, variance, size**2),
    log_marginal=lambda p, y, size: normal_normal.log_density(y, size, p[0], np.log(p[1])),
    cdf=lambda p, y, size: normal_normal.cdf(y, size, p[0], np.log(p[1])),
    outcomes=_values,
    discrete=False,
    theta_cdf=lambda p, theta: special.ndtr((theta - p[0]) / np.sqrt(p[1])),
    quantile=lambda p, prob: normal_normal.quantile(prob, *p),
    concentrate=lambda p, share: (p[0], p[1] * share),
    certain=lambda rate: (rate, 1e-8),
    pool=_pooled,
    symmetry=Symmetry(
        lambda p, y, size: ((2.0 - 5.0 * p[0], 25.0 * p[1]), 2.0 - 5.0 * y, 5.0 * size),
        factor=-5.0,
        shift=2.0,
        stretch=5.0,
    ),
)
"""Values in another unit, from another origin and mirrored."""
