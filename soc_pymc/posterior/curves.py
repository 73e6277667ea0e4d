"""Draws of a fit's two curves at scores, groups and exposures, from their values at knots."""

import zlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from .._lib.arrays import Floats, Ints
from .._lib.errors import FitError
from ..data.groups import CROSS, MARK
from ..families.bin_effects import draw_prior
from ..families.family import family_of
from ..families.monotone import project_monotone
from ..inference.results import Fit
from ..model.splines import spline_matrix

P_ZERO = "p_zero"
"""Name of the share of theta that is exactly 0, given the score, and of an item."""
_NUMBERS = 2_000_000  # numbers in one array of draws x items
_LARGEST_LOG = 230.0  # of a mean, cv2 or variance, 1e100: products and squares stay finite


def knot_weights(fit: Fit, curve: str, score: ArrayLike) -> tuple[Floats, Floats]:
    """Values of a shared curve at its knots, and the weights that interpolate them at scores.

    The curve is "mean" (log E(theta|t), or E(theta|t) for Normal priors) or "variance" (log cv2, or
    log Var(theta|t)). Values are (draws, k), chains one after the other, and weights (n, k): the
    curve's draws at the scores are values @ weights.T.
    """
    name = _variable(fit, curve)
    values = fit.data["posterior"][name]
    at = spline_matrix(fit.axis(curve)(score), values[f"{curve}_knot"].to_numpy())
    return _draws(fit, name), at


def curve_draws(
    fit: Fit,
    score: ArrayLike,
    *,
    group: ArrayLike | None = None,
    exposure: ArrayLike | None = None,
) -> tuple[Floats, Floats]:
    """Draws of both curves at scores: log mean and log cv2, or mean and log variance.

    Both are (draws, n), chains one after the other. `group` has the label of each score's group;
    None is the shared curve, and a new group gets it plus deviations drawn from their prior, the
    same wherever its label occurs. Of crossed groups, labels join their levels, and a level may be
    left open (`MARK`). For a fit with a term in exposure (noise sd), exposures are
    clipped to the range of the fit's.

    Raises `FitError` if a score has no position on a curve's axis, if groups or exposures are given
    for a fit without such terms, or if the term in exposure lacks an exposure.
    """
    _check_terms(fit, group, exposure)
    if fit.by_bin:
        return _steps(fit, np.asarray(score, dtype=float))
    first, second = (
        _curve(fit, curve, np.asarray(score, dtype=float), group, exposure)
        for curve in ("mean", "variance")
    )
    return bounded(fit, first, second)


def bounded(fit: Fit, first: Floats, second: Floats) -> tuple[Floats, Floats]:
    """Both curves with logarithms within 230 of 0, so that all results stay finite.

    Lines beyond the outer knots leave that range only at extreme scores.
    """
    low, high = -_LARGEST_LOG, _LARGEST_LOG
    if family_of(fit.prior).outcome.positive:  # the first curve is a logarithm too
        first = np.clip(first, low, high)
    return first, np.clip(second, low, high)


def _check_terms(fit: Fit, group: ArrayLike | None, exposure: ArrayLike | None) -> None:
    if group is not None and not fit.groups:
        raise FitError(
            "the fit has no groups: give the items group= and fit their statistics with groups=True"
        )
    if exposure is not None and fit.prior.exposure is None:
        raise FitError(
            "theta does not depend on the exposure in this fit: fit with exposure=soc.Spline()"
        )
    if exposure is None and fit.prior.exposure is not None:
        raise FitError("theta depends on the exposure in this fit: give the exposure too")


def _variable(fit: Fit, curve: str) -> str:
    return family_of(fit.prior).curves[("mean", "variance").index(curve)]


def _draws(fit: Fit, name: str) -> Floats:
    """A posterior variable with chains one after the other."""
    values = fit.data["posterior"][name].to_numpy()
    return np.asarray(values.reshape(-1, *values.shape[2:]))


