"""Posteriors of items from an exported prior, with NumPy alone: this file can be copied elsewhere.

A table cuts scores, groups and log sizes into cells. In a cell the prior has nodes, pairs of
conjugate parameters with weights, given by two curves that are polynomials there. An item updates
every node (`alpha + clicks`), and under a mixture the weights too, by Bayes' rule.
"""

import json
import math
from types import SimpleNamespace
from typing import Any

import numpy as np

__all__ = ["load", "score"]

_FORMAT = "soc_pymc-prior-2"
_Table = dict[str, Any]
_PART, _FEW = 1 << 14, 1 << 10  # items at once, and where their densities are on a grid
_NEAR, _GRID = 0.01, 160  # largest correction of a quantile in posterior sd; points beyond it
_ARRAYS = SimpleNamespace(
    log=np.log, exp=np.exp, sqrt=np.sqrt, low=np.minimum, high=np.maximum, where=np.where,
    never=-math.inf, whole=lambda v: v.astype(np.int32))  # fmt: skip
_NUMBERS = SimpleNamespace(
    log=math.log, exp=math.exp, sqrt=math.sqrt, low=min, high=max, whole=int)  # fmt: skip


def __dir__() -> list[str]:
    return __all__


# --- families: in + - * / and given functions, so for numbers, arrays and columns of engines ------


def _stirling(z: Any) -> Any:
    """What Stirling's formula adds to (z - 1/2) log z - z + log(2 pi) / 2."""
    return (1 / 12 - (1 / 360 - 1 / (1260 * z * z)) / (z * z)) / z


def _log_gamma(x: Any, of: Any) -> Any:
    """Log of the gamma function, by Stirling's formula at x + 8."""
    product = x * (x + 1) * (x + 2) * (x + 3) * (x + 4) * (x + 5) * (x + 6) * (x + 7)
    z = x + 8.0
    return (z - 0.5) * of.log(z) - z + 0.5 * math.log(2 * math.pi) + _stirling(z) - of.log(product)


def _log_rise(x: Any, k: Any, of: Any) -> Any:
    """Log of Gamma(x + k) / Gamma(x), with all digits where x is large."""
    z, u, ratio = x + 8.0, k / (x + 8.0), 1.0
    for i in range(8):
        ratio = ratio * (1.0 + k / (x + i))
    small = u * (1.0 - u * (1 / 2 - u * (1 / 3 - u * (1 / 4 - u / 5))))
    log1p = of.where(u < 1e-3, small, of.log(1.0 + u))
    more = _stirling(z + k) - _stirling(z) - of.log(ratio)
    return (z - 0.5) * log1p + k * (of.log(z + k) - 1.0) + more


def _gamma_moments(a: Any, b: Any) -> tuple[Any, ...]:
    mean = a / b
    return mean, mean / b, 2.0 / b, 3.0 * (mean + 2.0 / b) / b


def _beta_moments(a: Any, b: Any) -> tuple[Any, ...]:
    m = a + b
    variance = (a / m) * (b / m) / (m + 1.0)
    tall = 6.0 * ((a - b) / a * ((a - b) / b) * ((m + 1.0) / (m + 2.0)) - 1.0) / (m + 3.0)
    return a / m, variance, 2.0 * ((b - a) / m) / (m + 2.0), variance * (3.0 + tall)


def _gamma_moved(q: Any, a: Any, b: Any, third: Any, fourth: Any) -> Any:
    x, third, fourth = q * b, third * b, fourth * b * b
    low, more = (a + 1.0) * (a + 2.0), fourth - 12.0 * third
    two = x * (x - 2.0 * (a + 2.0)) + (a + 1.0) * (a + 2.0)
    cubic = x * (x * (x - 3.0 * (a + 3.0)) + 3.0 * (a + 2.0) * (a + 3.0))
    cubic = cubic - (a + 1.0) * (a + 2.0) * (a + 3.0)
    return q * (third / (6.0 * low) * two + more / (24.0 * low * (a + 3.0)) * cubic)


