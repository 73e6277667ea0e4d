"""The result of a fit: draws, configuration and status; its deferred variables; its method.

`Curves` are draws of its two curves at scores, groups and sizes, with all terms of the prior.
"""

import json
import os
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from xarray.backends import BackendArray
from xarray.core import indexing

from ._lib.arguments import A, FitError, OneOf, shown
from ._lib.arrays import Bools, Floats, Ints, Pair
from ._lib.files import Saved, read_saved, save_netcdf
from ._lib.reprs import (
    Entries,
    Table,
    counted,
    groups_row,
    html_table,
    lines,
    made_above,
    number,
    score_range,
    short,
)
from ._lib.work import ordered_map
from ._model.splines import Axis, project_monotone, spline_matrix
from .data.items import CROSS, MARK, Roles, grouping_dims
from .data.statistics import Statistics
from .families import family_of
from .families.family import Family, Outcome
from .families.noise import NoiseLaw, noise_nodes
from .families.priors import PRIORS, Prior, Spline
from .families.rows import Ragged, RowSums
from .families.scales import MIDDLE, RANK

# largest difference of a size from an atom's, relative to it
SIZE_WIDTH = 1e-9
_MOST_CURVE_NUMBERS = 500_000  # numbers in one array of draws x items
# log of 1e100, for means, cv2 and variances: products and squares stay finite
_LARGEST_LOG = 230.0

# from draws (draws, ...) to those needed
_Reduce = Callable[[Floats], Floats]


type WeightsOf = Callable[[Curves], Any]

_SAME_TOTAL = 1e-6  # relative difference of totals that two machines compute alike
# arrays by name of what they make
_Parts = dict[str, list[NDArray[Any]]]

_STORE = "deferred"  # group of a saved file
_OVER = ["chain", "draw"]
_DRAWS_AT_ONCE = 50  # draws evaluated at once
_LARGEST_COUNT = 2.0**62  # a count that an integer can hold


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


@dataclass(frozen=True)
class Status:
    """Outcome of the search for a fit.

    Attributes
    ----------
    converged : bool
        True if the fit can be trusted: the optimiser or sampler passed its test, and for VI the
        Pareto k of the approximation is at most 0.7.
    reason : str
        One sentence with the reason, and the remedy if it did not converge.
    pareto_k : float or None
        For VI, Pareto shape of the importance weights of the approximation (Yao et al. 2018).
    ess_fraction : float or None
        For VI, their effective sample over their number: below 0.95 draws are resampled by the
        weights.
    seconds : float
        Elapsed time of the fit.
    mc_error : float or None
        For NUTS, largest Monte Carlo standard error of posterior means, in posterior sd, if known.

    Examples
    --------
    >>> Status(False, "it stopped early").converged
    False
    """

    converged: bool
    reason: str
    pareto_k: float | None = None
    ess_fraction: float | None = None
    seconds: float = 0.0
    mc_error: float | None = None

    def _repr_html_(self) -> str:
        shown = {k: v for k, v in vars(self).items() if v is not None}
        return html_table("Status", ((k, number(v)) for k, v in shown.items()))


class Method(ABC):
    """A configuration of inference that finds a fit's draws."""

    @property
    def weights(self) -> WeightsOf | None:
        """What makes weights of a mixture's components of curves, if they are not smooth."""
        return None

    @abstractmethod
    def run(
        self,
        stats: Statistics,
        prior: Prior,
        model: Any,
    ) -> tuple[xr.DataTree, Status]:
        """Return the fit's `DataTree`, and how far it can be trusted.

        `model` is None, or the prior's `pymc.Model` with further terms.
        """


