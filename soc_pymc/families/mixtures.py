"""Mixtures of conjugate components on a grid around a base distribution.

Component r is at centre + spread z_r, where these are mean and sd of log theta (counts), theta
(values) or logit theta (successes) under the base distribution, and its sd is a fixed share of the
spread. So the components at a score differ only in place, and one grid suits all scores.

The weights have a mean and variance of theta that are those of the curves. Predictors at a score
are both curves of the family, for Gammas and Betas the path from a normal law to the family's, and
coefficients of functions of the log weights. Two further functions shift and stretch the weights
(the tilt) so that E(theta) and Var(theta) are what the curves say: so curves have the meaning and
the prior that they have for a single distribution.

Arrays have axes for rows, components (or predictors) and draws. Curves, means and variances are
relative to those of the pilot, the single family's fit that placed the grid: in units of its mean
for Gammas, of its sd for Normals, and for Betas around its mean m in units of m (1 - m).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from .._lib.arrays import Floats, Ints, Pair, Triple
from .rows import Tensor

# log weights of a law, and any derivatives
LogLaw = tuple[Floats, list[Floats]]
# name of the logit of the share of theta that is 0, among the functions of the log weights
ZERO = "zero"
# size of theta below which it is a draw of the component that stands for 0
NEAR_ZERO = 1e-90
# sd of a component in units of the base distribution's spread
WIDTH = 0.3
# step between components: at 1.2 sd their equal mixture is flat to 1e-6
STEP = 0.35
# logarithm of the smallest weight over the largest
LOWEST = -700.0
# share of the weights of Gammas and Betas that allows heavier tails
WEIGHT_FLOOR = 1e-3
# number of draws from which linear first guesses pay
_MANY_DRAWS = 20
# residual in both curves that is accepted as rounding error
ROUGH = 1e-5
_SHORTEST = 0.02  # share of the line from the pilot's curves
_SOLVED_AT_ONCE = 1 << 15  # weights solved for at once, which fit in the cache
# share of the range over which a curve is bent to either bound
_SOFT = 0.15
# bounds of the location in spreads, and of the dispersion as a spread
_FARTHEST_LOCATION = 4.0
_WIDEST_DISPERSION = 2.5
# least dispersion above a component's, so that several components have weight
_ROOM = 0.8
# spreads beyond which the widening of the base distribution is linear
_CORNER = 3.0
# width, and power of theta, of the floor for heavy tails
_FLOOR_SD = 2.0
_FLOOR_POWER = 3.0


# --- laws of theta, as log weights of the components ---------------------------------------------


class ComponentGrid(NamedTuple):
    """Components of rows, (n, R, 1), and the pilot there, (n, 1, 1)."""

    # (4, n, R, 1): positions of the components, as logarithms of their means relative to the
    # pilot's (Gammas), logarithms of their means and of one minus these (Betas), or means
    # (Normals); weights that allow heavier tails; for Betas, log weights that make the pilot's law
    # less those of its parameters
    base: Floats
    # exponential of a component's dispersion, which convolves the weights
    inner: Floats
    middle: Floats  # mean of the pilot for Betas, otherwise 0


def along_path(
    curves: Triple, grid: ComponentGrid, family: tuple[Floats, ...], slopes: bool
) -> LogLaw:
    """Log weights from a log-normal law with these curves of log mean and log cv2 to a family's."""
    location, dispersion, path = curves
    cv2 = np.exp(dispersion)
    variance = np.log1p(cv2) - np.log1p(grid.inner)
    y = (grid.base[0] - (location - 0.5 * variance)) / variance
    square = y * y
    normal: tuple[Floats, ...] = (square * (-0.5 * variance),)
    if slopes:
        normal += y, (square - y) * (0.5 * cv2 / (1.0 + cv2))
    return between(normal, family, path, grid.base[2])


def between(
    normal: tuple[Floats, ...], family: tuple[Floats, ...], path: Floats, floor: Floats
) -> LogLaw:
    """Log weights on the path from a normal law of log or logit theta (0) to the family's (1).

    Both laws are log weights, and any derivatives.
    """
    normal = _floored(normal, floor)
    family = _floored(family, floor)
    change = family[0] - normal[0]
    log, *slopes = (x + path * (y - x) for x, y in zip(normal, family, strict=True))
    return log, [*slopes, change]