def _beta_moved(q: Any, a: Any, b: Any, third: Any, fourth: Any) -> Any:
    m = a + b
    # the weights of both polynomials over the variance
    norm = 6.0 * (a + 1.0) * (a + 2.0) / (m + 2.0) * (b + 1.0) * (b + 2.0) / (m + 3.0)
    norm = norm / (m + 4.0) * m / (m + 5.0) / ((m + 2.0) * (m + 3.0) * (m + 4.0))
    last = 4.0 * norm * (a + 3.0) * (b + 3.0) * (m + 2.0) / (m + 5.0)
    last = last / ((m + 6.0) * (m + 7.0) * (m + 6.0))
    more = fourth + 4.0 * third * (a / m - (a + 3.0) / (m + 6.0))
    two = q * (q - 2.0 * (a + 2.0) / (m + 4.0)) + (a + 1.0) * (a + 2.0) / ((m + 3.0) * (m + 4.0))
    part = (a + 3.0) / (m + 6.0)
    cubic = q * (q - 3.0 * part) + 3.0 * (a + 2.0) / (m + 5.0) * part
    cubic = q * cubic - (a + 1.0) / (m + 4.0) * (a + 2.0) / (m + 5.0) * part
    return q * (1.0 - q) * (third / norm / (m + 2.0) * two + more / last / (m + 3.0) * cubic)


def _normal_moved(q: Any, a: Any, b: Any, third: Any, fourth: Any) -> Any:
    d = q - a
    return third / 6.0 * (d * d / b - 1.0) + fourth / 24.0 * d / b * (d * d / b - 3.0)


