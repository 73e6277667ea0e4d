"""The paper's method: Muralidharan and Najmi, "Second Order Calibration", Section 3.

Its five steps: bins, a prior for each, smoothing over the bins, and the resulting fit.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike
from scipy import linalg, optimize, special
from scipy.optimize import elementwise

from ._lib.arguments import FitError, OneOf, convert_fields
from ._lib.arrays import Bools, Columns, Floats, Ints, Pair, Triple
from ._lib.reprs import counted, short
from ._lib.work import ordered_map, phase
from ._model.mixtures import cell_points
from ._model.pilot import check_joint_cells
from ._model.rows import Rows, positions, rows_of
from ._model.splines import (
    Axis,
    natural_spline,
    place_knots,
    project_monotone,
    roughness,
    spline_matrix,
)
from ._model.terms import axis_of
from .data.statistics import Statistics
from .families import FAMILIES
from .families.family import Family
from .families.mixtures import WIDTH
from .families.poisson import inverse_trigamma
from .families.priors import Prior, Spline
from .families.rows import RowSums
from .families.scales import LOG
from .fits import Curves, Method, Status
from .inference.density import SAMPLED
from .inference.fit_tree import bin_table
from .posterior.weights import ComponentWeights, moment_variables
from .prior_table import ARRAYS, moments

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

_KNOT_DIMS = "mean_knot", "variance_knot"
_BIN_ESTIMATES = ("mean", "variance", "log_likelihood", "mean_log", "variance_log")
# dispersion where EM begins, relative to the level
_NARROWEST = 2.0 * float(np.log(1e-3))
# variables of the posterior: weights, places and sds of the components of each bin
COMPONENTS = ("weight", "component_place", "component_sd")
# dispersions that are tried, relative to the overall level; at the first the variance is 0
_DISPERSIONS = np.array(
    [-50.0, -24.0, -18.0, -12.0, -8.0, -5.0, -3.0, -1.5, 0.0, 2.0, 5.0, 10.0]
)
# dispersion that stands for variance 0, relative to the level
_LOG_SMALL = float(np.log(1e-12))
# difference for slopes, and last step, in units of the location
_LOCATION_STEP = 1e-3
_STOP = 1e-9
# Newton steps: from the level, near, at the end
_FIRST_STEPS = 60
_LOCATION_STEPS = 2
_LAST_STEPS = 6
_LIKELIHOOD_ROUNDING = 1e-12
# components of mixtures, which are flat if this many sds apart
_NUMBER = 100
_FLAT_RATIO = 1.2
# in sum at the start, because EM cannot raise a weight of 0
_LEAST_START = 1e-3
# nats of the last cycle of EM
_GAIN = 0.002
_MOST_CYCLES = 2000


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


def _log_precision(dispersion: Floats, of_mean: Floats, of_cv2: Floats) -> Pair:
    """Delta method: E and Var(log theta) have these slopes in log cv2, at shape 1/cv2."""
    shape = np.exp(-dispersion)
    of_level = 1.0 - shape * special.polygamma(1, shape)
    of_spread = -shape * special.polygamma(2, shape)
    return 1.0 / (1.0 / of_mean + of_level**2 / of_cv2), of_cv2 / of_spread**2


def _plain_precision(
    dispersion: Floats, of_mean: Floats, of_dispersion: Floats
) -> Pair:
    """Delta method: exp(dispersion) has itself as its slope."""
    return of_mean, of_dispersion * np.exp(-2.0 * dispersion)


class _Moments(NamedTuple):
    """A pair of moments that are smoothed, as functions of both curves and back."""

    of_curves: Callable[[Floats, Floats], Pair]
    to_curves: Callable[[Floats, Floats], Pair]
    # precisions of the moments, from the dispersion and the information of both curves
    precision: Callable[[Floats, Floats, Floats], Pair]


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

    # of both curves
    axes: Sequence[Axis]
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
                _positive_weight(x) for x in precision(smooth[1][fitted], *information)
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
        location, dispersion = (
            natural_spline(position, *curve)
            for position, curve in zip(self.positions, curves, strict=True)
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
    # constants and straight lines
    penalty[:2] = 0.0
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
    # exact for means near 1 too
    if family.name == "Beta":
        failures = (weight * family.mean(*theta[::-1])).sum(axis=1)
        share = mean * failures
        return np.log(mean / failures), variance / (share * (share - variance))
    return mean, variance


@dataclass(frozen=True, eq=False)
class _Profile:
    """The log marginals of rows, at the best location for each dispersion."""

    data: RowSums
    rows: Ints
    # of the location
    unit: float

    def at(
        self,
        start: Floats,
        dispersion: Floats,
        steps: int,
        part: Ints | slice = slice(None),
    ) -> Triple:
        """Best location from a start, log marginal there, and its slope in the dispersion."""
        # which loads PyMC
        from ._model.pymc_model import exact_slopes

        rows = self.rows[part]
        location = start
        step = _LOCATION_STEP * self.unit
        both = np.stack([dispersion, dispersion])
        for _ in range(steps):
            pair = np.stack([location, location + step])
            slope, ahead = exact_slopes(self.data, pair, both, rows)[1]
            # NaN on a flat likelihood: no step
            with np.errstate(divide="ignore", invalid="ignore"):
                move = np.nan_to_num(step * slope / (slope - ahead))
            move = np.clip(move, -self.data.reach, self.data.reach)
            location = location + move
            if (np.abs(move) < _STOP * self.unit).all():
                break
        at_best = exact_slopes(self.data, location[None], dispersion[None], rows)
        value, _, slope = at_best[:, 0]
        return location, value, slope


class Maxima(NamedTuple):
    """Maxima of the bins' likelihoods; NaN in bins without one."""

    location: Floats
    dispersion: Floats
    log_likelihood: Floats
    # True where the variance is 0
    at_zero: Bools


