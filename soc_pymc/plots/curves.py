"""The calibration curves with their bands, over the outcomes of bins."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from numpy.typing import NDArray

from .._lib.arguments import PROBABILITY, checked, shown, switch
from .._lib.arrays import Floats
from .._lib.errors import FitError
from ..families.scales import LOG
from ..inference.results import FIT, Fit, outcome_roles
from ..posterior.calibration import bands, default_scores
from . import fit_data, style
from .prior import plot_prior

_LEVEL_BINS = 30  # of the histogram of a level
_SIZES = "share", "share_log_size"


@checked(fit=FIT, prob=PROBABILITY, simultaneous=switch)
def plot_curves(
    fit: Fit,
    prob: float = 0.9,
    simultaneous: bool = True,
    axes: Sequence[Axes] | NDArray[Any] | None = None,
    *,
    group: object = None,
) -> NDArray[Any]:
    """Draw E(theta | t) over the binned data, and below it how widely theta varies given the score.

    The lower curve is the coefficient of variation of theta for counts, its sd for values and for
    successes in trials. A dot is what the items of some neighbouring bins show of theta together.
    With a term in exposure curve and dots weigh items by exposure (trials), and the legend says so.
    Scores with a mean and variance of their own (`Fit.atoms`) are points with bars. If all items
    have the same score, or no score, there is no curve: the upper panel then shows the distribution
    of theta, and the lower panel the posterior of its mean.

    Parameters
    ----------
    fit
        The fit. One with a single draw, such as those of `soc.FiveSteps`, has no bands.
    prob, simultaneous
        Probability of the bands at each score (dark), and whether to add those that hold whole
        curves (light).
    axes
        Two axes to draw in; None makes a figure.
    group
        Label of a group (of crossed groups a tuple), or up to seven in a list: a line and a
        pointwise band for each, without dots. None draws the curve that groups share.

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
    groups = _groups(group)
    panels = style.panels(axes, (7, 7), 2, sharex=True, height_ratios=(3, 2))
    if fit.one_score and not fit.mean_only:
        return _draw_level(fit, panels, prob, groups)
    if groups:
        at_score = "" if fit.one_draw else f" ({prob:.0%} band at each score)"
        for label, color in zip(groups, style.PALETTE, strict=False):
            curves = _mean_and_spread(fit, group=label)
            words = ", ".join(map(str, label)) if isinstance(label, tuple) else label
            name = f"{style.escaped(words, 28)}{at_score}"
            _draw(fit, panels, curves, prob, color, name, [(False, 0.15, None)])
    else:
        curves = _mean_and_spread(fit)
        weighted = fit_data.weighs_by_size(fit)
        name = "estimate" if fit.one_draw else "posterior median"
        name = f"{name}, {weighted}" if weighted else name
        shared = f" of the curve that {len(fit.groups)} groups share" if fit.groups else ""
        kinds = [(False, 0.35, f"{prob:.0%} band{shared} at each score (pointwise)")]
        if simultaneous:
            held = shared or " of whole curves"
            kinds.insert(0, (True, 0.15, f"{prob:.0%} band{held} (simultaneous)"))
        _draw(fit, panels, curves, prob, style.CURVE, name, kinds)
        if fit.atoms:
            _atom_points(fit, panels, prob)
        _data_points(fit, panels[0])
    score = curves["score"].to_numpy()
    outcome = fit_data.outcome_of(fit)
    if outcome.reads_theta(*fit_data.bins_of(fit)[:3]):
        panels[0].plot(score, score, "--", color=style.REFERENCE, lw=1, label="theta = score")
    _label_curves(fit, panels, score, " by group" if groups else "")
    return panels


def _draw_level(fit: Fit, panels: NDArray[Any], prob: float, groups: list[object]) -> NDArray[Any]:
    """Draw the distribution of theta (above) and the posterior of its mean, for all or by group."""
    scale, exposure = fit_data.outcome_of(fit).theta, None
    if fit.prior.exposure is not None:  # the typical one
        share, log_size = (fit.data["constant_data"][name].to_numpy() for name in _SIZES)
        exposure = float(np.exp((share @ log_size).mean()))
    plot_prior(fit, default_scores(fit), exposure, ax=panels[0])
    for label, color in zip(groups or [None], style.PALETTE, strict=False):
        mean = fit_data.fitted_curves(fit, group=label)["mean"].to_numpy().ravel()
        density, ends = np.histogram(scale.position(mean), bins=_LEVEL_BINS, density=True)
        low, high = np.quantile(mean, [0.5 - prob / 2, 0.5 + prob / 2])
        name = "all items" if label is None else style.escaped(label, 28)
        text = f"{name}: {low:.4g} to {high:.4g} with {prob:.0%}"
        panels[1].stairs(density, scale.score(ends), fill=True, alpha=0.4, color=color, label=text)
    unit = fit_data.theta_unit(fit)
    style.finish(panels[1], "Posterior of the mean of theta", f"theta, {unit}", "density")
    return panels


def _groups(group: object) -> list[object]:
    labels = group if isinstance(group, list) else [] if group is None else [group]
    if len(labels) > len(style.PALETTE) or (group is not None and not labels):
        raise FitError(f"group={shown(group)} must be 1 to {len(style.PALETTE)} labels of groups")
    return labels


