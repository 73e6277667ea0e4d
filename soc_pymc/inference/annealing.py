"""Annealed importance sampling: draws where a Gaussian approximation is not good enough.

Draws of the Gaussian q move towards the posterior p through densities q^(1 - b) p^b, b from 0 to 1,
by Hamiltonian steps that leave each of these unchanged. Each draw's importance weight is collected
on its way (Neal 2001), so that Pareto k and the effective sample say how good the result is, as for
the Gaussian itself. All draws move at once.
"""

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from .._lib.arrays import Bools, Floats
from .density import Evaluate

_LEAPS = 3  # evaluations of a Hamiltonian step
_STEP, _ACCEPTED, _RATE = 0.35, 0.8, 0.2  # first step in sd, share accepted, speed of its change
_FARTHEST = 9.0  # sd: paths that leave this box are refused

Advance = Callable[[float], None]


class _Walk:
    """Draws in coordinates where the Gaussian is standard normal, and how they move."""

    def __init__(
        self, evaluate: Evaluate, location: Floats, factor: Floats, noise: Floats,
        rng: np.random.Generator, advance: Advance,
    ) -> None:  # fmt: skip
        self._evaluate, self._location, self._factor = evaluate, location, factor
        self._rng, self._advance, self._step = rng, advance, _STEP
        self.noise = noise
        self.logp, self._gradient = self._target(noise)

    def _target(self, noise: Floats) -> tuple[Floats, Floats]:
        logp, gradient = self._evaluate(self._location + noise @ self._factor.T)
        return logp, gradient @ self._factor

    def move(self, share: float) -> None:
        """One Hamiltonian step of every draw, which leaves q^(1 - share) p^share unchanged."""
        state = self.noise, self.logp, self._gradient
        noise, logp, gradient, accepted = _moved(self._target, share, self._step, state, self._rng)
        self.noise = np.where(accepted[:, None], noise, self.noise)
        self._gradient = np.where(accepted[:, None], gradient, self._gradient)
        self.logp = np.where(accepted, logp, self.logp)
        self._step *= float(np.exp(_RATE * (accepted.mean() - _ACCEPTED)))
        self._advance(len(noise))

    def gained(self) -> Floats:
        """Log density of the posterior over that of the Gaussian, up to a constant."""
        return self.logp + 0.5 * (self.noise**2).sum(axis=1)


def annealed(
    evaluate: Evaluate,
    location: Floats,
    factor: Floats,
    number: int,
    densities: int,
    rng: np.random.Generator,
    advance: Advance,
) -> tuple[Floats, Floats]:
    """Noise of draws, (number, dim), such that they are location + factor @ noise; log weights.

    They move through as many `densities`, the posterior included.
    """
    noise = rng.normal(size=(number, len(location)))
    walk, log_weight = _Walk(evaluate, location, factor, noise, rng, advance), np.zeros(number)
    for before, share in pairwise(np.linspace(0.0, 1.0, densities + 1)):
        log_weight += (share - before) * walk.gained()
        if share < 1.0:
            walk.move(float(share))
    return walk.noise, log_weight


def _moved(
    target: Evaluate,
    share: float,
    step: float,
    state: tuple[Floats, Floats, Floats],
    rng: np.random.Generator,
) -> tuple[Floats, Floats, Floats, Bools]:
    """One Hamiltonian step of every draw: places, log densities, gradients; which are accepted."""
    noise, logp, gradient = state
    momentum = rng.normal(size=noise.shape)
    # steps of different lengths, so that no path returns to where it began
    length = (step * rng.uniform(0.8, 1.2, len(noise)))[:, None]

    def slope(noise: Floats, gradient: Floats) -> Floats:
        return share * gradient - (1.0 - share) * noise

    def energy(noise: Floats, logp: Floats, momentum: Floats) -> Floats:
        gaussian = 0.5 * (1.0 - share) * (noise**2).sum(axis=1)
        return share * logp - gaussian - 0.5 * (momentum**2).sum(axis=1)

    before = energy(noise, logp, momentum)
    inside = np.ones(len(noise), dtype=bool)
    for _ in range(_LEAPS):
        momentum = momentum + 0.5 * length * slope(noise, gradient)
        noise = noise + length * momentum
        inside &= (np.abs(noise) < _FARTHEST).all(axis=1)
        noise = np.where(inside[:, None], noise, state[0])
        logp, gradient = target(noise)
        momentum = momentum + 0.5 * length * slope(noise, gradient)
    # a density of 0 has an energy of -inf or NaN, which no number is below
    with np.errstate(invalid="ignore"):
        gain = energy(noise, logp, momentum) - before
        accepted = inside & (np.log(rng.random(len(gain))) < gain)
    return noise, logp, gradient, accepted
