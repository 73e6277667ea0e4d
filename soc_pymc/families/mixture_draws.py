"""Posterior moments of items under mixtures whose weights differ between draws, draw by draw."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray
from scipy import special

from .components import inverse_trigamma

__all__ = ["count_posteriors", "draw_moments", "value_posteriors"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def count_posteriors(
    count: Floats, exposure: Floats, location: Floats, variance: Floats
) -> tuple[Floats, Floats]:
    """Mean and variance of theta given the count under each component, (n, R).

    Parameters
    ----------
    count, exposure
        Shape (n,).
    location, variance
        Mean (n, R) and variance (n,) of log theta under the components, which are Gammas.
    """
    shape = inverse_trigamma(variance)[:, None]
    rate = np.exp(special.psi(shape) - location) + exposure[:, None]
    after = shape + count[:, None]
    return after / rate, after / rate**2


def value_posteriors(
    value: Floats, noise_sd: Floats, location: Floats, variance: Floats
) -> tuple[Floats, Floats]:
    """The same of values under Normal components."""
    own, noise = variance[:, None], noise_sd[:, None] ** 2
    total = own + noise
    mean = (location * noise + own * value[:, None]) / total
    return mean, np.broadcast_to(own * noise / total, mean.shape)


def draw_moments(
    density: Floats,
    means: Floats,
    variances: Floats,
    place: Ints,
    blocks: Iterable[tuple[Ints, Floats]],
    draws: int,
) -> tuple[Floats, Floats]:
    """Posterior mean and variance of every item under every draw of the weights, (draws, n) each.

    Parameters
    ----------
    density
        Densities of the items' outcomes under the components, up to a factor of each item, (n, R).
    means, variances
        Of theta given outcome and component, (n, R).
    place
        Which of the distinct scores each item has, (n,).
    blocks
        Numbers of scores, and the components' weights there, (draws, scores, R).
    draws
        Number of draws.
    """
    # squares are taken about a centre, so that little is lost where means are large
    centre = ((density * means).sum(axis=1) / density.sum(axis=1))[:, None]
    first = density * (means - centre)
    second = density * (variances + (means - centre) ** 2)
    mean, variance = np.empty((2, draws, len(density)))
    order = np.argsort(place, kind="stable")
    start = np.searchsorted(place[order], np.arange(place.max(initial=-1) + 2))
    for at, weights in blocks:
        for k, weight in zip(at, weights.transpose(1, 0, 2), strict=True):
            of = order[start[k] : start[k + 1]]
            total = np.maximum(weight @ density[of].T, 1e-300)
            away = weight @ first[of].T / total
            mean[:, of] = centre[of, 0] + away
            variance[:, of] = weight @ second[of].T / total - away**2
    return mean, variance
