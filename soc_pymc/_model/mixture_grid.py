"""Inputs of a mixture from statistics: merged rows, cells, and predictors of its weights.

Log weights are log w_r(t) = base_r(t) + sum_j phi_j(z_r, t) eta_j(t), with smooth functions phi of
the component's position z and eta of the score t. The first two eta follow from the curves of mean
and variance, which have the terms and priors of the single family.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy import sparse

from .._lib.arrays import Columns, Floats, Ints, Pair
from ..data.statistics import Statistics
from ..families.family import Family
from ..families.mixtures import ZERO, Frame, WeightForms, stretching
from ..families.noise import moderated_cells, noise_nodes
from ..families.priors import MixturePrior, Prior
from ..families.rows import pooled
from .laplace import Curvature, Laplace, Target, find_mode, floored
from .mixture_cells import MixtureCells, cell_points, with_listings
from .pilot import Pilot
from .rows import cells_by_row
from .splines import make_basis, spline_matrix
from .terms import Curve, Design, Labels, Output, State

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
    """Joint cells, with the curves' row of each, in the form of the likelihood."""
    joint = pooled({**joint, "row": rows.code[joint["row"]]})
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
    cells = _cells(family, joint, rows, forms, prior.zero)
    return PlacedMixture(
        placement=placement,
        rows=rows,
        functions=functions,
        designs=(design,),
        columns=columns,
        outputs=outputs,
        cells=cells,
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
