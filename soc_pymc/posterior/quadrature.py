"""Few nodes for many draws of the curves: tabulated once over scores, then interpolated."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..families import poisson_gamma
from ..families.draw_rules import Rule, gauss_rules, product_rule
from ..families.item_kernels import move_quantiles, search_items, summarize_items
from ..inference.results import Fit
from .curves import bounded, curve_draws, knot_weights

__all__ = [
    "GAMMA",
    "MEAN_SPREAD",
    "NODE_LIMITS",
    "NORMAL",
    "Nodes",
    "Tabulated",
    "few_nodes",
    "is_plain",
    "make_nodes",
    "representative_nodes",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_FEW = 16  # scores at which all draws are held at once: what a processor's cache holds
_GRIDS = (500, 1000, 2000, 4000, 8000, 16000)  # points between the outer knots
_OUTER = 2  # so many times fewer on either side of them, over as long a way again
# spread of the curves below which so many nodes a curve do; above the last, all draws. And how far
# the nodes' posteriors may then be spread out, against the width of each, squared: where the data
# disagree with the curves the nodes stand apart from one another, and only all draws will do
_LEVELS = ((0.13, 2), (0.2, 3), (0.4, 7), (0.6, 10))
NODE_LIMITS = np.array([0.06, 0.2, 1.0, 1.5])
"""By level, how far the nodes' posteriors may be spread out, against the width of each, squared."""
MEAN_SPREAD = 2.5
"""An sd of log mean matters as much as this much more of log cv2."""
_STRICTER = 0.4  # share of the limits above where all draws are at hand anyway
_PART = 500  # items whose nodes are made at once from all draws
_KINK = 2e-4  # error of interpolation, in sd of the prior, that is borne
_FEW_COARSE = 0.02  # share of cells that may be left to all draws
_LEAST_KEYS, _MOST_KEYS = 1 << 12, 1 << 18  # steps of the table that finds cells
_CELLS_A_KEY = 4  # or more steps, up to the most


@dataclass(frozen=True)
class Tabulated:
    """What of a family's prior is interpolated between scores.

    Attributes
    ----------
    numbers
        (first curve, second curve) -> two numbers of the prior that are nearly straight lines.
    off
        (numbers, their true values) -> their errors, of the mean in sd of the prior and of the
        spread as a share.
    unit
        Second curve -> in what an sd of the first is measured.
    """

    numbers: Callable[[Floats, Floats], tuple[Floats, Floats]]
    off: Callable[[tuple[Floats, Floats], tuple[Floats, Floats]], tuple[Floats, Floats]]
    unit: Callable[[Floats], Floats]


