"""A grid of conjugate components around a frame, and bins of outcomes under their mixture.

The frame is a location and a spread of theta given the score: of log theta for counts, of theta
itself for values. Component r sits at location + spread z_r, and its own sd is a fixed share of the
spread, so that one grid serves curves whose spread changes tenfold with the score. The components
at a score differ in location alone: Gammas of one shape, or Normals of one variance.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, NamedTuple

import numba
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from .._lib.arrays import Floats, Ints
from .special_forms import log_negative_binomial

WIDTH = 0.3
"""Sd of a component in units of the frame's spread."""

_STEP = 0.35  # between components: at 1.2 sd their equal mixture is flat to 1e-6
# small shapes have long lower tails of log theta, at worst exponential with mean one spread
_ENDS = {"poisson": (-8.05, 6.3), "normal": (-7.7, 7.7)}
_CORNER = 3.0  # spreads beyond which the tilt that widens the frame grows linearly
_SMOOTHEST = 1e4  # Gammas of larger shape are log-normal for the purpose of the path below
_LOG_SHAPES = (-2.7, 230.0)  # least and largest logarithm of a count frame's Gamma shape
_MANY = 1000.0  # counts from which on each component's probability is formed by itself
_SPLIT = 1e-3  # nats: a cell of several values becomes two points where it matters as much
_FLOOR, _FLOOR_SD = 1e-3, 2.0  # share and width of what keeps heavier tails within reach


@dataclass(frozen=True)
class Frame:
    """Base distributions at some scores, around which the components lie."""

    location: (
        Floats  # (n,): mean of log theta (counts) or of theta (values) under the Laplace start
    )
    spread: Floats  # (n,): its sd
    own: Floats  # (n,): shape of the Laplace start's Gamma (counts); 0 for values

    def width(self, extra: ArrayLike = 0.0) -> Floats:
        """Variance of a component, and of `extra` that adds to it: shape (n,)."""
        return np.asarray((WIDTH * self.spread) ** 2 + np.asarray(extra, dtype=float))


@dataclass(frozen=True)
class MixtureCells:
    """What the likelihood of a mixture reads: rows one after the other."""

    base: Floats  # (rows, R): log weights of the components, up to a constant, at coefficients 0
    basis: Floats  # (rows, R, J): what the weights' J functions add to them
    start: Ints  # (rows + 1,): offsets of each row's cells
    items: Floats  # (cells,): numbers of items
    density: NDArray[np.float32]  # (cells, R): under the components, over the cell's largest
    constant: Floats  # (rows,): sum of the logarithms of these divisors

    kernel: ClassVar[str] = "mixture"
    signature: ClassVar[str] = "(b,r),(b,r,j),(s),(c),(c,r),(b)"
    near: ClassVar[None] = None  # cells are few enough to be added up

    @property
    def arrays(self) -> tuple[NDArray[np.generic], ...]:
        """All arrays in the order of the kernel."""
        return tuple(getattr(self, f.name) for f in fields(self))


def grid(kind: str) -> Floats:
    """Positions z of the components, in units of the frame's spread."""
    low, high = _ENDS[kind]
    return np.linspace(low, high, round((high - low) / _STEP) + 1)


def inverse_trigamma(value: ArrayLike) -> Floats:
    """X > 0 with trigamma(x) = value, by Newton's method on 1/trigamma, which is near linear."""
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
    """How the base of the Laplace start moves with its curves: rows for `frame_tilt`, (3, n).

    The spread; the derivative of the location in the second curve; and that of the log variance.
    """
    if not frame.own.any():
        return np.stack([frame.spread, np.zeros(len(frame.own)), np.ones(len(frame.own))])
    a = frame.own  # the mean and variance of log theta depend on the Gamma's shape
    tri = special.polygamma(1, a)
    return np.stack([frame.spread, 1.0 - a * tri, -a * special.polygamma(2, a) / tri])


