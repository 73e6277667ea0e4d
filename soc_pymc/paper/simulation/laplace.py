"""Section 5.3 of the paper: Normal outcomes with Laplace effects, and the exact posterior."""

import numpy as np
import pandas as pd
from numpy.polynomial.hermite_e import hermegauss
from numpy.typing import NDArray
from scipy import special
from scipy.interpolate import CubicSpline

from ..._lib.arguments import instance
from ..._lib.errors import ItemsError
from .asked import random_numbers

__all__ = ["laplace_effects", "laplace_oracle"]

Floats = NDArray[np.float64]

_LINEAR = np.array([1.0, 0, 0, -0.7, 0, 0, 0, 0, 0, 0])
_QUADRATIC = np.array([0.0, 0.1, 0, 0, 0, 0, 0, 0, 0, 0])
_BEND = float(_QUADRATIC @ _QUADRATIC)  # mean of (x'g)^2
_FOLDS = 5
_FARTHEST = 1000.0  # y - t
_NODES = 30  # of the quadrature over x'g; the posterior's moments are smooth in it
_STEP = 0.01  # of the fine grid of y - t; splines on it err by 1e-10


def laplace_effects(n_items: int, seed: int = 0) -> pd.DataFrame:
    """Values whose effects have heavy tails around a regression, after the paper's Section 5.3.

    Ten covariates x are standard normal, theta = x'b + (x'g)^2 + Laplace noise of variance 2, with
    b = (1, 0, 0, -.7, 0, ...) and g = (0, .1, 0, ...), and y ~ Normal(theta, 1). The score is the
    prediction of a linear regression of y on x, fitted to the four fifths of the items that the
    item is not in.

    Parameters
    ----------
    n_items
        Number of items, at least 20.
    seed
        Seed of the random numbers.

    Returns
    -------
    pandas.DataFrame
        Columns score, value, noise_sd (all 1) and theta.

    Raises
    ------
    FitError
        If `n_items` is not a whole number of at least 20, or the machine has no memory for them.

    Examples
    --------
    >>> frame = laplace_effects(5000)
    >>> bool(abs((frame["value"] - frame["theta"]).var() - 1) < 0.1)
    True
    """
    rng = random_numbers(n_items, seed, len(_LINEAR) + 4, least=20)
    x = rng.standard_normal((n_items, len(_LINEAR)))
    theta = x @ _LINEAR + (x @ _QUADRATIC) ** 2 + rng.laplace(0.0, 1.0, n_items)
    value = theta + rng.standard_normal(n_items)
    return pd.DataFrame(
        {
            "score": _out_of_fold(x, value),
            "value": value,
            "noise_sd": np.ones(n_items),
            "theta": theta,
        }
    )


def _out_of_fold(x: Floats, y: Floats) -> Floats:
    """Predictions of least squares with an intercept, each fold's from the other folds."""
    products, targets = [], []
    for fold in range(_FOLDS):
        part = x[fold::_FOLDS]
        design = np.column_stack([np.ones(len(part)), part])
        products.append(design.T @ design)
        targets.append(design.T @ y[fold::_FOLDS])
    score = np.empty(len(y))
    for fold in range(_FOLDS):
        others = [k for k in range(_FOLDS) if k != fold]
        gram = np.sum([products[k] for k in others], axis=0)
        coefficients = np.linalg.solve(gram, np.sum([targets[k] for k in others], axis=0))
        score[fold::_FOLDS] = coefficients[0] + x[fold::_FOLDS] @ coefficients[1:]
    return score


def laplace_oracle(table: pd.DataFrame) -> tuple[Floats, Floats]:
    """Posterior mean and variance of theta given t and y: the best that their user can do.

    The regression of y on x is x'b + .01, the mean of (x'g)^2 = .01 chi2_1 being .01; and x'g is
    independent of x'b, because g is orthogonal to b. So theta - (t - .01) is, at every t, the sum
    of .01 chi2_1 and a Laplace variable, were the coefficients known. Their errors, of about
    6/sqrt(n_items) in t, are left out: they add 40/n_items to a variance of 2.

    Given x'g the posterior is two pieces of Normals, in closed form; over x'g Gauss-Hermite, and
    over y - t a cubic spline on a fine grid.

    Parameters
    ----------
    table
        Items of `laplace_effects`: columns score, value and noise_sd, all 1.

    Returns
    -------
    tuple of numpy.ndarray
        E(theta | t, y) and Var(theta | t, y), each of shape (n,), with errors below 1e-8.

    Raises
    ------
    ItemsError
        If the table has no such columns, or a value is more than 1,000 from its score, as none
        of `laplace_effects` ever is.

    Examples
    --------
    >>> mean, variance = laplace_oracle(laplace_effects(2000))
    >>> bool((variance < 1.02).all())
    True
    """
    instance(table, "table", pd.DataFrame, "a table that laplace_effects made", ItemsError)
    absent = [name for name in ("score", "value") if name not in table]
    if absent:
        raise ItemsError(f"the table has no column {absent[0]!r}: give one of laplace_effects")
    base = table["score"].to_numpy() - _BEND
    away = table["value"].to_numpy() - base
    bad = ~(np.abs(away) <= _FARTHEST)
    if bad.any():
        raise ItemsError(
            f"value: {int(bad.sum()):,} of {bad.size:,} are more than {_FARTHEST:,.0f} from their "
            "scores: give items of soc.simulation.laplace_effects"
        )
    grid = np.arange(away.min() - _STEP, away.max() + 2 * _STEP, _STEP)
    moments = CubicSpline(grid, np.stack(_posterior(grid), axis=1))(away)
    return base + moments[:, 0], moments[:, 1]


def _posterior(away: Floats) -> tuple[Floats, Floats]:
    """Mean and variance of the effect c + e given c + e + noise, c = .01 chi2_1, e Laplace."""
    node, weight = hermegauss(_NODES)
    bend = _BEND * node[:, None] ** 2
    v = away - bend
    # with e > 0 the product of exp(-e) and the noise's density is a Normal around v - 1, cut at 0;
    # with e < 0 around v + 1
    up, down = v - 1.0, -v - 1.0
    log_up, log_down = special.log_ndtr(up) - v, special.log_ndtr(down) + v
    log_marginal = np.logaddexp(log_up, log_down)
    share = np.exp(log_up - log_marginal)
    hazard_up, hazard_down = _hazard(up), _hazard(down)
    first = share * (up + hazard_up) - (1.0 - share) * (down + hazard_down)
    second = share * (1.0 + up * (up + hazard_up))
    second += (1.0 - share) * (1.0 + down * (down + hazard_down))
    log_weight = np.log(weight)[:, None] + log_marginal
    posterior = np.exp(log_weight - special.logsumexp(log_weight, axis=0))
    mean = (posterior * (bend + first)).sum(axis=0)
    within = (posterior * (second - first**2)).sum(axis=0)
    return mean, within + (posterior * (bend + first - mean) ** 2).sum(axis=0)


def _hazard(z: Floats) -> Floats:
    """Normal density over distribution function at z."""
    return np.asarray(np.exp(-0.5 * z * z - 0.5 * np.log(2 * np.pi) - special.log_ndtr(z)))
