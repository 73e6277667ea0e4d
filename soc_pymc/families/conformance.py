"""Identities that every conjugate family must satisfy, and a checker for them.

A family is a record of pure functions of a prior's parameters. The identities relate its functions
to each other (the marginal to the updates, the cdf to the marginal, moments to quantiles), so a
mistake in one of them violates an identity, and no reference is needed.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
from scipy import special

from .._lib.arrays import Floats
from .family import BETA, GAMMA, NORMAL, Family

__all__ = [
    "BINOMIAL_BETA",
    "LAWS",
    "NORMAL_NORMAL",
    "POISSON_GAMMA",
    "ClosedForms",
    "Symmetry",
    "check_family",
    "closed_forms",
]

Params = tuple[Any, ...]
Errors = Iterator[tuple[str, float]]  # case, and its error

_PROBS = np.array([0.001, 0.05, 0.3, 0.5, 0.9, 0.999])
_VANISHING = 1e-12  # negligible share of a prior's variance


@dataclass(frozen=True)
class Symmetry:
    """A change of units or sides that keeps the model; theta becomes shift + factor theta."""

    # (params, outcome, size) -> the same item in the other units
    apply: Callable[[Params, Any, Any], tuple[Params, Any, Any]]
    factor: float
    shift: float = 0.0
    stretch: float = 1.0  # width of an outcome's unit, by which a density falls; 1 for counts


@dataclass(frozen=True)
class ClosedForms:
    """Outcomes y given theta and a known size, with a conjugate prior of theta.

    Parameters are tuples of numbers or of arrays that broadcast with the outcomes.
    """

    name: str
    priors: tuple[Params, ...]  # parameters for the tests
    sizes: tuple[float, ...]  # exposures, trials or noise sds for the tests
    moments: Callable[[Params], tuple[Any, Any]]  # params -> E(theta), Var(theta)
    update: Callable[[Params, Any, Any], Params]  # (params, outcome, size) -> params given it
    # (E theta, Var theta, size) -> E(y), Var(y), by total expectation and variance
    predictive: Callable[[Any, Any, Any], tuple[Any, Any]]
    # (params, outcome, size) -> log probability or density of the outcome, and P(Y <= outcome)
    log_marginal: Callable[[Params, Any, Any], Any]
    cdf: Callable[[Params, Any, Any], Any]
    # (params, size) -> increasing outcomes, and weights for sums of functions over them
    outcomes: Callable[[Params, float], tuple[Floats, Floats]]
    discrete: bool  # whether outcomes are counts
    theta_cdf: Callable[[Params, Any], Any]  # (params, theta) -> probability
    quantile: Callable[[Params, Any], Any]  # (params, probability) -> theta
    concentrate: Callable[[Params, float], Params]  # (params, share of the variance), mean kept
    certain: Callable[[float], tuple[float, float]]  # rate -> outcome, size that determine theta
    # (outcomes, sizes), two arrays -> one equivalent outcome and size
    pool: Callable[[Floats, Floats], tuple[float, float]] | None = None
    symmetry: Symmetry | None = None


def closed_forms(family: Family, **tried: Any) -> ClosedForms:
    """A family's record as `ClosedForms`, with cases for the tests."""

    def cdf(params: Params, outcome: Any, size: Any) -> Any:
        y, n = np.broadcast_arrays(np.asarray(outcome, dtype=float), size)
        curves = (np.broadcast_to(x, (1, len(y))) for x in family.to_curves(*params))
        return family.cdf_interval(y, n, *curves)[1][0]

    return ClosedForms(
        name=family.name,
        moments=lambda p: (family.mean(*p), family.variance(*p)),
        update=lambda p, y, size: family.update(*p, y, size),
        log_marginal=lambda p, y, size: family.log_density(y, size, *family.to_curves(*p)),
        cdf=cdf,
        discrete=family.outcome.whole,
        theta_cdf=lambda p, theta: 1.0 - family.above(theta, *np.broadcast_arrays(theta, *p)[1:]),
        quantile=lambda p, prob: family.quantile(prob, *p),
        **tried,
    )