def _mean_and_spread(
    fit: Fit, score: Sequence[float] | None = None, group: object = None
) -> xr.Dataset:
    """Draws of E(theta | t), and of the sd of theta, for rates as a share of E(theta | t)."""
    curves = fit_data.fitted_curves(fit, score, group)
    spread = curves["variance"] ** 0.5
    if fit_data.outcome_of(fit).relative:
        spread = spread / curves["mean"]
    return curves[["mean"]].assign(spread=spread.assign_attrs(banded="log"))


def _banded(curves: xr.Dataset, prob: float, simultaneous: bool = False) -> list[Floats]:
    """Lower ends, medians and upper ends of both curves, (3, scores) each."""
    banded = bands(curves, prob, simultaneous=simultaneous)
    return [banded[name].transpose("bound", "score").to_numpy() for name in curves.data_vars]


def _draw(
    fit: Fit, axes: NDArray[Any], curves: xr.Dataset, prob: float, color: str, name: str,
    kinds: Sequence[tuple[bool, float, str | None]],
) -> None:  # fmt: skip
    """Draw both curves with their bands: simultaneous or not, opacity, label."""
    score, steps = curves["score"].to_numpy(), fit_data.has_steps(fit)
    for simultaneous, alpha, label in [] if fit.one_draw else kinds:
        look: dict[str, Any] = {"color": color, "alpha": alpha, "label": label}
        for ax, (low, _, high) in zip(axes, _banded(curves, prob, simultaneous), strict=True):
            if len(score) == 1:
                ax.vlines(score, low, high, linewidth=6, **look)
            else:
                step = "mid" if steps else None
                ax.fill_between(score, low, high, linewidth=0, step=step, **look)
    look = {"color": color, "label": name, "linewidth": 1.0 if steps else 1.6}
    look |= {"marker": "o"} if len(score) == 1 else {"drawstyle": "steps-mid" if steps else None}
    for ax, (_, middle, _) in zip(axes, _banded(curves, prob), strict=True):
        ax.plot(score, middle, **look)


def _atom_points(fit: Fit, axes: NDArray[Any], prob: float) -> None:
    """Draw points with bars at scores that many items share, which are not on the curves."""
    curves = _mean_and_spread(fit, fit.atoms)
    look: dict[str, Any] = {"color": style.CURVE, "elinewidth": 1.2, "zorder": 4, "fmt": "D"}
    # bars of many items are short: their caps are wider than the marker, which is small
    look |= {"capsize": 5, "capthick": 1.2, "markersize": 2.2}
    look["label"] = f"a score of many items, by itself (bars: {prob:.0%})"
    score = curves["score"].to_numpy()
    places = fit_data.drawn_at(fit, score)
    if ends := [f"{t:g}" for t in score[places != score]]:
        look["label"] += f"; {' and '.join(ends)} at the end{'s' * (len(ends) > 1)}"
    for ax, (low, middle, high) in zip(axes, _banded(curves, prob), strict=True):
        bars = None if fit.one_draw else (middle - low, high - middle)
        ax.errorbar(places, middle, bars, **look)


def _data_points(fit: Fit, ax: Axes) -> None:
    """Draw the outcomes of merged bins."""
    outcome, scale = fit_data.outcome_of(fit), fit_data.outcome_of(fit).theta
    centre, estimate, error = fit_data.merged_outcomes(fit)
    centre = fit_data.drawn_at(fit, centre)
    inside = scale.holds(estimate)
    centre, estimate, error = centre[inside], estimate[inside], error[inside]
    # whiskers must stay on the axis
    rooms = estimate - scale.low, scale.high - estimate
    ends = [np.minimum(error, 0.9 * room) for room in rooms]
    label = f"items: {fit_data.own_estimate(fit)} (bars: ± 1 s.e. of {outcome.words.noise} alone)"
    look: dict[str, Any] = {"color": style.OBSERVED, "elinewidth": 0.8, "zorder": 3}
    ax.errorbar(centre, estimate, yerr=ends, fmt="o", markersize=3.5, label=label, **look)


def _label_curves(fit: Fit, axes: NDArray[Any], score: Floats, what: str) -> None:
    top, bottom = axes
    outcome, scale = fit_data.outcome_of(fit), fit.axis("mean").scale
    relative = outcome.relative
    for ax in axes:
        if ax.get_xscale() != scale:  # axes may share it
            style.scaled_axis(ax.xaxis, scale, float(score.min()), float(score.max()))
    for ax, name in ((top, outcome.theta.name), (bottom, LOG.name if relative else "")):
        if ax.dataLim.y0 > 0:
            style.scaled_axis(ax.yaxis, name, ax.dataLim.y0, ax.dataLim.y1)
    mean = f"E(theta | score)\n{fit_data.theta_unit(fit)}"
    style.finish(top, f"Calibration curves{what}\n{fit_data.total(fit)}", "", mean)
    spread = "sd(theta | score)" + ("\n/ E(theta | score)" if relative else "")
    score_name = style.named("score", outcome_roles(fit.data.attrs).get("score"))
    style.finish(bottom, "", score_name, spread, legend=False)  # the upper panel has one
    if not relative:
        bottom.set_ylim(bottom=0.0)
