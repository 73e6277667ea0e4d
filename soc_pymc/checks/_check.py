"""`check`: does the model fit these counts, and what to do if not."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from ..curves import curve_draws
from ..errors import FitError
from ..families import poisson_gamma
from ..items import PoissonItems
from ..progress import phase
from ..results import PARETO_K, Fit
from ..statistics import Statistics
from ..tables import batches, open_table, scan
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
from .predictive import predictive_tests, simulate_counts, thin
from .variational import quality

__all__ = ["CheckResult", "check", "holm"]

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

_FAIL, _LOOK = 0.01, 0.05
_LEVELS = 20  # levels of a user's column that get a slice of their own
_DRAWS = 1000  # draws in the tree for ArviZ
_SMALL = 0.01  # ECDF differences below this matter to few uses
_SHOWN = 12  # rows in the printed form
_WORDS = {  # what a check looks at, and what its statistic is, in print
    "PIT": ("distribution of counts (PIT)", "probabilities off by up to"),
    "dispersion": ("scatter of counts", "observed / predicted"),
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
        counts and the uniform cdf; of ``dispersion`` and ``zero counts`` observed over predicted.
    data
        `xarray.DataTree` on a random subset of the items, for ArviZ's own functions: groups
        ``posterior``, ``posterior_predictive``, ``observed_data``, ``log_likelihood`` (each with
        ``count``, dim ``item``) and ``constant_data``; and the group ``pit`` with the ECDFs of all
        items, by slice, less the uniform cdf.
    advice
        What the findings mean and what to try next, in plain sentences.
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
    items: PoissonItems | Statistics,
    *,
    by: str | Sequence[str] = (),
    seed: int = 0,
    subset: int = 5000,
    progress: bool = True,
) -> CheckResult:
    """Test whether the counts look like counts that the fitted model makes.

    Every item's count is put through the cdf of its predictive distribution, averaged over the
    curves' uncertainty; if the model is right the results are uniform, overall and in every slice:
    fifths of the score and of the exposure, items with an exposure of 50 and more, and the levels
    of the columns `by`. Two summaries (dispersion, number of zeros) are compared with replicated
    counts, and the quality of the inference itself is reported.

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
        If the items are not valid or a column is missing.
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
    columns = [by] if isinstance(by, str) else list(by)
    if isinstance(items, Statistics):
        if columns:
            raise FitError("by= slices items, and statistics have no such columns: give the items")
        return _check_cells(fit, items, seed, progress)
    score, count, exposure, labels = _read(items, columns, progress)
    rngs = [np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(2)]
    below, upto = predictive_cdf(fit, score, count, exposure, progress=progress)
    pit = randomised_pit(below, upto, rngs[0])
    masks = {
        name: mask
        for name, mask in [*slices(score, exposure), *_levels(labels)]
        if mask.sum() >= min(LEAST, len(count))
    }
    tests = {name: uniformity(pit[mask]) for name, mask in masks.items()}
    rows: list[tuple[str, str, float, float, str]] = [
        ("PIT", name, test.distance, test.p_value, "") for name, test in tests.items()
    ]
    for summary in predictive_tests(fit, score, count, exposure, seed=seed, progress=progress):
        rows.append((summary.name, "all items", summary.ratio, summary.p_value, ""))
    table = _table(rows, fit)
    with phase("draws for ArviZ", enabled=progress):
        groups = _arviz_groups(fit, score, count, exposure, subset, rngs[1])
    groups["pit"] = _pit_group(below, upto, pit, masks, tests)
    advice = (*_advice(table, len(count), columns), *_cut_levels(labels))
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
    loo = loo_cells(fit, cells, progress)
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
        "loo": xr.Dataset({name: ((), value) for name, value in asdict(loo).items()}),
    }
    advice = tuple(_advice(table, stats.n_items, []))
    return CheckResult(table, xr.DataTree.from_dict(groups), advice)


def _read(
    items: PoissonItems, by: Sequence[str], progress: bool
) -> tuple[Floats, Floats, Floats, dict[str, pd.Series]]:
    """Score, count and exposure of all items, validated, and the columns to slice on."""
    import pyarrow as pa

    scan(items, progress=progress)
    roles = [items.score, items.count, items.exposure]
    names = list(dict.fromkeys([*roles, *by]))
    parts = list(batches(open_table(items.source, names), names))
    table = pa.Table.from_batches(parts)
    numbers = [
        np.asarray(table[name].cast(pa.float64(), safe=False).to_numpy(), dtype=float)
        for name in roles
    ]
    labels = {name: table[name].to_pandas() for name in by}
    return numbers[0], numbers[1], numbers[2], labels


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


