"""Decisions by posteriors: thresholds, ranking, exploration, value of more exposure, totals.

All keep the items' order and take the uncertainty of the curves into account, which items share.
"""

from .choices import expected_loss, probability_above, value_of_exposure
from .joint import probability_best, thompson_draws, total

__all__ = [
    "expected_loss",
    "probability_above",
    "probability_best",
    "thompson_draws",
    "total",
    "value_of_exposure",
]
