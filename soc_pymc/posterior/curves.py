"""Draws of a fit's two curves at scores, groups and exposures, from their values at knots."""

import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from .._lib.arrays import Floats, Ints
from .._lib.errors import FitError
from .._model.splines import knots_in, natural_spline, spline_matrix
from ..data.groups import CROSS, MARK
from ..families.family import family_of
from ..families.monotone import project_monotone
from ..families.scales import MIDDLE
from ..inference.results import Fit

P_ZERO = "p_zero"
"""Name of the share of theta that is exactly 0, given the score, and of an item."""
_NUMBERS = 2_000_000  # numbers in one array of draws x items
_LARGEST_LOG = 230.0  # of a mean, cv2 or variance, 1e100: products and squares stay finite


def knot_weights(fit: Fit, curve: str, score: ArrayLike) -> tuple[Floats, Floats]:
    """Values of a shared curve at its knots, and the weights that interpolate them at scores.

    The curve is "mean" (log E(theta | t), or E(theta | t) for Normal priors) or "variance" (log
    cv2, or log Var(theta | t)). Values are (draws, k), chains one after the other, and weights
    (n, k): the curve's draws at the scores are values @ weights.T.
    """
    weights = spline_matrix(place_of(fit, curve, score), _knots(fit, f"{curve}_knot"))
    return _draws(fit, _variable(fit, curve)), weights


def atom_of(fit: Fit, score: ArrayLike) -> Ints:
    """Number of the atom that each score is, counted from 1; 0 for other scores."""
    t, atoms = np.asarray(score, dtype=float), np.array(fit.atoms)
    if not len(atoms):
        return np.zeros(len(t), dtype=np.int64)
    place = np.minimum(np.searchsorted(atoms, t), len(atoms) - 1)
    return np.where(atoms[place] == t, place + 1, 0)


def place_of(fit: Fit, curve: str, score: ArrayLike) -> Floats:
    """Positions on a curve's axis; an atom far from other scores counts as the nearest of them."""
    atom, axis = atom_of(fit, score), fit.axis(curve)
    # an atom need not have a position of its own, and any other score's is as good
    position = axis(np.where(atom > 0, MIDDLE, score))
    if atom.any():
        positions = fit.data["constant_data"][f"{curve}_atom_position"].to_numpy()
        position = np.where(atom > 0, positions[atom - 1], position)
    return position


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
    return _both_curves(fit, np.asarray(score, dtype=float), group, exposure, _every)


def _both_curves(
    fit: Fit,
    score: Floats,
    group: ArrayLike | None,
    exposure: ArrayLike | None,
    kept: Callable[[Floats], Floats],
) -> tuple[Floats, Floats]:
    """Both curves from what is `kept` of the draws (draws, k) of values at knots."""
    _check_terms(fit, group, exposure)
    if fit.by_bin:
        first, second = _steps(fit, score)
        return kept(first), kept(second)
    first, second = (
        _curve(fit, curve, score, group, exposure, kept) for curve in ("mean", "variance")
    )
    return bounded(fit, first, second)


def _every(draws: Floats) -> Floats:
    return draws


def _averaged(draws: Floats) -> Floats:
    """Draws (draws, k) as one draw, their mean."""
    return np.asarray(draws.mean(axis=0, keepdims=True))


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

    def find() -> Floats:
        values = fit.data["posterior"][name].to_numpy()
        return np.asarray(values.reshape(-1, *values.shape[2:]))

    return fit._once(name, find)


def _knots(fit: Fit, dim: str) -> Floats:
    return fit._once(dim, lambda: knots_in(fit.data, dim))


def bin_of(fit: Fit, score: ArrayLike) -> NDArray[np.intp]:
    """The fit's bin of each score; for scores beyond the bins, or in empty ones, a neighbour."""
    edges = fit.data["constant_data"]["edge"].to_numpy()
    return np.searchsorted(edges, np.asarray(score, dtype=float), side="right")


def _steps(fit: Fit, score: Floats) -> tuple[Floats, Floats]:
    """Step curves, with one number for each bin."""
    fit.axis("mean")(score), fit.axis("variance")(score)  # refuses scores without a position
    family, bins = family_of(fit.prior), bin_of(fit, score)
    first, second = family.to_curves(*(_draws(fit, name)[:, bins] for name in family.parameters))
    return first, second


