"""Posteriors of the simulations' items by quadrature: the best that anyone can estimate."""

import numpy as np
import pytensor
import pytensor.tensor as pt
from numpy.polynomial.hermite_e import hermegauss
from pymc.blocking import DictToArrayBijection
from scipy import special
from scipy.interpolate import CubicSpline

DEEP = 40.0  # the integrands' ends lie this many nats below the density's peak
CHUNK = 1 << 20  # numbers in one array of items x nodes
BEND = 0.01  # mean of (x'g)^2
NODES = 30  # of the quadrature over x'g; the posterior's moments are smooth in it
STEP = 0.01  # of the fine grid of y - t; splines on it err by 1e-10


def s1_curves(score):
    """Returns the true log mean and log cv2 of `soc.simulation.s1`."""
    x = np.log(np.asarray(score) / 0.05)
    log_mean = np.log(0.05) + 0.8 * x - 0.15 * x**2 / (1 + np.abs(x)) + 0.15 * np.tanh(2 * x)
    return log_mean, np.log(0.3) - 0.8 * np.tanh(x)


def lognormal_oracle(score, count, exposure, delta, sigma):
    """Returns posterior means and variances of theta for `soc.simulation.lognormal_rates`.

    Around its mode, the posterior of x = log theta is exp(-u^2/2 - n (e^(sigma u) - 1 - sigma u)),
    where u = (x - mode)/sigma and n = N e^mode is the count expected there: log-concave and
    analytic, so that the trapezoid rule between points where it has vanished converges
    exponentially (Trefethen and Weideman 2014).
    """
    t, y, size = (np.asarray(x, dtype=float) for x in (score, count, exposure))
    mode, expected = _modes(np.log(t) + delta, y, size, sigma)
    nodes = 64 + int(64 * sigma + 24 * sigma**2)
    mean, variance = np.empty(len(t)), np.empty(len(t))
    step = max(CHUNK // nodes, 1)
    for start in range(0, len(t), step):
        part = slice(start, start + step)
        first, second = _moments(expected[part], sigma, nodes)
        peak = np.exp(mode[part])
        mean[part] = peak * (1.0 + first)
        variance[part] = peak * peak * (second - first * first)
    return mean, variance


def _modes(centre, y, size, sigma):
    """Mode of log theta and the count n expected there: n s^2 e^(n s^2) = N s^2 e^(centre + y s^2).

    `wrightomega(z)` solves w + log w = z.
    """
    a = sigma * sigma
    # of the two forms the one not taken may overflow or have a logarithm of 0
    with np.errstate(divide="ignore", invalid="ignore"):
        scaled = special.wrightomega(np.log(size) + np.log(a) + centre + a * y)
        # either form loses digits where the other keeps them
        by_rate = np.log(scaled / a) - np.log(size)
    mode = np.where(scaled < 1.0, centre + a * y - scaled, by_rate)
    return mode, scaled / a


def _moments(expected, sigma, nodes):
    """Posterior means of w and w^2, w = theta / mode - 1."""
    low, high = _cut_points(expected, sigma)
    u = low + (high - low) * np.linspace(0.0, 1.0, nodes)[:, None]
    w = np.expm1(sigma * u)
    density = np.exp(-0.5 * u * u - expected * (w - sigma * u))
    total = density.sum(axis=0)
    density *= w
    first = density.sum(axis=0) / total
    density *= w
    return first, density.sum(axis=0) / total


def _cut_points(expected, sigma):
    """Points beyond which the density, and on the right its product with theta^2, has vanished.

    On the right e^x - 1 - x is above x^2 / 2; on the left it is above x^2 / e for x > -1, and
    above -1 - x.
    """
    curvature = 1.0 + expected * sigma**2
    high = (2.0 * sigma + np.sqrt(4.0 * sigma**2 + 2.0 * DEEP * curvature)) / curvature
    low = np.sqrt(DEEP / (0.5 + expected * sigma**2 / np.e))
    slope = expected * sigma
    far = (2.0 * DEEP + 2.0 * expected) / (slope + np.sqrt(slope**2 + 2.0 * (DEEP + expected)))
    return -np.where(sigma * low < 1.0, low, far), high


def laplace_oracle(table):
    """Returns posterior means and variances of theta for `soc.simulation.laplace_effects`.

    The regression of y on x is x'b + 0.01, as (x'g)^2 = 0.01 chi2_1 has the mean 0.01; and x'g is
    independent of x'b, because g is orthogonal to b. If the coefficients were known,
    theta - (t - 0.01) would be, at every t, the sum of 0.01 chi2_1 and a Laplace variable. Their
    errors, of about 6/sqrt(n_items) in t, are left out: they add 40/n_items to a variance of 2.
    Given x'g the posterior is two pieces of Normals, in closed form.
    """
    base = table["score"].to_numpy() - BEND
    away = table["value"].to_numpy() - base
    grid = np.arange(away.min() - STEP, away.max() + 2 * STEP, STEP)
    moments = CubicSpline(grid, np.stack(_effect_moments(grid), axis=1))(away)
    return base + moments[:, 0], moments[:, 1]


def _effect_moments(away):
    """Mean and variance of the effect c + e given c + e + noise, c = 0.01 chi2_1, e Laplace."""
    node, weight = hermegauss(NODES)
    bend = BEND * node[:, None] ** 2
    v = away - bend
    # with e > 0 the product of exp(-e) and the noise's density is a Normal around v - 1, cut at 0;
    # with e < 0 around v + 1
    up, down = v - 1.0, -v - 1.0
    log_up, log_down = special.log_ndtr(up) - v, special.log_ndtr(down) + v
    log_marginal = np.logaddexp(log_up, log_down)
    share = np.exp(log_up - log_marginal)
    hazard_up, hazard_down = _hazard(up), _hazard(down)
    first = share * (up + hazard_up) - (1.0 - share) * (down + hazard_down)
    second = share * (1.0 + up * (up + hazard_up))
    second += (1.0 - share) * (1.0 + down * (down + hazard_down))
    log_weight = np.log(weight)[:, None] + log_marginal
    posterior = np.exp(log_weight - special.logsumexp(log_weight, axis=0))
    mean = (posterior * (bend + first)).sum(axis=0)
    within = (posterior * (second - first**2)).sum(axis=0)
    return mean, within + (posterior * (bend + first - mean) ** 2).sum(axis=0)


def _hazard(z):
    """Normal density over distribution function at z."""
    return np.exp(-0.5 * z * z - 0.5 * np.log(2 * np.pi) - special.log_ndtr(z))


def pymc_density(model, points):
    """Returns a PyMC model's log density at points of its value variables, and gradients."""
    start = DictToArrayBijection.map(model.initial_point())
    outputs = [model.logp(), *pt.grad(model.logp(), model.value_vars)]
    function = pytensor.function(model.value_vars, outputs, mode="FAST_COMPILE")
    parts = (DictToArrayBijection.rmap(start._replace(data=point)) for point in points)
    results = [function(*part.values()) for part in parts]
    values = np.array([value for value, *_ in results])
    return values, np.array([np.concatenate(list(map(np.ravel, x[1:]))) for x in results])