# above this, the mean of importance weights is unreliable (Vehtari et al. 2024)
PARETO_K = 0.7
_FIT_FORMAT = "soc_pymc-fit-1"
_CURVE = OneOf("mean", "variance")
_NEXT = (
    "Next: fit.summary() and soc.plots.plot_curves(fit); whether it describes the outcomes, "
    "soc.check(fit, items); every item's theta, soc.item_posteriors(fit, items)."
)


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted model: draws of the curves, prior, method and status.

    Attributes
    ----------
    data : xarray.DataTree
        `xarray.DataTree` in ArviZ's groups, in which an observation is a bin. ``posterior`` holds
        ``log_mean`` (chain, draw, mean_knot) and ``log_cv2`` (chain, draw, variance_knot), the
        curves at their knots (``mean`` and ``log_variance`` for Normal priors), those of terms
        (``*_of_group``, ``*_by_exposure``, ``*_of_bin``, ``*_of_atom``, ``*_of_exposure_atom``),
        and the model's variables; ``constant_data`` the bins. What takes long is computed when it
        is first read, and kept: a changed tree needs a new fit, ``dataclasses.replace(fit,
        data=...)``.
    prior : Gamma, Normal, Beta, InverseGamma or a mixture of them
        The prior that was fitted.
    method : VI, NUTS or FiveSteps
        The method that found it.
    status : Status
        How far it can be trusted.
    selection : pandas.DataFrame or None
        Of ``soc.fit(stats, prior="auto")``, the priors from the simplest on: columns ``prior``,
        ``elpd``, ``elpd_diff``, ``dse`` and ``trust`` as in `compare`, ``chosen`` and ``reason``.
        Else None.

    Examples
    --------
    >>> fit.status.converged
    True
    """

    data: xr.DataTree
    prior: Prior
    method: Method
    status: Status
    selection: pd.DataFrame | None = None

    def axis(self, curve: str) -> Axis:
        """Axis of the curve ``"mean"`` or ``"variance"``: the map from scores to knots' positions.

        Returns
        -------
        Axis
            A callable from scores to positions, with its ``inverse``.

        Raises
        ------
        FitError
            If there is no such curve.

        Examples
        --------
        >>> fit.axis("mean")([1.0]).item()  # the log of the score
        0.0
        """
        return self.curves.axis(_CURVE(curve, "curve"))

    @cached_property
    def curves(self) -> Curves:
        """Draws of the curves as arrays, which are read once."""
        return Curves.of(self.data, self.prior, self.method.weights)

    def selected_by(self, selection: pd.DataFrame) -> "Fit":
        """Return the fit with the table by which it was chosen; what was computed is kept."""
        fit = replace(self, selection=selection)
        vars(fit)["curves"] = self.curves
        return fit

    # copies and pickles compute again
    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "curves"}

    @property
    def one_draw(self) -> bool:
        """True if there is only one draw, without uncertainty and leave-one-out."""
        return self.curves.number == 1

    @property
    def mean_only(self) -> bool:
        """True if the items, such as labels, do not inform the variance of theta."""
        return self.curves.mean_only

    @property
    def widened(self) -> bool:
        """True if bands of the curves were widened for clusters of items."""
        return "clusters" in self.data.children

    @property
    def atoms(self) -> tuple[float, ...]:
        """Scores with their own shifts of both curves, which many items share, in order."""
        return self.curves.atoms

    @property
    def groups(self) -> tuple[str, ...]:
        """Groups with their own deviations; combinations of several columns as ``"FR × phone"``."""
        return self.curves.groups

    def summary(self) -> pd.DataFrame:
        """The fit in a few rows: both curves, R-squared, smoothing and Pareto k.

        Returns
        -------
        pandas.DataFrame
            Columns ``quantity``, ``score`` (NaN for quantities without one), and ``lower``,
            ``median`` and ``upper``, of 90% of the draws. Curves are at the scores below which 5,
            25, 50, 75 and 95% of the items lie; the sds about a line are the curves' smoothing.

        Examples
        --------
        >>> fit.summary()["quantity"].nunique()
        6
        """
        return made_above("summary", self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fit to one netCDF file, whole or not at all, for `load_fit`.

        Of groups that are computed when read, the file holds what computes them.

        Parameters
        ----------
        path
            Name of the file; an older file of this name is replaced at the end.

        Raises
        ------
        FitError
            If `path` is not the name of a file, or the fit could not be loaded again.
        """
        tree = with_recipes(self.data)
        for name in ("prior", "method", "status"):
            record = getattr(self, name)
            content = {"name": type(record).__name__, **asdict(record)}
            tree.attrs[name] = json.dumps(content, default=np.generic.item)
        if self.selection is not None:
            tree.attrs["selection"] = json.dumps(self.selection.to_dict("list"))
        tree.attrs["format"] = _FIT_FORMAT
        save_netcdf(tree, path, FitError)

    def __repr__(self) -> str:
        return lines(f"<soc_pymc.{self._head()}>", fit_rows(self))

    def _repr_html_(self) -> str:
        is_fine = self.status.converged
        rows = [("inference", "ok" if is_fine else "fail"), *fit_rows(self)]
        return html_table(
            self._head(), rows, note=_NEXT if is_fine else self.status.reason
        )

    def _head(self) -> str:
        state = "converged" if self.status.converged else "NOT converged"
        method = f"{type(self.prior).__name__} by {type(self.method).__name__}"
        return f"Fit: {method}, {state}: {self.status.reason}"


