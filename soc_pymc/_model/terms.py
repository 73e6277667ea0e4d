"""Predictors of rows as linear models: coefficients with their priors and outputs.

A curve is a straight line with a weak proper prior plus penalised terms: the wiggle, groups'
deviations, a smooth term in log exposure. Each term has coefficients N(0, tau^2), tau half-normal.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from .._lib.arguments import FitError, refuse_beyond_memory
from .._lib.arrays import Floats, Ints, Pair
from ..data.items import Grouping
from ..data.statistics import Statistics
from ..families.family import Family
from ..families.priors import Prior, Spline
from ..families.rows import Weak
from ..families.scales import LOG, LOGIT, RANK, SCALES
from .rows import Rows, positions
from .splines import Axis, Basis, make_basis, spline_matrix

CURVES = ("mean", "variance")
# labels by dim
type Labels = Mapping[str, Sequence[str | int] | NDArray[Any]]
# a slope is per unit on these scales, per sd on others
_UNITS = (LOG.name, LOGIT.name)
# draws of both curves of levels that are integrated out, at the peak
_LEVEL_DRAWS = 1000
_COPIES = 8
# number of the smoothest shared functions in which groups deviate
_GROUP_WIGGLES = 5
_ATOM_SCALE = 1.0  # prior scale of atoms' shifts
_BIN_SCALE = 0.2  # prior scale of bins' effects
_GROUP_SCALES = {"level": 0.5, "slope": 0.25, "wiggle": 0.25}


@dataclass(frozen=True, eq=False)
class Block:
    """Penalised coefficients N(0, tau^2) of one term."""

    name: str
    design: Floats  # values of its functions at the rows, (rows, k)
    scale: float  # of the half-normal prior of tau
    # key of the points (`Curve.points`) where its functions have further values
    target: str
    values: Floats  # (size of the target, k)
    dim: str  # of the coefficients


@dataclass(frozen=True, eq=False)
class Design:
    """A linear model at the rows and its prior: penalised blocks, most local first, then a line."""

    name: str  # of the line's coefficients
    dim: str  # of these
    line: Floats  # values of the line's functions at the rows
    line_mean: Floats  # Normal prior of the line's coefficients
    line_sd: Floats
    blocks: tuple[Block, ...]

    @cached_property
    def matrix(self) -> Floats:
        """All functions at the rows: those of the blocks in order, then the line's."""
        return np.column_stack([*(block.design for block in self.blocks), self.line])

    @property
    def ends(self) -> NDArray[np.intp]:
        """Column of `matrix` at which each block ends."""
        return np.cumsum(
            [block.design.shape[1] for block in self.blocks], dtype=np.intp
        )

    @property
    def line_columns(self) -> slice:
        """Columns of `matrix` that are the line's."""
        return slice(self.matrix.shape[1] - self.line.shape[1], None)


@dataclass(frozen=True, eq=False)
class State:
    """Coefficients in the order of `Design.matrix`, and the blocks' smoothing scales."""

    coefficients: Floats
    taus: tuple[float, ...]

    def prior(self, design: Design) -> Pair:
        """Prior means and precisions of the coefficients given the smoothing scales."""
        sizes = [block.design.shape[1] for block in design.blocks]
        mean = np.concatenate([np.zeros(sum(sizes)), design.line_mean])
        precision = [
            np.full(k, tau**-2) for k, tau in zip(sizes, self.taus, strict=True)
        ]
        return mean, np.concatenate([*precision, design.line_sd**-2])

    @staticmethod
    def starting(design: Design, line: Floats) -> "State":
        """The line with these coefficients, with arbitrary taus, which the first step replaces."""
        coefficients = np.zeros(design.matrix.shape[1])
        coefficients[design.line_columns][: len(line)] = line
        return State(coefficients, tuple(0.5 * block.scale for block in design.blocks))


class Points(NamedTuple):
    """Where terms have values beside the rows."""

    ending: str  # of the output's name
    coords: Labels  # levels of groups have a second dim, the knots
    # matrix (rows, points) from values here to those at the rows
    to_rows: Floats | sparse.csr_array


@dataclass(frozen=True, eq=False)
class LevelTerms:
    """Deviations of a grouping's levels from a curve that are integrated out of the likelihood."""

    grouping: Grouping
    names: tuple[str, ...]  # of the kinds
    # of the half-normal priors of the kinds' scales
    scales: tuple[float, ...]
    kind: Ints  # (K,): of each function
    values: Floats  # at the knots, (knots, K)
    design: Floats  # at the rows, (rows, K)


