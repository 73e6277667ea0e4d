"""Averages over all draws of the curves: scores of items, cdfs and densities of their outcomes.

They come from the prior table where that is close, and else from all draws.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from .. import prior_table
from .._lib.arrays import Columns, Floats, Ints
from ..fits.curves import Curves
from .item_columns import (
    Scorer,
    ThetaMixture,
    in_chunks,
    own_outcomes,
    prior_columns,
    select,
)
from .mesh import interpolated
from .predictive import Posterior, widened
from .prior_build import table_of, why_no_table

_Pair = tuple[Floats, Floats]
# From log densities (members, n) of outcomes, the ends (2, members, n) of their cdf intervals, made
# when called, weights (members, n), and ways in which these vary, to summaries (rows, n)
_Summary = Callable[[Floats, Callable[[], Any], Floats, Sequence[Floats]], Floats]


def table_items(curves: Curves, columns: Columns) -> prior_table.Observed:
    """Items as the prior table takes them."""
    size = None if curves.prior.exposure is None else columns[curves.outcome.size]
    group = columns["group"].astype(object) if curves.groups else None
    outcomes = own_outcomes(curves.outcome, columns)
    return prior_table.Observed(columns["score"], *outcomes, size, group)


# --- scores --------------------------------------------------------------------------------------


def scorer(posterior: Posterior, probs: Sequence[float], draws: str = "auto") -> Scorer:
    """Function that scores items: ``"auto"`` by the prior table, or over ``"all"`` draws."""
    posterior.check_distribution()
    outer = prior_table.OUTER_LEVEL
    beyond = any(not outer <= prob <= 1.0 - outer for prob in probs)
    if draws == "all" or beyond or why_no_table(posterior.curves):
        return _by_draws(posterior, probs, exact=True)
    return partial(_by_table, posterior, probs)


def _by_draws(
    posterior: Posterior, probs: Sequence[float], exact: bool = False
) -> Scorer:
    def rows(columns: Columns) -> Floats:
        theta = posterior.theta(columns)
        return posterior.family.summaries(
            theta.weight, theta.a, theta.b, probs, theta.zero, exact
        )

    return partial(in_chunks, rows, posterior.curves.items_at_once)


def _by_table(posterior: Posterior, probs: Sequence[float], columns: Columns) -> Floats:
    """Rows by the table, and of flagged items over all draws; many alike share a mesh."""
    curves = posterior.curves
    rows, flagged = prior_table.posterior_summaries(
        table_of(curves), table_items(curves, columns), probs
    )
    by_draws = np.flatnonzero(flagged)
    if not len(by_draws):
        return np.asarray(rows)
    score = _by_draws(posterior, probs)
    if len(probs) and not curves.prior.gridded:
        moments = _by_draws(posterior, ())
        for items, on_mesh in interpolated(curves, score, moments, columns, by_draws):
            rows[:, items] = on_mesh
            flagged[items] = False
        by_draws = np.flatnonzero(flagged)
    if len(by_draws):
        rows[:, by_draws] = score(select(columns, by_draws))
        unsolved = by_draws[np.isnan(rows[:, by_draws]).any(axis=0)]
        if len(unsolved):  # the approximation has no digits there
            exact = _by_draws(posterior, probs, exact=True)
            rows[:, unsolved] = exact(select(columns, unsolved))
    return np.asarray(rows)


# --- outcomes ------------------------------------------------------------------------------------


def cdf_interval(posterior: Posterior, columns: Columns) -> _Pair:
    """P(Y < y) and P(Y <= y), each (n,); equal if continuous."""
    outcomes = own_outcomes(posterior.outcome, columns)
    before = prior_columns(posterior.outcome, columns)
    return further_cdf_interval(posterior, before, *outcomes)


def further_cdf_interval(
    posterior: Posterior, columns: Columns, outcome: Floats, size: Floats
) -> _Pair:
    """`cdf_interval` of further outcomes with sizes, each (n,), given those in `columns`."""
    family = posterior.family
    ends = np.empty((2, len(outcome)))
    for items, theta in _thetas(posterior, columns):
        members = family.to_curves(theta.a, theta.b)
        members = widened(posterior.curves, members, columns, items)
        below, upto = family.cdf_interval(outcome[items], size[items], *members)
        ends[:, items] = theta.average(below), theta.average(upto)
    return proper(*ends)


def _thetas(
    posterior: Posterior, columns: Columns
) -> Iterator[tuple[Ints, ThetaMixture]]:
    """Theta of items by the table, part by part; over all draws if flagged, with an outcome.

    Theta = 0, if it may be so, is the last of the components.
    """
    curves = posterior.curves
    closely = posterior.outcome.observed in columns
    has_table = not why_no_table(curves)
    columns = {name: values for name, values in columns.items() if name != "spread"}
    flagged = np.full(len(columns["score"]), closely or not has_table)
    if has_table:
        items = table_items(curves, columns)
        for part, theta in prior_table.posterior_nodes(table_of(curves), items):
            flagged[part] = theta.flagged & closely
            yield part, ThetaMixture(theta.a, theta.b, _weights(theta))
    for chunk in _chunks(posterior, np.flatnonzero(flagged)):
        mixture = posterior.theta(select(columns, chunk))
        yield chunk, mixture.listed(posterior.family)


def _weights(theta: prior_table.Posteriors) -> Floats:
    """Weights of nodes, (nodes, n), of which theta = 0, if it may be so, is the last."""
    if theta.zero is None:
        return np.asarray(theta.weight)
    weight = (1.0 - theta.zero) * theta.weight
    weight[-1] = theta.zero
    return np.asarray(weight)


def density_moments(posterior: Posterior, columns: Columns) -> Floats:
    """Log E(p), -log E(1 / p) and Var(log p) of the outcomes' densities p, (3, n), over draws.

    By the prior table, which is close where the densities differ little from draw to draw.
    """
    return _over_members(posterior, columns, 3, _density_moments)


def cdf_without(posterior: Posterior, columns: Columns) -> _Pair:
    """`cdf_interval` of items that are left out of the fit, as draws weighted by 1 / p say."""
    return proper(*_over_members(posterior, columns, 2, _ends_without))


def _over_members(
    posterior: Posterior, columns: Columns, number: int, summarized: _Summary
) -> Floats:
    """Summaries (number, n) over the table's nodes; over all draws where these are not close."""
    curves = posterior.curves
    family = posterior.family
    y, size = own_outcomes(posterior.outcome, columns)
    summaries = np.full((number, len(y)), np.nan)
    if not why_no_table(curves):
        before = table_items(curves, prior_columns(posterior.outcome, columns))
        for part, theta in prior_table.posterior_nodes(table_of(curves), before):
            members = family.to_curves(theta.a, theta.b)
            members = widened(curves, members, columns, part)
            known = y[part], size[part], *members
            log_density = family.log_density(*known)
            interval = partial(family.cdf_interval, *known)
            values = summarized(log_density, interval, _weights(theta), theta.ways)
            summaries[:, part] = np.where(theta.flagged, np.nan, values)
    by_draws = np.flatnonzero(np.isnan(summaries).any(axis=0))
    for chunk in _chunks(posterior, by_draws):
        items = select(columns, chunk)
        log_density = posterior.log_density(items)
        equal = np.full(log_density.shape, 1.0 / len(log_density))
        by_draw = partial(posterior.cdf_by_draw, items)
        summaries[:, chunk] = summarized(log_density, by_draw, equal, ())
    return summaries


