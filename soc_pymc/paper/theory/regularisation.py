"""How much to regularise, by outcomes held out."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..._lib.arguments import A, Real, numbers_of
from ..._lib.arrays import Floats
from ..._lib.errors import FitError

_CANDIDATES = (0.0, *np.geomspace(1e-8, 1e-1, 15).tolist())


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


def log_of_rho(rho: float) -> float:
    """Logarithm of rho, -inf for 0; refuses what is negative or no number."""
    if Real()(rho, "rho") < 0:
        raise FitError(f"rho={rho} must be 0 or above")
    return float(np.log(float(rho))) if rho > 0 else -np.inf


def _of_items(found: Any) -> Floats:
    """Log-likelihoods as the user's function gave them."""
    each = numbers_of(found, "what log_likelihood returns")
    if each.ndim != 1:
        raise FitError(
            f"log_likelihood returned the shape {each.shape}: it must give a number for every item"
        )
    return each
