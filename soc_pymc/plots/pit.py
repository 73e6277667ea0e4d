"""Pictures of the probability integral transforms of a check."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from numpy.typing import NDArray
from scipy import stats

from .._lib.arguments import instance
from ..checks._check import CheckResult
from .arguments import need_ax
from .style import BLUE, GREY, ORANGE, RED, escaped, tidy

__all__ = ["plot_pit"]

_VERDICT = {"ok": BLUE, "look": ORANGE, "fail": RED}
_COLUMNS = 3
_PROB = 0.95


def plot_pit(result: CheckResult, ax: Axes | None = None) -> NDArray[Any]:
    """Draw the ECDF of the PIT less the uniform cdf, by slice, with its 95% band.

    Within the band nothing speaks against the fit. A curve above 0 at the left means more low
    counts than predicted, one below 0 at the right more high counts: both together, that counts
    scatter more than predicted. The coloured line is the randomised PIT that is tested, the grey
    one its average over the randomisation, which on counts near 0 strays less.

    Parameters
    ----------
    result
        What `soc.check` returned.
    ax
        Axes to draw all items in; None makes a figure with one panel for each slice.

    Returns
    -------
    numpy.ndarray
        The axes drawn in, one for each slice shown.

    Raises
    ------
    FitError
        If `result` is not that of a check, or `ax` is no axes.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> frame = soc.simulation.s1(2000, seed=0)
    >>> items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    >>> fit = soc.fit(soc.summarize(items, progress=False), progress=False)
    >>> result = soc.check(fit, items, progress=False)
    >>> len(soc.plots.plot_pit(result)) == result.data["pit"].sizes["slice"]
    True
    """
    instance(result, "result", CheckResult, "what soc.check(fit, items) returned")
    need_ax(ax)
    slices = [str(name) for name in result.data["pit"]["slice"].to_numpy()]
    if ax is not None:
        _panel(result, slices[0], ax)
        ax.set(xlabel="PIT", ylabel="ECDF - uniform")
        ax.legend(handles=_legend(ax), frameon=False, fontsize=8)
        return np.array([ax])
    columns = min(_COLUMNS, len(slices))
    rows = -(-len(slices) // columns)
    figure, axes = plt.subplots(
        rows,
        columns,
        figsize=(max(2.6 * columns, 6.5), 2.1 * rows + 0.8),
        layout="constrained",
        squeeze=False,
    )
    panels: NDArray[Any] = axes.ravel()[: len(slices)]
    for unused in axes.ravel()[len(slices) :]:
        unused.remove()
    for place, (name, panel) in enumerate(zip(slices, panels, strict=True)):
        _panel(result, name, panel)
        if place >= len(slices) - columns:
            panel.set_xlabel("PIT", fontsize=9)
        if place % columns == 0:
            panel.set_ylabel("ECDF - uniform", fontsize=9)
    figure.legend(
        handles=_legend(panels[0]), loc="outside upper center", ncols=3, frameon=False, fontsize=8
    )
    return panels


def _legend(ax: Axes) -> list[Any]:
    """Entries of a panel's own artists and of the line's three possible colours."""
    lines = [Line2D([], [], color=colour, label=f"PIT: {v}") for v, colour in _VERDICT.items()]
    return [*ax.get_legend_handles_labels()[0], *lines]


def _panel(result: CheckResult, name: str, ax: Axes) -> None:
    """One slice: band, averaged and randomised ECDF differences, coloured by the verdict."""
    pit = result.data["pit"].to_dataset().sel(slice=name)
    table = result.table
    row = table[(table["check"] == "PIT") & (table["slice"] == name)].iloc[0]
    n, u = int(pit["n_items"]), pit["u"].to_numpy()
    bound = float(stats.kstwo.isf(1 - _PROB, n))
    ax.axhspan(-bound, bound, color=GREY, alpha=0.12, linewidth=0, label=f"{_PROB:.0%} band")
    ax.axhline(0, color=GREY, linewidth=0.8)
    ax.plot(u, pit["averaged"], color=GREY, linewidth=1, label="averaged over randomisation")
    ax.plot(u, pit["randomised"], color=_VERDICT[row["verdict"]], linewidth=1.5)
    ax.set_title(
        f"{escaped(name, 36)}\n{n:,} items, p {_p(row['p_value'])}: {row['verdict']}", fontsize=8
    )
    highest = max(float(np.abs(pit[line]).max()) for line in ("randomised", "averaged"))
    reach = max(1.5 * bound, 1.1 * highest)
    ax.set_ylim(-reach, reach)
    ax.set_xlim(0, 1)
    ax.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    ax.locator_params(axis="y", nbins=5)
    ax.tick_params(labelsize=8)
    tidy(ax)


def _p(value: float) -> str:
    if value < 1e-12:
        return "< 1e-12"
    return f"= {value:.2f}" if value >= 0.095 else f"= {value:.1g}"
