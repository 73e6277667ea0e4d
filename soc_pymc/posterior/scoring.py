"""Scoring of items: by the prior table, and over all draws what the table cannot follow."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from scipy.interpolate import RegularGridInterpolator

from .._lib.arrays import Floats, Ints
from ..inference.results import Fit
from ..prior_table import (
    ARRAYS,
    FAMILIES,
    OUTER_LEVEL,
    Posteriors,
    nearest_member,
    posterior_nodes,
    posterior_rows,
)
from .curves import atom_of, items_at_once
from .interface import (
    Columns,
    Posterior,
    Scorer,
    ThetaMixture,
    in_chunks,
    own_outcomes,
    proper,
    select,
)
from .prior_build import table_of, why_no_table

_MANY = 1 << 15  # items per chunk with a single draw
_POINTS, _SIZES, _OUTCOMES = 14, 10, 12  # of the grid on which quantiles are found, along each
_FEW = 6  # values that are kept apart, rather than interpolated
_SAMPLE, _WITHIN = 40, 0.02  # items that prove a grid; error allowed, in widths of the interval


def scorer_of(
    posterior: Posterior, fit: Fit, probs: Sequence[float], draws: str, plug_in: bool
) -> Scorer:
    """The scorer of a posterior."""
    exact = partial(posterior.rows, probs=probs, plug_in=plug_in)
    outer = any(not OUTER_LEVEL <= prob <= 1.0 - OUTER_LEVEL for prob in probs)
    if plug_in or draws == "all" or outer or why_no_table(fit):
        return partial(in_chunks, exact, _MANY if plug_in else items_at_once(fit))
    return partial(_by_table, posterior, fit, probs)


def _arguments(posterior: Posterior, fit: Fit, columns: Columns) -> tuple[Any, ...]:
    """The table, and the first columns that its functions take."""
    return table_of(fit), columns["score"], *own_outcomes(posterior.outcome, columns)


def _terms(posterior: Posterior, fit: Fit, columns: Columns) -> tuple[Any, Any]:
    """Sizes, if the prior depends on them, and groups."""
    size = None if fit.prior.exposure is None else columns[posterior.outcome.size]
    return size, columns["group"].astype(object) if fit.groups else None


def nodes_given_outcomes(posterior: Posterior, fit: Fit, columns: Columns) -> Iterator[Posteriors]:
    """The table's nodes of items given their outcomes, part by part."""
    given = _arguments(posterior, fit, columns)
    return posterior_nodes(*given, *_terms(posterior, fit, columns))


def further_interval(
    posterior: Posterior, fit: Fit, columns: Columns, outcome: Floats, size: Floats
) -> tuple[Floats, Floats]:
    """P(Y < y) and P(Y <= y) of a further outcome of items, given their own, each (n,)."""
    family, out = posterior.family, np.empty((2, len(outcome)))

    def fill(at: Ints, theta: ThetaMixture) -> None:
        theta = theta.listed(family)
        curves = family.to_curves(theta.first, theta.second)
        for row, ends in zip(out, family.cdf_interval(outcome[at], size[at], *curves), strict=True):
            row[at] = theta.average(ends)

    left = np.arange(len(outcome))
    if not why_no_table(fit):
        flagged = np.ones(len(outcome), dtype=bool)
        for part in nodes_given_outcomes(posterior, fit, columns):
            fill(part.items, ThetaMixture(part.a, part.b, part.weight, part.zero))
            flagged[part.items] = part.flagged
        left = np.flatnonzero(flagged)
    for begin in range(0, len(left), items_at_once(fit)):
        at = left[begin : begin + items_at_once(fit)]
        fill(at, posterior.theta(select(columns, at)))
    return proper(*out)


def _by_table(posterior: Posterior, fit: Fit, probs: Sequence[float], columns: Columns) -> Floats:
    given = _arguments(posterior, fit, columns)
    rows, flagged = posterior_rows(*given, probs, *_terms(posterior, fit, columns))
    at = np.flatnonzero(flagged)
    if len(at):
        by_draws = partial(_by_draws, posterior, fit, probs)
        rows[:, at] = by_draws(select(columns, at))
    return np.asarray(rows)


# --- flagged items -------------------------------------------------------------------------------


