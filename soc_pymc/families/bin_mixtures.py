"""Mixtures of one bin by maximum likelihood: fixed Gammas or Betas, free Normals for values.

Components are given by their weight and the mean and sd of log theta (counts), of logit theta
(successes) or of theta (values).
`MIXTURES` has one record per family.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray
from scipy import linalg, special
from scipy.optimize import nnls

from .._lib.arrays import Floats
from . import binomial_beta
from .beta_mixtures import BETAS, betas_of_logit, success_frame
from .components import GAMMAS, WIDTH, Components, count_frame, inverse_trigamma

Places = tuple[Floats, ...]  # weight, mean and sd of components, each (bins, R)
Points = Callable[[Floats], tuple[Any, tuple[Floats, Floats], Floats]]

_GAP = 0.01  # largest gain of better weights, in nats
_GAIN, _MOST_STEPS = 0.01, 5000  # convergence of EM: nats in 25 steps, and steps
_WIDEST = 3.0  # range of the starts of free Normals, in sd of the conjugate fit
_START_WIDTH = 0.6  # their starting sd, in that fit's
_FLAT = 1.2  # components this many sds apart make a flat mixture
_FLOOR = 1e-3  # smallest starting weight, because EM cannot raise a weight of 0
_LONGEST, _HALVINGS = 3.0, 60  # bound on the logarithm of a stretch
_LEAST_SPREAD = 1e-3  # smallest starting sd of log theta, in case the fit finds none
_MOVES = 40  # of Betas to a mean and a variance
_EM_STEPS = 20  # EM steps before Newton steps, because they are cheap and safe
_NEWTON_STEPS = 100
_RIDGE = 1e-10
_CHECKED = 25  # EM steps between checks of their gain


@dataclass(frozen=True)
class BinMixture:
    """One bin's mixture of R components, and the result of the search."""

    weight: Floats
    place: Floats  # means of log theta, or of theta
    sd: Floats
    value: float  # log likelihood
    gap: float  # bound in nats on the distance to the highest likelihood; NaN if unknown
    ended: bool


@dataclass(frozen=True)
class Mixture:
    """Functions of a family's mixtures for five steps."""

    number: int  # default number of components
    # (cells, sharpness -> points, both conjugate curves in the bin, number) -> mixture
    search: Callable[[Mapping[str, NDArray[Any]], Points, float, float, int], BinMixture]
    # components -> first curve, and exp of the second: log mean and cv2, or mean and variance
    curves: Callable[[Floats, Floats, Floats], tuple[Floats, Floats]]
    # (components, first curve, exp of the second) -> components less the first curve, stretched
    # to the second
    adjusted: Callable[[Places, Floats, Floats], Places]


def place_moments(weight: Floats, place: Floats, sd: Floats) -> tuple[Floats, Floats]:
    """Mean and variance of theta, or of its log or logit, under the components."""
    middle = (weight * place).sum(axis=1)
    return middle, (weight * (sd**2 + (place - middle[:, None]) ** 2)).sum(axis=1)


# --- counts: Gammas at fixed even steps of E(log theta), with one Var(log theta) ------------------


def _search_gammas(
    cells: Mapping[str, NDArray[Any]], points: Points, first: float, second: float, number: int
) -> BinMixture:
    z = np.linspace(*GAMMAS.ends, number)
    # range of the lognormal with these moments, because a Gamma's lower tail may be very long
    variance = np.log1p(np.exp(second))
    spread = max(float(np.sqrt(variance)), _LEAST_SPREAD)
    sd = max(WIDTH, float(z[1] - z[0]) / _FLAT) * spread
    place = first - 0.5 * variance + spread * z
    return _search_fixed(GAMMAS, cells, points, z, place, sd)


def _search_fixed(
    components: Components,
    cells: Mapping[str, NDArray[Any]],
    points: Points,
    z: Floats,
    place: Floats,
    sd: float,
) -> BinMixture:
    """Weights of components at fixed places, of one sd."""
    scale = np.full(len(cells["n"]), components.scale(sd**2))
    _, data, items = points(components.sharpness(cells, scale))
    log_density = components.log_density(
        *data, np.broadcast_to(place, (len(items), len(z))), np.full(len(items), sd**2)
    )
    top = log_density.max(axis=1)
    start = special.softmax(-0.5 * z**2) + _FLOOR / len(z)
    weight, value, gap = fixed_weights(np.exp(log_density - top[:, None]), items, start, _GAP)
    ended = bool(gap <= max(_GAP, 1e-9 * float(items.sum())))
    return BinMixture(weight, place, np.full(len(z), sd), value + float(items @ top), gap, ended)


def _gamma_curves(weight: Floats, place: Floats, sd: Floats) -> tuple[Floats, Floats]:
    """Log mean and squared coefficient of variation of theta."""
    shape = inverse_trigamma(sd[:, 0] ** 2)[:, None]  # shared by all components
    log_mean = place + np.log(shape) - special.psi(shape)
    top = log_mean.max(axis=1)
    means = np.exp(log_mean - top[:, None])
    mean = (weight * means).sum(axis=1)
    away = weight * ((means / mean[:, None] - 1.0) ** 2 + (means / mean[:, None]) ** 2 / shape)
    return top + np.log(mean), away.sum(axis=1)


