"""Tests of the probability integral transform (PIT) of outcomes, by slice.

If the model is right, F(y - 1) + V [F(y) - F(y - 1)] of counts, V uniform, is uniform (the
randomised PIT, which is tested), and so is on average its expectation over V (Czado, Gneiting and
Held 2009); of values both are F(y). F averages over the curves' uncertainty.

All items share the error of the curves. If one draw of the curves is the truth, outcomes y have the
density p_draw in place of its mean p over the draws, so that the share of PIT values up to u is off
by the mean of (p_draw / p - 1) 1{PIT(y) <= u}: the draw's shift. The ECDF of n items strays from
this as a Brownian bridge over sqrt(n). Distances are judged by such replicates, whose slices share
one shift. Items that made the fit stray less: for them the test is conservative.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from numpy.random import Generator
from scipy import sparse

from .._lib.arrays import Bools, Columns, Floats, Ints, equal_parts
from .._lib.laws import exceedance, uniform_distance, uniform_p_value
from .._lib.reprs import digits, number
from ..families.family import Outcome
from ..fits import Curves
from ..posterior.averages import cdf_interval
from ..posterior.item_columns import in_chunks, select
from ..posterior.predictive import Posterior
from .findings import ALL, FAIL, FAILS, OK, WARN, WARNS, Finding, Remedy
from .observations import Observations

# the check of all slices by one quantity together
TOGETHER = "PIT of slices"
NUMBER = "slices with p < 0.05"  # the check of how many there are
LEAST = 20  # items of a slice: no test on fewer says anything
# levels of a column that are slices
LEVELS = 200
_VALUES = 20  # numbers and dates of more values are cut into fifths
# exposure from which a count says much about its item's theta
_LARGE_EXPOSURE = 50
_FEWEST_SLICES = 5  # whose number with p < 0.05 is judged
GRID = np.linspace(0.0, 1.0, 200)  # where ECDFs are taken
# how much further a bridge strays between the points of the grid (Siegmund 1979; Broadie,
# Glasserman and Kou 1997): -zeta(1/2) / sqrt(2 pi) of a step's sd
BETWEEN = 0.5826 * float(np.sqrt(GRID[1]))
_GRID_STEPS = len(GRID) - 1
_BINS = 20  # bins of the score for histograms
_ROWS_AT_ONCE = 20_000
_NARROWEST = 1e-6  # width of a PIT interval: narrower ones lose digits
# rows of more items are divided among the grid by one multinomial draw
_EACH = 32
_SHIFT_DRAWS = 100  # draws of the curves to compute shifts
# items that shifts are averaged over, and least number of a slice: accurate to about 7%
_POOL = 1000
_FEWEST_SHIFTED = 150
_MOST_SHIFTED = 6000  # about as many for all slices together, where these are many
# replicates, and those made at once
_PATHS = 2000
_PATHS_AT_ONCE = 250
_COARSE = 4  # replicates are taken at every fourth point of the grid
# share of the shifts' variance in directions that are left out
_FAINT_DIRECTION = 1e-3
_LEAST_P = 1e-300  # smallest p-value before its logarithm is taken
_TAIL = _PATHS // 20  # replicates to which the tail beyond them is fitted

_WITHOUT_LEVEL = "missing"  # the level of items without one, in words


class Slice(NamedTuple):
    """Items that are tested together: all of them, or those of one level or part of a column."""

    # of the column in results, such as "exposure"; or of all items
    name: str
    column: str = ""  # in the table of the items
    relation: str = (
        # of the column to the level: "=" or ">="; none to a part of its values
        ""
    )
    level: Hashable = None  # None if it is missing

    def __str__(self) -> str:
        words = [self.name]
        if self.relation:
            words += [self.relation, _word(self.level)]
        elif self.column:
            words.append(str(self.level))
        return " ".join(words)


def _word(level: Hashable) -> str:
    if level is None:
        return _WITHOUT_LEVEL
    if isinstance(level, float):
        return digits(level)
    return repr(level) if level == _WITHOUT_LEVEL else str(level)


# in all functions `n` is the number of items of rows
Masks = Mapping[Slice, Bools]


def slices(curves: Curves, items: Observations) -> dict[Slice, Bools]:
    """Return masks of the slices with enough items."""
    outcome = curves.outcome
    n = items.n
    score = items.columns["score"]
    size = items.columns[outcome.size]
    word = outcome.words.size
    roles = {"score": items.roles["score"], word: items.roles[outcome.size]}
    masks = {Slice(ALL): n > 0}
    masks |= {
        Slice("score", roles["score"], "=", atom): score == atom
        for atom in curves.atoms
    }
    masks |= large_sizes(outcome, size, roles[word])
    for name, numbers in (("score", score), (word, size)):
        code, parts = _fifths(pd.Series(numbers), n)
        if len(parts) > 1:
            masks |= {
                Slice(name, roles[name], "", x): code == k for k, x in enumerate(parts)
            }
    for column, values in items.labels.items():
        name = _heading(column, roles)
        code, levels = level_codes(values, n)
        places = np.arange(len(levels))
        if not is_cut(values):
            places = np.argsort(-np.bincount(code, n, len(levels)), kind="stable")[
                :LEVELS
            ]
        masks |= {Slice(name, column, *levels[k]): code == k for k in places}
    fewest = min(LEAST, int(n.sum()))
    return {part: mask for part, mask in masks.items() if n[mask].sum() >= fewest}


def _heading(column: str, roles: Mapping[str, str]) -> str:
    """Name of a column in results, unlike the word of a role and unlike a level."""
    if roles.get(column, column) != column:
        return f"column {column}"
    return (
        f"column {column!r}"
        if " = " in column or column.startswith("column ")
        else column
    )


def large_sizes(
    outcome: Outcome, size: Floats, column: str, least: float = _LARGE_EXPOSURE
) -> dict[Slice, Bools]:
    """Mask the items whose outcomes say much about their theta, where sizes are amounts."""
    large = Slice(outcome.words.size, column, ">=", least)
    return {large: size >= least} if outcome.sizes_add else {}


def level_codes(values: pd.Series, n: Ints) -> tuple[Ints, list[tuple[str, Hashable]]]:
    """Return numbers of the levels of a column, or of its fifths; and these, with the relation."""
    if is_cut(values):
        code, parts = _fifths(values.reset_index(drop=True), n)
        missing = values.isna().to_numpy()
        levels: list[tuple[str, Hashable]] = [("", part) for part in parts]
        levels += [("=", None)] * int(missing.any())
        return np.where(missing, len(levels) - 1, code), levels
    code, labels = pd.factorize(values, use_na_sentinel=False)
    return code, [("=", None if pd.isna(label) else label) for label in labels]


def rare_levels(labels: Mapping[str, pd.Series]) -> Iterator[Remedy]:
    """Yield advice on columns whose rarer levels were not checked."""
    for column, values in labels.items():
        if (levels := values.nunique(dropna=False)) > LEVELS and not is_cut(values):
            frequent = f"only the {LEVELS} most frequent were checked"
            words = f"Column {column!r} has {levels:,} levels: {frequent}."
            yield Remedy("rare levels", words, column)


def is_cut(values: pd.Series) -> bool:
    """Return True if a column has an order, and too many values for each to be a level."""
    return values.dtype.kind in "iufM" and values.nunique(dropna=True) > _VALUES


def _fifths(values: pd.Series, n: Ints) -> tuple[Ints, list[str]]:
    """Return numbers of the fifths of numbers or dates, -1 where missing, and their ranges."""
    ranked = values.rank() if values.dtype.kind == "M" else values
    code = equal_parts(np.asarray(ranked, dtype=np.float64), 5, n)
    ends = values.groupby(code).agg(["min", "max"]).drop(index=-1, errors="ignore")
    ranges = []
    for k, pair in enumerate(ends.itertuples(index=False), 1):
        low, high = (
            f"{end:%Y-%m-%d}" if isinstance(end, pd.Timestamp) else number(end)
            for end in pair
        )
        ranges.append(f"{k}/{len(ends)}: {low}{f' to {high}' * (high != low)}")
    return code, ranges


def cdf_ends(posterior: Posterior, columns: Columns) -> Floats:
    """Return P(Y < y) and P(Y <= y) of rows, (2, n), over the draws; of cells of their ends."""
    values = partial(cdf_interval, posterior)
    return in_chunks(values, _ROWS_AT_ONCE, columns, "predictive distribution")


def _indicators(masks: Masks) -> sparse.csr_array:
    """Return indicators (slices, rows)."""
    rows = [np.flatnonzero(mask) for mask in masks.values()]
    ends = np.cumsum([0, *map(len, rows)])
    row = np.concatenate(rows)
    shape = len(rows), len(next(iter(masks.values())))
    return sparse.csr_array((np.ones(len(row)), row, ends), shape=shape)


def slice_pits(ends: Floats, n: Ints, masks: Masks, rng: Generator) -> xr.Dataset:
    """Return the PIT by slice of rows of `n` items, from the ends (2, rows) of their PIT intervals.

    ECDFs are minus the uniform cdf.
    """
    members = _indicators(masks)
    large = np.flatnonzero(n > _EACH)
    counts = np.zeros((len(masks), _GRID_STEPS))
    for rows in np.split(large, range(_ROWS_AT_ONCE, len(large), _ROWS_AT_ONCE)):
        counts += members[:, rows] @ _multinomial_counts(ends[:, rows], n[rows], rng)
    counts += members @ _steps_of_items(ends, np.where(n > _EACH, 0, n), rng)
    bends = (members @ _bends(ends, n)).toarray()
    sums = bends.cumsum(axis=1).cumsum(axis=1)[:, : len(GRID)]
    items = members @ n
    randomised = np.insert(np.cumsum(counts, axis=1).T / items, 0, 0.0, axis=0).T - GRID
    distance = np.minimum(
        1.0, np.abs(randomised).max(axis=1) + BETWEEN / np.sqrt(items)
    )
    variables = {
        "randomised": (("slice", "u"), randomised),
        "averaged": (("slice", "u"), sums / items[:, None] - GRID),
        "n_items": ("slice", items.astype(np.int64)),
        "distance": ("slice", distance),
    }
    return xr.Dataset(variables, {"slice": [*map(str, masks)], "u": GRID})


def with_p_values(pits: xr.Dataset) -> xr.Dataset:
    """Add Kolmogorov and Smirnov's p-values, which take the curves as known."""
    from scipy.stats import kstwo  # which takes long to import

    values = pits["distance"].to_numpy(), pits["n_items"].to_numpy()
    return pits.assign(p_value=("slice", kstwo.sf(*values)))


