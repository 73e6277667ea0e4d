"""What fitted priors say of theta and of outcomes: one law for each family of priors."""

from collections.abc import Callable

from ..._lib.errors import FitError
from ...families.priors import Gamma, GammaMixture, Normal, NormalMixture
from ...inference.methods import FiveSteps
from ...inference.results import FIT, Fit
from ._law import Columns, Posterior, Scorer, curves_at, in_chunks, items_at_once, select
from ._posterior import ThetaMixture
from .bin_mixture import BinMixtureLaw
from .bins import bin_scores_of
from .gamma import GammaLaw
from .mixture import MixtureLaw
from .normal import NormalLaw

__all__ = [
    "Columns",
    "Posterior",
    "Scorer",
    "ThetaMixture",
    "bin_scores_of",
    "curves_at",
    "in_chunks",
    "items_at_once",
    "posterior_of",
    "select",
]

_LAWS: dict[type, Callable[[Fit], Posterior]] = {
    Gamma: GammaLaw,
    Normal: NormalLaw,
    GammaMixture: MixtureLaw,
    NormalMixture: MixtureLaw,
}


def posterior_of(fit: Fit) -> Posterior:
    """The law of a fit's prior.

    Parameters
    ----------
    fit
        The fit.

    Raises
    ------
    FitError
        If there is no law for such priors.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> frame = soc.simulation.s1(2000, seed=0)
    >>> items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    >>> posterior_of(soc.fit(soc.summarize(items), progress=False)).outcome
    'count'
    """
    FIT(fit, "fit")
    if isinstance(fit.method, FiveSteps) and isinstance(fit.prior, GammaMixture | NormalMixture):
        return BinMixtureLaw(fit)
    law = _LAWS.get(type(fit.prior))
    if law is None:
        raise FitError(f"fits of {type(fit.prior).__name__} have no law of their outcomes")
    return law(fit)
