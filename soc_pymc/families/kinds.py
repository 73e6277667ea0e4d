"""Functions of outcomes of one kind that do not depend on the prior of theta."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.random import Generator

from .._lib.arrays import Bools, Floats
from .row_sums import Columns
from .scales import Scale

Pair = tuple[Floats, Floats]
# of Newton's method for regressions
_MOST_STEPS = 100
_DAMPING = 1e-9


class OutcomeForms(ABC):
    """Functions of outcomes `y` and sizes (n,) of one kind; bodies serve counts and successes."""

    scale: Scale  # on which regressions are linear
    longest: float = 1.0  # step of their coefficients
    far: float = 300.0  # positions of theta that are as good as infinite
    zeros: str = ""  # name of the number of outcomes that are 0

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
        low, high = uniform_range(cells)
        low = np.maximum(np.floor(low + 0.5), 0.0)
        return low, np.maximum(np.ceil(high - 0.5), low)

    @abstractmethod
    def excess(
        self, groups: Columns, part: Any
    ) -> tuple[Bools, Floats, Floats, Floats]:
        """Mask of groups of items; their squared residuals less noise, with variance and noise."""

    # --- doubts about the noise

    def doubt(self, table: Callable[[str], Columns]) -> str:
        """Describe the evidence in tables of sums against this kind's noise; empty if none."""
        return ""

    def doubtful(self, y: Floats, size: Floats, tight: bool = False) -> bool:
        """Return True if outcomes (`tight` or not) and sizes speak against this noise."""
        return False

    def other_width(
        self, y: Floats, size: Floats, mean: Floats, variance: Floats
    ) -> Floats:
        """Relative widths of intervals under the other noise, given moments of theta, (n,)."""
        return np.ones_like(mean)

    # --- outcomes given theta

    @abstractmethod
    def log_likelihood(self, y: Floats, size: Floats, theta: Floats) -> Floats:
        """Log probability (density) of outcomes, (n,), in nats."""

    def loss(self, y: Floats, size: Floats, theta: Floats) -> Floats:
        """Denominator of percentage gains in log likelihood, (n,), >= 0."""
        return -self.log_likelihood(y, size, theta)

    def wrong_scores(self, score: Floats, y: Floats) -> Bools:
        """Mask of scores that cannot be estimates of theta, given the outcomes."""
        low = self.scale.low
        high = self.scale.high
        return (score < low) | (score > high) | ((score == low) & (y > 0))

    @abstractmethod
    def thinned(self, y: Floats, size: Floats, fraction: float, rng: Generator) -> Pair:
        """A random part of each outcome, and its size; `remainder` is independent of it."""

    def remainder(
        self, y: Any, size: Any, held: Pair, fraction: float
    ) -> tuple[Any, Any]:
        """The rest of each outcome after thinning, and its size."""
        return y - held[0], size - held[1]

    # --- outcomes given the first two moments of theta

    @abstractmethod
    def noise(self, mean: Floats, variance: Any = 0.0) -> Floats:
        """Expected variance of an outcome of size 1 about theta, from the moments of theta."""

    @property
    def summaries(self) -> Mapping[str, Callable[..., Floats]]:
        """Summaries of items to compare with replicates, by name: (y, size, mean, variance)."""
        zeros = {self.zeros: lambda y, *_: (y == 0).sum(axis=-1)} if self.zeros else {}
        return {"dispersion": self.scatter, **zeros}

    def scatter(
        self, y: Floats, size: Floats, mean: Floats, variance: Floats
    ) -> Floats:
        """Sum over items of squared residuals, weighted to measure a common factor on variance."""
        # residuals^2 over kappa_4 + 2 Var(y)^2 in units of Var(y) = expected (1 + extra)
        unit = self.noise(mean)
        extra = np.maximum(
            (self.noise(mean, variance) - unit + size * variance) / unit, 0.0
        )
        noise = 1.0 + 6.0 * extra * (1.0 + extra) + 2.0 * size * unit * (1.0 + extra)
        return np.asarray(((y - size * mean) ** 2 / noise).sum(axis=-1))

    def response(self, size: Floats, mean: Floats, variance: Floats) -> Floats:
        """Derivative of the posterior mean in the outcome's own estimate of theta."""
        return size * variance / np.maximum(self.noise(mean, variance), 1e-300)

    # --- calibration of the score

    def pooled_rate(self, total: float, weight: float) -> float:
        """Mean outcome; half an event stands for none, for which a likelihood would be 0."""
        low = self.scale.low * weight + 0.5
        high = self.scale.high * weight - 0.5
        return min(max(total, low), high) / weight

    def weighted(self, y: Floats, size: Floats) -> Pair:
        """Weights, and outcomes times their weights: the ratio estimates theta."""
        return size, y

    def expected(self, predictor: Floats) -> Pair:
        """Theta at positions on the scale of theta, and its derivative."""
        theta = self.scale.score(np.clip(predictor, -self.far, self.far))
        return theta, self.noise(theta)

    def regression(
        self, x: Floats, weight: Floats, total: Floats, penalty: float = 0.0
    ) -> Floats:
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

    @abstractmethod
    def contrast(
        self, y: Floats, size: Floats, fresh_y: Floats, fresh_size: Floats
    ) -> Pair:
        """Outcomes less their prediction from fresh ones of the same items, and weights."""


def uniform_range(cells: Columns) -> Pair:
    """Ends of uniform distributions with the cells' means and variances."""
    n = cells["n"]
    mean = cells["sum_y"] / n
    square = cells["sum_y2"] / n
    variance = square - mean**2
    # a variance below the rounding of the sums is 0
    reach = np.sqrt(
        3.0 * np.where((n > 1) & (variance > 1e-12 * square), variance, 0.0)
    )
    return mean - reach, mean + reach
