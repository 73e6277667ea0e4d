"""Compiled loops over rows' polynomials, and over levels with their rows, for all draws at once.

Polynomials are `Surrogates.arrays`. Rows of levels are `(designs, shared, order, ends)`: both
curves' functions (rows, K) of the levels' coefficients, the shared part of both curves (2, rows,
draws), and the rows' numbers level by level, with the ends of the levels among them.
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
def _add_scaled(factor, values, total):
    for s in range(len(total)):
        total[s] += factor * values[s]


@_quick
def _terms(coefficients, degree):
    """Coefficients up to a degree in u, and to the next multiple of four powers of v."""
    return coefficients[: degree + 1, : degree // 4 * 4 + 4]


@_quick
def _evaluate(terms, u, v, inner, value):
    """Fill `value` (draws,) by Horner's scheme in both variables, four powers of v at a time."""
    _fill(value, 0.0)
    number = terms.shape[1]
    for i in range(len(terms) - 1, -1, -1):
        a, b, c, d = terms[i, 0], terms[i, 1], terms[i, 2], terms[i, 3]
        if number == 4:  # one loop is much faster than several
            for s in range(len(u)):
                x = v[s]
                value[s] = value[s] * u[s] + (((d * x + c) * x + b) * x + a)
            continue
        e, f, g, h = (
            terms[i, number - 4],
            terms[i, number - 3],
            terms[i, number - 2],
            terms[i, number - 1],
        )
        if number == 8:
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
def _evaluate_slopes(terms, u, v, per_u, per_v, slope, inner, by_u, by_v):
    """Fill slopes (draws,) in both curves; `slope` has room for a polynomial's coefficients."""
    degree = len(terms) - 1
    slope = slope[: degree + 1, : terms.shape[1]]
    for i in range(degree):
        for j in range(terms.shape[1]):
            slope[i, j] = (i + 1) * per_u * terms[i + 1, j]
    _evaluate(slope[:degree], u, v, inner, by_u)
    for i in range(degree + 1):
        for j in range(terms.shape[1] - 1):
            slope[i, j] = (j + 1) * per_v * terms[i, j + 1]
        slope[i, terms.shape[1] - 1] = 0.0
    _evaluate(slope, u, v, inner, by_v)


@_quick
def fill(location, dispersion, value, slopes, outside, polynomials):
    """Fill values and slopes (unless empty), (rows, draws), and mark those outside regions."""
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
            _evaluate_slopes(
                terms, u, v, per_u, per_v, slope, inner, slopes[0, row], slopes[1, row]
            )


@_quick
def _scale(values, factor):
    for s in range(len(values)):
        values[s] *= factor[s]


@_quick
def _subtract_product(first, second, total):
    for s in range(len(total)):
        total[s] -= first[s] * second[s]


@_quick
def _factorise(information, tau, root, log_det):
    """Fill the lower `root` (K, K, draws) of M, with the reciprocals of its diagonal."""
    size = len(tau)
    for i in range(size):
        for j in range(i + 1):
            for s in range(tau.shape[1]):
                root[i, j, s] = tau[i, s] * information[i, j] * tau[j, s]
        for s in range(tau.shape[1]):
            root[i, i, s] += 1.0
    for k in range(size):
        for s in range(tau.shape[1]):
            log_det[s] += np.log(root[k, k, s])
            root[k, k, s] = 1.0 / np.sqrt(root[k, k, s])
        for i in range(k + 1, size):
            _scale(root[i, k], root[k, k])
        for j in range(k + 1, size):
            for i in range(j, size):
                _subtract_product(root[i, k], root[j, k], root[i, j])


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
def solve(information, tau, right, noise, diagonal):
    """Replace right (G, K, n, draws) by M^-1 right, M = I + D A D with D = diag(tau (K, draws)).

    Standard normal `noise` (G, K, n, draws) becomes noise of covariance M^-1. Returns
    log det M (G, draws); fills the diagonal of M^-1, (G, K, draws) or of no level.
    """
    levels, size, columns, draws = right.shape
    log_det = np.zeros((levels, draws))
    root = np.empty((size, size, draws))
    unit = np.empty((1, size, 1, draws))
    for g in range(levels):
        _factorise(information[g], tau, root, log_det[g])
        for n in range(columns):
            _solve_root(root, right, g, n, 0)
            _solve_transposed(root, right, g, n)
        for n in range(noise.shape[2]):
            _solve_transposed(root, noise, g, n)
        if len(diagonal):
            _fill_diagonal(root, unit, g, diagonal)
    return log_det


