"""Step 2: a prior for each bin, conjugate by maximum likelihood or a mixture by EM.

The components of a mixture are fixed; they are given by their weights and the means and sds of log
theta (counts), of logit theta (successes) or of theta (values), each (bins, R).
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special
from scipy.optimize import elementwise

from ..._lib.arrays import Floats, Ints
from ..._lib.threads import ordered_map
from ..._model.likelihood import exact_slopes
from ...families.beta_mixtures import betas_of_logit
from ...families.components import WIDTH, cell_points, inverse_trigamma
from ...families.family import BETA, Family
from ...families.row_sums import Columns, RowSums

Pair = tuple[Floats, Floats]
Parts = tuple[Floats, Floats, Floats]  # weights, means and sds

_NUMBER = 100  # default number of components
_GAIN, _MOST_CYCLES = 0.002, 2000  # nats of the last cycle of EM
_FLAT = 1.2  # components this many sds apart make a flat mixture
_LEAST_WEIGHT = 1e-3  # in sum at the start, because EM cannot raise a weight of 0
_LONGEST, _SHIFTS = 3.0, 8  # largest logarithm of a stretch, and moves of Betas to a mean
# second curves that are tried, relative to the overall level; at the first the variance is 0
_GRID = np.array([-50.0, -24.0, -18.0, -12.0, -8.0, -5.0, -3.0, -1.5, 0.0, 2.0, 5.0, 10.0])
_LOG_SMALL = float(np.log(1e-8))  # second curve that stands for variance 0, relative to the level
_LEAST_SHARE = 1e-4  # share of the noise that a variance standing for 0 may reach
_STEP, _CLOSE = 1e-3, 1e-9  # difference for slopes, and last step, in units of the first curve
_FIRST_STEPS, _STEPS, _LAST_STEPS = 60, 2, 6  # Newton steps: from the level, near, at the end
_ROUNDING = 1e-12


class Estimates(NamedTuple):
    """Estimates of bins, each array (bins,); NaN in bins that were not fitted."""

    location: Floats  # log or logit of the mean, or mean
    dispersion: Floats  # log cv2, or log variance; a small number stands for variance 0
    log_likelihood: Floats
    at_zero: NDArray[np.bool_]
    fitted: NDArray[np.bool_]
    failed: NDArray[np.bool_]  # bins whose search did not converge


def maximise(family: Family, data: RowSums, items: Floats) -> Estimates:
    """Maximum marginal likelihood of every row that has one."""
    rows, (level, centre) = np.flatnonzero(data.can_fit), data.level()
    unit, all_rows = float(family.unit(np.array(centre))), np.arange(len(rows))
    mean, grid = np.full(len(rows), level), centre + _GRID
    means, values, slopes = np.empty((3, len(grid), len(rows)))
    for k, dispersion in enumerate(grid):
        steps = _STEPS if k else _FIRST_STEPS
        curve = np.full(len(rows), dispersion)
        mean, values[k], slopes[k] = _profile(data, rows, mean, curve, unit, steps)
        means[k] = mean
    best = values.argmax(axis=0)
    mean, dispersion = means[best, all_rows], grid[best]
    low = best - (slopes[best, all_rows] <= 0)  # otherwise the best one is at an end
    inside = np.flatnonzero((low >= 0) & (low < len(grid) - 1))

    def slope(dispersion: Floats, row: Ints) -> Floats:
        mean[row], _, slopes = _profile(data, rows[row], mean[row], dispersion, unit, _STEPS)
        return slopes

    ends = grid[low[inside]], grid[low[inside] + 1]
    root = elementwise.find_root(slope, ends, args=(inside,))
    dispersion[inside] = root.x
    mean, value, _ = _profile(data, rows, mean, dispersion, unit, _LAST_STEPS)
    # what stands for variance 0 is negligible against the level and the noise: information
    # is 0.5 items share^2, where the share of theta in the variance of outcomes is small
    location, floor = np.full(len(items), level), np.full(len(items), centre + _LOG_SMALL)
    location[rows] = means[0]
    share = np.sqrt(2.0 * data.information(location, floor)[1] / items)
    floor = (floor - np.log(np.maximum(share / _LEAST_SHARE, 1.0)))[rows]
    positive = (slopes[0] > 0) | (value - values[0] > _ROUNDING * np.abs(value))
    positive &= dispersion > floor
    full, (zero, fitted, failed) = np.full((3, len(items)), np.nan), np.zeros((3, len(items)), bool)
    full[:, rows] = np.where(positive, (mean, dispersion, value), (means[0], floor, values[0]))
    failed[rows[inside]] = ~root.success & positive[inside]
    fitted = np.isfinite(full).all(axis=0) & ~failed
    zero[rows], failed[rows] = ~positive, ~fitted[rows]
    location, dispersion, value = np.where(fitted, full, np.nan)
    return Estimates(location, dispersion, value, zero & fitted, fitted, failed)


def _profile(
    data: RowSums, rows: Ints, location: Floats, dispersion: Floats, unit: float, steps: int
) -> tuple[Floats, Floats, Floats]:
    """Best first curve of rows at a second one, log marginal there, and its slope in the second."""
    step = _STEP * unit
    for _ in range(steps):
        pair = np.stack([location, location + step]), np.stack([dispersion, dispersion])
        slope, ahead = exact_slopes(data, *pair, rows)[1]
        with np.errstate(divide="ignore", invalid="ignore"):  # NaN on a flat likelihood: no step
            move = np.nan_to_num(step * slope / (slope - ahead))
        move = np.clip(move, -data.reach, data.reach)
        location = location + move
        if (np.abs(move) < _CLOSE * unit).all():
            break
    value, _, slope = exact_slopes(data, location[None], dispersion[None], rows)[:, 0]
    return location, value, slope


# --- mixtures -------------------------------------------------------------------------------------


def search(
    family: Family, cells: Columns, bins: Ints, curves: Pair, number: int | None
) -> tuple[Parts, Floats, NDArray[np.bool_]]:
    """Mixtures of bins around conjugate priors, their log likelihoods, and whether EM ended."""
    components = family.components
    z, order = np.linspace(*components.ends, number or _NUMBER), np.argsort(cells["bin"])
    low, high = (np.searchsorted(cells["bin"][order], bins, side=s) for s in ("left", "right"))
    if family.has_log_moments:  # as for the lognormal: a Gamma's lower tail may be very long
        variance = np.log1p(np.exp(curves[1]))
        location, spread = curves[0] - 0.5 * variance, np.sqrt(variance)
    else:
        base = components.base(*curves)
        location, spread = base.location, base.spread
    places = location[:, None] + spread[:, None] * z
    sds = np.repeat(max(WIDTH, float(z[1] - z[0]) / _FLAT) * spread[:, None], len(z), axis=1)
    start = special.softmax(-0.5 * z**2) + _LEAST_WEIGHT / len(z)

    def search_bin(k: int) -> tuple[Floats, float, bool]:
        cells_of_bin = {name: values[order[low[k] : high[k]]] for name, values in cells.items()}
        variance = np.full(high[k] - low[k], sds[k, 0] ** 2)
        cell, data, items = cell_points(components, cells_of_bin, variance)
        centres = np.broadcast_to(places[k], (len(items), len(z)))
        log_density = components.log_density(*data, centres, variance[cell, None])
        top = log_density.max(axis=1)
        weight, value, ended = fixed_weights(np.exp(log_density - top[:, None]), items, start)
        return weight, value + float(items @ top), ended

    results = zip(*ordered_map(search_bin, range(len(bins))), strict=True)
    weight, value, ended = map(np.array, results)
    return (weight, places, sds), value, ended


def fixed_weights(density: Floats, items: Floats, start: Floats) -> tuple[Floats, float, bool]:
    """Weights that maximise sum n log(density @ weight), that value, and whether EM ended."""

    def step(weight: Floats) -> tuple[Floats, float]:
        mixed = density @ weight
        return weight * (density.T @ (items / mixed)) / items.sum(), float(items @ np.log(mixed))

    state, before = start / start.sum(), -np.inf
    for _ in range(_MOST_CYCLES):
        once, value = step(state)
        if value - before < _GAIN:
            return state, value, True
        twice, its_value = step(once)
        way, bend, before = once - state, twice - 2.0 * once + state, value
        length = max(np.linalg.norm(way) / max(float(np.linalg.norm(bend)), 1e-300), 1.0)
        leap = np.maximum(state + 2.0 * length * way + length**2 * bend, 1e-3 * twice)
        landed, leap_value = step(leap / leap.sum())
        state = landed if leap_value >= its_value else twice
    return state, before, False


def adjusted(curves: Callable[..., Pair], parts: Parts, location: Floats, spread: Floats) -> Parts:
    """Components moved and stretched until `curves` of them are these, each in its family."""
    weight, place, sd = parts
    centre, bins = (weight * place).sum(axis=1), np.arange(len(location))

    def moved(log_stretch: Floats, row: Ints) -> Parts:
        stretch = np.exp(log_stretch)[:, None]
        places, sds = (place[row] - centre[row, None]) * stretch, sd[row] * stretch
        gap = location[row]
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
    nearer = np.where(np.abs(root.f_bracket[0]) < np.abs(root.f_bracket[1]), *ends)
    return moved(np.where(root.success, root.x, nearer), bins)


def place_moments(weight: Floats, place: Floats, sd: Floats) -> Pair:
    """Mean and variance of theta, or of its log or logit, under the components."""
    middle = (weight * place).sum(axis=1)
    return middle, (weight * (sd**2 + (place - middle[:, None]) ** 2)).sum(axis=1)


def _gamma_curves(weight: Floats, place: Floats, sd: Floats) -> Pair:
    shape = inverse_trigamma(sd[:, 0] ** 2)[:, None]  # shared by all components
    log_mean = place + np.log(shape) - special.psi(shape)
    top = log_mean.max(axis=1)
    means = np.exp(log_mean - top[:, None])
    mean, variance = place_moments(weight, means, means / np.sqrt(shape))
    return top + np.log(mean), variance / mean**2


def _beta_curves(weight: Floats, place: Floats, sd: Floats) -> Pair:
    a, b = betas_of_logit(place, sd**2)
    sds = np.sqrt(BETA.variance(a, b))
    mean, variance = place_moments(weight, BETA.mean(a, b), sds)
    others = (weight * BETA.mean(b, a)).sum(axis=1)
    return np.log(mean) - np.log(others), variance / (mean * others * (mean * others - variance))


CURVES: Mapping[str, Callable[[Floats, Floats, Floats], Pair]] = {
    "Gamma": _gamma_curves,
    "Normal": place_moments,
    "Beta": _beta_curves,
}
"""First curve, and exp of the second, of a family's components."""
