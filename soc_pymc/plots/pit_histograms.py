"""Histograms of probability integral transforms of many bins, overlaid."""

import numbers
from collections.abc import Iterator, Mapping
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib import colors
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from numpy.typing import NDArray
from scipy import stats

from .._lib.errors import FitError
from .arguments import need_ax
from .style import BLACK, GREY, escaped, is_rate, number_of, plain, plain_ticks, tidy

__all__ = ["plot_pit_histograms"]

Floats = NDArray[np.float64]
Cells = Mapping[tuple[float, float], xr.Dataset]

_PROB = 0.95
_WIDEST = 8.0  # inches: a notebook shows it as it is
_CHANCE = f"{_PROB:.0%} by chance alone, of a bin with the median number of items"
_FRAME: dict[str, Any] = {"edgecolor": "none", "framealpha": 0.85}
_LEGEND: dict[str, Any] = {"frameon": False, "fontsize": 8}
_EMPTY = "no bin of the histograms holds an item: lower least_size="
_SHOWN = 0.998  # quantile of the densities up to which panels reach


def plot_pit_histograms(
    histograms: xr.Dataset | xr.DataTree | Mapping[str, xr.Dataset] | Cells,
    ax: Axes | None = None,
) -> NDArray[Any]:
    """Draw the p-histogram of every bin as a thin line, coloured by the bin's score.

    Under a model that fits all are flat but for chance: the grey band holds 95% of the densities of
    a bin with the median number of items. The black line is the histogram of all bins together. A
    smile says that the model's tails are too light, a slope that it is off centre.

    Parameters
    ----------
    histograms
        From `soc.evaluate.pit_histograms`; or ``HeldOut.data["pit"]``, one panel for each fit
        (rows) and slice (columns); or a dict of the former, by names (a row of panels), or by
        (delta, sigma) of a simulation (sigma down, delta across).
    ax
        Axes to draw a single panel in; None makes a figure.

    Returns
    -------
    numpy.ndarray
        The axes, (rows, columns).

    Raises
    ------
    FitError
        If there are no histograms by bin, all are empty, there are several for one `ax`, or `ax` is
        no axes.

    Notes
    -----
    Sections 5.1 to 5.3 of Muralidharan and Najmi.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> frame = soc.simulation.s1(2000, seed=0)
    >>> items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    >>> stats = soc.summarize(items, progress=False)
    >>> fit = soc.fit(stats, method=soc.FiveSteps(), progress=False)
    >>> found = soc.evaluate.pit_histograms(fit, items, bins=5, progress=False)
    >>> soc.plots.plot_pit_histograms(found).shape
    (1, 1)
    """
    need_ax(ax)
    panels = list(_panels(histograms))
    if not panels:
        raise FitError(_EMPTY)
    shape = (1 + max(row for row, *_ in panels), 1 + max(column for _, column, *_ in panels))
    if ax is None:
        figure, axes = plt.subplots(*shape, **_figure(shape))
    elif len(panels) == 1:
        figure, axes = ax.figure, np.array([[ax]])
    else:
        raise FitError(f"there are {len(panels)} histograms for one ax=: leave it out")
    norm = _colours([data for *_, data in panels])
    for row, column, title, data in panels:
        panel = axes[row, column]
        _panel(panel, data, norm)
        panel.set_title(
            f"{title}\n{_total(data)}" if title else _total(data), fontsize=9 if shape[1] < 3 else 8
        )
        if row == shape[0] - 1:
            panel.set_xlabel("p: PIT of the outcome", fontsize=9)
        if column == 0:
            panel.set_ylabel("density", fontsize=9)
    taken = {(row, column) for row, column, *_ in panels}
    for place in set(np.ndindex(shape)) - taken:
        axes[place].remove()
    handles = axes[panels[0][:2]].get_legend_handles_labels()[0]
    if ax is None:
        figure.legend(handles=handles, loc="outside upper center", ncols=2, **_LEGEND)
    else:
        ax.legend(handles=handles, loc="lower center", fontsize=8, **_FRAME)
    _colour_bar(figure, axes, norm)
    return np.asarray(axes)


def _colour_bar(figure: Any, axes: NDArray[Any], norm: colors.Normalize) -> None:
    """Colours of the scores, labelled as an axis of scores is."""
    bar = figure.colorbar(
        ScalarMappable(norm, "viridis"), ax=axes, label="score t of the bin", shrink=0.7, aspect=30
    )
    low, high = norm.vmin, norm.vmax
    if isinstance(norm, colors.LogNorm) and low and high:
        plain_ticks(bar.ax.yaxis, low, high)


def _figure(shape: tuple[int, int]) -> dict[str, Any]:
    """How a figure of so many panels is made."""
    rows, columns = shape
    size = (
        (6.8, 4.6)
        if rows * columns == 1
        else (min(max(3.1 * columns + 1.2, 6.8), _WIDEST), 2.4 * rows + 0.8)
    )
    return {"figsize": size, "layout": "constrained", "squeeze": False, "sharex": True}