def maximise(family: Family, data: RowSums) -> Maxima:
    """Both curves of each bin by maximum likelihood."""
    rows = np.flatnonzero(data.can_fit)
    level, centre = data.level()
    profile = _Profile(data, rows, float(family.unit(np.array(centre))))
    all_rows = np.arange(len(rows))
    location = np.full(len(rows), level)
    grid = centre + _DISPERSIONS
    profiles: list[Triple] = []
    for point in grid:
        steps = _LOCATION_STEPS if profiles else _FIRST_STEPS
        profiles.append(profile.at(location, np.full(len(rows), point), steps))
        location = profiles[-1][0]
    locations, values, slopes = np.swapaxes(profiles, 0, 1)
    best = values.argmax(axis=0)
    location = locations[best, all_rows]
    dispersion = grid[best]
    # otherwise the best one is at an end
    low = best - (slopes[best, all_rows] <= 0)
    inside = np.flatnonzero((low >= 0) & (low < len(grid) - 1))

    def slope(dispersion: Floats, row: Ints) -> Floats:
        location[row], _, slopes = profile.at(
            location[row], dispersion, _LOCATION_STEPS, row
        )
        return slopes

    ends = grid[low[inside]], grid[low[inside] + 1]
    root = elementwise.find_root(slope, ends, args=(inside,))
    dispersion[inside] = root.x
    location, value, _ = profile.at(location, dispersion, _LAST_STEPS)
    positive = (slopes[0] > 0) | (
        value - values[0] > _LIKELIHOOD_ROUNDING * np.abs(value)
    )
    positive &= dispersion > centre + _LOG_SMALL
    at_floor = locations[0], np.full(len(rows), centre + _LOG_SMALL), values[0]
    estimates = np.where(positive, (location, dispersion, value), at_floor)
    converged = np.isfinite(estimates).all(axis=0)
    converged[inside] &= root.success | ~positive[inside]
    by_bin = np.full((3, len(data.can_fit)), np.nan)
    by_bin[:, rows] = np.where(converged, estimates, np.nan)
    at_zero = np.zeros_like(data.can_fit)
    at_zero[rows] = converged & ~positive
    location, dispersion, value = by_bin
    return Maxima(location, dispersion, value, at_zero)


# --- mixtures -------------------------------------------------------------------------------------


