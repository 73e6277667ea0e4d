"""Importance weights of a Gaussian approximation: how good it is, better moments, better draws."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from .._lib.arrays import Floats
from .density import CHUNK, Evaluate
from .results import PARETO_K

# Weights are left out only where no direction's sd is off by more than a seventh: one that is off
# by a factor s costs the share 1 - sqrt(2 / s^2 - 1) s^2 of the effective sample, a twentieth here
_CLEAR_K, _CLEAR_ESS = 0.5, 0.95
_FEWEST_DRAWS, _MOST_DRAWS = 1000, 4000  # to estimate Pareto k from
_NARROWEST, _WIDEST = 0.7, 3.0  # change of a width in one refinement


def importance(log_weight: Floats) -> tuple[Floats, float, float]:
    """Smoothed importance weights, their Pareto k, and effective sample over their number."""
    from arviz_stats.base import array_stats

    if not np.isfinite(log_weight).all():
        return np.full(len(log_weight), 1.0 / len(log_weight)), np.inf, 0.0
    # ArviZ's function is written for leave-one-out: it takes minus the log weights
    smoothed, k = array_stats.psislw(-log_weight)
    weight = np.exp(np.asarray(smoothed) - np.max(smoothed))
    weight /= weight.sum()
    return weight, float(k), float(1.0 / (weight**2).sum() / len(weight))


def weighed_draws(
    evaluate: Evaluate,
    location: Floats,
    factor: Floats,
    wanted: int,
    rng: np.random.Generator,
    advance: Callable[[float], None],
) -> tuple[Floats, Floats]:
    """Standard normal noise of draws of the approximation, and their log importance weights.

    Pareto k of 1,000 draws has a standard error near 0.15, so a k that is not clearly good is
    estimated from up to 4,000. Weights that are far from equal want four draws for one kept.
    """
    noise, log_weight = np.empty((0, len(location))), np.empty(0)
    number = max(wanted, _FEWEST_DRAWS)
    while len(noise) < number:
        more = rng.normal(size=(min(CHUNK, number - len(noise)), len(location)))
        weight = evaluate(location + more @ factor.T)[0] + 0.5 * (more**2).sum(axis=1)
        noise, log_weight = np.concatenate([noise, more]), np.concatenate([log_weight, weight])
        advance(len(more))
        if len(noise) < number:
            continue
        _, k, ess = importance(log_weight)
        if not k <= _CLEAR_K and number < _MOST_DRAWS:
            number = min(2 * number, _MOST_DRAWS)
        elif not ess >= _CLEAR_ESS:
            number = max(number, 4 * wanted)
    return noise, log_weight


def refined(
    noise: Floats, log_weight: Floats, location: Floats, factor: Floats
) -> tuple[Floats, Floats]:
    """Location and factor that match the weighted draws' moments.

    A bound's maximum is too narrow where the posterior is skewed; weights say where (adaptive
    importance sampling: Paananen et al. 2021). No direction becomes narrower than before by more
    than a factor of 0.7, or wider than 3; correlations count as far as the effective sample allows.
    """
    weight, k, ess = importance(log_weight)
    if not np.isfinite(k):
        return location, factor
    mean = weight @ noise
    away = noise - mean
    covariance = (weight[:, None] * away).T @ away
    trust = max(0.0, 1.0 - len(mean) / (ess * len(noise)))
    wide = np.diag(np.maximum(np.diagonal(covariance), 1.0))
    value, vector = linalg.eigh(trust * covariance + (1.0 - trust) * wide)
    root = (vector * np.sqrt(np.clip(value, _NARROWEST**2, _WIDEST**2))) @ vector.T
    return location + factor @ mean, factor @ root


def chosen(log_weight: Floats, wanted: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Draws to keep: the first ones or, where weights matter, a sample by smoothed weights.

    Systematic resampling takes every draw as often as its weight says, except for rounding.
    """
    weight, k, ess = importance(log_weight)
    if ess >= _CLEAR_ESS or not k <= PARETO_K:
        return np.arange(wanted)
    steps = (rng.random() + np.arange(wanted)) / wanted
    return rng.permutation(np.searchsorted(np.cumsum(weight), steps).clip(0, len(weight) - 1))
