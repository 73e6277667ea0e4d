"""From a prior and statistics to the `pymc.Model`.

For row b (a bin, or a group's or an exposure class's part of one) with centre u_b on a curve's axis
the model has f(u_b) and g(u_b): log mean and log cv2 of Gamma priors, mean and log variance of
Normal ones. The row's items enter through their log marginal. A mixture has more
predictors: f and g describe its base distribution, and the others are coefficients of its
components' log weights.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import xarray as xr
from scipy import linalg

from .._lib.arguments import A
from .._lib.arrays import Floats
from .._lib.errors import FitError
from ..data.groups import Grouping
from ..data.statistics import NO_JOINT_CELLS, Statistics
from ..families.family import FAMILIES, Family, family_of_kind
from ..families.priors import CURVES as NAMES
from ..families.priors import Prior
from ..families.row_sums import RowSums
from .coordinates import add_block, add_line, add_scale
from .forward import totals
from .laplace import (
    CurveTarget,
    Laplace,
    best_start,
    find_mode,
)
from .levels import Levels, LevelSearch, integrated_grouping
from .likelihood import MixtureLogMarginal, shared, unbatched
from .mixture_design import (
    MixtureTarget,
    WeightDesign,
    curve_states,
    joint_cells,
    make_cells,
    make_weights,
    merged,
    weight_start,
)
from .rows import MOST_BINS, Rows, cells_of, check_atoms_apart, position_variances, rows_of
from .splines import knots_in, spline_matrix
from .terms import CURVES, SHARED, Curve, Design, State, curve_state, flat_state, make_curve, slopes

_NO_BATCH_OF_LEVELS = "groups cannot be fitted in minibatches: leave VI(batch=) out"
_NO_BATCH_OF_MIXTURES = (
    "VI(batch=) does not apply to a mixture, or with zero=True, where bins are merged: leave it out"
)
_BEYOND = 2.0  # sd of a mixture's curves beyond what its components can represent
_SHIFT, _MOST_SHIFT = 0.7, 1.0  # of a mixture's grid: in sds of the log variance, and the most

_FEWEST_BINS = 100  # to which bins are merged where there are hardly any events
_MOST_EFFECTS = 40  # of bins of a mixture, whose rows merge about as many

# a grid is moved to the mode until this share of the items has curves this near to its own
_NEAR, _MOST_NEAR, _MOVES = 0.5, 0.9, 6

Start = Any
"""An earlier fit: its draws `data`, `prior`, `status` and the axes of its curves."""


@dataclass(frozen=True)
class Output:
    """A variable that is linear in the coefficients."""

    name: str
    dims: tuple[str, ...]
    parts: Mapping[str, Floats]  # matrices (size, k) by block, and by "line"
    shape: tuple[int, ...] = (-1,)
    added_to: str = ""  # name of an earlier output that is added to it

    def values(self, coefficients: Mapping[str, Floats]) -> Floats:
        """Values at coefficients by block, without what is added."""
        total = sum(matrix @ coefficients[block] for block, matrix in self.parts.items())
        return np.asarray(total).reshape(self.shape)


@dataclass(frozen=True)
class Coefficients:
    """Coefficients of one design as variables, with their outputs."""

    label: str  # prefix of the names of dimensions and data
    variable: str  # prefix of the names of its variables
    design: Design
    laplace: Laplace
    dims: Mapping[str, str]  # of the coefficients, by block
    outputs: tuple[Output, ...]
    joined: bool = False  # whether one matrix product gives all rows: stacked predictors

    @property
    def names(self) -> list[str]:
        """Variables of the coefficients, in the order of the design."""
        return [f"{self.variable}{name}" for name in self.design.names]

    @property
    def turns(self) -> dict[str, Floats]:
        """Matrices from the variables to the coefficients, by block and of the line."""
        parts = zip(self.design.blocks, self.laplace.blocks, strict=True)
        return {block.name: known.rotation for block, known in parts} | {
            "line": np.eye(self.design.line.shape[1])
        }

    @property
    def to_outputs(self) -> Floats:
        """Matrix from the variables, blocks and then the line, to all outputs."""
        made: dict[str, Floats] = {}
        for output in self.outputs:
            size = len(next(iter(output.parts.values())))
            parts = [
                output.parts[name] @ turn if name in output.parts else np.zeros((size, len(turn)))
                for name, turn in self.turns.items()
            ]
            made[output.name] = np.hstack(parts)
            if output.added_to:
                base = made[output.added_to]
                made[output.name] += np.tile(base, (size // len(base), 1))
        return np.vstack(list(made.values()))


@dataclass(frozen=True)
class Problem:
    """A model with further inputs of inference and the fit."""

    model: pm.Model
    family: Family
    curves: tuple[Curve, Curve]  # of the score: the prior's, or a mixture's base
    coefficients: tuple[Coefficients, ...]
    rows: Rows  # of the curves
    data: Any  # sums of the likelihood's rows: `RowSums` or `MixtureCells`
    score: Floats  # at the centre of each of the likelihood's rows
    predictors: tuple[str, ...]  # inputs of the likelihood, by row
    labels: tuple[str, ...] = ()  # groups with their own deviations, by code
    groupings: tuple[Grouping, ...] = ()  # of these
    levels: Levels | None = None  # integrated out, so that the model has no observed variable
    weights: WeightDesign | None = None  # of a mixture
    extras: xr.Dataset = field(default_factory=xr.Dataset)  # further inputs of scoring
    no_minibatches: str = ""  # why minibatches are not possible
    own: frozenset[str] = frozenset()  # parameters and potentials that the user did not add

    @property
    def observed(self) -> str:
        """Name of the observed variable."""
        return self.family.outcome.observed


@dataclass(frozen=True)
class _Located:
    """Both curves of the family with their mode: the whole prior, or a mixture's base."""

    curves: tuple[Curve, Curve]
    laplaces: Sequence[Laplace]
    rows: Rows
    data: RowSums
    labels: tuple[str, ...]
    groupings: tuple[Grouping, ...]
    levels: Levels | None

    @property
    def score(self) -> Floats:
        mean = self.curves[0]
        return mean.axis.inverse(mean.position)


