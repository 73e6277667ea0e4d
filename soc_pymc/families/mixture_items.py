"""Weights of a mixture's components, averaged over draws or interpolated, and its members."""

from collections.abc import Callable
from dataclasses import dataclass

import numba
import numpy as np
from scipy import special

from .._lib.arrays import Floats
from .components import count_log_density, inverse_trigamma, value_log_density
from .mixture_rows import LOWEST


@numba.njit(cache=True, nogil=True, error_model="numpy")
def interpolated(position, start, after_start, log_weight, draws, out):  # type: ignore[no-untyped-def]
    """Weights of some draws at positions, into `out` (draws, n, R).

    Their logarithms are cubic between `log_weight` (positions, all draws, R) at even positions that
    begin with two given ones.
    """
    last, number = len(log_weight) - 4, log_weight.shape[2]
    weight = np.empty(number)
    for i in range(len(position)):
        place = (position[i] - start) / (after_start - start)
        k = min(max(int(place) - 1, 0), last)
        x = place - k
        a = -(x - 1.0) * (x - 2.0) * (x - 3.0) / 6.0
        b = x * (x - 2.0) * (x - 3.0) / 2.0
        c = -x * (x - 1.0) * (x - 3.0) / 2.0
        d = x * (x - 1.0) * (x - 2.0) / 6.0
        for s in range(len(draws)):
            j = draws[s]
            for r in range(number):
                log = a * log_weight[k, j, r] + b * log_weight[k + 1, j, r]
                log += c * log_weight[k + 2, j, r] + d * log_weight[k + 3, j, r]
                weight[r] = np.exp(min(max(log, LOWEST), 0.0))
            total = weight.sum()
            for r in range(number):
                out[s, i, r] = weight[r] / total


@numba.njit(cache=True, nogil=True, error_model="numpy")
def drawn_components(weight, uniform):  # type: ignore[no-untyped-def]
    """Indices (draws, n) of components drawn in proportion to `weight` (draws, n, R)."""
    draws, n, number = weight.shape
    out = np.empty((draws, n), dtype=np.int64)
    for s in range(draws):
        for i in range(n):
            total = 0.0
            for r in range(number):
                total += weight[s, i, r]
            end, upto, r = uniform[s, i] * total, weight[s, i, 0], 0
            while upto < end and r < number - 1:
                r += 1
                upto += weight[s, i, r]
            out[s, i] = r
    return out


@dataclass(frozen=True)
class MixtureForms:
    """Functions of a family for mixtures of its members.

    Locations are (n, R); variances, of log theta or theta around them, are (n, 1) or (n, R).
    """

    parameters: Callable[[Floats, Floats], tuple[Floats, Floats]]  # (location, variance) -> a, b
    # (outcome, size, location, variance) -> log marginal densities (n, R)
    log_density: Callable[[Floats, Floats, Floats, Floats], Floats]
    at_zero: Callable[[Floats], tuple[Floats, Floats]]  # a of a component -> a, b of theta = 0


def _gamma_parameters(location: Floats, variance: Floats) -> tuple[Floats, Floats]:
    """Shape (n, 1), shared by the components, and rate (n, R)."""
    shape = inverse_trigamma(variance[:, :1])
    return shape, np.exp(special.psi(shape) - location)


GAMMA_MIXTURE = MixtureForms(
    parameters=_gamma_parameters,
    log_density=lambda y, n, location, variance: count_log_density(y, n, location, variance[:, 0]),
    at_zero=lambda shape: (shape, np.full(len(shape), 1e100)),
)
NORMAL_MIXTURE = MixtureForms(
    parameters=lambda location, variance: (location, variance),
    log_density=lambda y, sd, location, variance: value_log_density(y, sd**2, location, variance),
    at_zero=lambda mean: (np.zeros(len(mean)), np.full(len(mean), 1e-200)),
)
