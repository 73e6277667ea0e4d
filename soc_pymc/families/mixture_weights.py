"""Weights of a mixture's components whose mean and variance are those of the curves.

Predictors at a score are both curves of the family, for Gammas and Betas the path from a normal law
to the family's, and coefficients of functions of the log weights. Two further functions shift and
stretch the weights (the tilt) so that E(theta) and Var(theta) are what the curves say: so curves
have the meaning and the prior that they have for a single distribution.

Arrays have axes for rows, components (or predictors) and draws. Curves, means and variances are
relative to those of the pilot, the single family's fit that placed the grid: in units of its mean
for Gammas, of its sd for Normals, and for Betas around its mean m in units of m (1 - m).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .._lib.arrays import Floats, Ints

Pair = tuple[Floats, Floats]
LOWEST = -700.0
"""Logarithm of the smallest weight over the largest."""
FLOOR = 1e-3
"""Share of the weights of Gammas and Betas that allows heavier tails."""
_MANY_DRAWS = 20  # for which it pays to begin with a line through others
ROUGH = 1e-5
"""Residual in both curves that is accepted where rounding allows no less."""
_SHORTEST = 0.02  # share of the line from the pilot's curves
_AT_ONCE = 1 << 15  # weights solved for at once, which fit in the cache
_SOFT = 0.15  # share of the range over which a curve is bent to either bound
# the first curve's bound in spreads; the second's, above a single component's and as a spread
_FARTHEST = 4.0
_WIDEST = 2.5
_ROOM = 0.8  # least second curve above a component's, so that several components have weight


# --- laws of theta with both curves, as log weights of the components ----------------------------


class Grid(NamedTuple):
    """Components of rows, (n, R, 1), and the pilot there, (n, 1, 1)."""

    # (4, n, R, 1): positions of the components, as logarithms of their means relative to the
    # pilot's (Gammas), logarithms of their means and of one minus these (Betas), or means
    # (Normals); weights that allow heavier tails; for Betas, log weights that make the pilot's law
    # less those of its parameters
    base: Floats
    inner: (
        Floats  # second curve's exponential of a component, which convolves the weights
    )
    middle: Floats  # mean of the pilot for Betas, otherwise 0


class Law(NamedTuple):
    """A family's law of theta."""

    name: str
    # (both curves and the path (n, 1, draws), grid, whether slopes are wanted) -> log weights
    # (n, R, draws), and their derivatives in these
    weights: Callable[[Floats, Floats, Floats, Grid, bool], tuple[Floats, list[Floats]]]
    has_path: bool  # from a normal law of log or logit theta (0) to the family's (1)


def between(
    normal: tuple[Floats, ...], family: tuple[Floats, ...], path: Floats, floor: Floats
) -> tuple[Floats, list[Floats]]:
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
    weight *= (1.0 - FLOOR) / weight.sum(axis=1, keepdims=True)
    floored = weight + floor
    part = weight / floored
    centred = (
        part * (x - (weight * x).sum(axis=1, keepdims=True) / (1.0 - FLOOR))
        for x in slopes
    )
    return np.log(floored), *centred


# --- components at scores ------------------------------------------------------------------------


class Bounds(NamedTuple):
    """Both curves of the pilot, (n,), and what the components can represent around them."""

    mean_curve: Floats
    spread_curve: Floats
    unit: Floats
    middle: Floats  # mean of the pilot for Betas, otherwise 0
    farthest: Floats  # of the first curve on both sides
    low: Floats  # of the second curve
    high: Floats

    @property
    def inner(self) -> Floats:
        """Exponential of a component's second curve."""
        return np.asarray(np.exp(self.low - _ROOM))

    def relative(self, mean_curve: Any, spread_curve: Any) -> tuple[Any, Any]:
        """Both curves (..., n) relative to the pilot's mean curve and unit."""
        return (mean_curve - self.mean_curve) / self.unit, spread_curve - 2.0 * np.log(
            self.unit
        )

    def excess(
        self, mean_curve: Any, spread_curve: Any, xp: Any = np
    ) -> tuple[Any, Any]:
        """Relative curves (..., n) less the nearest that the components can represent."""
        mean, spread = self.relative(mean_curve, spread_curve)
        # NaN: unbounded
        low = np.fmax(self.low, -np.inf)
        high = np.fmin(self.high, np.inf)
        # not clip, which PyTensor's interpreter applies slowly
        nearest = xp.minimum(xp.maximum(mean, -self.farthest), self.farthest)
        return mean - nearest, spread - xp.minimum(xp.maximum(spread, low), high)

    def bent(self, mean_curve: Floats, spread_curve: Floats) -> Pair:
        """Relative curves (2, ..., n) as the components can represent them, and derivatives."""
        mean_curve, spread_curve = self.relative(mean_curve, spread_curve)
        mean, mean_slope = _bent(mean_curve, -self.farthest, self.farthest)
        spread, spread_slope = _bent(spread_curve, self.low, self.high)
        return np.stack([mean, spread]), np.stack(
            [mean_slope / self.unit, spread_slope]
        )

    def represented(self, mean_curve: Floats, spread_curve: Floats) -> Pair:
        """Both curves (..., n) as the components can represent them."""
        mean, spread = self.bent(mean_curve, spread_curve)[0]
        return self.mean_curve + self.unit * mean, spread + 2.0 * np.log(self.unit)


