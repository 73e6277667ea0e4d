"""Mixtures: log marginals of their cells, and their inputs from statistics.

`MixtureCells` have the log marginal of rows, with its slopes and information in the predictors. Log
weights are log w_r(t) = base_r(t) + sum_j phi_j(z_r, t) eta_j(t), with smooth functions phi of the
component's position z and eta of the score t. The first two eta follow from the curves of mean and
variance, which have the terms and priors of the single family.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse, special

from .._lib.arrays import Columns, Floats, Ints, Pair, Triple
from ..data.statistics import Statistics
from ..families.family import Family
from ..families.mixtures import (
    ZERO,
    Components,
    Frame,
    WeightForms,
    solved,
    stretching,
    weights_of_draws,
)
from ..families.noise import moderated_cells, noise_nodes
from ..families.priors import MixturePrior, Prior
from ..families.rows import pooled
from .laplace import Curvature, Laplace, Target, find_mode, floored
from .pilot import Pilot
from .rows import cells_by_row
from .splines import make_basis, spline_matrix
from .terms import Curve, Design, Labels, Output, State

_FORMS = 6  # of `MixtureCells.arrays`, those of the forms
# of differences of slopes, which are rounded to single precision
_SLOPE_STEP = 1e-2
# nats: a cell of several values becomes two points if the difference is larger
_SPLIT = 1e-3
# sd of the curves beyond what the components can represent
BEYOND = 2.0
WITHIN_BOUNDS = "within_bounds"  # name of the log density of these
# for a draw far from the data, single precision may underflow
_LEAST_DENSITY = np.float32(1e-37)

# bins are merged while the base distribution hardly changes, but not to fewer than this
_MOST_SHIFT = 0.2
_MOST_STRETCH = 0.15
_FEWEST_MIXTURE_BINS = 40
_HARDLY = 2.0**-40  # of an item without information
# share of the items below which a row may be so much wider
_FEW_ITEMS = 1e-3
_LOOSER = 4.0
# functions of z are cubic splines for |z| below this, and linear beyond
_CENTRE = 4.0
_CENTRE_SD = 2.0  # their knots follow a Normal of this sd
# prior of the path from the Normal (0) to the Gamma (1)
_PATH = 1.0
_PATH_SD = 0.5
_FIXED_SD = 1e-3  # of a single family's path, which stays at its end
_ZERO_KNOTS = 4  # over the score, of a single family's share of zeros
# prior of the logit of the share of theta that is 0: its level, and sds of its drift
_ZERO = -3.0
_ZERO_SD = 2.0
_ZERO_DRIFT = (1.0, 0.5, 0.5)
# shares and sds of two Normals, whose log ratio to one Normal is a function of values' log weights,
# and mean and sd of the prior of its coefficient
_NARROW_AND_WIDE = ((0.6, 0.35), (0.4, 1.5))
_NARROW_GRID = (0.6, 0.7)
# number of wiggly functions, the smoothest, for drift beside the straight line
_DRIFT_FUNCTIONS = 2
_LONGEST_STEP = 3.0  # largest step of the log weights' coefficients
# widening of a grid in sds of the log variance, and the most
_WIDENING = 0.7
_MOST_WIDENING = 1.0
# a grid is moved to the mode until this share of the items has curves this near to its own
_NEAR_SHARE = 0.5
_MOST_NEAR = 0.9
# of a pilot on items of which those of 0 are absent
_WIDEST_START = float(np.log(3.0))
_MOVES = 6


def cell_points(
    family: Family, cells: Columns, variance: Floats
) -> tuple[Ints, Pair, Floats]:
    """Cells, outcomes with sizes, and items of points: one for a cell, or two with its moments."""
    power = family.outcome.size_power
    least = family.outcome.validity.outcome.least
    n = cells["n"].astype(float)
    letter = "N" if power == 1 else "w"
    y = cells["sum_y"] / n
    size = cells[f"sum_{letter}"] / n
    vy, vn = (
        np.maximum(cells[f"sum_{x}2"] / n - mean**2, 0.0)
        for x, mean in (("y", y), (letter, size))
    )
    cov = cells["sum_yN"] / n - y * size if "sum_yN" in cells else np.zeros_like(n)
    by_y, by_size, curvature = family.curvature(y, size, variance)
    along_y = vy * by_y + cov * by_size
    along_size = cov * by_y + vn * by_size
    spread = along_y * by_y + along_size * by_size
    split = 0.5 * n * spread * curvature > _SPLIT
    room = y[split] - (-np.inf if least is None else least)
    root = np.sqrt(spread[split])
    dy = np.clip(along_y[split] / root, -room, room)
    dn = np.clip(along_size[split] / root, -size[split], size[split])
    outcomes = np.concatenate([y[~split], y[split] + dy, y[split] - dy])
    sizes = np.concatenate([size[~split], size[split] + dn, size[split] - dn]) ** (
        1.0 / power
    )
    place = np.flatnonzero(split)
    cell = np.concatenate([np.flatnonzero(~split), place, place])
    items = np.concatenate([n[~split], n[split] / 2, n[split] / 2])
    return cell, (outcomes, sizes), items


def with_listings(
    row_of_cell: Ints, cell: Ints, outcomes: Pair, items: Floats
) -> tuple[Ints, Pair, Floats]:
    """Cells of points by row and size, with one more after those of each, of minus their items.

    Its density is the probability to be in the table, by which the others are divided.
    """
    y, size = outcomes
    row = row_of_cell[cell]
    order = np.lexsort((y, size, row))
    keys = np.stack([row, size])[:, order]
    last = np.append((keys[:, 1:] != keys[:, :-1]).any(axis=0), True)
    ends = 1 + np.flatnonzero(last)
    total = np.diff(np.cumsum(items[order])[ends - 1], prepend=0.0)
    listed = order[last]
    return (
        np.insert(cell[order], ends, cell[listed]),
        (np.insert(y[order], ends, 0.0), np.insert(size[order], ends, size[listed])),
        np.insert(items[order], ends, -total),
    )


class _MixedRows(NamedTuple):
    """Cells of some rows, and the densities of their items under the weights of draws."""

    cells: slice
    begin: Ints  # (rows,): offset of each row's cells
    rows: list[slice]
    density: NDArray[np.float32]  # (cells, draws)
    value: Floats  # (rows, draws): sums of logarithms over the items


def _by_row(predictors: Floats) -> Floats:
    """Predictors (rows, P, draws) from those in (..., rows, P)."""
    return np.moveaxis(predictors.reshape(-1, *predictors.shape[-2:]), 0, 2)


@dataclass(frozen=True, eq=False)
class MixtureCells:
    """Data of the likelihood of a mixture, row by row."""

    forms: WeightForms  # at the rows
    start: Ints  # (rows + 1,): offsets of each row's cells
    # (cells,): numbers of items; negative for the probability to be in the table
    items: Floats
    # (cells, R): under the components, over the cell's largest
    density: NDArray[np.float32]
    constant: Floats  # (rows,): sum of the logarithms of these divisors
    # (cells,): density where theta is 0, over the same divisors. The last predictor is then the
    # logit of this share. Empty where theta is never 0
    atom: NDArray[np.float32] = field(
        default_factory=lambda: np.empty(0, dtype=np.float32)
    )
    # (4, joint cells): rows, numbers and sizes of items, and sums of their outcomes
    joint: Floats = field(default_factory=lambda: np.empty((4, 0)))

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        """All arrays, of which `made_of` makes the cells again."""
        cells = self.start, self.items, self.density, self.constant, self.atom
        return (*self.forms.arrays, *cells, self.joint)

    @staticmethod
    def made_of(family: Components, *arrays: NDArray[Any]) -> "MixtureCells":
        """Cells of the family with these `arrays`."""
        return MixtureCells(
            WeightForms.made_of(family, *arrays[:_FORMS]), *arrays[_FORMS:]
        )

    @property
    def totals(self) -> Floats:
        """Sum of the outcomes of each row."""
        row, _, _, outcomes = self.joint
        return np.bincount(row.astype(int), outcomes, len(self.constant))

    def _components(self, family: Family) -> Pair:
        """Parameters (rows, R) of the components, the last of theta = 0 if it may be 0."""
        # which loads Numba
        from ..families.kernels import curves_of_moments

        forms = self.forms
        bounds = forms.bounds
        unit = bounds.unit[:, None]
        moments = forms.mean, forms.variance, bounds.middle[:, None]
        location, dispersion, *_ = curves_of_moments(*moments, family.has_path)
        parameters = family.to_parameters(
            bounds.location[:, None] + unit * location,
            dispersion + 2.0 * np.log(unit),
        )
        return family.with_zero(*parameters) if len(self.atom) else parameters

    def draw(self, predictors: Floats, rng: np.random.Generator) -> Floats:
        """Replicates (draws, rows) of the rows' totals at predictors (draws, rows, P)."""
        family = self.forms.family
        assert isinstance(family, Family)
        parameters = self._components(family)
        number = len(self.constant)
        row, items = self.joint[:2].astype(int)
        size = self.joint[2]
        drawn = np.empty((len(predictors), number))
        for k, predictor in enumerate(predictors):
            (weight,) = weights_of_draws(predictor[None], self.forms)
            if len(self.atom):
                share = self._share_of_zeros(predictor[:, -1])[:, None]
                weight = np.hstack([(1.0 - share) * weight, share])
            weight /= weight.sum(axis=1, keepdims=True)
            counts = rng.multinomial(items, weight[row])
            place = np.repeat(np.arange(counts.size), counts.ravel())
            cell, component = np.divmod(place, counts.shape[1])
            a, b = (x[row[cell], component] for x in parameters)
            outcome = family.simulate(a, b, size[cell], rng)
            drawn[k] = np.bincount(row[cell], outcome, number)
        return drawn

    def values(self, predictors: Floats) -> Floats:
        """Log marginals (..., rows) at predictors (..., rows, P)."""
        by_row = _by_row(predictors)
        value = np.empty((len(by_row), by_row.shape[2]))
        bounded, _ = self.forms.bounded(by_row)
        share = self._share_of_zeros(by_row[:, -1])
        for part, weights in solved(bounded, self.forms, slopes=False):
            single = weights.weight.astype(np.float32)
            value[part] = self._mixed(part, single, share[part]).value
        value += self.constant[:, None]
        return value.T.reshape(predictors.shape[:-1])

    def log_marginals(self, predictors: Floats) -> Pair:
        """`values`, and their slopes in the predictors."""
        by_row = _by_row(predictors)
        value = np.empty((len(by_row), by_row.shape[2]))
        slope = np.empty(by_row.shape)
        bounded, bend = self.forms.bounded(by_row)
        share = self._share_of_zeros(by_row[:, -1])
        for part, weights in solved(bounded, self.forms):
            value[part], pull, by_share = self._values_and_slopes(
                part, weights.weight, share[part]
            )
            slope[part] = weights.slopes(pull)
            if len(self.atom):
                slope[part, -1] = by_share
        slope[:, :2] *= bend
        value += self.constant[:, None]
        slope = np.moveaxis(slope, 2, 0)
        return value.T.reshape(predictors.shape[:-1]), slope.reshape(predictors.shape)

    def sums(self, predictors: Floats) -> Floats:
        """Values (draws,) of `sums_and_slopes` by the `values` of these cells."""
        by_row = predictors.T.reshape(predictors.shape[1], len(self.constant), -1)
        return self.values(by_row).sum(axis=1) + self.within_bounds(by_row)

    def sums_and_slopes(
        self, predictors: Floats, log_marginals: Callable[[Floats], Pair]
    ) -> Pair:
        """Sums (draws,) over all rows at predictors (rows P, draws), and slopes in these.

        `log_marginals` gives those of rows, such as `log_marginals` of these cells. Curves within
        what the components can represent are likelier than others.
        """
        by_row = predictors.T.reshape(predictors.shape[1], len(self.constant), -1)
        value, slope = log_marginals(by_row)
        excess = self.forms.bounds.excess(by_row[..., 0], by_row[..., 1])
        slope[..., 0] -= excess[0] / BEYOND**2 / self.forms.bounds.unit
        slope[..., 1] -= excess[1] / BEYOND**2
        total = value.sum(axis=1) + self.within_bounds(by_row)
        return total, slope.reshape(predictors.shape[::-1]).T

    def within_bounds(self, predictors: Floats) -> Floats:
        """Log density (draws,) of curves beyond what the components can represent."""
        excess = self.forms.bounds.excess(predictors[..., 0], predictors[..., 1])
        location, dispersion = ((x / BEYOND) ** 2 for x in excess)
        return -0.5 * (location + dispersion).sum(axis=-1)

    def _share_of_zeros(self, predictor: Floats) -> Floats:
        return special.expit(predictor) if len(self.atom) else np.zeros_like(predictor)

    def _mixed(
        self, part: slice, single: NDArray[np.float32], share: Floats
    ) -> _MixedRows:
        """Densities of the cells of some rows, from weights (rows, R, draws)."""
        start = self.start[part.start : part.stop + 1]
        cells = slice(start[0], start[-1])
        edges = start - start[0]
        rows = [slice(*ends) for ends in pairwise(edges)]
        density = self.density[cells]
        mixed = np.empty((len(density), single.shape[2]), dtype=np.float32)
        for row, weight_of_row in zip(rows, single, strict=True):
            np.matmul(density[row], weight_of_row, out=mixed[row])
        if len(self.atom):
            share_of_cell = np.repeat(share, np.diff(edges), axis=0)
            atom = share_of_cell * self.atom[cells, None]
            mixed = ((1.0 - share_of_cell) * mixed + atom).astype(np.float32)
        np.maximum(mixed, _LEAST_DENSITY, out=mixed)
        items = self.items[cells, None]
        value = np.add.reduceat(np.log(mixed) * items, edges[:-1])
        return _MixedRows(cells, edges[:-1], rows, mixed, value)

    def _values_and_slopes(self, part: slice, weight: Floats, share: Floats) -> Triple:
        """Sums of log densities, and slopes in log weights and the logit of the share of zeros."""
        single = weight.astype(np.float32)
        cells, edges, rows, mixed, value = self._mixed(part, single, share)
        items = self.items[cells, None]
        number = np.add.reduceat(items, edges)
        ratio = items.astype(np.float32) / mixed
        density = self.density[cells]
        pull = np.empty_like(single)
        for row, pull_of_row in zip(rows, pull, strict=True):
            np.matmul(density[row].T, ratio[row], out=pull_of_row)
        zeros = np.zeros_like(share)  # items for which theta is 0
        if len(self.atom):
            zeros = share * np.add.reduceat(ratio * self.atom[cells, None], edges)
        by_weight = weight * ((1.0 - share)[:, None] * pull - (number - zeros)[:, None])
        return value, by_weight, zeros - share * number

    def information(self, predictors: Floats) -> Pair:
        """Expected (by the cells' scores) and observed information, each (rows, P, P)."""
        rows, number = predictors.shape
        expected = []
        shares = self._share_of_zeros(predictors[:, -1])
        bounded, bend = self.forms.bounded(predictors[..., None])
        for part, weights in solved(bounded, self.forms):
            components = len(self.forms.functions)
            unit_pulls = np.zeros(
                (len(weights.weight), components, components)
            ) + np.eye(components)
            # derivatives of the log weights
            along = weights.slopes(unit_pulls)
            along[:, :2] *= bend[part]
            weight = weights.weight[..., 0]
            along -= along @ weights.weight
            for k, row in enumerate(range(part.start, part.stop)):
                cells = slice(self.start[row], self.start[row + 1])
                joint = (1.0 - shares[row]) * (self.density[cells] * weight[k])
                of_zero = shares[row] * self.atom[cells] if len(self.atom) else 0.0
                total = np.maximum(joint.sum(axis=1) + of_zero, 1e-300)
                score = (joint / total[:, None]) @ along[k].T
                score, items = _given_listed(score, self.items[cells])
                if len(self.atom):
                    score[:, -1] = of_zero / total - shares[row]
                expected.append((score * items[:, None]).T @ score)
        step = np.full((rows, number), _SLOPE_STEP)
        step[:, 0] *= self.forms.bounds.unit
        shifted = [
            predictors + sign * step * unit
            for sign in (1, -1)
            for unit in np.eye(number)
        ]
        slope = self.log_marginals(np.array(shifted))[1]
        curvature = (slope[number:] - slope[:number]).transpose(1, 2, 0) / (
            2.0 * step[:, None]
        )
        return np.array(expected), 0.5 * (curvature + curvature.mT)


