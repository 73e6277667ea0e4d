"""The log marginal of rows under mixtures, whose mean and variance are those of the curves.

At a score the mixture has components on a fixed grid. Its predictors are both curves of the family
and coefficients of functions of the log weights. Two further coefficients, of functions that shift
and stretch the weights, are solved for, so that E(theta) and Var(theta) are what the curves say:
the curves have the meaning and the prior that they have for a single distribution, and are nearly
orthogonal to the shape.
"""

from dataclasses import dataclass, field, fields, replace
from typing import ClassVar

import numba
import numpy as np
from numpy.typing import NDArray
from scipy import special

from .._lib.arrays import Floats, Ints

_CLOSE, _STEPS = 1e-8, 60  # residual allowed in both curves, and most Newton steps
_LONGEST = 2.0  # step of the coefficients that shift and stretch
_SHORTEST = 0.02  # share of the line from the centre
_MANY_DRAWS = 8  # draws for which it pays to solve at their mean first
LOWEST = -700.0
"""Logarithm of the smallest weight over the largest."""
FLOOR = 1e-3
"""Share of the weights of Gammas and Betas that allows heavier tails."""
UPPER = 0.05
"""Logarithm of a share of a component below 0, from which on its log density is a line."""
_SOFT = 0.15  # share of the range over which a curve is bent to either bound
# the first curve's bound in spreads; the second's, above a single component's and as a spread
_FARTHEST, _WIDEST = 4.0, 2.5
ROOM = 0.8
"""Least second curve above that of a component, so that several components have weight."""

_jit = numba.njit(cache=True, nogil=True, error_model="numpy")
_fast = numba.njit(
    cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz", "arcp"}
)


@dataclass(frozen=True)
class WeightForms:
    """Components at n scores, and how predictors give their weights.

    Means and variances of theta are in units of the Laplace start's: for Gammas, of its mean; for
    Normals, around its mean in its sd; for Betas, around its mean m in m (1 - m).
    """

    # (n, 4, R): positions of the components, as logarithms of their means relative to the start's
    # (Gammas), logarithms of their means and of one minus these (Betas), or means (Normals);
    # weights that allow heavier tails; for Betas, log weights that make the start's
    base: Floats
    basis: Floats  # (n, R, 2 + F): functions that shift and stretch, and F further ones
    mean: Floats  # (n, R): mean of theta under each component, minus the start's
    variance: Floats  # (n, R): its variance
    # (n, 7): first curve of the start and its unit; what is taken from the second curve; the mean
    # of the start for Betas, 0 for Gammas, -1 for Normals; a bound of the first curve on both
    # sides, and bounds of the second, relative to the start's: what the components can represent
    handle: Floats
    centre: Floats  # (n, 2 + F): bounded curves and further predictors of the grid's own base
    guess: Floats  # (n, 2, 3 + F): coefficients that shift and stretch there, and their slopes

    @property
    def arrays(self) -> tuple[Floats, ...]:
        """All arrays."""
        return tuple(getattr(self, f.name) for f in fields(self))

    @property
    def paths(self) -> bool:
        """True if the first further function is the path to the family's own weights."""
        return bool(self.handle[0, 3] >= 0.0)


@dataclass(frozen=True)
class MixtureCells:
    """Data of the likelihood of a mixture, row by row."""

    forms: WeightForms  # at the rows
    start: Ints  # (rows + 1,): offsets of each row's cells
    items: Floats  # (cells,): numbers of items
    density: NDArray[np.float32]  # (cells, R): under the components, over the cell's largest
    constant: Floats  # (rows,): sum of the logarithms of these divisors
    # (cells,): density where theta is 0, over the same divisors. The last predictor is then the
    # logit of this share. Empty where theta is never 0
    atom: NDArray[np.float32] = field(default_factory=lambda: np.empty(0, dtype=np.float32))

    signature: ClassVar[str] = (
        "(b,k,r),(b,r,j),(b,r),(b,r),(b,h),(b,p),(b,m,g),(s),(c),(c,r),(b),(z)"
    )
    informs_variance: ClassVar[bool] = True  # other data are refused before

    @property
    def arrays(self) -> tuple[NDArray[np.generic], ...]:
        """All arrays in the order of the kernel."""
        cells = self.start, self.items, self.density, self.constant, self.atom
        return (*self.forms.arrays, *cells)