@dataclass(frozen=True, eq=False)
class Curve:
    """One curve over the score."""

    name: str  # one of `CURVES`
    variable: str  # name of its values at the knots
    axis: Axis
    basis: Basis
    design: Design  # at the rows
    position: Floats  # of the rows on the axis
    # by target: "curve" (the shared curve at its knots), the name of a grouping (its levels' curves
    # at the knots), "exposure" (at the knots of log exposure), "exposure_atom", "atom" or "bin"
    points: Mapping[str, Points]
    # of the grouping that is integrated out
    levels: LevelTerms | None = None

    @cached_property
    def outputs(self) -> list["Output"]:
        """The curve at its knots, those of levels, and what other terms add."""
        columns = self.design.matrix.shape[1]
        shared = np.zeros((len(self.basis.knots), columns))
        shared[:, self.design.line_columns] = self.basis.line
        matrices = {"curve": shared}
        for block, end in zip(self.design.blocks, self.design.ends, strict=True):
            matrix = matrices.setdefault(
                block.target, np.zeros((len(block.values), columns))
            )
            matrix[:, end - block.values.shape[1] : end] = block.values
        outputs = []
        for target, matrix in matrices.items():
            ending, coords, _ = self.points[target]
            if len(coords) > 1:
                matrix = matrix + np.tile(shared, (len(matrix) // len(shared), 1))
            outputs.append(Output(self.variable + ending, coords, matrix))
        return outputs

    @property
    def row_matrices(self) -> dict[str, sparse.csr_array]:
        """Sparse matrices by output, whose products with the outputs add up to the rows' curve."""
        # curves of levels include the shared one
        weights = {
            "curve": 1.0
            - sum(len(points.coords) > 1 for points in self.points.values())
        }
        return {
            self.variable + points.ending: sparse.csr_array(
                weights.get(target, 1.0) * points.to_rows
            )
            for target, points in self.points.items()
        }


@dataclass(frozen=True, eq=False)
class Output:
    """A quantity that is linear in the coefficients of a design."""

    name: str
    coords: Labels
    matrix: Floats  # (size, coefficients)

    @property
    def dims(self) -> tuple[str, ...]:
        """Names of the dims."""
        return tuple(self.coords)

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the dims."""
        return tuple(map(len, self.coords.values()))

    def values(self, coefficients: Floats) -> Floats:
        """Values at coefficients (..., k)."""
        return (coefficients @ self.matrix.T).reshape(
            *coefficients.shape[:-1], *self.shape
        )


def axis_of(spline: Spline, stats: Statistics, items: Floats) -> Axis:
    """The curve's axis for items of bins; refuses scores without a position on it."""
    data = stats.data
    if spline.scale != RANK:
        scale = SCALES[spline.scale]
        if scale.sums[0] not in data:
            raise FitError(
                f"scale={scale.name!r} is not for {stats.kind} items: choose another"
            )
        low, high = (data[name].to_numpy() for name in ("score_min", "score_max"))
        outside = items @ ((high <= scale.low) | (low >= scale.high))
        possible = items @ ((low <= scale.low) | (high >= scale.high))
        if possible:
            up_to = "up to " * bool(outside < possible)
            raise FitError(
                f"scores of {up_to}{possible:,.0f} of {stats.n_items:,} items are {scale.outside} "
                f"(they run from {np.nanmin(low):g} to {np.nanmax(high):g}): use "
                'soc.Spline(scale="rank") or scale="linear" for both curves, or drop or clip these '
                "scores"
            )
        return Axis(spline.scale)
    low = np.nanmin(data["score_min"])
    high = np.nanmax(data["score_max"])
    score = np.array([low, *stats.edges, high])
    fraction = np.concatenate([[0.0], np.cumsum(items) / max(items.sum(), 1)])
    rising = np.concatenate([[True], (np.diff(score) > 0) & (np.diff(fraction) > 0)])
    return Axis(RANK, tuple(score[rising].tolist()), tuple(fraction[rising].tolist()))


class CurveInputs(NamedTuple):
    """What both curves are made of."""

    family: Family
    prior: Prior
    stats: Statistics
    rows: Rows
    groupings: Sequence[Grouping]
    # the one whose levels are integrated out
    integrated: Grouping | None
    # default priors of both curves on a scale of scores at a centre
    weak: Callable[[str, float], tuple[Weak, Weak]]


def make_curve(name: str, inputs: CurveInputs) -> Curve:
    """The curve of this name."""
    prior = inputs.prior
    rows = inputs.rows
    place = CURVES.index(name)
    variable = inputs.family.curve_names[place]
    spline = (prior.mean, prior.variance)[place]
    axis = axis_of(spline, inputs.stats, rows.items)
    position, _ = positions(axis, rows)
    basis = make_basis(position, rows.outside_atoms, spline.knots)
    # far outside, the line would be a guess
    inside = position[rows.outside_atoms > 0]
    nearest = np.clip(position, inside.min(), inside.max())
    position = np.where(rows.atom > 0, nearest, position)
    weak_priors = inputs.weak(axis.scale, basis.centre)
    default = weak_priors[place]
    sd = basis.sd(position, rows.outside_atoms)
    unit_of_slope = 1.0 if axis.scale in _UNITS or sd == 0 else sd
    shared = spline_matrix(position, basis.knots)
    knots = Points("", {f"{name}_knot": basis.knots}, shared)
    terms = _Terms(name, variable, rows, default.unit, {"curve": knots})
    if prior.bin_effects and name == "mean":
        terms.add_bins()
    terms.add_atoms("atom", rows.atom, rows.atoms)
    kinds = {
        "wiggle": basis.wiggle[:, :_GROUP_WIGGLES],
        "slope": basis.line[:, 1:] / unit_of_slope,
    }
    kinds = {kind: functions for kind, functions in kinds.items() if functions.shape[1]}
    kinds["level"] = basis.line[:, :1]
    levels = None
    for grouping in inputs.groupings:
        integrated = grouping is inputs.integrated
        levels = terms.add_levels(grouping, kinds, integrated) or levels
    if prior.exposure is not None:
        terms.add_exposure(prior.exposure, weak_priors[0].wiggle)
    if basis.wiggle.shape[1]:
        wiggle = default.wiggle if spline.wiggle is None else spline.wiggle
        terms.add("wiggle", "curve", wiggle, basis.wiggle)
    if spline.slope is None and name == "variance" and sd > 0:
        unit_of_slope = sd
    line = shared @ basis.line
    line_prior = _line_prior(spline, default, unit_of_slope, line.shape[1])
    blocks = tuple(terms.blocks)
    design = Design(f"{variable}_line", f"{name}_line_term", line, *line_prior, blocks)
    return Curve(
        name=name,
        variable=variable,
        axis=axis,
        basis=basis,
        design=design,
        position=position,
        points=terms.points,
        levels=levels,
    )


def _line_prior(spline: Spline, default: Weak, unit: float, size: int) -> Pair:
    """Means and sds of the line's coefficients: its level, and its slope per `unit`."""
    slope = np.divide(spline.slope or default.slope, unit)
    mean, sd = np.array([spline.level or default.level, slope])[:size].T.copy()
    return mean, sd


@dataclass(eq=False)
class _Terms:
    """Terms of one curve: blocks, and the points of their targets."""

    curve: str
    variable: str
    rows: Rows
    unit: float
    points: dict[str, Points]
    blocks: list[Block] = field(default_factory=list)

    def add(self, term: str, target: str, scale: float, values: Floats) -> None:
        """Add a term from its functions' values at the points of its target."""
        dim = (
            f"{self.curve}_basis" if term == "wiggle" else f"{self.curve}_{term}_basis"
        )
        design = self.points[target].to_rows @ values
        name = f"{self.variable}_{term}"
        scale = scale * self.unit
        self.blocks.append(
            Block(
                name=name,
                design=design,
                scale=scale,
                target=target,
                values=values,
                dim=dim,
            )
        )

    def add_bins(self) -> None:
        """Add an effect of each place along the scores."""
        rows = self.rows
        place_of = self.rows.keys.place_of
        bins = np.flatnonzero(np.isin(place_of, rows.place))
        members = _members(1 + np.searchsorted(bins, rows.bin), len(bins))
        self.points["bin"] = Points("_of_bin", {"effect_bin": bins}, members)
        places, place = np.unique(place_of[bins], return_inverse=True)
        self.add("bin_effect", "bin", _BIN_SCALE, np.eye(len(places))[place])

    def add_atoms(self, target: str, code: Ints, atoms: Floats) -> None:
        """Add a shift of each atom, to which rows belong from 1 on."""
        if len(atoms):
            members = _members(code, len(atoms))
            self.points[target] = Points(f"_of_{target}", {target: atoms}, members)
            self.add(target, target, _ATOM_SCALE, np.eye(len(atoms)))

    def add_levels(
        self, grouping: Grouping, kinds: Mapping[str, Floats], integrated: bool
    ) -> LevelTerms | None:
        """Add deviations of levels, each kind with its own scale; return them if `integrated`."""
        code = grouping.code[self.rows.group]
        number = len(grouping.levels)
        functions = np.hstack(list(kinds.values()))
        columns = number * functions.shape[1]
        matrices = columns * (4 * len(code) + columns)  # of both curves
        size = (
            _LEVEL_DRAWS * _COPIES * number * len(functions) if integrated else matrices
        )
        refuse_beyond_memory(
            8.0 * size,
            f"curves for each of the {number:,} levels of {grouping.column!r}",
            "groups need many items each: give group= a column with fewer levels, or leave it out",
        )
        _, knots, shared = self.points["curve"]
        coords = {grouping.name: list(grouping.levels), **knots}
        to_rows = by_level(shared, code, number)
        self.points[grouping.name] = Points(f"_of_{grouping.name}", coords, to_rows)
        if not integrated:
            for kind, values in kinds.items():
                at_levels = np.asarray(np.kron(np.eye(number), values), dtype=float)
                term = f"{grouping.name}_{kind}"
                self.add(term, grouping.name, _GROUP_SCALES[kind], at_levels)
            return None
        names = tuple(f"{self.variable}_{grouping.name}_{kind}" for kind in kinds)
        scales = tuple(_GROUP_SCALES[kind] * self.unit for kind in kinds)
        kind_of = np.repeat(np.arange(len(kinds)), [x.shape[1] for x in kinds.values()])
        return LevelTerms(
            grouping=grouping,
            names=names,
            scales=scales,
            kind=kind_of,
            values=functions,
            design=shared @ functions,
        )

    def add_exposure(self, spline: Spline, wiggle: float) -> None:
        """Add a smooth term in log exposure of mean 0, whose line is penalised too."""
        rows = self.rows
        x = self.rows.log_size
        beside = np.where(rows.size_atom > 0, 0.0, rows.informative)
        basis = make_basis(x, beside, spline.knots)
        if len(basis.knots) > 1:
            self.add_atoms("exposure_atom", rows.size_atom, rows.size_atoms)
            x = np.clip(x, basis.knots[0], basis.knots[-1])  # of atoms
            coords = {f"{self.curve}_exposure_knot": basis.knots}
            to_rows = spline_matrix(x, basis.knots)
            self.points["exposure"] = Points("_by_exposure", coords, to_rows)
            scale = wiggle if spline.wiggle is None else spline.wiggle
            self.add("exposure", "exposure", scale, basis.centred(x, rows.informative))


def _members(code: Ints, number: int) -> sparse.csr_array:
    """Sparse indicators (rows, number) of codes from 1 on; 0 is none."""
    return by_level(np.ones((len(code), 1)), code, 1 + number)[:, 1:]


def by_level(functions: Floats, level: Ints, number: int) -> sparse.csr_array:
    """Sparse design (rows, number k) of functions (rows, k) with coefficients for each level."""
    columns = level[:, None] * functions.shape[1] + np.arange(functions.shape[1])
    ends = np.arange(0, functions.size + 1, functions.shape[1])
    shape = len(functions), number * functions.shape[1]
    return sparse.csr_array((functions.ravel(), columns.ravel(), ends), shape=shape)


def curve_slopes(
    curve: Curve,
    coefficients: Floats,
    of_levels: Floats | None,
    groupings: Sequence[Grouping],
    group: Ints,
) -> Floats:
    """Slopes of a curve at rows of groups; `of_levels` (G, K) begin with this curve's."""
    step = 1e-4 * max(float(np.ptp(curve.basis.knots)), 1e-300)
    ahead, behind = (
        spline_matrix(curve.position + d, curve.basis.knots) for d in (step, -step)
    )
    functions = (ahead - behind) / (2.0 * step)
    curves = {output.dims[0]: output.values(coefficients) for output in curve.outputs}
    shared = curves[f"{curve.name}_knot"]
    deviations = {
        dim: values - shared for dim, values in curves.items() if values.ndim == 2
    }
    if curve.levels and of_levels is not None:
        values = curve.levels.values.T
        deviations[curve.levels.grouping.name] = of_levels[:, : len(values)] @ values
    at_rows = (
        deviations[grouping.name][grouping.code[group]] for grouping in groupings
    )
    terms = ((functions * values).sum(axis=1) for values in at_rows)
    return sum(terms, functions @ shared)
