"""Monte Carlo error of the fixed draws over which the evidence bound is averaged.

Other fixed draws would have given another optimum. Giordano, Ingram and Broderick (2024) estimate
its covariance by the sandwich H^-1 Cov(gradient of a draw) H^-1 / S, as for any M-estimator of S
independent draws. Ours are not independent: mirrored pairs cancel all odd terms of the log density
and a rotated cross averages all quadratic ones exactly, so that pairs as units give up to 15 times
the true error. The independent unit is a whole set of draws, and the fit has one. A few new sets
therefore stand in for the covariance of the gradient, and two quasi-Newton steps from the fit's
optimum for H^-1.
"""

from collections.abc import Callable

import numpy as np

from .._lib.arrays import Floats
from .density import Evaluate

_MOST_SETS, _MOST_DRAWS = 3, 300  # so that the error takes about a twentieth of a fit's time
_FIRST, _FURTHEST = 0.5, 2.0  # sd; a cross may reach into tails whose gradients are huge


def fixed_draw_errors(
    evaluate: Evaluate, location: Floats, factor: Floats, redraw: Callable[[], Floats]
) -> Floats:
    """Monte Carlo standard errors of the means of all coordinates, in posterior sd.

    The evidence bound is at its maximum at w = location + factor @ N(0, I). `redraw` returns draws
    of the same design as those of the fit, (draws, dim). A log density that is not finite at one
    of them makes errors NaN.
    """
    sets = [redraw()]
    for _ in range(1, min(_MOST_SETS, _MOST_DRAWS // len(sets[0]))):
        sets.append(redraw())
    draws, dim = np.array(sets), len(location)
    hessian = np.repeat([1.0, 2.0], dim)  # of the bound of a Gaussian, by means and log sds

    def step(at: Floats) -> Floats:
        """Newton steps of means and log sds towards the optimum of every set of draws."""
        mean, sd = at[:, None, :dim], np.exp(at[:, None, dim:])
        rows = (mean + sd * draws).reshape(-1, dim)
        gradient = (evaluate(location + rows @ factor.T)[1] @ factor).reshape(draws.shape)
        by_log_sd = (gradient * draws * sd).mean(axis=1) + 1.0
        return np.hstack([gradient.mean(axis=1), by_log_sd]) / hessian

    def at_most(length: float, x: Floats) -> Floats:
        own = np.sqrt((hessian * x**2).sum(axis=1, keepdims=True))
        return x * (length / np.maximum(own, length))

    first = step(np.zeros((len(draws), 2 * dim)))
    there = at_most(_FIRST, first)
    second = step(there)
    # Anderson's secant step: a Gaussian's own curvature is wrong where the posterior is skewed
    change = second - first
    square = (hessian * change**2).sum(axis=1)
    along = (hessian * second * change).sum(axis=1)
    share = np.divide(along, square, out=np.zeros(len(draws)), where=square != 0)[:, None]
    found = at_most(_FURTHEST, there + second - share * (there + change))
    means = np.vstack([np.zeros(dim), found[:, :dim] @ factor.T])
    return np.asarray(means.std(axis=0, ddof=1) / np.sqrt((factor**2).sum(axis=1)))


def weighted_errors(noise: Floats, weight: Floats, factor: Floats) -> Floats:
    """Monte Carlo standard errors of weighted draws' means of all coordinates, in posterior sd.

    The draws are location + factor @ noise, with noise (draws, dim) and weights that add up to 1.
    """
    away = (noise - weight @ noise) @ factor.T
    return np.asarray(np.sqrt(weight**2 @ away**2 / (weight @ away**2)))


def largest_error(errors: Floats) -> float | None:
    """The largest error; None if any is not finite."""
    return float(errors.max()) if np.isfinite(errors).all() else None