def _arviz_groups(
    fit: Fit,
    score: Floats,
    count: Floats,
    exposure: Floats,
    subset: int,
    rng: np.random.Generator,
) -> dict[str, xr.Dataset]:
    """Groups for ArviZ on a random subset of the items and at most 1,000 draws."""
    at = np.sort(rng.choice(len(count), min(subset, len(count)), replace=False))
    t, y, n = score[at], count[at], exposure[at]
    few = thin(fit, _DRAWS)
    posterior = few.data["posterior"].to_dataset()
    shape = (posterior.sizes["chain"], posterior.sizes["draw"], len(at))
    log_mean, log_cv2 = curve_draws(few, t)
    dims = ("chain", "draw", "item")
    coords = {"chain": posterior["chain"], "draw": posterior["draw"], "item": at}
    new = simulate_counts(n, log_mean, log_cv2, rng).astype(np.int64)
    log_pmf = poisson_gamma.log_pmf(y, n, log_mean, log_cv2)
    item = {"item": at}
    return {
        "posterior": posterior,
        "posterior_predictive": xr.Dataset({"count": (dims, new.reshape(shape))}, coords),
        "log_likelihood": xr.Dataset({"count": (dims, log_pmf.reshape(shape))}, coords),
        "observed_data": xr.Dataset({"count": ("item", y.astype(np.int64))}, item),
        "constant_data": xr.Dataset({"score": ("item", t), "exposure": ("item", n)}, item),
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


def _advice(table: pd.DataFrame, n_items: int, by: Sequence[str]) -> Iterator[str]:
    """What the verdicts mean, most serious first."""
    failed = table[table["verdict"] == "fail"]
    tested = table["p_value"].notna()
    if not failed.empty:
        yield from _inference_advice(failed)
        yield from _model_advice(failed[failed["p_value"].notna()], n_items, by)
    elif (table["verdict"] == "look").any():
        looks = int(((table["verdict"] == "look") & tested).sum())
        if looks:
            yield (
                f"{looks} of {int(tested.sum())} tests have p < .05, about "
                f"{0.05 * tested.sum():.1f} are expected by chance: nothing fails, but look at "
                "soc.plots.plot_pit(result)."
            )
    else:
        yield "Nothing speaks against the model on these items."
    if ((table["check"] == "ess_fraction") & (table["verdict"] == "look")).any():
        yield ("Few of the approximation's draws carry the weight: compare with method=soc.NUTS().")


def _inference_advice(failed: pd.DataFrame) -> Iterator[str]:
    if failed["check"].isin(["converged", "pareto_k"]).any():
        yield (
            "The inference is not to be trusted (fit.status.reason says why): fit again with "
            "method=soc.NUTS() before reading anything else here."
        )


def _model_advice(failed: pd.DataFrame, n_items: int, by: Sequence[str]) -> Iterator[str]:
    pit = failed[failed["check"] == "PIT"]
    named = pit["slice"]
    for ratio in failed.loc[failed["check"] == "dispersion", "statistic"]:
        side = "more" if ratio > 1 else "less"
        yield (
            f"Counts scatter {side} than the model says ({ratio:.3g} times): if these "
            "are not the items that made the fit, things have changed since: fit again; if they "
            "are, look which slices fail, and give the variance more knots, "
            "soc.Gamma(variance=soc.Spline(knots=40)), on more bins."
        )
    for ratio in failed.loc[failed["check"] == "zero counts", "statistic"]:
        side, what = "fewer", "slices that fail"
        if ratio > 1:
            side, what = "more", "two kinds of items under one score"
        yield (
            f"There are {side} zero counts than the model says ({ratio:.3g} times): theta given "
            f"the score is not Gamma near 0. Look for {what} and fit them apart."
        )
    if named.str.startswith("exposure").any():
        yield (
            "The fit is off at some exposures. If these items made the fit, exposure says "
            "something about theta that the score does not: give the score model the exposure as "
            "an input, or fit ranges of exposure apart."
        )
    if named.str.startswith("score").any():
        yield (
            "The fit is off by score: the curves are too stiff there. Use more bins in "
            "soc.summarize and more knots, soc.Gamma(mean=soc.Spline(knots=40), "
            "variance=soc.Spline(knots=40))."
        )
    for column in by:
        if named.str.startswith(f"{column} = ").any():
            yield (
                f"The fit is off in some levels of {column!r}: fit these levels apart, or give "
                "the score model this column."
            )
    if list(named) == ["all items"]:
        yield (
            "The fit is off overall: look at soc.plots.plot_curves(fit) and at "
            "soc.plots.plot_pit(result)."
        )
    if not pit.empty and n_items > 100_000 and float(pit["statistic"].max()) < _SMALL:
        yield (
            f"With {n_items:,} items the smallest departures show: no cumulative probability is "
            f"off by more than {pit['statistic'].max():.3f}, which may not matter to you."
        )
