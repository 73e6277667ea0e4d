"""The mode of both curves of a family, where every model begins, and levels integrated out.

The log likelihood of a level's coefficients, given the shared ones, is close to a quadratic, its
site, in which they are integrated in closed form; importance weights correct the result
(`inference.level_density`). Cost and memory are linear in the number of levels.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg, sparse

from .._lib.arrays import Floats, Ints
from .._lib.errors import FitError
from ..data.items import Grouping
from ..data.statistics import NO_JOINT_CELLS, Statistics
from ..families.family import Family
from ..families.row_sums import RowSums, Weak
from .laplace import Curvature, CurveTarget, Laplace, Mode, best_tau, find_mode, floored
from .rows import MOST_BINS, Rows, positions, rows_of
from .terms import Curve, LevelTerms, State, by_level, make_curve, slopes

_FEWEST_LEVELS = 8  # levels from which they are integrated out; fewer are parameters like others
_NODES, _WEIGHTS = np.sqrt(3.0) * np.array([-1.0, 0.0, 1.0]), np.array([1.0, 4.0, 1.0]) / 6.0
# limits of the sds over which slopes are averaged, in units of each parameter, and the first ones
_SDS, _FIRST_SD = (1e-3, 1.0), 0.1
_WIDEST = 3.0  # times a scale: up to there noise between both curves is left in the sites
_SMALL = 0.01  # share of a scale's prior: smaller ones are as good as 0
_SLOWER, _FASTER = 0.5, 1.5  # factors on the length of steps
_FEWEST_BINS = 100  # minimum of merged bins where there are hardly any events
_MOST_EFFECTS = 40  # most bins of a mixture, whose rows merge about as many


@dataclass(frozen=True)
class LevelRows:
    """Both curves at the rows as linear functions of shared coefficients and those of levels."""

    terms: tuple[LevelTerms, LevelTerms]
    level: Ints  # (rows,): code of each row's level
    shared: Floats  # (2 rows, P), those of the first curve before those of the second
    by_level: Any  # (2 rows, G K), sparse
    number: int  # of levels
    kind: Ints  # (K,): number of the scale of each of a level's coefficients
    scales: Floats  # of the half-normal priors of all scales

    @staticmethod
    def of(curves: Sequence[Curve], group: Ints) -> "LevelRows":
        """Rows from their groups."""
        mean, variance = (curve.levels for curve in curves if curve.levels)
        level, number = mean.grouping.code[group], len(mean.grouping.levels)
        shared = linalg.block_diag(*(curve.design.whole for curve in curves))
        functions = linalg.block_diag(mean.design, variance.design)
        deviations = by_level(functions, np.tile(level, 2), number)
        deviations.eliminate_zeros()  # a row of one curve has no coefficients of the other
        kind = np.concatenate([mean.kind, variance.kind + len(mean.names)])
        scales = np.concatenate([mean.scales, variance.scales])
        return LevelRows((mean, variance), level, shared, deviations, number, kind, scales)

    def information(self, weight: Any) -> "_Information":
        """Information from that of the curves, a sparse matrix (2 rows, 2 rows)."""
        shared, deviations, size = self.shared, self.by_level, len(self.kind)
        weighted = weight @ shared
        blocks = sparse.bsr_array(deviations.T @ (weight @ deviations), blocksize=(size, size))
        levels = np.zeros((self.number, size, size))
        levels[blocks.indices] = blocks.data
        coupling = (deviations.T @ weighted).reshape(self.number, size, -1)
        return _Information(shared.T @ weighted, coupling, levels)


@dataclass(frozen=True)
class LevelScale:
    """Scale of the deviations of one kind, with all their coefficients integrated out."""

    name: str
    prior: float  # scale of its half-normal prior
    tau: float  # at the posterior mean of its position
    precision: Floats  # of the independent coefficients N(0, tau^2) of all levels
    pull: Floats  # precision times the data's centre


@dataclass(frozen=True)
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
        half = (_covariance(self.levels, tau) @ self.coupling).reshape(-1, len(self.shared))
        return self.shared - self.coupling.reshape(half.shape).T @ half


def _covariance(information: Floats, tau: Floats) -> Floats:
    """Covariance of levels' coefficients with prior sds tau (K,), given the shared ones."""
    inner = np.linalg.inv(np.eye(len(tau)) + tau[:, None] * information * tau)
    return np.asarray(tau[:, None] * inner * tau)


