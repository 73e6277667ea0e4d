"""Inputs of a mixture from statistics: merged bins, cells, and predictors of its weights.

Log weights of the components are those of the base distribution plus J smooth functions of the
component's position z, each with a coefficient that is itself a smooth function of the score: log
w_r(t) = base_r(t) + sum_j phi_j(z_r, t) eta_j(t). The first two coefficients follow from the curves
of the base distribution, which have the priors of the single family.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._lib.arrays import Floats, Ints
from .._lib.errors import FitError
from ..data.statistics import Statistics
from ..families.components import (
    Components,
    Frame,
    MixtureCells,
    all_bins,
    cell_points,
    frame_tilt,
    information,
    moves,
)
from .laplace import Curvature, Laplace, floored
from .rows import Rows
from .splines import make_basis, spline_matrix
from .terms import Block, Curve, Design, State, interleaved

# bins are merged while the base distribution hardly changes, but not to fewer than this
_MOST_SHIFT, _MOST_STRETCH, _FEWEST_BINS = 0.2, 0.15, 40
_CENTRE = 4.0  # functions of z are cubic splines for |z| below this, and linear beyond
_CENTRE_SD = 2.0  # their knots follow a Normal of this sd
_PATH, _PATH_SD = 1.0, 0.5  # prior of the path from the Normal (0) to the Gamma (1)
_FEW = 2  # number of wiggly functions, the smoothest, for drift beside the straight line
_FARTHEST = 3.0  # largest step of the log weights' coefficients


@dataclass(frozen=True)
class MergedBins:
    """Rows of the likelihood, each of one or more occupied bins of the statistics."""

    of: Ints  # (bins of the statistics,): merged bin of each, -1 if it is empty
    items: Floats  # (bins,): number of items
    score: Floats  # (bins,): score at the mean position on the axis of the mean
    positions: tuple[Floats, Floats]  # mean positions (bins,) on both curves' axes
    base: Frame  # at the bins
    spread: Floats  # (bins,): variance of the items' own locations around the bin's


@dataclass(frozen=True)
class WeightDesign:
    """Map from predictors of a linear model to the log weights' coefficients at the bins.

    Predictors of a bin are both curves of the base distribution, then coefficients of the F further
    functions; the design has 2 + F rows per bin, predictors fastest.
    """

    bins: MergedBins
    functions: Floats  # (R, F): of z; the first column is 0 where the path replaces it
    labels: tuple[str, ...]  # names of the F functions
    knots: Floats  # (K,): positions on the axis of the mean
    design: Design
    # outputs of the coefficients, by block: both curves at their knots, and the functions'
    # coefficients at `knots` (K F, functions fastest)
    at_knots: tuple[dict[str, Floats], ...]
    start: Floats  # (bins, 2): both curves of the Laplace start
    moving: Floats  # `Components.slopes` at the bins

    def predictors(self, coefficients: Floats) -> Floats:
        """Predictors, (bins, 2 + F)."""
        return np.asarray((self.design.whole @ coefficients).reshape(len(self.start), -1))

    def tilt(self, coefficients: Floats) -> Floats:
        """Coefficients of the log weights, (bins, 2 + F): of `moves`, then of the functions."""
        predictors = self.predictors(coefficients)
        first, second = (predictors[:, :2] - self.start).T
        return np.column_stack([*frame_tilt(first, second, self.moving), predictors[:, 2:]])

    def slopes(self, coefficients: Floats) -> Floats:
        """Derivatives of `tilt` in the predictors, (bins, 2 + F, 2 + F)."""
        predictors = self.predictors(coefficients)
        first, second = (predictors[:, :2] - self.start).T
        found = np.tile(np.eye(predictors.shape[1]), (len(predictors), 1, 1))
        step = 1e-5
        sides = [(first + step, second), (first - step, second)]
        sides += [(first, second + step), (first, second - step)]
        ahead = [np.stack(frame_tilt(a, b, self.moving), axis=1) for a, b in sides]
        for k in (0, 1):
            found[:, :2, k] = (ahead[2 * k] - ahead[2 * k + 1]) / (2.0 * step)
        return found


@dataclass(frozen=True)
class MixtureTarget:
    """The mixture's log marginal, as `laplace.Target`: one design for all predictors."""

    weights: WeightDesign
    cells: MixtureCells

    @property
    def designs(self) -> tuple[Design]:
        """The one design."""
        return (self.weights.design,)

    def _value_and_slope(self, tilt: Floats) -> tuple[Floats, Floats]:
        value, slope = np.empty((1, len(tilt))), np.empty((1, *tilt.shape))
        all_bins(tilt[None], value, slope, *self.cells.arrays)
        return value[0], slope[0]

    def curvature(self, states: Sequence[State]) -> Curvature:
        """Value, slope and information; the observed one where it exceeds a share of another."""
        (state,) = states
        x = state.coefficients
        tilt, inner = self.weights.tilt(x), self.weights.slopes(x)
        value, slope = self._value_and_slope(tilt)
        if not np.isfinite(value).all():
            return Curvature(value, [], [])
        whole = self.weights.design.whole.reshape(len(tilt), -1, len(x))
        by_bin = np.matmul(inner, whole)
        flat = by_bin.reshape(-1, len(x))
        expected, observed = (
            flat.T @ np.matmul(part, by_bin).reshape(-1, len(x))
            for part in information(tilt, self.cells)
        )
        return Curvature(value, [flat.T @ slope.ravel()], [floored(expected, observed, 1e-10)])

    def value(self, states: Sequence[State]) -> float:
        """Log marginal of all bins."""
        return float(self._value_and_slope(self.weights.tilt(states[0].coefficients))[0].sum())

    def excess(self, states: Sequence[State], steps: Sequence[Floats]) -> float:
        """Step of the log weights' coefficients relative to the largest allowed."""
        x, tilt = states[0].coefficients, self.weights.tilt
        longest = float(np.abs(tilt(x + 1e-3 * steps[0]) - tilt(x)).max()) * 1e3
        return longest / _FARTHEST


