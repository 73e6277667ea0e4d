"""Evaluation of fits on outcomes that they have not seen.

- thinning: `thin`, `thin_values`, `Split`, `split_items`
- first-order calibration, to compare with: `baseline`, `Baseline`
- held-out outcomes: `held_out`, `HeldOut`, `poisson_log_likelihood`
- probability integral transforms by bin: `pit_histograms`
- folds: `cross_validate`
- simulated truth: `accuracy`
- choosing bins: `compare_bins`
- honest scores: `cross_fit`, `leakage`, `Leakage`
"""

from ._held_out import HeldOut, held_out, poisson_log_likelihood
from .baselines import Baseline, baseline
from .by_bin import accuracy, pit_histograms
from .honest_scores import Leakage, cross_fit, leakage
from .model_choice import compare_bins, cross_validate
from .thinning import Split, split_items, thin, thin_values

__all__ = [
    "Baseline",
    "HeldOut",
    "Leakage",
    "Split",
    "accuracy",
    "baseline",
    "compare_bins",
    "cross_fit",
    "cross_validate",
    "held_out",
    "leakage",
    "pit_histograms",
    "poisson_log_likelihood",
    "split_items",
    "thin",
    "thin_values",
]


def __dir__() -> list[str]:
    return sorted(__all__)
