"""Posteriors of items under mixtures of conjugate components, in compiled loops.

Components at a score differ only in location, so an item's posterior is a mixture of Gammas with
one shape, of Normals with one variance, or of Betas. The base distribution is fixed and only
weights differ between draws, so the average over draws is again such a mixture.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numba
import numpy as np
from scipy import special

from .._lib.arrays import Floats
from .components import (
    Frame,
    count_log_density,
    inverse_trigamma,
    value_log_density,
)
from .gamma_quantiles import quantile_tables, table_cell, table_values, tail_and_density
from .mixture_rows import LOWEST, exponentials
from .mixtures import normal_summaries
from .rules import parabolas

_SMALL = 1e-7  # weights below this share of their sum are ignored in quantiles
_FAINT = 1e-12  # densities below this share of the largest are ignored in posteriors
# share by which second-order averages over draws may change a component's weight, and the
# posterior weight from which on a component counts
_MOVED, _SEEN = 0.3, 1e-4
_BENT = 0.002  # largest share by which means in a cell may depart from a straight line
_BENT_DRAWS, _EVERY = 0.002, 8  # the same of posterior weights by draw, and of which draws
_CLOSE, _STEPS = 0.02, 200  # last step, in posterior sd; the error is about its cube
_REST = 16.0  # a component's tail is 0 or 1 if exp(-16) of a probability is all that this changes
_ROOT_2PI = float(np.sqrt(2.0 * np.pi))


@numba.njit(cache=True, nogil=True, error_model="numpy")
def average_weights(weight, density):  # type: ignore[no-untyped-def]
    """Posterior weights of items of one score, averaged over draws of the prior's weights.

    `weight` is (draws, R), `density` (n, R) up to a factor of each item; the result is (n, R).
    """
    inverse = 1.0 / np.maximum(density @ weight.T, 1e-300)
    return density * (inverse @ weight) / weight.shape[0]


@numba.njit(cache=True, nogil=True, error_model="numpy")
def interpolated(position, first, second, log_weight, draws, out):  # type: ignore[no-untyped-def]
    """Weights of some draws at positions, into `out` (draws, n, R).

    Their logarithms are cubic between `log_weight` (positions, all draws, R) at even positions that
    begin with two given ones.
    """
    last, number = len(log_weight) - 4, log_weight.shape[2]
    own, work, bits = np.empty(number), np.empty(number), np.empty(number, dtype=np.int64)
    real = bits.view(np.float64)
    for i in range(len(position)):
        at = (position[i] - first) / (second - first)
        k = min(max(int(at) - 1, 0), last)
        x = at - k
        a = -(x - 1.0) * (x - 2.0) * (x - 3.0) / 6.0
        b = x * (x - 2.0) * (x - 3.0) / 2.0
        c = -x * (x - 1.0) * (x - 3.0) / 2.0
        d = x * (x - 1.0) * (x - 2.0) / 6.0
        for s in range(len(draws)):
            j = draws[s]
            for r in range(number):
                log = a * log_weight[k, j, r] + b * log_weight[k + 1, j, r]
                log += c * log_weight[k + 2, j, r] + d * log_weight[k + 3, j, r]
                own[r] = min(max(log, LOWEST), 0.0)
            exponentials(own, work, bits, real)
            total = own.sum()
            for r in range(number):
                out[s, i, r] = own[r] / total


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _ends(shape, far, gamma):  # type: ignore[no-untyped-def]
    """Where both tails of a component fall below exp(-far), by Chernoff's bound.

    For Gammas they are relative to the mean, for Normals to the sd.
    """
    if not gamma:
        return -math.sqrt(2.0 * far), math.sqrt(2.0 * far)
    e = far / shape
    return math.exp(-0.5 * (e + math.sqrt(e * e + 8.0 * e))), 1.0 + e + math.sqrt(e * e + 2.0 * e)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _tail(x, weight, kept, shape, place, log_gamma, lower, ends, gamma):  # type: ignore[no-untyped-def]
    """Tail of a mixture at x (log theta for Gammas, theta for Normals), its density and slope."""
    tail = density = slope = 0.0
    theta = math.exp(x) if gamma else x
    for j in range(kept):
        z = theta * place[j] / shape if gamma else (theta - place[j]) / shape
        if not ends[0] < z < ends[1]:
            tail += weight[j] * ((z >= ends[1]) == lower)
            continue
        if gamma:
            t, d = tail_and_density(shape, theta * place[j], log_gamma, lower)
            slope += weight[j] * d * (shape - theta * place[j])
        else:
            t = 0.5 * math.erfc(-z / math.sqrt(2.0) if lower else z / math.sqrt(2.0))
            d = math.exp(-0.5 * z * z) / (_ROOT_2PI * shape)
            slope -= weight[j] * d * z / shape
        tail += weight[j] * t
        density += weight[j] * d
    return tail, density, slope


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _quantile(prob, start, unit, weight, kept, shape, place, log_gamma, gamma):  # type: ignore[no-untyped-def]
    """Halley's method on the log tail, with bisection between shrinking bounds."""
    lower = prob <= 0.5
    target = prob if lower else 1.0 - prob
    low, high, x = -np.inf, np.inf, start
    ends = _ends(shape, _REST - math.log(target), gamma)
    for _ in range(_STEPS):
        tail, density, slope = _tail(x, weight, kept, shape, place, log_gamma, lower, ends, gamma)
        up = tail < target if lower else tail > target
        if up:
            low = x
        else:
            high = x
        step = 2.0 * unit if up else -2.0 * unit
        if tail > 0.0 and density > 0.0:
            newton = (math.log(target) - math.log(tail)) * tail / density
            newton = newton if lower else -newton
            bend = slope / density - (density if lower else -density) / tail
            newton /= min(max(1.0 + 0.5 * newton * bend, 0.5), 2.0)
            step = min(max(newton, -2.0 * unit), 2.0 * unit)
        new = x + step
        if not low < new < high:
            if high - low < np.inf:
                new = 0.5 * (low + high)
            else:
                new = x + (2.0 if up else -2.0) * unit
        if abs(new - x) < _CLOSE * unit or tail == target:
            return new
        x = new
    return x


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _summarize(weight, place, kept, shape, probs, tables, gamma, out, i):  # type: ignore[no-untyped-def]
    """Column i of `summarize_mixtures`, from the first `kept` weights, in place."""
    total = mean = own = square = 0.0
    for j in range(kept):
        total += weight[j]
    for j in range(kept):
        weight[j] /= total
        mean += weight[j] * (shape / place[j] if gamma else place[j])
    for j in range(kept):
        centre = shape / place[j] if gamma else place[j]
        own += weight[j] * (centre * centre / shape if gamma else shape * shape)
        square += weight[j] * (centre - mean) ** 2
    variance = own + square
    sd = math.sqrt(variance)
    out[0, i], out[1, i], out[2, i] = mean, sd, variance
    if len(probs) == 0:
        return
    few = 0
    for j in range(kept):
        if weight[j] > _SMALL:
            weight[few], place[few] = weight[j], place[j]
            few += 1
    log_gamma = math.lgamma(shape) if gamma else 0.0
    unit = math.sqrt(math.log1p(variance / mean**2)) if gamma else sd
    centre = math.log(mean) - 0.5 * unit**2 if gamma else mean
    for k in range(len(probs)):
        # start from a logistic's quantile, which is close to a Normal's
        start = centre + 0.55 * unit * math.log(probs[k] / (1.0 - probs[k]))
        if gamma:  # the quantile of the Gamma with the same moments is closer
            like = mean * mean / variance
            cell, share = table_cell(math.log(like))
            if cell >= 0:
                scaled, _, _ = table_values(tables, k, cell, share)
                start = math.log(mean) + scaled / math.sqrt(like)
        x = _quantile(probs[k], start, unit, weight, few, shape, place, log_gamma, gamma)
        out[3 + k, i] = math.exp(x) if gamma else x


