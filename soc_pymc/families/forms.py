"""Functions of the outcomes of one kind; those with a body are shared by counts and successes."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.random import Generator

from .._lib.arrays import Bools, Floats
from .row_sums import Columns
from .scales import Scale

Pair = tuple[Floats, Floats]
_MOST_STEPS, _DAMPING = 100, 1e-9  # of Newton's method for regressions


class OutcomeForms(Protocol):
    """Functions of outcomes `y` and their sizes (exposure, noise sd), each (n,), of one kind."""

    scale: Scale  # on which regressions are linear
    longest: float = 1.0  # step of their coefficients
    zeros: str = ""  # name of the number of outcomes that are 0, for counts and successes

    # --- sums and cells

    def mean_size(self, sums: Columns) -> Floats:
        """Size of a typical item of rows of the table of sizes, or of joint cells."""
        return np.asarray(sums["sum_N"] / sums["n"])

    def exposure_means(self, sums: Columns) -> tuple[Floats, Floats, Floats]:
        """Outcome and size averaged over units of exposure, and the exposure, of rows of sums."""
        total = sums["sum_N"]
        divisor = np.where(total > 0, total, 1.0)
        return sums["sum_yN"] / divisor, sums["sum_N2"] / divisor, total

    def cell_range(self, cells: Columns) -> Pair:
        """Smallest and largest outcome of joint cells."""

    def excess(self, groups: Columns, part: Any) -> tuple[Bools, Floats, Floats, Floats]:
        """Squared residuals of groups of items less their expectation from noise.

        `groups` are sums of the table of sizes, `part` the sums by bin. Returns a mask of groups
        with residuals, and for these the excess, its variance for a constant theta, and the noise.
        """

    # --- doubts about the noise

    def doubt(self, table: Callable[[str], Columns]) -> str:
        """Describe what tables of sums say against this kind's noise; empty if nothing."""
        return ""

    def doubtful(self, y: Floats, size: Floats, tight: bool = False) -> bool:
        """Return True if outcomes (`tight` or not) and sizes speak against this noise."""
        return False

    def other_width(self, y: Floats, size: Floats, mean: Floats, variance: Floats) -> Floats:
        """Widths of item intervals under the noise in doubt, as multiples of the present ones.

        `mean` and `variance`, (n,) as `y` and `size`, are those of theta given the score. Items
        that the doubt does not concern are left out.
        """
        return np.ones_like(mean)

    # --- outcomes given theta

    def log_likelihood(self, y: Floats, size: Floats, theta: Floats) -> Floats:
        """Log probability (density) of outcomes, (n,), in nats."""

    def loss(self, y: Floats, size: Floats, theta: Floats) -> Floats:
        """Base of percentages of gains in log likelihood, (n,), >= 0."""
        return -self.log_likelihood(y, size, theta)

    def wrong_scores(self, score: Floats, y: Floats) -> Bools:
        """Mask of scores that cannot be estimates of theta, given the outcomes."""

    def thinned(self, y: Floats, size: Floats, fraction: float, rng: Generator) -> Pair:
        """A random part of each outcome, and its size; `remainder` is independent of it."""

    def remainder(self, y: Any, size: Any, held: Pair, fraction: float) -> tuple[Any, Any]:
        """The rest of each outcome after thinning, and its size."""
        return y - held[0], size - held[1]

    # --- outcomes given the first two moments of theta

    @property
    def summaries(self) -> Mapping[str, Callable[..., Floats]]:
        """Summaries of items to compare with replicates, by name: (y, size, mean, variance)."""
        return {"dispersion": self.scatter, self.zeros: _zeros}

    def scatter(self, y: Floats, size: Floats, mean: Floats, variance: Floats) -> Floats:
        """Sum over items of squared residuals, weighted to measure a common factor on variance."""

    def response(self, size: Floats, mean: Floats, variance: Floats) -> Floats:
        """Derivative of the posterior mean in the outcome's own estimate of theta."""

    # --- calibration of the score

    def pooled_rate(self, total: float, weight: float) -> float:
        """Mean outcome, kept where no possible outcome has a likelihood of 0."""

    def weighted(self, y: Floats, size: Floats) -> Pair:
        """Weights, and outcomes times their weights: the ratio estimates theta."""
        return size, y

    def expected(self, predictor: Floats) -> Pair:
        """Theta at positions on the scale of theta, and its derivative."""

    def regression(self, x: Floats, weight: Floats, total: Floats, penalty: float = 0.0) -> Floats:
        """Coefficients (1 + k,) of a ridge-penalised generalised linear model on x."""
        design = np.column_stack([np.ones(len(x)), x])
        ridge = np.append(0.0, np.full(design.shape[1] - 1, penalty))
        coefficients = np.zeros(design.shape[1])
        pooled = self.pooled_rate(float(total.sum()), float(weight.sum()))
        coefficients[0] = self.scale.position(pooled)
        for _ in range(_MOST_STEPS):
            theta, slope = self.expected(design @ coefficients)
            information = (design.T * (weight * slope)) @ design + np.diag(ridge)
            damping = _DAMPING * np.trace(information) * np.eye(len(ridge))
            pull = design.T @ (total - weight * theta) - ridge * coefficients
            step = np.linalg.solve(information + damping, pull)
            coefficients += np.clip(step, -self.longest, self.longest)
            if np.abs(step).max() < 1e-9 * (1.0 + np.abs(coefficients).max()):
                break
        return coefficients

    def line(self, score: Floats, y: Floats, size: Floats) -> tuple[Floats, float]:
        """Log likelihood, (n,), and slope of a straight-line calibration of scores."""
        x = self.scale.position(score) if self.scale.holds(score).all() else score
        sd = float(x.std()) or 1.0
        standard = (x - x.mean()) / sd
        level, slope = self.regression(standard, *self.weighted(y, size))
        theta, _ = self.expected(level + slope * standard)
        return self.log_likelihood(y, size, theta), float(slope) / sd

    def contrast(self, y: Floats, size: Floats, fresh_y: Floats, fresh_size: Floats) -> Pair:
        """Outcomes less their prediction from fresh ones of the same items, and weights."""


def _zeros(y: Floats, size: Floats, mean: Floats, variance: Floats) -> Floats:
    """Number of outcomes that are 0, (...,)."""
    return np.asarray((y == 0).sum(axis=-1))
