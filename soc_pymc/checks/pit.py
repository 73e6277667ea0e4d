"""Probability integral transforms of counts under their predictive distribution.

If the model is right, F(y - 1) + V [F(y) - F(y - 1)] with V uniform is uniform (the randomised PIT,
which is tested), and so is on average its expectation over V (the non-randomised PIT of Czado,
Gneiting and Held 2009, which no seed can change). F averages over the curves' uncertainty.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from ..families import poisson_gamma
from ..nodes import representative_nodes
from ..progress import phase
from ..results import Fit

__all__ = [
    "GRID",
    "Uniformity",
    "ends_of_counts",
    "fifths",
    "ks_p_value",
    "mean_pit_ecdf",
    "pit_ecdf",
    "predictive_cdf",
    "randomised_pit",
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
_FEW = 128  # counts below this are cheap to add up
_CHUNK = 20_000


def predictive_cdf(
    fit: Fit, score: Floats, count: Floats, exposure: Floats, *, progress: bool = True
) -> tuple[Floats, Floats]:
    """P(Y <= count - 1) and P(Y <= count) of each item, averaged over the curves' uncertainty.

    Parameters
    ----------
    fit
        The fitted curves.
    score, count, exposure
        The items, arrays of one length.
    progress
        Whether long work shows its progress.

    Returns
    -------
    below, upto
        Two arrays of the same length, below < upto but for rounding.
    """
    below, upto = np.empty(len(count)), np.empty(len(count))
    with phase(
        "predictive distribution", total=len(count), unit="items", enabled=progress
    ) as running:
        for start in range(0, len(count), _CHUNK):
            part = slice(start, start + _CHUNK)
            nodes = representative_nodes(fit, score[part])
            below[part], upto[part] = ends_of_counts(*nodes, count[part], exposure[part])
            running.advance(len(count[part]))
    return below, upto


def ends_of_counts(
    weight: Floats, log_mean: Floats, log_cv2: Floats, count: Floats, exposure: Floats
) -> tuple[Floats, Floats]:
    """P(Y <= count - 1) and P(Y <= count) averaged over weighted curves.

    Parameters
    ----------
    weight, log_mean, log_cv2
        Nodes: weights (nodes,), and the curves (nodes, n).
    count, exposure
        Shape (n,).
    """
    below, upto = np.empty(len(count)), np.empty(len(count))
    for mask, cdfs in ((count < _FEW, _few_cdfs), (count >= _FEW, _many_cdfs)):
        ends = cdfs(count[mask], exposure[mask], log_mean[:, mask], log_cv2[:, mask])
        below[mask], upto[mask] = (weight @ end for end in ends)
    # a cubature's weights may be negative or sum to 1 only up to rounding
    upto = np.clip(upto, 0.0, 1.0)
    return np.clip(below, 0.0, upto), upto


def _many_cdfs(
    y: Floats, exposure: Floats, log_mean: Floats, log_cv2: Floats
) -> tuple[Floats, Floats]:
    """P(Y <= y - 1) and P(Y <= y) at every node, by the incomplete beta function."""
    return (
        poisson_gamma.cdf(y - 1.0, exposure, log_mean, log_cv2),
        poisson_gamma.cdf(y, exposure, log_mean, log_cv2),
    )


def _few_cdfs(
    y: Floats, exposure: Floats, log_mean: Floats, log_cv2: Floats
) -> tuple[Floats, Floats]:
    """The same for small counts, by adding up probabilities: several times faster."""
    order = np.argsort(-y, kind="stable")  # the items that reach k come first
    shape = np.exp(-log_cv2[:, order])
    ratio = exposure[order] * np.exp(log_mean + log_cv2)[:, order]
    factor = ratio / (1.0 + ratio)
    pmf = np.exp(-shape * np.log1p(ratio))
    upto, below = pmf.copy(), np.zeros_like(pmf)
    for k in range(1, int(y.max(initial=0.0)) + 1):
        m = int((y >= k).sum())
        below[:, :m] = upto[:, :m]
        pmf[:, :m] *= (shape[:, :m] + (k - 1)) / k * factor[:, :m]
        upto[:, :m] += pmf[:, :m]
    back = np.argsort(order)
    return below[:, back], upto[:, back]


def randomised_pit(below: Floats, upto: Floats, rng: np.random.Generator) -> Floats:
    """Uniform draws between P(Y <= y - 1) and P(Y <= y): uniform if the model is right."""
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


def fifths(name: str, value: Floats) -> Iterator[tuple[str, Mask]]:
    """Fifths of the items by `value` with their names; fewer where values are tied.

    Parameters
    ----------
    name
        What the value is, for the slices' names.
    value
        One value per item.
    """
    cuts = np.unique(np.quantile(value, [0.2, 0.4, 0.6, 0.8]))
    level = np.searchsorted(cuts, value, side="right")
    present = np.unique(level)
    if len(present) < 2:
        return
    for k, code in enumerate(present, start=1):
        mask = level == code
        yield f"{name} {k}/{len(present)}: {span(value[mask])}", mask


def span(value: Floats) -> str:
    """Range of values in a few digits."""
    low, high = float(value.min()), float(value.max())
    return f"{_short(low)} to {_short(high)}" if high > low else _short(low)


def _short(value: float) -> str:
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.3g}"


def slices(score: Floats, exposure: Floats) -> Iterator[tuple[str, Mask]]:
    """Standard slices: all items, fifths of score and of exposure, and exposure >= 50."""
    yield "all items", np.ones(len(score), dtype=bool)
    yield f"exposure >= {MANY_TRIALS}", exposure >= MANY_TRIALS
    yield from fifths("score", score)
    yield from fifths("exposure", exposure)
