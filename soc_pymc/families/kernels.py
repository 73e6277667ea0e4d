"""Loops that Numba compiles: those of `special_functions` on large arrays, and those of mixtures.

The modules that call them import this one where they need it, as Numba takes long to import.
"""

import math
from typing import Any

import numba
import numpy as np

from .._lib.arrays import Floats
from .special_functions import ERROR, EVERY, MOST_TERMS, NEGLIGIBLE, STIRLING

# smallest argument for series of polygamma functions
_LEAST_POLYGAMMA = 10.0
# Newton steps in log a and log b of a Beta: longest, last; and most of all kinds
_LONGEST_MOVE = 3.0
_LAST_MOVE = 1e-9
_MOST_MOVES = 60
# Newton's method for mixtures: residual allowed in both curves, smallest factor of a step, longest
# step of the tilt
_RESIDUAL = 1e-8
_LEAST_FACTOR = 1e-4
_LONGEST_TILT = 2.0
# the exponential's series of x / 2^10, highest power first
_SQUARINGS = 10
_INVERSE_FACTORIALS = tuple(1.0 / math.factorial(k) for k in range(11, -1, -1))
# continued fractions in step, and where each variable of theirs begins
_LANES = 32
_X, _FURTHER, _A, _B, _M, _LEAN, _INVERSE, _TERM = range(0, 8 * _LANES, _LANES)
_VALUE, _BEFORE, _LAST, _BOTTOM = range(8 * _LANES, 12 * _LANES, _LANES)

_compiled = numba.njit(cache=True, nogil=True, error_model="numpy")


@_compiled
def stirling_sums(x):
    """Sums (n,) of Stirling's series of `special_functions`."""
    answer = np.empty_like(x)
    for i in range(len(x)):
        inverse = 1.0 / x[i]
        square = inverse * inverse
        value = 0.0
        for j in range(len(STIRLING) - 1, 0, -1):
            value = (value + STIRLING[j]) * square
        answer[i] = (value + STIRLING[0]) * inverse
    return answer


@_compiled
def beta_fraction(x, complement, a, b):
    """Fractions (n,) of `special_functions`, several in step so that one instruction does some."""
    answer = np.empty_like(x)
    # constant distances show the compiler what is apart
    state = np.ones(12 * _LANES)
    element = np.full(_LANES, -1)  # in each lane; -1 for none
    started = 0
    left = len(x)
    while left:
        for j in range(_LANES):
            if element[j] < 0 and started < len(x):
                i = started
                started += 1
                element[j] = i
                m = a[i] + b[i]
                lean = a[i] - m * x[i] if x[i] < 0.5 else m * complement[i] - b[i]
                state[_X + j] = x[i]
                state[_FURTHER + j] = 1.0 + complement[i]
                state[_A + j] = a[i]
                state[_B + j] = b[i] - 1.0
                state[_M + j] = m
                state[_LEAN + j] = lean + 1.0
                state[_INVERSE + j] = 1.0 / (a[i] + 1.0)
                value = 1.0 / (a[i] * (lean + 1.0) * state[_INVERSE + j])
                state[_VALUE + j] = value
                state[_LAST + j] = 0.0
                state[_BOTTOM + j] = value
                state[_TERM + j] = 1.0
        for _ in range(EVERY):
            _next_terms(state)
        for j in range(_LANES):
            new = state[_VALUE + j]
            done = not abs(new - state[_BEFORE + j]) > ERROR * new
            if element[j] >= 0 and (done or state[_TERM + j] > MOST_TERMS):
                answer[element[j]] = new
                element[j] = -1
                left -= 1
    return answer


@_compiled
def _next_terms(state):
    for j in range(_LANES):
        n = state[_TERM + j]
        inverse = state[_INVERSE + j] * state[_X + j]
        share = state[_B + j] * inverse * n
        top = state[_A + j] * state[_M + j] * inverse * share
        a = state[_A + j] + 1.0
        lean = state[_LEAN + j] + state[_FURTHER + j]
        inverse = 1.0 / (a + (n + 1.0))
        term = a * lean * inverse + share + n
        bottom = 1.0 / (state[_BOTTOM + j] * top + term)
        value = state[_VALUE + j]
        state[_BEFORE + j] = value
        state[_VALUE + j] = (term * value + top * state[_LAST + j]) * bottom
        state[_LAST + j] = value * bottom
        state[_BOTTOM + j] = bottom
        state[_A + j] = a
        state[_B + j] -= 1.0
        state[_M + j] += 1.0
        state[_LEAN + j] = lean
        state[_INVERSE + j] = inverse
        state[_TERM + j] = n + 1.0


