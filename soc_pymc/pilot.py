"""Pilot: the penalised mode of both curves by Fisher scoring, and the information around it.

Everything that `coordinates` needs is computed here from statistics in milliseconds, in numpy. The
pilot changes nothing in the model: it says where the posterior is and how wide.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, special

from .errors import FitError

__all__ = [
    "CurveDesign",
    "CurvePilot",
    "CurveState",
    "best_start",
    "curve_state",
    "flat_state",
    "half_normal_scale",
    "run_pilot",
    "scale_log_density",
]

Floats = NDArray[np.float64]
Likelihood = Callable[[Floats, Floats], Floats]
"""(log mean, log cv2) by bin -> value, derivatives in log mean and in log cv2: shape (3, bins)."""

Information = Callable[[Floats, Floats], tuple[Floats, Floats]]
"""(log mean, log cv2) by bin -> expected information of each, orthogonal to the other's."""

_STEP = 1e-3  # of the central difference that gives observed information
_LEAST = 0.2  # of the lower bound of expected information that observed information may be
_FARTHEST = 3.0  # that a curve may move in one step


@dataclass(frozen=True)
class CurveDesign:
    """One curve's linear model at the bins and its prior.

    Attributes
    ----------
    line, wiggle
        Values of the basis functions at the bins, shapes (bins, 1 or 2) and (bins, k).
    line_mean, line_sd
        Normal prior of the line's coefficients.
    wiggle_scale
        Scale of the half-normal prior of tau, the standard deviation of the wiggly coefficients.
    """

    line: Floats
    wiggle: Floats
    line_mean: Floats
    line_sd: Floats
    wiggle_scale: float


@dataclass(frozen=True)
class CurveState:
    """Coefficients of one curve and its smoothing scale."""

    line: Floats
    wiggle: Floats
    tau: float

    def at(self, design: CurveDesign) -> Floats:
        """Values at the bins."""
        return design.line @ self.line + design.wiggle @ self.wiggle

    def log_prior(self, design: CurveDesign) -> float:
        """Log prior density of the coefficients given tau, up to a constant."""
        line = (self.line - design.line_mean) / design.line_sd
        return float(-0.5 * line @ line - 0.5 * self.wiggle @ self.wiggle / self.tau**2)

    def moved(self, step: tuple[Floats, Floats], factor: float) -> "CurveState":
        """Coefficients a multiple of a step away."""
        return CurveState(self.line + factor * step[0], self.wiggle + factor * step[1], self.tau)


@dataclass(frozen=True)
class CurvePilot:
    """What the pilot knows of one curve, in coordinates that its information diagonalises.

    Attributes
    ----------
    rotation
        Orthogonal matrix (k, k): wiggly coefficients = rotation @ rotated ones.
    line_centre, line_shift, line_root
        Line coefficients are about ``line_centre - line_shift @ z + line_root @ N(0, I)`` given
        the rotated coefficients z.
    state
        The coefficients themselves where the search ended.
    precision, pull
        Of the rotated coefficients z: data precision d >= 0 and d times the data's own centre, so
        that given tau each is about N(pull s^2, s^2) with s^2 = tau^2 / (1 + d tau^2).
    """

    rotation: Floats
    line_centre: Floats
    line_shift: Floats
    line_root: Floats
    precision: Floats
    pull: Floats
    state: CurveState


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


def _observed_cv2_information(likelihood: Likelihood, m: Floats, c: Floats) -> Floats:
    """Minus the second derivative of the log marginal in log cv2, bin by bin."""
    above, below = likelihood(m, c + _STEP)[2], likelihood(m, c - _STEP)[2]
    return (below - above) / (2.0 * _STEP)


