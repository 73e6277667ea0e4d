"""Counts y ~ Poisson(theta N) with theta ~ Gamma(shape, rate): the closed forms.

`shape_rate`, `update`, `mean` and `variance` use + - * / and exp alone, so the same rule serves
numpy, xarray, PyTensor and SQL expressions. The prior is described by its mean and its squared
coefficient of variation, cv2 = variance / mean^2 = 1 / shape, both as logarithms: their information
is orthogonal, and cv2 -> 0 (no overdispersion, a Poisson marginal) is an ordinary limit.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

__all__ = [
    "cdf",
    "cdf_ends",
    "log1pmx",
    "log_pmf",
    "mean",
    "quantile",
    "shape_rate",
    "stirling_error",
    "update",
    "variance",
]

Floats = NDArray[np.float64]

# Above this shape the marginal's cdf is Poisson to 1e-10 for every mean below 1e5.
_POISSON_SHAPE = 1e11
_FEW = 128  # counts below this are cheap to add up


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


def update(shape: Any, rate: Any, count: Any, exposure: Any) -> tuple[Any, Any]:
    """Posterior shape and rate after `count` events in `exposure`."""
    return shape + count, rate + exposure


def mean(shape: Any, rate: Any) -> Any:
    """Mean of Gamma(shape, rate)."""
    return shape / rate


def variance(shape: Any, rate: Any) -> Any:
    """Variance of Gamma(shape, rate)."""
    return shape / (rate * rate)


def quantile(prob: ArrayLike, shape: ArrayLike, rate: ArrayLike) -> Floats:
    """Quantile of Gamma(shape, rate) at probability `prob`."""
    a, q, b = (np.asarray(v, dtype=np.float64) for v in (shape, prob, rate))
    return np.asarray(special.gammaincinv(a, q) / b)


def log1pmx(x: ArrayLike) -> Floats:
    """log(1 + x) - x for x > -1 without cancellation near 0 (series in x / (2 + x))."""
    x = np.asarray(x, dtype=float)
    u = x / (2.0 + x)
    w = u * u
    tail = np.zeros_like(x)
    for k in range(21, 1, -2):
        tail = w * (1.0 / k + tail)
    near = np.abs(x) < 0.3
    # log1p(x) = 2 (u + u^3/3 + ...), and 2u - x = -x u
    return np.where(near, -x * u + 2.0 * u * tail, np.log1p(np.where(near, 0.0, x)) - x)


def stirling_error(x: ArrayLike) -> Floats:
    """Log Gamma(x) - [(x - 1/2) log x - x + log(2 pi)/2] for x >= 16 (Stirling's series)."""
    z = 1.0 / np.asarray(x, dtype=float)
    w = z * z
    return z * (1 / 12 - w * (1 / 360 - w * (1 / 1260 - w * (1 / 1680 - w / 1188))))


def _log_rising(shape: Floats, count: Floats) -> Floats:
    """Log [Gamma(shape + count) / (Gamma(shape) shape^count)], exact as shape -> infinity."""
    big = shape >= 16.0
    a = np.where(big, shape, 16.0)
    x = count / a
    large = (
        a * log1pmx(x) + (count - 0.5) * np.log1p(x) + stirling_error(a + count) - stirling_error(a)
    )
    b = np.where(big, 1.0, shape)
    # one step of the recurrence keeps the difference of gammaln accurate as shape -> 0
    small = np.where(
        count > 0,
        special.gammaln(b + count) - special.gammaln(b + 1.0) - (count - 1.0) * np.log(b),
        0.0,
    )
    return np.where(big, large, small)


def log_pmf(
    count: ArrayLike, exposure: ArrayLike, log_mean: ArrayLike, log_cv2: ArrayLike
) -> Floats:
    """Log marginal probability of a count: negative binomial, Poisson in the limit cv2 -> 0.

    Parameters
    ----------
    count, exposure
        Events seen and the exposure they were seen in; `exposure` 0 gives probability 1 to 0.
    log_mean, log_cv2
        Logarithms of the prior's mean and squared coefficient of variation.

    Returns
    -------
    numpy.ndarray
        Log probabilities, broadcast over the arguments.

    Examples
    --------
    >>> import numpy as np
    >>> bool(np.isclose(log_pmf(0, 10, np.log(0.1), np.log(1.0)), np.log(0.5)))
    True
    """
    y, n, m, c = np.broadcast_arrays(
        *(np.asarray(v, dtype=float) for v in (count, exposure, log_mean, log_cv2))
    )
    shape = np.exp(-c)
    ratio = n * np.exp(m + c)  # expected count / shape
    rate_part = -shape * np.log1p(ratio) - y * np.log1p(ratio)
    with np.errstate(divide="ignore", invalid="ignore"):  # no count in no exposure
        log_expected = np.where(y > 0, y * (np.log(n) + m), 0.0)
    return _log_rising(shape, y) + log_expected + rate_part - special.gammaln(y + 1.0)


def cdf(count: ArrayLike, exposure: ArrayLike, log_mean: ArrayLike, log_cv2: ArrayLike) -> Floats:
    """P(Y <= count) under the marginal of `log_pmf`; 0 for negative counts."""
    y, n, m, c = np.broadcast_arrays(
        *(np.asarray(v, dtype=float) for v in (count, exposure, log_mean, log_cv2))
    )
    shape = np.exp(-c)
    ratio = n * np.exp(m + c)
    top = np.maximum(y, 0.0)
    poisson = shape > _POISSON_SHAPE
    # the complement's argument ratio/(1 + ratio) keeps its digits when the mean is tiny
    safe = np.where(poisson, 1.0, shape)
    negative_binomial = special.betaincc(top + 1.0, safe, ratio / (1.0 + ratio))
    inside = np.where(poisson, special.pdtr(top, n * np.exp(m)), negative_binomial)
    return np.where(y < 0, 0.0, inside)


def cdf_ends(
    count: Floats, exposure: Floats, log_mean: Floats, log_cv2: Floats
) -> tuple[Floats, Floats]:
    """P(Y <= count - 1) and P(Y <= count) under many curves.

    Parameters
    ----------
    count, exposure
        Shape (n,).
    log_mean, log_cv2
        Shape (curves, n).

    Returns
    -------
    tuple of numpy.ndarray
        Two arrays (curves, n).
    """
    below, upto = np.empty_like(log_mean), np.empty_like(log_mean)
    for mask, cdfs in ((count < _FEW, _few_cdfs), (count >= _FEW, _many_cdfs)):
        ends = cdfs(count[mask], exposure[mask], log_mean[:, mask], log_cv2[:, mask])
        below[:, mask], upto[:, mask] = ends
    return below, upto


def _many_cdfs(
    y: Floats, exposure: Floats, log_mean: Floats, log_cv2: Floats
) -> tuple[Floats, Floats]:
    """Both ends by the incomplete beta function."""
    return cdf(y - 1.0, exposure, log_mean, log_cv2), cdf(y, exposure, log_mean, log_cv2)


def _few_cdfs(
    y: Floats, exposure: Floats, log_mean: Floats, log_cv2: Floats
) -> tuple[Floats, Floats]:
    """The same for small counts, by adding up probabilities: several times faster."""
    order = np.argsort(-y, kind="stable")  # the items that reach k come first
    shape = np.exp(-log_cv2[:, order])
    ratio = exposure[order] * np.exp(log_mean + log_cv2)[:, order]
    factor = ratio / (1.0 + ratio)
    pmf = np.exp(-shape * np.log1p(ratio))
    upto, below = pmf.copy(), np.zeros_like(pmf)
    for k in range(1, int(y.max(initial=0.0)) + 1):
        m = int((y >= k).sum())
        below[:, :m] = upto[:, :m]
        pmf[:, :m] *= (shape[:, :m] + (k - 1)) / k * factor[:, :m]
        upto[:, :m] += pmf[:, :m]
    back = np.argsort(order)
    return below[:, back], upto[:, back]
