"""Evaluation on outcomes not seen: held-out parts, folds, and scores that saw their outcomes."""

from ._held_out import cross_validate, held_out
from ._leakage import leakage
from .splitting import split_items

__all__ = ["cross_validate", "held_out", "leakage", "split_items"]


def __dir__() -> list[str]:
    return sorted(__all__)
