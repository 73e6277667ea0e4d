"""What a fit keeps of its bins: scores, sizes, and what was observed in them."""

from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ..data.statistics import Statistics
from ..model.rows import make_rows, positions
from ..model.splines import Axis

__all__ = ["bin_table", "rank_table"]

Floats = NDArray[np.float64]


def bin_table(stats: Statistics, axis: Axis, observed: str) -> tuple[xr.Dataset, xr.Dataset]:
    """The occupied bins of all groups together, and what was observed in them.

    Parameters
    ----------
    stats
        The statistics.
    axis
        Of the mean's curve, on which scores are averaged.
    observed
        ``"count"`` or ``"value"``.
    """
    data = stats.data
    at = np.flatnonzero(data["n"].to_numpy() > 0)
    n = data["n"].to_numpy()[at]
    columns: dict[str, NDArray[Any]] = {
        "score": axis.inverse(positions(axis, make_rows(stats, (), "N", False, False)[0])),
        "score_min": data["score_min"].to_numpy()[at],
        "score_max": data["score_max"].to_numpy()[at],
        "score_sd": _sd(stats, "sum_t", at),
        "log_score_sd": _sd(stats, "sum_log_t", at),
        "n_items": n,
    }
    total = data["sum_y"].to_numpy()[at]
    if observed == "count":
        columns["exposure"] = data["sum_N"].to_numpy()[at]
        seen = total
    else:
        columns["noise_sd"] = np.sqrt(data["sum_s2"].to_numpy()[at] / n)
        seen = total / n
    bins = xr.Dataset({name: ("bin", values) for name, values in columns.items()})
    return bins, xr.Dataset({observed: ("bin", seen)})


def _sd(stats: Statistics, name: str, at: NDArray[np.intp]) -> Floats:
    """Standard deviation inside each bin of what was summed, NaN where it has no sums."""
    n, first, second = (stats.data[k].to_numpy()[at] for k in ("n", name, f"{name}2"))
    mean, square = first / n, second / n
    variance = square - mean**2
    # below the rounding of the sums it is that of equal scores, 0
    return np.sqrt(np.where(variance <= 1e-12 * square, 0.0, variance))


def rank_table(axis: Axis) -> xr.Dataset:
    """What `Fit.axis` needs of an axis of ranks; nothing of others."""
    if axis.scale != "rank":
        return xr.Dataset()
    return xr.Dataset(
        {
            "rank_score": ("rank", np.asarray(axis.score)),
            "rank_fraction": ("rank", np.asarray(axis.fraction)),
        }
    )
