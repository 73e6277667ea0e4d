"""Both curves at the rows of the likelihood, draw by draw, and the rows' log marginals there."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from .._lib.arrays import Floats
from .._lib.threads import ordered_map
from .._model.likelihood import mixture_values
from .._model.problem import Problem
from .._model.rows import Rows
from .._model.splines import spline_matrix
from .._model.terms import Curve
from ..data.groups import Grouping
from ..families.row_sums import RowSums

_CHUNK = 50  # draws evaluated at once
_LARGEST = 2.0**62  # a count that an integer can hold


@dataclass(frozen=True)
class RowCurves:
    """Both curves at the rows as functions of draws, without the model: it can be pickled."""

    names: tuple[str, str]
    curves: tuple[Curve, Curve]
    groupings: tuple[Grouping, ...]
    rows: Rows
    data: RowSums
    dtype: type[np.number[Any]]  # of outcomes

    @staticmethod
    def of(built: Problem) -> "RowCurves":
        """Return those of a problem of a single family."""
        known = built.pilot.curves, built.pilot.groupings, built.pilot.rows, built.data
        family = built.family
        return RowCurves(family.curves, *known, family.outcome.dtype)

    def __call__(self, draws: xr.Dataset) -> list[Floats]:
        """Both curves (draws, rows)."""
        return [
            self._curve(draws, name, curve)
            for name, curve in zip(self.names, self.curves, strict=True)
        ]

    def _curve(self, draws: xr.Dataset, name: str, curve: Curve) -> Floats:
        shared, at_rows = flat(draws[name]), spline_matrix(curve.position, curve.basis.knots)
        values = shared @ at_rows.T
        for grouping in self.groupings:
            deviations = flat(draws[f"{name}_of_{grouping.name}"]) - shared[:, None]
            level = grouping.code[self.rows.group]
            for k in range(len(grouping.levels)):
                values[:, level == k] += deviations[:, k] @ at_rows[level == k].T
        if curve.size_knots.size:
            at_sizes = spline_matrix(self.rows.log_size, curve.size_knots)
            values += flat(draws[f"{name}_by_exposure"]) @ at_sizes.T
        if len(self.rows.size_atoms):
            atoms = np.flatnonzero(self.rows.size_atom)
            of_atom = flat(draws[f"{name}_of_exposure_atom"])
            values[:, atoms] += of_atom[:, self.rows.size_atom[atoms] - 1]
        if f"{name}_of_bin" in draws:
            effects = flat(draws[f"{name}_of_bin"])
            values += effects[:, np.searchsorted(self.rows.effect_bins, self.rows.bin)]
        if len(curve.atoms):
            atoms = np.flatnonzero(self.rows.atom)
            values[:, atoms] += flat(draws[f"{name}_of_atom"])[:, self.rows.atom[atoms] - 1]
        return np.asarray(values)

    def log_likelihood(self, draws: xr.Dataset) -> Floats:
        """Log marginal of every row, (draws, rows)."""
        m, c = self(draws)
        return _in_chunks(lambda some: self.data.values(m[some], c[some]), len(m))

    def totals(self, draws: xr.Dataset, seed: Sequence[int]) -> Floats:
        """Replicates of the rows' observed totals, (draws, rows)."""
        location, dispersion = self(draws)
        drawn = self.data.draw(location, dispersion, np.random.default_rng(seed))
        return drawn if self.dtype is np.float64 else np.clip(drawn, 0.0, _LARGEST)


@dataclass(frozen=True)
class MixtureRows:
    """Evaluation of a mixture at the rows; its predictors are linear in its coefficients."""

    names: tuple[str, ...]  # of the coefficients
    design: Floats
    data: Any  # `MixtureCells`

    @staticmethod
    def of(built: Problem) -> "MixtureRows":
        """Return those of a problem with a mixture."""
        (part,) = built.coefficients
        return MixtureRows(tuple(part.names), part.design.whole @ part.turn, built.data)

    def log_likelihood(self, draws: xr.Dataset) -> Floats:
        """Log marginal of every row, (draws, rows)."""
        coefficients = np.hstack([flat(draws[name]) for name in self.names])
        rows = len(self.data.constant)

        def part(some: slice) -> Floats:
            predictors = coefficients[some] @ self.design.T
            return mixture_values(predictors.reshape(len(predictors), rows, -1), self.data.arrays)[
                0
            ]

        return _in_chunks(part, len(coefficients))


def _in_chunks(part: Callable[[slice], Floats], draws: int) -> Floats:
    slices = [slice(i, i + _CHUNK) for i in range(0, draws, _CHUNK)]
    return np.concatenate(list(ordered_map(part, slices)))


def flat(values: xr.DataArray) -> Floats:
    """Draws of all chains, one after the other, (draws, ...)."""
    array = values.transpose("chain", "draw", ...).to_numpy()
    return np.asarray(array.reshape(-1, *array.shape[2:]))
