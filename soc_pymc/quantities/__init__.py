"""Quantities of a fit as posteriors: how good the score is, and how much outcomes add to it.

All are functionals of the fitted prior and the items' scores and exposures, evaluated for every
draw of the curves, with the items at hand as the population.
"""

from .curve_values import score_at
from .group_effects import group_effects
from .score_comparison import compare_scores
from .variance import r_squared, shrinkage, variance_reduction

__all__ = [
    "compare_scores",
    "group_effects",
    "r_squared",
    "score_at",
    "shrinkage",
    "variance_reduction",
]


def __dir__() -> list[str]:
    return sorted(__all__)
