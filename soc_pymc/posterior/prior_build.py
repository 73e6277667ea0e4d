"""A fit's prior table in memory: its draws, compressed in cells of score, group and size.

Edges of cells lie at the curves' knots and divide the intervals between them. At points of a cell
the draws give Gauss rules, or a mixture's components with the mean and covariance of their weights;
polynomials in the cell follow these. A group's cells are made when an item first needs them.
"""

import threading
from collections.abc import Iterator
from itertools import repeat
from typing import Any

import numpy as np

from .._lib.arrays import Floats
from .._lib.errors import FitError
from .._model.splines import knots_in
from ..data.groups import ONE_SCORE, has_score
from ..families.family import Family, family_of
from ..families.priors import COMPONENTS
from ..families.row_sums import MEAN_ONLY
from ..families.rules import gauss_rules
from ..families.scales import RANK
from ..inference.results import Fit
from ..prior_table import FORMAT, Block, PriorTable
from .curves import SIZE_WIDTH, curve_draws, items_at_once, size_atoms, size_knots
from .item_columns import Columns, select
from .scored_files import fit_digest
from .weights import SmoothWeights

_CELLS, _SIZES = 32, 14  # least numbers of cells along score and size
# how far cells extend beyond the knots, as a share of the range, and number of cells there
_BEYOND, _OUTER = 0.5, 4
_WIDEST = 1.0  # spread of the curves from which a cell's nodes are not accurate
_LEVELS = ((0.13, 2), (0.3, 3), (np.inf, 5))  # spread of the curves, and nodes a curve up to it
_X = 0.5 + 0.5 * np.cos(np.pi * (np.arange(5) + 0.5) / 5)  # points of a cell along the score
_W = 0.5 + 0.5 * np.cos(np.pi * (np.arange(4) + 0.5) / 4)  # and along the size
_LINE = ((0, 0), (1, 0), (2, 0), (3, 0))  # powers of a polynomial along the score
_PLANE = (*_LINE, (0, 1), (1, 1), (2, 1), (0, 2), (1, 2), (0, 3))  # along score and size
_DRAWS = 512  # draws of a mixture, with the moments of all
_FAINT, _MOST_WAYS = 1e-5, 8  # share of the weights' covariance that is left out; ways in it
_MEAN_SPREAD = 2.5  # an sd of log mean counts as this many of log cv2


def table_of(fit: Fit) -> PriorTable:
    """The prior table of a fit, made once; FitError with the reason of `why_no_table`."""

    def make() -> PriorTable:
        if refusal := why_no_table(fit):
            raise FitError(refusal)
        edges, sizes = _edges(fit), _size_edges(fit)
        return PriorTable(_meta(fit, edges, sizes), _Blocks(fit, edges, sizes))

    return fit._once("prior table", make)


def why_no_table(fit: Fit) -> str:
    """Reason why a fit has no prior table; empty if it has one."""
    if fit.mean_only:
        return f"posteriors of items are not known: {MEAN_ONLY}"
    if fit.by_bin or COMPONENTS[0] in fit.data["posterior"]:
        return (
            "a prior of five steps with steps, or with its own components in each bin, has no "
            "table: use soc.VI(), or soc.FiveSteps(smooth=True) with one family"
        )
    if fit.prior.mean.scale != fit.prior.variance.scale:
        return (
            f"the mean is on the {fit.prior.mean.scale} scale and the variance on the "
            f"{fit.prior.variance.scale} scale: a prior table has one scale"
        )
    return ""


def _meta(fit: Fit, edges: Floats, sizes: Floats) -> dict[str, Any]:
    axis = fit.axis("mean")
    ranks = {"score": axis.score, "rank": axis.fraction} if axis.scale == RANK else {}
    low, high = max(axis.local.low, -1e300), min(axis.local.high, 1e300)
    return {
        "format": FORMAT,
        "fit": fit_digest(fit),
        "family": family_of(fit.prior).name,
        "prior": repr(fit.prior),
        "items": {k: v for k, v in fit.data.attrs.items() if isinstance(v, str)},
        "mixture": bool(fit.prior.gridded),
        "zero": bool(fit.prior.zero),
        "axis": {"scale": axis.scale, "low": low, "high": high, **ranks},
        "score": None if has_score(fit.data.attrs) else ONE_SCORE,  # of all items
        "edges": edges.tolist(),
        "score_edges": axis.inverse(edges).tolist(),
        "atoms": list(fit.atoms),
        "groups": list(fit.groups),
        "sizes": sizes.tolist(),
        "size_edges": np.exp(sizes).tolist(),
        "terms": [list(term) for term in (_PLANE if len(sizes) else _LINE)],
    }


