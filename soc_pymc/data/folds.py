"""Folds of items by arithmetic on whole numbers, the same on every engine."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from .._lib.arrays import Ints

FOLD_PRIME = (1 << 31) - 1
SCRAMBLE = (1663, 1327217885)  # products of two numbers below the prime fit in 64 bits
FOLD_MIX = 1_073_741_789
FOLD_STEPS = 20  # scores and exposures that differ by less than 2^-20 share a fold
MOST_FOLDS = 1000


@dataclass(frozen=True)
class Folds:
    """How items are put into folds; by item is by its score and exposure or noise sd."""

    by: Literal["id", "item", "column", "none"]
    number: int  # 1 where there are none, and the largest number possible by column


def fold_of_id(identity: ArrayLike, folds: int) -> Ints:
    """Fold of items by whole-number ids: arithmetic that is the same on every engine.

    The id modulo a prime p is scrambled by x (x + a) modulo p, then by a factor modulo p; the fold
    is what is left modulo the number of folds.

    Examples
    --------
    >>> fold_of_id([0, 1, 2, 3, 4, 5], 2).tolist()
    [0, 0, 0, 0, 1, 0]
    """
    shift, factor = SCRAMBLE
    x = np.asarray(identity, dtype=np.int64) % FOLD_PRIME
    x = x * ((x + shift) % FOLD_PRIME) % FOLD_PRIME
    return x * factor % FOLD_PRIME % folds