def _given_listed(score: Floats, items: Floats) -> Pair:
    """Scores of cells less those of the probability to be in the table, which follow them."""
    listings = np.flatnonzero(items < 0.0)
    if not len(listings):
        return score, items
    cells = np.flatnonzero(items > 0.0)
    of_cell = listings[np.searchsorted(listings, cells)]
    return score[cells] - score[of_cell], items[cells]


class Placement(NamedTuple):
    """Curves that place the grid of components."""

    states: Sequence[State]
    wider: Floats  # increase of the dispersion, at its knots


@dataclass(frozen=True, eq=False)
class MergedRows:
    """Rows of the likelihood, each of one or more rows of the curves."""

    code: Ints  # (rows of the curves,): merged row of each
    items: Floats  # (merged rows,): number of items
    # from values at rows of the curves to means over items
    average: Callable[[Floats], Floats]
    score: Floats  # score at the mean position on the axis of the mean
    position: Floats  # this position
    base: Frame  # at the rows
    start: Floats  # (merged rows, 2): both curves of the Laplace start
    # variance of the items' own locations around the row's
    spread: Floats


@dataclass(frozen=True, eq=False)
class PlacedMixture(Target):
    """A mixture's log marginal, with one design for all predictors."""

    placement: Placement
    rows: MergedRows
    # (R, F): of z; the first column is 0 where the path replaces it
    functions: Floats
    # with 2 + F rows per merged row, predictors fastest: both curves, then coefficients of the
    # F further functions of the log weights
    designs: tuple[Design]
    # indicators of each curve's coefficients in the design
    columns: Pair
    # of both curves, and the functions' coefficients at their knots
    outputs: Sequence[Output]
    cells: MixtureCells
    joint: Columns  # joint cells, with the merged row of each

    def predictors(self, coefficients: Floats) -> Floats:
        """Predictors, (merged rows, 2 + F)."""
        values = self.designs[0].matrix @ coefficients
        return values.reshape(len(self.rows.items), -1)

    def curvature(self, states: Sequence[State]) -> Curvature:
        """Value, slope and information; the observed one where it exceeds a share of another."""
        (state,) = states
        predictors = self.predictors(state.coefficients)
        matrix = self.designs[0].matrix
        value, slope = self.cells.log_marginals(predictors)
        if not np.isfinite(value).all():
            return Curvature(value, [], [])
        by_row = matrix.reshape(*predictors.shape, -1)
        expected, observed = (
            matrix.T @ np.matmul(part, by_row).reshape(matrix.shape)
            for part in self.cells.information(predictors)
        )
        return Curvature(
            value, [matrix.T @ slope.ravel()], [floored(expected, observed)]
        )

    def relative_length(self, steps: Sequence[Floats]) -> float:
        """Step of the predictors relative to the largest allowed."""
        moved = self.predictors(steps[0])
        moved[:, 0] /= self.rows.base.spread
        return float(np.abs(moved).max()) / _LONGEST_STEP

    def is_settled(self, mode: State) -> bool:
        """True if the mode is near the curves that placed the grid."""
        shift = self.predictors(mode.coefficients)[:, :2] - self.rows.start
        distance = np.abs(shift[:, 0]) / self.rows.base.spread, np.abs(shift[:, 1])
        settled = np.maximum(*distance) < _NEAR_SHARE
        return bool(np.average(settled, weights=self.rows.items) > _MOST_NEAR)