# --- weights from predictors ----------------------------------------------------------------------


@_jit
def _curves(middle, mean, square):  # type: ignore[no-untyped-def]
    """Both curves, relative to the start's, from the mean and the mean square, with derivatives.

    `middle` is the fourth number of `WeightForms.handle`. The first depends on the mean alone.
    """
    v = square - mean * mean
    by_mean = -2.0 * mean
    if middle < 0.0:  # Normals
        return mean, np.log(v), 1.0, by_mean / v, 1.0 / v
    if middle == 0.0:  # Gammas: what follows, with fewer logarithms
        up = 1.0 + mean
        log_up = np.log(up)
        return log_up, np.log(v) - 2.0 * log_up, 1.0 / up, by_mean / v - 2.0 / up, 1.0 / v
    up, down = 1.0 + (1.0 - middle) * mean, 1.0 - middle * mean
    product, by_product = up * down, (1.0 - middle) * down - middle * up
    unit = middle * (1.0 - middle)
    room = product - unit * v
    bend = by_mean / v - by_product / product - (by_product - unit * by_mean) / room
    slope = (1.0 - middle) / up + middle / down
    value = np.log(v) - np.log(product) - np.log(room)
    return np.log(up) - np.log(down), value, slope, bend, 1.0 / v + unit / room


@_jit
def _bent(x, low, high):  # type: ignore[no-untyped-def]
    """X, bent smoothly towards bounds that it never passes; and the derivative."""
    soft = _SOFT * (high - low)
    if x > high - soft:
        t = np.tanh((x - high + soft) / soft)
        return high - soft * (1.0 - t), 1.0 - t * t
    if x < low + soft:
        t = np.tanh((x - low - soft) / soft)
        return low + soft * (1.0 + t), 1.0 - t * t
    return x, 1.0


@_jit
def _normal_terms(inner, mean_curve, spread_curve, base, log, along):  # type: ignore[no-untyped-def]
    """`_base_weights` of Normals."""
    wide = np.exp(spread_curve)
    v = wide - inner
    for r in range(len(log)):
        y = (base[0, r] - mean_curve) / v
        log[r] = -0.5 * y * y * v
        along[0, r], along[1, r] = y, 0.5 * y * y * wide


@_jit
def _gamma_terms(inner, mean_curve, spread_curve, base, normal, family):  # type: ignore[no-untyped-def]
    """Log weights that make log-normals, and Gammas, each (3, R) with derivatives in both curves.

    Both are products: a log-normal is a log-normal times a component, nearly, and Gamma(a) is
    Beta(a, A - a) times Gamma(A), a component.
    """
    wide, a = np.exp(spread_curve), np.exp(-spread_curve)
    v, by_v = np.log1p(wide) - np.log1p(inner), wide / (1.0 + wide)
    q, shift = 1.0 / inner - a - 1.0, np.log(inner * a) - mean_curve
    for r in range(base.shape[1]):
        y = (base[0, r] - mean_curve) / v + 0.5
        normal[0, r], normal[1, r] = -0.5 * y * y * v, y
        normal[2, r] = 0.5 * y * (y - 1.0) * by_v
        log_share = base[0, r] + shift
        share = np.exp(max(min(log_share, -UPPER), LOWEST))
        slope = -share / (1.0 - share)
        # beyond, a straight line, so that no weight is 0
        log_complement = np.log(1.0 - share) + slope * max(log_share + UPPER, 0.0)
        family[0, r] = a * log_share + q * log_complement
        family[1, r] = -(a + q * slope)
        family[2, r] = a * (log_complement - log_share - 1.0) - q * slope
    # the first component also stands for what is below it
    cells = a * (base[0, 1] - base[0, 0])
    family[0, 0] += np.log1p(1.0 / cells)
    family[2, 0] += 1.0 / (1.0 + cells)


