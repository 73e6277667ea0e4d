"""What every kind of outcome writes for itself, so that nothing else asks which kind it is."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["OutcomeForms"]

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
Columns = Mapping[str, NDArray[Any]]


class OutcomeForms(Protocol):
    """Functions of outcomes `y` and their sizes (exposure, noise sd), each (n,).

    Attributes
    ----------
    least_total
        Least sum of outcomes that a fitted rate is taken from.
    """

    least_total: float

    # --- sums and cells

    def mean_size(self, sums: Columns) -> Floats:
        """Size of a typical item of rows of the table of sizes, or of joint cells."""

    def exposure_means(self, sums: Columns) -> tuple[Floats, Floats, Floats]:
        """Outcome and size averaged over units of exposure, and the exposure, of rows of sums."""

    def cell_range(self, cells: Columns) -> tuple[Floats, Floats]:
        """Least and largest outcome of joint cells."""

    def excess(self, groups: Columns, part: Any) -> tuple[Mask, Floats, Floats, Floats]:
        """Squared residuals of groups of items less what their noise makes.

        `groups` are sums of the table of sizes, `part` the sums by bin. Returns which groups have
        any such, and of these the excess, its variance if theta were one number, and the noise.
        """

    # --- outcomes given theta

    def log_likelihood(self, y: Floats, size: Floats, theta: Floats) -> Floats:
        """Log probability (density) of outcomes, (n,), in nats."""

    def loss(self, y: Floats, size: Floats, theta: Floats) -> Floats:
        """What gains in log likelihood are a percentage of, (n,), >= 0."""

    def held_out_sums(self, y: Floats, size: Floats) -> dict[str, Floats]:
        """Columns to add up beside gains, by name."""

    def wrong_scores(self, score: Floats, y: Floats) -> dict[str, Mask]:
        """Scores that are no estimates of theta, by what is wrong with them."""

    def thinned(
        self, y: Floats, size: Floats, fraction: float, rng: np.random.Generator
    ) -> tuple[Floats, Floats]:
        """A random part of each outcome, and its size; `remainder` is independent of it."""

    def remainder(
        self, y: Any, size: Any, held: tuple[Floats, Floats], fraction: float
    ) -> tuple[Any, Any]:
        """What thinning left of each outcome, and its size."""

    # --- outcomes given the first two moments of theta

    @property
    def summaries(self) -> Mapping[str, Callable[..., Floats]]:
        """Summaries of items to compare with replicates, by name: (y, size, mean, variance)."""

    def scatter(self, y: Floats, size: Floats, mean: Floats, variance: Floats) -> Floats:
        """Sum over items of squared residuals, weighted to measure a common factor on variance."""

    def response(self, size: Floats, mean: Floats, variance: Floats) -> Floats:
        """How much the posterior mean moves with the outcome, as a share of its move."""

    def level(self, mean: Floats, variance: Floats) -> Floats:
        """E(theta) on the scale on which bins are compared."""

    def unit(self, mean: Floats, variance: Floats) -> Floats:
        """Unit of squared errors of E(theta)."""

    # --- calibration of the score

    def weighted(self, y: Floats, size: Floats) -> tuple[Floats, Floats]:
        """Weights, and outcomes times their weights: the ratio estimates theta."""

    def regressor(self, penalty: float) -> Any:
        """A scikit-learn regressor of weighted means of outcomes."""

    def line(self, score: Floats, y: Floats, size: Floats) -> tuple[Floats, float]:
        """Log likelihood, (n,), and slope of a straight-line calibration of scores."""

    def contrast(
        self, y: Floats, size: Floats, fresh_y: Floats, fresh_size: Floats
    ) -> tuple[Floats, Floats]:
        """Own outcomes less what fresh ones of the same items predict, and weights."""
