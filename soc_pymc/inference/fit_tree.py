"""Contents of a fit: draws, bins, data of further terms for scoring, and ArviZ's conventions."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import xarray as xr
from scipy import sparse

from .._lib.arguments import FitError, Whole
from .._lib.arrays import Bools, Floats, Ints, Pair, equal_parts
from .._lib.work import phase
from .._model.coordinates import Space
from .._model.mixtures import WITHIN_BOUNDS
from .._model.pilot import Pilot
from .._model.problem import Problem, build, check_prior, mixture_data, prior_draws
from .._model.rows import Rows, placed_rows, positions
from .._model.splines import Axis, project_monotone
from .._model.terms import Curve
from ..data.items import Grouping
from ..data.statistics import Statistics
from ..families.priors import Prior
from ..families.scales import RANK, SCALES
from ..families.truncated import TruncatedRows
from ..fits import (
    FEW_DRAWS,
    Fit,
    Method,
    RowValues,
    Status,
    deferred,
    flat,
    other_total_of_statistics,
    telling,
)
from .clusters import for_clusters
from .density import CHUNK, SAMPLED, with_labels

_STEP = 1e-3  # of the mean's curve, for differences
# parts of the score, each with its distribution of exposures
_SHARE_PARTS = 20
# of parameters, and of outcomes at least
_PARAMETER_DRAWS = 500
_FEWEST_REPLICATES = 100
_MOST_REPLICATED = 5_000_000  # numbers of one array: 40 MB
_MOST_DRAWN = 40_000_000  # numbers of cells that replicates go through
if TYPE_CHECKING:
    import pymc as pm

STORED_SEED = Whole(0, (1 << 63) - 1)


# datasets by name of the group of the fit's `DataTree`
type Groups = dict[str, xr.Dataset]


def fit_tree(
    built: Problem,
    stats: Statistics,
    groups: dict[str, xr.Dataset],
    monotone: bool,
    seed: int,
) -> xr.DataTree:
    """The fit's `DataTree`, from draws and other results of inference, by name of the group."""
    further = arviz_groups(
        built, stats, groups["posterior"], "clusters" in groups, seed
    )
    tree = tree_of_draws(built, stats, groups, monotone)
    densities = further.get("log_likelihood", xr.Dataset())
    # the bins that say something: the other groups follow
    if "bin" in densities.coords:
        observed = tree["observed_data"].to_dataset()
        bins = tree["constant_data"].to_dataset()
        tree["constant_data"] = xr.DataTree(bins.merge(observed))
        bin_number = densities["bin"].to_numpy()
        observed = observed.isel(bin=bin_number).assign_coords(bin=bin_number)
        tree["observed_data"] = xr.DataTree(observed)
    for name, data in further.items():
        tree[name] = xr.DataTree(
            tree[name].to_dataset().merge(data) if name in tree else data
        )
    return tree


def tree_of_draws(
    built: Problem, stats: Statistics, groups: dict[str, xr.Dataset], monotone: bool
) -> xr.DataTree:
    """The tree of draws, from the posterior or another distribution, with data for scoring."""
    posterior = scored_draws(built, groups["posterior"], monotone)
    pilot = built.pilot
    axes = [curve.axis for curve in pilot.curves]
    bins, observed = bin_table(stats, axes, pilot.rows.atoms.tolist())
    functions = [_group_functions(curve, pilot.groupings) for curve in pilot.curves]
    bins = xr.merge([bins, mixture_data(built), *functions, _atom_positions(pilot)])
    if pilot.rows.keys.size_cell:
        bins = bins.merge(_size_shares(pilot.rows, pilot.curves[0].position))
    if stats.truncated:
        bins = bins.merge(_listed(pilot, stats))
    if "effect_bin" in posterior.coords:
        bins["edge"] = ("edge", stats.edges)
    contents = {
        "posterior": posterior,
        "observed_data": observed,
        "constant_data": bins,
    }
    tree = xr.DataTree.from_dict({**groups, **contents})
    tree.attrs = {name: stats.data.attrs[name] for name in ("kind", "roles")}
    tree.attrs |= built.family.attrs
    if law := stats.noise_law:
        tree.attrs |= law.attrs
    if not built.pilot.data.informs_variance:
        tree.attrs["mean_only"] = 1
    if built.extended is not None:
        tree.attrs["extended"] = 1
    return tree


