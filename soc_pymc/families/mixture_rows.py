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

_CLOSE, _STEPS = 1e-8, 60  # what may be left of both curves, and the most Newton steps
_LONGEST = 2.0  # step of the coefficients that shift and stretch
_SHORTEST = 0.02  # share of the line from the centre
_MANY_DRAWS = 8  # draws for which it pays to solve at their mean first
_AT_ONCE = 16  # draws whose base weights are made at once: long loops in the processor's cache
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
        """Whether the first of the further functions is the path to the family's own weights."""
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

    kernel: ClassVar[str] = "mixture"
    signature: ClassVar[str] = (
        "(b,k,r),(b,r,j),(b,r),(b,r),(b,h),(b,p),(b,m,g),(s),(c),(c,r),(b),(z)"
    )
    near: ClassVar[None] = None  # few cells are summed exactly
    informs_variance: ClassVar[bool] = True  # other data are refused before

    @property
    def arrays(self) -> tuple[NDArray[np.generic], ...]:
        """All arrays in the order of the kernel."""
        own = self.start, self.items, self.density, self.constant, self.atom
        return (*self.forms.arrays, *own)


# --- weights from predictors ----------------------------------------------------------------------


@_jit
def _curves(own, first, second):  # type: ignore[no-untyped-def]
    """Both curves, relative to the start's, from the mean and the mean square, with derivatives.

    `own` is the last number of `WeightForms.handle`. The first curve depends on the mean alone.
    """
    v = second - first * first
    by_first = -2.0 * first
    if own < 0.0:  # Normals
        return first, np.log(v), 1.0, by_first / v, 1.0 / v
    if own == 0.0:  # Gammas: what follows, with fewer logarithms
        up = 1.0 + first
        log_up = np.log(up)
        return log_up, np.log(v) - 2.0 * log_up, 1.0 / up, by_first / v - 2.0 / up, 1.0 / v
    up, down = 1.0 + (1.0 - own) * first, 1.0 - own * first
    both, by_both = up * down, (1.0 - own) * down - own * up
    unit = own * (1.0 - own)
    rest = both - unit * v
    bend = by_first / v - by_both / both - (by_both - unit * by_first) / rest
    slope = (1.0 - own) / up + own / down
    value = np.log(v) - np.log(both) - np.log(rest)
    return np.log(up) - np.log(down), value, slope, bend, 1.0 / v + unit / rest


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


# exp(x) = 2^k exp(r) with |r| <= log(2) / 2, by Taylor's series of 12 terms, to 1e-16
_LOG2E, _LN2_HIGH, _LN2_LOW = 1.4426950408889634, 0.6931471803691238, 1.9082149292705877e-10
_BIAS, _MANTISSA = np.int64(1023), np.int64(52)
_TAYLOR = 1.0 / np.cumprod(np.maximum(np.arange(13.0), 1.0))


@_fast
def exponentials(x, whole, bits, real):  # type: ignore[no-untyped-def]
    """Exponentials, in place, of numbers from `LOWEST` to 0; `bits` and `real` are one array.

    Unlike calls of exp, it is vectorised.
    """
    for r in range(len(x)):
        k = np.floor(x[r] * _LOG2E + 0.5)
        whole[r] = k
        bits[r] = (np.int64(k) + _BIAS) << _MANTISSA
    for r in range(len(x)):
        u = (x[r] - whole[r] * _LN2_HIGH) - whole[r] * _LN2_LOW
        y = _TAYLOR[12]
        for k in range(11, -1, -1):
            y = y * u + _TAYLOR[k]
        x[r] = y * real[r]


# log(x) = k log(2) + 2 atanh(f), f = (m - 1) / (m + 1) and sqrt(1/2) <= m < sqrt(2), to 1e-16
_ROOT_HALF, _ATANH = np.int64(0x3FE6A09E667F3BCD), 1.0 / np.arange(1.0, 23.0, 2.0)


