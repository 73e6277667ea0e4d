"""Compiled loops that score items as mixtures of Gammas, over quadrature points or draws.

Mean and variance of the mixture are sums over nodes. A quantile is that of the Gamma with the
nodes' mean shape and mean, with a second-order correction for their spread if that is small (the
error is then at most 4e-4 posterior sd); else a search on the mixture's cdf.
"""

import math
from collections.abc import Sequence

import numba
import numpy as np

from .._lib.arrays import Floats
from .gamma_quantiles import quantile_tables, table_cell, table_values, tail_and_density

_FEWEST = 4  # nodes of the first level
# limits of the second-order correction: squared spread of the nodes, in relative shape and in
# posterior sd; shift of a quantile in posterior sd, and as a share of the quantile
_MOST_SPREAD, _MOST_MOVE, _MOST_SHARE = 0.012, 0.02, 0.1
_START = 0.3  # largest relative shift by the second order for the start of the search
# last step of the search, in posterior sd: the error is of the order of its square for a modest
# spread, but much larger where data and curves disagree
_CLOSE, _CLOSE_WIDE, _MODEST = 3e-3, 3e-5, 0.1
_STEPS = 30


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _search(theta, prob, close, weight, shape, rate, log_gamma, nodes):  # type: ignore[no-untyped-def]
    """Quantile of the nodes' mixture by Newton's method on log probability; NaN if it fails."""
    lower = prob <= 0.5
    target = np.log(prob if lower else 1.0 - prob)
    for _ in range(_STEPS):
        share = density = 0.0
        for s in range(nodes):
            tail, slope = tail_and_density(shape[s], theta * rate[s], log_gamma[s], lower)
            share += weight[s] * tail
            density += weight[s] * slope
        if not (share > 0.0 and density > 0.0):
            break
        step = (target - np.log(share)) * share / density
        step = min(max(step if lower else -step, -2.0), 2.0)
        theta *= np.exp(step)
        if abs(step) <= close:
            return theta
    return np.nan


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _gamma_quantile(mean, shape, tables, which):  # type: ignore[no-untyped-def]
    """Quantile of a Gamma; NaN for shapes below the table."""
    cell, u = table_cell(np.log(shape))
    if cell < 0:
        return np.nan
    scaled, _, _ = table_values(tables, which, cell, u)
    return mean * np.exp(scaled / np.sqrt(shape))


@numba.njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract", "reassoc"})
def _summarize(nodes, weight, shape, rate, own):  # type: ignore[no-untyped-def]
    """Mean and variance of a mixture; its mean shape, and the nodes' spread around both."""
    mean = middle = within = 0.0
    for s in range(nodes):
        scale = 1.0 / rate[s]
        own[s] = shape[s] * scale
        mean += weight[s] * own[s]
        middle += weight[s] * shape[s]
        within += weight[s] * own[s] * scale
    per_mean, per_middle = 1.0 / mean, 1.0 / middle
    dd = dl = ll = 0.0
    for s in range(nodes):
        d = shape[s] * per_middle - 1.0
        away = own[s] * per_mean - 1.0
        dd += weight[s] * d * d
        dl += weight[s] * d * away
        ll += weight[s] * away * away
    return mean, within + mean * mean * ll, middle, dd, dl, ll


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _summarize_items(weight, shape, rate, limit, summary, left):  # type: ignore[no-untyped-def]
    """Fill `summary` (6, items) with the results of `_summarize`.

    `left` becomes true for items with a spread of nodes beyond the limit.
    """
    own = np.empty(shape.shape[1])
    for i in range(len(shape)):
        nodes = i if len(weight) > 1 else 0
        if shape.shape[1] == _FEWEST:  # loops of a constant length are twice as fast
            found = _summarize(_FEWEST, weight[nodes], shape[i], rate[i], own)
        else:
            found = _summarize(shape.shape[1], weight[nodes], shape[i], rate[i], own)
        for j in range(6):
            summary[j, i] = found[j]
        spread = found[3] + found[2] * found[5]
        left[i] = not (found[0] > 0.0 and found[1] > 0.0 and spread < limit)


