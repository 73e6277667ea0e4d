"""Gaussian variational inference in coordinates where the posterior is near standard normal.

The Gaussian is mean-field in coordinates that the density's curvature decorrelates. The evidence
bound is averaged over fixed draws (Giordano, Ingram and Broderick 2024), so that L-BFGS finds its
maximum. Importance weights show how good the result is.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import ceil
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy import linalg, optimize

from .._lib.arguments import (
    DRAWS,
    MOST_DRAWS,
    FitError,
    OrNone,
    Whole,
    convert_fields,
    refuse_beyond_memory,
)
from .._lib.arrays import Floats, Pair
from .._lib.laws import smoothed
from .._lib.work import Phase, phase
from .._model.problem import Problem
from ..fits import PARETO_K, Status
from .density import (
    Densities,
    Evaluate,
    Values,
    minibatch_density,
    near_densities,
    systematic,
)
from .fit_tree import STORED_SEED, Groups, PosteriorMethod, in_chains
from .refinements import (
    Annealing,
    Gaussian,
    annealed,
    approximated,
    hardly_skewed,
    moved,
    stepped,
)

# step in sd on either side, for the curvature of the posterior's bulk
_REACH = 0.5
# largest change of a width by curvature, which may be 0 or have the wrong sign
_WIDEST = 3.0
# slopes at which the two optimisations stop
_ROUGH = 0.1
_FINE = 1e-3
# nats that so many steps must gain: rounding of the density may hide smaller slopes
_FLAT = 1e-6
_FLAT_STEPS = 3
# from one posterior to another: most steps to the first, crosses of steps to others, and densities
_NEARBY_STEPS = 20
_NEARBY_CROSSES = (1, 1, 1)
_NEARBY_ANNEALED = (Annealing(3),)
_MANY_BINS = 20_000
_BATCH = 256
# Weights are ignored only if no direction's sd is wrong by more than a seventh. An sd that is wrong
# by a factor s costs the share 1 - sqrt(2 / s^2 - 1) s^2 of the effective sample, here a twentieth
_CLEAR_K = 0.5
_CLEAR_ESS = 0.95
# draws for the estimate of Pareto k, and at most where it is unclear
_FEWEST_DRAWS = 1000
_MOST_DRAWS = 4000
# natural gradient steps of a mean-field Gaussian that is poor
_CROSSES = (1, 1)
# draws, and their effective sample, that show a first Gaussian to be good enough
_PROMISE_DRAWS = 250
_PROMISE = 0.3
# the second where the Gaussian is far too narrow in a tail: a location and a dispersion that the
# data hardly tell apart bend it
_ANNEALED = Annealing(12), Annealing(40, 1.3, 0.4)
_ENOUGH = 0.1  # effective sample that ends annealing
# steps of resampled draws, by nat of the logarithm of an effective sample, and at most
_STEPS_PER_NAT = 10.0
_MOST_STEPS = 10
# largest change of a width between both
_NARROWEST_STEP = 0.7
_WIDEST_STEP = 3.0
_REPAIRED = " after annealing (the Gaussian alone: k {k:.2f}, {ess:.1%})"
_MOVED = ", which then moved {steps} steps"


def _maximise_bound(
    evaluate: Evaluate,
    start: Gaussian,
    draws: Floats,
    iterations: int,
    tolerance: float,
) -> tuple[Floats, Floats, str]:
    """Location and sds of the best draws, location + factor @ (sd * noise), and any problem."""
    location, factor = start
    dim = draws.shape[1]
    values: list[float] = []
    history: list[float] = []

    def negative_bound(x: Floats) -> tuple[float, Floats]:
        mean = x[:dim]
        log_sd = x[dim:]
        sd = np.exp(log_sd)
        logp, gradient = evaluate(start.at(mean + sd * draws))
        if not np.isfinite(logp).all():  # a step too far; the line search halves it
            return max([0.0, *values]) + 1e6, np.zeros_like(x)
        values.append(-(logp.mean() + log_sd.sum()))
        gradient = gradient @ factor
        by_sd = (gradient * draws).mean(axis=0) * sd + 1.0
        return values[-1], -np.concatenate([gradient.mean(axis=0), by_sd])

    def stop_where_flat(intermediate_result: optimize.OptimizeResult) -> None:
        history.append(intermediate_result.fun)
        if (
            len(history) > _FLAT_STEPS
            and history[-1 - _FLAT_STEPS] - history[-1] < _FLAT
        ):
            raise StopIteration

    bounds = [(None, None)] * dim + [(-16.0, 16.0)] * dim
    maximum = optimize.minimize(
        negative_bound,
        np.zeros(2 * dim),
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options={
            "maxiter": iterations,
            "maxls": 8,
            "maxcor": 30,
            "ftol": 0.0,
            "gtol": tolerance,
        },
        callback=stop_where_flat,
    )
    mean = maximum.x[:dim]
    sd = np.exp(maximum.x[dim:])
    slope = float(np.abs(maximum.jac * np.concatenate([sd, np.ones(dim)])).max())
    problem = ""
    if not values:
        problem = (
            "the log density is not finite around the start: try another VI(seed=), or soc.NUTS() "
            "on the same statistics"
        )
    elif not slope < 0.05:
        problem = (
            f"the evidence bound was still rising after {maximum.nit} iterations (largest slope "
            f"{slope:.2g} posterior sd, 0.05 allowed): raise VI(max_iterations=) or use soc.NUTS()"
        )
    return location + factor @ mean, sd, problem


def _decorrelated(evaluate: Evaluate, centre: Floats, sd: Floats) -> Floats:
    """Factor F such that the coordinates u of w = centre + F u are uncorrelated near u = 0."""
    step = _REACH * np.diag(sd)
    bend = evaluate(centre - step)[1] - evaluate(centre + step)[1]
    precision = bend * sd / (2.0 * _REACH)
    if not np.isfinite(precision).all():
        return np.diag(sd)
    value, vector = linalg.eigh(0.5 * (precision + precision.T))
    width = 1.0 / np.sqrt(np.clip(value, _WIDEST**-2, _WIDEST**2))
    return sd[:, None] * ((vector * width) @ vector.T)


def _cross(dim: int, rng: np.random.Generator) -> Floats:
    """Draws with mean 0 and second moment exactly 1: a rotated cross."""
    rotation = np.linalg.qr(rng.normal(size=(dim, dim)))[0] * np.sqrt(dim)
    return np.concatenate([rotation, -rotation])


def _gaussian(
    evaluate: Evaluate, start: Floats, iterations: int, rng: np.random.Generator
) -> tuple[Gaussian, str]:
    """The best Gaussian, and the problem."""
    # decorrelating at the start would mix the smoothing scales with the rest, and was worse
    options = _cross(len(start), rng), iterations
    standard = Gaussian(start, np.eye(len(start)))
    centre, sd, _ = _maximise_bound(evaluate, standard, *options, _ROUGH)
    factor = _decorrelated(evaluate, centre, sd)
    decorrelated = Gaussian(centre, factor)
    location, sd, problem = _maximise_bound(evaluate, decorrelated, *options, _FINE)
    return Gaussian(location, factor * sd), problem


@dataclass(frozen=True, eq=False)
class _Draws:
    """Draws of a Gaussian, by their noise, with log importance weights."""

    gaussian: Gaussian
    noise: Floats
    log_weight: Floats

    @cached_property
    def quality(self) -> tuple[float, float]:
        """Pareto k, and effective sample over their number."""
        return importance(self.log_weight)[1:]

    def points(self, numbers: Any = slice(None)) -> Floats:
        """Coordinates of some draws, by default all."""
        return self.gaussian.at(self.noise[numbers])


@dataclass(frozen=True)
class VI(PosteriorMethod):
    """Gaussian variational inference in data-informed coordinates (the default).

    Parameters
    ----------
    seed : int
        Seed of random numbers; the same seed and statistics give the same fit.
    draws : int
        Posterior draws kept in the fit.
    batch : int or None
        Bins per minibatch. 0 takes all bins; None takes all up to 20,000, beyond that 256.
    max_iterations : int
        Iterations of the optimiser before it gives up with a warning.

    Raises
    ------
    FitError
        If a number is out of range.

    Examples
    --------
    >>> VI(seed=1).draws
    1000
    """

    full = False
    seed: int = 0
    draws: int = 1000
    batch: int | None = None
    max_iterations: int = 200

    def __post_init__(self) -> None:
        batch = OrNone(Whole(0, MOST_DRAWS))
        convert_fields(
            self, seed=STORED_SEED, draws=DRAWS, batch=batch, max_iterations=DRAWS
        )

    def draw(self, built: Problem) -> tuple[Groups, Status]:
        """Return draws of the Gaussian, weighted by importance and repaired where it is poor."""
        return _run_variational(built, self)


def _run_variational(built: Problem, method: VI) -> tuple[Groups, Status]:
    """Groups for the fit's `DataTree`, and its status."""
    rng = np.random.default_rng(method.seed)
    start = built.space.start
    with phase("fit: preparing the evidence bound"):
        densities = densities_of(built, rng, method.draws)
        bins = len(built.score)
        batch = method.batch
        if batch and built.no_minibatches:
            raise FitError(built.no_minibatches)
        if batch is None:
            batch = _BATCH if bins > _MANY_BINS and not built.no_minibatches else 0
        evaluate = densities.bound
        if 0 < batch < bins:
            evaluate = minibatch_density(
                built, systematic(bins, batch, len(start), rng)
            )
    with phase("fit: variational inference", unit="evaluations") as shown:
        counted = _reported(evaluate, shown)
        optimised = partial(_gaussian, counted, start, method.max_iterations, rng)
        problem = ""
        if densities.fresh:
            fresh = replace(densities, fresh=_reported(densities.fresh, shown))
            suffices = partial(_suffices, densities.weights, rng)
            densities, gaussian = approximated(
                fresh, start, suffices, lambda: optimised()[0], rng
            )
        else:
            gaussian, problem = optimised()
    with phase("fit: draws and Pareto k", unit="evaluations") as shown:
        bound = _reported(densities.bound, shown)
        densities = replace(
            densities, bound=bound, weights=_reported(densities.weights, shown)
        )
        densities, weighed = _mended(densities, gaussian, method.draws, rng)
        draws, words = _repaired(
            densities, weighed, max(method.draws, _FEWEST_DRAWS), rng
        )
        numbers = kept_draws(draws.log_weight, method.draws, rng)
        noise = draws.noise[numbers]
        if not densities.fresh and _poor(weighed, densities.fewest):
            noise, steps = _moved(densities.bound, draws, noise, rng)
            words += _MOVED.format(steps=steps)
        chosen = draws.gaussian.at(noise)
        posterior = densities.draws(chosen)
        points = densities.original(chosen)
    weights = xr.Dataset(
        {"log_weight": (("chain", "draw"), draws.log_weight[numbers][None])}
    )
    groups = {
        "posterior": in_chains(posterior),
        "sample_stats": in_chains(weights),
        "variational": xr.Dataset(
            {
                "mean": ("coordinate", points.mean(axis=0)),
                "sd": ("coordinate", points.std(axis=0)),
            }
        ),
    }
    k, ess = draws.quality
    reason = f"Pareto k {k:.2f}, effective sample {ess:.0%} of the draws{words}"
    if not all(part.laplace.converged for part in built.coordinates.parts):
        reason += "; the search for the mode, where inference begins, did not converge"
    if not k <= PARETO_K:
        reason = (
            f"Pareto k of the approximation is {k:.2f}, above {PARETO_K}: its bands may be wrong; "
            "soc.NUTS() on the same statistics takes seconds to minutes"
        )
    converged = not problem and k <= PARETO_K
    return groups, Status(converged, problem or reason, pareto_k=k, ess_fraction=ess)


