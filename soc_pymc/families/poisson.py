"""Counts y ~ Poisson(theta N) with theta ~ Gamma(shape, rate), by its log mean and log cv2.

cv2 = variance / mean^2 = 1 / shape, and cv2 -> 0 (a Poisson marginal) is a regular limit. The log
marginal of a row needs one histogram over counts and one over exposures (docs/dev/design.md).
"""

import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike
from scipy import optimize, special

from .._lib.arguments import ItemsError
from .._lib.arrays import Bools, Columns, Floats, Pair, Tables, Triple
from ..prior_table import GammaFormulas
from .family import (
    Excess,
    Family,
    Generators,
    Outcome,
    Table,
    TableOf,
    Validity,
    Words,
    absent_zeros,
    residual_squares,
)
from .mixtures import ComponentGrid, Frame, LogLaw, Relative, along_path, reciprocal
from .priors import Gamma, GammaMixture
from .rows import (
    Cells,
    Points,
    Ragged,
    RowSums,
    Tensor,
    columns,
    histogram,
    rising,
    weighted_points,
)
from .scales import LARGEST_COUNT, LOG, ZERO_EXPOSURE, Bounds, Cell
from .special_functions import beta_tail, log_negative_binomial

# shapes of a Gamma and means of a Poisson without visible noise
_SHARP_SHAPE = 1e15
_NO_NOISE = 1e15
# shape from which a Gamma is Normal in the signed root of its deviance
_SHARP = 1e10
_NO_GAMMA = 1e100  # shape from which a negative binomial is a Poisson
# log of the numbers below which the cdf of a Gamma is computed from its logarithm
_LEAST_LOG_CDF = -690.0
# smaller ones are drawn at shape + 1 and transformed, as draws underflow
_SMALL_SHAPE = 1.0
# expected of an item: more than this numpy cannot draw
_MOST_EVENTS = 1e18
# counts from which on logarithms of probabilities are formed without cancellation
_MANY_COUNTS = 1e5
_COUNT_TAIL = 20.0  # extent of a grid of further counts, in Gamma tails
_COUNT_SUMS = ("n", "sum_y", "sum_y2", "sum_y3")
_EXPOSURE_SUMS = "n", "sum_N", "sum_N2", "sum_N3"
_WEIGHTED_SUMS = "sum_y", "sum_yN", "sum_yN2", "sum_yN3"
# expected counts above exposures; in between, none is not evidence
_FEW_EXPECTED = 0.1
_SEVERAL = 5.0
# below which Poisson and Binomial noise hardly differ
_SMALL_RATE = 0.05
_LIKE_TRIALS = (
    "exposures are whole numbers, no count exceeds its exposure, and the overall rate is "
    "{rate:.3g}: {these} successes in trials, whose noise is smaller than Poisson noise by "
    "a factor of {ratio:.3g}, so that item intervals are wrong: use soc.BinomialItems(..., "
    "successes=, trials=){otherwise}"
)
# names of exposures that cannot be counts of trials
_AMOUNTS = re.compile(
    r"(?<![a-z])(person[-_ ]?)?(year|month|week|day|hour|minute|second|mile|km|duration|area)s?"
    r"(?![a-z])"
)

EXPOSURE_CELLS = Cell("exposure_cell", "size", "exposure", 16, ZERO_EXPOSURE)
COUNT_CELLS = Cell("count_cell", "outcome", "count", 11, 0)
_EXPOSURE = "sum_N", "sum_N2", "sum_N3", "sum_y2", "sum_yN", "sum_yN2", "sum_yN3"

# smallest and largest log shape of a base Gamma: centres far from 0 still differ by its spread
_LOG_SHAPES = (-2.7, 35.0)
# a Gamma of a wider logarithm has next to nothing in its lower tail: spread, and centre below the
# mean's logarithm, with which components reach down to 1e-6 of the mean and up to 150 times it
_WIDEST_SPREAD = 1.4
_FURTHEST_BELOW = 3.8
# log of a share of a component below 0, from which its log density is a line
_UPPER = 0.05
# increase of the largest spread of theta with that of its logarithm
_SKEWED = 0.3