def _multinomial_counts(ends: Floats, n: Ints, rng: Generator) -> Ints:
    """Return how many items of each row have their randomised PIT in each step of the grid."""
    shares = np.diff(pit_upto_grid(*ends), axis=1)
    # no point of the grid lies above it
    shares[ends[0] >= 1.0, -1] = 1.0
    return rng.multinomial(n, shares / shares.sum(axis=1, keepdims=True))


def _steps_of_items(ends: Floats, n: Ints, rng: Generator) -> sparse.csr_array:
    """Return the same counts (rows, steps), drawn item by item."""
    below, upto = np.repeat(ends, n, axis=1)
    pit = below + rng.random(len(below)) * (upto - below)
    step = np.minimum((pit * _GRID_STEPS).astype(np.int64), _GRID_STEPS - 1)
    starts = np.concatenate([[0], np.cumsum(n)])
    shape = len(n), _GRID_STEPS
    return sparse.csr_array((np.ones(len(step)), step, starts), shape=shape)


def _bends(ends: Floats, n: Ints) -> sparse.csr_array:
    """Return second differences of n times `pit_upto_grid`, which bends at both ends alone.

    At an end between two points of the grid, two differences share the change of slope.
    """
    below, upto = ends
    ends = np.stack([below, np.maximum(upto, below + _NARROWEST)], axis=1)
    slope = (n / (ends[:, 1] - ends[:, 0]))[:, None] * [1.0, -1.0]
    place = np.ceil(ends / GRID[1])
    after = place * GRID[1] - ends
    values = np.stack([slope * after, slope * (GRID[1] - after)], axis=2)
    places = np.stack([place, place + 1], axis=2).astype(np.int64)
    starts = np.arange(0, values.size + 1, 4)
    shape = len(n), len(GRID) + 2
    return sparse.csr_array((values.ravel(), places.ravel(), starts), shape=shape)


