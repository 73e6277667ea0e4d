"""Successes y ~ Binomial(n, theta) with theta ~ Beta(a, b), by the logit of its mean mu and g.

With g = log(1/a + 1/b), to first order exp(g) is the variance of logit theta, and of theta

    Var(theta) = v^2 exp(g) / (1 + v exp(g)),   v = mu (1 - mu).

Successes and failures change places by a change of sign of the logit; g -> -infinity is a limit.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy import special

from .._lib.arrays import Floats, Ints
from ..prior_table import ARRAYS, FAMILIES
from .conjugate import Family, Generators, Pair
from .outcomes import OUTCOMES
from .poisson_gamma import columns, draw_log_gamma, histogram, rising
from .priors import Beta, BetaMixture
from .row_sums import Columns, Ragged, RowSums
from .scales import EXACT_COUNTS
from .special_functions import (
    beta_binomial_cdf,
    beta_kernel,
    beta_tail,
    log_beta_binomial,
)

BETA = FAMILIES["Beta"]
_FAR = 600.0  # logits of draws beyond which tails are those of a power of the odds
_NO_SPREAD = 1e15  # a + b beyond which theta does not vary
# of a Beta with theta at 0 or 1, which can be drawn
_LEAST_SIZE = 1e-100
_LEAST_SHAPE = 1e-300
_TAIL = 20.0  # extent of a grid of further successes, in Gamma tails
_SUMS = {
    "successes": ("n", "sum_y", "sum_y2", "sum_y3"),
    "failures": ("n", "sum_z", "sum_z2", "sum_z3"),
    "trials": ("n", "sum_N", "sum_N2", "sum_N3"),
}


# --- rows ----------------------------------------------------------------------------------------


def _softplus(xp: Any, x: Any) -> Any:
    """log(1 + exp(x)), with correct derivatives at 0 too."""
    return 0.5 * (x + abs(x)) + xp.log1p(xp.exp(-abs(x)))


def _shares(xp: Any, location: Any) -> Pair:
    """Mean of theta and its complement."""
    return xp.exp(-_softplus(xp, -location)), xp.exp(-_softplus(xp, location))


@dataclass(frozen=True, eq=False)
class BetaRows(RowSums):
    """The three histograms of all rows: of successes y, failures z and trials n."""

    steps_y: Ragged  # as in `histogram`
    wide_y: Ragged
    steps_z: Ragged
    wide_z: Ragged
    steps_n: Ragged
    wide_n: Ragged
    total: Floats  # (rows,): sum of successes
    failures: Floats  # (rows,): and of failures
    constant: Floats  # (rows,): sum of log (n choose y), which makes a log probability
    spread: (
        Floats  # (rows,): variance of the items' logits of the mean around the row's
    )

    margins = ("trials", "failures", "successes")
    size_cell = "trials_cell"
    nothing = "all trials are 0"
    natural_scales = ("logit", "log")  # scores that are probabilities, or small rates

    @staticmethod
    def widened(xp: Any, location: Any, dispersion: Any, spread: Any) -> Pair:
        """Curves of theta over rows whose items' logits of the mean vary."""
        mu, complement = _shares(xp, location)
        tilt = complement - mu
        within = xp.exp(dispersion)
        bent = tilt * tilt * within / (1.0 + mu * complement * within)
        return location + 0.5 * spread * tilt, xp.log(within + spread * (1.0 + bent))

    @staticmethod
    def log_probability(xp: Any, location: Any, dispersion: Any, *cells: Any) -> Any:
        """Log marginal of rows without spread."""
        total, failures, constant = cells[12:]
        # -log(1 - mu), -log(mu)
        up = _softplus(xp, location)
        down = _softplus(xp, -location)
        value = constant - total * down - failures * up
        value = value + rising(xp, xp.exp(dispersion - up), *cells[:4])
        value = value + rising(xp, xp.exp(dispersion - down), *cells[4:8])
        return value - rising(xp, xp.exp(dispersion - up - down), *cells[8:12])

    @staticmethod
    def draw_totals(rng: Generator, location: Any, dispersion: Any, *cells: Any) -> Any:
        """Random successes of rows: one Beta-Binomial with the mean and variance of their sum."""
        step, over, excess, weight = cells[8:12]
        trials = np.rint(over.sum(axis=-1) + (weight * excess).sum(axis=-1))
        # pairs of trials of one item, whose correlation is 1/(a + b + 1)
        pairs = (step * over).sum(axis=-1)
        pairs = pairs + (weight * excess * (EXACT_COUNTS + 0.5 * (excess - 1.0))).sum(
            axis=-1
        )
        share = 2.0 * pairs / np.maximum(trials * (trials - 1.0), 1.0)
        means = _shares(np, location)
        size = np.exp(-dispersion) / (means[0] * means[1])
        size = np.fmax((size + 1.0) / share - 1.0, _LEAST_SIZE)
        varies = size < _NO_SPREAD
        shapes = (
            np.where(varies, np.fmax(size * mean, _LEAST_SHAPE), 1.0) for mean in means
        )
        theta = np.where(varies, rng.beta(*shapes), means[0])
        return rng.binomial(trials.astype(np.int64), theta).astype(float)

    @classmethod
    def of(cls, rows: int, cells: Mapping[str, Columns]) -> "BetaRows":
        """Build from tables of cells with a column ``row``: joint cells, or the three margins."""
        joint = cells.get("joint")
        sums = {
            name: columns(joint or cells[name], names) for name, names in _SUMS.items()
        }
        (of_y, log_y), (of_z, log_z), (of_n, log_n) = (
            histogram(rows, table) for table in sums.values()
        )
        total, failures = (
            np.bincount(sums[name][0], sums[name][2], rows)
            for name in ("successes", "failures")
        )
        constant = log_n - log_y - log_z
        return cls(*of_y, *of_z, *of_n, total, failures, constant, np.zeros(rows))

    @staticmethod
    def events(sums: Mapping[str, float]) -> float:
        """Successes or failures, whichever are fewer."""
        return min(sums["sum_y"], sums["sum_N"] - sums["sum_y"])

    @property
    def tells_dispersion(self) -> NDArray[np.bool_]:
        """Rows with an item of two trials or more: single trials say nothing of the variance."""
        rows = self.steps_n.row[self.steps_n.columns[0] == 1.0]
        return np.bincount(rows, minlength=len(self.total)) > 0

    def _sizes(self) -> tuple[Ints, Floats, Floats]:
        """Row, trials and number of items of points that stand for the items."""
        row, (step, over), (excess, weight) = (
            self.steps_n.row, self.steps_n.columns, self.wide_n.columns
        )  # fmt: skip
        later = np.append(over[1:], 0.0)
        later[np.append(row[1:], -1) != row] = 0.0
        fewer = step < EXACT_COUNTS - 1  # those with more are in the other table
        return (
            np.concatenate([row[fewer], self.wide_n.row]),
            np.concatenate([step[fewer] + 1.0, excess + EXACT_COUNTS]),
            np.concatenate([(over - later)[fewer], weight]),
        )

    def information(
        self, location: Floats, dispersion: Floats
    ) -> tuple[Floats, Floats]:
        """Lower bounds of the Fisher information of both curves, by row."""
        # of the best linear and quadratic functions of the successes (Godambe 1985): the latter is
        # (d Var(y)/dg)^2 over Var(y) and the second coefficient of Hahn's polynomials
        row, n, items = self._sizes()
        averaged = self.widened(np, location, dispersion, self.spread)
        f, g = (curve[row] for curve in averaged)
        a, b = BETA.parameters(f, np.maximum(g, -BETA.bounds[1]), ARRAYS)
        m = a + b
        v = special.expit(f) * special.expit(-f)
        of_location = n * v * ((m + 1.0) / (m + n))
        extra = (n - 1.0) / (m + 1.0)  # extra variance: Var(y) = n v (1 + extra)
        later = 2.0 * (n - 1.0) * ((a + 1.0) / (m + 2.0)) * ((b + 1.0) / (m + 2.0))
        later = later * (m / (m + 1.0)) * ((m + n + 1.0) / (m + 3.0))
        slope = n * v * extra * (m / (m + 1.0))
        of_dispersion = slope**2 / np.where(n > 1, n * v * (1.0 + extra) * later, 1.0)
        # derivative of the wider second curve in the one of the row's centre
        mu, complement = _shares(np, location)
        bend = (complement - mu) / (1.0 + mu * complement * np.exp(dispersion))
        chain = np.exp(dispersion - averaged[1]) * (1.0 + self.spread * bend**2)
        rows = len(self.total)
        return (
            np.bincount(row, items * of_location, rows),
            chain**2 * np.bincount(row, items * of_dispersion, rows),
        )

    def level(self) -> tuple[float, float]:
        """Logit of the overall rate, and the prior's own level."""
        successes = self.total.sum() + 0.5
        failures = self.failures.sum() + 0.5
        return float(np.log(successes) - np.log(failures)), self.dispersion_level[0]

    @property
    def can_fit(self) -> NDArray[np.bool_]:
        """Rows with a success and a failure: without either the logit of the mean is infinite."""
        return (self.total > 0) & (self.failures > 0)


