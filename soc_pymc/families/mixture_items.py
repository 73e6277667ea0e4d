"""Posteriors of items under mixtures of conjugate components: compiled loops, item by item.

Components at a score differ in location alone, so that an item's posterior is a mixture of Gammas
of one shape, or of Normals of one variance. The frame is fixed and weights alone differ between
draws: averaged over draws, the posterior is again one such mixture.
"""

import math

import numba
import numpy as np

from .gamma_quantiles import tail_and_density

__all__ = ["average_weights", "near_weights", "summarize_mixtures"]

_SMALL = 1e-9  # weights below it, relative to their sum, are no part of a quantile
_CLOSE, _STEPS = 1e-5, 200  # last step of the search, in posterior sd
_ROOT_2PI = float(np.sqrt(2.0 * np.pi))


@numba.njit(cache=True, nogil=True, error_model="numpy")
def average_weights(weight, density):  # type: ignore[no-untyped-def]
    """Posterior weights of items of one score, averaged over draws of the prior's weights.

    `weight` is (draws, R), `density` (n, R) up to a factor of each item; the result is (n, R).
    """
    inverse = 1.0 / (density @ weight.T)
    return density * (inverse @ weight) / weight.shape[0]


@numba.njit(cache=True, nogil=True, error_model="numpy")
def near_weights(cell, share, density, mean, cov, most, out, left):  # type: ignore[no-untyped-def]
    """The same to second order in the weights' spread over draws, from a table over scores.

    Item i lies in cell `cell[i]` of the table, `share[i]` of the way. With Z = W p for weights W
    and densities p, E(W_r p_r / Z) is p_r (m_r / Z - (C p)_r / Z^2 + m_r p'Cp / Z^3) at the mean m
    and covariance C of W. Items where p'Cp / Z^2 is above `most`, or that are off the table, are
    marked in `left`.
    """
    components = density.shape[1]
    product, centre = np.empty(components), np.empty(components)
    for i in range(len(cell)):
        k, u, p = cell[i], share[i], density[i]
        left[i] = True
        if k < 0:
            continue
        low, high = 0, components
        while low < high - 1 and p[low] < 1e-12:
            low += 1
        while high > low + 1 and p[high - 1] < 1e-12:
            high -= 1
        total = 0.0
        for r in range(low, high):
            centre[r] = (1.0 - u) * mean[k, r] + u * mean[k + 1, r]
            total += centre[r] * p[r]
            product[r] = 0.0
        for s in range(low, high):
            first, second = (1.0 - u) * p[s], u * p[s]
            for r in range(low, high):
                product[r] += first * cov[k, s, r] + second * cov[k + 1, s, r]
        spread = 0.0
        for r in range(low, high):
            spread += p[r] * product[r]
        spread /= total * total
        if not spread <= most:
            continue
        left[i] = False
        for r in range(components):
            inside = low <= r < high
            q = (centre[r] * (1.0 + spread) - product[r] / total) * p[r] / total if inside else 0.0
            out[i, r] = max(q, 0.0)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _tail(x, weight, kept, shape, place, log_gamma, lower, gamma):  # type: ignore[no-untyped-def]
    """Tail of a mixture at x (log theta for Gammas, theta for Normals), and its density there."""
    tail = density = 0.0
    for j in range(kept):
        if gamma:
            # places are log rates
            t, d = tail_and_density(shape, np.exp(x + place[j]), log_gamma, lower)
        else:
            # places are means, the shape their common sd
            z = (x - place[j]) / shape
            t = 0.5 * math.erfc(-z / math.sqrt(2.0) if lower else z / math.sqrt(2.0))
            d = math.exp(-0.5 * z * z) / (_ROOT_2PI * shape)
        tail += weight[j] * t
        density += weight[j] * d
    return tail, density


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _quantile(prob, start, unit, weight, kept, shape, place, log_gamma, gamma):  # type: ignore[no-untyped-def]
    """Newton's method on the log tail, kept between bounds that close in."""
    lower = prob <= 0.5
    target = prob if lower else 1.0 - prob
    low, high, x = -np.inf, np.inf, start
    for _ in range(_STEPS):
        tail, density = _tail(x, weight, kept, shape, place, log_gamma, lower, gamma)
        up = tail < target if lower else tail > target
        if up:
            low = x
        else:
            high = x
        step = 2.0 * unit if up else -2.0 * unit
        if tail > 0.0 and density > 0.0:
            newton = (math.log(target) - math.log(tail)) * tail / density
            newton = newton if lower else -newton
            step = min(max(newton, -2.0 * unit), 2.0 * unit)
        new = x + step
        if not low < new < high:
            new = 0.5 * (low + high) if high - low < np.inf else x + (2.0 if up else -2.0) * unit
        if abs(new - x) < _CLOSE * unit or tail == target:
            return new
        x = new
    return x


@numba.njit(cache=True, nogil=True, error_model="numpy")
def summarize_mixtures(weight, shape, place, probs, gamma, out):  # type: ignore[no-untyped-def]
    """Mean, sd, variance and quantiles, (3 + probs, n), of mixtures with weights (n, R).

    For Gammas `shape` (n,) is the common shape and `place` (n, R) the log rates; for Normals the
    common sd and the means.
    """
    components = weight.shape[1]
    kept_weight, kept_place = np.empty(components), np.empty(components)
    for i in range(len(weight)):
        total = mean = square = 0.0
        kept = 0
        top = weight[i].sum()
        for r in range(components):
            w = weight[i, r] / top
            if w < _SMALL:
                continue
            kept_weight[kept], kept_place[kept] = w, place[i, r]
            kept += 1
            total += w
            mean += w * (shape[i] * math.exp(-place[i, r]) if gamma else place[i, r])
        mean /= total
        own = 0.0
        for j in range(kept):
            centre = shape[i] * math.exp(-kept_place[j]) if gamma else kept_place[j]
            own += kept_weight[j] * (centre * centre / shape[i] if gamma else shape[i] ** 2)
            square += kept_weight[j] * (centre - mean) ** 2
            kept_weight[j] /= total
        variance = (own + square) / total
        sd = math.sqrt(variance)
        out[0, i], out[1, i], out[2, i] = mean, sd, variance
        if not len(probs):
            continue
        log_gamma = math.lgamma(shape[i]) if gamma else 0.0
        unit = math.sqrt(math.log1p(variance / mean**2)) if gamma else sd
        centre = math.log(mean) - 0.5 * unit**2 if gamma else mean
        for k in range(len(probs)):
            # a logistic's quantile is near enough to a Normal's to start from
            start = centre + 0.55 * unit * math.log(probs[k] / (1.0 - probs[k]))
            x = _quantile(
                probs[k], start, unit, kept_weight, kept, shape[i], kept_place, log_gamma, gamma
            )
            out[3 + k, i] = math.exp(x) if gamma else x
