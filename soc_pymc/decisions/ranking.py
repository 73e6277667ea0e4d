"""Joint draws of theta of all items, and the probability to be among the k with the largest theta.

Each draw takes one draw of the curves for all items. Random numbers belong to tiles of 64 draws by
512 items, by their place, so that a draw does not depend on how the work is cut up, on the number
of processors, or on how many draws are made.

In each draw of the curves and of all items' theta, an item's probability to be among the k given
all but its own theta is the tail of its posterior beyond the k-th largest theta of the others. That
is less noisy than counting how often it is among the k, and small probabilities are seen without
being hit.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import batched
from typing import NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from .._lib.arguments import DRAWS, MOST_DRAWS, SEED, Whole, refuse_beyond_memory
from .._lib.arrays import Floats, Ints
from .._lib.progress import Phase, phase
from .._lib.threads import ordered_map
from ..data.items import Items
from ..families.zeros import NEAR_ZERO
from ..inference.results import Fit
from ..posterior.interface import select
from .items import DecisionItems, read_decision

LANE, BLOCK = 64, 512
"""Draws and items in a tile of random numbers."""

_MOST = 1024  # draws of a block of items that are made at once
_STREAMS = 3  # of random numbers in a tile: which component, and two for theta
_TOP = 4_000_000  # largest theta held at once, over draws
_MOST_RANKED = 4096  # draws of a block of items that are ranked at once
_KEPT = 4_000_000  # draws of all items kept from the first pass to the second, at most
_WORTH = 4 * LANE  # draws for fewer of which none are kept
_BATCHES, _BATCH_NUMBERS = 100, 20_000_000  # batches of draws, and numbers held for them
_LEADERS = BLOCK  # items whose draws show what the others have to exceed, at least
_SCREENED = 64  # draws of the curves by which items are left out
_PARTS = np.array([0.0, 0.01, 0.1, 0.4])  # begins of parts of the sorted borders, by their least
_UNLIKELY = 1e-6  # sum of probabilities that no higher border needs to lower
_NEGLIGIBLE = 1e-3  # sum of the probabilities of the items that are left out
_FEWEST = 8  # batches for less than which the sum over items is not made use of


class Tile(NamedTuple):
    """Draws of a block of items, each array (draws, items of the block)."""

    drawn: Floats  # on the scale of the family
    first: Floats  # parameters of theta behind each draw
    second: Floats


# --- joint draws ---------------------------------------------------------------------------------


def thompson_draws(
    fit: Fit, items: Items, draws: int = 1, *, seed: int = 0, progress: bool | None = None
) -> xr.DataArray:
    """Draws of every item's theta given score and outcome, for Thompson sampling.

    To choose the items with the largest theta of a draw, one draw a round, is to choose each with
    the probability that it is the best. Each draw takes one draw of the curves for all items: the
    uncertainty of the curves moves items of like scores together.

    Parameters
    ----------
    fit, items
        The fit, and items of its kind: those of the fit or others.
    draws
        Number of draws. Fewer draws are the same ones.
    seed, progress
        Seed; take another one each round, and whether to show progress.

    Returns
    -------
    xarray.DataArray
        ``theta`` (draw, item) in the unit of theta, with coordinates ``item`` (the items' id, else
        the index of a pandas source, else 0, ..., n - 1) and ``curve``, the number of the draw of
        the curves: all of them in random order before any is taken twice. It is held in memory. The
        same seed gives the same draws on any number of processors.

    Raises
    ------
    ItemsError, FitError
        If the items are not valid or not of the fit's kind, `draws` or `seed` is no such whole
        number, the draws are larger than the machine's memory, or a score cannot be put on the
        fit's axis.

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
    with phase("Thompson draws", total=len(decision), unit="items", enabled=progress) as shown:
        theta = joint_draws(decision, curves, key, shown.advance)
    coords = {
        "draw": np.arange(number),
        "curve": ("draw", curves),
        "item": decision.index.to_numpy(),
    }
    return xr.DataArray(theta, coords, ("draw", "item"), name="theta")


def joint_draws(
    items: DecisionItems, curves: Ints, seed: int, advance: Callable[[int], object]
) -> Floats:
    """Draws of theta of all items, (draws, n), under the draws `curves` of the curves."""
    number, least = len(curves), NEAR_ZERO if items.fit.prior.zero else 0.0
    theta = np.empty((number, len(items)))

    def draw(block: int) -> int:
        columns = slice(block * BLOCK, (block + 1) * BLOCK)
        for start in range(0, number, _MOST):
            rows = slice(start, start + _MOST)
            natural = items.family.natural(_tile(items, block, start, curves[rows], seed).drawn)
            theta[rows, columns] = np.where(np.abs(natural) < least, 0.0, natural)
        return theta[0, columns].size

    for done in ordered_map(draw, _block_numbers(items)):
        advance(done)
    return theta


