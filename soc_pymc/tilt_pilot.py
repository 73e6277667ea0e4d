"""The penalised mode of a tilt by Fisher scoring, and the information around it.

Coefficients come in three groups: 0 with priors of their own, and 1 and 2, whose prior scales tau
are learnt. The pilot changes nothing in the model: it says where the posterior is and how wide.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from .errors import FitError
from .families.components import MixtureCells
from .families.mixture_kernel import all_bins, information
from .pilot import half_normal_scale, scale_log_density
from .tilt_design import TiltDesign

__all__ = ["TiltPilot", "Wiggle", "run_tilt_pilot"]

Floats = NDArray[np.float64]

_ROUNDS = 60
_LEAST = 0.2  # of expected information that observed information may be
_FARTHEST = 3.0  # that a coefficient may move in one step, in units of its prior
_POSITIONS = np.linspace(-5.0, 5.0, 401)


@dataclass(frozen=True)
class Wiggle:
    """Coefficients of one learnt scale, rotated so that the information is diagonal.

    Attributes
    ----------
    rotation
        Coefficients = rotation @ rotated ones.
    precision, pull
        Data precision d of the rotated coefficients, and d times the data's own centre.
    """

    rotation: Floats
    precision: Floats
    pull: Floats


@dataclass(frozen=True)
class TiltPilot:
    """What the pilot knows.

    Attributes
    ----------
    shape, drift
        Coefficients of groups 1 and 2; those of the drift given the shape's.
    drift_by_shape
        What the drift's pull loses for each unit of the rotated shape coefficients, (p2, p1).
    line_centre, line_shift, line_root
        Group 0 is about ``line_centre - line_shift @ z + line_root @ N(0, I)`` given the rotated
        coefficients z of both others.
    coefficients, taus
        Where the search ended.
    """

    shape: Wiggle
    drift: Wiggle
    drift_by_shape: Floats
    line_centre: Floats
    line_shift: Floats
    line_root: Floats
    coefficients: Floats
    taus: tuple[float, float]


@dataclass(frozen=True)
class _Local:
    """Log marginal, slope and information at some coefficients."""

    value: float
    slope: Floats
    expected: Floats
    observed: Floats


def _value_and_slope(design: TiltDesign, cells: MixtureCells, x: Floats) -> tuple[float, Floats]:
    tilt = design.tilt(x)[None]
    value, slope = np.empty(tilt.shape[:2]), np.empty(tilt.shape)
    all_bins(tilt, value, slope, *cells.arrays)
    return float(value.sum()), np.asarray(design.at_bins.T @ slope.ravel())


def _local(design: TiltDesign, cells: MixtureCells, x: Floats) -> _Local:
    value, slope = _value_and_slope(design, cells, x)
    functions = len(design.labels)
    by_bin = design.at_bins.reshape(-1, functions, len(x))
    both = []
    for part in information(design.tilt(x), cells):
        inner = np.matmul(part, by_bin)
        both.append(by_bin.reshape(-1, len(x)).T @ inner.reshape(-1, len(x)))
    return _Local(value, slope, *both)


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


def _eliminated(
    matrix: Floats, slope: Floats, kept: NDArray[np.bool_], gone: NDArray[np.bool_]
) -> tuple[Floats, Floats]:
    """Information and slope of some coefficients with others at their best."""
    if not gone.any():
        return matrix[np.ix_(kept, kept)], slope[kept]
    cross = matrix[np.ix_(gone, kept)]
    away = linalg.solve(matrix[np.ix_(gone, gone)], cross, assume_a="pos")
    return matrix[np.ix_(kept, kept)] - cross.T @ away, slope[kept] - away.T @ slope[gone]


def _wiggle(info: Floats, slope: Floats, at: Floats) -> Wiggle:
    value, rotation = linalg.eigh(0.5 * (info + info.T))
    rotation = rotation[:, ::-1]
    precision = np.maximum(value[::-1], 0.0)
    if len(value):  # signs fixed, so that rounding elsewhere cannot flip a coordinate
        largest = np.abs(rotation).argmax(axis=0)
        rotation = rotation * np.sign(rotation[largest, np.arange(len(value))])
    return Wiggle(rotation, precision, rotation.T @ slope + precision * (rotation.T @ at))


def _best_tau(wiggle: Wiggle, scale: float) -> float:
    if not len(wiggle.precision):
        return scale
    log_density = scale_log_density(_POSITIONS, scale, wiggle.precision, wiggle.pull)
    weight = np.exp(log_density - log_density.max())
    return float(half_normal_scale(np.array(weight @ _POSITIONS / weight.sum()), scale))


def _prior(design: TiltDesign, taus: tuple[float, float]) -> tuple[Floats, Floats]:
    """Prior mean and precision of all coefficients."""
    mean, precision = np.zeros(len(design.group)), np.empty(len(design.group))
    line = design.group == 0
    mean[line], precision[line] = design.mean, design.sd**-2.0
    for k, tau in enumerate(taus, start=1):
        precision[design.group == k] = tau**-2
    return mean, precision


def run_tilt_pilot(
    design: TiltDesign, cells: MixtureCells, scales: tuple[float, float]
) -> TiltPilot:
    """Find the mode of the coefficients, given scales that are re-estimated on the way.

    Parameters
    ----------
    design
        The tilt's linear model.
    cells
        The likelihood's data.
    scales
        Of the half-normal priors of the two taus.

    Raises
    ------
    FitError
        If the log marginal is not finite at the start.
    """
    x, _ = _prior(design, (1.0, 1.0))
    taus = (0.5 * scales[0], 0.5 * scales[1])
    groups = [design.group == k for k in range(3)]
    for _ in range(_ROUNDS):
        local = _local(design, cells, x)
        if not np.isfinite(local.value):
            raise FitError(
                "the log marginal of the mixture is not finite at the start: are the data in a "
                "unit that makes theta astronomically large or small?"
            )
        info = _floored(local.expected, local.observed)
        before, tau_list = taus, []
        mean, precision = _prior(design, taus)
        slope = local.slope - precision * (x - mean)
        posterior = info + np.diag(precision)
        for k in (1, 2):
            # the group's own prior is taken out again
            own = np.where(groups[k], precision, 0.0)
            found = _eliminated(
                posterior - np.diag(own), slope + own * (x - mean), groups[k], ~groups[k]
            )
            tau_list.append(_best_tau(_wiggle(*found, x[groups[k]]), scales[k - 1]))
        taus = (tau_list[0], tau_list[1])
        mean, precision = _prior(design, taus)
        step = linalg.solve(
            info + np.diag(precision), local.slope - precision * (x - mean), assume_a="pos"
        )
        x, moved = _line_search(design, cells, x, step, (mean, precision), info)
        drift = max(abs(np.log(a / b)) for a, b in zip(taus, before, strict=True))
        if moved < 1e-3 and drift < 1e-2:
            break
    return _summary(design, _local(design, cells, x), x, taus)


def _line_search(
    design: TiltDesign,
    cells: MixtureCells,
    x: Floats,
    step: Floats,
    prior: tuple[Floats, Floats],
    info: Floats,
) -> tuple[Floats, float]:
    """The longest halved step that does not lower the penalised log density, and its length."""
    mean, precision = prior

    def log_density(at: Floats) -> float:
        value, _ = _value_and_slope(design, cells, at)
        return value - 0.5 * float(precision @ (at - mean) ** 2)

    here = log_density(x)
    longest = float(np.abs(design.tilt(step)).max())
    for halving in range(30):
        factor = 0.5**halving * min(1.0, _FARTHEST / max(longest, 1e-300))
        tried = x + factor * step
        if log_density(tried) >= here - 1e-9 * abs(here):
            return tried, float(factor**2 * step @ info @ step)
    return x, 0.0


def _summary(design: TiltDesign, local: _Local, x: Floats, taus: tuple[float, float]) -> TiltPilot:
    line, shape, drift = (design.group == k for k in range(3))
    info = _floored(local.expected, local.observed)
    mean, precision = _prior(design, taus)
    slope = np.where(line, local.slope - precision * (x - mean), local.slope)
    with_line = info + np.diag(np.where(line, precision, 0.0))
    # the shape: the drift given its prior is taken out too
    rest = with_line + np.diag(np.where(drift, precision, 0.0))
    drift_slope = np.where(drift, slope - precision * (x - mean), slope)
    first = _wiggle(*_eliminated(rest, drift_slope, shape, line | drift), x[shape])
    # the drift given the shape
    both, both_slope = _eliminated(with_line, slope, shape | drift, line)
    p = int(shape.sum())
    second = _wiggle(both[p:, p:], both_slope[p:], x[drift])
    by_shape = second.rotation.T @ both[p:, :p] @ first.rotation
    pull = second.pull + by_shape @ (first.rotation.T @ x[shape])
    second = Wiggle(second.rotation, second.precision, pull)
    inner = with_line[np.ix_(line, line)]
    shift = linalg.solve(inner, with_line[np.ix_(line, shape | drift)], assume_a="pos")
    rotation = linalg.block_diag(first.rotation, second.rotation)
    centre = x[line] + shift @ x[shape | drift] + linalg.solve(inner, slope[line], assume_a="pos")
    root: Floats = np.asarray(linalg.inv(linalg.cholesky(inner)), dtype=float)
    return TiltPilot(first, second, by_shape, centre, shift @ rotation, root, x, taus)
