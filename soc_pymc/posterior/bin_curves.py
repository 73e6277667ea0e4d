"""Bins of statistics as items: their mean scores, and what the scores' spread does to theta."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..data.statistics import Statistics

__all__ = ["BinScores", "bin_scores"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_SUMS = ("n", "sum_t", "sum_t2", "sum_log_t", "sum_log_t2")


@dataclass(frozen=True)
class BinScores:
    """Occupied bins of every group.

    Attributes
    ----------
    group, bin
        Codes of groups and numbers of bins, rising; the group is 0 where they are pooled.
    score
        Mean scores.
    spread
        Variances of a curve over the items of each bin.
    """

    group: Ints
    bin: Ints
    score: Floats
    spread: Floats

    def place(self, group: Ints, number: Ints) -> NDArray[np.intp]:
        """Where bins of groups are among these."""
        wide = int(self.bin.max()) + 1
        return np.searchsorted(self.group * wide + self.bin, group * wide + number)


def bin_scores(
    stats: Statistics,
    log: bool,
    curve: Callable[[Floats, Ints], Floats],
    *,
    coarse: int = 1,
    by_group: bool = False,
) -> BinScores:
    """Mean scores of occupied bins, and the variance of a curve within each.

    Parameters
    ----------
    stats
        The statistics.
    log
        Whether scores are averaged as logarithms.
    curve
        Values of the curve at scores, of groups by code.
    coarse
        How many bins make one.
    by_group
        Whether every group has bins of its own; else groups are pooled.
    """
    part = stats.table("part")
    group = part["group"] if by_group else np.zeros_like(part["group"])
    wide = -(-stats.bins // coarse)
    key, at = np.unique(group * wide + part["bin"] // coarse, return_inverse=True)
    total = {name: np.bincount(at, part[name], len(key)) for name in _SUMS}
    kind = "sum_log_t" if log else "sum_t"
    mean = total[kind] / total["n"]
    square = total[f"{kind}2"] / total["n"]
    variance = square - mean**2
    # below the rounding of the sums it is that of equal scores, 0
    sd = np.sqrt(np.where(variance > 1e-12 * square, variance, 0.0))
    groups, bins = key // wide, key % wide
    ends = [np.exp(mean + s * sd) if log else mean + s * sd for s in (-0.5, 0.5)]
    below, above = (curve(end, groups) for end in ends)
    return BinScores(groups, bins, np.exp(mean) if log else mean, (above - below) ** 2)
