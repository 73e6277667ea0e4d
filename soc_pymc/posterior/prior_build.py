"""A fit's prior table in memory: its draws, compressed in cells of score, group and size.

Edges of cells lie at the curves' knots and divide the intervals between them. At points of a cell
the draws give Gauss rules, or a mixture's components with the mean and covariance of their weights;
polynomials in the cell follow these. A group's cells are made when an item first needs them.
"""

import hashlib
import json
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._lib.arguments import FitError
from .._lib.arrays import Bools, Floats, Ints, Pair
from ..data.items import ONE_SCORE
from ..families.noise import NOISE_LAW
from ..families.rows import MEAN_ONLY
from ..families.scales import RANK
from ..fits import SIZE_WIDTH, Curves
from ..prior_table import FORMAT, POLYNOMIALS, PriorTable
from .weights import SmoothWeights, weights_of

# least numbers of cells along score and size
_CELLS = 16
_SIZES = 21
# how far cells extend beyond the knots, as a share of the range, and number of cells there
_BEYOND = 0.5
_OUTER = 4
# spread of the curves from which a cell's nodes are not accurate
_WIDEST = 1.0
# factor on the widest spread, for dispersions that outcomes may make unimportant
_UNFELT = 2.0
_LEAST_SD = 1e-300
# spread of a curve, and its nodes up to it
_LEVELS = ((0.13, 2), (0.3, 3), (_WIDEST, 5), (np.inf, 7))
# powers of a polynomial along the score
_LINE = ((0, 0), (1, 0), (2, 0), (3, 0))
# powers along score and size
_PLANE = (*_LINE, (0, 1), (1, 1), (2, 1), (0, 2), (1, 2), (0, 3))
# points of a cell from -1 to 1, which determine these: of Chebyshev, and of Padua (Caliari, De
# Marchi and Vianello 2005), moved inside; weights of mixtures bend more, and have one point more
_POINTS = (
    np.cos(np.pi * (np.arange(4) + 0.5) / 4),
    0.97 * np.cos(np.pi * np.arange(4) / 3),
)
_FIVE_POINTS = np.cos(np.pi * (np.array([0, 1, 3, 4, 2]) + 0.5) / 5)
_SIZE_POINTS = 0.97 * np.cos(np.pi * np.arange(5) / 4)
_PAIRS = (
    [(i, 2) for i in range(4)],
    [(i, j) for i in range(4) for j in range(i % 2, 5, 2)],
)
# draws that stand for a mixture's, with the moments of all: at scores, and at scores and sizes
_DRAWS = 512
_FEWER_DRAWS = 192
# share of the weights' covariance that is left out, and the most loadings of it
_FAINT = 1e-5
_MOST_LOADINGS = 8
# an sd of log mean counts as this many of log cv2
_MEAN_SPREAD = 2.5
# numbers in one array of points x draws, which fit in the cache
_AT_ONCE = 50_000
# numbers in one array of points x draws x components
_WEIGHTS_AT_ONCE = 4_000_000
# a curve that the draws agree on has a spread of rounding alone
_ROUNDING = 1e-12

# columns of nodes, cell by cell, as in a file
type Nodes = dict[str, NDArray[Any]]


def table_of(curves: Curves) -> PriorTable:
    """The prior table, made once; FitError with the reason of `why_no_table`."""
    return curves.once(_build_table)


def _build_table(curves: Curves) -> PriorTable:
    if refusal := why_no_table(curves):
        raise FitError(refusal)
    cells = _Cells(curves)
    return PriorTable(_meta(curves, cells.edges, cells.sizes), cells.nodes)


def why_no_table(curves: Curves) -> str:
    """Reason why curves have no prior table; empty if they have one."""
    if curves.mean_only:
        return f"posteriors of items are not known: {MEAN_ONLY}"
    if curves.prior.gridded and (reason := weights_of(curves).no_table):
        return reason
    mean = curves.prior.mean.scale
    variance = curves.prior.variance.scale
    if mean != variance:
        return f"a prior table has one scale: the mean's is {mean}, and the variance's {variance}"
    return ""


