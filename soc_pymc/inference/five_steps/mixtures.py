"""Five steps with a mixture of conjugate priors: each bin's weights, and their adjustment."""

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from ..._lib.errors import FitError
from ...data.statistics import Statistics
from ...families import components as parts
from ...families.mixture_weights import fixed_weights, free_normals
from ...model.outcomes import outcome_of
from ...model.pilot import Target
from ...model.splines import Axis
from ...model.tilt_design import cell_points, joint_cells
from ..methods import FiveSteps
from .conjugate import BinFits, Prior, fit_bins, of_log_theta, smoother
from .curves import Information, SmoothCurves, nearest, smooth_curves, stepped_curves
from .log_moments import match_gammas
from .newton import BinMaxima

__all__ = ["MixtureFits", "fit_mixtures"]

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

_PARTS = ("weight", "place", "sd")
_COMPONENTS = {"poisson": 100, "normal": 7}
_GAP = 0.01  # nats that better weights might gain
_GAIN, _MOST_STEPS = 0.01, 5000  # of EM: nats in 25 steps, and steps
_WIDEST = 3.0  # sd of the pilot between which free Normals begin
_START_WIDTH = 0.6  # their own sd, in the pilot's
_FLAT = 1.2  # components this many of their sds apart make a flat mixture
_FLOOR = 1e-3  # of the weights to start from, whose tails no EM step could lift otherwise
_LONGEST, _HALVINGS = 3.0, 60  # of the logarithm of a stretch
_LEAST_SPREAD = 1e-3  # of the pilot's sd of log theta: where it finds none, there may be some


@dataclass(frozen=True)
class MixtureFits:
    """Bins with their mixtures and the curves.

    Attributes
    ----------
    pilot
        The conjugate prior's fit to the same bins.
    fitted
        Bins that have a mixture of their own.
    failed
        Bins whose search did not end.
    gap
        Largest distance, in nats, of a bin's log likelihood to the highest; NaN for free Normals.
    weight, place, sd
        (bins, R), after smoothing: places are of log theta less the first curve, or of theta less
        E(theta|t), and so are sds.
    moments
        By bin, before smoothing, as of `conjugate.estimates`.
    curves
        Of E(theta|t) and the spread; of the Gammas with the smooth moments of log theta.
    """

    pilot: BinFits
    fitted: Mask
    failed: Mask
    gap: float
    weight: Floats
    place: Floats
    sd: Floats
    moments: dict[str, Floats]
    curves: SmoothCurves | tuple[Floats, Floats]

    @property
    def axes(self) -> tuple[Axis, Axis]:
        """Of the two curves."""
        return self.pilot.axes


