"""Mixtures of Gammas or of Normals: moments in closed form, quantiles by search.

Given one draw of the curves an item's theta is Gamma or Normal; over the draws it is their mixture.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from .._lib.arrays import Floats, Ints
from . import normal_normal, poisson_gamma
from .scales import Scale
from .special_forms import gamma_kernel, gamma_lower, gamma_upper

Rule = tuple[Floats, Floats, Floats]  # weights and both curves at the nodes

# three-point Gauss-Hermite rule, exact for polynomials up to degree 5
_NODE = np.sqrt(3.0) * np.array([-1.0, 0.0, 1.0])
_WEIGHT = np.array([1.0, 4.0, 1.0]) / 6.0


@dataclass(frozen=True)
class Nodes:
    """Gauss rules of a fit's draws at a grid of scores, to be interpolated between them.

    The grid is of positions of scores, and reaches beyond the outer knots on both sides by half
    the distance between them.
    """

    axis: Scale  # of the positions
    grid: Floats
    start: NDArray[np.int64]  # cell in which each step of 1 / scale from the first point begins
    scale: float
    level: NDArray[np.int64]  # (grid - 1,): rule of the cell after a point; the last: all draws
    rules: tuple[Floats, ...]  # by level, (grid, 3, nodes): weights and both parameters of theta
    # by level, how far nodes' posteriors may be spread out, against the width of each, squared
    limits: Floats


def _recurrence(x: Floats, number: int) -> tuple[Floats, Floats]:
    """Orthonormal polynomials of draws (draws, n) by Stieltjes' procedure, and Jacobi matrices.

    Draws of fewer than `number` distinct values give polynomials of 0 and nodes of weight 0.
    """
    draws, n = x.shape
    poly = np.zeros((number, draws, n))
    jacobi = np.zeros((n, number, number))
    poly[0] = 1.0
    beta = np.zeros(n)
    for k in range(number):
        times_x = x * poly[k]
        alpha = np.einsum("sn,sn->n", times_x, poly[k]) / draws
        jacobi[:, k, k] = alpha
        if k + 1 == number:
            break
        rest = times_x
        rest -= alpha * poly[k]
        if k:
            rest -= beta * poly[k - 1]
        norm = np.sqrt(np.einsum("sn,sn->n", rest, rest) / draws)
        beta = np.where(norm > 1e-7, norm, 0.0)
        poly[k + 1] = rest * np.where(beta > 0, 1.0 / np.where(beta > 0, norm, 1.0), 0.0)
        jacobi[:, k, k + 1] = jacobi[:, k + 1, k] = beta
    return poly, jacobi


def _standardised(first: Floats, second: Floats) -> tuple[Floats, Floats, tuple[Floats, ...]]:
    """Draws of the first curve and of what it leaves of the second, each in its own sd."""
    centre, other = first.mean(axis=0), second.mean(axis=0)
    x, z = first - centre, second - other
    # a curve that the draws agree on has a spread of rounding alone, which is no spread
    sd = np.sqrt(np.einsum("sn,sn->n", x, x) / len(x))
    sd = np.where(sd > 1e-12 * (1.0 + np.abs(centre)), sd, 0.0)
    x *= np.where(sd > 0, 1.0 / np.where(sd > 0, sd, 1.0), 0.0)
    slope = np.einsum("sn,sn->n", x, z) / len(x)
    z -= slope * x
    left = np.sqrt(np.einsum("sn,sn->n", z, z) / len(z))
    left = np.where(left > 1e-12 * (1.0 + np.abs(other)), left, 0.0)
    z *= np.where(left > 0, 1.0 / np.where(left > 0, left, 1.0), 0.0)
    return x, z, (centre, sd, other, slope, left)


def gauss_rules(first: ArrayLike, second: ArrayLike, numbers: Sequence[int]) -> list[Rule]:
    """Nodes and weights that average smooth functions of two curves over their draws.

    Draws are (draws, n). For each number K of nodes a curve, the rule's arrays are (K^2, n).
    Polynomials in the first curve of degree 2K - 1, and products of degree K - 1 in each, are
    averaged exactly. Weights sum to 1 and may be negative. All rules cost little more than the
    largest.

    Examples
    --------
    >>> (weight, x, z), = gauss_rules([[-1.0], [1.0]], [[0.0], [2.0]], [2])
    >>> float((weight * x * z).sum().round(12))
    1.0
    """
    first, second = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    x, z, (centre, sd, other, slope, left) = _standardised(first, second)
    poly_x, jacobi_x = _recurrence(x, max(numbers))
    poly_z, jacobi_z = _recurrence(z, max(numbers))
    joint = np.matmul(poly_x.transpose(2, 0, 1), poly_z.transpose(2, 1, 0)) / len(x)
    rules: list[Rule] = []
    for k in numbers:
        at_x, vector_x = np.linalg.eigh(jacobi_x[:, :k, :k])
        at_z, vector_z = np.linalg.eigh(jacobi_z[:, :k, :k])
        # Lagrange's polynomials at Gauss nodes are sums of the orthonormal ones
        lift_x, lift_z = vector_x * vector_x[:, :1], vector_z * vector_z[:, :1]
        weight = np.matmul(lift_x.transpose(0, 2, 1), np.matmul(joint[:, :k, :k], lift_z))
        n1 = (centre[:, None] + sd[:, None] * at_x)[:, :, None]
        n2 = (other[:, None] + slope[:, None] * at_x)[:, :, None] + (left[:, None] * at_z)[:, None]
        rules.append((_flat(weight), _flat(np.broadcast_to(n1, n2.shape)), _flat(n2)))
    return rules


def _flat(values: Floats) -> Floats:
    return np.ascontiguousarray(values.reshape(len(values), -1).T)


def product_rule(
    log_mean: Floats, log_cv2: Floats, var_mean: Floats, both: Floats, var_cv2: Floats
) -> tuple[Floats, Floats, Floats]:
    """Nine nodes with given means and covariances: three-point Gauss-Hermite rules, multiplied.

    Takes the means, variances and covariance of both curves, (n,); gives weights (9,) and both
    curves (9, n).
    """
    sd = np.sqrt(np.maximum(var_mean, 0.0))
    slope = np.divide(both, sd, out=np.zeros_like(sd), where=sd > 0)
    rest = np.sqrt(np.maximum(var_cv2 - slope**2, 0.0))
    first, second = (x.ravel()[:, None] for x in np.meshgrid(_NODE, _NODE, indexing="ij"))
    weight = np.outer(_WEIGHT, _WEIGHT).ravel()
    return weight, log_mean + first * sd, log_cv2 + first * slope + second * rest


# a step of a quantile's search leaves an error of itself times that of the slope, a few percent
_CLOSE = 1e-5
_STEPS = 1000  # a bound never met: steps of 2 and then bisection need fewer than 800
_LONGEST = 2.0  # step in log theta
_LEAST = -690.0  # least log theta
_FARTHEST = 1e105  # of theta times a rate: shapes are less than 1e101
_FEW_DRAWS = 18  # fewer draws than this need no coarse start


@dataclass(frozen=True)
class Summaries:
    """Posterior summaries of n items, over items and curves alike (total variance)."""

    mean: Floats
    variance: Floats
    quantiles: Floats  # (probabilities, n)

    @property
    def rows(self) -> Floats:
        """Mean, sd, variance and quantiles, (3 + probabilities, n)."""
        return np.vstack([self.mean, np.sqrt(self.variance), self.variance, self.quantiles])


def weighted(weight: Floats, values: Floats) -> Floats:
    """Weighted sum over draws; weights (draws, 1) or (draws, n)."""
    if weight.shape[1] == 1:
        return np.asarray(weight[:, 0] @ values)
    return np.asarray(np.einsum("sn,sn->n", weight, values))


def weight_columns(weight: Floats | None, number: int) -> Floats:
    """Weights as (draws, 1) or (draws, n); equal ones where none are given."""
    if weight is None:
        weight = np.full(number, 1.0 / number)
    return weight if weight.ndim == 2 else weight[:, None]


def _search(
    x: Floats,
    low: Floats,
    high: Floats,
    newton: Callable[[Floats, NDArray[np.intp]], tuple[Floats, NDArray[np.bool_]]],
    close: Floats,
    longest: float = np.inf,
) -> None:
    """Roots of rising functions by Newton's method, in place, with bisection where it strays.

    `newton(x, at)` gives, for the functions `at`, the step and whether the root is above x; it may
    be NaN. A search ends with a step, or between bounds, of less than `close`.
    """
    active = np.arange(len(x))
    for _ in range(_STEPS):
        if not len(active):
            break
        here = x[active]
        step, up = newton(here, active)
        low[active], high[active] = (
            np.where(up, here, low[active]),
            np.where(up, high[active], here),
        )
        a, b = low[active], high[active]
        stays = (here + step >= a) & (here + step <= b)
        done = (stays & (np.abs(step) <= close[active])) | (b - a <= close[active])
        # far from both ends a long step is a better guess than the middle
        x[active] = np.clip(
            np.where(stays, here + step, 0.5 * (a + b)), here - longest, here + longest
        )
        active = active[~done]


# --- Gammas --------------------------------------------------------------------------------------


def gamma_summaries(
    log_mean: Floats,
    log_cv2: Floats,
    count: Floats,
    exposure: Floats,
    probs: Sequence[float] = (),
    weight: Floats | None = None,
    close: float = _CLOSE,
) -> Summaries:
    """Summaries of the mixture over draws of Gamma(1/cv2 + y, 1/(cv2 mean) + N).

    Curves are (draws, n), counts and exposures (n,), weights (draws,) or (draws, n) with sum 1;
    None is equal weights. Quantiles are good to a tenth of `close` posterior sd.
    """
    weight = weight_columns(weight, len(log_mean))
    mixture = _Gammas.posterior(log_mean, log_cv2, weight, count, exposure)
    mean, variance = mixture.moments()
    if len(weight) > _FEW_DRAWS:
        coarse = _Gammas.posterior(*_compressed(log_mean, log_cv2, weight), count, exposure)
    else:
        coarse = mixture
    quantiles = np.empty((len(probs), len(mean)))
    for row, prob in zip(quantiles, probs, strict=True):
        row[:] = poisson_gamma.quantile(prob, mean * mean / variance, mean / variance)
        coarse.search(prob, row, close)
        if coarse is not mixture:
            mixture.search(prob, row, close)
    return Summaries(mean, variance, quantiles)


def _compressed(log_mean: Floats, log_cv2: Floats, weight: Floats) -> tuple[Floats, Floats, Floats]:
    """Representative nodes (log mean, log cv2, weights) of given draws."""
    m, c = weighted(weight, log_mean), weighted(weight, log_cv2)
    dm, dc = log_mean - m, log_cv2 - c
    seconds = (weighted(weight, x) for x in (dm**2, dm * dc, dc**2))
    nodes = product_rule(m, c, *seconds)
    # draws far apart, as far from the fit's scores, have nodes beyond all of them
    first = np.clip(nodes[1], log_mean.min(axis=0), log_mean.max(axis=0))
    second = np.clip(nodes[2], log_cv2.min(axis=0), log_cv2.max(axis=0))
    return first, second, nodes[0][:, None]


def gamma_node_spread(
    log_mean: Floats, log_cv2: Floats, count: Floats, exposure: Floats, weight: Floats
) -> Floats:
    """How far nodes' posteriors are spread out, against the width of each, squared, (n,)."""
    mixture = _Gammas.posterior(log_mean, log_cv2, weight, count, exposure)
    mean = mixture.shape / mixture.rate
    shape = weighted(weight, mixture.shape)
    apart = weighted(weight, (mixture.shape / shape - 1.0) ** 2)
    away = weighted(weight, (mean / weighted(weight, mean) - 1.0) ** 2)
    return apart + shape * away


