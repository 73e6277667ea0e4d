"""The calibration curves with their bands, and the prior of theta over the score."""

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from numpy.typing import NDArray

from ..calibration import bands, calibration_curves
from ..errors import FitError
from ..laws import Law, law_of
from ..results import Fit
from .style import BLUE, GREY, ORANGE, RED, rate_axis, tidy

__all__ = ["binned_rates", "plot_curves", "plot_prior_ribbon"]

Floats = NDArray[np.float64]

_POINTS = 40
_NO_PRECISION = 1e30  # noise sd of an item that tells nothing


def plot_curves(
    fit: Fit,
    prob: float = 0.9,
    simultaneous: bool = True,
    axes: Sequence[Axes] | NDArray[Any] | None = None,
) -> NDArray[Any]:
    """Draw E(theta|t) over the binned data, and below it how widely theta varies given the score.

    The lower curve is the coefficient of variation of theta for counts, its sd for values.

    Parameters
    ----------
    fit
        The fit.
    prob
        Probability of the bands: at each score by itself (dark).
    simultaneous
        Whether to add the wider band that holds whole curves with this probability (light).
    axes
        Two axes to draw in; None makes a figure.

    Returns
    -------
    numpy.ndarray
        The two axes.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> frame = soc.simulation.s1(2000, seed=0)
    >>> items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    >>> fit = soc.fit(soc.summarize(items, progress=False), progress=False)
    >>> len(soc.plots.plot_curves(fit))
    2
    """
    if axes is None:
        _, made = plt.subplots(
            2, 1, figsize=(7, 7), sharex=True, height_ratios=(3, 2), layout="constrained"
        )
        axes = made
    if len(axes) != 2:
        raise FitError(f"axes holds {len(axes)} axes, plot_curves needs 2")
    both: NDArray[Any] = np.asarray(axes)
    law = law_of(fit)
    curves = _drawn_curves(fit, law)
    score = curves["score"].to_numpy()
    pointwise = bands(curves, prob)
    whole = bands(curves, prob, simultaneous=True) if simultaneous else None
    for ax, name in zip(both, ("mean", "spread"), strict=True):
        if whole is not None:
            low, _, high = _band(whole, name)
            label = f"{prob:.0%} of whole curves"
            ax.fill_between(score, low, high, color=BLUE, alpha=0.15, linewidth=0, label=label)
        low, middle, high = _band(pointwise, name)
        label = f"{prob:.0%} at each score"
        ax.fill_between(score, low, high, color=BLUE, alpha=0.35, linewidth=0, label=label)
        ax.plot(score, middle, color=BLUE, linewidth=1.6, label="posterior median")
        tidy(ax)
    _data_points(fit, law, both[0], score)
    _label_curves(fit, law, both, score)
    return both


def _drawn_curves(fit: Fit, law: Law) -> xr.Dataset:
    """Draws of E(theta|t), and of the cv of theta (counts) or its sd (values)."""
    curves = calibration_curves(fit)[["mean", "variance"]]
    spread = curves["variance"] ** 0.5
    if law.discrete:
        spread = spread / curves["mean"]
    return curves[["mean"]].assign(spread=spread.assign_attrs(banded="log"))


def _band(band: xr.Dataset, name: str) -> tuple[Floats, Floats, Floats]:
    """Lower, median and upper of a curve."""
    low, middle, high = (band[name].sel(bound=b).to_numpy() for b in ("lower", "median", "upper"))
    return low, middle, high


def _data_points(fit: Fit, law: Law, ax: Axes, score: Floats) -> None:
    """Outcomes of merged bins, and the identity where scores are rates themselves."""
    if law.discrete:
        centre, outcome, error = binned_rates(fit)
        seen = outcome > 0
        # on a logarithmic axis the lower whisker must stay above 0
        low = np.minimum(error[seen], 0.9 * outcome[seen])
        label = "items: events / exposure (bars: ± 1 s.e. of Poisson noise alone)"
    else:
        centre, outcome, error = binned_values(fit)
        seen, low = np.ones(len(centre), dtype=bool), error
        label = "items: mean value (bars: ± 1 s.e. of noise alone)"
    ax.errorbar(
        centre[seen],
        outcome[seen],
        yerr=[low, error[seen]],
        fmt="o",
        markersize=3.5,
        color=ORANGE,
        ecolor=ORANGE,
        elinewidth=0.8,
        label=label,
        zorder=3,
    )
    if law.discrete and _scores_are_rates(fit):
        ax.plot(score, score, color=GREY, linewidth=1, linestyle="--", label="theta = score")


