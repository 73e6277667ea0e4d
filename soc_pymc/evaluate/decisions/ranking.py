"""Probability to be among the k items with the largest theta, curves shared by all items.

In each draw of the curves and of all items' theta, an item's probability given all but its own
theta is the tail of its posterior beyond the k-th largest theta of the others. That is less noisy
than counting how often it is among the k, and small probabilities are seen without being hit.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..._lib.arguments import MOST_DRAWS, whole
from ..._lib.progress import Phase, phase
from ...data.items import Items
from ...inference.results import Fit
from .draws import BLOCK, LANE, curve_numbers, sampled, waves
from .reading import Job, read

__all__ = ["probability_best"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Tile = tuple[Floats, Floats, Floats]

_TOP = 4_000_000  # largest theta held at once, over draws
_MOST = 4096  # draws of a block of items that are made at once
_KEPT = 4_000_000  # draws of all items kept from the first pass to the second, at most
_BATCHES, _BATCH_NUMBERS = 100, 20_000_000  # batches of draws, and numbers held for them
_FEWEST = 8  # batches for less than which the sum over items is not made use of


def probability_best(
    fit: Fit,
    items: Items,
    k: int = 1,
    *,
    draws: int = 4000,
    seed: int = 0,
    progress: bool = True,
) -> pd.DataFrame:
    """Probability of every item to be among the k with the largest theta.

    Parameters
    ----------
    fit
        The fit.
    items
        Items of the fit's kind: those of the fit or others. They are ranked among themselves.
    k
        Size of the top, at least 1.
    draws
        Joint draws of all items, at least 2. Each takes one draw of the curves for all of them.
    seed
        Seed, a whole number of at least 0.
    progress
        Whether to show progress on standard error.

    Returns
    -------
    pandas.DataFrame
        ``probability``, of which the sum is k, and ``error``, its standard error of simulation: at
        most 0.5 / sqrt(draws), and 0 where k leaves no item out. In the order of the items, indexed
        by their id, else by the index of a pandas source, else by 0, ..., n - 1.

    Raises
    ------
    ItemsError
        If the items are not valid or not of the fit's kind.
    FitError
        If `k`, `draws` or `seed` are not such whole numbers, or a score has no place on the fit's
        axis.

    Notes
    -----
    A mean over draws of P(theta_i > T_i), where T_i is the k-th largest theta of the others, less
    its regression on the sum over items, of which the expectation k is known. Where equal theta
    stand at the border they share what is left. Items are streamed: memory is of the order of
    ``draws`` (k + 1) and of 20 numbers an item.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> frame = soc.simulation.s1(2000, seed=0)
    >>> items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    >>> fit = soc.fit(soc.summarize(items), method=soc.FiveSteps(), progress=False)
    >>> top = soc.decisions.probability_best(fit, items, 10, draws=200, progress=False)
    >>> float(top["probability"].sum().round(3))
    10.0
    """
    size, number = whole(k, "k", 1), whole(draws, "draws", 2, most=MOST_DRAWS)
    key = whole(seed, "seed", 0)
    job = read(fit, items, progress)
    if size >= len(job):
        return pd.DataFrame({"probability": 1.0, "error": 0.0}, index=job.index)
    race = _Race(job, size, key, curve_numbers(job.draws, number, key))
    total = 2 * number * len(job)
    with phase("probability of being best", total=total, unit="draws", enabled=progress) as shown:
        found = race.run(shown)
    probability, error = found
    return pd.DataFrame({"probability": probability, "error": error}, index=job.index)


@dataclass
class _Race:
    """Draws of all items against one another.

    Attributes
    ----------
    job, size, seed, curves
        The items, k, the seed, and the draw of the curves of each draw.
    sums
        Of the items' probabilities and of their squares over draws, (2, n).
    batches
        Sums of the probabilities over batches of draws, (batches, n).
    over_items
        Their sum over the items in each draw.
    """

    job: Job
    size: int
    seed: int
    curves: Ints
    sums: Floats = field(init=False)
    batches: Floats = field(init=False)
    over_items: Floats = field(init=False)

    def __post_init__(self) -> None:
        n, number = len(self.job), len(self.curves)
        many = min(number, _BATCHES, max(_FEWEST, _BATCH_NUMBERS // n))
        self.sums, self.batches = np.zeros((2, n)), np.zeros((many, n))
        self.over_items = np.zeros(number)

    @property
    def _batch_of(self) -> Ints:
        number = len(self.curves)
        return np.arange(number) * len(self.batches) // number

    def run(self, shown: Phase) -> tuple[Floats, Floats]:
        """Probabilities and their standard errors."""
        step = min(_MOST, max(LANE, _TOP // (self.size + 1) // LANE * LANE))
        for start in range(0, len(self.curves), step):
            self._group(slice(start, min(start + step, len(self.curves))), shown)
        return self._answer()

    def _tiles(self, draws: slice) -> Iterator[Tile]:
        """Draws of the blocks of items, and what is behind them."""

        def one(block: int) -> Tile:
            return sampled(self.job, block, draws.start, self.curves[draws], self.seed)

        yield from waves(one, -(-len(self.job) // BLOCK))

    def _group(self, draws: slice, shown: Phase) -> None:
        """Some of the draws: the border first, then every item against it."""
        number = draws.stop - draws.start
        keep = number * len(self.job) <= _KEPT
        kept, top = [], np.full((number, 0), -np.inf)
        for tile in self._tiles(draws):
            top = _largest(np.hstack([top, _largest(tile[0], self.size + 1)]), self.size + 1)
            if keep:
                kept.append(tile)
            shown.advance(tile[0].size)
        top.sort(axis=1)
        border = _Border(self.size, top[:, 1], top[:, 0], (top > top[:, 1:2]).sum(axis=1))
        if border.tied.any():
            for tile in kept or self._tiles(draws):
                border.equal += (tile[0] == border.last[:, None]).sum(axis=1)
        begin = 0
        for found in self._against(border, draws, kept):
            at = slice(begin, begin + found.shape[1])
            self._add(found, at, draws)
            begin = at.stop
            shown.advance(found.size)

    def _against(self, border: "_Border", draws: slice, kept: list[Tile]) -> Iterator[Floats]:
        """Probabilities of the items of each block in each draw."""

        def one(block: int) -> Floats:
            own = self.curves[draws]
            tile = kept[block] if kept else sampled(self.job, block, draws.start, own, self.seed)
            return self._probabilities(border, tile)

        yield from waves(one, -(-len(self.job) // BLOCK))

    def _probabilities(self, border: "_Border", tile: Tile) -> Floats:
        """P(theta > k-th largest of the others) in each draw, (draws, items)."""
        drawn, first, second = tile
        others = np.where(drawn >= border.last[:, None], border.next[:, None], border.last[:, None])
        found = self.job.family.above_drawn(others, first, second)
        tied = np.flatnonzero(border.tied)
        if len(tied):
            own, last = drawn[tied], border.last[tied, None]
            found[tied] = np.where(own > last, 1.0, (own == last) * border.share[tied, None])
        return found

    def _add(self, found: Floats, at: slice, draws: slice) -> None:
        self.sums[0, at] += found.sum(axis=0)
        self.sums[1, at] += (found * found).sum(axis=0)
        self.over_items[draws] += found.sum(axis=1)
        batch = self._batch_of[draws]
        first = np.flatnonzero(np.diff(batch, prepend=-1))
        self.batches[batch[first], at] += np.add.reduceat(found, first, axis=0)

    def _answer(self) -> tuple[Floats, Floats]:
        """Means over draws, less their regression on the sum over items, which should be k."""
        number = len(self.curves)
        mean = self.sums[0] / number
        variance = np.maximum(self.sums[1] / number - mean**2, 0.0) * number / (number - 1)
        slope = np.zeros(len(mean))
        total = self.over_items.mean()
        share = np.bincount(self._batch_of)[:, None]
        away = np.bincount(self._batch_of, self.over_items)[:, None] - share * total
        scatter = float((away**2).sum())
        if len(self.batches) >= _FEWEST and scatter > 1e-20 * number * total**2:
            slope = (away * (self.batches - share * mean)).sum(axis=0) / scatter
        explained = slope**2 * self.over_items.var(ddof=1)
        left = np.maximum(variance - explained, variance / len(self.batches))
        probability = np.clip(mean - slope * (total - self.size), 0.0, 1.0)
        return probability, np.sqrt(left / number)


@dataclass
class _Border:
    """Where the top ends in each draw.

    Attributes
    ----------
    size
        How many the top has.
    last, next
        The k-th largest theta and the one after it, (draws,).
    above
        How many are larger than the k-th.
    equal
        How many are equal to it, counted where the next one is.
    """

    size: int
    last: Floats
    next: Floats
    above: Ints
    equal: Ints = field(init=False)

    def __post_init__(self) -> None:
        self.equal = np.zeros(len(self.last), dtype=np.int64)

    @property
    def tied(self) -> NDArray[np.bool_]:
        """Draws in which the two are equal."""
        return np.asarray(self.last == self.next)

    @property
    def share(self) -> Floats:
        """Probability of those that are equal to the last: places that are left for them."""
        return np.asarray((self.size - self.above) / np.maximum(self.equal, 1))


def _largest(values: Floats, number: int) -> Floats:
    """The largest values of each row, in any order."""
    if values.shape[1] <= number:
        return values
    return np.partition(values, -number, axis=1)[:, -number:]