def _listed(pilot: Pilot, stats: Statistics) -> xr.Dataset:
    """Expected totals of bins whose items have 1 or more, for the mean of theta of all items.

    They are the pilot's: the expected total, its variance, and its slope in the mean's curve.
    """
    assert isinstance(pilot.data, TruncatedRows)
    location, dispersion = pilot.curves_at(pilot.coefficients)
    middle = pilot.data.listed(location, dispersion)
    ahead = pilot.data.listed(location + _STEP, dispersion)
    values = middle.mean, middle.variance, (ahead.mean - middle.mean) / _STEP
    n = stats.data["n"].to_numpy()
    place_of = pilot.rows.keys.place_of
    share = n / np.maximum(np.bincount(place_of, n), 1)[place_of]
    names = "listed_total", "listed_variance", "listed_slope"
    number = len(location)
    totals = {}
    for name, x in zip(names, values, strict=True):
        of_place = np.bincount(
            pilot.rows.place, middle.total(x, number), place_of[-1] + 1
        )
        totals[name] = "bin", (of_place[place_of] * share)[n > 0]
    return xr.Dataset(totals)


def scored_draws(built: Problem, posterior: xr.Dataset, monotone: bool) -> xr.Dataset:
    """Draws as scoring reads them: projected if the mean is monotone, with labels of groups."""
    if monotone:
        posterior = _monotone(posterior, built.family.curve_names[0])
    if len(built.pilot.groupings) > 1:  # their combinations
        posterior = posterior.assign_coords(group=list(built.pilot.labels))
    return posterior


def _atom_positions(pilot: Pilot) -> xr.Dataset:
    """Scores of atoms, and their positions on both curves' axes."""
    if not len(pilot.rows.atoms):
        return xr.Dataset()
    rows = [np.argmax(pilot.rows.atom == 1 + k) for k in range(len(pilot.rows.atoms))]
    positions = {
        f"{c.name}_atom_position": ("atom", c.position[rows]) for c in pilot.curves
    }
    return xr.Dataset(positions, {"atom": pilot.rows.atoms})


def _group_functions(curve: Curve, groupings: Sequence[Grouping]) -> xr.Dataset:
    """Functions at the knots of groups' deviations, with the names of their scales."""
    names = []
    functions = []
    knots = len(curve.basis.knots)
    levels = {g.name: len(g.levels) for g in groupings}
    for block in curve.design.blocks:
        if block.target in levels:
            size = block.values.shape[1] // levels[block.target]
            functions.append(block.values[:knots, :size])
            names += [block.name] * size
    if curve.levels:
        functions.append(curve.levels.values)
        names += [curve.levels.names[k] for k in curve.levels.kind]
    if not names:
        return xr.Dataset()
    dims = (f"{curve.name}_knot", f"{curve.name}_group_function")
    kinds = [name.removeprefix(f"{curve.variable}_") for name in names]
    return xr.Dataset(
        {f"{curve.name}_group_functions": (dims, np.hstack(functions))},
        {f"{curve.name}_group_function": np.array(kinds, dtype=object)},
    )


def _size_shares(rows: Rows, position: Floats) -> xr.Dataset:
    """Distribution of exposures in each part of the scores, and of each atom."""
    beside = rows.atom == 0
    # a bin's sizes stay in one part, because the order inside a bin is unknown
    part = equal_parts(position, _SHARE_PARTS, rows.outside_atoms)
    parts, part = np.unique(
        np.where(beside, part, _SHARE_PARTS + rows.atom), return_inverse=True
    )
    octave = np.floor(2.0 * rows.log_size / np.log(2.0)).astype(int)
    octave = np.where(rows.size_atom > 0, octave.max() + rows.size_atom, octave)
    classes, octave = np.unique(octave, return_inverse=True)
    n = np.zeros((len(parts), len(classes)))
    np.add.at(n, (part, octave), rows.n)
    size = np.bincount(octave, rows.n * rows.log_size) / n.sum(axis=0)
    middle = np.bincount(part, rows.n * position) / n.sum(axis=1)
    share = n / n.sum(axis=1, keepdims=True)
    last = len(parts) - len(rows.atoms)
    shares = {
        "share": (("part", "size_class"), share[:last]),
        "share_position": ("part", middle[:last]),
        "share_log_size": ("size_class", size),
    }
    if len(rows.atoms):
        shares["atom_share"] = (("atom", "size_class"), share[last:])
    return xr.Dataset(shares)


