"""What smoothing over bins does to their own estimates."""

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from .._lib.errors import FitError
from ..inference.results import Fit
from ..posterior.predictive import Posterior, posterior_of
from .arguments import axes_in, need_axes, need_fit, need_prob
from .fitted import (
    curve_lines,
    draw_band,
    draw_line,
    fitted_curves,
    has_steps,
    score_axis,
    score_words,
    theta_unit,
    total,
)
from .style import BLACK, RED, draw_dots, draw_floor, number_of, rate_axis, tidy

__all__ = ["plot_smoothing"]

Floats = NDArray[np.float64]

_NEAR_0 = 1e-2  # of the least value of the curve


def plot_smoothing(
    fit: Fit,
    per_bin: Fit | None = None,
    prob: float = 0.9,
    axes: Sequence[Axes] | NDArray[Any] | None = None,
) -> NDArray[Any]:
    """Draw E and Var of theta given the score as each bin alone estimates them, and smoothed.

    Parameters
    ----------
    fit
        The fit whose curves are drawn: by `soc.FiveSteps`, or by any other method, with bands.
    per_bin
        A fit by `soc.FiveSteps` of the same statistics, whose bins' own estimates are drawn as
        dots; None takes those of `fit` itself.
    prob
        Probability of the bands, at each score by itself.
    axes
        Two axes to draw in; None makes a figure.

    Returns
    -------
    numpy.ndarray
        The two axes: of the mean and of the variance.

    Raises
    ------
    FitError
        If `fit` is no fit or not smooth, no estimates by bin are at hand, or they are of other
        bins, `prob` is not between 0 and 1, or there are not two axes.

    Notes
    -----
    Section 5.1 of Muralidharan and Najmi. Bins that a fit left out have no dots.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> frame = soc.simulation.s1(2000, seed=0)
    >>> items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    >>> fit = soc.fit(soc.summarize(items, progress=False), method=soc.FiveSteps(), progress=False)
    >>> len(soc.plots.plot_smoothing(fit))
    2
    """
    need_fit(fit)
    need_fit(fit if per_bin is None else per_bin, "per_bin")
    need_prob(prob)
    need_axes(axes, 2, "plot_smoothing")
    _check(fit, fit if per_bin is None else per_bin)
    law = posterior_of(fit)
    if axes is None:
        _, axes = plt.subplots(2, 1, figsize=(7, 7), sharex=True, layout="constrained")
    both = axes_in(axes)
    curves = fitted_curves(fit)[["mean", "variance"]]
    lines = curve_lines(fit, curves, prob)
    alone = (fit if per_bin is None else per_bin).data
    score = alone["constant_data"]["score"].to_numpy()
    for ax, name in zip(both, ("mean", "variance"), strict=True):
        own, curve = alone["per_bin"][name].to_numpy(), lines[name]
        if law.outcome.whole or name == "variance":
            floor = _NEAR_0 * float(curve.middle.min())
        else:
            floor = -np.inf
        _dots(ax, score, own, floor, name)
        draw_band(ax, curve, RED, 0.3, f"{prob:.0%} band at each score")
        draw_line(ax, curve, RED, f"smooth: {curve.name}", zorder=3)
        if law.outcome.whole or name == "variance":
            rate_axis(ax.yaxis, ax.dataLim.y0, ax.dataLim.y1)
        score_axis(fit, ax, score)
        tidy(ax)
    _label(fit, law, both)
    return both


def _check(fit: Fit, own: Fit) -> None:
    if has_steps(fit):
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


def _dots(ax: Axes, score: Floats, own: Floats, floor: float, name: str) -> None:
    """Estimates of bins; those at or near 0 would squeeze a logarithmic axis."""
    known = np.isfinite(own)
    seen = known & (own > floor)
    label = f"each bin alone ({number_of(int(known.sum()), 'bin')})"
    draw_dots(ax, score[seen], own[seen], BLACK, label)
    draw_floor(ax, score[known & ~seen], f"bins with a {name} at or near 0")


def _label(fit: Fit, law: Posterior, both: NDArray[Any]) -> None:
    both[0].set_title(f"Before and after smoothing\n{total(fit, law)}", fontsize=10, loc="left")
    both[0].set_ylabel(f"E(theta | t)\n{theta_unit(fit, law)}")
    both[1].set_ylabel("Var(theta | t)\nin the square of that unit")
    both[1].set_xlabel(score_words(fit))
    named: dict[str, Any] = {}  # of both, in the upper panel, where a rising curve leaves room
    for ax in both:
        handles, labels = ax.get_legend_handles_labels()
        named.update(dict(zip(labels, handles, strict=True)))
    both[0].legend(named.values(), named.keys(), frameon=False, fontsize=8)
