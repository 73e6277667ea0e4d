"""The calibration curves with their bands, and the prior of theta over the score."""

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from numpy.typing import NDArray

from ..curves import bands, calibration_curves, curve_draws
from ..errors import FitError
from ..families import poisson_gamma
from ..results import Fit
from .style import BLUE, GREY, ORANGE, RED, rate_axis, tidy

__all__ = ["binned_rates", "plot_curves", "plot_prior_ribbon"]

Floats = NDArray[np.float64]

_POINTS = 40


def plot_curves(
    fit: Fit,
    prob: float = 0.9,
    simultaneous: bool = True,
    axes: Sequence[Axes] | NDArray[Any] | None = None,
) -> NDArray[Any]:
    """Draw E(theta|t) over the binned data, and below it the coefficient of variation of theta.

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
    """
    if axes is None:
        _, made = plt.subplots(
            2, 1, figsize=(7, 7), sharex=True, height_ratios=(3, 2), layout="constrained"
        )
        axes = made
    if len(axes) != 2:
        raise FitError(f"axes holds {len(axes)} axes, plot_curves needs 2")
    both: NDArray[Any] = np.asarray(axes)
    curves = calibration_curves(fit)[["mean", "shape"]]
    score = curves["score"].to_numpy()
    pointwise = bands(curves, prob)
    whole = bands(curves, prob, simultaneous=True) if simultaneous else None
    for ax, name in zip(both, ("mean", "shape"), strict=True):
        if whole is not None:
            low, _, high = _band(whole, name)
            label = f"{prob:.0%} of whole curves"
            ax.fill_between(score, low, high, color=BLUE, alpha=0.15, linewidth=0, label=label)
        low, middle, high = _band(pointwise, name)
        label = f"{prob:.0%} at each score"
        ax.fill_between(score, low, high, color=BLUE, alpha=0.35, linewidth=0, label=label)
        ax.plot(score, middle, color=BLUE, linewidth=1.6, label="posterior median")
        tidy(ax)
    _data_points(fit, both[0], score)
    _label_curves(fit, both, score)
    return both


def _band(band: xr.Dataset, name: str) -> tuple[Floats, Floats, Floats]:
    """Lower, median and upper of E(theta|t), or of the cv, which falls with the shape."""
    rows = [band[name].sel(bound=b).to_numpy() for b in ("lower", "median", "upper")]
    if name == "shape":
        rows = [row**-0.5 for row in rows[::-1]]
    return rows[0], rows[1], rows[2]


def _data_points(fit: Fit, ax: Axes, score: Floats) -> None:
    """Rates of merged bins, and the identity where scores are rates themselves."""
    centre, rate, error = binned_rates(fit)
    seen = rate > 0
    # on a logarithmic axis the lower whisker must stay above 0
    low = np.minimum(error[seen], 0.9 * rate[seen])
    ax.errorbar(
        centre[seen],
        rate[seen],
        yerr=[low, error[seen]],
        fmt="o",
        markersize=3.5,
        color=ORANGE,
        ecolor=ORANGE,
        elinewidth=0.8,
        label="items: events / exposure (bars: ± 1 s.e. of Poisson noise alone)",
        zorder=3,
    )
    if _scores_are_rates(fit):
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
    bins = fit.data["constant_data"]
    score = bins["score"].to_numpy()
    order = np.argsort(score)
    items = bins["n_items"].to_numpy()[order].astype(float)
    middle = np.cumsum(items) - 0.5 * items
    group = np.floor(middle / items.sum() * points).astype(int)
    _, group = np.unique(group, return_inverse=True)
    axis = fit.axis("mean")
    position = np.bincount(group, items * axis(score[order])) / np.bincount(group, items)
    exposure = np.bincount(group, bins["exposure"].to_numpy()[order])
    count = np.bincount(group, fit.data["observed_data"]["count"].to_numpy()[order])
    used = exposure > 0
    exposure, count = exposure[used], count[used]
    return axis.inverse(position[used]), count / exposure, np.sqrt(count) / exposure


