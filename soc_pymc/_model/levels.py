"""Levels of a grouping with coefficients of their own, integrated out of the likelihood.

The log likelihood of a level's coefficients, given the shared ones, is close to a quadratic, its
site, in which they are integrated in closed form; importance weights correct the result
(`inference.level_density`). Cost and memory are linear in the number of levels.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg, sparse

from .._lib.arrays import Floats, Ints
from ..data.items import Grouping
from ..families.row_sums import RowSums
from .laplace import Laplace, best_tau, floored, rescaled, scoring_step, summary
from .terms import Curve, LevelTerms, State, by_level

FEWEST_LEVELS = 8
"""Levels from which they are integrated out; fewer are parameters like all others."""

_ROUNDS = 60
_NODES, _WEIGHTS = np.sqrt(3.0) * np.array([-1.0, 0.0, 1.0]), np.array([1.0, 4.0, 1.0]) / 6.0
# limits of the sds over which slopes are averaged, in units of each parameter, and the first ones
_SDS, _FIRST_SD = (1e-3, 1.0), 0.1
_WIDEST = 3.0  # times a scale: up to there noise between both curves is left in the sites
_SMALL = 0.01  # share of a scale's prior: smaller ones are as good as 0
_SLOWER, _FASTER = 0.5, 1.5  # factors on the length of steps


@dataclass(frozen=True)
class LevelRows:
    """Both curves at the rows as linear functions of shared coefficients and those of levels."""

    terms: tuple[LevelTerms, LevelTerms]
    level: Ints  # (rows,): code of each row's level
    shared: Floats  # (2 rows, P), those of the first curve before those of the second
    by_level: Any  # (2 rows, G K), sparse

    @staticmethod
    def of(curves: Sequence[Curve], group: Ints) -> "LevelRows":
        """Rows from their groups."""
        mean, variance = (curve.levels for curve in curves if curve.levels)
        level = mean.grouping.code[group]
        shared = linalg.block_diag(*(curve.design.whole for curve in curves))
        functions = linalg.block_diag(mean.design, variance.design)
        wide = by_level(functions, np.tile(level, 2), len(mean.grouping.levels))
        wide.eliminate_zeros()  # a row of one curve has no coefficients of the other
        return LevelRows((mean, variance), level, shared, wide)

    @property
    def number(self) -> int:
        """Number of levels."""
        return len(self.terms[0].grouping.levels)

    @property
    def kind(self) -> Ints:
        """Number of the scale of each of a level's coefficients, (K,)."""
        mean, variance = self.terms
        return np.concatenate([mean.kind, variance.kind + len(mean.names)])

    @property
    def scales(self) -> Floats:
        """Scales of the half-normal priors of all scales."""
        return np.concatenate([term.scales for term in self.terms])

    def curves(self, shared: Floats, deviations: Floats) -> Floats:
        """Both curves (2, rows) at coefficients (P,) and (G, K)."""
        values = self.shared @ shared + self.by_level @ deviations.ravel()
        return np.asarray(values).reshape(2, -1)


@dataclass(frozen=True)
class LevelScale:
    """Scale of the deviations of one kind, with all their coefficients integrated out."""

    prior: float  # scale of its half-normal prior
    tau: float  # at the posterior mean of its position
    precision: Floats  # of the independent coefficients N(0, tau^2) of all levels
    pull: Floats  # precision times the data's centre


@dataclass(frozen=True)
class Levels:
    """Rows of all levels with their sites: quadratic log likelihoods of a level's coefficients b.

    Level g's is u'b - b'A b / 2, A = root[g] @ root[g]' and u = pull[g] - coupling[g] @ (shared -
    centre).
    """

    rows: LevelRows
    root: Floats  # (G, K, K)
    coupling: Floats  # (G, K, P)
    pull: Floats  # (G, K)
    centre: Floats  # (P,)
    scales: tuple[LevelScale, ...]

    @property
    def grouping(self) -> Grouping:
        """The grouping whose levels they are."""
        return self.rows.terms[0].grouping

    @property
    def tau(self) -> Floats:
        """Scales of a level's coefficients, (K,)."""
        return np.array([scale.tau for scale in self.scales])[self.rows.kind]

    def scale_names(self, variables: Sequence[str]) -> list[str]:
        """Names of the scales' variables, from those of both curves."""
        pairs = zip(variables, self.rows.terms, strict=True)
        return [f"{variable}_{name}_sd" for variable, term in pairs for name in term.names]

    @cached_property
    def information(self) -> Floats:
        """Information of the sites (G, K, K), positive semidefinite."""
        return np.asarray(self.root @ self.root.mT)

    @property
    def mode(self) -> Floats:
        """Coefficients (G, K) at the shared centre."""
        precision = self.information + np.diag(self.tau**-2.0)
        return np.linalg.solve(precision, self.pull[:, :, None])[:, :, 0]