def fit_rows(fit: Fit) -> Entries:
    """Rows of a fit: prior and reason, method, draws, items."""
    chains, _ = fit.curves.shape
    in_chains = f" in {chains} chains" if chains > 1 else ""
    bins = fit.curves.bins
    items = f"{int(bins['n_items'].sum()):,} in {counted(bins.sizes['bin'], 'bin')}"
    table = fit.selection
    chosen: Entries = []
    if table is not None:
        chosen = [("chosen", table.loc[table["chosen"], "reason"].item())]
    return [
        ("prior", short(fit.prior)),
        *chosen,
        ("method", short(fit.method)),
        ("draws", f"{fit.curves.number:,}{in_chains}"),
        ("items", items),
        ("scores", score_range(bins) if fit.curves.roles.has_score else "none"),
        *groups_row(fit.groups),
        *_spread_row(fit),
        ("seconds", f"{fit.status.seconds:.1f}"),
    ]


def _spread_row(fit: Fit) -> Entries:
    """Say that items leave most of the prior variance of the spread's level, if they do."""
    name = f"{fit.prior.curve_names[1]}_line"
    bins = fit.curves.bins
    if name not in fit.curves.posterior or f"{name}_prior_sd" not in bins:
        return []
    level = fit.curves.posterior[name].to_numpy()[..., 0]
    left = float(level.var() / bins[f"{name}_prior_sd"].to_numpy()[0] ** 2)
    words = f"of theta is mostly prior: {min(left, 1.0):.0%} of its variance is left"
    return [("spread", words)] if left > 0.5 else []


def with_draws(fit: Fit, posterior: xr.Dataset) -> Fit:
    """Return a fit with other draws of the curves."""
    groups = {"posterior": posterior, "constant_data": fit.curves.bins}
    tree = xr.DataTree.from_dict(groups)
    tree.attrs = dict(fit.data.attrs)
    return replace(fit, data=tree)


# the rule for an argument that is a fit
FIT = A(Fit, "a fit, from soc.fit or soc.load_fit")


def load_fit(path: str | os.PathLike[str]) -> Fit:
    """Read a fit that `Fit.save` wrote to the netCDF file `path`; nothing in it is executed.

    Parameters
    ----------
    path : str or Path
        The netCDF file.

    Returns
    -------
    Fit
        The fit, with the draws and configurations of the saved one.

    Raises
    ------
    FitError
        If `path` is not the name of a file, or the file is missing, is not a saved fit, or has
        another format version.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import soc_pymc as soc
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     fit.save(pathlib.Path(folder) / "fit.nc")
    ...     again = soc.load_fit(pathlib.Path(folder) / "fit.nc")
    >>> again.prior == fit.prior, again.data.equals(fit.data)
    (True, True)
    """
    kind = Saved("a fit", "soc-pymc fit", _FIT_FORMAT, FitError, xr.open_datatree)
    tree = read_saved(path, kind).copy()
    attrs = {name: value for name, value in tree.attrs.items() if name != "format"}
    try:
        records = {
            name: _record_of_fit(attrs.pop(name))
            for name in ("prior", "method", "status")
        }
        table = attrs.pop("selection", None)
        selection = None if table is None else Table(json.loads(table))
        tree.attrs = attrs
        tree = without_recipes(tree, records["prior"])
        return Fit(tree, **records, selection=selection)
    except (KeyError, TypeError, ValueError) as error:
        text = error.args[0] if error.args else type(error).__name__
        raise FitError(
            f"{path} is a damaged fit ({text}); fit again and save"
        ) from error


def _record_of_fit(text: str) -> Any:
    """A configuration from JSON with the public name of its class."""
    import soc_pymc  # whose names are loaded when they are read

    content = json.loads(text)
    name = content.pop("name")
    kind = getattr(soc_pymc, name, None)
    if not isinstance(kind, type) or not issubclass(kind, (Method, Status, *PRIORS)):
        raise KeyError(name)
    values: dict[str, Any] = {
        k: Spline(**v) if isinstance(v, dict) else v for k, v in content.items()
    }
    return kind(**values)


