"""Mean-field variational inference in coordinates where the posterior is near standard normal.

The evidence bound is averaged over fixed draws (Giordano, Ingram and Broderick 2024), so that it is
an ordinary smooth function: a quasi-Newton optimiser finds its maximum in a few steps, knows when
it is there, and the same seed gives the same fit. Importance weights say how good the result is.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy import optimize

from .density import (
    CHUNK,
    Evaluate,
    density,
    make_space,
    minibatch_density,
    posterior_draws,
)
from .hierarchy import Hierarchy
from .methods import VI
from .progress import phase

__all__ = ["run_variational"]

Floats = NDArray[np.float64]

_MANY_BINS = 2000
_BATCH = 256
_PARETO_K = 0.7  # above it importance weights have no reliable mean (Vehtari et al. 2024)
_CLEAR_K, _CLEAR_ESS = 0.5, 0.8
_FEWEST_DRAWS, _MOST_DRAWS = 1000, 4000  # to estimate Pareto k from


def _cross(dim: int, rotations: int, rng: np.random.Generator) -> Floats:
    """Draws with mean 0 and second moment exactly 1: rotated crosses of radius sqrt(dim)."""
    parts = []
    for _ in range(rotations):
        rotation = np.linalg.qr(rng.normal(size=(dim, dim)))[0] * np.sqrt(dim)
        parts += [rotation, -rotation]
    return np.concatenate(parts)


def _maximise_bound(
    evaluate: Evaluate, draws: Floats, iterations: int, report: Callable[[float], None]
) -> tuple[Floats, Floats, str]:
    """Means and sds that maximise the evidence bound, and what is wrong ("" if nothing)."""
    dim = draws.shape[1]
    worst = [0.0]

    def negative_bound(x: Floats) -> tuple[float, Floats]:
        mean, log_sd = x[:dim], x[dim:]
        sd = np.exp(log_sd)
        logp, gradient = evaluate(mean + sd * draws)
        if not np.isfinite(logp).all():  # a step too far: steep enough for the line search to halve
            return worst[0] + 1e6, np.zeros_like(x)
        value = -(logp.mean() + log_sd.sum())
        worst[0] = max(worst[0], value)
        report(-value)
        by_sd = (gradient * draws).mean(axis=0) * sd + 1.0
        return value, -np.concatenate([gradient.mean(axis=0), by_sd])

    bounds = [(-50.0, 50.0)] * dim + [(-8.0, 4.0)] * dim
    found = optimize.minimize(
        negative_bound,
        np.zeros(2 * dim),
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options={"maxiter": iterations, "maxcor": 30, "ftol": 0.0, "gtol": 1e-3},
    )
    slope = float(np.abs(np.asarray(found.jac)).max())
    problem = ""
    if not np.isfinite(found.fun) or not slope < 0.05:
        problem = (
            f"the evidence bound was still rising after {found.nit} iterations (largest slope "
            f"{slope:.2g} posterior sd, 0.05 allowed): raise VI(max_iterations=) or use soc.NUTS()"
        )
    return found.x[:dim], np.exp(found.x[dim:]), problem


def _importance(log_weight: Floats) -> tuple[Floats, float, float]:
    """Smoothed importance weights, their Pareto k, and effective sample over their number."""
    from arviz_stats.base import array_stats

    if not np.isfinite(log_weight).all():
        return np.full(len(log_weight), 1.0 / len(log_weight)), np.inf, 0.0
    # ArviZ's function is written for leave-one-out: it takes minus the log weights
    smoothed, k = array_stats.psislw(-log_weight)
    weight = np.exp(np.asarray(smoothed) - np.max(smoothed))
    weight /= weight.sum()
    return weight, float(k), float(1.0 / (weight**2).sum() / len(weight))


def _weighed_draws(
    evaluate: Evaluate,
    mean: Floats,
    sd: Floats,
    wanted: int,
    rng: np.random.Generator,
    advance: Callable[[float], None],
) -> tuple[Floats, Floats]:
    """Standard normal draws of the approximation and their log importance weights.

    Pareto k of 1,000 draws has a standard error near 0.15, so a k that is not clearly good is
    estimated from up to 4,000. Weights that are far from equal want four draws for one kept.
    """
    noise, log_weight = np.empty((0, len(mean))), np.empty(0)
    number = max(wanted, _FEWEST_DRAWS)
    while len(noise) < number:
        more = rng.normal(size=(min(CHUNK, number - len(noise)), len(mean)))
        weight = evaluate(mean + sd * more)[0] + 0.5 * (more**2).sum(axis=1)
        noise, log_weight = np.concatenate([noise, more]), np.concatenate([log_weight, weight])
        advance(len(more))
        if len(noise) < number:
            continue
        _, k, ess = _importance(log_weight)
        if not k <= _CLEAR_K and number < _MOST_DRAWS:
            number = min(2 * number, _MOST_DRAWS)
        elif not ess >= _CLEAR_ESS:
            number = max(number, 4 * wanted)
    return noise, log_weight


def _chosen(log_weight: Floats, wanted: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Draws to keep: the first ones or, where weights matter, a sample by smoothed weights.

    Systematic resampling takes every draw as often as its weight says, but for rounding.
    """
    weight, k, ess = _importance(log_weight)
    if ess >= _CLEAR_ESS or not k <= _PARETO_K:
        return np.arange(wanted)
    steps = (rng.random() + np.arange(wanted)) / wanted
    return rng.permutation(np.searchsorted(np.cumsum(weight), steps).clip(0, len(weight) - 1))


