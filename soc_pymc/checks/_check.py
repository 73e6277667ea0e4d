"""`check`: does the model fit these outcomes, and what to do if not."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import xarray as xr
from scipy import stats

from .._lib.arguments import PROGRESS, SEED, Whole, checked, names_of
from .._lib.arrays import Bools, Floats, Ints
from .._lib.errors import FitError, ItemsError
from .._lib.progress import phase
from .._lib.threads import one_blas_thread
from ..data.groups import group_roles
from ..data.items import Items
from ..data.sources import open_table, word_columns
from ..data.statistics import Statistics
from ..families.row_sums import MEAN_ONLY
from ..inference.results import FIT, PARETO_K, Fit, Status
from ..posterior.item_columns import Columns, select
from ..posterior.predictive import posterior_of
from .advice import Gains, advise
from .comparison import LeaveOneOut, cdf_without, leave_one_out
from .observations import (
    ITEMS_OR_STATISTICS,
    Observations,
    clustered,
    even_draws,
    observe,
    parts,
    thin,
    totals_without_folds,
)
from .pit import (
    ALL,
    LEAST,
    binned_dataset,
    column_slices,
    cut_columns,
    judged,
    pit_findings,
    pit_tests,
    replicated_distances,
    slice_pits,
    slices,
    together,
)
from .results import (
    FAIL,
    OK,
    VERDICTS,
    WARN,
    WARNS,
    Result,
    finding,
    result_table,
    two_sided,
    with_verdicts,
)

_DRAWS = 1000  # in the tree for ArviZ
_MOST_COLUMNS = 8  # most columns of a table that advice names unasked
_DOUBTED, _WRONG = 2000, 0.1  # items whose intervals are judged, and how wrong they may be
_NARROW = 0.5  # how much too narrow bands of curves may be
_ESS_FRACTION = 0.1
_ITEMS = 50_000  # most items replicated, a random subset: the tests are powerful by then
_CHUNK = 2_000
_REPLICATES = 100  # or a few more: as many of each draw
_MIDDLE = 20  # draws whose median is the middle of summaries
_OUTER = 20  # with fewer replicates than this beyond the observed value, their tail is fitted


@dataclass(frozen=True, eq=False, repr=False)
class CheckResult(Result):
    """Findings of the checks of a fit.

    Attributes
    ----------
    table
        One row per check and slice: ``what`` was checked, ``where``, on how many items ``n``, a
        ``value``, its ``p`` (NaN where a fixed bound judges the value) and ``verdict``: ``"fail"``
        where p < 0.01 after Holm-Bonferroni over the table, ``"warn"`` where p < 0.05 by itself,
        else ``"ok"``. The value of the PIT is the largest difference from the uniform cdf; of
        ``dispersion`` and ``zero counts`` observed over predicted; of ``noise`` and ``clusters``
        how many times as wide intervals and bands should be; of ``leave-one-out`` the largest
        Pareto k.
    data
        `xarray.DataTree`, of items on a random subset, for ArviZ's own functions: ``posterior``,
        ``posterior_predictive``, ``observed_data``, ``log_likelihood``, ``constant_data``, and
        ``pit_values`` and ``loo_pit``. Of all items, ``pit`` has the ECDFs by slice minus the
        uniform cdf, ``pit_by_score`` those in 20 bins of the score.
    advice
        What the findings mean and what to try next, in plain sentences.
    elpd
        ArviZ's record of leave-one-out of the subset, or of all items of statistics, for
        ``arviz.compare`` and ``arviz.plot_khat``. None for fits of one draw.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> list(soc.check(fit, items, subset=200).table.columns)
    ['what', 'where', 'n', 'value', 'low', 'high', 'p', 'verdict']
    """

    loo: LeaveOneOut | None = None

    rows: ClassVar[int] = 5

    @cached_property
    def elpd(self) -> Any:
        """See the class."""
        return self.loo and self.loo.record()

    def _repr_html_(self) -> str:
        from .._report.pictures import picture_of
        from ..plots.pit import plot_pit

        picture = picture_of(plot_pit, self, height=3.2)
        image = f'<img src="{picture.source}" width="{picture.width}" alt="PIT of all items">'
        return super()._repr_html_() + image


@checked(
    fit=FIT,
    items=ITEMS_OR_STATISTICS,
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

    Every item's outcome is put through the cdf of its predictive distribution. If the model is
    right the results are uniform, except for the error of the curves, which the tests allow for.
    Slices are fifths of the score and of the exposure (noise sd, trials), exposures of at least 50,
    scores that many items share, and levels of the items' groups and of the columns `by`.
    Dispersion and numbers of zeros are compared with replicated outcomes, and random items are left
    out one by one.

    Parameters
    ----------
    fit
        The fit.
    items
        Items to check it on: those that made it (tests are then conservative), or better others. Or
        statistics with joint cells, of any number of items: PIT and leave-one-out use all of them.
    by
        Further columns of the items' table to slice on: numbers and dates of more than 20 distinct
        values by fifths, others by level, the 20 most frequent. Missing values are a level.
    subset
        Number of random items in ``data``, which are also those left out.
    seed, progress
        Seed of all random choices; whether to show progress.

    Returns
    -------
    CheckResult
        Its ``table`` has a verdict for each check and slice.

    Raises
    ------
    ItemsError, FitError
        If the items are not valid or not of the fit's kind, or a column is missing.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> result = soc.check(fit, items, subset=200)
    >>> "fail" in set(result.table["verdict"])
    False
    """
    return checks_of(fit, items, by, seed, subset, progress)