@_jit
def _beta_terms(middle, inner, mean_curve, spread_curve, start, base, normal, family):  # type: ignore[no-untyped-def]
    """Fill the terms of Betas as `_gamma_terms` does, with logits in place of logarithms.

    Those of Betas are `base[3]` where the curves are the pilot's, whose mean is `middle` and whose
    second curve is `start`, and elsewhere nearly.
    """
    old = np.exp(start) - inner
    old_a, old_b = 1.0 / (old * (1.0 - middle)), 1.0 / (old * middle)
    wide, odds = np.exp(spread_curve), middle * np.exp(mean_curve)
    m = odds / (1.0 - middle + odds)
    v = wide - inner
    a, b = 1.0 / (v * (1.0 - m)), 1.0 / (v * m)
    location = np.log(m) - np.log(1.0 - m) + v * (m - 0.5)
    for r in range(base.shape[1]):
        above, below = base[0, r], base[1, r]
        y = (above - below - location) / v
        normal[0, r], normal[1, r] = -0.5 * y * y * v, y * (1.0 + v * m * (1.0 - m))
        normal[2, r] = (0.5 * y * y + y * (m - 0.5)) * wide
        family[0, r] = base[3, r] + (a - old_a) * above + (b - old_b) * below
        family[1, r] = a * m * above - b * (1.0 - m) * below
        family[2, r] = -wide / v * (a * above + b * below)


@_jit
def _floored(terms, floor):  # type: ignore[no-untyped-def]
    """Normalise log weights and derivatives (3, R) in place, to weights of sum 1 with a floor."""
    top, total, mean_slope, spread_slope = terms[0].max(), 0.0, 0.0, 0.0
    for r in range(len(floor)):
        weight = np.exp(max(terms[0, r] - top, LOWEST))
        terms[0, r] = weight
        total += weight
        mean_slope += weight * terms[1, r]
        spread_slope += weight * terms[2, r]
    mean_slope, spread_slope, scale = (
        mean_slope / total,
        spread_slope / total,
        (1.0 - FLOOR) / total,
    )
    for r in range(len(floor)):
        weight = scale * terms[0, r]
        part = weight / (weight + floor[r])
        terms[0, r] = np.log(weight + floor[r])
        terms[1, r] = part * (terms[1, r] - mean_slope)
        terms[2, r] = part * (terms[2, r] - spread_slope)


@_jit
def _base_weights(middle, inner, mean_curve, spread_curve, path, base, start, log, along):  # type: ignore[no-untyped-def]
    """Fill log weights (R,) of a row that make the distribution with these curves.

    At path 1 it is the family's, at 0 the normal one of theta, its logarithm or logit, in both
    cases apart from the grid. `along` (3, R) become derivatives in both curves and the path.
    `inner` is the second curve's exponential of a component, which convolves the weights.
    """
    if middle < 0.0:
        _normal_terms(inner, mean_curve, spread_curve, base, log, along)
        return
    normal, family = np.empty((3, len(log))), np.empty((3, len(log)))
    if middle == 0.0:
        _gamma_terms(inner, mean_curve, spread_curve, base, normal, family)
    else:
        _beta_terms(middle, inner, mean_curve, spread_curve, start, base, normal, family)
    _floored(normal, base[2])
    _floored(family, base[2])
    for r in range(len(log)):
        log[r] = normal[0, r] + path * (family[0, r] - normal[0, r])
        along[0, r] = normal[1, r] + path * (family[1, r] - normal[1, r])
        along[1, r] = normal[2, r] + path * (family[2, r] - normal[2, r])
        along[2, r] = family[0, r] - normal[0, r]


@_fast
def _sums(weight, parts, out):  # type: ignore[no-untyped-def]
    """Weighted sums of the rows of `parts` (9, R)."""
    for k in range(parts.shape[0]):
        total = 0.0
        for r in range(len(weight)):
            total += weight[r] * parts[k, r]
        out[k] = total


