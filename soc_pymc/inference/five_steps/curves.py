"""Step 3: curves of E(theta | t) and Var(theta | t) from the bins' estimates, smooth or as steps.

Smoothed are E(theta | t) and Var(theta | t) (for counts log E(theta | t) and the squared cv), or
the moments of log theta, to which Gammas are then matched.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy import linalg, optimize, special

from ..._lib.arrays import Floats, Ints
from ..._model.splines import Axis, place_knots, roughness, spline_matrix
from ...families.family import FAMILIES
from ...families.monotone import project_monotone
from ...families.poisson_gamma import match_gammas, moments_of_log
from ...families.priors import CURVES_BY_BIN
from ...families.row_sums import RowSums

Mask = NDArray[np.bool_]

_MOST_STEPS = 200
_CONVERGED = 1e-7  # the last step in log variance; the error is then its square
_FARTHEST = 2.0  # largest step in log variance
_TRIED = (-6.0, -3.0, -1.0, 1.0, 3.0)  # further starts, relative to the first one
_ROUNDING = 1e-12


@dataclass(frozen=True)
class BinMaxima:
    """Maxima of bins, each array (bins,); NaN in bins that were not fitted."""

    first: Floats  # log mean, or mean
    second: Floats  # log cv2, or log variance; its floor where the maximum is at variance 0
    log_likelihood: Floats
    at_zero: Mask
    fitted: Mask
    failed: Mask  # bins whose search did not converge

    def part(self, at: NDArray[np.intp]) -> "BinMaxima":
        """Those of some bins."""
        return BinMaxima(*(getattr(self, f.name)[at] for f in fields(self)))


def maximise(bins: RowSums, chosen: Mask) -> BinMaxima:
    """Maximum marginal likelihood of each chosen bin.

    The likelihood is concave in the mean (for counts: in its logarithm), so a few starts over the
    variance, and the limit of variance 0, suffice to find the highest of several maxima.
    """
    zero_first, zero_value, slope, floor = bins.at_zero()
    rows = np.flatnonzero(chosen & bins.can_fit)
    first, second, value = _best_start(bins, rows, zero_first[rows], bins.second_by_moments()[rows])
    first, second, value, done = _newton(bins, rows, first, second, floor[rows])
    # at the floor, or below the value at variance 0, the maximum is at 0
    gain = value - zero_value[rows]
    noise = 10.0 * bins.rounding[rows] + 10.0 * _ROUNDING * np.abs(value)
    inside = (second > floor[rows]) & (gain > noise)
    inside |= (slope[rows] > 0) & (second > floor[rows])
    full = np.full((3, len(floor)), np.nan)
    full[0, rows] = np.where(inside, first, zero_first[rows])
    full[1, rows] = np.where(inside, second, floor[rows])
    full[2, rows] = np.where(inside, value, zero_value[rows])
    zero, failed, fitted = np.zeros((3, len(floor)), dtype=bool)
    zero[rows], failed[rows] = ~inside, inside & ~done
    fitted[rows] = np.isfinite(full[:, rows]).all(axis=0) & ~failed[rows]
    failed[rows] |= ~fitted[rows]
    full[:, ~fitted] = np.nan
    return BinMaxima(full[0], full[1], full[2], zero & fitted, fitted, failed)


def _best_start(bins: RowSums, rows: Ints, first: Floats, start: Floats) -> tuple[Floats, ...]:
    """The best of a few values of the variance, each at about its best mean."""
    best = np.full((3, len(rows)), -np.inf)
    for offset in (0.0, *_TRIED):
        m, c = first.copy(), start + offset
        for _ in range(3):
            found = bins.curvature(m, c, rows)
            m = m + np.clip(-found[1] / found[3], -bins.reach, bins.reach)
        found = bins.curvature(m, c, rows)
        # NaN is no improvement
        better = np.nan_to_num(found[0], nan=-np.inf) > best[2]
        best[:, better] = np.array([m, c, found[0]])[:, better]
    return best[0], best[1], best[2]


def _step(bins: RowSums, here: Floats) -> Floats:
    """Steps in both parameters: Newton's where the profile over the mean is concave."""
    _, by_m, by_c, mm, mc, cc = here
    # on a flat likelihood the Newton step is NaN: replace it by no step, or a bounded one
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        slope = by_c - mc * by_m / mm
        bend = cc - mc * mc / mm
        dc = np.where(bend < 0, -slope / bend, np.sign(slope))
        # NaN: no step
        dc = np.clip(np.nan_to_num(dc), -_FARTHEST, _FARTHEST)
        dm = -(by_m + mc * dc) / mm
        dm = np.clip(np.nan_to_num(dm), -bins.reach, bins.reach)  # likewise
    return np.array([dm, dc])


