"""What a fit says of theta given the score: E and Var(theta | t), draw by draw, and their bands."""

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from .errors import FitError
from .families import poisson_gamma
from .results import Fit
from .splines import spline_matrix

__all__ = ["bands", "calibration_curves", "curve_draws", "knot_weights"]

Floats = NDArray[np.float64]

_POINTS = 200
_POSITIVE = ("mean", "variance", "shape", "rate")  # banded on the log scale
_CURVES = {"mean": ("log_mean", "mean_knot"), "variance": ("log_cv2", "variance_knot")}


def knot_weights(fit: Fit, curve: str, score: ArrayLike) -> tuple[Floats, Floats]:
    """Values of a curve at its knots, and the weights that turn them into values at scores.

    Parameters
    ----------
    fit
        The fit.
    curve
        ``"mean"`` (of log E(theta|t)) or ``"variance"`` (of log cv2).
    score
        Scores, shape (n,).

    Returns
    -------
    tuple of numpy.ndarray
        Values (draws, k), chains one after the other, and weights (n, k): the curve's draws at the
        scores are values @ weights.T.
    """
    name, knot = _CURVES[curve]
    values = fit.data["posterior"][name]
    at = spline_matrix(fit.axis(curve)(score), values[knot].to_numpy())
    return values.to_numpy().reshape(-1, values.sizes[knot]), at


def curve_draws(fit: Fit, score: ArrayLike) -> tuple[Floats, Floats]:
    """Draws of log mean and log cv2 at scores.

    Parameters
    ----------
    fit
        The fit.
    score
        Scores, shape (n,).

    Returns
    -------
    tuple of numpy.ndarray
        log E(theta|t) and log cv2(t), each of shape (draws, n), chains one after the other.

    Raises
    ------
    FitError
        If a score has no place on a curve's axis.
    """
    mean, mean_at = knot_weights(fit, "mean", score)
    cv2, cv2_at = knot_weights(fit, "variance", score)
    return mean @ mean_at.T, cv2 @ cv2_at.T


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
