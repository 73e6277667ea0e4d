"""Decisions by posteriors: thresholds, ranking, exploration, value of more exposure, totals.

All keep the items' order and take the uncertainty of the curves into account, which items share.
"""

from .choices import (
    expected_loss,
    probability_above,
    probability_best,
    thompson_draws,
    value_of_exposure,
)
from .totals import total

__all__ = [
    "expected_loss",
    "probability_above",
    "probability_best",
    "thompson_draws",
    "total",
    "value_of_exposure",
]


def __dir__() -> list[str]:
    return sorted(__all__)
