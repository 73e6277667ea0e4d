"""Laplace approximation of coefficients at their penalised mode.

Coordinates diagonalise the information. Fisher scoring with re-estimated smoothing scales finds the
mode.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from types import ModuleType
from typing import NamedTuple

import numpy as np
from scipy import linalg, special

from .._lib.arguments import FitError
from .._lib.arrays import Floats, Pair, Triple
from ..families.rows import RowSums, Tensor
from .terms import Design, State

ROOT2 = float(np.sqrt(2.0))
# relative to the diagonal of the information, which is singular with equal columns
_INFORMATION_RIDGE = 1e-12
# smallest observed information, as a share of the lower bound of the expected one
_LEAST_INFORMATION = 0.2
_SCALE_POSITIONS = np.linspace(-5.0, 5.0, 401)
_MOST_TERMS = 500  # coefficients whose scale is evaluated at once
_NONE = np.empty(0)
_MODE_ROUNDS = 60
_MODE_HALVINGS = 30


@dataclass(frozen=True, eq=False)
class BlockLaplace:
    """Gaussian approximation of one block, in coordinates z that diagonalise its information.

    Given tau and the coefficients e of the blocks before, z is about N((pull - coupling @ e) s^2,
    s^2) with s^2 = tau^2 / (1 + precision tau^2).
    """

    rotation: Floats  # orthogonal (k, k): coefficients = rotation @ z
    precision: Floats
    pull: Floats
    coupling: Floats
    mode_pull: Floats  # pull - coupling @ e at the mode


@dataclass(frozen=True, eq=False)
class Laplace:
    """Gaussian approximation of the coefficients of one design.

    Given the rotated coefficients z of all blocks, those of the line are about
    ``line_centre - line_shift @ z + line_root @ N(0, I)``.
    """

    blocks: tuple[BlockLaplace, ...]
    # matrix from z and the line's coefficients to all coefficients
    turn: Floats
    line_centre: Floats
    line_shift: Floats
    line_root: Floats
    state: State  # where the search ended
    converged: bool = True  # whether the search had converged


def floored(bound: Floats, observed: Floats) -> Floats:
    """Observed information, at least `_LEAST_INFORMATION` times a bound; also of stacks."""
    diagonal = np.diagonal(bound, axis1=-2, axis2=-1)
    unit = np.sqrt(np.where(diagonal > 0.0, diagonal, 1.0))
    pairs = unit[..., :, None] * unit[..., None, :]
    root = np.linalg.cholesky(
        bound / pairs + _INFORMATION_RIDGE * np.eye(bound.shape[-1])
    )
    half = np.linalg.solve(root, observed / pairs)
    ratio = np.linalg.solve(root, half.mT)
    value, vector = np.linalg.eigh(0.5 * (ratio + ratio.mT))
    half = (root @ vector) * np.sqrt(np.maximum(value, _LEAST_INFORMATION))[
        ..., None, :
    ]
    return half @ half.mT * pairs


def half_normal_scale(
    position: Tensor,
    scale: Tensor,
    xp: ModuleType = np,
    functions: ModuleType = special,
) -> Tensor:
    """Tau with P(tau < .) half-normal of the given scale, at a standard normal position q."""
    low = functions.erfinv(0.5 * functions.erfc(-xp.minimum(position, 0.0) / ROOT2))
    high = functions.erfcinv(0.5 * functions.erfc(xp.maximum(position, 0.0) / ROOT2))
    return scale * ROOT2 * xp.where(position < 0.0, low, high)


def scale_log_density(
    position: Floats, scale: float, precision: Floats, pull: Floats
) -> Floats:
    """Log posterior density of q, tau = half_normal_scale(q), with coefficients integrated out."""
    tau2 = half_normal_scale(position, scale)[:, None] ** 2
    total = -0.5 * position**2
    for start in range(0, len(precision), _MOST_TERMS):
        part = slice(start, start + _MOST_TERMS)
        shrink = 1.0 + precision[part] * tau2
        total += 0.5 * (pull[part] ** 2 * tau2 / shrink - np.log(shrink)).sum(axis=1)
    return total


def best_tau(scale: float, precision: Floats, pull: Floats) -> float:
    """Posterior mean position of tau, which unlike the mode is never 0."""
    if not len(precision):
        return scale
    log_density = scale_log_density(_SCALE_POSITIONS, scale, precision, pull)
    weight = np.exp(log_density - log_density.max())
    position = np.array(weight @ _SCALE_POSITIONS / weight.sum())
    return float(half_normal_scale(position, scale))


def solve_scaled(matrix: Floats, right: Floats) -> Floats:
    """Solution for a positive definite matrix of coefficients in any units."""
    unit = np.sqrt(np.diagonal(matrix))
    rows = unit if right.ndim == 1 else unit[:, None]
    return (
        linalg.solve(matrix / np.outer(unit, unit), right / rows, assume_a="pos") / rows
    )


def _integrate_line(
    information: Floats, slope: Floats, precision: Floats, deviation: Floats, size: int
) -> Pair:
    """Information and slope of the first coefficients, the others integrated out at their taus."""
    integrated = slice(size, len(slope))
    remaining = slice(size)
    block = information[integrated, integrated] + np.diag(precision[integrated])
    response = solve_scaled(block, information[integrated, remaining])
    right = slope[integrated] - precision[integrated] * deviation[integrated]
    reduced = (
        information[remaining, remaining]
        - information[remaining, integrated] @ response
    )
    return reduced, slope[remaining] - response.T @ right


def laplace_of(
    design: Design, state: State, slope: Floats, information: Floats
) -> Laplace:
    """Coordinates from the log marginal's slope and information in all coefficients."""
    mean, precision = state.prior(design)
    x = state.coefficients
    ends = [0, *design.ends.tolist()]
    lines = slice(ends[-1], None)
    line_information = information[lines, lines] + np.diag(precision[lines])
    shift = solve_scaled(line_information, information[lines, : ends[-1]])
    upper = linalg.cholesky(line_information)
    root = linalg.solve_triangular(upper, np.eye(len(upper)))
    turned: list[tuple[Floats, ...]] = []  # of the blocks
    for start, end in reversed(list(pairwise(ends))):
        information, slope = _integrate_line(
            information, slope, precision, x - mean, end
        )
        value, rotation = _diagonalised(information[start:end, start:end])
        pull = slope[start:end] + information[start:end, :end] @ x[:end]
        turned.insert(
            0, (rotation, value, rotation.T @ pull, information[start:end, :start])
        )
    whole_turn = linalg.block_diag(
        *(rotation for rotation, *_ in turned), np.eye(len(upper))
    )
    turn = whole_turn[: ends[-1], : ends[-1]]
    z = turn.T @ x[: ends[-1]]
    blocks = []
    for start, (rotation, value, pull, coupling) in zip(ends, turned, strict=False):
        rotated = rotation.T @ coupling @ turn[:start, :start]
        blocks.append(
            BlockLaplace(rotation, value, pull, rotated, pull - rotated @ z[:start])
        )
    centre = x[lines] + shift @ x[: ends[-1]]
    return Laplace(
        blocks=tuple(blocks),
        turn=whole_turn,
        line_centre=centre,
        line_shift=shift @ turn,
        line_root=root,
        state=state,
    )


