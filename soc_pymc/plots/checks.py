"""Pictures of checks: probability integral transforms, and rootograms."""

import numbers
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import xarray as xr
from matplotlib import colors
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.lines import Line2D
from numpy.typing import NDArray
from scipy import stats
from scipy.special import ndtri

from .._lib.arguments import PROBABILITY, checked
from .._lib.arrays import Floats
from .._lib.errors import FitError
from ..checks._check import CheckResult
from ..families.outcomes import OUTCOMES
from . import canvas
from .arguments import AX, RESULT, holds

Cells = Mapping[tuple[float, float], xr.Dataset]

_PROB = 0.95  # of bands that chance alone fills
_VERDICT = {"ok": canvas.CURVE, "look": canvas.ORANGE, "fail": canvas.APART}
_COLUMNS = 3
_EMPTY = "no bin of the histograms holds an item: lower least_size="
_DEEPEST = 4.0  # departure of a density from 1, in its sd under the model, at which colours end
_STRIP, _GAP = 0.07, 0.02  # heights of the row of all bins and below it, as shares of the others
_LABELLED = 5  # bins whose scores are written
_AWAY = colors.LinearSegmentedColormap.from_list("away", [canvas.BLUE, "white", canvas.RED])

_SINGLE = 16  # counts below it have a bar of their own
_CELLS = 30  # bars of values
_FEW = 20  # with fewer replicates their quantiles are no band
_ENDS = (0.005, 0.995)  # quantiles of values between which bars are of equal widths
_TICKS = np.array([a * 10.0**k for k in range(9) for a in (1, 3)])


