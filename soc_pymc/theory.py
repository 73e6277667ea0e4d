"""Inference on theta from the marginal of outcomes alone: Section 4 and Appendix of the paper.

With y of density f_eta(y) = exp(eta y - psi(eta)) f_0(y), the posterior's cumulants are
kappa_k(eta | y) = (d/dy)^k log f_G - (d/dy)^k log f_0, with f_G the marginal.
"""

from collections.abc import Callable
from math import comb

import numpy as np
from numpy.typing import ArrayLike

from ._lib.arguments import POSITIVE, FitError, ItemsError, Whole, numbers_of
from ._lib.arrays import Bools, Floats

__all__ = [
    "nef_cumulants",
    "poisson_bound",
    "poisson_cumulants",
    "poisson_moment",
    "tweedie",
]

LogPmf = Callable[[Floats], ArrayLike]


def poisson_moment(
    count: ArrayLike,
    exposure: ArrayLike,
    log_pmf: LogPmf,
    order: int = 1,
    *,
    rho: float = 0.0,
) -> Floats:
    """Return E(theta^k | y) of items with y ~ Poisson(theta N), from the marginal f alone.

    Robbins' formula (y + 1) ... (y + k) f(y + k) / (N^k f(y)). Regularised (the Appendix), it is
    w E(theta^k | y) + (1 - w) y (y - 1) ... (y - k + 1) / N^k with w = min(1, f / rho).

    Parameters
    ----------
    count : int or array_like, shape (n,)
        Counts y.
    exposure : float or array_like, shape (n,)
        Exposures N, above 0.
    log_pmf : Callable
        Log of the marginal f, a function of an array of counts; axes before theirs may be draws.
    order : int
        k, from 1 to 100.
    rho : float
        Probability below which the marginal is not trusted, 0 for none.

    Returns
    -------
    numpy.ndarray
        Moments about zero, of the shape that `log_pmf` returns.

    Raises
    ------
    FitError
        If the marginal gives a count probability 0 and rho is 0.
    ItemsError
        If counts are not whole numbers from 0 on, or exposures not above 0.

    References
    ----------
    .. [1] Muralidharan and Najmi (2015), Second order calibration: a simple way to get
       approximate posteriors.

    Examples
    --------
    >>> log_pmf = lambda y: y * np.log(2 / 3) + np.log(1 / 3)  # of rates Exponential of mean 2
    >>> poisson_moment([0, 5], 1.0, log_pmf)  # (y + 1) 2/3
    array([0.66666667, 4.        ])
    """
    y = numbers_of(count, "count", ItemsError)
    n = numbers_of(exposure, "exposure", ItemsError)
    # factorials of more leave no digits
    Whole(1, 100)(order, "order")
    _refuse(
        ~((y >= 0) & (y == np.floor(y)) & (y < np.inf)),
        "count",
        "whole numbers from 0 on",
    )
    _refuse(
        ~((n > 0) & (n < np.inf)),
        "exposure",
        "above 0: without it theta has its prior alone",
    )
    log_f, ahead = (np.asarray(log_pmf(y + k), dtype=float) for k in (0, order))
    divisor = np.maximum(log_f, _log_of(rho))
    if infinite := int(np.sum(~(divisor > -np.inf))):
        raise FitError(
            f"the marginal gives {infinite} counts probability 0 or none: use rho above 0"
        )
    rising = sum(np.log(y + j + 1) - np.log(n) for j in range(order))
    unbiased = np.prod([np.maximum(y - j, 0.0) / n for j in range(order)], axis=0)
    return np.exp(rising + ahead - divisor) - np.expm1(log_f - divisor) * unbiased


