"""Pictures of items: how far outcomes pull posterior means, and calibration from labels alone."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import colors
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from .._lib.arguments import PROBABILITY, A, OrNone, Whole, numbers_of, per_item, shown
from .._lib.arrays import Bools, Floats
from .._lib.errors import ItemsError
from .._lib.reprs import counted
from ..data.items import BinomialItems
from ..data.sources import open_table
from ..data.summaries import summarize
from ..families import OUTCOMES
from ..families.outcome import Outcome
from ..families.priors import Beta
from ..families.scales import LOG
from ..fits.fit import Fit
from ..posterior.calibration import bands, calibration_curves
from . import style
from .style import AX

_NAME = A(str, "the name of a column", ItemsError)
_ITEMS = 2000  # points drawn at most
_LINES = 60
_DIAGONAL = "perfectly calibrated"
_LOOK: dict[str, Any] = {"cmap": "viridis", "alpha": 0.6, "linewidths": 0, "zorder": 2}
_PULL: dict[str, Any] = {
    "colors": style.GREY,
    "linewidths": 0.6,
    "alpha": 0.7,
    "zorder": 1,
}
# points of the curve, and quantiles at its ends
_POINTS = 200
_ENDS = (0.01, 0.99)


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
    ax.vlines(pulled["rate"], pulled["rate"], pulled["theta"], **_PULL)
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
    look = {"c": items["t"], "norm": norm, **_LOOK}
    size = items["size"].to_numpy()
    areas = _areas(size, size)
    points = ax.scatter(items["rate"], items["theta"], s=areas, **look)
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
        items = f"{self.bins['n'].sum():,} items in {counted(len(self.bins), 'bin')}"
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
        label = f"{name}, {self.bins['n'].sum():,} items"
        [self.line_] = panel.plot(self.score, self.mean, color=color, label=label)
        panel.fill_between(
            self.score, self.lower, self.upper, color=color, alpha=0.2, lw=0
        )
        share = self.bins["share"]
        bars = [share - self.bins["low"], self.bins["high"] - share]
        points: dict[str, Any] = {"fmt": "o", "color": color, "markersize": 4}
        # not clipped: a point at 0 or 1 is complete
        points |= {"clip_on": False, "zorder": 3}
        panel.errorbar(self.bins["p"], share, yerr=bars, **points)
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
    # which loads PyMC
    from ..inference.fitting import fit_prior

    labels = np.asarray(y)
    predicted = numbers_of(p, "p", ItemsError)
    if labels.ndim != 1 or predicted.shape != labels.shape:
        shapes = f"not {labels.shape} and {predicted.shape}"
        raise ItemsError(f"y and p must be vectors of one length, {shapes}")
    labels = _is_positive(labels, pos_label)
    weight = per_item(
        1 if sample_weight is None else sample_weight,
        "sample_weight",
        len(labels),
        ItemsError,
    )
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
    columns = {
        "p": predicted,
        "y": labels.astype(float),
        "n": 1,
        "sample_weight": weight,
    }
    table = pd.DataFrame(columns)[proper]
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
    bins = pd.DataFrame(
        {"p": rows["p"].mean(), "n": rows.size(), "share": rows["y"].mean()}
    )
    positive = bins["n"] * bins["share"]
    beta = stats.beta(positive + 0.5, bins["n"] - positive + 0.5)
    # an interval holds its point, also where all labels are the same
    bins["low"] = np.where(positive == 0, 0.0, beta.ppf((1 - prob) / 2))
    bins["high"] = np.where(positive == bins["n"], 1.0, beta.ppf((1 + prob) / 2))
    return bins.reset_index(drop=True)
