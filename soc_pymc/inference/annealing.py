"""Annealed importance sampling, where a Gaussian q is not a good enough posterior.

Draws of q move towards the posterior p through densities q^(1 - b) p^b, b from 0 to 1, by leapfrog
steps that leave each of these unchanged (Neal 2001) and keep most of their momentum. Each draw
collects its importance weight on its way.
"""

from dataclasses import dataclass

import numpy as np

from .._lib.arrays import Floats, Pair
from .density import Evaluate

WIDER = 1.05
"""Factor on the widths of a Gaussian that is too narrow where the posterior is skewed."""
# length of a step in sd, and what is kept of the momentum after it
_LEAPFROG_STEP = 0.45
_KEPT = 0.75
_BOX = 9.0  # sd: steps out of this box are refused


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

    def slope(self, share: float) -> Floats:
        """Gradient of that log density in the noise."""
        return share * self.gradient - (1.0 - share) * self.noise


def annealed(
    evaluate: Evaluate,
    location: Floats,
    factor: Floats,
    number: int,
    densities: int,
    rng: np.random.Generator,
    *,
    widening: float = WIDER,
) -> Pair:
    """Noise of draws (number, dim), location + factor @ noise, and their log weights."""
    wider = widening * factor

    def target(noise: Floats) -> Pair:
        logp, gradient = evaluate(location + noise @ wider.T)
        return logp, gradient @ wider

    noise, momentum = rng.normal(size=(2, number, len(location)))
    state = _State(noise, momentum, *target(noise))
    log_weight = np.zeros(number)
    for k in range(1, densities + 1):
        log_weight += (state.logp + 0.5 * (state.noise**2).sum(axis=1)) / densities
        if k < densities:
            state = _leapfrog(target, k / densities, state, rng)
            fresh = rng.normal(size=noise.shape)
            state.momentum = _KEPT * state.momentum + np.sqrt(1.0 - _KEPT**2) * fresh
    return widening * state.noise, log_weight


def _leapfrog(
    target: Evaluate, share: float, old: _State, rng: np.random.Generator
) -> _State:
    """A step that leaves q^(1 - share) p^share unchanged; where refused, momentum is reversed."""
    half = old.momentum + 0.5 * _LEAPFROG_STEP * old.slope(share)
    noise = old.noise + _LEAPFROG_STEP * half
    inside = (np.abs(noise) < _BOX).all(axis=1)
    noise = np.where(inside[:, None], noise, old.noise)
    new = _State(noise, half, *target(noise))
    new.momentum = half + 0.5 * _LEAPFROG_STEP * new.slope(share)
    # a density of 0 has an energy of -inf or NaN, never exceeded by a random number
    with np.errstate(invalid="ignore"):
        gain = new.energy(share) - old.energy(share)
        accepted = inside & (np.log(rng.random(len(gain))) < gain)
    new.momentum[~accepted] = -old.momentum[~accepted]
    for name in ("noise", "logp", "gradient"):
        getattr(new, name)[~accepted] = getattr(old, name)[~accepted]
    return new
