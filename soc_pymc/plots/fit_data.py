"""Data of a fit for pictures: curves with bands, outcomes by bin, axes, units and titles."""

from collections.abc import Sequence

import numpy as np
import xarray as xr

from .._lib.arrays import Floats
from .._lib.errors import FitError
from ..families.family import family_of
from ..families.outcomes import Outcome
from ..families.row_sums import MEAN_ONLY
from ..inference.methods import FiveSteps
from ..inference.results import Fit, outcome_roles
from ..posterior.calibration import calibration_curves, curves_of, default_scores
from ..posterior.curves import atom_of, place_of
from . import style

_POINTS = 40
_END_MARGIN = 0.05  # share of the axis between the outermost scores and those without a position


def outcome_of(fit: Fit) -> Outcome:
    """Return the fit's kind of outcome."""
    return family_of(fit.prior).outcome


def has_steps(fit: Fit) -> bool:
    """Return whether the fit's curves are constant within bins."""
    return isinstance(fit.method, FiveSteps) and not fit.method.smooth


def weighs_by_size(fit: Fit) -> str:
    """Describe how curves weigh items, if theta depends on sizes that add up; else empty."""
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
        scores = default_scores(fit) if score is None else np.array(score)
        return curves_of(fit, scores, by_size=True)
    if score is not None or not has_steps(fit):
        return calibration_curves(fit, score, group)
    bins = fit.data["constant_data"]["score"].to_numpy()
    curves = calibration_curves(fit, np.sort(bins), group)
    known = np.isfinite(curves["mean"].to_numpy()).all(axis=(0, 1))
    return curves.isel(score=np.flatnonzero(known))


def bins_of(fit: Fit) -> tuple[Floats, Floats, Floats, Floats]:
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
    score, y, size, items = bins_of(fit)
    axis = fit.axis("mean")
    middle = np.cumsum(items) - 0.5 * items
    group = np.floor(middle / items.sum() * points).astype(int)
    atom = atom_of(fit, score)
    group = np.where(atom > 0, -atom, group)
    _, group = np.unique(group, return_inverse=True)
    position = np.bincount(group, items * place_of(fit, "mean", score)) / np.bincount(group, items)
    estimate, error = outcome_of(fit).pooled(y, size, items, group)
    known = np.isfinite(estimate)
    merged = axis.inverse(position)
    merged[group[atom > 0]] = score[atom > 0]
    return merged[known], estimate[known], error[known]


def drawn_at(fit: Fit, score: Floats) -> Floats:
    """Positions to draw scores at; those at the ends of the axis, such as 0 and 1, lie outside."""
    axis, bin_scores = fit.axis("mean"), fit.data["constant_data"]["score"].to_numpy()
    scale, places = axis.local, np.array(score, dtype=float)
    if scale.holds(places).all():
        return places
    low, high = axis([(inner := bin_scores[scale.holds(bin_scores)]).min(), inner.max()])
    margin = _END_MARGIN * (high - low)
    for end, place in ((places <= scale.low, low - margin), (places >= scale.high, high + margin)):
        places[end] = axis.inverse(place)
    return places


def _words(fit: Fit) -> tuple[str, str, str]:
    """Return the user's name of the outcome, and names of outcomes and sizes in units."""
    outcome, roles = outcome_of(fit), outcome_roles(fit.data.attrs)
    columns = (roles.get(role, role) for role in (outcome.observed, outcome.size))
    name, size = (
        "" if name == role else style.escaped(name, 24)
        for name, role in zip(columns, (outcome.observed, outcome.size), strict=True)
    )
    events = name or outcome.words.events
    if outcome.direct and name:
        events = f"{outcome.words.events} ({name})"
    return name, events, size or outcome.words.size


def theta_unit(fit: Fit) -> str:
    """Return the unit of theta, for labels, in the user's words."""
    _, events, size = _words(fit)
    return outcome_of(fit).words.unit.format(outcome=events, size=size)


def own_estimate(fit: Fit) -> str:
    """Return the estimate of theta from outcomes alone, such as count / exposure."""
    (name, events, size), outcome = _words(fit), outcome_of(fit)
    if not outcome.direct:
        return f"{events} / {size}"
    return f"mean {outcome.words.outcome}" + (f" ({name})" if name else "")


def total(fit: Fit) -> str:
    """Return numbers of items, bins and groups, for titles."""
    bins = fit.data["constant_data"]
    number = style.number_of(bins.sizes["bin"], "bin")
    held = f"n = {int(bins['n_items'].sum()):,} items in {number}"
    return held + (f" and {style.number_of(len(fit.groups), 'group')}" if fit.groups else "")
