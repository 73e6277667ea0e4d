"""Mixtures of Betas on a grid of positions of logit theta, for successes in trials.

With theta ~ Beta(a, b), logit theta has mean psi(a) - psi(b) and variance psi'(a) + psi'(b). These
two determine the Beta; so components at a score differ in location alone, as those of the other
families do, and successes and failures change places by a change of sign.
"""

import math

import numba
import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from .._lib.arrays import Floats
from .binomial_beta import a_b
from .components import STEP, WIDTH, Components, Frame, Relative, reciprocal
from .mixture_weights import Bounds, Grid, Law, Pair, between
from .special_functions import polygammas

_LOGITS = 36.0  # largest logit of a mean that float64 tells from 1
_LOG_SPREADS = (-230.0, 2.7)  # bounds of the second curve: spreads of logit theta are at most 21
# Newton steps, and the largest change of a log weight in one, and in the last
_TILTS, _MOST_TILT, _TILTED = 20, 2.0, 1e-12
_FAINT = 1e-200  # weight that counts as 0
_LONGEST, _CLOSE, _STEPS = 3.0, 1e-9, 60  # steps in log a and log b: longest, last, most
# what rounding to the lattice below adds to the variance, in squared spreads: a 12th of a step's
# square, twice where neither a nor b is far larger than the other
_ROUNDED = 1.5 * STEP**2 / 12.0

_jit = numba.njit(cache=True, nogil=True, error_model="numpy")


@_jit
def _solve(location, variance, a, b):  # type: ignore[no-untyped-def]
    """Fill a and b by Newton's method on their logarithms, from what holds where both are large."""
    for i in range(len(location)):
        odds = math.exp(location[i])
        p = (1.0 + odds) / variance[i] + 0.5 * odds / (1.0 + odds)
        q = (1.0 + 1.0 / odds) / variance[i] + 0.5 / (1.0 + odds)
        for _ in range(_STEPS):
            digamma_p, tri, bend = polygammas(p)
            digamma_q, its_tri, its_bend = polygammas(q)
            spread = tri + its_tri
            mean_gap = location[i] - (digamma_p - digamma_q)
            spread_gap = math.log(variance[i] / spread)
            # derivatives of the mean and of the log variance in log a and in log b
            aa, ab = p * tri, -q * its_tri
            ba, bb = p * bend / spread, q * its_bend / spread
            scale = 1.0 / (aa * bb - ab * ba)
            u = min(max((mean_gap * bb - ab * spread_gap) * scale, -_LONGEST), _LONGEST)
            v = min(max((aa * spread_gap - mean_gap * ba) * scale, -_LONGEST), _LONGEST)
            p *= math.exp(u)
            q *= math.exp(v)
            if abs(u) + abs(v) < _CLOSE:
                break
        a[i], b[i] = p, q


def betas_of_logit(location: ArrayLike, variance: ArrayLike) -> Pair:
    """Parameters a and b of the Betas whose logit has this mean and variance."""
    moments = np.broadcast_arrays(
        np.asarray(location, dtype=float), np.asarray(variance, dtype=float)
    )
    a, b = np.empty((2, moments[0].size))
    _solve(*(np.ascontiguousarray(x).ravel() for x in moments), a, b)
    return a.reshape(moments[0].shape), b.reshape(moments[0].shape)


def logit_moments(a: Floats, b: Floats) -> Pair:
    """Mean and variance of logit theta under Beta(a, b)."""
    return special.psi(a) - special.psi(b), special.polygamma(1, a) + special.polygamma(1, b)


# --- the grid around base distributions ----------------------------------------------------------


def success_frame(logit_mean: ArrayLike, log_odds_cv2: ArrayLike) -> Frame:
    """Base distributions of Betas with these curves."""
    logit_mean_in_range = np.clip(np.asarray(logit_mean, dtype=float), -_LOGITS, _LOGITS)
    log_spread = np.clip(np.asarray(log_odds_cv2, dtype=float), *_LOG_SPREADS)
    location, variance = logit_moments(*a_b(logit_mean_in_range, log_spread))
    return Frame(logit_mean_in_range, location, np.sqrt(variance))


def _beta_rise(frame: Frame) -> Floats:
    """Slope of the location, mu a psi'(a) + (1 - mu) b psi'(b), with mu = a / (a + b)."""
    a, b = betas_of_logit(frame.location, frame.spread**2)
    successes, failures = a / (a + b), b / (a + b)
    return np.asarray(
        successes * a * special.polygamma(1, a) + failures * b * special.polygamma(1, b)
    )


