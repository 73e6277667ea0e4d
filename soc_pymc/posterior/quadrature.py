"""Quadrature points that replace draws of the curves, with the draws' moments."""

import numpy as np
from numpy.typing import ArrayLike

from .._lib.arrays import Floats
from ..families.rules import product_rule
from ..inference.results import Fit
from .curves import bounded, curve_draws, is_plain, knot_weights

_PART = 500  # items whose moments are computed at once from all draws


def representative_nodes(
    fit: Fit,
    score: ArrayLike,
    *,
    group: ArrayLike | None = None,
    exposure: ArrayLike | None = None,
) -> tuple[Floats, Floats, Floats]:
    """Nine quadrature points of both curves that replace all draws at each score.

    They have the draws' mean and covariance (a product of three-point Gauss-Hermite rules), so that
    averages over them are right to the second order in the curves' uncertainty and, for curves near
    normal, to the fifth.

    Groups and exposures are as in `curve_draws`. Returns weights (9,) and the curves (9, n).
    """
    if is_plain(fit):
        return _bounded_rule(fit, _knot_moments(fit, score))
    at, parts = np.asarray(score, dtype=float), []
    given = {
        name: np.asarray(values)
        for name, values in (("group", group), ("exposure", exposure))
        if values is not None
    }
    for start in range(0, len(at), _PART):
        part = slice(start, start + _PART)
        first, second = curve_draws(fit, at[part], **{k: v[part] for k, v in given.items()})
        parts.append(moments_of(first, second))
    return _bounded_rule(fit, np.concatenate([np.zeros((5, 0)), *parts], axis=1))


def _bounded_rule(fit: Fit, moments: Floats) -> tuple[Floats, Floats, Floats]:
    """Nodes with these moments, with bounded curves."""
    weight, first, second = product_rule(*moments)
    return weight, *bounded(fit, first, second)


def _knot_moments(fit: Fit, score: ArrayLike) -> Floats:
    """Means, and variance, covariance and variance, of both curves at scores, (5, n)."""
    first, first_at = knot_weights(fit, "mean", score)
    second, second_at = knot_weights(fit, "variance", score)
    a, c = first - first.mean(axis=0), second - second.mean(axis=0)
    count = len(a)
    return np.array(
        [
            first_at @ first.mean(axis=0),
            second_at @ second.mean(axis=0),
            ((first_at @ (a.T @ a / count)) * first_at).sum(axis=1),
            ((first_at @ (a.T @ c / count)) * second_at).sum(axis=1),
            ((second_at @ (c.T @ c / count)) * second_at).sum(axis=1),
        ]
    )


def moments_of(first: Floats, second: Floats) -> Floats:
    """Means, variance, covariance and variance of draws of both curves (draws, n), (5, n)."""
    means = first.mean(axis=0), second.mean(axis=0)
    a, c = first - means[0], second - means[1]
    return np.array([*means, (a * a).mean(axis=0), (a * c).mean(axis=0), (c * c).mean(axis=0)])
