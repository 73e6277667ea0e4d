"""A grid of conjugate components around a base distribution.

Component r is at location + spread z_r, where these are mean and sd of log theta (counts), theta
(values) or logit theta (successes) under the base distribution, and its sd is a fixed share of the
spread. So the components at a score differ only in location, and one grid suits all scores.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from .._lib.arrays import Floats
from ..prior_table import ARRAYS, FAMILIES
from .mixture_weights import (
    FLOOR,
    LOWEST,
    Bounds,
    Grid,
    Law,
    Pair,
    WeightForms,
    between,
    bounds_of,
)

WIDTH = 0.3
"""Sd of a component in units of the base distribution's spread."""
STEP = 0.35
"""Step between components: at 1.2 sd their equal mixture is flat to 1e-6."""
_CORNER = (
    3.0  # spreads beyond which the function that widens the base distribution is linear
)
# smallest and largest log shape of a base Gamma: locations far from 0 still differ by its spread
_LOG_SHAPES = (-2.7, 35.0)
# a Gamma of a wider logarithm has next to nothing in its lower tail: spread, and location below the
# mean's logarithm, with which components reach down to 1e-6 of the mean and up to 150 times it
_WIDEST_SPREAD = 1.4
_FURTHEST_BELOW = 3.8
_UPPER = 0.05  # log of a share of a component below 0, from which on its log density is a line
_SKEWED = 0.3  # increase of the largest spread of theta with that of its logarithm
# width, and power of theta, of the floor for heavy tails
_FLOOR_SD = 2.0
_FLOOR_POWER = 3.0
_LOGITS = 36.0  # largest logit of a mean that float64 tells from 1
_LOG_SPREADS = (
    -230.0,
    2.7,
)  # bounds of the second curve: spreads of logit theta are at most 21
# Newton steps, and the largest change of a log weight in one, and in the last
_TILTS = 20
_MOST_TILT = 2.0
_TILTED = 1e-12
_FAINT = 1e-200  # weight that counts as 0
# what rounding to the lattice below adds to the variance, in squared spreads: a 12th of a step's
# square, twice where neither a nor b is far larger than the other
_ROUNDED = 1.5 * STEP**2 / 12.0


@dataclass(frozen=True, eq=False)
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
    x = np.where(v > 1.0, 1.0 / np.sqrt(v), 0.5 + 1.0 / v)  # close at both ends
    for _ in range(5):
        trigamma = special.polygamma(1, x)
        x = x + trigamma * (1.0 - trigamma / v) / special.polygamma(2, x)
    return x


def stretching(
    z: Floats, centre: ArrayLike = 0.0, corner: ArrayLike = _CORNER
) -> Floats:
    """z^2/2 to widen a Normal base distribution, but linear beyond `corner` around `centre`."""
    corner = np.asarray(corner)[..., None]
    x = np.abs(z - np.asarray(centre)[..., None]) / corner
    return np.asarray(corner**2 * (x + np.log1p(np.exp(-2.0 * x)) - np.log(2.0)))


