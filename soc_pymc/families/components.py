"""A grid of conjugate components around a frame, and bins of outcomes under their mixture.

The frame is a location and a spread of theta given the score: of log theta for counts, of theta
itself for values. Component r sits at location + spread z_r, and its own sd is a fixed share of the
spread, so that one grid serves curves whose spread changes tenfold with the score. The components
at a score differ in location alone: Gammas of one shape, or Normals of one variance.
"""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from .special_forms import log_negative_binomial

__all__ = [
    "WIDTH",
    "Frame",
    "MixtureCells",
    "count_frame",
    "count_log_density",
    "families_path",
    "frame_slopes",
    "frame_tilt",
    "grid",
    "inverse_trigamma",
    "moves",
    "spread_of",
    "value_frame",
    "value_log_density",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

WIDTH = 0.3
"""Sd of a component in units of the frame's spread."""

_STEP = 0.35  # between components: at 1.2 sd their equal mixture is flat to 1e-6
# small shapes have long lower tails of log theta, at worst exponential with mean one spread
_ENDS = {"poisson": (-8.05, 6.3), "normal": (-7.7, 7.7)}
_CORNER = 3.0  # spreads beyond which the tilt that widens the frame grows linearly
_SMOOTHEST = 1e4  # Gammas of larger shape are log-normal for the purpose of the path below
_LOG_SHAPES = (-2.7, 230.0)  # least and largest logarithm of a count frame's Gamma shape
_MANY = 1000.0  # counts from which on each component's probability is formed by itself
_FLOOR, _FLOOR_SD = 1e-3, 2.0  # share and width of what keeps heavier tails within reach


@dataclass(frozen=True)
class Frame:
    """Where the components are at some scores.

    Attributes
    ----------
    location, spread
        Shape (n,): mean and sd of log theta (counts) or of theta (values) under the pilot.
    own
        Shape (n,): the pilot's Gamma shape (counts); 0 for values.
    """

    location: Floats
    spread: Floats
    own: Floats

    def width(self, extra: ArrayLike = 0.0) -> Floats:
        """Variance of a component, and of `extra` that adds to it: shape (n,)."""
        return np.asarray((WIDTH * self.spread) ** 2 + np.asarray(extra, dtype=float))


@dataclass(frozen=True)
class MixtureCells:
    """What the likelihood of a mixture reads: bins one after the other.

    Attributes
    ----------
    base
        (bins, R): log weights of the components, up to a constant, where the tilt is 0.
    basis
        (bins, R, J): what the tilt's J functions add to them.
    start, items
        Offsets (bins + 1,) of each bin's cells, and their numbers of items (cells,).
    density
        (cells, R): marginal densities under the components, divided by the cell's largest.
    constant
        (bins,): sum of the logarithms of these divisors.
    """

    base: Floats
    basis: Floats
    start: Ints
    items: Floats
    density: NDArray[np.float32]
    constant: Floats

    @property
    def arrays(self) -> tuple[NDArray[np.generic], ...]:
        """All arrays in the order of the kernel."""
        return tuple(getattr(self, f.name) for f in fields(self))


def grid(kind: str) -> Floats:
    """Positions z of the components, in units of the frame's spread."""
    low, high = _ENDS[kind]
    return np.linspace(low, high, round((high - low) / _STEP) + 1)


def inverse_trigamma(value: ArrayLike) -> Floats:
    """X > 0 with trigamma(x) = value, by Newton's method on 1/trigamma, which is near linear.

    Examples
    --------
    >>> float(inverse_trigamma(np.pi**2 / 6).round(12))
    1.0
    """
    v = np.asarray(value, dtype=float)
    x = 0.5 + 1.0 / v
    # the ends, of which the search makes no numbers, come from series below
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(30):
            tri = special.polygamma(1, x)
            step = tri * (1.0 - tri / v) / special.polygamma(2, x)
            x = x + step
            if np.all(np.abs(step) <= 1e-13 * x):
                break
    # by the series of trigamma at 0, 1/x^2 + zeta(2) - 2 zeta(3) x
    tiny = 1.0 / np.sqrt(v)
    tiny = 1.0 / np.sqrt(
        np.maximum(v - special.zeta(2.0) + 2.0 * special.zeta(3.0) * tiny, 0.5 * v)
    )
    return np.where(v > 1e7, tiny, np.where(v < 1e-6, 1.0 / v + 0.5, x))


def count_frame(log_mean: ArrayLike, log_cv2: ArrayLike) -> Frame:
    """Frame of Gammas with these means and squared coefficients of variation."""
    # wider than e^15 to one sd no frame need be; exponentials of its ends stay finite
    shape = np.exp(np.clip(-np.asarray(log_cv2, dtype=float), *_LOG_SHAPES))
    location = np.asarray(log_mean) + special.psi(shape) - np.log(shape)
    return Frame(location, spread_of(shape), shape)


def spread_of(shape: ArrayLike) -> Floats:
    """Sd of log theta under Gammas of these shapes."""
    return np.asarray(np.sqrt(special.polygamma(1, np.asarray(shape, dtype=float))))


def value_frame(mean: ArrayLike, log_variance: ArrayLike) -> Frame:
    """Frame of Normals with these means and log variances."""
    spread = np.exp(0.5 * np.clip(np.asarray(log_variance, dtype=float), -230.0, 230.0))
    return Frame(np.array(mean, dtype=float), spread, np.zeros(len(spread)))


def moves(z: Floats) -> Floats:
    """Functions of z, (R, 2), that move a Normal frame and change its width."""
    far = np.abs(z) > _CORNER
    return np.column_stack([z, np.where(far, _CORNER * (np.abs(z) - 0.5 * _CORNER), 0.5 * z**2)])


def frame_slopes(frame: Frame) -> Floats:
    """By what the frame of the pilot moves with its curves: rows for `frame_tilt`, (3, n).

    The spread; the derivative of the location in the second curve; and that of the log variance.
    """
    if not frame.own.any():
        return np.stack([frame.spread, np.zeros(len(frame.own)), np.ones(len(frame.own))])
    a = frame.own  # the mean and variance of log theta depend on the Gamma's shape
    tri = special.polygamma(1, a)
    return np.stack([frame.spread, 1.0 - a * tri, -a * special.polygamma(2, a) / tri])


def frame_tilt(first: Any, second: Any, slopes: Any, exp: Any = np.exp) -> tuple[Any, Any]:
    """Coefficients of `moves` that take the pilot's frame to that of other curves.

    Parameters
    ----------
    first, second
        How far the two curves are from the pilot's at n scores, (..., n).
    slopes
        Of `frame_slopes` there.
    exp
        The exponential function of the curves' kind of array.

    Returns
    -------
    tuple
        With w the variance of the components' positions, Normal weights with mean mu and variance w
        have mu / w and 1/w(pilot) - 1/w. The spread's change is taken to first order in log w,
        which keeps w positive.
    """
    spread, lower, stretch = slopes[0], slopes[1], slopes[2]
    pilot = 1.0 - WIDTH**2
    precision = exp(-second * stretch / pilot) / pilot
    return (first + second * lower) / spread * precision, 1.0 / pilot - precision


def families_path(frame: Frame, z: Floats, kind: str) -> tuple[Floats, Floats]:
    """Log weights of the components that make the frame's own family.

    Parameters
    ----------
    frame
        The frame at n scores.
    z
        Positions of R components.
    kind
        "poisson" or "normal".

    Returns
    -------
    tuple of numpy.ndarray
        Log weights (n, R) that give the frame's Normal (of log theta, for counts), exact but for
        the grid; and (n, R) what must be added to give its Gamma: theta ~ Gamma(a) is Gamma(A)
        times Beta(a, A - a). The second is 0 for values. A little of a wider Normal is mixed into
        the Gamma, whose upper end no tilt could lift otherwise.
    """
    normal = special.log_softmax(-0.5 * z**2 / (1.0 - WIDTH**2))
    base = np.broadcast_to(normal, (len(frame.location), len(z))).copy()
    if kind == "normal":
        return base, np.zeros_like(base)
    own = np.minimum(frame.own, _SMOOTHEST)[:, None]
    spread = spread_of(own)
    shape = inverse_trigamma((WIDTH * spread) ** 2)
    between = np.concatenate([[-np.inf], 0.5 * (z[1:] + z[:-1]), [np.inf]])
    log_share = special.psi(own) - special.psi(shape) + spread * between
    mass = np.diff(special.betainc(own, shape - own, np.exp(np.minimum(log_share, 0.0))), axis=1)
    wide = special.softmax(-0.5 * (z / _FLOOR_SD) ** 2)
    return base, np.log((1.0 - _FLOOR) * np.maximum(mass, 0.0) + _FLOOR * wide) - base


def count_log_density(
    count: Floats, exposure: Floats, location: Floats, variance: Floats
) -> Floats:
    """Log marginal probability of counts under Gammas known by the mean and variance of log theta.

    Parameters
    ----------
    count, exposure, variance
        Shape (n,).
    location
        Shape (n, R).

    Returns
    -------
    numpy.ndarray
        Shape (n, R).
    """
    shape = inverse_trigamma(variance)
    log_mean = location + (np.log(shape) - special.psi(shape))[:, None]
    expected = exposure[:, None] * np.exp(log_mean)
    found = np.empty_like(log_mean)
    many = count >= _MANY
    found[many] = log_negative_binomial(count[many, None], shape[many, None], expected[many])
    few = ~many
    y, a, means, logs = (x[few] for x in (count, shape, expected, log_mean))
    # what the components differ by from one in the middle, whose own is known: cheap, and exact
    # as no term is larger than a count
    middle = logs.shape[1] // 2
    whole = (a + means[:, middle])[:, None]
    away = (means - means[:, [middle]]) / whole
    lost = away < -0.999  # next to nothing of the one in the middle, whose digits cover it
    log_ratio = np.log1p(np.where(lost, 0.0, away))
    if lost.any():
        log_ratio[lost] = np.log(((a[:, None] + means) / whole)[lost])
    found[few] = y[:, None] * (logs - logs[:, [middle]]) - (a + y)[:, None] * log_ratio
    found[few] += log_negative_binomial(y, a, means[:, middle])[:, None]
    return found


def value_log_density(value: Floats, noise: Floats, location: Floats, variance: Floats) -> Floats:
    """Log marginal density of values with noise variance `noise` under Normal components.

    Parameters
    ----------
    value, noise, variance
        Shape (n,).
    location
        Shape (n, R).
    """
    total = (variance + noise)[:, None]
    away = (value[:, None] - location) / np.sqrt(total)
    return np.asarray(-0.5 * (away * away + np.log(2.0 * np.pi * total)))