def _off_gamma(found: tuple[Floats, Floats], true: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
    off_mean = np.abs(found[0] / found[1] * true[1] / true[0] - 1.0)
    return off_mean * np.sqrt(true[0]), np.abs(found[0] / true[0] - 1.0)


def _off_normal(found: tuple[Floats, Floats], true: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
    return np.abs(found[0] - true[0]) / np.sqrt(true[1]), np.abs(found[1] / true[1] - 1.0)


GAMMA = Tabulated(poisson_gamma.shape_rate, _off_gamma, np.ones_like)
"""Shape and rate."""
NORMAL = Tabulated(lambda m, v: (m, np.exp(v)), _off_normal, lambda v: np.exp(0.5 * v))
"""Mean and variance."""


@dataclass(frozen=True)
class Nodes:
    """Gauss rules of the draws at a grid of scores, to be interpolated.

    Attributes
    ----------
    log
        Whether the grid is of logarithms of scores.
    grid
        Rising scores, or their logarithms; it reaches beyond the outer knots on both sides by the
        distance between them.
    start, scale
        Cell in which each step of 1 / scale from the grid's first point begins.
    level
        (grid - 1,): which rule serves the cell between two points; the last stands for all draws.
    rules
        By level, (grid, 3, nodes): weights, and the family's two numbers (shape and rate, or mean
        and variance); of no meaning beside other levels.
    """

    log: bool
    grid: Floats
    start: Ints
    scale: float
    level: Ints
    rules: tuple[Floats, ...]

    def score(
        self, score: Floats, count: Floats, exposure: Floats, probs: Floats, tables: Floats
    ) -> Floats:
        """Mean, sd, variance and quantiles of counts under a Gamma prior.

        Parameters
        ----------
        score, count, exposure
            The items, shape (n,).
        probs, tables
            Probabilities of the quantiles and their tables, of `quantile_tables`.

        Returns
        -------
        numpy.ndarray
            The summaries, (3 + probabilities, n); the mean is NaN where an item needs all draws.
        """
        n = len(score)
        position = np.log(score) if self.log else np.array(score)
        summary, left = np.empty((6, n)), np.empty(n, dtype=np.bool_)
        table = self.grid, self.start, self.scale, self.level, self.rules
        summarize_items(position, count, exposure, *table, NODE_LIMITS, summary, left)
        summary[:, left] = 1.0
        found, missing = np.empty((len(probs), n)), np.empty((len(probs), n), dtype=np.bool_)
        if len(probs):
            log_shape, per_root = np.log(summary[2]), 1.0 / np.sqrt(summary[2])
            for k in range(len(probs)):
                move_quantiles(k, tables, summary, log_shape, per_root, found[k], missing[k])
            rest = np.flatnonzero(missing.any(axis=0) & ~left)
            search_items(
                rest,
                position,
                count,
                exposure,
                *table,
                summary,
                probs,
                tables,
                found,
                missing,
                left,
            )
        whole = np.vstack([summary[0], np.sqrt(summary[1]), summary[1], found])
        whole[0, left] = np.nan
        return whole


def make_nodes(fit: Fit, family: Tabulated = GAMMA) -> Nodes:
    """Nodes of a fit whose curves are functions of the score alone.

    Parameters
    ----------
    fit
        The fit.
    family
        What to interpolate.
    """
    log = "log" in (fit.prior.mean.scale, fit.prior.variance.scale)
    for number in _GRIDS:
        at = _grid(fit, log, number)
        coarse = _coarse(fit, family, log, at)
        if coarse.mean() < _FEW_COARSE:
            break
    score = np.exp(at) if log else at
    # far outside of the knots a prior may be beyond all numbers: such cells get no nodes
    with np.errstate(over="ignore", invalid="ignore"):
        spread = _spread(fit, family, score)
    wide = np.where(np.isfinite(spread), spread, np.inf)
    level = np.searchsorted([top for top, _ in _LEVELS], np.maximum(wide[:-1], wide[1:]))
    level[coarse] = len(_LEVELS)
    rules = tuple(_rules(fit, family, score, level == i, n) for i, (_, n) in enumerate(_LEVELS))
    start, scale = _cell_table(at)
    return Nodes(log, at, start, scale, level.astype(np.int64), rules)


def _cell_table(at: Floats) -> tuple[Ints, float]:
    """Cell in which each of many equal steps from the first point begins, and steps per unit."""
    keys = _LEAST_KEYS
    while True:
        scale = keys / (at[-1] - at[0])
        edges = at[0] + np.arange(keys + 1) / scale
        start = np.clip(np.searchsorted(at, edges, side="right") - 1, 0, len(at) - 2)
        if keys >= _MOST_KEYS or np.diff(start).max() <= _CELLS_A_KEY:
            break
        keys *= 2
    # an edge may lie behind a point by rounding: begin one cell before
    start[:-1] = np.maximum(start[:-1] - 1, 0)
    return start.astype(np.int64), float(scale)


def _grid(fit: Fit, log: bool, number: int) -> Floats:
    """Rising positions, about `number` between the outer knots, close on the axes of both curves.

    Positions are scores or, for `log`, their logarithms.
    """
    inner, knots = [], []
    for curve, knot in (("mean", "mean_knot"), ("variance", "variance_knot")):
        axis = fit.axis(curve)
        own = fit.data["posterior"][knot].to_numpy()
        inner.append(axis.inverse(np.linspace(own[0], own[-1], number)))
        knots.append(axis.inverse(own))
        inner += [knots[-1], np.array(axis.score)]  # a rank axis bends at these
    every, outer = np.concatenate(inner), np.concatenate(knots)
    if log:
        every, outer = np.log(every[every > 0]), np.log(outer[outer > 0])
    low, high = float(outer.min()), float(outer.max())
    reach = max(0.5 * (high - low), 1e-3 * max(abs(low), abs(high)), 1e-9)
    beyond = np.linspace(0.0, reach, number // _OUTER + 1)
    return np.unique(np.concatenate([low - beyond, every, high + beyond]))


def _coarse(fit: Fit, family: Tabulated, log: bool, at: Floats) -> NDArray[np.bool_]:
    """Cells in which the average curves' prior is interpolated with too large an error."""
    both = np.empty(2 * len(at) - 1)
    both[::2], both[1::2] = at, 0.5 * (at[:-1] + at[1:])
    score = np.exp(both) if log else both
    averages = []
    for curve in ("mean", "variance"):
        values, weights = knot_weights(fit, curve, score)
        averages.append(weights @ values.mean(axis=0))
    # likewise: comparisons with NaN are false, and the cell is coarse
    with np.errstate(over="ignore", invalid="ignore"):
        one, two = family.numbers(averages[0], averages[1])
        between = 0.5 * (one[:-2:2] + one[2::2]), 0.5 * (two[:-2:2] + two[2::2])
        off_mean, off_spread = family.off(between, (one[1::2], two[1::2]))
        fine = (off_mean < _KINK) & (off_spread < _KINK)
    return np.asarray(~fine)


def _spread(fit: Fit, family: Tabulated, score: Floats) -> Floats:
    """Sd of the curves, that of the first times its importance if that is larger."""
    sds = []
    for curve in ("mean", "variance"):
        values, at = knot_weights(fit, curve, score)
        away = values - values.mean(axis=0)
        variance = ((at @ (away.T @ away / len(away))) * at).sum(axis=1)
        sds.append(np.sqrt(np.maximum(variance, 0.0)))
    unit = family.unit(at @ values.mean(axis=0))
    return np.asarray(np.maximum(MEAN_SPREAD * sds[0] / unit, sds[1]))


def _rules(
    fit: Fit, family: Tabulated, score: Floats, cells: NDArray[np.bool_], number: int
) -> Floats:
    """Rules of `number` nodes a curve at both ends of the cells, and nothing elsewhere."""
    found = np.zeros((len(score), 3, number**2))
    ends = np.append(cells, False) | np.append(False, cells)
    places = np.flatnonzero(ends)
    for part in np.split(places, range(_FEW, len(places), _FEW)):
        if len(part):
            ((weight, m, c),) = gauss_rules(*curve_draws(fit, score[part]), [number])
            rule = np.array([weight, *family.numbers(m, c)])
            found[part] = rule.transpose(2, 0, 1)
    return found


def is_plain(fit: Fit) -> bool:
    """Whether curves are splines over the score alone: no groups, exposure, effects or steps."""
    prior = fit.prior
    return not (fit.groups or prior.exposure is not None or prior.bin_effects or fit.by_bin)


def few_nodes(
    first: Floats, second: Floats, spread: Floats
) -> Iterator[tuple[NDArray[np.intp], float, Rule]]:
    """Gauss rules of draws of the curves at items, as few nodes as their spread allows.

    Parameters
    ----------
    first, second
        Draws of the curves, shape (draws, n).
    spread
        Sd of the second curve or `MEAN_SPREAD` times that of the first, whichever is larger, (n,).

    Yields
    ------
    tuple
        Items (none twice, those of a large spread not at all), how far their nodes' posteriors may
        be spread out against the width of each, squared, and their rule.
    """
    level = np.searchsorted([top for top, _ in _LEVELS], spread)
    for i, (_, number) in enumerate(_LEVELS):
        places = np.flatnonzero(level == i)
        for part in np.split(places, range(_FEW, len(places), _FEW)):
            if len(part):
                (rule,) = gauss_rules(first[:, part], second[:, part], [number])
                yield part, _STRICTER * float(NODE_LIMITS[i]), rule


def representative_nodes(
    fit: Fit,
    score: ArrayLike,
    *,
    group: ArrayLike | None = None,
    exposure: ArrayLike | None = None,
) -> tuple[Floats, Floats, Floats]:
    """Nine weighted values of both curves that stand for all draws at each score.

    They have the draws' mean and covariance (a product of three-point Gauss-Hermite rules), so that
    averages over them are right to the second order in the curves' uncertainty and, for curves near
    normal, to the fifth.

    Parameters
    ----------
    fit
        The fit.
    score
        Scores, shape (n,).
    group, exposure
        As of `curve_draws`.

    Returns
    -------
    tuple of numpy.ndarray
        Weights (9,), and the curves (9, n): log mean and log cv2, or mean and log variance.
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
        parts.append(_moments(first, second))
    return _bounded_rule(fit, np.concatenate([np.zeros((5, 0)), *parts], axis=1))


def _bounded_rule(fit: Fit, moments: Floats) -> tuple[Floats, Floats, Floats]:
    """Nodes of these moments, with curves as far as numbers go."""
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


def _moments(first: Floats, second: Floats) -> Floats:
    """The same from the curves' draws (draws, n)."""
    means = first.mean(axis=0), second.mean(axis=0)
    a, c = first - means[0], second - means[1]
    return np.array([*means, (a * a).mean(axis=0), (a * c).mean(axis=0), (c * c).mean(axis=0)])
