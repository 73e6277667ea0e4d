"""The bases of outcomes and of families.

An outcome has roles of columns, sums, words, and functions without priors of theta; a family has
the closed forms of theta and outcomes.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.random import Generator

from .._lib.arguments import StatisticsError
from .._lib.arrays import Bools, Columns, Floats, Ints, Pair, Tables, Triple
from ..prior_table import ARRAYS, Formulas, Members, Mixture, mixture_summaries, moments
from .mixtures import Components
from .rows import RowSums, value_moments
from .scales import (
    EXACT_COUNTS,
    LINEAR,
    LOG,
    SCORE_WEIGHT,
    STEPS,
    Bounds,
    Cell,
    Scale,
)

PART_KEYS = ("group", "fold", "bin")
_SCORES = ("score_min", "score_max", SCORE_WEIGHT, *LINEAR.sums, *LOG.sums)
# scores within this factor of the outcomes count as estimates of theta
_ESTIMATE_FACTOR = 3.0
# share of items with scores that theta cannot be, up to which these are faults of some rows
_MOST_OUTSIDE = 0.25
_SCORE_BOUNDS = Bounds("scores must be finite numbers")
# an item counts for at most one of so many in the typical precision
_LEAST_ITEMS = 4
# information from which on an item always counts, and that of the last items as a share of all
_ALWAYS = 2.0**-10
_NEGLIGIBLE = 0.01
_LEAST_PRECISION = 1e-100  # relative to the largest

Generators = tuple[Generator, ...]
# mask of groups of items; their squared residuals less noise, with variance and noise
Excess = tuple[Bools, Floats, Floats, Floats]
# a function that returns a table of sums by its name
TableOf = Callable[[str], Columns]

_MOST_SUMMARISED = 1 << 16  # in one array of members x items
# probability that a difference from 1 does not show well
_ROUNDED_TAIL = 1e-6


@dataclass(frozen=True)
class Validity:
    """Rules for valid items of one kind."""

    outcome: Bounds
    size: Bounds
    # f(y, x), true if outcome and size exclude each other, in operators for arrays and for columns
    # of engines
    conflict: Callable[[Any, Any], Any] | None = None
    # such an outcome; {size} is the size's column
    conflict_words: str = ""
    conflict_needs: str = ""  # the rule that it breaks, if not that of outcomes
    score: Bounds = _SCORE_BOUNDS

    def are_valid(self, score: Floats, outcome: Floats, size: Floats) -> bool:
        """Return True if all items (at least one) are valid."""
        pairs = ((self.score, score), (self.outcome, outcome), (self.size, size))
        return all(bounds.hold(numbers) for bounds, numbers in pairs) and not (
            self.conflict and np.any(self.conflict(outcome, size))
        )


class Sum(NamedTuple):
    """Summand of a column: y^outcome x^size (x - y)^complement, y log x, or 1 where y exceeds x."""

    outcome: int
    size: int
    form: Literal["power", "log", "above"] = "power"
    complement: int = 0


_CELL_SUMS = {
    "sum_s2": Sum(0, 1),
    "sum_y_log_N": Sum(1, 0, "log"),
    "above": Sum(1, 0, "above"),
}


def sum_of(name: str) -> Sum | None:
    """Summand of a column by its name, such as "sum_yN2"; None for columns of scores alone."""
    if not (product := re.fullmatch(r"sum_((?:[yNwz]\d?)+)", name)):
        return _CELL_SUMS.get(name)
    powers = {
        letter: int(digit or 1) for letter, digit in re.findall(r"(.)(\d?)", product[1])
    }
    size = powers.get("N", 0) + powers.get("w", 0)
    return Sum(powers.get("y", 0), size, complement=powers.get("z", 0))


@dataclass(frozen=True, eq=False)
class Table:
    """One table of sums."""

    keys: tuple[str, ...]  # columns of keys, unique to a row
    # real sums (score_min and score_max are extremes)
    reals: tuple[str, ...]
    # cells that identify rows, by column of keys
    cells: Mapping[str, Cell]

    @classmethod
    def part(cls, *reals: str) -> "Table":
        """Sums of whole bins, with those of scores."""
        return cls(PART_KEYS, (*_SCORES, *reals), {})

    @classmethod
    def margin(cls, cell: Cell, *reals: str) -> "Table":
        """Sums by cells of one role."""
        return cls((*PART_KEYS, "cell"), reals, {"cell": cell})

    @classmethod
    def joint(cls, *cells: Cell, reals: Sequence[str]) -> "Table":
        """Sums by cells of all roles together."""
        by_name = {cell.name: cell for cell in cells}
        return cls(("group", "bin", *by_name), tuple(dict.fromkeys(reals)), by_name)


@dataclass(frozen=True)
class Words:
    """Words for one kind in checks, pictures and the report."""

    items: str  # items: "counts in exposures"
    outcome: str  # one outcome and several: "count", "counts"
    outcomes: str
    # what determines an outcome's precision: "exposure", "noise sd"
    size: str
    sizes: str
    theta: str  # an item's theta: "rate"
    # an item's outcome as an estimate of its theta: "own rate"
    estimate: str
    # unit of theta, with placeholders for the columns {outcome} and {size}
    unit: str
    text: str  # an item's outcome, as the second half of a sentence
    # one further observation, with its {amount} and {size}
    further: str
    # heading for the items whose further observation is worth most
    worth: str
    events: str  # name of unnamed outcomes in units and totals
    noise: str  # noise of outcomes about theta
    # warning of doubtful noise, with which intervals are off by {width}
    doubt: str = ""
    # a mistake after which outcomes vary less than their noise allows
    overstated: str = ""
    unfit: str = "an event"  # lacking in a bin without an estimate


class Outcome(ABC):
    """One kind of outcome `y` of items of sizes (n,).

    Attributes and bodies of methods are those of counts and successes, unless a kind has others.
    """

    kind: str
    observed: str  # role of the outcome
    size: str  # role of the size
    # on which theta and its mean are compared, averaged and banded
    theta: Scale
    words: Words
    validity: Validity
    # first "part", last "joint", which is optional
    tables: ClassVar[Mapping[str, Table]]
    # outcomes are whole numbers: predictive cdfs have steps
    whole: bool = True
    # theta is positive, with logarithmic curves and pictures
    positive: bool = True
    # the spread of theta is reported as a share of its mean
    relative: bool = False
    direct: bool = False  # an outcome is itself the estimate of theta
    # a larger size is more informative, and means are over units of size
    sizes_add: bool = True
    # power of the size in sums: N of counts, s^2 of values
    size_power: int = 1
    # columns of whole numbers of every table
    integers: tuple[str, ...] = ("n", "sum_y")
    # widths of cells; statistics with other cells cannot be added
    grid: str = f"counts exact below {EXACT_COUNTS}, {1 << STEPS} cells an octave"
    # default size of an outcome; None if it must be given
    usual_size: float | None = 1.0
    no_information: float = 0.0  # size of an uninformative outcome
    # scores that are atoms however few items have them
    ends: tuple[float, ...] = ()
    truncated: bool = False  # items with an outcome of 0 are absent
    five_steps: bool = True  # the paper's method has moments for it
    never_zero: str = ""  # why theta of no item is 0, where zero=True is refused

    @property
    def complete(self) -> "Outcome":
        """The outcome with items of 0."""
        return self

    # --- columns

    @property
    def dtype(self) -> type[np.number[Any]]:
        """Data type of outcomes."""
        return np.int64 if self.whole else np.float64

    @property
    def bounds(self) -> dict[str, Bounds]:
        """Bounds of numbers by role."""
        rule = self.validity
        return {"score": rule.score, self.observed: rule.outcome, self.size: rule.size}

    @property
    def margins(self) -> tuple[str, ...]:
        """Names of the tables of cells that are always kept."""
        return tuple(self.tables)[1:-1]

    @property
    def size_cell(self) -> str:
        """Column of joint cells with an item's size."""
        cells = self.tables["joint"].cells.values()
        return next(cell.name for cell in cells if cell.role == "size")

    @property
    def size_margin(self) -> str:
        """Name of the table by cell of an item's size; empty if there is none."""
        by_role = {self.tables[x].cells["cell"].role: x for x in self.margins}
        return by_role.get("size", "")

    def sums(self, name: str) -> tuple[str, ...]:
        """Columns of a table without keys: whole numbers, then real sums."""
        return (*self.integers, *self.tables[name].reals)

    def columns(self, name: str) -> tuple[str, ...]:
        """Every column of a table: keys, whole numbers, real sums."""
        return (*self.tables[name].keys, *self.sums(name))

    def reals(self, names: Sequence[str]) -> tuple[str, ...]:
        """Real sums of some tables, each once."""
        reals = (real for name in names for real in self.tables[name].reals)
        return tuple(dict.fromkeys(reals))

    def check_table(self, name: str) -> None:
        """Refuse a name that is not a table of this kind."""
        if not isinstance(name, str) or name not in self.tables:
            known = ", ".join(map(repr, self.tables))
            raise StatisticsError(
                f"statistics of {self.kind} items have no table {name!r}, but {known}"
            )

    # --- sums

    @abstractmethod
    def describe(self, n: int, sums: Mapping[str, Any]) -> str:
        """Items and totals of columns, in words."""

    def of_bins(self, sums: Mapping[str, Any]) -> tuple[Any, Any]:
        """Size and outcome that represent each bin, from the table "part"."""
        return sums["sum_N"], sums["sum_y"]

    def mean_size(self, sums: Columns) -> Floats:
        """Size of a typical item of rows of the table of sizes, or of joint cells."""
        return sums["sum_N"] / sums["n"]

    def information(self, size: Floats, sums: Columns) -> Floats:
        """Information of items about theta by size, relative to that of an item that tells it.

        It is the number of events that their sizes alone make expected.
        """
        events = float(sums["sum_y"].sum()) + 0.5
        return size * (events / max(float(sums["n"] @ size), 1e-300))

    def size_limit(self, sums: Columns) -> float | None:
        """Limit of the sizes that carry information, a power of two; None if all do."""
        size = np.ldexp(1.0, sums["cell"] >> STEPS)
        known = informative(self.information(size, sums), sums["n"])
        if known.all() or not known.any():
            return None
        return float(size[known].min() if self.sizes_add else 2.0 * size[known].max())

    def tells(self, size: Any, limit: float) -> Any:
        """Mask of sizes that carry information, for arrays and for columns of engines."""
        return size >= limit if self.sizes_add else size < limit

    def exposure_means(self, sums: Columns) -> Triple:
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
    def excess_squares(self, groups: Columns, part: Mapping[Hashable, Any]) -> Excess:
        """Mask of groups of items; their squared residuals less noise, with variance and noise."""

    # --- doubts about the noise

    def is_amount(self, column: str) -> bool:
        """Return True if a column's name says that sizes cannot be counts of trials."""
        return False

    def doubt(self, table: TableOf) -> str:
        """Describe the evidence in tables of sums against this kind's noise; empty if none."""
        return ""

    def absent(self, table: TableOf) -> float:
        """Lower bound of the items of 0 that lack in tables of sums; 0 if some are there."""
        return 0.0

    def doubtful(self, y: Floats, size: Floats, tight: bool) -> bool:
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

    @abstractmethod
    def thinned(self, y: Floats, size: Floats, fraction: float, rng: Generator) -> Pair:
        """A random part of each outcome, and its size; `remainder` is independent of it."""

    def remainder(
        self, y: Floats, size: Floats, thinned: Pair, fraction: float
    ) -> Pair:
        """The rest of each outcome after thinning, and its size."""
        return y - thinned[0], size - thinned[1]

    # --- estimates of theta from outcomes alone

    def estimate(self, y: Floats, size: Floats) -> Floats:
        """Each item's own estimate of theta; NaN without information."""
        return rate_of(y, size)

    def pooled_estimates(
        self, y: Floats, size: Floats, items: Floats, group: Ints
    ) -> Pair:
        """Estimates of theta, and their errors from noise alone, by group of bins of items."""
        total = np.bincount(group, size)
        theta = rate_of(np.bincount(group, y), total)
        return theta, rate_of(np.sqrt(total * self.noise(theta)), total)

    def reads_theta(self, score: Floats, outcome: Floats, size: Floats) -> bool:
        """Return True if scores of bins are estimates of a positive theta, within a factor of 3."""
        scale = self.theta
        if not self.positive or score.min() < scale.low or score.max() > scale.high:
            return False
        mean = scale.position((score * size).sum() / size.sum())
        estimate = scale.position(outcome.sum() / size.sum())
        alike = abs(mean - estimate) < np.log(_ESTIMATE_FACTOR)
        return bool(np.isfinite(mean + estimate) and alike)

    def are_foreign(self, low: Floats, high: Floats, n: Floats) -> bool:
        """Return True if many of n items at scores from low to high lie outside theta's range."""
        outside = (high < self.theta.low) | (low > self.theta.high)
        return bool(n[outside].sum() > _MOST_OUTSIDE * n.sum())

    def ends_of(self, low: Floats, high: Floats, n: Floats) -> tuple[float, ...]:
        """Scores that are atoms however few items have them, unless scores are not of theta."""
        return () if self.are_foreign(low, high, n) else self.ends

    def wrong_scores(self, score: Floats, y: Floats) -> Bools:
        """Mask of scores that cannot be estimates of theta, given the outcomes."""
        low = self.theta.low
        high = self.theta.high
        return (score < low) | (score > high) | ((score == low) & (y > 0))

    # --- outcomes given the first two moments of theta

    @abstractmethod
    def noise(self, mean: Floats, variance: Floats | float = 0.0) -> Floats:
        """Expected variance of an outcome of size 1 about theta, from the moments of theta."""

    def of_listed(
        self, size: Floats, mean: Floats, variance: Floats, total: Floats
    ) -> Pair:
        """Mean and variance `total` of estimates of items in the table, from those of all items."""
        return mean, total

    @property
    def summaries(self) -> Mapping[str, Callable[..., Floats]]:
        """Summaries of items to compare with replicates, by name: (y, size, mean, variance)."""
        summaries = {"dispersion": self.scatter}
        if self.whole:
            name = f"zero {self.words.outcomes}"
            summaries[name] = lambda y, *_: (y == 0).sum(axis=-1)
        return summaries

    def scatter(
        self, y: Floats, size: Floats, mean: Floats, variance: Floats
    ) -> Floats:
        """Sum over items of squared residuals, weighted to measure a common factor on variance."""
        # residuals^2 over kappa_4 + 2 Var(y)^2 in units of Var(y) = expected (1 + extra)
        unit = self.noise(mean)
        noise = self.noise(mean, variance)
        extra = np.maximum((noise - unit + size * variance) / unit, 0.0)
        weight = 1.0 + 6.0 * extra * (1.0 + extra) + 2.0 * size * unit * (1.0 + extra)
        return ((y - size * mean) ** 2 / weight).sum(axis=-1)

    def response(self, size: Floats, mean: Floats, variance: Floats) -> Floats:
        """Derivative of the posterior mean in the outcome's own estimate of theta."""
        return size * variance / np.maximum(self.noise(mean, variance), 1e-300)

    @abstractmethod
    def contrast(
        self, y: Floats, size: Floats, fresh_y: Floats, fresh_size: Floats
    ) -> Pair:
        """Outcomes less their prediction from fresh ones of the same items, and weights."""

    # --- calibration of the score

    def pooled_rate(self, total: float, weight: float) -> float:
        """Mean outcome; half an event stands for none, whose rate would have likelihood 0."""
        half = 0.5 if self.whole else 0.0
        low = self.theta.low * weight + half
        high = self.theta.high * weight - half
        return min(max(total, low), high) / weight

    def residual_factor(self, theta: Floats) -> Floats:
        """Factor of residuals in the score of theta's position: 1 on a canonical scale."""
        return np.ones_like(theta)

    def weighted(self, y: Floats, size: Floats) -> Pair:
        """Weights, and outcomes times their weights: the ratio estimates theta."""
        return size, y