def _informations(design: CurveDesign, bound: Floats, observed: Floats | None = None) -> Floats:
    """Information of a curve's coefficients, the line's first: shape (p, p), positive.

    Observed information is noisy bin by bin, and may be negative, but the noise averages out over
    a smooth function: it counts in full where, as a quadratic form in the coefficients, it is
    above ``_LEAST`` times a lower bound of the expected one.
    """
    both = np.column_stack([design.line, design.wiggle])
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


def _scoring_step(
    design: CurveDesign, state: CurveState, gradient: Floats, information: Floats
) -> tuple[Floats, Floats]:
    both = np.column_stack([design.line, design.wiggle])
    prior = np.concatenate([1.0 / design.line_sd**2, np.full(len(state.wiggle), state.tau**-2)])
    away = np.concatenate([state.line - design.line_mean, state.wiggle])
    hessian = information + np.diag(prior)
    step = linalg.solve(hessian, both.T @ gradient - prior * away, assume_a="pos")
    lines = len(state.line)
    return step[:lines], step[lines:]


def _summary(
    design: CurveDesign, state: CurveState, gradient: Floats, information: Floats
) -> CurvePilot:
    x, phi = design.line, design.wiggle
    lines = x.shape[1]
    line_information = information[:lines, :lines] + np.diag(1.0 / design.line_sd**2)
    cross = information[:lines, lines:]
    shift = linalg.solve(line_information, cross, assume_a="pos")
    schur = information[lines:, lines:] - cross.T @ shift
    value, rotation = linalg.eigh(0.5 * (schur + schur.T))
    precision = np.maximum(value[::-1], 0.0)
    rotation = rotation[:, ::-1]
    if len(value):  # signs fixed, so that rounding elsewhere cannot flip a coordinate
        largest = np.abs(rotation).argmax(axis=0)
        rotation = rotation * np.sign(rotation[largest, np.arange(len(value))])
    z = rotation.T @ state.wiggle
    line_gradient = x.T @ gradient - (state.line - design.line_mean) / design.line_sd**2
    slope = rotation.T @ (phi.T @ gradient - shift.T @ line_gradient)
    centre = state.line + shift @ state.wiggle
    root = linalg.inv(linalg.cholesky(line_information))
    pull = slope + precision * z
    return CurvePilot(rotation, centre, shift @ rotation, root, precision, pull, state)


def _best_tau(design: CurveDesign, pilot: CurvePilot) -> float:
    """Posterior mean position of tau, which unlike the mode never sits at 0."""
    if not len(pilot.precision):
        return design.wiggle_scale
    log_density = scale_log_density(_POSITIONS, design.wiggle_scale, pilot.precision, pilot.pull)
    weight = np.exp(log_density - log_density.max())
    position = np.array(weight @ _POSITIONS / weight.sum())
    return float(half_normal_scale(position, design.wiggle_scale))


def flat_state(design: CurveDesign, level: float) -> CurveState:
    """A curve of one level everywhere."""
    line = np.concatenate([[level], np.zeros(design.line.shape[1] - 1)])
    return CurveState(line, np.zeros(design.wiggle.shape[1]), 0.5 * design.wiggle_scale)


def curve_state(design: CurveDesign, line: Floats, wiggle: Floats, values: Floats) -> CurveState:
    """The curve through values at the knots, where the basis functions are `line` and `wiggle`."""
    coefficients = np.linalg.solve(np.column_stack([line, wiggle]), values)
    lines = line.shape[1]
    # a step begins by finding tau, so that any will do here
    return CurveState(coefficients[:lines], coefficients[lines:], 0.5 * design.wiggle_scale)


def best_start(
    designs: tuple[CurveDesign, CurveDesign],
    likelihood: Likelihood,
    starts: Sequence[tuple[CurveState, CurveState]],
) -> tuple[CurveState, CurveState]:
    """The start of highest penalised log density; the first where none has one."""
    if len(starts) == 1:
        return starts[0]
    return max(starts, key=lambda states: _log_density(designs, likelihood, states))


