"""What a fit says of theta given the score: E and Var(theta | t), draw by draw, and their bands."""

import zlib

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from .errors import FitError
from .families import poisson_gamma
from .families.bin_effects import draw_prior
from .families.monotone import project_monotone
from .results import CURVES, Fit
from .splines import spline_matrix

__all__ = ["bands", "calibration_curves", "curve_draws", "knot_weights"]

Floats = NDArray[np.float64]

_POINTS = 200
_POSITIVE = ("mean", "variance", "shape", "rate")  # banded on the log scale


def knot_weights(fit: Fit, curve: str, score: ArrayLike) -> tuple[Floats, Floats]:
    """Values of a shared curve at its knots, and the weights that turn them into values at scores.

    Parameters
    ----------
    fit
        The fit.
    curve
        ``"mean"`` (of log E(theta|t), or of E(theta|t) itself for Normal priors) or ``"variance"``
        (of log cv2, or of log Var(theta|t)).
    score
        Scores, shape (n,).

    Returns
    -------
    tuple of numpy.ndarray
        Values (draws, k), chains one after the other, and weights (n, k): the curve's draws at the
        scores are values @ weights.T.
    """
    name = _variable(fit, curve)
    values = fit.data["posterior"][name]
    at = spline_matrix(fit.axis(curve)(score), values[f"{curve}_knot"].to_numpy())
    return _draws(fit, name), at


def curve_draws(
    fit: Fit,
    score: ArrayLike,
    *,
    group: ArrayLike | None = None,
    exposure: ArrayLike | None = None,
) -> tuple[Floats, Floats]:
    """Draws of both curves at scores: log mean and log cv2, or mean and log variance.

    Parameters
    ----------
    fit
        The fit.
    score
        Scores, shape (n,).
    group
        Label of the group at each score, shape (n,), for a fit with groups; None is the population
        curve that the groups share. A group that the fit never saw gets the population curve plus
        deviations drawn from their prior, the same ones wherever its label occurs.
    exposure
        Exposure (noise sd for Normal items) at each score, shape (n,), for a fit with a term in it;
        below and above those of the fit it counts as the least and the largest of them.

    Returns
    -------
    tuple of numpy.ndarray
        log E(theta|t) and log cv2(t), or E(theta|t) and log Var(theta|t), each of shape (draws, n),
        chains one after the other.

    Raises
    ------
    FitError
        If a score has no place on a curve's axis, or the fit has no groups or no term in exposure
        and is asked for one, or has the term and no exposure is given.
    """
    _check_terms(fit, group, exposure)
    return tuple(  # type: ignore[return-value]
        _curve(fit, curve, np.asarray(score, dtype=float), group, exposure)
        for curve in ("mean", "variance")
    )


def _check_terms(fit: Fit, group: ArrayLike | None, exposure: ArrayLike | None) -> None:
    if group is not None and not fit.groups:
        raise FitError(
            "the fit has no groups: give the items group= and fit their statistics with groups=True"
        )
    if exposure is not None and fit.prior.exposure is None:
        raise FitError(
            "theta does not depend on the exposure in this fit: fit with exposure=soc.Spline()"
        )
    if exposure is None and fit.prior.exposure is not None:
        raise FitError("theta depends on the exposure in this fit: give the exposure too")


def _variable(fit: Fit, curve: str) -> str:
    names = CURVES[type(fit.prior).__name__]
    return names[("mean", "variance").index(curve)]


def _draws(fit: Fit, name: str) -> Floats:
    """A posterior variable with chains one after the other."""
    values = fit.data["posterior"][name].to_numpy()
    return np.asarray(values.reshape(-1, *values.shape[2:]))


def _curve(
    fit: Fit, curve: str, score: Floats, group: ArrayLike | None, exposure: ArrayLike | None
) -> Floats:
    """Draws of one curve, with all its terms."""
    name = _variable(fit, curve)
    values, at = knot_weights(fit, curve, score)
    if group is None:
        total = values @ at.T
    else:
        labels, code = np.unique(np.asarray(group).astype(str), return_inverse=True)
        total = np.empty((len(values), len(score)))
        for i, label in enumerate(labels):
            own = code == i
            total[:, own] = _of_group(fit, curve, str(label)) @ at[own].T
    posterior = fit.data["posterior"]
    if exposure is not None and f"{name}_by_exposure" in posterior:
        knots = posterior[f"{curve}_exposure_knot"].to_numpy()
        with np.errstate(divide="ignore"):  # nothing seen in no exposure: the least there was
            x = np.clip(np.log(np.asarray(exposure, dtype=float)), knots[0], knots[-1])
        total += _draws(fit, f"{name}_by_exposure") @ spline_matrix(x, knots).T
    if f"{name}_of_bin" in posterior:
        total += _bin_effects(fit, name, score)
    return np.asarray(total)


