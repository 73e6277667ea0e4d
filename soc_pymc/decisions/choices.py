"""Items to choose against a threshold, and what a further observation of each would bring."""

from dataclasses import replace

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from .._lib.arguments import Real, checked
from .._lib.arrays import Floats
from ..data.items import Items
from ..families.validity import LARGEST
from ..inference.results import Fit
from ..posterior.interface import Columns, ThetaMixture
from .items import read_decision

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
    probability = decision.above(decision.numbers(threshold, "threshold"), progress)
    return pd.Series(probability, decision.index, name="probability_above")


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