def densities_of(built: Problem, rng: np.random.Generator, draws: int) -> Densities:
    """Return the densities of a problem; `rng` is for the noise of levels."""
    if not built.pilot.levels:
        return near_densities(built)
    from .level_density import LevelDensity  # which loads Numba

    knots = sum(len(curve.basis.knots) for curve in built.pilot.curves)
    levels = built.pilot.levels.rows.number
    refuse_beyond_memory(
        2.0 * 8.0 * draws * levels * knots,
        f"{draws:,} draws of the curves of {levels:,} levels",
        "take fewer draws by VI(draws=), or give group= a column with fewer levels",
    )
    return LevelDensity(built, rng).densities()


def _reported[Result](
    evaluate: Callable[[Floats], Result], shown: Phase
) -> Callable[[Floats], Result]:
    """A density that reports its evaluations as progress."""

    def counted(rows: Floats) -> Result:
        shown.advance()
        return evaluate(rows)

    return counted


def _poor(draws: _Draws, enough: float, most_k: float = PARETO_K) -> bool:
    """Whether Pareto k is too large or the effective sample is not enough."""
    k, ess = draws.quality
    return not (k <= most_k and ess >= enough)


def _mended(
    densities: Densities, gaussian: Gaussian, number: int, rng: np.random.Generator
) -> tuple[Densities, _Draws]:
    """Weighed draws of a Gaussian or, where it is poor, of one with correlations or less skewness.

    Coordinates may be others then.
    """
    weighed = _weighed_draws(densities, gaussian, number, rng)
    if densities.fresh or not _poor(weighed, densities.fewest):
        return densities, weighed
    steps = stepped(densities.bound, gaussian, _CROSSES, rng)
    weighed = _weighed_draws(densities, steps.gaussian, number, rng)
    if not _poor(weighed, densities.fewest):
        return densities, weighed
    densities, gaussian = hardly_skewed(densities, steps, rng)
    return densities, _weighed_draws(densities, gaussian, number, rng)


