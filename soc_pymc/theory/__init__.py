"""What the marginal of outcomes says of theta by itself: Section 4 and the Appendix of the paper.

Posterior moments and cumulants of theta need no prior, only the marginal distribution of outcomes:
Robbins' formulas for Poisson counts, Tweedie's and its higher orders for continuous natural
exponential families. They hold for the marginal of any fit, of a prior of one's own, or of none.
`docs/dev/theory.md` derives them and lists what is wrong in print.
"""

from .continuous import (
    cumulants_from_moments,
    gamma_base,
    log_derivatives,
    moments_from_cumulants,
    nef_cumulants,
    normal_base,
    regularised_nef_cumulants,
    tweedie,
)
from .poisson import (
    PoissonBound,
    RhoChoice,
    choose_rho,
    poisson_bound,
    poisson_cumulants,
    poisson_moment,
    poisson_umvu,
    regularised_poisson_moment,
)

__all__ = [
    "PoissonBound",
    "RhoChoice",
    "choose_rho",
    "cumulants_from_moments",
    "gamma_base",
    "log_derivatives",
    "moments_from_cumulants",
    "nef_cumulants",
    "normal_base",
    "poisson_bound",
    "poisson_cumulants",
    "poisson_moment",
    "poisson_umvu",
    "regularised_nef_cumulants",
    "regularised_poisson_moment",
    "tweedie",
]


def __dir__() -> list[str]:
    return sorted(__all__)
