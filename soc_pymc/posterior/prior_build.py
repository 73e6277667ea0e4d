"""A fit's prior table in memory: its draws, compressed in cells of score, group and size.

Edges of cells lie at the curves' knots and divide the intervals between them. At points of a cell
the draws give Gauss rules, or a mixture's components with the mean and covariance of their weights;
polynomials in the cell follow these. A group's cells are made when an item first needs them.
"""

import hashlib
import json
import threading
from collections.abc import Iterator
from functools import partial
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._lib.arrays import Floats
from .._lib.errors import FitError
from .._model.splines import knots_in
from ..data.items import ONE_SCORE, has_score
from ..families.family import family_of
from ..families.priors import COMPONENTS
from ..families.row_sums import MEAN_ONLY
from ..families.scales import RANK
from ..families.special_functions import gauss_rules
from ..inference.results import Fit
from ..prior_table import FORMAT, POLYNOMIALS, PriorTable
from .curves import SIZE_WIDTH, curve_draws, items_at_once, size_atoms, size_knots
from .item_columns import Columns, select
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
# draws of a mixture, with the moments of all, and for means of weights at many sizes
_DRAWS, _FEWER_DRAWS = 512, 192
_FAINT, _MOST_WAYS = 1e-5, 8  # share of the weights' covariance that is left out; ways in it
_MEAN_SPREAD = 2.5  # an sd of log mean counts as this many of log cv2

type Nodes = dict[str, NDArray[Any]]  # columns of nodes, cell by cell, as in a file


def table_of(fit: Fit) -> PriorTable:
    """The prior table of a fit, made once; FitError with the reason of `why_no_table`."""

    def make() -> PriorTable:
        if refusal := why_no_table(fit):
            raise FitError(refusal)
        edges, sizes, lock = _edges(fit), _size_edges(fit), threading.Lock()

        def nodes(label: str) -> Nodes:
            with lock:
                return fit._once(("nodes", label), partial(_nodes, fit, edges, sizes, label))

        return PriorTable(_meta(fit, edges, sizes), nodes)

    return fit._once("prior table", make)


def why_no_table(fit: Fit) -> str:
    """Reason why a fit has no prior table; empty if it has one."""
    if fit.mean_only:
        return f"posteriors of items are not known: {MEAN_ONLY}"
    if COMPONENTS[0] in fit.data["posterior"]:
        remedy = "use soc.VI(), or soc.FiveSteps() with one family"
        return f"components by bin, of a mixture of five steps, have no prior table: {remedy}"
    mean, variance = fit.prior.mean.scale, fit.prior.variance.scale
    if mean != variance:
        return f"a prior table has one scale: the mean's is {mean}, and the variance's {variance}"
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
        "terms": list(map(list, _PLANE if len(sizes) else _LINE)),
    }


def fit_digest(fit: Fit) -> str:
    """Digest of all that scoring uses of a fit: prior, draws, bins and axes."""
    digest = hashlib.sha256(f"{type(fit.prior).__name__} {fit.prior!r}".encode())
    for group in ("posterior", "constant_data"):
        variables = fit.data[group].to_dataset().variables if group in fit.data else {}
        for name in sorted(variables, key=str):
            values = variables[name].to_numpy()
            text = values.tolist() if values.dtype.kind in "OUST" else None
            place = [group, str(name), variables[name].dims, values.shape, text]
            digest.update(json.dumps(place).encode())
            digest.update(b"" if text is not None else values.tobytes())
    return digest.hexdigest()


def _divided(edges: Floats, number: int, least: int = 1) -> Floats:
    """Edges with each interval cut into equal parts, at least `least`, no wider than 1 / number."""
    width = np.diff(edges)
    parts = np.maximum(np.ceil(number * width / width.sum()), least).astype(int)
    ends = np.append(0, np.cumsum(parts))
    return np.interp(np.arange(ends[-1] + 1), ends, edges) if len(edges) else edges


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
    """Edges of cells on the log size; none if the prior does not depend on it."""
    if fit.prior.exposure is None:
        return np.empty(0)
    knots = size_knots(fit)
    if len(knots) == 1:  # of items of one size, whose cell has some width
        return knots + np.array([-0.5, 0.5])
    number = _SIZES // 2 if fit.prior.gridded else _SIZES  # weights are costly to solve for
    edges, atoms = _divided(knots, number), np.log(size_atoms(fit))
    # an atom has a cell of its own, and sizes beyond the outermost one a further cell
    ends = (atoms + SIZE_WIDTH * np.array([[-2.0], [-1.0], [1.0], [2.0]])).ravel()
    inside = np.abs(edges[:, None] - atoms).min(axis=1, initial=np.inf) < 2.0 * SIZE_WIDTH
    return np.union1d(edges[~inside], ends)


