"""How well outcomes held out from every item are predicted, as in the paper's Section 5.1."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from .._lib.arguments import SEED, A, Whole, checked, many, shown
from .._lib.arrays import Floats, Ints
from .._lib.errors import FitError, ItemsError
from .._lib.progress import phase
from ..checks.comparison import warn_of_clusters
from ..checks.predictive import (
    GRID,
    LEAST,
    in_batches,
    large_sizes,
    mean_pit_ecdf,
    pit_ecdf,
    randomised_pit,
    uniformity,
)
from ..data.items import Items
from ..families.outcomes import OUTCOMES, Outcome
from ..families.poisson import POISSON_FORMS
from ..inference.results import Fit, named_fits
from ..posterior.extrapolation import warn_of_extrapolation
from ..posterior.interface import Columns, Posterior
from ..posterior.item_columns import frame_columns
from ..posterior.predictive import posterior_of
from .baselines import BASELINES, fit_baselines
from .by_bin import given_score, pit_densities, score_bins
from .thinning import Split, refuse_any, stream

Mask = NDArray[np.bool_]

_CHUNK = 100_000  # items whose predictive distribution is evaluated between reports of progress
_CELLS = 20  # of a histogram of the PIT
_EXPOSED = 25.0  # exposure in the test part that says something of an item (the paper's)
_NUMBERS = ("log_likelihood", "gain", "standard_error", "gain_percent", "gain_percent_se")


@dataclass(frozen=True, eq=False)
class HeldOut:
    """What `held_out` found.

    Attributes
    ----------
    table
        One row for each estimator over all items (``bin`` -1) and in each bin: ``estimator``
        (``"t"``, the baselines' names, ``"E(theta | t)"`` and ``"E(theta | t, y)"`` of each fit,
        with the fit's name before it where names were given), ``bin``, ``score`` (mean),
        ``items``; of the held-out part ``exposure`` and ``events`` (of values ``precision``, the
        sum of 1 / noise_sd^2), ``log_likelihood``; ``gain`` in nats over t (or what `over` named,
        which then stands first), its ``standard_error`` over items; ``gain_percent`` of t's
        log-likelihood (of values: of t's squared error in noise sds, so that 100 is no error at
        all), and ``gain_percent_se``. Standard errors of a single item are NaN, and percentages of
        a likelihood of 0.
    data
        `xarray.DataTree`. Group ``gain``: the table's numbers with dims (estimator, bin). Group
        ``pit``, of the randomised PIT of held-out outcomes given t and the item's own training
        outcome: ``density`` (fit, slice, bin, p) of its histograms, ``n_items`` (slice, bin),
        ``p_value_by_bin`` (fit, slice, bin); over all bins ``distance`` and ``p_value`` (fit,
        slice) of the Kolmogorov-Smirnov test, and ECDFs minus the uniform cdf, ``randomised`` and
        ``averaged`` (over the randomisation), with dims (fit, slice, u). The slices are all items
        and, of counts, those with an exposure of at least 25 in the test part. Of a bin without
        items of a slice the density is NaN, and tests are where there are too few.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> split = soc.evaluate.split_items(items)
    >>> fit = soc.fit(soc.summarize(split.train))
    >>> found = soc.evaluate.held_out(fit, split, baselines=(), bins=4)
    >>> found.table[found.table["bin"] == -1]["estimator"].to_list()
    ['t', 'E(theta | t)', 'E(theta | t, y)']
    >>> dict(found.data["pit"]["density"].sizes)
    {'fit': 1, 'slice': 2, 'bin': 4, 'p': 20}
    """

    table: pd.DataFrame
    data: xr.DataTree

    def __repr__(self) -> str:
        overall = self.table[self.table["bin"] == -1]
        lines = [f"<soc_pymc.HeldOut: {overall['items'].iloc[0]:,} items>"]
        head = f"gain over {overall['estimator'].iloc[0]}"
        width = max(len(head), *(len(name) for name in overall["estimator"]))
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


@checked(split=A(Split, "what soc.evaluate.split_items(items) returns"), bins=Whole(1), seed=SEED)
def held_out(
    fits: Fit | Mapping[str, Fit],
    split: Split,
    *,
    baselines: Sequence[str] = BASELINES,
    over: str = "t",
    bins: int = 20,
    seed: int = 0,
    progress: bool | None = None,
) -> HeldOut:
    """Judge t, first-order baselines and fits by outcomes held out from every item (Section 5.1).

    Point estimates are judged by the log-likelihood of the held-out part: Poisson counts, or Normal
    values with the part's noise. Whole posteriors are judged by the PIT of the held-out outcome in
    its predictive distribution given t and the item's own training outcome.

    Parameters
    ----------
    fits, split
        A fit to statistics of ``split.train``, or several by name; and what `split_items` returned.
        Terms in groups and exposure are taken at each item's own.
    baselines
        First-order methods to fit to ``split.train``, of `baseline`.
    over
        What gains are over: ``"t"``, or one of the baselines where t is no estimate of theta (not
        in its unit, negative where theta is a rate); t itself is then left out.
    bins
        Bins of the score, with equal numbers of items; fewer where scores are tied.
    seed, progress
        Seed of the randomised PIT, and whether to show progress.

    Returns
    -------
    HeldOut
        Its ``table`` has a row for each estimator, over all items and in each bin.

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
        If scores lie far outside of those that a fit saw, or items have clusters, which standard
        errors do not know.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> split = soc.evaluate.split_items(items)
    >>> fit = soc.fit(soc.summarize(split.train))
    >>> found = soc.evaluate.held_out({"Gamma": fit}, split, bins=5)
    >>> found.table["estimator"].unique()[-2:].tolist()
    ['Gamma: E(theta | t)', 'Gamma: E(theta | t, y)']
    """
    named = named_fits(fits, "fit")
    if not isinstance(baselines, list | tuple):
        raise FitError(f"baselines={shown(baselines)} must be a list of names, such as ('platt',)")
    if not isinstance(over, str) or over not in ("t", *baselines):
        raise FitError(f"over={shown(over)} must be 't' or one of baselines={tuple(baselines)}")
    _check_rows(split)
    warn_of_clusters(named, split.test, "standard errors")
    outcome = OUTCOMES[split.train.kind]
    if over == "t":
        _check_scores(split.test, outcome)
    train = _frame(split.train)
    score = train["score"].to_numpy(dtype=float)
    bin_of, centre = score_bins(score, bins)
    estimates = {over: score}  # gains are over the first
    with phase("baselines", enabled=progress):
        for name, fitted in fit_baselines(baselines, train, outcome).items():
            estimates[name] = fitted(score)
    pit = []
    for name, fit in named.items():
        before = "" if isinstance(fits, Fit) else f"{name}: "
        given_t, given_y, one_pit = _judged(fit, name, split, bin_of, seed, progress)
        estimates |= {f"{before}E(theta | t)": given_t, f"{before}E(theta | t, y)": given_y}
        pit.append(one_pit)
    table = _gains(estimates, _frame(split.test), bin_of, outcome)
    coords = {"fit": list(named), "bin": np.arange(len(centre)), "score": ("bin", centre)}
    groups = {"gain": _gain_dataset(table), "pit": xr.concat(pit, "fit").assign_coords(coords)}
    groups["pit"]["n_items"] = pit[0]["n_items"]  # the same for all fits
    return HeldOut(table, xr.DataTree.from_dict(groups))


def _judged(
    fit: Fit, name: str, split: Split, bin_of: Ints, seed: int, progress: bool | None
) -> tuple[Floats, Floats, xr.Dataset]:
    """E(theta | t) and E(theta | t, y) of one fit, each (n,), and its PIT."""
    posterior = posterior_of(fit)
    own, further = (frame_columns(fit, posterior, part) for part in (split.train, split.test))
    warn_of_extrapolation(fit, own["score"])
    with phase(f"posteriors of {name}", enabled=progress):
        given_t = given_score(fit, own)[0]
        given_y = posterior.scorer(())(own)[0]
    below, upto = _further_cdf_interval(posterior, own, further, progress)
    pit = randomised_pit(below, upto, stream(seed, "PIT"))
    size = further[posterior.outcome.size]
    slices = {"all items": np.ones(len(size), dtype=bool)}
    slices |= large_sizes(posterior.outcome, size, _EXPOSED)
    parts = [_slice_pit(below, upto, pit, mask, bin_of) for mask in slices.values()]
    return given_t, given_y, xr.concat(parts, "slice").assign_coords(slice=list(slices))


def _check_rows(split: Split) -> None:
    parts = split.train, split.test
    for part in parts:
        if not isinstance(part.source, pd.DataFrame):
            raise ItemsError(
                f"a part of the split is a {type(part.source).__name__}, and both must be pandas "
                "tables: use split_items"
            )
    if not np.array_equal(*(part.source[part.score].to_numpy(dtype=float) for part in parts)):
        raise ItemsError("the two parts of the split do not have the same rows: use split_items")


def _check_scores(test: Items, outcome: Outcome) -> None:
    """The score must be an estimate of theta that leaves held-out outcomes a likelihood."""
    score, y = (test.source[test.roles[role]].to_numpy() for role in ("score", outcome.observed))
    for word, bad in outcome.forms.wrong_scores(score, y).items():
        if bad.any():
            raise ItemsError(
                f"column {test.score!r}: {int(bad.sum()):,} of {len(bad):,} rows are {word}, so "
                f"that the score is no {outcome.words.theta} to compare with: give held_out "
                "over='constant'"
            )


def _frame(items: Items) -> pd.DataFrame:
    """The part's table with columns named by role."""
    frame: pd.DataFrame = items.source
    return frame.rename(columns={name: role for role, name in items.roles.items()})


# --- predictive distributions --------------------------------------------------------------------


def _further_cdf_interval(
    posterior: Posterior, own: Columns, further: Columns, progress: bool | None
) -> tuple[Floats, Floats]:
    """P(Y' < y') and P(Y' <= y') of the held-out outcomes, each (n,)."""
    new, new_size = (further[c] for c in (posterior.outcome.observed, posterior.outcome.size))

    def ends(part: Columns) -> tuple[Floats, Floats]:
        return posterior.further_cdf_interval(part, part["new"], part["new_size"])

    columns = {**own, "new": new, "new_size": new_size}
    below, upto = in_batches("predictive distribution", columns, _CHUNK, progress, ends)
    return below, upto


def _slice_pit(below: Floats, upto: Floats, pit: Floats, mask: Mask, bin_of: Ints) -> xr.Dataset:
    """Histograms, tests and ECDFs of one slice."""
    bins = int(bin_of.max()) + 1
    density, n_items = pit_densities(pit[mask], bin_of[mask], bins, _CELLS)
    distance, p_value = _test(pit[mask])
    ecdfs = np.full((2, len(GRID)), np.nan)
    if mask.any():
        ecdfs[:] = pit_ecdf(pit[mask]) - GRID, mean_pit_ecdf(below[mask], upto[mask]) - GRID
    by_bin = [_test(pit[mask & (bin_of == k)])[1] for k in range(bins)]
    numbers: dict[str, Any] = {"density": (("bin", "p"), density), "n_items": ("bin", n_items)}
    numbers |= {"p_value_by_bin": ("bin", by_bin), "distance": ((), distance)}
    numbers |= {
        "p_value": ((), p_value),
        "randomised": ("u", ecdfs[0]),
        "averaged": ("u", ecdfs[1]),
    }
    return xr.Dataset(numbers, {"p": (np.arange(_CELLS) + 0.5) / _CELLS, "u": GRID})


def _test(pit: Floats) -> tuple[float, float]:
    """Distance and p-value of the test of uniformity; NaN where items are too few for any."""
    if len(pit) < LEAST:
        return np.nan, np.nan
    found = uniformity(pit)
    return found.distance, found.p_value


# --- gains ---------------------------------------------------------------------------------------


def poisson_log_likelihood(count: ArrayLike, expected: ArrayLike) -> Floats:
    """Log probability of Poisson counts with the given expected counts, item by item.

    Parameters
    ----------
    count, expected
        Counts and what was expected of them (exposure times rate), each of shape (n,).

    Returns
    -------
    numpy.ndarray
        Shape (n,), in nats; -inf where events came of which none, or infinitely many, were
        expected.

    Raises
    ------
    ItemsError
        If a count or what was expected of it is negative or no number.

    Examples
    --------
    >>> poisson_log_likelihood([0, 1], [1.0, 1.0])
    array([-1., -1.])
    """
    y, mu = many({"count": count, "expected": expected}, ItemsError)
    refuse_any("count", ~((y >= 0) & (y < np.inf)), "negative or no numbers")
    refuse_any("expected", ~(mu >= 0), "negative or no numbers")
    return POISSON_FORMS.log_likelihood(y, np.ones_like(mu), mu)


def _gains(
    estimates: Mapping[str, Floats], test: pd.DataFrame, bin_of: Ints, outcome: Outcome
) -> pd.DataFrame:
    """The table of gains over the first estimate."""
    names = ("score", outcome.observed, outcome.size)
    score, y, size = (test[name].to_numpy(dtype=float) for name in names)
    forms = outcome.forms
    likelihood = {k: forms.log_likelihood(y, size, theta) for k, theta in estimates.items()}
    base = forms.loss(y, size, next(iter(estimates.values())))
    known = {"score": score, **forms.held_out_sums(y, size)}
    return pd.DataFrame(gain_rows(likelihood, base, bin_of, known))


def gain_rows(
    likelihood: Mapping[str, Floats], base: Floats, bin_of: Ints, known: Mapping[str, Floats]
) -> Iterator[dict[str, float | str]]:
    """Rows of a table of gains: every estimator, over all items (bin -1) and in each bin.

    Gains are over the first estimator; `base` is each item's share, >= 0, of what they are a
    percentage of, `known` are columns of items to add up (``score``: to average).
    """
    order, ends = np.argsort(bin_of, kind="stable"), np.cumsum(np.bincount(bin_of))
    slices = [(-1, np.arange(len(bin_of))), *enumerate(np.split(order, ends[:-1]))]
    first = next(iter(likelihood.values()))
    for name, own in likelihood.items():
        gain = own - first
        for k, at in slices:
            sums = {column: float(x[at].sum()) for column, x in known.items()}
            score = sums.pop("score") / len(at)
            row: dict[str, Any] = {"estimator": name, "bin": k, "score": score}
            row |= {"items": len(at)} | sums | {"log_likelihood": float(own[at].sum())}
            yield row | _gain(gain[at], base[at])


def _gain(gain: Floats, base: Floats) -> dict[str, float]:
    """Gain and its percentage, a ratio of sums, with standard errors (delta method)."""
    total, loss = float(gain.sum()), float(base.sum())
    ratio = total / loss if loss > 0 else np.nan
    return {
        "gain": total,
        "standard_error": _error(gain),
        "gain_percent": 100 * ratio,
        "gain_percent_se": 100 * _error(gain - ratio * base) / loss if loss > 0 else np.nan,
    }


def _error(each: Floats) -> float:
    """Standard error of a sum over items."""
    return float(each.std(ddof=1) * np.sqrt(len(each))) if len(each) > 1 else float("nan")


def _gain_dataset(table: pd.DataFrame) -> xr.Dataset:
    """The table's numbers with dims (estimator, bin)."""
    estimators = table["estimator"].unique().tolist()
    one = table[table["estimator"] == estimators[0]]
    shape = len(estimators), len(one)
    of_bins = [c for c in table.columns if c not in ("estimator", "bin", *_NUMBERS)]
    numbers = {c: (("estimator", "bin"), table[c].to_numpy().reshape(shape)) for c in _NUMBERS}
    slices = {c: ("bin", one[c].to_numpy()) for c in of_bins}
    coords = {"estimator": estimators, "bin": one["bin"].to_numpy()}
    return xr.Dataset(numbers | slices, coords)