@dataclass(frozen=True, kw_only=True)
class Components:
    """A family's components around base distributions from its curves."""

    law: Law
    ends: tuple[
        float, float
    ]  # of the positions, in units of the base distribution's spread
    base: Callable[[Any, Any], Frame]  # of both curves
    # (location (n, R), variance (n, 1) or (n, R)) -> conjugate parameters
    parameters: Callable[[Floats, Floats], Pair]
    # (bases, conjugate parameters, z) -> components in their units
    relative: Callable[[Frame, Pair, Floats], Relative]
    # (bases, z, curves (n, 2), components, bounds) -> log weights (n, R) that make the family's law
    # less those of its parameters, where these have no closed form
    log_pilot: Callable[[Frame, Floats, Floats, Relative, Bounds], Floats] | None = None
    zero: Callable[[Floats], Pair]  # a of a component -> a, b of theta = 0
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
        """Map from predictors to weights, from functions (R, F) of z and the pilot's curves (n, 2).

        The first function of families with a path is 0; a small share allows for `heavy` tails.
        """
        z = self.z
        ones = np.ones(len(start))
        parameters = self.parameters(base.places(z), base.width()[:, None])
        parts = self.relative(base, parameters, z)
        arrays = np.zeros((4, len(start), len(z)))
        arrays[: len(parts.positions)] = parts.positions
        centre = 0.0 * ones
        corner = _CORNER * ones
        if (
            self.law.has_path
        ):  # theta has a scale, at which both tails of its logarithm begin
            centre = (base.mean_curve - base.location) / base.spread
            corner = np.minimum(_CORNER, 2.0 / base.spread)
            far = np.log1p(np.abs(parts.mean) / (1.0 + np.exp(0.5 * start[:, [1]])))
            shape = special.softmax(
                -0.5 * (z / _FLOOR_SD) ** 2 - _FLOOR_POWER * far, axis=1
            )
            arrays[2] = FLOOR * shape if heavy else 0.0
        tilts = np.stack(np.broadcast_arrays(z, stretching(z, centre, corner)), axis=2)
        moments = np.stack([parts.mean, parts.variance])
        curves = np.column_stack([base.mean_curve, start[:, 1]])
        bounds = bounds_of(
            self.law, curves, parts.unit, parts.middle, parts.reach, moments
        )
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
    shape = inverse_trigamma(variance[:, :1])  # shared by the components
    return shape, np.exp(special.psi(shape) - location)


def _relative_gammas(base: Frame, parameters: Pair, z: Floats) -> Relative:
    shape, rate = parameters
    log_mean = np.log(shape) - np.log(rate) - base.mean_curve[:, None]
    mean = np.expm1(log_mean)
    ones = np.ones(len(shape))
    # means and variances of wide log-normals and Gammas are in their upper tails
    reach = base.spread * (1.0 + _SKEWED * base.spread**2)
    return Relative(
        log_mean[None], mean, (1.0 + mean) ** 2 / shape, ones, 0.0 * ones, reach
    )


def reciprocal(values: Floats) -> Floats:
    """1 / values, and 0 where these are 0."""
    return np.where(values > 0, 1.0 / np.maximum(values, 1e-300), 0.0)


def _gamma_weights(
    mean_curve: Floats, spread_curve: Floats, path: Floats, grid: Grid, slopes: bool
) -> tuple[Floats, list[Floats]]:
    """Log weights of log-normals, and of Gamma(a) as Beta(a, A - a) Gamma(A), a component."""
    place = grid.base[0]
    inner = grid.inner
    cv2 = np.exp(spread_curve)
    a = np.exp(-spread_curve)
    variance = np.log1p(cv2) - np.log1p(inner)
    y = (place - (mean_curve - 0.5 * variance)) / variance
    square = y * y
    normal: tuple[Floats, ...] = (square * (-0.5 * variance),)
    log_share = place + (np.log(inner * a) - mean_curve)
    share = np.exp(np.clip(log_share, LOWEST, -_UPPER))
    complement = 1.0 - share
    slope = share / complement
    # beyond, a straight line, so that no weight is 0
    log_complement = np.log(complement) - slope * np.maximum(log_share + _UPPER, 0.0)
    power = 1.0 / inner - a - 1.0
    gamma: tuple[Floats, ...] = (a * log_share + power * log_complement,)
    # the first component also stands for what is below it
    cells = a * (place[:, 1:2] - place[:, :1])
    gamma[0][:, :1] += np.log1p(1.0 / cells)
    if slopes:
        normal += y, (square - y) * (0.5 * cv2 / (1.0 + cv2))
        slope *= power
        by_spread = slope + a * (log_complement - log_share - 1.0)
        by_spread[:, :1] += 1.0 / (1.0 + cells)
        gamma += slope - a, by_spread
    return between(normal, gamma, path, grid.base[2])