def _merged(family: Family, pilot: Pilot, placement: Placement) -> MergedRows:
    """Merge rows of neighbouring bins while their components hardly differ."""
    rows, (mean, variance) = pilot.rows, pilot.curves
    values = pilot.curves_at([state.coefficients for state in placement.states])
    wider = spline_matrix(variance.position, variance.basis.knots) @ placement.wider
    fine = family.frame(values[0], values[1] + wider)
    within = pilot.data.spread * family.rise(fine) ** 2
    n = np.maximum(rows.informative, _HARDLY * rows.n)
    log_spread = np.log(fine.spread)
    series = np.stack([rows.group, rows.size, rows.atom], axis=1)

    def alike(members: list[int]) -> bool:
        if (series[members[-1]] != series[members[0]]).any():
            return False
        share = n[members] / n[members].sum()
        spread = log_spread[members]
        centre = share @ fine.centre[members]
        shift = share @ (within[members] + (fine.centre[members] - centre) ** 2)
        looser = _LOOSER if n[members].sum() < _FEW_ITEMS * n.sum() else 1.0
        return bool(
            shift <= (looser * _MOST_SHIFT) ** 2 * np.exp(2.0 * share @ spread)
            and np.ptp(spread) <= looser * _MOST_STRETCH
            and n[members].sum() <= n.sum() / _FEWEST_MIXTURE_BINS
        )

    code = np.empty(len(n), dtype=np.int64)
    number = -1
    current: list[int] = []
    for row in np.lexsort((rows.bin, rows.size, rows.group)).tolist():
        current = [*current, row]
        if len(current) == 1 or not alike(current):
            current = [row]
            number = number + 1
        code[row] = number
    items = np.bincount(code, n)
    members = sparse.csr_array((n, (code, np.arange(len(n)))))

    def average(values: Floats) -> Floats:
        return ((members @ values).T / items).T

    centres = average(fine.centre)
    position = average(mean.position)
    return MergedRows(
        code=code,
        items=items,
        average=average,
        score=mean.axis.inverse(position),
        position=position,
        base=Frame(average(fine.location), centres, np.exp(average(log_spread))),
        start=average(np.column_stack(values)),
        spread=average(within + (fine.centre - centres[code]) ** 2),
    )


