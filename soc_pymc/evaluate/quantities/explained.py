"""How much of the variance of theta the score explains: R-squared of the paper's Section 5.1."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ..._lib.arguments import instance
from ..._lib.errors import StatisticsError
from ...data.statistics import Statistics
from ...inference.results import Fit
from ...posterior.predictive import posterior_of, select
from .places import (
    Places,
    centre_of,
    check_weight,
    fit_places,
    key_of,
    shaped,
    statistics_places,
    summed,
)

__all__ = ["r_squared", "variance_parts"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_CLASS = 3  # cells of sizes are 16 an octave: 2^3 of them make a class


def r_squared(
    fit: Fit, stats: Statistics | None = None, *, weight: Literal["items", "exposure"] = "items"
) -> xr.DataArray:
    """Share of the variance of theta that the score explains, draw by draw.

    R^2 = 1 - E Var(theta|t) / (Var E(theta|t) + E Var(theta|t)), with means and variances over
    items: Section 5.1 of Muralidharan and Najmi. It is 0 for a score that says nothing of theta and
    1 for one that determines it, whatever the noise of the outcomes; a calibrated score and the
    score itself have the same.

    Parameters
    ----------
    fit
        The fit, which keeps what is needed of its bins.
    stats
        Statistics of other items to take means over; of a fit with groups, any: the group then
        counts as part of the score.
    weight
        Over what means are taken: items, or units of exposure.

    Returns
    -------
    xarray.DataArray
        Dims (chain, draw), no unit.

    Raises
    ------
    FitError
        If the weight is not one of the two, or is exposure for items with values; if the fit has
        groups and no statistics are given.
    StatisticsError
        If the statistics are of other columns, or have no groups and the fit has.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> frame = soc.simulation.s1(2000, seed=0)
    >>> items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    >>> fit = soc.fit(soc.summarize(items), progress=False)
    >>> dict(soc.quantities.r_squared(fit).sizes)
    {'chain': 1, 'draw': 1000}
    """
    return variance_parts(fit, stats, weight=weight)["r_squared"]


def variance_parts(
    fit: Fit, stats: Statistics | None = None, *, weight: Literal["items", "exposure"] = "items"
) -> xr.Dataset:
    """Variance of theta between scores and at equal scores, draw by draw.

    Parameters
    ----------
    fit, stats, weight
        As of `r_squared`.

    Returns
    -------
    xarray.Dataset
        Dims (chain, draw): ``explained`` = Var E(theta|t), in squared events per unit of exposure
        (the squared unit of values); ``unexplained`` = E Var(theta|t), the accuracy of the
        calibrated score: its mean squared error; their sum ``total`` = Var(theta); ``r_squared``.
        Scores differ within bins too: their spread there counts. Where theta depends on the
        exposure, what it explains at equal scores is part of the unexplained.

    Raises
    ------
    FitError, StatisticsError
        As of `r_squared`.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> frame = soc.simulation.s1(2000, seed=0)
    >>> items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    >>> fit = soc.fit(soc.summarize(items), method=soc.FiveSteps(), progress=False)
    >>> parts = soc.quantities.variance_parts(fit).mean()
    >>> bool(parts["explained"] + parts["unexplained"] == parts["total"])
    True
    """
    instance(fit, "fit", Fit, "a fit, from soc.fit or soc.load_fit")
    if stats is not None:
        instance(stats, "stats", Statistics, "statistics, from soc.summarize", StatisticsError)
    check_weight(fit, weight)
    points = _points_of_fit(fit) if stats is None else _points_of_statistics(fit, stats)
    explained, unexplained = _two_parts(fit, points, weight)
    total = explained + unexplained
    found = {
        "explained": explained,
        "unexplained": unexplained,
        "total": total,
        "r_squared": explained / total,
    }
    posterior = fit.data["posterior"]
    coords = {name: posterior[name].to_numpy() for name in ("chain", "draw")}
    return xr.Dataset({name: shaped(fit, values) for name, values in found.items()}, coords)


@dataclass(frozen=True)
class _Points:
    """Places, and where theta depends on them, sizes of items there.

    Attributes
    ----------
    places
        The places.
    at
        Place of each point.
    size
        Exposure (noise sd) of each point; None where it is of no matter.
    share
        Items of each point as a share of its place's, and the same of exposure.
    """

    places: Places
    at: Ints
    size: Floats | None
    share: dict[str, Floats]

    @property
    def columns(self) -> dict[str, NDArray[Any]]:
        """Scores, and groups and sizes where these matter, of the points."""
        found: dict[str, NDArray[Any]] = {"score": self.places.score[self.at]}
        if self.places.label is not None:
            found["group"] = self.places.label[self.at]
        if self.size is not None:
            found["size"] = self.size
        return found


def _plain(places: Places) -> _Points:
    n = len(places.score)
    return _Points(places, np.arange(n), None, dict.fromkeys(("items", "exposure"), np.ones(n)))


def _points_of_fit(fit: Fit) -> _Points:
    """Of the fit's own bins; sizes are distributed as in its parts of the score."""
    places = fit_places(fit)
    if fit.prior.exposure is None:
        return _plain(places)
    kept = fit.data["constant_data"]
    middle, log_size = (kept[c].to_numpy() for c in ("share_position", "share_log_size"))
    position = fit.axis("mean")(places.score)
    share = np.array([np.interp(position, middle, x) for x in kept["share"].to_numpy().T]).T
    at = np.repeat(np.arange(len(places.score)), len(log_size))
    size = np.tile(np.exp(log_size), len(places.score))
    large = share * np.exp(log_size)
    both = {"items": share, "exposure": large / large.sum(axis=1, keepdims=True)}
    return _Points(places, at, size, {name: x.ravel() for name, x in both.items()})


