"""Posteriors of items from a fit's prior table, with NumPy alone: this file can be copied.

A table cuts scores and log sizes into cells, for each group. In a cell the prior has nodes: pairs
of conjugate parameters with weights, given by two curves that are polynomials there. An outcome
updates every node (`alpha + clicks`) and, under a mixture, its weight, by Bayes' rule. Where the
nodes do not represent the fit's draws closely, items are flagged.

Formulas are in + - * / and functions of a namespace `xp`: arrays (nodes, items), `ARRAYS`, and
columns of engines share them.
"""

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import NormalDist
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

__all__ = ["load", "score"]

FORMAT = "soc_pymc-prior-5"
POLYNOMIALS = "weight", "first", "second"  # of a node: its weight and both curves
MOST_APART = 0.5  # variance of the nodes' posterior means, relative to the mean of their variances
# mean square, over a mixture's components given an outcome, of their weights' relative covariance
# with the density of that outcome over the draws
MOST_MOVED = 0.0018
OUTER_LEVEL = 0.005  # smallest level of a quantile, and distance of the largest one from 1
CLOSE = 1e-3  # error of a quantile's last step but one, as a logit: the step squares it
_FAINT, _LEAST_WEIGHT = 1e-10, 1e-18  # weights that do not move a quantile, or count as 0
_NARROW, _LEAST_LOG = 1e-13, -300.0  # relative variance of a Normal; log share that counts as 0
_LOWEST = 690.0  # least log or logit of theta that counts, with its sign changed
_AT_ONCE = 1 << 15  # numbers in one array of nodes x items
_MANY, _EVERY = 200, 8  # members from which quantiles are first found among a share of them
ARRAYS = SimpleNamespace(
    log=np.log, exp=np.exp, sqrt=np.sqrt, low=np.minimum, high=np.maximum, where=np.where,
    exact=float, keep=lambda value: value,  # for values that are used often
    total=lambda *values: [value.sum(axis=0) for value in values],  # over an item's nodes
    most=lambda value: value.max(axis=0),
    bin=lambda cuts, value: np.searchsorted(cuts, value, side="right"),
    take=lambda index, *columns: [column[index] for column in columns])  # fmt: skip


# --- families: formulas of conjugate parameters a, b of theta, an outcome y and its size n --------


def _stirling(z: Any) -> Any:
    """Remainder of Stirling's formula beyond (z - 1/2) log z - z + log(2 pi) / 2."""
    return (1 / 12 - (1 / 360 - 1 / (1260 * z * z)) / (z * z)) / z


def _log_rise(x: Any, k: Any, xp: Any) -> Any:
    """Log of Gamma(x + k) / Gamma(x), with all digits where x is large."""
    z, u, low, high = x + 8.0, k / (x + 8.0), 1.0, 1.0  # two products, for k up to 1e77
    for i in range(4):
        low, high = low * (1.0 + k / (x + i)), high * (1.0 + k / (x + i + 4))
    small = u * (1.0 - u * (1 / 2 - u * (1 / 3 - u * (1 / 4 - u / 5))))
    log1p = xp.where(u < 1e-3, small, xp.log(1.0 + u))
    remainder = _stirling(z + k) - _stirling(z) - xp.log(low) - xp.log(high)
    return (z - 0.5) * log1p + k * (xp.log(z + k) - 1.0) + remainder


def _normal_cdf(z: Any, xp: Any) -> Any:
    """Normal distribution function to 1e-7 (Abramowitz and Stegun 1964, 26.2.17)."""
    u = 1.0 / (1.0 + 0.2316419 * xp.high(z, -z))
    poly = 1.330274429
    for c in (-1.821255978, 1.781477937, -0.356563782, 0.31938153):
        poly = poly * u + c
    tail = xp.exp(-0.5 * z * z) * u * poly / math.sqrt(2.0 * math.pi)
    return xp.where(z > 0, 1.0 - tail, tail)


def _bend(ratio: Any, xp: Any) -> Any:
    """The function g of Peizer and Pratt (1968), (1 - u^2 + 2 u log u) / (1 - u)^2."""
    u = xp.keep(xp.low(xp.high(ratio, 1e-9), 1e6))
    e, near = u - 1.0, xp.high(u - 1.0, 1.0 - u) < 0.02
    bend = (1.0 - u * u + 2.0 * u * xp.log(u)) / xp.where(near, 1.0, e * e)
    return xp.where(near, e * (e * (1 / 6 - e * (1 / 10 - e / 15)) - 1 / 3), bend)