def _diagonalised(information: Floats) -> Pair:
    """Eigenvalues, falling and at least 0, and eigenvectors with signs that rounding keeps."""
    value, rotation = linalg.eigh(0.5 * (information + information.T))
    value = np.maximum(value[::-1], 0.0)
    rotation = rotation[:, ::-1]
    if len(value):
        largest = np.abs(rotation).argmax(axis=0)
        rotation = rotation * np.sign(rotation[largest, np.arange(len(value))])
    return value, rotation


# --- the search for the mode ----------------------------------------------------------------------


class Curvature(NamedTuple):
    """The log marginal at given coefficients; only the values if one is not finite."""

    value: Floats  # row by row
    slopes: Sequence[Floats]  # in the coefficients of each design
    # of the coefficients of each design, positive definite
    information: Sequence[Floats]
    # information between levels that are integrated out and shared coefficients
    coupling: Floats = _NONE
    # information between both curves' coefficients; empty if it is 0
    between: Floats = _NONE

    def length(self, steps: Sequence[Floats]) -> float:
        """Squared length of steps."""
        pairs = zip(self.information, steps, strict=True)
        return float(sum((x * (w @ x[..., None])[..., 0]).sum() for w, x in pairs))


class Target(ABC):
    """The log marginal of all rows as a function of the coefficients of some designs."""

    designs: Sequence[Design]  # information between them is 0 unless a curvature has it

    @abstractmethod
    def curvature(self, states: Sequence[State]) -> Curvature:
        """Values, slopes and information."""

    @abstractmethod
    def relative_length(self, steps: Sequence[Floats]) -> float:
        """Length of the longest step relative to the largest allowed."""

    def rescaled(
        self, states: Sequence[State], laplaces: Sequence[Laplace], curvature: Curvature
    ) -> list[State]:
        """The states with re-estimated smoothing scales."""
        rescaled = []
        for design, state, laplace in zip(self.designs, states, laplaces, strict=False):
            blocks = zip(design.blocks, laplace.blocks, strict=True)
            taus = tuple(best_tau(b.scale, z.precision, z.mode_pull) for b, z in blocks)
            rescaled.append(replace(state, taus=taus))
        return rescaled

    def steps(self, states: Sequence[State], curvature: Curvature) -> list[Floats]:
        """Steps to the mode of the quadratic at the states."""
        return list(map(solve_scaled, *self.penalised(states, curvature)))

    def penalised(
        self, states: Sequence[State], curvature: Curvature
    ) -> tuple[list[Floats], list[Floats]]:
        """Information and slopes of each design's coefficients, with those of the prior."""
        precisions = []
        slopes = []
        parts = (self.designs, states, curvature.information, curvature.slopes)
        for design, state, information, slope in zip(*parts, strict=False):
            mean, precision = state.prior(design)
            precisions.append(information + np.diag(precision))
            slopes.append(slope - precision * (state.coefficients - mean))
        return precisions, slopes

    def marginal(
        self, states: Sequence[State], curvature: Curvature
    ) -> tuple[Sequence[Floats], Sequence[Floats]]:
        """Slopes and information of the coefficients of each design, the others integrated out."""
        return curvature.slopes, curvature.information

    def log_density(self, states: Sequence[State], curvature: Curvature) -> float:
        """Log marginal of all rows and log prior of the coefficients; -inf where it is NaN."""
        log_prior = 0.0
        for state, design in zip(states, self.designs, strict=True):
            mean, precision = state.prior(design)
            log_prior += float(-0.5 * precision @ (state.coefficients - mean) ** 2)
        density = float(curvature.value.sum()) + log_prior
        return density if np.isfinite(density) else -np.inf


