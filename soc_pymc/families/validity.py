"""Which items are valid: the rule of every compiled loop, and the limits that the checks name."""

import math

import numba

__all__ = ["LARGEST", "LARGEST_COUNT", "LARGEST_VALUE", "LEAST_SD", "is_valid", "is_valid_normal"]

LARGEST_COUNT = 2.0**53 - 1.0
"""Whole numbers up to here are exact in float64, and none beyond is rounded to one of them."""
LARGEST = 1e90
"""Third powers of scores and exposures, times a count, must stay finite."""
LARGEST_VALUE = 1e35
"""Of values and noise sds: y^2 s^6 must stay finite, summed over all items."""
LEAST_SD = 1e-35
"""Of noise sds: y^2 s^6 must not vanish, where y itself is not smaller than this."""


@numba.njit(cache=True, nogil=True, error_model="numpy")
def is_valid(t, y, x):  # type: ignore[no-untyped-def]
    """Whether a score is finite, a count whole and >= 0, an exposure >= 0, and 0 only if y is.

    Every comparison with NaN is false.
    """
    return (
        abs(t) <= LARGEST
        and 0.0 <= y <= LARGEST_COUNT
        and 0.0 <= x <= LARGEST
        and y == math.floor(y)
        and (y == 0.0 or x > 0.0)
    )


@numba.njit(cache=True, nogil=True, error_model="numpy")
def is_valid_normal(t, y, s):  # type: ignore[no-untyped-def]
    """Whether a score and a value are finite, and a noise sd is positive, none out of range."""
    return abs(t) <= LARGEST and abs(y) <= LARGEST_VALUE and LEAST_SD <= s <= LARGEST_VALUE