def curve_numbers(total: int, draws: int, seed: int) -> Ints:
    """Index of the curve draw used by each draw: all in random order, over and over."""
    rounds = -(-draws // total)
    orders = (np.random.default_rng([seed, i]).permutation(total) for i in range(rounds))
    return np.concatenate(list(orders))[:draws]


def _block_numbers(items: DecisionItems) -> range:
    return range(-(-len(items) // BLOCK))


def _tile(items: DecisionItems, block: int, start: int, curves: Ints, seed: int) -> Tile:
    """Draws of one block of items from the draw `start` on, a multiple of `LANE`.

    `curves` are the draws of the curves that each draw takes.
    """
    part = select(items.columns, slice(block * BLOCK, (block + 1) * BLOCK))
    n, lanes = len(part["score"]), range(0, len(curves), LANE)
    places = [(stream, (start + lane) // LANE) for lane in lanes for stream in range(_STREAMS)]
    rngs = list(batched((np.random.default_rng([seed, *p, block]) for p in places), _STREAMS))
    sizes = [min(LANE, len(curves) - lane) for lane in lanes]
    uniform = np.vstack([rng[0].random((m, n)) for rng, m in zip(rngs, sizes, strict=True)])
    first, second = items.posterior.theta_given(part, curves, uniform)
    drawn = [
        items.family.draw(first[k : k + m], second[k : k + m], (rng[1], rng[2]))
        for k, m, rng in zip(lanes, sizes, rngs, strict=True)
    ]
    return Tile(np.vstack(drawn), first, second)


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

    Parameters
    ----------
    fit, items
        The fit, and items of its kind, which are ranked among themselves.
    k
        Size of the top, at least 1.
    draws
        Joint draws of all items, at least 2. Each takes one draw of the curves for all of them.
    seed, progress
        As of `thompson_draws`.

    Returns
    -------
    pandas.DataFrame
        ``probability``, of which the sum is k, and ``error``, its standard error of simulation: at
        most 0.5 / sqrt(draws), and 0 where k leaves no item out. Indexed as of `probability_above`.

    Raises
    ------
    ItemsError, FitError
        As of `thompson_draws`; also if `k` is no whole number of at least 1.

    Notes
    -----
    A mean over draws of P(theta_i > T_i), where T_i is the k-th largest theta of the others, minus
    its regression on the sum over items, of which the expectation k is known. Equal theta at the
    border share what is left. Of thousands of items, those whose probabilities add up to less than
    1e-3 get 0. Items are streamed.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> top = soc.decisions.probability_best(fit, items, 10, draws=200)
    >>> float(top["probability"].sum().round(3))
    10.0
    """
    size, number = Whole(1)(k, "k"), Whole(2, MOST_DRAWS)(draws, "draws")
    key = SEED(seed, "seed")
    decision = read_decision(fit, items, progress)
    if size >= len(decision):
        return pd.DataFrame({"probability": 1.0, "error": 0.0}, index=decision.index)
    curves = curve_numbers(decision.draws, number, key)
    candidates = _candidates(decision, size, key, curves)
    answer, total = np.zeros((2, len(decision))), 2 * number * len(candidates)
    with phase("probability of being best", total=total, unit="draws", enabled=progress) as shown:
        top = _TopProbabilities(decision.rows(candidates), size, key, curves)
        answer[:, candidates] = top.answer(shown)
    return pd.DataFrame({"probability": answer[0], "error": answer[1]}, index=decision.index)


def _candidates(items: DecisionItems, size: int, seed: int, curves: Ints) -> Ints:
    """Items that may be among the `size` largest: the others are so with 1e-3 together, at most.

    The largest of a few leaders bound from below what an item has to exceed in each draw.
    """
    every, number = np.arange(len(items)), max(_LEADERS, 4 * size)
    if len(items) <= 4 * number:
        return every
    few = items.thinned(_SCREENED)
    mean, sd, *_ = few.posterior.scorer((), "all")(items.columns)
    leaders = np.argsort(-mean - 2.0 * sd, kind="stable")[:number]
    theta = joint_draws(items.rows(np.sort(leaders)), curves, seed, lambda _: None)
    border = np.sort(np.partition(theta, -size, axis=1)[:, -size])
    start = np.unique((len(border) * _PARTS).astype(int))
    share = np.diff(start, append=len(border)) / len(border)
    tail, likely, over = np.zeros(len(items)), every, np.ones(len(items))
    for part, least in zip(share, border[start], strict=True):
        over[likely] = few.rows(likely).above(np.full(len(likely), least), False)
        tail += part * over  # of the unlikely ones, by the lower border before
        likely = np.flatnonzero(over > _UNLIKELY / len(items))
    tail[leaders] = 1.0
    order = np.argsort(tail, kind="stable")
    return np.sort(order[np.cumsum(tail[order]) > _NEGLIGIBLE])


class _TopProbabilities:
    """Sums over draws of the items' probabilities to be among the `size` largest."""

    def __init__(self, items: DecisionItems, size: int, seed: int, curves: Ints) -> None:
        self.items, self.size, self.seed, self.curves = items, size, seed, curves
        n, number = len(items), len(curves)
        batches = min(number, _BATCHES, max(_FEWEST, _BATCH_NUMBERS // n))
        self.batch = np.arange(number) * batches // number  # of each draw
        self.sums = np.zeros((2, n))  # of the probabilities and of their squares
        self.by_batch = np.zeros((batches, n))  # of the probabilities in batches of draws
        self.over_items = np.zeros(number)  # of the probabilities in each draw

    def answer(self, shown: Phase) -> tuple[Floats, Floats]:
        """Means minus their regression on the sum over items, which should be k; and errors."""
        most = [_MOST_RANKED, _TOP // (self.size + 1)]
        if _KEPT // len(self.items) >= _WORTH:
            most.append(_KEPT // len(self.items))
        step, number = max(LANE, min(most) // LANE * LANE), len(self.curves)
        for start in range(0, number, step):
            self._add(slice(start, min(start + step, number)), shown)
        mean = self.sums[0] / number
        variance = np.maximum(self.sums[1] / number - mean**2, 0.0) * number / (number - 1)
        total, draws = self.over_items.mean(), np.bincount(self.batch)[:, None]
        departure = np.bincount(self.batch, self.over_items)[:, None] - draws * total
        scatter, slope = float((departure**2).sum()), np.zeros(len(mean))
        if len(draws) >= _FEWEST and scatter > 1e-20 * number * total**2:
            slope = (departure * (self.by_batch - draws * mean)).sum(axis=0) / scatter
        explained = slope**2 * self.over_items.var(ddof=1)
        unexplained = np.maximum(variance - explained, variance / len(draws))
        probability = np.clip(mean - slope * (total - self.size), 0.0, 1.0)
        return probability, np.sqrt(unexplained / number)

    def _each[Result](
        self, draws: slice, kept: Sequence[Tile], work: Callable[[Tile], Result]
    ) -> Iterator[Result]:
        """Results of work on the draws of every block of items, drawn where they were not kept."""

        def result(block: int) -> Result:
            curves = self.curves[draws]
            tile = kept[block] if kept else None
            return work(tile or _tile(self.items, block, draws.start, curves, self.seed))

        return ordered_map(result, _block_numbers(self.items))

    def _add(self, draws: slice, shown: Phase) -> None:
        """Add some of the draws: the border of the top, then every item against it."""
        number, kept = draws.stop - draws.start, list[Tile]()
        keep = number * len(self.items) <= _KEPT
        top = np.full((number, 0), -np.inf)
        for tile in self._each(draws, (), lambda tile: tile):
            top = _largest(np.hstack([top, _largest(tile.drawn, self.size + 1)]), self.size + 1)
            if keep:
                kept.append(tile)
            shown.advance(tile.drawn.size)
        top.sort(axis=1)
        following, last = top[:, 0], top[:, 1]
        equal = np.ones(number)
        if (last == following).any():
            counts = self._each(draws, kept, lambda tile: (last == tile.drawn.T).sum(axis=0))
            equal = np.maximum(np.sum(list(counts), axis=0), 1)
        share = (self.size - (last < top.T).sum(axis=0)) / equal
        batch, begin = self.batch[draws], 0
        change = np.flatnonzero(np.diff(batch, prepend=-1))
        work = partial(self._probabilities, last, following, share)
        for probability in self._each(draws, kept, work):
            items = slice(begin, begin + probability.shape[1])
            self.sums[0, items] += probability.sum(axis=0)
            self.sums[1, items] += (probability * probability).sum(axis=0)
            self.over_items[draws] += probability.sum(axis=1)
            self.by_batch[batch[change], items] += np.add.reduceat(probability, change, axis=0)
            begin = items.stop
            shown.advance(probability.size)

    def _probabilities(self, last: Floats, following: Floats, share: Floats, tile: Tile) -> Floats:
        """P(theta > k-th largest of the others) in each draw, (draws, items).

        In each draw `last` is the k-th largest theta and `following` the next; where these are
        equal, each theta that equals them gets a `share`.
        """
        others = np.where(tile.drawn >= last[:, None], following[:, None], last[:, None])
        probability = self.items.family.above_drawn(others, tile.first, tile.second)
        tied = last == following
        drawn, border = tile.drawn[tied], last[tied, None]
        probability[tied] = np.where(drawn > border, 1.0, (drawn == border) * share[tied, None])
        return probability


def _largest(values: Floats, number: int) -> Floats:
    """The largest values of each row, in any order."""
    if values.shape[1] <= number:
        return values
    return np.partition(values, -number, axis=1)[:, -number:]
