"""What the marginal of outcomes says of theta by itself: Section 4 and the Appendix of the paper.

Posterior moments of theta need only the marginal distribution of outcomes: Robbins' formulas for
Poisson counts, Tweedie's and its higher orders for continuous natural exponential families.
`docs/dev/reproduction.md` lists what is wrong in print.

With y of density f_eta(y) = exp(eta y - psi(eta)) f_0(y), the ratio of the marginal and the base
density, f_G / f_0 = integral of exp(eta y - psi(eta)) dG, is in y a moment generating function of
the posterior: kappa_k(eta | y) = (d/dy)^k log f_G - (d/dy)^k log f_0.
"""

from collections.abc import Callable
from math import comb

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._lib.arguments import DRAWS, POSITIVE, Real, Whole, many, numbers_of
from ._lib.arrays import Floats
from ._lib.errors import FitError, ItemsError

__all__ = ["nef_cumulants", "poisson_bound", "poisson_cumulants", "poisson_moment", "tweedie"]

_ORDERS = Whole(1, 100)  # factorials of more leave no digits
_TAIL = 1e-12  # probability that the counts of a bound leave out

LogPmf = Callable[[Floats], Floats] | ArrayLike


def __dir__() -> list[str]:
    return sorted(__all__)


def poisson_moment(
    count: ArrayLike, exposure: ArrayLike, log_pmf: LogPmf, order: int = 1, *, rho: float = 0.0
) -> Floats:
    """E(theta^k | y) of items with y ~ Poisson(theta N), from the marginal f alone.

    Robbins' formula of any order: (y + 1) ... (y + k) f(y + k) / (N^k f(y)), formed in logarithms.
    Regularised, it is w E(theta^k | y) + (1 - w) y (y - 1) ... (y - k + 1) / N^k with w =
    min(1, f / rho): the paper's Appendix after Zhang (1997). The second part is the unbiased
    estimate.

    Parameters
    ----------
    count, exposure
        Items, each of shape (n,) or a number; exposures above 0.
    log_pmf
        Log of the marginal f: a function of an array of counts, or a table of counts 0, 1, ... A
        function sees the items' counts in order and may depend on their exposures; what it returns
        has the counts' shape, or more axes before it (draws of a prior).
    order
        k, at least 1.
    rho
        Probability below which the marginal is not trusted, 0 for none.

    Returns
    -------
    numpy.ndarray
        Moments about zero, of the shape that `log_pmf` returns: errors relative to the moment are
        those of log f, absolute.

    Raises
    ------
    ItemsError
        If counts are not whole or exposures are not positive.
    FitError
        If the marginal gives a count probability 0 and rho is 0, the table ends before it, or rho
        is negative.

    Examples
    --------
    >>> import numpy as np
    >>> log_pmf = lambda y: y * np.log(2 / 3) + np.log(1 / 3)  # of rates Exponential of mean 2
    >>> poisson_moment([0, 5], 1.0, log_pmf)  # (y + 1) 2/3
    array([0.66666667, 4.        ])
    >>> poisson_moment([5, 100], 1.0, log_pmf, rho=0.01)
    array([  4., 100.])
    """
    y, n = _checked(count, exposure, order)
    log_rho = _log_of_rho(rho)
    f = _as_function(log_pmf)
    here, ahead = f(y), f(y + order)
    below = np.maximum(here, log_rho)
    _refuse_zero(below)
    moment = np.exp(_log_rising(y, order) - order * np.log(n) + ahead - below)
    unbiased = np.ones(np.broadcast_shapes(y.shape, n.shape))
    for j in range(order):
        unbiased = unbiased * np.maximum(y - j, 0.0) / n
    return np.asarray(moment - np.expm1(here - below) * unbiased)


