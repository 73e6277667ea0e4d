"""Posterior predictive checks: are summaries of the outcomes like those that the model makes.

Summaries that the fit does not look at by themselves: how widely outcomes scatter about their
expectations, and of counts how many are zero.
"""

from dataclasses import dataclass, replace

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy import stats

from .._lib.progress import phase
from ..families.priors import COMPONENTS
from ..inference.results import Fit
from ..posterior.predictive import Columns, Posterior, posterior_of, select

__all__ = ["PredictiveTest", "predictive_tests", "tail_probability", "thin"]

Floats = NDArray[np.float64]

_ITEMS = 50_000  # more are a random subset: the tests are powerful by then
_CHUNK = 2_000
_REPLICATES = 400  # or a few more: as many of each draw
_OUTER = 20  # with fewer replicates than this beyond the observed value, their tail is fitted


@dataclass(frozen=True)
class PredictiveTest:
    """One posterior predictive test.

    Attributes
    ----------
    name
        What the summary is.
    ratio
        Observed summary over its predictive mean: 1 is as predicted.
    p_value
        Two-sided posterior predictive p-value. The items that made the fit give p-values nearer
        one half than new items would: the test is conservative there.
    """

    name: str
    ratio: float
    p_value: float


def thin(fit: Fit, most: int) -> Fit:
    """The same fit with at most `most` draws, evenly spaced in every chain."""
    sizes = fit.data["posterior"].sizes
    kept = min(sizes["draw"], max(1, most // sizes["chain"]))
    return _picked(fit, np.arange(kept) * sizes["draw"] // kept)


def _picked(fit: Fit, draws: NDArray[np.int64]) -> Fit:
    """The same fit with these draws of every chain."""
    groups = {"posterior": fit.data["posterior"].to_dataset().isel(draw=draws)}
    if "constant_data" in fit.data:
        groups["constant_data"] = fit.data["constant_data"].to_dataset()
    tree = xr.DataTree.from_dict(groups)
    tree.attrs = dict(fit.data.attrs)
    return replace(fit, data=tree)


def _count_scatter(count: Floats, exposure: Floats, mean: Floats, variance: Floats) -> Floats:
    """Sum over items of squared departures, weighted to tell best a common factor on variance.

    The weight is variance / Var((y - mean)^2) of the negative binomial. Pearson's weight
    1 / variance would let single events on tiny exposures drown the rest.

    Parameters
    ----------
    count, exposure
        The items, (..., n).
    mean, variance
        Of theta, (draws, n).
    """
    expected = exposure * mean
    extra = exposure * variance / mean  # overdispersion: Var(y) = expected (1 + extra)
    # kappa_4 + 2 Var(y)^2 of the negative binomial, divided by Var(y)
    noise = 1.0 + 6.0 * extra * (1.0 + extra) + 2.0 * expected * (1.0 + extra)
    return np.asarray(((count - expected) ** 2 / noise).sum(axis=-1))


def _value_scatter(value: Floats, noise_sd: Floats, mean: Floats, variance: Floats) -> Floats:
    """Sum over items of squared standardised residuals."""
    return np.asarray(((value - mean) ** 2 / (variance + noise_sd**2)).sum(axis=-1))


def tail_probability(excess: Floats) -> float:
    """Two-sided p-value of 0 among replicated minus observed summaries, ties counted half.

    A few hundred replicates cannot show a probability of 1e-5: beyond the outermost ones it comes
    from the Pearson III curve with their mean, variance and skewness.

    Examples
    --------
    >>> import numpy as np
    >>> tail_probability(np.linspace(-1.0, 1.0, 400))
    1.0
    """
    above = float(np.mean(excess > 0) + 0.5 * np.mean(excess == 0))
    tail = min(above, 1.0 - above)
    spread = float(np.std(excess))
    if tail * len(excess) < _OUTER and spread > 0:
        curve = stats.pearson3(float(stats.skew(excess)), loc=float(np.mean(excess)), scale=spread)
        tail = min(float(curve.cdf(0.0)), float(curve.sf(0.0)))
    return min(1.0, 2.0 * tail)


def predictive_tests(
    fit: Fit, columns: Columns, *, seed: int = 0, progress: bool = True
) -> list[PredictiveTest]:
    """Dispersion, and number of zeros of counts, against replicates from the fit.

    Parameters
    ----------
    fit
        The fitted curves; every replicate takes a draw of the whole curves.
    columns
        The items; a random 50,000 of them if there are more.
    seed
        Seed of the subset and of the replicates.
    progress
        Whether long work shows its progress.
    """
    rng = np.random.default_rng(seed)
    few, rounds = _replicated(thin(fit, _REPLICATES))
    law = posterior_of(few)
    sizes = few.data["posterior"].sizes
    draws = sizes["chain"] * sizes["draw"]
    n = len(columns["score"])
    if n > _ITEMS:
        columns, n = select(columns, np.sort(rng.choice(n, _ITEMS, replace=False))), _ITEMS
    sums = np.zeros((4, rounds * draws))  # scatter and zeros, replicated and observed
    with phase("predictive checks", total=n, unit="items", enabled=progress) as running:
        for start in range(0, n, _CHUNK):
            part = select(columns, slice(start, start + _CHUNK))
            sums += _summaries(law, part, rounds, rng)
            running.advance(len(part["score"]))
    tests = [_test("dispersion", sums[0], sums[1])]
    if law.outcome.whole:
        tests.append(_test("zero counts", sums[2], sums[3]))
    return tests


def _replicated(fit: Fit) -> tuple[Fit, int]:
    """The fit with its draws repeated, and how often each is still to be taken.

    The curves of repeated draws are found at once. Five-step mixtures have but one.
    """
    posterior = fit.data["posterior"]
    draws = posterior.sizes["chain"] * posterior.sizes["draw"]
    rounds = -(-_REPLICATES // draws)
    if COMPONENTS[0] in posterior and fit.one_draw:
        return fit, rounds
    return _picked(fit, np.tile(np.arange(posterior.sizes["draw"]), rounds)), 1


def _summaries(law: Posterior, columns: Columns, rounds: int, rng: np.random.Generator) -> Floats:
    """Scatter and zeros, replicated and observed, of every draw, so many times over."""
    y, size = columns[law.outcome.observed], columns[law.outcome.size]
    curves = law.curves(columns["score"], columns.get("group"), size)
    mean, variance = (curves[name] for name in ("mean", "variance"))
    scatter = _count_scatter if law.outcome.whole else _value_scatter
    observed = scatter(y, size, mean, variance)
    zeros = np.full_like(observed, (y == 0).sum())
    parts = []
    for _ in range(rounds):
        new = law.simulate(columns, rng)
        replicated = scatter(new, size, mean, variance)
        parts.append([replicated, observed, (new == 0).sum(axis=1), zeros])
    return np.concatenate(parts, axis=1)


def _test(name: str, replicated: Floats, observed: Floats) -> PredictiveTest:
    expected, seen = float(np.mean(replicated)), float(np.mean(observed))
    if expected > 0:
        ratio = seen / expected
    else:
        ratio = 1.0 if seen == 0 else float("inf")
    return PredictiveTest(name, ratio, tail_probability(replicated - observed))
