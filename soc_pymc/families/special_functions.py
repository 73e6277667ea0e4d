"""Special functions that SciPy lacks, or that take it several times as long.

Differences of log Gamma functions cancel. Loader's saddle-point form (2000) of probabilities has
terms that do not: divergences, and the remainders of Stirling's formula.
"""

from collections.abc import Sequence
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from .._lib.arrays import Floats, compiled, in_blocks

# by which arguments are raised for Stirling's series, and for that of trigamma
_STEPS = 6
_RAISED = 4
HALF_LOG_2PI = 0.5 * float(np.log(2.0 * np.pi))
STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)
_LEAST_STIRLING = 8.0  # smallest argument of Stirling's series
# for the continued fraction of a Beta's tail
ERROR = 2e-15
MOST_TERMS = 10_000  # a multiple of the next number
EVERY = 4  # terms between looks at which elements are done
# counts up to here have a product of few factors, which does not overflow
_FEW_EVENTS = 6
# in place of a count of 0, so small that no mean of interest is below it
_NEARLY_NONE = 1e-280
NEGLIGIBLE = 1e-18  # term over the sum of those before
_LARGE_PARAMETER = 1e5  # smaller parameter beyond which it has hundreds of terms
# numbers of successes whose probabilities are added up at the distribution's end
_SINGLE_COUNTS = 256
_MOST_SUMMED = 1000  # numbers of successes that are added up one by one
# sds, and Gamma tails, below which nothing is left of the lower tail
_TAIL_SDS = 10.0
_TAILS = 40.0
# numbers for which compiling a long loop pays, and importing Numba for a short one
_WORTH_COMPILING = 500_000
_WORTH_IMPORTING = 20_000_000
_NODE, _NODE_SHARE = np.polynomial.legendre.leggauss(96)


def stirling(x: Floats) -> Floats:
    """Log Gamma(x) - [(x - 1/2) log x - x + log(2 pi)/2] for x > 0, (n,), to 1e-14."""
    value = _stirling_sums(x)
    is_small = np.flatnonzero(x < _LEAST_STIRLING)
    value[is_small] = _stirling_of_small(x[is_small])
    return value


def _stirling_of_small(x: Floats) -> Floats:
    # the series at x + 8, less the logarithms of x, ..., x + 7 over x + 8, in pairs
    shifted = x + 8.0
    inverse = 1.0 / shifted
    square = inverse * inverse
    pair = 1.0 - 9.0 * inverse
    product = x * inverse * (1.0 - inverse)
    for number in (14.0, 18.0, 20.0):
        product *= pair + number * square
    change = (x - 0.5) * np.log1p(8.0 / x) - 8.0 - np.log(product)
    return change + stirling_series(shifted, STIRLING)


@compiled(_WORTH_IMPORTING)
def _stirling_sums(x: Floats) -> Floats:
    return stirling_series(x, STIRLING)


def stirling_series(x: Any, terms: Sequence[float] = STIRLING[:4]) -> Any:
    """`stirling` of x of 32 and more by four terms, to 1e-16, or by more terms of smaller x."""
    inverse = 1.0 / x
    square = inverse * inverse
    value = terms[-1] * square
    for term in terms[-2:0:-1]:
        value += term
        value *= square
    value += terms[0]
    return value * inverse


def log_rise(xp: ModuleType, shape: Any, size: Any) -> Any:
    """Log of Gamma(a + N) / Gamma(a), less N log a, with all digits as the shape a grows."""
    x = shape + _STEPS
    value = (x + size - (_STEPS + 0.5)) * xp.log1p(size / x) - size
    value = value + size * xp.log1p(_STEPS / shape)
    return value + _raised(xp, x + size) - _raised(xp, x)


def _raised(xp: ModuleType, x: Any) -> Any:
    """Stirling's series at x, less the logarithms of x - 1, ..., x - 6 over x, in pairs."""
    inverse = 1.0 / x
    square = inverse * inverse
    pair = 1.0 - 7.0 * inverse
    product = (pair + 6.0 * square) * (pair + 10.0 * square) * (pair + 12.0 * square)
    return stirling_series(x, STIRLING) - xp.log(product)


