"""Levels of a grouping with coefficients of their own, integrated out of the likelihood.

Given the shared curves and the scales, levels are independent, and each has a few coefficients. So
the model's parameters are the shared ones. The log likelihood of a level's coefficients is close to
a quadratic, its site, in which they are integrated in closed form; importance weights correct the
result (`inference.level_density`). Cost and memory are linear in the number of levels.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy import linalg

from .._lib.arrays import Floats, Ints
from ..data.groups import Grouping
from ..families.row_sums import RowSums
from .laplace import (
    Laplace,
    ScalePosterior,
    best_tau,
    floored,
    half_normal_scale,
    row_curvature,
    scale_posterior,
    scoring_step,
    summary,
)
from .level_kernels import gaussian_marginals
from .terms import Curve, LevelTerms, State

FEWEST_LEVELS = 8
"""Levels from which they are integrated out; fewer are parameters like all others."""

_ROUNDS, _AVERAGED = 60, 3
_NODES, _WEIGHTS = np.sqrt(3.0) * np.array([-1.0, 0.0, 1.0]), np.array([1.0, 4.0, 1.0]) / 6.0
# limits of the Gaussian's sds over which slopes are averaged, in units of each parameter
_SDS = 1e-3, 1.0
_WIDEST = 3.0  # times a scale: up to there a level's posterior is Gaussian without a floor
_SMALL = 0.01  # share of a scale's prior: smaller ones are as good as 0
_WIDER = 1.1  # factor on a scale, for a difference
_POSITIONS = np.linspace(-8.0, 8.0, 41)  # of a scale in its prior


@dataclass(frozen=True)
class Sites:
    """Quadratic log likelihood of every level in its coefficients b of both curves.

    Given the shared coefficients of both curves, level g's is u'b - b'A b / 2 with
    A = information[g] and u = pull[g] - coupling[g] @ (shared - centre).
    """

    information: Floats  # (G, K, K), positive definite with the prior's added
    coupling: Floats  # (G, K, P)
    pull: Floats  # (G, K)
    centre: Floats  # (P,)


@dataclass(frozen=True)
class CurveScales:
    """What is known of the scales of one curve's deviations."""

    posteriors: tuple[ScalePosterior, ...]  # of the kinds
    # (lines, kinds): share of the variance of the shared line's coefficients that is proportional
    # to the squared scale of a kind; sums are at most 1
    shares: Floats


@dataclass(frozen=True)
class Levels:
    """Rows of every level, and both curves' terms and sites."""

    order: Ints  # rows in the order of their levels
    parts: tuple[slice, ...]  # of each level in that order
    terms: tuple[LevelTerms, ...]
    sites: Sites
    scales: tuple[CurveScales, ...]

    @property
    def mode(self) -> tuple[Floats, Floats]:
        """Scales of the coefficients (K,), and the coefficients (G, K) at the shared centre."""
        tau = np.concatenate(
            [
                np.array([known.tau for known in curve.posteriors])[term.kind]
                for term, curve in zip(self.terms, self.scales, strict=True)
            ]
        )
        precision = self.sites.information + np.diag(tau**-2.0)
        return tau, np.linalg.solve(precision, self.sites.pull[:, :, None])[:, :, 0]


@dataclass(frozen=True)
class Point:
    """Coefficients of one curve: the shared ones, and the levels' with their scales."""

    shared: State
    own: Floats  # (G, K)
    taus: Floats  # (kinds,)


class _Information(NamedTuple):
    """Information of rows with given weights."""

    shared: Floats  # (P, P)
    coupling: Floats  # (G, K, P)
    own: Floats  # (G, K, K)

    def marginal(self, tau: Floats) -> tuple[Floats, Floats]:
        """That of the shared coefficients with the levels' integrated out, and their covariance.

        `tau` (K,) are the sds of the levels' prior.
        """
        inner = np.linalg.inv(np.eye(len(tau)) + tau[:, None] * self.own * tau)
        covariance = tau[:, None] * inner * tau
        axes = (0, 1), (0, 1)
        return self.shared - np.tensordot(
            self.coupling, covariance @ self.coupling, axes
        ), covariance


