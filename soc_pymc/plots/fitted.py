"""What pictures read from a fit: curves with bands, outcomes by bin, axes, units and titles."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from numpy.typing import NDArray

from .._lib.arguments import real, shown
from .._lib.errors import FitError
from ..inference.methods import FiveSteps
from ..inference.results import Fit, outcome_roles
from ..posterior.calibration import bands, calibration_curves
from ..posterior.predictive import Posterior
from .arguments import need_fit
from .style import BLUE, escaped, named, number_of, plain, rate_axis

__all__ = [
    "Line",
    "at_exposure",
    "bin_outcomes",
    "binned_rates",
    "binned_values",
    "column_name",
    "curve_lines",
    "draw_band",
    "draw_identity",
    "draw_line",
    "fitted_curves",
    "has_bands",
    "has_steps",
    "need_prior",
    "own_outcome",
    "score_axis",
    "score_words",
    "scores_estimate_theta",
    "theta_unit",
    "total",
]

Floats = NDArray[np.float64]

_POINTS = 40
_ALIKE = 3.0  # scores within this factor of the outcomes are estimates of theta


@dataclass(frozen=True)
class Line:
    """A curve over the score, with its band where the fit has more than one draw.

    Attributes
    ----------
    score, middle
        Points of the curve.
    low, high
        Ends of the band; None where the fit has one draw.
    steps
        Whether the curve is constant within bins.
    """

    score: Floats
    middle: Floats
    low: Floats | None
    high: Floats | None
    steps: bool

    @property
    def name(self) -> str:
        """What the curve is called in a legend."""
        return "estimate" if self.low is None else "posterior median"


def draw_identity(ax: Axes, score: Floats) -> None:
    """Draw theta = t, dashed and on top: a calibrated score's curve runs along it."""
    (line,) = ax.plot(score, score, color=BLUE, linewidth=1.4, label="theta = t", zorder=5)
    line.set_linestyle((0, (4, 3)))
    if len(score) == 1:
        line.set_marker("_")


def has_bands(fit: Fit) -> bool:
    """Whether the fit has draws that differ, and so bands: one draw is a point estimate."""
    sizes = fit.data["posterior"].sizes
    return bool(sizes["chain"] * sizes["draw"] > 1)


def has_steps(fit: Fit) -> bool:
    """Whether the fit's curves are constant within bins."""
    return isinstance(fit.method, FiveSteps) and not fit.method.smooth


def fitted_curves(fit: Fit, exposure: float | None = None) -> xr.Dataset:
    """Calibration curves at 200 scores, or where they are constant within bins, at every bin."""
    if not has_steps(fit):
        return calibration_curves(fit, exposure=exposure)
    bins = fit.data["constant_data"]["score"].to_numpy()
    curves = calibration_curves(fit, np.sort(bins), exposure=exposure)
    seen = np.isfinite(curves["mean"].to_numpy()).all(axis=(0, 1))
    return curves.isel(score=np.flatnonzero(seen))


def curve_lines(fit: Fit, curves: xr.Dataset, prob: float, whole: bool = False) -> dict[str, Line]:
    """Lines of all variables of curves, by name.

    Parameters
    ----------
    fit
        The fit.
    curves
        From `fitted_curves`.
    prob
        Probability of the bands.
    whole
        Whether bands hold whole curves with this probability.
    """
    score, steps = curves["score"].to_numpy(), has_steps(fit)
    banded = bands(curves, prob, simultaneous=whole)
    lines = {}
    for name in map(str, curves.data_vars):
        low, middle, high = (banded[name].sel(bound=b).to_numpy() for b in banded["bound"].values)
        one = Line(score, middle, None, None, steps)
        lines[name] = replace(one, low=low, high=high) if has_bands(fit) else one
    return lines


def draw_band(ax: Axes, line: Line, color: Any, alpha: float, label: str) -> None:
    """Shade a line's band, if it has one."""
    if line.low is None or line.high is None:
        return
    style: dict[str, Any] = {"color": color, "alpha": alpha, "label": label}
    if len(line.score) == 1:
        ax.vlines(line.score, line.low, line.high, linewidth=6, **style)
        return
    if line.steps:
        style["step"] = "mid"
    ax.fill_between(line.score, line.low, line.high, linewidth=0, **style)


def draw_line(ax: Axes, line: Line, color: str, label: str, **style: Any) -> None:
    """Draw a line; of a single bin, a point."""
    style = {"linewidth": 1.0 if line.steps else 1.6, **style}
    if len(line.score) == 1:
        ax.plot(line.score, line.middle, marker="o", color=color, label=label, **style)
        return
    steps = "steps-mid" if line.steps else "default"
    ax.plot(line.score, line.middle, color=color, label=label, drawstyle=steps, **style)