def pit_upto_grid(below: Floats, upto: Floats) -> Floats:
    """Return P(randomised PIT <= u) of each row at the points u of `GRID`, (n, points)."""
    width = np.maximum(upto - below, _NARROWEST)
    return np.clip((GRID - below[:, None]) / width[:, None], 0.0, 1.0)


def bins_of_score(items: Observations) -> dict[Slice, Bools]:
    """Mask 20 bins of the score, of about equally many items."""
    bins = equal_parts(items.columns["score"], _BINS, items.n)
    return {Slice(str(k)): bins == k for k in range(bins.max() + 1)}


def pits_by_score(pits: xr.Dataset, items: Observations, bins: Masks) -> xr.Dataset:
    """Return ECDFs in bins of the score, with each bin's mean score and number of items."""
    pits = pits.rename(slice="bin").drop_vars("bin")
    total = np.stack([*bins.values()]) @ (items.n * items.columns["score"])
    ecdfs = pits[["n_items"]].assign(ecdf=pits["randomised"] + pits["u"])
    return ecdfs.assign_coords(score=("bin", total / pits["n_items"].to_numpy()))


def pit_tests(
    posterior: Posterior,
    items: Observations,
    masks: Masks,
    pits: xr.Dataset,
    rng: Generator,
) -> tuple[xr.Dataset, list[Finding]]:
    """Test the PIT by slice; return it with p-values and quantities, and findings."""
    shifts = curve_shifts(posterior, items, [*masks.values()], rng)
    members = _indicators(masks)
    shared = ((members * items.n) @ members.T).toarray()
    replicated = replicated_distances(shifts, shared, rng)
    distances = zip(
        pits["distance"].values, pits["n_items"].values, replicated.T, strict=True
    )
    p_values = [distance_p_value(*distance) for distance in distances]
    pits = pits.assign(p_value=("slice", p_values)).assign_coords(
        quantity=("slice", [part.name for part in masks]),
        column=("slice", [part.column for part in masks]),
    )
    return pits, [*pit_findings(pits), *_together(pits, [*masks], replicated)]


