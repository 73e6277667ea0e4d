"""The posterior of items as an expression: the prior table, joined by the number of a cell.

The formulas are those of `soc_pymc.prior_table`, on columns of an engine. Comparisons find the cell
of distinct items; they are joined to its nodes, and sums over the nodes give their posteriors.
"""

from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import pairwise
from operator import and_, mul
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import prior_table
from ..data.engines import total, with_bins
from ..data.formulas import exact
from ..data.groups import CROSS, NO_SCORE, ONE_SCORE, group_roles
from ..data.validation import numbers
from ..families.family import family_of
from ..families.outcomes import Outcome
from ..families.scales import LINEAR, MIDDLE, RANK, SCALES
from ..inference.results import Fit
from .files import described

# engines that inline every use of a column, unless there is a LIMIT
_FENCED, _ALL = ("postgres",), 2**62
_FAINT, _LEAST_LOG = 1e-30, -300.0  # places and log shares that count as 0: engines fail on 1e-310
_STEPS, _MIXTURE_STEPS = 3, 4  # Newton steps for quantiles on the nodes


class Prior(NamedTuple):
    """A prior table, and what an expression needs to use it."""

    meta: Mapping[str, Any]
    columns: Mapping[str, NDArray[Any]]
    family: Any  # its formulas
    outcome: Outcome
    ways: list[str]  # columns of the ways in which weights vary
    levels: Sequence[float]
    quantiles: list[str]  # their columns
    names: list[str]  # new columns


def prior_of(fit: Fit, levels: Sequence[float]) -> Prior:
    """The fit's prior table, if it is accurate enough."""
    meta, columns = described(fit)
    family, outcome = prior_table.FAMILIES[meta["family"]], family_of(fit.prior).outcome
    ways = [name for name in columns if name.startswith("way_")]
    quantiles = list(map(prior_table.quantile_name, levels))
    moments, zero = ["theta_mean", "theta_sd", "theta_var"], ["p_zero"] * meta["zero"]
    names = [*moments, *quantiles, *zero, "flagged"]
    return Prior(meta, columns, family, outcome, ways, levels, quantiles, names)


# --- the expression ------------------------------------------------------------------------------


class _Sheet:
    """Rows of items with `keys`, to which columns soc_... are added one after the other."""

    def __init__(self, rows: Any, keys: Sequence[str], fenced: bool) -> None:
        import ibis

        self.rows, self.keys, self._fenced, self._number = rows, keys, fenced, 0
        self.functions = SimpleNamespace(
            log=lambda v: v.ln(), exp=lambda v: v.exp(), sqrt=lambda v: v.sqrt(), low=ibis.least,
            high=ibis.greatest, where=ibis.ifelse, keep=self.keep)  # fmt: skip

    def __getitem__(self, name: str) -> Any:
        return self.rows[f"soc_{name}"]

    def like(self, rows: Any) -> "_Sheet":
        """Other rows of the same items."""
        return _Sheet(rows, self.keys, self._fenced)

    def add(self, **values: Any) -> "_Sheet":
        """Add columns, computed once each."""
        rows = self.rows.mutate(**{f"soc_{name}": value for name, value in values.items()})
        self.rows = rows.limit(_ALL) if self._fenced else rows
        return self

    def keep(self, value: Any) -> Any:
        """A value as a column, for expressions that use it often."""
        self._number += 1
        return self.add(**{f"v{self._number}": value})[f"v{self._number}"]

    def only(self, *names: str) -> "_Sheet":
        """Leave the keys and these columns."""
        self.rows = self.rows.select(*self.keys, *(f"soc_{name}" for name in names))
        return self

    def sums(self, *names: str, **values: Any) -> "_Sheet":
        """Items, with columns that are the same in their rows, and aggregates."""
        by = [*self.keys, *(f"soc_{name}" for name in names)]
        aggregates = {f"soc_{name}": value for name, value in values.items()}
        return self.like(self.rows.group_by(by).aggregate(**aggregates))

    def join(self, items: "_Sheet") -> "_Sheet":
        """The rows with columns of their items."""
        return self.like(self.rows.inner_join(items.rows, list(self.keys)))

    def average(self, value: Any) -> Any:
        """Mean over an item's nodes where theta is not 0."""
        return (self["u"] * value).sum() / self.functions.high(self["u"].sum(), 1e-290)