def _points_of_statistics(fit: Fit, stats: Statistics) -> _Points:
    """Of the bins of statistics; sizes in classes of half an octave in each."""
    places, key = statistics_places(fit, stats)
    if fit.prior.exposure is None:
        return _plain(places)
    law = posterior_of(fit)
    name, total = ("exposure", "sum_N") if law.outcome.size == "exposure" else ("noise", "sum_w")
    table = stats.table(name)
    k = np.searchsorted(key, key_of(fit, table, table["bin"]))
    size_class = table["cell"] >> _CLASS
    low = size_class.min()
    wide = int(size_class.max() - low) + 1
    point, row = np.unique(k * wide + size_class - low, return_inverse=True)
    n, sizes = (np.bincount(row, table[c]) for c in ("n", total))
    of, mean = point // wide, sizes / n
    size = mean if law.outcome.size == "exposure" else np.sqrt(mean)
    share = {
        "items": n / np.bincount(of, n)[of],
        "exposure": sizes / np.maximum(np.bincount(of, sizes), np.finfo(float).tiny)[of],
    }
    both = (2 * of[:, None] + np.arange(2)).ravel()
    twice = {c: np.repeat(x, 2) for c, x in share.items()}
    return _Points(places, both, np.repeat(size, 2), twice)


def _two_parts(fit: Fit, points: _Points, weight: str) -> tuple[Floats, Floats]:
    """Explained and unexplained variance, (draws,) each."""
    law, places, columns = posterior_of(fit), points.places, points.columns
    centre = centre_of(law, columns)

    def values(part: slice) -> list[Floats]:
        own = select(columns, part)
        curves = law.curves(own["score"], own.get("group"), own.get("size"))
        away = curves["mean"] - centre
        return [away, away**2, curves["variance"]]

    number = len(places.score)
    # first over the sizes at each place, then over places
    mean, square, variance = summed(fit, points.share[weight], points.at, number, values)
    share = places.weight(weight) / places.weight(weight).sum()
    unexplained = (variance + np.maximum(square - mean**2, 0.0)) @ share
    middle = mean @ share
    return (mean - middle[:, None]) ** 2 @ share, unexplained
