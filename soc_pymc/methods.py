"""Methods of inference: small frozen configurations, nothing computed here."""

from dataclasses import dataclass

from .errors import FitError

__all__ = ["NUTS", "VI"]


def _at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise FitError(f"{name}={value} must be at least {least}")


@dataclass(frozen=True)
class VI:
    """Gaussian variational inference in data-informed coordinates (the default).

    Parameters
    ----------
    seed
        Seed of every random number used; the same seed and statistics give the same fit.
    draws
        Posterior draws kept in the fit.
    rotations
        The expectation in the evidence bound is an average over fixed standard normal draws: for
        each rotation, plus and minus the axes of a randomly rotated cross, which is exact for
        quadratics.
    batch
        Bins in a minibatch; 0 takes all bins, None takes what costs less: all of up to 20,000 bins,
        minibatches of 256 of more.
    max_iterations
        Iterations of the optimiser before it gives up and says so.

    Examples
    --------
    >>> VI(seed=1).draws
    1000
    """

    seed: int = 0
    draws: int = 1000
    rotations: int = 1
    batch: int | None = None
    max_iterations: int = 200

    def __post_init__(self) -> None:
        _at_least("draws", self.draws, 1)
        _at_least("rotations", self.rotations, 1)
        _at_least("max_iterations", self.max_iterations, 1)
        if self.batch is not None:
            _at_least("batch", self.batch, 0)


@dataclass(frozen=True)
class NUTS:
    """The No-U-Turn sampler on the same model and coordinates: the reference.

    Parameters
    ----------
    draws, tune
        Draws kept and tuning steps discarded, per chain.
    chains
        Independent chains.
    seed
        Seed of the sampler.

    Examples
    --------
    >>> NUTS(draws=500, chains=2).tune
    1000
    """

    draws: int = 1000
    tune: int = 1000
    chains: int = 4
    seed: int = 0

    def __post_init__(self) -> None:
        _at_least("draws", self.draws, 1)
        _at_least("tune", self.tune, 1)
        _at_least("chains", self.chains, 1)
