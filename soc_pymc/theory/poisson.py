"""Posterior moments of a Poisson rate from the marginal of its counts (Robbins 1954).

What an error of the marginal can do to them at most, Theorem 1 of the paper; and how much to
regularise.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .._lib.arguments import DRAWS, POSITIVE, A, Real, Whole, many, numbers_of
from .._lib.arrays import Floats
from .._lib.errors import FitError, ItemsError
from .continuous import MOST_ORDERS, cumulants_from_moments, log_of_rho, refuse

_CANDIDATES = (0.0, *np.geomspace(1e-8, 1e-1, 15).tolist())  # for rho, by default
_TAIL = 1e-12  # probability that the counts of a bound leave out

LogPmf = Callable[[Floats], Floats] | ArrayLike
"""Log probabilities of counts: a function of an array of them, or a table of counts 0, 1, ...

A function may depend on the items (on their exposures, say): it sees their counts in order. What it
returns has the counts' shape, or more axes before it (draws of a prior).
"""


def poisson_moment(
    count: ArrayLike, exposure: ArrayLike, log_pmf: LogPmf, order: int = 1
) -> Floats:
    """E(theta^k | y) of items with y ~ Poisson(theta N), from the marginal f alone.

    Robbins' formula of any order: (y + 1) ... (y + k) f(y + k) / (N^k f(y)), formed in logarithms.

    Parameters
    ----------
    count, exposure
        Items, each of shape (n,) or a number; exposures above 0.
    log_pmf
        Log of the marginal f: see `LogPmf`.
    order
        k, at least 1.

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
        If the marginal gives a count probability 0, or the table ends before it.

    Examples
    --------
    Counts that are geometric with mean 2 come from rates that are exponential with mean 2:

    >>> import numpy as np
    >>> log_pmf = lambda y: y * np.log(2 / 3) + np.log(1 / 3)
    >>> poisson_moment([0, 5], 1.0, log_pmf)  # (y + 1) 2/3
    array([0.66666667, 4.        ])
    """
    return np.asarray(np.exp(_log_moment(*_checked(count, exposure, order), log_pmf, order)))


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
    logs = [_log_moment(y, n, log_pmf, k) for k in range(1, order + 1)]
    relative = np.stack([np.exp(log - k * logs[0]) for k, log in enumerate(logs, 1)])
    power = np.arange(1, order + 1).reshape(-1, *[1] * logs[0].ndim)
    return np.asarray(cumulants_from_moments(relative) * np.exp(power * logs[0]))


def poisson_umvu(count: ArrayLike, exposure: ArrayLike, order: int = 1) -> Floats:
    """Uniformly minimum variance unbiased estimate of theta^k: y (y - 1) ... (y - k + 1) / N^k.

    Parameters
    ----------
    count, exposure, order
        As of `poisson_moment`, as are errors.

    Returns
    -------
    numpy.ndarray
        Estimates, shape (n,), in events per unit of exposure to the power k; infinite beyond 1e308.

    Examples
    --------
    >>> poisson_umvu([1, 5], 10.0, order=2)
    array([0. , 0.2])
    """
    y, n = _checked(count, exposure, order)
    out = np.ones(np.broadcast_shapes(y.shape, n.shape))
    for j in range(order):
        out = out * np.maximum(y - j, 0.0) / n
    return out


def regularised_poisson_moment(
    count: ArrayLike, exposure: ArrayLike, log_pmf: LogPmf, order: int = 1, *, rho: float
) -> Floats:
    """E(theta^k | y) whose correction of the unbiased estimate is divided by max(f, rho).

    [y]_k / N^k + ([y + k]_k f(y + k) - [y]_k f(y)) / (N^k max(f(y), rho)), the paper's Appendix
    after Zhang (1997): w E(theta^k | y) + (1 - w) UMVU with w = min(1, f / rho).

    Parameters
    ----------
    count, exposure, log_pmf, order
        As of `poisson_moment`.
    rho
        Probability below which the marginal is not trusted, 0 for none: see `choose_rho`.

    Returns
    -------
    numpy.ndarray
        As of `poisson_umvu`.

    Raises
    ------
    ItemsError, FitError
        As `poisson_moment`, and if rho is negative; with rho above 0 counts may have probability 0.

    Examples
    --------
    >>> import numpy as np
    >>> log_pmf = lambda y: y * np.log(2 / 3) + np.log(1 / 3)
    >>> regularised_poisson_moment([0, 5, 100], 1.0, log_pmf, rho=0.01)
    array([  0.66666667,   4.        , 100.        ])
    """
    y, n = _checked(count, exposure, order)
    log_rho = log_of_rho(rho)
    f = _as_function(log_pmf)
    here, ahead = f(y), f(y + order)
    below = np.maximum(here, log_rho)
    _refuse_zero(below)
    own = np.exp(_log_rising(y, order) - order * np.log(n) + ahead - below)
    return np.asarray(own - np.expm1(here - below) * poisson_umvu(y, n, order))


@dataclass(frozen=True)
class PoissonBound:
    """Both sides of the bound and its parts, as `poisson_bound` returns them.

    Norms are ||h|| = (sum of h(y)^2 f_G(y))^(1/2).

    Attributes
    ----------
    error
        Left side: norm of the regularised estimate's error.
    bound
        Right side: (C distance + D) / N^k.
    constant
        C: by the true marginal, rho and k.
    remainder
        D: what regularising the true marginal costs; vanishes with rho.
    distance
        ||(fhat - f)^2||^(1/2) at y and at y + k, added.

    Examples
    --------
    >>> PoissonBound(error=1.0, bound=2.0, constant=4.0, remainder=0.5, distance=0.25).constant
    4.0
    """

    error: float
    bound: float
    constant: float
    remainder: float
    distance: float


def poisson_bound(
    true: LogPmf, estimate: LogPmf, exposure: float, order: int = 1, *, rho: float, highest: int
) -> PoissonBound:
    """Error of E(theta^k | y) by an estimated marginal, and its bound (Theorem 1, Lemma 1).

    Parameters
    ----------
    true, estimate
        Log marginals f_G and f_Ghat of counts, both of Poisson mixtures: see `LogPmf`.
    exposure, order, rho
        N, one for all counts; k; and rho, above 0: as of `regularised_poisson_moment`.
    highest
        Sums are over counts 0 to `highest`. C has moments of order 4k: go far.

    Returns
    -------
    PoissonBound
        ``error <= bound`` always.

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
    >>> found.error <= found.bound
    True
    """
    if not Real()(rho, "rho") > 0:
        raise FitError(f"rho={rho} must be above 0: the bound divides by it")
    Whole(1, MOST_ORDERS)(order, "order")
    POSITIVE(exposure, "exposure")
    y = np.arange(DRAWS(highest, "highest") + 1, dtype=float)
    f, f_hat = (_as_function(g) for g in (true, estimate))
    weight = np.exp(f(y))
    if weight.sum() < 1 - _TAIL:
        raise FitError(
            f"counts to {highest} have probability {weight.sum():.12g} only: raise highest="
        )
    here, ahead = np.exp(f(y)), np.exp(f(y + order))
    rising = np.exp(_log_rising(y, order))
    falling = np.prod([np.maximum(y - j, 0.0) for j in range(order)], axis=0)
    correction = ahead * rising - here * falling
    size = float(exposure) ** order

    def fourth(h: Floats) -> float:  # ||h^2||^(1/2)
        return float((h**4 @ weight) ** 0.25)

    of_square, of_rho = fourth(correction), fourth(falling) + fourth(rising)
    seen = weight > 0
    cut = np.maximum(-np.expm1(f(y[seen]) - log_of_rho(rho)), 0.0)
    remainder = correction[seen] / here[seen] * cut
    distance = fourth(np.exp(f_hat(y)) - here) + fourth(np.exp(f_hat(y + order)) - ahead)
    guess = regularised_poisson_moment(y[seen], exposure, f_hat, order, rho=rho)
    error = guess - (ahead * rising)[seen] / here[seen] / size
    norms = (float(np.sqrt(h**2 @ weight[seen])) for h in (error, remainder))
    left, last = next(norms), next(norms)

    def grown(by: float) -> float:  # rho twice, as its square may be below all numbers
        return of_square * by / rho / rho + of_rho * by / rho

    return PoissonBound(left, (grown(distance) + last) / size, grown(1.0), last, distance)


# --- how much to regularise, by outcomes held out ---


@dataclass(frozen=True)
class RhoChoice:
    """What `choose_rho` chose, and the log-likelihoods it chose by.

    Attributes
    ----------
    rho
        The candidate of the highest likelihood, the smallest of equals.
    candidates
        All candidates, increasing, shape (r,).
    gain
        Held-out log-likelihood over that of the smallest candidate, nats, shape (r,); not finite
        where that one, or both, give an outcome probability 0.
    standard_error
        Of the gains, over items, shape (r,).

    Examples
    --------
    >>> import numpy as np
    >>> RhoChoice(0.1, np.array([0.0, 0.1]), np.array([0.0, 2.0]), np.array([0.0, 1.0])).rho
    0.1
    """

    rho: float
    candidates: Floats
    gain: Floats
    standard_error: Floats


def choose_rho(
    estimate: Callable[[float], Floats],
    log_likelihood: Callable[[Floats], Floats],
    candidates: ArrayLike = _CANDIDATES,
) -> RhoChoice:
    """The rho whose estimates predict held-out outcomes best, as the paper's Section 4 has it.

    Estimates are compared by the log-likelihood of the outcomes, which weighs every item by what
    its outcome can tell; squared error would be that of counts of large exposure.

    Parameters
    ----------
    estimate
        From rho to estimates of theta by the training outcomes, (n,).
    log_likelihood
        From estimates to log-likelihoods of the held-out outcomes, item by item, (n,).
    candidates
        Values of rho to try, 0 or above; by default 0 and 1e-8 to 0.1, for probabilities of counts.

    Returns
    -------
    RhoChoice
        The best rho, with the gain of each candidate.

    Raises
    ------
    FitError
        If there are no candidates, or no candidate gives all outcomes a probability above 0.

    Examples
    --------
    A marginal that is too light-tailed, of a fixed rate 1 where rates are exponential:

    >>> import numpy as np
    >>> from scipy import stats
    >>> from soc_pymc.theory import regularised_poisson_moment
    >>> rng = np.random.default_rng(0)
    >>> theta = rng.exponential(size=2000)
    >>> y, held_out = rng.poisson(theta), rng.poisson(theta)
    >>> choice = choose_rho(
    ...     lambda rho: regularised_poisson_moment(y, 1.0, stats.poisson(1).logpmf, rho=rho),
    ...     lambda rate: stats.poisson.logpmf(held_out, rate))
    >>> choice.rho > 0
    True
    """
    for name, given in (("estimate", estimate), ("log_likelihood", log_likelihood)):
        A(Callable, "a function")(given, name)
    tried = np.unique(numbers_of(candidates, "candidates"))
    if not len(tried):
        raise FitError("no candidates for rho were given")
    each = np.stack([_of_items(log_likelihood(estimate(float(rho)))) for rho in tried])
    total = each.sum(axis=1)
    if not np.isfinite(total).any():
        raise FitError(
            f"none of {len(tried)} candidates for rho gives every held-out outcome a probability "
            "above 0: give smaller ones"
        )
    with np.errstate(invalid="ignore"):  # infinities less infinities
        gain = each - each[0]
        error = gain.std(axis=1) * np.sqrt(gain.shape[1])
        over = total - total[0]
    best = int(np.argmax(np.where(np.isfinite(total), total, -np.inf)))
    return RhoChoice(float(tried[best]), tried, over, error)


def _of_items(found: Any) -> Floats:
    """Log-likelihoods as the user's function gave them."""
    each = numbers_of(found, "what log_likelihood returns")
    if each.ndim != 1:
        raise FitError(
            f"log_likelihood returned the shape {each.shape}: it must give a number for every item"
        )
    return each


