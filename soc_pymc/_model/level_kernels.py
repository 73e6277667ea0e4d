"""Compiled proposals of the coefficients of levels, which are integrated out of the likelihood.

A level's K coefficients b = D x, D = diag(tau) the sds of their prior, have the log likelihood
u'b - b'A b / 2, the site. So x is N(M^-1 D u, M^-1), M = I + D A D = L L', and a proposal is the
mean of x plus L'^-1 noise. Nothing is divided by tau, which may be tiny.

Shapes: u (G, K, draws), tau (K, draws), A (G, K, K), noise (G, K, N / 2, draws or 1).
Proposals N / 2 and later have the same noise with the other sign. Statements are on all draws.
"""

import numba
import numpy as np

_jit = numba.njit(cache=True, nogil=True, error_model="numpy")


@_jit
def _subtract(total, x, y):  # type: ignore[no-untyped-def]
    """Subtract the products of x and y, as vector instructions and without a copy."""
    for s in range(len(total)):
        total[s] -= x[s] * y[s]


@_jit
def _factor(information, tau):  # type: ignore[no-untyped-def]
    """Cholesky factors L (K, K, draws)."""
    size, draws = tau.shape
    lower = np.empty((size, size, draws))
    for i in range(size):
        for j in range(i + 1):
            lower[i, j] = tau[i] * information[i, j] * tau[j]
            for k in range(j):
                _subtract(lower[i, j], lower[i, k], lower[j, k])
            if j < i:
                lower[i, j] /= lower[j, j]
        lower[i, i] = np.sqrt(1.0 + lower[i, i])
    return lower


@_jit
def _forward(lower, x):  # type: ignore[no-untyped-def]
    """Replace x (K, draws) by L^-1 x."""
    for i in range(len(x)):
        for k in range(i):
            _subtract(x[i], lower[i, k], x[k])
        x[i] /= lower[i, i]


@_jit
def _backward(lower, x):  # type: ignore[no-untyped-def]
    """Replace x (K, draws) by L'^-1 x."""
    for i in range(len(x) - 1, -1, -1):
        for k in range(i + 1, len(x)):
            _subtract(x[i], lower[k, i], x[k])
        x[i] /= lower[i, i]


@_jit
def _solved(lower, right):  # type: ignore[no-untyped-def]
    """M^-1 times the right-hand side (K, draws)."""
    x = right.copy()
    _forward(lower, x)
    _backward(lower, x)
    return x


@_jit
def _deviation(lower, noise, pair):  # type: ignore[no-untyped-def]
    """L'^-1 noise (K, draws) of a pair of proposals."""
    x = np.empty(lower.shape[1:])
    x[:] = noise[:, pair]
    _backward(lower, x)
    return x


@_jit
def proposals(pull, tau, information, noise, b, log_ratio):  # type: ignore[no-untyped-def]
    """Fill b (G, K, N, draws) from noise, and the log ratio (G, N, draws) of prior to proposal."""
    pairs, draws = noise.shape[2], tau.shape[1]
    for g in range(len(pull)):
        lower = _factor(information[g], tau)
        mean, log_det = _solved(lower, tau * pull[g]), np.zeros(draws)
        for i in range(len(tau)):
            log_det += np.log(lower[i, i])
        for pair in range(pairs):
            deviation = _deviation(lower, noise[g], pair)
            normal = noise[g, :, pair]
            for n, sign in ((pair, 1.0), (pairs + pair, -1.0)):
                log_ratio[g, n] = 0.5 * (normal**2).sum(axis=0) - log_det
                for i in range(len(tau)):
                    for s in range(draws):
                        x = mean[i, s] + sign * deviation[i, s]
                        b[g, i, n, s] = tau[i, s] * x
                        log_ratio[g, n, s] -= 0.5 * x * x


@_jit
def _by_matrix(lower, by_lower):  # type: ignore[no-untyped-def]
    """Replace derivatives in L by those in the lower half of M (Murray 2016)."""
    for i in range(len(lower) - 1, -1, -1):
        for j in range(i, -1, -1):
            by_lower[i, j] /= lower[j, j]
            if i == j:
                by_lower[i, i] *= 0.5
            else:
                _subtract(by_lower[j, j], by_lower[i, j], lower[i, j])
            for k in range(j):
                _subtract(by_lower[i, k], by_lower[i, j], lower[j, k])
                _subtract(by_lower[j, k], by_lower[i, j], lower[i, k])


@_jit
def slopes(  # type: ignore[no-untyped-def]
    pull, tau, information, noise, weight, slope, by_pull, by_log_tau
):
    """Derivatives of the sum over levels of log mean_n (likelihood times ratio).

    `weight` (G, N, draws) are the shares of proposals in that mean, and `slope` (G, K, N, draws)
    the gradients of the log likelihood in b there. Fills `by_pull` (G, K, draws) and `by_log_tau`
    (K, draws), by reverse accumulation.
    """
    by_log_tau[:] = 0.0
    pairs, size = noise.shape[2], len(tau)
    for g in range(len(pull)):
        lower = _factor(information[g], tau)
        right = tau * pull[g]
        mean = _solved(lower, right)
        by_mean, by_lower = np.zeros(tau.shape), np.zeros(lower.shape)
        for n in range(weight.shape[1]):
            deviation = _deviation(lower, noise[g], n % pairs)
            if n >= pairs:
                deviation *= -1.0
            by_x = weight[g, n] * (tau * slope[g, :, n] - mean - deviation)
            by_log_tau += weight[g, n] * tau * slope[g, :, n] * (mean + deviation)
            by_mean += by_x
            _forward(lower, by_x)
            for i in range(size):
                for j in range(i + 1):
                    _subtract(by_lower[i, j], deviation[i], by_x[j])
        by_right = _solved(lower, by_mean)
        by_pull[g] = tau * by_right
        by_log_tau += by_right * right
        for i in range(size):
            by_lower[i, i] -= 1.0 / lower[i, i]
        _by_matrix(lower, by_lower)
        for i in range(size):
            for j in range(i + 1):
                product = by_lower[i, j] - by_right[i] * mean[j]
                if j < i:
                    product -= by_right[j] * mean[i]
                product *= tau[i] * information[g, i, j] * tau[j]
                by_log_tau[i] += product
                by_log_tau[j] += product
