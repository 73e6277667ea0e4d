"""Draws of a fit's two curves at scores, groups and exposures, and warnings of extrapolation."""

import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from .._lib.arrays import Floats, Ints
from .._lib.errors import ItemsWarning, warn_user
from .._model.splines import knots_in, spline_matrix
from ..data.groups import CROSS, MARK
from ..data.statistics import Statistics
from ..families.family import family_of
from ..families.monotone import project_monotone
from ..families.scales import MIDDLE, RANK
from ..inference.results import Fit

P_ZERO = "p_zero"
"""Name of the share of theta that is exactly 0, given the score, and of an item."""
Reduce = Callable[[Floats], Floats]
"""From draws (draws, ...) of what determines a curve to those that are needed."""
SIZE_WIDTH = 1e-9
"""Largest difference of an exposure from an atom's, relative to it."""
_NUMBERS = 2_000_000  # numbers in one array of draws x items
_LARGEST_LOG = 230.0  # log of 1e100, for means, cv2 and variances: products and squares stay finite
_MARGIN = 0.1  # allowed distance of scores, as a share of the range of the fit's on the mean's axis
_FAR = "far outside those that the fit saw"


def chosen(draws: Ints | None) -> Reduce:
    """Draws with these indices, chains one after the other; None takes all."""
    return (lambda values: values) if draws is None else (lambda values: values[draws])


def curve_draws(
    fit: Fit,
    score: ArrayLike,
    group: ArrayLike | None = None,
    exposure: ArrayLike | None = None,
    reduce: Reduce | None = None,
) -> tuple[Floats, Floats]:
    """Draws (draws, n) of log mean and log cv2, or of mean and log variance, at scores.

    `group` has labels, in which crossed levels are joined and may be left open (`MARK`); None is
    the shared curve, and a new group gets it plus deviations drawn from their prior, the same
    wherever its label occurs. Exposures (noise sds) are clipped to the range of the fit's. Terms
    that the fit has not are ignored. Raises `FitError` if a score has no position on an axis.
    """
    score, family = np.asarray(score, dtype=float), family_of(fit.prior)
    reduce = reduce or chosen(None)
    if fit.by_bin:
        fit.axis("mean")(score), fit.axis("variance")(score)  # refuses scores without a position
        bins = bin_of(fit, score)
        curves = family.to_curves(*(_draws(fit, name)[:, bins] for name in family.parameters))
        return reduce(curves[0]), reduce(curves[1])
    group = group if fit.groups else None
    exposure = exposure if fit.prior.exposure is not None else None
    location, dispersion = (
        _curve(fit, curve, score, group, exposure, reduce) for curve in ("mean", "variance")
    )
    if family.outcome.positive:  # the first curve is a logarithm too
        location = np.clip(location, -_LARGEST_LOG, _LARGEST_LOG)
    return location, np.clip(dispersion, -_LARGEST_LOG, _LARGEST_LOG)


def average_curves(
    fit: Fit, score: Floats, group: NDArray[Any] | None, exposure: Floats | None
) -> tuple[Floats, Floats]:
    """Posterior means of both curves, each (n,)."""
    terms = group, exposure, lambda draws: draws.mean(axis=0, keepdims=True)
    location, dispersion = curve_draws(fit, score, *terms)
    return location[0], dispersion[0]


