"""Posterior cumulants in continuous natural exponential families, from the marginal's derivatives.

With y of density f_eta(y) = exp(eta y - psi(eta)) f_0(y), the ratio of the marginal and the base
density, f_G / f_0 = integral of exp(eta y - psi(eta)) dG, is in y a moment generating function of
the posterior: kappa_k(eta | y) = (d/dy)^k log f_G - (d/dy)^k log f_0.

Moments about zero turn into cumulants and back by Kendall and Stuart, section 3.14. Cumulants,
moments and derivatives of logarithms come stacked, order 1 first, shape (k, ...).
"""

from collections.abc import Callable
from math import comb

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import ArrayLike, NDArray

from .._lib.arguments import A, Real, Whole, many, numbers_of
from .._lib.arrays import Floats
from .._lib.errors import FitError, ItemsError

MOST_ORDERS = 100  # factorials of more leave no digits
_NODES = 25  # an odd number, so that the middle is one of them


def cumulants_from_moments(moments: ArrayLike) -> Floats:
    """Cumulants from moments about zero: the polynomials p_k of the paper's Appendix.

    Parameters
    ----------
    moments
        E(theta), E(theta^2), ..., shape (k, ...).

    Returns
    -------
    numpy.ndarray
        Of the same shape; not finite where a product of moments is beyond 1e308.

    Examples
    --------
    >>> cumulants_from_moments([1.0, 2.0, 6.0])  # Exponential(1): (k - 1)!
    array([1., 1., 2.])
    """
    mu = _stacked(moments, "moments")
    out = mu.copy()
    for n in range(1, len(mu)):
        for m in range(n):
            out[n] -= comb(n, m) * out[m] * mu[n - m - 1]
    return out


def moments_from_cumulants(cumulants: ArrayLike) -> Floats:
    """Moments about zero from cumulants: the inverse of `cumulants_from_moments`.

    Also turns derivatives of log f into the ratios f'/f, f''/f, ...: the algebra is the same.

    Parameters
    ----------
    cumulants
        Mean, variance, third cumulant, ..., shape (k, ...).

    Returns
    -------
    numpy.ndarray
        Of the same shape; not finite where a moment is beyond 1e308.

    Examples
    --------
    >>> moments_from_cumulants([0.0, 1.0, 0.0, 0.0])  # Normal(0, 1)
    array([0., 1., 0., 3.])
    """
    kappa = _stacked(cumulants, "cumulants")
    out = kappa.copy()
    for n in range(1, len(kappa)):
        for m in range(n):
            out[n] += comb(n, m) * kappa[m] * out[n - m - 1]
    return out


def nef_cumulants(base: ArrayLike, marginal: ArrayLike) -> Floats:
    """Posterior cumulants of the natural parameter: derivatives of log(f_G / f_0).

    Parameters
    ----------
    base, marginal
        Derivatives of log f_0 at the items' outcomes (`normal_base`, `gamma_base`), and of log f_G
        (by hand, or by `log_derivatives`), each of shape (k, ...).

    Returns
    -------
    numpy.ndarray
        Cumulants of eta, orders 1 to k; of c eta they are c^j times these.

    Raises
    ------
    FitError
        If the two are not of one shape.
    ItemsError
        If one of them is not a finite number, as where the marginal is 0.

    Examples
    --------
    Exponential times y with rates -eta that are Gamma(2, 3); the marginal is (y + 3)^-3:

    >>> import numpy as np
    >>> y = 1.0
    >>> marginal = np.array([-3 / (y + 3), 3 / (y + 3) ** 2])
    >>> nef_cumulants(gamma_base(y, shape=1.0, order=2), marginal)  # rate: Gamma(3, 4)
    array([-0.75  ,  0.1875])
    """
    low, top = _both(base, marginal)
    return np.asarray(top - low)