def _monotone(posterior: xr.Dataset, variable: str) -> xr.Dataset:
    """Draws with the mean's curves, shared and by level of groups, projected."""
    projected = {}
    for name, values in posterior.items():
        if name == variable or str(name).startswith(f"{variable}_of_group"):
            draws = values.to_numpy().reshape(-1, *values.shape[2:])
            monotone = project_monotone(draws, values[values.dims[-1]].to_numpy())
            projected[name] = values.copy(data=monotone.reshape(values.shape))
    return posterior.assign(projected)


# --- bins -----------------------------------------------------------------------------------------


def bin_table(
    stats: Statistics, axes: Sequence[Axis], atoms: Sequence[float] = ()
) -> tuple[xr.Dataset, xr.Dataset]:
    """The occupied bins of all groups together with the axes' ranks, and their observed sums."""
    data = stats.data
    outcome = stats.outcome
    occupied = np.flatnonzero(data["n"].to_numpy() > 0)
    n = data["n"].to_numpy()[occupied]
    rows = placed_rows(stats, stats.family, False, False, atoms, stats.bins)
    score = axes[0].inverse(positions(axes[0], rows)[0])
    score[rows.atom > 0] = rows.atoms
    columns = {"score": score, "n_items": n}
    columns |= {
        name: data[name].to_numpy()[occupied] for name in ("score_min", "score_max")
    }
    for scale in SCALES.values():
        if scale.sums[0] in data:
            columns[scale.width] = np.sqrt(scale.moments(rows.sums)[1])
    sums = {str(name): data[name].to_numpy()[occupied] for name in outcome.sums("part")}
    columns[outcome.size], observed = outcome.of_bins(sums)
    bins = xr.Dataset({name: ("bin", values) for name, values in columns.items()})
    for axis in (axis for axis in axes if axis.scale == RANK):  # all have one table
        for name in ("score", "fraction"):
            bins[f"rank_{name}"] = "rank", np.array(getattr(axis, name))
    return bins, xr.Dataset({outcome.observed: ("bin", observed)})


def draw_densities(fit: Fit, stats: Statistics) -> Pair:
    """Log prior of top-level parameters and log likelihood of all draws, both (chain, draw)."""
    if fit.widened:
        raise FitError(
            "the fit's bands were widened for clusters, so its draws are not those of its model's "
            "posterior: fit statistics of the items without cluster="
        )
    check_prior(fit.prior, stats)
    differing = other_total_of_statistics(fit, stats)
    if (stats.groups if fit.prior.groups else ()) != fit.groups:
        differing = "the groups differ"
    if differing:
        raise FitError(
            f"the statistics are not those of the fit ({differing}): give those that it was made "
            "from"
        )
    return _density_totals(fit.data, "log_prior"), _density_totals(
        fit.data, "log_likelihood"
    )


def _density_totals(tree: xr.DataTree, group: str) -> Floats:
    """Sums of all variables of a group, (chain, draw)."""
    variables = tree[group].data_vars.values()
    return np.sum([x.sum(x.dims[2:]).to_numpy() for x in variables], axis=0)


# --- ArviZ's conventions --------------------------------------------------------------------------


