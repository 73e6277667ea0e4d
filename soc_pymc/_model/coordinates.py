"""Parameters as functions of coordinates that are near a standard normal, with NumPy alone.

On plain parameters variational inference fails silently, because the width of the coefficients
depends on their smoothing scale. So each parameter is a smooth function of a coordinate of its own
and of the parameters before it, chosen from the Laplace start. The log density of the coordinates
is that of the parameters' priors plus the log Jacobian; its gradient runs through the same steps
backwards. `pymc_model` builds the same parameters as PyMC variables.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize, special

from .._lib.arrays import Floats, Pair
from ..families.special_functions import HALF_LOG_2PI
from .laplace import BlockLaplace, Laplace, half_normal_scale, scale_log_density
from .levels import Levels
from .pilot import Pilot
from .terms import Curve, Design, Labels, Output

_POSITIONS = np.linspace(-8.0, 8.0, 3201)
# there a scale is 1e-50 of its prior's, and gradients are still accurate
_LEAST_POSITION = -15.0
_NO_SCALES = np.empty((1, 0))

# draws (draws, ...) of parameters by name; of scales the logarithm
type Parameters = dict[str, Floats]
# dims and values by name of all numbers that the parameters depend on
type Constants = Mapping[str, tuple[tuple[str, ...], ArrayLike]]


class Move(NamedTuple):
    """A parameter at its coordinates."""

    value: Floats  # (draws, size); of a scale its logarithm, (draws,)
    log_density: Floats  # (draws,): log prior plus log Jacobian
    # from the slope of any function in `value` to that function plus `log_density` in the
    # coordinates, (draws, size); adds the slopes in earlier parameters to a dict
    back: Callable[[Floats, Parameters], Floats]


@dataclass(frozen=True, eq=False)
class SmoothingScale:
    """A scale tau ~ half-normal, at the coordinate v.

    Its standard normal position in the prior is q = a + b sinh(d (asinh v + e)), whose shape
    (a, b, e, d) matches quantiles of the Laplace start's posterior of q (Jones and Pewsey 2009).
    """

    name: str
    prior: float  # scale of the half-normal
    shape: Floats
    size: int = 1

    @staticmethod
    def of(
        name: str, prior: float, precision: Floats, pull: Floats
    ) -> "SmoothingScale":
        """SmoothingScale of coefficients with this data precision and pull."""
        log_density = scale_log_density(_POSITIONS, prior, precision, pull)
        return SmoothingScale(name, prior, density_shape(_POSITIONS, log_density))

    def at(self, coordinates: Floats, before: Parameters) -> Move:
        """Return log tau."""
        a, b, e, d = self.shape
        v = coordinates[:, 0]
        inner = d * (np.arcsinh(v) + e)
        q = a + b * np.sinh(inner)
        steepness = d / np.sqrt(1.0 + v**2)
        rise = b * np.cosh(inner) * steepness  # dq / dv
        log_density = np.log(rise) - 0.5 * q**2 - HALF_LOG_2PI
        log_density_slope = np.tanh(inner) * steepness - v / (1.0 + v**2) - q * rise
        bounded = np.maximum(q, _LEAST_POSITION)
        tau = half_normal_scale(bounded, self.prior)
        # d log tau / dq is the ratio of the normal to the half-normal density, over tau
        standard = tau / self.prior
        log_rise = np.exp(0.5 * (standard**2 - bounded**2)) / (2.0 * standard) * rise
        log_rise = np.where(q > _LEAST_POSITION, log_rise, 0.0)

        def back(slope: Floats, slopes: Parameters) -> Floats:
            return (slope * log_rise + log_density_slope)[:, None]

        return Move(np.log(tau), log_density, back)

    def log_prior(self, tau: Floats) -> Floats:
        """Log density of the half-normal prior."""
        constant = np.log(2.0) - HALF_LOG_2PI - np.log(self.prior)
        return constant - 0.5 * (tau / self.prior) ** 2


@dataclass(frozen=True, eq=False)
class PenalisedCoefficients:
    """Coefficients z ~ N(0, tau) of a term, at coordinates w: z = pull s^2 + s w.

    Given tau, s^2 = tau^2 / (1 + precision tau^2) is about their posterior variance.
    """

    name: str
    scale: str  # name of tau
    # names of the coefficients that couple with these
    earlier: tuple[str, ...]
    laplace: BlockLaplace

    @property
    def size(self) -> int:
        """Number of coefficients."""
        return len(self.laplace.precision)

    def at(self, coordinates: Floats, before: Parameters) -> Move:
        """Return the coefficients."""
        laplace = self.laplace
        log_tau = before[self.scale][:, None]
        tau = np.exp(log_tau)
        shrinkage = 1.0 / (1.0 + laplace.precision * tau**2)
        # finite where 1 / tau^2 overflows
        log_sd = log_tau + 0.5 * np.log(shrinkage)
        sd = np.exp(log_sd)
        pull = laplace.pull
        if self.earlier:
            pull = pull - stacked(before, self.earlier) @ laplace.coupling.T
        centre = pull * sd**2
        noise = sd * coordinates
        value = centre + noise
        ratio = value / tau
        log_density = (log_sd - log_tau - 0.5 * ratio**2 - HALF_LOG_2PI).sum(axis=1)

        def back(slope: Floats, slopes: Parameters) -> Floats:
            slope = slope - ratio / tau
            by_log_tau = slope * shrinkage * (2.0 * centre + noise)
            by_log_tau = by_log_tau + ratio**2 - 1.0 + shrinkage
            _add_slope(slopes, self.scale, by_log_tau.sum(axis=1))
            if self.earlier:
                _add_stacked(
                    slopes, before, self.earlier, -(slope * sd**2) @ laplace.coupling
                )
            return slope * sd

        return Move(value, log_density, back)


class LevelShares(NamedTuple):
    """Parts of the line's variances that follow the squared scales of levels."""

    scales: tuple[SmoothingScale, ...]
    start: Floats  # of these scales
    shares: Floats  # (line, scales)


