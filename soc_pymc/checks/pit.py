"""Tests of the probability integral transform (PIT) of outcomes, by slice.

If the model is right, F(y - 1) + V [F(y) - F(y - 1)] of counts, V uniform, is uniform (the
randomised PIT, which is tested), and so is on average its expectation over V (the non-randomised
PIT of Czado, Gneiting and Held 2009, which no seed can change); of values both are F(y). F averages
over the curves' uncertainty. ECDFs are taken at the points of a grid.

All items share the error of the curves. Where it is not far below 1 / sqrt(n), PIT values of n
items stray together, and the Kolmogorov-Smirnov test would reject a right model with honest bands.
If one draw of the curves is the truth, outcomes y have the density p_draw in place of its mean p
over the draws, so that the share of PIT values up to u is off by the mean of
(p_draw / p - 1) 1{PIT(y) <= u}: the draw's shift. Given a draw, the ECDF of n items strays from
this as a Brownian bridge over sqrt(n). Distances are judged by such replicates, whose slices share
one shift. The items that made the fit stray less than new ones: for them the test is conservative.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from scipy import stats

from .._lib.arrays import Bools, Floats, Ints
from ..families.outcomes import Outcome
from ..inference.results import Fit
from ..posterior.item_columns import Columns, select
from ..posterior.predictive import Posterior, posterior_of
from .observations import Observations, even_draws, in_batches
from .results import FAIL, FAILS, OK, WARN, WARNS, finding

Slices = Iterator[tuple[str, Bools]]
"""Names and masks of slices. In all functions `n` is the number of items of each row."""

ALL = "all items"
LEAST = 20  # items of a slice: no test on fewer says anything
LEVELS = 20  # levels of a column that are slices; numbers of more values are cut into fifths
_LARGE = 50  # exposure from which a count says much about its item's theta


def slices(outcome: Outcome, columns: Columns, atoms: Sequence[float], n: Ints) -> Slices:
    """Slices of any items: all, each atom, large sizes, fifths of score and of size."""
    score, size = columns["score"], columns[outcome.size]
    yield ALL, np.ones(len(score), dtype=bool)
    for atom in atoms:
        if (mask := score == atom).any():
            yield f"score = {atom:.6g}", mask
    yield from large_sizes(outcome, size)
    for name, values in (("score", score), (outcome.words.size, size)):
        code, names = _fifths(name, pd.Series(values), n)
        if len(names) > 1:
            yield from ((part, code == k) for k, part in enumerate(names))


def large_sizes(outcome: Outcome, size: Floats, least: float = _LARGE) -> Slices:
    """The items whose outcomes say much about their theta, where sizes are amounts."""
    if outcome.sizes_add:
        yield f"{outcome.words.size} >= {least:.0f}", size >= least


def column_slices(labels: Mapping[str, pd.Series], n: Ints) -> Slices:
    """Slices by the 20 most frequent levels of columns, or by fifths of numbers and dates."""
    for column, values in labels.items():
        code, names = level_codes(column, values, n)
        places = np.arange(len(names))
        if not is_cut(values):
            places = np.argsort(-np.bincount(code, n, len(names)), kind="stable")[:LEVELS]
        yield from ((names[k], code == k) for k in places)


def level_codes(column: str, values: pd.Series, n: Ints) -> tuple[Ints, list[str]]:
    """Numbers of the levels of a column, or of its fifths, and their names."""
    if is_cut(values):
        code, names = _fifths(column, values.reset_index(drop=True), n)
        missing = values.isna().to_numpy()
        names += [f"{column} = missing"] * int(missing.any())
        return np.where(missing, len(names) - 1, code), names
    code, levels = pd.factorize(values, use_na_sentinel=False)
    return code, [f"{column} = {'missing' if pd.isna(level) else level}" for level in levels]


def is_cut(values: pd.Series) -> bool:
    """True if a column has an order, and too many values for each to be a level."""
    numbers = pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values)
    ordered = numbers or pd.api.types.is_datetime64_any_dtype(values)
    return bool(ordered and values.nunique(dropna=True) > LEVELS)


def cut_columns(labels: Mapping[str, pd.Series]) -> Iterator[str]:
    """Sentences on columns whose rarer levels were not checked."""
    for column, values in labels.items():
        number = values.nunique(dropna=False)
        if number > LEVELS and not is_cut(values):
            yield (
                f"Column {column!r} has {number:,} levels: only the {LEVELS} most frequent were "
                "checked."
            )


def _fifths(name: str, values: pd.Series, n: Ints) -> tuple[Ints, list[str]]:
    """Numbers of the fifths of numbers or dates, -1 for those that are missing, and their names."""
    code = equal_parts(np.asarray(values.rank(), dtype=np.float64), 5, n)
    ends = values.groupby(code).agg(["min", "max"]).drop(index=-1, errors="ignore")
    names = []
    for k, (least, largest) in enumerate(zip(ends["min"], ends["max"], strict=True), 1):
        low, high = _short(least), _short(largest)
        names.append(f"{name} {k}/{len(ends)}: {low}{f' to {high}' * (high != low)}")
    return code, names


def equal_parts(value: Floats, number: int, n: Ints | Floats | None = None) -> Ints:
    """Numbers from 0 of parts of about equally many items by value, without ties; -1 for NaN."""
    part, known = np.full(len(value), -1), ~np.isnan(value)
    tied = np.unique(value[known], return_inverse=True)[1]
    items = np.bincount(tied, None if n is None else n[known])
    middle = (np.cumsum(items) - 0.5 * items) / max(items.sum(), 1)
    of_item = np.minimum((number * middle[tied]).astype(int), number - 1)
    part[known] = np.unique(of_item, return_inverse=True)[1]
    return part


def _short(value: Any) -> str:
    """A number in a few digits, or a date."""
    if isinstance(value, pd.Timestamp):
        return f"{value:%Y-%m-%d}"
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.3g}"


TOGETHER = "PIT of slices"  # the check of all slices by one quantity together
NUMBER = "slices with p < 0.05"  # the check of how many there are
GRID = np.linspace(0.0, 1.0, 200)  # where ECDFs are taken
# how much further a bridge strays between the points of the grid (Siegmund 1979; Broadie,
# Glasserman and Kou 1997): -zeta(1/2) / sqrt(2 pi) of a step's sd
BETWEEN = 0.5826 * float(np.sqrt(GRID[1]))

_STEPS = len(GRID) - 1
_FEWEST_SLICES = 5  # whose number with p < 0.05 is judged
_BINS = 20  # bins of the score for histograms
_CHUNK = 20_000
_EACH = 32  # rows of more items are divided among the grid by one multinomial draw
_DRAWS = 200  # draws of the curves to compute shifts
_ITEMS = 200  # items of a slice that shifts are averaged over: accurate to about 7%
_PATHS, _AT_ONCE = 2000, 250  # replicates, and those made at once
_TINY = 1e-300  # smallest p-value before its logarithm is taken
_TAIL = 0.05  # share of replicates to which the tail beyond them is fitted


class SliceTests(NamedTuple):
    """PIT by slice, with p-values among replicates, and what these were made of."""

    pits: xr.Dataset
    replicated: Floats  # distances, (replicates, slices)
    shifts: Floats
    ends: Floats  # of the PIT intervals of all rows, (2, rows)


def pit_tests(
    fit: Fit,
    items: Observations,
    masks: Mapping[str, Bools],
    rng: np.random.Generator,
    progress: bool | None = None,
) -> SliceTests:
    """Tests of the PIT by slice, which allow for the error of the curves."""
    ends = cdf_ends(posterior_of(fit), items.columns, progress)
    members = np.stack([*masks.values()])
    pits = slice_pits(ends, items.n, masks, rng)
    shifts = curve_shifts(fit, items.columns, items.n, members, rng)
    replicated = replicated_distances(shifts, (members * items.n) @ members.T.astype(float), rng)
    return SliceTests(judged(pits, replicated), replicated, shifts, ends)


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


def slice_pits(
    ends: Floats, n: Ints, masks: Mapping[str, Bools], rng: np.random.Generator
) -> xr.Dataset:
    """PIT by slice of rows of `n` items, from the ends (2, rows) of their PIT intervals.

    The ECDF of the ``randomised`` PIT and its expectation (``averaged``) at the points of `GRID`
    are minus the uniform cdf. ``distance`` is the largest difference, ``p_value`` that of the
    Kolmogorov-Smirnov test, which takes the curves as known.
    """
    members = np.stack([*masks.values()])
    counts, sums = np.zeros((len(members), _STEPS)), np.zeros((len(members), len(GRID)))
    for start in range(0, len(n), _CHUNK):
        rows = slice(start, start + _CHUNK)
        share, weight = pit_upto_grid(*ends[:, rows]), members[:, rows] * n[rows].astype(float)
        sums += weight @ share
        row, step, items = _dealt(ends[:, rows], share, n[rows], rng)
        for count, mask in zip(counts, members[:, rows], strict=True):
            count += np.bincount(step, items * mask[row], _STEPS)
    number = members @ n
    items = number[:, None]
    randomised = np.insert(np.cumsum(counts, axis=1) / items, 0, 0.0, axis=1) - GRID
    distance = np.minimum(1.0, np.abs(randomised).max(axis=1) + BETWEEN / np.sqrt(number))
    variables: dict[str, Any] = {
        "randomised": (("slice", "u"), randomised),
        "averaged": (("slice", "u"), sums / items - GRID),
        "n_items": ("slice", number),
        "distance": ("slice", distance),
        "p_value": ("slice", stats.kstwo.sf(distance, number)),
    }
    return xr.Dataset(variables, {"slice": list(masks), "u": GRID})


def _dealt(
    ends: Floats, share: Floats, n: Ints, rng: np.random.Generator
) -> tuple[Ints, Ints, Ints]:
    """Rows, steps of the grid, and how many items of the row have their PIT in the step."""
    below, upto = ends
    cells, items_alone = np.flatnonzero(n > _EACH), np.flatnonzero(n <= _EACH)
    shares = np.diff(share[cells], axis=1)
    shares[below[cells] >= 1.0, -1] = 1.0  # no point of the grid lies above it
    counts = rng.multinomial(n[cells], shares / shares.sum(axis=1, keepdims=True))
    place, step = np.nonzero(counts)
    row = np.repeat(items_alone, n[items_alone])
    pit = below[row] + rng.random(len(row)) * (upto - below)[row]
    return (
        np.concatenate([cells[place], row]),
        np.concatenate([step, np.minimum((pit * _STEPS).astype(np.int64), _STEPS - 1)]),
        np.concatenate([counts[place, step], np.ones(len(row), dtype=np.int64)]),
    )


def pit_upto_grid(below: Floats, upto: Floats) -> Floats:
    """P(randomised PIT <= u) of each row at the points u of `GRID`, (n, points)."""
    width = np.maximum(upto - below, 1e-12)
    return np.clip((GRID - below[:, None]) / width[:, None], 0.0, 1.0)


# --- replicates that share the error of the curves ----------------------------------------------


def curve_shifts(
    fit: Fit, columns: Columns, n: Ints, members: Bools, rng: np.random.Generator
) -> Floats:
    """Shifts of the ECDF of every slice's PIT at `GRID` by draw, (draws, slices, points)."""
    posterior, draws = posterior_of(fit), even_draws(fit, _DRAWS)
    places = [np.flatnonzero(mask) for mask in members]
    rows = np.concatenate([rng.choice(p, _ITEMS, p=n[p] / n[p].sum()) for p in places])
    items = select(columns, rows)
    outcomes = posterior.simulate(items, rng, draws)
    drawn = outcomes[rng.integers(len(outcomes), size=len(rows)), np.arange(len(rows))]
    items[posterior.outcome.observed] = drawn
    log_density = posterior.log_density(items, draws)
    ratio = np.exp(log_density - log_density.max(axis=0))
    departure = (ratio / ratio.mean(axis=0) - 1.0).reshape(-1, len(places), _ITEMS)
    share = pit_upto_grid(*posterior.cdf_interval(items)).reshape(len(places), _ITEMS, -1)
    return np.asarray(np.einsum("dsi,sip->dsp", departure, share) / _ITEMS)


