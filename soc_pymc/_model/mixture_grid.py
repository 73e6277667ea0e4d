"""Inputs of a mixture from statistics: merged rows, cells, and predictors of its weights.

Log weights are log w_r(t) = base_r(t) + sum_j phi_j(z_r, t) eta_j(t), with smooth functions phi of
the component's position z and eta of the score t. The first two eta follow from the curves of mean
and variance, which have the terms and priors of the single family.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._lib.arrays import Floats, Ints
from ..data.statistics import Statistics
from ..families.components import Components, Frame, cell_points, stretching
from ..families.family import ZERO, Family
from ..families.mixture_rows import MixtureCells
from ..families.row_sums import Columns
from .laplace import Curvature, Laplace, Target, find_mode, floored
from .pilot import Pilot
from .rows import Rows, cells_of, pooled
from .splines import make_basis, spline_matrix
from .terms import Curve, Design, Output, State, interleaved

# bins are merged while the base distribution hardly changes, but not to fewer than this
_MOST_SHIFT, _MOST_STRETCH, _FEWEST_BINS = 0.2, 0.15, 40
_FEW_ITEMS, _LOOSER = 1e-3, 4.0  # share of the items below which a row may be so much wider
_CENTRE = 4.0  # functions of z are cubic splines for |z| below this, and linear beyond
_CENTRE_SD = 2.0  # their knots follow a Normal of this sd
_PATH, _PATH_SD = 1.0, 0.5  # prior of the path from the Normal (0) to the Gamma (1)
_FIXED_SD = 1e-3  # of a single family's path, which stays at its end
_KNOTS = 4  # over the score, of a single family's share of zeros
# prior of the logit of the share of theta that is 0: its level, and sds of its drift
_ZERO, _ZERO_SD = -3.0, 2.0
_ZERO_DRIFT = (1.0, 0.5, 0.5)
# shares and sds of two Normals, whose log ratio to one Normal is a function of values' log weights,
# and mean and sd of the prior of its coefficient
_NARROW_AND_WIDE, _NARROW = ((0.6, 0.35), (0.4, 1.5)), (0.6, 0.7)
_FEW = 2  # number of wiggly functions, the smoothest, for drift beside the straight line
_FARTHEST = 3.0  # largest step of the log weights' coefficients
_WIDENING, _MOST_WIDENING = 0.7, 1.0  # widening of a grid in sds of the log variance, and the most
# a grid is moved to the mode until this share of the items has curves this near to its own
_NEAR, _MOST_NEAR, _MOVES = 0.5, 0.9, 6


@dataclass(frozen=True)
class MergedRows:
    """Rows of the likelihood, each of one or more rows of the curves."""

    of: Ints  # (rows of the curves,): merged row of each
    items: Floats  # (merged rows,): number of items
    score: Floats  # score at the mean position on the axis of the mean
    position: Floats  # this position
    base: Frame  # at the rows
    start: Floats  # (merged rows, 2): both curves of the Laplace start
    spread: Floats  # variance of the items' own locations around the row's

    def averaged(self, values: Floats, n: Floats) -> Floats:
        """Means of columns of the curves' rows (rows, k) with `n` items each."""
        total = np.zeros((len(self.items), values.shape[1]))
        np.add.at(total, self.of, values * n[:, None])
        return np.asarray(total / self.items[:, None])


