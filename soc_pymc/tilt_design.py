"""What a mixture reads of statistics: merged bins around the pilot's frame, cells, and the tilt.

The tilt is J smooth functions of the component's position z, each with a coefficient that is itself
a smooth function of the score: log w_r(t) = base_r(t) + sum_j phi_j(z_r, t) eta_j(t).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .designs import Curve
from .errors import FitError
from .families import components as parts
from .families.components import Frame, MixtureCells
from .priors import GammaMixture, NormalMixture
from .rows import Rows
from .splines import make_basis, spline_matrix
from .statistics import Statistics

__all__ = [
    "MergedBins",
    "TiltDesign",
    "frame_at",
    "joint_cells",
    "make_cells",
    "make_tilt",
    "merged",
    "tilt_basis",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# bins merge while the frame hardly changes between them, and no further than to so many
_MOST_SHIFT, _MOST_STRETCH, _FEWEST_BINS = 0.2, 0.15, 40
_CENTRE = 4.0  # the tilt is a cubic spline over |z| below it, and linear beyond
_CENTRE_SD = 2.0  # its knots follow a Normal of this sd
_SPLIT = 1e-3  # nats: a cell of several values becomes two points where it matters as much
# prior sd of the coefficients whose size is not learnt: the path from Normal (0) to Gamma (1), z
_PATH, _PATH_SD, _TILT_SD = 1.0, 0.5, 1.0
_LEAN, _FEW = 0.5, 2  # functions but the first ones drift less, and by the smoothest ways alone


@dataclass(frozen=True)
class MergedBins:
    """Bins of the likelihood, each of one or more occupied bins of the statistics.

    Attributes
    ----------
    of
        (bins of the statistics,): merged bin of each, -1 where it is empty.
    items
        (bins,): number of items.
    score, position
        (bins,): mean position on the axis of the mean, and the score there.
    frame
        Location and spread at the bins.
    spread
        (bins,): variance of the items' own locations around the bin's.
    """

    of: Ints
    items: Floats
    score: Floats
    position: Floats
    frame: Frame
    spread: Floats


@dataclass(frozen=True)
class TiltDesign:
    """The tilt's linear model: coefficients -> its J functions' values at bins and at knots.

    Attributes
    ----------
    z
        (R,): positions of the components.
    functions
        (R, J): functions of z; the first column is 0 for counts, where the path to the Gamma stands
        for it, which depends on the score.
    labels
        Names of the J functions.
    knots
        (K,): positions on the axis of the mean.
    at_knots, at_bins
        (K J, p) and (bins J, p): values of the tilt, functions fastest.
    group
        (p,): 0 for coefficients with priors of their own, 1 for those of the shape that all scores
        share, 2 for its drift with the score.
    mean, sd
        (p of group 0,): their Normal priors.
    """

    z: Floats
    functions: Floats
    labels: tuple[str, ...]
    knots: Floats
    at_knots: Floats
    at_bins: Floats
    group: Ints
    mean: Floats
    sd: Floats

    def tilt(self, coefficients: Floats) -> Floats:
        """Tilt at the bins, (bins, J)."""
        return np.asarray((self.at_bins @ coefficients).reshape(-1, len(self.labels)))


def frame_at(kind: str, first: Floats, second: Floats) -> Frame:
    """Frame of the pilot's two curves."""
    make = parts.count_frame if kind == "poisson" else parts.value_frame
    return make(first, second)