def search(
    family: Family, cells: Columns, bins: Ints, curves: Pair
) -> tuple[Parts, Floats, Bools]:
    """Mixtures of bins around conjugate priors, their log likelihoods, and whether EM ended."""
    z = np.linspace(*family.component_ends, _NUMBER)
    order = np.argsort(cells["bin"])
    low, high = (
        np.searchsorted(cells["bin"][order], bins, side=s) for s in ("left", "right")
    )
    if has_log_moments(family):
        # as for the lognormal: a Gamma's lower tail may be very long
        variance = np.log1p(np.exp(curves[1]))
        location = curves[0] - 0.5 * variance
        spread = np.sqrt(variance)
    else:
        base = family.frame(*curves)
        location = base.centre
        spread = base.spread
    places = location[:, None] + spread[:, None] * z
    width = max(WIDTH, float(z[1] - z[0]) / _FLAT_RATIO)
    sds = np.repeat(width * spread[:, None], len(z), axis=1)
    start = special.softmax(-0.5 * z**2) + _LEAST_START / len(z)

    def search_bin(k: int) -> tuple[Floats, float, bool]:
        cells_of_bin = {
            name: values[order[low[k] : high[k]]] for name, values in cells.items()
        }
        variance = np.full(high[k] - low[k], sds[k, 0] ** 2)
        cell, (y, size), items = cell_points(family, cells_of_bin, variance)
        centres = np.broadcast_to(places[k], (len(items), len(z)))
        theta = family.component_parameters(centres, variance[cell, None])
        log_density = family.log_marginal(y[:, None], size[:, None], *theta)
        top = log_density.max(axis=1)
        density = np.exp(log_density - top[:, None])
        weight, value, ended = fixed_weights(density, items, start)
        return weight, value + float(items @ top), ended

    results = ordered_map(search_bin, range(len(bins)))
    weight, value, ended = map(np.array, zip(*results, strict=True))
    return (weight, places, sds), value, ended


def fixed_weights(
    density: Floats, items: Floats, start: Floats
) -> tuple[Floats, float, bool]:
    """Weights that maximise sum n log(density @ weight), that value, and whether EM ended."""

    def step(weight: Floats) -> tuple[Floats, float]:
        mixed = density @ weight
        updated = weight * (density.T @ (items / mixed)) / items.sum()
        return updated, float(items @ np.log(mixed))

    weight = start / start.sum()
    before = -np.inf
    # SQUAREM: two steps of EM, and an extrapolation if it gains
    for _ in range(_MOST_CYCLES):
        once, value = step(weight)
        if value - before < _GAIN:
            return weight, value, True
        twice, value_once = step(once)
        change = once - weight
        bend = twice - 2.0 * once + weight
        before = value
        ratio = np.linalg.norm(change) / max(float(np.linalg.norm(bend)), 1e-300)
        length = max(ratio, 1.0)
        leap = weight + 2.0 * length * change + length**2 * bend
        leap = np.maximum(leap, 1e-3 * twice)
        landed, leap_value = step(leap / leap.sum())
        weight = landed if leap_value >= value_once else twice
    return weight, before, False


class BinWeights(ComponentWeights):
    """One draw: components of a score's bin, shifted along the curve of the mean."""

    no_table = (
        "components by bin, of a mixture of five steps, have no prior table: use soc.VI(), or "
        "soc.FiveSteps() with one family"
    )

    def __init__(self, curves: Curves) -> None:
        self._curves = curves
        self._family = curves.family
        self._weight, self._place, sd = (curves.draws(name)[0] for name in COMPONENTS)
        self._variance = sd**2
        self.number = self._weight.shape[1]

    def parameters(self, columns: Columns) -> Pair:
        """Conjugate parameters of the components, each (n, R)."""
        bins = self._curves.bin(columns["score"])
        middle = self._curves.at(columns["score"])[0][0]
        spread = np.broadcast_to(columns.get("spread", 0.0), len(bins))[:, None]
        components = middle[:, None] + self._place[bins], self._variance[bins] + spread
        return self._family.component_parameters(*components)

    def by_draw(self, columns: Columns, draws: Ints) -> Floats:
        """Weights (draws, n, R), the same under each draw."""
        weight = self._weight[self._curves.bin(columns["score"])]
        return np.broadcast_to(weight, (len(draws), *weight.shape))

    def curve_variables(
        self, columns: Columns, draws: Ints | None = None
    ) -> dict[str, Floats]:
        """Variables of `calibration_curves`, each (1, n)."""
        (weight,) = self.by_draw(columns, np.zeros(1, dtype=int))
        nodes = (values.T for values in (weight, *self.parameters(columns)))
        (mean, within, between), *_ = moments(self._family, nodes, ARRAYS)
        variables = moment_variables(mean[None], (within + between)[None], {})
        if self._family.outcome.positive:
            variables["log_mean"] = np.log(mean)[None]
        return variables