Link = Callable[[Sequence[Any]], list[Any]]
"""From values of each design at the rows to what the kernel takes, which it names in the model."""


def model(stats: Statistics, prior: Prior | None = None) -> pm.Model:
    """The PyMC model, to inspect, draw, sample or extend.

    Parameters
    ----------
    stats
        Sufficient statistics of the items; for mixtures with joint cells.
    prior
        The prior's configuration; None is ``soc.Gamma()`` for counts, ``soc.Normal()`` for values,
        ``soc.Beta()`` for successes.

    Returns
    -------
    pymc.Model
        With dims bin, mean_line_term, mean_basis, variance_line_term and variance_basis.
        ``bin_log_mean`` and ``bin_log_cv2`` are the curves at the centres of the occupied bins (of
        each group, of each half-octave of exposures, where the prior has such terms), ``log_mean``
        and ``log_cv2`` at the knots; ``count`` is the sum of counts of a bin, with the log
        probability of all its items. For values the curves are ``mean`` and ``log_variance``, and
        ``value`` is the mean of the bin's values.

        For mixtures the curves at the knots have the same names. ``weight_coefficient`` are the
        coefficients of the components' log weights at their own knots, and ``bin_predictor`` are
        both curves and these coefficients at the likelihood's rows, which stand in for
        ``bin_log_mean`` and ``bin_log_cv2``. A row may merge several bins.

    Raises
    ------
    FitError
        If the prior is not for such items, the scores have no position on the axis (log of scores
        at or below 0), or a term or a mixture needs joint cells that were not kept.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> sorted(soc.model(stats).coords)[:2]
    ['bin', 'mean_basis']
    """
    A(Statistics, "statistics: soc.summarize(items) makes them")(stats, "stats")
    if prior is not None:
        check_prior(prior, stats)
    return build(stats, prior or family_of_kind(stats.kind).prior(), whole=True).model