def expression(table: Any, roles: Mapping[str, str], prior: Prior, nodes: Any, engine: str) -> Any:
    """The user's columns and the new ones, given a table of the prior's columns."""
    import ibis

    keys = [f"soc_{key}" for key in ("t", "y", "n", *(["code"] if prior.meta["groups"] else []))]
    rows = _inputs(_Sheet(table, keys, engine in _FENCED), roles, prior)
    items = _with_cells(rows.like(rows.rows.select(keys).distinct()), prior)
    scored = _with_quantiles(_nodes(items, prior, nodes), prior)
    # bad items have harmless keys; no item is left if the prior's table belongs to another fit
    joined = rows.join(scored)
    good, null = joined["good"], ibis.null("float64")
    new = {name: good.ifelse(joined[name], null) for name in prior.names[:-1]}
    new["flagged"] = good.ifelse(joined["flagged"] > 0, ibis.null("boolean"))
    return joined.rows.select(*table.columns, **new)


def _inputs(sheet: _Sheet, roles: Mapping[str, str], prior: Prior) -> _Sheet:
    """Score, outcome and size as floats, harmless ones if any is bad; the group's code."""
    # engines order NaN above all numbers or not at all: both fail one of two bounds
    axis, rule, table = prior.meta["axis"], prior.outcome.validity, sheet.rows
    columns = {
        role: exact(ONE_SCORE) if roles[role] == NO_SCORE else table[roles[role]]
        for role in ("score", prior.outcome.observed, prior.outcome.size)
    }
    t, y, n = values = numbers(columns).values()
    good = (t > axis["low"]) & (t < axis["high"]) | _is_atom(t, prior)  # these need no position
    bounds = rule.score, rule.outcome, rule.size
    for value, bound in zip(values, bounds, strict=True):
        good &= value >= (-bound.largest if bound.least is None else bound.least)
        good &= value <= bound.largest
    if rule.conflict is not None:
        good &= ~rule.conflict(y, n)
    if prior.meta["groups"]:
        labels = [table[column].cast("string") for column in group_roles(roles).values()]
        label = reduce(lambda left, right: left + CROSS + right, labels)
        known = np.array(prior.meta["groups"], dtype=object)
        codes = small_table(soc_label=known, soc_code=np.arange(len(known)))
        sheet.rows = table.left_join(codes, label == codes.soc_label)
        good &= sheet["code"].notnull()
        sheet.add(good=good, code=sheet["code"].fill_null(0))
        good = sheet["good"]
    good = sheet.add(good=good.fill_null(False))["good"]
    # adding 0 makes one key of 0 and -0
    usual = {"t": (t, MIDDLE), "y": (y, 0.0), "n": (n, 1.0)}
    sheet.add(**{name: good.ifelse(value, other) + 0.0 for name, (value, other) in usual.items()})
    keys = zip(("t", "y", "n"), bounds, strict=True)
    whole = [sheet[key] == sheet[key].floor() for key, bound in keys if bound.whole]
    return sheet.add(good=reduce(and_, whole, sheet["good"]))


def _is_atom(score: Any, prior: Prior) -> Any:
    import ibis

    atoms = [exact(atom) for atom in prior.meta["atoms"]]
    return score.isin(atoms) if atoms else ibis.literal(False)


def small_table(**columns: NDArray[Any]) -> Any:
    """A table of an expression's own."""
    import ibis
    import pyarrow as pa

    return ibis.memtable(pa.table(columns))