def frame_tilt(first: Any, second: Any, slopes: Any, exp: Any = np.exp) -> tuple[Any, Any]:
    """Coefficients of `moves` that take the base distributions to those of other curves.

    `first` and `second` are how far the two curves are from the Laplace start's at n scores,
    (..., n), `slopes` of `frame_slopes` there, and `exp` the exponential of their kind of array.
    With w the variance of the components' positions, Normal weights with mean mu and variance w
    have mu / w and 1/w(start) - 1/w. The spread's change is taken to first order in log w, which
    keeps w positive.
    """
    spread, lower, stretch = slopes[0], slopes[1], slopes[2]
    start = 1.0 - WIDTH**2
    precision = exp(-second * stretch / start) / start
    return (first + second * lower) / spread * precision, 1.0 / start - precision


def families_path(frame: Frame, z: Floats, kind: str) -> tuple[Floats, Floats]:
    """Log weights (n, R) that make the base's Normal, and what must be added for its own family.

    The first are exact except for the grid (a Normal of log theta, for counts). What makes the
    Gamma of them: theta ~ Gamma(a) is Gamma(A) times Beta(a, A - a). It is 0 for values. A little
    of a wider Normal is mixed into the Gamma, whose upper end no weights could lift otherwise.
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
    """Log marginal probability (n, R) of counts (n,) under Gammas.

    These are known by the mean, `location` (n, R), and the variance (n,) of log theta.
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
    """Log marginal density (n, R) of values (n,) with noise variance `noise` under Normals.

    Their variances are (n,), (n, 1) or (n, R).
    """
    total = noise[:, None] + variance.reshape(len(value), -1)
    away = (value[:, None] - location) / np.sqrt(total)
    return np.asarray(-0.5 * (away * away + np.log(2.0 * np.pi * total)))


# --- what a mixture asks of its family -----------------------------------------------------------


class Moments(NamedTuple):
    """Means, variances and covariance of outcomes and sizes in cells."""

    outcome: Floats
    size: Floats
    var_outcome: Floats
    var_size: Floats
    cov: Floats
    bend: tuple[Floats, Floats]  # direction of (outcome, size) in which the likelihood bends
    lowest: Floats  # that outcomes may be


def _count_moments(cells: Mapping[str, NDArray[Any]]) -> Moments:
    n = cells["n"].astype(float)
    y, size = cells["sum_y"] / n, cells["sum_N"] / n
    by_count = np.where(y > 0, 1.0 / np.maximum(y, 1e-9), 0.0)
    return Moments(
        y,
        size,
        cells["sum_y2"] / n - y**2,
        cells["sum_N2"] / n - size**2,
        cells["sum_yN"] / n - y * size,
        (by_count, -1.0 / np.maximum(size, 1e-300)),
        np.zeros_like(y),
    )


def _value_moments(cells: Mapping[str, NDArray[Any]]) -> Moments:
    n = cells["n"].astype(float)
    y, size = cells["sum_y"] / n, cells["sum_w"] / n
    return Moments(
        y,
        size,
        cells["sum_y2"] / n - y**2,
        cells["sum_w2"] / n - size**2,
        np.zeros_like(n),
        (1.0 / np.sqrt(np.maximum(size, 1e-300)), np.zeros_like(n)),
        np.full_like(y, -np.inf),
    )


def _count_sharpness(cells: Mapping[str, NDArray[Any]], shape: Floats) -> Floats:
    expected = cells["sum_y"] / cells["n"].astype(float) + 1.0
    return np.asarray(shape * expected / (shape + expected))


def _value_sharpness(cells: Mapping[str, NDArray[Any]], variance: Floats) -> Floats:
    noise = cells["sum_w"] / cells["n"].astype(float)
    return np.asarray(noise / (noise + variance))


def _merged_gammas(location: Floats, fine: Frame, mean: Callable[[Floats], Floats]) -> Frame:
    """Exp(mean log) of shapes; spreads are functions of them."""
    own = np.exp(mean(np.log(fine.own)))
    return Frame(location, spread_of(own), own)