def poisson_cumulants(
    count: ArrayLike, exposure: ArrayLike, log_pmf: LogPmf, order: int = 2
) -> Floats:
    """Posterior mean, variance and further cumulants of theta, from the marginal alone.

    Parameters
    ----------
    count, exposure, log_pmf
        As of `poisson_moment`.
    order
        How many cumulants, at least 1.

    Returns
    -------
    numpy.ndarray
        Shape (order, ...). Cumulants are differences of moments: the k-th keeps the digits of
        log f minus those of E(theta)^k / kappa_k (the variance after 1,000 events loses 3).

    Raises
    ------
    ItemsError, FitError
        As `poisson_moment`.

    Examples
    --------
    >>> import numpy as np
    >>> log_pmf = lambda y: y * np.log(2 / 3) + np.log(1 / 3)
    >>> poisson_cumulants(5, 1.0, log_pmf)  # of Gamma(6, 3/2)
    array([4.        , 2.66666667])
    """
    y, n = _checked(count, exposure, order)
    f = _as_function(log_pmf)
    here = f(y)
    _refuse_zero(here)
    orders = range(1, order + 1)
    logs = [_log_rising(y, k) - k * np.log(n) + f(y + k) - here for k in orders]
    relative = np.stack([np.exp(log - k * logs[0]) for k, log in enumerate(logs, 1)])
    power = np.arange(1, order + 1).reshape(-1, *[1] * logs[0].ndim)
    return np.asarray(_cumulants(relative) * np.exp(power * logs[0]))


def poisson_bound(
    true: LogPmf, estimate: LogPmf, exposure: float, order: int = 1, *, rho: float, highest: int
) -> dict[str, float]:
    """Error of E(theta^k | y) by an estimated marginal, and its bound (Theorem 1, Lemma 1).

    Parameters
    ----------
    true, estimate
        Log marginals f_G and f_Ghat of counts, both of Poisson mixtures, as of `poisson_moment`.
    exposure, order, rho
        N, one for all counts; k; and rho, above 0: as of `poisson_moment`.
    highest
        Sums are over counts 0 to `highest`. C has moments of order 4k: go far.

    Returns
    -------
    dict
        ``error``, the norm of the regularised estimate's error, and ``bound`` = (C distance + D) /
        N^k, which is never below it; C as ``constant``, by the true marginal, rho and k; D as
        ``remainder``, what regularising the true marginal costs, which vanishes with rho; and
        ``distance``, ||(fhat - f)^2||^(1/2) at y and at y + k, added. Norms are ||h|| = (sum of
        h(y)^2 f_G(y))^(1/2).

    Raises
    ------
    FitError
        If rho is not positive, or the counts leave out a part of f_G above 1e-12.

    Examples
    --------
    >>> import numpy as np
    >>> def geometric(mean):
    ...     return lambda y: y * np.log(mean / (1 + mean)) - np.log(1 + mean)
    >>> found = poisson_bound(geometric(1.0), geometric(1.1), 1.0, rho=0.01, highest=60)
    >>> found["error"] <= found["bound"]
    True
    """
    if not Real()(rho, "rho") > 0:
        raise FitError(f"rho={rho} must be above 0: the bound divides by it")
    _ORDERS(order, "order")
    POSITIVE(exposure, "exposure")
    y = np.arange(DRAWS(highest, "highest") + 1, dtype=float)
    f, f_hat = (_as_function(g) for g in (true, estimate))
    weight = np.exp(f(y))
    if weight.sum() < 1 - _TAIL:
        raise FitError(
            f"counts to {highest} have probability {weight.sum():.12g} only: raise highest="
        )
    ahead = np.exp(f(y + order))
    rising = np.exp(_log_rising(y, order))
    falling = np.prod([np.maximum(y - j, 0.0) for j in range(order)], axis=0)
    correction = ahead * rising - weight * falling
    size = float(exposure) ** order

    def norm(h: Floats) -> float:
        return float(np.sqrt(h**2 @ weight))

    def root_norm(h: Floats) -> float:  # ||h^2||^(1/2)
        return float(np.sqrt(norm(h * h)))

    distance = root_norm(np.exp(f_hat(y)) - weight) + root_norm(np.exp(f_hat(y + order)) - ahead)
    numerator, divisor = root_norm(correction), root_norm(falling) + root_norm(rising)

    def scaled(length: float) -> float:  # rho twice, as its square may be below all numbers
        return numerator * length / rho / rho + divisor * length / rho

    # counts of probability 0 have no weight in the norms
    positive = np.where(weight > 0, weight, 1.0)
    remainder = norm(correction / positive * np.maximum(1.0 - positive / rho, 0.0))
    exact = ahead * rising / positive / size
    error = norm(poisson_moment(y, exposure, f_hat, order, rho=rho) - exact)
    return {
        "error": error,
        "bound": (scaled(distance) + remainder) / size,
        "constant": scaled(1.0),
        "remainder": remainder,
        "distance": distance,
    }