def items_at_once(fit: Fit) -> int:
    """Number of items whose draws of the curves fit in memory at once."""
    posterior = fit.data["posterior"]
    return max(1, _NUMBERS // (posterior.sizes["chain"] * posterior.sizes["draw"]))


def with_posterior(fit: Fit, posterior: xr.Dataset) -> Fit:
    """Return a fit with other draws."""
    groups = {"posterior": posterior}
    if "constant_data" in fit.data:
        groups["constant_data"] = fit.data["constant_data"].to_dataset()
    tree = xr.DataTree.from_dict(groups)
    tree.attrs = dict(fit.data.attrs)
    return replace(fit, data=tree)


def moment_variables(mean: Floats, variance: Floats, like: Mapping[str, Any]) -> dict[str, Floats]:
    """Variables of `calibration_curves` from two moments; `like` are those of the family."""
    variables = {"mean": mean, "variance": variance, "log_variance": np.log(variance)}
    if "shape" in like:  # for the Gamma with these moments
        shape, rate = mean**2 / variance, mean / variance
        variables |= {"log_mean": np.log(mean), "shape": shape, "rate": rate}
    return variables


# --- places --------------------------------------------------------------------------------------


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
    # an atom may have no position of its own; any other score's will do
    position = axis(np.where(atom > 0, MIDDLE, score))
    if atom.any():
        positions = fit.data["constant_data"][f"{curve}_atom_position"].to_numpy()
        position = np.where(atom > 0, positions[atom - 1], position)
    return position


def bin_of(fit: Fit, score: ArrayLike) -> NDArray[np.intp]:
    """The fit's bin of each score; for scores beyond the bins, or in empty ones, a neighbour."""
    edges = fit.data["constant_data"]["edge"].to_numpy()
    return np.searchsorted(edges, np.asarray(score, dtype=float), side="right")


def size_knots(fit: Fit) -> Floats:
    """Knots of the terms in log exposure (noise sd) of both curves; empty without such a term."""
    posterior = fit.data["posterior"]
    names = (f"{curve}_exposure_knot" for curve in ("mean", "variance"))
    return np.unique(
        [knot for name in names if name in posterior.coords for knot in _knots(fit, name)]
    )


def size_atoms(fit: Fit) -> Floats:
    """Exposures (noise sds) that many items share, which the term in exposure has by themselves."""
    coords = fit.data["posterior"].coords
    return coords["exposure_atom"].to_numpy() if "exposure_atom" in coords else np.empty(0)


# --- curves from their values at knots -----------------------------------------------------------


def _draws(fit: Fit, name: str) -> Floats:
    """A posterior variable with chains one after the other."""

    def find() -> Floats:
        values = fit.data["posterior"][name].to_numpy()
        return np.asarray(values.reshape(-1, *values.shape[2:]))

    return fit._once(name, find)


def _knots(fit: Fit, dim: str) -> Floats:
    return fit._once(dim, lambda: knots_in(fit.data, dim))


def _name(fit: Fit, curve: str) -> str:
    """Name of a curve in the posterior."""
    return family_of(fit.prior).curves[("mean", "variance").index(curve)]


def _curve(
    fit: Fit, curve: str, score: Floats, group: Any, exposure: Any, reduce: Reduce
) -> Floats:
    """Draws of one curve with all its terms."""
    name, posterior = _name(fit, curve), fit.data["posterior"]
    basis = spline_matrix(place_of(fit, curve, score), _knots(fit, f"{curve}_knot"))
    if group is None:
        total = reduce(_draws(fit, name)) @ basis.T
    else:
        total = np.empty((len(reduce(_draws(fit, name))), len(score)))
        for label, items in pd.Series(score).groupby(np.asarray(group)).indices.items():
            total[:, items] = reduce(_of_group(fit, curve, str(label))) @ basis[items].T
    if exposure is not None and f"{name}_by_exposure" in posterior:
        knots = _knots(fit, f"{curve}_exposure_knot")
        sizes = np.asarray(exposure, dtype=float)
        with np.errstate(divide="ignore"):  # exposure 0 counts as the smallest exposure
            x = np.clip(np.log(sizes), knots[0], knots[-1])
        total += reduce(_draws(fit, f"{name}_by_exposure")) @ spline_matrix(x, knots).T
        if len(atoms := size_atoms(fit)):
            member = np.abs(sizes[:, None] / atoms - 1.0) < SIZE_WIDTH
            total += reduce(_draws(fit, f"{name}_of_exposure_atom")) @ member.T
    if f"{name}_of_bin" in posterior:
        total += _bin_effects(fit, name, score, reduce)
    atom = atom_of(fit, score)
    if atom.any():
        total[:, atom > 0] += reduce(_draws(fit, f"{name}_of_atom"))[:, atom[atom > 0] - 1]
    return np.asarray(total)


def _of_group(fit: Fit, curve: str, label: str) -> Floats:
    """Values of a group's curve at the knots, (draws, k): effects of crossed groups add up."""
    groupings = list(fit.groupings)
    if len(groupings) == 1:
        return _of_level(fit, curve, groupings[0], label)
    levels = zip(groupings, label.split(CROSS), strict=True)
    shared = _draws(fit, _name(fit, curve))
    effects = [_of_level(fit, curve, g, level) - shared for g, level in levels if level != MARK]
    return _rising(fit, curve, shared + np.sum(effects, axis=0)) if effects else shared


def _of_level(fit: Fit, curve: str, grouping: str, level: str) -> Floats:
    """Values of a level's curve at the knots; an unknown level deviates by chance."""
    name, levels = _name(fit, curve), fit.groupings[grouping]
    if level in levels:
        return _draws(fit, f"{name}_of_{grouping}")[:, levels.index(level)]
    constant = fit.data["constant_data"]
    if f"{curve}_group_functions" not in constant:  # five steps have no prior of groups
        return _draws(fit, name)
    functions = constant[f"{curve}_group_functions"]
    kinds = functions[f"{curve}_group_function"].to_numpy()
    of_grouping = np.char.startswith(kinds.astype(str), f"{grouping}_")
    sd = np.stack([_draws(fit, f"{name}_{kind}_sd") for kind in kinds[of_grouping]], axis=1)
    place = list(fit.groupings).index(grouping)  # equal labels of two groupings are not alike
    rng = np.random.default_rng([zlib.crc32(level.encode()), len(curve), *([place] * (place > 0))])
    deviation = (sd * rng.normal(size=sd.shape)) @ functions.to_numpy()[:, of_grouping].T
    return _rising(fit, curve, _draws(fit, name) + deviation)


def _rising(fit: Fit, curve: str, values: Floats) -> Floats:
    """Draws at the knots, non-decreasing if the prior wants the curve to be."""
    if curve == "mean" and fit.prior.monotone:
        return project_monotone(values, _knots(fit, f"{curve}_knot"))
    return np.asarray(values)


def _bin_effects(fit: Fit, name: str, score: Floats, reduce: Reduce) -> Floats:
    """Effects of the scores' bins, drawn from their prior for a bin without items."""
    bins, code = np.unique(bin_of(fit, score), return_inverse=True)
    known = fit.data["posterior"][f"{name}_of_bin"]["effect_bin"].to_numpy()
    place = np.minimum(np.searchsorted(known, bins), len(known) - 1)
    effects = _draws(fit, f"{name}_of_bin")[:, place]
    for i in np.flatnonzero(known[place] != bins):
        scale, rng = _draws(fit, f"{name}_bin_effect_sd"), np.random.default_rng(bins[i])
        effects[:, i] = scale * rng.normal(size=len(scale))
    return np.asarray(reduce(effects)[:, code])


# --- scores far outside those of the fit ---------------------------------------------------------


class Extrapolation:
    """Counts scores far outside those of a fit, batch by batch."""

    def __init__(self, fit: Fit) -> None:
        self._fit, self._total, self._far = fit, 0, 0
        self._outer = np.array([np.inf, -np.inf])  # of the scores that are far
        self._range = self._allowed = np.array([-np.inf, np.inf])
        bins = fit.data.children.get("constant_data")
        if bins is None or "score_min" not in bins:  # curves without a range of scores
            return
        not_atoms = atom_of(fit, bins["score"].to_numpy()) == 0
        low, high = (bins[name].to_numpy()[not_atoms] for name in ("score_min", "score_max"))
        self._range = np.array([low.min(), high.max()])
        # ranks end at the fit's scores, so distances are measured on the scores' own scale
        scale = fit.axis("mean").local
        low, high = scale.checked(self._range)
        margin = _MARGIN * (high - low)
        self._allowed = scale.score(np.array([low - margin, high + margin]))

    def count(self, score: ArrayLike, highest: ArrayLike | None = None) -> None:
        """Count further scores, or ranges of scores."""
        low = np.asarray(score, dtype=float)
        high = low if highest is None else np.asarray(highest, dtype=float)
        self._total += low.size
        outside = (low < self._allowed[0]) | (high > self._allowed[1])
        if self._fit.atoms:  # the fit knows these, however far they are
            outside &= atom_of(self._fit, np.where(low == high, low, np.nan)) == 0
        self._far += int(outside.sum())
        self._outer[0] = low.min(where=outside, initial=self._outer[0])
        self._outer[1] = high.max(where=outside, initial=self._outer[1])

    def message(self, what: str = "items have scores") -> str | None:
        """The warning's text, where `what` includes the verb; None if no scores are far."""
        if not self._far:
            return None
        if self._fit.by_bin:
            rule = "they count as scores of the outermost bins"
        elif {self._fit.prior.mean.scale, self._fit.prior.variance.scale} == {RANK}:
            rule = "they count as the outermost scores of the fit"
        else:
            rule = "the curves continue as straight lines there, kept between 1e-100 and 1e100"
        least, most = (f"{score:.6g}" for score in self._outer)
        low, high = (f"{score:.6g}" for score in self._range)
        span = least if self._outer[0] == self._outer[1] else f"{least} to {most}"
        return (
            f"{self._far:,} of {self._total:,} {what} {_FAR} ({low} to {high}; these: {span}): "
            f"{rule}, which no item supports; fit items with such scores too, or leave these out"
        )

    def warn(self, what: str = "items have scores") -> None:
        """Warn if any scores are far; `what` includes the verb."""
        if text := self.message(what):
            warn_user(text, ItemsWarning)


@contextmanager
def extrapolation_reported() -> Iterator[None]:
    """Leave reports of extrapolation inside this block to the caller, once for all items."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", f".* {_FAR} ", ItemsWarning)
        yield


def warn_of_extrapolation(
    fit: Fit, score: ArrayLike, what: str = "items have scores", highest: ArrayLike | None = None
) -> None:
    """Warn of scores (or ranges) far outside those of a fit; `what` includes the verb."""
    far = Extrapolation(fit)
    far.count(score, highest)
    far.warn(what)


def warn_of_extrapolated_bins(fit: Fit, stats: Statistics) -> None:
    """Warn of bins with scores far outside those of a fit."""
    low, high = (stats.data[name].to_numpy() for name in ("score_min", "score_max"))
    filled = ~np.isnan(low)  # bins without items have no scores
    warn_of_extrapolation(fit, low[filled], "bins of the statistics hold scores", high[filled])
