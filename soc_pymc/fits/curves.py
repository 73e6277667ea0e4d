"""Draws of a fit's two curves at scores, groups and sizes, with all terms of the prior."""

import zlib
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from .._lib.arrays import Floats, Ints, Pair
from .._model.splines import Axis, project_monotone, spline_matrix
from ..data.items import CROSS, MARK, Roles, grouping_dims
from ..families import family_of
from ..families.family import Family
from ..families.noise import NoiseLaw, noise_nodes
from ..families.outcome import Outcome
from ..families.priors import Prior
from ..families.scales import MIDDLE, RANK

# largest difference of a size from an atom's, relative to it
SIZE_WIDTH = 1e-9
_MOST_CURVE_NUMBERS = 500_000  # numbers in one array of draws x items
# log of 1e100, for means, cv2 and variances: products and squares stay finite
_LARGEST_LOG = 230.0

# from draws (draws, ...) to those needed
_Reduce = Callable[[Floats], Floats]


type WeightsOf = Callable[[Curves], Any]


@dataclass(frozen=True, eq=False)
class Curves:
    """Draws of the location and the dispersion of theta given the score.

    They are log mean and log cv2 for counts, and are numbered chains one after the other. A single
    draw has no uncertainty. Arrays are read once.
    """

    # draws of values at knots and of terms, (chain, draw, ...)
    posterior: xr.Dataset
    bins: xr.Dataset  # of the fit, with the data of its terms
    prior: Prior
    attrs: Mapping[Any, Any]  # of the fit: kind, roles, and `mean_only`
    # what makes weights of a mixture's components of the curves, if they are not smooth
    weights: "WeightsOf | None" = None
    _arrays: dict[str, Floats] = field(default_factory=dict, init=False, repr=False)
    _made: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False)

    @staticmethod
    def of(
        tree: xr.DataTree,
        prior: Prior,
        weights: "WeightsOf | None" = None,
    ) -> "Curves":
        """Return the curves in the tree of a fit."""
        posterior = tree["posterior"].to_dataset()
        bins = (
            tree["constant_data"].to_dataset()
            if "constant_data" in tree
            else xr.Dataset()
        )
        return Curves(posterior, bins, prior, tree.attrs, weights)

    def once[Made](self, make: "Callable[[Curves], Made]") -> Made:
        """Return what a function or class makes of the curves, made once."""
        if make not in self._made:
            self._made[make] = make(self)
        return self._made[make]

    # --- what they are curves of

    @cached_property
    def family(self) -> Family:
        """The family of the prior."""
        return family_of(self.prior, self.attrs)

    @cached_property
    def roles(self) -> Roles:
        """Columns of the items by role."""
        return Roles.of(self.attrs)

    @property
    def outcome(self) -> Outcome:
        """The kind of the items' outcomes."""
        return self.family.outcome

    @cached_property
    def noise_law(self) -> NoiseLaw | None:
        """Law of the true noise variances, if noise sds are estimates."""
        return NoiseLaw.of_attrs(self.attrs)

    @property
    def noise_df(self) -> float | str | None:
        """Degrees of freedom of noise sds that are estimates, or their column; None if known."""
        law = self.noise_law
        return self.roles.get("noise_df", law.df if law else None)

    @property
    def item_options(self) -> dict[str, Any]:
        """Arguments of items like the fit's besides columns."""
        truncated = {"truncated": True} if self.outcome.truncated else {}
        options = self.family.attrs | truncated
        return options | ({"noise_df": self.noise_df} if self.noise_df else {})

    @property
    def mean_only(self) -> bool:
        """True if the items, such as labels, do not inform the variance of theta."""
        return bool(self.attrs.get("mean_only", False))

    @property
    def one_score(self) -> bool:
        """True if all items have one score, or none."""
        return bool(self.bins["score_min"].min() == self.bins["score_max"].max())

    @cached_property
    def atoms(self) -> tuple[float, ...]:
        """Scores with their own shifts of both curves, in order."""
        return self._labels("atom")

    @cached_property
    def groups(self) -> tuple[str, ...]:
        """Groups with their own deviations."""
        return self._labels("group")

    @cached_property
    def groupings(self) -> dict[str, tuple[str, ...]]:
        """Levels with their own deviations, by the dim of their grouping."""
        names = grouping_dims(self.posterior.coords)
        return {name: self._labels(name) for name in names}

    def _labels(self, dim: str) -> tuple[Any, ...]:
        coords = self.posterior.coords
        return tuple(coords[dim].to_numpy().tolist()) if dim in coords else ()

    # --- draws

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of chains and of draws of each."""
        return self.posterior.sizes["chain"], self.posterior.sizes["draw"]

    @property
    def number(self) -> int:
        """Number of draws."""
        chains, draws = self.shape
        return chains * draws

    @property
    def items_at_once(self) -> int:
        """Number of items whose draws fit in memory at once."""
        law = self.noise_law
        nodes = len(noise_nodes(np.array([law.prior_df + law.df]))[0]) if law else 1
        return max(1, _MOST_CURVE_NUMBERS // (self.number * nodes))

    def draws(self, name: str) -> Floats:
        """Return a variable of the posterior, (draws, ...)."""
        if name not in self._arrays:
            self._arrays[name] = np.concatenate(self.posterior[name].to_numpy())
        return self._arrays[name]

    def knots(self, dim: str) -> Floats:
        """Return the positions of the knots of a dim."""
        if dim not in self._arrays:
            self._arrays[dim] = self.posterior.coords[dim].to_numpy()
        return self._arrays[dim]

    def with_draws(self, posterior: xr.Dataset) -> "Curves":
        """Return curves with other draws."""
        return replace(self, posterior=posterior)

    def even_draws(self, most: int) -> Ints:
        """Return numbers of at most `most` draws, evenly spaced in each chain."""
        chains, draws = self.shape
        number = min(max(1, most // chains), draws)
        even = np.arange(number) * draws // number
        return np.add.outer(np.arange(chains) * draws, even).ravel()

    def thin(self, most: int) -> "Curves":
        """Return the curves with their `even_draws` alone."""
        even = self.even_draws(most)
        if len(even) == self.number:
            return self
        per_chain = len(even) // self.shape[0]
        return self.with_draws(self.posterior.isel(draw=even[:per_chain]))

    # --- places

    def axis(self, curve: str) -> Axis:
        """Return the axis of the curve ``"mean"`` or ``"variance"``."""
        scale = getattr(self.prior, curve).scale
        return self._rank_axis if scale == RANK else Axis(scale)

    @cached_property
    def _rank_axis(self) -> Axis:
        score = tuple(self.bins["rank_score"].to_numpy())
        return Axis(RANK, score, tuple(self.bins["rank_fraction"].to_numpy()))

    def atom(self, score: ArrayLike) -> Ints:
        """Return the number of the atom that each score is, from 1; 0 for other scores."""
        atoms = np.append(self.atoms, np.nan)
        place = np.searchsorted(atoms[:-1], np.asarray(score, dtype=float))
        return np.where(atoms[place] == score, place + 1, 0)

    def position(self, curve: str, score: ArrayLike) -> Floats:
        """Return positions on a curve's axis; an atom counts as the nearest of other scores."""
        atom = self.atom(score)
        # an atom may have no position of its own; any other score's will do
        position = self.axis(curve)(np.where(atom > 0, MIDDLE, score))
        if atom.any():
            of_atoms = self.bins[f"{curve}_atom_position"].to_numpy()
            position = np.where(atom > 0, of_atoms[atom - 1], position)
        return position

    def bin(self, score: ArrayLike) -> NDArray[np.intp]:
        """Return the bin of each score; beyond the bins, or in empty ones, a neighbour."""
        edges = self.bins["edge"].to_numpy()
        return np.searchsorted(edges, np.asarray(score, dtype=float), side="right")

    @property
    def size_knots(self) -> Floats:
        """Knots of the terms in log size of both curves; empty without such a term."""
        coords = self.posterior.coords
        names = [f"{curve}_exposure_knot" for curve in ("mean", "variance")]
        return np.unique([knot for x in names if x in coords for knot in self.knots(x)])

    @property
    def size_atoms(self) -> Floats:
        """Sizes that many items share, which the term in size has by themselves."""
        return np.array(self._labels("exposure_atom"), dtype=float)

    # --- values

    def at(
        self,
        score: ArrayLike,
        group: ArrayLike | None = None,
        size: ArrayLike | None = None,
        draws: Ints | None = None,
    ) -> Pair:
        """Return draws (draws, n) of location and dispersion at scores; None takes all draws.

        `group` has labels, whose crossed levels may be left open (`MARK`); None is the shared
        curve, from which a new group deviates by draws from the prior, the same wherever its label
        occurs. Sizes are clipped to the fit's. Terms that the prior lacks are ignored.
        """
        if draws is None:
            return self._at(score, group, size, lambda values: values)
        return self._at(score, group, size, lambda values: values[draws])

    def average(
        self,
        score: ArrayLike,
        group: ArrayLike | None = None,
        size: ArrayLike | None = None,
    ) -> Pair:
        """Return posterior means (n,) of location and dispersion, as `at` takes places."""
        location, dispersion = self._at(
            score, group, size, lambda values: values.mean(axis=0, keepdims=True)
        )
        return location[0], dispersion[0]

    def _at(
        self,
        score: ArrayLike,
        group: ArrayLike | None,
        size: ArrayLike | None,
        reduce: _Reduce,
    ) -> Pair:
        score = np.asarray(score, dtype=float)
        group = group if self.groups else None
        size = size if self.prior.exposure is not None else None
        location, dispersion = (
            self._curve(curve, score, group, size, reduce)
            for curve in ("mean", "variance")
        )
        if self.outcome.positive:  # the location is a logarithm too
            location = np.clip(location, -_LARGEST_LOG, _LARGEST_LOG)
        return location, np.clip(dispersion, -_LARGEST_LOG, _LARGEST_LOG)

    def _variable(self, curve: str) -> str:
        """Name of a curve in the posterior."""
        return self.family.curve_names[curve == "variance"]

    def _curve(
        self,
        curve: str,
        score: Floats,
        group: ArrayLike | None,
        size: ArrayLike | None,
        reduce: _Reduce,
    ) -> Floats:
        """Draws of one curve, with all its terms."""
        name = self._variable(curve)
        basis = spline_matrix(self.position(curve, score), self.knots(f"{curve}_knot"))
        labels = np.empty(0) if group is None else np.asarray(group)
        if len(labels) and (labels == labels[0]).all():  # as in the cells of a table
            total = reduce(self._of_group(curve, str(labels[0]))) @ basis.T
        elif len(labels):
            total = self._of_groups(curve, labels, basis, reduce)
        else:
            total = reduce(self.draws(name)) @ basis.T
        terms = {
            f"{name}_of_atom": self.atom(score)[:, None]
            == np.arange(len(self.atoms)) + 1
        }
        if size is not None and f"{name}_by_exposure" in self.posterior:
            knots = self.knots(f"{curve}_exposure_knot")
            sizes = np.asarray(size, dtype=float)
            # size 0 counts as the smallest one
            with np.errstate(divide="ignore"):
                log_size = np.clip(np.log(sizes), knots[0], knots[-1])
            is_atom = np.abs(sizes[:, None] / self.size_atoms - 1.0) < SIZE_WIDTH
            terms[f"{name}_by_exposure"] = spline_matrix(log_size, knots)
            terms[f"{name}_of_exposure_atom"] = is_atom
        for variable, basis in terms.items():
            if variable in self.posterior and basis.any():
                total += reduce(self.draws(variable)) @ basis.T
        return total + self._bin_effects(name, score, reduce)

    def _of_groups(
        self, curve: str, labels: NDArray[Any], basis: Floats, reduce: _Reduce
    ) -> Floats:
        """Draws of one curve at items of several groups, from the functions of its knots."""
        code, groups = pd.factorize(labels)
        order = np.argsort(code, kind="stable")
        ends = np.searchsorted(code[order], np.arange(len(groups) + 1))
        known: dict[str, int] = {}
        # the draws of all levels are reduced at once
        if len(self.groupings) == 1 and not self.prior.monotone:
            (grouping, levels), *_ = self.groupings.items()
            known = {level: k for k, level in enumerate(levels)}
            of_levels = reduce(self.draws(f"{self._variable(curve)}_of_{grouping}"))
        parts = []
        for k, label in enumerate(map(str, groups)):
            if label in known:
                of_group = of_levels[:, known[label]]
            else:
                of_group = reduce(self._of_group(curve, label))
            parts.append(of_group @ basis[order[ends[k] : ends[k + 1]]].T)
        return np.concatenate(parts, axis=1).take(np.argsort(order), axis=1)

    def _of_group(self, curve: str, label: str) -> Floats:
        """Values of a group's curve at the knots, (draws, k): effects of crossed groups add up."""
        name = self._variable(curve)
        shared = self.draws(name)
        levels = label.split(CROSS) if len(self.groupings) > 1 else [label]
        total = shared.copy()
        for grouping, level in zip(self.groupings, levels, strict=True):
            known = self.groupings[grouping]
            if level in known:
                of_levels = self.draws(f"{name}_of_{grouping}")
                total += of_levels[:, known.index(level)] - shared
            elif level != MARK and f"{curve}_group_functions" in self.bins:
                total += self._new_deviation(curve, grouping, level)
        if curve == "mean" and self.prior.monotone:
            return project_monotone(total, self.knots(f"{curve}_knot"))
        return total

    def _new_deviation(self, curve: str, grouping: str, level: str) -> Floats:
        """Deviations of an unknown level at the knots, (draws, k), from their prior."""
        functions = self.bins[f"{curve}_group_functions"]
        kinds = functions[f"{curve}_group_function"].to_numpy()
        of_grouping = np.char.startswith(kinds.astype(str), f"{grouping}_")
        name = self._variable(curve)
        sds = [self.draws(f"{name}_{kind}_sd") for kind in kinds[of_grouping]]
        sd = np.stack(sds, axis=1)
        # equal labels of two groupings are not alike
        place = list(self.groupings).index(grouping)
        seed = [zlib.crc32(level.encode()), len(curve), *([place] * (place > 0))]
        normal = np.random.default_rng(seed).normal(size=sd.shape)
        return (sd * normal) @ functions.to_numpy()[:, of_grouping].T

    def _bin_effects(self, name: str, score: Floats, reduce: _Reduce) -> Floats | float:
        """Effects of the scores' bins, drawn from their prior for a bin without items."""
        if f"{name}_of_bin" not in self.posterior:
            return 0.0
        bins, code = np.unique(self.bin(score), return_inverse=True)
        known = self.posterior["effect_bin"].to_numpy()
        place = np.minimum(np.searchsorted(known, bins), len(known) - 1)
        effects = self.draws(f"{name}_of_bin")[:, place]
        for i in np.flatnonzero(known[place] != bins):
            scale = self.draws(f"{name}_bin_effect_sd")
            rng = np.random.default_rng(bins[i])
            effects[:, i] = scale * rng.normal(size=len(scale))
        return reduce(effects)[:, code]