@_fast
def logarithms(x, bits, real):  # type: ignore[no-untyped-def]
    """Logarithms, in place, of positive numbers; `bits` and `real` are one array."""
    for r in range(len(x)):
        real[r] = x[r]
    for r in range(len(x)):
        k = (bits[r] - _ROOT_HALF) >> _MANTISSA
        bits[r] = bits[r] - (k << _MANTISSA)
        x[r] = np.float64(k)
    for r in range(len(x)):
        f = (real[r] - 1.0) / (real[r] + 1.0)
        g = f * f
        y = _ATANH[10]
        for k in range(9, -1, -1):
            y = y * g + _ATANH[k]
        x[r] = (x[r] * _LN2_LOW + 2.0 * f * y) + x[r] * _LN2_HIGH


@_fast
def _normal_terms(inner, one, two, base, out, along):  # type: ignore[no-untyped-def]
    """`_base_weights` of Normals."""
    for s in range(len(one)):
        wide = np.exp(two[s])
        v = wide - inner
        for r in range(out.shape[1]):
            y = (base[0, r] - one[s]) / v
            out[s, r] = -0.5 * y * y * v
            along[s, 0, r], along[s, 1, r] = y, 0.5 * y * y * wide


@_fast
def _gamma_terms(inner, one, two, base, share, whole, bits, real, work):  # type: ignore[no-untyped-def]
    """Log weights that make log-normals, and Gammas, each with derivatives in both curves.

    Both are products: a log-normal is a log-normal times a component, nearly, and Gamma(a) is
    Beta(a, A - a) times Gamma(A), a component.
    """
    number = base.shape[1]
    for s in range(len(one)):
        wide = np.exp(two[s])
        v, by_v = np.log1p(wide) - np.log1p(inner), wide / (1.0 + wide)
        shift = np.log(inner / wide) - one[s]
        for r in range(number):
            y = (base[0, r] - one[s]) / v + 0.5
            work[0, s, r], work[1, s, r] = -0.5 * y * y * v, y
            work[2, s, r] = 0.5 * y * (y - 1.0) * by_v
            share[s, r] = max(min(base[0, r] + shift, -UPPER), LOWEST)
    exponentials(share.reshape(-1), whole.reshape(-1), bits, real)
    for s in range(len(one)):
        for r in range(number):
            whole[s, r] = 1.0 - share[s, r]
            share[s, r] = -share[s, r] / whole[s, r]
    logarithms(whole.reshape(-1), bits, real)
    for s in range(len(one)):
        a = np.exp(-two[s])
        q, shift = 1.0 / inner - a - 1.0, np.log(inner * a) - one[s]
        for r in range(number):
            log_share, slope = base[0, r] + shift, share[s, r]
            # beyond, a straight line, so that no weight is 0
            rest = whole[s, r] + slope * max(log_share + UPPER, 0.0)
            work[3, s, r] = a * log_share + q * rest
            work[4, s, r] = -(a + q * slope)
            work[5, s, r] = a * (rest - log_share - 1.0) - q * slope
        # the first component also stands for what is below it
        cells = a * (base[0, 1] - base[0, 0])
        work[3, s, 0] += np.log1p(1.0 / cells)
        work[5, s, 0] += 1.0 / (1.0 + cells)


@_fast
def _beta_terms(own, inner, one, two, start, base, work):  # type: ignore[no-untyped-def]
    """The same for Betas, with logits in the place of logarithms.

    Those of Betas are `base[3]` where the curves are the pilot's, the second `start`, and elsewhere
    nearly.
    """
    old = np.exp(start) - inner
    old_a, old_b = 1.0 / (old * (1.0 - own)), 1.0 / (old * own)
    for s in range(len(one)):
        wide, odds = np.exp(two[s]), own * np.exp(one[s])
        m = odds / (1.0 - own + odds)
        v = wide - inner
        a, b = 1.0 / (v * (1.0 - m)), 1.0 / (v * m)
        middle = np.log(m) - np.log(1.0 - m) + v * (m - 0.5)
        for r in range(base.shape[1]):
            above, below = base[0, r], base[1, r]
            y = (above - below - middle) / v
            work[0, s, r], work[1, s, r] = -0.5 * y * y * v, y * (1.0 + v * m * (1.0 - m))
            work[2, s, r] = (0.5 * y * y + y * (m - 0.5)) * wide
            work[3, s, r] = base[3, r] + (a - old_a) * above + (b - old_b) * below
            work[4, s, r] = a * m * above - b * (1.0 - m) * below
            work[5, s, r] = -wide / v * (a * above + b * below)


