"""Penalised mode of all coefficients, by Fisher scoring with re-estimated smoothing scales."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from .._lib.arrays import Floats
from .._lib.errors import FitError
from ..families.rows import RowSums
from .laplace import Laplace, best_tau, floored, laplace_of, solve_scaled
from .terms import Design, State

_NONE = np.empty(0)
_ROUNDS = 60
_HALVINGS = 30


class Curvature(NamedTuple):
    """The log marginal at given coefficients; only the values if one is not finite."""

    value: Floats  # row by row
    slopes: Sequence[Floats]  # in the coefficients of each design
    # of the coefficients of each design, positive definite
    information: Sequence[Floats]
    # information between levels that are integrated out and shared coefficients
    coupling: Floats = _NONE

    def length(self, steps: Sequence[Floats]) -> float:
        """Squared length of steps."""
        pairs = zip(self.information, steps, strict=True)
        return float(sum((x * (w @ x[..., None])[..., 0]).sum() for w, x in pairs))


class Target(ABC):
    """The log marginal of all rows as a function of the coefficients of some designs."""

    designs: Sequence[Design]  # information between them is taken as 0

    @abstractmethod
    def curvature(self, states: Sequence[State]) -> Curvature:
        """Values, slopes and information."""

    @abstractmethod
    def relative_length(self, steps: Sequence[Floats]) -> float:
        """Length of the longest step relative to the largest allowed."""

    def rescaled(
        self, states: Sequence[State], laplaces: Sequence[Laplace], curvature: Curvature
    ) -> list[State]:
        """The states with re-estimated smoothing scales."""
        rescaled = []
        for design, state, laplace in zip(self.designs, states, laplaces, strict=False):
            blocks = zip(design.blocks, laplace.blocks, strict=True)
            taus = tuple(best_tau(b.scale, z.precision, z.mode_pull) for b, z in blocks)
            rescaled.append(replace(state, taus=taus))
        return rescaled

    def steps(self, states: Sequence[State], curvature: Curvature) -> list[Floats]:
        """Steps to the mode of the quadratic at the states."""
        steps = []
        parts = (self.designs, states, curvature.slopes, curvature.information)
        for design, state, slope, information in zip(*parts, strict=False):
            mean, precision = state.prior(design)
            right = slope - precision * (state.coefficients - mean)
            steps.append(solve_scaled(information + np.diag(precision), right))
        return steps

    def log_density(self, states: Sequence[State], curvature: Curvature) -> float:
        """Log marginal of all rows and log prior of the coefficients; -inf where it is NaN."""
        log_prior = 0.0
        for state, design in zip(states, self.designs, strict=True):
            mean, precision = state.prior(design)
            log_prior += float(-0.5 * precision @ (state.coefficients - mean) ** 2)
        density = float(curvature.value.sum()) + log_prior
        return density if np.isfinite(density) else -np.inf


class RowCurvature(NamedTuple):
    """The log marginal of rows in their two parameters, each (2, rows) but the first."""

    value: Floats  # (rows,)
    slopes: Floats
    expected: Floats  # information; of the dispersion a lower bound
    observed: Floats  # information; of the location the expected one


def row_curvature(data: RowSums, location: Floats, dispersion: Floats) -> RowCurvature:
    """Slopes and information of all rows."""
    expansion = data.expansion(location, dispersion)
    expected = np.stack(data.information(location, dispersion))
    observed = np.stack([expected[0], -expansion.by_dispersion])
    return RowCurvature(expansion.value, np.stack(expansion.slopes), expected, observed)


def coefficient_curvature(
    designs: Sequence[Floats], rows: RowCurvature
) -> tuple[list[Floats], list[Floats]]:
    """Slopes and floored information in each curve's coefficients, from designs at the rows."""
    slopes = []
    information = []
    for x, slope, *weights in zip(designs, *rows[1:], strict=True):
        slopes.append(x.T @ slope)
        information.append(
            floored(*(x.T @ (weight[:, None] * x) for weight in weights))
        )
    return slopes, information


@dataclass(eq=False)
class CurveTarget(Target):
    """Rows of one family, whose two curves have orthogonal information."""

    designs: Sequence[Design]
    data: RowSums

    def curves(self, coefficients: Sequence[Floats]) -> Floats:
        """Both curves (2, rows) at coefficients."""
        pairs = zip(self.designs, coefficients, strict=True)
        return np.stack([design.matrix @ values for design, values in pairs])

    def curvature(self, states: Sequence[State]) -> Curvature:
        """Values, slopes and information."""
        location, dispersion = self.curves([state.coefficients for state in states])
        if not (np.abs([location, dispersion]).max(axis=1) <= self.data.most).all():
            return Curvature(np.full(len(location), -np.inf), [], [])
        rows = row_curvature(self.data, location, dispersion)
        if not np.isfinite(rows.value).all():
            return Curvature(rows.value, [], [])
        return Curvature(
            rows.value, *coefficient_curvature([d.matrix for d in self.designs], rows)
        )

    def relative_length(self, steps: Sequence[Floats]) -> float:
        """Relative step length as in `Target`."""
        # far above the data the log marginal is very flat, so returning takes many steps
        moves = np.abs(self.curves(steps)).max(axis=1)
        return float(np.max(moves / self.data.farthest))


@dataclass(frozen=True, eq=False)
class Mode:
    """Where a search ended."""

    laplaces: list[Laplace]
    states: list[State]
    curvature: Curvature


def find_mode(
    target: Target, start: Sequence[State], *, enough: float = 1e-3, ahead: bool = False
) -> Mode:
    """Find the mode, with information before the last step, or after it with `ahead`."""
    states = list(start)
    curvature = target.curvature(start)
    bad = int((~np.isfinite(curvature.value)).sum())
    if bad:
        raise FitError(
            f"the log marginal of {bad} bins is not finite at the start: are outcomes, exposures "
            "or noise in units that make theta astronomically large or small?"
        )
    for _ in range(_ROUNDS):
        laplaces = _laplaces_of(target, states, curvature)
        before = states
        scaled = target.rescaled(states, laplaces, curvature)
        states, curvature, length = _line_search(target, scaled, curvature)
        taus, taus_before = (
            np.concatenate([s.taus for s in x]) for x in (states, before)
        )
        change = np.log(taus / taus_before)
        converged = (
            length < enough and float(np.abs(change).max(initial=0.0)) < 10.0 * enough
        )
        if converged:
            break
    if ahead:
        laplaces = _laplaces_of(target, states, curvature)
    laplaces = [replace(laplace, converged=converged) for laplace in laplaces]
    return Mode(laplaces, states, curvature)


def _laplaces_of(
    target: Target, states: Sequence[State], curvature: Curvature
) -> list[Laplace]:
    return list(
        map(laplace_of, target.designs, states, curvature.slopes, curvature.information)
    )


def _line_search(
    target: Target, states: Sequence[State], curvature: Curvature
) -> tuple[list[State], Curvature, float]:
    """The longest step, by halving, that does not lower the density, and its squared length."""
    steps = target.steps(states, curvature)
    density = target.log_density(states, curvature)
    factor = 1.0 / max(target.relative_length(steps), 1.0)
    for _ in range(_HALVINGS):
        moved = [
            replace(state, coefficients=state.coefficients + factor * step)
            for state, step in zip(states, steps, strict=True)
        ]
        ahead = target.curvature(moved)
        if target.log_density(moved, ahead) >= density - 1e-9 * abs(density):
            return moved, ahead, factor**2 * curvature.length(steps)
        factor *= 0.5
    return list(states), curvature, np.inf