def _floored(terms: tuple[Floats, ...], floor: Floats) -> tuple[Floats, ...]:
    """Logarithms of weights of sum 1 with a floor, from log weights; both with derivatives."""
    log, *slopes = terms
    weight = log - log.max(axis=1, keepdims=True)
    np.exp(np.maximum(weight, LOWEST, out=weight), out=weight)
    weight *= (1.0 - WEIGHT_FLOOR) / weight.sum(axis=1, keepdims=True)
    floored = weight + floor
    part = weight / floored
    means = (
        (weight * x).sum(axis=1, keepdims=True) / (1.0 - WEIGHT_FLOOR) for x in slopes
    )
    centred = (part * (x - mean) for x, mean in zip(slopes, means, strict=True))
    return np.log(floored), *centred


# --- components at scores ------------------------------------------------------------------------


class CurveBounds(NamedTuple):
    """Both curves of the pilot, (n,), and what the components can represent around them."""

    location: Floats
    dispersion: Floats
    unit: Floats
    middle: Floats  # mean of the pilot for Betas, otherwise 0
    farthest: Floats  # largest distance of the location
    low: Floats  # bounds of the dispersion
    high: Floats

    @property
    def inner(self) -> Floats:
        """Exponential of a component's dispersion."""
        return np.exp(self.low - _ROOM)

    def relative(self, location: Tensor, dispersion: Tensor) -> Pair:
        """Both curves (..., n) relative to the pilot's location and unit."""
        dispersion = dispersion - 2.0 * np.log(self.unit)
        return (location - self.location) / self.unit, dispersion

    def excess(self, location: Tensor, dispersion: Tensor, xp: ModuleType = np) -> Pair:
        """Relative curves (..., n) less the nearest that the components can represent."""
        location, dispersion = self.relative(location, dispersion)
        # NaN: unbounded
        low = np.fmax(self.low, -np.inf)
        high = np.fmin(self.high, np.inf)
        # not clip, which PyTensor's interpreter applies slowly
        place = xp.minimum(xp.maximum(location, -self.farthest), self.farthest)
        inside = xp.minimum(xp.maximum(dispersion, low), high)
        return location - place, dispersion - inside

    def bent(self, location: Floats, dispersion: Floats) -> Pair:
        """Relative curves (2, ..., n) as the components can represent them, and derivatives."""
        location, dispersion = self.relative(location, dispersion)
        location, by_location = _bent(location, -self.farthest, self.farthest)
        dispersion, by_dispersion = _bent(dispersion, self.low, self.high)
        slopes = np.stack([by_location / self.unit, by_dispersion])
        return np.stack([location, dispersion]), slopes

    def represented(self, location: Floats, dispersion: Floats) -> Pair:
        """Both curves (..., n) as the components can represent them."""
        location, dispersion = self.bent(location, dispersion)[0]
        dispersion = dispersion + 2.0 * np.log(self.unit)
        return self.location + self.unit * location, dispersion


def _bent(x: Floats, low: Floats, high: Floats) -> Pair:
    """X, bent smoothly towards bounds that it never passes; and the derivative."""
    soft = _SOFT * (high - low)
    above = (x - high + soft) / soft
    below = (low + soft - x) / soft
    upper, lower = (np.tanh(np.fmax(excess, 0.0)) for excess in (above, below))
    value = np.where(above > 0.0, high - soft * (1.0 - upper), x)
    value = np.where(below > 0.0, low + soft * (1.0 - lower), value)
    return value, 1.0 - upper**2 - lower**2


