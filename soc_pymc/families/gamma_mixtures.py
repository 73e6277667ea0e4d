"""Mixtures of Gammas over draws of the curves: moments, quantiles, and few nodes for many draws.

Given one draw of the curves an item's theta is Gamma; over the draws it is their equal mixture. A
function of (log mean, log cv2) is averaged over the draws by a product of two Gauss rules for the
draws' own distribution (Gautschi 2004, section 2.2), with weights that also reproduce the joint
moments of the two curves.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from . import poisson_gamma

__all__ = ["gauss_rule", "mixture_quantiles", "posterior_summaries", "rule_summaries"]

Floats = NDArray[np.float64]
Rule = tuple[Floats, Floats, Floats]

_COARSE, _FINE = 5, 9  # nodes a curve of the two rules that check each other
_AGREE = 1e-5  # the fine rule errs by about the square of its distance from the coarse one
_TIGHT, _LOOSE = 1e-8, 1e-2  # last Newton step, in log theta and in posterior sd
_LEAST = -690.0  # log theta below which a quantile underflows to 0
_MOST_STEPS = 200
_CHUNK = 500  # items whose draws are held at once: about 150 MB with 1,000 draws
_FEW_DRAWS = 100  # with fewer draws than this the draws themselves are the nodes


# ---------------------------------------------------------------- Gauss rules of draws


def _recurrence(x: Floats, number: int) -> tuple[Floats, Floats]:
    """Orthonormal polynomials of draws (draws, n) by Stieltjes' procedure, and Jacobi matrices.

    Draws of fewer than `number` distinct values give polynomials of 0 and nodes of weight 0.
    """
    draws, n = x.shape
    poly = np.zeros((number, draws, n))
    jacobi = np.zeros((n, number, number))
    poly[0] = 1.0
    beta = np.zeros(n)
    for k in range(number):
        times_x = x * poly[k]
        alpha = np.einsum("sn,sn->n", times_x, poly[k]) / draws
        jacobi[:, k, k] = alpha
        if k + 1 == number:
            break
        rest = times_x
        rest -= alpha * poly[k]
        if k:
            rest -= beta * poly[k - 1]
        norm = np.sqrt(np.einsum("sn,sn->n", rest, rest) / draws)
        beta = np.where(norm > 1e-7, norm, 0.0)
        poly[k + 1] = rest * np.where(beta > 0, 1.0 / np.where(beta > 0, norm, 1.0), 0.0)
        jacobi[:, k, k + 1] = jacobi[:, k + 1, k] = beta
    return poly, jacobi


def _standardised(first: Floats, second: Floats) -> tuple[Floats, Floats, tuple[Floats, ...]]:
    """Draws of the first curve and of what it leaves of the second, each in its own sd."""
    centre, other = first.mean(axis=0), second.mean(axis=0)
    x, z = first - centre, second - other
    # a curve that the draws agree on has a spread of rounding alone, which is no spread
    sd = np.sqrt(np.einsum("sn,sn->n", x, x) / len(x))
    sd = np.where(sd > 1e-12 * (1.0 + np.abs(centre)), sd, 0.0)
    x *= np.where(sd > 0, 1.0 / np.where(sd > 0, sd, 1.0), 0.0)
    slope = np.einsum("sn,sn->n", x, z) / len(x)
    z -= slope * x
    left = np.sqrt(np.einsum("sn,sn->n", z, z) / len(z))
    left = np.where(left > 1e-12 * (1.0 + np.abs(other)), left, 0.0)
    z *= np.where(left > 0, 1.0 / np.where(left > 0, left, 1.0), 0.0)
    return x, z, (centre, sd, other, slope, left)


def _rules(first: Floats, second: Floats, numbers: Sequence[int]) -> list[Rule]:
    """`gauss_rule` for several numbers of nodes at the cost of the largest."""
    x, z, (centre, sd, other, slope, left) = _standardised(first, second)
    poly_x, jacobi_x = _recurrence(x, max(numbers))
    poly_z, jacobi_z = _recurrence(z, max(numbers))
    joint = np.matmul(poly_x.transpose(2, 0, 1), poly_z.transpose(2, 1, 0)) / len(x)
    rules: list[Rule] = []
    for k in numbers:
        at_x, vector_x = np.linalg.eigh(jacobi_x[:, :k, :k])
        at_z, vector_z = np.linalg.eigh(jacobi_z[:, :k, :k])
        # Lagrange's polynomials at Gauss nodes are sums of the orthonormal ones
        lift_x, lift_z = vector_x * vector_x[:, :1], vector_z * vector_z[:, :1]
        weight = np.matmul(lift_x.transpose(0, 2, 1), np.matmul(joint[:, :k, :k], lift_z))
        n1 = (centre[:, None] + sd[:, None] * at_x)[:, :, None]
        n2 = (other[:, None] + slope[:, None] * at_x)[:, :, None] + (left[:, None] * at_z)[:, None]
        rules.append((_flat(weight), _flat(np.broadcast_to(n1, n2.shape)), _flat(n2)))
    return rules


def _flat(values: Floats) -> Floats:
    return np.ascontiguousarray(values.reshape(len(values), -1).T)


def gauss_rule(first: ArrayLike, second: ArrayLike, number: int) -> Rule:
    """Nodes and weights that average smooth functions of two curves over their draws.

    Parameters
    ----------
    first, second
        Draws of the curves, shape (draws, n).
    number
        Nodes a curve, K.

    Returns
    -------
    tuple of numpy.ndarray
        Weights, first and second curve at the nodes, each (K^2, n). Polynomials in the first curve
        of degree 2K - 1, and products of degree K - 1 in each, are averaged exactly. Weights sum to
        1 and may be negative.

    Examples
    --------
    >>> weight, x, z = gauss_rule([[-1.0], [1.0]], [[0.0], [2.0]], 2)
    >>> float((weight * x * z).sum().round(12))
    1.0
    """
    return _rules(np.asarray(first, dtype=float), np.asarray(second, dtype=float), [number])[0]


# ---------------------------------------------------------------- quantiles


@dataclass(frozen=True)
class _Mixture:
    """Weights, shapes and rates (components, n), and the logarithm of each density's factor."""

    weight: Floats
    shape: Floats
    rate: Floats
    factor: Floats

    def __getitem__(self, items: NDArray[np.int64]) -> "_Mixture":
        return _Mixture(
            self.weight[:, items], self.shape[:, items], self.rate[:, items], self.factor[:, items]
        )

    def cdf(self, log_theta: Floats) -> tuple[Floats, Floats]:
        """P(theta <= .) and its derivative in log theta."""
        scaled = np.exp(log_theta) * self.rate
        below = special.gammainc(self.shape, scaled)
        ratio = np.maximum(scaled / self.shape, np.finfo(float).tiny)
        density = np.exp(self.factor + self.shape * (np.log(ratio) - (ratio - 1.0)))
        return (self.weight * below).sum(axis=0), (self.weight * density).sum(axis=0)