def binned_rates(fit: Fit, points: int = _POINTS) -> tuple[Floats, Floats, Floats]:
    """Score, rate and its Poisson standard error in about `points` groups of neighbouring bins.

    Groups have about equal numbers of items. The score is the item-weighted mean on the mean
    curve's axis.

    Parameters
    ----------
    fit
        The fit, which keeps the totals of its bins.
    points
        Number of groups; fewer come back where bins are fewer.
    """
    order, group, position = _merged(fit, points)
    exposure = np.bincount(group, fit.data["constant_data"]["exposure"].to_numpy()[order])
    count = np.bincount(group, fit.data["observed_data"]["count"].to_numpy()[order])
    used = exposure > 0
    exposure, count = exposure[used], count[used]
    score = fit.axis("mean").inverse(position[used])
    return score, count / exposure, np.sqrt(count) / exposure


def binned_values(fit: Fit, points: int = _POINTS) -> tuple[Floats, Floats, Floats]:
    """Score, mean value and its standard error from noise alone, in groups as of `binned_rates`."""
    order, group, position = _merged(fit, points)
    bins = fit.data["constant_data"]
    items = bins["n_items"].to_numpy()[order].astype(float)
    n = np.bincount(group, items)
    value = np.bincount(group, items * fit.data["observed_data"]["value"].to_numpy()[order]) / n
    noise = np.bincount(group, items * bins["noise_sd"].to_numpy()[order] ** 2)
    return fit.axis("mean").inverse(position), value, np.sqrt(noise) / n


def _merged(fit: Fit, points: int) -> tuple[NDArray[np.intp], NDArray[np.intp], Floats]:
    """Bins in the order of their scores, the group of each, and the groups' positions."""
    bins = fit.data["constant_data"]
    score = bins["score"].to_numpy()
    order = np.argsort(score)
    items = bins["n_items"].to_numpy()[order].astype(float)
    middle = np.cumsum(items) - 0.5 * items
    group = np.floor(middle / items.sum() * points).astype(int)
    _, group = np.unique(group, return_inverse=True)
    axis = fit.axis("mean")
    position = np.bincount(group, items * axis(score[order])) / np.bincount(group, items)
    return order, group, position


def _scores_are_rates(fit: Fit) -> bool:
    """Whether scores are positive and predict the total count within a factor of 3."""
    bins = fit.data["constant_data"]
    score, exposure = bins["score"].to_numpy(), bins["exposure"].to_numpy()
    count = float(fit.data["observed_data"]["count"].sum())
    if score.min() <= 0 or count <= 0:
        return False
    return bool(1 / 3 < float((score * exposure).sum()) / count < 3)


def _total(fit: Fit, law: Law) -> str:
    bins = fit.data["constant_data"]
    items = f"{int(bins['n_items'].sum()):,} items"
    if not law.discrete:
        return items
    events = int(fit.data["observed_data"]["count"].sum())
    return f"{items}, {events:,} events, exposure {float(bins['exposure'].sum()):,.0f}"


def _label_curves(fit: Fit, law: Law, axes: NDArray[Any], score: Floats) -> None:
    top, bottom = axes
    _score_axis(fit, top, score)
    if bottom.get_xscale() != top.get_xscale():
        _score_axis(fit, bottom, score)
    for ax in axes:
        if law.discrete and ax.dataLim.y0 > 0:
            rate_axis(ax.yaxis, ax.dataLim.y0, ax.dataLim.y1)
        ax.legend(frameon=False, fontsize=8)
    top.set_title(f"Calibration curves ({_total(fit, law)})", fontsize=10, loc="left")
    unit = "events per unit of exposure" if law.discrete else "in the unit of the values"
    top.set_ylabel(f"E(theta | score)\n{unit}")
    below = "sd(theta | score) / E(theta | score)" if law.discrete else "sd(theta | score)"
    bottom.set_ylabel(below)
    bottom.set_xlabel("score")
    if not law.discrete:
        bottom.set_ylim(bottom=0.0)