def _adjusted_gammas(components: Places, _first: Floats, spread: Floats) -> Places:
    """Gammas shifted to a mean of 1 and stretched, in log theta, to a squared cv.

    Each component becomes the Gamma with the new mean and variance of log theta, so theta stays
    positive.
    """
    weight, place, sd = components
    centre = (weight * place).sum(axis=1, keepdims=True)
    low, high = np.full(len(spread), -_LONGEST), np.full(len(spread), _LONGEST)
    for _ in range(_HALVINGS):  # the spread increases with the stretch
        middle = 0.5 * (low + high)
        stretch = np.exp(middle)[:, None]
        # an overflowing stretch counts as too wide
        with np.errstate(over="ignore", invalid="ignore"):
            now = _gamma_curves(weight, (place - centre) * stretch, sd * stretch)[1]
        wide = ~(now <= spread)
        low, high = np.where(wide, low, middle), np.where(wide, middle, high)
    stretch = np.exp(0.5 * (low + high))[:, None]
    moved = (place - centre) * stretch
    return weight, moved - _gamma_curves(weight, moved, sd * stretch)[0][:, None], sd * stretch


def shifted(components: Places, log_mean: Floats, log_cv2: Floats) -> Places:
    """Components whose log theta is shifted and scaled to the moments of given Gammas.

    Means are relative to the Gammas' log mean.
    """
    weight, place, sd = components
    centre = (weight * place).sum(axis=1, keepdims=True)
    within = (weight * (sd**2 + (place - centre) ** 2)).sum(axis=1, keepdims=True)
    wanted = count_frame(log_mean, log_cv2)
    stretch = wanted.spread[:, None] / np.sqrt(within)
    lower = (wanted.location - log_mean)[:, None]
    return weight, (place - centre) * stretch + lower, sd * stretch


# --- values: free Normals, which start evenly over the conjugate fit's width ----------------------


def _search_normals(
    cells: Mapping[str, NDArray[Any]], points: Points, first: float, second: float, number: int
) -> BinMixture:
    sd, noise = float(np.exp(0.5 * second)), cells["sum_w"] / cells["n"]
    _, data, items = points(noise / (noise + sd**2))
    z = np.linspace(-_WIDEST, _WIDEST, number)
    weight = special.softmax(-0.5 * z**2)
    place, variance = first + sd * z, np.full(len(z), (_START_WIDTH * sd) ** 2)
    value, ended = free_normals(*data, items, weight, place, variance, _GAIN, _MOST_STEPS)
    return BinMixture(weight, place, np.sqrt(variance), value, np.nan, bool(ended))


def _adjusted_normals(components: Places, _first: Floats, spread: Floats) -> Places:
    """Normals shifted to a mean of 0 and stretched to a variance."""
    weight, place, sd = components
    centre = (weight * place).sum(axis=1, keepdims=True)
    stretch = np.sqrt(spread / place_moments(weight, place, sd)[1])[:, None]
    return weight, (place - centre) * stretch, sd * stretch


# --- successes: Betas at fixed even steps of E(logit theta), with one Var(logit theta) ------------


def _search_betas(
    cells: Mapping[str, NDArray[Any]], points: Points, first: float, second: float, number: int
) -> BinMixture:
    z = np.linspace(*BETAS.ends, number)
    base = success_frame(np.array([first]), np.array([max(second, 2.0 * np.log(_LEAST_SPREAD))]))
    spread = float(base.spread[0])
    sd = max(WIDTH, float(z[1] - z[0]) / _FLAT) * spread
    return _search_fixed(BETAS, cells, points, z, float(base.location[0]) + spread * z, sd)


def _beta_curves(weight: Floats, place: Floats, sd: Floats) -> tuple[Floats, Floats]:
    """Both curves, the second as its exponential, of the Beta with the mixture's moments."""
    a, b = betas_of_logit(place, sd**2)
    share, rest = (weight * binomial_beta.mean(*x) for x in ((a, b), (b, a)))
    mean, other = share.sum(axis=1), rest.sum(axis=1)
    away = (binomial_beta.mean(a, b) - mean[:, None]) ** 2
    variance = (weight * (binomial_beta.variance(a, b) + away)).sum(axis=1)
    v = mean * other
    return np.log(mean) - np.log(other), variance / (v * (v - variance))


def _adjusted_betas(components: Places, first: Floats, spread: Floats) -> Places:
    """Betas moved and stretched, in logit theta, to both curves.

    The curves follow the mean and the log variance of logit theta closely, so that steps by what
    is left of both soon end.
    """
    weight, place, sd = components
    for _ in range(_MOVES):
        level, now = _beta_curves(weight, place, sd)
        stretch = np.exp(np.clip(0.5 * (np.log(spread) - np.log(now)), -_LONGEST, _LONGEST))
        centre = (weight * place).sum(axis=1)
        moved, stretch = (centre + first - level)[:, None], stretch[:, None]
        place, sd = moved + (place - centre[:, None]) * stretch, sd * stretch
    return weight, place - first[:, None], sd