def bounds_of(
    law: Law,
    curves: Floats,
    unit: Floats,
    middle: Floats,
    reach: Floats,
    moments: Floats,
) -> Bounds:
    """Bounds at curves (n, 2), from moments (2, n, R) and the base's spread `reach`."""
    nearest = np.abs(moments[0]).argmin(axis=1)[None, :, None]
    mean, least = np.take_along_axis(moments, nearest, axis=2)[..., 0]
    square = (_WIDEST * reach) ** 2
    largest = square / (
        1.0 + middle * (1.0 - middle) * square
    )  # no variance is above m (1 - m)
    with np.errstate(invalid="ignore", divide="ignore"):
        low, high = (
            curves_of(mean, v, middle, law.has_path)[1] for v in (least, largest)
        )
    # no Beta with this mean has so large a variance: then that of one with the pilot's mean
    high = np.where(np.isfinite(high), high, np.log(square))
    mean_curve, spread_curve = curves.T
    return Bounds(
        mean_curve, spread_curve, unit, middle, _FARTHEST * reach, low + _ROOM, high
    )


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
class WeightForms:
    """Components at n scores, and how P predictors give their weights."""

    law: Law
    bounds: Bounds
    base: Floats  # (4, n, R): as in `Grid`
    tilts: Floats  # (n, R, 2): functions that shift and stretch
    functions: (
        Floats  # (R, P - 2): functions of the log weights, 0 for other predictors
    )
    mean: Floats  # (n, R): mean of theta under each component, minus the pilot's
    variance: Floats  # (n, R): its variance

    @property
    def arrays(self) -> tuple[Floats, ...]:
        """All arrays, of which `made_of` makes the forms again."""
        arrays = self.base, self.tilts, self.functions, self.mean, self.variance
        return np.stack(self.bounds), *arrays

    @staticmethod
    def made_of(law: Law, bounds: Floats, *arrays: Floats) -> "WeightForms":
        """Forms of the family with these `arrays`."""
        return WeightForms(law, Bounds(*bounds), *arrays)

    def rows(self, part: Any) -> "WeightForms":
        """Forms at some of the scores."""
        bounds, base, tilts, functions, *moments = self.arrays
        some = (
            bounds[:, part],
            base[:, part],
            tilts[part],
            functions,
            *(x[part] for x in moments),
        )
        return WeightForms.made_of(self.law, *some)

    def bounded(self, predictors: Floats) -> Pair:
        """Predictors (n, P, draws) with bounded relative curves, and these curves' derivatives."""
        curves, slopes = self.bounds.bent(predictors[:, 0].T, predictors[:, 1].T)
        curves, slopes = (values.transpose(2, 0, 1) for values in (curves, slopes))
        return np.concatenate([curves, predictors[:, 2:]], axis=1), slopes

    def pilot(self) -> Floats:
        """Bounded predictors (n, P, 1) of the pilot's law, for which the tilt is about 0."""
        predictors = np.zeros((len(self.mean), 2 + self.functions.shape[1], 1))
        predictors[:, 0, 0] = self.bounds.mean_curve
        predictors[:, 1, 0] = self.bounds.spread_curve
        if self.law.has_path:
            predictors[:, 2] = 1.0
        return self.bounded(predictors)[0]


# --- weights from predictors ---------------------------------------------------------------------


def curves_of(mean: Any, variance: Any, middle: Any, has_path: bool) -> tuple[Any, ...]:
    """Both curves; the derivative of the first in the mean, and those of the second in both."""
    if not has_path:  # Normals
        return mean, np.log(variance), 1.0, 0.0, 1.0 / variance
    # Gammas are the limit of Betas at a middle of 0
    other = 1.0 - middle
    up = 1.0 + other * mean
    down = 1.0 - middle * mean
    product = up * down
    unit = middle * other
    room = product - unit * variance
    return (
        np.log(up / down),
        np.log(variance / (product * room)),
        other / up + middle / down,
        (middle * up - other * down) * (1.0 / product + 1.0 / room),
        1.0 / variance + unit / room,
    )


