"""Inference on the model: variational by default, NUTS as the reference.

The variational family is mean-field normal in the coordinates of `coordinates`, where the posterior
is near standard normal. Its evidence bound is averaged over fixed draws (Giordano, Ingram and
Broderick 2024), so that it is an ordinary smooth function: a quasi-Newton optimiser finds its
maximum in a few steps, knows when it is there, and the same seed gives the same fit.
"""

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import xarray as xr
from numpy.typing import NDArray
from pytensor.compile.mode import Mode
from pytensor.graph.replace import vectorize_graph
from pytensor.link.vm import VMLinker
from scipy import optimize

from . import hierarchy
from .errors import ConvergenceWarning, FitError
from .families import histograms as hist
from .likelihood import log_marginal, shared_histograms
from .methods import NUTS, VI
from .priors import Gamma
from .progress import phase
from .results import Fit, Status
from .statistics import Statistics

__all__ = ["fit"]

Floats = NDArray[np.float64]
Evaluate = Callable[[Floats], tuple[Floats, Floats]]
"""Coordinates (draws, dim) -> log density (draws,) and its gradient (draws, dim)."""

_MANY_BINS = 2000
_BATCH = 256
_PARETO_K = 0.7  # above it importance weights have no reliable mean (Vehtari et al. 2024)
_CLEAR_K = 0.5
_FEWEST_DRAWS, _MOST_DRAWS = 1000, 4000  # to estimate Pareto k from
_CHUNK = 250  # draws evaluated at once


def fit(
    stats: Statistics,
    prior: Gamma | None = None,
    method: VI | NUTS | None = None,
    *,
    progress: bool = True,
) -> Fit:
    """Fit the hierarchical model to statistics.

    Parameters
    ----------
    stats
        Sufficient statistics, from `summarize`; items are never seen.
    prior
        The prior's configuration; None is ``soc.Gamma()``.
    method
        ``soc.VI()`` (default) or ``soc.NUTS()``.
    progress
        Whether to show progress on standard error.

    Returns
    -------
    Fit
        Draws of the curves with a status that says whether to trust them.

    Raises
    ------
    FitError
        If the model cannot be built from these statistics.

    Warns
    -----
    ConvergenceWarning
        If the fit did not converge; the text gives the evidence and the next step.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> items = soc.PoissonItems(
    ...     soc.simulation.s1(2000), score="score", count="count", exposure="exposure")
    >>> soc.fit(soc.summarize(items), method=soc.VI(seed=1), progress=False).status.converged
    True
    """
    prior, method = prior or Gamma(), method or VI()
    if not isinstance(stats, Statistics):
        raise FitError(
            f"soc.fit takes statistics, not {type(stats).__name__}: call soc.summarize(items) first"
        )
    if not isinstance(prior, Gamma):
        raise FitError(f"prior must be soc.Gamma(...), not {type(prior).__name__}")
    start = time.perf_counter()
    with phase("fit: compiling the likelihood (once on a machine)", enabled=progress):
        hist.warm_up()
    with phase("fit: pilot and model", enabled=progress):
        built = hierarchy.build(stats, prior)
    if isinstance(method, VI):
        groups, verdict = _variational(built, method, progress)
    elif isinstance(method, NUTS):
        groups, verdict = _sample(built, method, progress)
    else:
        raise FitError(f"method must be soc.VI(...) or soc.NUTS(...), not {method!r}")
    status = Status(**verdict, seconds=time.perf_counter() - start)
    if not status.converged:
        warnings.warn(status.reason, ConvergenceWarning, stacklevel=2)
    return Fit(_tree(built, stats, groups), prior, method, status)


# --- the model as plain functions of its coordinates ------------------------------------------


def _mode() -> Mode:
    """PyTensor's interpreter: the graph has few nodes and all draws at once, and the likelihood is
    one compiled kernel, so that compiling the rest would cost far more than it saves."""  # noqa: D205, D209
    return Mode(linker=VMLinker(use_cloop=False, c_thunks=False), optimizer="fast_compile")