def _cells(
    family: Family, joint: Columns, rows: MergedRows, forms: WeightForms, zero: bool
) -> MixtureCells:
    """Joint cells, with the merged row of each, in the form of the likelihood."""
    # of true noise variances over those of the cells, (nodes, cells)
    ratio = np.ones((1, len(joint["n"])))
    log_weights = np.zeros_like(ratio)
    if "sum_moderated" in joint:
        ratio, log_weights = noise_nodes(joint["sum_total_df"] / joint["n"])
        joint = moderated_cells(joint)
    sizes_of_cells = family.outcome.mean_size(joint)
    variance = rows.base.variance(rows.spread)
    places = rows.base.places(family.component_grid)
    cell, outcomes, items = cell_points(family, joint, variance[joint["row"]])
    if family.outcome.truncated:
        cell, outcomes, items = with_listings(joint["row"], cell, outcomes, items)
    row_of_cell = joint["row"][cell]
    order = np.argsort(row_of_cell, kind="stable")
    start = np.searchsorted(row_of_cell[order], np.arange(len(rows.items) + 1))
    density = np.empty((len(order), places.shape[1]), dtype=np.float32)
    atom = np.zeros(len(order) if zero else 0, dtype=np.float32)
    constant = np.zeros(len(rows.items))
    for k, (begin, end) in enumerate(pairwise(start)):
        part = slice(begin, end)
        y, size = (values[order[part]] for values in outcomes)
        theta = family.component_parameters(places[[k]], variance[[k], None])
        of_cell = cell[order[part]]
        sizes = size * np.sqrt(ratio[:, of_cell])
        noise = list(zip(sizes, log_weights[:, of_cell], strict=True))
        by_noise = (
            w[:, None] + family.log_marginal(y[:, None], sd[:, None], *theta)
            for sd, w in noise
        )
        log = reduce(np.logaddexp, by_noise)
        is_listing = items[order[part]] < 0.0
        if is_listing.any():
            log[is_listing] = family.log_listed(size[is_listing, None], *theta)
        top = log.max(axis=1)
        if zero:
            log_likelihood = family.outcome.log_likelihood
            at_zero = reduce(
                np.logaddexp,
                (w + log_likelihood(y, sd, np.zeros(len(y))) for sd, w in noise),
            )
            top = np.maximum(top, at_zero)
            atom[part] = np.exp(at_zero - top)
        density[part] = np.exp(log - top[:, None])
        constant[k] = items[order[part]] @ top
    return MixtureCells(
        forms=forms,
        start=start,
        items=items[order],
        density=density,
        constant=constant,
        atom=atom,
        joint=np.stack([joint["row"], joint["n"], sizes_of_cells, joint["sum_y"]]),
    )


