"""Step 3: smoothing splines through the bins' estimates."""

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, optimize

from ...model.splines import place_knots, roughness, spline_matrix

__all__ = ["MOST_KNOTS", "smoothing_spline"]

Floats = NDArray[np.float64]

MOST_KNOTS = 100
"""Of a smoothing spline: of more bins it is a regression spline at so many quantiles."""
_RIDGE = 1e-10
_GRID = 121  # smoothing parameters tried before the best is refined


def smoothing_spline(position: Floats, response: Floats, weight: Floats) -> tuple[Floats, Floats]:
    """The natural cubic spline that smooths points, as values at knots.

    It minimises the weighted squares plus a multiple of the integral of the squared second
    derivative (Green and Silverman 1994, section 2.3), with a knot at each point, or at 100
    quantiles of more points. The multiple has the highest restricted likelihood, the errors'
    scale unknown (Wahba 1985; Wood 2011): unlike generalised cross-validation it hardly ever
    follows the noise.

    Parameters
    ----------
    position, response, weight
        The points, each (n,); the weights are the errors' precisions up to a factor.

    Returns
    -------
    tuple of numpy.ndarray
        Knots (k,) and values (k,) for `splines.spline_matrix`. Two points make a line, one a
        constant.

    Examples
    --------
    >>> x = np.linspace(0.0, 1.0, 9)
    >>> knots, values = smoothing_spline(x, 2.0 + x, np.ones(9))
    >>> bool(np.allclose(values, 2.0 + knots))
    True
    """
    knots = place_knots(position, np.ones(len(position)), MOST_KNOTS)
    at = spline_matrix(position, knots)
    w = weight / weight.mean()
    gram = at.T @ (w[:, None] * at)
    pull = at.T @ (w * response)
    if len(knots) < 3:
        return knots, np.linalg.solve(gram, pull)
    rough = roughness(knots) * (knots[-1] - knots[0]) ** 3
    gram += _RIDGE * np.trace(gram) / np.trace(rough) * rough
    root = linalg.cholesky(gram, lower=True)
    half = linalg.solve_triangular(root, rough, lower=True)
    whole = linalg.solve_triangular(root, half.T, lower=True)
    penalty, turn = linalg.eigh(0.5 * (whole + whole.T))
    penalty[:2] = 0.0  # constants and straight lines
    z = turn.T @ linalg.solve_triangular(root, pull, lower=True)
    left = max(float(w @ response**2 - z @ z), 0.0)
    multiple = _best_multiple(penalty, z, left, len(position))
    shrunk = turn @ (z / (1.0 + multiple * penalty))
    return knots, linalg.solve_triangular(root, shrunk, lower=True, trans=1)


def _best_multiple(penalty: Floats, z: Floats, left: float, number: int) -> float:
    """Smoothing parameter of the highest restricted likelihood."""
    d, own = penalty[2:], z[2:] ** 2
    tiny = 1e-14 * (left + float(z @ z)) + np.finfo(float).tiny

    def criterion(log_multiple: float) -> float:
        x = np.exp(log_multiple) * d
        squares = left + float(own @ (x / (1.0 + x))) + tiny
        return float((number - 2) * np.log(squares) + np.log1p(1.0 / x).sum())

    ends = -np.log(d[-1]) - 7.0, -np.log(d[0]) + 14.0
    grid = np.linspace(*ends, _GRID)
    best = int(np.argmin([criterion(x) for x in grid]))
    around = grid[max(best - 1, 0)], grid[min(best + 1, _GRID - 1)]
    found = optimize.minimize_scalar(criterion, bounds=around, method="bounded")
    return float(np.exp(found.x))
