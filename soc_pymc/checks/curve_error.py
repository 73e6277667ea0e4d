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

import numpy as np

from .._lib.arrays import Floats, Ints
from ..inference.results import Fit
from ..posterior.interface import Columns, select
from ..posterior.predictive import posterior_of
from .predictive import GRID, Mask, SlicePit, Uniformity, even_draws, pit_upto_grid

_DRAWS = 200  # of the curves, whose shifts are found
_ITEMS = 200  # of each slice, over which shifts are averaged: to some 7% of themselves
_PATHS = 2000  # replicates
_TINY = 1e-300  # least p-value of which a logarithm is taken
_TAIL = 0.05  # share of replicates to which the tail beyond them is fitted
# how much further a bridge strays between the points of the grid (Siegmund 1979; Broadie,
# Glasserman and Kou 1997): -zeta(1/2) / sqrt(2 pi) of a step's sd
BETWEEN = 0.5826 * float(np.sqrt(GRID[1]))


def curve_shifts(
    fit: Fit,
    columns: Columns,
    masks: Sequence[Mask],
    rng: np.random.Generator,
    weight: Ints | None = None,
) -> Floats:
    """Shifts of the ECDF of every slice's PIT at `GRID` by draw, (draws, slices, points).

    `weight` (n,) is the number of items that each row stands for.
    """
    posterior, draws = posterior_of(fit), even_draws(fit, _DRAWS)
    at = np.concatenate([_some(mask, weight, rng) for mask in masks])
    new = dict(select(columns, at))
    outcomes = posterior.simulate(new, rng, draws)
    drawn = outcomes[rng.integers(len(outcomes), size=len(at)), np.arange(len(at))]
    new[posterior.outcome.observed] = drawn
    log_density = posterior.log_density(new, draws)
    ratio = np.exp(log_density - log_density.max(axis=0))
    off = ratio / ratio.mean(axis=0) - 1.0
    below, upto = posterior.cdf_interval(new)
    share = pit_upto_grid(below, upto).reshape(len(masks), _ITEMS, -1)
    off = off.reshape(-1, len(masks), _ITEMS)
    return np.asarray(np.einsum("dsi,sip->dsp", off, share) / _ITEMS)


def _some(mask: Mask, weight: Ints | None, rng: np.random.Generator) -> Ints:
    rows = np.flatnonzero(mask)
    share = None if weight is None else weight[rows] / weight[rows].sum()
    return rng.choice(rows, _ITEMS, p=share)


def replicated_distances(shift: Floats, n: Sequence[int], rng: np.random.Generator) -> Floats:
    """Distances of replicated ECDFs of `n` items in each slice, (replicates, slices)."""
    draws, slices, points = shift.shape
    # any combination of the draws' shifts with independent Normal weights has their covariance
    mix = rng.normal(size=(_PATHS, draws)) / np.sqrt(draws)
    found = np.empty((_PATHS, slices))
    for at, items in enumerate(n):
        bridge = np.zeros((_PATHS, points))
        bridge[:, 1:] = np.cumsum(rng.normal(scale=GRID[1] ** 0.5, size=(_PATHS, points - 1)), 1)
        bridge -= GRID * bridge[:, -1:]
        away = np.abs(bridge / np.sqrt(items) + mix @ shift[:, at]).max(axis=1)
        found[:, at] = away + BETWEEN / np.sqrt(items)
    return found


def judged(found: Mapping[str, SlicePit], replicated: Floats) -> dict[str, SlicePit]:
    """The slices with the p-values of their distances among replicated ones."""
    answer = {}
    for (name, own), values in zip(found.items(), replicated.T, strict=True):
        p_value = distance_p_value(own.test.distance, own.n_items, values)
        answer[name] = own._replace(test=Uniformity(own.test.distance, p_value))
    return answer


def distance_p_value(distance: float, n: int, replicated: Floats) -> float:
    """Probability of at least this distance of n items' ECDF, given replicates of their bridge."""
    # the ECDF of few values strays less than its limit (Stephens 1970)
    limit = distance * (1.0 + 0.12 / np.sqrt(n) + 0.11 / n)
    return _exceedance(replicated**2, limit**2)


def together(found: Mapping[str, SlicePit], replicated: Floats) -> dict[str, Uniformity]:
    """Tests of all slices by one quantity together, by Fisher's sum of logarithms of p-values.

    The sum is judged by its replicates, since such slices share the curves, though no items.
    """
    families: dict[tuple[str, str], list[int]] = {}
    for at, name in enumerate(found):
        if part := re.match(r"(.+?) (\d+/\d+: |= )", name):
            all_of = "{0} = any of {1}" if part[2] == "= " else "{0} 1/{1} to {1}/{1}"
            families.setdefault((part[1], all_of), []).append(at)
    own = [each.test for each in found.values()]
    tests = {}
    for (name, all_of), places in families.items():
        if len(places) > 1:
            rank = np.argsort(np.argsort(-replicated[:, places], axis=0), axis=0)
            sums = -np.log((rank + 0.5) / len(rank)).sum(axis=1)
            seen = -sum(np.log(max(own[place].p_value, _TINY)) for place in places)
            largest = max(own[place].distance for place in places)
            tests[all_of.format(name, len(places))] = Uniformity(largest, _exceedance(sums, seen))
    return tests


def _exceedance(values: Floats, at: float) -> float:
    """Share of `values` that are at least `at`; beyond nearly all of them, of a fitted tail."""
    cut = np.quantile(values, 1.0 - _TAIL)
    if at <= cut:
        return float(np.mean(values >= at))
    rate = np.mean(values[values > cut]) - cut
    return float(_TAIL * np.exp(-(at - cut) / rate))