@_compiled
def tail_sums(y, low, at_y, n, a, b):
    """Sums (n,) of probabilities of `special_functions`."""
    answer = np.empty_like(y)
    for i in range(len(y)):
        total = term = at_y[i]
        k = y[i]
        failures = n[i] - y[i]
        while True:
            for _ in range(EVERY):
                ratio = (failures + b[i]) * k
                k -= 1.0
                failures += 1.0
                term *= ratio / (failures * (a[i] + max(k, 0.0)))
                total += term
            if not k > low[i] or (a[i] >= 1.0 and term <= NEGLIGIBLE * total):
                break
        answer[i] = total
    return answer


# --- mixtures ------------------------------------------------------------------------------------


@_compiled
def polygammas(x):
    """Psi, psi' and psi'' of x > 0."""
    digamma = trigamma = tetragamma = 0.0
    while x < _LEAST_POLYGAMMA:
        z = 1.0 / x
        digamma -= z
        trigamma += z * z
        tetragamma -= 2.0 * z * z * z
        x += 1.0
    z = 1.0 / x
    w = z * z
    digamma += math.log(x) - 0.5 * z - w * (1 / 12 - w * (1 / 120 - w * (1 / 252 - w * (
        1 / 240 - w * (1 / 132 - w * 691 / 32760)))))  # fmt: skip
    trigamma += z + 0.5 * w + z * w * (1 / 6 - w * (1 / 30 - w * (1 / 42 - w * (
        1 / 30 - w * (5 / 66 - w * 691 / 2730)))))  # fmt: skip
    tetragamma -= w + z * w + w * w * (1 / 2 - w * (1 / 6 - w * (1 / 6 - w * (
        3 / 10 - w * (5 / 6 - w * 691 / 210)))))  # fmt: skip
    return digamma, trigamma, tetragamma


@_compiled
def solve_betas(location, variance, a, b):
    """Fill a and b by Newton's method on their logarithms, from the limit of large shapes."""
    for i in range(len(location)):
        odds = math.exp(location[i])
        p = (1.0 + odds) / variance[i] + 0.5 * odds / (1.0 + odds)
        q = (1.0 + 1.0 / odds) / variance[i] + 0.5 / (1.0 + odds)
        for _ in range(_MOST_MOVES):
            digamma_p, tri, bend = polygammas(p)
            digamma_q, its_tri, its_bend = polygammas(q)
            spread = tri + its_tri
            mean_gap = location[i] - (digamma_p - digamma_q)
            spread_gap = math.log(variance[i] / spread)
            # derivatives of the mean and of the log variance in log a and in log b
            aa = p * tri
            ab = -q * its_tri
            ba = p * bend / spread
            bb = q * its_bend / spread
            scale = 1.0 / (aa * bb - ab * ba)
            u = min(
                max((mean_gap * bb - ab * spread_gap) * scale, -_LONGEST_MOVE),
                _LONGEST_MOVE,
            )
            v = min(
                max((aa * spread_gap - mean_gap * ba) * scale, -_LONGEST_MOVE),
                _LONGEST_MOVE,
            )
            p *= math.exp(u)
            q *= math.exp(v)
            if abs(u) + abs(v) < _LAST_MOVE:
                break
        a[i] = p
        b[i] = q


def curves_of_moments(
    mean: Floats, variance: Floats, middle: Floats | float, has_path: bool
) -> tuple[Any, ...]:
    """Both curves; the slope of the location in the mean, and of the dispersion in both moments."""
    if not has_path:  # Normals
        return mean, np.log(variance), 1.0, 0.0, 1.0 / variance
    # Gammas are the limit of Betas at a middle of 0
    other = 1.0 - middle
    up = 1.0 + other * mean
    down = 1.0 - middle * mean
    product = up * down
    unit = middle * other
    room = product - unit * variance
    return (
        np.log(up / down),
        np.log(variance / (product * room)),
        other / up + middle / down,
        (middle * up - other * down) * (1.0 / product + 1.0 / room),
        1.0 / variance + unit / room,
    )


_curves = _compiled(curves_of_moments)


_reordered = numba.njit(
    cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"}
)


@_reordered
def _averages(weight, parts, out):
    for k in range(len(parts)):
        total = 0.0
        for r in range(len(weight)):
            total += weight[r] * parts[k, r]
        out[k] = total
    for k in range(len(parts) - 1, -1, -1):
        out[k] /= out[0]


