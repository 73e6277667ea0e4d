"""Pilot: the penalised mode of both curves by Fisher scoring, and the information around it.

Everything that `coordinates` needs is computed here from statistics in milliseconds, in numpy. The
pilot changes nothing in the model: it says where the posterior is and how wide.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, special

from .._lib.errors import FitError
from .curve_terms import Block, BlockPilot, CurveDesign, CurvePilot, CurveState

__all__ = [
    "Target",
    "best_start",
    "best_tau",
    "half_normal_scale",
    "run_pilot",
    "scale_log_density",
    "scoring_step",
    "summary",
]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Target:
    """The log marginal as the pilot sees it, row by row.

    Attributes
    ----------
    likelihood
        (first curve, second curve) at the rows -> value and the derivatives in both, (3, rows).
    information
        The same -> expected information of the first, orthogonal to that of the second, and a lower
        bound of the second's.
    most
        Largest sizes of both curves that cells can resolve.
    farthest
        That the curves may move in one step.
    """

    likelihood: Callable[[Floats, Floats], Floats]
    information: Callable[[Floats, Floats], tuple[Floats, Floats]]
    most: tuple[float, float]
    farthest: tuple[float, float]


_STEP = 1e-3  # of the central difference that gives observed information
_LEAST = 0.2  # of the lower bound of expected information that observed information may be


def half_normal_scale(position: Floats, scale: float) -> Floats:
    """Tau with P(tau < .) half-normal of the given scale, at a standard normal position q."""
    low = special.erfinv(0.5 * special.erfc(-np.minimum(position, 0.0) / np.sqrt(2.0)))
    high = special.erfcinv(0.5 * special.erfc(np.maximum(position, 0.0) / np.sqrt(2.0)))
    return np.asarray(scale * np.sqrt(2.0) * np.where(position < 0, low, high))


def scale_log_density(position: Floats, scale: float, precision: Floats, pull: Floats) -> Floats:
    """Log posterior density of q, tau = half_normal_scale(q), with the coefficients integrated out.

    The information around the mode makes each coefficient's data-only centre N(0, tau^2 + 1/d).
    """
    tau2 = half_normal_scale(position, scale)[..., None] ** 2
    shrink = 1.0 + precision * tau2
    data = -0.5 * np.log(shrink) + 0.5 * pull**2 * tau2 / shrink
    return np.asarray(data.sum(axis=-1) - 0.5 * position**2)


_POSITIONS = np.linspace(-5.0, 5.0, 401)


def _observed_information(target: Target, m: Floats, c: Floats) -> Floats:
    """Minus the second derivative of the log marginal in the second curve, row by row."""
    above, below = (target.likelihood(m, c + step)[2] for step in (_STEP, -_STEP))
    return (below - above) / (2.0 * _STEP)


def _informations(both: Floats, bound: Floats, observed: Floats | None = None) -> Floats:
    """Information of a curve's coefficients, whose functions are `both`: (p, p), positive.

    Observed information is noisy row by row, and may be negative, but the noise averages out over
    a smooth function: it counts in full where, as a quadratic form in the coefficients, it is
    above ``_LEAST`` times a lower bound of the expected one.
    """
    floor = both.T @ (bound[:, None] * both)
    if observed is None:
        return np.asarray(floor)
    floor[np.diag_indices_from(floor)] += 1e-6 + 1e-12 * np.abs(floor).max()
    seen = both.T @ (observed[:, None] * both)
    root = linalg.cholesky(floor, lower=True)
    half = linalg.solve_triangular(root, seen, lower=True)
    ratio = linalg.solve_triangular(root, half.T, lower=True)
    value, vector = linalg.eigh(0.5 * (ratio + ratio.T))
    half = (root @ vector) * np.sqrt(np.maximum(value, _LEAST))
    return np.asarray(half @ half.T)


def scoring_step(
    design: CurveDesign, state: CurveState, slope: Floats, information: Floats
) -> Floats:
    """The step to the mode of the quadratic around a state."""
    mean, precision = state.prior(design)
    hessian = information + np.diag(precision)
    right = slope - precision * (state.coefficients - mean)
    return np.asarray(linalg.solve(hessian, right, assume_a="pos"))


def _integrated(
    information: Floats, slope: Floats, precision: Floats, away: Floats, kept: int
) -> tuple[Floats, Floats]:
    """Information and slope of the first coefficients, the others integrated out at their taus."""
    size = len(slope)
    own = information[kept:, kept:] + np.diag(precision[kept:size])
    cross = information[kept:, :kept]
    solved = linalg.solve(own, cross, assume_a="pos")
    rest = slope[kept:] - precision[kept:size] * away[kept:size]
    return information[:kept, :kept] - cross.T @ solved, slope[:kept] - solved.T @ rest


def summary(
    design: CurveDesign, state: CurveState, slope: Floats, information: Floats
) -> CurvePilot:
    """Coordinates from the log marginal's slope and information in all coefficients."""
    mean, precision = state.prior(design)
    x, cut = state.coefficients, [0, *design.ends.tolist()]
    lines = slice(cut[-1], None)
    line_information = information[lines, lines] + np.diag(precision[lines])
    shift = linalg.solve(line_information, information[lines, : cut[-1]], assume_a="pos")
    root = linalg.inv(linalg.cholesky(line_information))
    found = []
    for start, end in reversed(list(pairwise(cut))):
        information, slope = _integrated(information, slope, precision, x - mean, end)
        own = information[start:end, start:end]
        value, rotation = linalg.eigh(0.5 * (own + own.T))
        rotation = rotation[:, ::-1]
        if len(value):  # signs fixed, so that rounding elsewhere cannot flip a coordinate
            largest = np.abs(rotation).argmax(axis=0)
            rotation = rotation * np.sign(rotation[largest, np.arange(len(value))])
        pull = slope[start:end] + information[start:end, :end] @ x[:end]
        found.append((rotation, value[::-1], pull, information[start:end, :start]))
    turn = linalg.block_diag(*(rotation for rotation, *_ in reversed(found)))
    if not found:
        turn = np.zeros((0, 0))
    z = turn.T @ x[: cut[-1]]
    blocks = []
    for start, (rotation, value, pull, coupling) in zip(cut, reversed(found), strict=False):
        turned = rotation.T @ coupling @ turn[:start, :start]
        pull = rotation.T @ pull
        here = pull - turned @ z[:start]
        blocks.append(BlockPilot(rotation, np.maximum(value, 0.0), pull, turned, here))
    centre = x[lines] + shift @ x[: cut[-1]]
    return CurvePilot(tuple(blocks), centre, shift @ turn, root, state)


