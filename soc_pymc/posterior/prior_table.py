"""Posteriors of items from an exported prior, with NumPy alone: this file can be copied elsewhere.

A table cuts scores, groups and log sizes into cells. In a cell the prior has nodes, pairs of
conjugate parameters with weights, given by two curves that are polynomials there. An item updates
every node (`alpha + clicks`), and under a mixture the weights too, by Bayes' rule.
"""

import json
import math
from bisect import bisect_right
from operator import getitem
from types import SimpleNamespace
from typing import Any

import numpy as np

__all__ = ["load", "score"]

_FORMAT = "soc_pymc-prior-3"
_Table = dict[str, Any]
_PART = 1 << 12  # items at once
_NEAR = 0.01  # largest correction of a single item's quantile in posterior sd
# steps of a solution, the last one's error as a logit, and how far a step goes towards a bound
_MOST, _CLOSE, _PART_WAY = 60, 0.05, 0.7
_ARRAYS = SimpleNamespace(
    log=np.log, exp=np.exp, sqrt=np.sqrt, low=np.minimum, high=np.maximum, where=np.where,
    keep=lambda v: v, never=-math.inf, whole=lambda v: v.astype(np.int32), every=np.all,
    take=np.take, find=lambda edges, u: np.searchsorted(edges, u, side="right"))  # fmt: skip
_NUMBERS = SimpleNamespace(
    log=math.log, exp=math.exp, sqrt=math.sqrt, low=min, high=max, whole=int, every=bool,
    take=getitem, find=bisect_right)  # fmt: skip


def __dir__() -> list[str]:
    return __all__


# --- families: in + - * / and given functions, so for numbers, arrays and columns of engines ------


def _stirling(z: Any) -> Any:
    """What Stirling's formula adds to (z - 1/2) log z - z + log(2 pi) / 2."""
    return (1 / 12 - (1 / 360 - 1 / (1260 * z * z)) / (z * z)) / z


def _log_rise(x: Any, k: Any, of: Any) -> Any:
    """Log of Gamma(x + k) / Gamma(x), with all digits where x is large."""
    z, u, low, high = x + 8.0, k / (x + 8.0), 1.0, 1.0  # two products, for k up to 1e77
    for i in range(4):
        low, high = low * (1.0 + k / (x + i)), high * (1.0 + k / (x + i + 4))
    small = u * (1.0 - u * (1 / 2 - u * (1 / 3 - u * (1 / 4 - u / 5))))
    log1p = of.where(u < 1e-3, small, of.log(1.0 + u))
    more = _stirling(z + k) - _stirling(z) - of.log(low) - of.log(high)
    return (z - 0.5) * log1p + k * (of.log(z + k) - 1.0) + more


def _normal_cdf(z: Any, of: Any) -> Any:
    """To 1e-7 (Abramowitz and Stegun 1964, 26.2.17)."""
    u = 1.0 / (1.0 + 0.2316419 * of.high(z, -z))
    poly = _horner([0.31938153, -0.356563782, 1.781477937, -1.821255978, 1.330274429], u)
    tail = of.exp(-0.5 * z * z) * u * poly / math.sqrt(2.0 * math.pi)
    return of.where(z > 0, 1.0 - tail, tail)


def _bend(ratio: Any, of: Any) -> Any:
    """The function g of Peizer and Pratt (1968), (1 - u^2 + 2 u log u) / (1 - u)^2."""
    u = of.keep(of.low(of.high(ratio, 1e-9), 1e6))
    e, near = u - 1.0, of.high(u - 1.0, 1.0 - u) < 0.02
    whole = (1.0 - u * u + 2.0 * u * of.log(u)) / of.where(near, 1.0, e * e)
    return of.where(near, e * (e * (1 / 6 - e * (1 / 10 - e / 15)) - 1 / 3), whole)


