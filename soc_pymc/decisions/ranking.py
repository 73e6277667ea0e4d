"""Joint draws of theta of all items, and the probability to be among the k with the largest theta.

Each draw takes one draw of the curves for all items. Random numbers belong to blocks of 512 items,
draw by draw, so that they depend neither on the number of processors nor on that of the draws.

In each draw, an item's probability to be among the k given all but its own theta is the tail of its
posterior beyond the k-th largest theta of the others. That is less noisy than counting how often it
is among the k, and small probabilities are seen without being hit.
"""

from dataclasses import replace
from operator import methodcaller

import numpy as np
import pandas as pd
import xarray as xr

from .._lib.arguments import DRAWS, MOST_DRAWS, SEED, Whole, refuse_beyond_memory
from .._lib.arrays import Floats, Ints
from .._lib.progress import Phase, phase
from .._lib.threads import ordered_map
from ..checks.observations import thin
from ..data.items import Items
from ..families.family import NEAR_ZERO
from ..inference.results import Fit
from ..posterior.interface import select
from ..posterior.predictive import posterior_of
from .items import DecisionItems, read_decision

BLOCK = 512  # items that share random numbers

_MOST = 1024  # draws of a block of items that are made at once
_HELD = 4_000_000  # draws of items that are ranked at once
_SCREENED = 64  # draws of the curves that screen items
_PARTS = np.array([0.0, 0.01, 0.1, 0.4])  # begins of parts of the sorted borders, by their least
_UNLIKELY = 1e-6  # sum of probabilities that no higher border needs to lower
_NEGLIGIBLE = 1e-3  # sum of the probabilities of the items that are left out


# --- joint draws ---------------------------------------------------------------------------------


def thompson_draws(
    fit: Fit, items: Items, draws: int = 1, *, seed: int = 0, progress: bool | None = None
) -> xr.DataArray:
    """Draws of every item's theta given score and outcome, for Thompson sampling.

    To choose the items with the largest theta of a draw, one draw a round, is to choose each with
    the probability that it is the best. Each draw takes one draw of the curves for all items.

    Parameters
    ----------
    fit, items, progress
        As in `probability_above`, with the same errors.
    draws, seed
        Number of draws, and seed: take another seed each round. Fewer draws are the first of more.

    Returns
    -------
    xarray.DataArray
        ``theta`` (draw, item) in the unit of theta, with coordinates ``item`` (as the index of
        `probability_above`) and ``curve``, the number of the draw of the curves: all of them in
        random order before any is taken twice.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> theta = soc.decisions.thompson_draws(fit, items, 3, seed=1)
    >>> dict(theta.sizes), bool((theta > 0).all())
    ({'draw': 3, 'item': 4000}, True)
    """
    number, key = DRAWS(draws, "draws"), SEED(seed, "seed")
    decision = read_decision(fit, items, progress)
    what = f"{number:,} draws of {len(decision):,} items"
    refuse_beyond_memory(8.0 * number * len(decision), what, "ask for fewer of one of them")
    curves = curve_numbers(decision.draws, number, key)
    with phase("Thompson draws", total=len(decision), unit="items", enabled=progress) as bar:
        theta = joint_draws(decision, curves, key, bar)
    draw, item = np.arange(number), decision.index.to_numpy()
    coords = {"draw": draw, "curve": ("draw", curves), "item": item}
    return xr.DataArray(theta, coords, ("draw", "item"), name="theta")


def joint_draws(items: DecisionItems, curves: Ints, seed: int, bar: Phase | None = None) -> Floats:
    """Draws of theta of all items, (draws, n), under the draws `curves` of the curves."""
    number, least = len(curves), NEAR_ZERO if items.fit.prior.zero else 0.0
    theta = np.empty((number, len(items)))

    def draw(block: "_Block") -> int:
        for start in range(0, number, _MOST):
            rows = slice(start, start + _MOST)
            natural = items.posterior.family.natural(block.draw(curves[rows])[0])
            theta[rows, block.items] = np.where(np.abs(natural) < least, 0.0, natural)
        return block.n

    for done in ordered_map(draw, _blocks(items, seed)):
        if bar is not None:
            bar.advance(done)
    return theta


