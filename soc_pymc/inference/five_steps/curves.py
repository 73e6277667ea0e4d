"""Step 3: curves of E(theta | t) and Var(theta | t) through the estimates of bins."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg, optimize, special

from ..._lib.arrays import Floats, Ints
from ..._model.splines import Axis, natural_spline, place_knots, roughness, spline_matrix
from ...families.family import FAMILIES
from ...families.monotone import project_monotone
from ...families.poisson_gamma import match_gammas, moments_of_log
from ..methods import FiveSteps
from .bins import Estimates

Pair = tuple[Floats, Floats]

KNOTS = ("mean_knot", "variance_knot")
MOST_KNOTS = 100
"""Knots of a smoothing spline; with more bins it is a regression spline at this many quantiles."""
_ROUNDS = 4  # iterations of weights at the curves and curves with these weights
_LEAST = 0.01  # as a share of the average spread, because a smooth curve of variances may cross 0
_CLOSE, _MOST_STORED = 1e-4, 400  # error of a curve stored as a spline, and its most knots
_GRID = 121  # smoothing parameters tried before refinement of the best
_RIDGE, _SPLINE_RIDGE = 1e-9, 1e-10


class Curves(NamedTuple):
    """Two curves: natural splines by their values at knots, or a value for each bin."""

    values: Pair
    knots: tuple[Floats, ...] = ()  # none of steps

    def at(self, positions: tuple[Floats, ...]) -> Pair:
        """Both curves at positions on the two axes; of steps at the bins."""
        if not self.knots:
            return self.values
        location, dispersion = map(natural_spline, positions, self.knots, self.values)
        return location, dispersion

    def variables(self, prior: Any, row: Ints) -> dict[str, Any]:
        """Variables and coordinates of one draw; of steps, the parameters at each bin's row."""
        names, dims, values = prior.curve_names, KNOTS, self.values
        if not self.knots:
            names, dims = prior.parameter_names, ("bin", "bin")
            values = FAMILIES[prior.family].to_parameters(*(curve[row] for curve in values))
        curves = zip(names, dims, values, strict=True)
        draw = {name: (("chain", "draw", dim), curve[None, None]) for name, dim, curve in curves}
        return draw | {dim: (dim, knots) for dim, knots in zip(KNOTS, self.knots, strict=False)}


def _log_precision(location: Floats, dispersion: Floats, of_mean: Floats, of_cv2: Floats) -> Pair:
    """Delta method: E and Var(log theta) have these slopes in log cv2, at shape 1/cv2."""
    shape = np.exp(-dispersion)
    of_level = 1.0 - shape * special.polygamma(1, shape)
    of_spread = -shape * special.polygamma(2, shape)
    return 1.0 / (1.0 / of_mean + of_level**2 / of_cv2), of_cv2 / of_spread**2


# Moments that are smoothed: those of both curves, both curves of moments, and the precisions of
# moments from both curves and the information of both. Plain ones are E(theta | t) and
# Var(theta | t), of counts log E(theta | t) and the squared cv; the others are those of log theta
_MOMENTS: Mapping[str, tuple[Callable[..., Pair], Callable[..., Pair], Callable[..., Pair]]] = {
    "plain": (
        lambda m, c: (m, np.exp(c)),
        lambda level, spread: (level, np.log(spread)),
        lambda m, c, of_mean, of_variance: (of_mean, of_variance * np.exp(-2.0 * c)),
    ),
    "log": (moments_of_log, match_gammas, _log_precision),
}


