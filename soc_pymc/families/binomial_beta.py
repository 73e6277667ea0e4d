"""Successes y ~ Binomial(n, theta) with theta ~ Beta(a, b): the closed forms.

The prior is described by the logit f of its mean mu and by g = log(1/a + 1/b): to first order,
exp(g) is the variance of logit theta and the squared coefficient of variation of its odds. Then

    a = exp(-g) / (1 - mu),   b = exp(-g) / mu,   a + b = exp(-g) / v,   v = mu (1 - mu),
    Var(theta) = v^2 exp(g) / (1 + v exp(g)).

Successes and failures change places by f -> -f. For small rates a is exp(-g), and g is the log cv2
of a Gamma. g -> -infinity (no overdispersion, a Binomial marginal) is an ordinary limit.
"""

import math
from typing import Any

import numba
import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from .._lib.arrays import Floats
from . import poisson_gamma
from .special_functions import beta_kernel, beta_tail, compiled, negative_binomial

_LEAST = -230.0  # second curve below which all is Binomial to all digits, and squares overflow
_FAR = 600.0  # logits of draws beyond which tails are those of a power of the odds
_SINGLE = 256  # numbers of successes whose probabilities are added up at the distribution's end
_MOST = 1000  # numbers of successes that are added up one by one
_REACH, _FALL = 10.0, 40.0  # sds, and Gamma tails, below which nothing is left of the lower tail
_NODE, _SHARE = np.polynomial.legendre.leggauss(96)


def log_parameters(logit_mean: Any, log_odds_cv2: Any) -> tuple[Floats, Floats]:
    """Log a and log b: neither loses digits where the mean is near 0 or 1."""
    up, down = np.logaddexp(0.0, logit_mean), np.logaddexp(0.0, -np.asarray(logit_mean))
    return up - log_odds_cv2, down - log_odds_cv2


def a_b(logit_mean: Any, log_odds_cv2: Any) -> tuple[Floats, Floats]:
    """Parameters of the Beta prior with these curves.

    Examples
    --------
    >>> a, b = a_b(0.0, np.log(0.5))
    >>> float(a.round(9)), float(b.round(9))
    (4.0, 4.0)
    """
    log_a, log_b = log_parameters(logit_mean, np.maximum(log_odds_cv2, _LEAST))
    return np.exp(log_a), np.exp(log_b)


def to_curves(a: Any, b: Any) -> tuple[Floats, Floats]:
    """Both curves of Beta(a, b)."""
    log_a, log_b = np.log(a), np.log(b)
    return log_a - log_b, np.logaddexp(-log_a, -log_b)


def _parts(
    logit_mean: ArrayLike, log_odds_cv2: ArrayLike, spread: ArrayLike
) -> tuple[Floats, Floats, Floats]:
    """Tilt 1 - 2 mu, exp(g), and exp(g) of theta over a variance of the mean's logit."""
    mu, complement = special.expit(logit_mean), special.expit(-np.asarray(logit_mean))
    tilt, odds_cv2 = complement - mu, np.exp(log_odds_cv2)
    return (
        tilt,
        odds_cv2,
        odds_cv2 + spread * (1.0 + tilt**2 * odds_cv2 / (1.0 + mu * complement * odds_cv2)),
    )


def widened(logit_mean: Floats, log_odds_cv2: Floats, spread: ArrayLike) -> tuple[Floats, Floats]:
    """Curves averaged over a variance `spread` of the mean's logit, to second order."""
    spread = np.asarray(spread, dtype=float)
    tilt, _, widened_cv2 = _parts(logit_mean, log_odds_cv2, spread)
    return logit_mean + 0.5 * spread * tilt, np.log(widened_cv2)


def widening_slope(logit_mean: Floats, log_odds_cv2: Floats, spread: Floats) -> Floats:
    """Derivative of the second curve of `widened` in the one before."""
    tilt, odds_cv2, widened_cv2 = _parts(logit_mean, log_odds_cv2, spread)
    v = special.expit(logit_mean) * special.expit(-logit_mean)
    return np.asarray(
        (odds_cv2 + spread * tilt**2 * odds_cv2 / (1.0 + v * odds_cv2) ** 2) / widened_cv2
    )


def natural_moments(logit_mean: Any, odds_cv2: Any) -> tuple[Any, Any]:
    """E(theta) and Var(theta) from the first curve and the second's exponential, 0 included."""
    mean = special.expit(logit_mean)
    v = mean * special.expit(-np.asarray(logit_mean))
    return mean, v * (v * odds_cv2 / (1.0 + v * odds_cv2))


def curve_variables(logit_mean: Floats, log_odds_cv2: Floats) -> dict[str, Floats]:
    """Variables of `soc.calibration_curves`."""
    a, b = a_b(logit_mean, log_odds_cv2)
    mean, variance = natural_moments(logit_mean, np.exp(log_odds_cv2))
    return {
        "mean": mean,
        "variance": variance,
        "logit_mean": logit_mean,
        "log_odds_cv2": log_odds_cv2,
        "log_variance": np.log(variance),
        "a": a,
        "b": b,
    }