def check_prior(prior: Any, stats: Statistics) -> None:
    """Refuse a prior that is not for these statistics."""
    singles = ", ".join(f"soc.{name}(...)" for name in FAMILIES)
    A(Prior, f"{singles}, or a mixture of one of them")(prior, "prior")
    family = family_of_kind(stats.kind)
    if prior.family != family.name:
        instead = family.mixture if prior.mixture else family.prior
        raise FitError(
            f"prior=soc.{type(prior).__name__}(...) is not for these statistics, which are of "
            f"{stats.kind} items: use soc.{instead.__name__}(...)"
        )


def build(
    stats: Statistics, prior: Prior, start: Start | None = None, *, whole: bool = False
) -> Problem:
    """The problem for inference; the search for the mode may begin at an earlier fit's curves.

    The coefficients of many levels of groups are integrated out, unless the model is to be `whole`.
    """
    family = family_of_kind(stats.kind)
    located = _located(stats, family, prior, start, whole)
    problem, observed, link = (
        _mixture(stats, family, prior, located) if prior.gridded else _curves(family, located)
    )
    data = problem.data
    with problem.model:
        if located.levels:
            widths = _add_level_scales(located.levels, problem)
            for part, width in zip(problem.coefficients, widths, strict=True):
                _add_coefficients(part, width)
            return replace(problem, own=frozenset(v.name for v in problem.model.free_RVs))
        predictors = link([_add_coefficients(part) for part in problem.coefficients])
        # sums are inputs, because PyMC never releases the functions of a distribution
        given: dict[str, Any] = {"observed": observed, "dims": "bin"}
        if problem.weights is None:
            sums: type[RowSums] = type(data)
            cells = data.cells()
            rule = totals(sums, tuple(x.ndim for x in cells))
            given |= {"random": rule, "signature": rule.signature}
            given["logp"] = partial(_row_logp, sums)
            pm.CustomDist(problem.observed, *predictors, *shared(cells), **given)
        else:
            index = pm.Data("bin_index", np.arange(len(problem.score)), dims="bin")
            given |= {"logp": partial(_mixture_logp, data.signature)}
            given["signature"] = f"(j),(),{data.signature}->()"
            pm.CustomDist(problem.observed, *predictors, index, *shared(data.arrays), **given)
    terms = [*problem.model.free_RVs, *problem.model.potentials]
    return replace(problem, own=frozenset(v.name for v in terms))


def _row_logp(sums: type[RowSums], value: Any, *inputs: Any) -> Any:
    """Log marginal of rows; `inputs` are both predictors and the rows' cells."""
    return sums.log_marginal(pt, *inputs)


def _mixture_logp(signature: str, value: Any, predictors: Any, index: Any, *arrays: Any) -> Any:
    """Log marginal of the rows of a mixture."""
    return MixtureLogMarginal()(predictors, *unbatched(signature, arrays))[0]


# --- the two curves of a family ------------------------------------------------------------------


def _curves(family: Family, located: _Located) -> tuple[Problem, Floats, Link]:
    """Problem without variables, observed sums and link: the predictors are the two curves."""
    names = tuple(f"bin_{variable}" for variable in family.curves)

    def link(curves: Sequence[Any]) -> list[Any]:
        return [pm.Deterministic(*pair, dims="bin") for pair in zip(names, curves, strict=True)]

    coords: dict[str, Any] = {g.name: list(g.levels) for g in located.groupings}
    for curve in located.curves:
        coords |= _coords(curve, located.rows)
    problem = Problem(
        model=pm.Model(coords={"bin": located.score, **coords}),
        family=family,
        curves=located.curves,
        coefficients=tuple(
            map(_curve_coefficients, located.curves, located.laplaces, family.curves)
        ),
        rows=located.rows,
        data=located.data,
        score=located.score,
        predictors=names,
        labels=located.labels,
        groupings=located.groupings,
        levels=located.levels,
        no_minibatches=_NO_BATCH_OF_LEVELS * bool(located.levels),
    )
    return problem, located.data.total, link