@checked(result=RESULT, ax=AX)
def plot_pit(result: CheckResult, ax: Axes | None = None) -> NDArray[Any]:
    """Draw the ECDF of the PIT minus the uniform cdf, by slice, with its 95% band.

    Within the band nothing speaks against the fit. A curve above 0 at the left means more low
    counts than predicted, one below 0 at the right more high counts: both together, that counts
    scatter more than predicted. The coloured line is the randomised PIT that is tested, the grey
    one its average over the randomisation, which on counts near 0 strays less.

    Parameters
    ----------
    result, ax
        What `soc.check` returned, and axes to draw all items in; None makes a panel for each slice.

    Returns
    -------
    numpy.ndarray
        The axes, one for each slice shown.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> result = soc.check(fit, items)
    >>> len(soc.plots.plot_pit(result)) == result.data["pit"].sizes["slice"]
    True
    """
    slices = [str(name) for name in result.data["pit"]["slice"].to_numpy()]
    slices = slices if ax is None else slices[:1]
    columns = min(_COLUMNS, len(slices))
    rows = -(-len(slices) // columns)
    size = (max(2.6 * columns, 6.5), 2.1 * rows + 0.8)
    panels, unused = np.split(canvas.panels_in(ax, size, rows, columns), [len(slices)])
    for panel in unused:
        panel.remove()
    font = {"fontsize": 9} if ax is None else {}
    for place, (name, panel) in enumerate(zip(slices, panels, strict=True)):
        _pit_panel(result, name, panel)
        if place >= len(slices) - columns:
            panel.set_xlabel("PIT", **font)
        if place % columns == 0:
            panel.set_ylabel("ECDF - uniform", **font)
    handles = _pit_legend(panels[0])
    if ax is None:
        canvas.legend_of_panels(panels[0], True, "upper center", 3, handles=handles)
    else:
        ax.legend(handles=handles, **canvas.FRAMELESS)
    return panels


def _pit_legend(ax: Axes) -> list[Any]:
    """Entries of a panel's own artists and of the line's three possible colours."""
    lines = [Line2D([], [], color=colour, label=f"PIT: {v}") for v, colour in _VERDICT.items()]
    return [*ax.get_legend_handles_labels()[0], *lines]


def _pit_panel(result: CheckResult, name: str, ax: Axes) -> None:
    """One slice: band, averaged and randomised ECDF differences, coloured by the verdict."""
    pit = result.data["pit"].to_dataset().sel(slice=name)
    table = result.table
    row = table[(table["check"] == "PIT") & (table["slice"] == name)].iloc[0]
    n, u = int(pit["n_items"]), pit["u"].to_numpy()
    bound = float(stats.kstwo.isf(1 - _PROB, n))
    ax.axhspan(
        -bound, bound, color=canvas.REFERENCE, alpha=0.12, linewidth=0, label=f"{_PROB:.0%} band"
    )
    ax.axhline(0, color=canvas.REFERENCE, linewidth=0.8)
    ax.plot(u, pit["averaged"], color=canvas.GREY, linewidth=1, label="averaged over randomisation")
    ax.plot(u, pit["randomised"], color=_VERDICT[row["verdict"]], linewidth=1.5)
    words = f"{n:,} items, p {_p(row['p_value'])}: {row['verdict']}"
    ax.set_title(f"{canvas.escaped(name, 36)}\n{words}", fontsize=8)
    highest = max(float(np.abs(pit[line]).max()) for line in ("randomised", "averaged"))
    reach = max(1.5 * bound, 1.1 * highest)
    ax.set(xlim=(0, 1), ylim=(-reach, reach))
    ax.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    ax.locator_params(axis="y", nbins=5)
    ax.tick_params(labelsize=8)
    canvas.tidy(ax)


def _p(value: float) -> str:
    if value < 1e-12:
        return "< 1e-12"
    return f"= {value:.2f}" if value >= 0.095 else f"= {value:.1g}"


# --- histograms of bins --------------------------------------------------------------------------


@checked(ax=AX)
def plot_pit_histograms(
    histograms: xr.Dataset | xr.DataTree | Mapping[str, xr.Dataset] | Cells, ax: Axes | None = None
) -> NDArray[Any]:
    """Draw the p-histogram of every bin as a row of a heat map, with all bins together above.

    Bins are in the order of their scores. Under a model that fits, every density is 1 apart from
    chance; colours are departures from 1 in standard errors of chance, of which 95% should be
    within 2, in no order. Columns or blocks of one colour are misfits: red at both ends says that
    the model's tails are too light, at one end that it is off centre. The title has the range of
    the densities of all bins together, the size of a misfit. Sections 5.1 to 5.3 of Muralidharan
    and Najmi, where histograms are lines.

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
        If all histograms are empty, there are several for one `ax`, or an argument is not as above.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> found = soc.evaluate.pit_histograms(fit, items, bins=5)
    >>> soc.plots.plot_pit_histograms(found).shape
    (1, 1)
    """
    panels = list(_panels(histograms))
    if not panels:
        raise FitError(_EMPTY)
    if ax is not None and len(panels) > 1:
        raise FitError(f"there are {len(panels)} histograms for one ax=: leave it out")
    rows, columns = 1 + max(row for row, *_ in panels), 1 + max(column for _, column, *_ in panels)
    size = (6.8, 4.6)
    if rows * columns > 1:
        size = (min(max(3.1 * columns + 1.2, 6.8), canvas.WIDEST), 2.7 * rows + 0.8)
    row_of_axes = canvas.panels_in(ax, size, rows, columns, sharex=True)
    axes: NDArray[Any] = np.reshape(row_of_axes, (rows, columns))
    norm = colors.CenteredNorm(0.0, _DEEPEST)
    for row, column, title, data in panels:
        panel = axes[row, column]
        total = _panel(panel, data, norm)
        title = f"{title}\n{total}" if title else total
        panel.set_title(title, fontsize=9 if columns < 3 else 8)
        if row == rows - 1:
            panel.set_xlabel("p: PIT of the outcome", fontsize=9)
        if column == 0:
            panel.set_ylabel("score t of the bin", fontsize=9)
    taken = {(row, column) for row, column, *_ in panels}
    for unused in (panel for place, panel in np.ndenumerate(axes) if place not in taken):
        unused.remove()
    axes[panels[0][:2]].figure.colorbar(
        ScalarMappable(norm, _AWAY), ax=axes, label="density minus 1, in standard errors",
        shrink=0.7, aspect=30, extend="both",
    )  # fmt: skip
    return axes


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
            title = f"delta = {canvas.plain(delta)}, sigma = {canvas.plain(sigma)}"
            yield down.index(sigma), across.index(delta), title, _checked(data)
        return
    for column, (name, data) in enumerate(histograms.items()):
        yield 0, column, canvas.escaped(name), _checked(data)


def _is_cell(key: Any) -> bool:
    """Whether this is (delta, sigma) of a simulation."""
    pair = isinstance(key, tuple) and len(key) == 2
    return pair and all(isinstance(number, numbers.Real) for number in key)


def _of_dataset(data: xr.Dataset) -> Iterator[tuple[int, int, str, xr.Dataset]]:
    """One panel, or one for each fit and slice."""
    over = [dim for dim in ("fit", "slice") if dim in data.dims]
    whole = data.expand_dims({dim: [""] for dim in ("fit", "slice") if dim not in over})
    for row, fit in enumerate(whole["fit"].to_numpy()):
        for column, name in enumerate(whole["slice"].to_numpy()):
            one = whole.sel(fit=fit, slice=name)
            named = canvas.escaped(fit) if whole.sizes["fit"] > 1 else ""
            title = ", ".join(part for part in (named, canvas.escaped(name)) if part)
            if len(over) < 2 or int(one["n_items"].sum()):  # a slice may be empty
                yield row, column, title, _checked(one)


def _checked(data: Any) -> xr.Dataset:
    """Histograms of the bins that hold items."""
    if not holds(data, density="bin p", n_items="bin", score="bin", p="p"):
        raise FitError(
            "histograms need variables 'density', 'n_items' and 'score', by bin and p: take those "
            "of soc.evaluate.pit_histograms"
        )
    kept = data["n_items"].to_numpy() > 0
    if not kept.any():
        raise FitError(_EMPTY)
    return data.isel(bin=np.flatnonzero(kept))


def _panel(ax: Axes, data: xr.Dataset, norm: colors.Normalize) -> str:
    """A row of cells for each bin, by score, and above them a row of all; what they are of."""
    data = data.sortby("score")
    density, items = data["density"].transpose("bin", "p").to_numpy(), data["n_items"].to_numpy()
    bins, cells = density.shape
    together = np.average(density, axis=0, weights=items)
    foot, top = (1.0 + _GAP) * bins, (1.0 + _GAP + _STRIP) * bins
    for edges, rows, n in (
        (np.arange(bins + 1.0), density, items[:, None]),
        (np.array([foot, top]), together[None], items.sum()),
    ):
        away = (rows - 1.0) * np.sqrt(n / max(cells - 1, 1))
        across = np.linspace(0.0, 1.0, cells + 1)
        ax.pcolormesh(across, edges, away, cmap=_AWAY, norm=norm, rasterized=True)
    at = np.unique(np.linspace(0, bins - 1, _LABELLED).round().astype(int))
    labels = [*(canvas.plain(float(f"{t:.2g}")) for t in data["score"].to_numpy()[at]), "all"]
    ax.set_yticks([*(at + 0.5), 0.5 * (foot + top)], labels)
    ax.set(xlim=(0, 1), ylim=(0, top))
    ax.tick_params(labelsize=8)
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)
    ends = f"{together.min():.2f} to {together.max():.2f}"
    number = canvas.number_of(bins, "bin")
    return f"{int(items.sum()):,} items in {number}\nall together: {ends}"


