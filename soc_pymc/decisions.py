"""Decisions by posteriors: thresholds, ranking, exploration, value of more exposure, totals.

Items of a ranking or a total share the curves: each joint draw takes one draw of the curves for
all items. Random numbers belong to blocks of 512 items, draw by draw, so that they depend neither
on the processors nor on the number of draws.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import methodcaller

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike
from scipy.optimize.elementwise import find_root

from ._lib.arguments import (
    DRAWS,
    MOST_DRAWS,
    SEED,
    FitError,
    OrNone,
    Real,
    Whole,
    per_item,
    refuse_beyond_memory,
    shown,
    switch,
)
from ._lib.arrays import Columns, Floats, Ints, Pair, Triple
from ._lib.laws import pearson3_cdf, pearson3_quantile
from ._lib.reprs import digits
from ._lib.work import ordered_map, parts, with_progress
from .checks.findings import ALL
from .data.items import Items, check_outcomes
from .families.family import Family
from .families.mixtures import NEAR_ZERO
from .families.scales import LARGEST
from .fits import Fit
from .posterior.item_columns import (
    ThetaMixture,
    in_chunks,
    read_items,
    refuse_weighted,
    select,
    summed,
)
from .posterior.predictive import Posterior, posterior_of
from .posterior.scoring import probabilities
from .prior_table import quantile_name

__all__ = [
    "expected_loss",
    "probability_above",
    "probability_best",
    "thompson_draws",
    "total",
    "value_of_exposure",
]

# items that share random numbers
_BLOCK = 512
# draws of a block of items that are made at once
_MOST = 1024
# draws of items that are ranked at once
_HELD = 4_000_000
# draws that screen items
_SCREENING = 100
# probability, as a share of k, of the items that screening leaves out
_NEGLIGIBLE = 1e-3
# totals at once
_TOTALS = 50
# joint draws for totals of few items
_DRAWS = 20_000
# items from which on the cumulants give the shape
_FEWEST_SUMMED = 10
# label of the total of items without a label
_MISSING = "missing"
# error of a quantile's probability
_EXACT = 1e-11
# widening of the range that holds a quantile, in sds
_CLOSE = 1e-7
# items whose posteriors are held at once by a thread, at most
_AT_ONCE = 5000
# draws of the curves in the search for a choice's cut-off
_FEW = 128
# further outcomes that stand for all
_GRID = 256
# extent of the grid beyond the components, in sd
_REACH = 8.0
# predictive sd beyond which no further value comes
_FAR = 40.0
# counts summed one by one
_SINGLE = 128
# numbers in an array of components x outcomes x items
_NUMBERS_AT_ONCE = 2_000_000
# components of less weight do not widen the grid
_FAINT = 1e-10
_NODE, _SHARE = (
    values[:, None] for values in np.polynomial.legendre.leggauss(_GRID - _SINGLE)
)
_COST = Real(above=0.0, below=LARGEST)


@dataclass(frozen=True, eq=False)
class DecisionItems:
    """Items to decide on, with the index of the answer."""

    posterior: Posterior
    columns: Columns
    index: pd.Index
    # further columns of the table
    labels: Mapping[str, pd.Series]

    def __len__(self) -> int:
        return len(self.index)

    def answers(
        self,
        title: str,
        answer: Callable[[Columns, ThetaMixture], Sequence[Floats]],
        **extra: Floats,
    ) -> Floats:
        """Return rows of an answer on each posterior, (rows, n); it reads `extra` columns too."""
        step = min(_AT_ONCE, self.posterior.curves.items_at_once)
        columns = {**self.columns, **extra}
        theta = self.posterior.theta
        return in_chunks(lambda part: answer(part, theta(part)), step, columns, title)

    def subset(self, chosen: Ints) -> "DecisionItems":
        """Return some of the items."""
        return replace(
            self, columns=select(self.columns, chosen), index=self.index[chosen]
        )

    def numbers(self, values: ArrayLike, name: str, least: float = -np.inf) -> Floats:
        """Return numbers > `least`, (n,), from one number for all items, or one for each."""
        array = per_item(values, name, len(self))
        # larger numbers leave none to compare with
        wrong = ~((np.abs(array) <= LARGEST) & (array > least))
        if wrong.any():
            bound = f"{'' if least == -np.inf else f' and > {least:g}'}, up to {LARGEST:g} in size"
            raise FitError(
                f"{name} must be finite{bound}, not {digits(array[wrong][0])}"
            )
        return array


def read_decision(fit: Fit, items: Items, also: Sequence[str] = ()) -> DecisionItems:
    """Read and check the items of a decision, and further columns of their table."""
    posterior = posterior_of(fit)
    refuse_weighted(check_outcomes(items))
    columns, labels = read_items(
        posterior.curves, items, [*([items.id] if items.id else []), *also]
    )
    index: pd.Index = pd.RangeIndex(len(columns["score"]))
    if items.id:
        index = pd.Index(labels[items.id], name=items.id)
    elif isinstance(items.source, pd.DataFrame):
        index = items.source.index
    return DecisionItems(posterior, columns, index, labels)


@with_progress
def probability_above(
    fit: Fit, items: Items, threshold: ArrayLike, *, progress: bool | None = None
) -> pd.Series:
    """Return P(theta > threshold | t, y) of every item, averaged over the draws of the curves.

    Parameters
    ----------
    fit : Fit
        The fit.
    items : PoissonItems, NormalItems, BinomialItems or AmountItems
        Items of the fit's kind: those of the fit or others.
    threshold : float or array_like, shape (n,)
        One number, or one for each item, in the unit of theta.
    progress : bool or None
        Whether to show progress.

    Returns
    -------
    pandas.Series
        In the items' order; indexed by their id, else by a pandas source's index, else from 0.

    Raises
    ------
    ItemsError, FitError
        If the items are not valid or not of the fit's kind, or an argument is not valid.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> above = soc.decisions.probability_above(fit, items, 0.02)
    >>> above.name, bool(above.between(0, 1).all())
    ('probability_above', True)
    """
    decision = read_decision(fit, items)

    def above(columns: Columns, theta: ThetaMixture) -> list[Floats]:
        cut = columns["threshold"]
        tail = decision.posterior.family.above(cut, theta.a, theta.b)
        return [theta.average(tail, np.where(cut < 0.0, 1.0, 0.0))]

    cut = decision.numbers(threshold, "threshold")
    [probability] = decision.answers("probabilities", above, threshold=cut)
    return pd.Series(
        np.clip(probability, 0.0, 1.0), decision.index, name="probability_above"
    )


@with_progress
def expected_loss(
    fit: Fit,
    items: Items,
    threshold: ArrayLike,
    *,
    cost_above: float = 1.0,
    cost_below: float = 1.0,
    progress: bool | None = None,
) -> pd.DataFrame:
    """Return the expected loss of choosing each item, and of not choosing it, against a threshold.

    Parameters
    ----------
    fit : Fit
        The fit.
    items : PoissonItems, NormalItems, BinomialItems or AmountItems
        As in `probability_above`.
    threshold : float or array_like, shape (n,)
        As in `probability_above`.
    cost_above : float
        Cost, above 0, of a unit of theta above the threshold if the item is not chosen.
    cost_below : float
        Cost, above 0, of a unit of theta below the threshold if the item is chosen.
    progress : bool or None
        Whether to show progress.

    Returns
    -------
    pandas.DataFrame
        ``loss_if_chosen`` = cost_below E[(threshold - theta)+ | t, y], ``loss_if_not`` = cost_above
        E[(theta - threshold)+ | t, y], and ``choose``: whether the former is less.

    Raises
    ------
    ItemsError, FitError
        As in `probability_above`.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> loss = soc.decisions.expected_loss(fit, items, 0.02, cost_below=3.0)
    >>> list(loss.columns)
    ['loss_if_chosen', 'loss_if_not', 'choose']
    """
    cost_above = _COST(cost_above, "cost_above")
    cost_below = _COST(cost_below, "cost_below")
    decision = read_decision(fit, items)
    family = decision.posterior.family

    def losses(columns: Columns, theta: ThetaMixture) -> list[Floats]:
        cut = columns["threshold"]
        arguments = np.broadcast_arrays(cut, theta.a, theta.b)
        difference = family.mean(*arguments[1:]) - cut
        # the smaller loss is computed and the larger is a sum, so that nothing cancels
        above = difference > 0
        smaller = np.empty(difference.shape)
        for mask, loss in ((above, family.shortfall), (~above, family.excess)):
            smaller[mask] = loss(*(x[mask] for x in arguments))
        larger = smaller + np.abs(difference)
        short, over = np.where(above, (smaller, larger), (larger, smaller))
        at_zero = np.maximum(cut, 0.0), np.maximum(-cut, 0.0)
        return [theta.average(short, at_zero[0]), theta.average(over, at_zero[1])]

    cut = decision.numbers(threshold, "threshold")
    short, over = decision.answers("expected losses", losses, threshold=cut)
    chosen = cost_below * short
    not_chosen = cost_above * over
    table = {
        "loss_if_chosen": chosen,
        "loss_if_not": not_chosen,
        "choose": chosen < not_chosen,
    }
    return pd.DataFrame(table, index=decision.index)


@with_progress
def value_of_exposure(
    fit: Fit,
    items: Items,
    more: ArrayLike,
    *,
    threshold: ArrayLike | None = None,
    progress: bool | None = None,
) -> pd.DataFrame:
    """Return the expected value of a further observation of each item, before it is made.

    Parameters
    ----------
    fit : Fit
        The fit.
    items : PoissonItems, NormalItems, BinomialItems or AmountItems
        As in `probability_above`.
    more : float or array_like, shape (n,)
        Further exposure or trials, or the noise sd of one further value: above 0, one number or one
        for each item.
    threshold : float or array_like, shape (n,), or None
        One number, or one for each item, in the unit of theta.
    progress : bool or None
        Whether to show progress.

    Returns
    -------
    pandas.DataFrame
        ``sd_now``, the posterior sd, and ``sd_after``, the root of the expected posterior variance
        after the observation (for single families that of the best linear estimate); with
        `threshold` also ``value``, the expected value of sample information E[max(E(theta | t, y,
        y') - threshold, 0)] - max(E(theta | t, y) - threshold, 0) of the further outcome y'.

    Raises
    ------
    ItemsError, FitError
        As in `probability_above`.

    References
    ----------
    .. [1] Raiffa and Schlaifer (1961), Applied statistical decision theory, Harvard University.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> few = soc.PoissonItems(items.source.head(100), **items.roles)
    >>> gain = soc.decisions.value_of_exposure(fit, few, 100, threshold=0.02)
    >>> bool((gain["sd_after"] < gain["sd_now"]).all()), bool((gain["value"] >= 0).all())
    (True, True)
    """
    decision = read_decision(fit, items)
    family = decision.posterior.family
    is_single = not decision.posterior.prior.gridded
    extra = {"more": decision.numbers(more, "more", 0.0)}
    if threshold is not None:
        extra["threshold"] = decision.numbers(threshold, "threshold")

    def gains(columns: Columns, theta: ThetaMixture) -> list[Floats]:
        theta = theta.listed(family)
        more = columns["more"]
        means = family.mean(theta.a, theta.b)
        variances = family.variance(theta.a, theta.b)
        mean = theta.average(means)
        variance = theta.average(variances) + theta.average((means - mean) ** 2)
        if is_single:
            after = variance / (1.0 + family.outcome.response(more, mean, variance))
        else:
            after = expected_variance(family, theta, more)
        rows = [np.sqrt(variance), np.sqrt(after)]
        if threshold is not None:
            coarse = theta.thinned(_FEW) if is_single else theta
            cut = columns["threshold"]
            rows.append(value_of_outcome(family, theta, coarse, more, cut))
        return rows

    rows = decision.answers("value of exposure", gains, **extra)
    names = ["sd_now", "sd_after", "value"][: len(rows)]
    return pd.DataFrame(rows.T, decision.index, names)


# --- a further outcome, under mixtures of any family ----------------------------------------------


def expected_variance(family: Family, theta: ThetaMixture, size: Floats) -> Floats:
    """Return E Var(theta | t, y, y') over further outcomes y' of a size, (n,)."""
    assert theta.weight is not None
    expected = np.empty(len(size))
    size = _possible(family, size)
    step = max(1, _NUMBERS_AT_ONCE // (_GRID * len(theta.weight)))
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
    scale = family.further_scale
    weight = np.ones_like(theta.a) if theta.weight is None else theta.weight
    mean, sd, tail = family.outcome_moments(theta.a, theta.b, size)
    low = (mean - _FAR * sd).min(axis=0)
    high = (mean + _FAR * sd + tail).max(axis=0)
    if outcome.whole:
        most = size if outcome.validity.size.whole else np.inf
        low = np.zeros_like(low)
        high = np.minimum(np.ceil(high), most)

    def gap(place: Floats, item: Floats) -> Floats:
        y = scale.score(place)
        i = item.astype(int)
        a = theta.a[:, i]
        b = theta.b[:, i]
        log_density = family.further_log_density(y, size[i], a, b)
        means = family.mean(*family.update(a, b, y, size[i]))
        p, _ = _normalised(log_density, weight[:, i])
        return (p * (means - cut[i])).sum(axis=0)

    with np.errstate(invalid="ignore", over="ignore"):
        root = find_root(gap, (low, high), args=(np.arange(len(cut)),))
    end = np.where(root.f_bracket[0] > 0.0, low, high + 1.0)
    least = scale.score(np.where(root.success, root.x, end))
    return np.ceil(least) if outcome.whole else np.asarray(least)


def _normalised(log_density: Floats, weight: Floats) -> Pair:
    """Weights of components (K, ...) given an outcome, and the log of its mixed density."""
    # components of weight 0
    with np.errstate(divide="ignore"):
        log_p = log_density + np.log(weight)
    top = log_p.max(axis=0)
    p = np.exp(log_p - top)
    total = p.sum(axis=0)
    return p / total, top + np.log(total)


def _outcomes(
    family: Family, weight: Floats, a: Floats, b: Floats, size: Floats
) -> Pair:
    """Outcomes that stand for all, and their widths, (outcomes, n) or fewer."""
    if not (family.outcome.whole and family.outcome.validity.size.whole):
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
    place = low + (high - low) * np.linspace(0.0, 1.0, _GRID)[:, None]
    y = family.further_scale.score(place)
    return y, np.gradient(y, axis=0)


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

    def draw(self, curves: Ints) -> Triple:
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
    items : PoissonItems, NormalItems, BinomialItems or AmountItems
        As in `probability_above`.
    draws : int
        Number of draws. Fewer draws are the first of more.
    seed : int
        Seed of the draws: use a new one in each round.
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
    items : PoissonItems, NormalItems, BinomialItems or AmountItems
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
        kth = order[:, [n - size]]
        rivals = np.where(drawn >= kth, following, kth)
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
    items : PoissonItems, NormalItems, BinomialItems or AmountItems
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
    few = (sizes < _FEWEST_SUMMED) & (
        items.posterior.prior.mixture or third.any(axis=0)
    )
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
    # all weights are 0
    certain = sd <= 0.0
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