@dataclass(frozen=True)
class _Gammas:
    """Mixtures of Gammas, one for each item: shape and rate (draws, n), weight (draws, 1 or n)."""

    shape: Floats
    rate: Floats
    weight: Floats

    @staticmethod
    def posterior(
        log_mean: Floats, log_cv2: Floats, weight: Floats, count: Floats, exposure: Floats
    ) -> "_Gammas":
        prior = poisson_gamma.shape_rate(log_mean, log_cv2)
        return _Gammas(*poisson_gamma.update(*prior, count, exposure), weight)

    def moments(self) -> tuple[Floats, Floats]:
        """Mean and total variance."""
        means = poisson_gamma.mean(self.shape, self.rate)
        mean = weighted(self.weight, means)
        within = weighted(self.weight, poisson_gamma.variance(self.shape, self.rate))
        return mean, within + weighted(self.weight, (means - mean) ** 2)

    def _weights(self, at: NDArray[np.intp]) -> Floats:
        return self.weight if self.weight.shape[1] == 1 else self.weight[:, at]

    def _scaled(self, theta: Floats, at: NDArray[np.intp]) -> Floats:
        """Theta times each rate, as far as numbers go: beyond, the upper tail is 0."""
        rate = self.rate[:, at]
        return np.minimum(theta, _FARTHEST / rate) * rate

    def tail(self, theta: Floats, at: NDArray[np.intp], lower: bool) -> Floats:
        """P(Theta <= theta) or, for the upper tail, P(Theta > theta), of the items `at`."""
        x = self._scaled(theta, at)
        cdf = gamma_lower if lower else gamma_upper
        return weighted(self._weights(at), cdf(self.shape[:, at], x))

    def density(self, theta: Floats, at: NDArray[np.intp]) -> Floats:
        """Density of log theta of the items `at`."""
        x, a = self._scaled(theta, at), self.shape[:, at]
        return weighted(self._weights(at), a * gamma_kernel(a, x))

    def search(self, prob: float, theta: Floats, enough: float) -> None:
        """Quantiles, in place, by Newton's method on log probability over log theta.

        Log cdf and log survival are concave in log theta for each Gamma, but not for mixtures:
        where the data disagree with some draws of the curves, a step may be far too long.
        """
        lower = prob <= 0.5
        target = np.log(prob if lower else 1.0 - prob)
        mean, variance = self.moments()
        close = enough * np.minimum(np.sqrt(variance) / mean, 1.0)
        some = np.flatnonzero(theta > 0)  # an underflow to 0 is the answer

        def newton(x: Floats, at: NDArray[np.intp]) -> tuple[Floats, NDArray[np.bool_]]:
            value = np.exp(x)
            share = self.tail(value, some[at], lower)
            # far from the quantile the density may be next to nothing: such steps are cut
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                gap = target - np.log(share)
                step = np.where(gap == 0, 0.0, gap * share / self.density(value, some[at]))
            return (step, gap > 0) if lower else (-step, gap < 0)

        x = np.log(theta[some])
        low, high = np.full(len(some), _LEAST), np.full(len(some), -_LEAST)
        _search(x, low, high, newton, close[some], _LONGEST)
        theta[some] = np.exp(x)