def trigamma(x: Floats) -> Floats:
    """Trigamma of x > 0, to 1e-9."""
    z = x + _RAISED
    square = 1.0 / (z * z)
    series = 1 / 6 - square * (1 / 30 - square * (1 / 42 - square / 30))
    value = 1.0 / z + square * (0.5 + series / z)
    for j in range(_RAISED):
        value = value + 1.0 / (x + j) ** 2
    return value


def divergence(
    x: Floats, y: Floats, gap: Floats, mean_x: Floats, mean_y: Floats
) -> Floats:
    """Sum x log(x / mean_x) + y log(y / mean_y), given an exact gap = mean_x - x = y - mean_y.

    Its error is what a change of the last digit of x would make; x may be 0.
    """
    size = np.abs(gap)
    rise = y * np.log1p(size / np.minimum(y, mean_y))
    rise -= x * np.log1p(size / np.maximum(np.minimum(x, mean_x), _NEARLY_NONE))
    return np.sign(gap) * rise


@in_blocks
def _stirling_of_count(count: Floats) -> Floats:
    """Part of a count's log probability that depends on the count alone, which may be 0."""
    return np.where(
        count > 0.0, stirling(count) + (0.5 * np.log(count) + HALF_LOG_2PI), 0.0
    )


def log_negative_binomial(
    count: ArrayLike, shape: ArrayLike, expected: ArrayLike
) -> Floats:
    """Log probability of a negative binomial count with this mean and Gamma shape."""
    counts = np.asarray(count, dtype=float)
    shapes = np.asarray(shape, dtype=float)
    if counts.ndim != 1 or shapes.shape[-1:] != counts.shape:
        without_mean = _stirling_of_shape(counts, _stirling_of_count(counts), shapes)
        return _negative_binomial(counts, without_mean, shapes, expected)
    means = np.broadcast_to(expected, shapes.shape)
    value = np.empty(shapes.shape)
    for number in range(_FEW_EVENTS + 1):
        some = np.flatnonzero(counts == number)
        of_few = in_blocks(partial(_few_events, number))
        value[..., some] = of_few(shapes[..., some], means[..., some])
    # Stirling's series is slower
    some = np.flatnonzero(~np.isin(counts, np.arange(_FEW_EVENTS + 1)))
    part, shapes = counts[some], shapes[..., some]
    without_mean = _stirling_of_shape(part, _stirling_of_count(part), shapes)
    value[..., some] = _negative_binomial(part, without_mean, shapes, means[..., some])
    return value


def _few_events(number: int, shape: Floats, expected: Floats) -> Floats:
    """Log probability of a count of at most `_FEW_EVENTS`."""
    value = -(shape + number) * np.log1p(expected / shape)
    if number:
        value += number * np.log(expected) - special.gammaln(number + 1.0)
    if number > 1:
        inverse = 1.0 / shape
        rise = 1.0 + inverse
        for k in range(2, number):
            rise *= 1.0 + k * inverse
        value += np.log(rise)
    return value


@in_blocks
def _stirling_of_shape(count: Floats, of_count: Floats, shape: Floats) -> Floats:
    """Part of a log probability that does not depend on the mean."""
    remainder = stirling(shape + count) - stirling(shape)
    return remainder - of_count - 0.5 * np.log1p(count / shape)


@in_blocks
def _negative_binomial(
    count: Floats, without_mean: Floats, shape: Floats, expected: Floats
) -> Floats:
    ratio = expected / shape
    total = shape + count
    # distance of the count from its mean given the total, from a difference that is exact
    gap = (expected - count) / (1.0 + ratio)
    means = total * (ratio / (1.0 + ratio)), total / (1.0 + ratio)
    value = without_mean - divergence(count, shape, gap, *means)
    value[(expected == 0.0) & (count > 0.0)] = -np.inf
    return value


def _log_beta_kernel(x: Floats, complement: Floats, a: Floats, b: Floats) -> Floats:
    """Logarithm of `beta_kernel`."""
    m = a + b
    gap = np.where(x < 0.5, m * x - a, b - m * complement)
    log = (
        stirling(m) - stirling(a) - stirling(b) - HALF_LOG_2PI + 0.5 * np.log(a / m * b)
    )
    log -= divergence(a, b, gap, m * x, m * complement)
    return np.where((x > 0.0) & (complement > 0.0), log, -np.inf)


