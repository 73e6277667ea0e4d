"""Bins of statistics as a law sees them: scores, and how much theta's mean varies within bins."""

import numpy as np
from numpy.typing import NDArray

from ..._lib.errors import StatisticsError
from ...data.statistics import Statistics
from ...inference.results import Fit
from ..bin_curves import BinScores, bin_scores
from ._law import Posterior, items_at_once

__all__ = ["bin_scores_of"]

Floats = NDArray[np.float64]


def bin_scores_of(fit: Fit, law: Posterior, stats: Statistics, coarse: int = 1) -> BinScores:
    """Mean scores of bins and the variance of the mean curve (log E(theta|t) for counts) in each.

    Parameters
    ----------
    fit, law
        The fit and its law.
    stats
        Statistics, whose groups have bins of their own.
    coarse
        How many bins make one.

    Raises
    ------
    StatisticsError
        If the fit has groups and the statistics do not.
    """
    labels = np.array(stats.groups, dtype=object)
    if fit.groups and not len(labels):
        raise StatisticsError(
            f"the fit has curves for each of {len(fit.groups):,} groups, and the statistics have "
            "none: summarize the items with group="
        )

    def mean_curve(score: Floats, group: NDArray[np.int64]) -> Floats:
        step, found = items_at_once(fit), np.empty(len(score))
        for start in range(0, len(score), step):
            part = slice(start, start + step)
            own = labels[group[part]] if fit.groups else None
            # a term in exposure moves the curve of a bin as a whole: any exposure will do
            mean = law.curves(score[part], own, np.ones(len(score[part])))["mean"]
            found[part] = (np.log(mean) if law.outcome.whole else mean).mean(axis=0)
        return found

    log = fit.axis("mean").scale == "log"
    return bin_scores(stats, log, mean_curve, coarse=coarse, by_group=bool(len(labels)))