def _raised(a: Any, *by: Any) -> Any:
    """Sum of the four terms by which a distribution function rises to a shape a + 4."""
    return (1.0 + by[0] / (a + 1.0) * (1.0 + by[1] / (a + 2.0) * (1.0 + by[2] / (a + 3.0)))) / a


def _gamma_law(a: Any, b: Any, norm: Any, t: Any, of: Any) -> tuple[Any, Any]:
    """Distribution function at theta = exp(t) and density of t, by Peizer and Pratt at a + 4."""
    x = of.keep(of.high(b * of.exp(of.low(t, 690.0)), 1e-290))
    density = of.keep(of.exp(norm + a * t - x))
    away = x - a - 4.0 + 1 / 3 - 0.02 / (a + 4.0)
    z = of.keep(away * of.sqrt((1.0 + _bend((a + 3.5) / x, of)) / x))
    return _normal_cdf(z, of) + density * _raised(a, x, x, x), density


def _beta_law(a: Any, b: Any, norm: Any, t: Any, of: Any) -> tuple[Any, Any]:
    """The same at theta = 1 / (1 + exp(-t)), for both parameters."""
    t, m, c, d = of.keep(of.low(of.high(t, -690.0), 690.0)), a + b, a + 4.0, b + 4.0
    p, q = of.keep(1.0 / (1.0 + of.exp(-t))), of.keep(1.0 / (1.0 + of.exp(t)))
    density = of.keep(of.exp(norm + a * of.log(p) + b * of.log(q)))
    other = density * p * m / a * (p * (m + 1) / (a + 1)) * (p * (m + 2) / (a + 2))
    other = other * (p * (m + 3) / (a + 3)) * _raised(b, q * (m + 4), q * (m + 5), q * (m + 6))
    more = 0.02 * (q / c - p / d + (q - 0.5) / (m + 8.0))
    bend = q * _bend((a + 3.5) / (m + 7.0) / p, of) + p * _bend((b + 3.5) / (m + 7.0) / q, of)
    away = (m + 7.0 + 1 / 3) * p - a - 3.5 - 1 / 6 - more
    z = of.keep(away * of.sqrt((1.0 + bend) / ((m + 7.0 + 1 / 6) * p * q)))
    raised = _raised(a, p * m, p * (m + 1), p * (m + 2))
    return _normal_cdf(z, of) + density * raised - other, density


def _normal_law(a: Any, b: Any, norm: Any, t: Any, of: Any) -> tuple[Any, Any]:
    z = of.keep((t - a) / of.sqrt(b))
    return _normal_cdf(z, of), of.exp(norm - 0.5 * z * z)


def _normal_update(a: Any, b: Any, value: Any, noise_sd: Any) -> tuple[Any, Any]:
    keep = 1.0 / (1.0 + b / noise_sd / noise_sd)
    return a * keep + value * (1.0 - keep), b * keep


def _normal_log(a: Any, b: Any, value: Any, noise_sd: Any, of: Any) -> Any:
    whole = b + noise_sd * noise_sd
    return -0.5 * ((value - a) * (value - a) / whole + of.log(of.low(whole, 1e300)))