@dataclass(frozen=True)
class Smoothing:
    """Smoothing splines through the moments of bins, or steps."""

    method: FiveSteps
    monotone: bool
    axes: tuple[Axis, Axis]

    def __call__(
        self,
        positions: Pair,
        items: Floats,
        bins: Estimates,
        information: Callable[[Floats, Floats], Pair],
    ) -> Curves:
        """Curves through the moments of bins at their positions on the axes."""
        fitted = np.flatnonzero(bins.fitted)
        if not self.method.smooth:
            return self._steps(positions[0], fitted, bins, information)
        to_moments, to_curves, precision = _MOMENTS[self.method.moments or "plain"]
        targets = to_moments(bins.location[fitted], bins.dispersion[fitted])
        weights = [items[fitted].astype(float)] * 2
        inner = [u[fitted] for u in positions]
        # bins that were not fitted are not used, and may be far away
        within = [np.clip(u, v.min(), v.max()) for u, v in zip(positions, inner, strict=True)]

        def curves(mean: Floats, variance: Floats) -> Pair:
            bounded = np.maximum(natural_spline(variance, *spread), least)
            return to_curves(natural_spline(mean, *level), bounded)

        # weights are expected informations at the curves, not at the estimates, whose noise those
        # weights would share
        for _ in range(_ROUNDS):
            level, spread = map(smoothing_spline, inner, targets, weights)
            least = _LEAST * float(np.average(targets[1], weights=weights[1]))
            smooth = curves(*within)
            known = [_positive(x[fitted]) for x in information(*smooth)]
            weights = [_positive(x) for x in precision(*(x[fitted] for x in smooth), *known)]
        knots, mean = _as_spline(
            lambda u: curves(u, self.axes[1](self.axes[0].inverse(u)))[0], level[0]
        )
        if self.monotone:
            basis = spline_matrix(inner[0], knots)
            metric = basis.T @ (weights[0][:, None] * basis)
            metric += _RIDGE * np.trace(metric) * np.eye(len(metric))
            mean = project_monotone(mean[None], knots, metric)[0]
        second_knots, variance = _as_spline(lambda u: curves(np.zeros(len(u)), u)[1], spread[0])
        return Curves((mean, variance), (knots, second_knots))

    def _steps(
        self, position: Floats, fitted: Ints, bins: Estimates, information: Callable[..., Pair]
    ) -> Curves:
        """Estimates of the nearest bins that have one; means that decrease are pooled."""
        location, dispersion = bins.location[fitted], bins.dispersion[fitted]
        near = nearest(position, fitted)
        if self.monotone:
            weight = _positive(information(location[near], dispersion[near])[0][fitted])
            location = optimize.isotonic_regression(location, weights=weight).x
        return Curves((location[near], dispersion[near]))


def _positive(weight: Floats) -> Floats:
    return np.maximum(weight, 1e-12 * weight.max())


def _as_spline(exact: Callable[[Floats], Floats], knots: Floats) -> Pair:
    """A curve as a spline with these knots, and more where it would be inaccurate."""
    while True:
        middle, values = 0.5 * (knots[1:] + knots[:-1]), exact(knots)
        coarse = np.abs(natural_spline(middle, knots, values) - exact(middle)) > _CLOSE
        if not coarse.any() or len(knots) + coarse.sum() > _MOST_STORED:
            return knots, values
        knots = np.sort(np.concatenate([knots, middle[coarse]]))


def nearest(position: Floats, known: Ints) -> Ints:
    """Index of the nearest in `known` of each rising position, the lower of two."""
    between = np.interp(position, position[known], np.arange(len(known)))
    return np.asarray(np.ceil(between - 0.5).astype(int))


def smoothing_spline(position: Floats, response: Floats, weight: Floats) -> Pair:
    """Natural cubic smoothing spline through points, as knots and values.

    It minimises the weighted squares plus a multiple of the integral of the squared second
    derivative (Green and Silverman 1994, section 2.3). The multiple maximises the restricted
    likelihood with unknown error scale (Wahba 1985; Wood 2011), which follows noise less often than
    generalised cross-validation. Two points make a line, one a constant.
    """
    knots = place_knots(position, np.ones(len(position)), MOST_KNOTS)
    basis, w = spline_matrix(position, knots), weight / weight.mean()
    gram, pull = basis.T @ (w[:, None] * basis), basis.T @ (w * response)
    if len(knots) < 3:
        return knots, np.linalg.solve(gram, pull)
    rough = roughness(knots) * (knots[-1] - knots[0]) ** 3
    gram += _SPLINE_RIDGE * np.trace(gram) / np.trace(rough) * rough
    penalty, basis = linalg.eigh(rough, gram)
    penalty[:2] = 0.0  # constants and straight lines
    z = basis.T @ pull
    residual = max(float(w @ response**2 - z @ z), 0.0)
    multiple = _best_multiple(penalty[2:], z[2:] ** 2, residual, float(z @ z), len(position))
    return knots, basis @ (z / (1.0 + multiple * penalty))


def _best_multiple(
    penalty: Floats, squares: Floats, residual: float, total: float, number: int
) -> float:
    """Smoothing parameter with the highest restricted likelihood."""
    least = residual + 1e-14 * (residual + total) + np.finfo(float).tiny

    def criterion(log_multiple: Any) -> Any:
        x = np.exp(log_multiple)[..., None] * penalty
        sums = least + (x / (1.0 + x)) @ squares
        return (number - 2) * np.log(sums) + np.log1p(1.0 / x).sum(axis=-1)

    grid = np.linspace(-np.log(penalty[-1]) - 7.0, -np.log(penalty[0]) + 14.0, _GRID)
    best = int(np.argmin(criterion(grid)))
    ends = grid[max(best - 1, 0)], grid[min(best + 1, _GRID - 1)]
    return float(np.exp(optimize.minimize_scalar(criterion, bounds=ends, method="bounded").x))