# --- Normals -------------------------------------------------------------------------------------


def normal_posterior_summaries(
    mean: Floats,
    log_variance: Floats,
    value: Floats,
    noise_sd: Floats,
    probs: Sequence[float] = (),
    weight: Floats | None = None,
) -> Summaries:
    """Summaries of theta given values, over draws of the curves (draws, n)."""
    after = normal_normal.update(mean, np.exp(log_variance), value, noise_sd**2)
    return normal_summaries(*after, probs, weight)


def normal_summaries(
    mean: Floats, variance: Floats, probs: Sequence[float] = (), weight: Floats | None = None
) -> Summaries:
    """Summaries of mixtures of Normals with these means and variances, (components, n).

    Weights are (components,) or (components, n) with sum 1; None is equal ones. Quantiles are good
    to 1e-5 of the narrowest component's sd. The weights of few nodes may be negative, if their
    spread is small.

    Examples
    --------
    >>> import numpy as np
    >>> found = normal_summaries(np.array([[-1.0], [1.0]]), np.ones((2, 1)), (0.5,))
    >>> float(found.variance[0]), round(abs(float(found.quantiles[0, 0])), 9)
    (2.0, 0.0)
    """
    weight = weight_columns(weight, len(mean))
    middle = mean[0] + weighted(weight, mean - mean[0])  # exact where all are equal
    total = weighted(weight, variance) + weighted(weight, (mean - middle) ** 2)
    sd = np.sqrt(variance)
    quantiles = np.empty((len(probs), len(middle)))
    for row, prob in zip(quantiles, probs, strict=True):
        row[:] = normal_normal.quantile(prob, middle, total)
        _search_normals(prob, mean, sd, weight, row)
    return Summaries(middle, total, quantiles)


