"""Contents of a fit: draws, bins, and what scoring needs of further terms."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from .._lib.arrays import Floats
from .._model.problem import Problem, mixture_data
from .._model.rows import Rows, make_rows, positions
from .._model.splines import Axis
from .._model.terms import Curve
from ..data.statistics import Statistics
from ..families.family import family_of_kind
from ..families.monotone import project_monotone
from ..families.outcomes import OUTCOMES
from ..families.scales import RANK, SCALES, Scale
from .arviz_groups import arviz_groups

_PARTS = 20  # parts of the score, each with its distribution of exposures


def fit_tree(
    built: Problem, stats: Statistics, groups: dict[str, xr.Dataset], monotone: bool
) -> xr.DataTree:
    """The fit's `DataTree`, from draws and other results of inference, by name of the group."""
    further = arviz_groups(built, stats, groups["posterior"], "clusters" in groups)
    tree = tree_of_draws(built, stats, groups, monotone)
    for name, data in further.items():
        known = tree[name].to_dataset() if name in tree.children else xr.Dataset()
        tree[name] = xr.DataTree(known.merge(data))
    return tree


def tree_of_draws(
    built: Problem, stats: Statistics, groups: dict[str, xr.Dataset], monotone: bool
) -> xr.DataTree:
    """The tree of draws, from the posterior or another distribution, with what scoring needs."""
    names = built.family.curves
    if monotone:
        groups = {**groups, "posterior": _monotone(groups["posterior"], names[0])}
    if len(built.groupings) > 1:  # their combinations
        posterior = groups["posterior"].assign_coords(group=list(built.labels))
        groups = {**groups, "posterior": posterior}
    atoms = built.rows.atoms
    bins, observed = bin_table(stats, built.curves[0].axis, bool(len(atoms)))
    bins = bins.merge(mixture_data(built))
    if len(atoms):
        bins = bins.assign_coords(atom=atoms)
        first = np.searchsorted(np.sort(built.rows.atom), 1 + np.arange(len(atoms)))
        row = np.argsort(built.rows.atom, kind="stable")[first]
        for curve in built.curves:
            bins[f"{curve.name}_atom_position"] = ("atom", curve.position[row])
    for curve in built.curves:
        bins = bins.merge(_of_terms(curve, [grouping.name for grouping in built.groupings]))
        bins = bins.assign(rank_table(curve.axis).data_vars)
    if built.curves[0].size_knots.size:
        bins = bins.merge(_shares(built.rows, built.curves[0].position))
    if "effect_bin" in groups["posterior"].coords:
        bins["edge"] = ("edge", stats.edges)
    tree = xr.DataTree.from_dict({**groups, "observed_data": observed, "constant_data": bins})
    tree.attrs = {name: stats.data.attrs[name] for name in ("kind", "roles")}
    if not built.data.informs_variance:
        tree.attrs["mean_only"] = 1
    return tree