@dataclass(frozen=True)
class WeightDesign(Target):
    """A mixture's log marginal, as `laplace.Target` with one design for all predictors.

    The design has 2 + F rows per merged row, predictors fastest: both curves, then coefficients of
    the F further functions of the log weights.
    """

    rows: MergedRows
    functions: Floats  # (R, F): of z; the first column is 0 where the path replaces it
    labels: tuple[str, ...]  # names of the F functions
    knots: Floats  # (K,): positions on the axis of the mean
    design: Design
    # the functions' coefficients at `knots` (K F, functions fastest), from those of the line
    at_knots: Floats
    columns: tuple[Ints, Ints]  # of each curve's coefficients in the design
    cells: MixtureCells

    def outputs(self, curves: Sequence[Curve], names: Sequence[str]) -> list[Output]:
        """Outputs of both curves, and the functions' coefficients at their knots."""
        outputs = []
        for curve, name, columns in zip(curves, names, self.columns, strict=True):
            for output in curve.outputs(name):
                wide = np.zeros((len(output.matrix), self.design.whole.shape[1]))
                wide[:, columns] = output.matrix
                outputs.append(replace(output, matrix=wide))
        before = self.design.whole.shape[1] - self.at_knots.shape[1]
        matrix = np.pad(self.at_knots, ((0, 0), (before, 0)))
        dims, shape = ("weight_knot", "weight_function"), (-1, len(self.labels))
        return [*outputs, Output("weight_coefficient", dims, matrix, shape)]

    def start(self, states: Sequence[State]) -> State:
        """Both curves at states of the single family, whose weights the path gives."""
        start = State.starting(self.design, np.zeros(self.design.whole.shape[1]))
        coefficients, _ = start.prior(self.design)
        for state, columns in zip(states, self.columns, strict=True):
            coefficients[columns] = state.coefficients
        return replace(start, coefficients=coefficients)

    def curve_states(self, state: State) -> list[State]:
        """Both curves of a joint state, the opposite of `start`; their scales are arbitrary."""
        return [State(state.coefficients[columns], ()) for columns in self.columns]

    def predictors(self, coefficients: Floats) -> Floats:
        """Predictors, (merged rows, 2 + F)."""
        return np.asarray((self.design.whole @ coefficients).reshape(len(self.rows.items), -1))

    @property
    def designs(self) -> tuple[Design]:
        """The one design."""
        return (self.design,)

    def curvature(self, states: Sequence[State]) -> Curvature:
        """Value, slope and information; the observed one where it exceeds a share of another."""
        (state,) = states
        predictors, whole = self.predictors(state.coefficients), self.design.whole
        value, slope = self.cells.log_marginals(predictors)
        if not np.isfinite(value).all():
            return Curvature(value, [], [])
        by_row = whole.reshape(*predictors.shape, -1)
        expected, observed = (
            whole.T @ np.matmul(part, by_row).reshape(whole.shape)
            for part in self.cells.information(predictors)
        )
        return Curvature(value, [whole.T @ slope.ravel()], [floored(expected, observed)])

    def excess(self, steps: Sequence[Floats]) -> float:
        """Step of the predictors relative to the largest allowed."""
        moved = self.predictors(steps[0])
        moved[:, 0] /= self.rows.base.spread
        return float(np.abs(moved).max()) / _FARTHEST


def merged(
    components: Components,
    stats: Statistics,
    rows: Rows,
    curves: tuple[Curve, Curve],
    values: Sequence[Floats],
    raised: Floats,
    within: Floats,
) -> MergedRows:
    """Merge rows of neighbouring bins while their components hardly differ."""
    fine = components.base(values[0], values[1] + raised)
    within = within * components.rise(fine) ** 2
    n, log_spread = rows.n.astype(float), np.log(fine.spread)
    order = np.lexsort((rows.bin, rows.size, rows.group))
    series = np.stack([rows.group, rows.size, rows.atom])[:, order]
    block = rows.bin[order]
    new = (np.diff(series, axis=1, prepend=-1) != 0).any(axis=0)
    edges = np.flatnonzero(new | (np.diff(block, prepend=-1) != 0))
    code = np.empty(len(n), dtype=np.int64)
    current: NDArray[np.intp] = np.empty(0, dtype=np.intp)
    number = -1
    for first, last in zip(edges, [*edges[1:], len(n)], strict=True):
        rows_of_run = order[first:last]
        tried = rows_of_run if new[first] else np.concatenate([current, rows_of_run])
        share = n[tried] / n[tried].sum()
        centre = share @ fine.location[tried]
        shift = share @ (within[tried] + (fine.location[tried] - centre) ** 2)
        looser = _LOOSER if n[tried].sum() < _FEW_ITEMS * n.sum() else 1.0
        same = not new[first] and (
            shift <= (looser * _MOST_SHIFT) ** 2 * np.exp(2.0 * share @ log_spread[tried])
            and np.ptp(log_spread[tried]) <= looser * _MOST_STRETCH
            and n[tried].sum() <= n.sum() / _FEWEST_BINS
        )
        current = tried if same else rows_of_run
        number += not same
        code[rows_of_run] = number

    def mean(x: Floats) -> Floats:
        return np.bincount(code, n * x) / np.bincount(code, n)

    location = mean(fine.location)
    spread = mean(within + (fine.location - location[code]) ** 2)
    position = mean(curves[0].position)
    return MergedRows(
        code,
        np.bincount(code, n),
        curves[0].axis.inverse(position),
        position,
        Frame(mean(fine.mean_curve), location, np.exp(mean(log_spread))),
        np.stack([mean(x) for x in values], axis=1),
        spread,
    )


