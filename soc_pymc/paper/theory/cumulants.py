"""Moments about zero to cumulants and back (Kendall and Stuart, section 3.14)."""

from math import comb

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..._lib.arguments import numbers_of
from ..._lib.errors import FitError

__all__ = ["cumulants_from_moments", "moments_from_cumulants"]

Floats = NDArray[np.float64]


def cumulants_from_moments(moments: ArrayLike) -> Floats:
    """Cumulants from moments about zero: the polynomials p_k of the paper's Appendix.

    Parameters
    ----------
    moments
        E(theta), E(theta^2), ..., shape (k, ...).

    Returns
    -------
    numpy.ndarray
        Mean, variance, third cumulant, ..., of the same shape. Skewness is the third over the
        second to the power 3/2, excess kurtosis the fourth over the second squared. Not finite
        where a product of moments is beyond 1e308.

    Examples
    --------
    >>> cumulants_from_moments([1.0, 2.0, 6.0])  # Exponential(1): (k - 1)!
    array([1., 1., 2.])
    """
    mu = _stacked(moments, "moments")
    out = mu.copy()
    for n in range(1, len(mu)):
        for m in range(n):
            out[n] -= comb(n, m) * out[m] * mu[n - m - 1]
    return out


def moments_from_cumulants(cumulants: ArrayLike) -> Floats:
    """Moments about zero from cumulants: the inverse of `cumulants_from_moments`.

    Also turns derivatives of log f into the ratios f'/f, f''/f, ...: the algebra is the same.

    Parameters
    ----------
    cumulants
        Shape (k, ...), from the first on.

    Returns
    -------
    numpy.ndarray
        Moments about zero, of the same shape; not finite where one is beyond 1e308.

    Examples
    --------
    >>> moments_from_cumulants([0.0, 1.0, 0.0, 0.0])  # Normal(0, 1)
    array([0., 1., 0., 3.])
    """
    kappa = _stacked(cumulants, "cumulants")
    out = kappa.copy()
    for n in range(1, len(kappa)):
        for m in range(n):
            out[n] += comb(n, m) * kappa[m] * out[n - m - 1]
    return out


def _stacked(given: ArrayLike, name: str) -> Floats:
    """Numbers by order."""
    found = numbers_of(given, name)
    if found.ndim == 0:
        raise FitError(f"{name}={found} must be stacked, order 1 first: give an array")
    return found
