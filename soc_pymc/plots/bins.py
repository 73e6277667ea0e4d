"""How fine bins are: the range of scores inside them, and what other numbers of them would do."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import ticker
from matplotlib.axes import Axes
from numpy.typing import NDArray

from .._lib.arguments import A, checked, numbers_of
from .._lib.arrays import Floats
from .._lib.errors import FitError, StatisticsError
from ..data.statistics import Statistics
from ..families.outcomes import OUTCOMES
from ..inference.results import Fit, outcome_roles
from . import canvas
from .arguments import AX, AxesOf, need_columns
from .fitted import score_name

_ROUNDING = 1e-12  # of the mean square: variances below it are 0 to the sums' precision


# a panel's title, and columns of a table of `soc.evaluate.compare_bins` with their look and name
_PANELS: Mapping[str, dict[str, tuple[str, str, str]]] = {
    "Range of scores inside bins": {
        "spread": (canvas.BLUE, "o-", "median bin"),
        "most_spread": (canvas.ORANGE, "s--", "widest bin"),
    },
    "What bins take for variance of theta, or miss": {
        "hidden": (canvas.BLUE, "o-", "Var E(theta | t) inside bins / E Var(theta | t)"),
        "no_variance": (canvas.ORANGE, "s--", "share of bins that find no variance"),
    },
    "Noise of the bins' own estimates": {
        "mean_noise": (canvas.BLUE, "o-", "E(theta | t)"),
        "variance_noise": (canvas.ORANGE, "s-", "log Var(theta | t)"),
    },
    "Distance from curves of the most bins": {
        "five_steps_mean": (canvas.GREEN, "o-", "five steps: E(theta | t)"),
        "five_steps_variance": (canvas.GREEN, "s--", "five steps: log Var(theta | t)"),
        "bayes_mean": (canvas.PURPLE, "o-", "Bayes: E(theta | t)"),
        "bayes_variance": (canvas.PURPLE, "s--", "Bayes: log Var(theta | t)"),
    },
}
_OUGHT = ("spread", "hidden", "mean_noise", "variance_noise", "five_steps_mean")


@checked(axes=AxesOf(len(_PANELS)))
def plot_bin_choice(
    table: pd.DataFrame, axes: Sequence[Axes] | NDArray[Any] | None = None
) -> NDArray[Any]:
    """Draw what few bins hide and many leave to chance, over the number of bins.

    Enough bins: the range of scores and the variance that it hides no longer matter. Not too many:
    the noise of the bins' own estimates stays well below 1, the line in the third panel. Between
    the two the smooth curves do not depend on the number.

    Parameters
    ----------
    table, axes
        From `soc.evaluate.compare_bins`, with two or more numbers of bins; and four axes, or None.

    Returns
    -------
    numpy.ndarray
        The four axes: range of scores, shares of variance, noise, root mean square differences of
        curves over items: of log E(theta | t) (of values, E in sds of theta) and log
        Var(theta | t).

    Examples
    --------
    >>> import soc_pymc as soc
    >>> table = soc.evaluate.compare_bins(items, (5, 20), bayes=False)
    >>> len(soc.plots.plot_bin_choice(table))
    4
    """
    maker = "soc.evaluate.compare_bins"
    need_columns(table, maker, _OUGHT, others=[name for one in _PANELS.values() for name in one])
    wanted = f"numbers of bins: take a table from {maker}"
    numbers_of(table.index.to_numpy(), "the table's index", wanted=wanted)
    if len(table) < 2:
        raise FitError("the table has one number of bins: compare two and more")
    four = canvas.panels_in(axes, (8, 6.6), 2, 2, sharex=True)
    for ax, (title, lines) in zip(four, _PANELS.items(), strict=True):
        _over_bins(ax, title, table, {name: x for name, x in lines.items() if name in table})
    width, share, noise, away = four
    width.set_ylabel("Sd of log t, or of t, inside a bin")
    share.set_ylim(0, 1.35 * share.get_ylim()[1])  # room for the legend
    share.yaxis.set_major_formatter(ticker.PercentFormatter(1.0))
    noise.axhline(1, color=canvas.REFERENCE, linewidth=1, linestyle="--")
    noise.set_ylabel("typical error")
    away.set_ylabel("root mean square difference")
    if away.get_yscale() == "log":
        away.set_ylim(top=10.0 * away.get_ylim()[1])  # room for the legend
    return four


def _over_bins(
    ax: Axes, title: str, table: pd.DataFrame, lines: dict[str, tuple[str, str, str]]
) -> None:
    """One panel: lines over the number of bins."""
    number = table.index.to_numpy(dtype=float)
    shares = "hidden" in lines
    for name, (colour, look, label) in lines.items():
        value = table[name].to_numpy(dtype=float)
        # the most bins differ from themselves by 0, which has no place on a logarithmic axis
        seen = np.isfinite(value) if shares else value > 0
        ax.plot(number[seen], value[seen], look, color=colour, label=label, markersize=4)
    canvas.log_or_linear(ax.xaxis, number)
    ax.set_xticks(number, [f"{n:,.0f}" for n in number], minor=False)
    ax.minorticks_off()
    if not shares:
        canvas.log_or_linear(ax.yaxis, np.concatenate([line.get_ydata() for line in ax.lines]))
    canvas.finish(ax, title, "number of bins", "")


@checked(source=A(Statistics | Fit, "statistics, from soc.summarize, or a fit"), ax=AX)
def plot_bin_spread(source: Statistics | Fit, ax: Axes | None = None) -> Axes:
    """Draw the standard deviation of the score inside each bin: of log t, where all t are positive.

    Bins are narrow enough where it is far below the sd of theta given t, or of its logarithm. The
    outer bins are open and so often the widest.

    Parameters
    ----------
    source, ax
        Statistics, or a fit, which keeps the spread of its bins; and axes, or None for a figure.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    StatisticsError
        If there are no items.
    FitError
        If the fit did not keep the spread of its bins, or an argument is not as above.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> soc.plots.plot_bin_spread(stats).get_ylabel()
    'Sd(log t) inside the bin'
    """
    score, spread, items, log = _of_fit(source) if isinstance(source, Fit) else _of_sums(source)
    ax = canvas.panels_in(ax, (7, 4.2))[0]
    seen, label = spread > 0, f"bins (median {np.median(spread):.2g})"
    canvas.draw_dots(ax, score[seen], spread[seen], canvas.OBSERVED, label)
    canvas.draw_floor(ax, score[~seen], "bins with one score only")
    if seen.any():
        canvas.log_or_linear(ax.yaxis, spread[seen])
    roles = outcome_roles(source.data.attrs)
    if not any(each.observed in roles for each in OUTCOMES.values() if each.direct):
        canvas.log_or_linear(ax.xaxis, score)  # scores of values are no rates
    held = f"{int(items.sum()):,} items in {canvas.number_of(len(score), 'bin')}"
    title, what = f"Range of scores inside bins ({held})", "log t" if log else "t"
    canvas.finish(ax, title, score_name(source), f"Sd({what}) inside the bin")
    return ax


def _of_sums(stats: Statistics) -> tuple[Floats, Floats, Floats, bool]:
    """Mean score, sd and items of occupied bins, and whether they are of log t."""
    data = stats.data.isel(bin=np.flatnonzero(stats.data["n"].to_numpy()))
    if not data.sizes["bin"]:
        raise StatisticsError("the statistics hold no items: there are no bins to draw")
    items = data["n"].to_numpy().astype(float)
    log = bool(np.isfinite(data["sum_log_t"]).all())
    sums = ("sum_log_t", "sum_log_t2") if log else ("sum_t", "sum_t2")
    mean, square = (data[name].to_numpy() / items for name in sums)
    variance = square - mean**2
    sd = np.sqrt(np.where(variance > _ROUNDING * square, variance, 0.0))
    return np.exp(mean) if log else mean, sd, items, log


def _of_fit(fit: Fit) -> tuple[Floats, Floats, Floats, bool]:
    """The same of the bins that a fit keeps."""
    bins = fit.data["constant_data"]
    if "score_sd" not in bins:
        raise FitError(
            "the fit does not hold the spread of scores in its bins: give the statistics that made "
            "it, or fit them again"
        )
    log = bool(np.isfinite(bins["log_score_sd"]).all())
    names = ("score", "log_score_sd" if log else "score_sd", "n_items")
    score, spread, items = (bins[name].to_numpy().astype(float) for name in names)
    return score, spread, items, log
