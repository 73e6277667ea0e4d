"""Theorem 1 of the paper for Poisson counts: what an error of the marginal can do at most."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..._lib.arguments import MOST_DRAWS, real, whole
from ..._lib.errors import FitError
from .poisson import (
    LogPmf,
    as_function,
    check_order,
    log_of_rho,
    log_rising,
    regularised_poisson_moment,
)

__all__ = ["PoissonBound", "poisson_bound"]

Floats = NDArray[np.float64]

_TAIL = 1e-12  # probability of the counts left out


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
    true: LogPmf,
    estimate: LogPmf,
    exposure: float,
    order: int = 1,
    *,
    rho: float,
    highest: int,
) -> PoissonBound:
    """Error of E(theta^k | y) by an estimated marginal, and its bound (Theorem 1, Lemma 1).

    Parameters
    ----------
    true, estimate
        Log marginals f_G and f_Ghat of counts, both of Poisson mixtures: see `LogPmf`.
    exposure
        N, one for all counts.
    order
        k, at least 1.
    rho
        As of `regularised_poisson_moment`, above 0.
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
    if not real(rho, "rho") > 0:
        raise FitError(f"rho={rho} must be above 0: the bound divides by it")
    check_order(order)
    real(exposure, "exposure", above=0)
    y = np.arange(whole(highest, "highest", 1, most=MOST_DRAWS) + 1, dtype=float)
    f, f_hat = (as_function(g) for g in (true, estimate))
    weight = np.exp(f(y))
    if weight.sum() < 1 - _TAIL:
        raise FitError(
            f"counts to {highest} have probability {weight.sum():.12g} only: raise highest="
        )
    here, ahead = np.exp(f(y)), np.exp(f(y + order))
    rising = np.exp(log_rising(y, order))
    falling = np.prod([np.maximum(y - j, 0.0) for j in range(order)], axis=0)
    correction = ahead * rising - here * falling
    size = float(exposure) ** order

    def fourth(h: Floats) -> float:
        """||h^2||^(1/2)."""
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
