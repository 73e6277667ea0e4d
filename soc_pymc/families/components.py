"""A grid of conjugate components around a base distribution.

The base distribution has a location and a spread of theta given the score: of log theta for counts,
of theta for values, of logit theta for successes. Component r is at location + spread z_r, and its
sd is a fixed share of the spread, so one grid suits curves whose spread changes tenfold with the
score. The components at a score differ only in location: Gammas of one shape, Normals of one
variance, or Betas of one variance of logit theta (`beta_mixtures`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from .._lib.arrays import Floats, Ints
from .mixture_rows import FLOOR, WeightForms, bounded_handle, centred
from .special_functions import log_negative_binomial, polygammas

WIDTH = 0.3
"""Sd of a component in units of the base distribution's spread."""

STEP = 0.35  # step between components: at 1.2 sd their equal mixture is flat to 1e-6
_CORNER = 3.0  # spreads beyond which the function that widens the base distribution is linear
# smallest and largest log shape of a base Gamma: locations far from 0 still differ by its spread
_LOG_SHAPES = (-2.7, 35.0)
# a Gamma of a wider logarithm has next to nothing in its lower tail: spread, and location below the
# mean's logarithm, with which components reach down to 1e-6 of the mean and up to 150 times it
_WIDEST_SPREAD, _FURTHEST_BELOW = 1.4, 3.8
_MANY = 1000.0  # counts above which each component's probability is computed separately
_SPLIT = 1e-3  # nats: a cell of several values becomes two points if the difference is larger
_SKEWED = 0.3  # increase of the largest spread of theta with that of its logarithm
_TILTS, _MOST_TILT = 20, 2.0  # Newton steps, and the largest change of a log weight in one
_FLOOR_SD, _FLOOR_POWER = 2.0, 3.0  # width, and power of theta, of the floor for heavy tails


@dataclass(frozen=True)
class Frame:
    """Base distributions at some scores, which place the components."""

    mean_curve: Floats  # (n,): first curve of the Laplace start
    location: Floats  # (n,): mean of theta, or of its log or logit, under it
    spread: Floats  # (n,): its sd
    shape: Floats  # (n,): shape of the Laplace start's Gamma (counts); 0 for others

    def places(self, z: Floats) -> Floats:
        """Locations (n, R) of components at positions z."""
        return np.asarray(self.location[:, None] + self.spread[:, None] * z)

    def width(self, extra: ArrayLike = 0.0) -> Floats:
        """Variance of a component, and of `extra` that adds to it: shape (n,)."""
        return np.asarray((WIDTH * self.spread) ** 2 + np.asarray(extra, dtype=float))


def inverse_trigamma(value: ArrayLike) -> Floats:
    """X > 0 with trigamma(x) = value, by Newton's method on 1/trigamma, which is nearly linear."""
    v = np.asarray(value, dtype=float)
    # by the series of trigamma at 0, 1/x^2 + zeta(2) - 2 zeta(3) x
    small = 1.0 / np.sqrt(v)
    small = 1.0 / np.sqrt(
        np.maximum(v - special.zeta(2.0) + 2.0 * special.zeta(3.0) * small, 0.5 * v)
    )
    inside = np.empty(v.size)
    _solve_trigamma(np.clip(v.ravel(), 1e-6, 1e7), inside)
    return np.where(v > 1e7, small, np.where(v < 1e-6, 1.0 / v + 0.5, inside.reshape(v.shape)))


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _solve_trigamma(value, out):  # type: ignore[no-untyped-def]
    for i in range(len(value)):
        v = value[i]
        x = 0.5 + 1.0 / v
        for _ in range(30):
            _, tri, slope = polygammas(x)
            step = tri * (1.0 - tri / v) / slope
            x += step
            if abs(step) <= 1e-13 * x:
                break
        out[i] = x


def count_frame(log_mean: ArrayLike, log_cv2: ArrayLike) -> Frame:
    """Base distributions of Gammas with these means and squared coefficients of variation."""
    shape = np.exp(np.clip(-np.asarray(log_cv2, dtype=float), *_LOG_SHAPES))
    return _gamma_frame(np.array(log_mean, dtype=float), shape)


def _gamma_frame(log_mean: Floats, shape: Floats) -> Frame:
    """The grid reaches from far below the mean to far above it where the spread is large."""
    below = np.maximum(special.psi(shape) - np.log(shape), -_FURTHEST_BELOW)
    spread = np.minimum(np.sqrt(special.polygamma(1, shape)), _WIDEST_SPREAD)
    return Frame(log_mean, log_mean + below, spread, shape)


def value_frame(mean: ArrayLike, log_variance: ArrayLike) -> Frame:
    """Base distributions of Normals with these means and log variances."""
    spread = np.exp(0.5 * np.clip(np.asarray(log_variance, dtype=float), -230.0, 230.0))
    return Frame(
        np.array(mean, dtype=float), np.array(mean, dtype=float), spread, np.zeros(len(spread))
    )