def regularised_nef_cumulants(
    base: ArrayLike, marginal: ArrayLike, log_density: ArrayLike, *, rho: float
) -> Floats:
    """The same with the marginal's part divided by max(f, rho), after the paper's Appendix.

    -p_k(f_0'/f_0, ...) + p_k(f_G'/max(f_G, rho), ..., f_G^(k)/max(f_G, rho)), where p_k are the
    polynomials of `cumulants_from_moments`. In the far tails the second part vanishes: the mean is
    then the unbiased estimate of eta, for Normal outcomes that of a flat prior.

    Parameters
    ----------
    base, marginal
        As of `nef_cumulants`.
    log_density, rho
        log f_G at the outcomes, and the density per unit of y below which it is not trusted.

    Returns
    -------
    numpy.ndarray
        Cumulants 1 to k of the natural parameter given y, shape (k, n).

    Raises
    ------
    FitError
        If shapes do not agree or rho is negative.
    ItemsError
        If a derivative is not a finite number, or log_density is none where rho is 0.

    Examples
    --------
    >>> import numpy as np
    >>> marginal, far = np.array([[-0.5], [-0.5]]), np.array([-1000.0])  # Normal(0, 2) at y = 1
    >>> regularised_nef_cumulants(normal_base([1.0], 1.0), marginal, far, rho=0.1)[:, 0]
    array([1., 1.])
    """
    low, top = _both(base, marginal)
    log_f = numbers_of(log_density, "log_density")
    log_rho = log_of_rho(rho)
    none = np.isnan(log_f) | (log_f == np.inf) | ((log_f == -np.inf) & (rho == 0))
    refuse(none, "log_density", "numbers (with rho above 0 it may be -inf)")
    if log_f.shape not in ((), top.shape[1:]):
        raise FitError(
            f"log_density has the shape {log_f.shape}: give one for each item, "
            f"{top.shape[1:]}, as marginal has in every order"
        )
    trust = np.exp(log_f - np.maximum(log_f, log_rho))
    return np.asarray(cumulants_from_moments(trust * moments_from_cumulants(top)) - low)


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
        As of `normal_base`.
    marginal
        Derivatives of log f at the values, shape (k, ..., n).
    log_density, rho
        As of `regularised_nef_cumulants`; log_density is needed where rho is above 0.

    Returns
    -------
    numpy.ndarray
        Mean, variance, third cumulant, ..., shape (k, ..., n).

    Raises
    ------
    ItemsError
        If noise sds are not positive, or derivatives are not finite numbers.
    FitError
        If the items are not the last axes of `marginal`, or rho is negative, or above 0 without
        `log_density`.

    Examples
    --------
    >>> import numpy as np
    >>> tweedie(2.0, 1.0, np.array([-1.0, -0.5]))  # Normal(0, 2) marginal of a Normal(0, 1) prior
    array([1. , 0.5])
    """
    top, s = numbers_of(marginal, "marginal"), numbers_of(noise_sd, "noise_sd", ItemsError)
    _check_orders(top, "marginal")
    base = _stretch(normal_base(value, noise_sd, len(top)), top.shape)
    if log_density is None:
        if Real()(rho, "rho") != 0:
            raise FitError(f"rho={rho} needs log_density, the marginal that it is compared with")
        found = nef_cumulants(base, top)
    else:
        found = regularised_nef_cumulants(base, top, log_density, rho=rho)
    return np.stack([k_th * s ** (2 * k) for k, k_th in enumerate(found, 1)])


def normal_base(value: ArrayLike, noise_sd: ArrayLike, order: int = 2) -> Floats:
    """Derivatives of log f_0 for y ~ Normal(theta, s^2), of natural parameter theta / s^2.

    Parameters
    ----------
    value, noise_sd
        Items, each of shape (n,) or a number; noise sds above 0.
    order
        How many derivatives.

    Returns
    -------
    numpy.ndarray
        Derivatives 1 to `order`, shape (order, n).

    Raises
    ------
    ItemsError
        If noise sds are not positive.

    Examples
    --------
    >>> normal_base(3.0, 2.0)  # f_0 is Normal(0, 4)
    array([-0.75, -0.25])
    """
    y, s = many({"value": value, "noise_sd": noise_sd}, ItemsError)
    Whole(1, MOST_ORDERS)(order, "order")
    refuse(~(s > 0), "noise_sd", "above 0")
    out = np.zeros((order, *np.broadcast_shapes(y.shape, s.shape)))
    out[0] = -y / s**2
    if order > 1:
        out[1] = -1.0 / s**2
    return out


def gamma_base(value: ArrayLike, shape: ArrayLike, order: int = 2) -> Floats:
    """Derivatives of log f_0 for y ~ Gamma(shape, rate) of known shape; natural parameter -rate.

    Parameters
    ----------
    value, shape
        Items, each of shape (n,) or a number, both above 0.
    order
        How many derivatives.

    Returns
    -------
    numpy.ndarray
        Shape (order, n); infinite where beyond 1e308, as at values next to 0.

    Raises
    ------
    ItemsError
        If values or shapes are not positive.

    Examples
    --------
    >>> gamma_base(2.0, 3.0)  # f_0 is proportional to y^2
    array([ 1. , -0.5])
    """
    y, a = many({"value": value, "shape": shape}, ItemsError)
    Whole(1, MOST_ORDERS)(order, "order")
    refuse(~(y > 0), "value", "above 0")
    refuse(~(a > 0), "shape", "above 0")
    terms = [(a - 1.0) / y]
    for k in range(1, order):  # step by step: a power of y may be 0 or infinite where these are not
        terms.append(terms[-1] * -k / y)
    return np.stack(terms)


def log_derivatives(
    log_density: Callable[[Floats], Floats], value: ArrayLike, reach: ArrayLike, order: int = 2
) -> Floats:
    """Derivatives of any smooth log density, by Chebyshev interpolation around every value.

    Parameters
    ----------
    log_density
        From values (n,) to logarithms, with the same last axis and perhaps more before it. It sees
        all items at once, in order, and may depend on them.
    value, order
        Where derivatives are wanted, shape (n,), and how many.
    reach
        How far to either side the density is looked at. The sd of the noise does where the prior
        is not much wider than it; for bimodal marginals take half of it.

    Returns
    -------
    numpy.ndarray
        Shape (order, ..., n). With reach h the j-th derivative errs by about 1e-14 (8/h)^j times
        the logarithm's size, if the density is smooth on that scale.

    Raises
    ------
    ItemsError
        If the density is 0, or no number, within reach of a value.

    Examples
    --------
    >>> import numpy as np
    >>> found = log_derivatives(lambda y: -0.25 * y**2, np.array([2.0]), 1.0)
    >>> bool(np.allclose(found[:, 0], [-1.0, -0.5], rtol=1e-10))
    True
    """
    A(Callable, "a function of an array of values")(log_density, "log_density")
    y, h = many({"value": value, "reach": reach}, ItemsError)
    Whole(1, _NODES - 1)(order, "order")
    refuse(~((h > 0) & np.isfinite(h)), "reach", "finite and above 0")
    nodes = chebyshev.chebpts1(_NODES)
    seen = np.stack([np.asarray(log_density(y + h * node)) for node in nodes])
    refuse(
        ~np.isfinite(seen).all(axis=0), "log_density", "finite within reach: take a shorter reach"
    )
    to_series = np.linalg.inv(chebyshev.chebvander(nodes, _NODES - 1))
    out = []
    for k in range(1, order + 1):
        slope = chebyshev.chebder(np.eye(_NODES), k)  # of each Chebyshev polynomial
        at_middle = chebyshev.chebval(0.0, slope) @ to_series
        # the middle's own value changes no derivative: without it rounding is smaller
        out.append(np.tensordot(at_middle, seen - seen[_NODES // 2], axes=1) / h**k)
    return np.stack(out)


def _stacked(given: ArrayLike, name: str) -> Floats:
    """Numbers by order."""
    found = numbers_of(given, name)
    if found.ndim == 0:
        raise FitError(f"{name}={found} must be stacked, order 1 first: give an array")
    return found


def _both(base: ArrayLike, marginal: ArrayLike) -> tuple[Floats, Floats]:
    low, top = numbers_of(base, "base"), numbers_of(marginal, "marginal")
    _check_orders(top, "marginal")
    if low.shape != top.shape:
        raise FitError(
            f"derivatives of the base density have shape {low.shape}, those of the marginal "
            f"{top.shape}: give both the same orders and items"
        )
    refuse(~np.isfinite(low), "base", "finite numbers")
    refuse(~np.isfinite(top), "marginal", "finite numbers")
    return low, top


def _check_orders(derivatives: Floats, name: str) -> None:
    if derivatives.ndim == 0 or len(derivatives) == 0:
        raise FitError(f"{name} has no orders: stack the derivatives, order 1 first")


def _stretch(base: Floats, shape: tuple[int, ...]) -> Floats:
    """The same over further axes after the first, so that draws may stand there."""
    items, wanted = base.shape[1:], shape[1:]
    try:
        return np.broadcast_to(
            base.reshape(len(base), *[1] * (len(shape) - base.ndim), *items), shape
        )
    except ValueError:
        raise FitError(
            f"marginal has derivatives of the shape {wanted}, value and noise_sd give {items}: "
            "its last axes must be theirs"
        ) from None


def refuse(bad: NDArray[np.bool_], name: str, rule: str) -> None:
    """Refuse items that break a rule, with their number."""
    if np.any(bad):
        raise ItemsError(f"{name}: {int(np.sum(bad))} rows are not {rule}")


def log_of_rho(rho: float) -> float:
    """Logarithm of rho, -inf for 0; refuses what is negative or no number."""
    if Real()(rho, "rho") < 0:
        raise FitError(f"rho={rho} must be 0 or above")
    return float(np.log(float(rho))) if rho > 0 else -np.inf
