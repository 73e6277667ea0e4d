"""The paper's method: bins, a prior for each, smoothing, and the resulting fit.

Source: Muralidharan and Najmi, "Second Order Calibration", Section 3.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import xarray as xr
from scipy import linalg, optimize, special
from scipy.optimize import elementwise

from .._lib.arrays import Floats, Ints
from .._lib.errors import FitError
from .._lib.reprs import short
from .._lib.threads import ordered_map
from .._model.interpreter import exact_slopes
from .._model.pilot import check_joint_cells
from .._model.rows import positions, rows_of
from .._model.splines import Axis, natural_spline, place_knots, roughness, spline_matrix
from .._model.terms import axis_of
from ..data.statistics import Statistics
from ..families.components import WIDTH
from ..families.family import FAMILIES, Family
from ..families.mixture_rows import cell_points
from ..families.monotone import project_monotone
from ..families.poisson_gamma import match_gammas, moments_of_log
from ..families.priors import COMPONENTS, Spline
from ..families.row_sums import Columns, RowSums
from ..fits.methods import FiveSteps
from .density import SAMPLED
from .fit_tree import bin_table

Pair = tuple[Floats, Floats]
# of components: weights, and means and sds of log theta, logit theta or theta, each (bins, R)
Parts = tuple[Floats, Floats, Floats]

_KNOTS = "mean_knot", "variance_knot"
_ESTIMATES = ("mean", "variance", "log_likelihood", "mean_log", "variance_log")
# second curves that are tried, relative to the overall level; at the first the variance is 0
_GRID = np.array(
    [-50.0, -24.0, -18.0, -12.0, -8.0, -5.0, -3.0, -1.5, 0.0, 2.0, 5.0, 10.0]
)
_LOG_SMALL = float(
    np.log(1e-12)
)  # second curve that stands for variance 0, relative to the level
# difference for slopes, and last step, in units of the first curve
_STEP = 1e-3
_STOP = 1e-9
# Newton steps: from the level, near, at the end
_FIRST_STEPS = 60
_STEPS = 2
_LAST_STEPS = 6
_ROUNDING = 1e-12
_MOST_KNOTS = (
    100  # of a smoothing spline; with more bins it is a regression spline at quantiles
)
_ROUNDS = 4  # iterations of weights at the curves and curves with these weights
_LEAST = 0.01  # as a share of the average spread, because a smooth curve of variances may cross 0
# error of a curve stored as a spline, and its most knots
_CLOSE = 1e-4
_MOST_STORED = 400
_MULTIPLES = 121  # smoothing parameters tried before refinement of the best
_RIDGE = 1e-9
_SPLINE_RIDGE = 1e-10
# components of mixtures, which are flat if this many sds apart
_NUMBER = 100
_FLAT = 1.2
_NARROWEST = 2.0 * float(
    np.log(1e-3)
)  # second curve where EM begins, relative to the level
_LEAST_WEIGHT = 1e-3  # in sum at the start, because EM cannot raise a weight of 0
# nats of the last cycle of EM
_GAIN = 0.002
_MOST_CYCLES = 2000
# largest logarithm of a stretch, and moves of Betas to a mean
_LONGEST = 3.0
_SHIFTS = 8


def run_five_steps(
    stats: Statistics, prior: Any, method: FiveSteps
) -> tuple[xr.DataTree, dict[str, Any]]:
    """A fit's `DataTree`, and the fields of its `Status` without the seconds."""
    _check(stats, prior, method)
    family = FAMILIES[prior.family]
    rows, data = rows_of(stats, family, most_bins=stats.bins)
    data.refuse_mean_only("soc.FiveSteps()")
    axes = (
        axis_of(prior.mean, stats, rows.items),
        axis_of(prior.variance, stats, rows.items),
    )
    smoothing = Smoothing(
        axes, [positions(axis, rows)[0] for axis in axes], rows.n, data.information
    )
    location, dispersion, value, at_zero = maximise(family, data)
    notes = _notes(family, data, location, at_zero)
    failed = data.can_fit & np.isnan(location)
    parts: Parts | tuple[()] = ()
    if prior.mixture:
        # EM begins at smooth curves, because estimates of single bins are noisy
        location, dispersion = smoothing.at_bins(
            smoothing(location, dispersion, "plain")
        )
        start = location, np.maximum(dispersion, data.level()[1] + _NARROWEST)
        parts, value, ended = search(family, stats.cells("joint"), rows.bin, start)
        notes = [*notes, f"{int(ended.sum()):,} bins by EM"]
        failed = ~ended
        location, spread = mixture_curves(family, *parts)
        logs = place_moments(*parts) if family.has_log_moments else ()
        curves, parts = _smooth_mixtures(
            family, smoothing, parts, method.moments, prior.monotone
        )
    else:
        curves = smoothing(location, dispersion, method.moments, prior.monotone)
        spread = np.where(at_zero, 0.0, np.exp(dispersion))
        logs = moments_of_log(location, dispersion) if family.has_log_moments else ()
    estimates = (*family.natural_moments(location, spread), value, *logs)
    posterior = xr.Dataset(coords={name: [0] for name in SAMPLED})
    for name, dim, (knots, curve) in zip(
        prior.curve_names, _KNOTS, curves, strict=True
    ):
        posterior[name] = xr.DataArray(curve[None, None], {dim: knots}, (*SAMPLED, dim))
    reason = ", ".join([*notes, "smoothed"])
    number = int(failed.sum())
    if number:
        reason += f"; the search failed in {number:,} bins: use fewer bins, or soc.VI()"
    tree = _tree(stats, axes, rows.bin, posterior, parts, estimates)
    return tree, {"converged": not number, "reason": reason}


