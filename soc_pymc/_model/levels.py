"""Levels of a grouping with their coefficients integrated out, beside the shared curves.

The log likelihood of a level's coefficients, given the shared ones, is close to a quadratic, its
site, in which they are integrated in closed form; importance weights correct the result
(`inference.level_density`). Cost and memory are linear in the number of levels.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from scipy import linalg, sparse

from .._lib.arrays import Floats, Ints
from .laplace import Curvature, CurveTarget, Laplace, Mode, best_tau, floored
from .terms import Curve, LevelTerms, State, by_level

_NODES = np.sqrt(3.0) * np.array([-1.0, 0.0, 1.0])
_WEIGHTS = np.array([1.0, 4.0, 1.0]) / 6.0
# limits of the sds over which slopes are averaged, in units of each parameter, and the first ones
_SD_LIMITS = (1e-3, 1.0)
_FIRST_SD = 0.1
# times a scale: up to there noise between both curves is left in the sites
_WIDEST_NOISE = 3.0
_SMALL_SCALE = 0.01  # share of a scale's prior: smaller ones are as good as 0
# factors on the length of steps
_SLOWER = 0.5
_FASTER = 1.5


@dataclass(frozen=True, eq=False)
class LevelRows:
    """Both curves at the rows as linear functions of shared coefficients and those of levels."""

    terms: tuple[LevelTerms, LevelTerms]
    level: Ints  # (rows,): code of each row's level
    # (2 rows, P), those of the location before those of the dispersion
    shared: Floats
    by_level: sparse.csr_array  # (2 rows, G K)
    number: int  # of levels
    # (K,): number of the scale of each of a level's coefficients
    kind: Ints
    scales: Floats  # of the half-normal priors of all scales

    @staticmethod
    def of(curves: Sequence[Curve], group: Ints) -> "LevelRows":
        """Rows from their groups."""
        mean, variance = (curve.levels for curve in curves if curve.levels)
        level = mean.grouping.code[group]
        number = len(mean.grouping.levels)
        shared = linalg.block_diag(*(curve.design.matrix for curve in curves))
        functions = linalg.block_diag(mean.design, variance.design)
        deviations = by_level(functions, np.tile(level, 2), number)
        # a row of one curve has no coefficients of the other
        deviations.eliminate_zeros()
        kind = np.concatenate([mean.kind, variance.kind + len(mean.names)])
        scales = np.concatenate([mean.scales, variance.scales])
        return LevelRows(
            terms=(mean, variance),
            level=level,
            shared=shared,
            by_level=deviations,
            number=number,
            kind=kind,
            scales=scales,
        )

    @property
    def start(self) -> State:
        """No deviations, with arbitrary scales."""
        deviations = np.zeros((self.number, len(self.kind)))
        return State(deviations, tuple((0.5 * self.scales).tolist()))

    def information(self, weight: sparse.sparray) -> "_Information":
        """Information from that of the curves, a sparse matrix (2 rows, 2 rows)."""
        shared = self.shared
        deviations = self.by_level
        size = len(self.kind)
        weighted = weight @ shared
        blocks = sparse.bsr_array(
            deviations.T @ (weight @ deviations), blocksize=(size, size)
        )
        levels = np.zeros((self.number, size, size))
        levels[blocks.indices] = blocks.data
        coupling = (deviations.T @ weighted).reshape(self.number, size, -1)
        return _Information(shared.T @ weighted, coupling, levels)


@dataclass(frozen=True, eq=False)
class LevelScale:
    """Scale of the deviations of one kind, with all their coefficients integrated out."""

    name: str
    prior: float  # scale of its half-normal prior
    tau: float  # at the posterior mean of its position
    # of the independent coefficients N(0, tau^2) of all levels
    precision: Floats
    pull: Floats  # precision times the data's centre


@dataclass(frozen=True, eq=False)
class Levels:
    """Rows of all levels with their sites: quadratic log likelihoods of their coefficients b."""

    # that of level g is u'b - b'A b / 2, A = root[g] @ root[g]' and
    # u = pull[g] - coupling[g] @ (shared - centre)
    rows: LevelRows
    root: Floats  # (G, K, K)
    information: Floats  # (G, K, K), positive semidefinite: A
    coupling: Floats  # (G, K, P)
    pull: Floats  # (G, K)
    centre: Floats  # (P,)
    mode: Floats  # (G, K): coefficients there
    scales: tuple[LevelScale, ...]


class _Information(NamedTuple):
    """Information of rows."""

    shared: Floats  # (P, P)
    coupling: Floats  # (G, K, P)
    levels: Floats  # (G, K, K)

    def marginal(self, tau: Floats) -> Floats:
        """Information of the shared coefficients, with the levels' integrated out."""
        half = (_covariance(self.levels, tau) @ self.coupling).reshape(
            -1, len(self.shared)
        )
        return self.shared - self.coupling.reshape(half.shape).T @ half