@dataclass(frozen=True, eq=False)
class Frame:
    """Base distributions at some scores, which place the components."""

    location: Floats  # (n,): curve of the Laplace start
    # (n,): mean of theta, or of its log or logit, under it
    centre: Floats
    spread: Floats  # (n,): its sd

    def places(self, z: Floats) -> Floats:
        """Centres (n, R) of components at positions z."""
        return self.centre[:, None] + self.spread[:, None] * z

    def variance(self, extra: ArrayLike = 0.0) -> Floats:
        """Variance of a component, and of `extra` that adds to it: shape (n,)."""
        return (WIDTH * self.spread) ** 2 + np.asarray(extra, dtype=float)


class Relative(NamedTuple):
    """Components in units of the base distribution, relative to the pilot."""

    positions: Floats  # (1 or 2, n, R)
    mean: Floats  # (n, R)
    variance: Floats  # (n, R)
    # (n,): spread of the base distribution in the unit of the location
    reach: Floats
    unit: Floats | float = 1.0
    middle: Floats | float = 0.0


def reciprocal(values: Floats) -> Floats:
    """1 / values, and 0 where these are 0."""
    return np.where(values > 0, 1.0 / np.maximum(values, 1e-300), 0.0)


def stretching(
    z: Floats, centre: ArrayLike = 0.0, corner: ArrayLike = _CORNER
) -> Floats:
    """z^2/2 to widen a Normal base distribution, but linear beyond `corner` around `centre`."""
    corner = np.asarray(corner)[..., None]
    x = np.abs(z - np.asarray(centre)[..., None]) / corner
    return corner**2 * (x + np.log1p(np.exp(-2.0 * x)) - np.log(2.0))


# --- components of a family ----------------------------------------------------------------------


class Components(ABC):
    """Components of one family around base distributions from its curves."""

    name: str
    # first and last position, in spreads of the base distribution
    component_ends: tuple[float, float]
    # from a normal law of log or logit theta (0) to the family's (1)
    has_path: bool = True

    @property
    def component_grid(self) -> Floats:
        """Positions of the components, in units of the base distribution's spread."""
        low, high = self.component_ends
        return np.linspace(low, high, round((high - low) / STEP) + 1)

    @abstractmethod
    def frame(self, location: ArrayLike, dispersion: ArrayLike) -> Frame:
        """Base distributions with these curves."""

    def rise(self, frame: Frame) -> Floats:
        """Derivative of a base distribution's centre in the curve of the location."""
        return np.ones_like(frame.centre)

    @abstractmethod
    def component_parameters(self, centre: Floats, variance: Floats) -> Pair:
        """Conjugate parameters of components (n, R) with variances (n, 1) or (n, R)."""

    @abstractmethod
    def relative(self, frame: Frame, parameters: Pair) -> Relative:
        """Components of these parameters in units of the base distributions."""

    @abstractmethod
    def log_weights(self, curves: Triple, grid: ComponentGrid, slopes: bool) -> LogLaw:
        """Log weights (n, R, draws) of the family's law, and derivatives if `slopes`.

        Both curves and the path are (n, 1, draws); derivatives are in these.
        """

    def log_pilot(
        self, frame: Frame, curves: Floats, parts: Relative, bounds: CurveBounds
    ) -> Floats | float:
        """Log weights (n, R) of the pilot's law, less those of its parameters in closed form."""
        return 0.0

    @abstractmethod
    def zero(self, a: Floats) -> Pair:
        """Parameters of theta = 0, from the first parameter of a component."""

    @abstractmethod
    def curvature(self, y: Floats, size: Floats, variance: Floats) -> Triple:
        """Direction of outcome and size in which the log likelihood is curved, and how much.

        Sizes are as in sums, and variances those of components.
        """

    def with_zero(self, a: Floats, b: Floats) -> Pair:
        """Parameters, (n, 1) or (n, R), and as the last component those of theta = 0."""
        # so close to 0 that no outcome can tell the two apart; moments take it as exactly 0
        a, b = np.broadcast_arrays(a, b)
        a_of_zero, b_of_zero = self.zero(a[:, 0])
        return np.column_stack([a, a_of_zero]), np.column_stack([b, b_of_zero])

    def weight_forms(
        self, frame: Frame, functions: Floats, curves: Floats, heavy: bool = True
    ) -> "WeightForms":
        """Map from predictors to weights, from functions (R, F) of z and the pilot's curves (n, 2).

        The first function of families with a path is 0; a small share allows for `heavy` tails.
        """
        z = self.component_grid
        ones = np.ones(len(curves))
        variance = frame.variance()[:, None]
        parameters = self.component_parameters(frame.places(z), variance)
        parts = self.relative(frame, parameters)
        arrays = np.zeros((4, len(curves), len(z)))
        arrays[: len(parts.positions)] = parts.positions
        centre = 0.0 * ones
        corner = _CORNER * ones
        if self.has_path:  # theta has a scale, where both tails of its logarithm begin
            centre = (frame.location - frame.centre) / frame.spread
            corner = np.minimum(_CORNER, 2.0 / frame.spread)
            sd = np.exp(0.5 * curves[:, [1]])
            log_distance = np.log1p(np.abs(parts.mean) / (1.0 + sd))
            log_shape = -0.5 * (z / _FLOOR_SD) ** 2 - _FLOOR_POWER * log_distance
            arrays[2] = (
                WEIGHT_FLOOR * special.softmax(log_shape, axis=1) if heavy else 0.0
            )
        tilts = np.stack(np.broadcast_arrays(z, stretching(z, centre, corner)), axis=2)
        bounds = self._bounds(frame.location, curves[:, 1], parts)
        arrays[3] = self.log_pilot(frame, curves, parts, bounds)
        return WeightForms(
            family=self,
            bounds=bounds,
            base=arrays,
            tilts=tilts,
            functions=functions,
            mean=parts.mean,
            variance=parts.variance,
        )

    def _bounds(
        self, location: Floats, dispersion: Floats, parts: Relative
    ) -> CurveBounds:
        """Bounds of both curves, around those of the pilot."""
        from .kernels import curves_of_moments

        middle = parts.middle
        nearest = np.abs(parts.mean).argmin(axis=1)[:, None]
        mean = np.take_along_axis(parts.mean, nearest, axis=1)[:, 0]
        least = np.take_along_axis(parts.variance, nearest, axis=1)[:, 0]
        with np.errstate(invalid="ignore", divide="ignore"):
            low = curves_of_moments(mean, least, middle, self.has_path)[1]
        high = 2.0 * np.log(_WIDEST_DISPERSION * parts.reach)
        farthest = _FARTHEST_LOCATION * parts.reach
        curves = location, dispersion, parts.unit, middle
        bounds = np.broadcast_arrays(*curves, farthest, low + _ROOM, high)
        return CurveBounds(*np.stack(bounds))


