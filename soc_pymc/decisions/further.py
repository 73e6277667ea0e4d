"""Values of a further outcome of items, before it is made, under mixtures of any family."""

import numpy as np
from scipy.optimize import elementwise

from .._lib.arrays import Floats
from ..families.family import Family
from ..families.rows import Pair
from ..posterior.item_columns import ThetaMixture

_GRID = 256  # further outcomes that stand for all
_REACH = 8.0  # extent of the grid beyond the components, in sd
_FAR = 40.0  # predictive sd beyond which no further value comes
_SINGLE = 128  # counts summed one by one
# numbers in an array of components x outcomes x items
_AT_ONCE = 2_000_000
_FAINT = 1e-10  # components of less weight do not widen the grid
_NODE, _SHARE = (
    values[:, None] for values in np.polynomial.legendre.leggauss(_GRID - _SINGLE)
)


def expected_variance(family: Family, theta: ThetaMixture, size: Floats) -> Floats:
    """Return E Var(theta | t, y, y') over further outcomes y' of a size, (n,)."""
    assert theta.weight is not None
    expected = np.empty(len(size))
    size = _possible(family, size)
    step = max(1, _AT_ONCE // (_GRID * len(theta.weight)))
    for start in range(0, len(size), step):
        part = slice(start, start + step)
        weight, a, b = (x[:, part] for x in (theta.weight, theta.a, theta.b))
        y, width = _outcomes(family, weight, a, b, size[part])
        a = a[:, None]
        b = b[:, None]
        log_density = family.further_log_density(y, size[part], a, b)
        p, log_all = _normalised(log_density, weight[:, None])
        after = family.update(a, b, y, size[part])
        means = family.mean(*after)
        mean = (p * means).sum(axis=0)
        variance = (p * (family.variance(*after) + (means - mean) ** 2)).sum(axis=0)
        mass = width * np.exp(log_all - log_all.max(axis=0))
        expected[part] = (mass * variance).sum(axis=0) / mass.sum(axis=0)
    return expected


def value_of_outcome(
    family: Family, theta: ThetaMixture, coarse: ThetaMixture, size: Floats, cut: Floats
) -> Floats:
    """Return the expected value of a choice at `cut` with a further outcome less that without.

    Members of `coarse`, fewer than those of theta, find the outcome that turns the choice.
    """
    # E(theta | t, y, y') rises with y' under any prior: an item is chosen from a cut-off on
    size = _possible(family, size)
    above = theta.average(family.mean(theta.a, theta.b)) > cut
    least = _cut_off(family, coarse, size, cut)
    if_above, if_not = family.gained(least, size, theta.a, theta.b, cut)
    gained = np.where(above, if_above, if_not)
    return np.maximum(theta.average(gained), 0.0)


def _possible(family: Family, size: Floats) -> Floats:
    return np.rint(size) if family.outcome.validity.size.whole else size


def _cut_off(family: Family, theta: ThetaMixture, size: Floats, cut: Floats) -> Floats:
    """Least further outcome with E(theta | y, y') above the cut, or one beyond all."""
    outcome = family.outcome
    weight = np.ones_like(theta.a) if theta.weight is None else theta.weight
    mean, sd, tail = family.outcome_moments(theta.a, theta.b, size)
    low = (mean - _FAR * sd).min(axis=0)
    high = (mean + _FAR * sd + tail).max(axis=0)
    if outcome.whole:
        most = size if outcome.validity.size.whole else np.inf
        low = np.zeros_like(low)
        high = np.minimum(np.ceil(high), most)

    def gap(y: Floats, item: Floats) -> Floats:
        i = item.astype(int)
        a = theta.a[:, i]
        b = theta.b[:, i]
        log_density = family.further_log_density(y, size[i], a, b)
        means = family.mean(*family.update(a, b, y, size[i]))
        p, _ = _normalised(log_density, weight[:, i])
        return (p * (means - cut[i])).sum(axis=0)

    with np.errstate(invalid="ignore", over="ignore"):
        root = elementwise.find_root(gap, (low, high), args=(np.arange(len(cut)),))
    end = np.where(root.f_bracket[0] > 0.0, low, high + 1.0)
    least = np.where(root.success, root.x, end)
    return np.ceil(least) if outcome.whole else np.asarray(least)


def _normalised(log_density: Floats, weight: Floats) -> tuple[Floats, Floats]:
    """Weights of components (K, ...) given an outcome, and the log of its mixed density."""
    with np.errstate(divide="ignore"):  # components of weight 0
        log_p = log_density + np.log(weight)
    top = log_p.max(axis=0)
    p = np.exp(log_p - top)
    total = p.sum(axis=0)
    return p / total, top + np.log(total)


def _outcomes(
    family: Family, weight: Floats, a: Floats, b: Floats, size: Floats
) -> Pair:
    """Outcomes that stand for all, and their widths, (outcomes, n) or fewer."""
    if not family.outcome.validity.size.whole:
        return _grid(family, weight, a, b, size)
    # of successes and failures the rarer are counted: the grid is finer near 0
    swap = (weight * family.mean(a, b)).sum(axis=0) > 0.5
    parameters = np.where(swap, b, a), np.where(swap, a, b)
    count, width = _grid(family, weight, *parameters, size, most=size)
    # those beyond the grid's end have no weight
    count = np.minimum(count, size)
    return np.where(swap, size - count, count), width


def _grid(
    family: Family, weight: Floats, a: Floats, b: Floats, size: Floats, *,
    most: Floats | float = np.inf,
) -> Pair:  # fmt: skip
    mean, sd, tail = family.outcome_moments(a, b, size)
    counts = weight > _FAINT
    low = np.where(counts, mean - _REACH * sd, np.inf).min(axis=0)
    high = np.where(counts, mean + _REACH * sd + tail, -np.inf).max(axis=0)
    if family.outcome.whole:
        low = np.floor(np.maximum(low, 0.0))
        return _count_grid(low, np.ceil(np.minimum(high, most)))
    return low + (high - low) * np.linspace(0.0, 1.0, _GRID)[:, None], np.ones(1)


def _count_grid(low: Floats, high: Floats) -> Pair:
    """Counts from `low` to `high`, then Gauss nodes of their root, with weights (outcomes, n)."""
    single = np.arange(_SINGLE)[:, None]
    short = high - low < _SINGLE
    begin = np.sqrt(low + _SINGLE - 0.5)
    end = np.sqrt(np.maximum(high, low + _SINGLE))
    half = np.where(short, 0.0, 0.5 * (end - begin))
    root = begin + half * (1.0 + _NODE)
    width = (low + single <= high).astype(float)
    # the slope half a step beyond the last count, by a parabola through the last three
    width[-3:] += np.where(short, 0.0, np.array([[1.0], [-3.0], [2.0]]) / 24.0)
    of_nodes = 2.0 * root * half * _SHARE
    return np.vstack([low + single, root**2]), np.vstack([width, of_nodes])
