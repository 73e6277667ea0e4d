"""Draws of E(theta | t) and Var(theta | t) with bands, scores of bins, and draws from a prior."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from .._lib import arguments
from .._lib.arguments import DRAWS, PROBABILITY, SEED, A, numbers_of, shown, switch
from .._lib.arrays import Floats, Ints
from .._lib.errors import FitError, ItemsWarning, warn_user
from .._lib.threads import one_blas_thread
from ..data.items import CROSS, MARK, column_of, label_of, roles_of
from ..data.statistics import STATISTICS, Statistics
from ..families import family_of, family_of_kind
from ..families.priors import Prior
from ..families.scales import LINEAR, LOG, LOGIT, SCALES
from ..fits.fit import FIT, Fit, Status
from ..inference.methods import VI
from .curves import (
    P_ZERO,
    atom_of,
    average_curves,
    moment_variables,
    place_of,
    warn_of_extrapolation,
)
from .item_columns import Columns, check_groups
from .predictive import posterior_of

_POINTS = 200
_LABEL = str | int | np.integer | np.bool_ | None
_POSITIVE = ("variance", "shape", "rate", "a", "b")  # banded on the log scale
_LEAST = 1e-12  # a variance below this share of the square is rounding


@one_blas_thread
def calibration_curves(
    fit: Fit,
    score: ArrayLike | None = None,
    group: object = None,
    exposure: ArrayLike | None = None,
) -> xr.Dataset:
    """Return draws of calibration curves of first and second order.

    Parameters
    ----------
    fit, score
        The fit, and scores, shape (n,); None takes 200 points between the outer bins, or between
        the scores of a single bin. Beyond the data curves are straight lines on their axis.
    group
        The label of a group, or of crossed groups a level of each, ``("FR", None)``; None gives the
        shared curves. A new group deviates from them by draws from the prior.
    exposure
        For a fit with a term in exposure (or noise sd): a number > 0, or one for each score; None
        averages over those of items with similar scores.

    Returns
    -------
    xarray.Dataset
        ``mean`` = E(theta | t) in the unit of theta, ``variance`` = Var(theta | t),
        ``log_variance``, the prior's conjugate parameters, and with ``zero=True`` ``p_zero`` =
        P(theta = 0 | t), dims (chain, draw, score).

    Raises
    ------
    FitError
        If a score is not finite or has no position, or the fit has no groups or term in exposure.

    Warns
    -----
    ItemsWarning
        If the fit never saw the group, or scores are outside its range by more than a tenth of it.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> curves = soc.calibration_curves(fit, [0.02, 0.05])
    >>> dict(curves["mean"].sizes)
    {'chain': 4, 'draw': 250, 'score': 2}
    """
    FIT(fit, "fit")
    scores = default_scores(fit) if score is None else numbers_of(score, "score")
    if scores.ndim != 1 or not len(scores) or not np.isfinite(scores).all():
        raise FitError(f"score must be a vector of finite numbers, not {shown(score)}")
    label = _label(fit, group)
    sizes = _sizes(fit, exposure, len(scores))
    labels = None if label is None else np.full(len(scores), label, dtype=object)
    warn_of_extrapolation(fit, scores, "scores are")
    return curves_of(fit, scores, labels, sizes)


def curves_of(
    fit: Fit,
    scores: Floats,
    labels: NDArray[np.object_] | None = None,
    sizes: Floats | None = None,
    by_size: bool = False,
) -> xr.Dataset:
    """`calibration_curves` for checked scores, groups and sizes, by default averaged over items."""
    posterior = posterior_of(fit)
    if sizes is None and fit.prior.exposure is not None:
        variables = _over_sizes(fit, scores, labels, by_size)
    else:
        variables = posterior.curves(scores, labels, sizes)
    scales = dict.fromkeys(_POSITIVE, LOG) | {
        "mean": posterior.outcome.theta,
        P_ZERO: LOGIT,
    }
    coords = {name: fit.data["posterior"][name] for name in ("chain", "draw")} | {
        "score": scores
    }
    shape = [len(coord) for coord in coords.values()]
    curves = {
        name: (
            list(coords),
            values.reshape(shape),
            {"banded": scales.get(name, LINEAR).name},
        )
        for name, values in variables.items()
    }
    return xr.Dataset(curves, coords)


def _label(fit: Fit, group: object) -> str | None:
    """The checked label of a group."""
    if group is None:
        return None
    if not fit.groups:
        raise FitError(f"the fit has no groups: leave out group={shown(group)}")
    if not all(
        isinstance(g, _LABEL) for g in (group if isinstance(group, tuple) else (group,))
    ):
        raise FitError(
            f"group={shown(group)} must be the label of one group, as str or int"
        )
    label = label_of(group)
    groupings = fit.groupings
    levels = [label] if len(groupings) == 1 else label.split(CROSS)
    if len(levels) != len(groupings):
        rule = f"one level of each of {column_of(roles_of(fit.data.attrs))}, as a tuple"
        raise FitError(f"group={shown(group)} must be {rule}; None leaves one open")
    for level, known in zip(levels, groupings.values(), strict=True):
        if level not in known and level != MARK:
            unseen = f"a group {level!r} (its groups are: {', '.join(map(repr, known[:10]))})"
            meaning = "these are the curves of a new group, with wider bands"
            warn_user(f"the fit never saw {unseen}: {meaning}", ItemsWarning)
    return label


def _sizes(fit: Fit, exposure: ArrayLike | None, n: int) -> Floats | None:
    """Exposures for every score."""
    if exposure is None:
        return None
    if fit.prior.exposure is None:
        remedy = "leave out exposure=, or fit soc.Gamma(exposure=soc.Spline())"
        raise FitError(f"the fit's curves have no term in exposure: {remedy}")
    sizes = numbers_of(exposure, "exposure")
    if sizes.shape not in ((), (n,)) or not (np.isfinite(sizes) & (sizes > 0)).all():
        rule = f"a positive number, or one for each of {n} scores"
        raise FitError(f"exposure={shown(exposure)} must be {rule}")
    return np.broadcast_to(sizes, n)


def _over_sizes(
    fit: Fit, score: Floats, labels: Any, by_size: bool
) -> dict[str, Floats]:
    """Curves averaged over the exposures (noise sds) of items with similar scores."""
    data = fit.data["constant_data"]
    atom = atom_of(fit, score)
    middle = data["share_position"].to_numpy()
    sizes = np.exp(data["share_log_size"].to_numpy())
    shares = [data[name].to_numpy() for name in ("share", "atom_share") if name in data]
    if by_size:
        shares = [share * sizes / (share @ sizes)[:, None] for share in shares]
    posterior = posterior_of(fit)
    position = place_of(fit, "mean", score)
    total: Any = 0.0  # of means, squares and shares of 0
    for k, size in enumerate(sizes):
        weight = np.interp(position, middle, shares[0][:, k])
        if atom.any():
            weight[atom > 0] = shares[1][atom[atom > 0] - 1, k]
        curves = posterior.curves(score, labels, np.full(len(score), size))
        mean = curves["mean"]
        zero = curves.get(P_ZERO, np.zeros(1))
        total += weight * np.array(
            [mean, curves["variance"] + mean**2, zero + 0.0 * mean]
        )
    mean, square, zero = total
    variables = moment_variables(
        mean, np.maximum(square - mean**2, np.finfo(float).tiny), curves
    )
    return {**variables, P_ZERO: zero} if P_ZERO in curves else variables


def default_scores(fit: Fit) -> Floats:
    """Default scores of curves, between the outer bins; of a single bin, between its scores."""
    bins = fit.data["constant_data"].to_dataset()
    bins = bins.isel(bin=atom_of(fit, bins["score"]) == 0)
    least, most = (
        ("score", "score") if bins.sizes["bin"] > 1 else ("score_min", "score_max")
    )
    centre = bins["score"].to_numpy()
    axis = fit.axis("mean")
    low, high = axis([bins[least].min(), bins[most].max()])
    return centre[:1] if low == high else axis.inverse(np.linspace(low, high, _POINTS))


def bands(
    curves: xr.Dataset, prob: float = 0.9, simultaneous: bool = False
) -> xr.Dataset:
    """Return credible bands of curves.

    Parameters
    ----------
    curves, prob
        From `calibration_curves`, all variables or some; and the bands' probability.
    simultaneous
        False: at each score, the central interval with a share `prob` of the draws. True: wider by
        one factor, so that a share `prob` of curves lies inside at all scores (Montiel Olea and
        Plagborg-Moller 2019).

    Returns
    -------
    xarray.Dataset
        The same variables with dims (bound, score), bound = lower, median, upper.

    Raises
    ------
    FitError
        If `prob` is not between 0 and 1, or `curves` are something else.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> banded = soc.bands(soc.calibration_curves(fit, [0.02, 0.05]))
    >>> bool((banded["mean"].sel(bound="lower") < banded["mean"].sel(bound="upper")).all())
    True
    """
    expected = "curves, from soc.calibration_curves(fit)"
    A(xr.Dataset, expected)(curves, "curves")
    if lack := {"chain", "draw", "score"} - set(curves.dims):
        raise FitError(
            f"curves must be {expected}: they have no dimension {min(lack)!r}"
        )
    PROBABILITY(prob, "prob")
    switch(simultaneous, "simultaneous")
    return curves.map(_band, prob=prob, simultaneous=simultaneous)


def _band(draws: xr.DataArray, prob: float, simultaneous: bool) -> xr.DataArray:
    default = LOG.name if draws.name in _POSITIVE else LINEAR.name
    scale = SCALES[draws.attrs.get("banded", default)]
    values = draws.transpose("chain", "draw", "score").to_numpy()
    values = scale.position(values.reshape(-1, values.shape[-1]))
    low, middle, high = np.quantile(
        values, [(1 - prob) / 2, 0.5, (1 + prob) / 2], axis=0
    )
    if simultaneous:
        side = np.where(values > middle, high - middle, low - middle)
        reach = ((values - middle) / np.where(side == 0.0, np.inf, side)).max(axis=1)
        factor = max(1.0, float(np.quantile(reach, prob, method="higher")))
        low = middle - factor * (middle - low)
        high = middle + factor * (high - middle)
    coords = {"bound": ["lower", "median", "upper"]} | dict(draws["score"].coords)
    return xr.DataArray(
        scale.score(np.array([low, middle, high])), coords, ("bound", "score")
    )


@dataclass(frozen=True, eq=False)
class BinScores:
    """Occupied bins, by group if the statistics have groups."""

    group: Ints  # codes of groups; 0 if they are pooled
    bin: Ints  # numbers of bins, increasing within a group
    score: Floats  # mean scores
    spread: Floats  # variances of the mean curve (log E(theta | t) for counts) over a bin's items

    def place(self, group: Ints, number: Ints) -> NDArray[np.intp]:
        """Positions of bins of groups among these."""
        bins = int(self.bin.max()) + 1
        return np.searchsorted(self.group * bins + self.bin, group * bins + number)


def bin_scores_of(fit: Fit, stats: Statistics) -> BinScores:
    """Mean scores of bins, and the variance of theta by their spread."""
    check_groups(fit, stats)
    part = stats.table("part")
    labels = np.array(stats.groups, dtype=object)
    scale = fit.axis("mean").local
    bins = stats.bins
    key = part["group"] * bool(len(labels)) * bins + part["bin"]
    sums = dict.fromkeys(("n", *scale.sums), "sum")
    rows = (
        pd.DataFrame(part)
        .groupby(key)
        .agg({**sums, "score_min": "min", "score_max": "max"})
    )
    group, number = np.divmod(rows.index.to_numpy(), bins)
    mean, square = (rows[name].to_numpy() / rows["n"].to_numpy() for name in scale.sums)
    variance = square - mean**2
    half_sd = 0.5 * np.sqrt(np.where(variance > _LEAST * square, variance, 0.0))
    label = labels[group] if fit.groups else None
    (
        below,
        above,
    ) = (  # a term in exposure shifts the whole curve of a bin, so any exposure will do
        average_curves(fit, scale.score(end), label, np.ones(len(end)))[0]
        for end in (mean - half_sd, mean + half_sd)
    )
    # where all items of a bin have the score of an atom, the mean score is not rounded
    low = rows["score_min"].to_numpy()
    high = rows["score_max"].to_numpy()
    score = np.where((low == high) & (atom_of(fit, low) > 0), low, scale.score(mean))
    return BinScores(group, number, score, (above - below) ** 2)


def prior_predictive(
    prior: Prior | None,
    stats: Statistics,
    draws: int = 100,
    *,
    items: int = 1000,
    seed: int = 0,
) -> xr.DataTree:
    """Draw curves and outcomes of items from a prior, before outcomes are seen.

    Only scores and sizes of the statistics matter, except that they place a mixture's components.

    Parameters
    ----------
    prior, stats
        The prior's configuration (None is the plain family of the items' kind), and statistics of
        the items, from `summarize`.
    draws, items, seed
        Numbers of draws from the prior and of items, which are drawn with replacement: each has its
        bin's mean score, and a size from its bin; and the seed.

    Returns
    -------
    xarray.DataTree
        ``prior`` has the curves of `calibration_curves`, ``prior_predictive`` the items' outcomes,
        dims (chain, draw, item), and ``constant_data`` their scores, sizes and groups.

    Raises
    ------
    FitError
        If the prior is not for such items, or the model cannot be built from the statistics.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> drawn = soc.prior_predictive(soc.Gamma(), stats, draws=50)
    >>> dict(drawn["prior_predictive"]["count"].sizes)
    {'chain': 1, 'draw': 50, 'item': 1000}
    """
    stats = STATISTICS(stats, "stats")
    draws = DRAWS(draws, "draws")
    items = DRAWS(items, "items")
    seed = SEED(seed, "seed")
    from .._model.problem import build, check_prior, prior_draws  # which import PyMC
    from ..inference.fit_tree import conventional, tree_of_draws

    prior = family_of_kind(stats.kind).prior() if prior is None else prior
    check_prior(prior, stats)
    what = f"{draws:,} draws of {items:,} items in {stats.bins:,} bins"
    size = 8.0 * 4.0 * draws * max(items, stats.bins)
    arguments.refuse_beyond_memory(size, what, "take fewer draws or items")
    rng = np.random.default_rng(seed)
    built = build(stats, prior)
    outcome = family_of(prior).outcome
    groups = {"posterior": prior_draws(built, draws, rng)}
    tree = tree_of_draws(built, stats, groups, prior.monotone)
    fit = Fit(tree, prior, VI(), Status(True, "draws from the prior", None, None, 0.0))
    columns = _some_items(fit, stats, items, rng)
    curves = curves_of(fit, default_scores(fit))
    dims = ("chain", "draw", "item")
    outcomes = posterior_of(fit).simulate(columns, rng).astype(outcome.dtype)
    drawn = xr.Dataset(
        {outcome.observed: (dims, outcomes[None])}, curves[["chain", "draw"]].coords
    )
    constants = xr.Dataset({name: ("item", x) for name, x in columns.items()})
    tree_groups = {
        "prior": curves,
        "prior_predictive": drawn,
        "constant_data": constants,
    }
    return conventional(xr.DataTree.from_dict(tree_groups))


def _some_items(
    fit: Fit, stats: Statistics, number: int, rng: np.random.Generator
) -> Columns:
    """Items drawn with replacement from the cells of sizes, without outcomes."""
    outcome = family_of(fit.prior).outcome
    cells = stats.table(outcome.margins[0])
    row = rng.choice(len(cells["n"]), number, p=cells["n"] / cells["n"].sum())
    sampled = {name: values[row] for name, values in cells.items()}
    group = sampled["group"] if stats.groups else np.zeros(number, dtype=np.int64)
    bins = bin_scores_of(fit, stats)
    columns: dict[str, Any] = {
        "score": bins.score[bins.place(group, sampled["bin"])],
        outcome.size: outcome.mean_size(sampled),
    }
    if fit.groups:
        columns["group"] = np.array(stats.groups, dtype=object)[group]
    return columns
