"""Decisions on items one by one: against a threshold, and for a further observation."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from .._lib.arguments import Real, numbers_of
from .._lib.arrays import Floats, Ints
from .._lib.errors import FitError
from .._lib.reprs import digits
from ..data.items import Items, check_outcomes
from ..families.scales import LARGEST
from ..fits.fit import Fit
from ..posterior.item_columns import (
    Columns,
    ThetaMixture,
    in_chunks,
    read_items,
    select,
)
from ..posterior.predictive import Posterior, posterior_of
from .further import expected_variance, value_of_outcome

# items whose posteriors are held at once by a thread, at most
_AT_ONCE = 5000
_FEW = 128  # draws of the curves in the search for a choice's cut-off
_COST = Real(above=0.0, below=LARGEST)


@dataclass(frozen=True, eq=False)
class DecisionItems:
    """Items to decide on, with the index of the answer."""

    posterior: Posterior
    columns: Columns
    index: pd.Index
    labels: Mapping[str, pd.Series]  # further columns of the table

    def __len__(self) -> int:
        return len(self.index)

    def answers(
        self,
        title: str,
        answer: Callable[[Columns, ThetaMixture], Sequence[Floats]],
        progress: bool | None,
        **extra: Floats,
    ) -> Floats:
        """Return rows of an answer on each posterior, (rows, n); it reads `extra` columns too."""
        step = min(_AT_ONCE, self.posterior.curves.items_at_once)
        columns = {**self.columns, **extra}
        theta = self.posterior.theta
        return in_chunks(
            lambda part: answer(part, theta(part)), step, columns, title, progress
        )

    def subset(self, chosen: Ints) -> "DecisionItems":
        """Return some of the items."""
        return replace(
            self, columns=select(self.columns, chosen), index=self.index[chosen]
        )

    def numbers(self, values: ArrayLike, name: str, least: float = -np.inf) -> Floats:
        """Return numbers > `least`, (n,), from one number for all items, or one for each."""
        shape = (len(self),)
        array = numbers_of(values, name, expected="a number or an array of numbers")
        if array.shape not in ((), shape):
            need = f"one number, or one number for each of {len(self):,} items"
            raise FitError(f"{name} has the shape {array.shape}: give {need}")
        # larger numbers leave none to compare with
        bad = ~((np.abs(array) <= LARGEST) & (array > least))
        if bad.any():
            bound = f"{'' if least == -np.inf else f' and > {least:g}'}, up to {LARGEST:g} in size"
            raise FitError(
                f"{name} must be finite{bound}, not {digits(array[bad].flat[0])}"
            )
        return np.array(np.broadcast_to(array, shape))


def read_decision(
    fit: Fit, items: Items, progress: bool | None, also: Sequence[str] = ()
) -> DecisionItems:
    """Read and check the items of a decision, and further columns of their table."""
    posterior = posterior_of(fit)
    check_outcomes(items)
    columns, labels = read_items(
        posterior.curves, items, [*([items.id] if items.id else []), *also], progress
    )
    index: pd.Index = pd.RangeIndex(len(columns["score"]))
    if items.id:
        index = pd.Index(labels[items.id], name=items.id)
    elif isinstance(items.source, pd.DataFrame):
        index = items.source.index
    return DecisionItems(posterior, columns, index, labels)


def probability_above(
    fit: Fit, items: Items, threshold: ArrayLike, *, progress: bool | None = None
) -> pd.Series:
    """Return P(theta > threshold | t, y) of every item, averaged over the draws of the curves.

    Parameters
    ----------
    fit : Fit
        The fit.
    items : PoissonItems, NormalItems or BinomialItems
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
    decision = read_decision(fit, items, progress)

    def above(columns: Columns, theta: ThetaMixture) -> list[Floats]:
        cut = columns["threshold"]
        tail = decision.posterior.family.above(cut, theta.a, theta.b)
        return [theta.average(tail, np.where(cut < 0.0, 1.0, 0.0))]

    cut = decision.numbers(threshold, "threshold")
    [probability] = decision.answers("probabilities", above, progress, threshold=cut)
    return pd.Series(
        np.clip(probability, 0.0, 1.0), decision.index, name="probability_above"
    )


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
    items : PoissonItems, NormalItems or BinomialItems
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
    decision = read_decision(fit, items, progress)
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
    short, over = decision.answers("expected losses", losses, progress, threshold=cut)
    chosen = cost_below * short
    not_chosen = cost_above * over
    table = {
        "loss_if_chosen": chosen,
        "loss_if_not": not_chosen,
        "choose": chosen < not_chosen,
    }
    return pd.DataFrame(table, index=decision.index)


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
    items : PoissonItems, NormalItems or BinomialItems
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
    decision = read_decision(fit, items, progress)
    family = decision.posterior.family
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
        if theta.weight is None:
            after = variance / (1.0 + family.outcome.response(more, mean, variance))
        else:
            after = expected_variance(family, theta, more)
        rows = [np.sqrt(variance), np.sqrt(after)]
        if threshold is not None:
            coarse = theta
            if theta.weight is None and len(theta.a) > _FEW:
                draws = np.arange(_FEW) * len(theta.a) // _FEW
                coarse = ThetaMixture(theta.a[draws], theta.b[draws])
            cut = columns["threshold"]
            rows.append(value_of_outcome(family, theta, coarse, more, cut))
        return rows

    rows = decision.answers("value of exposure", gains, progress, **extra)
    names = ["sd_now", "sd_after", "value"][: len(rows)]
    return pd.DataFrame(rows.T, decision.index, names)