def stretching(z: Floats, centre: ArrayLike = 0.0, corner: ArrayLike = _CORNER) -> Floats:
    """Function of z that widens a Normal base distribution, (n, R): z^2/2, but linear far out.

    It is linear beyond `corner` (n,) on both sides of a `centre` (n,).
    """
    corner = np.asarray(corner)[..., None]
    x = np.abs(z - np.asarray(centre)[..., None]) / corner
    return np.asarray(corner**2 * (x + np.log1p(np.exp(-2.0 * x)) - np.log(2.0)))


def count_log_density(
    count: Floats, exposure: Floats, location: Floats, variance: Floats
) -> Floats:
    """Log marginal probability (n, R) of counts (n,) under Gammas.

    They are given by the mean, `location` (n, R), and the variance (n,) of log theta.
    """
    shape = inverse_trigamma(variance)
    log_mean = location + (np.log(shape) - special.psi(shape))[:, None]
    expected = exposure[:, None] * np.exp(log_mean)
    log_density = np.empty_like(log_mean)
    large = count >= _MANY
    log_density[large] = log_negative_binomial(
        count[large, None], shape[large, None], expected[large]
    )
    small = ~large
    y, a, means, logs = (x[small] for x in (count, shape, expected, log_mean))
    # differences from a component in the middle, whose probability is known: cheap, and accurate
    # because no term is larger than a count
    middle = logs.shape[1] // 2
    total = (a + means[:, middle])[:, None]
    gap = (means - means[:, [middle]]) / total
    lost = gap < -0.999  # negligible relative to the one in the middle
    log_ratio = np.log1p(np.where(lost, 0.0, gap))
    if lost.any():
        log_ratio[lost] = np.log(((a[:, None] + means) / total)[lost])
    log_density[small] = y[:, None] * (logs - logs[:, [middle]]) - (a + y)[:, None] * log_ratio
    log_density[small] += log_negative_binomial(y, a, means[:, middle])[:, None]
    return log_density


def count_at_zero(count: Floats, size: Floats) -> Floats:
    """Log probability of counts, or of successes, where theta is 0."""
    return np.where(count > 0, -np.inf, 0.0)


def value_log_density(value: Floats, noise: Floats, location: Floats, variance: Floats) -> Floats:
    """Log marginal density (n, R) of values (n,) with noise variance `noise` under Normals.

    Their variances are (n,), (n, 1) or (n, R).
    """
    total = noise[:, None] + variance.reshape(len(value), -1)
    z = (value[:, None] - location) / np.sqrt(total)
    return np.asarray(-0.5 * (z * z + np.log(2.0 * np.pi * total)))


# --- functions of a mixture's family -------------------------------------------------------------


class Moments(NamedTuple):
    """Means, variances and covariance of outcomes and sizes in cells."""

    outcome: Floats
    size: Floats
    var_outcome: Floats
    var_size: Floats
    cov: Floats
    bend: tuple[Floats, Floats]  # direction of (outcome, size) in which the likelihood is curved
    lowest: Floats  # bounds of outcomes


def count_moments(cells: Mapping[str, NDArray[Any]]) -> Moments:
    """Moments of counts and exposures; the likelihood is curved in the log of their ratio."""
    n = cells["n"].astype(float)
    y, size = cells["sum_y"] / n, cells["sum_N"] / n
    by_count = np.where(y > 0, 1.0 / np.maximum(y, 1e-9), 0.0)
    return Moments(
        y,
        size,
        cells["sum_y2"] / n - y**2,
        cells["sum_N2"] / n - size**2,
        cells["sum_yN"] / n - y * size,
        (by_count, -1.0 / np.maximum(size, 1e-300)),
        np.zeros_like(y),
    )


def _value_moments(cells: Mapping[str, NDArray[Any]]) -> Moments:
    n = cells["n"].astype(float)
    y, size = cells["sum_y"] / n, cells["sum_w"] / n
    return Moments(
        y,
        size,
        cells["sum_y2"] / n - y**2,
        cells["sum_w2"] / n - size**2,
        np.zeros_like(n),
        (1.0 / np.sqrt(np.maximum(size, 1e-300)), np.zeros_like(n)),
        np.full_like(y, -np.inf),
    )


def _ones(base: Frame) -> Floats:
    return np.ones(len(base.location))


def _relative_gammas(base: Frame, z: Floats) -> tuple[Floats, Floats, Floats]:
    shape = inverse_trigamma(base.width())
    mean = np.expm1(_gamma_positions(base, base.places(z))[:, 0])
    variance, unit = (1.0 + mean) ** 2 / shape[:, None], np.ones(len(shape))
    # means and variances of wide log-normals and Gammas are in their upper tails
    reach = base.spread * (1.0 + _SKEWED * base.spread**2)
    return (
        bounded_handle(base.mean_curve, unit, np.zeros(len(shape)), reach, mean, variance),
        mean,
        variance,
    )


