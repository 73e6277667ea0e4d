"""Scales of scores on which curves are smooth, one record each.

On the scale ``"rank"`` a position is the share of items with a smaller score, which depends on the
statistics; local quantities, such as the width of a bin, use the linear scale.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from .._lib.arguments import digits
from .._lib.arrays import Bools, Floats
from .._lib.errors import FitError

RANK = "rank"
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
    formula: Callable[[Any, Any], Any]  # position in operators, given a function log
    suffix: str  # suffix of columns that sum positions: "sum_{suffix}" and "sum_{suffix}2"
    width: str  # column of a fit's bins with the sd of positions

    @property
    def sums(self) -> tuple[str, str]:
        """Columns of statistics: sums of positions and of their squares."""
        return f"sum_{self.suffix}", f"sum_{self.suffix}2"

    def holds(self, score: Any) -> Bools:
        """Mask of the scores that have a position."""
        return np.asarray((score > self.low) & (score < self.high))

    def checked(self, score: Any) -> Floats:
        """Positions of scores; FitError if some have none."""
        t = np.asarray(score, dtype=float)
        bad = ~self.holds(t)
        if np.any(bad):
            raise FitError(
                f"{int(bad.sum())} scores are {self.outside} (first: {digits(t[bad].flat[0])}): "
                'use soc.Spline(scale="rank") or scale="linear" for both curves, or drop or clip '
                "these scores"
            )
        return np.asarray(self.position(t))


_EVERYTHING = -np.inf, np.inf
LINEAR = Scale(
    "linear", *_EVERYTHING, "not finite", np.array, np.array, lambda t, log: t, "t", "score_sd"
)
LOG = Scale(
    "log", 0.0, np.inf, "0 or below and have no logarithm", np.log, np.exp,
    lambda t, log: log(t), "log_t", "log_score_sd",
)  # fmt: skip
LOGIT = Scale(
    "logit", 0.0, 1.0, "0 or 1 or beyond and have no logit", special.logit, special.expit,
    lambda t, log: log(t) - log(1.0 - t), "logit_t", "logit_score_sd",
)  # fmt: skip

SCALES: Mapping[str, Scale] = {scale.name: scale for scale in (LOG, LOGIT, LINEAR)}
"""Scales by name, without that of ranks."""


def common_scale(*names: str) -> Scale:
    """The scale of a table for curves on these scales: the first that is not linear."""
    curved = [name for name in names if name in SCALES and name != LINEAR.name]
    return SCALES[curved[0]] if curved else LINEAR
