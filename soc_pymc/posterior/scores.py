"""Scores of bins, by group where groups are apart, and warnings of scores that a fit never saw."""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from .._lib.arrays import Floats, Ints
from .._lib.errors import ItemsWarning, warn_user
from ..data.statistics import Statistics
from ..families.scales import RANK, SCORE_WEIGHT, Scale
from ..fits.curves import Curves

# allowed distance of scores, as a share of the range of the fit's on the mean's axis
_MARGIN = 0.1
_FAR = "far outside those that the fit saw"


@dataclass(frozen=True, eq=False)
class BinPositions:
    """Occupied bins with the positions of their items on a scale."""

    by_group: bool  # false if groups are pooled, whose codes are then 0
    group: Ints  # codes of groups
    bin: Ints  # numbers of bins, increasing within a group
    n: Ints
    mean: Floats
    sd: Floats
    low: Floats  # lowest and highest score
    high: Floats

    @staticmethod
    def of(stats: Statistics, scale: Scale, by_group: bool) -> "BinPositions":
        """Read the bins of statistics, of each group or of all together."""
        part = stats.table("part")
        key = part["group"] * by_group * stats.bins + part["bin"]
        ways = dict.fromkeys(("n", SCORE_WEIGHT, *scale.sums), "sum")
        ways |= {"score_min": "min", "score_max": "max"}
        bins = pd.DataFrame(part).groupby(key).agg(ways)
        sums = {name: bins[name].to_numpy() for name in ways}
        mean, variance = scale.moments(sums)
        group, number = np.divmod(bins.index.to_numpy(), stats.bins)
        return BinPositions(
            by_group=by_group, group=group, bin=number, n=sums["n"], mean=mean,
            sd=np.sqrt(np.nan_to_num(variance)),
            low=sums["score_min"], high=sums["score_max"],
        )  # fmt: skip

    def rows(self, table: Mapping[str, Ints]) -> NDArray[np.intp]:
        """Return which of these bins each row of a table of statistics is of."""
        bins = int(self.bin.max()) + 1
        key = table["group"] * self.by_group * bins + table["bin"]
        return np.searchsorted(self.group * bins + self.bin, key)


@dataclass(frozen=True, eq=False)
class BinScores:
    """Occupied bins, by group if the statistics have groups."""

    positions: BinPositions
    score: Floats  # mean scores
    spread: Floats  # variances of the location over a bin's items
    # of their groups, if the curves have groups
    labels: NDArray[np.object_] | None

    def columns(self, table: Mapping[str, Ints]) -> dict[str, NDArray[Any]]:
        """Return the score, and any group, of each row of a table of statistics."""
        row = self.positions.rows(table)
        group = {} if self.labels is None else {"group": self.labels[row]}
        return {"score": self.score[row], **group}


def bin_scores_of(curves: Curves, stats: Statistics) -> BinScores:
    """Mean scores of bins, and the variance of theta by their spread."""
    scale = curves.axis("mean").local
    bins = BinPositions.of(stats, scale, bool(stats.groups))
    labels = np.array(stats.groups, dtype=object)[bins.group] if curves.groups else None
    # a term in exposure shifts the whole curve of a bin, so any exposure will do
    size = np.ones(len(bins.mean))
    below, above = (
        curves.average(scale.score(bins.mean + side * bins.sd), labels, size)[0]
        for side in (-0.5, 0.5)
    )
    # where all items of a bin have the score of an atom, the mean score is not rounded
    on_atom = (bins.low == bins.high) & (curves.atom(bins.low) > 0)
    score = np.where(on_atom, bins.low, scale.score(bins.mean))
    return BinScores(bins, score, (above - below) ** 2, labels)


class Extrapolation:
    """Counts scores far outside those of a fit, batch by batch; `what` of them, with the verb."""

    def __init__(self, curves: Curves, what: str = "items have scores") -> None:
        self._curves = curves
        self._what = what
        self._total = 0
        self._far = 0
        # of the scores that are far
        self._outer = np.array([np.inf, -np.inf])
        self._range = self._allowed = np.array([-np.inf, np.inf])
        # false if all scores of the fit are atoms
        self._of_curve = True
        bins = curves.bins
        if "score_min" not in bins:  # curves without a range of scores
            return
        not_atoms = curves.atom(bins["score"].to_numpy()) == 0
        self._of_curve = bool(not_atoms.any())
        low, high = (
            bins[name].to_numpy()[not_atoms | (not self._of_curve)]
            for name in ("score_min", "score_max")
        )
        self._range = np.array([low.min(), high.max()])
        if not self._of_curve:
            self._allowed = np.array([np.inf, -np.inf])
            return
        # ranks end at the fit's scores, so distances are measured on the scores' own scale
        scale = curves.axis("mean").local
        ends = scale.checked(self._range)
        self._allowed = scale.score(
            ends + _MARGIN * np.ptp(ends) * np.array([-1.0, 1.0])
        )

    def count(
        self, score: ArrayLike, highest: ArrayLike | None = None
    ) -> "Extrapolation":
        """Count further scores, or ranges of scores."""
        low = np.asarray(score, dtype=float)
        high = low if highest is None else np.asarray(highest, dtype=float)
        outside = (low < self._allowed[0]) | (high > self._allowed[1])
        if outside.any():  # the fit knows its atoms, however far they are
            outside &= self._curves.atom(np.where(low == high, low, np.nan)) == 0
        self._total = self._total + low.size
        self._far = self._far + int(outside.sum())
        self._outer[0] = low.min(where=outside, initial=self._outer[0])
        self._outer[1] = high.max(where=outside, initial=self._outer[1])
        return self

    def message(self) -> str | None:
        """Return the warning's text; None if no scores are far."""
        if not self._far:
            return None
        rule = (
            "the curves continue as straight lines there, kept between 1e-100 and 1e100"
        )
        prior = self._curves.prior
        if {prior.mean.scale, prior.variance.scale} == {RANK}:
            rule = "they count as the outermost scores of the fit"
        if not self._of_curve:
            rule = "they get the average of the fit's scores"
        least, most, low, high = (
            f"{score:.6g}" for score in (*self._outer, *self._range)
        )
        span = least if least == most else f"{least} to {most}"
        return (
            f"{self._far:,} of {self._total:,} {self._what} {_FAR} ({low} to {high}; these: "
            f"{span}): {rule}, which no item supports; fit items with such scores too, or leave "
            "these out"
        )

    def warn(self) -> None:
        """Warn if any scores are far."""
        if text := self.message():
            warn_user(text, ItemsWarning)


@contextmanager
def extrapolation_reported() -> Iterator[None]:
    """Leave reports of extrapolation inside this block to the caller, once for all items."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", f".* {_FAR} ", ItemsWarning)
        yield


def warn_of_extrapolation(
    curves: Curves,
    score: ArrayLike,
    what: str = "items have scores",
    highest: ArrayLike | None = None,
) -> None:
    """Warn of scores (or ranges) far outside those of a fit; `what` includes the verb."""
    Extrapolation(curves, what).count(score, highest).warn()


def warn_of_extrapolated_bins(curves: Curves, stats: Statistics) -> None:
    """Warn of bins with scores far outside those of a fit."""
    low, high = (stats.data[name].to_numpy() for name in ("score_min", "score_max"))
    filled = ~np.isnan(low)  # bins without items have no scores
    warn_of_extrapolation(
        curves, low[filled], "bins of the statistics hold scores", high[filled]
    )
