"""Grids of a mixture's components around curves, and the mode of the mixture on a grid."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._lib.arrays import Floats
from ..data.statistics import Statistics
from ..families.family import Family
from .laplace import Laplace, find_mode
from .mixture_design import MixtureTarget, WeightDesign, make_cells, make_weights, merged
from .pilot import Pilot
from .rows import cells_of
from .splines import spline_matrix
from .terms import State

_SHIFT, _MOST_SHIFT = 0.7, 1.0  # widening of a grid in sds of the log variance, and the most

# a grid is moved to the mode until this share of the items has curves this near to its own
_NEAR, _MOST_NEAR, _MOVES = 0.5, 0.9, 6


@dataclass(frozen=True)
class GridMixture:
    """A mixture on one grid, with its mode."""

    states: Sequence[State]  # of the curves that place the grid
    wider: Floats  # increase of the second curve there, at its knots
    target: MixtureTarget
    laplace: Laplace

    @property
    def design(self) -> WeightDesign:
        """The mixture's predictors."""
        return self.target.weights

    @property
    def is_settled(self) -> bool:
        """True if the mode is near the curves that placed the grid."""
        rows = self.design.rows
        shift = self.design.predictors(self.laplace.state.coefficients)[:, :2] - rows.start
        distance = np.abs(shift[:, 0]) / rows.base.spread, np.abs(shift[:, 1])
        return bool(np.average(np.maximum(*distance) < _NEAR, weights=rows.items) > _MOST_NEAR)


def place_mixture(stats: Statistics, family: Family, prior: Any, pilot: Pilot) -> GridMixture:
    """The mixture around the pilot's curves; with zeros these are moved to its mode."""
    # zeros pull the pilot towards 0 and widen it
    basis = pilot.curves[1].outputs("")[0].matrix
    sds = _sds(basis, pilot.laplaces[1])
    states = [laplace.state for laplace in pilot.laplaces]
    mixture = _on_grid(stats, family, prior, pilot, states, sds)
    for _ in range(_MOVES if prior.zero else 0):
        if mixture.is_settled:
            break
        states = mixture.design.curve_states(mixture.laplace.state)
        wide = np.zeros((len(basis), mixture.design.design.whole.shape[1]))
        wide[:, mixture.design.columns[1]] = basis
        mixture = _on_grid(stats, family, prior, pilot, states, _sds(wide, mixture.laplace))
    return mixture


def _on_grid(
    stats: Statistics,
    family: Family,
    prior: Any,
    pilot: Pilot,
    states: Sequence[State],
    sds: Floats,
) -> GridMixture:
    """The mixture on a grid at curves; `sds` are posterior sds of the second at its knots."""
    components, curves, rows = family.components, pilot.curves, pilot.rows
    wider = np.minimum(_SHIFT * sds, _MOST_SHIFT)
    at_rows = [state.at(curve.design) for curve, state in zip(curves, states, strict=True)]
    raised = spline_matrix(curves[1].position, curves[1].basis.knots) @ wider
    merged_rows = merged(components, stats, rows, curves, at_rows, raised, pilot.data.spread)
    design = make_weights(components, prior, merged_rows, curves, family.curves, rows.n)
    joint = cells_of(stats, rows, "joint")
    kinds = {"heavy": prior.mixture, "zero": prior.zero}
    cells = make_cells(family, joint, merged_rows, design.functions, **kinds)
    target = MixtureTarget(design, cells)
    (laplace,) = find_mode(target, [design.start(states)], ahead=True)
    return GridMixture(states, wider, target, laplace)


def _sds(matrix: Floats, laplace: Laplace) -> Floats:
    """Approximate posterior sds of linear functions of a design's coefficients."""
    ends = np.cumsum([len(block.precision) for block in laplace.blocks], dtype=int)
    *parts, line = np.split(matrix, ends, axis=1)
    total = np.square(line @ laplace.line_root).sum(axis=1)
    shifts = np.split(laplace.line_shift, ends, axis=1)[:-1]
    known = zip(laplace.blocks, parts, shifts, laplace.state.taus, strict=True)
    for block, part, shift, tau in known:
        if part.any():
            sd = tau / np.sqrt(1.0 + block.precision * tau**2)
            total += np.square((part @ block.rotation - line @ shift) * sd).sum(axis=1)
    return np.sqrt(total)