def _merged_normals(location: Floats, fine: Frame, mean: Callable[[Floats], Floats]) -> Frame:
    return Frame(location, np.exp(mean(np.log(fine.spread))), np.zeros(len(location)))


@dataclass(frozen=True)
class Components:
    """A family's components around base distributions that its own curves give."""

    kind: str
    path: bool  # whether a path leads from Normal weights to those of the family itself
    base: Callable[[Any, Any], Frame]  # of both curves
    merged: Callable[..., Frame]  # (location, bases, averages over merged bins) -> their base
    log_density: Callable[[Floats, Floats, Floats, Floats], Floats]
    moments: Callable[[Mapping[str, NDArray[Any]]], Moments]
    scale: Callable[[ArrayLike], Floats]  # variance of components -> Gamma shape, or itself
    sharpness: Callable[[Mapping[str, NDArray[Any]], Floats], Floats]  # (cells, scale of each)

    @property
    def z(self) -> Floats:
        """Positions of the components."""
        return grid(self.kind)

    def weights_basis(self, base: Frame, functions: Floats) -> tuple[Floats, Floats]:
        """Log weights (n, R) at coefficients 0, and (n, R, 2 + F) what multiplies these.

        The first two functions move and widen the base; where there is a path it stands for the
        first of the F further ones, given as functions of z, (R, F).
        """
        normal, path = families_path(base, self.z, self.kind)
        every = np.hstack([moves(self.z), functions])
        basis = np.broadcast_to(every, (len(normal), *every.shape)).copy()
        if self.path:
            basis[:, :, 2] = path
        return normal, basis


GAMMAS = Components(
    "poisson", True, count_frame, _merged_gammas, count_log_density, _count_moments,
    inverse_trigamma, _count_sharpness,
)  # fmt: skip
NORMALS = Components(
    "normal", False, value_frame, _merged_normals, value_log_density, _value_moments,
    np.asarray, _value_sharpness,
)  # fmt: skip


def cell_points(
    components: Components, cells: Mapping[str, NDArray[Any]], sharpness: Floats
) -> tuple[Ints, tuple[Floats, Floats], Floats]:
    """Joint cells as weighted points: cell of each, its outcome and size, and number of items.

    A cell of several values stands as two points that keep its means and, in the direction in
    which the log likelihood bends by `sharpness` (the ratio of count and exposure; the value), its
    variance.
    """
    n = cells["n"].astype(float)
    y, size, vy, vn, cov, bend, lowest = components.moments(cells)
    vy, vn = np.maximum(vy, 0.0), np.maximum(vn, 0.0)
    along = vy * bend[0] + cov * bend[1], cov * bend[0] + vn * bend[1]
    spread = along[0] * bend[0] + along[1] * bend[1]
    wide = 0.5 * n * spread * sharpness > _SPLIT
    root = np.sqrt(spread[wide])
    dy, dn = along[0][wide] / root, along[1][wide] / root
    dn = np.clip(dn, -size[wide], size[wide])
    room = y[wide] - lowest[wide]
    dy = np.clip(dy, -room, room)
    first = np.concatenate([y[~wide], y[wide] + dy, y[wide] - dy])
    second = np.concatenate([size[~wide], size[wide] + dn, size[wide] - dn])
    at = np.flatnonzero(wide)
    cell = np.concatenate([np.flatnonzero(~wide), at, at])
    return cell, (first, second), np.concatenate([n[~wide], n[wide] / 2, n[wide] / 2])


# --- log marginal of rows under mixtures: compiled loops -----------------------------------------


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _softmax(log_weight):  # type: ignore[no-untyped-def]
    """Rows of log weights to weights, in place."""
    for d in range(log_weight.shape[0]):
        row = log_weight[d]
        row -= row.max()
        total = 0.0
        for r in range(len(row)):
            row[r] = np.exp(row[r])
            total += row[r]
        row /= total


