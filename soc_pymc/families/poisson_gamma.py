"""Counts y ~ Poisson(theta N) with theta ~ Gamma(shape, rate).

The prior is described by the logarithms of its mean and of its squared coefficient of variation,
cv2 = variance / mean^2 = 1 / shape: their information is orthogonal, and cv2 -> 0 (no
overdispersion, a Poisson marginal) is a regular limit.

With alpha = 1/cv2 and mu the mean of the prior in a row, the items' log marginal is

    sum_j C_j log1p(j/alpha) + S log(mu) - sum_i (alpha + y_i) log1p(N_i mu/alpha) + constant,

C_j the number of items with y > j and S the sum of y: it needs one histogram over counts and one
over exposures. Wide cells stand as two points that keep the cell's mean and variance, so that the
error is of third order in the cell's width. It is exact as alpha -> infinity.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numba
import numpy as np
import pandas as pd
from numpy.random import Generator
from numpy.typing import NDArray
from scipy import special

from .._lib.arrays import Floats, Ints
from .components import inverse_trigamma
from .conjugate import REACH, Family, Generators, Pair, count_grid, grid_ends
from .outcomes import OUTCOMES
from .priors import Gamma, GammaMixture
from .rising import columns, make_rising, rising, two_points
from .row_sums import Columns, RowSums, by_row, row_of
from .special_functions import gamma_kernel, log_negative_binomial, negative_binomial_tail

_LARGEST_SHAPE = 1e100
"""Largest shape: above it the marginal is Poisson to all digits, and squares would overflow."""
_NO_SPREAD, _NO_NOISE = 1e15, 1e15  # shapes of a Gamma and means of a Poisson without visible noise
_TINY = 1e-300  # below this the cdf of a Gamma is computed from its logarithm
_LEAST_SHAPE = 1.0  # smaller ones are drawn at shape + 1 and transformed, as draws underflow
_MOST_EVENTS = 1e18  # expected of an item: more than this numpy cannot draw
_TAIL = 20.0  # extent of a grid of further counts, in Gamma tails
_MANY = 1e5  # counts from which on logarithms of probabilities are formed without cancellation
_COUNT_SUMS = ("n", "sum_y", "sum_y2", "sum_y3")
_EXPOSURE_SUMS = ("n", "sum_N", "sum_N2", "sum_N3", "sum_y", "sum_yN", "sum_yN2", "sum_yN3")


# --- rows ----------------------------------------------------------------------------------------


@numba.njit(cache=True, nogil=True, error_model="numpy")
def draw_row(  # type: ignore[no-untyped-def]
    rng, location, dispersion, step, over, wide_excess, wide_weight, exposure, items, counts, total,
    constant, spread,
):  # fmt: skip
    """Total count of a row: items of one exposure have a negative binomial sum."""
    cv2 = np.exp(dispersion) + spread * (1.0 + np.exp(dispersion))
    if not cv2 < np.inf:  # theta is 0 with probability 1
        return 0.0
    expected = 0.0
    for i in range(len(items)):
        shape = items[i] / cv2
        share = rng.gamma(shape, 1.0) / shape if 0.0 < shape < _NO_SPREAD else 1.0
        expected += exposure[i] * items[i] * share
    expected *= np.exp(location + 0.5 * spread)
    return float(rng.poisson(expected)) if expected < _NO_NOISE else expected


@dataclass(frozen=True)
class GammaRows(RowSums):
    """The two histograms of all rows as weighted points, rows one after the other."""

    step_start: Ints  # as in `Rising`, of counts
    step: Floats
    over: Floats
    wide_start: Ints
    wide_excess: Floats
    wide_weight: Floats
    start: Ints  # (rows + 1,): offsets of points of exposure
    exposure: Floats
    items: Floats
    counts: Floats  # sum of the items' counts
    total: Floats  # (rows,): sum of counts
    constant: Floats  # (rows,): sum of y log N - log y!, which makes a log probability
    spread: Floats  # (rows,): variance of the items' own log means around that of the row's centre

    tables: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "step_start": ("step", "over"),
        "wide_start": ("wide_excess", "wide_weight"),
        "start": ("exposure", "items", "counts"),
    }
    draw_row = staticmethod(draw_row)
    margins = ("count", "exposure")
    size_cell = "exposure_cell"
    nothing = "every exposure is 0"

    @staticmethod
    def widened(xp: Any, location: Any, dispersion: Any, spread: Any) -> Pair:
        """Curves of theta over a row, m exp(spread/2) and cv2 + spread (1 + cv2)."""
        cv2 = xp.exp(dispersion)
        return location + 0.5 * spread, xp.log(cv2 + spread * (1.0 + cv2))

    @staticmethod
    def log_probability(
        xp: Any, location: Any, dispersion: Any, step: Any, over: Any, wide_excess: Any,
        wide_weight: Any, exposure: Any, items: Any, counts: Any, total: Any, constant: Any,
    ) -> Any:  # fmt: skip
        """Log marginal of rows without spread."""
        cv2 = xp.exp(dispersion)
        ratio = exposure * (xp.exp(location) * cv2)[..., None]
        known = (items * (1.0 / cv2)[..., None] + counts) * xp.log1p(ratio)
        of_counts = rising(xp, cv2, step, over, wide_excess, wide_weight)
        return of_counts + total * location - known.sum(axis=-1) + constant

    @classmethod
    def of(cls, rows: int, cells: Mapping[str, Columns]) -> "GammaRows":
        """Build from tables of cells with a column ``row``: joint cells, or both margins."""
        joint = cells.get("joint")
        if joint is not None:
            counts = exposures = joint
            log_size = np.log(joint["sum_N"] / joint["n"])
            y_log_n = np.bincount(joint["row"], joint["sum_y"] * log_size, rows)
        else:
            counts, exposures, part = cells["count"], cells["exposure"], cells["part"]
            y_log_n = np.bincount(part["row"], part["sum_y_log_N"], rows)
        counts_above, log_factorials = make_rising(rows, columns(counts, _COUNT_SUMS))
        points = _exposure_points(rows, exposures)
        total = np.bincount(exposures["row"], exposures["sum_y"], rows)
        return cls(*counts_above, *points, total, y_log_n - log_factorials, np.zeros(rows))

    @staticmethod
    def events(sums: Mapping[str, float]) -> float:
        """Sum of all counts."""
        return sums["sum_y"]

    def information(self, location: Floats, dispersion: Floats) -> tuple[Floats, Floats]:
        """Fisher information of log mean, and a lower bound of that of log cv2, by row.

        The bound is the information of the best quadratic function of the count (Godambe 1985),
        from the negative binomial's first four cumulants; it is sharp where expected counts are
        small.
        """
        row, number = row_of(self.start), len(self.total)
        log_mean, log_cv2 = self.widened(np, location, dispersion, self.spread)
        chain = np.exp(dispersion - log_cv2) * (1.0 + self.spread)
        cv2 = np.exp(log_cv2)[row]
        expected = self.exposure * np.exp(log_mean)[row]
        r = expected * cv2
        # r^2 expected / (k4 + 2 expected k2^2 - k3^2 / k2) where the cumulants over the expected
        # count are k2 = 1 + r, k3 = k2 (1 + 2r), k4 = k2 (1 + 6r + 6r^2)
        quadratic = 0.5 * (r / (1.0 + r)) ** 2 / (1.0 + cv2)
        of_mean = np.bincount(row, self.items * expected / (1.0 + r), number)
        return of_mean, chain**2 * np.bincount(row, self.items * quadratic, number)

    def level(self) -> tuple[float, float]:
        """Log of the overall rate, and the prior's own level."""
        exposure = float(self.exposure @ self.items)
        return float(np.log((self.total.sum() + 0.5) / exposure)), self.dispersion_level[0]

    @property
    def can_fit(self) -> NDArray[np.bool_]:
        """Rows with an event: without one the mean is 0 and its logarithm nowhere."""
        return self.total > 0


