"""The base of all methods of inference."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import xarray as xr

    from ..data.statistics import Statistics
    from ..families.priors import Prior
    from .curves import WeightsOf
    from .fit import Status


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