def _repaired(
    densities: Densities,
    draws: _Draws,
    size: int,
    rng: np.random.Generator,
    most_k: float = PARETO_K,
    tries: Sequence[Annealing] = _ANNEALED,
) -> tuple[_Draws, str]:
    """Draws, annealed where the Gaussian is poor, with words for the status."""
    chosen = latest = draws
    words = ""
    gaussian = draws.gaussian
    fewest = min(densities.fewest, _ENOUGH)
    for enough, annealing in zip((fewest, _ENOUGH), tries, strict=False):
        if not _poor(chosen, enough, most_k):
            break
        moves = annealed(densities.bound, gaussian, size, annealing, rng)
        latest = _Draws(gaussian, *moves)
        gap = densities.gap(latest.points())
        latest = replace(latest, log_weight=latest.log_weight + gap)
        k = latest.quality[0]
        # effective samples are not compared: draws that missed a tail overstate their own
        if k <= most_k or k < chosen.quality[0]:
            chosen = latest
            words = _REPAIRED.format(k=draws.quality[0], ess=draws.quality[1])
        if not k <= most_k:
            gaussian = _refined(latest)
    return chosen, words


def _moved(
    bound: Evaluate, draws: _Draws, noise: Floats, rng: np.random.Generator
) -> tuple[Floats, int]:
    """Noise of resampled draws after steps, and their number."""
    nats = -np.log(max(draws.quality[1], _ENOUGH))
    steps = min(ceil(_STEPS_PER_NAT * nats), _MOST_STEPS)
    return moved(bound, draws.gaussian, noise, steps, rng), steps