@dataclass(frozen=True, eq=False)
class WeightForms:
    """Components at n scores, and how P predictors give their weights."""

    family: Components
    bounds: CurveBounds
    base: Floats  # (4, n, R): as in `ComponentGrid`
    tilts: Floats  # (n, R, 2): functions that shift and stretch
    # (R, P - 2): functions of the log weights, 0 for other predictors
    functions: Floats
    # (n, R): mean of theta under each component, minus the pilot's
    mean: Floats
    variance: Floats  # (n, R): its variance

    @property
    def arrays(self) -> tuple[Floats, ...]:
        """All arrays, of which `made_of` makes the forms again."""
        arrays = self.base, self.tilts, self.functions, self.mean, self.variance
        return np.stack(self.bounds), *arrays

    @staticmethod
    def made_of(family: Components, bounds: Floats, *arrays: Floats) -> "WeightForms":
        """Forms of the family with these `arrays`."""
        return WeightForms(family, CurveBounds(*bounds), *arrays)

    def subset(self, part: slice | Ints) -> "WeightForms":
        """Forms at some of the scores."""
        bounds, base, tilts, functions, *moments = self.arrays
        rows = bounds[:, part], base[:, part], tilts[part], functions
        moments = [values[part] for values in moments]
        return WeightForms.made_of(self.family, *rows, *moments)

    def bounded(self, predictors: Floats) -> Pair:
        """Predictors (n, P, draws) with bounded relative curves, and these curves' derivatives."""
        curves, slopes = self.bounds.bent(predictors[:, 0].T, predictors[:, 1].T)
        curves, slopes = (values.transpose(2, 0, 1) for values in (curves, slopes))
        return np.concatenate([curves, predictors[:, 2:]], axis=1), slopes

    def pilot(self) -> Floats:
        """Bounded predictors (n, P, 1) of the pilot's law, for which the tilt is about 0."""
        predictors = np.zeros((len(self.mean), 2 + self.functions.shape[1], 1))
        predictors[:, 0, 0] = self.bounds.location
        predictors[:, 1, 0] = self.bounds.dispersion
        if self.family.has_path:
            predictors[:, 2] = 1.0
        return self.bounded(predictors)[0]


