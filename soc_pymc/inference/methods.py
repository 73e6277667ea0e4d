"""Methods of inference as frozen configurations."""

from dataclasses import dataclass

from .._lib.arguments import DRAWS, MOST_DRAWS, PROBABILITY, OneOf, OrNone, Whole, checked, switch
from .._lib.errors import FitError

_SEED = Whole(0, (1 << 63) - 1)


@checked(
    seed=_SEED,
    draws=DRAWS,
    rotations=DRAWS,
    batch=OrNone(Whole(0, MOST_DRAWS)),
    max_iterations=DRAWS,
)
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
        Number of rotations. The evidence bound is averaged over fixed standard normal draws: for
        each rotation, plus and minus the axes of a randomly rotated cross, which is exact for
        quadratics.
    batch
        Bins per minibatch. 0 takes all bins; None takes all bins up to 20,000, and otherwise
        minibatches of 256.
    max_iterations
        Iterations of the optimiser before it gives up with a warning.

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


@checked(draws=DRAWS, tune=DRAWS, chains=Whole(1, 1000), seed=_SEED, target_accept=PROBABILITY)
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
    target_accept
        Acceptance probability that tuning aims at. Higher values take shorter steps: raise it
        where transitions diverge.

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


@checked(
    smooth=switch,
    monotone=switch,
    components=OrNone(Whole(2, MOST_DRAWS)),
    moments=OrNone(OneOf("log", "plain")),
)
@dataclass(frozen=True)
class FiveSteps:
    """The paper's method: each bin's prior by maximum likelihood, then smoothed over the bins.

    The result is one draw, so bands have no width. Only the scales of the curves, ``monotone`` and
    ``groups`` of a prior's configuration are used.

    Parameters
    ----------
    smooth
        Whether E(theta | t) and Var(theta | t) of the bins are smoothed over the score (the paper's
        step 3). False keeps each bin's own estimate: curves are then steps.
    monotone
        Whether E(theta | t) is made non-decreasing, as with ``monotone=True`` of the prior.
    components
        Number of components of a mixture, at fixed positions; None takes 100.
    moments
        Moments that are smoothed: ``"plain"`` (the default), E(theta | t) and Var(theta | t) (for
        counts, log E(theta | t) and the squared coefficient of variation); or ``"log"``, E(log
        theta | t) and Var(log theta | t), to which each bin's prior is matched by shifting and
        scaling log theta, as in the paper's Section 5.1. ``"log"`` is for bins with hundreds of
        events; with few events these moments are mostly noise. It is not available for values, nor
        for a mixture with ``monotone``.

    References
    ----------
    Muralidharan and Najmi, "Second Order Calibration", Sections 3 and 5.1.

    Examples
    --------
    >>> FiveSteps(smooth=False).smooth
    False
    """

    smooth: bool = True
    monotone: bool = False
    components: int | None = None
    moments: str | None = None

    def __post_init__(self) -> None:
        if self.moments is not None and not self.smooth:
            raise FitError("smooth=False smooths no moments: leave out moments=")


Method = VI | NUTS | FiveSteps
