"""A grid of conjugate components around a base distribution, and the likelihood of bins under it.

The base distribution has a location and a spread of theta given the score: of log theta for counts,
of theta for values, of logit theta for successes. Component r is at location + spread z_r, and its
sd is a fixed share of the spread, so one grid suits curves whose spread changes tenfold with the
score. The components at a score differ only in location: Gammas of one shape, Normals of one
variance, or Betas of one variance of logit theta (`beta_mixtures`).
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
"""Sd of a component in units of the base distribution's spread."""

STEP = 0.35  # step between components: at 1.2 sd their equal mixture is flat to 1e-6
_CORNER = 3.0  # spreads beyond which the function that widens the base distribution is linear
_SMOOTHEST = 1e4  # Gammas of larger shape count as log-normal in the path below
_LOG_SHAPES = (-2.7, 230.0)  # smallest and largest log shape of a base Gamma
_MANY = 1000.0  # counts above which each component's probability is computed separately
_SPLIT = 1e-3  # nats: a cell of several values becomes two points if the difference is larger
_FLOOR, _FLOOR_SD = 1e-3, 2.0  # share and width of the wider Normal that allows heavier tails


@dataclass(frozen=True)
class Frame:
    """Base distributions at some scores, which place the components."""

    location: Floats  # (n,): mean of theta, or of its log or logit, under the Laplace start
    spread: Floats  # (n,): its sd
    own: Floats  # (n,): shape of the Laplace start's Gamma (counts); 0 for others

    def width(self, extra: ArrayLike = 0.0) -> Floats:
        """Variance of a component, and of `extra` that adds to it: shape (n,)."""
        return np.asarray((WIDTH * self.spread) ** 2 + np.asarray(extra, dtype=float))


@dataclass(frozen=True)
class MixtureCells:
    """Data of the likelihood of a mixture, row by row."""

    base: Floats  # (rows, R): log weights of the components, up to a constant, at coefficients 0
    basis: Floats  # (rows, R, J): the J functions of the log weights
    start: Ints  # (rows + 1,): offsets of each row's cells
    items: Floats  # (cells,): numbers of items
    density: NDArray[np.float32]  # (cells, R): under the components, over the cell's largest
    constant: Floats  # (rows,): sum of the logarithms of these divisors

    kernel: ClassVar[str] = "mixture"
    signature: ClassVar[str] = "(b,r),(b,r,j),(s),(c),(c,r),(b)"
    near: ClassVar[None] = None  # few cells are summed exactly
    informs_variance: ClassVar[bool] = True  # other data are refused before

    @property
    def arrays(self) -> tuple[NDArray[np.generic], ...]:
        """All arrays in the order of the kernel."""
        return tuple(getattr(self, f.name) for f in fields(self))


def inverse_trigamma(value: ArrayLike) -> Floats:
    """X > 0 with trigamma(x) = value, by Newton's method on 1/trigamma, which is nearly linear."""
    v = np.asarray(value, dtype=float)
    x = 0.5 + 1.0 / v
    # at the ends, where the search fails, series are used below
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
    """Base distributions of Gammas with these means and squared coefficients of variation."""
    # a spread of at most 15, so that exponentials of the ends stay finite
    shape = np.exp(np.clip(-np.asarray(log_cv2, dtype=float), *_LOG_SHAPES))
    location = np.asarray(log_mean) + special.psi(shape) - np.log(shape)
    return Frame(location, spread_of(shape), shape)


def spread_of(shape: ArrayLike) -> Floats:
    """Sd of log theta under Gammas of these shapes."""
    return np.asarray(np.sqrt(special.polygamma(1, np.asarray(shape, dtype=float))))


def value_frame(mean: ArrayLike, log_variance: ArrayLike) -> Frame:
    """Base distributions of Normals with these means and log variances."""
    spread = np.exp(0.5 * np.clip(np.asarray(log_variance, dtype=float), -230.0, 230.0))
    return Frame(np.array(mean, dtype=float), spread, np.zeros(len(spread)))


def moves(z: Floats) -> Floats:
    """Functions of z, (R, 2), that shift a Normal base distribution and change its width."""
    far = np.abs(z) > _CORNER
    return np.column_stack([z, np.where(far, _CORNER * (np.abs(z) - 0.5 * _CORNER), 0.5 * z**2)])


