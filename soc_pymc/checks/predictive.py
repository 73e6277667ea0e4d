"""Outcomes against their predictive distribution: PIT, summaries, and the slices they are put on.

If the model is right, F(y - 1) + V [F(y) - F(y - 1)] of counts, V uniform, is uniform (the
randomised PIT, which is tested), and so is on average its expectation over V (the non-randomised
PIT of Czado, Gneiting and Held 2009, which no seed can change); of values both are F(y). F averages
over the curves' uncertainty. Summaries are those that the fit does not look at by themselves: how
widely outcomes scatter about their expectations, and of counts how many are zero.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from .._lib.arrays import Floats, Ints
from .._lib.progress import phase
from ..families.outcomes import Outcome
from ..inference.results import Fit
from ..posterior.curves import with_posterior
from ..posterior.interface import Columns, Posterior, select
from ..posterior.predictive import posterior_of

Mask = NDArray[np.bool_]

GRID = np.linspace(0.0, 1.0, 200)  # where ECDFs are kept for pictures
LEAST = 20  # slices of fewer items are left out: no test on them says anything
BINS = 20  # of the score, for histograms
LEVELS = 20  # levels of a column that get a slice of their own; numbers of more are cut in fifths
_MANY_TRIALS = 50  # exposure from which an item's own count says much about its theta
_STEP = 1e-6  # PIT intervals narrower than this are steps
_CHUNK = 20_000

_ITEMS = 50_000  # of more, a random subset is replicated: the tests are powerful by then
_REPLICATED_CHUNK = 2_000
_REPLICATES = 100  # or a few more: as many of each draw
_MIDDLE = 20  # draws whose median is the middle of summaries
_OUTER = 20  # with fewer replicates than this beyond the observed value, their tail is fitted


# --- probability integral transforms -------------------------------------------------------------


def parts(
    title: str, n: int, step: int, progress: bool | None, unit: str = "items"
) -> Iterator[slice]:
    """Slices of `step` that make up n, with progress."""
    with phase(title, total=n, unit=unit, enabled=progress) as running:
        for start in range(0, n, step):
            stop = min(start + step, n)
            yield slice(start, stop)
            running.advance(stop - start)


def in_batches(
    title: str,
    columns: Columns,
    step: int,
    progress: bool | None,
    values: Callable[[Columns], Sequence[Floats] | Floats],
) -> Floats:
    """Values of all items, (values, n), `step` items at a time, with progress."""
    some = parts(title, len(columns["score"]), step, progress)
    return np.concatenate([np.asarray(values(select(columns, at))) for at in some], axis=1)


def predictive_cdf(
    posterior: Posterior, columns: Columns, *, progress: bool | None = None
) -> tuple[Floats, Floats]:
    """P(Y < y) and P(Y <= y) of each item, (n,), averaged over the curves' uncertainty."""
    title, ends = "predictive distribution", posterior.cdf_interval
    below, upto = in_batches(title, columns, _CHUNK, progress, ends)
    return below, upto


def randomised_pit(below: Floats, upto: Floats, rng: np.random.Generator) -> Floats:
    """Uniform draws between P(Y < y) and P(Y <= y): uniform if the model is right."""
    return np.asarray(below + rng.random(len(below)) * (upto - below))


def pit_ecdf(pit: Floats, grid: Floats = GRID) -> Floats:
    """Share of PIT values at or below each point of `grid`."""
    return np.searchsorted(np.sort(pit), grid, side="right") / len(pit)


def mean_pit_ecdf(below: Floats, upto: Floats, grid: Floats = GRID) -> Floats:
    """Expectation of `pit_ecdf` over the randomisation, at evenly spaced points from 0 to 1."""
    width = upto - below
    wide = width >= _STEP
    last = len(grid) - 1
    rise = np.zeros(len(grid))
    # a uniform cdf is a ramp from `below` minus the same ramp from `upto`: sums over items need
    # only each ramp's first grid point
    for ends, sign in ((below[wide], 1.0), (upto[wide], -1.0)):
        first = np.ceil(ends * last).astype(np.int64)
        slope = np.cumsum(np.bincount(first, 1.0 / width[wide], len(grid)))
        offset = np.cumsum(np.bincount(first, ends / width[wide], len(grid)))
        rise += sign * (grid * slope - offset)
    step = np.ceil(upto[~wide] * last).astype(np.int64)
    rise += np.cumsum(np.bincount(step, minlength=len(grid)))
    return np.clip(rise / len(below), 0.0, 1.0)