def _located(
    stats: Statistics, family: Family, prior: Any, start: Start | None, whole: bool
) -> _Located:
    """The mode of the curves, the start of every model."""
    _check_terms(stats, prior)
    labels, groupings = (stats.groups, stats.groupings) if prior.groups else ((), ())
    terms = bool(labels), prior.exposure is not None, prior.atoms
    most_bins = max(_FEWEST_BINS, int(family.rows.events(_totals(stats))))
    if terms[0] or terms[1] or prior.bin_effects:
        most = _MOST_EFFECTS if prior.bin_effects and prior.gridded else MOST_BINS
        most_bins = min(most_bins, most)
    rows, data = rows_of(stats, family, *terms, most_bins)
    weak = partial(data.weak, _totals(stats))
    integrated = None if whole or prior.gridded else integrated_grouping(groupings)
    given: Any = {"size": prior.exposure, "groupings": groupings, "integrated": integrated}
    mean = make_curve(
        CURVES[0], prior.mean, weak, stats, rows, **given, bin_effects=prior.bin_effects
    )
    variance = make_curve(CURVES[1], prior.variance, weak, stats, rows, **given)
    curves, designs = (mean, variance), (mean.design, variance.design)
    starts = [[flat_state(d, level) for d, level in zip(designs, data.level(), strict=True)]]
    if start is not None:
        starts.append([_state_of(start, curve) for curve in curves])
    begin = best_start(CurveTarget(designs, data), starts)
    levels, search = None, None
    laplaces = find_mode(CurveTarget(designs, data), begin)
    of_shared, of_levels = laplaces[0].state.coefficients, None
    if integrated:
        search = LevelSearch(curves, data, rows.group, [laplace.state for laplace in laplaces])
        search.run(enough=0.1)  # only its slopes count
        of_shared, of_levels = search.shared[0].coefficients, search.of_first
    # the mode's slope gives the spread of theta by the scores in a bin
    spread = slopes(mean, of_shared, of_levels, groupings, rows.group) ** 2
    spread = spread * position_variances(mean.axis, rows)
    data = data.with_spread(np.minimum(spread, data.most_spread))
    begin = [laplace.state for laplace in laplaces]
    if search:
        search.data = data
        laplaces, levels = search.run()
    else:
        laplaces = find_mode(CurveTarget(designs, data), begin)
    return _Located(curves, laplaces, rows, data, labels, groupings, levels)


def _totals(stats: Statistics) -> dict[str, float]:
    """Sums over all items."""
    names = (name for name in stats.data.data_vars if str(name).startswith(("n", "sum_")))
    return {str(name): float(stats.data[name].sum()) for name in names}


def _check_terms(stats: Statistics, prior: Any) -> None:
    if prior.gridded:
        name = type(prior).__name__
        joint_cells(stats, f"{name}()" if prior.mixture else f"{name}(zero=True)")
    if prior.atoms and (prior.gridded or prior.exposure is not None):
        check_atoms_apart(stats)
    if prior.exposure is not None and not stats.coarse:
        raise FitError(
            f"a term in exposure reads joint cells, which these statistics lack: {NO_JOINT_CELLS}"
        )


def _state_of(start: Start, curve: Curve) -> State:
    """An earlier fit's mean curve, whatever its knots and axis, as a state of this one."""
    prior = start.prior
    values = start.data["posterior"][NAMES[prior.family][CURVES.index(curve.name)]]
    try:
        position = start.axis(curve.name)(curve.axis.inverse(curve.basis.knots))
    except FitError as error:
        raise FitError(f"start= does not reach these scores ({error}): leave start= out") from error
    at_knots = spline_matrix(position, knots_in(start.data, f"{curve.name}_knot"))
    return curve_state(curve, at_knots @ values.mean(("chain", "draw")).to_numpy())


def _coords(curve: Curve, rows: Rows) -> dict[str, Any]:
    name = curve.name
    coords: dict[str, Any] = {
        f"{name}_line_term": ["level", "slope"][: curve.basis.line.shape[1]],
        f"{name}_knot": curve.basis.knots,
    }
    for term in curve.terms:
        coords[_basis_dim(name, term.block.name)] = np.arange(term.values.shape[1])
    if curve.size_knots.size > 1:
        coords[f"{name}_exposure_knot"] = curve.size_knots
    if len(curve.atoms):
        coords["atom"] = curve.atoms
    if any(term.target == "bin" for term in curve.terms):
        coords["effect_bin"] = rows.effect_bins
    return coords


