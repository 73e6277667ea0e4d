"""Gauss rules: nodes and weights that replace draws of two curves.

Where draws of both curves at an item are averaged, few nodes with the draws' own moments give
nearly the same averages of smooth functions.
"""

import numba
import numpy as np

from .._lib.arrays import Floats

_jit = numba.njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract", "reassoc"})
_ROUNDING = 1e-12  # a curve that the draws agree on has a spread of rounding alone
_LEAST = 1e-7  # least norm of a polynomial of standardised draws, unless they take few values


@_jit
def _dot(a, b):  # type: ignore[no-untyped-def]
    total = 0.0
    for s in range(len(a)):
        total += a[s] * b[s]
    return total / len(a)


@_jit
def _standardise(x, size):  # type: ignore[no-untyped-def]
    """Divide centred draws by their sd, in place; the sd, 0 if it is rounding of a `size`."""
    sd = np.sqrt(_dot(x, x))
    if sd <= _ROUNDING * size:
        sd = 0.0
    x *= 1.0 / sd if sd > 0.0 else 0.0
    return sd


@_jit
def _recurrence(x, poly, jacobi):  # type: ignore[no-untyped-def]
    """Orthonormal polynomials (number, draws) by Stieltjes' procedure, and their Jacobi matrix.

    Draws of fewer values than polynomials give polynomials of 0 and nodes of weight 0.
    """
    beta, last = 0.0, len(poly) - 1
    poly[0] = 1.0
    for k in range(last + 1):
        current, previous = poly[k], poly[max(k - 1, 0)]
        alpha = 0.0
        for s in range(len(x)):
            alpha += x[s] * current[s] * current[s]
        alpha /= len(x)
        jacobi[k, k] = alpha
        if k == last:
            break
        new, square = poly[k + 1], 0.0
        for s in range(len(x)):
            new[s] = (x[s] - alpha) * current[s] - beta * previous[s]
            square += new[s] * new[s]
        norm = np.sqrt(square / len(x))
        beta = norm if norm > _LEAST else 0.0
        new *= 1.0 / beta if beta > 0.0 else 0.0
        jacobi[k, k + 1] = jacobi[k + 1, k] = beta


@_jit
def _fill(location, dispersion, number, out):  # type: ignore[no-untyped-def]
    """Fill `out` (n, 3, number^2) with weights and both curves at the nodes of draws (n, draws)."""
    draws = location.shape[1]
    x, z = np.empty((2, draws))
    poly = np.empty((2, number, draws))
    jacobi = np.zeros((2, number, number))
    for i in range(len(location)):
        centre, other = location[i].mean(), dispersion[i].mean()
        x[:], z[:] = location[i] - centre, dispersion[i] - other
        sd = _standardise(x, np.abs(location[i]).max())
        slope = _dot(x, z)
        z -= slope * x
        remaining_sd = _standardise(z, 1.0 + abs(other))  # a logarithm
        _recurrence(x, poly[0], jacobi[0])
        _recurrence(z, poly[1], jacobi[1])
        joint = np.dot(poly[0], poly[1].T) / draws
        at_x, vector_x = np.linalg.eigh(jacobi[0])
        at_z, vector_z = np.linalg.eigh(jacobi[1])
        # Lagrange's polynomials at Gauss nodes are sums of the orthonormal ones
        weight = np.dot((vector_x * vector_x[0]).T, np.dot(joint, vector_z * vector_z[0]))
        for j in range(number):
            for k in range(number):
                place = j * number + k
                out[i, 0, place] = weight[j, k]
                out[i, 1, place] = centre + sd * at_x[j]
                out[i, 2, place] = other + slope * at_x[j] + remaining_sd * at_z[k]


def gauss_rules(location: Floats, dispersion: Floats, number: int) -> Floats:
    """Nodes and weights that average smooth functions of two curves over their draws (n, draws).

    For K nodes a curve, rules are (n, 3, K^2): weights and both curves. Polynomials in the first
    curve of degree 2K - 1, and products of degree K - 1 in each, are averaged exactly. Weights sum
    to 1 and may be negative.

    Examples
    --------
    >>> weight, x, z = gauss_rules(np.array([[-1.0, 1.0]]), np.array([[0.0, 2.0]]), 2)[0]
    >>> float((weight * x * z).sum().round(12))
    1.0
    """
    out = np.empty((len(location), 3, number**2))
    _fill(np.ascontiguousarray(location), np.ascontiguousarray(dispersion), number, out)
    return out