def named_fits(fits: Fit | Mapping[str, Fit]) -> dict[str, Fit]:
    """Fits by name; a single fit gets the name fit."""
    A(Fit | Mapping, "a fit, or a dict of them by name")(fits, "fits")
    by_name = {"fit": fits} if isinstance(fits, Fit) else dict(fits)
    if not by_name:
        raise FitError("no fit was given: give one, or a dict of fits by name")
    for name, fit in by_name.items():
        FIT(fit, f"fits[{shown(name)}]")
    return by_name


# --- whether items are those of a fit -------------------------------------------------------------


def other_total(fit: Fit, columns: Mapping[str, Any], n: Ints) -> str:
    """Return a total of rows that is not that of the fit's items; empty if those it has agree."""
    outcome = fit.curves.outcome
    bins: dict[str, Any] = {}
    for group in ("observed_data", "constant_data"):
        if group in fit.data.children:
            bins |= {str(key): x for key, x in fit.data[group].data_vars.items()}
    if outcome.observed in bins and outcome.direct:  # bins have the means
        bins[outcome.observed] = bins[outcome.observed] * bins["n_items"]
    values = {**columns, "n_items": np.ones(len(n))}
    for key in ("n_items", outcome.observed, outcome.size):
        if key == outcome.size and not outcome.sizes_add:
            continue
        if key in bins and key in values:
            total = float(n @ values[key])
            of_fit = float(bins[key].sum())
            if abs(total - of_fit) > _SAME_TOTAL * float(n @ np.abs(values[key])):
                return f"{key} adds up to {total:,.12g} and {of_fit:,.12g}"
    return ""


def other_total_of_statistics(fit: Fit, stats: Statistics) -> str:
    """Return what `other_total` says of statistics, by their outcomes."""
    part = stats.table("part")
    means = {fit.curves.outcome.observed: part["sum_y"] / part["n"]}
    return other_total(fit, means, part["n"])


# --- the likelihood's rows ------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class RowValues:
    """The likelihood's rows as functions of draws, without the model."""

    # of each predictor, which are both curves, or one array with all predictors of a mixture:
    names: tuple[tuple[str, ...], ...]  # its variables
    # (rows, values of these variables), sparse or dense
    matrices: tuple[Any, ...]
    data: Any  # `RowSums`, or `MixtureCells`
    dtype: type[np.number[Any]]  # of outcomes

    def predictors(self, draws: Mapping[str, Floats]) -> list[Floats]:
        """Values (draws, rows) of each predictor."""
        return [
            (
                matrix
                @ np.hstack(
                    [draws[name].reshape(len(draws[name]), -1) for name in names]
                ).T
            ).T
            for names, matrix in zip(self.names, self.matrices, strict=True)
        ]

    def _by_row(self, draws: Mapping[str, Floats]) -> Floats:
        """Predictors of a mixture, (draws, rows, P)."""
        (predictors,) = self.predictors(draws)
        return predictors.reshape(len(predictors), len(self.data.constant), -1)

    def within_bounds(self, draws: Mapping[str, Floats]) -> Floats:
        """Log density (draws,) of curves beyond what a mixture's components can represent."""
        return self.data.within_bounds(self._by_row(draws))

    def log_likelihood(self, draws: Mapping[str, Floats], starts: Ints) -> Floats:
        """Log marginals (draws, blocks) of blocks of rows that begin at `starts`."""

        def part(start: int) -> Floats:
            chunk = {
                name: values[start : start + _DRAWS_AT_ONCE]
                for name, values in draws.items()
            }
            if len(self.names) == 2:
                by_row = self.data.values(*self.predictors(chunk))
            else:
                by_row = self.data.values(self._by_row(chunk))
            return np.add.reduceat(by_row, starts, axis=1)

        number = len(next(iter(draws.values())))
        return np.concatenate(list(ordered_map(part, range(0, number, _DRAWS_AT_ONCE))))

    def totals(self, draws: Mapping[str, Floats], seed: Ints) -> NDArray[Any]:
        """Replicates of the observed totals of the rows, (draws, rows).

        The seed's two numbers are followed by those of the rows.
        """
        rng = np.random.default_rng(seed[:2])
        single = len(self.names) == 2
        predictors = self.predictors(draws) if single else [self._by_row(draws)]
        drawn = self.data.draw(*predictors, rng)[:, seed[2:]]
        are_counts = self.dtype is not np.float64
        return np.asarray(
            np.clip(drawn, 0.0, _LARGEST_COUNT) if are_counts else drawn,
            dtype=self.dtype,
        )

    def parts(self) -> _Parts:
        """All arrays, of which `of_parts` makes the rows again."""
        parts: _Parts = {}
        for k, matrix in enumerate(map(sparse.csr_array, self.matrices)):
            shape = np.array(matrix.shape)
            parts[f"matrix_{k}"] = [matrix.data, matrix.indices, matrix.indptr, shape]
        if not isinstance(self.data, RowSums):
            return parts | {"cells": [*self.data.arrays]}
        for member in fields(self.data):  # type: ignore[arg-type]
            values = getattr(self.data, member.name)
            ragged = isinstance(values, Ragged)
            parts[member.name] = [values.start, *values.columns] if ragged else [values]
        return parts

    @staticmethod
    def of_parts(
        names: Sequence[Sequence[str]], parts: _Parts, family: Family
    ) -> "RowValues":
        """The rows of a fit with priors of a family."""
        gridded = "cells" in parts
        matrices = []
        for k in range(len(names)):
            *columns, shape = parts.pop(f"matrix_{k}")
            matrix = sparse.csr_array(tuple(columns), shape=tuple(shape))
            # products with a damaged matrix would read foreign memory
            matrix.check_format()
            matrices.append(matrix.toarray() if gridded else matrix)
        data: Any
        if gridded:
            from ._model.mixtures import MixtureCells

            data = MixtureCells.made_of(family, *parts["cells"])
        else:
            values = {
                name: Ragged(part[0], tuple(part[1:])) if len(part) > 1 else part[0]
                for name, part in parts.items()
            }
            data = family.rows.made_of(values)
        return RowValues(
            tuple(map(tuple, names)), tuple(matrices), data, family.outcome.dtype
        )