@dataclass(frozen=True)
class _Space:
    """The model's value variables as slices of one vector of coordinates."""

    model: pm.Model
    names: tuple[str, ...]
    sizes: tuple[int, ...]

    @property
    def dim(self) -> int:
        return sum(self.sizes)

    def batched(self, outputs: Any) -> tuple[Any, Any]:
        """Outputs of the model's value variables, for all rows of a matrix of coordinates."""
        rows = pt.matrix("coordinates")
        replace, at = {}, 0
        for variable, size in zip(self.model.value_vars, self.sizes, strict=True):
            part = rows[:, at] if variable.ndim == 0 else rows[:, at : at + size]
            replace[variable] = part
            at += size
        return rows, vectorize_graph(outputs, replace)


def _space(model: pm.Model) -> _Space:
    point = model.initial_point()
    names = tuple(v.name for v in model.value_vars)
    return _Space(model, names, tuple(int(np.size(point[n])) for n in names))


def _density(space: _Space) -> Evaluate:
    """The model's log density and gradient on all bins."""
    rows, logp = space.batched(space.model.logp())
    function = pytensor.function([rows], [logp, pt.grad(logp.sum(), rows)], mode=_mode())
    return _finite(function)


def _minibatch_density(built: hierarchy.Hierarchy, space: _Space, bins: Any) -> Evaluate:
    """The same with draw s seeing only the minibatch in row s (modulo) of `bins`.

    Each bin's log marginal is its quadratic at the pilot, which costs nothing and is summed over
    all bins, plus a small remainder, which is summed over the minibatch and scaled up (a control
    variate: Quiroz et al. 2019), so that minibatches add next to no noise.
    """
    model = space.model
    curves = model.replace_rvs_by_values([model["bin_log_mean"], model["bin_log_cv2"]])
    prior = model.logp(vars=[v for v in model.basic_RVs if v is not model["count"]])
    rows, (m, c, rest) = space.batched([*curves, prior])
    at_pilot = pytensor.function([rows], [m, c], mode=_mode())(np.zeros((1, space.dim)))
    m0, c0 = at_pilot[0][0], at_pilot[1][0]
    value, slopes, hessian = _quadratic(built.histograms, m0, c0)

    def quadratic(dm: Any, dc: Any, take: Any) -> Any:
        mm, mc, cc = (take(h) for h in hessian)
        linear = take(value) + take(slopes[0]) * dm + take(slopes[1]) * dc
        return linear + 0.5 * mm * dm**2 + mc * dm * dc + 0.5 * cc * dc**2

    chosen = pt.as_tensor(bins)[pt.arange(rows.shape[0]) % bins.shape[0]]
    row = pt.arange(rows.shape[0])[:, None]
    exact = log_marginal(m[row, chosen], c[row, chosen], bins, shared_histograms(built.histograms))
    dm, dc = m - m0, c - c0
    near = quadratic(dm[row, chosen], dc[row, chosen], lambda x: pt.as_tensor(x)[chosen])
    scale = len(m0) / bins.shape[1]
    remainder = scale * (exact - near).sum(axis=1)
    logp = rest + quadratic(dm, dc, pt.as_tensor).sum(axis=1) + remainder
    function = pytensor.function([rows], [logp, pt.grad(logp.sum(), rows)], mode=_mode())
    return _finite(function)


def _quadratic(
    histograms: hist.Histograms, m: Floats, c: Floats, step: float = 1e-3
) -> tuple[Floats, tuple[Floats, Floats], tuple[Floats, Floats, Floats]]:
    """Value, gradient and Hessian of the log marginal of every bin."""
    bins = np.arange(len(m))

    def at(dm: float, dc: float) -> Floats:
        return hist.value_and_gradient((m + dm)[None], (c + dc)[None], bins, *histograms.arrays)[
            :, 0
        ]

    value, slope_m, slope_c = at(0.0, 0.0)
    by_m = (at(step, 0.0) - at(-step, 0.0)) / (2.0 * step)
    by_c = (at(0.0, step) - at(0.0, -step)) / (2.0 * step)
    return value, (slope_m, slope_c), (by_m[1], 0.5 * (by_m[2] + by_c[1]), by_c[2])