def fit_mixtures(stats: Statistics, prior: Prior, method: FiveSteps) -> MixtureFits:
    """Steps 2 and 3: EM in each bin of the joint cells, then moments of (log) theta smoothed.

    Raises
    ------
    FitError
        If the statistics have no joint cells, or no bin can be fitted.
    """
    cells = joint_cells(stats, type(prior).__name__)
    plain = replace(method, smooth=True, monotone=False, moments="plain")
    pilot = fit_bins(stats, prior, plain)
    assert isinstance(pilot.curves, SmoothCurves)
    # joint cells may be in wider bins than the pilot
    wide, of = np.unique(pilot.rows.bin // max(stats.coarse, 1), return_inverse=True)
    n = np.bincount(of, pilot.rows.n)
    place = tuple(np.bincount(of, pilot.rows.n * x) / n for x in pilot.positions)
    chosen = np.flatnonzero(wide % method.every == 0)
    search = _Search(
        stats.kind,
        cells,
        method.components or _COMPONENTS[stats.kind],
        *pilot.curves.at((place[0], place[1])),
    )
    order = np.argsort(cells["bin"], kind="stable")
    ends = [np.searchsorted(cells["bin"][order], wide, side=side) for side in ("left", "right")]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        own = list(pool.map(lambda k: search(k, order[ends[0][k] : ends[1][k]]), chosen))
    found = _Found.of(stats.kind, len(wide), chosen, own)
    if not found.good.any():
        raise FitError(
            f"EM ended in none of {len(chosen):,} bins: use fewer components, or soc.VI()"
        )
    information = _over_bins(outcome_of(stats).target(pilot.bins.data), of, len(wide))
    known, where = np.flatnonzero(found.good), (place[0], place[1])
    own_bin = known[nearest(place[0], known)]
    curves: SmoothCurves | tuple[Floats, Floats]
    if method.smooth and of_log_theta(prior, method):
        curves = smoother(prior, method, pilot.axes)(found.matched, where, n, information)
        own_parts = _shifted(found.components, own_bin, *curves.at(where))
    elif method.smooth:
        curves = smooth_curves(found.maxima, where, n, information, method.monotone)
        spread = np.exp(curves.at(where)[1])
        own_parts = _adjusted(stats.kind, found.components, own_bin, spread)
    else:
        steps = stepped_curves(found.maxima, place[0], information, method.monotone)
        curves = steps[0][of], steps[1][of]
        own_parts = _adjusted(stats.kind, found.components, own_bin, np.exp(steps[1]))
    weight, places, sd = (x[of] for x in own_parts)
    moments = {name: x[of] for name, x in found.moments.items()} | {"n_items": pilot.rows.n}
    good, failed = found.good[of], found.failed[of]
    return MixtureFits(pilot, good, failed, found.gap, weight, places, sd, moments, curves)


@dataclass(frozen=True)
class _Mixture:
    """One bin's mixture: places and sds of log theta (of theta), and how the search ended."""

    weight: Floats
    place: Floats
    sd: Floats
    value: float
    gap: float
    ended: bool


@dataclass(frozen=True)
class _Search:
    """EM in one bin.

    Attributes
    ----------
    kind
        "poisson" or "normal".
    cells
        Joint cells.
    number
        Components.
    first, second
        The pilot's curves at the bins.
    """

    kind: str
    cells: Mapping[str, NDArray[Any]]
    number: int
    first: Floats
    second: Floats

    def __call__(self, k: int, at: NDArray[np.intp]) -> _Mixture:
        """The mixture of bin k, whose cells are `at`."""
        own = {name: values[at] for name, values in self.cells.items()}
        if self.kind == "poisson":
            return self._gammas(own, float(self.first[k]), float(self.second[k]))
        return self._normals(own, float(self.first[k]), float(np.exp(0.5 * self.second[k])))

    def _gammas(self, own: Mapping[str, NDArray[Any]], first: float, second: float) -> _Mixture:
        """Fixed Gammas at even steps of E(log theta), of one Var(log theta)."""
        ends = parts.grid("poisson")
        z = np.linspace(ends[0], ends[-1], self.number)
        # of the lognormal with the pilot's moments: a Gamma's own lower tail may be endless
        variance = np.log1p(np.exp(second))
        spread = max(float(np.sqrt(variance)), _LEAST_SPREAD)
        sd = max(parts.WIDTH, float(z[1] - z[0]) / _FLAT) * spread
        place = first - 0.5 * variance + spread * z
        n = own["n"]
        shape, expected = parts.inverse_trigamma(sd**2), own["sum_y"] / n + 1.0
        _, data, items = cell_points("poisson", own, shape * expected / (shape + expected))
        log_density = parts.count_log_density(
            *data, np.broadcast_to(place, (len(items), len(z))), np.full(len(items), sd**2)
        )
        top = log_density.max(axis=1)
        start = special.softmax(-0.5 * z**2) + _FLOOR / len(z)
        weight, value, gap = fixed_weights(np.exp(log_density - top[:, None]), items, start, _GAP)
        ended = bool(gap <= max(_GAP, 1e-9 * float(items.sum())))
        return _Mixture(weight, place, np.full(len(z), sd), value + float(items @ top), gap, ended)

    def _normals(self, own: Mapping[str, NDArray[Any]], mean: float, sd: float) -> _Mixture:
        """Free Normals, begun evenly over the pilot's."""
        noise = own["sum_w"] / own["n"]
        _, data, items = cell_points("normal", own, noise / (noise + sd**2))
        z = np.linspace(-_WIDEST, _WIDEST, self.number)
        weight = special.softmax(-0.5 * z**2)
        place, variance = mean + sd * z, np.full(len(z), (_START_WIDTH * sd) ** 2)
        value, ended = free_normals(*data, items, weight, place, variance, _GAIN, _MOST_STEPS)
        return _Mixture(weight, place, np.sqrt(variance), value, np.nan, bool(ended))


@dataclass(frozen=True)
class _Found:
    """Mixtures of all bins, NaN in those that were not fitted.

    Attributes
    ----------
    components
        Weights, places and sds, each (bins, R).
    moments
        Of theta, for counts of log theta too, and the log likelihood.
    maxima
        First and second parameter of the conjugate prior with the same moments.
    good, failed
        Bins where EM ended, and where it did not.
    gap
        The largest.
    """

    components: tuple[Floats, Floats, Floats]
    moments: dict[str, Floats]
    maxima: BinMaxima
    good: Mask
    failed: Mask
    gap: float

    @property
    def matched(self) -> BinMaxima:
        """Gammas with the moments of log theta that the mixtures have."""
        both = match_gammas(self.moments["mean_log"], self.moments["variance_log"])
        return replace(self.maxima, first=both[0], second=both[1])

    @staticmethod
    def of(kind: str, bins: int, chosen: NDArray[np.intp], own: Sequence[_Mixture]) -> "_Found":
        """From those of the chosen bins."""

        def spread_out(values: Sequence[Any]) -> Floats:
            each = np.array(values, dtype=float)
            full = np.full((bins, *each.shape[1:]), np.nan)
            full[chosen] = each
            return full

        ended = np.array([x.ended for x in own])
        good, failed = np.zeros((2, bins), dtype=bool)
        good[chosen], failed[chosen] = ended, ~ended
        weight, place, sd = (spread_out([getattr(x, k) for x in own]) for k in _PARTS)
        value = spread_out([x.value for x in own])
        mean, spread = _moments(kind, weight, place, sd)
        if kind == "poisson":
            middle = (weight * place).sum(axis=1)
            within = (weight * (sd**2 + (place - middle[:, None]) ** 2)).sum(axis=1)
            moments = {"mean": np.exp(mean), "variance": spread * np.exp(2.0 * mean)}
            moments |= {"mean_log": middle, "variance_log": within}
        else:
            moments = {"mean": mean, "variance": spread}
        zero = np.zeros(bins, dtype=bool)
        # bins that were not fitted have a spread of 0 here, and are marked as such
        with np.errstate(divide="ignore"):
            maxima = BinMaxima(mean, np.log(spread), value, zero, good, failed)
        gap = max((x.gap for x in own), default=np.nan)
        kept = moments | {"log_likelihood": value}
        return _Found((weight, place, sd), kept, maxima, good, failed, gap)


def _moments(kind: str, weight: Floats, place: Floats, sd: Floats) -> tuple[Floats, Floats]:
    """Log mean and squared cv of theta, or its mean and variance, of mixtures (bins, R)."""
    if kind == "normal":
        mean = (weight * place).sum(axis=1)
        return mean, (weight * (sd**2 + (place - mean[:, None]) ** 2)).sum(axis=1)
    shape = parts.inverse_trigamma(sd[:, 0] ** 2)[:, None]  # one for all components
    log_mean = place + np.log(shape) - special.psi(shape)
    top = log_mean.max(axis=1)
    means = np.exp(log_mean - top[:, None])
    mean = (weight * means).sum(axis=1)
    away = weight * ((means / mean[:, None] - 1.0) ** 2 + (means / mean[:, None]) ** 2 / shape)
    return top + np.log(mean), away.sum(axis=1)


def _adjusted(
    kind: str,
    components: tuple[Floats, Floats, Floats],
    at: NDArray[np.intp],
    spread: Floats,
) -> tuple[Floats, Floats, Floats]:
    """Components shifted to a mean of 1 (of log theta; of theta: 0) and stretched to a spread.

    Log theta, for counts, is stretched about its mean and shifted, each component staying the
    Gamma with the mean and variance of log theta that this gives, so that theta stays positive.
    Each bin takes the components of the bin `at`: its own, or its nearest neighbour's.
    """
    weight, place, sd = (x[at] for x in components)
    centre = (weight * place).sum(axis=1, keepdims=True)
    if kind == "normal":
        stretch = np.sqrt(spread / _moments(kind, weight, place, sd)[1])[:, None]
        return weight, (place - centre) * stretch, sd * stretch
    low, high = np.full(len(spread), -_LONGEST), np.full(len(spread), _LONGEST)
    for _ in range(_HALVINGS):  # the spread grows with the stretch
        middle = 0.5 * (low + high)
        stretch = np.exp(middle)[:, None]
        # too long a stretch overflows: that is "too wide" like any other
        with np.errstate(over="ignore", invalid="ignore"):
            now = _moments(kind, weight, (place - centre) * stretch, sd * stretch)[1]
        wide = ~(now <= spread)
        low, high = np.where(wide, low, middle), np.where(wide, middle, high)
    stretch = np.exp(0.5 * (low + high))[:, None]
    moved = (place - centre) * stretch
    return weight, moved - _moments(kind, weight, moved, sd * stretch)[0][:, None], sd * stretch


def _shifted(
    components: tuple[Floats, Floats, Floats],
    at: NDArray[np.intp],
    log_mean: Floats,
    log_cv2: Floats,
) -> tuple[Floats, Floats, Floats]:
    """Components whose log theta is shifted and scaled to the moments of given Gammas.

    Places are less the Gammas' log mean.
    """
    weight, place, sd = (x[at] for x in components)
    centre = (weight * place).sum(axis=1, keepdims=True)
    within = (weight * (sd**2 + (place - centre) ** 2)).sum(axis=1, keepdims=True)
    wanted = parts.count_frame(log_mean, log_cv2)
    stretch = wanted.spread[:, None] / np.sqrt(within)
    lower = (wanted.location - log_mean)[:, None]
    return weight, (place - centre) * stretch + lower, sd * stretch


def _over_bins(target: Target, of: NDArray[np.intp], bins: int) -> Information:
    """Expected information of wider bins' curves, from that of the pilot's bins."""

    def information(first: Floats, second: Floats) -> tuple[Floats, Floats]:
        both = target.information(first[of], second[of])
        return np.bincount(of, both[0], bins), np.bincount(of, both[1], bins)

    return information
