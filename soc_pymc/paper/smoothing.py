"""Smooth curves through the estimates of bins, and mixtures of bins that agree with them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg, optimize, special
from scipy.optimize import elementwise

from .._lib.arrays import Floats, Ints, Pair, Triple
from .._model.splines import (
    Axis,
    natural_spline,
    place_knots,
    project_monotone,
    roughness,
    spline_matrix,
)
from ..families.family import Family
from ..families.poisson import inverse_trigamma
from ..families.scales import LOG

# of components: weights, and means and sds of log theta, logit theta or theta, each (bins, R)
Parts = Triple

# of a smoothing spline; with more bins it is a regression spline at quantiles
_MOST_SMOOTHING_KNOTS = 100
# iterations of weights at the curves and curves with these weights
_WEIGHT_ROUNDS = 4
# as a share of the average spread, because a smooth curve of variances may cross 0
_LEAST_VARIANCE = 0.01
# error of a curve stored as a spline, and its most knots
_STORED_ERROR = 1e-4
_MOST_STORED = 400
# smoothing parameters tried before refinement of the best
_MULTIPLES = 121
_STRETCH_RIDGE = 1e-9
_SPLINE_RIDGE = 1e-10
# largest logarithm of a stretch, and moves of Betas to a mean
_LONGEST_STRETCH = 3.0
_SHIFTS = 8


def has_log_moments(family: Family) -> bool:
    """Return True if moments of log theta can be matched, by Gammas."""
    return family.outcome.theta is LOG


def moments_of_log(location: Floats, dispersion: Floats) -> Pair:
    """Return E(log theta) and Var(log theta) of Gammas with these curves."""
    shape = np.exp(-dispersion)
    return location + (special.psi(shape) - np.log(shape)), special.polygamma(1, shape)


def match_gammas(mean_log: Floats, variance_log: Floats) -> Pair:
    """Return both curves of the Gammas with these moments of log theta."""
    shape = inverse_trigamma(variance_log)
    return mean_log + np.log(shape) - special.psi(shape), -np.log(shape)


def _log_precision(
    location: Floats, dispersion: Floats, of_mean: Floats, of_cv2: Floats
) -> Pair:
    """Delta method: E and Var(log theta) have these slopes in log cv2, at shape 1/cv2."""
    shape = np.exp(-dispersion)
    of_level = 1.0 - shape * special.polygamma(1, shape)
    of_spread = -shape * special.polygamma(2, shape)
    return 1.0 / (1.0 / of_mean + of_level**2 / of_cv2), of_cv2 / of_spread**2


def _plain_precision(
    location: Floats, dispersion: Floats, of_mean: Floats, of_dispersion: Floats
) -> Pair:
    """Delta method: exp(dispersion) has itself as its slope."""
    return of_mean, of_dispersion * np.exp(-2.0 * dispersion)


class _Moments(NamedTuple):
    """A pair of moments that are smoothed, as functions of both curves and back."""

    of_curves: Callable[[Floats, Floats], Pair]
    to_curves: Callable[[Floats, Floats], Pair]
    # precisions of the moments, from both curves and the information of both
    precision: Callable[[Floats, Floats, Floats, Floats], Pair]


_MOMENTS: Mapping[str, _Moments] = {
    # E(theta | t) and Var(theta | t), of counts log E(theta | t) and the squared cv
    "plain": _Moments(
        lambda location, dispersion: (location, np.exp(dispersion)),
        lambda location, variance: (location, np.log(variance)),
        _plain_precision,
    ),
    # those of log theta
    "log": _Moments(moments_of_log, match_gammas, _log_precision),
}


@dataclass(frozen=True, eq=False)
class Smoothing:
    """Smoothing splines through the moments of bins."""

    axes: Sequence[Axis]  # of both curves
    positions: Sequence[Floats]  # of the bins on both axes
    items: Floats
    # of the bins, at both curves
    information: Callable[[Floats, Floats], Pair]

    def __call__(
        self, location: Floats, dispersion: Floats, moments: str, monotone: bool = False
    ) -> tuple[Pair, Pair]:
        """Knots and values of both curves through estimates, NaN in bins that were not fitted."""
        fitted = np.flatnonzero(np.isfinite(location))
        of_curves, to_curves, precision = _MOMENTS[moments]
        targets = of_curves(location[fitted], dispersion[fitted])
        weights = [self.items[fitted].astype(float)] * 2
        inner = [u[fitted] for u in self.positions]
        # bins that were not fitted may be far away
        within = [np.clip(u, u[fitted].min(), u[fitted].max()) for u in self.positions]

        def curves(mean: Floats, variance: Floats) -> Pair:
            bounded = np.maximum(natural_spline(variance, *spread), least)
            return to_curves(natural_spline(mean, *level), bounded)

        # weights at the estimates would share their noise
        for _ in range(_WEIGHT_ROUNDS):
            level, spread = map(smoothing_spline, inner, targets, weights)
            least = _LEAST_VARIANCE * float(np.average(targets[1], weights=weights[1]))
            smooth = curves(*within)
            information = [
                _positive_weight(x[fitted]) for x in self.information(*smooth)
            ]
            weights = [
                _positive_weight(x)
                for x in precision(*(x[fitted] for x in smooth), *information)
            ]
        axis, other_axis = self.axes
        knots, mean = _as_spline(
            lambda u: curves(u, other_axis(axis.inverse(u)))[0], level[0]
        )
        if monotone:
            basis = spline_matrix(inner[0], knots)
            metric = basis.T @ (weights[0][:, None] * basis)
            metric += _STRETCH_RIDGE * np.trace(metric) * np.eye(len(metric))
            mean = project_monotone(mean[None], knots, metric)[0]
        return (knots, mean), _as_spline(
            lambda u: curves(np.zeros(len(u)), u)[1], spread[0]
        )

    def at_bins(self, curves: tuple[Pair, Pair]) -> Pair:
        """Both curves at the bins."""
        location, dispersion = map(
            natural_spline, self.positions, *zip(*curves, strict=True)
        )
        return location, dispersion


def _positive_weight(weight: Floats) -> Floats:
    return np.maximum(weight, 1e-12 * weight.max())


def _as_spline(exact: Callable[[Floats], Floats], knots: Floats) -> Pair:
    """A curve as a spline with these knots, and more where it would be inaccurate."""
    while True:
        middle = 0.5 * (knots[1:] + knots[:-1])
        values = exact(knots)
        coarse = (
            np.abs(natural_spline(middle, knots, values) - exact(middle))
            > _STORED_ERROR
        )
        if not coarse.any() or len(knots) + coarse.sum() > _MOST_STORED:
            return knots, values
        knots = np.sort(np.concatenate([knots, middle[coarse]]))


def smoothing_spline(position: Floats, response: Floats, weight: Floats) -> Pair:
    """Natural cubic smoothing spline through points, as knots and values.

    It minimises weighted squares plus a multiple of the roughness (Green and Silverman 1994), which
    maximises the restricted likelihood (Wood 2011). Two points make a line, one a constant.
    """
    knots = place_knots(position, np.ones(len(position)), _MOST_SMOOTHING_KNOTS)
    basis = spline_matrix(position, knots)
    w = weight / weight.mean()
    gram = basis.T @ (w[:, None] * basis)
    pull = basis.T @ (w * response)
    if len(knots) < 3:
        return knots, np.linalg.solve(gram, pull)
    rough = roughness(knots) * (knots[-1] - knots[0]) ** 3
    gram += _SPLINE_RIDGE * np.trace(gram) / np.trace(rough) * rough
    penalty, basis = linalg.eigh(rough, gram)
    penalty[:2] = 0.0  # constants and straight lines
    z = basis.T @ pull
    total = float(w @ response**2)
    least = max(total - float(z @ z), 0.0) + 1e-14 * total + np.finfo(float).tiny
    multiple = _best_multiple(penalty[2:], z[2:] ** 2, least, len(position))
    return knots, basis @ (z / (1.0 + multiple * penalty))


def _best_multiple(
    penalty: Floats, squares: Floats, least: float, number: int
) -> float:
    """Smoothing parameter with the highest restricted likelihood."""

    def criterion(log_multiple: ArrayLike) -> Floats:
        x = np.exp(np.asarray(log_multiple))[..., None] * penalty
        sums = least + (x / (1.0 + x)) @ squares
        return (number - 2) * np.log(sums) + np.log1p(1.0 / x).sum(axis=-1)

    grid = np.linspace(
        -np.log(penalty[-1]) - 7.0, -np.log(penalty[0]) + 14.0, _MULTIPLES
    )
    best = int(np.argmin(criterion(grid)))
    ends = grid[max(best - 1, 0)], grid[min(best + 1, _MULTIPLES - 1)]
    return float(
        np.exp(optimize.minimize_scalar(criterion, bounds=ends, method="bounded").x)
    )


# --- mixtures -------------------------------------------------------------------------------------


def smooth_mixtures(
    family: Family, smoothing: Smoothing, parts: Parts, moments: str, monotone: bool
) -> tuple[tuple[Pair, Pair], Parts]:
    """Curves through the mixtures' moments, and components with the curves' moments at the bins."""
    of_curves, to_curves, _ = _MOMENTS[moments]
    moments_of = place_moments if moments == "log" else partial(mixture_curves, family)
    curves = smoothing(*to_curves(*moments_of(*parts)), moments, monotone)
    location, dispersion = smoothing.at_bins(curves)
    weight, place, sd = adjusted(moments_of, parts, *of_curves(location, dispersion))
    return curves, (weight, place - location[:, None], sd)


def adjusted(
    curves: Callable[..., Pair], parts: Parts, location: Floats, spread: Floats
) -> Parts:
    """Components moved and stretched until `curves` of them are these, each in its family."""
    weight, place, sd = parts
    centred = place - (weight * place).sum(axis=1, keepdims=True)
    bins = np.arange(len(location))

    def moved(log_stretch: Floats, row: Ints) -> Parts:
        stretch = np.exp(log_stretch)[:, None]
        gap = location[row]
        places = centred[row] * stretch
        sds = sd[row] * stretch
        for _ in range(_SHIFTS):
            places = places + gap[:, None]
            gap = location[row] - curves(weight[row], places, sds)[0]
        return weight[row], places, sds

    def log_excess(log_stretch: Floats, row: Ints) -> Floats:
        # an overflow is too wide
        with np.errstate(over="ignore", invalid="ignore"):
            ratio = curves(*moved(log_stretch, row))[1] / spread[row]
        return np.log(np.nan_to_num(ratio, nan=1e300, posinf=1e300))

    ends = np.full((2, len(location)), [[-_LONGEST_STRETCH], [_LONGEST_STRETCH]])
    root = elementwise.find_root(log_excess, tuple(ends), args=(bins,))
    nearer_end = np.where(np.abs(root.f_bracket[0]) < np.abs(root.f_bracket[1]), *ends)
    return moved(np.where(root.success, root.x, nearer_end), bins)


def place_moments(weight: Floats, place: Floats, sd: Floats) -> Pair:
    """Mean and variance of theta, or of its log or logit, under the components."""
    middle = (weight * place).sum(axis=1)
    return middle, (weight * (sd**2 + (place - middle[:, None]) ** 2)).sum(axis=1)


def mixture_curves(family: Family, weight: Floats, place: Floats, sd: Floats) -> Pair:
    """Location of mixtures, and exp of their dispersion."""
    theta = family.component_parameters(place, sd**2)
    mean, variance = place_moments(
        weight, family.mean(*theta), np.sqrt(family.variance(*theta))
    )
    if family.name == "Gamma":
        return np.log(mean), variance / mean**2
    if family.name == "Beta":  # exact for means near 1 too
        failures = (weight * family.mean(*theta[::-1])).sum(axis=1)
        share = mean * failures
        return np.log(mean / failures), variance / (share * (share - variance))
    return mean, variance
