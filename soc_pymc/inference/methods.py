"""The base of methods that draw from the posterior of a model."""

from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import xarray as xr

from .._lib.arguments import Whole
from .._lib.progress import phase
from .._model.problem import Problem, build
from ..data.statistics import Statistics
from ..families.priors import Prior
from ..fits.fit import Method, Status
from .clusters import for_clusters
from .fit_tree import fit_tree

if TYPE_CHECKING:
    import pymc as pm

STORED_SEED = Whole(0, (1 << 63) - 1)


type Groups = dict[str, xr.Dataset]
"""Datasets by name of the group of the fit's `DataTree`."""


class PosteriorMethod(Method):
    """A method that draws from the posterior of a model."""

    seed: int
    # False if levels may be integrated out of the model
    full: ClassVar[bool]

    @abstractmethod
    def draw(self, built: Problem, progress: bool | None) -> tuple[Groups, Status]:
        """Return draws of the model's posterior with what describes them."""

    def run(
        self,
        stats: Statistics,
        prior: Prior,
        model: "pm.Model | None",
        progress: bool | None,
    ) -> tuple[xr.DataTree, Status]:
        """Return draws from the posterior of the prior's model, or of an extended `model`."""
        with phase("fit: pilot and model", enabled=progress):
            built = build(stats, prior, full=self.full or model is not None)
            if model is not None:  # in the coordinates of the same Laplace start
                from .._model.pymc_model import extended

                built = extended(built, model)
        groups, status = self.draw(built, progress)
        if stats.blocks:
            posterior = groups["posterior"]
            wider, words = for_clusters(built, stats, prior, posterior, self.seed)
            groups = {**groups, **wider}
            status = replace(status, reason=status.reason + words)
        return fit_tree(built, stats, groups, prior.monotone, self.seed), status
