"""Gauss rules: nodes and weights that replace draws of two curves.

Where draws of both curves at an item are averaged, few nodes with the draws' own moments give
nearly the same averages of smooth functions.
"""

import numpy as np

from .._lib.arrays import Floats

_ROUNDING = 1e-12  # a curve that the draws agree on has a spread of rounding alone
_LEAST = 1e-7  # least norm of a polynomial of standardised draws, unless they take few values


def _standardised(x: Floats, size: Floats) -> tuple[Floats, Floats]:
    """Centred draws over their sd, and this sd, (n, 1): 0 if it is rounding of a `size`."""
    sd = np.sqrt((x * x).mean(axis=1, keepdims=True))
    sd = np.where(sd <= _ROUNDING * size, 0.0, sd)
    return _over(x, sd), sd


def _over(x: Floats, divisor: Floats) -> Floats:
    return x * np.divide(1.0, divisor, out=np.zeros_like(divisor), where=divisor > 0.0)


def _recurrence(x: Floats, number: int) -> tuple[Floats, Floats]:
    """Orthonormal polynomials (n, number, draws) by Stieltjes' procedure, and their Jacobi matrix.

    Draws of fewer values than polynomials give polynomials of 0 and nodes of weight 0.
    """
    poly, jacobi = np.ones((len(x), number, x.shape[1])), np.zeros((len(x), number, number))
    for k in range(number):
        current = poly[:, k]
        alpha = (x * current**2).mean(axis=1, keepdims=True)
        jacobi[:, k, k] = alpha[:, 0]
        if k == number - 1:
            break
        following = (x - alpha) * current
        if k:
            following -= jacobi[:, k, k - 1, None] * poly[:, k - 1]
        norm = np.sqrt((following**2).mean(axis=1, keepdims=True))
        beta = np.where(norm > _LEAST, norm, 0.0)
        poly[:, k + 1] = _over(following, beta)
        jacobi[:, k, k + 1] = jacobi[:, k + 1, k] = beta[:, 0]
    return poly, jacobi


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
    centre, other = (x.mean(axis=1, keepdims=True) for x in (location, dispersion))
    x, sd = _standardised(location - centre, np.abs(location).max(axis=1, keepdims=True))
    z = dispersion - other
    slope = (x * z).mean(axis=1, keepdims=True)
    z, remaining_sd = _standardised(z - slope * x, 1.0 + np.abs(other))  # a logarithm
    (poly_x, jacobi_x), (poly_z, jacobi_z) = _recurrence(x, number), _recurrence(z, number)
    joint = poly_x @ poly_z.swapaxes(1, 2) / x.shape[1]
    (at_x, vector_x), (at_z, vector_z) = np.linalg.eigh(jacobi_x), np.linalg.eigh(jacobi_z)
    # Lagrange's polynomials at Gauss nodes are sums of the orthonormal ones
    weight = (vector_x * vector_x[:, :1]).swapaxes(1, 2) @ joint @ (vector_z * vector_z[:, :1])
    first = np.broadcast_to((centre + sd * at_x)[:, :, None], weight.shape)
    second = (other + slope * at_x)[:, :, None] + (remaining_sd * at_z)[:, None]
    return np.stack([weight, first, second], axis=1).reshape(len(x), 3, number**2)