def _make_mixture(weight: ArrayLike, shape: Floats, rate: Floats) -> _Mixture:
    """Density in log theta is exp(factor) (r e^(1 - r))^shape with r = rate theta / shape."""
    large = np.maximum(shape, 16.0)
    stirling = 0.5 * np.log(large / (2 * np.pi)) - poisson_gamma.stirling_error(large)
    small = np.minimum(shape, 16.0)
    direct = small * np.log(small) - small - special.gammaln(small)
    factor = np.where(shape >= 16.0, stirling, direct)
    return _Mixture(np.broadcast_to(np.asarray(weight), shape.shape), shape, rate, factor)


def _start(prob: float, mean: Floats, variance: Floats) -> Floats:
    """Log of the quantile of the Gamma with this mean and variance, or close to it."""
    shape = mean * mean / variance
    cube = 1.0 - 1.0 / (9.0 * shape) + special.ndtri(prob) / np.sqrt(9.0 * shape)  # Wilson-Hilferty
    good = (shape >= 1.0) & (cube > 0.1)
    log_theta = 3.0 * np.log(np.where(good, cube, 1.0))
    rest = ~good
    if rest.any():
        inverse = special.gammaincinv(shape[rest], prob) / shape[rest]
        with np.errstate(divide="ignore"):
            log_theta[rest] = np.log(inverse)
    return np.maximum(log_theta + np.log(mean), _LEAST)


