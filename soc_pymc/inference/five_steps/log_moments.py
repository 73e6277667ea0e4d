"""Step 3 as in Section 5.1: E(log theta|t) and Var(log theta|t) smoothed, and Gammas matched."""

import numpy as np
from numpy.typing import NDArray
from scipy import special

from ...families.components import inverse_trigamma
from ...model.splines import Axis, spline_matrix
from .curves import LEAST, ROUNDS, Information, SmoothCurves, as_spline, positive, projected
from .newton import BinMaxima
from .smoothing import smoothing_spline

__all__ = ["match_gammas", "smooth_log_moments"]

Floats = NDArray[np.float64]
Splines = tuple[tuple[Floats, Floats], tuple[Floats, Floats]]


def match_gammas(mean_log: Floats, variance_log: Floats) -> tuple[Floats, Floats]:
    """Log mean and log cv2 of Gammas with these moments of log theta.

    Shifting and scaling log theta leaves the Gamma family, so that the two moments are matched:
    trigamma(shape) = Var(log theta), then log rate = digamma(shape) - E(log theta).

    Parameters
    ----------
    mean_log, variance_log
        E(log theta) and Var(log theta) > 0, shape (n,).

    Examples
    --------
    >>> log_mean, log_cv2 = match_gammas(special.psi([4.0]), special.polygamma(1, [4.0]))
    >>> bool(np.allclose([log_mean, log_cv2], [[np.log(4.0)], [-np.log(4.0)]]))
    True
    """
    shape = inverse_trigamma(variance_log)
    return mean_log + np.log(shape) - special.psi(shape), -np.log(shape)


def smooth_log_moments(
    found: BinMaxima,
    positions: tuple[Floats, Floats],
    items: Floats,
    information: Information,
    axes: tuple[Axis, Axis],
    monotone: bool,
) -> SmoothCurves:
    """Curves of log E(theta|t) and log cv2 through smoothing splines of the moments of log theta.

    A bin at variance 0 enters with Var(log theta) = 0. Weights are expected informations of the
    two moments at the curves themselves, by the delta method.

    Parameters
    ----------
    found
        Maxima of the bins.
    positions
        Of the bins on the axes of the two curves.
    items
        Numbers of items.
    information
        Expected information of log mean and log cv2 at given curves.
    axes
        Of the two curves.
    monotone
        Whether E(theta|t) is made non-decreasing.
    """
    at = np.flatnonzero(found.fitted)
    mean_log, variance_log = _estimates(found)
    weights = items.astype(float), items.astype(float)
    for _ in range(ROUNDS):
        splines = (
            smoothing_spline(positions[0][at], mean_log[at], weights[0][at]),
            smoothing_spline(positions[1][at], variance_log[at], weights[1][at]),
        )
        least = max(
            LEAST * float(np.average(variance_log[at], weights=weights[1][at])),
            float(np.exp(found.second[at].min())),
        )
        curves = match_gammas(
            spline_matrix(positions[0], splines[0][0]) @ splines[0][1],
            _above(splines[1], positions[1], least),
        )
        weights = _weights(curves, information(*curves))
    return _stored(splines, axes, positions, least, weights[0] if monotone else None)


def _estimates(found: BinMaxima) -> tuple[Floats, Floats]:
    """E(log theta) and Var(log theta) of each bin's Gamma; of a point where variance is 0."""
    shape = np.exp(-found.second)
    away = np.where(found.at_zero, 0.0, special.psi(shape) - np.log(shape))
    return found.first + away, np.where(found.at_zero, 0.0, special.polygamma(1, shape))


def _weights(
    curves: tuple[Floats, Floats], information: tuple[Floats, Floats]
) -> tuple[Floats, Floats]:
    """Precisions of estimates of both moments where the curves are true.

    With c = log cv2 and a = exp(-c) the shape, E(log theta) = log mean + digamma(a) - log a and
    Var(log theta) = trigamma(a) have slopes 1 - a trigamma(a) and -a polygamma(2, a) in c.
    """
    shape = np.exp(-curves[1])
    of_mean, of_cv2 = (positive(x) for x in information)
    lower = 1.0 - shape * special.polygamma(1, shape)
    steep = shape * special.polygamma(2, shape)
    return positive(1.0 / (1.0 / of_mean + lower**2 / of_cv2)), positive(of_cv2 / steep**2)


def _above(spline: tuple[Floats, Floats], position: Floats, least: float) -> Floats:
    return np.maximum(spline_matrix(position, spline[0]) @ spline[1], least)


def _stored(
    splines: Splines,
    axes: tuple[Axis, Axis],
    positions: tuple[Floats, Floats],
    least: float,
    weight: Floats | None,
) -> SmoothCurves:
    """Curves as splines with knots where these need them."""
    one, two = splines

    def log_cv2(position: Floats) -> Floats:
        return match_gammas(np.zeros(len(position)), _above(two, position, least))[1]

    def log_mean(position: Floats) -> Floats:
        there = axes[1](axes[0].inverse(position)) if axes[0] != axes[1] else position
        mean_log = spline_matrix(position, one[0]) @ one[1]
        return match_gammas(mean_log, _above(two, there, least))[0]

    first, second = as_spline(log_mean, one[0]), as_spline(log_cv2, two[0])
    values = first[1]
    if weight is not None:
        values = projected((first[0], values), positions[0], weight)
    return SmoothCurves((first[0], second[0]), (values, second[1]), max(first[2], second[2]))
