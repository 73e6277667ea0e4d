"""Refinements of a Gaussian q that is not a good enough posterior: annealing, natural gradients.

Draws of q move towards the posterior p through densities q^(1 - b) p^b, b from 0 to 1, by
Hamiltonian steps that leave each of these unchanged (Neal 2001) and keep part of their momentum.
These follow q exactly, by a rotation, and are kicked by what p adds to it (Shahbaba et al. 2014).
Each draw collects its importance weight on its way. Draws resampled by their weights move on.

The curvature that a natural gradient step takes from a few gradients is mostly noise, which is as
large in its antisymmetric part. This says how far to trust the step, so that steps add up what they
learn.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy import linalg

from .._lib.arrays import Floats, Pair
from .density import Densities, Evaluate, Values

WIDER = 1.05
"""Factor on the widths of a Gaussian that is too narrow where the posterior is skewed."""
# angle of a step of resampled draws, and what is kept of the momentum after any step
_ANGLE = 0.5
_KEPT = 0.7
_BOX = 9.0  # sd: steps out of this box are refused
# rotated crosses of draws for the first steps, and for one more where these do not suffice; where
# that does not either, for each step before the skewness is known, and after
_FIRST_CROSSES = (1, 1), (1,)
_CROSSES = (1, 1, 2, 2)
_CROSSES_OF_SKEWED = (2, 2)
# the largest factor on a width in one step
_MOST_WIDENED = 1.3
# nats that the evidence bound may fall, which is noisy, before steps end
_FALL = 1.0
# standard errors from which a skewness is taken for real, and the largest
_CLEAR = 3.0
_MOST_SKEWED = 0.4


class Gaussian(NamedTuple):
    """A Gaussian, w = location + factor @ N(0, I)."""

    location: Floats
    factor: Floats

    def at(self, noise: Floats) -> Floats:
        """Coordinates of noise (draws, dim)."""
        return self.location + noise @ self.factor.T


@dataclass(eq=False)
class _State:
    """Draws in coordinates where the Gaussian is standard normal."""

    noise: Floats
    momentum: Floats
    logp: Floats
    gradient: Floats

    def energy(self, share: float) -> Floats:
        """Log density q^(1 - share) p^share of the noise, and of the momentum."""
        gaussian = 0.5 * (1.0 - share) * (self.noise**2).sum(axis=1)
        return share * self.logp - gaussian - 0.5 * (self.momentum**2).sum(axis=1)

    def kicked(self, share: float, angle: float) -> Floats:
        """Momentum after half a step's kick by what that log density adds to the Gaussian's."""
        return self.momentum + 0.5 * angle * share * (self.gradient + self.noise)


class Annealing(NamedTuple):
    """How draws are annealed."""

    densities: int  # number of steps and, with the posterior, of densities
    widening: float = WIDER  # factor on the Gaussian's widths
    # of a step, in radians: long ones go far, short ones are less often refused where the
    # posterior is bent
    angle: float = 0.8


def annealed(
    evaluate: Evaluate,
    gaussian: Gaussian,
    number: int,
    annealing: Annealing,
    rng: np.random.Generator,
) -> Pair:
    """Noise of the Gaussian's draws, (number, dim), and their log weights."""
    densities, widening, angle = annealing
    wider = gaussian._replace(factor=widening * gaussian.factor)
    target = _of_noise(evaluate, wider)
    noise, momentum = rng.normal(size=(2, number, len(wider.location)))
    state = _State(noise, momentum, *target(noise))
    log_weight = np.zeros(number)
    for k in range(1, densities + 1):
        log_weight += (state.logp + 0.5 * (state.noise**2).sum(axis=1)) / densities
        if k < densities:
            state = _hamiltonian_step(target, k / densities, angle, state, rng)
    return widening * state.noise, log_weight


def moved(
    evaluate: Evaluate,
    gaussian: Gaussian,
    noise: Floats,
    number: int,
    rng: np.random.Generator,
) -> Floats:
    """Noise of a Gaussian that gives draws of the posterior, after further steps of these."""
    target = _of_noise(evaluate, gaussian)
    state = _State(noise, rng.normal(size=noise.shape), *target(noise))
    for _ in range(number):
        state = _hamiltonian_step(target, 1.0, _ANGLE, state, rng)
    return state.noise


