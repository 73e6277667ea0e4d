"""Probability integral transforms of outcomes under their predictive distribution.

If the model is right, F(y - 1) + V [F(y) - F(y - 1)] of counts, V uniform, is uniform (the
randomised PIT, which is tested), and so is on average its expectation over V (the non-randomised
PIT of Czado, Gneiting and Held 2009, which no seed can change); of values both are F(y). F averages
over the curves' uncertainty.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from .._lib.progress import phase
from ..posterior.predictive import Columns, Posterior, select

__all__ = [
    "GRID",
    "Uniformity",
    "fifths",
    "grid_p_value",
    "ks_p_value",
    "mean_pit_ecdf",
    "pit_ecdf",
    "predictive_cdf",
    "randomised_pit",
    "sizes",
    "slices",
    "span",
    "uniformity",
]

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

GRID = np.linspace(0.0, 1.0, 200)  # where ECDFs are kept for pictures
LEAST = 20  # slices of fewer items are left out: no test on them says anything
MANY_TRIALS = 50  # exposure from which an item's own count says much about its theta
_STEP = 1e-6  # PIT intervals narrower than this are steps
_CHUNK = 20_000
_DISCRETE = 0.5826  # -zeta(1/2) / sqrt(2 pi)
_HUGE = 1e300  # stands for infinity where quantiles are interpolated


def predictive_cdf(
    law: Posterior, columns: Columns, *, progress: bool = True
) -> tuple[Floats, Floats]:
    """P(Y < y) and P(Y <= y) of each item, averaged over the curves' uncertainty.

    Parameters
    ----------
    law
        Of the fit.
    columns
        The items.
    progress
        Whether long work shows its progress.

    Returns
    -------
    below, upto
        Two arrays of the same length, below < upto for counts but for rounding, equal for values.
    """
    n = len(columns["score"])
    below, upto = np.empty(n), np.empty(n)
    with phase("predictive distribution", total=n, unit="items", enabled=progress) as running:
        for start in range(0, n, _CHUNK):
            part = slice(start, start + _CHUNK)
            below[part], upto[part] = law.cdf_interval(select(columns, part))
            running.advance(len(below[part]))
    return below, upto


def randomised_pit(below: Floats, upto: Floats, rng: np.random.Generator) -> Floats:
    """Uniform draws between P(Y < y) and P(Y <= y): uniform if the model is right."""
    return np.asarray(below + rng.random(len(below)) * (upto - below))


def pit_ecdf(pit: Floats, grid: Floats = GRID) -> Floats:
    """Share of PIT values at or below each point of `grid`.

    Examples
    --------
    >>> import numpy as np
    >>> pit_ecdf(np.array([0.1, 0.6]), np.array([0.0, 0.5, 1.0]))
    array([0. , 0.5, 1. ])
    """
    return np.searchsorted(np.sort(pit), grid, side="right") / len(pit)


def mean_pit_ecdf(below: Floats, upto: Floats, grid: Floats = GRID) -> Floats:
    """Expectation of `pit_ecdf` over the randomisation: the mean of the items' uniform cdfs.

    Parameters
    ----------
    below, upto
        Ends of each item's interval.
    grid
        Evenly spaced points from 0 to 1.

    Examples
    --------
    >>> import numpy as np
    >>> mean_pit_ecdf(np.array([0.0, 0.5]), np.array([1.0, 1.0]), np.array([0.0, 0.5, 1.0]))
    array([0.  , 0.25, 1.  ])
    """
    width = upto - below
    wide = width >= _STEP
    last = len(grid) - 1
    rise = np.zeros(len(grid))
    # a uniform cdf is a ramp from `below` minus the same ramp from `upto`: sums over items need
    # only each ramp's first grid point
    for ends, sign in ((below[wide], 1.0), (upto[wide], -1.0)):
        first = np.ceil(ends * last).astype(np.int64)
        slope = np.cumsum(np.bincount(first, 1.0 / width[wide], len(grid)))
        offset = np.cumsum(np.bincount(first, ends / width[wide], len(grid)))
        rise += sign * (grid * slope - offset)
    step = np.ceil(upto[~wide] * last).astype(np.int64)
    rise += np.cumsum(np.bincount(step, minlength=len(grid)))
    return np.clip(rise / len(below), 0.0, 1.0)


@dataclass(frozen=True)
class Uniformity:
    """Test of uniformity of PIT values.

    Attributes
    ----------
    distance
        Largest difference between their ECDF and the uniform cdf (Kolmogorov-Smirnov).
    p_value
        Probability of a distance at least as large if they are uniform.
    """

    distance: float
    p_value: float


def uniformity(pit: Floats) -> Uniformity:
    """Kolmogorov-Smirnov test that `pit` is uniform on (0, 1).

    Examples
    --------
    >>> import numpy as np
    >>> round(uniformity(np.array([0.2, 0.4, 0.6, 0.8])).distance, 9)
    0.2
    """
    u = np.sort(pit)
    rank = np.arange(len(u) + 1) / len(u)
    distance = float(max(np.max(rank[1:] - u), np.max(u - rank[:-1])))
    return Uniformity(distance, ks_p_value(distance, len(u)))


def ks_p_value(distance: float, n: int) -> float:
    """Probability that the ECDF of n uniform values is off by at least so much."""
    return float(stats.kstwo.sf(distance, n))


def grid_p_value(distance: float, n: int) -> float:
    """The same of a distance that was taken at the points of `GRID` alone.

    Between two points the ECDF strays further: the largest of a random walk looked at in steps of
    length h is that of the whole path less .5826 sqrt(h) (Siegmund 1979; Broadie, Glasserman and
    Kou 1997). Without it a test at 5% would reject in 4%.

    Parameters
    ----------
    distance
        Largest difference at the grid's points.
    n
        Number of values.
    """
    step = 1.0 / (len(GRID) - 1)
    return ks_p_value(distance + _DISCRETE * float(np.sqrt(step / n)), n) if n else 1.0


def fifths(
    name: str, value: Floats, words: Callable[[Floats], str] | None = None
) -> Iterator[tuple[str, Mask]]:
    """Fifths of the items by `value` with their names; fewer where values are tied.

    Parameters
    ----------
    name
        What the value is, for the slices' names.
    value
        One value per item; items with NaN are in no slice.
    words
        How the range of some values is written; None is `span`.
    """
    known = ~np.isnan(value)
    if not known.all():
        for label, mask in fifths(name, value[known], words):
            whole = np.zeros(len(value), dtype=bool)
            whole[known] = mask
            yield label, whole
        return
    if not len(value):
        return
    finite = np.clip(value, -_HUGE, _HUGE)
    cuts = np.unique(np.quantile(finite, [0.2, 0.4, 0.6, 0.8]))
    level = np.searchsorted(cuts, finite, side="right")
    present = np.unique(level)
    if len(present) < 2:
        return
    for k, code in enumerate(present, start=1):
        mask = level == code
        yield f"{name} {k}/{len(present)}: {(words or span)(value[mask])}", mask


def span(value: Floats) -> str:
    """Range of values in a few digits."""
    low, high = float(value.min()), float(value.max())
    return f"{_short(low)} to {_short(high)}" if high > low else _short(low)


def _short(value: float) -> str:
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.3g}"


def sizes(law: Posterior) -> str:
    """What the size of items is called in the names of slices."""
    return law.outcome.size.replace("_", " ")


def slices(law: Posterior, columns: Columns) -> Iterator[tuple[str, Mask]]:
    """Standard slices: all items, fifths of score and of size, and of counts exposure >= 50."""
    score, size = columns["score"], columns[law.outcome.size]
    yield "all items", np.ones(len(score), dtype=bool)
    if law.outcome.whole:
        yield f"{sizes(law)} >= {MANY_TRIALS}", size >= MANY_TRIALS
    yield from fifths("score", score)
    yield from fifths(sizes(law), size)