# --- weights from predictors ---------------------------------------------------------------------


@dataclass(eq=False)
class Weights:
    """Weights of rows under draws, with what their derivatives need."""

    forms: WeightForms
    weight: Floats  # (n, R, draws)
    # derivatives of the base law's log weights in the curves and the path
    along: list[Floats]
    tilt: Floats  # (2, n, draws)
    mean: Floats  # (n, draws): of theta under the weights
    # (3, n, draws): of the location in the mean, of the dispersion in both moments
    curve_slopes: Floats
    # (2, 2, n, draws): derivatives of the tilt in both curves
    inverse: Floats
    error: Floats  # (n, draws): by which the curves are missed

    def replace(self, row: Ints, draw: Ints, others: "Weights") -> None:
        """Put others, of one draw each, in the place of those of some rows and draws."""
        arrays = self.weight, *self.along
        replacements = others.weight, *others.along
        for values, new in zip(arrays, replacements, strict=True):
            values[row, :, draw] = new[..., 0]
        for name in ("tilt", "mean", "curve_slopes", "inverse", "error"):
            getattr(self, name)[..., row, draw] = getattr(others, name)[..., 0]

    @np.errstate(all="ignore")
    def slopes(self, pull: Floats) -> Floats:
        """Derivatives (n, P, K) in bounded predictors, from these (n, R, K) in the log weights."""
        forms = self.forms
        by_tilt = forms.tilts.mT @ pull
        by_curve = (self.inverse * by_tilt.swapaxes(0, 1)[:, None]).sum(axis=0)
        # less what log weights change of the curves, which the tilt undoes; up to what is the same
        # for all components, which does not matter
        slope, bend, by_variance = self.curve_slopes
        by_mean = by_curve[0] * slope + by_curve[1] * bend
        by_variance = by_curve[1] * by_variance
        distance = forms.mean[..., None] - self.mean[:, None]
        variance = distance * distance + forms.variance[..., None]
        variance -= (self.weight * variance).sum(axis=1, keepdims=True)
        shift = by_mean[:, None] * distance + by_variance[:, None] * variance
        pull = pull - self.weight * shift
        by_function = forms.functions.T @ pull
        out = np.concatenate([by_curve.swapaxes(0, 1), by_function], axis=1)
        for j, derivative in enumerate(self.along):
            out[:, j] += (pull * derivative).sum(axis=1)
        return out


def weights_of_draws(predictors: Floats, forms: WeightForms) -> Floats:
    """Weights (draws, n, R) at predictors (draws, n, P)."""
    bounded, _ = forms.bounded(np.moveaxis(predictors, 0, 2))
    parts = solved(bounded, forms, slopes=False)
    return np.moveaxis(np.concatenate([weights.weight for _, weights in parts]), 2, 0)


