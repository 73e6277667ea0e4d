"""Pictures of checks and of any table of results: the PIT of outcomes, and intervals."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import colors
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from scipy import stats

from .._lib.arguments import A, OrNone, Real, Whole, shown
from .._lib.errors import FitError
from .._lib.reprs import counted, number
from ..checks._check import CheckResult
from ..checks.advice import residuals
from ..checks.findings import Result, p_value, worst_first
from ..families.scales import LOG
from . import style
from .style import AX, Panels

_CHECKED = A(CheckResult, "what soc.check(fit, items) returned")
_PROB = 0.95  # probability of bands that chance alone fills
# of panels in a figure, and of bars in a histogram
_COLUMNS = 3
_MOST_SLICES = 60
_CELLS = 10
_BAND: dict[str, Any] = {"color": style.REFERENCE, "alpha": 0.12, "lw": 0}
_PALEST = 0.9  # the light end of a colour map is hard to see on white
# inches
_ROW = 0.24
_HEAD = 0.75
# points of labels
_LABEL = 8.0
_SMALLEST = 5.0
_NUMBERS = ("value", "low", "high")


def plot_pit(
    result: CheckResult, by: str | None = None, ax: Axes | None = None
) -> Panels:
    """Draw the PIT of outcomes against the uniform distribution that a right model gives them.

    By slice it is the ECDF of the PIT minus the uniform cdf, with its 95% band. A curve above 0 at
    the left means more low counts than predicted, one below 0 at the right more high counts. The
    coloured line is the randomised PIT that is tested, the grey one its average.

    Parameters
    ----------
    result : CheckResult
        What `soc.check` returned.
    by : str or None
        Slices to draw: those of a column, such as ``"exposure"``, or all for None, at most the 60
        with the smallest p-values; ``"score"`` draws histograms in 20 bins of the score (Sections
        5.1 to 5.3 of Muralidharan and Najmi).
    ax : Axes or None
        Axes to draw histograms in, or the first slice alone; None makes a figure of all slices.

    Returns
    -------
    numpy.ndarray
        The axes, one for each slice shown.

    Raises
    ------
    FitError
        If `result` is something else, or no slice is by that column.

    References
    ----------
    .. [1] Czado, Gneiting and Held (2009), Predictive model assessment for count data, Biometrics
       65, 1254-1261.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> result = soc.check(fit, items)
    >>> len(soc.plots.plot_pit(result)) == result.data["pit"].sizes["slice"]
    True
    """
    result = _CHECKED(result, "result")
    by = OrNone(A(str, "'score', or the name of a column"))(by, "by")
    ax = AX(ax, "ax")
    if by == "score":
        panels = style.panels(ax, (6.8, 4.4))
        _histograms(result, panels[0])
        return panels
    pits = result.data["pit"].to_dataset()
    slices = np.arange(pits.sizes["slice"])
    if by is not None:
        slices = np.flatnonzero((pits["quantity"] == by) | (pits["column"] == by))
        if not len(slices):
            raise FitError(
                f"by={shown(by)} is not a column of the slices: leave it out to see all"
            )
    p_value = pits["p_value"].to_numpy()[slices]
    slices = slices[np.sort(np.argsort(p_value, kind="stable")[:_MOST_SLICES])]
    slices = slices if ax is None else slices[:1]
    columns = min(_COLUMNS, len(slices))
    rows = -(-len(slices) // columns)
    size = (max(2.6 * columns, 6.5), 2.1 * rows + 0.8)
    axes, unused = np.split(style.panels(ax, size, rows, columns), [len(slices)])
    for panel in unused:
        panel.remove()
    handles: dict[str, Any] = {}
    for place, (of_slice, panel) in enumerate(zip(slices, axes, strict=True)):
        x = "PIT" if place >= len(slices) - columns else ""
        y = "ECDF - uniform" if place % columns == 0 else ""
        title = _ecdf(result, of_slice, panel)
        style.finish(panel, title, x, y, ax is not None, fontsize=8)
        drawn, labels = panel.get_legend_handles_labels()
        handles |= dict(zip(labels, drawn, strict=True))
    if ax is None:
        outside = {"loc": "outside upper center", "ncols": 5}
        axes[0].figure.legend(handles=[*handles.values()], **outside, **style.FRAMELESS)
    return axes


def plot_outliers(result: CheckResult, n: int = 10, ax: Axes | None = None) -> Axes:
    """Draw how far outcomes lie from what the fit expects, and mark the worst items.

    Of more than 20,000 items as many are drawn at random, with the worst of all.

    Parameters
    ----------
    result : CheckResult
        What `soc.check` returned for items.
    n : int
        Number of items to mark with their rows, as in ``result.worst(n)``.
    ax : Axes or None
        Axes to draw in; None makes a figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes.

    Raises
    ------
    FitError
        If `result` is something else or of statistics, or `n` is not in its range.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> ax = soc.plots.plot_outliers(soc.check(fit, items), n=3)
    >>> len(ax.texts)
    3
    """
    result = _CHECKED(result, "result")
    ax = AX(ax, "ax")
    worst = result.worst(n)
    far = result.outliers
    assert far is not None  # `worst` refuses it
    ax = style.panels(ax, (7.5, 4.5))[0]
    columns = far.gains.items.columns
    _, sds = residuals(far.gains.posterior, columns)
    look: dict[str, Any] = {"linewidths": 0, "s": 8}
    label = "an item; 0: as expected given its score"
    ax.scatter(columns["score"], sds, color=style.GREY, alpha=0.4, label=label, **look)
    score = far.items.columns["score"][: len(worst)]
    label = f"the {len(worst)} that the fit expects least, with their row numbers"
    ax.scatter(score, worst["sds"], s=24, color=style.RED, label=label)
    for item, x, y in zip(worst.index, score, worst["sds"], strict=True):
        shift: dict[str, Any] = {"xytext": (4, 3), "textcoords": "offset points"}
        ax.annotate(f"{item:,}", (x, y), fontsize=_LABEL, **shift)
    ax.axhline(0, color=style.REFERENCE, linewidth=0.8)
    if style.is_rate(columns["score"]):
        style.scaled_axis(ax.xaxis, LOG.name, columns["score"])
    title = f"Outcomes of {len(sds):,} items"
    style.finish(ax, title, "score", "outcome less its expectation, in sds")
    return ax


def pit_image(result: CheckResult) -> str:
    """Return the picture of the PIT as an element of HTML."""
    image = '<img src="{source}" width="{width}" alt="PIT of all items">'
    return image.format(**style.picture_of(plot_pit, result, height=3.2))


def _ecdf(result: CheckResult, number: int, ax: Axes) -> str:
    """Draw band and ECDF differences of a slice, coloured by its verdict; return a title."""
    pit = result.data["pit"].to_dataset().isel(slice=number)
    row = result.table[result.table["what"] == "PIT"].iloc[number]
    n = int(pit["n_items"])
    u = pit["u"].to_numpy()
    bound = float(stats.kstwo.isf(1 - _PROB, n))
    ax.axhspan(-bound, bound, label=f"{_PROB:.0%} band", **_BAND)
    ax.axhline(0, color=style.REFERENCE, linewidth=0.8)
    label = "averaged over randomisation"
    ax.plot(u, pit["averaged"], color=style.GREY, linewidth=1, label=label)
    verdict = row["verdict"]
    look: dict[str, Any] = {"color": style.VERDICT_COLORS[verdict], "linewidth": 1.5}
    ax.plot(u, pit["randomised"], label=f"PIT: {verdict}", **look)
    highest = max(float(np.abs(pit[line]).max()) for line in ("randomised", "averaged"))
    reach = max(1.5 * bound, 1.1 * highest)
    ax.set(xlim=(0, 1), ylim=(-reach, reach), xticks=[0, 0.5, 1])
    ax.locator_params(axis="y", nbins=5)
    ax.tick_params(labelsize=8)
    return f"{style.escaped(row['where'], 36)}\n{n:,} items, p {p_value(row['p'])}: {verdict}"


def _histograms(result: CheckResult, ax: Axes) -> None:
    """Draw the density of the PIT in each bin of the score, coloured by the score."""
    bins = result.data["pit_by_score"].to_dataset()
    score = bins["score"].to_numpy()
    n = bins["n_items"].to_numpy()
    edges = np.linspace(0.0, 1.0, _CELLS + 1)
    ecdf = bins["ecdf"].transpose("bin", "u").to_numpy()
    density = [_CELLS * np.diff(np.interp(edges, bins["u"], line)) for line in ecdf]
    error = stats.norm.isf((1 - _PROB) / 2) * np.sqrt((_CELLS - 1) / np.median(n))
    label = f"{_PROB:.0%} of points by chance"
    ax.axhspan(1 - error, 1 + error, label=label, **_BAND)
    ends = float(score.min()), float(score.max())
    norm = colors.LogNorm(*ends) if style.is_rate(score) else colors.Normalize(*ends)
    shades = colors.LinearSegmentedColormap.from_list(
        "score",
        ScalarMappable(cmap="viridis").to_rgba(np.linspace(0, _PALEST, 64), norm=False),
    )
    for line, t in zip(density, score, strict=True):
        ax.plot(
            0.5 * (edges[1:] + edges[:-1]), line, color=shades(norm(t)), linewidth=1
        )
    bar = ax.figure.colorbar(
        ScalarMappable(norm, shades), ax=ax, label="score of the bin"
    )
    if style.is_rate(score):
        style.plain_ticks(bar.ax.yaxis, ends)
    ax.set(xlim=(0, 1), ylim=(0, None))
    title = f"{int(n.sum()):,} items in {counted(len(n), 'bin')} of the score"
    style.finish(ax, title, "PIT", "density")


def plot_intervals(
    table: pd.DataFrame | Result,
    rows: int = 30,
    reference: float | None = None,
    axes: Axes | Sequence[Axes] | Panels | None = None,
) -> Panels:
    """Draw the values of a table with their intervals: a panel by ``what``, a row by ``where``.

    A dot is the value, a line its interval, a colour the verdict: blue ok, orange warn, red fail.
    Effects of groups have a line at no effect.

    Parameters
    ----------
    table : Result or pandas.DataFrame
        A result of a check or of `soc.quantities`, or any table with columns ``where`` and
        ``value``, and perhaps ``low``, ``high``, ``what``, ``verdict`` and ``p``.
    rows : int
        Most rows of a panel: of more, those with the worst verdict and then the least ``p``.
    reference : float or None
        Where to draw an upright line, such as 0 for no difference.
    axes : Axes, Sequence[Axes] or numpy.ndarray of shape (panels,), or None
        Axes, one for each panel; None makes a figure.

    Returns
    -------
    numpy.ndarray
        The axes, one for each panel.

    Raises
    ------
    FitError
        If the table lacks columns or known values, or an argument is not valid.

    Examples
    --------
    >>> import pandas as pd
    >>> import soc_pymc as soc
    >>> table = pd.DataFrame({"where": ["DE", "FR"], "value": [1.2, 0.9], "low": [1.1, 0.8],
    ...                       "high": [1.4, 1.1]})
    >>> [ax] = soc.plots.plot_intervals(table, reference=1.0)
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['DE', 'FR']
    """
    expected = "a table of results with columns where, value, low and high"
    table = A(pd.DataFrame | Result, expected)(table, "table")
    rows = Whole(1)(rows, "rows")
    reference = OrNone(Real())(reference, "reference")
    frame = table.table if isinstance(table, Result) else table
    attrs = table.data.attrs if isinstance(table, Result) else {}
    words = ""
    if reference is None and "neutral" in attrs:
        reference = attrs["neutral"]
        words = f": {attrs['neutral_is']}"
    parts = [part for _, part in _checked(frame).groupby("what", sort=False)]
    heights = [_HEAD + _ROW * min(len(part), rows) for part in parts]
    row = style.panels(
        axes, (7.0, 0.3 + sum(heights)), len(parts), height_ratios=heights
    )
    for ax, part in zip(row, parts, strict=True):
        worst = worst_first(part)[:rows].sort_index()
        _draw(ax, worst, len(part), reference, words)
    if axes is None:
        row[0].figure.align_titles()
    return row


def _checked(table: pd.DataFrame) -> pd.DataFrame:
    """Return rows with a known value, with all columns that pictures read."""
    if missing := [name for name in ("where", "value") if name not in table]:
        raise FitError(
            f"the table misses the columns {', '.join(missing)}: rename yours"
        )
    chosen = table.reset_index(drop=True)
    for name in _NUMBERS:
        try:
            chosen[name] = pd.Series(
                pd.to_numeric(chosen.get(name, np.nan)), chosen.index, float
            )
        except (TypeError, ValueError):
            raise FitError(f"column {name!r} of the table must hold numbers") from None
    known = chosen[np.isfinite(chosen["value"])]
    if known.empty:
        raise FitError(
            "the table has no row with a known value: there is nothing to draw"
        )
    return known.assign(**{"what": "", "verdict": "ok", "p": 1.0} | dict(known.items()))


def _draw(
    ax: Axes, part: pd.DataFrame, total: int, reference: float | None, words: str
) -> None:
    place = np.arange(len(part))
    verdict = part["verdict"].to_numpy()
    value, low, high = (part[name].to_numpy() for name in _NUMBERS)
    if reference is not None:
        look: dict[str, Any] = {"color": style.REFERENCE, "lw": 1, "ls": "--"}
        ax.axvline(reference, label=f"{reference:g}{words}", **look)
    for name, color in style.VERDICT_COLORS.items():
        rows = verdict == name if name != "ok" else ~np.isin(verdict, ("warn", "fail"))
        ax.hlines(place[rows], low[rows], high[rows], color=color, linewidth=1.6)
        label = name if rows.any() and len(set(verdict)) > 1 else None
        ax.plot(value[rows], place[rows], "o", color=color, ms=4.5, label=label)
    numbers = np.hstack([value, low, high, [] if reference is None else reference])
    if style.is_rate(numbers):
        style.scaled_axis(ax.xaxis, LOG.name, numbers)
    else:
        ax.locator_params(axis="x", nbins=6)
    ax.margins(x=0.05)
    shown = f" ({len(part)} of {total:,})" if len(part) < total else ""
    style.finish(ax, f"{style.escaped(part['what'].iloc[0])}{shown}", "", "")
    ax.grid(visible=False, axis="y")
    names = (number(name, 4) for name in part["where"])
    # points, and a sixth between labels
    room = 60 * ax.bbox.height / ax.figure.dpi / len(part)
    size = min(max(room, _SMALLEST), _LABEL)
    step = int(np.ceil(size / room))
    labels = [style.escaped(name, 32) for name in names]
    ax.set_yticks(place[::step], labels[::step], fontsize=size)
    ax.tick_params(axis="x", labelsize=8)
    ax.set_ylim(len(part) - 0.4, -0.6)  # the first row on top
