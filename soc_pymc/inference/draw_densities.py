"""Log prior and log likelihood of a fit's draws, for the statistics that it was made from."""

import numpy as np

from .._lib.arrays import Floats
from .._lib.errors import FitError
from .._model.problem import check_prior
from ..data.statistics import Statistics
from ..fits.fit import Fit
from .fit_tree import bin_table

_SAME = 1e-6  # relative difference of numbers that two machines compute alike


def draw_densities(fit: Fit, stats: Statistics) -> tuple[Floats, Floats]:
    """Log prior of top-level parameters and log likelihood of all draws, both (chain, draw)."""
    if fit.widened:
        raise FitError(
            "the fit's bands were widened for clusters, so its draws are not those of its model's "
            "posterior: fit statistics of the items without cluster="
        )
    check_prior(fit.prior, stats)
    tables = bin_table(stats, [fit.axis("mean"), fit.axis("variance")], bool(fit.atoms))
    differences = []
    for group, table in zip(("constant_data", "observed_data"), tables, strict=True):
        for name, values in table.items():
            pair = values.to_numpy(), fit.data[group][str(name)].to_numpy()
            if pair[0].shape != pair[1].shape or not np.allclose(
                *pair, _SAME, 0.0, equal_nan=True
            ):
                differences.append(str(name))
    if (stats.groups if fit.prior.groups else ()) != fit.groups:
        differences.append("groups")
    if differences:
        raise FitError(
            f"the statistics are not those of the fit ({', '.join(differences)} differ): give "
            "those that it was made from"
        )
    prior, likelihood = (
        np.sum(
            [x.sum(x.dims[2:]).to_numpy() for x in fit.data[name].data_vars.values()],
            axis=0,
        )
        for name in ("log_prior", "log_likelihood")
    )
    return prior, likelihood