def _with_bins(items: _Sheet, meta: Mapping[str, Any]) -> _Sheet:
    """Items with the cell of their score, and the line that gives the place from 0 to 1 in it."""
    edges, inner, axis = np.array(meta["edges"]), np.array(meta["score_edges"][1:-1]), meta["axis"]
    cell, start, low, slope = np.arange(len(edges) - 1), edges[:-1], edges[:-1], 1.0
    if axis["scale"] == RANK:  # ranks are known at some scores, and straight between them
        cuts = np.union1d(inner, axis["score"])
        start, end = np.append(cuts[0] - 1.0, cuts), np.append(cuts, cuts[-1] + 1.0)
        low, high = (np.interp(t, axis["score"], axis["rank"]) for t in (start, end))
        cell = np.searchsorted(inner, start, side="right").clip(0, len(edges) - 2)
        inner, slope = cuts, (high - low) / (end - start)
    width = np.diff(edges)[cell]
    places = small_table(
        soc_bin=np.arange(len(cell)),
        soc_column=cell,
        soc_from=start,
        soc_start=(low - edges[cell]) / width,
        soc_slope=slope / width,
    )
    return items.like(with_bins(items.rows, inner, "soc_", "soc_t").inner_join(places, "soc_bin"))


def _with_cells(items: _Sheet, prior: Prior) -> _Sheet:
    """The number of an item's cell, and its places x and w along score and size there."""
    import ibis

    meta, sheet, cells = prior.meta, _with_bins(items, prior.meta), len(prior.meta["edges"]) - 1
    xp, scale, is_atom = sheet.functions, meta["axis"]["scale"], _is_atom(sheet["t"], prior)
    u = SCALES.get(scale, LINEAR).formula(is_atom.ifelse(MIDDLE, sheet["t"]), xp.log)
    x = sheet["start"] + (u - sheet["from"]) * sheet["slope"]
    sheet.add(x=xp.low(xp.high(x, -prior_table.FARTHEST), prior_table.FARTHEST))
    x = (is_atom | (sheet["x"].abs() < _FAINT)).ifelse(0.0, sheet["x"])
    cell = sheet["column"].cast("int64")
    for k, atom in enumerate(meta["atoms"]):
        number = ibis.literal(cells + k, type="int64")
        cell = (sheet["t"] == exact(atom)).ifelse(number, cell)
    if meta["groups"]:
        cell = cell + sheet["code"] * (cells + len(meta["atoms"]))
    sheet.add(cell=cell, x=x)
    if not meta["sizes"]:
        return sheet.only("cell", "x")
    edges, inner = meta["sizes"], map(exact, meta["size_edges"][1:-1])
    column = sheet.keep(total((sheet["n"] >= edge).cast("int64") for edge in inner))
    v = xp.low(xp.high(xp.log(xp.high(sheet["n"], 1e-300)), edges[0]), edges[-1])
    parts = [(v - low) / (high - low) for low, high in pairwise(edges)]
    w = ibis.cases(*((column == k, part) for k, part in enumerate(parts)), else_=0.0)
    return sheet.add(w=w, cell=sheet["cell"] * (len(edges) - 1) + column).only("cell", "x", "w")


