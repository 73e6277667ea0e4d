"""Log prior and log likelihood of a fit's draws, under its model built again from statistics."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import xarray as xr
from pymc import Model as Model
from scipy import linalg

from .._lib.arguments import A
from .._lib.arrays import Floats
from .._lib.errors import FitError
from .._model.problem import Coefficients, Problem, build, check_prior, extended
from ..data.statistics import Statistics
from .density import at_draws, top_level
from .fit_tree import bin_table
from .methods import NUTS
from .results import Fit
from .row_curves import RowCurves

MODEL = A(Model, "the model that the fit was made with")
"""The type of an extended model, and the rule for it as an argument."""

_SAME = 1e-6  # relative difference of numbers that two machines compute alike
_OTHER = "the statistics are not those of the fit ({}): give those that it was made from"


def draw_densities(fit: Fit, stats: Statistics, model: pm.Model | None) -> tuple[Floats, Floats]:
    """Log prior of the top-level parameters and log likelihood of every draw, both (chain, draw).

    Densities are on the parameters' own scales, without Jacobians. A penalised coefficient given
    its scale is no top-level parameter. What a user observed or added as a potential belongs to the
    likelihood.
    """
    if (model is not None) != bool(fit.data.attrs.get("own_terms", False)):
        made = "without model=: leave it out" if model is not None else "with model=: give it too"
        raise FitError(f"the fit was made {made}")
    if fit.widened:
        raise FitError(
            "the fit's bands were widened for clusters, so its draws are not those of its model's "
            "posterior: fit statistics of the items without cluster="
        )
    check_prior(fit.prior, stats)
    built = built_again(fit, stats)
    check_same(fit, stats, built)
    if model is not None:
        built = extended(built, model)
    posterior = fit.data["posterior"].to_dataset()
    lacking = sorted(v.name for v in built.model.free_RVs if v.name not in posterior)
    if lacking:
        raise FitError(f"the fit has no draws of {', '.join(lacking)}: model= is of another fit")
    values = values_of(fit, built)
    shape = posterior.sizes["chain"], posterior.sizes["draw"]
    prior, likelihood = _evaluated(built, values)
    if built.levels:  # the model is without their coefficients; the draws have their curves
        likelihood = RowCurves.of(built).log_likelihood(posterior).sum(axis=1)
    return prior.reshape(shape), likelihood.reshape(shape)


def built_again(fit: Fit, stats: Statistics) -> Problem:
    """The problem that gave a fit."""
    own_terms = bool(fit.data.attrs.get("own_terms", False))
    return build(stats, fit.prior, whole=own_terms or isinstance(fit.method, NUTS))


def check_same(fit: Fit, stats: Statistics, built: Problem) -> None:
    """Refuse statistics whose bins or outcomes differ from those that the fit keeps."""
    tables = bin_table(stats, built.curves[0].axis, bool(len(built.rows.atoms)))
    for group, table in zip(("constant_data", "observed_data"), tables, strict=True):
        kept = fit.data[group]
        if table.sizes["bin"] != kept.sizes["bin"]:
            numbers = f"{table.sizes['bin']:,} occupied bins and {kept.sizes['bin']:,}"
            raise FitError(_OTHER.format(numbers))
        for name, values in zip(map(str, table), table.values(), strict=True):
            ours, theirs = values.to_numpy(), kept[name].to_numpy()
            if not np.allclose(ours, theirs, rtol=_SAME, atol=0.0, equal_nan=True):
                differ = int((~np.isclose(ours, theirs, rtol=_SAME, atol=0.0)).sum())
                raise FitError(_OTHER.format(f"{name} differs in {differ:,} bins"))
    if built.labels != fit.groups:
        raise FitError(_OTHER.format("they have other groups"))


# --- parameters of the draws ---------------------------------------------------------------------


def values_of(fit: Fit, built: Problem) -> dict[str, Floats]:
    """Values (draws, ...) of all parameters, as those of the model built again."""
    posterior = fit.data["posterior"].to_dataset()
    values = {}
    for variable in built.model.free_RVs:
        draws = posterior[variable.name].to_numpy()
        values[variable.name] = draws.reshape(-1, *draws.shape[2:])
    for part in built.coefficients:
        projected = fit.prior.monotone and f"{built.family.curves[0]}_".startswith(part.variable)
        values |= _turned(part, values, posterior, projected)
    return values


def _turned(
    part: Coefficients, values: Mapping[str, Floats], posterior: xr.Dataset, projected: bool
) -> dict[str, Floats]:
    """Coefficients that give the fit's curves in the model built again.

    Coefficients are rotated by the data's information. Where rotations differ, as after a start at
    an earlier fit or on another machine, the curves say what the coefficients are. `projected`
    curves are not those of the coefficients, whose rotation is then taken to be the same.
    """
    names = part.names
    coefficients = np.hstack([values[name] for name in names])
    if projected:
        return {}
    matrix = part.to_outputs
    curves = [posterior[o.name].to_numpy().reshape(len(coefficients), -1) for o in part.outputs]
    wanted = np.hstack(curves)
    if wanted.shape[1] != len(matrix) or coefficients.shape[1] != matrix.shape[1]:
        raise FitError(_OTHER.format("their curves have other knots"))
    if np.allclose(coefficients @ matrix.T, wanted, rtol=_SAME, atol=_SAME):
        return {}
    solution = np.asarray(linalg.lstsq(matrix, wanted.T)[0]).T
    if not np.allclose(solution @ matrix.T, wanted, rtol=_SAME, atol=_SAME):
        raise FitError(_OTHER.format("no coefficients give its curves"))
    ends = np.cumsum([values[name].shape[1] for name in names])[:-1]
    return dict(zip(names, np.split(solution, ends, axis=1), strict=True))


# --- densities -----------------------------------------------------------------------------------


def _evaluated(built: Problem, values: Mapping[str, Floats]) -> tuple[Floats, Floats]:
    """Log prior and log likelihood, (draws,) each."""
    model = built.model

    def densities(own: Mapping[Any, Any]) -> list[Any]:
        own_potentials = [v for v in model.potentials if v.name in built.own]
        prior = [*(pm.logp(v, own[v]) for v in top_level(built)), *own_potentials]
        seen = [pm.logp(v, model.rvs_to_values[v]) for v in model.observed_RVs]
        seen += [v for v in model.potentials if v.name not in built.own]
        # 0 for every draw where nothing was observed
        zero = 0.0 * next(iter(own.values())).sum()
        return [pt.sum([zero, *(each.sum() for each in parts)]) for parts in (prior, seen)]

    first, second = at_draws(built, values, densities)
    return first, second
