"""Mixtures of Normals over draws of the curves: moments in closed form, quantiles by search."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import special

from . import normal_normal
from .mixtures import Summaries, weighted

__all__ = ["normal_summaries"]

Floats = NDArray[np.float64]

_CLOSE = 1e-5  # last step of a search, in sd of the mixture: Newton's method leaves its square
_STEPS = 200  # a bound never met: bisection alone needs fewer


def normal_summaries(
    mean: Floats, variance: Floats, probs: Sequence[float] = (), weight: Floats | None = None
) -> Summaries:
    """Summaries of mixtures of Normals.

    Parameters
    ----------
    mean, variance
        Of the components, shape (components, n).
    probs
        Probabilities of the quantiles.
    weight
        Weights of the components, (components,) or (components, n), adding up to 1; None is equal
        weights.

    Returns
    -------
    Summaries
        Mean and total variance in closed form; quantiles to 1e-5 of the narrowest component's sd.
        The weights of few nodes may be negative, if their spread is small.

    Examples
    --------
    >>> import numpy as np
    >>> found = normal_summaries(np.array([[-1.0], [1.0]]), np.ones((2, 1)), (0.5,))
    >>> float(found.variance[0]), round(abs(float(found.quantiles[0, 0])), 9)
    (2.0, 0.0)
    """
    if weight is None:
        weight = np.full(len(mean), 1.0 / len(mean))
    weight = weight if weight.ndim == 2 else weight[:, None]
    middle = mean[0] + weighted(weight, mean - mean[0])  # exact where all are equal
    total = weighted(weight, variance) + weighted(weight, (mean - middle) ** 2)
    sd = np.sqrt(variance)
    quantiles = np.empty((len(probs), len(middle)))
    for row, prob in zip(quantiles, probs, strict=True):
        row[:] = _search(prob, mean, sd, weight, normal_normal.quantile(prob, middle, total))
    return Summaries(middle, total, quantiles)


def _search(prob: float, mean: Floats, sd: Floats, weight: Floats, start: Floats) -> Floats:
    """Newton's method on the Normal score of the mixture's cdf, bisection where it strays.

    The quantile lies between the least and the largest of the components' own.
    """
    z = float(special.ndtri(prob))
    own = mean + sd * z
    low, high = own.min(axis=0), own.max(axis=0)
    x = np.clip(start, low, high)
    close = _CLOSE * sd.min(axis=0)
    active = np.arange(len(x))
    for _ in range(_STEPS):
        if not len(active):
            break
        w = weight if weight.shape[1] == 1 else weight[:, active]
        u = (x[active] - mean[:, active]) / sd[:, active]
        share = weighted(w, special.ndtr(u))
        # the step is a ratio of densities, from both of which 1 / sqrt(2 pi) is left out
        density = weighted(w, np.exp(-0.5 * u * u) / sd[:, active])
        # where the mixture has no density there is no Newton step: `stays` is false, and it bisects
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            score = special.ndtri(share)
            step = (z - score) * np.exp(-0.5 * score * score) / density
        up = share < prob
        low[active] = np.where(up, x[active], low[active])
        high[active] = np.where(up, high[active], x[active])
        new = x[active] + step
        stays = (new >= low[active]) & (new <= high[active])
        new = np.where(stays, new, 0.5 * (low[active] + high[active]))
        done = (stays & (np.abs(step) <= close[active])) | (
            high[active] - low[active] <= close[active]
        )
        x[active] = new
        active = active[~done]
    return x
