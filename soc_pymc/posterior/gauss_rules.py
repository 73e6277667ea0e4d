"""Gauss rules: few weighted pairs of both curves with the moments of many draws."""

from typing import NamedTuple

import numpy as np

from .._lib.arrays import Floats

# a curve that the draws agree on has a spread of rounding alone
_ROUNDING = 1e-12


class _Rule(NamedTuple):
    """Gauss rules of n sets of draws with mean 0 and variance 1."""

    nodes: Floats  # (n, K)
    lagrange: (
        # (n, K, K): coefficients of the powers in the polynomial of each node
        Floats
    )
    powers: Floats  # (n, K, draws): of the draws


def gauss_rules(location: Floats, dispersion: Floats, number: int) -> Floats:
    """Weights and both curves, (n, 3, K^2), of K nodes a curve for draws (n, draws).

    Averages are exact for polynomials of degree 2K - 1 in the first curve, and for products of
    degree K - 1 in each. Weights sum to 1 and may be negative.
    """
    centre, level = (
        draws.mean(axis=1, keepdims=True) for draws in (location, dispersion)
    )
    x, sd = _standardised(location - centre, np.abs(centre))
    z = dispersion - level
    slope = _means(x, z)
    # a logarithm
    z, remaining_sd = _standardised(z - slope * x, 1.0 + np.abs(level))
    first = _rule(x, number)
    second = _rule(z, number)
    mixed = first.powers @ second.powers.swapaxes(1, 2) / x.shape[1]
    weight = first.lagrange.swapaxes(1, 2) @ mixed @ second.lagrange
    locations = np.broadcast_to((centre + sd * first.nodes)[:, :, None], weight.shape)
    along = (level + slope * first.nodes)[:, :, None]
    dispersions = along + (remaining_sd * second.nodes)[:, None]
    return np.stack([weight, locations, dispersions], axis=1).reshape(
        len(x), 3, number**2
    )


def _means(first: Floats, second: Floats) -> Floats:
    """Means (n, 1) of products of draws (n, draws)."""
    return np.asarray(np.vecdot(first, second)[:, None] / first.shape[1])


def _standardised(x: Floats, size: Floats) -> tuple[Floats, Floats]:
    """Centred draws over their sd, and this sd, (n, 1): 0 if it is rounding of a `size`."""
    sd = np.sqrt(_means(x, x))
    sd = np.where(sd <= _ROUNDING * size, 0.0, sd)
    x *= np.where(sd > 0.0, 1.0, 0.0) / np.where(sd > 0.0, sd, 1.0)
    return x, sd


def _rule(x: Floats, number: int) -> _Rule:
    """Gauss rules of standardised draws (n, draws), from their moments."""
    powers = np.ones((len(x), number, x.shape[1]))
    for k in range(1, number):
        np.multiply(powers[:, k - 1], x, out=powers[:, k])
    pairs = [(k // 2, k - k // 2) for k in range(2 * number - 1)]
    moments = [_means(powers[:, i], powers[:, j]) for i, j in pairs]
    moments.append(_means(powers[:, -1] * x, powers[:, -1]))
    hankel = np.add.outer(np.arange(number), np.arange(number))
    by_power = np.hstack(moments)
    # few different draws have no further polynomials: these get no weight
    square = by_power[:, hankel] + _ROUNDING * np.eye(number)
    inverse = np.linalg.inv(np.linalg.cholesky(square))
    transposed = inverse.swapaxes(1, 2)
    nodes, vectors = np.linalg.eigh(inverse @ by_power[:, hankel + 1] @ transposed)
    return _Rule(nodes, transposed @ (vectors * vectors[:, :1]), powers)
