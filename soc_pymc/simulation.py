"""Simulated items whose truth is known, with the oracles who know it: for tests and studies."""

from typing import Any

import numpy as np
import pandas as pd
from numpy.polynomial.hermite_e import hermegauss
from numpy.typing import ArrayLike, NDArray
from scipy import special
from scipy.interpolate import CubicSpline

from ._lib.arguments import POSITIVE, SEED, A, Real, Whole, many, numbers_of, refuse_beyond_memory
from ._lib.arrays import Floats
from ._lib.errors import FitError, ItemsError
from .families.validity import LARGEST_COUNT

__all__ = [
    "click_rates",
    "laplace_effects",
    "laplace_oracle",
    "lognormal_oracle",
    "lognormal_rates",
    "s1",
    "s1_curves",
]


_WIDEST = 10.0  # sd of log theta: from about 18 on E(theta^2) overflows
_FARTHEST_MEAN = 100.0  # bias of log theta

_DEEP = 40.0  # the integrands' ends lie this many nats below the density's peak
_CHUNK = 1 << 20  # numbers in one array of items x nodes
_NEWTON = 40  # steps from the outside, which never pass an end

_LINEAR = np.array([1.0, 0, 0, -0.7, 0, 0, 0, 0, 0, 0])
_QUADRATIC = np.array([0.0, 0.1, 0, 0, 0, 0, 0, 0, 0, 0])
_BEND = float(_QUADRATIC @ _QUADRATIC)  # mean of (x'g)^2
_FOLDS = 5
_FARTHEST_VALUE = 1000.0  # y - t
_NODES = 30  # of the quadrature over x'g; the posterior's moments are smooth in it
_STEP = 0.01  # of the fine grid of y - t; splines on it err by 1e-10


def __dir__() -> list[str]:
    return sorted(__all__)


def s1_curves(score: ArrayLike) -> tuple[Floats, Floats]:
    """True log mean and log cv2 of simulation S1.

    Parameters
    ----------
    score
        Scores t > 0.

    Returns
    -------
    tuple of numpy.ndarray
        With x = log(t/0.05): log 0.05 + 0.8 x - 0.15 x^2/(1 + abs(x)) + 0.15 tanh(2x)
        and log 0.3 - 0.8 tanh x.

    Raises
    ------
    FitError
        If a score is not above 0.

    Examples
    --------
    >>> log_mean, log_cv2 = s1_curves(0.05)
    >>> round(float(np.exp(log_mean)), 6), round(float(np.exp(log_cv2)), 6)
    (0.05, 0.3)
    """
    x = np.log(_finite(score, "score", positive=True) / 0.05)
    log_mean = np.log(0.05) + 0.8 * x - 0.15 * x**2 / (1 + np.abs(x)) + 0.15 * np.tanh(2 * x)
    return np.asarray(log_mean), np.asarray(np.log(0.3) - 0.8 * np.tanh(x))


def s1(n_items: int, seed: int = 0) -> pd.DataFrame:
    """Simulation S1: a curved mean, and a dispersion that falls steeply with the score.

    log t ~ Normal(log 0.05, 0.8), N = ceil(exp(Normal(log 6, 1.8))), theta ~ Gamma with the mean
    and cv2 of `s1_curves`, y ~ Poisson(theta N).

    Parameters
    ----------
    n_items, seed
        Number of items, and seed of the random numbers.

    Returns
    -------
    pandas.DataFrame
        Columns score, exposure, count, theta, true_mean and true_cv2.

    Examples
    --------
    >>> list(s1(3).columns)
    ['score', 'exposure', 'count', 'theta', 'true_mean', 'true_cv2']
    """
    rng = _generator(n_items, seed, columns=6)
    score = np.exp(rng.normal(np.log(0.05), 0.8, n_items))
    exposure = np.ceil(np.exp(rng.normal(np.log(6), 1.8, n_items)))
    log_mean, log_cv2 = s1_curves(score)
    theta = rng.gamma(np.exp(-log_cv2), np.exp(log_mean + log_cv2))
    table = _items(rng, score, exposure.astype(np.int64), theta)
    return table.assign(true_mean=np.exp(log_mean), true_cv2=np.exp(log_cv2))


