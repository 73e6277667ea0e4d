"""Kinds of outcomes: roles of columns, sums, and words for messages."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any, Literal, NamedTuple

import numpy as np

from .._lib.arrays import Floats, Ints
from .._lib.errors import StatisticsError
from .count_forms import BINOMIAL_FORMS, POISSON_FORMS
from .kinds import OutcomeForms, Pair
from .scales import (
    EXACT_COUNTS,
    LARGEST_COUNT,
    LARGEST_VALUE,
    LEAST_SD,
    LINEAR,
    LOG,
    LOGIT,
    STEPS,
    ZERO_EXPOSURE,
    Bounds,
    Cell,
    Scale,
)
from .value_forms import NORMAL_FORMS

_ALIKE = 3.0  # scores within this factor of the outcomes count as estimates of theta
_PART_KEYS = ("group", "fold", "bin")
_SCORES = ("score_min", "score_max", *LINEAR.sums, *LOG.sums)


_SCORE_BOUNDS = Bounds("scores must be finite numbers")


@dataclass(frozen=True)
class Validity:
    """Rules for valid items of one kind."""

    outcome: Bounds
    size: Bounds
    # f(y, x), true if outcome and size exclude each other, in operators for arrays and for columns
    # of engines
    conflict: Callable[[Any, Any], Any] | None = None
    conflict_words: str = (
        ""  # description of such an outcome; {size} is the size's column
    )
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


_SUMS = {
    "sum_s2": Sum(0, 1),
    "sum_y_log_N": Sum(1, 0, "log"),
    "above": Sum(1, 0, "above"),
}


def sum_of(name: str) -> Sum | None:
    """Summand of a column by its name, such as "sum_yN2"; None for columns of scores alone."""
    if not (product := re.fullmatch(r"sum_((?:[yNwz]\d?)+)", name)):
        return _SUMS.get(name)
    powers = {
        letter: int(digit or 1) for letter, digit in re.findall(r"(.)(\d?)", product[1])
    }
    size = powers.get("N", 0) + powers.get("w", 0)
    return Sum(powers.get("y", 0), size, complement=powers.get("z", 0))


@dataclass(frozen=True, eq=False)
class Table:
    """One table of sums."""

    keys: tuple[str, ...]  # columns of keys, unique to a row
    reals: tuple[
        str, ...
    ]  # columns of real sums (score_min and score_max are extremes)
    cells: Mapping[str, Cell]  # cells that identify rows, by column of keys


@dataclass(frozen=True)
class Words:
    """Words for one kind in checks, pictures and the report."""

    items: str  # items: "counts in exposures"
    outcome: str  # one outcome and several: "count", "counts"
    outcomes: str
    size: str  # the size that determines the precision of an outcome: "exposure", "noise sd"
    sizes: str
    theta: str  # an item's theta: "rate"
    estimate: str  # an item's outcome as an estimate of its theta: "own rate"
    unit: str  # of theta, with placeholders for the columns {outcome} and {size}
    text: str  # an item's outcome, as the second half of a sentence
    further: (
        str  # one further observation, with placeholders for its {amount} and {size}
    )
    worth: str  # heading for the items whose further observation is worth most
    events: str  # name of unnamed outcomes in units and totals
    noise: str  # noise of outcomes about theta
    leak: str  # meaning of too little variation of outcomes around their scores, {z}
    doubt: str = ""  # what a check says of doubts about the noise, {width} of intervals without it
    unfit: str = "an event"  # what a bin without an estimate lacks


def _rate(y: Floats, size: Floats) -> Floats:
    return np.divide(y, size, out=np.full(len(y), np.nan), where=size > 0)


@dataclass(frozen=True, eq=False, kw_only=True)
class Outcome:
    """One kind of outcome, with its tables of sums; defaults are those of counts and successes."""

    kind: str
    observed: str  # role of the outcome
    size: str  # role of the size
    theta: Scale  # on which theta and its mean are compared, averaged and banded
    words: Words
    validity: Validity
    tables: Mapping[str, Table]  # first "part", last "joint", which is optional
    describe: Callable[
        [int, Mapping[str, Any]], str
    ]  # items and totals of columns, in words
    # (outcomes, sizes, items, group of each) of bins -> estimates of theta and their standard
    # errors from noise alone, by group
    pooled: Callable[[Floats, Floats, Floats, Ints], Pair]
    forms: OutcomeForms  # functions only of outcomes
    whole: bool = (
        True  # outcomes are whole numbers, with step functions as predictive cdfs
    )
    positive: bool = True  # theta is positive, with logarithmic curves and pictures
    relative: bool = False  # the spread of theta is reported as a share of its mean
    direct: bool = False  # an outcome is itself the estimate of theta
    sizes_add: bool = (
        True  # a larger size is more informative, and means are over units of size
    )
    size_power: int = 1  # of the size in sums: N of counts, s^2 of values
    integers: tuple[str, ...] = (
        "n",
        "sum_y",
    )  # columns of whole numbers of every table
    # widths of cells; statistics with other cells cannot be added
    grid: str = f"counts exact below {EXACT_COUNTS}, {1 << STEPS} cells an octave"
    usual_size: float | None = (
        1.0  # default size of an outcome; None if it must be given
    )
    no_information: float = 0.0  # size of an uninformative outcome
    ends: tuple[float, ...] = ()  # scores that are atoms however few items have them
    # (outcome, size) -> each item's own estimate of theta; NaN without information
    estimate: Callable[[Floats, Floats], Floats] = _rate
    # sums of the table "part" -> size and outcome that represent each bin
    of_bins: Callable[[Mapping[str, Any]], Pair] = itemgetter("sum_N", "sum_y")

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

    def reads_theta(self, score: Floats, outcome: Floats, size: Floats) -> bool:
        """Return True if scores of bins are estimates of a positive theta, within a factor of 3."""
        if (
            not self.positive
            or score.min() < self.theta.low
            or score.max() > self.theta.high
        ):
            return False
        mean, estimate = (
            self.theta.position(total / size.sum())
            for total in ((score * size).sum(), outcome.sum())
        )
        return bool(
            np.isfinite(mean + estimate) and abs(mean - estimate) < np.log(_ALIKE)
        )

    def sums(self, name: str) -> tuple[str, ...]:
        """Columns of a table without keys: whole numbers, then real sums."""
        return (*self.integers, *self.tables[name].reals)

    def columns(self, name: str) -> tuple[str, ...]:
        """Every column of a table: keys, whole numbers, real sums."""
        return (*self.tables[name].keys, *self.sums(name))

    def reals(self, names: Sequence[str]) -> tuple[str, ...]:
        """Real sums of some tables, each once."""
        return tuple(
            dict.fromkeys(real for name in names for real in self.tables[name].reals)
        )

    def check_table(self, name: str) -> None:
        """Refuse a name that is not a table of this kind."""
        if not isinstance(name, str) or name not in self.tables:
            known = ", ".join(map(repr, self.tables))
            raise StatisticsError(
                f"statistics of {self.kind} items have no table {name!r}, but {known}"
            )


def _margin(cell: Cell, reals: tuple[str, ...]) -> Table:
    return Table((*_PART_KEYS, "cell"), reals, {"cell": cell})


def _joint(*cells: Cell, reals: tuple[str, ...]) -> Table:
    by_name = {cell.name: cell for cell in cells}
    return Table(("group", "bin", *by_name), tuple(dict.fromkeys(reals)), by_name)


# --- counts y ~ Poisson(theta N) -----------------------------------------------------------------

_EXPOSURES = Cell("exposure_cell", "size", "exposure", 16, ZERO_EXPOSURE)
_COUNTS = Cell("count_cell", "outcome", "count", 11, 0)
_EXPOSURE = "sum_N", "sum_N2", "sum_N3", "sum_y2", "sum_yN", "sum_yN2", "sum_yN3"


def _pooled_rates(
    y: Floats, size: Floats, items: Floats, group: Ints, trials: bool = False
) -> Pair:
    total = np.bincount(group, y)
    amount = np.bincount(group, size)
    rate = _rate(total, amount)
    variance = total * (1.0 - rate) if trials else total
    return rate, _rate(np.sqrt(variance), amount)


_POISSON = Outcome(
    kind="poisson",
    observed="count",
    size="exposure",
    theta=LOG,
    relative=True,
    words=Words(
        "counts in exposures",
        "count",
        "counts",
        "exposure",
        "exposures",
        "rate",
        "own rate",
        unit="{outcome} per unit of {size}",
        text="a number of events in a known exposure, which is its true rate theta seen with noise",
        further="{amount} more units of {size}",
        worth="Items that deserve more exposure",
        events="events",
        noise="Poisson noise",
        doubt="These counts look like successes in trials, whose noise is smaller than Poisson "
        "noise: item intervals should be {width:.2f} times as wide. Use soc.BinomialItems("
        "..., successes=, trials=), or ignore this if counts can exceed their exposures.",
        leak="counts vary far less around their scores than Poisson noise allows (z = {z:.1f}): "
        "the scores probably saw the very counts they are to be calibrated with (or the counts "
        "are not counts of independent events).",
    ),
    validity=Validity(
        Bounds("counts must be whole numbers >= 0", LARGEST_COUNT, 0.0, True),
        Bounds("exposures must be finite numbers >= 0", least=0.0),
        lambda y, size: (y > 0) & (size == 0),
        "positive where column {size!r} is 0",
    ),
    tables={
        "part": Table(_PART_KEYS, ("sum_N", *_SCORES, "sum_y_log_N", "above"), {}),
        "exposure": _margin(_EXPOSURES, _EXPOSURE),
        "count": _margin(_COUNTS, ("sum_y2", "sum_y3")),
        "joint": _joint(_EXPOSURES, _COUNTS, reals=(*_EXPOSURE, "sum_y3")),
    },
    pooled=_pooled_rates,
    forms=POISSON_FORMS,
    describe=lambda _, sums: (
        f"{int(sums['sum_y']):,} counts in exposure {float(sums['sum_N']):,.6g}"
    ),
)

# --- values y ~ Normal(theta, s^2), w = s^2 ------------------------------------------------------

_NOISES = Cell("noise_cell", "size", "noise", 12, -(1 << 11))
_VALUES = Cell("value_cell", "outcome", "value", 26, -(1 << 25))
_NOISE = (
    "sum_y",
    "sum_y2",
    *(f"sum_{y}{w}" for y in ("", "y", "y2") for w in ("w", "w2", "w3")),
)
_VALUE = "sum_y", "sum_y2", "sum_y3", "sum_w", "sum_w2"


def _pooled_values(value: Floats, noise_sd: Floats, items: Floats, group: Ints) -> Pair:
    n = np.bincount(group, items)
    noise = np.sqrt(np.bincount(group, items * noise_sd**2))
    return np.bincount(group, items * value) / n, noise / n


_NORMAL = Outcome(
    kind="normal",
    observed="value",
    size="noise_sd",
    whole=False,
    theta=LINEAR,
    positive=False,
    direct=True,
    words=Words(
        "values with known noise",
        "value",
        "values",
        "noise sd",
        "noise sds",
        "value",
        "own value",
        unit="in the unit of {outcome}",
        text="a value, which is its true theta seen with noise of known size",
        further="one further value with a noise sd of {amount}",
        worth="Items worth another look",
        events="the values",
        noise="noise",
        doubt="The noise sds seem to be computed from the values themselves, as those of shares "
        "or rates often are: a value that is too low by chance then counts for too much, and a "
        "tenth of the item intervals are off by a factor of {width:.2f} or more. Use "
        "soc.BinomialItems or soc.PoissonItems, or values on a scale on which the noise does not "
        "depend on theta, such as arcsin(sqrt(share)) with noise sd 0.5 / sqrt(trials).",
        leak="values vary far less around their scores than their noise sds allow (z = {z:.1f}): "
        "the scores probably saw the very values they are to be calibrated with (or the noise sds "
        "are too large).",
    ),
    validity=Validity(
        Bounds("values must be finite numbers", LARGEST_VALUE, negligible=LEAST_SD),
        Bounds("noise sds must be finite numbers > 0", LARGEST_VALUE, LEAST_SD),
    ),
    size_power=2,
    integers=("n",),
    tables={
        "part": Table(_PART_KEYS, ("sum_y", "sum_y2", "sum_s2", *_SCORES), {}),
        "noise": _margin(_NOISES, _NOISE),
        "joint": _joint(_NOISES, _VALUES, reals=_VALUE),
    },
    grid=f"{1 << STEPS} cells an octave of noise, values in cells of 1/16 to 1/8 of it",
    estimate=lambda value, noise_sd: value,
    of_bins=lambda sums: (
        np.sqrt(sums["sum_s2"] / sums["n"]),
        sums["sum_y"] / sums["n"],
    ),
    usual_size=None,
    no_information=LARGEST_VALUE,
    pooled=_pooled_values,
    sizes_add=False,
    forms=NORMAL_FORMS,
    describe=lambda n, sums: (
        f"values of mean {float(sums['sum_y']) / max(n, 1):,.6g} with noise sd "
        f"{(float(sums['sum_s2']) / max(n, 1)) ** 0.5:,.6g}"
    ),
)

# --- successes y ~ Binomial(n, theta) in n trials, z = n - y failures -----------------------------

_TRIALS = "sum_N", "sum_N2", "sum_N3", "sum_y2", "sum_yN"
_FAILURES = "sum_z", "sum_z2", "sum_z3"
_SUCCESSES = "sum_y2", "sum_y3"
_CELLS = (
    _EXPOSURES._replace(name="trials_cell"),
    Cell("failures_cell", "rest", "count", 11, 0),
    _COUNTS._replace(name="successes_cell"),
)

_BINOMIAL = Outcome(
    kind="binomial",
    observed="successes",
    size="trials",
    theta=LOGIT,
    words=Words(
        "successes in trials",
        "number of successes",
        "successes",
        "trials",
        "trials",
        "success rate",
        "own rate",
        unit="{outcome} per trial ({size})",
        text="a number of successes in known trials, each a success with the item's true "
        "probability theta",
        further="{amount} more trials ({size})",
        worth="Items that deserve more trials",
        events="successes",
        noise="Binomial noise",
        unfit="both a success and a failure",
        leak="successes vary far less around their scores than Binomial noise allows "
        "(z = {z:.1f}): the scores probably saw the very outcomes they are to be calibrated with "
        "(or the trials of an item are not independent).",
    ),
    validity=Validity(
        Bounds(
            "successes must be whole numbers from 0 to the item's trials (true/false are 1 and 0)",
            LARGEST_COUNT,
            0.0,
            True,
            labels=True,
        ),
        Bounds("trials must be whole numbers >= 0", LARGEST_COUNT, 0.0, True),
        lambda y, size: (y > size) & (size >= 0),  # a negative size is wrong by itself
        "above the trials of column {size!r}",
    ),
    tables={
        "part": Table(_PART_KEYS, ("sum_N", *_SCORES, *LOGIT.sums), {}),
        "trials": _margin(_CELLS[0], _TRIALS),
        "failures": _margin(_CELLS[1], _FAILURES),
        "successes": _margin(_CELLS[2], _SUCCESSES),
        "joint": _joint(*_CELLS, reals=(*_TRIALS, *_FAILURES, *_SUCCESSES)),
    },
    grid=f"numbers exact below {EXACT_COUNTS}, {1 << STEPS} cells an octave",
    ends=(0.0, 1.0),  # where the logit is infinite: forests vote as one
    pooled=partial(_pooled_rates, trials=True),
    forms=BINOMIAL_FORMS,
    describe=lambda _, sums: (
        f"{int(sums['sum_y']):,} successes in {float(sums['sum_N']):,.15g} trials"
    ),
)

OUTCOMES: Mapping[str, Outcome] = {
    outcome.kind: outcome for outcome in (_POISSON, _NORMAL, _BINOMIAL)
}
"""Outcomes by kind of items."""