# log(1 + x) = x - x^2/2 + x^3 P(x) for sqrt(1/2) <= 1 + x < sqrt(2), to 1e-7
_P = np.array(
    [0.0703768363, -0.115146103, 0.116769987, -0.124201408, 0.142493228, -0.166680577, 0.200007148,
     -0.249999940, 0.333333312],
    dtype=np.float32,
)  # fmt: skip
_LOW, _ONE, _HALF = np.int32(0x3F3504F3), np.int32(23), np.float32(0.5)
_LOG2 = np.float32(np.log(2.0))


@numba.njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract", "nsz", "arcp"})
def _add_logs(p, many, total, bits, real, octave):  # type: ignore[no-untyped-def]
    """Add many * log p to the totals; `bits` and `real` are two views of one array.

    Plain arithmetic on the numbers' bits is vectorised, which calls of log are not: five times as
    fast.
    """
    whole = p.view(np.int32)
    for d in range(len(p)):
        e = (whole[d] - _LOW) >> _ONE
        bits[d] = whole[d] - (e << _ONE)
        octave[d] = np.float32(e)
    for d in range(len(p)):
        x = real[d] - np.float32(1.0)
        y = _P[0]
        for k in range(1, 9):
            y = y * x + _P[k]
        log = octave[d] * _LOG2 + (x + x * x * (x * y - _HALF))
        total[d] += many * np.float64(log)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def all_bins(tilt, value, slope, base, basis, start, items, density, constant):  # type: ignore[no-untyped-def]
    """Log marginals (draws, bins) and their slopes (draws, bins, J) at tilts (draws, bins, J)."""
    draws = tilt.shape[0]
    bits, octave = np.empty(draws, dtype=np.int32), np.empty(draws, dtype=np.float32)
    real = bits.view(np.float32)
    for b in range(tilt.shape[1]):
        functions = np.ascontiguousarray(basis[b])
        weight = np.ascontiguousarray(tilt[:, b]) @ functions.T + base[b]
        _softmax(weight)
        cells = density[start[b] : start[b + 1]]
        n = items[start[b] : start[b + 1]]
        p = cells @ weight.T.astype(np.float32)
        total = np.zeros(draws)
        for c in range(p.shape[0]):
            row, many = p[c], np.float32(n[c])
            for d in range(draws):
                # a draw far from the data may leave a cell with no density in single precision
                row[d] = max(row[d], np.float32(1e-37))
            _add_logs(row, n[c], total, bits, real, octave)
            for d in range(draws):
                row[d] = many / row[d]
        pull = (cells.T @ p).T
        away = weight * pull - weight * n.sum()
        slope[:, b] = away @ functions
        value[:, b] = total + constant[b]


def tilted_weights(tilt: Floats, base: Floats, basis: Floats) -> Floats:
    """Weights (..., n, R) at tilts (..., n, J) of n scores with log weights base + basis @ tilt."""
    log_weight = base + np.matmul(basis, tilt[..., None])[..., 0]
    log_weight -= log_weight.max(axis=-1, keepdims=True)
    weight = np.exp(log_weight)
    return np.asarray(weight / weight.sum(axis=-1, keepdims=True))


def information(tilt: Floats, cells: MixtureCells) -> tuple[Floats, Floats]:
    """Expected and observed information of the tilts (bins, J), each (bins, J, J).

    The expected one is estimated by the outer products of the cells' scores; the observed one is
    minus the second derivative, which need not be positive.
    """
    bins, functions = tilt.shape
    expected, observed = np.empty((2, bins, functions, functions))
    weights = tilted_weights(tilt, cells.base, cells.basis)
    for b, weight in enumerate(weights):
        at = slice(cells.start[b], cells.start[b + 1])
        phi, n = cells.basis[b], cells.items[at]
        joint = cells.density[at] * weight
        posterior = joint / np.maximum(joint.sum(axis=1, keepdims=True), 1e-300)
        centred = phi - weight @ phi
        score = posterior @ centred
        expected[b] = (score * n[:, None]).T @ score
        left = n.sum() * weight - n @ posterior
        observed[b] = expected[b] + (centred * left[:, None]).T @ centred
    return expected, observed
