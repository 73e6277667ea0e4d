"""Decisions on many items together, which share the curves: rankings and totals.

Each joint draw takes one draw of the curves for all items. Its random numbers belong to blocks of
512 items, draw by draw, so that they depend neither on the number of processors nor on that of the
draws.
"""

from collections.abc import Sequence
from operator import methodcaller

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike

from .._lib import arguments as rules
from .._lib.arguments import SEED, OrNone, Real, Whole, checked, shown, switch
from .._lib.arrays import Floats, Ints
from .._lib.errors import FitError
from .._lib.progress import Phase, phase
from .._lib.threads import ordered_map
from ..checks.observations import parts, summed
from ..checks.pit import ALL
from ..data.items import Items, check_outcomes
from ..families.family import NEAR_ZERO
from ..families.outcomes import OUTCOMES
from ..inference.results import Fit
from ..posterior.item_columns import select
from ..posterior.items import probabilities
from ..prior_table import quantile_name
from .choices import DecisionItems, read_decision

_BLOCK = 512  # items that share random numbers
_MOST = 1024  # draws of a block of items that are made at once
_HELD = 4_000_000  # draws of items that are ranked at once
_SCREENING = 100  # draws that screen items
_NEGLIGIBLE = 1e-3  # probability, as a share of k, of the items that screening leaves out
_TOTALS = 1_000_000  # numbers in one array of draws x totals
_DRAWS = 20_000  # joint draws for totals of few items
_FEW = 10  # items from which on the cumulants give the shape
_MISSING = "missing"  # label of the total of items without a label
_CLOSE = 1e-7  # error of quantiles, as a share of the range that they lie in


# --- joint draws ---------------------------------------------------------------------------------


class _Block:
    """Items whose next draws come from random numbers of their own."""

    def __init__(self, items: DecisionItems, number: int, seed: int) -> None:
        self._columns = select(items.columns, slice(number * _BLOCK, (number + 1) * _BLOCK))
        self._posterior, self._n = items.posterior, len(self._columns["score"])
        self._rngs = tuple(np.random.default_rng([seed, stream, number]) for stream in range(3))

    def draw(self, curves: Ints) -> tuple[Floats, Floats, Floats]:
        """Return draws on the scale of the family, (draws, n), and theta's parameters."""
        uniform = self._rngs[0].random((len(curves), self._n))
        a, b = self._posterior.theta_given(self._columns, curves, uniform)
        return self._posterior.family.draw(a, b, self._rngs[1:]), a, b