def merged(
    components: Components,
    stats: Statistics,
    rows: Rows,
    curves: tuple[Curve, Curve],
    values: Sequence[Floats],
    within: Floats,
) -> MergedBins:
    """Merge neighbouring bins while their components hardly differ.

    `values` are the Laplace start's curves at the occupied bins, `within` the variance of the
    items' first curve within each.
    """
    fine = components.base(*values)
    within = within * components.slopes(fine)[1] ** 2
    occupied, n = rows.bin, rows.n.astype(float)
    log_spread = np.log(fine.spread)
    code = np.empty(len(n), dtype=np.int64)
    step = max(stats.coarse, 1)
    edges = np.flatnonzero(np.diff(occupied // step, prepend=-1))
    blocks = np.split(np.arange(len(n)), edges[1:])
    current: NDArray[np.intp] = blocks[0]
    number = 0
    for block in blocks[1:]:
        tried = np.concatenate([current, block])
        share = n[tried] / n[tried].sum()
        centre = share @ fine.location[tried]
        shift = share @ (within[tried] + (fine.location[tried] - centre) ** 2)
        same = (
            shift <= _MOST_SHIFT**2 * np.exp(2.0 * share @ log_spread[tried])
            and np.ptp(log_spread[tried]) <= _MOST_STRETCH
            and n[tried].sum() <= n.sum() / _FEWEST_BINS
        )
        code[current] = number
        number += not same
        current = tried if same else block
    code[current] = number

    def mean(x: Floats) -> Floats:
        return np.bincount(code, n * x) / np.bincount(code, n)

    location = mean(fine.location)
    spread = mean(within + (fine.location - location[code]) ** 2)
    base = components.merged(location, fine, mean)
    of = np.full(stats.bins, -1)
    of[occupied] = code
    at = mean(curves[0].position), mean(curves[1].position)
    score = curves[0].axis.inverse(at[0])
    return MergedBins(of, np.bincount(code, n), score, at, base, spread)


def make_cells(
    components: Components, stats: Statistics, bins: MergedBins, functions: Floats, name: str
) -> MixtureCells:
    """Joint cells in the form of the likelihood; `name` is the prior's."""
    cells, z = joint_cells(stats, name), components.z
    # the first bins of an occupied bin of joint cells may be empty
    wide = np.maximum.reduceat(bins.of, np.arange(0, len(bins.of), max(stats.coarse, 1)))
    bin_of = wide[cells["bin"]]
    variance = bins.base.width(bins.spread)
    sharpness = components.sharpness(cells, components.scale(variance)[bin_of])
    row, data, items = cell_points(components, cells, sharpness)
    order = np.argsort(bin_of[row], kind="stable")
    row, items, b = row[order], items[order], bin_of[row][order]
    start = np.concatenate([[0], np.cumsum(np.bincount(b, minlength=len(bins.items)))])
    location = bins.base.location[:, None] + bins.base.spread[:, None] * z
    density = np.empty((len(b), len(z)), dtype=np.float32)
    constant = np.zeros(len(bins.items))
    for k in range(len(bins.items)):
        at = slice(start[k], start[k + 1])
        here = b[at]
        found = components.log_density(
            data[0][order][at], data[1][order][at], location[here], variance[here]
        )
        top = found.max(axis=1)
        density[at] = np.exp(found - top[:, None])
        constant[k] = items[at] @ top
    base, basis = components.weights_basis(bins.base, functions)
    return MixtureCells(base, basis, start.astype(np.int64), items, density, constant)


def make_weights(
    components: Components,
    prior: Any,
    bins: MergedBins,
    curves: tuple[Curve, Curve],
    values: Sequence[Floats],
) -> WeightDesign:
    """Predictors and their priors, with the Laplace start's curves at their knots.

    The base distribution's curves have the priors of the single family. The start only locates
    them, so the likelihood is used once.
    """
    wiggles = _functions(components.z, prior.functions)
    path = [np.zeros(len(wiggles))] if components.path else []
    labels = (*(["path"] if path else []), *(f"z{k + 3}" for k in range(wiggles.shape[1])))
    own = len(labels)
    total, number = 2 + own, len(bins.items)
    knots, ways = _drift(bins, prior.knots)
    flat, ones = np.ones((len(knots), 1)), np.ones((number, 1))
    # most local first: the coordinates of each are given those before it
    blocks: list[Block] = []
    made: tuple[dict[str, Floats], ...] = ({}, {}, {})
    of_weights = [
        ("drift", ways, spline_matrix(bins.positions[0], knots) @ ways, range(own), prior.drift),
        ("shape", flat, ones, range(len(path), own), prior.shape),
    ]
    for name, at_knots, at_bins, members, scale in of_weights:
        if at_knots.shape[1]:
            blocks.append(Block(name, interleaved({2 + j: at_bins for j in members}, total), scale))
            made[2][name] = interleaved(dict.fromkeys(members, at_knots), own)
    spline_rows = [
        spline_matrix(at, c.basis.knots) for c, at in zip(curves, bins.positions, strict=True)
    ]
    for k, name in ((1, "spread"), (0, "location")):
        for term in curves[k].terms:
            of_base = interleaved({k: spline_rows[k] @ term.values}, total)
            blocks.append(Block(name, of_base, term.block.scale))
            made[k][name] = term.values
    lines = {k: spline_rows[k] @ curves[k].basis.line for k in (0, 1)}
    means, sds = ([getattr(c.design, name) for c in curves] for name in ("line_mean", "line_sd"))
    if path:
        lines[2] = ones
        means, sds = [*means, np.array([_PATH])], [*sds, np.array([_PATH_SD])]
    line = interleaved(lines, total)
    # a line's coefficient gives the value of its own predictor
    first, second = (curve.basis.line for curve in curves)
    made[0]["line"] = np.pad(first, ((0, 0), (0, line.shape[1] - first.shape[1])))
    rest = line.shape[1] - first.shape[1] - second.shape[1]
    made[1]["line"] = np.pad(second, ((0, 0), (first.shape[1], rest)))
    of_path = interleaved({0: flat}, own) if path else np.zeros((len(knots) * own, 0))
    made[2]["line"] = np.pad(of_path, ((0, 0), (line.shape[1] - rest, 0)))
    design = Design(line, np.concatenate(means), np.concatenate(sds), tuple(blocks))
    start = np.column_stack([at @ v for at, v in zip(spline_rows, values, strict=True)])
    functions = np.column_stack([*path, wiggles])
    return WeightDesign(
        bins, functions, labels, knots, design, made, start, components.slopes(bins.base)
    )


def _functions(z: Floats, number: int) -> Floats:
    """Functions of z that do not change mean and variance to first order: (R, F)."""
    centre = z[np.abs(z) <= _CENTRE]
    over = make_basis(centre, np.exp(-0.5 * (centre / _CENTRE_SD) ** 2), number)
    # the smoothest is the quadratic, which the base distribution's spread represents
    wiggles = (spline_matrix(z, over.knots) @ over.wiggle)[:, 1:]
    given = np.column_stack([np.ones_like(z), moves(z)])
    root = np.exp(-0.25 * z**2)[:, None]
    return np.asarray(
        wiggles - given @ np.linalg.lstsq(root * given, root * wiggles, rcond=None)[0]
    )


def _drift(bins: MergedBins, number: int) -> tuple[Floats, Floats]:
    """Knots over the score, and the functions of average 0 for drift at these knots."""
    position = bins.positions[0]
    along = make_basis(position, bins.items, number)
    sd = np.sqrt(np.average((position - along.centre) ** 2, weights=bins.items))
    ways = np.column_stack([along.line[:, 1:] / max(sd, 1e-300), along.wiggle[:, :_FEW]])
    at_bins = spline_matrix(position, along.knots)
    return along.knots, ways - np.average(at_bins @ ways, axis=0, weights=bins.items)


def weight_start(
    design: WeightDesign, curves: tuple[Curve, Curve], laplaces: Sequence[Laplace]
) -> State:
    """The base distribution at the mode of the single family, without further weights."""
    linear = design.design
    split = [
        np.split(p.state.coefficients, c.design.ends) for c, p in zip(curves, laplaces, strict=True)
    ]
    sizes = sum(len(own[-1]) for own in split)
    lines = np.concatenate([np.concatenate([own[-1] for own in split]), linear.line_mean[sizes:]])
    wiggles = [*split[1][:-1], *split[0][:-1]]
    free = linear.whole.shape[1] - len(lines) - sum(map(len, wiggles))
    return State.starting(linear, np.concatenate([np.zeros(free), *wiggles, lines]))


def joint_cells(stats: Statistics, name: str) -> dict[str, NDArray[Any]]:
    """Joint cells, or an error with the remedy."""
    if not stats.coarse:
        raise FitError(
            f"soc.{name}() reads joint cells, which these statistics lack: make them with "
            "soc.summarize(items, joint=True)"
        )
    return stats.cells("joint")