class Bend(NamedTuple):
    """Fall of the location's level as the dispersion rises, along which the data hardly change.

    Few events tell hardly more than E(theta^2) / E(theta), of which the dispersion has a share
    log(1 + exp(dispersion)) in the logarithm.
    """

    names: tuple[str, ...]  # of the dispersion's coefficients
    weights: Floats  # of these in its average over the items
    start: float  # this average at the Laplace start
    share: float  # of the fall that leaves E(theta^2) / E(theta) as it is

    def fall(self, before: Parameters) -> Pair:
        """Return the fall of the level (draws,), and its slope in the average dispersion."""
        average = stacked(before, self.names) @ self.weights
        fall = np.logaddexp(0.0, average) - np.logaddexp(0.0, self.start)
        return self.share * fall, self.share * special.expit(average)


@dataclass(frozen=True, eq=False)
class LineCoefficients:
    """Coefficients of the line with Normal priors, in coordinates given all terms.

    Where levels are integrated out, the more these may deviate, the less is known of their average,
    so the line's sds follow the levels' scales.
    """

    name: str
    design: Design
    laplace: Laplace
    earlier: tuple[str, ...]  # names of the coefficients of all terms
    levels: LevelShares | None = None
    bend: Bend | None = None

    @property
    def size(self) -> int:
        """Number of coefficients."""
        return len(self.design.line_mean)

    def at(self, coordinates: Floats, before: Parameters) -> Move:
        """Return the coefficients."""
        laplace = self.laplace
        sd = self.design.line_sd
        centre = laplace.line_centre
        if self.earlier:
            centre = centre - stacked(before, self.earlier) @ laplace.line_shift.T
        widths = np.ones(1)
        levels = self.levels
        if levels:
            log_scales = np.stack([before[s.name] for s in levels.scales], axis=1)
            squares = np.exp(2.0 * log_scales) / levels.start**2
            widths = np.sqrt(1.0 + (squares - 1.0) @ levels.shares.T)
        noise = widths * (coordinates @ laplace.line_root.T)
        value = centre + noise
        bend = self.bend
        if bend:
            fall, fall_slope = bend.fall(before)
            value[:, 0] -= fall
        deviation = (value - self.design.line_mean) / sd
        log_root = np.log(np.diagonal(laplace.line_root)) + np.log(widths)
        log_density = (log_root - 0.5 * deviation**2 - np.log(sd) - HALF_LOG_2PI).sum(
            axis=1
        )

        def back(slope: Floats, slopes: Parameters) -> Floats:
            slope = slope - deviation / sd
            if self.earlier:
                _add_stacked(slopes, before, self.earlier, -slope @ laplace.line_shift)
            if bend:
                by_average = -slope[:, 0] * fall_slope
                shifts = by_average[:, None] * bend.weights
                _add_stacked(slopes, before, bend.names, shifts)
            if levels:
                by_log_width = slope * noise + 1.0
                by_log_scale = ((by_log_width / widths**2) @ levels.shares) * squares
                pairs = zip(levels.scales, by_log_scale.T, strict=True)
                for scale, values in pairs:
                    _add_slope(slopes, scale.name, values)
            return (slope * widths) @ laplace.line_root

        return Move(value, log_density, back)

    def log_prior(self, line: Floats) -> Floats:
        """Log density of the Normal prior, summed over coefficients (..., k)."""
        deviation = (line - self.design.line_mean) / self.design.line_sd
        log_density = -0.5 * deviation**2 - np.log(self.design.line_sd) - HALF_LOG_2PI
        return log_density.sum(axis=-1)