class _Information(NamedTuple):
    """Information of rows."""

    shared: Floats  # (P, P)
    coupling: Floats  # (G, K, P)
    levels: Floats  # (G, K, K)

    def covariance(self, tau: Floats) -> Floats:
        """Covariance of levels' coefficients with prior sds tau (K,), given the shared ones."""
        inner = np.linalg.inv(np.eye(len(tau)) + tau[:, None] * self.levels * tau)
        return tau[:, None] * inner * tau

    def marginal(self, covariance: Floats) -> Floats:
        """Information of the shared coefficients, with the levels' integrated out."""
        half = (covariance @ self.coupling).reshape(-1, len(self.shared))
        return self.shared - self.coupling.reshape(half.shape).T @ half


class _Quadratic(NamedTuple):
    """Log likelihood near a point, without information between the two curves."""

    slope: Floats  # (2 rows,): in the curves
    weight: Floats  # (2 rows,): information of the curves
    mixed: Floats  # (rows,): and between them
    shared_slope: Floats  # (P,)
    level_slope: Floats  # (G, K)
    observed: _Information
    bound: _Information  # the levels' are at least a share of this, and so is the marginal


def integrated_grouping(groupings: Sequence[Grouping]) -> Grouping | None:
    """The grouping whose levels are integrated out: the one with most levels, if many."""
    largest = max(groupings, key=lambda grouping: len(grouping.levels), default=None)
    return largest if largest and len(largest.levels) >= FEWEST_LEVELS else None


