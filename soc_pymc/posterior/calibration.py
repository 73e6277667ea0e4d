"""Draws of E(theta | t) and Var(theta | t), with bands, from a prior, and averaged over items."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from .._lib.arguments import (
    DRAWS,
    PROBABILITY,
    SEED,
    A,
    FitError,
    ItemsWarning,
    numbers_of,
    per_item,
    refuse_beyond_memory,
    shown,
    switch,
    warn_user,
)
from .._lib.arrays import Columns, Floats, Pair
from .._lib.work import one_blas_thread
from ..data.items import CROSS, MARK, label_of
from ..data.statistics import STATISTICS, Statistics
from ..families import family_of
from ..families.priors import Prior
from ..families.scales import LINEAR, LOG, LOGIT, SCALES
from ..fits import Curves, Fit
from .item_columns import (
    BinPositions,
    bin_scores_of,
    check_statistics,
    select,
    summed,
    warn_of_extrapolated_bins,
    warn_of_extrapolation,
)
from .predictive import Posterior, posterior_of, posterior_under
from .weights import P_ZERO, moment_variables

_POINTS = 200
_LABEL = str | int | np.integer | np.bool_ | None
# variables whose bands are made on the log scale
_POSITIVE = ("variance", "shape", "rate", "a", "b")


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
    fit : Fit
        The fit.
    score : array_like, shape (n,), or None
        Scores; None takes 200 points between the outer bins, or between the scores of a single bin.
        Beyond the data curves are straight lines on their axis.
    group : str, tuple or None
        Group of the curves, of crossed groups a level of each, ``("FR", None)``; None gives the
        shared curves. A new group deviates from them by draws from the prior.
    exposure : float, array_like of shape (n,), or None
        Exposure (noise sd, trials) of the curves, above 0, for a fit with a term in it; None
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

    References
    ----------
    .. [1] Muralidharan and Najmi (2015), Second order calibration: a simple way to get
       approximate posteriors.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> curves = soc.calibration_curves(fit, [0.02, 0.05])
    >>> dict(curves["mean"].sizes)
    {'chain': 4, 'draw': 250, 'score': 2}
    """
    posterior = posterior_of(fit)
    curves = posterior.curves
    scores = default_scores(curves) if score is None else numbers_of(score, "score")
    if scores.ndim != 1 or not len(scores) or not np.isfinite(scores).all():
        raise FitError(f"score must be a vector of finite numbers, not {shown(score)}")
    label = _label(curves, group)
    sizes = _sizes(curves, exposure, len(scores))
    labels = None if label is None else np.full(len(scores), label, dtype=object)
    warn_of_extrapolation(curves, scores, "scores are")
    columns = {"score": scores, "group": labels, curves.outcome.size: sizes}
    known = {role: values for role, values in columns.items() if values is not None}
    return curve_dataset(posterior, known)


def curve_variables(
    posterior: Posterior, columns: Columns, by_size: bool = False
) -> dict[str, Floats]:
    """Draws (draws, n) of curves at scores and groups; without sizes, averaged over items'."""
    if posterior.prior.exposure is None or posterior.outcome.size in columns:
        return posterior.curve_variables(columns)
    return _over_sizes(posterior, columns, by_size)


def curve_dataset(
    posterior: Posterior, columns: Columns, by_size: bool = False
) -> xr.Dataset:
    """`calibration_curves` of `curve_variables`."""
    curves = posterior.curves
    coords = {name: curves.posterior[name] for name in ("chain", "draw")}
    dims = [*coords, "score"]
    scales = dict.fromkeys(_POSITIVE, LOG)
    scales |= {"mean": posterior.outcome.theta, P_ZERO: LOGIT}
    variables = {}
    for name, draws in curve_variables(posterior, columns, by_size).items():
        values = draws.reshape(*curves.shape, -1)
        variables[name] = dims, values, {"banded": scales.get(name, LINEAR).name}
    return xr.Dataset(variables, {**coords, "score": columns["score"]})


def _label(curves: Curves, group: object) -> str | None:
    """The checked label of a group."""
    if group is None:
        return None
    if not curves.groups:
        raise FitError(f"the fit has no groups: leave out group={shown(group)}")
    levels = group if isinstance(group, tuple) else (group,)
    if not all(isinstance(level, _LABEL) for level in levels):
        raise FitError(
            f"group={shown(group)} must be the label of one group, as str or int"
        )
    label = label_of(group)
    groupings = curves.groupings
    names = [label] if len(groupings) == 1 else label.split(CROSS)
    if len(names) != len(groupings):
        columns = CROSS.join(curves.roles.groups.values())
        rule = f"one level of each of {columns}, as a tuple"
        raise FitError(f"group={shown(group)} must be {rule}; None leaves one open")
    for level, known in zip(names, groupings.values(), strict=True):
        if level not in known and level != MARK:
            unseen = f"a group {level!r} (its groups are: {', '.join(map(repr, known[:10]))})"
            meaning = "these are the curves of a new group, with wider bands"
            warn_user(f"the fit never saw {unseen}: {meaning}", ItemsWarning)
    return label