def _gamma_slopes(frame: Frame) -> Floats:
    a = frame.own  # the mean and variance of log theta depend on the Gamma's shape
    tri, one = special.polygamma(1, a), np.ones(len(a))
    stretch = -a * special.polygamma(2, a) / tri
    return np.stack([frame.spread, one, 1.0 - a * tri, np.zeros(len(a)), stretch])


def _normal_slopes(frame: Frame) -> Floats:
    one, none = np.ones(len(frame.spread)), np.zeros(len(frame.spread))
    return np.stack([frame.spread, one, none, none, one])


def frame_tilt(first: Any, second: Any, slopes: Any, exp: Any = np.exp) -> tuple[Any, Any]:
    """Coefficients of `moves` that change the base distributions to those of other curves.

    `first` and `second` are the two curves less the Laplace start's at n scores, (..., n), `slopes`
    the `Components.slopes` there, and `exp` the exponential for their kind of array. With w the
    variance of the components' positions, Normal weights with mean mu and variance w have mu / w
    and 1/w(start) - 1/w. The spread's change is taken to first order in log w, which keeps w
    positive.
    """
    spread, rise, lower, lean, stretch = (slopes[k] for k in range(5))
    start = 1.0 - WIDTH**2
    precision = exp(-(first * lean + second * stretch) / start) / start
    return (first * rise + second * lower) / spread * precision, 1.0 / start - precision


def gamma_weights(frame: Frame, z: Floats) -> Floats:
    """Weights (n, R) of components that make the base distribution's Gamma.

    Theta ~ Gamma(a) is Gamma(A) times Beta(a, A - a).
    """
    own = np.minimum(frame.own, _SMOOTHEST)[:, None]
    spread = spread_of(own)
    shape = inverse_trigamma((WIDTH * spread) ** 2)
    between = np.concatenate([[-np.inf], 0.5 * (z[1:] + z[:-1]), [np.inf]])
    log_share = special.psi(own) - special.psi(shape) + spread * between
    mass = np.diff(special.betainc(own, shape - own, np.exp(np.minimum(log_share, 0.0))), axis=1)
    return np.maximum(mass, 0.0)


def count_log_density(
    count: Floats, exposure: Floats, location: Floats, variance: Floats
) -> Floats:
    """Log marginal probability (n, R) of counts (n,) under Gammas.

    They are given by the mean, `location` (n, R), and the variance (n,) of log theta.
    """
    shape = inverse_trigamma(variance)
    log_mean = location + (np.log(shape) - special.psi(shape))[:, None]
    expected = exposure[:, None] * np.exp(log_mean)
    found = np.empty_like(log_mean)
    many = count >= _MANY
    found[many] = log_negative_binomial(count[many, None], shape[many, None], expected[many])
    few = ~many
    y, a, means, logs = (x[few] for x in (count, shape, expected, log_mean))
    # differences from a component in the middle, whose probability is known: cheap, and accurate
    # because no term is larger than a count
    middle = logs.shape[1] // 2
    whole = (a + means[:, middle])[:, None]
    away = (means - means[:, [middle]]) / whole
    lost = away < -0.999  # negligible relative to the one in the middle
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


# --- functions of a mixture's family -------------------------------------------------------------


class Moments(NamedTuple):
    """Means, variances and covariance of outcomes and sizes in cells."""

    outcome: Floats
    size: Floats
    var_outcome: Floats
    var_size: Floats
    cov: Floats
    bend: tuple[Floats, Floats]  # direction of (outcome, size) in which the likelihood is curved
    lowest: Floats  # bounds of outcomes


def count_moments(cells: Mapping[str, NDArray[Any]]) -> Moments:
    """Of counts and exposures: the log likelihood is curved in the log of their ratio."""
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


def merged_normals(location: Floats, fine: Frame, mean: Callable[[Floats], Floats]) -> Frame:
    """Base distributions of merged bins, which location and spread determine."""
    return Frame(location, np.exp(mean(np.log(fine.spread))), np.zeros(len(location)))