def nef_cumulants(
    base: ArrayLike,
    marginal: ArrayLike,
    *,
    log_density: ArrayLike | None = None,
    rho: float = 0.0,
) -> Floats:
    """Posterior cumulants of the natural parameter: derivatives of log(f_G / f_0).

    Regularised after the paper's Appendix, ratios f_G^(j) / f_G are divided by max(f_G, rho)
    instead. In the far tails they vanish: the mean is then the unbiased estimate of eta, for Normal
    outcomes that of a flat prior.

    Parameters
    ----------
    base, marginal
        Derivatives of log f_0 and of log f_G at the items' outcomes, each of shape (k, ...).
    log_density, rho
        log f_G at the outcomes, and the density per unit of y below which it is not trusted; rho
        above 0 needs both.

    Returns
    -------
    numpy.ndarray
        Cumulants of eta, orders 1 to k; of c eta they are c^j times these.

    Raises
    ------
    FitError
        If shapes do not agree, or rho is negative, or above 0 without `log_density`.
    ItemsError
        If a derivative is not a finite number, or log_density is none where rho is 0.

    Examples
    --------
    Exponential times y, whose f_0 is constant, with rates -eta that are Gamma(2, 3); the marginal
    is (y + 3)^-3:

    >>> import numpy as np
    >>> marginal = np.array([-3 / 4, 3 / 16])  # at y = 1
    >>> nef_cumulants(np.zeros(2), marginal)  # rate: Gamma(3, 4)
    array([-0.75  ,  0.1875])
    """
    low, top = numbers_of(base, "base"), _orders_of(marginal)
    if low.shape != top.shape:
        raise FitError(f"base has the shape {low.shape}, marginal {top.shape}: they must be equal")
    for name, array in (("base", low), ("marginal", top)):
        _refuse(~np.isfinite(array), name, "finite numbers")
    if log_density is None:
        if Real()(rho, "rho") != 0:
            raise FitError(f"rho={rho} needs log_density, the marginal that it is compared with")
        return np.asarray(top - low)
    log_f = numbers_of(log_density, "log_density")
    log_rho = _log_of_rho(rho)
    none = np.isnan(log_f) | (log_f == np.inf) | ((log_f == -np.inf) & (rho == 0))
    _refuse(none, "log_density", "numbers (with rho above 0 it may be -inf)")
    if log_f.shape not in ((), top.shape[1:]):
        raise FitError(f"log_density has the shape {log_f.shape}, items {top.shape[1:]}")
    trust = np.exp(log_f - np.maximum(log_f, log_rho))
    return np.asarray(_cumulants(trust * _moments(top)) - low)


def tweedie(
    value: ArrayLike,
    noise_sd: ArrayLike,
    marginal: ArrayLike,
    *,
    log_density: ArrayLike | None = None,
    rho: float = 0.0,
) -> Floats:
    """Posterior cumulants of theta for y ~ Normal(theta, s^2): y + s^2 f'/f, s^2 + s^4 (log f)''...

    Tweedie's formula (Robbins 1954, Efron 2011) and its higher orders.

    Parameters
    ----------
    value, noise_sd
        Items, each of shape (n,) or a number; noise sds above 0.
    marginal
        Derivatives of log f at the values, shape (k, ..., n).
    log_density, rho
        As of `nef_cumulants`.

    Returns
    -------
    numpy.ndarray
        Mean, variance, third cumulant, ..., shape (k, ..., n).

    Raises
    ------
    ItemsError, FitError
        If noise sds are not positive, or as in `nef_cumulants`.

    Examples
    --------
    >>> import numpy as np
    >>> tweedie(2.0, 1.0, np.array([-1.0, -0.5]))  # Normal(0, 2) marginal of a Normal(0, 1) prior
    array([1. , 0.5])
    """
    y, s = many({"value": value, "noise_sd": noise_sd}, ItemsError)
    _refuse(~(s > 0), "noise_sd", "above 0")
    top = _orders_of(marginal)
    base = np.zeros(top.shape)  # f_0 is Normal(0, s^2), of natural parameter theta / s^2
    try:
        base[0] = -y / s**2
        base[1:2] = -1.0 / s**2
    except ValueError:
        raise FitError(
            f"marginal has the shape {top.shape}: its last axes must be those of value and noise_sd"
        ) from None
    cumulants = nef_cumulants(base, top, log_density=log_density, rho=rho)
    return np.stack([cumulant * s ** (2 * k) for k, cumulant in enumerate(cumulants, 1)])