@_quick
def _add_functions(design, scale, deviations, g, first, n, place):
    """Add a row's functions (k,) times deviations from `first` on, four at a time."""
    last = len(design) - 1
    for k in range(0, last + 1, 4):
        second = min(k + 1, last)
        third = min(k + 2, last)
        fourth = min(k + 3, last)
        a = scale * design[k]
        b = scale * design[second] if second > k else 0.0
        c = scale * design[third] if third > second else 0.0
        d = scale * design[fourth] if fourth > third else 0.0
        of_a = deviations[g, first + k, n]
        of_b = deviations[g, first + second, n]
        of_c = deviations[g, first + third, n]
        of_d = deviations[g, first + fourth, n]
        for s in range(len(place)):
            place[s] += a * of_a[s] + b * of_b[s] + c * of_c[s] + d * of_d[s]


@_quick
def _fill_place(values, centre, scale, place):
    for s in range(len(values)):
        place[s] = (values[s] - centre) * scale


@_quick
def _place(g, n, row, rows, deviations, centre, reach, u, v):
    """Fill the row's place in units of its polynomial; the number of draws outside its region."""
    (of_first, of_second), shared = rows[:2]
    per_u = 1.0 / reach[0, row]
    per_v = 1.0 / reach[1, row]
    _fill_place(shared[0, row], centre[0, row], per_u, u)
    _fill_place(shared[1, row], centre[1, row], per_v, v)
    _add_functions(of_first[row], per_u, deviations, g, 0, n, u)
    _add_functions(of_second[row], per_v, deviations, g, of_first.shape[1], n, v)
    outside = 0
    for s in range(len(u)):
        outside += (u[s] * u[s] >= 1.0) + (v[s] * v[s] >= 1.0)
    return outside


@_quick
def add_values(rows, deviations, polynomials, total, outside):
    """Add rows' log marginals to `total` (G, N, draws), and mark those that have no polynomial.

    The marks (rows, N, draws) are for places outside a row's region; returns their number.
    """
    centre, reach, coefficients, degree = polynomials
    order, ends = rows[2:]
    draws = total.shape[2]
    u = np.empty(draws)
    v = np.empty(draws)
    inner = np.empty(draws)
    value = np.empty(draws)
    marks = 0
    for g in range(len(ends) - 1):
        for n in range(total.shape[1]):
            for row in order[ends[g] : ends[g + 1]]:
                if not reach[0, row] > 0.0 or not reach[1, row] > 0.0:
                    outside[row, n] = True
                    marks += draws
                    continue
                number = _place(g, n, row, rows, deviations, centre, reach, u, v)
                terms = _terms(coefficients[row], degree[row])
                _evaluate(terms, u, v, inner, value)
                if number:
                    marks += number
                    for s in range(len(value)):
                        if not (abs(u[s]) < 1.0 and abs(v[s]) < 1.0):
                            outside[row, n, s] = True
                            value[s] = 0.0
                _add_scaled(1.0, value, total[g, n])
    return marks


@_quick
def _weigh(values, u, v, weight, outside):
    for s in range(len(values)):
        values[s] *= weight[s]
    if outside:
        for s in range(len(values)):
            if not (abs(u[s]) < 1.0 and abs(v[s]) < 1.0):
                values[s] = 0.0


@_quick
def add_slopes(rows, deviations, polynomials, weights, by_deviation, by_row):
    """Add weighted slopes in deviations (G, K, N, draws) and in both curves (2, rows, draws).

    Those of draws outside a row's region are left out.
    """
    centre, reach, coefficients, degree = polynomials
    of_first, of_second = rows[0]
    order, ends = rows[2:]
    draws = weights.shape[2]
    u = np.empty(draws)
    v = np.empty(draws)
    inner = np.empty(draws)
    by_u = np.empty(draws)
    by_v = np.empty(draws)
    slope = np.empty(coefficients.shape[1:])
    size = of_first.shape[1]
    for g in range(len(ends) - 1):
        for n in range(weights.shape[1]):
            weight = weights[g, n]
            for row in order[ends[g] : ends[g + 1]]:
                if not reach[0, row] > 0.0 or not reach[1, row] > 0.0:
                    continue
                number = _place(g, n, row, rows, deviations, centre, reach, u, v)
                terms = _terms(coefficients[row], degree[row])
                _evaluate_slopes(
                    terms,
                    u,
                    v,
                    1.0 / reach[0, row],
                    1.0 / reach[1, row],
                    slope,
                    inner,
                    by_u,
                    by_v,
                )
                _weigh(by_u, u, v, weight, number)
                _weigh(by_v, u, v, weight, number)
                _add_scaled(1.0, by_u, by_row[0, row])
                _add_scaled(1.0, by_v, by_row[1, row])
                for k in range(size):
                    _add_scaled(of_first[row, k], by_u, by_deviation[g, k, n])
                for k in range(of_second.shape[1]):
                    _add_scaled(of_second[row, k], by_v, by_deviation[g, size + k, n])