def _exposure_points(rows: int, cells: Columns) -> tuple[Ints, Floats, Floats, Floats]:
    """Offsets of rows, distinct exposures, and the items and counts of each."""
    row, n, n1, n2, n3, y, y1, y2, y3 = columns(cells, _EXPOSURE_SUMS)
    occupied = y > 0
    weights = (
        pd.Series(weight).groupby([point_row, exposure]).sum()
        for point_row, exposure, weight in (
            two_points(row, n, n1, n2, n3),
            two_points(row[occupied], y[occupied], y1[occupied], y2[occupied], y3[occupied]),
        )
    )
    points = pd.concat(weights, axis=1, sort=True).fillna(0.0)  # exact cells share their points
    place, size = (points.index.get_level_values(k).to_numpy() for k in (0, 1))
    start, (exposure, items, counts) = by_row(rows, place, size, *points.to_numpy().T)
    return start, exposure, items, counts


# --- the family ----------------------------------------------------------------------------------


class PoissonGamma(Family):
    """Gamma priors of the rates of counts: `a` is the shape, `b` the rate."""

    name = "Gamma"
    outcome = OUTCOMES["poisson"]
    prior, mixture, rows = Gamma, GammaMixture, GammaRows
    has_log_moments = True

    def to_parameters(self, location: Any, dispersion: Any) -> Pair:
        return np.exp(-dispersion), np.exp(-dispersion - location)

    def to_curves(self, a: Any, b: Any) -> Pair:
        return np.log(a) - np.log(b), -np.log(a)

    def curve_variables(self, location: Floats, dispersion: Floats) -> dict[str, Floats]:
        shape, rate = self.to_parameters(location, dispersion)
        log_variance = dispersion + 2.0 * location
        return {
            "mean": np.exp(location),
            "variance": np.exp(log_variance),
            "log_mean": location,
            "log_variance": log_variance,
            "shape": shape,
            "rate": rate,
        }

    def natural_moments(self, location: Any, dispersion: Any) -> Pair:
        return np.exp(location), dispersion * np.exp(2.0 * location)

    def update(self, a: Any, b: Any, y: Any, size: Any) -> Pair:
        return a + y, b + size

    def mean(self, a: Any, b: Any) -> Any:
        return a / b

    def variance(self, a: Any, b: Any) -> Any:
        return a / b / b  # the square of the rate could overflow

    def third(self, a: Any, b: Any) -> Any:
        return 2.0 * a / b / b / b

    def above(self, cut: Floats, a: Floats, b: Floats) -> Floats:
        return np.asarray(special.gammaincc(a, np.maximum(cut, 0.0) * b))

    def excess(self, cut: Floats, a: Floats, b: Floats) -> Floats:
        # (a - x) Q(a, x) + x^a e^-x / Gamma(a), not negative despite rounding
        x = np.maximum(cut, 0.0) * b
        inside = (a - x) * special.gammaincc(a, x) + a * gamma_kernel(a, x)
        return np.where(cut > 0, np.maximum(inside, 0.0) / b, a / b - cut)

    def shortfall(self, cut: Floats, a: Floats, b: Floats) -> Floats:
        x = np.maximum(cut, 0.0) * b
        inside = (x - a) * special.gammainc(a, x) + a * gamma_kernel(a, x)
        return np.maximum(inside, 0.0) / b

    def draw(self, a: Floats, b: Floats, rngs: Generators) -> Floats:
        return draw_log_gamma(a, rngs) - np.log(b)

    def natural(self, drawn: Floats) -> Floats:
        return np.exp(drawn)

    def above_drawn(self, drawn: Floats, a: Floats, b: Floats) -> Floats:
        log_x = drawn + np.log(b)
        # an overflowing theta has tail 0; underflow is corrected below
        with np.errstate(over="ignore", under="ignore"):
            x = np.exp(log_x)
            tail = special.gammaincc(a, x)
        lost = x < _TINY
        if lost.any():
            shape, log_of_lost = np.broadcast_to(a, x.shape)[lost], log_x[lost]
            log_tail = shape * log_of_lost - special.gammaln(shape + 1.0)
            tail[lost] = -np.expm1(np.minimum(log_tail, 0.0))
        return np.asarray(tail)

    def log_density(self, y: Any, size: Any, location: Any, dispersion: Any) -> Floats:
        expected = np.asarray(size, dtype=float) * np.exp(location)
        return log_negative_binomial(y, _bounded_shape(dispersion), expected)

    def cdf_interval(self, y: Any, size: Any, location: Any, dispersion: Any) -> Pair:
        shape = _bounded_shape(dispersion)
        rate = shape * np.exp(-location)
        return self.below(y, size, shape, rate), self.below(y + 1.0, size, shape, rate)

    def simulate(self, location: Any, dispersion: Any, size: Any, rng: Generator) -> Floats:
        theta = rng.standard_gamma(np.exp(-dispersion)) * np.exp(location + dispersion)
        return rng.poisson(np.minimum(size * theta, _MOST_EVENTS)).astype(float)

    def grid(self, weight: Floats, a: Floats, b: Floats, size: Floats) -> tuple[Floats, Floats]:
        mean, scale = a * (size / b), 1.0 + size / b
        reach = REACH * np.sqrt(mean * scale)
        low, high = grid_ends(weight, mean - reach, mean + reach + _TAIL * scale)
        return count_grid(np.floor(np.maximum(low, 0.0)), np.ceil(high))

    def further_log_density(self, y: Floats, a: Floats, b: Floats, size: Floats) -> Floats:
        if y.max() > _MANY or (a != a[:1]).any():
            return log_negative_binomial(y, a, a * (size / b))
        # terms that components of one shape share are computed once; they cancel for large counts
        log_p = -y * np.log1p(b / size) - a * np.log1p(size / b)
        return np.asarray(log_p + special.gammaln(a[0] + y) - special.gammaln(y + 1.0))

    def cut_offs(self, a: Floats, b: Floats, size: Floats, cut: Floats) -> Floats:
        return np.maximum(np.floor(cut * (b + size) - a) + 1.0, 0.0)

    def below(self, y: Floats, size: Floats, a: Floats, b: Floats) -> Floats:
        tail = negative_binomial_tail(np.maximum(y, 1.0) - 1.0, a, size / b)
        return np.where(y > 0, tail, 0.0)