def pit_upto_grid(below: Floats, upto: Floats) -> Floats:
    """P(randomised PIT <= u) of each item at the points u of `GRID`, (n, points)."""
    width = np.maximum(upto - below, 1e-12)
    return np.clip((GRID - below[:, None]) / width[:, None], 0.0, 1.0)


@dataclass(frozen=True)
class Uniformity:
    """Kolmogorov-Smirnov test of uniformity of PIT values: largest difference and its p-value."""

    distance: float
    p_value: float


def uniformity(pit: Floats) -> Uniformity:
    """Kolmogorov-Smirnov test that `pit` is uniform on (0, 1)."""
    u = np.sort(pit)
    rank = np.arange(len(u) + 1) / len(u)
    distance = float(max(np.max(rank[1:] - u), np.max(u - rank[:-1])))
    return Uniformity(distance, float(stats.kstwo.sf(distance, len(u))))


class SlicePit(NamedTuple):
    """PIT of the items of a slice: ECDFs at `GRID`, number of items, and the test."""

    randomised: Floats
    averaged: Floats
    n_items: int
    test: Uniformity


def slice_pit(below: Floats, upto: Floats, pit: Floats, mask: Mask) -> SlicePit:
    """PIT of some items: the ends of their intervals, and their randomised values."""
    averaged = mean_pit_ecdf(below[mask], upto[mask])
    return SlicePit(pit_ecdf(pit[mask]), averaged, int(mask.sum()), uniformity(pit[mask]))


def pit_dataset(found: Mapping[str, SlicePit]) -> xr.Dataset:
    """ECDFs of the PIT minus the uniform cdf, by slice: the pictures need nothing else."""
    numbers: dict[str, Any] = {
        name: (("slice", "u"), np.array([getattr(pit, name) - GRID for pit in found.values()]))
        for name in ("randomised", "averaged")
    }
    numbers["n_items"] = "slice", [pit.n_items for pit in found.values()]
    numbers["p_value"] = "slice", [pit.test.p_value for pit in found.values()]
    return xr.Dataset(numbers, {"slice": list(found), "u": GRID})


def pit_by_score(score: Floats, pit: Floats) -> xr.Dataset:
    """ECDFs of the PIT of items in bins of the score."""
    part = equal_parts(score, BINS)
    ecdf = [pit_ecdf(pit[part == k]) for k in range(int(part.max()) + 1)]
    return binned_ecdfs(ecdf, score, part, np.ones(len(score), dtype=np.int64))


def binned_ecdfs(ecdf: ArrayLike, score: Floats, part: Ints, n: Ints) -> xr.Dataset:
    """ECDFs by bin, with the mean score and the number of items of each bin."""
    items = np.bincount(part, n)
    centre = np.bincount(part, n * score) / items
    variables = {"ecdf": (("bin", "u"), np.asarray(ecdf)), "n_items": ("bin", items.astype(int))}
    return xr.Dataset(variables, {"score": ("bin", centre), "u": GRID})


# --- slices --------------------------------------------------------------------------------------


def span(value: Floats) -> str:
    """Range of values in a few digits."""
    low, high = float(value.min()), float(value.max())
    return f"{_short(low)} to {_short(high)}" if high > low else _short(low)


def _short(value: float) -> str:
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.3g}"


def slices(
    outcome: Outcome, columns: Columns, atoms: Sequence[float] = (), n: Ints | None = None
) -> Iterator[tuple[str, Mask]]:
    """Standard slices: all items, each atom, large sizes, fifths of score and of size.

    `n` is the number of items that each row stands for.
    """
    score, size = columns["score"], columns[outcome.size]
    yield "all items", np.ones(len(score), dtype=bool)
    for atom in atoms:
        if (mask := score == atom).any():
            yield f"score = {atom:.6g}", mask
    yield from large_sizes(outcome, size)
    yield from fifths("score", score, n=n)
    yield from fifths(outcome.words.size, size, n=n)