def in_chains(draws: xr.Dataset) -> xr.Dataset:
    """Independent draws (1, n, ...) as up to four chains, as R-hat needs two."""
    number = draws.sizes["draw"]
    size = next(number // chains for chains in (4, 3, 2, 1) if number % chains == 0)
    by_chain = draws.isel(chain=0, drop=True).drop_vars("draw", errors="ignore")
    by_chain = by_chain.coarsen(draw=size).construct(draw=("chain", "draw"))
    return by_chain.assign_coords(
        {dim: np.arange(by_chain.sizes[dim]) for dim in SAMPLED}
    )


def conventional(tree: xr.DataTree) -> xr.DataTree:
    """The tree with a coordinate on every dim, and ArviZ's attributes."""
    from .. import __version__

    groups = {name: node.to_dataset() for name, node in tree.children.items()}
    labels = {
        dim: values for data in groups.values() for dim, values in data.coords.items()
    }
    # as ArviZ's schema asks; its own function for them takes a third of a second to import
    marks = {"created_at": datetime.now(UTC).isoformat()}
    for role in ("creation_library", "inference_library"):
        marks |= {role: "soc_pymc", f"{role}_version": __version__}
    for name, data in groups.items():
        unlabelled = [d for d in data.dims if d not in data.coords and d in labels]
        words = {
            d: labels[d].to_numpy()
            for d in unlabelled
            if len(labels[d]) == data.sizes[d]
        }
        numbers = {
            d: np.arange(size) for d, size in data.sizes.items() if d not in data.coords
        }
        attrs = {**marks, "sample_dims": [d for d in SAMPLED if d in data.dims]}
        groups[name] = data.assign_coords({**numbers, **words}).assign_attrs(attrs)
    completed = xr.DataTree.from_dict(groups)
    completed.attrs = dict(tree.attrs)
    return completed


# --- groups that ArviZ's functions read -----------------------------------------------------------


def _row_values(built: Problem) -> RowValues:
    """The likelihood's rows as functions of draws."""
    dtype = built.family.outcome.dtype
    if built.mixture:
        [part] = built.coordinates.parts
        names = (tuple(part.names),)
        return RowValues(names, (part.at_rows,), built.mixture.cells, dtype)
    curves = [curve.row_matrices for curve in built.pilot.curves]
    matrices = [sparse.hstack(list(x.values()), format="csr") for x in curves]
    return RowValues(
        tuple(map(tuple, curves)), tuple(matrices), built.pilot.data, dtype
    )


# --- groups of the tree ---------------------------------------------------------------------------


def arviz_groups(
    built: Problem, stats: Statistics, posterior: xr.Dataset, widened: bool, seed: int
) -> dict[str, xr.Dataset]:
    """Densities, prior and predictive draws, and totals of the likelihood's rows, by group."""
    prior = prior_draws(built, _PARAMETER_DRAWS, np.random.default_rng(seed))
    rows = _row_values(built)
    # `pm.sample_posterior_predictive` compares the data that parameters depend on
    constant = with_labels(built.space, xr.Dataset(dict(built.space.constants)))
    groups = {"prior": prior, "constant_data": constant}
    n = stats.data["n"].to_numpy()
    dim = "bin"
    name = built.observed
    rows_are_bins = np.array_equal(built.pilot.rows.n, n[n > 0])
    if built.mixture or not rows_are_bins:
        dim = "row"
        name = f"{built.observed}_by_row"
        constant["row_score"] = (dim, built.score)
        if built.pilot.labels and len(built.score) == len(built.pilot.rows.n):
            labels = np.array(built.pilot.labels, dtype=object)
            constant["row_group"] = (dim, labels[built.pilot.rows.group])
    number = len(built.score)
    telling_rows = np.arange(number)
    shape = posterior.sizes["chain"], posterior.sizes["draw"]
    if not widened:
        groups["log_prior"], likelihood = _log_densities(built.space, posterior)
        if built.mixture:
            within = rows.within_bounds(flat(posterior)).reshape(shape)
            groups["log_prior"][WITHIN_BOUNDS] = SAMPLED, within
        blocks = min(number, max(1, _MOST_REPLICATED // (shape[0] * shape[1])))
        starts = np.arange(blocks) * number // blocks
        names = (name, dim) if blocks == number else (f"{name}_by_block", "block")
        # rows that say nothing, at which ArviZ's leave-one-out stops for all, join those before
        says = _telling(rows, posterior, starts)
        if blocks == number:
            telling_rows = np.flatnonzero(says)
        of_rows = deferred("log_likelihood", *names, rows, posterior, starts[says])
        groups["log_likelihood"] = of_rows.merge(likelihood)
    # cells hold no law of true noise, and none of items that are absent
    if not built.mixture or not (stats.noise_law or stats.truncated):
        sample = prior.isel(draw=slice(_FEWEST_REPLICATES))
        for group, draws in (("prior", sample), ("posterior", posterior)):
            predictive = f"{group}_predictive"
            cells = n.sum() if built.mixture else built.pilot.data.number_of_cells
            thinned = _thinned(draws, number, int(cells))
            seeds = np.array([seed, thinned.sizes["chain"], *telling_rows])
            groups[predictive] = deferred(
                predictive, name, dim=dim, rows=rows, draws=thinned, argument=seeds
            )
    if dim == "row":
        totals = built.totals.astype(built.family.outcome.dtype)[telling_rows]
        groups["observed_data"] = xr.Dataset({name: (dim, totals)})
    if len(telling_rows) < number:
        groups |= {
            x: _with_coord(y, name, dim, telling_rows) for x, y in groups.items()
        }
    return groups


def _with_coord(data: xr.Dataset, name: str, dim: str, values: Ints) -> xr.Dataset:
    """The group with a coordinate of its variable, if it has that."""
    return data.assign_coords({dim: values}) if name in data else data


def _telling(rows: RowValues, posterior: xr.Dataset, starts: Ints) -> Bools:
    """Mask of blocks of rows that say something."""
    draws = flat(posterior)
    number = len(next(iter(draws.values())))
    chosen = np.arange(FEW_DRAWS) * number // FEW_DRAWS
    some = {name: values[chosen] for name, values in draws.items()}
    return telling(rows.log_likelihood(some, starts))


def _thinned(draws: xr.Dataset, rows: int, cells: int) -> xr.Dataset:
    """Evenly spaced draws, as many as have replicates that do not take long."""
    chains = draws.sizes["chain"]
    size = draws.sizes["draw"]
    most = min(_MOST_REPLICATED // rows, max(_FEWEST_REPLICATES, _MOST_DRAWN // cells))
    per_chain = min(size, max(1, most // chains))
    return draws.isel(draw=np.arange(per_chain) * size // per_chain)


def _log_densities(space: Space, posterior: xr.Dataset) -> list[xr.Dataset]:
    """Log prior of top-level parameters, and log likelihood of what a user observed."""
    arrays = flat(posterior)
    number = len(next(iter(arrays.values())))
    chunks = [slice(start, start + CHUNK) for start in range(0, number, CHUNK)]
    parts = [
        space.densities({k: x[chunk] for k, x in arrays.items()}) for chunk in chunks
    ]
    shape = posterior.sizes["chain"], posterior.sizes["draw"]
    datasets = []
    for by_part in zip(*parts, strict=True):
        variables = {}
        for name in by_part[0]:
            values = np.concatenate([part[name] for part in by_part])
            dims = [f"{name}_dim_{k}" for k in range(values.ndim - 1)]
            variables[name] = (
                (*SAMPLED, *dims),
                values.reshape(*shape, *values.shape[1:]),
            )
        datasets.append(xr.Dataset(variables, {d: posterior[d] for d in SAMPLED}))
    return datasets


# --- methods -------------------------------------------------------------------------------------


class PosteriorMethod(Method):
    """A method that draws from the posterior of a model."""

    seed: int
    # False if levels may be integrated out of the model
    full: ClassVar[bool]

    @abstractmethod
    def draw(self, built: Problem) -> tuple[Groups, Status]:
        """Return draws of the model's posterior with what describes them."""

    def run(
        self,
        stats: Statistics,
        prior: Prior,
        model: "pm.Model | None",
    ) -> tuple[xr.DataTree, Status]:
        """Return draws from the posterior of the prior's model, or of an extended `model`."""
        with phase("fit: pilot and model"):
            built = build(stats, prior, full=self.full or model is not None)
            if model is not None:  # in the coordinates of the same Laplace start
                from .._model.pymc_model import extended

                built = extended(built, model)
        groups, status = self.draw(built)
        if stats.blocks:
            posterior = groups["posterior"]
            wider, words = for_clusters(built, stats, prior, posterior, self.seed)
            groups = {**groups, **wider}
            status = replace(status, reason=status.reason + words)
        return fit_tree(built, stats, groups, prior.monotone, self.seed), status