@dataclass(frozen=True)
class FiveSteps(Method):
    """The paper's method: each bin's prior by maximum likelihood, then smoothed over the bins.

    The result is one draw, so bands have no width. Of a prior, only the scales of the curves and
    ``monotone`` are used; groups are pooled, with ``groups=False``.

    Parameters
    ----------
    moments : {"plain", "log"}
        Moments that are smoothed: ``"plain"``, E(theta | t) and Var(theta | t) (for counts, log
        E(theta | t) and the squared coefficient of variation); or ``"log"``, E(log theta | t) and
        Var(log theta | t), as in Section 5.1 of Muralidharan and Najmi, "Second Order Calibration",
        for counts in bins with hundreds of events: with few these moments are mostly noise.

    Raises
    ------
    FitError
        If `moments` is another word.

    References
    ----------
    .. [1] Muralidharan and Najmi (2015), Second order calibration: a simple way to get
       approximate posteriors.

    Examples
    --------
    >>> FiveSteps(moments="log").moments
    'log'
    """

    moments: str = "plain"

    def __post_init__(self) -> None:
        convert_fields(self, moments=OneOf("log", "plain"))

    @property
    def weights(self) -> type[BinWeights]:
        """Those of the components of bins."""
        return BinWeights

    def run(
        self,
        stats: Statistics,
        prior: Prior,
        model: object,
    ) -> tuple[xr.DataTree, Status]:
        """Return one draw of the curves, with the estimates of the bins."""
        if model is not None:
            raise FitError(
                "soc.FiveSteps() fits each bin by itself: leave model= out, or use soc.VI()"
            )
        if stats.noise_df:
            raise FitError(
                "soc.FiveSteps() takes noise sds as known: leave noise_df= out, or use soc.VI()"
            )
        with phase("fit: five steps"):
            _check_arguments(stats, prior, self)
            return _fit_bins(stats, prior, self.moments)


class _Estimates(NamedTuple):
    """Smooth curves, and the estimates of bins that they go through."""

    # knots and values of location and dispersion
    curves: tuple[Pair, Pair]
    location: Floats
    variance: Floats  # exp of the dispersion
    log_likelihood: Floats
    # of theta, where they can be matched
    log_moments: Pair | tuple[()]
    failed: Bools
    parts: Parts | tuple[()] = ()


@dataclass(frozen=True, eq=False)
class _Bins:
    """Bins of statistics with what five steps need to know of them."""

    family: Family
    prior: Prior
    moments: str
    rows: Rows
    data: RowSums
    smoothing: Smoothing

    def singles(self, maxima: Maxima) -> _Estimates:
        """Curves through the priors of single bins."""
        pair = maxima[:2]
        logs = moments_of_log(*pair) if has_log_moments(self.family) else ()
        return _Estimates(
            curves=self.smoothing(*pair, self.moments, self.prior.monotone),
            location=maxima.location,
            variance=np.where(maxima.at_zero, 0.0, np.exp(maxima.dispersion)),
            log_likelihood=maxima.log_likelihood,
            log_moments=logs,
            failed=self.data.can_fit & np.isnan(maxima.location),
        )

    def mixtures(self, maxima: Maxima, cells: Columns) -> _Estimates:
        """Curves through mixtures of bins, and components that have the curves' moments."""
        family = self.family
        # EM begins at smooth curves, because estimates of single bins are noisy
        smooth = self.smoothing.at_bins(self.smoothing(*maxima[:2], "plain"))
        least = self.data.level()[1] + _NARROWEST
        start = smooth[0], np.maximum(smooth[1], least)
        parts, log_likelihood, ended = search(family, cells, self.rows.bin, start)
        location, variance = mixture_curves(family, *parts)
        options = self.moments, self.prior.monotone
        curves, moved = smooth_mixtures(family, self.smoothing, parts, *options)
        return _Estimates(
            curves=curves,
            location=location,
            variance=variance,
            log_likelihood=log_likelihood,
            log_moments=place_moments(*parts) if has_log_moments(family) else (),
            failed=~ended,
            parts=moved,
        )


def _fit_bins(
    stats: Statistics, prior: Prior, moments: str
) -> tuple[xr.DataTree, Status]:
    family = FAMILIES[prior.family]
    rows, data = rows_of(stats, family, most_bins=stats.bins)
    data.refuse_mean_only("soc.FiveSteps()")
    axes = [axis_of(x, stats, rows.items) for x in (prior.mean, prior.variance)]
    on_axes = [positions(axis, rows)[0] for axis in axes]
    smoothing = Smoothing(axes, on_axes, rows.n, data.information)
    bins = _Bins(
        family=family,
        prior=prior,
        moments=moments,
        rows=rows,
        data=data,
        smoothing=smoothing,
    )
    maxima = maximise(family, data)
    notes = _notes(family, data, maxima)
    if prior.mixture:
        estimates = bins.mixtures(maxima, stats.cells("joint"))
        notes.append(f"{counted(int((~estimates.failed).sum()), 'bin')} by EM")
    else:
        estimates = bins.singles(maxima)
    reason = ", ".join([*notes, "smoothed"])
    number = int(estimates.failed.sum())
    if number:
        reason += f"; the search failed in {number:,} bins: use fewer bins, or soc.VI()"
    tree = _tree(stats, axes, bins, estimates)
    return tree, Status(not number, reason)