def large_sizes(
    outcome: Outcome, size: Floats, least: float = _MANY_TRIALS
) -> Iterator[tuple[str, Mask]]:
    """Items whose own outcome says much about their theta, where sizes are amounts."""
    if outcome.sizes_add:
        yield f"{outcome.words.size} >= {least:.0f}", size >= least


def fifths(
    name: str, value: Floats, as_text: Callable[[Floats], str] = span, n: Ints | None = None
) -> Iterator[tuple[str, Mask]]:
    """Fifths of the items by `value` with their names; tied values are in that of their middle.

    Items with NaN are in no slice. `as_text` writes the range of some values, and `n` is the number
    of items that each row stands for.
    """
    part = equal_parts(value, 5, n)
    number = int(part.max()) + 1
    if number < 2:
        return
    for k in range(number):
        mask = part == k
        yield f"{name} {k + 1}/{number}: {as_text(value[mask])}", mask


def equal_parts(value: Floats, number: int, n: Ints | None = None) -> Ints:
    """Numbers of parts of about equally many items by value, from 0 on; that of NaN is -1.

    No part is empty, and tied values are in the part of their middle. `n` is the number of items of
    each row.
    """
    part, known = np.full(len(value), -1), ~np.isnan(value)
    tied = np.unique(value[known], return_inverse=True)[1]
    items = np.bincount(tied, None if n is None else n[known])
    middle = (np.cumsum(items) - 0.5 * items) / max(items.sum(), 1)
    of_item = np.minimum((number * middle[tied]).astype(int), number - 1)
    part[known] = np.unique(of_item, return_inverse=True)[1]
    return part


def column_slices(labels: Mapping[str, pd.Series]) -> Iterator[tuple[str, Mask]]:
    """Slices by the levels of columns; missing values are a level.

    Numbers and dates of more than 20 distinct values are cut into fifths instead; of other columns
    the 20 most frequent levels are slices.
    """
    for column, values in labels.items():
        yield from (_by_value if _is_cut(values) else by_level)(column, values)


def cut_columns(labels: Mapping[str, pd.Series]) -> Iterator[str]:
    """What was left out: levels beyond the most frequent of a column that has no order."""
    for column, values in labels.items():
        number = values.nunique(dropna=False)
        if number > LEVELS and not _is_cut(values):
            yield (
                f"Column {column!r} has {number:,} levels: only the {LEVELS} most frequent were "
                "checked."
            )


def _is_cut(values: pd.Series) -> bool:
    """Whether a column has an order and too many values for each to be a level."""
    ordered = pd.api.types.is_numeric_dtype(values) or pd.api.types.is_datetime64_any_dtype(values)
    return bool(
        ordered and not pd.api.types.is_bool_dtype(values) and values.nunique(dropna=True) > LEVELS
    )


def by_level(column: str, values: pd.Series, n: Ints | None = None) -> Iterator[tuple[str, Mask]]:
    """Slices of the most frequent levels, where each row stands for `n` items or one."""
    codes, levels = pd.factorize(values, use_na_sentinel=False)
    frequency = np.bincount(codes, n, len(levels))
    for code in np.argsort(-frequency, kind="stable")[:LEVELS]:
        level = levels[code]
        yield f"{column} = {'missing' if pd.isna(level) else level}", codes == code


def _by_value(column: str, values: pd.Series) -> Iterator[tuple[str, Mask]]:
    missing = values.isna().to_numpy()
    as_text: Callable[[Floats], str] = span
    if pd.api.types.is_datetime64_any_dtype(values):
        first = values.min()
        values, as_text = (values - first) / pd.Timedelta(days=1), partial(_dates, first)
    number = np.full(len(values), np.nan)
    number[~missing] = values[~missing].to_numpy(dtype=float)
    yield from fifths(column, number, as_text)
    if missing.any():
        yield f"{column} = missing", missing


def _dates(first: pd.Timestamp, days: Floats) -> str:
    low, high = (first + pd.Timedelta(days=float(d)) for d in (days.min(), days.max()))
    return f"{low:%Y-%m-%d} to {high:%Y-%m-%d}"