def _gamma_positions(base: Frame, place: Floats) -> Floats:
    shape = inverse_trigamma(base.width())
    above = np.log(shape) - special.psi(shape) - base.mean_curve
    return np.asarray(np.stack([place + above[:, None], np.zeros_like(place)], axis=1))


def _relative_normals(base: Frame, z: Floats) -> tuple[Floats, Floats, Floats]:
    mean = ((base.location - base.mean_curve) / base.spread)[:, None] + z
    variance, ones = np.full(mean.shape, WIDTH**2), np.ones(len(mean))
    return bounded_handle(base.mean_curve, base.spread, -ones, ones, mean, variance), mean, variance


def _count_sharpness(cells: Mapping[str, NDArray[Any]], shape: Floats) -> Floats:
    expected = cells["sum_y"] / cells["n"].astype(float) + 1.0
    return np.asarray(shape * expected / (shape + expected))


def _value_sharpness(cells: Mapping[str, NDArray[Any]], variance: Floats) -> Floats:
    noise = cells["sum_w"] / cells["n"].astype(float)
    return np.asarray(noise / (noise + variance))


def _merged_gammas(location: Floats, fine: Frame, mean: Callable[[Floats], Floats]) -> Frame:
    """Exp(mean log) of shapes, which determine the other fields."""
    return _gamma_frame(mean(fine.mean_curve), np.exp(mean(np.log(fine.shape))))


def merged_normals(location: Floats, fine: Frame, mean: Callable[[Floats], Floats]) -> Frame:
    """Base distributions of merged bins, which location and spread determine."""
    spread = np.exp(mean(np.log(fine.spread)))
    return Frame(mean(fine.mean_curve), location, spread, np.zeros(len(location)))


@dataclass(frozen=True)
class Components:
    """A family's components around base distributions from its curves."""

    ends: tuple[float, float]  # of the positions, in units of the base distribution's spread
    base: Callable[[Any, Any], Frame]  # of both curves
    rise: Callable[[Frame], Floats]  # derivative of the location in the first curve
    # (bases, z) -> `WeightForms.handle`, and means and variances of theta under the components in
    # its units
    relative: Callable[[Frame, Floats], tuple[Floats, Floats, Floats]]
    # (bases, locations (n, R)) -> the first columns of `WeightForms.base`; None for Normals, which
    # have no path
    positions: Callable[[Frame, Floats], Floats] | None
    # (bases, z, curves (n, 2)) -> weights (n, R) that make the family's own distribution, where
    # which have no closed form
    anchor: Callable[[Frame, Floats, Floats], Floats] | None
    merged: Callable[..., Frame]  # (location, bases, averages over merged bins) -> their base
    log_density: Callable[[Floats, Floats, Floats, Floats], Floats]
    at_zero: Callable[[Floats, Floats], Floats]  # log density of outcomes (n,) where theta is 0
    moments: Callable[[Mapping[str, NDArray[Any]]], Moments]
    scale: Callable[[ArrayLike], Floats]  # variance of components -> Gamma shape, or itself
    sharpness: Callable[[Mapping[str, NDArray[Any]], Floats], Floats]  # (cells, scale of each)

    @property
    def z(self) -> Floats:
        """Positions of the components, in units of the base distribution's spread."""
        low, high = self.ends
        return np.linspace(low, high, round((high - low) / STEP) + 1)

    def forms(
        self, base: Frame, functions: Floats, start: Floats, heavy: bool = True
    ) -> WeightForms:
        """Return the map from predictors to weights; `functions` (R, F) are those of z.

        `start` (n, 2) are the pilot's curves. The first function of families with a path is 0.
        `heavy` says whether a small share allows heavier tails.
        """
        z = self.z
        handle, mean, variance = self.relative(base, z)
        base_arrays = np.zeros((len(mean), 4, len(z)))
        centre, corner = np.zeros(len(mean)), np.full(len(mean), _CORNER)
        if self.positions is None:
            base_arrays[:, 0] = mean
        else:  # theta has a scale, at which both tails of its logarithm begin
            base_arrays[:, :2] = self.positions(base, base.places(z))
            centre = (base.mean_curve - base.location) / base.spread
            corner = np.minimum(_CORNER, 2.0 / base.spread)
            far = np.log1p(np.abs(mean) / (1.0 + np.exp(0.5 * start[:, [1]])))
            wide = special.softmax(-0.5 * (z / _FLOOR_SD) ** 2 - _FLOOR_POWER * far, axis=1)
            base_arrays[:, 2] = FLOOR * wide if heavy else 0.0
        if self.anchor is not None:
            base_arrays[:, 3] = _with_moments(
                self.anchor(base, z, start), mean, variance, base, start
            )
        stretch = np.broadcast_to(stretching(z, centre, corner), mean.shape)[..., None]
        all_functions = np.hstack([z[:, None], functions])
        basis = np.broadcast_to(all_functions, (len(mean), *all_functions.shape))
        basis = np.concatenate([basis[..., :1], stretch, basis[..., 1:]], axis=2)
        centre_of_rows = np.zeros((len(mean), basis.shape[2]))
        centre_of_rows[:, :2], centre_of_rows[:, 2] = start, self.positions is not None
        return centred(
            WeightForms(base_arrays, basis, mean, variance, handle, centre_of_rows, centre_of_rows),
            centre_of_rows,
        )


