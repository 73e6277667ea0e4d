"""Quadrature points that replace draws of the curves.

Scores, groups and sizes of items are cut into cells. At points of a cell the draws give Gauss
rules, made when an item first needs them. Between these points the rules' departures from the
average curves are parabolas in the score and in log size; the average curves themselves are exact
at every item. So an item's nodes do not depend on the items scored with it.
"""

import threading
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import numba
import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from .._lib.arrays import Floats, Ints
from .._lib.threads import ordered_map
from ..families.family import Family, family_of
from ..families.rules import gauss_rules, parabolas, product_rule
from ..families.scales import Scale, common_scale
from ..inference.results import Fit
from ..model.splines import intervals, knots_in
from .curves import (
    atom_of,
    average_curves,
    bounded,
    curve_draws,
    curves_at,
    is_plain,
    knot_weights,
    own_terms,
    size_knots,
)

# spread of the curves up to which a number of nodes per curve suffices, and the largest squared
# spread of the nodes' posteriors relative to their width. Where the data disagree with the curves
# the nodes are far apart, and more are needed
_LEVELS = ((0.13, 2), (0.2, 3), (0.4, 7), (0.6, 10))
LIMITS = (0.06, 0.2, 1.0, 1.5)
_LIMITS_BY_SIZE = (0.06, 0.1)  # the same where curves depend on the size
# the same for nodes from an item's own draws; beyond, all draws are used
_NUMBER, WIDEST, MOST_APART = 14, 0.7, 1.5
_MEAN_SPREAD = 2.5  # an sd of log mean counts as this many of log cv2
_PART = 500  # items whose moments are computed at once from all draws
_CELLS = 64  # cells whose rules are made at once
_PER_KNOT, _PER_SIZE = 12, 4  # cells between two knots of the score, and of the size
_BEYOND = 5  # times as many beyond the knots, up to half their range away
_POINTS = 3  # in a cell, along each of the two: its ends and its middle


class Cells:
    """Cells of score, group and size, with three points along each, over which curves are smooth.

    They lie between edges of the score and, if the curves depend on it, of the log size. Atoms are
    cells too.
    """

    def __init__(self, fit: Fit, score: Floats, size: Floats) -> None:
        self._fit, self._size_name = fit, family_of(fit.prior).outcome.size
        self._axis = common_scale(fit.prior.mean.scale, fit.prior.variance.scale)
        self._position, self._atoms = self._axis.position(score), len(fit.atoms)
        self._points = _points(fit, self._axis, score, self._position)
        self._size = size
        self._sizes = max(2 * len(self._size), 1)  # ends and middles of cells of sizes, or more
        self._groups: dict[str, int] = {}
        self._labels: list[str] = []
        self._lock = threading.Lock()
        self.points = _POINTS**2 if len(self._size) else _POINTS  # of a cell

    def find(self, columns: Mapping[str, NDArray[Any]]) -> Ints:
        """Cells of items; -1 far beyond the knots."""
        score, group, size = self.terms(columns)
        if not self._axis.holds(score).all():
            for curve in ("mean", "variance"):
                self._fit.axis(curve)(score)  # refuses scores without a position
        place = intervals(self._axis.position(score), self._position)
        atom = atom_of(self._fit, score)
        inside = (atom > 0) | ((place >= 0) & (place < len(self._position) - 1))
        cell = np.where(atom > 0, atom - 1, self._atoms + place)
        if group is not None:
            codes, labels = pd.factorize(group)
            with self._lock:
                for label in map(str, labels):
                    if label not in self._groups:
                        self._groups[label] = len(self._labels)
                        self._labels.append(label)
            own = np.array([self._groups[str(label)] for label in labels])
            cell = cell + len(self._points) * own[codes]
        if size is not None and len(self._size):
            at = intervals(self._clipped(size), self._size)
            cell = cell * len(self._size) + np.minimum(at, len(self._size) - 2)
        return np.where(inside, cell, -1)

    def terms(
        self, columns: Mapping[str, NDArray[Any]]
    ) -> tuple[Floats, NDArray[Any] | None, Floats | None]:
        """Scores, and groups and sizes if the fit has such terms."""
        given = own_terms(self._fit, columns.get("group"), columns.get(self._size_name))
        group, size = given.values()
        return columns["score"], group, size

    def _clipped(self, size: Floats) -> Floats:
        with np.errstate(divide="ignore"):  # size 0 counts as the smallest
            return np.clip(np.log(size), self._size[0], self._size[-1])

    def _split(self, cell: Ints) -> tuple[Ints, Ints, Ints]:
        """Numbers of a cell's score, group and size."""
        rest, size = np.divmod(cell, max(len(self._size), 1))
        group, score = np.divmod(rest, len(self._points))
        return score, group, size

    def points_of(self, cell: Ints) -> Ints:
        """Numbers of the cells' points, (n, points), whose places in the score vary fastest."""
        place, group, at = self._split(cell)
        own = np.arange(_POINTS)
        step = self._points.shape[1]
        points = (step * (place + len(self._points) * group))[:, None] + own
        if len(self._size):  # cells of sizes share their ends
            points = points[:, None] * self._sizes + (2 * at[:, None] + own)[:, :, None]
        return points.reshape(len(cell), self.points)

    def columns(self, point: Ints) -> dict[str, NDArray[Any]]:
        """Score, group and size at points: the first, middle or last score of a cell."""
        rest, at = np.divmod(point, self._sizes)
        place, which = np.divmod(rest, self._points.shape[1])
        group, cell = np.divmod(place, len(self._points))
        found = {"score": self._points[cell, which]}
        found[self._size_name] = np.ones(len(point))
        if self._labels:
            found["group"] = np.array(self._labels, dtype=object)[group]
        if len(self._size):
            size = np.interp(0.5 * at, np.arange(len(self._size)), self._size)
            found[self._size_name] = np.exp(size)
        return found

    def shares(self, columns: Mapping[str, NDArray[Any]], cell: Ints) -> tuple[Floats, Floats]:
        """Places of items in their cells along score and size, from 0 to 1."""
        score, _, size = self.terms(columns)
        place, _, at = self._split(cell)
        beside = np.maximum(place - self._atoms, 0)
        u = _share(self._axis.position(score), self._position, beside)
        u = np.where(place < self._atoms, 0.0, u)  # curves of an atom are constants
        if size is None or not len(self._size):
            return u, np.zeros(len(u))
        return u, _share(self._clipped(size), self._size, at)


