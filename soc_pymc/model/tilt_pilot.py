"""The penalised mode of a tilt by Fisher scoring, and the information around it.

It changes nothing in the model: it says where the posterior is and how wide.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from .._lib.errors import FitError
from ..families.components import MixtureCells
from ..families.mixture_kernel import all_bins, information
from .curve_terms import CurvePilot, CurveState
from .pilot import best_tau, scoring_step, summary
from .tilt_design import TiltDesign

__all__ = ["run_tilt_pilot"]

Floats = NDArray[np.float64]

_ROUNDS = 60
_LEAST = 0.2  # of expected information that observed information may be
_FARTHEST = 3.0  # that the tilt may move in one step


@dataclass(frozen=True)
class _Local:
    """Slope and information of the coefficients somewhere."""

    value: float
    slope: Floats
    information: Floats


def _value_and_slope(tilt: Floats, cells: MixtureCells) -> tuple[float, Floats]:
    value, slope = np.empty((1, len(tilt))), np.empty((1, *tilt.shape))
    all_bins(tilt[None], value, slope, *cells.arrays)
    return float(value.sum()), slope[0]


def _local(design: TiltDesign, cells: MixtureCells, x: Floats) -> _Local:
    tilt, inner = design.tilt(x), design.slopes(x)
    value, slope = _value_and_slope(tilt, cells)
    whole = design.design.whole
    by_bin = np.matmul(inner, whole.reshape(len(tilt), -1, len(x)))
    flat = by_bin.reshape(-1, len(x))
    expected, observed = (
        flat.T @ np.matmul(part, by_bin).reshape(-1, len(x)) for part in information(tilt, cells)
    )
    return _Local(value, flat.T @ slope.ravel(), _floored(expected, observed))


def _floored(expected: Floats, observed: Floats) -> Floats:
    """Observed information where it is above a share of the expected one, as quadratic forms."""
    floor = expected.copy()
    floor[np.diag_indices_from(floor)] += 1e-6 + 1e-10 * np.abs(floor).max()
    root = linalg.cholesky(floor, lower=True)
    half = linalg.solve_triangular(root, observed, lower=True)
    ratio = linalg.solve_triangular(root, half.T, lower=True)
    value, vector = linalg.eigh(0.5 * (ratio + ratio.T))
    half = (root @ vector) * np.sqrt(np.maximum(value, _LEAST))
    return np.asarray(half @ half.T)


def run_tilt_pilot(design: TiltDesign, cells: MixtureCells, start: Floats) -> CurvePilot:
    """Find the mode of the coefficients, given scales that are re-estimated on the way.

    Parameters
    ----------
    design
        The tilt's linear model.
    cells
        The likelihood's data.
    start
        Coefficients to start from.

    Raises
    ------
    FitError
        If the log marginal is not finite at the start.
    """
    linear = design.design
    state = CurveState(start, tuple(0.5 * block.scale for block in linear.blocks))
    for _ in range(_ROUNDS):
        local = _local(design, cells, state.coefficients)
        if not np.isfinite(local.value):
            raise FitError(
                "the log marginal of the mixture is not finite at the start: are the data in a "
                "unit that makes theta astronomically large or small?"
            )
        pilot = summary(linear, state, local.slope, local.information)
        taus = tuple(map(best_tau, linear.blocks, pilot.blocks))
        drift = float(np.abs(np.log(np.array(taus) / np.array(state.taus))).max(initial=0.0))
        state = replace(state, taus=taus)
        step = scoring_step(linear, state, local.slope, local.information)
        state, moved = _line_search(design, cells, state, step, local.information)
        if moved < 1e-3 and drift < 1e-2:
            break
    local = _local(design, cells, state.coefficients)
    return summary(linear, state, local.slope, local.information)


def _line_search(
    design: TiltDesign, cells: MixtureCells, state: CurveState, step: Floats, info: Floats
) -> tuple[CurveState, float]:
    """The longest halved step that does not lower the penalised log density, and its length."""

    def log_density(at: CurveState) -> float:
        value, _ = _value_and_slope(design.tilt(at.coefficients), cells)
        return value + at.log_prior(design.design)

    here = log_density(state)
    x = state.coefficients
    longest = float(np.abs(design.tilt(x + 1e-3 * step) - design.tilt(x)).max()) * 1e3
    for halving in range(30):
        factor = 0.5**halving * min(1.0, _FARTHEST / max(longest, 1e-300))
        tried = state.moved(step, factor)
        if log_density(tried) >= here - 1e-9 * abs(here):
            return tried, float(factor**2 * step @ info @ step)
    return state, 0.0
