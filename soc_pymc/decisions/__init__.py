"""Decisions by posteriors: thresholds, ranking, exploration, value of more exposure.

- against a threshold: `probability_above`, `expected_loss`
- ranking: `probability_best`
- exploration: `thompson_draws`
- what more data would bring: `value_of_exposure`
- sums and means over many items: `total`

All keep the items' order and take the uncertainty of the curves into account, which items share.
"""

from .choices import expected_loss, probability_above, value_of_exposure
from .ranking import probability_best, thompson_draws
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