def run_variational(
    built: Hierarchy, method: VI, progress: bool
) -> tuple[dict[str, xr.Dataset], dict[str, Any]]:
    """Groups for the fit's `DataTree`, and the fields of its `Status` but for the seconds."""
    rng = np.random.default_rng(method.seed)
    space = make_space(built.model)
    bins = len(built.score)
    batch = method.batch if method.batch is not None else (_BATCH if bins > _MANY_BINS else 0)
    draws = _cross(space.dim, method.rotations, rng)
    with phase("fit: preparing the evidence bound", enabled=progress):
        full = density(space)
        if 0 < batch < bins:
            evaluate = minibatch_density(built, space, _minibatches(bins, batch, len(draws), rng))
        else:
            evaluate = full
    with phase("fit: variational inference", unit="evaluations", enabled=progress) as shown:

        def report(bound: float) -> None:
            shown.advance()
            shown.note(f"evidence bound {bound:,.2f}")

        mean, sd, problem = _maximise_bound(evaluate, draws, method.max_iterations, report)
    with phase("fit: draws and Pareto k", unit="draws", enabled=progress) as shown:
        noise, log_weight = _weighed_draws(full, mean, sd, method.draws, rng, shown.advance)
        _, k, ess = _importance(log_weight)
        kept = _chosen(log_weight, method.draws, rng)
        posterior = posterior_draws(space, (mean + sd * noise[kept])[None])
    names = [f"{n}[{i}]" for n, size in zip(space.names, space.sizes, strict=True)
             for i in range(size)]  # fmt: skip
    groups = {
        "posterior": posterior,
        "sample_stats": xr.Dataset({"log_weight": (("chain", "draw"), log_weight[kept][None])}),
        "variational": xr.Dataset(
            {"mean": ("coordinate", mean), "sd": ("coordinate", sd)}, {"coordinate": names}
        ),
    }
    return groups, _variational_verdict(problem, k, ess)


def _minibatches(bins: int, batch: int, draws: int, rng: np.random.Generator) -> Any:
    """One systematic minibatch a draw; over the draws every bin is seen equally often."""
    stride = -(-bins // batch)
    offsets = rng.permutation(np.arange(draws // 2) % stride)
    rows = [(o + stride * np.arange(batch)) % bins for o in np.tile(offsets, 2)]
    return np.array(rows)


def _variational_verdict(problem: str, k: float, ess: float) -> dict[str, Any]:
    if problem:
        reason = problem
    elif not k <= _PARETO_K:
        reason = (
            f"Pareto k of the approximation is {k:.2f}, above {_PARETO_K}: its bands may be wrong; "
            "soc.NUTS() on the same statistics takes seconds to minutes"
        )
    else:
        reason = f"Pareto k {k:.2f}, effective sample {ess:.0%} of the draws"
    converged = not problem and k <= _PARETO_K
    return {"converged": converged, "reason": reason, "pareto_k": k, "ess_fraction": ess}
