"""Compiled loops over rows' polynomials, and over levels with their rows, for all draws at once.

Rows of levels are `(designs, shared, order, ends)`, with places in units of their polynomials: both
curves' functions (rows, K) of the levels' coefficients, the shared part of both places (2, rows,
draws), and the rows' numbers level by level, with the ends of the levels among them. Their
polynomials are `(coefficients, degree)`, of degree -1 where there is none.
"""

import numba
import numpy as np

_quick = numba.njit(
    cache=True, nogil=True, error_model="numpy", fastmath={"contract", "nsz"}
)


@_quick
def _fill(values, number):
    for s in range(len(values)):
        values[s] = number


@_quick
def _add(values, total):
    for s in range(len(total)):
        total[s] += values[s]


@_quick
def _add_scaled(factor, values, total):
    for s in range(len(total)):
        total[s] += factor * values[s]


@_quick
def _terms(coefficients, degree):
    """Coefficients up to a degree in u, and to the next multiple of four powers of v."""
    return coefficients[: degree + 1, : degree // 4 * 4 + 4]


@_quick
def _cubic(terms, i, x):
    return ((terms[i, 3] * x + terms[i, 2]) * x + terms[i, 1]) * x + terms[i, 0]


@_quick
def _quintic(terms, i, x):
    high = (terms[i, 5] * x + terms[i, 4]) * x + terms[i, 3]
    return ((high * x + terms[i, 2]) * x + terms[i, 1]) * x + terms[i, 0]


@_quick
def _evaluate(terms, u, v, inner, value):
    """Fill `value` (draws,) by Horner's scheme in both variables."""
    # one loop is much faster than several
    if len(terms) == 4:
        for s in range(len(u)):
            x, y = v[s], u[s]
            high = _cubic(terms, 3, x) * y + _cubic(terms, 2, x)
            value[s] = (high * y + _cubic(terms, 1, x)) * y + _cubic(terms, 0, x)
    elif len(terms) == 6:
        for s in range(len(u)):
            x, y = v[s], u[s]
            high = _quintic(terms, 5, x) * y + _quintic(terms, 4, x)
            high = (high * y + _quintic(terms, 3, x)) * y + _quintic(terms, 2, x)
            value[s] = (high * y + _quintic(terms, 1, x)) * y + _quintic(terms, 0, x)
    else:
        _evaluate_powers(terms, u, v, inner, value)


@_quick
def _evaluate_powers(terms, u, v, inner, value):
    """Fill `value` (draws,), four powers of v at a time."""
    size, number = terms.shape
    _fill(value, 0.0)
    for i in range(size - 1, -1, -1):
        if number == 8:
            a, b, c, d = terms[i, 0], terms[i, 1], terms[i, 2], terms[i, 3]
            e, f, g, h = terms[i, 4], terms[i, 5], terms[i, 6], terms[i, 7]
            for s in range(len(u)):
                x = v[s]
                high = ((h * x + g) * x + f) * x + e
                inner_value = (((high * x + d) * x + c) * x + b) * x + a
                value[s] = value[s] * u[s] + inner_value
            continue
        _fill(inner, 0.0)
        for j in range(number - 4, -1, -4):
            a, b, c, d = terms[i, j], terms[i, j + 1], terms[i, j + 2], terms[i, j + 3]
            for s in range(len(u)):
                x = v[s]
                inner[s] = (((inner[s] * x + d) * x + c) * x + b) * x + a
        for s in range(len(u)):
            value[s] = value[s] * u[s] + inner[s]


@_quick
def _evaluate_slopes(terms, u, v, slope, inner, by_u, by_v):
    """Fill slopes (draws,) in both places; `slope` has room for a polynomial's coefficients."""
    degree = len(terms) - 1
    slope = slope[: degree + 1, : terms.shape[1]]
    for i in range(degree):
        for j in range(terms.shape[1]):
            slope[i, j] = (i + 1) * terms[i + 1, j]
    slope[degree] = 0.0
    _evaluate(slope, u, v, inner, by_u)
    for i in range(degree + 1):
        for j in range(terms.shape[1] - 1):
            slope[i, j] = (j + 1) * terms[i, j + 1]
        slope[i, terms.shape[1] - 1] = 0.0
    _evaluate(slope, u, v, inner, by_v)


@_quick
def fill(location, dispersion, value, slopes, outside, polynomials):
    """Fill values and slopes (unless empty), (rows, draws), and mark those outside regions.

    Polynomials are `Surrogates.arrays`.
    """
    centre, reach, coefficients, degree = polynomials
    draws = location.shape[1]
    u = np.empty(draws)
    v = np.empty(draws)
    inner = np.empty(draws)
    slope = np.empty(coefficients.shape[1:])
    for row in range(len(location)):
        if not reach[0, row] > 0.0 or not reach[1, row] > 0.0:
            outside[row] = True
            continue
        per_u = 1.0 / reach[0, row]
        per_v = 1.0 / reach[1, row]
        for s in range(draws):
            u[s] = (location[row, s] - centre[0, row]) * per_u
            v[s] = (dispersion[row, s] - centre[1, row]) * per_v
            outside[row, s] = not (abs(u[s]) < 1.0 and abs(v[s]) < 1.0)
        terms = _terms(coefficients[row], degree[row])
        _evaluate(terms, u, v, inner, value[row])
        if slopes.size:
            by_u, by_v = slopes[0, row], slopes[1, row]
            _evaluate_slopes(terms, u, v, slope, inner, by_u, by_v)
            for s in range(draws):
                by_u[s] *= per_u
                by_v[s] *= per_v


@_quick
def _scale(values, factor):
    for s in range(len(values)):
        values[s] *= factor[s]


@_quick
def _subtract_product(first, second, total):
    for s in range(len(total)):
        total[s] -= first[s] * second[s]


@_quick
def _fill_precision(information, tau, precision):
    """Fill the lower triangle of M (K, K, draws)."""
    for i in range(len(tau)):
        for j in range(i + 1):
            for s in range(tau.shape[1]):
                precision[i, j, s] = tau[i, s] * information[i, j] * tau[j, s]
        for s in range(tau.shape[1]):
            precision[i, i, s] += 1.0


@_quick
def _factorise(information, tau, root, log_det):
    """Fill log det M, and the lower `root` (K, K, draws) with reciprocals of its diagonal."""
    _fill_precision(information, tau, root)
    _fill(log_det, 1.0)
    size = len(tau)
    for k in range(size):
        for s in range(len(log_det)):
            log_det[s] *= root[k, k, s]
            root[k, k, s] = 1.0 / np.sqrt(root[k, k, s])
        for i in range(k + 1, size):
            _scale(root[i, k], root[k, k])
        for j in range(k + 1, size):
            for i in range(j, size):
                _subtract_product(root[i, k], root[j, k], root[i, j])
    for s in range(len(log_det)):
        log_det[s] = np.log(log_det[s])


@_quick
def _solve_root(root, right, g, n, first):
    """Replace right[g, :, n], which is 0 before `first`, by root^-1 right[g, :, n]."""
    size = len(root)
    for k in range(first, size):
        _scale(right[g, k, n], root[k, k])
        for i in range(k + 1, size):
            _subtract_product(root[i, k], right[g, k, n], right[g, i, n])


@_quick
def _solve_transposed(root, right, g, n):
    """Replace right[g, :, n] by root'^-1 right[g, :, n]."""
    size = len(root)
    for k in range(size - 1, -1, -1):
        for i in range(k + 1, size):
            _subtract_product(root[i, k], right[g, i, n], right[g, k, n])
        _scale(right[g, k, n], root[k, k])


@_quick
def _fill_diagonal(root, unit, g, diagonal):
    """Fill diagonal[g] (K, draws) of M^-1; `unit` (1, K, 1, draws) is for work."""
    size = len(root)
    for k in range(size):
        for i in range(k, size):
            _fill(unit[0, i, 0], 1.0 if i == k else 0.0)
        _solve_root(root, unit, 0, 0, k)
        _fill(diagonal[g, k], 0.0)
        for i in range(k, size):
            for s in range(unit.shape[3]):
                diagonal[g, k, s] += unit[0, i, 0, s] * unit[0, i, 0, s]


@_quick
def solve(information, tau, right, diagonal):
    """Replace right (G, K, n, draws) by M^-1 right, M = I + D A D with D = diag(tau (K, draws)).

    Returns log det M (G, draws); fills the diagonal of M^-1, (G, K, draws) or of no level.
    """
    levels, size, columns, draws = right.shape
    log_det = np.empty((levels, draws))
    root = np.empty((size, size, draws))
    unit = np.empty((1, size, 1, draws))
    for g in range(levels):
        _factorise(information[g], tau, root, log_det[g])
        for n in range(columns):
            _solve_root(root, right, g, n, 0)
            _solve_transposed(root, right, g, n)
        if len(diagonal):
            _fill_diagonal(root, unit, g, diagonal)
    return log_det


@_quick
def propose(information, tau, pull, noise, deviations, log_ratio):
    """Fill deviations (G, K, 2 n, draws) with antithetic proposals, and log ratios of densities.

    In units of tau (K, draws) they are M^-1 pull (G, K, 1, draws) and on either side of it moves of
    covariance M^-1, made of standard normal `noise` (G, K, n, draws). Ratios (G, 2 n, draws) are
    those of prior to proposal.
    """
    levels, size, pairs, draws = noise.shape
    log_det = np.empty(draws)
    root = np.empty((size, size, draws))
    squares = np.empty((2, draws))
    for g in range(levels):
        _factorise(information[g], tau, root, log_det)
        _solve_root(root, pull, g, 0, 0)
        _solve_transposed(root, pull, g, 0)
        for n in range(pairs):
            _fill(squares[0], 0.0)
            for k in range(size):
                for s in range(draws):
                    squares[0, s] += noise[g, k, n, s] * noise[g, k, n, s]
            squares[1] = squares[0]
            _solve_transposed(root, noise, g, n)
            for k in range(size):
                for s in range(draws):
                    ahead = pull[g, k, 0, s] + noise[g, k, n, s]
                    behind = pull[g, k, 0, s] - noise[g, k, n, s]
                    squares[0, s] -= ahead * ahead
                    squares[1, s] -= behind * behind
                    deviations[g, k, n, s] = tau[k, s] * ahead
                    deviations[g, k, pairs + n, s] = tau[k, s] * behind
            for s in range(draws):
                log_ratio[g, n, s] = 0.5 * (squares[0, s] - log_det[s])
                log_ratio[g, pairs + n, s] = 0.5 * (squares[1, s] - log_det[s])


@_quick
def _add_functions(design, deviations, place):
    """Add a row's functions (k,) times deviations (k, S), four at a time."""
    last = len(design) - 1
    for k in range(0, last + 1, 4):
        second = min(k + 1, last)
        third = min(k + 2, last)
        fourth = min(k + 3, last)
        a = design[k]
        b = design[second] if second > k else 0.0
        c = design[third] if third > second else 0.0
        d = design[fourth] if fourth > third else 0.0
        of_a = deviations[k]
        of_b = deviations[second]
        of_c = deviations[third]
        of_d = deviations[fourth]
        for s in range(len(place)):
            place[s] += a * of_a[s] + b * of_b[s] + c * of_c[s] + d * of_d[s]


@_quick
def _place(row, rows, deviations, u, v):
    """Fill the row's place in units of its polynomial, and return whether one is outside."""
    (of_first, of_second), shared = rows[:2]
    draws = shared.shape[2]
    for first in range(0, len(u), draws):
        for s in range(draws):
            u[first + s] = shared[0, row, s]
            v[first + s] = shared[1, row, s]
    size = of_first.shape[1]
    _add_functions(of_first[row], deviations[:size], u)
    _add_functions(of_second[row], deviations[size:], v)
    outside = 0
    for s in range(len(u)):
        outside += (u[s] * u[s] >= 1.0) + (v[s] * v[s] >= 1.0)
    return outside > 0


@_quick
def add_values(rows, deviations, polynomials, total, outside):
    """Add rows' log marginals to `total` (G, S), and mark those that have no polynomial.

    `deviations` (G, K, S) are those of all draws of a proposal, then of the next one. The marks
    (rows, S) are for places outside a row's region; returns whether there are any.
    """
    coefficients, degree = polynomials
    order, ends = rows[2:]
    number = total.shape[1]
    u = np.empty(number)
    v = np.empty_like(u)
    inner = np.empty_like(u)
    value = np.empty_like(u)
    marked = False
    for g in range(len(ends) - 1):
        for row in order[ends[g] : ends[g + 1]]:
            if degree[row] < 0:
                outside[row] = True
                marked = True
                continue
            some_outside = _place(row, rows, deviations[g], u, v)
            terms = _terms(coefficients[row], degree[row])
            _evaluate(terms, u, v, inner, value)
            if some_outside:
                marked = True
                for s in range(number):
                    if not (abs(u[s]) < 1.0 and abs(v[s]) < 1.0):
                        outside[row, s] = True
                        value[s] = 0.0
            _add(value, total[g])
    return marked


@_quick
def _weigh(values, u, v, weight, outside):
    for s in range(len(values)):
        values[s] *= weight[s]
    if outside:
        for s in range(len(values)):
            if not (abs(u[s]) < 1.0 and abs(v[s]) < 1.0):
                values[s] = 0.0


@_quick
def _add_slope(design, slope, by_deviation, by_row):
    """Add a row's slope (S,) to those in deviations (k, S) and in its place (draws,)."""
    draws = len(by_row)
    for first in range(0, len(slope), draws):
        _add(slope[first : first + draws], by_row)
    for k in range(len(design)):
        _add_scaled(design[k], slope, by_deviation[k])


@_quick
def add_slopes(rows, deviations, polynomials, weights, by_deviation, by_row):
    """Add slopes, weighted (G, S), in deviations (G, K, S) and in both places (2, rows, draws).

    Those of draws outside a row's region are left out.
    """
    coefficients, degree = polynomials
    of_first, of_second = rows[0]
    order, ends = rows[2:]
    u = np.empty(weights.shape[1])
    v = np.empty_like(u)
    inner = np.empty_like(u)
    by_u = np.empty_like(u)
    by_v = np.empty_like(u)
    slope = np.empty_like(coefficients[0])
    size = of_first.shape[1]
    for g in range(len(ends) - 1):
        for row in order[ends[g] : ends[g + 1]]:
            if degree[row] < 0:
                continue
            some_outside = _place(row, rows, deviations[g], u, v)
            terms = _terms(coefficients[row], degree[row])
            _evaluate_slopes(terms, u, v, slope, inner, by_u, by_v)
            _weigh(by_u, u, v, weights[g], some_outside)
            _weigh(by_v, u, v, weights[g], some_outside)
            _add_slope(of_first[row], by_u, by_deviation[g, :size], by_row[0, row])
            _add_slope(of_second[row], by_v, by_deviation[g, size:], by_row[1, row])