def _basis_dim(curve: str, block: str) -> str:
    return f"{curve}_basis" if block == "wiggle" else f"{curve}_{block}_basis"


def _curve_outputs(curve: Curve, variable: str) -> list[Output]:
    """The curve's values at knots, those of its groupings, and its terms in exposure and atoms."""
    name, size = curve.name, len(curve.basis.knots)

    def of(target: str) -> dict[str, Floats]:
        return {t.block.name: t.values for t in curve.terms if t.target == target}

    knot = f"{name}_knot"
    outputs = [Output(variable, (knot,), {"line": curve.basis.line, **of("curve")})]
    others = dict.fromkeys(t.target for t in curve.terms if t.target not in SHARED)
    for grouping in others:
        label, dims = f"{variable}_of_{grouping}", (grouping, knot)
        outputs.append(Output(label, dims, of(grouping), (-1, size), added_to=variable))
    if parts := of("exposure"):
        label = f"{variable}_by_exposure"
        outputs.append(Output(label, (f"{name}_exposure_knot",), parts))
    if parts := of("atom"):
        outputs.append(Output(f"{variable}_of_atom", ("atom",), parts))
    if parts := of("bin"):
        outputs.append(Output(f"{variable}_of_bin", ("effect_bin",), parts))
    return outputs


def _curve_coefficients(curve: Curve, laplace: Laplace, variable: str) -> Coefficients:
    """Coefficients of a curve, with their outputs."""
    basis_dims = {block: _basis_dim(curve.name, block) for block in curve.design.names}
    basis_dims["line"] = f"{curve.name}_line_term"
    outputs = tuple(_curve_outputs(curve, variable))
    prefixes = f"{curve.name}_", f"{variable}_"
    return Coefficients(*prefixes, curve.design, laplace, basis_dims, outputs)


def _of_joint(output: Output, variable: str, before: int, size: int, lines: int) -> Output:
    """A curve's output from the coefficients of the joint design.

    Its blocks have the curve's name there, and its line is a part of the joint one.
    """
    blocks = ((name, matrix) for name, matrix in output.parts.items() if name != "line")
    parts = {f"{variable}_{name}": matrix for name, matrix in blocks}
    if "line" in output.parts:
        parts["line"] = np.pad(output.parts["line"], ((0, 0), (before, lines - before - size)))
    return replace(output, parts=parts)


def _knot_sds(shared: Output, design: Design, laplace: Laplace) -> Floats:
    """Approximate posterior sd of a shared curve, as an output of a design, at its knots."""
    line = shared.parts["line"]
    total = np.square(line @ laplace.line_root).sum(axis=1)
    shift = np.split(laplace.line_shift, design.ends, axis=1)
    for block, known, moved, tau in zip(
        design.blocks, laplace.blocks, shift, laplace.state.taus, strict=False
    ):
        if block.name in shared.parts:
            sd = tau / np.sqrt(1.0 + known.precision * tau**2)
            turned = shared.parts[block.name] @ known.rotation - line @ moved
            total += np.square(turned * sd).sum(axis=1)
    return np.sqrt(total)


