"""What second order calibration gains, bin by bin: held-out likelihood, and variance of theta."""

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.axes import Axes
from numpy.typing import NDArray

from .._lib.arguments import shown
from .._lib.errors import FitError
from .arguments import need_ax, need_columns, need_prob
from .style import BLUE, GREY, PALETTE, RED, draw_floor, escaped, is_rate, log_or_linear, tidy

__all__ = ["plot_gain_by_bin", "plot_variance_gain"]

Floats = NDArray[np.float64]

_APART = 0.12  # of the distance between bins: how far estimators are set apart
_MARKERS = "os^Dv<>"
_NAMES = 8  # names that an error shows


def plot_gain_by_bin(
    held: Any, estimators: Sequence[str] | None = None, ax: Axes | None = None
) -> Axes:
    """Draw the gain in held-out log-likelihood over the score t itself, in percent, by bin.

    Of values it is in percent of the squared error of t in noise sds: 100 would be no error at all.

    Parameters
    ----------
    held
        What `soc.evaluate.held_out` returned, or its table.
    estimators
        Names of estimators in the table, in the order of the legend; None takes E(theta|t) and
        E(theta|t,y) of every fit.
    ax
        Axes to draw in; None makes a figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes that were drawn in.

    Raises
    ------
    FitError
        If `held` is another table or has no bins, an estimator is not in it, or `ax` is no axes.

    Notes
    -----
    Section 5.1 of Muralidharan and Najmi. Bars are one standard error over items.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> items = soc.PoissonItems(
    ...     soc.simulation.s1(2000), score="score", count="count", exposure="exposure")
    >>> split = soc.evaluate.split_items(items)
    >>> stats = soc.summarize(split.train, progress=False)
    >>> fit = soc.fit(stats, method=soc.FiveSteps(), progress=False)
    >>> held = soc.evaluate.held_out(fit, split, baselines=(), bins=4, progress=False)
    >>> soc.plots.plot_gain_by_bin(held).get_xlabel()
    'score t'
    """
    need_ax(ax)
    table: pd.DataFrame = getattr(held, "table", held)
    numbers = ["bin", "score", "items", "gain_percent", "gain_percent_se"]
    need_columns(
        table, "soc.evaluate.held_out", numbers, ["estimator"], others=["events"], name="held"
    )
    names = _chosen(table, estimators)
    bins = table[table["bin"] >= 0]
    if bins.empty:
        raise FitError("the table has no rows by bin: ask held_out for bins=")
    figure = None
    if ax is None:
        figure, ax = plt.subplots(figsize=(7.5, 4.8), layout="constrained")
    ax.axhline(0, color=RED, linewidth=1.4, label="t itself")
    for k, name in enumerate(names):
        own = bins[bins["estimator"] == name].sort_values("bin")
        score = own["score"].to_numpy(dtype=float)
        ax.errorbar(
            _shifted(score, "events" in bins, _APART * (k - 0.5 * (len(names) - 1))),
            own["gain_percent"].to_numpy(dtype=float),
            yerr=own["gain_percent_se"].to_numpy(dtype=float),
            fmt=f"{_MARKERS[k % len(_MARKERS)]}-",
            markersize=4,
            linewidth=0.8,
            elinewidth=0.9,
            color=_colour(k),
            label=_overall(table, name),
        )
    if "events" in bins:
        log_or_linear(ax.xaxis, bins["score"])
    ax.set_xlabel("score t")
    unit = "% of that of t" if "events" in bins else "% of its squared error in noise sds"
    ax.set_ylabel(f"gain in held-out log-likelihood over t\n{unit}")
    title = f"Held-out gain by bin ({_size(bins, names[0])}; bars: ± 1 s.e.)"
    ax.set_title(title, fontsize=10, loc="left")
    if figure:  # above: with many estimators no place in the axes is free
        figure.legend(loc="outside upper center", ncols=2, frameon=False, fontsize=8)
    else:
        ax.legend(fontsize=8, edgecolor="none", framealpha=0.85)
    tidy(ax)
    return ax


def _chosen(table: pd.DataFrame, estimators: Sequence[str] | None) -> list[str]:
    """Names of the estimators to draw."""
    known = [name for name in dict.fromkeys(table["estimator"]) if isinstance(name, str)]
    if estimators is None:
        found = [name for name in known if "E(theta" in name]
        if not found:
            raise FitError(f"the table has no E(theta|t): name some of {_listed(known)}")
        return found
    try:
        names = [estimators] if isinstance(estimators, str) else list(estimators)
    except TypeError:
        names = []
    if not names or not all(isinstance(name, str) for name in names):
        raise FitError(
            f"estimators={shown(estimators)} must be names in a list: some of {_listed(known)}"
        )
    missing = [name for name in names if name not in known]
    if missing:
        raise FitError(
            f"{len(missing)} of {len(names)} estimators= are not in the table: {_listed(missing)}; "
            f"it has {_listed(known)}"
        )
    return names


def _listed(names: Sequence[str]) -> str:
    """Names on one line: the first of many, and the first words of long ones."""
    words = [" ".join(name.split())[:40] for name in names[:_NAMES]]
    more = f" and {len(names) - _NAMES:,} more" if len(names) > _NAMES else ""
    return ", ".join(words) + more