def _curve_numbers(total: int, draws: int, seed: int) -> Ints:
    """Return the curve draw that each joint draw uses: all in random order, over and over."""
    rounds = -(-draws // total)
    orders = (np.random.default_rng([seed, i]).permutation(total) for i in range(rounds))
    return np.concatenate(list(orders))[:draws]


def _joint_draws(
    items: DecisionItems, curves: Ints, seed: int, progress: bool | None = False
) -> Floats:
    """Return draws of theta of all items, (draws, n), under the draws `curves` of the curves."""
    number, least = len(curves), NEAR_ZERO if items.fit.prior.zero else 0.0
    theta = np.empty((number, len(items)))

    def draw(part: slice) -> None:
        block = _Block(items, part.start // _BLOCK, seed)
        for start in range(0, number, _MOST):
            rows = slice(start, start + _MOST)
            natural = items.posterior.family.natural(block.draw(curves[rows])[0])
            theta[rows, part] = np.where(np.abs(natural) < least, 0.0, natural)

    for _ in ordered_map(draw, parts("joint draws", len(items), _BLOCK, progress)):
        pass
    return theta


# --- rankings ------------------------------------------------------------------------------------


@checked(draws=rules.DRAWS, seed=SEED)
def thompson_draws(
    fit: Fit, items: Items, draws: int = 1, *, seed: int = 0, progress: bool | None = None
) -> xr.DataArray:
    """Draw theta of every item given score and outcome, for Thompson sampling.

    Choosing the items with the largest theta of a draw, one draw a round, chooses each with the
    probability that it is the best.

    Parameters
    ----------
    fit, items, progress
        As in `probability_above`, with the same errors.
    draws, seed
        Number of draws, and seed: take another seed each round. Fewer draws are the first of more.

    Returns
    -------
    xarray.DataArray
        ``theta`` (draw, item) in the unit of theta, with coordinates ``item`` (as the index of
        `probability_above`) and ``curve``, the draw of the curves that all items of a draw share.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> theta = soc.decisions.thompson_draws(fit, items, 3, seed=1)
    >>> dict(theta.sizes), bool((theta > 0).all())
    ({'draw': 3, 'item': 4000}, True)
    """
    decision = read_decision(fit, items, progress)
    what = f"{draws:,} draws of {len(decision):,} items"
    rules.refuse_beyond_memory(8.0 * draws * len(decision), what, "ask for fewer of one of them")
    curves = _curve_numbers(decision.draws, draws, seed)
    theta = _joint_draws(decision, curves, seed, progress)
    coords = {
        "draw": np.arange(draws),
        "curve": ("draw", curves),
        "item": decision.index.to_numpy(),
    }
    return xr.DataArray(theta, coords, ("draw", "item"), name="theta")


@checked(k=Whole(1), draws=Whole(2, rules.MOST_DRAWS), seed=SEED)
def probability_best(
    fit: Fit,
    items: Items,
    k: int = 1,
    *,
    draws: int = 4000,
    seed: int = 0,
    progress: bool | None = None,
) -> pd.DataFrame:
    """Return the probability of every item to be among the k with the largest theta.

    It is a mean over draws of P(theta_i > T_i), where T_i is the k-th largest theta of the others,
    moved to the sum k. Items of negligible probabilities, which add up to about k / 1000, get 0.

    Parameters
    ----------
    fit, items, seed, progress
        As in `thompson_draws`, with the same errors; items are ranked among themselves.
    k, draws
        Size of the top, at least 1; and number of joint draws of all items, at least 2.

    Returns
    -------
    pandas.DataFrame
        ``probability``, whose sum is k, and ``error``, its Monte Carlo standard error: at most
        0.5 / sqrt(draws). Indexed as in `probability_above`.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> top = soc.decisions.probability_best(fit, items, 10, draws=200)
    >>> float(top["probability"].sum().round(3))
    10.0
    """
    decision = read_decision(fit, items, progress)
    if k >= len(decision):
        return pd.DataFrame({"probability": 1.0, "error": 0.0}, index=decision.index)
    curves = _curve_numbers(decision.draws, draws, seed)
    with phase("candidates", enabled=False) as bar:
        screened, _ = _top(decision, k, seed, curves[:_SCREENING], bar)
    order = np.argsort(screened, kind="stable")
    candidates = np.sort(order[np.cumsum(screened[order]) > _NEGLIGIBLE * k])
    answer, total = np.zeros((2, len(decision))), draws * len(candidates)
    with phase("probability of being best", total=total, unit="draws", enabled=progress) as bar:
        answer[:, candidates] = _top(decision.rows(candidates), k, seed, curves, bar)
    return pd.DataFrame(answer.T, decision.index, ["probability", "error"])


def _top(
    items: DecisionItems, size: int, seed: int, curves: Ints, bar: Phase
) -> tuple[Floats, Floats]:
    """Return probabilities to be among the `size` largest, which sum to it, and their errors."""
    n, number = len(items), len(curves)
    blocks = [_Block(items, block, seed) for block in range(-(-n // _BLOCK))]
    sums = np.zeros((2, n))  # probabilities and their squares
    step = max(1, _HELD // n)
    for start in range(0, number, step):
        drawings = ordered_map(methodcaller("draw", curves[start : start + step]), blocks)
        drawn, a, b = (np.hstack(arrays) for arrays in zip(*drawings, strict=True))
        # the k-th largest of the others: of an item among the k, it is the one that follows
        order = np.partition(drawn, [n - size - 1, n - size], axis=1)
        following, last = order[:, [n - size - 1]], order[:, [n - size]]
        rivals = np.where(drawn >= last, following, last)
        probability = items.posterior.family.above_drawn(rivals, a, b)
        sums += probability.sum(axis=0), (probability**2).sum(axis=0)
        bar.advance(probability.size)
    mean = sums[0] / number
    error = np.sqrt(np.maximum(sums[1] / number - mean**2, 0.0) / (number - 1))
    # the sum is known: what is uncertain takes up the difference
    unsure = mean * (1.0 - mean)
    return mean + (size - mean.sum()) * unsure / max(unsure.sum(), 1e-300), error


# --- totals --------------------------------------------------------------------------------------
# Given a draw of the curves the items are independent, so the cumulants of a sum are sums of the
# items' cumulants: w E(theta), w^2 Var(theta) and w^3 E[(theta - E(theta))^3]. Given the draw the
# total has the Pearson type III distribution (a shifted Gamma) with these; over the draws, which
# all items share, it is their equal mixture.


@checked(items=check_outcomes, mean=switch, threshold=OrNone(Real()))
def total(
    fit: Fit,
    items: Items,
    *,
    weights: str | ArrayLike | None = None,
    by: str | ArrayLike | None = None,
    mean: bool = False,
    quantiles: Sequence[float] = (0.05, 0.95),
    threshold: float | None = None,
    progress: bool | None = None,
) -> pd.DataFrame:
    """Return the posterior of the sum of theta over items, weighted and by group if wanted.

    The items share the uncertainty of the curves, which does not average out. A total of items that
    were chosen by their posteriors needs no correction for the choice.

    Parameters
    ----------
    fit, items, progress
        As in `probability_above`.
    weights
        ``"exposure"`` (of successes ``"trials"`` too), the name of another column of numbers, or
        one number for each item: the total is the sum of weight times theta. None counts items.
    by, mean
        Name of a column of labels, or one label for each item: one total for each label. And
        whether to divide by the sum of the weights, which then must be >= 0 and not all 0.
    quantiles, threshold
        Probabilities of the quantile columns; and a number in the unit of the total, or None.

    Returns
    -------
    pandas.DataFrame
        One row for each label, sorted, or the row ``"all items"``: the number of ``items``;
        ``mean`` and ``sd`` of the total, which are exact; ``sd_curves``, the part of the sd that
        comes from the curves; quantiles such as ``q05`` and ``q97_5``, within about 0.02 sd; with
        `threshold` also ``probability_above``.

    Raises
    ------
    ItemsError, FitError
        If the items are not valid or not of the fit's kind, or have no such column; if weights or
        labels are not as many as items, or an argument is out of its range.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> clicks = soc.decisions.total(fit, items, weights="exposure")
    >>> list(clicks.columns)
    ['items', 'mean', 'sd', 'sd_curves', 'q05', 'q95']
    """
    probs, outcome = probabilities(quantiles), OUTCOMES[items.kind]
    if isinstance(weights, str) and weights in ("exposure", outcome.size) and outcome.sizes_add:
        weights = items.roles[outcome.size]
    columns = [column for column in (weights, by) if isinstance(column, str)]
    decision = read_decision(fit, items, progress, columns)
    weight, (code, labels) = _weights(decision, weights), _labels(decision, by)
    if mean:
        weight = _normalised(weight, code, labels)
    sizes, order = np.bincount(code, minlength=len(labels)), np.argsort(code, kind="stable")
    at_once, blocks = max(1, _TOTALS // max(decision.draws, _DRAWS)), []
    ends = np.append(0, np.cumsum(sizes))
    for totals in parts("totals", len(sizes), at_once, progress, "totals"):
        part = order[ends[totals.start] : ends[totals.stop]]
        rows = decision.rows(part)
        blocks.append(_distributions(rows, weight[part], sizes[totals], probs, threshold))
    names = [quantile_name(p).removeprefix("theta_") for p in probs]
    names = ["mean", "sd", "sd_curves", *names, "probability_above"][: len(blocks[0])]
    table = pd.DataFrame(np.hstack(blocks).T, labels, names)
    table.insert(0, "items", sizes)
    return table


def _weights(decision: DecisionItems, weights: str | ArrayLike | None) -> Floats:
    """Return finite weights of all items."""
    if weights is None:
        return np.ones(len(decision))
    if isinstance(weights, str) and decision.labels[weights].dtype.kind not in "iuf":
        raise FitError(f"weights={weights!r} must be the name of a column of numbers")
    values = decision.labels[weights] if isinstance(weights, str) else weights
    name = f"weights={weights!r}" if isinstance(weights, str) else "weights"
    return decision.numbers(values, name, per_item=True)


def _labels(decision: DecisionItems, by: str | ArrayLike | None) -> tuple[Ints, pd.Index]:
    """Return the number of each item's total, and the labels of the totals."""
    n = len(decision)
    if by is None:
        return np.zeros(n, dtype=np.int64), pd.Index([ALL])
    values = decision.labels[by] if isinstance(by, str) else by
    try:
        code, labels = pd.factorize(pd.Series(values), sort=True, use_na_sentinel=False)
    except (TypeError, ValueError):  # of lists in a list, and of tables
        code, labels = np.empty(0, dtype=np.int64), pd.Index([])
    if len(code) != n:
        raise FitError(
            f"by={shown(by)} must be the name of a column, or one label for each of {n:,} items"
        )
    if labels.hasnans:
        labels = labels.astype(object).fillna(_MISSING)
    name = by if isinstance(by, str) else getattr(by, "name", None)
    return code.astype(np.int64), pd.Index(labels, name=name)


def _normalised(weight: Floats, code: Ints, labels: pd.Index) -> Floats:
    """Return weights that add up to 1 in each total, as means need them."""
    sums, negative = np.bincount(code, weight, len(labels)), (weight < 0.0).sum()
    if negative:
        raise FitError(
            f"a mean needs weights >= 0, and {negative:,} of {len(weight):,} are below 0"
        )
    if not (sums > 0.0).all():
        label = labels[int(np.argmin(sums))]
        raise FitError(f"a mean needs a weight > 0, and all weights of {label!r} are 0")
    return weight / sums[code]


def _distributions(
    items: DecisionItems, weight: Floats, sizes: Ints, probs: Sequence[float], cut: float | None
) -> Floats:
    """Return mean, sd, sd from the curves, quantiles and P(total > cut) as rows, (rows, totals).

    Items are sorted by total, `sizes` of each.
    """
    code = np.repeat(np.arange(len(sizes)), sizes)

    def moments(rows: slice) -> list[Floats]:
        by_item = items.posterior.moments(select(items.columns, rows))
        return [m * weight[rows] ** r for r, m in enumerate(by_item)]

    mean, variance, third = summed(items.fit, weight, code, len(sizes), moments)
    shared = mean.var(axis=0)
    rows = [mean.mean(axis=0), np.sqrt(shared + variance.mean(axis=0)), np.sqrt(shared)]
    cumulants = np.stack([mean, variance, third])
    rows += [_quantile(cumulants, prob) for prob in probs]
    if cut is not None:
        rows.append(1.0 - _below(cumulants, cut))
    # the shape of totals of few items comes from draws, unless they are Normal
    few = (sizes < _FEW) & (items.fit.prior.mixture or third.any(axis=0))
    if few.any():
        chosen = np.flatnonzero(few[code])
        theta = _joint_draws(items.rows(chosen), _curve_numbers(items.draws, _DRAWS, 0), 0)
        starts = np.flatnonzero(np.diff(code[chosen], prepend=-1))
        drawn = np.add.reduceat(theta * weight[chosen], starts, axis=1)
        for row, prob in zip(rows[3:], probs, strict=False):
            row[few] = np.quantile(drawn, prob, axis=0)
        if cut is not None:
            rows[-1][few] = (drawn > cut).mean(axis=0)
    return np.vstack(rows)


def _below(cumulants: Floats, cut: Floats | float) -> Floats:
    """Return P(total <= cut) of each total, averaged over the draws."""
    from scipy.stats import pearson3

    mean, variance, third = cumulants
    certain = variance <= 0.0  # all weights are 0
    scale = np.sqrt(np.where(certain, 1.0, variance))
    share = np.where(certain, mean <= cut, pearson3.cdf((cut - mean) / scale, third / scale**3))
    return np.asarray(share.mean(axis=0))


def _quantile(cumulants: Floats, prob: float) -> Floats:
    """Return the quantile of each total."""
    from scipy.optimize.elementwise import find_root

    # Bernstein's bounds: in both tails a shifted Gamma's quantile lies between these
    mean, variance, third = cumulants
    scale = np.abs(third) / np.where(variance > 0.0, 2.0 * variance, 1.0)
    tails = -np.log(prob), -np.log1p(-prob)
    below, over = (np.sqrt(2.0 * variance * tail) + scale * tail for tail in tails)
    low = (mean - below).min(axis=0)
    width = (mean + over).max(axis=0) - low

    def excess(place: Floats, total: Ints) -> Floats:
        return _below(cumulants[:, :, total], low[total] + place * width[total]) - prob

    ends = np.zeros(len(low)), np.ones(len(low))
    root = find_root(excess, ends, args=(np.arange(len(low)),), tolerances={"xatol": _CLOSE})
    return np.where(width > 0.0, low + root.x * width, low)