def _covariance(information: Floats, tau: Floats) -> Floats:
    """Covariance of levels' coefficients with prior sds tau (K,), given the shared ones."""
    inner = np.linalg.inv(np.eye(len(tau)) + tau[:, None] * information * tau)
    return tau[:, None] * inner * tau


@dataclass(eq=False)
class LevelTarget(CurveTarget):
    """Rows of levels, which are integrated out; their deviations (G, K) follow both curves' states.

    The mode is the Gaussian whose slopes and information are its averages (Opper and Archambeau
    2009). Without a density to compare, steps get shorter where one is longer than the last.
    """

    rows: LevelRows
    # of both curves (2, rows), for average slopes; None at first
    sds: Floats | None = None
    _factor: float = field(default=1.0, init=False)  # on steps
    # squared length of the last step
    _last: float = field(default=np.inf, init=False)

    def curves(self, coefficients: Sequence[Floats]) -> Floats:
        """Both curves (2, rows) at coefficients, with those of levels (G, K)."""
        *shared, deviations = coefficients
        values = (
            self.rows.shared @ np.concatenate(shared)
            + self.rows.by_level @ deviations.ravel()
        )
        return np.asarray(values).reshape(2, -1)

    def curvature(self, states: Sequence[State]) -> Curvature:
        """Averages of both curves' slopes and information, levels integrated out, and of levels."""
        rows = self.rows
        levels = states[-1]
        location, dispersion = self.curves([state.coefficients for state in states])
        value, slope, weight = self._averages(location, dispersion)
        if not np.isfinite(value).all():
            return Curvature(value, [], [])
        least = sparse.diags_array(
            np.concatenate(self.data.information(location, dispersion))
        )
        # between both curves it is noise, as its expectation is 0
        diagonal = sparse.diags_array(weight.diagonal())
        observed, bound = map(rows.information, (diagonal, least))
        observed = observed._replace(levels=floored(bound.levels, observed.levels))
        tau = self._taus(levels)
        information = floored(bound.marginal(tau), observed.marginal(tau))
        level_slope = (rows.by_level.T @ slope).reshape(levels.coefficients.shape)
        level_slope -= levels.coefficients / tau**2
        step = np.einsum("gkl,gl->gk", _covariance(observed.levels, tau), level_slope)
        shared_slope = rows.shared.T @ slope - np.einsum(
            "gkp,gk->p", observed.coupling, step
        )
        size = len(states[0].coefficients)
        return Curvature(
            value,
            [shared_slope[:size], shared_slope[size:], level_slope],
            [information[:size, :size], information[size:, size:], observed.levels],
            observed.coupling,
        )

    def _taus(self, levels: State) -> Floats:
        """Scales of a level's coefficients, (K,)."""
        return np.array(levels.taus)[self.rows.kind]

    def _averages(
        self, location: Floats, dispersion: Floats
    ) -> tuple[Floats, Floats, sparse.sparray]:
        """Values of rows, average slopes (2 rows,) in the curves, and information between these."""
        # by Stein's identity values suffice: E(f'(x)) = E(x f(x)) and E(f''(x)) = E((x^2 - 1) f(x))
        # for standard normal x
        units = np.stack([self.data.unit(dispersion), np.ones_like(dispersion)])
        sds = (
            np.clip(_FIRST_SD if self.sds is None else self.sds / units, *_SD_LIMITS)
            * units
        )
        x, y = (part.ravel()[:, None] for part in np.meshgrid(_NODES, _NODES))
        values = self.data.values(location + x * sds[0], dispersion + y * sds[1])
        middle = values[len(x) // 2]
        value = np.outer(_WEIGHTS, _WEIGHTS).reshape(-1, 1) * (values - middle)
        slope = np.stack([(z * value).sum(axis=0) for z in (x, y)]) / sds
        bends = [((1.0 - z * z) * value).sum(axis=0) for z in (x, y)]
        along = [sparse.diags_array(bends[k] / sds[k] ** 2) for k in (0, 1)]
        mixed = sparse.diags_array(-(x * y * value).sum(axis=0) / sds.prod(axis=0))
        weight = sparse.block_array([[along[0], mixed], [mixed, along[1]]])
        return values.sum(axis=0), slope.ravel(), weight

    def rescaled(
        self, states: Sequence[State], laplaces: Sequence[Laplace], curvature: Curvature
    ) -> list[State]:
        """The states with re-estimated scales."""
        rows = self.rows
        levels = states[-1]
        number = np.arange(rows.number + 1)
        covariance = _covariance(curvature.information[-1], self._taus(levels))
        spread = sparse.bsr_array((covariance, number[:-1], number))
        variance = (rows.by_level @ spread).multiply(rows.by_level).sum(axis=1)
        self.sds = np.sqrt(variance).reshape(2, -1)
        best = [scale.tau for scale in self._scales(levels, curvature)]
        # half a step: the scales of a level's kinds compete, and full steps would go back and forth
        taus = np.maximum(
            np.sqrt(np.multiply(levels.taus, best)), _SMALL_SCALE * rows.scales
        )
        levels = replace(levels, taus=tuple(taus.tolist()))
        return [*super().rescaled(states, laplaces, curvature), levels]

    def _pull(self, levels: State, curvature: Curvature, information: Floats) -> Floats:
        """Slopes (G, K, 1) of the levels' quadratic log likelihoods where deviations are 0."""
        precision = information + np.diag(self._taus(levels) ** -2.0)
        return (
            curvature.slopes[-1][:, :, None]
            + precision @ levels.coefficients[:, :, None]
        )

    def _scales(self, levels: State, curvature: Curvature) -> tuple[LevelScale, ...]:
        """Scales one by one, given the shared curves and the other scales."""
        precisions = curvature.information[-1]
        scales = []
        pull = self._pull(levels, curvature, precisions)
        names = [f"{name}_sd" for term in self.rows.terms for name in term.names]
        for kind, (name, prior) in enumerate(zip(names, self.rows.scales, strict=True)):
            member = self.rows.kind == kind
            others = np.where(member, 0.0, self._taus(levels))
            fixed = precisions @ _covariance(precisions, others)
            information = (precisions - fixed @ precisions)[:, member][:, :, member]
            right = (pull - fixed @ pull)[:, member]
            precision, rotation = np.linalg.eigh(0.5 * (information + information.mT))
            precision = np.maximum(precision, 0.0).ravel()
            right = (rotation.mT @ right).ravel()
            tau = best_tau(prior, precision, right)
            scales.append(LevelScale(name, prior, tau, precision, right))
        return tuple(scales)

    def steps(self, states: Sequence[State], curvature: Curvature) -> list[Floats]:
        """Steps to the mode of the quadratic, or a share of them."""
        shared = super().steps(states, curvature)
        right = curvature.slopes[-1] - curvature.coupling @ np.concatenate(shared)
        covariance = _covariance(curvature.information[-1], self._taus(states[-1]))
        levels = np.einsum("gkl,gl->gk", covariance, right)
        steps = [self._factor * x for x in (*shared, levels)]
        length = curvature.length(steps)
        factor = self._factor
        self._factor = (
            _SLOWER * factor if length > self._last else min(1.0, _FASTER * factor)
        )
        self._last = length
        return steps

    def log_density(self, states: Sequence[State], curvature: Curvature) -> float:
        """A constant where values are finite."""
        return 0.0 if np.isfinite(curvature.value).all() else -np.inf

    def levels(self, mode: Mode) -> Levels:
        """The sites where a search ended."""
        coefficients = [state.coefficients for state in mode.states]
        levels = mode.states[-1]
        curvature = mode.curvature
        *_, weight = self._averages(*self.curves(coefficients))
        information = self.rows.information(weight)
        tau = self._taus(levels)
        prior = np.diag((_WIDEST_NOISE * tau) ** -2.0)
        site = (
            floored(curvature.information[-1] + prior, information.levels + prior)
            - prior
        )
        value, vector = np.linalg.eigh(tau[:, None] * site * tau)
        # symmetric, so that rounding turns no draws
        root = (
            (vector * np.sqrt(np.maximum(value, 0.0))[:, None])
            @ vector.mT
            / tau[:, None]
        )
        site = root @ root.mT
        pull = self._pull(levels, curvature, site)[:, :, 0]
        *shared, deviations = coefficients
        sites = (
            root,
            site,
            information.coupling,
            pull,
            np.concatenate(shared),
            deviations,
        )
        return Levels(self.rows, *sites, self._scales(levels, curvature))