def _raised(a: Any, *by: Any) -> Any:
    """Sum of the four terms that raise a distribution function to a shape a + 4."""
    return (1.0 + by[0] / (a + 1.0) * (1.0 + by[1] / (a + 2.0) * (1.0 + by[2] / (a + 3.0)))) / a


def _gamma_law(a: Any, b: Any, norm: Any, t: Any, xp: Any) -> tuple[Any, Any]:
    """Distribution function at theta = exp(t) and density of t, by Peizer and Pratt at a + 4."""
    x = xp.keep(xp.low(xp.high(b * xp.exp(xp.low(t, 690.0)), 1e-290), 1e90))
    density = xp.keep(xp.exp(norm + a * t - x))
    distance = x - a - 4.0 + 1 / 3 - 0.02 / (a + 4.0)
    z = xp.keep(distance * xp.sqrt((1.0 + _bend((a + 3.5) / x, xp)) / x))
    return _normal_cdf(z, xp) + density * _raised(a, x, x, x), density


def _beta_law(a: Any, b: Any, norm: Any, t: Any, xp: Any) -> tuple[Any, Any]:
    """Distribution function at theta = 1 / (1 + exp(-t)) and density of t."""
    t, m, c, d = xp.keep(xp.low(xp.high(t, -690.0), 690.0)), a + b, a + 4.0, b + 4.0
    p, q = xp.keep(1.0 / (1.0 + xp.exp(-t))), xp.keep(1.0 / (1.0 + xp.exp(t)))
    density = xp.keep(xp.exp(norm + a * xp.log(p) + b * xp.log(q)))
    upper = density * p * m / a * (p * (m + 1) / (a + 1)) * (p * (m + 2) / (a + 2))
    upper = upper * (p * (m + 3) / (a + 3)) * _raised(b, q * (m + 4), q * (m + 5), q * (m + 6))
    correction = 0.02 * (q / c - p / d + (q - 0.5) / (m + 8.0))
    bend = q * _bend((a + 3.5) / (m + 7.0) / p, xp) + p * _bend((b + 3.5) / (m + 7.0) / q, xp)
    distance = (m + 7.0 + 1 / 3) * p - a - 3.5 - 1 / 6 - correction
    z = xp.keep(distance * xp.sqrt((1.0 + bend) / ((m + 7.0 + 1 / 6) * p * q)))
    raised = _raised(a, p * m, p * (m + 1), p * (m + 2))
    return _normal_cdf(z, xp) + density * raised - upper, density


def _normal_law(a: Any, b: Any, norm: Any, t: Any, xp: Any) -> tuple[Any, Any]:
    z = xp.keep((t - a) / xp.sqrt(b))
    return _normal_cdf(z, xp), xp.exp(norm - 0.5 * z * z)


def _normal_update(a: Any, b: Any, value: Any, noise_sd: Any) -> tuple[Any, Any]:
    prior_share = 1.0 / (1.0 + b / noise_sd / noise_sd)
    return a * prior_share + value * (1.0 - prior_share), b * prior_share


def _normal_log(a: Any, b: Any, value: Any, noise_sd: Any, xp: Any) -> Any:
    total = b + noise_sd * noise_sd
    return -0.5 * ((value - a) * (value - a) / total + xp.log(xp.low(total, 1e300)))


def _log_cumulants(a: Any, xp: Any) -> tuple[Any, Any, Any]:
    """Mean, variance and third central moment, nearly, of the log of a Gamma of this shape."""
    mean, variance = xp.log(a + 0.5) - 1.0 / a, 1.0 / (a * a) + 1.0 / (a + 0.5)
    return mean, variance, -2.0 / (a * a * a) - 1.0 / ((a + 0.5) * (a + 0.5))


def _beta_cumulants(a: Any, b: Any, xp: Any) -> tuple[Any, Any, Any]:
    log_a, log_b = _log_cumulants(a, xp), _log_cumulants(b, xp)
    return log_a[0] - log_b[0], log_a[1] + log_b[1], log_a[2] - log_b[2]