class RowCurvature(NamedTuple):
    """The log marginal of rows in their two parameters, each (2, rows) but the first."""

    value: Floats  # (rows,)
    slopes: Floats
    expected: Floats  # information; of the dispersion a lower bound
    observed: Floats  # information; of the location the expected one
    between: Floats  # expected and observed information between both


def row_curvature(data: RowSums, location: Floats, dispersion: Floats) -> RowCurvature:
    """Slopes and information of all rows."""
    expansion = data.expansion(location, dispersion)
    *expected, between = data.joint_information(location, dispersion)
    return RowCurvature(
        expansion.value,
        slopes=np.stack(expansion.slopes),
        expected=np.stack(expected),
        observed=np.stack([expected[0], -expansion.by_dispersion]),
        between=np.stack([between, -expansion.mixed]),
    )


def coefficient_curvature(
    designs: Sequence[Floats], rows: RowCurvature
) -> tuple[list[Floats], list[Floats]]:
    """Slopes and floored information in each curve's coefficients, from designs at the rows."""
    slopes = []
    information = []
    of_curves = rows.slopes, rows.expected, rows.observed
    for x, slope, *weights in zip(designs, *of_curves, strict=True):
        slopes.append(x.T @ slope)
        information.append(
            floored(*(x.T @ (weight[:, None] * x) for weight in weights))
        )
    return slopes, information


def _joint_information(designs: Sequence[Floats], rows: RowCurvature) -> Triple:
    """Floored information of both curves' coefficients, and between them."""
    first, second = designs

    def whole(diagonal: Floats, between: Floats) -> Floats:
        ends = [x.T @ (w[:, None] * x) for x, w in zip(designs, diagonal, strict=True)]
        cross = first.T @ (between[:, None] * second)
        return np.block([[ends[0], cross], [cross.T, ends[1]]])

    matrix = floored(
        whole(rows.expected, rows.between[0]), whole(rows.observed, rows.between[1])
    )
    size = first.shape[1]
    return matrix[:size, :size], matrix[size:, size:], matrix[:size, size:]


