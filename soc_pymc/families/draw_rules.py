"""Few weighted nodes that stand for many draws of two curves.

A function of the two is averaged over the draws by a product of two Gauss rules for the draws' own
distribution (Gautschi 2004, section 2.2), with weights that also reproduce their joint moments.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["Nodes", "Rule", "gauss_rules", "product_rule"]

Floats = NDArray[np.float64]
Rule = tuple[Floats, Floats, Floats]  # weights and both curves at the nodes

# three-point Gauss-Hermite rule, exact for polynomials up to degree 5
_NODE = np.sqrt(3.0) * np.array([-1.0, 0.0, 1.0])
_WEIGHT = np.array([1.0, 4.0, 1.0]) / 6.0


@dataclass(frozen=True)
class Nodes:
    """Gauss rules of a fit's draws at a grid of scores, to be interpolated between them.

    The grid is of scores, or of their logarithms, and reaches beyond the outer knots on both sides
    by half the distance between them.
    """

    log: bool  # whether the grid is of logarithms
    grid: Floats
    start: NDArray[np.int64]  # cell in which each step of 1 / scale from the first point begins
    scale: float
    level: NDArray[np.int64]  # (grid - 1,): rule of the cell after a point; the last: all draws
    rules: tuple[Floats, ...]  # by level, (grid, 3, nodes): weights and both parameters of theta
    # by level, how far nodes' posteriors may be spread out, against the width of each, squared
    limits: Floats


def _recurrence(x: Floats, number: int) -> tuple[Floats, Floats]:
    """Orthonormal polynomials of draws (draws, n) by Stieltjes' procedure, and Jacobi matrices.

    Draws of fewer than `number` distinct values give polynomials of 0 and nodes of weight 0.
    """
    draws, n = x.shape
    poly = np.zeros((number, draws, n))
    jacobi = np.zeros((n, number, number))
    poly[0] = 1.0
    beta = np.zeros(n)
    for k in range(number):
        times_x = x * poly[k]
        alpha = np.einsum("sn,sn->n", times_x, poly[k]) / draws
        jacobi[:, k, k] = alpha
        if k + 1 == number:
            break
        rest = times_x
        rest -= alpha * poly[k]
        if k:
            rest -= beta * poly[k - 1]
        norm = np.sqrt(np.einsum("sn,sn->n", rest, rest) / draws)
        beta = np.where(norm > 1e-7, norm, 0.0)
        poly[k + 1] = rest * np.where(beta > 0, 1.0 / np.where(beta > 0, norm, 1.0), 0.0)
        jacobi[:, k, k + 1] = jacobi[:, k + 1, k] = beta
    return poly, jacobi


def _standardised(first: Floats, second: Floats) -> tuple[Floats, Floats, tuple[Floats, ...]]:
    """Draws of the first curve and of what it leaves of the second, each in its own sd."""
    centre, other = first.mean(axis=0), second.mean(axis=0)
    x, z = first - centre, second - other
    # a curve that the draws agree on has a spread of rounding alone, which is no spread
    sd = np.sqrt(np.einsum("sn,sn->n", x, x) / len(x))
    sd = np.where(sd > 1e-12 * (1.0 + np.abs(centre)), sd, 0.0)
    x *= np.where(sd > 0, 1.0 / np.where(sd > 0, sd, 1.0), 0.0)
    slope = np.einsum("sn,sn->n", x, z) / len(x)
    z -= slope * x
    left = np.sqrt(np.einsum("sn,sn->n", z, z) / len(z))
    left = np.where(left > 1e-12 * (1.0 + np.abs(other)), left, 0.0)
    z *= np.where(left > 0, 1.0 / np.where(left > 0, left, 1.0), 0.0)
    return x, z, (centre, sd, other, slope, left)


def gauss_rules(first: ArrayLike, second: ArrayLike, numbers: Sequence[int]) -> list[Rule]:
    """Nodes and weights that average smooth functions of two curves over their draws.

    Draws are (draws, n). For each number K of nodes a curve, the rule's arrays are (K^2, n).
    Polynomials in the first curve of degree 2K - 1, and products of degree K - 1 in each, are
    averaged exactly. Weights sum to 1 and may be negative. All rules cost little more than the
    largest.

    Examples
    --------
    >>> (weight, x, z), = gauss_rules([[-1.0], [1.0]], [[0.0], [2.0]], [2])
    >>> float((weight * x * z).sum().round(12))
    1.0
    """
    first, second = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    x, z, (centre, sd, other, slope, left) = _standardised(first, second)
    poly_x, jacobi_x = _recurrence(x, max(numbers))
    poly_z, jacobi_z = _recurrence(z, max(numbers))
    joint = np.matmul(poly_x.transpose(2, 0, 1), poly_z.transpose(2, 1, 0)) / len(x)
    rules: list[Rule] = []
    for k in numbers:
        at_x, vector_x = np.linalg.eigh(jacobi_x[:, :k, :k])
        at_z, vector_z = np.linalg.eigh(jacobi_z[:, :k, :k])
        # Lagrange's polynomials at Gauss nodes are sums of the orthonormal ones
        lift_x, lift_z = vector_x * vector_x[:, :1], vector_z * vector_z[:, :1]
        weight = np.matmul(lift_x.transpose(0, 2, 1), np.matmul(joint[:, :k, :k], lift_z))
        n1 = (centre[:, None] + sd[:, None] * at_x)[:, :, None]
        n2 = (other[:, None] + slope[:, None] * at_x)[:, :, None] + (left[:, None] * at_z)[:, None]
        rules.append((_flat(weight), _flat(np.broadcast_to(n1, n2.shape)), _flat(n2)))
    return rules


def _flat(values: Floats) -> Floats:
    return np.ascontiguousarray(values.reshape(len(values), -1).T)


def product_rule(
    log_mean: Floats, log_cv2: Floats, var_mean: Floats, both: Floats, var_cv2: Floats
) -> tuple[Floats, Floats, Floats]:
    """Nine nodes with given means and covariances: three-point Gauss-Hermite rules, multiplied.

    Takes the means, variances and covariance of both curves, (n,); gives weights (9,) and both
    curves (9, n).
    """
    sd = np.sqrt(np.maximum(var_mean, 0.0))
    slope = np.divide(both, sd, out=np.zeros_like(sd), where=sd > 0)
    rest = np.sqrt(np.maximum(var_cv2 - slope**2, 0.0))
    first, second = (x.ravel()[:, None] for x in np.meshgrid(_NODE, _NODE, indexing="ij"))
    weight = np.outer(_WEIGHT, _WEIGHT).ravel()
    return weight, log_mean + first * sd, log_cv2 + first * slope + second * rest