# --- the outcome ---------------------------------------------------------------------------------


class PoissonOutcome(Outcome):
    """Counts y ~ Poisson(theta N)."""

    kind = "poisson"
    observed = "count"
    size = "exposure"
    theta = LOG
    # where the log is infinite: nothing happened last year
    ends = (0.0,)
    relative = True
    words = Words(
        items="counts in exposures",
        outcome="count",
        outcomes="counts",
        size="exposure",
        sizes="exposures",
        theta="rate",
        estimate="own rate",
        unit="{outcome} per unit of {size}",
        text="a number of events in a known exposure, which is its true rate theta seen with noise",
        further="{amount} more units of {size}",
        worth="Items that deserve more exposure",
        events="events",
        noise="Poisson noise",
        doubt="These counts look like successes in trials, whose noise is smaller than Poisson "
        "noise: item intervals should be {width:.2f} times as wide. Use soc.BinomialItems("
        "..., successes=, trials=), or ignore this if counts can exceed their exposures.",
    )
    validity = Validity(
        Bounds(
            "counts must be whole numbers >= 0",
            LARGEST_COUNT,
            0.0,
            whole=True,
            fractions="rates, percentages and events shared out over rows are not: give the "
            "whole numbers of events with their exposures, such as by joining the rows that share "
            "them, or rates with standard errors as soc.NormalItems",
        ),
        Bounds("exposures must be finite numbers >= 0", least=0.0),
        lambda y, size: (y > 0) & (size == 0),
        "positive where column {size!r} is 0",
        "an exposure of 0 allows no events",
    )
    tables: ClassVar[Mapping[str, Table]] = {
        "part": Table.part("sum_N", "sum_y_log_N", "above"),
        "exposure": Table.margin(EXPOSURE_CELLS, *_EXPOSURE),
        "count": Table.margin(COUNT_CELLS, "sum_y2", "sum_y3"),
        "joint": Table.joint(EXPOSURE_CELLS, COUNT_CELLS, reals=(*_EXPOSURE, "sum_y3")),
    }

    def describe(self, n: int, sums: Mapping[str, Any]) -> str:
        exposure = float(sums["sum_N"])
        return f"{int(sums['sum_y']):,} counts in exposure {exposure:,.6g}"

    def excess_squares(self, groups: Columns, part: Mapping[Hashable, Any]) -> Excess:
        # given its sum m, the counts of n items are multinomial: the sum of their squares has
        # variance 2 m (m - 1) (1 - 1/n) sum p^2; units are the group's expected count
        known = (groups["sum_y"] > 1) & (groups["n"] > 1)
        squares, (n, x1, x2, y1, rate) = residual_squares(groups, known)
        expected = rate * x2 / x1
        noise = y1 - expected
        if not part["above"].any():
            # trials; mu (1 - mu) of X of them is low by 1 - 1/X
            noise = noise * (1 - rate) / np.maximum(1 - 1 / x1, 1e-9)
        # whole numbers would overflow beyond 3e9 events
        variance = 2.0 * y1 * (y1 - 1.0) * (1 - 1 / n) * x2 / x1**2
        excess = (squares - noise) / expected
        return known, excess, variance / expected**2, noise / expected

    def absent(self, table: TableOf) -> float:
        return absent_zeros(table("count"))

    def is_amount(self, column: str) -> bool:
        return bool(_AMOUNTS.search(column.lower()))

    def doubt(self, table: TableOf) -> str:
        part = table("part")
        margin = table("exposure")
        total = float(part["sum_N"].sum())
        events = float(part["sum_y"].sum())
        # sums of exposures that are not whole numbers are hardly whole in every cell
        are_whole = margin["sum_N"] == np.floor(margin["sum_N"])
        possible = total > 0 and are_whole.all() and part["above"].sum() == 0
        rate = events / max(total, 1e-300)
        sizes = margin["sum_N"] / margin["n"]
        if not (possible and _look_like_trials(sizes, margin["n"], rate)):
            return ""
        words = (
            "if these are",
            ". Such counts are right if they can exceed their exposures",
        )
        if _expected_above(sizes, margin["n"], rate) > _SEVERAL:
            words = "these look like", ""
        these, otherwise = words
        return _LIKE_TRIALS.format(
            rate=rate, ratio=1.0 - rate, these=these, otherwise=otherwise
        )

    def doubtful(self, y: Floats, size: Floats, tight: bool) -> bool:
        if not (size.any() and (size == np.floor(size)).all() and (y <= size).all()):
            return False
        rate = float(y.sum() / size.sum())
        is_large = tight and rate > _SMALL_RATE
        return is_large or _look_like_trials(size, np.ones(len(size)), rate)

    def other_width(
        self, y: Floats, size: Floats, mean: Floats, variance: Floats
    ) -> Floats:
        observed = size > 0
        share = np.minimum(mean, 1.0)
        # both noises leave the same total variance, V + E/N: the rest of it is theta's own
        ratio = 1.0 + mean[observed] ** 2 / (size[observed] * variance[observed])
        return np.sqrt(ratio * (1.0 - share[observed]))

    def log_likelihood(self, y: Floats, size: Floats, theta: Floats) -> Floats:
        expected = size * theta
        finite = np.isfinite(expected)
        known = np.where(finite, expected, 1.0)
        value = special.xlogy(y, known) - known - special.gammaln(y + 1.0)
        return np.where(finite, value, -np.inf)

    def thinned(self, y: Floats, size: Floats, fraction: float, rng: Generator) -> Pair:
        return rng.binomial(y.astype(np.int64), fraction).astype(float), fraction * size

    def noise(self, mean: Floats, variance: Floats | float = 0.0) -> Floats:
        return mean

    def contrast(
        self, y: Floats, size: Floats, fresh_y: Floats, fresh_size: Floats
    ) -> Pair:
        # counts less their expectation given both, and its binomial variance; a common factor of
        # all fresh rates is found by Newton's method on its logarithm
        counts = y + fresh_y
        # an outcome without exposure has no odds; such items are left out below
        with np.errstate(divide="ignore", invalid="ignore"):
            odds = np.log(size) - np.log(fresh_size)
        known = (counts > 0) & np.isfinite(odds)
        if not known.any() or y[known].sum() in (0, counts[known].sum()):
            raise ItemsError(
                "fresh=: there are no counts in both outcomes of items seen twice"
            )

        def residuals(factor: float) -> Pair:
            share = special.expit(np.where(known, odds, 0.0) + factor)
            residual = np.where(known, y - counts * share, 0.0)
            return residual, np.where(known, counts * share * (1 - share), 0.0)

        most = 40.0 + np.abs(odds[known]).max()
        root = optimize.brentq(lambda x: residuals(x)[0].sum(), -most, most)
        return residuals(root)


