"""Mixtures of Gammas over draws of the curves: moments in closed form, quantiles by search.

Given one draw of the curves an item's theta is Gamma; over the draws it is their mixture.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from . import poisson_gamma
from .draw_rules import product_rule
from .special_forms import gamma_kernel, gamma_lower, gamma_upper

__all__ = ["Summaries", "node_spread", "posterior_summaries", "weighted"]

Floats = NDArray[np.float64]

# a step of the quantile search leaves an error of itself times that of the slope, a few percent
_CLOSE = 1e-5
_STEPS = 1000  # a bound never met: steps of 2 and then bisection need fewer than 800
_LEAST = -690.0  # least log theta
_FARTHEST = 1e105  # of theta times a rate: shapes are less than 1e101
_FEW_DRAWS = 18  # fewer draws than this need no coarse start


@dataclass(frozen=True)
class Summaries:
    """Posterior summaries of items.

    Attributes
    ----------
    mean, variance
        Shape (n,): E and Var(theta | t, y) over items and curves alike (total variance).
    quantiles
        Shape (probabilities, n).
    """

    mean: Floats
    variance: Floats
    quantiles: Floats


def posterior_summaries(
    log_mean: Floats,
    log_cv2: Floats,
    count: Floats,
    exposure: Floats,
    probs: Sequence[float] = (),
    weight: Floats | None = None,
    close: float = _CLOSE,
) -> Summaries:
    """Summaries of the mixture over draws of Gamma(1/cv2 + y, 1/(cv2 mean) + N).

    Parameters
    ----------
    log_mean, log_cv2
        Curves at the items' scores, shape (draws, n).
    count, exposure
        Shape (n,).
    probs
        Probabilities of the quantiles.
    weight
        Weights of the draws, shape (draws,) or (draws, n), adding up to 1; None is equal weights.
    close
        The search for a quantile ends with a step of this many posterior sd, which leaves an error
        of a few percent of it.

    Returns
    -------
    Summaries
        Mean and variance in closed form; quantiles to 1e-6 posterior sd with the default `close`.
    """
    if weight is None:
        weight = np.full(len(log_mean), 1.0 / len(log_mean))
    weight = weight if weight.ndim == 2 else weight[:, None]
    mixture = _Mixture.posterior(log_mean, log_cv2, weight, count, exposure)
    mean, variance = mixture.moments()
    if len(weight) > _FEW_DRAWS:
        coarse = _Mixture.posterior(*_compressed(log_mean, log_cv2, weight), count, exposure)
    else:
        coarse = mixture
    quantiles = np.empty((len(probs), len(mean)))
    for row, prob in zip(quantiles, probs, strict=True):
        row[:] = poisson_gamma.quantile(prob, mean * mean / variance, mean / variance)
        _search(prob, coarse, row, close)
        if coarse is not mixture:
            _search(prob, mixture, row, close)
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


def node_spread(
    log_mean: Floats, log_cv2: Floats, count: Floats, exposure: Floats, weight: Floats
) -> Floats:
    """How far nodes' posteriors are spread out, against the width of each, squared.

    Parameters
    ----------
    log_mean, log_cv2, weight
        Nodes, shape (nodes, n).
    count, exposure
        Shape (n,).
    """
    mixture = _Mixture.posterior(log_mean, log_cv2, weight, count, exposure)
    mean = mixture.shape / mixture.rate
    shape = weighted(weight, mixture.shape)
    apart = weighted(weight, (mixture.shape / shape - 1.0) ** 2)
    away = weighted(weight, (mean / weighted(weight, mean) - 1.0) ** 2)
    return apart + shape * away


def weighted(weight: Floats, values: Floats) -> Floats:
    """Weighted sum over draws; weights (draws, 1) or (draws, n)."""
    if weight.shape[1] == 1:
        return np.asarray(weight[:, 0] @ values)
    return np.asarray(np.einsum("sn,sn->n", weight, values))


@dataclass(frozen=True)
class _Mixture:
    """Mixtures of Gammas, one for each item: shape and rate (draws, n), weight (draws, 1 or n)."""

    shape: Floats
    rate: Floats
    weight: Floats

    @staticmethod
    def posterior(
        log_mean: Floats, log_cv2: Floats, weight: Floats, count: Floats, exposure: Floats
    ) -> "_Mixture":
        prior = poisson_gamma.shape_rate(log_mean, log_cv2)
        return _Mixture(*poisson_gamma.update(*prior, count, exposure), weight)

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


def _search(prob: float, mixture: _Mixture, theta: Floats, enough: float) -> None:
    """Newton's method, in place, on log probability over log theta; bisection where it strays.

    Log cdf and log survival are concave in log theta for each Gamma, but not for their mixtures:
    where the data disagree with some draws of the curves, a step may be far too long.
    """
    lower = prob <= 0.5
    target = np.log(prob if lower else 1.0 - prob)
    mean, variance = mixture.moments()
    close = enough * np.minimum(np.sqrt(variance) / mean, 1.0)
    active = np.flatnonzero(theta > 0)  # an underflow to 0 is the answer
    low, high = np.full(len(theta), _LEAST), np.full(len(theta), -_LEAST)
    for _ in range(_STEPS):
        if not len(active):
            break
        x = np.log(theta[active])
        share = mixture.tail(theta[active], active, lower)
        # far from the quantile the density may be next to nothing: such steps are cut below
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            gap = target - np.log(share)
            step = gap * share / mixture.density(theta[active], active)
        step, up = (step, gap > 0) if lower else (-step, gap < 0)
        low[active], high[active] = np.where(up, x, low[active]), np.where(up, high[active], x)
        a, b = low[active], high[active]
        stays = (x + step >= a) & (x + step <= b)
        done = (gap == 0) | (stays & (np.abs(step) <= close[active])) | (b - a < close[active])
        # far from both ends a doubling of theta is a better guess than the middle
        middle = np.clip(0.5 * (a + b), x - 2.0, x + 2.0)
        new = np.where(stays, np.clip(x + step, x - 2.0, x + 2.0), middle)
        theta[active] = np.exp(np.where(gap == 0, x, new))
        active = active[~done]