_FAMILIES = {
    "Gamma": SimpleNamespace(
        parameters=lambda f, s, of: (of.exp(-s), of.exp(-s - f)),  # of both curves
        update=lambda a, b, y, n: (a + y, b + n),
        # mean m, and c, d, e of the Pearson family's c + d (theta - m) + e (theta - m)^2
        pearson=lambda a, b: (a / b, a / b / b, 1.0 / b, 0.0),
        kernel=lambda q, a, b: q / b,  # its value at q
        matched=lambda mean, variance: (mean / variance * mean, mean / variance),
        log_density=lambda a, b, y, n, of: (  # of outcomes, up to what is the same for all nodes
            _log_rise(a, y, of) - a * of.log(1.0 + n / b) - y * of.log(b + n)),
        at_zero=lambda y, n, of: of.where(y > 0, of.never, 0.0),  # the same where theta is 0
        line=lambda theta, of: of.log(theta),  # theta on the whole line, t
        theta=lambda t, of: of.exp(t),
        # log norm of t's density; distribution function and density at t
        norm=lambda a, b, of: of.log(a) + a * of.log(b) - _log_rise(1.0, a, of),
        law=_gamma_law,
        depends=1,  # how many of the two parameters quantiles depend on
        unit=lambda a, b, of: 1.0 / of.sqrt(a),  # of t in the table of quantiles
        positive=True, none=0.0,  # whether theta is; size without information
        good=lambda y, n: (y >= 0) & (n >= 0) & ((n > 0) | (y == 0)) & (y + n < math.inf)),
    "Beta": SimpleNamespace(
        parameters=lambda f, s, of: (
            of.exp(-s) * (1.0 + of.exp(f)), of.exp(-s) * (1.0 + of.exp(-f))),
        update=lambda a, b, y, n: (a + y, b + (n - y)),
        pearson=lambda a, b: (
            a / (a + b), a / (a + b) * (b / (a + b)) / (a + b), (b - a) / (a + b) / (a + b),
            -1.0 / (a + b)),
        kernel=lambda q, a, b: q * (1.0 - q) / (a + b),
        matched=lambda mean, variance: (
            mean * (mean * (1.0 - mean) / variance - 1.0),
            (1.0 - mean) * (mean * (1.0 - mean) / variance - 1.0)),
        log_density=lambda a, b, y, n, of: (
            _log_rise(a, y, of) + _log_rise(b, n - y, of) - _log_rise(a + b, n, of)),
        at_zero=lambda y, n, of: of.where(y > 0, of.never, 0.0),
        line=lambda theta, of: of.log(theta / (1.0 - theta)),
        theta=lambda t, of: 1.0 / (1.0 + of.exp(-t)),
        norm=lambda a, b, of: of.log(a) + _log_rise(b, a, of) - _log_rise(1.0, a, of),
        law=_beta_law,
        depends=2,
        unit=lambda a, b, of: of.sqrt(1.0 / a + 1.0 / b),
        positive=True, none=0.0,
        good=lambda y, n: (y >= 0) & (n >= y) & (n < math.inf)),
    "Normal": SimpleNamespace(
        parameters=lambda f, s, of: (f, of.exp(s)),
        update=_normal_update,
        pearson=lambda a, b: (a, b, 0.0, 0.0),
        kernel=lambda q, a, b: b,
        matched=lambda mean, variance: (mean, variance),
        log_density=_normal_log,
        at_zero=lambda y, n, of: _normal_log(0.0, 0.0, y, n, of),
        line=lambda theta, of: theta,
        theta=lambda t, of: t,
        norm=lambda a, b, of: -0.5 * of.log(2.0 * math.pi * b),
        law=_normal_law,
        depends=0,
        unit=lambda a, b, of: of.sqrt(b),
        positive=False, none=1e150,
        good=lambda y, n: (abs(y) < math.inf) & (n > 0) & (n < math.inf)),
}  # fmt: skip

# --- tables ---------------------------------------------------------------------------------------


def load(path: Any) -> _Table:
    """Read a prior table: JSON with the standard library, Parquet with PyArrow.

    Parameters
    ----------
    path
        The file that `soc.export_prior` wrote, ``*.json`` or ``*.parquet``.

    Returns
    -------
    dict
        The table: what describes it (``made``, the day; ``fit``, the fit's digest; ``family``;
        ``axis``, ``cells``, ``groups``, ``atoms``, ``levels`` of quantiles), and arrays.

    Raises
    ------
    ValueError
        If the file has another suffix or holds no prior table of this version.

    Examples
    --------
    >>> load("prior.txt")
    Traceback (most recent call last):
    ValueError: prior.txt: the name of a prior table ends with .json or .parquet
    """
    name = str(path)
    if name.endswith(".parquet"):
        import pyarrow.parquet as pq

        read = pq.read_table(name)
        meta = json.loads((read.schema.metadata or {}).get(b"soc_pymc_prior", "{}"))
        columns = {c: read[c].to_numpy() for c in read.column_names}
    elif name.endswith(".json"):
        with open(name, encoding="utf-8") as file:
            text = file.read()
        try:
            whole = dict(json.loads(text))
        except (TypeError, ValueError):
            raise ValueError(f"{name} holds no prior table: export it again") from None
        meta, columns = whole.get("meta", {}), whole.get("nodes", {})
    else:
        raise ValueError(f"{name}: the name of a prior table ends with .json or .parquet")
    if meta.get("format") != _FORMAT:
        raise ValueError(f"{name} has format {meta.get('format')!r}, this reads {_FORMAT!r}")
    return _made(meta, columns)


