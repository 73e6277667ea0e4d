"""A grid of conjugate components around a base distribution.

The base distribution has a location and a spread of theta given the score: of log theta for counts,
of theta for values, of logit theta for successes. Component r is at location + spread z_r, and its
sd is a fixed share of the spread, so one grid suits curves whose spread changes tenfold with the
score. The components at a score differ only in location: Gammas of one shape, Normals of one
variance, or Betas of one variance of logit theta (`beta_mixtures`).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from .._lib.arrays import Floats, Ints
from .mixture_weights import FLOOR, LOWEST, Bounds, Grid, Law, Pair, WeightForms, between, bounds_of
from .special_functions import polygammas

WIDTH = 0.3
"""Sd of a component in units of the base distribution's spread."""
STEP = 0.35
"""Step between components: at 1.2 sd their equal mixture is flat to 1e-6."""
_CORNER = 3.0  # spreads beyond which the function that widens the base distribution is linear
# smallest and largest log shape of a base Gamma: locations far from 0 still differ by its spread
_LOG_SHAPES = (-2.7, 35.0)
# a Gamma of a wider logarithm has next to nothing in its lower tail: spread, and location below the
# mean's logarithm, with which components reach down to 1e-6 of the mean and up to 150 times it
_WIDEST_SPREAD, _FURTHEST_BELOW = 1.4, 3.8
_SPLIT = 1e-3  # nats: a cell of several values becomes two points if the difference is larger
_UPPER = 0.05  # log of a share of a component below 0, from which on its log density is a line
_SKEWED = 0.3  # increase of the largest spread of theta with that of its logarithm
_FLOOR_SD, _FLOOR_POWER = 2.0, 3.0  # width, and power of theta, of the floor for heavy tails


@dataclass(frozen=True)
class Frame:
    """Base distributions at some scores, which place the components."""

    mean_curve: Floats  # (n,): first curve of the Laplace start
    location: Floats  # (n,): mean of theta, or of its log or logit, under it
    spread: Floats  # (n,): its sd

    def places(self, z: Floats) -> Floats:
        """Locations (n, R) of components at positions z."""
        return np.asarray(self.location[:, None] + self.spread[:, None] * z)

    def width(self, extra: ArrayLike = 0.0) -> Floats:
        """Variance of a component, and of `extra` that adds to it: shape (n,)."""
        return np.asarray((WIDTH * self.spread) ** 2 + np.asarray(extra, dtype=float))


class Relative(NamedTuple):
    """Components in units of the base distribution, as in `mixture_weights`."""

    positions: Floats  # (1 or 2, n, R)
    mean: Floats  # (n, R)
    variance: Floats  # (n, R)
    unit: Floats  # (n,): of the first curve
    middle: Floats  # (n,)
    reach: Floats  # (n,): spread of the base distribution in this unit


def inverse_trigamma(value: ArrayLike) -> Floats:
    """X > 0 with trigamma(x) = value, by Newton's method on 1/trigamma, which is nearly linear."""
    v = np.asarray(value, dtype=float)
    inside = np.empty(v.size)
    _solve_trigamma(np.maximum(v.ravel(), 1e-6), inside)
    return np.where(v < 1e-6, 1.0 / v + 0.5, inside.reshape(v.shape))


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _solve_trigamma(value, out):  # type: ignore[no-untyped-def]
    for i in range(len(value)):
        v = value[i]
        x = 1.0 / math.sqrt(v) if v > 1.0 else 0.5 + 1.0 / v  # nearly, at both ends
        for _ in range(30):
            _, tri, slope = polygammas(x)
            step = tri * (1.0 - tri / v) / slope
            x += step
            if abs(step) <= 1e-13 * x:
                break
        out[i] = x


def stretching(z: Floats, centre: ArrayLike = 0.0, corner: ArrayLike = _CORNER) -> Floats:
    """z^2/2 to widen a Normal base distribution, but linear beyond `corner` around `centre`."""
    corner = np.asarray(corner)[..., None]
    x = np.abs(z - np.asarray(centre)[..., None]) / corner
    return np.asarray(corner**2 * (x + np.log1p(np.exp(-2.0 * x)) - np.log(2.0)))


