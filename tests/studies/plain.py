"""The model in plain coordinates, and stock approximations of its posterior.

The plain statement is what one would write first: normal coefficients, half-normal smoothing
scales, PyMC's own transforms. `tests.studies.agreement` compares methods on it.
"""

import logging
import resource
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import xarray as xr
from arviz_stats.base import array_stats
from pymc.blocking import DictToArrayBijection
from scipy import optimize

from soc_pymc.inference.density import Space, density, make_space, mode, posterior_draws
from soc_pymc.model.likelihood import log_marginal, shared
from soc_pymc.model.problem import Problem
from soc_pymc.model.terms import Curve

__all__ = [
    "Approximation",
    "advi",
    "dadvi",
    "density_gap",
    "importance",
    "laplace",
    "pathfinder",
    "plain_model",
    "spent",
]

_DRAWS = 4000


@dataclass(frozen=True)
class Approximation:
    """What a method made of the plain statement, and what it cost.

    Attributes
    ----------
    posterior
        Draws as the method gives them.
    log_weight
        Log model density minus log approximate density, up to a constant.
    seconds
        CPU seconds of the fit, weights and draws not included.
    start_up
        CPU seconds of the same call with next to no steps, made before: compilation, unless it is
        in PyTensor's cache.
    note
        What else the method says of itself.
    """

    posterior: xr.Dataset
    log_weight: np.ndarray
    seconds: float
    start_up: float = np.nan
    note: str = ""