class _Blocks(dict[str, Block]):
    """Cells by group, made when first asked for."""

    def __init__(self, fit: Fit, edges: Floats, sizes: Floats) -> None:
        self._lock, self._fit, self._edges, self._sizes = threading.Lock(), fit, edges, sizes

    def __missing__(self, label: str) -> Block:
        with self._lock:
            if label not in self:
                self[label] = _block(self._fit, self._edges, self._sizes, label)
            return self[label]


# --- cells ---------------------------------------------------------------------------------------


def _divided(edges: Floats, number: int, least: int = 1) -> Floats:
    """Edges with each interval cut into equal parts, at least `least`, no wider than 1 / number."""
    width = np.diff(edges)
    parts = np.maximum(np.ceil(number * width / width.sum()), least).astype(int)
    inner = [
        np.linspace(e, e + w, k + 1)[:-1] for e, w, k in zip(edges, width, parts, strict=False)
    ]
    return np.concatenate([*inner, edges[-1:]])


def _edges(fit: Fit) -> Floats:
    """Edges of cells on the score's axis: knots, places between them, and where curves jump."""
    axis, costly = fit.axis("mean"), fit.prior.gridded and fit.prior.exposure is not None
    number, least = (_CELLS // 2, 1) if costly else (_CELLS, 2)
    names = ["mean_knot", "variance_knot", *["weight_knot"] * bool(fit.prior.gridded)]
    knots = np.unique(np.concatenate([knots_in(fit.data, name) for name in names]))
    if axis.scale == RANK:
        return _divided(np.union1d(knots, [0.0, 1.0]), number, least)
    reach = _BEYOND * (float(np.ptp(knots)) or 1.0)
    low, high = knots[0] - reach, knots[-1] + reach
    outer = np.linspace(low, knots[0], _OUTER + 1), np.linspace(knots[-1], high, _OUTER + 1)
    edges = np.unique(np.concatenate([*outer, _divided(knots, number, least)]))
    edges = edges[axis.local.holds(axis.inverse(edges))]  # next to 0 there may be no further score
    if fit.prior.bin_effects:
        jumps = fit.data["constant_data"]["edge"].to_numpy()
        edges = np.union1d(edges, axis(jumps[axis.local.holds(jumps)]))
    # what rounding has set apart
    return edges[np.append(np.diff(edges) > 1e-9 * (high - low), True)]


def _size_edges(fit: Fit) -> Floats:
    knots = size_knots(fit)
    number = _SIZES // 2 if fit.prior.gridded else _SIZES  # weights are costly to solve for
    if fit.prior.exposure is None:
        return np.empty(0)
    # items of one size have one knot: its cell has some width
    if len(knots) == 1:
        return knots + np.array([-0.5, 0.5])
    edges, atoms = _divided(knots, number), np.log(size_atoms(fit))
    # an atom has a cell of its own, and sizes beyond the outermost one a further cell
    ends = (atoms + SIZE_WIDTH * np.array([[-2.0], [-1.0], [1.0], [2.0]])).ravel()
    inside = np.abs(edges[:, None] - atoms).min(axis=1, initial=np.inf) < 2.0 * SIZE_WIDTH
    return np.union1d(edges[~inside], ends)


def _columns(fit: Fit, score: Floats, label: str, size: Floats | None) -> Columns:
    """Columns of points, as for items without outcomes."""
    columns: dict[str, Any] = {"score": score}
    if fit.groups:
        columns["group"] = np.full(len(score), label, dtype=object)
    if size is not None:
        columns[family_of(fit.prior).outcome.size] = np.exp(size)
    return columns


def _block(fit: Fit, edges: Floats, sizes: Floats, label: str) -> Block:
    """Polynomials of all cells of a group, those of atoms last."""
    axis, number, atoms = fit.axis("mean"), max(len(sizes) - 1, 1), np.array(fit.atoms)
    w = _W if len(sizes) else np.zeros(1)
    v = sizes[:-1, None] + np.diff(sizes)[:, None] * _W if len(sizes) else np.zeros((1, 1))
    inner = axis.inverse(edges[:-1, None] + np.diff(edges)[:, None] * _X)
    nodes_of_cells = _components if fit.prior.gridded else _rules
    polynomials, ways, wide = [], [], []
    for x, score in ((_X, inner), (np.zeros(1), atoms[:, None])):  # scores are (cells, points)
        shape = (len(score), len(v), score.shape[1], v.shape[1])
        scores = np.broadcast_to(score[:, None, :, None], shape).ravel()
        size = np.broadcast_to(v[:, None], shape).ravel() if len(sizes) else None
        columns = _columns(fit, scores, label, size)
        cells = nodes_of_cells(fit, columns, len(score) * number) if len(score) else ()
        is_open = len(x) > 1 and axis.scale != RANK
        for k, (values, way, unknown) in enumerate(cells):
            outermost = is_open and k // number in (0, len(score) - 1)
            polynomials.append(_polynomials(values, x, w, min(len(x) - 1, 1 if outermost else 3)))
            ways.append(np.pad(way, ((0, 0), (0, _MOST_WAYS * fit.prior.gridded - way.shape[1]))))
            wide.append(unknown)
    coefficients = np.concatenate(polynomials).transpose(1, 2, 0)
    rounded = _rounded(coefficients)
    rounded[1:, 0] = coefficients[1:, 0]  # values of both curves may be far from 0
    number_of_nodes = np.array([len(values) for values in polynomials])
    return Block(number_of_nodes, rounded, _rounded(np.concatenate(ways).T), np.array(wide))


def _rounded(values: Floats) -> Floats:
    """Numbers as stored in a file."""
    return values.astype(np.float32).astype(float)


def _polynomials(nodes: Floats, x: Floats, w: Floats, degree: int) -> Floats:
    """Coefficients (nodes, 3, terms) of values (points, 3, nodes), of a degree along the score.

    A line goes on beyond the outermost cells; weights stay the same there.
    """
    terms = np.array(_PLANE if len(w) > 1 else _LINE)
    x, w = (places.ravel() for places in np.meshgrid(x, w, indexing="ij"))
    out = np.zeros((nodes.shape[2], 3, len(terms)))
    for rows, most in ((slice(0, 1), degree if degree > 1 else 0), (slice(1, 3), degree)):
        used = np.flatnonzero(terms[:, 0] <= most)
        basis = x[:, None] ** terms[used, 0] * w[:, None] ** terms[used, 1]
        values = np.linalg.pinv(basis) @ nodes[:, rows].reshape(len(nodes), -1)
        out[:, rows, used] = values.reshape(len(used), -1, nodes.shape[2]).transpose(2, 1, 0)
    return out


# --- nodes ---------------------------------------------------------------------------------------
# of cells, from columns of their points, equally many each: values (points, 3, nodes), ways (nodes,
# k) in which weights vary, and whether the curves are hardly known


def _rules(fit: Fit, columns: Columns, cells: int) -> Iterator[tuple[Floats, Floats, bool]]:
    """Gauss rules of the draws' curves."""
    family, (tops, numbers) = family_of(fit.prior), zip(*_LEVELS, strict=True)
    points = len(columns["score"]) // cells
    step = max(1, items_at_once(fit) // points) * points
    for start in range(0, cells * points, step):
        part = select(columns, slice(start, start + step))
        terms = part.get("group"), part.get(family.outcome.size)
        curves = curve_draws(fit, part["score"], *terms)
        values = [np.ascontiguousarray(v.T).reshape(-1, points, len(v)) for v in curves]
        spread = _curve_spread(family, *curves).reshape(-1, points).max(axis=1)
        number = np.minimum(np.array(numbers)[np.searchsorted(tops, spread)], len(curves[0]))
        for a, b, k, sd in zip(*values, number.tolist(), spread, strict=True):
            yield gauss_rules(a, b, k), np.zeros((k**2, 0)), bool(sd > _WIDEST)


def _curve_spread(family: Family, location: Floats, dispersion: Floats) -> Floats:
    """Sd of draws (draws, n) of the second curve, or the weighted sd of the first if larger."""
    scaled = _MEAN_SPREAD * location.std(axis=0) / family.unit(dispersion.mean(axis=0))
    return np.asarray(np.maximum(scaled, dispersion.std(axis=0)))


def _components(fit: Fit, columns: Columns, cells: int) -> Iterator[tuple[Floats, Floats, bool]]:
    """Components of a mixture, with mean and covariance of their weights over the draws."""
    weights, points = SmoothWeights(fit), len(columns["score"]) // cells
    curves = np.broadcast_arrays(*family_of(fit.prior).to_curves(*weights.parameters(columns)))
    draws = weights.few(columns, _DRAWS)  # (draws, n, R)
    values = np.stack([draws.mean(axis=0), *curves], axis=1).reshape(cells, points, 3, -1)
    middle = draws[:, points // 2 :: points].transpose(1, 0, 2)
    yield from zip(values, map(_ways, middle), repeat(False), strict=False)


def _ways(weights: Floats) -> Floats:
    """Ways (nodes, k) in which weights (draws, nodes) vary, whose products are their covariance."""
    residual = (weights - weights.mean(axis=0)) / np.sqrt(len(weights))
    _, size, directions = np.linalg.svd(residual, full_matrices=False)
    rank = min(int((np.cumsum(size**2) < (1.0 - _FAINT) * (size @ size)).sum()) + 1, _MOST_WAYS)
    return np.asarray((size[:rank, None] * directions[:rank]).T)