def check_family(family: ClosedForms) -> pd.DataFrame:
    """Errors of every law of `LAWS` on a family's priors and sizes.

    By identity: ``worst_error``, a relative error (NaN if a function returned NaN), its
    ``tolerance``, ``at`` (prior, size and outcome of the worst case), and whether it ``passed``.
    Pooling and symmetry are left out if the family has none.

    Examples
    --------
    >>> bool(check_family(POISSON_GAMMA)["passed"].all())
    True
    """
    left_out = {"pooled": family.pool is None, "symmetric": family.symmetry is None}
    rows = {}
    for name, (law, tolerance) in LAWS.items():
        if left_out.get(name, False):
            continue
        # NaN counts as the largest error
        at, worst = max(law(family), key=lambda pair: (np.isnan(pair[1]), pair[1]))
        rows[name] = (worst, tolerance, at, bool(worst <= tolerance))
    columns = ["worst_error", "tolerance", "at", "passed"]
    table = pd.DataFrame.from_dict(rows, orient="index", columns=columns)
    return table.rename_axis(index="law")


def _cases(family: ClosedForms) -> Iterator[tuple[str, Params, float, Floats, Floats]]:
    """Name, prior, size, outcomes and their probabilities (weights times marginal)."""
    for params in family.priors:
        for size in family.sizes:
            y, weight = family.outcomes(params, size)
            probability = weight * np.exp(family.log_marginal(params, y, size))
            yield f"prior {params}, size {size:g}", params, size, y, np.asarray(probability)


def _few(y: Floats, probability: Floats) -> Floats:
    """A few outcomes over the likely range."""
    share = np.cumsum(probability) / probability.sum()
    return np.asarray(y[np.unique(np.searchsorted(share, [0.01, 0.5, 0.99]).clip(max=len(y) - 1))])


def _gap(found: Any, wanted: Any, scale: Any = 0.0) -> float:
    """Largest difference relative to the expected value or `scale`, whichever is larger."""
    found, wanted, scale = (np.asarray(v, dtype=float) for v in (found, wanted, scale))
    # 0 / 0 is NaN, which counts as the largest error
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.max(np.abs(found - wanted) / np.maximum(np.abs(wanted), scale)))


def _far(family: ClosedForms, found: Params, wanted: Params) -> float:
    """Difference of two distributions of theta: of their means in sds, and of their variances."""
    (mean, variance), (true, true_variance) = family.moments(found), family.moments(wanted)
    return max(_gap(mean, true, np.sqrt(true_variance)), _gap(variance, true_variance))


def _pairs(family: ClosedForms) -> Iterator[tuple[str, Params, tuple[float, float], float, float]]:
    """Pairs of observations of different sizes."""
    for name, params, size, y, probability in _cases(family):
        few, other = _few(y, probability), family.sizes[-1]
        others = _few(*_likely(family, params, other))
        for first, second in zip(few, others[::-1], strict=False):
            yield f"{name}, outcomes {first:g} and {second:g}", params, (size, other), first, second


def _likely(family: ClosedForms, params: Params, size: float) -> tuple[Floats, Floats]:
    y, weight = family.outcomes(params, size)
    return y, np.asarray(weight * np.exp(family.log_marginal(params, y, size)))


def _order(family: ClosedForms) -> Errors:
    """The order of two observations does not matter."""
    for name, params, (m, n), x, y in _pairs(family):
        one = family.update(family.update(params, x, m), y, n)
        yield name, _far(family, family.update(family.update(params, y, n), x, m), one)


def _pooled(family: ClosedForms) -> Errors:
    """Two observations give the same posterior as their pooled one."""
    if family.pool is None:
        return
    for name, params, (m, n), x, y in _pairs(family):
        both = family.update(family.update(params, x, m), y, n)
        pooled = family.pool(np.array([x, y]), np.array([m, n]))
        yield name, _far(family, family.update(params, *pooled), both)


def _exchangeable(family: ClosedForms) -> Errors:
    """The marginal of two observations, as a product of conditionals, is symmetric."""
    for name, params, (m, n), x, y in _pairs(family):
        log = family.log_marginal
        one = log(params, x, m) + log(family.update(params, x, m), y, n)
        two = log(params, y, n) + log(family.update(params, y, n), x, m)
        yield name, _gap(two, one, 1.0)


def _one(family: ClosedForms) -> Errors:
    """Marginal probabilities add up to 1."""
    for name, _, _, _, probability in _cases(family):
        yield name, _gap(probability.sum(), 1.0)


def _predicted(family: ClosedForms) -> Errors:
    """Mean and variance of the outcome are those of total expectation and variance."""
    for name, params, size, y, probability in _cases(family):
        mean, variance = family.predictive(*family.moments(params), size)
        found = float(probability @ y)
        yield name, _gap(found, mean, np.sqrt(variance))
        yield name, _gap(probability @ (y - found) ** 2, variance)


