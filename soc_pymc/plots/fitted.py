"""What pictures read from a fit: curves with bands, outcomes by bin, axes, units and titles."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from .._lib.arguments import POSITIVE, shown
from .._lib.arrays import Floats
from .._lib.errors import FitError
from ..families.family import family_of
from ..families.outcomes import Outcome
from ..families.row_sums import MEAN_ONLY
from ..families.scales import Scale
from ..inference.methods import FiveSteps
from ..inference.results import Fit, outcome_roles
from ..posterior.calibration import bands, calibration_curves, curves_of, default_scores
from ..posterior.curves import atom_of
from . import canvas

_POINTS = 40


def outcome_of(fit: Fit) -> Outcome:
    """The kind of outcome that the fit is of."""
    return family_of(fit.prior).outcome


def theta_scale(fit: Fit) -> Scale:
    """The scale on which theta and its mean are drawn."""
    return outcome_of(fit).theta


def has_steps(fit: Fit) -> bool:
    """Whether the fit's curves are constant within bins."""
    return isinstance(fit.method, FiveSteps) and not fit.method.smooth


def need_size(fit: Fit, exposure: float | None) -> None:
    """Refuse fits whose prior depends on an exposure (noise sd) if none is given, or vice versa."""
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
    if exposure is not None:
        POSITIVE(exposure, "exposure")


def need_variance(fit: Fit) -> None:
    """Refuse fits that know the mean alone."""
    if fit.mean_only:
        raise FitError(f"there is no curve of the variance to draw: {MEAN_ONLY}")


# --- curves --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Line:
    """A curve over the score, with its band where the fit has more than one draw."""

    score: Floats
    middle: Floats
    steps: bool = False  # whether the curve is constant within bins
    low: Floats | None = None
    high: Floats | None = None

    @property
    def name(self) -> str:
        """What the curve is called in a legend."""
        return "estimate" if self.low is None else "posterior median"


def weighs_by_size(fit: Fit) -> str:
    """How curves weigh items as dots do, if theta depends on sizes and these add up; else empty."""
    words = outcome_of(fit).words
    by_size = fit.prior.exposure is not None and outcome_of(fit).sizes_add
    return f"items weighted by their {words.size}" if by_size else ""


def fitted_curves(
    fit: Fit,
    exposure: float | None = None,
    by_size: bool = False,
    score: Sequence[float] | Floats | None = None,
) -> xr.Dataset:
    """Calibration curves at 200 scores, or where they are constant within bins, at every bin.

    With `by_size` a term in exposure is averaged as the dots are, where sizes add up.
    """
    need_variance(fit)
    if by_size and weighs_by_size(fit):
        at = default_scores(fit) if score is None else np.array(score)
        return curves_of(fit, at, by_size=True)
    if score is not None:
        return calibration_curves(fit, score, exposure=exposure)
    if not has_steps(fit):
        return calibration_curves(fit, exposure=exposure)
    bins = fit.data["constant_data"]["score"].to_numpy()
    curves = calibration_curves(fit, np.sort(bins), exposure=exposure)
    seen = np.isfinite(curves["mean"].to_numpy()).all(axis=(0, 1))
    return curves.isel(score=np.flatnonzero(seen))


def curve_lines(fit: Fit, curves: xr.Dataset, prob: float, whole: bool = False) -> dict[str, Line]:
    """Lines of all variables of curves, by name; `whole` bands hold whole curves."""
    score, steps = curves["score"].to_numpy(), has_steps(fit)
    banded = bands(curves, prob, simultaneous=whole)
    lines = {}
    for name in map(str, curves.data_vars):
        low, middle, high = (banded[name].sel(bound=b).to_numpy() for b in banded["bound"].values)
        ends = (None, None) if fit.one_draw else (low, high)
        lines[name] = Line(score, middle, steps, *ends)
    return lines


def draw_band(ax: Axes, line: Line, color: Any, alpha: float, label: str) -> None:
    """Shade a line's band, if it has one."""
    if line.low is None or line.high is None:
        return
    style: dict[str, Any] = {"color": color, "alpha": alpha, "label": label}
    ends = line.score, line.low, line.high
    if len(line.score) == 1:
        ax.vlines(*ends, linewidth=6, **style)
    else:
        ax.fill_between(*ends, linewidth=0, step="mid" if line.steps else None, **style)


def draw_line(ax: Axes, line: Line, color: str, label: str, **style: Any) -> None:
    """Draw a line; of a single bin, a point."""
    style = {"linewidth": 1.0 if line.steps else 1.6, "color": color, "label": label, **style}
    look: dict[str, Any] = {"drawstyle": "steps-mid"} if line.steps else {}
    look = {"marker": "o"} if len(line.score) == 1 else look
    ax.plot(line.score, line.middle, **look, **style)


def draw_identity(ax: Axes, score: Floats) -> None:
    """Draw theta = t, dashed and on top: a calibrated score's curve runs along it."""
    style: dict[str, Any] = {"color": canvas.REFERENCE, "linewidth": 1.4, "linestyle": (0, (4, 3))}
    marker = "_" if len(score) == 1 else None
    ax.plot(score, score, label="theta = t", zorder=5, marker=marker, **style)