def _relative_betas(base: Frame, parameters: Pair, z: Floats) -> Relative:
    a, b = parameters
    middle_logit, logit = base.mean_curve[:, None], np.log(a) - np.log(b)
    gap = logit - middle_logit
    positions = np.stack([special.log_expit(logit), special.log_expit(-logit)])
    log_middle = np.stack([special.log_expit(middle_logit), special.log_expit(-middle_logit)])
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

    Odds of theta ~ Beta(a, b) are a ratio of Gammas, and Gamma(a) is Gamma(A) times Beta(a, A - a).
    So logit theta is that of Beta(A, B), a component, plus log S - log T with S ~ Beta(a, A - a)
    and T ~ Beta(b, B - b). Both are rounded to a lattice of the grid's step around their means. A
    component elsewhere is not quite a shifted one, so the cdf is off by up to 0.004 where a and b
    are 0.5 or more (0.012 at 0.3).
    """
    a, b = a_b(*curves.T)
    step = (z[1] - z[0]) * frame.spread
    large = betas_of_logit(frame.location, (WIDTH**2 + _ROUNDED) * frame.spread**2)
    middle = special.psi(b) - special.psi(large[1])
    # the sum of both centres is that of the components
    upper = _on_lattice(a, large[0] - a, middle, step, len(z))
    lower = _on_lattice(b, large[1] - b, middle, step, len(z))
    size = upper.shape[1]
    probability = np.zeros((len(a), 2 * size - 1))
    for j in range(size):  # each point of -log T, with all of log S
        probability[:, j : j + size] += upper * lower[:, [size - 1 - j]]
    begin = size - 1 - len(z) // 2
    weight = probability[:, begin : begin + len(z)]
    weight[:, 0] += probability[:, :begin].sum(axis=1)
    weight[:, -1] += probability[:, begin + len(z) :].sum(axis=1)
    return weight


def _on_lattice(a: Floats, b: Floats, centre: Floats, step: Floats, reach: int) -> Floats:
    """Probabilities (n, 2 reach + 1) of log S, S ~ Beta(a, b), on a lattice around a centre.

    A component wider than the Beta has b <= 0: then S is 1, the limit as b falls to 0.
    """
    edges = centre[:, None] + step[:, None] * (np.arange(-reach, reach) + 0.5)
    b = np.maximum(b, 1e-300)
    upto = special.betainc(a[:, None], b[:, None], np.exp(np.minimum(edges, 0.0)))
    return np.diff(upto, axis=1, prepend=0.0, append=1.0)


def _log_pilot(frame: Frame, z: Floats, curves: Floats, parts: Relative, bounds: Bounds) -> Floats:
    """Logarithms of `beta_weights` with the curves' moments, less those of a Beta's parameters."""
    # rounding to the grid moves moments, most where theta is largest; tilts by theta and theta^2
    # restore them. In units of m (1 - m), around m, the mean is 0 and the variance is this
    odds_cv2 = np.exp(curves[:, 1])
    variance = odds_cv2 / (1.0 + parts.middle * (1.0 - parts.middle) * odds_cv2)
    targets = np.stack([np.zeros(len(variance)), variance], axis=1)
    powers = np.stack([parts.mean, parts.mean**2 + parts.variance], axis=2)
    weight = beta_weights(frame, z, curves)
    known = weight > _FAINT
    log = np.log(np.maximum(weight, _FAINT))
    tilt = np.zeros((len(log), 2))
    for _ in range(_TILTS):
        log_tilted = log + (powers @ tilt[..., None])[..., 0]
        tilted = special.softmax(np.where(known, log_tilted, -np.inf), axis=1)
        moments = np.einsum("nr,nrk->nk", tilted, powers)
        centred = powers - moments[:, None]
        slope = (tilted[..., None] * centred).mT @ centred
        # there is no inverse where the components that have weight have one mean, such as 1
        step = np.linalg.pinv(slope, hermitian=True) @ (targets - moments)[..., None]
        longest = np.abs(centred @ step)[..., 0].max(axis=1, where=known, initial=0.0)
        tilt += step[..., 0] * (_MOST_TILT / np.maximum(longest, _MOST_TILT))[:, None]
        if longest.max() < _TILTED:
            break
    log_mean, log_complement = parts.positions
    spread = np.exp(bounds.bent(bounds.mean_curve, bounds.spread_curve)[0][1]) - bounds.inner
    a, b = 1.0 / (spread * (1.0 - parts.middle)), 1.0 / (spread * parts.middle)
    tilted = log + (powers @ tilt[..., None])[..., 0]
    log_ratio = tilted - a[:, None] * log_mean - b[:, None] * log_complement
    # beyond the components that have weight the ratio stays the same
    ends = (x[:, None] for x in (known.argmax(axis=1), len(z) - 1 - known[:, ::-1].argmax(axis=1)))
    return np.take_along_axis(log_ratio, np.clip(np.arange(len(z)), *ends), axis=1)


def _law_weights(
    mean_curve: Floats, spread_curve: Floats, path: Floats, grid: Grid
) -> tuple[Floats, list[Floats]]:
    """Logits take the place of logarithms; Betas are exact where the curves are the pilot's."""
    log_mean, log_complement, floor, at_pilot = grid.base
    middle, inner = grid.middle, grid.inner
    wide, odds = np.exp(spread_curve), middle * np.exp(mean_curve)
    m = odds / (1.0 - middle + odds)
    variance = wide - inner
    a, b = 1.0 / (variance * (1.0 - m)), 1.0 / (variance * m)
    location = np.log(m) - np.log(1.0 - m) + variance * (m - 0.5)
    y = (log_mean - log_complement - location) / variance
    square = y * y
    normal = (
        square * (-0.5 * variance),
        y * (1.0 + variance * m * (1.0 - m)),
        (0.5 * square + y * (m - 0.5)) * wide,
    )
    to_mean, to_complement = a * log_mean, b * log_complement
    total = to_mean + to_complement
    beta = at_pilot + total, m * total - to_complement, total * (-wide / variance)
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
