"""Mixtures of Gammas or of Normals: moments in closed form, quantiles by search.

Given one draw of the curves an item's theta is Gamma or Normal; over the draws it is their mixture.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from .._lib.arrays import Floats, Ints
from . import normal_normal, poisson_gamma
from .rules import product_rule
from .special_forms import gamma_kernel, gamma_lower, gamma_upper

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


# --- items over few nodes ------------------------------------------------------------------------


def nodes_scorer(
    update: Callable[..., tuple[Floats, Floats]],
    spread: Callable[[Floats, Floats, Floats], Floats],
    summaries: Callable[[Floats, Floats, Sequence[float], Floats], Summaries],
) -> Callable[..., Floats]:
    """Function that scores items over few nodes, from forms of a family."""

    def score_nodes(
        weight: Floats,
        a: Floats,
        b: Floats,
        outcome: Floats,
        size: Floats,
        limit: float,
        probs: Sequence[float],
    ) -> Floats:
        """Mean, sd, variance and quantiles of items, (3 + probabilities, n), over few nodes.

        Weights and the prior's conjugate parameters at the nodes are (n, nodes). Rows are NaN where
        the squared spread of the nodes' posteriors, relative to their width, is not below `limit`.
        """
        after = update(a.T, b.T, outcome, size)
        out = np.full((3 + len(probs), len(outcome)), np.nan)
        near = spread(*after, weight.T) < limit
        # equal weights as one column, so that draws give the same here as without weights
        own = weight.T[:, near] if np.ptp(weight) > 0 else weight.T[:, :1]
        out[:, near] = summaries(after[0][:, near], after[1][:, near], probs, own).rows
        return out

    return score_nodes


def _normal_spread(mean: Floats, variance: Floats, weight: Floats) -> Floats:
    middle, width = weighted(weight, mean), weighted(weight, variance)
    away = weighted(weight, (mean - middle) ** 2) / width
    return away + weighted(weight, (variance / width - 1.0) ** 2)


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
    thirds: Floats,
    place: Ints,
    blocks: Iterable[tuple[Ints, Floats]],
    draws: int,
) -> tuple[Floats, Floats, Floats]:
    """Posterior mean, variance and third central moment of items by draw, (draws, n) each.

    `density`, up to a factor of each item, and the same moments of theta given outcome and
    component, are (n, R). `place` (n,) says which of the distinct scores each item has; `blocks`
    give numbers of scores with the components' weights there, (draws, scores, R).
    """
    # squares are taken about a centre, so that little is lost where means are large
    centre = ((density * means).sum(axis=1) / density.sum(axis=1))[:, None]
    off = means - centre
    first = density * off
    second = density * (variances + off**2)
    cubes = density * (thirds + (3.0 * variances + off**2) * off)
    mean, variance, third = np.empty((3, draws, len(density)))
    order = np.argsort(place, kind="stable")
    start = np.searchsorted(place[order], np.arange(place.max(initial=-1) + 2))
    for at, weights in blocks:
        for k, weight in zip(at, weights.transpose(1, 0, 2), strict=True):
            of = order[start[k] : start[k + 1]]
            total = np.maximum(weight @ density[of].T, 1e-300)
            away = weight @ first[of].T / total
            mean[:, of] = centre[of, 0] + away
            square = weight @ second[of].T / total
            variance[:, of] = square - away**2
            cube = weight @ cubes[of].T / total
            third[:, of] = cube - (3.0 * square - 2.0 * away**2) * away
    return mean, variance, third