def poisson_cumulants(
    count: ArrayLike, exposure: ArrayLike, log_pmf: LogPmf, order: int = 2
) -> Floats:
    """Return the posterior mean, variance and further cumulants of theta, from the marginal alone.

    Parameters
    ----------
    count : int or array_like, shape (n,)
        As in `poisson_moment`.
    exposure : float or array_like, shape (n,)
        As in `poisson_moment`.
    log_pmf : Callable
        As in `poisson_moment`.
    order : int
        The highest order: 1 to `order` are returned.

    Returns
    -------
    numpy.ndarray
        Shape (order, ...), with the digits of log f minus those of E(theta)^k / kappa_k.

    Raises
    ------
    FitError, ItemsError
        As for `poisson_moment`.

    References
    ----------
    .. [1] Muralidharan and Najmi (2015), Second order calibration: a simple way to get
       approximate posteriors.

    Examples
    --------
    >>> log_pmf = lambda y: y * np.log(2 / 3) + np.log(1 / 3)
    >>> poisson_cumulants(5, 1.0, log_pmf)  # of Gamma(6, 3/2)
    array([4.        , 2.66666667])
    """
    orders = range(1, Whole(1, 100)(order, "order") + 1)
    moments = np.stack([poisson_moment(count, exposure, log_pmf, k) for k in orders])
    power = np.stack([moments[0] ** k for k in orders])
    return _converted(moments / power, -1) * power


def poisson_bound(
    true: LogPmf,
    estimate: LogPmf,
    exposure: float,
    order: int = 1,
    *,
    rho: float,
    highest: int,
) -> dict[str, float]:
    """Return the error of E(theta^k | y) by an estimated marginal, and its bound (Theorem 1).

    Parameters
    ----------
    true : Callable
        Log marginal of a Poisson mixture, of an array of counts.
    estimate : Callable
        Another one, its estimate.
    exposure : float
        N, one for all counts.
    order : int
        k.
    rho : float
        Probability below which the estimate is not trusted, above 0.
    highest : int
        The largest count of the sums: go far.

    Returns
    -------
    dict
        ``error``, the norm of the regularised estimate's error, and ``bound`` = (constant distance
        + remainder) / N^k, which is never below it; ``distance`` is ||(fhat - f)^2||^(1/2) at y and
        at y + k, added. Norms are ||h|| = (sum of h(y)^2 f_G(y))^(1/2).

    Raises
    ------
    FitError
        If counts up to `highest` do not have all the probability.

    References
    ----------
    .. [1] Muralidharan and Najmi (2015), Second order calibration: a simple way to get
       approximate posteriors.

    Examples
    --------
    >>> true, estimate = (lambda y, m=m: y * np.log(m / (1 + m)) - np.log(1 + m) for m in (1, 1.1))
    >>> result = poisson_bound(true, estimate, 1.0, rho=0.01, highest=60)
    >>> result["error"] <= result["bound"]
    True
    """
    size = POSITIVE(exposure, "exposure") ** order
    POSITIVE(rho, "rho")
    y = np.arange(Whole(1, 10_000_000)(highest, "highest") + 1, dtype=float)
    f, ahead, f_hat, ahead_hat = (
        np.exp(g(y + k)) for g in (true, estimate) for k in (0, order)
    )
    if f.sum() < 1 - 1e-12:
        raise FitError(
            f"counts to {highest} have probability {f.sum():.12g} only: raise highest="
        )

    # ||h^power||^(1 / power)
    def norm(h: Floats, power: int = 1) -> float:
        return float((h ** (2 * power) @ f) ** (0.5 / power))

    steps = np.arange(order, dtype=float)[:, None]
    rising = np.prod(y + 1 + steps, axis=0)
    falling = np.prod(np.maximum(y - steps, 0.0), axis=0)
    correction = ahead * rising - f * falling
    distance = norm(f_hat - f, 2) + norm(ahead_hat - ahead, 2)
    constant = (
        norm(correction, 2) / rho / rho + (norm(falling, 2) + norm(rising, 2)) / rho
    )
    # counts of probability 0 have no weight in the norms
    positive = np.where(f > 0, f, 1.0)
    remainder = norm(correction / positive * np.maximum(1.0 - positive / rho, 0.0))
    regularised = poisson_moment(y, exposure, estimate, order, rho=rho)
    error = norm(regularised - ahead * rising / positive / size)
    parts = {"constant": constant, "remainder": remainder, "distance": distance}
    return {"error": error, "bound": (constant * distance + remainder) / size, **parts}


