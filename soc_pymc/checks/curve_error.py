"""Tests of the PIT that allow for curves that are not known exactly, which all items share.

Where the curves' error is not small beside 1 / sqrt(n), PIT values of n items stray together, and
the Kolmogorov-Smirnov test would reject a right model with honest bands. If one draw of the curves
is the truth, outcomes y have the density p_draw in place of its mean p over the draws, so that the
share of PIT values up to u is off by the mean of (p_draw / p - 1) 1{PIT(y) <= u}: the draw's shift.
Given a draw, the ECDF of n items strays from this as a Brownian bridge over sqrt(n). Distances are
judged by such replicates, whose slices share one shift. The items that made the fit stray less than
new ones: for them the test is conservative.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from .._lib.arrays import Floats, Ints
from ..inference.results import Fit
from ..posterior.interface import Columns, select
from ..posterior.predictive import posterior_of
from .batches import even_draws
from .observations import Observations
from .pit import BETWEEN, GRID, SlicePit, pit_upto_grid
from .slices import Mask

_DRAWS = 200  # of the curves, of which shifts are computed
_ITEMS = 200  # of each slice, over which shifts are averaged: to some 7% of themselves
_PATHS = 2000  # replicates
_TINY = 1e-300  # least p-value of which a logarithm is taken
_TAIL = 0.05  # share of replicates to which the tail beyond them is fitted


def curve_shifts(
    fit: Fit, columns: Columns, n: Ints, masks: Sequence[Mask], rng: np.random.Generator
) -> Floats:
    """Shifts of the ECDF of every slice's PIT at `GRID` by draw, (draws, slices, points).

    `n` is the number of items of each row.
    """
    posterior, draws = posterior_of(fit), even_draws(fit, _DRAWS)
    places = [np.flatnonzero(mask) for mask in masks]
    rows = np.concatenate([rng.choice(p, _ITEMS, p=n[p] / n[p].sum()) for p in places])
    items = select(columns, rows)
    outcomes = posterior.simulate(items, rng, draws)
    drawn = outcomes[rng.integers(len(outcomes), size=len(rows)), np.arange(len(rows))]
    items[posterior.outcome.observed] = drawn
    log_density = posterior.log_density(items, draws)
    ratio = np.exp(log_density - log_density.max(axis=0))
    departure = (ratio / ratio.mean(axis=0) - 1.0).reshape(-1, len(masks), _ITEMS)
    share = pit_upto_grid(*posterior.cdf_interval(items)).reshape(len(masks), _ITEMS, -1)
    return np.asarray(np.einsum("dsi,sip->dsp", departure, share) / _ITEMS)


def replicated_distances(shift: Floats, n: Sequence[int], rng: np.random.Generator) -> Floats:
    """Distances of replicated ECDFs of `n` items in each slice, (replicates, slices)."""
    draws, slices, points = shift.shape
    # any combination of the draws' shifts with independent Normal weights has their covariance
    mix = rng.normal(size=(_PATHS, draws)) / np.sqrt(draws)
    distances = np.empty((_PATHS, slices))
    for k, items in enumerate(n):
        bridge = np.zeros((_PATHS, points))
        bridge[:, 1:] = np.cumsum(rng.normal(scale=GRID[1] ** 0.5, size=(_PATHS, points - 1)), 1)
        bridge -= GRID * bridge[:, -1:]
        strayed = np.abs(bridge / np.sqrt(items) + mix @ shift[:, k]).max(axis=1)
        distances[:, k] = strayed + BETWEEN / np.sqrt(items)
    return distances


class SliceTests(NamedTuple):
    """PIT by slice, with p-values among replicates, and what these were made of."""

    pits: dict[str, SlicePit]
    replicated: Floats  # distances, (replicates, slices)
    shifts: Floats


def tested(
    fit: Fit,
    items: Observations,
    pits: Mapping[str, SlicePit],
    masks: Mapping[str, Mask],
    rng: np.random.Generator,
) -> SliceTests:
    """Tests of the PIT by slice."""
    shifts = curve_shifts(fit, items.columns, items.n, list(masks.values()), rng)
    replicated = replicated_distances(shifts, [pit.n_items for pit in pits.values()], rng)
    judged = {
        name: pit._replace(p_value=distance_p_value(pit.distance, pit.n_items, distances))
        for (name, pit), distances in zip(pits.items(), replicated.T, strict=True)
    }
    return SliceTests(judged, replicated, shifts)


def distance_p_value(distance: float, n: int, replicated: Floats) -> float:
    """Probability of at least this distance of n items' ECDF, given replicates of their bridge."""
    # the ECDF of few values strays less than its limit (Stephens 1970)
    limit = distance * (1.0 + 0.12 / np.sqrt(n) + 0.11 / n)
    return _exceedance(replicated**2, limit**2)


def together(tests: SliceTests) -> dict[str, tuple[float, float]]:
    """Largest distance and p-value of all slices by one quantity, by Fisher's sum of logarithms.

    The sum is judged by its replicates, since such slices share the curves, though no items.
    """
    families: dict[tuple[str, str], list[int]] = {}
    for k, name in enumerate(tests.pits):
        if part := re.match(r"(.+?) (\d+/\d+: |= )", name):
            title = "{0} = any of {1}" if part[2] == "= " else "{0} 1/{1} to {1}/{1}"
            families.setdefault((part[1], title), []).append(k)
    pits, joint = list(tests.pits.values()), {}
    for (name, title), places in families.items():
        if len(places) > 1:
            rank = np.argsort(np.argsort(-tests.replicated[:, places], axis=0), axis=0)
            sums = -np.log((rank + 0.5) / len(rank)).sum(axis=1)
            observed = -sum(np.log(max(pits[k].p_value, _TINY)) for k in places)
            largest = max(pits[k].distance for k in places)
            joint[title.format(name, len(places))] = largest, _exceedance(sums, observed)
    return joint


def _exceedance(values: Floats, bound: float) -> float:
    """Share of `values` of at least a bound; beyond nearly all of them, of a fitted tail."""
    cut = np.quantile(values, 1.0 - _TAIL)
    if bound <= cut:
        return float(np.mean(values >= bound))
    rate = np.mean(values[values > cut]) - cut
    return float(_TAIL * np.exp(-(bound - cut) / rate))