def _sizes(curves: Curves, exposure: ArrayLike | None, n: int) -> Floats | None:
    """Exposures for every score."""
    if exposure is None:
        return None
    if curves.prior.exposure is None:
        remedy = "leave out exposure=, or fit soc.Gamma(exposure=soc.Spline())"
        raise FitError(f"the fit's curves have no term in exposure: {remedy}")
    sizes = per_item(exposure, "exposure", n)
    if not (np.isfinite(sizes) & (sizes > 0)).all():
        raise FitError(f"exposure={shown(exposure)} must be positive numbers")
    return sizes


def _over_sizes(
    posterior: Posterior, columns: Columns, by_size: bool
) -> dict[str, Floats]:
    """Curves averaged over the exposures (noise sds) of items with similar scores."""
    data = posterior.curves.bins
    score = columns["score"]
    atom = posterior.curves.atom(score)
    middle = data["share_position"].to_numpy()
    sizes = np.exp(data["share_log_size"].to_numpy())
    shares = [data[name].to_numpy() for name in ("share", "atom_share") if name in data]
    if by_size:
        shares = [share * sizes / (share @ sizes)[:, None] for share in shares]
    position = posterior.curves.position("mean", score)
    # sums of means, squares and shares of 0
    total: Any = 0.0
    for k, size in enumerate(sizes):
        weight = np.interp(position, middle, shares[0][:, k])
        if atom.any():
            weight[atom > 0] = shares[1][atom[atom > 0] - 1, k]
        same_size = {posterior.outcome.size: np.full(len(score), size)}
        variables = posterior.curve_variables({**columns, **same_size})
        mean = variables["mean"]
        zero = variables.get(P_ZERO, np.zeros(1)) + 0.0 * mean
        total += weight * np.array([mean, variables["variance"] + mean**2, zero])
    mean, square, zero = total
    variance = np.maximum(square - mean**2, np.finfo(float).tiny)
    averages = moment_variables(mean, variance, variables)
    return {**averages, P_ZERO: zero} if P_ZERO in variables else averages


def default_scores(curves: Curves) -> Floats:
    """Default scores of curves, between the outer bins; of a single bin, between its scores."""
    bins = curves.bins.isel(bin=curves.atom(curves.bins["score"]) == 0)
    least = most = "score"
    if bins.sizes["bin"] == 1:
        least = "score_min"
        most = "score_max"
    axis = curves.axis("mean")
    low, high = axis([bins[least].min(), bins[most].max()])
    if low == high:
        return bins["score"].to_numpy()[:1]
    return axis.inverse(np.linspace(low, high, _POINTS))