def _of_group(fit: Fit, curve: str, label: str) -> Floats:
    """Values of a group's curve at the knots, (draws, k)."""
    name = _variable(fit, curve)
    if label in fit.groups:
        return _draws(fit, f"{name}_of_group")[:, fit.groups.index(label)]
    constant = fit.data["constant_data"]
    functions = constant[f"{curve}_group_functions"]
    kinds = functions[f"{curve}_group_function"].to_numpy()
    sd = np.stack([_draws(fit, f"{name}_{kind}_sd") for kind in kinds], axis=1)
    rng = np.random.default_rng([zlib.crc32(label.encode()), len(curve)])
    values = _draws(fit, name) + (sd * rng.normal(size=sd.shape)) @ functions.to_numpy().T
    if curve == "mean" and fit.prior.monotone:
        return project_monotone(values, functions[f"{curve}_knot"].to_numpy())
    return np.asarray(values)


def _bin_effects(fit: Fit, name: str, score: Floats) -> Floats:
    """Effects of the scores' bins; of a bin that held no item, from their prior."""
    constant = fit.data["constant_data"]
    effects = fit.data["posterior"][f"{name}_of_bin"]
    bin_of = np.searchsorted(constant["edge"].to_numpy(), score, side="right")
    known, values = effects["effect_bin"].to_numpy(), _draws(fit, f"{name}_of_bin")
    at = np.minimum(np.searchsorted(known, bin_of), len(known) - 1)
    found = values[:, at]
    new = known[at] != bin_of
    if new.any():
        bins, code = np.unique(bin_of[new], return_inverse=True)
        rng = np.random.default_rng(0)
        scale = np.repeat(_draws(fit, f"{name}_bin_effect_sd")[:, None], len(bins), axis=1)
        found[:, new] = draw_prior(scale, rng)[:, code]
    return np.asarray(found)


def calibration_curves(fit: Fit, score: ArrayLike | None = None) -> xr.Dataset:
    """Calibration curves of first and second order, draw by draw.

    Parameters
    ----------
    fit
        The fit.
    score
        Scores at which to evaluate, shape (n,); None takes 200 points between the centres of the
        first and the last bin, evenly on the axis of the mean. Beyond the data curves are straight
        lines on their axis.

    Returns
    -------
    xarray.Dataset
        Dims (chain, draw, score). ``mean`` = E(theta|t) in events per unit of exposure,
        ``variance`` = Var(theta|t) in its square, ``log_mean``, ``log_variance``, and the Gamma
        prior's ``shape`` (no unit) and ``rate`` (exposure).

    Raises
    ------
    FitError
        If `score` is not a vector of finite numbers or has no place on a curve's axis.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> frame = soc.simulation.s1(2000, seed=0)
    >>> items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    >>> fit = soc.fit(soc.summarize(items), progress=False)
    >>> curves = soc.calibration_curves(fit, [0.02, 0.05])
    >>> dict(curves["mean"].sizes)
    {'chain': 1, 'draw': 1000, 'score': 2}
    """
    at = _default_scores(fit) if score is None else np.asarray(score, dtype=float)
    if at.ndim != 1 or not len(at) or not np.isfinite(at).all():
        raise FitError(f"score must be a vector of finite numbers, not {score!r}")
    log_mean, log_cv2 = curve_draws(fit, at)
    shape, rate = poisson_gamma.shape_rate(log_mean, log_cv2)
    variables = {
        "mean": np.exp(log_mean),
        "variance": np.exp(log_cv2 + 2.0 * log_mean),
        "log_mean": log_mean,
        "log_variance": log_cv2 + 2.0 * log_mean,
        "shape": shape,
        "rate": rate,
    }
    posterior = fit.data["posterior"]
    sizes = (posterior.sizes["chain"], posterior.sizes["draw"], len(at))
    dims = ("chain", "draw", "score")
    curves = {k: (dims, v.reshape(sizes)) for k, v in variables.items()}
    coords = {"chain": posterior["chain"], "draw": posterior["draw"], "score": at}
    return xr.Dataset(curves, coords)


def _default_scores(fit: Fit) -> Floats:
    centre = fit.data["constant_data"]["score"].to_numpy()
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
        From `calibration_curves`.
    prob
        Probability of the bands, between 0 and 1.
    simultaneous
        False: at each score, the central interval that holds a share `prob` of the draws. True:
        wider, so that a share `prob` of whole curves lies inside at all scores at once; pointwise
        half-widths are multiplied by the smallest factor that does it (Montiel Olea and
        Plagborg-Moller 2019).

    Returns
    -------
    xarray.Dataset
        The same variables with dims (bound, score), bound = lower, median, upper.

    Raises
    ------
    FitError
        If `prob` is not between 0 and 1.

    Examples
    --------
    >>> import numpy as np, xarray as xr
    >>> values = np.arange(101.0)[None, :, None]
    >>> draws = xr.Dataset({"log_mean": (("chain", "draw", "score"), values)})
    >>> bands(draws)["log_mean"].to_numpy().ravel()
    array([ 5., 50., 95.])
    """
    if not 0 < prob < 1:
        raise FitError(f"prob={prob} must be between 0 and 1")
    banded = {name: _band(curves[name], prob, simultaneous) for name in curves.data_vars}
    return xr.Dataset(banded)


def _band(draws: xr.DataArray, prob: float, simultaneous: bool) -> xr.DataArray:
    positive = draws.name in _POSITIVE
    values = draws.transpose("chain", "draw", "score").to_numpy()
    values = values.reshape(-1, values.shape[-1])
    values = np.log(values) if positive else values
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
    return xr.DataArray(np.exp(band) if positive else band, dims=("bound", "score"), coords=coords)
