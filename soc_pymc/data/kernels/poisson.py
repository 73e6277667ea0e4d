"""Compiled sums of items with counts."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...families.outcomes import OUTCOMES
from ...families.validity import is_valid
from ..binning import EXACT_COUNTS, STEPS, ZERO_EXPOSURE
from .hashing import EMPTY, HEAD, compiled, inlined, log_linear, slot
from .sums import Kernel, Packed

__all__ = ["POISSON", "exposure_and_count_cell"]

Ints = NDArray[np.int64]

_SCHEMA = OUTCOMES["poisson"]
_SIXTEEN = 1 << STEPS
_EXACT_OCTAVE = 5
_COUNT_BITS, _EXPOSURE_BITS = 11, 16  # of cells in packed keys
_FIRST_COUNT = HEAD + len(_SCHEMA.tables["part"].reals)  # where a part's exact counts begin


@compiled
def _totals(score, count, exposure):  # type: ignore[no-untyped-def]
    """Whether all items are valid, and their totals.

    Sums of counts, as whole and as real numbers, and of exposures; least and largest score; largest
    exposure.
    """
    valid, whole, real, total = True, np.int64(0), 0.0, 0.0
    low, high, most = math.inf, -math.inf, 0.0
    for i in range(len(score)):
        t, y, x = score[i], count[i], exposure[i]
        if not is_valid(t, y, x):
            valid = False
            break
        whole += np.int64(y)
        real += y
        total += x
        # plain comparisons: min and max would look for NaN again
        low = t if t < low else low
        high = t if t > high else high
        most = x if x > most else most
    return valid, whole, real, total, low, high, most


@inlined
def _add_part(whole, reals, at, t, y, x):  # type: ignore[no-untyped-def]
    if whole[at, 1] == 0:
        reals[at, 4] = reals[at, 5] = t
    whole[at, 1] += 1
    whole[at, 2] += np.int64(y)
    log_t = math.log(t) if t > 0 else math.nan
    reals[at, 3] += x
    reals[at, 4] = min(reals[at, 4], t)
    reals[at, 5] = max(reals[at, 5], t)
    reals[at, 6] += t
    reals[at, 7] += t * t
    reals[at, 8] += log_t
    reals[at, 9] += log_t * log_t
    if y > 0:
        reals[at, 10] += y * math.log(x)
        reals[at, 11] += y > x


@inlined
def _add_exposure(whole, reals, at, y, x):  # type: ignore[no-untyped-def]
    whole[at, 1] += 1
    whole[at, 2] += np.int64(y)
    reals[at, 3] += x
    reals[at, 4] += x * x
    reals[at, 5] += x * x * x
    if y > 0:
        reals[at, 6] += y * y
        reals[at, 7] += y * x
        reals[at, 8] += y * x * x
        reals[at, 9] += y * x * x * x


@compiled
def exposure_and_count_cell(y, x):  # type: ignore[no-untyped-def]
    """`binning.exposure_cell` and `binning.count_cell`."""
    of_exposure = log_linear(x, _SIXTEEN) if x > 0 else ZERO_EXPOSURE
    if y < EXACT_COUNTS:
        return of_exposure, np.int64(y)
    return of_exposure, log_linear(y, _SIXTEEN) + EXACT_COUNTS - _EXACT_OCTAVE * _SIXTEEN


@compiled
def _add(  # type: ignore[no-untyped-def]
    items, folds, bins, coarse, start, used,
    part_whole, part_reals, x_whole, x_reals, y_whole, y_reals, joint_whole, joint_reals,
):  # fmt: skip
    """Add items from `start` on to all tables; where it stopped, as a table is full."""
    keys, score, count, exposure = items
    last, part = EMPTY, 0
    for i in range(start, len(score)):
        full = 2 * used[0] > len(part_whole) or 2 * used[1] > len(x_whole)
        if full or 2 * used[2] > len(y_whole) or 2 * used[3] > len(joint_whole):
            return i
        key, t, y, x = keys[i], score[i], count[i], exposure[i]
        if key != last:
            last, part = key, slot(part_whole, used, 0, key)
        _add_part(part_whole, part_reals, part, t, y, x)
        x_cell, y_cell = exposure_and_count_cell(y, x)
        x_key = (key << _EXPOSURE_BITS) + x_cell - ZERO_EXPOSURE
        _add_exposure(x_whole, x_reals, slot(x_whole, used, 1, x_key), y, x)
        if y_cell < EXACT_COUNTS:  # all sums of one count follow from its number
            part_whole[part, _FIRST_COUNT + y_cell] += 1
        else:
            at = slot(y_whole, used, 2, (key << _COUNT_BITS) + y_cell)
            y_whole[at, 1] += 1
            y_whole[at, 2] += np.int64(y)
            y_reals[at, 3] += y * y
            y_reals[at, 4] += y * y * y
        if coarse > 0:
            wide = key // (bins * folds) * bins + key % bins // coarse
            wide = (wide << _EXPOSURE_BITS) + x_cell - ZERO_EXPOSURE
            at = slot(joint_whole, used, 3, (wide << _COUNT_BITS) + y_cell)
            _add_exposure(joint_whole, joint_reals, at, y, x)
            joint_reals[at, 10] += y * y * y
    return len(score)


def _expand(count: Ints, n: Ints) -> dict[str, NDArray[Any]]:
    """Sums of items of the same counts: all follow from their numbers."""
    return {
        "n": n,
        "sum_y": count * n,
        "sum_y2": 1.0 * count**2 * n,
        "sum_y3": 1.0 * count**3 * n,
    }


POISSON = Kernel(
    _SCHEMA,
    _totals,
    _add,
    {
        "part": (),
        "exposure": (Packed("cell", _EXPOSURE_BITS, ZERO_EXPOSURE),),
        "count": (Packed("cell", _COUNT_BITS, 0),),
        "joint": (
            Packed("exposure_cell", _EXPOSURE_BITS, ZERO_EXPOSURE),
            Packed("count_cell", _COUNT_BITS, 0),
        ),
    },
    exact=EXACT_COUNTS,
    expand=_expand,
)
"""Sums of items with counts; counts below 32 are counted in the rows of parts."""
