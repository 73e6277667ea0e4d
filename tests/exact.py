"""Exact references by mpmath at 50 digits, and histograms made from items by hand."""

import mpmath as mp
import numpy as np

from soc_pymc.families import poisson_rows as hist

mp.mp.dps = 50


def log_pmf(count, exposure, log_mean, log_cv2):
    """Log negative binomial probability, exactly."""
    alpha, mean = mp.exp(-mp.mpf(float(log_cv2))), mp.exp(mp.mpf(float(log_mean)))
    y, n = mp.mpf(float(count)), mp.mpf(float(exposure))
    if n == 0:
        return mp.mpf(0)
    r = n * mean / alpha
    rising = mp.loggamma(alpha + y) - mp.loggamma(alpha)
    return rising - mp.loggamma(y + 1) + y * mp.log(r) - (alpha + y) * mp.log1p(r)


def absolute_terms(count, exposure, log_mean, log_cv2):
    """Sum of the absolute values of the terms that the log marginal is made of."""
    alpha, mean = float(np.exp(-log_cv2)), float(np.exp(log_mean))
    r = exposure * mean / alpha
    rising = float(abs(mp.loggamma(alpha + count) - mp.loggamma(alpha) - count * mp.log(alpha)))
    log_n = np.log(exposure) if exposure > 0 else 0.0
    return rising + abs(count * (log_n + log_mean)) + (alpha + count) * np.log1p(r)


def gradient(count, exposure, log_mean, log_cv2):
    """Derivatives in log mean and log cv2, exactly."""
    m, c = mp.mpf(float(log_mean)), mp.mpf(float(log_cv2))
    alpha, y, n = mp.exp(-c), mp.mpf(float(count)), mp.mpf(float(exposure))
    r = n * mp.exp(m) / alpha
    by_mean = y - (alpha + y) * r / (1 + r)
    by_alpha = mp.digamma(alpha + y) - mp.digamma(alpha) - mp.log1p(r) + (r - y / alpha) / (1 + r)
    return by_mean, -alpha * by_alpha


def exact_histograms(bin_of, count, exposure, bins):
    """Histograms in which every distinct count and exposure has a cell of its own."""

    def cells(value, *sums):
        keys = sorted(set(zip(bin_of.tolist(), value.tolist(), strict=True)))
        rows = []
        for b, v in keys:
            here = (bin_of == b) & (value == v)
            rows.append([b, here.sum(), *(s[here].sum() for s in sums)])
        columns = np.array(rows, dtype=float).T
        return (columns[0].astype(int), *columns[1:])

    y, n = count.astype(float), exposure.astype(float)
    log_n = np.log(np.where(n > 0, n, 1.0))
    return hist.make_histograms(
        bins,
        cells(y, y, y**2, y**3),
        cells(n, n, n**2, n**3, y, y * n, y * n**2, y * n**3),
        np.bincount(bin_of, weights=y * log_n, minlength=bins),
    )
