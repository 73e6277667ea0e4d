"""Pictures of theta given the score under a fit, and of a prior before any outcome."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from numpy.typing import ArrayLike, NDArray

from .._lib.arguments import POSITIVE, A, OrNone, Whole, checked, numbers_of, shown
from .._lib.arrays import Floats
from .._lib.errors import FitError
from ..data.groups import has_score
from ..families.family import FAMILIES
from ..families.outcomes import Outcome
from ..families.row_sums import MEAN_ONLY
from ..families.scales import LINEAR, LOG
from ..inference.results import FIT, Fit
from ..posterior.calibration import calibration_curves
from ..posterior.predictive import posterior_of
from ..quantities.variance import SHARES, score_quantiles
from . import fit_data, style
from .style import AX

_TAIL = np.array([1e-4, 3e-4, 1e-3, 2e-3, 4e-3, 7e-3])
_LEVELS = np.concatenate([_TAIL, np.linspace(0.01, 0.99, 99), 1.0 - _TAIL[::-1]])
_REACH = 0.02  # share of the highest density below which values are off the axis

_RESULT = A(xr.DataTree, "what soc.prior_predictive(prior, stats) returned")
_PROBS = (0.05, 0.5, 0.95)
_SHOWN = (0.01, 0.99)  # quantiles of the curves shown on a positive scale
_SHARES = np.linspace(0.0, 1.0, 201)  # quantile levels of the outcomes' distributions
_FEW = 10.0  # counts up to here lie evenly, more on a logarithmic axis
_LINE: dict[str, Any] = {"color": style.CURVE, "linewidth": 0.7, "alpha": 0.4}


@checked(fit=FIT, exposure=OrNone(POSITIVE), ax=AX)
def plot_prior(
    fit: Fit,
    score: ArrayLike | None = None,
    exposure: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the predictive distribution of theta given the score, at a few scores.

    This is how widely the theta of items varies at one score, averaged over the draws of the
    curves (those that groups share). A dot is E(theta | t). A spike of theta at 0 is not drawn: the
    legend has its share.

    Parameters
    ----------
    fit, score
        The fit, and up to seven scores; None takes five: 5, 25, 50, 75 and 95% of the items lie
        below.
    exposure, ax
        Exposure (noise sd) at which to draw the prior of a fit with a term in it, else None. Axes
        to draw in; None makes a figure.

    Raises
    ------
    FitError
        If the fit knows the mean alone, a score has no place on its axis, or `exposure` is missing
        or has no meaning.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> ax = soc.plots.plot_prior(fit, [0.02, 0.05])
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['score 0.02', 'score 0.05']
    """
    if fit.mean_only:
        raise FitError(f"there is no distribution of theta to draw: {MEAN_ONLY}")
    if (fit.prior.exposure is None) != (exposure is None):
        raise FitError(
            f"exposure={shown(exposure)}: give one for a fit with a term in exposure (noise sd), "
            "and for no other"
        )
    scores = score_quantiles(fit, SHARES) if score is None else numbers_of(score, "score")
    scores = np.atleast_1d(scores)
    if scores.ndim != 1 or not 0 < len(scores) <= len(style.PALETTE):
        raise FitError(f"score={shown(score)} must be 1 to {len(style.PALETTE)} scores")
    calibration_curves(fit, scores, exposure=exposure)  # refuses scores without a place
    size = (
        {} if exposure is None else {fit_data.outcome_of(fit).size: np.full(len(scores), exposure)}
    )
    rows = posterior_of(fit).scorer(tuple(_LEVELS), "all")({"score": scores, **size})
    quantiles = rows[3 : 3 + len(_LEVELS)]  # a share of zeros follows them
    scale, ax = fit_data.outcome_of(fit).theta, style.panels(ax, (7, 4.5))[0]
    lines = []
    for t, mean, theta, color in zip(scores, rows[0], quantiles.T, style.PALETTE, strict=False):
        # equal quantiles are a spike at 0, and have no density
        rises = np.diff(theta) > 0
        position = scale.position(np.where(scale.holds(theta), theta, np.nan))
        density = np.diff(_LEVELS)[rises] / np.diff(position)[rises]
        middle = (0.5 * (theta[1:] + theta[:-1]))[rises]
        spike = 0.0 if rises.all() else float(_LEVELS[1:][~rises].max())
        name = f"score {t:.4g}" if has_score(fit.data.attrs) else "all items"
        label = name + (f" ({spike:.0%} at 0)" if spike else "")
        line: dict[str, Any] = {"color": color, "label": label, "linewidth": 1.6}
        ax.plot(middle, density, **line)
        ax.plot(mean, 0.0, "o", color=color, markersize=5, clip_on=False, zorder=3)
        lines.append((middle, density))
    _finish(fit, ax, lines, exposure)
    return ax


