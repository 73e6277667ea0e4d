"""Pictures of a fit's curves, of theta given the score, and of a prior before any outcome."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from .._lib.arguments import (
    POSITIVE,
    PROBABILITY,
    A,
    FitError,
    OrNone,
    Whole,
    numbers_of,
    shown,
    switch,
)
from .._lib.arrays import Floats, Ints, Pair, Triple, equal_parts
from .._lib.reprs import counted
from ..families import FAMILIES
from ..families.rows import MEAN_ONLY
from ..families.scales import LINEAR, LOG, Scale
from ..fits import FIT, Fit
from ..posterior.averages import scorer
from ..posterior.calibration import (
    bands,
    calibration_curves,
    curve_dataset,
    default_scores,
)
from ..posterior.predictive import posterior_of
from ..quantities import score_quantiles
from . import style
from .style import AX, Panels

# dots
_POINTS = 40
# share of the axis between the outermost scores and those without a position
_END_MARGIN = 0.05
_PRIOR_GROUPS = "prior", "prior_predictive"
_PRIOR_RESULT = "what soc.prior_predictive(prior, stats) returned"
_LEVEL_BINS = 30  # of the histogram of a level
_SIZES = "share", "share_log_size"
_TAIL = np.array([1e-4, 3e-4, 1e-3, 2e-3, 4e-3, 7e-3])
_LEVELS = np.concatenate([_TAIL, np.linspace(0.01, 0.99, 99), 1.0 - _TAIL[::-1]])
# share of the highest density below which values are off the axis
_REACH = 0.02
# quantiles of the curves shown on a positive scale
_SHOWN = (0.01, 0.99)
# quantile levels of the outcomes' distributions
_SHARES = np.linspace(0.0, 1.0, 201)
# counts up to here lie evenly, more on a logarithmic axis
_FEW = 10.0


def plot_curves(
    fit: Fit,
    prob: float = 0.9,
    simultaneous: bool = True,
    axes: Sequence[Axes] | Panels | None = None,
    *,
    group: object = None,
) -> Panels:
    """Draw E(theta | t) over the binned data, and below it how widely theta varies given the score.

    The lower curve is the coefficient of variation of theta for counts, its sd for values and for
    successes in trials. A dot is the estimate of theta from neighbouring bins alone; atoms of the
    score (`Fit.atoms`) are points with bars. If all items have the same score, or none, the upper
    panel shows the distribution of theta, and the lower panel the posterior of its mean.

    Parameters
    ----------
    fit : Fit
        The fit.
    prob : float
        Probability of the bands at each score (dark). A fit with a single draw has none.
    simultaneous : bool
        Whether to add bands that hold whole curves (light).
    axes : Sequence[Axes] or numpy.ndarray of shape (2,), or None
        Two axes, of a figure with a layout such as "constrained"; None makes a figure.
    group : str, tuple, list of these or None
        Label of a group (of crossed groups a tuple), or up to seven in a list: a line and a
        pointwise band for each; None draws the shared curve.

    Returns
    -------
    numpy.ndarray
        The two axes.

    Raises
    ------
    FitError
        If an argument is not valid, or there are no such groups.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> len(soc.plots.plot_curves(fit))
    2
    """
    fit = FIT(fit, "fit")
    prob = PROBABILITY(prob, "prob")
    simultaneous = switch(simultaneous, "simultaneous")
    groups = [] if group is None else [group]
    if isinstance(group, list):
        groups = group
    if len(groups) > len(style.PALETTE) or (group is not None and not groups):
        raise FitError(
            f"group={shown(group)} must be 1 to {len(style.PALETTE)} labels of groups"
        )
    panels = style.panels(axes, (7, 7), 2, sharex=True, height_ratios=(3, 2))
    if fit.curves.one_score and not fit.mean_only:
        return _draw_level(fit, panels, prob, groups)
    if groups:
        for label, color in zip(groups, style.PALETTE, strict=False):
            words = ", ".join(map(str, label)) if isinstance(label, tuple) else label
            curves = _mean_and_spread(fit, group=label)
            _shade(fit, panels, curves, prob, alpha=0.15, color=color)
            _draw_medians(panels, curves, color, style.escaped(words, 28))
    else:
        curves = _mean_and_spread(fit)
        shared = (
            f" of the curve that {len(fit.groups)} groups share" if fit.groups else ""
        )
        if simultaneous:
            label = f"{prob:.0%} band{shared or ' of whole curves'} (simultaneous)"
            _shade(fit, panels, curves, prob, True, alpha=0.15, label=label)
        label = f"{prob:.0%} band{shared} at each score (pointwise)"
        _shade(fit, panels, curves, prob, alpha=0.35, label=label)
        name = "estimate" if fit.one_draw else "posterior median"
        if _weighs_by_size(fit):
            name += f", items weighted by their {fit.curves.outcome.words.size}"
        _draw_medians(panels, curves, style.CURVE, name)
        if fit.atoms:
            _atom_points(fit, panels, prob)
        _data_points(fit, panels[0])
    pointwise = "" if fit.one_draw else f", with {prob:.0%} bands at each score"
    _label_curves(
        fit, panels, curves["score"].to_numpy(), f" by group{pointwise}" * bool(groups)
    )
    return panels


def _draw_level(fit: Fit, panels: Panels, prob: float, groups: list[object]) -> Panels:
    """Draw the distribution of theta and the posterior of its mean, for all items or by group."""
    scale = fit.curves.outcome.theta
    exposure = None
    # the typical one
    if fit.prior.exposure is not None:
        share, log_size = (fit.curves.bins[name].to_numpy() for name in _SIZES)
        exposure = float(np.exp((share @ log_size).mean()))
    plot_prior(fit, default_scores(fit.curves), exposure, ax=panels[0])
    for label, color in zip(groups or [None], style.PALETTE, strict=False):
        mean = fitted_curves(fit, group=label)["mean"].to_numpy().ravel()
        density, ends = np.histogram(
            scale.position(mean), bins=_LEVEL_BINS, density=True
        )
        low, high = np.quantile(mean, [0.5 - prob / 2, 0.5 + prob / 2])
        name = "all items" if label is None else style.escaped(label, 28)
        text = f"{name}: {low:.4g} to {high:.4g} with {prob:.0%}"
        panels[1].stairs(
            density, scale.score(ends), fill=True, alpha=0.4, color=color, label=text
        )
    unit = _theta_words(fit)[0]
    style.finish(
        panels[1], "Posterior of the mean of theta", f"theta, {unit}", "density"
    )
    return panels


def _mean_and_spread(
    fit: Fit, score: Sequence[float] | None = None, group: object = None
) -> xr.Dataset:
    """Return draws of E(theta | t), and of the sd of theta, for rates relative to E(theta | t)."""
    curves = fitted_curves(fit, score, group)
    spread = curves["variance"] ** 0.5
    if fit.curves.outcome.relative:
        spread = spread / curves["mean"]
    return curves[["mean"]].assign(spread=spread.assign_attrs(banded=LOG.name))


def _banded(
    curves: xr.Dataset, prob: float, simultaneous: bool = False
) -> list[Floats]:
    """Return lower ends, medians and upper ends of both curves, (3, scores) each."""
    banded = bands(curves, prob, simultaneous=simultaneous)
    return [
        banded[name].transpose("bound", "score").to_numpy() for name in curves.data_vars
    ]


def _shade(
    fit: Fit, axes: Panels, curves: xr.Dataset, prob: float, simultaneous: bool = False,
    **look: Any,
) -> None:  # fmt: skip
    """Draw the bands of both curves, unless the fit has a single draw."""
    if fit.one_draw:
        return
    score = curves["score"].to_numpy()
    look = {"color": style.CURVE, "linewidth": 0} | look
    banded = _banded(curves, prob, simultaneous)
    for ax, (low, _, high) in zip(axes, banded, strict=True):
        ax.fill_between(score, low, high, **look)


def _draw_medians(axes: Panels, curves: xr.Dataset, color: str, name: str) -> None:
    score = curves["score"].to_numpy()
    for ax, (_, middle, _) in zip(axes, _banded(curves, 0.5), strict=True):
        ax.plot(score, middle, color=color, label=name, linewidth=1.6)


def _atom_points(fit: Fit, axes: Panels, prob: float) -> None:
    """Draw points with bars at scores that many items share, which are not on the curves."""
    curves = _mean_and_spread(fit, fit.atoms)
    score = curves["score"].to_numpy()
    places = _drawn_at(fit, score)
    label = f"a score of many items, by itself (bars: {prob:.0%})"
    if ends := [f"{t:g}" for t in score[places != score]]:
        label += f"; {' and '.join(ends)} at the end{'s' * (len(ends) > 1)}"
    for ax, (low, middle, high) in zip(axes, _banded(curves, prob), strict=True):
        bars = None if fit.one_draw else (middle - low, high - middle)
        # short bars: caps beyond the marker
        ax.errorbar(
            places, middle, bars, label=label, fmt="D", color=style.CURVE, zorder=4,
            elinewidth=1.2, markersize=2.2, capsize=5, capthick=1.2,
        )  # fmt: skip


def _data_points(fit: Fit, ax: Axes) -> None:
    """Draw the outcomes of merged bins."""
    outcome = fit.curves.outcome
    centre, estimate, error = _merged_outcomes(fit)
    # whiskers must stay on the axis
    rooms = estimate - outcome.theta.low, outcome.theta.high - estimate
    ends = [np.minimum(error, 0.9 * room) for room in rooms]
    label = (
        f"items: {_theta_words(fit)[1]} (bars: ± 1 s.e. of {outcome.words.noise} alone)"
    )
    if outcome.truncated:
        label = "items, given that those of 0 are absent (bars: ± 1 s.e.)"
    ax.errorbar(
        centre, estimate, ends, label=label, fmt="o", color=style.OBSERVED, zorder=3,
        elinewidth=0.8, markersize=3.5,
    )  # fmt: skip


def _label_curves(fit: Fit, axes: Panels, score: Floats, what: str) -> None:
    top, bottom = axes
    outcome = fit.curves.outcome
    scale = fit.axis("mean").scale
    relative = outcome.relative
    if outcome.reads_theta(*_bins_of(fit)[:3]):
        top.plot(score, score, "--", color=style.REFERENCE, lw=1, label="theta = score")
    for ax in axes:
        # axes may share it
        if ax.get_xscale() != scale:
            style.scaled_axis(ax.xaxis, scale, score)
    for ax, name in ((top, outcome.theta.name), (bottom, LOG.name if relative else "")):
        if ax.dataLim.y0 > 0:
            style.scaled_axis(ax.yaxis, name, ax.dataLim.intervaly)
    mean = f"E(theta | score)\n{_theta_words(fit)[0]}"
    style.finish(top, f"Calibration curves{what}\n{_sizes_of(fit)}", "", mean)
    spread = "sd(theta | score)" + ("\n/ E(theta | score)" if relative else "")
    score_name = style.named("score", fit.curves.roles.outcomes.get("score"))
    # the upper panel has a legend
    style.finish(bottom, "", score_name, spread, legend=False)
    if not relative:
        bottom.set_ylim(bottom=0.0)


def plot_prior(
    fit: Fit,
    score: ArrayLike | None = None,
    exposure: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the predictive distribution of theta given the score, at a few scores.

    It is averaged over the draws of the (shared) curves. A dot is E(theta | t), and the
    legend has the share of theta that is 0.

    Parameters
    ----------
    fit : Fit
        The fit.
    score : array_like, shape (k,), or None
        Up to seven scores; None takes those below which 5, 25, 50, 75 and 95% lie.
    exposure : float or None
        Exposure (noise sd) of the prior of a fit with a term in it.
    ax : Axes or None
        Axes to draw in; None makes a figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes.

    Raises
    ------
    FitError
        If an argument is not valid, or the fit has no term in exposure.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> ax = soc.plots.plot_prior(fit, [0.02, 0.05])
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['score 0.02', 'score 0.05']
    """
    fit = FIT(fit, "fit")
    exposure = OrNone(POSITIVE)(exposure, "exposure")
    ax = AX(ax, "ax")
    if fit.mean_only:
        raise FitError(f"there is no distribution of theta to draw: {MEAN_ONLY}")
    if (fit.prior.exposure is None) != (exposure is None):
        raise FitError(
            f"exposure={shown(exposure)}: give one for a fit with a term in exposure (noise sd), "
            "and for no other"
        )
    scores = _few_scores(fit, score)
    # refuses scores without a place
    calibration_curves(fit, scores, exposure=exposure)
    outcome = fit.curves.outcome
    scale = outcome.theta
    columns = {"score": scores}
    where = ""
    if exposure is not None:
        columns[outcome.size] = np.full(len(scores), exposure)
        where = f" and {outcome.words.size} {style.plain(exposure)}"
    means, _, _, *quantiles = scorer(posterior_of(fit), tuple(_LEVELS), "all")(columns)
    # a share of zeros follows them
    by_score = np.transpose(quantiles[: len(_LEVELS)])
    densities = [_density(theta, scale) for theta in by_score]
    ax = style.panels(ax, (7, 4.5))[0]
    scored = fit.curves.roles.has_score
    for t, mean, (theta, density, spike), color in zip(
        scores, means, densities, style.PALETTE, strict=False
    ):
        label = f"score {t:.4g}" if scored else "all items"
        label += f" ({spike:.0%} at 0)" if spike else ""
        ax.plot(theta, density, color=color, label=label, linewidth=1.6)
        ax.plot(mean, 0.0, "o", color=color, markersize=5, clip_on=False, zorder=3)
    highest = max(float(np.nanmax(density)) for _, density, _ in densities)
    drawn = [theta[density > _REACH * highest] for theta, density, _ in densities]
    in_view = np.concatenate(drawn)
    style.scaled_axis(ax.xaxis, scale.name, in_view)
    ax.set(xlim=(in_view.min(), in_view.max()), ylim=(0.0, 1.05 * highest))
    what = "Theta given the score" if scored else "Theta of all items"
    unit = "density" if scale is LINEAR else f"density of the {scale.name} of theta"
    title = f"{what}{where}, dots at its mean\n{_sizes_of(fit)}"
    style.finish(ax, title, f"theta, {_theta_words(fit)[0]}", unit)
    return ax


