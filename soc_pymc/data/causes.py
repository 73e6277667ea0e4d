"""Causes of outcomes that vary less than their noise allows, with what speaks for each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .._lib.arrays import Floats, Ints, equal_parts
from ..families.family import Outcome
from .items import Items, Roles, columns_of
from .sources import batches, kind_of, number_columns, opened

_MOST_ROWS = 20_000  # that are read
_PART = 5  # items of about one score
# factor between squared residuals over noise variances of thirds of the noise sds that are alike,
# beside chance, whose logarithm is this over the root of the items; and bounds of their mean where
# noise sds are right
_ALIKE = 2.0
_CHANCE = 7.0
_HARDLY = 1e-6
_HALF = 0.5  # share of the noise variance that means of two observations have
_LEAST = 0.5
_MOST = 10.0
# nats that a column of numbers of observations gains over one number for all
_GAIN = 2.0
_SHARES = np.geomspace(1e-4, 1.0, 60)  # of noise variances
# variances of theta, in those of values
_SPREADS = np.append(0.0, np.geomspace(1e-3, 1.0, 30))
_HUNDRED = 100.0
_SURE = 2.0  # sds by which a ratio falls short, where a test has failed
_FEWEST = 1e-3  # events of an item, of which fewer are as these


@dataclass(frozen=True, eq=False)
class Evidence:
    """The first rows of items with information, and their further numbers by column."""

    outcome: Outcome
    roles: Roles
    score: Floats
    y: Floats
    size: Floats
    numbers: Mapping[str, Floats]

    @classmethod
    def of(cls, items: Items) -> "Evidence":
        """Read rows of items."""
        outcome = items.outcome
        roles = items.roles
        source = items.source
        df = roles.get("noise_df")  # one less than observations
        outcome_columns = set(roles.values()) - {df}
        others = [x for x in number_columns(source) if x not in outcome_columns]
        columns = list(dict.fromkeys([*roles.columns, *others]))
        table = opened(source, columns, hold=False)
        if kind_of(source) == "ibis":
            table = table.limit(_MOST_ROWS)
        rows = next(batches(table, size=_MOST_ROWS, source=source))
        score, y, size = columns_of(rows, roles.only(*outcome.bounds)).values()
        known = np.isfinite(outcome.estimate(y, size))
        numbers = {
            name: np.asarray(rows[name], dtype=float)[known] + (name == df)
            for name in others
        }
        return cls(outcome, roles, score[known], y[known], size[known], numbers=numbers)

    @cached_property
    def part(self) -> Ints:
        """Number of the part of the scores that each item is in."""
        return equal_parts(self.score, max(1, len(self.y) // _PART))

    @cached_property
    def pooled(self) -> Floats:
        """Estimates of theta from all items of about the same score."""
        items = np.ones(len(self.y))
        theta, _ = self.outcome.pooled_estimates(self.y, self.size, items, self.part)
        return theta[self.part]

    @cached_property
    def residual(self) -> Floats:
        """Estimates of theta less those of about the same score, as variable as without these."""
        weight = np.ones_like(self.y) if self.outcome.direct else self.size
        leverage = weight / np.bincount(self.part, weight)[self.part]
        estimate = self.outcome.estimate(self.y, self.size)
        return (estimate - self.pooled) / np.sqrt(
            np.where(leverage < 1.0, 1.0 - leverage, 1.0)
        )

    @cached_property
    def noise(self) -> Floats:
        """Noise variances of these estimates."""
        if self.outcome.direct:
            return self.size**2
        return self.outcome.noise(self.pooled) / self.size

    @cached_property
    def ratio(self) -> float:
        """Mean of squared residuals over noise variances: 1 or more if noise is right."""
        known = self.noise > 0
        return float(np.mean(self.residual[known] ** 2 / self.noise[known]))

    @property
    def tight(self) -> bool:
        """True if residuals are smaller than noise makes them, which explains a failed test."""
        events = np.inf if self.outcome.direct else self.size * self.noise * self.size
        variance = np.mean(2.0 + 1.0 / np.maximum(events, _FEWEST))
        return self.ratio < 1.0 - _SURE * np.sqrt(variance / len(self.y))

    def log_likelihood(self, noise: Floats) -> float:
        """Log likelihood of residuals, at the best variance of theta beside that of their noise."""
        total = self.residual.var() * _SPREADS[:, None] + noise
        return float(
            -0.5 * (np.log(total) + self.residual**2 / total).sum(axis=1).min()
        )


@dataclass(frozen=True)
class Cause:
    """One cause: its evidence, in words that end the sentence, and its remedy."""

    speaks: Callable[[Evidence], str]  # empty without evidence
    remedy: str
    doubted: bool = False  # scores that saw the outcomes look alike


def _noise_of_column(rows: Evidence) -> str:
    """Evidence for a column of numbers of observations whose square root divides noise sds."""
    if not rows.outcome.direct:
        return ""
    constant = max(rows.log_likelihood(share * rows.noise) for share in _SHARES)
    gains = {
        name: rows.log_likelihood(rows.noise / number) - constant
        for name, number in rows.numbers.items()
        if (number == np.floor(number)).all() and number.min() > 1
        and _LEAST < rows.ratio * number.mean() < _MOST
    }  # fmt: skip
    for name, gain in sorted(gains.items(), key=lambda pair: -pair[1]):
        if gain > (_GAIN if np.ptp(rows.numbers[name]) else -_GAIN):
            return f"they vary as means of as many observations as column {name!r} says"
    return ""


def _noise_alike(rows: Evidence) -> str:
    """Evidence for noise sds that are too large by one factor."""
    if not rows.outcome.direct or not _HARDLY < rows.ratio < _HALF:
        return ""
    third = equal_parts(rows.size, 3)
    shares = np.bincount(third, rows.residual**2) / np.bincount(third, rows.noise)
    by_chance = np.exp(_CHANCE / np.sqrt(len(third)))
    factor = shares.max() / shares.min()
    if rows.roles.has_score and (len(shares) < 3 or factor > _ALIKE * by_chance):
        return ""
    return (
        f"they vary as means of about {1 / rows.ratio:,.0f} observations of that noise"
    )


def _per_hundred(rows: Evidence) -> str:
    size = float(rows.size[0])
    if not rows.outcome.whole or (rows.size != size).any():
        return ""
    words = rows.outcome.words
    if size >= _HUNDRED and np.log10(size) % 1 == 0:
        return f"all {words.sizes} are {size:,.0f}, as of rates per {size:,.0f}"
    if size == 1 and _HUNDRED / 10 < rows.y.max() <= _HUNDRED:
        return f"all {words.sizes} are 1 and no {words.outcome} is above 100, as of percentages"
    return ""


def _repeated(rows: Evidence) -> str:
    if "weight" not in rows.roles or rows.tight:  # the rows themselves
        return ""
    words = rows.outcome.words
    return (
        f"column {rows.roles['weight']!r} repeats {words.outcomes} too often for chance"
    )


def _seen_outcomes(rows: Evidence) -> str:
    if not rows.roles.has_score:
        return ""
    doubt = rows.outcome.words.overstated
    aside = f" (or {doubt})" if doubt else ""
    return f"the scores probably saw the very outcomes they are to be calibrated with{aside}"


_STANDARD_ERRORS = (
    "If noise sds are of single observations, divide them by the square root of the number of "
    "observations."
)
# causes in the order in which they are tried
CAUSES = (
    Cause(_noise_of_column, _STANDARD_ERRORS),
    Cause(_noise_alike, _STANDARD_ERRORS, doubted=True),
    Cause(
        _per_hundred,
        "If they are rates, give the numbers of events behind them, with their own {sizes}.",
        doubted=True,
    ),
    Cause(_repeated, "Leave out weight= if each row is one item."),
    Cause(
        _seen_outcomes,
        "Posteriors would use each outcome twice, the variance curve would collapse to 0 and "
        "intervals be far too narrow. Score every item by a model trained without it: split the "
        "items into folds and score each by a model trained on the others, or on earlier data.",
    ),
    Cause(
        lambda rows: "they do not have this noise",
        "See how they were made: events that exclude each other, upper limits, or {sizes} that are "
        "too large.",
    ),
)


def cause_of(rows: Evidence) -> str:
    """Evidence for the first cause that has any, and the remedy."""
    for cause in CAUSES:
        if evidence := cause.speaks(rows):
            otherwise = ""
            if rows.roles.has_score and cause.doubted:
                otherwise = " Otherwise the scores probably saw the outcomes."
            remedy = cause.remedy.format(sizes=rows.outcome.words.sizes)
            return f"{evidence}. {remedy}{otherwise}"
    raise AssertionError("the last cause needs no evidence")