@numba.njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract"})
def _move_quantiles(which, tables, summary, log_shape, per_root, out, missing):  # type: ignore[no-untyped-def]
    """Fill `out` (items,) with a quantile, to second order in the nodes' spread.

    `log_shape` and `per_root` are of the mean shape: its logarithm and one over its root. If the
    correction is too large, `missing` becomes true and `out` a first guess, or NaN.
    """
    for i in range(len(out)):
        mean, variance, middle = summary[0, i], summary[1, i], summary[2, i]
        dd, dl, ll = summary[3, i], summary[4, i], summary[5, i]
        cell, u = table_cell(log_shape[i])
        scaled, slope, bend = table_values(tables, which, max(cell, 0), u)
        ratio = np.exp(scaled * per_root[i])
        away = middle * (1.0 - ratio) + 1.0
        move = 0.5 * (bend * per_root[i] * dd - 2.0 * slope * dl + away * ll)
        moved = mean * ratio * (1.0 - move * (1.0 - 0.5 * move))
        missing[i] = not (
            (cell >= 0)
            & (dd + middle * ll < _MOST_SPREAD)
            & (abs(move) < _MOST_SHARE)
            & ((move * moved) ** 2 < _MOST_MOVE**2 * variance)
        )
        out[i] = moved if cell >= 0 and abs(move) < _START else np.nan


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _search_all(i, summary, nodes, weight, shape, rate, log_gamma, probs, tables, out, missing):  # type: ignore[no-untyped-def]
    """Search for an item's missing quantiles; returns whether all were found."""
    mean, variance = summary[0, i], summary[1, i]
    for s in range(nodes):
        log_gamma[s] = math.lgamma(shape[s])
    modest = summary[3, i] + summary[2, i] * summary[5, i] < _MODEST
    close = (_CLOSE if modest else _CLOSE_WIDE) * min(np.sqrt(variance) / mean, 1.0)
    good = True
    for k in range(len(probs)):
        if missing[k, i]:
            guess = out[k, i]
            if not guess > 0.0:
                guess = _gamma_quantile(mean, mean * mean / variance, tables, k)
            out[k, i] = _search(guess, probs[k], close, weight, shape, rate, log_gamma, nodes)
            good &= out[k, i] > 0.0
    return good


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _search_items(which, weight, shape, rate, summary, probs, tables, out, missing, left):  # type: ignore[no-untyped-def]
    """Search for the `missing` (probabilities, items) quantiles of the items `which` in `out`."""
    number = shape.shape[1]
    log_gamma = np.empty(number)
    for i in which:
        w = weight[i if len(weight) > 1 else 0]
        own = w, shape[i], rate[i], log_gamma
        left[i] = not _search_all(i, summary, number, *own, probs, tables, out, missing)


def score_gammas(
    weight: Floats,
    shape: Floats,
    rate: Floats,
    count: Floats,
    exposure: Floats,
    limit: float,
    probs: Sequence[float],
) -> Floats:
    """Mean, sd, variance and quantiles of items, (3 + probabilities, n), over nodes or draws.

    The prior's shapes and rates are (n, nodes), weights the same or (1, nodes). The mean is NaN
    where the squared spread of the nodes' posteriors, relative to their width, is not below
    `limit`, or a quantile is not found.
    """
    shape, rate = shape + count[:, None], rate + exposure[:, None]
    n, tables, levels = len(shape), quantile_tables(probs), np.array(probs, dtype=float)
    summary, left = np.empty((6, n)), np.empty(n, dtype=np.bool_)
    _summarize_items(weight, shape, rate, limit, summary, left)
    summary[:, left] = 1.0
    found, missing = np.empty((len(probs), n)), np.empty((len(probs), n), dtype=np.bool_)
    if len(probs):
        log_shape, per_root = np.log(summary[2]), 1.0 / np.sqrt(summary[2])
        for k in range(len(probs)):
            _move_quantiles(k, tables, summary, log_shape, per_root, found[k], missing[k])
        rest = np.flatnonzero(missing.any(axis=0) & ~left)
        _search_items(rest, weight, shape, rate, summary, levels, tables, found, missing, left)
    whole = np.vstack([summary[0], np.sqrt(summary[1]), summary[1], found])
    whole[0, left] = np.nan
    return whole