@_reordered
def _exponential(x):
    """Exponential of x from -200 to 0 to 1e-12, from -700 to 1e-7, for several x at once."""
    x *= 2.0**-_SQUARINGS
    value = 0.0
    for j in range(len(_INVERSE_FACTORIALS)):
        value = value * x + _INVERSE_FACTORIALS[j]
    for _ in range(_SQUARINGS):
        value *= value
    return value


@_reordered
def _tilted(fixed, parts, tilt, lowest, weight):
    """Fill weights relative to the largest."""
    top = -np.inf
    shift = tilt[0]
    stretch = tilt[1]
    for r in range(len(fixed)):
        weight[r] = fixed[r] + shift * parts[3, r] + stretch * parts[6, r]
        top = max(top, weight[r])
    for r in range(len(fixed)):
        weight[r] = _exponential(max(weight[r] - top, lowest))


@_compiled
def _solve(fixed, target, parts, middle, has_path, limits, weight, solution):
    """Fill weights (R,) with both curves by Newton's method, and the `solution`."""
    # `fixed` (R,) are log weights without the tilt, `parts` (9, R) 1, theta and its square, and
    # these times the functions that tilt; the solution has the tilt (a first guess before), the
    # mean, the curves' derivatives in the moments, the tilt's in the curves, and the error.
    # `limits` are the lowest log weight relative to the largest, and the error allowed at rounding.
    # Numbers are set one by one: slices take Numba seconds more to compile
    error = np.inf
    factor = 1.0
    averages = np.empty(9)
    tried = np.array([solution[0], solution[1]])
    step = np.zeros(2)
    for _ in range(_MOST_MOVES):
        _tilted(fixed, parts, tried, limits[0], weight)
        _averages(weight, parts, averages)
        mean = averages[1]
        square = averages[2]
        curves = _curves(mean, square - mean * mean, middle, has_path)
        location_gap = target[0] - curves[0]
        dispersion_gap = target[1] - curves[1]
        size = abs(location_gap) + abs(dispersion_gap)
        if size < error:
            error = size
            factor = 1.0
            u = averages[3]
            v = averages[6]
            moved_u = averages[4] - mean * u
            moved_v = averages[7] - mean * v
            by_variance = 2.0 * mean * curves[4]
            a = curves[2] * moved_u
            b = curves[2] * moved_v
            c = (curves[3] - by_variance) * moved_u + curves[4] * (
                averages[5] - square * u
            )
            d = (curves[3] - by_variance) * moved_v + curves[4] * (
                averages[8] - square * v
            )
            det = a * d - b * c
            values = (
                tried[0], tried[1], mean, curves[2], curves[3], curves[4],
                d / det, -b / det, -c / det, a / det,
            )  # fmt: skip
            for j in range(10):
                solution[j] = values[j]
            step[0] = solution[6] * location_gap + solution[7] * dispersion_gap
            step[1] = solution[8] * location_gap + solution[9] * dispersion_gap
            if not (error > _RESIDUAL and abs(step[0]) + abs(step[1]) < np.inf):
                break
            shorter = min(1.0, _LONGEST_TILT / max(abs(step[0]), abs(step[1])))
            step[0] *= shorter
            step[1] *= shorter
        else:  # a step too long; NaN too
            factor *= 0.5
            if factor < _LEAST_FACTOR or error <= limits[1]:
                break
        for j in range(2):
            tried[j] = solution[j] + factor * step[j]
    if tried[0] != solution[0] or tried[1] != solution[1]:
        _tilted(fixed, parts, solution, limits[0], weight)
    total = 0.0
    for r in range(len(weight)):
        total += weight[r]
    for r in range(len(weight)):
        weight[r] /= total
    solution[10] = error


@_compiled
def solve_weights(log_weight, bounded, parts, law, limits, solution):
    """Turn log weights (n, R, draws) into weights, and fill solutions (11, n, draws)."""
    middle, has_path = law
    rows, components, draws = log_weight.shape
    fixed = np.empty(components)
    weight = np.empty(components)
    answer = np.empty(11)
    for b in range(rows):
        for s in range(draws):
            for r in range(components):
                fixed[r] = log_weight[b, r, s]
            for j in range(2):
                answer[j] = solution[j, b, s]
            _solve(
                fixed,
                bounded[b, :2, s],
                parts[b],
                middle[b],
                has_path,
                limits,
                weight,
                answer,
            )
            for r in range(components):
                log_weight[b, r, s] = weight[r]
            for j in range(11):
                solution[j, b, s] = answer[j]