# --- parts of the formulas ---


def _log_rising(count: Floats, order: int) -> Floats:
    """Log of (y + 1) ... (y + k)."""
    return np.asarray(sum(np.log(count + j) for j in range(1, order + 1)))


def _as_function(log_pmf: LogPmf) -> Callable[[Floats], Floats]:
    """The marginal as a function of counts, of a table if need be."""
    if callable(log_pmf):
        return lambda count: _at_counts(log_pmf(count), count)
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


def _at_counts(found: Any, count: Floats) -> Floats:
    """What the user's own function gave, which must be a number for every count."""
    values, wanted = np.asarray(found, dtype=float), np.shape(count)
    if values.shape[max(values.ndim - len(wanted), 0) :] != wanted:
        raise FitError(
            f"log_pmf returned the shape {values.shape} for counts of the shape {wanted}: it must "
            "give a logarithm for every count"
        )
    return values


def _log_moment(y: Floats, n: Floats, log_pmf: LogPmf, order: int) -> Floats:
    f = _as_function(log_pmf)
    here = f(y)
    _refuse_zero(here)
    return np.asarray(_log_rising(y, order) - order * np.log(n) + (f(y + order) - here))


def _refuse_zero(log_density: Floats) -> None:
    bad = int(np.sum(~(log_density > -np.inf)))
    if bad:
        raise FitError(
            f"the marginal gives {bad} counts probability 0 or none: use "
            "regularised_poisson_moment with rho above 0"
        )


def _checked(count: ArrayLike, exposure: ArrayLike, order: int) -> tuple[Floats, Floats]:
    y, n = many({"count": count, "exposure": exposure}, ItemsError)
    Whole(1, MOST_ORDERS)(order, "order")
    refuse(~((y >= 0) & (y == np.floor(y)) & np.isfinite(y)), "count", "whole numbers from 0 on")
    rule = "above 0: without it theta has its prior alone"
    refuse(~((n > 0) & np.isfinite(n)), "exposure", rule)
    return y, n