def _few_scores(fit: Fit, score: ArrayLike | None) -> Floats:
    """Return the user's scores, as many as there are colours, or some of the fit's."""
    if score is None:
        return score_quantiles(fit.curves)
    scores = np.atleast_1d(numbers_of(score, "score"))
    if scores.ndim != 1 or not 0 < len(scores) <= len(style.PALETTE):
        raise FitError(f"score={shown(score)} must be 1 to {len(style.PALETTE)} scores")
    return scores


def _density(theta: Floats, scale: Scale) -> tuple[Floats, Floats, float]:
    """Return values of theta, their density and the share at 0, from quantiles at `_LEVELS`."""
    # equal quantiles are a spike at 0, and have no density
    rises = np.diff(theta) > 0
    position = scale.position(np.where(scale.holds(theta), theta, np.nan))
    density = np.diff(_LEVELS)[rises] / np.diff(position)[rises]
    middle = (0.5 * (theta[1:] + theta[:-1]))[rises]
    spike = 0.0 if rises.all() else float(_LEVELS[1:][~rises].max())
    return middle, density, spike


def plot_prior_predictive(
    result: xr.DataTree,
    lines: int = 40,
    axes: Sequence[Axes] | Panels | None = None,
) -> Panels:
    """Draw E(theta | t) (left) and the distribution of the items' outcomes (right) under a prior.

    A thin line is a draw from the prior, the thick line the median, the band the central 90%.

    Parameters
    ----------
    result : xarray.DataTree
        From `soc.prior_predictive`.
    lines : int
        Number of thin lines.
    axes : Sequence[Axes] or numpy.ndarray of shape (2,), or None
        Two axes; None makes a figure.

    Returns
    -------
    numpy.ndarray
        The two axes.

    Raises
    ------
    FitError
        If `result` is something else, or there are not two axes.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> result = soc.prior_predictive(soc.Gamma(), stats)
    >>> len(soc.plots.plot_prior_predictive(result))
    2
    """
    result = A(xr.DataTree, _PRIOR_RESULT)(result, "result")
    lines = Whole(1)(lines, "lines")
    groups = (result.children.get(name, xr.DataTree()) for name in _PRIOR_GROUPS)
    curves, drawn = (group.to_dataset() for group in groups)
    outcomes = [f.outcome for f in FAMILIES.values() if f.outcome.observed in drawn]
    if "mean" not in curves or not outcomes or "item" not in drawn.dims:
        raise FitError(f"result must be {_PRIOR_RESULT}")
    outcome = outcomes[0]
    panels = style.panels(axes, (8, 4), 1, 2)
    score = curves["mean"]["score"].to_numpy()
    left, right = panels
    dims = ("chain", "draw")
    mean, values = (
        x.stack(sample=dims).transpose("sample", ...).to_numpy().astype(float)
        for x in (curves["mean"], drawn[outcome.observed])
    )
    _draw_lines(left, score, mean, lines, along_x=True)
    if style.is_rate(score):
        style.scaled_axis(left.xaxis, LOG.name, score)
    if outcome.theta is not LINEAR:
        in_view = np.quantile(mean, _SHOWN)
        style.scaled_axis(left.yaxis, outcome.theta.name, in_view)
        left.set_ylim(*in_view)
    style.finish(
        left, "Curves drawn from the prior", "score", "E(theta | score)", False
    )
    sorted_outcomes = np.quantile(values, _SHARES, axis=1, method="inverted_cdf").T
    _draw_lines(right, _SHARES, sorted_outcomes, lines, along_x=False)
    if outcome.positive:
        right.set_xscale("symlog", linthresh=_FEW)
        right.set_xlim(0.0, None)
    words = f"{outcome.words.outcome} of an item"
    items = counted(drawn.sizes["item"], "item")
    style.finish(right, f"Outcomes of {items}", words, "share of items at or below")
    return panels


