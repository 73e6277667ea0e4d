"""What a pass over items gives, whichever engine makes it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from ..binning import Grid
from ..cells import Columns

__all__ = [
    "MOST_FOLDS",
    "AnyTotals",
    "Folds",
    "NormalTotals",
    "Reader",
    "Tables",
    "Totals",
    "Weights",
    "exposure_unit",
]

MOST_FOLDS = 1000


@dataclass(frozen=True)
class Folds:
    """How items are put into folds.

    Attributes
    ----------
    by
        ``"id"``, ``"item"`` (its score and exposure or noise sd), ``"column"`` or ``"none"``.
    number
        Number of folds; 1 where there are none, and the largest number possible by column.
    """

    by: Literal["id", "item", "column", "none"]
    number: int


@dataclass(frozen=True)
class Totals:
    """Totals of valid items with counts.

    Attributes
    ----------
    n
        Number of items.
    count, exposure
        Sums of counts and exposures.
    score_min, score_max
        Range of the scores.
    exposure_max
        Largest exposure.
    """

    n: int
    count: int
    exposure: float
    score_min: float
    score_max: float
    exposure_max: float


@dataclass(frozen=True)
class NormalTotals:
    """Totals of valid items with values.

    Attributes
    ----------
    n
        Number of items.
    value, value_size, noise_square
        Sums of values, of their absolute values and of squared noise sds.
    score_min, score_max
        Range of the scores.
    farthest
        Largest absolute value in noise sds.
    """

    n: int
    value: float
    value_size: float
    noise_square: float
    score_min: float
    score_max: float
    farthest: float


AnyTotals = Totals | NormalTotals


@dataclass(frozen=True)
class Tables:
    """Sums over parts (group, fold and bin), their cells, and joint cells of groups and bins.

    Attributes
    ----------
    sums
        Columns of keys and sums by table of the items' schema, in no set order; ``joint`` has none
        where it was not wanted.
    labels
        Labels of the groups, by code.
    coarse
        Bins in one bin of the joint cells; 0 where there are none.
    totals
        Totals of the same pass or of an earlier one, found in another way than the sums.
    """

    sums: Mapping[str, Columns]
    labels: tuple[str, ...]
    coarse: int
    totals: AnyTotals


@dataclass(frozen=True)
class Weights:
    """Scores on a grid.

    Attributes
    ----------
    n
        Number of items.
    score_min, score_max
        Range of the scores.
    cell
        Occupied cells, rising.
    weight
        Their weights: numbers of items, sums of counts, or sums of exposures in units of
        `exposure_unit`, each rounded down. Whole, and so the same on every engine.
    """

    n: int
    score_min: float
    score_max: float
    cell: NDArray[np.int64]
    weight: NDArray[np.int64]


class Reader(Protocol):
    """Passes over items."""

    def check(self) -> None:
        """Refuse items that are not valid; `tables` does it too."""

    def weights(self, grid: Grid, low: float, high: float, weight: str | None) -> Weights:
        """Scores clipped to [low, high] on a grid, and what they weigh."""

    def tables(self, edges: NDArray[np.float64], most_joint: int) -> Tables:
        """Sums of all bins and cells, with at most so many joint cells."""


def exposure_unit(n: int, most: float) -> float:
    """A power of 2: n exposures of at most so much, in these units, add up within 62 bits."""
    top = most * n
    return float(2.0 ** (int(np.ceil(np.log2(top))) + 1 - 62)) if top > 0 else 1.0
