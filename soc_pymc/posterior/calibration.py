"""Draws of E(theta | t) and Var(theta | t), at scores and at bins, and their bands."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from .._lib.arguments import PROBABILITY, A, numbers_of, shown, switch
from .._lib.arrays import Floats, Ints
from .._lib.errors import FitError, ItemsWarning, warn_user
from ..data.groups import CROSS, MARK, column_of, label_of, roles_of
from ..data.statistics import Statistics
from ..families.scales import LINEAR, LOG, LOGIT, SCALES
from ..inference.results import FIT, Fit
from .curves import (
    P_ZERO,
    atom_of,
    items_at_once,
    moment_variables,
    place_of,
    warn_of_extrapolation,
)
from .item_columns import check_groups
from .predictive import posterior_of

_POINTS = 200
_LABEL = str | int | np.integer | np.bool_ | None
_POSITIVE = ("variance", "shape", "rate", "a", "b")  # banded on the log scale
_LEAST = 1e-12  # a variance below this share of the square is rounding


def calibration_curves(
    fit: Fit,
    score: ArrayLike | None = None,
    group: object = None,
    exposure: ArrayLike | None = None,
) -> xr.Dataset:
    """Draws of calibration curves of first and second order.

    Parameters
    ----------
    fit
        The fit.
    score
        Scores, shape (n,); None takes 200 points between the centres of the first and the last
        bin. Beyond the data curves are straight lines on their axis, between 1e-100 and 1e100.
    group
        For a fit with groups: the label of a group, or of crossed groups a level of each,
        ``("FR", "phone")`` or ``("FR", None)``; None gives the shared curves. A group that the fit
        never saw gets the shared curves with deviations drawn from their prior.
    exposure
        For a fit with a term in exposure (or noise sd): a number > 0, or one for each score; None
        averages over the exposures of items with similar scores.

    Returns
    -------
    xarray.Dataset
        Dims (chain, draw, score). ``mean`` = E(theta | t) in the unit of theta, ``variance`` =
        Var(theta | t) in its square, ``log_variance``, and conjugate parameters of the prior. With
        ``zero=True`` these describe all theta, zeros included, and ``p_zero`` = P(theta = 0 | t).

    Raises
    ------
    FitError
        If `score` is not a vector of finite numbers or has no position on a curve's axis, or
        `group` or `exposure` is given for a fit without groups or a term in exposure.

    Warns
    -----
    ItemsWarning
        If the fit never saw the group, or scores are outside the fit's range by more than a tenth
        of that range.

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
    labels, sizes = _label(fit, group, len(scores)), _sizes(fit, exposure, len(scores))
    warn_of_extrapolation(fit, scores, "scores are")
    return curves_of(fit, scores, labels, sizes)


def curves_of(
    fit: Fit,
    scores: Floats,
    labels: NDArray[np.object_] | None = None,
    sizes: Floats | None = None,
    by_size: bool = False,
) -> xr.Dataset:
    """`calibration_curves` for checked scores, groups and sizes, each (n,).

    Without sizes, a term in exposure is averaged over items, or with `by_size` over units of
    exposure (trials).
    """
    posterior = posterior_of(fit)
    if sizes is None and fit.prior.exposure is not None:
        variables = _over_sizes(fit, scores, labels, by_size)
    else:
        variables = posterior.curves(scores, labels, sizes)
    draws, dims = fit.data["posterior"], ("chain", "draw", "score")
    scales = dict.fromkeys(_POSITIVE, LOG) | {"mean": posterior.outcome.theta, P_ZERO: LOGIT}
    coords = {"chain": draws["chain"], "draw": draws["draw"], "score": scores}
    shape = [len(coord) for coord in coords.values()]
    curves = {
        name: (dims, values.reshape(shape), {"banded": scales.get(name, LINEAR).name})
        for name, values in variables.items()
    }
    return xr.Dataset(curves, coords)


def _label(fit: Fit, group: object, n: int) -> NDArray[np.object_] | None:
    """One group's label for every score."""
    if group is None:
        return None
    if not fit.groups:
        raise FitError(f"the fit has no groups: leave out group={shown(group)}")
    if not all(isinstance(g, _LABEL) for g in (group if isinstance(group, tuple) else (group,))):
        raise FitError(f"group={shown(group)} must be the label of one group, as str or int")
    label, groupings = label_of(group), fit.groupings
    levels = [label] if len(groupings) == 1 else label.split(CROSS)
    if len(levels) != len(groupings):
        columns = column_of(roles_of(fit.data.attrs))
        raise FitError(
            f"group={shown(group)} must be one level of each of {columns}, as a tuple; None leaves "
            "one open"
        )
    for level, known in zip(levels, groupings.values(), strict=True):
        if level not in known and level != MARK:
            known_labels = ", ".join(map(repr, known[:10]))
            warn_user(
                f"the fit never saw a group {level!r} (its groups are: {known_labels}): these are "
                "the curves of a new group, with wider bands",
                ItemsWarning,
            )
    return np.full(n, label, dtype=object)


def _sizes(fit: Fit, exposure: ArrayLike | None, n: int) -> Floats | None:
    """Exposures for every score."""
    if exposure is None:
        return None
    if fit.prior.exposure is None:
        raise FitError(
            "the fit has no term in exposure, so its curves do not depend on it: "
            "leave out exposure=, or fit soc.Gamma(exposure=soc.Spline())"
        )
    sizes = numbers_of(exposure, "exposure")
    if sizes.shape not in ((), (n,)) or not (np.isfinite(sizes) & (sizes > 0)).all():
        raise FitError(
            f"exposure={shown(exposure)} must be a positive number, or one for each of {n} scores"
        )
    return np.broadcast_to(sizes, n)


