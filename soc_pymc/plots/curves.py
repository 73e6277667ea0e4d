"""The calibration curves with their bands."""

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from numpy.typing import NDArray

from .._lib.arguments import switch
from ..inference.results import Fit
from ..posterior.predictive import Posterior, posterior_of
from .arguments import axes_in, need_axes, need_fit, need_prob
from .fitted import (
    binned_rates,
    binned_values,
    curve_lines,
    draw_band,
    draw_line,
    fitted_curves,
    has_bands,
    own_outcome,
    score_axis,
    score_words,
    scores_estimate_theta,
    theta_unit,
    total,
)
from .style import BLUE, GREY, ORANGE, rate_axis, tidy

__all__ = ["plot_curves"]

Floats = NDArray[np.float64]


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
        The fit. One that has a single draw, as those of `soc.FiveSteps`, is drawn without bands.
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

    Raises
    ------
    FitError
        If `fit` is no fit, `prob` is not between 0 and 1, `simultaneous` is no switch, or there are
        not two axes.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> frame = soc.simulation.s1(2000, seed=0)
    >>> items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    >>> fit = soc.fit(soc.summarize(items, progress=False), progress=False)
    >>> len(soc.plots.plot_curves(fit))
    2
    """
    need_fit(fit)
    need_prob(prob)
    switch(simultaneous, "simultaneous")
    need_axes(axes, 2, "plot_curves")
    law = posterior_of(fit)
    if axes is None:
        _, axes = plt.subplots(
            2, 1, figsize=(7, 7), sharex=True, height_ratios=(3, 2), layout="constrained"
        )
    both = axes_in(axes)
    curves = _drawn_curves(fit, law)
    score = curves["score"].to_numpy()
    pointwise = curve_lines(fit, curves, prob)
    whole = curve_lines(fit, curves, prob, True) if simultaneous and has_bands(fit) else {}
    for ax, name in zip(both, ("mean", "spread"), strict=True):
        if name in whole:
            draw_band(
                ax, whole[name], BLUE, 0.15, f"{prob:.0%} band of whole curves (simultaneous)"
            )
        draw_band(ax, pointwise[name], BLUE, 0.35, f"{prob:.0%} band at each score (pointwise)")
        draw_line(ax, pointwise[name], BLUE, pointwise[name].name)
        tidy(ax)
    _data_points(fit, law, both[0], score)
    _label_curves(fit, law, both, score)
    return both


def _drawn_curves(fit: Fit, law: Posterior) -> xr.Dataset:
    """Draws of E(theta|t), and of the cv of theta (counts) or its sd (values)."""
    curves = fitted_curves(fit)[["mean", "variance"]]
    spread = curves["variance"] ** 0.5
    if law.outcome.whole:
        spread = spread / curves["mean"]
    return curves[["mean"]].assign(spread=spread.assign_attrs(banded="log"))


def _data_points(fit: Fit, law: Posterior, ax: Axes, score: Floats) -> None:
    """Outcomes of merged bins, and the identity where scores are rates themselves."""
    if law.outcome.whole:
        centre, outcome, error = binned_rates(fit)
        seen = outcome > 0
        # on a logarithmic axis the lower whisker must stay above 0
        low = np.minimum(error[seen], 0.9 * outcome[seen])
        noise = "Poisson noise"
    else:
        centre, outcome, error = binned_values(fit)
        seen, low = np.ones(len(centre), dtype=bool), error
        noise = "noise"
    label = f"items: {own_outcome(fit, law)} (bars: ± 1 s.e. of {noise} alone)"
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
    if law.outcome.whole and scores_estimate_theta(fit, law):
        ax.plot(score, score, color=GREY, linewidth=1, linestyle="--", label="theta = score")


def _label_curves(fit: Fit, law: Posterior, axes: NDArray[Any], score: Floats) -> None:
    top, bottom = axes
    score_axis(fit, top, score)
    if bottom.get_xscale() != top.get_xscale():
        score_axis(fit, bottom, score)
    for ax in axes:
        if law.outcome.whole and ax.dataLim.y0 > 0:
            rate_axis(ax.yaxis, ax.dataLim.y0, ax.dataLim.y1)
        ax.legend(frameon=False, fontsize=8)
    top.set_title(f"Calibration curves\n{total(fit, law)}", fontsize=10, loc="left")
    top.set_ylabel(f"E(theta | score)\n{theta_unit(fit, law)}")
    below = "sd(theta | score) / E(theta | score)" if law.outcome.whole else "sd(theta | score)"
    bottom.set_ylabel(below)
    bottom.set_xlabel(score_words(fit, "score"))
    if not law.outcome.whole:
        bottom.set_ylim(bottom=0.0)