def _solve(mixture: _Mixture, prob: float, start: Floats, enough: Floats) -> Floats:
    """Log quantiles by Newton steps in the normal score of the cdf, bisecting where they leave.

    `enough` is the size of a step that is the last; Newton steps then square what is left.
    """
    target = special.ndtri(prob)
    found = start.copy()
    low, high = np.full(len(start), _LEAST), np.full(len(start), -_LEAST)
    active = np.arange(len(start))
    part = mixture
    for _ in range(_MOST_STEPS):
        x = found[active]
        below, slope = part.cdf(x)
        low[active] = np.where(below < prob, x, low[active])
        high[active] = np.where(below < prob, high[active], x)
        inside = (below > 0) & (below < 1) & (slope > 0)
        score = special.ndtri(np.where(inside, below, 0.5))
        # d(normal score) = slope / normal density
        scale = np.exp(-0.5 * score * score) / np.sqrt(2 * np.pi)
        step = (target - score) * scale / np.where(inside, slope, 1.0)
        new = x + step
        newton = inside & (new > low[active]) & (new < high[active])
        exact = inside & (step == 0)
        new = np.where(newton | exact, new, 0.5 * (low[active] + high[active]))
        found[active] = new
        more = ~exact & (np.abs(new - x) > enough[active])
        more &= high[active] - low[active] > 1e-14
        if not more.any():
            break
        if not more.all():
            active, part = active[more], part[np.flatnonzero(more)]
    return np.where(found < _LEAST + 1e-6, -np.inf, found)


def mixture_quantiles(
    weight: ArrayLike, shape: Floats, rate: Floats, quantiles: Sequence[float]
) -> Floats:
    """Quantiles of mixtures of Gammas, to about 1e-10 relative.

    Parameters
    ----------
    weight
        Weights that sum to 1, broadcast to (components, n).
    shape, rate
        The Gammas, (components, n).
    quantiles
        Probabilities between 0 and 1.

    Returns
    -------
    numpy.ndarray
        Shape (quantiles, n); 0 where a quantile underflows.

    Examples
    --------
    >>> import numpy as np
    >>> one = np.ones((1, 1))
    >>> mixture_quantiles(1.0, one, one, [1 - np.exp(-2)]).round(9)
    array([[2.]])
    """
    mixture = _make_mixture(weight, shape, rate)
    mean, variance = _moments(mixture.weight, shape, rate)
    enough = np.full(len(mean), _TIGHT)
    starts = [_start(p, mean, variance) for p in quantiles]
    found = [_solve(mixture, p, x, enough) for p, x in zip(quantiles, starts, strict=True)]
    return np.exp(np.array(found).reshape(len(quantiles), len(mean)))


# ---------------------------------------------------------------- item posteriors


def _moments(weight: Floats, shape: Floats, rate: Floats) -> tuple[Floats, Floats]:
    """Mean and variance of mixtures: the mean of variances plus the variance of means."""
    centre = poisson_gamma.mean(shape, rate)
    mean = (weight * centre).sum(axis=0)
    within = (weight * poisson_gamma.variance(shape, rate)).sum(axis=0)
    return mean, within + (weight * (centre - mean) ** 2).sum(axis=0)


def _updated(log_mean: Floats, log_cv2: Floats, y: Floats, n: Floats) -> tuple[Floats, Floats]:
    shape, rate = poisson_gamma.shape_rate(log_mean, log_cv2)
    shape, rate = poisson_gamma.update(shape, rate, y, n)
    return shape, rate


