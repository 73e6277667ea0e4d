"""A fit's prior table in memory: its draws, compressed in cells of score, group and size.

Edges of cells lie at the curves' knots and divide the intervals between them. At points of a cell
the draws give Gauss rules, or a mixture's components with the mean and covariance of their weights;
polynomials in the cell follow these. A group's cells are made when an item first needs them.

A mixture's weights by draw are those of components on a fixed base distribution, smooth in the
score (`SmoothWeights`), or of five steps (`BinWeights`).
"""

import hashlib
import json
import threading
from collections.abc import Iterator
from functools import cached_property, partial
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from .._lib.arrays import Floats, Ints
from .._lib.errors import FitError
from .._model.splines import knots_in, spline_matrix
from ..data.items import ONE_SCORE, has_score
from ..families.components import Frame
from ..families.family import family_of, whole_moments, with_zero
from ..families.mixture_weights import WeightForms, weights_of_draws
from ..families.priors import COMPONENTS
from ..families.row_sums import MEAN_ONLY
from ..families.scales import RANK
from ..families.special_functions import gauss_rules
from ..inference.results import Fit
from ..prior_table import ARRAYS, FAMILIES, FORMAT, POLYNOMIALS, PriorTable, moments
from .curves import (
    P_ZERO,
    SIZE_WIDTH,
    atom_of,
    bin_of,
    chosen,
    curve_draws,
    items_at_once,
    moment_variables,
    place_of,
    size_atoms,
    size_knots,
    with_posterior,
)
from .item_columns import Columns, select

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
_LEAST_LOG = -80.0  # of a weight: single precision holds its inverse
_GRID = 150  # positions at which weights are solved for; others are interpolated
_REACH = 0.25  # how far the grid extends beyond the outer knots, as a share of their range
_MOST_GROUPS = 24  # with more groups, weights are solved for at each score