def click_rates(
    n_items: int, delta: float = 0.1, sigma: float = 0.5, seed: int = 0
) -> pd.DataFrame:
    """Click rates lognormal around a biased score, after the paper's Section 5.2.

    log theta ~ Normal(log t + delta, sigma^2) and y ~ Poisson(theta N). In place of the paper's own
    query-ad pairs, log t ~ Normal(log 0.03, 0.8) and N = ceil(exp(Normal(log 20, 1.8))).

    Parameters
    ----------
    n_items, seed
        As of `s1`.
    delta, sigma
        Bias of log t, within 100 of 0, and sd of log theta given t, above 0 and at most 10.

    Returns
    -------
    pandas.DataFrame
        Columns score, exposure, count, theta, true_mean and true_cv2, the last two the lognormal's.

    Raises
    ------
    FitError
        If an argument is not as above, the machine has no memory for so many items, or items expect
        more than 2^53 events.

    Examples
    --------
    >>> frame = click_rates(4, delta=0.0, sigma=1e-9)
    >>> bool(np.allclose(frame["theta"], frame["score"]))
    True
    """
    delta, sigma = _bias_and_sd(delta, sigma)
    rng = _generator(n_items, seed, columns=6)
    score = np.exp(rng.normal(np.log(0.03), 0.8, n_items))
    exposure = np.ceil(np.exp(rng.normal(np.log(20), 1.8, n_items)))
    theta = score * np.exp(rng.normal(delta, sigma, n_items))
    table = _items(rng, score, exposure.astype(np.int64), theta)
    mean = score * np.exp(delta + sigma**2 / 2)
    return table.assign(true_mean=mean, true_cv2=np.expm1(sigma**2))


def _items(
    rng: np.random.Generator, score: Floats, exposure: NDArray[Any], theta: Floats
) -> pd.DataFrame:
    """A table of items, with Poisson counts drawn for them."""
    count = _counts(rng, theta * exposure)
    return pd.DataFrame({"score": score, "exposure": exposure, "count": count, "theta": theta})


def lognormal_rates(
    score: ArrayLike, exposure: ArrayLike, delta: float = 0.0, sigma: float = 0.5, seed: int = 0
) -> pd.DataFrame:
    """Counts of items with given scores and exposures, after the paper's Section 5.2.

    log theta ~ Normal(log t + delta, sigma^2) and y ~ Poisson(theta N). The paper takes t and N
    from its own query-ad pairs; any real table's will do, repeated to the number of items wanted.

    Parameters
    ----------
    score, exposure
        Scores t > 0 and exposures N >= 0, each of shape (n,).
    delta, sigma, seed
        As of `click_rates`.

    Returns
    -------
    pandas.DataFrame
        Columns score, exposure, count and theta; theta in events per unit of exposure.

    Raises
    ------
    FitError
        If an argument is not as above, or items expect more than 2^53 events.

    Examples
    --------
    >>> frame = lognormal_rates([0.1, 0.2], [1e6, 1e6], sigma=1e-9)
    >>> bool(np.allclose(frame["theta"], frame["score"]))
    True
    """
    t, size = many({"score": score, "exposure": exposure})
    _one_of_each(t, size)
    delta, sigma = _bias_and_sd(delta, sigma)
    rng = _generator(len(t), seed, columns=4)
    return _items(rng, t, np.asarray(exposure), t * np.exp(rng.normal(delta, sigma, len(t))))


