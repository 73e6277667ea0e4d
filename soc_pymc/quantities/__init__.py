"""Quantities of a fit as posteriors: how good the score is, and how much outcomes add to it."""

from .comparisons import compare_scores, group_effects
from .curves import r_squared, score_at, shrinkage, variance_reduction

__all__ = [
    "compare_scores",
    "group_effects",
    "r_squared",
    "score_at",
    "shrinkage",
    "variance_reduction",
]