def checks_of(
    fit: Fit,
    data: Items | Statistics,
    by: Sequence[str],
    seed: int,
    subset: int,
    progress: bool | None,
    all_items: Items | None = None,
) -> CheckResult:
    """Check a fit on `data`, some of `all_items`, which show the clusters."""
    if fit.mean_only:
        raise FitError(f"soc.check needs the variance of theta: {MEAN_ONLY}")
    if by and isinstance(data, Statistics):
        raise FitError("by= slices items, and statistics have no such columns: give the items")
    observed = observe(fit, data, [*by, *_label_columns(data, by)], progress)
    shown = {*by, *group_roles(observed.roles).values()}
    labels = {name: values for name, values in observed.labels.items() if name in shown}
    items = replace(observed, labels=labels)
    n, number = items.n, int(items.n.sum())
    seeds = np.random.SeedSequence(seed).spawn(4)
    rngs = [np.random.default_rng(s) for s in seeds]
    tests = pit_tests(fit, items, _masks(fit, items), rngs[0], progress)
    rows = [*pit_findings(tests.pits), *together(tests)]
    rows += _outcome_findings(fit, data, items.columns, np.random.default_rng(seed), progress)
    bins_rng = np.random.default_rng(seeds[0])  # bins together have the randomisation of all items
    groups = {"posterior": fit.data["posterior"].to_dataset(), "pit": tests.pits}
    groups["pit_by_score"] = binned_dataset(tests.ends, n, items.columns["score"], bins_rng)
    # draws that were widened for clusters are not a posterior that can leave an item out
    exact_draws = not (fit.one_draw or fit.widened)
    sample, where, thinned, loo = items, ALL, fit, None
    if not isinstance(data, Statistics):
        chosen = items.sample(subset, rngs[1])
        sample, thinned = items.rows(chosen), thin(fit, _DRAWS)
        if len(chosen) < number:
            where = f"{len(chosen):,} random items"
        with phase("draws for ArviZ", enabled=progress):
            ends = tests.ends[:, chosen]
            groups |= _arviz_groups(thinned, sample.columns, chosen, ends, rngs[1], exact_draws)
        if exact_draws:
            values = groups["loo_pit"][posterior_of(fit).outcome.observed].to_numpy()
            rows += _loo_pit(values, where, tests.shifts[:, :1], rngs[2])
    if not fit.one_draw:
        loo = leave_one_out(thinned, sample, progress)
        if exact_draws:
            k, left_out = loo.pareto_k, int(loo.n.sum())
            verdict = _judged(k, PARETO_K)
            rows.append(finding("leave-one-out", where, k, verdict=verdict, n=left_out))
        rows += _cluster_findings(fit, all_items or data)
    table = result_table([*rows, *_quality(fit.status)])
    table.loc[table["n"].isna() & (table["where"] == ALL), "n"] = number
    table = with_verdicts(table)
    counts = table["verdict"].value_counts()
    gains = Gains(fit, observed, np.random.default_rng(seeds[3]))
    advice = (*advise(table, fit, gains, number), *cut_columns(items.labels))
    title = f"check: {number:,} items, " + ", ".join(f"{counts.get(v, 0)} {v}" for v in VERDICTS)
    return CheckResult(table, xr.DataTree.from_dict(groups), advice, title, loo)


