"""Numbers about all items: how good the score is, and how much outcomes add."""

from dataclasses import dataclass

import xarray as xr

from ..data.statistics import Statistics
from ..evaluate import quantities
from ..inference.results import Fit
from ..posterior.predictive import Posterior
from .words import central, percent

__all__ = ["Measure", "measured"]


@dataclass(frozen=True)
class Measure:
    """A share with its posterior.

    Attributes
    ----------
    name
        What it is.
    low, middle, high
        Its central interval and its median.
    words
        What it says, with a place for the number.
    """

    name: str
    low: float
    middle: float
    high: float
    words: str

    def sentence(self, interval: bool) -> str:
        """What it says, with its number and perhaps its interval."""
        ends = f" (90% interval {percent(self.low)} to {percent(self.high)})" if interval else ""
        return self.words.format(percent(self.middle) + ends)


def measured(
    fit: Fit, law: Posterior, stats: Statistics, progress: bool
) -> tuple[tuple[Measure, ...], xr.Dataset]:
    """The measures, and the variance that outcomes leave by bin of the score.

    Parameters
    ----------
    fit, law
        The fit and its law.
    stats
        Statistics of the items, with joint cells for a mixture.
    progress
        Whether to show progress on standard error.
    """
    explained = quantities.r_squared(fit, stats)
    left = quantities.variance_reduction(fit, stats, weight="items", progress=progress)
    share = quantities.shrinkage(fit, stats, weight="items", progress=progress)["share"]
    outcomes, own = ("counts", "own rate") if law.outcome.whole else ("values", "own value")
    found = [
        (
            "R-squared of the score",
            explained,
            "The score, once calibrated, explains {} of how theta varies among items; the rest "
            "varies among items of equal scores.",
        ),
        (
            "Error that outcomes take away",
            1 - left["ratio"],
            f"The items' own {outcomes} take away {{}} of the mean squared error that the "
            "calibrated score has by itself.",
        ),
        (
            "Share of the score in estimates",
            share,
            f"On average an item's estimate is {{}} what its score says and the rest its {own}.",
        ),
    ]
    measures = []
    for name, draws, sentence in found:
        low, middle, high = central(draws)
        measures.append(Measure(name, low, middle, high, sentence))
    return tuple(measures), left