@_fast
def _floored(log, by_one, by_two, floor, share, whole, bits, real):  # type: ignore[no-untyped-def]
    """In place: log weights and derivatives (draws, R), with weights of sum 1 and a floor."""
    for s in range(len(log)):
        top = -np.inf
        for r in range(len(floor)):
            top = max(top, log[s, r])
        for r in range(len(floor)):
            share[s, r] = max(log[s, r] - top, LOWEST)
    exponentials(share.reshape(-1), whole.reshape(-1), bits, real)
    for s in range(len(log)):
        total = first = second = 0.0
        for r in range(len(floor)):
            total += share[s, r]
            first += share[s, r] * by_one[s, r]
            second += share[s, r] * by_two[s, r]
        first, second, scale = first / total, second / total, (1.0 - FLOOR) / total
        for r in range(len(floor)):
            own = scale * share[s, r]
            log[s, r] = own + floor[r]
            kept = own / log[s, r]
            by_one[s, r] = kept * (by_one[s, r] - first)
            by_two[s, r] = kept * (by_two[s, r] - second)
    logarithms(log.reshape(-1), bits, real)


@_fast
def _mixed(path, work, out, along):  # type: ignore[no-untyped-def]
    """`_base_weights` from both kinds of log weights and their derivatives."""
    for s in range(len(path)):
        b = path[s]
        a = 1.0 - b
        for r in range(out.shape[1]):
            out[s, r] = a * work[0, s, r] + b * work[3, s, r]
            along[s, 0, r] = a * work[1, s, r] + b * work[4, s, r]
            along[s, 1, r] = a * work[2, s, r] + b * work[5, s, r]
            along[s, 2, r] = work[3, s, r] - work[0, s, r]


@_jit
def _base_weights(own, inner, one, two, path, base, centre, out, along):  # type: ignore[no-untyped-def]
    """Log weights (draws, R) of a row that make the distributions with these curves (draws,).

    At path 1 it is the family's, at 0 the normal one of theta, its logarithm or logit, in both
    cases apart from the grid. `along` (draws, 3, R) become derivatives in both curves and the path.
    `inner` is the second curve's exponential of a component, which convolves the weights.
    """
    if own < 0.0:
        _normal_terms(inner, one, two, base, out, along)
        return
    work, bits = np.empty((8, *out.shape)), np.empty(out.size, dtype=np.int64)
    real = bits.view(np.float64)
    if own == 0.0:
        _gamma_terms(inner, one, two, base, work[6], work[7], bits, real, work)
    else:
        _beta_terms(own, inner, one, two, centre[1], base, work)
    for k in (0, 3):
        _floored(work[k], work[k + 1], work[k + 2], base[2], work[6], work[7], bits, real)
    _mixed(path, work, out, along)


@_fast
def _sums(weight, parts, out):  # type: ignore[no-untyped-def]
    """Weighted sums of the rows of `parts` (9, R)."""
    for k in range(parts.shape[0]):
        total = 0.0
        for r in range(len(weight)):
            total += weight[r] * parts[k, r]
        out[k] = total


@_fast
def _tilted(fixed, u, v, parts, weight):  # type: ignore[no-untyped-def]
    """Log weights relative to the largest."""
    top = -np.inf
    for r in range(len(fixed)):
        weight[r] = fixed[r] + u * parts[3, r] + v * parts[4, r]
        top = max(top, weight[r])
    for r in range(len(fixed)):
        weight[r] = max(weight[r] - top, LOWEST)


