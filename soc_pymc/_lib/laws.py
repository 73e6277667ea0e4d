"""Laws and tests of `scipy.stats`, which takes longer to import than what they compute."""

import numpy as np
from scipy import special

from .arrays import Floats

# skewness up to which Pearson's law is the Normal, as in SciPy
_NO_SKEW = 1.6e-5


def pearson3_cdf(z: Floats | float, skew: Floats | float) -> Floats:
    """P(Z <= z) of a standardised variable with Pearson's type III law, a shifted Gamma."""
    is_normal = np.abs(skew) < _NO_SKEW
    half = 0.5 * np.where(is_normal, 1.0, skew)
    shape = 1.0 / half**2
    place = np.maximum(shape + z / half, 0.0)
    below = np.where(
        half > 0.0, special.gammainc(shape, place), special.gammaincc(shape, place)
    )
    return np.where(is_normal, special.ndtr(z), below)


def pearson3_quantile(prob: Floats | float, skew: Floats | float) -> Floats:
    """Inverse of `pearson3_cdf`."""
    is_normal = np.abs(skew) < _NO_SKEW
    half = 0.5 * np.where(is_normal, 1.0, skew)
    shape = 1.0 / half**2
    inverses = special.gammaincinv(shape, prob), special.gammainccinv(shape, prob)
    place = np.where(half > 0.0, *inverses)
    return np.where(is_normal, special.ndtri(prob), (place - shape) * half)


def skewness(values: Floats) -> float:
    """Third central moment over the cube of the sd."""
    centred = values - values.mean()
    return float((centred**3).mean() / (centred**2).mean() ** 1.5)


def uniform_distance(values: Floats) -> float:
    """Kolmogorov and Smirnov's distance of values from the uniform law on [0, 1]."""
    rising = np.sort(values)
    steps = np.arange(len(rising) + 1) / len(rising)
    return float(max((steps[1:] - rising).max(), (rising - steps[:-1]).max()))


def uniform_p_value(values: Floats) -> float:
    """P-value of values that depend on each other, if each is uniform (Tesso and Vehtari 2026).

    Tests of the rank of each, which is binomial, are combined by Cauchy's law, truncated at its
    median: ``prit_c`` of ArviZ.
    """
    rising = np.sort(values)
    n = len(values)
    rank = np.searchsorted(rising, rising, side="right")
    below = np.where(
        rank < n, special.betaincc(rank + 1.0, np.maximum(n - rank, 1.0), rising), 1.0
    )
    above = special.betainc(rank, n - rank + 1.0, rising)
    p = 2.0 * np.minimum(below, above)
    combined = np.mean(np.where(p < 0.5, np.tan((0.5 - p) * np.pi), 0.0))
    return float(0.5 - np.arctan(combined) / np.pi)
