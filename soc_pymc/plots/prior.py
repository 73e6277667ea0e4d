"""The prior of theta over the score: its quantiles as a ribbon, and with the bins' outcomes."""

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray
from scipy import stats

from .._lib.arguments import numbers_of, shown
from .._lib.errors import FitError
from ..inference.results import Fit
from ..posterior.predictive import Posterior, posterior_of
from .arguments import need_ax, need_prob
from .fitted import (
    Line,
    at_exposure,
    bin_outcomes,
    curve_lines,
    draw_band,
    draw_identity,
    draw_line,
    fitted_curves,
    has_steps,
    need_prior,
    own_outcome,
    score_axis,
    score_words,
    scores_estimate_theta,
    theta_unit,
    total,
)
from .style import BLACK, BLUE, RED, draw_dots, draw_floor, rate_axis, tidy

__all__ = ["levels_of", "plot_adjusted_prior", "plot_prior_ribbon", "prior_quantiles", "theta_axis"]

Floats = NDArray[np.float64]

_NO_PRECISION = 1e30  # noise sd of an item that tells nothing
_FAR_BELOW = 1e-2  # of the least mean: quantiles below it would squeeze the picture


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
        Exposure (noise sd) at which to draw the prior, of a fit with a term in it.

    Returns
    -------
    matplotlib.axes.Axes
        The axes that were drawn in.

    Raises
    ------
    FitError
        If `fit` is no fit, the probabilities do not increase, the prior depends on the exposure and
        none is given, or the other way round, or `ax` is no axes.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> frame = soc.simulation.s1(2000, seed=0)
    >>> items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    >>> stats = soc.summarize(items, progress=False)
    >>> fit = soc.fit(stats, method=soc.FiveSteps(), progress=False)
    >>> soc.plots.plot_prior_ribbon(fit, probs=(0.25, 0.5, 0.75)).get_xlabel()
    'score'
    """
    levels = levels_of(probs)
    need_prior(fit, exposure)
    need_ax(ax)
    law = posterior_of(fit)
    if ax is None:
        _, ax = plt.subplots(figsize=(7, 4.5), layout="constrained")
    score = fitted_curves(fit, exposure)["score"].to_numpy()
    mean, lines = prior_quantiles(fit, score, levels, exposure)
    for k in range(len(lines) // 2):
        part = Line(score, mean, lines[k], lines[-1 - k], has_steps(fit))
        draw_band(ax, part, BLUE, 0.12, "_")
    ax.margins(x=0.08)
    _name_lines(ax, law, score, levels, lines, has_steps(fit))
    line = Line(score, mean, None, None, has_steps(fit))
    draw_line(ax, line, RED, "E(theta | score)", linewidth=1.4, linestyle="--")
    score_axis(fit, ax, score)
    theta_axis(fit, ax, law, lines, mean)
    ax.set_xlabel(score_words(fit, "score"))
    title = f"Quantiles of theta given the score{at_exposure(law, exposure)}\n{total(fit, law)}"
    ax.set_title(title, fontsize=10, loc="left")
    ax.legend(frameon=False, fontsize=8)
    tidy(ax)
    return ax


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
    They lie above E(theta|t) where items of larger exposure have larger theta. Of a fit with groups
    the prior is the one that they share.

    Parameters
    ----------
    fit
        The fit. One that has a single draw, as those of `soc.FiveSteps`, is drawn without the band
        of E(theta|t).
    probs
        Probabilities of the two quantiles of theta between which is shaded.
    prob
        Probability of the band of E(theta|t), at each score by itself.
    ax
        Axes to draw in; None makes a figure.
    exposure
        Exposure (noise sd) at which to draw the prior, of a fit with a term in it.

    Returns
    -------
    matplotlib.axes.Axes
        The axes that were drawn in.

    Raises
    ------
    FitError
        If `fit` is no fit, `probs` are not two that increase, the prior depends on the exposure and
        none is given, or the other way round, `prob` is not between 0 and 1, or `ax` is no axes.

    Notes
    -----
    Section 5.1 of Muralidharan and Najmi. The line theta = score is drawn where scores can be read
    as estimates of theta.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> frame = soc.simulation.s1(2000, seed=0)
    >>> items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    >>> stats = soc.summarize(items, progress=False)
    >>> fit = soc.fit(stats, method=soc.FiveSteps(), progress=False)
    >>> soc.plots.plot_adjusted_prior(fit).get_xlabel()
    'score t'
    """
    levels = levels_of(probs)
    if len(levels) != 2:
        raise FitError(f"probs={shown(probs)} must be two: what lies between them is shaded")
    need_prior(fit, exposure)
    need_prob(prob)
    need_ax(ax)
    law = posterior_of(fit)
    if ax is None:
        _, ax = plt.subplots(figsize=(7.5, 5), layout="constrained")
    curves = fitted_curves(fit, exposure)[["mean"]]
    score = curves["score"].to_numpy()
    mean, lines = prior_quantiles(fit, score, levels, exposure)
    between = Line(score, mean, lines[0], lines[1], has_steps(fit))
    label = f"theta given t: {100 * levels[0]:g}% to {100 * levels[1]:g}% of the prior"
    draw_band(ax, between, RED, 0.2, label)
    line = curve_lines(fit, curves, prob)["mean"]
    draw_band(ax, line, RED, 0.45, f"E(theta | t): {prob:.0%} band at each score")
    draw_line(ax, line, RED, f"E(theta | t): {line.name}", zorder=4)
    if scores_estimate_theta(fit, law):
        draw_identity(ax, score)
    dots = _bin_dots(fit, law, ax)
    score_axis(fit, ax, score)
    theta_axis(fit, ax, law, np.vstack([lines, mean]), mean, dots)
    title = f"Prior of theta given t{at_exposure(law, exposure)}\n{total(fit, law)}"
    ax.set_title(title, fontsize=10, loc="left")
    ax.set_xlabel(score_words(fit))
    ax.legend(frameon=False, fontsize=8)
    tidy(ax)
    return ax