@_jit
def _parts(basis, mean, variance):  # type: ignore[no-untyped-def]
    """What the solver averages over the components of a row, (9, R)."""
    out = np.empty((9, len(mean)))
    for r in range(len(mean)):
        square = mean[r] * mean[r] + variance[r]
        out[0, r], out[1, r], out[2, r] = 1.0, mean[r], square
        for k in range(2):
            out[3 + k, r] = basis[r, k]
            out[5 + k, r], out[7 + k, r] = mean[r] * basis[r, k], square * basis[r, k]
    return out


@_jit
def _solve(one, two, own, parts, fixed, moved, weight, found, work, bits, real):  # type: ignore[no-untyped-def]
    """Weights whose curves are `one` and `two`, relative to the start's, by Newton's method.

    `fixed` (R,) is the rest of the log weights, and `moved` (2,) the coefficients that shift and
    stretch, from a first guess. `found` becomes the inverse of the curves' derivatives in these
    coefficients (4), the curves' derivatives in both moments (3), the moments (2), and `moved`.
    Returns whether the curves are met.
    """
    sums = np.empty(9)
    left, factor, u, v = np.inf, 1.0, 0.0, 0.0
    for _ in range(_STEPS):
        _tilted(fixed, moved[0], moved[1], parts, weight)
        exponentials(weight, work, bits, real)
        _sums(weight, parts, sums)
        total = sums[0]
        d, q, s1, s2 = sums[1] / total, sums[2] / total, sums[3] / total, sums[4] / total
        first, second, slope, bend, other = _curves(own, d, q)
        away, wide = one - first, two - second
        now = abs(away) + abs(wide)
        if not now < left:  # a step too long; NaN too
            factor *= 0.5
            if factor < 1e-4 or left <= 1e3 * _CLOSE:
                break
            moved[0] -= factor * u
            moved[1] -= factor * v
            continue
        left, factor = now, 1.0
        a1, a2 = sums[5] / total - d * s1, sums[6] / total - d * s2
        b1, b2 = sums[7] / total - q * s1, sums[8] / total - q * s2
        b1, b2 = bend * a1 + other * b1, bend * a2 + other * b2
        a1, a2 = slope * a1, slope * a2
        det = a1 * b2 - a2 * b1
        found[0], found[1], found[2], found[3] = b2 / det, -a2 / det, -b1 / det, a1 / det
        found[4], found[5], found[6], found[7], found[8] = slope, bend, other, d, q
        found[9], found[10] = moved[0], moved[1]
        if not left > _CLOSE:
            break
        u, v = found[0] * away + found[1] * wide, found[2] * away + found[3] * wide
        longest = max(abs(u), abs(v))
        if not longest < np.inf:
            break
        scale = min(1.0, _LONGEST / longest)
        u, v = scale * u, scale * v
        moved[0] += u
        moved[1] += v
    for r in range(len(fixed)):
        weight[r] /= total
    return left <= 1e3 * _CLOSE


@_jit
def _follow(  # type: ignore[no-untyped-def]
    to, shape, middle, row, parts, centre, begin, moved, weight, found, along, work, bits, real
):
    """Weights (R,) at bounded predictors (P,), where Newton's method fails from a first guess.

    It follows the line from the centre, where the solution is `begin`, and stays at the last point
    that it reached. Returns whether it reached the end.
    """
    own, inner, base = row
    point, fixed = np.empty((len(centre), 1)), np.empty((1, len(weight)))
    u, v, at, share, step = begin[0], begin[1], 0.0, 0.5, 0.5
    while True:
        moved[0], moved[1] = u, v
        for j in range(len(centre)):
            point[j, 0] = centre[j] + share * (to[j] - centre[j])
        _base_weights(own, inner, point[0], point[1], point[2], base, centre, fixed, along)
        for r in range(len(weight)):
            fixed[0, r] += middle[r] + share * (shape[r] - middle[r])
        one, two = point[0, 0], point[1, 0]
        good = _solve(one, two, own, parts, fixed[0], moved, weight, found, work, bits, real)
        if share == at:  # the last point that was reached
            return False
        if good:
            if share == 1.0:
                return True
            at, step = share, 1.5 * step
            u, v = moved[0], moved[1]
        else:
            step *= 0.5
        share = at if step < _SHORTEST else min(at + step, 1.0)


