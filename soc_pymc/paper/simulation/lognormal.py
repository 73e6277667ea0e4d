"""Section 5.2 of the paper: rates lognormal around given scores, and the exact posterior."""

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import special

from ..._lib.arguments import many
from ..._lib.errors import FitError
from .asked import counts, not_negative, positive, random_numbers, shifts

__all__ = ["lognormal_oracle", "lognormal_rates"]

Floats = NDArray[np.float64]

_DEEP = 40.0  # the integrands' ends lie this many nats below the density's peak
_CHUNK = 1 << 20  # numbers in one array of items x nodes
_NEWTON = 40  # steps from the outside, which never pass an end


def lognormal_rates(
    score: ArrayLike,
    exposure: ArrayLike,
    delta: float = 0.0,
    sigma: float = 0.5,
    seed: int = 0,
) -> pd.DataFrame:
    """Counts of items with given scores and exposures, after the paper's Section 5.2.

    log theta ~ Normal(log t + delta, sigma^2) and y ~ Poisson(theta N). The paper takes t and N
    from its own query-ad pairs; any real table's will do, repeated to the number of items wanted.

    Parameters
    ----------
    score
        Scores t > 0, shape (n,).
    exposure
        Exposures N >= 0, shape (n,).
    delta
        Bias of log t.
    sigma
        Standard deviation of log theta given t.
    seed
        Seed of the random numbers.

    Returns
    -------
    pandas.DataFrame
        Columns score, exposure, count and theta; theta in events per unit of exposure.

    Raises
    ------
    FitError
        If `delta` is not within 100 of 0, `sigma` not above 0 and at most 10, or items expect
        more than 2^53 events.

    Examples
    --------
    >>> frame = lognormal_rates([0.1, 0.2], [1e6, 1e6], sigma=1e-9)
    >>> bool(np.allclose(frame["theta"], frame["score"]))
    True
    """
    t, size = many({"score": score, "exposure": exposure})
    _refuse_tables(t, size)
    delta, sigma = shifts(delta, sigma)
    rng = random_numbers(len(t), seed, columns=4)
    theta = t * np.exp(rng.normal(delta, sigma, len(t)))
    count = counts(rng, theta * size)
    return pd.DataFrame(
        {"score": t, "exposure": np.asarray(exposure), "count": count, "theta": theta}
    )


def lognormal_oracle(
    score: ArrayLike, count: ArrayLike, exposure: ArrayLike, delta: float, sigma: float
) -> tuple[Floats, Floats]:
    """Exact posterior mean and variance of theta for items of `lognormal_rates`.

    Around its mode, the posterior of x = log theta is exp(-u^2/2 - n (e^(sigma u) - 1 - sigma u)),
    where u = (x - mode)/sigma and n = N e^mode is the count expected there: it depends on the item
    through n alone, is log-concave and analytic, and the trapezoid rule between points where it
    has vanished converges exponentially (Trefethen and Weideman 2014).

    Parameters
    ----------
    score, count, exposure
        Items, each of shape (n,); exposure 0 returns the prior's moments.
    delta, sigma
        Those of the simulation; sigma above 0 and at most 10, where E(theta^2) is 1e87 E(theta)^2.

    Returns
    -------
    tuple of numpy.ndarray
        E(theta | t, y) and Var(theta | t, y), each of shape (n,), to a relative 1e-8 (sigma from
        .01 to 3, counts to 1e5, exposures to 1e7: tested in long arithmetic).

    Raises
    ------
    FitError
        If delta is not within 100 of 0, sigma is not above 0 and at most 10, or a score is not
        above 0.

    Examples
    --------
    >>> mean, variance = lognormal_oracle([0.1], [0], [0], delta=0.0, sigma=1.0)
    >>> bool(np.allclose([mean[0], variance[0]], [0.1 * np.exp(0.5), 0.01 * np.e * (np.e - 1)]))
    True
    """
    delta, sigma = shifts(delta, sigma)
    t, y, size = many({"score": score, "count": count, "exposure": exposure})
    _refuse_tables(t, y, size)
    positive(t, "score")
    not_negative(y, "count")
    not_negative(size, "exposure")
    mode, expected = _modes(np.log(t) + delta, y, size, sigma)
    nodes = 64 + int(64 * sigma + 24 * sigma**2)
    mean, variance = np.empty(len(t)), np.empty(len(t))
    step = max(_CHUNK // nodes, 1)
    for start in range(0, len(t), step):
        part = slice(start, start + step)
        first, second = _moments(expected[part], sigma, nodes)
        peak = np.exp(mode[part])
        mean[part] = peak * (1.0 + first)
        variance[part] = peak * peak * (second - first * first)
    return mean, variance


def _refuse_tables(score: Floats, *others: Floats) -> None:
    if score.ndim != 1 or any(other.shape not in ((), score.shape) for other in others):
        raise FitError(f"score has the shape {score.shape}: give one number of each for every item")


def _modes(centre: Floats, y: Floats, size: Floats, sigma: float) -> tuple[Floats, Floats]:
    """Mode of log theta and the count n expected there: n s^2 e^(n s^2) = N s^2 e^(centre + y s^2).

    `wrightomega(z)` solves w + log w = z.
    """
    a = sigma * sigma
    # of the two forms the one not taken may overflow or have a logarithm of 0
    with np.errstate(divide="ignore", invalid="ignore"):
        scaled = special.wrightomega(np.log(size) + np.log(a) + centre + a * y)
        # either form loses digits where the other keeps them
        by_rate = np.log(scaled / a) - np.log(size)
    mode = np.where(scaled < 1.0, centre + a * y - scaled, by_rate)
    return mode, scaled / a


def _moments(expected: Floats, sigma: float, nodes: int) -> tuple[Floats, Floats]:
    """Posterior means of w and w^2, w = theta / mode - 1."""
    low, high = _ends(expected, sigma)
    u = low + (high - low) * np.linspace(0.0, 1.0, nodes)[:, None]
    w = np.expm1(sigma * u)
    density = np.exp(-0.5 * u * u - expected * (w - sigma * u))
    total = density.sum(axis=0)
    density *= w
    first = density.sum(axis=0) / total
    density *= w
    return first, density.sum(axis=0) / total


def _ends(expected: Floats, sigma: float) -> tuple[Floats, Floats]:
    """Points beyond which the density, and on the right its product with theta^2, has vanished.

    The logarithms are concave: Newton's steps from outside stay outside.
    """
    low = np.full(len(expected), -np.sqrt(2.0 * _DEEP))
    curvature = 1.0 + expected * sigma**2
    high = (2.0 * sigma + np.sqrt(4.0 * sigma**2 + 2.0 * _DEEP * curvature)) / curvature
    for ends, tilt in ((low, 0.0), (high, 2.0 * sigma)):
        for _ in range(_NEWTON):
            w = np.expm1(sigma * ends)
            value = -0.5 * ends**2 - expected * (w - sigma * ends) + tilt * ends + _DEEP
            slope = -ends - expected * sigma * w + tilt
            step = value / slope
            ends -= step
            if np.abs(step).max(initial=0.0) < 1e-3:
                break
    return low, high
