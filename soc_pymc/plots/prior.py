"""The prior of theta: its quantiles over the score, with the bins' outcomes, and in one bin."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from matplotlib.axes import Axes

from .._lib.arguments import PROBABILITY, OrNone, Real, Whole, checked, shown
from .._lib.arrays import Floats
from .._lib.errors import FitError, ItemsError
from ..data.items import Items
from ..data.tables import batches, open_table, scan
from ..families.scales import LINEAR, Scale
from ..inference.results import Fit
from ..posterior.interface import Columns
from ..posterior.item_columns import columns_of, posterior_roles
from ..posterior.predictive import posterior_of
from . import canvas, fitted
from .arguments import AX, FIT, levels_of

_FAR = 100.0  # from the least mean, as a factor: quantiles below it would squeeze the picture
_LEVELS = np.concatenate([[5e-4], np.linspace(0.0025, 0.9975, 400), [0.9995]])
_MOST = 0.995  # quantile of the outcomes up to which they are shown
_LEAST_EXPOSURE = 50.0
_POINT = 0.01  # of the axis: a narrower prior is drawn as a line


@checked(fit=FIT, probs=levels_of, ax=AX)
def plot_prior_ribbon(
    fit: Fit,
    probs: Sequence[float] = (0.05, 0.5, 0.95),
    ax: Axes | None = None,
    *,
    exposure: float | None = None,
) -> Axes:
    """Draw quantiles of theta given the score, at the posterior means of the curves.

    This is the spread of the items' own theta, not the uncertainty of a curve. Of a fit with groups
    it is drawn at the curves that they share.

    Parameters
    ----------
    fit
        The fit.
    probs
        Probabilities of the quantiles, increasing.
    ax
        Axes to draw in; None makes a figure.
    exposure
        Exposure (noise sd) at which to draw the prior of a fit with a term in it, else None.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> import soc_pymc as soc
    >>> soc.plots.plot_prior_ribbon(fit, probs=(0.25, 0.5, 0.75)).get_xlabel()
    'score'
    """
    fitted.need_size(fit, exposure)
    levels, steps = np.asarray(probs), fitted.has_steps(fit)
    score = fitted.fitted_curves(fit, exposure)["score"].to_numpy()
    mean, lines = prior_quantiles(fit, score, levels, exposure)
    ax = canvas.panels_in(ax, (7, 4.5))[0]
    for low, high in zip(lines[: len(lines) // 2], lines[::-1], strict=False):
        fitted.draw_band(ax, fitted.Line(score, mean, steps, low, high), canvas.CURVE, 0.12, "_")
    ax.margins(x=0.08)
    _name_lines(fit, ax, score, levels, lines)
    style: dict[str, Any] = {"linewidth": 1.4, "linestyle": "--"}
    middle = fitted.Line(score, mean, steps)
    fitted.draw_line(ax, middle, canvas.CURVE, "E(theta | score)", **style)
    fitted.score_axis(fit, ax, score)
    theta_axis(fit, ax, lines, mean)
    title = f"Quantiles of theta given the score{fitted.at_size(fit, exposure)}"
    words = fitted.score_name(fit, "score")
    canvas.finish(ax, f"{title}\n{fitted.total(fit)}", words, ax.get_ylabel())
    return ax


@checked(fit=FIT, probs=levels_of, prob=PROBABILITY, ax=AX)
def plot_adjusted_prior(
    fit: Fit,
    probs: tuple[float, float] = (0.1, 0.95),
    prob: float = 0.9,
    ax: Axes | None = None,
    *,
    exposure: float | None = None,
) -> Axes:
    """Draw the fitted prior with the outcomes of all bins: the paper's figure of the adjusted G.

    Dots are overall estimates of the mean theta of each bin: events / exposure, or the mean value.
    They lie above E(theta | t) where items of larger exposure have larger theta. Of a fit with
    groups the prior is the one that they share. The line theta = t is drawn where scores estimate
    theta. Section 5.1 of Muralidharan and Najmi.

    Parameters
    ----------
    fit, prob
        As of `plot_curves`; `prob` is of the band of E(theta | t).
    probs
        Probabilities of the two quantiles of theta between which is shaded, increasing.
    ax, exposure
        As of `plot_prior_ribbon`.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> import soc_pymc as soc
    >>> soc.plots.plot_adjusted_prior(fit).get_xlabel()
    'score t'
    """
    levels = np.asarray(probs)
    if len(levels) != 2:
        raise FitError(
            f"probs={shown(tuple(levels.tolist()))} must be two: what lies between them is shaded"
        )
    fitted.need_size(fit, exposure)
    curves = fitted.fitted_curves(fit, exposure)[["mean"]]
    score = curves["score"].to_numpy()
    mean, lines = prior_quantiles(fit, score, levels, exposure)
    ax = canvas.panels_in(ax, (7.5, 5))[0]
    label = f"theta given t: {100 * levels[0]:g}% to {100 * levels[1]:g}% of the prior"
    between = fitted.Line(score, mean, fitted.has_steps(fit), *lines)
    fitted.draw_band(ax, between, canvas.CURVE, 0.2, label)
    line = fitted.curve_lines(fit, curves, prob)["mean"]
    fitted.draw_band(ax, line, canvas.CURVE, 0.45, f"E(theta | t): {prob:.0%} band at each score")
    fitted.draw_line(ax, line, canvas.CURVE, f"E(theta | t): {line.name}", zorder=4)
    if fitted.scores_estimate_theta(fit):
        fitted.draw_identity(ax, score)
    dots = _bin_dots(fit, ax)
    fitted.score_axis(fit, ax, score)
    theta_axis(fit, ax, np.vstack([lines, mean]), mean, dots)
    title = f"Prior of theta given t{fitted.at_size(fit, exposure)}\n{fitted.total(fit)}"
    canvas.finish(ax, title, fitted.score_name(fit), ax.get_ylabel())
    return ax


def _bin_dots(fit: Fit, ax: Axes) -> Floats:
    """Draw and return outcomes of bins; those without events stand at the foot of the axes."""
    score, own = fitted.bin_outcomes(fit)
    scale, events = fitted.theta_scale(fit), fitted.outcome_of(fit).words.events
    seen, label = scale.holds(own), f"bins: {fitted.own_estimate(fit)}"
    canvas.draw_dots(ax, score[seen], own[seen], canvas.OBSERVED, label, zorder=3.5)
    canvas.draw_floor(ax, score[own <= scale.low], f"bins without {events}")
    canvas.draw_floor(ax, score[own >= scale.high], f"bins of {events} alone", canvas.TOP)
    return own[seen]


def prior_quantiles(
    fit: Fit, score: Floats, levels: Floats, exposure: float | None = None
) -> tuple[Floats, Floats]:
    """Mean (n,) and quantiles (k, n) of theta at scores (n,), at the curves' posterior means.

    `exposure` is that (or the noise sd) which the prior depends on; None where it depends on none.
    """
    size = {} if exposure is None else {fitted.outcome_of(fit).size: np.full(len(score), exposure)}
    found = posterior_of(fit).scorer(tuple(levels), plug_in=True)({"score": score, **size})
    return found[0], found[3 : 3 + len(levels)]


def theta_axis(
    fit: Fit, ax: Axes, lines: Floats, mean: Floats, others: Floats | tuple[()] = ()
) -> None:
    """Axis of theta that holds the prior: on theta's own scale, with its unit.

    Quantiles (k, n) and mean (n,) of theta are shown, and `others`, all on that scale.
    """
    scale = fitted.theta_scale(fit)
    ax.set_ylabel(f"theta, {fitted.theta_unit(fit)}")
    if scale is LINEAR:
        return
    lowest, highest = canvas.far_ends(scale, float(mean.min()), float(mean.max()), _FAR)
    low = float(np.min(others, initial=max(float(lines.min()), lowest)))
    high = max(float(lines.max()), float(mean.max()))
    high = float(np.max(others, initial=min(high, highest)))
    canvas.scaled_axis(ax.yaxis, scale.name, low, high)
    around = scale.position(np.array([low, high])) + np.array([-1.0, 1.0]) * np.log(1.3)
    ax.set_ylim(*scale.score(around))


def _name_lines(fit: Fit, ax: Axes, score: Floats, levels: Floats, lines: Floats) -> None:
    """Draw the quantiles, with their names where they are furthest apart."""
    ends = lines[[0, -1]]
    scale = fitted.theta_scale(fit)
    ends = scale.position(np.maximum(ends, scale.low + 1e-300))
    spread = ends[1] - ends[0]
    end, shift, side = (-1, 4, "left") if spread[-1] >= spread[0] else (0, -4, "right")
    drawstyle = "steps-mid" if fitted.has_steps(fit) else "default"
    text: dict[str, Any] = {"textcoords": "offset points", "ha": side, "va": "center"}
    for p, line in zip(levels, lines, strict=True):
        width = 2.0 if p == 0.5 else 1.0
        ax.plot(score, line, linewidth=width, color=canvas.CURVE, drawstyle=drawstyle)
        at = (score[end], line[end])
        ax.annotate(f"{100 * p:g}%", at, xytext=(shift, 0), fontsize=8, color=canvas.CURVE, **text)


# --- one bin -------------------------------------------------------------------------------------


@checked(fit=FIT, bin=OrNone(Whole(0)), least_exposure=OrNone(Real()), ax=AX)
def plot_prior_in_bin(
    fit: Fit,
    items: Items,
    bin: int | None = None,
    least_exposure: float | None = None,
    ax: Axes | None = None,
    *,
    exposure: float | None = None,
) -> Axes:
    """Draw the prior density of theta in one bin over the histogram of its items' own outcomes.

    The two are not supposed to agree: the histogram is that of theta with noise added, and so is
    wider, and for counts has a spike at 0. Of a fit with groups the prior is the one that they
    share. Section 5.1 of Muralidharan and Najmi.

    Parameters
    ----------
    fit, items
        The fit, of which the prior is drawn at the bin's score and the posterior means of the
        curves; and the items that made it, or others.
    bin
        Number of the bin, from 0, among those of the fit in the order of their scores; None takes
        the middle one.
    least_exposure
        Least exposure of the items shown; None is 50. Values have none.
    ax, exposure
        As of `plot_prior_ribbon`.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    FitError
        If there is no such bin, or an argument is not as above.
    ItemsError
        If the items are not of the fit's kind, or none in the bin has such an exposure.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> soc.plots.plot_prior_in_bin(fit, items, least_exposure=20).get_xlabel()
    'theta and count / exposure, events per unit of exposure'
    """
    fitted.need_variance(fit)
    fitted.need_size(fit, exposure)
    outcome = fitted.outcome_of(fit)
    if least_exposure is not None and not outcome.sizes_add:
        raise FitError(
            f"items with {outcome.words.outcomes} have no exposure: leave out least_exposure="
        )
    least = least_exposure
    if outcome.sizes_add and least is None:
        least = _LEAST_EXPOSURE
    order = np.argsort(fit.data["constant_data"]["score"].to_numpy())
    number = len(order) // 2 if bin is None else bin
    if number >= len(order):
        raise FitError(f"there is no bin {shown(number)}: the fit has {len(order):,}, from 0 on")
    own = fit.data["constant_data"].to_dataset().isel(bin=order[number])
    low, high = float(own["score_min"]), float(own["score_max"])
    estimates = _own_estimates(fit, items, (low, high), least)
    if not len(estimates):
        such = "" if least is None else f" with {outcome.words.size} >= {canvas.plain(least)}"
        raise ItemsError(
            f"bin {number} (scores {low:.4g} to {high:.4g}) holds no item{such}: take another bin "
            f"of {len(order):,}, or a lower least_exposure="
        )
    _, lines = prior_quantiles(fit, np.array([float(own["score"])]), _LEVELS, exposure)
    ax = canvas.panels_in(ax, (7, 4.5))[0]
    where = f"bin {number:,} of {len(order):,}, t from {low:.4g} to {high:.4g}"
    _draw_bin(fit, ax, lines[:, 0], estimates, least)
    if fitted.scores_estimate_theta(fit):
        style: dict[str, Any] = {"color": canvas.REFERENCE, "linewidth": 1, "linestyle": "--"}
        ax.axvline(float(own["score"]), label="theta = t", **style)
    title = f"Prior and outcomes in {where}{fitted.at_size(fit, exposure)}"
    canvas.finish(ax, title, ax.get_xlabel(), "density")
    return ax


def _own_estimates(
    fit: Fit, items: Items, ends: tuple[float, float], least: float | None
) -> Floats:
    """Own estimates of the items with scores between ends, and with sizes of at least so much."""
    outcome, roles = fitted.outcome_of(fit), posterior_roles(fit, posterior_of(fit), items)
    scan(items, progress=False)
    names = list(dict.fromkeys(roles.values()))
    found = []
    for batch in batches(open_table(items.source, names), names):
        columns: Columns = columns_of(pa.Table.from_batches([batch]), roles)
        score, size = columns["score"], columns[outcome.size]
        inside = (score >= ends[0]) & (score <= ends[1])
        if least is not None:
            inside &= size >= least
        found.append(outcome.estimate(columns[outcome.observed][inside], size[inside]))
    estimates = np.concatenate(found)
    return estimates[np.isfinite(estimates)]


def _draw_bin(fit: Fit, ax: Axes, theta: Floats, own: Floats, least: float | None) -> None:
    """The histogram, and the density from closely spaced quantiles, whatever the prior's family."""
    outcome = fitted.outcome_of(fit)
    low, high = _range(theta, own, fitted.theta_scale(fit))
    shown = own[(own >= low) & (own <= high)]
    cells = int(np.clip(2.0 * len(own) ** 0.4, 12, 60))
    edges = np.linspace(low, high, cells + 1)
    share = np.histogram(shown, edges)[0] / (len(own) * np.diff(edges))
    roles = outcome.observed, outcome.size
    name, size = (fitted.column_name(fit, role) or role for role in roles)
    what = name if outcome.direct else f"{name} / {size}"
    label = f"{what} of {len(own):,} items"
    label += "" if least is None else f", {size} >= {canvas.plain(least)}"
    beyond = len(own) - len(shown)
    label += f" ({beyond:,} beyond the axis)" if beyond else ""
    ax.stairs(share, edges, fill=True, color=canvas.OBSERVED, alpha=0.35, label=label)
    highest = max(float(share.max()), _density(ax, theta, _POINT * (high - low)))
    ax.set_xlim(low, high)
    ax.set_ylim(0, 1.15 * highest)
    ax.set_xlabel(f"theta and {what}, {fitted.theta_unit(fit)}")