def absent_zeros(cells: Columns, ones: float = 0.0, share: float = 0.5) -> float:
    """Lower bound of the items of 0 behind cells of outcomes without any, by Chao (1987).

    Under any law of theta, E(n_0) E(n_2) is at least `share` E(n_1)^2, where `ones` of the n_1 do
    not count.
    """
    n = cells["n"]
    value = cells["sum_y"] / n
    none, single, double = (float(n[value == y].sum()) for y in (0, 1, 2))
    single = max(single - ones, 0.0)
    return 0.0 if none else share * single * max(single - 1.0, 0.0) / (double + 1.0)


def uniform_range(cells: Columns) -> Pair:
    """Ends of uniform distributions with the cells' means and variances."""
    mean, variance = value_moments(cells)
    reach = np.sqrt(3.0 * variance)
    return mean - reach, mean + reach


def rate_of(y: Floats, size: Floats) -> Floats:
    """Outcomes over sizes, NaN without a size."""
    return np.divide(y, size, out=np.full(len(y), np.nan), where=size > 0)


def residual_squares(
    groups: Columns, known: Bools
) -> tuple[Floats, tuple[Floats, ...]]:
    """Squared residuals from the rates of groups, and their n, sums of x, x^2, y, and rate."""
    names = ("n", "sum_N", "sum_N2", "sum_y", "sum_yN", "sum_y2")
    n, x1, x2, y1, xy, y2 = (groups[name][known] for name in names)
    rate = y1 / x1
    return y2 - 2.0 * rate * xy + rate**2 * x2, (n, x1, x2, y1, rate)