def _over_sizes(fit: Fit, score: Floats, labels: Any, by_size: bool) -> dict[str, Floats]:
    """Curves averaged over the exposures (noise sds) of items with similar scores."""
    data, atom = fit.data["constant_data"], atom_of(fit, score)
    middle, sizes = data["share_position"].to_numpy(), np.exp(data["share_log_size"].to_numpy())
    shares = [data[name].to_numpy() for name in ("share", "atom_share") if name in data]
    if by_size:
        shares = [share * sizes / (share @ sizes)[:, None] for share in shares]
    posterior, position = posterior_of(fit), place_of(fit, "mean", score)
    mean, square, zero = 0.0, 0.0, 0.0
    for k, size in enumerate(sizes):
        weight = np.interp(position, middle, shares[0][:, k])
        if atom.any():
            weight[atom > 0] = shares[1][atom[atom > 0] - 1, k]
        curves = posterior.curves(score, labels, np.full(len(score), size))
        mean = mean + weight * curves["mean"]
        square = square + weight * (curves["variance"] + curves["mean"] ** 2)
        zero = zero + weight * curves.get(P_ZERO, 0.0)
    variance = np.maximum(square - mean**2, np.finfo(float).tiny)
    variables = moment_variables(np.asarray(mean), variance, curves)
    return {**variables, P_ZERO: np.asarray(zero)} if P_ZERO in curves else variables


def default_scores(fit: Fit) -> Floats:
    """Default scores of curves, between the outer bins."""
    centre = fit.data["constant_data"]["score"].to_numpy()
    centre = centre[atom_of(fit, centre) == 0]
    axis = fit.axis("mean")
    low, high = axis([centre.min(), centre.max()])
    if low == high:
        return centre[:1]
    return axis.inverse(np.linspace(low, high, _POINTS))


def bands(curves: xr.Dataset, prob: float = 0.9, simultaneous: bool = False) -> xr.Dataset:
    """Credible bands of curves.

    Parameters
    ----------
    curves
        From `calibration_curves`, all variables or some.
    prob
        Probability of the bands, between 0 and 1.
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
        If `prob` is not between 0 and 1, or `curves` are something else, such as R-squared.

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
        raise FitError(f"curves must be {expected}: they have no dimension {min(lack)!r}")
    PROBABILITY(prob, "prob")
    switch(simultaneous, "simultaneous")
    return curves.map(_band, prob=prob, simultaneous=simultaneous)


def _band(draws: xr.DataArray, prob: float, simultaneous: bool) -> xr.DataArray:
    default = LOG.name if draws.name in _POSITIVE else LINEAR.name
    scale = SCALES[draws.attrs.get("banded", default)]
    values = draws.transpose("chain", "draw", "score").to_numpy()
    values = scale.position(values.reshape(-1, values.shape[-1]))
    low, middle, high = np.quantile(values, [(1 - prob) / 2, 0.5, (1 + prob) / 2], axis=0)
    if simultaneous:
        tiny = np.finfo(float).tiny
        above = (values - middle) / np.maximum(high - middle, tiny)
        below = (middle - values) / np.maximum(middle - low, tiny)
        reach = np.maximum(above, below).max(axis=1)
        factor = max(1.0, float(np.quantile(reach, prob, method="higher")))
        low, high = middle - factor * (middle - low), middle + factor * (high - middle)
    coords = {"bound": ["lower", "median", "upper"]} | dict(draws["score"].coords)
    return xr.DataArray(scale.score(np.array([low, middle, high])), coords, ("bound", "score"))


# --- bins ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
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


def bin_scores_of(fit: Fit, stats: Statistics, coarse: int = 1) -> BinScores:
    """Mean scores of bins, merged by `coarse`, and the variance of theta by their spread."""
    check_groups(fit, stats)
    part, labels = stats.table("part"), np.array(stats.groups, dtype=object)
    scale, bins = fit.axis("mean").local, -(-stats.bins // coarse)
    key = part["group"] * bool(len(labels)) * bins + part["bin"] // coarse
    rows = pd.DataFrame({name: part[name] for name in ("n", *scale.sums)}).groupby(key).sum()
    group, number = np.divmod(rows.index.to_numpy(), bins)
    mean, square = (rows[name].to_numpy() / rows["n"].to_numpy() for name in scale.sums)
    variance = square - mean**2
    half_sd = 0.5 * np.sqrt(np.where(variance > _LEAST * square, variance, 0.0))
    label = labels[group] if fit.groups else None
    below, above = (
        _mean_curve(fit, scale.score(end), label) for end in (mean - half_sd, mean + half_sd)
    )
    # where all items of a bin have the score of an atom, the mean score is not rounded
    ends = pd.DataFrame({"low": part["score_min"], "high": part["score_max"]}).groupby(key)
    low, high = ends["low"].min().to_numpy(), ends["high"].max().to_numpy()
    score = np.where((low == high) & (atom_of(fit, low) > 0), low, scale.score(mean))
    return BinScores(group, number, score, (above - below) ** 2)


def _mean_curve(fit: Fit, score: Floats, label: NDArray[Any] | None) -> Floats:
    """Average over the draws of the position of E(theta | t) on its scale, (n,)."""
    posterior, positions, step = posterior_of(fit), [], items_at_once(fit)
    for start in range(0, len(score), step):
        chunk = slice(start, start + step)
        # a term in exposure shifts the whole curve of a bin, so any exposure will do
        size = np.ones(len(score[chunk]))
        curves = posterior.curves(score[chunk], None if label is None else label[chunk], size)
        positions.append(posterior.outcome.theta.position(curves["mean"]).mean(axis=0))
    return np.concatenate(positions)