def _score_axis(fit: Fit, ax: Axes, score: Floats) -> None:
    if fit.axis("mean").scale == "log":
        rate_axis(ax.xaxis, float(score.min()), float(score.max()))


def plot_prior_ribbon(
    fit: Fit, probs: Sequence[float] = (0.05, 0.5, 0.95), ax: Axes | None = None
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

    Raises
    ------
    FitError
        If the probabilities do not increase, or theta depends on more than score and group.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> frame = soc.simulation.s1(2000, seed=0)
    >>> items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    >>> fit = soc.fit(soc.summarize(items, progress=False), progress=False)
    >>> soc.plots.plot_prior_ribbon(fit, probs=(0.25, 0.5, 0.75)).get_xlabel()
    'score'
    """
    levels = np.asarray(probs, dtype=float)
    if not (np.all((levels > 0) & (levels < 1)) and np.all(np.diff(levels) > 0) and levels.size):
        raise FitError(f"probs={tuple(probs)} must increase and lie between 0 and 1")
    if getattr(fit.prior, "exposure", None) is not None:
        raise FitError(
            "theta depends on the exposure too in this fit: use soc.plots.plot_curves, or "
            "soc.calibration_curves(fit, exposure=)"
        )
    if ax is None:
        _, ax = plt.subplots(figsize=(7, 4.5), layout="constrained")
    law = law_of(fit)
    score = calibration_curves(fit)["score"].to_numpy()
    mean, lines = _prior_quantiles(law, score, levels)
    for k in range(len(lines) // 2):
        ax.fill_between(score, lines[k], lines[-1 - k], color=BLUE, alpha=0.12, linewidth=0)
    ax.margins(x=0.08)
    _name_lines(ax, law, score, levels, lines)
    ax.plot(score, mean, color=RED, linewidth=1.4, linestyle="--", label="E(theta | score)")
    _score_axis(fit, ax, score)
    if law.discrete:
        # low quantiles of very spread priors are 0 to all digits shown: keep the picture readable
        low = max(float(lines.min()), 1e-3 * float(mean.min()))
        high = max(float(lines.max()), float(mean.max()))
        rate_axis(ax.yaxis, low, high)
        ax.set_ylim(low / 1.3, high * 1.3)
    ax.set_xlabel("score")
    unit = "events per unit of exposure" if law.discrete else "in the unit of the values"
    ax.set_ylabel(f"theta, {unit}")
    title = f"Quantiles of theta given the score ({_total(fit, law)})"
    ax.set_title(title, fontsize=10, loc="left")
    ax.legend(frameon=False, fontsize=8)
    tidy(ax)
    return ax


def _prior_quantiles(law: Law, score: Floats, levels: Floats) -> tuple[Floats, Floats]:
    """Mean and quantiles of theta given scores: the posterior of items that tell nothing."""
    nothing = np.full(len(score), 0.0 if law.discrete else _NO_PRECISION)
    items = {"score": score, law.outcome: np.zeros(len(score)), law.size: nothing}
    found = law.scorer(tuple(levels), "all", True)(items)
    return found[0], found[3:]


def _name_lines(ax: Axes, law: Law, score: Floats, levels: Floats, lines: Floats) -> None:
    """Draw the quantiles, with their names where they are furthest apart."""
    if law.discrete:
        spread = np.log(np.maximum(lines[-1], 1e-300) / np.maximum(lines[0], 1e-300))
    else:
        spread = lines[-1] - lines[0]
    end, shift, side = (-1, 4, "left") if spread[-1] >= spread[0] else (0, -4, "right")
    for p, line in zip(levels, lines, strict=True):
        ax.plot(score, line, color=BLUE, linewidth=2.0 if p == 0.5 else 1.0)
        ax.annotate(
            f"{100 * p:g}%",
            (score[end], line[end]),
            xytext=(shift, 0),
            textcoords="offset points",
            ha=side,
            va="center",
            fontsize=8,
            color=BLUE,
        )
