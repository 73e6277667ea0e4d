"""Compiled sums over the levels of a grouping, whose few coefficients are integrated out.

In a Gaussian approximation a level's K coefficients b = D x, D = diag(tau) the sds of their prior,
have log likelihood u'b - b'A b / 2. So x is N(M^-1 D u, M^-1), M = I + D A D = L L', and its log
marginal is |L^-1 D u|^2 / 2 - log |L|. Nothing is divided by tau, which may be tiny.

Shapes: u (G, K, draws), tau (K, draws), A (G, K, K), noise (G, K, N / 2, draws or 1).
Proposals N / 2 and later have the same noise with the other sign. The innermost loops are over a
block of draws, so that they are vector instructions.
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
def _noise(noise, g, n, first, x):  # type: ignore[no-untyped-def]
    """Proposal n's noise of a block of draws, which may all have the same."""
    pairs = noise.shape[2]
    sign, pair = (1.0, n) if n < pairs else (-1.0, n - pairs)
    for i in range(len(x)):
        for s in range(x.shape[1]):
            x[i, s] = sign * noise[g, i, pair, first + s if noise.shape[3] > 1 else 0]


@_jit
def proposals(pull, tau, own, noise, b, log_ratio):  # type: ignore[no-untyped-def]
    """Fill b (G, K, N, draws) from noise, and the log ratio (G, N, draws) of prior to proposal."""
    for first in range(0, tau.shape[1], _BLOCK):
        sd = _block(tau, first)
        size, draws = sd.shape
        lower, mean, log_det = np.empty((size, size, draws)), np.empty(sd.shape), np.empty(draws)
        own_noise, x = np.empty(sd.shape), np.empty(sd.shape)
        for g in range(len(pull)):
            _factor(own[g], sd, lower)
            _mean(pull, g, first, sd, lower, mean)
            _log_det(lower, log_det)
            for pair in range(noise.shape[2]):
                _noise(noise, g, pair, first, own_noise)
                x[:] = own_noise
                _backward(lower, x)
                for n, sign in ((pair, 1.0), (noise.shape[2] + pair, -1.0)):
                    for s in range(draws):
                        log_ratio[g, n, first + s] = -log_det[s]
                    for i in range(size):
                        for s in range(draws):
                            at = sign * x[i, s] + mean[i, s]
                            b[g, i, n, first + s] = sd[i, s] * at
                            log_ratio[g, n, first + s] += 0.5 * (own_noise[i, s] ** 2 - at**2)


@_jit
def _inverse(lower, unit):  # type: ignore[no-untyped-def]
    """Fill `unit` (K, K, draws), whose rows are the columns of L^-1, from the diagonal on."""
    size, _, draws = lower.shape
    for i in range(size):
        for p in range(i, size):
            for s in range(draws):
                unit[i, p, s] = 1.0 if p == i else 0.0
            for k in range(i, p):
                for s in range(draws):
                    unit[i, p, s] -= lower[p, k, s] * unit[i, k, s]
            for s in range(draws):
                unit[i, p, s] *= lower[p, p, s]


@_jit
def _by_factor(lower, unit, cross, i, ahead, turned):  # type: ignore[no-untyped-def]
    """Fill `turned` with what a change of log tau_i does to proposals by way of L.

    dL = L F, F the lower half of L^-1 dM L'^-1 = v w' + w v', where v = L^-1 e_i and w = L'e_i - v.
    So the change is v'C w, C the symmetric matrix with the lower half `cross`.
    """
    size, _, draws = lower.shape
    turned[:] = 0.0
    for q in range(size):
        ahead[:] = 0.0
        for p in range(i, size):
            for s in range(draws):
                ahead[s] += unit[i, p, s] * cross[max(p, q), min(p, q), s]
        if q < i:
            for s in range(draws):
                turned[s] += ahead[s] * lower[i, q, s]
        elif q == i:
            for s in range(draws):
                turned[s] += ahead[s] * (1.0 / lower[i, i, s] - unit[i, i, s])
        else:
            for s in range(draws):
                turned[s] -= ahead[s] * unit[i, q, s]