FAMILIES = {
    "Gamma": SimpleNamespace(
        parameters=lambda f, s, xp: (xp.exp(-s), xp.exp(-s - f)),  # of both curves
        bounds=(230.0, 230.0),  # of the curves, so that results are finite
        update=lambda a, b, y, n: (a + y, b + n),
        mean=lambda a, b: a / b,
        variance=lambda a, b: a / b / b,
        matched=lambda mean, variance: (mean / variance * mean, mean / variance),
        log_density=lambda a, b, y, n, xp: (  # of outcomes, up to what is the same for all nodes
            _log_rise(a, y, xp) - a * xp.log(1.0 + n / b) - y * xp.log(b + n)),
        spike=(1e-200, 1e200),  # parameters for which theta is 0
        theta=lambda t, xp: xp.exp(t),  # from t on the whole line
        unit=lambda mean: mean,  # of theta's sd
        cumulants=lambda a, b, xp: (  # of t, nearly
            _log_cumulants(a, xp)[0] - xp.log(b), *_log_cumulants(a, xp)[1:]),
        # log norm of t's density; distribution function and density at t
        norm=lambda a, b, xp: xp.log(a) + a * xp.log(b) - _log_rise(1.0, a, xp),
        law=_gamma_law,
        positive=True, none=0.0,  # whether theta is; size without information
        good=lambda y, n: (y >= 0) & (n >= 0) & ((n > 0) | (y == 0)) & (y + n < math.inf) & (
            y == np.floor(y))),
    "Beta": SimpleNamespace(
        parameters=lambda f, s, xp: (
            xp.exp(-s) * (1.0 + xp.exp(f)), xp.exp(-s) * (1.0 + xp.exp(-f))),
        bounds=(230.0, 230.0),
        update=lambda a, b, y, n: (a + y, b + (n - y)),
        mean=lambda a, b: a / (a + b),
        variance=lambda a, b: a / (a + b) * (b / (a + b)) / (a + b + 1.0),
        matched=lambda mean, variance: (
            mean * (mean * (1.0 - mean) / variance - 1.0),
            (1.0 - mean) * (mean * (1.0 - mean) / variance - 1.0)),
        log_density=lambda a, b, y, n, xp: (
            _log_rise(a, y, xp) + _log_rise(b, n - y, xp) - _log_rise(a + b, n, xp)),
        spike=(1e-200, 1e200),
        theta=lambda t, xp: 1.0 / (1.0 + xp.exp(-t)),
        unit=lambda mean: mean * (1.0 - mean),
        cumulants=_beta_cumulants,
        norm=lambda a, b, xp: xp.log(a) + _log_rise(b, a, xp) - _log_rise(1.0, a, xp),
        law=_beta_law,
        positive=True, none=0.0,
        good=lambda y, n: (y >= 0) & (n >= y) & (n < math.inf) & (y == np.floor(y)) & (
            n == np.floor(n))),
    "Normal": SimpleNamespace(
        parameters=lambda f, s, xp: (f, xp.exp(s)),
        bounds=(1e300, 230.0),
        update=_normal_update,
        mean=lambda a, b: a,
        variance=lambda a, b: b,
        matched=lambda mean, variance: (mean, variance),
        log_density=_normal_log,
        spike=(0.0, 0.0),
        theta=lambda t, xp: t,
        unit=lambda mean: mean,
        cumulants=lambda a, b, xp: (a, b, 0.0 * b),
        norm=lambda a, b, xp: -0.5 * xp.log(2.0 * math.pi * b),
        law=_normal_law,
        positive=False, none=1e150,
        good=lambda y, n: (abs(y) < math.inf) & (n > 0) & (n < math.inf)),
}  # fmt: skip


# --- tables ---------------------------------------------------------------------------------------


class PriorTable(NamedTuple):
    """A fit's prior, given the score, in the form that scores items."""

    meta: Mapping[str, Any]
    """Description: ``made``, the day; ``fit``, the fit's digest; ``family``; ``groups``; the
    ``axis`` of scores with ``edges`` of cells; ``atoms``; ``errors`` against every draw."""
    nodes: Callable[[str], Mapping[str, Any]]
    """Columns of a file for a group, without groups for "": its nodes in order of the cells."""


