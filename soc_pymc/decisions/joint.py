"""Decisions on many items together, which share the curves: rankings and totals.

Each joint draw takes one draw of the curves for all items. Random numbers belong to blocks of 512
items, draw by draw, so that they depend neither on the processors nor on the number of draws.
"""

from collections.abc import Sequence
from operator import methodcaller

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike
from scipy.optimize.elementwise import find_root

from .._lib.arguments import (
    DRAWS,
    MOST_DRAWS,
    SEED,
    OrNone,
    Real,
    Whole,
    refuse_beyond_memory,
    shown,
    switch,
)
from .._lib.arrays import Floats, Ints, Pair
from .._lib.errors import FitError
from .._lib.laws import pearson3_cdf, pearson3_quantile
from .._lib.work import ordered_map, parts, with_progress
from ..checks.findings import ALL
from ..data.items import Items, check_outcomes
from ..families.mixtures import NEAR_ZERO
from ..fits.fit import Fit
from ..posterior.item_columns import select, summed
from ..posterior.scoring import probabilities
from ..prior_table import quantile_name
from .choices import DecisionItems, read_decision

_BLOCK = 512  # items that share random numbers
_MOST = 1024  # draws of a block of items that are made at once
_HELD = 4_000_000  # draws of items that are ranked at once
_SCREENING = 100  # draws that screen items
# probability, as a share of k, of the items that screening leaves out
_NEGLIGIBLE = 1e-3
_TOTALS = 50  # totals at once
_DRAWS = 20_000  # joint draws for totals of few items
_FEW = 10  # items from which on the cumulants give the shape
_MISSING = "missing"  # label of the total of items without a label
_EXACT = 1e-11  # error of a quantile's probability
_CLOSE = 1e-7  # widening of the range that holds a quantile, in sds


class _Block:
    """Items whose next draws come from random numbers of their own."""

    def __init__(self, items: DecisionItems, number: int, seed: int) -> None:
        self._columns = select(
            items.columns, slice(number * _BLOCK, (number + 1) * _BLOCK)
        )
        self._posterior = items.posterior
        self._n = len(self._columns["score"])
        self._rngs = tuple(
            np.random.default_rng([seed, stream, number]) for stream in range(3)
        )

    def draw(self, curves: Ints) -> tuple[Floats, Floats, Floats]:
        """Return draws on the scale of the family, (draws, n), and theta's parameters."""
        uniform = self._rngs[0].random((len(curves), self._n))
        a, b = self._posterior.theta_given(self._columns, curves, uniform)
        return self._posterior.family.draw(a, b, self._rngs[1:]), a, b


