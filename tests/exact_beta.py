"""Exact references by mpmath for Binomial outcomes, and rows of them made from items by hand."""

import mpmath as mp
import numpy as np

from soc_pymc.families.binomial_rows import make_beta_rows

mp.mp.dps = 50


def parameters(f, g):
    """a, b and the mean, exactly."""
    f, g = mp.mpf(float(f)), mp.mpf(float(g))
    mean, rest = 1 / (1 + mp.exp(-f)), 1 / (1 + mp.exp(f))
    return mp.exp(-g) / rest, mp.exp(-g) / mean, mean, rest


def _rising(alpha, y):
    return mp.loggamma(alpha + y) - mp.loggamma(alpha) - y * mp.log(alpha)


def _falls(alpha, y):
    """Derivative of `_rising` in log alpha."""
    return alpha * (mp.digamma(alpha + y) - mp.digamma(alpha)) - y


def _choose(y, n):
    return mp.loggamma(n + 1) - mp.loggamma(y + 1) - mp.loggamma(n - y + 1)


def log_pmf(y, n, f, g):
    """Log Beta-Binomial probability, exactly."""
    a, b, mean, rest = parameters(f, g)
    y, n = mp.mpf(float(y)), mp.mpf(float(n))
    binomial = y * mp.log(mean) + (n - y) * mp.log(rest) + _choose(y, n)
    return binomial + _rising(a, y) + _rising(b, n - y) - _rising(a + b, n)


def absolute_terms(y, n, f, g):
    """Sum of the absolute values of the terms that the log marginal is made of."""
    a, b, mean, rest = parameters(f, g)
    terms = [mp.mpf(float(y)) * mp.log(mean), mp.mpf(float(n - y)) * mp.log(rest)]
    terms += [_rising(a, y), _rising(b, n - y), _rising(a + b, n)]
    terms += [mp.loggamma(n + 1), mp.loggamma(y + 1), mp.loggamma(n - y + 1)]
    return float(sum(abs(x) for x in terms))


def gradient(y, n, f, g):
    """Derivatives in both curves, exactly."""
    a, b, mean, rest = parameters(f, g)
    y, z = mp.mpf(float(y)), mp.mpf(float(n - y))
    of_a, of_b, of_m = _falls(a, y), _falls(b, z), _falls(a + b, y + z)
    by_f = y * rest - z * mean + mean * of_a - rest * of_b - (mean - rest) * of_m
    return by_f, of_m - of_a - of_b


def gradient_terms(y, n, f, g):
    """Sum of the absolute values of the sums over histograms that both derivatives are made of."""
    a, b, *_ = parameters(f, g)
    y, z = mp.mpf(float(y)), mp.mpf(float(n - y))
    return float(abs(_falls(a, y)) + abs(_falls(b, z)) + abs(_falls(a + b, y + z)))


def exact_rows(row_of, successes, trials, rows):
    """Rows in which every distinct number has a cell of its own."""

    def cells(value):
        keys, n = np.unique(np.stack([row_of, value]), axis=1, return_counts=True)
        v = keys[1]
        return keys[0].astype(np.int64), n * 1.0, n * v, n * v**2, n * v**3

    y, n = np.asarray(successes, dtype=float), np.asarray(trials, dtype=float)
    return make_beta_rows(rows, cells(y), cells(n - y), cells(n))
