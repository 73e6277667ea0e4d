"""Kinds of outcomes: roles of columns, what is summed of them, and the words for them.

Kernels, engines, `Statistics`, checks, pictures and the report all read these records, so that a
kind is described once.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._lib.errors import StatisticsError
from .forms import OutcomeForms
from .normal import NORMAL_FORMS
from .poisson import EXACT_COUNTS, POISSON_FORMS, STEPS

__all__ = ["EXACT_COUNTS", "OUTCOMES", "STEPS", "Outcome", "Table", "Words"]

Floats = NDArray[np.float64]

_ALIKE = 3.0  # scores within this factor of the outcomes are estimates of theta
_PART_KEYS = ("group", "fold", "bin")
_SCORES = ("score_min", "score_max", "sum_t", "sum_t2", "sum_log_t", "sum_log_t2")


@dataclass(frozen=True)
class Table:
    """One table of sums.

    Attributes
    ----------
    keys
        Columns of keys, each row's own.
    reals
        Columns of real sums (``score_min`` and ``score_max`` are extremes).
    cells
        The items' cells that rows are kept by, by column of keys.
    """

    keys: tuple[str, ...]
    reals: tuple[str, ...]
    cells: Mapping[str, str]


@dataclass(frozen=True)
class Words:
    """What checks, pictures and the report call things of one kind.

    Attributes
    ----------
    items
        What items are: "counts in exposures".
    outcome, outcomes
        One outcome and several: "count", "counts".
    size, sizes
        What says how precise one is: "exposure", "noise sd".
    theta, thetas
        What is unknown of an item: "rate", "rates".
    own
        An item's outcome as an estimate of its theta: "own rate".
    unit
        Unit of theta, with places for the names of the columns ``{outcome}`` and ``{size}``.
    seen
        What an item's outcome is, as the second half of a sentence.
    further
        One further observation, with places for its ``{amount}`` and the name of its ``{size}``.
    worth
        Heading of a list of the items of which a further observation is worth most.
    events
        What unnamed outcomes are called in units and totals.
    noise
        Noise of outcomes about theta.
    zeros
        Items whose outcome is 0; empty where these are nothing special.
    """

    items: str
    outcome: str
    outcomes: str
    size: str
    sizes: str
    theta: str
    thetas: str
    own: str
    unit: str
    seen: str
    further: str
    worth: str
    events: str
    noise: str
    zeros: str = ""


@dataclass(frozen=True, eq=False)
class Outcome:
    """One kind of outcome, with its tables of sums.

    Attributes
    ----------
    kind
        Name of the kind.
    observed, size
        Roles of the outcome and of what says how precise it is.
    whole
        Whether outcomes are whole numbers, so that their predictive distributions have steps.
    positive
        Whether theta is positive, so that curves and pictures are read in logarithms.
    words
        What things are called.
    integers
        Columns of whole numbers of every table.
    tables
        Tables by name: first ``part``, last ``joint``, which is kept on request only.
    grid
        How wide the cells are; statistics of other cells do not add.
    few_joint
        Whether one bin has few joint cells whatever its items: merging bins then always does.
    estimate
        (outcome, size) -> each item's own estimate of theta; NaN where nothing was seen.
    totals
        Totals of items for people to read: name, role of the column that it adds up (empty for a
        ratio), and its value from the sums of the table ``part``.
    usual_size
        Size of an outcome of which none is given; None where it must be given.
    no_information
        Size of an outcome that says nothing of theta.
    pooled
        (outcomes, sizes, items, group of each) of bins -> estimates of theta and their standard
        errors from noise alone, by group.
    reads_theta
        (scores, outcomes, sizes, items) of bins -> whether scores can be read as estimates of
        theta: right within a factor of 3.
    sizes_add
        Whether sizes add up, so that means can be taken over units of size, and a larger size means
        that an outcome says more of its theta.
    forms
        Functions of outcomes alone.
    """

    kind: str
    observed: str
    size: str
    whole: bool
    positive: bool
    words: Words
    integers: tuple[str, ...]
    tables: Mapping[str, Table]
    grid: str
    few_joint: bool
    estimate: Callable[[Floats, Floats], Floats]
    totals: tuple[tuple[str, str, Callable[[Mapping[str, Any]], Any]], ...]
    usual_size: float | None
    no_information: float
    pooled: Callable[[Floats, Floats, Floats, NDArray[np.intp]], tuple[Floats, Floats]]
    reads_theta: Callable[[Floats, Floats, Floats, Floats], bool]
    sizes_add: bool
    forms: OutcomeForms

    @property
    def direct(self) -> bool:
        """Whether an outcome is itself the estimate of theta, and called so."""
        return self.words.outcome == self.words.theta

    @property
    def dtype(self) -> type:
        """Type of numbers of outcomes."""
        return np.int64 if self.whole else np.float64

    @property
    def margins(self) -> tuple[str, ...]:
        """Names of the tables of cells that are always kept."""
        return tuple(self.tables)[1:-1]

    def sums(self, name: str) -> tuple[str, ...]:
        """Columns of a table that are no keys: whole numbers, then real sums."""
        return (*self.integers, *self.tables[name].reals)

    def columns(self, name: str) -> tuple[str, ...]:
        """Every column of a table: keys, whole numbers, real sums."""
        return (*self.tables[name].keys, *self.sums(name))

    def reals(self, names: Sequence[str]) -> tuple[str, ...]:
        """Real sums of some tables, each once."""
        return tuple(dict.fromkeys(real for name in names for real in self.tables[name].reals))

    def check_joint(self, cells: int, most: int) -> None:
        """Refuse more joint cells than the budget, where all bins were merged already."""
        if cells > most and not self.few_joint:
            sizes = f"{self.size}s".replace("_", " ")
            raise StatisticsError(
                f"there are more than {most:,} joint cells even in a single bin, as "
                f"{self.observed}s are spread over very many {sizes}: allow more by joint=number, "
                "or leave out joint="
            )

    def check_table(self, name: str) -> None:
        """Refuse a name that is no table of this kind."""
        if not isinstance(name, str) or name not in self.tables:
            known = ", ".join(map(repr, self.tables))
            raise StatisticsError(
                f"statistics of {self.kind} items have no table {name!r}, but {known}"
            )


def _margin(cell: str, *reals: str) -> Table:
    return Table((*_PART_KEYS, "cell"), reals, {"cell": cell})


def _joint(size_cell: str, outcome_cell: str, *reals: str) -> Table:
    cells = {name: name for name in (size_cell, outcome_cell)}
    return Table(("group", "bin", *cells), reals, cells)


def _rate(count: Floats, exposure: Floats) -> Floats:
    return np.divide(count, exposure, out=np.full(len(count), np.nan), where=exposure > 0)


def _pooled_rates(
    count: Floats, exposure: Floats, items: Floats, group: NDArray[np.intp]
) -> tuple[Floats, Floats]:
    counts, exposures = np.bincount(group, count), np.bincount(group, exposure)
    return _rate(counts, exposures), _rate(np.sqrt(counts), exposures)


def _scores_are_rates(score: Floats, count: Floats, exposure: Floats, items: Floats) -> bool:
    if score.min() <= 0 or count.sum() <= 0:
        return False
    ratio = float((score * exposure).sum()) / float(count.sum())
    return 1 / _ALIKE < ratio < _ALIKE


def _pooled_values(
    value: Floats, noise_sd: Floats, items: Floats, group: NDArray[np.intp]
) -> tuple[Floats, Floats]:
    n = np.bincount(group, items)
    noise = np.sqrt(np.bincount(group, items * noise_sd**2))
    return np.bincount(group, items * value) / n, noise / n


def _scores_are_values(score: Floats, value: Floats, noise_sd: Floats, items: Floats) -> bool:
    """Whether values have a slope on scores near 1, and like means."""
    mean, level = np.average(score, weights=items), np.average(value, weights=items)
    square = float(np.average((score - mean) ** 2, weights=items))
    if square == 0:
        return False
    slope = float(np.average((score - mean) * (value - level), weights=items)) / square
    return bool(1 / _ALIKE < slope < _ALIKE and abs(mean - level) < _ALIKE * square**0.5)


_EXPOSURE = ("sum_N", "sum_N2", "sum_N3", "sum_y2", "sum_yN", "sum_yN2", "sum_yN3")

_POISSON = Outcome(
    kind="poisson",
    observed="count",
    size="exposure",
    whole=True,
    positive=True,
    words=Words(
        "counts in exposures",
        "count",
        "counts",
        "exposure",
        "exposures",
        "rate",
        "rates",
        "own rate",
        unit="{outcome} per unit of {size}",
        seen="a number of events in a known exposure, which is its true rate theta seen with noise",
        further="{amount} more units of {size}",
        worth="Items that deserve more exposure",
        events="events",
        noise="Poisson noise",
        zeros="Items without events",
    ),
    integers=("n", "sum_y"),
    tables={
        # above: number of items whose count exceeds their exposure
        "part": Table(_PART_KEYS, ("sum_N", *_SCORES, "sum_y_log_N", "above"), {}),
        "exposure": _margin("exposure_cell", *_EXPOSURE),
        "count": _margin("count_cell", "sum_y2", "sum_y3"),
        "joint": _joint("exposure_cell", "count_cell", *_EXPOSURE, "sum_y3"),
    },
    grid=f"counts exact below {EXACT_COUNTS}, {1 << STEPS} cells an octave",
    few_joint=True,
    estimate=_rate,
    totals=(
        ("Events", "count", lambda sums: sums["sum_y"]),
        ("Exposure", "exposure", lambda sums: sums["sum_N"]),
        ("Events per unit of exposure", "", lambda sums: sums["sum_y"] / sums["sum_N"]),
    ),
    usual_size=1.0,
    no_information=0.0,
    pooled=_pooled_rates,
    reads_theta=_scores_are_rates,
    sizes_add=True,
    forms=POISSON_FORMS,
)

# w = noise_sd^2
_NOISE = ("sum_y", "sum_y2", "sum_w", "sum_w2", "sum_w3",
          "sum_yw", "sum_yw2", "sum_yw3", "sum_y2w", "sum_y2w2", "sum_y2w3")  # fmt: skip
_VALUE = ("sum_y", "sum_y2", "sum_y3", "sum_w", "sum_w2")

_NORMAL = Outcome(
    kind="normal",
    observed="value",
    size="noise_sd",
    whole=False,
    positive=False,
    words=Words(
        "values with known noise",
        "value",
        "values",
        "noise sd",
        "noise sds",
        "value",
        "values",
        "own value",
        unit="in the unit of {outcome}",
        seen="a value, which is its true theta seen with noise of known size",
        further="one further value with a noise sd of {amount}",
        worth="Items worth another look",
        events="the values",
        noise="noise",
    ),
    integers=("n",),
    tables={
        "part": Table(_PART_KEYS, ("sum_y", "sum_y2", "sum_s2", *_SCORES), {}),
        "noise": _margin("noise_cell", *_NOISE),
        "joint": _joint("noise_cell", "value_cell", *_VALUE),
    },
    grid=f"{1 << STEPS} cells an octave of noise, values in cells of 1/16 to 1/8 of it",
    few_joint=False,
    estimate=lambda value, noise_sd: value,
    totals=(
        ("Mean value", "", lambda sums: sums["sum_y"] / sums["n"]),
        ("Noise sd, root mean square", "", lambda sums: np.sqrt(sums["sum_s2"] / sums["n"])),
    ),
    usual_size=None,
    no_information=1e35,  # the largest noise sd that is valid
    pooled=_pooled_values,
    reads_theta=_scores_are_values,
    sizes_add=False,
    forms=NORMAL_FORMS,
)

OUTCOMES: Mapping[str, Outcome] = {schema.kind: schema for schema in (_POISSON, _NORMAL)}
"""Schemas by kind of items."""
