"""Scales of scores on which curves are smooth, cells of outcomes and sizes, bounds of numbers.

On the scale ``"rank"`` a position depends on the statistics: the share of items with a smaller
score. A cell is one of 16 equal steps in an octave, which all engines find exactly.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from .._lib.arguments import FitError
from .._lib.arrays import Bools, Floats, Pair
from .._lib.reprs import digits

RANK = "rank"
_ROUNDING = 1e-12  # of a mean square, relative
# column of statistics: number of items in sums of positions, in which few count less
SCORE_WEIGHT = "sum_weight"
MIDDLE = 0.5  # a score with a position on every scale


@dataclass(frozen=True, eq=False)
class Scale:
    """A monotone map from scores to positions."""

    name: str
    low: float  # scores lie strictly between these
    high: float
    outside: str  # description of scores without a position
    position: Callable[[Any], Any]  # positions of an array of scores
    score: Callable[[Any], Any]  # scores at an array of positions
    # position in operators, given a function log
    formula: Callable[[Any, Any], Any]

    @property
    def _prefix(self) -> str:
        """Prefix of columns of positions."""
        return "" if self.name == "linear" else f"{self.name}_"

    @property
    def sums(self) -> tuple[str, str]:
        """Columns of statistics: sums of positions and of their squares."""
        return f"sum_{self._prefix}t", f"sum_{self._prefix}t2"

    @property
    def width(self) -> str:
        """Column of a fit's bins with the sd of positions."""
        return f"{self._prefix}score_sd"

    def moments(self, sums: Mapping[str, Any]) -> Pair:
        """Mean and variance of the positions of items, from rows of their sums."""
        mean, square = (sums[name] / sums[SCORE_WEIGHT] for name in self.sums)
        variance = square - mean**2
        # a variance below the rounding of the sums is 0
        return mean, np.where(variance <= _ROUNDING * square, 0.0, variance)

    def holds(self, score: Floats | float) -> Bools:
        """Mask of the scores that have a position."""
        return np.asarray((score > self.low) & (score < self.high))

    def checked(self, score: ArrayLike) -> Floats:
        """Positions of scores; FitError if some have none."""
        t = np.asarray(score, dtype=float)
        out = ~self.holds(t)
        if np.any(out):
            raise FitError(
                f"scores that are {self.outside}: {out.sum():,} of {t.size:,}, such as "
                f"{digits(t[out].flat[0])}: "
                'use soc.Spline(scale="rank") or scale="linear" for both curves, or drop or clip '
                "these scores"
            )
        return self.position(t)


LINEAR = Scale(
    name="linear",
    low=-np.inf,
    high=np.inf,
    outside="not finite",
    position=np.array,
    score=np.array,
    formula=lambda t, log: t,
)
LOG = Scale(
    name="log",
    low=0.0,
    high=np.inf,
    outside="0 or below and have no logarithm",
    position=np.log,
    score=np.exp,
    formula=lambda t, log: log(t),
)
LOGIT = Scale(
    name="logit",
    low=0.0,
    high=1.0,
    outside="0 or 1 or beyond and have no logit",
    position=special.logit,
    score=special.expit,
    formula=lambda t, log: log(t) - log(1.0 - t),
)

# scales by name, without that of ranks
SCALES: Mapping[str, Scale] = {scale.name: scale for scale in (LOG, LOGIT, LINEAR)}


def common_scale(*names: str) -> Scale:
    """The scale of a table for curves on these scales: the first that is not linear."""
    curved = [name for name in names if name in SCALES and name != LINEAR.name]
    return SCALES[curved[0]] if curved else LINEAR


# --- cells ---------------------------------------------------------------------------------------

STEPS = 4  # cells of counts and sizes: 2^4 = 16 per octave
EXACT_COUNTS = 32  # counts below this have cells of their own
# below the cell of every positive number, 16 * -1074
ZERO_EXPOSURE = -(1 << 15)
# a value cell is 2^-3 of the octave of its noise cell
VALUE_OCTAVES = 3
MOST_VALUE_CELL = (1 << 25) - 1


class Cell(NamedTuple):
    """Content of one column of cells."""

    name: str
    # the rest is the size less the outcome
    role: Literal["outcome", "size", "rest"]
    grid: Literal["count", "exposure", "noise", "value"]
    bits: int  # length in packed keys
    low: int  # the lowest cell


# --- bounds --------------------------------------------------------------------------------------

# exact in float64, and no larger number is rounded to it
LARGEST_COUNT = 2.0**53 - 1.0
# score or exposure: third powers, times a count, must stay finite
LARGEST = 1e90
# value or noise sd: y^2 s^6, summed over all items, must stay finite
LARGEST_VALUE = 1e35
# noise sd: y^2 s^6 must not vanish for y of at least this size
LEAST_SD = 1e-35


@dataclass(frozen=True)
class Bounds:
    """Bounds on the numbers of one role; missing and infinite ones are never valid."""

    needs: str  # the rule, as in errors
    largest: float = LARGEST  # in size
    least: float | None = None  # None: numbers of either sign
    whole: bool = False
    labels: bool = False  # true and false are valid too, as 1 and 0
    # smaller numbers count as 0 in powers and products
    negligible: float = 0.0
    fractions: str = ""  # remedy if most numbers are not whole
    zeros: str = ""  # remedy if some are 0
    infinite: bool = False  # counts as the largest

    @property
    def beyond(self) -> str:
        """Description of numbers larger than the largest."""
        if self.largest == LARGEST_COUNT:
            return "2^53 or more"
        return (
            f"larger than {self.largest:g}"
            if self.whole
            else f"beyond {self.largest:g} in size"
        )

    def hold(self, numbers: Floats) -> bool:
        """Return True if all numbers (at least one) are valid."""
        least = -self.largest if self.least is None else self.least
        # comparisons with NaN, which extremes pass on, are false
        inside = numbers.min() >= least and numbers.max() <= self.largest
        return bool(inside and (not self.whole or (numbers == np.floor(numbers)).all()))