@numba.njit(cache=True, nogil=True, error_model="numpy")
def summarize_mixtures(weight, shape, place, probs, tables, gamma, out):  # type: ignore[no-untyped-def]
    """Mean, sd, variance and quantiles, (3 + probs, n), of mixtures with weights (n, R).

    For Gammas `shape` (n,) is the common shape and `place` (n, R) the rates; for Normals the common
    sd and the means. `tables` are the `quantile_tables` of `probs`. The weights need not add up to
    1.
    """
    for i in range(len(weight)):
        own, at = weight[i].copy(), place[i].copy()
        _summarize(own, at, len(own), shape[i], probs, tables, gamma, out, i)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def mixture_quantiles(weight, shape, place, prob, mean, variance, gamma, out):  # type: ignore[no-untyped-def]
    """Quantiles (n,) at a probability of each item, as of `summarize_mixtures`; 0 where it is NaN.

    Weights add up to 1, and mean and variance are those of the mixtures.
    """
    own, at = np.empty((2, weight.shape[1]))
    for i in range(len(weight)):
        if math.isnan(prob[i]):
            out[i] = 0.0
            continue
        few = 0
        for j in range(weight.shape[1]):
            if weight[i, j] > _SMALL:
                own[few], at[few] = weight[i, j], place[i, j]
                few += 1
        log_gamma = math.lgamma(shape[i]) if gamma else 0.0
        unit = math.sqrt(math.log1p(variance[i] / mean[i] ** 2) if gamma else variance[i])
        centre = math.log(mean[i]) - 0.5 * unit**2 if gamma else mean[i]
        start = centre + 0.55 * unit * math.log(prob[i] / (1.0 - prob[i]))
        x = _quantile(prob[i], start, unit, own, few, shape[i], at, log_gamma, gamma)
        out[i] = math.exp(x) if gamma else x


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _seen(p):  # type: ignore[no-untyped-def]
    """Range of the components whose densities, relative to the largest, are not negligible."""
    low, high = len(p), 0
    for r in range(len(p)):
        if p[r] > _FAINT:
            low, high = min(low, r), r + 1
    return low, high


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _densities(outcome, size, location, spread, shape, shift, z, gamma, p):  # type: ignore[no-untyped-def]
    """Densities p of an outcome under the components, relative to the largest, and their range.

    Gammas have mean exp(location + spread z + shift); Normals variance `shape`.
    """
    top = -np.inf
    for r in range(len(z)):
        place = location + spread * z[r]
        if gamma:
            log_mean = place + shift
            p[r] = outcome * log_mean - (shape + outcome) * math.log1p(
                size * math.exp(log_mean) / shape
            )
        else:
            p[r] = -0.5 * (outcome - place) ** 2 / (shape + size * size)
        top = max(top, p[r])
    for r in range(len(z)):
        p[r] = math.exp(p[r] - top)
    return _seen(p)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _posterior_weights(k, u, p, low, high, mean, cov, product, centre):  # type: ignore[no-untyped-def]
    """Posterior weights, averaged over draws, in `centre`, and the spread of draws.

    Also the largest share by which the marginal density changes a component's weight.
    """
    for r in range(low, high):
        centre[r] = (1.0 - u) * mean[k, r] + u * mean[k + 1, r]
        product[r] = 0.0
    for s in range(low, high):
        first, second = (1.0 - u) * p[s], u * p[s]
        for r in range(low, high):
            product[r] += first * cov[k, s, r] + second * cov[k + 1, s, r]
    return _corrected(p, low, high, product, centre)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _corrected(p, low, high, product, centre):  # type: ignore[no-untyped-def]
    """`_posterior_weights` from the weights' mean, in `centre`, and their covariance times p.

    The mean of W_r / Z is m_r / z exp(Var(log Z) - Cov(log W_r, log Z)) for log-normal weights.
    """
    total = spread = moved = 0.0
    for r in range(low, high):
        total += centre[r] * p[r]
        spread += p[r] * product[r]
    spread /= total * total
    for r in range(low, high):
        if p[r] * centre[r] > _SEEN * total:
            moved = max(moved, abs(product[r]) / (total * centre[r]))
        if centre[r] <= 0.0:  # parabolas may be, where weights are next to nothing
            centre[r] = 0.0
            continue
        # there the covariance may be far too large for the mean as well
        share = max(product[r] / (total * centre[r]), -_MOVED)
        centre[r] *= p[r] * math.exp(spread - share)
    return spread, moved


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _cell_at(position, grid):  # type: ignore[no-untyped-def]
    """Cell of the grid (-1: off it) and fraction of it."""
    last = len(grid) - 1
    at = (position - grid[0]) * last / (grid[last] - grid[0])
    if not 0.0 <= at < last:
        return -1, 0.0
    k = int(at)
    return k, at - k


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _frame_at(position, grid, frame):  # type: ignore[no-untyped-def]
    """Cell of the grid (-1: off it), fraction of it, and the base distribution there."""
    k, u = _cell_at(position, grid)
    if k < 0:
        return -1, 0.0, 0.0, 1.0, 1.0, 0.0
    location = (1.0 - u) * frame[k, 0] + u * frame[k + 1, 0]
    spread = math.exp((1.0 - u) * frame[k, 1] + u * frame[k + 1, 1])
    shape = math.exp((1.0 - u) * frame[k, 2] + u * frame[k + 1, 2])
    shift = (1.0 - u) * frame[k, 3] + u * frame[k + 1, 3]
    return k, u, location, spread, shape, shift


