"""Values y ~ Normal(theta, s^2) with known noise sd s."""

from typing import Any

import numpy as np
from numpy.random import Generator

from .._lib.arrays import Bools, Floats
from .._lib.errors import FitError
from .kinds import OutcomeForms, Pair, uniform_range
from .row_sums import Columns
from .scales import LINEAR

_LOG_2PI = float(np.log(2.0 * np.pi))
_ALIKE = 0.5  # correlation from which noise sds seem to be computed from the values
_RELATED = 0.2  # the same, given the mean
_LEAST_WRONG = 0.8  # share of the items that this concerns less


class _NormalForms(OutcomeForms):
    scale = LINEAR
    longest = far = np.inf  # a linear model is solved in one step

    def mean_size(self, sums: Columns) -> Floats:
        return np.sqrt(sums["sum_w"] / sums["n"])

    def exposure_means(self, sums: Columns) -> tuple[Floats, Floats, Floats]:
        raise FitError(
            "values have no exposure: noise sds do not add up, so weigh by items"
        )

    def cell_range(self, cells: Columns) -> Pair:
        return uniform_range(cells)

    def excess(
        self, groups: Columns, part: Any
    ) -> tuple[Bools, Floats, Floats, Floats]:
        # in units of the squared noise sd
        known = groups["n"] > 1
        names = ("n", "sum_w", "sum_w2", "sum_y", "sum_y2")
        n, w1, w2, y1, y2 = (groups[name][known] for name in names)
        noise = w1 / n
        share = 1 - 1 / n
        excess = (y2 - y1 * (y1 / n) - share * w1) / noise
        return known, excess, 2 * share * w2 / noise**2, share * n

    def doubtful(self, y: Floats, size: Floats, tight: bool = False) -> bool:
        variance = _variance_as(y, y)
        if not (
            y.min() >= 0
            and variance.min() > 0
            and np.ptp(size) > 0
            and np.ptp(variance) > 0
        ):
            return False
        return bool(np.corrcoef(np.log(size), np.log(variance))[0, 1] > _ALIKE)

    def other_width(
        self, y: Floats, size: Floats, mean: Floats, variance: Floats
    ) -> Floats:
        # noise with the variance that it has at the mean, in place of that at the value
        at_mean = np.maximum(_variance_as(y, mean), np.finfo(float).tiny)
        off = _variance_as(y, y) / at_mean
        if np.corrcoef(np.log(off), np.log(size**2 / at_mean))[0, 1] < _RELATED:
            return np.ones(1)  # noise that depends on the score alone
        noise = size**2 / off
        ratio = np.log(noise / (noise + variance)) - np.log(
            size**2 / (size**2 + variance)
        )
        factor = np.exp(0.5 * np.abs(ratio))
        return factor[factor >= np.quantile(factor, _LEAST_WRONG)]

    def log_likelihood(self, y: Floats, size: Floats, theta: Floats) -> Floats:
        z = (y - theta) / size
        return np.asarray(-0.5 * (z * z + _LOG_2PI) - np.log(size))

    def loss(self, y: Floats, size: Floats, theta: Floats) -> Floats:
        return np.asarray(0.5 * ((y - theta) / size) ** 2)

    def thinned(self, y: Floats, size: Floats, fraction: float, rng: Generator) -> Pair:
        noise = rng.standard_normal(len(y))
        return y + np.sqrt((1 - fraction) / fraction) * size * noise, size / np.sqrt(
            fraction
        )

    def remainder(
        self, y: Any, size: Any, held: Pair, fraction: float
    ) -> tuple[Any, Any]:
        return (y - fraction * held[0]) / (1 - fraction), size / np.sqrt(1 - fraction)

    def noise(self, mean: Floats, variance: Any = 0.0) -> Floats:
        return np.ones_like(mean)

    def scatter(
        self, y: Floats, size: Floats, mean: Floats, variance: Floats
    ) -> Floats:
        return np.asarray(((y - mean) ** 2 / (variance + size**2)).sum(axis=-1))

    def response(self, size: Floats, mean: Floats, variance: Floats) -> Floats:
        return variance / size**2

    def weighted(self, y: Floats, size: Floats) -> Pair:
        weight = size**-2.0
        return weight, weight * y

    def contrast(
        self, y: Floats, size: Floats, fresh_y: Floats, fresh_size: Floats
    ) -> Pair:
        # remove a common shift of all fresh values
        weight = 1.0 / (size**2 + fresh_size**2)
        residual = weight * (y - fresh_y)
        return residual - weight * residual.sum() / weight.sum(), weight


def _variance_as(y: Floats, estimate: Floats) -> Floats:
    """Variance of an estimate, up to its size: of a share if all y are below 1, else of a rate."""
    return estimate * (1.0 - estimate) if y.max() < 1 else estimate


NORMAL_FORMS = _NormalForms()
