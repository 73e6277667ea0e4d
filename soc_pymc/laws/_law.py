"""What a fitted prior says of theta and of outcomes, whatever its family: one protocol."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["Columns", "Law", "Scorer"]

Floats = NDArray[np.float64]

Columns = Mapping[str, NDArray[Any]]
"""Columns of items by role, arrays of one length.

``score``, the outcome (``count`` or ``value``), its size (``exposure`` or ``noise_sd``). Where an
item stands for several whose scores differ, ``spread`` is the variance of the mean curve over them.
"""

Scorer = Callable[[Columns], Floats]
"""From items to posterior mean, sd, variance and quantiles of theta, (3 + probabilities, n)."""


class Law(Protocol):
    """A fitted prior as a distribution of theta and of outcomes, draw by draw of its curves.

    Attributes
    ----------
    outcome
        Role of the outcome: ``"count"`` or ``"value"``.
    size
        Role of what says how precise it is: ``"exposure"`` or ``"noise_sd"``.
    discrete
        Whether outcomes are whole numbers.
    """

    outcome: str
    size: str
    discrete: bool

    def log_density(self, columns: Columns) -> Floats:
        """Log density (probability) of the outcomes given score and size, (draws, n)."""

    def ends(self, columns: Columns) -> tuple[Floats, Floats]:
        """P(Y < y) and P(Y <= y) averaged over the draws, each (n,); equal if continuous."""

    def simulate(self, columns: Columns, rng: np.random.Generator) -> Floats:
        """Outcomes of new items of the same score and size, (draws, n)."""

    def scorer(self, probs: tuple[float, ...], draws: str, plug_in: bool) -> Scorer:
        """How items are scored: over ``"all"`` draws, ``"representative"`` ones, or none."""

    def curves(
        self, score: Floats, group: NDArray[Any] | None = None, exposure: Floats | None = None
    ) -> dict[str, Floats]:
        """Variables of `calibration_curves` at scores, each (draws, n)."""