def _add_coefficients(part: Coefficients, widths: Any = None) -> Any:
    """Add variables of coefficients and their outputs; returns their values at the rows.

    `widths` are factors on the sds of the line's coordinates.
    """
    label, variable, design = part.label, part.variable, part.design
    variables: dict[str, Any] = {}
    for block, laplace in zip(design.blocks, part.laplace.blocks, strict=True):
        before = list(variables.values())
        names = f"{variable}{block.name}", f"{label}{block.name}"
        variables[block.name] = add_block(*names, block, laplace, before, part.dims[block.name])
    before = pt.concatenate(list(variables.values())) if variables else pt.zeros((0,))
    names = f"{variable}line", f"{label}line"
    line = add_line(*names, design, part.laplace, before, part.dims["line"], widths)
    variables = {"line": line, **variables}
    # a rotation of independent, equal normals does not change the prior
    turns = part.turns

    def made(name: str, parts: Mapping[str, Floats]) -> Any:
        total = None
        for block, values in variables.items():
            if block in parts:
                matrix = pm.Data(f"{label}{block}_{name}", parts[block] @ turns[block])
                product = pt.dot(matrix, values)
                total = product if total is None else total + product
        return total

    outputs: dict[str, Any] = {}
    for output in part.outputs:
        values = made(f"to_{output.name}", output.parts).reshape(output.shape)
        if output.added_to:
            values = outputs[output.added_to][None] + values
        outputs[output.name] = values
        pm.Deterministic(output.name, values, dims=output.dims)
    if part.joined:
        matrix = pm.Data(f"{label}at_rows", design.whole @ linalg.block_diag(*turns.values()))
        return pt.dot(matrix, pt.concatenate([before, line]))
    return made("at_rows", {"line": design.line, **{b.name: b.design for b in design.blocks}})


def _add_level_scales(levels: Levels, problem: Problem) -> list[Any]:
    """Add scales of the deviations of levels that are integrated out.

    The more levels may deviate, the less is known of their average. Returns what this does to the
    sds of the lines' coefficients, curve by curve.
    """
    names = levels.scale_names(problem.family.curves)
    scales = [
        add_scale(name, name, scale.prior, scale.precision, scale.pull)
        for name, scale in zip(names, levels.scales, strict=True)
    ]
    widths, end = [], 0
    parts = zip(problem.coefficients, problem.curves, levels.rows.terms, strict=True)
    for part, curve, term in parts:
        columns, end = slice(end, end + len(term.names)), end + len(term.names)
        start = np.array([scale.tau for scale in levels.scales[columns]])
        lines = np.linalg.lstsq(curve.basis.line, term.values, rcond=None)[0]
        of_average = np.square(start[term.kind] * lines) / levels.rows.number
        by_kind = of_average @ (term.kind[:, None] == np.arange(len(start)))
        shares = by_kind / np.square(part.laplace.line_root).sum(axis=1, keepdims=True)
        shares /= np.maximum(shares.sum(axis=1, keepdims=True), 1.0)
        change = pt.sqr(pt.stack(scales[columns]) / start) - 1.0
        widths.append(pt.sqrt(1.0 + pt.dot(shares, change)))
    return widths


# --- mixtures ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Grid:
    """Curves that place a mixture's components."""

    states: Sequence[State]
    wider: Floats  # what the second curve has more, at its knots


@dataclass(frozen=True)
class _OnGrid:
    """A mixture on one grid, with its mode."""

    target: MixtureTarget
    laplace: Laplace

    @property
    def design(self) -> WeightDesign:
        return self.target.weights

    def outputs(self, curves: tuple[Curve, Curve], names: tuple[str, str], k: int) -> list[Output]:
        """Outputs of curve k."""
        lines, size = self.design.design.line.shape[1], self.design.lines
        before = sum(size[:k])
        return [
            _of_joint(output, names[k], before, size[k], lines)
            for output in _curve_outputs(curves[k], names[k])
        ]

    def moved(self, curves: tuple[Curve, Curve], names: tuple[str, str]) -> _Grid:
        """A grid at this mode."""
        sds = _knot_sds(self.outputs(curves, names, 1)[0], self.design.design, self.laplace)
        return _grid(curve_states(self.design, curves, self.laplace.state), sds)


def _grid(states: Sequence[State], sds: Floats) -> _Grid:
    """A grid at curves, of which the second has these posterior sds at its knots.

    Small variances are known the least, and the grid is as wide as the larger ones need.
    """
    return _Grid(states, np.minimum(_SHIFT * sds, _MOST_SHIFT))


