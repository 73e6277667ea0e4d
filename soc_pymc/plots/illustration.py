"""What calibration of first and of second order estimate: the picture that explains the method."""

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.patches import Patch
from numpy.typing import NDArray

from ..inference.results import Fit
from ..posterior.predictive import Posterior, posterior_of
from .arguments import axes_in, need_axes, need_prob
from .fitted import (
    Line,
    at_exposure,
    curve_lines,
    draw_band,
    draw_identity,
    draw_line,
    fitted_curves,
    has_steps,
    need_prior,
    score_axis,
    score_words,
    scores_estimate_theta,
)
from .prior import prior_quantiles, theta_axis
from .style import RED, tidy

__all__ = ["plot_calibration_illustration"]

Floats = NDArray[np.float64]

_SHARES = np.linspace(0.98, 0.02, 25)  # central shares of theta, one shade of the strip for each
_PALEST, _DEEPEST = 0.07, 0.6  # how much of the colour the outer and the inner shade have


def plot_calibration_illustration(
    fit: Fit,
    prob: float = 0.9,
    axes: Sequence[Axes] | NDArray[Any] | None = None,
    *,
    exposure: float | None = None,
) -> NDArray[Any]:
    """Draw theta against the score twice: ordinary and second order calibration.

    At the left the estimate moves from the score to the curve E(theta|t). At the right a strip
    shows the distribution of theta around that curve: shades are central intervals of theta given
    t, the widest of 98%. It is drawn at the posterior means of the curves, and of a fit with groups
    at those that they share.

    Parameters
    ----------
    fit
        The fit. One that has a single draw, as those of `soc.FiveSteps`, is drawn without the band
        of E(theta|t).
    prob
        Probability of the band of E(theta|t), at each score by itself.
    axes
        Two axes to draw in; None makes a figure.
    exposure
        Exposure (noise sd) at which to draw the prior, of a fit with a term in it.

    Returns
    -------
    numpy.ndarray
        The two axes.

    Raises
    ------
    FitError
        If `fit` is no fit, the prior depends on the exposure and none is given, or the other way
        round, `prob` is not between 0 and 1, or there are not two axes.

    Notes
    -----
    Figure 1 of Muralidharan and Najmi. The line theta = t is drawn where scores can be read as
    estimates of theta.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> frame = soc.simulation.s1(2000, seed=0)
    >>> items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    >>> stats = soc.summarize(items, progress=False)
    >>> fit = soc.fit(stats, method=soc.FiveSteps(), progress=False)
    >>> [ax.get_title() for ax in soc.plots.plot_calibration_illustration(fit)]
    ['Ordinary calibration', 'Second order calibration']
    """
    need_prior(fit, exposure)
    need_prob(prob)
    need_axes(axes, 2, "plot_calibration_illustration")
    law = posterior_of(fit)
    if axes is None:
        _, axes = plt.subplots(
            1, 2, figsize=(8, 4.2), sharex=True, sharey=True, layout="constrained"
        )
    both = axes_in(axes)
    curves = fitted_curves(fit, exposure)[["mean"]]
    score = curves["score"].to_numpy()
    levels = np.concatenate([(1 - _SHARES) / 2, (1 + _SHARES[::-1]) / 2])
    mean, lines = prior_quantiles(fit, score, levels, exposure)
    line = curve_lines(fit, curves, prob)["mean"]
    strip = _strip(both[1], score, mean, lines, has_steps(fit))
    for ax in both:
        if scores_estimate_theta(fit, law):
            draw_identity(ax, score)
        if ax is both[0]:  # in the strip it could not be told from the strip
            draw_band(ax, line, RED, 0.25, f"E(theta | t): {prob:.0%} band")
        draw_line(ax, line, RED, f"E(theta | t): {line.name}")
        _finish(fit, law, ax, lines, mean, score)
    both[1].legend(handles=[*both[1].get_legend_handles_labels()[0], strip], **_LEGEND)
    both[1].set_ylabel("")
    both[0].set_title("Ordinary calibration", fontsize=10)
    at = at_exposure(law, exposure).replace(" and", ",", 1)
    both[1].set_title(f"Second order calibration{at}", fontsize=10)
    return both


_LEGEND: dict[str, Any] = {"frameon": False, "fontsize": 8, "loc": "lower right"}


def _strip(ax: Axes, score: Floats, mean: Floats, lines: Floats, steps: bool) -> Patch:
    """Draw central intervals of theta, from the widest; returns their entry in the legend."""
    shares = np.linspace(_PALEST, _DEEPEST, len(_SHARES))
    for k, depth in enumerate(shares):
        shade = tuple(1.0 - depth * (1.0 - c) for c in to_rgb(RED))
        part = Line(score, mean, lines[k], lines[-1 - k], steps)
        draw_band(ax, part, shade, 1.0, "_")
    inner = tuple(1.0 - 0.4 * (1.0 - c) for c in to_rgb(RED))
    label = f"theta given t (palest: central {_SHARES[0]:.0%})"
    return Patch(color=inner, label=label)


def _finish(fit: Fit, law: Posterior, ax: Axes, lines: Floats, mean: Floats, score: Floats) -> None:
    score_axis(fit, ax, score)
    theta_axis(fit, ax, law, lines, mean)
    ax.set_xlabel(score_words(fit))
    ax.legend(**_LEGEND)
    tidy(ax)