def load(path: Any) -> PriorTable:
    """Read the prior table that `soc.export_prior` wrote.

    Parameters
    ----------
    path
        The file, ``*.json`` (read with the standard library) or ``*.parquet`` (with PyArrow).

    Returns
    -------
    PriorTable
        The table.

    Raises
    ------
    ValueError
        If the file has another suffix, is not a prior table of this version, or was changed.

    Examples
    --------
    >>> load("prior.txt")
    Traceback (most recent call last):
    ValueError: prior.txt: the name of a prior table ends with .json or .parquet
    """
    name = str(path)
    if not name.endswith((".json", ".parquet")):
        raise ValueError(f"{name}: the name of a prior table ends with .json or .parquet")
    try:
        if name.endswith(".json"):
            with open(name, encoding="utf-8") as file:
                content = json.load(file)
            meta, columns = content["meta"], content["nodes"]
        else:
            import pyarrow.parquet as pq

            columns = pq.read_table(name)
            meta = json.loads((columns.schema.metadata or {}).get(b"soc_pymc_prior", b"{}"))
        if meta["format"] != FORMAT:
            raise ValueError(f"its format is {meta['format']!r}, and this reads {FORMAT!r}")
        columns = {c: np.asarray(columns[c], dtype=kind) for c, kind in meta["columns"]}
        if checksum(meta, columns) != meta["checksum"]:
            raise ValueError("it was changed after it was written")
        return by_group(meta, columns)
    except (KeyError, TypeError, AttributeError, OverflowError, ValueError) as error:
        reason = f"does not hold a usable prior table: export it again ({error})"
        raise ValueError(f"{name} {reason}") from None


def checksum(meta: Mapping[str, Any], columns: Mapping[str, Any]) -> str:
    """Digest of a table's columns and its description without the checksum itself."""
    described = {key: value for key, value in meta.items() if key != "checksum"}
    digest = hashlib.sha256(json.dumps(described, sort_keys=True).encode())
    for values in columns.values():
        digest.update(values.tobytes())
    return digest.hexdigest()


def by_group(meta: Mapping[str, Any], columns: Mapping[str, Any]) -> PriorTable:
    """A table from its description and columns of the nodes of all groups, one after the other."""
    labels = meta["groups"] or [""]
    starts = meta["cells"] // len(labels) * np.arange(len(labels) + 1)
    ends = np.searchsorted(columns["cell"], starts)
    parts = {label: slice(*ends[k : k + 2]) for k, label in enumerate(labels)}
    return PriorTable(meta, lambda label: {name: v[parts[label]] for name, v in columns.items()})


def quantile_name(prob: float) -> str:
    """theta_q05 for 0.05, theta_q97_5 for 0.975: percent, two digits before the point."""
    integer, _, decimals = f"{100 * prob:.15g}".partition(".")
    return f"theta_q{integer.zfill(2)}" + (f"_{decimals}" if decimals else "")


def score(
    table: Any, score: Any = None, outcome: Any = None, size: Any = None, group: Any = None,
    quantiles: Sequence[float] = (0.05, 0.95),
) -> dict[str, Any]:  # fmt: skip
    """Posterior mean, sd, variance and quantiles of theta, of one item or of arrays of items.

    Parameters
    ----------
    table
        The prior, from `load`, or the path of its file.
    score
        Scores; None for a fit without scores.
    outcome, size
        Counts and exposures, values and noise sds, or successes and trials; without an outcome
        theta is given the score alone.
    group
        Labels of groups, for a table with groups.
    quantiles
        Levels, from 0.005 to 0.995.

    Returns
    -------
    dict
        ``theta_mean``, ``theta_sd``, ``theta_var`` and quantiles such as ``theta_q05``, in the unit
        of theta, ``p_zero`` if theta may be 0, and ``flagged``: whether the table may be further
        from the fit's draws than its stated errors. Numbers for one item, else arrays (n,). A
        quantile that is not found is NaN.

    Raises
    ------
    ValueError
        If scores have no position, outcomes are not possible, a level is beyond the range, or a
        group or size is missing.

    Examples
    --------
    >>> import tempfile, pathlib, soc_pymc as soc
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     table = load(soc.export_prior(fit, pathlib.Path(folder) / "prior.json"))
    >>> theta = soc.prior_table.score(table, 0.05, 2, 30.0)
    >>> theta["theta_q05"] < theta["theta_mean"] < theta["theta_q95"]
    True
    """
    table = table if isinstance(table, PriorTable) else load(table)
    meta, family = table.meta, FAMILIES[table.meta["family"]]
    if score is None:
        if meta["score"] is None:
            raise ValueError("the fit's items have a score: give score= of each")
        score = np.full(np.shape(outcome if size is None else size), meta["score"])
    if not all(OUTER_LEVEL <= level <= 1.0 - OUTER_LEVEL for level in quantiles):
        raise ValueError(f"quantiles={tuple(quantiles)} must be from 0.005 to 0.995")
    if size is None and (outcome is not None or meta["sizes"]):
        raise ValueError("outcomes, and thetas that depend on the size, need it: give size= too")
    t = np.atleast_1d(np.asarray(score, dtype=float))
    known = (0.0, family.none) if outcome is None else (outcome, size)
    y, n, prior_size = (
        np.broadcast_to(np.asarray(value, dtype=float), t.shape) for value in (*known, size)
    )
    if bad := np.sum(~family.good(y, n)):
        raise ValueError(f"{bad} of {len(t)} outcomes are not possible with their sizes")
    group = np.atleast_1d(np.array([] if group is None else group, dtype=object))
    labels = np.array([*map(str, group)], dtype=object)
    if meta["groups"]:
        if len(labels) != len(t):
            raise ValueError(f"{len(labels)} groups for {len(t)} scores: give group= of each")
        if unknown := sorted(set(labels) - set(meta["groups"])):
            raise ValueError(f"group {unknown[0]!r} is not one of the table's")
    items = Items(t, y, n, prior_size, labels if meta["groups"] else None)
    rows, flagged = posterior_rows(table, items, quantiles)
    names = ["theta_mean", "theta_sd", "theta_var", *map(quantile_name, quantiles)]
    columns = dict(zip([*names, *["p_zero"] * meta["zero"]], rows, strict=True))
    columns["flagged"] = flagged
    return columns if np.ndim(score) else {name: v[0].item() for name, v in columns.items()}


