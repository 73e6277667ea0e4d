"""Successes y ~ Binomial(n, theta) with theta ~ Beta(a, b), by the logit of its mean mu and g.

With g = log(1/a + 1/b), to first order exp(g) is the variance of logit theta, and of theta

    Var(theta) = v^2 exp(g) / (1 + v exp(g)),   v = mu (1 - mu).

Successes and failures change places by a change of sign of the logit; g -> -infinity is a limit.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike
from scipy import special

from .._lib.arguments import ItemsError
from .._lib.arrays import Bools, Columns, Floats, Pair, Tables, Triple
from ..prior_table import ARRAYS, BetaFormulas
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
from .mixtures import (
    STEP,
    WIDTH,
    ComponentGrid,
    CurveBounds,
    Frame,
    LogLaw,
    Relative,
    between,
    reciprocal,
)
from .poisson import COUNT_CELLS, EXPOSURE_CELLS, draw_log_gamma
from .priors import Beta, BetaMixture
from .rows import Cells, Points, Ragged, RowSums, Tensor, columns, histogram, rising
from .scales import EXACT_COUNTS, LARGEST_COUNT, LOGIT, STEPS, Bounds, Cell
from .special_functions import (
    beta_binomial_cdf,
    beta_kernel,
    beta_tail,
    log_beta_binomial,
)

BETAS = BetaFormulas()
# logits of draws beyond which tails are those of a power of the odds
_FAR_LOGIT = 600.0
_NO_SPREAD = 1e15  # a + b beyond which theta does not vary
# least parameters with which a Beta can be drawn, whose theta is 0 or 1
_LEAST_SIZE = 1e-100
_NO_SHAPE = 1e-300
_SUCCESS_TAIL = 20.0  # extent of a grid of further successes, in Gamma tails
_TRIAL_SUMS = {
    "successes": ("n", "sum_y", "sum_y2", "sum_y3"),
    "failures": ("n", "sum_z", "sum_z2", "sum_z3"),
    "trials": ("n", "sum_N", "sum_N2", "sum_N3"),
}
_TRIALS = "sum_N", "sum_N2", "sum_N3", "sum_y2", "sum_yN"
_FAILURES = "sum_z", "sum_z2", "sum_z3"
_SUCCESSES = "sum_y2", "sum_y3"
_TRIAL_CELLS = (
    EXPOSURE_CELLS._replace(name="trials_cell"),
    Cell("failures_cell", "rest", "count", 11, 0),
    COUNT_CELLS._replace(name="successes_cell"),
)

_LOGITS = 36.0  # largest logit of a mean that float64 tells from 1
# bounds of the dispersion: spreads of logit theta are at most 21
_LOG_SPREADS = (-230.0, 2.7)
# widest spread of logit theta, as tails of theta at 0 and 1 need no wide components; and farthest
# centre of the components from the location, in spreads
_WIDEST_SPREAD = 3.0
_FARTHEST_CENTRE = 4.0
# Newton steps, and the largest change of a log weight in one, and in the last
_TILTS = 20
_MOST_TILT = 2.0
_TILTED = 1e-12
_FAINT_WEIGHT = 1e-200  # weight that counts as 0
# variance that rounding to the lattice below adds, in squared spreads: a 12th of a step's square,
# twice where neither a nor b is far larger than the other
_STEP_CORRECTION = 1.5 * STEP**2 / 12.0


# --- the outcome ---------------------------------------------------------------------------------


class BinomialOutcome(Outcome):
    """Successes y ~ Binomial(n, theta) in n trials, with z = n - y failures."""

    kind = "binomial"
    observed = "successes"
    size = "trials"
    theta = LOGIT
    grid = f"numbers exact below {EXACT_COUNTS}, {1 << STEPS} cells an octave"
    # infinite logits, as where all trees of a forest agree
    ends = (0.0, 1.0)
    words = Words(
        items="successes in trials",
        outcome="number of successes",
        outcomes="successes",
        size="trials",
        sizes="trials",
        theta="success rate",
        estimate="own rate",
        unit="{outcome} per trial ({size})",
        text="a number of successes in known trials, each a success with the item's true "
        "probability theta",
        further="{amount} more trials ({size})",
        worth="Items that deserve more trials",
        events="successes",
        noise="Binomial noise",
        unfit="both a success and a failure",
    )
    validity = Validity(
        Bounds(
            "successes must be whole numbers from 0 to the item's trials (true/false are 1 and 0)",
            LARGEST_COUNT,
            0.0,
            whole=True,
            labels=True,
            fractions="shares, percentages and successes shared out over rows are not: give "
            "the whole numbers of successes and trials, or shares with standard errors as "
            "soc.NormalItems",
        ),
        Bounds("trials must be whole numbers >= 0", LARGEST_COUNT, 0.0, whole=True),
        # a negative size is wrong by itself
        lambda y, size: (y > size) & (size >= 0),
        "above the trials of column {size!r}",
    )
    tables: ClassVar[Mapping[str, Table]] = {
        "part": Table.part("sum_N", *LOGIT.sums),
        "trials": Table.margin(_TRIAL_CELLS[0], *_TRIALS),
        "failures": Table.margin(_TRIAL_CELLS[1], *_FAILURES),
        "successes": Table.margin(_TRIAL_CELLS[2], *_SUCCESSES),
        "joint": Table.joint(*_TRIAL_CELLS, reals=(*_TRIALS, *_FAILURES, *_SUCCESSES)),
    }

    def describe(self, n: int, sums: Mapping[str, Any]) -> str:
        trials = float(sums["sum_N"])
        return f"{int(sums['sum_y']):,} successes in {trials:,.15g} trials"

    def excess_squares(self, groups: Columns, part: Mapping[Hashable, Any]) -> Excess:
        # in units of the variance of the group's successes in an item of typical size
        known = (groups["sum_y"] > 0) & (groups["sum_N"] > groups["sum_y"])
        # single trials vary by nothing but noise
        known &= (groups["n"] > 1) & (groups["sum_N2"] > groups["sum_N"])
        squares, (n, x1, x2, y1, rate) = residual_squares(groups, known)
        # mu (1 - mu) of X trials is low by a factor of 1 - 1/X
        noise = (y1 - rate * x2 / x1) * (1.0 - rate) / np.maximum(1.0 - 1.0 / x1, 1e-9)
        unit = rate * (1.0 - rate) * x2 / x1
        variance = 2.0 * (rate * (1.0 - rate)) ** 2 * (1.0 - 1.0 / n) * (x2 - x1)
        return known, (squares - noise) / unit, variance / unit**2, noise / unit

    def absent(self, table: TableOf) -> float:
        # one trial shows no 2, and of two or more the bound is at least half that of counts
        trials = table("trials")
        single = trials["n"][trials["sum_N"] == trials["n"]].sum()
        return absent_zeros(table("successes"), float(single), share=0.25)

    def log_likelihood(self, y: Floats, size: Floats, theta: Floats) -> Floats:
        inside = (theta >= 0) & (theta <= 1)
        known = np.where(inside, theta, 0.5)
        value = special.xlogy(y, known) + special.xlog1py(size - y, -known)
        choose = special.gammaln(size + 1.0) - special.gammaln(y + 1.0)
        value = value + choose - special.gammaln(size - y + 1.0)
        return np.where(inside, value, -np.inf)

    def thinned(self, y: Floats, size: Floats, fraction: float, rng: Generator) -> Pair:
        successes = y.astype(np.int64)
        trials = size.astype(np.int64)
        trials_kept = rng.binomial(trials, fraction)
        successes_kept = rng.hypergeometric(successes, trials - successes, trials_kept)
        return successes_kept.astype(float), trials_kept.astype(float)

    def noise(self, mean: Floats, variance: Floats | float = 0.0) -> Floats:
        return mean * (1.0 - mean) - variance

    def contrast(
        self, y: Floats, size: Floats, fresh_y: Floats, fresh_size: Floats
    ) -> Pair:
        # given both, the successes are hypergeometric; a common shift of fresh rates is taken out
        trials = size + fresh_size
        successes = y + fresh_y
        known = (size > 0) & (fresh_size > 0) & (successes > 0) & (successes < trials)
        if not known.any():
            raise ItemsError(
                "fresh=: there are no successes and failures in both outcomes of items seen twice"
            )
        trials = np.where(known, trials, 2.0)
        rate = successes / trials
        residual = np.where(known, y - rate * size, 0.0)
        share = size * fresh_size / np.maximum(trials - 1.0, 1.0)
        weight = np.where(known, share * rate * (1.0 - rate), 0.0)
        return residual - weight * (residual.sum() / weight.sum()), weight


# --- rows ----------------------------------------------------------------------------------------


def _softplus(xp: ModuleType, x: Tensor) -> Tensor:
    """log(1 + exp(x)), with correct derivatives at 0 too."""
    return 0.5 * (x + abs(x)) + xp.log1p(xp.exp(-abs(x)))


def _log_shares(xp: ModuleType, location: Tensor) -> Pair:
    """Mean of theta and its complement."""
    return xp.exp(-_softplus(xp, -location)), xp.exp(-_softplus(xp, location))


@dataclass(frozen=True, eq=False)
class BinomialRows(RowSums):
    """The three histograms of all rows: of successes y, failures z and trials n."""

    steps_y: Ragged  # as in `histogram`
    wide_y: Ragged
    steps_z: Ragged
    wide_z: Ragged
    steps_n: Ragged
    wide_n: Ragged
    total: Floats  # (rows,): sum of successes
    failures: Floats  # (rows,): and of failures
    # (rows,): sum of log (n choose y), which makes a log probability
    constant: Floats
    # (rows,): variance of the items' logits of the mean around the row's
    spread: Floats

    nothing = "all trials are 0"
    # scores that are probabilities, or small rates
    natural_scales = ("logit", "log")

    @staticmethod
    def widened(
        xp: ModuleType, location: Tensor, dispersion: Tensor, spread: Tensor
    ) -> Pair:
        """Curves of theta over rows whose items' logits of the mean vary."""
        mu, complement = _log_shares(xp, location)
        tilt = complement - mu
        within = xp.exp(dispersion)
        bent = tilt * tilt * within / (1.0 + mu * complement * within)
        return location + 0.5 * spread * tilt, xp.log(within + spread * (1.0 + bent))

    @staticmethod
    def log_probability(xp: ModuleType, curves: Pair, cells: Cells) -> Tensor:
        """Log marginal of rows without spread."""
        location, dispersion = curves
        total, failures, constant = cells[12:]
        # -log(1 - mu), -log(mu)
        up = _softplus(xp, location)
        down = _softplus(xp, -location)
        value = constant - total * down - failures * up
        value = value + rising(xp, xp.exp(dispersion - up), cells[:4])
        value = value + rising(xp, xp.exp(dispersion - down), cells[4:8])
        return value - rising(xp, xp.exp(dispersion - up - down), cells[8:12])

    @staticmethod
    def draw_totals(rng: Generator, curves: Pair, cells: Cells) -> Floats:
        """Random successes of rows: one Beta-Binomial with the mean and variance of their sum."""
        location, dispersion = curves
        step, over, excess, weight = cells[8:12]
        trials = np.rint(over.sum(axis=-1) + (weight * excess).sum(axis=-1))
        # pairs of trials of one item, whose correlation is 1/(a + b + 1)
        pairs = (step * over).sum(axis=-1)
        beyond = excess * (EXACT_COUNTS + 0.5 * (excess - 1.0))
        pairs = pairs + (weight * beyond).sum(axis=-1)
        share = 2.0 * pairs / np.maximum(trials * (trials - 1.0), 1.0)
        means = _log_shares(np, location)
        size = np.exp(-dispersion) / (means[0] * means[1])
        size = np.fmax((size + 1.0) / share - 1.0, _LEAST_SIZE)
        varies = size < _NO_SPREAD
        shapes = (
            np.where(varies, np.fmax(size * mean, _NO_SHAPE), 1.0) for mean in means
        )
        theta = np.where(varies, rng.beta(*shapes), means[0])
        return rng.binomial(trials.astype(np.int64), theta).astype(float)

    @classmethod
    def of(cls, rows: int, cells: Tables) -> "BinomialRows":
        """Build from tables of cells with a column ``row``: joint cells, or the three margins."""
        joint = cells.get("joint")
        successes, failures, trials = (
            columns(joint or cells[name], names) for name, names in _TRIAL_SUMS.items()
        )
        of_y, log_y = histogram(rows, successes)
        of_z, log_z = histogram(rows, failures)
        of_n, log_n = histogram(rows, trials)
        sum_y = np.bincount(successes[0], successes[2], rows)
        sum_z = np.bincount(failures[0], failures[2], rows)
        constant = log_n - log_y - log_z
        return cls(*of_y, *of_z, *of_n, sum_y, sum_z, constant, np.zeros(rows))

    @staticmethod
    def events(sums: Mapping[str, float]) -> float:
        """Successes or failures, whichever are fewer."""
        return min(sums["sum_y"], sums["sum_N"] - sums["sum_y"])

    @property
    def informs_variance(self) -> bool:
        """True if an item has two trials or more: single trials say nothing of the variance."""
        step, _ = self.steps_n.columns
        return bool((step == 1.0).any())

    def sizes(self) -> Points:
        """Row, trials and number of items of points that stand for the items."""
        row = self.steps_n.row
        step, over = self.steps_n.columns
        excess, weight = self.wide_n.columns
        later = np.append(over[1:], 0.0)
        later[np.append(row[1:], -1) != row] = 0.0
        # those with more are in the other table
        fewer = step < EXACT_COUNTS - 1
        return (
            np.concatenate([row[fewer], self.wide_n.row]),
            np.concatenate([step[fewer] + 1.0, excess + EXACT_COUNTS]),
            np.concatenate([(over - later)[fewer], weight]),
        )

    def information(self, location: Floats, dispersion: Floats) -> Pair:
        """Lower bounds of the Fisher information of both curves, by row."""
        # those of the best linear and quadratic functions of the successes (Godambe 1985): the
        # latter is (d Var(y)/dg)^2 over Var(y) and the second coefficient of Hahn's polynomials
        row, n, items = self.sizes()
        averaged = self.widened(np, location, dispersion, self.spread)
        f, g = (curve[row] for curve in averaged)
        g = np.maximum(g, -BETAS.bounds[1])
        a, b = BETAS.parameters(f, g, ARRAYS)
        m = a + b
        v = special.expit(f) * special.expit(-f)
        of_location = n * v * ((m + 1.0) / (m + n))
        # extra variance: Var(y) = n v (1 + extra)
        extra = (n - 1.0) / (m + 1.0)
        later = 2.0 * (n - 1.0) * ((a + 1.0) / (m + 2.0)) * ((b + 1.0) / (m + 2.0))
        later = later * (m / (m + 1.0)) * ((m + n + 1.0) / (m + 3.0))
        slope = n * v * extra * (m / (m + 1.0))
        of_dispersion = slope**2 / np.where(n > 1, n * v * (1.0 + extra) * later, 1.0)
        # derivative of the wider dispersion in the one of the row's centre
        mu, complement = _log_shares(np, location)
        bend = (complement - mu) / (1.0 + mu * complement * np.exp(dispersion))
        chain = np.exp(dispersion - averaged[1]) * (1.0 + self.spread * bend**2)
        rows = len(self.total)
        by_dispersion = np.bincount(row, items * of_dispersion, rows)
        return np.bincount(row, items * of_location, rows), chain**2 * by_dispersion

    def level(self) -> tuple[float, float]:
        """Logit of the overall rate, and the prior's own level."""
        successes = self.total.sum() + 0.5
        failures = self.failures.sum() + 0.5
        return float(np.log(successes) - np.log(failures)), self.dispersion_level[0]

    @property
    def can_fit(self) -> Bools:
        """Rows with a success and a failure: without either the logit of the mean is infinite."""
        return (self.total > 0) & (self.failures > 0)


