"""Methods that draw from the posterior, as frozen configurations."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from .._lib.arguments import (
    DRAWS,
    MOST_DRAWS,
    PROBABILITY,
    OrNone,
    Whole,
    convert_fields,
)
from ..fits.methods import Method, Status

if TYPE_CHECKING:
    import pymc as pm
    import xarray as xr

    from .._model.problem import Problem
    from ..data.statistics import Statistics
    from ..families.priors import Prior

_SEED = Whole(0, (1 << 63) - 1)


type Groups = dict[str, xr.Dataset]
"""Datasets by name of the group of the fit's `DataTree`."""


class PosteriorMethod(Method):
    """A method that draws from the posterior of a model."""

    seed: int
    # False if levels may be integrated out of the model
    full: ClassVar[bool]

    @abstractmethod
    def draw(self, built: "Problem", progress: bool | None) -> "tuple[Groups, Status]":
        """Return draws of the model's posterior with what describes them."""

    def run(
        self,
        stats: "Statistics",
        prior: "Prior",
        model: "pm.Model | None",
        progress: bool | None,
    ) -> "tuple[xr.DataTree, Status]":
        """Return draws from the posterior of the prior's model, or of an extended `model`."""
        from .fitting import posterior_tree

        return posterior_tree(self, stats, prior, model, progress)


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

    full: ClassVar[bool] = False
    seed: int = 0
    draws: int = 1000
    batch: int | None = None
    max_iterations: int = 200

    def __post_init__(self) -> None:
        batch = OrNone(Whole(0, MOST_DRAWS))
        convert_fields(self, seed=_SEED, draws=DRAWS, batch=batch, max_iterations=DRAWS)

    def draw(self, built: "Problem", progress: bool | None) -> "tuple[Groups, Status]":
        """Return draws of the Gaussian, weighted by importance and repaired where it is poor."""
        from .variational import run_variational

        return run_variational(built, self, progress)


@dataclass(frozen=True)
class NUTS(PosteriorMethod):
    """The No-U-Turn sampler on the same model and coordinates: the reference.

    Parameters
    ----------
    draws : int
        Draws kept, per chain.
    tune : int
        Tuning steps discarded, per chain.
    chains : int
        Independent chains.
    seed : int
        Seed of the sampler.
    target_accept : float
        Acceptance probability that tuning aims at: raise it where transitions diverge.

    Raises
    ------
    FitError
        If a number is out of range.

    References
    ----------
    .. [1] Hoffman and Gelman (2014), The No-U-Turn sampler, Journal of Machine Learning Research
       15, 1593-1623.

    Examples
    --------
    >>> NUTS(draws=500, chains=2).tune
    1000
    """

    full: ClassVar[bool] = True
    draws: int = 1000
    tune: int = 1000
    chains: int = 4
    seed: int = 0
    target_accept: float = 0.8

    def __post_init__(self) -> None:
        sizes = {"draws": DRAWS, "tune": DRAWS, "chains": Whole(1, 1000)}
        convert_fields(self, seed=_SEED, target_accept=PROBABILITY, **sizes)

    def draw(self, built: "Problem", progress: bool | None) -> "tuple[Groups, Status]":
        """Return the chains of the sampler."""
        from .sampling import run_nuts

        return run_nuts(built, self, progress)