def lognormal_oracle(
    score: ArrayLike, count: ArrayLike, exposure: ArrayLike, delta: float, sigma: float
) -> tuple[Floats, Floats]:
    """Exact posterior mean and variance of theta for items of `lognormal_rates`.

    Around its mode, the posterior of x = log theta is exp(-u^2/2 - n (e^(sigma u) - 1 - sigma u)),
    where u = (x - mode)/sigma and n = N e^mode is the count expected there: log-concave and
    analytic, so that the trapezoid rule between points where it has vanished converges
    exponentially (Trefethen and Weideman 2014).

    Parameters
    ----------
    score, count, exposure, delta, sigma
        Items, each of shape (n,), and the simulation; exposure 0 returns the prior's moments.

    Returns
    -------
    tuple of numpy.ndarray
        E(theta | t, y) and Var(theta | t, y), each of shape (n,), to a relative 1e-8 (sigma from
        0.01 to 3, counts to 1e5, exposures to 1e7: tested in long arithmetic).

    Raises
    ------
    FitError
        If delta or sigma is not as of `click_rates`, or a score is not above 0.

    Examples
    --------
    >>> mean, variance = lognormal_oracle([0.1], [0], [0], delta=0.0, sigma=1.0)
    >>> bool(np.allclose([mean[0], variance[0]], [0.1 * np.exp(0.5), 0.01 * np.e * (np.e - 1)]))
    True
    """
    delta, sigma = _bias_and_sd(delta, sigma)
    t, y, size = many({"score": score, "count": count, "exposure": exposure})
    _one_of_each(t, y, size)
    _finite(t, "score", positive=True)
    _finite(y, "count")
    _finite(size, "exposure")
    mode, expected = _modes(np.log(t) + delta, y, size, sigma)
    nodes = 64 + int(64 * sigma + 24 * sigma**2)
    mean, variance = np.empty(len(t)), np.empty(len(t))
    step = max(_CHUNK // nodes, 1)
    for start in range(0, len(t), step):
        part = slice(start, start + step)
        first, second = _moments(expected[part], sigma, nodes)
        peak = np.exp(mode[part])
        mean[part] = peak * (1.0 + first)
        variance[part] = peak * peak * (second - first * first)
    return mean, variance


def _modes(centre: Floats, y: Floats, size: Floats, sigma: float) -> tuple[Floats, Floats]:
    """Mode of log theta and the count n expected there: n s^2 e^(n s^2) = N s^2 e^(centre + y s^2).

    `wrightomega(z)` solves w + log w = z.
    """
    a = sigma * sigma
    # of the two forms the one not taken may overflow or have a logarithm of 0
    with np.errstate(divide="ignore", invalid="ignore"):
        scaled = special.wrightomega(np.log(size) + np.log(a) + centre + a * y)
        # either form loses digits where the other keeps them
        by_rate = np.log(scaled / a) - np.log(size)
    mode = np.where(scaled < 1.0, centre + a * y - scaled, by_rate)
    return mode, scaled / a


def _moments(expected: Floats, sigma: float, nodes: int) -> tuple[Floats, Floats]:
    """Posterior means of w and w^2, w = theta / mode - 1."""
    low, high = _cut_points(expected, sigma)
    u = low + (high - low) * np.linspace(0.0, 1.0, nodes)[:, None]
    w = np.expm1(sigma * u)
    density = np.exp(-0.5 * u * u - expected * (w - sigma * u))
    total = density.sum(axis=0)
    density *= w
    first = density.sum(axis=0) / total
    density *= w
    return first, density.sum(axis=0) / total


def _cut_points(expected: Floats, sigma: float) -> tuple[Floats, Floats]:
    """Points beyond which the density, and on the right its product with theta^2, has vanished.

    The logarithms are concave: Newton's steps from outside stay outside.
    """
    low = np.full(len(expected), -np.sqrt(2.0 * _DEEP))
    curvature = 1.0 + expected * sigma**2
    high = (2.0 * sigma + np.sqrt(4.0 * sigma**2 + 2.0 * _DEEP * curvature)) / curvature
    for ends, power in ((low, 0.0), (high, 2.0 * sigma)):
        for _ in range(_NEWTON):
            w = np.expm1(sigma * ends)
            value = -0.5 * ends**2 - expected * (w - sigma * ends) + power * ends + _DEEP
            slope = -ends - expected * sigma * w + power
            step = value / slope
            ends -= step
            if np.abs(step).max(initial=0.0) < 1e-3:
                break
    return low, high


def laplace_effects(n_items: int, seed: int = 0) -> pd.DataFrame:
    """Values whose effects have heavy tails around a regression, after the paper's Section 5.3.

    Ten covariates x are standard normal, theta = x'b + (x'g)^2 + Laplace noise of variance 2, with
    b = (1, 0, 0, -0.7, 0, ...) and g = (0, 0.1, 0, ...), and y ~ Normal(theta, 1). The score is the
    prediction of a linear regression of y on x, fitted to the four fifths of the items that the
    item is not in.

    Parameters
    ----------
    n_items, seed
        Number of items, at least 20, and seed of the random numbers.

    Returns
    -------
    pandas.DataFrame
        Columns score, value, noise_sd (all 1) and theta.

    Raises
    ------
    FitError
        If `n_items` is not a whole number of at least 20, or the machine has no memory for them.

    Examples
    --------
    >>> frame = laplace_effects(5000)
    >>> bool(abs((frame["value"] - frame["theta"]).var() - 1) < 0.1)
    True
    """
    rng = _generator(n_items, seed, len(_LINEAR) + 4, least=20)
    x = rng.standard_normal((n_items, len(_LINEAR)))
    theta = x @ _LINEAR + (x @ _QUADRATIC) ** 2 + rng.laplace(0.0, 1.0, n_items)
    value = theta + rng.standard_normal(n_items)
    score = _out_of_fold(x, value)
    return pd.DataFrame({"score": score, "value": value, "noise_sd": 1.0, "theta": theta})


def _out_of_fold(x: Floats, y: Floats) -> Floats:
    """Predictions of least squares with an intercept, each fold's from the other folds."""
    design = np.column_stack([np.ones(len(y)), x])
    folds = [slice(fold, None, _FOLDS) for fold in range(_FOLDS)]
    products = [design[fold].T @ design[fold] for fold in folds]
    targets = [design[fold].T @ y[fold] for fold in folds]
    score = np.empty(len(y))
    for k, fold in enumerate(folds):
        gram = np.sum(np.delete(products, k, axis=0), axis=0)
        coefficients = np.linalg.solve(gram, np.sum(np.delete(targets, k, axis=0), axis=0))
        score[fold] = coefficients[0] + x[fold] @ coefficients[1:]
    return score


def laplace_oracle(table: pd.DataFrame) -> tuple[Floats, Floats]:
    """Posterior mean and variance of theta given t and y: the best that their user can do.

    The regression of y on x is x'b + 0.01, as (x'g)^2 = 0.01 chi2_1 has the mean 0.01; and x'g is
    independent of x'b, because g is orthogonal to b. If the coefficients were known,
    theta - (t - 0.01) would be, at every t, the sum of 0.01 chi2_1 and a Laplace variable. Their
    errors, of about 6/sqrt(n_items) in t, are left out: they add 40/n_items to a variance of 2.

    Given x'g the posterior is two pieces of Normals, in closed form; over x'g Gauss-Hermite, and
    over y - t a cubic spline on a fine grid.

    Parameters
    ----------
    table
        Items of `laplace_effects`: columns score, value and noise_sd, all 1.

    Returns
    -------
    tuple of numpy.ndarray
        E(theta | t, y) and Var(theta | t, y), each of shape (n,), with errors below 1e-8.

    Raises
    ------
    ItemsError
        If the table has no such columns, or a value is more than 1,000 from its score, as none
        of `laplace_effects` ever is.

    Examples
    --------
    >>> mean, variance = laplace_oracle(laplace_effects(2000))
    >>> bool((variance < 1.02).all())
    True
    """
    A(pd.DataFrame, "a table that laplace_effects made")(table, "table", ItemsError)
    absent = [name for name in ("score", "value") if name not in table]
    if absent:
        raise ItemsError(f"the table has no column {absent[0]!r}: give one of laplace_effects")
    base = table["score"].to_numpy() - _BEND
    away = table["value"].to_numpy() - base
    bad = ~(np.abs(away) <= _FARTHEST_VALUE)
    if bad.any():
        raise ItemsError(
            f"value: {int(bad.sum()):,} of {bad.size:,} are more than {_FARTHEST_VALUE:,.0f} from "
            "their scores: give items of soc.simulation.laplace_effects"
        )
    grid = np.arange(away.min() - _STEP, away.max() + 2 * _STEP, _STEP)
    moments = CubicSpline(grid, np.stack(_effect_moments(grid), axis=1))(away)
    return base + moments[:, 0], moments[:, 1]


def _effect_moments(away: Floats) -> tuple[Floats, Floats]:
    """Mean and variance of the effect c + e given c + e + noise, c = 0.01 chi2_1, e Laplace."""
    node, weight = hermegauss(_NODES)
    bend = _BEND * node[:, None] ** 2
    v = away - bend
    # with e > 0 the product of exp(-e) and the noise's density is a Normal around v - 1, cut at 0;
    # with e < 0 around v + 1
    up, down = v - 1.0, -v - 1.0
    log_up, log_down = special.log_ndtr(up) - v, special.log_ndtr(down) + v
    log_marginal = np.logaddexp(log_up, log_down)
    share = np.exp(log_up - log_marginal)
    hazard_up, hazard_down = _hazard(up), _hazard(down)
    first = share * (up + hazard_up) - (1.0 - share) * (down + hazard_down)
    second = share * (1.0 + up * (up + hazard_up))
    second += (1.0 - share) * (1.0 + down * (down + hazard_down))
    log_weight = np.log(weight)[:, None] + log_marginal
    posterior = np.exp(log_weight - special.logsumexp(log_weight, axis=0))
    mean = (posterior * (bend + first)).sum(axis=0)
    within = (posterior * (second - first**2)).sum(axis=0)
    return mean, within + (posterior * (bend + first - mean) ** 2).sum(axis=0)


def _hazard(z: Floats) -> Floats:
    """Normal density over distribution function at z."""
    return np.asarray(np.exp(-0.5 * z * z - 0.5 * np.log(2 * np.pi) - special.log_ndtr(z)))


def _generator(n_items: Any, seed: Any, columns: int, least: int = 0) -> np.random.Generator:
    """Random numbers for so many items, each of `columns` numbers that are held at once."""
    number = Whole(least)(n_items, "n_items")
    refuse_beyond_memory(8.0 * columns * number, f"n_items={number:,}", "ask for fewer")
    return np.random.default_rng(SEED(seed, "seed"))


def _bias_and_sd(delta: Any, sigma: Any) -> tuple[float, float]:
    """Mean and sd of the logarithm of a rate over its score."""
    delta = Real(above=-_FARTHEST_MEAN, below=_FARTHEST_MEAN)(delta, "delta")
    sigma = POSITIVE(sigma, "sigma")
    if sigma > _WIDEST:
        raise FitError(f"sigma={sigma:g} must be at most {_WIDEST:g}")
    return delta, sigma


def _counts(rng: np.random.Generator, expected: Floats) -> NDArray[np.int64]:
    """Poisson counts whose means are >= 0 and not too large for exact whole numbers."""
    bad = ~((expected >= 0) & (expected <= LARGEST_COUNT))
    if bad.any():
        raise FitError(
            f"{int(bad.sum()):,} of {bad.size:,} items would have mean counts that are below 0, "
            "missing or beyond 2^53: give other scores, exposures, delta or sigma"
        )
    return np.asarray(rng.poisson(expected))


def _finite(value: Any, name: str, positive: bool = False) -> Floats:
    """Finite numbers, all above 0 or all at least 0."""
    array = numbers_of(value, name)
    bad = ~(((array > 0) if positive else (array >= 0)) & np.isfinite(array))
    if bad.any():
        rule = "above 0" if positive else "of at least 0"
        raise FitError(
            f"{name}: {int(bad.sum()):,} of {array.size:,} are not finite numbers {rule}"
        )
    return array


def _one_of_each(score: Floats, *others: Floats) -> None:
    if score.ndim != 1 or any(other.shape not in ((), score.shape) for other in others):
        raise FitError(f"score has the shape {score.shape}: give one number of each for every item")