def run_pilot(
    designs: tuple[CurveDesign, CurveDesign],
    likelihood: Likelihood,
    information: Information,
    start: tuple[CurveState, CurveState],
    rounds: int = 60,
) -> tuple[CurvePilot, CurvePilot]:
    """Find the mode of both curves given smoothing scales that are re-estimated on the way.

    Parameters
    ----------
    designs
        Of log mean and log cv2.
    likelihood, information
        Log marginal with its gradient, and expected information, bin by bin.
    start
        Coefficients of both curves to start from.
    rounds
        Scoring steps at most.

    Raises
    ------
    FitError
        If the log marginal is not finite at the start.
    """
    states = list(start)
    pilots: list[CurvePilot] = []
    for _ in range(rounds):
        m, c = (s.at(d) for s, d in zip(states, designs, strict=True))
        value, *gradients = likelihood(m, c)
        if not np.isfinite(value).all():
            bad = int((~np.isfinite(value)).sum())
            raise FitError(
                f"the log marginal of {bad} bins is not finite at the start: "
                "are exposures in a unit that makes rates astronomically large or small?"
            )
        mean_information, cv2_bound = information(m, c)
        observed = _observed_cv2_information(likelihood, m, c)
        weights = (
            _informations(designs[0], mean_information),
            _informations(designs[1], cv2_bound, observed),
        )
        pilots = [
            _summary(d, s, g, w)
            for d, s, g, w in zip(designs, states, gradients, weights, strict=True)
        ]
        old_taus = [s.tau for s in states]
        states = [
            replace(s, tau=_best_tau(d, p)) for s, d, p in zip(states, designs, pilots, strict=True)
        ]
        steps = [
            _scoring_step(d, s, g, w)
            for d, s, g, w in zip(designs, states, gradients, weights, strict=True)
        ]
        states, moved = _line_search(designs, states, steps, likelihood, weights)
        drift = max(abs(np.log(s.tau / t)) for s, t in zip(states, old_taus, strict=True))
        if moved < 1e-3 and drift < 1e-2:
            break
    return pilots[0], pilots[1]


def _log_density(
    designs: tuple[CurveDesign, CurveDesign], likelihood: Likelihood, states: Sequence[CurveState]
) -> float:
    """Log marginal of all bins and log prior of the coefficients; -inf where it is no number."""
    m, c = (s.at(d) for s, d in zip(states, designs, strict=True))
    if not (np.abs(c).max() <= 60 and np.abs(m).max() <= 300):  # beyond what cells can resolve
        return -np.inf
    prior = sum(s.log_prior(d) for s, d in zip(states, designs, strict=True))
    density = float(likelihood(m, c)[0].sum() + prior)
    return density if np.isfinite(density) else -np.inf


def _line_search(
    designs: tuple[CurveDesign, CurveDesign],
    states: list[CurveState],
    steps: list[tuple[Floats, Floats]],
    likelihood: Likelihood,
    weights: tuple[Floats, Floats],
) -> tuple[list[CurveState], float]:
    """Take the longest halved step that does not lower the penalised log density.

    No bin's curve moves by more than ``_FARTHEST``: far above the data the negative binomial's log
    probability is so flat in log mean that the way back is long. The second value is the squared
    length of the step in the data's information.
    """
    here = _log_density(designs, likelihood, states)
    moves = (d.line @ a + d.wiggle @ b for d, (a, b) in zip(designs, steps, strict=True))
    longest = max(float(np.abs(move).max()) for move in moves)
    for halving in range(30):
        factor = 0.5**halving * min(1.0, _FARTHEST / max(longest, _FARTHEST))
        tried = [s.moved(step, factor) for s, step in zip(states, steps, strict=True)]
        if _log_density(designs, likelihood, tried) >= here - 1e-9 * abs(here):
            change = (factor * np.concatenate(step) for step in steps)
            return tried, float(sum(x @ w @ x for w, x in zip(weights, change, strict=True)))
    return states, 0.0