def _on_grid(
    stats: Statistics, family: Family, prior: Any, located: _Located, grid: _Grid
) -> _OnGrid:
    components, curves, rows = family.components, located.curves, located.rows
    at_rows = [state.at(curve.design) for curve, state in zip(curves, grid.states, strict=True)]
    raised = spline_matrix(curves[1].position, curves[1].basis.knots) @ grid.wider
    merged_rows = merged(components, stats, rows, curves, at_rows, raised, located.data.spread)
    design = make_weights(components, prior, merged_rows, curves, family.curves, rows.n)
    terms = bool(located.labels), prior.exposure is not None
    joint = cells_of(stats, family, rows, *terms)
    kinds = {"heavy": prior.mixture, "zero": prior.zero}
    cells = make_cells(components, joint, merged_rows, design.functions, **kinds)
    target = MixtureTarget(design, cells)
    begin = weight_start(design, curves, grid.states)
    (laplace,) = find_mode(target, [begin], ahead=True)
    return _OnGrid(target, laplace)


def _settled(mixture: _OnGrid) -> bool:
    """Whether a mode is near the curves that placed its grid."""
    rows = mixture.design.rows
    moved = mixture.design.predictors(mixture.laplace.state.coefficients)[:, :2] - rows.start
    away = np.abs(moved[:, 0]) / rows.base.spread, np.abs(moved[:, 1])
    return bool(np.average(np.maximum(*away) < _NEAR, weights=rows.items) > _MOST_NEAR)


def _placed(
    stats: Statistics, family: Family, prior: Any, located: _Located
) -> tuple[_Grid, _OnGrid]:
    """The grid and the mixture on it."""
    curves = located.curves
    sds = _knot_sds(_curve_outputs(curves[1], "")[0], curves[1].design, located.laplaces[1])
    grid = _grid([laplace.state for laplace in located.laplaces], sds)
    mixture = _on_grid(stats, family, prior, located, grid)
    # zeros pull the curves' first mode towards 0 and widen it
    for _ in range(_MOVES if prior.zero else 0):
        if _settled(mixture):
            break
        grid = mixture.moved(curves, family.curves)
        mixture = _on_grid(stats, family, prior, located, grid)
    return grid, mixture


def _mixture(
    stats: Statistics, family: Family, prior: Any, located: _Located
) -> tuple[Problem, Floats, Link]:
    """The same of a mixture: predictors are both curves and coefficients of the log weights."""
    curves, rows = located.curves, located.rows
    located.data.refuse_mean_only(f"soc.{type(prior).__name__}()")
    grid, mixture = _placed(stats, family, prior, located)
    design, cells = mixture.design, mixture.target.cells
    merged_rows, laplace = design.rows, mixture.laplace
    linear, dims = design.design, ("weight_knot", "weight_function")
    outputs: list[Output] = []
    pilot: dict[str, tuple[tuple[str, ...], Floats]] = {}
    for k, (curve, state) in enumerate(zip(curves, grid.states, strict=True)):
        parts = np.split(state.coefficients, curve.design.ends)
        by_block = dict(zip(curve.design.names, parts, strict=True))
        for output in _curve_outputs(curve, family.curves[k]):
            values = output.values(by_block)
            if output.added_to:
                values = values + pilot[f"pilot_{output.added_to}"][1]
            pilot[f"pilot_{output.name}"] = (output.dims, values)
        outputs += mixture.outputs(curves, family.curves, k)
    outputs.append(
        Output("weight_coefficient", dims, {"line": design.at_knots}, (-1, len(design.labels)))
    )
    coords: dict[str, Any] = {g.name: list(g.levels) for g in located.groupings}
    basis_dims = {"line": "line_term"}
    totals = np.bincount(merged_rows.of, stats.data["sum_y"].to_numpy()[located.rows.bin])

    def link(values: Sequence[Any]) -> list[Any]:
        predictors = values[0].reshape((len(merged_rows.items), -1))
        pm.Potential("within_bounds", _within_bounds(predictors, cells.forms.handle))
        return [pm.Deterministic("bin_predictor", predictors)]

    for curve in curves:
        coords |= _coords(curve, rows)
    coords |= {
        "weight_function": list(design.labels),
        "weight_knot": design.knots,
        "line_term": np.arange(linear.line.shape[1]),
    }
    for curve, variable in zip(curves, family.curves, strict=True):
        for name in curve.design.names[:-1]:
            basis_dims[f"{variable}_{name}"] = _basis_dim(curve.name, name)
    extras = xr.Dataset(
        {
            **pilot,
            "grid_raise": ("variance_knot", grid.wider),
            "component_z": ("component", family.components.z),
            "component_function": (("component", "weight_function"), design.functions),
        },
        {name: coords[name] for name in {d for dims, _ in pilot.values() for d in dims}}
        | {"weight_function": list(design.labels)},
    )
    coefficients = Coefficients("", "", linear, laplace, basis_dims, tuple(outputs), True)
    problem = Problem(
        model=pm.Model(coords={"bin": merged_rows.score, **coords}),
        family=family,
        curves=curves,
        coefficients=(coefficients,),
        rows=rows,
        data=cells,
        score=merged_rows.score,
        predictors=("bin_predictor",),
        labels=located.labels,
        groupings=located.groupings,
        weights=design,
        extras=extras,
        no_minibatches=_NO_BATCH_OF_MIXTURES,
    )
    return problem, totals, link


