"""Counts y ~ Poisson(theta N) with theta ~ Gamma(shape, rate), by its log mean and log cv2.

cv2 = variance / mean^2 = 1 / shape, and cv2 -> 0 (a Poisson marginal) is a regular limit. The log
marginal of a row needs one histogram over counts and one over exposures (docs/dev/design.md).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.random import Generator
from numpy.typing import NDArray
from scipy import special

from .._lib.arrays import Floats, Ints
from ..prior_table import FAMILIES as FORMULAS
from .components import inverse_trigamma
from .conjugate import Family, Generators, Pair
from .outcomes import OUTCOMES
from .priors import Gamma, GammaMixture
from .row_sums import Columns, Ragged, RowSums, by_row
from .scales import EXACT_COUNTS
from .special_functions import beta_tail, log_negative_binomial

# shapes of a Gamma and means of a Poisson without visible noise
_NO_SPREAD = 1e15
_NO_NOISE = 1e15
_SHARP = 1e10  # shape from which a Gamma is Normal in the signed root of its deviance
_NO_GAMMA = 1e100  # shape from which a negative binomial is a Poisson
_TINY = (
    -690.0
)  # log of the numbers below which the cdf of a Gamma is computed from its logarithm
_LEAST_SHAPE = (
    1.0  # smaller ones are drawn at shape + 1 and transformed, as draws underflow
)
_MOST_EVENTS = 1e18  # expected of an item: more than this numpy cannot draw
_MANY = 1e5  # counts from which on logarithms of probabilities are formed without cancellation
_TAIL = 20.0  # extent of a grid of further counts, in Gamma tails
_COUNT_SUMS = ("n", "sum_y", "sum_y2", "sum_y3")
_EXPOSURE_SUMS = (
    "n",
    "sum_N",
    "sum_N2",
    "sum_N3",
    "sum_y",
    "sum_yN",
    "sum_yN2",
    "sum_yN3",
)


# --- rows ----------------------------------------------------------------------------------------


def _stirling(x: Any) -> Any:
    """Log Gamma(x) - (x - 1/2) log x + x - log(2 pi)/2, for x of 32 and more: to 1e-16."""
    square = 1.0 / (x * x)
    return (
        1.0 / 12.0 - square * (1.0 / 360.0 - square * (1.0 / 1260.0 - square / 1680.0))
    ) / x


def rising(xp: Any, cv2: Any, step: Any, over: Any, excess: Any, weight: Any) -> Any:
    """Sums over items, by row (..., k), of log1p(j cv2) over j < y; columns are of `histogram`."""
    # below 32 from the number of items with y > j, from there on by Stirling's series
    cv2 = cv2[..., None]
    exact = over * xp.log1p(step * cv2)
    base = 1.0 / cv2 + EXACT_COUNTS
    log1p_x = xp.log1p(excess / base)
    tail = excess * xp.log1p(EXACT_COUNTS * cv2) + base * (log1p_x - excess / base)
    tail = tail + (excess - 0.5) * log1p_x + _stirling(base + excess) - _stirling(base)
    return exact.sum(axis=-1) + (weight * tail).sum(axis=-1)


def two_points(
    row_of: Ints, weight: Floats, sums: Floats, squares: Floats, cubes: Floats
) -> tuple[Ints, Floats, Floats]:
    """Points (row, value, weight): one for a cell of a single value, else a Gauss rule of two."""
    mean = sums / weight
    variance = squares / weight - mean * mean
    # sums of squares carry rounding of this relative size: below it the cell is a single value
    divided = variance > 1e-13 * mean * mean
    mean_w = mean[divided]
    sd = np.sqrt(variance[divided])
    about = cubes[divided] / weight[divided] - mean_w * (
        3.0 * variance[divided] + mean_w * mean_w
    )
    # what rounding leaves of the third moment of a narrow cell is noise; points stay in the cell
    lean = np.where(
        variance[divided] > 1e-10 * mean_w * mean_w, about / variance[divided], 0.0
    )
    lean = np.clip(lean, -mean_w / 16.0, mean_w / 16.0) / (2.0 * sd)
    reach = np.sqrt(1.0 + lean * lean)
    upper = 0.5 * (1.0 - lean / reach)
    low, high = (mean_w + sd * (lean + sign * reach) for sign in (-1.0, 1.0))
    value = mean.copy()
    share = weight.astype(float)
    value[divided] = np.maximum(low, 0.0)
    share[divided] *= 1.0 - upper
    return (
        np.concatenate([row_of, row_of[divided]]),
        np.concatenate([value, high]),
        np.concatenate([share, weight[divided] * upper]),
    )


@dataclass(frozen=True, eq=False)
class GammaRows(RowSums):
    """The two histograms of all rows as weighted points."""

    steps: Ragged  # of counts, as in `histogram`
    wide: Ragged
    points: Ragged  # distinct exposures, and the items and counts of each
    total: Floats  # (rows,): sum of counts
    constant: Floats  # (rows,): sum of y log N - log y!, which makes a log probability
    spread: Floats  # (rows,): variance of the items' log means around that of the row's centre

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

    @staticmethod
    def draw_totals(rng: Generator, location: Any, dispersion: Any, *cells: Any) -> Any:
        """Random counts of rows: the theta of items of one exposure have a sum that is Gamma."""
        exposure, items = cells[4:6]
        cv2 = np.exp(dispersion)[..., None]
        shape = items / cv2
        sharp = shape >= _NO_SPREAD
        drawn = (
            shape > 0.0
        ) & ~sharp  # for an infinite cv2 theta is 0 with probability 1
        gamma = cv2 * rng.standard_gamma(np.where(drawn, shape, 0.0))
        theta_sums = np.select([sharp, drawn], [items, gamma], 0.0)
        expected = np.exp(location) * (exposure * theta_sums).sum(axis=-1)
        noisy = expected < _NO_NOISE
        return np.where(noisy, rng.poisson(np.where(noisy, expected, 0.0)), expected)

    @classmethod
    def of(cls, rows: int, cells: Mapping[str, Columns]) -> "GammaRows":
        """Build from tables of cells with a column ``row``: joint cells, or both margins."""
        joint = cells.get("joint")
        if joint is not None:
            counts = exposures = joint
            log_size = np.log(joint["sum_N"] / joint["n"])
            y_log_n = np.bincount(joint["row"], joint["sum_y"] * log_size, rows)
        else:
            counts = cells["count"]
            exposures = cells["exposure"]
            part = cells["part"]
            y_log_n = np.bincount(part["row"], part["sum_y_log_N"], rows)
        of_counts, log_factorials = histogram(rows, columns(counts, _COUNT_SUMS))
        points = _exposure_points(rows, exposures)
        total = np.bincount(exposures["row"], exposures["sum_y"], rows)
        return cls(*of_counts, points, total, y_log_n - log_factorials, np.zeros(rows))

    @staticmethod
    def events(sums: Mapping[str, float]) -> float:
        """Sum of all counts."""
        return sums["sum_y"]

    def information(
        self, location: Floats, dispersion: Floats
    ) -> tuple[Floats, Floats]:
        """Fisher information of log mean, and a lower bound of that of log cv2, by row."""
        row, number, (exposure, items, _) = (
            self.points.row,
            len(self.total),
            self.points.columns,
        )
        log_mean, log_cv2 = self.widened(np, location, dispersion, self.spread)
        chain = np.exp(dispersion - log_cv2) * (1.0 + self.spread)
        cv2 = np.exp(log_cv2)[row]
        expected = exposure * np.exp(log_mean)[row]
        r = expected * cv2
        # of the best quadratic function of the count (Godambe 1985), from cumulants:
        # r^2 expected / (k4 + 2 expected k2^2 - k3^2 / k2) where the cumulants over the expected
        # count are k2 = 1 + r, k3 = k2 (1 + 2r), k4 = k2 (1 + 6r + 6r^2)
        quadratic = 0.5 * (r / (1.0 + r)) ** 2 / (1.0 + cv2)
        of_mean = np.bincount(row, items * expected / (1.0 + r), number)
        return of_mean, chain**2 * np.bincount(row, items * quadratic, number)

    def level(self) -> tuple[float, float]:
        """Log of the overall rate, and the prior's own level."""
        exposure, items, _ = self.points.columns
        rate = (self.total.sum() + 0.5) / (exposure @ items)
        return float(np.log(rate)), self.dispersion_level[0]

    @property
    def can_fit(self) -> NDArray[np.bool_]:
        """Rows with an event: without one the mean is 0 and its logarithm nowhere."""
        return self.total > 0


