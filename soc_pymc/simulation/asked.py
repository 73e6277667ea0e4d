"""What simulations are asked for, checked before memory is taken."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arguments import refuse_beyond_memory, whole
from ..errors import FitError

__all__ = ["counts", "random_numbers"]


def random_numbers(n_items: Any, seed: Any, columns: int, least: int = 0) -> np.random.Generator:
    """Random numbers of a simulation of so many items.

    Parameters
    ----------
    n_items
        Number of items.
    seed
        Seed.
    columns
        Numbers that are held for each item, at least.
    least
        Fewest items.

    Raises
    ------
    FitError
        If one of both is no such whole number, or the machine has no memory for the items.
    """
    number = whole(n_items, "n_items", least)
    refuse_beyond_memory(8.0 * columns * number, f"n_items={number:,}", "ask for fewer")
    return np.random.default_rng(whole(seed, "seed", 0))


def counts(rng: np.random.Generator, expected: NDArray[np.float64]) -> NDArray[np.int64]:
    """Poisson counts of means that are >= 0 and not too large for whole numbers.

    Raises
    ------
    FitError
        If some mean is none.
    """
    bad = ~((expected >= 0) & (expected < 2.0**53))
    if bad.any():
        raise FitError(
            f"{int(bad.sum()):,} of {bad.size:,} items would have mean counts that are below 0, "
            "missing or beyond 2^53: give other scores, exposures, delta or sigma"
        )
    return np.asarray(rng.poisson(expected))
