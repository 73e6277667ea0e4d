"""What the items' own outcomes add to the score: variance that is left, and the prior's share."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ..._lib.arguments import instance, whole
from ..._lib.progress import phase
from ...data.items import Items, NormalItems, PoissonItems
from ...data.statistics import Statistics
from ...inference.results import Fit
from ...posterior.predictive import Posterior, posterior_of, select
from .places import Places, check_weight, key_of, shaped, statistics_of, statistics_places, summed

__all__ = ["shrinkage", "variance_reduction"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_MOST = 1 << 31  # bins of the answer: no statistics have so many


def variance_reduction(
    fit: Fit,
    items: Items | Statistics,
    *,
    weight: Literal["items", "exposure"] = "exposure",
    bins: int = 20,
    progress: bool = True,
) -> xr.Dataset:
    """Mean squared error of E(theta|t,y) as a share of that of E(theta|t), draw by draw.

    The ratio E Var(theta|t,y) / E Var(theta|t) of Section 5.1 of Muralidharan and Najmi (Figure
    "variance gain"). By a ratio of .73 the items' own outcomes take away 27% of the mean squared
    error of ordinary calibration.

    Parameters
    ----------
    fit
        The fit.
    items
        Items, of which statistics are made in one pass, or statistics (with joint cells
        for a mixture). Sums over their cells take the place of sums over items.
    weight
        Over what means are taken: units of exposure, as in the paper, or items. Items with values
        have only the latter.
    bins
        Number of bins of about equally many items for the ratio by bin.
    progress
        Whether to show progress on standard error.

    Returns
    -------
    xarray.Dataset
        ``ratio`` (chain, draw) of the means over all items, ``ratio_by_bin`` (chain, draw, bin) of
        those in each bin, with coordinates ``score`` (mean t) and ``n_items`` of the bins. Both
        are between 0 and 1 for one Gamma or Normal on average. Where theta depends on the exposure
        the divisor is E Var(theta|t,N): what outcomes add to both.

    Raises
    ------
    FitError
        If the weight is not one of the two or is exposure for items with values, or `bins` is not
        a whole number > 0.
    ItemsError, StatisticsError
        If the items or statistics are not valid or not of the fit's kind.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> frame = soc.simulation.s1(2000, seed=0)
    >>> items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    >>> fit = soc.fit(soc.summarize(items), method=soc.FiveSteps(), progress=False)
    >>> gain = soc.quantities.variance_reduction(fit, items, bins=5, progress=False)
    >>> bool((gain["ratio"] < 1).all()), dict(gain["ratio_by_bin"].sizes)
    (True, {'chain': 1, 'draw': 1, 'bin': 5})
    """
    cells = _cells(fit, items, weight, bins)
    law = posterior_of(fit)

    def values(part: slice) -> list[Floats]:
        columns = cells.columns(part)
        some = back = np.arange(len(columns["score"]))
        if fit.prior.exposure is None:  # then cells of a place have one prior
            _, some, back = np.unique(cells.at[part], return_index=True, return_inverse=True)
        own = select(columns, some)
        before = law.curves(own["score"], own.get("group"), own[law.outcome.size])["variance"]
        return [law.moments(columns)[1], before[:, back]]

    after, before = _by_bin(fit, cells, values, progress)
    ratio = after.sum(axis=1) / before.sum(axis=1)
    return _dataset(fit, cells, {"ratio": ratio, "ratio_by_bin": after / before})


def shrinkage(
    fit: Fit,
    items: Items | Statistics,
    *,
    weight: Literal["items", "exposure"] = "items",
    bins: int = 20,
    progress: bool = True,
) -> xr.Dataset:
    """Share of the prior in the items' posterior means, draw by draw.

    For a Gamma prior E(theta|t,y) = s E(theta|t) + (1 - s) y/N with s = rate / (rate + N); for a
    Normal one s = noise_sd^2 / (noise_sd^2 + Var(theta|t)). In general 1 - s is how much the
    posterior mean moves with the item's own outcome: N [E(theta|t,y+1) - E(theta|t,y)]
    = N Var(theta|t,y) / E(theta|t,y) for counts, d E(theta|t,y)/dy = Var(theta|t,y) / noise_sd^2
    for values; for a mixture s depends on y, and is negative where the posterior mean moves by more
    than the outcome.

    Parameters
    ----------
    fit, items, bins, progress
        As of `variance_reduction`.
    weight
        Over what means are taken: items, or units of exposure.

    Returns
    -------
    xarray.Dataset
        ``share`` (chain, draw), the mean of s over all items, and ``share_by_bin``
        (chain, draw, bin), with coordinates ``score`` and ``n_items``.

    Raises
    ------
    FitError, ItemsError, StatisticsError
        As of `variance_reduction`.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> frame = soc.simulation.s1(2000, seed=0)
    >>> items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    >>> fit = soc.fit(soc.summarize(items), method=soc.FiveSteps(), progress=False)
    >>> share = soc.quantities.shrinkage(fit, items, progress=False)["share"]
    >>> bool(((share > 0) & (share < 1)).all())
    True
    """
    cells = _cells(fit, items, weight, bins)
    law = posterior_of(fit)

    def values(part: slice) -> list[Floats]:
        columns = cells.columns(part)
        mean, variance = law.moments(columns)
        size = columns[law.outcome.size]
        moves = size * variance / mean if law.outcome.observed == "count" else variance / size**2
        return [1.0 - moves]

    (total,) = _by_bin(fit, cells, values, progress)
    weights = np.bincount(cells.bin_of, cells.weight)
    found = {"share": total.sum(axis=1) / weights.sum(), "share_by_bin": total / weights}
    return _dataset(fit, cells, found)


@dataclass(frozen=True)
class _Cells:
    """Cells of items at places, as weighted items.

    Attributes
    ----------
    places, at
        Places, and that of each cell.
    own
        Outcome and size of each cell, by role.
    weight
        Items or exposure of each cell.
    bin_of
        Bin of the answer of each cell.
    score, n_items
        Mean score and items of the answer's bins.
    """

    places: Places
    at: Ints
    own: Mapping[str, Floats]
    weight: Floats
    bin_of: Ints
    score: Floats
    n_items: Ints

    def columns(self, part: slice) -> dict[str, NDArray[Any]]:
        """Some cells as laws read them."""
        at = self.at[part]
        found: dict[str, NDArray[Any]] = {name: x[part] for name, x in self.own.items()}
        found["score"] = self.places.score[at]
        if self.places.label is not None:
            found["group"] = self.places.label[at]
        return found


def _cells(fit: Fit, items: Items | Statistics, weight: str, bins: int) -> _Cells:
    """Cells of the items, in as many bins of equal items."""
    check_weight(fit, weight)
    wanted = "soc.PoissonItems(...) or soc.NormalItems(...), or their statistics"
    instance(items, "items", PoissonItems | NormalItems | Statistics, wanted)
    bins = min(whole(bins, "bins", 1), _MOST)
    law = posterior_of(fit)
    mixed = type(fit.prior).__name__.endswith("Mixture")
    stats = items if isinstance(items, Statistics) else statistics_of(fit, items)
    coarse = max(stats.coarse, 1) if mixed else 1
    places, key = statistics_places(fit, stats, coarse)
    if mixed:
        stats.cells("joint")  # says what to do where there are none
    name = "joint" if mixed else "exposure" if law.outcome.size == "exposure" else "noise"
    table = stats.table(name)
    at = np.searchsorted(key, key_of(fit, table, table["bin"]))
    own, weights = _at_means(table, law, weight)
    both = (2 * at[:, None] + np.arange(2)).ravel()
    of = _equal_parts(places, bins)
    share = np.bincount(of, places.items)
    mean = np.bincount(of, places.items * places.score) / share
    return _Cells(
        places,
        both,
        {role: np.repeat(x, 2) for role, x in own.items()},
        np.repeat(weights, 2) / 2,
        of[both],
        mean,
        np.round(share).astype(np.int64),
    )


def _at_means(
    table: Mapping[str, NDArray[Any]], law: Posterior, weight: str
) -> tuple[dict[str, Floats], Floats]:
    """Mean outcome and size of cells, weighted alike, and their weights."""
    n = table["n"].astype(float)
    if law.outcome.observed == "value":
        size = np.sqrt(table["sum_w"] / n)
        return {"value": table["sum_y"] / n, "noise_sd": size}, n
    if weight == "items":
        return {"count": table["sum_y"] / n, "exposure": table["sum_N"] / n}, n
    total = table["sum_N"]
    some = np.where(total > 0, total, 1.0)
    return {"count": table["sum_yN"] / some, "exposure": table["sum_N2"] / some}, total


def _equal_parts(places: Places, bins: int) -> Ints:
    """Bins of about equal items for the answer, made of whole bins; none is empty."""
    at = np.unique(places.bin, return_inverse=True)[1]
    n = np.bincount(at, places.items)
    middle = (np.cumsum(n) - 0.5 * n) / n.sum()
    part = np.minimum((middle * bins).astype(np.int64), bins - 1)
    return np.asarray(np.unique(part, return_inverse=True)[1][at], dtype=np.int64)


def _by_bin(fit: Fit, cells: _Cells, values: Any, progress: bool) -> list[Floats]:
    """Weighted sums in the answer's bins."""
    with phase("posterior variances", total=len(cells.at), unit="cells", enabled=progress) as shown:

        def counted(part: slice) -> list[Floats]:
            found: list[Floats] = values(part)
            shown.advance(part.stop - part.start)
            return found

        return summed(fit, cells.weight, cells.bin_of, len(cells.score), counted)


def _dataset(fit: Fit, cells: _Cells, found: Mapping[str, Floats]) -> xr.Dataset:
    posterior = fit.data["posterior"]
    coords = {name: posterior[name].to_numpy() for name in ("chain", "draw")}
    bins = {"score": ("bin", cells.score), "n_items": ("bin", cells.n_items)}
    return xr.Dataset({name: shaped(fit, x) for name, x in found.items()}, {**coords, **bins})