def make_cells(
    family: Family,
    cells: Columns,
    rows: MergedRows,
    functions: Floats,
    *,
    heavy: bool,
    zero: bool,
) -> MixtureCells:
    """Joint cells, with the curves' row of each, in the form of the likelihood."""
    components, log_likelihood = family.components, family.outcome.forms.log_likelihood
    z, cells = components.z, pooled({**cells, "row": rows.of[cells["row"]]})
    row_of = cells["row"]
    variance = rows.base.width(rows.spread)
    cell, data, items = cell_points(components, cells, variance[row_of])
    order = np.argsort(row_of[cell], kind="stable")
    items, b = items[order], row_of[cell][order]
    start = np.concatenate([[0], np.cumsum(np.bincount(b, minlength=len(rows.items)))])
    place = rows.base.places(z)
    density = np.empty((len(b), len(z)), dtype=np.float32)
    atom = np.zeros(len(b) if zero else 0, dtype=np.float32)
    constant = np.zeros(len(rows.items))
    for k in range(len(rows.items)):
        part = slice(start[k], start[k + 1])
        row_of_cell = b[part]
        outcomes = data[0][order][part], data[1][order][part]
        densities = family.component_log_density(
            *outcomes, place[row_of_cell], variance[row_of_cell, None]
        )
        top = densities.max(axis=1)
        if zero:
            at_zero = log_likelihood(*outcomes, np.zeros(len(top)))
            top = np.maximum(top, at_zero)
            atom[part] = np.exp(at_zero - top)
        density[part] = np.exp(densities - top[:, None])
        constant[k] = items[part] @ top
    forms = components.forms(rows.base, functions, rows.start, heavy)
    return MixtureCells(forms, start.astype(np.int64), items, density, constant, atom)


def make_weights(
    family: Family,
    prior: Any,
    rows: MergedRows,
    curves: tuple[Curve, Curve],
    n: Floats,
    joint: Columns,
) -> WeightDesign:
    """Predictors, their priors and cells; `n` are the items of the curves' rows."""
    z, path = family.components.z, family.components.law.has_path
    priors: dict[str, tuple[float, float, tuple[float, ...]]] = {}
    if path:
        sd, drift = (_PATH_SD, prior.drift) if prior.mixture else (_FIXED_SD, _FIXED_SD)
        priors["path"] = _PATH, sd, (drift,) * (1 + _FEW)
    wiggles = np.empty((len(z), 0))
    if prior.mixture:
        wiggles = _functions(z, prior.functions, narrow=not path)
        priors |= {} if path else {"narrow": (*_NARROW, (prior.drift,) * (1 + _FEW))}
        for k in range(3, 3 + wiggles.shape[1] - (not path)):
            priors[f"z{k}"] = (0.0, prior.shape, (prior.drift,) * (1 + _FEW))
    if prior.zero:
        priors[ZERO] = (_ZERO, _ZERO_SD, _ZERO_DRIFT)
    labels = tuple(priors)
    number = len(labels)
    # most local first: the coordinates of each are given those before it
    blocks = [
        replace(
            block,
            name=f"{family.curves[k]}_{block.name}",
            design=interleaved({k: rows.averaged(block.design, n)}, 2 + number),
        )
        for k in (1, 0)
        for block in curves[k].design.blocks
    ]
    basis = make_basis(rows.position, rows.items, prior.knots if prior.mixture else _KNOTS)
    knots, drifts = basis.knots, basis.centred(rows.position, rows.items, _FEW)
    along = np.column_stack([np.ones(len(knots)), drifts])
    lines = dict(enumerate(rows.averaged(curve.design.line, n) for curve in curves))
    lines |= dict.fromkeys(range(2, 2 + number), spline_matrix(rows.position, knots) @ along)
    means, sds = ([getattr(c.design, name) for c in curves] for name in ("line_mean", "line_sd"))
    for level, sd, drift in priors.values():
        means.append(np.concatenate([[level], np.zeros(drifts.shape[1])]))
        sds.append(np.array([sd, *drift[: drifts.shape[1]]]))
    at_knots = interleaved(dict.fromkeys(range(number), along), number)
    design = Design(
        interleaved(lines, 2 + number), np.concatenate(means), np.concatenate(sds), tuple(blocks)
    )
    line_sizes = [curve.design.line.shape[1] for curve in curves]
    sizes = [c.design.whole.shape[1] - k for c, k in zip(curves, line_sizes, strict=True)]
    predictor = np.repeat([1, 0, 0, 1], [sizes[1], sizes[0], *line_sizes])
    columns = np.flatnonzero(predictor == 0), np.flatnonzero(predictor == 1)
    # neither the path nor a share of zeros is a function of z
    functions = np.zeros((len(z), number))
    functions[:, [label not in ("path", ZERO) for label in labels]] = wiggles
    cells = make_cells(family, joint, rows, functions, heavy=prior.mixture, zero=prior.zero)
    return WeightDesign(rows, functions, labels, knots, design, at_knots, columns, cells)