def merged(
    kind: str,
    stats: Statistics,
    rows: Rows,
    curve: Curve,
    values: tuple[Floats, Floats],
    within: Floats,
    position: Floats,
) -> MergedBins:
    """Neighbouring bins merged while their components hardly differ.

    Parameters
    ----------
    kind
        "poisson" or "normal".
    stats, rows
        The statistics and their bins that hold items.
    curve
        The pilot's curve of the mean.
    values
        Both of the pilot's curves at the occupied bins.
    within
        Variance of the items' own locations within each occupied bin.
    position
        Of the occupied bins on the axis of the mean.
    """
    fine = frame_at(kind, *values)
    occupied, n = rows.bin, rows.n.astype(float)
    log_spread = np.log(fine.spread)
    code = np.empty(len(n), dtype=np.int64)
    step = max(stats.coarse, 1)
    edges = np.flatnonzero(np.diff(occupied // step, prepend=-1))
    blocks = np.split(np.arange(len(n)), edges[1:])
    current: NDArray[np.intp] = blocks[0]
    number = 0
    for block in blocks[1:]:
        tried = np.concatenate([current, block])
        share = n[tried] / n[tried].sum()
        centre = share @ fine.location[tried]
        shift = share @ (within[tried] + (fine.location[tried] - centre) ** 2)
        same = (
            shift <= _MOST_SHIFT**2 * np.exp(2.0 * share @ log_spread[tried])
            and np.ptp(log_spread[tried]) <= _MOST_STRETCH
            and n[tried].sum() <= n.sum() / _FEWEST_BINS
        )
        code[current] = number
        number += not same
        current = tried if same else block
    code[current] = number

    def mean(x: Floats) -> Floats:
        return np.bincount(code, n * x) / np.bincount(code, n)

    location = mean(fine.location)
    spread = mean(within + (fine.location - location[code]) ** 2)
    if kind == "poisson":
        # exp(mean log) of shapes and spreads alike: they are functions of one another
        own = np.exp(mean(np.log(fine.own)))
        frame = Frame(location, parts.spread_of(own), own)
    else:
        frame = Frame(location, np.exp(mean(log_spread)), np.zeros(len(location)))
    of = np.full(stats.bins, -1)
    of[occupied] = code
    at = mean(position)
    return MergedBins(of, np.bincount(code, n), curve.axis.inverse(at), at, frame, spread)


def _points(
    kind: str, cells: Mapping[str, NDArray[Any]], sharpness: Floats
) -> tuple[Ints, tuple[Floats, Floats], Floats]:
    """Cells as weighted points: row of the cell, the two data, and number of items.

    A cell of several values stands as two points that keep its means and, in the direction in
    which the likelihood bends (the ratio of count and exposure; the value), its variance.
    """
    n = cells["n"].astype(float)
    if kind == "poisson":
        y, size = cells["sum_y"] / n, cells["sum_N"] / n
        vy, vn = cells["sum_y2"] / n - y**2, cells["sum_N2"] / n - size**2
        cov = cells["sum_yN"] / n - y * size
        bend = 1.0 / np.maximum(y, 1e-9), -1.0 / np.maximum(size, 1e-300)
        bend = np.where(y > 0, bend[0], 0.0), bend[1]
    else:
        y, size = cells["sum_y"] / n, cells["sum_w"] / n
        vy, vn = cells["sum_y2"] / n - y**2, cells["sum_w2"] / n - size**2
        cov, bend = np.zeros_like(n), (1.0 / np.sqrt(np.maximum(size, 1e-300)), np.zeros_like(n))
    vy, vn = np.maximum(vy, 0.0), np.maximum(vn, 0.0)
    along = vy * bend[0] + cov * bend[1], cov * bend[0] + vn * bend[1]
    variance = along[0] * bend[0] + along[1] * bend[1]
    wide = 0.5 * n * variance * sharpness > _SPLIT
    root = np.sqrt(variance[wide])
    dy, dn = along[0][wide] / root, along[1][wide] / root
    dn = np.clip(dn, -size[wide], size[wide])
    if kind == "poisson":
        dy = np.clip(dy, -y[wide], y[wide])
    first = np.concatenate([y[~wide], y[wide] + dy, y[wide] - dy])
    second = np.concatenate([size[~wide], size[wide] + dn, size[wide] - dn])
    row = np.flatnonzero(wide)
    rows = np.concatenate([np.flatnonzero(~wide), row, row])
    return rows, (first, second), np.concatenate([n[~wide], n[wide] / 2, n[wide] / 2])


def make_cells(
    kind: str, cells: Mapping[str, NDArray[Any]], bins: MergedBins, coarse: int, z: Floats
) -> MixtureCells:
    """Joint cells as the likelihood reads them.

    Parameters
    ----------
    kind
        "poisson" or "normal".
    cells
        Columns of the joint cells.
    bins
        Merged bins.
    coarse
        Bins of the statistics in one bin of the joint cells.
    z
        Positions of the components.
    """
    # an occupied bin of the joint cells may begin with empty ones
    wide = np.maximum.reduceat(bins.of, np.arange(0, len(bins.of), max(coarse, 1)))
    bin_of = wide[cells["bin"]]
    variance = bins.frame.width(bins.spread)
    n = cells["n"].astype(float)
    if kind == "poisson":
        shape = parts.inverse_trigamma(variance)[bin_of]
        expected = cells["sum_y"] / n + 1.0
        sharpness = shape * expected / (shape + expected)
    else:
        noise = cells["sum_w"] / n
        sharpness = noise / (noise + variance[bin_of])
    row, data, items = _points(kind, cells, sharpness)
    order = np.argsort(bin_of[row], kind="stable")
    row, items, b = row[order], items[order], bin_of[row][order]
    start = np.concatenate([[0], np.cumsum(np.bincount(b, minlength=len(bins.items)))])
    location = bins.frame.location[:, None] + bins.frame.spread[:, None] * z
    log_density = parts.count_log_density if kind == "poisson" else parts.value_log_density
    density = np.empty((len(b), len(z)), dtype=np.float32)
    constant = np.zeros(len(bins.items))
    for k in range(len(bins.items)):
        at = slice(start[k], start[k + 1])
        here = b[at]
        found = log_density(data[0][order][at], data[1][order][at], location[here], variance[here])
        top = found.max(axis=1)
        density[at] = np.exp(found - top[:, None])
        constant[k] = items[at] @ top
    return MixtureCells(
        np.empty((0, 0)), np.empty((0, 0, 0)), start.astype(np.int64), items, density, constant
    )


def make_tilt(kind: str, prior: GammaMixture | NormalMixture, bins: MergedBins) -> TiltDesign:
    """Functions of the tilt and their drift with the score, in coordinates of equal prior scale."""
    z = parts.grid(kind)
    centre = z[np.abs(z) <= _CENTRE]
    over = make_basis(centre, np.exp(-0.5 * (centre / _CENTRE_SD) ** 2), prior.functions)
    wiggles = (spline_matrix(z, over.knots) @ over.wiggle)[:, ::1]
    wiggles = wiggles - wiggles[np.abs(z).argmin()]
    path = kind == "poisson"
    functions = np.column_stack([*([np.zeros_like(z)] if path else []), z, wiggles])
    labels = (*(["path"] if path else []), "z", *(f"z{k + 2}" for k in range(wiggles.shape[1])))
    own = len(labels) - wiggles.shape[1]
    along = make_basis(bins.position, bins.items, prior.knots)
    number = len(along.knots)
    sd = np.sqrt(np.average((bins.position - along.centre) ** 2, weights=bins.items))
    ways = np.column_stack([along.line[:, 1:] / max(sd, 1e-300), along.wiggle])
    at_bins = spline_matrix(bins.position, along.knots)
    ways = ways - np.average(at_bins @ ways, axis=0, weights=bins.items)
    columns, group = [], []
    for j in range(len(labels)):
        fixed = np.zeros((number, len(labels)))
        fixed[:, j] = 1.0
        columns.append(fixed.ravel())
        group.append(0 if j < own else 1)
        # location and spread may follow the score as closely as the knots allow
        free = own - 1 <= j <= own
        for way in ways.T if free else _LEAN * ways.T[: 1 + _FEW]:
            moved = np.zeros((number, len(labels)))
            moved[:, j] = way
            columns.append(moved.ravel())
            group.append(2)
    at_knots = np.column_stack(columns)
    spread_out = np.kron(at_bins, np.eye(len(labels)))
    mean = np.array([_PATH, 0.0] if path else [0.0])
    prior_sd = np.array([_PATH_SD, _TILT_SD] if path else [_TILT_SD])
    order = np.argsort(group, kind="stable")
    return TiltDesign(
        z,
        functions,
        labels,
        along.knots,
        at_knots[:, order],
        spread_out @ at_knots[:, order],
        np.array(group)[order],
        mean,
        prior_sd,
    )


def tilt_basis(kind: str, frame: Frame, z: Floats, functions: Floats) -> tuple[Floats, Floats]:
    """Base (n, R) and basis (n, R, J) of the log weights at the frame's scores."""
    base, path = parts.families_path(frame, z, kind)
    basis = np.broadcast_to(functions, (len(base), *functions.shape)).copy()
    if kind == "poisson":
        basis[:, :, 0] = path
    return base, basis


def joint_cells(stats: Statistics, name: str) -> dict[str, NDArray[Any]]:
    """Joint cells, or an error that says how to get them."""
    if not stats.coarse:
        raise FitError(
            f"soc.{name}() reads joint cells, which these statistics lack: make them with "
            "soc.summarize(items, joint=True)"
        )
    return stats.cells("joint")