def _made(meta: _Table, columns: dict[str, Any]) -> _Table:
    """The table that `load` gives."""
    quantiles = np.array(meta["quantiles"], dtype=float).reshape(meta["shape"])
    values = np.column_stack([np.asarray(values, dtype=float) for values in columns.values()])
    own = 2 + 3 * len(meta["terms"])
    return {
        **meta,
        "quantiles": quantiles,
        "by_cell": np.moveaxis(quantiles, (3, 4), (0, 1)).tolist(),  # for single items
        "known": {label: k for k, label in enumerate(meta["groups"])},
        "start": np.searchsorted(values[:, 0], np.arange(meta["cells"] + 1)).tolist(),
        "nodes": values[:, 2:own].reshape(len(values), 3, -1),
        "ways": values[:, own:],
    }


def score(
    table: _Table, score: Any, outcome: Any = None, size: Any = None, group: Any = None
) -> dict[str, Any]:
    """Posterior mean, sd and quantiles of theta, of one item or of arrays of items.

    Parameters
    ----------
    table
        The prior, from `load`.
    score
        Scores.
    outcome, size
        Counts and exposures, values and noise sds, or successes and trials; without an outcome
        theta is given the score alone.
    group
        Labels of groups, for a table with groups.

    Returns
    -------
    dict
        ``mean``, ``sd``, ``lower`` and ``upper`` (quantiles at the table's ``levels``), in the unit
        of theta, and ``p_zero`` if theta may be 0: floats for one item, else arrays (n,).

    Raises
    ------
    ValueError
        If scores have no position, outcomes are not possible, or a group or size is missing.

    Examples
    --------
    >>> import tempfile, pathlib, soc_pymc as soc
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     table = load(soc.export_prior(fit, pathlib.Path(folder) / "prior.json"))
    >>> found = soc.prior_table.score(table, 0.05, 2, 30.0)
    >>> found["lower"] < found["mean"] < found["upper"]
    True
    """
    family, one = _FAMILIES[table["family"]], isinstance(score, (float, int)) or np.ndim(score) == 0
    if outcome is not None and size is None:
        raise ValueError("outcomes need their sizes: give size= too")
    y, n = (0.0, family.none) if outcome is None else (outcome, size)
    names = ["mean", "sd", "lower", "upper"] + ["p_zero"] * table["zero"]
    if one and not table["mixture"]:
        cell, x, w = _places(table, score, size, group, _NUMBERS)
        if not family.good(y, n):
            raise ValueError(f"outcome {y!r} with size {n!r} is not possible")
        return dict(zip(names, _in_cell(table, family, cell, x, w, y, n, _NUMBERS), strict=True))
    t = np.atleast_1d(np.asarray(score, dtype=float))
    y, n = (np.broadcast_to(np.asarray(v, dtype=float), t.shape) for v in (y, n))
    bad = ~family.good(y, n)
    if bad.any():
        raise ValueError(f"{bad.sum()} of {len(t)} outcomes are not possible with their sizes")
    cell, x, w = _places(table, t, size, [group] if one else group, _ARRAYS)
    order = np.argsort(cell.astype(np.int16 if table["cells"] < 1 << 15 else int), kind="stable")
    out = np.empty((len(names), len(t)))
    for own in np.split(order, np.flatnonzero(np.diff(cell[order])) + 1):
        for at in np.split(own, range(_PART, len(own), _PART)):
            if len(at):
                given = x[at], w[at], y[at], n[at]
                out[:, at] = _in_cell(table, family, int(cell[at[0]]), *given, _ARRAYS)
    return {k: float(row[0]) if one else row for k, row in zip(names, out, strict=True)}