@dataclass
class LevelTarget(CurveTarget):
    """Rows of levels, which are integrated out; their deviations (G, K) follow both curves' states.

    The mode is the Gaussian whose slopes and information are its averages (Opper and Archambeau
    2009). Without a density to compare, steps get shorter where one is longer than the last.
    """

    rows: LevelRows
    # sds of both curves (2, rows), over which slopes are averaged
    sds: Floats = field(default_factory=lambda: np.full((2, 1), _FIRST_SD))
    _factor: float = field(default=1.0, init=False)  # on steps
    _last: float = field(default=np.inf, init=False)  # squared length of the last step

    def curves(self, coefficients: Sequence[Floats]) -> Floats:
        """Both curves (2, rows) at coefficients, with those of levels (G, K)."""
        *shared, deviations = coefficients
        values = self.rows.shared @ np.concatenate(shared) + self.rows.by_level @ deviations.ravel()
        return np.asarray(values).reshape(2, -1)

    def curvature(self, states: Sequence[State]) -> Curvature:
        """Averages of both curves' slopes and information, levels integrated out, and of levels."""
        rows, levels = self.rows, states[-1]
        m, c = self.curves([state.coefficients for state in states])
        value, slope, weight = self._averages(m, c)
        if not np.isfinite(value).all():
            return Curvature(value, [], [])
        least = sparse.diags_array(np.concatenate(self.data.information(m, c)))
        # between both curves it is noise, as its expectation is 0
        diagonal = sparse.diags_array(weight.diagonal())
        observed, bound = map(rows.information, (diagonal, least))
        observed = observed._replace(levels=floored(bound.levels, observed.levels))
        tau = self._taus(levels)
        information = floored(bound.marginal(tau), observed.marginal(tau))
        level_slope = (rows.by_level.T @ slope).reshape(levels.coefficients.shape)
        level_slope -= levels.coefficients / tau**2
        step = np.einsum("gkl,gl->gk", _covariance(observed.levels, tau), level_slope)
        shared_slope = rows.shared.T @ slope - np.einsum("gkp,gk->p", observed.coupling, step)
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

    def _averages(self, m: Floats, c: Floats) -> tuple[Floats, Floats, Any]:
        """Values of rows, average slopes (2 rows,) in the curves, and information between these."""
        # by Stein's identity values suffice: E(f'(x)) = E(x f(x)) and E(f''(x)) = E((x^2 - 1) f(x))
        # for standard normal x
        units = np.stack([self.data.unit(c), np.ones_like(c)])
        sds = np.clip(self.sds / units, *_SDS) * units
        x, y = (part.ravel()[:, None] for part in np.meshgrid(_NODES, _NODES))
        values = self.data.values(m + x * sds[0], c + y * sds[1])
        middle = values[len(x) // 2]
        value = np.outer(_WEIGHTS, _WEIGHTS).reshape(-1, 1) * (values - middle)
        slope = np.stack([(z * value).sum(axis=0) for z in (x, y)]) / sds
        first, second = (((1.0 - z * z) * value).sum(axis=0) for z in (x, y))
        mixed = -(x * y * value).sum(axis=0) / sds.prod(axis=0)
        diagonals = first / sds[0] ** 2, mixed, second / sds[1] ** 2
        first, mixed, second = map(sparse.diags_array, diagonals)
        weight = sparse.block_array([[first, mixed], [mixed, second]])
        return values.sum(axis=0), slope.ravel(), weight

    def rescaled(
        self, states: Sequence[State], laplaces: Sequence[Laplace], curvature: Curvature
    ) -> list[State]:
        """The states with re-estimated scales."""
        rows, levels = self.rows, states[-1]
        number = np.arange(rows.number + 1)
        covariance = _covariance(curvature.information[-1], self._taus(levels))
        spread = sparse.bsr_array((covariance, number[:-1], number))
        variance = (rows.by_level @ spread).multiply(rows.by_level).sum(axis=1)
        self.sds = np.sqrt(variance).reshape(2, -1)
        best = [scale.tau for scale in self._scales(levels, curvature)]
        # half a step: the scales of a level's kinds compete, and full steps would go back and forth
        taus = np.maximum(np.sqrt(np.multiply(levels.taus, best)), _SMALL * rows.scales)
        levels = replace(levels, taus=tuple(taus.tolist()))
        return [*super().rescaled(states, laplaces, curvature), levels]

    def _pull(self, levels: State, curvature: Curvature, information: Floats) -> Floats:
        """Slopes (G, K, 1) of the levels' quadratic log likelihoods where deviations are 0."""
        precision = information + np.diag(self._taus(levels) ** -2.0)
        return curvature.slopes[-1][:, :, None] + precision @ levels.coefficients[:, :, None]

    def _scales(self, levels: State, curvature: Curvature) -> tuple[LevelScale, ...]:
        """Scales one by one, given the shared curves and the other scales."""
        precisions, scales = curvature.information[-1], []
        pull = self._pull(levels, curvature, precisions)
        names = [f"{name}_sd" for term in self.rows.terms for name in term.names]
        for kind, (name, prior) in enumerate(zip(names, self.rows.scales, strict=True)):
            member = self.rows.kind == kind
            others = np.where(member, 0.0, self._taus(levels))
            fixed = precisions @ _covariance(precisions, others)
            information = (precisions - fixed @ precisions)[:, member][:, :, member]
            right = (pull - fixed @ pull)[:, member]
            precision, rotation = np.linalg.eigh(0.5 * (information + information.mT))
            precision, right = np.maximum(precision, 0.0).ravel(), (rotation.mT @ right).ravel()
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
        length, factor = curvature.length(steps), self._factor
        self._factor = _SLOWER * factor if length > self._last else min(1.0, _FASTER * factor)
        self._last = length
        return steps

    def log_density(self, states: Sequence[State], curvature: Curvature) -> float:
        """A constant where values are finite."""
        return 0.0 if np.isfinite(curvature.value).all() else -np.inf

    def levels(self, mode: Mode) -> Levels:
        """The sites where a search ended."""
        coefficients = [state.coefficients for state in mode.states]
        levels, curvature = mode.states[-1], mode.curvature
        *_, weight = self._averages(*self.curves(coefficients))
        information, tau = self.rows.information(weight), self._taus(levels)
        prior = np.diag((_WIDEST * tau) ** -2.0)
        site = floored(curvature.information[-1] + prior, information.levels + prior) - prior
        value, vector = np.linalg.eigh(tau[:, None] * site * tau)
        root = vector * np.sqrt(np.maximum(value, 0.0))[:, None] / tau[:, None]
        site = root @ root.mT
        pull = self._pull(levels, curvature, site)[:, :, 0]
        *shared, deviations = coefficients
        sites = root, site, information.coupling, pull, np.concatenate(shared), deviations
        return Levels(self.rows, *sites, self._scales(levels, curvature))


# --- the pilot ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pilot:
    """Both curves of the family with their mode: the whole prior, or a mixture's base."""

    curves: tuple[Curve, Curve]
    laplaces: Sequence[Laplace]
    rows: Rows
    data: RowSums
    labels: tuple[str, ...]  # groups with their own deviations, by code
    groupings: tuple[Grouping, ...]  # of these
    levels: Levels | None  # integrated out


def find_pilot(stats: Statistics, family: Family, prior: Any, full: bool) -> Pilot:
    """The mode; the coefficients of many levels are integrated out unless `full`."""
    if prior.gridded:
        zero = "" if prior.mixture else "zero=True"
        check_joint_cells(stats, f"soc.{type(prior).__name__}({zero})")
    if prior.exposure is not None:
        check_joint_cells(stats, "a term in exposure")
    labels, groupings = (stats.groups, stats.groupings) if prior.groups else ((), ())
    rows, data = _rows(stats, family, prior)
    integrated = max(groupings, key=lambda grouping: len(grouping.levels), default=None)
    if full or prior.gridded or (integrated and len(integrated.levels) < _FEWEST_LEVELS):
        integrated = None
    inputs = partial(_weak, data, stats), stats, rows, groupings, integrated
    curves = make_curve(0, family, prior, *inputs), make_curve(1, family, prior, *inputs)
    target = CurveTarget([curve.design for curve in curves], data)
    start = map(State.starting, target.designs, np.reshape(data.level(), (2, 1)))
    mode = find_mode(target, list(start))
    states, of_levels = [laplace.state for laplace in mode.laplaces], None
    if integrated:
        level_rows = LevelRows.of(curves, rows.group)
        deviations = np.zeros((level_rows.number, len(level_rows.kind)))
        levels_state = State(deviations, tuple((0.5 * level_rows.scales).tolist()))
        target = LevelTarget(target.designs, data, level_rows)
        # only its slopes count
        states = find_mode(target, [*states, levels_state], enough=0.1).states
        of_levels = states[-1].coefficients
    # the mode's slope gives the spread of theta by the scores in a bin
    slope = slopes(curves[0], states[0].coefficients, of_levels, groupings, rows.group)
    spread = slope**2 * positions(curves[0].axis, rows)[1]
    data = data.with_spread(np.minimum(spread, data.most_spread))
    target = replace(target, data=data)
    mode = find_mode(target, states, ahead=bool(integrated))
    levels = target.levels(mode) if isinstance(target, LevelTarget) else None
    return Pilot(curves, mode.laplaces, rows, data, labels, groupings, levels)


def _weak(data: RowSums, stats: Statistics, scale: str, centre: float) -> tuple[Weak, Weak]:
    """Weak priors of both curves; where all items have one score, it does not place the level."""
    mean, variance = data.weak(_totals(stats), scale, centre)
    if float(stats.data["score_min"].min()) == float(stats.data["score_max"].max()):
        mean = mean._replace(level=(data.level()[0], mean.level[1]))
    return mean, variance


def _rows(stats: Statistics, family: Family, prior: Any) -> tuple[Rows, RowSums]:
    """Rows of the likelihood, fewer where there are few events or many classes."""
    terms = prior.groups and bool(stats.groups), prior.exposure is not None, prior.atoms
    most_bins = max(_FEWEST_BINS, int(family.rows.events(_totals(stats))))
    if terms[0] or terms[1] or prior.bin_effects:
        capped = prior.bin_effects and prior.gridded
        most_bins = min(most_bins, _MOST_EFFECTS if capped else MOST_BINS)
    return rows_of(stats, family, *terms, most_bins)


def _totals(stats: Statistics) -> dict[str, float]:
    """Sums over all items."""
    names = (name for name in stats.data.data_vars if str(name).startswith(("n", "sum_")))
    return {str(name): float(stats.data[name].sum()) for name in names}


def check_joint_cells(stats: Statistics, what: str) -> None:
    """Refuse statistics without joint cells, with the remedy."""
    if not stats.has_joint:
        raise FitError(f"{what} reads joint cells, which these statistics lack: {NO_JOINT_CELLS}")
