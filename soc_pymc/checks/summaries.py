"""Summaries of outcomes against replicates: those that a fit does not look at by themselves.

They are how widely outcomes scatter about their expectations, and of counts how many are zero. The
items that made the fit give p-values nearer one half than new items would: the tests are
conservative there.
"""

from typing import Any

import numpy as np
from scipy import stats

from .._lib.arrays import Floats
from ..inference.results import Fit
from ..posterior.interface import Columns, select
from ..posterior.predictive import posterior_of
from .batches import even_draws, parts, thin
from .results import finding
from .slices import ALL

_ITEMS = 50_000  # of more, a random subset is replicated: the tests are powerful by then
_CHUNK = 2_000
_REPLICATES = 100  # or a few more: as many of each draw
_MIDDLE = 20  # draws whose median is the middle of summaries
_OUTER = 20  # with fewer replicates than this beyond the observed value, their tail is fitted


def predictive_tests(
    fit: Fit, columns: Columns, rng: np.random.Generator, progress: bool | None = None
) -> list[dict[str, Any]]:
    """Summaries of the items, of 50,000 at most, each against replicates by whole curves.

    The value is the observed summary over its predictive median.
    """
    posterior, even = posterior_of(fit), even_draws(fit, _REPLICATES)
    outcome, middle = posterior.outcome, posterior_of(thin(fit, _MIDDLE))
    draws = np.resize(even, -(-_REPLICATES // len(even)) * len(even))
    summaries = outcome.forms.summaries
    n = len(columns["score"])
    if n > _ITEMS:
        columns, n = select(columns, np.sort(rng.choice(n, _ITEMS, replace=False))), _ITEMS
    replicated, observed = np.zeros((len(summaries), len(draws))), np.zeros((len(summaries), 1))
    for rows in parts("predictive checks", n, _CHUNK, progress):
        part = select(columns, rows)
        size = part[outcome.size]
        # summaries are about the median curves: about its own draw, the outcomes of new items
        # would scatter more than replicates of that draw, as the draw is not their truth
        curves = middle.curves(part["score"], part.get("group"), size)
        about = (size, *(np.median(curves[name], axis=0) for name in ("mean", "variance")))
        outcomes = posterior.simulate(part, rng, draws), part[outcome.observed][None]
        for total, values in zip((replicated, observed), outcomes, strict=True):
            total += [summary(values, *about) for summary in summaries.values()]
    return [
        finding(name, ALL, _ratio(x, float(y)), tail_probability(x - y))
        for name, x, y in zip(summaries, replicated, observed[:, 0], strict=True)
    ]


def _ratio(replicated: Floats, observed: float) -> float:
    # widened curves have far draws; of rare zeros the median is 0
    expected = float(np.median(replicated) or np.mean(replicated))
    return observed / expected if expected > 0 else 1.0 if observed == 0 else float("inf")


def tail_probability(excess: Floats) -> float:
    """Two-sided p-value of 0 among replicated minus observed summaries, ties counted half."""
    above = float(np.mean(excess > 0) + 0.5 * np.mean(excess == 0))
    tail = min(above, 1.0 - above)
    spread = float(np.std(excess))
    if tail * len(excess) < _OUTER and spread > 0:
        curve = stats.pearson3(float(stats.skew(excess)), loc=float(np.mean(excess)), scale=spread)
        tail = min(float(curve.cdf(0.0)), float(curve.sf(0.0)))
    return min(1.0, 2.0 * tail)
