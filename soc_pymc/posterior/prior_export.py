"""A fit's prior as a small file, which `soc_pymc.prior_table` reads with NumPy alone.

Even cells cut the axis of the scores, and log sizes if the prior depends on them. At points of a
cell the draws give the Gauss rules of `quadrature`, or a mixture's components with the mean and
covariance of their weights; polynomials in the cell follow these.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from .._lib.arguments import path_of
from .._lib.arrays import Floats
from .._lib.errors import FitError
from .._lib.files import replacing
from ..families.family import Family, family_of
from ..families.priors import COMPONENTS
from ..families.row_sums import MEAN_ONLY
from ..families.rules import gauss_rules
from ..families.scales import RANK
from ..inference.results import FIT, Fit
from ..model.splines import knots_in
from . import prior_table
from .curves import curves_at, size_knots
from .items import probabilities
from .mixtures import mixture_of
from .predictive import Columns, posterior_of
from .quadrature import curve_spread
from .scored_files import fit_digest

MOST_BYTES = 1_000_000
_MOST = 128  # cells along score or size
_BYTES, _ROOM = 3.5, 800_000  # of a number in a file, and for all of them
_BEYOND = 0.5  # how far cells extend beyond the knots, as a share of the range
_CLOSE = 2e-5  # largest error of the curves' mean between points, in prior sd, and of variances
_LEVELS = ((0.13, 2), (0.3, 3), (np.inf, 5))  # spread of the curves, and nodes a curve from there
_X = 0.5 + 0.5 * np.cos(np.pi * (np.arange(5) + 0.5) / 5)  # points of a cell, and between them
_W, _BETWEEN = 0.5 + 0.5 * np.cos(np.pi * (np.arange(4) + 0.5) / 4), np.array([0.05, 0.3, 0.7])
_LINE = ((0, 0), (1, 0), (2, 0), (3, 0))  # powers of a polynomial along the score
_PLANE = (*_LINE, (0, 1), (1, 1), (2, 1), (0, 2), (1, 2), (0, 3))  # along score and size
_AT_ONCE = 2_000_000  # numbers in one array of draws x points x components
_FAINT, _MOST_WAYS = 1e-5, 8  # share of the weights' covariance that is left out; ways in it
_LOW, _STEP, _PARTS = float(np.log(1e-3)), 1.0, 24  # cells of the quantiles' table
_TINY = 1e-300
_PROBES, _FAR = 1000, 0.1  # simulated items, and an error in posterior sd that is too large
_MOST_ITEMS = 0.99  # share of them whose errors must be smaller
_TIMES = (0.25, 1.0, 4.0, 16.0)  # sizes of these items, in those of their bins
_LARGEST = 100.0  # curves beyond the outermost cells stop there, as powers must stay finite
_DIGITS = {4: 7, 8: 11}  # in JSON, by bytes of a number


@dataclass(frozen=True)
class _Nodes:
    """Nodes at points: weights and both curves (n, 3, nodes), and the weights' covariance."""

    values: Floats
    covariance: Floats  # (n, nodes, nodes), or (n, 0, 0)


def export_prior(
    fit: Fit,
    path: str | os.PathLike[str],
    *,
    quantiles: Sequence[float] = (0.05, 0.95),
) -> Path:
    """Write a fit's prior to a small file, for scoring items without this package.

    Parameters
    ----------
    fit
        The fit.
    path
        File to write, ``*.parquet`` or ``*.json``; it appears under its name when it is complete.
    quantiles
        Levels of ``lower`` and ``upper``, from 0.005 to 0.995.

    Returns
    -------
    pathlib.Path
        The file, of at most 1 MB, for `soc_pymc.prior_table.load`. It holds the axis and cells of
        scores, and by cell (with groups by group, with a term in exposure by class of sizes) nodes
        of the family's parameters with weights; the day, and the digest of the fit; and the
        largest ``errors`` in posterior sd, among items simulated from the fit.

    Raises
    ------
    FitError
        If the name has another suffix, the quantiles are not two levels, the fit knows the mean
        alone, or has steps or components by bin, its curves are on different scales, the table
        would be larger than 1 MB, or errors of more than 1% of the simulated items would be above
        0.1 posterior sd.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import soc_pymc as soc
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = soc.export_prior(fit, pathlib.Path(folder) / "prior.parquet")
    ...     soc.prior_table.load(path)["family"]
    'Gamma'
    """
    FIT(fit, "fit")
    target = Path(path_of(path, "path", FitError))
    if target.suffix not in (".parquet", ".json"):
        raise FitError(f"path={str(target)!r} must be named *.parquet or *.json")
    meta, columns = checked_table(fit, quantiles)
    writer = _write_json if target.suffix == ".json" else _write_parquet
    with replacing(target) as temporary:
        writer(meta, columns, temporary)
        size = temporary.stat().st_size
        if size > MOST_BYTES:
            other = ", or write *.parquet, which is smaller" if writer is _write_json else ""
            raise FitError(
                f"the table would be of {size / 1e6:.1f} MB in {meta['cells']:,} cells, more than "
                f"1 MB: pool groups or leave out the term in exposure{other}"
            )
    return target