def _bin_dots(fit: Fit, law: Posterior, ax: Axes) -> Floats:
    """Draw and return outcomes of bins; those without events stand at the foot of the axes."""
    score, outcome, _ = bin_outcomes(fit, law)
    label = f"bins: {own_outcome(fit, law)}"
    seen = outcome > 0 if law.outcome.whole else np.ones(len(score), dtype=bool)
    draw_dots(ax, score[seen], outcome[seen], BLACK, label, zorder=3.5)
    draw_floor(ax, score[~seen], "bins without events")
    return outcome[seen]


def levels_of(probs: Sequence[float]) -> Floats:
    """Probabilities of quantiles, checked.

    Parameters
    ----------
    probs
        Increasing numbers between 0 and 1.
    """
    levels = numbers_of(probs, "probs", wanted="numbers between 0 and 1, in a list")
    inside = levels.ndim == 1 and levels.size and np.all((levels > 0) & (levels < 1))
    if not (inside and np.all(np.diff(levels) > 0)):
        raise FitError(
            f"probs={shown(probs)} must increase and lie between 0 and 1, as (0.05, 0.5, 0.95)"
        )
    return levels


def prior_quantiles(
    fit: Fit, score: Floats, levels: Floats, exposure: float | None = None
) -> tuple[Floats, Floats]:
    """Mean and quantiles of theta given scores, at the posterior means of the curves.

    Parameters
    ----------
    fit
        The fit.
    score
        Scores, shape (n,).
    levels
        Probabilities, shape (k,).
    exposure
        Exposure (noise sd) that the prior depends on; None where it depends on none.

    Returns
    -------
    tuple of numpy.ndarray
        Means (n,) and quantiles (k, n).
    """
    law = posterior_of(fit)
    if exposure is not None:
        return _quantiles_at(law, score, levels, exposure)
    # the posterior of items that tell nothing
    nothing = np.full(len(score), 0.0 if law.outcome.whole else _NO_PRECISION)
    items = {"score": score, law.outcome.observed: np.zeros(len(score)), law.outcome.size: nothing}
    found = law.scorer(tuple(levels), "all", True)(items)
    return found[0], found[3:]


def _quantiles_at(
    law: Posterior, score: Floats, levels: Floats, exposure: float
) -> tuple[Floats, Floats]:
    """Quantiles of the Gamma or Normal of curves at an exposure."""
    curves = law.curves(score, None, np.full(len(score), exposure))
    log_variance = curves["log_variance"].mean(axis=0)
    if law.outcome.whole:
        log_mean = curves["log_mean"].mean(axis=0)
        cv2 = np.exp(log_variance - 2.0 * log_mean)
        mean = np.exp(log_mean)
        return mean, stats.gamma(1.0 / cv2, scale=mean * cv2).ppf(levels[:, None])
    mean = curves["mean"].mean(axis=0)
    return mean, stats.norm(mean, np.exp(0.5 * log_variance)).ppf(levels[:, None])


def theta_axis(
    fit: Fit, ax: Axes, law: Posterior, lines: Floats, mean: Floats, shown: Floats | tuple[()] = ()
) -> None:
    """Axis of theta that holds the prior: logarithmic for counts, with its unit.

    Parameters
    ----------
    fit
        The fit.
    ax
        The axes, with everything drawn.
    law
        The fit's law.
    lines, mean
        Quantiles (k, n) and mean (n,) of theta.
    shown
        What else is drawn and must be seen, all positive where theta is.
    """
    ax.set_ylabel(f"theta, {theta_unit(fit, law)}")
    if not law.outcome.whole:
        return
    low = max(float(lines.min()), _FAR_BELOW * float(mean.min()))
    low = float(np.min(shown, initial=low))
    high = float(np.max(shown, initial=max(float(lines.max()), float(mean.max()))))
    rate_axis(ax.yaxis, low, high)
    ax.set_ylim(low / 1.3, high * 1.3)


def _name_lines(
    ax: Axes, law: Posterior, score: Floats, levels: Floats, lines: Floats, steps: bool
) -> None:
    """Draw the quantiles, with their names where they are furthest apart."""
    if law.outcome.whole:
        spread = np.log(np.maximum(lines[-1], 1e-300) / np.maximum(lines[0], 1e-300))
    else:
        spread = lines[-1] - lines[0]
    end, shift, side = (-1, 4, "left") if spread[-1] >= spread[0] else (0, -4, "right")
    style: Any = "steps-mid" if steps else "default"
    for p, line in zip(levels, lines, strict=True):
        ax.plot(score, line, color=BLUE, linewidth=2.0 if p == 0.5 else 1.0, drawstyle=style)
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
