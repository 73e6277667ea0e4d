"""Values y ~ Normal(theta, s^2): functions that do not depend on the prior of theta."""

from typing import Any

import numpy as np

from .._lib.arrays import Bools, Floats
from .._lib.errors import FitError
from .forms import OutcomeForms
from .row_sums import Columns

_LOG_2PI = float(np.log(2.0 * np.pi))
_ALIKE = 0.5  # correlation from which noise sds seem to be computed from the values
_RELATED = 0.2  # the same, given the mean
_LEAST_WRONG = 0.8  # share of the items that this concerns less


class _NormalForms(OutcomeForms):
    """`OutcomeForms` of values."""

    # --- sums and cells

    def mean_size(self, sums: Columns) -> Floats:
        return np.sqrt(sums["sum_w"] / sums["n"])

    def exposure_means(self, sums: Columns) -> tuple[Floats, Floats, Floats]:
        raise FitError("values have no exposure: noise sds do not add up, so weigh by items")

    def cell_range(self, cells: Columns) -> tuple[Floats, Floats]:
        # ends of the uniform distribution with the cell's mean and variance
        n = cells["n"]
        mean, square = cells["sum_y"] / n, cells["sum_y2"] / n
        variance = square - mean**2
        # a variance below the rounding of the sums is 0
        reach = np.sqrt(3.0 * np.where((n > 1) & (variance > 1e-12 * square), variance, 0.0))
        return mean - reach, mean + reach

    def excess(self, groups: Columns, part: Any) -> tuple[Bools, Floats, Floats, Floats]:
        # in units of the squared noise sd
        known = groups["n"] > 1
        names = ("n", "sum_w", "sum_w2", "sum_y", "sum_y2")
        n, w1, w2, y1, y2 = (groups[name][known] for name in names)
        noise, share = w1 / n, 1 - 1 / n
        excess = (y2 - y1 * (y1 / n) - share * w1) / noise
        return known, excess, 2 * share * w2 / noise**2, share * n

    # --- doubts about the noise

    def doubtful(self, y: Floats, size: Floats, tight: bool = False) -> bool:
        variance = _variance_as(y, y)
        if not (y.min() >= 0 and variance.min() > 0 and np.ptp(size) > 0 and np.ptp(variance) > 0):
            return False
        return bool(np.corrcoef(np.log(size), np.log(variance))[0, 1] > _ALIKE)

    def other_width(self, y: Floats, size: Floats, mean: Floats, variance: Floats) -> Floats:
        # noise with the variance that it has at the mean, in place of that at the value
        at_mean = np.maximum(_variance_as(y, mean), np.finfo(float).tiny)
        off = _variance_as(y, y) / at_mean
        if np.corrcoef(np.log(off), np.log(size**2 / at_mean))[0, 1] < _RELATED:
            return np.ones(1)  # noise that depends on the score alone
        noise = size**2 / off
        ratio = np.log(noise / (noise + variance)) - np.log(size**2 / (size**2 + variance))
        factor = np.exp(0.5 * np.abs(ratio))
        return factor[factor >= np.quantile(factor, _LEAST_WRONG)]

    # --- outcomes given theta

    def log_likelihood(self, y: Floats, size: Floats, theta: Floats) -> Floats:
        z = (y - theta) / size
        return np.asarray(-0.5 * (z * z + _LOG_2PI) - np.log(size))

    def loss(self, y: Floats, size: Floats, theta: Floats) -> Floats:
        return np.asarray(0.5 * ((y - theta) / size) ** 2)

    def wrong_scores(self, score: Floats, y: Floats) -> Bools:
        return np.zeros(len(score), dtype=bool)

    def thinned(
        self, y: Floats, size: Floats, fraction: float, rng: np.random.Generator
    ) -> tuple[Floats, Floats]:
        noise = rng.standard_normal(len(y))
        return y + np.sqrt((1 - fraction) / fraction) * size * noise, size / np.sqrt(fraction)

    def remainder(
        self, y: Any, size: Any, held: tuple[Floats, Floats], fraction: float
    ) -> tuple[Any, Any]:
        return (y - fraction * held[0]) / (1 - fraction), size / np.sqrt(1 - fraction)

    # --- outcomes given the first two moments of theta

    @property
    def summaries(self) -> dict[str, Any]:
        return {"dispersion": self.scatter}

    def scatter(self, y: Floats, size: Floats, mean: Floats, variance: Floats) -> Floats:
        return np.asarray(((y - mean) ** 2 / (variance + size**2)).sum(axis=-1))

    def response(self, size: Floats, mean: Floats, variance: Floats) -> Floats:
        return variance / size**2

    # --- calibration of the score

    def pooled_rate(self, total: float, weight: float) -> float:
        return total / weight

    def weighted(self, y: Floats, size: Floats) -> tuple[Floats, Floats]:
        weight = size**-2.0
        return weight, weight * y

    def regressor(self, penalty: float) -> Any:
        from sklearn.linear_model import LinearRegression

        return LinearRegression()

    def line(self, score: Floats, y: Floats, size: Floats) -> tuple[Floats, float]:
        weight = 1.0 / size**2
        about = score - (weight @ score) / weight.sum()
        square = max(float((weight * about) @ about), 1e-300)
        slope = float((weight * about) @ y) / square
        fitted = (weight @ y) / weight.sum() + slope * about
        return -0.5 * weight * (y - fitted) ** 2, slope

    def contrast(
        self, y: Floats, size: Floats, fresh_y: Floats, fresh_size: Floats
    ) -> tuple[Floats, Floats]:
        # remove a common shift of all fresh values
        weight = 1.0 / (size**2 + fresh_size**2)
        residual = weight * (y - fresh_y)
        return residual - weight * residual.sum() / weight.sum(), weight


def _variance_as(y: Floats, estimate: Floats) -> Floats:
    """Variance of an estimate, up to its size: of a share if all y are below 1, else of a rate."""
    return estimate * (1.0 - estimate) if y.max() < 1 else estimate


NORMAL_FORMS = _NormalForms()