# --- items in cells -------------------------------------------------------------------------------


class Items(NamedTuple):
    """Valid items, as arrays (n,)."""

    score: Any
    outcome: Any
    size: Any
    prior_size: Any = None  # the size, if the prior depends on it
    group: Any = None  # labels, if the table has groups


class Posteriors(NamedTuple):
    """Nodes of items given their outcomes, (nodes, n), and columns of these items, (n,)."""

    weight: Any
    a: Any
    b: Any
    zero: Any  # P(theta = 0); None if theta is never 0
    averages: Any  # of `moments`
    flagged: Any


def posterior_rows(table: PriorTable, items: Items, probs: Sequence[float]) -> tuple[Any, Any]:
    """Rows of `mixture_rows`, and flags of items."""
    out = np.full((3 + len(probs) + table.meta["zero"], len(items.score)), np.nan)
    flagged, family = np.ones(len(items.score), dtype=bool), FAMILIES[table.meta["family"]]
    with np.errstate(all="ignore"):  # what cannot be computed is NaN, and flagged
        for part, (weight, a, b, zero, averages, flags) in posterior_nodes(table, items):
            out[:, part] = mixture_rows(family, weight, a, b, averages, probs, zero)
            flagged[part] = flags
    return out, flagged | ~np.isfinite(out).all(axis=0)