def _mean_kept(family: ClosedForms) -> Errors:
    """Posterior means average to the prior mean."""
    for name, params, size, y, probability in _cases(family):
        mean, variance = family.moments(params)
        posterior = family.moments(family.update(params, y, size))[0]
        yield name, _gap(probability @ posterior, mean, np.sqrt(variance))


def _variance_kept(family: ClosedForms) -> Errors:
    """Posterior variance and the variance of posterior means add up to the prior's, on average."""
    for name, params, size, y, probability in _cases(family):
        mean, variance = family.moments(params)
        means, variances = family.moments(family.update(params, y, size))
        yield name, _gap(probability @ (variances + (means - mean) ** 2), variance)


def _certain_prior(family: ClosedForms) -> Errors:
    """A prior without variance does not change."""
    for name, params, size, y, probability in _cases(family):
        mean, variance = family.moments(params)
        narrow = family.concentrate(params, _VANISHING)
        kept, left = family.moments(family.update(narrow, _few(y, probability), size))
        yield name, _gap(kept, mean, np.sqrt(variance))
        yield name, _gap(left, 0.0, variance)


def _certain_outcome(family: ClosedForms) -> Errors:
    """An outcome without noise determines theta."""
    for params in family.priors:
        variance = family.moments(params)[1]
        for prob in (0.05, 0.5, 0.95):
            rate = float(family.quantile(params, prob))
            mean, left = family.moments(family.update(params, *family.certain(rate)))
            yield f"prior {params}, rate {rate:g}", _gap(mean, rate, np.sqrt(variance))
            yield f"prior {params}, rate {rate:g}", _gap(left, 0.0, variance)


def _symmetric(family: ClosedForms) -> Errors:
    """A change of units or sides changes only the units."""
    rule = family.symmetry
    if rule is None:
        return
    for name, params, size, y, probability in _cases(family):
        few = _few(y, probability)
        others = rule.apply(params, few, size)
        log = family.log_marginal(params, few, size) - np.log(rule.stretch)
        yield name, _gap(family.log_marginal(*others), log, 1.0)
        mean, variance = family.moments(family.update(params, few, size))
        found, spread = family.moments(family.update(*others))
        sd = abs(rule.factor) * np.sqrt(variance)
        yield name, _gap(found, rule.shift + rule.factor * mean, sd)
        yield name, _gap(spread, sd**2)


def _cumulated(family: ClosedForms) -> Errors:
    """The cdf increases from 0 to 1 by the marginal's probabilities."""
    node, weight = np.polynomial.legendre.leggauss(8)
    for name, params, size, y, probability in _cases(family):
        cdf = np.asarray(family.cdf(params, y, size), dtype=float)
        rise = np.diff(cdf)
        if family.discrete:
            wanted, first = probability[1:], probability[0]
        else:
            middle, half = 0.5 * (y[1:] + y[:-1]), 0.5 * np.diff(y)
            at = middle + node[:, None] * half
            wanted = half * (weight @ np.exp(family.log_marginal(params, at, size)))
            first = 0.0
        yield f"{name}: falls", float(max(-rise.min(), -cdf[0], cdf[-1] - 1.0, 0.0))
        yield f"{name}: steps", _gap(rise, wanted, 1.0)
        yield f"{name}: ends", max(_gap(cdf[0], first, 1.0), _gap(cdf[-1], 1.0))


def _inverted(family: ClosedForms) -> Errors:
    """Quantiles of theta invert its cdf."""
    for params in family.priors:
        back = family.theta_cdf(params, family.quantile(params, _PROBS))
        yield f"prior {params}", _gap(back, _PROBS)


def _quantile_moments(family: ClosedForms) -> Errors:
    """Quantiles of theta have its moments: the trapezoid rule over Normal scores of probability."""
    z = np.linspace(-9.0, 9.0, 721)
    weight = np.exp(-0.5 * z * z)
    weight /= weight.sum()
    upper = z > 0  # the cdf has no digits left near 1
    for params in family.priors:
        mean, variance = family.moments(params)
        prob = np.where(upper, 1.0 - special.ndtr(-z), special.ndtr(z))
        inside = prob < 1.0
        theta = np.where(inside, family.quantile(params, np.where(inside, prob, 0.5)), mean)
        yield f"prior {params}", _gap(weight @ theta, mean, np.sqrt(variance))
        yield f"prior {params}", _gap(weight @ (theta - mean) ** 2, variance)