def _finish(fit: Fit, ax: Axes, lines: list[tuple[Floats, Floats]], exposure: float | None) -> None:
    scale = fit_data.outcome_of(fit).theta
    highest = max(float(np.nanmax(density)) for _, density in lines)
    shown = np.concatenate([theta[density > _REACH * highest] for theta, density in lines])
    low, high = float(shown.min()), float(shown.max())
    style.scaled_axis(ax.xaxis, scale.name, low, high)
    pad = 0.03 * np.ptp(scale.position(shown))
    ax.set_xlim(*scale.score(scale.position(np.array([low, high])) + np.array([-pad, pad])))
    ax.set_ylim(0.0, 1.05 * highest)
    words = fit_data.outcome_of(fit).words
    where = "" if exposure is None else f" and {words.size} {style.plain(exposure)}"
    what = "Theta given the score" if has_score(fit.data.attrs) else "Theta of all items"
    title = f"{what}{where}\n{fit_data.total(fit)}"
    density = "density" if scale is LINEAR else f"density of the {scale.name} of theta"
    style.finish(ax, title, f"theta, {fit_data.theta_unit(fit)}", density)


# --- before any outcome ---------------------------------------------------------------------------


@checked(result=_RESULT, lines=Whole(1))
def plot_prior_predictive(
    result: xr.DataTree,
    lines: int = 40,
    axes: Sequence[Axes] | NDArray[Any] | None = None,
) -> NDArray[Any]:
    """Draw E(theta | t) (left) and the distribution of the items' outcomes (right) under a prior.

    Each thin line is one draw from the prior; the thick line is the median over all draws, the band
    holds the central 90% of them.

    Parameters
    ----------
    result, lines
        From `soc.prior_predictive`; and the number of draws with a thin line.
    axes
        Two axes to draw in; None makes a figure.

    Returns
    -------
    numpy.ndarray
        The two axes.

    Raises
    ------
    FitError
        If `result` is not from `soc.prior_predictive`.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> result = soc.prior_predictive(soc.Gamma(), stats)
    >>> len(soc.plots.plot_prior_predictive(result))
    2
    """
    outcome, curves, drawn = _contents(result)
    panels = style.panels(axes, (8, 4), 1, 2)
    mean = _by_draw(curves["mean"])
    score = curves["score"].to_numpy()
    _draw_lines(panels[0], score, mean, lines, along_x=True)
    if style.is_rate(score):
        style.scaled_axis(panels[0].xaxis, LOG.name, score[0], score[-1])
    if outcome.theta is not LINEAR:
        low, high = map(float, np.quantile(mean, _SHOWN))
        style.scaled_axis(panels[0].yaxis, outcome.theta.name, low, high)
        panels[0].set_ylim(low, high)
    style.finish(panels[0], "Curves drawn from the prior", "score", "E(theta | score)", False)
    sorted_outcomes = np.quantile(_by_draw(drawn), _SHARES, axis=1, method="inverted_cdf").T
    _draw_lines(panels[1], _SHARES, sorted_outcomes, lines, along_x=False)
    if outcome.positive:
        panels[1].set_xscale("symlog", linthresh=_FEW)
        panels[1].set_xlim(0.0, None)
    words = f"{outcome.words.outcome} of an item"
    items = style.number_of(drawn.sizes["item"], "item")
    style.finish(panels[1], f"Outcomes of {items}", words, "share of items at or below")
    return panels


def _contents(result: xr.DataTree) -> tuple[Outcome, xr.Dataset, xr.DataArray]:
    """The kind of outcome, the curves and the outcomes."""
    outcomes = {family.outcome.observed: family.outcome for family in FAMILIES.values()}
    if {"prior", "prior_predictive"} <= set(result.children):
        curves, drawn = (result[g].to_dataset() for g in ("prior", "prior_predictive"))
        names = [str(name) for name in drawn.data_vars if name in outcomes]
        if names and "item" in drawn.dims and "mean" in curves:
            return outcomes[names[0]], curves, drawn[names[0]]
    raise FitError("result must be what soc.prior_predictive(prior, stats) returned")


def _by_draw(values: xr.DataArray) -> Floats:
    array = values.transpose("chain", "draw", ...).to_numpy()
    return np.asarray(array.reshape(-1, array.shape[-1]), dtype=float)


def _draw_lines(ax: Axes, across: Floats, values: Floats, lines: int, along_x: bool) -> None:
    """Lines of some draws, and the median and band of all, of values over or next to `across`."""
    low, middle, high = np.quantile(values, _PROBS, axis=0)
    number = min(lines, len(values))
    drawn = values[np.arange(number) * len(values) // number]

    def plot(line: Floats, **look: Any) -> None:
        ax.plot(*((across, line) if along_x else (line, across)), **look)

    for k, line in enumerate(drawn):
        plot(line, label=None if k else "draws from the prior", **_LINE)
    fill = ax.fill_between if along_x else ax.fill_betweenx
    fill(across, low, high, color=style.CURVE, alpha=0.12, linewidth=0, label="90% of the draws")
    plot(middle, color=style.CURVE, linewidth=2.6, label="median")