# --- the family ----------------------------------------------------------------------------------


class BinomialBeta(BetaFormulas, Family):
    """Beta(a, b) priors of the probabilities of successes."""

    name = "Beta"
    outcome = BinomialOutcome()
    prior = Beta
    mixture = BetaMixture
    rows = BinomialRows
    parameter_names = "a", "b"

    def to_curves(self, a: Floats, b: Floats) -> Pair:
        log_a = np.log(a)
        log_b = np.log(b)
        return log_a - log_b, np.logaddexp(-log_a, -log_b)

    def curve_variables(
        self, location: Floats, dispersion: Floats
    ) -> dict[str, Floats]:
        variables = super().curve_variables(location, dispersion)
        return variables | {"log_odds_cv2": dispersion}

    def natural_moments(self, location: Floats, exponential: Floats) -> Pair:
        mean = special.expit(location)
        v = mean * special.expit(-np.asarray(location))
        return mean, v * (v * exponential / (1.0 + v * exponential))

    def third_moment(self, a: Floats, b: Floats) -> Floats:
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
        # the same for any number of rows
        further = tuple(rng.spawn(1)[0] for rng in rngs)
        return draw_log_gamma(a, rngs) - draw_log_gamma(b, further)

    def above_place(self, place: Floats, a: Floats, b: Floats) -> Floats:
        tail = beta_tail(special.expit(place), special.expit(-place), a, b)
        is_far = np.broadcast_to(np.abs(place) >= _FAR_LOGIT, tail.shape)
        if is_far.any():  # odds below all numbers
            arrays = np.broadcast_arrays(place, a, b)
            logit, a, b = (values[is_far] for values in arrays)
            shape = np.where(logit < 0, a, b)
            power = np.exp(
                -shape * np.abs(logit) - np.log(shape) - special.betaln(a, b)
            )
            tail[is_far] = np.where(logit < 0, 1.0 - power, power)
        return tail

    def log_marginal(self, y: Floats, size: Floats, a: Floats, b: Floats) -> Floats:
        return log_beta_binomial(y, size, a, b)

    def below(self, y: Floats, size: Floats, a: Floats, b: Floats) -> Floats:
        tail = beta_binomial_cdf(np.clip(y - 1.0, 0.0, size), size, a, b)
        return np.where(y > size, 1.0, np.where(y > 0, tail, 0.0))

    def simulate(self, a: Floats, b: Floats, size: Floats, rng: Generator) -> Floats:
        theta = special.expit(self.draw(a, b, (rng, rng)))
        return rng.binomial(np.asarray(size).astype(np.int64), theta).astype(float)

    def outcome_moments(self, a: Floats, b: Floats, size: Floats) -> Triple:
        total = a + b
        mean = size * (a / total)
        variance = mean * (b / total) * ((total + size) / (total + 1.0))
        return mean, np.sqrt(variance), _SUCCESS_TAIL * (1.0 + size / total)

    # --- components of mixtures

    component_ends = (-8.05, 8.05)  # as for Gammas, on both sides

    def frame(self, location: ArrayLike, dispersion: ArrayLike) -> Frame:
        middle = np.clip(np.asarray(location, dtype=float), -_LOGITS, _LOGITS)
        log_spread = np.clip(np.asarray(dispersion, dtype=float), *_LOG_SPREADS)
        a, b = self.parameters(middle, log_spread, ARRAYS)
        variance = special.polygamma(1, a) + special.polygamma(1, b)
        spread = np.minimum(np.sqrt(variance), _WIDEST_SPREAD)
        centre = special.psi(a) - special.psi(b)
        reach = _FARTHEST_CENTRE * spread
        return Frame(middle, np.clip(centre, middle - reach, middle + reach), spread)

    def rise(self, frame: Frame) -> Floats:
        # mu a psi'(a) + (1 - mu) b psi'(b), with mu = a / (a + b)
        a, b = betas_of_logit(frame.centre, frame.spread**2)
        by_a = a / (a + b) * a * special.polygamma(1, a)
        return by_a + b / (a + b) * b * special.polygamma(1, b)

    def component_parameters(self, centre: Floats, variance: Floats) -> Pair:
        return betas_of_logit(centre, variance)

    def relative(self, frame: Frame, parameters: Pair) -> Relative:
        a, b = parameters
        location = frame.location[:, None]
        logit = np.log(a) - np.log(b)
        gap = logit - location
        positions = np.stack([special.log_expit(logit), special.log_expit(-logit)])
        log_middle = np.stack(
            [special.log_expit(location), special.log_expit(-location)]
        )
        log_up, log_down = positions - log_middle
        # two equal forms: take the one whose exponentials are small
        mean = np.where(
            gap > 0,
            -np.exp(log_up) * np.expm1(-np.maximum(gap, 0.0)),
            np.exp(log_down) * np.expm1(np.minimum(gap, 0.0)),
        )
        variance = np.exp(log_up + log_down - log_middle.sum(axis=0)) / (a + b + 1.0)
        middle = special.expit(frame.location)
        return Relative(positions, mean, variance, frame.spread, middle=middle)

    def log_pilot(
        self, frame: Frame, curves: Floats, parts: Relative, bounds: CurveBounds
    ) -> Floats:
        # rounding to the grid moves moments, most where theta is largest; tilts by theta and its
        # square restore them. In units of m (1 - m), around m, the mean is 0, the variance this
        odds_cv2 = np.exp(curves[:, 1])
        variance = odds_cv2 / (1.0 + bounds.middle * (1.0 - bounds.middle) * odds_cv2)
        targets = np.stack([np.zeros(len(variance)), variance], axis=1)
        powers = np.stack([parts.mean, parts.mean**2 + parts.variance], axis=2)
        weight = beta_weights(frame, self.component_grid, curves)
        has_weight = weight > _FAINT_WEIGHT
        log = np.log(np.maximum(weight, _FAINT_WEIGHT))
        tilt = np.zeros((len(log), 2))
        for _ in range(_TILTS):
            log_tilted = log + (powers @ tilt[..., None])[..., 0]
            tilted = special.softmax(np.where(has_weight, log_tilted, -np.inf), axis=1)
            moments = np.einsum("nr,nrk->nk", tilted, powers)
            centred = powers - moments[:, None]
            slope = (tilted[..., None] * centred).mT @ centred
            # there is no inverse where the components that have weight have one mean, such as 1
            step = (
                np.linalg.pinv(slope, hermitian=True) @ (targets - moments)[..., None]
            )
            change = np.abs(centred @ step)[..., 0]
            longest = change.max(axis=1, where=has_weight, initial=0.0)
            shorter = _MOST_TILT / np.maximum(longest, _MOST_TILT)
            tilt += step[..., 0] * shorter[:, None]
            if longest.max() < _TILTED:
                break
        log_mean, log_complement = parts.positions
        at_pilot = bounds.bent(bounds.location, bounds.dispersion)[0]
        spread = np.exp(at_pilot[1]) - bounds.inner
        a = 1.0 / (spread * (1.0 - bounds.middle))
        b = 1.0 / (spread * bounds.middle)
        tilted = log + (powers @ tilt[..., None])[..., 0]
        log_ratio = tilted - a[:, None] * log_mean - b[:, None] * log_complement
        # beyond the components that have weight the ratio stays the same
        low = has_weight.argmax(axis=1)
        size = weight.shape[1]
        high = size - 1 - has_weight[:, ::-1].argmax(axis=1)
        component = np.clip(np.arange(size), low[:, None], high[:, None])
        return np.take_along_axis(log_ratio, component, axis=1)

    def log_weights(self, curves: Triple, grid: ComponentGrid, slopes: bool) -> LogLaw:
        location, dispersion, path = curves
        # logits in place of logarithms; Betas are exact where the curves are the pilot's
        log_mean, log_complement, floor, at_pilot = grid.base
        middle = grid.middle
        inner = grid.inner
        odds_cv2 = np.exp(dispersion)
        odds = middle * np.exp(location)
        m = odds / (1.0 - middle + odds)
        variance = odds_cv2 - inner
        a = 1.0 / (variance * (1.0 - m))
        b = 1.0 / (variance * m)
        centre = np.log(m) - np.log(1.0 - m) + variance * (m - 0.5)
        y = (log_mean - log_complement - centre) / variance
        square = y * y
        normal: tuple[Floats, ...] = (square * (-0.5 * variance),)
        to_mean = a * log_mean
        to_complement = b * log_complement
        total = to_mean + to_complement
        beta: tuple[Floats, ...] = (at_pilot + total,)
        if slopes:
            by_mean = y * (1.0 + variance * m * (1.0 - m))
            normal += by_mean, (0.5 * square + y * (m - 0.5)) * odds_cv2
            beta += m * total - to_complement, total * (-odds_cv2 / variance)
        return between(normal, beta, path, floor)

    def zero(self, a: Floats) -> Pair:
        return np.ones(len(a)), np.full(len(a), 1e100)

    def curvature(self, y: Floats, size: Floats, variance: Floats) -> Triple:
        # in the logit of the share of successes
        failures = size - y
        by_failures = reciprocal(failures)
        sharpness = 1.0 / (variance + 1.0 / (y + 1.0) + 1.0 / (failures + 1.0))
        return reciprocal(y) + by_failures, -by_failures, sharpness