def _search_normals(prob: float, mean: Floats, sd: Floats, weight: Floats, x: Floats) -> None:
    """Quantiles, in place, by Newton's method on the Normal score of the mixture's cdf.

    The quantile lies between the least and the largest of the components' own.
    """
    z = float(special.ndtri(prob))
    own = mean + sd * z
    low, high = own.min(axis=0), own.max(axis=0)

    def newton(x: Floats, at: NDArray[np.intp]) -> tuple[Floats, NDArray[np.bool_]]:
        w = weight if weight.shape[1] == 1 else weight[:, at]
        u = (x - mean[:, at]) / sd[:, at]
        share = weighted(w, special.ndtr(u))
        # the step is a ratio of densities, from both of which 1 / sqrt(2 pi) is left out
        density = weighted(w, np.exp(-0.5 * u * u) / sd[:, at])
        # a mixture without density there has no Newton step, and bisects
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            score = special.ndtri(share)
            step = (z - score) * np.exp(-0.5 * score * score) / density
        return step, share < prob

    np.clip(x, low, high, out=x)
    _search(x, low, high, newton, _CLOSE * sd.min(axis=0))


def normal_node_spread(
    mean: Floats, log_variance: Floats, value: Floats, noise_sd: Floats, weight: Floats
) -> Floats:
    """How far nodes' posteriors are spread out, against the width of each, squared, (n,)."""
    return _normal_spread(
        *normal_normal.update(mean, np.exp(log_variance), value, noise_sd**2), weight
    )


