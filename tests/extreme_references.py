"""References by mpmath at 50 digits for tails and moments in the limits, where its own series fail.

Tails are integrals of log-concave densities on a logarithmic scale, from the cut outwards by
Gauss-Legendre on intervals that grow; they end where a part is below 1e-25 of what is there.
"""

import mpmath as mp

mp.mp.dps = 50

_GROWTH = mp.mpf(1.6)
_DONE = mp.mpf(10) ** -25


def _outwards(log_density, slope, start, sign, sd):
    """Integral of exp(log_density) from `start` to one side."""
    steep = abs(slope(start))
    step = min(sd, 4 / steep) if steep > 0 else sd
    total, at = mp.mpf(0), start
    top = log_density(start)
    while True:
        end = at + sign * step
        ends = [at, end] if sign > 0 else [end, at]
        part = mp.quad(
            lambda u: mp.exp(log_density(u) - top), ends, method="gauss-legendre", maxdegree=4
        )
        total += part
        if part < total * _DONE and sign * slope(end) < 0:
            return total * mp.exp(top)
        at, step = end, step * _GROWTH


def _both(log_density, slope, start, sd):
    """Lower and upper tail: the one beyond the mode is integrated, so that it has its digits."""
    if slope(start) > 0:
        lower = _outwards(log_density, slope, start, -1, sd)
        return lower, 1 - lower
    upper = _outwards(log_density, slope, start, 1, sd)
    return 1 - upper, upper


def gamma_tails(shape, x):
    """P(X <= x) and P(X > x) for X ~ Gamma(shape, 1)."""
    a, x = mp.mpf(float(shape)), mp.mpf(float(x))
    if a < 30:
        lower = mp.exp(a * mp.log(x) - x - mp.loggamma(a + 1)) * mp.hyp1f1(1, a + 1, x)
        if lower < 0.5:
            return lower, 1 - lower
        upper = mp.gammainc(a, x, mp.inf, regularized=True)
        return 1 - upper, upper
    constant = mp.loggamma(a)
    return _both(
        lambda v: a * v - mp.exp(v) - constant, lambda v: a - mp.exp(v), mp.log(x), 1 / mp.sqrt(a)
    )


def count_tails(count, shape, expected):
    """P(Y <= count) and P(Y > count) of a negative binomial, by its Beta integral.

    Small counts are added up one by one.
    """
    y, a, mean = (mp.mpf(float(v)) for v in (count, shape, expected))
    ratio = mean / a
    if y < 200:
        term = mp.exp(-a * mp.log1p(ratio))
        total, share = term, ratio / (1 + ratio)
        for k in range(1, int(y) + 1):
            term *= (a + k - 1) / k * share
            total += term
        return total, 1 - total
    p = y + 1
    constant = mp.loggamma(p + a) - mp.loggamma(p) - mp.loggamma(a)

    def log_density(u):
        return constant - p * mp.log1p(mp.exp(-u)) - a * mp.log1p(mp.exp(u))

    def slope(u):
        t = 1 / (1 + mp.exp(-u))
        return p * (1 - t) - a * t

    sd = min(mp.mpf(1), mp.sqrt(1 / p + 1 / a) / 2)
    above, upto = _both(log_density, slope, mp.log(ratio), sd)
    return upto, above


def log_count(count, shape, expected):
    """Log probability of a negative binomial."""
    y, a, mean = (mp.mpf(float(v)) for v in (count, shape, expected))
    ratio = mean / a
    rising = mp.loggamma(a + y) - mp.loggamma(a) - mp.loggamma(y + 1)
    return rising + y * mp.log(ratio) - (a + y) * mp.log1p(ratio)


def count_slopes(count, exposure, log_mean, log_cv2):
    """Derivatives of the log probability in log mean and log cv2."""
    a, y = mp.exp(-mp.mpf(float(log_cv2))), mp.mpf(float(count))
    mean = mp.mpf(float(exposure)) * mp.exp(mp.mpf(float(log_mean)))
    x = (y - mean) / (a + mean)
    by_shape = mp.digamma(a + y) - mp.digamma(a) - mp.log1p(y / a) + mp.log1p(x) - x
    return (y - mean) * a / (a + mean), -a * by_shape


def normal_log_density(value, noise_sd, mean, log_variance):
    """Log density of a value with noise."""
    y, s, m, c = (mp.mpf(float(v)) for v in (value, noise_sd, mean, log_variance))
    total = mp.exp(c) + s**2
    return -((y - m) ** 2) / (2 * total) - mp.log(2 * mp.pi * total) / 2


def normal_slopes(value, noise_sd, mean, log_variance):
    """Derivatives of that in the mean and the log variance."""
    y, s, m, c = (mp.mpf(float(v)) for v in (value, noise_sd, mean, log_variance))
    variance = mp.exp(c)
    total = variance + s**2
    z2 = (y - m) ** 2 / total
    return (y - m) / total, variance / total * (z2 - 1) / 2


def normal_cdf(z):
    """Standard normal distribution function."""
    return mp.erfc(-z / mp.sqrt(2)) / 2


def inverse_trigamma(value):
    """X with trigamma(x) = value, by Newton's method from the leading terms."""
    v = mp.mpf(float(value))
    x = 1 / v + mp.mpf(1) / 2 if v < 1 else 1 / mp.sqrt(v)
    for _ in range(60):
        tri = mp.polygamma(1, x)
        step = tri * (1 - tri / v) / mp.polygamma(2, x)
        x += step
        if abs(step) < abs(x) * mp.mpf(10) ** -45:
            return x
    return x