def _places(table: _Table, t: Any, size: Any, group: Any, of: Any) -> tuple[Any, Any, Any]:
    """Cells of scores, and the places along score and size there."""
    axis, cells = table["axis"], len(table["edges"]) - 1
    good = (t > axis["low"]) & (t < axis["high"])
    if not of.every(good):
        raise ValueError(
            f"{np.sum(~np.asarray(good))} of {np.size(t)} scores are not above {axis['low']:g} and "
            f"below {axis['high']:g}: on the {axis['scale']} scale these have no position"
        )
    u = t if axis["low"] else of.log(t)
    u = u - of.log(1.0 - t) if axis["high"] == 1.0 and not axis["low"] else u
    u = np.interp(t, axis["score"], axis["rank"]) if "score" in axis else u
    at, x = _within(table["edges"], u, of)
    x = of.low(of.high(x, table["reach"][0]), table["reach"][1])
    for k, atom in enumerate(table["atoms"]):
        own = t == atom
        at, x = at + (cells + k - at) * own, x * (own == 0)
    if table["groups"]:
        labels = [group] if of is _NUMBERS else [] if group is None else group
        try:
            code = np.array([table["known"][str(label)] for label in labels])
        except KeyError as error:
            raise ValueError(f"group {error} is not one of the table's") from None
        if len(code) != np.size(t):
            raise ValueError(f"{len(code)} groups for {np.size(t)} scores: give group= of each")
        at = at + (cells + len(table["atoms"])) * (int(code[0]) if of is _NUMBERS else code)
    if not table["sizes"]:
        return at, x, 0.0 * x
    if size is None:
        raise ValueError("theta depends on the size in this table: give size= too")
    knots = table["sizes"]
    size = size + 0.0 if of is _NUMBERS else np.broadcast_to(np.asarray(size, float), t.shape)
    v = of.low(of.high(of.log(of.high(size, 1e-300)), knots[0]), knots[-1])
    own, w = _within(knots, v, of)
    return at * (len(knots) - 1) + own, x, w


def _within(edges: Any, u: Any, of: Any) -> tuple[Any, Any]:
    """Number of the cell between edges, the outer ones without end, and the place from 0 to 1."""
    at = of.low(of.high(of.find(edges, u) - 1, 0), len(edges) - 2)
    left = of.take(edges, at)
    return at, (u - left) / (of.take(edges, at + 1) - left)


def _in_cell(table: _Table, family: Any, cell: int, x: Any, w: Any, y: Any, n: Any, of: Any) -> Any:
    """Values of `score` for one item, or rows for the items of one cell."""
    own, zero = slice(table["start"][cell], table["start"][cell + 1]), 0.0 * x
    rows = table["nodes"][own] @ np.array([x**i * w**j if j else x**i for i, j in table["terms"]])
    rows = rows if of is _ARRAYS else rows.tolist()
    nodes = [(u, *family.parameters(first, second, of)) for u, first, second in rows]
    if table["mixture"]:
        nodes, zero = _weighed(table, family, table["ways"][own], nodes, y, n)
    nodes = [(u, *family.update(a, b, y, n)) for u, a, b in nodes]
    each = [(u, *family.pearson(a, b)) for u, a, b in nodes]
    mean = sum([node[0] * node[1] for node in each])
    variance = sum([u * (c / (1.0 - e) + (m - mean) * (m - mean)) for u, m, c, _, e in each])
    starts, unit = _starts(table, family, mean, variance, of)
    ends: Any = _moved(family, each, mean, variance, starts) if of is _NUMBERS else None
    if ends is None:
        weight, a, b = np.array(nodes).reshape(len(nodes), 3, 1, -1).swapaxes(0, 1)
        at = np.reshape(starts, (2, -1))
        ends = _solved(family, table["levels"], at, weight, a, b, zero, unit)
        ends = ends if of is _ARRAYS else ends[:, 0].tolist()
    spread = of.sqrt((1.0 - zero) * (variance + zero * mean * mean))
    return [(1.0 - zero) * mean, spread, *ends, *[zero] * table["zero"]]


