"""Draws of E(theta | t) and Var(theta | t), and their bands."""

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from .._lib.arguments import PROBABILITY, A, numbers_of, shown, switch
from .._lib.arrays import Floats
from .._lib.errors import FitError, ItemsWarning, warn_user
from ..data.groups import CROSS, MARK, column_of, label_of, roles_of
from ..families.scales import LINEAR, LOG, LOGIT, SCALES
from ..inference.results import FIT, Fit
from .curves import P_ZERO, atom_of, moment_variables, place_of
from .extrapolation import warn_of_extrapolation
from .predictive import posterior_of
from .scoring import Posterior

_POINTS = 200
_LABEL = str | int | np.integer | np.bool_ | None
_POSITIVE = ("variance", "shape", "rate", "a", "b")  # banded on the log scale


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
        Scores at which to evaluate, shape (n,); None takes 200 points between the centres of the
        first and the last bin, evenly on the axis of the mean. Beyond the data curves are straight
        lines on their axis, kept between 1e-100 and 1e100.
    group
        For a fit with groups: the label of a group, for its curves; None gives the shared curves. A
        group that the fit never saw gets the shared curves with deviations drawn from their prior,
        hence wider bands. For crossed groups: a level of each, ``("FR", "phone")``, or
        ``("FR", None)`` for the curves with the effects of only one.
    exposure
        For a fit with a term in exposure (or noise sd): a number > 0, or one for each score; None
        averages over the exposures of items with similar scores.

    Returns
    -------
    xarray.Dataset
        Dims (chain, draw, score). ``mean`` = E(theta | t) in events per unit of exposure (in the
        unit of the values), ``variance`` = Var(theta | t) in its square, ``log_variance``; and for
        a Gamma prior ``log_mean``, ``shape`` (no unit) and ``rate`` (exposure). For a prior with
        ``zero=True`` these are of all theta, zeros included (shape and rate those of the Gamma with
        these moments), and ``p_zero`` = P(theta = 0 | t).

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
        variables = _over_sizes(fit, posterior, scores, labels, by_size)
    else:
        variables = posterior.curves(scores, labels, sizes)
    draws = fit.data["posterior"]
    shape = (draws.sizes["chain"], draws.sizes["draw"], len(scores))
    dims = ("chain", "draw", "score")
    curves = {
        name: (
            dims,
            values.reshape(shape),
            {"banded": _scale(name, posterior)},
        )
        for name, values in variables.items()
    }
    coords = {"chain": draws["chain"], "draw": draws["draw"], "score": scores}
    return xr.Dataset(curves, coords)


def _scale(name: str, posterior: Posterior) -> str:
    """Name of the scale on which a variable is banded."""
    if name == "mean":
        return posterior.outcome.theta.name
    if name == P_ZERO:
        return LOGIT.name
    return LOG.name if name in _POSITIVE else LINEAR.name


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


def _over_sizes(
    fit: Fit,
    posterior: Posterior,
    score: Floats,
    labels: NDArray[np.object_] | None,
    by_size: bool,
) -> dict[str, Floats]:
    """Curves averaged over the exposures (noise sds) of items with similar scores."""
    kept = fit.data["constant_data"]
    middle, sizes = kept["share_position"].to_numpy(), np.exp(kept["share_log_size"].to_numpy())
    share = kept["share"].to_numpy()
    position = place_of(fit, "mean", score)
    mean, square, zero = 0.0, 0.0, 0.0
    atom = atom_of(fit, score)
    atom_share = kept["atom_share"].to_numpy() if atom.any() else share
    if by_size:
        atom_share, share = (x * sizes / (x @ sizes)[:, None] for x in (atom_share, share))
    for k, (size, column) in enumerate(zip(sizes, share.T, strict=True)):
        weight = np.interp(position, middle, column)
        if atom.any():
            weight[atom > 0] = atom_share[atom[atom > 0] - 1, k]
        curves = posterior.curves(score, labels, np.full(len(score), size))
        mean = mean + weight * curves["mean"]
        square = square + weight * (curves["variance"] + curves["mean"] ** 2)
        zero = zero + weight * curves.get(P_ZERO, 0.0)
    variance = np.maximum(square - mean**2, np.finfo(float).tiny)
    variables = moment_variables(np.asarray(mean), variance, curves)
    return {**variables, P_ZERO: np.asarray(zero)} if P_ZERO in curves else variables


def default_scores(fit: Fit) -> Floats:
    """Scores of curves without scores of their own, between the outer bins."""
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
        From `calibration_curves`, all variables or some, ``curves[["mean"]]``. For a single number,
        such as R-squared, use its own ``quantile``.
    prob
        Probability of the bands, between 0 and 1.
    simultaneous
        False: at each score, the central interval with a share `prob` of the draws. True: wider, so
        that a share `prob` of whole curves lies inside at all scores; pointwise half-widths are
        multiplied by the smallest factor that achieves this (Montiel Olea and Plagborg-Moller
        2019).

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
    >>> import numpy as np, xarray as xr
    >>> values = np.arange(101.0)[None, :, None]
    >>> draws = xr.Dataset({"log_mean": (("chain", "draw", "score"), values)})
    >>> bands(draws)["log_mean"].to_numpy().ravel()
    array([ 5., 50., 95.])
    """
    wanted = "curves, from soc.calibration_curves(fit)"
    if isinstance(curves, xr.DataArray):
        name = curves.name or "one variable"
        raise FitError(
            f"curves must be {wanted}, not the array {name!r}: the interval of a quantity without "
            "scores is quantity.quantile([0.05, 0.95], ('chain', 'draw')), and one variable of "
            "curves is curves[[name]]"
        )
    A(xr.Dataset, wanted)(curves, "curves")
    lack = {"chain", "draw", "score"} - set(curves.dims)
    if lack:
        raise FitError(f"curves must be {wanted}: they have no dimension {min(lack)!r}")
    PROBABILITY(prob, "prob")
    switch(simultaneous, "simultaneous")
    banded = {name: _band(curves[name], prob, simultaneous) for name in curves.data_vars}
    return xr.Dataset(banded)


def _band(draws: xr.DataArray, prob: float, simultaneous: bool) -> xr.DataArray:
    default = LOG.name if draws.name in _POSITIVE else LINEAR.name
    scale = SCALES[draws.attrs.get("banded", default)]
    values = draws.transpose("chain", "draw", "score").to_numpy()
    values = values.reshape(-1, values.shape[-1])
    values = scale.position(values)
    low, middle, high = np.quantile(values, [(1 - prob) / 2, 0.5, (1 + prob) / 2], axis=0)
    if simultaneous:
        tiny = np.finfo(float).tiny
        above = (values - middle) / np.maximum(high - middle, tiny)
        below = (middle - values) / np.maximum(middle - low, tiny)
        reach = np.maximum(above, below).max(axis=1)
        factor = max(1.0, float(np.quantile(reach, prob, method="higher")))
        low, high = middle - factor * (middle - low), middle + factor * (high - middle)
    band = np.array([low, middle, high])
    coords: dict[str, object] = {"bound": ["lower", "median", "upper"]}
    if "score" in draws.coords:
        coords["score"] = draws["score"].to_numpy()
    return xr.DataArray(scale.score(band), dims=("bound", "score"), coords=coords)