def _meta(curves: Curves, edges: Floats, sizes: Floats) -> dict[str, Any]:
    axis = curves.axis("mean")
    ranks = {"score": axis.score, "rank": axis.fraction} if axis.scale == RANK else {}
    low = max(axis.local.low, -1e300)
    high = min(axis.local.high, 1e300)
    return {
        "format": FORMAT,
        "family": curves.family.name,
        **curves.family.attrs,
        "prior": repr(curves.prior),
        "items": {k: v for k, v in curves.attrs.items() if isinstance(v, str)},
        "mixture": bool(curves.prior.gridded),
        "zero": bool(curves.prior.zero),
        "axis": {"scale": axis.scale, "low": low, "high": high, **ranks},
        # the score that all items have
        "score": None if curves.roles.has_score else ONE_SCORE,
        "edges": edges.tolist(),
        "score_edges": axis.inverse(edges).tolist(),
        "atoms": list(curves.atoms),
        "groups": list(curves.groups),
        "unseen": _has_unseen(curves),
        "sizes": sizes.tolist(),
        "size_edges": np.exp(sizes).tolist(),
        "terms": list(map(list, _PLANE if len(sizes) else _LINE)),
    }


def _has_unseen(curves: Curves) -> bool:
    """Return True if items without information have cells of their own, with more nodes."""
    return curves.family.saturates and not curves.prior.gridded


def digest_of(curves: Curves) -> str:
    """Digest of all that scoring uses: prior, draws, bins and axes."""
    prior = curves.prior
    digest = hashlib.sha256(f"{type(prior).__name__} {prior!r}".encode())
    digest.update(str(curves.attrs.get(NOISE_LAW, "")).encode())
    digest.update("".join(map(str, curves.family.attrs.values())).encode())
    contents = {"posterior": curves.posterior, "constant_data": curves.bins}
    for group, data in contents.items():
        variables = data.variables
        for name in sorted(variables, key=str):
            values = variables[name].to_numpy()
            text = values.tolist() if values.dtype.kind in "OUST" else None
            place = [group, str(name), variables[name].dims, values.shape, text]
            digest.update(json.dumps(place).encode())
            digest.update(b"" if text is not None else values.tobytes())
    return digest.hexdigest()


def _divided(edges: Floats, number: int) -> Floats:
    """Edges with each interval cut into equal parts, no wider than 1 / number of the range."""
    # sizes that are all equal need none
    if not len(edges):
        return edges
    width = np.diff(edges)
    parts = np.ceil(number * width / width.sum()).astype(int)
    ends = np.append(0, np.cumsum(parts))
    return np.interp(np.arange(ends[-1] + 1), ends, edges)


def _edges(curves: Curves) -> Floats:
    """Edges of cells on the score's axis: knots, places between them, and where curves jump."""
    axis = curves.axis("mean")
    names = ["mean_knot", "variance_knot"]
    if curves.prior.gridded:
        names.append("weight_knot")
    knots = np.unique(np.concatenate([*map(curves.knots, names)]))
    if axis.scale == RANK:
        return _divided(np.union1d(knots, [0.0, 1.0]), _CELLS)
    reach = _BEYOND * (float(np.ptp(knots)) or 1.0)
    low = knots[0] - reach
    high = knots[-1] + reach
    below = np.linspace(low, knots[0], _OUTER + 1)
    above = np.linspace(knots[-1], high, _OUTER + 1)
    inner = _divided(knots, _CELLS)
    edges = np.unique(np.concatenate([below, inner, above]))
    # there may be no scores beyond one next to 0
    edges = edges[axis.local.holds(axis.inverse(edges))]
    if curves.prior.bin_effects:
        jumps = curves.bins["edge"].to_numpy()
        edges = np.union1d(edges, axis(jumps[axis.local.holds(jumps)]))
    # edges that only rounding sets apart
    return edges[np.append(np.diff(edges) > 1e-9 * (high - low), True)]