def _colour(k: int) -> str:
    """Colours but the baseline's."""
    others = [colour for colour in PALETTE if colour != RED]
    return others[k % len(others)]


def _overall(table: pd.DataFrame, name: str) -> str:
    """Name with the gain over all items, where the table has it."""
    row = table[(table["estimator"] == name) & (table["bin"] == -1)]
    if row.empty:
        return escaped(name)
    gain, error = float(row["gain_percent"].iloc[0]), float(row["gain_percent_se"].iloc[0])
    digits = 2 if error >= 0.01 or error == 0 else 4
    return f"{escaped(name)}: {gain:+.{digits}f} ± {error:.{digits}f}% overall"


def _size(bins: pd.DataFrame, name: str) -> str:
    own = bins[bins["estimator"] == name]
    items = f"{int(own['items'].sum()):,} items"
    return f"{items}, {int(own['events'].sum()):,} events" if "events" in own else items


def _shifted(score: Floats, rates: bool, by: float) -> Floats:
    """Scores moved by a share of the typical distance between them."""
    if len(score) < 2:
        return score
    if rates and is_rate(score):
        return np.asarray(score * np.exp(by * float(np.median(np.diff(np.log(score))))))
    return np.asarray(score + by * float(np.median(np.diff(score))))


def plot_variance_gain(
    reduction: xr.Dataset | dict[str, xr.Dataset], prob: float = 0.9, ax: Axes | None = None
) -> Axes:
    """Draw E Var(theta|t,y) / Var(theta|t) by bin: what share of the variance the outcomes leave.

    Parameters
    ----------
    reduction
        From `soc.quantities.variance_reduction`, or a dict of several by name.
    prob
        Probability of the bars at each bin, where there is more than one draw.
    ax
        Axes to draw in; None makes a figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes that were drawn in.

    Raises
    ------
    FitError
        If there is no such ratio, `prob` is not between 0 and 1, or `ax` is no axes.

    Notes
    -----
    Section 5.1 of Muralidharan and Najmi.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> frame = soc.simulation.s1(2000, seed=0)
    >>> items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    >>> stats = soc.summarize(items, progress=False)
    >>> fit = soc.fit(stats, method=soc.FiveSteps(), progress=False)
    >>> found = soc.quantities.variance_reduction(fit, items, bins=5, progress=False)
    >>> soc.plots.plot_variance_gain(found).get_xlabel()
    'score t'
    """
    named = reduction if isinstance(reduction, dict) else {"": reduction}
    if not named or not all(_is_reduction(data) for data in named.values()):
        raise FitError(
            "reduction must come from soc.quantities.variance_reduction, or be a dict of such"
        )
    need_prob(prob)
    need_ax(ax)
    if ax is None:
        _, ax = plt.subplots(figsize=(7, 4.5), layout="constrained")
    every = np.concatenate([data["score"].to_numpy() for data in named.values()])
    for k, (name, data) in enumerate(named.items()):
        _ratios(ax, name, data, prob, BLUE if len(named) == 1 else _colour(k))
    ax.axhline(1, color=GREY, linewidth=1, linestyle="--")
    log_or_linear(ax.xaxis, every)
    ax.set_ylim(0, max(1.05, 1.05 * float(ax.dataLim.y1)))
    ax.set_xlabel("score t")
    ax.set_ylabel("E Var(theta | t, y) / Var(theta | t)")
    items = int(next(iter(named.values()))["n_items"].sum())
    ax.set_title(
        f"Variance of theta that outcomes leave ({items:,} items)", fontsize=10, loc="left"
    )
    ax.legend(frameon=False, fontsize=8)
    tidy(ax)
    return ax


def _is_reduction(data: Any) -> bool:
    """Whether these are ratios by bin, with draws."""
    return (
        isinstance(data, xr.Dataset)
        and {"ratio", "ratio_by_bin", "n_items", "score"} <= set(data.variables)
        and set(data["ratio_by_bin"].dims) == {"chain", "draw", "bin"}
        and bool(data["ratio_by_bin"].size and data["ratio"].size)
    )


def _ratios(ax: Axes, name: str, data: xr.Dataset, prob: float, colour: str) -> None:
    """Ratios of one fit with their posterior intervals, and the overall ratio."""
    by_bin = data["ratio_by_bin"].transpose("chain", "draw", "bin").to_numpy()
    draws = by_bin.reshape(-1, by_bin.shape[-1])
    levels = [(1 - prob) / 2, 0.5, (1 + prob) / 2]
    low, middle, high = np.quantile(draws, levels, axis=0)
    overall = np.quantile(data["ratio"].to_numpy(), levels)
    score, seen = data["score"].to_numpy(), np.isfinite(middle)
    style: dict[str, Any] = {"color": colour, "markersize": 4, "linewidth": 0.9}
    label = f"{escaped(name) or 'by bin'}; overall {overall[1]:.1%}"
    if len(draws) > 1:
        label += f" ({overall[0]:.1%} to {overall[2]:.1%}), bars and range: {prob:.0%}"
        error = np.array([middle - low, high - middle])[:, seen]
        ax.errorbar(score[seen], middle[seen], yerr=error, fmt="o-", label=label, **style)
    else:
        ax.plot(score[seen], middle[seen], "o-", label=label, **style)
    draw_floor(ax, score[~seen], "bins without items")
    ax.axhline(overall[1], color=colour, linewidth=1, linestyle=":")