LAWS: Mapping[str, tuple[Callable[[ClosedForms], Errors], float]] = MappingProxyType(
    {
        "order-free": (_order, 1e-10),
        "pooled": (_pooled, 1e-10),
        "exchangeable": (_exchangeable, 1e-9),
        "total probability": (_one, 1e-9),
        "predictive moments": (_predicted, 1e-8),
        "posterior mean on average": (_mean_kept, 1e-8),
        "posterior variance on average": (_variance_kept, 1e-8),
        "certain prior": (_certain_prior, 1e-6),
        "certain outcome": (_certain_outcome, 1e-5),
        "symmetric": (_symmetric, 1e-9),
        "cumulated": (_cumulated, 1e-9),
        "quantiles inverted": (_inverted, 1e-8),
        "quantiles have the moments": (_quantile_moments, 1e-6),
    }
)
"""Identities by name, with the largest error from rounding and cut tails."""


# --- families of the package ---------------------------------------------------------------------


def _counts(params: Params, size: float) -> tuple[Floats, Floats]:
    """Counts up to where the negative binomial's tail, times squares, is negligible."""
    shape, rate = params
    tail = 80.0 * (1.0 + size / rate) * max(1.0, np.sqrt(shape))
    y = np.arange(int(size * shape / rate + tail) + 80.0)
    return y, np.ones(len(y))


POISSON_GAMMA = closed_forms(
    GAMMA,
    priors=((0.5, 2.0), (3.0, 60.0), (400.0, 1000.0)),
    sizes=(0.3, 5.0, 200.0),
    predictive=lambda mean, variance, size: (size * mean, size * mean + size**2 * variance),
    outcomes=_counts,
    concentrate=lambda p, share: (p[0] / share, p[1] / share),
    certain=lambda rate: (rate * 1e13, 1e13),
    pool=lambda y, size: (y.sum(), size.sum()),
    # a change of exposure units does not change counts
    symmetry=Symmetry(lambda p, y, size: ((p[0], p[1] * 7.0), y, size * 7.0), factor=1 / 7.0),
)


def _successes(params: Params, trials: float) -> tuple[Floats, Floats]:
    """All numbers of successes."""
    return np.arange(trials + 1.0), np.ones(int(trials) + 1)


def _of_trials(mean: Any, variance: Any, trials: Any) -> tuple[Any, Any]:
    # E Var(y | theta) = trials E[theta (1 - theta)]
    within = trials * (mean * (1.0 - mean) - variance)
    return trials * mean, within + trials**2 * variance


BINOMIAL_BETA = closed_forms(
    BETA,
    priors=((0.7, 2.0), (5.0, 5.0), (400.0, 30.0)),
    sizes=(1.0, 8.0, 700.0),
    predictive=_of_trials,
    outcomes=_successes,
    concentrate=lambda p, share: (p[0] / share, p[1] / share),
    certain=lambda rate: (rate * 1e13, 1e13),
    pool=lambda y, trials: (y.sum(), trials.sum()),
    # failures for successes
    symmetry=Symmetry(lambda p, y, trials: (p[::-1], trials - y, trials), factor=-1.0, shift=1.0),
)


def _values(params: Params, noise_sd: float) -> tuple[Floats, Floats]:
    """Values and the trapezoid rule, which is exact as both ends vanish."""
    mean, variance = params
    total = np.sqrt(variance + noise_sd**2)
    y = np.linspace(mean - 12.0 * total, mean + 12.0 * total, 601)
    return y, np.full(601, y[1] - y[0])


def _weighted_mean(y: Floats, noise_sd: Floats) -> tuple[float, float]:
    precision = noise_sd**-2.0
    return float(y @ precision / precision.sum()), float(precision.sum() ** -0.5)


NORMAL_NORMAL = closed_forms(
    NORMAL,
    priors=((0.0, 1.0), (-3.0, 0.01), (100.0, 25.0)),
    sizes=(0.1, 1.0, 30.0),
    predictive=lambda mean, variance, noise_sd: (mean, variance + noise_sd**2),
    outcomes=_values,
    concentrate=lambda p, share: (p[0], p[1] * share),
    certain=lambda rate: (rate, 1e-8),
    pool=_weighted_mean,
    # values in another unit, from another origin, and mirrored
    symmetry=Symmetry(
        lambda p, y, size: ((2.0 - 5.0 * p[0], 25.0 * p[1]), 2.0 - 5.0 * y, 5.0 * size),
        factor=-5.0,
        shift=2.0,
        stretch=5.0,
    ),
)