class NodeTable:
    """Gauss rules of a fit's draws at the points of cells, by level of nodes.

    Threads may use it at once: rules of a cell never change, and are there before its row is known.
    """

    def __init__(self, fit: Fit) -> None:
        self._lock = threading.Lock()  # for those who add rules
        self._fit, self._family = fit, family_of(fit.prior)
        self.cells = Cells(fit, _score_edges(fit, _PER_KNOT), _divided(size_knots(fit), _PER_SIZE))
        # rules of many nodes follow the outermost draws: too rough for cells of score and size
        self.limits = LIMITS if self.cells.points == _POINTS else _LIMITS_BY_SIZE
        self._home: dict[int, int] = {}  # level of a cell
        self._rows: list[dict[int, int]] = [{} for _ in _LEVELS]  # row of a cell in the rules
        self._rules = [np.empty((0, self.cells.points, 3, number**2)) for _, number in _LEVELS]

    def rows(self, level: int, cell: Ints) -> Ints:
        """Rows of cells among the rules of a level; -1 for cells of a higher one, and for -1."""
        known = self._rows[level]
        return np.array([known.get(c, -1) for c in cell.tolist()], dtype=np.int64)

    def prepare(self, level: int, cells: Iterable[Ints]) -> None:
        """Find the levels of cells, and keep the rules of those that need no higher one."""
        with self._lock:
            self._prepare(level, cells)

    def _prepare(self, level: int, cells: Iterable[Ints]) -> None:
        known, distinct = self._rows[level], set[int]()
        for own in cells:
            distinct.update(own.tolist())
        distinct.discard(-1)
        wanted = (c for c in sorted(distinct) if self._home.get(c, 0) <= level and c not in known)
        cell = np.fromiter(wanted, dtype=np.int64)
        if not len(cell):
            return
        parts = np.split(cell, range(_CELLS, len(cell), _CELLS))
        made = list(ordered_map(partial(self._make, level), parts))
        home = np.concatenate([homes for homes, _ in made])
        self._home |= dict(zip(cell.tolist(), home.tolist(), strict=True))
        self._rules[level] = np.concatenate([self._rules[level], *(rules for _, rules in made)])
        for c in cell[home <= level].tolist():
            known[c] = len(known)

    def _make(self, level: int, cell: Ints) -> tuple[Ints, Floats]:
        """Levels of cells, and the rules of those that need no higher level."""
        points, of = np.unique(self.cells.points_of(cell), return_inverse=True)
        of = of.reshape(len(cell), self.cells.points)
        at = self.cells.columns(points)
        first, second = curves_at(self._fit, *self.cells.terms(at))
        spread = curve_spread(self._family, first, second)
        tops = [top for top, _ in _LEVELS]
        home = np.searchsorted(tops, spread[of].max(axis=1, initial=0.0))  # NaN is above all levels
        rule = gauss_rules(first.T, second.T, _LEVELS[level][1])
        rule[:, 1] -= first.mean(axis=0)[:, None]
        rule[:, 2] -= second.mean(axis=0)[:, None]
        return home, rule[of[home <= level]]

    def nodes(self, level: int, columns: Mapping[str, NDArray[Any]]) -> tuple[Floats, ...]:
        """Weights and both curves (n, nodes) of items with columns `cell` and `row`."""
        shares = self.cells.shares(columns, columns["cell"])
        first, second = average_curves(self._fit, *self.cells.terms(columns))
        rules = self._rules[level]
        out = np.empty((3, len(first), rules.shape[3]))
        _interpolate(columns["row"], *shares, rules, first, second, out)
        return out[0], *bounded(self._fit, out[1], out[2])


