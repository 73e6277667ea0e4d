"""The curves' linear models at the rows: axes, basis functions, terms and their priors."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .._lib.errors import FitError
from ..data.statistics import Statistics
from ..families.priors import Spline
from .curve_terms import Block, CurveDesign
from .rows import Rows, positions
from .splines import Axis, Basis, make_basis, spline_matrix

__all__ = ["Curve", "Term", "Weak", "axis_of", "make_curve", "slopes"]

Floats = NDArray[np.float64]

_GROUP_WIGGLES = 5  # the smoothest of the shared functions, by which groups may deviate
_GROUP_SCALES = {"level": 0.5, "slope": 0.25, "wiggle": 0.25}


@dataclass(frozen=True)
class Weak:
    """Weak priors of a curve where its `Spline` leaves them open.

    Attributes
    ----------
    level, slope
        Mean and sd of the value at the average position and of the slope (per unit of log score,
        or per sd of the position on other axes).
    unit
        What 1 is on the curve's own scale: scales of the wiggle and of the terms are multiples.
    """

    level: tuple[float, float]
    slope: tuple[float, float]
    unit: float = 1.0


@dataclass(frozen=True)
class Term:
    """A penalised term of a curve: how its coefficients make values.

    Attributes
    ----------
    block
        Its functions at the rows, and the scale of its prior.
    target
        What it is part of: ``"curve"`` (the shared curve at its knots), ``"group"`` (groups' curves
        at the knots) or ``"exposure"`` (at the knots of log exposure).
    values
        Values of its functions at what the target is kept at, (size of the target, k).
    """

    block: Block
    target: str
    values: Floats


@dataclass(frozen=True)
class Curve:
    """One curve of the model.

    Attributes
    ----------
    name
        ``"mean"`` or ``"variance"``.
    axis, basis
        Of the score.
    design
        At the rows.
    terms
        The design's blocks with what they make, in the same order.
    position
        Of the rows on the axis.
    size_knots
        Knots of the term in log exposure; none where there is no such term.
    """

    name: str
    axis: Axis
    basis: Basis
    design: CurveDesign
    terms: tuple[Term, ...]
    position: Floats
    size_knots: Floats


def axis_of(spline: Spline, stats: Statistics) -> Axis:
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


def make_curve(
    name: str,
    spline: Spline,
    weak: Callable[[Axis, Basis], Weak],
    stats: Statistics,
    rows: Rows,
    *,
    size: Spline | None = None,
    groups: int = 0,
) -> Curve:
    """A curve's design with its terms and their priors.

    Parameters
    ----------
    name
        ``"mean"`` or ``"variance"``.
    spline
        Its configuration.
    weak
        Priors where the configuration leaves them open, from the axis and the basis.
    stats, rows
        The statistics and their rows.
    size
        Configuration of the term in log exposure; None for none.
    groups
        Number of groups with deviations of their own; 0 for none.
    """
    axis = axis_of(spline, stats)
    u = positions(axis, rows)
    basis = make_basis(u, rows.n, spline.knots)
    open_ = weak(axis, basis)
    level, slope, unit = spline.level or open_.level, spline.slope or open_.slope, open_.unit
    spread = float(np.sqrt(np.average((u - basis.centre) ** 2, weights=rows.n)))
    per = 1.0 if axis.scale == "log" or spread == 0 else spread
    at_rows = spline_matrix(u, basis.knots)
    line = at_rows @ basis.line
    lines = line.shape[1]
    terms: list[Term] = []
    size_knots = np.empty(0)
    if groups:
        terms += _group_terms(basis, at_rows, rows.group, groups, unit, per)
    if size is not None:
        size_knots, term = _size_term(size, rows, unit)
        terms += [term] if term else []
    if basis.wiggle.shape[1]:
        block = Block("wiggle", at_rows @ basis.wiggle, spline.wiggle * unit)
        terms.append(Term(block, "curve", basis.wiggle))
    design = CurveDesign(
        line,
        np.array([level[0], slope[0] / per])[:lines],
        np.array([level[1], slope[1] / per])[:lines],
        tuple(term.block for term in terms),
    )
    return Curve(name, axis, basis, design, tuple(terms), u, size_knots)


def _group_terms(
    basis: Basis, at_rows: Floats, group: NDArray[np.int64], groups: int, unit: float, per: float
) -> list[Term]:
    """Deviations of groups in wiggle, slope and level, each with a scale of its own."""
    member = np.eye(groups)[group]
    kinds = {"wiggle": basis.wiggle[:, :_GROUP_WIGGLES]}
    if basis.line.shape[1] > 1:
        kinds["slope"] = basis.line[:, 1:] / per
    kinds["level"] = basis.line[:, :1]
    terms = []
    for kind, functions in kinds.items():
        if not functions.shape[1]:
            continue
        own = at_rows @ functions
        design = (member[:, :, None] * own[:, None, :]).reshape(len(own), -1)
        block = Block(f"group_{kind}", design, _GROUP_SCALES[kind] * unit)
        values = np.asarray(np.kron(np.eye(groups), functions), dtype=float)
        terms.append(Term(block, "group", values))
    return terms


def _size_term(spline: Spline, rows: Rows, unit: float) -> tuple[Floats, Term | None]:
    """A smooth term in log exposure, its straight line shrunk with the rest, of mean 0."""
    x = rows.log_size
    basis = make_basis(x, rows.n, spline.knots)
    if len(basis.knots) < 2:
        return basis.knots, None
    at_rows = spline_matrix(x, basis.knots)
    spread = float(np.sqrt(np.average((x - basis.centre) ** 2, weights=rows.n)))
    functions = np.column_stack([basis.line[:, 1] / spread, basis.wiggle])
    functions = functions - np.average(at_rows @ functions, axis=0, weights=rows.n)
    block = Block("exposure", at_rows @ functions, spline.wiggle * unit)
    return basis.knots, Term(block, "exposure", functions)


def slopes(curve: Curve, coefficients: Floats, group: NDArray[np.int64]) -> Floats:
    """Slopes of a curve in the score's position at the rows.

    Parameters
    ----------
    curve
        The curve.
    coefficients
        In the order of its design's functions.
    group
        Code of each row's group.
    """
    step = 1e-4 * max(float(np.ptp(curve.basis.knots)), 1e-300)
    ahead, behind = (spline_matrix(curve.position + d, curve.basis.knots) for d in (step, -step))
    functions = (ahead - behind) / (2.0 * step)
    blocks = np.split(coefficients, curve.design.ends)
    total = functions @ (curve.basis.line @ blocks[-1])
    for term, own in zip(curve.terms, blocks[:-1], strict=True):
        values = term.values @ own
        if term.target == "curve":
            total = total + functions @ values
        elif term.target == "group":
            by_group = values.reshape(-1, len(curve.basis.knots))
            total = total + (functions * by_group[group]).sum(axis=1)
    return np.asarray(total)