def replicated_distances(shift: Floats, shared: Floats, rng: np.random.Generator) -> Floats:
    """Distances of replicated ECDFs of all slices together, (replicates, slices).

    `shared` are numbers of items that two slices share, (slices, slices): on the diagonal of each.
    """
    draws, slices, points = shift.shape
    n = np.diag(shared)
    values, vectors = np.linalg.eigh(shared / np.sqrt(np.outer(n, n)))
    root = vectors * np.sqrt(np.maximum(values, 0.0)) / np.sqrt(n)[:, None]
    distances = np.empty((_PATHS, slices))
    for start in range(0, _PATHS, _AT_ONCE):
        # any combination of the draws' shifts with independent Normal weights has their covariance
        mix = rng.normal(size=(_AT_ONCE, draws)) / np.sqrt(draws)
        bridge = np.zeros((slices, _AT_ONCE, points))
        steps = rng.normal(scale=GRID[1] ** 0.5, size=(slices, _AT_ONCE, points - 1))
        bridge[..., 1:] = np.cumsum(steps, axis=-1)
        bridge -= GRID * bridge[..., -1:]
        strayed = np.tensordot(root, bridge, 1) + np.tensordot(shift, mix, (0, 1)).swapaxes(1, 2)
        distances[start : start + _AT_ONCE] = np.abs(strayed).max(axis=-1).T
    return distances + BETWEEN / np.sqrt(n)