def many_nodes(first: Floats, second: Floats) -> tuple[Floats, ...]:
    """Weights and both curves (n, nodes) at nodes of items' own draws (draws, n)."""
    weight, *curves = gauss_rules(first.T, second.T, _NUMBER).transpose(1, 0, 2)
    return weight, *curves


def _points(fit: Fit, axis: Scale, score: Floats, position: Floats) -> Floats:
    """First and middle score of every cell, and the last if curves jump there: atoms come first.

    Otherwise the last is the first of the next cell, or of a row beyond the cells. Points of cells
    that fall on an atom are moved by a rounding error, to the smooth curves beside it.
    """
    middle = axis.score(0.5 * (position[:-1] + position[1:]))
    own = [score[:-1], middle]
    if fit.prior.bin_effects:
        own.append(np.nextafter(score[1:], -np.inf))
    rows = np.column_stack(own), np.full((1, len(own)), score[-1])
    atoms = np.repeat(np.array(fit.atoms), len(own)).reshape(-1, len(own))
    inner = np.concatenate(rows)
    inner = np.where(np.isin(inner, atoms), np.nextafter(inner, np.inf), inner)
    return np.concatenate([atoms, inner])


def _share(position: Floats, edges: Floats, cell: Ints) -> Floats:
    return np.asarray((position - edges[cell]) / (edges[cell + 1] - edges[cell]))


@numba.njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract"})
def _interpolate(row, u, v, rules, first, second, out):  # type: ignore[no-untyped-def]
    """Fill `out` (3, n, nodes) between corners, whose places in the score vary fastest."""
    corners, nodes = rules.shape[1], rules.shape[3]
    for i in range(len(row)):
        along, across = parabolas(u[i]), parabolas(v[i])
        for k in range(corners):
            share = along[k % _POINTS]
            if corners > _POINTS:
                share *= across[k // _POINTS]
            rule = rules[row[i], k]
            for s in range(nodes):
                out[0, i, s] = share * rule[0, s] + (out[0, i, s] if k else 0.0)
                out[1, i, s] = share * rule[1, s] + (out[1, i, s] if k else first[i])
                out[2, i, s] = share * rule[2, s] + (out[2, i, s] if k else second[i])


def _divided(knots: Floats, parts: int) -> Floats:
    """Knots with the intervals between them cut into equal parts."""
    if len(knots) < 2:
        return np.empty(0)
    steps = np.arange(len(knots) - 1)[:, None] + np.arange(parts) / parts
    return np.append(np.interp(steps.ravel(), np.arange(len(knots)), knots), knots[-1])


def even_cells(fit: Fit, scores: int, sizes: int, parts: int) -> Cells:
    """At least so many cells of the score and of the size, and `parts` between knots.

    Curves may have kinks at knots.
    """
    score = _score_edges(fit, 1)
    axis = common_scale(fit.prior.mean.scale, fit.prior.variance.scale)
    between = axis.score(_evenly(axis.position(score), scores, parts))
    size = size_knots(fit)
    size = np.union1d(size, _evenly(size, sizes, parts)) if len(size) else size
    return Cells(fit, np.union1d(score, between), size)


def _evenly(edges: Floats, number: int, parts: int) -> Floats:
    """Places that cut each interval between edges into `parts`, and all into at least `number`."""
    width = np.diff(edges)
    each = np.maximum(np.ceil(width / width.sum() * number), parts).astype(np.int64)
    cut = [e + w * np.arange(1, k) / k for e, w, k in zip(edges[:-1], width, each, strict=True)]
    return np.concatenate(cut)


def _score_edges(fit: Fit, parts: int) -> Floats:
    """Scores between which rules are linear: dense on both curves' axes, with all their kinks."""
    scale = common_scale(fit.prior.mean.scale, fit.prior.variance.scale)
    found, outer = [], []
    for curve in ("mean", "variance"):
        axis, knots = fit.axis(curve), knots_in(fit.data, f"{curve}_knot")
        found += [
            axis.inverse(knots),
            axis.inverse(_divided(knots, parts)),
            np.array(axis.score),
        ]
        outer += [axis.inverse(knots[[0, -1]])]
    constant = fit.data.children.get("constant_data")
    if fit.prior.bin_effects and constant is not None:
        found.append(constant["edge"].to_numpy())
    ends = np.concatenate(outer)
    ends = scale.position(ends[scale.holds(ends)])
    low, high = float(ends.min()), float(ends.max())
    reach = max(0.5 * (high - low), 1e-3 * max(abs(low), abs(high)), 1e-9)
    beyond = np.linspace(0.0, reach, _BEYOND * parts + 1)
    found += [scale.score(low - beyond), scale.score(high + beyond)]
    every = np.unique(np.concatenate(found))
    return every[scale.holds(every)]


# --- spread and moments of draws -----------------------------------------------------------------


def curve_spread(family: Family, first: Floats, second: Floats) -> Floats:
    """Sd of draws (draws, n) of the second curve, or the weighted sd of the first if larger."""
    sds = first.std(axis=0), second.std(axis=0)
    return np.asarray(np.maximum(_MEAN_SPREAD * sds[0] / family.unit(second.mean(axis=0)), sds[1]))


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