def histogram(
    rows: int, cells: Sequence[NDArray[Any]]
) -> tuple[tuple[Ragged, Ragged], Floats]:
    """Columns for `rising` from cells (row, n, sums of y, y^2, y^3), and sums of log y! by row.

    They are numbers j below 32 with the items of more than j, and others less 32 with their items.
    """
    point_row, y, weight = two_points(*cells)
    nearest = np.rint(
        y
    )  # weighted sums of one count are its multiples except for rounding
    y = np.where(np.abs(y - nearest) <= 1e-12 * nearest, nearest, y)
    above = np.zeros((rows, EXACT_COUNTS))
    for j in range(EXACT_COUNTS):
        over = y > j
        above[:, j] = np.bincount(point_row[over], weights=weight[over], minlength=rows)
    row, step = np.nonzero(above)
    steps = by_row(rows, row, step.astype(float), above[row, step])
    far = y > EXACT_COUNTS - 1  # the lower of two points may fall just below its cell
    wide = by_row(rows, point_row[far], y[far] - EXACT_COUNTS, weight[far])
    log_factorials = np.bincount(point_row, weight * special.gammaln(y + 1.0), rows)
    return (steps, wide), log_factorials


def columns(table: Columns, names: Sequence[str]) -> tuple[NDArray[Any], ...]:
    """Row of each cell, and its sums as real numbers."""
    return (table["row"], *(table[name].astype(float) for name in names))


