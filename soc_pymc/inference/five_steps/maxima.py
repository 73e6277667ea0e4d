"""Step 2 for conjugate priors: each bin's maximum marginal likelihood by Newton's method."""

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from ..._lib.arrays import Floats, Ints
from ...families.row_sums import RowSums

Mask = NDArray[np.bool_]

_ROUNDS = 200
_CLOSE = 1e-7  # the last step in log variance: Newton's method leaves its square
_FARTHEST = 2.0  # of one step in log variance
_TRIED = (-6.0, -3.0, -1.0, 1.0, 3.0)  # further starts, from the first one
_ROUNDING = 1e-12


@dataclass(frozen=True)
class BinMaxima:
    """Maxima of bins, each array (bins,); NaN in bins that were not fitted."""

    first: Floats  # log mean, or mean
    second: Floats  # log cv2, or log variance; its floor where the maximum is at variance 0
    log_likelihood: Floats
    at_zero: Mask
    fitted: Mask
    failed: Mask  # bins whose search did not end

    def part(self, at: NDArray[np.intp]) -> "BinMaxima":
        """Those of some bins."""
        return BinMaxima(*(getattr(self, f.name)[at] for f in fields(self)))


def maximise(bins: RowSums, chosen: Mask) -> BinMaxima:
    """Maximum marginal likelihood of each chosen bin.

    The likelihood is concave in the mean (of counts: in its logarithm), so that a few starts over
    the variance alone and the end at variance 0 do for the highest of several maxima.
    """
    zero_first, zero_value, slope, floor = bins.at_zero()
    rows = np.flatnonzero(chosen & bins.can_fit)
    first, second, value = _best_start(bins, rows, zero_first[rows], bins.second_by_moments()[rows])
    first, second, value, done = _newton(bins, rows, first, second, floor[rows])
    # at the floor, or below what variance 0 gives, the maximum is at 0
    gain = value - zero_value[rows]
    noise = 10.0 * bins.rounding[rows] + 10.0 * _ROUNDING * np.abs(value)
    inside = (second > floor[rows]) & (gain > noise)
    inside |= (slope[rows] > 0) & (second > floor[rows])
    full = np.full((3, len(floor)), np.nan)
    full[0, rows] = np.where(inside, first, zero_first[rows])
    full[1, rows] = np.where(inside, second, floor[rows])
    full[2, rows] = np.where(inside, value, zero_value[rows])
    zero, failed, fitted = np.zeros((3, len(floor)), dtype=bool)
    zero[rows], failed[rows] = ~inside, inside & ~done
    fitted[rows] = np.isfinite(full[:, rows]).all(axis=0) & ~failed[rows]
    failed[rows] |= ~fitted[rows]
    full[:, ~fitted] = np.nan
    return BinMaxima(full[0], full[1], full[2], zero & fitted, fitted, failed)


def _best_start(bins: RowSums, rows: Ints, first: Floats, start: Floats) -> tuple[Floats, ...]:
    """The highest of a few points over the variance, each at about the best mean."""
    best = np.full((3, len(rows)), -np.inf)
    for offset in (0.0, *_TRIED):
        m, c = first.copy(), start + offset
        for _ in range(3):
            found = bins.curvature(m, c, rows)
            m = m + np.clip(-found[1] / found[3], -bins.reach, bins.reach)
        found = bins.curvature(m, c, rows)
        # what is not a number is no better
        better = np.nan_to_num(found[0], nan=-np.inf) > best[2]
        best[:, better] = np.array([m, c, found[0]])[:, better]
    return best[0], best[1], best[2]


def _step(bins: RowSums, here: Floats) -> Floats:
    """Steps in both parameters: Newton's where the profile over the mean bends down."""
    _, by_m, by_c, mm, mc, cc = here
    # a flat likelihood has no Newton step: what is not a number becomes no step, or a bounded one
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        slope = by_c - mc * by_m / mm
        bend = cc - mc * mc / mm
        dc = np.where(bend < 0, -slope / bend, np.sign(slope))
        # no number, no step
        dc = np.clip(np.nan_to_num(dc), -_FARTHEST, _FARTHEST)
        dm = -(by_m + mc * dc) / mm
        dm = np.clip(np.nan_to_num(dm), -bins.reach, bins.reach)  # likewise
    return np.array([dm, dc])


def _newton(
    bins: RowSums, rows: Ints, first: Floats, second: Floats, floor: Floats
) -> tuple[Floats, Floats, Floats, Mask]:
    """Newton steps, uphill where the profile bends the wrong way, halved where they do not gain."""
    at = np.array([first, second])
    here = bins.curvature(first, second, rows)
    factor, done = np.ones(len(rows)), np.zeros(len(rows), dtype=bool)
    step, noise = _step(bins, here), bins.rounding[rows]
    active = np.arange(len(rows))
    for _ in range(_ROUNDS):
        if not len(active):
            break
        move = factor[active] * step[:, active]
        tried = at[:, active] + move
        found = bins.curvature(tried[0], tried[1], rows[active])
        least = here[0, active] - _ROUNDING * np.abs(here[0, active]) - 10.0 * noise[active]
        good = np.isfinite(found).all(axis=0) & (found[0] >= least)
        taken = active[good]
        at[:, taken], here[:, taken] = tried[:, good], found[:, good]
        small = _small(move, found, noise[active])
        done[active] = good & small & (factor[active] == 1.0)
        factor[active] = np.where(good, 1.0, 0.5 * factor[active])
        step[:, taken] = _step(bins, found[:, good])
        stuck = factor[active] < 1e-9
        active = active[~(done[active] | stuck | (at[1, active] < floor[active]))]
    return at[0], at[1], here[0], done


def _small(move: Floats, found: Floats, noise: Floats) -> Mask:
    """Steps that are as good as none: of the mean in its own sd, or what rounding makes of it."""
    # where the likelihood is flat comparisons with NaN are false: the step is not small
    with np.errstate(divide="ignore", invalid="ignore"):
        root = np.sqrt(np.maximum(-found[3], 0.0))
        bend = np.abs(found[5] - found[4] ** 2 / found[3])
        of_mean = np.abs(move[0]) * root < _CLOSE + noise / root
        return np.asarray(of_mean & (np.abs(move[1]) < _CLOSE + noise / bend))