@dataclass(frozen=True, kw_only=True)
class Components:
    """A family's components around base distributions from its curves."""

    law: Law
    ends: tuple[float, float]  # of the positions, in units of the base distribution's spread
    base: Callable[[Any, Any], Frame]  # of both curves
    # (location (n, R), variance (n, 1) or (n, R)) -> conjugate parameters
    parameters: Callable[[Floats, Floats], Pair]
    # (bases, conjugate parameters, z) -> components in their units
    relative: Callable[[Frame, Pair, Floats], Relative]
    # (bases, z, curves (n, 2), components, bounds) -> log weights (n, R) that make the family's law
    # less those of its parameters, where these have no closed form
    log_pilot: Callable[[Frame, Floats, Floats, Relative, Bounds], Floats] | None = None
    zero: Callable[[Floats], Pair]  # a of a component -> a, b of theta = 0
    lowest: float = 0.0  # bound of outcomes
    size_sums: str = "N"  # letter of the sums of sizes in joint cells
    size: Callable[[Floats], Floats] = np.asarray  # mean of what they add up -> size
    # derivative of the location in the first curve
    rise: Callable[[Frame], Floats] = lambda base: np.ones_like(base.location)
    # (outcome, size as summed, variance of a component) -> direction of both in which the log
    # likelihood is curved, and the curvature
    curvature: Callable[[Floats, Floats, Floats], tuple[Floats, Floats, Floats]]

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
        z, ones = self.z, np.ones(len(start))
        parameters = self.parameters(base.places(z), base.width()[:, None])
        parts = self.relative(base, parameters, z)
        arrays = np.zeros((4, len(start), len(z)))
        arrays[: len(parts.positions)] = parts.positions
        centre, corner = 0.0 * ones, _CORNER * ones
        if self.law.has_path:  # theta has a scale, at which both tails of its logarithm begin
            centre = (base.mean_curve - base.location) / base.spread
            corner = np.minimum(_CORNER, 2.0 / base.spread)
            far = np.log1p(np.abs(parts.mean) / (1.0 + np.exp(0.5 * start[:, [1]])))
            wide = special.softmax(-0.5 * (z / _FLOOR_SD) ** 2 - _FLOOR_POWER * far, axis=1)
            arrays[2] = FLOOR * wide if heavy else 0.0
        tilts = np.stack(np.broadcast_arrays(z, stretching(z, centre, corner)), axis=2)
        moments = np.stack([parts.mean, parts.variance])
        curves = np.column_stack([base.mean_curve, start[:, 1]])
        bounds = bounds_of(self.law, curves, parts.unit, parts.middle, parts.reach, moments)
        if self.log_pilot is not None:
            arrays[3] = self.log_pilot(base, z, start, parts, bounds)
        return WeightForms(self.law, bounds, arrays, tilts, functions, *moments)


# --- counts --------------------------------------------------------------------------------------


def count_frame(log_mean: ArrayLike, log_cv2: ArrayLike) -> Frame:
    """Base distributions of Gammas, which reach far to both sides where the spread is large."""
    log_mean = np.array(log_mean, dtype=float)
    shape = np.exp(np.clip(-np.asarray(log_cv2, dtype=float), *_LOG_SHAPES))
    below = np.maximum(special.psi(shape) - np.log(shape), -_FURTHEST_BELOW)
    spread = np.minimum(np.sqrt(special.polygamma(1, shape)), _WIDEST_SPREAD)
    return Frame(log_mean, log_mean + below, spread)


def _gamma_parameters(location: Floats, variance: Floats) -> Pair:
    """Shape (n, 1), shared by the components, and rate (n, R)."""
    shape = inverse_trigamma(variance[:, :1])
    return shape, np.exp(special.psi(shape) - location)


def _relative_gammas(base: Frame, parameters: Pair, z: Floats) -> Relative:
    shape, rate = parameters
    log_mean = np.log(shape) - np.log(rate) - base.mean_curve[:, None]
    mean, ones = np.expm1(log_mean), np.ones(len(shape))
    # means and variances of wide log-normals and Gammas are in their upper tails
    reach = base.spread * (1.0 + _SKEWED * base.spread**2)
    return Relative(log_mean[None], mean, (1.0 + mean) ** 2 / shape, ones, 0.0 * ones, reach)


def reciprocal(values: Floats) -> Floats:
    """1 / values, and 0 where these are 0."""
    return np.where(values > 0, 1.0 / np.maximum(values, 1e-300), 0.0)


def _gamma_weights(
    mean_curve: Floats, spread_curve: Floats, path: Floats, grid: Grid
) -> tuple[Floats, list[Floats]]:
    """Log weights of log-normals, and of Gamma(a) as Beta(a, A - a) Gamma(A), a component."""
    place, inner = grid.base[0], grid.inner
    wide, a = np.exp(spread_curve), np.exp(-spread_curve)
    variance = np.log1p(wide) - np.log1p(inner)
    y = (place - (mean_curve - 0.5 * variance)) / variance
    square = y * y
    by_spread = (square - y) * (0.5 * wide / (1.0 + wide))
    normal = square * (-0.5 * variance), y, by_spread
    log_share = place + (np.log(inner * a) - mean_curve)
    share = np.exp(np.clip(log_share, LOWEST, -_UPPER))
    complement = 1.0 - share
    slope = share / complement
    # beyond, a straight line, so that no weight is 0
    log_complement = np.log(complement) - slope * np.maximum(log_share + _UPPER, 0.0)
    power = 1.0 / inner - a - 1.0
    slope *= power
    gamma = a * log_share + power * log_complement
    by_spread = slope + a * (log_complement - log_share - 1.0)
    slope -= a
    # the first component also stands for what is below it
    cells = a * (place[:, 1:2] - place[:, :1])
    gamma[:, :1] += np.log1p(1.0 / cells)
    by_spread[:, :1] += 1.0 / (1.0 + cells)
    return between(normal, (gamma, slope, by_spread), path, grid.base[2])