def _density(ax: Axes, theta: Floats, width: float) -> float:
    """Draw the density between quantiles, or one upright line for all; returns its height."""
    style: dict[str, Any] = {"color": canvas.CURVE, "linewidth": 1.8}
    if theta[-2] - theta[1] < width:
        label = "prior of theta given t, all but a point"
        ax.axvline(float(np.median(theta)), label=label, **style)
        return 0.0
    label, rises = "prior density of theta given t", np.diff(theta) > 0
    if not rises.all():  # a share of theta is exactly 0
        label += f", {np.diff(_LEVELS)[~rises].sum():.0%} at 0"
    middle = 0.5 * (theta[1:] + theta[:-1])[rises]
    density = np.diff(_LEVELS)[rises] / np.diff(theta)[rises]
    ax.plot(middle, density, label=label, **style)
    return float(density.max())


def _range(theta: Floats, own: Floats, scale: Scale) -> tuple[float, float]:
    """Range that holds the prior and nearly all outcomes; from the least possible theta on."""
    high = max(float(theta[-2]), float(np.quantile(own, _MOST)))
    if np.isfinite(scale.low):
        return scale.low, min(1.02 * high, scale.high)
    low = min(float(theta[1]), float(np.quantile(own, 1 - _MOST)))
    pad = 0.02 * (high - low)
    return low - pad, high + pad