def _newton(
    bins: RowSums, rows: Ints, first: Floats, second: Floats, floor: Floats
) -> tuple[Floats, Floats, Floats, Mask]:
    """Newton steps, uphill where the profile is convex, halved until they gain."""
    at = np.array([first, second])
    here = bins.curvature(first, second, rows)
    factor, done = np.ones(len(rows)), np.zeros(len(rows), dtype=bool)
    step, noise = _step(bins, here), bins.rounding[rows]
    active = np.arange(len(rows))
    for _ in range(_MOST_STEPS):
        if not len(active):
            break
        move = factor[active] * step[:, active]
        tried = at[:, active] + move
        found = bins.curvature(tried[0], tried[1], rows[active])
        least = here[0, active] - _ROUNDING * np.abs(here[0, active]) - 10.0 * noise[active]
        good = np.isfinite(found).all(axis=0) & (found[0] >= least)
        taken = active[good]
        at[:, taken], here[:, taken] = tried[:, good], found[:, good]
        small = _small(move, found, noise[active])
        done[active] = good & small & (factor[active] == 1.0)
        factor[active] = np.where(good, 1.0, 0.5 * factor[active])
        step[:, taken] = _step(bins, found[:, good])
        stuck = factor[active] < 1e-9
        active = active[~(done[active] | stuck | (at[1, active] < floor[active]))]
    return at[0], at[1], here[0], done


def _small(move: Floats, found: Floats, noise: Floats) -> Mask:
    """Negligible steps: of the mean relative to its sd, or below rounding."""
    # on a flat likelihood comparisons with NaN are false: the step is not small
    with np.errstate(divide="ignore", invalid="ignore"):
        root = np.sqrt(np.maximum(-found[3], 0.0))
        bend = np.abs(found[5] - found[4] ** 2 / found[3])
        of_mean = np.abs(move[0]) * root < _CONVERGED + noise / root
        return np.asarray(of_mean & (np.abs(move[1]) < _CONVERGED + noise / bend))


Information = Callable[[Floats, Floats], tuple[Floats, Floats]]  # of both curves at the bins
Spline = tuple[Floats, Floats]  # knots and values

MOST_KNOTS = 100
"""Knots of a smoothing spline; with more bins it is a regression spline at this many quantiles."""
_SPLINE_RIDGE = 1e-10
_GRID = 121  # smoothing parameters tried before refinement of the best
_ROUNDS = 4  # iterations of weights at the curves and curves with these weights
_LEAST = 0.01  # as a share of the average spread, because a smooth curve of variances may cross 0
_CLOSE, _MOST_STORED = 1e-4, 400  # of a curve, stored as a spline
_RIDGE = 1e-9


