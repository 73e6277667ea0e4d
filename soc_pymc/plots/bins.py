"""How fine bins are: the range of scores inside them, and what other numbers of them would do."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from ..errors import FitError, StatisticsError
from ..results import Fit
from ..statistics import Statistics
from .style import BLUE, draw_dots, draw_floor, log_or_linear, number_of, tidy

__all__ = ["plot_bin_spread"]

Floats = NDArray[np.float64]

_ROUNDING = 1e-12  # of the mean square: variances below it are 0 to the sums' precision


def plot_bin_spread(source: Statistics | Fit, ax: Axes | None = None) -> Axes:
    """Draw the standard deviation of the score inside each bin: of log t, where all t are positive.

    Bins are narrow enough where it is far below the sd of theta given t, or of its logarithm. The
    outer bins are open and so often the widest.

    Parameters
    ----------
    source
        Statistics, or a fit, which keeps the spread of its bins.
    ax
        Axes to draw in; None makes a figure.

    Raises
    ------
    StatisticsError
        If there are no items.
    FitError
        If the fit was made by a version that did not keep the spread.

    Notes
    -----
    Section 5.1 of Muralidharan and Najmi.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> frame = soc.simulation.s1(2000, seed=0)
    >>> items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    >>> soc.plots.plot_bin_spread(soc.summarize(items, progress=False)).get_ylabel()
    'Sd(log t) inside the bin'
    """
    score, spread, items, log = _of_fit(source) if isinstance(source, Fit) else _of_sums(source)
    if ax is None:
        _, ax = plt.subplots(figsize=(7, 4.2), layout="constrained")
    seen = spread > 0
    label = f"bins (median {np.median(spread):.2g})"
    draw_dots(ax, score[seen], spread[seen], BLUE, label)
    draw_floor(ax, score[~seen], "bins with one score only")
    if seen.any():
        log_or_linear(ax.yaxis, spread[seen])
    log_or_linear(ax.xaxis, score)
    what = "log t" if log else "t"
    held = f"{int(items.sum()):,} items in {number_of(len(score), 'bin')}"
    ax.set_title(f"Range of scores inside bins ({held})", fontsize=10, loc="left")
    ax.set_ylabel(f"Sd({what}) inside the bin")
    ax.set_xlabel("score t")
    ax.legend(frameon=False, fontsize=8)
    tidy(ax)
    return ax


def _of_sums(stats: Statistics) -> tuple[Floats, Floats, Floats, bool]:
    """Mean score, sd and items of occupied bins, and whether they are of log t."""
    data = stats.data
    used = data["n"].to_numpy() > 0
    if not used.any():
        raise StatisticsError("the statistics hold no items: there are no bins to draw")
    items = data["n"].to_numpy()[used].astype(float)
    mean = data["sum_t"].to_numpy()[used] / items
    log_mean = data["sum_log_t"].to_numpy()[used] / items
    log = bool(np.isfinite(log_mean).all())
    if log:
        square = data["sum_log_t2"].to_numpy()[used] / items
        return np.exp(log_mean), _sd(log_mean, square), items, log
    return mean, _sd(mean, data["sum_t2"].to_numpy()[used] / items), items, log


def _sd(mean: Floats, square: Floats) -> Floats:
    variance = square - mean**2
    return np.sqrt(np.where(variance > _ROUNDING * square, variance, 0.0))


def _of_fit(fit: Fit) -> tuple[Floats, Floats, Floats, bool]:
    bins = fit.data["constant_data"]
    if "score_sd" not in bins:
        raise FitError(
            "the fit does not hold the spread of scores in its bins: give the statistics that made "
            "it, or fit them again"
        )
    spread = bins["log_score_sd"].to_numpy()
    log = bool(np.isfinite(spread).all())
    spread = spread if log else bins["score_sd"].to_numpy()
    return bins["score"].to_numpy(), spread, bins["n_items"].to_numpy().astype(float), log