def rule_summaries(
    rule: Rule, count: Floats, exposure: Floats, quantiles: Sequence[float]
) -> tuple[Floats, Floats, Floats]:
    """Posterior means, variances and quantiles from weighted nodes of the curves.

    Parameters
    ----------
    rule
        Weights, log mean and log cv2, each (nodes, n).
    count, exposure
        The items, (n,).
    quantiles
        Probabilities between 0 and 1.

    Returns
    -------
    tuple of numpy.ndarray
        Means (n,), variances (n,), and quantiles (quantiles, n) to about 1e-4 posterior sd.
    """
    weight, log_mean, log_cv2 = rule
    shape, rate = _updated(log_mean, log_cv2, count, exposure)
    mean, variance = _moments(weight, shape, rate)
    if not quantiles:
        return mean, variance, np.empty((0, len(mean)))
    mixture = _make_mixture(weight, shape, rate)
    enough = _LOOSE * np.minimum(1.0, np.sqrt(variance) / mean)
    found = [_solve(mixture, p, _start(p, mean, variance), enough) for p in quantiles]
    return mean, variance, np.exp(np.array(found))


def posterior_summaries(
    log_mean: ArrayLike,
    log_cv2: ArrayLike,
    count: ArrayLike,
    exposure: ArrayLike,
    quantiles: Sequence[float] = (),
    done: Callable[[int], None] = lambda items: None,
) -> tuple[Floats, Floats, Floats]:
    """Posterior means, variances and quantiles of theta, every draw of the curves counted.

    Parameters
    ----------
    log_mean, log_cv2
        Draws of the curves at each item's score, (draws, n).
    count, exposure
        The items, (n,).
    quantiles
        Probabilities between 0 and 1.
    done
        Told how many more items are done.

    Returns
    -------
    tuple of numpy.ndarray
        Means (n,) and variances (n,) by the laws of total expectation and variance, and quantiles
        (quantiles, n) of the equal mixture of Gamma(1/cv2 + y, 1/(cv2 mean) + N) over the draws,
        to 1e-7 relative.

    Notes
    -----
    A Newton solution under a Gauss rule of 5 x 5 nodes is carried on under one of 9 x 9. Where the
    two differ by more than 1e-5, the solution is carried on over all draws, one by one.

    Examples
    --------
    >>> mean, variance, _ = posterior_summaries([[0.0]], [[0.0]], [3], [1.0])
    >>> float(mean[0]), float(variance[0])
    (2.0, 1.0)
    """
    m, c = np.asarray(log_mean, dtype=float), np.asarray(log_cv2, dtype=float)
    y, n = np.asarray(count, dtype=float), np.asarray(exposure, dtype=float)
    mean, variance = np.empty(len(y)), np.empty(len(y))
    found = np.empty((len(quantiles), len(y)))
    for start in range(0, len(y), _CHUNK):
        part = slice(start, start + _CHUNK)
        mean[part], variance[part], found[:, part] = _exact(
            m[:, part], c[:, part], y[part], n[part], quantiles
        )
        done(len(y[part]))
    return mean, variance, found


def _exact(
    m: Floats, c: Floats, y: Floats, n: Floats, quantiles: Sequence[float]
) -> tuple[Floats, Floats, Floats]:
    """`posterior_summaries` of few items."""
    shape, rate = _updated(m, c, y, n)
    equal = np.full((len(m), 1), 1.0 / len(m))
    mean, variance = _moments(equal, shape, rate)
    if not quantiles:
        return mean, variance, np.empty((0, len(y)))
    if len(m) <= _FEW_DRAWS:
        return mean, variance, mixture_quantiles(equal, shape, rate, quantiles)
    coarse, fine = (
        _make_mixture(w, *_updated(a, b, y, n)) for w, a, b in _rules(m, c, [_COARSE, _FINE])
    )
    tight = np.full(len(y), _TIGHT)
    found = np.empty((len(quantiles), len(y)))
    for row, p in zip(found, quantiles, strict=True):
        first = _solve(coarse, p, _start(p, mean, variance), tight)
        row[:] = _solve(fine, p, np.maximum(first, _LEAST), tight)
        doubt = np.flatnonzero(~((np.abs(row - first) < _AGREE) | (row == first)))
        if len(doubt):
            every = _make_mixture(equal, shape[:, doubt], rate[:, doubt])
            row[doubt] = _solve(every, p, np.maximum(row[doubt], _LEAST), tight[doubt])
    return mean, variance, np.exp(found)
