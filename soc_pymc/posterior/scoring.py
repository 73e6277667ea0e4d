"""Scoring of items: by the prior table, and over all draws what the table cannot follow."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from scipy.interpolate import RegularGridInterpolator

from .._lib.arrays import Floats, Ints
from ..inference.results import Fit
from ..prior_table import (
    OUTER_LEVEL,
    posterior_nodes,
    posterior_rows,
)
from .curves import atom_of, items_at_once, place_of
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
_POINTS, _SIZES, _OUTCOMES = 20, 12, 12  # of the grid on which quantiles are found, along each
_TINY, _SMALL = 1e-300, 1e-4  # of a quantile, and of its share of a larger one
_SHARED = 0.02  # share of items from which a value is kept apart, rather than interpolated
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


def _arguments(posterior: Posterior, fit: Fit, columns: Columns) -> tuple[Any, Any, Any, Any, Any]:
    """Scores, outcomes, sizes, and the terms of the prior: sizes and groups, or None."""
    outcome, size = own_outcomes(posterior.outcome, columns)
    term = None if fit.prior.exposure is None else columns[posterior.outcome.size]
    group = columns["group"].astype(object) if fit.groups else None
    return columns["score"], outcome, size, term, group


def thetas(
    posterior: Posterior, fit: Fit, columns: Columns, *, closely: bool = True
) -> Iterator[tuple[Ints, ThetaMixture]]:
    """Theta of items given their outcomes, part by part: by the table, or over all draws.

    Those that the table does not represent `closely` come again over all draws.
    """
    left = np.arange(len(columns["score"]))
    if not why_no_table(fit):
        flagged = np.full(len(left), closely)
        arguments = table_of(fit), *_arguments(posterior, fit, columns)
        for part in posterior_nodes(*arguments, skip=closely):
            flagged[part.items] = part.flagged & closely
            yield part.items, ThetaMixture(part.a, part.b, part.weight, part.zero)
        left = np.flatnonzero(flagged)
    for begin in range(0, len(left), items_at_once(fit)):
        part_of_rest = left[begin : begin + items_at_once(fit)]
        yield part_of_rest, posterior.theta(select(columns, part_of_rest))


def outcome_interval(
    posterior: Posterior, fit: Fit, columns: Columns, outcome: Floats, size: Floats
) -> tuple[Floats, Floats]:
    """P(Y < y) and P(Y <= y) of an outcome given the columns' own, if they have one, each (n,)."""
    family, out = posterior.family, np.empty((2, len(outcome)))
    closely = posterior.outcome.observed in columns
    for items, mixture in thetas(posterior, fit, columns, closely=closely):
        theta = mixture.listed(family)
        curves = family.to_curves(theta.first, theta.second)
        if "spread" in columns:
            curves = family.widened(*curves, columns["spread"][items])
        for row, ends in zip(
            out, family.cdf_interval(outcome[items], size[items], *curves), strict=True
        ):
            row[items] = theta.average(ends)
    return proper(*out)


def _by_table(posterior: Posterior, fit: Fit, probs: Sequence[float], columns: Columns) -> Floats:
    t, outcome, size, term, group = _arguments(posterior, fit, columns)
    arguments = table_of(fit), t, outcome, size, probs, term, group
    rows, flagged = posterior_rows(*arguments, skip=True)
    rest = np.flatnonzero(flagged)
    if len(rest):
        rows[:, rest] = _by_draws(posterior, fit, probs, select(columns, rest))
    return np.asarray(rows)


# --- flagged items -------------------------------------------------------------------------------


def _by_draws(posterior: Posterior, fit: Fit, probs: Sequence[float], columns: Columns) -> Floats:
    """Rows of flagged items over all draws.

    Moments are sums over the draws. Quantiles of items that share a group, and few outcomes, are
    smooth in score and size: they are interpolated on a grid if that has fewer points than items.
    """
    step = items_at_once(fit)
    exact = partial(in_chunks, partial(posterior.rows, probs=probs), step)
    if fit.prior.gridded or not len(probs):
        return exact(columns)
    out = np.empty((3 + len(probs), len(columns["score"])))
    coordinates = _coordinates(posterior, fit, columns)
    for alike in _alike(fit, columns, coordinates):
        items = select(columns, alike)
        places = {role: values[alike] for role, values in coordinates.items()}
        moments = in_chunks(partial(posterior.rows, probs=()), step, items)
        quantiles = _on_a_grid(posterior, fit, exact, items, places, moments)
        out[:, alike] = exact(items) if quantiles is None else np.vstack([moments, quantiles])
    return out