def _of_terms(curve: Curve, groupings: Sequence[str]) -> xr.Dataset:
    """Functions at the knots of groups' deviations, with the names of their scales."""
    kinds, functions = [], []
    knots = len(curve.basis.knots)
    for term in curve.terms:
        if term.target in groupings:
            groups = term.values.shape[0] // knots
            own = term.values[:knots, : term.values.shape[1] // groups]
            functions.append(own)
            kinds += [term.block.name] * own.shape[1]
    if curve.levels:
        functions.append(curve.levels.values)
        kinds += [curve.levels.names[k] for k in curve.levels.kind]
    if not kinds:
        return xr.Dataset()
    dims = (f"{curve.name}_knot", f"{curve.name}_group_function")
    return xr.Dataset(
        {f"{curve.name}_group_functions": (dims, np.hstack(functions))},
        {f"{curve.name}_group_function": np.array(kinds, dtype=object)},
    )


def _shares(rows: Rows, position: Floats) -> xr.Dataset:
    """Distribution of exposures in each part of the scores, and of each atom."""
    beside = rows.atom == 0
    # a bin's sizes stay in one part, because the order inside a bin is unknown
    place = np.unique(position, return_inverse=True)[1]
    n = np.bincount(place, rows.beside)
    share = (np.cumsum(n) - 0.5 * n) / n.sum()
    part = np.minimum((share * _PARTS).astype(int), _PARTS - 1)[place]
    parts, part = np.unique(np.where(beside, part, _PARTS + rows.atom), return_inverse=True)
    octave = np.floor(2.0 * rows.log_size / np.log(2.0)).astype(int)
    classes, octave = np.unique(octave, return_inverse=True)
    n = np.zeros((len(parts), len(classes)))
    np.add.at(n, (part, octave), rows.n)
    size = np.bincount(octave, rows.n * rows.log_size) / n.sum(axis=0)
    middle = np.bincount(part, rows.n * position) / n.sum(axis=1)
    share = n / n.sum(axis=1, keepdims=True)
    last = len(parts) - len(rows.atoms)
    found = {
        "share": (("part", "size_class"), share[:last]),
        "share_position": ("part", middle[:last]),
        "share_log_size": ("size_class", size),
    }
    if len(rows.atoms):
        found["atom_share"] = (("atom", "size_class"), share[last:])
    return xr.Dataset(found)


def _monotone(posterior: xr.Dataset, variable: str) -> xr.Dataset:
    """Draws with the mean's curves, shared and by level of groups, projected."""
    projected = {}
    groups = [name for name in map(str, posterior) if name.startswith(f"{variable}_of_group")]
    for name in (variable, *groups):
        values = posterior[name]
        knots = values[values.dims[-1]].to_numpy()
        flat = values.to_numpy().reshape(-1, *values.shape[2:])
        moved = project_monotone(flat, knots)
        projected[name] = (values.dims, moved.reshape(values.shape))
    return posterior.assign(projected)


# --- bins -----------------------------------------------------------------------------------------


def bin_table(stats: Statistics, axis: Axis, atoms: bool = False) -> tuple[xr.Dataset, xr.Dataset]:
    """The occupied bins of all groups together, and their observed sums."""
    data, outcome = stats.data, OUTCOMES[stats.kind]
    at = np.flatnonzero(data["n"].to_numpy() > 0)
    n = data["n"].to_numpy()[at]
    rows = make_rows(stats, family_of_kind(stats.kind), atoms=atoms)
    score = axis.inverse(positions(axis, rows))
    score[rows.atom > 0] = rows.atoms
    columns: dict[str, NDArray[Any]] = {
        "score": score,
        "score_min": data["score_min"].to_numpy()[at],
        "score_max": data["score_max"].to_numpy()[at],
        **{
            scale.width: _sd(stats, scale, at) for scale in SCALES.values() if scale.sums[0] in data
        },
        "n_items": n,
    }
    sums = {str(name): data[name].to_numpy()[at] for name in outcome.sums("part")}
    columns[outcome.size], seen = outcome.of_bins(sums)
    bins = xr.Dataset({name: ("bin", values) for name, values in columns.items()})
    return bins, xr.Dataset({outcome.observed: ("bin", seen)})


def _sd(stats: Statistics, scale: Scale, at: NDArray[np.intp]) -> Floats:
    """Standard deviation of positions inside each bin, NaN if a score has none."""
    n, first, second = (stats.data[k].to_numpy()[at] for k in ("n", *scale.sums))
    mean, square = first / n, second / n
    variance = square - mean**2
    # a variance below the rounding of the sums is 0
    return np.sqrt(np.where(variance <= 1e-12 * square, 0.0, variance))


def rank_table(axis: Axis) -> xr.Dataset:
    """The table that `Fit.axis` needs for an axis of ranks; empty for others."""
    if axis.scale != RANK:
        return xr.Dataset()
    return xr.Dataset(
        {
            "rank_score": ("rank", np.asarray(axis.score)),
            "rank_fraction": ("rank", np.asarray(axis.fraction)),
        }
    )