class LevelSearch:
    """Search for the Gaussian of all coefficients whose slopes and information are its averages.

    See Opper and Archambeau (2009). By Stein's identity values suffice: E(f'(x)) = E(x f(x)) and
    E(f''(x)) = E((x^2 - 1) f(x)) for standard normal x.
    """

    def __init__(
        self, curves: Sequence[Curve], data: RowSums, group: Ints, shared: Sequence[State]
    ) -> None:
        self.data, self.rows, self.shared = data, LevelRows.of(curves, group), list(shared)
        self._designs = [curve.design for curve in curves]
        self.deviations = np.zeros((self.rows.number, len(self.rows.kind)))
        self.taus = 0.5 * self.rows.scales
        size = self._designs[0].whole.shape[1]
        self._columns = slice(size), slice(size, None)
        self._sds = np.full(len(self.rows.shared), _FIRST_SD)

    def run(self, enough: float = 1e-3) -> tuple[list[Laplace], Levels]:
        """The Gaussian approximation of the shared coefficients, and the levels' sites."""
        least, factor, last, converged = _SMALL * self.rows.scales, 1.0, np.inf, False
        for _ in range(_ROUNDS):
            before, quadratic = np.maximum(self.taus, least), self._quadratic()
            self._rescale(quadratic)
            length = self._step(quadratic, factor)
            # a step longer than the one before went too far
            factor = _SLOWER * factor if length > last else min(1.0, _FASTER * factor)
            last, change = length, np.log(np.maximum(self.taus, least) / before)
            converged = length < enough and float(np.abs(change).max()) < 10.0 * enough
            if converged:
                break
        quadratic = self._quadratic()
        laplaces = [replace(part, converged=converged) for part in self._laplaces(quadratic)]
        return laplaces, self._levels(quadratic)

    def _quadratic(self) -> _Quadratic:
        rows = self.rows
        coefficients = np.concatenate([state.coefficients for state in self.shared])
        m, c = rows.curves(coefficients, self.deviations)
        units = np.stack([self.data.unit(c), np.ones_like(c)])
        sds = np.clip(self._sds.reshape(2, -1) / units, *_SDS) * units
        x, y = (part.ravel()[:, None] for part in np.meshgrid(_NODES, _NODES))
        value = self.data.values(m + x * sds[0], c + y * sds[1])
        value = np.outer(_WEIGHTS, _WEIGHTS).reshape(-1, 1) * (value - value[len(x) // 2])
        slope = np.stack([(z * value).sum(axis=0) for z in (x, y)]) / sds
        weight = np.stack([((1.0 - z * z) * value).sum(axis=0) for z in (x, y)]) / sds**2
        mixed = -(x * y * value).sum(axis=0) / sds.prod(axis=0)
        least = np.concatenate(self.data.information(m, c))
        slope, weight = slope.ravel(), weight.ravel()
        observed, bound = (self._information(sparse.diags_array(part)) for part in (weight, least))
        observed = observed._replace(levels=floored(bound.levels, observed.levels))
        sums = rows.shared.T @ slope, (rows.by_level.T @ slope).reshape(self.deviations.shape)
        return _Quadratic(slope, weight, mixed, *sums, observed, bound)

    def _information(self, weight: Any) -> _Information:
        """Information from that of the curves, a sparse matrix (2 rows, 2 rows)."""
        shared, deviations = self.rows.shared, self.rows.by_level
        weighted, number, size = weight @ shared, *self.deviations.shape
        blocks = sparse.bsr_array(deviations.T @ (weight @ deviations), blocksize=(size, size))
        by_level = np.zeros((number, size, size))
        by_level[blocks.indices] = blocks.data
        return _Information(
            shared.T @ weighted, (deviations.T @ weighted).reshape(number, size, -1), by_level
        )

    def _marginal(self, quadratic: _Quadratic) -> tuple[Floats, Floats, Floats, Floats]:
        """Slope and information of the shared coefficients; the levels' covariance and slopes."""
        tau = self.taus[self.rows.kind]
        covariance = quadratic.observed.covariance(tau)
        least = quadratic.bound.marginal(quadratic.bound.covariance(tau))
        information = floored(least, quadratic.observed.marginal(covariance))
        right = quadratic.level_slope - self.deviations / tau**2
        mean = np.einsum("gkl,gl->gk", covariance, right)
        slope = quadratic.shared_slope - np.einsum("gkp,gk->p", quadratic.observed.coupling, mean)
        return slope, information, covariance, right

    def _laplaces(self, quadratic: _Quadratic) -> list[Laplace]:
        slope, information, *_ = self._marginal(quadratic)
        return [
            summary(design, state, slope[columns], information[columns, columns])
            for design, state, columns in zip(
                self._designs, self.shared, self._columns, strict=True
            )
        ]

    def _scales(self, quadratic: _Quadratic) -> tuple[LevelScale, ...]:
        """Scales one by one, given the shared curves and the other scales."""
        precisions, pull = quadratic.observed.levels, quadratic.level_slope[:, :, None]
        pull = pull + quadratic.observed.levels @ self.deviations[:, :, None]
        scales = []
        for kind, prior in enumerate(self.rows.scales):
            member = self.rows.kind == kind
            tau = np.where(member, 0.0, self.taus[self.rows.kind])
            fixed = quadratic.observed.covariance(tau)
            information = (precisions - precisions @ fixed @ precisions)[:, member][:, :, member]
            right = (pull - precisions @ fixed @ pull)[:, member]
            precision, rotation = np.linalg.eigh(0.5 * (information + information.mT))
            precision, right = np.maximum(precision, 0.0).ravel(), (rotation.mT @ right).ravel()
            scales.append(LevelScale(prior, best_tau(prior, precision, right), precision, right))
        return tuple(scales)

    def _rescale(self, quadratic: _Quadratic) -> None:
        self.shared = list(map(rescaled, self._designs, self.shared, self._laplaces(quadratic)))
        # half a step: the scales of a level's kinds compete, and full steps would go back and forth
        self.taus = np.sqrt(self.taus * [scale.tau for scale in self._scales(quadratic)])

    def _step(self, quadratic: _Quadratic, factor: float) -> float:
        """Move to the mode of the quadratic; returns the squared length in the information."""
        slope, information, covariance, right = self._marginal(quadratic)
        parts = [
            scoring_step(design, state, slope[part], information[part, part])
            for design, state, part in zip(self._designs, self.shared, self._columns, strict=True)
        ]
        shared, observed = np.concatenate(parts), quadratic.observed
        step = np.einsum("gkl,gl->gk", covariance, right - observed.coupling @ shared)
        moves = np.abs(self.rows.curves(shared, step)).max(axis=1)
        factor = min(factor, float(1.0 / np.max(moves / self.data.farthest)))
        self.shared = [s.moved(x, factor) for s, x in zip(self.shared, parts, strict=True)]
        self.deviations = self.deviations + factor * step
        number = np.arange(len(covariance) + 1)
        spread = sparse.bsr_array((covariance, number[:-1], number))
        self._sds = np.sqrt((self.rows.by_level @ spread).multiply(self.rows.by_level).sum(axis=1))
        length = np.einsum("gk,gkl,gl->", step, observed.levels, step)
        return factor**2 * float(shared @ observed.shared @ shared + length)

    def _levels(self, quadratic: _Quadratic) -> Levels:
        """The sites, with the information between both curves: only its expectation is 0."""
        middle = sparse.diags_array(quadratic.mixed)
        between = sparse.block_array([[None, middle], [middle, None]])
        information = self._information(sparse.diags_array(quadratic.weight) + between)
        tau = self.taus[self.rows.kind]
        prior = np.diag((_WIDEST * tau) ** -2.0)
        site = floored(quadratic.observed.levels + prior, information.levels + prior) - prior
        unit = tau[:, None] * tau
        value, vector = np.linalg.eigh(unit * site)
        root = vector * np.sqrt(np.maximum(value, 0.0))[:, None] / tau[:, None]
        pull = quadratic.level_slope + np.einsum("gkl,gl->gk", root @ root.mT, self.deviations)
        centre = np.concatenate([state.coefficients for state in self.shared])
        scales = self._scales(quadratic)
        return Levels(self.rows, root, information.coupling, pull, centre, scales)
