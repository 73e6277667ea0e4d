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
from ..families.family import family_of
from ..families.outcomes import Outcome
from ..families.row_sums import MEAN_ONLY
from ..families.scales import LOG
from ..inference.methods import FiveSteps
from ..inference.results import FIT, Fit, outcome_roles
from ..posterior.calibration import bands, calibration_curves, curves_of, default_scores
from ..posterior.curves import atom_of, place_of
from . import style


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
    Scores with a mean and variance of their own (`Fit.atoms`) are points with bars.

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
    if groups:
        at_score = "" if fit.one_draw else f" ({prob:.0%} band at each score)"
        for label, color in zip(groups, style.PALETTE, strict=False):
            curves = _mean_and_spread(fit, group=label)
            words = ", ".join(map(str, label)) if isinstance(label, tuple) else label
            name = f"{style.escaped(words, 28)}{at_score}"
            _draw(fit, panels, curves, prob, color, name, [(False, 0.15, None)])
    else:
        curves = _mean_and_spread(fit)
        weighted = weighs_by_size(fit)
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
    outcome = outcome_of(fit)
    if outcome.positive and outcome.reads_theta(*bins_of(fit)):
        panels[0].plot(score, score, "--", color=style.REFERENCE, lw=1, label="theta = score")
    _label_curves(fit, panels, score, " by group" if groups else "")
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
    curves = fitted_curves(fit, score, group)
    spread = curves["variance"] ** 0.5
    if outcome_of(fit).relative:
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
    score, steps = curves["score"].to_numpy(), has_steps(fit)
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
    places = drawn_at(fit, score)
    if ends := [f"{t:g}" for t in score[places != score]]:
        look["label"] += f"; {' and '.join(ends)} at the end{'s' * (len(ends) > 1)}"
    for ax, (low, middle, high) in zip(axes, _banded(curves, prob), strict=True):
        bars = None if fit.one_draw else (middle - low, high - middle)
        ax.errorbar(places, middle, bars, **look)


def _data_points(fit: Fit, ax: Axes) -> None:
    """Draw the outcomes of merged bins."""
    outcome, scale = outcome_of(fit), outcome_of(fit).theta
    centre, estimate, error = merged_outcomes(fit)
    centre = drawn_at(fit, centre)
    inside = scale.holds(estimate)
    centre, estimate, error = centre[inside], estimate[inside], error[inside]
    # whiskers must stay on the axis
    rooms = estimate - scale.low, scale.high - estimate
    ends = [np.minimum(error, 0.9 * room) for room in rooms]
    label = f"items: {own_estimate(fit)} (bars: ± 1 s.e. of {outcome.words.noise} alone)"
    look: dict[str, Any] = {"color": style.OBSERVED, "elinewidth": 0.8, "zorder": 3}
    ax.errorbar(centre, estimate, yerr=ends, fmt="o", markersize=3.5, label=label, **look)


def _label_curves(fit: Fit, axes: NDArray[Any], score: Floats, what: str) -> None:
    top, bottom = axes
    outcome, scale = outcome_of(fit), fit.axis("mean").scale
    relative = outcome.relative
    for ax in axes:
        if ax.get_xscale() != scale:  # axes may share it
            style.scaled_axis(ax.xaxis, scale, float(score.min()), float(score.max()))
    for ax, name in ((top, outcome.theta.name), (bottom, LOG.name if relative else "")):
        if ax.dataLim.y0 > 0:
            style.scaled_axis(ax.yaxis, name, ax.dataLim.y0, ax.dataLim.y1)
    mean = f"E(theta | score)\n{theta_unit(fit)}"
    style.finish(top, f"Calibration curves{what}\n{total(fit)}", "", mean)
    spread = "sd(theta | score)" + ("\n/ E(theta | score)" if relative else "")
    score_name = style.named("score", outcome_roles(fit.data.attrs).get("score"))
    style.finish(bottom, "", score_name, spread, legend=False)  # the upper panel has one
    if not relative:
        bottom.set_ylim(bottom=0.0)


_POINTS = 40
_END_MARGIN = 0.05  # share of the axis between the outermost scores and those without a position


def outcome_of(fit: Fit) -> Outcome:
    """Return the fit's kind of outcome."""
    return family_of(fit.prior).outcome


def has_steps(fit: Fit) -> bool:
    """Return whether the fit's curves are constant within bins."""
    return isinstance(fit.method, FiveSteps) and not fit.method.smooth


def weighs_by_size(fit: Fit) -> str:
    """Describe how curves weigh items, if theta depends on sizes that add up; else empty."""
    words = outcome_of(fit).words
    by_size = fit.prior.exposure is not None and outcome_of(fit).sizes_add
    return f"items weighted by their {words.size}" if by_size else ""


