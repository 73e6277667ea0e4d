"""Histograms of the PIT by bin of the score, the paper's p-histograms."""

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from .._lib.arguments import real, refuse_beyond_memory, whole
from .._lib.errors import FitError
from ..checks.predictive import predictive_cdf, randomised_pit
from ..data.items import Items
from ..inference.results import Fit
from ..posterior.item_columns import read_items
from ..posterior.predictive import posterior_of
from .gains import score_bins
from .thinning import stream

__all__ = ["pit_densities", "pit_histograms"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def pit_histograms(
    fit: Fit,
    items: Items,
    *,
    bins: int = 20,
    least_size: float = 0.0,
    cells: int = 20,
    seed: int = 0,
    progress: bool = True,
) -> xr.Dataset:
    """Histograms of the randomised PIT of outcomes, by bin of the score (Section 5.1).

    Every outcome is put through its predictive cdf given the score, averaged over the curves'
    uncertainty, with randomisation between P(Y < y) and P(Y <= y). If the model is right each
    histogram is flat but for noise: its cells have variance cells / n_items. Small exposures make
    flat histograms whatever the model is: `least_size` leaves them out.

    Parameters
    ----------
    fit
        The fit.
    items
        Those of the fit or others, of the same kind.
    bins
        Bins of the score, with equal numbers of items; fewer where scores are tied. They do not
        depend on `least_size`.
    least_size
        Items with a smaller exposure are left out; of counts alone.
    cells
        Cells of each histogram, from 0 to 1.
    seed
        Seed of the randomisation.
    progress
        Whether long work shows its progress.

    Returns
    -------
    xarray.Dataset
        ``density`` (bin, p), 1 where flat and NaN in bins without items; ``n_items`` (bin); and
        coordinates ``score`` (bin), the mean score, and ``p``, the middles of the cells.

    Raises
    ------
    FitError
        If `least_size` is given for values, `bins` or `cells` is not positive, or there are more
        cells than memory holds.
    ItemsError
        If the items are not valid or not of the fit's kind.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> frame = soc.simulation.s1(2000, seed=0)
    >>> items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    >>> fit = soc.fit(soc.summarize(items, progress=False), progress=False)
    >>> found = soc.evaluate.pit_histograms(fit, items, bins=5, cells=10, progress=False)
    >>> dict(found["density"].sizes)
    {'bin': 5, 'p': 10}
    """
    whole(bins, "bins", 1)
    whole(cells, "cells", 1)
    whole(seed, "seed", 0)
    real(least_size, "least_size", above=-1)
    law = posterior_of(fit)
    if least_size and not law.outcome.whole:
        raise FitError(
            f"least_size={least_size} is of exposures, and these items have values with noise sds: "
            "choose among them before"
        )
    columns, _ = read_items(fit, law, items, (), progress)
    pit = randomised_pit(*predictive_cdf(law, columns, progress=progress), stream(seed, "PIT"))
    bin_of, score = score_bins(columns["score"], bins)
    refuse_beyond_memory(24.0 * cells * len(score), f"cells={cells:,}", "ask for fewer")
    kept = columns[law.outcome.size] >= least_size
    density, n_items = pit_densities(pit[kept], bin_of[kept], len(score), cells)
    coords = {"score": ("bin", score), "p": (np.arange(cells) + 0.5) / cells}
    return xr.Dataset(
        {"density": (("bin", "p"), density), "n_items": ("bin", n_items)},
        {"bin": np.arange(len(score)), **coords},
    )


def pit_densities(pit: Floats, bin_of: Ints, bins: int, cells: int) -> tuple[Floats, Ints]:
    """Densities of histograms of PIT values, (bins, cells), and the number of items in each.

    Examples
    --------
    >>> pit_densities(np.array([0.1, 0.2, 0.9]), np.array([0, 0, 1]), 2, 2)
    (array([[2., 0.],
           [0., 2.]]), array([2, 1]))
    """
    cell = np.minimum((pit * cells).astype(np.int64), cells - 1)
    number = np.bincount(bin_of * cells + cell, minlength=bins * cells).reshape(bins, cells)
    n_items = number.sum(axis=1)
    density = np.full((bins, cells), np.nan)
    some = n_items > 0
    density[some] = cells * number[some] / n_items[some, None]
    return density, n_items