def cells_of_item(
    family: Family, mixture: PlacedMixture, item: Columns
) -> MixtureCells:
    """Cells of one item, a line of joint cells with its merged row."""
    rows = mixture.rows
    base = rows.base
    merged = item["row"]
    alone = replace(
        rows,
        code=np.zeros(1, dtype=np.int64),
        items=item["n"],
        base=Frame(base.location[merged], base.centre[merged], base.spread[merged]),
        spread=rows.spread[merged],
    )
    forms = mixture.cells.forms.subset(merged)
    joint = {**item, "row": np.zeros(1, dtype=np.int64)}
    return _cells(family, joint, alone, forms, bool(len(mixture.cells.atom)))


class _WeightPrior(NamedTuple):
    """Normal prior of a coefficient of the log weights, and sds of its drift over the score."""

    mean: float
    sd: float
    drift: float | tuple[float, ...]


def _weight_priors(
    family: Family, prior: Prior
) -> tuple[dict[str, _WeightPrior], Floats]:
    """Priors of the coefficients of the log weights, by label, and their functions of z."""
    z = family.component_grid
    wiggles = np.empty((len(z), 0))
    priors: dict[str, _WeightPrior] = {}
    if isinstance(prior, MixturePrior):
        narrow = not family.has_path
        if narrow:
            priors["narrow"] = _WeightPrior(*_NARROW_GRID, prior.drift)
        else:
            priors["path"] = _WeightPrior(_PATH, _PATH_SD, prior.drift)
        wiggles = _weight_functions(z, prior.functions, narrow=narrow)
        for k in range(3, 3 + wiggles.shape[1] - narrow):
            priors[f"z{k}"] = _WeightPrior(0.0, prior.shape, prior.drift)
    elif family.has_path:
        priors["path"] = _WeightPrior(_PATH, _FIXED_SD, _FIXED_SD)
    if prior.zero:
        priors[ZERO] = _WeightPrior(_ZERO, _ZERO_SD, _ZERO_DRIFT)
    # neither the path nor a share of zeros is a function of z
    functions = np.zeros((len(z), len(priors)))
    functions[:, [label not in ("path", ZERO) for label in priors]] = wiggles
    return priors, functions


