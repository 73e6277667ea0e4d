"""Methods of inference as frozen configurations."""

from dataclasses import dataclass

from .._lib.arguments import (
    DRAWS,
    MOST_DRAWS,
    PROBABILITY,
    OneOf,
    OrNone,
    Whole,
    convert_fields,
)

_SEED = Whole(0, (1 << 63) - 1)


@dataclass(frozen=True)
class VI:
    """Gaussian variational inference in data-informed coordinates (the default).

    Parameters
    ----------
    seed
        Seed of every random number used; the same seed and statistics give the same fit.
    draws
        Posterior draws kept in the fit.
    batch
        Bins per minibatch. 0 takes all bins; None takes all up to 20,000, beyond that 256.
    max_iterations
        Iterations of the optimiser before it gives up with a warning.

    Examples
    --------
    >>> VI(seed=1).draws
    1000
    """

    seed: int = 0
    draws: int = 1000
    batch: int | None = None
    max_iterations: int = 200

    def __post_init__(self) -> None:
        batch = OrNone(Whole(0, MOST_DRAWS))
        convert_fields(self, seed=_SEED, draws=DRAWS, batch=batch, max_iterations=DRAWS)


@dataclass(frozen=True)
class NUTS:
    """The No-U-Turn sampler on the same model and coordinates: the reference.

    Parameters
    ----------
    draws, tune
        Draws kept and tuning steps discarded, per chain.
    chains, seed
        Independent chains, and the seed of the sampler.
    target_accept
        Acceptance probability that tuning aims at: raise it where transitions diverge.

    Examples
    --------
    >>> NUTS(draws=500, chains=2).tune
    1000
    """

    draws: int = 1000
    tune: int = 1000
    chains: int = 4
    seed: int = 0
    target_accept: float = 0.8

    def __post_init__(self) -> None:
        sizes = {"draws": DRAWS, "tune": DRAWS, "chains": Whole(1, 1000)}
        convert_fields(self, seed=_SEED, target_accept=PROBABILITY, **sizes)


@dataclass(frozen=True)
class FiveSteps:
    """The paper's method: each bin's prior by maximum likelihood, then smoothed over the bins.

    The result is one draw, so bands have no width. Of a prior, only the scales of the curves and
    ``monotone`` are used; groups are pooled, with ``groups=False``.

    Parameters
    ----------
    moments
        Moments that are smoothed: ``"plain"``, E(theta | t) and Var(theta | t) (for counts, log
        E(theta | t) and the squared coefficient of variation); or ``"log"``, E(log theta | t) and
        Var(log theta | t), as in Section 5.1 of Muralidharan and Najmi, "Second Order Calibration",
        for counts in bins with hundreds of events: with few these moments are mostly noise.

    Examples
    --------
    >>> FiveSteps(moments="log").moments
    'log'
    """

    moments: str = "plain"

    def __post_init__(self) -> None:
        convert_fields(self, moments=OneOf("log", "plain"))


Method = VI | NUTS | FiveSteps