def _of_noise(evaluate: Evaluate, gaussian: Gaussian) -> Evaluate:
    """A log density and its gradient as those of a Gaussian's noise."""

    def target(noise: Floats) -> Pair:
        logp, gradient = evaluate(gaussian.at(noise))
        return logp, gradient @ gaussian.factor

    return target


def _hamiltonian_step(
    target: Evaluate,
    share: float,
    angle: float,
    old: _State,
    rng: np.random.Generator,
) -> _State:
    """A step that leaves q^(1 - share) p^share unchanged; where refused, momentum is reversed.

    Then part of the momentum is renewed.
    """
    momentum = old.kicked(share, angle)
    noise = np.cos(angle) * old.noise + np.sin(angle) * momentum
    momentum = np.cos(angle) * momentum - np.sin(angle) * old.noise
    inside = (np.abs(noise) < _BOX).all(axis=1)
    noise = np.where(inside[:, None], noise, old.noise)
    new = _State(noise, momentum, *target(noise))
    new.momentum = new.kicked(share, angle)
    # a density of 0 has an energy of -inf or NaN, never exceeded by a random number
    with np.errstate(invalid="ignore"):
        gain = new.energy(share) - old.energy(share)
        accepted = inside & (np.log(rng.random(len(gain))) < gain)
    new.momentum[~accepted] = -old.momentum[~accepted]
    for name in ("noise", "logp", "gradient"):
        getattr(new, name)[~accepted] = getattr(old, name)[~accepted]
    fresh = rng.normal(size=noise.shape)
    new.momentum = _KEPT * new.momentum + np.sqrt(1.0 - _KEPT**2) * fresh
    return new


# --- natural gradient steps ----------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Skewed:
    """Coordinates location + root g(u), g(u) = u + skewness (sqrt(1 + u^2) - 1) for each."""

    location: Floats
    root: Floats  # lower triangular
    skewness: Floats

    def points(self, rows: Floats) -> Floats:
        """Coordinates at u (draws, dim)."""
        bent = rows + self.skewness * (np.sqrt(1.0 + rows**2) - 1.0)
        return self.location + bent @ self.root.T

    def evaluate(self, function: Evaluate) -> Evaluate:
        """A log density and its gradient as those of u."""

        def skewed(rows: Floats) -> Pair:
            logp, gradient = function(self.points(rows))
            rise = self._rise(rows)
            bend = self.skewness / (1.0 + rows**2) ** 1.5
            slope = (gradient @ self.root) * rise + bend / rise
            return logp + np.log(rise).sum(axis=1), slope

        return skewed

    def values(self, function: Values) -> Values:
        """A log density as that of u."""
        return lambda rows: (
            function(self.points(rows)) + np.log(self._rise(rows)).sum(axis=1)
        )

    def _rise(self, rows: Floats) -> Floats:
        """Slopes of g."""
        return 1.0 + self.skewness * rows / np.sqrt(1.0 + rows**2)

    def densities(self, densities: Densities) -> Densities:
        """The densities of u."""
        fresh = densities.fresh
        return replace(
            densities,
            bound=self.evaluate(densities.bound),
            weights=self.values(densities.weights),
            draws=lambda rows: densities.draws(self.points(rows)),
            original=lambda rows: densities.original(self.points(rows)),
            fresh=fresh and self.evaluate(fresh),
        )


class Steps(NamedTuple):
    """Where natural gradient steps ended, and the draws that were made with their gradients."""

    gaussian: Gaussian
    points: Floats
    gradients: Floats