def _functions(z: Floats, number: int, *, narrow: bool) -> Floats:
    """Functions of z that do not change mean and variance to first order: (R, F).

    With `narrow` the first turns a Normal into a mixture of a narrow and a wide one, for theta that
    lies close to the curve for most items.
    """
    centre = z[np.abs(z) <= _CENTRE]
    over = make_basis(centre, np.exp(-0.5 * (centre / _CENTRE_SD) ** 2), number)
    # the smoothest is the quadratic, which the base distribution's spread represents
    functions = (spline_matrix(z, over.knots) @ over.wiggle)[:, 1:]
    if narrow:
        parts = [np.log(share / sd) - 0.5 * (z / sd) ** 2 for share, sd in _NARROW_AND_WIDE]
        functions = np.column_stack([np.logaddexp(*parts) + 0.5 * z**2, functions])
    represented = np.column_stack([np.ones_like(z), z, stretching(z)])
    root = np.exp(-0.25 * z**2)[:, None]
    fitted = np.linalg.lstsq(root * represented, root * functions, rcond=None)[0]
    return np.asarray(functions - represented @ fitted)


# --- grids around curves, and the mode of the mixture on a grid ------------------------------


@dataclass(frozen=True)
class GridMixture:
    """A mixture on one grid, with its mode."""

    states: Sequence[State]  # of the curves that place the grid
    wider: Floats  # increase of the second curve there, at its knots
    design: WeightDesign
    laplace: Laplace

    @property
    def is_settled(self) -> bool:
        """True if the mode is near the curves that placed the grid."""
        rows = self.design.rows
        shift = self.design.predictors(self.laplace.state.coefficients)[:, :2] - rows.start
        distance = np.abs(shift[:, 0]) / rows.base.spread, np.abs(shift[:, 1])
        return bool(np.average(np.maximum(*distance) < _NEAR, weights=rows.items) > _MOST_NEAR)


def place_mixture(stats: Statistics, family: Family, prior: Any, pilot: Pilot) -> GridMixture:
    """The mixture around the pilot's curves; with zeros these are moved to its mode."""
    # zeros pull the pilot towards 0 and widen it
    basis = pilot.curves[1].outputs("")[0].matrix
    sds = _sds(basis, pilot.laplaces[1])
    states = [laplace.state for laplace in pilot.laplaces]
    mixture = _on_grid(stats, family, prior, pilot, states, sds)
    for _ in range(_MOVES if prior.zero else 0):
        if mixture.is_settled:
            break
        states = mixture.design.curve_states(mixture.laplace.state)
        wide = np.zeros((len(basis), mixture.design.design.whole.shape[1]))
        wide[:, mixture.design.columns[1]] = basis
        mixture = _on_grid(stats, family, prior, pilot, states, _sds(wide, mixture.laplace))
    return mixture


def _on_grid(
    stats: Statistics,
    family: Family,
    prior: Any,
    pilot: Pilot,
    states: Sequence[State],
    sds: Floats,
) -> GridMixture:
    """The mixture on a grid at curves; `sds` are posterior sds of the second at its knots."""
    curves, rows = pilot.curves, pilot.rows
    wider = np.minimum(_WIDENING * sds, _MOST_WIDENING)
    at_rows = [state.at(curve.design) for curve, state in zip(curves, states, strict=True)]
    raised = spline_matrix(curves[1].position, curves[1].basis.knots) @ wider
    merged_rows = merged(family.components, stats, rows, curves, at_rows, raised, pilot.data.spread)
    joint = cells_of(stats, rows, "joint")
    design = make_weights(family, prior, merged_rows, curves, rows.n, joint)
    (laplace,) = find_mode(design, [design.start(states)], ahead=True).laplaces
    return GridMixture(states, wider, design, laplace)


def _sds(matrix: Floats, laplace: Laplace) -> Floats:
    """Approximate posterior sds of linear functions of a design's coefficients."""
    ends = np.cumsum([len(block.precision) for block in laplace.blocks], dtype=int)
    *parts, line = np.split(matrix, ends, axis=1)
    total = np.square(line @ laplace.line_root).sum(axis=1)
    shifts = np.split(laplace.line_shift, ends, axis=1)[:-1]
    known = zip(laplace.blocks, parts, shifts, laplace.state.taus, strict=True)
    for block, part, shift, tau in known:
        if part.any():
            sd = tau / np.sqrt(1.0 + block.precision * tau**2)
            total += np.square((part @ block.rotation - line @ shift) * sd).sum(axis=1)
    return np.sqrt(total)