def _nodes(items: _Sheet, prior: Prior, table: Any) -> _Sheet:
    """Nodes of items given their outcomes: weights u, up to a factor of an item, a, b and norm."""
    family, meta = prior.family, prior.meta
    if "fit" in table.columns:
        table = table.filter(table.fit == meta["fit"])
    kinds = {name: "int64" if name == "cell" else "float64" for name in prior.columns}
    table = table.select(**{f"soc_{name}": table[name].cast(kind) for name, kind in kinds.items()})
    sheet = items.like(items.rows.inner_join(table, "soc_cell"))
    beyond = (sheet["x"] < 0.0) | (sheet["x"] > 1.0)
    doubt = sheet["wide"] if "score" in meta["axis"] else beyond.ifelse(1.0, sheet["wide"])
    polynomials: dict[str, list[Any]] = {name: [] for name in prior_table.POLYNOMIALS}
    for i, j in meta["terms"]:
        power = [sheet["x"]] * i + ([sheet["w"]] * j if j else [])
        for name, terms in polynomials.items():
            terms.append(reduce(mul, power, sheet[f"{name}_{i}{j}"]))
    sheet.add(doubt=doubt, **{name: total(terms) for name, terms in polynomials.items()})
    sheet.only("node", "doubt", *polynomials, *prior.ways)
    xp, names = sheet.functions, ("first", "second")
    bounds = zip(names, family.bounds, strict=True)
    curves = [sheet.keep(xp.low(xp.high(sheet[name], -most), most)) for name, most in bounds]
    a, b = family.parameters(*curves, xp)
    if meta["zero"]:  # the last node of the fullest cell
        last = sheet["node"] == int(prior.columns["node"].max())
        a, b = (last.ifelse(*v) for v in zip(family.spike, (a, b), strict=True))
        sheet.add(spike=last)
    sheet.add(a=a, b=b, u=sheet["weight"])
    sheet = _reweighted(sheet, prior) if meta["mixture"] else sheet
    a, b = family.update(sheet["a"], sheet["b"], sheet["y"], sheet["n"])
    further = ["apart"] * meta["mixture"] + ["zero"] * meta["zero"]
    sheet.add(a=a, b=b).only("u", "doubt", "a", "b", *further)
    return sheet.add(norm=family.norm(sheet["a"], sheet["b"], sheet.functions))


def _reweighted(nodes: _Sheet, prior: Prior) -> _Sheet:
    """Nodes with weights given the outcome, as in `prior_table`."""
    zero, ways, y, n = prior.meta["zero"], prior.ways, nodes["y"], nodes["n"]
    nodes.add(u=nodes.functions.high(nodes["u"], 0.0))
    log_p = prior.family.log_density(nodes["a"], nodes["b"], y, n, nodes.functions)
    nodes.add(log_p=log_p)
    nodes = nodes.join(nodes.sums(top=nodes["log_p"].max()))
    xp = nodes.functions
    # smaller exponentials are 0, which some engines refuse
    nodes.add(p=xp.exp(xp.high(nodes["log_p"] - nodes["top"], _LEAST_LOG)))
    moves = {f"sum_{way}": (nodes["p"] * nodes[way]).sum() for way in ways}
    items = nodes.sums(total=(nodes["u"] * nodes["p"]).sum(), **moves)
    items.add(**{name: items[name] / items["total"] for name in moves})
    items.add(moved=total(items[name] * items[name] for name in moves))
    nodes = nodes.join(items)
    change = total(nodes[way] * nodes[f"sum_{way}"] for way in ways)
    change = nodes.keep(change / xp.high(nodes["u"], 1e-100))
    apart = nodes["u"] * nodes["p"] / nodes["total"] * change * change
    u = nodes["u"] * nodes["p"] * (1.0 + nodes["moved"]) / xp.high(1.0 + change, 0.1)
    nodes.add(u=u, apart=apart)
    if zero:
        u, spike = nodes["u"], nodes["spike"]
        # without weight from here on; its own parameters would overflow in quantiles
        harmless = {name: spike.ifelse(1.0, nodes[name]) for name in ("a", "b")}
        nodes.add(zero=spike.ifelse(u, 0.0), u=spike.ifelse(0.0, u), **harmless)
    return nodes