# --- information of items ------------------------------------------------------------------------


def typical_precision(precision: Floats, items: Floats) -> float:
    """Harmonic mean of precisions, weighted by information about a small variance of theta.

    This information is the squared precision, so any number of imprecise items hardly counts; no
    item counts for more than a quarter of all, so neither does one of extreme precision.
    """
    order = np.argsort(precision)[::-1]
    largest = precision[order[0]]
    relative = np.maximum(precision[order] / largest, _LEAST_PRECISION)
    number = items[order]
    square = relative**2
    # items of a precision and beyond, with the others by their information as a share of theirs
    information = np.cumsum((number * square)[::-1])[::-1]
    counted = np.cumsum(number) + (information - number * square) / square
    enough = relative[counted >= _LEAST_ITEMS]
    capped = np.minimum(relative, enough[0] if len(enough) else relative[-1])
    weight = number * capped**2
    return float(largest * weight.sum() / (weight / relative).sum())


def informative(information: Floats, items: Floats) -> Bools:
    """Mask of items, by their information, without those that together say next to nothing.

    An item whose information is 1 or more says about as much as any other.
    """
    order = np.argsort(information)
    below = np.cumsum((items * information)[order])
    total = items @ np.minimum(information, 1.0)
    negligible = np.zeros(len(information), dtype=bool)
    negligible[order] = below <= _NEGLIGIBLE * total
    return ~(negligible & (information < _ALWAYS))