type Nodes = dict[str, NDArray[Any]]
"""Columns of nodes, cell by cell, as in a file."""


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
        return (
            "a mixture of five steps, with its own components in each bin, has no prior table: use "
            "soc.VI(), or soc.FiveSteps() with one family"
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


# --- cells ---------------------------------------------------------------------------------------


def _divided(edges: Floats, number: int, least: int = 1) -> Floats:
    """Edges with each interval cut into equal parts, at least `least`, no wider than 1 / number."""
    width = np.diff(edges)
    parts = np.maximum(np.ceil(number * width / width.sum()), least).astype(int)
    ends = np.append(0, np.cumsum(parts))
    return np.interp(np.arange(ends[-1] + 1), ends, edges)


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


# --- weights of a mixture's components by draw ----------------------------------------------------


class BinWeights:
    """One draw: components of a score's bin, shifted along the curve of the mean."""

    draws = 1

    def __init__(self, fit: Fit) -> None:
        self._fit, self._family, posterior = fit, family_of(fit.prior), fit.data["posterior"]
        self._weight, self._place, sd = (posterior[k].to_numpy()[0, 0] for k in COMPONENTS)
        self._variance, self.number = sd**2, self._weight.shape[1]

    def components(self, columns: Columns) -> tuple[Floats, Floats]:
        """Locations and variances, each (n, R)."""
        score = np.asarray(columns["score"], dtype=float)
        bins = bin_of(self._fit, score)
        middle = curve_draws(self._fit, score)[0][0]
        extra = np.broadcast_to(columns.get("spread", 0.0), len(score))[:, None]
        return middle[:, None] + self._place[bins], self._variance[bins] + extra

    def parameters(self, columns: Columns) -> tuple[Floats, Floats]:
        """Conjugate parameters of the components, each (n, R)."""
        return self._family.components.parameters(*self.components(columns))

    def by_draw(self, columns: Columns, draws: Ints) -> NDArray[Any]:
        """Weights (draws, n, R), the same under each draw."""
        weight = self._weight[bin_of(self._fit, columns["score"])]
        return np.broadcast_to(weight, (len(draws), *weight.shape))

    def curves(self, columns: Columns) -> dict[str, Floats]:
        """Variables of `calibration_curves`, each (1, n)."""
        weight = self._weight[bin_of(self._fit, columns["score"])]
        nodes = (values.T for values in (weight, *self.parameters(columns)))
        (mean, within, between), *_ = moments(FAMILIES[self._family.name], *nodes, ARRAYS)
        curves = moment_variables(mean[None], (within + between)[None], {})
        return curves | ({"log_mean": np.log(mean)[None]} if self._family.outcome.positive else {})


class SmoothWeights:
    """Components on a fixed grid, with weights by draw; theta = 0, if it may be, is the last."""

    def __init__(self, fit: Fit) -> None:
        self._fit, self._pilot, self._family = fit, _pilot(fit), family_of(fit.prior)
        data, values = fit.data["constant_data"], fit.data["posterior"]["weight_coefficient"]
        values = values.transpose("chain", "draw", "weight_knot", "weight_function")
        self._z = data["component_z"].to_numpy()
        self._functions = data["component_function"].to_numpy()
        self._raise = data["grid_raise"].to_numpy()
        self._knots = knots_in(fit.data, "weight_knot")
        self._coefficients = values.to_numpy().reshape(-1, *values.shape[2:])
        self.draws, self.number = len(self._coefficients), len(self._z) + fit.prior.zero

    def _terms(self, columns: Columns) -> tuple[Floats, NDArray[Any] | None, Floats]:
        """Scores, groups and sizes, as `curve_draws` takes them."""
        size = columns.get(self._family.outcome.size, np.ones(len(columns["score"])))
        return np.asarray(columns["score"], dtype=float), columns.get("group"), size

    def _base(self, columns: Columns) -> tuple[Frame, Floats]:
        """Base distributions that place components at items, and the pilot's curves, (n, 2)."""
        location, dispersion = (x[0] for x in curve_draws(self._pilot, *self._terms(columns)))
        position = place_of(self._fit, "variance", columns["score"])
        raised = spline_matrix(position, knots_in(self._fit.data, "variance_knot")) @ self._raise
        base = self._family.components.base(location, dispersion + raised)
        return base, np.column_stack([location, dispersion])

    def _forms(self, columns: Columns) -> WeightForms:
        base, start = self._base(columns)
        return self._family.components.forms(base, self._functions, start, self._fit.prior.mixture)

    def components(self, columns: Columns) -> tuple[Floats, Floats]:
        """Locations (n, R) and variances (n, 1) without theta = 0, with the items' ``spread``."""
        base = self._base(columns)[0]
        spread = np.asarray(columns.get("spread", 0.0), dtype=float)
        if np.any(spread):  # that of the first curve
            spread = spread * self._family.components.rise(base) ** 2
        return base.places(self._z), base.width(spread)[:, None]

    def parameters(self, columns: Columns) -> tuple[Floats, Floats]:
        """Conjugate parameters (n, R) of the components."""
        theta = self._family.components.parameters(*self.components(columns))
        return with_zero(self._family, *theta) if self._fit.prior.zero else theta

    def curves(self, columns: Columns) -> dict[str, Floats]:
        """Variables of `calibration_curves`, each (draws, n)."""
        curves = curve_draws(self._fit, *self._terms(columns))
        curves = self._forms(columns).bounds.represented(*curves)
        variables = dict(self._family.curve_variables(*curves))
        if not self._fit.prior.zero:
            return variables
        share = special.expit(self._further(columns)[..., -1])
        mean, variance = whole_moments(share, variables["mean"], variables["variance"])
        return {**moment_variables(mean, variance, variables), P_ZERO: share}

    def _further(self, columns: Columns, draws: Ints | None = None) -> Floats:
        """Further predictors at items, (draws, n, F)."""
        # beyond the outer knots they stay constant, because straight lines of logs would explode
        position = place_of(self._fit, "mean", columns["score"])
        basis = spline_matrix(np.clip(position, self._knots[0], self._knots[-1]), self._knots)
        return np.einsum("nk,dkj->dnj", basis, chosen(draws)(self._coefficients))

    def _predictors(self, columns: Columns, draws: Ints | None = None) -> Floats:
        """Both curves and the further predictors at items, (draws, n, 2 + F)."""
        curves = curve_draws(self._fit, *self._terms(columns), chosen(draws))
        further = self._further(columns, draws)
        return np.concatenate([np.stack(curves, axis=-1), further], axis=-1)

    def _solve(self, columns: Columns, predictors: Floats) -> Floats:
        """Weights (draws, n, R) of items with these predictors."""
        weight = weights_of_draws(predictors, self._forms(columns))
        if not self._fit.prior.zero:
            return weight
        share = special.expit(predictors[..., -1:])
        return np.concatenate([(1.0 - share) * weight, share], axis=-1)

    def few(self, columns: Columns, number: int) -> Floats:
        """Weights (number, n, R) of few draws, moved to have the mean and covariance of all."""
        predictors = self._predictors(columns)
        even = np.linspace(0, self.draws - 1, min(number, self.draws)).astype(int)
        return self._solve(columns, _with_moments(predictors[even], predictors))

    def by_draw(self, columns: Columns, draws: Ints) -> NDArray[Any]:
        """Weights of items under some draws, (draws, n, R), interpolated where that is possible."""
        position, prior = place_of(self._fit, "mean", columns["score"]), self._fit.prior
        out = np.empty((len(position), len(draws), self.number), dtype=np.float32)
        inside = (position >= self._grid[0]) & (position <= self._grid[-1])
        inside &= atom_of(self._fit, columns["score"]) == 0
        # bins and sizes matter too, or there are too many groups for tables in memory
        if prior.exposure is not None or prior.bin_effects or len(self._fit.groups) > _MOST_GROUPS:
            inside[:] = False
        if not inside.all():
            part = select(columns, ~inside)
            weight = self._solve(part, self._predictors(part, draws)).transpose(1, 0, 2)
            out[~inside] = np.maximum(weight, np.exp(_LEAST_LOG))
        labels = columns["group"] if self._fit.groups and "group" in columns else np.array([""])
        labels = np.broadcast_to(labels, len(position))
        for label in set(labels[inside].tolist()):
            items = np.flatnonzero(inside & (labels == label))
            place = (position[items] - self._grid[0]) / (self._grid[1] - self._grid[0])
            table = self._fit._once(("weights", label), partial(self._table, label))
            out[items] = _interpolated(place, table, draws)
        return out.transpose(1, 0, 2)

    @cached_property
    def _grid(self) -> Floats:
        """Positions on the mean's axis, reaching beyond the outer knots on both sides."""
        low, high = float(self._knots[0]), float(self._knots[-1])
        reach = _REACH * (high - low) or 1e-9  # one score
        ends = (0.0, 1.0) if self._fit.axis("mean").scale == RANK else (low - reach, high + reach)
        return np.linspace(*ends, _GRID)

    def _table(self, label: str) -> NDArray[np.float32]:
        """Log weights at the grid's positions, (positions, draws, R), of one group or all."""
        columns: dict[str, Any] = {"score": self._fit.axis("mean").inverse(self._grid)}
        if label:
            columns["group"] = np.full(_GRID, label, dtype=object)
        weight = self._solve(columns, self._predictors(columns))
        log_weight = np.log(np.maximum(weight, np.exp(_LEAST_LOG))).transpose(1, 0, 2)
        return np.ascontiguousarray(log_weight, dtype=np.float32)


def _interpolated(
    place: Floats, log_weight: NDArray[np.float32], draws: Ints
) -> NDArray[np.float32]:
    """Weights (n, draws, R) at places in a table (positions, all draws, R) of their logarithms.

    The logarithms are cubic in the place.
    """
    number = log_weight.shape[2]
    start = np.clip(place.astype(int) - 1, 0, len(log_weight) - 4)
    step = (place - start)[:, None] - np.arange(4)  # from the four nodes around each place
    others = np.array([[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]])
    share = step[:, others].prod(axis=-1) / np.array([-6.0, 2.0, -2.0, 6.0])
    out = np.empty((len(place), len(draws) * number), dtype=np.float32)
    for node in np.unique(start):
        items = start == node
        nodes = log_weight[node : node + 4, draws].reshape(4, -1)
        out[items] = share[items].astype(np.float32) @ nodes
    weight = np.exp(np.clip(out, _LEAST_LOG, 0.0, out=out), out=out).reshape(-1, number)
    weight /= (weight @ np.ones(number, dtype=np.float32))[:, None]
    return weight.reshape(len(place), len(draws), number)


def _pilot(fit: Fit) -> Fit:
    """The pilot's curves, which place the components, as a fit with one draw."""
    data = fit.data["constant_data"].to_dataset()
    names = {name: name.removeprefix("pilot_") for name in map(str, data) if "pilot_" in name}
    posterior = data[list(names)].rename(names).expand_dims(("chain", "draw"))
    # a group that the fit does not know gets the shared curve
    scales = [name for name in fit.data["posterior"] if str(name).endswith("_sd")]
    posterior = posterior.assign({name: (("chain", "draw"), np.zeros((1, 1))) for name in scales})
    return with_posterior(fit, posterior.assign_coords(group=list(fit.groups)))


def _with_moments(thinned: Floats, draws: Floats) -> Floats:
    """Draws (k, n, P) moved to have the means and covariances of others (draws, n, P)."""
    samples = [values.transpose(1, 0, 2) for values in (thinned, draws)]
    means = [values.mean(axis=1, keepdims=True) for values in samples]
    roots = []
    for values, mean in zip(samples, means, strict=True):
        square = np.einsum("nda,ndb->nab", values - mean, values - mean) / values.shape[1]
        size = np.einsum("naa->na", square)[..., None]  # some may not vary
        roots.append(np.linalg.cholesky(square + (1e-12 * size + 1e-300) * np.eye(size.shape[1])))
    standard = np.linalg.solve(roots[0], (samples[0] - means[0]).transpose(0, 2, 1))
    return (means[1] + (roots[1] @ standard).transpose(0, 2, 1)).transpose(1, 0, 2)
