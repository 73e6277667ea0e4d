"""Gamma quantiles from splines in the shape, with corrections for a spread of shapes and means.

A quantile of Gamma(a, rate a/mean) over its mean is y(a); sqrt(a) log y is smooth in log a from
shapes near 0 to its normal limit, and in units of the posterior sd. Averaging the distribution
over shapes a (1 + d) and means (1 + l) times the mean moves the quantile, to second order, by the
derivatives of the cdf F(a, a y), which depend only on the shape at a given probability.
"""

import math
from collections.abc import Sequence
from functools import cache

import numba
import numpy as np
from scipy import special
from scipy.interpolate import CubicSpline

from .._lib.arrays import Floats
from .special_forms import gamma_lower, gamma_quantile

_LOW, _HIGH, _STEP = np.log(1e-3), np.log(1e10), 0.1  # log shapes; the last is the limit
_PER_STEP = 1.0 / _STEP
_NUDGE = 0.03  # step of the derivatives in log shape
_LARGE = 20.0  # smallest shape for Temme's expansion
_ROOT_2PI = float(np.sqrt(2.0 * np.pi))
# Temme's coefficients, in increasing powers of eta (DiDonato and Morris 1986)
_C0 = (-1 / 3, 1 / 12, -2 / 135, 1 / 864, 3.527336860670194e-4, -1.7875514403292181e-4,
       3.9192631785224378e-5, -2.1854485106799922e-6, -1.85406221071516e-6)  # fmt: skip
_C1 = (-1 / 540, -1 / 288, 2.6455026455026455e-3, -9.9022633744855967e-4, 2.0576131687242798e-4,
       -4.0187757201646091e-7, -1.8098550334489978e-5)  # fmt: skip


@cache
def _table(prob: float) -> Floats:
    """Cubic polynomials by cell of log shape, (cells, 3, 4), of the three functions below.

    With y the quantile over the mean and H the density of log theta there: sqrt(a) log y,
    a dlog H/da, and sqrt(a) a^2 d2F/da2 / H, at a fixed y.
    """
    at = np.arange(_LOW, _HIGH + _STEP, _STEP)
    a = np.exp(at)
    x = gamma_quantile(prob, a)
    # where the quantile underflows, its logarithm comes from the leading term
    with np.errstate(divide="ignore"):
        tiny = (np.log(prob) + special.gammaln(a + 1.0)) / a
        log_y = np.where(x > 1e-200, np.log(x), tiny) - at
    y = np.exp(log_y)
    nudged = np.exp(at + _NUDGE * np.arange(-3, 4)[:, None])
    cdf = gamma_lower(nudged, nudged * y)
    first = np.array([-1.0, 9, -45, 0, 45, -9, 1]) @ cdf / (60 * _NUDGE)
    second = np.array([2.0, -27, 270, -490, 270, -27, 2]) @ cdf / (180 * _NUDGE**2)
    density = np.exp(a * (log_y + at) - a * y - special.gammaln(a))
    bend = np.where(density > 1e-200, (second - first) / np.maximum(density, 1e-200), 0.0)
    values = [
        np.sqrt(a) * log_y,
        a * (log_y + at + 1.0 - y - special.psi(a)),
        np.sqrt(a) * bend,
    ]
    falling = np.stack([CubicSpline(np.arange(len(a)), v).c for v in values])
    return np.ascontiguousarray(falling[:, ::-1].transpose(2, 0, 1))


def quantile_tables(probs: Sequence[float]) -> Floats:
    """Tables of the quantiles at `probs`, for `table_values`, shape (probabilities, cells, 3, 4).

    Examples
    --------
    >>> import numpy as np
    >>> cell, share = table_cell(np.log(3.0))
    >>> scaled, _, _ = table_values(quantile_tables([0.05]), 0, cell, share)
    >>> float(np.round(3.0 * np.exp(scaled / np.sqrt(3.0)), 6))
    0.817691
    """
    return _stacked(tuple(float(p) for p in probs))


@cache
def _stacked(probs: tuple[float, ...]) -> Floats:
    tables = [_table(p) for p in probs]
    return np.stack(tables) if tables else np.empty((0, 1, 3, 4))


@numba.njit(cache=True, nogil=True, error_model="numpy")
def table_cell(log_shape):  # type: ignore[no-untyped-def]
    """Cell of a log shape and the position in it; -1 for shapes below the table."""
    at = (min(log_shape, _HIGH) - _LOW) * _PER_STEP
    if not at >= 0.0:
        return -1, 0.0
    cell = int(at)
    return cell, at - cell


@numba.njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract"})
def table_values(tables, which, cell, u):  # type: ignore[no-untyped-def]
    """The three functions of a table at a position in a cell."""
    t, p, c = tables, which, cell
    return (
        t[p, c, 0, 0] + u * (t[p, c, 0, 1] + u * (t[p, c, 0, 2] + u * t[p, c, 0, 3])),
        t[p, c, 1, 0] + u * (t[p, c, 1, 1] + u * (t[p, c, 1, 2] + u * t[p, c, 1, 3])),
        t[p, c, 2, 0] + u * (t[p, c, 2, 1] + u * (t[p, c, 2, 2] + u * t[p, c, 2, 3])),
    )


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _temme(a, x, lower):  # type: ignore[no-untyped-def]
    """Tail and density of log x of Gamma(a) for large a (Temme 1979), two terms."""
    mu = (x - a) / a
    half = max(mu - np.log1p(mu), 0.0)  # eta^2 / 2
    eta = np.copysign(np.sqrt(2.0 * half), mu)
    near = min(max(eta, -1.0), 1.0)  # beyond, the tail is practically 0 or 1
    c0 = 0.0
    for k in range(len(_C0) - 1, -1, -1):
        c0 = c0 * near + _C0[k]
    c1 = 0.0
    for k in range(len(_C1) - 1, -1, -1):
        c1 = c1 * near + _C1[k]
    bell = np.exp(-a * half)
    rest = bell / (_ROOT_2PI * np.sqrt(a)) * (c0 + c1 / a)
    root = np.sqrt(0.5 * a)
    if lower:
        tail = 0.5 * math.erfc(-eta * root) - rest
    else:
        tail = 0.5 * math.erfc(eta * root) + rest
    density = np.sqrt(a) / _ROOT_2PI * bell * np.exp(-1.0 / (12.0 * a))
    return tail, density


@numba.njit(cache=True, nogil=True, error_model="numpy")
def tail_and_density(a, x, log_gamma, lower):  # type: ignore[no-untyped-def]
    """Tail probability of Gamma(a) at x, to about 1e-6, and the density of log x there.

    `log_gamma` is log Gamma(a), used below shape 20; `lower` selects P(X <= x), else P(X > x).
    """
    if a >= _LARGE:
        return _temme(a, x, lower)
    density = np.exp(a * np.log(x) - x - log_gamma)
    if x < a + 1.0:
        term = total = 1.0 / a
        n = a
        while term > 1e-8 * total:
            n += 1.0
            term *= x / n
            total += term
        below = density * total
        return (below if lower else 1.0 - below), density
    # continued fraction of the upper tail, by Lentz's method
    b = x + 1.0 - a
    c = 1e300
    d = 1.0 / b
    fraction = d
    for i in range(1, 200):
        an = -i * (i - a)
        b += 2.0
        d = 1.0 / (an * d + b)
        c = b + an / c
        fraction *= c * d
        if abs(c * d - 1.0) < 1e-8:
            break
    above = density * fraction
    return (1.0 - above if lower else above), density
