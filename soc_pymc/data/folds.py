"""Folds of items, and blocks of clusters, that are equal on every engine."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from .._lib.arrays import Ints
from . import formulas

MOST_FOLDS = 1000
BLOCKS = 240  # of clusters; most numbers of folds divide it


@dataclass(frozen=True)
class Folds:
    """The rule of folds; clusters are put into blocks, and a fold is made of several blocks."""

    by: Literal["id", "text", "item", "column", "cluster", "none"]
    number: int  # 1 without folds, and the largest possible number for a column or for clusters


def fold_of(
    folds: Folds, columns: Any, size: str, functions: Mapping[str, Any] = vars(formulas)
) -> Any:
    """Fold of each item, from columns by role; clusters are their blocks."""
    if folds.by in ("column", "cluster"):
        return columns["fold" if folds.by == "column" else "cluster"]
    if folds.by == "item":
        identity = functions["identity_of_item"](columns["score"], columns[size])
    else:
        identity = columns["id"]
    return functions["scrambled"](identity) % folds.number


def fold_of_id(identity: ArrayLike, folds: int) -> Ints:
    """Fold of items from whole-number ids."""
    return np.asarray(formulas.scrambled(np.asarray(identity, dtype=np.int64)) % folds)


def block_of_labels(labels: Sequence[str]) -> Ints:
    """Block of clusters from the CRC-32 of their labels."""
    return fold_of_id([zlib.crc32(label.encode()) for label in labels], BLOCKS)
