"""Quantities of a fit as posteriors: how good the score is, and how much outcomes add to it.

All are evaluated for every draw of the curves, with the items at hand as the population.
"""

from .comparisons import compare_scores, group_effects
from .curve_values import score_at
from .variance import r_squared, shrinkage, variance_reduction

__all__ = [
    "compare_scores",
    "group_effects",
    "r_squared",
    "score_at",
    "shrinkage",
    "variance_reduction",
]