def _beta_matched(mean: Any, variance: Any) -> tuple[Any, Any]:
    total = mean * (1.0 - mean) / variance - 1.0
    return mean * total, (1.0 - mean) * total


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
        moments=_gamma_moments,  # mean, variance; third and fourth central moment over it
        moved=_gamma_moved,  # a quantile, for more of these
        matched=lambda mean, variance: (mean / variance * mean, mean / variance),
        log_density=lambda a, b, y, n, of: (  # of outcomes, up to what is the same for all nodes
            _log_rise(a, y, of) - a * of.log(1.0 + n / b) - y * of.log(b + n)),
        at_zero=lambda y, n, of: of.where(y > 0, of.never, 0.0),  # the same where theta is 0
        line=lambda theta, of: of.log(theta),  # theta on the whole line, t
        theta=lambda t, of: of.exp(t),
        log_line=lambda a, b, t, of: a * (of.log(b) + t) - b * of.exp(t) - _log_gamma(a, of),
        place=lambda a, b: (a, 1.0),  # in the table of quantiles
        depends=1,  # how many of the two parameters quantiles depend on there
        unit=lambda a, b, of: 1.0 / of.sqrt(a),  # of t there
        ends=(0.0, math.inf), none=0.0,  # of theta; size without information
        good=lambda y, n: (y >= 0) & (n >= 0) & ((n > 0) | (y == 0)) & (y + n < math.inf)),
    "Beta": SimpleNamespace(
        parameters=lambda f, s, of: (
            of.exp(-s) * (1.0 + of.exp(f)), of.exp(-s) * (1.0 + of.exp(-f))),
        update=lambda a, b, y, n: (a + y, b + (n - y)),
        moments=_beta_moments,
        moved=_beta_moved,
        matched=_beta_matched,
        log_density=lambda a, b, y, n, of: (
            _log_rise(a, y, of) + _log_rise(b, n - y, of) - _log_rise(a + b, n, of)),
        at_zero=lambda y, n, of: of.where(y > 0, of.never, 0.0),
        line=lambda theta, of: of.log(theta / (1.0 - theta)),
        theta=lambda t, of: 1.0 / (1.0 + of.exp(-t)),
        log_line=lambda a, b, t, of: (
            a * t - (a + b) * np.logaddexp(0.0, t) + _log_rise(b, a, of) - _log_gamma(a, of)),
        place=lambda a, b: (a, b),
        depends=2,
        unit=lambda a, b, of: of.sqrt(1.0 / a + 1.0 / b),
        ends=(0.0, 1.0), none=0.0,
        good=lambda y, n: (y >= 0) & (n >= y) & (n < math.inf)),
    "Normal": SimpleNamespace(
        parameters=lambda f, s, of: (f, of.exp(s)),
        update=_normal_update,
        moments=lambda a, b: (a, b, 0.0, 3.0 * b),
        moved=_normal_moved,
        matched=lambda mean, variance: (mean, variance),
        log_density=_normal_log,
        at_zero=lambda y, n, of: _normal_log(0.0, 0.0, y, n, of),
        line=lambda theta, of: theta,
        theta=lambda t, of: t,
        log_line=lambda a, b, t, of: _normal_log(a, b, t, 0.0, of),
        place=lambda a, b: (1.0, 1.0),
        depends=0,
        unit=lambda a, b, of: of.sqrt(b),
        ends=(-math.inf, math.inf), none=1e150,
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
    if name.endswith(".json"):
        with open(name, encoding="utf-8") as file:
            text = file.read()
        try:
            whole = dict(json.loads(text))
        except (TypeError, ValueError):
            raise ValueError(f"{name} holds no prior table: export it again") from None
        meta, columns = whole.get("meta", {}), whole.get("nodes", {})
    elif name.endswith(".parquet"):
        import pyarrow.parquet as pq

        read = pq.read_table(name)
        meta = json.loads((read.schema.metadata or {}).get(b"soc_pymc_prior", "{}"))
        columns = {c: read[c].to_numpy() for c in read.column_names}
    else:
        raise ValueError(f"{name}: the name of a prior table ends with .json or .parquet")
    if meta.get("format") != _FORMAT:
        raise ValueError(f"{name} has format {meta.get('format')!r}, this reads {_FORMAT!r}")
    return _made(meta, columns)


def _made(meta: _Table, columns: dict[str, Any]) -> _Table:
    """The table that `load` gives."""
    values = np.column_stack([np.asarray(values, dtype=float) for values in columns.values()])
    own = 2 + 3 * len(meta["terms"])
    return {
        **meta,
        "edges": np.array(meta["edges"]),
        "sizes": np.array(meta["sizes"]),
        "known": {label: k for k, label in enumerate(meta["groups"])},
        "start": np.searchsorted(values[:, 0], np.arange(meta["cells"] + 1)).tolist(),
        "nodes": values[:, 2:own].reshape(len(values), 3, -1),
        "ways": values[:, own:],
        "quantiles": np.array(meta["quantiles"], dtype=float).reshape(meta["shape"]),
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
    >>> frame = soc.simulation.s1(2000, seed=0)
    >>> items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    >>> fit = soc.fit(soc.summarize(items), progress=False)
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
    if one and not table["mixture"]:
        cell, x, w = _places(table, score, size, group, _NUMBERS)
        if not family.good(y, n):
            raise ValueError(f"outcome {y!r} with size {n!r} is not possible")
        found = _one(table, family, cell, x, w, y, n)
        if found is not None:
            return found
    t = np.atleast_1d(np.asarray(score, dtype=float))
    y, n = (np.broadcast_to(np.asarray(v, dtype=float), t.shape) for v in (y, n))
    bad = ~family.good(y, n)
    if bad.any():
        raise ValueError(f"{bad.sum()} of {len(t)} outcomes are not possible with their sizes")
    cell, x, w = _places(table, t, size, [group] if one else group, _ARRAYS)
    order = np.argsort(cell.astype(np.int16 if table["cells"] < 1 << 15 else int), kind="stable")
    names = ["mean", "sd", "lower", "upper"] + ["p_zero"] * table["zero"]
    out = np.empty((len(names), len(t)))
    for own in np.split(order, np.flatnonzero(np.diff(cell[order])) + 1):
        for at in np.split(own, range(_PART, len(own), _PART)):
            if len(at):
                out[:, at] = _in_cell(table, family, cell[at[0]], x[at], w[at], y[at], n[at])
    return {k: float(row[0]) if one else row for k, row in zip(names, out, strict=True)}


def _places(table: _Table, t: Any, size: Any, group: Any, of: Any) -> tuple[Any, Any, Any]:
    """Cells of scores, and the places along score and size there."""
    axis, cells = table["axis"], len(table["edges"]) - 1
    good = (t > axis["low"]) & (t < axis["high"])
    if not np.all(good):
        raise ValueError(
            f"{np.sum(~np.asarray(good))} of {np.size(t)} scores are not above {axis['low']:g} and "
            f"below {axis['high']:g}: on the {axis['scale']} scale these have no position"
        )
    u = t if axis["low"] else of.log(t)
    u = u - of.log(1.0 - t) if axis["high"] == 1.0 and not axis["low"] else u
    u = np.interp(t, axis["score"], axis["rank"]) if "score" in axis else u
    at, x = _within(table["edges"], u, of)
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
    if not len(table["sizes"]):
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
    at = np.searchsorted(edges, u, side="right") - 1
    at = of.low(of.high(at, 0), len(edges) - 2)
    left = edges[at]
    return at, (u - left) / (edges[at + 1] - left)


def _nodes(table: _Table, cell: int, x: Any, w: Any) -> Any:
    """Weights and both curves, (nodes, 3) or (nodes, 3, n), of a cell."""
    powers = np.array([x**i * w**j if j else x**i for i, j in table["terms"]])
    return table["nodes"][table["start"][cell] : table["start"][cell + 1]] @ powers


def _in_cell(table: _Table, family: Any, cell: int, x: Any, w: Any, y: Any, n: Any) -> Any:
    """Rows of `score` for items of one cell."""
    weight, first, second = _nodes(table, cell, x, w).transpose(1, 0, 2)
    a, b = family.parameters(first, second, _ARRAYS)
    zero = np.zeros(len(x))
    if table["mixture"]:
        own = slice(-1) if table["zero"] else slice(None)
        log_p = np.empty_like(weight)
        log_p[own] = family.log_density(a[own], b[own], y, n, _ARRAYS)
        if table["zero"]:
            log_p[-1] = family.at_zero(y, n, _ARRAYS)
        p = np.exp(log_p - log_p.max(axis=0))
        # Bayes' rule, averaged over uncertain weights as if they and their sum were lognormal
        ways = table["ways"][table["start"][cell] : table["start"][cell + 1]]
        moved = ways.T @ p / (weight * p).sum(axis=0)
        bayes = weight * p
        near = (ways @ moved) / np.maximum(weight, 1e-300)
        weight = bayes * (1.0 + (moved**2).sum(axis=0)) / np.maximum(1.0 + near, 0.1)
        weight = weight / weight.sum(axis=0)
        if table["zero"]:
            zero, weight, a, b = weight[-1], weight[:-1], a[:-1], b[:-1]
            weight = weight / np.maximum(weight.sum(axis=0), 1e-300)
    a, b = family.update(a, b, y, n)
    means, variances, thirds, fourths = family.moments(a, b)
    mean = (weight * means).sum(axis=0)
    d = means - mean
    variance = (weight * (variances + d * d)).sum(axis=0)
    inner, outer = weight * (variances / variance), weight * (d * d / variance)
    third = (inner * (thirds + 3.0 * d) + outer * d).sum(axis=0)
    fourth = (inner * (fourths + d * (4.0 * thirds + 6.0 * d)) + outer * d * d).sum(axis=0)
    ends, off = _quantiles(table, family, mean, variance, third, fourth, _ARRAYS)
    far = np.flatnonzero((off > _NEAR) | table["mixture"])
    for at in np.split(far, range(_FEW, len(far), _FEW)):
        parts = (v[..., at] for v in (weight, a, b, zero, mean, variance))
        for row, found in zip(ends, _by_grid(family, table["levels"], *parts), strict=True):
            row[at] = found
    spread = np.sqrt((1.0 - zero) * (variance + zero * mean * mean))
    return [(1.0 - zero) * mean, spread, *ends, *[zero] * table["zero"]]


def _one(table: _Table, family: Any, cell: int, x: float, w: float, y: Any, n: Any) -> Any:
    """`score` of one item, in plain numbers; None where its quantiles need more."""
    nodes, mean, middle, third, fourth = [], 0.0, 0.0, 0.0, 0.0
    for weight, first, second in _nodes(table, cell, x, w).tolist():
        a, b = family.parameters(first, second, _NUMBERS)
        own = family.moments(*family.update(a, b, y, n))
        nodes.append((weight, own))
        mean += weight * own[0]
    for weight, (m, v, s, k) in nodes:
        d = m - mean
        dd = d * d
        middle += weight * (v + dd)
        third += weight * (v * (s + 3.0 * d) + d * dd)
        fourth += weight * (v * (k + d * (4.0 * s + 6.0 * d)) + dd * dd)
    third, fourth = third / middle, fourth / middle
    (lower, upper), off = _quantiles(table, family, mean, middle, third, fourth, _NUMBERS)
    found = {"mean": mean, "sd": math.sqrt(middle), "lower": lower, "upper": upper}
    return found if off <= _NEAR else None


def _quantiles(
    table: _Table, family: Any, mean: Any, variance: Any, third: Any, fourth: Any, of: Any
) -> tuple[list[Any], Any]:
    """Quantiles of the member with this mean and variance, moved by the polynomials of its weight.

    Also the largest move in sd; beyond a little it is not enough.
    """
    sd, (a, b) = of.sqrt(variance), family.matched(mean, variance)
    _, _, skew, tall = family.moments(a, b)
    cells = []
    for value, number in zip(family.place(a, b), table["shape"][3:], strict=True):
        v = (of.log(value) - table["low"]) / table["step"]
        v = of.low(of.high(v, 0.0), number - 1e-6)
        cells.append((of.whole(v), v - of.whole(v)))
    (i, p), (j, q) = cells
    start, unit = family.line(mean, of), family.unit(a, b, of)
    ends, most = [], 0.0
    for own in table["quantiles"]:
        rows = own[:, :, i, j]
        lines = [_horner(row, q) for row in (rows.tolist() if of is _NUMBERS else rows)]
        end = family.theta(start + unit * _horner(lines, p), of)
        move = family.moved(end, a, b, third - skew, fourth - tall)
        ends.append(end + move)
        most = of.high(most, abs(move))
    return ends, most / sd


def _horner(coefficients: Any, x: Any) -> Any:
    """A polynomial's value."""
    total = coefficients[-1]
    for c in coefficients[-2::-1]:
        total = total * x + c
    return total


def _by_grid(
    family: Any, levels: Any, weight: Any, a: Any, b: Any, zero: Any, mean: Any, variance: Any
) -> list[Any]:
    """Quantiles of mixtures from their density on a grid of t; with a share of zeros."""
    sd, (low, high) = np.sqrt(variance), family.ends
    least, most = mean - 9.0 * sd, mean + 9.0 * sd
    for end, sign in ((low, 1.0), (high, -1.0)):
        if abs(end) < math.inf:  # the tail away from an end is longer, that towards it bounded
            room = abs(mean - end)
            wide = np.sqrt(np.log1p(variance / room**2))
            near = room * np.minimum(np.exp(-wide * (8.0 + 4.0 * wide)), 0.3)
            if sign > 0:
                most = most + 12.0 * variance / room
                least = np.where(least > 0.3 * mean, least, near)
            else:
                least = np.where(least > 0.3 * mean, least - 12.0 * variance / room, least)
                least = np.where(least > 0.0, least, 0.1 * mean)
                most = np.where(most < 1.0 - 0.3 * room, most, 1.0 - near)
    ends = family.line(least, _ARRAYS), family.line(most, _ARRAYS)
    t = np.linspace(*ends, _GRID)[:, None]  # (points, 1, n)
    each = weight * np.exp(family.log_line(a, b, t, _ARRAYS))
    f, step = each.sum(axis=1), (ends[1] - ends[0]) / (_GRID - 1)
    inner = 13.0 * (f[1:-2] + f[2:-1]) - f[:-3] - f[3:]
    parts = np.concatenate([12.0 * (f[:1] + f[1:2]), inner, 12.0 * (f[-2:-1] + f[-1:])])
    below = (each[0] / a).sum(axis=0) if low == 0.0 else 0.0
    cdf = np.vstack([0.0 * f[:1], np.cumsum(parts, axis=0) * (step / 24.0)]) + below
    total = cdf[-1] + ((each[-1] / b).sum(axis=0) if high == 1.0 else 0.0)
    cdf, f = np.maximum.accumulate(cdf / total), f / total
    t, found, every = t[:, 0], [], np.arange(len(zero))
    cut = 0.0 if low == 0.0 else np.array([np.interp(0.0, t[:, k], cdf[:, k]) for k in every])
    for level in levels:
        under = (1.0 - zero) * cut
        share = np.where(level < under, level, np.maximum(level - zero, under)) / (1.0 - zero)
        at = np.clip((cdf < share).sum(axis=0), 1, _GRID - 1)
        gap, f0, f1 = share - cdf[at - 1, every], f[at - 1, every], f[at, every]
        root = np.sqrt(np.maximum(f0 * f0 + 2.0 * gap * (f1 - f0) / step, 0.0))
        own = t[at - 1, every] + np.clip(2.0 * gap / np.maximum(f0 + root, 1e-300), 0.0, step)
        value = family.theta(own, _ARRAYS)
        found.append(np.where((level >= under) & (level <= under + zero), 0.0, value))
    return found