def curve_numbers(total: int, draws: int, seed: int) -> Ints:
    """Index of the curve draw used by each draw: all in random order, over and over."""
    rounds = -(-draws // total)
    orders = (np.random.default_rng([seed, i]).permutation(total) for i in range(rounds))
    return np.concatenate(list(orders))[:draws]


class _Block:
    """Items whose next draws come from random numbers of their own."""

    def __init__(self, items: DecisionItems, number: int, seed: int) -> None:
        self.items = slice(number * BLOCK, (number + 1) * BLOCK)
        self._columns = select(items.columns, self.items)
        self._posterior = items.posterior
        self.n = len(self._columns["score"])
        self._rngs = tuple(np.random.default_rng([seed, stream, number]) for stream in range(3))

    def draw(self, curves: Ints) -> tuple[Floats, Floats, Floats]:
        """Next draws on the scale of the family, (draws, n), and theta's parameters behind them."""
        uniform = self._rngs[0].random((len(curves), self.n))
        a, b = self._posterior.theta_given(self._columns, curves, uniform)
        return self._posterior.family.draw(a, b, self._rngs[1:]), a, b


def _blocks(items: DecisionItems, seed: int) -> list[_Block]:
    return [_Block(items, number, seed) for number in range(-(-len(items) // BLOCK))]


# --- the top k -----------------------------------------------------------------------------------


def probability_best(
    fit: Fit,
    items: Items,
    k: int = 1,
    *,
    draws: int = 4000,
    seed: int = 0,
    progress: bool | None = None,
) -> pd.DataFrame:
    """Probability of every item to be among the k with the largest theta.

    It is a mean over draws of P(theta_i > T_i), where T_i is the k-th largest theta of the others,
    moved to the sum k. Of thousands of items, those that add up to less than 1e-3 get 0.

    Parameters
    ----------
    fit, items, seed, progress
        As in `thompson_draws`, with the same errors; items are ranked among themselves.
    k, draws
        Size of the top, at least 1; and number of joint draws of all items, at least 2.

    Returns
    -------
    pandas.DataFrame
        ``probability``, whose sum is k, and ``error``, its Monte Carlo standard error: at most
        0.5 / sqrt(draws), and 0 where k leaves no item out. Indexed as in `probability_above`.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> top = soc.decisions.probability_best(fit, items, 10, draws=200)
    >>> float(top["probability"].sum().round(3))
    10.0
    """
    size, number, key = Whole(1)(k, "k"), Whole(2, MOST_DRAWS)(draws, "draws"), SEED(seed, "seed")
    decision = read_decision(fit, items, progress)
    if size >= len(decision):
        return pd.DataFrame({"probability": 1.0, "error": 0.0}, index=decision.index)
    curves = curve_numbers(decision.draws, number, key)
    candidates = _candidates(decision, size, key, curves)
    answer, total = np.zeros((2, len(decision))), number * len(candidates)
    with phase("probability of being best", total=total, unit="draws", enabled=progress) as bar:
        answer[:, candidates] = _top(decision.rows(candidates), size, key, curves, bar)
    return pd.DataFrame({"probability": answer[0], "error": answer[1]}, index=decision.index)


def _candidates(items: DecisionItems, size: int, seed: int, curves: Ints) -> Ints:
    """Items that may be among the `size` largest: the others are so with 1e-3 together, at most.

    The largest of a few leaders bound from below what an item has to exceed in each draw.
    """
    everyone, number = np.arange(len(items)), max(BLOCK, 4 * size)
    if len(items) <= 4 * number:
        return everyone
    thinned = thin(items.fit, _SCREENED)
    screening = replace(items, fit=thinned, posterior=posterior_of(thinned))
    mean, sd, *_ = screening.posterior.scorer((), "all")(items.columns)
    leaders = np.argsort(-mean - 2.0 * sd, kind="stable")[:number]
    theta = joint_draws(items.rows(np.sort(leaders)), curves, seed)
    border = np.sort(np.partition(theta, -size, axis=1)[:, -size])
    start = np.unique((len(border) * _PARTS).astype(int))
    share = np.diff(start, append=len(border)) / len(border)
    tail, likely, tails = np.zeros(len(items)), everyone, np.ones(len(items))
    for part, least in zip(share, border[start], strict=True):
        tails[likely] = screening.rows(likely).above(np.full(len(likely), least), False)
        tail += part * tails  # those of unlikely items, by the lower border before
        likely = np.flatnonzero(tails > _UNLIKELY / len(items))
    tail[leaders] = 1.0
    order = np.argsort(tail, kind="stable")
    return np.sort(order[np.cumsum(tail[order]) > _NEGLIGIBLE])


def _top(
    items: DecisionItems, size: int, seed: int, curves: Ints, bar: Phase
) -> tuple[Floats, Floats]:
    """Probabilities to be among the `size` largest, which sum to `size`, and their errors."""
    n, number, blocks = len(items), len(curves), _blocks(items, seed)
    sums = np.zeros((2, n))  # probabilities and their squares
    step = max(1, _HELD // n)
    for start in range(0, number, step):
        draws = curves[start : start + step]
        drawings = ordered_map(methodcaller("draw", draws), blocks)
        drawn, a, b = (np.hstack(parts) for parts in zip(*drawings, strict=True))
        # the k-th largest of the others: of an item among the k, it is the one that follows
        order = np.partition(drawn, [n - size - 1, n - size], axis=1)
        following, last = order[:, [n - size - 1]], order[:, [n - size]]
        rivals = np.where(drawn >= last, following, last)
        probability = items.posterior.family.above_drawn(rivals, a, b)
        sums += probability.sum(axis=0), (probability**2).sum(axis=0)
        bar.advance(probability.size)
    mean = sums[0] / number
    error = np.sqrt(np.maximum(sums[1] / number - mean**2, 0.0) / (number - 1))
    # the sum is known: what is uncertain takes up the difference
    unsure = mean * (1.0 - mean)
    return mean + (size - mean.sum()) * unsure / max(unsure.sum(), 1e-300), error