def betas_of_logit(location: Floats, variance: Floats) -> Pair:
    """Parameters of Betas whose logit has mean psi(a) - psi(b) and variance psi'(a) + psi'(b)."""
    from .kernels import solve_betas

    location, variance = np.broadcast_arrays(location, variance)
    a, b = np.empty((2, location.size))
    solve_betas(location.ravel(), variance.ravel(), a, b)
    return a.reshape(location.shape), b.reshape(location.shape)


def beta_weights(frame: Frame, z: Floats, curves: Floats) -> Floats:
    """Weights (n, R) of components that make the Betas of these curves, (n, 2).

    Logit theta is that of Beta(A, B), a component, plus log S - log T with S ~ Beta(a, A - a) and
    T ~ Beta(b, B - b), both rounded to a lattice. The cdf is off by up to 0.004 where a and b are
    0.5 or more (0.012 at 0.3).
    """
    location, dispersion = curves.T
    location = np.clip(location, -_LOGITS, _LOGITS)
    a, b = BETAS.parameters(location, dispersion, ARRAYS)
    step = (z[1] - z[0]) * frame.spread
    component = betas_of_logit(
        frame.centre, (WIDTH**2 + _STEP_CORRECTION) * frame.spread**2
    )
    middle = special.psi(b) - special.psi(component[1])
    # the sum of both centres is that of the components
    upper = _on_lattice(a, component[0] - a, middle, step, len(z))
    lower = _on_lattice(b, component[1] - b, middle, step, len(z))
    size = upper.shape[1]
    probability = np.zeros((len(a), 2 * size - 1))
    for j in range(size):  # each point of -log T, with all of log S
        probability[:, j : j + size] += upper * lower[:, [size - 1 - j]]
    begin = size - 1 - len(z) // 2
    weight = probability[:, begin : begin + len(z)]
    weight[:, 0] += probability[:, :begin].sum(axis=1)
    weight[:, -1] += probability[:, begin + len(z) :].sum(axis=1)
    return weight


def _on_lattice(
    a: Floats, b: Floats, centre: Floats, step: Floats, reach: int
) -> Floats:
    """Probabilities (n, 2 reach + 1) of log S, S ~ Beta(a, b), on a lattice around a centre."""
    edges = centre[:, None] + step[:, None] * (np.arange(-reach, reach) + 0.5)
    # for a component wider than the Beta the limit, in which S is 1
    b = np.maximum(b, 1e-300)
    below = special.betainc(a[:, None], b[:, None], np.exp(np.minimum(edges, 0.0)))
    return np.diff(below, axis=1, prepend=0.0, append=1.0)