def _draw_lines(
    ax: Axes, across: Floats, values: Floats, lines: int, along_x: bool
) -> None:
    """Draw lines of some draws, and the median and band of all, over or next to `across`."""
    low, middle, high = np.quantile(values, [0.05, 0.5, 0.95], axis=0)
    number = min(lines, len(values))
    drawn = values[np.arange(number) * len(values) // number]
    labels = ["draws from the prior"] + [None] * (number - 1)
    sides = 1 if along_x else -1
    color = style.CURVE
    ax.plot(*(across, drawn.T)[::sides], label=labels, color=color, lw=0.7, alpha=0.4)
    fill = ax.fill_between if along_x else ax.fill_betweenx
    fill(across, low, high, label="90% of the draws", color=color, alpha=0.12, lw=0)
    ax.plot(*(across, middle)[::sides], color=color, lw=2.6, label="median")


def _weighs_by_size(fit: Fit) -> bool:
    """Return whether curves and dots weigh items by sizes that add up, as theta depends on them."""
    return fit.prior.exposure is not None and fit.curves.outcome.sizes_add


def fitted_curves(
    fit: Fit, score: Sequence[float] | Floats | None = None, group: object = None
) -> xr.Dataset:
    """Return calibration curves, of all items averaged over exposures as outcomes of bins are."""
    if fit.mean_only:
        raise FitError(f"the curve of the variance cannot be drawn: {MEAN_ONLY}")
    if group is None and _weighs_by_size(fit):
        scores = default_scores(fit.curves) if score is None else np.array(score)
        return curve_dataset(posterior_of(fit), {"score": scores}, by_size=True)
    return calibration_curves(fit, score, group)


def _bins_of(fit: Fit) -> tuple[Floats, ...]:
    """Return score, outcome, size and number of items of every bin, by score."""
    bins = fit.curves.bins
    outcome = fit.curves.outcome
    # which it is where some bins say nothing
    if outcome.observed not in bins:
        bins = bins.merge(fit.data["observed_data"].to_dataset())
    by_score = bins.sortby("score")
    names = "score", outcome.observed, outcome.size, "n_items"
    return tuple(by_score[name].to_numpy().astype(float) for name in names)


def _merged_outcomes(fit: Fit) -> Triple:
    """Return score, estimate of theta and its error of noise alone, of bins merged evenly."""
    score, y, size, items = _bins_of(fit)
    atom = fit.curves.atom(score)
    part = np.where(atom > 0, -atom, equal_parts(score, _POINTS, items))
    _, group = np.unique(part, return_inverse=True)
    weighted = items * fit.curves.position("mean", score)
    position = np.bincount(group, weighted) / np.bincount(group, items)
    merged = fit.axis("mean").inverse(position)
    if fit.curves.outcome.truncated:
        estimate, error = _listed_estimates(fit, merged, y, group)
    else:
        estimate, error = fit.curves.outcome.pooled_estimates(y, size, items, group)
    merged[group[atom > 0]] = score[atom > 0]
    inside = np.isfinite(estimate) & fit.curves.outcome.theta.holds(estimate)
    return _drawn_at(fit, merged[inside]), estimate[inside], error[inside]


def _listed_estimates(fit: Fit, score: Floats, y: Floats, group: Ints) -> Pair:
    """Return the means of theta, and their errors, that explain totals of items of 1 or more.

    They are one step from the curve, along the slope of the totals in it.
    """
    bins = fit.curves.bins.sortby("score")
    total, variance, slope = (
        np.bincount(group, bins[f"listed_{name}"].to_numpy())
        for name in ("total", "variance", "slope")
    )
    outcome = fit.curves.outcome
    location, _ = fit.curves.average(score)
    with np.errstate(divide="ignore", invalid="ignore"):
        estimate = outcome.theta.score(
            location + (np.bincount(group, y) - total) / slope
        )
        return estimate, outcome.noise(estimate) * np.sqrt(variance) / slope


def _drawn_at(fit: Fit, score: Floats) -> Floats:
    """Return where to draw scores; the ends of the axis, such as 0 and 1, lie outside the bins."""
    axis = fit.axis("mean")
    bin_scores = fit.curves.bins["score"].to_numpy()
    if axis.local.holds(score).all():
        return score
    position = axis(bin_scores[axis.local.holds(bin_scores)])
    margin = _END_MARGIN * np.ptp(position)
    return np.clip(
        score, *axis.inverse([position.min() - margin, position.max() + margin])
    )


def _theta_words(fit: Fit) -> tuple[str, str]:
    """Return the unit of theta and its estimate from outcomes alone, in the user's words."""
    outcome = fit.curves.outcome
    roles = fit.curves.roles.outcomes
    columns = {role: roles.get(role, role) for role in (outcome.observed, outcome.size)}
    name, size = (
        "" if name == role else style.escaped(name, 24)
        for role, name in columns.items()
    )
    size = size or outcome.words.size
    if outcome.direct:
        column = f" ({name})" if name else ""
        unit = outcome.words.events + column
        estimate = f"mean {outcome.words.outcome}{column}"
    else:
        unit = name or outcome.words.events
        estimate = f"{unit} / {size}"
    return outcome.words.unit.format(outcome=unit, size=size), estimate


def _sizes_of(fit: Fit) -> str:
    """Return numbers of items, bins and groups, for titles."""
    bins = fit.curves.bins
    items = counted(int(bins["n_items"].sum()), "item")
    text = f"n = {items} in {counted(bins.sizes['bin'], 'bin')}"
    return text + (f" and {counted(len(fit.groups), 'group')}" if fit.groups else "")