GAMMAS = Components(
    law=Law("Gamma", _gamma_weights, has_path=True),
    # lower tails of log theta are at worst exponential with a mean of one spread
    ends=(-8.05, 6.3),
    base=count_frame,
    parameters=_gamma_parameters,
    relative=_relative_gammas,
    zero=lambda shape: (shape, np.full(len(shape), 1e100)),
    curvature=lambda y, n, v: (
        reciprocal(y),
        -reciprocal(n),
        1.0 / (v + 1.0 / (y + 1.0)),
    ),
)


# --- values --------------------------------------------------------------------------------------


def value_frame(mean: ArrayLike, log_variance: ArrayLike) -> Frame:
    """Base distributions of Normals with these means and log variances."""
    spread = np.exp(0.5 * np.clip(np.asarray(log_variance, dtype=float), -230.0, 230.0))
    return Frame(np.array(mean, dtype=float), np.array(mean, dtype=float), spread)


def _relative_normals(base: Frame, parameters: Pair, z: Floats) -> Relative:
    mean = ((base.location - base.mean_curve) / base.spread)[:, None] + z
    ones = np.ones(len(mean))
    return Relative(
        mean[None], mean, np.full(mean.shape, WIDTH**2), base.spread, 0.0 * ones, ones
    )


def _normal_weights(
    mean_curve: Floats, spread_curve: Floats, path: Floats, grid: Grid, slopes: bool
) -> tuple[Floats, list[Floats]]:
    total = np.exp(spread_curve)
    variance = total - grid.inner
    y = (grid.base[0] - mean_curve) / variance
    square = y * y
    return square * (-0.5 * variance), [y, square * (0.5 * total)] if slopes else []


NORMALS = Components(
    law=Law("Normal", _normal_weights, has_path=False),
    ends=(-7.7, 7.7),
    base=value_frame,
    parameters=lambda location, variance: (location, variance),
    relative=_relative_normals,
    zero=lambda mean: (np.zeros(len(mean)), np.full(len(mean), 1e-200)),
    curvature=lambda y, w, v: (np.ones_like(w), np.zeros_like(w), 1.0 / (w + v)),
)


# --- successes -----------------------------------------------------------------------------------


def betas_of_logit(location: Floats, variance: Floats) -> Pair:
    """Parameters of Betas whose logit has mean psi(a) - psi(b) and variance psi'(a) + psi'(b)."""
    from .kernels import solve_betas

    location, variance = np.broadcast_arrays(location, variance)
    a, b = np.empty((2, location.size))
    solve_betas(location.ravel(), variance.ravel(), a, b)
    return a.reshape(location.shape), b.reshape(location.shape)


def success_frame(logit_mean: ArrayLike, log_odds_cv2: ArrayLike) -> Frame:
    """Base distributions of Betas with these curves."""
    middle = np.clip(np.asarray(logit_mean, dtype=float), -_LOGITS, _LOGITS)
    log_spread = np.clip(np.asarray(log_odds_cv2, dtype=float), *_LOG_SPREADS)
    a, b = FAMILIES["Beta"].parameters(middle, log_spread, ARRAYS)
    variance = special.polygamma(1, a) + special.polygamma(1, b)
    return Frame(middle, special.psi(a) - special.psi(b), np.sqrt(variance))


def _beta_rise(frame: Frame) -> Floats:
    """Slope of the location, mu a psi'(a) + (1 - mu) b psi'(b), with mu = a / (a + b)."""
    a, b = betas_of_logit(frame.location, frame.spread**2)
    successes = a / (a + b)
    failures = b / (a + b)
    rise = successes * a * special.polygamma(1, a) + failures * b * special.polygamma(
        1, b
    )
    return np.asarray(rise)


