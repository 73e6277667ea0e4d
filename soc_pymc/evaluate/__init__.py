"""Evaluation of fits on outcomes that they have not seen.

- thinning: `thin`, `Split`, `split_items`
- held-out outcomes: `held_out`, `poisson_log_likelihood`
- folds: `cross_validate`
- simulated truth: `accuracy`
"""

from ._accuracy import accuracy
from ._held_out import held_out, poisson_log_likelihood
from .folds import cross_validate
from .thinning import Split, split_items, thin

__all__ = [
    "Split",
    "accuracy",
    "cross_validate",
    "held_out",
    "poisson_log_likelihood",
    "split_items",
    "thin",
]