@_jit
def _tilted(fixed, u, v, parts, weight):  # type: ignore[no-untyped-def]
    """Fill weights relative to the largest."""
    for r in range(len(fixed)):
        weight[r] = fixed[r] + u * parts[3, r] + v * parts[4, r]
    top = weight.max()
    for r in range(len(fixed)):
        weight[r] = np.exp(max(weight[r] - top, LOWEST))


@_jit
def _parts(basis, mean, variance):  # type: ignore[no-untyped-def]
    """Functions that the solver averages over the components of a row, (9, R)."""
    out = np.empty((9, len(mean)))
    for r in range(len(mean)):
        square = mean[r] * mean[r] + variance[r]
        out[0, r], out[1, r], out[2, r] = 1.0, mean[r], square
        for k in range(2):
            out[3 + k, r] = basis[r, k]
            out[5 + k, r], out[7 + k, r] = mean[r] * basis[r, k], square * basis[r, k]
    return out


@_jit
def _solve(mean_curve, spread_curve, middle, parts, fixed, tilt, weight, solution):  # type: ignore[no-untyped-def]
    """Weights with both curves, relative to the start's, by Newton's method.

    `fixed` (R,) is the rest of the log weights, and `tilt` (2,) the coefficients that shift and
    stretch, from a first guess. `solution` becomes the inverse of the curves' derivatives in these
    coefficients (4), the curves' derivatives in both moments (3), the moments (2), and `tilt`.
    Returns whether the curves are met.
    """
    sums = np.empty(9)
    error, factor, u, v = np.inf, 1.0, 0.0, 0.0
    for _ in range(_STEPS):
        _tilted(fixed, tilt[0], tilt[1], parts, weight)
        _sums(weight, parts, sums)
        total = sums[0]
        d, q, s1, s2 = sums[1] / total, sums[2] / total, sums[3] / total, sums[4] / total
        reached_mean, reached_spread, slope, bend, other = _curves(middle, d, q)
        mean_gap, spread_gap = mean_curve - reached_mean, spread_curve - reached_spread
        size = abs(mean_gap) + abs(spread_gap)
        if not size < error:  # a step too long; NaN too
            factor *= 0.5
            if factor < 1e-4 or error <= 1e3 * _CLOSE:
                break
            tilt[0] -= factor * u
            tilt[1] -= factor * v
            continue
        error, factor = size, 1.0
        a1, a2 = sums[5] / total - d * s1, sums[6] / total - d * s2
        b1, b2 = sums[7] / total - q * s1, sums[8] / total - q * s2
        b1, b2 = bend * a1 + other * b1, bend * a2 + other * b2
        a1, a2 = slope * a1, slope * a2
        det = a1 * b2 - a2 * b1
        inverse = b2 / det, -a2 / det, -b1 / det, a1 / det
        solution[:4], solution[4:9], solution[9:11] = inverse, (slope, bend, other, d, q), tilt
        if not error > _CLOSE:
            break
        u = inverse[0] * mean_gap + inverse[1] * spread_gap
        v = inverse[2] * mean_gap + inverse[3] * spread_gap
        longest = max(abs(u), abs(v))
        if not longest < np.inf:
            break
        scale = min(1.0, _LONGEST / longest)
        u, v = scale * u, scale * v
        tilt[0] += u
        tilt[1] += v
    for r in range(len(fixed)):
        weight[r] /= total
    return error <= 1e3 * _CLOSE


@_jit
def _at(point, further, row, parts, centre, tilt, weight, solution, along):  # type: ignore[no-untyped-def]
    """`_solve` at bounded predictors (P,); `further` (R,) is what the last ones add."""
    middle, inner, base = row
    fixed = np.empty(len(weight))
    _base_weights(middle, inner, point[0], point[1], point[2], base, centre[1], fixed, along)
    for r in range(len(weight)):
        fixed[r] += further[r]
    return _solve(point[0], point[1], middle, parts, fixed, tilt, weight, solution)