def _by_draws(posterior: Posterior, fit: Fit, probs: Sequence[float], columns: Columns) -> Floats:
    """Rows of flagged items over all draws.

    Moments are sums over the draws. Quantiles of items that share a group, and few outcomes, are
    smooth in score and size: they are found on a grid if that has fewer points than items.
    """
    step = items_at_once(fit)
    exact = partial(posterior.rows, probs=probs)
    if fit.prior.gridded or not len(probs):
        return in_chunks(exact, step, columns)
    out = np.full((3 + len(probs), len(columns["score"])), np.nan)
    out[:3] = in_chunks(partial(posterior.rows, probs=()), step, columns)
    coordinates = _coordinates(posterior, fit, columns)
    for at in _alike(fit, columns, coordinates):
        items = select(columns, at)
        places = {role: values[at] for role, values in coordinates.items()}
        found = _on_a_grid(posterior, fit, probs, items, places, out[:3, at])
        out[3:, at] = in_chunks(exact, step, items)[3:] if found is None else found
    return out


def _coordinates(posterior: Posterior, fit: Fit, columns: Columns) -> dict[str, Floats]:
    """Numbers on which quantiles depend smoothly, by role."""
    outcome, size = own_outcomes(posterior.outcome, columns)
    return {
        "score": fit.axis("mean")(columns["score"]),
        posterior.outcome.size: np.log(np.maximum(size, 1e-300)),
        posterior.outcome.observed: np.log1p(outcome) if posterior.outcome.positive else outcome,
    }


def _alike(fit: Fit, columns: Columns, coordinates: dict[str, Floats]) -> Iterator[Ints]:
    """Indices of items of the same group and atom, and the same of whatever has few values."""
    keys = [atom_of(fit, columns["score"])]
    if fit.groups:
        keys.append(np.unique(columns["group"].astype(str), return_inverse=True)[1])
    for values in coordinates.values():
        distinct, place = np.unique(values, return_inverse=True)
        if len(distinct) <= _FEW:
            keys.append(place)
    place = np.unique(np.stack(keys), axis=1, return_inverse=True)[1].reshape(-1)
    order = np.argsort(place, kind="stable")
    yield from np.split(order, np.flatnonzero(np.diff(place[order])) + 1)


def _on_a_grid(
    posterior: Posterior,
    fit: Fit,
    probs: Sequence[float],
    items: Columns,
    coordinates: dict[str, Floats],
    moments: Floats,
) -> Floats | None:
    """Quantiles (probabilities, n) interpolated on a grid; None if it is large or not accurate.

    What is interpolated is the distance of a quantile from that of the family's member with the
    same moments, in units of that member's width.
    """
    number = dict(zip(coordinates, (_POINTS, _SIZES, _OUTCOMES), strict=True))
    varied = {role: own for role, own in coordinates.items() if np.ptp(own) > 0.0}
    axes = [np.linspace(own.min(), own.max(), number[role]) for role, own in varied.items()]
    if 2 * np.prod([len(axis) for axis in axes]) + _SAMPLE > len(moments[0]):
        return None
    mesh = [values.ravel() for values in np.meshgrid(*axes, indexing="ij")]
    total = len(mesh[0]) if mesh else 1
    grid = {name: np.repeat(values[:1], total) for name, values in items.items()}
    for role, values in zip(varied, mesh, strict=True):
        if role == "score":
            grid[role] = fit.axis("mean").inverse(values)
        elif role == posterior.outcome.size:
            grid[role] = np.exp(values)
        else:
            grid[role] = np.expm1(values) if posterior.outcome.positive else values
    rows = partial(in_chunks, partial(posterior.rows, probs=probs), items_at_once(fit))
    at_points, family = rows(grid), FAMILIES[posterior.family.name]
    found = np.empty((len(probs), len(moments[0])))
    for k, prob in enumerate(probs):
        place, width = nearest_member(family, at_points[0], at_points[2], prob)
        away = (family.line(at_points[3 + k]) - place) / width
        if mesh:
            shaped = away.reshape([len(axis) for axis in axes])
            away = RegularGridInterpolator(axes, shaped, "cubic", bounds_error=False)(
                np.column_stack(list(varied.values()))
            )
        place, width = nearest_member(family, moments[0], moments[2], prob)
        found[k] = family.theta(place + width * away, ARRAYS)
    sample = np.unique(np.linspace(0, len(moments[0]) - 1, _SAMPLE).astype(int))
    error = np.abs(found[:, sample] - rows(select(items, sample))[3:])
    unit = np.ptp(found[:, sample], axis=0) if len(probs) > 1 else moments[1, sample]
    return found if (error <= _WITHIN * unit).all() else None