# a parameter as a function of its coordinates and of earlier parameters
type Step = SmoothingScale | PenalisedCoefficients | LineCoefficients


def stacked(values: Mapping[str, Floats], names: Sequence[str]) -> Floats:
    """Parameters of several parameters side by side, (draws, k)."""
    return np.concatenate([values[name] for name in names], axis=1)


def _add_slope(slopes: Parameters, name: str, slope: Floats) -> None:
    slopes[name] = slopes[name] + slope if name in slopes else slope


def _add_stacked(
    slopes: Parameters, values: Parameters, names: Sequence[str], slope: Floats
) -> None:
    ends = np.cumsum([values[name].shape[1] for name in names])
    for name, part in zip(names, np.split(slope, ends[:-1], axis=1), strict=True):
        _add_slope(slopes, name, part)


# --- all parameters -------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Coefficients:
    """Coefficients of one design, the steps that lead to them, and what is linear in them."""

    design: Design
    laplace: Laplace
    outputs: Sequence[Output]
    scales: tuple[SmoothingScale, ...]  # of the blocks
    terms: tuple[PenalisedCoefficients, ...]
    line: LineCoefficients

    @staticmethod
    def of(
        design: Design,
        laplace: Laplace,
        outputs: Sequence[Output],
        levels: LevelShares | None = None,
    ) -> "Coefficients":
        """Coefficients from the Laplace start; of a curve with levels that are integrated out."""
        names = tuple(block.name for block in design.blocks)
        scales = []
        terms = []
        for k, (block, start) in enumerate(
            zip(design.blocks, laplace.blocks, strict=True)
        ):
            name = f"{block.name}_sd"
            fitted = start.precision, start.mode_pull
            scales.append(SmoothingScale.of(name, block.scale, *fitted))
            terms.append(PenalisedCoefficients(block.name, name, names[:k], start))
        return Coefficients(
            design=design,
            laplace=laplace,
            outputs=outputs,
            scales=tuple(scales),
            terms=tuple(terms),
            line=LineCoefficients(design.name, design, laplace, names, levels),
        )

    @property
    def level_scales(self) -> tuple[SmoothingScale, ...]:
        """Scales of deviations that are integrated out."""
        return self.line.levels.scales if self.line.levels else ()

    @property
    def names(self) -> list[str]:
        """Variables of the coefficients, in the order of the design."""
        return [*(block.name for block in self.design.blocks), self.design.name]

    @property
    def steps(self) -> list[Step]:
        """All parameters but the levels' scales, in the order of the coordinates."""
        terms = [
            step for pair in zip(self.scales, self.terms, strict=True) for step in pair
        ]
        return [*terms, self.line]

    @cached_property
    def at_rows(self) -> Floats:
        """Parameters at the rows of all coefficients, which are rotated, (rows, k)."""
        # a rotation of independent, equal normals does not change the prior
        return self.design.matrix @ self.laplace.turn

    @property
    def constants(self) -> Constants:
        """Dims and values by name of all numbers that the parameters depend on."""
        name = self.line.name
        values: dict[str, Floats] = {}
        for scale in (*self.level_scales, *self.scales):
            values[f"{scale.name}_prior_scale"] = np.asarray(scale.prior)
            values[f"{scale.name}_shape"] = scale.shape
        for term in self.terms:
            values[f"{term.name}_pull"] = term.laplace.pull
            if term.earlier:
                values[f"{term.name}_coupling"] = term.laplace.coupling
            values[f"{term.name}_precision"] = term.laplace.precision
        if bend := self.line.bend:
            values[f"{name}_bend"] = bend.weights
            values[f"{name}_bend_start"] = np.asarray(bend.start)
            values[f"{name}_bend_share"] = np.asarray(bend.share)
        values[f"{name}_root"] = self.laplace.line_root
        values[f"{name}_shift"] = self.laplace.line_shift
        constants = {
            key: (tuple(f"{key}_dim_{k}" for k in range(value.ndim)), value)
            for key, value in values.items()
        }
        of_line = {
            "prior_mean": self.design.line_mean,
            "prior_sd": self.design.line_sd,
            "centre": self.laplace.line_centre,
        }
        for key, value in of_line.items():
            constants[f"{name}_{key}"] = (self.design.dim,), value
        return constants


