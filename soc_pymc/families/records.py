"""The package's families as records that `conformance.check_family` tries."""

import numpy as np
from numpy.typing import NDArray
from scipy import special

from . import poisson_gamma
from .conformance import Family, Params, Symmetry

__all__ = ["POISSON_GAMMA"]

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
