"""Data of a fit for pictures: curves, outcomes by bin, units and titles."""

from collections.abc import Sequence

import numpy as np
import xarray as xr

from .._lib.arrays import Floats
from .._lib.errors import FitError
from ..families.family import family_of
from ..families.outcomes import Outcome
from ..families.row_sums import MEAN_ONLY
from ..inference.results import Fit, outcome_roles
from ..posterior.calibration import calibration_curves, curves_of, default_scores
from ..posterior.curves import atom_of, place_of
from . import style

_POINTS = 40
_END_MARGIN = 0.05  # share of the axis between the outermost scores and those without a position


def outcome_of(fit: Fit) -> Outcome:
    """Return the fit's kind of outcome."""
    return family_of(fit.prior).outcome


def weighs_by_size(fit: Fit) -> bool:
    """Return whether curves and dots weigh items by sizes that add up, as theta depends on them."""
    return fit.prior.exposure is not None and outcome_of(fit).sizes_add


def fitted_curves(
    fit: Fit, score: Sequence[float] | Floats | None = None, group: object = None
) -> xr.Dataset:
    """Return calibration curves, of all items averaged over exposures as outcomes of bins are."""
    if fit.mean_only:
        raise FitError(f"there is no curve of the variance to draw: {MEAN_ONLY}")
    if group is None and weighs_by_size(fit):
        scores = default_scores(fit) if score is None else np.array(score)
        return curves_of(fit, scores, by_size=True)
    return calibration_curves(fit, score, group)


def bins_of(fit: Fit) -> tuple[Floats, Floats, Floats, Floats]:
    """Return score, outcome, size and number of items of every bin, by score."""
    bins, outcome = fit.data["constant_data"], outcome_of(fit)
    order = np.argsort(bins["score"].to_numpy())
    observed = fit.data["observed_data"][outcome.observed]
    columns = bins["score"], observed, bins[outcome.size], bins["n_items"]
    score, y, size, items = (values.to_numpy()[order].astype(float) for values in columns)
    return score, y, size, items


def merged_outcomes(fit: Fit) -> tuple[Floats, Floats, Floats]:
    """Return score, estimate of theta and its error of noise alone, of neighbouring bins together.

    They have about equal numbers of items, and each atom is by itself.
    """
    score, y, size, items = bins_of(fit)
    middle = np.cumsum(items) - 0.5 * items
    atom = atom_of(fit, score)
    group = np.where(atom > 0, -atom, np.floor(middle / items.sum() * _POINTS).astype(int))
    _, group = np.unique(group, return_inverse=True)
    position = np.bincount(group, items * place_of(fit, "mean", score)) / np.bincount(group, items)
    estimate, error = outcome_of(fit).pooled(y, size, items, group)
    merged = fit.axis("mean").inverse(position)
    merged[group[atom > 0]] = score[atom > 0]
    inside = np.isfinite(estimate) & outcome_of(fit).theta.holds(estimate)
    return drawn_at(fit, merged[inside]), estimate[inside], error[inside]


def drawn_at(fit: Fit, score: Floats) -> Floats:
    """Return where to draw scores; the ends of the axis, such as 0 and 1, lie outside the bins."""
    axis, bin_scores = fit.axis("mean"), fit.data["constant_data"]["score"].to_numpy()
    scale, places = axis.local, np.array(score, dtype=float)
    if scale.holds(places).all():
        return places
    inner = bin_scores[scale.holds(bin_scores)]
    low, high = axis([inner.min(), inner.max()])
    margin = _END_MARGIN * (high - low)
    places[places <= scale.low] = axis.inverse(low - margin)
    places[places >= scale.high] = axis.inverse(high + margin)
    return places


def theta_words(fit: Fit) -> tuple[str, str]:
    """Return the unit of theta and its estimate from outcomes alone, in the user's words."""
    outcome, roles = outcome_of(fit), outcome_roles(fit.data.attrs)
    columns = {role: roles.get(role, role) for role in (outcome.observed, outcome.size)}
    name, size = ("" if name == role else style.escaped(name, 24) for role, name in columns.items())
    size = size or outcome.words.size
    if outcome.direct:
        named = f" ({name})" if name else ""
        unit, estimate = outcome.words.events + named, f"mean {outcome.words.outcome}{named}"
    else:
        unit = name or outcome.words.events
        estimate = f"{unit} / {size}"
    return outcome.words.unit.format(outcome=unit, size=size), estimate


def total(fit: Fit) -> str:
    """Return numbers of items, bins and groups, for titles."""
    bins = fit.data["constant_data"]
    number = style.number_of(bins.sizes["bin"], "bin")
    text = f"n = {int(bins['n_items'].sum()):,} items in {number}"
    return text + (f" and {style.number_of(len(fit.groups), 'group')}" if fit.groups else "")