def in_order(parts: Sequence[Coefficients]) -> Sequence[Coefficients]:
    """Return the parts so that each depends on earlier ones alone."""
    return parts[::-1] if parts[0].line.bend else parts


def bent(parts: Sequence[Coefficients], pilot: Pilot) -> list[Coefficients]:
    """Return the parts with the location's level along the ridge of their shared information."""
    location, dispersion = pilot.curves_at(pilot.coefficients)
    of_location, _, between = pilot.data.joint_information(location, dispersion)
    weights = pilot.rows.n / pilot.rows.n.sum()
    start = float(weights @ dispersion)
    slope = between.sum() / of_location.sum() / special.expit(start)
    scaled = parts[1]
    bend = Bend(
        names=tuple(scaled.names),
        weights=weights @ scaled.at_rows,
        start=start,
        share=float(np.clip(slope, 0.0, 1.0)),
    )
    first = replace(parts[0], line=replace(parts[0].line, bend=bend))
    return [first, scaled]


class Point(NamedTuple):
    """All parameters at coordinates (draws, dim)."""

    coefficients: list[Floats]  # of each design, rotated, (draws, k)
    # of levels that are integrated out, (draws, scales)
    log_scales: Floats
    log_density: Floats  # (draws,): log prior plus log Jacobian
    # from a function's slopes in the coefficients, and in the logarithms of levels' scales, to the
    # gradient (draws, dim) of that function plus `log_density`
    gradient: Callable[..., Floats]


