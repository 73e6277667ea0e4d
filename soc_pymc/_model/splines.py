"""Axes of curves, and natural cubic splines on them.

Values at knots determine a curve: a natural cubic spline between them, straight lines beyond (Green
and Silverman 1994, section 2.3). Its roughness is the integral of the squared second derivative,
whose null space is the straight lines.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.interpolate import CubicSpline

from .._lib.arrays import Floats, middle_shares
from ..families.scales import LINEAR, SCALES, Scale


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
            return np.asarray(SCALES[self.scale].score(u))
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
    return natural_spline(position, knots, np.eye(np.size(knots)))


def natural_spline(position: ArrayLike, knots: ArrayLike, values: ArrayLike) -> Floats:
    """Natural cubic splines (n,) or (n, m) at positions, from values (k,) or (k, m) at knots."""
    u, k, v = (np.asarray(x, dtype=float) for x in (position, knots, values))
    if len(k) == 1:
        return np.repeat(v, len(u), axis=0)
    column = (slice(None), *(None,) * (v.ndim - 1))
    if len(k) == 2:
        right = ((u - k[0]) / (k[1] - k[0]))[column]
        return np.asarray((1.0 - right) * v[0] + right * v[1])
    spline = CubicSpline(k, v, bc_type="natural")
    inside = np.clip(u, k[0], k[-1])
    inner = spline(inside)
    beyond = np.flatnonzero(inside != u)
    inner[beyond] += (u - inside)[beyond][column] * spline(inside[beyond], 1)
    return np.asarray(inner)


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
        return np.asarray(
            functions - np.average(at_rows @ functions, axis=0, weights=weight)
        )


def roughness(knots: Floats) -> Floats:
    """Integral of the squared second derivative as a quadratic form in the values at knots."""
    h = np.diff(knots)[:, None]
    bend = CubicSpline(knots, np.eye(len(knots)), bc_type="natural")(knots, 2)
    # linear between the knots
    parts = bend[:-1], bend[1:], bend[:-1] + bend[1:]
    return np.asarray(sum(part.T @ (h * part) for part in parts) / 6.0)


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