MIXTURES: Mapping[str, Mixture] = {
    "Gamma": Mixture(100, _search_gammas, _gamma_curves, _adjusted_gammas),
    "Normal": Mixture(7, _search_normals, place_moments, _adjusted_normals),
    "Beta": Mixture(100, _search_betas, _beta_curves, _adjusted_betas),
}
"""By the name of the family."""


# --- maximum likelihood from weighted points -----------------------------------------------------


def fixed_weights(
    density: Floats, items: Floats, start: Floats, gap: float
) -> tuple[Floats, float, float]:
    """Weights of fixed components that maximise sum n log(density @ weight), that value, the gap.

    A few EM steps, then Newton steps in which the weights stay positive (non-negative least
    squares, Wang 2007): EM alone is soon within a nat, but then converges very slowly. The search
    ends when no weights gain more than `gap` = max_r sum n density_r / f - n nats. `density`
    (points, R) is up to a factor per point; `start` (R,) are positive weights.
    """
    n, weight = float(items.sum()), start / start.sum()
    for _ in range(_EM_STEPS):
        weight = weight * (density.T @ (items / (density @ weight))) / n
    value, left = -np.inf, np.inf
    for _ in range(_NEWTON_STEPS):
        whole = density @ weight
        value = float(items @ np.log(whole))
        each = density / whole[:, None]
        slope = each.T @ items
        left = float(slope.max()) - n
        if left <= gap:
            break
        step = _newton_target(each, items, slope, n) - weight
        weight, gained = _longest(density, items, weight, step, value, float(slope @ step))
        if not gained:
            break
    return weight, value, left


def _newton_target(each: Floats, items: Floats, slope: Floats, n: float) -> Floats:
    """Non-negative weights that maximise the quadratic around the current ones."""
    hessian = (each * items[:, None]).T @ each
    hessian[np.diag_indices_from(hessian)] += _RIDGE * np.trace(hessian)
    root = linalg.cholesky(hessian, lower=True)
    target, _ = nnls(
        root.T, linalg.solve_triangular(root, 2.0 * slope - n, lower=True), maxiter=10_000
    )
    return np.asarray(target / target.sum())


def _longest(
    density: Floats, items: Floats, weight: Floats, step: Floats, value: float, slope: float
) -> tuple[Floats, bool]:
    """The first step, by halving, that gains its share."""
    for halving in range(40):
        factor = 0.5**halving
        tried = weight + factor * step
        # too long a step makes densities 0 or negative; NaN and -inf are no gain
        with np.errstate(divide="ignore", invalid="ignore"):
            gained = float(items @ np.log(density @ tried)) - value
        if gained >= 1e-3 * factor * slope:
            return tried, True
    return weight, False


@numba.njit(cache=True, nogil=True, error_model="numpy")
def normals_step(value, noise, items, weight, mean, variance):  # type: ignore[no-untyped-def]
    """One EM step, in place, of a mixture of Normals with noise; returns the log likelihood before.

    A point's theta given its component is Normal, so every part of the step is a weighted mean. The
    likelihood never decreases (Dempster, Laird and Rubin 1977).
    """
    number = len(weight)
    share, centre, width = np.zeros(number), np.zeros(number), np.zeros(number)
    log_p, post_mean, post_var = np.empty(number), np.empty(number), np.empty(number)
    total = 0.0
    for i in range(len(value)):
        top = -np.inf
        for r in range(number):
            whole = variance[r] + noise[i]
            away = value[i] - mean[r]
            log_p[r] = np.log(weight[r]) - 0.5 * (np.log(2.0 * np.pi * whole) + away * away / whole)
            post_mean[r] = mean[r] + away * variance[r] / whole
            post_var[r] = variance[r] * noise[i] / whole
            top = max(top, log_p[r])
        scale = 0.0
        for r in range(number):
            log_p[r] = np.exp(log_p[r] - top)
            scale += log_p[r]
        total += items[i] * (top + np.log(scale))
        for r in range(number):
            own = items[i] * log_p[r] / scale
            away = post_mean[r] - mean[r]  # about the old mean, to avoid cancellation
            share[r] += own
            centre[r] += own * away
            width[r] += own * (post_var[r] + away * away)
    n = items.sum()
    for r in range(number):
        if share[r] > 1e-12 * n:
            shift = centre[r] / share[r]
            variance[r] = max(width[r] / share[r] - shift * shift, 0.0)
            mean[r] += shift
        weight[r] = max(share[r] / n, 1e-300)
    return total


@numba.njit(cache=True, nogil=True, error_model="numpy")
def free_normals(value, noise, items, weight, mean, variance, gain, most):  # type: ignore[no-untyped-def]
    """EM steps, in place, until 25 of them gain less than `gain` nats.

    Returns the log likelihood and whether it stopped before `most` steps.
    """
    before, now = -np.inf, -np.inf
    for step in range(most):
        now = normals_step(value, noise, items, weight, mean, variance)
        if step % _CHECKED == 0:
            if now - before < gain:
                return now, True
            before = now
    return now, False