class Space(ABC):
    """Parameters of a model as functions of one vector of coordinates."""

    labels: Labels  # of all dims

    @property
    @abstractmethod
    def start(self) -> Floats:
        """Coordinates of the Laplace start."""

    @property
    @abstractmethod
    def dims(self) -> dict[str, tuple[str, ...]]:
        """Dims of all variables of the posterior by name."""

    @property
    @abstractmethod
    def constants(self) -> Constants:
        """Dims and values by name of all numbers that the parameters depend on."""

    @abstractmethod
    def at(self, coordinates: Floats) -> Point:
        """Return all parameters at coordinates (draws, dim)."""

    @abstractmethod
    def variables(self, coordinates: Floats) -> Mapping[str, Floats]:
        """Return the variables of `dims` at coordinates, (draws, ...)."""

    @abstractmethod
    def densities(
        self, draws: Mapping[str, Floats]
    ) -> tuple[Mapping[str, Floats], Mapping[str, Floats]]:
        """Log priors of top-level parameters, and log likelihoods of what a user added, by name."""


@dataclass(frozen=True, eq=False)
class Coordinates(Space):
    """The space of the parameters of a problem's own model."""

    parts: Sequence[Coefficients]
    labels: Labels

    @cached_property
    def level_scales(self) -> list[SmoothingScale]:
        """Scales of the deviations of levels that are integrated out."""
        return [scale for part in self.parts for scale in part.level_scales]

    @cached_property
    def steps(self) -> list[Step]:
        """All parameters, in the order of their coordinates."""
        steps = [step for part in in_order(self.parts) for step in part.steps]
        return [*self.level_scales, *steps]

    @cached_property
    def start(self) -> Floats:
        """Coordinates of the Laplace start."""
        return np.zeros(sum(step.size for step in self.steps))

    def at(self, coordinates: Floats) -> Point:
        """Return all parameters at coordinates (draws, dim)."""
        values, moves = self._moves(coordinates)
        coefficients = [stacked(values, part.names) for part in self.parts]
        names = [scale.name for scale in self.level_scales]
        log_scales = np.array([values[name] for name in names]).T
        log_density = np.sum([move.log_density for move in moves], axis=0)

        def gradient(
            by_coefficients: Sequence[Floats], by_log_scales: Floats = _NO_SCALES
        ) -> Floats:
            slopes: Parameters = {}
            for part, slope in zip(self.parts, by_coefficients, strict=True):
                _add_stacked(slopes, values, part.names, slope)
            for k, name in enumerate(names):
                _add_slope(slopes, name, by_log_scales[:, k])
            by_step = []
            for step, move in zip(reversed(self.steps), reversed(moves), strict=True):
                slope = slopes.get(step.name, np.zeros(len(coordinates)))
                by_step.append(move.back(slope, slopes))
            return np.concatenate(by_step[::-1], axis=1)

        return Point(coefficients, log_scales, log_density, gradient)

    def _moves(self, coordinates: Floats) -> tuple[Parameters, list[Move]]:
        """All parameters by name, with their slopes."""
        values: Parameters = {}
        moves = []
        start = 0
        # far draws get a density that is not finite
        with np.errstate(all="ignore"):
            for step in self.steps:
                move = step.at(coordinates[:, start : start + step.size], values)
                values[step.name] = move.value
                moves.append(move)
                start += step.size
        return values, moves

    @property
    def dims(self) -> dict[str, tuple[str, ...]]:
        """Dims of all variables of the posterior by name; scales have none."""
        dims: dict[str, tuple[str, ...]] = {
            scale.name: () for scale in self.level_scales
        }
        for part in self.parts:
            for block, scale in zip(part.design.blocks, part.scales, strict=True):
                dims[scale.name] = ()
                dims[block.name] = (block.dim,)
            dims[part.design.name] = (part.design.dim,)
        outputs = {
            output.name: output.dims for part in self.parts for output in part.outputs
        }
        return dims | outputs

    def variables(self, coordinates: Floats) -> Parameters:
        """Return the variables of `dims` at coordinates, (draws, ...)."""
        return self.variables_of(self._moves(coordinates)[0])

    def variables_of(self, values: Parameters) -> Parameters:
        """Return the variables of `dims` from parameters."""
        scales = {x.name for x in self.steps if isinstance(x, SmoothingScale)}
        variables = {k: np.exp(x) if k in scales else x for k, x in values.items()}
        for part in self.parts:
            coefficients = stacked(values, part.names) @ part.laplace.turn.T
            variables |= {
                output.name: output.values(coefficients) for output in part.outputs
            }
        return variables

    @property
    def constants(self) -> Constants:
        """Dims and values by name of all numbers that the parameters depend on."""
        return {name: x for part in self.parts for name, x in part.constants.items()}

    def densities(self, draws: Mapping[str, Floats]) -> tuple[Parameters, Parameters]:
        """Log priors of scales and lines, by name; a user has added nothing."""
        log_priors: Parameters = {}
        for part in self.parts:
            for scale in (*part.level_scales, *part.scales):
                log_priors[scale.name] = scale.log_prior(draws[scale.name])
            log_priors[part.line.name] = part.line.log_prior(draws[part.line.name])
        return log_priors, {}


