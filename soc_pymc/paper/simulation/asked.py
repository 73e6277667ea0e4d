"""What simulations are asked for, checked before memory is taken."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._lib.arguments import numbers_of, real, refuse_beyond_memory, whole
from ..._lib.errors import FitError
from ...families.validity import LARGEST_COUNT

__all__ = ["counts", "not_negative", "positive", "random_numbers", "shifts"]

_WIDEST = 10.0  # sd of log theta: from some 18 on the square of theta has a mean beyond all numbers
_FARTHEST = 100.0  # bias of log theta


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
    bad = ~((expected >= 0) & (expected <= LARGEST_COUNT))
    if bad.any():
        raise FitError(
            f"{int(bad.sum()):,} of {bad.size:,} items would have mean counts that are below 0, "
            "missing or beyond 2^53: give other scores, exposures, delta or sigma"
        )
    return np.asarray(rng.poisson(expected))


def shifts(delta: Any, sigma: Any) -> tuple[float, float]:
    """Mean and sd of the logarithms of rates about their scores'.

    Raises
    ------
    FitError
        If delta is not within 100 of 0, or sigma not above 0 and at most 10: float64 holds no
        squares of such rates.
    """
    delta = real(delta, "delta", above=-_FARTHEST, below=_FARTHEST)
    sigma = real(sigma, "sigma", above=0)
    if sigma > _WIDEST:
        raise FitError(f"sigma={sigma:g} must be at most {_WIDEST:g}")
    return delta, sigma


def not_negative(value: NDArray[np.float64], name: str) -> None:
    """Refuse numbers below 0, infinite ones and NaN.

    Raises
    ------
    FitError
        If there are some.
    """
    bad = ~((value >= 0) & np.isfinite(value))
    if bad.any():
        raise FitError(
            f"{name}: {int(bad.sum()):,} of {value.size:,} are not finite numbers of at least 0"
        )


def positive(value: Any, name: str) -> NDArray[np.float64]:
    """Numbers above 0.

    Raises
    ------
    FitError
        If some are none.
    """
    array = numbers_of(value, name)
    bad = ~((array > 0) & np.isfinite(array))
    if bad.any():
        raise FitError(
            f"{name}: {int(bad.sum()):,} of {array.size:,} are not finite numbers above 0"
        )
    return array
