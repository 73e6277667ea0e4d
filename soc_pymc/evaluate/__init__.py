"""Evaluation on outcomes not seen: held-out parts, folds, and scores that saw their outcomes."""

from ._held_out import cross_validate, held_out, split_items
from .assumptions import leakage

__all__ = ["cross_validate", "held_out", "leakage", "split_items"]