@_jit
def _follow(  # type: ignore[no-untyped-def]
    end, functions, row, parts, centre, begin, tilt, weight, solution, along
):
    """Weights (R,) at bounded predictors (P,), where Newton's method fails from a first guess.

    It follows the line from the centre, where the solution is `begin`, and stays at the last point
    that it reached. Returns whether it reached the end.
    """
    u, v, reached, share, step = begin[0], begin[1], 0.0, 0.5, 0.5
    while True:
        tilt[0], tilt[1] = u, v
        point = centre + share * (end - centre)
        good = _at(point, functions @ point[2:], row, parts, centre, tilt, weight, solution, along)
        if share == reached:  # the last point that was reached
            return False
        if good:
            if share == 1.0:
                return True
            reached, step = share, 1.5 * step
            u, v = tilt[0], tilt[1]
        else:
            step *= 0.5
        share = reached if step < _SHORTEST else min(reached + step, 1.0)


@_jit
def _from_guess(  # type: ignore[no-untyped-def]
    point, further, functions, row, parts, centre, begin, near, line, weight, solution, along
):
    """Weights (R,) at bounded predictors (P,), from a first guess by a `line` around `near`."""
    tilt = line[:, 0].copy()
    for j in range(len(near)):
        tilt += line[:, j + 1] * (point[j] - near[j])
    if _at(point, further, row, parts, centre, tilt, weight, solution, along):
        return True
    return _follow(point, functions, row, parts, centre, begin, tilt, weight, solution, along)


@_jit
def _by_predictors(middle, basis, mean, variance, weight, solution, along, out):  # type: ignore[no-untyped-def]
    """Derivatives (2, P), in bounded predictors, of the coefficients that shift and stretch."""
    slope, bend, other, d, q = solution[4:9]
    for j in range(out.shape[1]):
        by_mean = by_square = 0.0
        for r in range(len(weight)):
            by = along[j, r] if j < 2 else basis[r, j]
            if j == 2 and middle >= 0.0:
                by += along[2, r]
            by_mean += weight[r] * (mean[r] - d) * by
            by_square += weight[r] * (mean[r] * mean[r] + variance[r] - q) * by
        u = (1.0 if j == 0 else 0.0) - slope * by_mean
        v = (1.0 if j == 1 else 0.0) - bend * by_mean - other * by_square
        out[0, j], out[1, j] = solution[0] * u + solution[1] * v, solution[2] * u + solution[3] * v


@_jit
def _row_weights(  # type: ignore[no-untyped-def]
    predictors, base, basis, mean, variance, handle, centre, guess, weight, solution, along
):
    """Fill weights (draws, R) of one row at predictors (draws, P).

    `along` (draws, 3, R) become the derivatives of `_base_weights`. First guesses of Newton's
    method are linear in the predictors: around the draws' mean, or the centre if draws are few.
    """
    draws = len(weight)
    parts = _parts(basis, mean, variance)
    middle, inner = handle[3], np.exp(handle[5] - ROOM)
    bounded = predictors.copy()
    start, unit, taken, _, far, low, high = handle
    for s in range(draws):
        bounded[s, 0], slope = _bent((predictors[s, 0] - start) / unit, -far, far)
        bounded[s, 1], solution[s, 12] = _bent(predictors[s, 1] - taken, low, high)
        solution[s, 11] = slope / unit
    functions = np.ascontiguousarray(basis[:, 2:])
    row, begin = (middle, inner, base), guess[:, 0].copy()
    near, line = centre.copy(), guess.copy()
    if draws >= _MANY_DRAWS:
        for j in range(len(near)):
            near[j] = bounded[:, j].mean()
        out = weight[0], solution[0], along[0]
        problem = functions @ near[2:], functions, row, parts, centre, begin, centre, guess
        if _from_guess(near, *problem, *out):
            line[:, 0] = solution[0, 9:11]
            _by_predictors(middle, basis, mean, variance, *out, line[:, 1:])
        else:
            near[:] = centre
    further = np.ascontiguousarray(bounded[:, 2:]) @ functions.T
    for s in range(draws):
        problem = further[s], functions, row, parts, centre, begin, near, line
        _from_guess(bounded[s], *problem, weight[s], solution[s], along[s])


