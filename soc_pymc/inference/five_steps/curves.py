"""Step 3: curves of E(theta|t) and Var(theta|t) from the bins' estimates, smooth or as steps."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from ...families.monotone import project_monotone
from ...model.splines import spline_matrix
from .newton import BinMaxima
from .smoothing import smoothing_spline

__all__ = [
    "LEAST",
    "ROUNDS",
    "Information",
    "SmoothCurves",
    "as_spline",
    "nearest",
    "positive",
    "projected",
    "smooth_curves",
    "stepped_curves",
]

Floats = NDArray[np.float64]
Information = Callable[[Floats, Floats], tuple[Floats, Floats]]

ROUNDS = 4  # of weights at the curves, and curves with the weights
LEAST = 0.01  # of the average spread: a smooth curve of variances may cross 0
_CLOSE, _MOST_KNOTS = 1e-4, 400  # of a curve, stored as a spline
_RIDGE = 1e-9


@dataclass(frozen=True)
class SmoothCurves:
    """Two curves by their values at knots.

    Attributes
    ----------
    knots, values
        Of the first and of the second: log mean and log cv2, or mean and log variance.
    error
        Largest difference, midway between knots, to what the smoothing splines make of them.
    """

    knots: tuple[Floats, Floats]
    values: tuple[Floats, Floats]
    error: float

    def at(self, positions: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
        """Values at positions on the two axes."""
        first, second = (
            spline_matrix(u, k) @ v
            for u, k, v in zip(positions, self.knots, self.values, strict=True)
        )
        return first, second


def smooth_curves(
    found: BinMaxima,
    positions: tuple[Floats, Floats],
    items: Floats,
    information: Information,
    monotone: bool,
) -> SmoothCurves:
    """Smoothing splines through the bins' first parameter and exp of their second.

    Of counts these are log E(theta|t) and the squared cv, of values E(theta|t) and Var(theta|t). A
    maximum at variance 0 enters as 0, as on this scale it says no more than it knows. Weights are
    expected informations at the curves themselves, never at the estimates, whose noise they would
    share.

    Parameters
    ----------
    found
        Maxima of the bins.
    positions
        Of the bins on the axes of the two curves.
    items
        Numbers of items.
    information
        Expected information of the two parameters at given curves.
    monotone
        Whether the first curve is made non-decreasing.
    """
    at = np.flatnonzero(found.fitted)
    spread = np.where(found.at_zero, 0.0, np.exp(found.second))
    weights = items.astype(float), items.astype(float)
    for _ in range(ROUNDS):
        first = smoothing_spline(positions[0][at], found.first[at], weights[0][at])
        second = smoothing_spline(positions[1][at], spread[at], weights[1][at])
        least = max(LEAST * float(np.average(spread[at], weights=weights[1][at])), _floor(found))
        curves = (
            spline_matrix(positions[0], first[0]) @ first[1],
            np.log(np.maximum(spline_matrix(positions[1], second[0]) @ second[1], least)),
        )
        of_first, of_second = information(*curves)
        weights = positive(of_first), positive(of_second * np.exp(-2.0 * curves[1]))
    if monotone:
        first = first[0], projected(first, positions[0], weights[0])

    def log_spread(position: Floats) -> Floats:
        return np.log(np.maximum(spline_matrix(position, second[0]) @ second[1], least))

    knots, values, error = as_spline(log_spread, second[0])
    return SmoothCurves((first[0], knots), (first[1], values), error)


def _floor(found: BinMaxima) -> float:
    """Least spread where all bins are at 0: the average of what stands for it."""
    floors = found.second[found.at_zero]
    return float(np.exp(floors.mean())) if len(floors) else 0.0


def positive(weight: Floats) -> Floats:
    """Weights of which none is so small that it might as well be 0."""
    return np.maximum(weight, 1e-12 * weight.max())


def projected(curve: tuple[Floats, Floats], position: Floats, weight: Floats) -> Floats:
    """The nearest non-decreasing spline with the same knots, in the bins' weights."""
    at = spline_matrix(position, curve[0])
    metric = at.T @ (weight[:, None] * at)
    metric += _RIDGE * np.trace(metric) * np.eye(len(metric))
    return project_monotone(curve[1][None], curve[0], metric)[0]


def as_spline(exact: Callable[[Floats], Floats], knots: Floats) -> tuple[Floats, Floats, float]:
    """A curve as a spline with these knots and more where it needs them; and its largest error."""
    own = knots
    while True:
        middle = 0.5 * (own[1:] + own[:-1])
        stored = exact(own)
        off = np.abs(spline_matrix(middle, own) @ stored - exact(middle))
        coarse = off > _CLOSE
        if not coarse.any() or len(own) + coarse.sum() > _MOST_KNOTS:
            return own, stored, float(off.max(initial=0.0))
        own = np.sort(np.concatenate([own, middle[coarse]]))


def stepped_curves(
    found: BinMaxima, position: Floats, information: Information, monotone: bool
) -> tuple[Floats, Floats]:
    """Each bin's own estimates; those of bins that were not fitted are their nearest neighbour's.

    Nearest on the axis of the mean, the lower of two. For `monotone` the first are pooled where
    they decrease (isotonic regression), weighted by their information.
    """
    at = np.flatnonzero(found.fitted)
    first, second = found.first[at], found.second[at]
    if monotone:
        every = np.interp(position, position[at], first), np.interp(position, position[at], second)
        weight = positive(information(*every)[0])[at]
        first = np.asarray(isotonic_regression(first, weights=weight).x)
    own = nearest(position, at)
    return first[own], second[own]


def nearest(position: Floats, known: NDArray[np.intp]) -> NDArray[np.intp]:
    """For each position the place in `known` of the nearest of these, the lower of two.

    Examples
    --------
    >>> nearest(np.array([0.0, 1.0, 2.0, 9.0]), np.array([0, 2]))
    array([0, 0, 1, 1])
    """
    order = np.argsort(position[known], kind="stable")
    there = position[known][order]
    above = np.clip(np.searchsorted(there, position), 0, len(there) - 1)
    below = np.maximum(above - 1, 0)
    closer = position - there[below] <= there[above] - position
    return np.asarray(order[np.where(closer, below, above)])