def posterior_nodes(table: PriorTable, items: Items) -> Iterator[tuple[Any, Posteriors]]:
    """Indices of items and their nodes given the outcomes, in parts of any order."""
    meta, (t, y, n, *_) = table.meta, items
    axis = meta["axis"]
    if bad := np.sum(~((t > axis["low"]) & (t < axis["high"]) | np.isin(t, meta["atoms"]))):
        raise ValueError(
            f"{bad} of {len(t)} scores are not above {axis['low']:g} and below {axis['high']:g}: "
            f"on the {axis['scale']} scale these have no position"
        )
    labels, code = np.unique([""] if items.group is None else items.group, return_inverse=True)
    parts = [table.nodes(label) for label in labels]
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    begin = np.flatnonzero(columns["node"] == 0)  # of the nodes of a cell
    cell, x, w = places(meta, t, items.prior_size, ARRAYS)
    cell = cell + len(begin) // len(labels) * code
    number = np.diff(begin, append=len(columns["node"]))[cell]
    flagged = (columns["wide"][begin[cell]] > 0) | is_beyond(meta, x)
    # a mixture's items of similar outcomes share the components that count
    similar = y / np.maximum(n, 1e-300) if FAMILIES[meta["family"]].positive else y
    order = np.lexsort([similar, cell, number] if meta["mixture"] else [cell, number])
    for alike in np.split(order, np.flatnonzero(np.diff(number[order])) + 1):
        step = max(1, _AT_ONCE // int(number[alike].max(initial=1)))
        for part in (alike[i : i + step] for i in range(0, len(alike), step)):
            rows = begin[cell[part]] + np.arange(number[part[0]])[:, None]
            node = {name: values.take(rows) for name, values in columns.items()}
            node["is_zero"] = node["node"] == number[part[0]] - 1  # under a mixture with zeros
            theta = nodes_given(meta, node, x[part], w[part], y[part], n[part], ARRAYS)
            counts = (np.abs(theta.weight) > _LEAST_WEIGHT).any(axis=1)
            weight, a, b = (values[counts] for values in theta[:3])
            flags = theta.flagged | flagged[part]
            yield part, Posteriors(weight, a, b, theta.zero, theta.averages, flags)


def places(meta: Mapping[str, Any], t: Any, size: Any, xp: Any) -> tuple[Any, Any, Any]:
    """Each item's cell in its group, and its places along score and size there."""
    axis, edges, atoms = meta["axis"], meta["edges"], [t == xp.exact(v) for v in meta["atoms"]]
    usual = t
    for is_atom in atoms:  # which need not have a position
        usual = xp.where(is_atom, 0.5, usual)
    u = usual = xp.keep(usual)
    if axis["scale"] == "rank":  # known at some scores, and straight between them
        cuts, ends = np.array(axis["score"]), np.abs(axis["score"]).max() + 1.0
        start, rank = np.append(cuts[0] - ends, cuts), np.pad(axis["rank"], 1, "edge")
        slope = np.diff(rank) / np.diff(start, append=cuts[-1] + ends)
        start, rank, slope = xp.take(xp.bin(cuts, usual), start, rank[:-1], slope)
        u = rank + (usual - start) * slope
    elif axis["scale"] != "linear":
        u = xp.log(usual) - (xp.log(1.0 - usual) if axis["scale"] == "logit" else 0.0)
    cell, x = _within(meta["score_edges"], usual, edges, u, xp)
    x = xp.low(xp.high(x, -1e30), 1e30)  # so that results are finite
    for k, is_atom in enumerate(atoms):
        cell, x = xp.where(is_atom, len(edges) - 1 + k, cell), xp.where(is_atom, 0.0, x)
    if not meta["sizes"]:
        return cell, x, 0.0 * x
    v = xp.log(xp.high(size, 1e-300))
    v = xp.low(xp.high(v, meta["sizes"][0]), meta["sizes"][-1])
    column, w = _within(meta["size_edges"], size, meta["sizes"], v, xp)
    return cell * (len(meta["sizes"]) - 1) + column, x, w


def _within(cuts: Any, values: Any, edges: Any, u: Any, xp: Any) -> tuple[Any, Any]:
    """Cells of values between cuts, the outer ones without end, and places from 0 to 1 there."""
    cell = xp.bin(np.array(cuts[1:-1]), values)  # there all engines agree to the last digit
    low, width = xp.take(cell, np.array(edges[:-1]), np.diff(edges))
    return cell, xp.keep((u - low) / width)


def is_beyond(meta: Mapping[str, Any], x: Any) -> Any:
    """Mask of the places beyond the outermost cells, for positions that have no end."""
    return ((x < 0.0) | (x > 1.0)) & (meta["axis"]["scale"] != "rank")


def nodes_given(meta: Any, node: Any, x: Any, w: Any, y: Any, n: Any, xp: Any) -> Posteriors:
    """Nodes at places x and w given outcomes y of sizes n; flagged where they contradict these."""
    family, zero, sums = FAMILIES[meta["family"]], None, []
    powers = {f"{i}{j}": math.prod([x] * i + [w] * j) for i, j in meta["terms"]}
    weight, *curves = (
        xp.keep(sum(node[f"{name}_{term}"] * power for term, power in powers.items()))
        for name in POLYNOMIALS
    )
    bounds = zip(curves, family.bounds, strict=True)
    curves = [xp.keep(xp.low(xp.high(curve, -most), most)) for curve, most in bounds]
    a, b = map(xp.keep, family.parameters(*curves, xp))
    if meta["mixture"]:
        weight, a, b, *sums = _reweighted(meta, node, weight, a, b, y, n, xp)
    a, b = map(xp.keep, family.update(a, b, y, n))
    averages, total, *sums = moments(family, weight, a, b, xp, *sums)
    close = averages[2] <= MOST_APART * averages[1]
    if meta["mixture"]:
        close, zero = sums[0] <= MOST_MOVED, sums[1] / (sums[1] + total) if meta["zero"] else None
    return Posteriors(weight / total, a, b, zero, averages, ~close)


def _reweighted(
    meta: Any, node: Any, weight: Any, a: Any, b: Any, y: Any, n: Any, xp: Any
) -> tuple[Any, ...]:
    """A mixture's weights given outcomes, parameters, how far weights move, and theta = 0's."""
    family, is_zero = FAMILIES[meta["family"]], meta["zero"] and node["is_zero"]
    if meta["zero"]:
        a, b = (xp.keep(xp.where(is_zero, v, u)) for v, u in zip(family.spike, (a, b), strict=True))
    prior = xp.keep(xp.high(weight, 0.0))  # polynomials may fall below 0
    log_p = xp.keep(family.log_density(a, b, y, n, xp))
    p = xp.keep(xp.exp(xp.high(log_p - xp.most(log_p), _LEAST_LOG)))
    ways = [values for name, values in node.items() if name.startswith("way_")]
    total, *shifts = xp.total(prior * p, *(way * p for way in ways))
    # Bayes' rule, averaged over uncertain weights as if they and their sum were lognormal
    shifts = [xp.keep(shift / total) for shift in shifts]
    change = sum(way * shift for way, shift in zip(ways, shifts, strict=True))
    change, share = xp.keep(change / xp.high(prior, 1e-100)), xp.keep(prior * p / total)
    weight, moved = xp.keep(share / xp.high(1.0 + change, 0.1)), share * change * change
    if not meta["zero"]:
        return weight, a, b, moved, 0.0 * moved
    a, b = (xp.keep(xp.where(is_zero, 1.0, v)) for v in (a, b))  # harmless, without weight
    parts = xp.where(is_zero, 0.0, weight), xp.where(is_zero, weight, 0.0)
    return xp.keep(parts[0]), a, b, moved, parts[1]


# --- summaries of mixtures ------------------------------------------------------------------------


def moments(family: Any, weight: Any, a: Any, b: Any, xp: Any, *further: Any) -> tuple[Any, ...]:
    """Means and variances within and between members; sums of the weights and further values."""
    means = xp.keep(family.mean(a, b))
    total, mean, *sums = xp.total(weight, weight * means, *further)
    total = xp.keep(xp.high(total, 1e-290))
    mean = xp.keep(mean / total)
    spreads = weight * family.variance(a, b), weight * (means - mean) * (means - mean)
    within, between = xp.total(*spreads)
    return (mean, within / total, between / total), total, *sums


def with_zeros(mean: Any, variance: Any, zero: Any) -> tuple[Any, Any]:
    """Mean and variance with a share of theta = 0 beside others."""
    return (1.0 - zero) * mean, (1.0 - zero) * (variance + zero * mean * mean)


def mixture_rows(
    family: Any, weight: Any, a: Any, b: Any, averages: Any, probs: Sequence[float],
    zero: Any = None, law: Callable[..., tuple[Any, Any]] | None = None,
) -> Any:  # fmt: skip
    """Mean, sd, variance and quantiles of mixtures, and P(theta = 0) if given, (rows, n).

    Weights, (members, n) or (members, 1), add up to 1 and may be negative; `averages` are those of
    `moments`; `zero` (n,) is the share of theta = 0. `law`, if given, replaces the family's in the
    last steps.
    """
    mean, variance, share_of_zero = averages[0], averages[1] + averages[2], zero
    if zero is None:
        share_of_zero = np.zeros(len(mean))
    total_mean, total = with_zeros(mean, variance, share_of_zero)
    out = [total_mean, np.sqrt(total), total]
    counts = (np.abs(weight) > _FAINT).any(axis=1)  # quantiles do not show the others
    if len(probs) and not counts.all():
        weight, a, b = weight[counts], a[counts], b[counts]
    nodes = a, b, family.norm(a, b, ARRAYS) if len(probs) else a
    stages, best, below = [(family.law, 1)], law or family.law, 0.0
    if len(weight) > _MANY:
        stages.insert(0, (family.law, _EVERY))
    if law is not None:
        stages.append((law, 1))
    if zero is not None and not family.positive:
        below = (weight * best(*nodes, 0.0, ARRAYS)[0]).sum(axis=0)
    narrow = variance < _NARROW * family.unit(mean) ** 2
    for prob in probs:
        share, at_zero = split_level(prob, share_of_zero, below, ARRAYS)
        t, unit = start(family, mean, variance, share, ARRAYS)
        for function, step in stages:  # where a stage finds none, the next begins as it did
            some = [values[::step] for values in (weight, *nodes)]
            root = solve(function, some[0] / some[0].sum(axis=0), some[1:], share, t, unit)
            t = np.where(np.isnan(root), t, root)
        if family.positive and np.isnan(root).any():  # quantiles that no number but 0 can show
            p = (weight * best(*nodes, -_LOWEST, ARRAYS)[0]).sum(axis=0)
            root = np.where(np.isnan(root) & (p >= share), -math.inf, root)
        quantile = family.theta(root, ARRAYS)
        if narrow.any():  # a Normal's, as densities of so large shapes have no digits left
            z = [NormalDist().inv_cdf(p) for p in share[narrow]]
            quantile[narrow] = mean[narrow] + np.sqrt(variance[narrow]) * z
        out.append(np.where(at_zero, 0.0, quantile))
    return np.array(out if zero is None else [*out, zero])


def split_level(level: Any, zero: Any, below: Any, xp: Any) -> tuple[Any, Any]:
    """Level among thetas that are not 0, a part of which is below 0; and whether it is at 0."""
    nonzero = xp.high(1.0 - zero, 1e-290)
    under = nonzero * below
    share = xp.where(level < under, level, xp.high(level - zero, under)) / nonzero
    return xp.low(xp.high(share, 1e-300), 1.0 - 1e-16), (level >= under) & (level < under + zero)


def start(family: Any, mean: Any, variance: Any, share: Any, xp: Any) -> tuple[Any, Any]:
    """A place near the quantile of the member with a mean and variance, and the sd there.

    A step of Newton's method follows the expansion of Cornish and Fisher (1938).
    """
    a, b = map(xp.keep, family.matched(mean, variance))
    middle, square, third = family.cumulants(a, b, xp)
    goal = xp.keep(xp.log(share) - xp.log(1.0 - share))
    z, sd = xp.keep(goal / 1.702), xp.keep(xp.sqrt(square))  # a normal quantile, nearly
    t = xp.keep(middle + sd * (z + third / (square * sd) * (z * z - 1.0) / 6.0))
    p, density = family.law(a, b, xp.keep(family.norm(a, b, xp)), t, xp)
    _, t, *_ = newton(goal, xp.keep(p), density, t, -1e300, 1e300, sd, xp)
    if family.positive:
        t, sd = xp.low(xp.high(t, -_LOWEST), _LOWEST), xp.low(sd, 0.1 * _LOWEST)
    return t, sd


def solve(law: Any, weight: Any, nodes: Any, share: Any, t: Any, unit: Any) -> Any:
    """Quantiles of mixtures on the line, from places nearby; NaN where none is found.

    `law` takes parameters of `nodes`, each (members, n), and places (n,). The step from within
    `CLOSE` of the level, as a logit, is the last.
    """
    out, low, high = np.full((3, len(t)), [[math.nan], [-1e300], [1e300]])
    state = [np.arange(len(t)), np.log(share / (1.0 - share)), unit, t, low, high]
    for _ in range(60):
        items, goal, unit, t, low, high = state
        p, density = ((weight * v).sum(axis=0) for v in law(*nodes, t, ARRAYS))
        gap, t, low, high = newton(goal, p, density, t, low, high, unit, ARRAYS)
        done = np.abs(gap) < CLOSE
        out[items[done]] = t[done]
        if done.all():
            break
        state = [v[~done] for v in (items, goal, unit, t, low, high)]
        if done.any():
            nodes = [v[:, ~done] for v in nodes]
            weight = weight if weight.shape[1] == 1 else weight[:, ~done]
    return out


def newton(
    goal: Any, p: Any, density: Any, t: Any, low: Any, high: Any, unit: Any, xp: Any
) -> tuple[Any, Any, Any, Any]:
    """A step of Newton's method on a logit: its size, the new place, and bounds that it narrows."""
    p = xp.low(xp.high(p, 1e-300), 1.0 - 1e-16)
    gap = xp.keep(goal - xp.log(p / (1.0 - p)))
    low, high = xp.where(gap > 0, t, low), xp.where(gap > 0, high, t)
    # where a distribution function has no digits left, no more is known than its width
    spread = xp.where((p > 1e-290) & (p < 1.0 - 1e-9), p * (1.0 - p), 1e290)
    slope = xp.high(density / spread, 1e-3 / unit)
    most = (3.0 + xp.high(gap, -gap)) * unit
    step = xp.low(xp.high(gap / slope, -most), most)
    step = xp.low(xp.high(step, 0.7 * (low - t)), 0.7 * (high - t))
    return gap, t + step, low, high