@_jit
def bent_curves(location, dispersion, handle):  # type: ignore[no-untyped-def]
    """Both curves (draws, n), in place, as the components can represent them."""
    for b in range(location.shape[1]):
        start, unit, taken, _, far, low, high = handle[b]
        for s in range(len(location)):
            location[s, b] = start + unit * _bent((location[s, b] - start) / unit, -far, far)[0]
            dispersion[s, b] = taken + _bent(dispersion[s, b] - taken, low, high)[0]


@_jit
def solved(predictors, base, basis, mean, variance, handle, centre, guess):  # type: ignore[no-untyped-def]
    """Weights (draws, n, R) at predictors (draws, n, P), and what was found, (draws, n, 13).

    The latter is that of `_solve`, then derivatives of the bounded curves in the predictors. Where
    the curves cannot be met, weights are those that come close.
    """
    draws, n = predictors.shape[:2]
    number = base.shape[2]
    weight, solution = np.empty((draws, n, number)), np.empty((draws, n, 13))
    weight_of_row, solution_of_row = np.empty((draws, number)), np.empty((draws, 13))
    along = np.empty((draws, 3, number))
    for b in range(n):
        row = predictors[:, b], base[b], basis[b], mean[b], variance[b], handle[b]
        _row_weights(*row, centre[b], guess[b], weight_of_row, solution_of_row, along)
        weight[:, b], solution[:, b] = weight_of_row, solution_of_row
    return weight, solution


@_jit
def _at_one_draw(predictors, base, basis, mean, variance, handle, centre, guess):  # type: ignore[no-untyped-def]
    """`solved` at predictors (n, P), with the derivatives of `_base_weights`, (n, 3, R)."""
    n, _, number = base.shape
    weight, solution, along = np.empty((n, number)), np.empty((n, 13)), np.empty((n, 3, number))
    for b in range(n):
        row = predictors[b : b + 1], base[b], basis[b], mean[b], variance[b], handle[b]
        out = weight[b : b + 1], solution[b : b + 1], along[b : b + 1]
        _row_weights(*row, centre[b], guess[b], *out)
    return weight, solution, along


def _moving(predictors: Floats, forms: WeightForms) -> tuple[Floats, Floats, Floats, Floats]:
    """Weights at predictors (n, P), solutions, and derivatives of log weights (n, R, P).

    These are in the bounded curves and the further predictors, without what the coefficients that
    shift and stretch add; the fourth are the derivatives of these (n, 2, P).
    """
    weight, solution, base = _at_one_draw(predictors, *forms.arrays)
    along = np.concatenate([base[:, :2].transpose(0, 2, 1), forms.basis[:, :, 2:]], axis=2)
    if forms.paths:
        along[:, :, 2] += base[:, 2]
    inverse = solution[:, :4].reshape(-1, 2, 2)
    slope, bend, other, d, q = solution[:, 4:9].T
    square = forms.mean**2 + forms.variance
    centred = np.stack([forms.mean - d[:, None], square - q[:, None]], axis=1) * weight[:, None]
    by_mean, by_square = np.matmul(centred, along).transpose(1, 0, 2)
    lost = np.stack(
        [slope[:, None] * by_mean, bend[:, None] * by_mean + other[:, None] * by_square], 1
    )
    return weight, solution, along, inverse @ (np.eye(2, along.shape[2]) - lost)


def directions(predictors: Floats, forms: WeightForms) -> tuple[Floats, Floats]:
    """Weights (n, R) at predictors (n, P), and derivatives of their logarithms (n, R, P).

    The derivatives are up to a constant over the components.
    """
    weight, solution, along, moving = _moving(predictors, forms)
    along += np.matmul(forms.basis[:, :, :2], moving)
    along[:, :, :2] *= solution[:, None, 11:]
    return weight, along