def _relative_betas(base: Frame, parameters: Pair, z: Floats) -> Relative:
    a, b = parameters
    middle_logit = base.mean_curve[:, None]
    logit = np.log(a) - np.log(b)
    gap = logit - middle_logit
    positions = np.stack([special.log_expit(logit), special.log_expit(-logit)])
    log_middle = np.stack(
        [special.log_expit(middle_logit), special.log_expit(-middle_logit)]
    )
    log_up, log_down = positions - log_middle
    # of two equal forms, the one whose exponentials are small
    mean = np.where(
        gap > 0,
        -np.exp(log_up) * np.expm1(-np.maximum(gap, 0.0)),
        np.exp(log_down) * np.expm1(np.minimum(gap, 0.0)),
    )
    variance = np.exp(log_up + log_down - log_middle.sum(axis=0)) / (a + b + 1.0)
    middle = special.expit(base.mean_curve)
    return Relative(positions, mean, variance, np.ones(len(mean)), middle, base.spread)


def beta_weights(frame: Frame, z: Floats, curves: Floats) -> Floats:
    """Weights (n, R) of components that make the Betas of these curves, (n, 2).

    Logit theta is that of Beta(A, B), a component, plus log S - log T with S ~ Beta(a, A - a) and
    T ~ Beta(b, B - b), both rounded to a lattice. The cdf is off by up to 0.004 where a and b are
    0.5 or more (0.012 at 0.3).
    """
    logit_mean, log_spread = curves.T
    a, b = FAMILIES["Beta"].parameters(
        np.clip(logit_mean, -_LOGITS, _LOGITS), log_spread, ARRAYS
    )
    step = (z[1] - z[0]) * frame.spread
    component = betas_of_logit(frame.location, (WIDTH**2 + _ROUNDED) * frame.spread**2)
    middle = special.psi(b) - special.psi(component[1])
    # the sum of both centres is that of the components
    upper = _on_lattice(a, component[0] - a, middle, step, len(z))
    lower = _on_lattice(b, component[1] - b, middle, step, len(z))
    size = upper.shape[1]
    probability = np.zeros((len(a), 2 * size - 1))
    for j in range(size):  # each point of -log T, with all of log S
        probability[:, j : j + size] += upper * lower[:, [size - 1 - j]]
    begin = size - 1 - len(z) // 2
    weight = probability[:, begin : begin + len(z)]
    weight[:, 0] += probability[:, :begin].sum(axis=1)
    weight[:, -1] += probability[:, begin + len(z) :].sum(axis=1)
    return weight


def _on_lattice(
    a: Floats, b: Floats, centre: Floats, step: Floats, reach: int
) -> Floats:
    """Probabilities (n, 2 reach + 1) of log S, S ~ Beta(a, b), on a lattice around a centre."""
    edges = centre[:, None] + step[:, None] * (np.arange(-reach, reach) + 0.5)
    b = np.maximum(
        b, 1e-300
    )  # of a component wider than the Beta: the limit, in which S is 1
    below = special.betainc(a[:, None], b[:, None], np.exp(np.minimum(edges, 0.0)))
    return np.diff(below, axis=1, prepend=0.0, append=1.0)


