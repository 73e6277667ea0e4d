"""Decisions on items one by one: against a threshold, and for a further outcome to come."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.optimize import elementwise

from .._lib.arguments import Real, per_item
from .._lib.arrays import Columns, Floats, Ints, Pair
from .._lib.errors import FitError
from .._lib.reprs import digits
from .._lib.work import with_progress
from ..data.items import Items, check_outcomes
from ..families.family import Family
from ..families.scales import LARGEST
from ..fits.fit import Fit
from ..posterior.item_columns import (
    ThetaMixture,
    in_chunks,
    read_items,
    refuse_weighted,
    select,
)
from ..posterior.predictive import Posterior, posterior_of

# items whose posteriors are held at once by a thread, at most
_AT_ONCE = 5000
_FEW = 128  # draws of the curves in the search for a choice's cut-off
_GRID = 256  # further outcomes that stand for all
_REACH = 8.0  # extent of the grid beyond the components, in sd
_FAR = 40.0  # predictive sd beyond which no further value comes
_SINGLE = 128  # counts summed one by one
# numbers in an array of components x outcomes x items
_NUMBERS_AT_ONCE = 2_000_000
_FAINT = 1e-10  # components of less weight do not widen the grid
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
    labels: Mapping[str, pd.Series]  # further columns of the table

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
        bad = ~((np.abs(array) <= LARGEST) & (array > least))
        if bad.any():
            bound = f"{'' if least == -np.inf else f' and > {least:g}'}, up to {LARGEST:g} in size"
            raise FitError(f"{name} must be finite{bound}, not {digits(array[bad][0])}")
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
    decision = read_decision(fit, items)
    family = decision.posterior.family
    prior = decision.posterior.curves.prior
    is_single = not (prior.gridded or prior.zero)
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


def _normalised(log_density: Floats, weight: Floats) -> Pair:
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
