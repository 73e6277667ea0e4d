"""What the model reads of statistics: bins' histograms, and the curves' design at the bins."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .errors import FitError
from .families import histograms as hist
from .pilot import CurveDesign
from .priors import Spline
from .splines import Axis, Basis, make_basis, spline_matrix
from .statistics import Statistics

__all__ = ["CV2_LEVEL", "Curve", "bin_histograms", "make_curve", "position_variances", "positions"]

Floats = NDArray[np.float64]

# (mean, sd) of level and slope where Spline leaves them open; see docs/inference.md
CV2_LEVEL = (float(np.log(0.3)), 2.0)
_CV2_SLOPE = (0.0, 1.0)
_COUNT_SUMS = ("n", "sum_y", "sum_y2", "sum_y3")
_EXPOSURE_SUMS = ("n", "sum_N", "sum_N2", "sum_N3", "sum_y", "sum_yN", "sum_yN2", "sum_yN3")


@dataclass(frozen=True)
class Curve:
    """One curve of the model: its name, axis, basis, and design at the bins."""

    name: str
    axis: Axis
    basis: Basis
    design: CurveDesign


def bin_histograms(stats: Statistics, occupied: NDArray[np.intp]) -> hist.Histograms:
    """Histograms of the occupied bins, as the likelihood reads them."""
    number = np.full(stats.bins, -1)
    number[occupied] = np.arange(len(occupied))
    counts, exposures = (stats.cells(over) for over in ("count", "exposure"))
    return hist.make_histograms(
        len(occupied),
        (number[counts["bin"]], *(counts[c].astype(float) for c in _COUNT_SUMS)),
        (number[exposures["bin"]], *(exposures[c].astype(float) for c in _EXPOSURE_SUMS)),
        stats.data["sum_y_log_N"].to_numpy()[occupied],
    )


def _axis(spline: Spline, stats: Statistics) -> Axis:
    """The curve's axis; scores at or below 0 are refused on the log scale."""
    data = stats.data
    if spline.scale == "log" and float(data["score_min"].min()) <= 0:
        low = data["score_min"].to_numpy()
        raise FitError(
            f"{int((low <= 0).sum())} of {stats.bins} bins hold scores at or below 0 (smallest: "
            f"{np.nanmin(low):g}), which have no logarithm: use soc.Gamma(mean=soc.Spline("
            'scale="rank"), variance=soc.Spline(scale="rank")) or scale="linear", or floor these '
            "scores at a small positive number"
        )
    if spline.scale != "rank":
        return Axis(spline.scale)
    n = data["n"].to_numpy()
    score = np.concatenate(
        [[np.nanmin(data["score_min"])], stats.edges, [np.nanmax(data["score_max"])]]
    )
    fraction = np.concatenate([[0.0], np.cumsum(n) / n.sum()])
    rising = np.concatenate([[True], (np.diff(score) > 0) & (np.diff(fraction) > 0)])
    return Axis("rank", tuple(score[rising].tolist()), tuple(fraction[rising].tolist()))


def positions(axis: Axis, stats: Statistics, occupied: NDArray[np.intp]) -> Floats:
    """Average position of each bin's items on the axis."""
    data = stats.data
    n = data["n"].to_numpy()
    if axis.scale == "log":
        return np.asarray((data["sum_log_t"].to_numpy() / np.maximum(n, 1))[occupied])
    if axis.scale == "linear":
        return np.asarray((data["sum_t"].to_numpy() / np.maximum(n, 1))[occupied])
    return np.asarray(((np.cumsum(n) - 0.5 * n) / n.sum())[occupied])


def position_variances(axis: Axis, stats: Statistics, occupied: NDArray[np.intp]) -> Floats:
    """Variance of the positions of each bin's items on the axis."""
    data = stats.data
    n = data["n"].to_numpy()
    if axis.scale == "rank":
        return np.asarray(((n / n.sum()) ** 2 / 12.0)[occupied])
    first, second = (
        (data[name].to_numpy() / np.maximum(n, 1))[occupied]
        for name in (("sum_log_t", "sum_log_t2") if axis.scale == "log" else ("sum_t", "sum_t2"))
    )
    variance = second - first**2
    # below the rounding of the sums it is that of equal scores, 0
    return np.where(variance > 1e-12 * second, variance, 0.0)


def make_curve(name: str, spline: Spline, stats: Statistics, occupied: NDArray[np.intp]) -> Curve:
    """A curve's basis and design, with the priors of its level and slope."""
    axis = _axis(spline, stats)
    u = positions(axis, stats, occupied)
    weight = stats.data["n"].to_numpy()[occupied].astype(float)
    basis = make_basis(u, weight, spline.knots)
    at_bins = spline_matrix(u, basis.knots)
    on_log = axis.scale == "log"
    if name == "mean":
        level = spline.level or ((basis.centre, 5.0) if on_log else (0.0, 10.0))
        slope = spline.slope or ((1.0, 1.0) if on_log else (0.0, 2.0))
    else:
        level, slope = spline.level or CV2_LEVEL, spline.slope or _CV2_SLOPE
    spread = float(np.sqrt(np.average((u - basis.centre) ** 2, weights=weight)))
    unit = 1.0 if on_log or spread == 0 else spread
    line = at_bins @ basis.line
    lines = line.shape[1]
    mean = np.array([level[0], slope[0] / unit])[:lines]
    sd = np.array([level[1], slope[1] / unit])[:lines]
    return Curve(
        name, axis, basis, CurveDesign(line, at_bins @ basis.wiggle, mean, sd, spline.wiggle)
    )