def _weighed(table: _Table, family: Any, ways: Any, nodes: Any, y: Any, n: Any) -> tuple[Any, Any]:
    """Nodes with weights given the outcome, and the probability that theta is 0."""
    weight, a, b = np.array(nodes).swapaxes(0, 1)
    log_p = family.log_density(a, b, y, n, _ARRAYS)
    if table["zero"]:
        log_p[-1] = family.at_zero(y, n, _ARRAYS)
    p = np.exp(log_p - log_p.max(axis=0))
    # Bayes' rule, averaged over uncertain weights as if they and their sum were lognormal
    moved = ways.T @ p / (weight * p).sum(axis=0)
    near = 1.0 + (ways @ moved) / np.maximum(weight, 1e-300)
    weight = weight * p * (1.0 + (moved**2).sum(axis=0)) / np.maximum(near, 0.1)
    weight, zero = weight / weight.sum(axis=0), 0.0 * y
    if table["zero"]:
        zero, weight, a, b = weight[-1], weight[:-1], a[:-1], b[:-1]
        weight = weight / np.maximum(weight.sum(axis=0), 1e-300)
    return list(zip(weight, a, b, strict=True)), zero


# --- quantiles: for one item by moments, else from the nodes' distribution ------------------------


def _starts(table: _Table, family: Any, mean: Any, variance: Any, of: Any) -> tuple[Any, Any]:
    """Quantiles on the line of the member with this mean and variance, and a unit there."""
    a, b = family.matched(mean, variance)
    cells = []
    for value, number in zip((a, b), table["shape"][3:], strict=True):
        v = (of.log(of.high(value, 1e-300)) - table["low"]) / table["step"]
        v = of.low(of.high(v, 0.0), number - 1e-6)
        cells.append((of.whole(v), v - of.whole(v)))
    (i, p), (j, q) = cells
    start, unit = family.line(mean, of), family.unit(a, b, of)
    rows = table["quantiles"][..., i, j] if of is _ARRAYS else table["by_cell"][i][j]
    return [start + unit * _horner([_horner(row, q) for row in own], p) for own in rows], unit


def _moved(family: Any, each: Any, mean: float, variance: float, starts: Any) -> Any:
    """Quantiles that are moved for the third and fourth moment; None if by much.

    By the orthogonal polynomials of these degrees of the member with the mean and variance, which
    is of a Pearson family; the integral of one is its derivative times kernel and density.
    """
    third = fourth = 0.0
    for u, m, *curve in each:
        d, (v, skew, tall) = m - mean, _central(*curve)
        inner, outer = u * (v / variance), u * (d * d / variance)
        third += inner * (skew + 3.0 * d) + outer * d
        fourth += inner * (tall + d * (4.0 * skew + 6.0 * d)) + outer * d * d
    a, b = family.matched(mean, variance)
    _, c, d, e = family.pearson(a, b)
    _, skew, tall = _central(c, d, e)
    p, q, r = 1.0 - 3.0 * e, 1.0 - 4.0 * e, 1.0 - 5.0 * e
    x, y, z = d / (1.0 - 2.0 * e), 2.0 * d / q, 3.0 * d / (1.0 - 6.0 * e)
    s2, f3 = -3.0 * y, -4.0 * z
    s1, f2 = -(d * s2 + 3.0 * c) / p, -3.0 * (d * f3 + 2.0 * c) / r
    f1 = -2.0 * (d * f2 + 3.0 * c * f3) / (3.0 * q)
    norm = (c + x * (d + e * x)) / (p - p * e) * (c + y * (d + e * y)) / (p * r) * (1.0 - e)
    four = (c + z * (d + e * z)) / (r - 7.0 * r * e)
    s = (third - skew) / norm / (18.0 - 36.0 * e)
    f = (fourth - tall + f3 * (third - skew)) / norm / four / (96.0 * p) / (1.0 - 2.0 * e)
    cubic = [s * s1 + f * f1, 2.0 * (s * s2 + f * f2), 3.0 * (s + f * f3), 4.0 * f]
    ends = [family.theta(start, _NUMBERS) for start in starts]
    moves = [family.kernel(end, a, b) * _horner(cubic, end - mean) for end in ends]
    far = max(map(abs, moves)) > _NEAR * math.sqrt(variance)
    return None if far else [end + move for end, move in zip(ends, moves, strict=True)]