def _curve(
    fit: Fit,
    curve: str,
    score: Floats,
    group: ArrayLike | None,
    exposure: ArrayLike | None,
    kept: Callable[[Floats], Floats],
) -> Floats:
    """Draws of one curve, or what is `kept` of them, with all its terms."""
    name, posterior = _variable(fit, curve), fit.data["posterior"]
    position, knots = place_of(fit, curve, score), _knots(fit, f"{curve}_knot")
    if group is None:
        total = _interpolated(kept(_draws(fit, name)), position, knots)
    else:
        codes, labels = pd.factorize(np.asarray(group))
        order = np.argsort(codes, kind="stable")
        ends = np.searchsorted(codes[order], np.arange(1, len(labels)))
        parts = []
        for label, items in zip(labels, np.split(order, ends), strict=True):
            values = kept(_of_group(fit, curve, str(label)))
            parts.append(_interpolated(values, position[items], knots))
        total = np.empty((len(parts[0]), len(score)))
        total[:, order] = np.concatenate(parts, axis=1)
    if exposure is not None and f"{name}_by_exposure" in posterior:
        knots = _knots(fit, f"{curve}_exposure_knot")
        with np.errstate(divide="ignore"):  # exposure 0 counts as the smallest exposure
            x = np.clip(np.log(np.asarray(exposure, dtype=float)), knots[0], knots[-1])
        total += _interpolated(kept(_draws(fit, f"{name}_by_exposure")), x, knots)
    if f"{name}_of_bin" in posterior:
        total += _bin_effects(fit, name, score, kept)
    atom = atom_of(fit, score)
    if atom.any():
        total[:, atom > 0] += kept(_draws(fit, f"{name}_of_atom"))[:, atom[atom > 0] - 1]
    return np.asarray(total)


def _interpolated(values: Floats, position: Floats, knots: Floats) -> Floats:
    """Splines (draws, n) with these values (draws, k) at the knots."""
    if len(values) == 1:
        return natural_spline(position, knots, values[0])[None]
    return np.asarray(values @ spline_matrix(position, knots).T)


def size_knots(fit: Fit) -> Floats:
    """Knots of the terms in log exposure (noise sd) of both curves; empty without such a term."""
    posterior = fit.data["posterior"]
    names = (f"{curve}_exposure_knot" for curve in ("mean", "variance"))
    kept = [_knots(fit, name) for name in names if name in posterior.coords]
    return np.unique(np.concatenate([np.empty(0), *kept]))


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
        knots = _knots(fit, f"{curve}_knot")
        return project_monotone(values, knots)
    return np.asarray(values)


def _bin_effects(fit: Fit, name: str, score: Floats, kept: Callable[[Floats], Floats]) -> Floats:
    """Effects of the scores' bins, drawn from their prior for a bin without items."""
    effects = fit.data["posterior"][f"{name}_of_bin"]
    bins, code = np.unique(bin_of(fit, score), return_inverse=True)
    known, values = effects["effect_bin"].to_numpy(), _draws(fit, f"{name}_of_bin")
    at = np.minimum(np.searchsorted(known, bins), len(known) - 1)
    found = values[:, at]
    for i in np.flatnonzero(known[at] != bins):
        scale, rng = _draws(fit, f"{name}_bin_effect_sd"), np.random.default_rng(bins[i])
        found[:, i] = scale * rng.normal(size=len(scale))
    return np.asarray(kept(found)[:, code])


def moment_variables(mean: Floats, variance: Floats, like: Mapping[str, Any]) -> dict[str, Floats]:
    """Variables of `calibration_curves` from two moments; `like` are those of the family."""
    found = {"mean": mean, "variance": variance, "log_variance": np.log(variance)}
    if "shape" in like:  # for the Gamma with these moments
        found |= {"log_mean": np.log(mean), "shape": mean**2 / variance, "rate": mean / variance}
    return found


# --- curves for scoring --------------------------------------------------------------------------


def with_posterior(fit: Fit, posterior: xr.Dataset) -> Fit:
    """The same fit with other draws."""
    groups = {"posterior": posterior}
    if "constant_data" in fit.data:
        groups["constant_data"] = fit.data["constant_data"].to_dataset()
    tree = xr.DataTree.from_dict(groups)
    tree.attrs = dict(fit.data.attrs)
    return replace(fit, data=tree)


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
    own = own_terms(fit, group, exposure)
    first, second = _both_curves(fit, score, own["group"], own["exposure"], _averaged)
    return first[0], second[0]


def some_curves(
    fit: Fit, draws: Ints, score: Floats, group: NDArray[Any] | None, exposure: Floats | None
) -> tuple[Floats, Floats]:
    """Some draws of both curves, numbered with chains one after the other."""
    own = own_terms(fit, group, exposure)
    return _both_curves(fit, score, own["group"], own["exposure"], lambda values: values[draws])