def _tree(
    stats: Statistics, axes: Sequence[Axis], bins: _Bins, estimates: _Estimates
) -> xr.DataTree:
    """The fit's `DataTree`, with the estimates of occupied bins."""
    posterior = xr.Dataset(coords={name: [0] for name in SAMPLED})
    curves = zip(bins.prior.curve_names, _KNOT_DIMS, estimates.curves, strict=True)
    for name, dim, (knots, curve) in curves:
        posterior[name] = xr.DataArray(curve[None, None], {dim: knots}, (*SAMPLED, dim))
    for name, part in zip(COMPONENTS, estimates.parts, strict=False):
        posterior[name] = (*SAMPLED, "bin", "component"), part[None, None]
    constant, observed = bin_table(stats, axes)
    # an empty bin belongs to its nearer neighbour
    occupied = bins.rows.bin
    constant["edge"] = "edge", stats.edges[(occupied[:-1] + occupied[1:] - 1) // 2]
    natural = bins.family.natural_moments(estimates.location, estimates.variance)
    values = *natural, estimates.log_likelihood, *estimates.log_moments
    per_bin = constant[["n_items"]]
    for name, value in zip(_BIN_ESTIMATES, values, strict=False):
        per_bin[name] = "bin", value
    groups = {
        "posterior": posterior,
        "observed_data": observed,
        "constant_data": constant,
        "per_bin": per_bin,
    }
    tree = xr.DataTree.from_dict(groups)
    tree.attrs = {name: stats.data.attrs[name] for name in ("kind", "roles")}
    return tree


def _notes(family: Family, data: RowSums, maxima: Maxima) -> list[str]:
    """Numbers of bins for the status, or an error if none could be fitted."""
    unfit = int((~data.can_fit).sum())
    lacks = f"without {family.outcome.words.unfit}"
    fitted = int(np.isfinite(maxima.location).sum())
    zeros = int(maxima.at_zero.sum())
    if not fitted:
        raise FitError(
            f"none of the {len(maxima.location):,} bins could be fitted ({unfit:,} {lacks}): five "
            "steps estimate each bin by itself, so use fewer bins, or soc.VI()"
        )
    notes = {
        f"{counted(fitted, 'bin')} by maximum likelihood": fitted,
        f"{zeros:,} at variance 0": zeros,
        f"{unfit:,} more {lacks} left to their neighbours": unfit,
    }
    return [note for note, number in notes.items() if number]


def _check_arguments(stats: Statistics, prior: Prior, method: FiveSteps) -> None:
    """Refuse options that five steps cannot use."""
    name = type(prior).__name__
    log = method.moments == "log"
    usable = type(prior)(
        mean=Spline(scale=prior.mean.scale),
        variance=Spline(scale=prior.variance.scale),
        monotone=prior.monotone,
        groups=prior.groups,
    )
    refusals = {
        "five steps match moments of all outcomes, and truncated=True says that those of 0 are "
        "absent: use soc.VI()": stats.truncated,
        f"five steps have no moments for {stats.outcome.words.items}: use soc.VI()": (
            not stats.outcome.five_steps
        ),
        f"five steps read only scale= and monotone= of a prior, and cannot use soc.{short(prior)}: "
        "leave the rest out, or use soc.VI()": prior != usable,
        f"FiveSteps fits one curve for all items, and the statistics have {len(stats.groups):,} "
        f"groups: use method=soc.VI() for groups, pool them with soc.{name}(groups=False), or fit "
        "each group by itself": prior.groups and stats.groups,
        f'soc.{name}() has no moments of log theta: use moments="plain"': (
            log and not has_log_moments(FAMILIES[prior.family])
        ),
        f'soc.{name}() cannot be made monotone with moments="log": use moments="plain"': (
            log and prior.mixture and prior.monotone
        ),
    }
    for message, refused in refusals.items():
        if refused:
            raise FitError(message)
    if prior.mixture:
        check_joint_cells(stats, f"soc.{name}")