@_jit
def _solve_draws(  # type: ignore[no-untyped-def]
    to, shapes, middle, row, parts, centre, begin, near, line, weight, found, along, good
):
    """`_row_weights` at bounded predictors (P, draws), from first guesses `line` around `near`."""
    own, inner, base = row
    moved, (draws, number) = np.empty(2), weight.shape
    fixed, work, bits = np.empty((draws, number)), np.empty(number), np.empty(number, np.int64)
    real = bits.view(np.float64)
    _base_weights(own, inner, to[0], to[1], to[2], base, centre, fixed, along)
    for s in range(draws):
        moved[0], moved[1] = line[0, 0], line[1, 0]
        for j in range(len(near)):
            moved[0] += line[0, j + 1] * (to[j, s] - near[j])
            moved[1] += line[1, j + 1] * (to[j, s] - near[j])
        for r in range(number):
            fixed[s, r] += shapes[s, r]
        one, two, rest = to[0, s], to[1, s], (found[s], work, bits, real)
        good[s] = _solve(one, two, own, parts, fixed[s], moved, weight[s], *rest)
        if not good[s]:
            end = to[:, s].copy(), shapes[s], middle
            good[s] = _follow(
                *end, row, parts, centre, begin, moved, weight[s], found[s], along[s : s + 1],
                work, bits, real,
            )  # fmt: skip


@_jit
def _by_predictors(own, basis, mean, variance, weight, found, along, out):  # type: ignore[no-untyped-def]
    """Derivatives (2, P), in bounded predictors, of the coefficients that shift and stretch."""
    slope, bend, other, d, q = found[4:9]
    for j in range(out.shape[1]):
        first = second = 0.0
        for r in range(len(weight)):
            by = along[j, r] if j < 2 else basis[r, j]
            if j == 2 and own >= 0.0:
                by += along[2, r]
            first += weight[r] * (mean[r] - d) * by
            second += weight[r] * (mean[r] * mean[r] + variance[r] - q) * by
        u = (1.0 if j == 0 else 0.0) - slope * first
        v = (1.0 if j == 1 else 0.0) - bend * first - other * second
        out[0, j], out[1, j] = found[0] * u + found[1] * v, found[2] * u + found[3] * v


@_jit
def _row_weights(  # type: ignore[no-untyped-def]
    predictors, base, basis, mean, variance, handle, centre, guess, weight, found, along
):
    """Weights (draws, R) of one row at predictors (draws, P); whether each was solved.

    `along` (draws, 3, R) become the derivatives of `_base_weights`. First guesses of Newton's
    method are linear in the predictors: around the draws' mean, or the centre if draws are few.
    """
    draws = len(weight)
    good, parts = np.empty(draws, dtype=np.bool_), _parts(basis, mean, variance)
    own, inner = handle[3], np.exp(handle[5] - ROOM)
    bounded = np.empty((len(centre), draws))
    for s in range(draws):
        one, by_one = _bent((predictors[s, 0] - handle[0]) / handle[1], -handle[4], handle[4])
        two, by_two = _bent(predictors[s, 1] - handle[2], handle[5], handle[6])
        found[s, 11], found[s, 12] = by_one / handle[1], by_two
        bounded[0, s], bounded[1, s] = one, two
        for j in range(2, len(centre)):
            bounded[j, s] = predictors[s, j]
    further = np.ascontiguousarray(basis[:, 2:])
    row, middle, begin = (own, inner, base), further @ centre[2:], guess[:, 0].copy()
    near, line, some = centre.copy(), guess.copy(), min(draws, _AT_ONCE)
    if draws >= _MANY_DRAWS:
        for j in range(len(near)):
            near[j] = bounded[j].mean()
        to, shapes = near.copy().reshape(-1, 1), (further @ near[2:]).reshape(1, -1)
        out = weight[:1], found[:1], along[:1], good[:1]
        _solve_draws(to, shapes, middle, row, parts, centre, begin, centre, guess, *out)
        if good[0]:
            line[:, 0] = found[0, 9:11]
            _by_predictors(own, basis, mean, variance, weight[0], found[0], along[0], line[:, 1:])
        else:
            near[:] = centre
    for first in range(0, draws, some):
        last = min(first + some, draws)
        to = np.ascontiguousarray(bounded[:, first:last])
        out = weight[first:last], found[first:last], along[first:last], good[first:last]
        shapes = to[2:].T @ further.T
        _solve_draws(to, shapes, middle, row, parts, centre, begin, near, line, *out)
    return good


