"""Few nodes for many draws of the curves: tabulated once over scores, then interpolated."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .curves import curve_draws, knot_weights
from .families.draw_rules import Rule, gauss_rules, product_rule
from .results import Fit

__all__ = ["Nodes", "make_nodes", "representative_nodes"]

Floats = NDArray[np.float64]

_FEW = 250  # scores at which all draws are held at once
_GRID, _OUTER = 1500, 200  # points between the outer knots and on either side of them
# spread of the curves below which so many nodes a curve do; above the last, all draws
_LEVELS = ((0.1, 3), (0.2, 4), (0.4, 7))
_MEAN_SPREAD = 2.5  # an sd of log mean matters as much as this much more of log cv2


@dataclass(frozen=True)
class Nodes:
    """Gauss rules of the draws at a grid of scores, to be interpolated.

    Attributes
    ----------
    fit
        The fit.
    log
        Whether to interpolate in the logarithm of the score.
    grid
        Rising scores, or their logarithms.
    level
        (grid - 1,): which rule serves the cell between two points; the last stands for all draws.
    rules
        By level, (grid, 3, nodes): weights, log mean and log cv2.
    """

    fit: Fit
    log: bool
    grid: Floats
    level: NDArray[np.int64]
    rules: tuple[Floats, ...]

    def at(self, score: Floats) -> Iterator[tuple[NDArray[np.intp], Rule]]:
        """Groups of scores inside the grid, each with its weights and nodes (nodes, group).

        Parameters
        ----------
        score
            Scores, shape (n,).

        Yields
        ------
        tuple
            Places of the group in `score`, and weights, log mean and log cv2.
        """
        position = np.log(score) if self.log else score
        cell = np.searchsorted(self.grid, position, side="right") - 1
        cell = np.clip(cell, 0, len(self.level) - 1)
        share = (position - self.grid[cell]) / (self.grid[cell + 1] - self.grid[cell])
        level = self.level[cell]
        for which in np.unique(level):
            group = np.flatnonzero(level == which)
            if which < len(self.rules):
                yield group, _between(self.rules[which], cell[group], share[group])
                continue
            for part in np.split(group, range(_FEW, len(group), _FEW)):
                m, c = curve_draws(self.fit, score[part])
                yield part, (np.full(m.shape, 1.0 / len(m)), m, c)


def _between(rules: Floats, cell: NDArray[np.intp], share: Floats) -> Rule:
    low = rules[cell]
    low += share[:, None, None] * (rules[cell + 1] - low)
    weight, m, c = np.ascontiguousarray(low.transpose(1, 2, 0))
    return weight, m, c


def make_nodes(fit: Fit, low: float, high: float) -> Nodes:
    """Nodes for scores from `low` to `high`.

    Parameters
    ----------
    fit
        The fit.
    low, high
        Range of the scores.
    """
    log = "log" in (fit.prior.mean.scale, fit.prior.variance.scale)
    score = _grid(fit, low, high)
    at = np.unique(np.log(score) if log else score)
    if len(at) == 1:
        at = np.append(at, np.nextafter(at, np.inf))
    score = np.exp(at) if log else at
    points, spread = [], []
    numbers = [number for _, number in _LEVELS]
    for part in np.split(score, range(_FEW, len(score), _FEW)):
        m, c = curve_draws(fit, part)
        spread.append(np.maximum(_MEAN_SPREAD * m.std(axis=0), c.std(axis=0)))
        points.append([np.array(rule).transpose(2, 0, 1) for rule in gauss_rules(m, c, numbers)])
    wide = np.concatenate(spread)
    level = np.searchsorted([top for top, _ in _LEVELS], np.maximum(wide[:-1], wide[1:]))
    rules = tuple(np.concatenate(level_points) for level_points in zip(*points, strict=True))
    return Nodes(fit, log, at, level.astype(np.int64), rules)


def _grid(fit: Fit, low: float, high: float) -> Floats:
    """Scores from `low` to `high`, close together on the axes of both curves."""
    found = [np.array([low, high])]
    for curve, knot in (("mean", "mean_knot"), ("variance", "variance_knot")):
        axis = fit.axis(curve)
        knots = fit.data["posterior"][knot].to_numpy()
        ends = np.array([axis(np.array([low]))[0], knots[0], knots[-1], axis(np.array([high]))[0]])
        for (start, stop), number in zip(pairwise(ends), (_OUTER, _GRID, _OUTER), strict=True):
            found.append(axis.inverse(np.linspace(start, stop, number)))
        found.append(axis.inverse(knots))
        found.append(np.array(axis.score))  # a rank axis bends at these
    every = np.concatenate(found)
    return every[(every >= low) & (every <= high)]


def representative_nodes(fit: Fit, score: ArrayLike) -> tuple[Floats, Floats, Floats]:
    """Nine weighted values of (log mean, log cv2) that stand for all draws at each score.

    They have the draws' mean and covariance (a product of three-point Gauss-Hermite rules), so that
    averages over them are right to the second order in the curves' uncertainty and, for curves near
    normal, to the fifth.

    Parameters
    ----------
    fit
        The fit.
    score
        Scores, shape (n,).

    Returns
    -------
    tuple of numpy.ndarray
        Weights (9,), log mean (9, n) and log cv2 (9, n).
    """
    mean, mean_at = knot_weights(fit, "mean", score)
    cv2, cv2_at = knot_weights(fit, "variance", score)
    a, c = mean - mean.mean(axis=0), cv2 - cv2.mean(axis=0)
    count = len(a)
    return product_rule(
        mean_at @ mean.mean(axis=0),
        cv2_at @ cv2.mean(axis=0),
        ((mean_at @ (a.T @ a / count)) * mean_at).sum(axis=1),
        ((mean_at @ (a.T @ c / count)) * cv2_at).sum(axis=1),
        ((cv2_at @ (c.T @ c / count)) * cv2_at).sum(axis=1),
    )