def _size_edges(curves: Curves) -> Floats:
    """Edges of cells on the log size; none if the prior does not depend on it."""
    if curves.prior.exposure is None:
        return np.empty(0)
    knots = curves.size_knots
    # items of one size get a cell of some width
    if len(knots) == 1:
        return knots + np.array([-0.5, 0.5])
    # weights are costly to solve for
    number = _SIZES // 3 if curves.prior.gridded else _SIZES
    edges = _divided(knots, number)
    atoms = np.log(curves.size_atoms)
    # an atom has a cell of its own, and sizes beyond the outermost one a further cell
    ends = (atoms + SIZE_WIDTH * np.array([[-2.0], [-1.0], [1.0], [2.0]])).ravel()
    gap = np.abs(edges[:, None] - atoms).min(axis=1, initial=np.inf)
    return np.union1d(edges[gap >= 2.0 * SIZE_WIDTH], ends)


class _Made(NamedTuple):
    """Nodes of some cells, equally many each."""

    cells: Ints
    # (cells, points, 3, nodes): weights and both curves
    values: Floats
    # (cells, nodes, k): loadings, whose products are the weights' covariance
    loadings: Floats
    # (cells,): whether the curves are hardly known
    wide: Bools


class _Group:
    """Columns of the nodes of a group's cells; one node is NaN in a cell that is not made."""

    def __init__(self, columns: Nodes) -> None:
        self.cell = np.arange(len(columns["node"]))
        self.columns = columns
        self.is_made = np.zeros(len(self.cell), dtype=bool)

    def add(self, parts: list[tuple[Ints, Nodes]]) -> None:
        """Put nodes of cells in the place of others."""
        cells, new = zip(*parts, strict=True)
        added = np.concatenate(cells)
        self.is_made[added] = True
        stays = ~np.isin(self.cell, added)
        cell = np.append(self.cell[stays], added)
        order = np.argsort(cell, kind="stable")
        self.cell = cell[order]
        self.columns = {
            name: np.concatenate([values[stays], *(part[name] for part in new)])[order]
            for name, values in self.columns.items()
        }


