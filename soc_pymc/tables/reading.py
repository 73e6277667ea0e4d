"""What a pass over items gives, whichever engine makes it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from ..binning import Grid
from ..cells import Columns

__all__ = ["MOST_FOLDS", "Folds", "Reader", "Tables", "Totals", "exposure_unit"]

MOST_FOLDS = 1000


@dataclass(frozen=True)
class Folds:
    """How items are put into folds.

    Attributes
    ----------
    by
        ``"id"``, ``"item"`` (its score and exposure), ``"column"`` or ``"none"``.
    number
        Number of folds; 1 where there are none, and the largest number possible by column.
    """

    by: Literal["id", "item", "column", "none"]
    number: int


@dataclass(frozen=True)
class Totals:
    """Totals of valid items.

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
class Tables:
    """Sums over parts (group, fold and bin), their cells, and joint cells of groups and bins.

    Attributes
    ----------
    part, exposure, count, joint
        Columns of keys and sums, in no set order; `joint` is empty where it was not wanted.
    labels
        Labels of the groups, by code.
    coarse
        Bins in one bin of the joint cells; 0 where there are none.
    totals
        Totals of the same pass or of an earlier one, found in another way than the sums.
    """

    part: Columns
    exposure: Columns
    count: Columns
    joint: Columns
    labels: tuple[str, ...]
    coarse: int
    totals: Totals


class Reader(Protocol):
    """Passes over items."""

    def look(self) -> Totals:
        """Validated totals of the items."""

    def weights(
        self, grid: Grid, low: float, high: float, weight: str | None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Occupied cells of scores clipped to [low, high], rising, and their weights.

        Weights are whole, and so the same on every engine: numbers of items, sums of counts, or
        sums of exposures in units of `exposure_unit`, each rounded down.
        """

    def tables(self, edges: NDArray[np.float64], most_joint: int) -> Tables:
        """Sums of all bins and cells, with at most so many joint cells."""


def exposure_unit(totals: Totals) -> float:
    """A power of 2: sums of exposures in these units fit in 62 bits."""
    top = totals.exposure_max * totals.n
    return float(2.0 ** (int(np.ceil(np.log2(top))) + 1 - 62)) if top > 0 else 1.0


def empty(names: Mapping[str, Any]) -> Columns:
    """Columns without rows."""
    return {name: np.empty(0, dtype=kind) for name, kind in names.items()}
