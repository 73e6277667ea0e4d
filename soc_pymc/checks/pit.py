"""Probability integral transform (PIT) of outcomes: ECDFs and distances from uniformity, by slice.

If the model is right, F(y - 1) + V [F(y) - F(y - 1)] of counts, V uniform, is uniform (the
randomised PIT, which is tested), and so is on average its expectation over V (the non-randomised
PIT of Czado, Gneiting and Held 2009, which no seed can change); of values both are F(y). F averages
over the curves' uncertainty. ECDFs are taken at the points of a grid.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from scipy import stats

from .._lib.arrays import Floats, Ints
from ..posterior.interface import Columns, Posterior
from .batches import in_batches
from .results import finding
from .slices import Mask

GRID = np.linspace(0.0, 1.0, 200)  # where ECDFs are taken
BINS = 20  # of the score, for histograms
# how much further a bridge strays between the points of the grid (Siegmund 1979; Broadie,
# Glasserman and Kou 1997): -zeta(1/2) / sqrt(2 pi) of a step's sd
BETWEEN = 0.5826 * float(np.sqrt(GRID[1]))

_STEPS = len(GRID) - 1
_CHUNK = 20_000
_EACH = 32  # rows of more items are divided among the grid by one multinomial draw
_STEP = 1e-6  # PIT intervals narrower than this are steps


class SlicePit(NamedTuple):
    """PIT of the items of a slice."""

    randomised: Floats  # ECDF at the points of `GRID`
    averaged: Floats  # its expectation over the randomisation
    n_items: int
    distance: float  # largest difference of the ECDF from the uniform cdf
    p_value: float  # of the Kolmogorov-Smirnov test, which takes curves as known


def cdf_ends(posterior: Posterior, columns: Columns, progress: bool | None = False) -> Floats:
    """P(Y < y) and P(Y <= y) of rows, (2, n), over the draws; y is in a range for cells."""
    observed = posterior.outcome.observed

    def ends(part: Columns) -> tuple[Floats, Floats]:
        if "low" not in part:
            return posterior.cdf_interval(part)
        below, _ = posterior.cdf_interval({**part, observed: part["low"]})
        _, upto = posterior.cdf_interval({**part, observed: part["high"]})
        return below, np.maximum(upto, below)

    return in_batches("predictive distribution", columns, _CHUNK, progress, ends)


def slice_pits[Name: Hashable](
    ends: Floats, n: Ints, masks: Mapping[Name, Mask], rng: np.random.Generator
) -> dict[Name, SlicePit]:
    """PIT by slice, from the ends (2, rows) of the PIT intervals of rows of `n` items."""
    counts = {name: np.zeros(_STEPS) for name in masks}
    for start in range(0, len(n), _CHUNK):
        rows = slice(start, start + _CHUNK)
        row, step, items = _dealt(ends[:, rows], n[rows], rng)
        for name, mask in masks.items():
            inside = mask[rows][row]
            counts[name] += np.bincount(step[inside], items[inside], _STEPS)
    return {
        name: _slice_pit(counts[name], mean_pit_ecdf(ends[:, mask], n[mask]))
        for name, mask in masks.items()
    }


def _dealt(ends: Floats, n: Ints, rng: np.random.Generator) -> tuple[Ints, Ints, Ints]:
    """Rows, steps of the grid, and how many items of the row have their PIT in the step."""
    below, upto = ends
    large, small = np.flatnonzero(n > _EACH), np.flatnonzero(n <= _EACH)
    shares = np.diff(pit_upto_grid(below[large], upto[large]), axis=1)
    shares[below[large] >= 1.0, -1] = 1.0  # no point of the grid lies above it
    counts = rng.multinomial(n[large], shares / shares.sum(axis=1, keepdims=True))
    place, step = np.nonzero(counts)
    row = np.repeat(small, n[small])
    pit = below[row] + rng.random(len(row)) * (upto - below)[row]
    return (
        np.concatenate([large[place], row]),
        np.concatenate([step, np.minimum((pit * _STEPS).astype(np.int64), _STEPS - 1)]),
        np.concatenate([counts[place, step], np.ones(len(row), dtype=np.int64)]),
    )


def _slice_pit(counts: Floats, averaged: Floats) -> SlicePit:
    n = round(counts.sum())
    ecdf = np.concatenate([[0.0], np.cumsum(counts) / n])
    distance = min(1.0, float(np.abs(ecdf - GRID).max() + BETWEEN / np.sqrt(n)))
    return SlicePit(ecdf, averaged, n, distance, float(stats.kstwo.sf(distance, n)))


def mean_pit_ecdf(ends: Floats, n: Ints, grid: Floats = GRID) -> Floats:
    """Expectation of the ECDF over the randomisation, at evenly spaced points from 0 to 1."""
    below, upto = ends
    width = upto - below
    wide = width >= _STEP
    last = len(grid) - 1
    rise = np.zeros(len(grid))
    # a uniform cdf is a ramp from `below` minus the same ramp from `upto`: sums over items need
    # only the point of the grid at which each ramp begins
    for end, sign in ((below[wide], 1.0), (upto[wide], -1.0)):
        begin, steepness = np.ceil(end * last).astype(np.int64), n[wide] / width[wide]
        slope = np.cumsum(np.bincount(begin, steepness, len(grid)))
        offset = np.cumsum(np.bincount(begin, end * steepness, len(grid)))
        rise += sign * (grid * slope - offset)
    step = np.ceil(upto[~wide] * last).astype(np.int64)
    rise += np.cumsum(np.bincount(step, n[~wide], len(grid)))
    return np.clip(rise / n.sum(), 0.0, 1.0)


def pit_upto_grid(below: Floats, upto: Floats) -> Floats:
    """P(randomised PIT <= u) of each row at the points u of `GRID`, (n, points)."""
    width = np.maximum(upto - below, 1e-12)
    return np.clip((GRID - below[:, None]) / width[:, None], 0.0, 1.0)


# --- results -------------------------------------------------------------------------------------


def pit_findings(pits: Mapping[str, SlicePit], what: str = "PIT") -> list[dict[str, Any]]:
    """Rows of a table of results, by slice."""
    return [finding(what, name, p.distance, p.p_value, n=p.n_items) for name, p in pits.items()]


def pit_dataset(pits: Mapping[str, SlicePit]) -> xr.Dataset:
    """ECDFs of the PIT minus the uniform cdf, by slice: the pictures need nothing else."""
    numbers: dict[str, Any] = {
        name: (("slice", "u"), np.array([getattr(pit, name) - GRID for pit in pits.values()]))
        for name in ("randomised", "averaged")
    }
    for name in ("n_items", "p_value"):
        numbers[name] = "slice", [getattr(pit, name) for pit in pits.values()]
    return xr.Dataset(numbers, {"slice": list(pits), "u": GRID})


def binned_dataset(pits: Sequence[SlicePit], score: Floats, part: Ints, n: Ints) -> xr.Dataset:
    """ECDFs by bin of the score, with the mean score and the number of items of each bin."""
    items = np.bincount(part, n)
    variables = {
        "ecdf": (("bin", "u"), np.array([pit.randomised for pit in pits])),
        "n_items": ("bin", items.astype(int)),
    }
    return xr.Dataset(
        variables, {"score": ("bin", np.bincount(part, n * score) / items), "u": GRID}
    )
