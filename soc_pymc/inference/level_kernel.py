"""Compiled solution of all levels' linear systems for all draws at once."""

import numba
import numpy as np


@numba.njit(cache=True, nogil=True, error_model="numpy")
def solve(information, tau, right):  # type: ignore[no-untyped-def]
    """Replace right (G, K, n, draws) by M^-1 right, M = I + D A D with D = diag(tau (K, draws)).

    Returns log det M (G, draws) and the diagonal of M^-1 (G, K, draws). M is swept (Goodnight 1979)
    for all draws at once, without a choice of pivots, as none is below 1.
    """
    levels, size, columns, draws = right.shape
    log_det = np.zeros((levels, draws))
    diagonal = np.empty((levels, size, draws))
    table = np.empty((size, size + columns, draws))
    for g in range(levels):
        for i in range(size):
            for j in range(size):
                table[i, j] = tau[i] * information[g, i, j] * tau[j]
            table[i, i] += 1.0
            table[i, size:] = right[g, i]
        for k in range(size):
            pivot = table[k, k].copy()
            log_det[g] += np.log(pivot)
            table[k, k] = 1.0
            table[k] /= pivot
            for i in range(size):
                if i != k:
                    factor = table[i, k].copy()
                    table[i, k] = 0.0
                    for j in range(size + columns):
                        for s in range(draws):  # as vector instructions, without a copy
                            table[i, j, s] -= factor[s] * table[k, j, s]
        for i in range(size):
            right[g, i] = table[i, size:]
            diagonal[g, i] = table[i, i]
    return log_det, diagonal