def _mixture(
    family: Family,
    prior: Prior,
    pilot: Pilot,
    joint: Columns,
    placement: Placement,
) -> PlacedMixture:
    """Predictors, their priors and cells, on a grid around curves."""
    rows = _merged(family, pilot, placement)
    priors, functions = _weight_priors(family, prior)
    knots = prior.knots if isinstance(prior, MixturePrior) else _ZERO_KNOTS
    basis = make_basis(rows.position, rows.items, knots)
    drifts = basis.centred(rows.position, rows.items, _DRIFT_FUNCTIONS)
    along = np.column_stack([np.ones(len(basis.knots)), drifts])
    at_rows = spline_matrix(rows.position, basis.knots) @ along
    design, predictor = _design(pilot.curves, rows, list(priors.values()), at_rows)
    indicators = np.eye(len(predictor))
    columns = indicators[predictor == 0], indicators[predictor == 1]
    outputs = [
        replace(output, matrix=output.matrix @ part)
        for curve, part in zip(pilot.curves, columns, strict=True)
        for output in curve.outputs
    ]
    at_knots = np.hstack([np.kron(along, x) for x in np.eye(len(priors))[:, :, None]])
    coords: Labels = {"weight_knot": basis.knots, "weight_function": list(priors)}
    matrix = at_knots @ indicators[predictor > 1]
    outputs.append(Output("weight_coefficient", coords, matrix))
    forms = family.weight_forms(rows.base, functions, rows.start, prior.mixture)
    joint = pooled({**joint, "row": rows.code[joint["row"]]})
    cells = _cells(family, joint, rows, forms, prior.zero)
    return PlacedMixture(
        placement=placement,
        rows=rows,
        functions=functions,
        designs=(design,),
        columns=columns,
        outputs=outputs,
        cells=cells,
        joint=joint,
    )


