"""Compiled sums over the levels of a grouping, whose few coefficients are integrated out.

In a Gaussian approximation a level's K coefficients b = D x, D = diag(tau) the sds of their prior,
have log likelihood u'b - b'A b / 2. So x is N(M^-1 D u, M^-1), M = I + D A D = L L', and its log
marginal is |L^-1 D u|^2 / 2 - log |L|. Nothing is divided by tau, which may be tiny.

Shapes: u (G, K, draws), tau (K, draws), A (G, K, K), noise (G, K, N, draws). The innermost loops
are over a block of draws, so that they are vector instructions.
"""

import numba
import numpy as np

_LEAST = 0.05  # pivot: A may be indefinite, and tau far above where it was found
_BLOCK = 32  # draws whose factors stay in the processor's nearest cache
_jit = numba.njit(cache=True, nogil=True, error_model="numpy")


@_jit
def _block(tau, first):  # type: ignore[no-untyped-def]
    """The columns of a block."""
    return tau[:, first : first + _BLOCK].copy()


@_jit
def _factor(own, tau, lower):  # type: ignore[no-untyped-def]
    """Cholesky factors (K, K, draws) of I + D A D, with the reciprocals of their diagonals."""
    size, draws = tau.shape
    for i in range(size):
        for j in range(i + 1):
            for s in range(draws):
                lower[i, j, s] = tau[i, s] * own[i, j] * tau[j, s]
            for k in range(j):
                for s in range(draws):
                    lower[i, j, s] -= lower[i, k, s] * lower[j, k, s]
            if j < i:
                for s in range(draws):
                    lower[i, j, s] *= lower[j, j, s]
            else:
                for s in range(draws):
                    lower[i, i, s] = 1.0 / np.sqrt(max(1.0 + lower[i, i, s], _LEAST))


@_jit
def _forward(lower, x):  # type: ignore[no-untyped-def]
    """L^-1 x in place; x (K, draws)."""
    size, draws = x.shape
    for i in range(size):
        for k in range(i):
            for s in range(draws):
                x[i, s] -= lower[i, k, s] * x[k, s]
        for s in range(draws):
            x[i, s] *= lower[i, i, s]


@_jit
def _backward(lower, x):  # type: ignore[no-untyped-def]
    """L'^-1 x in place."""
    size, draws = x.shape
    for i in range(size - 1, -1, -1):
        for k in range(i + 1, size):
            for s in range(draws):
                x[i, s] -= lower[k, i, s] * x[k, s]
        for s in range(draws):
            x[i, s] *= lower[i, i, s]


@_jit
def _log_det(lower, log_det):  # type: ignore[no-untyped-def]
    """Fill `log_det` (draws,) with log |L|."""
    log_det[:] = 0.0
    for i in range(len(lower)):
        for s in range(len(log_det)):
            log_det[s] -= np.log(lower[i, i, s])


@_jit
def gaussian_marginals(pull, tau, own, value):  # type: ignore[no-untyped-def]
    """Fill `value` (draws,) with the sum over levels of the log marginals; u is (G, K)."""
    value[:] = 0.0
    for first in range(0, tau.shape[1], _BLOCK):
        sd = _block(tau, first)
        size, draws = sd.shape
        lower, x, log_det = np.empty((size, size, draws)), np.empty(sd.shape), np.empty(draws)
        for g in range(len(pull)):
            _factor(own[g], sd, lower)
            for i in range(size):
                for s in range(draws):
                    x[i, s] = sd[i, s] * pull[g, i]
            _forward(lower, x)
            _log_det(lower, log_det)
            for s in range(draws):
                value[first + s] -= log_det[s]
            for i in range(size):
                for s in range(draws):
                    value[first + s] += 0.5 * x[i, s] * x[i, s]


@_jit
def _mean(pull, g, first, tau, lower, mean):  # type: ignore[no-untyped-def]
    """Means of x, M^-1 D u."""
    for i in range(len(tau)):
        for s in range(tau.shape[1]):
            mean[i, s] = tau[i, s] * pull[g, i, first + s]
    _forward(lower, mean)
    _backward(lower, mean)


@_jit
def proposals(pull, tau, own, noise, b, log_ratio):  # type: ignore[no-untyped-def]
    """Fill b (G, K, N, draws) from noise, and the log ratio (G, N, draws) of prior to proposal.

    The proposal without noise is the Gaussian's mean. Its likelihood times the ratio is Laplace's
    approximation of the level's marginal.
    """
    for first in range(0, tau.shape[1], _BLOCK):
        sd = _block(tau, first)
        size, draws = sd.shape
        lower, mean, log_det = np.empty((size, size, draws)), np.empty(sd.shape), np.empty(draws)
        x = np.empty(sd.shape)
        for g in range(len(pull)):
            _factor(own[g], sd, lower)
            _mean(pull, g, first, sd, lower, mean)
            _log_det(lower, log_det)
            for n in range(noise.shape[2]):
                x[:] = noise[g, :, n, first : first + draws]
                for s in range(draws):
                    log_ratio[g, n, first + s] = 0.5 * (x[:, s] ** 2).sum() - log_det[s]
                _backward(lower, x)
                for i in range(size):
                    for s in range(draws):
                        at = x[i, s] + mean[i, s]
                        b[g, i, n, first + s] = sd[i, s] * at
                        log_ratio[g, n, first + s] -= 0.5 * at**2


@_jit
def laplace_slopes(pull, tau, own, slope, back, by_log_tau):  # type: ignore[no-untyped-def]
    """Derivatives of the sum over levels of Laplace's approximations.

    `slope` (G, K, draws) are those of the log likelihood in b at the Gaussian's mean x. With
    r = D slope - x the derivative in u is D M^-1 r, which fills `back` (G, K, draws), and that in
    log tau is x^2 + 2 x M^-1 r + diag(M^-1) - 1, summed over levels in `by_log_tau` (K, draws).
    """
    by_log_tau[:] = 0.0
    for first in range(0, tau.shape[1], _BLOCK):
        sd = _block(tau, first)
        size, draws = sd.shape
        lower, mean, rest = np.empty((size, size, draws)), np.empty(sd.shape), np.empty(sd.shape)
        unit = np.empty(sd.shape)
        for g in range(len(pull)):
            _factor(own[g], sd, lower)
            _mean(pull, g, first, sd, lower, mean)
            for i in range(size):
                for s in range(draws):
                    rest[i, s] = sd[i, s] * slope[g, i, first + s] - mean[i, s]
            _forward(lower, rest)
            _backward(lower, rest)
            for i in range(size):
                unit[:] = 0.0
                unit[i] = 1.0
                _forward(lower, unit)
                for s in range(draws):
                    x, t = mean[i, s], rest[i, s]
                    back[g, i, first + s] = sd[i, s] * t
                    by_log_tau[i, first + s] += x * x + 2.0 * x * t - 1.0
                for k in range(i, size):
                    for s in range(draws):
                        by_log_tau[i, first + s] += unit[k, s] ** 2
