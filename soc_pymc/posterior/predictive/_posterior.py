"""Posteriors of items in full, for decisions: mixtures of conjugate components."""

from dataclasses import dataclass, replace

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ...inference.results import Fit

__all__ = ["ThetaMixture", "narrowed", "picked"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class ThetaMixture:
    """Theta of n items given score and outcome: mixtures of K Gammas, or of K Normals.

    Attributes
    ----------
    first, second
        Shape and rate of the Gammas, or mean and variance of the Normals, each (K, n).
    weight
        Weights of the components, (K, n), which add up to 1 over the first axis; None for equal
        ones.
    """

    first: Floats
    second: Floats
    weight: Floats | None = None

    def average(self, values: Floats) -> Floats:
        """Mean over the components of `values` (K, n), shape (n,)."""
        if self.weight is None:
            return np.asarray(values.mean(axis=0))
        return np.asarray(np.einsum("kn,kn->n", self.weight, values))


def narrowed(fit: Fit, draws: Ints) -> Fit:
    """The fit with some of its draws alone, numbered with chains one after the other."""
    posterior = fit.data["posterior"].to_dataset()
    at = np.divmod(draws, posterior.sizes["draw"])
    chain, draw = (xr.DataArray(x, dims="few") for x in at)
    few = posterior.isel(chain=chain, draw=draw).drop_vars(["chain", "draw"])
    few = few.rename(few="draw").expand_dims("chain").transpose("chain", "draw", ...)
    groups = {"posterior": few}
    if "constant_data" in fit.data:
        groups["constant_data"] = fit.data["constant_data"].to_dataset()
    tree = xr.DataTree.from_dict(groups)
    tree.attrs = dict(fit.data.attrs)
    return replace(fit, data=tree)


def picked(weight: Floats, uniform: Floats) -> Ints:
    """Components by weights (draws, n, K), up to a factor, and uniforms (draws, n)."""
    upto = np.cumsum(weight, axis=-1)
    found = (upto < (uniform * upto[..., -1])[..., None]).sum(axis=-1)
    return np.minimum(found, weight.shape[-1] - 1)
