"""What a mixture reads of statistics: merged bins around the pilot's frame, cells, and the tilt.

The tilt is J smooth functions of the component's position z, each with a coefficient that is itself
a smooth function of the score: log w_r(t) = base_r(t) + sum_j phi_j(z_r, t) eta_j(t).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._lib.errors import FitError
from ..data.statistics import Statistics
from ..families import components as parts
from ..families.components import Frame, MixtureCells
from ..families.priors import GammaMixture, NormalMixture
from .curve_terms import Block, CurveDesign
from .designs import Curve
from .rows import Rows
from .splines import make_basis, spline_matrix

__all__ = [
    "MergedBins",
    "TiltDesign",
    "cell_points",
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
_PATH, _PATH_SD = 1.0, 0.5  # prior of the path from the Normal (0) to the Gamma (1)
_FEW = 2  # wiggly ways, the smoothest, by which functions drift beside the straight one


@dataclass(frozen=True)
class MergedBins:
    """Bins of the likelihood, each of one or more occupied bins of the statistics.

    Attributes
    ----------
    of
        (bins of the statistics,): merged bin of each, -1 where it is empty.
    items
        (bins,): number of items.
    score
        (bins,): score at the mean position on the axis of the mean.
    positions
        Mean positions (bins,) on the axes of the mean and of the variance.
    frame
        Location and spread at the bins.
    spread
        (bins,): variance of the items' own locations around the bin's.
    """

    of: Ints
    items: Floats
    score: Floats
    positions: tuple[Floats, Floats]
    frame: Frame
    spread: Floats


@dataclass(frozen=True)
class TiltDesign:
    """The tilt as a linear model: coefficients -> predictors at the bins.

    Predictors of a bin are both curves of the frame there, then coefficients of further functions.

    Attributes
    ----------
    z
        (R,): positions of the components.
    functions
        (R, F): the further functions of z; the first column is 0 for counts, where the path to the
        Gamma stands for it, which depends on the score.
    labels
        Names of the F functions.
    knots
        (K,): positions on the axis of the mean.
    design
        Of the predictors, bins times 2 + F rows, predictors fastest.
    at_knots
        What the same coefficients make: both curves of the frame at their knots, and the functions'
        coefficients at `knots` (K F, functions fastest).
    pilot
        (bins, 2): both curves of the pilot at the bins.
    moving
        `frame_slopes` at the bins.
    """

    z: Floats
    functions: Floats
    labels: tuple[str, ...]
    knots: Floats
    design: CurveDesign
    at_knots: tuple[Floats, Floats, Floats]
    pilot: Floats
    moving: Floats

    def tilt(self, coefficients: Floats) -> Floats:
        """Tilt at the bins, (bins, 2 + F): of `moves`, then of the further functions."""
        predictors = (self.design.whole @ coefficients).reshape(len(self.pilot), -1)
        first, second = (predictors[:, :2] - self.pilot).T
        both = parts.frame_tilt(first, second, self.moving)
        return np.column_stack([*both, predictors[:, 2:]])

    def slopes(self, coefficients: Floats) -> Floats:
        """Derivatives of the tilt in the predictors, (bins, 2 + F, 2 + F)."""
        predictors = (self.design.whole @ coefficients).reshape(len(self.pilot), -1)
        first, second = (predictors[:, :2] - self.pilot).T
        found = np.tile(np.eye(predictors.shape[1]), (len(predictors), 1, 1))
        step = 1e-5
        sides = [(first + step, second), (first - step, second)]
        sides += [(first, second + step), (first, second - step)]
        ahead = [np.stack(parts.frame_tilt(a, b, self.moving), axis=1) for a, b in sides]
        for k in (0, 1):
            found[:, :2, k] = (ahead[2 * k] - ahead[2 * k + 1]) / (2.0 * step)
        return found


def frame_at(kind: str, first: Floats, second: Floats) -> Frame:
    """Frame of the pilot's two curves."""
    make = parts.count_frame if kind == "poisson" else parts.value_frame
    return make(first, second)


