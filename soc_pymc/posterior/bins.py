"""Scores of the items of a bin: their mean, spread and range, by group where groups are apart."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .._lib.arrays import Floats, Ints
from ..data.statistics import Statistics
from ..families.scales import SCORE_WEIGHT, Scale
from ..fits.curves import Curves


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
        low = sums["score_min"]
        high = sums["score_max"]
        return BinPositions(
            by_group,
            group,
            number,
            sums["n"],
            mean,
            np.sqrt(np.nan_to_num(variance)),
            low,
            high,
        )

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