log_beta_kernel = in_blocks(_log_beta_kernel)


@in_blocks
def beta_kernel(x: Floats, complement: Floats, a: Floats, b: Floats) -> Floats:
    """x^a (1 - x)^b / B(a, b), given also its complement 1 - x with all its digits."""
    return np.exp(_log_beta_kernel(x, complement, a, b))


@compiled(_WORTH_COMPILING)
def _beta_fraction(x: Floats, complement: Floats, a: Floats, b: Floats) -> Floats:
    # the continued fraction of Didonato and Morris (1992), Algorithm 708, for P(theta <= x) over
    # `beta_kernel`, for x up to (a + 1) / (a + b + 2); a and so on are those of the next term
    m = a + b
    further = 1.0 + complement
    lean = np.where(x < 0.5, a - m * x, m * complement - b) + 1.0
    inverse = 1.0 / (a + 1.0)
    value = 1.0 / (a * lean * inverse)
    # numerator, denominator over this convergent's
    last = np.zeros_like(x)
    bottom = value.copy()
    answer = np.empty_like(x)
    place = np.arange(len(x))
    a = a.copy()
    b = b - 1.0
    for n in range(1, MOST_TERMS + 1):
        if not len(place):
            break
        inverse *= x
        share = b * inverse
        share *= n
        top = a * m
        top *= inverse
        top *= share
        for variable, step in ((a, 1.0), (b, -1.0), (m, 1.0), (lean, further)):
            variable += step
        inverse = 1.0 / (a + (n + 1))
        term = a * lean
        term *= inverse
        term += share
        term += n
        bottom *= top
        bottom += term
        bottom = 1.0 / bottom
        new = term * value
        new += top * last
        new *= bottom
        last = value * bottom
        if n % EVERY == 0:
            goes_on = np.flatnonzero(np.abs(new - value) > ERROR * new)
            if len(goes_on) < len(place):
                answer[place] = new
                place = place[goes_on]
                x, a, b, m, further, lean, inverse, last, new, bottom = (
                    values[goes_on]
                    for values in (
                        x,
                        a,
                        b,
                        m,
                        further,
                        lean,
                        inverse,
                        last,
                        new,
                        bottom,
                    )
                )
        value = new
    answer[place] = value
    return answer


def beta_tail(x: Floats, complement: Floats, a: Floats, b: Floats) -> Floats:
    """P(theta > x), given also the complement 1 - x to full precision; large ones are SciPy's."""
    _beta_fraction.foresee(np.broadcast(x, complement, a, b).size)
    return _beta_tail(x, complement, a, b)


@in_blocks
def _beta_tail(x: Floats, complement: Floats, a: Floats, b: Floats) -> Floats:
    tail = np.empty_like(x)
    is_large = np.minimum(a, b) > _LARGE_PARAMETER
    if is_large.any():
        tail[is_large] = special.betaincc(a[is_large], b[is_large], x[is_large])
        x, complement, a, b = (values[~is_large] for values in (x, complement, a, b))
    is_low = x < (a + 1.0) / (a + b + 2.0)
    near = np.where(is_low, x, complement)
    turned = (
        np.where(is_low, complement, x),
        np.where(is_low, a, b),
        np.where(is_low, b, a),
    )
    kernel = np.exp(_log_beta_kernel(near, *turned))
    part = np.minimum(kernel * _beta_fraction(near, *turned), 1.0)
    part = np.where(near > 0.0, part, 0.0)
    tail[~is_large] = np.where(is_low, 1.0 - part, part)
    return tail


def log_beta_binomial(y: ArrayLike, n: ArrayLike, a: ArrayLike, b: ArrayLike) -> Floats:
    """Log probability of y successes in n trials, theta ~ Beta(a, b); y need not be whole."""
    of_y, of_rest, of_n = (
        _stirling_of_count(count) for count in (y, np.subtract(n, y), n)
    )
    return _log_beta_binomial(y, n, a, b, of_y + of_rest - of_n)