def _coordinates(posterior: Posterior, fit: Fit, columns: Columns) -> dict[str, Floats]:
    """Numbers on which quantiles depend smoothly, by role."""
    outcome, size = own_outcomes(posterior.outcome, columns)
    return {
        "score": place_of(fit, "mean", columns["score"]),
        posterior.outcome.size: np.log(np.maximum(size, 1e-300)),
        posterior.outcome.observed: np.log1p(outcome) if posterior.outcome.positive else outcome,
    }


def _alike(fit: Fit, columns: Columns, coordinates: dict[str, Floats]) -> Iterator[Ints]:
    """Indices of items of the same group and atom, and with the same of whatever many share."""
    keys = [atom_of(fit, columns["score"])]
    if fit.groups:
        keys.append(np.unique(columns["group"].astype(str), return_inverse=True)[1])
    for values in coordinates.values():
        _, place, count = np.unique(values, return_inverse=True, return_counts=True)
        keys.append(np.where(count[place] >= _SHARED * len(values), place, -1))
    place = np.unique(np.stack(keys), axis=1, return_inverse=True)[1].reshape(-1)
    order = np.argsort(place, kind="stable")
    yield from np.split(order, np.flatnonzero(np.diff(place[order])) + 1)


def _on_a_grid(
    posterior: Posterior,
    fit: Fit,
    exact: Scorer,
    items: Columns,
    coordinates: dict[str, Floats],
    moments: Floats,
) -> Floats | None:
    """Quantiles interpolated on a grid; None if it is large, or not accurate for a sample."""
    n, positive = len(items["score"]), posterior.outcome.positive
    number = dict(zip(coordinates, (_POINTS, _SIZES, _OUTCOMES), strict=True))
    varied = {role: values for role, values in coordinates.items() if np.ptp(values) > 0.0}
    axes = [np.linspace(v.min(), v.max(), number[role]) for role, v in varied.items()]
    shape = [len(axis) for axis in axes]
    if not axes or 2 * np.prod(shape) + _SAMPLE > n:
        return None
    mesh = dict(zip(varied, map(np.ravel, np.meshgrid(*axes, indexing="ij")), strict=True))
    grid = {name: np.repeat(values[:1], np.prod(shape)) for name, values in items.items()}
    back: dict[str, Callable[[Floats], Floats]] = {
        "score": fit.axis("mean").inverse,
        posterior.outcome.size: np.exp,
        posterior.outcome.observed: np.expm1 if positive else np.asarray,
    }
    grid |= {role: back[role](values) for role, values in mesh.items()}
    mean, _, _, *values = exact(grid)
    if not np.isfinite(values).all():
        return None
    if positive:  # they may be of any size: as logs, and others as shares of the largest
        top = np.maximum(np.max(values, axis=0), _TINY)
        shares = np.maximum(np.array(values) / top, _SMALL)
        values = [*np.log(shares), np.log(top / mean)]
    shaped = np.moveaxis(np.reshape(values, (-1, *shape)), 0, -1)
    places = np.column_stack(list(varied.values()))
    quantiles = RegularGridInterpolator(axes, shaped, "cubic")(places).T
    if positive:
        quantiles = np.exp(np.minimum(quantiles[:-1], 0.0)) * (np.exp(quantiles[-1]) * moments[0])
    sample = np.unique(np.linspace(0, n - 1, _SAMPLE).astype(int))
    proof = exact(select(items, sample))
    width = np.ptp(proof[3:], axis=0) if len(proof) > 4 else proof[1]
    return (
        quantiles if (np.abs(quantiles[:, sample] - proof[3:]) <= _WITHIN * width).all() else None
    )
