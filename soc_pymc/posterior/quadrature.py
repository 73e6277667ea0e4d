"""Quadrature points that replace draws of the curves, tabulated over scores and interpolated."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._lib.arrays import Floats, Ints
from ..families.family import Family, family_of
from ..families.mixtures import Nodes, Rule, gauss_rules, product_rule
from ..families.scales import Scale, common_scale
from ..inference.results import Fit
from .curves import bounded, curve_draws, is_plain, knot_weights

_FEW = 16  # scores whose draws are in memory at once, as fits a processor's cache
_GRIDS = (500, 1000, 2000, 4000, 8000, 16000)  # points between the outer knots
_OUTER = 2  # points beyond the knots, on a range of the same length, are fewer by this factor
# spread of the curves up to which a number of nodes per curve suffices (above the last, all draws
# are used), and the largest squared spread of the nodes' posteriors relative to their width. Where
# the data disagree with the curves the nodes are far apart, and all draws are needed
_LEVELS = ((0.13, 2), (0.2, 3), (0.4, 7), (0.6, 10))
_LIMITS = np.array([0.06, 0.2, 1.0, 1.5])
_MEAN_SPREAD = 2.5  # an sd of log mean counts as this many of log cv2
_STRICTER = 0.4  # share of the limits above if all draws are available anyway
_PART = 500  # items whose nodes are computed at once from all draws
_KINK = 2e-4  # allowed error of interpolation, in sd of the prior
_FEW_COARSE = 0.02  # allowed share of cells without nodes
_LEAST_KEYS, _MOST_KEYS = 1 << 12, 1 << 18  # steps of the table that finds cells
_CELLS_A_KEY = 4  # or more steps, up to this number


def make_nodes(fit: Fit) -> Nodes:
    """Nodes of a fit whose curves are functions only of the score."""
    family = family_of(fit.prior)
    axis = common_scale(fit.prior.mean.scale, fit.prior.variance.scale)
    for number in _GRIDS:
        at = _grid(fit, axis, number)
        coarse = _coarse(fit, family, axis, at)
        if coarse.mean() < _FEW_COARSE:
            break
    score = axis.score(at)
    # far outside the knots a prior may overflow: such cells get no nodes
    with np.errstate(over="ignore", invalid="ignore"):
        spread = _spread(fit, family, score)
    wide = np.where(np.isfinite(spread), spread, np.inf)
    level = np.searchsorted([top for top, _ in _LEVELS], np.maximum(wide[:-1], wide[1:]))
    level[coarse] = len(_LEVELS)
    rules = tuple(_rules(fit, family, score, level == i, n) for i, (_, n) in enumerate(_LEVELS))
    start, scale = _cell_table(at)
    return Nodes(axis, at, start, scale, level.astype(np.int64), rules, _LIMITS)


def _cell_table(at: Floats) -> tuple[Ints, float]:
    """Cell of the start of each of many equal steps from the first point, and steps per unit."""
    keys = _LEAST_KEYS
    while True:
        scale = keys / (at[-1] - at[0])
        edges = at[0] + np.arange(keys + 1) / scale
        start = np.clip(np.searchsorted(at, edges, side="right") - 1, 0, len(at) - 2)
        if keys >= _MOST_KEYS or np.diff(start).max() <= _CELLS_A_KEY:
            break
        keys *= 2
    # an edge may be past a point by rounding: begin one cell before
    start[:-1] = np.maximum(start[:-1] - 1, 0)
    return start.astype(np.int64), float(scale)


def _grid(fit: Fit, scale: Scale, number: int) -> Floats:
    """Sorted positions, about `number` between outer knots, dense on the axes of both curves."""
    inner, knots = [], []
    for curve, knot in (("mean", "mean_knot"), ("variance", "variance_knot")):
        axis = fit.axis(curve)
        own = fit.data["posterior"][knot].to_numpy()
        inner.append(axis.inverse(np.linspace(own[0], own[-1], number)))
        knots.append(axis.inverse(own))
        inner += [knots[-1], np.array(axis.score)]  # a rank axis has kinks here
    every, outer = np.concatenate(inner), np.concatenate(knots)
    every, outer = (scale.position(x[scale.holds(x)]) for x in (every, outer))
    low, high = float(outer.min()), float(outer.max())
    reach = max(0.5 * (high - low), 1e-3 * max(abs(low), abs(high)), 1e-9)
    beyond = np.linspace(0.0, reach, number // _OUTER + 1)
    return np.unique(np.concatenate([low - beyond, every, high + beyond]))


def _coarse(fit: Fit, family: Family, axis: Scale, at: Floats) -> NDArray[np.bool_]:
    """Cells in which interpolation of the average curves' prior is not accurate enough."""
    both = np.empty(2 * len(at) - 1)
    both[::2], both[1::2] = at, 0.5 * (at[:-1] + at[1:])
    score = axis.score(both)
    averages = []
    for curve in ("mean", "variance"):
        values, weights = knot_weights(fit, curve, score)
        averages.append(weights @ values.mean(axis=0))
    # comparisons with NaN are false, so such a cell is coarse
    with np.errstate(over="ignore", invalid="ignore"):
        one, two = family.to_parameters(averages[0], averages[1])
        between = 0.5 * (one[:-2:2] + one[2::2]), 0.5 * (two[:-2:2] + two[2::2])
        off_mean, off_spread = family.interpolation_error(between, (one[1::2], two[1::2]))
        fine = (off_mean < _KINK) & (off_spread < _KINK)
    return np.asarray(~fine)


