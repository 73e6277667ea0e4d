"""Laplace approximation of coefficients, in coordinates that diagonalise their information."""

from dataclasses import dataclass
from itertools import pairwise
from types import ModuleType

import numpy as np
from scipy import linalg, special

from .._lib.arrays import Floats
from ..families.rows import Tensor
from .terms import Design, State

ROOT2 = float(np.sqrt(2.0))
# relative to the diagonal of the information, which is singular with equal columns
_RIDGE = 1e-12
# smallest observed information, as a share of the lower bound of the expected one
_LEAST = 0.2
_POSITIONS = np.linspace(-5.0, 5.0, 401)
_MOST_TERMS = 500  # coefficients whose scale is evaluated at once


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
    """Observed information, at least ``_LEAST`` times a bound; matrices, or stacks of them."""
    diagonal = np.diagonal(bound, axis1=-2, axis2=-1)
    unit = np.sqrt(np.where(diagonal > 0.0, diagonal, 1.0))
    pairs = unit[..., :, None] * unit[..., None, :]
    root = np.linalg.cholesky(bound / pairs + _RIDGE * np.eye(bound.shape[-1]))
    half = np.linalg.solve(root, observed / pairs)
    ratio = np.linalg.solve(root, half.mT)
    value, vector = np.linalg.eigh(0.5 * (ratio + ratio.mT))
    half = (root @ vector) * np.sqrt(np.maximum(value, _LEAST))[..., None, :]
    return np.asarray(half @ half.mT) * pairs


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
    log_density = scale_log_density(_POSITIONS, scale, precision, pull)
    weight = np.exp(log_density - log_density.max())
    position = np.array(weight @ _POSITIONS / weight.sum())
    return float(half_normal_scale(position, scale))


def solve_scaled(matrix: Floats, right: Floats) -> Floats:
    """Solution for a positive definite matrix of coefficients in any units."""
    unit = np.sqrt(np.diagonal(matrix))
    rows = unit if right.ndim == 1 else unit[:, None]
    return np.asarray(
        linalg.solve(matrix / np.outer(unit, unit), right / rows, assume_a="pos") / rows
    )


def _integrated(
    information: Floats, slope: Floats, precision: Floats, deviation: Floats, size: int
) -> tuple[Floats, Floats]:
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
        information, slope = _integrated(information, slope, precision, x - mean, end)
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
    return Laplace(tuple(blocks), whole_turn, centre, shift @ turn, root, state)


def _diagonalised(information: Floats) -> tuple[Floats, Floats]:
    """Eigenvalues, falling and at least 0, and eigenvectors with signs that rounding keeps."""
    value, rotation = linalg.eigh(0.5 * (information + information.T))
    value = np.maximum(value[::-1], 0.0)
    rotation = rotation[:, ::-1]
    if len(value):
        largest = np.abs(rotation).argmax(axis=0)
        rotation = rotation * np.sign(rotation[largest, np.arange(len(value))])
    return value, rotation
