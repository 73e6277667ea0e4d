"""Mixtures of Betas: items over draws of the curves, or over few nodes of them, in compiled loops.

Moments are in closed form. A quantile is sought by Newton's method on log probability over logit
theta, first on few components.
"""

import math
from collections.abc import Sequence

import numba
import numpy as np

from .._lib.arrays import Floats
from . import binomial_beta
from .beta_tails import beta_constant, tails_and_density
from .mixtures import Summaries, nodes_scorer, weight_columns, weighted

_FEW = 16  # components on which a search begins
_CLOSE = 1e-5  # last step, in posterior sd
_STEPS = 200
_TINY = 1e-300
_FAINT = 1e-8  # components of less weight are left out of quantiles at a probability of each item
_ROUNDING = 1e-14
_LEAST = -690.0  # least logit of theta

_jit = numba.njit(cache=True, nogil=True, error_model="numpy")


@_jit
def _search(logit, close, prob, step, weight, a, b, constant):  # type: ignore[no-untyped-def]
    """Quantile's logit by Newton's method on the log tail, kept between bounds that close in.

    It is that of every `step`-th component.
    """
    lower = prob <= 0.5
    target = prob if lower else 1.0 - prob
    low, high = _LEAST, -_LEAST
    for _ in range(_STEPS):
        x, rest = 1.0 / (1.0 + math.exp(-logit)), 1.0 / (1.0 + math.exp(logit))
        share, density, total = 0.0, 0.0, 0.0
        for s in range(0, len(a), step):
            if weight[s] == 0.0:
                continue
            below, above, slope = tails_and_density(x, rest, a[s], b[s], constant[s])
            share += weight[s] * (below if lower else above)
            density += weight[s] * slope
            total += weight[s]
        wanted = target * total
        up = share < wanted if lower else share > wanted
        if up:
            low = logit
        else:
            high = logit
        move = np.nan
        if share > 0.0 and density > 0.0:
            move = (math.log(wanted) - math.log(share)) * share / density
            move = min(max(move if lower else -move, -2.0), 2.0)
        if share == wanted:
            return logit
        if abs(move) <= close:
            return logit + move
        new = logit + move
        if not low < new < high:
            new = 0.5 * (low + high)
        if high - low <= close:
            return new
        logit = new
    return logit


@_jit
def _summarize(weight, a, b, probs, scores, out):  # type: ignore[no-untyped-def]
    """Fill `out` (2 + probabilities, n): mean, variance and quantiles of mixtures.

    Parameters are (n, components), weights the same or (1, components).
    """
    number = a.shape[1]
    constant = np.empty(number)
    for i in range(len(a)):
        w = weight[i % len(weight)]
        mean = within = between = 0.0
        for s in range(number):
            mean += w[s] * (a[i, s] / (a[i, s] + b[i, s]))
        for s in range(number):
            m = a[i, s] + b[i, s]
            own = a[i, s] / m
            within += w[s] * own * (b[i, s] / m) / (m + 1.0)
            between += w[s] * (own - mean) ** 2
        out[0, i], out[1, i] = mean, within + between
        if len(probs) == 0:
            continue
        for s in range(number):
            constant[s] = beta_constant(a[i, s], b[i, s])
        sd = math.sqrt(within + between) / max(mean * (1.0 - mean), _TINY)
        centre = math.log(mean) - math.log1p(-mean)
        every = max(number // _FEW, 1)
        least = _ROUNDING * (1.0 + abs(centre))  # two logits as near are one number
        if sd < least:
            out[2:, i] = mean
            continue
        for k in range(len(probs)):
            logit = min(max(centre + scores[k] * min(sd, 3.0), _LEAST), -_LEAST)
            own = max(_CLOSE * min(sd, 1.0), least)
            if every > 1:
                logit = _search(logit, 100.0 * own, probs[k], every, w, a[i], b[i], constant)
            logit = _search(logit, own, probs[k], 1, w, a[i], b[i], constant)
            out[2 + k, i] = 1.0 / (1.0 + math.exp(-logit))


def beta_mixtures(
    a: Floats, b: Floats, probs: Sequence[float] = (), weight: Floats | None = None
) -> Summaries:
    """Summaries of mixtures of Betas with these parameters, (components, n).

    Weights are (components,) or (components, n) with sum 1; None is equal ones.
    """
    share = weight_columns(weight, len(a))
    out = np.empty((2 + len(probs), a.shape[1]))
    levels = np.array(probs, dtype=float)
    columns = (np.ascontiguousarray(x.T) for x in (share, a, b))
    _summarize(*columns, levels, _scores(levels), out)
    return Summaries(out[0], out[1], out[2:])


@_jit
def _quantiles(weight, a, b, prob, mean, variance, out):  # type: ignore[no-untyped-def]
    """Fill `out` (n,) with quantiles at a probability of each item; 0 where it is NaN."""
    number = a.shape[1]
    constant = np.empty(number)
    for i in range(len(a)):
        if math.isnan(prob[i]):
            out[i] = 0.0
            continue
        for s in range(number):
            constant[s] = beta_constant(a[i, s], b[i, s])
        sd = math.sqrt(variance[i]) / max(mean[i] * (1.0 - mean[i]), _TINY)
        logit = math.log(mean[i]) - math.log1p(-mean[i])
        own = max(_CLOSE * min(sd, 1.0), _ROUNDING * (1.0 + abs(logit)))
        logit += 0.55 * (math.log(prob[i]) - math.log1p(-prob[i])) * min(sd, 3.0)
        logit = min(max(logit, _LEAST), -_LEAST)
        logit = _search(logit, own, prob[i], 1, weight[i], a[i], b[i], constant)
        out[i] = 1.0 / (1.0 + math.exp(-logit))


def beta_quantiles(
    weight: Floats, a: Floats, b: Floats, prob: Floats, mean: Floats, variance: Floats
) -> Floats:
    """Quantiles of mixtures of Betas (n, components) at a probability of each; 0 where it is NaN.

    Weights add up to 1, and mean and variance are those of the mixtures.
    """
    out = np.empty(len(prob))
    kept = np.where(weight > _FAINT, weight, 0.0)
    _quantiles(*map(np.ascontiguousarray, (kept, a, b)), prob, mean, variance, out)
    return out


def _scores(prob: Floats) -> Floats:
    """A logistic's quantiles, in units of its sd: near enough to start from."""
    return np.asarray(0.55 * (np.log(prob) - np.log1p(-prob)))


def beta_summaries(
    logit_mean: Floats,
    log_odds_cv2: Floats,
    successes: Floats,
    trials: Floats,
    probs: Sequence[float] = (),
    weight: Floats | None = None,
) -> Summaries:
    """Summaries of theta given successes, over draws of the curves (draws, n)."""
    prior = binomial_beta.a_b(logit_mean, log_odds_cv2)
    return beta_mixtures(*binomial_beta.update(*prior, successes, trials), probs, weight)


def _spread(a: Floats, b: Floats, weight: Floats) -> Floats:
    total, mean = a + b, a / (a + b)
    apart = weighted(weight, (total / weighted(weight, total) - 1.0) ** 2)
    width = weighted(weight, binomial_beta.variance(a, b))
    return apart + weighted(weight, (mean - weighted(weight, mean)) ** 2) / width


score_beta_nodes = nodes_scorer(binomial_beta.update, _spread, beta_mixtures)
