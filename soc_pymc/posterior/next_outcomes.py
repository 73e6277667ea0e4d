"""Intervals of the next outcome of each item."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from .._lib.arguments import per_item
from .._lib.arrays import Columns, Floats
from .._lib.errors import FitError
from .._lib.work import long_work
from ..data.items import Items, check_items
from ..fits.fit import Fit
from ..prior_table import quantile_name
from .averages import further_quantiles
from .item_columns import in_chunks, read_items, refuse_weighted
from .predictive import posterior_of
from .scoring import probabilities

_ITEMS_AT_ONCE = 10_000
_NEXT_SIZE = "next size"


@long_work
def predictive_intervals(
    fit: Fit,
    items: Items,
    *,
    exposure: ArrayLike | None = None,
    quantiles: Sequence[float] = (0.05, 0.95),
    progress: bool | None = None,
) -> pd.DataFrame:
    """Return quantiles of the next outcome of every item, in a new exposure.

    The next outcome has theta given the score, and the item's outcome if it has one, averaged over
    the curves' uncertainty, and noise of its own.

    Parameters
    ----------
    fit : Fit
        The fit.
    items : PoissonItems, NormalItems or BinomialItems
        Items of the fit's kind, with outcomes or without. Those without exposures have the next
        one.
    exposure : float, array_like, shape (n,), or None
        Exposure (noise sd, trials) of the next outcome. None is that of the item's own outcome.
    quantiles : Sequence[float]
        Probabilities of the quantiles, each between 0 and 1.
    progress : bool or None
        Whether to show progress.

    Returns
    -------
    pandas.DataFrame
        A row for each item, in order: its quantiles, such as ``count_q05``, and ``p_inside``, the
        probability of an outcome from the smallest to the largest of them, both included. A
        quantile of counts is the smallest whose cumulative probability is at least the one asked
        for, so an interval of counts holds more than its nominal probability.

    Raises
    ------
    ItemsError, FitError
        If the items are not valid or not of the fit's kind, or an exposure is missing or not valid.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> ahead = soc.predictive_intervals(fit, items, exposure=100.0)
    >>> list(ahead.columns)
    ['count_q05', 'count_q95', 'p_inside']
    >>> bool((ahead["p_inside"] >= 0.9).all())
    True
    """
    probs = probabilities(quantiles)
    posterior = posterior_of(fit)
    posterior.check_distribution()
    outcome = posterior.outcome
    columns, _ = read_items(posterior.curves, items, check=check_items)
    refuse_weighted(items)
    n = len(columns["score"])
    if exposure is not None:
        size = per_item(exposure, "exposure", n)
    elif outcome.size in columns:
        size = columns[outcome.size]
    else:
        raise FitError(
            f"the {outcome.words.size} of the next outcome is missing: give exposure="
        )
    if not outcome.validity.size.hold(size):
        raise FitError(f"exposure= of next outcomes: {outcome.validity.size.needs}")
    columns = {outcome.size: size, **columns, _NEXT_SIZE: size}

    def rows(part: Columns) -> Floats:
        known = {name: x for name, x in part.items() if name != _NEXT_SIZE}
        values, inside = further_quantiles(posterior, known, part[_NEXT_SIZE], probs)
        return np.vstack([values, inside])

    *values, inside = in_chunks(rows, _ITEMS_AT_ONCE, columns, "next outcomes")
    names = [quantile_name(p).replace("theta", outcome.observed) for p in probs]
    return pd.DataFrame(dict(zip(names, values, strict=True)) | {"p_inside": inside})