def merged(
    kind: str,
    stats: Statistics,
    rows: Rows,
    curves: tuple[Curve, Curve],
    values: tuple[Floats, Floats],
    within: Floats,
) -> MergedBins:
    """Neighbouring bins merged while their components hardly differ.

    Parameters
    ----------
    kind
        "poisson" or "normal".
    stats, rows
        The statistics and their bins that hold items.
    curves, values
        Both of the pilot's curves, and their values at the occupied bins.
    within
        Variance of the items' own locations within each occupied bin.
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
    at = mean(curves[0].position), mean(curves[1].position)
    score = curves[0].axis.inverse(at[0])
    return MergedBins(of, np.bincount(code, n), score, at, frame, spread)


def cell_points(
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
    row, data, items = cell_points(kind, cells, sharpness)
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


def make_tilt(
    kind: str,
    prior: GammaMixture | NormalMixture,
    bins: MergedBins,
    curves: tuple[Curve, Curve],
    values: tuple[Floats, Floats],
) -> TiltDesign:
    """Predictors and their priors.

    The frame's curves have the priors that they have in the model of their own family; what the
    pilot knows of them is where they are, and the likelihood is used once.

    Parameters
    ----------
    kind, prior, bins
        As of `make_cells`, and the configuration.
    curves, values
        Of the frame, with the pilot's values at their knots.
    """
    z = parts.grid(kind)
    centre = z[np.abs(z) <= _CENTRE]
    over = make_basis(centre, np.exp(-0.5 * (centre / _CENTRE_SD) ** 2), prior.functions)
    # the smoothest is the quadratic, which the frame's spread stands for
    wiggles = (spline_matrix(z, over.knots) @ over.wiggle)[:, 1:]
    # they leave mean and variance as they are, to first order: those are the frame's alone
    given = np.column_stack([np.ones_like(z), parts.moves(z)])
    root = np.exp(-0.25 * z**2)[:, None]
    wiggles = wiggles - given @ np.linalg.lstsq(root * given, root * wiggles, rcond=None)[0]
    path = [np.zeros_like(z)] if kind == "poisson" else []
    labels = (*(["path"] if path else []), *(f"z{k + 3}" for k in range(wiggles.shape[1])))
    number, total = len(bins.items), 2 + len(labels)
    frame_rows = [
        spline_matrix(at, c.basis.knots) for c, at in zip(curves, bins.positions, strict=True)
    ]

    def rows(predictor: int, at_bins: Floats) -> Floats:
        out = np.zeros((number, total, at_bins.shape[1]))
        out[:, predictor] = at_bins
        return out.reshape(number * total, -1)

    along = make_basis(bins.positions[0], bins.items, prior.knots)
    sd = np.sqrt(np.average((bins.positions[0] - along.centre) ** 2, weights=bins.items))
    ways = np.column_stack([along.line[:, 1:] / max(sd, 1e-300), along.wiggle[:, :_FEW]])
    at_bins = spline_matrix(bins.positions[0], along.knots)
    ways = ways - np.average(at_bins @ ways, axis=0, weights=bins.items)
    flat, ones = np.ones((len(along.knots), 1)), np.ones((number, 1))
    own, learnt = range(len(labels)), range(len(path), len(labels))
    # most local first: each gets its coordinates given those before it
    blocks, made = [], []
    if ways.shape[1]:
        columns = np.hstack([rows(2 + j, at_bins @ ways) for j in own])
        blocks.append(Block("drift", columns, prior.drift))
        made.append((2, np.hstack([_of(j, ways, len(labels)) for j in own])))
    columns = np.hstack([rows(2 + j, ones) for j in learnt])
    blocks.append(Block("shape", columns, prior.shape))
    made.append((2, np.hstack([_of(j, flat, len(labels)) for j in learnt])))
    for k in (1, 0):
        for term in curves[k].terms:
            at = rows(k, frame_rows[k] @ term.values)
            blocks.append(Block(("location", "spread")[k], at, term.block.scale))
            made.append((k, term.values))
    lines = [rows(k, frame_rows[k] @ curves[k].basis.line) for k in (0, 1)]
    made += [(k, curves[k].basis.line) for k in (0, 1)]
    means, sds = ([getattr(c.design, name) for c in curves] for name in ("line_mean", "line_sd"))
    if path:
        lines.append(rows(2, ones))
        made.append((2, _of(0, flat, len(labels))))
        means, sds = [*means, np.array([_PATH])], [*sds, np.array([_PATH_SD])]
    design = CurveDesign(
        np.hstack(lines), np.concatenate(means), np.concatenate(sds), tuple(blocks)
    )
    pilot = np.column_stack([at @ v for at, v in zip(frame_rows, values, strict=True)])
    functions = np.column_stack([*path, wiggles])
    sizes = (len(values[0]), len(values[1]), len(along.knots) * len(labels))
    first, second, rest = (
        np.hstack([m if to == k else np.zeros((sizes[k], m.shape[1])) for to, m in made])
        for k in range(3)
    )
    return TiltDesign(
        z,
        functions,
        labels,
        along.knots,
        design,
        (first, second, rest),
        pilot,
        parts.frame_slopes(bins.frame),
    )


def _of(function: int, at_knots: Floats, functions: int) -> Floats:
    """Values at knots as those of one of the functions, functions fastest."""
    return np.asarray(np.kron(at_knots, np.eye(functions)[:, function : function + 1]))


def tilt_basis(kind: str, frame: Frame, z: Floats, functions: Floats) -> tuple[Floats, Floats]:
    """Base (n, R) and basis (n, R, 2 + F) of the log weights at the frame's scores."""
    base, path = parts.families_path(frame, z, kind)
    every = np.hstack([parts.moves(z), functions])
    basis = np.broadcast_to(every, (len(base), *every.shape)).copy()
    if kind == "poisson":
        basis[:, :, 2] = path
    return base, basis


def joint_cells(stats: Statistics, name: str) -> dict[str, NDArray[Any]]:
    """Joint cells, or an error that says how to get them."""
    if not stats.coarse:
        raise FitError(
            f"soc.{name}() reads joint cells, which these statistics lack: make them with "
            "soc.summarize(items, joint=True)"
        )
    return stats.cells("joint")