# --- findings ------------------------------------------------------------------------------------


def _label_columns(data: Items | Statistics, by: Sequence[str]) -> list[str]:
    """Columns of text, categories or truth values that have no role, for the advice."""
    if isinstance(data, Statistics):
        return []
    columns: list[str] = []
    for name in word_columns(data.source):
        if len(columns) < _MOST_COLUMNS and name not in {*by, *data.roles.values()}:
            with suppress(ItemsError):  # objects of several types
                open_table(data.source, [name])
                columns.append(name)
    return columns


def _masks(fit: Fit, items: Observations) -> dict[str, Bools]:
    """All slices of enough items; a column that merely bears a role's name is called a column."""
    outcome, n = posterior_of(fit).outcome, items.n
    roles = {"score": items.roles["score"], outcome.words.size: items.roles[outcome.size]}
    labels = {
        f"column {name}" if roles.get(name, name) != name else name: values
        for name, values in items.labels.items()
    }
    masks = dict([*slices(outcome, items.columns, fit.atoms, n), *column_slices(labels, n)])
    fewest = min(LEAST, int(n.sum()))
    return {name: mask for name, mask in masks.items() if n[mask].sum() >= fewest}


def _outcome_findings(
    fit: Fit,
    data: Items | Statistics,
    columns: Columns,
    rng: np.random.Generator,
    progress: bool | None,
) -> list[dict[str, Any]]:
    """Summaries of outcomes against replicates, of items; and doubts about the noise."""
    outcome = posterior_of(fit).outcome
    if isinstance(data, Statistics):
        return [_noise(fit, columns)] if outcome.forms.doubt(data.table) else []
    rows = predictive_tests(fit, columns, rng, progress)
    tight = any(row["value"] < 1 and row["p"] < WARNS for row in rows)
    if outcome.forms.doubtful(columns[outcome.observed], columns[outcome.size], tight):
        rows.append(_noise(fit, columns, tight))
    return rows