def approximated(
    densities: Densities,
    start: Floats,
    suffices: Callable[[Gaussian], bool],
    optimised: Callable[[], Gaussian],
    rng: np.random.Generator,
) -> tuple[Densities, Gaussian]:
    """Densities in coordinates that are hardly skewed; and a Gaussian there.

    A Gaussian a few steps from N(start, I) is returned if it `suffices`; otherwise further steps
    begin at the `optimised` one.
    """
    assert densities.fresh
    gaussian = Gaussian(start, np.eye(len(start)))
    for crosses in _FIRST_CROSSES:
        gaussian = stepped(densities.fresh, gaussian, crosses, rng).gaussian
        if suffices(gaussian):
            return densities, gaussian
    steps = stepped(densities.fresh, optimised(), _CROSSES, rng)
    return hardly_skewed(densities, steps, rng)


def hardly_skewed(
    densities: Densities, steps: Steps, rng: np.random.Generator
) -> tuple[Densities, Gaussian]:
    """Densities in coordinates that are hardly skewed, by the slopes of steps; a Gaussian there."""
    densities = _skewed(steps).densities(densities)
    size = len(steps.gaussian.location)
    centred = Gaussian(np.zeros(size), np.eye(size))
    evaluate = densities.fresh or densities.bound
    steps = stepped(evaluate, centred, _CROSSES_OF_SKEWED, rng)
    return densities, steps.gaussian


def stepped(
    evaluate: Evaluate,
    gaussian: Gaussian,
    crosses: tuple[int, ...],
    rng: np.random.Generator,
) -> Steps:
    """Natural gradient steps from a Gaussian."""
    size = len(gaussian.location)
    best = -np.inf
    steps = Steps(gaussian, np.empty((0, size)), np.empty((0, size)))
    for number in crosses:
        turns = [np.linalg.qr(rng.normal(size=(size, size)))[0] for _ in range(number)]
        noise = np.sqrt(size) * np.concatenate([*turns, *(-turn for turn in turns)])
        location, factor = steps.gaussian
        points = steps.gaussian.at(noise)
        logp, gradient = evaluate(points)
        bound = float(logp.mean() + np.linalg.slogdet(factor)[1])
        if not bound > best - _FALL:
            return steps
        best = max(best, bound)
        # averages of the log ratio's slopes and, by Stein's identity, of its Hessian
        slopes = gradient @ factor + noise
        value, vector = linalg.eigh(_denoised(slopes.T @ noise / len(noise)))
        width = 1.0 / np.sqrt(1.0 - np.minimum(value, 1.0 - _MOST_WIDENED**-2))
        root = (vector * width) @ vector.T
        location = location + factor @ (root @ (root @ slopes.mean(axis=0)))
        points = np.concatenate([steps.points, points])
        gradients = np.concatenate([steps.gradients, gradient])
        steps = Steps(Gaussian(location, factor @ root), points, gradients)
    return steps


def _denoised(matrix: Floats) -> Floats:
    """The symmetric part, less the share of noise that the antisymmetric part shows in it."""
    symmetric = 0.5 * (matrix + matrix.T)
    size = len(matrix)
    if size < 2:
        return symmetric
    # of independent noise the symmetric part has size (size + 1) / 2 numbers
    noise = (size + 1) / (size - 1) * ((matrix - symmetric) ** 2).sum()
    return symmetric * max(0.0, 1.0 - noise / (symmetric**2).sum())


def _skewed(steps: Steps) -> Skewed:
    """Coordinates in which the gradients of draws show no skewness."""
    location, factor = steps.gaussian
    root = np.linalg.cholesky(factor @ factor.T)
    if not len(steps.points):
        return Skewed(location, root, np.zeros(len(root)))
    gaps = steps.points - location
    noise = linalg.solve_triangular(root, gaps.T, lower=True).T
    lines = np.column_stack([np.ones(len(noise)), noise])
    slopes = steps.gradients @ root
    slopes -= lines @ np.linalg.lstsq(lines, slopes)[0]
    square = noise**2 - (noise**2).mean(axis=0)
    third = (slopes * square).sum(axis=0) / (0.5 * (square**2).sum(axis=0))
    error = np.sqrt((slopes**2).mean(axis=0) / (0.25 * (square**2).sum(axis=0)))
    skewness = np.where(np.abs(third) > _CLEAR * error, third / 3.0, 0.0)
    return Skewed(location, root, np.clip(skewness, -_MOST_SKEWED, _MOST_SKEWED))