def _exposure_points(rows: int, cells: Columns) -> Ragged:
    """Distinct exposures, and the items and counts of each."""
    row, n, n1, n2, n3, y, y1, y2, y3 = columns(cells, _EXPOSURE_SUMS)
    occupied = y > 0
    weights = (
        pd.Series(weight).groupby([point_row, exposure]).sum()
        for point_row, exposure, weight in (
            two_points(row, n, n1, n2, n3),
            two_points(
                row[occupied], y[occupied], y1[occupied], y2[occupied], y3[occupied]
            ),
        )
    )
    points = pd.concat(weights, axis=1, sort=True).fillna(
        0.0
    )  # exact cells share their points
    place, size = (points.index.get_level_values(k).to_numpy() for k in (0, 1))
    return by_row(rows, place, size, *points.to_numpy().T)


# --- the family ----------------------------------------------------------------------------------


class PoissonGamma(Family):
    """Gamma priors of the rates of counts: `a` is the shape, `b` the rate."""

    name = "Gamma"
    formulas = FORMULAS["Gamma"]
    outcome = OUTCOMES["poisson"]
    prior = Gamma
    mixture = GammaMixture
    rows = GammaRows
    parameters = "shape", "rate"
    has_log_moments = True

    def to_curves(self, a: Any, b: Any) -> Pair:
        return np.log(a) - np.log(b), -np.log(a)

    def natural_moments(self, location: Any, dispersion: Any) -> Pair:
        return np.exp(location), dispersion * np.exp(2.0 * location)

    def third(self, a: Any, b: Any) -> Any:
        return 2.0 * a / b / b / b

    def above(self, cut: Floats, a: Floats, b: Floats) -> Floats:
        return np.asarray(special.gammaincc(a, np.maximum(cut, 0.0) * b))

    def cdf(self, cut: Floats, a: Floats, b: Floats) -> Floats:
        return np.asarray(special.gammainc(a, np.maximum(cut, 0.0) * b))

    def kernel(self, cut: Floats, a: Floats, b: Floats) -> Floats:
        # x^a e^-x / Gamma(a + 1) as a Poisson probability, which loses no digits where a is large
        return (
            a
            / b
            * np.exp(log_negative_binomial(a, _NO_GAMMA, np.maximum(cut, 0.0) * b))
        )

    def draw(self, a: Floats, b: Floats, rngs: Generators) -> Floats:
        return draw_log_gamma(a, rngs) - np.log(b)

    def natural(self, drawn: Floats) -> Floats:
        return np.exp(drawn)

    def above_drawn(self, drawn: Floats, a: Floats, b: Floats) -> Floats:
        log_x = drawn + np.log(b)
        log_tail = a * log_x - special.gammaln(a + 1.0)  # the lower tail of a small x
        x = np.exp(np.minimum(log_x, -_TINY))
        tail = special.gammaincc(a, x)
        if np.max(a) > _SHARP:  # SciPy's tails of 1e-6 are off by a factor of 100 there
            apart = x / a - 1.0
            root = np.sqrt(2.0 * a * np.maximum(apart - np.log1p(apart), 0.0))
            tail = np.where(a > _SHARP, special.ndtr(-np.sign(apart) * root), tail)
        return np.where(log_x < _TINY, -np.expm1(np.minimum(log_tail, 0.0)), tail)

    def log_marginal(self, y: Any, size: Any, a: Any, b: Any) -> Floats:
        return np.asarray(log_negative_binomial(y, a, a * (size / b)))

    def below(self, y: Floats, size: Floats, a: Floats, b: Floats) -> Floats:
        ratio = size / b
        tail = beta_tail(
            ratio / (1.0 + ratio), 1.0 / (1.0 + ratio), np.maximum(y, 1.0), a
        )
        return np.where(y > 0, tail, 0.0)

    def simulate(
        self, location: Any, dispersion: Any, size: Any, rng: Generator
    ) -> Floats:
        theta = rng.standard_gamma(np.exp(-dispersion)) * np.exp(location + dispersion)
        return rng.poisson(np.minimum(size * theta, _MOST_EVENTS)).astype(float)

    def outcome_moments(
        self, a: Floats, b: Floats, size: Floats
    ) -> tuple[Floats, Floats, Floats]:
        mean = a * (size / b)
        scale = 1.0 + size / b
        return mean, np.sqrt(mean * scale), _TAIL * scale

    def further_log_density(
        self, y: Floats, size: Floats, a: Floats, b: Floats
    ) -> Floats:
        if y.max() > _MANY or (a != a[:1]).any():
            return self.log_marginal(y, size, a, b)
        # terms that components of one shape share are computed once; they cancel for large counts
        log_p = -y * np.log1p(b / size) - a * np.log1p(size / b)
        return np.asarray(log_p + special.gammaln(a[0] + y) - special.gammaln(y + 1.0))


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
    """Log mean and log cv2 of the Gammas with these moments of log theta."""
    shape = inverse_trigamma(variance_log)
    return mean_log + np.log(shape) - special.psi(shape), -np.log(shape)
