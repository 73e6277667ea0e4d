"""Five steps: bins, a prior for each, smoothing over the bins, and the resulting fit."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import xarray as xr
from scipy import special
from scipy.optimize import elementwise

from .._lib.arguments import OneOf, convert_fields
from .._lib.arrays import Bools, Columns, Floats, Ints, Pair, Triple
from .._lib.errors import FitError
from .._lib.reprs import short
from .._lib.work import ordered_map, phase
from .._model.mixture_cells import cell_points
from .._model.pilot import check_joint_cells
from .._model.rows import Rows, positions, rows_of
from .._model.splines import Axis
from .._model.terms import axis_of
from ..data.statistics import Statistics
from ..families import FAMILIES
from ..families.family import Family
from ..families.mixtures import WIDTH
from ..families.priors import Prior, Spline
from ..families.rows import RowSums
from ..fits.curves import Curves
from ..fits.fit import Method, Status
from ..inference.density import SAMPLED
from ..inference.fit_tree import bin_table
from ..posterior.weights import ComponentWeights, moment_variables
from ..prior_table import ARRAYS, moments
from .smoothing import (
    Parts,
    Smoothing,
    has_log_moments,
    mixture_curves,
    moments_of_log,
    place_moments,
    smooth_mixtures,
)

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
    ) -> Triple:
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
    log_moments: Pair | tuple[()]  # of theta, where they can be matched
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
        notes.append(f"{int((~estimates.failed).sum()):,} bins by EM")
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
        f"{fitted:,} bins by maximum likelihood": fitted,
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