class Family(Formulas, Components):
    """Laws of theta given the score, and of outcomes; a family writes the abstract methods."""

    outcome: Outcome
    prior: Any  # class of its configuration
    mixture: type  # that of mixtures of it
    # sums of rows of items, and the log marginal given them
    rows: type[RowSums]
    parameter_names: tuple[str, str]  # those of the conjugate ones
    # by which the first rises where a prior is weighted by theta
    theta_power: float = 1.0
    further_scale: Scale = LINEAR  # of `outcome_moments`

    @property
    def curve_names(self) -> tuple[str, str]:
        """Names of both curves in the posterior."""
        return self.prior.curve_names

    # copies are the family itself
    def __reduce__(self) -> tuple[Any, ...]:
        from . import family_of_kind

        return family_of_kind, (self.outcome.kind, self.attrs)

    def given(self, attrs: Mapping[Any, Any]) -> "Family":
        """Return the family of items with these attributes."""
        from . import TRUNCATED

        return TRUNCATED[self.outcome.kind] if "truncated" in attrs else self

    @property
    def attrs(self) -> dict[str, Any]:
        """Attributes of items of which `given` makes this family."""
        return {"truncated": 1} if self.outcome.truncated else {}

    def rows_of(self, rows: int, cells: Tables) -> RowSums:
        """Build so many rows from tables of cells, as `RowSums.of`."""
        return self.rows.of(rows, cells)

    # --- curves

    def to_parameters(self, location: Floats, dispersion: Floats) -> Pair:
        """Conjugate parameters of priors with these curves."""
        dispersion = np.maximum(dispersion, -self.bounds[1])
        a, b = self.parameters(np.asarray(location), dispersion, ARRAYS)
        return a, b

    @abstractmethod
    def to_curves(self, a: Floats, b: Floats) -> Pair:
        """Both curves."""

    def curve_variables(
        self, location: Floats, dispersion: Floats
    ) -> dict[str, Floats]:
        """Variables of `soc.calibration_curves` by name."""
        mean, variance = self.natural_moments(location, np.exp(dispersion))
        moments = {"mean": mean, "variance": variance, self.curve_names[0]: location}
        parameters = self.to_parameters(location, dispersion)
        named = zip(self.parameter_names, parameters, strict=True)
        return moments | {"log_variance": np.log(variance)} | dict(named)

    @abstractmethod
    def natural_moments(self, location: Floats, exponential: Floats) -> Pair:
        """E(theta) and Var(theta) from the location and exp of the dispersion, which may be 0."""

    def widened(
        self, location: Floats, dispersion: Floats, spread: Floats | float
    ) -> Pair:
        """Curves averaged over a variance `spread` of the location, to second order."""
        spread = np.asarray(spread, dtype=float)
        return self.rows.widened(np, location, dispersion, spread)

    def unit(self, dispersion: Floats) -> Floats:
        """Unit of an sd of the location, from the dispersion."""
        return np.ones_like(dispersion)

    # True if posteriors given outcomes are alike for all large dispersions
    saturates: bool = False

    def felt(self, dispersion: Floats) -> Floats:
        """Dispersion on the scale on which it changes posteriors given outcomes."""
        return dispersion

    def unfelt(self, felt: Floats) -> Floats:
        """Dispersion of `felt`."""
        return felt

    # --- theta

    @abstractmethod
    def third_moment(self, a: Floats, b: Floats) -> Floats:
        """E[(theta - E(theta))^3]."""

    @abstractmethod
    def above(self, cut: Floats, a: Floats, b: Floats) -> Floats:
        """P(theta > cut)."""

    @abstractmethod
    def cdf(self, cut: Floats, a: Floats, b: Floats) -> Floats:
        """P(theta <= cut)."""

    @abstractmethod
    def kernel(self, cut: Floats, a: Floats, b: Floats) -> Floats:
        """E[(theta - cut)+] less (E(theta) - cut) P(theta > cut)."""

    def excess(self, cut: Floats, a: Floats, b: Floats) -> Floats:
        """E[(theta - cut)+]."""
        inside = (self.mean(a, b) - cut) * self.above(cut, a, b)
        return np.maximum(inside + self.kernel(cut, a, b), 0.0)

    def shortfall(self, cut: Floats, a: Floats, b: Floats) -> Floats:
        """E[(cut - theta)+]."""
        inside = (cut - self.mean(a, b)) * self.cdf(cut, a, b)
        return np.maximum(inside + self.kernel(cut, a, b), 0.0)

    @abstractmethod
    def draw(self, a: Floats, b: Floats, rngs: Generators) -> Floats:
        """Draws of theta's place, one for each element, row by row."""

    def natural(self, place: Floats) -> Floats:
        """Theta from places."""
        with np.errstate(over="ignore"):
            return self.theta(place, ARRAYS)

    def above_place(self, place: Floats, a: Floats, b: Floats) -> Floats:
        """P(theta > its value at a place)."""
        return self.above(place, a, b)

    def summaries(
        self,
        weight: Floats | None,
        a: Floats,
        b: Floats,
        probs: Sequence[float] = (),
        zero: Floats | None = None,
        exact: bool = True,
    ) -> Floats:
        """Mean, sd, variance, quantiles, and a share `zero` if given, of mixtures (members, n).

        Without `exact`, quantiles have the error of the prior table's distribution function.
        """
        laws = [self.law, self._law] if exact else [self.law]
        a, b = np.broadcast_arrays(a, b)
        weight = np.full((len(a), 1), 1.0 / len(a)) if weight is None else weight
        weight = np.broadcast_to(weight, a.shape)
        out = np.empty((3 + len(probs) + (zero is not None), a.shape[1]))
        step = max(1, _MOST_SUMMARISED // len(a))
        with np.errstate(all="ignore"):
            for begin in range(0, a.shape[1], step):
                part = slice(begin, begin + step)
                at_zero = None if zero is None else zero[part]
                members = weight[:, part], a[:, part], b[:, part]
                averages, *_ = moments(self, members, ARRAYS)
                mixture = Mixture(*members, averages, at_zero)
                out[:, part] = mixture_summaries(self, mixture, probs, laws)
        return out

    def _law(self, members: Members, t: Floats, xp: SimpleNamespace) -> Triple:
        """Distribution function and density at places t."""
        a, b, _ = members
        below = 1.0 - self.above_place(t, a, b)
        faint = (below < _ROUNDED_TAIL).all(axis=0)
        if faint.any():  # their digits went with the difference from 1
            below = np.where(faint, self.cdf(self.natural(t), a, b), below)
        return below, *self.law(members, t, xp)[1:]

    # --- outcomes, averaged over theta

    @abstractmethod
    def log_marginal(self, y: Floats, size: Floats, a: Floats, b: Floats) -> Floats:
        """Log marginal density or probability; counts may lie between whole numbers."""

    def log_density(
        self, y: Floats, size: Floats, location: Floats, dispersion: Floats
    ) -> Floats:
        """`log_marginal` under curves."""
        return self.log_marginal(y, size, *self.to_parameters(location, dispersion))

    def log_listed(self, size: Floats, a: Floats, b: Floats) -> Floats:
        """Log probability that the table of items has an item of this size."""
        return np.zeros(np.broadcast(size, a, b).shape)

    @property
    def complete(self) -> "Family":
        """The family of all items, where this one's are those of 1 or more."""
        from . import family_of_kind

        return family_of_kind(self.outcome.kind)

    @abstractmethod
    def below(self, y: Floats, size: Floats, a: Floats, b: Floats) -> Floats:
        """P(Y < y)."""

    def cdf_interval(
        self, y: Floats, size: Floats, location: Floats, dispersion: Floats
    ) -> Pair:
        """P(Y < y) and P(Y <= y) of outcomes (n,) under curves (draws, n)."""
        a, b = self.to_parameters(location, dispersion)
        if not self.outcome.whole:
            upto = self.below(y, size, a, b)
            return upto, upto
        upto = self.below(y + 1.0, size, a, b)
        return np.maximum(upto - np.exp(self.log_marginal(y, size, a, b)), 0.0), upto

    @abstractmethod
    def simulate(self, a: Floats, b: Floats, size: Floats, rng: Generator) -> Floats:
        """Outcomes of new items."""

    # --- further outcomes of mixtures of components (K, n), or (K, 1, n) for a grid of outcomes

    @abstractmethod
    def outcome_moments(self, a: Floats, b: Floats, size: Floats) -> Triple:
        """Mean and sd of outcomes on their scale, and reach of the upper tail beyond a Normal's."""

    def further_log_density(
        self, y: Floats, size: Floats, a: Floats, b: Floats
    ) -> Floats:
        """Log density of an outcome, up to what all components share."""
        return self.log_marginal(y, size, a, b)

    def gained(
        self, least: Floats, size: Floats, a: Floats, b: Floats, cut: Floats
    ) -> Pair:
        """E[cut - theta] over outcomes below `least`, and E[theta - cut] over the others."""
        shapes = a, a + self.theta_power
        plain, weighted = (self.below(least, size, shape, b) for shape in shapes)
        mean = self.mean(a, b)
        rise = mean * (1.0 - weighted) - cut * (1.0 - plain)
        return cut * plain - mean * weighted, rise
