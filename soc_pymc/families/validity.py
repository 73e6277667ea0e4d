"""Validity of items: bounds for the numbers of one role, and for those of an item together."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._lib.arrays import Floats

LARGEST_COUNT = 2.0**53 - 1.0
"""Largest size of whole numbers that are exact in float64, and that no larger one is rounded to."""
LARGEST = 1e90
"""Largest score or exposure: third powers, times a count, must stay finite."""
LARGEST_VALUE = 1e35
"""Largest value or noise sd: y^2 s^6, summed over all items, must stay finite."""
LEAST_SD = 1e-35
"""Smallest noise sd: y^2 s^6 must not vanish for y of at least this size."""


@dataclass(frozen=True)
class Bounds:
    """Bounds on the numbers of one role; missing and infinite ones are never valid."""

    needs: str  # the rule, as in errors
    largest: float = LARGEST  # in size
    least: float | None = None  # None: numbers of either sign
    whole: bool = False
    name_of_largest: str = ""  # description of too large numbers in errors
    labels: bool = False  # true and false are valid too, as 1 and 0
    negligible: float = 0.0  # smaller numbers count as 0 in powers and products

    @property
    def beyond(self) -> str:
        """Description of numbers larger than the largest."""
        return self.name_of_largest or f"beyond {self.largest:g} in size"

    def hold(self, numbers: Floats) -> bool:
        """Return True if all numbers (at least one) are valid."""
        least = -self.largest if self.least is None else self.least
        # comparisons with NaN, which extremes pass on, are false
        inside = numbers.min() >= least and numbers.max() <= self.largest
        return bool(inside and (not self.whole or (numbers == np.floor(numbers)).all()))


@dataclass(frozen=True)
class Validity:
    """Rules for valid items of one kind."""

    score: Bounds
    outcome: Bounds
    size: Bounds
    # f(y, x), true if outcome and size exclude each other, in operators for arrays and for columns
    # of engines
    conflict: Callable[[Any, Any], Any] | None = None
    conflict_words: str = ""  # description of such an outcome; {size} is the size's column

    def are_valid(self, score: Floats, outcome: Floats, size: Floats) -> bool:
        """Return True if all items (at least one) are valid."""
        pairs = ((self.score, score), (self.outcome, outcome), (self.size, size))
        return all(bounds.hold(numbers) for bounds, numbers in pairs) and not (
            self.conflict and np.any(self.conflict(outcome, size))
        )


def positive_without_size(y: Any, x: Any) -> Any:
    """Positive outcomes of size 0, which are not possible."""
    return (y > 0) & (x == 0)


def more_than_size(y: Any, x: Any) -> Any:
    """Outcomes beyond their size, unless that is wrong by itself."""
    return (y > x) & (x >= 0)