def centred(forms: WeightForms, predictors: Floats) -> WeightForms:
    """Forms with some predictors (n, P) as the centre of the first guess."""
    centre = predictors.copy()
    curves = (predictors[:, 0] - forms.handle[:, 0]) / forms.handle[:, 1]
    for k, x in enumerate((curves, predictors[:, 1] - forms.handle[:, 2])):
        bounds = (-forms.handle[:, 4], forms.handle[:, 4]), forms.handle[:, 5:].T
        centre[:, k] = [_bent(*value)[0] for value in zip(x, *bounds[k], strict=True)]
    guess = np.zeros((*centre.shape[:1], 2, 1 + centre.shape[1]))
    forms = replace(forms, centre=centre, guess=guess)
    _, solution, _, moving = _moving(predictors, forms)
    guess[:, :, 0], guess[:, :, 1:] = solution[:, 9:11], moving
    return forms


def bounded_handle(
    mean_curve: Floats, unit: Floats, middle: Floats, spread: Floats, mean: Floats, variance: Floats
) -> Floats:
    """`WeightForms.handle` at n scores, from components (n, R).

    `spread` is that of the base distribution in units of the first curve.
    """
    nearest = np.abs(mean).argmin(axis=1)[:, None]
    near, narrow = (np.take_along_axis(x, nearest, axis=1)[:, 0] for x in (mean, variance))
    wide = (_WIDEST * spread) ** 2
    # of Betas, no variance is above mean (1 - mean)
    wide = wide / (1.0 + np.maximum(middle * (1.0 - middle), 0.0) * wide)
    low, high = (
        np.array([_curves(*row)[1] for row in zip(middle, near, near**2 + v, strict=True)])
        for v in (narrow, wide)
    )
    handle = mean_curve, unit, 2.0 * np.log(unit), middle, _FARTHEST * spread, low + ROOM, high
    return np.column_stack(np.broadcast_arrays(*handle))


# --- log marginal of rows -------------------------------------------------------------------------


@_fast
def _slopes(pull, weight, along, basis, mean, variance, solution):  # type: ignore[no-untyped-def]
    """Derivatives of a row's value in both bounded curves and the path.

    `pull` (R,) are those in the log weights, and become so at fixed moments.
    """
    u = v = 0.0
    for r in range(len(pull)):
        u += pull[r] * basis[r, 0]
        v += pull[r] * basis[r, 1]
    # derivatives of the value in both curves, then what shape does to the moments
    u, v = solution[0] * u + solution[2] * v, solution[1] * u + solution[3] * v
    by_mean, by_square = u * solution[4] + v * solution[5], v * solution[6]
    by_path = 0.0
    for r in range(len(pull)):
        square = mean[r] * mean[r] + variance[r]
        pull[r] -= weight[r] * (
            by_mean * (mean[r] - solution[7]) + by_square * (square - solution[8])
        )
        u += pull[r] * along[0, r]
        v += pull[r] * along[1, r]
        by_path += pull[r] * along[2, r]
    return u, v, by_path


@_jit
def _shares(predictors, atom):  # type: ignore[no-untyped-def]
    """Share of theta that is 0 (draws,), from predictors (draws, P)."""
    share = np.zeros(len(predictors))
    if len(atom):
        share[:] = 1.0 / (1.0 + np.exp(-predictors[:, predictors.shape[1] - 1]))
    return share


@_jit
def _densities(cells, weight, share, atom):  # type: ignore[no-untyped-def]
    """Densities (cells, draws); `share` (draws,) of theta is 0 if there are any atoms."""
    p = cells @ weight.T.astype(np.float32)
    for c in range(len(atom)):
        density_of_zero = np.float64(atom[c])
        for d in range(len(share)):
            p[c, d] = np.float32(
                (1.0 - share[d]) * np.float64(p[c, d]) + share[d] * density_of_zero
            )
    return p


@_jit
def _pulls(cells, weight, share, atom, ratio, items):  # type: ignore[no-untyped-def]
    """Derivatives of the value in log weights (draws, R), and in the logit of the share.

    `ratio` (cells, draws) are items over densities.
    """
    pull = weight * (cells.T @ ratio).T
    zeros = np.zeros(len(share))  # items for which theta is 0
    if len(atom):
        zeros[:] = share * (atom @ ratio)
    for s in range(len(share)):
        for r in range(weight.shape[1]):
            pull[s, r] = (1.0 - share[s]) * pull[s, r] - weight[s, r] * (items - zeros[s])
    return pull, zeros - share * items


