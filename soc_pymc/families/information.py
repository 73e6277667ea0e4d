"""Information of items about theta, told from their sizes alone, never from their outcomes.

An item's precision is its exposure, its number of trials, or one over its squared noise sd.
"""

import numpy as np

from .._lib.arrays import Bools, Floats

# an item counts for at most one of so many in the typical precision
_LEAST_ITEMS = 4
# information from which on an item always counts, and that of the last items as a share of all
_ALWAYS = 2.0**-10
_NEGLIGIBLE = 0.01
_LEAST_PRECISION = 1e-100  # relative to the largest


def typical_precision(precision: Floats, items: Floats) -> float:
    """Harmonic mean of precisions, weighted by information about a small variance of theta.

    This information is the squared precision, so any number of imprecise items hardly counts; no
    item counts for more than a quarter of all, so neither does one of extreme precision.
    """
    order = np.argsort(precision)[::-1]
    largest = precision[order[0]]
    relative = np.maximum(precision[order] / largest, _LEAST_PRECISION)
    number = items[order]
    square = relative**2
    # items of a precision and beyond, with the others by their information as a share of theirs
    information = np.cumsum((number * square)[::-1])[::-1]
    counted = np.cumsum(number) + (information - number * square) / square
    enough = relative[counted >= _LEAST_ITEMS]
    capped = np.minimum(relative, enough[0] if len(enough) else relative[-1])
    weight = number * capped**2
    return float(largest * weight.sum() / (weight / relative).sum())


def informative(information: Floats, items: Floats) -> Bools:
    """Mask of items, by their information, without those that together say next to nothing.

    An item whose information is 1 or more says about as much as any other.
    """
    order = np.argsort(information)
    below = np.cumsum((items * information)[order])
    total = items @ np.minimum(information, 1.0)
    negligible = np.zeros(len(information), dtype=bool)
    negligible[order] = below <= _NEGLIGIBLE * total
    return ~(negligible & (information < _ALWAYS))
