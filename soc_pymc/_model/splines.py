"""Axes of curves, and natural cubic splines on them.

Values at knots determine a curve: a natural cubic spline between them, straight lines beyond (Green
and Silverman 1994, section 2.3). Its roughness is the integral of the squared second derivative,
whose null space is the straight lines.

Draws of curves that shall not decrease move to the nearest such curve in the metric of the
posterior's precision, which gives draws of a constrained posterior (Lin and Dunson 2014; Sen, Patra
and Dunson 2018).
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.interpolate import CubicSpline
from scipy.optimize import nnls

from .._lib.arrays import Floats, Pair, middle_shares
from ..families.scales import LINEAR, SCALES, Scale

# a derivative this little below 0, relative to the steepest secant, is rounding
_SLOPE_ROUNDING = 1e-14
# the search ends when the derivative is at most this far below 0
_LEAST_SLOPE = 1e-10
_PROJECTION_ROUNDS = 50  # a handful suffice; a straight line removes the rest
# ridge, as a share of the largest variance, so that the metric exists
_METRIC_RIDGE = 1e-6
_FEW_PER_KNOT = 5  # draws per knot below which correlations are halved


@dataclass(frozen=True)
class Axis:
    """The axis of one curve: a monotone map from scores to positions `u` of the spline."""

    # of `SCALES`, or "rank": u is the fraction of items with a smaller score
    scale: str
    score: tuple[float, ...] = ()  # only for "rank": increasing scores
    # and their fractions, linear between the scores
    fraction: tuple[float, ...] = ()

    @property
    def local(self) -> Scale:
        """The scale on which widths of bins are measured."""
        return SCALES.get(self.scale, LINEAR)

    def __call__(self, score: ArrayLike) -> Floats:
        """Positions on the axis of an array of scores, of the same shape."""
        if self.scale in SCALES:
            return SCALES[self.scale].checked(score)
        return np.interp(np.asarray(score, dtype=float), self.score, self.fraction)

    def inverse(self, position: ArrayLike) -> Floats:
        """Scores at positions on the axis."""
        u = np.asarray(position, dtype=float)
        if self.scale in SCALES:
            return SCALES[self.scale].score(u)
        return np.interp(u, self.fraction, self.score)


def place_knots(position: ArrayLike, weight: ArrayLike, number: int) -> Floats:
    """Return up to `number` distinct knots at weighted quantiles of `position`, ends included."""
    u = np.asarray(position, dtype=float)
    w = np.asarray(weight, dtype=float)
    order = np.argsort(u)
    u = u[order]
    w = w[order]
    distinct = _apart(np.unique(u))
    if len(distinct) <= number:
        return distinct
    middle = middle_shares(w)
    share = np.linspace(0.0, 1.0, number)
    knots = np.interp(share * (middle[-1] - middle[0]) + middle[0], middle, u)
    return _apart(knots)


def _apart(knots: Floats) -> Floats:
    """Increasing knots without those that differ only by rounding from the one before."""
    keep = np.concatenate([[True], np.diff(knots) > 1e-9 * (knots[-1] - knots[0])])
    return knots[keep]


def spline_matrix(position: ArrayLike, knots: ArrayLike) -> Floats:
    """Matrix (n, k) from values at sorted knots (k,) to the natural cubic spline at n positions."""
    k = np.asarray(knots, dtype=float)
    if len(k) < 3:
        return natural_spline(position, k, np.eye(len(k)))
    return _continued(_cardinal_splines(k.tobytes()), position)


@lru_cache(maxsize=32)
def _cardinal_splines(knots: bytes) -> CubicSpline:
    """Splines that are 1 at one knot each; a fit asks for those of few sets of knots, often."""
    k = np.frombuffer(knots)
    return CubicSpline(k, np.eye(len(k)), bc_type="natural")


def natural_spline(position: ArrayLike, knots: ArrayLike, values: ArrayLike) -> Floats:
    """Natural cubic splines (n,) or (n, m) at positions, from values (k,) or (k, m) at knots."""
    u, k, v = (np.asarray(x, dtype=float) for x in (position, knots, values))
    if len(k) == 1:
        return np.repeat(v, len(u), axis=0)
    column = (slice(None), *(None,) * (v.ndim - 1))
    if len(k) == 2:
        right = ((u - k[0]) / (k[1] - k[0]))[column]
        return (1.0 - right) * v[0] + right * v[1]
    return _continued(CubicSpline(k, v, bc_type="natural"), u)


def _continued(spline: CubicSpline, position: ArrayLike) -> Floats:
    """A spline at positions (n,), straight beyond its outer knots."""
    u = np.asarray(position, dtype=float)
    inside = np.clip(u, spline.x[0], spline.x[-1])
    values: Floats = spline(inside)
    beyond = np.flatnonzero(inside != u)
    distance = (u - inside)[beyond].reshape(-1, *(1,) * (values.ndim - 1))
    values[beyond] += distance * spline(inside[beyond], 1)
    return values


@dataclass(frozen=True, eq=False)
class Basis:
    """A straight line and wiggly functions with independent, equal prior scale."""

    knots: Floats  # (k,): on the axis
    centre: float  # position of the line's level
    # (k, 2): values at the knots of 1 and u - centre; (k, 1) for one knot
    line: Floats
    # (k, k - 2): values at the knots of the wiggly functions. With coefficients N(0, 1) the curve's
    # departure from a line has variance 1 averaged over the bins' items, and the prior density
    # falls with the curve's roughness
    wiggle: Floats

    def sd(self, position: Floats, weight: Floats) -> float:
        """Weighted standard deviation of positions about the centre."""
        square = np.average((position - self.centre) ** 2, weights=weight)
        return float(np.sqrt(square))

    def centred(
        self, position: Floats, weight: Floats, wiggles: int | None = None
    ) -> Floats:
        """Line and wiggly functions at the knots, whose weighted average at positions is 0."""
        slope = self.line[:, 1:] / max(self.sd(position, weight), 1e-300)
        functions = np.column_stack([slope, self.wiggle[:, :wiggles]])
        at_rows = spline_matrix(position, self.knots)
        return functions - np.average(at_rows @ functions, axis=0, weights=weight)


def roughness(knots: Floats) -> Floats:
    """Integral of the squared second derivative as a quadratic form in the values at knots."""
    h = np.diff(knots)[:, None]
    bend = _cardinal_splines(knots.tobytes())(knots, 2)
    # linear between the knots
    parts = bend[:-1], bend[1:], bend[:-1] + bend[1:]
    return sum(part.T @ (h * part) for part in parts) / 6.0


def make_basis(position: ArrayLike, weight: ArrayLike, number: int) -> Basis:
    """Basis for a curve over bins at `position` holding `weight` items, with `number` knots."""
    u = np.asarray(position, dtype=float)
    w = np.asarray(weight, dtype=float)
    knots = place_knots(u[w > 0], w[w > 0], number)
    centre = float(np.average(u, weights=w))
    ones = np.ones(len(knots))
    line = ones[:, None] if len(knots) == 1 else np.column_stack([ones, knots - centre])
    if len(knots) < 3:
        return Basis(knots, centre, line, np.zeros((len(knots), 0)))
    # makes the eigenvalues free of the axis's unit
    scale = (knots[-1] - knots[0]) ** 3
    value, vector = np.linalg.eigh(roughness(knots) * scale)
    wiggle = vector[:, 2:] / np.sqrt(value[2:])
    at_bins = spline_matrix(u, knots) @ wiggle
    slope, level = np.polyfit(u - centre, at_bins, 1, w=np.sqrt(w))
    residual = at_bins - np.outer(u - centre, slope) - level
    spread = np.sqrt(np.average((residual**2).sum(axis=1), weights=w))
    return Basis(knots, centre, line, wiggle / spread)


# --- projections onto non-decreasing splines ------------------------------------------------------


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
    if number < _FEW_PER_KNOT * k:
        covariance = 0.5 * (covariance + np.diag(variance))
    return np.linalg.cholesky(covariance + _METRIC_RIDGE * variance.max() * np.eye(k))


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
        return np.diff(values, axis=-1) / np.diff(self.knots)

    def minima(self, values: Floats) -> Pair:
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
        return of_secants @ secants


def _project(values: Floats, derivative: _Derivative, root: Floats) -> Floats:
    """Projections (draws, k) in the metric with inverse root @ root.T, by cutting planes."""
    scale = np.abs(derivative.secants(values)).max(axis=1)
    falls = np.flatnonzero(
        derivative.minima(values)[0].min(axis=1) < -_SLOPE_ROUNDING * scale
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
    for _ in range(_PROJECTION_ROUNDS):
        for i in active.tolist():
            # the dual of this quadratic programme is non-negative least squares
            design = designs[i]
            multipliers, _ = nnls(design, -starts[i], maxiter=100 * design.shape[1])
            result[i] = values[i] + (design @ multipliers) @ root.T
            # without the constraints that are not active
            designs[i] = design[:, multipliers > 0]
        least, place = derivative.minima(result[active])
        low = least < -_LEAST_SLOPE * scale[active, None]
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
    return design / np.sqrt((design**2).sum(axis=0))


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
