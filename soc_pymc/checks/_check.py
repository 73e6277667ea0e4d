"""`check`: does the model fit these outcomes, and what to do if not."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from .._lib.arguments import instance, names_of, switch, whole
from .._lib.errors import FitError, ItemsError
from .._lib.progress import phase
from ..data.items import Items, NormalItems, PoissonItems
from ..data.statistics import Statistics
from ..inference.results import PARETO_K, Fit
from ..posterior.item_columns import read_items
from ..posterior.predictive import Columns, Posterior, posterior_of, select
from .advice import advise
from .cells import cell_pit, make_cells
from .columns import column_slices, cut_columns
from .leave_one_out import elpd_record, leave_items_out, loo_cells
from .pit import (
    GRID,
    LEAST,
    Uniformity,
    mean_pit_ecdf,
    pit_ecdf,
    predictive_cdf,
    randomised_pit,
    sizes,
    slices,
    uniformity,
)
from .predictive import predictive_tests, thin
from .variational import quality
from .wording import as_html, as_text

__all__ = ["CheckResult", "arviz_groups", "check", "holm"]

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

_FAIL, _LOOK = 0.01, 0.05
_DRAWS = 1000  # draws in the tree for ArviZ
_LOO = ("elpd", "standard_error", "p_loo", "pareto_k")


@dataclass(frozen=True, eq=False)
class CheckResult:
    """What the checks of a fit found.

    Attributes
    ----------
    table
        One row per check and slice: ``check``, ``slice``, ``statistic``, ``p_value`` (NaN where a
        number is judged by a fixed bound) and ``verdict``: ``"fail"`` where p < .01 after
        Holm-Bonferroni over the table, ``"look"`` where p < .05 by itself, else ``"ok"``.
        The statistic of ``PIT`` and ``LOO-PIT`` is the largest difference between the ECDF of the
        transformed outcomes and the uniform cdf; of ``dispersion`` and ``zero counts`` observed
        over predicted; of ``leave-one-out`` the largest Pareto k.
    data
        `xarray.DataTree` on a random subset of the items, for ArviZ's own functions: groups
        ``posterior``, ``posterior_predictive``, ``observed_data``, ``log_likelihood``,
        ``pit_values`` and ``loo_pit`` (each with ``count`` or ``value``, dim ``item``) and
        ``constant_data``; and the group ``pit`` with the ECDFs of all items, by slice, less the
        uniform cdf. ``pit_values`` are randomised and exact, ``loo_pit`` the same with each item
        left out. Of checks on statistics, which know no items: ``posterior``, ``pit`` and ``loo``.
    advice
        What the findings mean and what to try next, in plain sentences.
    elpd
        Leave-one-out of all items on cells, of checks on statistics: ArviZ's own record, for
        ``arviz.compare({"a": first.elpd, "b": second.elpd})`` and ``arviz.plot_khat``. Its sums
        are those of all items; of more than 200,000 its points are a share of every cell, and
        its ``elpd_loo_approx`` makes ArviZ's differences those of all. None for items
        (``arviz.loo(result.data)`` is that of the subset) and for fits of one draw.

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
    elpd: Any = None

    @property
    def _n_items(self) -> int:
        return int(self.data["pit"]["n_items"].sel(slice="all items"))

    def __repr__(self) -> str:
        return as_text(self.table, self.advice, self._n_items)

    def _repr_html_(self) -> str:
        return as_html(self.table, self.advice, self._n_items)


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
    counts also the number of zeros) are compared with replicated outcomes, random items are left
    out one by one, and the quality of the inference itself is reported.

    Parameters
    ----------
    fit
        The fit.
    items
        Items to check it on: those that made it, or better others. On the items that made it the
        tests are conservative. Or statistics with joint cells, ``summarize(items, joint=True)``, of
        any number of items: PIT and leave-one-out of all of them, at the precision of the cells.
    by
        Further columns of the items' table to slice on: numbers and dates of more than 20 distinct
        values by fifths, others by level, the 20 most frequent; missing values are a level.
    seed
        Seed of the randomised PIT, the replicates and the subset.
    subset
        Number of random items in ``data``, which are also those left out.
    progress
        Whether long work shows its progress.

    Returns
    -------
    CheckResult
        Its ``table`` has a verdict for each check and slice.

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
    instance(fit, "fit", Fit, "a fit, from soc.fit or soc.load_fit")
    whole(subset, "subset", 1)
    whole(seed, "seed", 0)
    switch(progress, "progress")
    names = names_of(by, "by")
    if isinstance(items, Statistics):
        if names:
            raise FitError("by= slices items, and statistics have no such columns: give the items")
        return _check_cells(fit, items, seed, progress)
    wanted = "soc.PoissonItems(...) or soc.NormalItems(...), or their statistics"
    instance(items, "items", PoissonItems | NormalItems, wanted, ItemsError)
    law = posterior_of(fit)
    own = items.roles.get("group")
    names = list(dict.fromkeys([*names, *([own] if own else [])]))
    columns, labels = read_items(fit, law, items, names, progress)
    rngs = [np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(2)]
    below, upto = predictive_cdf(law, columns, progress=progress)
    pit = randomised_pit(below, upto, rngs[0])
    n = len(pit)
    masks = _masks(law, columns, labels, items.roles)
    tests = {name: uniformity(pit[mask]) for name, mask in masks.items()}
    rows: list[tuple[str, str, float, float, str]] = [
        ("PIT", name, test.distance, test.p_value, "") for name, test in tests.items()
    ]
    for summary in predictive_tests(fit, columns, seed=seed, progress=progress):
        rows.append((summary.name, "all items", summary.ratio, summary.p_value, ""))
    with phase("draws for ArviZ, items left out", enabled=progress):
        at = np.sort(rngs[1].choice(n, min(subset, n), replace=False))
        groups = arviz_groups(fit, columns, at, rngs[1])
        groups["pit_values"] = _item_values(law, pit[at], at)
        if not fit.one_draw:
            where = "all items" if len(at) == n else f"{len(at):,} random items"
            found, groups["loo_pit"] = _leave_out(fit, columns, at, (below, upto, pit), groups)
            rows += [(name, where, number, p, v) for name, number, p, v in found]
    table = _table(rows, fit)
    groups["pit"] = _pit_group(below, upto, pit, masks, tests)
    advice = (*advise(table, fit, law, n, names), *cut_columns(labels))
    return CheckResult(table, xr.DataTree.from_dict(groups), advice)