def _design(
    curves: Sequence[Curve],
    rows: MergedRows,
    priors: Sequence[_WeightPrior],
    at_rows: Floats,
) -> tuple[Design, Ints]:
    """Design with rows for every predictor, fastest, and the predictor of each coefficient."""
    number = 2 + len(priors)
    unit = np.eye(number)[:, :, None]
    lines = [rows.average(curve.design.line) for curve in curves]
    lines += [at_rows] * len(priors)
    means = [curve.design.line_mean for curve in curves]
    sds = [curve.design.line_sd for curve in curves]
    drifts = at_rows.shape[1] - 1
    for prior in priors:
        means.append(np.r_[prior.mean, np.zeros(drifts)])
        sds.append(np.r_[prior.sd, np.resize(prior.drift, drifts)])
    # most local first: the coordinates of each are given those before it
    terms = [(k, block) for k in (1, 0) for block in curves[k].design.blocks]
    blocks = tuple(
        replace(block, design=np.kron(rows.average(block.design), unit[k]))
        for k, block in terms
    )
    line = np.hstack(list(map(np.kron, lines, unit)))
    line_prior = np.concatenate(means), np.concatenate(sds)
    widths = [x.shape[1] for x in (*(block.design for block in blocks), *lines)]
    predictor = np.repeat([*(k for k, _ in terms), *range(number)], widths)
    return Design("line", "line_term", line, *line_prior, blocks), predictor


