"""`check`: does the model fit these outcomes, and what to do if not."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from .._lib.arguments import PROGRESS, SEED, A, Whole, checked, names_of
from .._lib.arrays import Floats, Ints
from .._lib.errors import FitError, ItemsError
from .._lib.progress import phase
from .._lib.threads import one_blas_thread
from ..data.groups import group_roles
from ..data.items import ANY_ITEMS, Items
from ..data.statistics import Statistics
from ..data.summaries import totals_of
from ..families.family import family_of
from ..families.outcomes import Outcome
from ..families.row_sums import MEAN_ONLY
from ..inference.results import PARETO_K, Fit, Status
from ..posterior.interface import Columns, Posterior, select
from ..posterior.item_columns import read_items
from ..posterior.predictive import posterior_of
from .cells import cell_pit, make_cells
from .curve_error import (
    curve_shifts,
    distance_p_value,
    judged,
    replicated_distances,
    together,
)
from .findings import TOGETHER, advise
from .leave_one_out import elpd_record, leave_cells_out, leave_items_out
from .predictive import (
    LEAST,
    SlicePit,
    column_slices,
    cut_columns,
    pit_by_score,
    pit_dataset,
    predictive_cdf,
    predictive_tests,
    randomised_pit,
    slice_pit,
    slices,
    thin,
    uniformity,
)
from .results import FAIL, OK, VERDICTS, WARN, WARNS, Result, result_table, with_verdicts

Mask = NDArray[np.bool_]
Finding = dict[str, Any]
"""A row of the table: a verdict where there is no p-value, else that follows from all tests."""

FIT = A(Fit, "a fit, from soc.fit or soc.load_fit")
ITEMS_OR_STATISTICS = A(Items | Statistics, f"{ANY_ITEMS}, or their statistics")

DRAWS = 1000  # draws in the tree for ArviZ
_DOUBTED, _WRONG = 2000, 0.1  # items whose intervals are judged, and how wrong they may be
_NARROW = 0.5  # how much too narrow bands of curves may be
_LOO = ("elpd", "standard_error", "p_loo", "pareto_k")
_ESS_FRACTION = 0.1


@dataclass(frozen=True, eq=False, repr=False)
class CheckResult(Result):
    """What the checks of a fit found.

    Attributes
    ----------
    table
        One row per check and slice: ``what`` was checked, ``where``, on how many items ``n``, a
        ``value``, its ``p`` (NaN where the value is judged by a fixed bound) and ``verdict``:
        ``"fail"`` where p < 0.01 after Holm-Bonferroni over the table, ``"warn"`` where p < 0.05 by
        itself, else ``"ok"``. Values have no interval: ``low`` and ``high`` are NaN.
        The value of ``PIT`` and ``LOO-PIT`` is the largest difference between the ECDF of the
        transformed outcomes and the uniform cdf, and so of ``PIT of slices``, which tests the
        slices by one quantity together (Fisher's method); of ``dispersion`` and ``zero counts``
        (``zero successes``) observed over predicted; of ``noise`` and ``clusters`` how many times
        as wide intervals of items and bands of curves should be; of ``leave-one-out`` the largest
        Pareto k. ``converged``, ``pareto_k`` and ``ess_fraction`` are those of `Status`.
    data
        `xarray.DataTree` on a random subset of the items, for ArviZ's own functions: groups
        ``posterior``, ``posterior_predictive``, ``observed_data``, ``log_likelihood``,
        ``pit_values`` and ``loo_pit`` (each with ``count`` or ``value``, dim ``item``) and
        ``constant_data``; the group ``pit`` with the ECDFs of all items, by slice, minus the
        uniform cdf; and ``pit_by_score`` with their ECDFs in 20 bins of the score. ``pit_values``
        are randomised and exact, ``loo_pit`` the same with each item left out. Of checks on
        statistics, which know no items: ``posterior``, ``pit``, ``pit_by_score`` and ``loo``.
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
    >>> result = soc.check(fit, items, subset=200)
    >>> list(result.table.columns)
    ['what', 'where', 'n', 'value', 'low', 'high', 'p', 'verdict']
    """

    elpd: Any = None

    rows: ClassVar[int] = 5

    def _repr_html_(self) -> str:
        from .._report.pictures import picture_of
        from ..plots.pit import plot_pit

        picture = picture_of(plot_pit, self, height=3.2)
        image = f'<img src="{picture.source}" width="{picture.width}" alt="PIT of all items">'
        return super()._repr_html_() + image


@checked(
    fit=FIT,
    items=A(ITEMS_OR_STATISTICS.types, ITEMS_OR_STATISTICS.wanted, ItemsError),
    by=names_of,
    seed=SEED,
    subset=Whole(1),
    progress=PROGRESS,
)
@one_blas_thread
def check(
    fit: Fit,
    items: Items | Statistics,
    *,
    by: str | Sequence[str] = (),
    seed: int = 0,
    subset: int = 5000,
    progress: bool | None = None,
) -> CheckResult:
    """Test whether the outcomes look like those that the fitted model makes.

    Every item's outcome is put through the cdf of its predictive distribution, averaged over the
    curves' uncertainty. If the model is right the results are uniform, except for the error of the
    curves. All items share it, and the tests allow for it. They look at all items and at slices:
    fifths of the score and of the exposure (noise sd, trials), items with an exposure of 50 and
    more, scores that many items share, and the levels of the items' group and of the columns `by`.
    Summaries (dispersion; of counts and successes also the number of zeros) are compared with
    replicated outcomes, random items are left out one by one, and the quality of the inference
    itself is reported.

    Parameters
    ----------
    fit
        The fit.
    items
        Items to check it on: those that made it (tests are then conservative), or better others. Or
        statistics with joint cells, which `summarize` keeps by default, of any number of items: PIT
        and leave-one-out of all of them, at the precision of the cells.
    by
        Further columns of the items' table to slice on: numbers and dates of more than 20 distinct
        values by fifths, others by level, the 20 most frequent. Missing values are the level
        ``missing``.
    subset
        Number of random items in ``data``, which are also those left out.
    seed, progress
        Seed of the randomised PIT, the replicates and the subset; whether to show progress.

    Returns
    -------
    CheckResult
        Its ``table`` has a verdict for each check and slice.

    Raises
    ------
    ItemsError
        If the items are not valid or not of the fit's kind, or a column is missing.
    FitError
        If a score cannot be put on the fit's axis, or `subset` is not positive.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> result = soc.check(fit, items, subset=200)
    >>> "fail" in set(result.table["verdict"])
    False
    """
    if fit.mean_only:
        raise FitError(f"soc.check needs the variance of theta: {MEAN_ONLY}")
    if isinstance(items, Statistics):
        if by:
            raise FitError("by= slices items, and statistics have no such columns: give the items")
        return _check_cells(fit, items, seed, progress)
    posterior = posterior_of(fit)
    outcome = posterior.outcome
    names = list(dict.fromkeys([*by, *group_roles(items.roles).values()]))
    columns, labels = read_items(fit, posterior, items, names, progress)
    rngs = [np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(3)]
    below, upto = predictive_cdf(posterior, columns, progress=progress)
    pit = randomised_pit(below, upto, rngs[0])
    n = len(pit)
    masks = _masks(fit, columns, labels, items.roles)
    shifts = curve_shifts(fit, columns, list(masks.values()), rngs[2])
    replicated = replicated_distances(shifts, [int(mask.sum()) for mask in masks.values()], rngs[2])
    found = {name: slice_pit(below, upto, pit, mask) for name, mask in masks.items()}
    found = judged(found, replicated)
    rows = _pit_findings(found, replicated)
    summaries = predictive_tests(fit, columns, seed=seed, progress=progress)
    rows += [_row(each.name, "all items", each.ratio, each.p_value) for each in summaries]
    tight = any(each.ratio < 1 and each.p_value < WARNS for each in summaries)
    if outcome.forms.doubtful(columns[outcome.observed], columns[outcome.size], tight):
        rows.append(_noise(posterior, columns, tight))
    with phase("draws for ArviZ, items left out", enabled=progress):
        at = np.sort(rngs[1].choice(n, min(subset, n), replace=False))
        groups = arviz_groups(fit, columns, at, rngs[1])
        groups["pit_values"] = _item_values(outcome, pit[at], at)
        # draws that were widened for clusters are no posterior from which to leave an item out
        if not fit.one_draw and not fit.widened:
            where = "all items" if len(at) == n else f"{len(at):,} random items"
            ends = below[at], upto[at], pit[at]
            strayed = replicated_distances(shifts[:, :1], [len(at)], rngs[2])[:, 0]
            left, loo_pit = _leave_out(fit, select(columns, at), where, ends, groups, strayed)
            rows += left
            groups["loo_pit"] = _item_values(outcome, loo_pit, at)
    if not fit.one_draw and (fit.widened or items.cluster is not None):
        rows.append(cluster_finding(fit, items))
    table = _table(rows, fit, n)
    groups["pit"] = pit_dataset(found)
    groups["pit_by_score"] = pit_by_score(columns["score"], pit)
    advice = (*advise(table, fit, outcome, n, names), *cut_columns(labels))
    return CheckResult(table, xr.DataTree.from_dict(groups), advice, title_of(table, n))


def _check_cells(fit: Fit, stats: Statistics, seed: int, progress: bool | None) -> CheckResult:
    """The checks that statistics allow."""
    cells = make_cells(fit, stats)
    found, replicated, by_score = cell_pit(fit, cells, np.random.default_rng(seed), progress)
    rows = _pit_findings(found, replicated)
    groups = {"posterior": fit.data["posterior"].to_dataset(), "pit": pit_dataset(found)}
    groups["pit_by_score"] = by_score
    elpd = None
    if not fit.one_draw:
        loo = leave_cells_out(fit, cells, progress)
        if not fit.widened:
            rows.append(_loo_finding("all items", loo.pareto_k, stats.n_items))
        groups["loo"] = xr.Dataset({name: ((), getattr(loo, name)) for name in _LOO})
        elpd = elpd_record(loo, cells.n)
    posterior = posterior_of(fit)
    outcome = posterior.outcome
    if outcome.forms.doubt(stats.table):
        rows.append(_noise(posterior, cells.columns))
    if not fit.one_draw and (fit.widened or stats.blocks):
        rows.append(cluster_finding(fit, stats))
    table = _table(rows, fit, stats.n_items)
    advice = advise(table, fit, outcome, stats.n_items, list(cells.levels))
    title = title_of(table, stats.n_items)
    return CheckResult(table, xr.DataTree.from_dict(groups), tuple(advice), title, elpd)


def title_of(table: pd.DataFrame, n_items: int) -> str:
    """Numbers of items and verdicts."""
    counts = table["verdict"].value_counts()
    return f"check: {n_items:,} items, " + ", ".join(f"{counts.get(v, 0)} {v}" for v in VERDICTS)


# --- findings ------------------------------------------------------------------------------------


def _pit_findings(found: Mapping[str, SlicePit], replicated: Floats) -> list[Finding]:
    rows = [
        _row("PIT", name, pit.test.distance, pit.test.p_value, n=pit.n_items)
        for name, pit in found.items()
    ]
    tests = together(found, replicated)
    return rows + [_row(TOGETHER, name, t.distance, t.p_value) for name, t in tests.items()]


def _row(
    what: str, where: str, value: float, p: float = np.nan, verdict: str = "", n: int | None = None
) -> Finding:
    return {"what": what, "where": where, "n": n, "value": value, "p": p, "verdict": verdict}


def _noise(posterior: Posterior, columns: Columns, tight: bool = False) -> Finding:
    """How wide the intervals of typical items would be under the noise that is in doubt."""
    outcome, step = posterior.outcome, max(1, len(columns["score"]) // _DOUBTED)
    some = select(columns, slice(None, None, step))
    size = some[outcome.size]
    curves = posterior.curves(some["score"], some.get("group"), size)
    mean, variance = (curves[name].mean(axis=0) for name in ("mean", "variance"))
    width = float(np.median(outcome.forms.other_width(size, mean, variance)))
    verdict = _of_width(width, _WRONG)
    return _row("noise", "all items", width, verdict=WARN if tight and verdict == OK else verdict)


def _of_width(factor: float, most: float) -> str:
    """Verdict on widths that should be larger or smaller by a factor."""
    off = abs(np.log(factor))
    return FAIL if off > np.log1p(most) else WARN if off > np.log1p(most / 2) else OK


def cluster_finding(fit: Fit, items: Items | Statistics) -> Finding:
    """How much wider clusters make bands, and whether they are."""
    from ..inference.clusters import cluster_factor  # which loads PyMC

    if not fit.widened and not isinstance(items, Statistics):
        items = totals_of(items, folds=0, on_leakage="ignore", progress=False)
    factor = cluster_factor(fit, items)
    verdict = OK if fit.widened else _of_width(factor, _NARROW)
    return _row("clusters", "all items", factor, verdict=verdict)


def _loo_finding(where: str, pareto_k: float, n: int) -> Finding:
    verdict = OK if pareto_k <= PARETO_K else WARN
    return _row("leave-one-out", where, pareto_k, verdict=verdict, n=n)


def _leave_out(
    fit: Fit,
    columns: Columns,
    where: str,
    pits: tuple[Floats, Floats, Floats],
    groups: Mapping[str, xr.Dataset],
    strayed: Floats,
) -> tuple[list[Finding], Floats]:
    """Findings on items left out one by one, and their PIT; replicates of its distance."""
    below, upto, pit = pits
    few = posterior_of(thin(fit, DRAWS))
    observed = few.outcome.observed
    log_density = groups["log_likelihood"][observed].to_numpy().reshape(-1, len(pit))
    left = leave_items_out(few, columns, log_density, below, upto)
    width = upto - below
    share = np.divide(pit - below, width, out=np.zeros(len(pit)), where=width > 0)
    own = left.below + share * (left.upto - left.below)
    distance = uniformity(own).distance
    p = distance_p_value(distance, len(own), strayed)
    loo_pit = _row("LOO-PIT", where, distance, p, n=len(own))
    return [loo_pit, _loo_finding(where, left.pareto_k, len(own))], own


def quality(status: Status) -> list[Finding]:
    """Whether the posterior itself is to be trusted, by what the fit's own status says."""
    k, share = status.pareto_k, status.ess_fraction
    found = [
        ("converged", float(status.converged), status.converged, FAIL),
        ("pareto_k", k, k is not None and k <= PARETO_K, FAIL),
        ("ess_fraction", share, share is not None and share >= _ESS_FRACTION, WARN),
    ]
    return [
        _row(name, "inference", value, verdict=OK if good else bad)
        for name, value, good, bad in found
        if value is not None
    ]


def _table(rows: list[Finding], fit: Fit, n_items: int) -> pd.DataFrame:
    """The table of findings, with those on the inference and all verdicts."""
    table = result_table([*rows, *quality(fit.status)])
    table.loc[table["where"] == "all items", "n"] = n_items
    return with_verdicts(table)


# --- slices and data -----------------------------------------------------------------------------


def _masks(
    fit: Fit, columns: Columns, labels: Mapping[str, pd.Series], roles: Mapping[str, str]
) -> dict[str, Mask]:
    """All slices of enough items; a column that merely bears a role's name is called a column."""
    n, outcome = len(columns["score"]), family_of(fit.prior).outcome
    taken = {"score": roles["score"], outcome.words.size: roles[outcome.size]}
    named = {
        f"column {name}" if taken.get(name, name) != name else name: values
        for name, values in labels.items()
    }
    found = dict([*slices(outcome, columns, fit.atoms), *column_slices(named)])
    return {name: mask for name, mask in found.items() if mask.sum() >= min(LEAST, n)}


def _item_values(outcome: Outcome, values: Floats, at: Ints) -> xr.Dataset:
    return xr.Dataset({outcome.observed: ("item", values)}, {"item": at})


def arviz_groups(
    fit: Fit, columns: Columns, at: Ints, rng: np.random.Generator
) -> dict[str, xr.Dataset]:
    """Groups for ArviZ on the items `at` and at most 1,000 draws."""
    few = thin(fit, DRAWS)
    posterior, own = posterior_of(few), select(columns, at)
    outcome, draws = posterior.outcome, few.data["posterior"].to_dataset()
    coords = {"chain": draws["chain"], "draw": draws["draw"], "item": at}
    known = {role: ("item", own[role]) for role in ("score", outcome.size)}

    def by_draw(values: NDArray[Any]) -> xr.Dataset:
        shape = (draws.sizes["chain"], draws.sizes["draw"], len(at))
        return xr.Dataset({outcome.observed: (tuple(coords), values.reshape(shape))}, coords)

    return {
        "posterior": draws,
        "posterior_predictive": by_draw(posterior.simulate(own, rng).astype(outcome.dtype)),
        "log_likelihood": by_draw(posterior.log_density(own)),
        "observed_data": _item_values(outcome, own[outcome.observed].astype(outcome.dtype), at),
        "constant_data": xr.Dataset(known, {"item": at}),
    }
