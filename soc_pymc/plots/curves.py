"""The calibration curves: with their bands, beside the bins' own estimates, and explained."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.patches import Patch
from numpy.typing import NDArray

from .._lib.arguments import PROBABILITY, OrNone, checked, switch
from .._lib.arrays import Floats
from .._lib.errors import FitError
from ..families.scales import LOG
from ..inference.results import Fit
from . import canvas, fitted
from .arguments import FIT, AxesOf
from .prior import prior_quantiles, theta_axis

_NEAR_0 = 1e-2  # of the least value of a curve
_SHARES = np.linspace(0.98, 0.02, 25)  # central shares of theta, one shade of the strip for each
_PALEST, _DEEPEST = 0.07, 0.6  # how much of the colour the outer and the inner shade have


@checked(fit=FIT, prob=PROBABILITY, simultaneous=switch, axes=AxesOf(2))
def plot_curves(
    fit: Fit,
    prob: float = 0.9,
    simultaneous: bool = True,
    axes: Sequence[Axes] | NDArray[Any] | None = None,
) -> NDArray[Any]:
    """Draw E(theta | t) over the binned data, and below it how widely theta varies given the score.

    The lower curve is the coefficient of variation of theta for counts, its sd for values and for
    successes in trials. Means of successes are drawn on the scale of their log odds.

    A dot is what the items of some neighbouring bins show of theta together: their counts over
    their exposures, which weighs items by exposure (trials), or the plain mean of their values.
    With a term in exposure the curve averages over items of similar scores with the same weights,
    and the legend says so; without such a term weights do not matter to it.

    Scores with a mean and variance of their own (`Fit.atoms`) are points with bars.

    Parameters
    ----------
    fit
        The fit. One with a single draw, such as those of `soc.FiveSteps`, has no bands.
    prob, simultaneous
        Probability of the bands, which are at each score by itself (dark); and whether to add wider
        ones, that hold whole curves (light).
    axes
        Two axes to draw in; None makes a figure.

    Returns
    -------
    numpy.ndarray
        The two axes.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> len(soc.plots.plot_curves(fit))
    2
    """
    curves = _mean_and_spread(fit)
    weighted = fitted.weighs_by_size(fit)
    score = curves["score"].to_numpy()
    kinds = [(False, 0.35, "band at each score (pointwise)")]
    if simultaneous and not fit.one_draw:
        kinds.insert(0, (True, 0.15, "band of whole curves (simultaneous)"))
    both = canvas.panels_in(axes, (7, 7), 2, sharex=True, height_ratios=(3, 2))
    for whole, alpha, words in kinds:
        lines = fitted.curve_lines(fit, curves, prob, whole).values()
        for ax, line in zip(both, lines, strict=True):
            fitted.draw_band(ax, line, canvas.CURVE, alpha, f"{prob:.0%} {words}")
    for ax, line in zip(both, lines, strict=True):
        name = f"{line.name}, {weighted}" if weighted else line.name
        fitted.draw_line(ax, line, canvas.CURVE, name)
    if fit.atoms:
        _atom_points(fit, both, prob)
    _data_points(fit, both[0], score)
    _label_curves(fit, both, score)
    return both


def _mean_and_spread(fit: Fit) -> xr.Dataset:
    """Draws of E(theta | t), and of the sd of theta, for rates as a share of E(theta | t)."""
    return _spread_of(fit, fitted.fitted_curves(fit, by_size=True))


def _spread_of(fit: Fit, curves: xr.Dataset) -> xr.Dataset:
    """The same from draws of the curves."""
    spread = curves["variance"] ** 0.5
    if fitted.outcome_of(fit).relative:
        spread = spread / curves["mean"]
    return curves[["mean"]].assign(spread=spread.assign_attrs(banded="log"))


def _atom_points(fit: Fit, axes: NDArray[Any], prob: float) -> None:
    """Points with bars at scores that many items share, which are not on the curves."""
    curves = _spread_of(fit, fitted.fitted_curves(fit, by_size=True, score=fit.atoms))
    label = f"a score of many items, by itself (bars: {prob:.0%})"
    for ax, line in zip(axes, fitted.curve_lines(fit, curves, prob).values(), strict=True):
        bars = None
        if line.low is not None and line.high is not None:
            bars = line.middle - line.low, line.high - line.middle
        style: dict[str, Any] = {"color": canvas.CURVE, "elinewidth": 1.2, "zorder": 4}
        # bars of many items are short: their caps are wider than the marker, which is small
        style |= {"capsize": 5, "capthick": 1.2, "markersize": 2.2}
        ax.errorbar(line.score, line.middle, bars, fmt="D", label=label, **style)


def _data_points(fit: Fit, ax: Axes, score: Floats) -> None:
    """Outcomes of merged bins, and the identity where scores are rates themselves."""
    outcome, scale = fitted.outcome_of(fit), fitted.theta_scale(fit)
    centre, own, error = fitted.merged_outcomes(fit)
    centre, own, error = (x[scale.holds(own)] for x in (centre, own, error))
    # whiskers must stay on the axis
    low, high = (np.minimum(error, 0.9 * room) for room in (own - scale.low, scale.high - own))
    label = f"items: {fitted.own_estimate(fit)} (bars: ± 1 s.e. of {outcome.words.noise} alone)"
    style: dict[str, Any] = {"color": canvas.OBSERVED, "elinewidth": 0.8, "zorder": 3}
    ax.errorbar(centre, own, yerr=[low, high], fmt="o", markersize=3.5, label=label, **style)
    if outcome.positive and fitted.scores_estimate_theta(fit):
        ax.plot(
            score, score, color=canvas.REFERENCE, linewidth=1, linestyle="--", label="theta = score"
        )


def _label_curves(fit: Fit, axes: NDArray[Any], score: Floats) -> None:
    top, bottom = axes
    relative, scale = fitted.outcome_of(fit).relative, fitted.theta_scale(fit)
    fitted.score_axis(fit, top, score)
    if bottom.get_xscale() != top.get_xscale():
        fitted.score_axis(fit, bottom, score)
    for ax, name in ((top, scale.name), (bottom, LOG.name if relative else "")):
        if ax.dataLim.y0 > 0:
            canvas.scaled_axis(ax.yaxis, name, ax.dataLim.y0, ax.dataLim.y1)
    mean = f"E(theta | score)\n{fitted.theta_unit(fit)}"
    canvas.finish(top, f"Calibration curves\n{fitted.total(fit)}", "", mean)
    spread = "sd(theta | score)" + (" / E(theta | score)" if relative else "")
    canvas.finish(bottom, "", fitted.score_name(fit, "score"), spread)
    if not relative:
        bottom.set_ylim(bottom=0.0)


# --- bins by themselves --------------------------------------------------------------------------


@checked(fit=FIT, per_bin=OrNone(FIT), prob=PROBABILITY, axes=AxesOf(2))
def plot_smoothing(
    fit: Fit,
    per_bin: Fit | None = None,
    prob: float = 0.9,
    axes: Sequence[Axes] | NDArray[Any] | None = None,
) -> NDArray[Any]:
    """Draw E and Var of theta given the score as each bin alone estimates them, and smoothed.

    Section 5.1 of Muralidharan and Najmi.

    Parameters
    ----------
    fit
        The fit whose curves are drawn: by `soc.FiveSteps`, or by any other method, with bands.
    per_bin
        A fit by `soc.FiveSteps` of the same statistics, whose estimates by bin are drawn as dots;
        None takes those of `fit` itself. Bins that it left out have no dots.
    prob, axes
        As of `plot_curves`.

    Returns
    -------
    numpy.ndarray
        The two axes: of the mean and of the variance.

    Raises
    ------
    FitError
        If the fit is not smooth, there are no estimates by bin, or of other bins, or an argument is
        not as above.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> five_steps = soc.fit(stats, method=soc.FiveSteps())
    >>> len(soc.plots.plot_smoothing(fit, per_bin=five_steps))
    2
    """
    fitted.need_variance(fit)
    alone = (fit if per_bin is None else per_bin).data
    _check_bins(fit, fit if per_bin is None else per_bin)
    lines = fitted.curve_lines(fit, fitted.fitted_curves(fit)[["mean", "variance"]], prob)
    score = alone["constant_data"]["score"].to_numpy()
    both = canvas.panels_in(axes, (7, 7), 2, sharex=True)
    for ax, (name, curve) in zip(both, lines.items(), strict=True):
        own = alone["per_bin"][name].to_numpy()
        scale = LOG if name == "variance" else fitted.theta_scale(fit)
        # estimates at or near an end of the scale would squeeze its axis
        ends = float(curve.middle.min()), float(curve.middle.max())
        lowest, highest = canvas.far_ends(scale, *ends, 1.0 / _NEAR_0)
        known = np.isfinite(own)
        low, high = known & (own <= lowest), known & (own >= highest)
        label = f"each bin alone ({canvas.number_of(int(known.sum()), 'bin')})"
        on_axis = known & ~low & ~high
        canvas.draw_dots(ax, score[on_axis], own[on_axis], canvas.OBSERVED, label)
        canvas.draw_floor(ax, score[low], f"bins with a {name} at or near 0")
        canvas.draw_floor(ax, score[high], f"bins with a {name} at or near 1", canvas.TOP)
        fitted.draw_band(ax, curve, canvas.CURVE, 0.3, f"{prob:.0%} band at each score")
        fitted.draw_line(ax, curve, canvas.CURVE, f"smooth: {curve.name}", zorder=3)
        canvas.scaled_axis(ax.yaxis, scale.name, ax.dataLim.y0, ax.dataLim.y1)
        fitted.score_axis(fit, ax, score)
    title = f"Before and after smoothing\n{fitted.total(fit)}"
    mean = f"E(theta | t)\n{fitted.theta_unit(fit)}"
    canvas.finish(both[0], title, "", mean, legend=False)
    variance = "Var(theta | t)\nin the square of that unit"
    canvas.finish(both[1], "", fitted.score_name(fit), variance, legend=False)
    # of both, in the upper panel, where a rising curve leaves room
    both[0].legend(**canvas.legend_entries(both), **canvas.FRAMELESS)
    return both


def _check_bins(fit: Fit, own: Fit) -> None:
    """Refuse a fit that smooths nothing, and estimates by bin that are not there or of others."""
    if fitted.has_steps(fit):
        raise FitError(
            "the fit's curves are its bins' own estimates, nothing is smoothed: fit with "
            "soc.FiveSteps(smooth=True) or soc.VI()"
        )
    if "per_bin" not in own.data.children:
        raise FitError(
            f"a fit by soc.{type(own.method).__name__} has no estimates by bin: give per_bin=, a "
            "fit of the same statistics by soc.FiveSteps()"
        )
    mine, its = (f.data["constant_data"] for f in (fit, own))
    if mine.sizes["bin"] != its.sizes["bin"] or not all(
        np.array_equal(mine[name].to_numpy(), its[name].to_numpy())
        for name in ("n_items", "score_min", "score_max")
    ):
        raise FitError(
            f"per_bin= is a fit of other bins ({its.sizes['bin']:,}) than the fit "
            f"({mine.sizes['bin']:,}): make both of the same statistics"
        )


# --- what calibration of first and of second order estimate --------------------------------------


@checked(fit=FIT, prob=PROBABILITY, axes=AxesOf(2))
def plot_calibration_illustration(
    fit: Fit,
    prob: float = 0.9,
    axes: Sequence[Axes] | NDArray[Any] | None = None,
    *,
    exposure: float | None = None,
) -> NDArray[Any]:
    """Draw theta against the score twice: ordinary and second order calibration.

    At the left the estimate moves from the score to the curve E(theta | t). At the right a strip
    shows the distribution of theta around that curve: shades are central intervals of theta given
    t, the widest of 98%. The strip is drawn at the posterior means of the curves, for a fit with
    groups of those that they share. The line theta = t is drawn where scores estimate theta. Figure
    1 of Muralidharan and Najmi.

    Parameters
    ----------
    fit, prob, axes
        As of `plot_curves`; `prob` is of the band of E(theta | t).
    exposure
        As of `plot_prior_ribbon`.

    Returns
    -------
    numpy.ndarray
        The two axes.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> [ax.get_title() for ax in soc.plots.plot_calibration_illustration(fit)]
    ['Ordinary calibration', 'Second order calibration']
    """
    fitted.need_size(fit, exposure)
    curves = fitted.fitted_curves(fit, exposure)[["mean"]]
    score = curves["score"].to_numpy()
    levels = np.concatenate([(1 - _SHARES) / 2, (1 + _SHARES[::-1]) / 2])
    mean, lines = prior_quantiles(fit, score, levels, exposure)
    line = fitted.curve_lines(fit, curves, prob)["mean"]
    both = canvas.panels_in(axes, (8, 4.2), 1, 2, sharex=True, sharey=True)
    strip = _strip(fit, both[1], score, mean, lines)
    for ax in both:
        if fitted.scores_estimate_theta(fit):
            fitted.draw_identity(ax, score)
        if ax is both[0]:  # in the strip it could not be told from the strip
            fitted.draw_band(ax, line, canvas.CURVE, 0.25, f"E(theta | t): {prob:.0%} band")
        fitted.draw_line(ax, line, canvas.CURVE, f"E(theta | t): {line.name}")
        fitted.score_axis(fit, ax, score)
        theta_axis(fit, ax, lines, mean)
        ax.set_xlabel(fitted.score_name(fit))
        handles = ax.get_legend_handles_labels()[0] + ([strip] if ax is both[1] else [])
        ax.legend(handles=handles, loc="lower right", **canvas.FRAMELESS)
        canvas.tidy(ax)
    both[1].set_ylabel("")
    both[0].set_title("Ordinary calibration", fontsize=10)
    at = fitted.at_size(fit, exposure).replace(" and", ",", 1)
    both[1].set_title(f"Second order calibration{at}", fontsize=10)
    return both


def _strip(fit: Fit, ax: Axes, score: Floats, mean: Floats, lines: Floats) -> Patch:
    """Draw central intervals of theta, from the widest; returns their entry in the legend."""

    def shade(depth: float) -> tuple[float, ...]:
        return tuple(1.0 - depth * (1.0 - part) for part in to_rgb(canvas.CURVE))

    for k, depth in enumerate(np.linspace(_PALEST, _DEEPEST, len(_SHARES))):
        interval = fitted.Line(score, mean, fitted.has_steps(fit), lines[k], lines[-1 - k])
        fitted.draw_band(ax, interval, shade(depth), 1.0, "_")
    return Patch(color=shade(0.4), label=f"theta given t (palest: central {_SHARES[0]:.0%})")
