"""What simulations are asked for, checked before memory is taken."""

from typing import Any

import numpy as np

from ..arguments import refuse_beyond_memory, whole

__all__ = ["random_numbers"]


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