# --- bins ----------------------------------------------------------------------------------------


def _bins(fit: Fit) -> tuple[Floats, Floats, Floats, Floats]:
    """Score, outcome, size and number of items of every bin, by score."""
    bins, outcome = fit.data["constant_data"], outcome_of(fit)
    order = np.argsort(bins["score"].to_numpy())
    observed = fit.data["observed_data"][outcome.observed]
    score, y, size, items = (
        values.to_numpy()[order].astype(float)
        for values in (bins["score"], observed, bins[outcome.size], bins["n_items"])
    )
    return score, y, size, items


def bin_outcomes(fit: Fit) -> tuple[Floats, Floats]:
    """Score and own estimate of theta of every bin in which something was seen, by score."""
    score, y, size, _ = _bins(fit)
    own = outcome_of(fit).estimate(y, size)
    seen = np.isfinite(own)
    return score[seen], own[seen]


def merged_outcomes(fit: Fit, points: int = _POINTS) -> tuple[Floats, Floats, Floats]:
    """Score, estimate of theta and its standard error in `points` groups of neighbouring bins.

    Groups have about equal numbers of items, and each atom is one. The score is the item-weighted
    mean on the mean curve's axis; the error is that of noise alone.
    """
    score, y, size, items = _bins(fit)
    axis = fit.axis("mean")
    middle = np.cumsum(items) - 0.5 * items
    group = np.floor(middle / items.sum() * points).astype(int)
    atom = atom_of(fit, score)
    group = np.where(atom > 0, -atom, group)
    _, group = np.unique(group, return_inverse=True)
    position = np.bincount(group, items * axis(score)) / np.bincount(group, items)
    own, error = outcome_of(fit).pooled(y, size, items, group)
    seen = np.isfinite(own)
    return axis.inverse(position[seen]), own[seen], error[seen]


def scores_estimate_theta(fit: Fit) -> bool:
    """Whether scores can be read as estimates of theta, so that theta = score means something."""
    return outcome_of(fit).reads_theta(*_bins(fit))


# --- words and axes ------------------------------------------------------------------------------


def score_axis(fit: Fit, ax: Axes, score: Floats) -> None:
    """Axis of scores on the scale on which the mean curve is smooth."""
    canvas.scaled_axis(ax.xaxis, fit.axis("mean").scale, float(score.min()), float(score.max()))


def score_name(source: Any, words: str = "score t") -> str:
    """What scores of a fit or of statistics are called, with the user's name of their column."""
    name = outcome_roles(source.data.attrs).get("score")
    return words if name == "score" else canvas.named(words, name)


def column_name(fit: Fit, role: str) -> str | None:
    """The user's own name of a column, as plain text; None where it is unknown or the role's."""
    name = outcome_roles(fit.data.attrs).get(role)
    return None if name is None or name == role else canvas.escaped(name, 24)


def at_size(fit: Fit, exposure: float | None) -> str:
    """What the prior is drawn at, for titles."""
    return "" if exposure is None else f" and {outcome_of(fit).words.size} {canvas.plain(exposure)}"


def _outcomes_and_size(fit: Fit) -> tuple[str, str]:
    """What outcomes and sizes are called in units, in the user's words."""
    outcome = outcome_of(fit)
    name, size = column_name(fit, outcome.observed), column_name(fit, outcome.size)
    events = outcome.words.events
    if outcome.direct and name:
        events = f"{events} ({name})"
    elif name:
        events = name
    return events, size or outcome.words.size


def theta_unit(fit: Fit) -> str:
    """Unit of theta, for labels, in the user's words."""
    events, size = _outcomes_and_size(fit)
    return outcome_of(fit).words.unit.format(outcome=events, size=size)


def own_estimate(fit: Fit) -> str:
    """What outcomes say of theta by themselves, in the user's words: counts over exposures."""
    outcome = outcome_of(fit)
    if not outcome.direct:
        return " / ".join(_outcomes_and_size(fit))
    name = column_name(fit, outcome.observed)
    return f"mean {outcome.words.outcome}" + (f" ({name})" if name else "")


def total(fit: Fit) -> str:
    """Numbers of items, bins and events, for titles."""
    outcome, bins = outcome_of(fit), fit.data["constant_data"]
    items = int(bins["n_items"].sum())
    held = f"n = {items:,} items in {canvas.number_of(bins.sizes['bin'], 'bin')}"
    if fit.groups:
        held += f" and {canvas.number_of(len(fit.groups), 'group')}"
    if not outcome.sizes_add:
        return held
    observed = int(fit.data["observed_data"][outcome.observed].sum())
    size = float(bins[outcome.size].sum())
    amount = f"{size:,.0f}" if size >= 100 else f"{size:.3g}"
    name = column_name(fit, outcome.size)
    amount = f"{amount} {name}" if name else f"{outcome.words.size} {amount}"
    return f"{held}; {observed:,} {_outcomes_and_size(fit)[0]}, {amount}"