@dataclass(frozen=True)
class Components:
    """A family's components around base distributions from its curves."""

    ends: tuple[float, float]  # of the positions, in units of the base distribution's spread
    base: Callable[[Any, Any], Frame]  # of both curves
    # slopes of base distributions in their curves, (5, n): the spread; of the location in the first
    # and in the second curve; and of the log variance
    slopes: Callable[[Frame], Floats]
    # (bases, positions) -> weights (n, R) of the family's own base; None where that is Normal
    path: Callable[[Frame, Floats], Floats] | None
    merged: Callable[..., Frame]  # (location, bases, averages over merged bins) -> their base
    log_density: Callable[[Floats, Floats, Floats, Floats], Floats]
    moments: Callable[[Mapping[str, NDArray[Any]]], Moments]
    scale: Callable[[ArrayLike], Floats]  # variance of components -> Gamma shape, or itself
    sharpness: Callable[[Mapping[str, NDArray[Any]], Floats], Floats]  # (cells, scale of each)

    @property
    def z(self) -> Floats:
        """Positions of the components, in units of the base distribution's spread."""
        low, high = self.ends
        return np.linspace(low, high, round((high - low) / STEP) + 1)

    def weights_basis(self, base: Frame, functions: Floats) -> tuple[Floats, Floats]:
        """Log weights (n, R) at coefficients 0, and their functions (n, R, 2 + F).

        The weights are those of a Normal base distribution, exact up to the grid. The first two
        functions shift and widen it. The F further ones are functions of z, (R, F). A path, if
        there is one, replaces the first of these: the step to the family's own weights, with a
        small share of a wider Normal, so that weights at the ends are positive.
        """
        z = self.z
        weight = special.log_softmax(-0.5 * z**2 / (1.0 - WIDTH**2))
        normal = np.broadcast_to(weight, (len(base.location), len(z))).copy()
        every = np.hstack([moves(z), functions])
        basis = np.broadcast_to(every, (len(normal), *every.shape)).copy()
        if self.path is not None:
            wide = special.softmax(-0.5 * (z / _FLOOR_SD) ** 2)
            own = (1.0 - _FLOOR) * self.path(base, z) + _FLOOR * wide
            basis[:, :, 2] = np.log(own) - normal
        return normal, basis


GAMMAS = Components(
    # lower tails of log theta are at worst exponential with a mean of one spread
    ends=(-8.05, 6.3),
    base=count_frame,
    slopes=_gamma_slopes,
    path=gamma_weights,
    merged=_merged_gammas,
    log_density=count_log_density,
    moments=count_moments,
    scale=inverse_trigamma,
    sharpness=_count_sharpness,
)
NORMALS = Components(
    ends=(-7.7, 7.7),
    base=value_frame,
    slopes=_normal_slopes,
    path=None,
    merged=merged_normals,
    log_density=value_log_density,
    moments=_value_moments,
    scale=np.asarray,
    sharpness=_value_sharpness,
)


def cell_points(
    components: Components, cells: Mapping[str, NDArray[Any]], sharpness: Floats
) -> tuple[Ints, tuple[Floats, Floats], Floats]:
    """Joint cells as weighted points: cell of each, its outcome and size, and number of items.

    A cell of several values becomes two points with its means and, in the direction in which the
    log likelihood is curved by `sharpness` (the ratio of count and exposure; the value), its
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

    Arithmetic on the numbers' bits is vectorised, unlike calls of log, and five times as fast.
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
    """Log marginals (draws, bins) and slopes (draws, bins, J) at coefficients (draws, bins, J)."""
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
                # for a draw far from the data a cell's density may underflow in single precision
                row[d] = max(row[d], np.float32(1e-37))
            _add_logs(row, n[c], total, bits, real, octave)
            for d in range(draws):
                row[d] = many / row[d]
        pull = (cells.T @ p).T
        away = weight * pull - weight * n.sum()
        slope[:, b] = away @ functions
        value[:, b] = total + constant[b]


def tilted_weights(tilt: Floats, base: Floats, basis: Floats) -> Floats:
    """Weights (..., n, R) at n scores, with log weights base + basis @ tilt, tilt (..., n, J)."""
    log_weight = base + np.matmul(basis, tilt[..., None])[..., 0]
    log_weight -= log_weight.max(axis=-1, keepdims=True)
    weight = np.exp(log_weight)
    return np.asarray(weight / weight.sum(axis=-1, keepdims=True))


def information(tilt: Floats, cells: MixtureCells) -> tuple[Floats, Floats]:
    """Expected and observed information of coefficients (bins, J), each (bins, J, J).

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