def _bounded_shape(log_cv2: Any) -> Floats:
    """Shape of the Gamma, bounded so that its square is finite."""
    return np.exp(np.minimum(-np.asarray(log_cv2, dtype=float), np.log(_LARGEST_SHAPE)))


def draw_log_gamma(shape: Floats, rngs: Generators) -> Floats:
    """Draws of the logarithm of a Gamma of rate 1, one for each element, row by row."""
    small = shape < _LEAST_SHAPE
    drawn = np.log(rngs[0].standard_gamma(np.where(small, shape + 1.0, shape)))
    if small.any():
        # Gamma(a) is Gamma(a + 1) U^(1/a), whose logarithm does not underflow
        drawn[small] -= rngs[1].standard_exponential(int(small.sum())) / shape[small]
    return drawn


def moments_of_log(log_mean: Any, log_cv2: Any) -> Pair:
    """E(log theta) and Var(log theta) of Gammas with these curves."""
    shape = np.exp(-log_cv2)
    return log_mean + (special.psi(shape) - np.log(shape)), special.polygamma(1, shape)


def match_gammas(mean_log: Floats, variance_log: Floats) -> tuple[Floats, Floats]:
    """Log mean and log cv2 of Gammas with these moments of log theta.

    Shifting and scaling log theta would leave the Gamma family, so the two moments are matched:
    trigamma(shape) = Var(log theta), then log rate = digamma(shape) - E(log theta).
    """
    shape = inverse_trigamma(variance_log)
    return mean_log + np.log(shape) - special.psi(shape), -np.log(shape)