# draws that show whether an outcome says anything, and difference in nats of one that does not
FEW_DRAWS = 8
_NOTHING = 1e-9


def telling(log_density: Floats) -> Bools:
    """Mask of observations (draws, n) that say something: ArviZ's leave-one-out needs them."""
    return np.ptp(log_density, axis=0) > _NOTHING


def flat(draws: xr.Dataset) -> dict[str, Floats]:
    """All variables with the draws of all chains one after the other, (draws, ...)."""
    arrays = {
        str(name): x.transpose(*_OVER, ...).to_numpy() for name, x in draws.items()
    }
    return {name: np.concatenate(chains) for name, chains in arrays.items()}


# --- variables of the tree ------------------------------------------------------------------------

# by group: where its draws are, and what its variable is of them
_SOURCES = {
    "log_likelihood": ("posterior", RowValues.log_likelihood),
    "posterior_predictive": ("posterior", RowValues.totals),
    "prior_predictive": ("prior", RowValues.totals),
}


class Later(BackendArray):
    """An array that is made when it is first read."""

    def __init__(
        self, shape: tuple[int, ...], dtype: Any, make: Callable[[], NDArray[Any]]
    ) -> None:
        self.shape = shape
        self.dtype = np.dtype(dtype)
        self._make = make

    @cached_property
    def _values(self) -> NDArray[Any]:
        return np.asarray(self._make(), dtype=self.dtype).reshape(self.shape)

    def __deepcopy__(self, memo: Any) -> "Later":
        # a lock of the property cannot be copied, and values do not change
        return self

    def __getitem__(self, key: Any) -> Any:
        support = indexing.IndexingSupport.OUTER_1VECTOR
        part = self._values.__getitem__
        return indexing.explicit_indexing_adapter(key, self.shape, support, part)


class _Deferred(Later):
    """Values (chain, draw, size) of a variable of the tree."""

    def __init__(
        self, group: str, rows: RowValues, draws: Mapping[str, Floats], argument: Ints
    ) -> None:
        self.group = group
        self.rows = rows
        self.draws = draws
        self.argument = argument
        by_block = group == "log_likelihood"
        listed = argument if by_block else argument[2:]
        shape = (*next(iter(draws.values())).shape[:2], len(listed))
        super().__init__(shape, float if by_block else rows.dtype, self._computed)

    def _computed(self) -> NDArray[Any]:
        _, function = _SOURCES[self.group]
        draws = {name: np.concatenate(chains) for name, chains in self.draws.items()}
        return function(self.rows, draws, self.argument)