def _log_pilot(
    frame: Frame, z: Floats, curves: Floats, parts: Relative, bounds: Bounds
) -> Floats:
    """Logarithms of `beta_weights` with the curves' moments, less those of a Beta's parameters."""
    # rounding to the grid moves moments, most where theta is largest; tilts by theta and theta^2
    # restore them. In units of m (1 - m), around m, the mean is 0 and the variance is this
    odds_cv2 = np.exp(curves[:, 1])
    variance = odds_cv2 / (1.0 + parts.middle * (1.0 - parts.middle) * odds_cv2)
    targets = np.stack([np.zeros(len(variance)), variance], axis=1)
    powers = np.stack([parts.mean, parts.mean**2 + parts.variance], axis=2)
    weight = beta_weights(frame, z, curves)
    has_weight = weight > _FAINT
    log = np.log(np.maximum(weight, _FAINT))
    tilt = np.zeros((len(log), 2))
    for _ in range(_TILTS):
        log_tilted = log + (powers @ tilt[..., None])[..., 0]
        tilted = special.softmax(np.where(has_weight, log_tilted, -np.inf), axis=1)
        moments = np.einsum("nr,nrk->nk", tilted, powers)
        centred = powers - moments[:, None]
        slope = (tilted[..., None] * centred).mT @ centred
        # there is no inverse where the components that have weight have one mean, such as 1
        step = np.linalg.pinv(slope, hermitian=True) @ (targets - moments)[..., None]
        longest = np.abs(centred @ step)[..., 0].max(
            axis=1, where=has_weight, initial=0.0
        )
        tilt += step[..., 0] * (_MOST_TILT / np.maximum(longest, _MOST_TILT))[:, None]
        if longest.max() < _TILTED:
            break
    log_mean, log_complement = parts.positions
    spread = (
        np.exp(bounds.bent(bounds.mean_curve, bounds.spread_curve)[0][1]) - bounds.inner
    )
    a = 1.0 / (spread * (1.0 - parts.middle))
    b = 1.0 / (spread * parts.middle)
    tilted = log + (powers @ tilt[..., None])[..., 0]
    log_ratio = tilted - a[:, None] * log_mean - b[:, None] * log_complement
    # beyond the components that have weight the ratio stays the same
    low = has_weight.argmax(axis=1)
    high = len(z) - 1 - has_weight[:, ::-1].argmax(axis=1)
    component = np.clip(np.arange(len(z)), low[:, None], high[:, None])
    return np.take_along_axis(log_ratio, component, axis=1)


def _law_weights(
    mean_curve: Floats, spread_curve: Floats, path: Floats, grid: Grid, slopes: bool
) -> tuple[Floats, list[Floats]]:
    """Logits take the place of logarithms; Betas are exact where the curves are the pilot's."""
    log_mean, log_complement, floor, at_pilot = grid.base
    middle = grid.middle
    inner = grid.inner
    odds_cv2 = np.exp(spread_curve)
    odds = middle * np.exp(mean_curve)
    m = odds / (1.0 - middle + odds)
    variance = odds_cv2 - inner
    a = 1.0 / (variance * (1.0 - m))
    b = 1.0 / (variance * m)
    location = np.log(m) - np.log(1.0 - m) + variance * (m - 0.5)
    y = (log_mean - log_complement - location) / variance
    square = y * y
    normal: tuple[Floats, ...] = (square * (-0.5 * variance),)
    to_mean = a * log_mean
    to_complement = b * log_complement
    total = to_mean + to_complement
    beta: tuple[Floats, ...] = (at_pilot + total,)
    if slopes:
        by_mean = y * (1.0 + variance * m * (1.0 - m))
        normal += by_mean, (0.5 * square + y * (m - 0.5)) * odds_cv2
        beta += m * total - to_complement, total * (-odds_cv2 / variance)
    return between(normal, beta, path, floor)


def _success_curvature(
    successes: Floats, trials: Floats, variance: Floats
) -> tuple[Floats, Floats, Floats]:
    """The log likelihood is curved in the logit of the share of successes."""
    failures = trials - successes
    by_failures = reciprocal(failures)
    sharpness = 1.0 / (variance + 1.0 / (successes + 1.0) + 1.0 / (failures + 1.0))
    return reciprocal(successes) + by_failures, -by_failures, sharpness


BETAS = Components(
    law=Law("Beta", _law_weights, has_path=True),
    ends=(-8.05, 8.05),  # as for Gammas, on both sides
    base=success_frame,
    rise=_beta_rise,
    parameters=betas_of_logit,
    relative=_relative_betas,
    log_pilot=_log_pilot,
    zero=lambda a: (np.ones(len(a)), np.full(len(a), 1e100)),
    curvature=_success_curvature,
)