@_jit
def all_rows(  # type: ignore[no-untyped-def]
    predictors, value, slope,
    base, basis, mean, variance, handle, centre, guess, start, items, density, constant, atom,
):  # fmt: skip
    """Log marginals (draws, rows) and slopes (draws, rows, P) at predictors (draws, rows, P)."""
    draws, number = predictors.shape[0], base.shape[2]
    weight, solution = np.empty((draws, number)), np.empty((draws, 13))
    along = np.empty((draws, 3, number))
    for b in range(predictors.shape[1]):
        row = predictors[:, b], base[b], basis[b], mean[b], variance[b], handle[b]
        _row_weights(*row, centre[b], guess[b], weight, solution, along)
        cells = density[start[b] : start[b + 1]]
        n = items[start[b] : start[b + 1]]
        atoms = atom[start[b] : start[b + 1]]
        share = _shares(predictors[:, b], atoms)
        p = _densities(cells, weight, share, atoms)
        total = np.zeros(draws)
        for c in range(p.shape[0]):
            for d in range(draws):
                # for a draw far from the data a cell's density may underflow in single precision
                density_of_cell = max(p[c, d], np.float32(1e-37))
                total[d] += n[c] * np.log(density_of_cell)
                p[c, d] = np.float32(n[c]) / density_of_cell
        pull, by_share = _pulls(cells, weight, share, atoms, p, n.sum())
        for s in range(draws):
            value[s, b] = total[s] + constant[b]
            u, v, by_path = _slopes(
                pull[s], weight[s], along[s], basis[b], mean[b], variance[b], solution[s]
            )
            slope[s, b, 0], slope[s, b, 1] = u * solution[s, 11], v * solution[s, 12]
            slope[s, b, 2] = by_path
        further = pull @ np.ascontiguousarray(basis[b, :, 2:])
        if handle[b, 3] < 0.0:
            slope[:, b, 2:] = further
        else:
            slope[:, b, 2] += further[:, 0]
            slope[:, b, 3:] = further[:, 1:]
        if len(atom):
            slope[:, b, predictors.shape[2] - 1] = by_share


def information(predictors: Floats, cells: MixtureCells) -> tuple[Floats, Floats]:
    """Expected and observed information of predictors (rows, P), each (rows, P, P).

    The expected one is estimated by the outer products of the cells' scores; the observed one is
    minus the second derivative, which need not be positive.
    """
    rows, number = predictors.shape
    expected = np.empty((rows, number, number))
    weights, along = directions(predictors, cells.forms)
    for b, weight in enumerate(weights):
        part = slice(cells.start[b], cells.start[b + 1])
        joint = cells.density[part] * weight
        of_zero, zero = np.zeros(len(joint)), 0.0
        if len(cells.atom):
            zero = float(special.expit(predictors[b, -1]))
            joint *= 1.0 - zero
            of_zero += zero * cells.atom[part]
        total = np.maximum(joint.sum(axis=1) + of_zero, 1e-300)
        score = (joint / total[:, None]) @ (along[b] - weight @ along[b])
        if len(cells.atom):
            score[:, -1] = of_zero / total - zero
        expected[b] = (score * cells.items[part][:, None]).T @ score
    step = 1e-3 * np.where(np.arange(number) == 0, cells.forms.handle[:, [1]], 1.0)
    shifted = np.array([predictors + s * step * e for s in (1, -1) for e in np.eye(number)])
    value, slope = np.empty(shifted.shape[:2]), np.empty(shifted.shape)
    all_rows(shifted, value, slope, *cells.arrays)
    curvature = (slope[number:] - slope[:number]).transpose(1, 2, 0) / (2.0 * step[:, None])
    return expected, 0.5 * (curvature + curvature.transpose(0, 2, 1))
