"""Counts y ~ Poisson(theta N) with theta ~ Gamma(shape, rate): the closed forms.

`shape_rate`, `update`, `mean` and `variance` use only + - * / and exp, so they work for numpy,
xarray, PyTensor and SQL expressions. The prior is described by its mean and its squared coefficient
of variation, cv2 = variance / mean^2 = 1 / shape, both as logarithms: their information is
orthogonal, and cv2 -> 0 (no overdispersion, a Poisson marginal) is a regular limit.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from .._lib.arrays import Floats
from .components import inverse_trigamma
from .special_functions import gamma_kernel, log_negative_binomial, negative_binomial_tail

_LARGEST_SHAPE = 1e100
"""Largest shape: above it the marginal is Poisson to all digits, and squares would overflow."""
_TINY = 1e-300  # below this the cdf of a Gamma is computed from its logarithm
_LEAST_SHAPE = 1.0  # smaller ones are drawn at shape + 1 and transformed, as draws underflow
_FEW = 128  # below this, probabilities of counts are summed
_FAR = 600.0  # unless minus the log probability of no event is above this
_MOST_EVENTS = 1e18  # expected of an item: more than this numpy cannot draw


def shape_rate(log_mean: Any, log_cv2: Any, exp: Any = np.exp) -> tuple[Any, Any]:
    """Gamma shape and rate of a prior with the given log mean and log squared cv.

    Examples
    --------
    >>> import numpy as np
    >>> shape, rate = shape_rate(np.log(0.05), np.log(0.25))
    >>> float(shape), round(float(rate), 9)
    (4.0, 80.0)
    """
    return exp(-log_cv2), exp(-log_cv2 - log_mean)


def log_mean_cv2(shape: Any, rate: Any) -> tuple[Any, Any]:
    """Log mean and log squared cv of Gamma(shape, rate)."""
    return np.log(shape) - np.log(rate), -np.log(shape)


def widened(log_mean: Floats, log_cv2: Floats, spread: ArrayLike) -> tuple[Floats, Floats]:
    """Curves averaged over a variance `spread` of log mean, to second order."""
    spread = np.asarray(spread, dtype=float)
    return log_mean + spread / 2, np.log(np.exp(log_cv2) * (1.0 + spread) + spread)


def curve_variables(log_mean: Floats, log_cv2: Floats) -> dict[str, Floats]:
    """Variables of `soc.calibration_curves`."""
    shape, rate = shape_rate(log_mean, log_cv2)
    log_variance = log_cv2 + 2.0 * log_mean
    return {
        "mean": np.exp(log_mean),
        "variance": np.exp(log_variance),
        "log_mean": log_mean,
        "log_variance": log_variance,
        "shape": shape,
        "rate": rate,
    }


def moments_of_log(log_mean: Any, log_cv2: Any) -> tuple[Any, Any]:
    """E(log theta) and Var(log theta) of Gammas with these curves."""
    shape = np.exp(-log_cv2)
    return log_mean + (special.psi(shape) - np.log(shape)), special.polygamma(1, shape)


def match_gammas(mean_log: Floats, variance_log: Floats) -> tuple[Floats, Floats]:
    """Log mean and log cv2 of Gammas with these moments of log theta.

    Shifting and scaling log theta would leave the Gamma family, so the two moments are matched:
    trigamma(shape) = Var(log theta), then log rate = digamma(shape) - E(log theta).

    Examples
    --------
    >>> log_mean, log_cv2 = match_gammas(special.psi([4.0]), special.polygamma(1, [4.0]))
    >>> bool(np.allclose([log_mean, log_cv2], [[np.log(4.0)], [-np.log(4.0)]]))
    True
    """
    shape = inverse_trigamma(variance_log)
    return mean_log + np.log(shape) - special.psi(shape), -np.log(shape)


def natural_moments(log_mean: Any, cv2: Any) -> tuple[Any, Any]:
    """E(theta) and Var(theta) from the log mean and the squared cv, 0 included."""
    return np.exp(log_mean), cv2 * np.exp(2.0 * log_mean)


def update(shape: Any, rate: Any, count: Any, exposure: Any) -> tuple[Any, Any]:
    """Posterior shape and rate after `count` events in `exposure`."""
    return shape + count, rate + exposure


def mean(shape: Any, rate: Any) -> Any:
    """Mean of Gamma(shape, rate)."""
    return shape / rate


def variance(shape: Any, rate: Any) -> Any:
    """Variance of Gamma(shape, rate)."""
    return shape / rate / rate  # the square of the rate could overflow


def third(shape: Any, rate: Any) -> Any:
    """Third central moment of Gamma(shape, rate)."""
    return 2.0 * shape / rate / rate / rate


def log_pmf(
    count: ArrayLike, exposure: ArrayLike, log_mean: ArrayLike, log_cv2: ArrayLike
) -> Floats:
    """Log marginal probability of a count: negative binomial, Poisson in the limit cv2 -> 0.

    count, exposure: Number of events and their exposure; with `exposure` 0 the count 0 has
    probability 1. log_mean, log_cv2: Logarithms of the prior's mean and squared coefficient of
    variation. Returns numpy.ndarray: Log probabilities, broadcast over the arguments.

    Examples
    --------
    >>> import numpy as np
    >>> bool(np.isclose(log_pmf(0, 10, np.log(0.1), np.log(1.0)), np.log(0.5)))
    True
    """
    y, n, m, c = (np.asarray(v, dtype=float) for v in (count, exposure, log_mean, log_cv2))
    return np.asarray(log_negative_binomial(y, _shape(c), n * np.exp(m)))


def _shape(log_cv2: Floats) -> Floats:
    """Shape of the Gamma, bounded so that its square is finite."""
    return np.exp(np.minimum(-log_cv2, np.log(_LARGEST_SHAPE)))


def cdf(count: ArrayLike, exposure: ArrayLike, log_mean: ArrayLike, log_cv2: ArrayLike) -> Floats:
    """P(Y <= count) under the marginal of `log_pmf`; 0 for negative counts."""
    y, n, m, c = np.broadcast_arrays(
        *(np.asarray(v, dtype=float) for v in (count, exposure, log_mean, log_cv2))
    )
    shape = _shape(c)
    inside = negative_binomial_tail(np.maximum(y, 0.0), shape, n * np.exp(m) / shape)
    return np.where(y < 0, 0.0, inside)


def cdf_interval(
    count: Floats, exposure: Floats, log_mean: Floats, log_cv2: Floats
) -> tuple[Floats, Floats]:
    """P(Y <= count - 1) and P(Y <= count) under many curves.

    count, exposure: Shape (n,).
    log_mean, log_cv2: Shape (curves, n).
    Returns tuple of numpy.ndarray: Two arrays (curves, n).
    """
    below, upto = np.empty_like(log_mean), np.empty_like(log_mean)
    small = count < _FEW
    small[small] = _can_start(exposure[small], log_mean[:, small], log_cv2[:, small])
    for mask, cdfs in ((small, _few_cdfs), (~small, _many_cdfs)):
        ends = cdfs(count[mask], exposure[mask], log_mean[:, mask], log_cv2[:, mask])
        below[:, mask], upto[:, mask] = ends
    return below, upto


def _many_cdfs(
    y: Floats, exposure: Floats, log_mean: Floats, log_cv2: Floats
) -> tuple[Floats, Floats]:
    """Both probabilities by the incomplete beta function."""
    return cdf(y - 1.0, exposure, log_mean, log_cv2), cdf(y, exposure, log_mean, log_cv2)


def _can_start(exposure: Floats, log_mean: Floats, log_cv2: Floats) -> NDArray[np.bool_]:
    """Mask of items whose probability of no event, where sums begin, does not underflow."""
    none = -log_pmf(0.0, exposure, log_mean, log_cv2)
    return np.asarray((none < _FAR).all(axis=0))


def _few_cdfs(
    y: Floats, exposure: Floats, log_mean: Floats, log_cv2: Floats
) -> tuple[Floats, Floats]:
    """Both probabilities for small counts, by summing: several times faster."""
    order = np.argsort(-y, kind="stable")  # items with counts of at least k come first
    shape = _shape(log_cv2[:, order])
    ratio = exposure[order] * np.exp(log_mean[:, order]) / shape
    factor = ratio / (1.0 + ratio)
    pmf = np.exp(-shape * np.log1p(ratio))
    upto, below = pmf.copy(), np.zeros_like(pmf)
    for k in range(1, int(y.max(initial=0.0)) + 1):
        m = int((y >= k).sum())
        below[:, :m] = upto[:, :m]
        pmf[:, :m] *= (shape[:, :m] + (k - 1)) / k * factor[:, :m]
        upto[:, :m] += pmf[:, :m]
    inverse = np.argsort(order)
    return below[:, inverse], upto[:, inverse]


def simulate(
    log_mean: Floats, log_cv2: Floats, exposure: Floats, rng: np.random.Generator
) -> Floats:
    """Counts of new items: theta from its prior, the count given theta."""
    theta = rng.standard_gamma(np.exp(-log_cv2)) * np.exp(log_mean + log_cv2)
    return rng.poisson(np.minimum(exposure * theta, _MOST_EVENTS)).astype(float)


# --- tails and draws of Gamma(shape, rate) -------------------------------------------------------


def above(cut: Floats, shape: Floats, rate: Floats) -> Floats:
    """P(theta > cut)."""
    return np.asarray(special.gammaincc(shape, np.maximum(cut, 0.0) * rate))


def excess(cut: Floats, shape: Floats, rate: Floats) -> Floats:
    """E[(theta - cut)+]: (a - x) Q(a, x) + x^a e^-x / Gamma(a), over the rate, for x = rate cut."""
    x = np.maximum(cut, 0.0) * rate
    inside = (shape - x) * special.gammaincc(shape, x) + shape * gamma_kernel(shape, x)
    # not negative despite rounding
    scaled = np.maximum(inside, 0.0) / rate
    return np.where(cut > 0, scaled, shape / rate - cut)


def shortfall(cut: Floats, shape: Floats, rate: Floats) -> Floats:
    """E[(cut - theta)+]: (x - a) P(a, x) + x^a e^-x / Gamma(a), over the rate, for x = rate cut."""
    x = np.maximum(cut, 0.0) * rate
    inside = (x - shape) * special.gammainc(shape, x) + shape * gamma_kernel(shape, x)
    return np.maximum(inside, 0.0) / rate


def draw_theta(shape: Floats, rate: Floats, rngs: tuple[np.random.Generator, ...]) -> Floats:
    """Draws of log theta, one for each element, row by row."""
    small = shape < _LEAST_SHAPE
    drawn = np.log(rngs[0].standard_gamma(np.where(small, shape + 1.0, shape)))
    if small.any():
        # Gamma(a) is Gamma(a + 1) U^(1/a), whose logarithm does not underflow
        drawn[small] -= rngs[1].standard_exponential(int(small.sum())) / shape[small]
    return drawn - np.log(rate)


def above_drawn(log_theta: Floats, shape: Floats, rate: Floats) -> Floats:
    """P(theta > a draw of `draw_theta`)."""
    log_x = log_theta + np.log(rate)
    # an overflowing theta has tail 0; underflow is corrected below
    with np.errstate(over="ignore", under="ignore"):
        x = np.exp(log_x)
        tail = special.gammaincc(shape, x)
    lost = x < _TINY
    if lost.any():
        a, log_of_lost = np.broadcast_to(shape, x.shape)[lost], log_x[lost]
        tail[lost] = -np.expm1(np.minimum(a * log_of_lost - special.gammaln(a + 1.0), 0.0))
    return np.asarray(tail)