# --- the family ----------------------------------------------------------------------------------


class BinomialBeta(Family):
    """Beta(a, b) priors of the probabilities of successes."""

    name = "Beta"
    formulas = BETA
    outcome = OUTCOMES["binomial"]
    prior = Beta
    mixture = BetaMixture
    rows = BetaRows
    parameters = "a", "b"

    def to_curves(self, a: Any, b: Any) -> Pair:
        log_a = np.log(a)
        log_b = np.log(b)
        return log_a - log_b, np.logaddexp(-log_a, -log_b)

    def curve_variables(
        self, location: Floats, dispersion: Floats
    ) -> dict[str, Floats]:
        return super().curve_variables(location, dispersion) | {
            "log_odds_cv2": dispersion
        }

    def natural_moments(self, location: Any, dispersion: Any) -> Pair:
        mean = special.expit(location)
        v = mean * special.expit(-np.asarray(location))
        return mean, v * (v * dispersion / (1.0 + v * dispersion))

    def third(self, a: Any, b: Any) -> Any:
        total = a + b
        return 2.0 * self.variance(a, b) * ((b - a) / total) / (total + 2.0)

    def above(self, cut: Floats, a: Floats, b: Floats) -> Floats:
        inside = np.clip(cut, 0.0, 1.0)
        return beta_tail(inside, 1.0 - inside, a, b)

    def cdf(self, cut: Floats, a: Floats, b: Floats) -> Floats:
        inside = np.clip(cut, 0.0, 1.0)
        return beta_tail(1.0 - inside, inside, b, a)

    def kernel(self, cut: Floats, a: Floats, b: Floats) -> Floats:
        inside = np.clip(cut, 0.0, 1.0)
        return beta_kernel(inside, 1.0 - inside, a, b) / (a + b)

    def draw(self, a: Floats, b: Floats, rngs: Generators) -> Floats:
        others = tuple(
            rng.spawn(1)[0] for rng in rngs
        )  # the same for any number of rows
        return draw_log_gamma(a, rngs) - draw_log_gamma(b, others)

    def natural(self, drawn: Floats) -> Floats:
        return np.asarray(special.expit(drawn))

    def above_drawn(self, drawn: Floats, a: Floats, b: Floats) -> Floats:
        tail = beta_tail(special.expit(drawn), special.expit(-drawn), a, b)
        is_far = np.broadcast_to(np.abs(drawn) >= _FAR, tail.shape)
        if is_far.any():  # odds below all numbers
            logit, a, b = (
                values[is_far] for values in np.broadcast_arrays(drawn, a, b)
            )
            shape = np.where(logit < 0, a, b)
            far = np.exp(-shape * np.abs(logit) - np.log(shape) - special.betaln(a, b))
            tail[is_far] = np.where(logit < 0, 1.0 - far, far)
        return tail

    def log_marginal(self, y: Any, size: Any, a: Any, b: Any) -> Floats:
        return np.asarray(log_beta_binomial(y, size, a, b))

    def below(self, y: Floats, size: Floats, a: Floats, b: Floats) -> Floats:
        tail = beta_binomial_cdf(np.clip(y - 1.0, 0.0, size), size, a, b)
        return np.where(y > size, 1.0, np.where(y > 0, tail, 0.0))

    def simulate(
        self, location: Any, dispersion: Any, size: Any, rng: Generator
    ) -> Floats:
        theta = special.expit(
            self.draw(*self.to_parameters(location, dispersion), (rng, rng))
        )
        return rng.binomial(np.asarray(size).astype(np.int64), theta).astype(float)

    def outcome_moments(
        self, a: Floats, b: Floats, size: Floats
    ) -> tuple[Floats, Floats, Floats]:
        total = a + b
        mean = size * (a / total)
        variance = mean * (b / total) * ((total + size) / (total + 1.0))
        return mean, np.sqrt(variance), _TAIL * (1.0 + size / total)

    def grid(
        self,
        weight: Floats,
        a: Floats,
        b: Floats,
        size: Floats,
        most: Floats | float = np.inf,
    ) -> tuple[Floats, Floats]:
        # what is rare is counted: the grid is finer near 0
        swap = (weight * (a / (a + b))).sum(axis=0) > 0.5
        a, b = np.where(swap, b, a), np.where(swap, a, b)
        count, width = super().grid(weight, a, b, size, size)
        count = np.minimum(count, size)  # those beyond the grid's end have no weight
        return np.where(swap, size - count, count), width