# --- summaries against replicates ----------------------------------------------------------------


@dataclass(frozen=True)
class PredictiveTest:
    """One posterior predictive test.

    `ratio` is the observed summary over its predictive median, `p_value` two-sided. The items that
    made the fit give p-values nearer one half than new items would: the test is conservative there.
    """

    name: str
    ratio: float
    p_value: float


def predictive_tests(
    fit: Fit, columns: Columns, *, seed: int = 0, progress: bool | None = None
) -> list[PredictiveTest]:
    """Summaries of the items, of 50,000 at most, against replicates from the fit.

    Every replicate takes a draw of the whole curves.
    """
    rng, posterior = np.random.default_rng(seed), posterior_of(fit)
    chosen = even_draws(fit, _REPLICATES)
    draws = np.resize(chosen, -(-_REPLICATES // len(chosen)) * len(chosen))
    middle = posterior_of(thin(fit, _MIDDLE))
    summaries = posterior.outcome.forms.summaries
    n = len(columns["score"])
    if n > _ITEMS:
        columns, n = select(columns, np.sort(rng.choice(n, _ITEMS, replace=False))), _ITEMS
    replicated, observed = np.zeros((len(summaries), len(draws))), np.zeros((len(summaries), 1))
    for at in parts("predictive checks", n, _REPLICATED_CHUNK, progress):
        part = select(columns, at)
        given = _size_and_moments(middle, part)
        new, own = posterior.simulate(part, rng, draws), part[posterior.outcome.observed][None]
        for total, values in ((replicated, new), (observed, own)):
            total += [summary(values, *given) for summary in summaries.values()]
    return [_test(*each) for each in zip(summaries, replicated, observed[:, 0], strict=True)]


def _size_and_moments(posterior: Posterior, columns: Columns) -> tuple[Floats, Floats, Floats]:
    """Sizes, and the median curves of mean and variance, about which summaries are taken.

    About its own draw, the outcomes of new items would scatter more than replicates of that draw,
    as the draw is not their truth.
    """
    size = columns[posterior.outcome.size]
    curves = posterior.curves(columns["score"], columns.get("group"), size)
    return size, np.median(curves["mean"], axis=0), np.median(curves["variance"], axis=0)


def even_draws(fit: Fit, most: int) -> Ints:
    """Indices of at most `most` draws, evenly spaced in every chain, chains one after the other."""
    chains, draws = (fit.data["posterior"].sizes[dim] for dim in ("chain", "draw"))
    kept = min(max(1, most // chains), draws)
    at = np.arange(kept) * draws // kept
    return np.asarray((np.arange(chains)[:, None] * draws + at).ravel())


def thin(fit: Fit, most: int) -> Fit:
    """The same fit with its `even_draws`."""
    posterior, at = fit.data["posterior"].to_dataset(), even_draws(fit, most)
    chains, draws = (posterior.sizes[dim] for dim in ("chain", "draw"))
    if len(at) == chains * draws:
        return fit
    return with_posterior(fit, posterior.isel(draw=at[: len(at) // chains]))


def _test(name: str, replicated: Floats, observed: float) -> PredictiveTest:
    # widened curves have far draws; of rare zeros the median is 0
    expected = float(np.median(replicated) or np.mean(replicated))
    ratio = observed / expected if expected > 0 else 1.0 if observed == 0 else float("inf")
    return PredictiveTest(name, float(ratio), tail_probability(replicated - observed))


def tail_probability(excess: Floats) -> float:
    """Two-sided p-value of 0 among replicated minus observed summaries, ties counted half."""
    above = float(np.mean(excess > 0) + 0.5 * np.mean(excess == 0))
    tail = min(above, 1.0 - above)
    spread = float(np.std(excess))
    if tail * len(excess) < _OUTER and spread > 0:
        curve = stats.pearson3(float(stats.skew(excess)), loc=float(np.mean(excess)), scale=spread)
        tail = min(float(curve.cdf(0.0)), float(curve.sf(0.0)))
    return min(1.0, 2.0 * tail)