# --- rootograms ----------------------------------------------------------------------------------


@checked(result=RESULT, prob=PROBABILITY, ax=AX)
def plot_rootogram(result: CheckResult, prob: float = 0.9, ax: Axes | None = None) -> Axes:
    """Draw a hanging rootogram: how many items had each outcome, against the fit's predictions.

    The line is the number of items that the fit expects to have a count (from 16 on, a range of
    counts) or a value between two ends; on the scale of square roots all have like errors.
    From it hang bars as long as the root of the number seen: their feet stand at 0 where prediction
    and data agree, and below 0 where there are more such items. The grey band holds the feet with
    the given probability if the fit is right, at each bar by itself; others are red.

    Parameters
    ----------
    result, ax
        What `soc.check` returned for items, of which it keeps a random subset, and axes, or None.
    prob
        Probability of the band, from replicated outcomes. A fit of one draw has one replicate,
        whose roots of numbers have an sd near 1/2, as those of the data have: the band is then that
        of their difference.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    FitError
        If the check was made on statistics, without replicated outcomes, or an argument is not as
        above.

    References
    ----------
    Kleiber and Zeileis (2016), Visualizing count data regressions using rootograms, The American
    Statistician 70, 296-303.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> soc.plots.plot_rootogram(soc.check(fit, items)).get_ylabel()
    'items (scale of square roots)'
    """
    if "posterior_predictive" not in result.data.children:
        raise FitError(
            "the check was made on statistics and so has no replicated outcomes of items: draw "
            "that of soc.check(fit, items)"
        )
    seen = result.data["observed_data"].to_dataset()
    outcome = next(each for each in OUTCOMES.values() if each.observed in seen)
    observed = seen[outcome.observed].to_numpy()
    replicates = result.data["posterior_predictive"][outcome.observed]
    new = replicates.transpose("chain", "draw", "item").to_numpy().reshape(-1, len(observed))
    edges = _count_edges(observed, new) if outcome.whole else _value_edges(observed, new)
    number = _numbers(observed[None], edges)[0]
    replicated = _numbers(new, edges)
    expected = replicated.mean(axis=0)
    made = ax is None
    ax = canvas.panels_in(ax, (7.5, 4.8))[0]
    highest = float(np.sqrt(max(expected.max(), number.max())))
    place, width = 0.5 * (edges[1:] + edges[:-1]), 0.9 * np.diff(edges)
    more = " (the outer bars hold all beyond)"
    if outcome.whole:
        place, width = np.arange(len(expected), dtype=float), np.full(len(expected), 0.86)
        more = f" (from {_SINGLE} on several share a bar)" if edges[-2] > _SINGLE else ""
    band = _band(expected, replicated, prob)
    _hang(ax, place, width, np.sqrt(expected), np.sqrt(number), band, prob)
    held = f"{canvas.number_of(len(observed), 'item')}, {canvas.number_of(len(new), 'replicate')}"
    title, label = f"Hanging rootogram ({held})", f"{outcome.words.outcome} of an item{more}"
    canvas.finish(ax, title, label, "items (scale of square roots)", legend=False)
    _root_ticks(ax, highest)
    if outcome.whole:
        ax.set_xticks(place, _ranges(edges), fontsize=8)
        if len(place) > 12:
            ax.tick_params(axis="x", rotation=90)
        ax.grid(visible=False, axis="x")
    ax.set_ylim(top=1.04 * highest)
    canvas.legend_of_panels(ax, made, "lower center")
    return ax