def checked_table(
    fit: Fit, quantiles: Sequence[float]
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Description and columns of a fit's prior table; FitError if it is not accurate enough."""
    levels = probabilities(quantiles)
    if len(levels) != 2 or not 0.005 <= levels[0] < levels[1] <= 0.995:
        raise FitError(f"quantiles={levels} must be two levels from 0.005 to 0.995 in order")
    meta, columns = prior_tables(fit, levels)
    errors = _errors(fit, prior_table._made(meta, columns))
    meta["errors"] = {name: float(of.max()) for name, of in errors.items()}
    # a few items are not followed, at outermost scores, where curves are hardly known, or where an
    # outcome says much of the weights of components
    bound = {name: float(np.quantile(of, _MOST_ITEMS)) for name, of in errors.items()}
    if max(bound.values()) > _FAR:
        name = max(bound, key=lambda of: bound[of])
        raise FitError(
            f"a table cannot follow this prior: its {name} is {bound[name]:.2g} posterior sd from "
            f"that of every draw at the {_MOST_ITEMS:.0%} point of {_PROBES:,} simulated items, "
            f"and may be {_FAR}. Score items by soc.item_posteriors"
        )
    return meta, columns


def _errors(fit: Fit, table: dict[str, Any]) -> dict[str, Floats]:
    """Errors in posterior sd of a table, of items simulated from the fit."""
    posterior, rng = posterior_of(fit), np.random.default_rng(0)
    outcome, kept = posterior.family.outcome, fit.data["constant_data"]
    role = outcome.size
    n = kept["n_items"].to_numpy()
    at = rng.choice(len(n), _PROBES, p=n / n.sum())
    size = kept[role].to_numpy() / (n if outcome.sizes_add else 1.0)
    columns: dict[str, Any] = {"score": kept["score"].to_numpy()[at]}
    columns[outcome.observed] = np.zeros(_PROBES)  # without outcomes, sizes would not count
    size = size[at] * rng.choice(_TIMES, _PROBES)
    columns[role] = np.where(size < 1.0, size, np.round(size))  # trials are whole
    if fit.groups:
        columns["group"] = rng.choice(np.array(fit.groups, dtype=object), _PROBES)
    drawn = posterior.simulate(columns, rng)
    which = rng.integers(len(drawn), size=_PROBES)
    columns[outcome.observed] = drawn[which, np.arange(_PROBES)]
    mean, sd, _, *ends = posterior.scorer(tuple(table["levels"]), "all", False)(columns)
    exact = {"mean": mean, "sd": sd, "lower": ends[0], "upper": ends[1]}
    given = columns[outcome.observed], columns[role], columns.get("group")
    with np.errstate(all="ignore"):  # what overflows becomes an error without bound
        found = prior_table.score(table, columns["score"], *given)
        error = {name: np.abs(found[name] - own) / exact["sd"] for name, own in exact.items()}
    # NaN is as wrong as can be
    return {name: np.nan_to_num(of, nan=np.inf) for name, of in error.items()}


def prior_tables(
    fit: Fit, levels: tuple[float, ...]
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Description and columns of the nodes of a fit's prior table."""
    if fit.mean_only:
        raise FitError(f"posteriors of items are not known: {MEAN_ONLY}")
    if fit.by_bin or COMPONENTS[0] in fit.data["posterior"]:
        raise FitError(
            "a prior of five steps that has steps, or components of its own in each bin, cannot be "
            "exported: use soc.VI(), or soc.FiveSteps(smooth=True) with one family"
        )
    if fit.prior.mean.scale != fit.prior.variance.scale:
        raise FitError(
            f"the mean is on the {fit.prior.mean.scale} scale and the variance on the "
            f"{fit.prior.variance.scale} scale: a prior table has one scale"
        )
    source = _Mixture(fit) if fit.prior.gridded else _Rules(fit)
    edges, sizes = _cells(source)
    blocks = [_block(source, edges, sizes, group) for group in fit.groups or [None]]
    cells = [cell for block in blocks for cell in block]
    number = np.array([values.shape[0] for values, _ in cells])
    number_of_ways = max(way.shape[1] for _, way in cells)
    values = np.concatenate([values.reshape(len(values), -1) for values, _ in cells])
    ways = [np.pad(way, ((0, 0), (0, number_of_ways - way.shape[1]))) for _, way in cells]
    columns: dict[str, Any] = {
        "cell": np.repeat(np.arange(len(cells)), number).astype(np.int32),
        "node": np.concatenate([np.arange(n) for n in number]).astype(np.int32),
    }
    terms = _PLANE if len(sizes) else _LINE
    names = [f"{name}_{i}{j}" for name in ("weight", "first", "second") for i, j in terms]
    names += [f"way_{k}" for k in range(number_of_ways)]
    rows = np.concatenate([values, np.concatenate(ways)], axis=1).T
    # values that may be far from 0 keep all digits
    columns |= {
        name: row if name == "first_00" else row.astype(np.float32)
        for name, row in zip(names, rows, strict=True)
    }
    family, axis = family_of(fit.prior), fit.axis("mean")
    scale = axis.local
    meta = {
        "format": prior_table._FORMAT,
        "made": datetime.now(UTC).date().isoformat(),
        "fit": fit_digest(fit),
        "family": family.name,
        "prior": repr(fit.prior),
        "columns": {k: v for k, v in fit.data.attrs.items() if isinstance(v, str)},
        "mixture": fit.prior.gridded,
        "zero": bool(fit.prior.zero),
        "axis": {
            "scale": axis.scale, "low": max(scale.low, -1e300), "high": min(scale.high, 1e300),
            **({"score": axis.score, "rank": axis.fraction} if axis.scale == RANK else {}),
        },
        "edges": edges.tolist(),
        "reach": _reach(columns, terms, (len(edges) - 1, len(fit.atoms), len(sizes)), family),
        "atoms": list(fit.atoms),
        "groups": list(fit.groups),
        "sizes": sizes.tolist(),
        "terms": [list(term) for term in terms],
        "cells": len(cells),
        "levels": list(levels),
        "low": _LOW,
        "step": _STEP,
        "quantiles": (table := quantile_table(family, levels)).ravel().tolist(),
        "shape": list(table.shape),
    }  # fmt: skip
    return meta, columns


def _reach(
    columns: dict[str, NDArray[Any]],
    terms: Sequence[tuple[int, int]],
    numbers: tuple[int, int, int],
    family: Family,
) -> list[float]:
    """How far below 0 and above 1 places may lie in the outermost cells, whose curves are lines.

    Logarithms stay finite there. `numbers` are those of cells, atoms and edges of sizes.
    """
    cells, atoms, sizes = numbers
    along = columns["cell"] // max(sizes - 1, 1) % (cells + atoms)
    # the first curve is a log where theta has an end
    logs = ("first", "second") if prior_table._FAMILIES[family.name].positive else ("second",)
    found = []
    for end in (0, cells - 1):
        own, room = along == end, np.inf
        for name in logs:
            parts = [np.zeros(own.sum()), np.zeros(own.sum())]
            for i, j in terms:
                parts[min(i, 1)] += np.abs(columns[f"{name}_{i}{j}"][own])
            room = min(room, float(((_LARGEST - parts[0]) / np.maximum(parts[1], 1e-30)).min()))
        found.append(max(room, 1.0))
    return [-found[0], found[1]]


# --- cells ---------------------------------------------------------------------------------------


def _cells(source: "_Source") -> tuple[Floats, Floats]:
    """Edges of cells, halved along score or size until they are close or the file is full."""
    fit, cells = source.fit, [source.fewest, 4]
    label = fit.groups[0] if fit.groups else None  # what suits one group suits others
    while True:
        edges, sizes = _edges(fit, cells[0]), _size_edges(fit, cells[1])
        along = (0, 1) if len(sizes) else (0,)
        errors = [_error(source, edges, sizes, label, k) for k in along]
        worst = int(np.argmax(errors))
        block = _block(source, edges, sizes, label)
        numbers = sum(part.size for cell in block for part in cell) * max(len(fit.groups), 1)
        if max(errors) < _CLOSE or 2 * _BYTES * numbers > _ROOM or cells[worst] >= _MOST:
            return edges, sizes
        cells[worst] *= 2


def _edges(fit: Fit, number: int) -> Floats:
    """Edges of even cells of the score's axis, with those of bins if curves jump there."""
    axis = fit.axis("mean")
    knots = np.concatenate([knots_in(fit.data, k) for k in ("mean_knot", "variance_knot")])
    reach = _BEYOND * (float(np.ptp(knots)) or 1.0)
    low, high = float(knots.min() - reach), float(knots.max() + reach)
    edges = np.linspace(0.0, 1.0, number + 1)
    edges = edges if axis.scale == RANK else low + (high - low) * edges
    if fit.prior.bin_effects:
        own = fit.data["constant_data"]["edge"].to_numpy()
        edges = np.union1d(edges, axis(own[axis.local.holds(own)]))
    return edges


def _size_edges(fit: Fit, number: int) -> Floats:
    knots = size_knots(fit)
    if fit.prior.exposure is None:
        return np.empty(0)
    return np.linspace(knots[0], knots[-1], number + 1)


def _columns(fit: Fit, score: Floats, label: str | None, size: Floats | None) -> Columns:
    """Columns of points, as of items without outcomes."""
    found: dict[str, Any] = {"score": score}
    if label is not None:
        found["group"] = np.full(len(score), label, dtype=object)
    if size is not None:
        found[family_of(fit.prior).outcome.size] = np.exp(size)
    return found


def _grid(
    fit: Fit, edges: Floats, sizes: Floats, label: str | None, x: Floats, w: Floats
) -> Columns:
    """Points at places x and w of all cells: columns of (cells, sizes, x, w) points, flat."""
    u = edges[:-1, None] + np.diff(edges)[:, None] * x
    score = fit.axis("mean").inverse(u)
    if not len(sizes):
        return _columns(fit, score.ravel(), label, None)
    v = sizes[:-1, None] + np.diff(sizes)[:, None] * w
    shape = (len(u), len(v), len(x), len(w))
    score, v = (np.broadcast_to(z, shape).ravel() for z in (score[:, None, :, None], v[:, None]))
    return _columns(fit, score, label, v)


class _Rules:
    """Gauss rules of the draws' curves, as `draws="auto"` uses them."""

    fewest = 16  # cells of the score

    def __init__(self, fit: Fit) -> None:
        self.fit, self.family = fit, family_of(fit.prior)

    def _draws(self, columns: Columns) -> tuple[Floats, Floats]:
        size = columns.get(self.family.outcome.size)
        return curves_at(self.fit, columns["score"], columns.get("group"), size)

    def at(self, columns: Columns, cells: int) -> tuple[list[Floats], list[Floats]]:
        """Nodes of cells at equally many points each, (points, 3, nodes), and their ways."""
        nodes, n = [], len(columns["score"])
        step = max(1, _AT_ONCE // (n // cells) // self.fit.data["posterior"].sizes["draw"])
        for begin in range(0, cells, step):
            own = slice(begin * n // cells, min(begin + step, cells) * n // cells)
            first, second = self._draws({name: v[own] for name, v in columns.items()})
            spread = curve_spread(self.family, first, second).reshape(-1, n // cells).max(axis=1)
            tops, numbers = zip(*_LEVELS, strict=True)
            level = np.array(numbers)[np.searchsorted(tops, spread)]
            few = len(first) if len(first) < numbers[0] else 0
            first, second = (v.T.reshape(-1, n // cells, v.shape[0]) for v in (first, second))
            for k, number in enumerate(level.tolist()):
                nodes.append(gauss_rules(first[k], second[k], few or number))
        return nodes, [np.zeros((own.shape[2], 0)) for own in nodes]


class _Mixture:
    """Components of a mixture, with mean and covariance of their weights over the draws."""

    def __init__(self, fit: Fit) -> None:
        # the covariance is that of a cell's middle
        self.fewest = 16 if fit.groups or fit.prior.exposure is not None else 64
        self.fit, self.family = fit, family_of(fit.prior)
        self._posterior = mixture_of(fit)

    def at(self, columns: Columns, cells: int) -> tuple[list[Floats], list[Floats]]:
        """As `_Rules.at`; ways are of the middle point of a cell."""
        n = len(columns["score"])
        mean, draws, theta = self._posterior.prior_nodes(columns, n // cells)
        values = np.stack(np.broadcast_arrays(mean, *self.family.to_curves(*theta)), axis=1)
        return list(values.reshape(cells, -1, *values.shape[1:])), list(map(_ways, draws))


def _ways(weights: Floats) -> Floats:
    """Ways (nodes, k) in which weights (draws, nodes) vary, whose products are their covariance."""
    away = (weights - weights.mean(axis=0)) / np.sqrt(len(weights))
    _, size, directions = np.linalg.svd(away, full_matrices=False)
    few = min(int((np.cumsum(size**2) < (1.0 - _FAINT) * (size @ size)).sum()) + 1, _MOST_WAYS)
    return np.asarray((size[:few, None] * directions[:few]).T)


_Source = _Rules | _Mixture


def _is_open(source: _Source) -> bool:
    """Whether scores may lie beyond all cells, as ranks may not."""
    return source.fit.axis("mean").scale != RANK


def _block(
    source: _Source, edges: Floats, sizes: Floats, label: str | None
) -> list[tuple[Floats, Floats]]:
    """Polynomials (nodes, 3, terms) and ways of all cells of a group, atoms last."""
    number = max(len(sizes) - 1, 1)
    inside, ways = source.at(
        _grid(source.fit, edges, sizes, label, _X, _W), number * (len(edges) - 1)
    )
    found = []
    for k, nodes in enumerate(inside):
        line = 1 if _is_open(source) and k // number in (0, len(edges) - 2) else 3
        found.append(_polynomials(nodes, line, bool(len(sizes))))
    atoms = np.array(source.fit.atoms)
    if len(atoms):
        v = sizes[:-1, None] + np.diff(sizes)[:, None] * _W if len(sizes) else np.zeros((1, 1))
        score = np.repeat(atoms, v.size)
        size = np.tile(v.ravel(), len(atoms)) if len(sizes) else None
        own, more = source.at(_columns(source.fit, score, label, size), number * len(atoms))
        found += [_polynomials(nodes, 0, bool(len(sizes))) for nodes in own]
        ways = ways + more
    return list(zip(found, ways, strict=True))


def _polynomials(nodes: Floats, line: int, plane: bool) -> Floats:
    """Coefficients (nodes, 3, terms) of values (points, 3, nodes), of a degree along the score.

    A line goes on beyond the outermost cells; weights stay the same there.
    """
    terms = _PLANE if plane else _LINE
    w = _W if plane else np.zeros(1)
    x, y = (z.ravel() for z in np.meshgrid(_X if line else np.zeros(1), w, indexing="ij"))
    out = np.zeros((nodes.shape[2], 3, len(terms)))
    for rows, most in ((slice(0, 1), line if line > 1 else 0), (slice(1, 3), line)):
        kept = [k for k, (i, _) in enumerate(terms) if i <= most]
        basis = np.stack([x**i * y**j for i, j in np.array(terms)[kept]], axis=1)
        own = np.linalg.lstsq(basis, nodes[:, rows].reshape(len(nodes), -1))[0]
        out[:, rows, kept] = own.reshape(len(kept), -1, nodes.shape[2]).transpose(2, 1, 0)
    return out


def _error(source: _Source, edges: Floats, sizes: Floats, label: str | None, along: int) -> float:
    """Largest error of the nodes' moments at points between, along the score or the size."""
    number = max(len(sizes) - 1, 1)
    x, w = (_BETWEEN, _W) if along == 0 else (_X, _BETWEEN)
    exact, _ = source.at(_grid(source.fit, edges, sizes, label, x, w), number * (len(edges) - 1))
    block = _block(source, edges, sizes, label)[: len(exact)]
    terms = _PLANE if len(sizes) else _LINE
    at = np.meshgrid(x, w if len(sizes) else np.zeros(1), indexing="ij")
    powers = np.stack([at[0].ravel() ** i * at[1].ravel() ** j for i, j in terms])
    worst = []
    # the outermost cells are for scores far from all others
    inner = slice(number, -number) if _is_open(source) else slice(None)
    for nodes, (coefficients, _) in zip(exact[inner], block[inner], strict=False):
        if nodes.shape[2] != len(coefficients):  # more nodes there
            continue
        found = _moments((coefficients @ powers).transpose(1, 0, 2))
        true = _moments(nodes.transpose(1, 2, 0))
        unit = np.sqrt(np.exp(true[1]) + true[2])
        units = np.array([unit, np.ones_like(unit), unit**2, unit, np.ones_like(unit)])
        worst.append(float((np.abs(found - true) / units).max()))
    return max(worst)


def _moments(nodes: Floats) -> Floats:
    """Means, variance, covariance and variance of both curves over nodes (3, nodes, n), (5, n)."""
    weight, first, second = nodes
    total = weight.sum(axis=0)
    m, c = (weight * first).sum(axis=0) / total, (weight * second).sum(axis=0) / total
    a, b = first - m, second - c
    return np.stack([m, c, *((weight * z).sum(axis=0) / total for z in (a * a, a * b, b * b))])


# --- quantiles and files -------------------------------------------------------------------------


def quantile_table(family: Family, levels: tuple[float, ...]) -> Floats:
    """Polynomials of quantiles, (levels, powers, powers, cells, cells), in log a and log b.

    They are of t - t(mean), in units that depend on a and b alone.
    """
    own = prior_table._FAMILIES[family.name]
    if own.depends == 0:
        return np.asarray(stats.norm.ppf(levels).reshape(-1, 1, 1, 1, 1))
    at = np.exp(_LOW + _STEP * (np.arange(_PARTS)[:, None] + _X)).ravel()
    a, b = np.meshgrid(at, at if own.depends == 2 else at[:1], indexing="ij")
    two = b if b.shape[1] > 1 else a
    inverse = np.linalg.pinv(np.vander(_X, 4, increasing=True))
    found = []
    for level in levels:
        t = np.log(np.maximum(family.quantile(level, a, two), _TINY))
        if b.shape[1] > 1:  # 1 - q has all its digits as a quantile of the mirrored Beta
            t = t - np.log(np.maximum(family.quantile(1.0 - level, two, a), _TINY))
        values = (t - own.line(family.mean(a, two), prior_table._ARRAYS)) / own.unit(
            a, two, prior_table._ARRAYS
        )
        rows = np.einsum("kp,ipj->kij", inverse, values.reshape(_PARTS, len(_X), -1))
        if b.shape[1] > 1:
            rows = np.einsum("lp,kijp->klij", inverse, rows.reshape(4, _PARTS, _PARTS, len(_X)))
        found.append(rows.reshape(4, -1, _PARTS, rows.shape[-1]))
    return np.round(np.stack(found), 6)


def _write_json(meta: dict[str, Any], columns: dict[str, NDArray[Any]], path: Path) -> None:
    short = {
        name: values.tolist()
        if values.dtype.kind == "i"
        else [float(f"{v:.{_DIGITS[values.itemsize]}g}") for v in values]
        for name, values in columns.items()
    }
    path.write_text(
        json.dumps({"meta": meta, "nodes": short}, separators=(",", ":"), allow_nan=False)
    )


def _write_parquet(meta: dict[str, Any], columns: dict[str, NDArray[Any]], path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table(columns).replace_schema_metadata({"soc_pymc_prior": json.dumps(meta)})
    pq.write_table(
        table,
        path,
        compression="zstd",
        use_dictionary=["cell", "node"],
        use_byte_stream_split=[name for name, own in columns.items() if own.dtype.kind == "f"],
    )