def _finite(function: Any) -> Evaluate:
    """Evaluate in chunks of draws; what is not a number is impossible (-inf)."""

    def evaluate(rows: Floats) -> tuple[Floats, Floats]:
        parts = [function(rows[i : i + _CHUNK]) for i in range(0, len(rows), _CHUNK)]
        logp = np.concatenate([p[0] for p in parts])
        gradient = np.concatenate([p[1] for p in parts])
        good = np.isfinite(logp) & np.isfinite(gradient).all(axis=1)
        return np.where(good, logp, -np.inf), gradient

    return evaluate


# --- variational inference --------------------------------------------------------------------


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


def _pareto_k(log_weight: Floats) -> tuple[float, float]:
    """Pareto k of importance weights, and their effective sample over their number."""
    from arviz_stats.base import array_stats

    if not np.isfinite(log_weight).all():
        return np.inf, 0.0
    # ArviZ's function is written for leave-one-out: it takes minus the log weights
    smoothed, k = array_stats.psislw(-log_weight)
    weight = np.exp(np.asarray(smoothed) - np.max(smoothed))
    return float(k), float(weight.sum() ** 2 / (weight**2).sum() / len(weight))


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
    estimated from up to 4,000.
    """
    noise, log_weight = np.empty((0, len(mean))), np.empty(0)
    number = max(wanted, _FEWEST_DRAWS)
    while len(noise) < number:
        more = rng.normal(size=(min(_CHUNK, number - len(noise)), len(mean)))
        weight = evaluate(mean + sd * more)[0] + 0.5 * (more**2).sum(axis=1)
        noise, log_weight = np.concatenate([noise, more]), np.concatenate([log_weight, weight])
        advance(len(more))
        if len(noise) == number < _MOST_DRAWS and not _pareto_k(log_weight)[0] <= _CLEAR_K:
            number = min(2 * number, _MOST_DRAWS)
    return noise, log_weight


def _variational(
    built: hierarchy.Hierarchy, method: VI, progress: bool
) -> tuple[dict[str, xr.Dataset], dict[str, Any]]:
    rng = np.random.default_rng(method.seed)
    space = _space(built.model)
    bins = len(built.score)
    batch = method.batch if method.batch is not None else (_BATCH if bins > _MANY_BINS else 0)
    draws = _cross(space.dim, method.rotations, rng)
    with phase("fit: preparing the evidence bound", enabled=progress):
        full = _density(space)
        if 0 < batch < bins:
            evaluate = _minibatch_density(built, space, _minibatches(bins, batch, len(draws), rng))
        else:
            evaluate = full
    with phase("fit: variational inference", unit="evaluations", enabled=progress) as shown:

        def report(bound: float) -> None:
            shown.advance()
            shown.note(f"evidence bound {bound:,.2f}")

        mean, sd, problem = _maximise_bound(evaluate, draws, method.max_iterations, report)
    with phase("fit: draws and Pareto k", unit="draws", enabled=progress) as shown:
        noise, log_weight = _weighed_draws(full, mean, sd, method.draws, rng, shown.advance)
        k, ess = _pareto_k(log_weight)
        rows = mean + sd * noise[: method.draws]
        posterior = _draws(space, rows[None])
    names = [f"{n}[{i}]" for n, size in zip(space.names, space.sizes, strict=True)
             for i in range(size)]  # fmt: skip
    groups = {
        "posterior": posterior,
        "sample_stats": xr.Dataset(
            {"log_weight": (("chain", "draw"), log_weight[None, : method.draws])}
        ),
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


def _kept(model: pm.Model) -> list[Any]:
    """Variables kept in the posterior: all but the curves at bins, which the knots give."""
    return [v for v in [*model.free_RVs, *model.deterministics] if not v.name.startswith("bin_")]


def _draws(space: _Space, rows: Floats) -> xr.Dataset:
    """Posterior variables at coordinates of shape (chains, draws, dim)."""
    model = space.model
    kept = _kept(model)
    matrix, outputs = space.batched(model.replace_rvs_by_values(kept))
    values = pytensor.function([matrix], outputs, mode=_mode())(rows.reshape(-1, space.dim))
    shape = rows.shape[:2]
    variables, coords = {}, {}
    for variable, value in zip(kept, values, strict=True):
        dims = model.named_vars_to_dims.get(variable.name, ())
        variables[variable.name] = (
            ("chain", "draw", *dims),
            value.reshape(*shape, *value.shape[1:]),
        )
        coords.update({d: np.asarray(model.coords[d]) for d in dims})
    coords.update(chain=np.arange(shape[0]), draw=np.arange(shape[1]))
    return xr.Dataset(variables, coords)


# --- NUTS --------------------------------------------------------------------------------------


def _sample(
    built: hierarchy.Hierarchy, method: NUTS, progress: bool
) -> tuple[dict[str, xr.Dataset], dict[str, Any]]:
    with built.model:
        tree = pm.sample(
            draws=method.draws,
            tune=method.tune,
            chains=method.chains,
            random_seed=method.seed,
            var_names=[v.name for v in _kept(built.model)],
            progressbar=progress,
            quiet=not progress,
            compute_convergence_checks=False,
        )
    groups = {name: tree[name].to_dataset() for name in ("posterior", "sample_stats")}
    return groups, _sampling_verdict(groups)


def _sampling_verdict(groups: dict[str, xr.Dataset]) -> dict[str, Any]:
    import arviz_stats

    posterior = groups["posterior"]
    divergences = int(groups["sample_stats"]["diverging"].sum())
    ess = min(float(v.min()) for v in arviz_stats.ess(posterior).data_vars.values())
    problems = [f"{divergences} divergent transitions"] if divergences else []
    rhat = np.nan
    if posterior.sizes["chain"] > 1:
        rhat = max(float(v.max()) for v in arviz_stats.rhat(posterior).data_vars.values())
        if not rhat <= 1.01:
            problems.append(f"R-hat {rhat:.3f} (at most 1.01 allowed)")
    else:
        problems.append("a single chain, so that R-hat is unknown")
    if not ess >= 400:
        problems.append(f"bulk effective sample {ess:.0f} (at least 400 wanted)")
    if problems:
        reason = "NUTS: " + ", ".join(problems) + ": raise NUTS(draws=, tune=, chains=)"
    else:
        reason = f"R-hat at most {rhat:.3f}, bulk effective sample at least {ess:.0f}"
    return {
        "converged": not problems,
        "reason": reason,
        "pareto_k": None,
        "ess_fraction": None,
    }


# --- the result ---------------------------------------------------------------------------------


def _tree(
    built: hierarchy.Hierarchy, stats: Statistics, groups: dict[str, xr.Dataset]
) -> xr.DataTree:
    data, at = stats.data, built.occupied
    columns = {
        "score_min": data["score_min"].to_numpy()[at],
        "score_max": data["score_max"].to_numpy()[at],
        "n_items": data["n"].to_numpy()[at],
        "exposure": data["sum_N"].to_numpy()[at],
    }
    bins = xr.Dataset(
        {"score": ("bin", built.score), **{k: ("bin", v) for k, v in columns.items()}}
    )
    for curve in built.curves:
        if curve.axis.scale == "rank":
            bins["rank_score"] = ("rank", np.asarray(curve.axis.score))
            bins["rank_fraction"] = ("rank", np.asarray(curve.axis.fraction))
    observed = xr.Dataset({"count": ("bin", data["sum_y"].to_numpy()[at])})
    tree = xr.DataTree.from_dict({**groups, "observed_data": observed, "constant_data": bins})
    tree.attrs = {name: stats.data.attrs[name] for name in ("kind", "roles")}
    return tree
