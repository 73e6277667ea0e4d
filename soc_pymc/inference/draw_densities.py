"""Log prior and log likelihood of a fit's draws."""

import numpy as np
import xarray as xr

from .._lib.arrays import Floats
from .._lib.errors import FitError
from .._model.problem import check_prior
from ..data.statistics import Statistics
from .fit_tree import bin_table
from .results import Fit

_SAME = 1e-6  # relative difference of numbers that two machines compute alike
_OTHER = "the statistics are not those of the fit ({}): give those that it was made from"


def draw_densities(fit: Fit, stats: Statistics) -> tuple[Floats, Floats]:
    """Log prior of top-level parameters and log likelihood of all draws, both (chain, draw)."""
    if fit.widened:
        raise FitError(
            "the fit's bands were widened for clusters, so its draws are not those of its model's "
            "posterior: fit statistics of the items without cluster="
        )
    check_prior(fit.prior, stats)
    _check_same(fit, stats)
    prior, likelihood = (
        _total(fit.data[name].to_dataset()) for name in ("log_prior", "log_likelihood")
    )
    return prior, likelihood


def _total(densities: xr.Dataset) -> Floats:
    parts = (x.sum(x.dims[2:]).to_numpy() for x in densities.values())
    return np.asarray(sum(parts))


def _check_same(fit: Fit, stats: Statistics) -> None:
    """Refuse statistics whose bins, outcomes or groups differ from those that the fit keeps."""
    tables = bin_table(stats, fit.axis("mean"), bool(fit.atoms))
    for group, table in zip(("constant_data", "observed_data"), tables, strict=True):
        stored = fit.data[group]
        if table.sizes["bin"] != stored.sizes["bin"]:
            numbers = f"{table.sizes['bin']:,} occupied bins and {stored.sizes['bin']:,}"
            raise FitError(_OTHER.format(numbers))
        for name, values in table.items():
            equal = np.isclose(values, stored[str(name)], rtol=_SAME, atol=0.0, equal_nan=True)
            if not equal.all():
                raise FitError(_OTHER.format(f"{name} differs in {(~equal).sum():,} bins"))
    if (stats.groups if fit.prior.groups else ()) != fit.groups:
        raise FitError(_OTHER.format("they have other groups"))