def _central(c: Any, d: Any, e: Any) -> tuple[Any, Any, Any]:
    """Variance of a member of a Pearson family, third and fourth central moment over it."""
    skew = 2.0 * d / (1.0 - 2.0 * e)
    return c / (1.0 - e), skew, 3.0 * (c + d * skew) / (1.0 - 3.0 * e)


def _horner(coefficients: Any, x: Any) -> Any:
    """A polynomial's value."""
    total = coefficients[-1]
    for c in coefficients[-2::-1]:
        total = total * x + c
    return total


def _solved(
    family: Any, levels: Any, t: Any, weight: Any, a: Any, b: Any, zero: Any, unit: Any
) -> Any:
    """Quantiles (2, n) of mixtures of nodes (R, 1, n), with a share of zeros, from t nearby."""
    norm = family.norm(a, b, _ARRAYS)
    below = 0.0 if family.positive else family.law(a, b, norm, 0.0, _ARRAYS)[0]
    share, zeros = _share(np.array(levels)[:, None], zero, (weight * below).sum(axis=0), _ARRAYS)
    low, high = -1e300, 1e300
    for _ in range(_MOST):
        p, density = ((weight * v).sum(axis=0) for v in family.law(a, b, norm, t, _ARRAYS))
        t, low, high = _step(share, p, density, t, low, high, unit, _ARRAYS)
        if np.all(_is_close(p, share, _CLOSE, _ARRAYS)):
            break
    return np.where(zeros, 0.0, family.theta(t, _ARRAYS))


def _share(level: Any, zero: Any, below: Any, of: Any) -> tuple[Any, Any]:
    """The level among thetas that are not 0, of which a part is below 0; and whether it is at 0."""
    rest = of.high(1.0 - zero, 1e-290)
    under = rest * below
    share = of.where(level < under, level, of.high(level - zero, under)) / rest
    return of.low(of.high(share, 1e-9), 1.0 - 1e-9), (level >= under) & (level <= under + zero)


def _step(
    share: Any, p: Any, density: Any, t: Any, low: Any, high: Any, unit: Any, of: Any
) -> tuple[Any, Any, Any]:
    """A step of Newton's method on the logit of a probability, within bounds that it narrows."""
    p = of.keep(of.low(of.high(p, 1e-12), 1.0 - 1e-12))
    low, high = of.keep(of.where(p < share, t, low)), of.keep(of.where(p < share, high, t))
    step = of.log(share * (1.0 - p) / (p * (1.0 - share))) * p * (1.0 - p)
    step = of.low(of.high(step / of.high(density, 1e-290), -3.0 * unit), 3.0 * unit)
    return t + of.low(of.high(step, _PART_WAY * (low - t)), _PART_WAY * (high - t)), low, high


def _is_close(p: Any, share: Any, within: float, of: Any) -> Any:
    """Whether a step from there is the last: its error is squared."""
    return of.high(p - share, share - p) < within * share * (1.0 - share)