def bands(
    curves: xr.Dataset, prob: float = 0.9, simultaneous: bool = False
) -> xr.Dataset:
    """Return credible bands of curves.

    Parameters
    ----------
    curves : xarray.Dataset
        Draws from `calibration_curves`, all variables or some, dims (chain, draw, score).
    prob : float
        Probability of the bands.
    simultaneous : bool
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

    References
    ----------
    .. [1] Montiel Olea and Plagborg-Moller (2019), Simultaneous confidence bands, Journal of
       Applied Econometrics 34, 1-17.

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
    levels = (1 - prob) / 2, 0.5, (1 + prob) / 2
    low, middle, high = np.quantile(values, levels, axis=0)
    if simultaneous:
        side = np.where(values > middle, high - middle, low - middle)
        side[side == 0.0] = np.inf
        reach = ((values - middle) / side).max(axis=1)
        factor = max(1.0, float(np.quantile(reach, prob, method="higher")))
        low = middle - factor * (middle - low)
        high = middle + factor * (high - middle)
    ends = scale.score(np.array([low, middle, high]))
    coords = {"bound": ["lower", "median", "upper"]} | dict(draws["score"].coords)
    return xr.DataArray(ends, coords, ("bound", "score"))


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
    prior : Gamma, Normal, Beta, InverseGamma, a mixture of them or None
        The prior of theta; None is the plain family of the items' kind.
    stats : Statistics
        Statistics of the items, from `summarize`.
    draws : int
        Number of draws from the prior.
    items : int
        Number of items, which are drawn with replacement: each has its bin's mean score, and a size
        from its bin.
    seed : int
        Seed of random numbers.

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
    # these import PyMC
    from .._model.problem import build, prior_draws, prior_for
    from ..inference.fit_tree import conventional, tree_of_draws

    prior = prior_for(prior, stats)
    what = f"{draws:,} draws of {items:,} items in {stats.bins:,} bins"
    size = 8.0 * 4.0 * draws * max(items, stats.bins)
    refuse_beyond_memory(size, what, "take fewer draws or items")
    rng = np.random.default_rng(seed)
    built = build(stats, prior)
    outcome = family_of(prior).outcome
    posterior_group = {"posterior": prior_draws(built, draws, rng)}
    tree = tree_of_draws(built, stats, posterior_group, prior.monotone)
    posterior = posterior_under(Curves.of(tree, prior))
    columns = _some_items(posterior.curves, stats, items, rng)
    curves = curve_dataset(posterior, {"score": default_scores(posterior.curves)})
    dims = ("chain", "draw", "item")
    outcomes = posterior.simulate(columns, rng).astype(outcome.dtype)
    drawn = curves[["chain", "draw"]].assign({outcome.observed: (dims, outcomes[None])})
    constants = xr.Dataset({name: ("item", x) for name, x in columns.items()})
    groups = {"prior": curves, "prior_predictive": drawn, "constant_data": constants}
    return conventional(xr.DataTree.from_dict(groups))


def _some_items(
    curves: Curves, stats: Statistics, number: int, rng: np.random.Generator
) -> Columns:
    """Items drawn with replacement from the cells of sizes, without outcomes."""
    outcome = curves.outcome
    cells = stats.table(outcome.margins[0])
    row = rng.choice(len(cells["n"]), number, p=cells["n"] / cells["n"].sum())
    sampled = {name: values[row] for name, values in cells.items()}
    size = {outcome.size: outcome.mean_size(sampled)}
    return bin_scores_of(curves, stats).columns(sampled) | size


# --- variances explained by scores ----------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class SupportPoints:
    """Scores that stand for items: two of every bin (of every group), one after the other."""

    bins: BinPositions
    # of the points: their score, and their group where groups are not pooled
    columns: Columns
    items: Floats


def support_of(curves: Curves, stats: Statistics | None = None) -> SupportPoints:
    """Return scores an sd below and above the mean of bins: of statistics, or else of the fit."""
    scale = curves.axis("mean").local
    if stats is None:
        bins = _bins_of_fit(curves)
    else:
        check_statistics(curves, stats)
        warn_of_extrapolated_bins(curves, stats)
        bins = BinPositions.of(stats, scale, bool(curves.groups))
    ends = np.stack([bins.mean - bins.sd, bins.mean + bins.sd], axis=1)
    scores = np.clip(scale.score(ends), bins.low[:, None], bins.high[:, None])
    points = {"score": scores.ravel()}
    if stats is not None and curves.groups:
        labels = np.array(stats.groups, dtype=object)[bins.group]
        points["group"] = np.repeat(labels, 2)
    return SupportPoints(bins, points, np.repeat(bins.n, 2) / 2)


@np.errstate(divide="ignore")  # a score of 0 lies at minus infinity
def _bins_of_fit(curves: Curves) -> BinPositions:
    """The bins of all items that made a fit."""
    scale = curves.axis("mean").local
    if curves.groups or scale.width not in curves.bins:
        lack = "how wide its bins of scores are"
        if curves.groups:
            lack = "what scores each group has"
        raise FitError(
            f"the fit does not say {lack}: give the statistics too, or the items"
        )
    names = {"n": "n_items", "mean": "score", "sd": scale.width}
    names |= {"low": "score_min", "high": "score_max"}
    columns = {field: curves.bins[name].to_numpy() for field, name in names.items()}
    columns["mean"] = scale.position(columns["mean"])
    number = np.arange(len(columns["n"]))
    return BinPositions(False, np.zeros_like(number), number, **columns)


def variance_parts(posterior: Posterior, stats: Statistics | None = None) -> Pair:
    """Return draws of the explained and the total variance of theta, each (draws,)."""
    curves = posterior.curves
    support = support_of(curves, stats)
    share = support.items / support.items.sum()
    number = len(support.items)

    def values(part: slice, centre: float = 0.0) -> list[Floats]:
        variables = curve_variables(posterior, select(support.columns, part))
        centred = variables["mean"] - centre
        return [centred, centred**2, variables["variance"]]

    # squares about some mean lose no digits
    centre = float(values(slice(None, None, max(1, number // 20)))[0].mean())
    target = np.zeros(number, dtype=np.int64)
    centred = partial(values, centre=centre)
    mean, square, within = (x[:, 0] for x in summed(curves, share, target, 1, centred))
    explained = np.maximum(square - mean**2, 0.0)
    return explained, explained + within
