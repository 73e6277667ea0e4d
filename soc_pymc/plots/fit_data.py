"""What pictures read from a fit: curves with bands, outcomes by bin, axes, units and titles."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

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
from . import style

_POINTS = 40


def outcome_of(fit: Fit) -> Outcome:
    """Returns the kind of outcome that the fit is of."""
    return family_of(fit.prior).outcome


def theta_scale(fit: Fit) -> Scale:
    """Returns the scale on which theta and its mean are drawn."""
    return outcome_of(fit).theta


def has_steps(fit: Fit) -> bool:
    """Returns whether the fit's curves are constant within bins."""
    return isinstance(fit.method, FiveSteps) and not fit.method.smooth


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
        """Name of the curve in a legend."""
        return "estimate" if self.low is None else "posterior median"


def weighs_by_size(fit: Fit) -> str:
    """Says how curves weigh items, if theta depends on sizes and these add up; else empty."""
    words = outcome_of(fit).words
    by_size = fit.prior.exposure is not None and outcome_of(fit).sizes_add
    return f"items weighted by their {words.size}" if by_size else ""


def fitted_curves(
    fit: Fit, score: Sequence[float] | Floats | None = None, group: object = None
) -> xr.Dataset:
    """Calibration curves at 200 scores, or where they are constant within bins, at every bin.

    A term in exposure is averaged as outcomes of bins are, if sizes add up, and for a group over
    its items.
    """
    if fit.mean_only:
        raise FitError(f"there is no curve of the variance to draw: {MEAN_ONLY}")
    if group is None and weighs_by_size(fit):
        return curves_of(
            fit, default_scores(fit) if score is None else np.array(score), by_size=True
        )
    if score is not None or not has_steps(fit):
        return calibration_curves(fit, score, group)
    bins = fit.data["constant_data"]["score"].to_numpy()
    curves = calibration_curves(fit, np.sort(bins), group)
    known = np.isfinite(curves["mean"].to_numpy()).all(axis=(0, 1))
    return curves.isel(score=np.flatnonzero(known))


def curve_lines(
    fit: Fit, curves: xr.Dataset, prob: float, simultaneous: bool = False
) -> dict[str, Line]:
    """Returns lines of all variables of curves by name; simultaneous bands hold whole curves."""
    score, steps = curves["score"].to_numpy(), has_steps(fit)
    banded = bands(curves, prob, simultaneous=simultaneous)
    lines = {}
    for name in map(str, curves.data_vars):
        low, middle, high = (banded[name].sel(bound=b).to_numpy() for b in banded["bound"].values)
        ends = (None, None) if fit.one_draw else (low, high)
        lines[name] = Line(score, middle, steps, *ends)
    return lines


def draw_band(ax: Axes, line: Line, color: Any, alpha: float, label: str | None) -> None:
    """Shades a line's band, if it has one."""
    if line.low is None or line.high is None:
        return
    look: dict[str, Any] = {"color": color, "alpha": alpha, "label": label}
    ends = line.score, line.low, line.high
    if len(line.score) == 1:
        ax.vlines(*ends, linewidth=6, **look)
    else:
        ax.fill_between(*ends, linewidth=0, step="mid" if line.steps else None, **look)


def draw_line(ax: Axes, line: Line, color: str, label: str) -> None:
    """Draws a line; of a single bin, a point."""
    look: dict[str, Any] = {"drawstyle": "steps-mid"} if line.steps else {}
    look = {"marker": "o"} if len(line.score) == 1 else look
    width = 1.0 if line.steps else 1.6
    ax.plot(line.score, line.middle, color=color, label=label, linewidth=width, **look)


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
    estimate, error = outcome_of(fit).pooled(y, size, items, group)
    known = np.isfinite(estimate)
    return axis.inverse(position[known]), estimate[known], error[known]


def middle_scores(fit: Fit, shares: Sequence[float]) -> Floats:
    """Returns scores of bins below which given shares of the items lie."""
    score, _, _, items = _bins(fit)
    middle = (np.cumsum(items) - 0.5 * items) / items.sum()
    return np.unique(score[np.searchsorted(middle, shares).clip(0, len(score) - 1)])


def scores_estimate_theta(fit: Fit) -> bool:
    """Returns whether scores can be read as estimates of theta."""
    return outcome_of(fit).reads_theta(*_bins(fit))


# --- words and axes ------------------------------------------------------------------------------


def score_axis(fit: Fit, ax: Axes, score: Floats) -> None:
    """Puts scores on the scale on which the mean curve is smooth."""
    style.scaled_axis(ax.xaxis, fit.axis("mean").scale, float(score.min()), float(score.max()))


def score_name(source: Any) -> str:
    """Returns what scores of a fit are called, with the user's name of their column."""
    return style.named("score", outcome_roles(source.data.attrs).get("score"))


def column_name(fit: Fit, role: str) -> str | None:
    """Returns the user's name of a column as plain text; None where it is unknown or the role's."""
    name = outcome_roles(fit.data.attrs).get(role)
    return None if name is None or name == role else style.escaped(name, 24)


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
    """Returns the unit of theta, for labels, in the user's words."""
    events, size = _outcomes_and_size(fit)
    return outcome_of(fit).words.unit.format(outcome=events, size=size)


def own_estimate(fit: Fit) -> str:
    """Returns what outcomes say of theta by themselves, such as count / exposure."""
    outcome = outcome_of(fit)
    if not outcome.direct:
        return " / ".join(_outcomes_and_size(fit))
    name = column_name(fit, outcome.observed)
    return f"mean {outcome.words.outcome}" + (f" ({name})" if name else "")


def total(fit: Fit) -> str:
    """Returns numbers of items, bins and groups, for titles."""
    bins = fit.data["constant_data"]
    held = (
        f"n = {int(bins['n_items'].sum()):,} items in {style.number_of(bins.sizes['bin'], 'bin')}"
    )
    return held + (f" and {style.number_of(len(fit.groups), 'group')}" if fit.groups else "")