def update(a: Any, b: Any, successes: Any, trials: Any) -> tuple[Any, Any]:
    """Posterior a and b after `successes` in `trials`."""
    return a + successes, b + (trials - successes)


def mean(a: Any, b: Any) -> Any:
    """Mean of Beta(a, b)."""
    return a / (a + b)


def variance(a: Any, b: Any) -> Any:
    """Variance of Beta(a, b)."""
    total = a + b
    return (a / total) * (b / total) / (total + 1.0)


def third(a: Any, b: Any) -> Any:
    """Third central moment of Beta(a, b)."""
    total = a + b
    return 2.0 * variance(a, b) * ((b - a) / total) / (total + 2.0)


def log_pmf(
    successes: ArrayLike, trials: ArrayLike, logit_mean: ArrayLike, log_odds_cv2: ArrayLike
) -> Floats:
    """Log marginal probability of successes in trials: Beta-Binomial, Binomial in the limit.

    successes, trials: Successes seen, and in how many trials; 0 trials give probability 1 to 0.
    logit_mean, log_odds_cv2: The two curves.
    Returns numpy.ndarray: Log probabilities, broadcast over the arguments.

    Examples
    --------
    >>> import numpy as np
    >>> bool(np.isclose(log_pmf(1, 3, 0.0, np.log(2.0)), np.log(0.25)))
    True
    """
    y, n, f, g = (np.asarray(v, dtype=float) for v in (successes, trials, logit_mean, log_odds_cv2))
    return log_beta_binomial(y, n, *a_b(f, g))


def cdf_interval(
    successes: Floats, trials: Floats, logit_mean: Floats, log_odds_cv2: Floats
) -> tuple[Floats, Floats]:
    """P(Y <= successes - 1) and P(Y <= successes) under many curves.

    successes, trials: Shape (n,).
    logit_mean, log_odds_cv2: Shape (curves, n).
    Returns tuple of numpy.ndarray: Two arrays (curves, n).
    """
    a, b = a_b(logit_mean, log_odds_cv2)
    return beta_binomial_ends(successes, trials, a, b)


def simulate(
    logit_mean: Floats, log_odds_cv2: Floats, trials: Floats, rng: np.random.Generator
) -> Floats:
    """Successes of new items: theta from its prior, the successes given theta."""
    theta = special.expit(draw_theta(*a_b(logit_mean, log_odds_cv2), (rng, rng)))
    return rng.binomial(np.asarray(trials).astype(np.int64), theta).astype(float)


# --- tails and draws of Beta(a, b) ---------------------------------------------------------------


def above(cut: Floats, a: Floats, b: Floats) -> Floats:
    """P(theta > cut)."""
    inside = np.clip(cut, 0.0, 1.0)
    return beta_tail(inside, 1.0 - inside, a, b)


def excess(cut: Floats, a: Floats, b: Floats) -> Floats:
    """E[(theta - cut)+]: for cuts below 0 the distance of the mean from the cut."""
    inside = np.clip(cut, 0.0, 1.0)
    return np.where(cut > 0, _excess(inside, 1.0 - inside, a, b), mean(a, b) - cut)


def shortfall(cut: Floats, a: Floats, b: Floats) -> Floats:
    """E[(cut - theta)+]: that of failures in excess of 1 - cut."""
    inside = np.clip(cut, 0.0, 1.0)
    return np.where(cut < 1, _excess(1.0 - inside, inside, b, a), cut - mean(a, b))


def _excess(cut: Floats, complement: Floats, a: Floats, b: Floats) -> Floats:
    """(mean - c) P(theta > c) + c^a (1 - c)^b / (B(a, b) (a + b)), given also 1 - c."""
    gap = np.where(cut < 0.5, a - (a + b) * cut, (a + b) * complement - b)
    tail = beta_tail(cut, complement, a, b)
    return np.maximum(gap * tail + beta_kernel(cut, complement, a, b), 0.0) / (a + b)


def draw_theta(a: Floats, b: Floats, rngs: tuple[np.random.Generator, ...]) -> Floats:
    """Draws of logit theta, one for each element, row by row."""
    unit = np.ones_like(a)
    second_rngs = tuple(rng.spawn(1)[0] for rng in rngs)  # the same for any number of rows
    return poisson_gamma.draw_theta(a, unit, rngs) - poisson_gamma.draw_theta(b, unit, second_rngs)