def solved(
    bounded: Floats, forms: WeightForms, slopes: bool = True
) -> Iterator[tuple[slice, Weights]]:
    """Weights at bounded predictors (n, P, draws) by slices of scores, or the nearest that exist.

    Without `slopes` they have no derivatives.
    """
    tilt = _first_guesses(bounded, forms)
    step = max(1, _SOLVED_AT_ONCE // (bounded.shape[2] * forms.mean.shape[1]))
    for begin in range(0, len(bounded), step):
        part = slice(begin, min(begin + step, len(bounded)))
        yield (
            part,
            _solve_together(bounded[part], tilt[:, part], forms.subset(part), slopes),
        )


@np.errstate(all="ignore")
def _first_guesses(bounded: Floats, forms: WeightForms) -> Floats:
    """Tilts (2, n, draws) that are linear in the predictors' distance from their means."""
    zero = np.zeros((2, len(bounded), 1))
    if bounded.shape[2] < _MANY_DRAWS:
        return zero
    middle = bounded.mean(axis=2, keepdims=True)
    sd = bounded.std(axis=2, keepdims=True)
    points = middle + sd * np.eye(bounded.shape[1], 1 + bounded.shape[1], k=1)
    weights = _solve_together(points, zero, forms, slopes=False)
    tilt = np.where(weights.error <= ROUGH, weights.tilt, 0.0)[:, :, None]
    line = tilt[..., 1:] - tilt[..., :1]
    return (tilt[..., :1] + line @ ((bounded - middle) / sd))[:, :, 0]


@np.errstate(all="ignore")
def _solve_together(
    bounded: Floats, tilt: Floats, forms: WeightForms, slopes: bool
) -> Weights:
    """Weights at bounded predictors, from a first guess of the tilt."""
    weights = _newton(bounded, tilt, forms, slopes)
    row, draw = np.nonzero(~(weights.error <= ROUGH))
    if len(row):
        on_line = _along_line(
            bounded[row, :, draw][..., None], forms.subset(row), slopes
        )
        weights.replace(row, draw, on_line)
    return weights


def _newton(bounded: Floats, tilt: Floats, forms: WeightForms, slopes: bool) -> Weights:
    """Weights by Newton's method from a first guess of the tilt."""
    from .kernels import solve_weights

    middle = forms.bounds.middle
    inner = forms.bounds.inner[:, None, None]
    grid = ComponentGrid(forms.base[..., None], inner, middle[:, None, None])
    location, dispersion, path = (bounded[:, j : j + 1] for j in range(3))
    curves = location, dispersion, path
    fixed, along = forms.family.log_weights(curves, grid, slopes)
    fixed += forms.functions @ bounded[:, 2:]
    # averages over components give the moments and what tilts do to them
    square = forms.mean**2 + forms.variance
    powers = np.stack([np.ones_like(square), forms.mean, square], axis=1)
    tilted = (powers * forms.tilts.mT[:, [k]] for k in (0, 1))
    parts = np.concatenate([powers, *tilted], axis=1)
    solution = np.empty((11, len(fixed), fixed.shape[2]))
    solution[:2] = tilt
    targets = np.ascontiguousarray(bounded)
    law = middle, forms.family.has_path
    solve_weights(fixed, targets, parts, law, (LOWEST, ROUGH), solution)
    tilt, mean, curve_slopes, inverse, error = np.split(solution, [2, 3, 6, 10])
    by_curve = inverse.reshape(2, 2, *error.shape[1:])
    return Weights(
        forms,
        weight=fixed,
        along=along,
        tilt=tilt,
        mean=mean[0],
        curve_slopes=curve_slopes,
        inverse=by_curve,
        error=error[0],
    )


def _along_line(bounded: Floats, forms: WeightForms, slopes: bool) -> Weights:
    """Weights (n, R, 1) as far as Newton's method follows the line from the pilot's predictors."""
    begin = forms.pilot()
    tilt = np.zeros((2, len(bounded), 1))
    reached = np.zeros((len(begin), 1))
    step = np.full((len(begin), 1), 0.5)
    while len(rows := np.flatnonzero((reached < 1.0) & (step >= _SHORTEST))):
        share = np.minimum(reached[rows] + step[rows], 1.0)
        points = begin[rows] + share[..., None] * (bounded - begin)[rows]
        tried = _newton(points, tilt[:, rows], forms.subset(rows), slopes=False)
        met = tried.error <= ROUGH
        tilt[:, rows] = np.where(met, tried.tilt, tilt[:, rows])
        reached[rows] = np.where(met, share, reached[rows])
        step[rows] *= np.where(met, 1.5, 0.5)
    return _newton(begin + reached[..., None] * (bounded - begin), tilt, forms, slopes)