def _cumulants(moments: Floats) -> Floats:
    """Cumulants from moments about zero, stacked: the polynomials p_k of the paper's Appendix."""
    out = moments.copy()
    for n in range(1, len(moments)):
        for m in range(n):
            out[n] -= comb(n, m) * out[m] * moments[n - m - 1]
    return out


def _moments(cumulants: Floats) -> Floats:
    """The inverse, which also turns derivatives of log f into f'/f, f''/f, ..."""
    out = cumulants.copy()
    for n in range(1, len(cumulants)):
        for m in range(n):
            out[n] += comb(n, m) * cumulants[m] * out[n - m - 1]
    return out


def _log_rising(count: Floats, order: int) -> Floats:
    """Log of (y + 1) ... (y + k)."""
    return np.asarray(sum(np.log(count + j) for j in range(1, order + 1)))


def _as_function(log_pmf: LogPmf) -> Callable[[Floats], Floats]:
    """The marginal as a function of counts, of a table if need be."""
    if callable(log_pmf):

        def evaluate(count: Floats) -> Floats:
            values = np.asarray(log_pmf(count), dtype=float)
            if values.shape[max(values.ndim - count.ndim, 0) :] != count.shape:
                raise FitError(
                    f"log_pmf returned the shape {values.shape} for counts of the shape "
                    f"{count.shape}: it must give a logarithm for every count"
                )
            return values

        return evaluate
    wanted = "a function of counts, or a table of logarithms of counts 0, 1, ..."
    table = numbers_of(log_pmf, "log_pmf", wanted=wanted)
    if table.ndim != 1:
        raise FitError(f"log_pmf has the shape {table.shape}: give one number for each count")

    def look_up(count: Floats) -> Floats:
        beyond = count >= len(table)
        if np.any(beyond):
            raise FitError(
                f"{int(np.sum(beyond))} counts (with the moment's order added) lie beyond the "
                f"table's last, {len(table) - 1}: give a longer table or a function"
            )
        return np.asarray(table[np.asarray(count, dtype=np.intp)])

    return look_up


def _refuse_zero(log_density: Floats) -> None:
    bad = int(np.sum(~(log_density > -np.inf)))
    if bad:
        raise FitError(f"the marginal gives {bad} counts probability 0 or none: use rho above 0")


def _checked(count: ArrayLike, exposure: ArrayLike, order: int) -> tuple[Floats, Floats]:
    y, n = many({"count": count, "exposure": exposure}, ItemsError)
    _ORDERS(order, "order")
    _refuse(~((y >= 0) & (y == np.floor(y)) & np.isfinite(y)), "count", "whole numbers from 0 on")
    rule = "above 0: without it theta has its prior alone"
    _refuse(~((n > 0) & np.isfinite(n)), "exposure", rule)
    return y, n


def _orders_of(marginal: ArrayLike) -> Floats:
    """Derivatives of the log marginal, order 1 first."""
    derivatives = numbers_of(marginal, "marginal")
    if derivatives.ndim == 0 or len(derivatives) == 0:
        raise FitError("marginal has no orders: stack the derivatives, order 1 first")
    return derivatives


def _refuse(bad: NDArray[np.bool_], name: str, rule: str) -> None:
    """Refuse items that break a rule, with their number."""
    if np.any(bad):
        raise ItemsError(f"{name}: {int(np.sum(bad))} rows are not {rule}")


def _log_of_rho(rho: float) -> float:
    """Logarithm of rho, -inf for 0; refuses what is negative or no number."""
    if Real()(rho, "rho") < 0:
        raise FitError(f"rho={rho} must be 0 or above")
    return float(np.log(float(rho))) if rho > 0 else -np.inf