def _count_curvature(
    count: Floats, exposure: Floats, variance: Floats
) -> tuple[Floats, Floats, Floats]:
    """Curvature in the logarithm of count over exposure."""
    return reciprocal(count), -reciprocal(exposure), 1.0 / (variance + 1.0 / (count + 1.0))


GAMMAS = Components(
    law=Law("Gamma", _gamma_weights, has_path=True),
    # lower tails of log theta are at worst exponential with a mean of one spread
    ends=(-8.05, 6.3),
    base=count_frame,
    parameters=_gamma_parameters,
    relative=_relative_gammas,
    zero=lambda shape: (shape, np.full(len(shape), 1e100)),
    curvature=_count_curvature,
)


# --- values --------------------------------------------------------------------------------------


def value_frame(mean: ArrayLike, log_variance: ArrayLike) -> Frame:
    """Base distributions of Normals with these means and log variances."""
    spread = np.exp(0.5 * np.clip(np.asarray(log_variance, dtype=float), -230.0, 230.0))
    return Frame(np.array(mean, dtype=float), np.array(mean, dtype=float), spread)


def _relative_normals(base: Frame, parameters: Pair, z: Floats) -> Relative:
    mean = ((base.location - base.mean_curve) / base.spread)[:, None] + z
    ones = np.ones(len(mean))
    return Relative(mean[None], mean, np.full(mean.shape, WIDTH**2), base.spread, 0.0 * ones, ones)


def _normal_weights(
    mean_curve: Floats, spread_curve: Floats, path: Floats, grid: Grid
) -> tuple[Floats, list[Floats]]:
    wide = np.exp(spread_curve)
    variance = wide - grid.inner
    y = (grid.base[0] - mean_curve) / variance
    square = y * y
    return square * (-0.5 * variance), [y, square * (0.5 * wide)]


def _value_curvature(
    value: Floats, noise: Floats, variance: Floats
) -> tuple[Floats, Floats, Floats]:
    return np.sqrt(reciprocal(noise)), np.zeros_like(noise), noise / (noise + variance)


NORMALS = Components(
    law=Law("Normal", _normal_weights, has_path=False),
    ends=(-7.7, 7.7),
    base=value_frame,
    parameters=lambda location, variance: (location, variance),
    relative=_relative_normals,
    zero=lambda mean: (np.zeros(len(mean)), np.full(len(mean), 1e-200)),
    lowest=-np.inf,
    size_sums="w",
    size=np.sqrt,
    curvature=_value_curvature,
)


# --- cells ---------------------------------------------------------------------------------------


def cell_points(
    components: Components, cells: Mapping[str, NDArray[Any]], variance: Floats
) -> tuple[Ints, Pair, Floats]:
    """Cell, outcome and size, and items of points: one a cell, or two with its moments."""
    n, letter = cells["n"].astype(float), components.size_sums
    y, size = cells["sum_y"] / n, cells[f"sum_{letter}"] / n
    vy, vn = (
        np.maximum(cells[f"sum_{x}2"] / n - mean**2, 0.0) for x, mean in (("y", y), (letter, size))
    )
    cov = cells["sum_yN"] / n - y * size if "sum_yN" in cells else np.zeros_like(n)
    by_y, by_size, curvature = components.curvature(y, size, variance)
    along_y, along_size = vy * by_y + cov * by_size, cov * by_y + vn * by_size
    spread = along_y * by_y + along_size * by_size
    wide = 0.5 * n * spread * curvature > _SPLIT
    room, root = (y - components.lowest)[wide], np.sqrt(spread[wide])
    dy = np.clip(along_y[wide] / root, -room, room)
    dn = np.clip(along_size[wide] / root, -size[wide], size[wide])
    outcomes = np.concatenate([y[~wide], y[wide] + dy, y[wide] - dy])
    sizes = np.concatenate([size[~wide], size[wide] + dn, size[wide] - dn])
    split = np.flatnonzero(wide)
    cell = np.concatenate([np.flatnonzero(~wide), split, split])
    items = np.concatenate([n[~wide], n[wide] / 2, n[wide] / 2])
    return cell, (outcomes, components.size(sizes)), items