def _scores_are_rates(fit: Fit) -> bool:
    """Whether scores are positive and predict the total count within a factor of 3."""
    bins = fit.data["constant_data"]
    score, exposure = bins["score"].to_numpy(), bins["exposure"].to_numpy()
    count = float(fit.data["observed_data"]["count"].sum())
    if score.min() <= 0 or count <= 0:
        return False
    return bool(1 / 3 < float((score * exposure).sum()) / count < 3)


def _size(fit: Fit) -> str:
    bins = fit.data["constant_data"]
    items, exposure = int(bins["n_items"].sum()), float(bins["exposure"].sum())
    events = int(fit.data["observed_data"]["count"].sum())
    return f"{items:,} items, {events:,} events, exposure {exposure:,.0f}"


def _label_curves(fit: Fit, axes: NDArray[Any], score: Floats) -> None:
    top, bottom = axes
    _score_axis(fit, top, score)
    if bottom.get_xscale() != top.get_xscale():
        _score_axis(fit, bottom, score)
    for ax in axes:
        if ax.dataLim.y0 > 0:
            rate_axis(ax.yaxis, ax.dataLim.y0, ax.dataLim.y1)
        ax.legend(frameon=False, fontsize=8)
    top.set_title(f"Calibration curves ({_size(fit)})", fontsize=10, loc="left")
    top.set_ylabel("E(theta | score)\nevents per unit of exposure")
    bottom.set_ylabel("sd(theta | score) / E(theta | score)")
    bottom.set_xlabel("score")


def _score_axis(fit: Fit, ax: Axes, score: Floats) -> None:
    if fit.prior.mean.scale == "log":
        rate_axis(ax.xaxis, float(score.min()), float(score.max()))


def plot_prior_ribbon(
    fit: Fit, probs: Sequence[float] = (0.05, 0.5, 0.95), ax: Axes | None = None
) -> Axes:
    """Draw quantiles of theta given the score, at the posterior means of log mean and log cv2.

    This is the spread of the items' own theta, not the uncertainty of a curve.

    Parameters
    ----------
    fit
        The fit.
    probs
        Probabilities of the quantiles, increasing.
    ax
        Axes to draw in; None makes a figure.
    """
    levels = np.asarray(probs, dtype=float)
    if not (np.all((levels > 0) & (levels < 1)) and np.all(np.diff(levels) > 0) and levels.size):
        raise FitError(f"probs={tuple(probs)} must increase and lie between 0 and 1")
    if ax is None:
        _, ax = plt.subplots(figsize=(7, 4.5), layout="constrained")
    score = calibration_curves(fit)["score"].to_numpy()
    log_mean, log_cv2 = (draws.mean(axis=0) for draws in curve_draws(fit, score))
    shape, rate = poisson_gamma.shape_rate(log_mean, log_cv2)
    lines = [poisson_gamma.quantile(p, shape, rate) for p in levels]
    for k in range(len(lines) // 2):
        ax.fill_between(score, lines[k], lines[-1 - k], color=BLUE, alpha=0.12, linewidth=0)
    ax.margins(x=0.08)
    # the names of the lines stand where the lines are furthest apart
    spread = np.log(np.maximum(lines[-1], 1e-300) / np.maximum(lines[0], 1e-300))
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
    mean = np.exp(log_mean)
    ax.plot(score, mean, color=RED, linewidth=1.4, linestyle="--", label="E(theta | score)")
    _score_axis(fit, ax, score)
    # low quantiles of very spread priors are 0 to all digits shown: keep the picture readable
    low = max(min(float(line.min()) for line in lines), 1e-3 * float(mean.min()))
    high = max(float(np.max(lines)), float(mean.max()))
    rate_axis(ax.yaxis, low, high)
    ax.set_ylim(low / 1.3, high * 1.3)
    ax.set_xlabel("score")
    ax.set_ylabel("theta, events per unit of exposure")
    ax.set_title(f"Quantiles of theta given the score ({_size(fit)})", fontsize=10, loc="left")
    ax.legend(frameon=False, fontsize=8)
    tidy(ax)
    return ax
