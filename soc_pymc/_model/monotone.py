"""Projections of posterior draws of curves, natural cubic splines, onto non-decreasing ones.

Draws move to the nearest non-decreasing curve in the metric of the posterior's precision, which
gives draws of a constrained posterior (Lin and Dunson 2014; Sen, Patra and Dunson 2018).
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.interpolate import CubicSpline
from scipy.optimize import nnls

from .._lib.arrays import Floats

# a derivative this little below 0, relative to the steepest secant, is rounding
_ROUNDING = 1e-14
# the search ends when the derivative is at most this far below 0
_CLOSE = 1e-10
_ROUNDS = 50  # a handful suffice; a straight line removes the rest
# ridge, as a share of the largest variance, so that the metric exists
_RIDGE = 1e-6
_FEW = 5  # draws per knot below which correlations are halved


def project_monotone(
    values: ArrayLike, knots: ArrayLike, precision: Floats | None = None
) -> Floats:
    """Project draws of a spline, (draws, k) or (draws, groups, k), that decrease anywhere.

    `precision` is the metric, (k, k), by default that of the draws' own covariance.
    """
    draws = np.array(values, dtype=float)
    k = np.asarray(knots, dtype=float)
    if len(k) == 1 or not len(draws):
        return draws
    if draws.ndim == 2:
        return _project(draws, _Derivative(k), _metric_root(draws, precision))
    for group in range(draws.shape[1]):
        draws[:, group] = project_monotone(draws[:, group], k, precision)
    return draws


def _metric_root(draws: Floats, precision: Floats | None) -> Floats:
    """Lower triangular root of the inverse of the metric."""
    if precision is not None:
        return np.linalg.cholesky(np.linalg.inv(precision))
    number, k = draws.shape
    variance = draws.var(axis=0)
    if number < 2 or not variance.max() > 0:
        return np.eye(k)
    covariance = np.atleast_2d(np.cov(draws, rowvar=False, bias=True))
    if number < _FEW * k:
        covariance = 0.5 * (covariance + np.diag(variance))
    return np.linalg.cholesky(covariance + _RIDGE * variance.max() * np.eye(k))


class _Derivative:
    """Quadratics between knots with Bernstein coefficients p, 3d - p - q, q of secants d."""

    def __init__(self, knots: Floats) -> None:
        k = len(knots)
        # values from secants
        rise = np.tri(k, k - 1, -1) * np.diff(knots)
        spline = None if k == 2 else CubicSpline(knots, rise, bc_type="natural")
        self.knots = knots
        # slopes at the knots from secants, (k, k - 1)
        self.to_slopes = np.ones((2, 1)) if spline is None else spline(knots, 1)

    def secants(self, values: Floats) -> Floats:
        """Secants of curves (..., k): exactly 0 for constants."""
        return np.asarray(np.diff(values, axis=-1) / np.diff(self.knots))

    def minima(self, values: Floats) -> tuple[Floats, Floats]:
        """Smallest derivative on each interval, and its position from 0 to 1, each (..., k - 1)."""
        secant = self.secants(values)
        slope = secant @ self.to_slopes.T
        p = slope[..., :-1]
        q = slope[..., 1:]
        middle = 3.0 * secant - p - q
        bend = p - 2.0 * middle + q
        inside = (bend > 0) & (p > middle) & (q > middle)
        safe = np.where(inside, bend, 1.0)
        place = np.where(inside, (p - middle) / safe, np.where(p <= q, 0.0, 1.0))
        least = np.where(inside, (p * q - middle * middle) / safe, np.minimum(p, q))
        return least, place

    def rows(self, interval: NDArray[np.intp], place: Floats) -> Floats:
        """Derivatives at positions in intervals as linear functions of the values, (n, k)."""
        s = place[:, None]
        width = np.diff(self.knots)
        p = self.to_slopes[interval]
        q = self.to_slopes[interval + 1]
        middle = 3.0 * np.eye(len(width))[interval] - p - q
        of_secants = (1 - s) ** 2 * p + 2 * s * (1 - s) * middle + s**2 * q
        secants = np.diff(np.eye(len(self.knots)), axis=0) / width[:, None]
        return np.asarray(of_secants @ secants)


def _project(values: Floats, derivative: _Derivative, root: Floats) -> Floats:
    """Projections (draws, k) in the metric with inverse root @ root.T, by cutting planes."""
    scale = np.abs(derivative.secants(values)).max(axis=1)
    falls = np.flatnonzero(
        derivative.minima(values)[0].min(axis=1) < -_ROUNDING * scale
    )
    result = values.copy()
    # constraints do not depend on the level; subtracting it loses no digits
    starts = np.linalg.solve(root, (values - values.mean(axis=1, keepdims=True)).T).T
    # the knots and three points between any two
    place, interval = np.divmod(np.arange(4 * (values.shape[1] - 1)), 4)[::-1]
    grid = _dual(
        derivative.rows(np.append(interval, interval[-1]), np.append(place / 4, 1)),
        root,
    )
    designs = dict.fromkeys(falls.tolist(), grid)
    active = falls
    for _ in range(_ROUNDS):
        for i in active.tolist():
            # the dual of this quadratic programme is non-negative least squares
            design = designs[i]
            multipliers, _ = nnls(design, -starts[i], maxiter=100 * design.shape[1])
            result[i] = values[i] + (design @ multipliers) @ root.T
            # without the constraints that are not active
            designs[i] = design[:, multipliers > 0]
        least, place = derivative.minima(result[active])
        low = least < -_CLOSE * scale[active, None]
        normals = _dual(derivative.rows(np.nonzero(low)[1], place[low]), root)
        active = active[low.any(axis=1)]
        count = low.sum(axis=1)
        if not len(active):
            break
        cuts = np.split(normals, np.cumsum(count[count > 0])[:-1], axis=1)
        for i, cut in zip(active.tolist(), cuts, strict=True):
            designs[i] = np.hstack([designs[i], cut])
    result[falls] = _lift(result[falls], derivative)
    return result


def _dual(rows: Floats, root: Floats) -> Floats:
    """Constraints as directions of unit length in the metric, (k, constraints)."""
    design = root.T @ rows.T
    return np.asarray(design / np.sqrt((design**2).sum(axis=0)))


def _lift(values: Floats, derivative: _Derivative) -> Floats:
    """Add the flattest straight line that removes negative derivatives from rounding."""
    knots = derivative.knots
    line = knots - 0.5 * (knots[0] + knots[-1])
    digits = np.abs(values).max(axis=1) * np.finfo(float).eps / (knots[-1] - knots[0])
    lift = np.zeros(len(values))
    result = values
    for _ in range(100):
        least = derivative.minima(result)[0].min(axis=1)
        if (least >= 0).all():
            break
        lift = np.where(
            least < 0, np.maximum(2.0 * lift, np.maximum(-least, digits)), lift
        )
        result = values + lift[:, None] * line
    return result
