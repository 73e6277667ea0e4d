"""Choices of items: against a threshold, for a further observation, and by rank.

In each joint draw, an item's probability to be among the k given all but its own theta is the tail
of its posterior beyond the k-th largest theta of the others. That is less noisy than counting how
often it is among the k, and small probabilities are seen without being hit.
"""

from dataclasses import replace
from operator import methodcaller

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike

from .._lib.arguments import DRAWS, MOST_DRAWS, SEED, Real, Whole, checked, refuse_beyond_memory
from .._lib.arrays import Floats, Ints
from .._lib.progress import Phase, phase
from .._lib.threads import ordered_map
from ..data.items import Items
from ..families.validity import LARGEST
from ..inference.results import Fit
from ..posterior.item_columns import Columns, ThetaMixture
from .items import DecisionItems, blocks_of, curve_numbers, joint_draws, read_decision

_HELD = 4_000_000  # draws of items that are ranked at once
_SCREENING = 100  # draws that screen items
_NEGLIGIBLE = 1e-3  # sum of the probabilities, by these draws, of items that are left out
_FEW = 128  # draws of the curves in the search for a choice's cut-off
_COST = Real(above=0.0, below=LARGEST)


def probability_above(
    fit: Fit, items: Items, threshold: ArrayLike, *, progress: bool | None = None
) -> pd.Series:
    """P(theta > threshold | t, y) of every item, averaged over the draws of the curves.

    Parameters
    ----------
    fit, items
        The fit, and items of its kind: those of the fit or others.
    threshold
        One number, or one for each item, in the unit of theta, up to 1e90 in size.
    progress
        Whether to show progress.

    Returns
    -------
    pandas.Series
        ``probability_above``, in the order of the items; indexed by their id, else by the index of
        a pandas source, else by 0, ..., n - 1.

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
    decision = read_decision(fit, items, progress)

    def above(columns: Columns, theta: ThetaMixture) -> list[Floats]:
        cut = columns["threshold"]
        tail = decision.posterior.family.above(cut, theta.a, theta.b)
        return [theta.average(tail, np.where(cut < 0.0, 1.0, 0.0))]

    cut = decision.numbers(threshold, "threshold")
    [probability] = decision.each("probabilities", above, progress, threshold=cut)
    return pd.Series(np.clip(probability, 0.0, 1.0), decision.index, name="probability_above")


@checked(cost_above=_COST, cost_below=_COST)
def expected_loss(
    fit: Fit,
    items: Items,
    threshold: ArrayLike,
    *,
    cost_above: float = 1.0,
    cost_below: float = 1.0,
    progress: bool | None = None,
) -> pd.DataFrame:
    """Expected loss of choosing each item, and of not choosing it, against a threshold.

    Parameters
    ----------
    fit, items, threshold, progress
        As in `probability_above`, with the same errors.
    cost_above, cost_below
        Costs > 0 of each unit of theta: above the threshold if the item is not chosen, and below it
        if the item is.

    Returns
    -------
    pandas.DataFrame
        ``loss_if_chosen`` = cost_below E[(threshold - theta)+ | t, y], ``loss_if_not`` = cost_above
        E[(theta - threshold)+ | t, y], and ``choose``: whether the former is less. Indexed as in
        `probability_above`.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> loss = soc.decisions.expected_loss(fit, items, 0.02, cost_below=3.0)
    >>> list(loss.columns)
    ['loss_if_chosen', 'loss_if_not', 'choose']
    """
    decision = read_decision(fit, items, progress)
    family = decision.posterior.family

    def losses(columns: Columns, theta: ThetaMixture) -> list[Floats]:
        cut = columns["threshold"]
        arguments = np.broadcast_arrays(cut, theta.a, theta.b)
        difference = family.mean(*arguments[1:]) - cut
        # the smaller loss is computed and the larger is a sum, so that nothing cancels
        above, smaller = difference > 0, np.empty(difference.shape)
        for mask, loss in ((above, family.shortfall), (~above, family.excess)):
            smaller[mask] = loss(*(x[mask] for x in arguments))
        larger = smaller + np.abs(difference)
        short, over = np.where(above, (smaller, larger), (larger, smaller))
        at_zero = np.maximum(cut, 0.0), np.maximum(-cut, 0.0)
        return [theta.average(short, at_zero[0]), theta.average(over, at_zero[1])]

    cut = decision.numbers(threshold, "threshold")
    short, over = decision.each("expected losses", losses, progress, threshold=cut)
    chosen, not_chosen = cost_below * short, cost_above * over
    table = {"loss_if_chosen": chosen, "loss_if_not": not_chosen, "choose": chosen < not_chosen}
    return pd.DataFrame(table, index=decision.index)


def value_of_exposure(
    fit: Fit,
    items: Items,
    more: ArrayLike,
    *,
    threshold: ArrayLike | None = None,
    progress: bool | None = None,
) -> pd.DataFrame:
    """Expected value of a further observation of each item, before it is made.

    Parameters
    ----------
    fit, items, progress
        As in `probability_above`, with the same errors.
    more
        Further exposure (counts) or trials (successes) of each item, or the noise sd of one further
        value of each: a number > 0, or one for each item.
    threshold
        As in `probability_above`: an item is chosen where E(theta) is above it. Or None.

    Returns
    -------
    pandas.DataFrame
        ``sd_now``, the posterior sd, and ``sd_after``, the root of the expected posterior variance
        after the observation (for single families that of the best linear estimate, which with
        1,500 items is 0.01% too large); with `threshold` also ``value``, the expected value of
        sample information E[max(E(theta | t, y, y') - threshold, 0)] - max(E(theta | t, y) -
        threshold, 0) of the further outcome y', in the unit of theta. Indexed as in
        `probability_above`.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> few = soc.PoissonItems(items.source.head(100), **items.roles)
    >>> gain = soc.decisions.value_of_exposure(fit, few, 100, threshold=0.02)
    >>> bool((gain["sd_after"] < gain["sd_now"]).all()), bool((gain["value"] >= 0).all())
    (True, True)
    """
    decision = read_decision(fit, items, progress)
    family, extra = decision.posterior.family, {"more": decision.numbers(more, "more", 0.0)}
    if threshold is not None:
        extra["threshold"] = decision.numbers(threshold, "threshold")

    def gains(columns: Columns, theta: ThetaMixture) -> list[Floats]:
        theta, more = theta.listed(family), columns["more"]
        means = family.mean(theta.a, theta.b)
        mean = theta.average(means)
        within = theta.average(family.variance(theta.a, theta.b))
        variance = within + theta.average((means - mean) ** 2)
        if theta.weight is None:
            after = variance / (1.0 + family.outcome.forms.response(more, mean, variance))
        else:
            after = family.further.expected_variance(theta, more)
        rows = [np.sqrt(variance), np.sqrt(after)]
        if threshold is not None:
            rows.append(family.further.value(theta, _few(theta), more, columns["threshold"]))
        return rows

    rows = decision.each("value of exposure", gains, progress, **extra)
    names = ["sd_now", "sd_after", "value"][: len(rows)]
    return pd.DataFrame(rows.T, decision.index, names)


def _few(theta: ThetaMixture) -> ThetaMixture:
    """Some of the draws, evenly spaced; all components of weighted mixtures."""
    number = len(theta.a)
    if theta.weight is not None or number <= _FEW:
        return theta
    draws = np.arange(_FEW) * number // _FEW
    return replace(theta, a=theta.a[draws], b=theta.b[draws])


# --- rankings ------------------------------------------------------------------------------------


def thompson_draws(
    fit: Fit, items: Items, draws: int = 1, *, seed: int = 0, progress: bool | None = None
) -> xr.DataArray:
    """Draws of every item's theta given score and outcome, for Thompson sampling.

    To choose the items with the largest theta of a draw, one draw a round, is to choose each with
    the probability that it is the best. Each draw takes one draw of the curves for all items.

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
        `probability_above`) and ``curve``, the number of the draw of the curves: all of them in
        random order before any is taken twice.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> theta = soc.decisions.thompson_draws(fit, items, 3, seed=1)
    >>> dict(theta.sizes), bool((theta > 0).all())
    ({'draw': 3, 'item': 4000}, True)
    """
    number, key = DRAWS(draws, "draws"), SEED(seed, "seed")
    decision = read_decision(fit, items, progress)
    what = f"{number:,} draws of {len(decision):,} items"
    refuse_beyond_memory(8.0 * number * len(decision), what, "ask for fewer of one of them")
    curves = curve_numbers(decision.draws, number, key)
    theta = joint_draws(decision, curves, key, progress)
    draw, item = np.arange(number), decision.index.to_numpy()
    coords = {"draw": draw, "curve": ("draw", curves), "item": item}
    return xr.DataArray(theta, coords, ("draw", "item"), name="theta")


def probability_best(
    fit: Fit,
    items: Items,
    k: int = 1,
    *,
    draws: int = 4000,
    seed: int = 0,
    progress: bool | None = None,
) -> pd.DataFrame:
    """Probability of every item to be among the k with the largest theta.

    It is a mean over draws of P(theta_i > T_i), where T_i is the k-th largest theta of the others,
    moved to the sum k. Of thousands of items, those that add up to less than about 1e-3 get 0.

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
        0.5 / sqrt(draws), and 0 where k leaves no item out. Indexed as in `probability_above`.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> top = soc.decisions.probability_best(fit, items, 10, draws=200)
    >>> float(top["probability"].sum().round(3))
    10.0
    """
    size, number, key = Whole(1)(k, "k"), Whole(2, MOST_DRAWS)(draws, "draws"), SEED(seed, "seed")
    decision = read_decision(fit, items, progress)
    if size >= len(decision):
        return pd.DataFrame({"probability": 1.0, "error": 0.0}, index=decision.index)
    curves = curve_numbers(decision.draws, number, key)
    candidates = _candidates(decision, size, key, curves)
    answer, total = np.zeros((2, len(decision))), number * len(candidates)
    with phase("probability of being best", total=total, unit="draws", enabled=progress) as bar:
        answer[:, candidates] = _top(decision.rows(candidates), size, key, curves, bar)
    return pd.DataFrame({"probability": answer[0], "error": answer[1]}, index=decision.index)


def _candidates(items: DecisionItems, size: int, seed: int, curves: Ints) -> Ints:
    """Items that may be among the `size` largest, by some draws: the others hardly ever are."""
    with phase("candidates", enabled=False) as bar:
        probability, _ = _top(items, size, seed, curves[:_SCREENING], bar)
    order = np.argsort(probability, kind="stable")
    return np.sort(order[np.cumsum(probability[order]) > _NEGLIGIBLE])


def _top(
    items: DecisionItems, size: int, seed: int, curves: Ints, bar: Phase
) -> tuple[Floats, Floats]:
    """Probabilities to be among the `size` largest, which sum to `size`, and their errors."""
    n, number, blocks = len(items), len(curves), blocks_of(items, seed)
    sums = np.zeros((2, n))  # probabilities and their squares
    step = max(1, _HELD // n)
    for start in range(0, number, step):
        draws = curves[start : start + step]
        drawings = ordered_map(methodcaller("draw", draws), blocks)
        drawn, a, b = (np.hstack(parts) for parts in zip(*drawings, strict=True))
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
