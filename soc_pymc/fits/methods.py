"""The base of all methods of inference, and the status that they return."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .._lib.reprs import html_table, number

if TYPE_CHECKING:
    import xarray as xr

    from ..data.statistics import Statistics
    from ..families.priors import Prior
    from .curves import WeightsOf


@dataclass(frozen=True)
class Status:
    """Outcome of the search for a fit.

    Attributes
    ----------
    converged : bool
        True if the fit can be trusted: the optimiser or sampler passed its test, and for VI the
        Pareto k of the approximation is at most 0.7.
    reason : str
        One sentence with the reason, and the remedy if it did not converge.
    pareto_k : float or None
        For VI, Pareto shape of the importance weights of the approximation (Yao et al. 2018).
    ess_fraction : float or None
        For VI, their effective sample over their number: below 0.95 draws are resampled by the
        weights.
    seconds : float
        Elapsed time of the fit.
    mc_error : float or None
        For NUTS, largest Monte Carlo standard error of posterior means, in posterior sd, if known.

    Examples
    --------
    >>> Status(False, "it stopped early").converged
    False
    """

    converged: bool
    reason: str
    pareto_k: float | None = None
    ess_fraction: float | None = None
    seconds: float = 0.0
    mc_error: float | None = None

    def _repr_html_(self) -> str:
        shown = {k: v for k, v in vars(self).items() if v is not None}
        return html_table("Status", ((k, number(v)) for k, v in shown.items()))


class Method(ABC):
    """A configuration of inference that finds a fit's draws."""

    @property
    def weights(self) -> "WeightsOf | None":
        """What makes weights of a mixture's components of curves, if they are not smooth."""
        return None

    @abstractmethod
    def run(
        self,
        stats: "Statistics",
        prior: "Prior",
        model: Any,
        progress: bool | None,
    ) -> "tuple[xr.DataTree, Status]":
        """Return the fit's `DataTree`, and how far it can be trusted.

        `model` is None, or the prior's `pymc.Model` with further terms.
        """