@_jit
def _add_products(weight, g, n, first, x, y, cross):  # type: ignore[no-untyped-def]
    """Add weighted products of x and y (K, draws) to the lower half of `cross`."""
    for p in range(len(x)):
        for q in range(p + 1):
            for s in range(x.shape[1]):
                cross[p, q, s] += weight[g, n, first + s] * x[p, s] * y[q, s]


@_jit
def _squares(unit, i, total):  # type: ignore[no-untyped-def]
    """Fill `total` with diagonal element i of M^-1."""
    total[:] = 0.0
    for p in range(i, len(unit)):
        for s in range(len(total)):
            total[s] += unit[i, p, s] ** 2


@_jit
def _rho(lower, own_noise, y, rho):  # type: ignore[no-untyped-def]
    """Fill `rho` with y + L noise."""
    size, draws = y.shape
    for i in range(size):
        for s in range(draws):
            rho[i, s] = y[i, s] + own_noise[i, s] / lower[i, i, s]
        for k in range(i):
            for s in range(draws):
                rho[i, s] += lower[i, k, s] * own_noise[k, s]


@_jit
def slopes(  # type: ignore[no-untyped-def] # noqa: C901
    pull, tau, own, noise, weight, slope, back, by_log_tau
):
    """Derivatives of the sum over levels of log mean_n (likelihood times ratio).

    `weight` (G, N, draws) are the shares of proposals in that mean, and `slope` (G, K, N, draws)
    the gradients of the log likelihood in b there. Fills `back` (G, K, draws), the derivative in u,
    and `by_log_tau` (K, draws). The derivative in tau is that of the Gaussian's own marginal and of
    the mean ratio of the likelihood to its quadratic, whose gradient in x is rho.
    """
    by_log_tau[:] = 0.0
    for first in range(0, tau.shape[1], _BLOCK):
        sd = _block(tau, first)
        size, draws = sd.shape
        lower, unit = np.empty((size, size, draws)), np.empty((size, size, draws))
        cross, one, two = np.empty((size, size, draws)), np.empty(draws), np.empty(draws)
        mean, moved, own_noise = np.empty(sd.shape), np.empty(sd.shape), np.empty(sd.shape)
        rho, total, ahead = np.empty(sd.shape), np.empty(sd.shape), np.empty(sd.shape)
        y = np.empty(sd.shape)
        for g in range(len(pull)):
            _factor(own[g], sd, lower)
            _mean(pull, g, first, sd, lower, mean)
            _inverse(lower, unit)
            total[:], ahead[:], cross[:] = 0.0, 0.0, 0.0
            for n in range(weight.shape[1]):
                _noise(noise, g, n, first, own_noise)
                moved[:] = own_noise
                _backward(lower, moved)
                for i in range(size):
                    for s in range(draws):
                        change = sd[i, s] * slope[g, i, n, first + s]
                        y[i, s] = change - mean[i, s] - moved[i, s]
                _rho(lower, own_noise, y, rho)
                for i in range(size):
                    for s in range(draws):
                        share = weight[g, n, first + s]
                        ahead[i, s] += share * y[i, s]
                        total[i, s] += share * rho[i, s]
                        by_log_tau[i, first + s] += share * rho[i, s] * moved[i, s]
                _forward(lower, rho)
                _add_products(weight, g, n, first, own_noise, rho, cross)
            for x in (ahead, total):
                _forward(lower, x)
                _backward(lower, x)
            for i in range(size):
                _by_factor(lower, unit, cross, i, one, two)
                _squares(unit, i, one)
                for s in range(draws):
                    back[g, i, first + s] = sd[i, s] * ahead[i, s]
                    by_log_tau[i, first + s] += (
                        mean[i, s] ** 2 + one[s] - 1.0 + 2.0 * mean[i, s] * total[i, s] - two[s]
                    )