def _nodes(fit: Fit, edges: Floats, sizes: Floats, label: str) -> Nodes:
    """Columns of the nodes in all cells of a group, those of atoms last."""
    axis, outcome = fit.axis("mean"), family_of(fit.prior).outcome
    terms, w = (_PLANE, _W) if len(sizes) else (_LINE, np.zeros(1))
    v = sizes[:-1, None] + np.diff(sizes)[:, None] * w if len(sizes) else np.zeros((1, 1))
    inner = axis.inverse(edges[:-1, None] + np.diff(edges)[:, None] * _X)
    score = np.vstack([inner, np.repeat(np.array(fit.atoms)[:, None], len(_X), axis=1)])
    degree = np.repeat([3, 0], [len(inner), len(fit.atoms)])
    if axis.scale != RANK:  # beyond the outermost cells a line goes on
        degree[[0, len(inner) - 1]] = 1
    shape = (len(score), len(v), len(_X), len(w))
    points = {"score": np.broadcast_to(score[:, None, :, None], shape).ravel()}
    points["group"] = np.full(points["score"].shape, label, dtype=object)
    points[outcome.size] = np.exp(np.broadcast_to(v[:, None], shape).ravel())
    cells = (_components if fit.prior.gridded else _rules)(fit, points, len(score) * len(v))
    values, ways, wide = zip(*cells, strict=True)
    degrees = np.repeat(degree, len(v)).tolist()
    coefficients = [_polynomials(*cell, w, terms) for cell in zip(values, degrees, strict=True)]
    number = [len(values) for values in coefficients]
    columns = {
        "node": np.concatenate([np.arange(k, dtype=np.int32) for k in number]),
        "wide": np.repeat(np.array(wide, dtype=np.int32), number),
    }
    names = [f"{name}_{i}{j}" for name in POLYNOMIALS for i, j in terms]
    by_term = np.concatenate(coefficients).reshape(len(columns["node"]), -1).T
    columns |= dict(zip(names, by_term.astype(np.float32), strict=True))
    for k in (1, 2):  # values of both curves, which may be far from 0, keep all digits
        columns[f"{POLYNOMIALS[k]}_00"] = by_term[k * len(terms)]
    by_way = np.concatenate(ways).astype(np.float32).T
    return columns | {f"way_{k}": way for k, way in enumerate(by_way)}


def _polynomials(
    nodes: Floats, degree: int, w: Floats, terms: tuple[tuple[int, int], ...]
) -> Floats:
    """Coefficients (nodes, 3, terms) of values (points, 3, nodes), of a degree along the score."""
    x, w = (places.ravel() for places in np.meshgrid(_X, w, indexing="ij"))
    power, out = np.array(terms), np.zeros((nodes.shape[2], 3, len(terms)))
    # where curves are lines, weights stay the same
    for rows, most in ((slice(0, 1), degree if degree > 1 else 0), (slice(1, 3), degree)):
        used = np.flatnonzero(power[:, 0] <= most)
        basis = x[:, None] ** power[used, 0] * w[:, None] ** power[used, 1]
        values = np.linalg.pinv(basis) @ nodes[:, rows].reshape(len(nodes), -1)
        out[:, rows, used] = values.reshape(len(used), -1, nodes.shape[2]).transpose(2, 1, 0)
    return out


# nodes of cells, from columns of their points, equally many each: values (points, 3, nodes), ways
# (nodes, k) in which weights vary, and whether the curves are hardly known


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
        location, dispersion = (curve.std(axis=0) for curve in curves)
        unit = family.unit(curves[1].mean(axis=0))
        spread = np.maximum(_MEAN_SPREAD * location / unit, dispersion)
        spread = spread.reshape(-1, points).max(axis=1)
        number = np.minimum(np.array(numbers)[np.searchsorted(tops, spread)], len(curves[0]))
        for a, b, k, sd in zip(*values, number.tolist(), spread, strict=True):
            yield gauss_rules(a, b, k), np.zeros((k**2, 0)), bool(sd > _WIDEST)


def _components(fit: Fit, columns: Columns, cells: int) -> Iterator[tuple[Floats, Floats, bool]]:
    """Components of a mixture, with mean and covariance of their weights over the draws."""
    weights, points = SmoothWeights(fit), len(columns["score"]) // cells
    curves = np.broadcast_arrays(*family_of(fit.prior).to_curves(*weights.parameters(columns)))
    number = _DRAWS if fit.prior.exposure is None else _FEWER_DRAWS
    mean = weights.few(columns, number).mean(axis=0)
    values = np.stack([mean, *curves], axis=1).reshape(cells, points, 3, -1)
    middle = weights.few(select(columns, slice(points // 2, None, points)), _DRAWS)
    yield from zip(values, map(_ways, middle.transpose(1, 0, 2)), repeat(False), strict=False)


def _ways(weights: Floats) -> Floats:
    """Ways (nodes, k) in which weights (draws, nodes) vary, whose products are their covariance."""
    residual = (weights - weights.mean(axis=0)) / np.sqrt(len(weights))
    _, size, directions = np.linalg.svd(residual, full_matrices=False)
    rank = min(int((np.cumsum(size**2) < (1.0 - _FAINT) * (size @ size)).sum()) + 1, _MOST_WAYS)
    out = np.zeros((weights.shape[1], _MOST_WAYS))
    out[:, :rank] = (size[:rank, None] * directions[:rank]).T
    return out