def predictive_tests(
    fit: Fit, columns: Columns, rng: np.random.Generator, progress: bool | None = None
) -> list[dict[str, Any]]:
    """Observed summaries of at most 50,000 items over the medians of their replicates."""
    posterior, draws_once = posterior_of(fit), even_draws(fit, _REPLICATES)
    outcome, middle = posterior.outcome, posterior_of(thin(fit, _MIDDLE))
    draws = np.resize(draws_once, -(-_REPLICATES // len(draws_once)) * len(draws_once))
    n, summaries = len(columns["score"]), outcome.forms.summaries
    if n > _ITEMS:
        columns, n = select(columns, np.sort(rng.choice(n, _ITEMS, replace=False))), _ITEMS
    sums = np.zeros((len(summaries), len(draws) + 1))  # the last is the observed one
    for rows in parts("predictive checks", n, _CHUNK, progress):
        part = select(columns, rows)
        size = part[outcome.size]
        # summaries are about the median curves: about its own draw, the outcomes of new items
        # would scatter more than replicates of that draw, as the draw is not their truth
        curves = middle.curves(part["score"], part.get("group"), size)
        moments = (np.median(curves[name], axis=0) for name in ("mean", "variance"))
        outcomes = np.vstack([posterior.simulate(part, rng, draws), part[outcome.observed]])
        centres = (size, *moments)
        sums += [summary(outcomes, *centres) for summary in summaries.values()]
    return [
        finding(name, ALL, _ratio(x[:-1], x[-1]), tail_probability(x[:-1] - x[-1]))
        for name, x in zip(summaries, sums, strict=True)
    ]


def _ratio(replicated: Floats, observed: float) -> float:
    # widened curves have far draws; of rare zeros the median is 0
    expected = float(np.median(replicated) or np.mean(replicated))
    return observed / expected if expected > 0 else 1.0 if observed == 0 else float("inf")


def tail_probability(excess: Floats) -> float:
    """Two-sided p-value of 0 among replicated minus observed summaries, ties counted half."""
    tail, spread = float(two_sided(excess)) / 2.0, float(np.std(excess))
    if tail * len(excess) < _OUTER and spread > 0:
        curve = stats.pearson3(float(stats.skew(excess)), loc=float(np.mean(excess)), scale=spread)
        tail = min(float(curve.cdf(0.0)), float(curve.sf(0.0)))
    return min(1.0, 2.0 * tail)


def _judged(value: float, warn: float, fail: float = np.inf) -> str:
    """Verdict on a value that should not exceed either bound."""
    return OK if value <= warn else WARN if value <= fail else FAIL


def _noise(fit: Fit, columns: Columns, tight: bool = False) -> dict[str, Any]:
    """Factor by which intervals of typical items would widen under the noise that is in doubt."""
    posterior, step = posterior_of(fit), max(1, len(columns["score"]) // _DOUBTED)
    outcome, typical = posterior.outcome, select(columns, slice(None, None, step))
    size = typical[outcome.size]
    curves = posterior.curves(typical["score"], typical.get("group"), size)
    mean, variance = (curves[name].mean(axis=0) for name in ("mean", "variance"))
    y = typical[outcome.observed]
    width = float(np.median(outcome.forms.other_width(y, size, mean, variance)))
    warn = -1.0 if tight else np.log1p(_WRONG / 2)
    verdict = _judged(abs(np.log(width)), warn, np.log1p(_WRONG))
    return finding("noise", ALL, width, verdict=verdict)


def _cluster_findings(fit: Fit, data: Items | Statistics) -> list[dict[str, Any]]:
    """Factor by which clustering widens the bands, if the fit or the items have clusters."""
    from ..inference.clusters import cluster_factor  # which loads PyMC

    if not (fit.widened or clustered(data)):
        return []
    if not (fit.widened or isinstance(data, Statistics)):
        data = totals_without_folds(data, progress=False)
    factor = cluster_factor(fit, data)
    error = 0.0 if fit.widened else abs(np.log(factor))
    verdict = _judged(error, np.log1p(_NARROW / 2), np.log1p(_NARROW))
    n = data.n_items if isinstance(data, Statistics) else None
    return [finding("clusters", ALL, factor, verdict=verdict, n=n)]


def _quality(status: Status) -> list[dict[str, Any]]:
    """Findings on the inference itself, by the fit's status."""
    k, share = status.pareto_k, status.ess_fraction
    tests = [("converged", float(status.converged), _judged(-status.converged, -1, -1))]
    if k is not None:
        tests.append(("pareto_k", k, _judged(k, PARETO_K, PARETO_K)))
    if share is not None:
        tests.append(("ess_fraction", share, _judged(-share, -_ESS_FRACTION)))
    return [finding(name, "inference", value, verdict=verdict) for name, value, verdict in tests]


# --- a subset of the items, for ArviZ ------------------------------------------------------------


def _arviz_groups(
    fit: Fit,
    columns: Columns,
    item: Ints,
    ends: Floats,
    rng: np.random.Generator,
    exact_draws: bool,
) -> dict[str, xr.Dataset]:
    """Groups of some items, and their PIT; if draws are an honest posterior also left out."""
    posterior, draws = posterior_of(fit), fit.data["posterior"].to_dataset()
    outcome, coords = posterior.outcome, {"item": item}
    name, density, share = outcome.observed, posterior.log_density(columns), rng.random(len(item))
    values = {"pit_values": ends}
    if exact_draws:
        values["loo_pit"] = cdf_without(fit, columns, density, ends)
    by_item = {"observed_data": columns[name].astype(outcome.dtype)}
    by_item |= {pit: below + share * (upto - below) for pit, (below, upto) in values.items()}
    simulated = posterior.simulate(columns, rng).astype(outcome.dtype)
    by_draw = {"posterior_predictive": simulated, "log_likelihood": density}
    dims = {name: draws[name] for name in ("chain", "draw")} | coords
    shape = [len(values) for values in dims.values()]
    constants = {role: ("item", columns[role]) for role in ("score", outcome.size)}
    return {
        "posterior": draws,
        "constant_data": xr.Dataset(constants, coords),
        **{group: xr.Dataset({name: ("item", x)}, coords) for group, x in by_item.items()},
        **{
            group: xr.Dataset({name: (tuple(dims), x.reshape(shape))}, dims)
            for group, x in by_draw.items()
        },
    }


def _loo_pit(
    values: Floats, where: str, shift: Floats, rng: np.random.Generator
) -> list[dict[str, Any]]:
    """Test of the PIT of items left out, which share the error of the curves too."""
    n = np.ones(len(values), dtype=np.int64)
    pits = slice_pits(np.stack([values, values]), n, {where: n > 0}, rng)
    replicated = replicated_distances(shift, np.array([[float(len(n))]]), rng)
    return pit_findings(judged(pits, replicated), "LOO-PIT")
