"""Draws of a fit's two curves at scores, from their values at knots."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .errors import FitError
from .priors import Normal
from .results import Fit
from .splines import spline_matrix

__all__ = ["curve_draws", "knot_weights"]

Floats = NDArray[np.float64]

_CURVES = {"mean": ("log_mean", "mean_knot"), "variance": ("log_cv2", "variance_knot")}
_NORMAL = {"mean": ("mean", "mean_knot"), "variance": ("log_variance", "variance_knot")}


def knot_weights(fit: Fit, curve: str, score: ArrayLike) -> tuple[Floats, Floats]:
    """Values of a curve at its knots, and the weights that turn them into values at scores.

    Parameters
    ----------
    fit
        The fit.
    curve
        ``"mean"`` (of log E(theta|t), or of E(theta|t) for a Normal prior) or ``"variance"`` (of
        log cv2, or of log variance).
    score
        Scores, shape (n,).

    Returns
    -------
    tuple of numpy.ndarray
        Values (draws, k), chains one after the other, and weights (n, k): the curve's draws at the
        scores are values @ weights.T.
    """
    name, knot = (_NORMAL if isinstance(fit.prior, Normal) else _CURVES)[curve]
    values = fit.data["posterior"][name]
    at = spline_matrix(fit.axis(curve)(score), values[knot].to_numpy())
    return values.to_numpy().reshape(-1, values.sizes[knot]), at


def curve_draws(
    fit: Fit,
    score: ArrayLike,
    *,
    group: ArrayLike | None = None,
    exposure: ArrayLike | None = None,
) -> tuple[Floats, Floats]:
    """Draws of both curves at scores: log mean and log cv2, or mean and log variance (Normal).

    Parameters
    ----------
    fit
        The fit.
    score
        Scores, shape (n,).
    group, exposure
        Each item's group and exposure (noise sd for Normal), where the fit has such terms.

    Returns
    -------
    tuple of numpy.ndarray
        The two curves, each of shape (draws, n), chains one after the other.

    Raises
    ------
    FitError
        If a score has no place on a curve's axis.
    """
    if group is not None or exposure is not None:
        raise FitError("this fit has no curves of groups or exposures")
    mean, mean_at = knot_weights(fit, "mean", score)
    variance, variance_at = knot_weights(fit, "variance", score)
    return mean @ mean_at.T, variance @ variance_at.T
