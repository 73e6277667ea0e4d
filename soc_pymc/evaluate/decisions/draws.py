"""Joint draws of theta of all items: each draw takes one draw of the curves for all of them.

Random numbers belong to tiles of 64 draws by 512 items, by their place, so that a draw does not
depend on how the work is cut up, on the number of processors, or on how many draws are made.
"""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import batched

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ..._lib.arguments import MOST_DRAWS, refuse_beyond_memory, whole
from ..._lib.progress import phase
from ...data.items import Items
from ...inference.results import Fit
from ...posterior.predictive import select
from .reading import Job, read

__all__ = ["BLOCK", "LANE", "curve_numbers", "sampled", "thompson_draws", "waves"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LANE = 64
"""Draws in a tile of random numbers."""
BLOCK = 512
"""Items in a tile of random numbers."""
_MOST = 1024  # draws of a block of items that are made at once
_STREAMS = 3  # of random numbers in a tile: which component, and two for theta


def curve_numbers(total: int, draws: int, seed: int) -> Ints:
    """Which draw of the curves each draw takes: all of them in random order, over and over."""
    rounds = -(-draws // total)
    orders = (np.random.default_rng([seed, i]).permutation(total) for i in range(rounds))
    return np.concatenate(list(orders))[:draws]


def sampled(
    job: Job, block: int, first_draw: int, curves: Ints, seed: int
) -> tuple[Floats, Floats, Floats]:
    """Draws of one block of items, on the scale of the family, and the two numbers behind each.

    Parameters
    ----------
    job
        The fit and the items.
    block
        Number of the block of items.
    first_draw
        Number of the first draw, a multiple of `LANE`.
    curves
        Number of the draw of the curves that each draw takes.
    seed
        Seed.

    Returns
    -------
    tuple of numpy.ndarray
        Draws, and shape and rate or mean and variance, each (draws, items of the block).
    """
    part = select(job.columns, slice(block * BLOCK, (block + 1) * BLOCK))
    n, lanes = len(part["score"]), range(0, len(curves), LANE)
    rngs = [
        [
            np.random.default_rng([seed, stream, (first_draw + at) // LANE, block])
            for stream in range(_STREAMS)
        ]
        for at in lanes
    ]
    sizes = [min(LANE, len(curves) - at) for at in lanes]
    uniform = np.vstack([own[0].random((m, n)) for own, m in zip(rngs, sizes, strict=True)])
    first, second = job.law.theta_given(part, curves, uniform)
    drawn = [
        job.family.draw(first[at : at + m], second[at : at + m], (own[1], own[2]))
        for at, m, own in zip(lanes, sizes, rngs, strict=True)
    ]
    return np.vstack(drawn), first, second


def waves[Result](work: Callable[[int], Result], number: int) -> Iterator[Result]:
    """Results of work on 0, ..., number - 1 in this order, on all processors, few held at once."""
    threads = os.cpu_count() or 1
    with ThreadPoolExecutor(threads) as pool:
        for some in batched(range(number), 4 * threads):
            yield from pool.map(work, some)


def thompson_draws(
    fit: Fit, items: Items, draws: int = 1, *, seed: int = 0, progress: bool = True
) -> xr.DataArray:
    """Draws of every item's theta given score and outcome, for Thompson sampling.

    To choose the items with the largest theta of a draw, one draw a round, is to choose each with
    the probability that it is the best. Each draw takes one draw of the curves for all items: what
    is not known of the curves moves items of like scores together.

    Parameters
    ----------
    fit
        The fit.
    items
        Items of the fit's kind: those of the fit or others.
    draws
        Number of draws. The first ones are the same whatever their number.
    seed
        Seed, a whole number of at least 0; take another one each round.
    progress
        Whether to show progress on standard error.

    Returns
    -------
    xarray.DataArray
        ``theta`` (draw, item) in the unit of theta, with coordinates ``item`` (the items' id, else
        the index of a pandas source, else 0, ..., n - 1) and ``curve``, the number of the draw of
        the curves, chains one after the other: all of them in random order before any is taken
        twice. It is held in memory: 8 bytes for each draw and item.

    Raises
    ------
    ItemsError
        If the items are not valid or not of the fit's kind.
    FitError
        If `draws` is not a whole number of at least 1, `seed` not one of at least 0, the draws are
        larger than the machine's memory, or a score has no place on the fit's axis.

    Notes
    -----
    Exact draws from the posterior; nothing is interpolated. The same seed gives the same draws on
    any number of processors.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> frame = soc.simulation.s1(2000, seed=0)
    >>> items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    >>> fit = soc.fit(soc.summarize(items), method=soc.FiveSteps(), progress=False)
    >>> theta = soc.decisions.thompson_draws(fit, items, 3, seed=1, progress=False)
    >>> dict(theta.sizes), bool((theta > 0).all())
    ({'draw': 3, 'item': 2000}, True)
    """
    number, key = whole(draws, "draws", 1, most=MOST_DRAWS), whole(seed, "seed", 0)
    job = read(fit, items, progress)
    what = f"{number:,} draws of {len(job):,} items"
    refuse_beyond_memory(8.0 * number * len(job), what, "ask for fewer of one of them")
    curves = curve_numbers(job.draws, number, key)
    theta = np.empty((number, len(job)))

    def one(block: int) -> int:
        at = slice(block * BLOCK, (block + 1) * BLOCK)
        for start in range(0, number, _MOST):
            some = slice(start, start + _MOST)
            drawn = sampled(job, block, start, curves[some], key)[0]
            theta[some, at] = job.family.natural(drawn)
        return theta[0, at].size

    with phase("Thompson draws", total=len(job), unit="items", enabled=progress) as shown:
        for done in waves(one, -(-len(job) // BLOCK)):
            shown.advance(done)
    coords = {"draw": np.arange(number), "curve": ("draw", curves), "item": job.index.to_numpy()}
    return xr.DataArray(theta, coords, ("draw", "item"), name="theta")