def _spread(fit: Fit, family: Family, score: Floats) -> Floats:
    """Spread of the curves at scores, as by `curve_spread`, NaN on overflow."""
    _, level, first, _, second = _knot_moments(fit, score)
    return _larger(family, np.sqrt(np.maximum([first, second], 0.0)), level)


def curve_spread(family: Family, first: Floats, second: Floats) -> Floats:
    """Sd of draws (draws, n) of the second curve, or the weighted sd of the first if larger."""
    sds = np.array([first.std(axis=0), second.std(axis=0)])
    return _larger(family, sds, second.mean(axis=0))


def _larger(family: Family, sds: Floats, level: Floats) -> Floats:
    return np.asarray(np.maximum(_MEAN_SPREAD * sds[0] / family.unit(level), sds[1]))


def _rules(
    fit: Fit, family: Family, score: Floats, cells: NDArray[np.bool_], number: int
) -> Floats:
    """Rules of `number` nodes per curve at both ends of the given cells."""
    found = np.zeros((len(score), 3, number**2))
    ends = np.append(cells, False) | np.append(False, cells)
    places = np.flatnonzero(ends)
    for part in np.split(places, range(_FEW, len(places), _FEW)):
        if len(part):
            ((weight, m, c),) = gauss_rules(*curve_draws(fit, score[part]), [number])
            rule = np.array([weight, *family.to_parameters(m, c)])
            found[part] = rule.transpose(2, 0, 1)
    return found


def few_nodes(
    first: Floats, second: Floats, spread: Floats
) -> Iterator[tuple[NDArray[np.intp], float, Rule]]:
    """Gauss rules of draws of the curves at items, with as few nodes as their spread allows.

    Draws are (draws, n), `spread` (n,) is from `curve_spread`. Yields disjoint sets of items
    (without those of a large spread), the largest squared spread of their nodes' posteriors
    relative to their width, and their rule.
    """
    level = np.searchsorted([top for top, _ in _LEVELS], spread)
    for i, (_, number) in enumerate(_LEVELS):
        places = np.flatnonzero(level == i)
        for part in np.split(places, range(_FEW, len(places), _FEW)):
            if len(part):
                (rule,) = gauss_rules(first[:, part], second[:, part], [number])
                yield part, _STRICTER * float(_LIMITS[i]), rule


def representative_nodes(
    fit: Fit,
    score: ArrayLike,
    *,
    group: ArrayLike | None = None,
    exposure: ArrayLike | None = None,
) -> tuple[Floats, Floats, Floats]:
    """Nine quadrature points of both curves that replace all draws at each score.

    They have the draws' mean and covariance (a product of three-point Gauss-Hermite rules), so that
    averages over them are right to the second order in the curves' uncertainty and, for curves near
    normal, to the fifth.

    Groups and exposures are as in `curve_draws`. Returns weights (9,) and the curves (9, n).
    """
    if is_plain(fit):
        return _bounded_rule(fit, _knot_moments(fit, score))
    at, parts = np.asarray(score, dtype=float), []
    given = {
        name: np.asarray(values)
        for name, values in (("group", group), ("exposure", exposure))
        if values is not None
    }
    for start in range(0, len(at), _PART):
        part = slice(start, start + _PART)
        first, second = curve_draws(fit, at[part], **{k: v[part] for k, v in given.items()})
        parts.append(moments_of(first, second))
    return _bounded_rule(fit, np.concatenate([np.zeros((5, 0)), *parts], axis=1))


def _bounded_rule(fit: Fit, moments: Floats) -> tuple[Floats, Floats, Floats]:
    """Nodes with these moments, with bounded curves."""
    weight, first, second = product_rule(*moments)
    return weight, *bounded(fit, first, second)


def _knot_moments(fit: Fit, score: ArrayLike) -> Floats:
    """Means, and variance, covariance and variance, of both curves at scores, (5, n)."""
    first, first_at = knot_weights(fit, "mean", score)
    second, second_at = knot_weights(fit, "variance", score)
    a, c = first - first.mean(axis=0), second - second.mean(axis=0)
    count = len(a)
    return np.array(
        [
            first_at @ first.mean(axis=0),
            second_at @ second.mean(axis=0),
            ((first_at @ (a.T @ a / count)) * first_at).sum(axis=1),
            ((first_at @ (a.T @ c / count)) * second_at).sum(axis=1),
            ((second_at @ (c.T @ c / count)) * second_at).sum(axis=1),
        ]
    )


def moments_of(first: Floats, second: Floats) -> Floats:
    """Means, variance, covariance and variance of draws of both curves (draws, n), (5, n)."""
    means = first.mean(axis=0), second.mean(axis=0)
    a, c = first - means[0], second - means[1]
    return np.array([*means, (a * a).mean(axis=0), (a * c).mean(axis=0), (c * c).mean(axis=0)])