def _panels(histograms: Any) -> Iterator[tuple[int, int, str, xr.Dataset]]:
    """Row, column, title and histograms of each panel."""
    if isinstance(histograms, xr.DataTree):
        histograms = histograms.to_dataset()
    if isinstance(histograms, xr.Dataset):
        yield from _of_dataset(histograms)
        return
    if not isinstance(histograms, Mapping) or not histograms:
        raise FitError(
            f"histograms must come from soc.evaluate.pit_histograms or held_out, or be a dict of "
            f"such, not {type(histograms).__name__}"
        )
    if all(_is_cell(key) for key in histograms):
        down, across = (sorted({key[i] for key in histograms}) for i in (1, 0))
        for (delta, sigma), data in histograms.items():
            title = f"delta = {plain(delta)}, sigma = {plain(sigma)}"
            yield down.index(sigma), across.index(delta), title, _checked(data)
        return
    for column, (name, data) in enumerate(histograms.items()):
        yield 0, column, escaped(name), _checked(data)


def _is_cell(key: Any) -> bool:
    """Whether this is (delta, sigma) of a simulation."""
    pair = isinstance(key, tuple) and len(key) == 2
    return pair and all(isinstance(number, numbers.Real) for number in key)


def _of_dataset(data: xr.Dataset) -> Iterator[tuple[int, int, str, xr.Dataset]]:
    """One panel, or one for each fit and slice."""
    over = [dim for dim in ("fit", "slice") if dim in data.dims]
    fits = data["fit"].to_numpy() if "fit" in over else [""]
    slices = data["slice"].to_numpy() if "slice" in over else [""]
    for row, fit in enumerate(fits):
        for column, name in enumerate(slices):
            at = dict(zip(("fit", "slice"), (fit, name), strict=True))
            one = data.sel({dim: at[dim] for dim in over})
            named = escaped(fit) if len(fits) > 1 else ""
            title = ", ".join(part for part in (named, escaped(name)) if part)
            if len(over) < 2 or int(one["n_items"].sum()):  # a slice may be empty
                yield row, column, title, _checked(one)


def _checked(data: Any) -> xr.Dataset:
    """Histograms of the bins that hold items."""
    needed = {"density", "n_items", "score", "p"}
    if (
        not isinstance(data, xr.Dataset)
        or not needed <= set(data.variables)
        or set(data["density"].dims) != {"bin", "p"}
        or data["n_items"].dims != ("bin",)
    ):
        raise FitError(
            "histograms need variables 'density', 'n_items' and 'score', by bin and p: take those "
            "of soc.evaluate.pit_histograms"
        )
    kept = data["n_items"].to_numpy() > 0
    if not kept.any():
        raise FitError(_EMPTY)
    return data.isel(bin=np.flatnonzero(kept))


def _colours(every: list[xr.Dataset]) -> colors.Normalize:
    score = np.concatenate([data["score"].to_numpy().ravel() for data in every])
    low, high = float(np.nanmin(score)), float(np.nanmax(score))
    if high == low:
        high = low + max(abs(low), 1.0) * 1e-6
    return colors.LogNorm(low, high) if is_rate(score) else colors.Normalize(low, high)


def _total(data: xr.Dataset) -> str:
    items, bins = int(data["n_items"].sum()), data.sizes["bin"]
    median = f" (median {_typical(data):,})" if bins > 1 else ""
    return f"{items:,} items in {number_of(bins, 'bin')}{median}"


def _typical(data: xr.Dataset) -> int:
    return int(np.median(data["n_items"].to_numpy()))


def _panel(ax: Axes, data: xr.Dataset, norm: colors.Normalize) -> None:
    """Chance band, a line through the densities of each bin, and all of them together."""
    density = data["density"].transpose("bin", "p").to_numpy()
    middle, items, cells = data["p"].to_numpy(), data["n_items"].to_numpy(), density.shape[1]
    typical = max(_typical(data), 1)
    low, high = (
        float(end) * cells / typical for end in stats.binom.interval(_PROB, typical, 1.0 / cells)
    )
    ax.axhspan(low, high, color=GREY, alpha=0.18, linewidth=0, label=_CHANCE)
    for end in (low, high):
        ax.axhline(end, color=GREY, linewidth=0.8, linestyle=":", zorder=3)
    # in no order, so that high scores do not hide all others
    order = np.random.default_rng(0).permutation(len(density))
    x = np.broadcast_to(middle, density.shape)
    lines = LineCollection(
        list(np.stack([x, density], axis=-1)[order]),
        array=data["score"].to_numpy()[order],
        cmap="viridis",
        norm=norm,
        linewidths=1.0 if len(density) <= 50 else 0.6,
        alpha=float(np.clip(25.0 / len(density), 0.08, 0.8)),
    )
    ax.add_collection(lines)
    together = np.average(density, axis=0, weights=items)
    ax.plot(middle, together, color=BLACK, linewidth=1.6, label="all bins together", zorder=4)
    top = 1.1 * max(high, float(np.quantile(density, _SHOWN)), float(together.max()))
    ax.set(xlim=(0, 1), ylim=(0, top))
    _note_beyond(ax, density, top)
    ax.tick_params(labelsize=8)
    tidy(ax)


def _note_beyond(ax: Axes, density: Floats, top: float) -> None:
    """Say what lies above the panel."""
    beyond = int((density > top).sum())
    if not beyond:
        return
    text = f"{beyond:,} of {density.size:,} densities above, up to {density.max():.2g}"
    box = {"facecolor": "white", "alpha": 0.8, "edgecolor": "none", "pad": 1}
    ax.text(0.99, 0.99, text, ha="right", va="top", fontsize=7, transform=ax.transAxes, bbox=box)