def loo_pit_finding(values: Floats, where: str) -> Finding:
    """Test PIT values of items left out, which depend on each other (Tesso and Vehtari 2026)."""
    distance = uniform_distance(values)
    p = uniform_p_value(values)
    return Finding("LOO-PIT", where, len(values), distance, p=p)


def curve_shifts(
    posterior: Posterior, items: Observations, masks: Sequence[Bools], rng: Generator
) -> Floats:
    """Return shifts of the ECDF of every slice's PIT at `GRID` by draw, (draws, slices, points)."""
    draws = posterior.curves.even_draws(_SHIFT_DRAWS)
    n = items.n
    row = rng.choice(len(n), min(_POOL, int(n.sum())), p=n / n.sum())
    rows = [row]
    weights = [np.stack([mask[row] for mask in masks]).astype(float)]
    least = min(_FEWEST_SHIFTED, _MOST_SHIFTED // len(masks))
    for k, mask in enumerate(masks):  # of small slices further items
        if (lacking := min(least, int(n[mask].sum())) - int(mask[row].sum())) > 0:
            place = np.flatnonzero(mask)
            rows.append(rng.choice(place, lacking, p=n[place] / n[place].sum()))
            further = np.zeros((len(masks), lacking))
            further[k] = 1.0
            weights.append(further)
    columns = select(items.columns, np.concatenate(rows))
    weight = np.hstack(weights)
    drawn_by = np.asarray(rng.integers(len(draws), size=weight.shape[1]))
    columns[posterior.outcome.observed] = posterior.simulate(
        columns, rng, draws, drawn_by
    )
    log_density = posterior.log_density(columns, draws)
    ratio = np.exp(log_density - log_density.max(axis=0))
    departure = ratio / ratio.mean(axis=0) - 1.0
    share = pit_upto_grid(*cdf_interval(posterior, columns))
    shifts = [departure[:, part] @ share[part] / part.sum() for part in weight > 0.0]
    return np.stack(shifts, axis=1)


def replicated_distances(shift: Floats, shared: Floats, rng: Generator) -> Floats:
    """Distances of replicated ECDFs, (replicates, slices); `shared` items of pairs of slices."""
    n = np.diag(shared)
    step = np.diff(GRID[::_COARSE], append=1.0)
    values, vectors = np.linalg.eigh(shared / np.sqrt(np.outer(n, n)))
    root = vectors * np.sqrt(np.maximum(values, 0.0)) / np.sqrt(n)[:, None]
    flat = shift[..., ::_COARSE].reshape(len(shift), -1) / np.sqrt(len(shift))
    size, directions = np.linalg.eigh(flat @ flat.T)
    counts = np.cumsum(size) > _FAINT_DIRECTION * size.sum()
    loadings = (directions[:, counts].T @ flat).astype(np.float32)
    shape = (len(n), _PATHS_AT_ONCE, len(step))
    distances = []
    for _ in range(_PATHS // _PATHS_AT_ONCE):
        # independent Normal multiples of the loadings have the covariance of the draws' shifts
        mix = rng.standard_normal((_PATHS_AT_ONCE, len(loadings)), dtype=np.float32)
        walk = rng.standard_normal(shape, dtype=np.float32) * np.sqrt(
            step, dtype=np.float32
        )
        bridge = np.cumsum(walk, axis=-1)
        end = bridge[..., -1:].copy()
        bridge -= walk  # from 0 on, at the beginning of each step
        bridge -= GRID[::_COARSE].astype(np.float32) * end
        strayed = root.astype(np.float32) @ bridge.reshape(len(n), -1)
        strayed = strayed.reshape(shape) + (mix @ loadings).reshape(
            _PATHS_AT_ONCE, len(n), -1
        ).swapaxes(0, 1)
        distances.append(np.abs(strayed).max(axis=-1).T)
    return np.concatenate(distances) + BETWEEN * np.sqrt(_COARSE) / np.sqrt(n)


def distance_p_value(distance: float, n: int, replicated: Floats) -> float:
    """Probability of at least this distance of n items' ECDF, given replicates of their bridge."""
    # the ECDF of few values strays less than its limit (Stephens 1970)
    limit = distance * (1.0 + 0.12 / np.sqrt(n) + 0.11 / n)
    return exceedance(replicated**2, limit**2, _TAIL)


def pit_findings(pits: xr.Dataset, what: str = "PIT") -> list[Finding]:
    """Return rows of a table of results, by slice."""
    table = pits[["distance", "p_value", "n_items"]].reset_coords(drop=True)
    rows = table.to_dataframe().itertuples()
    return [
        Finding(what, str(where), n, distance, p=p) for where, distance, p, n in rows
    ]


def _together(
    pits: xr.Dataset, parts: Sequence[Slice], replicated: Floats
) -> list[Finding]:
    """Fisher's sums of log p-values by quantity, and numbers of p < 0.05, among replicates."""
    quantities: dict[tuple[str, str, str], list[int]] = {}
    for k, part in enumerate(parts):
        quantities.setdefault((part.name, part.column, part.relation), []).append(k)
    distance, p = (pits[name].to_numpy() for name in ("distance", "p_value"))
    p_replicated = (np.argsort(np.argsort(-replicated, axis=0), axis=0) + 0.5) / len(
        replicated
    )
    rows = []
    for (quantity, _, relation), places in quantities.items():
        if (n := len(places)) > 1:
            observed = -np.log(np.maximum(p[places], _LEAST_P)).sum()
            sums = -np.log(p_replicated[:, places]).sum(axis=1)
            chance = exceedance(sums, observed, _TAIL)
            where = (
                f"{quantity} = any of {n}"
                if relation
                else f"{quantity} 1/{n} to {n}/{n}"
            )
            value = distance[places].max()
            rows.append(Finding(TOGETHER, where, value=value, p=chance))
    if len(p) >= _FEWEST_SLICES:
        total = int((p < WARNS).sum())
        off_replicated = (p_replicated < WARNS).sum(axis=1)
        chance = float(
            (1 + (off_replicated >= total).sum()) / (1 + len(off_replicated))
        )
        verdict = WARN if chance < WARNS else OK
        if chance < FAILS:
            verdict = FAIL
        where = f"{len(p)} slices"
        rows.append(Finding(NUMBER, where, value=total, p=chance, verdict=verdict))
    return rows
