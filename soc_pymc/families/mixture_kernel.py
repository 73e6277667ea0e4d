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


# log(1 + x) = x - x^2/2 + x^3 P(x) for sqrt(1/2) <= 1 + x < sqrt(2), to 1e-7
_P = np.array(
    [0.0703768363, -0.115146103, 0.116769987, -0.124201408, 0.142493228, -0.166680577, 0.200007148,
     -0.249999940, 0.333333312],
    dtype=np.float32,
)  # fmt: skip
_LOW, _ONE, _HALF = np.int32(0x3F3504F3), np.int32(23), np.float32(0.5)
_LOG2 = np.float32(np.log(2.0))


@numba.njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract", "nsz", "arcp"})
def _add_logs(p, many, total, bits, real, octave):  # type: ignore[no-untyped-def]
    """Add many * log p to the totals; `bits` and `real` are two views of one array.

    Plain arithmetic on the numbers' bits is vectorised, which calls of log are not: five times as
    fast.
    """
    whole = p.view(np.int32)
    for d in range(len(p)):
        e = (whole[d] - _LOW) >> _ONE
        bits[d] = whole[d] - (e << _ONE)
        octave[d] = np.float32(e)
    for d in range(len(p)):
        x = real[d] - np.float32(1.0)
        y = _P[0]
        for k in range(1, 9):
            y = y * x + _P[k]
        log = octave[d] * _LOG2 + (x + x * x * (x * y - _HALF))
        total[d] += many * np.float64(log)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def all_bins(tilt, value, slope, base, basis, start, items, density, constant):  # type: ignore[no-untyped-def]
    """Log marginals (draws, bins) and their slopes (draws, bins, J) at tilts (draws, bins, J)."""
    draws = tilt.shape[0]
    bits, octave = np.empty(draws, dtype=np.int32), np.empty(draws, dtype=np.float32)
    real = bits.view(np.float32)
    for b in range(tilt.shape[1]):
        functions = np.ascontiguousarray(basis[b])
        weight = np.ascontiguousarray(tilt[:, b]) @ functions.T + base[b]
        _softmax(weight)
        cells = density[start[b] : start[b + 1]]
        n = items[start[b] : start[b + 1]]
        p = cells @ weight.T.astype(np.float32)
        total = np.zeros(draws)
        for c in range(p.shape[0]):
            row, many = p[c], np.float32(n[c])
            for d in range(draws):
                # a draw far from the data may leave a cell with no density in single precision
                row[d] = max(row[d], np.float32(1e-37))
            _add_logs(row, n[c], total, bits, real, octave)
            for d in range(draws):
                row[d] = many / row[d]
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