class _Cells:
    """Nodes of the cells of curves, made when an item first needs them."""

    def __init__(self, curves: Curves) -> None:
        self.edges = _edges(curves)
        self.sizes = _size_edges(curves)
        self._curves = curves
        self._lock = threading.Lock()
        self._groups = dict[str, _Group]()
        axis = curves.axis("mean")
        by_size = len(self.sizes) > 0
        x = 0.5 + 0.5 * _POINTS[by_size]
        w = 0.5 + 0.5 * _SIZE_POINTS
        pairs = _PAIRS[by_size]
        if curves.prior.gridded:
            # the covariance of weights is that at the centre, the last point
            if by_size:
                x = np.append(x, 0.5)
                pairs = [*pairs, (4, 2)]
            else:
                x = 0.5 + 0.5 * _FIVE_POINTS
                pairs = [(i, 2) for i in range(5)]
        along_score, along_size = np.array(pairs).T
        self._terms = _PLANE if by_size else _LINE
        self._places = np.array([x[along_score], w[along_size]])
        inner = axis.inverse(self.edges[:-1, None] + np.diff(self.edges)[:, None] * x)
        atoms = np.repeat(np.array(curves.atoms)[:, None], len(x), axis=1)
        low = self.sizes[:-1, None]
        width = np.diff(self.sizes)[:, None]
        self._score = np.vstack([inner, atoms])
        self._size = np.exp(low + width * w) if by_size else np.ones((1, len(w)))
        degree = np.repeat([3, 0], [len(inner), len(atoms)])
        # beyond the outermost cells curves are straight lines
        if axis.scale != RANK:
            degree[[0, len(inner) - 1]] = 1
        shape = len(degree), 1 + _has_unseen(curves), len(self._size)
        row, unseen, column = np.indices(shape).reshape(3, -1, 1)
        self._degree = degree[row[:, 0]]
        self._is_unseen = unseen[:, 0] > 0
        # points of all cells, as indices of these scores and sizes
        self._row = row * len(x) + along_score
        self._column = column * self._size.shape[1] + along_size

    def nodes(self, label: str, cells: Ints | None = None) -> Nodes:
        """Columns of the nodes of a group, in all its cells or at least in some."""
        number = len(self._degree)
        mixture = self._curves.prior.gridded
        asked = np.zeros(number, dtype=bool)
        asked[slice(None) if cells is None else cells] = True
        with self._lock:
            if label not in self._groups:
                nothing = np.full((number, 1, 3, len(self._terms)), np.nan)
                loadings = np.zeros((number, 1, _MOST_LOADINGS if mixture else 0))
                wide = np.zeros(number, dtype=bool)
                self._groups[label] = _Group(self._columns(nothing, loadings, wide))
            group = self._groups[label]
            missing = np.flatnonzero(asked & ~group.is_made)
            if len(missing):
                make = self._components if mixture else self._rules
                group.add([self._fitted(made) for made in make(label, missing)])
            return group.columns

    def _fitted(self, made: _Made) -> tuple[Ints, Nodes]:
        """Each node's cell, and columns with polynomials through the values at points."""
        power = np.array(self._terms)
        nodes = made.values.shape[3]
        coefficients = np.zeros((len(made.cells), nodes, 3, len(power)))
        degrees = self._degree[made.cells]
        for degree in np.unique(degrees):
            is_alike = degrees == degree
            fitted = coefficients[is_alike]
            # where curves are lines, weights stay the same
            of_weights = degree if degree > 1 else 0
            for rows, most in ((slice(0, 1), of_weights), (slice(1, 3), degree)):
                used = np.flatnonzero(power[:, 0] <= most)
                x, w = self._places[:, :, None] ** power[used].T[:, None]
                values = made.values[is_alike, :, rows]
                flat = np.linalg.pinv(x * w) @ values.reshape(*values.shape[:2], -1)
                by_term = flat.reshape(len(values), len(used), *values.shape[2:])
                fitted[:, :, rows, used] = by_term.transpose(0, 3, 2, 1)
            coefficients[is_alike] = fitted
        columns = self._columns(coefficients, made.loadings, made.wide)
        return np.repeat(made.cells, nodes), columns

    def _columns(self, coefficients: Floats, loadings: Floats, wide: Bools) -> Nodes:
        """Columns of nodes from coefficients (cells, nodes, 3, terms)."""
        cells, nodes, _, terms = coefficients.shape
        names = [f"{name}_{i}{j}" for name in POLYNOMIALS for i, j in self._terms]
        by_term = coefficients.reshape(cells * nodes, -1).T
        columns = {
            "node": np.tile(np.arange(nodes, dtype=np.int32), cells),
            "wide": np.repeat(wide.astype(np.int32), nodes),
        }
        columns |= dict(zip(names, by_term.astype(np.float32), strict=True))
        # values of both curves, which may be far from 0, keep all digits
        for k in (1, 2):
            columns[f"{POLYNOMIALS[k]}_00"] = by_term[k * terms]
        by_way = loadings.reshape(cells * nodes, -1).astype(np.float32).T
        return columns | {f"way_{k}": loading for k, loading in enumerate(by_way)}

    def _rules(self, label: str, cells: Ints) -> Iterator[_Made]:
        """Gauss rules of the draws' curves."""
        curves = [*self._along_axes(label)]
        (location, further_location), (dispersion, further_dispersion) = curves
        draws = location.shape[1]
        location_sd, dispersion_sd = (
            np.sqrt(np.maximum(_covariances(x, x), 0.0)) for x in curves
        )
        # the part of the dispersion that nodes of the location must show
        shared_sd = np.abs(_covariances(*curves)) / np.maximum(location_sd, _LEAST_SD)
        level = np.add.outer(dispersion.mean(axis=1), further_dispersion.mean(axis=1))
        family = self._curves.family
        location_spread = _MEAN_SPREAD * location_sd / family.unit(level)
        ends = level + dispersion_sd, level - dispersion_sd
        felt_sd = np.subtract(*map(family.felt, ends)) / 2.0
        felt_share = felt_sd / np.maximum(dispersion_sd, _LEAST_SD)
        by_kind = np.stack(
            [
                (np.maximum(location_spread, share * shared_sd), share * dispersion_sd)
                for share in (felt_share, 1.0)
            ]
        )
        kind = self._is_unseen.astype(int)[:, None]
        spreads = by_kind[kind, :, self._row, self._column].max(axis=1).T
        factor = _UNFELT if family.saturates else 1.0
        wide = np.maximum(spreads[0], spreads[1] / factor) > _WIDEST
        tops, numbers = zip(*_LEVELS, strict=True)
        places = np.searchsorted(tops, np.where(wide, _WIDEST, spreads))
        number = np.minimum(np.array(numbers)[places], draws)
        step = max(1, _AT_ONCE // (draws * self._places.shape[1]))
        for pair in np.unique(number[:, cells], axis=1).T:
            alike = cells[(number[:, cells] == pair[:, None]).all(axis=0)]
            values = []
            for part in (alike[i : i + step] for i in range(0, len(alike), step)):
                row = self._row[part].ravel()
                column = self._column[part].ravel()
                dispersions = dispersion[row] + further_dispersion[column]
                most = dispersions.max(axis=1)[:, None]
                is_felt = np.repeat(~self._is_unseen[part], self._row.shape[1])
                is_felt &= family.saturates
                dispersions[is_felt] = family.felt(dispersions[is_felt])
                locations = location[row] + further_location[column]
                rules = gauss_rules(locations, dispersions, pair)
                beyond = family.unfelt(rules[is_felt, 2])
                rules[is_felt, 2] = np.minimum(beyond, most[is_felt])
                values.append(rules.reshape(len(part), -1, *rules.shape[1:]))
            nodes = np.concatenate(values)
            loadings = np.zeros((len(nodes), nodes.shape[3], 0))
            yield _Made(alike, nodes, loadings, wide[alike])

    def _along_axes(self, label: str) -> Iterator[Pair]:
        """Draws of each curve at all scores, and what sizes add to it, (places, draws)."""
        score = self._score.ravel()
        size = self._size.ravel()
        label_of_scores, label_of_sizes = (
            np.full(len(places), label, dtype=object) for places in (score, size)
        )
        first_size = np.full(len(score), size[0])
        by_score = self._curves.at(score, label_of_scores, first_size)
        first_score = np.full(len(size), score[0])
        by_size = self._curves.at(first_score, label_of_sizes, size)
        for curve, along_size in zip(by_score, by_size, strict=True):
            further = along_size - along_size[:, :1]
            yield np.ascontiguousarray(curve.T), np.ascontiguousarray(further.T)

    def _components(self, label: str, cells: Ints) -> Iterator[_Made]:
        """Components of a mixture, with mean and covariance of their weights over the draws."""
        family = self._curves.family
        weights = self._curves.once(SmoothWeights)
        number = _DRAWS if self._curves.prior.exposure is None else _FEWER_DRAWS
        numbers = number * self._places.shape[1] * weights.number
        step = max(1, _WEIGHTS_AT_ONCE // numbers)
        for part in (cells[i : i + step] for i in range(0, len(cells), step)):
            score = self._score.ravel()[self._row[part]]
            columns = {
                "score": score.ravel(),
                "group": np.full(score.size, label, dtype=object),
                family.outcome.size: self._size.ravel()[self._column[part]].ravel(),
            }
            sample = weights.sample(columns, number)
            curves = family.to_curves(*weights.parameters(columns))
            nodes = np.stack(np.broadcast_arrays(sample.mean(axis=0), *curves), axis=1)
            values = nodes.reshape(*score.shape, 3, -1)
            centres = sample[:, score.shape[1] - 1 :: score.shape[1]].swapaxes(0, 1)
            loadings = np.stack([*map(_loadings, centres)])
            yield _Made(part, values, loadings, np.zeros(len(part), dtype=bool))


def _covariances(first: Pair, second: Pair) -> Floats:
    """Covariances (n, m) over draws of sums of two variables, (n, draws) and (m, draws)."""
    (a, b), (c, d) = (
        [draws - draws.mean(axis=1, keepdims=True) for draws in pair]
        for pair in (first, second)
    )
    apart = np.add.outer(np.vecdot(a, c), np.vecdot(b, d))
    return (apart + a @ d.T + c @ b.T) / a.shape[1]


def _loadings(weights: Floats) -> Floats:
    """Loadings (nodes, k) of weights (draws, nodes), whose products are their covariance."""
    residual = weights - weights.mean(axis=0)
    size, directions = np.linalg.eigh(residual.T @ residual / len(weights))
    size = np.maximum(size[::-1], 0.0)
    directions = directions[:, ::-1]
    needed = np.count_nonzero(np.cumsum(size) < (1.0 - _FAINT) * size.sum()) + 1
    rank = min(needed, _MOST_LOADINGS)
    out = np.zeros((weights.shape[1], _MOST_LOADINGS))
    out[:, :rank] = directions[:, :rank] * np.sqrt(size[:rank])
    return out


# --- few weighted pairs of both curves with the moments of many draws ----------------------------


class _Rule(NamedTuple):
    """Gauss rules of n sets of draws with mean 0 and variance 1."""

    # (n, K)
    nodes: Floats
    # (n, K, K): coefficients of the powers in the polynomial of each node
    lagrange: Floats
    # (n, K, draws): of the draws
    powers: Floats


def gauss_rules(location: Floats, dispersion: Floats, numbers: Ints) -> Floats:
    """Weights and both curves, (n, 3, K L), of K and L nodes for draws (n, draws).

    Averages are exact for polynomials of degree 2K - 1 in the first curve, and for products of
    degrees K - 1 and L - 1. Weights sum to 1 and may be negative.
    """
    centre, level = (
        draws.mean(axis=1, keepdims=True) for draws in (location, dispersion)
    )
    x, sd = _standardised(location - centre, np.abs(centre))
    z = dispersion - level
    slope = _means(x, z)
    # dispersions are logarithms
    z, remaining_sd = _standardised(z - slope * x, 1.0 + np.abs(level))
    first, second = map(_rule, (x, z), numbers.tolist())
    mixed = first.powers @ second.powers.swapaxes(1, 2) / x.shape[1]
    weight = first.lagrange.swapaxes(1, 2) @ mixed @ second.lagrange
    locations = np.broadcast_to((centre + sd * first.nodes)[:, :, None], weight.shape)
    along = (level + slope * first.nodes)[:, :, None]
    dispersions = along + (remaining_sd * second.nodes)[:, None]
    return np.stack([weight, locations, dispersions], axis=1).reshape(len(x), 3, -1)


def _means(first: Floats, second: Floats) -> Floats:
    """Means (n, 1) of products of draws (n, draws)."""
    return np.vecdot(first, second)[:, None] / first.shape[1]


def _standardised(x: Floats, size: Floats) -> Pair:
    """Centred draws over their sd, and this sd, (n, 1): 0 if it is rounding of a `size`."""
    sd = np.sqrt(_means(x, x))
    sd = np.where(sd <= _ROUNDING * size, 0.0, sd)
    x *= np.where(sd > 0.0, 1.0, 0.0) / np.where(sd > 0.0, sd, 1.0)
    return x, sd


def _rule(x: Floats, number: int) -> _Rule:
    """Gauss rules of standardised draws (n, draws), from their moments."""
    powers = np.ones((len(x), number, x.shape[1]))
    for k in range(1, number):
        np.multiply(powers[:, k - 1], x, out=powers[:, k])
    pairs = [(k // 2, k - k // 2) for k in range(2 * number - 1)]
    moments = [_means(powers[:, i], powers[:, j]) for i, j in pairs]
    moments.append(_means(powers[:, -1] * x, powers[:, -1]))
    hankel = np.add.outer(np.arange(number), np.arange(number))
    by_power = np.hstack(moments)
    # where few draws differ, there are no polynomials of higher degree: these get no weight
    square = by_power[:, hankel] + _ROUNDING * np.eye(number)
    inverse = np.linalg.inv(np.linalg.cholesky(square))
    transposed = inverse.swapaxes(1, 2)
    nodes, vectors = np.linalg.eigh(inverse @ by_power[:, hankel + 1] @ transposed)
    return _Rule(nodes, transposed @ (vectors * vectors[:, :1]), powers)
