"""Compiled sums of items with values and known noise."""

import math

import numpy as np

from ...families.outcomes import OUTCOMES
from ...families.validity import LEAST_SD, is_valid_normal
from ..binning import MOST_VALUE_CELL, STEPS, VALUE_OCTAVES
from .hashing import EMPTY, compiled, inlined, log_linear, slot
from .sums import Kernel, Packed

__all__ = ["NORMAL", "noise_and_value_cell"]

_NOISE_BITS, _VALUE_BITS = 12, 26  # of cells in packed keys
_FIRST_NOISE, _FIRST_VALUE = -(1 << 11), -(1 << 25)
_SIXTEEN = 1 << STEPS
_MOST = float(MOST_VALUE_CELL)


@compiled
def _totals(score, value, noise):  # type: ignore[no-untyped-def]
    """Whether all items are valid, and their totals.

    Sums of values, of their sizes and of squared noise sds; least and largest score; the largest
    size of a value in noise sds.
    """
    valid, total, size, squares = True, 0.0, 0.0, 0.0
    low, high, far = math.inf, -math.inf, 0.0
    for i in range(len(score)):
        t, y, s = score[i], value[i], noise[i]
        if not is_valid_normal(t, y, s):
            valid = False
            break
        total += y
        size += abs(y)
        squares += s * s
        low = t if t < low else low
        high = t if t > high else high
        ratio = abs(y) / s
        far = ratio if ratio > far else far
    return valid, total, size, squares, low, high, far


@compiled
def noise_and_value_cell(y, s):  # type: ignore[no-untyped-def]
    """`binning.exposure_cell` of the noise sd and `binning.value_cell`."""
    of_noise = log_linear(s, _SIXTEEN)
    # clipped as a real number: what is far off fits no integer
    cell = np.floor(math.ldexp(y, VALUE_OCTAVES - (of_noise >> STEPS)))
    return of_noise, np.int64(min(max(cell, -_MOST), _MOST))


@inlined
def _add_part(whole, reals, at, t, y, small, s):  # type: ignore[no-untyped-def]
    if whole[at, 1] == 0:
        reals[at, 6] = reals[at, 7] = t
    whole[at, 1] += 1
    log_t = math.log(t) if t > 0 else math.nan
    reals[at, 3] += y
    reals[at, 4] += small * small
    reals[at, 5] += s * s
    reals[at, 6] = min(reals[at, 6], t)
    reals[at, 7] = max(reals[at, 7], t)
    reals[at, 8] += t
    reals[at, 9] += t * t
    reals[at, 10] += log_t
    reals[at, 11] += log_t * log_t


@inlined
def _add_noise(whole, reals, at, y, small, w):  # type: ignore[no-untyped-def]
    whole[at, 1] += 1
    reals[at, 3] += y
    reals[at, 4] += small * small
    reals[at, 5] += w
    reals[at, 6] += w * w
    reals[at, 7] += w * w * w
    reals[at, 8] += small * w
    reals[at, 9] += small * w * w
    reals[at, 10] += small * w * w * w
    reals[at, 11] += small * small * w
    reals[at, 12] += small * small * w * w
    reals[at, 13] += small * small * w * w * w


@inlined
def _add_joint(whole, reals, at, y, small, w):  # type: ignore[no-untyped-def]
    whole[at, 1] += 1
    reals[at, 3] += y
    reals[at, 4] += small * small
    reals[at, 5] += small * small * small
    reals[at, 6] += w
    reals[at, 7] += w * w


@compiled
def _add(  # type: ignore[no-untyped-def]
    items, folds, bins, coarse, start, used,
    part_whole, part_reals, s_whole, s_reals, joint_whole, joint_reals,
):  # fmt: skip
    """Add items from `start` on to all tables; where it stopped, as a table is full."""
    keys, score, value, noise = items
    last, part = EMPTY, 0
    for i in range(start, len(score)):
        full = 2 * used[0] > len(part_whole) or 2 * used[1] > len(s_whole)
        if full or 2 * used[2] > len(joint_whole):
            return i
        key, t, y, s = keys[i], score[i], value[i], noise[i]
        if key != last:
            last, part = key, slot(part_whole, used, 0, key)
        small = y if abs(y) >= LEAST_SD else 0.0
        _add_part(part_whole, part_reals, part, t, y, small, s)
        s_cell, y_cell = noise_and_value_cell(small, s)
        s_key = (key << _NOISE_BITS) + s_cell - _FIRST_NOISE
        _add_noise(s_whole, s_reals, slot(s_whole, used, 1, s_key), y, small, s * s)
        if coarse > 0:
            wide = key // (bins * folds) * bins + key % bins // coarse
            wide = (wide << _NOISE_BITS) + s_cell - _FIRST_NOISE
            at = slot(joint_whole, used, 2, (wide << _VALUE_BITS) + y_cell - _FIRST_VALUE)
            _add_joint(joint_whole, joint_reals, at, y, small, s * s)
    return len(score)


NORMAL = Kernel(
    OUTCOMES["normal"],
    _totals,
    _add,
    {
        "part": (),
        "noise": (Packed("cell", _NOISE_BITS, _FIRST_NOISE),),
        "joint": (
            Packed("noise_cell", _NOISE_BITS, _FIRST_NOISE),
            Packed("value_cell", _VALUE_BITS, _FIRST_VALUE),
        ),
    },
)
"""Sums of items with values: values smaller than 1e-35 count as 0 in powers and products."""