@_jit
def bent_curves(first, second, handle):  # type: ignore[no-untyped-def]
    """Both curves (draws, n), in place, as the components can represent them."""
    for b in range(first.shape[1]):
        start, unit, taken, _, far, low, high = handle[b]
        for s in range(len(first)):
            first[s, b] = start + unit * _bent((first[s, b] - start) / unit, -far, far)[0]
            second[s, b] = taken + _bent(second[s, b] - taken, low, high)[0]


@_jit
def solved(predictors, base, basis, mean, variance, handle, centre, guess):  # type: ignore[no-untyped-def]
    """Weights (draws, n, R) at predictors (draws, n, P), and what was found, (draws, n, 13).

    The latter is that of `_solve`, then derivatives of the bounded curves in the predictors. Where
    the curves cannot be met, weights are those that come close.
    """
    draws, n = predictors.shape[:2]
    number = base.shape[2]
    weight, found = np.empty((draws, n, number)), np.empty((draws, n, 13))
    own, its, along = np.empty((draws, number)), np.empty((draws, 13)), np.empty((draws, 3, number))
    for b in range(n):
        at = predictors[:, b], base[b], basis[b], mean[b], variance[b], handle[b]
        _row_weights(*at, centre[b], guess[b], own, its, along)
        weight[:, b], found[:, b] = own, its
    return weight, found


@_jit
def _at_one_draw(predictors, base, basis, mean, variance, handle, centre, guess):  # type: ignore[no-untyped-def]
    """`solved` at predictors (n, P), with the derivatives of `_base_weights`, (n, 3, R)."""
    n, _, number = base.shape
    weight, found, along = np.empty((n, number)), np.empty((n, 13)), np.empty((n, 3, number))
    for b in range(n):
        at = predictors[b : b + 1], base[b], basis[b], mean[b], variance[b], handle[b]
        out = weight[b : b + 1], found[b : b + 1], along[b : b + 1]
        _row_weights(*at, centre[b], guess[b], *out)
    return weight, found, along


def _moving(predictors: Floats, forms: WeightForms) -> tuple[Floats, Floats, Floats, Floats]:
    """At predictors (n, P): weights, what was found, and derivatives of log weights (n, R, P).

    These are in the bounded curves and the further predictors, without what the coefficients that
    shift and stretch add; the fourth are the derivatives of these (n, 2, P).
    """
    weight, found, base = _at_one_draw(predictors, *forms.arrays)
    along = np.concatenate([base[:, :2].transpose(0, 2, 1), forms.basis[:, :, 2:]], axis=2)
    if forms.paths:
        along[:, :, 2] += base[:, 2]
    inverse = found[:, :4].reshape(-1, 2, 2)
    slope, bend, other, d, q = found[:, 4:9].T
    square = forms.mean**2 + forms.variance
    away = np.stack([forms.mean - d[:, None], square - q[:, None]], axis=1) * weight[:, None]
    first, second = np.matmul(away, along).transpose(1, 0, 2)
    lost = np.stack([slope[:, None] * first, bend[:, None] * first + other[:, None] * second], 1)
    return weight, found, along, inverse @ (np.eye(2, along.shape[2]) - lost)


def directions(predictors: Floats, forms: WeightForms) -> tuple[Floats, Floats]:
    """Weights (n, R) at predictors (n, P), and derivatives of their logarithms (n, R, P).

    The derivatives are up to a constant over the components.
    """
    weight, found, along, moving = _moving(predictors, forms)
    along += np.matmul(forms.basis[:, :, :2], moving)
    along[:, :, :2] *= found[:, None, 11:]
    return weight, along