class _Quadratic(NamedTuple):
    """The log likelihood near a point, as a function of one curve's coefficients."""

    slope: Floats  # (P,)
    own_slope: Floats  # (G, K)
    seen: _Information
    bound: _Information  # the levels' are at least a share of this, and so is the marginal


@dataclass(frozen=True)
class _Marginal:
    """A quadratic with the levels' coefficients integrated out at their scales."""

    slope: Floats
    information: Floats
    covariance: Floats  # (G, K, K): of the levels' coefficients
    right: Floats  # (G, K): their slopes in the log density


def integrated_grouping(groupings: Sequence[Grouping]) -> Grouping | None:
    """The grouping whose levels are integrated out: that with the most, if there are many."""
    largest = max(groupings, key=lambda grouping: len(grouping.levels), default=None)
    return largest if largest and len(largest.levels) >= FEWEST_LEVELS else None


@dataclass(frozen=True)
class LevelSearch:
    """The rows of all levels, for the mode of all coefficients and the sites there."""

    curves: tuple[Curve, Curve]
    terms: tuple[LevelTerms, ...]
    data: RowSums
    level: Ints  # of every row
    order: Ints
    parts: tuple[slice, ...]

    @staticmethod
    def of(curves: tuple[Curve, Curve], data: RowSums, group: Ints) -> "LevelSearch":
        """From the group of every row."""
        terms = tuple(curve.levels for curve in curves if curve.levels)
        grouping = terms[0].grouping
        level = grouping.of[group]
        order = np.argsort(level, kind="stable")
        ends = np.searchsorted(level[order], np.arange(len(grouping.levels) + 1))
        parts = tuple(map(slice, ends[:-1], ends[1:]))
        return LevelSearch(curves, terms, data, level, order, parts)

    def start(self, shared: Sequence[State]) -> list[Point]:
        """Shared curves without deviations."""
        return [
            Point(state, np.zeros((len(self.parts), len(term.kind))), 0.5 * np.array(term.scales))
            for state, term in zip(shared, self.terms, strict=True)
        ]

    def mode(self, points: Sequence[Point], enough: float = 1e-3) -> list[Point]:
        """The mode of all coefficients; scales are re-estimated after each step.

        It ends where the squared length of a step, in units of posterior sds, is below `enough`,
        and changes of scales are below ten times that.
        """
        least = [_SMALL * np.array(term.scales) for term in self.terms]
        for _ in range(_ROUNDS):
            old = points
            quadratics = self._here(points)
            points = self._each(self._rescaled, points, quadratics)
            steps = self._each(self._step, points, quadratics)
            points, moved = self._line_search(points, steps, quadratics)
            changes = [_change(*pair) for pair in zip(old, points, least, strict=True)]
            if moved < enough and max(changes) < 10.0 * enough:
                break
        return list(points)

    def sites(self, points: Sequence[Point]) -> tuple[list[Laplace], Levels]:
        """The Gaussian approximation of the shared coefficients, and the levels' sites.

        From a mode it moves to where slopes and information, averaged over the Gaussian itself,
        agree with it.
        """
        quadratics = self._here(points)
        for _ in range(_AVERAGED):
            sds = self._each(self._sds, points, quadratics)
            quadratics, _ = self._averaged(points, sds)
            points = self._each(self._rescaled, points, quadratics)
            steps = self._each(self._step, points, quadratics)
            points = [_moved(point, step, 1.0) for point, step in zip(points, steps, strict=True)]
        quadratics, mixed = self._averaged(points, sds)
        laplaces, scales = [], []
        for k, (point, quadratic) in enumerate(zip(points, quadratics, strict=True)):
            marginal = self._marginal(k, point, quadratic)
            parts = point.shared, marginal.slope, marginal.information
            laplaces.append(summary(self.curves[k].design, *parts))
            known = self._scales(k, point, quadratic), self._shares(k, point, quadratic)
            scales.append(CurveScales(*known))
        sites = self._sites(points, quadratics, mixed)
        return laplaces, Levels(self.order, self.parts, self.terms, sites, tuple(scales))

    @staticmethod
    def _each[Result](
        step: Callable[[int, Point, _Quadratic], Result],
        points: Sequence[Point],
        quadratics: Sequence[_Quadratic],
    ) -> list[Result]:
        """Results for both curves."""
        return [step(k, *pair) for k, pair in enumerate(zip(points, quadratics, strict=True))]

    def _sites(
        self, points: Sequence[Point], quadratics: Sequence[_Quadratic], mixed: Floats
    ) -> Sites:
        """Of both curves, with the information `mixed` between them at the rows.

        Its expectation is 0, but a level's own is noise that proposals must follow.
        """
        first, second = (quadratic.seen for quadratic in quadratics)
        across = self._information(0, mixed, 1)
        back = self._information(1, mixed, 0)
        between, none = across.own, np.zeros_like(across.own)
        information = _blocks(first.own, between, between.mT, second.own)
        bound = _blocks(first.own, none, none.mT, second.own)
        # without the prior, noise between both curves may exceed what the data say of the second
        pairs = zip(points, self.terms, strict=True)
        taus = np.concatenate([point.taus[term.kind] for point, term in pairs])
        prior = np.diag((_WIDEST * taus) ** -2.0)
        information = floored(bound + prior, information + prior) - prior
        coupling = _blocks(first.coupling, across.coupling, back.coupling, second.coupling)
        coefficients = np.hstack([point.own for point in points])
        slope = np.hstack([quadratic.own_slope for quadratic in quadratics])
        pull = slope + np.einsum("gkl,gl->gk", information, coefficients)
        centre = np.concatenate([point.shared.coefficients for point in points])
        return Sites(information, coupling, pull, centre)

    # --- quadratics at a point

    def _predictors(self, points: Sequence[Point]) -> list[Floats]:
        return [
            point.shared.at(curve.design) + (term.design * point.own[self.level]).sum(axis=1)
            for curve, term, point in zip(self.curves, self.terms, points, strict=True)
        ]

    def _information(self, k: int, weight: Floats, second: int | None = None) -> _Information:
        """Of curve k's coefficients, or between its levels' and those of the other curve."""
        second = k if second is None else second
        shared, own = self.curves[second].design.whole, self.terms[second].design
        weighted = weight[:, None] * self.terms[k].design
        coupling = np.empty((len(self.parts), weighted.shape[1], shared.shape[1]))
        information = np.empty((*coupling.shape[:2], own.shape[1]))
        for g, part in enumerate(self.parts):
            rows = self.order[part]
            np.matmul(weighted[rows].T, shared[rows], out=coupling[g])
            np.matmul(weighted[rows].T, own[rows], out=information[g])
        total = self.curves[k].design.whole.T @ (weight[:, None] * shared)
        return _Information(total, coupling, information)

    def _quadratic(self, k: int, slope: Floats, weight: Floats, bound: Floats) -> _Quadratic:
        moved = self.terms[k].design * slope[:, None]
        sums = [np.bincount(self.level, column, len(self.parts)) for column in moved.T]
        seen, least = (self._information(k, each) for each in (weight, bound))
        seen = seen._replace(own=floored(least.own, seen.own))
        return _Quadratic(self.curves[k].design.whole.T @ slope, np.array(sums).T, seen, least)

    def _here(self, points: Sequence[Point]) -> list[_Quadratic]:
        """At a point: the first curve's expected information, and the second's observed one."""
        m, c = self._predictors(points)
        rows = row_curvature(self.data, m, c)
        weights = (rows.first, rows.first), (rows.observed, rows.bound)
        return [self._quadratic(k, rows.slopes[k], *weights[k]) for k in range(2)]

    def _averaged(
        self, points: Sequence[Point], sds: Sequence[Floats]
    ) -> tuple[list[_Quadratic], Floats]:
        """Averages over a Gaussian around a point, as the best Gaussian approximation has them.

        The second value is the information between both curves at the rows.

        See Opper and Archambeau (2009). All comes from values by Stein's identity, E(f'(x)) =
        E(x f(x)) and E(f''(x)) = E((x^2 - 1) f(x)) for standard normal x.
        """
        m, c = self._predictors(points)
        units = self.data.unit(c), np.ones_like(c)
        sds = [np.clip(sd / unit, *_SDS) * unit for sd, unit in zip(sds, units, strict=True)]
        x, y = (part.ravel()[:, None] for part in np.meshgrid(_NODES, _NODES))
        value = self.data.values(m + x * sds[0], c + y * sds[1])
        value = np.outer(_WEIGHTS, _WEIGHTS).reshape(-1, 1) * (value - value[len(x) // 2])
        slopes = [(z * value).sum(axis=0) / sd for z, sd in zip((x, y), sds, strict=True)]
        weights = [
            ((1.0 - z * z) * value).sum(axis=0) / sd**2 for z, sd in zip((x, y), sds, strict=True)
        ]
        mixed = -(x * y * value).sum(axis=0) / (sds[0] * sds[1])
        bounds = self.data.information(m, c)
        return [self._quadratic(k, slopes[k], weights[k], bounds[k]) for k in range(2)], mixed

    def _sds(self, k: int, point: Point, quadratic: _Quadratic) -> Floats:
        """Posterior sds of the curve at the rows, given the shared one."""
        own = self.terms[k].design
        covariance = self._marginal(k, point, quadratic).covariance
        variance = np.empty(len(self.level))
        for g, part in enumerate(self.parts):
            rows = self.order[part]
            variance[rows] = ((own[rows] @ covariance[g]) * own[rows]).sum(axis=1)
        return np.sqrt(variance)

    # --- steps and scales

    def _marginal(self, k: int, point: Point, quadratic: _Quadratic) -> _Marginal:
        tau = point.taus[self.terms[k].kind]
        right = quadratic.own_slope - point.own / tau**2
        information, covariance = quadratic.seen.marginal(tau)
        least, _ = quadratic.bound.marginal(tau)
        mean = np.einsum("gkl,gl->gk", covariance, right)
        slope = quadratic.slope - np.tensordot(quadratic.seen.coupling, mean, ((0, 1), (0, 1)))
        return _Marginal(slope, floored(least, information), covariance, right)

    def _scales(self, k: int, point: Point, quadratic: _Quadratic) -> tuple[ScalePosterior, ...]:
        """Posteriors of the scales, one by one, given the shared curve and the other scales."""
        term, pull, scales = self.terms[k], _pull(point, quadratic), []
        for kind, scale in enumerate(term.scales):
            tau = np.repeat(point.taus[term.kind][:, None], len(_POSITIONS), axis=1)
            tau[term.kind == kind] = half_normal_scale(_POSITIONS, scale)
            value = np.empty(len(_POSITIONS))
            gaussian_marginals(pull, tau, quadratic.seen.own, value)
            scales.append(scale_posterior(scale, _POSITIONS, value - 0.5 * _POSITIONS**2))
        return tuple(scales)

    def _shares(self, k: int, point: Point, quadratic: _Quadratic) -> Floats:
        """`CurveScales.shares`, by differences."""
        lines = self.curves[k].design.line.shape[1]
        prior = np.diag(point.shared.prior(self.curves[k].design)[1])

        def variances(taus: Floats) -> Floats:
            marginal = self._marginal(k, replace(point, taus=taus), quadratic)
            return np.diagonal(linalg.inv(marginal.information + prior))[-lines:]

        here = variances(point.taus)
        changes = [
            variances(point.taus * np.where(np.arange(len(point.taus)) == kind, _WIDER, 1.0)) / here
            for kind in range(len(point.taus))
        ]
        shares = np.clip((np.array(changes).T - 1.0) / (_WIDER**2 - 1.0), 0.0, 1.0)
        return shares / np.maximum(shares.sum(axis=1, keepdims=True), 1.0)

    def _rescaled(self, k: int, point: Point, quadratic: _Quadratic) -> Point:
        marginal, design = self._marginal(k, point, quadratic), self.curves[k].design
        found = summary(design, point.shared, marginal.slope, marginal.information)
        taus = tuple(map(best_tau, design.blocks, found.blocks))
        own = np.array([scale.tau for scale in self._scales(k, point, quadratic)])
        # half a step: the scales of a level's kinds compete, and full steps would go back and forth
        return Point(replace(point.shared, taus=taus), point.own, np.sqrt(point.taus * own))

    def _step(self, k: int, point: Point, quadratic: _Quadratic) -> tuple[Floats, Floats]:
        """To the mode of the quadratic."""
        marginal = self._marginal(k, point, quadratic)
        parts = point.shared, marginal.slope, marginal.information
        step = scoring_step(self.curves[k].design, *parts)
        right = marginal.right - quadratic.seen.coupling @ step
        return step, np.einsum("gkl,gl->gk", marginal.covariance, right)

    def _line_search(
        self,
        points: Sequence[Point],
        steps: Sequence[tuple[Floats, Floats]],
        quadratics: Sequence[_Quadratic],
    ) -> tuple[list[Point], float]:
        """The longest step, by halving, that does not lower the log density.

        The second value is the squared length of the step in the data's information.
        """
        rows = [
            curve.design.whole @ shared + (term.design * own[self.level]).sum(axis=1)
            for curve, term, (shared, own) in zip(self.curves, self.terms, steps, strict=True)
        ]
        farthest = zip(rows, self.data.farthest, strict=True)
        excess = max(float(np.abs(move).max()) / most for move, most in farthest)
        start = self._log_density(points)
        for halving in range(30):
            factor = 0.5**halving / max(excess, 1.0)
            tried = [_moved(point, step, factor) for point, step in zip(points, steps, strict=True)]
            if self._log_density(tried) >= start - 1e-9 * abs(start):
                moved = sum(
                    float(shared @ q.seen.shared @ shared)
                    + float(np.einsum("gk,gkl,gl->", own, q.seen.own, own))
                    for q, (shared, own) in zip(quadratics, steps, strict=True)
                )
                return tried, factor**2 * moved
        return list(points), 0.0

    def _log_density(self, points: Sequence[Point]) -> float:
        m, c = self._predictors(points)
        most = self.data.most
        if not (np.abs(m).max() <= most[0] and np.abs(c).max() <= most[1]):
            return -np.inf
        density = float(self.data.values(m[None], c[None]).sum())
        for point, curve, term in zip(points, self.curves, self.terms, strict=True):
            density += point.shared.log_prior(curve.design)
            density -= 0.5 * float(np.square(point.own / point.taus[term.kind]).sum())
        return density if np.isfinite(density) else -np.inf


def _pull(point: Point, quadratic: _Quadratic) -> Floats:
    """Slopes of the quadratic where the levels' coefficients are 0."""
    return quadratic.own_slope + np.einsum("gkl,gl->gk", quadratic.seen.own, point.own)


def _change(old: Point, new: Point, least: Floats) -> float:
    """Largest relative change of a scale; those below `least` count as that."""
    shared = np.log(np.array(new.shared.taus) / old.shared.taus)
    own = np.log(np.maximum(new.taus, least) / np.maximum(old.taus, least))
    return float(np.abs(np.concatenate([shared, own])).max())


def _blocks(first: Floats, across: Floats, back: Floats, second: Floats) -> Floats:
    """Stacks of matrices of four blocks."""
    return np.concatenate(
        [np.concatenate([first, across], axis=2), np.concatenate([back, second], axis=2)], axis=1
    )


def _moved(point: Point, step: tuple[Floats, Floats], factor: float) -> Point:
    shared, own = step
    return Point(point.shared.moved(shared, factor), point.own + factor * own, point.taus)