def best_tau(block: Block, pilot: BlockPilot) -> float:
    """Posterior mean position of tau, which unlike the mode never sits at 0."""
    if not len(pilot.precision):
        return block.scale
    log_density = scale_log_density(_POSITIONS, block.scale, pilot.precision, pilot.here)
    weight = np.exp(log_density - log_density.max())
    position = np.array(weight @ _POSITIONS / weight.sum())
    return float(half_normal_scale(position, block.scale))


def best_start(
    designs: tuple[CurveDesign, CurveDesign],
    target: Target,
    starts: Sequence[tuple[CurveState, CurveState]],
) -> tuple[CurveState, CurveState]:
    """The start of highest penalised log density; the first where none has one."""
    if len(starts) == 1:
        return starts[0]
    return max(starts, key=lambda states: _log_density(designs, target, states))


def run_pilot(
    designs: tuple[CurveDesign, CurveDesign],
    target: Target,
    start: tuple[CurveState, CurveState],
    rounds: int = 60,
) -> tuple[CurvePilot, CurvePilot]:
    """Find the mode of both curves given smoothing scales that are re-estimated on the way.

    Parameters
    ----------
    designs
        Of both curves.
    target
        Log marginal with its gradient, and expected information, row by row.
    start
        Coefficients of both curves to start from.
    rounds
        Scoring steps at most.

    Raises
    ------
    FitError
        If the log marginal is not finite at the start.
    """
    states, wholes = list(start), [d.whole for d in designs]
    pilots: list[CurvePilot] = []
    for _ in range(rounds):
        m, c = (s.at(d) for s, d in zip(states, designs, strict=True))
        value, *gradients = target.likelihood(m, c)
        if not np.isfinite(value).all():
            bad = int((~np.isfinite(value)).sum())
            raise FitError(
                f"the log marginal of {bad} bins is not finite at the start: are outcomes and "
                "exposures in units that make rates astronomically large or small?"
            )
        first, second = target.information(m, c)
        weights = (
            _informations(wholes[0], first),
            _informations(wholes[1], second, _observed_information(target, m, c)),
        )
        slopes = [whole.T @ g for whole, g in zip(wholes, gradients, strict=True)]
        pilots = [summary(*part) for part in zip(designs, states, slopes, weights, strict=True)]
        old = np.concatenate([s.taus for s in states])
        states = [
            replace(s, taus=tuple(map(best_tau, d.blocks, p.blocks)))
            for s, d, p in zip(states, designs, pilots, strict=True)
        ]
        steps = [scoring_step(*part) for part in zip(designs, states, slopes, weights, strict=True)]
        states, moved = _line_search(designs, states, steps, target, weights)
        taus = np.concatenate([s.taus for s in states])
        drift = float(np.abs(np.log(taus / old)).max(initial=0.0))
        if moved < 1e-3 and drift < 1e-2:
            break
    return pilots[0], pilots[1]


def _log_density(
    designs: tuple[CurveDesign, CurveDesign], target: Target, states: Sequence[CurveState]
) -> float:
    """Log marginal of all rows and log prior of the coefficients; -inf where it is no number."""
    m, c = (s.at(d) for s, d in zip(states, designs, strict=True))
    if not (np.abs(m).max() <= target.most[0] and np.abs(c).max() <= target.most[1]):
        return -np.inf
    prior = sum(s.log_prior(d) for s, d in zip(states, designs, strict=True))
    density = float(target.likelihood(m, c)[0].sum() + prior)
    return density if np.isfinite(density) else -np.inf


def _line_search(
    designs: tuple[CurveDesign, CurveDesign],
    states: list[CurveState],
    steps: list[Floats],
    target: Target,
    weights: tuple[Floats, Floats],
) -> tuple[list[CurveState], float]:
    """Take the longest halved step that does not lower the penalised log density.

    No row's curve moves farther than it may: far above the data the negative binomial's log
    probability is so flat in log mean that the way back is long. The second value is the squared
    length of the step in the data's information.
    """
    here = _log_density(designs, target, states)
    moves = (float(np.abs(d.whole @ step).max()) for d, step in zip(designs, steps, strict=True))
    excess = max(move / most for move, most in zip(moves, target.farthest, strict=True))
    for halving in range(30):
        factor = 0.5**halving / max(excess, 1.0)
        tried = [s.moved(step, factor) for s, step in zip(states, steps, strict=True)]
        if _log_density(designs, target, tried) >= here - 1e-9 * abs(here):
            change = (factor * step for step in steps)
            return tried, float(sum(x @ w @ x for w, x in zip(weights, change, strict=True)))
    return states, 0.0