# --- other posteriors near a fit's ----------------------------------------------------------------


def nearby_gaussian(evaluate: Evaluate, mean: Floats, sd: Floats) -> Gaussian:
    """The best Gaussian from one with about this mean and these sds."""
    factor = _decorrelated(evaluate, mean, sd)
    start = Gaussian(mean, factor)
    cross = _cross(len(mean), np.random.default_rng(0))
    location, sd, _ = _maximise_bound(evaluate, start, cross, _NEARBY_STEPS, _ROUGH)
    return Gaussian(location, factor * sd)


def nearby_draws(
    densities: Densities,
    gaussian: Gaussian,
    most_k: float,
    rng: np.random.Generator,
) -> Pair:
    """Coordinates of draws and their log weights, where a Gaussian nearby is a good start."""
    gaussian = stepped(densities.bound, gaussian, _NEARBY_CROSSES, rng).gaussian
    noise = rng.normal(size=(_FEWEST_DRAWS, len(gaussian.location)))
    log_weight = densities.weights(gaussian.at(noise))
    log_weight += 0.5 * (noise**2).sum(axis=1)
    weighed = _Draws(gaussian, noise, log_weight)
    densities = replace(densities, fewest=_ENOUGH)
    size = _FEWEST_DRAWS // 2
    draws, _ = _repaired(
        densities, weighed, size, rng, most_k=most_k, tries=_NEARBY_ANNEALED
    )
    return draws.points(), draws.log_weight