def _tree(
    stats: Statistics,
    axes: Any,
    occupied: Ints,
    posterior: xr.Dataset,
    parts: Any,
    estimates: Any,
) -> xr.DataTree:
    """The fit's `DataTree`, from the curves, and components and estimates of occupied bins."""
    for name, part in zip(COMPONENTS, parts, strict=False):
        posterior[name] = (*SAMPLED, "bin", "component"), part[None, None]
    constant, observed = bin_table(stats, axes)
    # an empty bin belongs to its nearer neighbour
    constant["edge"] = "edge", stats.edges[(occupied[:-1] + occupied[1:] - 1) // 2]
    pairs = zip(_ESTIMATES, estimates, strict=False)
    per_bin = constant[["n_items"]].assign(
        {name: ("bin", values) for name, values in pairs}
    )
    groups = {
        "posterior": posterior,
        "observed_data": observed,
        "constant_data": constant,
    }
    tree = xr.DataTree.from_dict({**groups, "per_bin": per_bin})
    tree.attrs = {name: stats.data.attrs[name] for name in ("kind", "roles")}
    return tree


def _notes(family: Family, data: RowSums, location: Floats, at_zero: Any) -> list[str]:
    """Numbers of bins for the status, or an error if none could be fitted."""
    unfit = int((~data.can_fit).sum())
    lacks = f"without {family.outcome.words.unfit}"
    fitted = int(np.isfinite(location).sum())
    zeros = int(at_zero.sum())
    if not fitted:
        raise FitError(
            f"none of the {len(location):,} bins could be fitted ({unfit:,} {lacks}): five "
            "steps estimate each bin by itself, so use fewer bins, or soc.VI()"
        )
    notes = {
        f"{fitted:,} bins by maximum likelihood": fitted,
        f"{zeros:,} at variance 0": zeros,
        f"{unfit:,} more {lacks} left to their neighbours": unfit,
    }
    return [note for note, number in notes.items() if number]


def _check(stats: Statistics, prior: Any, method: FiveSteps) -> None:
    """Refuse options that five steps cannot use."""
    name = type(prior).__name__
    log = method.moments == "log"
    scales = {
        curve: Spline(scale=getattr(prior, curve).scale)
        for curve in ("mean", "variance")
    }
    usable = type(prior)(**scales, monotone=prior.monotone, groups=prior.groups)
    refusals = {
        f"five steps read only scale= and monotone= of a prior, and cannot use soc.{short(prior)}: "
        "leave the rest out, or use soc.VI()": prior != usable,
        f"FiveSteps fits one curve for all items, and the statistics have {len(stats.groups):,} "
        f"groups: use method=soc.VI() for groups, pool them with soc.{name}(groups=False), or fit "
        "each group by itself": prior.groups and stats.groups,
        f'soc.{name}() has no moments of log theta: use moments="plain"': (
            log and not FAMILIES[prior.family].has_log_moments
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


# --- step 2: a prior for each bin -----------------------------------------------------------------


def maximise(family: Family, data: RowSums) -> tuple[Floats, Floats, Floats, Any]:
    """Both curves at the maximum, NaN without one, its log, and True where the variance is 0."""
    rows, (level, centre) = np.flatnonzero(data.can_fit), data.level()
    unit = float(family.unit(np.array(centre)))
    all_rows = np.arange(len(rows))
    mean = np.full(len(rows), level)
    grid = centre + _GRID
    profiles: list[Any] = []
    for dispersion in grid:
        curve = np.full(len(rows), dispersion)
        steps = _STEPS if profiles else _FIRST_STEPS
        profiles.append(_profile(data, rows, mean, curve, unit, steps))
        mean = profiles[-1][0]
    means, values, slopes = np.swapaxes(profiles, 0, 1)
    best = values.argmax(axis=0)
    mean = means[best, all_rows]
    dispersion = grid[best]
    low = best - (slopes[best, all_rows] <= 0)  # otherwise the best one is at an end
    inside = np.flatnonzero((low >= 0) & (low < len(grid) - 1))

    def slope(dispersion: Floats, row: Ints) -> Floats:
        mean[row], _, slopes = _profile(
            data, rows[row], mean[row], dispersion, unit, _STEPS
        )
        return slopes

    root = elementwise.find_root(
        slope, (grid[low[inside]], grid[low[inside] + 1]), args=(inside,)
    )
    dispersion[inside] = root.x
    mean, value, _ = _profile(data, rows, mean, dispersion, unit, _LAST_STEPS)
    positive = (slopes[0] > 0) | (value - values[0] > _ROUNDING * np.abs(value))
    positive &= dispersion > centre + _LOG_SMALL
    at_floor = means[0], np.full(len(rows), centre + _LOG_SMALL), values[0]
    estimates = np.where(positive, (mean, dispersion, value), at_floor)
    converged = np.isfinite(estimates).all(axis=0)
    converged[inside] &= root.success | ~positive[inside]
    by_bin = np.full((3, len(data.can_fit)), np.nan)
    at_zero = np.zeros_like(data.can_fit)
    by_bin[:, rows] = np.where(converged, estimates, np.nan)
    at_zero[rows] = converged & ~positive
    return by_bin[0], by_bin[1], by_bin[2], at_zero


def _profile(
    data: RowSums,
    rows: Ints,
    location: Floats,
    dispersion: Floats,
    unit: float,
    steps: int,
) -> tuple[Floats, Floats, Floats]:
    """Best first curve of rows at a second one, log marginal there, and its slope in the second."""
    step = _STEP * unit
    for _ in range(steps):
        pair = np.stack([location, location + step]), np.stack([dispersion, dispersion])
        slope, ahead = exact_slopes(data, *pair, rows)[1]
        with np.errstate(
            divide="ignore", invalid="ignore"
        ):  # NaN on a flat likelihood: no step
            move = np.nan_to_num(step * slope / (slope - ahead))
        move = np.clip(move, -data.reach, data.reach)
        location = location + move
        if (np.abs(move) < _STOP * unit).all():
            break
    value, _, slope = exact_slopes(data, location[None], dispersion[None], rows)[:, 0]
    return location, value, slope


# --- step 3: curves through the estimates of bins -------------------------------------------------


def _log_precision(
    location: Floats, dispersion: Floats, of_mean: Floats, of_cv2: Floats
) -> Pair:
    """Delta method: E and Var(log theta) have these slopes in log cv2, at shape 1/cv2."""
    shape = np.exp(-dispersion)
    of_level = 1.0 - shape * special.polygamma(1, shape)
    of_spread = -shape * special.polygamma(2, shape)
    return 1.0 / (1.0 / of_mean + of_level**2 / of_cv2), of_cv2 / of_spread**2


# Moments that are smoothed: those of both curves, both curves of moments, and the precisions of
# moments from both curves and the information of both. Plain ones are E(theta | t) and
# Var(theta | t), of counts log E(theta | t) and the squared cv; the others are those of log theta
_MOMENTS: Mapping[
    str, tuple[Callable[..., Pair], Callable[..., Pair], Callable[..., Pair]]
] = {
    "plain": (
        lambda m, c: (m, np.exp(c)),
        lambda level, spread: (level, np.log(spread)),
        lambda m, c, of_mean, of_variance: (of_mean, of_variance * np.exp(-2.0 * c)),
    ),
    "log": (moments_of_log, match_gammas, _log_precision),
}


@dataclass(frozen=True, eq=False)
class Smoothing:
    """Smoothing splines through the moments of bins."""

    axes: tuple[Axis, Axis]
    positions: list[Floats]  # of the bins on both axes
    items: Floats
    information: Callable[[Floats, Floats], Pair]  # of the bins, at both curves

    def __call__(
        self, location: Floats, dispersion: Floats, moments: str, monotone: bool = False
    ) -> tuple[Pair, Pair]:
        """Knots and values of both curves through estimates, NaN in bins that were not fitted."""
        fitted = np.flatnonzero(np.isfinite(location))
        to_moments, to_curves, precision = _MOMENTS[moments]
        targets = to_moments(location[fitted], dispersion[fitted])
        weights = [self.items[fitted].astype(float)] * 2
        inner = [u[fitted] for u in self.positions]
        # bins that were not fitted may be far away
        within = [np.clip(u, u[fitted].min(), u[fitted].max()) for u in self.positions]

        def curves(mean: Floats, variance: Floats) -> Pair:
            bounded = np.maximum(natural_spline(variance, *spread), least)
            return to_curves(natural_spline(mean, *level), bounded)

        # weights at the estimates would share their noise
        for _ in range(_ROUNDS):
            level, spread = map(smoothing_spline, inner, targets, weights)
            least = _LEAST * float(np.average(targets[1], weights=weights[1]))
            smooth = curves(*within)
            information = [_positive(x[fitted]) for x in self.information(*smooth)]
            weights = [
                _positive(x)
                for x in precision(*(x[fitted] for x in smooth), *information)
            ]
        axis, other_axis = self.axes
        knots, mean = _as_spline(
            lambda u: curves(u, other_axis(axis.inverse(u)))[0], level[0]
        )
        if monotone:
            basis = spline_matrix(inner[0], knots)
            metric = basis.T @ (weights[0][:, None] * basis)
            metric += _RIDGE * np.trace(metric) * np.eye(len(metric))
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


def _positive(weight: Floats) -> Floats:
    return np.maximum(weight, 1e-12 * weight.max())


def _as_spline(exact: Callable[[Floats], Floats], knots: Floats) -> Pair:
    """A curve as a spline with these knots, and more where it would be inaccurate."""
    while True:
        middle = 0.5 * (knots[1:] + knots[:-1])
        values = exact(knots)
        coarse = np.abs(natural_spline(middle, knots, values) - exact(middle)) > _CLOSE
        if not coarse.any() or len(knots) + coarse.sum() > _MOST_STORED:
            return knots, values
        knots = np.sort(np.concatenate([knots, middle[coarse]]))


def smoothing_spline(position: Floats, response: Floats, weight: Floats) -> Pair:
    """Natural cubic smoothing spline through points, as knots and values.

    It minimises weighted squares plus a multiple of the roughness (Green and Silverman 1994), which
    maximises the restricted likelihood (Wood 2011). Two points make a line, one a constant.
    """
    knots = place_knots(position, np.ones(len(position)), _MOST_KNOTS)
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

    def criterion(log_multiple: Any) -> Any:
        x = np.exp(log_multiple)[..., None] * penalty
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


def search(
    family: Family, cells: Columns, bins: Ints, curves: Pair
) -> tuple[Parts, Floats, Any]:
    """Mixtures of bins around conjugate priors, their log likelihoods, and whether EM ended."""
    components = family.components
    z = np.linspace(*components.ends, _NUMBER)
    order = np.argsort(cells["bin"])
    low, high = (
        np.searchsorted(cells["bin"][order], bins, side=s) for s in ("left", "right")
    )
    if (
        family.has_log_moments
    ):  # as for the lognormal: a Gamma's lower tail may be very long
        variance = np.log1p(np.exp(curves[1]))
        location = curves[0] - 0.5 * variance
        spread = np.sqrt(variance)
    else:
        base = components.base(*curves)
        location = base.location
        spread = base.spread
    places = location[:, None] + spread[:, None] * z
    sds = np.repeat(
        max(WIDTH, float(z[1] - z[0]) / _FLAT) * spread[:, None], len(z), axis=1
    )
    start = special.softmax(-0.5 * z**2) + _LEAST_WEIGHT / len(z)

    def search_bin(k: int) -> tuple[Floats, float, bool]:
        cells_of_bin = {
            name: values[order[low[k] : high[k]]] for name, values in cells.items()
        }
        variance = np.full(high[k] - low[k], sds[k, 0] ** 2)
        cell, (y, size), items = cell_points(family, cells_of_bin, variance)
        centres = np.broadcast_to(places[k], (len(items), len(z)))
        theta = components.parameters(centres, variance[cell, None])
        log_density = family.log_marginal(y[:, None], size[:, None], *theta)
        top = log_density.max(axis=1)
        weight, value, ended = fixed_weights(
            np.exp(log_density - top[:, None]), items, start
        )
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
        return weight * (density.T @ (items / mixed)) / items.sum(), float(
            items @ np.log(mixed)
        )

    weight = start / start.sum()
    before = -np.inf
    for _ in range(
        _MOST_CYCLES
    ):  # SQUAREM: two steps of EM, and an extrapolation if it gains
        once, value = step(weight)
        if value - before < _GAIN:
            return weight, value, True
        twice, value_once = step(once)
        change = once - weight
        bend = twice - 2.0 * once + weight
        before = value
        length = max(
            np.linalg.norm(change) / max(float(np.linalg.norm(bend)), 1e-300), 1.0
        )
        leap = np.maximum(
            weight + 2.0 * length * change + length**2 * bend, 1e-3 * twice
        )
        landed, leap_value = step(leap / leap.sum())
        weight = landed if leap_value >= value_once else twice
    return weight, before, False


def _smooth_mixtures(
    family: Family, smoothing: Smoothing, parts: Parts, moments: str, monotone: bool
) -> tuple[tuple[Pair, Pair], Parts]:
    """Curves through the mixtures' moments, and components with the curves' moments at the bins."""
    to_moments, to_curves, _ = _MOMENTS[moments]
    moments_of = place_moments if moments == "log" else partial(mixture_curves, family)
    curves = smoothing(*to_curves(*moments_of(*parts)), moments, monotone)
    location, dispersion = smoothing.at_bins(curves)
    weight, place, sd = adjusted(moments_of, parts, *to_moments(location, dispersion))
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

    def excess(log_stretch: Floats, row: Ints) -> Floats:
        with np.errstate(over="ignore", invalid="ignore"):  # an overflow is too wide
            ratio = curves(*moved(log_stretch, row))[1] / spread[row]
        return np.log(np.nan_to_num(ratio, nan=1e300, posinf=1e300))

    ends = np.full((2, len(location)), [[-_LONGEST], [_LONGEST]])
    root = elementwise.find_root(excess, tuple(ends), args=(bins,))
    nearer_end = np.where(np.abs(root.f_bracket[0]) < np.abs(root.f_bracket[1]), *ends)
    return moved(np.where(root.success, root.x, nearer_end), bins)


def place_moments(weight: Floats, place: Floats, sd: Floats) -> Pair:
    """Mean and variance of theta, or of its log or logit, under the components."""
    middle = (weight * place).sum(axis=1)
    return middle, (weight * (sd**2 + (place - middle[:, None]) ** 2)).sum(axis=1)


def mixture_curves(family: Family, weight: Floats, place: Floats, sd: Floats) -> Pair:
    """First curve of mixtures, and exp of the second."""
    theta = family.components.parameters(place, sd**2)
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