def fitted_curves(
    fit: Fit, score: Sequence[float] | Floats | None = None, group: object = None
) -> xr.Dataset:
    """Calibration curves at 200 scores, or where they are constant within bins, at every bin.

    A term in exposure is averaged as outcomes of bins are, if sizes add up, and for a group over
    its items.
    """
    if fit.mean_only:
        raise FitError(f"there is no curve of the variance to draw: {MEAN_ONLY}")
    if group is None and weighs_by_size(fit):
        scores = default_scores(fit) if score is None else np.array(score)
        return curves_of(fit, scores, by_size=True)
    if score is not None or not has_steps(fit):
        return calibration_curves(fit, score, group)
    bins = fit.data["constant_data"]["score"].to_numpy()
    curves = calibration_curves(fit, np.sort(bins), group)
    known = np.isfinite(curves["mean"].to_numpy()).all(axis=(0, 1))
    return curves.isel(score=np.flatnonzero(known))


def bins_of(fit: Fit) -> tuple[Floats, Floats, Floats, Floats]:
    """Score, outcome, size and number of items of every bin, by score."""
    bins, outcome = fit.data["constant_data"], outcome_of(fit)
    order = np.argsort(bins["score"].to_numpy())
    observed = fit.data["observed_data"][outcome.observed]
    score, y, size, items = (
        values.to_numpy()[order].astype(float)
        for values in (bins["score"], observed, bins[outcome.size], bins["n_items"])
    )
    return score, y, size, items


def merged_outcomes(fit: Fit, points: int = _POINTS) -> tuple[Floats, Floats, Floats]:
    """Score, estimate of theta and its standard error in `points` groups of neighbouring bins.

    Groups have about equal numbers of items, and each atom is one. The score is the item-weighted
    mean on the mean curve's axis; the error is that of noise alone.
    """
    score, y, size, items = bins_of(fit)
    axis = fit.axis("mean")
    middle = np.cumsum(items) - 0.5 * items
    group = np.floor(middle / items.sum() * points).astype(int)
    atom = atom_of(fit, score)
    group = np.where(atom > 0, -atom, group)
    _, group = np.unique(group, return_inverse=True)
    position = np.bincount(group, items * place_of(fit, "mean", score)) / np.bincount(group, items)
    estimate, error = outcome_of(fit).pooled(y, size, items, group)
    known = np.isfinite(estimate)
    merged = axis.inverse(position)
    merged[group[atom > 0]] = score[atom > 0]
    return merged[known], estimate[known], error[known]


def drawn_at(fit: Fit, score: Floats) -> Floats:
    """Positions to draw scores at; those at the ends of the axis, such as 0 and 1, lie outside."""
    axis, bin_scores = fit.axis("mean"), fit.data["constant_data"]["score"].to_numpy()
    scale, places = axis.local, np.array(score, dtype=float)
    if scale.holds(places).all():
        return places
    low, high = axis([(inner := bin_scores[scale.holds(bin_scores)]).min(), inner.max()])
    margin = _END_MARGIN * (high - low)
    for end, place in ((places <= scale.low, low - margin), (places >= scale.high, high + margin)):
        places[end] = axis.inverse(place)
    return places


def _words(fit: Fit) -> tuple[str, str, str]:
    """Return the user's name of the outcome, and names of outcomes and sizes in units."""
    outcome, roles = outcome_of(fit), outcome_roles(fit.data.attrs)
    columns = (roles.get(role, role) for role in (outcome.observed, outcome.size))
    name, size = (
        "" if name == role else style.escaped(name, 24)
        for name, role in zip(columns, (outcome.observed, outcome.size), strict=True)
    )
    events = name or outcome.words.events
    if outcome.direct and name:
        events = f"{outcome.words.events} ({name})"
    return name, events, size or outcome.words.size


def theta_unit(fit: Fit) -> str:
    """Return the unit of theta, for labels, in the user's words."""
    _, events, size = _words(fit)
    return outcome_of(fit).words.unit.format(outcome=events, size=size)


def own_estimate(fit: Fit) -> str:
    """Return the estimate of theta from outcomes alone, such as count / exposure."""
    (name, events, size), outcome = _words(fit), outcome_of(fit)
    if not outcome.direct:
        return f"{events} / {size}"
    return f"mean {outcome.words.outcome}" + (f" ({name})" if name else "")


def total(fit: Fit) -> str:
    """Return numbers of items, bins and groups, for titles."""
    bins = fit.data["constant_data"]
    number = style.number_of(bins.sizes["bin"], "bin")
    held = f"n = {int(bins['n_items'].sum()):,} items in {number}"
    return held + (f" and {style.number_of(len(fit.groups), 'group')}" if fit.groups else "")
