"""Expected posterior variance after a further outcome, of mixtures of a few components.

Sum over a grid of further outcomes of their probability times the posterior variance that each
would leave. All terms are positive.
"""

import numpy as np
from numpy.typing import NDArray
from scipy import special

from ...families.family import GAMMA, Family
from ...families.special_forms import log_negative_binomial
from ...posterior.predictive import ThetaMixture

__all__ = ["expected_variance"]

Floats = NDArray[np.float64]

_GRID = 256  # outcomes
_SINGLE = 128  # counts summed one by one
_AT_ONCE = 2_000_000  # numbers in an array of components x outcomes x items
_MANY = 1e5  # counts from which on logarithms of probabilities are formed without cancellation
_FAINT = 1e-10  # components of less weight do not widen the grid
_REACH, _TAIL = 8.0, 20.0  # of the grid beyond the components, in sd and in Gamma tails


def expected_variance(family: Family, theta: ThetaMixture, more: Floats) -> Floats:
    """E Var(theta | t, y, y') over further outcomes y', shape (n,).

    Parameters
    ----------
    family
        Gammas, of one shape for each item, or Normals.
    theta
        Posteriors with weights.
    more
        Further exposure or noise sd, (n,).
    """
    assert theta.weight is not None
    one = _counts if family is GAMMA else _values
    found = np.empty(len(more))
    step = max(1, _AT_ONCE // (_GRID * len(theta.weight)))
    for start in range(0, len(more), step):
        at = slice(start, start + step)
        found[at] = one(theta.weight[:, at], theta.first[:, at], theta.second[:, at], more[at])
    return found


def _counts(weight: Floats, shape: Floats, rate: Floats, more: Floats) -> Floats:
    """By the negative binomials of further counts; of many counts a grid."""
    ratio = more / rate
    mean, scale = shape * ratio, 1.0 + ratio
    reach = np.sqrt(mean * scale)
    low, high = _ends(weight, mean - _REACH * reach, mean + _REACH * reach + _TAIL * scale)
    low, high = np.floor(np.maximum(low, 0.0)), np.ceil(high)
    count, width = _grid(low, high)
    log_p = -count * np.log1p(1.0 / ratio)[:, None] - (shape * np.log1p(ratio))[:, None]
    log_p = log_p + special.gammaln(shape[0] + count) - special.gammaln(count + 1.0)
    many = high > _MANY  # the large terms above cancel
    if many.any():
        own = shape[:, None, many], mean[:, None, many]
        log_p[:, :, many] = log_negative_binomial(count[:, many], *own)
    after = rate + more
    means = (shape[:, None] + count) / after[:, None]
    return _averaged(weight, log_p, width, means, means / after[:, None])


def _grid(low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Counts that stand for all from `low` to `high`, and their weights, each (outcomes, n).

    The first are counts themselves; what is left is an integral over the root of the count, by
    Gauss and Legendre, with the first term of Euler and Maclaurin where the two meet.
    """
    single = np.arange(_SINGLE)[:, None]
    few = high - low < _SINGLE
    node, share = (x[:, None] for x in np.polynomial.legendre.leggauss(_GRID - _SINGLE))
    begin = np.sqrt(low + _SINGLE - 0.5)
    half = np.where(few, 0.0, 0.5 * (np.sqrt(np.maximum(high, low + _SINGLE)) - begin))
    root = begin + half * (1.0 + node)
    width = (low + single <= high).astype(float)
    # the slope half a step beyond the last count, by a parabola through the last three
    width[-3:] += np.where(few, 0.0, np.array([[1.0], [-3.0], [2.0]]) / 24.0)
    return np.vstack([low + single, root**2]), np.vstack([width, 2.0 * root * half * share])


def _values(weight: Floats, mean: Floats, variance: Floats, more: Floats) -> Floats:
    """By the Normals of a further value."""
    total = variance + more**2
    reach = _REACH * np.sqrt(total)
    low, high = _ends(weight, mean - reach, mean + reach)
    value = low + (high - low) * (np.arange(_GRID)[:, None] / (_GRID - 1.0))
    away = value - mean[:, None]
    log_p = -0.5 * (away**2 / total[:, None] + np.log(total)[:, None])
    pull = (variance / total)[:, None]
    left = np.broadcast_to((more**2 * (variance / total))[:, None], away.shape)
    return _averaged(weight, log_p, 1.0, mean[:, None] + pull * away, left)


def _ends(weight: Floats, low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Ends of the grids: of all components that have some weight."""
    counts = weight > _FAINT
    return np.where(counts, low, np.inf).min(axis=0), np.where(counts, high, -np.inf).max(axis=0)


def _averaged(
    weight: Floats,
    log_p: Floats,
    width: Floats | float,
    means: Floats,
    variances: Floats,
) -> Floats:
    """Mean over outcomes of the mixture's variance given each, (n,).

    Parameters
    ----------
    weight
        Of the components, (K, n).
    log_p, means, variances
        Log probability of each outcome under each component, and mean and variance of theta given
        both, (K, outcomes, n).
    width
        Of the grid at each outcome.
    """
    # components of weight 0 have log probability -inf
    with np.errstate(divide="ignore"):
        log_p = log_p + np.log(weight)[:, None]
    top = log_p.max(axis=0)
    p = np.exp(log_p - top)
    total = p.sum(axis=0)
    p /= total
    mean = (p * means).sum(axis=0)
    variance = (p * (variances + (means - mean) ** 2)).sum(axis=0)
    log_all = top + np.log(total)
    mass = width * np.exp(log_all - log_all.max(axis=0))
    return np.asarray((mass * variance).sum(axis=0) / mass.sum(axis=0))