def centred(forms: WeightForms, predictors: Floats) -> WeightForms:
    """Forms with some predictors (n, P) as the centre of the first guess."""
    centre = predictors.copy()
    curves = (predictors[:, 0] - forms.handle[:, 0]) / forms.handle[:, 1]
    for k, x in enumerate((curves, predictors[:, 1] - forms.handle[:, 2])):
        bounds = (-forms.handle[:, 4], forms.handle[:, 4]), forms.handle[:, 5:].T
        centre[:, k] = [_bent(*one)[0] for one in zip(x, *bounds[k], strict=True)]
    guess = np.zeros((*centre.shape[:1], 2, 1 + centre.shape[1]))
    forms = replace(forms, centre=centre, guess=guess)
    _, found, _, moving = _moving(predictors, forms)
    guess[:, :, 0], guess[:, :, 1:] = found[:, 9:11], moving
    return forms


def bounded_handle(
    first: Floats, unit: Floats, own: Floats, spread: Floats, mean: Floats, variance: Floats
) -> Floats:
    """`WeightForms.handle` at n scores, from components (n, R).

    `spread` is that of the base distribution in units of the first curve.
    """
    middle = np.abs(mean).argmin(axis=1)[:, None]
    near, narrow = (np.take_along_axis(x, middle, axis=1)[:, 0] for x in (mean, variance))
    wide = (_WIDEST * spread) ** 2
    # of Betas, no variance is above mean (1 - mean)
    wide = wide / (1.0 + np.maximum(own * (1.0 - own), 0.0) * wide)
    low, high = (
        np.array([_curves(*one)[1] for one in zip(own, near, near**2 + v, strict=True)])
        for v in (narrow, wide)
    )
    handle = first, unit, 2.0 * np.log(unit), own, _FARTHEST * spread, low + ROOM, high
    return np.column_stack(np.broadcast_arrays(*handle))


# --- log marginal of rows -------------------------------------------------------------------------


# log(1 + x) = x - x^2/2 + x^3 P(x) for sqrt(1/2) <= 1 + x < sqrt(2), to 1e-7
_P = np.array(
    [0.0703768363, -0.115146103, 0.116769987, -0.124201408, 0.142493228, -0.166680577, 0.200007148,
     -0.249999940, 0.333333312],
    dtype=np.float32,
)  # fmt: skip
_LOW, _ONE, _HALF = np.int32(0x3F3504F3), np.int32(23), np.float32(0.5)
_LOG2 = np.float32(np.log(2.0))


@numba.njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract", "nsz", "arcp"})
def _add_logs(p, many, total, bits, real, octave):  # type: ignore[no-untyped-def]
    """Add many * log p to the totals; `bits` and `real` are two views of one array.

    Arithmetic on the numbers' bits is vectorised, unlike calls of log, and five times as fast.
    """
    whole = p.view(np.int32)
    for d in range(len(p)):
        e = (whole[d] - _LOW) >> _ONE
        bits[d] = whole[d] - (e << _ONE)
        octave[d] = np.float32(e)
    for d in range(len(p)):
        x = real[d] - np.float32(1.0)
        y = _P[0]
        for k in range(1, 9):
            y = y * x + _P[k]
        log = octave[d] * _LOG2 + (x + x * x * (x * y - _HALF))
        total[d] += many * np.float64(log)


@_fast
def _slopes(away, weight, along, basis, mean, variance, own):  # type: ignore[no-untyped-def]
    """Derivatives of a row's value in both bounded curves and the path.

    `away` (R,) are those in the log weights, and become so at fixed moments.
    """
    u = v = 0.0
    for r in range(len(away)):
        u += away[r] * basis[r, 0]
        v += away[r] * basis[r, 1]
    # derivatives of the value in both curves, then what shape does to the moments
    u, v = own[0] * u + own[2] * v, own[1] * u + own[3] * v
    first, second = u * own[4] + v * own[5], v * own[6]
    by_path = 0.0
    for r in range(len(away)):
        square = mean[r] * mean[r] + variance[r]
        away[r] -= weight[r] * (first * (mean[r] - own[7]) + second * (square - own[8]))
        u += away[r] * along[0, r]
        v += away[r] * along[1, r]
        by_path += away[r] * along[2, r]
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
        own = np.float64(atom[c])
        for d in range(len(share)):
            p[c, d] = np.float32((1.0 - share[d]) * np.float64(p[c, d]) + share[d] * own)
    return p