def bin_outcomes(fit: Fit, law: Posterior) -> tuple[Floats, Floats, Floats]:
    """Score, mean outcome (events / exposure, or mean value) and items of every bin, by score.

    Bins without exposure are left out.
    """
    bins, seen = fit.data["constant_data"], fit.data["observed_data"]
    score, items = bins["score"].to_numpy(), bins["n_items"].to_numpy().astype(float)
    if law.outcome.whole:
        exposure = bins["exposure"].to_numpy()
        used = exposure > 0
        outcome = seen["count"].to_numpy()[used] / exposure[used]
        score, items = score[used], items[used]
    else:
        outcome = seen["value"].to_numpy()
    order = np.argsort(score)
    return score[order], outcome[order], items[order]


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


def scores_estimate_theta(fit: Fit, law: Posterior) -> bool:
    """Whether scores can be read as estimates of theta, so that theta = score means something.

    Of counts, positive scores that predict the total count within a factor of 3; of values, scores
    on which the bins' mean values have a slope within a factor of 3 of 1, and like means.
    """
    bins = fit.data["constant_data"]
    score = bins["score"].to_numpy()
    if law.outcome.whole:
        count = float(fit.data["observed_data"]["count"].sum())
        if score.min() <= 0 or count <= 0:
            return False
        expected = float((score * bins["exposure"].to_numpy()).sum())
        return 1 / _ALIKE < expected / count < _ALIKE
    score, value, items = bin_outcomes(fit, law)
    mean, level = np.average(score, weights=items), np.average(value, weights=items)
    square = float(np.average((score - mean) ** 2, weights=items))
    if square == 0:
        return False
    slope = float(np.average((score - mean) * (value - level), weights=items)) / square
    return 1 / _ALIKE < slope < _ALIKE and abs(mean - level) < _ALIKE * square**0.5


def need_prior(fit: Fit, exposure: float | None) -> None:
    """Refuse fits whose prior of theta depends on an exposure (noise sd) that is not given.

    What is no fit is refused too, and an exposure that is not positive.
    """
    need_fit(fit)
    if fit.prior.exposure is not None and exposure is None:
        raise FitError(
            "the prior of theta given the score depends on the exposure (noise sd) too in this "
            "fit: give exposure=, at which to draw it, or use soc.plots.plot_curves"
        )
    if fit.prior.exposure is None and exposure is not None:
        raise FitError(
            f"the prior is the same at every exposure (noise sd) in this fit: leave out exposure="
            f"{shown(exposure)}, or fit with exposure=soc.Spline()"
        )
    if exposure is None:
        return
    try:
        real(exposure, "exposure", above=0)
    except FitError:
        raise FitError(f"exposure={shown(exposure)} must be a positive number") from None


def score_axis(fit: Fit, ax: Axes, score: Floats) -> None:
    """Logarithmic axis of scores where the mean curve is smooth in their logarithm."""
    if fit.axis("mean").scale == "log":
        rate_axis(ax.xaxis, float(score.min()), float(score.max()))


def at_exposure(law: Posterior, exposure: float | None) -> str:
    """What the prior is drawn at, for titles."""
    return (
        "" if exposure is None else f" and {law.outcome.size.replace('_', ' ')} {plain(exposure)}"
    )


def column_name(fit: Fit, role: str) -> str | None:
    """The user's own name of a column, as plain text; None where it is unknown or the role's."""
    name = outcome_roles(fit.data.attrs).get(role)
    return None if name is None or name == role else escaped(name, 24)


def score_words(fit: Fit, words: str = "score t") -> str:
    """What scores are called on an axis, with the user's name of their column."""
    name = outcome_roles(fit.data.attrs).get("score")
    return words if name == "score" else named(words, name)


def own_outcome(fit: Fit, law: Posterior) -> str:
    """What outcomes say of theta by themselves, in the user's words: counts over exposures."""
    if not law.outcome.whole:
        return named("mean value", column_name(fit, "value"))
    return f"{column_name(fit, 'count') or 'events'} / {column_name(fit, 'exposure') or 'exposure'}"


def total(fit: Fit, law: Posterior) -> str:
    """Numbers of items, bins and events, for titles."""
    bins = fit.data["constant_data"]
    items = int(bins["n_items"].sum())
    held = f"n = {items:,} items in {number_of(bins.sizes['bin'], 'bin')}"
    if fit.groups:
        held += f" and {number_of(len(fit.groups), 'group')}"
    if not law.outcome.whole:
        return held
    events = int(fit.data["observed_data"]["count"].sum())
    exposure = float(bins["exposure"].sum())
    amount = f"{exposure:,.0f}" if exposure >= 100 else f"{exposure:.3g}"
    name = column_name(fit, "exposure")
    amount = f"{amount} {name}" if name else f"exposure {amount}"
    return f"{held}; {events:,} {column_name(fit, 'count') or 'events'}, {amount}"


def theta_unit(fit: Fit, law: Posterior) -> str:
    """Unit of theta, for labels, in the user's words."""
    if not law.outcome.whole:
        return named("in the unit of the values", column_name(fit, "value"))
    events, exposure = column_name(fit, "count"), column_name(fit, "exposure")
    return f"{events or 'events'} per unit of {exposure or 'exposure'}"