def spent(work: Callable[[], Any]) -> tuple[Any, float]:
    """Result and CPU seconds of one call, processes that it started included."""

    def used() -> float:
        usage = [resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(u.ru_utime + u.ru_stime for u in usage)

    before = used()
    result = work()
    return result, used() - before


def importance(log_weight: np.ndarray) -> tuple[float, float]:
    """Pareto k and effective sample over the number of draws."""
    clipped = np.maximum(log_weight, log_weight.max() - 700)
    # ArviZ's function is written for leave-one-out: it takes minus the log weights
    smoothed, k = array_stats.psislw(-clipped)
    weight = np.exp(np.asarray(smoothed) - np.max(smoothed))
    return float(k), float(weight.sum() ** 2 / (weight**2).sum() / len(weight))


def plain_model(built: Problem, centred: bool = False) -> pm.Model:
    """The same model with raw coefficients and the smoothing scales' logarithms as coordinates.

    Parameters
    ----------
    built
        From `soc_pymc.model.problem.build`.
    centred
        Whether the wiggly coefficients are coordinates themselves, instead of over their scale.
    """
    coords = {}
    for curve in built.curves:
        coords[f"{curve.name}_line"] = np.arange(curve.design.line.shape[1])
        coords[f"{curve.name}_basis"] = np.arange(curve.basis.wiggle.shape[1])
        coords[f"{curve.name}_knot"] = curve.basis.knots
    arrays = shared(built.data)
    with pm.Model(coords=coords) as plain:
        at_bins = [
            _plain_curve(curve, variable, centred)
            for curve, variable in zip(built.curves, built.family.curves, strict=True)
        ]
        bins = np.arange(len(built.score))
        pm.Potential("items", log_marginal(built.kernel, *at_bins, bins, *arrays)[0].sum())
    return plain


def _plain_curve(curve: Curve, variable: str, centred: bool) -> Any:
    """Variables of one curve; returns its values at the bins."""
    name, design, basis = curve.name, curve.design, curve.basis
    (block,) = design.blocks
    line = pm.Normal(f"{variable}_line", design.line_mean, design.line_sd, dims=f"{name}_line")
    tau = pm.HalfNormal(f"{variable}_wiggle_sd", block.scale)
    if centred:
        wiggle = pm.Normal(f"{variable}_wiggle", 0.0, tau, dims=f"{name}_basis")
    else:
        wiggle = tau * pm.Normal(f"{variable}_offset", 0.0, 1.0, dims=f"{name}_basis")
    knots = pt.dot(basis.line, line) + pt.dot(basis.wiggle, wiggle)
    pm.Deterministic(variable, knots, dims=f"{name}_knot")
    return pt.dot(design.line, line) + pt.dot(block.design, wiggle)


def density_gap(built: Problem, plain: pm.Model, centred: bool = False) -> float:
    """Largest difference between the two statements' log densities over a few points.

    The Jacobian between the coordinates is by central differences.
    """
    ours, theirs = make_space(built.model), make_space(plain)
    rng = np.random.default_rng(0)
    step = 1e-5 * np.eye(ours.dim)
    gaps = []
    for spread in (0.0, 0.5, 1.0, 2.0):
        w = spread * rng.normal(size=ours.dim)
        rows = _plain_rows(built, ours, np.vstack([w, w + step, w - step]), centred)
        slopes = (rows[1 : ours.dim + 1] - rows[ours.dim + 1 :]) / 2e-5
        there = density(theirs)(rows[:1])[0][0] + np.linalg.slogdet(slopes)[1]
        gaps.append(abs(density(ours)(w[None])[0][0] - there))
    return float(max(gaps))


def _plain_rows(built: Problem, space: Space, rows: np.ndarray, centred: bool) -> np.ndarray:
    """Plain coordinates of the same points as `rows` of the model's own."""
    draws = posterior_draws(space, rows[None])
    parts = []
    for variable, pilot in zip(
        built.family.curves, [c.laplace for c in built.coefficients], strict=True
    ):
        line, tau, z = (
            draws[f"{variable}_{part}"].to_numpy().reshape(len(rows), -1)
            for part in ("line", "wiggle_sd", "wiggle")
        )
        wiggle = z @ pilot.blocks[0].rotation.T
        parts += [line, np.log(tau), wiggle if centred else wiggle / tau]
    return np.hstack(parts)


def _normal_draws(
    plain: pm.Model, mean: np.ndarray, covariance: np.ndarray, seed: int
) -> tuple[xr.Dataset, np.ndarray]:
    """Draws of a normal approximation in the model's coordinates, and their log weights."""
    space = make_space(plain)
    noise = np.random.default_rng(seed).normal(size=(_DRAWS, space.dim))
    rows = mean + noise @ np.linalg.cholesky(covariance).T
    log_weight = density(space)(rows)[0] + 0.5 * (noise**2).sum(axis=1)
    return posterior_draws(space, rows[None]), log_weight


def advi(
    plain: pm.Model, full_rank: bool = False, iterations: int = 30_000, seed: int = 0
) -> Approximation:
    """PyMC's automatic differentiation variational inference, its own defaults but for length."""
    method = "fullrank_advi" if full_rank else "advi"
    logging.getLogger("pymc").setLevel(logging.ERROR)

    def fitted(steps: int) -> Any:
        return pm.fit(steps, method=method, model=plain, random_seed=seed, progressbar=False)

    _, start_up = spent(lambda: fitted(1))
    found, seconds = spent(lambda: fitted(iterations))
    tenth = len(found.hist) // 10
    before, last = found.hist[-2 * tenth : -tenth], found.hist[-tenth:]
    error = np.sqrt((before.var() + last.var()) / tenth)
    note = (
        f"loss {last.mean():.1f}, change over the last two tenths "
        f"{last.mean() - before.mean():.2f} (standard error {error:.2f})"
    )
    drawn = _normal_draws(plain, found.mean.eval(), found.cov.eval(), seed)
    return Approximation(*drawn, seconds, start_up, note)


def dadvi(plain: pm.Model, draws: int = 30, seed: int = 0) -> Approximation:
    """Deterministic ADVI with linear response (Giordano, Ingram and Broderick 2024).

    A mean-field normal maximises the evidence bound over fixed standard normal draws, 30 as in the
    paper. The covariance is the means' block of the inverse curvature of that bound.

    Raises
    ------
    ValueError
        If the optimiser does not arrive at a maximum, or leaves the range of finite densities.
    """
    (mean, covariance, note), seconds = spent(lambda: _linear_response(plain, draws, seed))
    return Approximation(*_normal_draws(plain, mean, covariance, seed), seconds, note=note)


def _linear_response(plain: pm.Model, number: int, seed: int) -> tuple[np.ndarray, np.ndarray, str]:
    space = make_space(plain)
    evaluate, dim = density(space), space.dim
    draws = np.random.default_rng(seed).normal(size=(number, dim))

    def negative(x: np.ndarray) -> tuple[float, np.ndarray]:
        mean, log_sd = x[:dim], x[dim:]
        away = np.exp(log_sd) * draws
        value, gradient = evaluate(mean + away)
        if not np.isfinite(value).all():
            raise ValueError(f"{np.isinf(value).sum()} of {len(value)} densities are not finite")
        bound = value.mean() + log_sd.sum()
        slopes = np.concatenate([gradient.mean(axis=0), (gradient * away).mean(axis=0) + 1.0])
        return -bound, -slopes

    start = np.concatenate(
        [DictToArrayBijection.map(plain.initial_point()).data, np.full(dim, -2.0)]
    )
    options = {"maxiter": 20_000, "maxfun": 40_000, "maxcor": 50, "ftol": 0.0, "gtol": 1e-3}
    found = optimize.minimize(negative, start, jac=True, method="L-BFGS-B", options=options)
    step = 1e-4 * np.eye(2 * dim)
    slopes = np.array([negative(found.x + e)[1] - negative(found.x - e)[1] for e in step])
    hessian = (slopes + slopes.T) / 4e-4
    lowest = np.linalg.eigvalsh(hessian)[0]
    slope = np.abs(found.jac).max()
    if not (lowest > 0 and slope < 1.0):
        raise ValueError(f"no maximum: smallest curvature {lowest:.2g}, largest slope {slope:.2g}")
    note = f"{found.nfev} evaluations of {number} draws, largest slope {slope:.1g}"
    return found.x[:dim], np.linalg.inv(hessian)[:dim, :dim], note


def laplace(plain: pm.Model, seed: int = 0) -> Approximation:
    """Normal at the mode of the density of the coordinates, by the curvature there.

    Raises
    ------
    ValueError
        If the curvature is not that of a maximum.
    """
    (mean, covariance, note), seconds = spent(lambda: _mode_and_curvature(plain))
    return Approximation(*_normal_draws(plain, mean, covariance, seed), seconds, note=note)


def _mode_and_curvature(plain: pm.Model) -> tuple[np.ndarray, np.ndarray, str]:
    space = make_space(plain)
    evaluate = density(space)

    def negative(x: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = evaluate(x[None])
        return -value[0], -gradient[0]

    start = DictToArrayBijection.map(plain.initial_point()).data
    found = optimize.minimize(
        negative, start, jac=True, method="BFGS", options={"maxiter": 5000, "gtol": 1e-3}
    )
    step = 1e-4 * np.eye(space.dim)
    slopes = evaluate(found.x - step)[1] - evaluate(found.x + step)[1]
    hessian = (slopes + slopes.T) / 4e-4
    lowest = np.linalg.eigvalsh(hessian)[0]
    if not lowest > 0:
        raise ValueError(f"no maximum: smallest curvature {lowest:.2g}")
    slope = np.abs(found.jac).max()
    return found.x, np.linalg.inv(hessian), f"{found.nit} steps, largest slope {slope:.1g}"


def pathfinder(plain: pm.Model, seed: int = 0) -> Approximation:
    """Multi-path Pathfinder with its own defaults, resampled by smoothed weights.

    Raises
    ------
    ImportError
        If pymc-extras is not installed.
    """
    from pymc_extras.inference.pathfinder.lbfgs import LBFGSConfig
    from pymc_extras.inference.pathfinder.multipath import multipath_pathfinder

    space = make_space(plain)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found, seconds = spent(
            lambda: multipath_pathfinder(
                plain,
                num_paths=4,
                num_draws=1000,
                num_draws_per_path=1000,
                num_elbo_draws=10,
                jitter=2.0,
                lbfgs_config=LBFGSConfig().set_default_maxcor(space.dim),
                importance_sampling="psis",
                progressbar=False,
                parallel=False,
                random_seed=seed,
                compile_kwargs={"mode": mode()},
            )
        )
    log_weight = (found.logP - found.logQ).ravel()
    paths = ", ".join(f"{count} paths {status.name}" for status, count in found.path_status.items())
    note = f"{paths}, {found.compile_time:.1f} wall s of compilation"
    posterior = posterior_draws(space, found.samples[None])
    return Approximation(posterior, log_weight, seconds, note=note)