@numba.njit(cache=True, nogil=True, error_model="numpy")
def average_by_table(position, density, grid, mean, cov, most, weight, left):  # type: ignore[no-untyped-def]
    """`weights_by_table` from the outcomes' densities under the components, (n, R).

    Each item's densities are relative to the largest of them.
    """
    product, centre = np.empty((2, density.shape[1]))
    for i in range(len(position)):
        left[i] = True
        weight[i] = 0.0
        k, u = _cell_at(position[i], grid)
        if k < 0:
            continue
        low, high = _seen(density[i])
        apart, moved = _posterior_weights(k, u, density[i], low, high, mean, cov, product, centre)
        if apart <= most and moved <= _MOVED:
            left[i] = False
            weight[i, low:high] = centre[low:high]


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _point_shares(u, v, share):  # type: ignore[no-untyped-def]
    """Shares of a cell's points at a place in it, along parabolas."""
    along, across = parabolas(u), parabolas(v)
    for k in range(len(share)):
        share[k] = along[k % 3] * (across[k // 3] if len(share) > 3 else 1.0)


@numba.njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract"})
def _times_covariance(p, low, high, first, second, u, share, product):  # type: ignore[no-untyped-def]
    """Add p times a share of the covariance on the line between two."""
    for s in range(low, high):
        a, b = share * (1.0 - u) * p[s], share * u * p[s]
        for r in range(low, high):
            product[r] += a * first[s, r] + b * second[s, r]


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _in_cell(own, u, v, p, low, high, mean, cov, share, centre, line, product):  # type: ignore[no-untyped-def]
    """Moments in a cell from those at its points `own`, in place.

    The mean along parabolas, and from the outermost points alone, and the covariance times p.
    """
    _point_shares(u, v, share)
    for k in range(len(own)):
        for r in range(low, high):
            centre[r] += share[k] * mean[own[k], r]
    for k in range(0, len(own), 6):  # the ends along the size
        part = 1.0 if len(own) == 3 else v if k else 1.0 - v
        for r in range(low, high):
            line[r] += part * ((1.0 - u) * mean[own[k], r] + u * mean[own[k + 2], r])
        _times_covariance(p, low, high, cov[own[k]], cov[own[k + 2]], u, part, product)


@numba.njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract"})
def _in_cell_by_draw(share, at, draw, log_weight, p, low, high, work, bits, real, out):  # type: ignore[no-untyped-def]
    """Posterior weights of one draw, from logs of its weights at a cell's points `at`."""
    logs = out[low:high]
    logs[:] = 0.0
    for k in range(len(at)):
        if share[k] != 0.0:
            part, each = share[k], log_weight[at[k], draw, low:high]
            for r in range(len(logs)):
                logs[r] += part * each[r]
    for r in range(len(logs)):
        logs[r] = min(max(logs[r], LOWEST), 0.0)
    exponentials(logs, work[low:high], bits[low:high], real[low:high])
    total = 1e-300
    for r in range(len(logs)):
        logs[r] *= p[low + r]
        total += logs[r]
    for r in range(len(logs)):
        logs[r] /= total


@numba.njit(cache=True, nogil=True, error_model="numpy")
def average_in_cells(place, u, v, rows, log_weight, density, weight, left):  # type: ignore[no-untyped-def]
    """As `average_weights`, with logs of weights at points of cells, (points, draws, R).

    They are interpolated as the moments of `average_by_cells`, but of every draw. Items for which
    straight lines would give other weights, by some of the draws, are marked in `left`.
    """
    number, points, draws = density.shape[1], rows.shape[1], log_weight.shape[1]
    now, curve, line, work = np.empty((4, number))
    bits = np.empty(number, dtype=np.int64)
    real, share, straight = bits.view(np.float64), np.empty(points), np.empty(points)
    for i in range(len(place)):
        p, at = density[i], rows[place[i]]
        low, high = _seen(p)
        _point_shares(u[i], v[i], share)
        for k in range(points):
            along = 0.0 if k % 3 == 1 else u[i] if k % 3 else 1.0 - u[i]
            across = 1.0 if points == 3 else 0.0 if k // 3 == 1 else v[i] if k // 3 else 1.0 - v[i]
            straight[k] = along * across
        weight[i], curve[:], line[:] = 0.0, 0.0, 0.0
        of_draw = log_weight, p, low, high, work, bits, real, now
        for s in range(draws):
            _in_cell_by_draw(share, at, s, *of_draw)
            for r in range(low, high):
                weight[i, r] += now[r]
            if s % _EVERY == 0:
                for r in range(low, high):
                    curve[r] += now[r]
                _in_cell_by_draw(straight, at, s, *of_draw)
                for r in range(low, high):
                    line[r] += now[r]
        bent = 0.0
        for r in range(low, high):
            bent += abs(curve[r] - line[r])
        left[i] = bent > _BENT_DRAWS * (1 + (draws - 1) // _EVERY)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def average_by_cells(place, u, v, rows, mean, cov, density, most, weight, bent, apart):  # type: ignore[no-untyped-def]
    """As `average_by_table`, with moments at points of cells, (points, R) and (points, R, R).

    `rows` (cells, 3) or (cells, 9) says which points a cell has, along its score and then its size.
    Items are in the cells `place`, at fractions u and v along the two. Those with a mean far from
    straight in the cell are marked in `bent`, and those that need all draws in `apart`.
    """
    number = density.shape[1]
    product, line = np.empty((2, number))
    share = np.empty(rows.shape[1])
    for i in np.argsort(place):  # the moments of a cell are read once
        p, centre = density[i], weight[i]
        centre[:] = product[:] = line[:] = 0.0
        low, high = _seen(p)
        own = rows[place[i]]
        _in_cell(own, u[i], v[i], p, low, high, mean, cov, share, centre, line, product)
        away = total = 0.0
        for r in range(low, high):
            away += p[r] * abs(centre[r] - line[r])
            total += p[r] * centre[r]
        bent[i] = not away <= _BENT * total
        spread, moved = _corrected(p, low, high, product, centre)
        apart[i] = not (spread <= most and moved <= _MOVED)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def weights_by_table(  # type: ignore[no-untyped-def]
    position, outcome, size, z, grid, frame, mean, cov, most, gamma, weight, left
):
    """Posterior weights of items, averaged over draws as by `score_by_table`, into `weight`.

    `weight` is (n, R), up to a factor of each item, and 0 for those marked in `left`.
    """
    p, product, centre = np.empty((3, len(z)))
    for i in range(len(position)):
        left[i] = True
        weight[i] = 0.0
        k, u, location, spread, shape, shift = _frame_at(position[i], grid, frame)
        if k < 0:
            continue
        own = outcome[i], size[i], location, spread, shape, shift
        low, high = _densities(*own, z, gamma, p)
        apart, moved = _posterior_weights(k, u, p, low, high, mean, cov, product, centre)
        if apart <= most and moved <= _MOVED:
            left[i] = False
            weight[i, low:high] = centre[low:high]


@numba.njit(cache=True, nogil=True, error_model="numpy")
def score_by_table(  # type: ignore[no-untyped-def]
    position, outcome, size, z, grid, frame, mean, cov, most, probs, tables, gamma, out, left
):
    """Summaries as by `summarize_mixtures`, to second order in the weights' spread over draws.

    With Z = W p for weights W and densities p, the mean of W_r p_r / Z over draws is nearly
    p_r m_r / Z exp(p'Cp / Z^2 - (C p)_r / (m_r Z)) at the mean m and covariance C of W, which are
    linear between the points of an even `grid` of positions; so are the columns of `frame`:
    location, log spread, log shape (log variance for Normals) and, for Gammas, log mean minus mean
    of the logarithm. Items with p'Cp / Z^2 above `most`, or off the grid, are marked in `left`.
    """
    p, product, centre, place = np.empty((4, len(z)))
    for i in range(len(position)):
        left[i] = True
        k, u, location, spread, shape, shift = _frame_at(position[i], grid, frame)
        if k < 0:
            continue
        y, n = outcome[i], size[i]
        low, high = _densities(y, n, location, spread, shape, shift, z, gamma, p)
        apart, moved = _posterior_weights(k, u, p, low, high, mean, cov, product, centre)
        if not (apart <= most and moved <= _MOVED):
            continue
        left[i] = False
        for r in range(low, high):
            own = location + spread * z[r]
            if gamma:
                place[r - low] = shape * math.exp(-own - shift) + n
            else:
                place[r - low] = (own * n * n + shape * y) / (shape + n * n)
            product[r - low] = centre[r]
        after = shape + y if gamma else math.sqrt(shape * n * n / (shape + n * n))
        _summarize(product, place, high - low, after, probs, tables, gamma, out, i)


# --- functions of a family's mixtures ------------------------------------------------------------


@dataclass(frozen=True)
class TableForms:
    """What the compiled loops over items need to find densities and summaries themselves."""

    gamma: bool  # which of two forms they use
    # base distributions -> logarithm of `shape` in `score_by_table`, and its shift
    columns: Callable[[Frame], tuple[Floats, Floats]]


@dataclass(frozen=True)
class MixtureForms:
    """Functions of a family for mixtures of its members.

    Locations are (n, R); variances, of log theta or theta around them, are (n, 1) or (n, R).
    """

    parameters: Callable[[Floats, Floats], tuple[Floats, Floats]]  # (location, variance) -> a, b
    # (outcome, size, location, variance) -> log marginal densities (n, R)
    log_density: Callable[[Floats, Floats, Floats, Floats], Floats]
    # (weight (n, R), a, b, probabilities) -> mean, sd, variance and quantiles of theta by row
    summaries: Callable[[Floats, Floats, Floats, Sequence[float]], Floats]
    # (weight, a, b, probabilities (n,), mean and variance of the mixtures) -> quantiles (n,); 0
    # where a probability is NaN
    quantiles: Callable[[Floats, Floats, Floats, Floats, Floats, Floats], Floats]
    at_zero: Callable[[Floats], tuple[Floats, Floats]]  # a of a component -> a, b of theta = 0
    table: TableForms | None  # None: only weights are averaged in a compiled loop


def _gamma_parameters(location: Floats, variance: Floats) -> tuple[Floats, Floats]:
    """Shape (n, 1), shared by the components, and rate (n, R)."""
    shape = inverse_trigamma(variance[:, :1])
    return shape, np.exp(special.psi(shape) - location)


def _gamma_summaries(weight: Floats, shape: Floats, rate: Floats, probs: Sequence[float]) -> Floats:
    out, tables = np.empty((3 + len(probs), len(weight))), quantile_tables(probs)
    share = np.array(probs, dtype=float)
    summarize_mixtures(weight, shape[:, 0], rate, share, tables, True, out)
    return out


def _gamma_quantiles(
    weight: Floats, shape: Floats, rate: Floats, prob: Floats, mean: Floats, variance: Floats
) -> Floats:
    out = np.empty(len(prob))
    mixture_quantiles(weight, shape[:, 0], rate, prob, mean, variance, True, out)
    return out


def _gamma_columns(frame: Frame) -> tuple[Floats, Floats]:
    shape = inverse_trigamma(frame.width())
    return np.log(shape), np.log(shape) - special.psi(shape)


def _normal_summaries(
    weight: Floats, mean: Floats, variance: Floats, probs: Sequence[float]
) -> Floats:
    if variance.shape[1] > 1:  # components differ in variance
        return normal_summaries(mean.T, variance.T, probs, weight.T).rows
    out, tables = np.empty((3 + len(probs), len(weight))), quantile_tables(probs)
    share = np.array(probs, dtype=float)
    summarize_mixtures(weight, np.sqrt(variance[:, 0]), mean, share, tables, False, out)
    return out


def _normal_quantiles(
    weight: Floats, place: Floats, within: Floats, prob: Floats, mean: Floats, variance: Floats
) -> Floats:
    out = np.empty(len(prob))
    sd = np.sqrt(within[:, 0])
    mixture_quantiles(weight, sd, place, prob, mean, variance, False, out)
    return out


GAMMA_MIXTURE = MixtureForms(
    parameters=_gamma_parameters,
    log_density=lambda y, n, location, variance: count_log_density(y, n, location, variance[:, 0]),
    summaries=_gamma_summaries,
    quantiles=_gamma_quantiles,
    at_zero=lambda shape: (shape, np.full(len(shape), 1e100)),
    table=TableForms(True, _gamma_columns),
)
NORMAL_MIXTURE = MixtureForms(
    parameters=lambda location, variance: (location, variance),
    log_density=lambda y, sd, location, variance: value_log_density(y, sd**2, location, variance),
    summaries=_normal_summaries,
    quantiles=_normal_quantiles,
    at_zero=lambda mean: (np.zeros(len(mean)), np.full(len(mean), 1e-200)),
    table=TableForms(False, lambda frame: (np.log(frame.width()), np.zeros(len(frame.location)))),
)