def _within_bounds(predictors: Any, handle: Floats) -> Any:
    """Log density that keeps curves at rows near what the components can represent.

    Beyond, the likelihood is constant, and so large a region has weight however unlikely it is.
    """
    first, unit, taken, _, far, low, high = handle.T
    scaled = (predictors[:, 0] - first) / unit, predictors[:, 1] - taken
    least, most = np.array([-far, low]), np.array([far, high])
    least[np.isnan(least)], most[np.isnan(most)] = -np.inf, np.inf  # where there is no bound
    # not clip, which the interpreter does number by number
    away = [
        x - pt.minimum(pt.maximum(x, low), high)
        for x, low, high in zip(scaled, least, most, strict=True)
    ]
    return -0.5 * sum(pt.sqr(x / _BEYOND).sum() for x in away)


# --- models with terms added by the user ---------------------------------------------------------


def extended(built: Problem, model: pm.Model) -> Problem:
    """The problem with a model to which the user has added terms.

    Refuses a model that does not extend the built one, or has discrete parameters.
    """
    lacking = sorted(v.name for v in built.model.basic_RVs if v.name not in model.named_vars)
    if lacking:
        raise FitError(
            f"model= lacks {', '.join(lacking)}: extend soc.model(stats, prior) of the same prior"
        )
    same = all(
        np.array_equal(np.asarray(model.coords.get(name, ())), np.asarray(values))
        for name, values in built.model.coords.items()
    )
    observed = (  # compiled code would leave its source in the temporary folder
        m.rvs_to_values[m[built.observed]].eval(mode="FAST_COMPILE") for m in (built.model, model)
    )
    if not (same and np.array_equal(*observed)):
        raise FitError("model= is of other statistics or knots than stats and prior: build it anew")
    if model.discrete_value_vars:
        names = ", ".join(v.name for v in model.discrete_value_vars)
        raise FitError(f"model= has discrete unknowns ({names}): sum them out")
    return replace(built, model=model)


@contextmanager
def started(built: Problem, start: Start | None) -> Iterator[None]:
    """Temporarily start parameters that the user added at an earlier fit's means.

    The other coordinates are already centred at their mode. A fit that did not converge is no
    better start than PyMC's initial point.
    """
    initial = built.model.rvs_to_initial_values
    before = dict(initial)
    if start is not None and start.status.converged:
        means = start.data["posterior"].to_dataset().mean(("chain", "draw"))
        dims, coords = built.model.named_vars_to_dims, built.model.coords
        for variable in built.model.free_RVs:
            name, shape = variable.name, variable.type.shape
            if name in dims:
                shape = tuple(len(coords.get(d) or ()) for d in dims[name])
            if name in means and name not in built.own and means[name].shape == shape:
                initial[variable] = means[name].to_numpy()
    try:
        yield
    finally:
        initial.clear()
        initial.update(before)