@_jit
def _pulls(cells, weight, share, atom, ratio, items):  # type: ignore[no-untyped-def]
    """Derivatives of the value in log weights (draws, R), and in the logit of the share.

    `ratio` (cells, draws) are items over densities.
    """
    away = weight * (cells.T @ ratio).T
    zero = np.zeros(len(share))  # items for which theta is 0
    if len(atom):
        zero[:] = share * (atom @ ratio)
    for s in range(len(share)):
        for r in range(weight.shape[1]):
            away[s, r] = (1.0 - share[s]) * away[s, r] - weight[s, r] * (items - zero[s])
    return away, zero - share * items


@_jit
def all_rows(  # type: ignore[no-untyped-def]
    predictors, value, slope,
    base, basis, mean, variance, handle, centre, guess, start, items, density, constant, atom,
):  # fmt: skip
    """Log marginals (draws, rows) and slopes (draws, rows, P) at predictors (draws, rows, P)."""
    draws, number = predictors.shape[0], base.shape[2]
    bits, octave = np.empty(draws, dtype=np.int32), np.empty(draws, dtype=np.float32)
    real = bits.view(np.float32)
    weight, found = np.empty((draws, number)), np.empty((draws, 13))
    along = np.empty((draws, 3, number))
    for b in range(predictors.shape[1]):
        at = predictors[:, b], base[b], basis[b], mean[b], variance[b], handle[b]
        _row_weights(*at, centre[b], guess[b], weight, found, along)
        cells = density[start[b] : start[b + 1]]
        n = items[start[b] : start[b + 1]]
        atoms = atom[start[b] : start[b + 1]]
        share = _shares(predictors[:, b], atoms)
        p = _densities(cells, weight, share, atoms)
        total = np.zeros(draws)
        for c in range(p.shape[0]):
            row, many = p[c], np.float32(n[c])
            for d in range(draws):
                # for a draw far from the data a cell's density may underflow in single precision
                row[d] = max(row[d], np.float32(1e-37))
            _add_logs(row, n[c], total, bits, real, octave)
            for d in range(draws):
                row[d] = many / row[d]
        away, by_share = _pulls(cells, weight, share, atoms, p, n.sum())
        for s in range(draws):
            value[s, b] = total[s] + constant[b]
            u, v, by_path = _slopes(
                away[s], weight[s], along[s], basis[b], mean[b], variance[b], found[s]
            )
            own = found[s]
            slope[s, b, 0], slope[s, b, 1], slope[s, b, 2] = u * own[11], v * own[12], by_path
        further = away @ np.ascontiguousarray(basis[b, :, 2:])
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
        at = slice(cells.start[b], cells.start[b + 1])
        joint = cells.density[at] * weight
        rest, zero = np.zeros(len(joint)), 0.0
        if len(cells.atom):
            zero = float(special.expit(predictors[b, -1]))
            joint *= 1.0 - zero
            rest += zero * cells.atom[at]
        total = np.maximum(joint.sum(axis=1) + rest, 1e-300)
        score = (joint / total[:, None]) @ (along[b] - weight @ along[b])
        if len(cells.atom):
            score[:, -1] = rest / total - zero
        expected[b] = (score * cells.items[at][:, None]).T @ score
    step = 1e-3 * np.where(np.arange(number) == 0, cells.forms.handle[:, [1]], 1.0)
    moved = np.array([predictors + s * step * e for s in (1, -1) for e in np.eye(number)])
    value, slope = np.empty(moved.shape[:2]), np.empty(moved.shape)
    all_rows(moved, value, slope, *cells.arrays)
    second = (slope[number:] - slope[:number]).transpose(1, 2, 0) / (2.0 * step[:, None])
    return expected, 0.5 * (second + second.transpose(0, 2, 1))