def _expected_above(size: Floats, items: Floats, rate: float) -> float:
    """Return the expected number of Poisson counts above their exposures."""
    return float(items @ special.gammainc(size + 1.0, rate * size))


def _look_like_trials(size: Floats, items: Floats, rate: float) -> bool:
    """Return True if whole exposures, exceeded by no count, are likely to be trials."""
    above = _expected_above(size, items, rate)
    return rate > _SMALL_RATE and not _FEW_EXPECTED < above < _SEVERAL


# --- rows ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class PoissonRows(RowSums):
    """The two histograms of all rows as weighted points."""

    steps: Ragged  # counts, as in `histogram`
    wide: Ragged
    # distinct exposures, and the items and counts of each
    points: Ragged
    total: Floats  # (rows,): sum of counts
    # (rows,): sum of y log N - log y!, which makes a log probability
    constant: Floats
    # (rows,): variance of the items' log means around that of the row's centre
    spread: Floats

    nothing = "every exposure is 0"

    @staticmethod
    def widened(
        xp: ModuleType, location: Tensor, dispersion: Tensor, spread: Tensor
    ) -> Pair:
        """Curves of theta over a row, m exp(spread/2) and cv2 + spread (1 + cv2)."""
        cv2 = xp.exp(dispersion)
        return location + 0.5 * spread, xp.log(cv2 + spread * (1.0 + cv2))

    @staticmethod
    def log_probability(xp: ModuleType, curves: Pair, cells: Cells) -> Tensor:
        """Log marginal of rows without spread."""
        location, dispersion = curves
        exposure, items, counts, total, constant = cells[4:]
        cv2 = xp.exp(dispersion)
        ratio = exposure * (xp.exp(location) * cv2)[..., None]
        known = (items * (1.0 / cv2)[..., None] + counts) * xp.log1p(ratio)
        of_counts = rising(xp, cv2, cells[:4])
        return of_counts + total * location - known.sum(axis=-1) + constant

    @staticmethod
    def draw_totals(rng: Generator, curves: Pair, cells: Cells) -> Floats:
        """Random counts of rows: the theta of items of one exposure have a sum that is Gamma."""
        location, dispersion = curves
        exposure, items = cells[4:6]
        cv2 = np.exp(dispersion)[..., None]
        shape = items / cv2
        sharp = shape >= _SHARP_SHAPE
        # for an infinite cv2 theta is 0 with probability 1
        drawn = (shape > 0.0) & ~sharp
        gamma = cv2 * rng.standard_gamma(np.where(drawn, shape, 0.0))
        theta_sums = np.select([sharp, drawn], [items, gamma], 0.0)
        expected = np.exp(location) * (exposure * theta_sums).sum(axis=-1)
        noisy = expected < _NO_NOISE
        return np.where(noisy, rng.poisson(np.where(noisy, expected, 0.0)), expected)

    @classmethod
    def of(cls, rows: int, cells: Tables) -> "PoissonRows":
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
        points = weighted_points(rows, exposures, _EXPOSURE_SUMS, _WEIGHTED_SUMS)
        total = np.bincount(exposures["row"], exposures["sum_y"], rows)
        return cls(*of_counts, points, total, y_log_n - log_factorials, np.zeros(rows))

    @staticmethod
    def events(sums: Mapping[str, float]) -> float:
        """Sum of all counts."""
        return sums["sum_y"]

    def sizes(self) -> Points:
        """Row, exposure and number of items of points that stand for the items."""
        exposure, items, _ = self.points.columns
        return self.points.row, exposure, items

    def information(self, location: Floats, dispersion: Floats) -> Pair:
        """Fisher information of log mean, and a lower bound of that of log cv2, by row."""
        row, exposure, items = self.sizes()
        number = len(self.total)
        log_mean, log_cv2 = self.widened(np, location, dispersion, self.spread)
        chain = np.exp(dispersion - log_cv2) * (1.0 + self.spread)
        cv2 = np.exp(log_cv2)[row]
        expected = exposure * np.exp(log_mean)[row]
        r = expected * cv2
        # that of the best quadratic function of the count (Godambe 1985), from cumulants:
        # r^2 expected / (k4 + 2 expected k2^2 - k3^2 / k2) where the cumulants over the expected
        # count are k2 = 1 + r, k3 = k2 (1 + 2r), k4 = k2 (1 + 6r + 6r^2)
        quadratic = 0.5 * (r / (1.0 + r)) ** 2 / (1.0 + cv2)
        of_mean = np.bincount(row, items * expected / (1.0 + r), number)
        return of_mean, chain**2 * np.bincount(row, items * quadratic, number)

    def level(self) -> tuple[float, float]:
        """Log of the overall rate, and the prior's own level."""
        _, exposure, items = self.sizes()
        rate = (self.total.sum() + 0.5) / (exposure @ items)
        return float(np.log(rate)), self.dispersion_level[0]

    @property
    def can_fit(self) -> Bools:
        """Rows with an event: without one the mean is 0 and its logarithm nowhere."""
        return self.total > 0