@in_blocks
def _log_beta_binomial(
    y: Floats, n: Floats, a: Floats, b: Floats, of_counts: Floats
) -> Floats:
    # given their sum, negative binomials of shapes a and b and of one ratio are Beta-Binomial
    failures = n - y
    m = a + b
    ratio = n / (a + b)
    with_y = a + y
    with_rest = b + failures
    total = m + n
    share = n / total
    gap = (a * failures - b * y) / total
    value = stirling(with_y) + stirling(with_rest) - stirling(total)
    value -= stirling(a) + stirling(b) - stirling(m) + of_counts
    value -= 0.5 * np.log((with_y / a) * (with_rest / b) / (1.0 + ratio))
    value -= divergence(y, a, gap, with_y * share, with_y / (1.0 + ratio))
    value -= divergence(failures, b, -gap, with_rest * share, with_rest / (1.0 + ratio))
    return value


@compiled(_WORTH_COMPILING)
def _tail_sums(
    y: Floats, low: Floats, at_y: Floats, n: Floats, a: Floats, b: Floats
) -> Floats:
    """Sum of probabilities from `low` to y, given that of y, from y downwards."""
    answer = np.empty_like(y)
    place = np.arange(len(y))
    total = at_y.copy()
    term = at_y
    k = y.copy()
    failures = n - y
    while len(place):
        for _ in range(EVERY):
            ratio = failures + b
            ratio *= k
            k -= 1.0
            failures += 1.0
            ratio /= failures * (a + np.maximum(k, 0.0))
            term *= ratio  # 0 below 0
            total += term
        falls = a >= 1.0  # from term to term
        goes_on = np.flatnonzero((k > low) & ~(falls & (term <= NEGLIGIBLE * total)))
        if len(goes_on) < len(place):
            answer[place] = total
            place = place[goes_on]
            low, total, term, k, failures, a, b = (
                values[goes_on] for values in (low, total, term, k, failures, a, b)
            )
    return answer


def _lower_tail(y: Floats, n: Floats, a: Floats, b: Floats) -> Floats:
    """P(Y <= y) up to about the mean; of many numbers an integral over the root of y."""
    m = a + b
    sd = np.sqrt(n * (a / m) * (b / m) * ((m + n) / (m + 1.0)))
    low = np.maximum(0.0, np.floor(y - _TAIL_SDS * sd - _TAILS * (1.0 + n / m)))
    is_long = y - low >= _MOST_SUMMED
    last = np.where(is_long, low + (_SINGLE_COUNTS - 1.0), y)
    total = _tail_sums(last, low, np.exp(log_beta_binomial(last, n, a, b)), n, a, b)
    rows = np.flatnonzero(is_long)
    if len(rows):
        parameters = n[rows, None], a[rows, None], b[rows, None]
        total[rows] += _integral(last[rows, None], y[rows, None], *parameters)
    return np.where(y < 0.0, 0.0, total)


def _integral(low: Floats, y: Floats, n: Floats, a: Floats, b: Floats) -> Floats:
    """Sum of probabilities above `low` up to y, all (rows, 1)."""
    ends = np.hstack([low, low + 1.0, y, y + 1.0])
    at_low, above_low, at_y, above_y = np.exp(log_beta_binomial(ends, n, a, b)).T
    change = (above_low - at_low) - (above_y - at_y)
    begin = np.sqrt(low + 0.5)
    half = 0.5 * (np.sqrt(y + 0.5) - begin)
    root = begin + half * (1.0 + _NODE)
    values = root * np.exp(log_beta_binomial(root * root, n, a, b))
    return 2.0 * half[:, 0] * (values @ _NODE_SHARE) + change / 24.0


@in_blocks
def beta_binomial_cdf(y: Floats, n: Floats, a: Floats, b: Floats) -> Floats:
    """P(Y <= y) of successes in n trials, theta ~ Beta(a, b)."""
    is_low = y * b <= (n - y) * a  # at most the mean
    number = np.where(is_low, y, n - y - 1.0)
    tail = _lower_tail(number, n, np.where(is_low, a, b), np.where(is_low, b, a))
    return np.where(is_low, np.minimum(tail, 1.0), np.maximum(1.0 - tail, 0.0))
