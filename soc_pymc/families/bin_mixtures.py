"""Mixtures of one bin by maximum likelihood: fixed Gammas for counts, free Normals for values.

Components are known by their weight and by the mean and sd of log theta (counts) or of theta
(values). `COMPONENTS` has one record a family.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from .components import WIDTH, count_frame, count_log_density, grid, inverse_trigamma
from .mixture_weights import fixed_weights, free_normals

__all__ = ["COMPONENTS", "BinMixture", "Components", "place_moments", "shifted"]

Floats = NDArray[np.float64]
Places = tuple[Floats, ...]  # weight, place and sd of components, each (bins, R)
Points = Callable[[Floats], tuple[Any, tuple[Floats, Floats], Floats]]

_GAP = 0.01  # nats that better weights might gain
_GAIN, _MOST_STEPS = 0.01, 5000  # of EM: nats in 25 steps, and steps
_WIDEST = 3.0  # sd of the conjugate fit between which free Normals begin
_START_WIDTH = 0.6  # their own sd, in that fit's
_FLAT = 1.2  # components this many of their sds apart make a flat mixture
_FLOOR = 1e-3  # of the weights to start from, whose tails no EM step could lift otherwise
_LONGEST, _HALVINGS = 3.0, 60  # of the logarithm of a stretch
_LEAST_SPREAD = 1e-3  # least sd of log theta to start from: where the fit finds none, there may be


@dataclass(frozen=True)
class BinMixture:
    """One bin's mixture of R components, and how the search ended."""

    weight: Floats
    place: Floats  # means of log theta, or of theta
    sd: Floats
    value: float  # log likelihood
    gap: float  # nats to the highest likelihood, at most; NaN where that is not known
    ended: bool


@dataclass(frozen=True)
class Components:
    """What five steps ask of a family's mixtures."""

    number: int  # of components where none is asked for
    # (cells, sharpness -> points, both conjugate curves in the bin, number) -> mixture
    search: Callable[[Mapping[str, NDArray[Any]], Points, float, float, int], BinMixture]
    # components -> first curve, and exp of the second: log mean and cv2, or mean and variance
    curves: Callable[[Floats, Floats, Floats], tuple[Floats, Floats]]
    # (components, exp of the second curve) -> components centred and stretched to it
    adjusted: Callable[[Places, Floats], Places]


def place_moments(weight: Floats, place: Floats, sd: Floats) -> tuple[Floats, Floats]:
    """Mean and variance of what components are placed by: log theta, or theta."""
    middle = (weight * place).sum(axis=1)
    return middle, (weight * (sd**2 + (place - middle[:, None]) ** 2)).sum(axis=1)


# --- counts: Gammas at fixed even steps of E(log theta), of one Var(log theta) --------------------


def _search_gammas(
    cells: Mapping[str, NDArray[Any]], points: Points, first: float, second: float, number: int
) -> BinMixture:
    ends = grid("poisson")
    z = np.linspace(ends[0], ends[-1], number)
    # of the lognormal with these moments: a Gamma's own lower tail may be endless
    variance = np.log1p(np.exp(second))
    spread = max(float(np.sqrt(variance)), _LEAST_SPREAD)
    sd = max(WIDTH, float(z[1] - z[0]) / _FLAT) * spread
    place = first - 0.5 * variance + spread * z
    shape, expected = inverse_trigamma(sd**2), cells["sum_y"] / cells["n"] + 1.0
    _, data, items = points(shape * expected / (shape + expected))
    log_density = count_log_density(
        *data, np.broadcast_to(place, (len(items), len(z))), np.full(len(items), sd**2)
    )
    top = log_density.max(axis=1)
    start = special.softmax(-0.5 * z**2) + _FLOOR / len(z)
    weight, value, gap = fixed_weights(np.exp(log_density - top[:, None]), items, start, _GAP)
    ended = bool(gap <= max(_GAP, 1e-9 * float(items.sum())))
    return BinMixture(weight, place, np.full(len(z), sd), value + float(items @ top), gap, ended)


def _gamma_curves(weight: Floats, place: Floats, sd: Floats) -> tuple[Floats, Floats]:
    """Log mean and squared coefficient of variation of theta."""
    shape = inverse_trigamma(sd[:, 0] ** 2)[:, None]  # one for all components
    log_mean = place + np.log(shape) - special.psi(shape)
    top = log_mean.max(axis=1)
    means = np.exp(log_mean - top[:, None])
    mean = (weight * means).sum(axis=1)
    away = weight * ((means / mean[:, None] - 1.0) ** 2 + (means / mean[:, None]) ** 2 / shape)
    return top + np.log(mean), away.sum(axis=1)


def _adjusted_gammas(components: Places, spread: Floats) -> Places:
    """Gammas shifted to a mean of 1 and stretched, in log theta, to a squared cv.

    Each component stays a Gamma, with the mean and variance of log theta that this gives, so that
    theta stays positive.
    """
    weight, place, sd = components
    centre = (weight * place).sum(axis=1, keepdims=True)
    low, high = np.full(len(spread), -_LONGEST), np.full(len(spread), _LONGEST)
    for _ in range(_HALVINGS):  # the spread grows with the stretch
        middle = 0.5 * (low + high)
        stretch = np.exp(middle)[:, None]
        # too long a stretch overflows: that is "too wide" like any other
        with np.errstate(over="ignore", invalid="ignore"):
            now = _gamma_curves(weight, (place - centre) * stretch, sd * stretch)[1]
        wide = ~(now <= spread)
        low, high = np.where(wide, low, middle), np.where(wide, middle, high)
    stretch = np.exp(0.5 * (low + high))[:, None]
    moved = (place - centre) * stretch
    return weight, moved - _gamma_curves(weight, moved, sd * stretch)[0][:, None], sd * stretch


def shifted(components: Places, log_mean: Floats, log_cv2: Floats) -> Places:
    """Components whose log theta is shifted and scaled to the moments of given Gammas.

    Places are less the Gammas' log mean.
    """
    weight, place, sd = components
    centre = (weight * place).sum(axis=1, keepdims=True)
    within = (weight * (sd**2 + (place - centre) ** 2)).sum(axis=1, keepdims=True)
    wanted = count_frame(log_mean, log_cv2)
    stretch = wanted.spread[:, None] / np.sqrt(within)
    lower = (wanted.location - log_mean)[:, None]
    return weight, (place - centre) * stretch + lower, sd * stretch


# --- values: free Normals, which begin evenly over the conjugate fit's ----------------------------


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


def _adjusted_normals(components: Places, spread: Floats) -> Places:
    """Normals shifted to a mean of 0 and stretched to a variance."""
    weight, place, sd = components
    centre = (weight * place).sum(axis=1, keepdims=True)
    stretch = np.sqrt(spread / place_moments(weight, place, sd)[1])[:, None]
    return weight, (place - centre) * stretch, sd * stretch


COMPONENTS: Mapping[str, Components] = {
    "Gamma": Components(100, _search_gammas, _gamma_curves, _adjusted_gammas),
    "Normal": Components(7, _search_normals, place_moments, _adjusted_normals),
}
"""By the name of the family."""
