"""Statistics in fewer, wider bins, made of whole bins of finer ones: no second pass over items."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._lib.errors import StatisticsError
from ..families.outcomes import OUTCOMES
from .statistics import Statistics, make_statistics

__all__ = ["coarsened", "equal_edges"]

Floats = NDArray[np.float64]


def equal_edges(stats: Statistics, bins: int) -> Floats:
    """Those edges of statistics that make about `bins` bins of equally many items.

    Parameters
    ----------
    stats
        Statistics in at least so many bins.
    bins
        Number of bins; where scores are equal there may be fewer.

    Raises
    ------
    StatisticsError
        If `bins` is not a whole number from 1 to the statistics' number of bins.
    """
    whole = isinstance(bins, int | np.integer) and not isinstance(bins, bool)
    if not whole or not 1 <= bins <= stats.bins:
        raise StatisticsError(
            f"bins={bins!r} must be a whole number from 1 to the {stats.bins:,} bins that there are"
        )
    share = np.cumsum(stats.data["n"].to_numpy())[:-1] / stats.n_items
    at = [int(np.abs(share - k / bins).argmin()) for k in range(1, bins)]
    return stats.edges[np.unique(np.array(at, dtype=np.int64))]


def coarsened(stats: Statistics, edges: ArrayLike) -> Statistics:
    """Statistics in bins made of whole bins, the same as if the items had been put into these.

    Parameters
    ----------
    stats
        The statistics; their joint cells are left out.
    edges
        Some of their edges.

    Raises
    ------
    StatisticsError
        If one of the edges is not among the statistics'.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> frame = soc.simulation.s1(2000, seed=0)
    >>> items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    >>> stats = soc.summarize(items, bins=100, progress=False)
    >>> coarsened(stats, stats.edges[9::10]).bins
    10
    """
    cuts = np.asarray(edges, dtype=float)
    strange = cuts[~np.isin(cuts, stats.edges)]
    if len(strange):
        raise StatisticsError(
            f"{len(strange)} of the {len(cuts)} edges are none of the statistics' (the first is "
            f"{strange[0]:g}): bins can only be put together whole, give some of stats.edges"
        )
    cuts = np.unique(cuts)
    # the bin behind the k-th edge is k + 1
    place = np.searchsorted(cuts, np.concatenate([[-np.inf], stats.edges]), side="right")
    tables = {}
    for name in OUTCOMES[stats.kind].tables:
        table = stats.table(name)
        if name == "joint":
            tables[name] = {column: values[:0] for column, values in table.items()}
        else:
            tables[name] = {**table, "bin": place[table["bin"]]}
    attrs = {**stats.data.attrs, "coarse": 0}
    return make_statistics(tables, stats.data["label"].to_numpy(), cuts, attrs)