def _curve_numbers(total: int, draws: int, seed: int) -> Ints:
    """Return the draw of `total` curves that each joint draw uses: all in random order, again."""
    rounds = range(-(-draws // total))
    orders = [np.random.default_rng([seed, i]).permutation(total) for i in rounds]
    return np.concatenate(orders)[:draws]


def _joint_draws(
    items: DecisionItems, number: int, seed: int, title: str = ""
) -> tuple[Floats, Ints]:
    """Return draws of theta of all items, (draws, n), and the draws of the curves they use."""
    theta = np.empty((number, len(items)))
    least = NEAR_ZERO if items.posterior.prior.zero else 0.0
    curves = _curve_numbers(items.posterior.curves.number, number, seed)

    def draw(part: slice) -> None:
        block = _Block(items, part.start // _BLOCK, seed)
        for start in range(0, number, _MOST):
            rows = slice(start, start + _MOST)
            natural = items.posterior.family.natural(block.draw(curves[rows])[0])
            theta[rows, part] = np.where(np.abs(natural) < least, 0.0, natural)

    for _ in ordered_map(draw, parts(title, len(items), _BLOCK)):
        pass
    return theta, curves


@with_progress
def thompson_draws(
    fit: Fit,
    items: Items,
    draws: int = 1,
    *,
    seed: int = 0,
    progress: bool | None = None,
) -> xr.DataArray:
    """Draw theta of every item given score and outcome, for Thompson sampling.

    The item with the largest theta of a draw is each item with the probability that it is the best.

    Parameters
    ----------
    fit : Fit
        The fit.
    items : PoissonItems, NormalItems or BinomialItems
        As in `probability_above`.
    draws : int
        Number of draws. Fewer draws are the first of more.
    seed : int
        Seed of the draws: take another one each round.
    progress : bool or None
        Whether to show progress.

    Returns
    -------
    xarray.DataArray
        ``theta`` (draw, item), with coordinates ``item`` (as the index of `probability_above`) and
        ``curve``, the draw of the curves that all items share.

    Raises
    ------
    ItemsError, FitError
        As in `probability_above`.

    References
    ----------
    .. [1] Thompson (1933), On the likelihood that one unknown probability exceeds another,
       Biometrika 25, 285-294.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> theta = soc.decisions.thompson_draws(fit, items, 3, seed=1)
    >>> dict(theta.sizes), bool((theta > 0).all())
    ({'draw': 3, 'item': 4000}, True)
    """
    draws = DRAWS(draws, "draws")
    seed = SEED(seed, "seed")
    decision = read_decision(fit, items)
    what = f"{draws:,} draws of {len(decision):,} items"
    refuse_beyond_memory(
        8.0 * draws * len(decision), what, "ask for fewer of one of them"
    )
    theta, curves = _joint_draws(decision, draws, seed, "joint draws")
    index = decision.index.to_numpy()
    coords = {"draw": np.arange(draws), "curve": ("draw", curves), "item": index}
    return xr.DataArray(theta, coords, ("draw", "item"), name="theta")


@with_progress
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

    It is a mean over draws of P(theta_i > T_i), where T_i is the k-th largest theta of the others.
    Items of negligible probabilities, which add up to about k / 1000, get 0.

    Parameters
    ----------
    fit : Fit
        The fit.
    items : PoissonItems, NormalItems or BinomialItems
        Items of the fit's kind, which are ranked among themselves.
    k : int
        Size of the top, at least 1.
    draws : int
        Number of joint draws, at least 2.
    seed : int
        Seed of the draws.
    progress : bool or None
        Whether to show progress.

    Returns
    -------
    pandas.DataFrame
        ``probability``, whose sum is k, and ``error``, its Monte Carlo standard error: at most
        0.5 / sqrt(draws). Indexed as in `probability_above`.

    Raises
    ------
    ItemsError, FitError
        As in `probability_above`.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> top = soc.decisions.probability_best(fit, items, 10, draws=200)
    >>> float(top["probability"].sum().round(3))
    10.0
    """
    k = Whole(1)(k, "k")
    draws = Whole(2, MOST_DRAWS)(draws, "draws")
    seed = SEED(seed, "seed")
    decision = read_decision(fit, items)
    if k >= len(decision):
        return pd.DataFrame({"probability": 1.0, "error": 0.0}, index=decision.index)
    curves = _curve_numbers(decision.posterior.curves.number, draws, seed)
    screened, _ = _top(decision, k, seed, curves[:_SCREENING])
    order = np.argsort(screened, kind="stable")
    candidates = np.sort(order[np.cumsum(screened[order]) > _NEGLIGIBLE * k])
    answer = np.zeros((2, len(decision)))
    answer[:, candidates] = _top(decision.subset(candidates), k, seed, curves)
    return pd.DataFrame(answer.T, decision.index, ["probability", "error"])


def _top(items: DecisionItems, size: int, seed: int, curves: Ints) -> Pair:
    """Return probabilities to be among the `size` largest, which sum to it, and their errors."""
    n = len(items)
    number = len(curves)
    blocks = [_Block(items, block, seed) for block in range(-(-n // _BLOCK))]
    # of probabilities and of their squares
    sums = np.zeros((2, n))
    step = max(1, _HELD // n)
    for rows in parts("probability of being best", number, step, "draws"):
        drawings = ordered_map(methodcaller("draw", curves[rows]), blocks)
        drawn, a, b = (np.hstack(arrays) for arrays in zip(*drawings, strict=True))
        # the k-th largest of the others: of an item among the k, it is the one that follows
        order = np.partition(drawn, [n - size - 1, n - size], axis=1)
        following = order[:, [n - size - 1]]
        last = order[:, [n - size]]
        rivals = np.where(drawn >= last, following, last)
        probability = items.posterior.family.above_place(rivals, a, b)
        sums += probability.sum(axis=0), (probability**2).sum(axis=0)
    mean = sums[0] / number
    error = np.sqrt(np.maximum(sums[1] / number - mean**2, 0.0) / (number - 1))
    # the sum is known: what is uncertain takes up the difference
    unsure = mean * (1.0 - mean)
    return mean + (size - mean.sum()) * unsure / max(unsure.sum(), 1e-300), error


# --- totals --------------------------------------------------------------------------------------
# Given a draw of the curves items are independent, so that their first three cumulants add up. The
# total has the Pearson type III distribution (a shifted Gamma) with these; over the draws, which
# all items share, it is an equal mixture.


@with_progress
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
    fit : Fit
        The fit.
    items : PoissonItems, NormalItems or BinomialItems
        As in `probability_above`.
    weights : str, array_like of shape (n,), or None
        ``"exposure"`` (of successes ``"trials"`` too), another column of numbers, or a number for
        each item: the total is the sum of weight times theta. None counts items.
    by : str, array_like of shape (n,), or None
        Column of labels, or a label for each item: one total for each label.
    mean : bool
        Whether to divide by the sum of the weights, which then must be >= 0 and not all 0.
    quantiles : Sequence[float]
        Probabilities of the quantile columns.
    threshold : float or None
        A number in the unit of the total.
    progress : bool or None
        Whether to show progress.

    Returns
    -------
    pandas.DataFrame
        One row for each label, sorted, or the row ``"all items"``: the number of ``items``; exact
        ``mean`` and ``sd`` of the total; ``sd_curves``, the part of the sd that comes from the
        curves; quantiles such as ``q05`` and ``q97_5``, within about 0.02 sd; with `threshold` also
        ``probability_above``.

    Raises
    ------
    ItemsError, FitError
        As in `probability_above`.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> clicks = soc.decisions.total(fit, items, weights="exposure")
    >>> list(clicks.columns)
    ['items', 'mean', 'sd', 'sd_curves', 'q05', 'q95']
    """
    items = check_outcomes(items, "items")
    mean = switch(mean, "mean")
    threshold = OrNone(Real())(threshold, "threshold")
    probs = probabilities(quantiles)
    outcome = items.outcome
    sizes = ("exposure", outcome.size) if outcome.sizes_add else ()
    if isinstance(weights, str) and weights in sizes:
        weights = items.roles[outcome.size]
    columns = [column for column in (weights, by) if isinstance(column, str)]
    decision = read_decision(fit, items, columns)
    weight = _weights(decision, weights)
    code, labels = _totals_of_items(decision, by)
    if mean:
        weight = _weights_of_means(weight, code, labels)
    number = np.bincount(code, minlength=len(labels))
    order = np.argsort(code, kind="stable")
    ends = np.append(0, np.cumsum(number))
    blocks = []
    for totals in parts("totals", len(number), _TOTALS, "totals"):
        chosen = order[ends[totals.start] : ends[totals.stop]]
        part = decision.subset(chosen), weight[chosen], number[totals]
        blocks.append(_distributions(*part, probs, threshold))
    names = [quantile_name(p).removeprefix("theta_") for p in probs]
    names = ["mean", "sd", "sd_curves", *names, "probability_above"][: len(blocks[0])]
    table = pd.DataFrame(np.hstack(blocks).T, labels, names)
    table.insert(0, "items", number)
    return table


def _weights(decision: DecisionItems, weights: str | ArrayLike | None) -> Floats:
    """Return finite weights of all items."""
    if weights is None:
        return np.ones(len(decision))
    if not isinstance(weights, str):
        return decision.numbers(weights, "weights")
    if decision.labels[weights].dtype.kind not in "iuf":
        raise FitError(f"weights={weights!r} must be the name of a column of numbers")
    return decision.numbers(decision.labels[weights], f"weights={weights!r}")


def _totals_of_items(
    decision: DecisionItems, by: str | ArrayLike | None
) -> tuple[Ints, pd.Index]:
    """Return the number of each item's total, and the labels of the totals."""
    n = len(decision)
    if by is None:
        return np.zeros(n, dtype=np.int64), pd.Index([ALL])
    values = decision.labels[by] if isinstance(by, str) else by
    try:
        code, labels = pd.factorize(pd.Series(values), sort=True, use_na_sentinel=False)
    except (TypeError, ValueError):  # of lists in a list, and of tables
        code = np.empty(0, dtype=np.int64)
        labels = pd.Index([])
    if len(code) != n:
        need = f"the name of a column, or one label for each of {n:,} items"
        raise FitError(f"by={shown(by)} must be {need}")
    if labels.hasnans:
        labels = labels.astype(object).fillna(_MISSING)
    name = by if isinstance(by, str) else getattr(by, "name", None)
    return code.astype(np.int64), pd.Index(labels, name=name)


def _weights_of_means(weight: Floats, code: Ints, labels: pd.Index) -> Floats:
    """Return weights that add up to 1 in each total, as means need them."""
    if negative := int((weight < 0.0).sum()):
        counts = f"{negative:,} of {len(weight):,}"
        raise FitError(f"a mean needs weights >= 0, and {counts} are below 0")
    sums = np.bincount(code, weight, len(labels))
    if not (sums > 0.0).all():
        label = labels[int(np.argmin(sums))]
        raise FitError(f"a mean needs a weight > 0, and all weights of {label!r} are 0")
    return weight / sums[code]


def _distributions(
    items: DecisionItems,
    weight: Floats,
    sizes: Ints,
    probs: Sequence[float],
    cut: float | None,
) -> Floats:
    """Return mean, sd, sd from the curves, quantiles and P(total > cut), (rows, totals)."""
    code = np.repeat(np.arange(len(sizes)), sizes)

    def moments(rows: slice) -> list[Floats]:
        by_item = items.posterior.moments(select(items.columns, rows))
        return [m * weight[rows] ** r for r, m in enumerate(by_item)]

    mean, variance, third = summed(
        items.posterior.curves, weight, code, len(sizes), moments
    )
    shared = mean.var(axis=0)
    sd = np.sqrt(variance)
    rows = [mean.mean(axis=0), np.sqrt(shared + variance.mean(axis=0)), np.sqrt(shared)]
    skew = np.divide(third, sd**3, out=np.zeros(sd.shape), where=sd > 0.0)
    law = np.stack([mean, sd, skew])
    rows += [_quantile(law, prob) for prob in probs]
    if cut is not None:
        rows.append(1.0 - _below(law, cut))
    # the shape of totals of few items comes from draws, unless they are Normal
    few = (sizes < _FEW) & (items.posterior.prior.mixture or third.any(axis=0))
    if few.any():
        chosen = np.flatnonzero(few[code])
        theta, _ = _joint_draws(items.subset(chosen), _DRAWS, 0)
        starts = np.flatnonzero(np.diff(code[chosen], prepend=-1))
        drawn = np.add.reduceat(theta * weight[chosen], starts, axis=1)
        for row, prob in zip(rows[3:], probs, strict=False):
            row[few] = np.quantile(drawn, prob, axis=0)
        if cut is not None:
            rows[-1][few] = (drawn > cut).mean(axis=0)
    return np.vstack(rows)


def _below(law: Floats, cut: Floats | float) -> Floats:
    """Return P(total <= cut) of each total, averaged over the draws of mean, sd and skewness."""
    mean, sd, skew = law
    certain = sd <= 0.0  # all weights are 0
    z = (cut - mean) / np.where(certain, 1.0, sd)
    return np.where(certain, mean <= cut, pearson3_cdf(z, skew)).mean(axis=0)


def _quantile(law: Floats, prob: float) -> Floats:
    """Return the quantile of each total, between those given single draws."""
    mean, sd, skew = law
    by_draw = mean + sd * pearson3_quantile(prob, skew)
    margin = _CLOSE * sd.max(axis=0)
    ends = by_draw.min(axis=0) - margin, by_draw.max(axis=0) + margin

    def excess(place: Floats, total: Ints) -> Floats:
        return _below(law[:, :, total], place) - prob

    root = find_root(
        excess, ends, args=(np.arange(len(margin)),), tolerances={"fatol": _EXACT}
    )
    return np.where(margin > 0.0, root.x, ends[0])