def bin_of(fit: Fit, score: ArrayLike) -> NDArray[np.intp]:
    """The fit's bin of each score; for scores beyond the bins, or in empty ones, a neighbour."""
    edges = fit.data["constant_data"]["edge"].to_numpy()
    return np.searchsorted(edges, np.asarray(score, dtype=float), side="right")


def _steps(fit: Fit, score: Floats) -> tuple[Floats, Floats]:
    """Step curves, with one number for each bin."""
    fit.axis("mean")(score), fit.axis("variance")(score)  # refuses scores without a position
    family, at = family_of(fit.prior), bin_of(fit, score)
    first, second = family.to_curves(*(_draws(fit, name)[:, at] for name in family.parameters))
    return first, second


def _curve(
    fit: Fit, curve: str, score: Floats, group: ArrayLike | None, exposure: ArrayLike | None
) -> Floats:
    """Draws of one curve, with all its terms."""
    name = _variable(fit, curve)
    values, at = knot_weights(fit, curve, score)
    if group is None:
        total = values @ at.T
    else:
        labels, code = np.unique(np.asarray(group).astype(str), return_inverse=True)
        total = np.empty((len(values), len(score)))
        for i, label in enumerate(labels):
            own = code == i
            total[:, own] = _of_group(fit, curve, str(label)) @ at[own].T
    posterior = fit.data["posterior"]
    if exposure is not None and f"{name}_by_exposure" in posterior:
        knots = posterior[f"{curve}_exposure_knot"].to_numpy()
        with np.errstate(divide="ignore"):  # exposure 0 counts as the smallest exposure
            x = np.clip(np.log(np.asarray(exposure, dtype=float)), knots[0], knots[-1])
        total += _draws(fit, f"{name}_by_exposure") @ spline_matrix(x, knots).T
    if f"{name}_of_bin" in posterior:
        total += _bin_effects(fit, name, score)
    return np.asarray(total)


def _of_group(fit: Fit, curve: str, label: str) -> Floats:
    """Values of a group's curve at the knots, (draws, k): effects of crossed groups add up."""
    groupings = list(fit.groupings)
    if len(groupings) == 1:
        return _of_level(fit, curve, groupings[0], label)
    levels = zip(groupings, label.split(CROSS), strict=True)
    shared = _draws(fit, _variable(fit, curve))
    own = [_of_level(fit, curve, name, level) - shared for name, level in levels if level != MARK]
    return _rising(fit, curve, shared + np.sum(own, axis=0)) if own else shared


def _of_level(fit: Fit, curve: str, grouping: str, level: str) -> Floats:
    """The same for one level; a level that the fit does not know deviates by chance."""
    name, levels = _variable(fit, curve), fit.groupings[grouping]
    if level in levels:
        return _draws(fit, f"{name}_of_{grouping}")[:, levels.index(level)]
    constant = fit.data["constant_data"]
    if f"{curve}_group_functions" not in constant:  # five steps have no prior of groups
        return _draws(fit, name)
    functions = constant[f"{curve}_group_functions"]
    kinds = functions[f"{curve}_group_function"].to_numpy()
    mine = np.char.startswith(kinds.astype(str), f"{grouping}_")
    sd = np.stack([_draws(fit, f"{name}_{kind}_sd") for kind in kinds[mine]], axis=1)
    place = list(fit.groupings).index(grouping)  # equal labels of two groupings are not alike
    rng = np.random.default_rng([zlib.crc32(level.encode()), len(curve), *([place] * (place > 0))])
    deviation = (sd * rng.normal(size=sd.shape)) @ functions.to_numpy()[:, mine].T
    return _rising(fit, curve, _draws(fit, name) + deviation)


def _rising(fit: Fit, curve: str, values: Floats) -> Floats:
    """Draws at the knots, non-decreasing if the prior wants the curve to be."""
    if curve == "mean" and fit.prior.monotone:
        knots = fit.data["posterior"][f"{curve}_knot"].to_numpy()
        return project_monotone(values, knots)
    return np.asarray(values)


