"""`check`: does the model fit these outcomes, and what to do if not."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from ..errors import FitError
from ..item_columns import columns_of, law_roles
from ..items import Items
from ..laws import Columns, Law, law_of, select
from ..progress import phase
from ..results import PARETO_K, Fit
from ..statistics import Statistics
from ..tables import batches, open_table, scan
from .advice import advise
from .cells import cell_pit, loo_cells, make_cells
from .pit import (
    GRID,
    LEAST,
    Uniformity,
    mean_pit_ecdf,
    pit_ecdf,
    predictive_cdf,
    randomised_pit,
    slices,
    uniformity,
)
from .predictive import predictive_tests, thin
from .variational import quality

__all__ = ["CheckResult", "arviz_groups", "check", "holm", "read_items"]

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

_FAIL, _LOOK = 0.01, 0.05
_LEVELS = 20  # levels of a user's column that get a slice of their own
_DRAWS = 1000  # draws in the tree for ArviZ
_SHOWN = 12  # rows in the printed form
_LOO = ("elpd", "standard_error", "p_loo", "pareto_k")
_WORDS = {  # what a check looks at, and what its statistic is, in print
    "PIT": ("distribution of outcomes (PIT)", "probabilities off by up to"),
    "dispersion": ("scatter of outcomes", "observed / predicted"),
    "zero counts": ("number of zero counts", "observed / predicted"),
    "converged": ("convergence", "converged ="),
    "pareto_k": ("quality of the approximation", "Pareto k (at most 0.7)"),
    "ess_fraction": ("quality of the approximation", "effective share of draws"),
    "leave-one-out": ("items left out one by one", "largest Pareto k (at most 0.7)"),
}


@dataclass(frozen=True, eq=False)
class CheckResult:
    """What the checks of a fit found.

    Attributes
    ----------
    table
        One row per check and slice: ``check``, ``slice``, ``statistic``, ``p_value`` (NaN where a
        number is judged by a fixed bound) and ``verdict``: ``"fail"`` where p < .01 after
        Holm-Bonferroni over the table, ``"look"`` where p < .05 by itself, else ``"ok"``.
        The statistic of ``PIT`` is the largest difference between the ECDF of the transformed
        outcomes and the uniform cdf; of ``dispersion`` and ``zero counts`` observed over predicted.
    data
        `xarray.DataTree` on a random subset of the items, for ArviZ's own functions: groups
        ``posterior``, ``posterior_predictive``, ``observed_data``, ``log_likelihood`` (each with
        ``count`` or ``value``, dim ``item``) and ``constant_data``; and the group ``pit`` with the
        ECDFs of all items, by slice, less the uniform cdf.
    advice
        What the findings mean and what to try next, in plain sentences.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> frame = soc.simulation.s1(2000, seed=0)
    >>> items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    >>> fit = soc.fit(soc.summarize(items, progress=False), progress=False)
    >>> result = soc.check(fit, items, progress=False)
    >>> result.advice
    ('Nothing speaks against the model on these items.',)
    """

    table: pd.DataFrame
    data: xr.DataTree
    advice: tuple[str, ...]

    def __repr__(self) -> str:
        counts = self.table["verdict"].value_counts()
        head = ", ".join(f"{counts.get(v, 0)} {v}" for v in ("ok", "look", "fail"))
        lines = [f"<soc_pymc.CheckResult: {head}>"]
        odd = self.table[self.table["verdict"] != "ok"]
        for row in odd.head(_SHOWN).to_dict("records"):
            p = "" if np.isnan(row["p_value"]) else f"   p = {row['p_value']:.1g}"
            what, unit = _WORDS[row["check"]]
            number = f"{unit} {row['statistic']:.3g}"
            lines.append(f"  {row['verdict']}: {what}, {row['slice']}: {number}{p}")
        if len(odd) > _SHOWN:
            lines.append(f"  and {len(odd) - _SHOWN} more in .table")
        return "\n".join([*lines, *(f"- {sentence}" for sentence in self.advice)])


def check(
    fit: Fit,
    items: Items | Statistics,
    *,
    by: str | Sequence[str] = (),
    seed: int = 0,
    subset: int = 5000,
    progress: bool = True,
) -> CheckResult:
    """Test whether the outcomes look like those that the fitted model makes.

    Every item's count or value is put through the cdf of its predictive distribution, averaged over
    the curves' uncertainty; if the model is right the results are uniform, overall and in every
    slice: fifths of the score and of the exposure or noise sd, items with an exposure of 50 and
    more, and the levels of the items' group and of the columns `by`. Summaries (dispersion; of
    counts also the number of zeros) are compared with replicated outcomes, and the quality of the
    inference itself is reported.

    Parameters
    ----------
    fit
        The fit.
    items
        Items to check it on: those that made it, or better others. On the items that made it the
        tests are conservative. Or statistics with joint cells, ``summarize(items, joint=True)``, of
        any number of items: PIT and leave-one-out of all of them, at the precision of the cells.
    by
        Further columns of the items' table to slice on; up to 20 levels of each, the most frequent.
    seed
        Seed of the randomised PIT, the replicates and the subset.
    subset
        Number of random items in ``data``.
    progress
        Whether long work shows its progress.

    Raises
    ------
    ItemsError
        If the items are not valid or not of the fit's kind, or a column is missing.
    FitError
        If a score has no place on the fit's axis, or `subset` is not positive.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> frame = soc.simulation.s1(2000, seed=0)
    >>> items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    >>> fit = soc.fit(soc.summarize(items), progress=False)
    >>> result = soc.check(fit, items, progress=False)
    >>> "fail" in set(result.table["verdict"])
    False
    """
    if subset < 1:
        raise FitError(f"subset={subset} must be at least 1")
    names = [by] if isinstance(by, str) else list(by)
    if isinstance(items, Statistics):
        if names:
            raise FitError("by= slices items, and statistics have no such columns: give the items")
        return _check_cells(fit, items, seed, progress)
    law = law_of(fit)
    own = items.roles.get("group")
    names = list(dict.fromkeys([*names, *([own] if own else [])]))
    columns, labels = read_items(fit, law, items, names, progress)
    rngs = [np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(2)]
    below, upto = predictive_cdf(law, columns, progress=progress)
    pit = randomised_pit(below, upto, rngs[0])
    n = len(pit)
    masks = {
        name: mask
        for name, mask in [*slices(law, columns), *_levels(labels)]
        if mask.sum() >= min(LEAST, n)
    }
    tests = {name: uniformity(pit[mask]) for name, mask in masks.items()}
    rows: list[tuple[str, str, float, float, str]] = [
        ("PIT", name, test.distance, test.p_value, "") for name, test in tests.items()
    ]
    for summary in predictive_tests(fit, columns, seed=seed, progress=progress):
        rows.append((summary.name, "all items", summary.ratio, summary.p_value, ""))
    table = _table(rows, fit)
    with phase("draws for ArviZ", enabled=progress):
        at = np.sort(rngs[1].choice(n, min(subset, n), replace=False))
        groups = arviz_groups(fit, columns, at, rngs[1])
    groups["pit"] = _pit_group(below, upto, pit, masks, tests)
    advice = (*advise(table, fit, law, n, names), *_cut_levels(labels))
    return CheckResult(table, xr.DataTree.from_dict(groups), advice)


def _table(rows: list[tuple[str, str, float, float, str]], fit: Fit) -> pd.DataFrame:
    """The table of findings, with those on the inference and all verdicts."""
    for number in quality(fit.status):
        rows.append((number.name, "inference", number.value, np.nan, number.verdict))
    table = pd.DataFrame(rows, columns=["check", "slice", "statistic", "p_value", "verdict"])
    table["verdict"] = _verdicts(table)
    return table


def _check_cells(fit: Fit, stats: Statistics, seed: int, progress: bool) -> CheckResult:
    """The checks that statistics allow."""
    cells = make_cells(fit, stats)
    found = cell_pit(fit, cells, np.random.default_rng(seed), progress)
    kept = {name: f for name, f in found.items() if f[2] >= min(LEAST, stats.n_items)}
    rows: list[tuple[str, str, float, float, str]] = [
        ("PIT", name, test.distance, test.p_value, "") for name, (_, _, _, test) in kept.items()
    ]
    loo = None if fit.one_draw else loo_cells(fit, cells, progress)
    if loo is not None:
        verdict = "ok" if loo.pareto_k <= PARETO_K else "look"
        rows.append(("leave-one-out", "all items", loo.pareto_k, np.nan, verdict))
    table = _table(rows, fit)
    pit = {
        "randomised": (("slice", "u"), np.array([f[0] - GRID for f in kept.values()])),
        "averaged": (("slice", "u"), np.array([f[1] - GRID for f in kept.values()])),
        "n_items": ("slice", [f[2] for f in kept.values()]),
        "p_value": ("slice", [f[3].p_value for f in kept.values()]),
    }
    groups = {
        "posterior": fit.data["posterior"].to_dataset(),
        "pit": xr.Dataset(pit, {"slice": list(kept), "u": GRID}),
    }
    if loo is not None:
        groups["loo"] = xr.Dataset({name: ((), getattr(loo, name)) for name in _LOO})
    advice = tuple(advise(table, fit, law_of(fit), stats.n_items, [cells.by] if cells.by else []))
    return CheckResult(table, xr.DataTree.from_dict(groups), advice)


def read_items(
    fit: Fit, law: Law, items: Items, by: Sequence[str], progress: bool
) -> tuple[Columns, dict[str, pd.Series]]:
    """Columns of all items that a fit needs, validated, and the columns to slice on."""
    import pyarrow as pa

    roles = law_roles(fit, law, items)
    scan(items, progress=progress)
    names = list(dict.fromkeys([*roles.values(), *by]))
    parts = list(batches(open_table(items.source, names), names))
    table = pa.Table.from_batches(parts)
    return columns_of(table, roles), {name: table[name].to_pandas() for name in by}


def _levels(labels: Mapping[str, pd.Series]) -> Iterator[tuple[str, Mask]]:
    """The most frequent levels of each column as slices; missing values are a level."""
    for column, values in labels.items():
        codes, levels = pd.factorize(values, use_na_sentinel=False)
        frequency = np.bincount(codes, minlength=len(levels))
        for code in np.argsort(-frequency, kind="stable")[:_LEVELS]:
            level = levels[code]
            yield f"{column} = {'missing' if pd.isna(level) else level}", codes == code


def _cut_levels(labels: Mapping[str, pd.Series]) -> Iterator[str]:
    for column, values in labels.items():
        number = values.nunique(dropna=False)
        if number > _LEVELS:
            yield (
                f"Column {column!r} has {number:,} levels: only the {_LEVELS} most frequent were "
                "checked."
            )


def holm(p_value: Floats) -> Floats:
    """P-values adjusted by Holm's step-down rule; NaN stays NaN and does not count.

    Examples
    --------
    >>> import numpy as np
    >>> holm(np.array([0.01, np.nan, 0.4]))
    array([0.02,  nan, 0.4 ])
    """
    adjusted = np.full(len(p_value), np.nan)
    known = np.flatnonzero(~np.isnan(p_value))
    order = known[np.argsort(p_value[known])]
    factor = np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(p_value[order] * factor))
    return adjusted


def _verdicts(table: pd.DataFrame) -> list[str]:
    p_value = table["p_value"].to_numpy(dtype=float)
    verdicts = []
    for own, p, corrected in zip(table["verdict"], p_value, holm(p_value), strict=True):
        if np.isnan(p):
            verdicts.append(own)
        else:
            verdicts.append("fail" if corrected < _FAIL else "look" if p < _LOOK else "ok")
    return verdicts


def arviz_groups(
    fit: Fit, columns: Columns, at: NDArray[np.int64], rng: np.random.Generator
) -> dict[str, xr.Dataset]:
    """Groups for ArviZ on the items `at` and at most 1,000 draws."""
    few = thin(fit, _DRAWS)
    law, own = law_of(few), select(columns, at)
    posterior = few.data["posterior"].to_dataset()
    shape = (posterior.sizes["chain"], posterior.sizes["draw"], len(at))
    dims = ("chain", "draw", "item")
    coords = {"chain": posterior["chain"], "draw": posterior["draw"], "item": at}
    kind = np.int64 if law.discrete else np.float64
    new = law.simulate(own, rng).astype(kind).reshape(shape)
    log_density = law.log_density(own).reshape(shape)
    item, name = {"item": at}, law.outcome
    known = {role: ("item", own[role]) for role in ("score", law.size)}
    return {
        "posterior": posterior,
        "posterior_predictive": xr.Dataset({name: (dims, new)}, coords),
        "log_likelihood": xr.Dataset({name: (dims, log_density)}, coords),
        "observed_data": xr.Dataset({name: ("item", own[name].astype(kind))}, item),
        "constant_data": xr.Dataset(known, item),
    }


def _pit_group(
    below: Floats,
    upto: Floats,
    pit: Floats,
    masks: Mapping[str, Mask],
    tests: Mapping[str, Uniformity],
) -> xr.Dataset:
    """ECDFs of the PIT less the uniform cdf, by slice: the pictures need nothing else."""
    randomised = [pit_ecdf(pit[mask]) - GRID for mask in masks.values()]
    averaged = [mean_pit_ecdf(below[mask], upto[mask]) - GRID for mask in masks.values()]
    return xr.Dataset(
        {
            "randomised": (("slice", "u"), np.array(randomised)),
            "averaged": (("slice", "u"), np.array(averaged)),
            "n_items": ("slice", [int(mask.sum()) for mask in masks.values()]),
            "p_value": ("slice", [tests[name].p_value for name in masks]),
        },
        {"slice": list(masks), "u": GRID},
    )