# --- the family ----------------------------------------------------------------------------------


class PoissonGamma(GammaFormulas, Family):
    """Gamma priors of the rates of counts: `a` is the shape, `b` the rate."""

    name = "Gamma"
    outcome = PoissonOutcome()
    prior = Gamma
    mixture = GammaMixture
    rows = PoissonRows
    parameter_names = "shape", "rate"

    def to_curves(self, a: Floats, b: Floats) -> Pair:
        return np.log(a) - np.log(b), -np.log(a)

    def natural_moments(self, location: Floats, exponential: Floats) -> Pair:
        return np.exp(location), exponential * np.exp(2.0 * location)

    def third_moment(self, a: Floats, b: Floats) -> Floats:
        return 2.0 * a / b / b / b

    def above(self, cut: Floats, a: Floats, b: Floats) -> Floats:
        return special.gammaincc(a, np.maximum(cut, 0.0) * b)

    def cdf(self, cut: Floats, a: Floats, b: Floats) -> Floats:
        return special.gammainc(a, np.maximum(cut, 0.0) * b)

    def kernel(self, cut: Floats, a: Floats, b: Floats) -> Floats:
        # x^a e^-x / Gamma(a + 1) as a Poisson probability, which loses no digits where a is large
        log_p = log_negative_binomial(a, _NO_GAMMA, np.maximum(cut, 0.0) * b)
        return a / b * np.exp(log_p)

    def draw(self, a: Floats, b: Floats, rngs: Generators) -> Floats:
        return draw_log_gamma(a, rngs) - np.log(b)

    def above_place(self, place: Floats, a: Floats, b: Floats) -> Floats:
        log_x = place + np.log(b)
        # the lower tail of a small x
        log_tail = a * log_x - special.gammaln(a + 1.0)
        x = np.exp(np.minimum(log_x, -_LEAST_LOG_CDF))
        tail = special.gammaincc(a, x)
        if np.max(a) > _SHARP:  # SciPy's tails of 1e-6 are off by a factor of 100 there
            apart = x / a - 1.0
            root = np.sqrt(2.0 * a * np.maximum(apart - np.log1p(apart), 0.0))
            tail = np.where(a > _SHARP, special.ndtr(-np.sign(apart) * root), tail)
        return np.where(
            log_x < _LEAST_LOG_CDF, -np.expm1(np.minimum(log_tail, 0.0)), tail
        )

    def log_marginal(self, y: Floats, size: Floats, a: Floats, b: Floats) -> Floats:
        return log_negative_binomial(y, a, a * (size / b))

    def below(self, y: Floats, size: Floats, a: Floats, b: Floats) -> Floats:
        ratio = size / b
        share = ratio / (1.0 + ratio)
        tail = beta_tail(share, 1.0 / (1.0 + ratio), np.maximum(y, 1.0), a)
        return np.where(y > 0, tail, 0.0)

    def simulate(self, a: Floats, b: Floats, size: Floats, rng: Generator) -> Floats:
        expected = size * (rng.standard_gamma(a) / b)
        return rng.poisson(np.minimum(expected, _MOST_EVENTS)).astype(float)

    def outcome_moments(self, a: Floats, b: Floats, size: Floats) -> Triple:
        mean = a * (size / b)
        scale = 1.0 + size / b
        return mean, np.sqrt(mean * scale), _COUNT_TAIL * scale

    def further_log_density(
        self, y: Floats, size: Floats, a: Floats, b: Floats
    ) -> Floats:
        if y.max() > _MANY_COUNTS or (a != a[:1]).any():
            return self.log_marginal(y, size, a, b)
        # terms that components of one shape share are computed once; they cancel for large counts
        log_p = -y * np.log1p(b / size) - a * np.log1p(size / b)
        return log_p + special.gammaln(a[0] + y) - special.gammaln(y + 1.0)

    # --- components of mixtures

    # lower tails of log theta are at worst exponential with a mean of one spread
    component_ends = (-8.05, 6.3)

    def frame(self, location: ArrayLike, dispersion: ArrayLike) -> Frame:
        # Gammas reach far to both sides where the spread is large
        location = np.array(location, dtype=float)
        shape = np.exp(np.clip(-np.asarray(dispersion, dtype=float), *_LOG_SHAPES))
        below = np.maximum(special.psi(shape) - np.log(shape), -_FURTHEST_BELOW)
        spread = np.minimum(np.sqrt(special.polygamma(1, shape)), _WIDEST_SPREAD)
        return Frame(location, location + below, spread)

    def component_parameters(self, centre: Floats, variance: Floats) -> Pair:
        # shared by the components
        shape = inverse_trigamma(variance[:, :1])
        return shape, np.exp(special.psi(shape) - centre)

    def relative(self, frame: Frame, parameters: Pair) -> Relative:
        shape, rate = parameters
        log_mean = np.log(shape) - np.log(rate) - frame.location[:, None]
        mean = np.expm1(log_mean)
        # means and variances of wide log-normals and Gammas are in their upper tails
        reach = frame.spread * (1.0 + _SKEWED * frame.spread**2)
        return Relative(log_mean[None], mean, (1.0 + mean) ** 2 / shape, reach)

    def log_weights(self, curves: Triple, grid: ComponentGrid, slopes: bool) -> LogLaw:
        location, dispersion, _ = curves
        # log-normals, and Gamma(a) as Beta(a, A - a) Gamma(A), a component
        place = grid.base[0]
        inner = grid.inner
        a = np.exp(-dispersion)
        log_share = place + (np.log(inner * a) - location)
        share = np.exp(np.minimum(log_share, -_UPPER))
        complement = 1.0 - share
        slope = share / complement
        # beyond, a straight line, so that no weight is 0
        beyond = np.maximum(log_share + _UPPER, 0.0)
        log_complement = np.log(complement) - slope * beyond
        power = 1.0 / inner - a - 1.0
        gamma: tuple[Floats, ...] = (a * log_share + power * log_complement,)
        # the first component also stands for what is below it
        cells = a * (place[:, 1:2] - place[:, :1])
        gamma[0][:, :1] += np.log1p(1.0 / cells)
        if slopes:
            slope *= power
            by_dispersion = slope + a * (log_complement - log_share - 1.0)
            by_dispersion[:, :1] += 1.0 / (1.0 + cells)
            gamma += slope - a, by_dispersion
        return along_path(curves, grid, gamma, slopes)

    def zero(self, a: Floats) -> Pair:
        return a, np.full(len(a), 1e100)

    def curvature(self, y: Floats, size: Floats, variance: Floats) -> Triple:
        sharpness = 1.0 / (variance + 1.0 / (y + 1.0))
        return reciprocal(y), -reciprocal(size), sharpness


def draw_log_gamma(shape: Floats, rngs: Generators) -> Floats:
    """Draws of the logarithm of a Gamma of rate 1, one for each element, row by row."""
    small = shape < _SMALL_SHAPE
    drawn = np.log(rngs[0].standard_gamma(np.where(small, shape + 1.0, shape)))
    if small.any():
        # Gamma(a) is Gamma(a + 1) U^(1/a), whose logarithm does not underflow
        drawn[small] -= rngs[1].standard_exponential(int(small.sum())) / shape[small]
    return drawn


def inverse_trigamma(value: ArrayLike) -> Floats:
    """X > 0 with trigamma(x) = value, by Newton's method on 1/trigamma, which is nearly linear."""
    v = np.asarray(value, dtype=float)
    # close at both ends
    x = np.where(v > 1.0, 1.0 / np.sqrt(v), 0.5 + 1.0 / v)
    for _ in range(5):
        trigamma = special.polygamma(1, x)
        x = x + trigamma * (1.0 - trigamma / v) / special.polygamma(2, x)
    return x
