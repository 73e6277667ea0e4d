"""Against a threshold: its probability, expected losses on either side, and a cautious score."""

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from ..._lib.arguments import real
from ..._lib.progress import phase
from ...data.items import Items
from ...inference.results import Fit
from ...posterior.predictive import Columns, ThetaMixture
from .reading import per_item, read

__all__ = ["expected_loss", "probability_above", "risk_adjusted"]

Floats = NDArray[np.float64]

_BATCH = 50_000  # items between two reports of progress


def probability_above(
    fit: Fit, items: Items, threshold: ArrayLike, *, progress: bool = True
) -> pd.Series:
    """P(theta > threshold | t, y) of every item, averaged over the draws of the curves.

    Parameters
    ----------
    fit
        The fit.
    items
        Items of the fit's kind: those of the fit or others.
    threshold
        One number, or one for each item in their order, in the unit of theta (events per unit of
        exposure, or the unit of the values).
    progress
        Whether to show progress on standard error.

    Returns
    -------
    pandas.Series
        ``probability_above``, between 0 and 1, in the order of the items; indexed by their id, else
        by the index of a pandas source, else by 0, ..., n - 1.

    Raises
    ------
    ItemsError
        If the items are not valid or not of the fit's kind.
    FitError
        If a threshold is not a number up to 1e90 in size or there are not as many as items, or a
        score has no place on the fit's axis.

    Notes
    -----
    Exact: survival functions of Gamma(shape + y, rate + N) (of the Normal for values, of mixtures
    of these for mixtures), averaged over all draws.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> frame = soc.simulation.s1(2000, seed=0)
    >>> items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    >>> fit = soc.fit(soc.summarize(items), method=soc.FiveSteps(), progress=False)
    >>> above = soc.decisions.probability_above(fit, items, 0.02, progress=False)
    >>> above.name, bool(above.between(0, 1).all())
    ('probability_above', True)
    """
    job = read(fit, items, progress)
    cut = per_item(threshold, len(job), "threshold")

    def answer(columns: Columns, theta: ThetaMixture) -> list[Floats]:
        tail = job.family.above(columns["threshold"], theta.first, theta.second)
        return [theta.average(tail)]

    (found,) = job.each("probabilities", answer, progress, threshold=cut)
    return pd.Series(np.clip(found, 0.0, 1.0), job.index, name="probability_above")


def expected_loss(
    fit: Fit,
    items: Items,
    threshold: ArrayLike,
    *,
    cost_above: float = 1.0,
    cost_below: float = 1.0,
    progress: bool = True,
) -> pd.DataFrame:
    """Expected loss of choosing each item, and of not choosing it, against a threshold.

    An item is worth choosing if its theta is above the threshold. To choose one that is below costs
    ``cost_below`` for each unit of theta below; not to choose one that is above costs
    ``cost_above`` for each unit above.

    Parameters
    ----------
    fit, items, threshold, progress
        As of `probability_above`.
    cost_above
        Cost of each unit by which an item that is not chosen lies above the threshold, > 0.
    cost_below
        Cost of each unit by which a chosen item lies below it, > 0.

    Returns
    -------
    pandas.DataFrame
        ``loss_if_chosen`` = cost_below E[(threshold - theta)+ | t, y], ``loss_if_not`` =
        cost_above E[(theta - threshold)+ | t, y], and ``choose``: whether the first is less. With
        equal costs that is where E(theta | t, y) > threshold. Indexed as of `probability_above`.

    Raises
    ------
    ItemsError, FitError
        As of `probability_above`; also if a cost is not a finite number > 0.

    Notes
    -----
    Exact over all draws of the curves. Of Gamma(a, b) with x = b threshold, E[(theta -
    threshold)+] = (a Q(a + 1, x) - x Q(a, x)) / b, of which the part with shape a + 1 is written
    by the recurrence of Q, and far in the lower tail as a series without differences.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> frame = soc.simulation.s1(2000, seed=0)
    >>> items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    >>> fit = soc.fit(soc.summarize(items), method=soc.FiveSteps(), progress=False)
    >>> loss = soc.decisions.expected_loss(fit, items, 0.02, cost_below=3.0, progress=False)
    >>> list(loss.columns)
    ['loss_if_chosen', 'loss_if_not', 'choose']
    """
    costs = {"cost_above": cost_above, "cost_below": cost_below}
    above, below = (float(per_item(cost, 1, name, 0.0)[0]) for name, cost in costs.items())
    job = read(fit, items, progress)
    cut = per_item(threshold, len(job), "threshold")

    def answer(columns: Columns, theta: ThetaMixture) -> list[Floats]:
        at = columns["threshold"], theta.first, theta.second
        short, over = job.family.shortfall(*at), job.family.excess(*at)
        return [theta.average(short), theta.average(over)]

    short, over = job.each("expected losses", answer, progress, threshold=cut)
    chosen, not_chosen = below * short, above * over
    table = {"loss_if_chosen": chosen, "loss_if_not": not_chosen, "choose": chosen < not_chosen}
    return pd.DataFrame(table, index=job.index)


def risk_adjusted(
    fit: Fit, items: Items, quantile: float = 0.1, *, progress: bool = True
) -> pd.Series:
    """A cautious score to rank by: a low quantile of every item's posterior.

    Items with little exposure have wide posteriors and lose by it; with `quantile` above one half
    they gain, as suits exploration (an upper confidence bound).

    Parameters
    ----------
    fit, items, progress
        As of `probability_above`.
    quantile
        Probability of the posterior quantile, between 0 and 1.

    Returns
    -------
    pandas.Series
        ``risk_adjusted``, in the unit of theta, indexed as of `probability_above`.

    Raises
    ------
    ItemsError
        If the items are not valid or not of the fit's kind.
    FitError
        If `quantile` is not between 0 and 1, or a score has no place on the fit's axis.

    Notes
    -----
    The quantile is that of `item_posteriors` over all draws of the curves.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> frame = soc.simulation.s1(2000, seed=0)
    >>> items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    >>> fit = soc.fit(soc.summarize(items), method=soc.FiveSteps(), progress=False)
    >>> cautious = soc.decisions.risk_adjusted(fit, items, progress=False)
    >>> bold = soc.decisions.risk_adjusted(fit, items, quantile=0.9, progress=False)
    >>> bool((cautious < bold).all())
    True
    """
    real(quantile, "quantile", above=0, below=1)
    job = read(fit, items, progress)
    score = job.law.scorer((float(quantile),), "all", False)
    found = np.empty(len(job))
    with phase("risk-adjusted scores", total=len(job), unit="items", enabled=progress) as shown:
        for start in range(0, len(job), _BATCH):
            at = slice(start, start + _BATCH)
            found[at] = score({name: values[at] for name, values in job.columns.items()})[3]
            shown.advance(len(found[at]))
    return pd.Series(found, job.index, name="risk_adjusted")