def judged(pits: xr.Dataset, replicated: Floats) -> xr.Dataset:
    """The PIT with p-values among replicated distances (replicates, slices)."""
    columns = pits["distance"].to_numpy(), pits["n_items"].to_numpy(), replicated.T
    p_values = [distance_p_value(*values) for values in zip(*columns, strict=True)]
    return pits.assign(p_value=("slice", p_values))


def distance_p_value(distance: float, n: int, replicated: Floats) -> float:
    """Probability of at least this distance of n items' ECDF, given replicates of their bridge."""
    # the ECDF of few values strays less than its limit (Stephens 1970)
    limit = distance * (1.0 + 0.12 / np.sqrt(n) + 0.11 / n)
    return _exceedance(replicated**2, limit**2)


def _exceedance(values: Floats, bound: float) -> float:
    """Share of `values` of at least a bound; in the far tail, from a fitted tail."""
    cut = np.quantile(values, 1.0 - _TAIL)
    if bound <= cut:
        return float(np.mean(values >= bound))
    rate = np.mean(values[values > cut]) - cut
    return float(_TAIL * np.exp(-(bound - cut) / rate))


def together(tests: SliceTests) -> list[dict[str, Any]]:
    """Findings on all slices by one quantity, by Fisher's sum of logarithms of p-values.

    The sum is judged by its replicates, since such slices share the curves, though no items. The
    value is the largest distance. Of all slices together, the number with p < 0.05 is judged by its
    replicates, in which slices share items too.
    """
    quantities: dict[tuple[str, str], list[int]] = {}
    for k, name in enumerate(tests.pits["slice"].to_numpy()):
        if part := re.match(r"(.+?)(?: \d+/\d+: | (= ))", name):
            quantities.setdefault((part[1], part[2] or ""), []).append(k)
    distance, p = (tests.pits[name].to_numpy() for name in ("distance", "p_value"))
    rows = []
    rank = np.argsort(np.argsort(-tests.replicated, axis=0), axis=0)
    replicated = (rank + 0.5) / len(rank)
    for (quantity, is_label), places in quantities.items():
        if (n := len(places)) > 1:
            sums = -np.log(replicated[:, places]).sum(axis=1)
            observed = -np.log(np.maximum(p[places], _TINY)).sum()
            where = f"{quantity} = any of {n}" if is_label else f"{quantity} 1/{n} to {n}/{n}"
            chance = _exceedance(sums, observed)
            rows.append(finding(TOGETHER, where, distance[places].max(), chance))
    if len(p) >= _FEWEST_SLICES:
        numbers, number = (replicated < WARNS).sum(axis=1), int((p < WARNS).sum())
        chance = float((1 + (numbers >= number).sum()) / (1 + len(numbers)))
        verdict = FAIL if chance < FAILS else WARN if chance < WARNS else OK
        rows.append(finding(NUMBER, f"{len(p)} slices", number, chance, verdict))
    return rows


# --- results -------------------------------------------------------------------------------------


def pit_findings(pits: xr.Dataset, what: str = "PIT") -> list[dict[str, Any]]:
    """Rows of a table of results, by slice."""
    columns = (pits[name].to_numpy() for name in ("slice", "distance", "p_value", "n_items"))
    return [
        finding(what, str(where), distance, p, n=int(n))
        for where, distance, p, n in zip(*columns, strict=True)
    ]


def binned_dataset(ends: Floats, n: Ints, score: Floats, rng: np.random.Generator) -> xr.Dataset:
    """ECDFs in 20 bins of the score, with the mean score and the number of items of each bin."""
    part = equal_parts(score, _BINS, n)
    pits = slice_pits(ends, n, {str(k): part == k for k in range(part.max() + 1)}, rng)
    items = pits["n_items"].to_numpy()
    variables = {"ecdf": (("bin", "u"), GRID + pits["randomised"].to_numpy())}
    coords = {"score": ("bin", np.bincount(part, n * score) / items), "u": GRID}
    return xr.Dataset({**variables, "n_items": ("bin", items)}, coords)