def _bin_effects(fit: Fit, name: str, score: Floats) -> Floats:
    """Effects of the scores' bins, drawn from their prior for a bin without items."""
    constant = fit.data["constant_data"]
    effects = fit.data["posterior"][f"{name}_of_bin"]
    number = np.searchsorted(constant["edge"].to_numpy(), score, side="right")
    known, values = effects["effect_bin"].to_numpy(), _draws(fit, f"{name}_of_bin")
    at = np.minimum(np.searchsorted(known, number), len(known) - 1)
    found = values[:, at]
    new = known[at] != number
    if new.any():
        bins, code = np.unique(number[new], return_inverse=True)
        rng = np.random.default_rng(0)
        scale = np.repeat(_draws(fit, f"{name}_bin_effect_sd")[:, None], len(bins), axis=1)
        normal = fit.prior.gridded  # others have a t
        drawn = scale * rng.normal(size=scale.shape) if normal else draw_prior(scale, rng)
        found[:, new] = drawn[:, code]
    return np.asarray(found)


def moment_variables(mean: Floats, variance: Floats, like: Mapping[str, Any]) -> dict[str, Floats]:
    """Variables of `calibration_curves` from two moments; `like` are those of the family."""
    found = {"mean": mean, "variance": variance, "log_variance": np.log(variance)}
    if "shape" in like:  # for the Gamma with these moments
        found |= {"log_mean": np.log(mean), "shape": mean**2 / variance, "rate": mean / variance}
    return found


# --- curves for scoring --------------------------------------------------------------------------


def is_plain(fit: Fit) -> bool:
    """Whether curves depend only on the score: no groups, exposure, effects or steps."""
    prior = fit.prior
    return not (fit.groups or prior.exposure is not None or prior.bin_effects or fit.by_bin)


def items_at_once(fit: Fit) -> int:
    """Number of items whose draws of the curves fit in memory at once."""
    posterior = fit.data["posterior"]
    return max(1, _NUMBERS // (posterior.sizes["chain"] * posterior.sizes["draw"]))


def own_terms(
    fit: Fit, group: NDArray[Any] | None, exposure: Floats | None
) -> dict[str, NDArray[Any] | None]:
    """Groups and exposures, if the fit has such terms."""
    return {
        "group": group if fit.groups else None,
        "exposure": exposure if fit.prior.exposure is not None else None,
    }


def curves_at(
    fit: Fit, score: Floats, group: NDArray[Any] | None, exposure: Floats | None
) -> tuple[Floats, Floats]:
    """Draws of both curves at scores, and at groups and exposures if the fit has such terms."""
    return curve_draws(fit, score, **own_terms(fit, group, exposure))


def average_curves(
    fit: Fit, score: Floats, group: NDArray[Any] | None, exposure: Floats | None
) -> tuple[Floats, Floats]:
    """Posterior means of both curves, each (n,)."""
    if is_plain(fit):
        pairs = (knot_weights(fit, curve, score) for curve in ("mean", "variance"))
        first, second = bounded(fit, *(at @ values.mean(axis=0) for values, at in pairs))
    else:
        first, second = (x.mean(axis=0) for x in curves_at(fit, score, group, exposure))
    return first, second


def some_curves(
    fit: Fit, draws: Ints, score: Floats, group: NDArray[Any] | None, exposure: Floats | None
) -> tuple[Floats, Floats]:
    """Some draws of both curves, numbered with chains one after the other."""
    if is_plain(fit):
        return curves_at(_narrowed(fit, draws), score, group, exposure)
    # effects of new groups and bins are drawn for all draws together
    first, second = curves_at(fit, score, group, exposure)
    return first[draws], second[draws]


def _narrowed(fit: Fit, draws: Ints) -> Fit:
    """The fit with only some of its draws."""
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