def _weight_functions(z: Floats, number: int, *, narrow: bool) -> Floats:
    """Functions of z that do not change mean and variance to first order: (R, F)."""
    centre = z[np.abs(z) <= _CENTRE]
    over = make_basis(centre, np.exp(-0.5 * (centre / _CENTRE_SD) ** 2), number)
    # the smoothest is the quadratic, which the base distribution's spread represents
    functions = (spline_matrix(z, over.knots) @ over.wiggle)[:, 1:]
    if narrow:  # turns a Normal into a mixture of a narrow and a wide one
        parts = [
            np.log(share / sd) - 0.5 * (z / sd) ** 2 for share, sd in _NARROW_AND_WIDE
        ]
        functions = np.column_stack([np.logaddexp(*parts) + 0.5 * z**2, functions])
    represented = np.column_stack([np.ones_like(z), z, stretching(z)])
    root = np.exp(-0.25 * z**2)[:, None]
    fitted = np.linalg.lstsq(root * represented, root * functions, rcond=None)[0]
    return functions - represented @ fitted


# --- grids around curves, and the mode of the mixture on a grid ------------------------------


def place_mixture(
    stats: Statistics, family: Family, prior: Prior, pilot: Pilot
) -> tuple[PlacedMixture, Laplace]:
    """The mixture around the pilot's curves and its mode, to which the grid moves with zeros."""
    # zeros pull the pilot towards 0 and widen it, and so do heavy tails where items of 0 are absent
    joint = cells_by_row(stats, pilot.rows, "joint")
    second = pilot.curves[1].outputs[0].matrix
    states = [x.state for x in pilot.laplaces]
    moves = _MOVES * prior.zero
    if stats.truncated:
        states = _narrowed(pilot, states)
        moves = _MOVES
    laplace = pilot.laplaces[1]
    at_knots = second
    for _ in range(1 + moves):
        wider = np.minimum(_WIDENING * _sds(at_knots, laplace), _MOST_WIDENING)
        placement = Placement(states, wider)
        mixture = _mixture(family, prior, pilot, joint, placement)
        # starts at the curves that place the grid, under the single family
        start = State.starting(*mixture.designs, mixture.designs[0].line_mean)
        for state, columns in zip(states, mixture.columns, strict=True):
            start.coefficients[columns.any(axis=0)] = state.coefficients
        (laplace,) = find_mode(mixture, [start], ahead=True).laplaces
        if mixture.is_settled(laplace.state):
            break
        states = [
            State(columns @ laplace.state.coefficients, ())
            for columns in mixture.columns
        ]
        at_knots = second @ mixture.columns[1]
    return mixture, laplace


def _narrowed(pilot: Pilot, states: Sequence[State]) -> list[State]:
    """The pilot's states with an average dispersion of at most `_WIDEST_START`.

    The location rises so that E(theta^2) / E(theta) stays, which few events tell.
    """
    _, dispersion = pilot.curves_at(pilot.coefficients)
    n = pilot.rows.n
    narrower = min(_WIDEST_START - float(np.average(dispersion, weights=n)), 0.0)
    rise = np.log1p(np.exp(dispersion)) - np.log1p(np.exp(dispersion + narrower))
    shifts = float(np.average(rise, weights=n)), narrower
    moved = []
    for curve, state, shift in zip(pilot.curves, states, shifts, strict=True):
        coefficients = state.coefficients.copy()
        coefficients[-curve.design.line.shape[1]] += shift
        moved.append(replace(state, coefficients=coefficients))
    return moved


def _sds(matrix: Floats, laplace: Laplace) -> Floats:
    """Approximate posterior sds of linear functions of a design's coefficients."""
    ends = np.cumsum([len(block.precision) for block in laplace.blocks], dtype=int)
    *parts, line = np.split(matrix, ends, axis=1)
    total = np.square(line @ laplace.line_root).sum(axis=1)
    shifts = np.split(laplace.line_shift, ends, axis=1)[:-1]
    blocks = zip(laplace.blocks, parts, shifts, laplace.state.taus, strict=True)
    for block, part, shift, tau in blocks:
        if part.any():
            sd = tau / np.sqrt(1.0 + block.precision * tau**2)
            total += np.square((part @ block.rotation - line @ shift) * sd).sum(axis=1)
    return np.sqrt(total)