def above_drawn(logit: Floats, a: Floats, b: Floats) -> Floats:
    """P(theta > a draw of `draw_theta`)."""
    logit, a, b = np.broadcast_arrays(logit, a, b)
    tail = beta_tail(special.expit(logit), special.expit(-logit), a, b)
    far = np.abs(logit) > _FAR
    if far.any():  # odds below all numbers
        side = logit[far] < 0
        shape_of_side = np.where(side, a[far], b[far])
        log_tail = (
            -shape_of_side * np.abs(logit[far])
            - np.log(shape_of_side)
            - special.betaln(a[far], b[far])
        )
        tail[far] = np.where(side, -np.expm1(np.minimum(log_tail, 0.0)), np.exp(log_tail))
    return np.asarray(tail)


# --- probabilities and cdf of the Beta-Binomial ---------------------------------------------------

_jit = numba.njit(cache=True, nogil=True, error_model="numpy")


@_jit
def _log_pmf(y, n, a, b):  # type: ignore[no-untyped-def]
    """Log probability of y successes in n trials; y may lie between whole numbers.

    Given their sum, negative binomials of shapes a and b and of one ratio are Beta-Binomial.
    """
    m = a + b
    log_ratio = negative_binomial(y, a, n * (a / m)) + negative_binomial(n - y, b, n * (b / m))
    return log_ratio - negative_binomial(n, m, n)


@_jit
def _pmf(y, n, a, b):  # type: ignore[no-untyped-def]
    return math.exp(_log_pmf(y, n, a, b))


@numba.vectorize(cache=True)
def _log_beta_binomial(y, n, a, b):  # type: ignore[no-untyped-def]
    return _log_pmf(y, n, a, b)


def log_beta_binomial(y: ArrayLike, n: ArrayLike, a: ArrayLike, b: ArrayLike) -> Floats:
    """Log probability of y successes in n trials, theta ~ Beta(a, b)."""
    return compiled(_log_beta_binomial, y, n, a, b)


@_jit
def _added(y, low, at_y, n, a, b):  # type: ignore[no-untyped-def]
    """Sum of probabilities from `low` to y, given that of y, from y downwards."""
    total, term = 0.0, at_y
    k = y
    while k >= low:
        total += term
        if term < 1e-18 * total and a >= 1.0:  # the rest falls further
            break
        term *= k * (b + (n - k)) / ((n - k + 1.0) * (a + k - 1.0))
        k -= 1.0
    return total


@_jit
def _tail(y, n, a, b):  # type: ignore[no-untyped-def]
    """P(Y <= y) for y at most about the mean.

    Where numbers are many it is an integral over the root of y, by Gauss and Legendre, with the
    first term of Euler and Maclaurin at its ends.
    """
    if y < 0.0:
        return 0.0
    m = a + b
    sd = math.sqrt(n * (a / m) * (b / m) * ((m + n) / (m + 1.0)))
    low = max(0.0, math.floor(y - _REACH * sd - _FALL * (1.0 + n / m)))
    at_y = _pmf(y, n, a, b)
    if y - low < _MOST:
        return _added(y, low, at_y, n, a, b)
    total, begin = 0.0, low - 0.5
    if low == 0.0:
        high_root = _SINGLE - 1.0
        at_last = _pmf(high_root, n, a, b)
        total = _added(high_root, 0.0, at_last, n, a, b)
        begin = high_root + 0.5
        total += (_pmf(high_root + 1.0, n, a, b) - at_last) / 24.0
    total -= (_pmf(y + 1.0, n, a, b) - at_y) / 24.0
    low_root, high_root = math.sqrt(max(begin, 0.0)), math.sqrt(y + 0.5)
    half = 0.5 * (high_root - low_root)
    for i in range(len(_NODE)):
        root = low_root + half * (1.0 + _NODE[i])
        total += 2.0 * half * _SHARE[i] * root * _pmf(root * root, n, a, b)
    return total


@_jit
def _fill_ends(y, n, a, b, below, upto):  # type: ignore[no-untyped-def]
    """Fill both ends, (curves, items)."""
    for s in range(a.shape[0]):
        for i in range(len(y)):
            p, q = a[s, i], b[s, i]
            pmf = _pmf(y[i], n[i], p, q)
            if y[i] * q <= (n[i] - y[i]) * p:  # at most the mean
                upto[s, i] = _tail(y[i], n[i], p, q)
                below[s, i] = upto[s, i] - pmf
            else:
                below[s, i] = 1.0 - _tail(n[i] - y[i], n[i], q, p)
                upto[s, i] = below[s, i] + pmf


def beta_binomial_ends(y: Floats, n: Floats, a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """P(Y <= y - 1) and P(Y <= y) of y successes in n trials, (curves, items)."""
    below, upto = np.empty(a.shape), np.empty(a.shape)
    numbers = (np.ascontiguousarray(v, dtype=float) for v in (y, n, a, b))
    _fill_ends(*numbers, below, upto)
    return np.clip(below, 0.0, 1.0), np.clip(upto, 0.0, 1.0)
