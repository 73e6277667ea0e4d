"""Pictures of items, of checks, and of any table of results."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import colors
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from .._lib.arguments import (
    PROBABILITY,
    A,
    FitError,
    ItemsError,
    OrNone,
    Real,
    Whole,
    numbers_of,
    per_item,
    shown,
)
from .._lib.arrays import Bools, Floats
from .._lib.reprs import counted, number
from ..checks._check import CheckResult
from ..checks.advice import residuals
from ..checks.findings import Result, p_value, worst_first
from ..data.items import BinomialItems
from ..data.sources import open_table
from ..data.summaries import summarize
from ..families import OUTCOMES
from ..families.family import Outcome
from ..families.priors import Beta
from ..families.scales import LOG
from ..fits import Fit
from ..inference.fitting import fit_prior
from ..posterior.calibration import bands, calibration_curves
from . import style
from .style import AX, Panels

_NAME = A(str, "the name of a column", ItemsError)
_ITEMS = 2000  # points drawn at most
_LINES = 60
_DIAGONAL = "perfectly calibrated"
# points of the curve, and quantiles at its ends
_POINTS = 200
_ENDS = (0.01, 0.99)

_CHECKED = A(CheckResult, "what soc.check(fit, items) returned")
# probability of bands that chance alone fills
_PROB = 0.95
# of panels in a figure, and of bars in a histogram
_COLUMNS = 3
_MOST_SLICES = 60
_CELLS = 10
_BAND: dict[str, Any] = {"color": style.REFERENCE, "alpha": 0.12, "lw": 0}
# the light end of a colour map is hard to see on white
_PALEST = 0.9
# inches
_ROW = 0.24
_HEAD = 0.75
# points of labels
_LABEL = 8.0
_SMALLEST = 5.0
_NUMBERS = ("value", "low", "high")


def plot_shrinkage(
    table: Any,
    *,
    score: str,
    ax: Axes | None = None,
    **outcome: str | None,
) -> Axes:
    """Draw each item's posterior mean against its own rate, count / exposure, or its own value.

    Lines show how far some points are pulled from the dashed line. Items without events stand apart
    at the left. Of more than 2,000 items as many are drawn at random.

    Parameters
    ----------
    table : table
        What `soc.item_posteriors` returned.
    score : str
        Column of the scores, which colour the points.
    ax : Axes or None
        Axes to draw in; None makes a figure.
    **outcome : str or None
        Columns of outcome and size, such as ``count=`` and ``exposure=``.

    Returns
    -------
    matplotlib.axes.Axes
        The axes.

    Raises
    ------
    ItemsError
        If the table or its columns are not as above, or no item has any exposure.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> scored = soc.item_posteriors(fit, items)
    >>> ax = soc.plots.plot_shrinkage(scored, score="score", count="count", exposure="exposure")
    >>> len(ax.collections) > 0
    True
    """
    score = _NAME(score, "score")
    ax = AX(ax, "ax")
    columns = {role: OrNone(_NAME)(name, role) for role, name in outcome.items()}
    kind = _outcome_of(columns)
    observed = str(columns[kind.observed])
    sizes = str(columns[kind.size])
    t, y, size, theta = _numbers(table, [score, observed, sizes, "theta_mean"])
    rate = kind.estimate(y, size)
    finite = np.isfinite(rate) & (size > 0) & np.isfinite(theta)
    usable = np.flatnonzero(finite & (theta > kind.theta.low))
    if not usable.size:
        raise ItemsError(
            f"no item has a positive {sizes!r} and theta_mean: nothing to draw"
        )
    drawn = np.random.default_rng(0).permutation(usable)[:_ITEMS]
    power = 1.0 if kind.sizes_add else -1.0
    arrays = {"t": t, "rate": rate, "size": size, "theta": theta}
    items = pd.DataFrame({name: x[drawn] for name, x in arrays.items()})
    items["size"] **= power
    high = float(items[["theta", "rate"]].to_numpy().max())
    # and shares are small
    rates = kind.positive and high < 0.5 * kind.theta.high
    on_axis = items[items["rate"] > (0.0 if rates else -np.inf)].sort_values("rate")
    low = min([float(items["theta"].min()), *on_axis["rate"].head(1)])
    ax = style.panels(ax, (7.5, 6))[0]
    _points(ax, items, score, rates)
    ax.plot((low, high), (low, high), "--", color=style.REFERENCE, lw=1, zorder=1)
    pulled = on_axis[:: max(1, len(on_axis) // _LINES)]
    ax.vlines(
        pulled["rate"], pulled["rate"], pulled["theta"], colors=style.GREY,
        linewidths=0.6, alpha=0.7, zorder=1,
    )  # fmt: skip
    if rates:
        _log_axes(ax, len(on_axis) < len(items), (low, high), items["theta"])
    word = style.named(kind.words.size, sizes)
    _size_legend(ax, items["size"].to_numpy(), word, power)
    name = style.escaped(observed, 20)
    unit = style.escaped(sizes, 20)
    across = f"{kind.words.estimate}: {name}"
    across += "" if kind.direct else f" / {unit}"
    events = kind.words.events if kind.direct else name
    upwards = (
        f"posterior mean of theta, {kind.words.unit.format(outcome=events, size=unit)}"
    )
    number = f"{len(items):,}"
    number += f" of {len(usable):,}" if len(items) < len(usable) else ""
    style.finish(ax, f"Shrinkage (n = {number} items)", across, upwards, legend=False)
    return ax


def _outcome_of(columns: dict[str, str | None]) -> Outcome:
    """Return the kind whose two columns are named."""
    roles = {role for role, name in columns.items() if name}
    for outcome in OUTCOMES.values():
        if roles == {outcome.observed, outcome.size}:
            return outcome
    names = ", ".join(
        f"{role}={shown(columns[role])}" for role in columns if role in roles
    )
    pairs = ", or ".join(
        f"{kind.observed}= and {kind.size}=" for kind in OUTCOMES.values()
    )
    raise ItemsError(
        f"{names or 'no outcomes'}: name both columns, {pairs}, and no others"
    )


def _numbers(table: Any, names: list[str]) -> list[Floats]:
    """Return columns of a table as numbers, NaN where they are missing."""
    frame = open_table(table, list(dict.fromkeys(names))).to_pandas()
    try:
        return [frame[name].to_numpy(dtype=float, na_value=np.nan) for name in names]
    except (TypeError, ValueError, OverflowError):
        listed = ", ".join(map(repr, names))
        raise ItemsError(
            f"columns {listed} must be numeric, as from soc.item_posteriors"
        ) from None


def _points(ax: Axes, items: pd.DataFrame, score: str, rates: bool) -> None:
    """Draw items coloured by the score, with areas that grow with their size."""
    low, high = map(float, np.quantile(items["t"], [0.01, 0.99]))
    logarithmic = rates and 0 < low < high
    norm = colors.LogNorm(low, high) if logarithmic else colors.Normalize(low, high)
    # items of a large size are few and drawn last, on top
    items = items.sort_values("size", kind="stable")
    size = items["size"].to_numpy()
    points = ax.scatter(
        items["rate"], items["theta"], _areas(size, size), items["t"], norm=norm,
        cmap="viridis", alpha=0.6, linewidths=0, zorder=2,
    )  # fmt: skip
    bar = ax.figure.colorbar(
        points, ax=ax, label=style.named("score", score), shrink=0.7
    )
    if logarithmic:
        style.plain_ticks(bar.ax.yaxis, (low, high))


def _areas(size: Floats, sizes: Floats) -> Floats:
    """Return areas of points that grow with the logarithm of the size, within those drawn."""
    low = sizes.min()
    high = sizes.max()
    return 6.0 + 54.0 * np.log(size / low) / max(np.log(high / low), 1e-300)


def _log_axes(
    ax: Axes, zeros: bool, rate: tuple[float, float], theta: pd.Series
) -> None:
    """Make both axes logarithmic, with a place for rate 0."""
    low, high = rate
    style.scaled_axis(ax.yaxis, LOG.name, theta)
    style.scaled_axis(ax.xaxis, LOG.name, rate)
    if zeros:
        ax.set_xscale("symlog", linthresh=low)
        ax.xaxis.set_major_formatter(style.plain)
    begin = -0.5 * low if zeros else low / 1.2
    ax.set(xlim=(begin, 1.3 * high), ylim=(theta.min() / 1.3, 1.3 * theta.max()))


def _size_legend(ax: Axes, size: Floats, title: str, power: float) -> None:
    """Explain the areas of the least, the median and the largest size to a power."""
    levels = np.unique(np.quantile(size, [0.0, 0.5, 1.0]))
    for level, area in zip(levels, _areas(levels, size), strict=True):
        label = style.plain(float(f"{level**power:.3g}"))
        ax.scatter([], [], s=area, color=style.GREY, label=label)
    ax.legend(title=title, title_fontsize=8, loc="lower right", **style.FRAMELESS)


@dataclass(eq=False, repr=False)
class CalibrationDisplay:
    """A calibration curve with its band, as data and as a picture.

    Attributes
    ----------
    score : numpy.ndarray, shape (200,)
        Predicted probabilities, or scores.
    mean : numpy.ndarray, shape (200,)
        E(y | score) there.
    lower : numpy.ndarray, shape (200,)
        Lower end of the band that holds the whole curve with probability `prob`.
    upper : numpy.ndarray, shape (200,)
        Its upper end.
    bins : pandas.DataFrame
        Mean prediction ``p`` of each bin, its items ``n``, ``share`` of 1s, and its interval from
        ``low`` to ``high``.
    prob : float
        Probability of the band and the intervals.
    fit : Fit
        The fit behind the curve.
    name : str or None
        The name of the curve.
    ax_ : Axes or None
        Axes, once drawn.
    figure_ : Figure or None
        Figure, once drawn.
    line_ : Line2D or None
        Curve, once drawn.

    Examples
    --------
    >>> import numpy as np, soc_pymc as soc
    >>> p = np.random.default_rng(0).uniform(0.02, 0.98, 2000)
    >>> soc.plots.CalibrationDisplay.from_predictions(np.random.default_rng(1).random(2000) < p, p)
    <CalibrationDisplay: 2,000 items in 10 bins, 90% band>
    """

    score: Floats
    mean: Floats
    lower: Floats
    upper: Floats
    bins: pd.DataFrame
    prob: float
    fit: Fit
    name: str | None = None
    ax_: Axes | None = None
    figure_: Figure | None = None
    line_: Line2D | None = None

    def __repr__(self) -> str:
        name = "" if self.name is None else f" {self.name!r}"
        items = f"{counted(int(self.bins['n'].sum()), 'item')} in {counted(len(self.bins), 'bin')}"
        return f"<CalibrationDisplay{name}: {items}, {self.prob:.0%} band>"

    @classmethod
    def from_predictions(
        cls, y: ArrayLike, p: ArrayLike, **options: Any
    ) -> "CalibrationDisplay":
        """Fit the curve to labels and predictions, and draw it: `plot_calibration`."""
        return plot_calibration(y, p, **options)

    def plot(self, ax: Axes | None = None) -> "CalibrationDisplay":
        """Draw the curve in the next colour, its band, and bins over the diagonal; return self."""
        panel: Axes = style.panels(ax, (5.5, 5.5))[0]
        probabilities = self.score.min() >= 0 and self.score.max() <= 1
        if probabilities and _DIAGONAL not in panel.get_legend_handles_labels()[1]:
            panel.plot(
                [0, 1], [0, 1], "--", color=style.REFERENCE, lw=1, label=_DIAGONAL
            )
        color = style.PALETTE[len(panel.containers) % len(style.PALETTE)]
        name = "E(y | p)" if self.name is None else style.escaped(self.name)
        label = f"{name}, {counted(int(self.bins['n'].sum()), 'item')}"
        [self.line_] = panel.plot(self.score, self.mean, color=color, label=label)
        panel.fill_between(
            self.score, self.lower, self.upper, color=color, alpha=0.2, lw=0
        )
        share = self.bins["share"]
        bars = [share - self.bins["low"], self.bins["high"] - share]
        # not clipped: a point at 0 or 1 is complete
        panel.errorbar(
            self.bins["p"], share, bars, fmt="o", color=color, markersize=4,
            clip_on=False, zorder=3,
        )  # fmt: skip
        panel.set(ylim=(0, 1))
        if probabilities:
            panel.set(xlim=(0, 1), aspect="equal")
        prob = f"{self.prob:.0%}"
        title = f"Calibration curve, {prob} band of the whole curve\ndots: bins, {prob} intervals"
        across = "predicted probability" if probabilities else "score"
        style.finish(panel, title, across, "share of the positive class")
        self.ax_ = panel
        self.figure_ = panel.figure  # type: ignore[assignment]
        return self


def plot_calibration(
    y: ArrayLike,
    p: ArrayLike = (),
    *,
    n_bins: int = 10,
    pos_label: object = None,
    prob: float = 0.9,
    prior: Beta | None = None,
    name: str | None = None,
    ax: Axes | None = None,
    sample_weight: ArrayLike | None = None,
) -> CalibrationDisplay:
    """Draw the calibration curve of predicted probabilities with a band, from labels alone.

    The curve is the mean of a Beta prior given the score. Where the band leaves the diagonal, the
    probabilities are not calibrated. Scores in points, such as 300 to 850, have no diagonal.

    Parameters
    ----------
    y : array_like, shape (n,)
        Labels of two classes.
    p : array_like, shape (n,)
        Predicted probabilities of the positive class, of which exact 0 and 1 are not part of the
        curve; or scores of any kind, of which a quarter or more are not from 0 to 1.
    n_bins : int
        Number of bins of equally many items.
    pos_label : object
        Label of the positive class; None is 1.
    prob : float
        Probability of the intervals of bins and of the band of the whole curve.
    prior : Beta or None
        Prior of the calibrated probability; None is ``soc.Beta()``.
    name : str or None
        Name of the curve in the legend.
    ax : Axes or None
        Axes to draw in, where each further curve has another colour; None makes a figure.
    sample_weight : array_like, shape (n,), or None
        Whole numbers >= 0: how many equal items each label stands for. Other weights are refused.

    Returns
    -------
    CalibrationDisplay
        The curve with its band, as data and as a picture.

    Raises
    ------
    ItemsError
        If labels or probabilities are not as above.

    Examples
    --------
    >>> import numpy as np, soc_pymc as soc
    >>> p = np.random.default_rng(0).uniform(0.02, 0.98, 2000)
    >>> soc.plots.plot_calibration(np.random.default_rng(1).random(2000) < p**2, p)
    <CalibrationDisplay: 2,000 items in 10 bins, 90% band>
    """
    n_bins = Whole(1)(n_bins, "n_bins")
    prob = PROBABILITY(prob, "prob")
    name = OrNone(A(str, "text"))(name, "name")
    ax = AX(ax, "ax")
    if isinstance(y, Fit):
        raise ItemsError(
            "y is a fit, not labels: soc.plots.plot_curves(fit) draws its curves, and "
            "plot_calibration(y, p) takes labels y with predicted probabilities p"
        )
    labels = np.asarray(y)
    predicted = numbers_of(p, "p", ItemsError)
    if labels.ndim != 1 or predicted.shape != labels.shape:
        shapes = f"not {labels.shape} and {predicted.shape}"
        raise ItemsError(f"y and p must be vectors of one length, {shapes}")
    labels = _is_positive(labels, pos_label)
    weights = 1 if sample_weight is None else sample_weight
    weight = per_item(weights, "sample_weight", len(labels), ItemsError)
    labels, predicted, weight = (x[weight != 0] for x in (labels, predicted, weight))
    outcome = OUTCOMES[BinomialItems.kind]
    foreign = outcome.are_foreign(predicted, predicted, np.ones(predicted.size))
    valid = (predicted >= 0) & (predicted <= 1)
    needed = "probabilities p are not from 0 to 1"
    if foreign:
        valid = np.isfinite(predicted)
        needed = "scores p are not finite"
    if invalid := int((~valid).sum()):
        raise ItemsError(f"{invalid:,} of {predicted.size:,} {needed}")
    proper = foreign | outcome.theta.holds(predicted)
    if not proper.any():
        raise ItemsError(
            "all probabilities p are exactly 0 or 1: there is no curve to draw"
        )
    columns = {"p": predicted, "y": labels.astype(float), "n": 1}
    table = pd.DataFrame(columns).assign(sample_weight=weight)[proper]
    repeats = None if sample_weight is None else "sample_weight"
    items = BinomialItems(table, score="p", successes="y", trials="n", weight=repeats)
    fit = fit_prior(summarize(items, on_leakage="ignore"), prior)
    # beyond 98% of the scores, what is smooth in the logit runs upright along the linear axis
    axis = fit.axis("mean")
    labels, predicted, proper = (
        np.repeat(x, weight.astype(np.int64)) for x in (labels, predicted, proper)
    )
    low, high = axis(np.quantile(predicted[proper], _ENDS))
    scores = np.asarray(axis.inverse(np.linspace(low, high, _POINTS)))
    curve = calibration_curves(fit, scores)[["mean"]]
    lower, mean, upper = bands(curve, prob, simultaneous=True)["mean"].to_numpy()
    observed = _share_by_bin(labels, predicted, proper, n_bins, prob)
    curves = {"score": scores, "mean": mean, "lower": lower, "upper": upper}
    display = CalibrationDisplay(**curves, bins=observed, prob=prob, fit=fit, name=name)
    return display.plot(ax)


def _is_positive(labels: NDArray[Any], pos_label: object) -> Bools:
    """Return whether each label is that of the positive class."""
    classes = pd.unique(pd.Series(labels))
    unknown = [label for label in classes if label not in (0, 1)]
    if pos_label is None and unknown:
        remedy = "say which is positive by pos_label=, or use soc.BinomialItems"
        raise ItemsError(f"labels y are {shown(unknown[0])}, neither 0 nor 1: {remedy}")
    if pos_label is not None and (len(classes) > 2 or pos_label not in classes):
        values = f"these have {len(classes):,} values"
        raise ItemsError(
            f"pos_label={shown(pos_label)} must be one of two labels y: {values}"
        )
    return np.asarray(labels == (1 if pos_label is None else pos_label), dtype=bool)


def _share_by_bin(
    labels: Bools, p: Floats, proper: Bools, n_bins: int, prob: float
) -> pd.DataFrame:
    """Return shares of positive labels in bins of equally many items, with Jeffreys' intervals."""
    cuts = np.unique(
        np.quantile(p[proper], np.arange(1, n_bins) / n_bins, method="higher")
    )
    number = np.where(
        proper, np.searchsorted(cuts, p, side="right"), np.where(p == 0, -1, n_bins)
    )
    rows = pd.DataFrame({"p": p, "y": labels}).groupby(number)
    columns = {"p": rows["p"].mean(), "n": rows.size(), "share": rows["y"].mean()}
    bins = pd.DataFrame(columns)
    positive = bins["n"] * bins["share"]
    beta = stats.beta(positive + 0.5, bins["n"] - positive + 0.5)
    # an interval holds its point, also where all labels are the same
    bins["low"] = np.where(positive == 0, 0.0, beta.ppf((1 - prob) / 2))
    bins["high"] = np.where(positive == bins["n"], 1.0, beta.ppf((1 + prob) / 2))
    return bins.reset_index(drop=True)


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
    # `worst` refuses it
    assert far is not None
    ax = style.panels(ax, (7.5, 4.5))[0]
    columns = far.gains.items.columns
    _, sds = residuals(far.gains.posterior, columns)
    label = "an item; 0: as expected given its score"
    ax.scatter(
        columns["score"], sds, 8, style.GREY, alpha=0.4, linewidths=0, label=label
    )
    score = far.items.columns["score"][: len(worst)]
    label = f"the {len(worst)} that the fit expects least, with their row numbers"
    ax.scatter(score, worst["sds"], s=24, color=style.RED, label=label)
    for item, x, y in zip(worst.index, score, worst["sds"], strict=True):
        ax.annotate(
            f"{item:,}", (x, y), (4, 3), textcoords="offset points", fontsize=_LABEL
        )
    ax.axhline(0, color=style.REFERENCE, linewidth=0.8)
    if style.is_rate(columns["score"]):
        style.scaled_axis(ax.xaxis, LOG.name, columns["score"])
    title = f"Outcomes of {counted(len(sds), 'item')}"
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
    color = style.VERDICT_COLORS[verdict]
    ax.plot(u, pit["randomised"], color=color, linewidth=1.5, label=f"PIT: {verdict}")
    highest = max(float(np.abs(pit[line]).max()) for line in ("randomised", "averaged"))
    reach = max(1.5 * bound, 1.1 * highest)
    ax.set(xlim=(0, 1), ylim=(-reach, reach), xticks=[0, 0.5, 1])
    ax.locator_params(axis="y", nbins=5)
    ax.tick_params(labelsize=8)
    size = counted(n, "item")
    return (
        f"{style.escaped(row['where'], 36)}\n{size}, p {p_value(row['p'])}: {verdict}"
    )


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
    title = f"{counted(int(n.sum()), 'item')} in {counted(len(n), 'bin')} of the score"
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
        named = f"{reference:g}{words}"
        ax.axvline(reference, color=style.REFERENCE, lw=1, ls="--", label=named)
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
    # the first row on top
    ax.set_ylim(len(part) - 0.4, -0.6)
