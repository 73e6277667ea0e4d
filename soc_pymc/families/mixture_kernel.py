"""Log marginal of bins of outcomes under mixtures whose weights are tilted: compiled loops.

The tilt of a bin is a vector of J numbers; its components have log weights base + basis @ tilt,
up to a constant. Cells times components times draws are matrix products in single precision, whose
rounding (1e-7 a cell, of either sign) adds up to less than 1e-3 nats over a million items.
"""

import numba
import numpy as np
from numpy.typing import NDArray

from .components import MixtureCells

__all__ = ["all_bins", "information", "tilted_weights"]

Floats = NDArray[np.float64]


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _softmax(log_weight):  # type: ignore[no-untyped-def]
    """Rows of log weights to weights, in place."""
    for d in range(log_weight.shape[0]):
        row = log_weight[d]
        row -= row.max()
        total = 0.0
        for r in range(len(row)):
            row[r] = np.exp(row[r])
            total += row[r]
        row /= total


@numba.njit(cache=True, nogil=True, error_model="numpy")
def all_bins(tilt, value, slope, base, basis, start, items, density, constant):  # type: ignore[no-untyped-def]
    """Log marginals (draws, bins) and their slopes (draws, bins, J) at tilts (draws, bins, J)."""
    draws = tilt.shape[0]
    for b in range(tilt.shape[1]):
        functions = np.ascontiguousarray(basis[b])
        weight = np.ascontiguousarray(tilt[:, b]) @ functions.T + base[b]
        _softmax(weight)
        cells = density[start[b] : start[b + 1]]
        n = items[start[b] : start[b + 1]]
        p = cells @ weight.T.astype(np.float32)
        total = np.zeros(draws)
        for c in range(p.shape[0]):
            many = np.float32(n[c])
            for d in range(draws):
                # a draw far from the data may leave a cell with no density in single precision
                q = max(p[c, d], np.float32(1e-37))
                total[d] += n[c] * np.log(q)
                p[c, d] = many / q
        pull = (cells.T @ p).T
        away = weight * pull - weight * n.sum()
        slope[:, b] = away @ functions
        value[:, b] = total + constant[b]


def tilted_weights(tilt: Floats, base: Floats, basis: Floats) -> Floats:
    """Weights (..., n, R) at tilts (..., n, J) of n scores with log weights base + basis @ tilt."""
    log_weight = base + np.matmul(basis, tilt[..., None])[..., 0]
    log_weight -= log_weight.max(axis=-1, keepdims=True)
    weight = np.exp(log_weight)
    return np.asarray(weight / weight.sum(axis=-1, keepdims=True))


def information(tilt: Floats, cells: MixtureCells) -> tuple[Floats, Floats]:
    """Expected and observed information of the tilts (bins, J), each (bins, J, J).

    The expected one is estimated by the outer products of the cells' scores; the observed one is
    minus the second derivative, which need not be positive.
    """
    bins, functions = tilt.shape
    expected, observed = np.empty((2, bins, functions, functions))
    weights = tilted_weights(tilt, cells.base, cells.basis)
    for b, weight in enumerate(weights):
        at = slice(cells.start[b], cells.start[b + 1])
        phi, n = cells.basis[b], cells.items[at]
        joint = cells.density[at] * weight
        posterior = joint / np.maximum(joint.sum(axis=1, keepdims=True), 1e-300)
        centred = phi - weight @ phi
        score = posterior @ centred
        expected[b] = (score * n[:, None]).T @ score
        left = n.sum() * weight - n @ posterior
        observed[b] = expected[b] + (centred * left[:, None]).T @ centred
    return expected, observed
