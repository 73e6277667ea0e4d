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
from .._model.monotone import project_monotone
from .._model.splines import knots_in, spline_matrix
from ..data.items import CROSS, MARK
from ..data.statistics import Statistics
from ..families import family_of
from ..families.scales import MIDDLE, RANK
from ..fits.fit import Fit

P_ZERO = "p_zero"  # share of theta that is exactly 0, given the score, and of an item
Reduce = Callable[
    [Floats], Floats
]  # from draws (draws, ...) of coefficients to those needed
SIZE_WIDTH = 1e-9  # largest difference of an exposure from an atom's, relative to it
_NUMBERS = 500_000  # numbers in one array of draws x items
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
    """Draws (draws, n) of both curves, such as log mean and log cv2, at scores.

    `group` has labels, whose crossed levels may be left open (`MARK`); None is the shared curve,
    from which a new group deviates by draws from the prior, the same wherever its label occurs.
    Exposures (noise sds) are clipped to the fit's. Terms that the fit lacks are ignored.
    """
    score = np.asarray(score, dtype=float)
    family = family_of(fit.prior)
    reduce = reduce or chosen(None)
    group = group if fit.groups else None
    exposure = exposure if fit.prior.exposure is not None else None
    location, dispersion = (
        _curve(fit, curve, name, score, group, exposure, reduce)
        for curve, name in zip(("mean", "variance"), family.curves, strict=True)
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


def moment_variables(
    mean: Floats, variance: Floats, like: Mapping[str, Any]
) -> dict[str, Floats]:
    """Variables of `calibration_curves` from two moments; `like` are those of the family."""
    variables = {"mean": mean, "variance": variance, "log_variance": np.log(variance)}
    if "shape" in like:  # for the Gamma with these moments
        shape = mean**2 / variance
        rate = mean / variance
        variables |= {"log_mean": np.log(mean), "shape": shape, "rate": rate}
    return variables


def atom_of(fit: Fit, score: ArrayLike) -> Ints:
    """Number of the atom that each score is, counted from 1; 0 for other scores."""
    atoms = np.append(fit.atoms, np.nan)
    place = np.searchsorted(atoms[:-1], np.asarray(score, dtype=float))
    return np.where(atoms[place] == score, place + 1, 0)


def place_of(fit: Fit, curve: str, score: ArrayLike) -> Floats:
    """Positions on a curve's axis; an atom far from other scores counts as the nearest of them."""
    atom = atom_of(fit, score)
    axis = fit.axis(curve)
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
    names = {"mean_exposure_knot", "variance_exposure_knot"} & set(
        fit.data["posterior"].coords
    )
    return np.unique([knot for name in names for knot in _knots(fit, name)])


def size_atoms(fit: Fit) -> Floats:
    """Exposures (noise sds) that many items share, which the term in exposure has by themselves."""
    coords = fit.data["posterior"].coords
    return (
        coords["exposure_atom"].to_numpy() if "exposure_atom" in coords else np.empty(0)
    )


def _draws(fit: Fit, name: str) -> Floats:
    """A posterior variable with chains one after the other."""
    return fit._once(
        name, lambda: np.concatenate(fit.data["posterior"][name].to_numpy())
    )


def _knots(fit: Fit, dim: str) -> Floats:
    return fit._once(dim, lambda: knots_in(fit.data, dim))


def _curve(
    fit: Fit,
    curve: str,
    name: str,
    score: Floats,
    group: Any,
    exposure: Any,
    reduce: Reduce,
) -> Floats:
    """Draws of one curve, called `name` in the posterior, with all its terms."""
    posterior = fit.data["posterior"]
    shared = _draws(fit, name)
    basis = spline_matrix(place_of(fit, curve, score), _knots(fit, f"{curve}_knot"))
    total = reduce(shared) @ basis.T
    if group is not None:
        for label, items in pd.Series(score).groupby(np.asarray(group)).indices.items():
            total[:, items] = (
                reduce(_of_group(fit, curve, name, str(label))) @ basis[items].T
            )
    terms = {
        f"{name}_of_atom": atom_of(fit, score)[:, None] == np.arange(len(fit.atoms)) + 1
    }
    if exposure is not None and f"{name}_by_exposure" in posterior:
        knots = _knots(fit, f"{curve}_exposure_knot")
        sizes = np.asarray(exposure, dtype=float)
        with np.errstate(divide="ignore"):  # exposure 0 counts as the smallest exposure
            log_size = np.clip(np.log(sizes), knots[0], knots[-1])
        is_atom = np.abs(sizes[:, None] / size_atoms(fit) - 1.0) < SIZE_WIDTH
        terms[f"{name}_by_exposure"] = spline_matrix(log_size, knots)
        terms[f"{name}_of_exposure_atom"] = is_atom
    for variable, basis in terms.items():
        if variable in posterior and basis.any():
            total += reduce(_draws(fit, variable)) @ basis.T
    return total + _bin_effects(fit, name, score, reduce)


def _of_group(fit: Fit, curve: str, name: str, label: str) -> Floats:
    """Values of a group's curve at the knots, (draws, k): effects of crossed groups add up."""
    shared = _draws(fit, name)
    levels = label.split(CROSS) if len(fit.groupings) > 1 else [label]
    total = shared.copy()
    for grouping, level in zip(fit.groupings, levels, strict=True):
        known = fit.groupings[grouping]
        if level in known:
            total += (
                _draws(fit, f"{name}_of_{grouping}")[:, known.index(level)] - shared
            )
        elif level != MARK and f"{curve}_group_functions" in fit.data["constant_data"]:
            total += _new_deviation(fit, curve, name, grouping, level)
    if curve == "mean" and fit.prior.monotone:
        return project_monotone(total, _knots(fit, f"{curve}_knot"))
    return total


def _new_deviation(
    fit: Fit, curve: str, name: str, grouping: str, level: str
) -> Floats:
    """Deviations of an unknown level at the knots, (draws, k), from their prior."""
    functions = fit.data["constant_data"][f"{curve}_group_functions"]
    kinds = functions[f"{curve}_group_function"].to_numpy()
    of_grouping = np.char.startswith(kinds.astype(str), f"{grouping}_")
    sd = np.stack(
        [_draws(fit, f"{name}_{kind}_sd") for kind in kinds[of_grouping]], axis=1
    )
    place = list(fit.groupings).index(
        grouping
    )  # equal labels of two groupings are not alike
    rng = np.random.default_rng(
        [zlib.crc32(level.encode()), len(curve), *([place] * (place > 0))]
    )
    deviation = (sd * rng.normal(size=sd.shape)) @ functions.to_numpy()[
        :, of_grouping
    ].T
    return np.asarray(deviation)


def _bin_effects(fit: Fit, name: str, score: Floats, reduce: Reduce) -> Floats | float:
    """Effects of the scores' bins, drawn from their prior for a bin without items."""
    if f"{name}_of_bin" not in fit.data["posterior"]:
        return 0.0
    bins, code = np.unique(bin_of(fit, score), return_inverse=True)
    known = fit.data["posterior"][f"{name}_of_bin"]["effect_bin"].to_numpy()
    place = np.minimum(np.searchsorted(known, bins), len(known) - 1)
    effects = _draws(fit, f"{name}_of_bin")[:, place]
    for i in np.flatnonzero(known[place] != bins):
        scale = _draws(fit, f"{name}_bin_effect_sd")
        rng = np.random.default_rng(bins[i])
        effects[:, i] = scale * rng.normal(size=len(scale))
    return np.asarray(reduce(effects)[:, code])


class Extrapolation:
    """Counts scores far outside those of a fit, batch by batch; `what` of them, with the verb."""

    def __init__(self, fit: Fit, what: str = "items have scores") -> None:
        self._fit = fit
        self._what = what
        self._total = 0
        self._far = 0
        self._outer = np.array([np.inf, -np.inf])  # of the scores that are far
        self._range = self._allowed = np.array([-np.inf, np.inf])
        self._of_curve = True  # false if all scores of the fit are atoms
        bins = fit.data.children.get("constant_data")
        if bins is None or "score_min" not in bins:  # curves without a range of scores
            return
        not_atoms = atom_of(fit, bins["score"].to_numpy()) == 0
        self._of_curve = not_atoms.any()
        low, high = (
            bins[name].to_numpy()[not_atoms | ~self._of_curve]
            for name in ("score_min", "score_max")
        )
        self._range = np.array([low.min(), high.max()])
        if not self._of_curve:
            self._allowed = np.array([np.inf, -np.inf])
            return
        # ranks end at the fit's scores, so distances are measured on the scores' own scale
        scale = fit.axis("mean").local
        ends = scale.checked(self._range)
        self._allowed = scale.score(
            ends + _MARGIN * np.ptp(ends) * np.array([-1.0, 1.0])
        )

    def count(
        self, score: ArrayLike, highest: ArrayLike | None = None
    ) -> "Extrapolation":
        """Count further scores, or ranges of scores."""
        low = np.asarray(score, dtype=float)
        high = low if highest is None else np.asarray(highest, dtype=float)
        outside = (low < self._allowed[0]) | (high > self._allowed[1])
        if outside.any():  # the fit knows its atoms, however far they are
            outside &= atom_of(self._fit, np.where(low == high, low, np.nan)) == 0
        self._total = self._total + low.size
        self._far = self._far + int(outside.sum())
        self._outer[0] = low.min(where=outside, initial=self._outer[0])
        self._outer[1] = high.max(where=outside, initial=self._outer[1])
        return self

    def message(self) -> str | None:
        """Return the warning's text; None if no scores are far."""
        if not self._far:
            return None
        rule = (
            "the curves continue as straight lines there, kept between 1e-100 and 1e100"
        )
        if {self._fit.prior.mean.scale, self._fit.prior.variance.scale} == {RANK}:
            rule = "they count as the outermost scores of the fit"
        if not self._of_curve:
            rule = "they get the average of the fit's scores"
        least, most, low, high = (
            f"{score:.6g}" for score in (*self._outer, *self._range)
        )
        span = least if least == most else f"{least} to {most}"
        return (
            f"{self._far:,} of {self._total:,} {self._what} {_FAR} ({low} to {high}; these: "
            f"{span}): {rule}, which no item supports; fit items with such scores too, or leave "
            "these out"
        )

    def warn(self) -> None:
        """Warn if any scores are far."""
        if text := self.message():
            warn_user(text, ItemsWarning)


@contextmanager
def extrapolation_reported() -> Iterator[None]:
    """Leave reports of extrapolation inside this block to the caller, once for all items."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", f".* {_FAR} ", ItemsWarning)
        yield


def warn_of_extrapolation(
    fit: Fit,
    score: ArrayLike,
    what: str = "items have scores",
    highest: ArrayLike | None = None,
) -> None:
    """Warn of scores (or ranges) far outside those of a fit; `what` includes the verb."""
    Extrapolation(fit, what).count(score, highest).warn()


def warn_of_extrapolated_bins(fit: Fit, stats: Statistics) -> None:
    """Warn of bins with scores far outside those of a fit."""
    low, high = (stats.data[name].to_numpy() for name in ("score_min", "score_max"))
    filled = ~np.isnan(low)  # bins without items have no scores
    warn_of_extrapolation(
        fit, low[filled], "bins of the statistics hold scores", high[filled]
    )