@dataclass(eq=False)
class CurveTarget(Target):
    """Rows of one family; information between its two curves is 0, unless its rows couple them."""

    designs: Sequence[Design]
    data: RowSums

    def curves(self, coefficients: Sequence[Floats]) -> Floats:
        """Both curves (2, rows) at coefficients."""
        pairs = zip(self.designs, coefficients, strict=True)
        return np.stack([design.matrix @ values for design, values in pairs])

    def curvature(self, states: Sequence[State]) -> Curvature:
        """Values, slopes and information."""
        location, dispersion = self.curves([state.coefficients for state in states])
        if not (np.abs([location, dispersion]).max(axis=1) <= self.data.most).all():
            return Curvature(np.full(len(location), -np.inf), [], [])
        rows = row_curvature(self.data, location, dispersion)
        if not np.isfinite(rows.value).all():
            return Curvature(rows.value, [], [])
        designs = [design.matrix for design in self.designs]
        if not self.data.coupled:
            return Curvature(rows.value, *coefficient_curvature(designs, rows))
        slopes = [x.T @ slope for x, slope in zip(designs, rows.slopes, strict=True)]
        first, second, between = _joint_information(designs, rows)
        return Curvature(rows.value, slopes, [first, second], between=between)

    def steps(self, states: Sequence[State], curvature: Curvature) -> list[Floats]:
        """Steps of both curves together, if rows couple them."""
        if not curvature.between.size:
            return super().steps(states, curvature)
        (first, second), right = self.penalised(states, curvature)
        between = curvature.between
        joint = np.block([[first, between], [between.T, second]])
        steps = solve_scaled(joint, np.concatenate(right))
        return np.split(steps, [len(first)])

    def marginal(
        self, states: Sequence[State], curvature: Curvature
    ) -> tuple[Sequence[Floats], Sequence[Floats]]:
        """Slopes and information of each curve's coefficients, the other's integrated out."""
        if not curvature.between.size:
            return super().marginal(states, curvature)
        precisions, right = self.penalised(states, curvature)
        slopes = []
        information = []
        couplings = curvature.between.T, curvature.between
        for k, coupling in enumerate(couplings):
            response = solve_scaled(precisions[1 - k], coupling)
            slopes.append(curvature.slopes[k] - response.T @ right[1 - k])
            information.append(curvature.information[k] - coupling.T @ response)
        return slopes, information

    def relative_length(self, steps: Sequence[Floats]) -> float:
        """Relative step length as in `Target`."""
        # far above the data the log marginal is very flat, so returning takes many steps
        moves = np.abs(self.curves(steps)).max(axis=1)
        return float(np.max(moves / self.data.farthest))


@dataclass(frozen=True, eq=False)
class Mode:
    """Where a search ended."""

    laplaces: list[Laplace]
    states: list[State]
    curvature: Curvature


def find_mode(
    target: Target, start: Sequence[State], *, enough: float = 1e-3, ahead: bool = False
) -> Mode:
    """Find the mode, with information before the last step, or after it with `ahead`."""
    states = list(start)
    curvature = target.curvature(start)
    count = int((~np.isfinite(curvature.value)).sum())
    if count:
        raise FitError(
            f"the log marginal of {count} bins is not finite at the start: are outcomes, exposures "
            "or noise in units that make theta astronomically large or small?"
        )
    for _ in range(_MODE_ROUNDS):
        laplaces = _laplaces_of(target, states, curvature)
        before = states
        scaled = target.rescaled(states, laplaces, curvature)
        states, curvature, length = _line_search(target, scaled, curvature)
        taus, taus_before = (
            np.concatenate([s.taus for s in x]) for x in (states, before)
        )
        change = np.log(taus / taus_before)
        converged = (
            length < enough and float(np.abs(change).max(initial=0.0)) < 10.0 * enough
        )
        if converged:
            break
    if ahead:
        laplaces = _laplaces_of(target, states, curvature)
    laplaces = [replace(laplace, converged=converged) for laplace in laplaces]
    return Mode(laplaces, states, curvature)


def _laplaces_of(
    target: Target, states: Sequence[State], curvature: Curvature
) -> list[Laplace]:
    return list(
        map(laplace_of, target.designs, states, *target.marginal(states, curvature))
    )


def _line_search(
    target: Target, states: Sequence[State], curvature: Curvature
) -> tuple[list[State], Curvature, float]:
    """The longest step, by halving, that does not lower the density, and its squared length."""
    steps = target.steps(states, curvature)
    density = target.log_density(states, curvature)
    factor = 1.0 / max(target.relative_length(steps), 1.0)
    for _ in range(_MODE_HALVINGS):
        shifted = [
            replace(state, coefficients=state.coefficients + factor * step)
            for state, step in zip(states, steps, strict=True)
        ]
        ahead = target.curvature(shifted)
        if target.log_density(shifted, ahead) >= density - 1e-9 * abs(density):
            return shifted, ahead, factor**2 * curvature.length(steps)
        factor *= 0.5
    return list(states), curvature, np.inf