def _with_moments(
    weight: Floats, mean: Floats, variance: Floats, base: Frame, start: Floats
) -> Floats:
    """Logarithms of weights (n, R), tilted by theta and its square to the moments of `start`.

    Weights were rounded to the grid, mostly where theta is largest, and so are corrected there.
    """
    m, odds_cv2 = special.expit(base.mean_curve), np.exp(start[:, 1])
    # in units of m (1 - m), around m: the mean is 0, and the variance this
    targets = np.stack([np.zeros(len(m)), odds_cv2 / (1.0 + m * (1.0 - m) * odds_cv2)], axis=1)
    parts = np.stack([mean, mean**2 + variance], axis=2)
    log = np.log(np.maximum(weight, 1e-300))
    tilt = np.zeros((len(m), 2))
    for _ in range(_TILTS):
        tilted = special.softmax(log + np.einsum("nrk,nk->nr", parts, tilt), axis=1)
        moments = np.einsum("nr,nrk->nk", tilted, parts)
        centred = parts - moments[:, None]
        slope = np.einsum("nr,nrk,nrj->nkj", tilted, centred, centred)
        step = np.linalg.solve(slope, (targets - moments)[:, :, None])[:, :, 0]
        longest = np.abs(np.einsum("nrk,nk->nr", centred, step)).max(axis=1)
        tilt += step * (_MOST_TILT / np.maximum(longest, _MOST_TILT))[:, None]
    return np.asarray(log + np.einsum("nrk,nk->nr", parts, tilt))


GAMMAS = Components(
    # lower tails of log theta are at worst exponential with a mean of one spread
    ends=(-8.05, 6.3),
    base=count_frame,
    rise=_ones,
    relative=_relative_gammas,
    positions=_gamma_positions,
    anchor=None,
    merged=_merged_gammas,
    log_density=count_log_density,
    at_zero=count_at_zero,
    moments=count_moments,
    scale=inverse_trigamma,
    sharpness=_count_sharpness,
)
NORMALS = Components(
    ends=(-7.7, 7.7),
    base=value_frame,
    rise=_ones,
    relative=_relative_normals,
    positions=None,
    anchor=None,
    merged=merged_normals,
    log_density=value_log_density,
    at_zero=lambda y, noise: -0.5 * (y * y / noise + np.log(2.0 * np.pi * noise)),
    moments=_value_moments,
    scale=np.asarray,
    sharpness=_value_sharpness,
)


def cell_points(
    components: Components, cells: Mapping[str, NDArray[Any]], sharpness: Floats
) -> tuple[Ints, tuple[Floats, Floats], Floats]:
    """Joint cells as weighted points: cell of each, its outcome and size, and number of items.

    A cell of several values becomes two points with its means and, in the direction in which the
    log likelihood is curved by `sharpness` (the ratio of count and exposure; the value), its
    variance.
    """
    n = cells["n"].astype(float)
    y, size, vy, vn, cov, bend, lowest = components.moments(cells)
    vy, vn = np.maximum(vy, 0.0), np.maximum(vn, 0.0)
    along = vy * bend[0] + cov * bend[1], cov * bend[0] + vn * bend[1]
    spread = along[0] * bend[0] + along[1] * bend[1]
    wide = 0.5 * n * spread * sharpness > _SPLIT
    root = np.sqrt(spread[wide])
    dy, dn = along[0][wide] / root, along[1][wide] / root
    dn = np.clip(dn, -size[wide], size[wide])
    room = y[wide] - lowest[wide]
    dy = np.clip(dy, -room, room)
    outcomes = np.concatenate([y[~wide], y[wide] + dy, y[wide] - dy])
    sizes = np.concatenate([size[~wide], size[wide] + dn, size[wide] - dn])
    split = np.flatnonzero(wide)
    cell = np.concatenate([np.flatnonzero(~wide), split, split])
    return cell, (outcomes, sizes), np.concatenate([n[~wide], n[wide] / 2, n[wide] / 2])