def _with_moments(nodes: _Sheet, prior: Prior) -> _Sheet:
    """Mean and variance over the nodes given the outcome, where theta is not 0; p_zero."""
    family, meta, doubt = prior.family, prior.meta, nodes["doubt"].max()
    if meta["mixture"]:
        doubt = (nodes["apart"].sum() <= prior_table.MOST_MOVED).ifelse(doubt, 1.0)
    sums = {"mean": nodes.average(family.mean(nodes["a"], nodes["b"])), "flagged": doubt}
    if meta["zero"]:
        none = nodes["zero"].sum()
        sums["p_zero"] = none / (none + nodes["u"].sum())
    sheet = nodes.join(nodes.sums(**sums))
    variance = sheet.keep(family.variance(sheet["a"], sheet["b"]))
    centred = sheet.keep(family.mean(sheet["a"], sheet["b"]) - sheet["mean"])
    spreads = {"within": sheet.average(variance), "between": sheet.average(centred * centred)}
    if meta["zero"]:  # the share of theta below 0, which quantiles depend on
        spreads["below"] = 0.0 if family.positive else sheet.average(_law(sheet, family, 0.0)[0])
    items = sheet.sums(*sums, **spreads)
    flagged = items["flagged"]
    if not meta["mixture"]:
        close = items["between"] <= prior_table.MOST_APART * items["within"]
        flagged = close.ifelse(flagged, 1.0)
    return items.add(middle=items["within"] + items["between"], flagged=flagged)


def _law(nodes: _Sheet, family: Any, t: Any) -> tuple[Any, Any]:
    return family.law(nodes["a"], nodes["b"], nodes["norm"], t, nodes.functions)


def _with_quantiles(nodes: _Sheet, prior: Prior) -> _Sheet:
    """Moments and quantiles of items, by steps of Newton's method on the nodes' distribution."""
    import ibis

    family, zero, items = prior.family, prior.meta["zero"], _with_moments(nodes, prior)
    numbers, levels = np.arange(len(prior.levels)), np.array(prior.levels)
    sheet = items.like(items.rows.cross_join(small_table(soc_number=numbers, soc_level=levels)))
    xp, share, at_zero = sheet.functions, sheet["level"], ibis.literal(False)
    if zero:
        share, at_zero = prior_table.split_level(share, sheet["p_zero"], sheet["below"], xp)
    share = sheet.add(share=share, at_zero=at_zero)["share"]
    q, unit = prior_table.start(family, sheet["mean"], sheet["middle"], share, xp)
    goal = xp.log(share / (1.0 - share))
    sheet.add(q=q, unit=unit, low=-1e300, high=1e300, goal=goal)
    moments = ["mean", "middle", *["p_zero"] * zero]
    state = [*moments, "flagged", "number", "goal", "at_zero", "unit", "q", "low", "high"]
    for _ in range(_MIXTURE_STEPS if prior.meta["mixture"] else _STEPS):
        pairs = nodes.join(sheet.only(*state))
        p, density = map(pairs.average, _law(pairs, family, pairs["q"]))
        sheet = _step(pairs.sums(*state, p=p, density=density))
    close = sheet["at_zero"] | (sheet["gap"].abs() < prior_table.CLOSE)
    theta = close.ifelse(family.theta(sheet["q"], sheet.functions), ibis.null("float64"))
    theta = sheet["at_zero"].ifelse(0.0, theta)
    sheet.add(theta=theta, flagged=close.ifelse(sheet["flagged"], 1.0))
    quantiles = {
        name: sheet["theta"].max(where=sheet["number"] == k)
        for k, name in enumerate(prior.quantiles)
    }
    summary = sheet.sums(*moments, **quantiles, flagged=sheet["flagged"].max())
    mean, variance = summary["mean"], summary["middle"]
    if zero:
        nonzero = 1.0 - summary["p_zero"]
        mean, variance = nonzero * mean, nonzero * (variance + summary["p_zero"] * mean * mean)
    return summary.add(theta_mean=mean, theta_var=variance, theta_sd=variance.sqrt())


def _step(sheet: _Sheet) -> _Sheet:
    """Take a step of Newton's method from q; `gap` is the difference of the logits before it."""
    names = ("goal", "p", "density", "q", "low", "high", "unit")
    goal, p, density, q, low, high, unit = map(sheet.__getitem__, names)
    step = prior_table.newton(goal, p, density, q, low, high, unit, sheet.functions)
    gap, q, low, high = step
    return sheet.add(gap=gap, q=q, low=low, high=high)
