"""A prior for each bin: by maximum likelihood, and mixtures around it by EM."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import special
from scipy.optimize import elementwise

from .._lib.arrays import Bools, Columns, Floats, Ints, Pair
from .._lib.threads import ordered_map
from .._model.mixture_cells import cell_points
from ..families.family import Family
from ..families.mixtures import WIDTH
from ..families.rows import RowSums
from .smoothing import Parts, has_log_moments

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


@dataclass(frozen=True, eq=False)
class _Profile:
    """The log marginals of rows, at the best location for each dispersion."""

    data: RowSums
    rows: Ints
    unit: float  # of the location

    def at(
        self,
        start: Floats,
        dispersion: Floats,
        steps: int,
        part: Ints | slice = slice(None),
    ) -> tuple[Floats, Floats, Floats]:
        """Best location from a start, log marginal there, and its slope in the dispersion."""
        # which loads PyMC
        from .._model.interpreter import exact_slopes

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
    at_zero: Bools  # True where the variance is 0


def maximise(family: Family, data: RowSums) -> Maxima:
    """Both curves of each bin by maximum likelihood."""
    rows = np.flatnonzero(data.can_fit)
    level, centre = data.level()
    profile = _Profile(data, rows, float(family.unit(np.array(centre))))
    all_rows = np.arange(len(rows))
    location = np.full(len(rows), level)
    grid = centre + _DISPERSIONS
    profiles: list[tuple[Floats, Floats, Floats]] = []
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