def _normal_spread(mean: Floats, variance: Floats, weight: Floats) -> Floats:
    middle, width = weighted(weight, mean), weighted(weight, variance)
    away = weighted(weight, (mean - middle) ** 2) / width
    return away + weighted(weight, (variance / width - 1.0) ** 2)


# --- items over few nodes ------------------------------------------------------------------------


def nodes_scorer(
    update: Callable[..., tuple[Floats, Floats]],
    spread: Callable[[Floats, Floats, Floats], Floats],
    summaries: Callable[[Floats, Floats, Sequence[float], Floats], Summaries],
) -> Callable[..., Floats]:
    """Function that scores items over few nodes, from forms of a family."""

    def score_nodes(
        nodes: Nodes, position: Floats, outcome: Floats, size: Floats, probs: Sequence[float]
    ) -> Floats:
        """Mean, sd, variance and quantiles of items, (3 + probabilities, n), over few nodes.

        They are NaN where an item needs all draws.
        """
        grid = nodes.grid
        cell = np.clip(np.searchsorted(grid, position, side="right") - 1, 0, len(grid) - 2)
        share = (position - grid[cell]) / (grid[cell + 1] - grid[cell])
        level = np.where((share >= 0) & (share <= 1), nodes.level[cell], len(nodes.rules))
        out = np.full((3 + len(probs), len(position)), np.nan)
        for which, rule in enumerate(nodes.rules):
            at = np.flatnonzero(level == which)
            if not len(at):
                continue
            u = share[at, None, None]
            both = (1.0 - u) * rule[cell[at]] + u * rule[cell[at] + 1]
            weight, first, second = both.transpose(1, 2, 0)
            after = update(first, second, outcome[at], size[at])
            near = spread(*after, weight) < nodes.limits[which]
            few = after[0][:, near], after[1][:, near]
            out[:, at[near]] = summaries(*few, probs, weight[:, near]).rows
        return out

    return score_nodes


score_normal_nodes = nodes_scorer(
    lambda mean, variance, value, noise_sd: normal_normal.update(
        mean, variance, value, noise_sd**2
    ),
    _normal_spread,
    normal_summaries,
)


# --- components whose weights differ between draws -----------------------------------------------


def draw_moments(
    density: Floats,
    means: Floats,
    variances: Floats,
    place: Ints,
    blocks: Iterable[tuple[Ints, Floats]],
    draws: int,
) -> tuple[Floats, Floats]:
    """Posterior mean and variance of every item under every draw of the weights, (draws, n) each.

    `density`, up to a factor of each item, `means` and `variances` of theta given outcome and
    component are (n, R). `place` (n,) says which of the distinct scores each item has; `blocks`
    give numbers of scores with the components' weights there, (draws, scores, R).
    """
    # squares are taken about a centre, so that little is lost where means are large
    centre = ((density * means).sum(axis=1) / density.sum(axis=1))[:, None]
    first = density * (means - centre)
    second = density * (variances + (means - centre) ** 2)
    mean, variance = np.empty((2, draws, len(density)))
    order = np.argsort(place, kind="stable")
    start = np.searchsorted(place[order], np.arange(place.max(initial=-1) + 2))
    for at, weights in blocks:
        for k, weight in zip(at, weights.transpose(1, 0, 2), strict=True):
            of = order[start[k] : start[k + 1]]
            total = np.maximum(weight @ density[of].T, 1e-300)
            away = weight @ first[of].T / total
            mean[:, of] = centre[of, 0] + away
            variance[:, of] = weight @ second[of].T / total - away**2
    return mean, variance