# --- importance weights ---------------------------------------------------------------------------


def importance(log_weight: Floats) -> tuple[Floats, float, float]:
    """Smoothed importance weights, their Pareto k, and effective sample over their number."""
    if not np.isfinite(log_weight).all():
        return np.full(len(log_weight), 1.0 / len(log_weight)), np.inf, 0.0
    smooth, k = smoothed(log_weight[:, None])
    weight = np.exp(smooth[:, 0])
    return weight, float(k[0]), float(1.0 / (weight**2).sum() / len(weight))


def _suffices(weights: Values, rng: np.random.Generator, gaussian: Gaussian) -> bool:
    """Return True if a few draws of a Gaussian promise a good effective sample."""
    noise = rng.normal(size=(_PROMISE_DRAWS, len(gaussian.location)))
    log_weight = weights(gaussian.at(noise)) + 0.5 * (noise**2).sum(axis=1)
    _, k, ess = importance(log_weight)
    return k <= PARETO_K and ess >= _PROMISE


def _weighed_draws(
    densities: Densities,
    gaussian: Gaussian,
    requested: int,
    rng: np.random.Generator,
) -> _Draws:
    """Draws of the Gaussian with their log importance weights; more if k is unclear."""
    # Pareto k of 1,000 draws has a standard error near 0.15
    size = len(gaussian.location)
    noise = np.empty((0, size))
    log_weight = np.empty(0)
    number = max(requested, _FEWEST_DRAWS)
    while len(noise) < number:
        fresh = rng.normal(size=(number - len(noise), size))
        weight = densities.weights(gaussian.at(fresh))
        weight += 0.5 * (fresh**2).sum(axis=1)
        noise = np.concatenate([noise, fresh])
        log_weight = np.concatenate([log_weight, weight])
        _, k, ess = importance(log_weight)
        if ess < densities.fewest:  # other draws will take their place
            break
        # weights with noise cost more, so that later only a k that is too large is unclear
        clear = PARETO_K if densities.fresh and number > _FEWEST_DRAWS else _CLEAR_K
        if not k <= clear and number < _MOST_DRAWS:
            number = min(2 * number, _MOST_DRAWS)
        elif not ess >= _CLEAR_ESS:
            made = min(densities.made, densities.effective / ess)
            number = max(number, int(requested * made))
    return _Draws(gaussian, noise, log_weight)


def _refined(draws: _Draws) -> Gaussian:
    """The Gaussian with the weighted draws' moments (Paananen et al. 2021)."""
    weight, k, ess = importance(draws.log_weight)
    location, factor = draws.gaussian
    if not np.isfinite(k):
        return draws.gaussian
    mean = weight @ draws.noise
    residual = draws.noise - mean
    covariance = (weight[:, None] * residual).T @ residual
    trust = max(0.0, 1.0 - len(mean) / (ess * len(weight)))
    inflated = np.diag(np.maximum(np.diagonal(covariance), 1.0))
    value, vector = linalg.eigh(trust * covariance + (1.0 - trust) * inflated)
    root = (
        vector * np.sqrt(np.clip(value, _NARROWEST_STEP**2, _WIDEST_STEP**2))
    ) @ vector.T
    return Gaussian(location + factor @ (trust * mean), factor @ root)


def kept_draws(
    log_weight: Floats, number: int, rng: np.random.Generator
) -> NDArray[np.intp]:
    """Draws to keep: the first ones or, if weights matter, a sample by smoothed weights."""
    weight, k, ess = importance(log_weight)
    if ess >= _CLEAR_ESS or not k <= PARETO_K:
        return np.arange(number)
    steps = (rng.random() + np.arange(number)) / number
    return rng.permutation(
        np.searchsorted(np.cumsum(weight), steps).clip(0, len(weight) - 1)
    )