def nef_cumulants(
    base: ArrayLike,
    marginal: ArrayLike,
    *,
    log_density: ArrayLike | None = None,
    rho: float = 0.0,
) -> Floats:
    """Return posterior cumulants of the natural parameter: derivatives of log(f_G / f_0).

    Regularised (the Appendix), derivatives of f_G are divided by max(f_G, rho) instead of f_G.

    Parameters
    ----------
    base : array_like, shape (k, ...)
        Derivatives of log f_0 at the outcomes.
    marginal : array_like, shape (k, ...)
        Derivatives of log f_G there.
    log_density : array_like, shape (...), or None
        log f_G there.
    rho : float
        Density below which it is not trusted, 0 for none.

    Returns
    -------
    numpy.ndarray
        Cumulants of eta, orders 1 to k.

    Raises
    ------
    FitError
        If shapes differ, or rho is given without `log_density`.

    References
    ----------
    .. [1] Muralidharan and Najmi (2015), Second order calibration: a simple way to get
       approximate posteriors.

    Examples
    --------
    >>> marginal = np.array([-3 / 4, 3 / 16])  # of an Exponential time of 1 with Gamma(2, 3) rates
    >>> nef_cumulants(np.zeros(2), marginal)  # of minus the rate: Gamma(3, 4)
    array([-0.75  ,  0.1875])
    """
    low = numbers_of(base, "base")
    top = numbers_of(marginal, "marginal")
    if low.shape != top.shape or not top.size:
        raise FitError(
            f"base has the shape {low.shape}, marginal {top.shape}: they must be equal"
        )
    if log_density is None:
        if rho:
            raise FitError(
                f"rho={rho} needs log_density, the marginal that it is compared with"
            )
        return top - low
    log_f = numbers_of(log_density, "log_density")
    trust = np.exp(log_f - np.maximum(log_f, _log_of(rho)))
    _refuse(np.isnan(trust), "log_density", "numbers (with rho above 0 it may be -inf)")
    return _converted(trust * _converted(top, 1), -1) - low


def tweedie(
    value: ArrayLike, noise_sd: ArrayLike, marginal: ArrayLike, *,
    log_density: ArrayLike | None = None, rho: float = 0.0,
) -> Floats:  # fmt: skip
    """Return posterior cumulants of theta for y ~ Normal(theta, s^2), by Tweedie's formula.

    Parameters
    ----------
    value : float or array_like, shape (n,)
        Values y.
    noise_sd : float or array_like, shape (n,)
        Noise sds s, above 0.
    marginal : array_like, shape (k, ..., n)
        As in `nef_cumulants`.
    log_density : array_like, shape (..., n), or None
        As in `nef_cumulants`.
    rho : float
        As in `nef_cumulants`.

    Returns
    -------
    numpy.ndarray
        Mean y + s^2 f'/f, variance, third cumulant, ..., shape (k, ..., n).

    Raises
    ------
    FitError, ItemsError
        As for `nef_cumulants`; or if noise sds are not above 0.

    References
    ----------
    .. [1] Efron (2011), Tweedie's formula and selection bias, Journal of the American Statistical
       Association 106, 1602-1614.

    Examples
    --------
    >>> tweedie(2.0, 1.0, np.array([-1.0, -0.5]))  # Normal(0, 2) marginal of a Normal(0, 1) prior
    array([1. , 0.5])
    """
    y = numbers_of(value, "value", ItemsError)
    s = numbers_of(noise_sd, "noise_sd", ItemsError)
    _refuse(~(s > 0), "noise_sd", "above 0")
    top = numbers_of(marginal, "marginal")
    # f_0 is Normal(0, s^2), of natural parameter theta / s^2
    base = np.zeros(top.shape)
    base[:1] = -y / s**2
    base[1:2] = -1.0 / s**2
    cumulants = nef_cumulants(base, top, log_density=log_density, rho=rho)
    return np.stack(
        [cumulant * s ** (2 * k) for k, cumulant in enumerate(cumulants, 1)]
    )


def _converted(values: Floats, sign: int) -> Floats:
    """Return moments about zero from cumulants (sign 1), or cumulants from moments (-1)."""
    out = values.copy()
    cumulants, moments = (values, out) if sign > 0 else (out, values)
    for n, m in zip(*np.tril_indices(len(values), -1), strict=True):
        out[n] += sign * comb(n, m) * cumulants[m] * moments[n - m - 1]
    return out


def _log_of(rho: float) -> float:
    return float(np.log(POSITIVE(rho, "rho"))) if rho else -np.inf


def _refuse(invalid: Bools, name: str, rule: str) -> None:
    if np.any(invalid):
        raise ItemsError(f"{name}: {int(np.sum(invalid))} rows are not {rule}")