def _chunks(posterior: Posterior, items: Ints) -> Iterator[Ints]:
    """Parts of items whose draws fit in memory."""
    step = posterior.curves.items_at_once
    return (items[start : start + step] for start in range(0, len(items), step))


@np.errstate(invalid="ignore", divide="ignore")  # of negative weights
def _density_moments(
    log_density: Floats, ends: object, weight: Floats, ways: Sequence[Floats]
) -> Floats:
    """Summaries of `density_moments`; where weights vary, as if p were lognormal."""
    low = log_density.min(axis=0)
    high = log_density.max(axis=0)
    density = np.exp(log_density - high)
    mean = (weight * density).sum(axis=0)
    full = high + np.log(mean)
    if ways:
        variance = np.log1p(
            sum(((way * density).sum(axis=0) / mean) ** 2 for way in ways)
        )
        return np.stack([full, full - variance, variance])
    without = low - np.log((weight * np.exp(low - log_density)).sum(axis=0))
    centre = (weight * log_density).sum(axis=0)
    variance = (weight * (log_density - centre) ** 2).sum(axis=0)
    return np.stack([full, without, variance])


def _ends_without(
    log_density: Floats,
    ends: Callable[[], Any],
    weight: Floats,
    ways: Sequence[Floats],
) -> Floats:
    """Summaries of `cdf_without`; where weights vary, to first order."""
    below_and_upto = np.stack(ends())
    if ways:
        density = np.exp(log_density - log_density.max(axis=0))
        mean = (weight * density).sum(axis=0)
        moved = sum(
            (way * below_and_upto).sum(axis=1) * (way * density).sum(axis=0)
            for way in ways
        )
        return np.asarray((weight * below_and_upto).sum(axis=1) - moved / mean)
    inverse = weight * np.exp(log_density.min(axis=0) - log_density)
    return np.asarray((inverse * below_and_upto).sum(axis=1) / inverse.sum(axis=0))


def proper(below: Floats, upto: Floats) -> _Pair:
    """Ends of a probability interval, clipped to [0, 1] and sorted, because of rounding."""
    upto = np.clip(upto, 0.0, 1.0)
    return np.clip(below, 0.0, upto), upto
