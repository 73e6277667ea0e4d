"""Items to choose against a threshold, and what a further observation of each would bring."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from .._lib.arguments import numbers_of
from .._lib.arrays import Floats
from ..data.items import Items
from ..families.family import Family
from ..families.further import expected_variance
from ..inference.results import Fit
from ..posterior.interface import Columns, ThetaMixture
from .items import finite, read_decision

_FEW = 128  # draws of the curves on which the cut-off of a choice is found


def probability_above(
    fit: Fit, items: Items, threshold: ArrayLike, *, progress: bool | None = None
) -> pd.Series:
    """P(theta > threshold | t, y) of every item, averaged over the draws of the curves.

    Parameters
    ----------
    fit, items
        The fit, and items of its kind: those of the fit or others.
    threshold
        One number, or one for each item, in the unit of theta (events per unit of exposure, or the
        unit of the values).
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
        If the items are not valid or not of the fit's kind, a threshold is not a number up to 1e90
        in size, there are not as many as items, or a score has no place on the fit's axis.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> above = soc.decisions.probability_above(fit, items, 0.02)
    >>> above.name, bool(above.between(0, 1).all())
    ('probability_above', True)
    """
    decision = read_decision(fit, items, progress)
    above = decision.above(decision.numbers(threshold, "threshold"), progress)
    return pd.Series(above, decision.index, name="probability_above")


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

    An item is worth choosing if its theta is above the threshold. To choose one that is below costs
    ``cost_below`` for each unit of theta below; not to choose one that is above costs
    ``cost_above`` for each unit above.

    Parameters
    ----------
    fit, items, threshold, progress
        As of `probability_above`.
    cost_above, cost_below
        Costs of each unit of theta, > 0.

    Returns
    -------
    pandas.DataFrame
        ``loss_if_chosen`` = cost_below E[(threshold - theta)+ | t, y], ``loss_if_not`` =
        cost_above E[(theta - threshold)+ | t, y], and ``choose``: whether the former is less. With
        equal costs that is where E(theta | t, y) > threshold. Indexed as of `probability_above`.

    Raises
    ------
    ItemsError, FitError
        As of `probability_above`; also if a cost is not a finite number > 0.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> loss = soc.decisions.expected_loss(fit, items, 0.02, cost_below=3.0)
    >>> list(loss.columns)
    ['loss_if_chosen', 'loss_if_not', 'choose']
    """
    costs = {"cost_above": cost_above, "cost_below": cost_below}
    above, below = (
        float(finite(numbers_of(cost, name, wanted="a number"), name, 0.0).item())
        for name, cost in costs.items()
    )
    decision = read_decision(fit, items, progress)
    cut = decision.numbers(threshold, "threshold")

    def answer(columns: Columns, theta: ThetaMixture) -> list[Floats]:
        cut = columns["threshold"]
        short, over = _losses(decision.family, np.broadcast_arrays(cut, theta.first, theta.second))
        return [
            theta.average(short, np.maximum(cut, 0.0)),
            theta.average(over, np.maximum(-cut, 0.0)),
        ]

    short, over = decision.each("expected losses", answer, progress, threshold=cut)
    chosen, not_chosen = below * short, above * over
    table = {"loss_if_chosen": chosen, "loss_if_not": not_chosen, "choose": chosen < not_chosen}
    return pd.DataFrame(table, index=decision.index)


def _losses(family: Family, arguments: Sequence[Floats]) -> tuple[Floats, Floats]:
    """E[(cut - theta)+] and E[(theta - cut)+] of cuts and the two parameters of theta.

    They differ by E(theta) - cut. The smaller one is computed, so that the other is a sum of
    positive numbers, without cancellation.
    """
    cut, *parameters = arguments
    difference = family.mean(*parameters) - cut
    above, smaller = difference > 0, np.empty(difference.shape)
    for mask, loss in ((above, family.shortfall), (~above, family.excess)):
        smaller[mask] = loss(*(x[mask] for x in arguments))
    larger = smaller + np.abs(difference)
    return np.where(above, smaller, larger), np.where(above, larger, smaller)


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
        As of `probability_above`.
    more
        Further exposure (counts) or trials (successes) of each item, or the noise sd of one further
        value of each: a number > 0, or one for each item.
    threshold
        If given, as of `probability_above`: an item is chosen where E(theta) is above it.

    Returns
    -------
    pandas.DataFrame
        ``sd_now``, the posterior sd, and ``sd_after``, the root of the expected posterior variance
        after the observation; with `threshold` also ``value``, the expected value of sample
        information E[max(E(theta | t, y, y') - threshold, 0)] - max(E(theta | t, y) - threshold, 0)
        of the further outcome y', in the unit of theta. Indexed as of `probability_above`.

    Raises
    ------
    ItemsError, FitError
        As of `probability_above`; also if `more` is not > 0.

    Notes
    -----
    For one Gamma or Normal a curve ``sd_after``^2 is the squared error of the best linear estimate,
    never less than the expected posterior variance: with fits to 1,500 items 0.01% too large on
    average, with 150 items 0.3%. For mixtures it is a sum over a grid of further outcomes.
    ``value`` is exact except for the cut-off, found on 128 of the draws: its error can only make it
    smaller.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> few = soc.PoissonItems(items.source.head(100), **items.roles)
    >>> gain = soc.decisions.value_of_exposure(fit, few, 100, threshold=0.02)
    >>> bool((gain["sd_after"] < gain["sd_now"]).all()), bool((gain["value"] >= 0).all())
    (True, True)
    """
    decision = read_decision(fit, items, progress)
    extra = {"more": decision.numbers(more, "more", 0.0)}
    if threshold is not None:
        extra["threshold"] = decision.numbers(threshold, "threshold")

    def answer(columns: Columns, theta: ThetaMixture) -> list[Floats]:
        theta = theta.listed(decision.family)
        rows = _deviations(decision.family, theta, columns["more"])
        if threshold is not None:
            rows.append(
                decision.family.further.value(
                    theta, _few(theta), columns["more"], columns["threshold"]
                )
            )
        return rows

    rows = decision.each("value of exposure", answer, progress, **extra)
    names = ["sd_now", "sd_after", "value"]
    return pd.DataFrame(dict(zip(names, rows, strict=False)), index=decision.index)


def _deviations(family: Family, theta: ThetaMixture, more: Floats) -> list[Floats]:
    """Posterior sd, and root of the expected variance after more."""
    means = family.mean(theta.first, theta.second)
    mean = theta.average(means)
    between = theta.average((means - mean) ** 2)
    variance = theta.average(family.variance(theta.first, theta.second)) + between
    sd = np.sqrt(variance)
    if theta.weight is not None:
        return [sd, np.sqrt(expected_variance(family.further, theta, more))]
    return [sd, sd / np.sqrt(1.0 + family.further.gain(mean, variance, more))]


def _few(theta: ThetaMixture) -> ThetaMixture:
    """Some of the draws, evenly spaced; all components where these have weights."""
    number = len(theta.first)
    if theta.weight is not None or number <= _FEW:
        return theta
    draws = np.arange(_FEW) * number // _FEW
    return replace(theta, first=theta.first[draws], second=theta.second[draws])