# --- shapes of coordinates from the Laplace start -------------------------------------------------


def density_shape(q: Floats, log_density: Floats) -> Floats:
    """Constants of `SmoothingScale` that make v normal under a log density of q at equal steps."""
    mass = np.cumsum(np.exp(log_density - log_density.max()))
    share = (mass - 0.5 * np.diff(mass, prepend=0.0)) / mass[-1]
    # tails matter for importance weights
    v = np.linspace(-4.0, 4.0, 33)
    target = np.interp(special.ndtr(v), share, q)
    weight = np.exp(-(v**2) / 16.0)

    def inner(x: Floats) -> Floats:
        return np.exp(x[3]) * (np.arcsinh(v) + x[2])

    def residual(x: Floats) -> Floats:
        return weight * (x[0] + np.exp(x[1]) * np.sinh(inner(x)) - target)

    def slopes(x: Floats) -> Floats:
        b = np.exp(x[1])
        by_inner = b * np.cosh(inner(x))
        by_shift = by_inner * np.exp(x[3])
        columns = np.ones_like(v), b * np.sinh(inner(x)), by_shift, by_inner * inner(x)
        return weight[:, None] * np.stack(columns, axis=1)

    start = np.array([target[16], np.log((target[24] - target[8]) / 4.0), 0.0, 0.0])
    width = np.array([8.0, 3.0, 1.5, 0.5])  # limits the tails
    bounds = start - width, start + width
    a, log_b, e, log_d = optimize.least_squares(residual, start, slopes, bounds).x
    return np.array([a, np.exp(log_b), e, np.exp(log_d)])


def level_shares(
    curve: Curve, laplace: Laplace, levels: Levels | None
) -> LevelShares | None:
    """Shares of a line's variances that are due to the average of levels integrated out."""
    terms = curve.levels
    if levels is None or terms is None:
        return None
    names = {f"{name}_sd" for name in terms.names}
    of_curve = [scale for scale in levels.scales if scale.name in names]
    scales = (SmoothingScale.of(s.name, s.prior, s.precision, s.pull) for s in of_curve)
    start = np.array([scale.tau for scale in of_curve])
    lines = np.linalg.lstsq(curve.basis.line, terms.values, rcond=None)[0]
    of_average = np.square(start[terms.kind] * lines) / levels.rows.number
    by_kind = of_average @ (terms.kind[:, None] == np.arange(len(start)))
    shares = by_kind / np.square(laplace.line_root).sum(axis=1, keepdims=True)
    shares = shares / np.maximum(shares.sum(axis=1, keepdims=True), 1.0)
    return LevelShares(tuple(scales), start, shares)