@dataclass(eq=False)
class Weights:
    """Weights of rows under draws, with what their derivatives need."""

    forms: WeightForms
    weight: Floats  # (n, R, draws)
    along: list[
        Floats
    ]  # derivatives of the base law's log weights in the curves and the path
    tilt: Floats  # (2, n, draws)
    mean: Floats  # (n, draws): of theta under the weights
    curve_slopes: (
        Floats  # (3, n, draws): of the first in the mean, of the second in both moments
    )
    inverse: Floats  # (2, 2, n, draws): derivatives of the tilt in both curves
    error: Floats  # (n, draws): by which the curves are missed

    def replace(self, row: Ints, draw: Ints, others: "Weights") -> None:
        """Put others, of one draw each, in the place of those of some rows and draws."""
        pairs = zip(
            [self.weight, *self.along], [others.weight, *others.along], strict=True
        )
        for values, new in pairs:
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
        pull = pull - self.weight * (
            by_mean[:, None] * distance + by_variance[:, None] * variance
        )
        out = np.concatenate(
            [by_curve.swapaxes(0, 1), forms.functions.T @ pull], axis=1
        )
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
    """Weights at bounded predictors (n, P, draws) by slices of scores; or as close as they come.

    Without `slopes` they have no derivatives.
    """
    tilt = _first_guesses(bounded, forms)
    step = max(1, _AT_ONCE // (bounded.shape[2] * forms.mean.shape[1]))
    for begin in range(0, len(bounded), step):
        part = slice(begin, min(begin + step, len(bounded)))
        yield part, _solved(bounded[part], tilt[:, part], forms.rows(part), slopes)


@np.errstate(all="ignore")
def _first_guesses(bounded: Floats, forms: WeightForms) -> Floats:
    """Tilts (2, n, draws) that are linear in the predictors' distance from their means."""
    zero = np.zeros((2, len(bounded), 1))
    if bounded.shape[2] < _MANY_DRAWS:
        return zero
    middle = bounded.mean(axis=2, keepdims=True)
    sd = bounded.std(axis=2, keepdims=True)
    points = middle + sd * np.eye(bounded.shape[1], 1 + bounded.shape[1], k=1)
    weights = _solved(points, zero, forms, slopes=False)
    tilt = np.where(weights.error <= ROUGH, weights.tilt, 0.0)[:, :, None]
    line = tilt[..., 1:] - tilt[..., :1]
    return (tilt[..., :1] + line @ ((bounded - middle) / sd))[:, :, 0]


@np.errstate(all="ignore")
def _solved(bounded: Floats, tilt: Floats, forms: WeightForms, slopes: bool) -> Weights:
    """Weights at bounded predictors, from a first guess of the tilt."""
    weights = _newton(bounded, tilt, forms, slopes)
    row, draw = np.nonzero(~(weights.error <= ROUGH))
    if len(row):
        others = _along_line(bounded[row, :, draw][..., None], forms.rows(row), slopes)
        weights.replace(row, draw, others)
    return weights


def _newton(bounded: Floats, tilt: Floats, forms: WeightForms, slopes: bool) -> Weights:
    """Weights by Newton's method from a first guess of the tilt."""
    from .kernels import solve_weights

    middle = forms.bounds.middle
    grid = Grid(
        forms.base[..., None], forms.bounds.inner[:, None, None], middle[:, None, None]
    )
    mean_curve, spread_curve, path = (bounded[:, j : j + 1] for j in range(3))
    fixed, along = forms.law.weights(mean_curve, spread_curve, path, grid, slopes)
    fixed += forms.functions @ bounded[:, 2:]
    # averages over components give the moments and what tilts do to them
    powers = np.stack(
        [np.ones_like(forms.mean), forms.mean, forms.mean**2 + forms.variance], 1
    )
    parts = np.concatenate(
        [powers, *(powers * forms.tilts.mT[:, [k]] for k in (0, 1))], axis=1
    )
    solution = np.empty((11, len(fixed), fixed.shape[2]))
    solution[:2] = tilt
    solve_weights(
        fixed,
        np.ascontiguousarray(bounded),
        parts,
        middle,
        forms.law.has_path,
        solution,
    )
    tilt, mean, curve_slopes, inverse, error = np.split(solution, [2, 3, 6, 10])
    by_curve = inverse.reshape(2, 2, *error.shape[1:])
    return Weights(forms, fixed, along, tilt, mean[0], curve_slopes, by_curve, error[0])


def _along_line(bounded: Floats, forms: WeightForms, slopes: bool) -> Weights:
    """Weights (n, R, 1) as far as Newton's method follows the line from the pilot's predictors."""
    begin = forms.pilot()
    tilt = np.zeros((2, len(bounded), 1))
    reached = np.zeros((len(begin), 1))
    step = np.full((len(begin), 1), 0.5)
    while len(rows := np.flatnonzero((reached < 1.0) & (step >= _SHORTEST))):
        share = np.minimum(reached[rows] + step[rows], 1.0)
        points = begin[rows] + share[..., None] * (bounded - begin)[rows]
        tried = _newton(points, tilt[:, rows], forms.rows(rows), slopes=False)
        met = tried.error <= ROUGH
        tilt[:, rows] = np.where(met, tried.tilt, tilt[:, rows])
        reached[rows] = np.where(met, share, reached[rows])
        step[rows] *= np.where(met, 1.5, 0.5)
    return _newton(begin + reached[..., None] * (bounded - begin), tilt, forms, slopes)