def _count_edges(observed: NDArray[Any], new: NDArray[Any]) -> Floats:
    """Lower ends of cells of counts, and the end of the last: single counts, then wider cells."""
    # replicates are many: their extremes would add bars in which next to nothing is expected
    most = int(max(observed.max(), np.quantile(new, 1 - 0.5 / new.shape[1])))
    edges = [0]
    while edges[-1] < most:
        edges.append(edges[-1] + (1 if edges[-1] < _SINGLE else (edges[-1] + 1) // 4))
    return np.array([*edges, np.inf])


def _value_edges(observed: NDArray[Any], new: NDArray[Any]) -> Floats:
    """Edges of cells of equal width over nearly all values; the outer two take what lies beyond."""
    low, high = np.quantile(np.concatenate([observed, new[0]]), _ENDS)
    if low == high:
        low, high = low - 1.0, high + 1.0
    return np.linspace(low, high, _CELLS + 1)


def _numbers(outcome: NDArray[Any], edges: Floats) -> Floats:
    """Outcomes in each cell, (replicates, cells)."""
    inner = edges[1:-1]
    cells = (np.searchsorted(inner, own, side="right") for own in outcome)
    return np.array([np.bincount(cell, minlength=len(inner) + 1) for cell in cells], dtype=float)


def _band(expected: Floats, replicated: Floats, prob: float) -> tuple[Floats, Floats]:
    """Where the feet of bars are if the fit is right."""
    if len(replicated) >= _FEW:
        ends = np.quantile(replicated, [(1 + prob) / 2, (1 - prob) / 2], axis=0)
        low, high = np.sqrt(expected) - np.sqrt(ends)
        return low, high
    reach = np.full_like(
        expected, ndtri((1 + prob) / 2) * 0.5 * np.sqrt(1.0 + 1.0 / len(replicated))
    )
    return -reach, reach


def _hang(
    ax: Axes,
    place: Floats,
    width: Floats,
    expected: Floats,
    seen: Floats,
    band: tuple[Floats, Floats],
    prob: float,
) -> None:
    """Bars that hang from the expected numbers, and the band of their feet."""
    foot = expected - seen
    inside = (foot >= band[0] - 1e-9) & (foot <= band[1] + 1e-9)
    style: dict[str, Any] = {"linewidth": 0, "zorder": 2}
    kinds = (
        (inside, canvas.OBSERVED, 0.55, "inside"),
        (~inside, canvas.APART, 0.9, "outside"),
    )
    for mask, colour, alpha, words in kinds:
        if mask.any():
            label = f"items seen: {canvas.number_of(int(mask.sum()), 'bar')} {words} the band"
            style |= {"color": colour, "alpha": alpha, "label": label}
            ax.bar(place[mask], -seen[mask], width[mask], expected[mask], **style)
    step = np.append(place - 0.5 * width / 0.9, place[-1] + 0.5 * width[-1] / 0.9)
    low, high = (np.append(end, end[-1]) for end in band)
    shade: dict[str, Any] = {
        "step": "post",
        "color": canvas.REFERENCE,
        "alpha": 0.4,
        "linewidth": 0,
    }
    label = f"{prob:.0%} band of the feet, at each bar"
    ax.fill_between(step, low, high, label=label, zorder=3, **shade)
    ax.axhline(0, color=canvas.REFERENCE, linewidth=0.9, zorder=3)
    line: dict[str, Any] = {"color": canvas.CURVE, "markersize": 3, "linewidth": 1.4, "zorder": 4}
    ax.plot(place, expected, "o-", label="expected items", **line)


def _root_ticks(ax: Axes, highest: float) -> None:
    """Numbers of items at their roots."""
    ticks = [0.0]
    for number in _TICKS[np.sqrt(_TICKS) <= 1.02 * highest]:
        if np.sqrt(number) - np.sqrt(ticks[-1]) > 0.07 * highest:
            ticks.append(float(number))
    ax.set_yticks(np.sqrt(ticks), [canvas.plain(t) for t in ticks])


def _ranges(edges: Floats) -> list[str]:
    """Names of cells of counts, of which the last is open."""
    names = [
        f"{low:,.0f}" if high - low == 1 else f"{low:,.0f}-{high - 1:,.0f}"
        for low, high in pairwise(edges[:-1])
    ]
    return [*names, f"{edges[-2]:,.0f}+"]