def _leave_out(
    fit: Fit,
    columns: Columns,
    at: NDArray[np.int64],
    pits: tuple[Floats, Floats, Floats],
    groups: Mapping[str, xr.Dataset],
) -> tuple[list[tuple[str, float, float, str]], xr.Dataset]:
    """Findings on the items `at` left out one by one, and their PIT."""
    law = posterior_of(fit)
    below, upto, pit = (values[at] for values in pits)
    few = thin(fit, _DRAWS)
    log_density = groups["log_likelihood"][law.outcome.observed].to_numpy().reshape(-1, len(at))
    left = leave_items_out(few, select(columns, at), log_density, below, upto)
    width = upto - below
    share = np.divide(pit - below, width, out=np.zeros(len(at)), where=width > 0)
    own = left.below + share * (left.upto - left.below)
    test, good = uniformity(own), left.pareto_k <= PARETO_K
    rows = [
        ("LOO-PIT", test.distance, test.p_value, ""),
        ("leave-one-out", left.pareto_k, np.nan, "ok" if good else "look"),
    ]
    return rows, _item_values(law, own, at)


def _item_values(law: Posterior, values: Floats, at: NDArray[np.int64]) -> xr.Dataset:
    return xr.Dataset({law.outcome.observed: ("item", values)}, {"item": at})


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
    advice = tuple(
        advise(table, fit, posterior_of(fit), stats.n_items, [cells.by] if cells.by else [])
    )
    elpd = None if loo is None else elpd_record(loo, cells.n)
    return CheckResult(table, xr.DataTree.from_dict(groups), advice, elpd)


def _masks(
    law: Posterior, columns: Columns, labels: Mapping[str, pd.Series], roles: Mapping[str, str]
) -> dict[str, Mask]:
    """All slices of enough items; a column that merely bears a role's name is called a column."""
    n = len(columns["score"])
    taken = {"score": roles["score"], sizes(law): roles[law.outcome.size]}
    named = {
        f"column {name}" if taken.get(name, name) != name else name: values
        for name, values in labels.items()
    }
    found = dict([*slices(law, columns), *column_slices(named)])
    return {name: mask for name, mask in found.items() if mask.sum() >= min(LEAST, n)}


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
    law, own = posterior_of(few), select(columns, at)
    posterior = few.data["posterior"].to_dataset()
    shape = (posterior.sizes["chain"], posterior.sizes["draw"], len(at))
    dims = ("chain", "draw", "item")
    coords = {"chain": posterior["chain"], "draw": posterior["draw"], "item": at}
    kind = np.int64 if law.outcome.whole else np.float64
    new = law.simulate(own, rng).astype(kind).reshape(shape)
    log_density = law.log_density(own).reshape(shape)
    item, name = {"item": at}, law.outcome.observed
    known = {role: ("item", own[role]) for role in ("score", law.outcome.size)}
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