@dataclass(frozen=True)
class SmoothCurves:
    """Two curves, log mean and log cv2 or mean and log variance, by their values at knots."""

    knots: tuple[Floats, Floats]
    values: tuple[Floats, Floats]
    error: float  # largest difference, midway between knots, to the smoothing splines

    def at(self, positions: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
        """Values at positions on the two axes."""
        first, second = (
            spline_matrix(u, k) @ v
            for u, k, v in zip(positions, self.knots, self.values, strict=True)
        )
        return first, second

    def posterior(self, prior: Any) -> xr.Dataset:
        """A posterior of one draw."""
        dims = ("mean_knot", "variance_knot")
        return _one_draw(
            prior.curve_names, dims, self.values, dict(zip(dims, self.knots, strict=True))
        )


@dataclass(frozen=True)
class StepCurves:
    """Two step curves: a number for each bin, (bins,)."""

    first: Floats
    second: Floats

    def posterior(self, prior: Any) -> xr.Dataset:
        """A posterior of one draw, of the family's conjugate parameters."""
        both = FAMILIES[prior.family].to_parameters(self.first, self.second)
        return _one_draw(CURVES_BY_BIN[prior.family], ("bin", "bin"), both, {})


def _one_draw(
    names: tuple[str, str],
    dims: tuple[str, str],
    values: tuple[Floats, Floats],
    coords: dict[str, Floats],
) -> xr.Dataset:
    kept = {
        name: (("chain", "draw", dim), of[None, None])
        for name, dim, of in zip(names, dims, values, strict=True)
    }
    return xr.Dataset(kept, {**coords, "chain": [0], "draw": [0]})


@dataclass(frozen=True)
class Moments:
    """Two moments of each bin for smoothing, and the map back to the two curves."""

    of: Callable[[BinMaxima], tuple[Floats, Floats]]  # the spread is 0 where the variance is 0
    curves: Callable[[Floats, Floats], tuple[Floats, Floats]]
    # (curves, information of both) -> precisions of both moments if the curves are true
    precision: Callable[[tuple[Floats, Floats], tuple[Floats, Floats]], tuple[Floats, Floats]]
    floor: Callable[[BinMaxima], float]  # smallest spread
    level_is_first: bool  # whether the first moment is the first curve itself


def smooth_curves(
    found: BinMaxima,
    positions: tuple[Floats, Floats],
    items: Floats,
    information: Information,
    *,
    axes: tuple[Axis, Axis],
    moments: Moments,
    monotone: bool,
) -> SmoothCurves:
    """Smoothing splines through the bins' moments, at their positions on the axes of the curves.

    A maximum at variance 0 enters as a spread of 0. Weights are expected informations at the
    curves, not at the estimates, because those weights would share the estimates' noise.
    """
    at = np.flatnonzero(found.fitted)
    level, spread = moments.of(found)
    weights = items.astype(float), items.astype(float)
    for _ in range(_ROUNDS):
        one = smoothing_spline(positions[0][at], level[at], weights[0][at])
        two = smoothing_spline(positions[1][at], spread[at], weights[1][at])
        average = float(np.average(spread[at], weights=weights[1][at]))
        least = max(_LEAST * average, moments.floor(found))
        curves = moments.curves(_value(one, positions[0]), _value(two, positions[1], least))
        weights = moments.precision(curves, information(*curves))

    def first(position: Floats) -> Floats:
        there = axes[1](axes[0].inverse(position)) if axes[0] != axes[1] else position
        return moments.curves(_value(one, position), _value(two, there, least))[0]

    def second(position: Floats) -> Floats:
        return moments.curves(np.zeros(len(position)), _value(two, position, least))[1]

    own = (one, 0.0) if moments.level_is_first else _as_spline(first, one[0])
    stored = own, _as_spline(second, two[0])
    knots, values = zip(*(spline for spline, _ in stored), strict=True)
    if monotone:
        values = _projected(stored[0][0], positions[0], weights[0]), values[1]
    return SmoothCurves(knots, values, max(error for _, error in stored))


def _value(spline: Spline, position: Floats, least: float = -np.inf) -> Floats:
    return np.maximum(spline_matrix(position, spline[0]) @ spline[1], least)


def _plain_moments(found: BinMaxima) -> tuple[Floats, Floats]:
    return found.first, np.where(found.at_zero, 0.0, np.exp(found.second))


def _plain_precision(
    curves: tuple[Floats, Floats], information: tuple[Floats, Floats]
) -> tuple[Floats, Floats]:
    return _positive(information[0]), _positive(information[1] * np.exp(-2.0 * curves[1]))


def _plain_floor(found: BinMaxima) -> float:
    """If all bins are at 0: the average of the values that represent 0."""
    floors = found.second[found.at_zero]
    return float(np.exp(floors.mean())) if len(floors) else 0.0


def log_moments(found: BinMaxima) -> tuple[Floats, Floats]:
    """E(log theta) and Var(log theta) of each bin's Gamma, or of a point if the variance is 0."""
    mean, variance = moments_of_log(found.first, found.second)
    return np.where(found.at_zero, found.first, mean), np.where(found.at_zero, 0.0, variance)


def _log_precision(
    curves: tuple[Floats, Floats], information: tuple[Floats, Floats]
) -> tuple[Floats, Floats]:
    """Precisions of the log moments, by the delta method.

    With c = log cv2 and a = exp(-c) the shape, E(log theta) = log mean + digamma(a) - log a and
    Var(log theta) = trigamma(a) have slopes 1 - a trigamma(a) and -a polygamma(2, a) in c.
    """
    shape = np.exp(-curves[1])
    of_mean, of_cv2 = (_positive(x) for x in information)
    lower = 1.0 - shape * special.polygamma(1, shape)
    steep = shape * special.polygamma(2, shape)
    return _positive(1.0 / (1.0 / of_mean + lower**2 / of_cv2)), _positive(of_cv2 / steep**2)


MOMENTS = {
    "plain": Moments(
        _plain_moments,
        lambda level, spread: (level, np.log(spread)),
        _plain_precision,
        _plain_floor,
        level_is_first=True,
    ),
    "log": Moments(
        log_moments,
        match_gammas,
        _log_precision,
        lambda found: float(np.exp(found.second[found.fitted].min())),
        level_is_first=False,
    ),
}
"""E(theta | t) (of counts its log) and Var(theta | t) (the squared cv), or moments of log theta."""


def _positive(weight: Floats) -> Floats:
    """Weights with a floor above 0."""
    return np.maximum(weight, 1e-12 * weight.max())


def _projected(curve: Spline, position: Floats, weight: Floats) -> Floats:
    """The nearest non-decreasing spline with the same knots, in the bins' weights."""
    at = spline_matrix(position, curve[0])
    metric = at.T @ (weight[:, None] * at)
    metric += _RIDGE * np.trace(metric) * np.eye(len(metric))
    return project_monotone(curve[1][None], curve[0], metric)[0]


def _as_spline(exact: Callable[[Floats], Floats], knots: Floats) -> tuple[Spline, float]:
    """A curve as a spline with these knots and more where needed, and its largest error."""
    own = knots
    while True:
        middle = 0.5 * (own[1:] + own[:-1])
        stored = exact(own)
        off = np.abs(spline_matrix(middle, own) @ stored - exact(middle))
        coarse = off > _CLOSE
        if not coarse.any() or len(own) + coarse.sum() > _MOST_STORED:
            return (own, stored), float(off.max(initial=0.0))
        own = np.sort(np.concatenate([own, middle[coarse]]))


def stepped_curves(
    found: BinMaxima, position: Floats, information: Information, monotone: bool
) -> StepCurves:
    """Each bin's own estimates; a bin that was not fitted takes its nearest neighbour's.

    Nearest is on the axis of the mean, the lower of two. `monotone` pools the means where they
    decrease (isotonic regression), weighted by their information.
    """
    at = np.flatnonzero(found.fitted)
    first, second = found.first[at], found.second[at]
    if monotone:
        every = np.interp(position, position[at], first), np.interp(position, position[at], second)
        weight = _positive(information(*every)[0])[at]
        first = np.asarray(optimize.isotonic_regression(first, weights=weight).x)
    own = nearest(position, at)
    return StepCurves(first[own], second[own])


def nearest(position: Floats, known: NDArray[np.intp]) -> NDArray[np.intp]:
    """For each position the index of the nearest in `known`, the lower of two.

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


# --- smoothing splines ---------------------------------------------------------------------------


def smoothing_spline(position: Floats, response: Floats, weight: Floats) -> tuple[Floats, Floats]:
    """Natural cubic smoothing spline through points, as values at knots.

    It minimises the weighted squares plus a multiple of the integral of the squared second
    derivative (Green and Silverman 1994, section 2.3), with a knot at each point, or at 100
    quantiles of more points. The multiple maximises the restricted likelihood with unknown error
    scale (Wahba 1985; Wood 2011), which follows noise less often than generalised cross-validation.

    Points (n,) with weights, the errors' precisions up to a factor, give knots (k,) and values (k,)
    for `splines.spline_matrix`. Two points make a line, one a constant.
    """
    knots = place_knots(position, np.ones(len(position)), MOST_KNOTS)
    at = spline_matrix(position, knots)
    w = weight / weight.mean()
    gram = at.T @ (w[:, None] * at)
    pull = at.T @ (w * response)
    if len(knots) < 3:
        return knots, np.linalg.solve(gram, pull)
    rough = roughness(knots) * (knots[-1] - knots[0]) ** 3
    gram += _SPLINE_RIDGE * np.trace(gram) / np.trace(rough) * rough
    root = linalg.cholesky(gram, lower=True)
    half = linalg.solve_triangular(root, rough, lower=True)
    whole = linalg.solve_triangular(root, half.T, lower=True)
    penalty, turn = linalg.eigh(0.5 * (whole + whole.T))
    penalty[:2] = 0.0  # constants and straight lines
    z = turn.T @ linalg.solve_triangular(root, pull, lower=True)
    left = max(float(w @ response**2 - z @ z), 0.0)
    multiple = _best_multiple(penalty, z, left, len(position))
    shrunk = turn @ (z / (1.0 + multiple * penalty))
    return knots, linalg.solve_triangular(root, shrunk, lower=True, trans=1)


def _best_multiple(penalty: Floats, z: Floats, left: float, number: int) -> float:
    """Smoothing parameter with the highest restricted likelihood."""
    d, own = penalty[2:], z[2:] ** 2
    tiny = 1e-14 * (left + float(z @ z)) + np.finfo(float).tiny

    def squares(x: Floats) -> float:
        return left + float(own @ (x / (1.0 + x))) + tiny

    def criterion(log_multiple: float) -> float:
        x = np.exp(log_multiple) * d
        return float((number - 2) * np.log(squares(x)) + np.log1p(1.0 / x).sum())

    def slope(log_multiple: float) -> float:
        x = np.exp(log_multiple) * d
        by_squares = (number - 2) * (own @ (x / (1.0 + x) ** 2)) / squares(x)
        return float(by_squares - (1.0 / (1.0 + x)).sum())

    ends = -np.log(d[-1]) - 7.0, -np.log(d[0]) + 14.0
    grid = np.linspace(*ends, _GRID)
    best = int(np.argmin([criterion(x) for x in grid]))
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, _GRID - 1)]
    # the value is flat to eight digits around its minimum, where the slope's root has all of them
    inside = slope(low) < 0.0 < slope(high)
    found = optimize.brentq(slope, low, high, xtol=1e-14) if inside else grid[best]
    return float(np.exp(found))