def deferred(
    group: str, name: str, dim: str, rows: RowValues, draws: xr.Dataset, argument: Ints
) -> xr.Dataset:
    """The variable (chain, draw, dim) of a group of the tree, computed when first read.

    `argument` are the starts of the blocks of a log likelihood, or as in `RowValues.totals`.
    """
    values = _Deferred(group, rows, _arrays(draws, rows.names), argument)
    return draws[_OVER].assign({name: _lazy(dim, values)})


def _lazy(dim: str, values: _Deferred) -> xr.Variable:
    return xr.Variable((*_OVER, dim), indexing.LazilyIndexedArray(values))


# --- saved trees ----------------------------------------------------------------------------------


def with_recipes(tree: xr.DataTree) -> xr.DataTree:
    """The tree as it is saved: with what computes deferred variables in place of their values."""
    tree = tree.copy()
    rows = None
    contents: dict[str, Any] = {}
    parts: _Parts = {}
    for group in (group for group in _SOURCES if group in tree.children):
        data = tree[group].to_dataset()
        for name, variable in data.variables.items():
            values = _deferred_values(variable, group)
            if (
                values is None
                or group in contents
                or values.rows is not (rows or values.rows)
            ):
                continue
            rows = values.rows
            saved = _saved_draws(data, tree, group, rows)
            changed = {
                parameter: draws
                for parameter, draws in values.draws.items()
                if parameter not in saved or not np.array_equal(draws, saved[parameter])
            }
            contents[group] = name, variable.dims[-1], [*changed]
            parts[group] = [values.argument, *changed.values()]
            tree[group].dataset = data.drop_vars([name])
    if rows is None:
        return tree
    parts |= rows.parts()
    recipes = xr.Dataset(
        attrs={"contents": json.dumps(contents | {"names": rows.names})}
    )
    for name, part in parts.items():
        for k, array in enumerate(part):
            dims = [f"dim_{axis}_{size}" for axis, size in enumerate(array.shape)]
            recipes[f"{name}.{k}"] = dims, array
    tree[_STORE] = xr.DataTree(recipes)
    return tree


def without_recipes(tree: xr.DataTree, prior: Prior) -> xr.DataTree:
    """The tree of a saved fit with its deferred variables."""
    if _STORE not in tree.children:
        return tree
    parts: _Parts = {}
    for key, array in tree[_STORE].data_vars.items():
        parts.setdefault(str(key).split(".")[0], []).append(array.to_numpy())
    contents = json.loads(tree[_STORE].attrs["contents"])
    names = contents.pop("names")
    recipes = {group: parts.pop(group) for group in contents}
    rows = RowValues.of_parts(names, parts, family_of(prior, tree.attrs))
    for group, (name, dim, changed) in contents.items():
        data = tree[group].to_dataset()
        argument, *arrays = recipes[group]
        draws = _saved_draws(data, tree, group, rows) | dict(
            zip(changed, arrays, strict=True)
        )
        values = _Deferred(group, rows, draws, argument)
        tree[group].dataset = data.assign({name: _lazy(dim, values)})
    return tree.drop_nodes(_STORE)


def _deferred_values(variable: xr.Variable, group: str) -> _Deferred | None:
    """The deferred values of a group's variable; None for others, and for parts of them."""
    lazy = variable._data
    values = getattr(lazy, "array", None)
    if not isinstance(lazy, indexing.LazilyIndexedArray) or not isinstance(
        values, _Deferred
    ):
        return None
    complete = all(
        isinstance(part, slice) and part == slice(None) for part in lazy.key.tuple
    )
    return values if complete and values.group == group else None


def _saved_draws(
    data: xr.Dataset, tree: xr.DataTree, group: str, rows: RowValues
) -> dict[str, Floats]:
    """Draws in the tree of which a group's variable is made, with the labels of its `data`."""
    source, _ = _SOURCES[group]
    draws = tree[source].to_dataset() if source in tree.children else xr.Dataset()
    aligned = xr.align(data[_OVER], draws, join="left", copy=False)[1]
    return _arrays(aligned, rows.names)


def _arrays(draws: xr.Dataset, names: Sequence[Sequence[str]]) -> dict[str, Floats]:
    """Variables (chain, draw, ...) of these names, if they are there."""
    present = [draws[name] for each in names for name in each if name in draws]
    # in one order in memory, on which the rounding of products depends
    return {
        str(x.name): np.ascontiguousarray(x.transpose(*_OVER, ...)) for x in present
    }
