"""How well outcomes held out from every item are predicted, as in the paper's Section 5.1."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from .._lib.arguments import instance, shown, whole
from .._lib.errors import FitError, ItemsError
from .._lib.progress import phase
from ..checks.predictive import GRID, LEAST, mean_pit_ecdf, pit_ecdf, randomised_pit, uniformity
from ..data.items import Items, PoissonItems
from ..inference.results import Fit, named_fits
from ..posterior.extrapolation import warn_of_far_scores
from ..posterior.item_columns import columns_of, posterior_roles
from ..posterior.predictive import Columns, Posterior, posterior_of, select
from ._given_score import given_score
from ._pit_histograms import pit_densities
from .baselines import BASELINES, fit_baselines
from .gains import gain_rows, normal_log_likelihood, poisson_log_likelihood, score_bins
from .thinning import Split, stream

__all__ = ["HeldOut", "held_out"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_CHUNK = 100_000  # items whose predictive distribution is evaluated between reports of progress
_CELLS = 20  # of a histogram of the PIT
_EXPOSED = 25.0  # exposure in the test part that tells something of an item (the paper's)
_NUMBERS = ("log_likelihood", "gain", "standard_error", "gain_percent", "gain_percent_se")


@dataclass(frozen=True, eq=False)
class HeldOut:
    """What `held_out` found.

    Attributes
    ----------
    table
        One row for each estimator over all items (``bin`` -1) and in each bin: ``estimator``
        (``"t"``, the baselines' names, ``"E(theta|t)"`` and ``"E(theta|t,y)"`` of each fit, with
        the fit's name before it where names were given), ``bin``, ``score`` (mean), ``items``;
        of the held-out part ``exposure`` and ``events`` (of values ``precision``, the sum of
        1 / noise_sd^2), ``log_likelihood``; ``gain`` in nats over t (or what `over` named, which
        then stands first), its ``standard_error`` over items; ``gain_percent`` of t's
        log-likelihood (of values: of t's squared error in noise sds, so that 100 is no error at
        all), and ``gain_percent_se``. Standard errors of a single item are NaN, and percentages of
        a likelihood of 0.
    data
        `xarray.DataTree`. Group ``gain``: the table's numbers with dims (estimator, bin). Group
        ``pit``, of the randomised PIT of held-out outcomes given t and the item's own training
        outcome: ``density`` (fit, slice, bin, p) of its histograms, ``n_items`` (slice, bin),
        ``p_value_by_bin`` (fit, slice, bin); over all bins ``distance`` and ``p_value`` (fit,
        slice) of the Kolmogorov-Smirnov test, and ECDFs less the uniform cdf, ``randomised`` and
        ``averaged`` (over the randomisation), with dims (fit, slice, u). The slices are all items
        and, of counts, those with an exposure of at least 25 in the test part. Of a bin without
        items of a slice the density is NaN, and tests are where there are too few.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> items = soc.PoissonItems(
    ...     soc.simulation.s1(2000), score="score", count="count", exposure="exposure")
    >>> split = soc.evaluate.split_items(items)
    >>> fit = soc.fit(soc.summarize(split.train, progress=False), progress=False)
    >>> found = soc.evaluate.held_out(fit, split, baselines=(), bins=4, progress=False)
    >>> found.table[found.table["bin"] == -1]["estimator"].to_list()
    ['t', 'E(theta|t)', 'E(theta|t,y)']
    >>> dict(found.data["pit"]["density"].sizes)
    {'fit': 1, 'slice': 2, 'bin': 4, 'p': 20}
    """

    table: pd.DataFrame
    data: xr.DataTree

    def __repr__(self) -> str:
        overall = self.table[self.table["bin"] == -1]
        lines = [f"<soc_pymc.HeldOut: {overall['items'].iloc[0]:,} items>"]
        width = max(len(name) for name in overall["estimator"])
        head = f"gain over {overall['estimator'].iloc[0]}"
        width = max(width, len(head))
        lines.append(f"  {head:<{width}}  {'nats (se)':>19}  {'percent (se)':>18}")
        for row in overall.to_dict("records")[1:]:
            nats = f"{row['gain']:,.1f} ({row['standard_error']:,.1f})"
            percent = f"{row['gain_percent']:.3f} ({row['gain_percent_se']:.3f})"
            lines.append(f"  {row['estimator']:<{width}}  {nats:>19}  {percent:>18}")
        pit = self.data["pit"].to_dataset()
        for name in pit["fit"].to_numpy():
            for part in pit["slice"].to_numpy():
                one = pit.sel(fit=name, slice=part)
                if int(one["n_items"].sum()):
                    lines.append(
                        f"  predictive PIT, {name}, {part}: off by up to "
                        f"{float(one['distance']):.4f} (p = {float(one['p_value']):.2g})"
                    )
        return "\n".join(lines)


def held_out(
    fits: Fit | Mapping[str, Fit],
    split: Split,
    *,
    baselines: Sequence[str] = BASELINES,
    over: str = "t",
    bins: int = 20,
    seed: int = 0,
    progress: bool = True,
) -> HeldOut:
    """Judge t, first-order baselines and fits by outcomes held out from every item (Section 5.1).

    Point estimates are judged by the log-likelihood of the held-out part: Poisson counts, or Normal
    values with the part's noise. Whole posteriors are judged by the PIT of the held-out outcome in
    its predictive distribution given t and the item's own training outcome.

    Parameters
    ----------
    fits
        A fit to statistics of ``split.train``, or several by name. Terms in groups and exposure are
        taken at each item's own.
    split
        From `split_items`.
    baselines
        First-order methods to fit to ``split.train``, of `baseline`.
    over
        What gains are over: ``"t"``, or one of the baselines where t is no estimate of theta (not
        in its unit, negative where theta is a rate); t itself is then left out.
    bins
        Bins of the score, with equal numbers of items; fewer where scores are tied.
    seed
        Seed of the randomised PIT.
    progress
        Whether long work shows its progress.

    Returns
    -------
    HeldOut
        Its ``table`` has a row for each estimator and slice.

    Raises
    ------
    ItemsError
        If the two parts do not have the same rows, or are not of the fits' kind; of counts, if
        gains are over a score that is no rate: negative, or 0 where there are held-out events.
    FitError
        If there is no fit, no such baseline, `over` is none of them, or `bins` is not positive.

    Warns
    -----
    ItemsWarning
        If scores lie far outside of those that a fit saw.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> items = soc.PoissonItems(
    ...     soc.simulation.s1(2000), score="score", count="count", exposure="exposure")
    >>> split = soc.evaluate.split_items(items)
    >>> fit = soc.fit(soc.summarize(split.train, progress=False), progress=False)
    >>> found = soc.evaluate.held_out({"Gamma": fit}, split, bins=5, progress=False)
    >>> found.table["estimator"].unique()[-2:].tolist()
    ['Gamma: E(theta|t)', 'Gamma: E(theta|t,y)']
    """
    named = named_fits(fits, "fit")
    instance(split, "split", Split, "what soc.evaluate.split_items(items) returns")
    if not isinstance(baselines, list | tuple):
        raise FitError(f"baselines={shown(baselines)} must be a list of names, such as ('platt',)")
    whole(bins, "bins", 1)
    whole(seed, "seed", 0)
    if not isinstance(over, str) or over not in ("t", *baselines):
        raise FitError(f"over={shown(over)} must be 't' or one of baselines={tuple(baselines)}")
    _check_rows(split)
    if over == "t":
        _check_rates(split)
    counts = isinstance(split.train, PoissonItems)
    train, test = _frame(split.train), _frame(split.test)
    score = train["score"].to_numpy(dtype=float)
    bin_of, centre = score_bins(score, bins)
    estimates = {over: score}  # gains are over the first
    with phase("baselines", enabled=progress):
        for name, fitted in fit_baselines(baselines, train, counts).items():
            estimates[name] = fitted(score)
    pit = []
    for name, fit in named.items():
        law = posterior_of(fit)
        own, further = (_columns(fit, law, part) for part in (split.train, split.test))
        warn_of_far_scores(fit, own["score"])
        before = "" if isinstance(fits, Fit) else f"{name}: "
        with phase(f"posteriors of {name}", enabled=progress):
            estimates[f"{before}E(theta|t)"] = given_score(fit, own)[0]
            estimates[f"{before}E(theta|t,y)"] = law.scorer((), "representative", False)(own)[0]
        ends = _further_ends(law, own, further, progress)
        pit.append(_pit(*ends, _slices(law, further), bin_of, stream(seed, "PIT")))
    table = _gains(estimates, test, bin_of, counts)
    coords = {"fit": list(named), "bin": np.arange(len(centre)), "score": ("bin", centre)}
    groups = {"gain": _tree(table), "pit": xr.concat(pit, "fit").assign_coords(coords)}
    groups["pit"]["n_items"] = pit[0]["n_items"]  # the same for all fits
    return HeldOut(table, xr.DataTree.from_dict(groups))


def _check_rows(split: Split) -> None:
    parts = split.train, split.test
    for part in parts:
        if not isinstance(part.source, pd.DataFrame):
            raise ItemsError(
                f"a part of the split is a {type(part.source).__name__}, and both must be pandas "
                "tables: use split_items"
            )
    scores = [part.source[part.score].to_numpy(dtype=float) for part in parts]
    if len(scores[0]) != len(scores[1]) or not np.array_equal(*scores):
        raise ItemsError("the two parts of the split do not have the same rows: use split_items")


def _check_rates(split: Split) -> None:
    """Of counts, the score must be a rate that leaves held-out events a likelihood."""
    test = split.test
    if not isinstance(test, PoissonItems):
        return
    score, count = test.source[test.score].to_numpy(), test.source[test.count].to_numpy()
    wrong = score < 0, (score == 0) & (count > 0)
    for bad, word in zip(wrong, ("negative", "0 where there are held-out events"), strict=True):
        if bad.any():
            raise ItemsError(
                f"column {test.score!r}: {int(bad.sum()):,} of {len(bad):,} rows are {word}, so "
                "that the score is no rate to compare with: give held_out over='constant'"
            )


def _frame(items: Items) -> pd.DataFrame:
    """The part's table with columns named by role."""
    frame: pd.DataFrame = items.source
    return frame.rename(columns={name: role for role, name in items.roles.items()})


def _columns(fit: Fit, law: Posterior, items: Items) -> Columns:
    import pyarrow as pa

    roles = posterior_roles(fit, law, items)
    table = pa.Table.from_pandas(items.source[list(roles.values())], preserve_index=False)
    return columns_of(table, roles)


def _further_ends(
    law: Posterior, own: Columns, further: Columns, progress: bool
) -> tuple[Floats, Floats]:
    n = len(own["score"])
    below, upto = np.empty((2, n))
    with phase("predictive distribution", total=n, unit="items", enabled=progress) as running:
        for start in range(0, n, _CHUNK):
            at = slice(start, start + _CHUNK)
            new = select(further, at)
            below[at], upto[at] = law.further_cdf_interval(
                select(own, at), new[law.outcome.observed], new[law.outcome.size]
            )
            running.advance(len(new["score"]))
    return below, upto


def _slices(law: Posterior, further: Columns) -> dict[str, NDArray[np.bool_]]:
    masks = {"all items": np.ones(len(further["score"]), dtype=bool)}
    if law.outcome.whole:
        masks[f"exposure >= {_EXPOSED:.0f}"] = further[law.outcome.size] >= _EXPOSED
    return masks


def _pit(
    below: Floats,
    upto: Floats,
    masks: Mapping[str, NDArray[np.bool_]],
    bin_of: Ints,
    rng: np.random.Generator,
) -> xr.Dataset:
    """Histograms, tests and ECDFs of one fit, by slice."""
    pit, bins = randomised_pit(below, upto, rng), int(bin_of.max()) + 1
    parts = []
    for mask in masks.values():
        density, n_items = pit_densities(pit[mask], bin_of[mask], bins, _CELLS)
        distance, p_value = _test(pit[mask])
        by_bin = [_test(pit[mask & (bin_of == k)])[1] for k in range(bins)]
        ecdfs = np.full((2, len(GRID)), np.nan)
        if mask.any():
            ecdfs[:] = pit_ecdf(pit[mask]) - GRID, mean_pit_ecdf(below[mask], upto[mask]) - GRID
        numbers = {
            "density": (("bin", "p"), density),
            "n_items": ("bin", n_items),
            "p_value_by_bin": ("bin", by_bin),
            "distance": ((), distance),
            "p_value": ((), p_value),
            "randomised": ("u", ecdfs[0]),
            "averaged": ("u", ecdfs[1]),
        }
        parts.append(xr.Dataset(numbers, {"p": (np.arange(_CELLS) + 0.5) / _CELLS, "u": GRID}))
    return xr.concat(parts, "slice").assign_coords(slice=list(masks))


def _test(pit: Floats) -> tuple[float, float]:
    """Distance and p-value of the test of uniformity; NaN where items are too few for any."""
    if len(pit) < LEAST:
        return np.nan, np.nan
    found = uniformity(pit)
    return found.distance, found.p_value


def _gains(
    estimates: Mapping[str, Floats], test: pd.DataFrame, bin_of: Ints, counts: bool
) -> pd.DataFrame:
    first = next(iter(estimates))
    score = test["score"].to_numpy(dtype=float)
    if counts:
        y, n = test["count"].to_numpy(dtype=float), test["exposure"].to_numpy(dtype=float)
        likelihood = {k: poisson_log_likelihood(y, n * rate) for k, rate in estimates.items()}
        base, known = -likelihood[first], {"score": score, "exposure": n, "events": y}
    else:
        y, sd = test["value"].to_numpy(dtype=float), test["noise_sd"].to_numpy(dtype=float)
        likelihood = {k: normal_log_likelihood(y, mean, sd) for k, mean in estimates.items()}
        base, known = (
            0.5 * ((y - estimates[first]) / sd) ** 2,
            {"score": score, "precision": sd**-2.0},
        )
    return pd.DataFrame(gain_rows(likelihood, base, bin_of, known))


def _tree(table: pd.DataFrame) -> xr.Dataset:
    """The table's numbers with dims (estimator, bin)."""
    estimators = table["estimator"].unique().tolist()
    one = table[table["estimator"] == estimators[0]]
    shape = len(estimators), len(one)
    of_bins = [c for c in table.columns if c not in ("estimator", "bin", *_NUMBERS)]
    numbers = {c: (("estimator", "bin"), table[c].to_numpy().reshape(shape)) for c in _NUMBERS}
    slices = {c: ("bin", one[c].to_numpy()) for c in of_bins}
    coords = {"estimator": estimators, "bin": one["bin"].to_numpy()}
    return xr.Dataset(numbers | slices, coords)
